//! Two segments of a journal, cut out of one input: whatever they are, reading ends, what is read has the sequences in
//! order, and the parts of a body are all there or refused.

#![no_main]

use darter_persist::journal::manifest::Manifest;
use darter_persist::journal::merge::Merge;
use darter_persist::journal::part::{Parts, RecordPart};
use darter_persist::journal::record::RecordDraft;
use darter_persist::journal::redis::{Commands, parse_manifest};
use darter_persist::journal::segment::{FileHead, SegmentReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Manifest::parse(data);
    let _ = parse_manifest(data);
    let mut commands = Commands::new(data, data.len() as u64, 0);
    while let Ok(Some(Ok(args))) = commands.next_command() {
        assert!(args.iter().map(Vec::len).sum::<usize>() <= data.len());
    }
    bodies(data);
    // The head, and the head of a record, with checksums that are right: what lies behind them is what can be wrong.
    let (first, second) = data.split_at(data.len() / 2);
    let mut sealed = FileHead { thread: 1, generation: 1, since: None, made_ms: 1, ..FileHead::default() }
        .to_bytes()
        .to_vec();
    let draft = RecordDraft::begin(&mut sealed);
    sealed.extend_from_slice(first);
    draft.finish(&mut sealed, 1, 1);
    sealed.extend_from_slice(second);
    let files = [sealed.as_slice(), first, second];
    let opened = files.iter().filter_map(|bytes| SegmentReader::open(*bytes, bytes.len() as u64).ok()?.ok());
    let mut merge = Merge::new(opened.collect(), 1).expect("bytes in memory are read");
    let mut expected = 1;
    while let Ok(Some((head, body))) = merge.next_record() {
        assert_eq!(head.sequence, expected);
        expected += 1;
        bodies(body);
    }
    assert!(expected > 1, "the record that is sound is read");
});

fn bodies(body: &[u8]) {
    let mut parts = Parts::new(body);
    while let Ok(Some(part)) = parts.try_next() {
        if let RecordPart::Command { args, .. } = part {
            assert_eq!(args.iter().count(), args.len());
        }
    }
}
