//! Input in slices, for operators that take long over every row of it.
//!
//! A nested-loop join sets each row of its right side against all of the left one, in
//! one poll per batch: with 100 000 rows on the left that is some seconds. It can only
//! be stopped when it asks for more, so it is given less at a time. How much less is
//! found out like the size of a morsel (Section 3.1 of the paper): by what the last
//! slice took, towards a quarter of a task.
//!
//! S1. Only a slice after which the next one is asked for in the same task is measured:
//!     between tasks the stream waits while others run. (not asserted: `poll_next` tests
//!     just this)
//! S2. A slice has at least one row, and at most twice as many as the last one.
//!     (asserted in `poll_next` and `learn`)
//!
//! Known weakness: a row is not divided. With ten million rows on the left it takes
//! longer than a task.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures_util::{Stream, StreamExt};

use crate::task_time::{self, serve, yield_if_over};

/// Rows of the first slice.
const ROWS_FIRST: usize = 64;
/// Slices of a task.
const SLICES: u32 = 4;

/// A stream in slices, for tasks of this length.
pub(crate) fn slicing(
    input: SendableRecordBatchStream,
    task_time: Duration,
) -> SendableRecordBatchStream {
    Box::pin(Slicing {
        input,
        rest: None,
        size: Size::new(task_time / SLICES),
        given: None,
    })
}

struct Slicing {
    input: SendableRecordBatchStream,
    /// What is left of the last batch.
    rest: Option<RecordBatch>,
    size: Size,
    /// When the last slice was given out, and the end of the task it was in.
    given: Option<(Instant, Instant)>,
}

/// How many rows the next slice has.
struct Size {
    rows: usize,
    wanted: Duration,
}

impl Size {
    fn new(wanted: Duration) -> Size {
        Size {
            rows: ROWS_FIRST,
            wanted,
        }
    }

    /// So many rows took that long: S2.
    fn learn(&mut self, took: Duration) {
        let scale = self.wanted.as_secs_f64() / took.as_secs_f64().max(1e-9);
        let rows = ((self.rows as f64 * scale.min(2.0)) as usize).max(1);
        debug_assert!(
            rows <= 2 * self.rows,
            "S2: from {} rows to {rows}",
            self.rows
        );
        self.rows = rows;
    }
}

impl Stream for Slicing {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let now = Instant::now();
        if let Some((at, end)) = self.given.take()
            // S1.
            && task_time::end() == Some(end)
        {
            self.size.learn(now - at);
        }
        yield_if_over!(context);
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => match ready!(self.input.poll_next_unpin(context)) {
                Some(batch) => batch?,
                None => return Poll::Ready(None),
            },
        };
        serve();
        let rows = self.size.rows.min(batch.num_rows());
        debug_assert!(
            rows > 0 || batch.num_rows() == 0,
            "S2: a slice without rows"
        );
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        // A short slice tells nothing of one of full size.
        if rows == self.size.rows {
            self.given = task_time::end().map(|end| (Instant::now(), end));
        }
        Poll::Ready(Some(Ok(batch.slice(0, rows))))
    }
}

impl RecordBatchStream for Slicing {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures_util::stream;

    #[test]
    fn slices_grow_and_shrink_with_what_they_take() {
        let mut size = Size::new(Duration::from_micros(500));
        size.learn(Duration::from_micros(1));
        assert_eq!(size.rows, 2 * ROWS_FIRST, "S2");
        size.learn(Duration::from_micros(1000));
        assert_eq!(size.rows, ROWS_FIRST);
        size.learn(Duration::from_secs(1));
        assert_eq!(size.rows, 1, "S2");
        size.learn(Duration::from_micros(400));
        assert_eq!(size.rows, 1);
        size.learn(Duration::ZERO);
        assert_eq!(size.rows, 2);
    }

    #[test]
    fn nothing_is_lost_and_every_slice_can_be_the_last_of_its_turn() {
        let batch = |from: i64, to: i64| {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
            RecordBatch::try_from_iter([("number", numbers)]).unwrap()
        };
        let batches = [batch(0, 300), batch(300, 310)];
        let mut slicing = Slicing {
            input: Box::pin(RecordBatchStreamAdapter::new(
                batches[0].schema(),
                stream::iter(batches.map(Ok)),
            )),
            rest: None,
            size: Size::new(Duration::ZERO),
            given: None,
        };
        let context = &mut Context::from_waker(std::task::Waker::noop());
        let (mut seen, mut turns) = (Vec::new(), 0);
        let mut is_over = false;
        while !is_over {
            turns += 1;
            task_time::until(Instant::now() - Duration::from_secs(1), || {
                while let Poll::Ready(slice) = slicing.poll_next_unpin(context) {
                    let Some(slice) = slice else {
                        is_over = true;
                        return;
                    };
                    let slice = slice.unwrap();
                    seen.extend_from_slice(slice.column(0).as_primitive::<Int64Type>().values());
                }
            });
        }
        assert_eq!(seen, (0..310).collect::<Vec<i64>>());
        assert!(turns > 5, "{turns}");
    }
}
