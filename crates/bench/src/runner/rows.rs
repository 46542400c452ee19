//! The rows of a run, as its cells end.
//!
//! ```text
//!   cell 2 ends ─► rows of 2        ─► raw file written anew, renamed into place
//!   cell 0 ends ─► rows of 0, 2     ─► …
//!   cell 1 ends ─► rows of 0, 1, 2  ─► …
//! ```
//!
//! Cells end in any order; rows are in the order of the cells. A run that is
//! killed loses the cells that had not ended, and nothing else. The file is
//! named by the first cell that ends and keeps its name. Rows that do not belong
//! with those there are left out and said in the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::harness::error::Error;
use crate::report::{Record, Report};

/// Where the rows of a run gather.
pub(crate) struct Rows<'a, R> {
    results: &'a Path,
    state: Mutex<State<R>>,
}

struct State<R> {
    gathered: Option<Gathered<R>>,
    /// Why rows were left out, the first time.
    refused: Option<Error>,
    /// Why the raw file lacks the last rows.
    unwritten: Option<Error>,
}

/// What there is of a run.
pub(crate) struct Gathered<R> {
    /// All rows, in the order of the cells.
    pub(crate) whole: Report<R>,
    /// The file that has them.
    pub(crate) raw: PathBuf,
    /// How many rows each cell has that is in, by its position.
    counts: BTreeMap<usize, usize>,
}

impl<R: Record> Gathered<R> {
    /// How many cells were measured.
    pub(crate) fn cells(&self) -> usize {
        self.counts.len()
    }

    fn insert(&mut self, cell: usize, report: Report<R>) -> Result<(), Error> {
        let at: usize = self.counts.range(..cell).map(|(_, count)| count).sum();
        let (count, environment) = (report.rows.len(), report.environment.clone());
        self.whole.merge(report)?;
        self.whole.rows[at..].rotate_right(count);
        // A report speaks of where its first row was measured.
        if at == 0 {
            self.whole.environment = environment;
        }
        self.counts.insert(cell, count);
        Ok(())
    }
}

impl<'a, R: Record> Rows<'a, R> {
    /// None yet; their file will be below `results`.
    pub(crate) fn new(results: &'a Path) -> Self {
        Rows {
            results,
            state: Mutex::new(State {
                gathered: None,
                refused: None,
                unwritten: None,
            }),
        }
    }

    /// Adds those of a cell, by its position, and writes the file anew.
    pub(crate) fn add(&self, cell: usize, report: Report<R>) {
        // What a panic could leave half-changed is rewritten with the next cell.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State {
            gathered,
            refused,
            unwritten,
        } = &mut *state;
        let gathered = match gathered {
            None => gathered.insert(Gathered {
                raw: report.new_raw_file(self.results),
                counts: BTreeMap::from([(cell, report.rows.len())]),
                whole: report,
            }),
            Some(gathered) => {
                if let Err(error) = gathered.insert(cell, report) {
                    refused.get_or_insert(error);
                }
                gathered
            }
        };
        *unwritten = gathered.whole.write(&gathered.raw).err();
    }

    /// What there is in the end; `None`: no cell was measured.
    ///
    /// # Errors
    /// Rows that do not belong together; a raw file that lacks rows.
    pub(crate) fn finish(self) -> Result<Option<Gathered<R>>, Error> {
        let state = self.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        match state.refused.or(state.unwritten) {
            Some(error) => Err(error),
            None => Ok(state.gathered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::environment::Environment;
    use crate::harness::figure::Figure;
    use crate::render::target::Target;
    use serde::{Deserialize, Serialize};

    /// A row that only tells which it is.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Number(u32);

    impl Record for Number {
        fn table(_: &Report<Self>) -> String {
            String::new()
        }
        fn page(_: &Report<Self>) -> String {
            String::new()
        }
        fn sentence(_: &Report<Self>) -> String {
            String::new()
        }
        fn figures(_: &Report<Self>) -> Vec<Figure> {
            Vec::new()
        }
        fn targets(_: &Report<Self>) -> Vec<Target> {
            Vec::new()
        }
    }

    fn report(cpus: u32, numbers: &[u32]) -> Report<Number> {
        let environment = Environment {
            date: "2026-11-22".to_owned(),
            machine: "here".to_owned(),
            cpus,
            ..Environment::default()
        };
        let mut report = Report::new("numbers", environment);
        report.rows.extend(numbers.iter().map(|n| Number(*n)));
        report
    }

    fn read(dir: &Path) -> Vec<u32> {
        let file = dir.join("2026-11-22-here/numbers-1.json");
        let report = Report::<Number>::read(&file).unwrap();
        report.rows.into_iter().map(|row| row.0).collect()
    }

    #[test]
    fn after_each_cell_the_file_has_all_rows_in_the_order_of_cells() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Rows::new(dir.path());
        rows.add(2, report(2, &[20, 21]));
        assert_eq!(read(dir.path()), [20, 21]);
        rows.add(0, report(8, &[1]));
        assert_eq!(read(dir.path()), [1, 20, 21]);
        rows.add(1, report(4, &[10, 11]));
        assert_eq!(read(dir.path()), [1, 10, 11, 20, 21]);
        let gathered = rows.finish().unwrap().unwrap();
        assert_eq!(gathered.cells(), 3);
        assert_eq!(gathered.whole.environment.cpus, 8, "the first cell's");
        assert!(gathered.raw.ends_with("numbers-1.json"));
        // One file, and nothing half-written beside it.
        let files = std::fs::read_dir(gathered.raw.parent().unwrap()).unwrap();
        assert_eq!(files.count(), 1);
    }

    #[test]
    fn another_run_has_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        for run in ["numbers-1.json", "numbers-2.json"] {
            let rows = Rows::new(dir.path());
            rows.add(0, report(2, &[1]));
            rows.add(1, report(2, &[2]));
            assert!(rows.finish().unwrap().unwrap().raw.ends_with(run));
        }
        assert_eq!(read(dir.path()), [1, 2]);
    }

    #[test]
    fn rows_of_another_kernel_are_left_out_and_said() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Rows::new(dir.path());
        rows.add(1, report(2, &[1]));
        let mut other = report(4, &[7]);
        other.environment.kernel = "6.1".to_owned();
        rows.add(0, other);
        rows.add(2, report(2, &[2]));
        assert_eq!(read(dir.path()), [1, 2]);
        let error = rows.finish().err().unwrap().to_string();
        assert!(error.contains("kernels"), "{error}");
    }

    #[test]
    fn rows_that_could_not_be_written_are_an_error_unless_they_are_later() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("results");
        std::fs::write(&blocked, "a file where the directory should be").unwrap();
        let rows = Rows::new(&blocked);
        rows.add(0, report(2, &[1]));
        std::fs::remove_file(&blocked).unwrap();
        rows.add(1, report(2, &[2]));
        assert_eq!(read(&blocked), [1, 2]);
        assert!(rows.finish().is_ok());
        std::fs::remove_dir_all(&blocked).unwrap();
        std::fs::write(&blocked, "again").unwrap();
        let rows = Rows::new(&blocked);
        rows.add(0, report(2, &[1]));
        assert!(rows.finish().is_err());
    }

    #[test]
    fn a_run_without_a_measured_cell_has_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Rows::<Number>::new(dir.path());
        assert!(rows.finish().unwrap().is_none());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
