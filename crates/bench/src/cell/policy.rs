//! Priorities as in the paper's Table 2.
//!
//! | scheduler | high priority            | low priority                 |
//! |-----------|--------------------------|------------------------------|
//! | EEVDF     | NORMAL, weight 10000     | NORMAL, weight 1             |
//! | IDLE      | NORMAL, weight 10000     | IDLE, weight 1               |
//! | CPU-IDLE  | NORMAL, weight 10000     | NORMAL, `cpu.idle` 1         |
//! | FIFO, RR  | FIFO or RR, priority 99  | NORMAL, weight 1             |
//! | RR-BARE   | as RR, and the kernel's fair server is off ([`super::fair_server`]) |
//! | UFS       | time-sensitive, 10000    | background, weight 1         |
//! | scx_NAME  | as EEVDF; scx_layered has layers for it ([`super::layers`]); what the others make of it is their affair |
//!
//! IDLE is the paper's. Since Linux 6.7 or so a wake-up compares the cgroups of the two
//! tasks where these are siblings, so the class of a task inside of one decides nothing
//! there; CPU-IDLE, which the paper does not have, says the same of the cgroup.
//!
//! High is what is time-sensitive: in the 50:50 mix that is the background's
//! backends, too. In the mix 2:3 weights are those of the classes.
//! Otherwise `sched_rt_runtime_us` and the kernel's fair server keep their defaults, so
//! real-time backends leave NORMAL processes about 5 % of a CPU, as on any
//! machine. Only backends become real-time: the server's own processes
//! (postmaster, checkpointer, WAL writer) stay NORMAL in the high group.
//!
//! Terminals are SCHED_FIFO under every scheduler, so that none that is measured has
//! them: they stand for the paper's second machine. Else the server would pay for
//! what it costs to wake its clients, and under each scheduler another price.
//!
//! All this is what a program outside the server has to do. What SQL does
//! instead is in [`super::roles`].

use giveway_tier::Tier;

use super::cgroup::Tree;
use crate::cell::class::Class as WorkClass;
use crate::cell::config::CellConfig;
use crate::cell::setup::By;
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;

/// The calling thread.
pub(super) const CALLER: i32 = 0;
/// The highest real-time priority (the paper's Table 2).
const PRIORITY: i32 = 99;

/// A scheduling class that processes and threads are put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Normal,
    Idle,
    Fifo,
    Rr,
}

impl Class {
    /// Puts a thread into this class.
    pub(crate) fn apply(self, pid: i32) -> Result<()> {
        let (policy, priority, class) = match self {
            Class::Normal => return Ok(()),
            Class::Idle => (libc::SCHED_IDLE, 0, "SCHED_IDLE"),
            Class::Fifo => (libc::SCHED_FIFO, PRIORITY, "SCHED_FIFO"),
            Class::Rr => (libc::SCHED_RR, PRIORITY, "SCHED_RR"),
        };
        let parameters = libc::sched_param {
            sched_priority: priority,
        };
        // SAFETY: the kernel only reads `parameters`, which outlives the call.
        match unsafe { libc::sched_setscheduler(pid, policy, &parameters) } {
            0 => Ok(()),
            _ => Err(Error::Class {
                pid,
                class,
                source: std::io::Error::last_os_error(),
            }),
        }
    }
}

/// The class of backends with the high or the low priority.
pub(crate) fn class(scheduler: &Scheduler, high: bool) -> Class {
    match (scheduler, high) {
        (Scheduler::Idle, false) => Class::Idle,
        (Scheduler::Fifo, true) => Class::Fifo,
        (Scheduler::Rr | Scheduler::RrBare, true) => Class::Rr,
        _ => Class::Normal,
    }
}

/// Puts the server and everything it has started into the high group; what it
/// starts later is born there.
pub(crate) fn place_server(tree: &Tree, postmaster: i32) -> Result<()> {
    tree.server().add(postmaster)?;
    let path = format!("/proc/{postmaster}/task/{postmaster}/children");
    let children = std::fs::read_to_string(&path).map_err(Error::file("read", path.as_ref()))?;
    for child in children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
    {
        match tree.server().add(child) {
            // It ended meanwhile.
            Err(Error::Cgroup { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Gives each class's backends their cgroup and scheduling class; nothing where
/// roles say it all.
pub(super) fn place_backends(
    tree: &Tree,
    config: &CellConfig,
    classes: &[WorkClass],
    pids: &[Vec<i32>],
) -> Result<()> {
    if config.by == By::Roles {
        return Ok(());
    }
    for ((group, work), pids) in tree.groups().iter().zip(classes).zip(pids) {
        let class = class(&config.scheduler, work.tier == Tier::TimeSensitive);
        for pid in pids {
            group.add(*pid)?;
            class.apply(*pid)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_papers_table_2() {
        use Scheduler::{Eevdf, Fifo, Idle, Rr, RrBare, Ufs};
        let classes =
            [Eevdf, Idle, Fifo, Rr, RrBare, Ufs].map(|s| (class(&s, true), class(&s, false)));
        assert_eq!(
            classes,
            [
                (Class::Normal, Class::Normal),
                (Class::Normal, Class::Idle),
                (Class::Fifo, Class::Normal),
                (Class::Rr, Class::Normal),
                (Class::Rr, Class::Normal),
                (Class::Normal, Class::Normal),
            ]
        );
    }

    #[test]
    fn a_class_that_was_applied_is_the_processes_own() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        // SCHED_IDLE needs no privilege.
        let applied = Class::Idle.apply(pid);
        // SAFETY: the call takes no pointers.
        let policy = unsafe { libc::sched_getscheduler(pid) };
        child.kill().unwrap();
        child.wait().unwrap();
        applied.unwrap();
        assert_eq!(policy, libc::SCHED_IDLE);
    }
}
