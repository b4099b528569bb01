use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;

use crate::change::{Class, Event};
use crate::record::Expiry;
use crate::shard::{Key, Shard};
use crate::{Extras, Keyed};

const SET: Event = Event::new(Class::STRING, "set");
const NOW: u64 = 1_700_000_000_000;

/// Two shards, one served by the operations here where they do it, the other by `Keyed` alone, hold the same.
#[test]
fn they_do_what_the_general_way_does() {
    let hasher = KeyHasher::new(3);
    let mut shards = [(); 2].map(|()| Shard::new(1, 0, hasher).expect("address space"));
    let mut rng = Rng::new(11);
    let (mut read, mut replaced) = (0, 0);
    for n in 0..60_000u64 {
        let now_ms = NOW + n * 20;
        // Some keys are away from their home lines.
        let name = format!("key:{}", rng.next_u64() % 2000);
        let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
        let what = rng.next_u64() % 8;
        let (flags, len) = ((rng.next_u64() % 2) as u32 * 9, rng.next_u64() % 3 * 90);
        let value = vec![b'a' + (n % 26) as u8; len as usize];
        let expiry = if rng.next_u64().is_multiple_of(6) { Expiry::At(now_ms + 9000) } else { Expiry::None };
        let seen = [0, 1].map(|which| {
            let shard = &mut shards[which];
            match what {
                0 => Keyed::find(shard, 0, key, now_ms).put_text(&value, expiry).expect("room"),
                1 => drop(Keyed::find(shard, 0, key, now_ms).cas().expect("room")),
                2..=4 => {
                    let is_done = which == 0
                        && expiry == Expiry::None
                        && shard.replace_item(0, key, (flags, &value), now_ms, SET);
                    replaced += u64::from(is_done);
                    if !is_done {
                        let mut place = Keyed::find(shard, 0, key, now_ms);
                        let old = place.extras().and_then(|extras| extras.cas);
                        let access_s = Some((now_ms / 1000) as u32);
                        let cas = old.map(|_| place.next_cas());
                        let extras = Extras { flags, cas, access_s, ..Extras::default() };
                        place.put_item(&value, expiry, extras).expect("room");
                        place.changed(SET);
                    }
                }
                _ => {
                    let mut out = None;
                    let serve = |flags, value: &[u8]| out = Some((flags, value.to_vec()));
                    let is_done = which == 0 && shard.read_item(0, key, now_ms, serve);
                    read += u64::from(is_done);
                    if !is_done {
                        let mut place = Keyed::read(shard, 0, key, now_ms);
                        place.note_access((now_ms / 1000) as u32);
                        let flags = place.extras().unwrap_or_default().flags;
                        out = place.text().expect("a string").map(|text| (flags, text.bytes().to_vec()));
                    }
                    return out;
                }
            }
            None
        });
        assert_eq!(seen[0], seen[1], "{what} of {name}");
        let kept = shards.each_mut().map(|shard| {
            let place = Keyed::find(shard, 0, key, now_ms);
            let text = place.text().expect("a string").map(|text| text.bytes().to_vec());
            (
                text,
                place.extras().map(|extras| (extras.flags, extras.access_s, extras.marks)),
                place.deadline_ms(),
            )
        });
        assert_eq!(kept[0], kept[1], "{what} of {name}");
    }
    let counters = shards.each_ref().map(|shard| {
        (shard.counters.hits, shard.counters.misses, shard.counters.expired, shard.changes.total())
    });
    assert_eq!(counters[0], counters[1]);
    assert!(read > 5000 && replaced > 1000, "{read} {replaced}");
}
