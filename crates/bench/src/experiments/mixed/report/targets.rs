//! What is wanted of UFS beside other schedulers, and beside its own SOLO.

use super::stats::Summary;
use crate::cell::config::Mix;
use crate::cell::row::Row;
use crate::cell::setup::By;
use crate::harness::number::mark;
use crate::harness::scheduler::Scheduler;
use crate::render::target::Target;

/// A ratio that is wanted of UFS.
struct Wanted {
    what: String,
    bound: &'static str,
    measured: Option<f64>,
    met: fn(f64) -> bool,
}

/// What is wanted of UFS, as far as the rows say something about it: the bounds of
/// the mixed workload (docs/measure/mixed.md).
pub(super) fn targets(summary: &Summary<'_>) -> Vec<Target> {
    let cell = |mix| summary.cell(&Scheduler::Ufs, mix);
    let over = |mix, other: Scheduler, other_mix, number: fn(&Row) -> Option<f64>| {
        summary.ratio(cell(mix)?, (&other, By::Cgroups, other_mix), number)
    };
    let own = |mix, number: fn(&Row) -> Option<f64>| summary.to_own(cell(mix)?, Mix::Solo, number);
    let tps: fn(&Row) -> Option<f64> = |row| row.ts_tps;
    let p95: fn(&Row) -> Option<f64> = |row| row.ts_p95_ms;
    let busy = |mix| cell(mix)?.median(|row| Some(row.busy_fraction));
    let job = |mix| summary.bg_to_solo(cell(mix)?);
    let (min_max, half) = (Mix::MinMax, Mix::FiftyFifty);
    let wanted = [
        Wanted {
            what: "SOLO, of EEVDF's".to_owned(),
            bound: "1 within 3 %",
            measured: over(Mix::Solo, Scheduler::Eevdf, Mix::Solo, tps),
            met: |ratio| (ratio - 1.0).abs() <= 0.03,
        },
        Wanted {
            what: "MIN:MAX, of its SOLO".to_owned(),
            bound: "at least 0.97",
            measured: own(min_max, tps),
            met: |ratio| ratio >= 0.97,
        },
        Wanted {
            what: "MIN:MAX, of EEVDF's".to_owned(),
            bound: "at least 1.8",
            measured: over(min_max, Scheduler::Eevdf, min_max, tps),
            met: |ratio| ratio >= 1.8,
        },
        Wanted {
            what: "MIN:MAX, of RR's".to_owned(),
            bound: "at least 0.99",
            measured: over(min_max, Scheduler::Rr, min_max, tps),
            met: |ratio| ratio >= 0.99,
        },
        Wanted {
            what: "MIN:MAX, p95 of its SOLO's".to_owned(),
            bound: "at most 1.10",
            measured: own(min_max, p95),
            met: |ratio| ratio <= 1.1,
        },
        Wanted {
            what: "MIN:MAX, server CPUs busy".to_owned(),
            bound: "at least 0.97",
            measured: busy(min_max),
            met: |share| share >= 0.97,
        },
        Wanted {
            what: "50:50, TPC-C of its SOLO".to_owned(),
            bound: "at least 0.70",
            measured: own(half, tps),
            met: |ratio| ratio >= 0.7,
        },
        Wanted {
            what: format!("50:50, {} of its SOLO", summary.job().label()),
            bound: "at least 0.45",
            measured: job(half),
            met: |ratio| ratio >= 0.45,
        },
    ];
    let latencies = |mix| {
        let rows = cell(mix).into_iter().flat_map(|cell| &cell.rows);
        rows.map(|row| row.latencies()).sum::<f64>()
    };
    let latencies = latencies(min_max).min(latencies(Mix::Solo));
    let target = |wanted: Wanted| {
        let measured = wanted.measured?;
        let text = format!("{measured:.3}");
        Some(Target {
            bound: wanted.bound,
            measured: match wanted.what.contains("p95") {
                true => mark(text, latencies, 0.95),
                false => text,
            },
            met: (wanted.met)(measured),
            what: wanted.what,
        })
    };
    wanted.into_iter().filter_map(target).collect()
}
