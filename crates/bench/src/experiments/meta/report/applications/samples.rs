//! Rows of the part for tests, with round numbers.

use giveway_metasched::measurements::Reading;
use giveway_metasched::policy::Policy;
use giveway_metasched::scheduler::EEVDF;

use super::PARTS;
use crate::experiments::meta::applications::{API, ASK, RETRIEVAL};
use crate::experiments::meta::row::TurnNote;
use crate::experiments::meta::{ApplicationRow, MetaRow, Under};

/// A scheduler for each part, and turns that beat both.
pub(crate) fn rows() -> Vec<MetaRow> {
    let single = |name: &str| Under::Single { name: name.into() };
    let fixed = |policy, base_timeslice_ms| Under::Fixed {
        policy,
        base_timeslice_ms,
    };
    let row = |application: &str, under, percents: &[(f64, f64)]| {
        let run = |(throughput, p99): &(f64, f64)| Reading {
            throughput_per_s: 200.0 * (1.0 + throughput / 100.0),
            p99_s: 0.050 * (1.0 + p99 / 100.0),
        };
        ApplicationRow {
            application: application.into(),
            turns: match under {
                Under::Single { .. } => Vec::new(),
                _ => [("scx_simple -f", API), ("scx_cosmos", RETRIEVAL)]
                    .map(|(scheduler, application)| TurnNote {
                        scheduler: scheduler.into(),
                        applications: vec![application.into()],
                        timeslice_ms: 500.0,
                    })
                    .to_vec(),
            },
            under,
            runs: percents.iter().map(run).collect(),
            faults: Vec::new(),
            run_s: 3,
            repeat: 0,
            seed: 1,
        }
    };
    let mut rows = Vec::new();
    for part in PARTS {
        rows.push(row(
            part,
            single(EEVDF),
            &[(-1.0, 2.0), (0.0, 0.0), (1.0, -2.0)],
        ));
    }
    for (name, api, retrieval, ask) in [
        ("scx_simple -f", (8.0, -16.0), (-4.0, 110.0), (2.0, -4.0)),
        ("scx_cosmos", (-2.0, 5.0), (3.0, -1.0), (1.0, 1.0)),
    ] {
        rows.push(row(API, single(name), &[api]));
        rows.push(row(RETRIEVAL, single(name), &[retrieval]));
        rows.push(row(ASK, single(name), &[ask]));
    }
    let mut broken = row(ASK, single("scx_qmap"), &[]);
    broken.faults = vec!["failed to load: a very long reason ".repeat(4); 2];
    rows.push(broken);
    for (policy, base, change) in [
        (Policy::RoundRobin, 500.0, (-3.0, 20.0)),
        (Policy::RoundRobin, 1000.0, (1.5, 2.0)),
        (Policy::DeltaWeighted, 500.0, (0.0, 0.0)),
        (Policy::DeltaWeighted, 1000.0, (4.0, -5.0)),
    ] {
        rows.push(row(ASK, fixed(policy, base), &[change]));
    }
    rows.into_iter().map(MetaRow::Applications).collect()
}
