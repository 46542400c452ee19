//! A pipeline of partition streams, which workers poll for a task each.
//!
//! Each partition of the plan below a cut is a *partition stream*: DataFusion's stream
//! with the sink that takes its batches. A worker takes a ready one, polls it until its
//! task is over, and puts it back; one that waits for something cannot be taken until its
//! waker is called.
//!
//! ```text
//!           take                 the task is over, or it woke itself
//!  READY ─────────▶ RUNNING ─────────────────────────────▶ READY
//!    ▲                 │ Pending, and not woken meanwhile
//!    │      wake       ▼
//!    └───────────── BLOCKED          the stream has ended ─▶ DONE
//! ```
//!
//! L1. A partition stream is polled by one worker at a time: the worker that has taken it
//!     owns it, and it is not among the ready ones.
//!     (asserted in `take`, `put_back`, `end` and `State::check`)
//! L2. No wake-up is lost: one that comes while the stream runs is noted, and the stream
//!     is ready when it is put back. (not asserted: a waker does not know what the stream
//!     has read before)
//! L3. Whenever a stream becomes ready, workers that found none are called.
//!     (not asserted: `tasks` knows which workers found none; its `models` test the call)
//! L4. The stream that became ready last is taken first. So no more streams are open at a
//!     time than there are workers and blocked streams, and streams that share a cursor
//!     find it exhausted: there are as many partial results as workers, not as streams.
//!     (not asserted: `ready` is a stack)
//! L5. A partition stream that has ended has dropped DataFusion's stream and all that this
//!     held. (asserted in `finalize`: all are done, and one that is done has no stream)
//!
//! The lock is taken twice per task, for some dozens of nanoseconds in 2 ms.

use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures_util::StreamExt;
use giveway_tasks::{Failure, LaneWaker, Morsel, Pipeline, Step};

use crate::progress::Stage;
use crate::side_thread::LateThread;
use crate::task_time;

/// What takes the batches of a pipeline.
pub(crate) trait Sink: Send + Sync {
    /// What takes those of one stream.
    fn stream_sink(&self, stream: usize) -> Result<Box<dyn StreamSink>>;

    /// Whether no more are wanted.
    fn is_full(&self) -> bool {
        false
    }

    /// All streams are done.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// What takes the batches of one stream.
pub(crate) trait StreamSink: Send {
    /// Whether there is room for a batch.
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()>;

    /// The stream has ended.
    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What all pipelines of a query have in common.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) context: Arc<TaskContext>,
    /// How long a task is (t_max).
    pub(crate) task_time: Duration,
    /// Entered for each poll: what a plan spawns runs there, and readers of files do
    /// their blocking.
    pub(crate) side_thread: Arc<LateThread>,
}

/// A pipeline of the scheduler made of streams.
pub(crate) struct StreamPipeline(Arc<PartitionStreams>);

struct PartitionStreams {
    /// Until all streams have ended: it has tables and exchanges.
    plan: Mutex<Option<Arc<dyn ExecutionPlan>>>,
    sink: Arc<dyn Sink>,
    surroundings: Surroundings,
    stage: Arc<Stage>,
    state: Mutex<State>,
}

struct State {
    /// Newest last: L4.
    ready: Vec<usize>,
    streams: Vec<PartitionStream>,
    /// Streams that are not done.
    live: usize,
}

enum PartitionStream {
    Ready(Open),
    Running { is_woken: bool },
    Blocked(Open),
    Done,
}

/// A partition stream while no worker polls it; `None` before its first task.
type Open = Option<(SendableRecordBatchStream, Box<dyn StreamSink>)>;

impl State {
    /// L1, before the lock is released.
    fn check(&self) {
        debug_assert_eq!(
            self.ready.len(),
            (self.streams.iter())
                .filter(|stream| matches!(stream, PartitionStream::Ready(_)))
                .count(),
            "L1: the list of ready streams"
        );
    }
}

impl StreamPipeline {
    pub(crate) fn new(
        plan: Arc<dyn ExecutionPlan>,
        sink: Arc<dyn Sink>,
        surroundings: Surroundings,
        stage: Arc<Stage>,
    ) -> StreamPipeline {
        let streams = plan.output_partitioning().partition_count();
        let state = State {
            ready: (0..streams).rev().collect(),
            streams: (0..streams).map(|_| PartitionStream::Ready(None)).collect(),
            live: streams,
        };
        StreamPipeline(Arc::new(PartitionStreams {
            plan: Mutex::new(Some(plan)),
            sink,
            surroundings,
            stage,
            state: Mutex::new(state),
        }))
    }
}

impl Pipeline for StreamPipeline {
    fn units(&self) -> Option<u64> {
        None
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        let began = Instant::now();
        let step = self.run_until(morsel, began + self.0.surroundings.task_time)?;
        if step != Step::NoLane {
            let task_time = self.0.surroundings.task_time;
            self.0.stage.overruns.count(began.elapsed(), task_time);
        }
        Ok(step)
    }

    fn finalize(&self) -> Result<(), Failure> {
        self.0.stage.finish();
        debug_assert!(
            (crate::lock(&self.0.state).streams.iter())
                .all(|stream| matches!(stream, PartitionStream::Done)),
            "L5: finalized before all streams are done"
        );
        crate::lock(&self.0.plan).take();
        Ok(self.0.sink.finish()?)
    }
}

impl StreamPipeline {
    /// Polls streams until the end of the task, or until none is ready.
    fn run_until(&self, morsel: &Morsel<'_>, end: Instant) -> Result<Step, Failure> {
        let streams = &self.0;
        // Before the first look: see `Step::NoLane`.
        let workers = morsel.waker();
        let mut ran = false;
        loop {
            let Some((index, mut open)) = streams.take() else {
                return Ok(match (streams.is_done(), ran) {
                    (true, _) => Step::Exhausted,
                    (false, true) => Step::More,
                    (false, false) => Step::NoLane,
                });
            };
            ran = true;
            let waker = Waker::from(Arc::new(StreamWake {
                streams: Arc::downgrade(streams),
                index,
                workers: workers.clone(),
            }));
            let context = &mut Context::from_waker(&waker);
            let poll = task_time::until(end, || {
                let _entered = streams.surroundings.side_thread.enter()?;
                streams.poll(index, &mut open, context)
            });
            match poll? {
                Poll::Ready(()) => {
                    // L5.
                    drop(open);
                    streams.end(index);
                }
                Poll::Pending => streams.put_back(index, open, workers),
            }
            if Instant::now() >= end {
                return Ok(match streams.is_done() {
                    true => Step::Exhausted,
                    false => Step::More,
                });
            }
        }
    }
}

impl PartitionStreams {
    fn is_done(&self) -> bool {
        crate::lock(&self.state).live == 0
    }

    /// L1, L4.
    fn take(&self) -> Option<(usize, Open)> {
        let mut state = crate::lock(&self.state);
        let index = state.ready.pop()?;
        match std::mem::replace(
            &mut state.streams[index],
            PartitionStream::Running { is_woken: false },
        ) {
            PartitionStream::Ready(open) => {
                state.check();
                Some((index, open))
            }
            _ => unreachable!("among the ready streams, and not ready"),
        }
    }

    /// Runs a stream until it has ended, waits for something, or the task is over.
    fn poll(&self, index: usize, open: &mut Open, context: &mut Context<'_>) -> Result<Poll<()>> {
        if self.sink.is_full() {
            return Ok(Poll::Ready(()));
        }
        let (stream, sink) = match open {
            Some(open) => open,
            none => {
                let plan = crate::lock(&self.plan).clone();
                let plan = plan.expect("held until all streams have ended");
                let stream = plan.execute(index, Arc::clone(&self.surroundings.context))?;
                none.insert((stream, self.sink.stream_sink(index)?))
            }
        };
        loop {
            if sink.poll_room(context).is_pending() {
                return Ok(Poll::Pending);
            }
            match stream.poll_next_unpin(context) {
                Poll::Ready(Some(batch)) => {
                    let batch = batch?;
                    sink.push(batch)?;
                    if self.sink.is_full() {
                        return Ok(Poll::Ready(()));
                    }
                    if task_time::is_over() {
                        context.waker().wake_by_ref();
                        return Ok(Poll::Pending);
                    }
                }
                Poll::Ready(None) => {
                    sink.close()?;
                    return Ok(Poll::Ready(()));
                }
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
    }

    fn put_back(&self, index: usize, open: Open, workers: &LaneWaker) {
        let mut state = crate::lock(&self.state);
        let is_woken = match state.streams[index] {
            PartitionStream::Running { is_woken } => is_woken,
            _ => unreachable!("L1"),
        };
        if !is_woken {
            state.streams[index] = PartitionStream::Blocked(open);
            return;
        }
        // L2, L3.
        state.streams[index] = PartitionStream::Ready(open);
        state.ready.push(index);
        state.check();
        drop(state);
        workers.wake();
    }

    fn end(&self, index: usize) {
        let mut state = crate::lock(&self.state);
        debug_assert!(
            matches!(state.streams[index], PartitionStream::Running { .. }),
            "L1: a stream ends that no worker has taken"
        );
        state.streams[index] = PartitionStream::Done;
        state.live -= 1;
        self.stage.stream_ended();
    }
}

/// A stream's waker.
struct StreamWake {
    streams: Weak<PartitionStreams>,
    index: usize,
    workers: LaneWaker,
}

impl Wake for StreamWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(streams) = self.streams.upgrade() else {
            return;
        };
        let mut state = crate::lock(&streams.state);
        let stream = &mut state.streams[self.index];
        match stream {
            // L2.
            PartitionStream::Running { is_woken } => *is_woken = true,
            PartitionStream::Blocked(open) => {
                *stream = PartitionStream::Ready(open.take());
                state.ready.push(self.index);
                state.check();
                drop(state);
                // L3.
                self.workers.wake();
            }
            PartitionStream::Ready(_) | PartitionStream::Done => {}
        }
    }
}
