//! Those who wait for the same thing: whose turn it is goes by weight.
//!
//! ```text
//!   push: tag = time + SCALE / weight          time 0:   a (100)  tag 10,000
//!   pop:  the least tag; time = that tag                 b (400)  tag  2,500  ◀ first
//! ```
//!
//! As in weighted fair queueing: of two that come together the heavier goes first, and
//! with equal weights the one that came first. `time` moves on with each that goes, so
//! one that waits is passed by a bounded number of later ones, whatever their weight.
//!
//! Q1. Nobody waits for ever: one of weight w is passed at most by those that come
//!     before `time` has moved on by `SCALE / w`. (tested)

use std::collections::BTreeMap;

use giveway_tier::Weight;

/// A tag's distance from its arrival at weight 1.
const SCALE: u64 = 1_000_000;

/// A line of waiting things.
#[derive(Clone, Debug)]
pub struct Line<T> {
    /// By tag, and then by arrival.
    waiting: BTreeMap<(u64, u64), T>,
    time: u64,
    arrivals: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line {
            waiting: BTreeMap::new(),
            time: 0,
            arrivals: 0,
        }
    }
}

impl<T> Line<T> {
    /// Puts one in.
    pub fn push(&mut self, weight: Weight, one: T) {
        self.arrivals += 1;
        let tag = self.time + SCALE / u64::from(weight.get());
        self.waiting.insert((tag, self.arrivals), one);
    }

    /// Takes out the one whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let ((tag, _), one) = self.waiting.pop_first()?;
        // Q1. It never falls: tags are made from it.
        self.time = self.time.max(tag);
        Some(one)
    }

    /// Takes out the first like that, if there is one.
    pub fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let found = self.waiting.iter().find(|(_, one)| is_it(one));
        let key = found.map(|(&key, _)| key)?;
        self.waiting.remove(&key)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All of them, in the order in which they would go.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.values()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn weight(weight: u32) -> Weight {
        Weight::try_from(weight).unwrap()
    }

    #[test]
    fn the_heavier_go_first_and_equals_in_their_order() {
        let mut line = Line::default();
        for (of, name) in [(100, "a"), (400, "b"), (100, "c"), (400, "d")] {
            line.push(weight(of), name);
        }
        assert_eq!(line.remove(|&name| name == "d"), Some("d"));
        assert_eq!(line.iter().copied().collect::<String>(), "bac");
        let order: String = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(order, "bac");
    }

    #[test]
    fn nobody_is_passed_for_ever() {
        let mut line = Line::default();
        line.push(weight(1), 0);
        let mut passed = 0;
        loop {
            // Somebody of the greatest weight always comes.
            line.push(weight(10_000), 1);
            match line.pop() {
                Some(0) => break,
                _ => passed += 1,
            }
        }
        assert_eq!(passed, 9_999, "Q1");
    }
}
