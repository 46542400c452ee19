//! Locks of the kernel that share hold time by cgroup weight. Design of the locks:
//! `docs/design/cfl-kernel.md`.
//!
//! # A mutex
//!
//! Threads of two cgroups rename files between directories and so share one lock of the
//! file system, `s_vfs_rename_mutex` (CFL paper, Sections 4.4 and 4.6.2).
//!
//! ```text
//!   G#1   16 threads   home1/t ◄──► empty/t   short sections
//!   G#2   32 threads   home2/t ◄──► full/t    long sections: every name is compared
//! ```
//!
//! Each thread moves one empty file of its own there and back, and does nothing else. The
//! file system is ext4 on a disk in memory, without `dir_index`, as in the benchmark that
//! the paper used: the kernel then looks for a name by comparing it with all, twice for
//! each move into the full directory, and holds the mutex meanwhile. The way back is
//! short, since the name is known and lies in the last block. There is no journal, which
//! would be a second thing that both cgroups wait for.
//!
//! A cell is one part and one lock, in a guest of its own. Its phases follow one another
//! in one process; what runs in two of them runs on between them:
//!
//! | part | phases |
//! | --- | --- |
//! | `rename` | G#1 alone; both; both, the weight of G#1 doubled; G#2 alone |
//! | `rename-fair` | as many threads of each cgroup: 2, 4, 8, 16 |
//! | `weights` | both, weights 2:1, 8:1, 100:1 |
//! | `blogbench` | the blog alone; beside 16, 32, 56 threads of the batch; alone again |
//!
//! A phase is a time to settle and a window. Hold and wait times are the kernel's own
//! (`lock.stat`), which it keeps for CFL only. For the stock mutex what each thread held
//! is estimated: its renames, times the mean section of its cgroup under CFL in the same
//! phase.
//!
//! # A spinlock
//!
//! `blogbench` (Sections 2.1 and 4.2) shares `rename_lock`, which every rename of the
//! machine takes, whatever its directory.
//!
//! ```text
//!   G#1    4 threads   a blog server by Blogbench's method, lock weight 800
//!   G#2   16 to 56     the batch: each renames a file of its own directory, weight 100
//! ```
//!
//! An operation of the blog writes a file under another name and renames it. Sizes are
//! Blogbench's, and so are the kinds: articles and pictures of a new blog, then as many
//! changes and comments of random ones. Its files are on a tmpfs and their number is
//! bounded, so that what is written over is what was there.
//!
//! Known weakness: the parent directories' own locks are taken inside the mutex, but the
//! work before and after it is not measured apart. A flat clock prices no cache, so what a
//! lock gains by keeping to a socket is not seen.

mod blog;
pub(crate) mod cli;
pub(crate) mod report;
mod row;
mod run;

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::harness::Progress;
use crate::harness::environment::Environment;
use crate::harness::error::Result;
use crate::report::Report;
pub(crate) use row::KernelLocksRow;

/// The name of the experiment.
pub(crate) const NAME: &str = "kernel-locks";

/// The first cgroup's threads and the second's, as in the paper.
const THREADS: [u32; 2] = [16, 32];
/// Threads of each cgroup in `rename-fair`.
const EQUAL: [u32; 4] = [2, 4, 8, 16];
/// Weights of G#1 in `weights`, that of G#2 being 100; windows, in those of the plan:
/// the cgroup with the low weight has to hold often enough in each.
const WEIGHTS: [(u32, f64); 3] = [(200, 1.0), (800, 2.0), (10_000, 5.0)];
/// Threads there: more of the cgroup with the lower weight.
const UNEQUAL: [u32; 2] = [8, 16];

/// Threads of the blog server, as in the paper, and of the batch beside it: as many as the
/// machine has CPUs for, where the paper has 64 on 128.
const BLOG: u32 = 4;
const BATCH: [u32; 3] = [16, 32, 56];
/// What the blog's lock weight is, the batch's being 100.
const BLOG_WEIGHT: u32 = 800;
/// The phase in which the blog is alone, and that in which it is so again.
const BLOG_ALONE: [&str; 2] = ["alone", "after"];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Figure 7: alone and together, over time
    Rename,
    /// Figure 9: equal numbers of threads
    RenameFair,
    /// Hold time by weight
    Weights,
    /// Figures 1 and 5: a blog server beside a batch, which share a spinlock
    Blogbench,
}

/// A lock that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Lock {
    /// The kernel's own mutex or spinlock
    Stock,
    /// CFL
    Cfl,
    /// CFL that does not know cgroups
    CflNg,
    /// CFL without prevention of starvation
    CflNs,
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Lock::Stock => "stock",
            Lock::Cfl => "cfl",
            Lock::CflNg => "cfl-ng",
            Lock::CflNs => "cfl-ns",
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Rename => "rename",
            Part::RenameFair => "rename-fair",
            Part::Weights => "weights",
            Part::Blogbench => "blogbench",
        })
    }
}

/// A phase of a cell: who runs, with which weights, and how long it is measured.
#[derive(Clone, Debug, PartialEq)]
struct Phase {
    name: String,
    threads: [u32; 2],
    weights: [u32; 2],
    seconds: f64,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelLocksPlan {
    /// What is measured.
    pub part: Part,
    /// The lock.
    pub lock: Lock,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Sockets that they are spread over.
    pub sockets: u32,
    /// Files in the full directory.
    pub files: u32,
    /// Seconds before each window.
    pub settle_s: f64,
    /// Seconds of a window.
    pub seconds: f64,
    /// Which repeat this is, from 0; only written to rows.
    pub repeat: u32,
    /// The machine's seed; only written to rows.
    pub seed: u64,
}

impl KernelLocksPlan {
    /// A name for progress lines.
    pub(crate) fn title(&self) -> String {
        format!("{}, {}, repeat {}", self.part, self.lock, self.repeat + 1)
    }

    /// What follows one another in the cell.
    fn phases(&self) -> Vec<Phase> {
        let phase = |name: &str, threads, weight, windows: f64| Phase {
            name: name.to_owned(),
            threads,
            weights: [weight, 100],
            seconds: self.seconds * windows,
        };
        let [first, second] = THREADS;
        match self.part {
            Part::Rename => vec![
                phase("G#1 alone", [first, 0], 100, 1.0),
                phase("together", THREADS, 100, 1.0),
                phase("doubled", THREADS, 200, 1.0),
                phase("G#2 alone", [0, second], 100, 1.0),
            ],
            Part::RenameFair => EQUAL
                .map(|count| phase(&count.to_string(), [count; 2], 100, 1.0))
                .into(),
            Part::Weights => WEIGHTS
                .map(|(weight, windows)| {
                    phase(&format!("{}:1", weight / 100), UNEQUAL, weight, windows)
                })
                .into(),
            Part::Blogbench => {
                let phase = |name: &str, batch| phase(name, [BLOG, batch], BLOG_WEIGHT, 1.0);
                let beside = BATCH.map(|batch| phase(&batch.to_string(), batch));
                let [before, after] = BLOG_ALONE.map(|name| phase(name, 0));
                [before].into_iter().chain(beside).chain([after]).collect()
            }
        }
    }

    /// Measures on this machine, which needs root and the CFL kernel.
    ///
    /// # Errors
    /// A machine that is not as it should be.
    pub(crate) fn run(
        &self,
        clock: &str,
        progress: Progress<'_>,
    ) -> Result<Report<KernelLocksRow>> {
        progress(&format!("{}: measuring", self.title()));
        let mut report = Report::new(NAME, Environment::probe(clock));
        report.rows.push(run::run(self)?);
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cgroup_runs_on_when_the_second_joins_and_its_weight_doubles() {
        let plan = KernelLocksPlan {
            part: Part::Rename,
            ..cli::usual()
        };
        let phases = plan.phases();
        let threads: Vec<_> = phases.iter().map(|phase| phase.threads).collect();
        assert_eq!(threads, [[16, 0], [16, 32], [16, 32], [0, 32]]);
        let weights: Vec<_> = phases.iter().map(|phase| phase.weights[0]).collect();
        assert_eq!(weights, [100, 100, 200, 100]);
    }

    #[test]
    fn the_blog_is_alone_before_and_after_the_batch() {
        let plan = KernelLocksPlan {
            part: Part::Blogbench,
            ..cli::usual()
        };
        let phases = plan.phases();
        let threads: Vec<_> = phases.iter().map(|phase| phase.threads).collect();
        assert_eq!(threads, [[4, 0], [4, 16], [4, 32], [4, 56], [4, 0]]);
        assert!(phases.iter().all(|phase| phase.weights == [800, 100]));
    }

    #[test]
    fn windows_are_longer_where_a_cgroup_holds_rarely() {
        let plan = KernelLocksPlan {
            part: Part::Weights,
            seconds: 0.5,
            ..cli::usual()
        };
        let phases = plan.phases();
        let names: Vec<_> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["2:1", "8:1", "100:1"]);
        assert_eq!(phases[2].seconds, 2.5);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(
            serde_json::from_str::<KernelLocksPlan>(&text).unwrap(),
            plan
        );
    }
}
