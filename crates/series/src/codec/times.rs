//! Times of a block: distances of neighbours above the smallest one, in the number of bits that most of them need.
//! The few larger ones are stored aside.

use darter_base::varint;

use crate::bits::{BitReader, BitWriter, width_of};
use crate::sample::Sample;

/// Bits of a distance stored aside, besides its own.
const ASIDE_BITS: u64 = 20;

fn steps(samples: &[Sample]) -> impl Iterator<Item = u64> + Clone + '_ {
    samples.windows(2).map(|pair| match pair {
        [a, b] => b.time - a.time,
        _ => 0,
    })
}

/// The width that gives the smallest total, for `widths` (the count of numbers per needed width), if a number that
/// does not fit takes `aside` bits besides its own.
pub(super) fn best_width(widths: &[u64; 65], aside: u64) -> u32 {
    let total: u64 = widths.iter().sum();
    let mut best = (u64::MAX, 64);
    let mut fitting = 0;
    let own: u64 = widths.iter().enumerate().map(|(width, n)| width as u64 * n).sum();
    let mut own_fitting = 0;
    for (width, n) in widths.iter().enumerate() {
        fitting += n;
        own_fitting += width as u64 * n;
        let cost = total * width as u64 + (total - fitting) * aside + (own - own_fitting);
        if cost < best.0 {
            best = (cost, width as u32);
        }
    }
    best.1
}

pub(super) fn encode(samples: &[Sample], out: &mut Vec<u8>) {
    let least = steps(samples).min().unwrap_or(0);
    let above = steps(samples).map(move |step| step - least);
    let mut widths = [0; 65];
    above.clone().for_each(|step| widths[width_of(step) as usize] += 1);
    let width = best_width(&widths, ASIDE_BITS);
    out.push(width as u8);
    varint::write(out, least);
    let is_aside = |step: u64| width_of(step) > width;
    varint::write(out, above.clone().filter(|&step| is_aside(step)).count() as u64);
    for (n, step) in above.clone().enumerate().filter(|&(_, step)| is_aside(step)) {
        varint::write(out, n as u64);
        varint::write(out, step);
    }
    let mut bits = BitWriter::default();
    above.for_each(|step| bits.write(if is_aside(step) { 0 } else { step }, width));
    out.extend(bits.finish());
}

/// Sets the times of `out`; `None` if the bytes are invalid.
pub(super) fn decode(bytes: &mut &[u8], out: &mut [Sample]) -> Option<()> {
    let (&width, rest) = bytes.split_first()?;
    *bytes = rest;
    let least = varint::take(bytes)?;
    let aside_len = varint::take(bytes)?;
    let start = *bytes;
    for _ in 0..aside_len.checked_mul(2)? {
        varint::take(bytes)?;
    }
    let mut aside = start.get(..start.len() - bytes.len())?;
    let count = out.len().saturating_sub(1);
    let packed_len = (count * usize::from(width)).div_ceil(8);
    let (packed, rest) = bytes.split_at_checked(packed_len)?;
    *bytes = rest;
    let mut reader = BitReader::new(packed);
    let mut time = out.first()?.time;
    let mut next_aside = varint::take(&mut aside);
    for (n, sample) in out.iter_mut().skip(1).enumerate() {
        let mut step = if width == 0 { 0 } else { reader.read(u32::from(width)) };
        if next_aside == Some(n as u64) {
            step = varint::take(&mut aside)?;
            next_aside = varint::take(&mut aside);
        }
        time = time.wrapping_add(step).wrapping_add(least);
        sample.time = time;
    }
    Some(())
}
