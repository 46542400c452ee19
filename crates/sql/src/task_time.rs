//! The end of a worker's task, at which operators yield.
//!
//! DataFusion's operators are streams that pull. Some pull all of their input in one
//! poll (aggregation, sorting, the build of a join), so the worker that polls them cannot
//! stop them; the leaf that they pull from can. The worker sets the time at which its
//! task ends, and every leaf checks it before it gives out a batch. When the task is over
//! the leaf returns `Pending` and wakes itself. All operators in between pass that on, and
//! the worker has the stream back.
//!
//! T1. Every poll makes progress: a leaf checks the time only after a batch has been
//!     given out, also where an operator above takes longer than a task before it first
//!     asks. (not asserted: a leaf whose input is not ready gives out nothing)
//!
//! The end is kept by thread, and not in the plan, because streams are not always
//! polled for the partition they were opened for: the build of a join belongs to
//! whichever stream asks next.
//!
//! Known weakness: what an operator does between two batches is not cut. The native
//! join and sort exist for that reason; overruns are counted per pipeline.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::coop::make_cooperative;
use futures_util::{Stream, StreamExt};

thread_local! {
    /// The end of the task, and whether a batch has been given out since it began.
    static TASK: Cell<Option<TaskTime>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct TaskTime {
    end: Instant,
    served: bool,
}

/// Runs `f` as a task that ends then.
pub(crate) fn until<R>(end: Instant, f: impl FnOnce() -> R) -> R {
    /// Also after a panic nothing is left behind.
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            TASK.set(None);
        }
    }
    let _clear = Clear;
    TASK.set(Some(TaskTime { end, served: false }));
    f()
}

/// Whether a leaf has to yield. Never outside of a task: the same plan runs on
/// stock DataFusion undisturbed.
pub(crate) fn is_over() -> bool {
    TASK.get()
        // T1.
        .is_some_and(|task_time| task_time.served && Instant::now() >= task_time.end)
}

/// When the present task ends, which tells it from others.
pub(crate) fn end() -> Option<Instant> {
    TASK.get().map(|task_time| task_time.end)
}

/// A batch is being given out.
pub(crate) fn serve() {
    if let Some(task_time) = TASK.get() {
        TASK.set(Some(TaskTime {
            served: true,
            ..task_time
        }));
    }
}

/// Yields if the task is over: the first line of every leaf's `poll_next`.
macro_rules! yield_if_over {
    ($context:expr) => {
        if $crate::task_time::is_over() {
            $context.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
    };
}
pub(crate) use yield_if_over;

/// A stream that gives way: to the end of a worker's task, and on a thread beside the
/// workers (`side_thread`) to that thread's other tasks, so that it can be stopped.
pub(crate) fn yielding(inner: SendableRecordBatchStream) -> SendableRecordBatchStream {
    // Counts only where Tokio runs the task.
    let inner = make_cooperative(inner);
    Box::pin(Yielding { inner })
}

struct Yielding {
    inner: SendableRecordBatchStream,
}

impl Stream for Yielding {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        yield_if_over!(context);
        let next = self.inner.poll_next_unpin(context);
        if next.is_ready() {
            serve();
        }
        next
    }
}

impl RecordBatchStream for Yielding {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_turn_ends_after_a_batch_and_leaves_nothing_behind() {
        assert!(!is_over());
        let past = Instant::now() - Duration::from_secs(1);
        until(past, || {
            assert!(!is_over(), "T1");
            serve();
            assert!(is_over());
        });
        assert!(!is_over());
        let panicked = std::panic::catch_unwind(|| {
            until(past, || {
                serve();
                panic!("an operator's");
            })
        });
        assert!(panicked.is_err() && !is_over());
        until(Instant::now() + Duration::from_secs(3600), || {
            serve();
            assert!(!is_over());
        });
    }
}
