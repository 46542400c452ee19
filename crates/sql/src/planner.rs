//! Where plans are made: threads of their own, by tier.
//!
//! Planning is computing, seconds of it for a join of forty tables. On the threads that
//! talk to clients it would hold up every client. So statements are planned here:
//!
//! | lane | plans | threads at most |
//! | --- | --- | --- |
//! | control | statements that look like control statements (`live`) | 2 |
//! | time-sensitive | | 32: long plans share CPUs, as Linux divides them |
//! | background | | half as many as workers |
//!
//! Within a lane it goes by weight. A plan that nobody waits for any more, or whose
//! deadline has passed, ends between two rules of the optimizer: a [`Checkpoint`] stands
//! before each of them.
//!
//! P1. Whoever waits is told of the deadline by the timer, not by the thread that plans.
//!     (tested: a plan that takes seconds)
//! P2. No thread of a lane waits for a query: those that would (`CREATE TABLE … AS`) wait
//!     on their caller's runtime. (not asserted: only the three calls of `session`)
//! P3. What functions make of constants for one step of planning is bounded
//!     ([`CONSTANTS_MAX`]): the optimizer computes `repeat('x', 1000000000)`, and nothing that
//!     plans is counted as memory. (tested; `constants` says what is computed)
//!
//! Known weakness: one rule is not divided. How long it is is bounded by the statement:
//! by its operators (`statement`, `expansion`), and by P3.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use giveway_tasks::{Line, ThreadTier, Why};
use giveway_tier::{Tier, Weight};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};

use crate::error::SqlError;
use crate::statement::STACK_BYTES;
use crate::timer::{Due, Timer};

/// Threads of the control lane.
const CONTROL_THREADS: usize = 2;
/// Threads of the time-sensitive lane.
const TIME_SENSITIVE_THREADS: usize = 32;

/// P3: bytes.
const CONSTANTS_MAX: usize = 32 << 20;

/// For whom a plan is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose {
    pub(crate) is_control: bool,
    pub(crate) tier: Tier,
    pub(crate) weight: Weight,
    pub(crate) deadline: Option<Instant>,
}

/// The lanes.
pub(crate) struct Planner {
    control: Arc<Lane>,
    time_sensitive: Arc<Lane>,
    background: Arc<Lane>,
    timer: Arc<Timer>,
}

/// Something to be run on a thread of a lane.
type Job = Box<dyn FnOnce(&Runtime) + Send>;

/// A job, and for whom.
struct Waiter {
    planning: Arc<Planning>,
    job: Job,
}

struct Lane {
    name: &'static str,
    tier: Tier,
    threads_max: usize,
    /// How many jobs may wait.
    waiting: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: Line<Waiter>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Planner {
    pub(crate) fn new(workers: usize, waiting: usize, timer: Arc<Timer>) -> Planner {
        let lane = |name, tier, threads_max| {
            Arc::new(Lane {
                name,
                tier,
                threads_max,
                waiting,
                state: Mutex::default(),
                changed: Condvar::new(),
            })
        };
        let (urgent, background) = (Tier::TimeSensitive, Tier::Background);
        Planner {
            control: lane("giveway-sql-ctl", urgent, CONTROL_THREADS),
            time_sensitive: lane("giveway-sql-plan", urgent, TIME_SENSITIVE_THREADS),
            background: lane("giveway-sql-bgpl", background, (workers / 2).max(1)),
            timer,
        }
    }

    /// Runs a step of planning.
    ///
    /// # Errors
    /// The step's own, [`SqlError::DeadlineExceeded`], a panic's message, or that too many
    /// wait.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        whose: Whose,
        step: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let planning = Arc::new(Planning::default());
        let (sender, answer) = oneshot::channel();
        let job = {
            let planning = Arc::clone(&planning);
            move |runtime: &Runtime| {
                if planning.is_over.load(Relaxed) {
                    return;
                }
                PLANNING.set(Some(Arc::clone(&planning)));
                let planned = catch_unwind(AssertUnwindSafe(|| runtime.block_on(step)));
                PLANNING.set(None);
                let planned = planned.unwrap_or_else(|panic| Err(SqlError::panicked(&*panic)));
                // P3: whatever has come of the call that was refused.
                let planned = match planning.check_constants() {
                    Ok(()) => planned,
                    Err(error) => Err(SqlError::planning(error)),
                };
                // Nobody waits for it any more, perhaps.
                let _ = sender.send(planned);
            }
        };
        let lane = match (whose.is_control, whose.tier) {
            (true, _) => &self.control,
            (false, Tier::TimeSensitive) => &self.time_sensitive,
            (false, Tier::Background) => &self.background,
        };
        let waiter = Waiter {
            planning: Arc::clone(&planning),
            job: Box::new(job),
        };
        // Whoever stops waiting drops this, and so does an error: nothing is left in the lane.
        let _waiting = Waiting {
            planning: Arc::clone(&planning),
            lane: Arc::clone(lane),
        };
        lane.push(whose.weight, waiter)?;
        if let Some(deadline) = whose.deadline {
            let due = Arc::downgrade(&planning) as Weak<dyn Due>;
            self.timer.at(deadline, due);
        }
        tokio::select! {
            planned = answer => match planned {
                // P1: its checkpoints have seen the deadline before this did.
                Ok(Err(_)) | Err(_) if planning.is_over.load(Relaxed) => {
                    Err(SqlError::DeadlineExceeded)
                }
                Ok(planned) => planned,
                Err(_) => Err(SqlError::Cancelled),
            },
            () = planning.expired.notified() => Err(SqlError::DeadlineExceeded),
        }
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").finish_non_exhaustive()
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        for lane in [&self.control, &self.time_sensitive, &self.background] {
            crate::lock(&lane.state).is_over = true;
            lane.changed.notify_all();
        }
    }
}

impl Lane {
    /// Takes a job in; if no thread is free for it, starts one, or leaves it to those
    /// that there are.
    fn push(self: &Arc<Self>, weight: Weight, waiter: Waiter) -> Result<(), SqlError> {
        let mut state = crate::lock(&self.state);
        if state.jobs.len() >= self.waiting {
            return Err(SqlError::Refused(Why::Full(state.jobs.len())));
        }
        state.jobs.push(weight, waiter);
        if state.idle >= state.jobs.len() {
            self.changed.notify_one();
        } else if state.threads < self.threads_max {
            let lane = Arc::clone(self);
            let started = Builder::new_current_thread()
                .enable_time()
                .build()
                .and_then(|runtime| {
                    std::thread::Builder::new()
                        .name(self.name.to_owned())
                        .stack_size(STACK_BYTES)
                        .spawn(move || lane.work(&runtime))
                });
            match started {
                Ok(_) => state.threads += 1,
                // Another one will come to it.
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    return Err(SqlError::Execution(DataFusionError::IoError(error)));
                }
            }
        }
        Ok(())
    }

    fn work(&self, runtime: &Runtime) {
        let kernel = ThreadTier::attach();
        kernel.say(self.tier);
        let mut state = crate::lock(&self.state);
        while !state.is_over {
            if let Some(waiter) = state.jobs.pop() {
                drop(state);
                (waiter.job)(runtime);
                state = crate::lock(&self.state);
                continue;
            }
            state.idle += 1;
            state = (self.changed.wait(state)).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// A step of planning that somebody waits for.
#[derive(Default)]
struct Planning {
    /// Nobody does any more.
    is_over: AtomicBool,
    expired: Notify,
    /// P3: what has been made of constants, bytes.
    constants: AtomicUsize,
}

impl Planning {
    /// An error if nobody waits for it.
    fn check(&self) -> Result<()> {
        match self.is_over.load(Relaxed) {
            true => Err(DataFusionError::External(Box::new(SqlError::Cancelled))),
            false => self.check_constants(),
        }
    }

    /// P3.
    fn check_constants(&self) -> Result<()> {
        match self.constants.load(Relaxed) {
            0..=CONSTANTS_MAX => Ok(()),
            _ => plan_err!(
                "constants of more than {} MiB, such as repeat('x', 100000000), would be computed \
                 for the plan: put them into a table first, or compute them from a column",
                CONSTANTS_MAX >> 20
            ),
        }
    }
}

impl Due for Planning {
    fn due(&self) {
        self.is_over.store(true, Relaxed);
        self.expired.notify_one();
    }
}

struct Waiting {
    planning: Arc<Planning>,
    lane: Arc<Lane>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.planning.is_over.store(true, Relaxed);
        let mut state = crate::lock(&self.lane.state);
        let left = (state.jobs).remove(|waiter| Arc::ptr_eq(&waiter.planning, &self.planning));
        drop(state);
        // It may be large, and others wait for the lock.
        drop(left);
    }
}

thread_local! {
    /// What the thread plans.
    static PLANNING: RefCell<Option<Arc<Planning>>> = const { RefCell::new(None) };
}

/// An error if nobody waits for what this thread plans, or if it is refused.
fn check() -> Result<()> {
    PLANNING.with_borrow(|planning| {
        planning
            .as_ref()
            .map_or(Ok(()), |planning| planning.check())
    })
}

/// Whether this thread plans.
pub(crate) fn is_planning() -> bool {
    PLANNING.with_borrow(Option::is_some)
}

/// So many bytes are about to be made of constants: P3.
///
/// # Errors
/// They are not to be made: they are too many, or nobody waits for the plan.
pub(crate) fn about_to_make(bytes: usize) -> Result<()> {
    PLANNING.with_borrow(|planning| {
        let Some(planning) = planning else {
            return Ok(());
        };
        let made = planning.constants.load(Relaxed).saturating_add(bytes);
        planning.constants.store(made, Relaxed);
        planning.check()
    })
}

/// A rule that changes nothing, and ends a plan that nobody waits for or that is refused.
#[derive(Debug)]
struct Checkpoint;

impl AnalyzerRule for Checkpoint {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        check().map(|()| plan)
    }

    fn name(&self) -> &str {
        "checkpoint"
    }
}

impl OptimizerRule for Checkpoint {
    fn name(&self) -> &str {
        "checkpoint"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        check().map(|()| Transformed::no(plan))
    }
}

impl PhysicalOptimizerRule for Checkpoint {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check().map(|()| plan)
    }

    fn name(&self) -> &str {
        "checkpoint"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// DataFusion's rules, and these of its physical optimizer, with a checkpoint before each
/// of them.
pub(crate) fn with_checkpoints(
    builder: SessionStateBuilder,
    physical: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> SessionStateBuilder {
    fn spaced<T: ?Sized>(rules: Vec<Arc<T>>, checkpoint: &Arc<T>) -> Vec<Arc<T>> {
        let pairs = rules.into_iter().map(|rule| [Arc::clone(checkpoint), rule]);
        pairs.flatten().collect()
    }
    builder
        .with_analyzer_rules(spaced(Analyzer::new().rules, &(Arc::new(Checkpoint) as _)))
        .with_optimizer_rules(spaced(Optimizer::new().rules, &(Arc::new(Checkpoint) as _)))
        .with_physical_optimizer_rules(spaced(physical, &(Arc::new(Checkpoint) as _)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn plans_are_made_by_threads_of_their_tier() {
        let planner = Planner::new(2, 2, Arc::new(Timer::start().unwrap()));
        let whose = |is_control, tier| Whose {
            is_control,
            tier,
            weight: Weight::DEFAULT,
            deadline: None,
        };
        for (whose, thread) in [
            (whose(true, Tier::Background), "giveway-sql-ctl"),
            (whose(false, Tier::TimeSensitive), "giveway-sql-plan"),
            (whose(false, Tier::Background), "giveway-sql-bgpl"),
        ] {
            let step = async { Ok(std::thread::current().name().map(str::to_owned)) };
            let name = planner.run(whose, step).await.unwrap();
            assert_eq!(name.as_deref(), Some(thread), "{whose:?}");
        }
    }
}
