//! What hackbench, cyclictest and schbench found.

use std::fmt::Write as _;

use super::{Repeats, TAIL, bars, find};
use crate::cell::report::plus_minus;
use crate::experiments::wakeup::WakeupRow;
use crate::experiments::wakeup::schbench::Schbench;
use crate::harness::number::{Spread, large, mark, quantile, short};
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::Scale;
use crate::render::page;

fn messages(row: &WakeupRow) -> Option<f64> {
    Some(row.hackbench.as_ref()?.messages_per_s)
}

/// The slowest run of all repeats.
fn slowest(one: &Repeats<'_>) -> Option<f64> {
    let runs = one.rows.iter().filter_map(|row| row.hackbench.as_ref());
    runs.flat_map(|runs| runs.seconds.iter().copied())
        .reduce(f64::max)
}

/// How late a share of the timers at most ran, of all repeats together.
fn late(one: &Repeats<'_>, share: f64) -> Option<f64> {
    let rows = one.rows.iter().filter_map(|row| row.cyclictest.as_ref());
    quantile(
        rows.flat_map(|row| row.late.histogram.iter().copied()),
        share,
    )
}

/// How many timers that is of.
fn timers(one: &Repeats<'_>) -> f64 {
    let rows = one.rows.iter().filter_map(|row| row.cyclictest.as_ref());
    let pairs = rows.flat_map(|row| &row.late.histogram);
    pairs.map(|(_, count)| *count as f64).sum()
}

fn latest(one: &Repeats<'_>) -> Option<f64> {
    let rows = one.rows.iter().filter_map(|row| row.cyclictest.as_ref());
    rows.map(|row| row.max_us).reduce(f64::max)
}

/// Whether anybody has run the tools.
fn any(schedulers: &[Repeats<'_>]) -> bool {
    let mut rows = schedulers.iter().flat_map(|one| &one.rows);
    rows.any(|row| row.hackbench.is_some() || row.cyclictest.is_some())
}

/// As lines of a table; nothing if they were not run.
pub(super) fn lines(schedulers: &[Repeats<'_>]) -> String {
    let mut text = String::new();
    if !any(schedulers) {
        return text;
    }
    let median = |one: &Repeats<'_>| Some(one.spread(messages)?.median);
    let eevdf = find(schedulers, &Scheduler::Eevdf).and_then(median);
    let _ = write!(
        text,
        "\nhackbench, messages passed; cyclictest beside it, how late timers ran\n  \
         {:<9} {:>14} {:>6} {:>9} {:>8} {:>6} {:>6} {:>6}\n",
        "", "messages/s", "/eevdf", "slowest s", "p50 us", "p99", "p99.9", "latest",
    );
    for one in schedulers {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), large);
        let tail = |share| match late(one, share) {
            Some(us) => mark(large(us), timers(one), share),
            None => "-".to_owned(),
        };
        let label: String = one.scheduler().label().chars().take(9).collect();
        let ratio = median(one).zip(eevdf).map(|(own, eevdf)| own / eevdf);
        let _ = writeln!(
            text,
            "  {label:<9} {:>14} {:>6} {:>9} {:>8} {:>6} {:>6} {:>6}",
            one.spread(messages).map_or("-".to_owned(), per_s),
            ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            slowest(one).map_or("-".to_owned(), short),
            tail(0.5),
            tail(0.99),
            tail(TAIL),
            number(latest(one)),
        );
    }
    text
}

/// What schbench found as lines of a table; nothing if it was not run.
pub(super) fn schbench_lines(schedulers: &[Repeats<'_>]) -> String {
    let mut text = String::new();
    let ran = |one: &Repeats<'_>| one.rows.iter().any(|row| row.schbench.is_some());
    if !schedulers.iter().any(ran) {
        return text;
    }
    let _ = write!(
        text,
        "\nschbench itself, medians of the repeats\n  {:<9} {:>12} {:>6} {:>13} {:>6} {:>14} \
         {:>6}\n",
        "", "requests/s", "/eevdf", "woken p99, us", "/eevdf", "request p99 ms", "/eevdf",
    );
    let numbers: [fn(&Schbench) -> f64; 3] = [
        |found| found.requests_per_s,
        |found| found.wakeup.p99_us,
        |found| found.request.p99_us / 1e3,
    ];
    let median = |one: &Repeats<'_>, number: fn(&Schbench) -> f64| {
        Some(one.spread(|row| row.schbench.as_ref().map(number))?.median)
    };
    let eevdf = find(schedulers, &Scheduler::Eevdf);
    for one in schedulers.iter().filter(|one| ran(one)) {
        let label: String = one.scheduler().label().chars().take(9).collect();
        let _ = write!(text, "  {label:<9}");
        for (number, width) in numbers.into_iter().zip([12, 13, 14]) {
            let own = median(one, number);
            let ratio = own
                .zip(eevdf.and_then(|eevdf| median(eevdf, number)))
                .map_or("-".to_owned(), |(own, eevdf)| format!("{:.2}", own / eevdf));
            let own = own.map_or("-".to_owned(), large);
            let _ = write!(text, " {own:>width$} {ratio:>6}");
        }
        text.push('\n');
    }
    text
}

/// Thousands of messages a second, with half the range.
fn per_s(spread: Spread) -> String {
    let thousands = |value: f64| value / 1e3;
    let spread = Spread {
        median: thousands(spread.median),
        min: thousands(spread.min),
        max: thousands(spread.max),
    };
    format!("{}k", plus_minus(spread))
}

/// As a section of a page; nothing if they were not run.
pub(super) fn section(page: &mut String, schedulers: &[Repeats<'_>]) {
    if !any(schedulers) {
        return;
    }
    page::section(
        page,
        "hackbench and cyclictest",
        "Both unmodified, in the same cgroup. hackbench: groups of 20 senders and 20 receivers \
         pass messages through sockets; more is better. cyclictest, beside hackbench in a loop: \
         how late threads woke that had slept until a time; less is better. The paper has \
         neither.",
    );
    let plots = [
        bars(
            Scale::Linear,
            "hackbench: thousand messages per second",
            schedulers,
            |row| Some(messages(row)? / 1e3),
        ),
        bars(Scale::Log, "cyclictest: p99.9, µs", schedulers, |row| {
            Some(row.cyclictest.as_ref()?.late.p999_us)
        }),
    ];
    page::plots(page, &plots);
}

#[cfg(test)]
mod tests {
    use super::super::{samples, schedulers};
    use super::*;
    use crate::experiments::wakeup::schbench::Tail;

    #[test]
    fn messages_are_compared_with_eevdf_s_and_lateness_is_of_all_repeats() {
        let report = samples::report();
        let text = lines(&schedulers(&report));
        assert_eq!(
            text,
            "\nhackbench, messages passed; cyclictest beside it, how late timers ran\n  \
             \u{20}             messages/s /eevdf slowest s   p50 us    p99  p99.9 latest\n  \
             EEVDF               200k   1.00      0.40     60.0   60.0  ~3100   6200\n  \
             UFS                 180k   0.90      0.44     60.0   60.0   ~500   1000\n"
        );
    }

    #[test]
    fn schbench_is_compared_with_eevdf_s_where_it_was_run() {
        let mut report = samples::report();
        assert_eq!(schbench_lines(&schedulers(&report)), "");
        for row in &mut report.rows {
            let ufs = row.scheduler == Scheduler::Ufs;
            let tail = |us| Tail {
                p50_us: us,
                p99_us: us,
                p999_us: us,
            };
            row.schbench = Some(Schbench {
                requests_per_s: if ufs { 980.0 } else { 1_000.0 },
                wakeup: tail(if ufs { 120.0 } else { 100.0 }),
                request: tail(if ufs { 4_000.0 } else { 8_000.0 }),
            });
        }
        let text = schbench_lines(&schedulers(&report));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(words, ["UFS", "980", "0.98", "120", "1.20", "4.00", "0.50"]);
    }

    #[test]
    fn one_tool_alone_has_its_columns_and_none_leaves_no_lines() {
        let mut report = samples::report();
        for row in &mut report.rows {
            row.hackbench = None;
        }
        let text = lines(&schedulers(&report));
        let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            ["UFS", "-", "-", "-", "60.0", "60.0", "~500", "1000"]
        );
        for row in &mut report.rows {
            row.cyclictest = None;
        }
        assert_eq!(lines(&schedulers(&report)), "");
    }
}
