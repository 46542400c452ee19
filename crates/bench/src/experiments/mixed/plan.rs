//! Which cells the `mixed` experiment consists of, and what the cells of the
//! experiments that vary it have in common.

use serde::{Deserialize, Serialize};

use crate::cell::config::{CellConfig, Mix};
use crate::cell::setup::{Build, By, Hints};
use crate::harness::scheduler::Scheduler;
use crate::workload::background::Job;

/// The cells of the `mixed` experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Schedulers, in the order in which they are measured.
    pub schedulers: Vec<Scheduler>,
    /// Mixes, in the order in which they are measured.
    pub mixes: Vec<Mix>,
    /// CPUs of the server.
    pub cpus: u32,
    /// CPUs of the clients.
    pub client_cpus: u32,
    /// [`CellConfig::network_us`].
    pub network_us: u32,
    /// Who says what is urgent; roles under UFS only, since nothing else heeds
    /// them.
    pub by: Vec<By>,
    /// What UFS is told of locks, where roles say what is urgent.
    pub hints: Hints,
    /// What runs in the background.
    pub job: Job,
    /// Seconds of warm-up.
    pub warmup_s: f64,
    /// Seconds of the window.
    pub seconds: f64,
    /// Repeats of every cell.
    pub repeat: u32,
    /// Seed of the first repeat; the others count on from it.
    pub seed: u64,
}

impl Plan {
    /// The full experiment: every mix, windows of 4 s after 1 s of warm-up.
    pub(crate) fn new(schedulers: Vec<Scheduler>, cpus: u32) -> Self {
        Plan {
            schedulers,
            mixes: Mix::ALL.to_vec(),
            cpus,
            client_cpus: CellConfig::default_client_cpus(cpus),
            network_us: 0,
            by: vec![By::Cgroups],
            hints: Hints::Off,
            job: Job::Q17,
            warmup_s: 1.0,
            seconds: 4.0,
            repeat: 1,
            seed: 1,
        }
    }

    /// A shorter one for a first look: one repeat, windows of 2 s after half a
    /// second.
    pub(crate) fn quick(self) -> Self {
        Plan {
            warmup_s: 0.5,
            seconds: 2.0,
            repeat: 1,
            ..self
        }
    }

    /// The cells, all of one repeat before the next, so that a run which is cut
    /// short has whole repeats. Every scheduler sees the same seeds.
    pub(crate) fn cells(&self) -> Vec<CellConfig> {
        let mut cells = Vec::new();
        for repeat in 0..self.repeat {
            for mix in &self.mixes {
                for scheduler in self.schedulers.iter().filter(|s| mix.is_relevant_under(s)) {
                    for by in self.by.iter().filter(|by| heeds(scheduler, **by)) {
                        cells.push(self.cell(scheduler, *mix, *by, repeat));
                    }
                }
            }
        }
        cells
    }

    fn cell(&self, scheduler: &Scheduler, mix: Mix, by: By, repeat: u32) -> CellConfig {
        CellConfig {
            scheduler: scheduler.clone(),
            mix,
            cpus: self.cpus,
            client_cpus: self.client_cpus,
            network_us: self.network_us,
            by,
            server: self.server(),
            hints: match by {
                By::Cgroups => Hints::Off,
                By::Roles => self.hints,
            },
            job: self.job,
            warmup_s: self.warmup_s,
            seconds: self.seconds,
            repeat,
            seed: self.seed + u64::from(repeat),
            ..CellConfig::default()
        }
    }

    /// All cells run the same server, since they are compared: the installed
    /// one has no extension.
    pub(crate) fn server(&self) -> Build {
        match self.by.contains(&By::Roles) {
            true => self.hints.build(),
            false => Build::Installed,
        }
    }
}

/// Whether the scheduler hears what is said that way.
fn heeds(scheduler: &Scheduler, by: By) -> bool {
    by == By::Cgroups || *scheduler == Scheduler::Ufs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_measured_where_it_differs_and_seeds_follow_the_repeat() {
        let plan = Plan {
            repeat: 2,
            ..Plan::new(Scheduler::PAPER.to_vec(), 4)
        };
        let cells = plan.cells();
        assert_eq!(cells.len(), 2 * (4 * 4 + 1));
        let idle: Vec<_> = cells
            .iter()
            .filter(|c| c.scheduler == Scheduler::Idle)
            .collect();
        assert!(idle.iter().all(|cell| cell.mix == Mix::MinMax) && idle.len() == 2);
        assert!(!Mix::Solo.is_relevant_under(&Scheduler::CpuIdle));
        assert!(
            cells
                .iter()
                .all(|cell| cell.seed == 1 + u64::from(cell.repeat))
        );
    }

    #[test]
    fn roles_are_measured_where_they_are_heeded_on_the_same_server() {
        let plan = Plan {
            mixes: vec![Mix::MinMax],
            by: vec![By::Cgroups, By::Roles],
            hints: Hints::Patched,
            ..Plan::new(vec![Scheduler::Eevdf, Scheduler::Ufs], 2)
        };
        let cells = plan.cells();
        let arms: Vec<_> = cells.iter().map(|c| (c.by, c.hints)).collect();
        assert_eq!(
            arms,
            [
                (By::Cgroups, Hints::Off),
                (By::Cgroups, Hints::Off),
                (By::Roles, Hints::Patched),
            ]
        );
        assert!(cells.iter().all(|cell| cell.server == Build::Patched));
        assert!(cells.iter().all(|cell| cell.validate().is_ok()));
    }
}
