//! The compressed chunks of a file: times as differences of differences, values as changes of bits.
//!
//! Facebook's Gorilla (VLDB 2015) with the widths that RedisTimeSeries uses. Chunks in memory have another form.

use darter_base::fields::{FieldSink, FieldSource};

use crate::SeriesLoadFault;
use crate::bits::{BitReader, BitWriter};
use crate::sample::Sample;

/// Widths of differences of differences: the n-th is announced by n + 1 ones and a zero, the last by ones alone.
const WIDTHS: [u32; 5] = [5, 8, 11, 15, 32];
const LEADING_MAX: u32 = 31;
/// The state before the first value: no window.
const NO_WINDOW: u32 = 32;

/// A chunk that is being written or read, as files keep it.
struct GorillaState {
    time: u64,
    step: i64,
    value: u64,
    leading: u32,
    trailing: u32,
}

impl GorillaState {
    fn new(time: u64, value: u64) -> GorillaState {
        GorillaState { time, step: 0, value, leading: NO_WINDOW, trailing: NO_WINDOW }
    }

    fn write(&mut self, sample: Sample, bits: &mut BitWriter) {
        let step = sample.time.wrapping_sub(self.time).cast_signed();
        let change = step.wrapping_sub(self.step);
        (self.time, self.step) = (sample.time, step);
        if change == 0 {
            bits.write(0, 1);
        } else {
            let fits = |width: &u32| (-(1_i64 << (width - 1))..1 << (width - 1)).contains(&change);
            match WIDTHS.iter().position(fits) {
                Some(n) => {
                    // The given number of ones, then a zero.
                    bits.write((1 << (n + 1)) - 1, n as u32 + 2);
                    bits.write(change.cast_unsigned(), WIDTHS.get(n).copied().unwrap_or(64));
                }
                None => {
                    bits.write(0x3f, 6);
                    bits.write(change.cast_unsigned(), 64);
                }
            }
        }
        self.write_value(sample.value.to_bits(), bits);
    }

    fn write_value(&mut self, value: u64, bits: &mut BitWriter) {
        let change = value ^ self.value;
        self.value = value;
        if change == 0 {
            return bits.write(0, 1);
        }
        bits.write(1, 1);
        let leading = change.leading_zeros().min(LEADING_MAX);
        let trailing = change.trailing_zeros();
        let width = 64 - leading - trailing;
        let window = 64_u32.saturating_sub(self.leading + self.trailing);
        if leading >= self.leading && trailing >= self.trailing && 5 + 6 + width > window {
            bits.write(0, 1);
            bits.write(change >> self.trailing, window);
        } else {
            bits.write(1, 1);
            bits.write(u64::from(leading), 5);
            bits.write(u64::from(width - 1), 6);
            bits.write(change >> trailing, width);
            (self.leading, self.trailing) = (leading, trailing);
        }
    }

    fn read(&mut self, bits: &mut BitReader<'_>) -> Sample {
        if bits.read(1) == 1 {
            let mut found = None;
            for width in WIDTHS {
                if bits.read(1) == 0 {
                    found = Some(width);
                    break;
                }
            }
            let change = match found {
                Some(width) => (bits.read(width) << (64 - width)).cast_signed() >> (64 - width),
                None => bits.read(64).cast_signed(),
            };
            self.step = self.step.wrapping_add(change);
        }
        self.time = self.time.wrapping_add_signed(self.step);
        if bits.read(1) == 1 {
            if bits.read(1) == 1 {
                self.leading = bits.read(5) as u32;
                let width = bits.read(6) as u32 + 1;
                self.trailing = 64_u32.saturating_sub(self.leading + width);
            }
            let width = 64_u32.saturating_sub(self.leading + self.trailing);
            self.value ^= bits.read(width) << (self.trailing & 63);
        }
        Sample { time: self.time, value: f64::from_bits(self.value) }
    }
}

/// Writes one compressed chunk; `samples` is sorted and may be empty. Its size is at least `bytes_min`.
pub(crate) fn save(samples: &[Sample], bytes_min: u64, out: &mut dyn FieldSink) {
    let mut bits = BitWriter::default();
    let base = samples.first().copied().unwrap_or(Sample { time: 0, value: 0.0 });
    let mut state = GorillaState::new(base.time, base.value.to_bits());
    samples.iter().skip(1).for_each(|sample| state.write(*sample, &mut bits));
    let bits_len = bits.len();
    let mut bytes = bits.finish();
    let size = bytes.len().max(usize::try_from(bytes_min).unwrap_or(0)).max(8).next_multiple_of(8);
    bytes.resize(size, 0);
    out.unsigned(size as u64);
    out.unsigned(samples.len() as u64);
    out.unsigned(bits_len);
    out.unsigned(base.value.to_bits());
    out.unsigned(base.time);
    out.unsigned(state.time);
    out.signed(state.step);
    out.unsigned(state.value);
    out.unsigned(u64::from(state.leading));
    out.unsigned(u64::from(state.trailing));
    out.string(&[&bytes]);
}

/// Reads one compressed chunk. Fails if its content contradicts its header.
pub(crate) fn load(source: &mut dyn FieldSource) -> Result<Vec<Sample>, SeriesLoadFault> {
    let (size, count, bits_len) = (source.unsigned()?, source.unsigned()?, source.unsigned()?);
    let (value, time) = (source.unsigned()?, source.unsigned()?);
    for _ in 0..5 {
        source.unsigned()?;
    }
    let bytes = source.string()?;
    let bits_max = bytes.len() as u64 * 8;
    // Each sample after the first takes two bits at least.
    let is_valid =
        bytes.len() as u64 == size && bits_len <= bits_max && count.saturating_sub(1) <= bits_max / 2;
    if !is_valid {
        return Err(SeriesLoadFault::Corrupt);
    }
    let mut samples = Vec::new();
    if count > 0 {
        samples.push(Sample::new(time, f64::from_bits(value)));
    }
    let mut state = GorillaState::new(time, value);
    let mut bits = BitReader::new(&bytes);
    for _ in 1..count {
        let sample = state.read(&mut bits);
        samples.push(Sample::new(sample.time, sample.value));
    }
    if bits.is_past_end() { Err(SeriesLoadFault::Corrupt) } else { Ok(samples) }
}

#[cfg(test)]
mod tests {
    use darter_base::fields::Field;

    use super::*;

    /// Two samples ten seconds apart, then one eleven seconds later: bits counted by hand from the format.
    #[test]
    fn bits_are_those_of_the_format() {
        let samples = [(1000, 1.0), (11_000, 1.0), (21_000, 1.0), (31_001, 1.0)];
        let samples = samples.map(|(time, value)| Sample::new(time, value));
        let mut fields: Vec<Field> = Vec::new();
        save(&samples, 0, &mut fields);
        // 10,000 takes 5 ones, a zero and 15 bits. Then a zero. Then a one, a zero and 5 bits. Each value takes a
        // bit.
        let bits_len = (5 + 15 + 1) + (1 + 1) + (2 + 5 + 1);
        assert_eq!(fields[2], Field::Unsigned(bits_len));
        let expected = 0b01111_u64 | 10_000 << 5 | 1 << 23 | 1 << 25;
        assert_eq!(fields[10], Field::String(expected.to_le_bytes().to_vec()));
        assert_eq!(load(&mut fields.iter()).expect("its own fields"), samples);
        // More samples than the bits can hold; twice the last number does not fit 64 bits.
        for count in [1_000_000, u64::MAX, 1 << 63, (1 << 63) + 1] {
            fields[1] = Field::Unsigned(count);
            assert_eq!(load(&mut fields.iter()), Err(SeriesLoadFault::Corrupt), "{count}");
        }
    }
}
