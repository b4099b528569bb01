//! The two byte formats of a HyperLogLog string, read without trust.
//!
//! ```text
//! "HYLL" | encoding (0 dense, 1 sparse) | 3 unused | cached count, 8 bytes little endian, top bit: out of date
//! dense    16,384 registers of 6 bits, least significant bits first
//! sparse   00xxxxxx             1..=64 zero registers
//!          01xxxxxx yyyyyyyy    1..=16,384 zero registers
//!          1vvvvvxx             1..=4 registers of value 1..=32
//! ```

use super::estimate::REGISTERS;

/// Bytes before the registers.
pub const HEAD: usize = 16;
/// Bytes of the dense form.
pub const DENSE_BYTES: usize = HEAD + REGISTERS * 6 / 8;
const MAGIC: &[u8] = b"HYLL";
/// The largest value a sparse register can have.
const SPARSE_VALUE_MAX: u8 = 32;

/// All registers, a byte each.
pub type Registers = [u8; REGISTERS];

/// The fault of a string that should be a HyperLogLog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrokenHll {
    /// It is not a HyperLogLog.
    Foreign,
    /// Its head is that of one, but its registers are invalid.
    Corrupt,
}

/// The form of a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HllForm {
    /// Six bits for every register.
    Dense,
    /// Runs of equal registers.
    Sparse,
}

/// The form of a string, by its head alone.
pub fn form(bytes: &[u8]) -> Result<HllForm, BrokenHll> {
    if bytes.len() < HEAD || !bytes.starts_with(MAGIC) {
        return Err(BrokenHll::Foreign);
    }
    match bytes[4] {
        0 if bytes.len() == DENSE_BYTES => Ok(HllForm::Dense),
        1 => Ok(HllForm::Sparse),
        _ => Err(BrokenHll::Foreign),
    }
}

/// The count kept in the head, unless it is out of date.
pub fn cached_count(bytes: &[u8]) -> Option<u64> {
    let count = u64::from_le_bytes(*bytes.get(8..HEAD)?.first_chunk()?);
    (count >> 63 == 0).then_some(count)
}

/// Puts a count into the head.
pub fn cache_count(bytes: &mut [u8], count: u64) {
    if let Some(place) = bytes.get_mut(8..HEAD) {
        place.copy_from_slice(&count.to_le_bytes());
    }
}

/// Marks the count in the head as out of date.
pub fn forget_count(bytes: &mut [u8]) {
    if let Some(last) = bytes.get_mut(HEAD - 1) {
        *last |= 0x80;
    }
}

/// An empty one, sparse, with a count of 0.
pub fn empty() -> Vec<u8> {
    let mut out = head(HllForm::Sparse);
    write_zeros(&mut out, REGISTERS);
    out
}

fn head(form: HllForm) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(if form == HllForm::Dense { 0 } else { 1 });
    out.resize(HEAD, 0);
    out
}

/// Merges the registers of a string into `into`, each the larger of the two.
pub fn merge(bytes: &[u8], into: &mut Registers) -> Result<(), BrokenHll> {
    match form(bytes)? {
        HllForm::Dense => {
            let packed = &bytes[HEAD..];
            for (at, register) in into.iter_mut().enumerate() {
                *register = (*register).max(dense_at(packed, at));
            }
            Ok(())
        }
        HllForm::Sparse => {
            let mut at = 0;
            for run in (HllRuns { bytes: &bytes[HEAD..] }) {
                let (len, value) = run?;
                let end = at + len;
                let registers = into.get_mut(at..end).ok_or(BrokenHll::Corrupt)?;
                registers.iter_mut().for_each(|register| *register = (*register).max(value));
                at = end;
            }
            if at == REGISTERS { Ok(()) } else { Err(BrokenHll::Corrupt) }
        }
    }
}

/// The value of one register; reads a sparse string only up to that register.
pub fn register(bytes: &[u8], wanted: usize) -> Result<u8, BrokenHll> {
    match form(bytes)? {
        HllForm::Dense => Ok(dense_at(&bytes[HEAD..], wanted)),
        HllForm::Sparse => {
            let mut at = 0;
            for run in (HllRuns { bytes: &bytes[HEAD..] }) {
                let (len, value) = run?;
                at += len;
                if at > wanted {
                    return if at <= REGISTERS { Ok(value) } else { Err(BrokenHll::Corrupt) };
                }
            }
            Err(BrokenHll::Corrupt)
        }
    }
}

fn dense_at(packed: &[u8], at: usize) -> u8 {
    let bit = at * 6;
    let low = u16::from(packed[bit / 8]);
    let high = packed.get(bit / 8 + 1).map_or(0, |&byte| u16::from(byte));
    ((low | high << 8) >> (bit % 8)) as u8 & 63
}

/// Raises a register of a dense string.
pub fn raise_dense(bytes: &mut [u8], at: usize, value: u8) {
    let bit = at * 6;
    let place = HEAD + bit / 8;
    let shift = bit % 8;
    let mask = 63u16 << shift;
    let next = bytes.get(place + 1).copied().unwrap_or(0);
    let pair = (u16::from(bytes[place]) | u16::from(next) << 8) & !mask | u16::from(value) << shift;
    bytes[place] = pair as u8;
    if let Some(next) = bytes.get_mut(place + 1) {
        *next = (pair >> 8) as u8;
    }
}

/// The registers as a string, sparse if that takes at most `sparse_bytes_max` bytes in all.
pub fn write(registers: &Registers, sparse_bytes_max: u64) -> Vec<u8> {
    write_sparse(registers, sparse_bytes_max).unwrap_or_else(|| write_dense(registers))
}

/// The registers in the dense form.
pub fn write_dense(registers: &Registers) -> Vec<u8> {
    let mut out = head(HllForm::Dense);
    out.resize(DENSE_BYTES, 0);
    for (at, &value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
        raise_dense(&mut out, at, value);
    }
    out
}

fn write_sparse(registers: &Registers, bytes_max: u64) -> Option<Vec<u8>> {
    let mut out = head(HllForm::Sparse);
    for run in registers.chunk_by(|a, b| a == b) {
        match run[0] {
            0 => write_zeros(&mut out, run.len()),
            value if value <= SPARSE_VALUE_MAX => {
                for part in run.chunks(4) {
                    out.push(0x80 | (value - 1) << 2 | (part.len() as u8 - 1));
                }
            }
            _ => return None,
        }
        if out.len() as u64 > bytes_max {
            return None;
        }
    }
    Some(out)
}

fn write_zeros(out: &mut Vec<u8>, len: usize) {
    let last = len - 1;
    if len <= 64 {
        out.push(last as u8);
    } else {
        out.extend([0x40 | (last >> 8) as u8, last as u8]);
    }
}

/// The runs of a sparse string: length and value.
struct HllRuns<'a> {
    bytes: &'a [u8],
}

impl Iterator for HllRuns<'_> {
    type Item = Result<(usize, u8), BrokenHll>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(Ok(match first >> 6 {
            0 => (usize::from(first & 63) + 1, 0),
            1 => {
                let Some((&low, rest)) = rest.split_first() else { return Some(Err(BrokenHll::Corrupt)) };
                self.bytes = rest;
                ((usize::from(first & 63) << 8 | usize::from(low)) + 1, 0)
            }
            _ => (usize::from(first & 3) + 1, (first >> 2 & 31) + 1),
        }))
    }
}

/// A sparse string as PFDEBUG DECODE shows it: `Z:n` and `z:n` are runs of zeros, `v:value,n` of values.
pub fn describe(bytes: &[u8]) -> Result<String, BrokenHll> {
    let mut words = Vec::new();
    for run in (HllRuns { bytes: bytes.get(HEAD..).ok_or(BrokenHll::Foreign)? }) {
        words.push(match run? {
            (len, 0) if len <= 64 => format!("z:{len}"),
            (len, 0) => format!("Z:{len}"),
            (len, value) => format!("v:{value},{len}"),
        });
    }
    Ok(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_keep_every_register() {
        let mut registers = [0; REGISTERS];
        for step in [7, 100, 1000] {
            for at in (0..REGISTERS).step_by(step) {
                registers[at] = (at % 32) as u8 + 1;
            }
            registers[1..9].fill(5);
            for bytes in [write_dense(&registers), write(&registers, 30_000)] {
                let mut back = [0; REGISTERS];
                merge(&bytes, &mut back).expect("well formed");
                assert_eq!(back, registers);
                assert_eq!(register(&bytes, 7), Ok(registers[7]));
                assert_eq!(register(&bytes, REGISTERS - 1), Ok(registers[REGISTERS - 1]));
            }
        }
        registers[3] = 51;
        assert_eq!(form(&write(&registers, 30_000)), Ok(HllForm::Dense));
    }

    #[test]
    fn broken_runs_are_refused() {
        let hostile = |runs: &[u8]| [&empty()[..HEAD], runs].concat();
        let mut registers = [0; REGISTERS];
        for runs in [
            &[0x7f, 0xff, 0x7f, 0xff][..],
            &[0x80],
            &[0x7f],
            &[0x7f, 0xfe],
            &[],
            &[0u8, 0x80].map(|_| 0x7f).repeat(4096),
        ] {
            assert_eq!(merge(&hostile(runs), &mut registers), Err(BrokenHll::Corrupt), "{runs:?}");
        }
        assert_eq!(merge(b"HYLL", &mut registers), Err(BrokenHll::Foreign));
        assert_eq!(merge(b"HYLL\0aaaaaaaaaaaaaaaaa", &mut registers), Err(BrokenHll::Foreign));
    }
}
