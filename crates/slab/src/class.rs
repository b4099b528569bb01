//! Size classes: every 8 bytes up to 128, then sixteen per doubling, so that at most 6.3 % is lost to rounding.

use crate::page::UNIT_BYTES;

/// Classes are numbered 1..`COUNT`. 0, the content of untouched memory, means no class.
pub(crate) const COUNT: usize = 145;
/// Bytes of the largest class.
pub(crate) const BYTES_MAX: usize = 32 << 10;
/// The longest run of units one class uses.
pub(crate) const RUN_UNITS_MAX: usize = 31;

/// Block bytes by the `class` byte of a page. Bytes that are no class have 0, so that a stale handle reads an
/// empty block; the full 256 entries spare the bounds check.
pub(crate) static BYTES: [u16; 256] = block_bytes();

/// Units of a run, once a class has outgrown its first small ones.
pub(crate) static RUN_UNITS: [u8; COUNT] = run_units();

/// Units of the second and third run of a class: two if two blocks fit in them.
pub(crate) static FEW_UNITS: [u8; COUNT] = few_units();

/// The class of a block of `bytes`, 1..=`BYTES_MAX`.
#[inline]
pub(crate) const fn of(bytes: usize) -> usize {
    let last = bytes - 1;
    if last < 128 {
        return (last >> 3) + 1;
    }
    // Shape: the top five bits of `last` number the class; the first of them is always set.
    let doubling = last.ilog2() as usize;
    (doubling << 4) + (last >> (doubling - 4)) - 111
}

/// Bytes of class `class`, 1..`COUNT`.
pub(crate) const fn bytes_of(class: usize) -> usize {
    if class <= 16 {
        return class << 3;
    }
    let step = class - 17;
    ((step & 15) + 17) << (3 + (step >> 4))
}

const fn block_bytes() -> [u16; 256] {
    let mut table = [0; 256];
    let mut class = 1;
    while class < COUNT {
        table[class] = bytes_of(class) as u16;
        class += 1;
    }
    table
}

/// The shortest run of at least 16 KiB that wastes at most 1/64 at its end, else the least wasteful one.
const fn run_units() -> [u8; COUNT] {
    let mut table = [0; COUNT];
    let mut class = 1;
    while class < COUNT {
        let bytes = bytes_of(class);
        let mut units = 4;
        let mut best = 0;
        let mut best_waste_ppm = usize::MAX;
        while units <= RUN_UNITS_MAX {
            let run = units * UNIT_BYTES;
            let waste_ppm = if bytes > run { usize::MAX } else { run % bytes * 1_000_000 / run };
            if waste_ppm < best_waste_ppm {
                best = units;
                best_waste_ppm = waste_ppm;
            }
            if best_waste_ppm <= 1_000_000 / 64 {
                break;
            }
            units += 1;
        }
        table[class] = best as u8;
        class += 1;
    }
    table
}

const fn few_units() -> [u8; COUNT] {
    let mut table = run_units();
    let mut class = 1;
    while class < COUNT {
        if bytes_of(class) <= UNIT_BYTES && table[class] > 2 {
            table[class] = 2;
        }
        class += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_bytes_and_wastes_little() {
        for bytes in 1..=BYTES_MAX {
            let class = of(bytes);
            let size = bytes_of(class);
            assert!(class < COUNT && size >= bytes, "{bytes}");
            assert!(class == 1 || bytes_of(class - 1) < bytes, "{bytes} would fit the class below");
            assert!(size - bytes < 8 || (size - bytes) * 16 < bytes, "{bytes} in {size}");
            assert_eq!(size % 8, 0);
            assert_eq!(BYTES[class] as usize, size);
        }
        assert_eq!(bytes_of(COUNT - 1), BYTES_MAX);
    }

    #[test]
    fn runs_waste_at_most_two_percent() {
        for (class, &units) in RUN_UNITS.iter().enumerate().skip(1) {
            let run = usize::from(units) * UNIT_BYTES;
            assert!(run >= bytes_of(class));
            assert!(run % bytes_of(class) * 50 <= run, "class {class} of {} in {run}", bytes_of(class));
        }
    }
}
