//! `giveway bench all`: every experiment, one after the other, and one report of
//! all of them.
//!
//! ```text
//!   for each experiment   done already? ─► giveway bench NAME … as a process
//!                                            │ rows, page, table, log
//!                                            ▼
//!                          how it ended ─► runs.json, overview
//! ```
//!
//! * An experiment is a process of its own: it is the command that anybody would
//!   type, and what it leaves behind, if it crashes, ends with it.
//! * One that fails does not stop the others.
//! * An interrupt reaches the running experiment, too, which ends as it does when
//!   it is run alone; the next one is not begun.
//! * What is done is not done again ([`Runs::is_done`]), so the same command goes
//!   on where the last one was stopped.
//!
//! Known weakness: an experiment is done or not. One that was stopped begins anew,
//! though the rows of its ended cells are kept below `raw`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::experiments::ALL;
use crate::harness::environment::{COMMIT, Environment};
use crate::overview::{Origin, Outcome, Overview, Run, Runs};
use crate::runner::results::interruptible;
use clap::Args;
use giveway_command::output::human;
use giveway_command::{Context, Failure};

/// How the message of a failed command begins, and what is said of a failed cell.
const ERROR: &str = "giveway: error: ";
const FAILED: &str = ": FAILED after ";

/// Run every experiment, and report all of them beside the papers' figures
///
/// Each experiment is run as its own command would, with its defaults. One that
/// fails does not stop the others, and what is done is not done again: after an
/// interrupt the same command goes on. The report is a page (index.html), a table,
/// Markdown and JSON, beside each experiment's rows, page and table. Without --quick
/// it takes many hours. See docs/measure/researchers.md.
#[derive(Args, Debug)]
pub(crate) struct AllArgs {
    /// Which experiments, as 'giveway bench --list' names them [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = name)]
    only: Vec<String>,
    /// Small machines and short windows, for a first look
    #[arg(long)]
    quick: bool,
    /// Measure everything this often, each time with another seed [default: each
    /// experiment's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Where everything goes [default: results/all-COMMIT-MACHINE, with --quick
    /// results/quick-COMMIT-MACHINE]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Do again what is done
    #[arg(long, conflicts_with = "report")]
    again: bool,
    /// Run nothing; write the report of what is there
    #[arg(long)]
    report: bool,
}

fn name(text: &str) -> Result<String, String> {
    let mut names = ALL.iter().map(|experiment| experiment.name);
    match names.find(|name| *name == text) {
        Some(name) => Ok(name.to_owned()),
        None => Err("'giveway bench --list' names them".to_owned()),
    }
}

/// Runs what is not done; answers with the exit status.
pub(crate) fn all(args: &AllArgs) -> Result<u8, Failure> {
    let origin = Origin {
        commit: COMMIT.to_owned(),
        machine: Environment::probe("").machine,
    };
    let dir = args.dir(&origin);
    let mut runs = Runs::read(&dir)?;
    if !args.report {
        fs::create_dir_all(&dir).cannot(format_args!("make {}", dir.display()))?;
        let stop = interruptible()?;
        let commands = args.commands();
        run_all(&commands, &mut runs, &origin, args.again, &stop, &run)?;
    }
    let overview = Overview::of(&runs);
    let page = overview.write(&dir)?;
    let mut out = std::io::stdout().lock();
    write!(out, "{}", overview.table())?;
    out.flush()?;
    eprintln!("page: {}", page.display());
    args.verdict(&runs, &origin)
}

impl AllArgs {
    fn dir(&self, origin: &Origin) -> PathBuf {
        let commit: String = origin.commit.chars().take(12).collect();
        let kind = if self.quick { "quick" } else { "all" };
        let usual = || Path::new("results").join(format!("{kind}-{commit}-{}", origin.machine));
        self.dir.clone().unwrap_or_else(usual)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        let all = ALL.iter().map(|experiment| experiment.name);
        all.filter(move |name| self.only.is_empty() || self.only.iter().any(|only| only == name))
    }

    /// Each experiment's arguments, without those that name files.
    fn commands(&self) -> Vec<(&'static str, Vec<String>)> {
        let command = |name: &'static str| {
            // As one types it after `giveway`.
            let mut words = vec!["bench".to_owned(), name.to_owned()];
            let experiment = ALL
                .iter()
                .find(|experiment| self.quick && experiment.name == name);
            let options = experiment.map_or("", |experiment| experiment.quick);
            words.extend(options.split_whitespace().map(str::to_owned));
            if let Some(repeat) = self.repeat {
                // What was asked for counts.
                words.retain(|word| !word.starts_with("--repeat"));
                words.push(format!("--repeat={repeat}"));
            }
            (name, words)
        };
        self.names().map(command).collect()
    }

    /// Whether all that was asked for is done.
    fn verdict(&self, runs: &Runs, origin: &Origin) -> Result<u8, Failure> {
        let is_open = |name: &&str| {
            let run = runs.get(name);
            !run.is_some_and(|run| run.outcome == Outcome::Done && run.origin == *origin)
        };
        let open: Vec<&str> = self.names().filter(is_open).collect();
        match open.as_slice() {
            [] => Ok(0),
            open => Err(Failure::new(format_args!("not done: {}", open.join(", ")))
                .with_remedy("see the report for the reasons; the same command goes on from here")),
        }
    }
}

/// Runs an experiment with its arguments, and says how it ended.
type Runner<'a> = &'a dyn Fn(&str, &[String], &Runs) -> Result<Outcome, Failure>;

/// Runs what is not done, and keeps how each ended, until told to stop.
fn run_all(
    commands: &[(&'static str, Vec<String>)],
    runs: &mut Runs,
    origin: &Origin,
    again: bool,
    stop: &AtomicBool,
    run: Runner<'_>,
) -> Result<(), Failure> {
    for (number, (name, command)) in commands.iter().enumerate() {
        let number = format!("[{}/{}] {name}", number + 1, commands.len());
        if !again && runs.is_done(name, command, origin) {
            eprintln!("{number}: done already");
            continue;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        eprintln!("{number}: giveway {}", command.join(" "));
        let begun = Instant::now();
        let outcome = match run(name, command, runs) {
            // All of it may have been done before it heard of the interrupt.
            Ok(Outcome::Failed(_)) if stop.load(Ordering::Relaxed) => Outcome::Interrupted,
            Ok(outcome) => outcome,
            Err(failure) => Outcome::Failed(failure.message()),
        };
        let took = begun.elapsed();
        eprintln!("{number}: {}", said(&outcome, took));
        runs.keep(Run {
            experiment: (*name).to_owned(),
            command: command.clone(),
            origin: origin.clone(),
            outcome,
            took_s: took.as_secs_f64(),
        })?;
        Overview::of(runs).write(runs.dir())?;
    }
    Ok(())
}

fn said(outcome: &Outcome, took: Duration) -> String {
    let took = human(took);
    match outcome {
        Outcome::Done => format!("done in {took}"),
        Outcome::Failed(why) => format!("FAILED after {took}: {why}"),
        Outcome::Interrupted => format!("interrupted after {took}"),
    }
}

/// Runs an experiment as a process of this program.
fn run(name: &str, command: &[String], runs: &Runs) -> Result<Outcome, Failure> {
    let own = std::env::current_exe().cannot("find this program's file")?;
    let [rows, page, table, log] =
        ["json", "html", "txt", "log"].map(|extension| runs.file(name, extension));
    // What a failed try leaves must not be an earlier one's.
    for file in [&rows, &page] {
        match fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
        .cannot(format_args!("remove {}", file.display()))?;
    }
    let create = |file: &Path| File::create(file).cannot(format_args!("make {}", file.display()));
    let mut child = Command::new(own)
        // The first word is this program.
        .args(&command[1..])
        .arg("--json")
        .arg(&rows)
        .arg("--html")
        .arg(&page)
        .arg("--results")
        .arg(runs.dir().join("raw"))
        .stdin(Stdio::null())
        .stdout(create(&table)?)
        .stderr(Stdio::piped())
        .spawn()
        .cannot("start this program")?;
    let mut log = create(&log)?;
    let mut why = Reason::default();
    let said = BufReader::new(child.stderr.take().expect("it is piped"));
    for line in said.split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        eprintln!("  {line}");
        writeln!(log, "{line}")?;
        why.hear(line);
    }
    let status = child.wait().cannot("wait for the experiment")?;
    Ok(match status.success() {
        true => Outcome::Done,
        false => Outcome::Failed(why.text().unwrap_or_else(|| status.to_string())),
    })
}

/// Why an experiment failed, from what it said: the first of its cells that did,
/// and its error with the remedy.
#[derive(Default)]
struct Reason {
    cell: Option<String>,
    error: Vec<String>,
}

impl Reason {
    fn hear(&mut self, line: String) {
        if let Some(message) = line.strip_prefix(ERROR) {
            self.error = vec![message.to_owned()];
        } else if !self.error.is_empty() {
            self.error.push(line);
        } else if self.cell.is_none() && line.contains(FAILED) {
            self.cell = Some(line);
        }
    }

    fn text(self) -> Option<String> {
        let error = self.error.join("\n");
        match (error.is_empty(), self.cell) {
            (true, cell) => cell,
            (false, None) => Some(error),
            (false, Some(cell)) => Some(format!("{error}\n{cell}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::experiment::parse;
    use std::cell::RefCell;

    fn args(options: &[&str]) -> AllArgs {
        parse(options).unwrap()
    }

    fn origin() -> Origin {
        Origin {
            commit: "0123456789abcdef".to_owned(),
            machine: "here".to_owned(),
        }
    }

    #[test]
    fn every_experiment_has_a_command_and_what_was_asked_for_counts() {
        for options in [&[][..], &["--quick"], &["--quick", "--repeat", "3"]] {
            let commands = args(options).commands();
            assert_eq!(commands.len(), ALL.len());
            for (name, command) in commands {
                assert_eq!(command[..2], ["bench", name]);
                let repeats = command.iter().filter(|word| word.starts_with("--repeat"));
                let repeats: Vec<&String> = repeats.collect();
                assert!(
                    options.len() < 3 || repeats == ["--repeat=3"],
                    "{repeats:?}"
                );
            }
        }
    }

    #[test]
    fn only_what_is_asked_for_is_run_and_unknown_names_are_refused() {
        let names: Vec<&str> = args(&["--only", "ml,mixed"]).names().collect();
        assert_eq!(names, ["mixed", "ml"]);
        let error = parse::<AllArgs>(&["--only", "mixd"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--list"), "{error}");
    }

    #[test]
    fn a_first_look_has_a_directory_of_its_own() {
        let dir = |options: &[&str]| args(options).dir(&origin()).display().to_string();
        assert_eq!(dir(&[]), "results/all-0123456789ab-here");
        assert_eq!(dir(&["--quick"]), "results/quick-0123456789ab-here");
        assert_eq!(dir(&["--dir", "x"]), "x");
    }

    /// What is run, one after the other, if each ends in a certain way and leaves
    /// rows unless it failed.
    fn play(
        runs: &mut Runs,
        args: &AllArgs,
        stop: &AtomicBool,
        end: impl Fn(&str) -> Result<Outcome, Failure>,
    ) -> Vec<String> {
        let seen = RefCell::new(Vec::new());
        let runner = |name: &str, _: &[String], runs: &Runs| {
            seen.borrow_mut().push(name.to_owned());
            let outcome = end(name);
            if matches!(outcome, Ok(Outcome::Done)) {
                fs::write(runs.file(name, "json"), "{}").unwrap();
            }
            outcome
        };
        run_all(&args.commands(), runs, &origin(), args.again, stop, &runner).unwrap();
        seen.into_inner()
    }

    #[test]
    fn one_that_fails_stops_nobody_and_is_what_is_left_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let go = AtomicBool::new(false);
        let some = args(&["--only", "mixed,weights,ml"]);
        let mut runs = Runs::read(dir.path()).unwrap();
        let seen = play(&mut runs, &some, &go, |name| match name {
            "weights" => Err(Failure::new("no lab").with_remedy("make lab")),
            "ml" => Ok(Outcome::Failed("1 of 8 cells".to_owned())),
            _ => Ok(Outcome::Done),
        });
        assert_eq!(seen, ["mixed", "weights", "ml"]);
        let why = Outcome::Failed("no lab\nremedy: make lab".to_owned());
        assert_eq!(runs.get("weights").unwrap().outcome, why);
        let error = some.verdict(&runs, &origin()).unwrap_err().to_string();
        assert!(error.contains("not done: weights, ml"), "{error}");

        // The next try, by a new process.
        let mut runs = Runs::read(dir.path()).unwrap();
        let seen = play(&mut runs, &some, &go, |_| Ok(Outcome::Done));
        assert_eq!(seen, ["weights", "ml"]);
        assert_eq!(some.verdict(&runs, &origin()).unwrap(), 0);
        assert_eq!(play(&mut runs, &some, &go, |_| Ok(Outcome::Done)), [""; 0]);
        let again = args(&["--only", "ml", "--again"]);
        assert_eq!(play(&mut runs, &again, &go, |_| Ok(Outcome::Done)), ["ml"]);
        // Another command is another measurement.
        let twice = args(&["--only", "ml", "--repeat", "2"]);
        assert_eq!(play(&mut runs, &twice, &go, |_| Ok(Outcome::Done)), ["ml"]);
        assert!(dir.path().join("index.html").exists());
    }

    #[test]
    fn an_interrupted_run_goes_on_with_the_one_that_was_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let some = args(&["--only", "mixed,weights,ml"]);
        let stop = AtomicBool::new(false);
        let mut runs = Runs::read(dir.path()).unwrap();
        let seen = play(&mut runs, &some, &stop, |name| {
            let last = name == "weights";
            stop.store(last, Ordering::Relaxed);
            Ok(match last {
                true => Outcome::Failed("3 of 4 cells were not measured".to_owned()),
                false => Outcome::Done,
            })
        });
        assert_eq!(seen, ["mixed", "weights"]);
        assert_eq!(runs.get("weights").unwrap().outcome, Outcome::Interrupted);
        let go = AtomicBool::new(false);
        let seen = play(&mut runs, &some, &go, |_| Ok(Outcome::Done));
        assert_eq!(seen, ["weights", "ml"]);
    }

    #[test]
    fn the_reason_is_the_last_error_with_its_remedy_and_the_first_cell_that_failed() {
        let why = |said: &[&str]| {
            let mut why = Reason::default();
            said.iter().for_each(|line| why.hear((*line).to_owned()));
            why.text()
        };
        let cell = "[1/2] SOLO: FAILED after 2 s: no guest";
        let said = [
            "[1/2] SOLO ...",
            cell,
            "[2/2] MIN:MAX: FAILED after 1 s: no guest either",
            "giveway: error: no cell was measured",
            "remedy: make servers",
        ];
        let error = "no cell was measured\nremedy: make servers";
        assert_eq!(why(&said).unwrap(), format!("{error}\n{cell}"));
        assert_eq!(why(&said[3..]).unwrap(), error);
        assert_eq!(why(&said[..2]).unwrap(), cell);
        assert_eq!(why(&said[..1]), None);
    }
}
