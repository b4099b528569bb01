//! Arrays of floats with less precision than 64 bits, as JSON.SET's FPHA asks for.

use crate::doc::{Doc, Node};
use crate::form::{self, View};
use crate::path::Path;
use crate::print::print;
use crate::{Change, Invalid, Rewritten, parse, rewrite};

/// A format of floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Precision {
    // bits of the significand, and the smallest and largest exponents of normal numbers
    bits: i32,
    exponent_min: i32,
    exponent_max: i32,
}

/// The reason why a text has no form of that precision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It is not JSON.
    Invalid(Invalid),
    /// A float is larger than the format holds.
    OutOfRange,
}

impl Precision {
    /// The format that FPHA calls so.
    pub fn named(name: &[u8]) -> Option<Precision> {
        let (bits, exponent_min, exponent_max) = match name {
            b"FP16" => (11, -14, 15),
            b"BF16" => (8, -126, 127),
            b"FP32" => (24, -126, 127),
            b"FP64" => (53, -1022, 1023),
            _ => return None,
        };
        Some(Precision { bits, exponent_min, exponent_max })
    }

    /// The nearest float of the format; `None` if that would be infinite.
    fn nearest(self, value: f64) -> Option<f64> {
        if value == 0.0 || self.bits == 53 {
            return Some(value);
        }
        let exponent = (value.abs().to_bits() >> 52) as i32 - 1023;
        let quantum = 2f64.powi(exponent.max(self.exponent_min) - (self.bits - 1));
        let nearest = (value / quantum).round_ties_even() * quantum;
        (nearest.abs() < 2f64.powi(self.exponent_max) * 2.0).then_some(nearest)
    }

    /// The float with the fewest digits whose nearest one of the format is that of `value`.
    pub(crate) fn shortest(self, value: f64) -> Option<f64> {
        const DIGITS_MAX: usize = 17;
        let nearest = self.nearest(value)?;
        let with = |digits: usize| format!("{nearest:.digits$e}").parse().ok();
        let fits = |short: &f64| self.nearest(*short) == Some(nearest);
        Some((0..DIGITS_MAX).filter_map(with).find(fits).unwrap_or(nearest))
    }
}

/// A JSON text with the floats of all arrays that hold nothing else in `precision`.
///
/// Errors: it is not JSON, or a float is out of range.
pub fn rounded(text: &[u8], precision: Precision) -> Result<Vec<u8>, Unfit> {
    let bytes = parse(text).map_err(Unfit::Invalid)?;
    let doc = Doc::new(&bytes);
    let everything = Path::parse(b"$..*").map_err(|_| Unfit::OutOfRange)?;
    let mut trace = match doc.root().view() {
        View::Array(_) if is_of_floats(doc.root()) => Path::root().trace(doc),
        _ => everything.trace(doc),
    };
    trace.retain(|spot| is_of_floats(doc.node(spot)));
    let done = rewrite(doc, &trace, |_, slot| {
        let mut items = Vec::new();
        let mut count = 0;
        for item in slot.node().items() {
            let View::Float(value) = item.view() else { continue };
            form::write_float(&mut items, precision.shortest(value).ok_or(Unfit::OutOfRange)?);
            count += 1;
        }
        form::close(&mut items, 0, form::ARRAY, count);
        slot.replace(&items);
        Ok(Change::Keep)
    })?;
    let new = match done {
        Rewritten::Whole(new) => new,
        _ => bytes,
    };
    let mut text = Vec::new();
    print(Doc::new(&new).root(), &mut text);
    Ok(text)
}

fn is_of_floats(node: Node<'_>) -> bool {
    matches!(node.view(), View::Array(count) if count > 0)
        && node.items().all(|item| matches!(item.view(), View::Float(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_rounded_and_print_short() {
        for name in [&b"FP16"[..], b"BF16", b"FP32", b"FP64"] {
            let precision = Precision::named(name).expect("a format");
            for text in [
                "[0.3,0.1,0.7,1.0,2.5,100.0]",
                "[-0.3,-0.1,-1.0,-2.5,-100.0]",
                "{\"a\":[[0.5]],\"b\":[1,0.1]}",
            ] {
                assert_eq!(rounded(text.as_bytes(), precision), Ok(text.as_bytes().to_vec()));
            }
        }
        let half = Precision::named(b"FP16").expect("a format");
        assert_eq!(rounded(b"[0.12345678]", half), Ok(b"[0.1235]".to_vec()));
        assert_eq!(rounded(b"[1e100]", half), Err(Unfit::OutOfRange));
        assert_eq!(rounded(b"[65519.0]", half), Ok(b"[65500.0]".to_vec()));
        assert_eq!(rounded(b"[65520.0]", half), Err(Unfit::OutOfRange));
        assert_eq!(rounded(b"[6e-8]", half), Ok(b"[6e-8]".to_vec()));
    }
}
