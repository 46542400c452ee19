//! Reports of the mixed workload with machine learning in the background: those of
//! the mixed workload, and a sentence that counts its targets.

use crate::cell::config::Mix;
use crate::cell::row::Row;
use crate::cell::setup::By;
use crate::experiments::mixed::report as mixed;
use crate::experiments::mixed::report::Summary;
use crate::experiments::ml::MlRow;
use crate::harness::figure::Figure;
use crate::harness::scheduler::Scheduler;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

impl Record for MlRow {
    fn table(report: &Report<MlRow>) -> String {
        Row::table(&as_mixed(report))
    }

    fn page(report: &Report<MlRow>) -> String {
        let see = Self::sentence(report);
        let report = as_mixed(report);
        mixed::page(&report, "Transactions beside machine learning", &see)
    }

    fn sentence(report: &Report<MlRow>) -> String {
        let report = as_mixed(report);
        let text = Row::sentence(&report);
        match Row::targets(&report).as_slice() {
            [] => text,
            targets => format!(
                "{}; {}.",
                text.trim_end_matches('.'),
                target::summary(targets)
            ),
        }
    }

    fn targets(report: &Report<MlRow>) -> Vec<Target> {
        Row::targets(&as_mixed(report))
    }

    fn figures(report: &Report<MlRow>) -> Vec<Figure> {
        let report = as_mixed(report);
        let summary = Summary::of(&report);
        let over = |mix, other: Scheduler| {
            let ufs = summary.cell(&Scheduler::Ufs, mix);
            let other_cell = (&other, By::Cgroups, mix);
            let measured = ufs.and_then(|ufs| summary.ratio(ufs, other_cell, |row| row.ts_tps));
            let what = format!("{mix}, UFS: TPC-C of {}'s", other.label());
            Figure::ratio(what, "Figure 10", "over 1", measured)
        };
        vec![
            over(Mix::MinMax, Scheduler::Eevdf),
            over(Mix::FiftyFifty, Scheduler::Rr),
        ]
    }

    fn setting(&self) -> String {
        self.0.setting()
    }
}

/// The same rows, as the mixed workload's.
fn as_mixed(report: &Report<MlRow>) -> Report<Row> {
    Report {
        experiment: report.experiment.clone(),
        environment: report.environment.clone(),
        outages: Vec::new(),
        rows: report.rows.iter().map(|row| row.0.clone()).collect(),
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::experiments::mixed::report::samples as mixed;
    use crate::workload::background::Job;

    /// The mixed workload's, with another job.
    pub(crate) fn report() -> Report<MlRow> {
        let mut report = mixed::report();
        for row in &mut report.rows {
            row.job = Job::LogisticRegression;
        }
        report.of_kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(report: &Report<MlRow>) -> Vec<String> {
        let targets = MlRow::targets(report).into_iter();
        let missed = targets.filter(|target| !target.met);
        missed.map(|target| target.what).collect()
    }

    #[test]
    fn the_table_is_that_of_the_mixed_workload_with_the_job_s_name_and_targets() {
        let text = MlRow::table(&samples::report());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for part in [
            "ml on sample",
            "fits/s",
            "ML alone",
            "of RR's",
            "MIN:MAX: TPC-C",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("Q17/s"), "{text}");
    }

    #[test]
    fn each_bound_is_checked_against_its_own_numbers() {
        assert_eq!(missed(&samples::report()), Vec::<String>::new());
        let mut report = samples::report();
        let mut change = |mix: Mix, change: fn(&mut Row)| {
            let before = report.clone();
            let rows = report.rows.iter_mut().map(|row| &mut row.0);
            rows.filter(|row| row.scheduler == Scheduler::Ufs && row.mix == mix)
                .for_each(change);
            let missed = missed(&report);
            report = before;
            missed
        };
        fn faster(row: &mut Row, times: f64) {
            row.ts_tps = row.ts_tps.map(|tps| tps * times);
        }
        // SOLO's throughput is in the ratios of other mixes as well.
        assert_eq!(
            change(Mix::Solo, |row| faster(row, 0.96)),
            ["SOLO, of EEVDF's"]
        );
        let slow = change(Mix::MinMax, |row| faster(row, 0.96));
        assert_eq!(slow, ["MIN:MAX, of its SOLO", "MIN:MAX, of RR's"]);
        let slow = change(Mix::MinMax, |row| row.ts_p95_ms = Some(50.0));
        assert_eq!(slow, ["MIN:MAX, p95 of its SOLO's"]);
        let idle = change(Mix::MinMax, |row| row.busy_fraction = 0.9);
        assert_eq!(idle, ["MIN:MAX, server CPUs busy"]);
        let slow = change(Mix::FiftyFifty, |row| faster(row, 0.9));
        assert_eq!(slow, ["50:50, TPC-C of its SOLO"]);
        let slow = change(Mix::FiftyFifty, |row| row.bg_per_s = Some(60.0));
        assert_eq!(slow, ["50:50, ML of its SOLO"]);
    }

    #[test]
    fn the_sentence_counts_targets_where_there_are_any() {
        let mut report = samples::report();
        let text = MlRow::sentence(&report);
        assert!(
            text.starts_with("With ML on every CPU, UFS keeps"),
            "{text}"
        );
        assert!(text.ends_with("; all 8 targets are met."), "{text}");
        report.rows.retain(|row| row.0.scheduler != Scheduler::Ufs);
        assert!(!MlRow::sentence(&report).contains("target"));
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = MlRow::page(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 5);
        assert!(page.contains("beside machine learning") && page.contains("ML of its SOLO"));
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
