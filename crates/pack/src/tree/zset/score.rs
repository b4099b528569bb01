//! Scores as unsigned integers that sort the same way.

/// A number that orders as `score` does; -0 and 0 give the same one. Exact for all but -0 and NaN.
#[inline(always)]
pub(super) fn ord(score: f64) -> u64 {
    let magnitude = score.to_bits() & (MIDDLE - 1);
    // Sign and magnitude, not inverted bits: differences then keep the trailing zeros of both scores.
    if score.is_sign_negative() { MIDDLE - magnitude } else { MIDDLE + magnitude }
}

/// The score of an order number.
#[inline(always)]
pub(super) fn score(ord: u64) -> f64 {
    if ord >= MIDDLE { f64::from_bits(ord - MIDDLE) } else { f64::from_bits((MIDDLE - ord) | MIDDLE) }
}

/// Returns true if `score` is minus zero, which its order number does not distinguish from zero.
#[inline(always)]
pub(super) fn is_negative_zero(score: f64) -> bool {
    score.to_bits() == MIDDLE
}

const MIDDLE: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_numbers_sort_and_come_back() {
        let scores = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1e9,
            -1.5,
            -1.0,
            -f64::MIN_POSITIVE,
            -5e-324,
            0.0,
            5e-324,
            0.1,
            1.0,
            1e300,
            f64::INFINITY,
        ];
        for pair in scores.windows(2) {
            assert!(ord(pair[0]) < ord(pair[1]), "{pair:?}");
        }
        for value in scores {
            assert_eq!(score(ord(value)).to_bits(), value.to_bits());
        }
        assert_eq!(ord(-0.0), ord(0.0));
        assert!(is_negative_zero(-0.0) && !is_negative_zero(0.0));
    }
}
