//! Values of a block: one for all, decimal numbers as integers, differences of bits, or uncompressed.

use darter_base::varint;

use super::times::best_width;
use crate::bits::{BitReader, BitWriter, unzigzag, width_of, zigzag};
use crate::sample::Sample;

const CONSTANT: u8 = 0;
const DECIMAL: u8 = 1;
const STEPS: u8 = 2;
const XOR: u8 = 3;
const RAW: u8 = 4;

/// Bits of a value stored aside.
const ASIDE_BITS: u64 = 80;
/// Values that decide the number of decimals.
const PROBES: usize = 48;
const DECIMALS_MAX: u8 = 15;
/// Integers below this are floats without loss.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

const POWERS: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// `value` as an integer of units of 10 to the power of `-decimals`, if that is exact.
#[inline]
fn whole(value: f64, decimals: u8) -> Option<i64> {
    let power = POWERS.get(usize::from(decimals))?;
    let scaled = (value * power).round();
    let whole = scaled as i64;
    let is_same = scaled.abs() < WHOLE_MAX && (whole as f64 / power).to_bits() == value.to_bits();
    is_same.then_some(whole)
}

/// The number of decimals that suits most values; `None` if none suits.
fn decimals(samples: &[Sample]) -> Option<u8> {
    let step = samples.len().div_ceil(PROBES).max(1);
    let probes = || samples.iter().step_by(step);
    let fitting = |decimals: u8| probes().filter(|probe| whole(probe.value, decimals).is_some()).count();
    let (mut best, mut most) = (None, 0);
    for decimals in 0..=DECIMALS_MAX {
        let found = fitting(decimals);
        if found > most {
            (best, most) = (Some(decimals), found);
        }
    }
    // Below this share, the values stored aside cost more than the rest saves.
    best.filter(|_| most * 4 >= probes().count() * 3)
}

pub(super) fn encode(samples: &[Sample], out: &mut Vec<u8>) {
    let first = samples.first().map_or(0, |sample| sample.value.to_bits());
    if samples.iter().all(|sample| sample.value.to_bits() == first) {
        out.push(CONSTANT);
        out.extend(first.to_le_bytes());
        return;
    }
    let mut best = decimals(samples).map(|decimals| as_decimals(samples, decimals));
    let raw_len = 8 * samples.len();
    if best.as_ref().is_none_or(|bytes| bytes.len() * 2 > raw_len) {
        let xor = as_xor(samples);
        if best.as_ref().is_none_or(|bytes| xor.len() < bytes.len()) {
            best = Some(xor);
        }
    }
    match best {
        Some(bytes) if bytes.len() <= raw_len => out.extend(bytes),
        _ => encode_plain(samples, out),
    }
}

/// The values, uncompressed.
pub(super) fn encode_plain(samples: &[Sample], out: &mut Vec<u8>) {
    out.push(RAW);
    samples.iter().for_each(|sample| out.extend(sample.value.to_bits().to_le_bytes()));
}

/// The values as integers, above the smallest or as steps from one to the next. A value that is not such an integer
/// is stored aside, and counts as the one before it.
fn as_decimals(samples: &[Sample], decimals: u8) -> Vec<u8> {
    let mut wholes = Vec::with_capacity(samples.len());
    let mut aside = Vec::new();
    let mut last = samples.iter().find_map(|sample| whole(sample.value, decimals)).unwrap_or(0);
    for (n, sample) in samples.iter().enumerate() {
        match whole(sample.value, decimals) {
            Some(value) => last = value,
            None => aside.push((n, sample.value)),
        }
        wholes.push(last);
    }
    let least = wholes.iter().copied().min().unwrap_or(0);
    let above: Vec<u64> = wholes.iter().map(|&value| (value - least).cast_unsigned()).collect();
    let first = wholes.first().copied().unwrap_or(0);
    let steps = || wholes.windows(2).map(|pair| if let [a, b] = pair { b - a } else { 0 });
    let least_step = steps().min().unwrap_or(0);
    let most_step = steps().max().unwrap_or(0);
    let above_width = width_of(above.iter().fold(0, |all, &value| all | value));
    let steps_width = width_of((most_step - least_step).cast_unsigned());
    let (form, numbers, width) = if steps_width < above_width {
        let above_step = steps().map(|step| (step - least_step).cast_unsigned());
        (STEPS, std::iter::once(0).chain(above_step).collect(), steps_width)
    } else {
        // A few large numbers do not widen all. Steps cannot be stored aside, because the next ones count from them.
        let mut widths = [0; 65];
        above.iter().for_each(|&value| widths[width_of(value) as usize] += 1);
        (DECIMAL, above, best_width(&widths, ASIDE_BITS))
    };
    let mut packed = BitWriter::default();
    for (n, &number) in numbers.iter().enumerate() {
        if width_of(number) > width {
            aside.push((n, samples.get(n).map_or(0.0, |sample| sample.value)));
            packed.write(0, width);
        } else {
            packed.write(number, width);
        }
    }
    aside.sort_by_key(|&(n, _)| n);
    aside.dedup_by_key(|&mut (n, _)| n);
    let mut out = vec![form, decimals, width as u8];
    if form == STEPS {
        varint::write(&mut out, zigzag(first));
        varint::write(&mut out, zigzag(least_step));
    } else {
        varint::write(&mut out, zigzag(least));
    }
    varint::write(&mut out, aside.len() as u64);
    for (n, value) in aside {
        out.extend((n as u16).to_le_bytes());
        out.extend(value.to_bits().to_le_bytes());
    }
    out.extend(packed.finish());
    out
}

/// The changed bits from value to value: one zero bit if nothing has changed, else the changed bits in the former
/// window or in a new one.
fn as_xor(samples: &[Sample]) -> Vec<u8> {
    let mut bits = BitWriter::default();
    let mut last = 0_u64;
    let (mut zeros, mut width) = (0, 64);
    for sample in samples {
        let change = sample.value.to_bits() ^ last;
        last = sample.value.to_bits();
        if change == 0 {
            bits.write(0, 1);
            continue;
        }
        let trailing = change.trailing_zeros();
        let needed = 64 - change.leading_zeros() - trailing;
        let fits = trailing >= zeros && change >> zeros <= u64::MAX >> (64 - width);
        if fits && width < needed + 12 {
            bits.write(0b01, 2);
        } else {
            bits.write(0b11, 2);
            (zeros, width) = (trailing, needed);
            bits.write(u64::from(zeros), 6);
            bits.write(u64::from(width - 1), 6);
        }
        bits.write(change >> zeros, width);
    }
    let mut out = vec![XOR];
    out.extend(bits.finish());
    out
}

/// Sets the values of `out`; `None` if the bytes are invalid.
pub(super) fn decode(bytes: &mut &[u8], out: &mut [Sample]) -> Option<()> {
    let (&form, rest) = bytes.split_first()?;
    *bytes = rest;
    match form {
        CONSTANT => {
            let value = f64::from_bits(u64::from_le_bytes(*bytes.first_chunk()?));
            out.iter_mut().for_each(|sample| sample.value = value);
        }
        DECIMAL | STEPS => return decode_decimals(form, bytes, out),
        XOR => decode_xor(bytes, out),
        RAW => {
            let (values, _) = bytes.as_chunks::<8>();
            for (sample, value) in out.iter_mut().zip(values) {
                sample.value = f64::from_bits(u64::from_le_bytes(*value));
            }
        }
        _ => return None,
    }
    Some(())
}

fn decode_decimals(form: u8, bytes: &mut &[u8], out: &mut [Sample]) -> Option<()> {
    let ([decimals, width], rest) = bytes.split_first_chunk::<2>()?;
    *bytes = rest;
    let power = *POWERS.get(usize::from(*decimals))?;
    let base = unzigzag(varint::take(bytes)?);
    let least_step = if form == STEPS { unzigzag(varint::take(bytes)?) } else { 0 };
    let aside_len = usize::try_from(varint::take(bytes)?).ok()?.checked_mul(10)?;
    let (aside, packed) = bytes.split_at_checked(aside_len)?;
    let mut reader = BitReader::new(packed);
    let width = u32::from(*width);
    let mut last = base.wrapping_sub(least_step);
    for sample in out.iter_mut() {
        let number = if width == 0 { 0 } else { reader.read(width) };
        let value = if form == STEPS {
            last = last.wrapping_add(least_step).wrapping_add(number.cast_signed());
            last
        } else {
            base.wrapping_add(number.cast_signed())
        };
        sample.value = value as f64 / power;
    }
    for [n0, n1, value @ ..] in aside.as_chunks::<10>().0 {
        let sample = out.get_mut(usize::from(u16::from_le_bytes([*n0, *n1])))?;
        sample.value = f64::from_bits(u64::from_le_bytes(*value));
    }
    Some(())
}

fn decode_xor(bytes: &[u8], out: &mut [Sample]) {
    let mut reader = BitReader::new(bytes);
    let mut last = 0_u64;
    let (mut zeros, mut width) = (0, 64);
    for sample in out {
        if reader.read(1) == 1 {
            if reader.read(1) == 1 {
                zeros = reader.read(6) as u32;
                width = reader.read(6) as u32 + 1;
            }
            last ^= reader.read(width) << zeros;
        }
        sample.value = f64::from_bits(last);
    }
}
