//! A pipeline: partition streams of a plan, polled by workers in turns.
//!
//! Each partition of the plan below a cut is a *lane*: a stream and what takes its
//! batches. A worker takes a ready lane, polls it until its turn is over, and puts it
//! back; a lane that waits for something is out of reach until its waker calls.
//!
//! ```text
//!           take                 the turn is over, or it woke itself
//!  READY ─────────▶ RUNNING ─────────────────────────────▶ READY
//!    ▲                 │ Pending, and nobody has woken it
//!    │      wake       ▼
//!    └───────────── BLOCKED          the stream has ended ─▶ DONE
//! ```
//!
//! L1. A lane is polled by one worker at a time: whoever has taken it holds its
//!     stream, and it is not among the ready ones.
//! L2. No wake is lost: one that comes while the lane runs is noted, and the lane is
//!     ready when it is put back.
//! L3. Whenever a lane becomes ready, workers that found none are called.
//! L4. The newest ready lane is taken first. So no more lanes are open at a time than
//!     there are workers and blocked lanes, and lanes that share a cursor find it
//!     exhausted: partial results are as many as workers, not as lanes.
//! L5. A lane that has ended has let go of its stream and of all that this held.
//!
//! The lock is taken twice a turn, for some dozens of nanoseconds in 2 ms.

use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures_util::StreamExt;
use giveway_tasks::{Failure, LaneWaker, Morsel, Pipeline, Step};

use crate::aside::Aside;
use crate::progress::Stage;
use crate::turn;

/// What takes the batches of a pipeline.
pub(crate) trait Sink: Send + Sync {
    /// What takes those of one lane.
    fn lane(&self, lane: usize) -> Result<Box<dyn SinkLane>>;

    /// Whether no more are wanted.
    fn is_full(&self) -> bool {
        false
    }

    /// All lanes are done.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// What takes the batches of one lane.
pub(crate) trait SinkLane: Send {
    /// Whether there is room for a batch.
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()>;

    /// The lane's stream has ended.
    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What all pipelines of a query have in common.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) context: Arc<TaskContext>,
    /// How long a turn is (t_max).
    pub(crate) turn: Duration,
    /// Entered for each poll: what a plan spawns runs there, and readers of files do
    /// their blocking.
    pub(crate) aside: Arc<Aside>,
}

/// A pipeline of the scheduler made of lanes.
pub(crate) struct LanePipeline(Arc<Lanes>);

struct Lanes {
    /// Until all lanes have ended: it has tables and exchanges.
    plan: Mutex<Option<Arc<dyn ExecutionPlan>>>,
    sink: Arc<dyn Sink>,
    surroundings: Surroundings,
    stage: Arc<Stage>,
    state: Mutex<State>,
}

struct State {
    /// Newest last: L4.
    ready: Vec<usize>,
    lanes: Vec<Lane>,
    /// Lanes that are not done.
    live: usize,
}

enum Lane {
    Ready(Open),
    Running { is_woken: bool },
    Blocked(Open),
    Done,
}

/// What a lane is while nobody polls it; `None` before its first turn.
type Open = Option<(SendableRecordBatchStream, Box<dyn SinkLane>)>;

impl LanePipeline {
    pub(crate) fn new(
        plan: Arc<dyn ExecutionPlan>,
        sink: Arc<dyn Sink>,
        surroundings: Surroundings,
        stage: Arc<Stage>,
    ) -> LanePipeline {
        let lanes = plan.output_partitioning().partition_count();
        let state = State {
            ready: (0..lanes).rev().collect(),
            lanes: (0..lanes).map(|_| Lane::Ready(None)).collect(),
            live: lanes,
        };
        LanePipeline(Arc::new(Lanes {
            plan: Mutex::new(Some(plan)),
            sink,
            surroundings,
            stage,
            state: Mutex::new(state),
        }))
    }
}

impl Pipeline for LanePipeline {
    fn units(&self) -> Option<u64> {
        None
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        let began = Instant::now();
        let step = self.turn(morsel, began + self.0.surroundings.turn)?;
        if step != Step::NoLane {
            let turn = self.0.surroundings.turn;
            self.0.stage.overruns.count(began.elapsed(), turn);
        }
        Ok(step)
    }

    fn finalize(&self) -> Result<(), Failure> {
        self.0.stage.finish();
        crate::lock(&self.0.plan).take();
        Ok(self.0.sink.finish()?)
    }
}

impl LanePipeline {
    /// Polls lanes until the end of the turn, or until none is ready.
    fn turn(&self, morsel: &Morsel<'_>, end: Instant) -> Result<Step, Failure> {
        let lanes = &self.0;
        // Before the first look: see `Step::NoLane`.
        let workers = morsel.waker();
        let mut ran = false;
        loop {
            let Some((index, mut open)) = lanes.take() else {
                return Ok(match (lanes.is_done(), ran) {
                    (true, _) => Step::Exhausted,
                    (false, true) => Step::More,
                    (false, false) => Step::NoLane,
                });
            };
            ran = true;
            let waker = Waker::from(Arc::new(LaneWake {
                lanes: Arc::downgrade(lanes),
                index,
                workers: workers.clone(),
            }));
            let context = &mut Context::from_waker(&waker);
            let poll = turn::until(end, || {
                let _entered = lanes.surroundings.aside.enter();
                lanes.poll(index, &mut open, context)
            });
            match poll? {
                Poll::Ready(()) => {
                    // L5.
                    drop(open);
                    lanes.end(index);
                }
                Poll::Pending => lanes.put_back(index, open, workers),
            }
            if Instant::now() >= end {
                return Ok(match lanes.is_done() {
                    true => Step::Exhausted,
                    false => Step::More,
                });
            }
        }
    }
}

impl Lanes {
    fn is_done(&self) -> bool {
        crate::lock(&self.state).live == 0
    }

    /// L1, L4.
    fn take(&self) -> Option<(usize, Open)> {
        let mut state = crate::lock(&self.state);
        let index = state.ready.pop()?;
        match std::mem::replace(&mut state.lanes[index], Lane::Running { is_woken: false }) {
            Lane::Ready(open) => Some((index, open)),
            _ => unreachable!("among the ready lanes, and not ready"),
        }
    }

    /// Runs a lane until it has ended, waits for something, or the turn is over.
    fn poll(&self, index: usize, open: &mut Open, context: &mut Context<'_>) -> Result<Poll<()>> {
        if self.sink.is_full() {
            return Ok(Poll::Ready(()));
        }
        let (stream, sink) = match open {
            Some(open) => open,
            none => {
                let plan = crate::lock(&self.plan).clone();
                let plan = plan.expect("held until all lanes have ended");
                let stream = plan.execute(index, Arc::clone(&self.surroundings.context))?;
                none.insert((stream, self.sink.lane(index)?))
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
                    if turn::is_over() {
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
        let is_woken = match state.lanes[index] {
            Lane::Running { is_woken } => is_woken,
            _ => unreachable!("L1"),
        };
        if !is_woken {
            state.lanes[index] = Lane::Blocked(open);
            return;
        }
        // L2, L3.
        state.lanes[index] = Lane::Ready(open);
        state.ready.push(index);
        drop(state);
        workers.wake();
    }

    fn end(&self, index: usize) {
        let mut state = crate::lock(&self.state);
        state.lanes[index] = Lane::Done;
        state.live -= 1;
        self.stage.lane_ended();
    }
}

/// A lane's waker.
struct LaneWake {
    lanes: Weak<Lanes>,
    index: usize,
    workers: LaneWaker,
}

impl Wake for LaneWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(lanes) = self.lanes.upgrade() else {
            return;
        };
        let mut state = crate::lock(&lanes.state);
        let lane = &mut state.lanes[self.index];
        match lane {
            // L2.
            Lane::Running { is_woken } => *is_woken = true,
            Lane::Blocked(open) => {
                *lane = Lane::Ready(open.take());
                state.ready.push(self.index);
                drop(state);
                // L3.
                self.workers.wake();
            }
            Lane::Ready(_) | Lane::Done => {}
        }
    }
}
