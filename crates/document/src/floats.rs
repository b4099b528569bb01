//! The formats of all floats of a document in their order: what its text does not tell.
//!
//! Noted while a document is printed for a snapshot, and applied to the document of that text. Runs from a file are not
//! trusted.

use darter_base::varint;

use crate::doc::{Doc, DocNode};
use crate::form::{self, FormView};
use crate::precision::{Precision, Unfit};

/// Runs of floats of one format. Floats behind the last run have 64 bits.
#[derive(Clone, Debug, Default)]
pub struct FloatRuns {
    // Each run has at least one float.
    runs: Vec<FloatRun>,
    has_short: bool,
}

/// Floats of one format that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FloatRun {
    count: u64,
    precision: Precision,
}

/// The runs are damaged, or do not fit the document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRuns;

/// Bits of a run's format, below its count.
const FORMAT_BITS: u32 = 2;
const FORMATS: [Precision; 4] = [Precision::Double, Precision::Half, Precision::Brain, Precision::Single];

impl FloatRuns {
    /// Notes the next float, whose node is `node`.
    pub(crate) fn note(&mut self, node: &[u8]) {
        let precision = form::precision(node).unwrap_or(Precision::Double);
        self.has_short |= precision != Precision::Double;
        self.push(FloatRun { count: 1, precision });
    }

    fn push(&mut self, run: FloatRun) {
        match self.runs.last_mut() {
            Some(last) if last.precision == run.precision => {
                last.count = last.count.saturating_add(run.count)
            }
            _ => self.runs.push(run),
        }
    }

    /// Appends the runs and forgets them, if one of them has less than 64 bits. Returns whether it did.
    pub fn take(&mut self, out: &mut Vec<u8>) -> bool {
        if !std::mem::take(&mut self.has_short) {
            return false;
        }
        for run in self.runs.drain(..) {
            let format = FORMATS.iter().position(|format| *format == run.precision).unwrap_or(0);
            varint::write(out, run.count << FORMAT_BITS | format as u64);
        }
        true
    }

    /// Adds the runs that [`FloatRuns::take`] wrote.
    ///
    /// Errors: damaged.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), BadRuns> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let word = varint::take(&mut rest).ok_or(BadRuns)?;
            let (count, format) = (word >> FORMAT_BITS, word as usize % FORMATS.len());
            let precision = *FORMATS.get(format).ok_or(BadRuns)?;
            if count == 0 {
                return Err(BadRuns);
            }
            self.has_short |= precision != Precision::Double;
            self.push(FloatRun { count, precision });
        }
        Ok(())
    }

    /// The same document, of one block, with its floats in these formats.
    ///
    /// Errors: a float is out of range, or there are fewer floats.
    pub fn apply(self, bytes: Vec<u8>) -> Result<Vec<u8>, BadRuns> {
        if !self.has_short {
            return Ok(bytes);
        }
        let doc = Doc::new(&bytes);
        let mut out = bytes.get(..doc.root_at()).unwrap_or_default().to_vec();
        let mut runs = self.runs.into_iter();
        let mut run = FloatRun { count: 0, precision: Precision::Double };
        let mut next = || {
            if run.count == 0 {
                run = runs.next().unwrap_or(FloatRun { count: u64::MAX, precision: Precision::Double });
            }
            run.count -= 1;
            run.precision
        };
        node_in(doc.root(), &mut next, &mut out).map_err(|_| BadRuns)?;
        let is_last = runs.next().is_none();
        if is_last { Ok(out) } else { Err(BadRuns) }
    }
}

/// Appends `node`, which is not in pieces, with the format that `next` names for each float.
fn node_in(node: DocNode<'_>, next: &mut dyn FnMut() -> Precision, out: &mut Vec<u8>) -> Result<(), Unfit> {
    match node.view() {
        FormView::Float(value) => return form::write_float_in(out, next(), value),
        FormView::Array(_) | FormView::Object(_) => {}
        _ => {
            out.extend_from_slice(node.bytes());
            return Ok(());
        }
    }
    let kind = form::Container::of(node.bytes());
    let (start, mut count) = (out.len(), 0);
    for child in node.children() {
        count += 1;
        if let Some(name) = child.name {
            form::write_name(out, name);
        }
        node_in(DocNode::new(node.names, child.bytes), next, out)?;
    }
    form::close(out, start, kind.tag(), count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::parse_in;
    use crate::{PrintStyle, Printing, parse};

    /// The text of a document in steps of `bytes_max`, and the runs behind each step.
    fn printed(bytes: &[u8], bytes_max: usize) -> (Vec<u8>, FloatRuns) {
        let doc = Doc::new(bytes);
        let mut printing = Printing::new(doc.root_spot(), 0).noting_floats();
        let (mut text, mut runs) = (Vec::new(), FloatRuns::default());
        loop {
            let until = text.len() + bytes_max;
            let is_end = printing.step(doc, PrintStyle::default(), &mut text, until);
            let mut written = Vec::new();
            if printing.take_floats(&mut written) {
                runs.add(&written).expect("what was written");
            }
            if is_end {
                return (text, runs);
            }
        }
    }

    #[test]
    fn floats_of_every_format_come_back_from_text_and_runs() {
        let text = br#"{"a":[0.1,0.2],"s":1.25,"b":[[1.5,-7e-8],[1,2.5],[-0.0,2.0]],"c":[1,null,"x",0.5]}"#;
        for name in [&b"FP16"[..], b"BF16", b"FP32", b"FP64"] {
            let precision = Precision::named(name).expect("a format");
            let bytes = parse_in(text, precision).expect("fits");
            for bytes_max in [1, 7, 1000] {
                let (text, runs) = printed(&bytes, bytes_max);
                let plain = parse(&text).expect("JSON");
                assert_eq!(runs.apply(plain).as_ref(), Ok(&bytes), "{name:?} {bytes_max}");
            }
        }
        let (_, runs) = printed(&parse(text).expect("JSON"), 1000);
        assert!(!runs.has_short, "a document without short floats needs no runs");
    }

    #[test]
    fn runs_that_do_not_fit_are_refused() {
        let plain = parse(b"[1e30,2.5]").expect("JSON");
        for (runs, is_good) in [
            (&[1 << 2 | 3, 1 << 2 | 1][..], true),
            (&[1 << 2 | 3], true),
            (&[1 << 2 | 1], false),
            (&[1 << 2, 1 << 2 | 1, 1 << 2 | 2], false),
            (&[0], false),
            (&[0xff], false),
        ] {
            let mut read = FloatRuns::default();
            let done = read.add(runs).and_then(|()| read.apply(plain.clone()));
            assert_eq!(done.is_ok(), is_good, "{runs:?}");
        }
    }
}
