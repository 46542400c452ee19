//! What is kept of a measurement: every query of every trace, so that each number of a
//! report can be computed anew.

use serde::{Deserialize, Serialize};

use super::experiment::TasksExperiment;
use super::kind::Kind;
use super::metrics::Slowdowns;

/// Ends of the classes that lengths of tasks are counted in, in t_max: those of the
/// engine (`giveway_sql::TURN_CLASSES`), as rows have them.
pub(crate) const TURN_CLASSES: [f64; 7] = [0.5, 1.0, 1.5, 2.0, 4.0, 16.0, 64.0];

/// One arm of one experiment, at one load, in one repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TasksRow {
    /// The experiment.
    pub experiment: TasksExperiment,
    /// Who ran the queries, as `--arms` names it.
    pub arm: String,
    /// The load that was asked for, where queries arrive.
    pub load: Option<f64>,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the trace.
    pub seed: u64,
    /// Workers, or threads of another engine.
    pub workers: u32,
    /// Scale factor of the small data; the large is ten times that. Results of
    /// `answers` are of scale factor 1.
    pub scale: f64,
    /// What was found.
    pub measured: Measured,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measured {
    /// Queries that arrived.
    Arrived(Box<Arrived>),
    /// Results beside the reference answers.
    Answers(Answers),
    /// Queries one at a time.
    Single(Vec<Pair>),
    /// Lengths of tasks.
    Turns(Turns),
    /// What scheduling takes.
    Cost(Cost),
    /// Nothing: why the arm was left out, and how to have it.
    LeftOut(String),
}

/// A query of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "SampleText", into = "SampleText")]
pub struct Sample {
    /// What it was.
    pub kind: Kind,
    /// Whether the mix counts it among its long ones.
    pub long: bool,
    /// In which phase it was due.
    pub phase: u8,
    /// When it was due, ms since the beginning.
    pub due_ms: f64,
    /// From then to its end, ms; at least so much if it had not ended when the run was
    /// given up.
    pub latency_ms: f64,
    /// What it takes alone, ms.
    pub alone_ms: f64,
}

impl Sample {
    /// Its latency over what it takes alone.
    pub fn slowdown(&self) -> f64 {
        self.latency_ms / self.alone_ms
    }
}

/// A sample in a file: query, on the large data, long, phase, due, latency and alone in
/// ms. Files hold thousands of them.
type SampleText = (u8, bool, bool, u8, f64, f64, f64);

impl From<SampleText> for Sample {
    fn from((query, large, long, phase, due_ms, latency_ms, alone_ms): SampleText) -> Sample {
        Sample {
            kind: Kind { query, large },
            long,
            phase,
            due_ms,
            latency_ms,
            alone_ms,
        }
    }
}

impl From<Sample> for SampleText {
    fn from(sample: Sample) -> SampleText {
        let us = |ms: f64| (ms * 1e3).round() / 1e3;
        (
            sample.kind.query,
            sample.kind.large,
            sample.long,
            sample.phase,
            us(sample.due_ms),
            us(sample.latency_ms),
            us(sample.alone_ms),
        )
    }
}

/// A run of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arrived {
    /// For how long queries came, s.
    pub seconds: f64,
    /// From the first to the end of the last query, s.
    pub span_s: f64,
    /// What the trace's queries take alone, as a part of the workers' time while they
    /// came: the load that was drawn.
    pub offered: f64,
    /// The part of the time while queries came that workers were on a CPU, by the
    /// kernel's count.
    pub busy: f64,
    /// For how long queries were tracked and how often, to tune, s.
    pub tuning_s: (f64, f64),
    /// All queries of the trace that did not fail.
    pub samples: Vec<Sample>,
    /// How many of them had not ended when the run was given up.
    pub unfinished: u64,
    /// How many failed, and why the first of them did.
    pub failed: (u64, String),
    /// What our scheduler says of itself.
    pub scheduler: Option<Scheduled>,
    /// The version of another engine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

impl Arrived {
    /// Slowdowns of the queries that are chosen.
    pub(crate) fn slowdowns(&self, chosen: impl Fn(&Sample) -> bool) -> Option<Slowdowns> {
        let samples = self.samples.iter().filter(|sample| chosen(sample));
        Slowdowns::of(&Vec::from_iter(samples.map(Sample::slowdown)))
    }
}

/// What our scheduler says of itself after a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scheduled {
    /// Tasks run.
    pub tasks: u64,
    /// Choices of a query.
    pub decisions: u64,
    /// The part of all tasks that took at most 2 t_max.
    pub within_2: f64,
    /// The longest task, ms.
    pub longest_ms: f64,
    /// How often parameters were tuned.
    pub tunings: u64,
    /// λ and d_start at the end, where priorities decay, in results up to 2026-11-25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decay: Option<(f32, u32)>,
    /// By what queries were ordered at the end, with policies that have parameters, as
    /// `--arms` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
}

/// Results beside the reference answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answers {
    /// How many queries ran at a time.
    pub at_a_time: u32,
    /// How many results were compared.
    pub compared: u32,
    /// What was wrong with each of those that were: the query, and the first
    /// difference.
    pub wrong: Vec<String>,
    /// What all of them took, s.
    pub seconds: f64,
}

/// A query alone, on our engine and on stock DataFusion, in turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pair {
    /// Which query, of the large data.
    pub query: u8,
    /// ms on our engine, turn by turn.
    pub ours_ms: Vec<f64>,
    /// ms on stock DataFusion.
    pub stock_ms: Vec<f64>,
}

/// Lengths of tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Turns {
    /// t_max, ms.
    pub t_max_ms: f64,
    /// How many queries ran at a time.
    pub at_a_time: u32,
    /// By the operators of their pipeline.
    pub operators: Vec<Operators>,
}

/// How long the tasks of a kind of pipeline were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operators {
    /// The operators, from the one that feeds the others on.
    pub names: String,
    /// How many tasks were that long, by `TURN_CLASSES` in t_max.
    pub tasks: [u64; TURN_CLASSES.len() + 1],
    /// The longest, ms.
    pub longest_ms: f64,
}

impl Turns {
    /// All tasks, by their length.
    pub(crate) fn all(&self) -> [u64; TURN_CLASSES.len() + 1] {
        let mut all = [0; TURN_CLASSES.len() + 1];
        for operators in &self.operators {
            for (sum, count) in all.iter_mut().zip(operators.tasks) {
                *sum += count;
            }
        }
        all
    }

    /// The part of them that took at most so many t_max, an end of a class.
    pub(crate) fn within(&self, t_max: f64) -> Option<f64> {
        within(&self.all(), t_max)
    }
}

/// The part of tasks that took at most so many t_max, an end of a class.
pub(crate) fn within(tasks: &[u64], t_max: f64) -> Option<f64> {
    let classes = TURN_CLASSES.iter().filter(|end| **end <= t_max).count();
    let all: u64 = tasks.iter().sum();
    let kept: u64 = tasks[..classes].iter().sum();
    (all > 0).then(|| kept as f64 / all as f64)
}

/// What scheduling takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// By simulation, where nothing is shared with another CPU and tasks take no time.
    pub decisions: Vec<Decision>,
    /// On this machine, while it was busy.
    pub share: Share,
}

/// What a task costs beside its work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// Workers.
    pub workers: u32,
    /// Queries that are there all the time.
    pub queries: u32,
    /// ns a task, in each turn.
    pub ns: Vec<f64>,
}

/// Where the workers' time went while queries were there all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// From the first to the end of the last query, s.
    pub span_s: f64,
    /// Queries that ran at a time.
    pub queries: u32,
    /// Time of the workers in tasks, s.
    pub busy_s: f64,
    /// The part of it that was tuning, s.
    pub tuning_s: f64,
    /// CPU time of the workers as the kernel counts it, s.
    pub cpu_s: f64,
    /// Choices of a query.
    pub decisions: u64,
    /// Tasks.
    pub tasks: u64,
    /// How often parameters were tuned.
    pub tunings: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_survives_its_file_to_the_microsecond() {
        let sample = Sample {
            kind: Kind {
                query: 21,
                large: true,
            },
            long: false,
            phase: 1,
            due_ms: 1_234.567_8,
            latency_ms: 20.0,
            alone_ms: 8.0,
        };
        assert_eq!(sample.slowdown(), 2.5);
        let json = serde_json::to_string(&sample).unwrap();
        assert_eq!(json, "[21,true,false,1,1234.568,20.0,8.0]");
        let back: Sample = serde_json::from_str(&json).unwrap();
        assert_eq!(back.kind, sample.kind);
        assert!((back.due_ms - sample.due_ms).abs() < 1e-3);
    }

    #[test]
    fn the_part_within_is_that_of_the_classes() {
        // Ends: 0.5, 1, 1.5, 2, 4, 16, 64.
        let operators = |tasks| Operators {
            names: String::new(),
            tasks,
            longest_ms: 1.0,
        };
        let turns = Turns {
            t_max_ms: 2.0,
            at_a_time: 1,
            operators: vec![
                operators([10, 50, 0, 36, 0, 0, 0, 0]),
                operators([0, 0, 0, 0, 3, 0, 0, 1]),
            ],
        };
        assert_eq!(turns.within(2.0), Some(0.96));
        assert_eq!(turns.within(4.0), Some(0.99));
        assert_eq!(within(&[0; 8], 2.0), None);
    }

    #[cfg(feature = "sql")]
    #[test]
    fn rows_count_lengths_in_the_engine_s_classes() {
        assert_eq!(TURN_CLASSES, giveway_sql::TURN_CLASSES);
    }
}
