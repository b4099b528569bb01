use std::fs;
use std::io::Write;
use std::path::PathBuf;

use super::{CloudOptions, FaultKind, Local, StorageDirectory, directory};

/// A directory that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("darter-storage-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_is_there_when_it_is_whole() {
    let scratch = Scratch::new("whole");
    let place = directory(&scratch.0.display().to_string(), &CloudOptions::default()).expect("a directory");
    fs::write(scratch.0.join("a"), "before").expect("a file");
    let mut file = place.create("a").expect("a file");
    file.write_all(b"after").expect("room");
    assert_eq!(fs::read(scratch.0.join("a")).expect("a file"), b"before");
    assert_eq!(place.list().expect("a list").len(), 1);
    file.finish().expect("a disk");
    let facts = place.list().expect("a list");
    assert_eq!((facts.len(), facts[0].name.as_str(), facts[0].len), (1, "a", 5));
    assert!(facts[0].modified_ms > 1_600_000_000_000);
    let mut bytes = [0; 3];
    place.open("a").expect("a file").read_at(2, &mut bytes).expect("bytes");
    assert_eq!(&bytes, b"ter");
    place.remove("a").expect("removed");
    assert!(place.list().expect("a list").is_empty());
}

#[test]
fn files_of_any_length_are_what_was_written() {
    let scratch = Scratch::new("lengths");
    // Memory is a disk without direct writes.
    let memory = Some(PathBuf::from("/dev/shm")).filter(|path| path.exists());
    for folder in [Some(scratch.0.clone()), memory].into_iter().flatten() {
        let place = Local::new(&folder);
        for len in [0, 1, 4095, 4096, 5000, 1 << 20, (1 << 20) + 1, 3_300_000] {
            let bytes: Vec<u8> = (0..len).map(|n: usize| (n * 31 + n / 255) as u8).collect();
            let name = format!("lengths-{}", std::process::id());
            let mut file = place.create(&name).expect("a file");
            bytes.chunks(77_777).for_each(|piece| file.write_all(piece).expect("room"));
            file.finish().expect("a disk");
            assert!(
                fs::read(folder.join(&name)).expect("a file") == bytes,
                "{len} bytes in {}",
                folder.display()
            );
            place.remove(&name).expect("removed");
        }
    }
}

#[test]
fn what_is_given_up_leaves_nothing() {
    let scratch = Scratch::new("given-up");
    let place = Local::new(&scratch.0);
    let mut file = place.create("a").expect("a file");
    file.write_all(b"half").expect("room");
    drop(file);
    assert_eq!(fs::read_dir(&scratch.0).expect("a directory").count(), 0);
    // as after a kill
    fs::write(scratch.0.join("b.darter-tmp"), "half").expect("a file");
    assert!(place.list().expect("a list").is_empty());
    assert_eq!(place.sweep().expect("swept"), 1);
    assert_eq!(fs::read_dir(&scratch.0).expect("a directory").count(), 0);
}

#[test]
fn faults_are_told_apart() {
    let scratch = Scratch::new("faults");
    let missing = Local::new(scratch.0.join("nowhere"));
    let kind_of = |done: Result<(), super::StorageFault>| done.expect_err("a fault").kind;
    assert_eq!(kind_of(missing.create("a").map(drop)), FaultKind::Missing);
    assert_eq!(kind_of(missing.list().map(drop)), FaultKind::Missing);
    let place = Local::new(&scratch.0);
    assert_eq!(kind_of(place.open("a").map(drop)), FaultKind::Missing);
    for name in ["", "..", "a/b", "/etc/passwd", "a.darter-tmp"] {
        assert_eq!(kind_of(place.create(name).map(drop)), FaultKind::BadName, "{name}");
        assert_eq!(kind_of(place.remove(name)), FaultKind::BadName, "{name}");
    }
    if let Ok(mut file) = std::fs::File::options().write(true).open("/dev/full") {
        let error = file.write_all(b"x").expect_err("no room");
        assert_eq!(FaultKind::of(&error), FaultKind::Full);
    }
}
