//! An answer that is written in pieces with a shard held, and put together with none: one that grew as a whole would be
//! copied while the shard is held.
//!
//! Called by what builds answers in slices ([`super::building`]).

use std::collections::VecDeque;

/// What is written so far.
#[derive(Default)]
pub struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Pieces that are put together at once: half a mebibyte where each is as long as a slice makes it.
const AT_ONCE: usize = 64;

impl Pieces {
    /// Adds what one slice has written.
    pub fn push(&mut self, piece: Vec<u8>) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Bytes that wait to be put together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts some of them behind `whole`; whether those were the last.
    pub fn join(&mut self, whole: &mut Vec<u8>) -> bool {
        whole.reserve(self.bytes);
        for piece in self.pieces.drain(..AT_ONCE.min(self.pieces.len())) {
            self.bytes -= piece.len();
            whole.extend_from_slice(&piece);
        }
        self.pieces.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Vec::as_slice)
    }
}
