//! Results as they are stored: one JSON file per run, from which every table
//! and report is made.
//!
//! ```text
//! {"experiment": "mixed",
//!  "environment": {"kernel", "cpus", "clock", "commit", …},
//!  "rows": [{"scheduler", "mix", "ts_tps", "ts_p95_ms", "bg_per_s", …}],
//!  "outages": [{"scheduler", "cell", "reason"}]}
//! ```
//!
//! A row is one cell; what it holds depends on the experiment ([`Record`]).
//! Numbers that a mix does not have are null. A cell whose scheduler failed has
//! an outage in place of a row; without any the list is left out. Rows of several runs may be
//! merged when they come from the same environment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::harness::files;
mod any;
mod outages;

pub(crate) use any::AnyReport;

use crate::harness::environment::Environment;
use crate::harness::error::{Error, Result};
use crate::harness::figure::Figure;
use crate::harness::scheduler::Scheduler;
use crate::render::target::Target;

impl<R> Report<R> {
    /// The first line of every heading: what, where and when.
    pub(crate) fn headline(&self) -> String {
        let Environment {
            kernel,
            date,
            machine,
            ..
        } = &self.environment;
        format!("{} on {machine}, {date}: Linux {kernel}", self.experiment)
    }

    /// The beginning of the commit, as long as it is shown.
    pub(crate) fn short_commit(&self) -> String {
        self.environment.commit.chars().take(12).collect()
    }
}

/// The JSON of a part of a report.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("results are plain data")
}

/// A kind of row: what is measured, and how a report of it reads.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// Text of at most 80 columns.
    fn table(report: &Report<Self>) -> String;

    /// A self-contained page with plots.
    fn page(report: &Report<Self>) -> String;

    /// What the reader should see, in one sentence.
    fn sentence(report: &Report<Self>) -> String;

    /// What the paper has, beside these rows.
    fn figures(report: &Report<Self>) -> Vec<Figure>;

    /// What is wanted, as far as the rows say something about it.
    fn targets(report: &Report<Self>) -> Vec<Target>;

    /// What all rows of a report have in common beyond the environment, since
    /// they are compared.
    fn setting(&self) -> String {
        String::new()
    }
}

/// A cell without a row, because a scheduler that is not ours did not load, ended,
/// or was thrown out by the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outage {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The cell, as progress lines name it.
    pub cell: String,
    /// What happened, and the last lines that it printed.
    pub reason: String,
}

/// All rows of an experiment in one environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report<R> {
    /// The experiment's name.
    pub experiment: String,
    /// Where the rows come from.
    pub environment: Environment,
    /// The rows, in the order in which they were measured.
    pub rows: Vec<R>,
    /// Cells whose schedulers failed.
    #[serde(default)]
    pub outages: Vec<Outage>,
}

/// How often everything was measured, where each row has a key that repeats share: the
/// least and the most.
pub(crate) fn repeats_said<K: Ord>(keys: impl IntoIterator<Item = K>) -> String {
    let mut rows: BTreeMap<K, usize> = BTreeMap::new();
    for key in keys {
        *rows.entry(key).or_default() += 1;
    }
    let least = rows.values().min().unwrap_or(&0);
    let most = rows.values().max().unwrap_or(&0);
    match least == most {
        true => most.to_string(),
        false => format!("{least} to {most}"),
    }
}

impl<R: Record> Report<R> {
    /// A report without rows.
    pub(crate) fn new(experiment: &str, environment: Environment) -> Self {
        Report {
            experiment: experiment.to_owned(),
            environment,
            rows: Vec::new(),
            outages: Vec::new(),
        }
    }

    /// Adds what came of a cell: its row, or that its scheduler failed. UFS is
    /// ours: its failure is the cell's.
    ///
    /// # Errors
    /// A cell that could not be measured.
    pub(crate) fn add(
        &mut self,
        scheduler: &Scheduler,
        cell: String,
        measured: Result<R>,
    ) -> Result<()> {
        match (measured, scheduler) {
            (Ok(row), _) => self.rows.push(row),
            (Err(Error::Scheduler { reason, output, .. }), Scheduler::Scx(_)) => {
                self.outages.push(Outage {
                    scheduler: scheduler.clone(),
                    cell,
                    reason: format!("{reason}\n{output}").trim_end().to_owned(),
                });
            }
            (Err(error), _) => return Err(error),
        }
        Ok(())
    }

    /// Reads a results file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).map_err(Error::file("read", path))?;
        serde_json::from_slice(&text).map_err(|error| Error::Results {
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Text of at most 80 columns.
    pub(crate) fn table(&self) -> String {
        R::table(self) + &outages::lines(&self.outages)
    }

    /// A self-contained page with plots.
    pub(crate) fn page(&self) -> String {
        outages::on_page(R::page(self), &self.outages)
    }

    /// What the reader should see, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        R::sentence(self)
    }

    /// The file's text, with one row a line.
    fn to_json(&self) -> String {
        let list = |items: Vec<String>| format!("[\n  {}\n]", items.join(",\n  "));
        let mut text = format!(
            "{{\"experiment\": {},\n\"environment\": {},\n\"rows\": {}",
            json(&self.experiment),
            json(&self.environment),
            list(self.rows.iter().map(json).collect())
        );
        if !self.outages.is_empty() {
            let outages = list(self.outages.iter().map(json).collect());
            text += &format!(",\n\"outages\": {outages}");
        }
        text + "}\n"
    }

    /// Writes a results file, replacing it at once.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        files::replace(path, self.to_json().as_bytes())
    }

    /// Adds the rows of another run. Runs of another experiment, kernel, clock,
    /// commit, server or data are refused: their rows would not be comparable.
    pub(crate) fn merge(&mut self, other: Self) -> Result<()> {
        let (ours, theirs) = (&self.environment, &other.environment);
        let setting = |report: &Self| report.rows.first().map(R::setting);
        // A report without rows fits every setting.
        let of_ours = setting(self).or(setting(&other)).unwrap_or_default();
        let of_theirs = setting(&other).unwrap_or_else(|| of_ours.clone());
        let quantum = |of: &Environment| of.provenance.quantum_ns.to_string();
        let causal = |of: &Environment| of.provenance.causal.to_string();
        let properties = [
            ("settings", &of_ours, &of_theirs),
            ("experiments", &self.experiment, &other.experiment),
            ("kernels", &ours.kernel, &theirs.kernel),
            ("clocks", &ours.clock, &theirs.clock),
            ("quanta", &quantum(ours), &quantum(theirs)),
            ("causality", &causal(ours), &causal(theirs)),
            (
                "cost models",
                &ours.provenance.costs,
                &theirs.provenance.costs,
            ),
            ("commits", &ours.commit, &theirs.commit),
            ("PostgreSQL versions", &ours.postgresql, &theirs.postgresql),
            (
                "data",
                &ours.dataset_version.to_string(),
                &theirs.dataset_version.to_string(),
            ),
        ];
        for (what, left, right) in properties {
            if left != right {
                return Err(Error::Mixed {
                    what,
                    left: left.clone(),
                    right: right.clone(),
                });
            }
        }
        self.rows.extend(other.rows);
        self.outages.extend(other.outages);
        Ok(())
    }

    /// Where raw rows belong: a file that is not there yet, in
    /// `results_dir/<date>-<machine>/`.
    pub(crate) fn new_raw_file(&self, results_dir: &Path) -> PathBuf {
        let Environment { date, machine, .. } = &self.environment;
        let dir = results_dir.join(format!("{date}-{machine}"));
        let of_number = |number: u32| dir.join(format!("{}-{number}.json", self.experiment));
        let mut files = (1..).map(of_number);
        let free = files.find(|file| !file.exists());
        free.expect("a directory has fewer files than there are numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::row::Row;
    use crate::experiments::mixed::report::samples;

    #[test]
    fn what_was_measured_less_often_is_told() {
        assert_eq!(repeats_said(["rr", "ufs", "rr", "ufs"]), "2");
        assert_eq!(repeats_said(["rr", "ufs", "ufs", "ufs"]), "1 to 3");
        assert_eq!(repeats_said([""; 0]), "0");
    }

    #[test]
    fn a_report_survives_its_file_and_has_the_schema() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/report.json");
        let report = samples::report();
        report.write(&path).unwrap();
        assert!(Report::<Row>::read(&path).unwrap() == report);
        let json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(json["experiment"], "mixed");
        for key in ["kernel", "cpus", "clock", "commit"] {
            assert!(json["environment"].get(key).is_some(), "{key}");
        }
        for key in [
            "scheduler",
            "mix",
            "ts_tps",
            "ts_mean_ms",
            "ts_p50_ms",
            "ts_p95_ms",
            "ts_p99_ms",
            "bg_per_s",
            "busy_fraction",
            "repeat",
        ] {
            assert!(json["rows"][0].get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn a_scheduler_that_failed_is_kept_and_ufs_must_not() {
        let failure = |name: &str| Error::Scheduler {
            name: name.to_owned(),
            reason: "no longer in force".to_owned(),
            output: "runnable task stall".to_owned(),
        };
        let lavd = Scheduler::Scx("scx_lavd".to_owned());
        let mut report: Report<Row> = Report::new("mixed", Environment::default());
        let cell = || "MIN:MAX under LAVD, repeat 1".to_owned();
        report.add(&lavd, cell(), Err(failure("scx_lavd"))).unwrap();
        let error = report.add(&Scheduler::Ufs, cell(), Err(failure("scx_ufs")));
        assert!(error.is_err());
        let other = Error::Config("no cgroups".to_owned());
        assert!(report.add(&lavd, cell(), Err(other)).is_err());

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        let mut whole = samples::report();
        whole.environment = Environment::default();
        whole.merge(report).unwrap();
        whole.write(&path).unwrap();
        let read = Report::<Row>::read(&path).unwrap();
        assert!(read == whole);
        assert_eq!(
            read.outages[0].reason,
            "no longer in force\nrunnable task stall"
        );
        let told = "  MIN:MAX under LAVD, repeat 1: no longer in force";
        assert!(
            read.table().lines().any(|line| line == told),
            "{}",
            read.table()
        );
        assert!(read.page().contains("runnable task stall"));
        assert!(read.page().ends_with("</html>\n"));
    }

    #[test]
    fn a_file_that_is_no_report_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        fs::write(&path, "{\"experiment\": 5}").unwrap();
        let error = Report::<Row>::read(&path).unwrap_err().to_string();
        assert!(error.contains("x.json"), "{error}");
    }

    #[test]
    fn only_comparable_rows_are_merged() {
        let mut report = samples::report();
        let count = report.rows.len();
        report.merge(samples::report()).unwrap();
        assert_eq!(report.rows.len(), 2 * count);
        let mut other = samples::report();
        other.environment.clock = "native".to_owned();
        let error = report.merge(other).unwrap_err().to_string();
        assert!(
            error.contains("clocks") && error.contains("native"),
            "{error}"
        );
        let mut other = samples::report();
        other.environment.provenance.costs = "model-1".to_owned();
        let error = report.merge(other).unwrap_err().to_string();
        assert!(error.contains("cost models"), "{error}");
        let mut other = samples::report();
        other.rows[0].network_us = 100;
        let error = report.merge(other).unwrap_err().to_string();
        assert!(error.contains("a network of 100 us"), "{error}");
        assert_eq!(report.rows.len(), 2 * count);
    }

    #[test]
    fn raw_rows_are_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let report = samples::report();
        let paths = [1, 2].map(|_| {
            let path = report.new_raw_file(dir.path());
            report.write(&path).unwrap();
            path
        });
        assert_ne!(paths[0], paths[1]);
        assert!(paths.iter().all(|path| path.exists()));
        assert!(paths[0].parent().unwrap().ends_with("2026-11-21-sample"));
    }
}
