//! A query's results: a bounded queue between workers, which do not block, and a client,
//! which may be slow.
//!
//! ```text
//!  streams of the last pipeline ──push──▶ batches ──next──▶ client
//!        ◀── Pending while full ──────          end: told once
//! ```
//!
//! A stream asks for room before it makes a batch. If there is none it leaves its waker
//! and is not polled until there is: what waits is bounded by the number and the bytes of
//! the batches.
//!
//! A client that has taken nothing for a second while streams wait is *unread*. Then
//! `spill` moves what waits to a file, batch by batch, streams go on, and the query ends
//! without its client. When the client comes back, batches come from the file first:
//!
//! ```text
//!                   ┌─ store ─▶ file ─ load ─▶ loaded ─┐
//!   push ─▶ batches ┴──────────────────────────────────┴▶ next
//!            (newest)           (oldest)
//! ```
//!
//! R1. Streams that found no room are woken whenever a batch is taken, and when the
//!     client has gone. (asserted in `poll_next`: none waits while there is no batch)
//! R2. The first end that is reported stays. A client sees it after the last batch if it
//!     was success, and at once if it was an error. (not asserted: `end` keeps the first,
//!     and after an error streams may still push)
//! R3. The memory of batches that wait is reserved, and that of the one that the client
//!     has taken last: it is being sent until the client asks for the next. A stream that has made a batch has to
//!     leave it here, so the reservation cannot be refused: the bound keeps it small.
//!     (asserted in `poll_next`: without batches nothing is reserved)
//! R4. Batches come out in the order in which they came in: of the file before those that
//!     wait, and not while one is on its way to the file. (asserted in `poll_next`; tested)

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use giveway_tier::Tier;

use crate::error::SqlError;
use crate::memory::Account;
use crate::spill::{Move, SpillFile, Spiller};
use crate::timer::{Due, Timer};

/// Batches that may wait.
const BATCHES_MAX: usize = 16;
/// Bytes of batches beyond which no more may wait: some batches of wide rows.
const BYTES_MAX: usize = 4 << 20;

/// After how long a client that takes nothing is unread.
const UNREAD: Duration = Duration::from_secs(1);

pub(crate) struct Results {
    state: Mutex<State>,
    /// Where results go that are unread, if they go anywhere.
    disk: Option<Disk>,
    this: Weak<Results>,
}

/// Who moves unread results, and who says that they are.
pub(crate) struct Disk {
    pub(crate) spiller: Arc<Spiller>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) tier: Tier,
}

#[derive(Debug)]
struct State {
    /// With their sizes.
    batches: VecDeque<(RecordBatch, usize)>,
    /// R3.
    memory: MemoryReservation,
    /// What of it is of the batch that the client has taken last.
    sending: usize,
    end: Option<Result<(), SqlError>>,
    client: Option<Waker>,
    streams: Vec<Waker>,
    is_deserted: bool,
    /// How many batches the client has taken.
    taken: u64,
    /// What that was when the timer was set.
    watched: Option<u64>,
    /// Whether batches that wait are to go to the file.
    is_unread: bool,
    /// Whether the spiller has been asked to do so.
    is_asked: bool,
    /// Whether the spiller has the oldest batch, or the file.
    is_moving: bool,
    file: Option<SpillFile>,
    /// What comes out next.
    loaded: Option<(RecordBatch, usize)>,
}

/// The bytes of a batch's own rows: other batches may have others of the same buffers.
fn size(batch: &RecordBatch) -> usize {
    let size = |column: &ArrayRef| {
        // Of views this is their fixed part.
        let fixed = column.to_data().get_slice_memory_size().unwrap_or(0);
        let viewed = match column.data_type() {
            DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
            DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
            _ => 0,
        };
        fixed + viewed
    };
    batch.columns().iter().map(size).sum()
}

impl State {
    fn has_room(&self) -> bool {
        let loaded = self.loaded.as_ref().map_or(0, |(_, size)| *size);
        let waiting = self.memory.size() - self.sending - loaded;
        self.is_deserted || (self.batches.len() < BATCHES_MAX && waiting < BYTES_MAX)
    }

    fn clear(&mut self) {
        self.batches.clear();
        self.loaded = None;
        self.file = None;
        self.sending = 0;
        self.memory.free();
    }

    /// Whether there are batches in the file.
    fn has_stored(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.is_empty())
    }

    /// Whether nobody waits for what comes.
    fn is_over(&self) -> bool {
        self.is_deserted || matches!(self.end, Some(Err(_)))
    }
}

impl Results {
    /// Results of the query whose account this is.
    pub(crate) fn new(account: &Arc<Account>, disk: Option<Disk>) -> Arc<Results> {
        let pool: Arc<dyn MemoryPool> = Arc::clone(account) as _;
        Arc::new_cyclic(|this| Results {
            state: Mutex::new(State {
                batches: VecDeque::new(),
                memory: MemoryConsumer::new("results").register(&pool),
                sending: 0,
                end: None,
                client: None,
                streams: Vec::new(),
                is_deserted: false,
                taken: 0,
                watched: None,
                is_unread: false,
                is_asked: false,
                is_moving: false,
                file: None,
                loaded: None,
            }),
            disk,
            this: Weak::clone(this),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        crate::lock(&self.state)
    }

    /// Whether a stream may push a batch; R1 if not. Several streams may be told so for
    /// one place: the bound is soft by the number of workers.
    pub(crate) fn poll_room(self: &Arc<Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.has_room() {
            return Poll::Ready(());
        }
        state.streams.push(context.waker().clone());
        if state.watched.is_none() && !state.is_unread {
            self.watch(&mut state);
        }
        Poll::Pending
    }

    /// Looks again in a while whether the client has taken something.
    fn watch(self: &Arc<Self>, state: &mut State) {
        if let Some(disk) = &self.disk {
            state.watched = Some(state.taken);
            let due = Arc::downgrade(self) as Weak<dyn Due>;
            disk.timer.at(Instant::now() + UNREAD, due);
        }
    }

    /// Asks for what waits to go to the file.
    fn ask(self: &Arc<Self>, state: &mut State) {
        if let Some(disk) = &self.disk
            && state.is_unread
            && !state.is_asked
            && !state.batches.is_empty()
        {
            state.is_asked = true;
            disk.spiller.ask(Move::Store, disk.tier, Arc::clone(self));
        }
    }

    /// Moves the oldest batch to the file: for the spiller.
    pub(crate) fn store(self: &Arc<Self>) {
        let mut state = self.state();
        state.is_asked = false;
        // The client has come back, or gone.
        if !state.is_unread || state.is_over() || state.is_moving {
            return;
        }
        let Some((batch, size)) = state.batches.pop_front() else {
            return;
        };
        let file = state.file.take();
        state.is_moving = true;
        drop(state);
        let disk = self.disk.as_ref().expect("the spiller has asked");
        let stored = match file {
            Some(file) => Ok(file),
            None => disk.spiller.file(disk.tier),
        };
        let (file, is_stored) = match stored {
            Ok(mut file) => {
                let is_stored = file.push(&batch).is_ok();
                (Some(file), is_stored)
            }
            Err(_) => (None, false),
        };
        let mut state = self.state();
        state.is_moving = false;
        let streams = match is_stored {
            _ if state.is_over() => Vec::new(),
            true => {
                state.file = file;
                state.memory.shrink(size);
                std::mem::take(&mut state.streams)
            }
            false => {
                // No room on the disk: it waits here, and perhaps there is room later.
                state.file = file;
                state.batches.push_front((batch, size));
                state.is_unread = false;
                self.watch(&mut state);
                Vec::new()
            }
        };
        self.ask(&mut state);
        let client = state.client.take();
        drop(state);
        streams.into_iter().chain(client).for_each(Waker::wake);
    }

    /// Takes the oldest batch out of the file: for the spiller.
    pub(crate) fn load(self: &Arc<Self>) {
        let mut state = self.state();
        let file = state.file.take();
        drop(state);
        let loaded = file.map(|mut file| (file.pop(), file));
        state = self.state();
        state.is_moving = false;
        if let Some((batch, file)) = loaded
            && !state.is_over()
        {
            state.file = Some(file);
            match batch {
                Ok(batch) => {
                    let size = size(&batch);
                    state.memory.grow(size);
                    state.loaded = Some((batch, size));
                }
                // R2 is for ends of the query; without its rows it has not succeeded.
                Err(error) => state.end = Some(Err(SqlError::Execution(error))),
            }
        }
        self.ask(&mut state);
        let client = state.client.take();
        drop(state);
        client.into_iter().for_each(Waker::wake);
    }

    /// Ends it, since what moves its rows has failed: nothing is moving any more.
    pub(crate) fn fail(&self, error: SqlError) {
        let mut state = self.state();
        state.is_moving = false;
        state.file = None;
        state.end = Some(Err(error));
        let streams = std::mem::take(&mut state.streams);
        let client = state.client.take();
        drop(state);
        streams.into_iter().chain(client).for_each(Waker::wake);
    }

    pub(crate) fn push(self: &Arc<Self>, batch: RecordBatch) {
        let mut state = self.state();
        if !state.is_deserted && batch.num_rows() > 0 {
            let size = size(&batch);
            // R3.
            state.memory.grow(size);
            state.batches.push_back((batch, size));
            self.ask(&mut state);
        }
        if let Some(client) = state.client.take() {
            client.wake();
        }
    }

    /// R2.
    pub(crate) fn end(&self, how: Result<(), SqlError>) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some(how);
        }
        if let Some(client) = state.client.take() {
            client.wake();
        }
    }

    /// Gives back the memory of what waits, if it has ended with an error: its client may be
    /// one that does not read.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        if !matches!(state.end, Some(Err(_))) {
            return;
        }
        let left = (
            std::mem::take(&mut state.batches),
            state.loaded.take(),
            state.file.take(),
        );
        let waiting = state.memory.size() - state.sending;
        state.memory.shrink(waiting);
        drop(state);
        drop(left);
    }

    pub(crate) fn poll_next(
        self: &Arc<Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch, SqlError>>> {
        let mut state = self.state();
        if let Some(Err(_)) = state.end {
            let Some(Err(error)) = state.end.replace(Ok(())) else {
                unreachable!("looked at under the same lock")
            };
            // Nothing of it is wanted any more.
            state.is_deserted = true;
            state.clear();
            return Poll::Ready(Some(Err(error)));
        }
        // It has sent the one before.
        let sent = std::mem::take(&mut state.sending);
        state.memory.shrink(sent);
        // It reads: what comes from now on waits here.
        state.is_unread = false;
        let next = match state.loaded.take() {
            Some(next) => Some(next),
            // R4.
            None if state.is_moving || state.has_stored() => None,
            None => state.batches.pop_front(),
        };
        if let Some((batch, size)) = next {
            state.sending = size;
            state.taken += 1;
            self.load_next(&mut state);
            let streams = std::mem::take(&mut state.streams);
            drop(state);
            streams.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(Ok(batch)));
        }
        if state.is_moving || state.has_stored() {
            self.load_next(&mut state);
            state.client = Some(context.waker().clone());
            return Poll::Pending;
        }
        debug_assert_eq!(state.memory.size(), 0, "R3: reserved for no batch");
        if state.end.is_some() {
            return Poll::Ready(None);
        }
        debug_assert!(
            state.streams.is_empty(),
            "R1: a stream waits for room that is there"
        );
        state.client = Some(context.waker().clone());
        Poll::Pending
    }

    /// Asks for the next batch of the file.
    fn load_next(self: &Arc<Self>, state: &mut State) {
        if let Some(disk) = &self.disk
            && !state.is_moving
            && state.loaded.is_none()
            && state.has_stored()
        {
            state.is_moving = true;
            disk.spiller.ask(Move::Load, disk.tier, Arc::clone(self));
        }
    }

    /// The client has gone: what is pushed from now on is dropped. Says whether the end
    /// had been told.
    pub(crate) fn desert(&self) -> bool {
        let mut state = self.state();
        state.is_deserted = true;
        state.clear();
        let has_ended = state.end.is_some();
        let streams = std::mem::take(&mut state.streams);
        drop(state);
        streams.into_iter().for_each(Waker::wake);
        has_ended
    }
}

/// The client has had its time to read.
impl Due for Results {
    fn due(&self) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let mut state = self.state();
        let has_read = state.watched.take() != Some(state.taken);
        if state.has_room() || state.is_over() {
            return;
        }
        match has_read {
            true => this.watch(&mut state),
            false => {
                state.is_unread = true;
                this.ask(&mut state);
            }
        }
    }
}

impl fmt::Debug for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::Wake;

    use datafusion::arrow::array::Int32Array;
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn batch() -> RecordBatch {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        RecordBatch::try_from_iter([("a", column)]).unwrap()
    }

    fn new_results() -> (Arc<Results>, Arc<Account>) {
        let account = Arc::new(Account::new(Arc::new(UnboundedMemoryPool::default())));
        (Results::new(&account, None), account)
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_reserved() {
        let (results, account) = new_results();
        let context = &mut Context::from_waker(Waker::noop());
        // Slices of one large array count as much as they have of it.
        let column: ArrayRef = Arc::new(Int32Array::from(vec![0; 4 * BYTES_MAX / 4]));
        let large = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let rows = large.num_rows() / 16;
        let mut pushed = 0;
        while results.poll_room(context).is_ready() {
            results.push(large.slice(pushed * rows, rows));
            pushed += 1;
        }
        assert_eq!((pushed, account.used()), (4, BYTES_MAX), "R3");
        assert!(matches!(
            results.poll_next(context),
            Poll::Ready(Some(Ok(_)))
        ));
        assert_eq!(account.used(), BYTES_MAX, "R3: it is being sent");
        assert!(results.poll_room(context).is_ready());
        assert!(matches!(
            results.poll_next(context),
            Poll::Ready(Some(Ok(_)))
        ));
        assert_eq!(account.used(), BYTES_MAX / 4 * 3);
        results.desert();
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn a_full_queue_stops_lanes_until_the_client_takes() {
        let (results, _) = new_results();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let context = &mut Context::from_waker(&waker);
        while results.poll_room(context).is_ready() {
            results.push(batch());
        }
        assert_eq!(count.0.load(Relaxed), 0);
        assert!(matches!(
            results.poll_next(context),
            Poll::Ready(Some(Ok(_)))
        ));
        assert_eq!(count.0.load(Relaxed), 1, "R1");
        assert!(results.poll_room(context).is_ready());
        results.push(batch());
        assert!(results.poll_room(context).is_pending());
        assert!(!results.desert());
        assert_eq!(count.0.load(Relaxed), 2, "R1");
        assert!(results.poll_room(context).is_ready());
    }

    #[test]
    fn success_comes_after_the_last_batch_and_errors_at_once() {
        let waker = Waker::noop();
        let context = &mut Context::from_waker(waker);
        let (results, _) = new_results();
        assert!(results.poll_next(context).is_pending());
        results.push(batch());
        results.end(Ok(()));
        results.end(Err(SqlError::Cancelled));
        assert!(matches!(
            results.poll_next(context),
            Poll::Ready(Some(Ok(_)))
        ));
        assert!(
            matches!(results.poll_next(context), Poll::Ready(None)),
            "R2"
        );
        let (results, _) = new_results();
        results.push(batch());
        results.end(Err(SqlError::Cancelled));
        assert!(matches!(
            results.poll_next(context),
            Poll::Ready(Some(Err(SqlError::Cancelled)))
        ));
        assert!(matches!(results.poll_next(context), Poll::Ready(None)));
    }
}
