//! The engine: workers, memory, and the queries they are for.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use datafusion::execution::TaskContext;
use datafusion::execution::cache::cache_manager::{CacheManager, CacheManagerConfig};
use datafusion::execution::disk_manager::{DiskManager, DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::ExecutionPlan;
use giveway_tasks as tasks;
use giveway_tasks::{Policy, Pool, PoolStats, Shutdown};
use giveway_tier::Tier;
use serde::Serialize;

use crate::admission::{Admission, background_share, tables_share};
use crate::cluster::{self, Cluster, ClusterSettings, Errand, WorkerStatus};
use crate::cut::{cut, explain, spawns};
use crate::error::{BuildError, SqlError};
use crate::live;
use crate::memory::{Account, Urgent};
use crate::partition_stream::Surroundings;
use crate::planner::Planner;
use crate::progress::{Board, OperatorTurns};
use crate::query::{Query, QueryId, QueryStatus};
use crate::results::{Disk, Results};
use crate::run::{Run, Start, shown};
use crate::session::Session;
use crate::side_thread::{LateThread, SideThread};
use crate::spill::Spiller;
use crate::statement::{NODES_MAX, STACK_BYTES};
use crate::stores::Stores;
use crate::timer::{Due, Timer};

/// How an engine is made.
#[derive(Clone, Debug)]
pub struct Builder {
    pool: tasks::Builder,
    workers: usize,
    task_time: Duration,
    policy: Policy,
    memory: Option<usize>,
    spill_dir: PathBuf,
    spill_limit: u64,
    partitions: Option<usize>,
    waiting: usize,
    plan_size: usize,
    keep_background: bool,
    cluster: Option<ClusterSettings>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            pool: Pool::builder(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            task_time: Duration::from_millis(2),
            policy: Policy::default(),
            memory: None,
            spill_dir: std::env::temp_dir(),
            spill_limit: SPILL_LIMIT,
            partitions: None,
            waiting: WAITING,
            plan_size: NODES_MAX,
            keep_background: false,
            cluster: None,
        }
    }
}

/// The least memory limit.
const MEMORY_MIN: usize = 1 << 20;
/// What control statements may hold, bytes: the list of many thousand queries.
const CONTROL_MEMORY: usize = 64 << 20;
/// What unread results may take on disk by default, bytes.
const SPILL_LIMIT: u64 = 8 << 30;
/// Queries of a tier that may wait, by default.
const WAITING: usize = 2000;
/// Partitions per worker by default: hash tables of a partition are built and
/// emitted in one go by stock operators, and smaller ones take shorter.
const PARTITIONS_PER_WORKER: usize = 8;

impl Builder {
    /// How many workers; as many as CPUs by default.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = workers;
        self
    }

    /// How many queries may run at a time; 128 by default. A quarter of these is
    /// kept for time-sensitive queries. The rest waits, by tier. Lists of
    /// `giveway.queries` and `giveway_cancel` need no slot.
    pub fn slots(mut self, slots: usize) -> Builder {
        self.pool = self.pool.slots(slots);
        self
    }

    /// How many queries of each tier may wait to be planned, for memory, and for a slot;
    /// 2000 of each by default. Others are refused.
    pub fn waiting(mut self, waiting: usize) -> Builder {
        self.waiting = waiting;
        self
    }

    /// How many operators the plan of a statement may have, with the views and the queries
    /// of a `WITH` in it, each as often as it is read; 20,000 by default. Others are refused.
    pub fn plan_size(mut self, operators: usize) -> Builder {
        self.plan_size = operators;
        self
    }

    /// How long a worker stays with a query at a time (t_max); 2 ms by default.
    pub fn task_duration(mut self, task_time: Duration) -> Builder {
        self.task_time = task_time;
        self
    }

    /// The order of queries; [`Policy::Adaptive`] by default.
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// For how long queries are tracked, and how often, to tune the policy: 20 s and
    /// 60 s by default.
    pub fn tuning(mut self, tracking: Duration, refresh: Duration) -> Builder {
        self.pool = self.pool.tuning(tracking, refresh);
        self
    }

    /// How much memory all queries together may hold, bytes; no limit by default.
    /// Tables that the program registers are not counted, and those that queries of a tier
    /// create have a quarter at most. A query that asks for more ends with
    /// [`SqlError::OutOfMemory`], and a background one also if all of these together
    /// would hold more than three quarters. Time-sensitive queries may have all of it:
    /// background ones end with [`SqlError::GaveWay`] when these ask for more than is
    /// free. Background queries that come wait while more than three quarters are
    /// reserved, and time-sensitive ones while these hold as much themselves.
    pub fn memory_limit(mut self, bytes: usize) -> Builder {
        self.memory = Some(bytes);
        self
    }

    /// Ends no background query for the memory of time-sensitive ones: these end with
    /// [`SqlError::OutOfMemory`] when too little is free.
    pub fn keep_background(mut self, keep: bool) -> Builder {
        self.keep_background = keep;
        self
    }

    /// Where rows go that their client has not read for a second, and how many bytes
    /// that may be; 8 GiB in the directory for temporary files by default, 0 for none.
    /// Beyond that a query waits for its client, and keeps its slot and its memory.
    pub fn spill(mut self, dir: impl Into<PathBuf>, bytes: u64) -> Builder {
        self.spill_dir = dir.into();
        self.spill_limit = bytes;
        self
    }

    /// Into how many partitions plans of large tables split their data; 8 times the
    /// number of workers, 16 at least by default. Those of small tables have fewer.
    pub fn partitions(mut self, partitions: usize) -> Builder {
        self.partitions = Some(partitions);
        self
    }

    /// Has queries on large files run by further servers, its workers in a cluster.
    pub fn cluster(mut self, cluster: ClusterSettings) -> Builder {
        self.cluster = Some(cluster);
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// Each variant of [`BuildError`] says what to change.
    pub fn build(&self) -> Result<Engine, BuildError> {
        if let Some(bytes) = self.memory.filter(|&bytes| bytes < MEMORY_MIN) {
            return Err(BuildError::Memory(bytes));
        }
        let partitions = (self.partitions)
            .unwrap_or_else(|| (PARTITIONS_PER_WORKER * self.workers).clamp(16, 4096));
        if !(1..=4096).contains(&partitions) {
            return Err(BuildError::Partitions(partitions));
        }
        let pool = (self.pool.clone())
            .workers(self.workers)
            .stack(STACK_BYTES)
            .waiting(self.waiting)
            .task_duration(self.task_time)
            .policy(self.policy)
            .build()?;
        let memory: Arc<dyn MemoryPool> = match self.memory {
            Some(bytes) => Arc::new(GreedyMemoryPool::new(bytes)),
            None => Arc::new(UnboundedMemoryPool::default()),
        };
        let share = self.memory.map_or(usize::MAX, background_share);
        let background = Account::limited(Arc::clone(&memory), share, "background queries");
        let background = Arc::new(background);
        let tables = |pool| {
            let share = self.memory.map_or(usize::MAX, tables_share);
            Arc::new(Account::limited(pool, share, "tables in memory"))
        };
        let tables = Tables {
            time_sensitive: tables(Arc::clone(&memory)),
            background: tables(Arc::clone(&background) as Arc<dyn MemoryPool>),
        };
        // They are short: one worker, which Linux runs whatever the others do.
        let control = (Pool::builder().workers(1).policy(Policy::Fair))
            .stack(STACK_BYTES)
            .build()?;
        let timer = Arc::new(Timer::start()?);
        let cluster = self.cluster.as_ref().map(Cluster::start).transpose()?;
        Ok(Engine(Arc::new(Inner {
            pool,
            control,
            settings: self.clone(),
            partitions,
            admission: Arc::new(Admission::new(
                Arc::clone(&memory),
                Arc::clone(&background),
                self.memory,
                self.waiting,
                self.keep_background,
            )),
            memory,
            background,
            tables,
            caches: CacheManager::try_new(&caches()).expect("nothing is read"),
            no_disk: Arc::new(no_disk().build().expect("nothing is opened")),
            control_memory: Arc::new(GreedyMemoryPool::new(CONTROL_MEMORY)),
            board: Arc::default(),
            planner: Planner::new(self.workers, self.waiting, Arc::clone(&timer)),
            timer,
            spiller: Arc::new(Spiller::start(self.spill_dir.clone(), self.spill_limit)?),
            attendants: SideThread::start("giveway-sql", Tier::TimeSensitive)?,
            readers: Arc::new(SideThread::start("giveway-sql-io", Tier::TimeSensitive)?),
            ids: AtomicU64::new(1),
            cluster,
        })))
    }
}

/// Workers, memory, and queries. Cheap to clone; ends when its last clone, session and
/// query have gone.
#[derive(Clone, Debug)]
pub struct Engine(pub(crate) Arc<Inner>);

/// What an engine has done.
#[derive(Clone, Debug, Serialize)]
pub struct EngineStats {
    /// The workers' counters.
    pub pool: PoolStats,
    /// How long tasks were, by operators.
    pub turns: Vec<OperatorTurns>,
    /// What queries hold now, bytes.
    pub memory_bytes: usize,
    /// What unread results hold on disk, bytes.
    pub spilled_bytes: u64,
}

impl EngineStats {
    /// The share of tasks that took at most so many task lengths (t_max), a class of
    /// [`crate::TURN_CLASSES`].
    pub fn within(&self, lengths: f64) -> f64 {
        let classes = crate::TURN_CLASSES
            .iter()
            .filter(|&&end| end <= lengths)
            .count();
        let sum =
            |of: usize| -> u64 { self.turns.iter().flat_map(|turns| &turns.turns[..of]).sum() };
        match sum(crate::TURN_CLASSES.len() + 1) {
            0 => 1.0,
            all => sum(classes) as f64 / all as f64,
        }
    }
}

impl Engine {
    /// An engine to be changed before it is built.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A new session: tables, functions and options of its own, the engine's workers.
    pub fn session(&self) -> Session {
        Session::new(&self.0)
    }

    /// All queries that have not ended, the oldest first.
    pub fn running(&self) -> Vec<QueryStatus> {
        self.running_as_seen(Tier::TimeSensitive)
    }

    /// The same, as a login whose highest tier this is sees them: without the texts of those
    /// that have more rights.
    pub(crate) fn running_as_seen(&self, tier_max: Tier) -> Vec<QueryStatus> {
        let views = self.0.pool.queries();
        let control = self.0.control.queries();
        let runs = self.0.admission.runs();
        (runs.iter())
            .map(|run| {
                let id = run.in_pool();
                let mut views = if run.is_control { &control } else { &views }.iter();
                let mut status = run.status_with(views.find(|view| Some(view.id) == id));
                if run.options.tier_max > tier_max {
                    status.sql.clear();
                }
                status
            })
            .collect()
    }

    /// Ends a query early. False if it has ended, or never was.
    pub fn cancel(&self, id: QueryId) -> bool {
        self.cancel_below(id, Tier::TimeSensitive)
    }

    /// The same, of a query of this tier at most.
    pub(crate) fn cancel_below(&self, id: QueryId, tier_max: Tier) -> bool {
        let run = self.0.admission.find(id);
        run.is_some_and(|run| run.options.tier <= tier_max && run.cancel(SqlError::Cancelled))
    }

    /// What it has done so far.
    pub fn stats(&self) -> EngineStats {
        EngineStats {
            pool: self.0.pool.stats(),
            turns: self.0.board.read(),
            memory_bytes: (self.0.memory.reserved()).saturating_sub(self.0.tables.used()),
            spilled_bytes: self.0.spiller.used(),
        }
    }

    /// The workers of its cluster, when all of them have been asked once; none if it is
    /// in no cluster.
    pub async fn cluster(&self) -> Vec<WorkerStatus> {
        let Some(cluster) = &self.0.cluster else {
            return Vec::new();
        };
        cluster.greeted().await;
        cluster.workers()
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.0.settings.workers
    }

    /// The order of queries.
    pub fn policy(&self) -> Policy {
        self.0.settings.policy
    }

    /// Takes no more queries; those that are there go on, or end with
    /// [`SqlError::Cancelled`]. Waits for the last of them.
    pub async fn shutdown(&self, how: Shutdown) {
        self.0.admission.close();
        loop {
            let runs = self.0.admission.runs();
            if runs.is_empty() {
                return;
            }
            for run in runs {
                if how == Shutdown::Cancel {
                    run.cancel(SqlError::ShutDown);
                }
                let _ = run.report().await;
            }
        }
    }
}

/// What tables hold that queries have created, by the tier of these.
struct Tables {
    time_sensitive: Arc<Account>,
    background: Arc<Account>,
}

impl Tables {
    fn used(&self) -> usize {
        self.time_sensitive.used() + self.background.used()
    }
}

/// What sessions and queries share.
pub(crate) struct Inner {
    pool: Pool,
    /// Runs control statements, which wait for no slot and no worker.
    control: Pool,
    settings: Builder,
    pub(crate) partitions: usize,
    pub(crate) admission: Arc<Admission>,
    pub(crate) memory: Arc<dyn MemoryPool>,
    /// What background queries have of it.
    background: Arc<Account>,
    tables: Tables,
    /// What plans are told of disks: there is none.
    no_disk: Arc<DiskManager>,
    /// Footers of files, for all sessions: each would have room for as many.
    caches: Arc<CacheManager>,
    control_memory: Arc<dyn MemoryPool>,
    board: Arc<Board>,
    timer: Arc<Timer>,
    spiller: Arc<Spiller>,
    pub(crate) planner: Planner,
    attendants: SideThread,
    readers: Arc<SideThread>,
    ids: AtomicU64,
    pub(crate) cluster: Option<Cluster>,
}

impl Inner {
    /// What plans are run with; object stores are the sessions' own.
    pub(crate) fn environment(&self) -> Arc<RuntimeEnv> {
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::clone(&self.memory))
            .with_object_store_registry(Arc::new(Stores::new(&self.readers)))
            .with_disk_manager_builder(no_disk())
            .build();
        let mut environment = environment.expect("nothing is opened");
        environment.cache_manager = Arc::clone(&self.caches);
        Arc::new(environment)
    }

    /// How many operators a plan may have.
    pub(crate) fn plan_size(&self) -> usize {
        self.settings.plan_size
    }

    /// The memory of what queries of a tier have before they are submitted.
    pub(crate) fn pool_for(&self, tier: Tier) -> Arc<dyn MemoryPool> {
        match tier {
            Tier::TimeSensitive => Arc::clone(&self.memory),
            Tier::Background => Arc::clone(&self.background) as Arc<dyn MemoryPool>,
        }
    }

    /// The memory of tables that queries of a tier create.
    pub(crate) fn account_of_tables(&self, tier: Tier) -> Arc<dyn MemoryPool> {
        let account = match tier {
            Tier::TimeSensitive => &self.tables.time_sensitive,
            Tier::Background => &self.tables.background,
        };
        Arc::clone(account) as Arc<dyn MemoryPool>
    }

    pub(crate) fn submit(mut query: Query) -> Result<Arc<Run>, SqlError> {
        let began = Instant::now();
        // From now on it is the query's own matter.
        query.kept = None;
        if let Some(cluster) = &query.engine.cluster
            && cluster::is_divided(&query.plan)
        {
            let errand = query.errand(began);
            query.plan =
                cluster::own_part(query.plan, cluster, errand).map_err(SqlError::running)?;
        }
        let engine = &query.engine;
        let is_control = query.shelf.is_none() && live::is_control(&query.logical);
        let memory: Arc<dyn MemoryPool> = match (is_control, query.options.tier) {
            (true, _) => Arc::clone(&engine.control_memory),
            (false, Tier::TimeSensitive) => Arc::new(Urgent::new(
                Arc::clone(&engine.memory),
                Arc::clone(&engine.admission),
            )),
            (false, Tier::Background) => engine.pool_for(Tier::Background),
        };
        let account = Arc::new(Account::new(memory));
        let may_spill = !is_control && engine.settings.spill_limit > 0;
        let disk = may_spill.then(|| Disk {
            spiller: Arc::clone(&engine.spiller),
            timer: Arc::clone(&engine.timer),
            tier: query.options.tier,
        });
        let results = Results::new(&account, disk);
        let side_thread = Arc::new(match spawns(&query.plan) {
            // D2 of `side_thread`.
            true => LateThread::new(query.options.tier),
            false => LateThread::shared(&engine.readers),
        });
        let surroundings = Surroundings {
            context: Arc::new(query.context_of_workers(&account)),
            task_time: engine.settings.task_time,
            side_thread,
        };
        let mut options = query.options;
        let is_late = match &mut options.deadline {
            Some(deadline) => {
                *deadline = deadline.saturating_sub(query.planning);
                deadline.is_zero()
            }
            None => false,
        };
        if is_late {
            return Err(SqlError::DeadlineExceeded);
        }
        let text = shown(&query.text);
        let mut task = tasks::Query::new(text.clone())
            .tier(options.tier)
            .weight(options.weight);
        if query.is_static {
            task = task.static_priority();
        }
        let shelf = query.shelf.as_deref();
        let cut = cut(
            query.plan,
            task,
            &results,
            shelf,
            &surroundings,
            &engine.board,
        )
        .map_err(SqlError::planning)?;
        let run = Arc::new(Run::new(
            QueryId(engine.ids.fetch_add(1, Relaxed)),
            text,
            options,
            is_control,
            results,
            account,
            cut.stages,
            Arc::downgrade(engine),
        ));
        if let Some(deadline) = run.options.deadline {
            let due = Arc::downgrade(&run) as Weak<dyn Due>;
            engine.timer.at(run.began + deadline, due);
        }
        let start = match engine.admission.enter(&run)? {
            Some(admitted) => Start::Later(cut.query, admitted),
            None => match run.start(engine, cut.query) {
                Ok(ticket) => Start::Now(ticket),
                Err(error) => {
                    engine.admission.left(run.id);
                    return Err(error);
                }
            },
        };
        (engine.attendants).spawn(Arc::clone(&run).attend(Arc::clone(engine), start));
        Ok(run)
    }

    /// The pipelines of a plan, as text.
    pub(crate) fn explain(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
    ) -> datafusion::common::Result<String> {
        let surroundings = Surroundings {
            context,
            task_time: self.settings.task_time,
            side_thread: Arc::new(LateThread::shared(&self.readers)),
        };
        explain(plan, &surroundings)
    }

    /// The pool that runs a query.
    pub(crate) fn pool_of(&self, run: &Run) -> &Pool {
        match run.is_control {
            true => &self.control,
            false => &self.pool,
        }
    }
}

/// Footers are kept, and checked by the sizes and times of their files. Lists of files are
/// not: DataFusion keeps them for ever, and forgets that of a table when an `INSERT` into it
/// is planned, before there is any new file.
fn caches() -> CacheManagerConfig {
    CacheManagerConfig::default().with_list_files_cache_limit(0)
}

/// A disk manager that opens nothing: nothing is spilled (`memory`).
fn no_disk() -> DiskManagerBuilder {
    DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled)
}

impl Query {
    /// What a cluster's workers are told of it beside the plan.
    fn errand(&self, began: Instant) -> Errand {
        let deadline = self.options.deadline;
        let left = deadline.map(|deadline| deadline.saturating_sub(self.planning));
        Errand::new(
            self.text.clone(),
            self.options.clone(),
            left.map(|left| began + left),
            self.state.config_options(),
        )
    }

    /// What the plan is run with: the session's, with an account of its own.
    pub(crate) fn context(&self, account: &Arc<Account>) -> TaskContext {
        let context = TaskContext::from(&self.state);
        let environment = RuntimeEnv {
            memory_pool: Arc::clone(account) as Arc<dyn MemoryPool>,
            // Whatever the session's is.
            disk_manager: Arc::clone(&self.engine.no_disk),
            ..(*context.runtime_env()).clone()
        };
        context.with_runtime(Arc::new(environment))
    }

    /// The same, for the engine's workers.
    fn context_of_workers(&self, account: &Arc<Account>) -> TaskContext {
        let context = self.context(account);
        let mut config = context.session_config().clone();
        // Streams of stock joins would wait for each other's builds: `join::filter`.
        let optimizer = &mut config.options_mut().optimizer;
        optimizer.enable_join_dynamic_filter_pushdown = false;
        context.with_session_config(config)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::MemoryConsumer;

    #[test]
    fn tables_are_counted_in_their_tier_and_not_as_queries() {
        let engine = Engine::builder().workers(1).memory_limit(64 << 20).build();
        let engine = engine.unwrap();
        for (tier, of_background) in [(Tier::TimeSensitive, 0), (Tier::Background, 1 << 20)] {
            let account = engine.0.account_of_tables(tier);
            let table = MemoryConsumer::new("table").register(&account);
            table.try_grow(1 << 20).unwrap();
            assert_eq!(engine.0.memory.reserved(), 1 << 20, "{tier}");
            assert_eq!(engine.0.background.used(), of_background, "{tier}");
            assert_eq!(engine.stats().memory_bytes, 0, "{tier}");
            assert!(table.try_grow(16 << 20).is_err(), "a quarter, {tier}");
        }
    }
}
