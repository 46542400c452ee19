//! Rows with round numbers, for tests.

use super::*;
use crate::experiments::kernel_locks::NAME;
use crate::experiments::kernel_locks::row::LockStat;
use crate::harness::environment::Environment;

/// Two threads of each cgroup, sections of 50 and 250 us, held for a second; what
/// each cgroup holds is given in milliseconds.
fn phase(lock: Lock, name: &str, from_s: f64, weight: u32, held_ms: [u64; 2]) -> PhaseRow {
    let group = |group: usize| {
        let section_us = [50, 250][group];
        let renames = held_ms[group] * 1000 / section_us;
        let count = |number: u64| if lock == Lock::Stock { 0 } else { number };
        let threads = if held_ms[group] > 0 { 2 } else { 0 };
        GroupRow {
            weight: [weight, 100][group],
            renames: vec![renames / 2; threads],
            cpu_ms: held_ms[group] as f64,
            stat: LockStat {
                acquisitions: count(renames),
                contended: count(renames),
                wait_ns: count(renames * 100_000),
                hold_ns: count(held_ms[group] * 1_000_000),
            },
            latency: None,
        }
    };
    PhaseRow {
        phase: name.to_owned(),
        from_s,
        seconds: 1.0,
        groups: [group(0), group(1)],
        events: [("moved".to_owned(), 100)].into(),
    }
}

fn row(part: Part, lock: Lock, repeat: u32) -> KernelLocksRow {
    let phase = |name, from_s, weight, held| phase(lock, name, from_s, weight, held);
    let [together, doubled] = match lock {
        Lock::Stock => [[100, 800], [100, 800]],
        _ => [[400, 400], [600, 300]],
    };
    let phases = match part {
        Part::Rename => vec![
            phase("G#1 alone", 0.0, 100, [800, 0]),
            phase("together", 0.2, 100, together),
            phase("doubled", 0.4, 200, doubled),
            phase("G#2 alone", 0.6, 100, [0, 900]),
        ],
        Part::RenameFair => vec![phase("2", 0.0, 100, together)],
        Part::Weights => vec![
            phase("2:1", 0.0, 200, [600, 300]),
            phase("8:1", 0.2, 800, [800, 110]),
        ],
        Part::Blogbench => {
            let beside = if lock == Lock::Stock { 100 } else { 300 };
            let mut phases = vec![
                phase("alone", 0.0, 800, [400, 0]),
                phase("56", 0.2, 800, [beside, 500]),
                phase("after", 0.4, 800, [400, 0]),
            ];
            for phase in &mut phases {
                let us = 2e6 / phase.per_s(0);
                phase.groups[0].latency = Some(Latency {
                    mean_us: us,
                    p50_us: us,
                    p99_us: 2.0 * us,
                    worst_us: 9.0 * us,
                });
            }
            phases
        }
    };
    KernelLocksRow {
        part,
        lock,
        cpus: 16,
        sockets: 1,
        files: 2000,
        repeat,
        seed: 1 + u64::from(repeat),
        phases,
        interval_ms: 10.0,
        series: [vec![160; 60], vec![10; 80]],
    }
}

/// Two repeats with round numbers.
pub(crate) fn report() -> Report<KernelLocksRow> {
    let environment = Environment {
        kernel: "7.2.13-cfl".to_owned(),
        machine: "sample".to_owned(),
        date: "2026-11-27".to_owned(),
        clock: "lockstep".to_owned(),
        commit: "0123456789abcdef".to_owned(),
        cpus: 16,
        ..Environment::default()
    };
    let mut report = Report::new(NAME, environment);
    for repeat in 0..2 {
        for (part, lock) in [
            (Part::Rename, Lock::Stock),
            (Part::Rename, Lock::Cfl),
            (Part::RenameFair, Lock::Stock),
            (Part::RenameFair, Lock::Cfl),
            (Part::Weights, Lock::Cfl),
            (Part::Blogbench, Lock::Stock),
            (Part::Blogbench, Lock::Cfl),
        ] {
            report.rows.push(row(part, lock, repeat));
        }
    }
    report
}
