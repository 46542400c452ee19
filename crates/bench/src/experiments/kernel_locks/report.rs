//! Reports of locks of the kernel, in the manner of the paper's Figures 1, 5, 7 and 9.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plotters::style::RGBColor;

use crate::cell::report::{numbers, plus_minus};
use crate::experiments::kernel_locks::row::{GroupRow, Latency, PhaseRow};
use crate::experiments::kernel_locks::{BATCH, BLOG_ALONE, KernelLocksRow, Lock, Part};
use crate::harness::figure::Figure;
use crate::harness::number::{Spread, short};
use crate::render::canvas::{self, Group, Line, Scale};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

/// Intervals of the series that are one line of the table.
const MERGED: usize = 10;
/// The blog has recovered in this many intervals of the series that have, in the mean,
/// this share of what it does alone.
const RECOVERED: (usize, f64) = (5, 0.9);
/// How far hold times may be from what weights say.
const WITHIN: f64 = 0.03;
/// The phases of `rename` in which each cgroup is alone.
const ALONE: [&str; 2] = ["G#1 alone", "G#2 alone"];

impl Record for KernelLocksRow {
    fn table(report: &Report<KernelLocksRow>) -> String {
        table(report)
    }

    fn page(report: &Report<KernelLocksRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<KernelLocksRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<KernelLocksRow>) -> Vec<Target> {
        targets(&Summary::of(report))
    }

    fn setting(&self) -> String {
        format!(
            "{} CPUs on {} sockets, {} files",
            self.cpus, self.sockets, self.files
        )
    }

    fn figures(report: &Report<KernelLocksRow>) -> Vec<Figure> {
        let summary = Summary::of(report);
        let alone = |lock, phase, group| {
            let spread = summary.of_alone(lock, phase, group)?;
            Some(spread.median)
        };
        let sections = summary.sections(Part::Rename, "together");
        let figure = |what, place, paper, measured| Figure::ratio(what, place, paper, measured);
        vec![
            figure(
                "stock: G#1 beside G#2, of alone",
                "Figure 7a",
                "0.08",
                alone(Lock::Stock, "together", 0),
            ),
            figure(
                "CFL: G#1 beside G#2, of alone",
                "Figure 7b",
                "0.51",
                alone(Lock::Cfl, "together", 0),
            ),
            figure(
                "CFL: G#2 beside G#1, of alone",
                "Figure 7b",
                "0.64",
                alone(Lock::Cfl, "together", 1),
            ),
            figure(
                "CFL, weight doubled: G#1 of alone",
                "Figure 7a",
                "0.65",
                alone(Lock::Cfl, "doubled", 0),
            ),
            figure(
                "both: CFL's of stock's",
                "Section 4.4",
                "2.44 x",
                summary.of_stock(Part::Rename, Lock::Cfl, "together"),
            )
            .unit(" x"),
            figure(
                "section of G#2 over G#1's",
                "Section 4.4",
                "5.68 x",
                sections.map(|[first, second]| second / first),
            )
            .unit(" x"),
            figure(
                "CFL: Jain's index of hold time, least",
                "Figure 9",
                "near 1",
                summary.least_fair(Lock::Cfl),
            ),
            figure(
                "blog, largest batch: CFL's of stock's",
                "Figure 1",
                "2.5 x",
                summary.blog_of_stock(Lock::Cfl, |phase| Some(phase.per_s(0))),
            )
            .unit(" x"),
            figure(
                "the same without groups",
                "Figure 5",
                "near 1 x",
                summary.blog_of_stock(Lock::CflNg, |phase| Some(phase.per_s(0))),
            )
            .unit(" x"),
            figure(
                "its mean latency, CFL's of stock's",
                "Section 4.2",
                "0.15-0.45",
                summary.blog_of_stock(Lock::Cfl, mean_us),
            ),
        ]
    }
}

/// The rows by part and lock, each with its repeats.
struct Summary<'a> {
    cells: BTreeMap<(Part, Lock), Vec<&'a KernelLocksRow>>,
}

impl<'a> Summary<'a> {
    fn of(report: &'a Report<KernelLocksRow>) -> Self {
        let mut cells: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for row in &report.rows {
            cells.entry((row.part, row.lock)).or_default().push(row);
        }
        Summary { cells }
    }

    /// The locks of a part, in their order.
    fn locks(&self, part: Part) -> impl Iterator<Item = Lock> {
        let cells = self.cells.keys();
        cells.filter(move |of| of.0 == part).map(|of| of.1)
    }

    fn rows(&self, part: Part, lock: Lock) -> &[&'a KernelLocksRow] {
        self.cells.get(&(part, lock)).map_or(&[], Vec::as_slice)
    }

    /// The names of a part's phases, in their order.
    fn phases(&self, part: Part) -> Vec<&'a str> {
        let mut cells = self.cells.iter();
        let found = cells.find(|(of, _)| of.0 == part);
        found.map_or(Vec::new(), |(_, rows)| {
            let phases = rows[0].phases.iter();
            phases.map(|phase| phase.phase.as_str()).collect()
        })
    }

    /// A number of a phase over the repeats that have it.
    fn spread(
        &self,
        part: Part,
        lock: Lock,
        phase: &str,
        number: impl Fn(&PhaseRow) -> Option<f64>,
    ) -> Option<Spread> {
        let rows = self.rows(part, lock).iter();
        Spread::of(rows.filter_map(|row| number(phase_of(row, phase)?)))
    }

    /// Renames of a cgroup in a phase of `rename`, of those when it is alone.
    fn of_alone(&self, lock: Lock, phase: &str, group: usize) -> Option<Spread> {
        let share = |row: &&KernelLocksRow| {
            let alone = phase_of(row, ALONE[group])?.per_s(group);
            Some(phase_of(row, phase)?.per_s(group) / alone)
        };
        let rows = self.rows(Part::Rename, lock).iter();
        Spread::of(rows.filter_map(share))
    }

    /// Renames of both, of those with the stock mutex: medians.
    fn of_stock(&self, part: Part, lock: Lock, phase: &str) -> Option<f64> {
        let both = |lock| self.spread(part, lock, phase, |of| Some(of.combined_per_s()));
        Some(both(lock)?.median / both(Lock::Stock)?.median)
    }

    /// The mean sections of both cgroups under CFL; those of the stock mutex are not
    /// counted, and what is done inside is the same.
    fn sections(&self, part: Part, phase: &str) -> Option<[f64; 2]> {
        let section = |group: usize| {
            let of = |phase: &PhaseRow| phase.groups[group].section_us();
            Some(self.spread(part, Lock::Cfl, phase, of)?.median)
        };
        Some([section(0)?, section(1)?])
    }

    /// Jain's index of what threads hold.
    fn fairness(&self, part: Part, lock: Lock, phase: &str) -> Option<Spread> {
        let usual = self.sections(part, phase);
        self.spread(part, lock, phase, |of| {
            let own = of.groups.each_ref().map(GroupRow::section_us);
            let sections = match own {
                [Some(first), Some(second)] => [first, second],
                _ => usual?,
            };
            Some(of.fairness(sections))
        })
    }

    /// A number of the blog beside the largest batch, of the same with the stock lock.
    fn blog_of_stock(&self, lock: Lock, number: impl Fn(&PhaseRow) -> Option<f64>) -> Option<f64> {
        let phase = BATCH[BATCH.len() - 1].to_string();
        let of = |lock| self.spread(Part::Blogbench, lock, &phase, &number);
        Some(of(lock)?.median / of(Lock::Stock)?.median)
    }

    /// How long after the batch has ended the blog has recovered, in milliseconds: the
    /// longest of the repeats; none if it has not in one of them.
    fn recovered_ms(&self, lock: Lock) -> Option<f64> {
        let rows = self.rows(Part::Blogbench, lock).iter();
        let times = rows.map(|row| recovered_ms(row));
        times
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .reduce(f64::max)
    }

    /// The least of the medians of all numbers of threads.
    fn least_fair(&self, lock: Lock) -> Option<f64> {
        let part = Part::RenameFair;
        let phases = self.phases(part).into_iter();
        let medians = phases.map(|phase| Some(self.fairness(part, lock, phase)?.median));
        medians
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .reduce(f64::min)
    }
}

fn mean_us(phase: &PhaseRow) -> Option<f64> {
    Some(phase.groups[0].latency?.mean_us)
}

fn recovered_ms(row: &KernelLocksRow) -> Option<f64> {
    let [alone, after] = BLOG_ALONE.map(|name| phase_of(row, name));
    let (intervals, share) = RECOVERED;
    let enough = alone?.per_s(0) * row.interval_ms / 1e3 * intervals as f64 * share;
    let first = (after?.from_s * 1e3 / row.interval_ms) as usize;
    let since = row.series[0].get(first..)?.windows(intervals);
    let mut sums = since.map(|of| of.iter().sum::<u64>() as f64);
    Some((sums.position(|sum| sum >= enough)? + intervals) as f64 * row.interval_ms)
}

fn phase_of<'a>(row: &'a KernelLocksRow, name: &str) -> Option<&'a PhaseRow> {
    row.phases.iter().find(|phase| phase.phase == name)
}

/// What G#1 held, of what G#2 did.
fn held(phase: &PhaseRow) -> Option<f64> {
    let [first, second] = phase.groups.each_ref().map(|group| group.stat.hold_ns);
    (second > 0).then(|| first as f64 / second as f64)
}

/// What the weights of a phase come to.
fn wanted(phase: &PhaseRow) -> f64 {
    let [first, second] = phase.groups.each_ref().map(|group| f64::from(group.weight));
    first / second
}

fn targets(summary: &Summary<'_>) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut at_least = |what: &str, bound, least: f64, unit, measured: Option<f64>| {
        targets.extend(measured.map(|measured| Target {
            what: what.to_owned(),
            bound,
            measured: format!("{measured:.2}{unit}"),
            met: measured >= least,
        }));
    };
    let alone = |phase| Some(summary.of_alone(Lock::Cfl, phase, 0)?.median);
    let bound = "at least 0.45";
    at_least("G#1 together, of alone", bound, 0.45, "", alone("together"));
    let bound = "at least 0.60";
    at_least(
        "G#1 at double weight, of alone",
        bound,
        0.60,
        "",
        alone("doubled"),
    );
    let of_stock = summary.of_stock(Part::Rename, Lock::Cfl, "together");
    at_least(
        "both together, of stock's",
        "at least 2 x",
        2.0,
        " x",
        of_stock,
    );

    let part = Part::RenameFair;
    let least_fair = summary.least_fair(Lock::Cfl);
    let bound = "at least 0.97";
    at_least("equal threads: Jain's index", bound, 0.97, "", least_fair);
    let phases = summary.phases(part).into_iter();
    let of_stock = phases.filter_map(|phase| summary.of_stock(part, Lock::Cfl, phase));
    let worst = of_stock.reduce(f64::min);
    at_least(
        "equal threads: both, of stock's",
        "at least 1 x",
        1.0,
        " x",
        worst,
    );

    let cfl = Lock::Cfl;
    let of_stock = summary.blog_of_stock(cfl, |phase| Some(phase.per_s(0)));
    at_least(
        "blog beside the batch: operations, of stock's",
        "at least 2.5 x",
        2.5,
        " x",
        of_stock,
    );
    let latency = summary.blog_of_stock(cfl, mean_us);
    targets.extend(latency.map(|latency| Target {
        what: "blog beside the batch: mean latency, of stock's".to_owned(),
        bound: "at most 0.5",
        measured: format!("{latency:.2}"),
        met: latency <= 0.5,
    }));
    if !summary.rows(Part::Blogbench, cfl).is_empty() {
        let after = summary.recovered_ms(cfl);
        targets.push(Target {
            what: "blog after the batch: recovered".to_owned(),
            bound: "within 1 s",
            measured: after.map_or("not".to_owned(), |ms| format!("{ms:.0} ms")),
            met: after.is_some_and(|ms| ms <= 1000.0),
        });
    }

    for phase in summary.phases(Part::Weights) {
        let off = |of: &PhaseRow| Some(held(of)? / wanted(of) - 1.0);
        let off = summary.spread(Part::Weights, Lock::Cfl, phase, off);
        targets.extend(off.map(|off| Target {
            what: format!("hold time by weight {phase}"),
            bound: "within 3 %",
            measured: format!("{:+.1} %", off.median * 100.0),
            met: off.median.abs() <= WITHIN,
        }));
    }
    targets
}

fn heading(report: &Report<KernelLocksRow>) -> Vec<String> {
    let clock = &report.environment.clock;
    let mut lines = vec![
        report.headline(),
        format!("clock {clock}, commit {}", report.short_commit()),
    ];
    if let Some(row) = report.rows.first() {
        let repeats = report.rows.iter().map(|row| row.repeat).max().unwrap_or(0) + 1;
        lines.push(format!(
            "{} CPUs, {} sockets, {} files in the full directory; {repeats} repeats",
            row.cpus, row.sockets, row.files
        ));
    }
    lines
}

fn table(report: &Report<KernelLocksRow>) -> String {
    let summary = Summary::of(report);
    let mut text = heading(report).join("\n") + "\n";
    rename_table(&mut text, &summary);
    held_table(&mut text, &summary);
    fair_table(&mut text, &summary);
    weights_table(&mut text, &summary);
    blog_table(&mut text, &summary);
    events_table(&mut text, &summary);
    series_table(&mut text, &summary);
    text.push_str(
        "\nMedians, ± half the range of the repeats. Of the stock mutex the kernel counts\n\
         no hold time: Jain's index takes its renames times the sections under CFL. Not\n\
         compared, as no port to this kernel is known: ShflLock, CNA, SCL, Syncord.\n",
    );
    text + &target::lines("CFL", &targets(&summary))
}

/// A spread as a cell of a table.
fn cell(spread: Option<Spread>) -> String {
    spread.map_or("-".to_owned(), plus_minus)
}

fn rename_table(text: &mut String, summary: &Summary<'_>) {
    let part = Part::Rename;
    let phases = summary.phases(part);
    if phases.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nrename: renames a second\n  {:<7}{:<10}{:>13}{:>11}{:>13}{:>11}{:>9}",
        "", "", "G#1", "of alone", "G#2", "of alone", "of stock"
    );
    for lock in summary.locks(part) {
        for phase in &phases {
            let per_s = |group: usize| {
                let of = |phase: &PhaseRow| {
                    (!phase.groups[group].renames.is_empty()).then(|| phase.per_s(group))
                };
                cell(summary.spread(part, lock, phase, of))
            };
            let alone = |group: usize| {
                let of = summary.of_alone(lock, phase, group);
                cell(of.filter(|of| of.median > 0.0 && !ALONE.contains(phase)))
            };
            let of_stock = summary.of_stock(part, lock, phase);
            let _ = writeln!(
                text,
                "  {lock:<7}{phase:<10}{:>13}{:>11}{:>13}{:>11}{:>9}",
                per_s(0),
                alone(0),
                per_s(1),
                alone(1),
                of_stock.map_or("-".to_owned(), |of| format!("{} x", short(of))),
            );
        }
    }
}

/// Sections, waits and hold times, which the kernel counts under CFL.
fn held_table(text: &mut String, summary: &Summary<'_>) {
    let counted = |lock: &Lock| *lock != Lock::Stock;
    let part = Part::Rename;
    let locks = Vec::from_iter(summary.locks(part).filter(counted));
    if locks.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nrename: us of a section, us of a wait, share of the time for which it is held\n  \
         {:<7}{:<10}{:>9}{:>9}{:>7}{:>9}{:>9}{:>7}{:>11}",
        "", "", "G#1", "wait", "held", "G#2", "wait", "held", "G#1:G#2"
    );
    for lock in locks {
        for phase in summary.phases(part) {
            let number = |of: &dyn Fn(&PhaseRow) -> Option<f64>| {
                let spread = summary.spread(part, lock, phase, of);
                spread.map_or("-".to_owned(), |spread| short(spread.median))
            };
            let columns = [0, 1].map(|group: usize| {
                let of = |phase: &PhaseRow| {
                    let seconds = phase.groups[group].stat.hold_ns as f64 / 1e9;
                    (seconds > 0.0).then(|| seconds / phase.seconds)
                };
                [
                    number(&|phase| phase.groups[group].section_us()),
                    number(&|phase| phase.groups[group].wait_us()),
                    number(&of),
                ]
            });
            let [[section, wait, share], [section_2, wait_2, share_2]] = columns;
            let together = !ALONE.contains(&phase);
            let ratio = summary.spread(part, lock, phase, |of| held(of).filter(|_| together));
            let _ = writeln!(
                text,
                "  {lock:<7}{phase:<10}{section:>9}{wait:>9}{share:>7}{section_2:>9}{wait_2:>9}\
                 {share_2:>7}{:>11}",
                cell(ratio)
            );
        }
    }
}

fn fair_table(text: &mut String, summary: &Summary<'_>) {
    let part = Part::RenameFair;
    if summary.phases(part).is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nrename-fair: as many threads of each cgroup\n  {:<9}{:<7}{:>20}{:>10}{:>15}",
        "threads", "", "renames a second", "of stock", "Jain's index"
    );
    for phase in summary.phases(part) {
        for lock in summary.locks(part) {
            let both = summary.spread(part, lock, phase, |of| Some(of.combined_per_s()));
            let of_stock = summary.of_stock(part, lock, phase);
            let fair = summary.fairness(part, lock, phase);
            let _ = writeln!(
                text,
                "  {:<9}{lock:<7}{:>20}{:>10}{:>15}",
                format!("{phase}+{phase}"),
                cell(both),
                of_stock.map_or("-".to_owned(), |of| format!("{} x", short(of))),
                fair.map_or("-".to_owned(), |of| format!("{:.3}", of.median)),
            );
        }
    }
}

fn weights_table(text: &mut String, summary: &Summary<'_>) {
    let part = Part::Weights;
    if summary.phases(part).is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nweights: what 8 threads of G#1 hold, of what 16 of G#2 do\n  {:<9}{:<7}{:>15}{:>10}",
        "weights", "", "held", "off"
    );
    for phase in summary.phases(part) {
        for lock in summary.locks(part) {
            let off = summary.spread(part, lock, phase, |of| Some(held(of)? / wanted(of) - 1.0));
            let _ = writeln!(
                text,
                "  {phase:<9}{lock:<7}{:>15}{:>10}",
                cell(summary.spread(part, lock, phase, held)),
                off.map_or("-".to_owned(), |off| format!(
                    "{:+.1} %",
                    off.median * 100.0
                )),
            );
        }
    }
}

/// The blog server beside its batch.
fn blog_table(text: &mut String, summary: &Summary<'_>) {
    let part = Part::Blogbench;
    let phases = summary.phases(part);
    if phases.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nblogbench: operations of the blog a second, their latency and waits for the lock\n\
         in us, share of the time for which both hold it, renames of the batch a second\n  \
         {:<7}{:<7}{:>10}{:>9}{:>8}{:>8}{:>8}{:>7}{:>12}",
        "", "batch", "blog", "of stock", "mean", "p99", "wait", "held", "batch/s"
    );
    for lock in summary.locks(part) {
        for phase in &phases {
            let number = |of: &dyn Fn(&PhaseRow) -> Option<f64>| {
                let spread = summary.spread(part, lock, phase, of);
                spread.map_or("-".to_owned(), |spread| short(spread.median))
            };
            let latency =
                |of: fn(&Latency) -> f64| number(&|phase| phase.groups[0].latency.as_ref().map(of));
            let blog = |lock| summary.spread(part, lock, phase, |of| Some(of.per_s(0)));
            let stock = blog(Lock::Stock).zip(blog(lock));
            let of_stock = stock.map(|(stock, own)| own.median / stock.median);
            let held = |phase: &PhaseRow| {
                let holds = phase.groups.iter().map(|group| group.stat.hold_ns);
                let ns = holds.sum::<u64>() as f64;
                (ns > 0.0).then(|| ns / 1e9 / phase.seconds)
            };
            let batch = |phase: &PhaseRow| {
                let some = !phase.groups[1].renames.is_empty();
                some.then(|| phase.per_s(1))
            };
            let _ = writeln!(
                text,
                "  {lock:<7}{phase:<7}{:>10}{:>9}{:>8}{:>8}{:>8}{:>7}{:>12}",
                cell(blog(lock)),
                of_stock.map_or("-".to_owned(), |of| format!("{} x", short(of))),
                latency(|of| of.mean_us),
                latency(|of| of.p99_us),
                number(&|phase| phase.groups[0].wait_us()),
                number(&held),
                number(&batch),
            );
        }
    }
    for lock in summary.locks(part) {
        if let Some(ms) = summary.recovered_ms(lock) {
            let _ = writeln!(
                text,
                "  {lock}: {ms:.0} ms after the batch the blog is as fast as before"
            );
        }
    }
}

/// What the queue did for each hold while both run.
fn events_table(text: &mut String, summary: &Summary<'_>) {
    const EVENTS: [&str; 6] = [
        "traversals",
        "moved",
        "gave_way",
        "steals",
        "refused",
        "parked",
    ];
    let part = Part::Rename;
    let locks: Vec<Lock> = summary
        .locks(part)
        .filter(|lock| *lock != Lock::Stock)
        .collect();
    if locks.is_empty() {
        return;
    }
    text.push_str("\nrename: events of the queue for each hold, together\n         ");
    for event in EVENTS {
        let _ = write!(text, "{event:>11}");
    }
    for lock in locks {
        let _ = write!(text, "\n  {lock:<7}");
        for event in EVENTS {
            let spread = summary.spread(part, lock, "together", |phase| {
                let holds = phase.groups.iter().map(|group| group.stat.acquisitions);
                Some(*phase.events.get(event)? as f64 / holds.sum::<u64>() as f64)
            });
            let _ = write!(
                text,
                "{:>11}",
                spread.map_or("-".to_owned(), |spread| short(spread.median))
            );
        }
    }
    text.push('\n');
}

/// G#1's renames a second over time, with the phase that each interval begins in.
fn series_table(text: &mut String, summary: &Summary<'_>) {
    let part = Part::Rename;
    let locks = Vec::from_iter(summary.locks(part));
    let Some(row) = locks.first().map(|lock| summary.rows(part, *lock)[0]) else {
        return;
    };
    let series: Vec<Vec<(f64, f64)>> = locks.iter().map(|lock| series(summary, *lock)).collect();
    text.push_str("\nrename: renames of G#1 a second, by time\n  ms               ");
    for lock in &locks {
        let _ = write!(text, "{lock:>10}");
    }
    text.push('\n');
    // G#1 ends where it is not there any more.
    let ends = phase_of(row, ALONE[1]).map_or(f64::MAX, |phase| phase.from_s);
    for (index, (at, _)) in series[0].iter().enumerate() {
        if *at >= ends {
            break;
        }
        let mut phases = row.phases.iter().rev();
        let phase = phases.find(|phase| phase.from_s <= at + f64::EPSILON);
        let _ = write!(
            text,
            "  {:<6}{:<11}",
            format!("{:.0}", at * 1e3),
            phase.map_or("", |phase| phase.phase.as_str())
        );
        for one in &series {
            let value = one.get(index).map_or("-".to_owned(), |(_, of)| short(*of));
            let _ = write!(text, "{value:>10}");
        }
        text.push('\n');
    }
}

/// G#1's renames a second: seconds since the beginning, and the median of the repeats.
fn series(summary: &Summary<'_>, lock: Lock) -> Vec<(f64, f64)> {
    let rows = summary.rows(Part::Rename, lock);
    let length = rows.iter().map(|row| row.series[0].len() / MERGED).min();
    let point = |index: usize| {
        let per_s = rows.iter().map(|row| {
            let intervals = row.series[0].iter().skip(index * MERGED).take(MERGED);
            intervals.sum::<u64>() as f64 * 1e3 / (row.interval_ms * MERGED as f64)
        });
        let at = (index * MERGED) as f64 * rows[0].interval_ms / 1e3;
        (at, Spread::of(per_s).map_or(0.0, |spread| spread.median))
    };
    (0..length.unwrap_or(0)).map(point).collect()
}

fn sentence(report: &Report<KernelLocksRow>) -> String {
    let summary = Summary::of(report);
    let alone = |lock| Some(summary.of_alone(lock, "together", 0)?.median);
    let Some((stock, cfl)) = alone(Lock::Stock).zip(alone(Lock::Cfl)) else {
        if let Some(of_stock) = summary.blog_of_stock(Lock::Cfl, |phase| Some(phase.per_s(0))) {
            return format!(
                "Beside the largest batch the blog does {} times the operations of the stock \
                 spinlock under CFL; {}.",
                short(of_stock),
                target::summary(&targets(&summary))
            );
        }
        return "These rows do not have the part rename under the stock mutex and CFL.".to_owned();
    };
    format!(
        "Beside G#2, G#1 keeps {} of its renames with the stock mutex and {} under CFL; {}.",
        short(stock),
        short(cfl),
        target::summary(&targets(&summary))
    )
}

fn colour(lock: Lock) -> RGBColor {
    match lock {
        Lock::Stock => RGBColor(120, 130, 142),
        Lock::Cfl => RGBColor(22, 108, 196),
        Lock::CflNg => RGBColor(240, 173, 88),
        Lock::CflNs => RGBColor(144, 103, 167),
    }
}

fn html(report: &Report<KernelLocksRow>) -> String {
    let summary = Summary::of(report);
    let mut page = page::begin(
        &report.experiment,
        "Two cgroups share a lock of the kernel",
        &heading(report),
        &sentence(report),
    );
    let note = "Renames and hold times under CFL.";
    target::section(&mut page, note, "CFL", &targets(&summary));
    page::section(
        &mut page,
        "Renames",
        "Threads of two cgroups rename files between directories and share the mutex of the \
         file system. G#2 begins when G#1 has run for some time; then the weight of G#1 is \
         doubled. Medians of the repeats.",
    );
    let mut locks: Vec<Lock> = summary.cells.keys().map(|of| of.1).collect();
    locks.sort();
    locks.dedup();
    let names = locks.iter().map(|lock| (colour(*lock), lock.to_string()));
    page::legend(&mut page, names);
    let over_time = locks.iter().map(|lock| Line {
        colour: colour(*lock),
        width: if *lock == Lock::Cfl { 3 } else { 2 },
        points: series(&summary, *lock),
    });
    let title = "Renames of G#1 a second";
    let seconds = ("seconds", Scale::Linear);
    let mut plots = Vec::from_iter(canvas::lines(
        title,
        seconds,
        Scale::Linear,
        &Vec::from_iter(over_time),
    ));
    let fair = Part::RenameFair;
    if !summary.phases(fair).is_empty() {
        plots.push(bars(&summary, "Renames of both a second", |lock, phase| {
            summary.spread(fair, lock, phase, |of| Some(of.combined_per_s()))
        }));
        plots.push(bars(
            &summary,
            "Jain's index of hold time",
            |lock, phase| summary.fairness(fair, lock, phase),
        ));
    }
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

/// Bars of `rename-fair`, by number of threads.
fn bars(
    summary: &Summary<'_>,
    title: &str,
    number: impl Fn(Lock, &str) -> Option<Spread>,
) -> String {
    let part = Part::RenameFair;
    let group = |phase: &str| Group {
        label: format!("{phase}+{phase} threads"),
        bars: summary
            .locks(part)
            .filter_map(|lock| Some((colour(lock), number(lock, phase)?)))
            .collect(),
    };
    let groups = summary.phases(part).into_iter().map(group);
    canvas::bars(title, &Vec::from_iter(groups), None)
}

#[cfg(test)]
pub(crate) mod samples;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_part_in_80_columns() {
        let text = table(&samples::report());
        let long = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None);
        let words = |begin: &str, nth: usize| {
            let mut lines = text.lines().filter(|line| line.starts_with(begin));
            Vec::from_iter(lines.nth(nth).unwrap().split_whitespace())
        };
        // 400 ms of sections of 50 and 250 us: 8000 and 1600 renames.
        assert_eq!(
            words("  cfl    together", 0),
            [
                "cfl", "together", "8000", "0.50", "1600", "0.44", "1.85", "x"
            ]
        );
        assert_eq!(
            words("  cfl    together", 1)[2..],
            ["50.0", "100", "0.40", "250", "100", "0.40", "1.00"]
        );
        // 1 of 9 parts: (1 + 8)² / (2 · (1 + 64)).
        assert_eq!(
            words("  2+2", 0),
            ["2+2", "stock", "5200", "1.00", "x", "0.623"]
        );
        assert_eq!(words("  8:1", 0), ["8:1", "cfl", "7.27", "-9.1", "%"]);
        // 300 and 100 ms of sections of 50 us.
        let blog = words("  cfl    56", 0);
        let expected = [
            "cfl", "56", "6000", "3.00", "x", "333", "667", "100", "0.80", "2000",
        ];
        assert_eq!(blog, expected);
        // Ten intervals of 160 renames in 100 ms; G#2 is alone from 600 ms on.
        assert_eq!(words("  500", 0), ["500", "doubled", "16000", "16000"]);
        assert!(!text.contains("\n  600 "), "{text}");
    }

    #[test]
    fn targets_are_met_or_missed_by_the_median() {
        let report = samples::report();
        let targets = targets(&Summary::of(&report));
        let said: Vec<_> = targets
            .iter()
            .map(|target| (target.measured.as_str(), target.met))
            .collect();
        assert_eq!(
            said,
            [
                ("0.50", true),
                ("0.75", true),
                ("1.85 x", false),
                ("1.00", true),
                ("1.85 x", true),
                ("3.00 x", true),
                ("0.33", true),
                ("50 ms", true),
                ("+0.0 %", true),
                ("-9.1 %", false),
            ]
        );
        let said = sentence(&report);
        assert!(said.contains("keeps 0.12 of its renames"), "{said}");
        let none = Report {
            rows: Vec::new(),
            ..report
        };
        assert!(sentence(&none).starts_with("These rows do not"));
        assert!(super::targets(&Summary::of(&none)).is_empty());
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 3);
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
