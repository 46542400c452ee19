//! Claims about hint slots and boosts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use giveway_hints::slot::{DIR, Table};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::cgroup::Cgroup;
use crate::hinted::Inversion;
use crate::lock_hints::Tell;
use crate::ufs::{Ufs, enable_seq};
use crate::worker::{Worker, percentile, used_by};

const MS: Duration = Duration::from_millis(1);
/// A user and a group without any right.
pub(crate) const NOBODY: u32 = 65534;

pub(crate) fn hint_count(sample: &Value, name: &str) -> u64 {
    sample["hints"][name].as_u64().unwrap_or(0)
}

/// A worker that asks for a tier and a weight, once it has its slot or none.
pub(crate) fn hinted(group: &Cgroup, tier: &str, weight: u32, id: u32) -> Result<(Worker, bool)> {
    let args = [tier.to_owned(), weight.to_string(), id.to_string()];
    let mut worker = Worker::start(group, &[0], "hinted", &args)?;
    let line = worker.line().context("a hinted worker said nothing")?;
    Ok((worker, line == "attached"))
}

/// A thread of a time-sensitive cgroup that says it may wait leaves the CPU to
/// one that does not.
pub(crate) fn lower(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    let (lowered, attached) = hinted(&sensitive, "background", 100, 0)?;
    let burner = Worker::burner(&sensitive, &[0])?;
    sleep(200 * MS);
    let (low, high) = used_by(&lowered, &burner, 2000 * MS)?;
    let numbers = format!("{low:.2} s beside {high:.2} s");
    // The floor gives it 5 % at most.
    if !attached || low > 0.15 || high < 1.6 {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// A background thread that asks for the other tier gets it with the right to
/// it, and not without.
pub(crate) fn raise(ufs: &mut Ufs) -> Result<String> {
    let group = NOBODY.to_string();
    let mut told = Vec::new();
    for (id, args, raised) in [
        (NOBODY, vec!["--hint-group", &group], false),
        (
            NOBODY,
            vec!["--hint-group", &group, "--hint-raise-group", &group],
            true,
        ),
        (0, vec![], true),
    ] {
        ufs.load(&args)?;
        let top = Cgroup::top()?;
        let background = top.child("background", 100)?;
        let (worker, attached) = hinted(&background, "time_sensitive", 100, id)?;
        let burner = Worker::burner(&background, &[0])?;
        sleep(200 * MS);
        let (asked, other) = used_by(&worker, &burner, 1000 * MS)?;
        let refused = hint_count(&ufs.stats()?, "refused");
        told.push(format!(
            "as {id} with {args:?} {asked:.2} s beside {other:.2} s"
        ));
        let is_raised = asked > 4.0 * other;
        if !attached || is_raised != raised || (refused > 0) == raised {
            bail!("{}: refused {refused} times", told.join(", "));
        }
    }
    Ok(told.join(", "))
}

/// Weights 2 and 3 among threads of one cgroup, in both tiers.
pub(crate) fn weight(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let mut told = Vec::new();
    for tier in ["background", "time_sensitive"] {
        let top = Cgroup::top()?;
        let group = top.child(tier, 100)?;
        let (a, _) = hinted(&group, tier, 200, 0)?;
        let (b, _) = hinted(&group, tier, 300, 0)?;
        sleep(300 * MS);
        let (a, b) = used_by(&a, &b, 3000 * MS)?;
        told.push(format!("{tier} {a:.2} s to {b:.2} s is {:.3}", a / b));
        if (a / b * 1.5 - 1.0).abs() > 0.07 {
            bail!("{}, by weight 0.667", told.join(", "));
        }
    }
    Ok(told.join(", "))
}

const PLAIN: Inversion = Inversion {
    chain: 1,
    spin: false,
    tell: Tell::Slot,
    burner: true,
    hold: Duration::from_millis(400),
    nap: Duration::ZERO,
    limit: Duration::from_secs(4),
};

/// How long the waiter waited on one CPU, in milliseconds; `None`: for ever.
fn wait_ms(inversion: Inversion) -> Result<Option<u64>> {
    let top = Cgroup::top()?;
    let group = top.child("time_sensitive", 100)?;
    let mut worker = Worker::start(&group, &[0], "invert", &inversion.to_args())?;
    let line = worker.line().context("an inversion said nothing")?;
    match line.as_str() {
        "never" => Ok(None),
        ms => Ok(Some(ms.parse()?)),
    }
}

/// The waiter's wait with a burner, hinted, against the same without a burner,
/// and without hints. Needs at most a quarter more than without.
fn inversion(ufs: &mut Ufs, with: Inversion, kind: &str) -> Result<String> {
    ufs.load(&["--boost-heavyweight"])?;
    let alone = Inversion {
        burner: false,
        ..with
    };
    let silent = Inversion {
        tell: Tell::Nothing,
        ..with
    };
    let base = wait_ms(alone)?.context("the waiter waited for ever without a burner")?;
    let before = ufs.stats()?;
    let hinted = wait_ms(with)?;
    let after = ufs.stats()?;
    let count = |name| hint_count(&after, name) - hint_count(&before, name);
    let boosts = count(kind);
    let without = wait_ms(silent)?;
    let numbers = format!(
        "waited {base} ms without a burner; with one, {hinted:?} ms hinted and {without:?} ms \
         not; {boosts} boosts, {} boosted runs for {} ms, {} fetched, {} yielded",
        count("boosted_runs"),
        count("boosted_ns") / 1_000_000,
        count("fetched"),
        count("yielded"),
    );
    if without.is_some_and(|ms| ms < 3 * base) {
        bail!("{numbers}: there was no inversion to avoid");
    }
    if boosts == 0 || hinted.is_none_or(|ms| ms > base * 5 / 4 + 10) {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// Holder, waiter, burner (Table 4 of the paper), with a lock that sleeps.
pub(crate) fn inversion_mutex(ufs: &mut Ufs) -> Result<String> {
    inversion(ufs, PLAIN, "boosts_lock")
}

/// The same with one that naps between attempts, as PostgreSQL's spinlocks do.
pub(crate) fn inversion_spin(ufs: &mut Ufs) -> Result<String> {
    inversion(
        ufs,
        Inversion {
            spin: true,
            ..PLAIN
        },
        "boosts_lock",
    )
}

/// Three background holders in a row, the last of which is waited for.
pub(crate) fn inversion_chain(ufs: &mut Ufs) -> Result<String> {
    let chain = Inversion {
        chain: 3,
        hold: 150 * MS,
        ..PLAIN
    };
    inversion(ufs, chain, "boosts_lock")
}

/// A holder that sleeps with the lock in hand.
pub(crate) fn inversion_nap(ufs: &mut Ufs) -> Result<String> {
    let nap = Inversion {
        nap: 100 * MS,
        hold: 300 * MS,
        ..PLAIN
    };
    inversion(ufs, nap, "boosts_lock")
}

/// As an unpatched server does: a lightweight lock, known by its tranche.
pub(crate) fn reader_tranche(ufs: &mut Ufs) -> Result<String> {
    let tell = Tell::Reader;
    inversion(ufs, Inversion { tell, ..PLAIN }, "boosts_tranche")
}

/// A spinlock that nobody records.
pub(crate) fn reader_rescue(ufs: &mut Ufs) -> Result<String> {
    let (tell, spin) = (Tell::Reader, true);
    inversion(
        ufs,
        Inversion {
            tell,
            spin,
            ..PLAIN
        },
        "boosts_rescue",
    )
}

/// A heavyweight lock, by the server's list of its holders.
pub(crate) fn reader_blocker(ufs: &mut Ufs) -> Result<String> {
    let tell = Tell::Heavyweight;
    inversion(ufs, Inversion { tell, ..PLAIN }, "boosts_blocker")
}

/// A holder that never releases is boosted for half of the time at most, and
/// the others get the rest.
pub(crate) fn expiry(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--boost-ms", "200"])?;
    let before = ufs.stats()?;
    let endless = Inversion {
        hold: Duration::from_secs(1000),
        spin: true,
        ..PLAIN
    };
    let waited = wait_ms(endless)?;
    let after = ufs.stats()?;
    let expired = hint_count(&after, "expired") - hint_count(&before, "expired");
    let boosted = hint_count(&after, "boosted_ns") - hint_count(&before, "boosted_ns");
    let share = boosted as f64 / endless.limit.as_nanos() as f64;
    let numbers = format!(
        "{expired} boosts expired in {} s, which had {:.0} % of the CPU",
        endless.limit.as_secs(),
        share * 100.0
    );
    if waited.is_some() || expired < 2 || !(0.2..0.6).contains(&share) {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// Without boosts an inversion lasts, and is counted: the holder once each time
/// that it lost its CPU, the waiter's sleep with its length.
pub(crate) fn counted(ufs: &mut Ufs) -> Result<String> {
    // The floor lets the holder end, 1 ms at a time.
    ufs.load(&["--boost-ms", "0", "--floor-deadline-ms", "200"])?;
    let before = ufs.stats()?;
    let short = Inversion {
        hold: 20 * MS,
        ..PLAIN
    };
    let waited = wait_ms(short)?.context("the floor did not let the holder end")?;
    let after = ufs.stats()?;
    let count = |name| hint_count(&after, name) - hint_count(&before, name);
    let (preempted, awaited) = (count("holders_preempted"), count("holders_awaited"));
    let (boosts, waits) = (count("boosts_lock"), count("lock_waits"));
    let longest_ms = hint_count(&after, "lock_wait_p999_ns") / 1_000_000;
    let numbers = format!(
        "waited {waited} ms; the holder was preempted {preempted} times and awaited {awaited} \
         times, {boosts} boosts; {waits} waits, the longest up to {longest_ms} ms"
    );
    let is_bound = waited <= longest_ms + 1 && longest_ms <= waited * 5 / 4 + 1;
    if boosts > 0 || awaited == 0 || preempted < awaited || waits != 1 || !is_bound {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// Three equals that hold locks for 50 us lose their CPU with a lock in hand ten times less
/// often with extensions than without, and one that wakes up waits for no longer than an
/// extension.
pub(crate) fn extended(ufs: &mut Ufs) -> Result<String> {
    const HELD_US: &str = "50";
    let mut told = Vec::new();
    let mut preempted = Vec::new();
    let mut late = Vec::new();
    for us in ["0", "200"] {
        ufs.load(&["--extension-us", us])?;
        let top = Cgroup::top()?;
        let group = top.child("time_sensitive", 100)?;
        let holders = (0..3)
            .map(|_| Worker::start(&group, &[0], "holds-now-and-then", &[HELD_US.to_owned()]))
            .collect::<Result<Vec<_>>>()?;
        sleep(200 * MS);
        let before = ufs.stats()?;
        let delays = Worker::sleeper(&group, &[0], 5 * MS, MS / 10, 400)?.delays_ns()?;
        let after = ufs.stats()?;
        drop(holders);
        let count = |name| hint_count(&after, name) - hint_count(&before, name);
        preempted.push(count("ts_holders_preempted"));
        late.push(percentile(&delays, 95));
        told.push(format!(
            "with {us} us {} holders preempted, {} slices extended, one that wakes up p95 {} us \
             late",
            count("ts_holders_preempted"),
            count("extended"),
            percentile(&delays, 95) / 1000,
        ));
    }
    let numbers = told.join("; ");
    if preempted[0] < 50 || preempted[1] * 10 > preempted[0] || late[1] > late[0] + 200_000 {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// A time-sensitive thread that says for ever that it holds a lock gets no more than its
/// equal.
pub(crate) fn endless_holder(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let group = top.child("time_sensitive", 100)?;
    let (holder, attached) = hinted(&group, "time_sensitive", 100, 0)?;
    let burner = Worker::burner(&group, &[0])?;
    sleep(200 * MS);
    let before = ufs.stats()?;
    let (holds, other) = used_by(&holder, &burner, 3000 * MS)?;
    let extended = hint_count(&ufs.stats()?, "extended") - hint_count(&before, "extended");
    let numbers = format!("{holds:.3} s beside {other:.3} s, {extended} slices extended");
    if !attached || extended == 0 || holds > 1.05 * other {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// Random bytes in every slot: a watcher without a slot is served as ever, and
/// UFS stays loaded; the next load finds the table unusable and makes another.
pub(crate) fn hostile(ufs: &mut Ufs) -> Result<String> {
    const SEED: u64 = 0x005c_41bb_1e00;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let sensitive = top.child("time_sensitive", 100)?;
    // A slot whose owner is overwritten before its tier says nothing any more, and the
    // scribbler may be as lucky with all of them: then again, with other bytes.
    for seed in SEED..SEED + 5 {
        ufs.load(&["--hint-slots", "64"])?;
        let seq = enable_seq();
        let mut hinted_workers = Vec::new();
        for i in 0..6 {
            let (group, tier) =
                [(&background, "background"), (&sensitive, "time_sensitive")][i % 2];
            hinted_workers.push(hinted(group, tier, 100, 0)?);
        }
        let watcher = Worker::sleeper(&sensitive, &[1], 5 * MS, MS / 10, 600)?;
        let _scribbler = Worker::start(&background, &[1], "scribble", &[seed.to_string()])?;
        let delays = watcher.delays_ns()?;
        ufs.still_loaded_since(seq)?;
        let stats = ufs.stats()?;
        let numbers = format!(
            "seed {seed:#x}: {} changes of tier, {} boosts, {} failed reads; a watcher woke p99 \
             {} us late, worst {} us",
            hint_count(&stats, "tier_changes"),
            hint_count(&stats, "boosts_lock") + hint_count(&stats, "boosts_rescue"),
            hint_count(&stats, "failed_reads"),
            percentile(&delays, 99) / 1000,
            delays[delays.len() - 1] / 1000,
        );
        // A boosted task may take its row of slices first: 8 ticks.
        if delays[delays.len() - 1] > 50_000_000 {
            bail!("{numbers}");
        }
        if hint_count(&stats, "tier_changes") > 0 {
            return Ok(numbers);
        }
    }
    bail!("the slots were never read, so nothing was tested")
}

/// The slot of a thread that is killed is free again.
pub(crate) fn kill9_of_a_client(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--hint-slots", "1"])?;
    let top = Cgroup::top()?;
    let group = top.child("time_sensitive", 100)?;
    for round in 0..5 {
        let (worker, attached) = hinted(&group, "background", 100, 0)?;
        sleep(50 * MS);
        // Dropping kills.
        drop(worker);
        if !attached {
            bail!("the slot was not free in round {round}");
        }
    }
    let reclaimed = hint_count(&ufs.stats()?, "slots_reclaimed");
    if reclaimed < 5 {
        bail!("{reclaimed} slots taken back of 5");
    }
    // Also when nobody is there to see the end of it.
    let (worker, _) = hinted(&group, "background", 100, 0)?;
    ufs.stop(Signal::SIGTERM)?;
    drop(worker);
    ufs.load(&["--hint-slots", "1"])?;
    let (_worker, attached) = hinted(&group, "background", 100, 0)?;
    if !attached {
        bail!("the slot of a thread that ended without UFS was not swept");
    }
    Ok(format!("{reclaimed} slots taken back, and one swept"))
}

/// UFS leaves and comes back: what its clients have said still holds.
pub(crate) fn restart(ufs: &mut Ufs) -> Result<String> {
    let others = ["--hint-group", &NOBODY.to_string()];
    ufs.load(&others)?;
    let top = Cgroup::top()?;
    let group = top.child("time_sensitive", 100)?;
    let (lowered, _) = hinted(&group, "background", 100, 0)?;
    let (user_s, _) = hinted(&group, "background", 100, NOBODY)?;
    let burner = Worker::burner(&group, &[0])?;
    let table = Table::open(None)?;
    ufs.stop(Signal::SIGKILL)?;
    sleep(100 * MS);
    if table.is_active() {
        bail!("the table says that somebody reads it, and nobody does");
    }
    ufs.load(&others)?;
    sleep(200 * MS);
    let before = user_s.seconds()?;
    let (low, high) = used_by(&lowered, &burner, 1000 * MS)?;
    let user_low = user_s.seconds()? - before;
    let numbers =
        format!("after the restart {low:.2} s, a user's {user_low:.2} s, beside {high:.2} s");
    if !table.is_active() || table.is_replaced() || low + user_low > 0.1 || high < 0.8 {
        bail!("{numbers}");
    }
    // Another size takes another table, and clients can see it.
    ufs.load(&["--hint-slots", "100"])?;
    if !table.is_replaced() || !Table::open(None)?.is_active() {
        bail!("{numbers}, but a table of another size did not replace this one");
    }
    Ok(numbers)
}

/// Threads beyond the last slot are what their cgroup is, and UFS goes on.
pub(crate) fn exhausted(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--hint-slots", "2"])?;
    let seq = enable_seq();
    let top = Cgroup::top()?;
    let group = top.child("time_sensitive", 100)?;
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(hinted(&group, "background", 100, 0)?);
    }
    sleep(200 * MS);
    let before: Vec<f64> = workers
        .iter()
        .map(|(worker, _)| worker.seconds())
        .collect::<Result<_>>()?;
    sleep(1000 * MS);
    let mut told = Vec::new();
    for ((worker, attached), before) in workers.iter().zip(before) {
        let used = worker.seconds()? - before;
        told.push(format!(
            "{used:.2} s {}",
            if *attached { "lowered" } else { "not" }
        ));
        if (used < 0.1) != *attached {
            bail!("{}", told.join(", "));
        }
    }
    ufs.still_loaded_since(seq)?;
    if workers.iter().filter(|(_, attached)| *attached).count() != 2 {
        bail!("{} at {DIR}", told.join(", "));
    }
    Ok(told.join(", "))
}

/// A client that may not enter the directory gets the table over the socket, if
/// it is of the group, and nothing if it is not.
pub(crate) fn passed_on(ufs: &mut Ufs) -> Result<String> {
    let group = NOBODY.to_string();
    for (args, wanted) in [(vec!["--hint-group", &group], true), (vec![], false)] {
        ufs.load(&args)?;
        fs::set_permissions(DIR, fs::Permissions::from_mode(0o700))?;
        let top = Cgroup::top()?;
        let sensitive = top.child("time_sensitive", 100)?;
        let (_worker, attached) = hinted(&sensitive, "background", 100, NOBODY)?;
        if attached != wanted {
            bail!("with {args:?} the client has a slot: {attached}");
        }
    }
    Ok("to the group, and to nobody else".to_owned())
}
