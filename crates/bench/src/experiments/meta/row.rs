//! Rows of the experiment, one kind for each part.

use giveway_metasched::measurements::Reading;
use giveway_metasched::policy::Policy;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub(crate) enum MetaRow {
    /// One switch.
    Switch(SwitchRow),
    /// One run of the two applications.
    Phases(PhaseRow),
    /// The same of applications that are held out. They stand in the places of OLTP and
    /// batch; in training they are these two.
    HeldOut(PhaseRow),
    /// One run with mishaps.
    Swaps(SwapsRow),
    /// The paper's application, or a part of it.
    Applications(ApplicationRow),
}

/// What decided who is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Under {
    /// One scheduler, always.
    Single {
        /// Its name.
        name: String,
    },
    /// One of the paper's policies.
    Fixed {
        /// Which.
        policy: Policy,
        /// Its base timeslice.
        base_timeslice_ms: f64,
    },
    /// Turns of equal length, whatever was measured.
    Turns {
        /// In their order.
        schedulers: Vec<String>,
        /// The length of each.
        timeslice_ms: f64,
    },
    /// What runs.
    PhaseAware {
        /// What a swap counted as.
        swap_ms: f64,
    },
}

impl std::fmt::Display for Under {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Under::Single { name } => f.pad(name),
            Under::Fixed {
                policy,
                base_timeslice_ms,
            } => f.pad(&format!("{}, {base_timeslice_ms} ms", policy.word())),
            Under::Turns {
                schedulers,
                timeslice_ms,
            } => f.pad(&format!(
                "turns of {}, {timeslice_ms} ms",
                schedulers.join(" and ")
            )),
            Under::PhaseAware { .. } => f.pad("phase_aware"),
        }
    }
}

/// What a run of the two applications is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// Policies learn from it.
    Training,
    /// Schedulers and policies are compared by it.
    Evaluation,
}

/// How a scheduler comes into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// Its process is started, loads, and attaches.
    Started,
    /// Its process had loaded, and attaches.
    Ahead,
}

/// One complete switch: from what is in force to something else in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SwitchRow {
    /// What was in force.
    pub from: String,
    /// What came.
    pub to: String,
    /// How it came.
    pub way: Way,
    /// From asking the old one to end to nothing being in force, milliseconds.
    pub stop_ms: f64,
    /// From the start of the new one, or the word to it, to its being in force.
    pub start_ms: f64,
    /// Both, and what lies between.
    pub switch_ms: f64,
    /// The repeat of the whole, from 0.
    pub repeat: u32,
    /// Seed of the machine.
    pub seed: u64,
}

/// The two applications under a scheduler, or under schedulers that take turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PhaseRow {
    /// What decided.
    #[serde(flatten)]
    pub under: Under,
    /// What the run is for; none in results of a program that compared policies by the
    /// runs that they had learnt from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Seed of the training runs of this repeat; none where there is no stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_seed: Option<u64>,
    /// Length of a phase, in seconds.
    pub phase_s: f64,
    /// Pairs of phases.
    pub cycles: u32,
    /// Transactions, or nginx's requests, per second of the bursts.
    pub oltp_per_s: f64,
    /// Their 99th percentile, milliseconds.
    pub oltp_p99_ms: f64,
    /// Jobs, or compiled files, per second of the batch windows.
    pub batch_per_s: f64,
    /// Their 99th percentile, milliseconds.
    pub batch_p99_ms: f64,
    /// How often a scheduler came into force while it was measured.
    pub starts: u64,
    /// What a complete switch took on average, in milliseconds; none without one.
    pub switch_ms: Option<f64>,
    /// What schedulers did wrong.
    pub faults: Vec<String>,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the clients' pauses in this run.
    pub seed: u64,
}

/// Many swaps under load, with mishaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SwapsRow {
    /// How often a scheduler came into force.
    pub starts: u64,
    /// Processes of schedulers that were killed.
    pub kills: u64,
    /// Processes of schedulers that were stopped, so that they hear nothing.
    pub stops: u64,
    /// Loads that failed, of a scheduler that cannot be loaded.
    pub refusals: u64,
    /// Requests answered rightly.
    pub answers: u64,
    /// Requests answered wrongly, or not at all.
    pub errors: u64,
    /// The longest that an ordinary task waited for a CPU, in milliseconds.
    pub gap_ms: f64,
    /// How often what the metascheduler says was compared with the kernel's word.
    pub looks: u64,
    /// How often they differed for longer than the metascheduler takes to look.
    pub lies: u64,
    /// What the kernel said after the end.
    pub left: String,
    /// All faults that were told of, each with how often.
    pub faults: Vec<(String, u64)>,
    /// Length of the run, in seconds.
    pub seconds: f64,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the clients' pauses.
    pub seed: u64,
}

/// What the paper's application, or a part of it, did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ApplicationRow {
    /// `api` or `retrieval`, which are measured alone, or `ask`, which is both.
    pub application: String,
    /// What decided who was in force.
    #[serde(flatten)]
    pub under: Under,
    /// The turns of a round; none where there is one scheduler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnNote>,
    /// What its runs gave, seconds.
    pub runs: Vec<Reading>,
    /// What kept other runs from giving anything.
    pub faults: Vec<String>,
    /// Length of a run, in seconds.
    pub run_s: u32,
    /// The repeat of the whole, from 0.
    pub repeat: u32,
    /// Seed of the machine.
    pub seed: u64,
}

/// A scheduler's part of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TurnNote {
    /// The scheduler.
    pub scheduler: String,
    /// The parts that prefer it.
    pub applications: Vec<String>,
    /// For how long it is in force, in milliseconds.
    pub timeslice_ms: f64,
}
