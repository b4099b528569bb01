//! Values of a given size under a stream: every so often one of its keys is filled anew by bulk commands.
//!
//! The random commands then meet values that are large from the start, in whatever encoding that is.

use crate::rng::Rng;
use crate::stream::Op;
use crate::words;

/// How members of a family's values are added: the command, and the arguments of member `n`.
type Filling = (&'static str, fn(usize, &mut Rng) -> Vec<Vec<u8>>);

/// Ops between two fillings.
const OPS_BETWEEN: usize = 250;
/// Members added by one command.
const MEMBERS_AT_ONCE: usize = 1_000;
/// Of the keys that streams use, those that are filled.
const KEYS: usize = 3;

/// The filling of a family's values, if they have members.
fn filling(family: &str) -> Option<Filling> {
    Some(match family {
        "lists" => ("RPUSH", |n, rng| vec![member(n, rng)]),
        "sort" => ("RPUSH", |n, _| vec![number(n * 7_919 % 1_000_003)]),
        "hashes" => ("HSET", |n, rng| {
            let field = if n < 6 { format!("f{n}").into_bytes() } else { member(n, rng) };
            vec![field, words::draw("value", rng)]
        }),
        "sets" => ("SADD", |n, rng| vec![member(n, rng)]),
        "zsets" => ("ZADD", |n, rng| vec![number(n * 37 % 1_000), member(n, rng)]),
        "hll" => ("PFADD", |n, _| vec![number(n)]),
        "geo" => ("GEOADD", |n, _| {
            let (longitude, latitude) = (n * 37 % 360, n * 11 % 160);
            let degrees =
                |whole: usize, half: usize| format!("{}.5", whole as i64 - half as i64).into_bytes();
            vec![degrees(longitude, 180), degrees(latitude, 80), format!("m{n}").into_bytes()]
        }),
        "bitmaps" | "strings" => ("APPEND", |n, _| vec![vec![n as u8 ^ 0x5a]]),
        _ => return None,
    })
}

/// Some of the members that the random commands know, then integers and texts, all different.
fn member(n: usize, rng: &mut Rng) -> Vec<u8> {
    match n % 3 {
        _ if n < 8 => format!("m{n}").into_bytes(),
        0 => number(n * 31),
        1 => format!("member:{n}").into_bytes(),
        _ => [format!("{n}-").as_bytes(), &vec![b'x'; rng.below(40)]].concat(),
    }
}

fn number(n: usize) -> Vec<u8> {
    n.to_string().into_bytes()
}

/// `ops` with fillings of `members` members in between; as they are for a family whose values have none.
pub fn under(ops: Vec<Op>, family: &str, members: usize, seed: u64) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let mut filled = Vec::with_capacity(ops.len());
    let mut rounds = 0;
    for (at, mut op) in ops.into_iter().enumerate() {
        if at % OPS_BETWEEN == 0 {
            let keys = if at == 0 { 0..KEYS } else { rounds % KEYS..rounds % KEYS + 1 };
            keys.for_each(|key| filled.extend(fill(family, format!("k{key}").as_bytes(), members, &mut rng)));
            rounds += 1;
            op.joined = false;
        }
        filled.push(op);
    }
    filled
}

fn fill(family: &str, key: &[u8], members: usize, rng: &mut Rng) -> Vec<Op> {
    let op = |args: Vec<Vec<u8>>| Op { connection: 0, args, joined: false, pause_ms: 0 };
    let plain = |words: &[&[u8]]| op(words.iter().map(|word| word.to_vec()).collect());
    let mut ops = Vec::new();
    if family == "streams" {
        ops.push(plain(&[b"DEL", key]));
        for n in 1..=members {
            let id = format!("{n}-1");
            ops.push(plain(&[b"XADD", key, id.as_bytes(), b"f", &words::draw("value", rng)]));
            ops.last_mut().expect("pushed above").joined = n % MEMBERS_AT_ONCE != 1;
        }
    } else if let Some((command, args_of)) = filling(family) {
        ops.push(plain(&[b"DEL", key]));
        for start in (0..members).step_by(MEMBERS_AT_ONCE) {
            let mut args = vec![command.as_bytes().to_vec(), key.to_vec()];
            let these = start..members.min(start + MEMBERS_AT_ONCE);
            if command == "APPEND" {
                args.push(these.flat_map(|n| args_of(n, rng).concat()).collect());
            } else {
                these.for_each(|n| args.extend(args_of(n, rng)));
            }
            ops.push(op(args));
        }
    }
    if !ops.is_empty() && rng.percent(50) {
        ops.push(plain(&[b"EXPIRE", key, b"100000"]));
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_gets_its_members() {
        let ops = vec![Op { connection: 0, args: vec![b"PING".to_vec()], joined: true, pause_ms: 0 }; 300];
        for (family, args_of_one) in [("sets", 1), ("hashes", 2), ("geo", 3), ("zsets", 2), ("lists", 1)] {
            let filled = under(ops.clone(), family, 2_500, 1);
            let adding = filled
                .iter()
                .filter(|op| op.args.len() > 2 && op.args[1].starts_with(b"k") && op.name() != "EXPIRE");
            let args: usize = adding.map(|op| op.args.len() - 2).sum();
            assert_eq!(args, 4 * 2_500 * args_of_one, "{family}");
            assert!(filled.iter().filter(|op| op.name() == "PING").count() == 300);
        }
        assert_eq!(under(ops.clone(), "server", 10, 1).len(), ops.len());
        let streams = under(ops, "streams", 10, 1);
        assert_eq!(streams.iter().filter(|op| op.name() == "XADD").count(), 40);
    }
}
