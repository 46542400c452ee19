//! All tables as Parquet files, written in parallel, whole or absent.
//!
//! ```text
//!   DIR/lineitem/part-01-of-04.parquet      about 1.5 million rows each
//!   DIR/lineitem/.partial-part-02-of-04     being written
//!   DIR/nation/part-1-of-1.parquet
//! ```
//!
//! Large tables are cut into parts, so that threads share them and an interrupted
//! run has little to do again. Threads take parts from one list, the longest
//! first.
//!
//! Invariants:
//!
//! 1. A file under its final name is complete: it is written under another name,
//!    synced to disk, and renamed. (asserted in `write`: its footer can be read and
//!    says what it is)
//! 2. A file under its final name says in its footer what it is (`giveway.tpch`),
//!    and is kept if that is what is wanted. A file that says something else, or
//!    nothing, is never changed: it may belong to another program.
//!    (checked in `keep` and `clear`, which return an error)
//! 3. A partly written file is removed, by the run that wrote it or by the next one.
//!    (not asserted: a run that is killed leaves its files)
//!
//! Known weakness: two runs into one directory at the same time write everything
//! twice, and the last rename wins; the files are the same.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::metadata::KeyValue;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};

use super::{Part, Scale, Table, TpchError};

/// Rows of a file, about.
const PART_ROWS: u64 = 1_500_000;
/// Rows of a row group: what a scan takes at a time, so not too many.
const GROUP_ROWS: usize = 131_072;
/// Where the footer says what a file is.
const KEY: &str = "giveway.tpch";
/// What the name of a file that is being written begins with.
const PARTIAL: &str = ".partial-";

/// A TPC-H data set in a directory, to be written.
#[derive(Clone, Debug)]
pub struct Dataset {
    dir: PathBuf,
    scale: Scale,
    threads: usize,
}

/// How far the writing is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Rows written or found.
    pub rows: u64,
    /// Rows there will be, within a few in a thousand.
    pub rows_total: u64,
}

/// What [`Dataset::write`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Files written.
    pub files: usize,
    /// Files that were there already.
    pub files_kept: usize,
    /// Rows in all files.
    pub rows: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// A file to be written.
#[derive(Clone, Copy, Debug)]
struct Job {
    table: Table,
    part: Part,
}

impl Dataset {
    /// The data set of this scale factor, to be written into `dir` by one thread.
    pub fn new(dir: impl Into<PathBuf>, scale: Scale) -> Dataset {
        Dataset {
            dir: dir.into(),
            scale,
            threads: 1,
        }
    }

    /// Lets so many threads write, at least one.
    pub fn threads(mut self, threads: usize) -> Dataset {
        self.threads = threads.max(1);
        self
    }

    /// Writes what is not there yet, and tells `progress` after every batch. Ends
    /// early with [`TpchError::Interrupted`] once `stop` is set; files that are
    /// whole then stay.
    pub fn write(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
        stop: &AtomicBool,
    ) -> Result<Written, TpchError> {
        let jobs = self.jobs();
        for table in Table::ALL {
            self.clear(table, &jobs)?;
        }
        let run = Run {
            dataset: self,
            jobs: &jobs,
            next: AtomicUsize::new(0),
            rows: AtomicU64::new(0),
            rows_total: Table::ALL.iter().map(|table| table.rows(self.scale)).sum(),
            progress,
            stop,
            failed: AtomicBool::new(false),
            outcome: Mutex::new(Ok(Written::default())),
        };
        thread::scope(|scope| {
            for _ in 0..self.threads.min(jobs.len()) {
                scope.spawn(|| run.work());
            }
        });
        run.outcome
            .into_inner()
            .expect("a writer that panics ends the scope")
    }

    /// What is to be written, the longest first.
    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for table in Table::ALL.into_iter().rev() {
            // Lines are drawn per order: parts of both are as many.
            let of = table.rows(self.scale).div_ceil(PART_ROWS).max(1);
            let of = i32::try_from(of).expect("the largest scale has 400 000 parts");
            jobs.extend((1..=of).map(|number| Job {
                table,
                part: Part { number, of },
            }));
        }
        jobs
    }

    /// Makes the table's directory, removes what was partly written, and refuses
    /// files that are not of this data set, which a scan would read along.
    fn clear(&self, table: Table, jobs: &[Job]) -> Result<(), TpchError> {
        let dir = self.dir.join(table.name());
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: std::io::Error| TpchError::Write {
                path,
                source: source.into(),
            }
        };
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        for entry in fs::read_dir(&dir).map_err(failed(&dir))? {
            let path = entry.map_err(failed(&dir))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(PARTIAL) {
                fs::remove_file(&path).map_err(failed(&path))?;
            } else if !jobs.iter().any(|job| self.path(*job) == path) {
                return Err(TpchError::Occupied {
                    found: found(&path).unwrap_or("something else".into()),
                    path,
                });
            }
        }
        Ok(())
    }

    fn path(&self, job: Job) -> PathBuf {
        let Part { number, of } = job.part;
        let width = of.to_string().len();
        let name = format!("part-{number:0width$}-of-{of}.parquet");
        self.dir.join(job.table.name()).join(name)
    }

    /// What the footer of a job's file says.
    fn label(&self, job: Job) -> String {
        let Part { number, of } = job.part;
        format!("{} {number}/{of} at scale factor {}", job.table, self.scale)
    }
}

/// What a Parquet file says it is; `None` if it says nothing, or is none.
fn found(path: &Path) -> Option<String> {
    let reader = SerializedFileReader::new(File::open(path).ok()?).ok()?;
    let pairs = reader.metadata().file_metadata().key_value_metadata()?;
    let pair = pairs.iter().find(|pair| pair.key == KEY)?;
    pair.value.clone()
}

/// One call of `write`, shared by its threads.
struct Run<'a> {
    dataset: &'a Dataset,
    jobs: &'a [Job],
    /// The next job nobody has taken.
    next: AtomicUsize,
    rows: AtomicU64,
    rows_total: u64,
    progress: &'a (dyn Fn(Progress) + Sync),
    stop: &'a AtomicBool,
    /// Some thread has failed, so the others need not go on.
    failed: AtomicBool,
    outcome: Mutex<Result<Written, TpchError>>,
}

impl Run<'_> {
    fn work(&self) {
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let done = self.keep(*job).and_then(|kept| match kept {
                Some(kept) => Ok(kept),
                None => self.write(*job),
            });
            let mut outcome = self
                .outcome
                .lock()
                .expect("nobody panics while adding numbers");
            match (done, outcome.as_mut()) {
                (Ok(done), Ok(sum)) => sum.add(done),
                (Ok(_), Err(_)) => return,
                // The first reason counts: the others follow from it.
                (Err(error), Ok(_)) => {
                    *outcome = Err(error);
                    self.failed.store(true, Ordering::Relaxed);
                    return;
                }
                (Err(_), Err(_)) => return,
            }
        }
    }

    /// A file that is there already, if it is the one that is wanted (invariant 2).
    fn keep(&self, job: Job) -> Result<Option<Written>, TpchError> {
        let path = self.dataset.path(job);
        let Ok(attributes) = fs::metadata(&path) else {
            return Ok(None);
        };
        let found = found(&path);
        if found.as_ref() != Some(&self.dataset.label(job)) {
            return Err(TpchError::Occupied {
                path,
                found: found.unwrap_or("something else".into()),
            });
        }
        let rows = File::open(&path)
            .ok()
            .and_then(|file| SerializedFileReader::new(file).ok())
            .map_or(0, |reader| {
                reader.metadata().file_metadata().num_rows() as u64
            });
        self.advance(rows);
        Ok(Some(Written {
            files_kept: 1,
            rows,
            bytes: attributes.len(),
            ..Written::default()
        }))
    }

    fn write(&self, job: Job) -> Result<Written, TpchError> {
        let path = self.dataset.path(job);
        let name = path.file_name().expect("a job's path has a name");
        let aside = path.with_file_name(format!("{PARTIAL}{}", name.to_string_lossy()));
        let written = self.write_aside(job, &aside).and_then(|written| {
            debug_assert_eq!(
                found(&aside),
                Some(self.dataset.label(job)),
                "invariant 1: the footer of a complete file"
            );
            fs::rename(&aside, &path)?;
            Ok(written)
        });
        written.map_err(|source| {
            // The reason is what counts; the next run removes what stays (invariant 3).
            let _ = fs::remove_file(&aside);
            match source.downcast::<TpchError>() {
                Ok(ours) => *ours,
                Err(source) => TpchError::Write { path, source },
            }
        })
    }

    fn write_aside(&self, job: Job, aside: &Path) -> Result<Written, Box<dyn Error + Send + Sync>> {
        let label = KeyValue::new(KEY.to_owned(), self.dataset.label(job));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_key_value_metadata(Some(vec![label]))
            .build();
        let file = File::create(aside)?;
        let mut writer = ArrowWriter::try_new(file, job.table.schema(), Some(properties))?;
        let mut rows = 0;
        for batch in job.table.part(self.dataset.scale, job.part) {
            if self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed) {
                return Err(Box::new(TpchError::Interrupted));
            }
            writer.write(&batch)?;
            rows += batch.num_rows() as u64;
            self.advance(batch.num_rows() as u64);
        }
        writer.finish()?;
        let file = writer.inner();
        file.sync_all()?;
        Ok(Written {
            files: 1,
            rows,
            bytes: file.metadata()?.len(),
            ..Written::default()
        })
    }

    fn advance(&self, rows: u64) {
        let rows = self.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        (self.progress)(Progress {
            rows,
            rows_total: self.rows_total,
        });
    }
}

impl Written {
    fn add(&mut self, other: Written) {
        self.files += other.files;
        self.files_kept += other.files_kept;
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(dir: &Path, scale: f64) -> Dataset {
        Dataset::new(dir, Scale::new(scale).unwrap()).threads(2)
    }

    fn write(dataset: &Dataset) -> Result<Written, TpchError> {
        dataset.write(&|_| (), &AtomicBool::new(false))
    }

    #[test]
    fn a_second_run_keeps_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let dataset = dataset(dir.path(), 0.001);
        let first = write(&dataset).unwrap();
        assert_eq!((first.files, first.files_kept), (8, 0));
        fs::remove_file(dir.path().join("orders/part-1-of-1.parquet")).unwrap();
        fs::write(dir.path().join("orders/.partial-x"), "half").unwrap();
        let second = write(&dataset).unwrap();
        assert_eq!((second.files, second.files_kept), (1, 7));
        assert_eq!((second.rows, second.bytes), (first.rows, first.bytes));
        assert!(!dir.path().join("orders/.partial-x").exists());
    }

    #[test]
    fn another_data_set_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        write(&dataset(dir.path(), 0.001)).unwrap();
        let before = fs::read(dir.path().join("part/part-1-of-1.parquet")).unwrap();
        let error = write(&dataset(dir.path(), 0.002)).unwrap_err().to_string();
        assert!(error.contains("at scale factor 0.001"), "{error}");
        assert!(error.contains("choose another directory"), "{error}");
        let after = fs::read(dir.path().join("part/part-1-of-1.parquet")).unwrap();
        assert!(before == after);

        fs::write(dir.path().join("region/notes.parquet"), "mine").unwrap();
        let error = write(&dataset(dir.path(), 0.001)).unwrap_err().to_string();
        assert!(
            error.contains("notes.parquet holds something else"),
            "{error}"
        );
    }

    #[test]
    fn an_interrupted_run_leaves_whole_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let dataset = Dataset::new(dir.path(), Scale::new(0.004).unwrap());
        let stop = AtomicBool::new(false);
        // In the second batch of the first file: it is not whole.
        let progress = |progress: Progress| {
            if progress.rows > 8192 {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let error = dataset.write(&progress, &stop).unwrap_err();
        assert!(matches!(error, TpchError::Interrupted), "{error}");
        let files: Vec<_> = fs::read_dir(dir.path().join("lineitem")).unwrap().collect();
        assert!(files.is_empty(), "{files:?}");
        assert_eq!(write(&dataset).unwrap().files, 8);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        // A file in the place of a table's directory.
        fs::write(dir.path().join("nation"), "").unwrap();
        let error = write(&dataset(dir.path(), 0.001)).unwrap_err();
        assert!(matches!(error, TpchError::Write { .. }), "{error}");
        assert!(error.to_string().contains("nation: "), "{error}");
        // And in that of a file that is being written.
        fs::remove_file(dir.path().join("nation")).unwrap();
        fs::create_dir_all(dir.path().join("region/part-1-of-1.parquet")).unwrap();
        let error = write(&dataset(dir.path(), 0.001)).unwrap_err();
        assert!(matches!(error, TpchError::Occupied { .. }), "{error}");
        assert!(error.to_string().contains("region/part-1-of-1"), "{error}");
    }

    #[test]
    fn large_tables_are_cut_into_parts() {
        let dataset = dataset(Path::new("x"), 10.0);
        let jobs = dataset.jobs();
        let parts = |table| jobs.iter().filter(|job| job.table == table).count();
        assert_eq!(parts(Table::Lineitem), 40);
        assert_eq!(parts(Table::Orders), 10);
        assert_eq!(parts(Table::Nation), 1);
        assert_eq!(
            dataset.path(jobs[0]),
            Path::new("x/lineitem/part-01-of-40.parquet")
        );
    }
}
