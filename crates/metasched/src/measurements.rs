//! The measurement file: what each application does under each scheduler.
//!
//! The paper collects throughput and 99 % tail latency of every application
//! under every scheduler and has policies decide by them (sections 2.2, 3.2).
//! Here that is a file, JSON, written by `giveway meta measure` and read by
//! everything else, so that a pipeline can make it on one machine and ship it to
//! others. It holds the single runs, not their summary, so that readers can judge the
//! spread.
//!
//! ```text
//! Measurements ─ version, machine, clock
//!   cells: application × scheduler × alone | together
//!     runs:   throughput_per_s, p99_s               one per repetition
//!     faults: repetition, blame, what               what happened instead
//!   swaps: scheduler ─ start_s, stop_s              what coming and going took
//! ```
//!
//! Numbered invariants. [`Measurements::read`] refuses a file that breaks one, since
//! files come from other machines; `giveway meta measure` asserts them where it makes
//! what they are about:
//!
//! - **M1** No cell is there twice (asserted in `cell_mut`).
//! - **M2** Every number is finite and above 0 (asserted in `measure`).
//! - **M3** The version is this program's (not asserted: `new` alone sets it).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use giveway_machine::files;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The version of the file's form.
pub const VERSION: u32 = 1;

/// Everything measured on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    /// The file's form: [`VERSION`].
    pub version: u32,
    /// Where it was measured.
    pub machine: MachineNote,
    /// One per application, scheduler and company.
    pub cells: Vec<Cell>,
    /// What coming and going took, by scheduler.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub swaps: BTreeMap<String, Swap>,
}

/// What a scheduler's coming and going took, once per repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// From the start of its process to its being in force, seconds.
    pub start_s: Vec<f64>,
    /// From asking it to end to nothing being loaded, seconds.
    pub stop_s: Vec<f64>,
}

/// Where something was measured; for the reader, nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineNote {
    /// The kernel's release.
    pub kernel: String,
    /// Processors that were online.
    pub cpus: usize,
    /// Seconds since 1970.
    pub unix_time_s: u64,
    /// The clock of its seconds: `native`, or the clock of the lab's guest.
    pub clock: String,
}

/// In what company an application was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Company {
    /// The others at rest.
    Alone,
    /// All applications at once.
    Together,
}

/// One application under one scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The application's name, or that of what drives all of them at once.
    pub application: String,
    /// The scheduler's name.
    pub scheduler: String,
    /// With the others or without.
    pub company: Company,
    /// The runs that ended as they should.
    pub runs: Vec<Reading>,
    /// The runs that did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultNote>,
}

/// What one run of a benchmark says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Requests, transactions or whatever the application counts, per second.
    pub throughput_per_s: f64,
    /// The 99th percentile of latency, seconds.
    pub p99_s: f64,
}

/// A run without a reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultNote {
    /// Which repetition, from 0.
    pub repetition: usize,
    /// What is at fault.
    pub blame: Blame,
    /// What happened, in words.
    pub what: String,
}

/// What kept a run from its reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// It did not load, stalled, crashed or was thrown out. No policy chooses it.
    Scheduler,
    /// The benchmark failed or took too long. Under a scheduler that starves it,
    /// it does so through no fault of its own, but nothing tells these apart.
    Application,
}

/// Median and spread of some runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the middle two.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// How many.
    pub runs: usize,
}

impl Spread {
    /// Of these values; none of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[half],
            _ => f64::midpoint(values[half - 1], values[half]),
        };
        Some(Spread {
            median,
            min,
            max,
            runs: values.len(),
        })
    }

    /// Half the distance from lowest to highest, as a share of the median.
    pub fn relative(&self) -> f64 {
        (self.max - self.min) / 2.0 / self.median
    }
}

impl Reading {
    /// Whether M2 holds.
    pub(crate) fn is_sound(&self) -> bool {
        let sound = |value: f64| value.is_finite() && value > 0.0;
        sound(self.throughput_per_s) && sound(self.p99_s)
    }
}

impl Cell {
    /// Throughput over the runs, per second.
    pub fn throughput(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.throughput_per_s))
    }

    /// 99 % tail latency over the runs, seconds.
    pub fn p99(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.p99_s))
    }

    /// Both medians; nothing of no runs.
    pub fn medians(&self) -> Option<Reading> {
        Some(Reading {
            throughput_per_s: self.throughput()?.median,
            p99_s: self.p99()?.median,
        })
    }
}

impl Measurements {
    /// Nothing measured yet.
    pub fn new(machine: MachineNote) -> Measurements {
        Measurements {
            version: VERSION,
            machine,
            cells: Vec::new(),
            swaps: BTreeMap::new(),
        }
    }

    /// The applications that were measured alone, in the order of the file: what
    /// drives all of them at once is none of them.
    pub fn applications(&self) -> Vec<&str> {
        let alone = self.cells.iter().filter(|c| c.company == Company::Alone);
        distinct(alone.map(|cell| cell.application.as_str()))
    }

    /// The schedulers, in the order of the file.
    pub fn schedulers(&self) -> Vec<&str> {
        distinct(self.cells.iter().map(|cell| cell.scheduler.as_str()))
    }

    /// Whether this scheduler misbehaved in any run.
    pub fn has_misbehaved(&self, scheduler: &str) -> bool {
        let mut cells = self.cells.iter().filter(|cell| cell.scheduler == scheduler);
        cells.any(|cell| {
            cell.faults
                .iter()
                .any(|fault| fault.blame == Blame::Scheduler)
        })
    }

    /// What was measured of this application under this scheduler.
    pub fn cell(&self, application: &str, scheduler: &str, company: Company) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.is(application, scheduler, company))
    }

    /// The cell to add to; made if it is not there.
    pub fn cell_mut(&mut self, application: &str, scheduler: &str, company: Company) -> &mut Cell {
        let found = self
            .cells
            .iter()
            .position(|cell| cell.is(application, scheduler, company));
        let index = found.unwrap_or_else(|| {
            self.cells.push(Cell {
                application: application.to_owned(),
                scheduler: scheduler.to_owned(),
                company,
                runs: Vec::new(),
                faults: Vec::new(),
            });
            self.cells.len() - 1
        });
        let same = |cell: &&Cell| cell.is(application, scheduler, company);
        debug_assert_eq!(
            self.cells.iter().filter(same).count(),
            1,
            "M1: {application} under {scheduler}"
        );
        &mut self.cells[index]
    }

    /// What a swap between schedulers takes: the slowest start after the slowest
    /// stop, by the medians of each scheduler. Nothing if none was measured.
    pub fn swap(&self) -> Duration {
        let slowest = |of: &dyn Fn(&Swap) -> &[f64]| {
            let spreads = self.swaps.values();
            let medians = spreads.filter_map(|swap| Spread::of(of(swap).iter().copied()));
            medians.map(|spread| spread.median).fold(0.0, f64::max)
        };
        let s = slowest(&|swap| &swap.start_s) + slowest(&|swap| &swap.stop_s);
        Duration::try_from_secs_f64(s).unwrap_or_default()
    }

    /// Reads a file and checks M1 to M3.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read, [`Error::Content`] if it is not
    /// what [`write`](Self::write) leaves.
    pub fn read(path: &Path) -> Result<Measurements> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        let measurements: Measurements =
            serde_json::from_str(&text).map_err(|error| Error::content(path, error))?;
        match measurements.complaint() {
            Some(what) => Err(Error::content(path, what)),
            None => Ok(measurements),
        }
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).expect("numbers and names are JSON");
        text.push('\n');
        files::replace(path, text.as_bytes()).map_err(Error::file("write", path))
    }

    fn complaint(&self) -> Option<String> {
        if self.version != VERSION {
            return Some(format!(
                "the file has version {}, this program reads {VERSION}; measure again",
                self.version
            ));
        }
        for (index, cell) in self.cells.iter().enumerate() {
            let what = format!("{} under {}", cell.application, cell.scheduler);
            let before = &self.cells[..index];
            if before
                .iter()
                .any(|b| b.is(&cell.application, &cell.scheduler, cell.company))
            {
                return Some(format!("{what} is there twice; remove one"));
            }
            if !cell.runs.iter().all(Reading::is_sound) {
                return Some(format!("{what} has a number that is not above 0"));
            }
        }
        None
    }
}

impl Cell {
    fn is(&self, application: &str, scheduler: &str, company: Company) -> bool {
        self.application == application && self.scheduler == scheduler && self.company == company
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measurements {
        let mut all = Measurements::new(MachineNote::default());
        for throughput_per_s in [30.0, 10.0, 20.0] {
            all.cell_mut("web", "eevdf", Company::Alone)
                .runs
                .push(Reading {
                    throughput_per_s,
                    p99_s: 0.5 / throughput_per_s,
                });
        }
        all.cell_mut("web", "scx_x", Company::Alone)
            .faults
            .push(FaultNote {
                repetition: 0,
                blame: Blame::Scheduler,
                what: "thrown out".into(),
            });
        all
    }

    #[test]
    fn what_was_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.json");
        let all = measured();
        all.write(&path).unwrap();
        assert_eq!(Measurements::read(&path).unwrap(), all);
        assert_eq!(all.applications(), ["web"]);
        assert_eq!(all.schedulers(), ["eevdf", "scx_x"]);
    }

    #[test]
    fn a_file_that_breaks_an_invariant_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.json");
        let refused = |break_it: &dyn Fn(&mut Measurements), says: &str| {
            let mut all = measured();
            break_it(&mut all);
            all.write(&path).unwrap();
            let error = Measurements::read(&path).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        refused(&|all| all.cells.push(all.cells[0].clone()), "twice");
        refused(&|all| all.cells[0].runs[0].p99_s = 0.0, "above 0");
        refused(&|all| all.cells[0].runs[0].p99_s = -1.0, "above 0");
        refused(&|all| all.version = 2, "measure again");
        fs::write(&path, "{").unwrap();
        assert!(Measurements::read(&path).is_err());
        assert!(Measurements::read(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_swap_takes_the_slowest_stop_and_the_slowest_start() {
        let mut all = measured();
        assert_eq!(all.swap(), Duration::ZERO);
        for (name, start_s, stop_s) in [("x", 0.1, 0.02), ("y", 0.05, 0.03)] {
            let swap = Swap {
                start_s: vec![start_s, 9.0, start_s],
                stop_s: vec![stop_s],
            };
            all.swaps.insert(name.into(), swap);
        }
        assert_eq!(all.swap(), Duration::from_millis(130));
    }

    #[test]
    fn the_spread_is_of_the_runs() {
        let all = measured();
        let cell = all.cell("web", "eevdf", Company::Alone).unwrap();
        let spread = cell.throughput().unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (20.0, 10.0, 30.0));
        assert_eq!(spread.relative(), 0.5);
        assert_eq!(cell.p99().unwrap().median, 0.025);
        assert_eq!(Spread::of([1.0, 2.0, 4.0, 8.0]).unwrap().median, 3.0);
        assert!(all.has_misbehaved("scx_x") && !all.has_misbehaved("eevdf"));
        let empty = all.cell("web", "scx_x", Company::Alone).unwrap();
        assert_eq!(empty.throughput(), None);
        assert!(all.cell("web", "eevdf", Company::Together).is_none());
    }

    #[test]
    fn shared_benchmark_is_no_application() {
        let mut all = measured();
        all.cell_mut("shop", "eevdf", Company::Together);
        assert_eq!(all.applications(), ["web"]);
    }
}
