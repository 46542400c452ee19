//! What processes did between two readings of `/proc`, and the tier of each.
//!
//! UFS counts no processes. The tier comes from what it says of the first of these that
//! there is:
//!
//! ```text
//!   real-time policy         none: UFS does not schedule it
//!   slot of the first thread the thread's tier (only where /proc has the machine's numbers)
//!   kernel thread            time_sensitive
//!   SCHED_IDLE               background
//!   cgroup                   the tier of the nearest one that UFS knows, from its own up
//! ```
//!
//! So marks, labels and `cpu.idle` count as UFS has them, not as this side would guess.
//!
//! What cannot be known: a slot, a policy or a threaded cgroup of another thread than the
//! first; a hint that was inherited at a fork; a boost. A thread that began and ended between
//! two readings counts with its CPU time alone.

use std::collections::HashMap;

use giveway_tier::Tier;

use super::row::{OfProc, Rest, Row};
use crate::processes::{Policy, Process, Processes, ReadError, Switches, TICK_NS};
use crate::sample::Sample;

/// Processes, and what they did.
#[derive(Clone, Debug)]
pub struct ProcessRows {
    /// In no order.
    pub rows: Vec<Row>,
    hides_others: bool,
    is_of_machine: bool,
    failure: Option<String>,
}

impl ProcessRows {
    /// What happened from `before` to `now`, with the tiers of `ufs`, which is of now, too.
    pub fn new(before: &Processes, now: &Processes, ufs: &Sample) -> Self {
        let tiers = Tiers::of(ufs, now.is_of_machine);
        let last_start = before.by_pid.values().map(|process| process.started).max();
        let rows = now.by_pid.iter().map(|(&pid, process)| {
            let same = before.by_pid.get(&pid);
            let same = same.filter(|old| old.started == process.started);
            // One that was there before, but not seen, did nothing that is known.
            let unseen = same.is_none() && Some(process.started) < last_start;
            let done = match (same, unseen) {
                (_, true) => Done::default(),
                (Some(old), false) => Done::since(old, process),
                (None, false) => Done::since(&Process::default(), process),
            };
            Row {
                name: process.command.clone(),
                id: Some(pid.into()),
                tier: tiers.of_process(pid, process).map(str::to_owned),
                run_ns: done.cpu_ticks * TICK_NS,
                preempted: done.switches.involuntary,
                rest: Rest::Proc(OfProc {
                    cgroup: process.cgroup.as_ref().map(|cgroup| cgroup.path.clone()),
                    threads: process.threads,
                    voluntary: done.switches.voluntary,
                    started: process.started,
                }),
            }
        });
        Self {
            rows: rows.collect(),
            hides_others: now.hides_others,
            is_of_machine: now.is_of_machine,
            failure: None,
        }
    }

    /// None, since they could not be read.
    pub fn failed(error: &ReadError) -> Self {
        Self {
            rows: Vec::new(),
            hides_others: false,
            is_of_machine: false,
            failure: Some(error.to_string()),
        }
    }

    /// What to say behind their number if they are not all of the machine.
    pub fn note(&self) -> &'static str {
        match (self.hides_others, self.is_of_machine) {
            (true, _) => ", others are hidden",
            (false, false) => " of a container",
            (false, true) => "",
        }
    }

    /// Why not all processes of the machine are there.
    pub fn missing(&self) -> Option<String> {
        let hidden = "hidepid hides those of others: use sudo";
        let contained = "those of a container alone";
        match (&self.failure, self.hides_others, self.is_of_machine) {
            (Some(failure), ..) => Some(failure.clone()),
            (None, true, _) => Some(hidden.to_owned()),
            (None, false, false) => Some(contained.to_owned()),
            (None, false, true) => None,
        }
    }
}

/// What a process did.
#[derive(Default)]
struct Done {
    cpu_ticks: u64,
    switches: Switches,
}

impl Done {
    fn since(before: &Process, now: &Process) -> Self {
        let mut switches = Switches::default();
        for (tid, thread) in &now.switches {
            let old = before.switches.get(tid).copied().unwrap_or_default();
            // A lower number is another thread's.
            let since = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
            switches.voluntary += since(thread.voluntary, old.voluntary);
            switches.involuntary += since(thread.involuntary, old.involuntary);
        }
        Self {
            cpu_ticks: now.cpu_ticks.saturating_sub(before.cpu_ticks),
            switches,
        }
    }
}

/// What UFS says of tiers.
struct Tiers<'a> {
    ufs: &'a Sample,
    /// By thread; empty where numbers are others than those of UFS.
    slots: HashMap<u32, &'a str>,
}

impl<'a> Tiers<'a> {
    fn of(ufs: &'a Sample, has_its_numbers: bool) -> Self {
        let threads = ufs.threads.values().filter(|_| has_its_numbers);
        let slots = threads.map(|thread| (thread.tid, thread.tier.as_str()));
        Self {
            ufs,
            slots: slots.collect(),
        }
    }

    fn of_process(&self, pid: u32, process: &Process) -> Option<&'a str> {
        if process.policy == Policy::RealTime {
            return None;
        }
        if let Some(tier) = self.slots.get(&pid) {
            return Some(tier);
        }
        if process.is_kernel {
            return Some(Tier::TimeSensitive.name());
        }
        if process.policy == Policy::Idle {
            return Some(Tier::Background.name());
        }
        let ids = process.cgroup.iter().flat_map(|cgroup| &cgroup.ids);
        let mut known = ids.filter_map(|id| self.ufs.cgroups.get(id));
        known.next().map(|cgroup| cgroup.tier.as_str())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::processes::Cgroup;
    use crate::sample::{CgroupSample, ThreadSample};

    fn process(command: &str, path: &str, ids: &[u64], ticks: u64, switches: [u64; 2]) -> Process {
        let [voluntary, involuntary] = switches;
        let switches = Switches {
            voluntary,
            involuntary,
        };
        Process {
            started: 700,
            command: command.into(),
            cgroup: Some(Arc::new(Cgroup {
                path: path.into(),
                ids: ids.to_vec(),
            })),
            threads: 1,
            cpu_ticks: ticks,
            switches: BTreeMap::from([(0, switches)]),
            ..Process::default()
        }
    }

    fn all(processes: impl IntoIterator<Item = (u32, Process)>) -> Processes {
        Processes {
            by_pid: processes.into_iter().collect(),
            hides_others: false,
            is_of_machine: true,
        }
    }

    /// A UFS that knows three cgroups.
    fn sample() -> Sample {
        let cgroup = |tier: &str| CgroupSample {
            tier: tier.into(),
            ..CgroupSample::default()
        };
        let cgroups = [
            (1, cgroup("time_sensitive")),
            (70, cgroup("time_sensitive")),
            (71, cgroup("background")),
        ];
        Sample {
            cgroups: cgroups.into(),
            ..Sample::default()
        }
    }

    /// Processes of every kind, which used so much of the CPU time that they could.
    pub(crate) fn rows(part: f64, ufs: &Sample) -> ProcessRows {
        let ticks = |ticks: u64| (ticks as f64 * part) as u64;
        let database = "/system.slice/postgresql";
        let user = "/user.slice/user-1000.slice/user@1000.service/app.slice/backup.service";
        let now = all([
            (1, process("systemd", "/init.scope", &[8, 1], 0, [3, 0])),
            (
                4001,
                process("postgres", database, &[70, 9, 1], ticks(30), [210, 7]),
            ),
            (
                4002,
                process("postgres", database, &[70, 9, 1], ticks(5), [4, 0]),
            ),
            (
                1_234_567,
                Process {
                    threads: 1000,
                    ..process(
                        "a (b) c 12345678",
                        "/background.slice/train.service",
                        &[99, 71, 1],
                        ticks(150),
                        [0, 80_100],
                    )
                },
            ),
            (
                60,
                Process {
                    policy: Policy::Idle,
                    ..process("backup", user, &[60, 1], ticks(2), [90, 20])
                },
            ),
            (
                17,
                Process {
                    is_kernel: true,
                    policy: Policy::RealTime,
                    ..process("migration/0", "/", &[1], 0, [12, 0])
                },
            ),
            (
                90,
                Process {
                    is_kernel: true,
                    ..process("kworker/u8:2-events_unbound", "/", &[1], 0, [2, 0])
                },
            ),
        ]);
        ProcessRows::new(&Processes::default(), &now, ufs)
    }

    fn tier(pid: u32, process: Process, ufs: &Sample, is_of_machine: bool) -> Option<String> {
        let mut now = all([(pid, process)]);
        now.is_of_machine = is_of_machine;
        let rows = ProcessRows::new(&now, &now, ufs);
        rows.rows[0].tier.clone()
    }

    #[test]
    fn the_tier_is_what_ufs_has() {
        let mut ufs = sample();
        let at = |ids: &[u64]| process("x", "/", ids, 0, [0, 0]);
        let of = |process| tier(7, process, &sample(), true);
        let (high, low) = (Some("time_sensitive".into()), Some("background".into()));
        assert_eq!(of(at(&[71, 1])), low);
        assert_eq!(of(at(&[70, 1])), high);
        // Of a cgroup without the controller, the nearest above.
        assert_eq!(of(at(&[99, 71, 1])), low);
        assert_eq!(of(at(&[99])), None);
        let idle = |is_kernel| Process {
            policy: Policy::Idle,
            is_kernel,
            ..at(&[70])
        };
        assert_eq!(of(idle(false)), low);
        assert_eq!(of(idle(true)), high);
        let real_time = Process {
            policy: Policy::RealTime,
            ..at(&[70])
        };
        assert_eq!(of(real_time.clone()), None);
        // A slot of the first thread counts for the process, where numbers are the same.
        let slot = |tid, tier: &str| ThreadSample {
            tid,
            tier: tier.into(),
            ..ThreadSample::default()
        };
        ufs.threads = [(3, slot(7, "background")), (4, slot(8, "time_sensitive"))].into();
        assert_eq!(tier(7, at(&[70]), &ufs, true), low);
        assert_eq!(tier(7, at(&[70]), &ufs, false), high);
        assert_eq!(tier(8, idle(false), &ufs, true), high);
        assert_eq!(tier(8, real_time, &ufs, true), None);
        ufs.cgroups.clear();
        assert_eq!(tier(9, at(&[70]), &ufs, true), None, "an older UFS");
    }

    #[test]
    fn a_row_is_what_the_process_did_meanwhile() {
        let threads = |threads: &[(u32, u64, u64)]| -> BTreeMap<u32, Switches> {
            let each = threads.iter().map(|&(tid, voluntary, involuntary)| {
                let switches = Switches {
                    voluntary,
                    involuntary,
                };
                (tid, switches)
            });
            each.collect()
        };
        let at = |started, cpu_ticks, switches| Process {
            started,
            cpu_ticks,
            switches,
            ..Process::default()
        };
        let before = all([
            (7, at(100, 500, threads(&[(7, 10, 20), (8, 99, 99)]))),
            (9, at(100, 500, threads(&[(9, 50, 50)]))),
            (5, at(200, 0, threads(&[]))),
        ]);
        let now = all([
            // A thread ended, another has its number by now, and one is new.
            (
                7,
                at(100, 530, threads(&[(7, 11, 23), (8, 2, 100), (12, 40, 0)])),
            ),
            // Another process with the number of one that ended.
            (9, at(300, 3, threads(&[(9, 60, 60)]))),
            // New.
            (10, at(300, 4, threads(&[(10, 1, 1)]))),
            // There before, and not seen.
            (11, at(150, 9000, threads(&[(11, 9000, 9000)]))),
        ]);
        let rows = ProcessRows::new(&before, &now, &sample()).rows;
        let did: Vec<_> = rows
            .iter()
            .map(|row| {
                let voluntary = row.proc().unwrap().voluntary;
                (
                    row.id.unwrap(),
                    row.run_ns / TICK_NS,
                    voluntary,
                    row.preempted,
                )
            })
            .collect();
        let wanted = [
            (7, 30, 1 + 2 + 40, 3 + 1),
            (9, 3, 60, 60),
            (10, 4, 1, 1),
            (11, 0, 0, 0),
        ];
        assert_eq!(did, wanted);
    }

    #[test]
    fn who_sees_a_part_is_told() {
        let said = |hides_others, is_of_machine| {
            let now = Processes {
                hides_others,
                is_of_machine,
                ..Processes::default()
            };
            let rows = ProcessRows::new(&now, &now, &sample());
            assert_eq!(rows.note().is_empty(), rows.missing().is_none());
            rows.missing().unwrap_or_default()
        };
        assert_eq!(said(false, true), "");
        assert!(said(true, true).contains("hidepid"));
        assert!(said(false, false).contains("container"));
    }
}
