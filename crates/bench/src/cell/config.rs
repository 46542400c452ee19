//! What one cell measures.
//!
//! Every field has a default, so that a configuration file or a command line
//! need only say what differs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cell::setup::{Build, By, Disk, Hints};
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;
use crate::workload::background::Job;
use crate::workload::postgres::Installation;

/// What runs, and with which priorities (the paper's Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Mix {
    /// TPC-C alone: the baseline.
    #[serde(rename = "SOLO")]
    Solo,
    /// Q17 alone: the background's baseline (Section 6.1).
    #[serde(rename = "SOLO-BG")]
    SoloBackground,
    /// TPC-C with the highest priority, Q17 with the lowest.
    #[serde(rename = "MIN:MAX")]
    MinMax,
    /// Both with the same, high priority.
    #[serde(rename = "50:50")]
    FiftyFifty,
    /// Each of them twice, TPC-C in the one tier and Q17 in the other, with
    /// weights that are as two to three (Section 6.4).
    #[serde(rename = "2:3")]
    TwoThree,
}

impl Mix {
    /// Those of Table 1 and the background's baseline, in the order in which
    /// they are measured.
    pub(crate) const ALL: [Mix; 4] = [Mix::Solo, Mix::SoloBackground, Mix::MinMax, Mix::FiftyFifty];

    /// Whether TPC-C runs.
    pub(crate) fn has_time_sensitive(self) -> bool {
        self != Mix::SoloBackground
    }

    /// Whether Q17 runs.
    pub(crate) fn has_background(self) -> bool {
        self != Mix::Solo
    }

    /// Whether the mix says anything new under a scheduler. IDLE and CPU-IDLE differ from
    /// EEVDF only in MIN:MAX (the paper's Section 3).
    pub(crate) fn is_relevant_under(self, scheduler: &Scheduler) -> bool {
        !matches!(scheduler, Scheduler::Idle | Scheduler::CpuIdle) || self == Mix::MinMax
    }

    /// The name as the paper writes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Mix::Solo => "SOLO",
            Mix::SoloBackground => "SOLO-BG",
            Mix::MinMax => "MIN:MAX",
            Mix::FiftyFifty => "50:50",
            Mix::TwoThree => "2:3",
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Mix::ALL
            .into_iter()
            .find(|mix| mix.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                Error::Config(format!(
                    "unknown mix '{text}': write SOLO, SOLO-BG, MIN:MAX or 50:50"
                ))
            })
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CellConfig {
    /// How the server is scheduled.
    pub scheduler: Scheduler,
    /// What runs.
    pub mix: Mix,
    /// CPUs of the server: 0 to `cpus` - 1.
    pub cpus: u32,
    /// CPUs of the clients: those after the server's. They stand for the
    /// paper's second machine, so that clients never compete with the server.
    pub client_cpus: u32,
    /// TPC-C terminals of each class, one connection and home warehouse each; 0:
    /// as many as server CPUs, as in the paper.
    pub terminals: u32,
    /// Who says what is urgent.
    pub by: By,
    /// Which server runs.
    pub server: Build,
    /// What the scheduler is told of the server's locks.
    pub hints: Hints,
    /// Whether UFS boosts who holds a lock that urgent work waits for; else it
    /// only counts.
    pub boost: bool,
    /// Whether the kernel measures the scheduler's callbacks, which slows each
    /// of them down.
    pub time_callbacks: bool,
    /// Whether context switches are traced, to see who ran on which CPU.
    pub trace_switches: bool,
    /// What runs in the background.
    pub job: Job,
    /// Connections of each class that run [`CellConfig::job`] in a loop; 0: as
    /// many as server CPUs.
    pub background_workers: u32,
    /// Microseconds that each round trip of a terminal spends in a network;
    /// the paper's clients are on another machine.
    pub network_us: u32,
    /// Seconds from the first transaction to the window.
    pub warmup_s: f64,
    /// Seconds of the window in which everything is counted.
    pub seconds: f64,
    /// Which repeat this is, from 0; only written to the row.
    pub repeat: u32,
    /// Seed of the terminals' inputs.
    pub seed: u64,
    /// Data made by [`crate::workload::dataset::prepare`]; copied, never written.
    pub data_dir: PathBuf,
    /// Where the server lies, if it is one that was built for the lab.
    pub server_dir: PathBuf,
    /// Where the copy goes: a tmpfs, so that storage plays no part.
    pub work_dir: PathBuf,
    /// On which disk the copy is made, if storage is to play one.
    pub disk: Disk,
    /// Microseconds that such a disk takes for a request.
    pub request_us: u32,
    /// Drivers of such a disk.
    pub drivers_dir: PathBuf,
    /// Whether background sessions give way at the disk: `giveway.io_priority`.
    pub io_priority: bool,
    /// Command that runs a sched_ext scheduler until it is told to stop;
    /// empty: the scheduler's program, found in PATH. The options that it is
    /// known to take are added.
    pub scheduler_command: Vec<String>,
}

impl Default for CellConfig {
    fn default() -> Self {
        CellConfig {
            scheduler: Scheduler::Eevdf,
            mix: Mix::Solo,
            cpus: 4,
            client_cpus: CellConfig::default_client_cpus(4),
            terminals: 0,
            by: By::default(),
            server: Build::default(),
            hints: Hints::default(),
            boost: true,
            time_callbacks: false,
            trace_switches: false,
            job: Job::default(),
            background_workers: 0,
            network_us: 0,
            warmup_s: 1.0,
            seconds: 4.0,
            repeat: 0,
            seed: 1,
            data_dir: PathBuf::from("/var/lib/giveway/bench"),
            server_dir: PathBuf::new(),
            work_dir: PathBuf::from("/dev/shm"),
            disk: Disk::default(),
            request_us: 0,
            drivers_dir: PathBuf::new(),
            io_priority: false,
            scheduler_command: Vec::new(),
        }
    }
}

impl CellConfig {
    /// Client CPUs that keep clients from being the bottleneck: half as many
    /// as the server has, at least two.
    pub(crate) fn default_client_cpus(cpus: u32) -> u32 {
        (cpus / 2).max(2)
    }

    /// A name for progress lines: `MIN:MAX under UFS, repeat 2`.
    pub(crate) fn title(&self) -> String {
        let mut title = format!("{} under {}", self.mix, self.scheduler.label());
        if self.by != By::default() {
            title.push_str(&format!(" by {}", self.by));
        }
        if self.hints != Hints::default() {
            title.push_str(&format!(", hints {}", self.hints));
        }
        if !self.boost {
            title.push_str(" without boosts");
        }
        if self.disk != Disk::default() {
            title.push_str(&format!(" on {}", self.disk));
        }
        if self.io_priority {
            title.push_str(" with I/O priority");
        }
        title.push_str(&format!(", repeat {}", self.repeat + 1));
        title
    }

    /// The server that runs.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn installation(&self) -> Result<Installation> {
        match self.server {
            Build::Installed => Installation::find(),
            Build::Stock | Build::Patched => Installation::of_lab(&self.server_dir),
        }
    }

    /// Refuses settings that cannot be measured.
    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |reason: &str| Err(Error::Config(reason.to_owned()));
        if self.cpus == 0 || self.client_cpus == 0 {
            return refuse("server and clients need at least one CPU each");
        }
        if !(self.seconds.is_finite() && self.seconds > 0.0) {
            return refuse("the window must be longer than 0 seconds");
        }
        if !(self.warmup_s.is_finite() && self.warmup_s >= 0.0) {
            return refuse("the warm-up cannot be negative");
        }
        if self.by == By::Roles && self.scheduler != Scheduler::Ufs {
            return refuse("only UFS heeds the settings of roles: measure ufs, or by cgroups");
        }
        if self.by == By::Roles && self.server == Build::Installed {
            return refuse(
                "priorities by roles take a server with the extension: stock or patched",
            );
        }
        if self.by != By::Roles && self.hints != Hints::Off {
            return refuse("hints take the extension: set priorities by roles");
        }
        if self.hints == Hints::Patched && self.server != Build::Patched {
            return refuse("hints of the patch take the patched server");
        }
        if self.io_priority && (self.by != By::Roles || self.disk == Disk::Memory) {
            return refuse("I/O priority is the extension's, at a disk: by roles, on a disk");
        }
        if self.mix == Mix::TwoThree && (self.by == By::Roles || self.job != Job::Q17) {
            return refuse("the mix 2:3 is that of TPC-C and Q17, by cgroups");
        }
        if self.by != By::Roles && self.job == Job::PgDump && self.background_count() > 0 {
            return refuse("pg_dump connects anew each time, which only a role follows: by roles");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_text_and_json() {
        let other = Scheduler::Scx("scx_bpfland".to_owned());
        for scheduler in Scheduler::PAPER.into_iter().chain([other]) {
            assert_eq!(
                scheduler.to_string().parse::<Scheduler>().unwrap(),
                scheduler
            );
            let json = serde_json::to_string(&scheduler).unwrap();
            assert_eq!(json, format!("\"{scheduler}\""));
            assert_eq!(serde_json::from_str::<Scheduler>(&json).unwrap(), scheduler);
        }
        for mix in Mix::ALL {
            assert_eq!(mix.to_string().parse::<Mix>().unwrap(), mix);
            assert_eq!(serde_json::to_string(&mix).unwrap(), format!("\"{mix}\""));
        }
    }

    #[test]
    fn a_configuration_file_need_only_say_what_differs() {
        let cell: CellConfig =
            serde_json::from_str(r#"{"scheduler":"rr","mix":"50:50","seconds":2}"#).unwrap();
        assert_eq!(cell.scheduler, Scheduler::Rr);
        assert_eq!(
            (cell.cpus, cell.terminal_count(), cell.background_count()),
            (4, 4, 4)
        );
        assert!(serde_json::from_str::<CellConfig>(r#"{"secnods":2}"#).is_err());
    }

    #[test]
    fn what_nobody_would_heed_is_refused_with_the_remedy() {
        let roles = CellConfig {
            scheduler: Scheduler::Ufs,
            mix: Mix::MinMax,
            by: By::Roles,
            server: Build::Stock,
            hints: Hints::Stock,
            job: Job::PgDump,
            ..CellConfig::default()
        };
        roles.validate().unwrap();
        let mut bad = vec![roles.clone(); 6];
        bad[0].scheduler = Scheduler::Eevdf;
        bad[1].server = Build::Installed;
        bad[2].by = By::Cgroups;
        bad[3].hints = Hints::Patched;
        bad[4].mix = Mix::TwoThree;
        bad[5] = CellConfig {
            by: By::Cgroups,
            hints: Hints::Off,
            ..roles
        };
        for (cell, remedy) in bad
            .iter()
            .zip(["ufs", "stock", "roles", "patched", "Q17", "roles"])
        {
            let error = cell.validate().unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
