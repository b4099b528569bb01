//! Frames of a master, and the answers of its handshake: whatever the bytes are, reading ends, no length is believed before
//! its bytes are there, and a frame that is read writes itself again.

#![no_main]

use darter_persist::journal::part::{Parts, RecordPart};
use darter_persist::journal::record::RecordDraft;
use darter_replica::form::Former;
use darter_replica::frame::{self, FrameHead, FrameKind, HEAD_BYTES, SyncEnd};
use darter_replica::handshake::{Card, Handshake};
use darter_replica::history::ReplId;
use darter_replica::merge::Merger;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    frames(data);
    // With a checksum that is right, what lies behind it is what can be wrong.
    let mut sealed = Vec::new();
    let head =
        FrameHead { kind: FrameKind::Records, flags: 0, flow: 0, len: 0, term: 1, committed: 0, clock_ms: 1 };
    frame::write(&mut sealed, head, data);
    frames(&sealed);
    let _ = SyncEnd::read(data);
    records(data);
    let mut record = Vec::new();
    let draft = RecordDraft::begin(&mut record);
    record.extend_from_slice(data);
    draft.finish(&mut record, 1, 1);
    records(&record);
    let node = ReplId::from_random(|| 7);
    let card = Card { node: Some((node, node)), has: Some((node, 5)), ..Card::default() };
    let (mut handshake, _) = Handshake::begin(card);
    for line in data.split(|byte| *byte == b'\n') {
        if handshake.take(line).is_err() {
            return;
        }
    }
});

fn frames(mut bytes: &[u8]) {
    while let Ok(Some((head, body))) = frame::read(bytes) {
        let mut again = Vec::new();
        frame::write(&mut again, head, body);
        assert_eq!(again, bytes[..HEAD_BYTES + body.len()]);
        bytes = &bytes[HEAD_BYTES + body.len()..];
    }
}

fn records(bytes: &[u8]) {
    let (mut merger, mut former, mut out) = (Merger::new(1, 1), Former::default(), Vec::new());
    merger.push(0, bytes.to_vec().into());
    // A record of impossible length ends the session.
    let _ = merger.drain(|head, body| {
        out.clear();
        // A few bytes may stand for messages of gigabytes that are not kept.
        let mut parts = Parts::new(body);
        while let Ok(Some(part)) = parts.try_next() {
            if matches!(part, RecordPart::Message { bytes, .. } if bytes > 1 << 20) {
                return;
            }
        }
        let counted = former.commands(body, head.clock_ms, |_| {});
        let written = former.write(body, head.clock_ms, &mut out);
        assert_eq!(counted.is_ok(), written.is_ok());
        assert!(counted.is_err() || counted == Ok(out.len() as u64));
    });
}
