//! What an engine gives the scheduler: pipelines, run morsel by morsel.

use std::error::Error;
use std::ops::Range;

use crate::clock::Clock;
use crate::wake::LaneWaker;

/// Why a pipeline cannot go on.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The work of one task set: an executable pipeline (Section 2.2).
///
/// Several workers call [`run`](Self::run) at the same time, each with another
/// morsel. The pipelines of a query run one after the other: a pipeline is not
/// begun before its predecessor's [`finalize`](Self::finalize) has returned.
///
/// Workers do not block. A pipeline that has to wait for something returns
/// [`Step::NoLane`].
///
/// A panic in any of these ends the query, and nothing but the query. One of the
/// destructor, or of a ticket's waker, ends nothing: the query has its result by then.
pub trait Pipeline: Send + Sync {
    /// How much there is to do, in units that take about equally long (tuples), 2^48
    /// at most; `None` if the work comes in steps that the pipeline cuts itself. Called
    /// once, after the predecessors have been finalized.
    fn units(&self) -> Option<u64>;

    /// Runs a morsel: the units of its range, or one step.
    ///
    /// What a morsel with a range returns is [`Step::More`]; the scheduler counts
    /// its units itself.
    ///
    /// # Errors
    /// Ends the query.
    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure>;

    /// Runs once, alone, after all morsels: the merge of partial results, the
    /// shuffling of partitions. Not called for queries that have failed or been
    /// cancelled.
    ///
    /// # Errors
    /// Ends the query.
    fn finalize(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// How many workers may run this at a time.
    fn lanes(&self) -> usize {
        usize::MAX
    }
}

/// What a step has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do, and this worker can do it.
    More,
    /// Nothing is left that has not been begun.
    Exhausted,
    /// There is more, but nothing that this worker could do now: every lane is
    /// taken by others or waits for something. The worker does not come back
    /// before [`Morsel::waker`] has been woken.
    ///
    /// A worker that gets this answer registers and asks once more, so a lane that
    /// became free in between is not missed. The waker has to be taken, and left
    /// with whoever frees the lane, before the pipeline looks whether there is one.
    NoLane,
}

/// A piece of a task.
pub struct Morsel<'a> {
    pub(crate) range: Range<u64>,
    pub(crate) worker: usize,
    pub(crate) deadline_ns: u64,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
    pub(crate) waker: &'a LaneWaker,
}

impl Morsel<'_> {
    /// The units to run; empty for a step.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Which worker runs this, from 0: a place for what workers keep apart.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Whether a step should end: the task's time is used up, or the query has
    /// been stopped. Reads the clock, some 20 ns.
    pub fn should_yield(&self) -> bool {
        (self.is_stopped)() || self.clock.now_ns() >= self.deadline_ns
    }

    /// What brings workers back that found no lane.
    pub fn waker(&self) -> &LaneWaker {
        self.waker
    }
}
