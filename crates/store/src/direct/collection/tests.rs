use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, PackKind, Table};
use darter_pack::tree::List;
use darter_pack::tree::list::ListEnd;
use darter_slab::Arena;

use crate::shard::{Key, Shard};
use crate::{Keyed, SetValue};

const NOW: u64 = 1_700_000_000_000;

/// Runs `change` on the collection at a key, by the direct path if that applies and `is_direct`; returns whether it
/// did.
fn add<T: crate::Collection>(
    shard: &mut Shard,
    key: Key<'_>,
    is_direct: bool,
    make: impl FnOnce() -> T,
    change: impl Fn(&mut T, &mut Arena, KeyHasher),
) -> bool {
    let went = is_direct && shard.add_plainly(0, key, NOW, &change).is_some();
    if !went {
        // A collection of another type stays unchanged.
        let _ = Keyed::find(shard, 0, key, NOW).edit_or_create(make, &change);
    }
    went
}

fn put(
    table: &mut Table,
    arena: &mut Arena,
    hasher: KeyHasher,
    field: &str,
    value: i64,
    expiry: FieldExpiry,
) {
    let hash = hasher.hash(field.as_bytes());
    table
        .insert(arena, hash, field.as_bytes(), Item::Int(value), expiry, &|key: &[u8]| hasher.hash(key))
        .expect("room");
}

fn shown(shard: &mut Shard, key: Key<'_>) -> Vec<String> {
    let place = Keyed::find(shard, 0, key, NOW);
    let mut lines = vec![format!("{:?} {:?}", place.kind(), place.memory_bytes())];
    if let Ok(Some(hash)) = place.view::<Table>() {
        lines.extend(
            hash.root
                .iter(hash.arena)
                .map(|entry| format!("{:?} {:?} {:?}", entry.key(), entry.value(), entry.expiry_ms())),
        );
    } else if let Ok(Some(set)) = place.view::<SetValue>() {
        lines.extend(set.root.iter(set.arena, NOW).map(|member| format!("{member:?}")));
    } else if let Ok(Some(list)) = place.view::<List>() {
        lines.extend(list.root.iter(list.arena, 0, ListEnd::Back).map(|item| format!("{item:?}")));
    }
    lines
}

/// Two shards, one changed by the operation here if it applies, the other by `Keyed` alone, are equal to the byte.
#[test]
fn it_does_what_the_general_way_does() {
    let hasher = KeyHasher::new(3);
    let mut shards = [(); 2].map(|()| Shard::new(1, 0, hasher).expect("address space"));
    let mut rng = Rng::new(7);
    let mut direct = 0;
    for n in 0..40_000i64 {
        let name = format!("key:{}", rng.next_u64() % 300);
        let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
        let (what, which, wide) = (rng.next_u64() % 40, rng.next_u64() % 60, rng.next_u64() % 500);
        let field = format!("field:{}", if which == 0 { wide } else { which % 9 });
        for (is_direct, shard) in [true, false].into_iter().zip(&mut shards) {
            direct += u64::from(match what {
                0 => {
                    Keyed::find(shard, 0, key, NOW).remove();
                    false
                }
                1 => {
                    let _ = Keyed::find(shard, 0, key, NOW).set_deadline((which > 30).then_some(NOW + 9000));
                    false
                }
                2..20 => add(
                    shard,
                    key,
                    is_direct,
                    || Table::new(PackKind::KeysAndValues),
                    |table, arena, hasher| {
                        let expiry = if what == 2 { FieldExpiry::At(NOW + 900) } else { FieldExpiry::Keep };
                        put(table, arena, hasher, &field, n, expiry);
                    },
                ),
                20..30 => add(shard, key, is_direct, SetValue::new, |set, arena, hasher| {
                    let member = if which < 20 { Item::Int(n) } else { Item::of(field.as_bytes()) };
                    set.insert(arena, hasher, member, FieldExpiry::Keep).expect("room");
                }),
                _ => add(shard, key, is_direct, List::new, |list, arena, _| {
                    let end = if what % 2 == 0 { ListEnd::Front } else { ListEnd::Back };
                    list.push(arena, end, Item::of(field.as_bytes())).expect("room");
                }),
            });
        }
        let [a, b] = &mut shards;
        assert_eq!((a.objects.len(), a.timed), (b.objects.len(), b.timed), "after {n}");
        if n % 16 == 0 {
            assert_eq!(shown(a, key), shown(b, key), "after {n}");
        }
        assert_eq!(a.arena.used_bytes(), b.arena.used_bytes(), "after {n}");
    }
    // The others meet another type, or a deadline.
    assert!(direct > 5_000, "{direct} of 40,000");
}

#[test]
fn a_write_to_a_small_hash_is_a_use_of_it() {
    let hasher = KeyHasher::new(3);
    let mut shard = Shard::new(1, 0, hasher).expect("address space");
    shard.counts_uses = true;
    let key = Key { bytes: b"h", hash: hasher.hash(b"h") };
    for is_direct in [false, true] {
        let before = Keyed::find(&mut shard, 0, key, NOW).eviction_rank();
        for n in 0..2 {
            add(
                &mut shard,
                key,
                is_direct,
                || Table::new(PackKind::KeysAndValues),
                |table, arena, hasher| {
                    put(table, arena, hasher, "field", n, FieldExpiry::Keep);
                },
            );
        }
        assert!(Keyed::find(&mut shard, 0, key, NOW).eviction_rank() > before, "direct: {is_direct}");
    }
}
