//! `lru_crawler metadump` and `mgdump`: a line for every item, shard by shard in slices, which `reading` drives.
//!
//! No shard is held for long, and what is told changes nothing. An item that is there from the beginning to the end is
//! told once; one that comes or goes meanwhile may be or not. Collections are none, nor keys that no client can name.

use darter_base::number;
use darter_store::{Record, RecordMarks, ScanPosition, Shard};
use darter_wire::memcache::{MemcacheWords, write_key};

use super::DB;
use super::admin;

/// Index lines looked at in one slice: some tens of microseconds.
const LINES_PER_SLICE: usize = 16;
/// The longest key that a client can name.
const KEY_BYTES_MAX: usize = 250;

/// What a line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListingForm {
    /// All that is known of the item.
    Facts,
    /// The command that reads it.
    Get,
}

/// How far a listing has come.
#[derive(Debug)]
pub struct Listing {
    form: ListingForm,
    // Nothing is in the classes asked for.
    is_empty: bool,
    shards_len: u16,
    // The shard to go on with, `shards_len` at the end, and the place in it.
    shard: u16,
    at: ScanPosition,
}

impl Listing {
    /// The listing that a command of this name asks for; `None` if it asks for something else, or for a class that there
    /// cannot be.
    pub fn asked(name: &[u8], words: MemcacheWords<'_>, shards_len: u16) -> Option<Listing> {
        let words: Vec<&[u8]> = words.take(3).collect();
        let (form, classes) = match (name, &words[..]) {
            (b"lru_crawler", [b"metadump", classes]) => (ListingForm::Facts, *classes),
            (b"lru_crawler", [b"mgdump", classes]) => (ListingForm::Get, *classes),
            _ => return None,
        };
        let is_empty = match classes {
            b"all" | b"hash" => false,
            classes => !admin::classes(classes)?.contains(&ONLY_CLASS),
        };
        Some(Listing { form, is_empty, shards_len, shard: 0, at: ScanPosition::START })
    }

    /// The shard that the next slice is about; `None` at the end.
    pub fn shard(&self) -> Option<u16> {
        (self.shard < self.shards_len && !self.is_empty).then_some(self.shard)
    }

    /// Tells a slice of its shard, which is held.
    pub fn step(&mut self, shard: &Shard, now_ms: u64, out: &mut Vec<u8>) {
        if self.shard == 0 && self.at == ScanPosition::START {
            out.extend_from_slice(b"OK\r\n");
        }
        for _ in 0..LINES_PER_SLICE {
            let next = shard.scan(DB, self.at, |record| {
                if record.text().is_some()
                    && record.key().len() <= KEY_BYTES_MAX
                    && !record.is_expired(now_ms)
                {
                    self.form.tell(shard, record, out);
                }
            });
            match next {
                Some(next) => self.at = next,
                None => {
                    (self.shard, self.at) = (self.shard + 1, ScanPosition::START);
                    return;
                }
            }
        }
    }

    /// Ends the answer.
    pub fn finish(&self, out: &mut Vec<u8>) {
        if self.is_empty {
            out.extend_from_slice(b"OK\r\n");
        }
        out.extend_from_slice(match self.form {
            ListingForm::Facts => b"END\r\n",
            ListingForm::Get => b"EN\r\n",
        });
    }
}

impl ListingForm {
    fn tell(self, shard: &Shard, record: Record<'_>, out: &mut Vec<u8>) {
        match self {
            ListingForm::Facts => tell_facts(shard, record, out),
            ListingForm::Get => {
                let is_plain = record.key().iter().all(u8::is_ascii_graphic);
                out.extend_from_slice(b"mg ");
                write_key(out, record.key(), !is_plain);
                out.extend_from_slice(if is_plain { b"\r\n" } else { b" b\r\n" });
            }
        }
    }
}

/// As memcached writes it: the key escaped, and a line that ends in a line feed alone.
fn tell_facts(shard: &Shard, record: Record<'_>, out: &mut Vec<u8>) {
    let extras = record.extras().unwrap_or_default();
    out.extend_from_slice(b"key=");
    for &byte in record.key() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out.extend_from_slice(b" exp=");
    number::write_i64(out, record.deadline_ms().map_or(-1, |ms| (ms / 1000).cast_signed()));
    let was_fetched = if extras.marks.has(RecordMarks::FETCHED) { "yes" } else { "no" };
    let (last_s, cas, flags) = (extras.access_s.unwrap_or(0), extras.cas.unwrap_or(0), extras.flags);
    let bytes = record.key().len() + shard.value_bytes(record);
    let facts =
        format!(" la={last_s} cas={cas} fetch={was_fetched} cls={ONLY_CLASS} size={bytes} flags={flags}\n");
    out.extend_from_slice(facts.as_bytes());
}

/// The number of the one class of items.
const ONLY_CLASS: u32 = 1;
