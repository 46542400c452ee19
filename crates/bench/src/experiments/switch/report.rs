//! Reports of context switches.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use giveway_tier::Tier;

use crate::cell::report::{numbers, plus_minus};
use crate::experiments::switch::SwitchRow;
use crate::experiments::switch::row::Cost;
use crate::harness::figure::Figure;
use crate::harness::number::Spread;
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::{self, Group, Scale, scheduler_colour};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report, repeats_said};

/// What UFS's callbacks may take per switch, in microseconds of the lockstep clock.
const MOST_US: [(Tier, &str, f64); 2] = [
    (Tier::TimeSensitive, "at most 4.5 us", 4.5),
    (Tier::Background, "at most 5.5 us", 5.5),
];

impl Record for SwitchRow {
    fn table(report: &Report<SwitchRow>) -> String {
        table(report)
    }

    fn page(report: &Report<SwitchRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<SwitchRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<SwitchRow>) -> Vec<Target> {
        targets(&repeats(report))
    }

    fn figures(_: &Report<SwitchRow>) -> Vec<Figure> {
        Vec::new()
    }
}

/// The repeats of one scheduler in one tier.
struct Repeats<'a> {
    rows: Vec<&'a SwitchRow>,
}

impl Repeats<'_> {
    fn scheduler(&self) -> &Scheduler {
        &self.rows[0].scheduler
    }

    fn tier(&self) -> Tier {
        self.rows[0].tier
    }

    /// The spread of a number over the repeats that have it.
    fn spread(&self, number: impl Fn(&SwitchRow) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rows.iter().filter_map(|row| number(row)))
    }

    /// Medians of calls and microseconds per switch, by callback, the dearest first.
    fn by_callback(&self) -> Vec<(&str, f64, f64)> {
        let mut named: BTreeMap<&str, Vec<Cost>> = BTreeMap::new();
        for (name, cost) in self.rows.iter().flat_map(|row| &row.by_callback) {
            named.entry(name).or_default().push(*cost);
        }
        let median = |values: Vec<f64>| Spread::of(values).map_or(0.0, |spread| spread.median);
        let mut list: Vec<_> = named
            .into_iter()
            .map(|(name, costs)| {
                let calls = median(costs.iter().map(|cost| cost.calls).collect());
                (
                    name,
                    calls,
                    median(costs.iter().map(|cost| cost.us).collect()),
                )
            })
            .filter(|(_, _, us)| *us >= 0.005)
            .collect();
        list.sort_by(|a, b| b.2.total_cmp(&a.2));
        list
    }
}

/// In the order of tables.
fn repeats(report: &Report<SwitchRow>) -> Vec<Repeats<'_>> {
    let mut groups: BTreeMap<_, Vec<&SwitchRow>> = BTreeMap::new();
    for row in &report.rows {
        let key = (row.scheduler.rank(), row.tier);
        groups.entry(key).or_default().push(row);
    }
    groups.into_values().map(|rows| Repeats { rows }).collect()
}

fn heading(report: &Report<SwitchRow>) -> Vec<String> {
    let clock = &report.environment.clock;
    let mut lines = vec![
        report.headline(),
        format!("clock {clock}, commit {}", report.short_commit()),
    ];
    if let Some(row) = report.rows.first() {
        let repeats = repeats_said(
            report
                .rows
                .iter()
                .map(|row| (row.scheduler.rank(), row.tier)),
        );
        lines.push(format!(
            "1 CPU, two threads in one cgroup; {repeats} x {} s",
            row.seconds
        ));
    }
    lines
}

fn table(report: &Report<SwitchRow>) -> String {
    let all = repeats(report);
    let mut text = heading(report).join("\n");
    let _ = write!(
        text,
        "\n\n  {:<10} {:<15} {:>14} {:>14} {:>14}\n",
        "", "tier", "us per switch", "in callbacks", "callbacks"
    );
    for one in &all {
        let cell = |number: fn(&SwitchRow) -> Option<f64>| {
            one.spread(number).map_or("-".to_owned(), plus_minus)
        };
        let label: String = one.scheduler().label().chars().take(10).collect();
        let _ = writeln!(
            text,
            "  {label:<10} {:<15} {:>14} {:>14} {:>14}",
            one.tier().to_string(),
            cell(|row| Some(row.switch_us)),
            cell(|row| row.callbacks_us),
            cell(|row| row.calls),
        );
    }
    for one in all.iter().filter(|one| *one.scheduler() == Scheduler::Ufs) {
        let _ = writeln!(text, "\nUFS, {}: calls and us per switch", one.tier());
        for (name, calls, us) in one.by_callback() {
            let _ = writeln!(text, "  {name:<26} {calls:>14.2} {us:>14.2}");
        }
    }
    text.push_str(
        "\nMedians, ± half the range of the repeats. Callbacks are timed by the kernel in\n\
         a window of their own; what it counts for an empty program is subtracted.\n",
    );
    text + &target::lines("callbacks of UFS", &targets(&all))
}

fn targets(all: &[Repeats<'_>]) -> Vec<Target> {
    let target = |&(tier, bound, most): &(Tier, &'static str, f64)| {
        let mut all = all.iter();
        let ufs = all.find(|one| *one.scheduler() == Scheduler::Ufs && one.tier() == tier)?;
        let measured = ufs.spread(|row| row.callbacks_us)?.median;
        Some(Target {
            what: format!("{tier}, per switch"),
            bound,
            measured: format!("{measured:.2}"),
            met: measured <= most,
        })
    };
    MOST_US.iter().filter_map(target).collect()
}

fn sentence(report: &Report<SwitchRow>) -> String {
    let all = repeats(report);
    let of = |tier| {
        let ufs = |one: &&Repeats<'_>| *one.scheduler() == Scheduler::Ufs && one.tier() == tier;
        let spread = all.iter().find(ufs)?.spread(|row| row.callbacks_us)?;
        Some(spread.median)
    };
    let Some((urgent, background)) = of(Tier::TimeSensitive).zip(of(Tier::Background)) else {
        return "These rows do not have UFS in both tiers.".to_owned();
    };
    format!(
        "UFS's callbacks take {urgent:.1} us per switch between time-sensitive tasks and \
         {background:.1} us between background tasks; {}.",
        target::summary(&targets(&all))
    )
}

fn html(report: &Report<SwitchRow>) -> String {
    let all = repeats(report);
    let mut page = page::begin(
        &report.experiment,
        "What a context switch costs",
        &heading(report),
        &sentence(report),
    );
    let note = "Microseconds in UFS's callbacks per context switch.";
    target::section(&mut page, note, "UFS", &targets(&all));
    page::section(
        &mut page,
        "Context switches",
        "Two threads on one CPU hand a byte back and forth through two pipes. Bars are medians \
         over the repeats, whiskers the extremes.",
    );
    let names = all.iter().map(Repeats::scheduler);
    let mut legend: Vec<_> = names
        .map(|one| (scheduler_colour(one), one.label()))
        .collect();
    legend.dedup();
    page::legend(&mut page, legend);
    let plots = [
        bars("Microseconds per switch", &all, |row| Some(row.switch_us)),
        bars("Of that in callbacks", &all, |row| row.callbacks_us),
    ];
    page::plots(&mut page, &plots);
    numbers(&mut page, &table(report));
    page::environment(
        &mut page,
        &report.environment,
        &[("Rows", report.rows.len().to_string())],
        "In the lockstep clock every instruction takes the same time and caches cost nothing.",
    );
    page::end(page)
}

fn bars(title: &str, all: &[Repeats<'_>], number: fn(&SwitchRow) -> Option<f64>) -> String {
    let group = |tier: Tier| Group {
        label: tier.to_string(),
        bars: all
            .iter()
            .filter(|one| one.tier() == tier)
            .filter_map(|one| Some((scheduler_colour(one.scheduler()), one.spread(number)?)))
            .collect(),
    };
    canvas::bars_on(Scale::Linear, title, &Tier::ALL.map(group), None)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::experiments::switch::NAME;
    use crate::harness::environment::Environment;

    /// Two repeats with round numbers.
    pub(crate) fn report() -> Report<SwitchRow> {
        let environment = Environment {
            kernel: "7.2.13".to_owned(),
            machine: "sample".to_owned(),
            date: "2026-11-25".to_owned(),
            clock: "lockstep".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            cpus: 1,
            ..Environment::default()
        };
        let mut report = Report::new(NAME, environment);
        for repeat in 0..2 {
            for (scheduler, tier, switch_us, callbacks_us) in [
                (Scheduler::Eevdf, Tier::TimeSensitive, 10.0, None),
                (Scheduler::Eevdf, Tier::Background, 10.0, None),
                (Scheduler::Ufs, Tier::TimeSensitive, 14.0, Some(4.0)),
                (Scheduler::Ufs, Tier::Background, 16.0, Some(6.0)),
            ] {
                let callbacks_us = callbacks_us.map(|us| us + 0.2 * f64::from(repeat));
                let by_callback = callbacks_us.iter().flat_map(|us| {
                    let part = |name: &str, share| {
                        let us = us * share;
                        (name.to_owned(), Cost { calls: 1.0, us })
                    };
                    [part("ufs_enqueue", 0.75), part("ufs_running", 0.25)]
                });
                report.rows.push(SwitchRow {
                    scheduler_version: scheduler.program(),
                    scheduler,
                    tier,
                    repeat,
                    seed: 1 + u64::from(repeat),
                    seconds: 1.0,
                    switches: 100_000,
                    switch_us,
                    callbacks_us,
                    calls: callbacks_us.map(|_| 2.0),
                    empty_us: callbacks_us.map(|_| 0.1),
                    by_callback: by_callback.collect(),
                });
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_tier_and_what_of_ufs_costs_most() {
        let text = table(&samples::report());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let words = |begin: &str| {
            let mut lines = text.lines().filter(|line| line.starts_with(begin));
            let line = lines.next_back().unwrap();
            Vec::from_iter(line.split_whitespace())
        };
        assert_eq!(
            words("  EEVDF"),
            ["EEVDF", "time_sensitive", "10.0", "-", "-"]
        );
        assert_eq!(
            words("  UFS"),
            ["UFS", "time_sensitive", "14.0", "4.10", "±0.10", "2.00"]
        );
        assert_eq!(words("  ufs_enqueue"), ["ufs_enqueue", "1.00", "3.08"]);
        assert!(text.find("ufs_enqueue") < text.find("ufs_running"));
    }

    #[test]
    fn a_bound_is_met_or_missed_by_the_median() {
        let report = samples::report();
        let met: Vec<bool> = targets(&repeats(&report)).iter().map(|t| t.met).collect();
        assert_eq!(met, [true, false]);
        assert!(
            sentence(&report).contains("4.1 us per switch"),
            "{}",
            sentence(&report)
        );
        let none = Report {
            rows: Vec::new(),
            ..report
        };
        assert!(sentence(&none).starts_with("These rows do not"));
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 2);
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
