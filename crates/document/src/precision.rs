//! Floats of 16 and 32 bits: arrays of them, as JSON.SET's FPHA asks for and as Redis 8 saves.
//!
//! A float of less than 64 bits reads as the float with the fewest digits that means the same in its format.

use crate::doc::{Doc, DocNode};
use crate::form::{self, FormView};
use crate::{Invalid, parse};

/// A format of floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// Binary16 of IEEE 754.
    Half,
    /// The upper half of binary32.
    Brain,
    /// Binary32.
    Single,
    /// Binary64.
    Double,
}

/// The reason why a text has no form of that precision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It is not JSON.
    Invalid(Invalid),
    /// A float is larger than the format holds.
    OutOfRange,
}

/// Digits that tell every float of 16 bits from its neighbours.
const SHORT_DIGITS: i32 = 5;
/// The largest power of ten that is a float without loss.
const EXACT_POWER: i32 = 22;

impl Precision {
    /// The format that FPHA calls so.
    pub fn named(name: &[u8]) -> Option<Precision> {
        Some(match name {
            b"FP16" => Precision::Half,
            b"BF16" => Precision::Brain,
            b"FP32" => Precision::Single,
            b"FP64" => Precision::Double,
            _ => return None,
        })
    }

    /// Bits of the significand, and the smallest and largest exponents of normal numbers.
    fn shape(self) -> (i32, i32, i32) {
        match self {
            Precision::Half => (11, -14, 15),
            Precision::Brain => (8, -126, 127),
            Precision::Single => (24, -126, 127),
            Precision::Double => (53, -1022, 1023),
        }
    }

    /// The nearest float of the format; `None` if that would be infinite.
    pub(crate) fn nearest(self, value: f64) -> Option<f64> {
        if value == 0.0 || self == Precision::Double {
            return Some(value);
        }
        let (bits, exponent_min, exponent_max) = self.shape();
        let exponent = (value.abs().to_bits() >> 52) as i32 - 1023;
        let quantum = 2f64.powi(exponent.max(exponent_min) - (bits - 1));
        let nearest = (value / quantum).round_ties_even() * quantum;
        (nearest.abs() < 2f64.powi(exponent_max) * 2.0).then_some(nearest)
    }

    /// The float with the fewest digits whose nearest one of the format is `exact`, which is of the format.
    pub(crate) fn shortest(self, exact: f64) -> f64 {
        if exact == 0.0 || !exact.is_finite() || self == Precision::Double {
            return exact;
        }
        if self == Precision::Single {
            let mut digits = zmij::Buffer::new();
            return digits.format_finite(exact as f32).parse().unwrap_or(exact);
        }
        let top = exact.abs().log10().floor() as i32;
        let with = |digits: i32| rounded_to(exact, digits - 1 - top);
        let fits = |short: &f64| self.nearest(*short) == Some(exact);
        (1..=SHORT_DIGITS).map(with).find(fits).unwrap_or(exact)
    }

    /// The bits of `exact`, which is of the format, at the end of eight bytes.
    fn bits(self, exact: f64) -> u64 {
        match self {
            Precision::Half => u64::from(half_of(exact)),
            Precision::Brain => u64::from((exact as f32).to_bits() >> 16),
            Precision::Single => u64::from((exact as f32).to_bits()),
            Precision::Double => exact.to_bits(),
        }
    }

    /// Bytes of a float.
    pub(crate) fn width(self) -> usize {
        match self {
            Precision::Half | Precision::Brain => 2,
            Precision::Single => 4,
            Precision::Double => 8,
        }
    }

    /// Appends the bytes of the nearest float.
    ///
    /// Errors: it would be infinite.
    pub(crate) fn write(self, value: f64, out: &mut Vec<u8>) -> Result<(), Unfit> {
        let exact = self.nearest(value).ok_or(Unfit::OutOfRange)?;
        out.extend_from_slice(self.bits(exact).to_le_bytes().get(..self.width()).unwrap_or_default());
        Ok(())
    }

    /// The float whose bytes `bytes` starts with.
    pub(crate) fn read(self, bytes: &[u8]) -> f64 {
        let mut wide = [0; 8];
        wide.iter_mut().zip(bytes).take(self.width()).for_each(|(to, from)| *to = *from);
        let bits = u64::from_le_bytes(wide);
        match self {
            Precision::Half => of_half(bits as u16),
            Precision::Brain => f64::from(f32::from_bits((bits as u32) << 16)),
            Precision::Single => f64::from(f32::from_bits(bits as u32)),
            Precision::Double => f64::from_bits(bits),
        }
    }
}

/// Rounds `value` to `decimals` digits behind the point, or to a power of ten if `decimals` is negative.
fn rounded_to(value: f64, decimals: i32) -> f64 {
    if (-EXACT_POWER..=EXACT_POWER).contains(&decimals) {
        let power = 10f64.powi(decimals.abs());
        return if decimals < 0 { (value / power).round() * power } else { (value * power).round() / power };
    }
    let digits = (value.abs().log10().floor() as i32 + decimals).max(0) as usize;
    format!("{value:.digits$e}").parse().unwrap_or(value)
}

/// The float of 16 bits.
pub(crate) fn of_half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

/// The 16 bits of a float that has such.
fn half_of(exact: f64) -> u16 {
    let sign = u16::from(exact.is_sign_negative()) << 15;
    let value = exact.abs();
    // Below the normal numbers, and zero.
    if value < 2f64.powi(-14) {
        return sign | (value * 2f64.powi(24)) as u16;
    }
    let exponent = (value.to_bits() >> 52) as i32 - 1023;
    let fraction = (value / 2f64.powi(exponent) - 1.0) * 1024.0;
    sign | ((exponent + 15) as u16) << 10 | fraction as u16
}

/// The bytes of a document whose arrays of floats, those that hold nothing else, are in `precision`.
///
/// Errors: the text is not JSON, or a float is out of range.
pub fn parse_in(text: &[u8], precision: Precision) -> Result<Vec<u8>, Unfit> {
    let bytes = parse(text).map_err(Unfit::Invalid)?;
    document_in(&bytes, &mut || Some(precision))
}

/// The same document with the precision that `next` names for each array of floats, in their order.
pub(crate) fn document_in(
    bytes: &[u8],
    next: &mut dyn FnMut() -> Option<Precision>,
) -> Result<Vec<u8>, Unfit> {
    let doc = Doc::new(bytes);
    let (names, _) = bytes.split_at_checked(doc.root_at()).unwrap_or_default();
    let mut out = names.to_vec();
    node_in(doc.root(), next, &mut out)?;
    Ok(out)
}

/// Appends `node`, which is not in pieces, with the precision that `next` names for each array of floats.
///
/// Errors: a float is out of range.
pub fn node_in(
    node: DocNode<'_>,
    next: &mut dyn FnMut() -> Option<Precision>,
    out: &mut Vec<u8>,
) -> Result<(), Unfit> {
    if !form::is_container(node.bytes()) {
        out.extend_from_slice(node.bytes());
        return Ok(());
    }
    let kind = form::Container::of(node.bytes());
    let precision = if is_of_floats(node) { next() } else { None };
    let (start, mut count) = (out.len(), 0);
    for child in node.children() {
        count += 1;
        if let Some(name) = child.name {
            form::write_name(out, name);
        }
        let child = DocNode::new(node.names, child.bytes);
        match (precision, child.view()) {
            (Some(precision), FormView::Float(value)) => form::write_float_in(out, precision, value)?,
            _ => node_in(child, next, out)?,
        }
    }
    form::close(out, start, kind.tag(), count);
    Ok(())
}

/// Returns true if `node` is an array of floats, and not empty.
pub(crate) fn is_of_floats(node: DocNode<'_>) -> bool {
    matches!(node.view(), FormView::Array(count) if count > 0)
        && node.items().all(|item| matches!(item.view(), FormView::Float(_)))
}

/// The precision of all items of an array, below 64 bits.
pub(crate) fn of_array(node: DocNode<'_>) -> Option<Precision> {
    let mut items = node.items().map(|item| form::precision(item.bytes()));
    let first = items.next()??;
    items.all(|other| other == Some(first)).then_some(first)
}

/// Returns true if an array below `node` has floats of less than 64 bits. Cost: a look at each node.
pub fn has_short(node: DocNode<'_>) -> bool {
    match node.view() {
        FormView::Array(_) => of_array(node).is_some() || node.items().any(has_short),
        FormView::Object(_) => node.members().any(|(_, value)| has_short(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::print;

    const ALL: [Precision; 4] = [Precision::Half, Precision::Brain, Precision::Single, Precision::Double];

    fn printed(text: &str, precision: Precision) -> Result<String, Unfit> {
        let bytes = parse_in(text.as_bytes(), precision)?;
        let mut out = Vec::new();
        print(Doc::new(&bytes).root(), &mut out);
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn floats_are_rounded_and_print_short() {
        for precision in ALL {
            for text in [
                "[0.3,0.1,0.7,1.0,2.5,100.0]",
                "[-0.3,-0.1,-1.0,-2.5,-100.0]",
                "{\"a\":[[0.5]],\"b\":[1,0.1]}",
                "[0.0,-0.0]",
            ] {
                assert_eq!(printed(text, precision).as_deref(), Ok(text), "{precision:?}");
            }
        }
        let half = Precision::Half;
        assert_eq!(printed("[0.12345678]", half).as_deref(), Ok("[0.1235]"));
        assert_eq!(printed("[1e100]", half), Err(Unfit::OutOfRange));
        assert_eq!(printed("[65519.0]", half).as_deref(), Ok("[65500.0]"));
        assert_eq!(printed("[65520.0]", half), Err(Unfit::OutOfRange));
        assert_eq!(printed("[6e-8]", half).as_deref(), Ok("[6e-8]"));
        assert_eq!(printed("[3e38,1e-38,1.5]", Precision::Brain).as_deref(), Ok("[3e38,1e-38,1.5]"));
    }

    #[test]
    fn an_array_takes_the_bytes_of_its_format() {
        let numbers: Vec<String> = (1..=100).map(|n| format!("{}", f64::from(n).sin() / 7.0)).collect();
        let text = format!("[{}]", numbers.join(","));
        for (precision, bytes) in [(Precision::Half, 3), (Precision::Brain, 3), (Precision::Single, 5)] {
            let bytes_max = 100 * bytes + 8;
            let len = parse_in(text.as_bytes(), precision).expect("fits").len();
            assert!(len <= bytes_max, "{precision:?}: {len}");
        }
    }

    #[test]
    fn every_float_of_16_bits_comes_back() {
        for precision in [Precision::Half, Precision::Brain] {
            for bits in 0..=u16::MAX {
                let exact = precision.read(&bits.to_le_bytes());
                if !exact.is_finite() {
                    continue;
                }
                let short = precision.shortest(exact);
                let mut out = Vec::new();
                precision.write(short, &mut out).expect("in range");
                assert_eq!(out, bits.to_le_bytes(), "{precision:?} {exact} {short}");
            }
        }
    }
}
