//! Reports of RocksDB's foreground, in the manner of the paper's Figure 6.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use crate::experiments::rocksdb::{Operation, RocksRow, Setting};
use crate::harness::figure::Figure;
use crate::harness::number::{MARKED, Spread, large, mark};
use crate::render::canvas::{self, Group};
use crate::render::page::{self, escape};
use crate::render::target::Target;
use crate::report::{Record, Report};

impl Record for RocksRow {
    fn table(report: &Report<RocksRow>) -> String {
        table(report)
    }

    fn page(report: &Report<RocksRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<RocksRow>) -> String {
        sentence(report)
    }

    fn targets(_: &Report<RocksRow>) -> Vec<Target> {
        Vec::new()
    }

    fn figures(report: &Report<RocksRow>) -> Vec<Figure> {
        let workloads = cells(report);
        let of = |number: fn(&Cell<'_>) -> Option<Spread>, better: fn(f64, f64) -> f64| {
            let ratios = workloads.iter().filter_map(|(_, cells)| {
                let cfl = cells.iter().find(|cell| cell.setting == Setting::Cfl)?;
                to_pthread(cells, cfl, number)
            });
            ratios.reduce(better)
        };
        let tail = of(|cell| cell.main(|operation| operation.p99_us), f64::min);
        vec![
            Figure::ratio(
                "best workload: throughput of stock's",
                "Figure 6",
                "1.86 x",
                of(|cell| cell.ops(), f64::max),
            )
            .unit(" x"),
            Figure::ratio(
                "best workload: p99 below stock's",
                "Figure 6",
                "25 %",
                tail.map(|tail| (1.0 - tail) * 100.0),
            )
            .unit(" %"),
        ]
    }
}

/// The repeats of a workload under a setting.
struct Cell<'a> {
    setting: Setting,
    rows: Vec<&'a RocksRow>,
}

impl Cell<'_> {
    fn ops(&self) -> Option<Spread> {
        Spread::of(self.rows.iter().map(|row| row.ops_per_s))
    }

    /// How many operations there are of the kind that there is most of.
    fn operations(&self) -> f64 {
        let operations = self.rows.iter().filter_map(|row| row.main_operation());
        operations.map(|operation| operation.count as f64).sum()
    }

    /// A number of the operation that there is most of.
    fn main(&self, number: impl Fn(&Operation) -> f64) -> Option<Spread> {
        let operations = self.rows.iter().filter_map(|row| row.main_operation());
        Spread::of(operations.map(number))
    }
}

/// Workloads in the order in which they were run, settings in theirs.
fn cells(report: &Report<RocksRow>) -> Vec<(&str, Vec<Cell<'_>>)> {
    let mut workloads: Vec<(&str, Vec<Cell<'_>>)> = Vec::new();
    for row in &report.rows {
        let index = workloads.iter().position(|(name, _)| *name == row.workload);
        let index = index.unwrap_or_else(|| {
            workloads.push((&row.workload, Vec::new()));
            workloads.len() - 1
        });
        let cells = &mut workloads[index].1;
        match cells.iter_mut().find(|cell| cell.setting == row.setting) {
            Some(cell) => cell.rows.push(row),
            None => cells.push(Cell {
                setting: row.setting,
                rows: vec![row],
            }),
        }
    }
    for (_, cells) in &mut workloads {
        cells.sort_by_key(|cell| cell.setting);
    }
    workloads
}

/// One as a multiple of the `pthread` setting's.
fn to_pthread(
    cells: &[Cell<'_>],
    cell: &Cell<'_>,
    number: impl Fn(&Cell<'_>) -> Option<Spread>,
) -> Option<f64> {
    let pthread = cells.iter().find(|cell| cell.setting == Setting::Pthread)?;
    let (one, other) = (number(cell)?.median, number(pthread)?.median);
    (other > 0.0).then_some(one / other)
}

fn heading(report: &Report<RocksRow>) -> Vec<String> {
    let environment = &report.environment;
    let commit = report.short_commit();
    let mut lines = vec![
        report.headline(),
        format!(
            "{} CPUs, clock {}, commit {commit}",
            environment.cpus, environment.clock
        ),
    ];
    if let Some(row) = report.rows.first() {
        let repeats = report.rows.iter().map(|row| row.repeat).max().unwrap_or(0) + 1;
        lines.push(format!(
            "{} foreground threads, {} background jobs; {repeats} x {:.0} s",
            row.threads, row.background, row.seconds
        ));
        if row.threads + row.background > environment.cpus {
            lines.push("Beware: more threads than CPUs; they share CPUs before locks.".to_owned());
        }
    }
    lines
}

fn table(report: &Report<RocksRow>) -> String {
    let mut text = String::new();
    for line in heading(report) {
        let _ = writeln!(text, "{line}");
    }
    let dash = || "-".to_owned();
    for (workload, cells) in &cells(report) {
        let workload: String = workload.chars().take(22).collect();
        let _ = writeln!(
            text,
            "\n  {workload:<22} {:>7} {:>8} {:>7} {:>8} {:>9} {:>8}",
            "ops/s", "/pthread", "p50 µs", "p99 µs", "p99.9 µs", "/pthread"
        );
        for cell in cells {
            let large_of = |spread: Option<Spread>| spread.map_or(dash(), |s| large(s.median));
            let ratio = |value: Option<f64>| value.map_or(dash(), |value| format!("{value:.2}"));
            let marked =
                |spread: Option<Spread>, share| mark(large_of(spread), cell.operations(), share);
            let tail = |cell: &Cell<'_>| cell.main(|operation| operation.p999_us);
            let _ = writeln!(
                text,
                "  {:<22} {:>7} {:>8} {:>7} {:>8} {:>9} {:>8}",
                cell.setting.name(),
                large_of(cell.ops()),
                ratio(to_pthread(cells, cell, |cell| cell.ops())),
                large_of(cell.main(|operation| operation.p50_us)),
                marked(cell.main(|operation| operation.p99_us), 0.99),
                marked(tail(cell), 0.999),
                ratio(to_pthread(cells, cell, tail)),
            );
        }
    }
    text.push_str("\nLatencies of the kind of operation that there is most of. Medians.\n");
    text.push_str(MARKED);
    text
}

fn sentence(report: &Report<RocksRow>) -> String {
    let workloads = cells(report);
    let said: Vec<String> = workloads
        .iter()
        .filter_map(|(workload, cells)| {
            let cfl = cells.iter().find(|cell| cell.setting == Setting::Cfl)?;
            let ops = to_pthread(cells, cfl, |cell| cell.ops())?;
            let tail = to_pthread(cells, cfl, |cell| cell.main(|operation| operation.p999_us))?;
            Some(format!("{ops:.2} and {tail:.2} in {workload}"))
        })
        .collect();
    if said.is_empty() {
        return "These rows do not hold both mutexes, so they do not compare them.".to_owned();
    }
    format!(
        "With CFL and background threads that give way, RocksDB's foreground has these \
         multiples of pthread's throughput and p99.9: {}.",
        said.join(", ")
    )
}

fn colour(setting: Setting) -> RGBColor {
    match setting {
        Setting::Flat => RGBColor(184, 190, 198),
        Setting::Pthread => RGBColor(120, 130, 142),
        Setting::Cfl => RGBColor(22, 108, 196),
    }
}

fn html(report: &Report<RocksRow>) -> String {
    let workloads = cells(report);
    let mut page = page::begin(
        &report.experiment,
        "RocksDB, with background threads that give way",
        &heading(report),
        &sentence(report),
    );
    page::section(
        &mut page,
        "Foreground",
        "Operations of db_bench's own threads, while others flush and compact. 'pthread' and \
         'cfl' lower the background's CPU and I/O priority; 'cfl' puts it in a group of lower \
         weight at every mutex, too. After CFL's Figure 6, which schedules the kernel's locks \
         instead.",
    );
    let settings = [Setting::Flat, Setting::Pthread, Setting::Cfl];
    let names = settings.map(|setting| (colour(setting), setting.name().to_owned()));
    page::legend(&mut page, names);
    let bars = |title, number: fn(&Cell<'_>) -> Option<Spread>| {
        let groups: Vec<Group> = workloads
            .iter()
            .map(|(workload, cells)| Group {
                label: short_name(workload),
                bars: cells
                    .iter()
                    .filter_map(|cell| Some((colour(cell.setting), number(cell)?)))
                    .collect(),
            })
            .collect();
        canvas::bars(title, &groups, None)
    };
    let figures = [
        bars("Operations per second", |cell| cell.ops()),
        bars("99.9th percentile, µs", |cell| {
            cell.main(|operation| operation.p999_us)
        }),
    ];
    page::plots(&mut page, &figures);
    let _ = writeln!(
        page,
        "<h2>Numbers</h2>\n<div class=\"card\"><table><thead><tr><th>workload</th><th>locks</th>\
         <th>repeat</th><th>ops/s</th><th>operation</th><th>count</th><th>mean µs</th>\
         <th>p50</th><th>p99</th><th>p99.9</th><th>p99.99</th><th>max</th></tr></thead><tbody>"
    );
    for row in &report.rows {
        for operation in &row.operations {
            number_row(&mut page, row, operation);
        }
    }
    page.push_str("</tbody></table></div>\n");
    let reports = report
        .rows
        .iter()
        .filter(|row| !row.preload_report.is_empty());
    for row in reports {
        let _ = writeln!(
            page,
            "<details><summary>Locks in {}, repeat {}</summary><pre>{}</pre></details>",
            escape(&row.workload),
            row.repeat + 1,
            escape(&row.preload_report.join("\n"))
        );
    }
    let rows = ("Rows", report.rows.len().to_string());
    page::environment(
        &mut page,
        &report.environment,
        &[rows],
        "db_bench makes its data anew for every run; the keys are those of the seed.",
    );
    page::end(page)
}

fn number_row(page: &mut String, row: &RocksRow, operation: &Operation) {
    let Operation {
        name,
        count,
        mean_us,
        p50_us,
        p99_us,
        p999_us,
        p9999_us,
        max_us,
    } = operation;
    let _ = write!(
        page,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{count}</td>",
        escape(&row.workload),
        row.setting,
        row.repeat + 1,
        large(row.ops_per_s),
        escape(name)
    );
    for us in [mean_us, p50_us, p99_us, p999_us, p9999_us, max_us] {
        let _ = write!(page, "<td>{}</td>", large(*us));
    }
    page.push_str("</tr>\n");
}

/// The paper's abbreviations.
fn short_name(workload: &str) -> String {
    match workload {
        "overwrite" => "OW",
        "updaterandom" => "UP",
        "readwhilewriting" => "RW",
        "readrandomwriterandom" => "RRWR",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::harness::environment::Environment;

    /// Two workloads under all settings, one repeat.
    pub(crate) fn report() -> Report<RocksRow> {
        let environment = Environment {
            machine: "sample".to_owned(),
            date: "2026-11-21".to_owned(),
            clock: "native".to_owned(),
            cpus: 16,
            ..Environment::default()
        };
        let mut report = Report::new("rocksdb", environment);
        for workload in ["overwrite", "readwhilewriting"] {
            for (setting, ops_per_s, p999_us) in [
                (Setting::Flat, 90e3, 400.0),
                (Setting::Pthread, 100e3, 300.0),
                (Setting::Cfl, 150e3, 150.0),
            ] {
                let operation = |name: &str, count| Operation {
                    name: name.to_owned(),
                    count,
                    mean_us: 20.0,
                    p50_us: 10.0,
                    p99_us: 100.0,
                    p999_us,
                    p9999_us: 1000.0,
                    max_us: 5000.0,
                };
                report.rows.push(RocksRow {
                    setting,
                    workload: workload.to_owned(),
                    repeat: 0,
                    seed: 1,
                    threads: 8,
                    background: 4,
                    seconds: 10.0,
                    ops_per_s,
                    operations: vec![operation("write", 100), operation("read", 9)],
                    preload_report: Vec::new(),
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
    fn the_table_compares_with_pthread_within_80_columns() {
        let text = table(&samples::report());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let cfl = text.lines().find(|line| line.contains("cfl")).unwrap();
        let fields: Vec<&str> = cfl.split_whitespace().skip(2).collect();
        assert_eq!(fields, ["150k", "1.50", "10.0", "~100", "~150", "0.50"]);
    }

    #[test]
    fn the_sentence_says_gain_and_loss_alike() {
        assert_eq!(
            sentence(&samples::report()),
            "With CFL and background threads that give way, RocksDB's foreground has these \
             multiples of pthread's throughput and p99.9: 1.50 and 0.50 in overwrite, 1.50 and \
             0.50 in readwhilewriting."
        );
        let mut report = samples::report();
        report.rows.retain(|row| row.setting != Setting::Cfl);
        assert!(sentence(&report).contains("do not compare"));
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
