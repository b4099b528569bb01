//! Random changes of all kinds while a cut is walked: the written state equals the state at the cut.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_pack::entry::Item;
use darter_pack::table::{self, PackKind, Table};
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{Direction, List, Pending, StreamId, Zset};

use super::*;
use crate::change::Event;
use crate::expiry::ExpirySweep;
use crate::extras::Extras;
use crate::rdb::{self, ObjectPieces};
use crate::record::Expiry;
use crate::stream_value::producers::Producers;
use crate::{Collection, Json, Key, Keyed, SetValue, StreamValue};

const NOW: u64 = 1_700_000_000_000;
const DBS: usize = 3;

/// A key as bytes: marks, type and value.
type Image = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

fn image_of(record: Record<'_>, value: CutBody<'_>) -> Vec<u8> {
    let mut out = head_of(record);
    match value {
        CutBody::Text(text) => text.write_to(&mut out),
        CutBody::Object(object, arena) => {
            let (kind, mut bytes) = (rdb::type_of(object), Vec::new());
            rdb::write_object(object, arena, &mut bytes);
            match if kind == 1 { Some(numbered(0, &bytes)) } else { members_of(kind, &bytes) } {
                Some(members) => out.extend_from_slice(format!("{kind}{members:?}").as_bytes()),
                None => {
                    out.push(kind);
                    out.append(&mut bytes);
                }
            }
        }
    }
    out
}

fn head_of(record: Record<'_>) -> Vec<u8> {
    format!("{:?} {:?} {} ", record.deadline_ms(), record.extras(), record.is_sticky()).into_bytes()
}

type Members = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// The members of a hash, a set or a sorted set, whose order says nothing.
fn members_of(kind: u8, bytes: &[u8]) -> Option<Members> {
    let mut source = rdb::RdbSource::new(bytes);
    let earliest = if kind == 24 { u64::from_le_bytes(source.array().ok()?) } else { 0 };
    let (is_hash, is_zset) = (matches!(kind, 4 | 24), matches!(kind, 5 | 48));
    if !is_hash && !is_zset && !matches!(kind, 2 | 32) {
        return None;
    }
    let mut members = Members::new();
    for _ in 0..source.count().ok()? {
        let ttl = if kind == 24 { source.count().ok()? } else { 0 };
        let key = source.text().ok()?.into_owned();
        let value = match () {
            () if is_hash => source.text().ok()?.into_owned(),
            () if is_zset => source.double().ok()?.to_le_bytes().to_vec(),
            () => Vec::new(),
        };
        let expiry = if matches!(kind, 32 | 48) {
            source.count().ok()?
        } else {
            ttl.checked_sub(1).map_or(0, |ttl| earliest + ttl)
        };
        assert!(members.insert(key, (value, expiry)).is_none(), "a member was written twice");
    }
    Some(members)
}

/// Head, type byte, number of members, and the members received; pieces of a stream unchanged.
type Part = (Vec<u8>, u8, u64, Members, Vec<(u64, Vec<u8>)>);

/// Appends what `image_of` does for the stream in these pieces.
fn stream_image(pieces: &[(u64, Vec<u8>)], total: u64, out: &mut Vec<u8>) {
    let mut arena = Arena::with_reserve(1 << 26).expect("address space");
    let hasher = KeyHasher::new(0);
    let mut back: Option<Object> = None;
    for (_, piece) in pieces {
        let mut source = rdb::RdbSource::new(piece);
        match &mut back {
            Some(Object::Stream(back)) => {
                back.read_more(27, &mut source, &mut arena, hasher).expect("a piece of a stream");
            }
            _ => back = Some(rdb::read_object(27, &mut source, &mut arena, hasher).expect("a stream")),
        }
    }
    assert!(pieces.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(pieces.last().map(|last| last.0 + 1), Some(total), "the end is missing");
    let back = back.expect("no piece");
    out.push(rdb::type_of(&back));
    rdb::write_object(&back, &arena, out);
}

/// The written contents of a shard. A key or member that occurs twice is an error.
#[derive(Default)]
struct Written {
    whole: Image,
    parts: BTreeMap<(usize, Vec<u8>), Part>,
    // Bytes in memory because of the cut.
    kept: isize,
    kept_max: isize,
}

impl Written {
    /// All of it, when all pieces have come.
    fn image(self) -> Image {
        let mut image = self.whole;
        for (name, (mut out, kind, total, members, pieces)) in self.parts {
            if kind == rdb::TYPE_STREAM_5 {
                stream_image(&pieces, total, &mut out);
            } else {
                assert_eq!(members.len() as u64, total, "members are missing");
                out.extend_from_slice(format!("{kind}{members:?}").as_bytes());
            }
            assert!(image.insert(name, out).is_none(), "a key was written twice");
        }
        image
    }
}

struct Album(Arc<Mutex<Written>>);

impl Keeper for Album {
    fn keep(&mut self, entry: CutEntry<'_>) {
        let name = (entry.db, entry.record.key().to_vec());
        let image = image_of(entry.record, entry.value);
        let before = self.0.lock().expect("sound").whole.insert(name, image);
        assert!(before.is_none(), "a key was written twice");
    }

    fn keep_in_pieces(
        &mut self,
        db: usize,
        record: Record<'_>,
        kind: u8,
        total: u64,
    ) -> Box<dyn PieceKeeper> {
        let name = (db, record.key().to_vec());
        let part = (head_of(record), kind, total, Members::new(), Vec::new());
        let before = self.0.lock().expect("sound").parts.insert(name.clone(), part);
        assert!(before.is_none(), "a key was written twice");
        Box::new(Page { album: self.0.clone(), name, kind })
    }

    fn note_kept(&mut self, bytes: isize) {
        let mut written = self.0.lock().expect("sound");
        written.kept += bytes;
        written.kept_max = written.kept_max.max(written.kept);
        assert!(written.kept >= 0);
    }
}

struct Page {
    album: Arc<Mutex<Written>>,
    name: (usize, Vec<u8>),
    kind: u8,
}

impl PieceKeeper for Page {
    fn another(&self) -> Box<dyn PieceKeeper> {
        Box::new(Page { album: self.album.clone(), name: self.name.clone(), kind: self.kind })
    }

    fn keep(&mut self, before: u64, piece: &[u8]) {
        let mut album = self.album.lock().expect("sound");
        let (.., members, pieces) = album.parts.get_mut(&self.name).expect("begun");
        let elements = match self.kind {
            1 => numbered(before, piece),
            rdb::TYPE_STREAM_5 => return pieces.push((before, piece.to_vec())),
            kind => members_of(kind, piece).expect("members"),
        };
        for (key, value) in elements {
            assert!(members.insert(key, value).is_none(), "a member was written twice");
        }
    }
}

/// The items of a list by their place.
fn numbered(before: u64, bytes: &[u8]) -> Members {
    let mut source = rdb::RdbSource::new(bytes);
    let items = (before..).take(source.count().expect("a number") as usize);
    items.map(|at| (at.to_be_bytes().to_vec(), (source.text().expect("an item").into_owned(), 0))).collect()
}

/// Everything in a shard, dead or alive.
fn all_of(shard: &Shard) -> Image {
    let mut all = Image::new();
    for db in 0..DBS {
        shard.dbs[db].index.each(|h| {
            let record = Record { tail: shard.arena.tail(h) };
            let unfolded;
            let value = match record.value() {
                RecordValue::Object(_, id) => CutBody::Object(shard.objects.get(id), &shard.arena),
                RecordValue::Folded(kind, block) => {
                    unfolded = Object::unfold(kind, block, &shard.arena);
                    CutBody::Object(&unfolded, &shard.arena)
                }
                _ => CutBody::Text(record.text().expect("a string")),
            };
            all.insert((db, record.key().to_vec()), image_of(record, value));
        });
    }
    all
}

struct Player {
    shard: Shard,
    rng: Rng,
    hasher: KeyHasher,
    now_ms: u64,
    seed: u64,
    names: u64,
    // Members of a collection; many: most changes are of hashes and sets.
    members: u64,
    // The types of the collections, if there are many.
    kinds: std::ops::Range<u64>,
    sweep: ExpirySweep,
}

impl Player {
    fn new(seed: u64, names: u64) -> Player {
        let hasher = KeyHasher::new(seed);
        let shard = Shard::new(DBS, seed, hasher).expect("address space");
        let sweep = ExpirySweep::default();
        Player {
            shard,
            rng: Rng::new(seed),
            hasher,
            now_ms: NOW,
            seed,
            names,
            members: 40,
            kinds: 3..5,
            sweep,
        }
    }

    fn name(&mut self) -> Vec<u8> {
        format!("key:{}", self.rng.below(self.names)).into_bytes()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.rng.below(12) {
            0 => 600 + self.rng.below(3000),
            _ => self.rng.below(40),
        };
        let letter = if self.rng.below(2) == 0 { b'a' } else { 0xe0 };
        (0..len).map(|n| letter + (n % 20) as u8).collect()
    }

    fn expiry(&mut self) -> Expiry {
        match self.rng.below(6) {
            0 => Expiry::At(self.now_ms + self.rng.below(200_000)),
            1 => Expiry::Keep,
            _ => Expiry::None,
        }
    }

    /// One change of whatever kind.
    fn play(&mut self) {
        let db = self.rng.below(DBS as u64) as usize;
        let name = self.name();
        let is_large = self.members > 100 && self.rng.below((self.members / 30).max(20)) > 0;
        match if is_large { 6 } else { self.rng.below(40) } {
            0..4 => self.play_text(db, &name),
            4..6 => self.play_document(db, &name),
            6..26 => self.play_collection(db, &name),
            26..30 => drop(self.place(db, &name).remove()),
            30 => {
                let at_ms = (self.rng.below(3) > 0).then(|| self.now_ms + self.rng.below(100_000));
                self.place(db, &name).set_deadline(at_ms).expect("room");
            }
            31 => {
                let on = self.rng.below(2) == 0;
                self.place(db, &name).set_sticky(on);
            }
            32..35 => self.play_move(db, &name),
            35 => self.now_ms += self.rng.below(3000),
            36 => drop(self.shard.sweep(&mut self.sweep, self.now_ms, 256)),
            37 => drop(self.shard.tidy(64, true)),
            38 => drop(self.shard.free_some(8)),
            _ => match self.rng.below(60) {
                0 => drop(self.shard.flush_db(db)),
                1 => self.shard.swap_dbs(db, self.rng.below(DBS as u64) as usize),
                _ => drop(self.shard.random_key(db, self.now_ms)),
            },
        }
    }

    fn place<'a>(&'a mut self, db: usize, name: &'a [u8]) -> Keyed<'a> {
        let key = Key { bytes: name, hash: self.hasher.hash(name) };
        Keyed::find(&mut self.shard, db, key, self.now_ms)
    }

    fn play_text(&mut self, db: usize, name: &[u8]) {
        let (value, expiry) = (self.bytes(), self.expiry());
        match self.rng.below(5) {
            0 => {
                let key = Key { bytes: name, hash: self.hasher.hash(name) };
                self.shard.set_text(db, key, &value, self.now_ms, Event::NEW).expect("room");
            }
            1 => {
                let extras = Extras { flags: 7, cas: Some(self.shard.next_cas()), ..Extras::default() };
                self.place(db, name).put_item(&value, expiry, extras).expect("room");
            }
            2 => self.place(db, name).put_float(b"1.5").expect("room"),
            3 => {
                let mut place = self.place(db, name);
                if matches!(place.text(), Ok(Some(_)) | Ok(None)) {
                    place.edit_text(value.len()).expect("room").fill(b'#');
                }
            }
            _ => self.place(db, name).put_text(&value, expiry).expect("room"),
        }
    }

    /// A document whose names are soon words of the arena is put, replaced, or loses a member.
    fn play_document(&mut self, db: usize, name: &[u8]) {
        let count = self.rng.below(12);
        let members = (0..count).map(|_| format!("\"name {}\":{}", self.rng.below(30), self.rng.below(1000)));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        let (expiry, is_replaced) = (self.expiry(), self.rng.below(2) == 0);
        let path = format!("$['name {}']", self.rng.below(30));
        let path = darter_document::JsonPath::parse(path.as_bytes()).expect("a path");
        let mut place = self.place(db, name);
        let bytes = darter_document::parse_for(text.as_bytes(), place.arena_mut()).expect("JSON");
        let done = place.edit(|json: &mut Json, arena, _| match is_replaced {
            true => json.replace(&bytes, arena),
            false => {
                let doc = json.doc(arena);
                let (done, _) = darter_document::remove(doc, &path.trace(doc));
                json.apply(done, arena)
            }
        });
        match done {
            Ok(Some(done)) => done.result.expect("room"),
            _ => {
                let json = Json::new(&bytes, place.arena_mut()).expect("room");
                place.put_object(json.wrap(), expiry).expect("room");
            }
        }
    }

    fn play_collection(&mut self, db: usize, name: &[u8]) {
        let member = self.rng.below(self.members).to_string().into_bytes();
        let value = self.bytes();
        let kinds = if self.members > 100 { self.kinds.clone() } else { 0..6 };
        let what = kinds.start + self.rng.below(kinds.end - kinds.start);
        let (removes, score) = (self.rng.below(4) == 0, self.rng.below(1000) as f64);
        let member_expiry = match self.rng.below(8) {
            0 => table::FieldExpiry::At(self.now_ms + self.rng.below(20_000)),
            _ => table::FieldExpiry::Keep,
        };
        let soon_ms = self.now_ms + self.rng.below(20_000);
        let has_big = self.members > 100;
        let mut place = self.place(db, name);
        place.expire_members(4);
        match if what == 4 && name.ends_with(b"1") { 1 } else { what } {
            0 => drop(place.edit_or_create(List::new, |list: &mut List, arena, _| match () {
                () if removes => drop(list.pop(arena, ListEnd::Front, |_| {})),
                () if score < 300.0 && list.len() > 2 => {
                    let at = score as u64 % list.len();
                    list.set(arena, at, Item::of(&value)).expect("room");
                }
                () if has_big && score < 302.0 => {
                    list.push(arena, ListEnd::Front, Item::of(&big(&member))).expect("room")
                }
                () => list.push(arena, ListEnd::Back, Item::of(&value)).expect("room"),
            })),
            1 => drop(place.edit_or_create(SetValue::new, |set: &mut SetValue, arena, hasher| {
                if removes {
                    set.remove(arena, hasher, Item::of(&member));
                } else {
                    set.insert(arena, hasher, Item::of(&member), member_expiry).expect("room");
                }
            })),
            2 => drop(place.edit_or_create(Zset::new, |zset: &mut Zset, arena, hasher| {
                let member = if has_big && score < 2.0 { big(&member) } else { member };
                if removes {
                    zset.remove(arena, &hasher, Item::of(&member));
                } else {
                    zset.insert(arena, &hasher, Item::of(&member), score).expect("room");
                    let at_ms = (score as u64 % 100 == 7 && value.len() > 600).then_some(soon_ms);
                    zset.set_expiry(arena, &hasher, Item::of(&member), at_ms);
                }
            })),
            5 => drop(place.edit_or_create(StreamValue::new, |stream: &mut StreamValue, arena, _| {
                change_stream(stream, arena, &member, &value, (score as u64, has_big));
            })),
            _ => {
                let make = || Table::new(PackKind::KeysAndValues);
                let _ = place.edit_or_create(make, |table: &mut Table, arena, hasher| {
                    let (hash, of) = (hasher.hash(&member), |key: &[u8]| hasher.hash(key));
                    if removes {
                        table.remove(arena, hash, &member);
                    } else {
                        table
                            .insert(arena, hash, &member, Item::of(&value), member_expiry, &of)
                            .expect("room");
                    }
                });
            }
        }
    }

    fn play_move(&mut self, db: usize, name: &[u8]) {
        let (to_db, to_name) = (self.rng.below(DBS as u64) as usize, self.name());
        if (db, name) == (to_db, &to_name) {
            return;
        }
        if self.rng.below(2) == 0 {
            let key = |bytes| Key { bytes, hash: self.hasher.hash(bytes) };
            self.shard.rename((db, key(name)), (to_db, key(&to_name)), self.now_ms).expect("room");
        } else if let Some(copy) = self.place(db, name).copy() {
            self.place(to_db, &to_name).put_copy(&copy).expect("room");
        }
    }
}

/// Text that a tree keeps outside the arena.
fn big(name: &[u8]) -> Vec<u8> {
    let mut text = vec![b'x'; 33 << 10];
    text.extend_from_slice(name);
    text
}

/// One change of any kind of a stream.
fn change_stream(
    stream: &mut StreamValue,
    arena: &mut Arena,
    member: &[u8],
    value: &[u8],
    (what, has_big): (u64, bool),
) {
    let next = |id: StreamId| StreamId { ms: id.ms + 1 + what % 3, seq: what };
    let some = StreamId { ms: stream.last_id().ms / 1000 * what, seq: what };
    let some = stream.log().iter(arena, stream.log().rank(arena, some), Direction::Up).next();
    let some = some.map(|entry| entry.id);
    match (what, some) {
        (0..600, _) => {
            let text = if has_big && what < 2 { big(value) } else { value.to_vec() };
            let pairs = [(member, &text[..]), (b"n", b"17")];
            assert_eq!(stream.append(arena, next(stream.last_id()), pairs.into_iter()), Ok(true));
        }
        (600..640, Some(id)) => assert!(stream.delete(arena, id)),
        (640..649, _) => drop(stream.trim_first(arena, what - 630)),
        (649, _) => drop(stream.trim_first(arena, stream.len() / 2)),
        (650..660, _) => drop(stream.create_group(&[what as u8], stream.last_id(), Some(what))),
        (660..663, _) => drop(stream.destroy_group(arena, &[(what - 10) as u8])),
        (663..700, Some(id)) => stream.producers_mut(Producers::default).add(member, value, id, 0),
        (700.., Some(id)) => {
            let Some((group, _)) = stream.group_mut(&[(650 + what % 10) as u8]) else { return };
            let (consumer, _) = group.find_or_create(&[(what % 7) as u8], what);
            match what {
                700..900 => {
                    let pending = Pending { consumer, delivered_ms: what, deliveries: what % 9 };
                    assert_eq!(group.give(arena, id, pending), Ok(()));
                }
                900..950 => drop(group.release(arena, id)),
                950..953 => drop(group.remove_consumer(arena, &[(what % 7) as u8])),
                _ => group.last_id = id,
            }
        }
        _ => {}
    }
}

/// Cuts a shard again and again while it changes; `pace` changes on average between two steps of the walk.
fn run(seed: u64, names: u64, pace: u64) -> usize {
    run_with(Player::new(seed, names), pace).0
}

/// Number of values written in pieces, and the largest number of pre-image bytes.
fn run_with(mut player: Player, pace: u64) -> (usize, isize) {
    let (names, seed) = (player.names, player.seed);
    let (mut pieces, mut kept_max) = (0, 0);
    for epoch in 1..6u16 {
        (0..names * player.members / 5).for_each(|_| player.play());
        let expected = all_of(&player.shard);
        let album = Arc::new(Mutex::new(Written::default()));
        player.shard.begin_cut(epoch, Box::new(Album(album.clone())));
        let is_cancelled = player.rng.below(5) == 0;
        let mut steps = 0;
        loop {
            for _ in 0..player.rng.below(pace * 2 + 1) {
                player.play();
            }
            steps += 1;
            let homes = player.rng.below(if player.members > 100 { 8 } else { 40 }) as usize;
            if player.shard.walk_cut(homes) || is_cancelled && steps == 5 {
                break;
            }
        }
        let (keeper, early) = player.shard.end_cut().expect("under way");
        drop(keeper);
        let written = Arc::into_inner(album).expect("no piece is to come").into_inner().expect("sound");
        if !is_cancelled {
            pieces += written.parts.len();
            assert_eq!(written.kept, 0);
            kept_max = kept_max.max(written.kept_max);
            let written = written.image();
            for (key, image) in &expected {
                assert!(
                    written.get(key) == Some(image),
                    "seed {seed}, cut {epoch}: {key:?} of {}",
                    expected.len()
                );
            }
            assert_eq!(written.len(), expected.len(), "seed {seed}, cut {epoch}: younger keys were written");
            assert!(pace == 0 || names < 100 || early > 0);
        }
    }
    for db in 0..DBS {
        player.shard.flush_db(db);
    }
    while !player.shard.free_some(1000) {}
    assert_eq!((player.shard.arena.used_bytes(), player.shard.objects.len(), player.shard.timed), (0, 0, 0));
    assert!(player.shard.arena.lexicon().is_none());
    (pieces, kept_max)
}

#[test]
fn a_cut_keeps_what_stood_there_whatever_changes_meanwhile() {
    let pieces: usize = (0..30).map(|seed| run(seed, 40, 1 + seed % 20)).sum();
    assert!(pieces > 100, "{pieces} values were written in pieces");
    (30..50).for_each(|seed| assert!(run(seed, 1500, 1 + seed % 30) < usize::MAX));
    run(99, 20_000, 300);
}

#[test]
fn large_values_are_kept_though_their_members_change() {
    let pieces: usize =
        (0..20).map(|seed| run_with(Player { members: 600, ..Player::new(seed, 4) }, 1 + seed % 12).0).sum();
    assert!(pieces > 100, "{pieces} values were written in pieces");
}

#[test]
fn large_trees_are_kept_as_they_were_though_they_change() {
    for (seed, kinds, names, members) in [
        (0, 0..1, 4, 600),
        (10, 1..2, 1, 30_000),
        (20, 2..3, 2, 6000),
        (30, 0..3, 3, 6000),
        (40, 5..6, 2, 6000),
    ] {
        let player = |seed| Player { members, kinds: kinds.clone(), ..Player::new(seed, names) };
        let runs = (seed..seed + 10).map(|seed| run_with(player(seed), 1 + seed % 12));
        let (pieces, kept) = runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        assert!(pieces > 50, "{pieces} values were written in pieces");
        assert!(kept > 4000, "{kept} bytes were kept before they changed");
    }
}

/// Documents go with all words of their names, and others come whose words get the same numbers.
#[test]
fn documents_are_kept_though_their_words_go_and_others_come() {
    let mut player = Player::new(1, 10);
    let put = |player: &mut Player, kind: &str, n: u64| {
        let name = format!("{kind}:{n}");
        let mut place = player.place(0, name.as_bytes());
        let text = format!("{{\"the {kind}\":{n},\"another {kind}\":[{{\"a third {kind}\":{n}}}]}}");
        let bytes = darter_document::parse_for(text.as_bytes(), place.arena_mut()).expect("JSON");
        let json = Json::new(&bytes, place.arena_mut()).expect("room");
        place.put_object(json.wrap(), Expiry::None).expect("room");
    };
    let words = |player: &Player| {
        let lexicon = player.shard.arena.lexicon();
        (0..3).map(|n| lexicon.map_or(Vec::new(), |all| all.word(n).to_vec())).collect::<Vec<_>>()
    };
    for ends in [
        |player: &mut Player| _ = player.shard.flush_db(0),
        |player: &mut Player| {
            (0..50).for_each(|n| assert!(player.place(0, format!("name:{n}").as_bytes()).remove()));
            assert!(player.shard.arena.lexicon().is_none());
        },
    ] {
        (0..50).for_each(|n| put(&mut player, "name", n));
        assert_eq!(words(&player), [&b"the name"[..], b"another name", b"a third name"]);
        let expected = all_of(&player.shard);
        let album = Arc::new(Mutex::new(Written::default()));
        player.shard.begin_cut(1, Box::new(Album(album.clone())));
        assert!(!player.shard.walk_cut(2));
        ends(&mut player);
        (0..50).for_each(|n| put(&mut player, "word", n));
        while !player.shard.walk_cut(3) {}
        drop(player.shard.end_cut());
        let written = Arc::into_inner(album).expect("no piece is to come").into_inner().expect("sound");
        assert!(written.image() == expected);
        while !player.shard.free_some(1000) {}
        (0..50).for_each(|n| assert!(player.place(0, format!("word:{n}").as_bytes()).remove()));
        assert!(player.shard.arena.lexicon().is_none() && player.shard.arena.used_bytes() == 0);
    }
}

#[test]
fn a_cut_of_an_idle_shard_is_all_of_it() {
    (0..4).for_each(|seed| assert!(run(seed, 500, 0) < usize::MAX));
}

#[test]
fn the_first_key_of_an_empty_shard_is_younger_than_the_cut() {
    let mut player = Player::new(1, 10);
    let album = Arc::new(Mutex::new(Written::default()));
    player.shard.begin_cut(1, Box::new(Album(album.clone())));
    player.place(0, b"new").put_text(b"x", Expiry::None).expect("room");
    assert!(player.shard.walk_cut(usize::MAX));
    assert!(album.lock().expect("sound").whole.is_empty());
}
