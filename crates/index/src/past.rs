//! What has gone lately: fingerprints of evicted entries, five for each home line, kept beside the segments and only
//! while eviction goes by use.

use crate::hash;
use crate::segment::{HOMES, Segment};

/// Fingerprints kept for a home line.
const KEPT: usize = 5;
/// Segments whose fingerprints are allocated together: with as many the allocator's rounding is below one percent.
const TOGETHER: usize = 17;

/// The fingerprints of one segment, of each home the latest first; 0 is none.
type Rings = [[u16; KEPT]; HOMES];

/// The fingerprints of all segments of an index.
#[derive(Default)]
pub(crate) struct Past {
    pieces: Vec<Box<[Rings; TOGETHER]>>,
    len: u32,
    // Numbers below `len` that no segment has.
    free: Vec<u32>,
}

impl Past {
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.len() * size_of::<[Rings; TOGETHER]>()
            + self.pieces.capacity() * size_of::<usize>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Remembers an entry of `segment`.
    pub(crate) fn put(&mut self, segment: &mut Segment, hash: u64) {
        let id = match segment.past_id() {
            Some(id) => id,
            None => self.add(),
        };
        segment.set_past_id(Some(id));
        let ring = &mut self.rings(id)[hash::home(hash)];
        ring.copy_within(0..KEPT - 1, 1);
        ring[0] = fingerprint(hash);
    }

    /// Whether an entry that comes to `segment` has gone lately; it is forgotten.
    pub(crate) fn take(&mut self, segment: &Segment, hash: u64) -> bool {
        let Some(id) = segment.past_id() else { return false };
        let ring = &mut self.rings(id)[hash::home(hash)];
        let Some(at) = ring.iter().position(|&kept| kept == fingerprint(hash)) else { return false };
        ring.copy_within(at + 1.., at);
        ring[KEPT - 1] = 0;
        true
    }

    /// Fingerprints for another segment, the same as those under `id`.
    pub(crate) fn copy(&mut self, id: Option<u32>) -> Option<u32> {
        let rings = *self.rings(id?);
        let copy = self.add();
        *self.rings(copy) = rings;
        Some(copy)
    }

    /// Gives up the fingerprints under `id`.
    pub(crate) fn drop(&mut self, id: Option<u32>) {
        if let Some(id) = id {
            *self.rings(id) = [[0; KEPT]; HOMES];
            self.free.push(id);
        }
    }

    fn add(&mut self) -> u32 {
        if let Some(id) = self.free.pop() {
            return id;
        }
        if self.len as usize == self.pieces.len() * TOGETHER {
            self.pieces.push(Box::new([[[0; KEPT]; HOMES]; TOGETHER]));
        }
        self.len += 1;
        self.len - 1
    }

    fn rings(&mut self, id: u32) -> &mut Rings {
        &mut self.pieces[id as usize / TOGETHER][id as usize % TOGETHER]
    }
}

/// Sixteen bits of a hash that neither name its home nor, before there are 65,536 segments, its segment.
fn fingerprint(hash: u64) -> u16 {
    let low = (hash >> 32) as u16 ^ (hash as u16).rotate_left(8);
    low + u16::from(low == 0)
}
