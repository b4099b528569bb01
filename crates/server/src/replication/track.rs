//! Where the stream of a master stood when its process ended, found while its journal is replayed.
//!
//! A master notes places of its stream in the journal (`feed`): first a mark, then what it has found out about that mark.
//! Replay counts what follows. A kill therefore costs replicas no snapshot. Nothing here runs a command.

use darter_persist::journal::part::{self, StreamPlace};
use darter_persist::journal::record::RecordHead;
use darter_replica::form::Former;
use darter_replica::history::{History, ReplId};

use super::disk::{DiskIndex, StreamPoint};
use super::position::StreamPosition;
use super::uncommitted::UncommittedTrack;

/// See above.
#[derive(Default)]
pub struct StreamTrack {
    former: Former,
    mark: Option<StreamMark>,
    known: Option<FoundStream>,
    received: UncommittedTrack,
}

/// A record that a later one tells about, and what has followed since: records and bytes of the stream.
struct StreamMark {
    journal: u64,
    records: u64,
    bytes: u64,
}

/// Where a stream stands at the end of a journal.
#[derive(Debug)]
pub struct FoundStream {
    /// Its histories.
    pub history: History,
    /// The end.
    pub end: StreamPoint,
    /// Places in the journal's files.
    pub index: DiskIndex,
}

impl StreamTrack {
    /// Takes a record of the journal. `position` is what it says of a master that this server followed.
    pub fn note(&mut self, head: RecordHead, body: &[u8], position: Option<StreamPosition>) {
        // The stream has no such record: its own are in there.
        if let Some(part) = part::uncommitted(body) {
            return self.received.note(part);
        }
        if let Some(position) = position {
            let is_own =
                |found: &FoundStream| found.history.id == position.id && found.end.offset == position.offset;
            if !self.known.as_ref().is_some_and(is_own) {
                (self.mark, self.known) = (None, None);
            }
        }
        if let Some(place) = part::stream_place(body) {
            self.learn(head, place);
        }
        if self.mark.is_none() && self.known.is_none() {
            return;
        }
        let len = self.former.commands(body, head.clock_ms, |_| {}).unwrap_or(0);
        if let Some(mark) = &mut self.mark {
            mark.records += 1;
            mark.bytes += len;
        }
        if let Some(FoundStream { end, index, .. }) = &mut self.known {
            *end =
                StreamPoint { journal: head.sequence + 1, stream: end.stream + 1, offset: end.offset + len };
            index.note(*end);
        }
    }

    fn learn(&mut self, head: RecordHead, place: StreamPlace<'_>) {
        if let Some(mark) = self.mark.take_if(|mark| mark.journal == place.journal) {
            let end = StreamPoint {
                journal: head.sequence,
                stream: place.stream + mark.records,
                offset: place.offset + mark.bytes,
            };
            let index = self.known.take().filter(|known| known.end == end).map(|known| known.index);
            let mut index = index.unwrap_or_default();
            index.note(end);
            self.known = history(place).map(|history| FoundStream { history, end, index });
        }
        self.mark = Some(StreamMark { journal: head.sequence, records: 0, bytes: 0 });
    }

    /// What a leader has sent and this server has not applied.
    pub fn take_received(&mut self) -> UncommittedTrack {
        std::mem::take(&mut self.received)
    }

    /// The stream at the end of the journal, if that is known.
    pub fn end(self) -> Option<FoundStream> {
        self.known
    }
}

/// The histories of a place as texts, the current one last.
pub fn histories(history: &History) -> Vec<String> {
    let earlier = history.earlier().map(|(id, end)| format!("{id}:{end}"));
    earlier.chain([format!("{}:0", history.id)]).collect()
}

fn history(place: StreamPlace<'_>) -> Option<History> {
    let parsed = place.histories.iter().map(|text| {
        let (id, end) = std::str::from_utf8(text).ok()?.split_once(':')?;
        Some((ReplId::parse(id.as_bytes())?, end.parse().ok()?))
    });
    let mut parsed: Vec<(ReplId, u64)> = parsed.collect::<Option<_>>()?;
    let (id, _) = parsed.pop()?;
    Some(History::continuing(id, parsed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_persist::journal::record::{HEAD_BYTES, RecordDraft};

    /// Bytes of `SET k 1`.
    const SET: u64 = 4 + 9 + 7 + 7;

    fn note(track: &mut StreamTrack, sequence: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        let draft = RecordDraft::begin(&mut out);
        write(&mut out);
        draft.finish(&mut out, sequence, 5);
        let (head, body) = out.split_first_chunk::<HEAD_BYTES>().expect("a head");
        track.note(RecordHead::read(head), body, None);
    }

    fn set(out: &mut Vec<u8>) {
        part::write_set(out, 0, b"k", b"1");
    }

    #[test]
    fn the_end_of_a_stream_is_counted_from_a_mark() {
        let mut history = History::new(ReplId::from_random(|| 7));
        history.turn(ReplId::from_random(|| 99), 40);
        let texts = histories(&history);
        let mut track = StreamTrack::default();
        note(&mut track, 1, set);
        note(&mut track, 2, |out| part::write_stream(out, (0, 0), 0, &texts));
        note(&mut track, 3, set);
        note(&mut track, 4, |out| part::write_stream(out, (2, 12), 1000, &texts));
        note(&mut track, 5, set);
        // The stream has no sequence for one that no record has: these five have 12 to 16.
        note(&mut track, 7, |out| part::write_message_len(out, 14));
        let found = track.end().expect("a place");
        assert_eq!(found.history, history);
        assert_eq!(found.end, StreamPoint { journal: 8, stream: 17, offset: 1000 + 2 * SET + 14 });
        assert_eq!(found.index.before(u64::MAX).map(|place| place.journal), Some(4));
    }

    #[test]
    fn a_mark_that_nothing_tells_about_is_no_place() {
        let texts = histories(&History::new(ReplId::from_random(|| 7)));
        let mut track = StreamTrack::default();
        note(&mut track, 2, |out| part::write_stream(out, (0, 0), 0, &texts));
        note(&mut track, 4, |out| part::write_stream(out, (1, 12), 1000, &texts));
        assert!(track.end().is_none(), "it tells about another");
    }
}
