//! What is to be measured, and the cells it consists of.

use std::path::PathBuf;

use giveway_tasks::{Attained, Decay, Policy};

use super::{Arm, TasksExperiment};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TasksPlan {
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
            experiments: (TasksExperiment::ALL.into_iter())
                .filter(|experiment| experiment.clock() == "native")
                .collect(),
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
pub(crate) struct TasksCell {
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
    pub(crate) fn title(&self) -> String {
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

impl TasksPlan {
    /// A first look: little data, short runs, the extremes of the policies.
    pub(crate) fn quick(self) -> Self {
        TasksPlan {
            scale: 0.01,
            seconds: 5.0,
            ..self
        }
    }

    /// The cells, repeats outside and arms inside, so that what is compared is measured
    /// close together.
    pub(crate) fn cells(&self) -> Vec<TasksCell> {
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
            // There are no engines.
            (TasksExperiment::Simulated, Arm::DuckDb { .. } | Arm::Stock) => false,
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
}

impl TasksExperiment {
    /// Who is compared if nobody says; none where that is not a choice.
    fn arms(self) -> Vec<Arm> {
        let policy = Arm::Policy;
        match self {
            TasksExperiment::Answers => Arm::policies().to_vec(),
            TasksExperiment::Mix | TasksExperiment::Simulated => [
                Policy::Fifo,
                Policy::Fair,
                Policy::Lottery { seed: 1 },
                Policy::Balanced,
            ]
            .map(policy)
            .into_iter()
            .chain(Arm::grid())
            .chain([Policy::Tuned, Policy::Adaptive].map(policy))
            .collect(),
            TasksExperiment::Shift => [
                Policy::Fair,
                Policy::LeastAttained(Attained::INITIAL),
                Policy::Decay(Decay::INITIAL),
                Policy::Tuned,
                Policy::Adaptive,
            ]
            .map(policy)
            .to_vec(),
            TasksExperiment::Load => vec![
                policy(Policy::Fair),
                policy(Policy::Tuned),
                policy(Policy::Adaptive),
                Arm::Stock,
                Arm::DuckDb { partial: false },
                Arm::DuckDb { partial: true },
            ],
            TasksExperiment::Single | TasksExperiment::Overrun | TasksExperiment::Cost => {
                Vec::new()
            }
        }
    }

    /// At which loads if nobody says; none where queries do not arrive.
    fn loads(self) -> &'static [f64] {
        match self {
            TasksExperiment::Mix => &[0.95],
            TasksExperiment::Shift => &[0.9],
            TasksExperiment::Load => &[0.7, 0.8, 0.9, 0.96],
            TasksExperiment::Simulated => &[0.7, 0.95, 1.03],
            _ => &[],
        }
    }
}
