//! The database: its tables; and running transactions in it until they succeed.

use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use giveway_tier::Tier;

use crate::commit::Committed;
use crate::durable::Background;
use crate::epoch::Epochs;
use crate::error::{Error, Result, SchemaError};
use crate::heap::Heap;
use crate::hook::CommitSink;
use crate::preemption;
use crate::schema::{Schema, unknown};
use crate::stats::{OldestSnapshot, Stats};
use crate::surplus::Surplus;
use crate::sync::{Relaxed, SLOTS};
use crate::table::{Table, TableId, TableInner};
use crate::txn::{Transaction, TxnOptions};
use crate::txn_context::TxnContext;

/// After so many conflicts in a row with transactions that are paused below it, on the
/// same worker, a transaction lets what it preempted go on before it tries again.
const YIELD_AFTER: u32 = 3;
/// So many attempts in a row end because they held back too much garbage.
const TOO_OLD_AT_MOST: u32 = 3;
/// Between two attempts at a transaction at most this passes.
const LONGEST_PAUSE: Duration = Duration::from_micros(200);
/// The label of the engine's own long reader, by whose address it is known.
pub(crate) static CHECKPOINT: &str = "checkpoint";

/// What a database may use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes for rows, versions, indexes and what transactions note, as the database
    /// holds them of the system: [`Stats::held_bytes`]. Writes that need more of the
    /// system fail with [`Error::OutOfMemory`]. Deletes do not, nor writes for which
    /// deleted rows have left room, nor opening a database that has more. Looked at every
    /// 64 KiB per worker, near the limit at each write.
    pub memory_limit: u64,
    /// Bytes for what only old snapshots need. Beyond it, what no snapshot needs is
    /// freed; if that is not enough, the transaction that holds back most of the
    /// rest is ended with [`Error::SnapshotTooOld`]; one that has made most of it itself
    /// gets [`Error::TooMuchGarbage`]. Not a checkpoint: under steady
    /// updates none would ever be completed. It is ended at the memory limit. Where
    /// `memory_limit` is lower, it counts too: in its last eighth, whoever holds back
    /// another eighth is ended.
    pub garbage_limit: u64,
}

impl Default for Options {
    /// No limit on memory, 1 GiB of garbage.
    fn default() -> Options {
        Options {
            memory_limit: u64::MAX,
            garbage_limit: 1 << 30,
        }
    }
}

/// A database. Cheap to clone; dropping the last clone closes it.
#[derive(Clone)]
pub struct Database(Arc<Inner>, Option<Arc<Background>>);

pub(crate) struct Inner {
    pub(crate) id: u64,
    pub(crate) epochs: Epochs<TxnContext>,
    shared: Box<[CachePadded<Shared>]>,
    pub(crate) options: Options,
    catalog: Mutex<Catalog>,
    pub(crate) sink: OnceLock<Arc<dyn CommitSink>>,
    /// What slots could not free in time.
    pub(crate) surplus: Surplus,
    pub(crate) heap: Arc<Heap>,
}

/// The tables of a database.
#[derive(Default)]
pub(crate) struct Catalog {
    tables: Vec<Table>,
    /// The number of the next table.
    next: u32,
    /// Tables that were dropped (K4).
    dropped: Vec<Arc<TableInner>>,
}

impl Catalog {
    pub(crate) fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The table with this number.
    pub(crate) fn with_id(&self, id: TableId) -> Option<&Table> {
        self.tables.iter().find(|known| known.id() == id)
    }

    /// The table with this name.
    pub(crate) fn find(&self, name: &str) -> Result<Table> {
        let found = self.tables.iter().find(|table| table.name() == name);
        found.cloned().ok_or_else(|| {
            let mut known: Vec<&str> = self.tables.iter().map(Table::name).collect();
            known.sort_unstable();
            unknown("table", name, "the database", known.into_iter()).into()
        })
    }

    /// Fails if there is a table with this name.
    pub(crate) fn check_new(&self, name: &str) -> Result<()> {
        match self.tables.iter().any(|table| table.name() == name) {
            false => Ok(()),
            true => Err(SchemaError::Twice {
                what: "a table",
                name: name.to_owned(),
            }
            .into()),
        }
    }

    /// The number of the next table.
    pub(crate) fn next_id(&self) -> TableId {
        TableId(self.next)
    }

    /// The highest number that a table ever had.
    pub(crate) fn last_id(&self) -> Option<TableId> {
        self.next.checked_sub(1).map(TableId)
    }

    pub(crate) fn add(&mut self, table: Table) {
        self.next = self.next.max(table.id().0 + 1);
        self.tables.push(table);
    }

    /// Puts a handle in the place of the one of the same table.
    pub(crate) fn replace(&mut self, table: Table) {
        let mut tables = self.tables.iter_mut();
        let known = tables.find(|known| known.id() == table.id());
        *known.expect("the catalog is locked") = table;
    }

    /// Takes the table with this number out; its number counts as used in any case.
    pub(crate) fn remove(&mut self, id: TableId) -> Option<Arc<TableInner>> {
        self.next = self.next.max(id.0 + 1);
        let at = self.tables.iter().position(|table| table.id() == id)?;
        let table = self.tables.swap_remove(at).inner;
        self.dropped.push(Arc::clone(&table));
        Some(table)
    }
}

/// What everybody may see of a slot.
pub(crate) struct Shared {
    /// Who holds it.
    pub(crate) label: AtomicPtr<&'static str>,
    pub(crate) tier: AtomicU8,
    /// The last commit that it saw when it began.
    pub(crate) snapshot: AtomicU64,
    /// Since when, in ms of the coarse clock.
    pub(crate) since_ms: AtomicU64,
    /// The era that the holder who must stop has published, plus one; 0 if none.
    pub(crate) doomed: AtomicU64,
    /// What has happened in it; written by the holder alone.
    pub(crate) allocated: AtomicI64,
    pub(crate) garbage: AtomicI64,
    /// Of `allocated`, what is in the heap's chunks.
    pub(crate) pooled: AtomicI64,
    /// What the slot's lists have.
    pub(crate) lists: AtomicI64,
    pub(crate) commits: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) failed_certifications: AtomicU64,
}

/// Adds to a counter that nobody else writes.
#[inline]
pub(crate) fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

impl Shared {
    fn new() -> CachePadded<Shared> {
        CachePadded::new(Shared {
            label: AtomicPtr::new(std::ptr::null_mut()),
            tier: AtomicU8::new(0),
            snapshot: AtomicU64::new(0),
            since_ms: AtomicU64::new(0),
            doomed: AtomicU64::new(0),
            allocated: AtomicI64::new(0),
            garbage: AtomicI64::new(0),
            pooled: AtomicI64::new(0),
            lists: AtomicI64::new(0),
            commits: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            failed_certifications: AtomicU64::new(0),
        })
    }
}

/// Milliseconds since some time, cheaply.
pub(crate) fn coarse_ms() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists on Linux and the pointer is to a `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

impl Inner {
    /// Frees at the end of a transaction what nobody can see any more. All of it, if the
    /// transaction is of the background or whatever is urgent goes before it; else its
    /// share, and for the eighth of the time that it was open: one that has held back
    /// much was open for long. The caller holds the slot, and nothing that it found with
    /// it.
    #[cold]
    pub(crate) fn tidy(&self, slot: usize, tier: Tier, txn_context: &mut TxnContext) {
        let gives_way = tier == Tier::Background || preemption::gives_way();
        let now_ms = coarse_ms();
        let age_ms = now_ms.saturating_sub(self.shared(slot).since_ms.load(Relaxed));
        let until_ms = if gives_way {
            u64::MAX
        } else {
            now_ms + age_ms / 8
        };
        txn_context.tidy(&self.surplus, &self.epochs, slot, || coarse_ms() < until_ms);
    }

    /// What everybody may see of a slot.
    #[inline]
    pub(crate) fn shared(&self, slot: usize) -> &Shared {
        &self.shared[slot]
    }

    fn all_shared(&self) -> impl Iterator<Item = &Shared> {
        self.shared[..self.epochs.used()]
            .iter()
            .map(|shared| &**shared)
    }

    pub(crate) fn sum(&self, of: impl Fn(&Shared) -> &AtomicI64) -> u64 {
        let sum: i64 = self
            .all_shared()
            .map(|shared| of(shared).load(Relaxed))
            .sum();
        sum.max(0) as u64
    }

    /// The tables, locked. In a region, since the contexts of a worker share the lock
    /// (R1).
    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new table, which nobody knows yet.
    pub(crate) fn new_table(&self, id: TableId, schema: Schema) -> Table {
        Table::new(id, self.id, &self.heap, schema)
    }
}

impl Database {
    /// A database without a log: what is in it ends with it.
    pub fn in_memory(options: Options) -> Database {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let heap = Arc::default();
        let inner = Inner {
            id: NEXT_ID.fetch_add(1, Relaxed),
            epochs: Epochs::new(|| TxnContext::new(&heap)),
            shared: (0..SLOTS).map(|_| Shared::new()).collect(),
            options,
            catalog: Mutex::default(),
            sink: OnceLock::new(),
            surplus: Surplus::default(),
            heap,
        };
        Database(Arc::new(inner), None)
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// What works for the database by itself, until it is closed.
    pub(crate) fn background(&self) -> Option<&Background> {
        self.1.as_deref()
    }

    /// The database with something that works for it. That ends with the last
    /// clone of this handle, and those that it was made from do not count.
    pub(crate) fn with_background(&self, background: Background) -> Database {
        Database(Arc::clone(&self.0), Some(Arc::new(background)))
    }

    /// The table with this name.
    pub fn table(&self, name: &str) -> Result<Table> {
        let _region = preemption::region();
        self.0.catalog().find(name)
    }

    /// The table with this number.
    pub(crate) fn table_with_id(&self, id: TableId) -> Result<Table> {
        let _region = preemption::region();
        let catalog = self.0.catalog();
        catalog.with_id(id).cloned().ok_or_else(|| {
            SchemaError::Unknown {
                what: "table number",
                name: id.0.to_string(),
                within: "the database".to_owned(),
                known: format!("{} tables", catalog.tables().len()),
            }
            .into()
        })
    }

    /// All tables.
    pub fn tables(&self) -> Vec<Table> {
        let _region = preemption::region();
        self.0.catalog().tables().to_vec()
    }

    /// Begins a transaction.
    #[inline]
    pub fn begin(&self, options: TxnOptions) -> Result<Transaction<'_>> {
        Transaction::begin(&self.0, options)
    }

    /// Runs a transaction and commits it; again if it has met a conflict, until
    /// its deadline. The function may run several times. Errors that it returns
    /// abort the transaction, and end the attempts unless they are retryable.
    ///
    /// # Errors
    /// Those of the last attempt; [`Error::Timeout`] at the deadline; and
    /// [`Error::SnapshotTooOld`] after three attempts in a row that were ended so: what takes
    /// so long that others need the memory takes as long the next time.
    pub fn run<T>(
        &self,
        options: TxnOptions,
        body: impl FnMut(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let deadline = options.deadline;
        let (value, committed) = self.run_visible(options, body)?;
        self.0.wait_committed(committed, deadline)?;
        Ok(value)
    }

    /// As [`run`](Self::run), without waiting until it is durable.
    pub(crate) fn run_visible<T>(
        &self,
        options: TxnOptions,
        mut body: impl FnMut(&Transaction<'_>) -> Result<T>,
    ) -> Result<(T, Committed)> {
        let (mut below, mut too_old) = (0, 0);
        let mut pause = Duration::from_nanos(500);
        loop {
            let attempt = self.begin(options.clone()).and_then(|txn| {
                let result = body(&txn)?;
                Ok((result, txn.commit_visible()?))
            });
            let error = match attempt {
                Err(error) if error.is_retryable() => error,
                done => return done,
            };
            too_old = match error {
                Error::SnapshotTooOld => too_old + 1,
                _ => 0,
            };
            if too_old == TOO_OLD_AT_MOST {
                return Err(error);
            }
            if options
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
            {
                return Err(Error::Timeout);
            }
            below = match error {
                Error::Conflict { below: true } => below + 1,
                _ => 0,
            };
            if below >= YIELD_AFTER && preemption::yield_below() {
                below = 0;
                continue;
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                preemption::poll_point();
                std::hint::spin_loop();
            }
            if pause >= LONGEST_PAUSE {
                std::thread::yield_now();
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Frees what no open transaction can find any more. Happens by itself as
    /// transactions end; this is for those who want to see it done.
    pub fn collect(&self) {
        for slot in 0..self.0.epochs.used() {
            if self.0.epochs.try_claim(slot) {
                // SAFETY: the slot is claimed (E2).
                let txn_context = unsafe { &mut *self.0.epochs.private(slot).get() };
                txn_context.collect_all(&self.0.surplus, &self.0.epochs, slot, || true);
                txn_context.pool.trim();
                txn_context.account(self.0.shared(slot));
                self.0.epochs.release(slot);
            }
        }
    }

    /// What is going on.
    pub fn stats(&self) -> Stats {
        let inner = &self.0;
        let total = |of: fn(&Shared) -> &AtomicU64| -> u64 {
            inner
                .all_shared()
                .map(|shared| of(shared).load(Relaxed))
                .sum()
        };
        let used = inner.epochs.used();
        let (_, oldest) = inner.epochs.oldest(None);
        Stats {
            memory_bytes: inner.sum(|shared| &shared.allocated),
            held_bytes: inner.held(),
            garbage_bytes: inner.sum(|shared| &shared.garbage),
            clock: inner.epochs.now(),
            active: (0..used)
                .filter(|&slot| inner.epochs.is_claimed(slot))
                .count(),
            oldest: oldest.map(|(slot, _)| {
                let shared = inner.shared(slot);
                let label = shared.label.load(Relaxed);
                OldestSnapshot {
                    snapshot: shared.snapshot.load(Relaxed),
                    // SAFETY: null, or from a `&'static &'static str`.
                    label: unsafe { label.as_ref() }.copied().unwrap_or_default(),
                    tier: match shared.tier.load(Relaxed) {
                        0 => Tier::Background,
                        _ => Tier::TimeSensitive,
                    },
                    age: Duration::from_millis(
                        coarse_ms().saturating_sub(shared.since_ms.load(Relaxed)),
                    ),
                }
            }),
            commits: total(|shared| &shared.commits),
            aborts: total(|shared| &shared.aborts),
            conflicts: total(|shared| &shared.conflicts),
            failed_certifications: total(|shared| &shared.failed_certifications),
        }
    }
}
