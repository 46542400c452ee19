//! Scans, one leaf at a time.
//!
//! A step copies the entries of one leaf that lie in the range, as they were at
//! one time, and remembers the separator that bounds the leaf. The next step
//! goes down from the root to the leaf behind that separator. Entries that are
//! added or removed behind the scan are not seen, those ahead are: which is all
//! that a scan needs, because visibility is decided per record and what a
//! serializable transaction must not miss is found out when it commits.

use super::{FANOUT, LeafSeen, Separator, Target, Tree};
use crate::key::{KeyBuf, Span};
use crate::thin::Thin;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smaller keys first.
    Forward,
    /// Larger keys first.
    Backward,
}

/// Where a scan is.
pub(crate) struct LeafScan<E> {
    rest: Span,
    direction: Direction,
    /// Entries of the current leaf, in the order of the scan.
    entries: [Option<Thin<E>>; FANOUT],
    next: usize,
    end: usize,
}

impl<E> LeafScan<E> {
    #[inline]
    pub(crate) fn new(span: Span, direction: Direction) -> LeafScan<E> {
        LeafScan {
            rest: span,
            direction,
            entries: [None; FANOUT],
            next: 0,
            end: 0,
        }
    }

    /// Where the rest of a scan begins that goes forward.
    pub(crate) fn rest_from(&self) -> &[u8] {
        self.rest.from.as_slice()
    }

    /// The next entry of the current leaf.
    #[inline]
    pub(crate) fn next_here(&mut self) -> Option<Thin<E>> {
        if self.next == self.end {
            return None;
        }
        let entry = self.entries[self.next];
        self.next += 1;
        entry
    }

    /// Whether the entry that was taken last is the leaf's first.
    #[inline]
    pub(crate) fn is_at_first(&self) -> bool {
        self.next == 1
    }

    /// The entry of the leaf that comes `distance` behind the next one. Like that one, it
    /// was in the tree when the leaf was read (T1).
    #[inline]
    pub(crate) fn ahead(&self, distance: usize) -> Option<Thin<E>> {
        let at = self.next + distance;
        if at < self.end {
            self.entries[at]
        } else {
            None
        }
    }

    /// Reads the next leaf, which may have nothing in the range; false if there
    /// is none. `covered` is told which leaf, and which part of the range is done
    /// with it: from a key up to, without, another, or to the end.
    #[inline]
    pub(crate) fn next_leaf(
        &mut self,
        tree: &Tree<E>,
        covered: impl FnOnce(LeafSeen, &[u8], Option<&[u8]>),
    ) -> bool {
        if self.rest.empty {
            return false;
        }
        let (seen, fence) = match self.direction {
            Direction::Forward => self.read_forward(tree),
            Direction::Backward => self.read_backward(tree),
        };
        // SAFETY: it was in the tree when the step began (T1).
        let fence = fence.map(|fence| unsafe { fence.bytes() });
        let (mut from, mut to) = (self.rest.from.as_slice(), self.rest.end());
        match (self.direction, fence) {
            (_, None) => {}
            (Direction::Forward, Some(fence)) => {
                to = Some(to.map_or(fence, |to| to.min(fence)));
            }
            (Direction::Backward, Some(fence)) => from = from.max(fence),
        }
        covered(seen, from, to);
        self.go_on_at(fence);
        true
    }

    fn read_forward(&mut self, tree: &Tree<E>) -> (LeafSeen, Option<Separator>) {
        let from = Target::new(self.rest.from.as_slice());
        let to = self.rest.end().map(Target::new);
        let (entries, next, end) = (&mut self.entries, &mut self.next, &mut self.end);
        Tree::<E>::retry(|| {
            let mut fence = None;
            let (leaf, seen) = tree.descend(
                |node| node.child_of(&from),
                |node, _, index| {
                    if index < node.count() {
                        fence = Some(node.separator(index));
                    }
                },
            )?;
            let (first, _) = leaf.lower_bound(&from);
            let last = match &to {
                Some(to) => leaf.lower_bound(to).0,
                None => leaf.count(),
            };
            *next = 0;
            *end = 0;
            for index in first..last {
                entries[*end] = Some(leaf.entry(index));
                *end += 1;
            }
            let at = LeafSeen::of(leaf);
            leaf.latch().validate(seen).then_some((at, fence))
        })
    }

    fn read_backward(&mut self, tree: &Tree<E>) -> (LeafSeen, Option<Separator>) {
        let from = Target::new(self.rest.from.as_slice());
        let to = self.rest.end().map(Target::new);
        let (entries, next, end) = (&mut self.entries, &mut self.next, &mut self.end);
        Tree::<E>::retry(|| {
            let mut fence = None;
            let (leaf, seen) = tree.descend(
                // The child that has the largest key below the end.
                |node| match &to {
                    Some(to) => node.lower_bound(to).0,
                    None => node.count(),
                },
                |node, _, index| {
                    if index > 0 {
                        fence = Some(node.separator(index - 1));
                    }
                },
            )?;
            let (first, _) = leaf.lower_bound(&from);
            let last = match &to {
                Some(to) => leaf.lower_bound(to).0,
                None => leaf.count(),
            };
            *next = 0;
            *end = 0;
            for index in (first..last).rev() {
                entries[*end] = Some(leaf.entry(index));
                *end += 1;
            }
            let at = LeafSeen::of(leaf);
            leaf.latch().validate(seen).then_some((at, fence))
        })
    }

    /// The rest of the range lies beyond the separator that bounds the leaf.
    fn go_on_at(&mut self, fence: Option<&[u8]>) {
        let Some(fence) = fence else {
            self.rest.empty = true;
            return;
        };
        let key = KeyBuf::from(fence);
        let rest = &mut self.rest;
        match self.direction {
            Direction::Forward => {
                rest.empty = rest.end().is_some_and(|to| fence >= to);
                rest.from = key;
            }
            Direction::Backward => {
                rest.empty = fence <= rest.from.as_slice();
                rest.to = Some(key);
            }
        }
    }
}
