//! Frames: what a master of ours sends on its flows. Data in, data out; nothing here is trusted before its checksum.
//!
//! ```text
//! type 1  flags 1  flow 2  length 4  raw length 4  CRC32C 4  term 8  committed 8  clock ms 8  body
//! ```
//!
//! Little-endian. The checksum covers the body and then the head without the checksum itself, so a body that goes to
//! several replicas is summed once ([`BodySum`]). Called by `server` on both sides of a link.

use darter_base::crc::Crc32c;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 40;
/// The longest body. Longer content is cut into several frames ([`MORE`]).
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// Flag: the body is compressed. No frame of this version has it.
pub const PACKED: u8 = 1;
/// Flag: the content goes on in the next frame of the same kind on this flow.
pub const MORE: u8 = 2;

/// What a frame is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Records, one behind the other, as the journal has them.
    Records = 1,
    /// A block of a full sync.
    Block = 2,
    /// The end of a full sync: number of blocks, and where its cut stands.
    Blocks = 3,
    /// The sender is alive; the sequence of its next record.
    Heartbeat = 4,
    /// How far a replica is.
    Ack = 5,
    /// The replica is to take over.
    Takeover = 6,
    /// The session ends, and why.
    End = 7,
}

impl FrameKind {
    fn of(byte: u8) -> Option<FrameKind> {
        use FrameKind::{Ack, Block, Blocks, End, Heartbeat, Records, Takeover};
        [Records, Block, Blocks, Heartbeat, Ack, Takeover, End].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// What it is about.
    pub kind: FrameKind,
    /// [`MORE`] or nothing.
    pub flags: u8,
    /// The flow it belongs to.
    pub flow: u16,
    /// Bytes of the body.
    pub len: u32,
    /// The term of the sender.
    pub term: u64,
    /// Sequences below are kept by all who have to have them; 0 while nobody asks for that.
    pub committed: u64,
    /// The sender's clock, Unix milliseconds.
    pub clock_ms: u64,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadFrame(pub &'static str);

/// The checksum of a body, before the head is known.
#[derive(Clone, Debug)]
pub struct BodySum(Crc32c);

impl BodySum {
    /// Sums a body.
    pub fn of(body: &[u8]) -> BodySum {
        let mut sum = Crc32c::new();
        sum.update(body);
        BodySum(sum)
    }
}

impl FrameHead {
    /// Appends the head of a frame whose body, of `self.len` bytes, has this checksum. The body is to follow.
    pub fn write(&self, sum: &BodySum, out: &mut Vec<u8>) {
        let bytes = self.bytes();
        let mut crc = sum.0.clone();
        crc.update(&bytes[..12]);
        crc.update(&bytes[16..]);
        out.extend_from_slice(&bytes[..12]);
        out.extend_from_slice(&crc.value().to_le_bytes());
        out.extend_from_slice(&bytes[16..]);
    }

    /// The fields in order, with zeros in the place of the checksum.
    fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.flow.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.term.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.committed.to_le_bytes());
        bytes[32..].copy_from_slice(&self.clock_ms.to_le_bytes());
        bytes
    }
}

/// Appends a whole frame; its body has at most [`BODY_BYTES_MAX`] bytes.
#[expect(clippy::cast_possible_truncation, reason = "`BODY_BYTES_MAX` is below 4 GiB")]
pub fn write(out: &mut Vec<u8>, mut head: FrameHead, body: &[u8]) {
    head.len = body.len() as u32;
    head.write(&BodySum::of(body), out);
    out.extend_from_slice(body);
}

/// The head of a frame as it came: what follows is believed when it fits the checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announced {
    /// What it says.
    pub head: FrameHead,
    bytes: [u8; HEAD_BYTES],
}

impl Announced {
    /// Reads the head that `bytes` begin with. `None`: more bytes are needed.
    ///
    /// Errors: no head of this version. A length is believed only up to [`BODY_BYTES_MAX`].
    pub fn read(bytes: &[u8]) -> Result<Option<Announced>, BadFrame> {
        let Some(first) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let word = |at: usize| {
            first.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w))
        };
        let long = |at: usize| {
            first.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u64::from_le_bytes(*w))
        };
        let kind = FrameKind::of(first[0]).ok_or(BadFrame("a frame of a kind that is not known"))?;
        let (flags, len) = (first[1], word(4));
        if flags & !MORE != 0 {
            return Err(BadFrame("a frame with flags that are not known"));
        }
        if len as usize > BODY_BYTES_MAX || word(8) != len {
            return Err(BadFrame("a frame whose length cannot be"));
        }
        let flow = u16::from_le_bytes([first[2], first[3]]);
        let (term, committed, clock_ms) = (long(16), long(24), long(32));
        let head = FrameHead { kind, flags, flow, len, term, committed, clock_ms };
        Ok(Some(Announced { head, bytes: *first }))
    }

    /// Checks the whole frame.
    ///
    /// Errors: head or body is not what was sent.
    pub fn check(&self, body: &[u8]) -> Result<(), BadFrame> {
        let mut crc = BodySum::of(body).0;
        crc.update(&self.bytes[..12]);
        crc.update(&self.bytes[16..]);
        let said = self.bytes.get(12..).and_then(|rest| rest.first_chunk()).map(|w| u32::from_le_bytes(*w));
        if body.len() != self.head.len as usize || said != Some(crc.value()) {
            return Err(BadFrame("a frame whose checksum is wrong"));
        }
        Ok(())
    }
}

/// Reads the frame that `bytes` begin with: its head, and its body. `None`: more bytes are needed.
///
/// Errors: no frame of this version, or a damaged one.
pub fn read(bytes: &[u8]) -> Result<Option<(FrameHead, &[u8])>, BadFrame> {
    let Some(announced) = Announced::read(bytes)? else { return Ok(None) };
    let rest = bytes.get(HEAD_BYTES..).unwrap_or_default();
    let Some(body) = rest.get(..announced.head.len as usize) else { return Ok(None) };
    announced.check(body)?;
    Ok(Some((announced.head, body)))
}

/// Joins the pieces of content that is longer than a frame ([`MORE`]). Records and blocks come from different threads of a
/// master, so frames of one kind may stand between the pieces of another.
#[derive(Debug, Default)]
pub struct Joiner {
    parts: [Vec<u8>; FrameKind::End as usize + 1],
}

impl Joiner {
    /// Returns true if the frame with this head has all of its content, so that nobody need copy it.
    pub fn is_whole(&self, head: &FrameHead) -> bool {
        head.flags & MORE == 0 && self.parts.get(head.kind as usize).is_none_or(Vec::is_empty)
    }

    /// Takes the body of a frame; returns the whole content if this was its last piece.
    ///
    /// Errors: the content is longer than [`CONTENT_BYTES_MAX`].
    pub fn take(&mut self, head: &FrameHead, body: &[u8]) -> Result<Option<Vec<u8>>, BadFrame> {
        let Some(part) = self.parts.get_mut(head.kind as usize) else { return Ok(Some(body.to_vec())) };
        if (part.len() + body.len()) as u64 > CONTENT_BYTES_MAX {
            return Err(BadFrame("content that is too long"));
        }
        part.extend_from_slice(body);
        let is_whole = head.flags & MORE == 0;
        Ok(is_whole.then(|| std::mem::take(part)))
    }
}

/// The longest content of several frames.
const CONTENT_BYTES_MAX: u64 = 8 << 30;

/// The body of [`FrameKind::Blocks`]: how many blocks there were, and what they show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncEnd {
    /// Blocks that were sent, on all flows.
    pub blocks: u64,
    /// The first sequence that is not in them.
    pub sequence: u64,
    /// Bytes of the RESP stream before it.
    pub offset: u64,
}

impl SyncEnd {
    /// As a body.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Reads a body; `None`: it is none.
    pub fn read(body: &[u8]) -> Option<SyncEnd> {
        let [a, b, c] = [body.get(..8)?, body.get(8..16)?, body.get(16..)?].map(<[u8]>::first_chunk::<8>);
        let is_whole = body.len() == 24;
        let (a, b, c) = (u64::from_le_bytes(*a?), u64::from_le_bytes(*b?), u64::from_le_bytes(*c?));
        is_whole.then_some(SyncEnd { blocks: a, sequence: b, offset: c })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::rng::Rng;

    fn head(kind: FrameKind, flow: u16, clock_ms: u64) -> FrameHead {
        FrameHead { kind, flags: 0, flow, len: 0, term: 3, committed: 77, clock_ms }
    }

    fn random(rng: &mut Rng) -> (Vec<u8>, Vec<(FrameHead, Vec<u8>)>) {
        let (mut out, mut all) = (Vec::new(), Vec::new());
        for _ in 0..1 + rng.below(5) {
            let body: Vec<u8> = (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect();
            let kind = FrameKind::of(1 + rng.below(7) as u8).expect("a kind");
            let mut head = head(kind, rng.next_u64() as u16, rng.next_u64());
            head.flags = if rng.below(2) == 0 { MORE } else { 0 };
            write(&mut out, head, &body);
            head.len = body.len() as u32;
            all.push((head, body));
        }
        (out, all)
    }

    #[test]
    fn frames_come_back_however_they_are_cut() {
        let mut rng = Rng::new(7);
        for _ in 0..300 {
            let (bytes, all) = random(&mut rng);
            let mut at = 0;
            for (head, body) in &all {
                let end = at + HEAD_BYTES + body.len();
                let cut = at + rng.below((end - at) as u64) as usize;
                assert_eq!(read(&bytes[at..cut]), Ok(None), "{} of {} bytes", cut - at, end - at);
                assert_eq!(read(&bytes[at..]), Ok(Some((*head, body.as_slice()))));
                at = end;
            }
            assert_eq!((at, read(&bytes[at..])), (bytes.len(), Ok(None)));
        }
    }

    #[test]
    fn frames_between_the_pieces_of_another_kind_are_left_alone() {
        let mut joiner = Joiner::default();
        let mut piece = |kind, flags, body: &[u8]| {
            let head = FrameHead { flags, ..head(kind, 0, 1) };
            joiner.take(&head, body).expect("not too long")
        };
        assert_eq!(piece(FrameKind::Block, MORE, b"one "), None);
        assert_eq!(piece(FrameKind::Heartbeat, 0, b"beat"), Some(b"beat".to_vec()));
        assert_eq!(piece(FrameKind::Records, MORE, b"three "), None);
        assert_eq!(piece(FrameKind::Block, 0, b"two"), Some(b"one two".to_vec()));
        assert_eq!(piece(FrameKind::Records, 0, b"four"), Some(b"three four".to_vec()));
        assert_eq!(piece(FrameKind::Block, 0, b"five"), Some(b"five".to_vec()));
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let mut bytes = Vec::new();
        write(&mut bytes, head(FrameKind::Records, 1, 1), b"some records");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // A longer length waits for bytes that never come.
            assert!(!matches!(read(&bad), Ok(Some(_))), "bit {bit}");
        }
    }

    #[test]
    fn a_hostile_length_allocates_nothing() {
        let mut bytes = Vec::new();
        write(&mut bytes, head(FrameKind::Block, 0, 1), b"");
        bytes[4..12].copy_from_slice(&[0xff; 8]);
        assert_eq!(read(&bytes), Err(BadFrame("a frame whose length cannot be")));
        assert!(read(&[9; HEAD_BYTES]).is_err());
    }

    #[test]
    fn a_cut_comes_back() {
        let cut = SyncEnd { blocks: 1, sequence: 2, offset: 3 };
        assert_eq!(SyncEnd::read(&cut.to_bytes()), Some(cut));
        assert_eq!(
            (SyncEnd::read(&[0; 23]), SyncEnd::read(&[0; 25]), SyncEnd::read(b"")),
            (None, None, None)
        );
    }
}
