//! Where a serializable transaction has looked for rows: what keeps phantoms out.
//!
//! A look is a leaf with its counter of additions, and the range of keys that was
//! read from it. When the transaction commits, an unchanged counter says that
//! there is nothing new. Otherwise, because of the transaction's own additions
//! for instance, or of others elsewhere in the leaf, the range is looked through
//! again: no record in it may have another version just before the commit than
//! at the snapshot.
//!
//! Bounds of ranges lie one after the other in one buffer, so that a look costs
//! a few words and its keys.

use crate::fate::Fate;
use crate::key::Span;
use crate::record::{self, Record};
use crate::table::{IndexInner, TableInner};
use crate::tree::{Direction, LeafScan, LeafSeen, Tree};
use crate::workspace::LIST_KEPT;

/// Which index was looked at. Tables live as long as their database.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Primary(*const TableInner),
    Index(*const IndexInner),
}

struct Look {
    leaf: LeafSeen,
    place: Place,
    /// Where in the buffer the bounds begin.
    from: usize,
    /// Where the upper one begins.
    to: usize,
    /// Where it ends; `None` if there is none.
    end: Option<usize>,
}

/// All looks of a transaction.
#[derive(Default)]
pub(crate) struct Looks {
    list: Vec<Look>,
    bounds: Vec<u8>,
}

/// The transaction that asks, and between which times.
#[derive(Clone, Copy)]
pub(crate) struct Between {
    pub(crate) snapshot: u64,
    /// The last timestamp before its own.
    pub(crate) limit: u64,
    pub(crate) mine: *const Fate,
}

impl Between {
    /// Whether nobody else has committed another version of the record.
    pub(crate) fn is_same(&self, record: Record) -> bool {
        record::view(record, self.limit, self.mine, false)
            == record::view(record, self.snapshot, self.mine, false)
    }
}

impl Looks {
    /// Bytes of memory that it has.
    pub(crate) fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<Look>() + self.bounds.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.list.shrink_to(LIST_KEPT);
        self.bounds.clear();
        self.bounds.shrink_to(LIST_KEPT);
    }

    /// Remembers that the part of the leaf from a key up to another was read.
    pub(crate) fn push(&mut self, place: Place, leaf: LeafSeen, from: &[u8], to: Option<&[u8]>) {
        let start = self.bounds.len();
        self.bounds.extend_from_slice(from);
        let middle = self.bounds.len();
        let end = to.map(|to| {
            self.bounds.extend_from_slice(to);
            self.bounds.len()
        });
        self.list.push(Look {
            leaf,
            place,
            from: start,
            to: middle,
            end,
        });
    }

    /// Remembers that this key was looked for and not found.
    pub(crate) fn push_key(&mut self, place: Place, leaf: LeafSeen, key: &[u8]) {
        self.push(place, leaf, key, None);
        // The next key after it.
        self.bounds.extend_from_slice(key);
        self.bounds.push(0);
        let last = self.list.last_mut().expect("just pushed");
        last.end = Some(self.bounds.len());
    }

    /// Whether all that was looked for would be found again, and nothing else.
    pub(crate) fn are_same(&self, between: Between) -> bool {
        let unchanged = |look: &Look| look.leaf.is_unchanged() || self.again(look, between);
        self.list.iter().all(unchanged)
    }

    #[cold]
    fn again(&self, look: &Look, between: Between) -> bool {
        let to = look.end.map(|end| &self.bounds[look.to..end]);
        let span = Span::new(&self.bounds[look.from..look.to], to);
        match look.place {
            Place::Primary(table) => {
                // SAFETY: tables live as long as their database.
                let tree = unsafe { &(*table).primary };
                all(tree, span, |record| between.is_same(record))
            }
            Place::Index(index) => {
                // SAFETY: as above.
                let tree = unsafe { &(*index).tree };
                all(tree, span, |entry| {
                    // SAFETY: found while the transaction is open (T1).
                    between.is_same(unsafe { entry.head() }.record)
                })
            }
        }
    }
}

/// Whether something holds for all entries of a range.
fn all<E>(tree: &Tree<E>, span: Span, holds: impl Fn(crate::thin::Thin<E>) -> bool) -> bool {
    let mut scan = LeafScan::new(span, Direction::Forward);
    while scan.next_leaf(tree, |_, _, _| {}) {
        while let Some(entry) = scan.next_here() {
            if !holds(entry) {
                return false;
            }
        }
    }
    true
}
