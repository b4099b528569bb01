//! Long texts of JSON.MSET, parsed without a shard: the command gets their forms.
//!
//! Called by the command (to begin and to end) and by `Incremental`. Commands that change one document have nothing of it: storing
//! takes longer than parsing there. A text that is no JSON is left to the command,
//! which knows what is wrong first. Memory: the forms.

use darter_document::{Doc, Parsing, parse, parse_for, renamed};
use darter_store::Keyed;
use darter_wire::{Args, Reply};

use super::long_set::{PARSED_BYTES, TEXT_BYTES_MIN};
use crate::incremental::operation::{NextSlice, Operation, OperationStage, ResultTo};
use crate::incremental::{FoundValue, Staged};
use crate::{Ctx, Fault};

/// Words of a command that are parsed.
struct LongTexts {
    words: Vec<usize>,
    parsing: Option<Box<Parsing>>,
    // The forms, one behind the other, and the end of each.
    forms: Vec<u8>,
    ends: Vec<u64>,
}

impl LongTexts {
    /// Parses some of a text; the whole form once it is complete, empty if it is no JSON.
    fn parse(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        if text.len() <= PARSED_BYTES {
            return Some(parse(text).unwrap_or_default());
        }
        let parsing = self.parsing.get_or_insert_with(|| Box::new(Parsing::of_document()));
        match parsing.step(text, PARSED_BYTES) {
            Ok(false) => None,
            Ok(true) => self.parsing.take().map(|parsing| parsing.end().into_form()),
            Err(_) => {
                self.parsing = None;
                Some(parse(text).unwrap_or_default())
            }
        }
    }
}

impl Operation for LongTexts {
    fn next(&self, _draft_shard: Option<u16>) -> NextSlice {
        NextSlice::Work
    }

    fn take(&mut self, _nth: u32, _told: &[u8], args: Args<'_>) -> Vec<u8> {
        if let Some(&word) = self.words.get(self.ends.len())
            && let Some(form) = self.parse(args.at(word))
        {
            self.forms.extend_from_slice(&form);
            self.ends.push(self.forms.len() as u64);
        }
        Vec::new()
    }

    fn end_reading(&mut self, _target: ResultTo, _reply: &mut Reply<'_>, _max: usize) -> OperationStage {
        if self.ends.len() == self.words.len() { OperationStage::Done } else { OperationStage::Reading }
    }

    fn found(&mut self) -> FoundValue {
        let (bytes, numbers) = (std::mem::take(&mut self.forms), std::mem::take(&mut self.ends));
        FoundValue { bytes, numbers, ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        self.forms.capacity() + self.parsing.as_ref().map_or(0, |parsing| parsing.bytes())
    }
}

/// The forms of texts, as far as they were parsed before.
#[derive(Default)]
pub(super) struct Forms {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Forms {
    /// Those that slices have made.
    pub fn take(staged: Staged) -> Forms {
        Forms { bytes: staged.found.bytes, ends: staged.found.numbers }
    }

    /// That of the only text.
    pub fn one(form: Vec<u8>) -> Forms {
        Forms { ends: vec![form.len() as u64], bytes: form }
    }

    /// The form of text `nth`; `None` if it must be parsed.
    fn get(&self, nth: usize) -> Option<&[u8]> {
        let end = usize::try_from(*self.ends.get(nth)?).ok()?;
        let start =
            nth.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        self.bytes.get(start..end).filter(|form| !form.is_empty())
    }

    /// The document of text `nth`, which is `text`, for `place`.
    ///
    /// Errors: it is not JSON.
    pub fn document(&self, nth: usize, text: &[u8], place: &mut Keyed<'_>) -> Result<Vec<u8>, Fault> {
        match self.get(nth) {
            Some(form) => Ok(form.to_vec()),
            None => parse_for(text, place.arena_mut()).map_err(super::fault::invalid),
        }
    }

    /// The node of text `nth`, which is `text`, with the names of `doc`.
    ///
    /// Errors: it is not JSON.
    pub fn node(&self, nth: usize, text: &[u8], doc: Doc<'_>) -> Result<Vec<u8>, Fault> {
        match self.get(nth) {
            Some(form) => Ok(renamed(Doc::new(form), doc)),
            None => super::node_of(text, doc),
        }
    }

    /// Fails if text `nth`, which is `text`, is not JSON.
    pub fn check(&self, nth: usize, text: &[u8]) -> Result<(), Fault> {
        if self.get(nth).is_some() {
            return Ok(());
        }
        parse(text).map_err(super::fault::invalid).map(drop)
    }
}

/// Leaves parsing these words to slices if they are long; returns whether it did. The body runs again with their forms.
pub(super) fn leave(ctx: &mut Ctx<'_>, args: Args<'_>, words: impl Iterator<Item = usize>) -> bool {
    if !ctx.may_slice {
        return false;
    }
    let words: Vec<usize> = words.collect();
    if words.iter().map(|word| args.at(*word).len()).sum::<usize>() < TEXT_BYTES_MIN {
        return false;
    }
    let texts = LongTexts { words, parsing: None, forms: Vec::new(), ends: Vec::new() };
    ctx.find_later(args, Box::new(texts));
    true
}
