//! A report with round numbers in which CFL meets its targets, for tests.

use crate::experiments::locks::{ArrivalRow, Contended, LockExperiment, LockRow, SetRow, Waits};
use crate::harness::environment::Environment;
use crate::report::Report;

fn waits(mean_us: f64) -> Waits {
    Waits {
        count: 1000,
        mean_us,
        p50_us: mean_us * 0.5,
        p99_us: mean_us * 8.0,
        p999_us: mean_us * 20.0,
        max_us: mean_us * 50.0,
    }
}

/// A run; `share` is the first set's part of hold time, of which it may have
/// `entitled`.
fn contended(turns_per_s: f64, share: f64, entitled: f64, mean_us: f64) -> Contended {
    let set = |name: &str, share: f64, entitled: f64, inside_us: f64| SetRow {
        name: name.to_owned(),
        threads: 4,
        inside_us,
        weight: 100,
        group_weight: None,
        entitled,
        share,
        turns: (turns_per_s * share) as u64,
        held_s: share,
        held_s_per_thread: vec![share / 4.0; 4],
        wait: waits(mean_us),
        bypass_max: 12,
    };
    Contended {
        seconds: 1.0,
        sets: vec![
            set("short", share, entitled, 1.0),
            set("long", 1.0 - share, 1.0 - entitled, 3.0),
        ],
        turns_per_s,
        held: 0.95,
        ratio: Some((share / entitled) / ((1.0 - share) / (1.0 - entitled))),
        jain: if (share - entitled).abs() < 0.02 {
            0.999
        } else {
            0.8
        },
        wait: waits(mean_us),
        cpus_used: 2.0,
        voluntary_per_s: 1000.0,
        involuntary_per_s: 500.0,
        arrivals: None,
        numa: None,
    }
}

/// Three locks, each experiment once, two repeats.
pub(crate) fn report() -> Report<LockRow> {
    let environment = Environment {
        kernel: "7.2.13-cloud-amd64".to_owned(),
        cpus: 4,
        clock: "native".to_owned(),
        commit: "0123456789ab".to_owned(),
        date: "2026-11-21".to_owned(),
        machine: "sample".to_owned(),
        cpu_model: "A CPU".to_owned(),
        memory_mib: 4096,
        ..Environment::default()
    };
    let mut report = Report::new("locks", environment);
    // Lock, fair, turns per second, share of the first set, mean wait in µs,
    // ns alone.
    let locks = [
        ("cfl", true, 600e3, 0.5, 10.0, 22.0),
        ("cfl-sg", true, 550e3, 0.5, 11.0, 23.0),
        ("u-scl", true, 180e3, 0.52, 35.0, 60.0),
        ("pthread", false, 620e3, 0.25, 12.0, 19.0),
        ("parking_lot-0.13", false, 640e3, 0.25, 12.0, 18.0),
        ("mcs", false, 150e3, 0.25, 40.0, 21.0),
    ];
    for repeat in 0..2 {
        for experiment in LockExperiment::ALL {
            for (lock, fair, turns_per_s, share, mean_us, alone_ns) in locks {
                let (case, threads, entitled) = match experiment {
                    LockExperiment::Uncontended => ("alone", 1, 0.5),
                    LockExperiment::Weights => ("8:1", 8, 8.0 / 9.0),
                    LockExperiment::Convoy => ("1:20 µs", 32, 0.5),
                    LockExperiment::Strict => ("1:3 µs", 2, 0.5),
                    _ => ("1:3 µs", 8, 0.5),
                };
                let share = if fair { entitled + share - 0.5 } else { share };
                // The repeats differ by 1 %.
                let turns_per_s = turns_per_s * (1.0 + 0.01 * f64::from(repeat));
                let mut run = contended(turns_per_s, share, entitled, mean_us);
                if experiment == LockExperiment::Equal {
                    run.ratio = None;
                }
                if experiment == LockExperiment::Newcomers {
                    run.arrivals = Some(ArrivalRow {
                        count: 40,
                        first: waits(mean_us * 2.0),
                        late: waits(100.0),
                        first_bypass_max: 9,
                        share_of_equal: 1.02,
                    });
                }
                let alone = experiment == LockExperiment::Uncontended;
                let ns = alone_ns + f64::from(repeat);
                report.rows.push(LockRow {
                    experiment,
                    case: case.to_owned(),
                    lock: lock.to_owned(),
                    fair,
                    threads,
                    repeat,
                    seed: 1 + u64::from(repeat),
                    scale: 1.0,
                    step_ns: 1.5,
                    contended: (!alone).then_some(run),
                    uncontended_ns: if alone {
                        vec![ns - 1.0, ns, ns + 2.0]
                    } else {
                        vec![]
                    },
                });
            }
        }
    }
    report
}
