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

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::Scheduler;
use crate::dataset::DATASET_VERSION;
use crate::files;
use crate::postgres::Installation;
use crate::report::{self, Figure};
pub use crate::row::{ClassRow, Row};
use crate::{Error, Result};

/// Where and with what the rows were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// The kernel's release, such as `7.2.13-cloud-amd64`.
    pub kernel: String,
    /// CPUs of the machine that measured, virtual or not.
    pub cpus: u32,
    /// What time is: `lockstep` (virtual time, the same for all CPUs), or
    /// `native`.
    pub clock: String,
    /// Commit of the program.
    pub commit: String,
    /// Day of the measurement, `2026-01-31`.
    pub date: String,
    /// The machine's name.
    pub machine: String,
    /// The CPU's model.
    pub cpu_model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The server's version; empty without a server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub postgresql: String,
    /// [`DATASET_VERSION`]; 0 without data.
    #[serde(skip_serializing_if = "is_zero")]
    pub dataset_version: u32,
}

impl Environment {
    /// Looks at the machine it is called on; call it where the cells run.
    /// `clock` and `commit` are the caller's to know. What cannot be found out
    /// is left empty.
    pub fn probe(clock: &str, commit: &str) -> Self {
        Environment::of(Installation::find(), clock, commit)
    }

    /// The same with a certain server.
    pub fn of(postgres: Result<Installation>, clock: &str, commit: &str) -> Self {
        Environment {
            postgresql: postgres
                .and_then(|postgres| postgres.version())
                .unwrap_or_default(),
            dataset_version: DATASET_VERSION,
            ..Environment::without_server(clock, commit)
        }
    }

    /// The same for experiments that use no database.
    pub fn without_server(clock: &str, commit: &str) -> Self {
        let line = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default();
            line.split_once(':')
                .map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal");
        let kib = kib
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse::<u64>().ok());
        Environment {
            kernel: line("/proc/sys/kernel/osrelease"),
            cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
            clock: clock.to_owned(),
            commit: commit.to_owned(),
            date: today(),
            machine: line("/proc/sys/kernel/hostname"),
            cpu_model: field("/proc/cpuinfo", "model name"),
            memory_mib: kib.unwrap_or_default() / 1024,
            ..Environment::default()
        }
    }
}

/// Whether a field is worth writing.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

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

/// The date in UTC.
fn today() -> String {
    let now = std::time::SystemTime::now();
    let seconds = now
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |age| age.as_secs());
    date((seconds / 86_400) as i64)
}

/// The date `days` after 1970-01-01, by counting whole 400-year cycles of
/// 146097 days from 0000-03-01, so that leap days come last in a year.
fn date(days: i64) -> String {
    let shifted = days + 719_468;
    let (cycle, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", year + cycle * 400 + carry)
}

/// The JSON of a part of a report.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("results are plain data")
}

/// A kind of row: what is measured, and how a report of it reads.
pub trait Record: Serialize + DeserializeOwned {
    /// Text of at most 80 columns.
    fn table(report: &Report<Self>) -> String;

    /// A self-contained page with plots.
    fn page(report: &Report<Self>) -> String;

    /// What the reader should see, in one sentence.
    fn sentence(report: &Report<Self>) -> String;

    /// What the paper has, beside these rows.
    fn figures(report: &Report<Self>) -> Vec<Figure>;

    /// What all rows of a report have in common beyond the environment, since
    /// they are compared.
    fn setting(&self) -> String {
        String::new()
    }
}

/// A kind of row that is a cell of a database workload, as [`crate::run_cell`]
/// measures it.
pub trait CellRecord: Record + From<Row> {
    /// The experiment that has such rows.
    const EXPERIMENT: &'static str;

    /// The cell.
    fn cell(&self) -> &Row;
}

impl CellRecord for Row {
    const EXPERIMENT: &'static str = "mixed";

    fn cell(&self) -> &Row {
        self
    }
}

/// Declares the rows of an experiment whose cells are of the usual kind, and
/// whose reports are another.
macro_rules! cell_rows {
    ($(#[$doc:meta])* $name:ident, $experiment:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $crate::Row);

        impl From<$crate::Row> for $name {
            fn from(row: $crate::Row) -> Self {
                $name(row)
            }
        }

        impl $crate::CellRecord for $name {
            const EXPERIMENT: &'static str = $experiment;

            fn cell(&self) -> &$crate::Row {
                &self.0
            }
        }
    };
}
pub(crate) use cell_rows;

/// A cell without a row, because a scheduler that is not ours did not load, ended,
/// or was thrown out by the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The cell, as progress lines name it.
    pub cell: String,
    /// What happened, and the last lines that it printed.
    pub reason: String,
}

/// All rows of an experiment in one environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report<R = Row> {
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

impl Report {
    /// The same cells as rows of another experiment.
    pub fn of_kind<R: CellRecord>(self) -> Report<R> {
        Report {
            experiment: R::EXPERIMENT.to_owned(),
            environment: self.environment,
            rows: self.rows.into_iter().map(R::from).collect(),
            outages: self.outages,
        }
    }
}

impl<R: Record> Report<R> {
    /// A report without rows.
    pub fn new(experiment: &str, environment: Environment) -> Self {
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
    pub fn add(&mut self, scheduler: &Scheduler, cell: String, measured: Result<R>) -> Result<()> {
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
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).map_err(Error::file("read", path))?;
        serde_json::from_slice(&text).map_err(|error| Error::Results {
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Text of at most 80 columns.
    pub fn table(&self) -> String {
        R::table(self) + &report::outages::lines(&self.outages)
    }

    /// A self-contained page with plots.
    pub fn page(&self) -> String {
        report::outages::on_page(R::page(self), &self.outages)
    }

    /// What the reader should see, in one sentence.
    pub fn sentence(&self) -> String {
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
    pub fn write(&self, path: &Path) -> Result<()> {
        files::replace(path, self.to_json().as_bytes())
    }

    /// Adds the rows of another run. Runs of another experiment, kernel, clock,
    /// commit, server or data are refused: their rows would not be comparable.
    pub fn merge(&mut self, other: Self) -> Result<()> {
        let (ours, theirs) = (&self.environment, &other.environment);
        let setting = |report: &Self| report.rows.first().map(R::setting);
        // A report without rows fits every setting.
        let of_ours = setting(self).or(setting(&other)).unwrap_or_default();
        let of_theirs = setting(&other).unwrap_or_else(|| of_ours.clone());
        let properties = [
            ("settings", &of_ours, &of_theirs),
            ("experiments", &self.experiment, &other.experiment),
            ("kernels", &ours.kernel, &theirs.kernel),
            ("clocks", &ours.clock, &theirs.clock),
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
    pub fn new_raw_file(&self, results_dir: &Path) -> PathBuf {
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
    use crate::report::mixed::samples;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_778), "2026-11-21");
        assert_eq!(date(47_540), "2100-02-28");
        assert_eq!(date(47_541), "2100-03-01");
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
        let mut report: Report = Report::new("mixed", Environment::default());
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
