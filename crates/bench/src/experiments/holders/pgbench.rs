//! pgbench, unmodified: its data, a run, and what its log says of a window.
//!
//! With `--log` each of its threads writes a line for each transaction:
//!
//! ```text
//!   client  number  latency_us  script  seconds  microseconds      (end, since 1970)
//! ```
//!
//! pgbench cannot be told of a window and says nothing of one. So it runs for longer, and
//! a transaction counts if it ended inside. It has to have begun before the window, and to
//! end after it; both are checked. It ends by itself, because one that is killed loses
//! the end of its log.

use std::fs::{self, File};
use std::path::Path;
use std::process::Child;
use std::time::{SystemTime, UNIX_EPOCH};

use super::HoldersPlan;
use crate::harness::error::{Error, Result};
use crate::harness::files::PrivateDir;
use crate::harness::words::words;
use crate::workload::postgres::{Installation, Server, USER, last_lines};

const PROGRAM: &str = "pgbench";
/// How the names of its logs begin, and where its output goes.
const LOG: &str = "log";
const OUTPUT: &str = "output";
/// What it runs for beyond warm-up and window: whole seconds are all that it takes, and
/// who ends the window may be late.
const MARGIN_S: f64 = 1.0;

words! {
    /// A built-in script of pgbench, by its name there.
    pub(crate) Script ("script") {
        /// Reads an account by its key.
        #[default]
        SelectOnly = "select-only",
        /// Changes an account and reads it, and adds a line to the history.
        SimpleUpdate = "simple-update",
    }
}

/// Makes the tables.
pub(super) fn make_data(postgres: &Installation, server: &Server, scale: u32) -> Result<()> {
    let (socket, scale) = (server.socket_dir().to_string_lossy(), scale.to_string());
    let arguments = ["-i", "-q", "-s", &scale, "-h", &socket, "-U", USER];
    postgres.run(PROGRAM, &arguments)?;
    Ok(())
}

/// Seconds that it runs for: a whole number.
fn duration_s(plan: &HoldersPlan) -> u64 {
    (plan.warmup_s + plan.seconds + MARGIN_S).ceil() as u64
}

/// pgbench at work; killed when dropped.
pub(super) struct Run {
    child: Child,
    dir: PrivateDir,
}

impl Run {
    /// Starts it with as many threads as there are CPUs; its files are below `work`.
    pub(super) fn start(
        postgres: &Installation,
        server: &Server,
        plan: &HoldersPlan,
        script: Script,
        work: &Path,
    ) -> Result<Self> {
        let dir = PrivateDir::new(work, postgres.owner())?;
        let output = dir.path().join(OUTPUT);
        let out = File::create(&output).map_err(Error::file("create", &output))?;
        let err = out.try_clone().map_err(Error::file("open", &output))?;
        let mut command = postgres.command(PROGRAM);
        command.arg("-h").arg(server.socket_dir());
        command.args(["-U", USER, "-n", "--log", "--log-prefix"]);
        command.arg(dir.path().join(LOG));
        for (option, value) in [
            ("--builtin", script.name().to_owned()),
            ("--client", plan.clients().to_string()),
            ("--jobs", plan.cpus.to_string()),
            ("--time", duration_s(plan).to_string()),
            ("--random-seed", plan.seed.to_string()),
        ] {
            command.arg(format!("{option}={value}"));
        }
        let child = command.stdout(out).stderr(err).spawn();
        let child = child.map_err(Error::file("start", PROGRAM.as_ref()))?;
        Ok(Run { child, dir })
    }

    /// Waits for its end; all that it logged.
    ///
    /// # Errors
    /// A client that failed, with the last lines that it printed.
    pub(super) fn finish(mut self) -> Result<Vec<Transaction>> {
        let dir = self.dir.path();
        let status = self.child.wait().map_err(Error::file("wait for", dir))?;
        if !status.success() {
            let output = fs::read_to_string(dir.join(OUTPUT)).unwrap_or_default();
            return Err(Error::Program {
                program: PROGRAM.to_owned(),
                status: status.to_string(),
                output: last_lines(&output),
            });
        }
        let mut all = Vec::new();
        for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
            let path = entry.map_err(Error::file("list", dir))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(LOG) {
                let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
                all.extend(parse(&text)?);
            }
        }
        Ok(all)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    latency_us: u64,
    end_us: u64,
}

fn parse(log: &str) -> Result<Vec<Transaction>> {
    let transaction = |line: &str| {
        let words = Vec::from_iter(line.split_whitespace());
        let [_, _, latency_us, _, seconds, microseconds] = words[..] else {
            return None;
        };
        let number = |word: &str| word.parse::<u64>().ok();
        Some(Transaction {
            latency_us: number(latency_us)?,
            end_us: number(seconds)? * 1_000_000 + number(microseconds)?,
        })
    };
    let parsed = log.lines().map(|line| {
        transaction(line).ok_or_else(|| Error::Program {
            program: PROGRAM.to_owned(),
            status: "its log has a line that is no transaction".to_owned(),
            output: line.to_owned(),
        })
    });
    parsed.collect()
}

/// A moment as the log has it: microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is after 1970").as_micros() as u64
}

/// The window, from its first moment to the first one after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start_us: u64,
    pub(super) end_us: u64,
}

impl Span {
    pub(super) fn seconds(self) -> f64 {
        (self.end_us - self.start_us) as f64 * 1e-6
    }

    /// Latencies of the transactions that ended inside, in microseconds, in order of size.
    ///
    /// # Errors
    /// pgbench was not at work for all of the window, or ended nothing in it.
    pub(super) fn latencies_us(self, all: &[Transaction]) -> Result<Vec<u64>> {
        let ends = || all.iter().map(|transaction| transaction.end_us);
        if ends().min().is_none_or(|first| first > self.start_us) {
            return Err(Error::Config(
                "pgbench had ended no transaction before the window: a longer --warmup".to_owned(),
            ));
        }
        if ends().max().is_none_or(|last| last < self.end_us) {
            return Err(Error::Config(
                "pgbench ended before the window did: shorter --seconds, or fewer clients"
                    .to_owned(),
            ));
        }
        let inside = |one: &&Transaction| (self.start_us..self.end_us).contains(&one.end_us);
        let inside = all.iter().filter(inside);
        let mut latencies: Vec<u64> = inside.map(|one| one.latency_us).collect();
        if latencies.is_empty() {
            return Err(Error::Config(
                "no transaction ended inside the window: longer --seconds".to_owned(),
            ));
        }
        latencies.sort_unstable();
        Ok(latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::plan;
    use super::*;

    const ENDS: &str = "0 1 1500 0 99 900000\n3 1 2500 0 100 0\n0 2 700 0 103 999999\n\
                        0 3 800 0 104 0\n";

    fn span(start_s: u64, end_s: u64) -> Span {
        Span {
            start_us: start_s * 1_000_000,
            end_us: end_s * 1_000_000,
        }
    }

    #[test]
    fn a_transaction_counts_where_it_ended() {
        let all = parse(ENDS).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[0].end_us, 99_900_000);
        let window = span(100, 104);
        assert_eq!(window.latencies_us(&all).unwrap(), [700, 2500]);
        assert_eq!(window.seconds(), 4.0);
    }

    #[test]
    fn a_window_for_which_pgbench_did_not_run_is_refused_with_the_remedy() {
        let all = parse(ENDS).unwrap();
        for (window, remedy) in [
            (span(99, 104), "--warmup"),
            (span(100, 105), "--seconds"),
            (span(101, 103), "longer --seconds"),
        ] {
            let error = window.latencies_us(&all).unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
        assert!(span(100, 104).latencies_us(&[]).is_err());
    }

    #[test]
    fn a_failed_transaction_is_an_error_and_not_left_out() {
        let error = parse("0 1 failed 0 99 900000\n").unwrap_err().to_string();
        assert!(error.contains("0 1 failed"), "{error}");
    }

    #[test]
    fn pgbench_runs_for_whole_seconds_and_longer_than_the_window() {
        let mut plan = plan();
        assert_eq!(duration_s(&plan), 7);
        plan.warmup_s = 0.5;
        assert_eq!(duration_s(&plan), 6);
    }
}
