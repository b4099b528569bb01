//! Lists: elements in insertion order, cheap at both ends.

pub mod edit;
mod finding;
pub mod moves;
pub mod moves_many;
pub mod pop;
pub mod push;
pub mod read;
pub mod wait;

use darter_pack::tree::List;
use darter_pack::tree::list::ListEnd;
use darter_store::change::Class;
use darter_store::{Event, KeyView};

use crate::reader::is;
use crate::{DataCommand, Env, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    push::LPUSH,
    push::RPUSH,
    push::LPUSHX,
    push::RPUSHX,
    pop::LPOP,
    pop::RPOP,
    pop::LMPOP,
    read::LLEN,
    read::LINDEX,
    read::LRANGE,
    read::LPOS,
    edit::LSET,
    edit::LINSERT,
    edit::LREM,
    edit::LTRIM,
    moves::LMOVE,
    moves::RPOPLPUSH,
    wait::BLPOP,
    wait::BRPOP,
    wait::BLMPOP,
    wait::BLMOVE,
    moves_many::LMOVEM,
    moves_many::BLMOVEM,
    wait::BRPOPLPUSH,
];

const fn event(name: &'static str) -> Event {
    Event::new(Class::LIST, name)
}

const fn pop_event(end: ListEnd) -> Event {
    match end {
        ListEnd::Front => event("lpop"),
        ListEnd::Back => event("rpop"),
    }
}

const fn push_event(end: ListEnd) -> Event {
    match end {
        ListEnd::Front => event("lpush"),
        ListEnd::Back => event("rpush"),
    }
}

/// LEFT or RIGHT.
fn end(arg: &[u8]) -> Result<ListEnd, Fault> {
    if is(arg, "left") {
        Ok(ListEnd::Front)
    } else if is(arg, "right") {
        Ok(ListEnd::Back)
    } else {
        Err(Fault::Syntax)
    }
}

/// A place in a list of `len` elements: negative counts from the end; `None` is before the first.
fn index_of(index: i64, len: u64) -> Option<u64> {
    if index >= 0 { u64::try_from(index).ok() } else { len.checked_sub(index.unsigned_abs()) }
}

/// The range `start..=stop` clipped to a list of `len` elements: first index and count.
fn clip(start: i64, stop: i64, len: u64) -> (u64, u64) {
    let first = index_of(start, len).unwrap_or(0);
    let Some(last) = index_of(stop, len) else { return (0, 0) };
    let last = last.min(len.saturating_sub(1));
    if first > last || first >= len { (0, 0) } else { (first, last - first + 1) }
}

/// The name OBJECT ENCODING gives a list: Redis' rule for when one listpack is enough.
pub fn encoding(list: KeyView<'_, List>, env: &Env) -> &'static str {
    let len = list.root.len();
    let is_small = match env.list_max_listpack_size {
        max if max >= 0 => len <= max.max(1).unsigned_abs(),
        class => {
            let bytes_max = match class {
                -1 => 4 << 10,
                -2 => 8 << 10,
                -3 => 16 << 10,
                -4 => 32 << 10,
                _ => 64 << 10,
            };
            listpack_bytes(list, bytes_max) <= bytes_max
        }
    };
    if is_small { "listpack" } else { "quicklist" }
}

/// Bytes Redis' listpack of these elements would have; counting stops past `enough`.
fn listpack_bytes(list: KeyView<'_, List>, enough: usize) -> usize {
    let mut bytes = 7;
    for item in list.root.iter(list.arena, 0, ListEnd::Back) {
        bytes += item.len() + 2;
        if bytes > enough {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clipped() {
        assert_eq!(clip(0, -1, 5), (0, 5));
        assert_eq!(clip(-100, 100, 5), (0, 5));
        assert_eq!(clip(3, 2, 5), (0, 0));
        assert_eq!(clip(5, 9, 5), (0, 0));
        assert_eq!(clip(-2, -1, 5), (3, 2));
        assert_eq!(clip(0, -9, 5), (0, 0));
        assert_eq!(clip(i64::MIN, i64::MAX, 5), (0, 5));
    }
}
