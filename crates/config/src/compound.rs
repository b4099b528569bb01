//! Settings whose value is more than one word: snapshot rules, output buffer limits, classes of keyspace events.
//!
//! Each type reads and prints itself as Redis does, error texts included.

use darter_base::units;

/// Take a snapshot when this many keys changed within this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last snapshot, at least 1.
    pub seconds: u64,
    /// Changed keys since the last snapshot.
    pub changes: u64,
}

impl SavePoint {
    /// Reads pairs of seconds and changes; one empty word means no rule.
    pub(super) fn parse_all(words: &[&str]) -> Result<Vec<SavePoint>, String> {
        if matches!(words, [] | [""]) {
            return Ok(Vec::new());
        }
        let invalid = || "Invalid save parameters".to_owned();
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(invalid());
        }
        pairs
            .iter()
            .map(|[seconds, changes]| {
                let seconds = seconds.parse().ok().filter(|&s| s >= 1).ok_or_else(invalid)?;
                let changes = changes.parse().map_err(|_| invalid())?;
                Ok(SavePoint { seconds, changes })
            })
            .collect()
    }

    /// The rules on one line.
    pub(super) fn print_all(points: &[SavePoint]) -> String {
        let words: Vec<_> = points.iter().map(|p| format!("{} {}", p.seconds, p.changes)).collect();
        words.join(" ")
    }
}

/// The limit above which a client with unsent replies is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// Bytes that close it at once; 0 = no limit.
    pub hard_bytes: u64,
    /// Bytes that close it when it stays above for `soft_s`; 0 = no limit.
    pub soft_bytes: u64,
    /// Seconds it may stay above `soft_bytes`.
    pub soft_s: u64,
}

/// Output buffer limits of each class of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    /// Ordinary clients.
    pub normal: OutputLimit,
    /// Replicas.
    pub replica: OutputLimit,
    /// Clients with subscriptions.
    pub pubsub: OutputLimit,
}

impl OutputLimits {
    /// `self` with the classes that `words` names replaced; each is `class hard soft seconds`.
    pub(super) fn with(mut self, words: &[&str]) -> Result<OutputLimits, String> {
        let (classes, rest) = words.as_chunks::<4>();
        if !rest.is_empty() {
            return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
        }
        for [class, hard, soft, seconds] in classes {
            let place = match class.to_ascii_lowercase().as_str() {
                "normal" => &mut self.normal,
                "replica" | "slave" => &mut self.replica,
                "pubsub" => &mut self.pubsub,
                _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
            };
            let bytes = |text: &str| units::parse_bytes(text.as_bytes());
            match (bytes(hard), bytes(soft), seconds.parse()) {
                (Some(hard_bytes), Some(soft_bytes), Ok(soft_s)) => {
                    *place = OutputLimit { hard_bytes, soft_bytes, soft_s };
                }
                _ => {
                    let text = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
                    return Err(text.to_owned());
                }
            }
        }
        Ok(self)
    }

    /// The classes in order, under the names CONFIG GET uses.
    pub(super) fn classes(&self) -> [(&'static str, OutputLimit); 3] {
        [("normal", self.normal), ("slave", self.replica), ("pubsub", self.pubsub)]
    }

    /// All classes on one line, amounts in bytes.
    pub(super) fn print(&self) -> String {
        let words = self
            .classes()
            .map(|(class, l)| format!("{class} {} {} {}", l.hard_bytes, l.soft_bytes, l.soft_s));
        words.join(" ")
    }
}

/// Classes of keyspace events that are published, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(u32);

impl Events {
    /// Nothing is published.
    pub const NONE: Events = Events(0);
    /// `K`: to `__keyspace@db__` channels.
    pub const KEYSPACE: Events = Events(1 << 0);
    /// `E`: to `__keyevent@db__` channels.
    pub const KEYEVENT: Events = Events(1 << 1);
    /// `g`: DEL, EXPIRE, RENAME and others of no particular type.
    pub const GENERIC: Events = Events(1 << 2);
    /// `$`: strings.
    pub const STRING: Events = Events(1 << 3);
    /// `l`: lists.
    pub const LIST: Events = Events(1 << 4);
    /// `s`: sets.
    pub const SET: Events = Events(1 << 5);
    /// `h`: hashes.
    pub const HASH: Events = Events(1 << 6);
    /// `z`: sorted sets.
    pub const ZSET: Events = Events(1 << 7);
    /// `x`: a key expired.
    pub const EXPIRED: Events = Events(1 << 8);
    /// `e`: a key was evicted.
    pub const EVICTED: Events = Events(1 << 9);
    /// `t`: streams.
    pub const STREAM: Events = Events(1 << 10);
    /// `d`: types that Redis keeps in modules (JSON, filters).
    pub const MODULE: Events = Events(1 << 11);
    /// `n`: a key was created.
    pub const NEW: Events = Events(1 << 12);
    /// `m`: a key was looked up in vain.
    pub const MISS: Events = Events(1 << 13);
    /// `o`: a value was overwritten.
    pub const OVERWRITTEN: Events = Events(1 << 14);
    /// `c`: a key changed its type.
    pub const TYPE_CHANGED: Events = Events(1 << 15);

    /// `A`: every class except `m`, `n`, `o` and `c`.
    pub const ALL: Events = Events(0b1111_1111_1100);

    // In the order Redis prints them; the channel kinds and `m` come after the classes.
    const LETTERS: [(char, Events); 16] = [
        ('g', Events::GENERIC),
        ('$', Events::STRING),
        ('l', Events::LIST),
        ('s', Events::SET),
        ('h', Events::HASH),
        ('z', Events::ZSET),
        ('x', Events::EXPIRED),
        ('e', Events::EVICTED),
        ('t', Events::STREAM),
        ('d', Events::MODULE),
        ('n', Events::NEW),
        ('o', Events::OVERWRITTEN),
        ('c', Events::TYPE_CHANGED),
        ('K', Events::KEYSPACE),
        ('E', Events::KEYEVENT),
        ('m', Events::MISS),
    ];

    /// Returns true if every class of `other` is on.
    pub const fn contains(self, other: Events) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if an event of `class` is published: its class and one kind of channel are on.
    pub const fn publishes(self, class: Events) -> bool {
        self.0 & class.0 != 0 && self.0 & (Events::KEYSPACE.0 | Events::KEYEVENT.0) != 0
    }

    /// Both together.
    pub const fn union(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }

    /// Reads letters.
    pub(super) fn parse(text: &str) -> Result<Events, String> {
        text.chars().try_fold(Events::NONE, |on, letter| {
            let more = match letter {
                'A' => Some(Events::ALL),
                _ => Events::LETTERS.iter().find(|(l, _)| *l == letter).map(|(_, event)| *event),
            };
            let invalid = || "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned();
            Ok(on.union(more.ok_or_else(invalid)?))
        })
    }

    /// Prints letters in Redis' order.
    pub(super) fn print(self) -> String {
        let all = self.contains(Events::ALL);
        let mut text = String::new();
        if all {
            text.push('A');
        }
        for (letter, event) in Events::LETTERS {
            if self.contains(event) && !(all && Events::ALL.contains(event)) {
                text.push(letter);
            }
        }
        text
    }
}

/// Reads percentiles; one empty word means none.
pub(super) fn parse_percentiles(words: &[&str]) -> Result<Vec<f64>, String> {
    if matches!(words, [] | [""]) {
        return Ok(Vec::new());
    }
    words
        .iter()
        .map(|word| match word.parse::<f64>() {
            Ok(p) if (0.0..=100.0).contains(&p) => Ok(p),
            Ok(p) if !p.is_nan() => {
                Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".to_owned())
            }
            _ => Err("Invalid latency-tracking-info-percentiles parameters".to_owned()),
        })
        .collect()
}

/// Reads the three scores of `oom-score-adj-values`.
pub(super) fn parse_oom_scores(words: &[&str]) -> Result<[i32; 3], String> {
    let words: &[&str; 3] = words.try_into().map_err(|_| "wrong number of arguments".to_owned())?;
    let mut scores = [0; 3];
    for (score, word) in scores.iter_mut().zip(words) {
        *score = word
            .parse()
            .ok()
            .filter(|s| (-2000..=2000).contains(s))
            .ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")?;
    }
    Ok(scores)
}

/// Reads `host port`, `host:port`, `[v6]:port`, or nothing and `no one` for none.
pub(super) fn parse_endpoint(words: &[&str]) -> Result<Option<(String, u16)>, String> {
    let (host, port) = match words {
        [] | [""] => return Ok(None),
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => return Ok(None),
        [host, port] => (*host, *port),
        [both] => both.rsplit_once(':').ok_or("wrong number of arguments")?,
        _ => return Err("wrong number of arguments".to_owned()),
    };
    let port = port.parse().map_err(|_| "Invalid master port")?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    Ok(Some((host.to_owned(), port)))
}
