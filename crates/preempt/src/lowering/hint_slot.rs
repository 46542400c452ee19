//! Lowering by a hint to UFS.
//!
//! The worker's thread has a slot of the table that it shares with the scheduler,
//! until it ends: a slot is obeyed for the thread that claimed it. Submitters use
//! the slot's remote handle, which does nothing once the thread has ended.
//!
//! Known weakness: a pool that was built before UFS was loaded gives no hints.

use std::cell::RefCell;

use giveway_hints::slot::{Remote, Slot, Table};
use giveway_tier::{Tier, Weight};

use super::Lowering;

thread_local! {
    /// The calling thread's slot, given back when the thread ends.
    static SLOT: RefCell<Option<Slot>> = const { RefCell::new(None) };
}

/// Puts its worker's thread into the background tier while the worker is lowered,
/// so that UFS lets threads that somebody waits for pass. Raised, the thread is in
/// its cgroup's tier, with the default weight.
///
/// ```
/// use std::time::Duration;
/// use giveway_preempt::{HintSlot, HintTable, Pool, Tier};
///
/// // Without UFS there is no table, and lowering does nothing.
/// let table = HintTable::open(None).ok();
/// let lower = move |_| Box::new(HintSlot::attach(table.as_ref())) as _;
/// let pool = Pool::builder()
///     .workers(1)
///     .lowering(Duration::from_millis(10), lower)
///     .build()?;
/// let vacuum = pool.submit(Tier::Background, || 6 * 7).unwrap();
/// assert_eq!(vacuum.wait(), Ok(42));
/// # Ok::<(), giveway_preempt::BuildError>(())
/// ```
#[derive(Debug)]
pub struct HintSlot(Option<Remote>);

impl HintSlot {
    /// Claims a slot of this table for the calling thread. Without a table, or
    /// where it is full, lowering will do nothing.
    pub fn attach(table: Option<&Table>) -> HintSlot {
        let slot = SLOT.with(|own| {
            // First, since a thread that claims again gets the same one.
            *own.borrow_mut() = None;
            *own.borrow_mut() = table.and_then(Table::attach);
            own.borrow().as_ref().map(Slot::remote)
        });
        HintSlot(slot)
    }

    /// Whether there is a slot to write to.
    pub fn is_attached(&self) -> bool {
        self.0.is_some()
    }
}

impl Lowering for HintSlot {
    fn lower(&self, weight: Weight) {
        if let Some(slot) = &self.0 {
            slot.set(Tier::Background, weight);
        }
    }

    fn raise(&self) {
        if let Some(slot) = &self.0 {
            slot.reset();
        }
    }
}
