//! The cost of the first change of a large value during a cut, in bytes written and kept: some leaves, for every type
//! and size of value.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry as MemberExpiry, PackKind, Table};
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{List, Pending, StreamId, Zset};

use super::*;
use crate::object::Collection;
use crate::shard::Key;
use crate::stream_value::producers::Producers;
use crate::{Keyed, SetValue, StreamValue, rdb};

/// Adds up the numbers it receives.
#[derive(Clone, Default)]
struct Meter(Arc<AtomicUsize>);

impl Keeper for Meter {
    fn keep(&mut self, entry: CutEntry<'_>) {
        if let CutBody::Object(object, arena) = entry.value {
            let mut out = Vec::new();
            rdb::write_object(object, arena, &mut out);
            self.0.fetch_add(out.len(), Relaxed);
        }
    }

    fn keep_in_pieces(&mut self, _: usize, _: Record<'_>, _: u8, _: u64) -> Box<dyn PieceKeeper> {
        self.another()
    }

    fn note_kept(&mut self, bytes: isize) {
        self.0.fetch_add(usize::try_from(bytes).unwrap_or(0), Relaxed);
    }
}

impl PieceKeeper for Meter {
    fn keep(&mut self, _: u64, piece: &[u8]) {
        self.0.fetch_add(piece.len(), Relaxed);
    }

    fn another(&self) -> Box<dyn PieceKeeper> {
        Box::new(self.clone())
    }
}

const KEY: &[u8] = b"key";
const ELEMENTS: u64 = 20_000;
/// Two leaves, a branch, and the buffers of pieces: 200 bytes each in tests.
const WORK_MAX: usize = 8 << 10;

/// Makes a value of `ELEMENTS` by `add`, begins a cut, and changes it by `change`. Returns the bytes that the change
/// had written or kept, and those of the whole value.
fn work<T: Collection>(
    make: impl FnOnce() -> T,
    add: impl Fn(&mut T, &mut Arena, KeyHasher, u64),
    change: impl FnOnce(&mut T, &mut Arena, KeyHasher),
) -> (usize, usize) {
    let hasher = KeyHasher::new(5);
    let mut shard = Shard::new(1, 5, hasher).expect("address space");
    let key = Key { bytes: KEY, hash: hasher.hash(KEY) };
    let mut place = Keyed::find(&mut shard, 0, key, 0);
    let fill = |value: &mut T, arena: &mut Arena, hasher| {
        (0..ELEMENTS).for_each(|n| add(value, arena, hasher, n));
    };
    assert!(place.edit_or_create(make, fill).is_ok());
    let meter = Meter::default();
    shard.begin_cut(1, Box::new(meter.clone()));
    let mut place = Keyed::find(&mut shard, 0, key, 0);
    assert!(place.edit(change).is_ok_and(|edited| edited.is_some()));
    let of_change = meter.0.load(Relaxed);
    assert!(!shard.walk_cut(1), "there is more to be written");
    while !shard.walk_cut(100) {}
    drop(shard.end_cut());
    let mut place = Keyed::find(&mut shard, 0, key, 0);
    assert!(place.remove());
    while !shard.free_some(1000) {}
    assert_eq!(shard.arena.used_bytes(), 0);
    (of_change, meter.0.load(Relaxed))
}

fn assert_bounded(name: &str, (of_change, all): (usize, usize)) {
    assert!(of_change <= WORK_MAX, "{name}: the first change had {of_change} of {all} bytes written or kept");
    assert!(all > 5 * WORK_MAX, "{name}: {all} bytes are not large");
}

fn text(n: u64) -> Vec<u8> {
    format!("member {n}").into_bytes()
}

#[test]
fn the_first_change_of_a_tree_costs_some_leaves() {
    let push = |list: &mut List, arena: &mut Arena, _, n| {
        list.push(arena, ListEnd::Back, Item::of(&text(n))).expect("room");
    };
    let pop = |list: &mut List, arena: &mut Arena, _| {
        list.pop(arena, ListEnd::Front, |_| {});
        list.set(arena, ELEMENTS / 2, Item::of(b"new")).expect("room");
    };
    assert_bounded("list", work(List::new, push, pop));
    let add = |zset: &mut Zset, arena: &mut Arena, hasher: KeyHasher, n: u64| {
        zset.insert(arena, &hasher, Item::of(&text(n)), (n * 7919 % 10_007) as f64).expect("room");
    };
    let change = |zset: &mut Zset, arena: &mut Arena, hasher: KeyHasher| {
        zset.insert(arena, &hasher, Item::of(&text(77)), 5.0).expect("room");
        zset.set_expiry(arena, &hasher, Item::of(&text(78)), Some(1 << 40));
    };
    assert_bounded("sorted set", work(Zset::new, add, change));
    let add_timed = |zset: &mut Zset, arena: &mut Arena, hasher: KeyHasher, n: u64| {
        add(zset, arena, hasher, n);
        zset.set_expiry(arena, &hasher, Item::of(&text(n)), Some((1 << 40) + n));
    };
    assert_bounded("sorted set that expires", work(Zset::new, add_timed, change));
}

#[test]
fn the_first_change_of_a_set_or_hash_costs_some_packs() {
    let add = |set: &mut SetValue, arena: &mut Arena, hasher, n: u64| {
        set.insert(arena, hasher, Item::of(n.to_string().as_bytes()), MemberExpiry::Keep).expect("room");
    };
    let remove = |set: &mut SetValue, arena: &mut Arena, hasher| {
        assert!(set.remove(arena, hasher, Item::of(b"4711")));
    };
    assert_bounded("set of integers", work(SetValue::new, add, remove));
    let add = |set: &mut SetValue, arena: &mut Arena, hasher, n: u64| {
        set.insert(arena, hasher, Item::of(&text(n)), MemberExpiry::Keep).expect("room");
    };
    let remove = |set: &mut SetValue, arena: &mut Arena, hasher| {
        assert!(set.remove(arena, hasher, Item::of(&text(4711))));
    };
    assert_bounded("set of texts", work(SetValue::new, add, remove));
    let put = |table: &mut Table, arena: &mut Arena, hasher: KeyHasher, n: u64| {
        let (name, of) = (text(n), |key: &[u8]| hasher.hash(key));
        let done = table.insert(arena, hasher.hash(&name), &name, Item::of(b"v"), MemberExpiry::Clear, &of);
        assert!(done.is_ok());
    };
    let change = |table: &mut Table, arena: &mut Arena, hasher: KeyHasher| put(table, arena, hasher, 4711);
    assert_bounded("hash", work(|| Table::new(PackKind::KeysAndValues), put, change));
}

#[test]
fn the_first_change_of_a_stream_costs_some_leaves() {
    let add = |stream: &mut StreamValue, arena: &mut Arena, _, n: u64| {
        let (id, name) = (StreamId { ms: n + 1, seq: 0 }, text(n));
        assert_eq!(stream.append(arena, id, [(&b"name"[..], &name[..])].into_iter()), Ok(true));
        stream.producers_mut(Producers::default).add(&text(n % 100), &name, id, 0);
        stream.create_group(&[(n % 3) as u8], id, None);
        if let Some((group, _)) = stream.group_mut(&[(n % 3) as u8]) {
            let (consumer, _) = group.find_or_create(&text(n % 50), 1);
            let pending = Pending { consumer, delivered_ms: n, deliveries: 1 };
            group.give(arena, id, pending).expect("room");
        }
    };
    let append = |stream: &mut StreamValue, arena: &mut Arena, hasher| add(stream, arena, hasher, ELEMENTS);
    assert_bounded("stream", work(StreamValue::new, add, append));
    let acknowledge = |stream: &mut StreamValue, arena: &mut Arena, _| {
        let id = StreamId { ms: ELEMENTS / 2, seq: 0 };
        assert!(stream.delete(arena, id) && stream.release(arena, id));
    };
    assert_bounded("stream", work(StreamValue::new, add, acknowledge));
}

/// Items outside the arena are handed over, not copied: only the removed ones are kept.
#[test]
fn the_first_change_of_a_list_of_long_items_keeps_what_leaves() {
    const LONG: usize = 40_000;
    let long = |n: u64| vec![b'a' + (n % 26) as u8; LONG];
    let push = |list: &mut List, arena: &mut Arena, _, n: u64| {
        if n.is_multiple_of(1000) {
            list.push(arena, ListEnd::Back, Item::of(&long(n / 1000))).expect("room");
        }
    };
    let pop = |list: &mut List, arena: &mut Arena, _| {
        list.pop(arena, ListEnd::Front, |_| {});
    };
    let (of_change, all) = work(List::new, push, pop);
    assert!((LONG..LONG + WORK_MAX).contains(&of_change), "{of_change}");
    assert!(all > 20 * LONG, "{all}");
}
