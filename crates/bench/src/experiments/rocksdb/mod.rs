//! RocksDB with background threads that give way: does the foreground gain if
//! the locks know it, too?
//!
//! CFL (paper 004), Section 4.3 and Figure 6: `db_bench` with the option that
//! lowers the CPU and I/O priority of compaction. The paper schedules locks of
//! the kernel; here it is the program's own mutexes, by a library that is loaded
//! before the C library's, with groups by thread name. So the figure's
//! question is asked of other locks, and the answers are not comparable.
//!
//! ```text
//!   fill (new data) ─► workload under a setting, --duration ─► parse ─► row
//! ```

pub(crate) mod cli;
mod parse;
pub(crate) mod report;
mod row;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use row::{Operation, RocksRow, Setting};

use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::harness::files::PrivateDir;

/// The workloads of Figure 6: OW, UP, RW, RRWR.
pub(crate) const WORKLOADS: [&str; 4] = [
    "overwrite",
    "updaterandom",
    "readwhilewriting",
    "readrandomwriterandom",
];

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RocksPlan {
    /// The program; `db_bench` is looked for in `PATH`.
    pub db_bench: PathBuf,
    /// `libgiveway_cfl.so`; without it, CFL is not measured.
    pub preload: Option<PathBuf>,
    /// Where data is made, in a directory of its own.
    pub dir: PathBuf,
    /// Names of `db_bench` workloads.
    pub workloads: Vec<String>,
    /// Foreground threads.
    pub threads: u32,
    /// Background jobs at most.
    pub background: u32,
    /// Length of a run in seconds.
    pub seconds: u32,
    /// Keys in the database.
    pub keys: u32,
    /// Weight of the group of foreground and flushing threads.
    pub front_weight: u32,
    /// Weight of the group of compacting threads.
    pub back_weight: u32,
    /// How often everything is measured.
    pub repeat: u32,
    /// Seed of the first repeat's keys.
    pub seed: u64,
}

impl Default for RocksPlan {
    fn default() -> Self {
        RocksPlan {
            db_bench: "db_bench".into(),
            preload: None,
            dir: std::env::temp_dir(),
            workloads: WORKLOADS.map(str::to_owned).into(),
            threads: 8,
            background: 4,
            seconds: 10,
            keys: 500_000,
            front_weight: 800,
            back_weight: 100,
            repeat: 1,
            seed: 1,
        }
    }
}

impl RocksPlan {
    /// The settings that can be measured.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        let mut settings = vec![Setting::Flat, Setting::Pthread];
        settings.extend(self.preload.as_ref().map(|_| Setting::Cfl));
        settings
    }

    /// Measures every workload under every setting; one line of `progress`
    /// for each run.
    ///
    /// # Errors
    /// `db_bench` is missing, fails, or prints what is not understood; the
    /// library had no effect.
    pub(crate) fn run(&self, progress: Progress<'_>) -> Result<Vec<RocksRow>> {
        let mut rows = Vec::new();
        for repeat in 0..self.repeat {
            for workload in &self.workloads {
                for setting in self.settings() {
                    progress(&format!("{workload}: {setting}, repeat {}", repeat + 1));
                    rows.push(self.measure(workload, setting, repeat)?);
                }
            }
        }
        Ok(rows)
    }

    fn measure(&self, workload: &str, setting: Setting, repeat: u32) -> Result<RocksRow> {
        let dir = PrivateDir::new(&self.dir, None)?;
        let seed = self.seed + u64::from(repeat);
        let common = [
            format!("--db={}", dir.path().join("db").display()),
            format!("--num={}", self.keys),
            format!("--seed={seed}"),
            format!("--max_background_jobs={}", self.background),
            // Small enough for flushes and compactions all the time.
            "--write_buffer_size=2097152".to_owned(),
            "--target_file_size_base=2097152".to_owned(),
            "--max_bytes_for_level_base=8388608".to_owned(),
            "--value_size=400".to_owned(),
        ];
        let mut fill = Command::new(&self.db_bench);
        fill.args(&common).arg("--benchmarks=fillrandom");
        output(&self.db_bench, fill)?;

        let statistics = dir.path().join("statistics");
        let mut run = Command::new(&self.db_bench);
        run.args(&common).args([
            format!("--benchmarks={workload}"),
            "--use_existing_db=1".to_owned(),
            "--histogram=1".to_owned(),
            format!("--threads={}", self.threads),
            format!("--duration={}", self.seconds),
        ]);
        if setting != Setting::Flat {
            run.args(["--enable_cpu_prio=1", "--enable_io_prio=1"]);
        }
        if let (Setting::Cfl, Some(library)) = (setting, &self.preload) {
            run.env("LD_PRELOAD", absolute(library)?)
                .env("GIVEWAY_CFL", self.groups(&statistics));
        }
        let (printed, said) = output(&self.db_bench, run)?;
        let outcome = parse::outcome(workload, &printed).map_err(|reason| Error::Program {
            program: self.db_bench.display().to_string(),
            status: reason,
            output: last_lines(&printed, 12),
        })?;
        let preload_report = match setting {
            Setting::Cfl => self.effect(&statistics, &said)?,
            _ => Vec::new(),
        };
        Ok(RocksRow {
            setting,
            workload: workload.to_owned(),
            repeat,
            seed,
            threads: self.threads,
            background: self.background,
            seconds: outcome.seconds,
            ops_per_s: outcome.ops_per_s,
            operations: outcome.operations,
            preload_report,
        })
    }

    /// The interposer's settings.
    fn groups(&self, statistics: &Path) -> String {
        format!(
            "group front weight={} threads=db_bench,rocksdb:high*; \
             group back weight={} threads=rocksdb:low*,rocksdb:bottom*; \
             stats to={} locks=5",
            self.front_weight,
            self.back_weight,
            statistics.display()
        )
    }

    /// The interposer's report, which proves that it was in effect: it refuses
    /// settings it does not know, and lets the program run without it then.
    fn effect(&self, statistics: &Path, said: &str) -> Result<Vec<String>> {
        let report = fs::read_to_string(statistics).unwrap_or_default();
        if report.is_empty() {
            return Err(Error::Program {
                program: self
                    .preload
                    .as_ref()
                    .map_or(String::new(), |path| path.display().to_string()),
                status: "it had no effect on db_bench".to_owned(),
                output: last_lines(said, 12),
            });
        }
        Ok(report.lines().map(str::to_owned).collect())
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(Error::file("find", path))
}

/// Runs to the end; answers with what was printed and said on standard error.
fn output(program: &Path, mut command: Command) -> Result<(String, String)> {
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Config(format!(
                "{} is not there: install the package rocksdb-tools, or name the program \
                 with --db-bench",
                program.display()
            )),
            _ => Error::file("run", program)(error),
        })?;
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if !done.status.success() {
        return Err(Error::Program {
            program: program.display().to_string(),
            status: done.status.to_string(),
            output: last_lines(&said, 12),
        });
    }
    Ok((printed, said))
}

fn last_lines(text: &str, count: usize) -> String {
    // Progress ends in carriage returns.
    let lines: Vec<&str> = text
        .split(['\n', '\r'])
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_answered_with_the_package() {
        let plan = RocksPlan {
            db_bench: "/nonexistent/db_bench".into(),
            ..RocksPlan::default()
        };
        let error = plan.run(&mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("rocksdb-tools"), "{error}");
    }

    #[test]
    fn cfl_is_measured_only_with_the_library() {
        let mut plan = RocksPlan::default();
        assert_eq!(plan.settings(), [Setting::Flat, Setting::Pthread]);
        plan.preload = Some("x.so".into());
        assert_eq!(plan.settings().last(), Some(&Setting::Cfl));
    }

    #[test]
    fn a_library_without_effect_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let plan = RocksPlan::default();
        let file = dir.path().join("statistics");
        let error = plan
            .effect(&file, "unknown setting")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no effect") && error.contains("unknown setting"),
            "{error}"
        );
        fs::write(&file, "db_bench: 5 locks\nfront\n").unwrap();
        assert_eq!(plan.effect(&file, "").unwrap().len(), 2);
    }
}
