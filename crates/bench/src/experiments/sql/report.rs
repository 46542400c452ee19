//! Reports of queries one at a time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::row::{EngineName, SqlRow};
use super::suite::Suite;
use crate::cell::report::numbers;
use crate::experiments::tasks::metrics::geomean;
use crate::harness::figure::Figure;
use crate::harness::number::{Spread, large};
use crate::render::canvas::{self, Group};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

impl Record for SqlRow {
    fn table(report: &Report<SqlRow>) -> String {
        table(report)
    }

    fn page(report: &Report<SqlRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<SqlRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<SqlRow>) -> Vec<Target> {
        suites(report).iter().flat_map(SuiteRows::targets).collect()
    }

    fn figures(_: &Report<SqlRow>) -> Vec<Figure> {
        Vec::new()
    }

    fn setting(&self) -> String {
        format!("{} threads", self.threads)
    }
}

/// A suite's queries with their repeats.
struct SuiteRows<'a> {
    suite: Suite,
    scale: f64,
    queries: BTreeMap<u32, BTreeMap<EngineName, Vec<&'a SqlRow>>>,
}

/// How one engine's times relate to another's, over the queries that both answer.
struct Ratio {
    geomean: f64,
    /// The worst, and its query.
    worst: (f64, u32),
    queries: usize,
}

/// In the order in which they were measured.
fn suites(report: &Report<SqlRow>) -> Vec<SuiteRows<'_>> {
    let mut suites: Vec<SuiteRows<'_>> = Vec::new();
    for row in &report.rows {
        let same = |of: &SuiteRows<'_>| (of.suite, of.scale) == (row.suite, row.scale);
        let at = suites.iter().position(same).unwrap_or_else(|| {
            suites.push(SuiteRows {
                suite: row.suite,
                scale: row.scale,
                queries: BTreeMap::new(),
            });
            suites.len() - 1
        });
        let query = suites[at].queries.entry(row.query).or_default();
        query.entry(row.engine).or_default().push(row);
    }
    suites
}

impl<'a> SuiteRows<'a> {
    fn title(&self) -> String {
        let size = match self.suite {
            Suite::ClickBench => format!("{} k rows", self.scale),
            _ => format!("scale {}", self.scale),
        };
        format!("{}, {size}", self.suite.title())
    }

    fn engines(&self) -> Vec<EngineName> {
        let has = |engine: &EngineName| self.queries.values().any(|of| of.contains_key(engine));
        EngineName::ALL.into_iter().filter(has).collect()
    }

    fn rows(&self, engine: EngineName) -> impl Iterator<Item = (u32, &Vec<&'a SqlRow>)> {
        self.queries
            .iter()
            .filter_map(move |(query, of)| Some((*query, of.get(&engine)?)))
    }

    /// The median time of a query, ms; none if the engine has no answer.
    fn ms(&self, query: u32, engine: EngineName) -> Option<f64> {
        let rows = self.queries.get(&query)?.get(&engine)?;
        // Times below the clock's step would make ratios infinite.
        let times = rows.iter().map(|row| row.ms);
        let times: Option<Vec<f64>> = times.collect();
        Some(Spread::of(times?)?.median.max(1e-3))
    }

    fn ratio(&self, of: EngineName, to: EngineName) -> Option<Ratio> {
        let ratios = self
            .queries
            .keys()
            .filter_map(|&query| Some((self.ms(query, of)? / self.ms(query, to)?, query)));
        let ratios: Vec<(f64, u32)> = ratios.collect();
        Some(Ratio {
            geomean: geomean(&Vec::from_iter(ratios.iter().map(|(ratio, _)| *ratio)))?,
            worst: ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?,
            queries: ratios.len(),
        })
    }

    /// Queries that an engine failed at, with the reason.
    fn failed(&self, engine: EngineName) -> Vec<(u32, &str)> {
        self.rows(engine)
            .filter_map(|(query, rows)| {
                let why = rows.iter().find_map(|row| row.failed.as_deref())?;
                Some((query, why))
            })
            .collect()
    }

    /// Queries whose answer is not that of the engine below.
    fn differing(&self, engine: EngineName) -> Vec<(u32, &str)> {
        self.rows(engine)
            .filter_map(|(query, rows)| Some((query, rows[0].differs.as_deref()?)))
            .collect()
    }

    fn targets(&self) -> Vec<Target> {
        use EngineName::{DataFusion, DuckDb, Giveway};
        let title = self.suite.title();
        let ratio = |to: EngineName, what: &str, bound, most: f64, of: fn(&Ratio) -> f64| {
            let measured = of(&self.ratio(Giveway, to)?);
            Some(Target {
                what: format!("{title}: {what} time of {to}'s"),
                bound,
                measured: format!("{measured:.2} x"),
                met: measured <= most,
            })
        };
        let mean = |ratio: &Ratio| ratio.geomean;
        let wanted = match self.suite {
            Suite::TpcH => vec![
                ratio(DataFusion, "mean", "at most 1.00 x", 1.0, mean),
                ratio(DuckDb, "mean", "at most 1.30 x", 1.3, mean),
            ],
            Suite::TpcDs => vec![
                ratio(DataFusion, "mean", "at most 1.10 x", 1.1, mean),
                self.lost(),
            ],
            Suite::ClickBench => vec![
                ratio(DataFusion, "mean", "at most 1.00 x", 1.0, mean),
                ratio(DuckDb, "mean", "at most 1.15 x", 1.15, mean),
                ratio(DataFusion, "worst", "at most 2.00 x", 2.0, |of| of.worst.0),
            ],
        };
        wanted.into_iter().flatten().collect()
    }

    /// Queries that DataFusion answers and ours does not.
    fn lost(&self) -> Option<Target> {
        let answered = |query: &&u32| self.ms(**query, EngineName::DataFusion).is_some();
        let answered: Vec<&u32> = self.queries.keys().filter(answered).collect();
        let of_ours = |query: &&&u32| self.ms(***query, EngineName::Giveway).is_none();
        let lost = answered.iter().filter(of_ours).count();
        (!answered.is_empty()).then(|| Target {
            what: format!("{}: failed, DataFusion not", self.suite.title()),
            bound: "0 queries",
            measured: lost.to_string(),
            met: lost == 0,
        })
    }
}

fn heading(report: &Report<SqlRow>) -> Vec<String> {
    let mut lines = vec![
        report.headline(),
        format!(
            "{} CPUs, clock {}, commit {}",
            report.environment.cpus,
            report.environment.clock,
            report.short_commit()
        ),
    ];
    if let Some(row) = report.rows.first() {
        let repeats = report.rows.iter().map(|row| row.repeat).max().unwrap_or(0) + 1;
        lines.push(format!("{} threads; {repeats} repeats", row.threads));
    }
    let versions = EngineName::ALL.into_iter().filter_map(|engine| {
        let mut rows = report.rows.iter();
        let row = rows.find(|row| row.engine == engine && !row.version.is_empty())?;
        Some(format!("{engine} {}", row.version))
    });
    lines.push(Vec::from_iter(versions).join(", "));
    lines
}

fn table(report: &Report<SqlRow>) -> String {
    let suites = suites(report);
    let mut text = heading(report).join("\n") + "\n";
    for suite in &suites {
        summary(&mut text, suite);
        queries(&mut text, suite);
    }
    text.push_str(
        "\nMedians of repeats, ms. Means of ratios are geometric, over the queries that\n\
         both engines answer.\n",
    );
    let targets = Vec::from_iter(suites.iter().flat_map(SuiteRows::targets));
    text + &target::lines("time of ours", &targets)
}

fn summary(text: &mut String, suite: &SuiteRows<'_>) {
    let _ = writeln!(text, "\n{}", suite.title());
    let engines = suite.engines();
    for (index, of) in engines.iter().enumerate() {
        for to in &engines[index + 1..] {
            if let Some(ratio) = suite.ratio(*of, *to) {
                let _ = writeln!(
                    text,
                    "  {of} over {to}: mean {:.2} x, worst {:.2} x (Q{}), {} queries",
                    ratio.geomean, ratio.worst.0, ratio.worst.1, ratio.queries
                );
            }
        }
    }
    for &engine in &engines {
        for (query, why) in suite.failed(engine) {
            wrap(text, &format!("{engine} fails at Q{query}: {why}"));
        }
    }
    for (index, &engine) in engines.iter().enumerate() {
        let others = Vec::from_iter(engines[index + 1..].iter().map(|of| of.name()));
        let differing = suite.differing(engine);
        if !differing.is_empty() {
            let queries = differing.iter().map(|(query, _)| format!("Q{query}"));
            let queries = Vec::from_iter(queries).join(" ");
            let others = others.join(" or ");
            wrap(
                text,
                &format!("{engine} answers differently from {others}: {queries}"),
            );
        }
    }
}

/// A line in lines of at most 80 characters; long ones are cut.
fn wrap(text: &mut String, line: &str) {
    let mut width = 80;
    for word in line.split(' ').take(40) {
        let word: String = word.chars().take(60).collect();
        if width + 1 + word.chars().count() > 80 {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str("  ");
            width = 2;
        } else {
            text.push(' ');
            width += 1;
        }
        width += word.chars().count();
        text.push_str(&word);
    }
    text.push('\n');
}

fn queries(text: &mut String, suite: &SuiteRows<'_>) {
    use EngineName::{DataFusion, DuckDb, Giveway};
    let _ = writeln!(
        text,
        "  {:<6} {:>9} {:>11} {:>9} {:>9} {:>9}",
        "", "giveway", "datafusion", "duckdb", "/datafus.", "/duckdb"
    );
    for &query in suite.queries.keys() {
        let ms = |engine| suite.ms(query, engine);
        let time = |engine| ms(engine).map_or("-".to_owned(), large);
        let ratio = |to| match (ms(Giveway), ms(to)) {
            (Some(of), Some(to)) => format!("{:.2}", of / to),
            _ => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "  {:<6} {:>9} {:>11} {:>9} {:>9} {:>9}",
            format!("Q{query}"),
            time(Giveway),
            time(DataFusion),
            time(DuckDb),
            ratio(DataFusion),
            ratio(DuckDb),
        );
    }
}

fn sentence(report: &Report<SqlRow>) -> String {
    let suites = suites(report);
    let said = suites.iter().filter_map(|suite| {
        let others = [EngineName::DataFusion, EngineName::DuckDb];
        let ratios = others.into_iter().filter_map(|other| {
            let ratio = suite.ratio(EngineName::Giveway, other)?;
            Some(format!("{:.2} times {other}'s", ratio.geomean))
        });
        let ratios = Vec::from_iter(ratios);
        (!ratios.is_empty()).then(|| format!("{} {}", suite.suite.title(), ratios.join(" and ")))
    });
    let said = Vec::from_iter(said);
    if said.is_empty() {
        return "These rows do not have our engine beside another one.".to_owned();
    }
    let targets = Vec::from_iter(suites.iter().flat_map(SuiteRows::targets));
    format!(
        "Queries one at a time take our engine, in the geometric mean: {}; {}.",
        said.join("; "),
        target::summary(&targets)
    )
}

fn colour(engine: EngineName) -> RGBColor {
    match engine {
        EngineName::Giveway => RGBColor(22, 108, 196),
        EngineName::DataFusion => RGBColor(120, 130, 142),
        EngineName::DuckDb => RGBColor(217, 138, 27),
    }
}

/// Queries of a plot: more cannot be read.
const PLOTTED: usize = 25;

fn html(report: &Report<SqlRow>) -> String {
    let suites = suites(report);
    let mut page = page::begin(
        &report.experiment,
        "Queries one at a time",
        &heading(report),
        &sentence(report),
    );
    let targets = Vec::from_iter(suites.iter().flat_map(SuiteRows::targets));
    target::section(&mut page, "Time of ours over theirs.", "queries", &targets);
    for suite in &suites {
        page::section(
            &mut page,
            &suite.title(),
            "Medians, ms, on a logarithmic scale; whiskers are the extremes.",
        );
        let engines = suite.engines();
        let names = engines
            .iter()
            .map(|&engine| (colour(engine), engine.name().to_owned()));
        page::legend(&mut page, names);
        let keys: Vec<u32> = suite.queries.keys().copied().collect();
        let plots = keys.chunks(PLOTTED).map(|queries| {
            let groups = queries.iter().map(|query| Group {
                label: query.to_string(),
                bars: bars(suite, *query, &engines),
            });
            let title = format!("Q{} to Q{}", queries[0], queries[queries.len() - 1]);
            canvas::bars_on(canvas::Scale::Log, &title, &Vec::from_iter(groups), None)
        });
        page::plots(&mut page, &Vec::from_iter(plots));
    }
    numbers(&mut page, &table(report));
    page::environment(
        &mut page,
        &report.environment,
        &[("Rows", report.rows.len().to_string())],
        "Files are in the machine's cache of files.",
    );
    page::end(page)
}

fn bars(suite: &SuiteRows<'_>, query: u32, engines: &[EngineName]) -> Vec<(RGBColor, Spread)> {
    let of = |engine: &EngineName| {
        let rows = suite.queries.get(&query)?.get(engine)?;
        let spread = Spread::of(rows.iter().filter_map(|row| row.ms))?;
        Some((colour(*engine), spread))
    };
    engines.iter().filter_map(of).collect()
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::harness::environment::Environment;

    fn row(suite: Suite, query: u32, engine: EngineName, repeat: u32, ms: f64) -> SqlRow {
        SqlRow {
            suite,
            scale: 1.0,
            query,
            engine,
            version: "1.0".to_owned(),
            repeat,
            threads: 2,
            ms: Some(ms),
            rows: 10,
            failed: None,
            differs: None,
        }
    }

    /// Two queries of two suites on all engines; DataFusion and ours fail at one each.
    pub(crate) fn report() -> Report<SqlRow> {
        let environment = Environment {
            machine: "sample".to_owned(),
            date: "2026-11-27".to_owned(),
            clock: "native".to_owned(),
            cpus: 2,
            ..Environment::default()
        };
        let mut report = Report::new("sql", environment);
        let times = [(1, [8.0, 4.0, 2.0]), (2, [2.0, 4.0, 4.0])];
        for suite in [Suite::TpcH, Suite::TpcDs] {
            for (query, all) in times {
                for (engine, ms) in EngineName::ALL.into_iter().zip(all) {
                    // A median of ms.
                    let repeats = [(0, ms), (1, ms * 3.0), (2, ms / 2.0)];
                    report
                        .rows
                        .extend(repeats.map(|(repeat, ms)| row(suite, query, engine, repeat, ms)));
                }
            }
        }
        let failed = |query: u32, engine| SqlRow {
            ms: None,
            failed: Some("no such function: shrug(), which is a long name for a short one".into()),
            ..row(Suite::TpcDs, query, engine, 0, 0.0)
        };
        report.rows.push(failed(3, EngineName::Giveway));
        report
            .rows
            .push(row(Suite::TpcDs, 3, EngineName::DataFusion, 0, 1.0));
        report.rows.push(failed(4, EngineName::DataFusion));
        report.rows[0].differs = Some("9 rows instead of 10".to_owned());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_geometric_means_over_what_both_answer() {
        let report = samples::report();
        let suites = suites(&report);
        let ratio = |suite: usize, to| suites[suite].ratio(EngineName::Giveway, to).unwrap();
        let of_stock = ratio(0, EngineName::DataFusion);
        // Twice and half.
        assert!((of_stock.geomean - 1.0).abs() < 1e-9);
        assert_eq!((of_stock.worst, of_stock.queries), ((2.0, 1), 2));
        let of_duckdb = ratio(1, EngineName::DuckDb);
        assert!((of_duckdb.geomean - 2f64.sqrt()).abs() < 1e-9);
        assert_eq!((of_duckdb.worst, of_duckdb.queries), ((4.0, 1), 2));
    }

    #[test]
    fn targets_count_means_and_lost_queries() {
        let report = samples::report();
        let targets = SqlRow::targets(&report);
        let met = Vec::from_iter(targets.iter().map(|of| (of.measured.as_str(), of.met)));
        assert_eq!(
            met,
            [
                ("1.00 x", true),
                ("1.41 x", false),
                ("1.00 x", true),
                ("1", false)
            ]
        );
    }

    #[test]
    fn the_table_says_failures_and_differences_within_80_columns() {
        let text = table(&samples::report());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(
            text.contains("giveway fails at Q3: no such function"),
            "{text}"
        );
        assert!(
            text.contains("giveway answers differently from datafusion or duckdb: Q1"),
            "{text}"
        );
        let line = text.lines().find(|line| line.starts_with("  Q3")).unwrap();
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(fields, ["Q3", "-", "1.00", "-", "-", "-"]);
    }

    #[test]
    fn the_sentence_says_all_ratios() {
        let text = sentence(&samples::report());
        assert!(
            text.contains("TPC-H 1.00 times datafusion's and 1.41 times duckdb's"),
            "{text}"
        );
        let mut report = samples::report();
        report.rows.retain(|row| row.engine == EngineName::Giveway);
        assert!(sentence(&report).contains("do not have"));
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
