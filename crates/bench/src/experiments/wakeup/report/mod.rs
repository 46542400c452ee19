//! Reports of wake-ups, in the manner of the paper's Figure 9; what hackbench and
//! cyclictest found is in `tools`.

mod tools;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cell::report::{numbers, plus_minus};
use crate::experiments::wakeup::{Latency, WakeupRow};
use crate::harness::figure::Figure;
use crate::harness::number::{MARKED, Spread, large, mark, quantile, short};
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::{self, Group, Scale, scheduler_colour};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report, repeats_said};

/// What is wanted of UFS beside EEVDF: at least so much of its throughput, and
/// tails that are so many times shorter. The paper has 6.2 and 2.6.
const THROUGHPUT: f64 = 0.97;
const WAKEUP: f64 = 4.0;
const REQUEST: f64 = 2.0;

/// The share whose latency is compared.
const TAIL: f64 = 0.999;
/// Of fewer requests or wake-ups under one of two schedulers nothing is compared: a
/// throughput is known to 3 % then, and p99.9 is the worst of all.
const SAMPLES_MIN: f64 = 1000.0;

impl Record for WakeupRow {
    fn table(report: &Report<WakeupRow>) -> String {
        table(report)
    }

    fn page(report: &Report<WakeupRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<WakeupRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<WakeupRow>) -> Vec<Target> {
        targets(&schedulers(report))
    }

    fn figures(report: &Report<WakeupRow>) -> Vec<Figure> {
        let all = schedulers(report);
        let [ufs, eevdf] = [Scheduler::Ufs, Scheduler::Eevdf].map(|one| find(&all, &one));
        let measured = ufs.zip(eevdf).and_then(|(ufs, eevdf)| beside(ufs, eevdf));
        let figure = |(at, (what, paper, unit)): (usize, (&str, _, _))| {
            let measured = measured.map(|measured| measured[at]);
            Figure::ratio(what, "Figure 9", paper, measured).unit(unit)
        };
        let paper = [
            ("UFS: throughput of EEVDF's", "near 1", ""),
            ("EEVDF: p99.9 of wake-ups over UFS's", "6.2 x", " x"),
            ("EEVDF: p99.9 of requests over UFS's", "2.6 x", " x"),
        ];
        paper.into_iter().enumerate().map(figure).collect()
    }

    fn setting(&self) -> String {
        format!(
            "{} message threads with {} workers each, {} KiB, {} operations",
            self.message_threads, self.worker_threads, self.footprint_kib, self.operations
        )
    }
}

/// The repeats of one scheduler.
struct Repeats<'a> {
    rows: Vec<&'a WakeupRow>,
}

impl Repeats<'_> {
    fn scheduler(&self) -> &Scheduler {
        &self.rows[0].scheduler
    }

    /// The spread of a number over the repeats that have it.
    fn spread(&self, number: impl Fn(&WakeupRow) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rows.iter().filter_map(|row| number(row)))
    }

    fn throughput(&self) -> Option<Spread> {
        self.spread(|row| Some(row.requests_per_s))
    }

    /// How much the repeats recorded.
    fn samples(&self, latency: fn(&WakeupRow) -> &Latency) -> f64 {
        let pairs = self.rows.iter().flat_map(|row| &latency(row).histogram);
        pairs.map(|(_, count)| *count as f64).sum()
    }

    /// What a share of all that the repeats recorded keeps, in microseconds: a
    /// repeat alone may have too few for its tail.
    fn us(&self, latency: fn(&WakeupRow) -> &Latency, share: f64) -> Option<f64> {
        let rows = self.rows.iter();
        quantile(rows.flat_map(|row| &latency(row).histogram).copied(), share)
    }
}

fn wakeup(row: &WakeupRow) -> &Latency {
    &row.wakeup
}

fn request(row: &WakeupRow) -> &Latency {
    &row.request
}

/// In the order of tables.
fn schedulers(report: &Report<WakeupRow>) -> Vec<Repeats<'_>> {
    let mut groups: BTreeMap<(usize, String), Vec<&WakeupRow>> = BTreeMap::new();
    for row in &report.rows {
        groups.entry(row.scheduler.rank()).or_default().push(row);
    }
    let groups = groups.into_values();
    groups.map(|rows| Repeats { rows }).collect()
}

fn find<'a, 'b>(all: &'a [Repeats<'b>], scheduler: &Scheduler) -> Option<&'a Repeats<'b>> {
    all.iter().find(|one| one.scheduler() == scheduler)
}

fn heading(report: &Report<WakeupRow>) -> Vec<String> {
    let environment = &report.environment;
    let mut lines = vec![
        report.headline(),
        format!(
            "clock {}, commit {}",
            environment.clock,
            report.short_commit()
        ),
    ];
    if let Some(row) = report.rows.first() {
        let repeats = repeats_said(report.rows.iter().map(|row| row.scheduler.rank()));
        lines.push(format!(
            "{} CPUs, message threads: {}, with {} workers each; {} KiB, operations: {}",
            row.cpus, row.message_threads, row.worker_threads, row.footprint_kib, row.operations
        ));
        lines.push(format!(
            "All in the background; {repeats} x {} s after {} s of warm-up",
            row.seconds, row.warmup_s
        ));
    }
    lines
}

/// Each scheduler's throughput and tails beside EEVDF's: a fraction, and how many
/// times shorter.
fn beside(one: &Repeats<'_>, eevdf: &Repeats<'_>) -> Option<[f64; 3]> {
    let tail = |latency| Some(eevdf.us(latency, TAIL)? / one.us(latency, TAIL)?);
    Some([
        one.throughput()?.median / eevdf.throughput()?.median,
        tail(wakeup)?,
        tail(request)?,
    ])
}

fn table(report: &Report<WakeupRow>) -> String {
    let schedulers = schedulers(report);
    let eevdf = find(&schedulers, &Scheduler::Eevdf);
    let mut text = heading(report).join("\n");
    let _ = write!(
        text,
        "\n\n  {:<9} {:>12} {:>20} {:>29}\n  {:<9} {:>12} {:>6} {:>6} {:>6} {:>7} {:>7} {:>7} {:>5}\n",
        "",
        "requests/s",
        "woken until run, us",
        "request, ms",
        "",
        "",
        "p50",
        "p99",
        "p99.9",
        "p50",
        "p99",
        "p99.9",
        "count",
    );
    for one in &schedulers {
        let tail = |latency: fn(&WakeupRow) -> &Latency, share, unit: f64| {
            let us = one.us(latency, share);
            let text = us.map(|us| large(us / unit));
            text.map_or("-".to_owned(), |text| {
                mark(text, one.samples(latency), share)
            })
        };
        let us = |share| tail(wakeup, share, 1.0);
        let ms = |share| tail(request, share, 1e3);
        let label: String = one.scheduler().label().chars().take(9).collect();
        let count: f64 = one
            .rows
            .iter()
            .map(|row| row.requests_per_s * row.seconds)
            .sum();
        let _ = writeln!(
            text,
            "  {label:<9} {:>12} {:>6} {:>6} {:>6} {:>7} {:>7} {:>7} {:>5}",
            one.throughput().map_or("-".to_owned(), plus_minus),
            us(0.5),
            us(0.99),
            us(TAIL),
            ms(0.5),
            ms(0.99),
            ms(TAIL),
            large(count.round()),
        );
    }
    if let Some(eevdf) = eevdf {
        text.push_str("\nBeside EEVDF: throughput, and how many times shorter p99.9 is\n");
        for one in &schedulers {
            let Some([throughput, wakeup, request]) = beside(one, eevdf) else {
                continue;
            };
            let _ = writeln!(
                text,
                "  {:<20} {throughput:>12.3} {:>8} {:>8}",
                one.scheduler().label().chars().take(20).collect::<String>(),
                short(wakeup),
                short(request),
            );
        }
    }
    text.push_str(
        "\nThroughput: median, ± half the range of the repeats. Latencies and count:\n\
         of all repeats together; of fewer than 1000 requests p99.9 is the worst.\n",
    );
    text.push_str(MARKED);
    text += &tools::lines(&schedulers);
    text += &tools::schbench_lines(&schedulers);
    text + &target::lines("UFS beside EEVDF", &targets(&schedulers))
}

fn targets(schedulers: &[Repeats<'_>]) -> Vec<Target> {
    let [ufs, eevdf] = [Scheduler::Ufs, Scheduler::Eevdf].map(|one| find(schedulers, &one));
    let Some((ufs, eevdf)) = ufs.zip(eevdf) else {
        return Vec::new();
    };
    let Some(measured) = beside(ufs, eevdf) else {
        return Vec::new();
    };
    let samples = |latency| ufs.samples(latency).min(eevdf.samples(latency));
    let samples = [samples(request), samples(wakeup), samples(request)];
    let wanted = [
        // The share of the samples that it is about: of a throughput all.
        ("throughput", 0.0, "at least 0.97", THROUGHPUT),
        ("p99.9 of wake-ups", TAIL, "at least 4 x", WAKEUP),
        ("p99.9 of requests", TAIL, "at least 2 x", REQUEST),
    ];
    let target = |(((what, share, bound, least), measured), samples)| Target {
        what: String::from(what),
        bound,
        measured: mark(format!("{measured:.3}"), samples, share),
        met: measured >= least,
    };
    let measured = wanted.into_iter().zip(measured).zip(samples);
    let counts = measured.filter(|(_, samples)| *samples >= SAMPLES_MIN);
    counts.map(target).collect()
}

fn sentence(report: &Report<WakeupRow>) -> String {
    let schedulers = schedulers(report);
    let [ufs, eevdf] = [Scheduler::Ufs, Scheduler::Eevdf].map(|one| find(&schedulers, &one));
    let measured = ufs.zip(eevdf).and_then(|(ufs, eevdf)| beside(ufs, eevdf));
    let targets = targets(&schedulers);
    if measured.is_some() && targets.len() < 3 {
        return "These rows have too few requests to compare throughput and tails.".to_owned();
    }
    let Some([throughput, wakeup, request]) = measured else {
        return "These rows do not have both UFS and EEVDF, so they do not compare them."
            .to_owned();
    };
    format!(
        "With all threads in the background UFS has {throughput:.2} of EEVDF's throughput, and 999 \
         of 1000 wake-ups take {} times less, requests {} times; {}.",
        short(wakeup),
        short(request),
        target::summary(&targets)
    )
}

fn html(report: &Report<WakeupRow>) -> String {
    let schedulers = schedulers(report);
    let mut page = page::begin(
        &report.experiment,
        "Threads that wake up and compute",
        &heading(report),
        &sentence(report),
    );
    let note = "Throughput as a fraction of EEVDF's, and how many times shorter the tails are.";
    target::section(&mut page, note, "UFS", &targets(&schedulers));
    page::section(
        &mut page,
        "Throughput and tails",
        "Worker threads ask a message thread, are woken, wait 100 µs for a network, and multiply \
         matrices under a lock of their CPU. Bars are medians over the repeats, whiskers the \
         extremes; of latencies, what 999 of 1000 keep in each repeat. After the UFS paper's \
         Figure 9.",
    );
    let names = schedulers.iter().map(|one| one.scheduler());
    page::legend(
        &mut page,
        names.map(|one| (scheduler_colour(one), one.label())),
    );
    let plots = [
        bars(Scale::Linear, "Requests per second", &schedulers, |row| {
            Some(row.requests_per_s)
        }),
        bars(Scale::Log, "Wake-ups: p99.9, µs", &schedulers, |row| {
            Some(row.wakeup.p999_us)
        }),
        bars(Scale::Linear, "Requests: p99.9, ms", &schedulers, |row| {
            Some(row.request.p999_us / 1e3)
        }),
    ];
    page::plots(&mut page, &plots);
    tools::section(&mut page, &schedulers);
    numbers(&mut page, &table(report));
    page::environment(
        &mut page,
        &report.environment,
        &[("Rows", report.rows.len().to_string())],
        "The method is schbench's, the program our own. In the lockstep clock caches cost nothing: \
         there the footprint is only so much work.",
    );
    page::end(page)
}

fn bars(
    scale: Scale,
    title: &str,
    schedulers: &[Repeats<'_>],
    number: fn(&WakeupRow) -> Option<f64>,
) -> String {
    let group = |one: &Repeats<'_>| {
        let spread = one.spread(number);
        let bar = spread.map(|spread| (scheduler_colour(one.scheduler()), spread));
        Group {
            label: one.scheduler().label(),
            bars: bar.into_iter().collect(),
        }
    };
    let groups: Vec<Group> = schedulers.iter().map(group).collect();
    canvas::bars_on(scale, title, &groups, None)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::experiments::wakeup::tools::{Cyclictest, Hackbench};
    use crate::experiments::wakeup::{NAME, WakeupPlan};
    use crate::harness::environment::Environment;

    fn latency(usual_us: f64, worst_us: f64) -> Latency {
        Latency {
            p50_us: usual_us,
            p99_us: usual_us,
            p999_us: worst_us,
            histogram: vec![(usual_us, 9_970), (worst_us, 30)],
        }
    }

    /// Three repeats in the shape that the paper found, with round numbers.
    pub(crate) fn report() -> Report<WakeupRow> {
        let environment = Environment {
            kernel: "7.2.13".to_owned(),
            machine: "sample".to_owned(),
            date: "2026-11-22".to_owned(),
            clock: "lockstep".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            cpus: 4,
            ..Environment::default()
        };
        let mut report = Report::new(NAME, environment);
        let plan = WakeupPlan::default();
        for repeat in 0..3 {
            for (scheduler, per_s, wakeup_us, request_us, messages_per_s) in [
                (Scheduler::Eevdf, 1_000.0, 3_100.0, 26_000.0, 200_000.0),
                (Scheduler::Ufs, 990.0, 500.0, 10_000.0, 180_000.0),
            ] {
                let seconds = vec![80_000.0 / messages_per_s; 5];
                report.rows.push(WakeupRow {
                    scheduler_version: scheduler.program(),
                    scheduler,
                    repeat,
                    seed: 1 + u64::from(repeat),
                    seconds: 10.0,
                    warmup_s: plan.warmup_s,
                    cpus: plan.cpus,
                    message_threads: plan.message_threads,
                    worker_threads: plan.workers(),
                    footprint_kib: plan.footprint_kib,
                    operations: plan.operations,
                    requests_per_s: per_s + f64::from(repeat),
                    wakeup: latency(20.0, wakeup_us),
                    request: latency(5_000.0, request_us),
                    hackbench: Some(Hackbench {
                        tasks: 80,
                        messages: 80_000,
                        seconds,
                        messages_per_s,
                    }),
                    cyclictest: Some(Cyclictest {
                        threads: plan.cpus,
                        late: latency(60.0, wakeup_us),
                        max_us: 2.0 * wakeup_us,
                    }),
                    schbench: None,
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
    fn the_table_compares_tails_with_eevdf_s() {
        let text = table(&samples::report());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let words = |nth: usize| {
            let line = text
                .lines()
                .filter(|line| line.starts_with("  UFS"))
                .nth(nth);
            Vec::from_iter(line.unwrap().split_whitespace().map(str::to_owned))
        };
        let numbers = ["20.0", "20.0", "~500", "5.00", "5.00", "~10.0", "29.7k"];
        assert_eq!(words(0)[3..], numbers);
        assert_eq!(words(1), ["UFS", "0.990", "6.20", "2.60"]);
    }

    #[test]
    fn tails_are_of_all_repeats_together() {
        let mut report = samples::report();
        let p999 = |report: &Report<WakeupRow>| {
            let schedulers = schedulers(report);
            find(&schedulers, &Scheduler::Ufs).unwrap().us(wakeup, TAIL)
        };
        assert_eq!(p999(&report), Some(500.0));
        // 27 of 30000 are less than a thousandth.
        for row in &mut report.rows {
            (row.wakeup.histogram[0].1, row.wakeup.histogram[1].1) = (9_991, 9);
        }
        assert_eq!(p999(&report), Some(20.0));
        // UFS's first repeat has enough of them for all three.
        report.rows[1].wakeup.histogram[1].1 = 20;
        assert_eq!(p999(&report), Some(500.0));
    }

    #[test]
    fn each_target_can_be_missed_by_itself() {
        let missed = |change: fn(&mut WakeupRow)| {
            let mut report = samples::report();
            let of_ufs = |row: &&mut WakeupRow| row.scheduler == Scheduler::Ufs;
            report.rows.iter_mut().filter(of_ufs).for_each(change);
            let targets = targets(&schedulers(&report)).into_iter();
            let missed = targets.filter(|target| !target.met);
            missed.map(|target| target.what).collect::<Vec<_>>()
        };
        assert_eq!(missed(|_| ()), Vec::<String>::new());
        assert_eq!(missed(|row| row.requests_per_s = 960.0), ["throughput"]);
        let slow = missed(|row| row.wakeup.histogram[1].0 = 800.0);
        assert_eq!(slow, ["p99.9 of wake-ups"]);
        let slow = missed(|row| row.request.histogram[1].0 = 13_500.0);
        assert_eq!(slow, ["p99.9 of requests"]);
    }

    #[test]
    fn the_sentence_needs_both_schedulers() {
        let mut report = samples::report();
        let text = sentence(&report);
        assert!(text.contains("0.99 of EEVDF's throughput"), "{text}");
        assert!(text.ends_with("all 3 targets are met."), "{text}");
        report.rows.retain(|row| row.scheduler == Scheduler::Ufs);
        assert!(sentence(&report).contains("do not compare"));
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 5);
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        let mut report = samples::report();
        for row in &mut report.rows {
            (row.hackbench, row.cyclictest) = (None, None);
        }
        assert_eq!(html(&report).matches("<svg ").count(), 3);
        report.rows.clear();
        assert!(html(&report).ends_with("</html>\n"));
    }
}
