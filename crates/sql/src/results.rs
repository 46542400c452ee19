//! Where a query's result waits for whoever asked: a bounded queue between workers,
//! which do not block, and a client, which may be slow.
//!
//! ```text
//!  lanes of the last pipeline ──push──▶ batches ──next──▶ client
//!        ◀── Pending while full ──────          end: told once
//! ```
//!
//! A lane asks for room before it makes a batch. If there is none it leaves its waker
//! and is out of the scheduler's sight until the client has taken something; a client
//! that never does keeps a slot and its memory until its query is cancelled or its
//! deadline has passed.
//!
//! R1. Lanes that found no room are woken whenever a batch is taken, and when the
//!     client has gone.
//! R2. The end is told once; the first word stays. A client sees it after the last
//!     batch if it was success, and at once if it was an error.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use datafusion::arrow::array::RecordBatch;

use crate::error::SqlError;

/// Batches that may wait.
const BATCHES_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Results {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<RecordBatch>,
    end: Option<Result<(), SqlError>>,
    client: Option<Waker>,
    lanes: Vec<Waker>,
    is_deserted: bool,
}

impl Results {
    fn state(&self) -> MutexGuard<'_, State> {
        crate::lock(&self.state)
    }

    /// Whether a lane may push a batch; R1 if not. Several lanes may be told so for
    /// one place: the bound is soft by the number of workers.
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.batches.len() < BATCHES_MAX || state.is_deserted {
            return Poll::Ready(());
        }
        state.lanes.push(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn push(&self, batch: RecordBatch) {
        let mut state = self.state();
        if !state.is_deserted && batch.num_rows() > 0 {
            state.batches.push_back(batch);
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
            state.batches.clear();
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(batch) = state.batches.pop_front() {
            let lanes = std::mem::take(&mut state.lanes);
            drop(state);
            lanes.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(Ok(batch)));
        }
        if state.end.is_some() {
            return Poll::Ready(None);
        }
        state.client = Some(context.waker().clone());
        Poll::Pending
    }

    /// The client has gone: what is pushed from now on is dropped. Says whether the end
    /// had been told.
    pub(crate) fn desert(&self) -> bool {
        let mut state = self.state();
        state.is_deserted = true;
        state.batches.clear();
        let has_ended = state.end.is_some();
        let lanes = std::mem::take(&mut state.lanes);
        drop(state);
        lanes.into_iter().for_each(Waker::wake);
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::Wake;

    use datafusion::arrow::array::{ArrayRef, Int32Array};

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

    #[test]
    fn a_full_queue_stops_lanes_until_the_client_takes() {
        let results = Results::default();
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
        let results = Results::default();
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
        let results = Results::default();
        results.push(batch());
        results.end(Err(SqlError::Cancelled));
        assert!(matches!(
            results.poll_next(context),
            Poll::Ready(Some(Err(SqlError::Cancelled)))
        ));
        assert!(matches!(results.poll_next(context), Poll::Ready(None)));
    }
}
