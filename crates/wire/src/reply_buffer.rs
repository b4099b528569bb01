//! Short replies collected beside the output and appended together: a pipeline of GETs then reserves room in the
//! output's vector once instead of three times each.
//!
//! There is one stage per thread. The code that fills it must empty it before anything else is written to that
//! output.

use darter_base::short;

use crate::reply::SHORT_LINES;

/// Room for the short replies of some thirty commands.
pub struct ReplyBuffer {
    bytes: Box<[u8; STAGE_LEN]>,
    // <= STAGE_LEN
    len: usize,
}

/// The longest string that is staged.
pub const STAGED_MAX: usize = 64;

/// Room that one reply asks for: its line (at most 5 bytes, written as 8), the string, the end of line.
const SLOT_LEN: usize = 80;
const STAGE_LEN: usize = 32 * SLOT_LEN;

impl Default for ReplyBuffer {
    fn default() -> ReplyBuffer {
        ReplyBuffer { bytes: Box::new([0; STAGE_LEN]), len: 0 }
    }
}

impl ReplyBuffer {
    /// Bytes of the longest reply that is staged.
    pub const REPLY_MAX: usize = STAGED_MAX + 7;
    /// As long as fewer bytes than this are staged, there is room for a reply.
    pub const BYTES: usize = STAGE_LEN - SLOT_LEN;

    /// Bytes that are staged.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if nothing is.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a string as [`crate::Reply::bulk`] writes it; returns whether it is short enough and there is room.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "a slot has room for the longest line, value and end")]
    pub fn bulk(&mut self, value: &[u8]) -> bool {
        let Some(&line) = SHORT_LINES[..=STAGED_MAX].get(value.len()) else { return false };
        let Some(slot) = slot(&mut self.bytes, self.len) else { return false };
        // Always 4 or 5, which the mask shows to the compiler.
        let (start, end) = ((line >> 56 & 7) as usize, (line >> 56 & 7) as usize + value.len());
        slot[..8].copy_from_slice(&(line | u64::from(b'$')).to_le_bytes());
        short::copy(&mut slot[start..end], value);
        slot[end..end + 2].copy_from_slice(b"\r\n");
        self.len += end + 2;
        true
    }

    /// Adds `+OK`; returns whether there is room.
    #[inline(always)]
    pub fn ok(&mut self) -> bool {
        let Some(slot) = slot(&mut self.bytes, self.len) else { return false };
        slot[..8].copy_from_slice(b"+OK\r\n\0\0\0");
        self.len += 5;
        true
    }

    /// Moves everything to the end of `out`.
    #[inline]
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes.get(..self.len).unwrap_or_default());
        self.len = 0;
    }
}

#[inline(always)]
fn slot(bytes: &mut [u8; STAGE_LEN], at: usize) -> Option<&mut [u8; SLOT_LEN]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;

    #[test]
    fn it_writes_what_reply_writes() {
        let (mut reply_buffer, mut out, mut wanted) = (ReplyBuffer::default(), Vec::new(), Vec::new());
        for len in (0..100).chain((0..100).rev()) {
            let value: Vec<u8> = (0..len as u8).map(|n| n ^ 0x55).collect();
            if !reply_buffer.bulk(&value) {
                reply_buffer.flush(&mut out);
                assert!(reply_buffer.is_empty() && reply_buffer.bulk(&value) == (len <= STAGED_MAX), "{len}");
            }
            if len <= STAGED_MAX {
                Reply::new(&mut wanted, false).bulk(&value);
            }
            if !reply_buffer.ok() {
                reply_buffer.flush(&mut out);
                assert!(reply_buffer.ok());
            }
            Reply::new(&mut wanted, false).ok();
        }
        reply_buffer.flush(&mut out);
        assert_eq!(out, wanted);
    }
}
