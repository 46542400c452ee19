//! The paper's application, rebuilt, under each scheduler and while schedulers take
//! turns (sections 3.1 to 3.3, Figures 1 and 2).
//!
//! ```text
//!   api         wrk ── POST /ask ──► gunicorn, Flask ──► a stub
//!   retrieval                        alone.py ─────────► embedding, vector index
//!   ask         wrk ── POST /ask ──► gunicorn, Flask ──► embedding, vector index
//! ```
//!
//! The two parts are measured alone, which is what policies go by, and the whole with
//! requests that go through both. All of it is `measure` and `tune` of the
//! metascheduler, so this is what an operator does with two applications of theirs.
//!
//! | paper | here |
//! | --- | --- |
//! | multi-qa-mpnet-base-cos-v1 | WordLlama, 256 dimensions: the mean of a table's rows, far less work |
//! | Chroma, 54 967 chunks | Voyager, 30 000 chunks, in memory |
//! | wrk, 10 threads, 20 connections, 30 s | the same, for as long as asked |
//! | four cores with two threads each | as many CPUs as the machine has |
//!
//! Known weakness: with so small a model the back end computes, and for a short time;
//! the paper's waits for a disk, too. wrk sends the next request when the last has been
//! answered, so a stall counts as one slow request for each connection.

mod corpus;
mod prepare;
mod servers;

use std::path::Path;
use std::time::Duration;

use giveway_metasched::application::{Application, Commands, Output};
use giveway_metasched::config::Config;
use giveway_metasched::measure::{self, Progress as Step};
use giveway_metasched::measurements::{MachineNote, Measurements};
use giveway_metasched::policy::{Policy, Turn};
use giveway_metasched::scheduler::EEVDF;
use giveway_metasched::system::System;
use giveway_metasched::tune::{self, Followed, Tried};

pub(crate) use prepare::{REQUIREMENTS, key, prepare};

use self::prepare::python;
use self::servers::Servers;
use super::row::{ApplicationRow, MetaRow, TurnNote};
use super::{MetaPlan, Under, raised};
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

/// The front end, by itself.
pub(crate) const API: &str = "api";
/// The back end, by itself.
pub(crate) const RETRIEVAL: &str = "retrieval";
/// Both.
pub(crate) const ASK: &str = "ask";

/// Loading a scheduler takes no longer, in the lab neither.
const LIMIT: Duration = Duration::from_secs(120);
/// What a run takes beside its length: wrk ends with its last answers.
const AROUND: f64 = 60.0;
/// The plan ends it, and the guest's own limit if need be.
const BUDGET: Duration = Duration::from_secs(86_400);

/// Measures all of it.
pub(super) fn run(plan: &MetaPlan, line: Progress<'_>) -> Result<Vec<MetaRow>> {
    line("the application's processes");
    let servers = Servers::start(&plan.prepared)?;
    let config = config(plan, &servers)?;
    let dir = tempfile::tempdir().map_err(|error| Error::Meta(error.to_string()))?;
    let found = raised(line, |line| measure(plan, &config, dir.path(), line));
    let (measured, tuned) = found.map_err(|error| Error::Meta(error.to_string()))?;
    let row = |application: &str, under| ApplicationRow {
        application: application.to_owned(),
        under,
        turns: Vec::new(),
        runs: Vec::new(),
        faults: Vec::new(),
        run_s: plan.run_s,
        repeat: plan.repeat,
        seed: plan.seed,
    };
    let mut rows = Vec::new();
    for cell in measured.cells {
        let name = cell.scheduler.clone();
        rows.push(ApplicationRow {
            runs: cell.runs,
            faults: cell.faults.into_iter().map(|fault| fault.what).collect(),
            ..row(&cell.application, Under::Single { name })
        });
    }
    for (tried, turns) in tuned {
        rows.push(ApplicationRow {
            turns: turns.iter().map(note).collect(),
            runs: tried.readings.into_iter().flatten().collect(),
            faults: tried.faults,
            ..row(ASK, under(tried.followed))
        });
    }
    Ok(rows.into_iter().map(MetaRow::Applications).collect())
}

/// What was tried, with the turns that schedulers had.
type Tunings = Vec<(Tried, Vec<Turn>)>;

/// What each part does under each scheduler, and the whole under each policy.
fn measure(
    plan: &MetaPlan,
    config: &Config,
    dir: &Path,
    line: Progress<'_>,
) -> giveway_metasched::Result<(Measurements, Tunings)> {
    let mut host = System::new(&dir.join("log"))?;
    let mut benchmarks = Commands::new(dir);
    let mut measured = Measurements::new(MachineNote::default());
    let repetitions = plan.count as usize;
    let parts = measure::Plan {
        applications: &config.applications,
        together: config.together.as_ref(),
        schedulers: &config.schedulers,
        repetitions,
        budget: BUDGET,
        limits: config.limits,
    };
    let never = || false;
    measure::measure(
        &parts,
        &mut measured,
        &mut host,
        &mut benchmarks,
        &never,
        &mut |step| match step {
            Step::Run {
                scheduler,
                application,
                ..
            } => line(&format!("{} under {scheduler}", application.unwrap_or(ASK))),
            Step::Fault { scheduler, what } => line(&format!("  {scheduler}: {what}")),
            Step::Left(_) => {}
        },
    )?;
    let slices = plan.base_timeslices_ms.iter();
    let slices: Vec<Duration> = slices.map(|ms| Duration::from_secs_f64(ms / 1e3)).collect();
    let whole = tune::Plan {
        config,
        policies: &Policy::ALL,
        base_timeslices: &slices,
        repetitions,
        budget: BUDGET,
    };
    let tuned = tune::tune(
        &whole,
        &measured,
        &mut host,
        &mut benchmarks,
        &never,
        &mut |followed, fault| match fault {
            None => line(&format!("{ASK} under {}", under(followed))),
            Some(what) => line(&format!("  {what}")),
        },
    )?;
    let choices = config.choices(&measured)?;
    let turns = |tried: &Tried| match tried.followed {
        None => Vec::new(),
        Some((policy, base)) => config.slices(policy, &choices, base).turns,
    };
    let tried = tuned.tried.into_iter();
    let tried = tried.map(|tried| {
        let turns = turns(&tried);
        (tried, turns)
    });
    let tried = tried.collect();
    Ok((measured, tried))
}

/// The parts, the whole, and who may be in force.
fn config(plan: &MetaPlan, servers: &Servers) -> Result<Config> {
    let others = plan.schedulers.iter().map(String::as_str);
    let names: Vec<String> = ["scx_ufs"]
        .into_iter()
        .chain(others)
        .map(|name| format!("'{name}'"))
        .collect();
    let text = format!("schedulers = [{}]\n", names.join(", "));
    let config = Config::parse(&text, Path::new("the applications' configuration"));
    let mut config = config.map_err(|error| Error::Meta(error.to_string()))?;
    config.limits.start = LIMIT;
    let application = |name: &str, command: Vec<String>, output| Application {
        name: name.to_owned(),
        command,
        output,
        cgroup: None,
        timeout_s: f64::from(plan.run_s) * 4.0 + AROUND,
    };
    let wrk = |name, port| application(name, wrk(plan, port), Output::Wrk);
    let alone = alone(plan, &servers.retrieval);
    config.applications = vec![
        wrk(API, servers.stub),
        application(RETRIEVAL, alone, Output::Json),
    ];
    config.together = Some(wrk(ASK, servers.whole));
    Ok(config)
}

/// Ten threads, twenty connections (section 3.1). A request that takes long is to be
/// counted, not given up.
fn wrk(plan: &MetaPlan, port: u16) -> Vec<String> {
    let prepared = |name: &str| plan.prepared.join(name).display().to_string();
    let mut command: Vec<String> = ["wrk", "-t10", "-c20", "--latency", "--timeout=60s"]
        .map(str::to_owned)
        .to_vec();
    command.extend([
        format!("-d{}s", plan.run_s),
        "-s".to_owned(),
        prepared("ask.lua"),
        format!("http://127.0.0.1:{port}/ask"),
        "--".to_owned(),
        prepared("requests.jsonl"),
    ]);
    command
}

/// A run of the back end, which is loaded already.
fn alone(plan: &MetaPlan, socket: &Path) -> Vec<String> {
    let script = plan.prepared.join("alone.py");
    let words = [
        python(&plan.prepared).as_path(),
        &script,
        Path::new("run"),
        socket,
    ]
    .map(|word| word.display().to_string());
    words.into_iter().chain([plan.run_s.to_string()]).collect()
}

fn under(followed: Followed) -> Under {
    match followed {
        None => Under::Single { name: EEVDF.into() },
        Some((policy, base)) => Under::Fixed {
            policy,
            base_timeslice_ms: base.as_secs_f64() * 1e3,
        },
    }
}

fn note(turn: &Turn) -> TurnNote {
    TurnNote {
        scheduler: turn.scheduler.clone(),
        applications: turn.applications.clone(),
        timeslice_ms: turn.timeslice.as_secs_f64() * 1e3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::meta::Part;

    fn plan() -> MetaPlan {
        MetaPlan {
            part: Part::Applications,
            schedulers: vec!["scx_simple -f".into()],
            count: 1,
            phase_s: 1.0,
            cycles: 1,
            run_s: 3,
            prepared: "/p".into(),
            base_timeslices_ms: vec![500.0],
            swap_ms: None,
            repeat: 0,
            seed: 1,
        }
    }

    #[test]
    fn wrk_posts_what_was_prepared_for_as_long_as_asked() {
        let words = wrk(&plan(), 8080).join(" ");
        assert!(words.starts_with("wrk -t10 -c20 --latency "), "{words}");
        assert!(
            words.ends_with("-d3s -s /p/ask.lua http://127.0.0.1:8080/ask -- /p/requests.jsonl"),
            "{words}"
        );
        let words = alone(&plan(), Path::new("/s")).join(" ");
        assert_eq!(words, "/p/python /p/alone.py run /s 3");
    }

    #[test]
    fn a_try_is_told_of_by_what_was_followed() {
        assert_eq!(under(None).to_string(), EEVDF);
        let followed = (Policy::DeltaWeighted, Duration::from_millis(500));
        assert_eq!(under(Some(followed)).to_string(), "delta_weighted, 500 ms");
    }
}
