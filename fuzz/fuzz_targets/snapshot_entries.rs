//! Entries as blocks hold them: any bytes are read, loaded, and written for Redis without harm.
#![no_main]

use darter_base::hash::KeyHasher;
use darter_persist::entry::Entries;
use darter_persist::rdb::{RdbOptions, RdbWriter};
use darter_store::Shard;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let hasher = KeyHasher::new(3);
    let mut shard = Shard::new(1, 1, hasher).expect("address space");
    let mut writer = RdbWriter::new(Vec::new(), RdbOptions::default());
    for entry in Entries::new(bytes).flatten() {
        let _ = entry.load(&mut shard, 0, hasher.hash(&entry.key), 1);
        let _ = writer.entry(0, &entry);
    }
    let _ = writer.finish();
});
