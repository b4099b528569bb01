//! Collections that change, are removed, move and come back while they are read: each reader gets the state at its
//! start.

use std::collections::BTreeSet;
use std::sync::Arc;

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry as MemberExpiry, PackKind, Table};
use darter_pack::tree::Direction;
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_pack::tree::{List, Zset};

use super::Stretch;
use crate::{Event, Expiry, Extras, Key, Keyed, SetValue, Shard};

const NOW: u64 = 1_700_000_000_000;

fn tell() -> Tell {
    Arc::new(|seen, out| {
        let line = match seen {
            SeenLeaf::Item(item) => format!("{}\n", String::from_utf8_lossy(&item.to_vec())),
            SeenLeaf::Field(field, value) => {
                format!("{:?}={:?}\n", field.to_vec(), value.to_vec())
            }
            SeenLeaf::Scored(item, score) => format!("{:?}@{score}\n", item.to_vec()),
            SeenLeaf::Logged(entry) => format!("{:?}\n", entry.id),
        };
        out.extend_from_slice(line.as_bytes());
    })
}

struct Stage {
    shard: Shard,
    hasher: KeyHasher,
    rng: Rng,
}

impl Stage {
    fn new(seed: u64) -> Stage {
        let hasher = KeyHasher::new(seed);
        Stage { shard: Shard::new(2, 0, hasher).expect("address space"), hasher, rng: Rng::new(seed) }
    }

    fn key<'k>(&self, name: &'k str) -> Key<'k> {
        Key { bytes: name.as_bytes(), hash: self.hasher.hash(name.as_bytes()) }
    }

    fn at<'s>(&'s mut self, name: &'s str) -> Keyed<'s> {
        let key = self.key(name);
        Keyed::find(&mut self.shard, 0, key, NOW)
    }

    fn begin(&mut self, name: &str, stretch: Stretch) -> u32 {
        let key = self.key(name);
        self.shard.begin_read(0, key, stretch, tell()).expect("it is there")
    }

    /// The whole rest of a read.
    fn finish(&mut self, number: u32, mut out: Vec<u8>) -> Vec<String> {
        while !self.shard.read_step(number, &mut out, usize::MAX) {}
        self.shard.end_read(number);
        String::from_utf8(out).expect("text").lines().map(str::to_owned).collect()
    }

    fn fill_set(&mut self, name: &str, members: u64) {
        let mut place = self.at(name);
        place
            .edit_or_create(SetValue::new, |set: &mut SetValue, arena, hasher| {
                for n in 0..members {
                    let text = member(n);
                    set.insert(arena, hasher, Item::of(text.as_bytes()), MemberExpiry::Keep).expect("room");
                }
            })
            .map_or_else(|_| panic!("a set with room"), drop);
    }

    fn change_set(&mut self, name: &str, member: &str, is_in: bool) {
        let mut place = self.at(name);
        let done = place.edit(|set: &mut SetValue, arena, hasher| match is_in {
            true => set.insert(arena, hasher, Item::of(member.as_bytes()), MemberExpiry::Keep).expect("room"),
            false => set.remove(arena, hasher, Item::of(member.as_bytes())),
        });
        assert!(done.is_ok_and(|edited| edited.is_some()) || !is_in);
    }
}

/// Every other member is an integer.
fn member(n: u64) -> String {
    if n.is_multiple_of(2) { n.to_string() } else { format!("member:{n}") }
}

#[test]
fn a_set_is_read_as_it_stood_whatever_becomes_of_it() {
    for seed in 0..30 {
        let mut stage = Stage::new(seed);
        stage.fill_set("set", 2000);
        let numbers = [stage.begin("set", Stretch::All), stage.begin("set", Stretch::All)];
        let mut outs = [Vec::new(), Vec::new()];
        for _ in 0..stage.rng.below(400) {
            let n = stage.rng.below(3000);
            let is_in = stage.rng.below(2) == 0;
            stage.change_set("set", &member(n), is_in);
            let which = stage.rng.below(3) as usize;
            if which < 2 && stage.rng.below(10) == 0 {
                let bytes_max = outs[which].len() + 300;
                stage.shard.read_step(numbers[which], &mut outs[which], bytes_max);
            }
        }
        let (from, to) = (stage.key("set"), stage.key("moved"));
        match stage.rng.below(6) {
            0 => drop(stage.at("set").remove()),
            1 => drop(stage.at("set").put_text(b"text", crate::record::Expiry::None)),
            2 => drop(stage.shard.rename((0, from), (1, to), NOW)),
            3 => drop(stage.shard.flush_db(0)),
            4 => (0..3000).for_each(|n| stage.change_set("set", &member(n), false)),
            _ => {}
        }
        while stage.rng.below(4) != 0 {
            stage.shard.free_some(50);
        }
        let wanted: BTreeSet<String> = (0..2000).map(member).collect();
        for (number, out) in numbers.into_iter().zip(outs) {
            let got = stage.finish(number, out);
            assert_eq!(got.len(), 2000, "seed {seed}");
            assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), wanted, "seed {seed}");
        }
        stage.shard.flush_db(0);
        stage.shard.flush_db(1);
        while !stage.shard.free_some(1000) {}
        assert_eq!(stage.shard.arena.used_bytes(), 0, "seed {seed}");
        assert_eq!((stage.shard.objects.len(), stage.shard.orphans.len()), (0, 0), "seed {seed}");
    }
}

#[test]
fn integers_that_are_all_gone_are_still_read() {
    let mut stage = Stage::new(7);
    stage.fill_set("set", 1000);
    let number = stage.begin("set", Stretch::All);
    for n in (0..1000).step_by(2) {
        stage.change_set("set", &member(n), false);
    }
    assert_eq!(stage.finish(number, Vec::new()).len(), 1000);
}

#[test]
fn hashes_lists_and_sorted_sets_outlive_their_keys() {
    let mut stage = Stage::new(1);
    let made = stage.at("hash").edit_or_create(
        || Table::new(PackKind::KeysAndValues),
        |table: &mut Table, arena, hasher| {
            for n in 0..3000 {
                let (field, value) = (format!("field:{n}"), n.to_string());
                let hash = hasher.hash(field.as_bytes());
                let of_key = |key: &[u8]| hasher.hash(key);
                let value = Item::of(value.as_bytes());
                table
                    .insert(arena, hash, field.as_bytes(), value, MemberExpiry::Keep, &of_key)
                    .expect("room");
            }
        },
    );
    assert!(made.is_ok());
    let made = stage.at("list").edit_or_create(List::new, |list: &mut List, arena, _| {
        (0..3000).for_each(|n| list.push(arena, ListEnd::Back, Item::Int(n)).expect("room"));
    });
    assert!(made.is_ok());
    let made = stage.at("zset").edit_or_create(Zset::new, |zset: &mut Zset, arena, hasher| {
        for n in 0..3000 {
            zset.insert(arena, &hasher, Item::Int(n), n as f64).expect("room");
        }
    });
    assert!(made.is_ok());
    let hash = stage.begin("hash", Stretch::All);
    let list = stage.begin("list", Stretch::Ranks(1000, 1500, Direction::Up));
    let zset = stage.begin("zset", Stretch::Ranks(0, 3000, Direction::Down));
    let (mut out, before) = (Vec::new(), stage.shard.arena.used_bytes());
    assert!(!stage.shard.read_step(list, &mut out, 500));
    for name in ["hash", "list", "zset"] {
        assert!(stage.at(name).remove());
    }
    while !stage.shard.free_some(1000) {}
    assert!(stage.shard.arena.used_bytes() > before / 2, "they are kept");
    assert_eq!(stage.finish(hash, Vec::new()).len(), 3000);
    let items: Vec<String> = (1000..2500).map(|n| n.to_string()).collect();
    assert_eq!(stage.finish(list, out), items);
    // An abandoned read also frees what it kept.
    stage.shard.end_read(zset);
    while !stage.shard.free_some(1000) {}
    assert_eq!((stage.shard.arena.used_bytes(), stage.shard.objects.len()), (0, 0));
    assert_eq!(stage.shard.reads_len(), 0);
    assert!(stage.shard.read_step(zset, &mut Vec::new(), 100), "nobody reads under this number");
}

#[test]
fn only_collections_of_the_right_kind_are_read_and_not_by_too_many() {
    let mut stage = Stage::new(2);
    stage.fill_set("set", 2000);
    let (set, none) = (stage.key("set"), stage.key("none"));
    assert!(stage.shard.begin_read(0, none, Stretch::All, tell()).is_none());
    assert!(stage.shard.begin_read(0, set, Stretch::Ranks(0, 1, Direction::Up), tell()).is_none());
    let begun = (0..100).filter(|_| stage.shard.begin_read(0, set, Stretch::All, tell()).is_some()).count();
    assert_eq!(begun, super::READERS_MAX);
}

/// Bytes that tell where they are.
fn long_text(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed | 0x80).collect()
}

#[test]
fn a_long_string_is_read_as_it_was_whatever_becomes_of_it() {
    const LEN: usize = 300_000;
    type Change = fn(&mut Stage);
    let changes: [(&str, Change); 11] = [
        ("nothing", |_| {}),
        ("overwritten by one of its length", |stage| {
            let (key, value) = (stage.key("k"), long_text(9, LEN));
            stage.shard.set_text(0, key, &value, NOW, Event::NEW).expect("room");
        }),
        ("overwritten by one nearly as long", |stage| {
            let (key, value) = (stage.key("k"), long_text(9, LEN - 3));
            stage.shard.set_text(0, key, &value, NOW, Event::NEW).expect("room");
        }),
        ("put with a deadline", |stage| {
            stage.at("k").put_text(&long_text(9, LEN), Expiry::At(NOW + 5)).expect("room");
        }),
        ("changed in place", |stage| {
            stage.at("k").edit_text(LEN).expect("room").fill(1);
        }),
        ("changed in place twice", |stage| {
            stage.at("k").edit_text(LEN + 10).expect("room").fill(1);
            stage.at("k").edit_text(LEN).expect("room").fill(2);
        }),
        ("cut short", |stage| {
            stage.at("k").edit_text(3).expect("room").fill(1);
        }),
        ("given a deadline", |stage| {
            stage.at("k").set_deadline(Some(NOW + 9)).expect("room");
            stage.at("k").set_deadline(Some(NOW + 99)).expect("room");
        }),
        ("an item of memcached's", |stage| {
            stage.at("k").put_item(&long_text(9, LEN), Expiry::None, Extras::default()).expect("room");
            stage.at("k").put_item(&long_text(8, LEN), Expiry::None, Extras::default()).expect("room");
        }),
        ("removed", |stage| {
            assert!(stage.at("k").remove());
        }),
        ("flushed", |stage| {
            stage.shard.flush_db(0);
            while !stage.shard.free_some(1000) {}
        }),
    ];
    // Plain, grown in place, and packed.
    for form in 0..3 {
        for (what, change) in changes {
            let mut stage = Stage::new(3);
            let text = match form {
                2 => (0..LEN).map(|at| b'a' + (at % 23) as u8).collect(),
                _ => long_text(1, LEN),
            };
            match form {
                1 => stage.at("k").edit_text(LEN).expect("room").copy_from_slice(&text),
                _ => stage.at("k").put_text(&text, Expiry::None).expect("room"),
            }
            let key = stage.key("k");
            let first = stage.shard.begin_text(0, key, (0, LEN), (Vec::new(), b"!")).expect("it is long");
            let part =
                stage.shard.begin_text(0, key, (1003, 200_001), (b"<".to_vec(), b">")).expect("it is long");
            let mut out = Vec::new();
            while out.len() < 70_000 {
                let bytes_max = out.len() + 10_000;
                assert!(!stage.shard.read_step(first, &mut out, bytes_max));
            }
            change(&mut stage);
            // Later values are not written over the one that is read.
            for n in 0..20 {
                stage.at(&format!("other:{n}")).put_text(&long_text(77, LEN), Expiry::None).expect("room");
            }
            let mut all = out;
            while !stage.shard.read_step(first, &mut all, usize::MAX) {}
            stage.shard.end_read(first);
            assert_eq!(all.pop(), Some(b'!'));
            assert!(all == text, "{what}, form {form}");
            let mut some = Vec::new();
            while !stage.shard.read_step(part, &mut some, usize::MAX) {}
            stage.shard.end_read(part);
            assert!(some.starts_with(b"<") && some.ends_with(b">"));
            assert!(some[1..some.len() - 1] == text[1003..200_001], "{what}, form {form}");
            assert_eq!(stage.shard.reads_len(), 0);
            stage.shard.flush_db(0);
            while !stage.shard.free_some(1000) {}
            assert_eq!(stage.shard.arena.used_bytes(), 0, "{what}");
        }
    }
}

#[test]
fn what_a_reader_alone_still_has_counts_for_it_and_not_for_the_keys() {
    let mut stage = Stage::new(4);
    stage.at("k").put_text(&long_text(1, 8 << 20), Expiry::None).expect("room");
    let key = stage.key("k");
    let number = stage.shard.begin_text(0, key, (0, 8 << 20), (Vec::new(), b"")).expect("it is long");
    assert_eq!(stage.shard.read_aside(number).bytes, 0);
    assert!(stage.at("k").remove());
    assert!(stage.shard.memory_bytes() < 2 << 20 && stage.shard.read_aside(number).bytes > 8 << 20);
    stage.shard.end_read(number);
    assert!(stage.shard.memory_bytes() < 2 << 20 && stage.shard.read_aside(number).bytes == 0);
}

#[test]
fn short_strings_and_other_values_are_not_read_in_pieces() {
    let mut stage = Stage::new(5);
    stage.at("short").put_text(b"x", Expiry::None).expect("room");
    stage.fill_set("set", 2000);
    for name in ["short", "set", "none"] {
        let key = stage.key(name);
        assert!(stage.shard.begin_text(0, key, (0, 1), (Vec::new(), b"")).is_none(), "{name}");
    }
}
