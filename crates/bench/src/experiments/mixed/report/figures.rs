//! What the UFS paper has of the mixed workload: Figure 6 and Table 3.

use super::stats::{Cell, Summary};
use crate::cell::config::Mix;
use crate::cell::row::Row;
use crate::harness::figure::Figure;
use crate::harness::scheduler::Scheduler;
use crate::report::Report;

/// Throughput, of the scheduler's own SOLO.
type Of = fn(&Summary<'_>, &Cell<'_>) -> Option<f64>;

const TPCC: Of = |summary, cell| summary.tps_to_solo(cell);
const JOB: Of = |summary, cell| summary.bg_to_solo(cell);
const P95: Of = |summary, cell| summary.to_own(cell, Mix::Solo, |row: &Row| row.ts_p95_ms);

/// The paper's numbers beside the report's.
pub(super) fn figures(report: &Report<Row>) -> Vec<Figure> {
    use Mix::{FiftyFifty, MinMax};
    use Scheduler::{Eevdf, Rr, Ufs};
    let summary = Summary::of(report);
    let of = |mix, scheduler: &Scheduler, number: Of| {
        summary
            .cell(scheduler, mix)
            .and_then(|cell| number(&summary, cell))
    };
    let to_eevdf: Of = |summary, cell| summary.tps_to_eevdf(cell);
    let lines: [(Mix, Scheduler, &str, Of, &str, &str); 13] = [
        (MinMax, Eevdf, "TPC-C of SOLO", TPCC, "Figure 6", "0.50"),
        (MinMax, Rr, "TPC-C of SOLO", TPCC, "Figure 6", "near 1"),
        (MinMax, Ufs, "TPC-C of SOLO", TPCC, "Figure 6", "near 1"),
        (MinMax, Ufs, "TPC-C of EEVDF's", to_eevdf, "Figure 6", "2"),
        (FiftyFifty, Eevdf, "TPC-C of SOLO", TPCC, "Figure 6", "0.40"),
        (
            FiftyFifty,
            Eevdf,
            "background of SOLO",
            JOB,
            "Figure 6",
            "over 0.75",
        ),
        (
            FiftyFifty,
            Rr,
            "TPC-C of SOLO",
            TPCC,
            "Figure 6",
            "collapses",
        ),
        (FiftyFifty, Ufs, "TPC-C of SOLO", TPCC, "Figure 6", "0.75"),
        (
            FiftyFifty,
            Ufs,
            "background of SOLO",
            JOB,
            "Figure 6",
            "0.50",
        ),
        (MinMax, Eevdf, "p95 of SOLO's", P95, "Table 3", "2.45"),
        (MinMax, Rr, "p95 of SOLO's", P95, "Table 3", "1.63"),
        (MinMax, Ufs, "p95 of SOLO's", P95, "Table 3", "1.10"),
        (FiftyFifty, Ufs, "p95 of SOLO's", P95, "Table 3", "1.97"),
    ];
    let figure =
        |(mix, scheduler, what, number, place, paper): (Mix, Scheduler, &str, Of, _, _)| {
            let measured = of(mix, &scheduler, number);
            Figure::ratio(
                format!("{mix}, {}: {what}", scheduler.label()),
                place,
                paper,
                measured,
            )
        };
    lines.into_iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::mixed::report::samples;

    #[test]
    fn each_figure_is_of_its_cell() {
        let mut report = samples::report();
        let texts = |report: &Report<Row>| -> Vec<String> {
            figures(report).iter().map(Figure::text).collect()
        };
        assert_eq!(
            texts(&report),
            [
                "0.50", "0.99", "0.99", "1.98", "0.40", "0.75", "0.01", "0.75", "0.50", "2.00",
                "1.01", "1.01", "1.40"
            ]
        );
        report.rows.retain(|row| row.scheduler != Scheduler::Rr);
        assert_eq!(texts(&report).iter().filter(|text| *text == "-").count(), 3);
    }
}
