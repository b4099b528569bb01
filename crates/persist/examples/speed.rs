//! Measures writing and reading of files: `cargo run --release -p darter-persist --example speed FILE.rdb`.
//!
//! Loads the file into one shard, then writes and reads that in both formats, all on one thread and in memory. Times
//! are processor time, so other load on the machine does not count.

use darter_base::hash::KeyHasher;
use darter_persist::RdbItem;
use darter_persist::entry;
use darter_persist::file::{FileOptions, FileSource, FileWriter};
use darter_persist::storage::name::NameFormat;
use darter_store::Shard;

fn main() {
    let path = std::env::args().nth(1).expect("the path of an RDB file");
    let bytes = std::fs::read(&path).expect("a file");
    println!("{path}: {} bytes", bytes.len());
    let shard = load("given file", &bytes);
    let keys: u64 = (0..shard.dbs_len()).map(|db| shard.db(db).len() as u64).sum();
    let mut entries = Vec::new();
    let began = cpu_ns();
    shard.each(0, |record| entry::write(&shard, record, &mut entries));
    told("entries written", began, keys, entries.len());
    for (name, format, packs) in [
        ("native lz4", NameFormat::Native, true),
        ("native plain", NameFormat::Native, false),
        ("rdb packed", NameFormat::Rdb, true),
        ("rdb plain", NameFormat::Rdb, false),
    ] {
        let began = cpu_ns();
        let options = FileOptions { format, packs, has_checksum: true, now_ms: 1, id: 1 };
        let mut writer = FileWriter::new(Vec::with_capacity(entries.len() * 2), options).expect("memory");
        writer.entries(0, 0, shard.db(0).len() as u32, &entries).expect("entries");
        let file = writer.finish().expect("memory").0;
        told(&format!("{name}: written, {} bytes", file.len()), began, keys, entries.len());
        let began = cpu_ns();
        let mut count = 0;
        let mut reader = FileSource::open(&file[..]).expect("a good file");
        let read = reader.each(|item| {
            if let RdbItem::Entries(chunk) = item {
                count += chunk.iter().filter(|entry| entry.is_ok()).count();
            }
            Ok(())
        });
        read.expect("a good file");
        assert_eq!(count as u64, shard.db(0).len() as u64);
        told(&format!("{name}: read"), began, keys, entries.len());
        load(name, &file);
    }
}

fn load(name: &str, bytes: &[u8]) -> Shard {
    let hasher = KeyHasher::new(3);
    let mut shard = Shard::new(16, 1, hasher).expect("address space");
    let mut reader = FileSource::open(bytes).expect("a good file");
    let (began, mut keys, mut raw) = (cpu_ns(), 0, 0);
    shard.reserve(0, keys_of(bytes));
    let loading = reader.each(|item| {
        if let RdbItem::Entries(chunk) = item {
            raw += chunk.bytes.len();
            for entry in chunk.iter() {
                let entry = entry.expect("a good entry");
                entry.load(&mut shard, chunk.db as usize, hasher.hash(&entry.key), 1).expect("room");
                keys += 1;
            }
        }
        Ok(())
    });
    loading.expect("a good file");
    told(&format!("{name}: loaded"), began, keys, raw);
    shard
}

/// The number of keys by the file's sizes, which any loader bounds by the length of the file.
fn keys_of(bytes: &[u8]) -> usize {
    bytes.len() / 25
}

/// Processor time of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

fn told(what: &str, began: u64, keys: u64, bytes: usize) {
    let secs = (cpu_ns() - began) as f64 / 1e9;
    println!("{what:40} {:7.1} ns/key {:7.0} MB/s", secs * 1e9 / keys as f64, bytes as f64 / 1e6 / secs);
}
