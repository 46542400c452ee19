//! How long an operator may go on: the end of a worker's turn.
//!
//! DataFusion's operators are streams that pull. Some pull all of their input in one
//! poll (aggregation, sorting, the build of a join), so whoever polls them cannot
//! stop them; who can is the leaf that they pull from. The worker notes when its task
//! is over, every leaf looks before it gives out a batch, and if the time has come it
//! answers `Pending` and wakes itself. All operators in between pass that on, and the
//! worker has the lane back.
//!
//! T1. A poll that finds time left lets each leaf give out a batch before it looks:
//!     every poll makes progress, also where an operator above takes longer than a
//!     turn before it first asks.
//!
//! The end is kept by thread, and not in the plan, because streams are not always
//! polled for the partition they were opened for: the build of a join belongs to
//! whichever lane asks next.
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
use futures_util::{Stream, StreamExt};

thread_local! {
    /// The end of the turn, and whether a batch has been given out since it began.
    static TURN: Cell<Option<Turn>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Turn {
    end: Instant,
    served: bool,
}

/// Runs `f` as a turn that ends then.
pub(crate) fn until<R>(end: Instant, f: impl FnOnce() -> R) -> R {
    /// Also after a panic nothing is left behind.
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            TURN.set(None);
        }
    }
    let _clear = Clear;
    TURN.set(Some(Turn { end, served: false }));
    f()
}

/// Whether a leaf has to give way. Never outside of a turn: the same plan runs on
/// stock DataFusion undisturbed.
pub(crate) fn is_over() -> bool {
    TURN.get()
        // T1.
        .is_some_and(|turn| turn.served && Instant::now() >= turn.end)
}

/// When the present turn ends, which tells it from others.
pub(crate) fn end() -> Option<Instant> {
    TURN.get().map(|turn| turn.end)
}

/// A batch is being given out.
pub(crate) fn serve() {
    if let Some(turn) = TURN.get() {
        TURN.set(Some(Turn {
            served: true,
            ..turn
        }));
    }
}

/// Gives way if it is time: the first line of every leaf's `poll_next`.
macro_rules! give_way {
    ($context:expr) => {
        if $crate::turn::is_over() {
            $context.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
    };
}
pub(crate) use give_way;

/// A stream that gives way.
pub(crate) fn yielding(inner: SendableRecordBatchStream) -> SendableRecordBatchStream {
    Box::pin(Yielding { inner })
}

struct Yielding {
    inner: SendableRecordBatchStream,
}

impl Stream for Yielding {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        give_way!(context);
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
