//! Results that nobody reads, on disk.
//!
//! A client that opens a result and goes for lunch would keep a slot, and the memory of a
//! sort or of an exchange, until it comes back. So what waits for such a client goes to a
//! file (`results` says when), the query runs to its end, and gives back all that it has.
//!
//! Workers never write: one thread moves batches between the queues of results and their
//! files. What is read goes before what is written, and time-sensitive results before
//! background ones.
//!
//! ```text
//!   file of a result, unlinked:  ┌ batch ┬ batch ┬ batch ┐   each a stream of Arrow IPC
//!                                └───────┴───────┴───────┘
//!                                 read from            written to
//! ```
//!
//! F1. All files together hold so many bytes at most, and a background one takes none of the
//!     last quarter; a batch beyond that stays in memory, and its query waits.
//!     (asserted in `Drop`)
//! F2. A file is used by the thread of the spiller only, so nothing is read while it is
//!     written. (not asserted: both happen in `work`)
//!
//! Known weakness: a file gives its place back when all of it has been read, or its result
//! is dropped; not from its beginning on.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Cursor};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::common::{DataFusionError, Result};
use giveway_tier::Tier;

use crate::error::SqlError;
use crate::results::Results;

/// The thread, and how much it may write.
#[derive(Debug)]
pub(crate) struct Spiller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    quota: Arc<Quota>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// F1.
#[derive(Debug)]
struct Quota {
    limit: u64,
    used: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    /// By what is to be done, and by tier.
    lines: [[VecDeque<Arc<Results>>; Tier::ALL.len()]; 2],
    is_over: bool,
}

/// What is to be done for a result; the more urgent first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    /// The next batch is to come from its file.
    Load,
    /// What waits is to go to its file.
    Store,
}

const MOVES: [Move; 2] = [Move::Load, Move::Store];

impl Queue {
    fn next(&mut self) -> Option<(Move, Arc<Results>)> {
        let kinds = (MOVES.into_iter()).flat_map(|what| Tier::ALL.map(|tier| (what, tier)));
        kinds.into_iter().find_map(|(what, tier)| {
            let next = self.lines[what as usize][tier as usize].pop_front();
            next.map(|results| (what, results))
        })
    }
}

impl Spiller {
    /// Starts the thread. It writes to files in this directory, so many bytes at most.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn start(dir: PathBuf, limit: u64) -> io::Result<Spiller> {
        let used = AtomicU64::new(0);
        let shared = Arc::new(Shared {
            dir,
            quota: Arc::new(Quota { limit, used }),
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        let spiller = Spiller(Arc::clone(&shared));
        std::thread::Builder::new()
            .name("giveway-sql-disk".to_owned())
            .spawn(move || shared.work())?;
        Ok(spiller)
    }

    /// Something is to be done for a result.
    pub(crate) fn ask(&self, what: Move, tier: Tier, results: Arc<Results>) {
        let mut queue = crate::lock(&self.0.queue);
        queue.lines[what as usize][tier as usize].push_back(results);
        drop(queue);
        self.0.changed.notify_one();
    }

    /// A file for a result of this tier.
    pub(crate) fn file(&self, tier: Tier) -> io::Result<SpillFile> {
        Ok(SpillFile {
            tier,
            file: tempfile::tempfile_in(&self.0.dir)?,
            end: 0,
            batches: VecDeque::new(),
            quota: Arc::clone(&self.0.quota),
        })
    }

    /// Bytes in files.
    pub(crate) fn used(&self) -> u64 {
        self.0.quota.used.load(Relaxed)
    }
}

impl Drop for Spiller {
    fn drop(&mut self) {
        crate::lock(&self.0.queue).is_over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = crate::lock(&self.queue);
        loop {
            match queue.next() {
                Some((what, results)) => {
                    drop(queue);
                    let moved = catch_unwind(AssertUnwindSafe(|| match what {
                        Move::Load => results.load(),
                        Move::Store => results.store(),
                    }));
                    // The thread is everybody's.
                    if let Err(panic) = moved {
                        results.fail(SqlError::panicked(&*panic));
                    }
                    // Perhaps the last one who knows it, and not under the lock.
                    drop(results);
                    queue = crate::lock(&self.queue);
                }
                None if queue.is_over => return,
                None => {
                    queue = (self.changed.wait(queue)).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// The file of a result.
#[derive(Debug)]
pub(crate) struct SpillFile {
    tier: Tier,
    file: File,
    end: u64,
    /// Where they are, and how long.
    batches: VecDeque<(u64, u64)>,
    quota: Arc<Quota>,
}

impl SpillFile {
    /// Whether there is nothing to be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// The files are full, or the disk. The file is as before.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, batch.schema_ref())?;
        writer.write(batch)?;
        writer.finish()?;
        let length = bytes.len() as u64;
        // F1.
        let limit = match self.tier {
            Tier::TimeSensitive => self.quota.limit,
            Tier::Background => self.quota.limit / 4 * 3,
        };
        let taken = self.quota.used.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(length).filter(|&used| used <= limit)
        });
        if taken.is_err() {
            return Err(io::Error::from(io::ErrorKind::QuotaExceeded).into());
        }
        if let Err(error) = self.file.write_all_at(&bytes, self.end) {
            self.quota.used.fetch_sub(length, Relaxed);
            return Err(error.into());
        }
        self.batches.push_back((self.end, length));
        self.end += length;
        Ok(())
    }

    /// Takes the oldest batch out.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn pop(&mut self) -> Result<RecordBatch> {
        let missing = || DataFusionError::Internal("nothing is left in this file".to_owned());
        let (at, length) = self.batches.pop_front().ok_or_else(missing)?;
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
        let batch = reader.next().ok_or_else(missing)??;
        if self.batches.is_empty() {
            self.file.set_len(0)?;
            self.give_back();
        }
        Ok(batch)
    }

    fn give_back(&mut self) {
        self.quota.used.fetch_sub(self.end, Relaxed);
        self.end = 0;
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        debug_assert!(
            self.quota.used.load(Relaxed) <= self.quota.limit,
            "F1: more is on disk than may be"
        );
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, StringArray};
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    use crate::memory::Account;

    #[test]
    fn what_is_read_goes_first_and_then_it_goes_by_tier() {
        let account = Arc::new(Account::new(Arc::new(UnboundedMemoryPool::default())));
        let order = [
            (Move::Load, Tier::TimeSensitive),
            (Move::Load, Tier::Background),
            (Move::Store, Tier::TimeSensitive),
            (Move::Store, Tier::Background),
        ];
        let results = order.map(|_| Results::new(&account, None));
        let mut queue = Queue::default();
        for ((what, tier), results) in order.iter().zip(&results).rev() {
            queue.lines[*what as usize][*tier as usize].push_back(Arc::clone(results));
        }
        for expected in &results {
            let (_, next) = queue.next().unwrap();
            assert!(Arc::ptr_eq(&next, expected));
        }
        assert!(queue.next().is_none());
    }

    #[test]
    fn files_keep_order_and_their_limit() {
        let dir = tempfile::tempdir().unwrap();
        let spiller = Spiller::start(dir.path().to_owned(), 20_000).unwrap();
        let batch = |text: &str| {
            let texts: ArrayRef = Arc::new(StringArray::from(vec![text; 100]));
            RecordBatch::try_from_iter([("text", texts)]).unwrap()
        };
        let mut file = spiller.file(Tier::TimeSensitive).unwrap();
        file.push(&batch("first")).unwrap();
        file.push(&batch("second")).unwrap();
        let used = spiller.used();
        let error = file.push(&batch(&"x".repeat(1000))).unwrap_err();
        assert!(error.to_string().contains("quota"), "F1: {error}");
        assert_eq!(spiller.used(), used);
        assert_eq!(file.pop().unwrap(), batch("first"));
        file.push(&batch("third")).unwrap();
        assert_eq!(file.pop().unwrap(), batch("second"));
        assert_eq!(file.pop().unwrap(), batch("third"));
        assert!(file.is_empty() && file.pop().is_err());
        assert_eq!(spiller.used(), 0);
        file.push(&batch("left")).unwrap();
        // Background files leave a quarter to others.
        let mut background = spiller.file(Tier::Background).unwrap();
        while background.push(&batch("unread")).is_ok() {}
        assert!((10_000..=15_000).contains(&spiller.used()), "F1");
        file.push(&batch("urgent")).unwrap();
        drop((file, background));
        assert_eq!(spiller.used(), 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
