//! Applications as the metascheduler knows them: a command that benchmarks one,
//! and how to read what it prints.
//!
//! A command says what it found in one of two ways. `json`: the last line of its
//! output that is an object with `throughput_per_s` and `p99_s`, so any benchmark
//! fits behind a line of shell. `wrk`: what `wrk --latency` prints, since that is
//! what the paper measures with; runs with failed requests are discarded, since
//! wrk counts errors as responses.
//!
//! Each command leads a process group of its own, which is killed whole when it
//! has to end early.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::measurements::Reading;

/// One application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// What measurements call it.
    pub name: String,
    /// Program and arguments of its benchmark.
    pub command: Vec<String>,
    /// How to read what the command prints.
    #[serde(default)]
    pub output: Output,
    /// Where it runs, for `phase_aware`: `/system.slice/web.service`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// The command is ended after this many seconds, which is a fault.
    #[serde(default = "timeout_s")]
    pub timeout_s: f64,
}

fn timeout_s() -> f64 {
    120.0
}

/// How a benchmark says what it found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A line of JSON.
    #[default]
    Json,
    /// As `wrk --latency` does.
    Wrk,
}

impl Output {
    /// Reads a command's whole output.
    pub fn read(self, text: &str) -> Result<Reading, String> {
        let reading = match self {
            Output::Json => text
                .lines()
                .rev()
                .find_map(|line| serde_json::from_str::<Reading>(line).ok())
                .ok_or("printed no line like {\"throughput_per_s\": 1.0, \"p99_s\": 0.1}"),
            Output::Wrk => {
                if let Some(what) = wrk_errors(text) {
                    return Err(what);
                }
                wrk(text).ok_or("printed not what wrk --latency prints")
            }
        }?;
        match reading.is_sound() {
            true => Ok(reading),
            false => Err("printed a number that is not above 0".into()),
        }
    }
}

/// What stands after a name at a line's beginning.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find_map(|line| Some(line.strip_prefix(name)?.trim()))
}

fn wrk(text: &str) -> Option<Reading> {
    Some(Reading {
        throughput_per_s: field(text, "Requests/sec:")?.parse().ok()?,
        p99_s: seconds(field(text, "99%")?)?,
    })
}

/// Requests without an answer, and answers that are none; wrk is silent of what
/// there is not.
fn wrk_errors(text: &str) -> Option<String> {
    if let Some(counts) = field(text, "Socket errors:") {
        return Some(format!(
            "requests went without an answer: {counts}; if these are timeouts, give wrk a \
             longer --timeout"
        ));
    }
    let count = field(text, "Non-2xx or 3xx responses:")?;
    Some(format!(
        "{count} requests were answered with an error: look into the application's log"
    ))
}

/// `123.00us`, `4.56ms`, `1.20s` or `1.50m`.
fn seconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
    units.iter().find_map(|(unit, s)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * s)
    })
}

/// What came of one run.
pub type Outcome = Result<Reading, String>;

/// Runs benchmarks, several at once.
pub trait Benchmarks {
    /// Starts the benchmarks of these applications together.
    ///
    /// # Panics
    /// If others are running.
    fn start(&mut self, applications: &[&Application]);

    /// What came of them, in their order, once all have ended.
    fn poll(&mut self) -> Option<Vec<Outcome>>;

    /// Ends those that still run; for `why`.
    fn abort(&mut self, why: &str) -> Vec<Outcome>;
}

/// Benchmarks as processes, with their output in files of one directory.
#[derive(Debug)]
pub struct Commands {
    dir: PathBuf,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    output: Output,
    out: PathBuf,
    process: Result<Child, String>,
}

impl Commands {
    /// With output below `dir`, which is there.
    pub fn new(dir: &Path) -> Commands {
        Commands {
            dir: dir.to_owned(),
            running: Vec::new(),
        }
    }

    fn spawn(&self, application: &Application, out: &Path) -> Result<Child, String> {
        let (program, arguments) = application
            .command
            .split_first()
            .ok_or("it has no command")?;
        let in_words = |error: std::io::Error| format!("{}: {error}", out.display());
        let file = File::create(out).map_err(in_words)?;
        let both = file.try_clone().map_err(in_words)?;
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(both)
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{program}: {error}"))
    }
}

impl Running {
    /// What came of it; none while it runs.
    fn outcome(&mut self) -> Option<Outcome> {
        let status = match &mut self.process {
            Err(why) => return Some(Err(why.clone())),
            Ok(child) => match child.try_wait() {
                Ok(None) => return None,
                Ok(Some(status)) => status,
                Err(error) => return Some(Err(format!("lost: {error}"))),
            },
        };
        let text = fs::read_to_string(&self.out).unwrap_or_default();
        if status.success() {
            return Some(self.output.read(&text));
        }
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        Some(Err(format!("{status}: {}", last.unwrap_or("no word"))))
    }

    fn kill(&mut self) {
        if let Ok(child) = &mut self.process {
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

impl Benchmarks for Commands {
    fn start(&mut self, applications: &[&Application]) {
        assert!(self.running.is_empty(), "one set of benchmarks at a time");
        let start = |(index, application): (usize, &&Application)| {
            let out = self.dir.join(format!("benchmark-{index}.out"));
            Running {
                output: application.output,
                process: self.spawn(application, &out),
                out,
            }
        };
        self.running = applications.iter().enumerate().map(start).collect();
    }

    fn poll(&mut self) -> Option<Vec<Outcome>> {
        let outcomes: Option<Vec<Outcome>> =
            self.running.iter_mut().map(Running::outcome).collect();
        if outcomes.is_some() {
            self.running.clear();
        }
        outcomes
    }

    fn abort(&mut self, why: &str) -> Vec<Outcome> {
        let end = |mut running: Running| {
            running.outcome().unwrap_or_else(|| {
                running.kill();
                Err(why.to_owned())
            })
        };
        self.running.drain(..).map(end).collect()
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.abort("not needed any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    fn application(script: &str) -> Application {
        Application {
            name: "a".into(),
            command: ["sh", "-c", script].map(String::from).to_vec(),
            output: Output::Json,
            cgroup: None,
            timeout_s: 60.0,
        }
    }

    fn wait(commands: &mut Commands) -> Vec<Outcome> {
        loop {
            match commands.poll() {
                Some(outcomes) => return outcomes,
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    #[test]
    fn the_last_line_that_is_a_reading_counts() {
        let text = "warming up\n{\"throughput_per_s\": 1, \"p99_s\": 1}\n\
                    {\"throughput_per_s\": 250.5, \"p99_s\": 0.02, \"errors\": 0}\ndone\n";
        let reading = Output::Json.read(text).unwrap();
        assert_eq!((reading.throughput_per_s, reading.p99_s), (250.5, 0.02));
        assert!(Output::Json.read("nothing").unwrap_err().contains("p99_s"));
        let zero = "{\"throughput_per_s\": 0, \"p99_s\": 0.1}";
        assert!(Output::Json.read(zero).unwrap_err().contains("above 0"));
    }

    #[test]
    fn what_wrk_prints_is_understood_in_all_its_units() {
        let text = |p99: &str| {
            format!(
                "  Latency Distribution\n     50%    1.10ms\n     99%   {p99}\n\
                 Requests/sec:   4523.18\nTransfer/sec:      1.02MB\n"
            )
        };
        for (p99, s) in [
            ("812.00us", 812e-6),
            ("5.50ms", 0.0055),
            ("1.20s", 1.2),
            ("1.50m", 90.0),
        ] {
            let reading = Output::Wrk.read(&text(p99)).unwrap();
            assert_eq!(reading.throughput_per_s, 4523.18);
            assert!((reading.p99_s - s).abs() < 1e-9, "{p99}");
        }
        assert!(Output::Wrk.read(&text("soon")).is_err());
        assert!(Output::Wrk.read("99% 1ms").is_err());
    }

    #[test]
    fn wrk_runs_with_failed_requests_are_discarded() {
        let text = |errors: &str| {
            format!("     99%    5.50ms\n{errors}Requests/sec:   4523.18\nTransfer/sec:  1.02MB\n")
        };
        assert!(Output::Wrk.read(&text("")).is_ok());
        let sockets = "  Socket errors: connect 0, read 0, write 0, timeout 3\n";
        let why = Output::Wrk.read(&text(sockets)).unwrap_err();
        assert!(why.contains("timeout 3; if these"), "{why}");
        let why = Output::Wrk.read(&text("  Non-2xx or 3xx responses: 12\n"));
        assert!(why.unwrap_err().starts_with("12 requests"));
    }

    #[test]
    fn commands_run_together_and_say_what_came_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut commands = Commands::new(dir.path());
        let good = application("echo '{\"throughput_per_s\": 7, \"p99_s\": 0.5}'");
        let bad = application("echo no luck >&2; exit 4");
        let mut missing = application("");
        missing.command = vec!["/no/such/benchmark".into()];
        commands.start(&[&good, &bad, &missing]);
        let outcomes = wait(&mut commands);
        assert_eq!(outcomes[0].as_ref().unwrap().throughput_per_s, 7.0);
        assert_eq!(outcomes[1], Err("exit status: 4: no luck".into()));
        assert!(outcomes[2].as_ref().unwrap_err().contains("/no/such"));
    }

    #[test]
    fn an_aborted_command_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let mut commands = Commands::new(dir.path());
        // The child holds the fifo open: its reader sees the end only when all
        // writers are gone.
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let path = fifo.display();
        let long = application(&format!("sleep 1000 >{path} & exec sleep 1000"));
        let quick = application("echo '{\"throughput_per_s\": 7, \"p99_s\": 0.5}'");
        commands.start(&[&long, &quick]);
        // Opens once the child has opened it, too.
        let mut reader = File::open(&fifo).unwrap();
        while commands.running[1].outcome().is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(commands.poll().is_none());
        let outcomes = commands.abort("enough");
        assert_eq!(outcomes[0], Err("enough".into()));
        assert!(outcomes[1].is_ok());
        std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    }
}
