//! Compares our numbers and patterns with a real Redis server: `redis_check 127.0.0.1:PORT [rounds] [seed]`.
//!
//! The server must be empty and disposable; database 9 of it is used. Prints the first differences and fails on any.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use darter_base::longdouble::LongDouble;
use darter_base::rng::Rng;
use darter_base::{glob, number};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let address = words.next().ok_or("the address of a server is needed")?;
    let rounds: u64 = words.next().map_or(Ok(100_000), |w| w.parse())?;
    let mut rng = Rng::new(words.next().map_or(Ok(1), |w| w.parse())?);
    let mut redis = Redis::connect(&address)?;
    let mut differences = 0;
    for start in (0..rounds).step_by(500) {
        let size = 500.min(rounds - start);
        differences += increments(&mut redis, &mut rng, size)?;
        differences += patterns(&mut redis, &mut rng, size)?;
        differences += scores(&mut redis, &mut rng, size)?;
        if differences > 20 {
            break;
        }
    }
    println!("{rounds} rounds, {differences} differences");
    if differences > 0 { Err("Redis answers otherwise".into()) } else { Ok(()) }
}

/// INCRBYFLOAT of two random texts.
fn increments(redis: &mut Redis, rng: &mut Rng, rounds: u64) -> std::io::Result<u64> {
    let pairs: Vec<_> = (0..rounds).map(|_| (random_number(rng), random_number(rng))).collect();
    for (a, b) in &pairs {
        redis.send(&[b"SET", b"n", a])?;
        redis.send(&[b"INCRBYFLOAT", b"n", b])?;
    }
    let mut differences = 0;
    for (a, b) in &pairs {
        redis.reply()?;
        let theirs = redis.reply()?;
        let ours = match (LongDouble::parse(a), LongDouble::parse(b)) {
            (Some(x), Some(y)) if x.plus(y).is_finite() => {
                let mut out = b"$".to_vec();
                x.plus(y).write(&mut out);
                out
            }
            (Some(_), Some(_)) => b"-ERR increment would produce NaN or Infinity".to_vec(),
            _ => b"-ERR value is not a valid float".to_vec(),
        };
        differences += differ("INCRBYFLOAT", &[a, b], &ours, &theirs);
    }
    Ok(differences)
}

/// KEYS with a random pattern over one key.
fn patterns(redis: &mut Redis, rng: &mut Rng, rounds: u64) -> std::io::Result<u64> {
    let alphabet = b"[[]]^-\\**?ab\xff\x80Z";
    let word = |rng: &mut Rng, len_max: u64| -> Vec<u8> {
        (0..rng.below(len_max)).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect()
    };
    let pairs: Vec<_> = (0..rounds).map(|_| (word(rng, 10), word(rng, 5))).collect();
    for (pattern, text) in &pairs {
        redis.send(&[b"FLUSHDB"])?;
        redis.send(&[b"SET", text, b""])?;
        redis.send(&[b"KEYS", pattern])?;
    }
    let mut differences = 0;
    for (pattern, text) in &pairs {
        redis.reply()?;
        redis.reply()?;
        let theirs = redis.reply()?;
        // KEYS itself takes a lone star for everything.
        let matched = pattern == b"*" || glob::matches(pattern, text, false);
        let ours: &[u8] = if matched { b"*1" } else { b"*0" };
        differences += differ("KEYS", &[pattern, text], ours, &theirs);
        if theirs == b"*1" {
            redis.reply()?;
        }
    }
    Ok(differences)
}

/// ZADD of a random text; the score read back must be the same double. Debian's Redis 7.0 prints `%.17g`.
fn scores(redis: &mut Redis, rng: &mut Rng, rounds: u64) -> std::io::Result<u64> {
    let texts: Vec<_> = (0..rounds).map(|_| random_number(rng)).collect();
    for text in &texts {
        redis.send(&[b"DEL", b"z"])?;
        redis.send(&[b"ZADD", b"z", text, b"m"])?;
        redis.send(&[b"ZSCORE", b"z", b"m"])?;
    }
    let mut differences = 0;
    for text in &texts {
        redis.reply()?;
        redis.reply()?;
        let theirs = redis.reply()?;
        // Redis' small sorted sets keep minus zero as the integer 0.
        let bits = |n: Option<f64>| n.map(|n| (n + 0.0).to_bits());
        let read = theirs.strip_prefix(b"$").and_then(number::parse_f64);
        if bits(read) != bits(number::parse_f64(text)) {
            differences +=
                differ("ZADD", &[text], format!("{:?}", number::parse_f64(text)).as_bytes(), &theirs);
        }
    }
    Ok(differences)
}

fn differ(what: &str, inputs: &[&Vec<u8>], ours: &[u8], theirs: &[u8]) -> u64 {
    if ours == theirs {
        return 0;
    }
    let inputs: Vec<_> = inputs.iter().map(|i| i.escape_ascii().to_string()).collect();
    let short = |text: &[u8]| text[..text.len().min(90)].escape_ascii().to_string();
    println!("{what} {inputs:?}: {} here, {} there", short(ours), short(theirs));
    1
}

fn random_number(rng: &mut Rng) -> Vec<u8> {
    let digits = |rng: &mut Rng, len_max: u64| -> String {
        (0..1 + rng.below(len_max)).map(|_| char::from(b'0' + rng.below(10) as u8)).collect()
    };
    let sign = ["", "-", "", "-", "+"][rng.below(5) as usize];
    let text = match rng.below(14) {
        0 => digits(rng, 25),
        1..=4 => format!("{}.{}", digits(rng, 6), digits(rng, 6)),
        5 => format!("{}.{}", digits(rng, 20), digits(rng, 25)),
        6 => format!("{}.{}e{}", digits(rng, 3), digits(rng, 19), rng.below(50) as i64 - 25),
        7 => format!("{}.{}e{}", digits(rng, 3), digits(rng, 30), rng.below(600) as i64 - 300),
        8 => format!("{}e{}", digits(rng, 40), rng.below(9910) as i64 - 4980),
        9 => format!("0x{:x}.{:x}p{}", rng.below(1 << 40), rng.next_u64(), rng.below(200) as i64 - 100),
        10 => [
            "inf",
            "INFINITY",
            "nan",
            "0",
            "0.0",
            "1e4932",
            "1.18973149535723176502e4932",
            "3.6e-4951",
            "1e-4951",
        ][rng.below(9) as usize]
            .to_string(),
        11 => format!("{}.5e-17", rng.below(1000)),
        12 => (0..rng.below(6)).map(|_| char::from(b"01.eE+-xp "[rng.below(10) as usize])).collect(),
        _ => format!("0x{:x}{:x}p{}", rng.next_u64(), rng.next_u64(), rng.below(40000) as i64 - 20000),
    };
    format!("{sign}{text}").into_bytes()
}

struct Redis {
    input: BufReader<TcpStream>,
    output: Vec<u8>,
}

impl Redis {
    fn connect(address: &str) -> std::io::Result<Redis> {
        let mut redis = Redis { input: BufReader::new(TcpStream::connect(address)?), output: Vec::new() };
        redis.send(&[b"SELECT", b"9"])?;
        redis.reply()?;
        Ok(redis)
    }

    fn send(&mut self, args: &[&[u8]]) -> std::io::Result<()> {
        write!(self.output, "*{}\r\n", args.len())?;
        for arg in args {
            write!(self.output, "${}\r\n", arg.len())?;
            self.output.extend_from_slice(arg);
            self.output.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Reads one reply: a line as received, the bytes of a string after `$`, or `_` for nil.
    fn reply(&mut self) -> std::io::Result<Vec<u8>> {
        if !self.output.is_empty() {
            let output = std::mem::take(&mut self.output);
            let mut writer = self.input.get_ref().try_clone()?;
            // Beside the reading, since neither side holds all of the other's bytes.
            std::thread::spawn(move || writer.write_all(&output));
        }
        let mut line = Vec::new();
        self.input.read_until(b'\n', &mut line)?;
        line.truncate(line.len().saturating_sub(2));
        if line == b"$-1" {
            return Ok(b"_".to_vec());
        }
        if let Some(len) = line.strip_prefix(b"$").and_then(number::parse_u64) {
            let mut bytes = vec![0; len as usize + 2];
            self.input.read_exact(&mut bytes)?;
            line.truncate(1);
            line.extend_from_slice(&bytes[..len as usize]);
        }
        Ok(line)
    }
}
