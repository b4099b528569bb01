//! Strings too long for a pack: an arena block of their own, or past 32 KiB a heap allocation.
//!
//! Called by the entry codec's owners (tables, lists, sorted sets, streams). A root holds one `Spill`; it costs 8
//! bytes until the first string past 32 KiB arrives. The stepwise readers of a tree are noted here too, so that roots
//! need no other pointer.

use crate::tree::window::Windows;

/// The heap-allocated strings of one collection, by small index.
#[derive(Debug, Default)]
pub struct Spill(Option<Box<Boxes>>);

#[derive(Debug, Default)]
struct Boxes {
    strings: Vec<Box<[u8]>>,
    // Indexes of `strings` that hold nothing; each holds the empty string meanwhile.
    vacant: Vec<u32>,
    // Sum of the lengths of `strings`.
    bytes: usize,
    windows: Windows,
}

impl Spill {
    /// No strings, no allocation.
    pub const fn new() -> Spill {
        Spill(None)
    }

    /// Returns true if it holds no allocation.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Bytes of the strings held, without the few bytes per string that name them.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |b| b.bytes)
    }

    /// The string of index `at`; empty when the index was never given out.
    pub fn get(&self, at: u32) -> &[u8] {
        self.0.as_ref().and_then(|b| b.strings.get(at as usize)).map_or(&[], |s| s)
    }

    /// Keeps a copy of `text`; returns its index.
    pub fn put(&mut self, text: &[u8]) -> u32 {
        let boxes = self.0.get_or_insert_default();
        boxes.bytes += text.len();
        if let Some(at) = boxes.vacant.pop() {
            boxes.strings[at as usize] = text.into();
            return at;
        }
        boxes.strings.push(text.into());
        (boxes.strings.len() - 1) as u32
    }

    /// Removes and returns the string of index `at`. Frees the table itself with its last string.
    pub fn remove(&mut self, at: u32) -> Box<[u8]> {
        let Some(boxes) = self.0.as_mut() else { return Box::default() };
        let Some(string) = boxes.strings.get_mut(at as usize) else { return Box::default() };
        let string = std::mem::take(string);
        boxes.bytes -= string.len();
        boxes.vacant.push(at);
        self.settle();
        string
    }

    /// Returns true if the collection has stepwise readers. Cost: a test of a null pointer while nothing is held.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.0.as_ref().is_some_and(|boxes| !boxes.windows.is_none())
    }

    /// The stepwise readers of the collection.
    pub(crate) fn windows_mut(&mut self) -> &mut Windows {
        &mut self.0.get_or_insert_default().windows
    }

    /// Gives the table back when nothing is left in it.
    pub(crate) fn settle(&mut self) {
        let is_idle = |boxes: &Boxes| boxes.vacant.len() == boxes.strings.len() && boxes.windows.is_none();
        if self.0.as_ref().is_some_and(|boxes| is_idle(boxes)) {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_reused_and_bytes_counted() {
        let mut spill = Spill::new();
        let (a, b) = (spill.put(&[1; 10]), spill.put(&[2; 20]));
        assert_eq!((spill.get(a).len(), spill.get(b).len(), spill.bytes()), (10, 20, 30));
        spill.remove(a);
        assert_eq!(spill.put(&[3; 5]), a);
        assert_eq!(spill.bytes(), 25);
        spill.remove(b);
        spill.remove(a);
        assert_eq!(spill.bytes(), 0);
        assert!(spill.0.is_none());
    }
}
