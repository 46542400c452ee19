//! A report with round numbers in which scheduling meets its targets, for tests.

use crate::experiments::tasks::kind::Kind;
use crate::experiments::tasks::row::{Answers, Decision, Operators, Scheduled, Share, Turns};
use crate::experiments::tasks::{Arrived, Cost, Measured, Pair, Sample, TasksExperiment, TasksRow};
use crate::harness::environment::Environment;
use crate::report::Report;

/// A run in which short queries take `short` times as long as alone, and long ones
/// `long` times; after the middle, where there are two phases, twice that.
fn arrived(short: f64, long: f64, phases: u8, is_ours: bool) -> Measured {
    let sample = |number: u8| {
        let is_long = number % 4 == 3;
        let phase = if number >= 20 { phases - 1 } else { 0 };
        let slowdown = if is_long { long } else { short } * f64::from(phase + 1);
        let alone_ms = if is_long { 100.0 } else { 10.0 };
        Sample {
            kind: Kind {
                query: number % 22 + 1,
                large: is_long || phase == 1,
            },
            long: is_long,
            phase,
            due_ms: 250.0 * f64::from(number),
            latency_ms: alone_ms * slowdown * (1.0 + 0.1 * f64::from(number % 3)),
            alone_ms,
        }
    };
    Measured::Arrived(Box::new(Arrived {
        seconds: 10.0,
        span_s: 10.5,
        offered: 0.94,
        busy: 0.9,
        tuning_s: (1.0, 3.0),
        samples: (0..40).map(sample).collect(),
        unfinished: 0,
        failed: (0, String::new()),
        scheduler: is_ours.then_some(Scheduled {
            tasks: 9_000,
            decisions: 10_000,
            within_2: 0.995,
            longest_ms: 12.0,
            tunings: 3,
            decay: None,
            order: Some("decay:0.75,7".to_owned()),
        }),
        version: String::new(),
    }))
}

fn turns(at_a_time: u32) -> Measured {
    let operators = |names: &str, tasks, longest_ms| Operators {
        names: names.to_owned(),
        tasks,
        longest_ms,
    };
    Measured::Turns(Turns {
        t_max_ms: 2.0,
        at_a_time,
        operators: vec![
            operators(
                "MorselSource > Filter > Aggregate",
                [50, 900, 40, 9, 1, 0, 0, 0],
                5.0,
            ),
            operators(
                "Exchange > HashJoin > Exchange",
                [50, 900, 45, 0, 1, 3, 1, 0],
                90.0,
            ),
        ],
    })
}

fn cost() -> Measured {
    let decision = |workers, queries, ns: f64| Decision {
        workers,
        queries,
        ns: vec![ns, ns * 1.1, ns * 0.9],
    };
    Measured::Cost(Cost {
        decisions: vec![
            decision(1, 1, 250.0),
            decision(2, 16, 300.0),
            decision(128, 128, 650.0),
        ],
        share: Share {
            span_s: 10.0,
            queries: 16,
            busy_s: 19.0,
            tuning_s: 0.001,
            cpu_s: 19.1,
            decisions: 10_000,
            tasks: 9_500,
            tunings: 3,
        },
    })
}

/// Each experiment, two traces.
pub(crate) fn report() -> Report<TasksRow> {
    use TasksExperiment::{Answers as Right, Cost, Load, Mix, Overrun, Shift, Simulated, Single};
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
    let mut report = Report::new("tasks", environment);
    for repeat in 0..2 {
        // The traces differ by 2 %.
        let off = 1.0 + 0.02 * f64::from(repeat);
        let mut keep = |experiment, arm: &str, load, measured| {
            report.rows.push(TasksRow {
                experiment,
                arm: arm.to_owned(),
                load,
                repeat,
                seed: 1 + u64::from(repeat),
                workers: 2,
                scale: 0.1,
                measured,
            });
        };
        for at_a_time in [1, 16] {
            let answers = Answers {
                at_a_time,
                compared: 22,
                wrong: Vec::new(),
                seconds: 7.0,
            };
            keep(Right, "tuned", None, Measured::Answers(answers));
        }
        let arms = [
            ("fifo", 60.0, 6.0),
            ("fair", 5.0, 5.0),
            ("las:0,0.05", 1.5, 4.5),
            ("decay:0.8,10", 1.9, 4.4),
            ("decay:0.5,2", 2.5, 5.5),
            ("tuned", 1.8, 4.5),
            ("adaptive", 1.5, 4.6),
        ];
        for (arm, short, long) in arms {
            keep(Mix, arm, Some(0.95), arrived(short * off, long, 1, true));
        }
        for (arm, short, long) in [
            ("fair", 5.0, 5.0),
            ("tuned", 2.0, 4.0),
            ("adaptive", 1.8, 3.9),
        ] {
            keep(Shift, arm, Some(0.9), arrived(short * off, long, 2, true));
        }
        for (arm, short, long) in [
            ("fair", 6.0, 6.0),
            ("tuned", 2.2, 5.0),
            ("adaptive", 1.6, 4.7),
        ] {
            keep(
                Simulated,
                arm,
                Some(1.03),
                arrived(short * off, long, 1, false),
            );
        }
        for load in [0.7, 0.96] {
            for (arm, slowdown) in [("tuned", 1.0), ("adaptive", 0.9), ("stock", 4.0)] {
                let slowdown = slowdown * load * off;
                let is_ours = arm != "stock";
                keep(
                    Load,
                    arm,
                    Some(load),
                    arrived(slowdown, slowdown * 1.5, 1, is_ours),
                );
            }
            let why = "python3 has no package duckdb: pip install duckdb".to_owned();
            keep(Load, "duckdb", Some(load), Measured::LeftOut(why));
        }
        let pair = |query: u8| Pair {
            query,
            ours_ms: vec![10.5 * f64::from(query), 11.0 * f64::from(query)],
            stock_ms: vec![10.0 * f64::from(query), 10.5 * f64::from(query)],
        };
        keep(
            Single,
            "tuned",
            None,
            Measured::Single((1..=22).map(pair).collect()),
        );
        for at_a_time in [1, 16] {
            keep(Overrun, "tuned", None, turns(at_a_time));
        }
        keep(Cost, "tuned", None, cost());
    }
    report
}
