//! What cells share, made once: data, engines, what queries take alone.

mod alone;
mod answers;
mod arrivals;
mod data;
mod drive;
mod duckdb;
mod failure;
mod host;
mod overhead;
mod settings;
mod simulated;
#[cfg(test)]
mod tests;
mod trace;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use giveway_tasks::Policy;

use self::alone::Alone;
use self::data::{Data, LARGE, Sizes, scale};
use self::duckdb::DuckDb;
use self::failure::failed;
use self::host::{Host, SharedHost};
use self::settings::Settings;
use super::TasksRow;
use super::arm::Arm;
use super::kind::Kind;
use super::{TasksCell, TasksExperiment, TasksPlan};
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

/// The paper's length of a run, and of t_t and t_r in it, s (Sections 5.1, 5.2).
const PAPER_S: (f64, f64, f64) = (300.0, 20.0, 60.0);

/// Room that the engine needs at least.
const MEMORY_MIN: usize = 64 << 20;

impl TasksPlan {
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
pub(crate) struct TasksBench {
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
    pub(crate) fn new(plan: &TasksPlan) -> Result<TasksBench> {
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
    pub(crate) fn run(&self, cell: &TasksCell, progress: Progress<'_>) -> Result<Vec<TasksRow>> {
        let measured = match cell.experiment {
            TasksExperiment::Answers => {
                let arm = cell.arm.expect("answers are somebody's");
                overhead::answers(self, arm, progress)?
            }
            TasksExperiment::Mix | TasksExperiment::Shift | TasksExperiment::Load => {
                vec![arrivals::measure(self, cell, progress)?]
            }
            TasksExperiment::Simulated => {
                let Some(Arm::Policy(policy)) = cell.arm else {
                    unreachable!("the plan has policies only");
                };
                let settings = &self.settings;
                vec![simulated::measure(cell, policy, settings, self.seconds)?]
            }
            TasksExperiment::Single => overhead::single(self, progress)?,
            TasksExperiment::Overrun => overhead::overrun(self, progress)?,
            TasksExperiment::Cost => overhead::cost(self, progress)?,
        };
        let row = |measured| TasksRow {
            experiment: cell.experiment,
            arm: cell
                .arm
                .map_or_else(|| Policy::default().to_string(), |arm| arm.to_string()),
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
