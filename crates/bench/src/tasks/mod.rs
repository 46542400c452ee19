//! Query scheduling on a real engine: TPC-H in short and long queries that come while
//! others run.
//!
//! ```text
//!   TasksPlan ─► cells ─► TasksBench ─┬► mix, shift, load: trace ─► drive or duckdb
//!                (arm, load, repeat)  ├► answers, single, overrun, cost: overhead
//!                                     └─────────► TasksRow
//! ```
//!
//! The experiments are those of "Self-Tuning Query Scheduling for Analytical Workloads"
//! (paper 003, Section 5); [`TasksExperiment`] lists them. A cell is one arm at one load
//! in one repeat; the cells of a repeat have the same traces. What cells share (data,
//! what queries take alone) is made once, when the first cell wants it.
//!
//! | module | question |
//! | --- | --- |
//! | `experiment`, `arm` | what is asked, and who is compared? |
//! | `trace` | which query comes when? |
//! | `data`, `host`, `duckdb` | on what, and by whom is it run? |
//! | `alone`, `drive`, `usage` | what does it take alone, and when others are there? |
//! | `arrivals`, `answers`, `overhead` | the experiments |
//! | `metrics`, `row` | what is kept, and what does it come to? |

mod alone;
mod answers;
mod arm;
mod arrivals;
mod data;
mod drive;
mod duckdb;
mod experiment;
mod host;
pub(crate) mod metrics;
mod overhead;
mod row;
mod settings;
mod trace;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub use arm::Arm;
pub use experiment::TasksExperiment;
pub(crate) use row::within;
pub use row::{
    Answers, Arrived, Cost, Decision, Measured, Operators, Pair, Sample, Scheduled, Share,
    TasksRow, Turns,
};
pub use trace::Kind;

use alone::Alone;
use data::{Data, LARGE, Sizes, scale};
use duckdb::DuckDb;
use host::{Host, SharedHost};
use settings::Settings;

use crate::{Error, Progress, Result};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct TasksPlan {
    /// Which experiments.
    pub experiments: Vec<TasksExperiment>,
    /// Who is compared in `answers`, `mix`, `shift` and `load`; none: whoever belongs
    /// there.
    pub arms: Vec<Arm>,
    /// At which loads queries arrive; none: those that belong there.
    pub loads: Vec<f64>,
    /// Workers, and threads of other engines.
    pub workers: u32,
    /// Scale factor of the small data.
    pub scale: f64,
    /// For how long queries come.
    pub seconds: f64,
    /// How often everything is measured, each time with another trace.
    pub repeat: u32,
    /// Seed of repeat 0.
    pub seed: u64,
    /// For how long queries are tracked and how often, to tune, s; none: as much of a
    /// run as it is of the paper's.
    pub tuning_s: Option<(f64, f64)>,
    /// What queries may hold in memory, bytes; none: half of what there is.
    pub memory_bytes: Option<usize>,
    /// A Python that has DuckDB.
    pub python: PathBuf,
}

impl Default for TasksPlan {
    fn default() -> Self {
        TasksPlan {
            experiments: TasksExperiment::ALL.to_vec(),
            arms: Vec::new(),
            loads: Vec::new(),
            workers: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            scale: 0.1,
            seconds: 60.0,
            repeat: 1,
            seed: 1,
            tuning_s: None,
            memory_bytes: None,
            python: PathBuf::from("python3"),
        }
    }
}

/// One arm of one experiment, at one load, in one repeat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TasksCell {
    /// The experiment.
    pub experiment: TasksExperiment,
    /// Who runs the queries, where that is a choice.
    pub arm: Option<Arm>,
    /// The load, where queries arrive.
    pub load: Option<f64>,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of its trace.
    pub seed: u64,
}

impl TasksCell {
    /// What it is called while it is measured.
    pub fn title(&self) -> String {
        let mut title = self.experiment.to_string();
        if let Some(load) = self.load {
            title.push_str(&format!(" at {load}"));
        }
        if let Some(arm) = self.arm {
            title.push_str(&format!(", {arm}"));
        }
        title.push_str(&format!(", repeat {}", self.repeat + 1));
        title
    }
}

/// The paper's length of a run, and of t_t and t_r in it, s (Sections 5.1, 5.2).
const PAPER_S: (f64, f64, f64) = (300.0, 20.0, 60.0);

/// Room that the engine needs at least.
const MEMORY_MIN: usize = 64 << 20;

impl TasksPlan {
    /// A first look: little data, short runs, the extremes of the policies.
    pub fn quick(self) -> Self {
        TasksPlan {
            scale: 0.01,
            seconds: 5.0,
            ..self
        }
    }

    /// The cells, repeats outside and arms inside, so that what is compared is measured
    /// close together.
    pub fn cells(&self) -> Vec<TasksCell> {
        let mut cells = Vec::new();
        for repeat in 0..self.repeat {
            let seed = self.seed + u64::from(repeat);
            for &experiment in &self.experiments {
                let arms = self.arms(experiment);
                let loads = self.loads(experiment);
                for load in &loads {
                    for arm in &arms {
                        cells.push(TasksCell {
                            experiment,
                            arm: *arm,
                            load: *load,
                            repeat,
                            seed,
                        });
                    }
                }
            }
        }
        cells
    }

    /// The arms of an experiment; one nobody where that is no choice.
    fn arms(&self, experiment: TasksExperiment) -> Vec<Option<Arm>> {
        let usual = experiment.arms();
        if usual.is_empty() {
            return vec![None];
        }
        let chosen = match self.arms.is_empty() {
            true => usual,
            false => self.arms.clone(),
        };
        let has_answers = |arm: &Arm| match (experiment, arm) {
            // There is nothing to compare by the cent in another process.
            (TasksExperiment::Answers, Arm::DuckDb { .. }) => false,
            // Its load is its own, so it has no trace in common with the policies.
            (TasksExperiment::Mix | TasksExperiment::Shift, Arm::DuckDb { .. }) => false,
            _ => true,
        };
        chosen.into_iter().filter(has_answers).map(Some).collect()
    }

    fn loads(&self, experiment: TasksExperiment) -> Vec<Option<f64>> {
        let usual = experiment.loads();
        let chosen = match (usual, self.loads.is_empty()) {
            ([], _) => return vec![None],
            (usual, true) => usual,
            (_, false) => &self.loads,
        };
        chosen.iter().copied().map(Some).collect()
    }

    /// What holds for all cells.
    ///
    /// # Errors
    /// Something makes no sense, with what to write instead.
    fn settings(&self) -> Result<Settings> {
        let refuse = |text: String| Err(Error::Config(text));
        scale(self.scale)?;
        scale(self.scale * LARGE)?;
        if self.workers == 0 {
            return refuse("--workers: write 1 at least".to_owned());
        }
        if let Some(load) = self
            .loads
            .iter()
            .find(|load| !(0.0 < **load && **load <= 2.0))
        {
            return refuse(format!(
                "--load {load}: write parts of the workers' time, such as 0.95"
            ));
        }
        let (run_s, tracking_s, refresh_s) = PAPER_S;
        let part = self.seconds / run_s;
        let (tracking_s, refresh_s) = self
            .tuning_s
            .unwrap_or((tracking_s * part, refresh_s * part));
        if tracking_s <= 0.0 || refresh_s <= tracking_s {
            return refuse(format!(
                "--tuning {tracking_s},{refresh_s}: write for how long queries are tracked, \
                 and how often, which is longer"
            ));
        }
        let memory_bytes = match self.memory_bytes {
            Some(bytes) => bytes,
            None => usage::memory_available().unwrap_or(0) / 2,
        };
        if memory_bytes < MEMORY_MIN {
            return refuse(format!(
                "{memory_bytes} bytes of memory for queries: free some, or say --memory"
            ));
        }
        Ok(Settings {
            workers: self.workers,
            memory_bytes,
            tracking: Duration::from_secs_f64(tracking_s),
            refresh: Duration::from_secs_f64(refresh_s),
        })
    }
}

/// What every cell needs, made when the first one needs it.
pub struct TasksBench {
    settings: Settings,
    seconds: f64,
    scale: f64,
    python: PathBuf,
    sizes: OnceLock<Sizes>,
    reference: OnceLock<Arc<Data>>,
    /// Whether queries have run beside each other, for the first trace not to be the one
    /// that has all memory to ask for.
    is_warm: OnceLock<()>,
    /// Whether a trace has been played, for the same reason.
    is_rehearsed: OnceLock<()>,
    alone: Mutex<HashMap<(String, u32), Arc<Alone>>>,
    duckdb: OnceLock<Arc<DuckDb>>,
    /// The plan that the first host made of each query: all others are to make the same.
    plans: Mutex<BTreeMap<Kind, String>>,
}

impl TasksBench {
    /// Nothing is made yet.
    ///
    /// # Errors
    /// Something in the plan makes no sense, with what to write instead.
    pub fn new(plan: &TasksPlan) -> Result<TasksBench> {
        Ok(TasksBench {
            settings: plan.settings()?,
            seconds: plan.seconds,
            scale: plan.scale,
            python: plan.python.clone(),
            sizes: OnceLock::new(),
            reference: OnceLock::new(),
            is_warm: OnceLock::new(),
            is_rehearsed: OnceLock::new(),
            alone: Mutex::default(),
            duckdb: OnceLock::new(),
            plans: Mutex::default(),
        })
    }

    /// Measures one cell on this machine; one line of `progress` for each step.
    ///
    /// # Errors
    /// A query failed where none may; an engine or its data cannot be had.
    pub fn run(&self, cell: &TasksCell, progress: Progress<'_>) -> Result<Vec<TasksRow>> {
        let measured = match cell.experiment {
            TasksExperiment::Answers => {
                let arm = cell.arm.expect("answers are somebody's");
                overhead::answers(self, arm, progress)?
            }
            TasksExperiment::Mix | TasksExperiment::Shift | TasksExperiment::Load => {
                vec![arrivals::measure(self, cell, progress)?]
            }
            TasksExperiment::Single => overhead::single(self, progress)?,
            TasksExperiment::Overrun => overhead::overrun(self, progress)?,
            TasksExperiment::Cost => overhead::cost(self, progress)?,
        };
        let row = |measured| TasksRow {
            experiment: cell.experiment,
            arm: cell
                .arm
                .map_or_else(|| "tuned".to_owned(), |arm| arm.to_string()),
            load: cell.load,
            repeat: cell.repeat,
            seed: cell.seed,
            workers: self.settings.workers,
            scale: self.scale,
            measured,
        };
        Ok(measured.into_iter().map(row).collect())
    }

    fn data(&self, progress: Progress<'_>) -> Result<&Sizes> {
        if self.sizes.get().is_none() {
            let mut make = |factor| Data::generate(scale(factor)?, progress).map(Arc::new);
            let made = Sizes {
                small: make(self.scale)?,
                large: make(self.scale * LARGE)?,
            };
            // Cells run one after the other; of two that race, one made it in vain.
            let _ = self.sizes.set(made);
        }
        Ok(self.sizes.get().expect("made before"))
    }

    /// The data that answers are known of.
    fn reference_data(&self, progress: Progress<'_>) -> Result<Arc<Data>> {
        const REFERENCE: f64 = 1.0;
        if let Some(made) = self.reference.get() {
            return Ok(Arc::clone(made));
        }
        let made = match self.sizes.get() {
            Some(sizes) if sizes.large.scale.get() == REFERENCE => Arc::clone(&sizes.large),
            _ if self.scale * LARGE == REFERENCE => Arc::clone(&self.data(progress)?.large),
            _ => Arc::new(Data::generate(scale(REFERENCE)?, progress)?),
        };
        Ok(Arc::clone(self.reference.get_or_init(|| made)))
    }

    /// An engine on both sizes of data.
    fn host(
        &self,
        arm: Arm,
        threads: u32,
        kinds: impl IntoIterator<Item = Kind>,
        progress: Progress<'_>,
    ) -> Result<SharedHost> {
        let data = self.data(progress)?;
        progress("plans");
        let host = Host::start(arm, threads, &self.settings, data, kinds)?;
        let mut first = self
            .plans
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        for (kind, plan) in host.plans() {
            if first.entry(kind).or_insert_with(|| plan.clone()) != &plan {
                let why = format!("its plan of {kind} is not that of the engine before");
                return Err(failed(arm, why));
            }
        }
        Ok(Arc::new(host))
    }

    /// What each query takes alone on so many threads of somebody.
    fn alone(&self, arm: Arm, threads: u32, progress: Progress<'_>) -> Result<Arc<Alone>> {
        let key = (arm.to_string(), threads);
        let known = || {
            self.alone
                .lock()
                .unwrap_or_else(|poison| poison.into_inner())
        };
        if let Some(alone) = known().get(&key) {
            return Ok(Arc::clone(alone));
        }
        let what = format!("{arm} on {threads}");
        let made = match arm {
            Arm::DuckDb { .. } => {
                progress(&format!("{what} alone"));
                let duckdb = self.duckdb(progress)?;
                let duckdb = duckdb.map_err(|missing| failed("duckdb", missing))?;
                duckdb.alone(&self.settings)?
            }
            Arm::Policy(_) | Arm::Stock => {
                let host = self.host(arm, threads, Kind::both(), progress)?;
                Alone::measure(&host, arm != Arm::Stock, &what, progress)?
            }
        };
        let made = Arc::new(made);
        known().insert(key, Arc::clone(&made));
        Ok(made)
    }

    /// DuckDB, or why it cannot be had.
    fn duckdb(&self, progress: Progress<'_>) -> Result<std::result::Result<Arc<DuckDb>, String>> {
        if let Some(made) = self.duckdb.get() {
            return Ok(Ok(Arc::clone(made)));
        }
        if let Some(missing) = DuckDb::missing(&self.python) {
            return Ok(Err(missing));
        }
        let data = self.data(progress)?.clone();
        let made = Arc::new(DuckDb::prepare(&self.python, &data, progress)?);
        Ok(Ok(Arc::clone(self.duckdb.get_or_init(|| made))))
    }
}

/// A query, or an engine, that failed where none may.
fn failed(who: impl std::fmt::Display, why: impl std::fmt::Display) -> Error {
    Error::Queries {
        who: who.to_string(),
        reason: why.to_string(),
    }
}

#[cfg(test)]
mod tests;
