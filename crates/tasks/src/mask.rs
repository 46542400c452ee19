//! Sets of slots or workers as bits: one that a thread has to itself, and one
//! through which other threads tell it of changes (Section 2.3, Figure 4).
//!
//! Update masks. Any thread pushes a bit; the owner pulls all of them, and each
//! pushed bit is pulled exactly once by a pull that begins after the push, or
//! by an earlier one.
//!
//! M1. A push is a `fetch_or` with release order, a pull an exchange with zero
//!     with acquire order: what was written before the push is seen after the
//!     pull. (not asserted: the order shows only in `models`)
//! M2. The words of a mask are independent. A bit that is pushed into a word that
//!     a pull has passed is left to the next pull; no bit is lost.
//!     (not asserted: nothing counts the pushes; `models` does)
//! M3. A pull only reads words that are zero, so while nothing changes the
//!     owner's copy of the cache line stays valid.
//!     (not asserted: it concerns cost, not results)

use crate::sync::{Acquire, AtomicU64, Relaxed, Release};

const BITS: usize = u64::BITS as usize;

/// Calls `each` with the number of every bit of a word.
fn each_bit(index: usize, mut word: u64, mut each: impl FnMut(usize)) {
    while word != 0 {
        each(index * BITS + word.trailing_zeros() as usize);
        word &= word - 1;
    }
}

/// A set that one thread has to itself.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    words: Box<[u64]>,
}

impl Mask {
    /// The empty set of numbers below `size`.
    pub(crate) fn new(size: usize) -> Mask {
        Mask {
            words: vec![0; size.div_ceil(BITS)].into(),
        }
    }

    pub(crate) fn insert(&mut self, bit: usize) {
        self.words[bit / BITS] |= 1 << (bit % BITS);
    }

    pub(crate) fn remove(&mut self, bit: usize) {
        self.words[bit / BITS] &= !(1 << (bit % BITS));
    }

    pub(crate) fn contains(&self, bit: usize) -> bool {
        self.words[bit / BITS] & (1 << (bit % BITS)) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// The lowest number, taken out.
    pub(crate) fn take_first(&mut self) -> Option<usize> {
        let index = self.words.iter().position(|&word| word != 0)?;
        let bit = index * BITS + self.words[index].trailing_zeros() as usize;
        self.remove(bit);
        Some(bit)
    }

    /// Calls `each` with every number, the lowest first.
    #[inline]
    pub(crate) fn for_each(&self, mut each: impl FnMut(usize)) {
        for (index, &word) in self.words.iter().enumerate() {
            each_bit(index, word, &mut each);
        }
    }
}

/// A set that others add to, and its owner empties.
#[derive(Debug)]
pub(crate) struct UpdateMask {
    words: Box<[AtomicU64]>,
}

impl UpdateMask {
    /// The empty set of numbers below `size`.
    pub(crate) fn new(size: usize) -> UpdateMask {
        UpdateMask {
            words: (0..size.div_ceil(BITS))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// Adds a number: M1.
    pub(crate) fn push(&self, bit: usize) {
        self.words[bit / BITS].fetch_or(1 << (bit % BITS), Release);
    }

    /// Takes all numbers out: M1, M2, M3.
    pub(crate) fn pull(&self, mut each: impl FnMut(usize)) {
        for (index, word) in self.words.iter().enumerate() {
            if word.load(Relaxed) != 0 {
                each_bit(index, word.swap(0, Acquire), &mut each);
            }
        }
    }

    /// Whether there is nothing to pull. The answer may be out of date.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.load(Relaxed) == 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_a_word_are_kept_apart() {
        let mut mask = Mask::new(130);
        for bit in [129, 0, 64, 63] {
            mask.insert(bit);
        }
        let mut seen = Vec::new();
        mask.for_each(|bit| seen.push(bit));
        assert_eq!(seen, [0, 63, 64, 129]);
        assert_eq!(mask.len(), 4);
        mask.remove(64);
        assert!(!mask.contains(64) && mask.contains(63));
        assert_eq!(mask.take_first(), Some(0));
        assert_eq!(mask.take_first(), Some(63));
        assert_eq!(mask.take_first(), Some(129));
        assert!(mask.is_empty());
    }

    #[test]
    fn a_pull_takes_what_was_pushed_once() {
        let mask = UpdateMask::new(128);
        for bit in [3, 127, 3] {
            mask.push(bit);
        }
        let mut seen = Vec::new();
        mask.pull(|bit| seen.push(bit));
        assert_eq!(seen, [3, 127]);
        assert!(mask.is_empty());
        mask.pull(|bit| panic!("{bit} was pulled twice"));
    }
}
