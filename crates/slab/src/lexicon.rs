//! Words that many blocks of an arena have in common, each kept once; blocks refer to them by number.
//!
//! Called by documents, whose members have the same names in most documents of a shard. A number means the same word as
//! long as the arena has one of these blocks: words are added, and neither changed nor removed one by one. So a block
//! needs no count of each word that it refers to. The last of these blocks takes the words with it.

/// A word is added when it has occurred in so many texts, so that names which occur once stay out.
const TEXTS_MIN: u32 = 8;
const TEXTS_LAST: u32 = TEXTS_MIN - 1;
/// Words that are counted before they are added; some share a counter.
const COUNTERS: usize = 512;
/// A counter, from its low bits on: the number of texts, the latest of them, and which word.
const COUNT_MASK: u32 = 0xf;
const TEXT_MASK: u32 = 0xfff0;
const TEXT_ONE: u32 = 0x10;
const WORD_MASK: u32 = 0xffff_0000;
/// Most words, and bytes of them all.
const WORDS_MAX: usize = 4096;
const BYTES_MAX: usize = 64 << 10;
/// Shortest and longest word, bytes.
const WORD_BYTES_MIN: usize = 2;
const WORD_BYTES_MAX: usize = 64;
/// Places of the smallest table.
const PLACES_MIN: usize = 64;

/// The words of an arena.
#[derive(Debug, Default)]
pub struct Lexicon {
    // Blocks that may refer to words.
    pub(crate) blocks: usize,
    // One behind the other, and the bounds of each: a number more than there are words, or none.
    texts: Vec<u8>,
    bounds: Vec<u32>,
    hashes: Vec<u64>,
    // By hash: a number and one, 0 if free. A power of two of them, of which at most half are taken.
    places: Vec<u16>,
    // For words that have not been added, and the present text as they have it.
    counters: Vec<u32>,
    text: u32,
}

impl Lexicon {
    /// Number of words: their numbers are below.
    #[inline]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns true if there is no word.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.texts.capacity()
            + self.hashes.capacity() * 8
            + (self.bounds.capacity() + self.counters.capacity()) * 4
            + self.places.capacity() * 2
            + size_of::<Lexicon>()
    }

    /// The word with a number; empty if there is none.
    #[inline]
    pub fn word(&self, number: u16) -> &[u8] {
        match self.bounds.get(usize::from(number)..).and_then(<[u32]>::first_chunk) {
            Some(&[start, end]) => self.texts.get(start as usize..end as usize).unwrap_or_default(),
            None => &[],
        }
    }

    /// Returns false if no such word is ever added.
    #[inline]
    pub fn may_have(word: &[u8]) -> bool {
        (WORD_BYTES_MIN..=WORD_BYTES_MAX).contains(&word.len())
    }

    /// The number of a word. Equal words have equal hashes.
    #[inline]
    pub fn number(&self, hash: u64, word: &[u8]) -> Option<u16> {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        loop {
            let number = self.places.get(at)?.checked_sub(1)?;
            if self.hashes.get(usize::from(number)) == Some(&hash) && self.word(number) == word {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Begins a text: until the next one, a word counts once.
    pub fn begin_text(&mut self) {
        self.text = (self.text + TEXT_ONE) & TEXT_MASK;
    }

    /// Counts a word that has no number, and adds it once enough texts have it.
    #[inline(never)]
    pub fn count(&mut self, hash: u64, word: &[u8]) {
        if !Lexicon::may_have(word) || self.len() >= WORDS_MAX || self.texts.len() + word.len() > BYTES_MAX {
            return;
        }
        if self.counters.is_empty() {
            self.counters = vec![0; COUNTERS];
        }
        // One of two places, so that hardly two that are frequent share a counter. A word that finds both taken takes one
        // off, so that rare words do not add up.
        let own = (hash >> 32) as u32 & WORD_MASK;
        let places = [hash as usize % COUNTERS, (hash >> 16) as usize % COUNTERS];
        let is_own = |place: &usize| self.counters[*place] & WORD_MASK == own;
        let least = places.into_iter().min_by_key(|place| self.counters[*place] & COUNT_MASK).unwrap_or(0);
        let place = places.into_iter().find(is_own).unwrap_or(least);
        let old = self.counters[place];
        self.counters[place] = match (old & COUNT_MASK, old & WORD_MASK == own) {
            (0, _) => own | self.text | 1,
            (_, false) => old - 1,
            _ if old & TEXT_MASK == self.text => old,
            (TEXTS_LAST, true) => {
                self.add(hash, word);
                0
            }
            (count, true) => own | self.text | (count + 1),
        };
    }

    fn add(&mut self, hash: u64, word: &[u8]) {
        if self.bounds.is_empty() {
            self.bounds.push(0);
        }
        self.texts.extend_from_slice(word);
        self.bounds.push(self.texts.len() as u32);
        self.hashes.push(hash);
        if self.hashes.len() * 2 <= self.places.len() {
            return self.place(self.hashes.len() - 1);
        }
        self.places = vec![0; (self.places.len() * 2).max(PLACES_MIN)];
        (0..self.hashes.len()).for_each(|number| self.place(number));
    }

    /// Puts a number into the table.
    fn place(&mut self, number: usize) {
        let mask = self.places.len() - 1;
        let mut at = self.hashes[number] as usize & mask;
        while self.places[at] != 0 {
            at = (at + 1) & mask;
        }
        self.places[at] = number as u16 + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(word: &[u8]) -> u64 {
        let mixed = |hash: u64| (hash ^ hash >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed(word.iter().fold(7u64, |hash, byte| mixed(hash ^ u64::from(*byte))))
    }

    /// Words keep their numbers, and rare ones get none.
    #[test]
    fn words_of_many_texts_have_numbers_for_good() {
        let mut lexicon = Lexicon::default();
        let mut known: Vec<Vec<u8>> = Vec::new();
        for text in 0..4000u32 {
            lexicon.begin_text();
            for n in (0..10).map(|n| (text * 7 + n * 31) % 300) {
                let word = format!("word {n}").into_bytes();
                match lexicon.number(hash(&word), &word) {
                    Some(number) => assert_eq!(lexicon.word(number), word),
                    None => lexicon.count(hash(&word), &word),
                }
            }
            for n in 0..5 {
                // However often within one text.
                let rare = format!("rare {text} {n}").into_bytes();
                (0..20).for_each(|_| lexicon.count(hash(&rare), &rare));
                assert_eq!(lexicon.number(hash(&rare), &rare), None);
            }
            known.extend((known.len()..lexicon.len()).map(|number| lexicon.word(number as u16).to_vec()));
        }
        assert!(known.len() > 250 && known.iter().all(|word| word.starts_with(b"word")), "{}", known.len());
        for (number, word) in known.iter().enumerate() {
            assert_eq!(lexicon.number(hash(word), word), Some(number as u16));
        }
        assert_eq!(lexicon.word(known.len() as u16), b"");
    }

    #[test]
    fn no_more_than_the_most_words_are_kept() {
        let add = |lexicon: &mut Lexicon, word: &[u8]| {
            for _ in 0..TEXTS_MIN {
                lexicon.begin_text();
                lexicon.count(hash(word), word);
            }
            lexicon.number(hash(word), word)
        };
        let mut lexicon = Lexicon::default();
        for n in 0..WORDS_MAX + 100 {
            let number = add(&mut lexicon, format!("{n:04}").as_bytes());
            assert_eq!(number.map(usize::from), Some(n).filter(|n| *n < WORDS_MAX));
        }
        let mut lexicon = Lexicon::default();
        for n in 0..2 * BYTES_MAX / WORD_BYTES_MAX {
            let number = add(&mut lexicon, format!("{n:064}").as_bytes());
            assert_eq!(number.is_some(), n < BYTES_MAX / WORD_BYTES_MAX);
        }
        assert!(lexicon.bytes() < 160 << 10, "{}", lexicon.bytes());
        for word in [&b"x"[..], &[b'x'; WORD_BYTES_MAX + 1], b""] {
            let mut lexicon = Lexicon::default();
            assert_eq!(add(&mut lexicon, word), None);
            assert!(lexicon.is_empty() && lexicon.bytes() == size_of::<Lexicon>());
        }
    }
}
