//! An answer that is written in pieces with a shard held, and joined with none: one growing buffer would be copied
//! while the shard is held.
//!
//! Called by code that builds answers in slices ([`super::building`]).

use std::collections::VecDeque;

/// The pieces written so far.
#[derive(Default)]
pub struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Pieces that are joined at once: half a mebibyte if each is as long as a slice makes it.
const AT_ONCE: usize = 64;

impl Pieces {
    /// Adds the output of one slice.
    pub fn push(&mut self, piece: Vec<u8>) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Bytes that are not joined yet.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends some of them to `whole`; returns true if those were the last.
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
