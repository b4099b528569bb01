//! The bytes of a value: tags, numbers, texts, and the heads of containers.
//!
//! ```text
//! 00 01 02        null, false, true
//! 07+w            integer in w bytes, 1 to 8, two's complement
//! 10              integer above 2^63 in 8 bytes
//! 11              float in 8 bytes
//! 12, 13          float of 16 bits: binary16, the upper half of binary32
//! 14              float of 32 bits
//! 20 + (e-1)*4 + (w-1)  float m / 10^e, m in w bytes: e 1 to 8, w 1 to 4
//! 40..7f          integer -16..=47
//! 80..9f          text of 0 to 31 bytes
//! a0              varint length, text
//! b0, b1          array, object: varint length of the rest; unless that is 0, varint count and the children
//! b2, b3          array, object in pieces: handle of the root (4), height (1), count (4); see [`crate::tree`]
//! b4, b5          the same, whose root is not in the arena yet
//! ```
//!
//! All numbers of several bytes are little-endian. A member of an object is a name and a value. A name begins with
//! its length below 0x3f, with 0x3f and a varint length, or is its number among the document's names: 0x40 plus a number
//! below 160, else 0xe0 plus the upper five bits of what exceeds that, and a byte.

use darter_base::varint;

use crate::precision::{Precision, Unfit};

pub(crate) const NULL: u8 = 0;
pub(crate) const FALSE: u8 = 1;
pub(crate) const TRUE: u8 = 2;
/// Tag of an integer, less its width in bytes.
const INT: u8 = 0x07;
const UINT: u8 = 0x10;
const FLOAT: u8 = 0x11;
const HALF: u8 = 0x12;
const BRAIN: u8 = 0x13;
const SINGLE: u8 = 0x14;
const DECIMAL: u8 = 0x20;
const DECIMAL_LAST: u8 = 0x3f;
const SMALL: u8 = 0x40;
const SMALL_LAST: u8 = 0x7f;
/// The integer of tag [`SMALL`].
const SMALL_MIN: i64 = -16;
const SHORT: u8 = 0x80;
const SHORT_LAST: u8 = 0x9f;
const TEXT: u8 = 0xa0;
pub(crate) const ARRAY: u8 = 0xb0;
pub(crate) const OBJECT: u8 = 0xb1;
/// Tag of an array in pieces.
const BRANCH: u8 = 0xb2;
/// The bit of a container's tag that an object has.
const OBJECT_BIT: u8 = 1;
/// Added to the tag of a container in pieces whose root is fresh.
const FRESH: u8 = 2;
const CONTAINER_LAST: u8 = 0xb5;
/// Bytes of the node of a container in pieces.
pub(crate) const BRANCH_BYTES: usize = 10;
/// Marks a name whose length is a varint.
const NAME_LONG: u8 = 0x3f;
/// The first byte of a name with a number.
const NAME_KNOWN: u8 = 0x40;
/// The same of one in two bytes.
const NAME_KNOWN_WIDE: u8 = 0xe0;
/// Numbers of names in one byte.
pub(crate) const NAMES_NARROW: u16 = (NAME_KNOWN_WIDE - NAME_KNOWN) as u16;
/// Largest exponent of a decimal float.
const EXPONENT_MAX: u32 = 8;

/// A scalar, or the children of a container.
#[derive(Clone, Copy, Debug)]
pub enum FormView<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above the largest signed one.
    Uint(u64),
    /// A float.
    Float(f64),
    /// A text, UTF-8.
    Text(&'a [u8]),
    /// An array of this many items.
    Array(usize),
    /// An object of this many members.
    Object(usize),
}

/// The kind of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Container {
    /// Its children are items.
    Array,
    /// Its children are members.
    Object,
}

impl Container {
    /// The kind of the container that `bytes` starts with.
    #[inline]
    pub fn of(bytes: &[u8]) -> Container {
        if is_object(bytes) { Container::Object } else { Container::Array }
    }

    /// The tag of one that is not in pieces.
    pub fn tag(self) -> u8 {
        match self {
            Container::Array => ARRAY,
            Container::Object => OBJECT,
        }
    }

    /// The name of the child that `bytes` starts with, and its length: 0 for an item.
    #[inline]
    pub fn name(self, bytes: &[u8]) -> (Option<MemberName<'_>>, usize) {
        match self {
            Container::Array => (None, 0),
            Container::Object => {
                let (name, width) = name(bytes);
                (Some(name), width)
            }
        }
    }
}

/// A container in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InPieces {
    /// Its kind.
    pub kind: Container,
    /// The top of the tree.
    pub root: BlockRef,
    /// Levels above the leaves.
    pub height: u8,
    /// Children.
    pub count: usize,
}

/// A block of a container in pieces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum BlockRef {
    /// A block of the arena.
    Kept(u32),
    /// A block that a change has made, and which is not in the arena yet.
    Fresh(u32),
}

/// A name of a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemberName<'a> {
    /// The name itself.
    Own(&'a [u8]),
    /// Its number among the names of the document.
    Known(u16),
}

fn int_of(bytes: &[u8]) -> i64 {
    let mut wide = [if bytes.last().is_some_and(|top| *top >= 0x80) { 0xff } else { 0 }; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    i64::from_le_bytes(wide)
}

fn eight_of(bytes: &[u8]) -> [u8; 8] {
    bytes.first_chunk::<8>().copied().unwrap_or_default()
}

fn width_of(value: i64) -> usize {
    let bits = 65 - if value < 0 { (!value).leading_zeros() } else { value.leading_zeros() };
    bits.div_ceil(8) as usize
}

/// Bytes of the head of the node that `bytes` starts with, and bytes that follow it.
#[inline]
fn extent(bytes: &[u8]) -> (usize, usize) {
    let Some(&tag) = bytes.first() else { return (0, 0) };
    match tag {
        SHORT..=SHORT_LAST => (1, usize::from(tag - SHORT)),
        SMALL..=SMALL_LAST | NULL..=TRUE => (1, 0),
        DECIMAL..=DECIMAL_LAST => (1, usize::from(tag & 3) + 1),
        UINT | FLOAT => (1, 8),
        HALF | BRAIN => (1, 2),
        SINGLE => (1, 4),
        BRANCH..=CONTAINER_LAST => (BRANCH_BYTES, 0),
        TEXT | ARRAY | OBJECT => {
            let (len, width) = number_at(bytes, 1);
            (1 + width, len)
        }
        _ => (1, usize::from(tag.saturating_sub(INT))),
    }
}

/// The varint at `at`, and its length.
fn number_at(bytes: &[u8], at: usize) -> (usize, usize) {
    match bytes.get(at..) {
        Some([small @ 0..0x80, ..]) => (usize::from(*small), 1),
        Some(rest) => {
            varint::read(rest).map_or((0, 0), |(value, width)| (usize::try_from(value).unwrap_or(0), width))
        }
        None => (0, 0),
    }
}

/// Bytes of the node that `bytes` starts with.
#[inline]
pub(crate) fn node_len(bytes: &[u8]) -> usize {
    let (head, body) = extent(bytes);
    head.saturating_add(body).min(bytes.len())
}

/// The node that `bytes` starts with.
#[inline]
pub(crate) fn view(bytes: &[u8]) -> FormView<'_> {
    let (head, body) = extent(bytes);
    let rest = bytes.get(head..head + body).unwrap_or_default();
    match bytes.first().copied().unwrap_or(NULL) {
        NULL => FormView::Null,
        FALSE => FormView::Bool(false),
        TRUE => FormView::Bool(true),
        UINT => FormView::Uint(u64::from_le_bytes(eight_of(rest))),
        FLOAT => FormView::Float(f64::from_le_bytes(eight_of(rest))),
        HALF => FormView::Float(Precision::Half.shortest(Precision::Half.read(rest))),
        BRAIN => FormView::Float(Precision::Brain.shortest(Precision::Brain.read(rest))),
        SINGLE => FormView::Float(Precision::Single.shortest(Precision::Single.read(rest))),
        tag @ DECIMAL..=DECIMAL_LAST => {
            let exponent = u32::from((tag - DECIMAL) >> 2) + 1;
            FormView::Float(int_of(rest) as f64 / 10f64.powi(exponent as i32))
        }
        tag @ SMALL..=SMALL_LAST => FormView::Int(i64::from(tag - SMALL) + SMALL_MIN),
        SHORT..=SHORT_LAST | TEXT => FormView::Text(rest),
        tag @ ARRAY..=CONTAINER_LAST => {
            let count = branch(bytes).map_or_else(|| count_of(rest), |branch| branch.count);
            if tag & OBJECT_BIT == 0 { FormView::Array(count) } else { FormView::Object(count) }
        }
        _ => FormView::Int(int_of(rest)),
    }
}

/// The content of the node at `start`.
pub fn view_at(bytes: &[u8], start: usize) -> FormView<'_> {
    view(bytes.get(start..).unwrap_or_default())
}

/// Returns true if the node that `bytes` starts with is an array or an object.
#[inline]
pub(crate) fn is_container(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(&(ARRAY..=CONTAINER_LAST)))
}

/// Returns true if the node that `bytes` starts with is an object.
#[inline]
pub(crate) fn is_object(bytes: &[u8]) -> bool {
    is_container(bytes) && bytes.first().is_some_and(|tag| tag & OBJECT_BIT != 0)
}

fn count_of(body: &[u8]) -> usize {
    if body.is_empty() { 0 } else { number_at(body, 0).0 }
}

/// The container in pieces that `bytes` starts with, if it is one.
#[inline]
pub(crate) fn branch(bytes: &[u8]) -> Option<InPieces> {
    let tag = *bytes.first().filter(|tag| (BRANCH..=CONTAINER_LAST).contains(tag))?;
    let raw = u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?);
    let height = *bytes.get(5)?;
    let count = u32::from_le_bytes(*bytes.get(6..)?.first_chunk()?) as usize;
    let root = if tag >= BRANCH + FRESH { BlockRef::Fresh(raw) } else { BlockRef::Kept(raw) };
    Some(InPieces { kind: Container::of(bytes), root, height, count })
}

/// Returns false if no container in pieces can be in `run`.
#[inline]
pub(crate) fn may_have_branches(run: &[u8]) -> bool {
    run.iter().any(|byte| (BRANCH..=CONTAINER_LAST).contains(byte))
}

/// Returns false if no container whose root is fresh can be in `run`.
#[inline]
pub(crate) fn may_have_fresh(run: &[u8]) -> bool {
    run.iter().any(|byte| (BRANCH + FRESH..=CONTAINER_LAST).contains(byte))
}

/// Appends the node of a container in pieces.
pub(crate) fn write_branch(out: &mut Vec<u8>, branch: InPieces) {
    let (fresh, raw) = match branch.root {
        BlockRef::Kept(raw) => (0, raw),
        BlockRef::Fresh(raw) => (FRESH, raw),
    };
    out.push(BRANCH + fresh + if branch.kind == Container::Object { OBJECT_BIT } else { 0 });
    out.extend_from_slice(&raw.to_le_bytes());
    out.push(branch.height);
    out.extend_from_slice(&(branch.count as u32).to_le_bytes());
}

/// Start and end of the children of the container at the start of `bytes`; twice the end of any other node.
#[inline]
pub(crate) fn inner(bytes: &[u8]) -> (usize, usize) {
    let (head, body) = extent(bytes);
    if body == 0 || !matches!(bytes.first(), Some(&(ARRAY | OBJECT))) {
        return (head + body, head + body);
    }
    (head + number_at(bytes, head).1, head + body)
}

/// The name that `bytes` starts with, and its length.
#[inline]
pub(crate) fn name(bytes: &[u8]) -> (MemberName<'_>, usize) {
    match bytes.first() {
        Some(&len) if len < NAME_LONG => {
            let end = 1 + usize::from(len);
            (MemberName::Own(bytes.get(1..end).unwrap_or_default()), end)
        }
        Some(&known @ NAME_KNOWN..NAME_KNOWN_WIDE) => (MemberName::Known(u16::from(known - NAME_KNOWN)), 1),
        Some(&first) => wide_name(bytes, first),
        None => (MemberName::Own(&[]), 0),
    }
}

/// The same of a name whose length or number takes more than a byte. Apart, so that the others are inlined.
#[inline(never)]
fn wide_name(bytes: &[u8], first: u8) -> (MemberName<'_>, usize) {
    if first == NAME_LONG {
        let (len, width) = number_at(bytes, 1);
        let end = 1 + width + len;
        return (MemberName::Own(bytes.get(1 + width..end).unwrap_or_default()), end);
    }
    let low = bytes.get(1).copied().unwrap_or(0);
    (MemberName::Known(NAMES_NARROW + u16::from_be_bytes([first - NAME_KNOWN_WIDE, low])), 2)
}

/// Offset of the value of the member with a name, in the members of an object that is not in pieces.
pub(crate) fn member(members: &[u8], wanted: MemberName<'_>) -> Option<usize> {
    let mut at = 0;
    // The usual lengths and numbers are compared with the first byte.
    let usual = match wanted {
        MemberName::Own(text) if text.len() < usize::from(NAME_LONG) => Some((text.len() as u8, text)),
        MemberName::Known(number) if number < NAMES_NARROW => Some((NAME_KNOWN + number as u8, &[][..])),
        _ => None,
    };
    if let Some((wanted, text)) = usual {
        while let Some((&head, rest)) = members.get(at..)?.split_first() {
            let width = match head {
                _ if head < NAME_LONG => 1 + usize::from(head),
                NAME_KNOWN..NAME_KNOWN_WIDE => 1,
                _ => name(members.get(at..)?).1,
            };
            if head == wanted && rest.starts_with(text) {
                return Some(at + width);
            }
            at += width + node_len(members.get(at + width..)?).max(1);
        }
        return None;
    }
    while at < members.len() {
        let (own, width) = name(members.get(at..)?);
        if own == wanted {
            return Some(at + width);
        }
        at += width + node_len(members.get(at + width..)?).max(1);
    }
    None
}

/// Bytes of a name.
pub(crate) fn name_len(name: MemberName<'_>) -> usize {
    match name {
        MemberName::Known(number) => 1 + usize::from(number >= NAMES_NARROW),
        MemberName::Own(text) if text.len() < usize::from(NAME_LONG) => 1 + text.len(),
        MemberName::Own(text) => 1 + varint::len(text.len() as u64) + text.len(),
    }
}

/// Appends an integer.
pub(crate) fn write_int(out: &mut Vec<u8>, value: i64) {
    let small = value.wrapping_sub(SMALL_MIN);
    if (0..i64::from(SMALL_LAST - SMALL) + 1).contains(&small) {
        out.push(SMALL + small as u8);
        return;
    }
    let width = width_of(value);
    out.push(INT + width as u8);
    out.extend_from_slice(value.to_le_bytes().get(..width).unwrap_or_default());
}

/// Appends an integer without a sign.
pub(crate) fn write_uint(out: &mut Vec<u8>, value: u64) {
    match i64::try_from(value) {
        Ok(value) => write_int(out, value),
        Err(_) => {
            out.push(UINT);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Appends a float: as a decimal if that reads back as the same bits.
pub(crate) fn write_float(out: &mut Vec<u8>, value: f64) {
    if let Some((mantissa, exponent)) = decimal_of(value) {
        let width = width_of(mantissa);
        out.push(DECIMAL + ((exponent - 1) << 2) as u8 + (width - 1) as u8);
        out.extend_from_slice(mantissa.to_le_bytes().get(..width).unwrap_or_default());
        return;
    }
    out.push(FLOAT);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a float of a format.
///
/// Errors: it is out of the format's range.
pub(crate) fn write_float_in(out: &mut Vec<u8>, precision: Precision, value: f64) -> Result<(), Unfit> {
    out.push(match precision {
        Precision::Half => HALF,
        Precision::Brain => BRAIN,
        Precision::Single => SINGLE,
        Precision::Double => {
            write_float(out, value);
            return Ok(());
        }
    });
    precision.write(value, out)
}

/// The format of the float that `bytes` starts with, below 64 bits.
pub(crate) fn precision(bytes: &[u8]) -> Option<Precision> {
    match *bytes.first()? {
        HALF => Some(Precision::Half),
        BRAIN => Some(Precision::Brain),
        SINGLE => Some(Precision::Single),
        _ => None,
    }
}

fn decimal_of(value: f64) -> Option<(i64, u32)> {
    if value.abs() >= 2_147_483_648.0 {
        return None;
    }
    let mut power = 1.0;
    for exponent in 1..=EXPONENT_MAX {
        power *= 10.0;
        let scaled = (value * power).round();
        if scaled.abs() >= 2_147_483_648.0 {
            return None;
        }
        let mantissa = scaled as i64;
        if (mantissa as f64 / power).to_bits() == value.to_bits() {
            return Some((mantissa, exponent));
        }
    }
    None
}

/// Appends a text.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() <= usize::from(SHORT_LAST - SHORT) {
        out.push(SHORT + text.len() as u8);
    } else {
        out.push(TEXT);
        varint::write(out, text.len() as u64);
    }
    out.extend_from_slice(text);
}

/// Appends a name.
pub(crate) fn write_name(out: &mut Vec<u8>, name: MemberName<'_>) {
    match name {
        MemberName::Known(number) => match number.checked_sub(NAMES_NARROW) {
            None => out.push(NAME_KNOWN + number as u8),
            Some(wide) => out.extend_from_slice(&(wide + (u16::from(NAME_KNOWN_WIDE) << 8)).to_be_bytes()),
        },
        MemberName::Own(text) => {
            if text.len() < usize::from(NAME_LONG) {
                out.push(text.len() as u8);
            } else {
                out.push(NAME_LONG);
                varint::write(out, text.len() as u64);
            }
            out.extend_from_slice(text);
        }
    }
}

/// Puts the head of a container of `count` children before what begins at `start`.
pub(crate) fn close(out: &mut Vec<u8>, start: usize, tag: u8, count: usize) {
    let mut head = [0; 2 * varint::BYTES_MAX + 1];
    let body = out.len() - start;
    let len = head_into(&mut head, tag, count, body);
    let head = head.get(..len).unwrap_or_default();
    if body == 0 {
        out.extend_from_slice(head);
        return;
    }
    out.resize(start + body + len, 0);
    out.copy_within(start..start + body, start + len);
    if let Some(room) = out.get_mut(start..start + len) {
        room.copy_from_slice(head);
    }
}

fn head_into(head: &mut [u8; 2 * varint::BYTES_MAX + 1], tag: u8, count: usize, body: usize) -> usize {
    let mut at = 0;
    let mut put = |byte: u8| {
        if let Some(place) = head.get_mut(at) {
            *place = byte;
        }
        at += 1;
    };
    put(tag);
    if body == 0 {
        put(0);
        return 2;
    }
    let mut number = |mut value: u64| {
        while value >= 0x80 {
            put(value as u8 | 0x80);
            value >>= 7;
        }
        put(value as u8);
    };
    number((varint::len(count as u64) + body) as u64);
    number(count as u64);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_in_few_bytes() {
        for (value, len) in [(0, 1), (-16, 1), (47, 1), (48, 2), (-17, 2), (127, 2), (128, 3), (-129, 3)] {
            let mut out = Vec::new();
            write_int(&mut out, value);
            assert_eq!(out.len(), len, "{value}");
        }
        for shift in 0..64 {
            for value in [1i64 << shift, (1i64 << shift).wrapping_sub(1), (1i64 << shift).wrapping_neg()] {
                let mut out = Vec::new();
                write_int(&mut out, value);
                assert_eq!(node_len(&out), out.len());
                assert!(matches!(view(&out), FormView::Int(back) if back == value), "{value}");
            }
        }
        for (value, len) in
            [(12.99, 3), (0.5, 2), (-73.985428, 5), (1.0, 2), (1e300, 9), (-0.0, 9), (0.1 + 0.2, 9)]
        {
            let mut out = Vec::new();
            write_float(&mut out, value);
            assert_eq!(out.len(), len, "{value}");
            assert!(
                matches!(view(&out), FormView::Float(back) if back.to_bits() == value.to_bits()),
                "{value}"
            );
        }
        let mut out = Vec::new();
        write_uint(&mut out, u64::MAX);
        assert!(matches!(view(&out), FormView::Uint(u64::MAX)));
    }

    #[test]
    fn texts_and_names_of_every_length_read_back() {
        for len in [0, 1, 31, 32, 62, 63, 64, 126, 127, 128, 300, 70_000] {
            let text = vec![b'x'; len];
            let mut out = Vec::new();
            write_text(&mut out, &text);
            assert_eq!(node_len(&out), out.len());
            assert!(matches!(view(&out), FormView::Text(back) if back == text));
            out.clear();
            write_name(&mut out, MemberName::Own(&text));
            assert_eq!(name(&out), (MemberName::Own(&text), out.len()));
            assert_eq!(name_len(MemberName::Own(&text)), out.len());
        }
        for number in 0..NAMES_NARROW + 8192 {
            let (known, mut out) = (MemberName::Known(number), Vec::new());
            write_name(&mut out, known);
            assert_eq!(name(&out), (known, out.len()));
            assert_eq!(name_len(known), out.len());
        }
    }
}
