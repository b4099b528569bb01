//! Natural numbers of any size, as far as reading and printing long doubles needs them. Nothing here is fast.

use std::cmp::Ordering;

/// A natural number in limbs of 64 bits, lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Natural {
    // The highest limb is not zero; zero has no limbs.
    limbs: Vec<u64>,
}

impl Natural {
    pub(crate) fn new(value: u64) -> Self {
        let mut natural = Self { limbs: vec![value] };
        natural.trim();
        natural
    }

    /// The number of decimal `digits`, values 0 to 9.
    pub(crate) fn from_digits(digits: &[u8]) -> Self {
        let mut natural = Self { limbs: Vec::with_capacity(digits.len() / 19 + 1) };
        for chunk in digits.chunks(19) {
            let value = chunk.iter().fold(0, |n, &digit| n * 10 + u64::from(digit));
            natural.mul_add(10u64.pow(chunk.len() as u32), value);
        }
        natural
    }

    /// 5 to the power of `exponent`.
    pub(crate) fn power_of_5(exponent: u32) -> Self {
        const STEP: u32 = 27;
        let mut power = Self::new(5u64.pow(exponent % STEP));
        for _ in 0..exponent / STEP {
            power.mul_add(5u64.pow(STEP), 0);
        }
        power
    }

    /// Number of bits; 0 for zero.
    pub(crate) fn bits(&self) -> u32 {
        match self.limbs.last() {
            Some(top) => self.limbs.len() as u32 * 64 - top.leading_zeros(),
            None => 0,
        }
    }

    /// `self * factor`.
    pub(crate) fn times(&self, factor: &Natural) -> Natural {
        let mut product = vec![0u64; self.limbs.len() + factor.limbs.len()];
        for (at, &a) in self.limbs.iter().enumerate() {
            let mut carry = 0u128;
            for (limb, &b) in product[at..].iter_mut().zip(factor.limbs.iter().chain([&0])) {
                carry += u128::from(a) * u128::from(b) + u128::from(*limb);
                *limb = carry as u64;
                carry >>= 64;
            }
        }
        let mut product = Natural { limbs: product };
        product.trim();
        product
    }

    /// The highest 128 bits, how many bits were left out below them, and whether any of those is set.
    pub(crate) fn top_128(&self) -> (u128, u32, bool) {
        let left_out = self.bits().saturating_sub(128);
        let (limb, bit) = ((left_out / 64) as usize, left_out % 64);
        let part = |at: usize| u128::from(self.limbs.get(limb + at).copied().unwrap_or(0));
        let mut top = part(1) << 64 | part(0);
        if bit > 0 {
            top = top >> bit | part(2) << (128 - bit);
        }
        let below = self.limbs[..limb.min(self.limbs.len())].iter().any(|&limb| limb != 0)
            || (bit > 0 && part(0) << (128 - bit) != 0);
        (top, left_out, below)
    }

    /// `self * 2^shift`.
    pub(crate) fn shifted_left(&self, shift: u32) -> Natural {
        let (whole, bit) = ((shift / 64) as usize, shift % 64);
        let mut limbs = vec![0; whole];
        let mut carry = 0;
        for &limb in &self.limbs {
            limbs.push(limb << bit | carry);
            carry = if bit == 0 { 0 } else { limb >> (64 - bit) };
        }
        limbs.push(carry);
        let mut shifted = Natural { limbs };
        shifted.trim();
        shifted
    }

    /// About the first 67 bits of `self / divisor`: a quotient, the power of two to multiply it by, and whether there
    /// is a remainder. Neither number is zero.
    pub(crate) fn divided_by(&self, divisor: &Natural) -> (u128, i64, bool) {
        let shift = i64::from(divisor.bits()) - i64::from(self.bits());
        let mut rest = self.shifted_left(shift.max(0) as u32);
        let divisor = divisor.shifted_left((-shift).max(0) as u32);
        // 0 < rest < 2 * divisor, and stays so.
        let mut quotient = 0u128;
        for _ in 0..QUOTIENT_BITS {
            quotient <<= 1;
            if rest.compare(&divisor) != Ordering::Less {
                rest.subtract(&divisor);
                quotient |= 1;
            }
            rest = rest.shifted_left(1);
        }
        (quotient, -shift - (QUOTIENT_BITS - 1), !rest.limbs.is_empty())
    }

    /// Appends the decimal digits, at least one.
    pub(crate) fn write(mut self, out: &mut Vec<u8>) {
        const CHUNK: u64 = 10u64.pow(19);
        let mut chunks = Vec::with_capacity(self.limbs.len() + 1);
        while !self.limbs.is_empty() {
            let mut rest = 0u128;
            for limb in self.limbs.iter_mut().rev() {
                let part = rest << 64 | u128::from(*limb);
                *limb = (part / u128::from(CHUNK)) as u64;
                rest = part % u128::from(CHUNK);
            }
            chunks.push(rest as u64);
            self.trim();
        }
        crate::number::write_u64(out, chunks.pop().unwrap_or(0));
        for chunk in chunks.iter().rev() {
            out.extend_from_slice(format!("{chunk:019}").as_bytes());
        }
    }

    fn mul_add(&mut self, factor: u64, addend: u64) {
        let mut carry = u128::from(addend);
        for limb in &mut self.limbs {
            carry += u128::from(*limb) * u128::from(factor);
            *limb = carry as u64;
            carry >>= 64;
        }
        self.limbs.push(carry as u64);
        self.trim();
    }

    fn compare(&self, other: &Natural) -> Ordering {
        let by_len = self.limbs.len().cmp(&other.limbs.len());
        by_len.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    /// `self -= other`, which is not larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = false;
        for (limb, &b) in self.limbs.iter_mut().zip(other.limbs.iter().chain(std::iter::repeat(&0))) {
            let (part, under) = limb.overflowing_sub(b);
            let (part, under_again) = part.overflowing_sub(u64::from(borrow));
            *limb = part;
            borrow = under || under_again;
        }
        debug_assert!(!borrow);
        self.trim();
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }
}

// Enough for 64 bits of mantissa, one to round by, and one lost when the first quotient bit is zero.
const QUOTIENT_BITS: i64 = 67;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(natural: Natural) -> String {
        let mut out = Vec::new();
        natural.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn digits_come_back() {
        let digits: Vec<u8> = (0..200u32).map(|n| (n * 7 % 10) as u8).skip(1).collect();
        let expected: String = digits.iter().map(|d| char::from(b'0' + d)).collect();
        assert_eq!(text(Natural::from_digits(&digits)), expected);
        assert_eq!(text(Natural::new(0)), "0");
        assert_eq!(Natural::from_digits(&[0, 0]), Natural::new(0));
    }

    #[test]
    fn powers_and_products() {
        assert_eq!(text(Natural::power_of_5(55)), 5u128.pow(55).to_string());
        assert_eq!(text(Natural::power_of_5(30).shifted_left(30)), format!("1{}", "0".repeat(30)));
        let product = Natural::power_of_5(40).times(&Natural::power_of_5(40));
        assert_eq!(product, Natural::power_of_5(80));
        assert_eq!(Natural::power_of_5(3).times(&Natural::new(0)), Natural::new(0));
    }

    #[test]
    fn the_top_bits_are_those_of_the_number() {
        let natural = Natural::new(0b1011).shifted_left(200);
        let (top, left_out, below) = natural.top_128();
        assert_eq!((top >> 124, left_out, below), (0b1011, 204 - 128, false));
        assert_eq!(Natural::new(5).top_128(), (5, 0, false));
        assert!(Natural::power_of_5(200).top_128().2);
    }

    #[test]
    fn quotients_are_exact_to_their_last_bit() {
        for (a, b) in [(1u64, 3u64), (10, 5), (u64::MAX, 7), (1, u64::MAX), (12345678901, 12345)] {
            let (quotient, power, rest) = Natural::new(a).divided_by(&Natural::new(b));
            // a * 2^-power / b, in wide arithmetic.
            let (scaled, left) = if power <= 0 && 128 - u128::from(a).leading_zeros() as i64 - power <= 128 {
                let wide = u128::from(a) << -power;
                (wide / u128::from(b), wide % u128::from(b) != 0)
            } else {
                continue;
            };
            assert_eq!((quotient, rest), (scaled, left), "{a} / {b}");
        }
    }
}
