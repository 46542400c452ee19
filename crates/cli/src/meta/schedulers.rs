//! `giveway meta schedulers`: what there is, and why something cannot be used.
//!
//! Files tell what is plainly missing. Whether the verifier takes a scheduler
//! that is there, only loading it tells: `--try` does so, one after the other,
//! for a moment each. `--install` makes those that are lacking (`install`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use giveway_metasched::config::Config;
use giveway_metasched::host::Host;
use giveway_metasched::scheduler::{Machine, Scheduler, Table, obstacle};
use giveway_metasched::supervisor::{Event, Limits, Standing, Supervisor};
use giveway_metasched::system::System;
use serde::Serialize;

use super::install::install;
use giveway_command::output::wrapped;
use giveway_command::{Context, Failure};

/// List the schedulers, and say why this machine cannot run one
///
/// Exit status 0 whatever there is.
#[derive(Args, Debug)]
pub(super) struct SchedulersArgs {
    /// A configuration whose own schedulers are listed, too
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Load each that is there for a moment, to see whether the kernel takes it
    #[arg(long = "try")]
    try_each: bool,
    /// Make this one's program and keep it where all commands find it; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    install: Vec<String>,
    /// The kernel's source, for those that are part of it
    #[arg(long, value_name = "DIR", requires = "install")]
    kernel_source: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One scheduler on this machine.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    about: String,
    usable: bool,
    /// Why not, or what trying it showed.
    why: Option<String>,
    remedy: Option<String>,
}

/// Prints the list.
pub(super) fn schedulers(args: &SchedulersArgs) -> Result<u8, Failure> {
    let table = match &args.config {
        Some(path) => Config::read(path)?.table,
        None => Table::known(),
    };
    for name in &args.install {
        install(&table, name, args.kernel_source.as_deref())?;
    }
    let machine = Machine::look(Path::new("/"));
    let mut rows: Vec<Row> = table
        .rows()
        .iter()
        .map(|scheduler| row(scheduler, &machine))
        .collect();
    if args.try_each {
        super::entitled()?;
        try_each(&table, &mut rows)?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &rows)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&rows))?;
    }
    out.flush()?;
    Ok(0)
}

fn row(scheduler: &Scheduler, machine: &Machine) -> Row {
    let obstacle = obstacle(scheduler, machine);
    Row {
        name: scheduler.name.clone(),
        about: scheduler.about.clone(),
        usable: obstacle.is_none(),
        remedy: obstacle.as_ref().map(|obstacle| obstacle.remedy()),
        why: obstacle.map(|obstacle| obstacle.to_string()),
    }
}

/// Loads each usable scheduler and notes what came of it.
fn try_each(table: &Table, rows: &mut [Row]) -> Result<(), Failure> {
    let dir = tempfile::tempdir().cannot("make a temporary directory")?;
    let mut host = System::new(&dir.path().join("log"))?;
    for (scheduler, row) in table.rows().iter().zip(rows) {
        if !row.usable || scheduler.is_eevdf() {
            continue;
        }
        let mut supervisor = Supervisor::new(Limits::default());
        loop {
            let pause = supervisor.step(scheduler, &mut host);
            if let Standing::Aside(ops) = supervisor.standing() {
                return Err(Failure::new(format_args!("the scheduler {ops} is loaded"))
                    .with_remedy(
                        "stop it first, as it was started (giveway stop, or systemctl stop scx)",
                    ));
            }
            if supervisor.is_settled(scheduler, host.now()) {
                break;
            }
            host.rest(pause);
        }
        // One that the kernel throws out for a stall takes longer than this: it
        // is a first look, not a guarantee.
        host.rest(Duration::from_millis(200));
        supervisor.step(scheduler, &mut host);
        let events: Vec<Event> = supervisor.events().collect();
        if !supervisor.leave(&mut host) {
            return Err(Failure::new(format_args!(
                "the process of {} does not end, though killed",
                scheduler.name
            ))
            .with_remedy("echo S > /proc/sysrq-trigger unloads any sched_ext scheduler"));
        }
        for event in events {
            match event {
                Event::Started(_, took) => row.why = Some(format!("loads in {took:.0?}")),
                Event::Failed(_, fault, _) => {
                    row.usable = false;
                    row.why = Some(fault.to_string());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (usable, title) in [(true, "usable here"), (false, "not usable here")] {
        let of_kind: Vec<&Row> = rows.iter().filter(|row| row.usable == usable).collect();
        let shared = shared(&of_kind);
        match shared {
            Some(why) => lines.push(wrapped(&format!("{title}: "), why)),
            None if of_kind.is_empty() => {}
            None => lines.push(title.to_owned()),
        }
        let remedy = |begin: &str, row: &Row| {
            let remedy = row.remedy.as_ref()?;
            Some(wrapped(&format!("{begin}remedy: "), remedy))
        };
        if shared.is_some() {
            lines.extend(remedy("  ", of_kind[0]));
        }
        for row in of_kind {
            let why = row.why.as_ref().filter(|_| shared.is_none());
            let what = why.unwrap_or(&row.about);
            lines.push(wrapped(&format!("  {:width$}  ", row.name), what));
            if shared.is_none() {
                lines.extend(remedy(&format!("  {:width$}  ", ""), row));
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Why none of several can be used, if that is the same for all.
fn shared<'a>(rows: &[&'a Row]) -> Option<&'a str> {
    let (first, others) = rows.split_first()?;
    let is_alike = |row: &&Row| row.why == first.why && row.remedy == first.remedy;
    let all = !first.usable && !others.is_empty() && others.iter().all(is_alike);
    first.why.as_deref().filter(|_| all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_that_all_share_is_said_once() {
        let machine = Machine {
            sched_ext: false,
            release: None,
            root: true,
            path: Vec::new(),
        };
        let known = Table::known();
        let rows: Vec<Row> = known.rows().iter().map(|it| row(it, &machine)).collect();
        let text = text(&rows);
        assert!(
            text.contains("\nnot usable here: this kernel has no sched_ext\n  remedy: boot "),
            "{text}"
        );
        assert_eq!(text.matches("no sched_ext").count(), 1, "{text}");
        assert_eq!(text.matches("remedy").count(), 1, "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let about = rows.last().unwrap().about.split(' ').next().unwrap();
        assert!(text.contains(about), "{text}");
    }

    #[test]
    fn what_is_usable_comes_first_and_the_rest_says_why_not() {
        let machine = Machine {
            sched_ext: true,
            release: None,
            root: true,
            path: Vec::new(),
        };
        let rows: Vec<Row> = Table::known()
            .rows()
            .iter()
            .map(|scheduler| row(scheduler, &machine))
            .collect();
        let text = text(&rows);
        assert!(text.starts_with("usable here\n  eevdf"), "{text}");
        let rest = text.split_once("not usable here\n").unwrap().1;
        assert!(
            rest.contains("scx_rusty      scx_rusty is not installed"),
            "{text}"
        );
        assert!(rest.contains("remedy: giveway meta schedulers --install scx_rusty"));
    }
}
