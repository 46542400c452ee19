//! A query on several workers: its stages, from the leaves to the coordinator's own plan.
//!
//! ```text
//!   stage 1 ─┐                        each part: sent when all parts of the stages below
//!   stage 2 ─┴▶ stage 3 ─▶ own plan   it are done; its worker keeps the rows (`shelf`)
//! ```
//!
//! A stage begins when those that it reads are done, as a pipeline does on one machine
//! (`exchange`). So no part waits for another while it has a slot or memory, and workers
//! that are full do not block each other.
//!
//! The calls that run parts stay open, and are watched: when one ends, its worker has gone,
//! and the query with it. When the query ends, for whatever reason, its plan is dropped,
//! and with it this, which closes the calls: workers end what still runs, and let go of
//! the rows.
//!
//! K1. Nothing is sent before the coordinator's own plan is polled: the query has a slot.
//!     (not asserted: `done` starts it)
//! K2. The first failure stays. (not asserted: a `watch` that is set once)

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use datafusion::common::DataFusionError;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_plan::ExecutionPlan;
use futures_util::future::{BoxFuture, try_join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use rand::Rng;
use tokio::sync::{mpsc, oneshot, watch};

use super::members::Cluster;
use super::message::{Part, PartKey, VERSION};
use super::peers::Lease;
use super::source::{Before, encoded};
use crate::error::SqlError;
use crate::options::QueryOptions;

/// What is known of a query beside its plan.
pub(crate) struct Errand {
    /// What workers call it.
    pub(super) query: String,
    pub(super) text: String,
    pub(super) options: QueryOptions,
    pub(super) deadline: Option<Instant>,
    /// DataFusion's options.
    pub(super) settings: HashMap<String, String>,
}

impl Errand {
    /// A query that has a name from now on, and no options of DataFusion's but those that
    /// are not as by default.
    pub(crate) fn new(
        text: String,
        options: QueryOptions,
        deadline: Option<Instant>,
        settings: &ConfigOptions,
    ) -> Errand {
        let usual = ConfigOptions::default().entries();
        let usual: HashMap<String, Option<String>> = usual
            .into_iter()
            .map(|entry| (entry.key, entry.value))
            .collect();
        let settings = settings.entries().into_iter().filter_map(|entry| {
            let is_set = usual.get(&entry.key)? != &entry.value;
            is_set.then_some((entry.key, entry.value?))
        });
        Errand {
            query: format!("{:032x}", rand::rng().random::<u128>()),
            text,
            options,
            deadline,
            settings: settings.collect(),
        }
    }
}

/// One step of a query, on some workers at the same time.
pub(super) struct Stage {
    pub(super) number: u32,
    /// The stages that it reads.
    pub(super) below: Vec<usize>,
    /// By task: the worker, and what it runs.
    pub(super) tasks: Vec<(String, Arc<dyn ExecutionPlan>)>,
    /// How often each partition is fetched.
    pub(super) readers: u32,
}

/// How far it is; `None` while it runs.
type Outcome = Option<Result<(), SqlError>>;

/// Conducts a query. Dropping it ends the query on all workers.
pub(super) struct Conductor {
    cluster: Cluster,
    errand: Errand,
    /// Until it is started: K1.
    stages: Mutex<Option<(Vec<Stage>, oneshot::Receiver<()>)>>,
    outcome: Arc<watch::Sender<Outcome>>,
    _stop: oneshot::Sender<()>,
}

impl Conductor {
    /// The last stages are those that nobody reads but the coordinator. They are told
    /// afterwards, since the plan's leaves refer to this.
    pub(super) fn new(cluster: Cluster, errand: Errand) -> Conductor {
        let (stop, stopped) = oneshot::channel();
        Conductor {
            cluster,
            errand,
            stages: Mutex::new(Some((Vec::new(), stopped))),
            outcome: Arc::new(watch::Sender::new(None)),
            _stop: stop,
        }
    }

    /// What is to be run.
    pub(super) fn set_stages(&self, all: Vec<Stage>) {
        if let Some((stages, _)) = &mut *crate::lock(&self.stages) {
            *stages = all;
        }
    }

    fn start(&self, stages: Vec<Stage>, stopped: oneshot::Receiver<()>) {
        let cluster = self.cluster.clone();
        let outcome = Arc::clone(&self.outcome);
        let planned = self.parts(&stages);
        let deadline = self.errand.deadline;
        self.cluster.peers().spawn(async move {
            let conducting = async {
                let (leases, mut incoming) = mpsc::unbounded_channel();
                let watching = async {
                    let mut calls = FuturesUnordered::new();
                    loop {
                        tokio::select! {
                            Some(lease) = incoming.recv() => calls.push(Lease::lost(lease)),
                            Some(error) = calls.next() => return error,
                        }
                    }
                };
                let running = async {
                    let running = Running {
                        cluster: cluster.clone(),
                        stages,
                        parts: planned.map_err(SqlError::running)?,
                        deadline,
                        leases,
                    };
                    running.all().await?;
                    outcome.send_replace(Some(Ok(())));
                    // The rows are kept while the calls are open.
                    std::future::pending::<Result<(), SqlError>>().await
                };
                tokio::select! {
                    result = running => result,
                    error = watching => Err(error),
                }
            };
            tokio::select! {
                _ = stopped => {}
                result = conducting => if let Err(error) = result {
                    cluster.blame(&error);
                    // K2.
                    outcome.send_replace(Some(Err(error)));
                }
            }
        });
    }

    /// What is sent, by stage and task.
    fn parts(&self, stages: &[Stage]) -> Result<Vec<Vec<Part>>, DataFusionError> {
        let errand = &self.errand;
        let part = |stage: &Stage, task: usize| {
            Ok(Part {
                version: VERSION.to_owned(),
                key: PartKey {
                    query: errand.query.clone(),
                    stage: stage.number,
                    task: task as u32,
                },
                plan: encoded(Arc::clone(&stage.tasks[task].1))?,
                readers: stage.readers,
                name: format!(
                    "[stage {}, part {} of {}] {}",
                    stage.number,
                    task + 1,
                    stage.tasks.len(),
                    errand.text
                ),
                tier: errand.options.tier.to_string(),
                weight: errand.options.weight.get(),
                // Told when it is sent.
                deadline_ms: 0,
                options: errand.settings.clone(),
            })
        };
        let parts = |stage: &Stage| {
            (0..stage.tasks.len())
                .map(|task| part(stage, task))
                .collect()
        };
        stages.iter().map(parts).collect()
    }
}

/// A query that is being run.
struct Running {
    cluster: Cluster,
    stages: Vec<Stage>,
    parts: Vec<Vec<Part>>,
    deadline: Option<Instant>,
    leases: mpsc::UnboundedSender<Lease>,
}

impl Running {
    /// Runs what nobody reads but the coordinator, and all that is read for it.
    async fn all(&self) -> Result<(), SqlError> {
        let is_read = |stage: &usize| self.stages.iter().any(|other| other.below.contains(stage));
        let last = (0..self.stages.len()).filter(|stage| !is_read(stage));
        try_join_all(last.map(|stage| self.stage(stage))).await?;
        Ok(())
    }

    /// Runs what a stage reads, and then the stage.
    fn stage(&self, stage: usize) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            let below = self.stages[stage].below.iter();
            try_join_all(below.map(|&below| self.stage(below))).await?;
            let tasks = std::iter::zip(&self.stages[stage].tasks, &self.parts[stage]);
            try_join_all(tasks.map(|((worker, _), part)| self.part(worker, part))).await?;
            Ok(())
        }
        .boxed()
    }

    async fn part(&self, worker: &str, part: &Part) -> Result<(), SqlError> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let deadline_ms = self
            .deadline
            .map(|deadline| left(deadline).as_millis() as u64);
        let part = Part {
            deadline_ms: deadline_ms.map_or(0, |ms| ms.max(1)),
            ..part.clone()
        };
        let lease = self.cluster.peers().run(worker, &part).await?;
        // The watcher is there as long as this is.
        let _ = self.leases.send(lease);
        Ok(())
    }
}

impl fmt::Debug for Conductor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conductor").finish_non_exhaustive()
    }
}

impl Before for Conductor {
    fn done(&self) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            let begin = crate::lock(&self.stages).take();
            if let Some((stages, stopped)) = begin {
                self.start(stages, stopped);
            }
            let mut outcome = self.outcome.subscribe();
            let done = outcome.wait_for(Option::is_some).await;
            match done.as_deref() {
                Ok(Some(Ok(()))) => Ok(()),
                Ok(Some(Err(error))) => Err(error.copy()),
                Ok(None) | Err(_) => Err(SqlError::Cancelled),
            }
        }
        .boxed()
    }

    /// Leaves out the worker that an error names, until it answers again.
    fn note(&self, error: &DataFusionError) {
        if let Some(error) = SqlError::inside(error) {
            self.cluster.blame(&error);
        }
    }
}
