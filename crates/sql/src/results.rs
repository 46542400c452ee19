//! A query's results: a bounded queue between workers, which do not block, and a client,
//! which may be slow.
//!
//! ```text
//!  streams of the last pipeline ──push──▶ batches ──next──▶ client
//!        ◀── Pending while full ──────          end: told once
//! ```
//!
//! A stream asks for room before it makes a batch. If there is none it leaves its waker
//! and is not polled until the client has taken a batch; a client that never does keeps a
//! slot and its memory until its query is cancelled or its deadline has passed. Both are bounded: by tier, and by the number and the bytes of
//! the batches that wait.
//!
//! R1. Streams that found no room are woken whenever a batch is taken, and when the
//!     client has gone. (asserted in `poll_next`: none waits while there is no batch)
//! R2. The first end that is reported stays. A client sees it after the last batch if it
//!     was success, and at once if it was an error. (not asserted: `end` keeps the first,
//!     and after an error streams may still push)
//! R3. The memory of batches that wait is reserved. A stream that has made a batch has to
//!     leave it here, so the reservation cannot be refused: the bound keeps it small.
//!     (asserted in `poll_next`: without batches nothing is reserved)

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::error::SqlError;
use crate::memory::Account;

/// Batches that may wait.
const BATCHES_MAX: usize = 16;
/// Bytes of batches beyond which no more may wait: some batches of wide rows.
const BYTES_MAX: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Results {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// With their sizes.
    batches: VecDeque<(RecordBatch, usize)>,
    /// R3.
    memory: MemoryReservation,
    end: Option<Result<(), SqlError>>,
    client: Option<Waker>,
    streams: Vec<Waker>,
    is_deserted: bool,
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
        self.is_deserted || (self.batches.len() < BATCHES_MAX && self.memory.size() < BYTES_MAX)
    }

    fn clear(&mut self) {
        self.batches.clear();
        self.memory.free();
    }
}

impl Results {
    /// Results of the query whose account this is.
    pub(crate) fn new(account: &Arc<Account>) -> Results {
        let pool: Arc<dyn MemoryPool> = Arc::clone(account) as _;
        Results {
            state: Mutex::new(State {
                batches: VecDeque::new(),
                memory: MemoryConsumer::new("results").register(&pool),
                end: None,
                client: None,
                streams: Vec::new(),
                is_deserted: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        crate::lock(&self.state)
    }

    /// Whether a stream may push a batch; R1 if not. Several streams may be told so for
    /// one place: the bound is soft by the number of workers.
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.has_room() {
            return Poll::Ready(());
        }
        state.streams.push(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn push(&self, batch: RecordBatch) {
        let mut state = self.state();
        if !state.is_deserted && batch.num_rows() > 0 {
            let size = size(&batch);
            // R3.
            state.memory.grow(size);
            state.batches.push_back((batch, size));
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

    pub(crate) fn poll_next(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch, SqlError>>> {
        let mut state = self.state();
        if let Some(Err(_)) = state.end {
            let Some(Err(error)) = state.end.replace(Ok(())) else {
                unreachable!("looked at under the same lock")
            };
            state.clear();
            return Poll::Ready(Some(Err(error)));
        }
        if let Some((batch, size)) = state.batches.pop_front() {
            state.memory.shrink(size);
            let streams = std::mem::take(&mut state.streams);
            drop(state);
            streams.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(Ok(batch)));
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

    fn new_results() -> (Results, Arc<Account>) {
        let account = Arc::new(Account::new(Arc::new(UnboundedMemoryPool::default())));
        (Results::new(&account), account)
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
