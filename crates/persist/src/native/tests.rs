use darter_base::rng::Rng;
use darter_store::Shard;
use darter_store::rdb as values;

use super::{BLOCK_BYTES, BlockKind, SnapshotFile, SnapshotWriter, walk};
use crate::error::PersistError;
use crate::item::RdbItem;
use crate::testing::{self, Contents, contents, entries_of, load_all};

const ID: u64 = 0x1234_5678_9abc;

fn file_of(shard: &Shard, compresses: bool) -> Vec<u8> {
    let mut writer = SnapshotWriter::new(Vec::new(), ID, testing::NOW, compresses).expect("memory");
    writer.aux(b"darter-ver", b"1").expect("memory");
    writer.function(b"#!lua name=lib\nreturn 1").expect("memory");
    for db in 0..shard.dbs_len() {
        let keys = shard.db(db).len() as u32;
        writer.sizes(db as u32, u64::from(keys), 0).expect("memory");
    }
    for db in 0..shard.dbs_len() {
        let keys = shard.db(db).len() as u32;
        writer.entries(db as u32, 5, keys, &entries_of(shard, db)).expect("entries");
    }
    writer.finish().expect("memory").0
}

fn read_all(bytes: &[u8]) -> Result<(Vec<RdbItem>, Contents), PersistError> {
    let file = SnapshotFile::open(bytes)?;
    let mut shard = testing::shard();
    // in any order
    for place in file.places().iter().rev() {
        let block = file.read(place)?;
        for segment in block.segments()? {
            load_all(&mut shard, segment.db as usize, segment.bytes);
        }
    }
    Ok((file.facts()?, contents(&shard)))
}

#[test]
fn a_file_reads_back_as_it_was_written() {
    let shard = testing::sample(3, &[1, 2, 10, 100, 1000, 6000]);
    for compresses in [true, false] {
        let bytes = file_of(&shard, compresses);
        let (facts, again) = read_all(&bytes).expect("a good file");
        assert_eq!(again, contents(&shard));
        assert_eq!(facts.len(), 6);
        assert!(matches!(&facts[1], RdbItem::Function(code) if code.ends_with(b"return 1")));
        assert!(matches!(&facts[2], RdbItem::Sizes { db: 0, keys: 20, expiring: 0 }));
        let file = SnapshotFile::open(&bytes[..]).expect("a good file");
        assert_eq!((file.made_ms(), file.entries()), (testing::NOW, again.len() as u64));
        assert!(file.places().len() > 3);
        let long = file.places().iter().filter(|place| {
            let block = file.read(place).expect("a good block");
            block.raw_len() > BLOCK_BYTES + 64 && block.place.entries > 1
        });
        assert_eq!(long.count(), 0, "only a single entry may be longer than a block");
    }
}

#[test]
fn an_empty_file_is_one() {
    let (bytes, totals) =
        SnapshotWriter::new(Vec::new(), ID, 5, true).expect("memory").finish().expect("memory");
    assert_eq!(bytes.len() as u64, totals.bytes);
    assert!(SnapshotFile::open(&bytes[..]).expect("a good file").is_empty());
}

#[test]
fn lists_in_parts_stand_in_ordered_blocks() {
    let mut writer = SnapshotWriter::new(Vec::new(), ID, 5, true).expect("memory");
    for start in 0..4u64 {
        let mut part = vec![0xd2];
        values::write_length(&mut part, start * 2);
        values::write_length(&mut part, 8);
        part.push(1);
        values::write_text(&mut part, b"list");
        values::write_length(&mut part, 2);
        values::write_text(&mut part, b"a");
        values::write_text(&mut part, b"b");
        writer.entries_in_order(0, 0, 1, &part).expect("memory");
        let mut other = vec![0];
        values::write_text(&mut other, format!("key{start}").as_bytes());
        values::write_text(&mut other, b"value");
        writer.entries(0, 0, 1, &other).expect("memory");
    }
    let (bytes, totals) = writer.finish().expect("memory");
    let file = SnapshotFile::open(&bytes[..]).expect("a good file");
    assert_eq!(totals.entries, 8);
    let mut shard = testing::shard();
    for place in file.places() {
        for segment in file.read(place).expect("a good block").segments().expect("segments") {
            load_all(&mut shard, 0, segment.bytes);
        }
    }
    assert_eq!(file.places().iter().filter(|place| place.is_ordered).count(), 4);
    assert_eq!(contents(&shard).len(), 5);
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let shard = testing::sample(5, &[1, 3]);
    for compresses in [true, false] {
        let file = file_of(&shard, compresses);
        for len in 0..file.len() {
            assert!(read_all(&file[..len]).is_err(), "cut to {len} bytes");
            let Err(error) = walk(&&file[..len], |_| Ok(())) else { continue };
            assert!(
                matches!(error, PersistError::CutOff { len: said, .. } if said == len as u64),
                "{len}: {error}"
            );
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                assert!(read_all(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn a_damaged_block_is_named_and_the_others_read() {
    let shard = testing::sample(3, &[1000, 6000]);
    let good = file_of(&shard, true);
    let file = SnapshotFile::open(&good[..]).expect("a good file");
    let mut rng = Rng::new(4);
    for place in file.places() {
        let mut changed = good.clone();
        let at = place.offset as usize + rng.below(place.len) as usize;
        changed[at] ^= 0x40;
        let file = SnapshotFile::open(&changed[..]).expect("the index is good");
        for other in file.places() {
            match file.read(other) {
                Ok(_) => assert_ne!(other, place),
                Err(error) => {
                    assert_eq!(other, place);
                    assert!(error.to_string().contains(&format!("byte {}", place.offset)), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_block_of_another_file_is_none_of_this_one() {
    let shard = testing::sample(3, &[3]);
    let mut other = SnapshotWriter::new(Vec::new(), ID + 1, 5, true).expect("memory");
    other.entries(0, 0, shard.db(0).len() as u32, &entries_of(&shard, 0)).expect("memory");
    let (other, _) = other.finish().expect("memory");
    let mut one = SnapshotWriter::new(Vec::new(), ID, 5, true).expect("memory");
    one.entries(0, 0, shard.db(0).len() as u32, &entries_of(&shard, 0)).expect("memory");
    let (mut one, _) = one.finish().expect("memory");
    let place = SnapshotFile::open(&one[..]).expect("a good file").places()[0];
    assert_eq!(place.kind, BlockKind::Entries);
    let range = place.offset as usize..(place.offset + place.len) as usize;
    one[range.clone()].copy_from_slice(&other[range]);
    assert!(SnapshotFile::open(&one[..]).expect("a good index").read(&place).is_err());
}
