//! The arguments of one command: their places in a buffer, or copied out of it.

/// A stretch of bytes in a buffer that is at most 4 GiB long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

/// `n` as 32 bits: every offset and every length is that of a buffer below 4 GiB.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "buffers are below 4 GiB")]
pub(crate) const fn narrow(n: usize) -> u32 {
    n as u32
}

impl Span {
    /// The `len` bytes from offset `start` on, both below 4 GiB.
    #[inline(always)]
    pub(crate) const fn new(start: usize, len: usize) -> Span {
        Span { start: narrow(start), len: narrow(len) }
    }

    /// The same bytes in a buffer that has `base` more bytes in front.
    #[inline(always)]
    pub(crate) fn after(self, base: u32) -> Span {
        Span { start: base.wrapping_add(self.start), len: self.len }
    }

    /// The bytes of `buf` here, or `None` when they are not all inside it.
    #[inline]
    pub fn of(self, buf: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        buf.get(start..start + self.len as usize)
    }
}

/// The arguments of a command, its name first, as a view into the bytes they came in.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    buf: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The arguments at `spans` of `buf`.
    #[inline]
    pub fn new(buf: &'a [u8], spans: &'a [Span]) -> Self {
        Self { buf, spans }
    }

    /// Number of arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if there is no argument, not even a name.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `i`, the name being 0.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        self.spans.get(i)?.of(self.buf)
    }

    /// Argument `i`, for callers that have checked the arity; empty if it is missing.
    #[inline]
    pub fn at(&self, i: usize) -> &'a [u8] {
        self.get(i).unwrap_or_default()
    }

    /// Argument `i`, of 1 to 8 bytes, as a little-endian word padded with zeros, with the bit for lower case set in
    /// each byte; `None` for any other length. Names of letters that differ only in case give equal words, and no
    /// other byte becomes a letter.
    #[inline]
    pub fn folded_word(&self, i: usize) -> Option<u64> {
        let span = self.spans.get(i)?;
        if span.len.wrapping_sub(1) > 7 {
            return None;
        }
        // Reads the bytes behind it in the buffer too, and masks them: no loop, no branch on the length.
        match self.buf.get(span.start as usize..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => {
                Some((u64::from_le_bytes(*bytes) | crate::short::SMALL) & (u64::MAX >> (64 - 8 * span.len)))
            }
            None => short_word(span.of(self.buf)?),
        }
    }

    /// All arguments in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone + use<'a> {
        let buf = self.buf;
        self.spans.iter().map(move |span| span.of(buf).unwrap_or_default())
    }

    /// The arguments from `n` on; empty if there are no more.
    #[inline]
    pub fn tail(&self, n: usize) -> Args<'a> {
        Args { buf: self.buf, spans: self.spans.get(n..).unwrap_or_default() }
    }

    /// The arguments before `n`; all if there are no more than `n`.
    #[inline]
    pub fn head(&self, n: usize) -> Args<'a> {
        Args { buf: self.buf, spans: self.spans.get(..n).unwrap_or(self.spans) }
    }

    /// Sum of the lengths in bytes.
    pub fn bytes_len(&self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }

    /// A copy that outlives the buffer. Cost: two allocations, O(bytes).
    pub fn to_owned(&self) -> OwnedArgs {
        let mut owned = OwnedArgs::with_capacity(self.len(), self.bytes_len());
        self.iter().for_each(|arg| owned.push(arg));
        owned
    }
}

/// [`Args::folded_word`] of an argument near the end of its buffer.
#[cold]
fn short_word(arg: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(arg) {
        *to = from | 0x20;
    }
    Some(u64::from_le_bytes(bytes))
}

/// Arguments that own their bytes: one buffer and the places in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// Room for `args_len` arguments of `bytes_len` bytes together.
    pub fn with_capacity(args_len: usize, bytes_len: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes_len), spans: Vec::with_capacity(args_len) }
    }

    /// The places of `args` without their bytes, which [`OwnedArgs::adopt`] must bring.
    pub fn places_of(args: Args<'_>) -> Self {
        Self { bytes: Vec::new(), spans: args.spans.to_vec() }
    }

    /// Takes the buffer to which the places of its arguments refer.
    pub fn adopt(&mut self, buffer: Vec<u8>) {
        self.bytes = buffer;
    }

    /// The buffer, to be freed elsewhere.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A copy of `slices`, the command's name first.
    pub fn from_slices(slices: &[&[u8]]) -> Self {
        let mut owned = Self::with_capacity(slices.len(), slices.iter().map(|s| s.len()).sum());
        slices.iter().for_each(|slice| owned.push(slice));
        owned
    }

    /// Adds `arg` at the end. All arguments together must stay under 4 GiB; arguments beyond it read as empty.
    pub fn push(&mut self, arg: &[u8]) {
        let start = self.begin();
        self.bytes.extend_from_slice(arg);
        self.finish(start);
    }

    /// The arguments as a view.
    #[inline]
    pub fn args(&self) -> Args<'_> {
        Args { buf: &self.bytes, spans: &self.spans }
    }

    /// Memory held, in bytes, without the struct itself.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    pub(crate) fn begin(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn add_byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Makes everything since `start` one argument.
    pub(crate) fn finish(&mut self, start: usize) {
        let span = match (u32::try_from(start), u32::try_from(self.bytes.len() - start)) {
            (Ok(start), Ok(len)) => Span { start, len },
            _ => Span { start: 0, len: 0 },
        };
        self.spans.push(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_never_reaches_outside_its_buffer() {
        let spans =
            [Span { start: 1, len: 2 }, Span { start: 2, len: 9 }, Span { start: u32::MAX, len: u32::MAX }];
        let args = Args::new(b"abcd", &spans);
        assert_eq!(
            (args.get(0), args.get(1), args.get(2), args.get(3)),
            (Some(&b"bc"[..]), None, None, None)
        );
        assert_eq!((args.at(0), args.at(1), args.at(7)), (&b"bc"[..], &b""[..], &b""[..]));
    }

    #[test]
    fn words_hold_what_fits_them_wherever_it_stands() {
        let buf = b"gEtSETex123456789";
        for start in 0..=buf.len() {
            for len in 0..=buf.len() - start {
                let spans = [Span { start: start as u32, len: len as u32 }];
                let mut padded = [0; 8];
                let expected = (1..=8).contains(&len).then(|| {
                    padded[..len].copy_from_slice(&buf[start..start + len].to_ascii_lowercase());
                    u64::from_le_bytes(padded)
                });
                assert_eq!(Args::new(buf, &spans).folded_word(0), expected, "{start}..+{len}");
            }
        }
        let outside = [Span { start: 12, len: 8 }, Span { start: u32::MAX, len: 3 }];
        let args = Args::new(buf, &outside);
        assert_eq!((args.folded_word(0), args.folded_word(1), args.folded_word(2)), (None, None, None));
    }

    #[test]
    fn copies_equal_the_view() {
        let owned = OwnedArgs::from_slices(&[b"SET", b"", b"k\0\r\n"]);
        let again = owned.args().to_owned();
        assert_eq!(owned, again);
        let args = again.args();
        assert_eq!(args.iter().collect::<Vec<_>>(), [&b"SET"[..], b"", b"k\0\r\n"]);
        assert_eq!(args.iter().next_back(), Some(&b"k\0\r\n"[..]));
        assert_eq!((args.len(), args.tail(1).len(), args.tail(9).len(), args.head(2).len()), (3, 2, 0, 2));
        assert_eq!(args.head(9).len(), 3);
        assert_eq!((args.bytes_len(), args.is_empty()), (7, false));
        assert!(again.heap_bytes() >= 7 + 3 * 8);
    }
}
