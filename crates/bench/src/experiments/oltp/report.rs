//! Reports of YCSB.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::row::{Latency, OltpEngine, OltpRow, OltpWorkload, Operation};
use crate::cell::report::numbers;
use crate::harness::figure::Figure;
use crate::harness::number::{MARKED, Spread, large, mark, short};
use crate::render::canvas::{self, Group, Scale};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

/// Workloads in which ours is to be ahead of each other.
const AHEAD: [OltpWorkload; 5] = [
    OltpWorkload::A,
    OltpWorkload::B,
    OltpWorkload::C,
    OltpWorkload::D,
    OltpWorkload::F,
];

impl Record for OltpRow {
    fn table(report: &Report<OltpRow>) -> String {
        table(report)
    }

    fn page(report: &Report<OltpRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<OltpRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<OltpRow>) -> Vec<Target> {
        targets(&Setting::all(report))
    }

    fn figures(_: &Report<OltpRow>) -> Vec<Figure> {
        Vec::new()
    }

    fn setting(&self) -> String {
        format!("{} rows", self.rows)
    }
}

/// What is compared with each other: the same columns and threads.
struct Setting<'a> {
    columns: u32,
    threads: u32,
    rows: BTreeMap<(OltpWorkload, OltpEngine), Vec<&'a OltpRow>>,
}

/// A number of a latency.
type Of = fn(&Latency) -> f64;

/// A number of a row, in MiB.
type Mib = fn(&OltpRow) -> u64;

const P50: Of = |latency| latency.p50_us;
const P99: Of = |latency| latency.p99_us;

impl<'a> Setting<'a> {
    /// In the order of tables: more columns first, as YCSB's rows have ten.
    fn all(report: &'a Report<OltpRow>) -> Vec<Self> {
        let mut all: Vec<Setting<'a>> = Vec::new();
        for row in &report.rows {
            let is_its = |of: &Setting<'a>| (of.columns, of.threads) == (row.columns, row.threads);
            let at = all.iter().position(is_its).unwrap_or_else(|| {
                all.push(Setting {
                    columns: row.columns,
                    threads: row.threads,
                    rows: BTreeMap::new(),
                });
                all.len() - 1
            });
            let key = (row.workload, row.engine);
            all[at].rows.entry(key).or_default().push(row);
        }
        all.sort_by_key(|of| (std::cmp::Reverse(of.columns), of.threads));
        all
    }

    fn name(&self) -> String {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        format!(
            "{} column{}, {} thread{}",
            self.columns,
            plural(self.columns),
            self.threads,
            plural(self.threads)
        )
    }

    fn engines(&self) -> Vec<OltpEngine> {
        let is_there = |engine: &&OltpEngine| self.rows.keys().any(|(_, of)| of == *engine);
        OltpEngine::ALL.iter().filter(is_there).copied().collect()
    }

    fn workloads(&self) -> Vec<OltpWorkload> {
        let is_there = |workload: &&OltpWorkload| self.rows.keys().any(|(of, _)| of == *workload);
        OltpWorkload::ALL.iter().filter(is_there).copied().collect()
    }

    /// What is done in a workload.
    fn operations(&self, workload: OltpWorkload) -> Vec<Operation> {
        let rows = self.rows.iter().filter(|((of, _), _)| *of == workload);
        let mut operations: Vec<Operation> = rows
            .flat_map(|(_, rows)| rows.iter().flat_map(|row| row.latency.keys()))
            .copied()
            .collect();
        operations.sort_unstable();
        operations.dedup();
        operations
    }

    /// All lines of a table of latencies.
    fn lines(&self) -> Vec<(OltpWorkload, Operation)> {
        let of = |workload| {
            let operations = self.operations(workload).into_iter();
            operations.map(move |operation| (workload, operation))
        };
        self.workloads().into_iter().flat_map(of).collect()
    }

    fn of(&self, workload: OltpWorkload, engine: OltpEngine) -> &[&'a OltpRow] {
        let rows = self.rows.get(&(workload, engine));
        rows.map_or(&[], Vec::as_slice)
    }

    /// A number of a row over the repeats.
    fn spread(
        &self,
        (workload, engine): (OltpWorkload, OltpEngine),
        of: impl Fn(&OltpRow) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.of(workload, engine).iter().map(|row| of(row)))
    }

    /// A latency over the repeats.
    fn latency(
        &self,
        (workload, operation): (OltpWorkload, Operation),
        engine: OltpEngine,
        of: Of,
    ) -> Option<Spread> {
        let rows = self.of(workload, engine).iter();
        Spread::of(rows.filter_map(|row| Some(of(row.latency.get(&operation)?))))
    }

    /// How many operations all repeats have together.
    fn count(&self, (workload, operation): (OltpWorkload, Operation), engine: OltpEngine) -> f64 {
        let rows = self.of(workload, engine).iter();
        let counts = rows.filter_map(|row| Some(row.latency.get(&operation)?.count as f64));
        counts.sum()
    }
}

/// Ours beside the other that is nearest, or ahead by most.
struct Nearest {
    /// Ours, in parts of theirs.
    ratio: f64,
    engine: OltpEngine,
    /// Which operation, and where.
    place: String,
}

/// The largest ratio of ours over another's, over all settings, operations and engines.
fn nearest(
    settings: &[Setting<'_>],
    workload: OltpWorkload,
    others: &[OltpEngine],
    operations: Option<Operation>,
    of: Of,
) -> Option<Nearest> {
    let mut worst: Option<Nearest> = None;
    for setting in settings {
        for operation in setting.operations(workload) {
            if operations.is_some_and(|only| only != operation) {
                continue;
            }
            let latency = |engine| setting.latency((workload, operation), engine, of);
            let Some(ours) = latency(OltpEngine::Giveway) else {
                continue;
            };
            for &engine in others {
                let Some(theirs) = latency(engine) else {
                    continue;
                };
                let ratio = ours.median / theirs.median;
                if worst.as_ref().is_none_or(|worst| ratio > worst.ratio) {
                    worst = Some(Nearest {
                        ratio,
                        engine,
                        place: format!("{operation}, {}", setting.name()),
                    });
                }
            }
        }
    }
    worst
}

fn others() -> Vec<OltpEngine> {
    let others = OltpEngine::ALL.iter().copied();
    others
        .filter(|engine| *engine != OltpEngine::Giveway)
        .collect()
}

fn targets(settings: &[Setting<'_>]) -> Vec<Target> {
    let mut targets = Vec::new();
    for workload in AHEAD {
        for (name, of) in [("median", P50), ("p99", P99)] {
            let worst = nearest(settings, workload, &others(), None, of);
            targets.extend(worst.map(|worst| Target {
                what: format!("{workload}: {name}, of the nearest's"),
                bound: "below 1",
                measured: format!("{:.2} {}", worst.ratio, worst.engine),
                met: worst.ratio < 1.0,
            }));
        }
    }
    let scans = nearest(
        settings,
        OltpWorkload::E,
        &[OltpEngine::Lmdb],
        Some(Operation::Scan),
        P50,
    );
    targets.extend(scans.map(|scans| Target {
        what: "E: median of scans, of LMDB's".to_owned(),
        bound: "at most 1",
        measured: format!("{:.2}", scans.ratio),
        met: scans.ratio <= 1.0,
    }));
    targets
}

fn heading(report: &Report<OltpRow>) -> Vec<String> {
    let clock = &report.environment.clock;
    let mut lines = vec![
        report.headline(),
        format!("clock {clock}, commit {}", report.short_commit()),
    ];
    if let Some(row) = report.rows.first() {
        let repeats = report.rows.iter().map(|row| row.repeat).max().unwrap_or(0) + 1;
        lines.push(format!(
            "{} rows of 1000 bytes; {repeats} repeats of {} turns of {} s",
            row.rows, row.turns, row.seconds
        ));
        let mut versions = BTreeMap::new();
        versions.extend(report.rows.iter().map(|row| (row.engine, &*row.version)));
        let versions = versions
            .iter()
            .filter(|(of, _)| **of != OltpEngine::Giveway)
            .map(|(of, version)| format!("{of} {version}"));
        lines.push(Vec::from_iter(versions).join(", "));
    }
    lines
}

fn table(report: &Report<OltpRow>) -> String {
    let mut text = heading(report).join("\n") + "\n";
    let settings = Setting::all(report);
    for setting in &settings {
        let _ = writeln!(text, "\n{}", setting.name());
        latencies(&mut text, "median, us", setting, 0.5, P50);
        latencies(&mut text, "p99, us", setting, 0.99, P99);
        begin(&mut text, "per second", setting);
        for workload in setting.workloads() {
            line(&mut text, workload.name(), setting, |engine| {
                let per_s = setting.spread((workload, engine), |row| row.per_s)?;
                Some(large(per_s.median))
            });
        }
        begin(&mut text, "CPUs", setting);
        for workload in setting.workloads() {
            line(&mut text, workload.name(), setting, |engine| {
                let cpus = setting.spread((workload, engine), |row| row.cpus)?;
                Some(short(cpus.median))
            });
        }
        let of: [(&str, Mib); 2] = [
            ("MiB", |row| row.memory_mib),
            ("MiB huge", |row| row.huge_mib),
        ];
        for (name, of) in of {
            begin(&mut text, name, setting);
            for workload in setting.workloads() {
                line(&mut text, workload.name(), setting, |engine| {
                    let mib = setting.spread((workload, engine), |row| of(row) as f64)?;
                    Some(format!("{:.0}", mib.median))
                });
            }
        }
    }
    text.push_str(
        "\nMedians of the repeats. Throughput is of the time inside operations. CPUs: CPU\n\
         time of the engine's process per second. MiB: its own memory and its files;\n\
         huge: what of it the process sees by huge pages.\n",
    );
    if text.contains('~') {
        text.push_str(MARKED);
    }
    text + &target::lines("giveway's latency", &targets(&settings))
}

fn begin(text: &mut String, what: &str, setting: &Setting<'_>) {
    let _ = write!(text, "\n  {what:<10}");
    for engine in setting.engines() {
        let _ = write!(text, " {engine:>8}");
    }
    text.push('\n');
}

fn line(
    text: &mut String,
    name: &str,
    setting: &Setting<'_>,
    of: impl Fn(OltpEngine) -> Option<String>,
) {
    let _ = write!(text, "  {name:<10}");
    for engine in setting.engines() {
        let _ = write!(text, " {:>8}", of(engine).unwrap_or("-".to_owned()));
    }
    text.push('\n');
}

fn latencies(text: &mut String, what: &str, setting: &Setting<'_>, share: f64, of: Of) {
    begin(text, what, setting);
    for (workload, operation) in setting.lines() {
        let name = format!("{workload} {operation}");
        line(text, &name, setting, |engine| {
            let latency = setting.latency((workload, operation), engine, of)?;
            let count = setting.count((workload, operation), engine);
            Some(mark(large(latency.median), count, share))
        });
    }
}

fn sentence(report: &Report<OltpRow>) -> String {
    let settings = Setting::all(report);
    let mut ratios = [(0, 0); 2];
    let mut nearest_of: [Option<Nearest>; 2] = [None, None];
    for (at, of) in [P50, P99].into_iter().enumerate() {
        for setting in &settings {
            for line in setting.lines() {
                let latency = |engine| Some(setting.latency(line, engine, of)?.median);
                let Some(ours) = latency(OltpEngine::Giveway) else {
                    continue;
                };
                for theirs in others().into_iter().filter_map(latency) {
                    ratios[at].0 += u32::from(ours < theirs);
                    ratios[at].1 += 1;
                }
            }
        }
        let worst = OltpWorkload::ALL.iter().filter_map(|workload| {
            nearest(&settings, *workload, &others(), None, of).map(|n| (workload, n))
        });
        let worst = worst.max_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
        nearest_of[at] = worst.map(|(workload, nearest)| Nearest {
            place: format!("{workload} {}", nearest.place),
            ..nearest
        });
    }
    let [(Some(median), (ahead, all)), (Some(tail), (ahead_tail, _))] =
        [0, 1].map(|at| (nearest_of[at].as_ref(), ratios[at]))
    else {
        return "These rows do not have giveway beside another engine.".to_owned();
    };
    let say = |nearest: &Nearest| {
        format!(
            "{:.2} of {}'s ({})",
            nearest.ratio, nearest.engine, nearest.place
        )
    };
    format!(
        "Of {all} comparisons, each of one operation with one other engine, giveway is ahead in \
         {ahead} by median, at worst {}, and in {ahead_tail} by p99, at worst {}; {}.",
        say(median),
        say(tail),
        target::summary(&targets(&settings))
    )
}

fn colour(engine: OltpEngine) -> RGBColor {
    match engine {
        OltpEngine::Giveway => RGBColor(30, 100, 200),
        OltpEngine::Lmdb => RGBColor(214, 120, 60),
        OltpEngine::Redb => RGBColor(190, 60, 60),
        OltpEngine::Fjall => RGBColor(80, 150, 90),
        OltpEngine::Sled => RGBColor(150, 110, 180),
        OltpEngine::Rocksdb => RGBColor(200, 170, 40),
        OltpEngine::Sqlite => RGBColor(120, 120, 120),
    }
}

fn html(report: &Report<OltpRow>) -> String {
    let settings = Setting::all(report);
    let mut page = page::begin(
        &report.experiment,
        "YCSB on seven engines",
        &heading(report),
        &sentence(report),
    );
    let note = "Latency of giveway in parts of the other engine's that is nearest, over all \
                operations, columns and threads.";
    target::section(&mut page, note, "workload", &targets(&settings));
    page::section(
        &mut page,
        "Latency",
        "Microseconds of an operation, on a logarithmic axis. Bars are medians over the repeats, \
         whiskers the extremes.",
    );
    let mut engines: Vec<OltpEngine> = settings.iter().flat_map(Setting::engines).collect();
    engines.sort_unstable();
    engines.dedup();
    let names = engines.iter().map(|of| (colour(*of), of.name().to_owned()));
    page::legend(&mut page, names);
    let plots = settings.iter().flat_map(|setting| {
        [("Median", P50), ("p99", P99)].map(|(name, of)| bars(setting, name, of))
    });
    page::plots(&mut page, &Vec::from_iter(plots));
    numbers(&mut page, &table(report));
    page::environment(
        &mut page,
        &report.environment,
        &[("Rows", report.rows.len().to_string())],
        "Engines take turns, each in a process of its own that is stopped while others have \
         theirs.",
    );
    page::end(page)
}

fn bars(setting: &Setting<'_>, name: &str, of: Of) -> String {
    let group = |(workload, operation): (OltpWorkload, Operation)| Group {
        label: format!("{workload} {operation}"),
        bars: setting
            .engines()
            .into_iter()
            .filter_map(|engine| {
                Some((
                    colour(engine),
                    setting.latency((workload, operation), engine, of)?,
                ))
            })
            .collect(),
    };
    let groups: Vec<Group> = setting.lines().into_iter().map(group).collect();
    canvas::bars_on(
        Scale::Log,
        &format!("{name}, us: {}", setting.name()),
        &groups,
        None,
    )
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::experiments::oltp::NAME;
    use crate::harness::environment::Environment;

    /// Two repeats with round numbers: ours is ahead, but for scans.
    pub(crate) fn report() -> Report<OltpRow> {
        let environment = Environment {
            kernel: "7.2.13".to_owned(),
            machine: "sample".to_owned(),
            date: "2026-11-25".to_owned(),
            clock: "native".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            cpus: 2,
            ..Environment::default()
        };
        let mut report = Report::new(NAME, environment);
        let engines = [
            (OltpEngine::Giveway, "0.1.0", 0.5, 20.0),
            (OltpEngine::Lmdb, "0.9.70", 1.0, 10.0),
            (OltpEngine::Sqlite, "3.50.0", 4.0, 90.0),
        ];
        for repeat in 0..2 {
            for columns in [10, 1] {
                for (engine, version, us, scan_us) in engines {
                    for &workload in OltpWorkload::ALL {
                        let us = us + 0.02 * f64::from(repeat);
                        let latency = |us| Latency {
                            count: 10_000,
                            mean_us: us,
                            p50_us: us,
                            p99_us: us * 4.0,
                            p999_us: us * 8.0,
                            max_us: us * 100.0,
                        };
                        let operations = match workload {
                            OltpWorkload::C => vec![(Operation::Read, latency(us))],
                            OltpWorkload::E => vec![(Operation::Scan, latency(scan_us))],
                            _ => vec![
                                (Operation::Read, latency(us)),
                                (Operation::Update, latency(us * 2.0)),
                            ],
                        };
                        report.rows.push(OltpRow {
                            engine,
                            version: version.to_owned(),
                            workload,
                            columns,
                            threads: 1,
                            rows: 200_000,
                            repeat,
                            seed: 1 + u64::from(repeat),
                            seconds: 0.5,
                            turns: 4,
                            per_s: (1e6 / us).round(),
                            latency: operations.into_iter().collect(),
                            cpus: 1.0,
                            memory_mib: 300,
                            huge_mib: 200,
                        });
                    }
                }
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_operation_on_every_engine() {
        let text = table(&samples::report());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let words = |begin: &str| {
            let mut lines = text.lines().filter(|line| line.starts_with(begin));
            Vec::from_iter(lines.next().unwrap().split_whitespace())
        };
        assert_eq!(
            words("  median"),
            ["median,", "us", "giveway", "lmdb", "sqlite"]
        );
        assert_eq!(words("  A update"), ["A", "update", "1.02", "2.02", "8.02"]);
        assert_eq!(words("  E scan"), ["E", "scan", "20.0", "10.0", "90.0"]);
        assert!(text.find("10 columns, 1 thread") < text.find("1 column, 1 thread"));
        assert!(!text.contains('~'), "{text}");
    }

    #[test]
    fn one_operation_that_is_behind_in_one_setting_is_a_miss() {
        let mut report = samples::report();
        let missed = |report: &Report<OltpRow>| {
            let targets = targets(&Setting::all(report)).into_iter();
            let missed = targets.filter(|target| !target.met);
            Vec::from_iter(missed.map(|target| (target.what, target.measured)))
        };
        let scans = (
            "E: median of scans, of LMDB's".to_owned(),
            "2.00".to_owned(),
        );
        assert_eq!(missed(&report), std::slice::from_ref(&scans));
        for row in &mut report.rows {
            if (row.engine, row.workload, row.columns) == (OltpEngine::Sqlite, OltpWorkload::B, 1) {
                row.latency.get_mut(&Operation::Update).unwrap().p99_us = 2.0;
            }
        }
        let tail = (
            "B: p99, of the nearest's".to_owned(),
            "2.04 sqlite".to_owned(),
        );
        assert_eq!(missed(&report), [tail, scans]);
    }

    #[test]
    fn the_sentence_says_how_often_ours_is_ahead_and_where_it_is_not() {
        let mut report = samples::report();
        let said = sentence(&report);
        assert!(said.contains("Of 40 comparisons"), "{said}");
        assert!(
            said.contains("38 by median, at worst 2.00 of lmdb's (E scan, 10 columns, 1 thread)"),
            "{said}"
        );
        report.rows.retain(|row| row.engine == OltpEngine::Lmdb);
        assert!(sentence(&report).starts_with("These rows do not"));
    }

    #[test]
    fn a_percentile_of_few_is_marked() {
        let mut report = samples::report();
        for row in &mut report.rows {
            row.latency.values_mut().for_each(|of| of.count = 4_000);
        }
        let text = table(&report);
        assert!(
            text.contains("~") && text.contains("fewer than 100"),
            "{text}"
        );
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 4);
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
