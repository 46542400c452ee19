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
//! T2. On a thread beside the workers (`side_thread`), where Tokio polls, nobody says when
//!     a task begins. A turn of [`TURN`] begins there when a leaf is first asked, and ends
//!     when one yields; so what runs there can be stopped, too. (tested)
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
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures_util::{Stream, StreamExt};

/// T2: about as long as a task of a worker.
const TURN: Duration = Duration::from_millis(2);

thread_local! {
    /// The end of the task, and whether a batch has been given out since it began.
    static TASK: Cell<Option<TaskTime>> = const { Cell::new(None) };
    /// Whether turns begin by themselves: T2.
    static TAKES_TURNS: Cell<bool> = const { Cell::new(false) };
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

/// From now on, what this thread runs goes in turns: T2.
pub(crate) fn take_turns() {
    TAKES_TURNS.set(true);
}

/// Whether a leaf has to yield; if so, the caller does. Never outside of tasks and turns:
/// the same plan runs on stock DataFusion undisturbed.
pub(crate) fn is_over() -> bool {
    let Some(task_time) = TASK.get() else {
        if TAKES_TURNS.get() {
            let end = Instant::now() + TURN;
            TASK.set(Some(TaskTime { end, served: false }));
        }
        return false;
    };
    // T1.
    let is_over = task_time.served && Instant::now() >= task_time.end;
    if is_over && TAKES_TURNS.get() {
        TASK.set(None);
    }
    is_over
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

/// A stream that yields at the end of a task or turn.
pub(crate) fn yielding(inner: SendableRecordBatchStream) -> SendableRecordBatchStream {
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
    #[test]
    fn a_thread_that_takes_turns_yields_and_begins_anew() {
        assert!(
            !is_over() && end().is_none(),
            "no turn without being asked for"
        );
        let taking = || {
            take_turns();
            let mut yields = 0;
            let until = Instant::now() + 10 * TURN;
            while Instant::now() < until {
                serve();
                if is_over() {
                    yields += 1;
                    assert!(!is_over(), "T2: the next turn has begun");
                }
            }
            yields
        };
        let yields = std::thread::spawn(taking).join().unwrap();
        assert!((1..=10).contains(&yields), "T2: {yields}");
    }
}
