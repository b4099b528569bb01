//! The request mixes: what is sent, as templates, and how often which.
//!
//! A workload is immutable and shared by the load threads; an `Encoder` per thread draws keys and writes requests.

use crate::keys::{Distribution, KeyPicker, Rng};
use crate::replies::Protocol;
use crate::template::{Part, Pool, Template, fixed};

/// Weighted templates over a key space.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Each template with its share, in parts of the sum.
    templates: Vec<(u32, Template)>,
    protocol: Protocol,
    keys: u64,
    distribution: Distribution,
}

impl Workload {
    /// A workload of a single RESP request over `keys` uniform picks.
    pub fn of(template: Template, keys: u64) -> Self {
        Self::new(Protocol::Resp, vec![(1, template)], keys)
    }

    /// A workload of weighted templates; weights need not sum to anything.
    pub fn new(protocol: Protocol, templates: Vec<(u32, Template)>, keys: u64) -> Self {
        Self { templates, protocol, keys, distribution: Distribution::Uniform }
    }

    /// The same requests with another choice of keys.
    pub fn with_distribution(mut self, distribution: Distribution) -> Self {
        self.distribution = distribution;
        self
    }

    /// Parses a name of the command line.  Errors: the list of known names.
    pub fn by_name(name: &str, protocol: Protocol, keys: u64, value_bytes: usize) -> Result<Self, String> {
        let template = match name {
            "get" => Template::get(protocol, "key:"),
            "set" => Template::set(protocol, "key:", value_bytes),
            "mixed" => {
                let get = Template::get(protocol, "key:");
                let set = Template::set(protocol, "key:", value_bytes);
                return Ok(Self::new(protocol, vec![(9, get), (1, set)], keys));
            }
            "mget" if protocol == Protocol::Memcached => {
                let keys = (0..MEMCACHED_KEYS).flat_map(|_| [fixed(" "), Part::key("key:")]);
                let parts: Vec<Part> =
                    std::iter::once(fixed("get")).chain(keys).chain([fixed("\r\n")]).collect();
                Template::plain(&parts)
            }
            _ if protocol == Protocol::Memcached => {
                return Err("memcached knows get, set, mget and mixed".into());
            }
            "ping" => Template::resp(&[fixed("PING")]),
            "hset" => Template::resp(&[fixed("HSET"), fixed("h"), Part::id8(true), Part::number10(false)]),
            "zadd" => Template::resp(&[fixed("ZADD"), fixed("z"), Part::number10(true), Part::id8(true)]),
            "zadd-fill" => {
                Template::resp(&[fixed("ZADD"), fixed("z"), Part::number10(true), Part::id8(false)])
            }
            "sadd" => Template::resp(&[fixed("SADD"), fixed("s"), Part::id8(true)]),
            "lpush" => Template::resp(&[fixed("LPUSH"), fixed("l"), Part::number10(true)]),
            "rpop" => Template::resp(&[fixed("RPOP"), fixed("l")]),
            "lrange-fill" => Template::resp(&[fixed("RPUSH"), fixed("lr"), Part::number10(true)]),
            "xadd" => {
                Template::resp(&[fixed("XADD"), fixed("x"), fixed("*"), fixed("field"), Part::id8(true)])
            }
            "mget" => {
                let mut parts = vec![fixed("MGET")];
                parts.extend((0..8).map(|_| Part::key("key:")));
                Template::resp(&parts)
            }
            "zrange" => range_of_100("ZRANGE", "z"),
            "lrange" => range_of_100("LRANGE", "lr"),
            _ => return Err(format!("unknown workload {name:?}; known: {NAMES}")),
        };
        Ok(Self::new(protocol, vec![(1, template)], keys))
    }

    /// The protocol that its requests are written in.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Bytes of one request when all requests are equally long.
    pub fn request_bytes(&self) -> Option<usize> {
        let len = self.templates.first()?.1.len();
        self.templates.iter().all(|(_, t)| t.len() == len).then_some(len)
    }
}

/// Keys of a `get` of many.
const MEMCACHED_KEYS: usize = 24;

/// Names that `by_name` knows.
pub const NAMES: &str =
    "get set mixed ping hset zadd sadd lpush rpop xadd mget zrange lrange zadd-fill lrange-fill";

/// 100 members from a rank of six digits, over 900,000 picks.
fn range_of_100(command: &str, key: &str) -> Template {
    let rank = |base, fresh| Part::Number { prefix: "", width: 6, base, stride: 1, group: 1, fresh };
    Template::resp(&[fixed(command), fixed(key), rank(100_000, true), rank(100_099, false)])
}

/// Writes requests of a workload; one per load thread.
pub struct Encoder<'w> {
    workload: &'w Workload,
    pool: &'w Pool,
    picker: KeyPicker,
    rng: Rng,
    weights: u64,
}

impl<'w> Encoder<'w> {
    /// An encoder whose picks follow from `seed`.
    pub fn new(workload: &'w Workload, pool: &'w Pool, seed: u64) -> Self {
        let weights = workload.templates.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let picker = KeyPicker::new(workload.keys, workload.distribution);
        Self { workload, pool, picker, rng: Rng::new(seed), weights }
    }

    /// Appends the next request to `out`.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        let Self { workload, pool, picker, rng, weights } = self;
        let template = match &workload.templates[..] {
            [(_, only)] => only,
            several => {
                let mut at = rng.below(*weights);
                let found = several.iter().find(|(weight, _)| {
                    let hit = at < u64::from(*weight);
                    at = at.saturating_sub(u64::from(*weight));
                    hit
                });
                &found.unwrap_or(&several[0]).1
            }
        };
        template.write(out, pool, || picker.pick(rng));
    }
}
