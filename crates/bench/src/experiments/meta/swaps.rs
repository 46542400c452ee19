//! Many swaps under load while things go wrong.
//!
//! Schedulers take turns; one of them cannot be loaded. Whenever one has been in
//! force for a moment its process may be killed, or stopped so that it does not
//! hear. Meanwhile clients check their answers, an ordinary thread writes down the
//! longest that it had to wait, and somebody compares what the metascheduler says
//! with what the kernel says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use giveway_machine::sched_ext::SchedExt;
use giveway_metasched::supervisor::Standing;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::MetaPlan;
use super::driver::Driver;
use super::groups::Groups;
use super::load::{Load, Phase, Shape};
use super::phases::UFS_ROWS;
use super::row::{MetaRow, SwapsRow};
use crate::harness::Progress;
use crate::harness::error::Result;

/// The longest that a run may take, for each start that is wanted.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long what is said may lag behind the kernel: the metascheduler looks every
/// 100 ms, and a step of it may take as long.
const LAG: Duration = Duration::from_millis(300);
/// Every how many starts something is done to a scheduler's process.
const MISHAP_EVERY: u64 = 5;
/// How long it is in force before.
const BEFORE: Duration = Duration::from_millis(50);

/// Turns of the run, and limits that suit its length.
fn config(plan: &MetaPlan) -> String {
    let mut text = String::from(UFS_ROWS);
    text += "[[scheduler]]\nname = 'broken'\nops = 'broken'\n\
             command = ['sh', '-c', 'echo no luck >&2; exit 1']\n";
    let names = ["ufs-oltp", "ufs-batch"].into_iter();
    let others = plan.schedulers.iter().map(String::as_str);
    for name in names.chain(others).chain(["broken"]) {
        text += &format!("[[turn]]\nscheduler = '{name}'\ntimeslice_ms = 300\n");
    }
    text + "[limits]\nstart_s = 60\nstop_s = 0.5\nstarved_s = 2\n\
            back_off_s = 0.1\nback_off_max_s = 0.2\nproven_s = 1\n"
}

/// Runs until so many schedulers have come into force.
pub(super) fn run(plan: &MetaPlan, line: Progress<'_>) -> Result<Vec<MetaRow>> {
    let _groups = Groups::make()?;
    let load = Load::start(plan.seed, Shape::EVALUATION)?;
    let driver = Driver::start(&config(plan))?;
    let over = AtomicBool::new(false);
    let began = Instant::now();
    load.enter(Phase::Burst)?;
    let (mishaps, honesty, gap, waited) = thread::scope(|scope| {
        let mishaps = scope.spawn(|| mishaps(&driver, &over));
        let honesty = scope.spawn(|| honesty(&driver, &over));
        let gap = scope.spawn(|| longest_gap(&over));
        let enough = u64::from(plan.count);
        let waited = driver.wait("end of it", PATIENCE * plan.count, |seen| {
            seen.starts() >= enough
        });
        over.store(true, Relaxed);
        let join = "it does not panic";
        (
            mishaps.join().expect(join),
            honesty.join().expect(join),
            gap.join().expect(join),
            waited,
        )
    });
    waited?;
    load.enter(Phase::Rest)?;
    let seconds = began.elapsed().as_secs_f64();
    let seen = driver.end()?;
    let (oltp, _) = load.end()?;
    let mut faults: BTreeMap<String, u64> = BTreeMap::new();
    for fault in seen.faults() {
        *faults.entry(fault.to_owned()).or_default() += 1;
    }
    let refusals = seen
        .faults()
        .filter(|fault| fault.starts_with("broken "))
        .count();
    let row = SwapsRow {
        starts: seen.starts(),
        kills: mishaps.kills,
        stops: mishaps.stops,
        refusals: refusals as u64,
        answers: oltp.count() as u64,
        errors: oltp.errors,
        gap_ms: gap.as_secs_f64() * 1e3,
        looks: honesty.looks,
        lies: honesty.lies,
        left: SchedExt::this().state().to_string(),
        faults: faults.into_iter().collect(),
        seconds,
        repeat: plan.repeat,
        seed: plan.seed,
    };
    line(&format!(
        "swaps: {} starts, {} answers, {} errors",
        row.starts, row.answers, row.errors
    ));
    Ok(vec![MetaRow::Swaps(row)])
}

struct Mishaps {
    kills: u64,
    stops: u64,
}

/// Kills and stops processes of schedulers that are in force, in turn.
fn mishaps(driver: &Driver, over: &AtomicBool) -> Mishaps {
    let mut done = Mishaps { kills: 0, stops: 0 };
    let mut next = MISHAP_EVERY;
    while !over.load(Relaxed) {
        thread::sleep(Duration::from_millis(10));
        let seen = driver.seen();
        let runs = matches!(
            seen.status.as_ref().map(|status| &status.standing),
            Some(Standing::Running(_))
        );
        if seen.starts() < next || !runs {
            continue;
        }
        thread::sleep(BEFORE);
        // Another one may be in force by now: that is as good.
        let Some(process) = driver.seen().process else {
            continue;
        };
        next += MISHAP_EVERY;
        let (signal, count) = match done.kills > done.stops {
            true => (Signal::SIGSTOP, &mut done.stops),
            false => (Signal::SIGKILL, &mut done.kills),
        };
        if kill(Pid::from_raw(process), signal).is_ok() {
            *count += 1;
        }
    }
    done
}

struct Honesty {
    looks: u64,
    lies: u64,
}

/// Compares what is said to be in force with the kernel's word.
fn honesty(driver: &Driver, over: &AtomicBool) -> Honesty {
    let mut found = Honesty { looks: 0, lies: 0 };
    let mut since: Option<Instant> = None;
    while !over.load(Relaxed) {
        thread::sleep(Duration::from_millis(20));
        let Some(status) = driver.seen().status else {
            continue;
        };
        let kernel = SchedExt::this().state().to_string();
        found.looks += 1;
        let is_so = match &status.standing {
            Standing::Running(name) => {
                let ops = name.trim_start_matches("scx_");
                let ops = ops.split([' ', '-']).next().unwrap_or_default();
                kernel.starts_with(ops)
            }
            Standing::Own | Standing::Aside(_) => kernel == "disabled",
            // Either may be so while it comes and goes.
            Standing::Starting(_) | Standing::Stopping(_) => true,
        };
        match (is_so, since) {
            (true, _) => since = None,
            (false, None) => since = Some(Instant::now()),
            (false, Some(at)) if at.elapsed() > LAG => {
                found.lies += 1;
                since = None;
            }
            (false, Some(_)) => {}
        }
    }
    found
}

/// The longest that an ordinary thread was kept from running: what passes between
/// two looks at the clock, a nap of a millisecond apart.
fn longest_gap(over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    while !over.load(Relaxed) {
        thread::sleep(Duration::from_millis(1));
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::meta::Part;
    use giveway_metasched::config::Config;
    use std::path::PathBuf;

    #[test]
    fn the_configuration_is_one_and_has_a_scheduler_that_cannot_be_loaded() {
        let plan = MetaPlan {
            part: Part::Swaps,
            schedulers: vec!["scx_simple".into()],
            count: 1,
            phase_s: 1.0,
            cycles: 1,
            run_s: 1,
            prepared: PathBuf::new(),
            base_timeslices_ms: Vec::new(),
            swap_ms: None,
            repeat: 0,
            seed: 1,
        };
        let config = Config::parse(&config(&plan), "f".as_ref()).unwrap();
        let names: Vec<&str> = config.turns.iter().map(|t| t.scheduler.as_str()).collect();
        assert_eq!(names, ["ufs-oltp", "ufs-batch", "scx_simple", "broken"]);
    }
}
