//! A leaf of a stream: ids as offsets from a base, the field names that most entries share, and the entries' bodies.
//!
//! Called by `StreamLog` only.
//!
//! ```text
//! u16 len | u16 cap | u8 widths of ms and seq | u8 unused | u16 names | u64 ms base | u64 seq base
//! u16 used | u16 room | u16 bytes of the names | u16 unused
//! cap x ms - base | cap x seq - base | cap x u16 offset of the body | room: names' codes, then bodies as they came
//! ```

use darter_slab::{Arena, Handle};

use super::StreamId;
use crate::entry::copy_short;
use crate::tree::TreeFull;
use crate::tree::block::{bytes_of, bytes_of_mut, two_of_mut};
use crate::tree::owned::OwnedEntry;
use crate::tree::word::{get_u16, get_u64, get_wide, mask, put_u16, put_u64, put_wide, width};

const HEAD: usize = 32;
const SLOT_BYTES: usize = 2;
/// Largest leaf block.
pub(super) const BYTES_MAX: usize = 2048;

/// The head of a leaf, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamLeafHead {
    // 0 <= len <= cap
    pub(super) len: usize,
    pub(super) cap: usize,
    widths: [usize; 2],
    bases: [u64; 2],
    /// Number of names that the entries share, and the bytes of their codes.
    pub(super) names: usize,
    pub(super) names_bytes: usize,
    // names_bytes <= used <= room
    pub(super) used: usize,
    pub(super) room: usize,
}

impl StreamLeafHead {
    #[inline]
    pub(super) fn of(block: &[u8]) -> StreamLeafHead {
        StreamLeafHead {
            len: get_u16(block, 0),
            cap: get_u16(block, 2),
            widths: [(block[4] & 15) as usize, (block[4] >> 4) as usize],
            bases: [get_u64(block, 8), get_u64(block, 16)],
            names: get_u16(block, 6),
            names_bytes: get_u16(block, 28),
            used: get_u16(block, 24),
            room: get_u16(block, 26),
        }
    }

    pub(super) fn write(&self, block: &mut [u8]) {
        debug_assert!(self.len <= self.cap && self.names_bytes <= self.used && self.used <= self.room);
        put_u16(block, 0, self.len);
        put_u16(block, 2, self.cap);
        block[4] = (self.widths[0] | self.widths[1] << 4) as u8;
        block[5] = 0;
        put_u16(block, 6, self.names);
        put_u64(block, 8, self.bases[0]);
        put_u64(block, 16, self.bases[1]);
        put_u16(block, 24, self.used);
        put_u16(block, 26, self.room);
        put_u16(block, 28, self.names_bytes);
        put_u16(block, 30, 0);
    }

    fn seqs_at(&self) -> usize {
        HEAD + self.cap * self.widths[0]
    }

    fn slots_at(&self) -> usize {
        self.seqs_at() + self.cap * self.widths[1]
    }

    fn bodies_at(&self) -> usize {
        self.slots_at() + self.cap * SLOT_BYTES
    }

    fn stride(&self) -> usize {
        self.widths[0] + self.widths[1] + SLOT_BYTES
    }

    /// Bytes in use, without free room.
    pub(super) fn bytes(&self) -> usize {
        HEAD + self.len * self.stride() + self.used
    }

    /// The id of entry `at`.
    #[inline]
    pub(super) fn id(&self, block: &[u8], at: usize) -> StreamId {
        let [ms, seq] = self.widths;
        StreamId {
            ms: self.bases[0] + get_wide(block, HEAD + at * ms, ms),
            seq: self.bases[1] + get_wide(block, self.seqs_at() + at * seq, seq),
        }
    }

    /// Start and end of the body of entry `at` among the bodies. They lie in insertion order: one ends where the next
    /// begins.
    #[inline]
    fn span(&self, block: &[u8], at: usize) -> (usize, usize) {
        let slot = self.slots_at() + at * SLOT_BYTES;
        let end = if at + 1 < self.len { get_u16(block, slot + SLOT_BYTES) } else { self.used };
        (get_u16(block, slot), end)
    }

    /// The body of entry `at`.
    #[inline]
    pub(super) fn body<'a>(&self, block: &'a [u8], at: usize) -> &'a [u8] {
        let ((start, end), bodies) = (self.span(block, at), self.bodies_at());
        &block[bodies + start..bodies + end]
    }

    /// The codes of the shared names.
    #[inline]
    pub(super) fn shared<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &self.shared_on(block)[..self.names_bytes]
    }

    /// The codes of the shared names, and what lies behind them.
    #[inline]
    pub(super) fn shared_on<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.bodies_at()..]
    }

    /// Number of entries with an id below `id`.
    pub(super) fn below(&self, block: &[u8], id: StreamId) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = (low + high) / 2;
            if self.id(block, middle) < id {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns true if the columns are wide enough for an id.
    pub(super) fn holds(&self, id: StreamId) -> bool {
        let fits = |value: u64, at: usize| {
            value >= self.bases[at] && value - self.bases[at] <= mask(self.widths[at])
        };
        fits(id.ms, 0) && fits(id.seq, 1)
    }

    /// Bytes of the leaf with one more entry, and the free room that the id makes it lose or keep.
    pub(super) fn bytes_with(&self, id: StreamId, body: usize) -> usize {
        let [ms, seq] = self.widened(Some(id));
        HEAD + (self.len + 1) * (ms.0 + seq.0 + SLOT_BYTES) + self.used + body
    }

    /// Widths and bases that hold this leaf's ids (as far as its head tells) and another.
    fn widened(&self, id: Option<StreamId>) -> [(usize, u64); 2] {
        let mut columns = [(self.widths[0], self.bases[0]), (self.widths[1], self.bases[1])];
        if let Some(id) = id {
            for (column, value) in columns.iter_mut().zip([id.ms, id.seq]) {
                let high = column.1.saturating_add(mask(column.0)).max(value);
                column.1 = column.1.min(value);
                column.0 = column.0.max(width(high.max(value) - column.1));
                // Only the widest column extends that far, and then a base of 0 serves as well.
                if column.0 == 8 {
                    column.1 = 0;
                }
            }
        }
        columns
    }
}

/// Makes room for an entry at the end, if the leaf can take it in its present shape; returns the offset of its body.
#[inline]
pub(super) fn push(block: &mut [u8], id: StreamId, body: usize) -> Option<usize> {
    push_to(block, StreamLeafHead::of(block), id, body)
}

/// [`push`] to a leaf whose head is known.
#[inline]
pub(super) fn push_to(
    block: &mut [u8],
    mut head: StreamLeafHead,
    id: StreamId,
    body: usize,
) -> Option<usize> {
    if head.len == head.cap || head.used + body > head.room || !head.holds(id) {
        return None;
    }
    let [ms, seq] = head.widths;
    put_wide(block, HEAD + head.len * ms, ms, id.ms - head.bases[0]);
    put_wide(block, head.seqs_at() + head.len * seq, seq, id.seq - head.bases[1]);
    put_u16(block, head.slots_at() + head.len * SLOT_BYTES, head.used);
    let start = head.bodies_at() + head.used;
    head.len += 1;
    head.used += body;
    put_u16(block, 0, head.len);
    put_u16(block, 24, head.used);
    Some(start)
}

/// Removes entries `from..to`. The caller must release their out-of-line parts.
pub(super) fn remove(block: &mut [u8], from: usize, to: usize) {
    let head = StreamLeafHead::of(block);
    let (slots, bodies) = (head.slots_at(), head.bodies_at());
    let (start, end) = (head.span(block, from).0, head.span(block, to - 1).1);
    block.copy_within(bodies + end..bodies + head.used, bodies + start);
    for slot in block[slots + to * SLOT_BYTES..slots + head.len * SLOT_BYTES].chunks_exact_mut(SLOT_BYTES) {
        let moved = u16::from_le_bytes([slot[0], slot[1]]) - (end - start) as u16;
        slot.copy_from_slice(&moved.to_le_bytes());
    }
    let columns = [(HEAD, head.widths[0]), (head.seqs_at(), head.widths[1]), (slots, SLOT_BYTES)];
    for (first, width) in columns {
        block.copy_within(first + to * width..first + head.len * width, first + from * width);
    }
    put_u16(block, 0, head.len - (to - from));
    put_u16(block, 24, head.used - (end - start));
}

/// Begins a leaf for entries like one with this id and a body of `body` bytes, which share the names with the codes
/// `names`. The caller writes the names to the returned offset.
pub(super) fn begin(
    arena: &mut Arena,
    owned: &mut OwnedEntry,
    id: StreamId,
    names: (usize, usize),
    body: usize,
    bytes: usize,
) -> Result<(Handle, usize), TreeFull> {
    // Ids the server makes: some seconds of milliseconds, few entries in each.
    let seq = if id.seq < 256 { (1, 0) } else { (width(id.seq), 0) };
    let (count, names_bytes) = names;
    let stride = 2 + seq.0 + SLOT_BYTES;
    let leaf = owned.alloc(arena, bytes.max(HEAD + names_bytes + stride + body))?;
    let left = arena.size(leaf) - HEAD - names_bytes;
    let cap = (left / (stride + body)).max(1);
    let head = StreamLeafHead {
        len: 0,
        cap,
        widths: [2, seq.0],
        bases: [id.ms, seq.1],
        names: count,
        names_bytes,
        used: names_bytes,
        room: names_bytes + left - cap * stride,
    };
    head.write(bytes_of_mut(arena, leaf));
    Ok((leaf, head.bodies_at()))
}

/// Builds a leaf of all entries of `leaves`, which share names, wide enough for `id` too, with room for others up to
/// `bytes`. Errors: nothing is kept. The caller frees the old blocks.
pub(super) fn rebuild(
    arena: &mut Arena,
    owned: &mut OwnedEntry,
    leaves: &[Handle],
    id: Option<StreamId>,
    spare: usize,
) -> Result<Handle, TreeFull> {
    let first = StreamLeafHead::of(bytes_of(arena, leaves[0]));
    let (mut low, mut high) = ([u64::MAX; 2], [0; 2]);
    let (mut len, mut used) = (0, first.names_bytes);
    let mut note = |id: StreamId| {
        for (at, value) in [id.ms, id.seq].into_iter().enumerate() {
            low[at] = low[at].min(value);
            high[at] = high[at].max(value);
        }
    };
    for &leaf in leaves {
        let block = bytes_of(arena, leaf);
        let head = StreamLeafHead::of(block);
        (0..head.len).for_each(|at| note(head.id(block, at)));
        len += head.len;
        used += head.used - head.names_bytes;
    }
    id.into_iter().for_each(&mut note);
    let widths = [0, 1].map(|at| width(high[at] - low[at]));
    let full = StreamLeafHead { len, widths, bases: low, used, ..first };
    let (leaf, roomy) = alloc_for(arena, owned, &full, spare)?;
    let head = StreamLeafHead { len: 0, used: full.names_bytes, ..roomy };
    let (old, fresh) = two_of_mut(arena, leaves[0], leaf);
    let names = head.bodies_at();
    fresh[names..names + head.names_bytes].copy_from_slice(first.shared(old));
    head.write(fresh);
    for &source in leaves {
        let (old, fresh) = two_of_mut(arena, source, leaf);
        let from = StreamLeafHead::of(old);
        for at in 0..from.len {
            let body = from.body(old, at);
            if let Some(to) = push(fresh, from.id(old, at), body.len()) {
                fresh[to..to + body.len()].copy_from_slice(body);
            }
        }
    }
    debug_assert_eq!(StreamLeafHead::of(bytes_of(arena, leaf)).len, len);
    Ok(leaf)
}

/// A new leaf of all the entries of one whose head is `head`, its ids as wide, with `spare` bytes of room for others.
/// Errors: nothing is kept. The caller frees the old block.
pub(super) fn enlarge(
    arena: &mut Arena,
    owned: &mut OwnedEntry,
    leaf: Handle,
    head: &StreamLeafHead,
    spare: usize,
) -> Result<(Handle, StreamLeafHead), TreeFull> {
    let (larger, roomy) = alloc_for(arena, owned, head, spare)?;
    let (old, fresh) = two_of_mut(arena, leaf, larger);
    let columns = [
        (HEAD, HEAD, head.len * head.widths[0]),
        (head.seqs_at(), roomy.seqs_at(), head.len * head.widths[1]),
        (head.slots_at(), roomy.slots_at(), head.len * SLOT_BYTES),
        (head.bodies_at(), roomy.bodies_at(), head.used),
    ];
    for (from, to, bytes) in columns {
        copy_short(&mut fresh[to..to + bytes], &old[from..from + bytes]);
    }
    roomy.write(fresh);
    Ok((larger, roomy))
}

/// A block for the entries that `head` tells of and up to `spare` bytes of others like them, and its head.
fn alloc_for(
    arena: &mut Arena,
    owned: &mut OwnedEntry,
    head: &StreamLeafHead,
    spare: usize,
) -> Result<(Handle, StreamLeafHead), TreeFull> {
    let wanted = head.bytes();
    let leaf = owned.alloc(arena, (wanted + spare).min(BYTES_MAX).max(wanted))?;
    let free = arena.size(leaf) - wanted;
    let body = (head.used - head.names_bytes) / head.len.max(1);
    let more = free / (head.stride() + body);
    let (cap, room) = (head.len + more, head.used + free - more * head.stride());
    Ok((leaf, StreamLeafHead { cap, room, ..*head }))
}

/// Number of entries of a leaf.
pub(super) fn len(arena: &Arena, leaf: Handle) -> usize {
    get_u16(bytes_of(arena, leaf), 0)
}
