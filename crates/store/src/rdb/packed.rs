//! The compact forms in which Redis saves small collections: listpack, ziplist, intset, zipmap.
//!
//! Each is one string of the file, passed whole. The input is not trusted.

use darter_pack::entry::Item;

use super::{Corrupt, RdbSource};

/// The form of a compact string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PackedForm {
    /// Since Redis 7.
    Listpack,
    /// Before Redis 7.
    Ziplist,
    /// Sorted integers of one width.
    Intset,
    /// Fields and values alternating, before Redis 2.6.
    Zipmap,
}

/// Visits the elements of `bytes` in order.
///
/// Errors: the bytes are damaged, or `visit` fails.
pub fn each(
    form: PackedForm,
    bytes: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    match form {
        PackedForm::Listpack => each_of_listpack(bytes, visit),
        PackedForm::Ziplist => each_of_ziplist(bytes, visit),
        PackedForm::Intset => each_of_intset(bytes, visit),
        PackedForm::Zipmap => each_of_zipmap(bytes, visit),
    }
}

fn each_of_listpack(
    bytes: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    let mut source = RdbSource::new(bytes);
    let total = u32::from_le_bytes(source.array()?);
    if total as usize != bytes.len() {
        return Err(Corrupt);
    }
    source.array::<2>()?;
    loop {
        let before = source.left();
        let first = source.byte()?;
        if first == 0xff {
            return if source.left() == 0 { Ok(()) } else { Err(Corrupt) };
        }
        let item = listpack_item(first, &mut source)?;
        // the same length again, for reading backwards
        source.take(back_len(before - source.left()))?;
        visit(item)?;
    }
}

fn listpack_item<'a>(first: u8, source: &mut RdbSource<'a>) -> Result<Item<'a>, Corrupt> {
    Ok(match first {
        0..=0x7f => Item::Int(i64::from(first)),
        0x80..=0xbf => Item::of(source.take(usize::from(first & 0x3f))?),
        0xc0..=0xdf => {
            let low13 = i16::from(first & 0x1f) << 8 | i16::from(source.byte()?);
            // the 13th bit is the sign
            Item::Int(i64::from(low13 << 3 >> 3))
        }
        0xe0..=0xef => {
            let len = usize::from(first & 0x0f) << 8 | usize::from(source.byte()?);
            Item::of(source.take(len)?)
        }
        0xf0 => {
            let len = u32::from_le_bytes(source.array()?);
            Item::of(source.take(len as usize)?)
        }
        0xf1 => Item::Int(i64::from(i16::from_le_bytes(source.array()?))),
        0xf2 => Item::Int(int24(source)?),
        0xf3 => Item::Int(i64::from(i32::from_le_bytes(source.array()?))),
        0xf4 => Item::Int(i64::from_le_bytes(source.array()?)),
        0xf5..=0xff => return Err(Corrupt),
    })
}

fn int24(source: &mut RdbSource<'_>) -> Result<i64, Corrupt> {
    let [a, b, c] = source.array()?;
    Ok(i64::from(i32::from_le_bytes([0, a, b, c]) >> 8))
}

/// Bytes that follow a listpack's entry of `len` bytes.
pub fn back_len(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        2_097_152..=268_435_455 => 4,
        _ => 5,
    }
}

fn each_of_ziplist(
    bytes: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    let mut source = RdbSource::new(bytes);
    let total = u32::from_le_bytes(source.array()?);
    if total as usize != bytes.len() {
        return Err(Corrupt);
    }
    // offset of the last entry, number of entries
    source.array::<6>()?;
    loop {
        match source.byte()? {
            0xff => return if source.left() == 0 { Ok(()) } else { Err(Corrupt) },
            0xfe => drop(source.array::<4>()?),
            _ => {}
        }
        visit(ziplist_item(&mut source)?)?;
    }
}

fn ziplist_item<'a>(source: &mut RdbSource<'a>) -> Result<Item<'a>, Corrupt> {
    let first = source.byte()?;
    Ok(match first {
        0..=0x3f => Item::of(source.take(usize::from(first))?),
        0x40..=0x7f => {
            let len = usize::from(first & 0x3f) << 8 | usize::from(source.byte()?);
            Item::of(source.take(len)?)
        }
        0x80..=0xbf => {
            let len = u32::from_be_bytes(source.array()?);
            Item::of(source.take(len as usize)?)
        }
        0xc0 => Item::Int(i64::from(i16::from_le_bytes(source.array()?))),
        0xd0 => Item::Int(i64::from(i32::from_le_bytes(source.array()?))),
        0xe0 => Item::Int(i64::from_le_bytes(source.array()?)),
        0xf0 => Item::Int(int24(source)?),
        0xf1..=0xfd => Item::Int(i64::from(first & 0x0f) - 1),
        0xfe => Item::Int(i64::from(i8::from_le_bytes(source.array()?))),
        _ => return Err(Corrupt),
    })
}

fn each_of_intset(
    bytes: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    let mut source = RdbSource::new(bytes);
    let width = u32::from_le_bytes(source.array()?);
    let count = u64::from(u32::from_le_bytes(source.array()?));
    for _ in 0..count {
        visit(Item::Int(match width {
            2 => i64::from(i16::from_le_bytes(source.array()?)),
            4 => i64::from(i32::from_le_bytes(source.array()?)),
            8 => i64::from_le_bytes(source.array()?),
            _ => return Err(Corrupt),
        }))?;
    }
    if source.left() == 0 { Ok(()) } else { Err(Corrupt) }
}

fn each_of_zipmap(
    bytes: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    let mut source = RdbSource::new(bytes);
    // number of fields, 254 for many; the end has its own mark
    source.byte()?;
    while let Some(len) = zipmap_len(&mut source)? {
        visit(Item::of(source.take(len)?))?;
        let len = zipmap_len(&mut source)?.ok_or(Corrupt)?;
        let unused = usize::from(source.byte()?);
        visit(Item::of(source.take(len)?))?;
        source.take(unused)?;
    }
    if source.left() == 0 { Ok(()) } else { Err(Corrupt) }
}

/// A length, or nothing at the end.
fn zipmap_len(source: &mut RdbSource<'_>) -> Result<Option<usize>, Corrupt> {
    Ok(match source.byte()? {
        0xff => None,
        0xfe => Some(u32::from_le_bytes(source.array()?) as usize),
        len => Some(usize::from(len)),
    })
}
