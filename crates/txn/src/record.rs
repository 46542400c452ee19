//! Records and their versions.
//!
//! ```text
//!  primary index ─► Record ─► Version ─► Version ─► …      newest first
//!                     ▲       begin: ts or transaction
//!  other index ─► IndexEntry  bytes: the row, or none (tombstone)
//! ```
//!
//! A record is a key and a pointer to its newest version: the indirection that
//! lets indexes stay as they are when rows change. (ERMIA's arrays of object ids
//! are the same indirection through a number. Records here do not move, so their
//! address serves, at one cache miss less.)
//!
//! An index entry stands for a *span*: a run of versions of one record that have
//! the entry's key. Several spans of a record with the same key share an entry.
//! Its note counts them, and it is removed with the last one.
//!
//! Invariants:
//!
//! - **V1** `head` is changed by compare-and-swap from a committed version to the
//!   writer's own, and then only by that writer until it has committed or taken
//!   its version back: first updater wins. (Asserted in `push`, `replace_own` and
//!   `kill_own`.)
//! - **V2** A version's `next` never changes, and is the version that was the
//!   newest committed one when the writer put its first version above it. (Asserted
//!   in `push`; that it does not change, by its type.)
//! - **V3** `DEAD` as head is final: the record has left, or is about to leave,
//!   the index. It gets there from a tombstone that no open snapshot is older
//!   than, or from an insertion that was taken back. (Asserted in `kill` and
//!   `kill_own`.)
//! - **V4** A record's note counts holds on it, but for its highest bit (K6). One for every tombstone and every
//!   end of a span that was retired and not processed yet: so no index entry
//!   leads to a record that is gone. And one for a writer that puts a version
//!   above a tombstone, from before it does until it has committed or aborted;
//!   then the hold goes, or passes to the tombstone that it left. A thread that
//!   has seen a tombstone as head, and then gives up the last hold, may make the
//!   record dead by a compare-and-swap from that tombstone. That fails if another
//!   writer has put its version there since, under a hold of its own: an abort
//!   leaves a copy of the tombstone, not the same one. So a record outlives all
//!   that point to it. (Asserted in `unhold` and
//!   `Retired::free`.)

use std::ptr;
use std::sync::atomic::AtomicPtr;

use crate::heap::Pool;
use crate::preemption::Writer;
use crate::sync::{Acquire, Relaxed, Release};
use crate::thin::{self, Thick, Thin};
use crate::txn_status::{Outcome, TxnStatus};

/// A version: its row behind it, its place in the transaction's list of writes,
/// and whether it is a tombstone, in the note.
pub(crate) type Version = Thin<VersionHead>;
/// A record: its primary key behind it.
pub(crate) type Record = Thin<RecordHead>;
/// A secondary index entry: index columns and primary key behind it.
pub(crate) type IndexEntry = Thin<EntryHead>;

pub(crate) struct VersionHead {
    /// A timestamp, shifted left by one; or a `TxnStatus`, with the lowest bit set.
    begin: AtomicPtr<TxnStatus>,
    /// The version before.
    next: *mut Thick<VersionHead>,
}

pub(crate) struct RecordHead {
    head: AtomicPtr<Thick<VersionHead>>,
}

pub(crate) struct EntryHead {
    pub(crate) record: Record,
}

// SAFETY: entries are constant but for their notes, and the record that one
// points to is as shared as the entry.
unsafe impl Sync for EntryHead {}

/// The head of a record that is no more.
const DEAD: *mut Thick<VersionHead> = ptr::without_provenance_mut(align_of::<Thick<VersionHead>>());
/// In a version's note: there is no row.
const TOMBSTONE: u32 = 1 << 31;
/// In a record's note: what it was when an index began is in the index (K6).
const COVERED: u32 = 1 << 31;

/// Since when a version counts.
pub(crate) enum Begin<'a> {
    /// Since a commit.
    Committed(u64),
    /// Depends on the status of a transaction.
    By(&'a TxnStatus),
}

/// What a record's head is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Head {
    /// The record is no more: look the key up again.
    Dead,
    /// The newest version.
    Version(Version),
}

// The methods below dereference objects that the caller's transaction found in
// the tree or in a chain while open, so they are alive (E1, E3).

/// Makes a version of a running transaction; without bytes, a tombstone.
#[inline]
pub(crate) fn new_version(
    pool: &mut Pool,
    status: *mut TxnStatus,
    next: Option<Version>,
    index: usize,
    row: Option<&[u8]>,
) -> Version {
    let head = VersionHead {
        begin: AtomicPtr::new(status.map_addr(|address| address | 1)),
        next: next.map_or(ptr::null_mut(), Thin::as_ptr),
    };
    let index = u32::try_from(index).ok().filter(|&index| index < TOMBSTONE);
    let index = index.expect("a transaction writes at most 2^31 rows");
    let flag = if row.is_none() { TOMBSTONE } else { 0 };
    Thin::new_in(pool, head, index | flag, row.unwrap_or_default())
}

/// Makes a version that committed at this time.
pub(crate) fn committed_version(
    pool: &mut Pool,
    ts: u64,
    next: Option<Version>,
    row: Option<&[u8]>,
) -> Version {
    let version = new_version(pool, ptr::null_mut(), next, 0, row);
    commit_version(version, ts);
    version
}

/// Another tombstone that committed when this one did.
pub(crate) fn copy_tombstone(pool: &mut Pool, tombstone: Version) -> Version {
    let Outcome::Committed(ts) = committed_at(tombstone) else {
        unreachable!("it was written over, so it had committed");
    };
    committed_version(pool, ts, next_of(tombstone), None)
}

/// Whether a version was committed before this time. For assertions.
pub(crate) fn is_committed_before(version: Version, ts: u64) -> bool {
    matches!(committed_at(version), Outcome::Committed(at) if at < ts)
}

/// Whether a version has committed by now. For assertions.
fn is_committed(version: Version) -> bool {
    match begin_of(version) {
        Begin::Committed(_) => true,
        Begin::By(status) => status.is_committed(),
    }
}

/// Whether a record's newest version is of a transaction that has not committed.
/// For assertions.
fn has_uncommitted_head(record: Record) -> bool {
    matches!(head_of(record), Head::Version(version) if !is_committed(version))
}

fn committed_at(version: Version) -> Outcome {
    match begin_of(version) {
        Begin::Committed(ts) => Outcome::Committed(ts),
        Begin::By(status) => status.outcome(),
    }
}

/// From now on the version tells by itself when it committed.
pub(crate) fn commit_version(version: Version, ts: u64) {
    // SAFETY: see above.
    let head = unsafe { version.head() };
    head.begin
        .store(ptr::without_provenance_mut((ts as usize) << 1), Release);
}

#[inline]
pub(crate) fn begin_of<'a>(version: Version) -> Begin<'a> {
    // SAFETY: see above.
    let begin = unsafe { version.head() }.begin.load(Acquire);
    if begin.addr() & 1 == 0 {
        Begin::Committed((begin.addr() >> 1) as u64)
    } else {
        // SAFETY: a status is retired after its versions were stamped or taken
        // back, so that of a version found by an open transaction is alive.
        Begin::By(unsafe { &*begin.map_addr(|address| address & !1) })
    }
}

#[inline]
pub(crate) fn next_of(version: Version) -> Option<Version> {
    // SAFETY: see above; `next` came from `as_ptr`.
    unsafe { Thin::from_ptr(version.head().next) }
}

#[inline]
pub(crate) fn is_tombstone(version: Version) -> bool {
    // SAFETY: see above.
    unsafe { version.note() }.load(Relaxed) & TOMBSTONE != 0
}

/// The version's place in its transaction's list of writes.
pub(crate) fn write_index(version: Version) -> usize {
    // SAFETY: see above.
    (unsafe { version.note() }.load(Relaxed) & !TOMBSTONE) as usize
}

/// The row; `None` for a tombstone.
#[inline]
pub(crate) fn row_of<'a>(version: Version) -> Option<&'a [u8]> {
    // SAFETY: see above.
    (!is_tombstone(version)).then(|| unsafe { version.bytes() })
}

#[inline]
pub(crate) fn new_record(pool: &mut Pool, key: &[u8], version: Version) -> Record {
    let head = RecordHead {
        head: AtomicPtr::new(version.as_ptr()),
    };
    Thin::new_in(pool, head, 0, key)
}

#[inline]
pub(crate) fn head_of(record: Record) -> Head {
    // SAFETY: see above.
    let head = unsafe { record.head() }.head.load(Acquire);
    if head == DEAD {
        return Head::Dead;
    }
    // SAFETY: heads are dead or came from `as_ptr`.
    Head::Version(unsafe { Thin::from_ptr(head) }.expect("a record has a version"))
}

/// For how long a version is taken whose length is not there yet: most end here.
pub(crate) const USUAL_BYTES: usize = 6 * 64;

/// Asks for so many bytes of a record's newest version, which will be read soon.
#[inline]
pub(crate) fn prefetch_version(record: Record, bytes: usize) {
    if let Head::Version(version) = head_of(record) {
        thin::prefetch(version.as_ptr().cast(), bytes);
    }
}

/// Puts a version above the one that is expected to be the newest (V1).
#[must_use]
pub(crate) fn push(record: Record, above: Version, version: Version) -> bool {
    use crate::sync::AcqRel;
    debug_assert!(is_committed(above), "V1");
    debug_assert!(next_of(version) == Some(above), "V2");
    // SAFETY: see above.
    let head = unsafe { &record.head().head };
    head.compare_exchange(above.as_ptr(), version.as_ptr(), AcqRel, Relaxed)
        .is_ok()
}

/// A hold on a record (V4).
pub(crate) fn hold(record: Record) {
    // SAFETY: see above.
    unsafe { record.note() }.fetch_add(1, Relaxed);
}

/// Gives up a hold on a record; how many there were (V4).
pub(crate) fn unhold(record: Record) -> u32 {
    use crate::sync::AcqRel;
    // SAFETY: see above.
    let holds = unsafe { record.note() }.fetch_sub(1, AcqRel) & !COVERED;
    debug_assert_ne!(holds, 0, "V4");
    holds
}

/// Whether nothing holds the record. For assertions.
pub(crate) fn has_no_holds(record: Record) -> bool {
    // SAFETY: see above.
    unsafe { record.note() }.load(Relaxed) & !COVERED == 0
}

/// Whether the record is marked as covered (K6).
pub(crate) fn is_covered(record: Record) -> bool {
    // SAFETY: see above.
    unsafe { record.note() }.load(Acquire) & COVERED != 0
}

/// Marks a record as covered; false if it was (K6).
pub(crate) fn cover(record: Record) -> bool {
    use crate::sync::AcqRel;
    // SAFETY: see above.
    unsafe { record.note() }.fetch_or(COVERED, AcqRel) & COVERED == 0
}

/// Takes the mark away (K6).
pub(crate) fn uncover(record: Record) {
    // SAFETY: see above.
    unsafe { record.note() }.fetch_and(!COVERED, Relaxed);
}

/// Replaces the newest version, which is the caller's own (V1).
pub(crate) fn replace_own(record: Record, version: Version) {
    debug_assert!(has_uncommitted_head(record), "V1");
    replace_alone(record, version);
}

/// Replaces the newest version while nothing else uses the database.
pub(crate) fn replace_alone(record: Record, version: Version) {
    // SAFETY: see above.
    let head = unsafe { &record.head().head };
    head.store(version.as_ptr(), Release);
}

/// Ends a record whose only version is the caller's own (V3).
pub(crate) fn kill_own(record: Record) {
    debug_assert!(has_uncommitted_head(record), "V1, V3");
    // SAFETY: see above.
    unsafe { record.head() }.head.store(DEAD, Release);
}

/// Ends a record whose newest version is this tombstone (V3).
#[must_use]
pub(crate) fn kill(record: Record, tombstone: Version) -> bool {
    use crate::sync::AcqRel;
    debug_assert!(is_tombstone(tombstone) && is_committed(tombstone), "V3");
    // SAFETY: see above.
    let head = unsafe { &record.head().head };
    head.compare_exchange(tombstone.as_ptr(), DEAD, AcqRel, Relaxed)
        .is_ok()
}

/// What a transaction sees of a record.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct View {
    /// The version with the row; `None` if there is no row.
    pub(crate) version: Option<Version>,
    /// It was written by the transaction itself.
    pub(crate) own: bool,
}

/// What a record is at `limit` for the transaction with this status: the newest
/// version that committed by then, or its own. `own_counts`: whether the latter.
#[inline]
pub(crate) fn view(record: Record, limit: u64, mine: *const TxnStatus, own_counts: bool) -> View {
    let mut next = match head_of(record) {
        Head::Dead => None,
        Head::Version(version) => Some(version),
    };
    while let Some(version) = next {
        let own = match begin_of(version) {
            Begin::Committed(ts) => {
                if ts > limit {
                    next = next_of(version);
                    continue;
                }
                false
            }
            Begin::By(status) => {
                let own = ptr::eq(status, mine);
                if if own {
                    !own_counts
                } else {
                    !status.committed_by(limit)
                } {
                    next = next_of(version);
                    continue;
                }
                own
            }
        };
        return View {
            version: (!is_tombstone(version)).then_some(version),
            own,
        };
    }
    View {
        version: None,
        own: false,
    }
}

/// The row that a record is at this snapshot, and when it was committed.
pub(crate) fn committed_row(record: Record, snapshot: u64) -> Option<(Version, u64)> {
    let version = view(record, snapshot, ptr::null(), false).version?;
    match committed_at(version) {
        Outcome::Committed(ts) => Some((version, ts)),
        Outcome::Active | Outcome::Aborted => unreachable!("it has committed"),
    }
}

/// When the version was committed that a transaction without writes sees of a
/// record at `limit`, be it a row or a tombstone; `None` if it sees none.
#[cold]
pub(crate) fn seen_at(record: Record, limit: u64) -> Option<u64> {
    let Head::Version(mut version) = head_of(record) else {
        return None;
    };
    loop {
        match begin_of(version) {
            Begin::Committed(ts) if ts <= limit => return Some(ts),
            Begin::By(status) if status.committed_by(limit) => match status.outcome() {
                Outcome::Committed(ts) => return Some(ts),
                Outcome::Active | Outcome::Aborted => unreachable!("it has committed"),
            },
            Begin::Committed(_) | Begin::By(_) => version = next_of(version)?,
        }
    }
}

/// What a writer finds at a record's head.
pub(crate) enum Writable {
    /// The record is no more.
    Dead,
    /// A committed version: to be superseded.
    Committed(Version, u64),
    /// The writer's own: to be replaced.
    Own(Version),
    /// A running transaction's.
    Busy { writer: Writer },
}

/// What a record is to a writer that wants a key for another one.
pub(crate) enum Rival {
    /// Of no concern.
    None,
    /// The newest version, and when it was committed.
    Committed(Version, u64),
    /// The writer has given it the key itself.
    Own,
    /// A running transaction has given it the key, or is about to take it away.
    Busy { writer: Writer },
}

/// What a record is to the transaction with this status.
pub(crate) fn rival(
    record: Record,
    mine: *const TxnStatus,
    has_key: impl Fn(&[u8]) -> bool,
) -> Rival {
    let has_key = |version: Version| row_of(version).is_some_and(&has_key);
    let mut wait = crate::sync::Wait::new();
    loop {
        let version = match head_of(record) {
            Head::Dead => return Rival::None,
            Head::Version(version) => version,
        };
        let status = match begin_of(version) {
            Begin::Committed(ts) => return Rival::Committed(version, ts),
            Begin::By(status) => status,
        };
        if ptr::eq(status, mine) {
            return if has_key(version) {
                Rival::Own
            } else {
                Rival::None
            };
        }
        match status.outcome() {
            Outcome::Committed(ts) => return Rival::Committed(version, ts),
            Outcome::Active if has_key(version) || next_of(version).is_some_and(has_key) => {
                return Rival::Busy {
                    writer: status.writer(),
                };
            }
            Outcome::Active => return Rival::None,
            // Its writer is taking it back, in a region.
            Outcome::Aborted => wait.step(),
        }
    }
}

/// What the transaction with this status may write over.
pub(crate) fn writable(record: Record, mine: *const TxnStatus) -> Writable {
    let mut wait = crate::sync::Wait::new();
    loop {
        let version = match head_of(record) {
            Head::Dead => return Writable::Dead,
            Head::Version(version) => version,
        };
        match begin_of(version) {
            Begin::Committed(ts) => return Writable::Committed(version, ts),
            Begin::By(status) if ptr::eq(status, mine) => return Writable::Own(version),
            Begin::By(status) => match status.outcome() {
                Outcome::Active => {
                    return Writable::Busy {
                        writer: status.writer(),
                    };
                }
                Outcome::Committed(ts) => return Writable::Committed(version, ts),
                // Its writer is taking it back, in a region.
                Outcome::Aborted => wait.step(),
            },
        }
    }
}
