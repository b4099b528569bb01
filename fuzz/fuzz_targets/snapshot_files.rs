//! Snapshot files of both formats: any bytes are read, checked and loaded without harm.
#![no_main]

use darter_base::hash::KeyHasher;
use darter_persist::RdbItem;
use darter_persist::check::check;
use darter_persist::file::FileSource;
use darter_store::Shard;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check(&bytes);
    let Ok(mut reader) = FileSource::open(bytes) else { return };
    let hasher = KeyHasher::new(3);
    let mut shard = Shard::new(4, 1, hasher).expect("address space");
    let _ = reader.each(|item| {
        if let RdbItem::Entries(chunk) = item
            && chunk.db < 4
        {
            for entry in chunk.iter().flatten() {
                let _ = entry.load(&mut shard, chunk.db as usize, hasher.hash(&entry.key), 1);
            }
        }
        Ok(())
    });
});
