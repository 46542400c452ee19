//! The limits on memory and on garbage: what a write may take, what is freed for it when
//! memory is short, and who is ended for what is held back.
//!
//! ```text
//!  write ─► 64 KiB since the last look? ─ no ─► goes on
//!             │ yes, or the limit is near
//!             ▼
//!           needs no new chunk, or there is room for one ─────► goes on
//!             │ no            ▲
//!             ▼               │ as long as there is something to free
//!           free garbage, idle slots' lists and chunks, free chunks
//!             │ still no
//!             ▼
//!           OutOfMemory
//! ```
//!
//! What is compared with the limit is what the database holds of the system, so free room
//! in chunks that are partly in use counts as held. A request that such room is enough for
//! takes nothing more of the system, and is therefore not refused. Without that, deleting
//! rows here and there would make no room at all: nearly every chunk keeps a row.
//!
//! A slot that has come near the limit is *tight*. Its requests are looked at one by one, since
//! each may be the one that needs a chunk; those for which its pool has objects cost three
//! comparisons.
//!
//! Who holds back much of the memory, an eighth, is ended when the last eighth is being used,
//! whatever `garbage_limit` says: a limit on memory below it would otherwise let one
//! forgotten reader keep all writers out.
//!
//! Known weakness: a slot that is not tight takes 64 KiB before it looks again, in the
//! worst case a chunk for each size of objects. Lists of transactions, inner nodes and
//! index entries are seen when they have been taken, and so is a row's copy while it is
//! changed.

use crate::database::{CHECKPOINT, Inner};
use crate::error::{Error, Result};
use crate::sync::Relaxed;
use crate::tree;
use crate::txn_context::TxnContext;

/// Memory limits are looked at whenever this much was allocated.
pub(crate) const CHECK_EVERY: usize = 64 << 10;
/// Pieces of garbage that are freed at a time when a limit is found exceeded.
const COLLECT_AT_LIMIT: usize = 1024;
/// From one part in so many below the limit on, every request is looked at. And so much
/// beyond it, free room in chunks may still be used: what was taken without being asked
/// for, like tombstones and lists, may have exceeded it.
const BEYOND: u64 = 16;
/// In the last part of so many of memory, whoever holds back more than such a part is
/// ended. So a reader that goes on notices before writers are refused.
const NEAR: u64 = 8;

/// Memory that a write is about to take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Request {
    /// Bytes of a version and of a record.
    objects: [usize; 2],
    /// Whether a leaf may have to be split for the record.
    leaf: bool,
    /// Bytes that are no pool's.
    beside: usize,
}

impl Request {
    /// A version of so many bytes.
    #[inline]
    pub(crate) fn version(bytes: usize) -> Request {
        Request {
            objects: [bytes, 0],
            ..Request::default()
        }
    }

    /// The same, and a new record of so many bytes.
    #[inline]
    pub(crate) fn record(version: usize, record: usize) -> Request {
        Request {
            objects: [version, record],
            leaf: true,
            beside: 0,
        }
    }

    /// So many bytes of the program's allocator.
    #[inline]
    pub(crate) fn beside(bytes: usize) -> Request {
        Request {
            beside: bytes,
            ..Request::default()
        }
    }

    /// Bytes in all, without the leaf.
    #[inline]
    fn bytes(self) -> usize {
        self.objects[0] + self.objects[1] + self.beside
    }

    /// Sizes of the objects.
    fn sizes(self) -> [usize; 3] {
        let leaf = if self.leaf { tree::leaf_size() } else { 0 };
        [self.objects[0], self.objects[1], leaf]
    }

    /// Whether the slot has all of it.
    fn is_at_hand(self, txn_context: &TxnContext) -> bool {
        self.beside == 0 && self.sizes().iter().all(|&size| txn_context.pool.has(size))
    }

    /// Bytes that the database would hold more for it.
    fn needs(self, txn_context: &TxnContext) -> u64 {
        let objects = self.sizes().map(|size| txn_context.pool.needs(size));
        (objects.iter().sum::<usize>() + self.beside) as u64
    }
}

impl Inner {
    /// Whether the database may take this, of which `txn_context` is told. It is looked
    /// at before it is taken, however large it is.
    #[inline]
    pub(crate) fn may_grow(
        &self,
        slot: usize,
        txn_context: &mut TxnContext,
        request: Request,
    ) -> Result<()> {
        let unchecked = txn_context.unchecked + request.bytes();
        if unchecked < CHECK_EVERY {
            txn_context.unchecked = unchecked;
            return Ok(());
        }
        self.check_limits(slot, txn_context, request)
    }

    /// The same for what the database had when it was written, as it is replayed: frees
    /// what can be freed if memory is short, and refuses nothing. Replay takes memory in
    /// another order and by another slot than the transactions did, so at the limit the
    /// same rows may need some chunks more; and the log of a program that deletes rows
    /// because memory is short begins with the rows.
    pub(crate) fn make_room(&self, slot: usize, txn_context: &mut TxnContext, request: Request) {
        if self.may_grow(slot, txn_context, request).is_err() {
            // Looked at again when as much was allocated.
            txn_context.unchecked = 0;
        }
    }

    #[cold]
    pub(crate) fn check_limits(
        &self,
        slot: usize,
        txn_context: &mut TxnContext,
        request: Request,
    ) -> Result<()> {
        if txn_context.tight && request.is_at_hand(txn_context) {
            return Ok(());
        }
        txn_context.account(self.shared(slot));
        if self.garbage() > self.options.garbage_limit {
            self.limit_garbage(slot, txn_context)?;
        }
        let limit = self.options.memory_limit;
        if self.held() > limit - limit / NEAR && self.is_much_held_back() {
            let is_more = self.free_garbage(slot, txn_context);
            if !is_more && self.is_much_held_back() {
                self.end_holder(slot, false);
            }
        }
        while !self.has_room(txn_context, request) && self.reclaim(slot, txn_context) {}
        if !self.has_room(txn_context, request) {
            self.end_holder(slot, true);
            return Err(Error::OutOfMemory {
                used: self.held(),
                limit,
                garbage: self.garbage(),
            });
        }
        let margin = (limit / BEYOND).max(4 * CHECK_EVERY as u64);
        txn_context.tight = self.held() + request.needs(txn_context) + margin > limit;
        txn_context.unchecked = if txn_context.tight { CHECK_EVERY } else { 0 };
        Ok(())
    }

    /// Whether old transactions keep much of the memory from writers. Only after garbage
    /// was freed is what is left held back.
    fn is_much_held_back(&self) -> bool {
        self.surplus.bytes() > self.options.memory_limit / NEAR
    }

    /// Ends whoever holds back so much that others find no memory, unless it is the caller;
    /// a checkpoint only if writers are refused, since under steady updates none would
    /// ever be completed, but then for anything that it holds back.
    fn end_holder(&self, slot: usize, refused: bool) {
        let Some((holder, published)) = self.holder() else {
            return;
        };
        let ends = match self.is_checkpoint(holder) {
            true => refused,
            false => self.is_much_held_back(),
        };
        if ends && holder != slot {
            self.doom(holder, published);
        }
    }

    /// Whether what the database would hold with this is within the limit, or would be no
    /// more than it is now.
    fn has_room(&self, txn_context: &TxnContext, request: Request) -> bool {
        let (held, limit) = (self.held(), self.options.memory_limit);
        match request.needs(txn_context) {
            0 => held <= limit.saturating_add(limit / BEYOND),
            more => held + more <= limit,
        }
    }

    fn garbage(&self) -> u64 {
        self.sum(|shared| &shared.garbage)
    }

    /// There is too much garbage: frees what can be freed, and if that is all,
    /// ends who holds the rest back. The caller has an open transaction.
    ///
    /// # Errors
    /// If most of it is the caller's own.
    fn limit_garbage(&self, slot: usize, txn_context: &mut TxnContext) -> Result<()> {
        let is_more = self.free_garbage(slot, txn_context);
        let (garbage, limit) = (self.garbage(), self.options.garbage_limit);
        if is_more || garbage <= limit {
            return Ok(());
        }
        // What is left of the surplus waits for the oldest transaction (X1). What
        // transactions keep until their end is nobody else's to give up.
        let own = txn_context.own_garbage() as u64;
        if own > garbage / 2 {
            return Err(Error::TooMuchGarbage { own, limit });
        }
        if let Some((holder, published)) = self.holder()
            && !self.is_checkpoint(holder)
        {
            self.doom(holder, published);
        }
        Ok(())
    }

    /// Who holds back something of the surplus, the oldest if there are several: its
    /// slot, and the era that it has published. Who began after all of it was retired
    /// holds nothing back, and is not named.
    fn holder(&self) -> Option<(usize, u64)> {
        let first = self.surplus.first()?;
        let (_, oldest) = self.epochs.oldest(None);
        oldest.filter(|&(_, published)| published <= first)
    }

    /// Ends the transaction in this slot that has published this era.
    fn doom(&self, slot: usize, published: u64) {
        self.shared(slot).doomed.store(published + 1, Relaxed);
    }

    /// Whether a checkpoint is being written from this slot's snapshot.
    fn is_checkpoint(&self, slot: usize) -> bool {
        let label = self.shared(slot).label.load(Relaxed);
        std::ptr::eq(label, &raw const CHECKPOINT)
    }

    /// Bytes that the database holds of the system.
    pub(crate) fn held(&self) -> u64 {
        // What is not in the heap's chunks has memory of its own.
        let beside =
            self.sum(|shared| &shared.allocated) as i64 - self.sum(|shared| &shared.pooled) as i64;
        let lists = self.sum(|shared| &shared.lists) + self.surplus.lists();
        self.heap.held() + beside.max(0) as u64 + lists
    }

    /// Memory is short: frees garbage, and gives the system back what slots and the heap
    /// keep; whether there may be more to free. The caller has an open transaction.
    fn reclaim(&self, slot: usize, txn_context: &mut TxnContext) -> bool {
        let is_more = self.free_garbage(slot, txn_context);
        self.each_idle(TxnContext::shrink);
        txn_context.shrink();
        self.heap.cool();
        txn_context.account(self.shared(slot));
        is_more
    }

    /// Frees some of what no transaction can find any more, whoever has retired it;
    /// whether there may be more. The caller has an open transaction.
    fn free_garbage(&self, slot: usize, txn_context: &mut TxnContext) -> bool {
        txn_context.leave(&self.surplus);
        self.each_idle(|idle| idle.leave(&self.surplus));
        let freed =
            txn_context.collect_surplus(&self.surplus, &self.epochs, None, COLLECT_AT_LIMIT);
        txn_context.pass_on(&self.surplus, &self.epochs);
        txn_context.account(self.shared(slot));
        freed == COLLECT_AT_LIMIT
    }

    /// Does something with each slot that has no transaction.
    fn each_idle(&self, work: impl Fn(&mut TxnContext)) {
        for slot in 0..self.epochs.used() {
            if self.epochs.try_claim(slot) {
                // SAFETY: the slot is claimed (E2).
                let txn_context = unsafe { &mut *self.epochs.private(slot).get() };
                work(txn_context);
                txn_context.account(self.shared(slot));
                self.epochs.release(slot);
            }
        }
    }
}
