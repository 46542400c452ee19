//! A row of a view: what it says, its columns and their order.
//!
//! ```text
//!   UFS:   name  RUN  BG  P50  P99  PREEMPT  BOOST  FLOOR      tiers, cgroups, backends, CPUs
//!                   LOCK before P50                            cgroups, on kernels with CFL
//!   /proc: pid  name  tier  cgroup  threads  RUN  PREEMPT  VOLUNT             processes
//! ```
//!
//! CPU time and involuntary switches are in every view. The rest is known to one of the two
//! alone ([`Rest`]).

use std::cmp::Ordering;

use serde::Serialize;

use crate::sample::Work;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The two tiers.
    Tiers,
    /// Cgroups, each without those below it.
    Cgroups,
    /// Threads with a hint slot: PostgreSQL's backends, where its extension runs.
    Backends,
    /// CPUs.
    Cpus,
    /// Processes, as `/proc` has them.
    Processes,
}

impl View {
    /// In the order of their keys.
    pub const ALL: [View; 5] = [
        View::Tiers,
        View::Cgroups,
        View::Backends,
        View::Cpus,
        View::Processes,
    ];

    /// What the view is called.
    pub fn name(self) -> &'static str {
        match self {
            View::Tiers => "tiers",
            View::Cgroups => "cgroups",
            View::Backends => "backends",
            View::Cpus => "cpus",
            View::Processes => "processes",
        }
    }

    /// From left to right; with waits for the kernel's locks, if it counts them.
    pub fn columns(self, has_locks: bool) -> &'static [Column] {
        match self {
            View::Cgroups if has_locks => &WITH_LOCKS,
            View::Tiers | View::Cgroups | View::Backends | View::Cpus => &OF_UFS,
            View::Processes => &OF_PROC,
        }
    }
}

/// What a row says, and what rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The number of a process.
    Pid,
    /// What it is called.
    Name,
    /// The tier.
    Tier,
    /// The cgroup's path.
    Cgroup,
    /// How many threads.
    Threads,
    /// CPU time, in per cent of one CPU.
    Run,
    /// The part of it in the background tier.
    Background,
    /// Time waited for the kernel's locks, in per cent of one thread's.
    LockWait,
    /// Median time from wake-up to run.
    P50,
    /// 99th percentile of it.
    P99,
    /// Times a CPU was lost that would have been used on.
    Preempted,
    /// Times a CPU was left to wait for something.
    Voluntary,
    /// Runs because urgent work waited.
    Boosted,
    /// Runs because of too long a wait.
    Floor,
}

const OF_UFS: [Column; 8] = [
    Column::Name,
    Column::Run,
    Column::Background,
    Column::P50,
    Column::P99,
    Column::Preempted,
    Column::Boosted,
    Column::Floor,
];

const WITH_LOCKS: [Column; 9] = [
    Column::Name,
    Column::Run,
    Column::Background,
    Column::LockWait,
    Column::P50,
    Column::P99,
    Column::Preempted,
    Column::Boosted,
    Column::Floor,
];

const OF_PROC: [Column; 8] = [
    Column::Pid,
    Column::Name,
    Column::Tier,
    Column::Cgroup,
    Column::Threads,
    Column::Run,
    Column::Preempted,
    Column::Voluntary,
];

/// One row. Numbers are of the time between the two samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The tier, the cgroup's path, the thread's title, `cpu N`, the process's command.
    pub name: String,
    /// The cgroup's number, the thread's, the CPU's, the process's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The tier, where a row has one and it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// CPU time in nanoseconds.
    pub run_ns: u64,
    /// Times a task left a CPU which it would have gone on using.
    pub preempted: u64,
    /// What only one source knows.
    #[serde(flatten)]
    pub rest: Rest,
}

/// The part of a row that depends on where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Rest {
    /// From UFS's statistics.
    Ufs(OfUfs),
    /// From `/proc`.
    Proc(OfProc),
}

/// What UFS alone counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OfUfs {
    /// The part of the CPU time in the background tier.
    pub background_ns: u64,
    /// Time for which threads waited for the kernel's locks, of a cgroup in it and below
    /// it, where the kernel counts that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_wait_ns: Option<u64>,
    /// Wake-ups that led to a run.
    pub wakes: u64,
    /// Median time from wake-up to run in nanoseconds, upper bound.
    pub wake_p50_ns: Option<u64>,
    /// 99th percentile of it.
    pub wake_p99_ns: Option<u64>,
    /// Runs because urgent work waited for the task.
    pub boosted_runs: u64,
    /// Runs because the task had waited for the floor's deadline.
    pub floor_runs: u64,
}

/// What `/proc` alone says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OfProc {
    /// The cgroup's path; none without cgroup v2.
    pub cgroup: Option<String>,
    /// How many threads it has.
    pub threads: u64,
    /// Times a thread left its CPU to wait for something.
    pub voluntary: u64,
    /// When it was started, in clock ticks since boot: with the number, which process it is.
    #[serde(skip)]
    pub started: u64,
}

impl Row {
    pub(super) fn new(name: String, id: Option<u64>, tier: Option<&str>, done: &Work) -> Self {
        Self {
            name,
            id,
            tier: tier.map(str::to_owned),
            run_ns: done.run_ns(),
            preempted: done.preempted,
            rest: Rest::Ufs(OfUfs {
                background_ns: done.background_ns,
                lock_wait_ns: None,
                wakes: done.wakes.count(),
                wake_p50_ns: done.wakes.percentile_ns(50),
                wake_p99_ns: done.wakes.percentile_ns(99),
                boosted_runs: done.boosted_runs,
                floor_runs: done.floor_runs,
            }),
        }
    }

    /// The same with so much waiting for the kernel's locks.
    pub(super) fn with_lock_wait(mut self, ns: Option<u64>) -> Self {
        if let Rest::Ufs(ufs) = &mut self.rest {
            ufs.lock_wait_ns = ns;
        }
        self
    }

    /// Whether nothing happened. Waits for locks are no sign: a cgroup has those of the
    /// cgroups below it.
    pub(super) fn is_idle(&self) -> bool {
        let rest = match &self.rest {
            Rest::Ufs(ufs) => ufs.wakes,
            Rest::Proc(proc) => proc.voluntary,
        };
        self.run_ns == 0 && self.preempted == 0 && rest == 0
    }

    /// What UFS counted.
    pub fn ufs(&self) -> Option<&OfUfs> {
        match &self.rest {
            Rest::Ufs(ufs) => Some(ufs),
            Rest::Proc(_) => None,
        }
    }

    /// What `/proc` said.
    pub fn proc(&self) -> Option<&OfProc> {
        match &self.rest {
            Rest::Ufs(_) => None,
            Rest::Proc(proc) => Some(proc),
        }
    }

    /// Whether its number, name, tier or cgroup has this in it, which is in lower case.
    pub(super) fn mentions(&self, wanted: &str) -> bool {
        let has = |text: &str| text.to_lowercase().contains(wanted);
        let of_proc = |proc: &OfProc| {
            // Other rows have their number in their name, if it says anything to people.
            let number = self.id.is_some_and(|id| has(&id.to_string()));
            number || proc.cgroup.as_deref().is_some_and(has)
        };
        has(&self.name) || self.tier.as_deref().is_some_and(has) || self.proc().is_some_and(of_proc)
    }

    /// By a column; text the other way round, so that the greatest row comes first.
    pub(super) fn compare(&self, other: &Row, by: Column) -> Ordering {
        let ufs = |number: fn(&OfUfs) -> Option<u64>| {
            let number = |row: &Row| row.ufs().and_then(number);
            number(self).cmp(&number(other))
        };
        let proc = |number: fn(&OfProc) -> u64| {
            let number = |row: &Row| row.proc().map(number);
            number(self).cmp(&number(other))
        };
        match by {
            Column::Pid => self.id.cmp(&other.id),
            Column::Name => self.by_name(other).reverse(),
            // What has no tier is last.
            Column::Tier => self.tier.cmp(&other.tier),
            Column::Cgroup => {
                let path = |row: &Row| row.proc().and_then(|proc| proc.cgroup.clone());
                natural(
                    &path(other).unwrap_or_default(),
                    &path(self).unwrap_or_default(),
                )
            }
            Column::Threads => proc(|proc| proc.threads),
            Column::Run => self.run_ns.cmp(&other.run_ns),
            Column::Background => ufs(|ufs| Some(ufs.background_ns)),
            Column::LockWait => ufs(|ufs| ufs.lock_wait_ns),
            Column::P50 => ufs(|ufs| ufs.wake_p50_ns),
            Column::P99 => ufs(|ufs| ufs.wake_p99_ns),
            Column::Preempted => self.preempted.cmp(&other.preempted),
            Column::Voluntary => proc(|proc| proc.voluntary),
            Column::Boosted => ufs(|ufs| Some(ufs.boosted_runs)),
            Column::Floor => ufs(|ufs| Some(ufs.floor_runs)),
        }
    }

    /// The first of the alphabet first, and of one name the lowest number.
    pub(super) fn by_name(&self, other: &Row) -> Ordering {
        natural(&self.name, &other.name).then_with(|| self.id.cmp(&other.id))
    }
}

/// By letters, and by value where both have a number: `cpu 9` before `cpu 10`.
fn natural(a: &str, b: &str) -> Ordering {
    let split = |text: &str| {
        let at = text
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(text.len());
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let number: u64 = rest[..end.unwrap_or(rest.len())].parse().unwrap_or(0);
        (text[..at].to_owned(), number)
    };
    split(a).cmp(&split(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_by_value() {
        assert_eq!(natural("cpu 9", "cpu 10"), Ordering::Less);
        assert_eq!(natural("a", "b"), Ordering::Less);
    }
}
