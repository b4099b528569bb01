//! Large collections and long strings of slots that move: read a piece at a time, as they were when their reading began.
//!
//! Called by [`SlotCopy`](super::copy::SlotCopy). No piece holds a shard for long, neither here nor at the target, which gets the
//! members of a piece as a command that adds them. What changes meanwhile follows as records.

use darter_command::keys::{dump, members};
use darter_command::slices::{self, WRITE_BYTES_MIN};
use darter_latch::Grant;
use darter_store::Keyed;
use darter_txn::leaving::NamedKey;
use darter_txn::{LockSet, ShardPart};

use super::ExportStop;
use super::copy::SlotCopy;
use super::peer::ImportTarget;
use crate::engine::origin::Origin;
use crate::job::{Job, JobBody};
use crate::shared::Shared;
use crate::thread_state::ThreadState;

/// A value that is being read. When it is dropped the reading ends.
pub struct OpenPieces {
    shared: &'static Shared,
    shard: u16,
    number: u32,
    // the command that adds members to such a collection; `None` of a string
    adds: Option<&'static [u8]>,
    deadline_ms: Option<u64>,
}

/// Bytes of a piece.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes of a piece of a string, which is copied as it is.
const TEXT_PIECE_BYTES: usize = 64 << 10;
/// Bytes of pieces that wait for an answer. The target adds their members within a millisecond or two.
const UNANSWERED_BYTES_MAX: usize = 48 << 10;

impl OpenPieces {
    /// Begins to read the value at a key; `None` if it is not so large, or can be read as a whole alone. With its shard, of this
    /// number, held.
    pub fn begin(
        local: &ThreadState,
        shard: u16,
        part: &mut ShardPart,
        (db, name): &NamedKey,
    ) -> Option<OpenPieces> {
        let shared = local.shared;
        let key = shared.router.key(name);
        let place = Keyed::find(&mut part.shard, *db, key, local.now_ms);
        if !dump::marks(&place).is_empty() {
            return None;
        }
        let deadline_ms = place.deadline_ms();
        let (number, adds) = if let Some((object, _)) = place.object() {
            let (whole, adds) = (slices::whole_of(object)?, members::adding(object)?);
            if whole.len <= slices::LEN_MAX || whole.due_ms.is_some() {
                return None;
            }
            (part.shard.begin_read(*db, key, whole.stretch, members::tell_words())?, Some(adds))
        } else {
            let len = place.text().ok()??.len();
            if len < WRITE_BYTES_MIN {
                return None;
            }
            (part.shard.begin_text(*db, key, (0, len), (Vec::new(), b""))?, None)
        };
        Some(OpenPieces { shared, shard, number, adds, deadline_ms })
    }

    /// Sends the value, of the key `name` of a database. Errors: see [`ImportTarget::send`].
    pub fn send(
        &self,
        copying: &SlotCopy,
        target: &mut ImportTarget,
        (db, name): (usize, &[u8]),
    ) -> Result<(), ExportStop> {
        let deadline = self.deadline_ms.map(|ms| ms.to_string());
        let Some(adds) = self.adds else {
            let (mut text, mut is_done) = (Vec::new(), false);
            while !is_done {
                (text, is_done) = self.read(copying, text, TEXT_PIECE_BYTES)?;
            }
            let mut words: Vec<&[u8]> = vec![b"SET", name, &text];
            words.extend(deadline.iter().flat_map(|ms| [b"PXAT", ms.as_bytes()]));
            return target.command(db, &words);
        };
        target.command(db, &[b"UNLINK", name])?;
        let mut is_done = false;
        while !is_done {
            let piece;
            (piece, is_done) = self.read(copying, Vec::new(), PIECE_BYTES)?;
            let mut words: Vec<&[u8]> = vec![adds, name];
            words.extend(members::words_of(&piece));
            if words.len() > 2 {
                target.command(db, &words)?;
                target.wait_for_room(UNANSWERED_BYTES_MAX)?;
            }
            copying.must_be_active()?;
        }
        match deadline {
            Some(ms) => target.command(db, &[b"PEXPIREAT", name, ms.as_bytes()]),
            None => Ok(()),
        }
    }

    /// Appends a piece to `out`. Returns true if that was the last one. Errors: the server ends.
    fn read(
        &self,
        copying: &SlotCopy,
        mut out: Vec<u8>,
        bytes: usize,
    ) -> Result<(Vec<u8>, bool), ExportStop> {
        let (shard, number) = (self.shard, self.number);
        copying.with(shard, move |_, grant| {
            let bytes_max = out.len() + bytes;
            let is_done =
                grant.get_mut(shard).is_none_or(|part| part.shard.read_step(number, &mut out, bytes_max));
            (out, is_done)
        })
    }
}

impl Drop for OpenPieces {
    fn drop(&mut self) {
        let origin = Origin::nobody(self.shared.home_of(self.shard));
        let body = JobBody::EndRead(self.number);
        Job::new(origin, body, LockSet::one(self.shard), Grant::empty()).enqueue_from_outside(self.shared);
    }
}
