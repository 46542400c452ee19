//! Claims about locks that are handed from one to another, and slots that change hands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use giveway_hints::slot::{Slot, Table};
use giveway_tier::Tier;

use crate::cgroup::Cgroup;
use crate::hinting::hint_count;
use crate::ufs::Ufs;
use crate::worker::{Worker, burn_for, used_by};

const MS: Duration = Duration::from_millis(1);
/// A lock that nobody knows of but by hints, and where its number means something.
const LOCK: u64 = 4711;
const DOMAIN: u64 = 1;

fn attach(table: &Table, tier: Tier) -> Result<Slot> {
    let slot = table.attach().context("no slot is free")?;
    slot.set_domain(DOMAIN);
    slot.set_tier(tier);
    Ok(slot)
}

/// A background holder lets go of a lock and then wakes two that waited for it, as
/// PostgreSQL wakes those that may share a lock. The first one takes the CPU from it. The
/// second is woken all the same, though urgent work wants the CPU all the time.
pub(crate) fn woken(ufs: &mut Ufs) -> Result<String> {
    const ROUNDS: usize = 3;
    ufs.load(&["--floor-deadline-ms", "1000"])?;
    let mut told = Vec::new();
    for _ in 0..ROUNDS {
        let top = Cgroup::top()?;
        let sensitive = top.child("time_sensitive", 100)?;
        let mut worker = Worker::start(&sensitive, &[0], "hand-over", &[])?;
        told.push(worker.line().context("nobody was woken")?.parse::<u64>()?);
    }
    let numbers = format!("the second was woken {told:?} ms after the first");
    // A boosted slice, and a tick.
    if told.iter().any(|&ms| ms > 50) {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// A slot is taken from a thread that waits in its queue, and becomes that of another one,
/// which holds a lock and waits in a queue, too. When the first thread runs and finds that
/// the slot is not its own any more, that says nothing of the second: it is boosted for
/// the next one that waits for its lock.
pub(crate) fn next_owner(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--hint-slots", "2"])?;
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    let start = |cpu, kind| {
        let mut worker = Worker::start(&sensitive, &[cpu], kind, &[DOMAIN.to_string()])?;
        worker.line().context("it has no slot")?;
        sleep(50 * MS);
        Ok::<_, anyhow::Error>(worker)
    };
    let first = start(1, "holder")?;
    let before = Worker::burner(&sensitive, &[1])?;
    let third = Worker::burner(&sensitive, &[0])?;
    sleep(100 * MS);
    let dead = first.pid() as u32;
    if Table::open(None)?.reclaim(|tid, _| tid != dead) != 1 {
        bail!("the first has no slot");
    }
    let second = start(0, "holder")?;
    sleep(100 * MS);
    drop(before);
    sleep(100 * MS);
    let _waiter = start(0, "waiter")?;
    let (others, held) = used_by(&third, &second, 500 * MS)?;
    let numbers = format!("{held:.2} s of the next owner beside {others:.2} s");
    if held < 0.3 {
        bail!("{numbers}: it is not boosted");
    }
    Ok(numbers)
}

/// A holder that never lets go takes a new slot whenever it can, for the sake of another
/// boost. It gets none for as long as one lasts, as with one slot.
pub(crate) fn renewed(ufs: &mut Ufs) -> Result<String> {
    const SPAN: Duration = Duration::from_secs(4);
    ufs.load(&["--boost-ms", "200"])?;
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    let background = top.child("background", 100)?;
    // It leaves the CPU now and then, or the holder could do nothing without a boost.
    let _third = Worker::sleeper(&sensitive, &[0], 5 * MS, 50 * MS, 1000)?;
    let mut waiter = Worker::start(&sensitive, &[0], "waiter", &[DOMAIN.to_string()])?;
    waiter.line().context("it has no slot")?;
    let _holder = Worker::start(&background, &[0], "holds-anew", &[])?;
    sleep(300 * MS);
    let before = ufs.stats()?;
    sleep(SPAN);
    let after = ufs.stats()?;
    let count = |name| hint_count(&after, name) - hint_count(&before, name);
    let share = count("boosted_ns") as f64 / SPAN.as_nanos() as f64;
    let numbers = format!(
        "{} slots, {} boosts expired, {:.0} % of the CPU boosted",
        count("slots_found"),
        count("expired"),
        share * 100.0
    );
    if count("slots_found") < 4 || count("expired") < 2 || share > 0.6 {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// Waits for the lock until it is woken; then when that was, since `began`.
fn wait_for_it(began: Instant, woken_us: &AtomicU64) -> Result<()> {
    let slot = attach(&Table::open(None)?, Tier::TimeSensitive)?;
    slot.wait(LOCK);
    thread::park();
    slot.wait_done();
    woken_us.store(began.elapsed().as_micros() as u64, Ordering::Relaxed);
    Ok(())
}

/// Prints how long after the first of two waiters the second was woken, in milliseconds.
pub(crate) fn hand_over() -> Result<()> {
    let began = Instant::now();
    let holds = Arc::new(AtomicU64::new(0));
    let (say, said) = std::sync::mpsc::channel::<Vec<Thread>>();
    let holds_too = holds.clone();
    thread::spawn(move || -> Result<()> {
        let slot = attach(&Table::open(None)?, Tier::Background)?;
        slot.hold(LOCK);
        holds_too.store(1, Ordering::Relaxed);
        let waiters = said.recv()?;
        burn_for(50 * MS);
        slot.release(LOCK);
        for waiter in waiters {
            waiter.unpark();
        }
        loop {
            burn_for(1000 * MS);
        }
    });
    while holds.load(Ordering::Relaxed) == 0 {
        sleep(MS);
    }
    let woken_us: [Arc<AtomicU64>; 2] = Default::default();
    let waiters = woken_us.clone().map(|woken_us| {
        let waiter = thread::spawn(move || wait_for_it(began, &woken_us));
        waiter.thread().clone()
    });
    sleep(20 * MS);
    thread::spawn(|| {
        loop {
            burn_for(1000 * MS);
        }
    });
    say.send(waiters.into())?;
    let woken = || woken_us.each_ref().map(|us| us.load(Ordering::Relaxed));
    let limit = began.elapsed() + Duration::from_secs(5);
    while woken().contains(&0) && began.elapsed() < limit {
        sleep(5 * MS);
    }
    let [first, second] = woken();
    println!("{}", first.abs_diff(second) / 1000);
    std::process::exit(0);
}

/// Holds the lock in one slot after another.
pub(crate) fn hold_anew() -> Result<()> {
    let table = Table::open(None)?;
    loop {
        let slot = attach(&table, Tier::Background)?;
        slot.hold(LOCK);
        burn_for(250 * MS);
        drop(slot);
        sleep(MS);
    }
}
