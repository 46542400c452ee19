//! Claims about cores, caches, NUMA nodes and cpusets.
//!
//! Each runs twice where an option turns the feature off: `--flat` must show
//! the fault that the claim says is absent, or the scenario proves nothing.

use std::collections::HashSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use giveway_machine::topology;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::cgroup::Cgroup;
use crate::trace;
use crate::ufs::{Ufs, enable_seq};
use crate::worker::{Worker, burners, nr_cpus};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// For so many nanoseconds each CPU ran this task.
type Span = (u64, Vec<i32>);

/// The CPUs that a file of sysfs lists.
fn cpu_list(path: &str) -> Result<HashSet<usize>> {
    let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
    let cpus = topology::cpu_list(&text).with_context(|| path.to_owned())?;
    Ok(cpus.into_iter().collect())
}

/// The CPUs of this machine, also of partitions that this process is not in.
pub(crate) fn all_cpus() -> Result<usize> {
    Ok(cpu_list("/sys/devices/system/cpu/online")?.len())
}

/// The sets of CPUs that a file of each CPU in sysfs names, by CPU.
fn neighbours(file: &str) -> Result<Vec<HashSet<usize>>> {
    (0..all_cpus()?)
        .map(|cpu| cpu_list(&format!("/sys/devices/system/cpu/cpu{cpu}/{file}")))
        .collect()
}

fn cores() -> Result<Vec<HashSet<usize>>> {
    neighbours("topology/thread_siblings_list")
}

fn restrict(worker: &Worker, cpus: impl IntoIterator<Item = usize>) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(worker.pid()), &set)?)
}

/// Lets a task that was started with fewer CPUs run anywhere.
fn release(worker: &Worker) -> Result<()> {
    restrict(worker, 0..nr_cpus())
}

fn pids(workers: &[Worker]) -> HashSet<i32> {
    workers.iter().map(Worker::pid).collect()
}

/// What ran where in the last `span`. Recording has begun before that, since who
/// runs on a CPU is known from its first switch on.
fn recorded(span: Duration) -> Result<Vec<Span>> {
    let spans = trace::spans(&trace::stop()?, all_cpus()?)?;
    Ok(between(&spans, span, Duration::ZERO).to_vec())
}

/// The spans from `from` to `to` before the end.
fn between(spans: &[Span], from: Duration, to: Duration) -> &[Span] {
    let at = |before: Duration| {
        let mut left = before.as_nanos() as u64;
        let last = spans.iter().rposition(|(ns, _)| {
            let enough = left < *ns;
            left = left.saturating_sub(*ns);
            enough
        });
        last.map_or(0, |at| at + 1)
    };
    &spans[at(from)..at(to)]
}

/// The share of time in which `bad`, of the time in which `counts`, in percent.
fn percent(
    spans: &[Span],
    counts: impl Fn(&[i32]) -> bool,
    bad: impl Fn(&[i32]) -> bool,
) -> Result<f64> {
    let (mut of, mut in_all) = (0, 0);
    for (ns, runs) in spans.iter().filter(|(_, runs)| counts(runs)) {
        in_all += ns;
        of += if bad(runs) { *ns } else { 0 };
    }
    if in_all < 50_000_000 {
        bail!("{in_all} ns of what was to be seen: the trace proves nothing");
    }
    Ok(of as f64 * 100.0 / in_all as f64)
}

/// Runs `measure` with `--flat` and without; the first must be at least a quarter, in one of
/// several attempts, since a kernel thread may push one of two tasks away.
fn against_flat(
    ufs: &mut Ufs,
    what: &str,
    bound: f64,
    mut measure: impl FnMut() -> Result<f64>,
) -> Result<String> {
    const FAULT: f64 = 25.0;
    const ATTEMPTS: usize = 5;
    ufs.load(&["--flat"])?;
    let mut flat = measure()?;
    for _ in 1..ATTEMPTS {
        if flat >= FAULT {
            break;
        }
        flat = measure()?;
    }
    ufs.load(&[])?;
    let shaped = measure()?;
    let numbers = format!("{what}: {shaped:.1} % of the time, {flat:.1} % with --flat");
    if flat < FAULT {
        bail!("{numbers}: --flat does not show the fault, so nothing is shown");
    }
    if shaped > bound {
        bail!("{numbers}; wanted {bound} % at most");
    }
    Ok(numbers)
}

/// Time in which two of `urgent` share a core although another core has none, of
/// the time in which two of them run.
fn sharing(spans: &[Span], urgent: &HashSet<i32>) -> Result<f64> {
    let cores = cores()?;
    if cores.iter().all(|core| core.len() == 1) {
        bail!("the cores of this machine have one thread each");
    }
    let on = |runs: &[i32], cpus: &HashSet<usize>| {
        cpus.iter()
            .filter(|&&cpu| urgent.contains(&runs[cpu]))
            .count()
    };
    percent(
        spans,
        |runs| runs.iter().filter(|pid| urgent.contains(pid)).count() > 1,
        |runs| {
            cores.iter().any(|core| on(runs, core) > 1)
                && cores.iter().any(|core| on(runs, core) == 0)
        },
    )
}

/// What `measure` says of the time after `task` was put on `cpus` and released, `settle`
/// later: the middle one of several turns, since a kernel thread may be in its way in
/// some, and it does not come back by itself. Recording has begun, and ends. Known
/// weakness: a fault in four turns of nine is not seen.
fn in_turns(
    task: &Worker,
    cpus: &[usize],
    settle: Duration,
    measure: impl Fn(&[Span]) -> Result<f64>,
) -> Result<f64> {
    const TURNS: usize = 9;
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        restrict(task, cpus.iter().copied())?;
        sleep(10 * MS);
        release(task)?;
        sleep(settle);
        let start = Instant::now();
        sleep(80 * MS);
        turns.push((start, Instant::now()));
    }
    let end = Instant::now();
    let spans = trace::spans(&trace::stop()?, all_cpus()?)?;
    let mut said = turns
        .into_iter()
        .map(|(from, to)| measure(between(&spans, end - from, end - to)))
        .collect::<Result<Vec<_>>>()?;
    said.sort_by(f64::total_cmp);
    Ok(said[TURNS / 2])
}

/// The threads of a core.
fn threads(core: &HashSet<usize>) -> Vec<usize> {
    let mut cpus: Vec<usize> = core.iter().copied().collect();
    cpus.sort_unstable();
    cpus
}

/// Background work on every CPU; two tasks that wake often begin on one core.
pub(crate) fn wake_apart(ufs: &mut Ufs) -> Result<String> {
    against_flat(ufs, "two sleepers shared a core", 3.0, || {
        let top = Cgroup::top()?;
        let (background, sensitive) = (
            top.child("background", 10_000)?,
            top.child("time_sensitive", 1)?,
        );
        trace::start()?;
        let _burners = burners(&background, &[], 2 * nr_cpus())?;
        let sleepers = threads(&cores()?[0])
            .into_iter()
            .map(|cpu| Worker::sleeper(&sensitive, &[cpu], 500 * US, 2 * MS, 10_000))
            .collect::<Result<Vec<_>>>()?;
        sleep(100 * MS);
        for sleeper in &sleepers {
            release(sleeper)?;
        }
        sleep(450 * MS);
        sharing(&recorded(400 * MS)?, &pids(&sleepers))
    })
}

/// Two burners share a core, since a third has the only other CPU that one of them
/// may use. The third ends; the other cores are idle. (Among background work a
/// kernel thread soon pushes one of the two away, and `--flat` shows nothing.)
pub(crate) fn burn_apart(ufs: &mut Ufs) -> Result<String> {
    against_flat(ufs, "two burners shared a core", 3.0, || {
        let top = Cgroup::top()?;
        let sensitive = top.child("time_sensitive", 100)?;
        let cores = cores()?;
        let shared = threads(&cores[0]);
        let free = cores.iter().find(|core| **core != cores[0]);
        let free = threads(free.context("this machine has one core")?)[0];
        trace::start()?;
        let third = Worker::burner(&sensitive, &[free])?;
        let first = Worker::burner(&sensitive, &shared[..1])?;
        sleep(50 * MS);
        let second = Worker::burner(&sensitive, &[shared[1], free])?;
        sleep(50 * MS);
        drop(third);
        sleep(350 * MS);
        sharing(&recorded(300 * MS)?, &pids(&[first, second]))
    })
}

/// A background burner begins beside a time-sensitive one; the other cores are idle.
pub(crate) fn background_apart(ufs: &mut Ufs) -> Result<String> {
    against_flat(ufs, "background ran beside a burner", 3.0, || {
        let top = Cgroup::top()?;
        let (background, sensitive) = (
            top.child("background", 100)?,
            top.child("time_sensitive", 100)?,
        );
        let core = threads(&cores()?[0]);
        trace::start()?;
        let urgent = Worker::burner(&sensitive, &core[..1])?;
        let beside = Worker::burner(&background, &core[1..])?;
        sleep(50 * MS);
        // It moves when its slice ends.
        in_turns(&beside, &core[1..], 30 * MS, |spans| {
            percent(
                spans,
                |runs| runs[core[0]] == urgent.pid() && runs.contains(&beside.pid()),
                |runs| core[1..].iter().any(|&cpu| runs[cpu] == beside.pid()),
            )
        })
    })
}

/// A sleeper begins on the last CPU of `home`, where a burner is; the last CPU is
/// the worst, since the search goes upwards. `busy`: how many CPUs burners have.
fn stay(ufs: &mut Ufs, home: &HashSet<usize>, busy: usize) -> Result<String> {
    if home.len() == nr_cpus() || home.len() <= busy {
        bail!(
            "this machine lacks several such sets of CPUs, with {} at least",
            busy + 1
        );
    }
    let mut cpus: Vec<usize> = home.iter().copied().collect();
    cpus.sort_unstable();
    let taken = cpus.split_off(cpus.len() - busy);
    let away = |per_cpu: usize| {
        let top = Cgroup::top()?;
        let (background, sensitive) = (
            top.child("background", 10_000)?,
            top.child("time_sensitive", 1)?,
        );
        trace::start()?;
        let _background = burners(&background, &[], per_cpu * nr_cpus())?;
        let _urgent = taken
            .iter()
            .map(|&cpu| Worker::burner(&sensitive, &[cpu]))
            .collect::<Result<Vec<_>>>()?;
        let last = taken[busy - 1];
        let sleeper = Worker::sleeper(&sensitive, &[last], 500 * US, 2 * MS, 10_000)?;
        let runs_on = |runs: &[i32]| runs.iter().position(|&pid| pid == sleeper.pid());
        in_turns(&sleeper, &[last], Duration::ZERO, |spans| {
            percent(
                spans,
                |runs| runs_on(runs).is_some(),
                |runs| runs_on(runs).is_some_and(|cpu| !home.contains(&cpu)),
            )
        })
    };
    let among = against_flat(
        ufs,
        "a sleeper was away, among background work",
        3.0,
        || away(2),
    )?;
    // The kernel's own search, which --flat uses, knows caches and nodes too.
    let idle = away(0)?;
    let numbers = format!("{among}; among idle CPUs {idle:.1} %");
    if idle > 20.0 {
        bail!("{numbers}; wanted 20 % at most");
    }
    Ok(numbers)
}

/// A cache of which one CPU is taken.
pub(crate) fn stay_in_llc(ufs: &mut Ufs) -> Result<String> {
    stay(ufs, &neighbours("cache/index3/shared_cpu_list")?[0], 1)
}

/// A node of which the last cache is taken.
pub(crate) fn stay_in_node(ufs: &mut Ufs) -> Result<String> {
    let home = topology::cpus_of_node(0).into_iter().collect();
    let taken = neighbours("cache/index3/shared_cpu_list")?[0].len();
    stay(ufs, &home, taken)
}

/// Tasks in a partition of the last two CPUs stay there, others stay out, and get
/// the CPUs back; UFS stays loaded through it all.
pub(crate) fn partitions(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let seq = enable_seq();
    let cpus = all_cpus()?;
    let set = format!("{}-{}", cpus - 2, cpus - 1);
    let inside = |runs: &[i32], pids: &HashSet<i32>| {
        runs[cpus - 2..]
            .iter()
            .filter(|pid| pids.contains(pid))
            .count()
    };
    let outside = |runs: &[i32], pids: &HashSet<i32>| {
        runs[..cpus - 2]
            .iter()
            .filter(|pid| pids.contains(pid))
            .count()
    };
    // Busy with both tiers: what may run on two more CPUs would.
    let crowd = |top: &Cgroup| -> Result<(Cgroup, Cgroup, Vec<Worker>)> {
        let (background, sensitive) = (
            top.child("background", 100)?,
            top.child("time_sensitive", 100)?,
        );
        let mut workers = burners(&background, &[], cpus)?;
        for _ in 0..3 {
            workers.push(Worker::sleeper(&sensitive, &[], MS, 2 * MS, 100_000)?);
        }
        Ok((background, sensitive, workers))
    };
    let top = Cgroup::top()?;
    let (_background, _sensitive, crowd_outside) = crowd(&top)?;
    let others = pids(&crowd_outside);
    let mut verdicts = Vec::new();
    for kind in ["root", "isolated"] {
        for _ in 0..5 {
            drop(Cgroup::partition(&set, kind)?);
        }
        let partition = Cgroup::partition(&set, kind)?;
        trace::start()?;
        let (background, sensitive, crowd_inside) = crowd(&partition)?;
        let members = pids(&crowd_inside);
        sleep(350 * MS);
        let spans = recorded(300 * MS)?;
        let strays = percent(
            &spans,
            |_| true,
            |runs| outside(runs, &members) > 0 || inside(runs, &others) > 0,
        )?;
        let used = percent(&spans, |_| true, |runs| inside(runs, &members) == 2)?;
        trace::start()?;
        drop((crowd_inside, background, sensitive, partition));
        sleep(250 * MS);
        let spans = recorded(200 * MS)?;
        let back = percent(&spans, |_| true, |runs| inside(runs, &others) == 2)?;
        verdicts.push(format!(
            "{kind}: astray {strays:.2} %, members on both CPUs {used:.0} %, others back {back:.0} %"
        ));
        ufs.still_loaded_since(seq)?;
        if strays > 0.0 || used < 90.0 || back < 90.0 {
            bail!("{}; wanted 0 %, 90 % and 90 %", verdicts.join("; "));
        }
    }
    Ok(verdicts.join("; "))
}
