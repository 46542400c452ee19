//! Claims about cpu.max.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::cgroup::Cgroup;
use crate::hinting::hinted;
use crate::ufs::{Ufs, enable_seq};
use crate::worker::{Worker, burners, nr_cpus, until_they_burn};

const MS: Duration = Duration::from_millis(1);
const TIERS: [&str; 2] = ["background", "time_sensitive"];
/// The kernel's default, in microseconds.
const PERIOD_US: u64 = 100_000;

/// What is used may be this far from what is allowed.
const TOLERANCE: f64 = 0.05;

/// A cgroup and what it should use, in percent of a CPU.
type Expected<'a> = (&'a Cgroup, u64);

/// What each cgroup used in `span`, in percent of a CPU.
fn percents<'a>(
    groups: impl IntoIterator<Item = &'a Cgroup> + Clone,
    span: Duration,
) -> Result<Vec<f64>> {
    let seconds = || -> Result<Vec<f64>> {
        let groups = groups.clone().into_iter();
        groups.map(Cgroup::seconds).collect()
    };
    let start = Instant::now();
    let before = seconds()?;
    sleep(span);
    let after = seconds()?;
    let spent = start.elapsed().as_secs_f64();
    let used = after.iter().zip(before);
    Ok(used.map(|(a, b)| 100.0 * (a - b) / spent).collect())
}

/// Fails unless each cgroup uses what is expected of it.
fn check(groups: &[Expected<'_>], span: Duration) -> Result<String> {
    let used = percents(groups.iter().map(|&(group, _)| group), span)?;
    let pairs: Vec<(f64, f64)> = used
        .into_iter()
        .zip(groups.iter().map(|&(_, allowed)| allowed as f64))
        .collect();
    let numbers: Vec<String> = pairs
        .iter()
        .map(|(used, allowed)| format!("{used:.1} % of {allowed} %"))
        .collect();
    let numbers = numbers.join(", ");
    if pairs
        .iter()
        .any(|(used, allowed)| (used / allowed - 1.0).abs() > TOLERANCE)
    {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// `percent` of a CPU, as cpu.max says it.
fn limit(percent: u64) -> String {
    format!("{} {PERIOD_US}", percent * PERIOD_US / 100)
}

/// Limits from a tenth of a CPU to four CPUs, side by side and alone, each with
/// more burners than it may use CPUs.
pub(crate) fn each_tier(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    if nr_cpus() < 4 {
        bail!("{} CPUs: this needs 4", nr_cpus());
    }
    let top = Cgroup::top()?;
    let mut verdicts = Vec::new();
    for name in TIERS {
        let tier = top.child(name, 100)?;
        for limits in [&[10, 40, 300][..], &[100, 200], &[400]] {
            let groups: Vec<Cgroup> = limits
                .iter()
                .map(|percent| tier.child(&format!("l{percent}"), 100))
                .collect::<Result<_>>()?;
            let mut workers = Vec::new();
            for (group, &percent) in groups.iter().zip(limits) {
                // Before the limit, which would make their start take its time.
                workers.push(burners(group, &[], 4)?);
                group.set_max(&limit(percent))?;
            }
            sleep(500 * MS);
            let expected: Vec<Expected<'_>> = groups.iter().zip(limits.iter().copied()).collect();
            // A tick on each of four CPUs at either end is 2 % of the least limit's.
            let span = MS * 80_000 / limits[0].min(40) as u32;
            verdicts.push(format!("{name} {}", check(&expected, span)?));
        }
    }
    Ok(verdicts.join("; "))
}

/// p 60 %/{a 20 %, b/inner}: what a leaves of p's is b's, and no more. If b uses up p's
/// limit first, as it may while a's burners share a CPU, a stays below its own: with one of
/// 20 seeds by 6.5 %.
pub(crate) fn nested(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let mut verdicts = Vec::new();
    for name in TIERS {
        let tier = top.child(name, 100)?;
        let p = tier.child("p", 100)?;
        let (a, b) = (p.child("a", 100)?, p.child("b", 100)?);
        let inner = b.child("inner", 100)?;
        let _burners = (burners(&a, &[], 2)?, burners(&inner, &[], 2)?);
        p.set_max(&limit(60))?;
        a.set_max(&limit(20))?;
        sleep(500 * MS);
        let used = percents([&p, &a, &b], 4000 * MS)?;
        let [all, limited, rest] = used[..] else {
            unreachable!("a number for each cgroup");
        };
        let said =
            format!("{name} {all:.1} % of 60 %, {limited:.1} % of 20 %, {rest:.1} % are left");
        // The rest is what the parent's use leaves: it needs no bound of its own.
        if (all / 60.0 - 1.0).abs() > TOLERANCE
            || !(18.0..=20.0 * (1.0 + TOLERANCE)).contains(&limited)
        {
            bail!("{said}");
        }
        verdicts.push(said);
    }
    Ok(verdicts.join("; "))
}

/// In the two seconds that follow each change of quota or period.
pub(crate) fn change(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let mut verdicts = Vec::new();
    for name in TIERS {
        let tier = top.child(name, 100)?;
        let group = tier.child("changed", 100)?;
        let _burners = burners(&group, &[], 2)?;
        for (max, percent) in [
            ("50000 100000", 50),
            ("20000 100000", 20),
            ("20000 20000", 100),
            ("max 100000", 200),
            ("250000 1000000", 25),
        ] {
            group.set_max(max)?;
            verdicts.push(format!(
                "{name} {max}: {}",
                check(&[(&group, percent)], 2000 * MS)?
            ));
        }
    }
    Ok(verdicts.join("; "))
}

/// Forty tasks share a hundredth of a CPU: none of them waits for long enough
/// that the kernel ejects UFS, and the cgroup is limited all the same.
pub(crate) fn crowd(ufs: &mut Ufs) -> Result<String> {
    const TASKS: usize = 40;
    ufs.load_with(
        &["--floor-deadline-ms", "1000"],
        &[("SCX_TIMEOUT_MS", "4000")],
    )?;
    let seq = enable_seq();
    let top = Cgroup::top()?;
    let mut verdicts = Vec::new();
    for name in TIERS {
        let tier = top.child(name, 100)?;
        let mut workers = burners(&tier, &[], TASKS)?;
        until_they_burn(&mut workers)?;
        let runs = || -> Result<Vec<f64>> { workers.iter().map(Worker::seconds).collect() };
        tier.set_max(&limit(1))?;
        sleep(500 * MS);
        let before = runs()?;
        let used = percents([&tier], 8000 * MS)?[0];
        let stood = before.iter().zip(runs()?).filter(|(a, b)| *a == b).count();
        ufs.still_loaded_since(seq)?;
        // So that they can end.
        tier.set_max("max")?;
        verdicts.push(format!(
            "{name} {used:.1} % of 1 %, {stood} of {TASKS} stood still"
        ));
        // A tick on each CPU is forgiven every half of a deadline: 3.2 %.
        if stood > 0 || used > 8.0 {
            bail!("{}", verdicts.join("; "));
        }
    }
    Ok(verdicts.join("; "))
}

/// A task that its limit holds for a second does not make the kernel eject UFS,
/// whose limit is 0.7 s here: the floor runs it meanwhile.
pub(crate) fn long_period(ufs: &mut Ufs) -> Result<String> {
    ufs.load_with(
        &["--floor-deadline-ms", "200"],
        &[("SCX_TIMEOUT_MS", "700")],
    )?;
    let seq = enable_seq();
    let top = Cgroup::top()?;
    let mut verdicts = Vec::new();
    for name in TIERS {
        let tier = top.child(name, 100)?;
        let _burner = Worker::burner(&tier, &[])?;
        tier.set_max("10000 1000000")?;
        let used = percents([&tier], 4000 * MS)?[0];
        ufs.still_loaded_since(seq)?;
        let runs = ufs.stats()?["tiers"][name]["floor_runs"].as_u64();
        verdicts.push(format!("{name} {used:.1} % of 1 %, {runs:?} floor runs"));
        // A tick every deadline is the floor's: 2 %.
        if runs.unwrap_or(0) < 5 || used > 5.0 {
            bail!("{}", verdicts.join("; "));
        }
        tier.set_max("max")?;
    }
    Ok(verdicts.join("; "))
}

/// A background task that holds a lock runs beyond its cgroup's limit while urgent
/// work waits for the lock, and its cgroup pays for that afterwards.
pub(crate) fn boosted(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let (background, sensitive) = (
        top.child("background", 100)?,
        top.child("time_sensitive", 100)?,
    );
    let (_holder, attached) = hinted(&background, "background", 100, 0)?;
    background.set_max(&limit(20))?;
    sleep(500 * MS);
    let used = || -> Result<f64> { Ok(percents([&background], 1000 * MS)?[0]) };
    let alone = used()?;
    let mut waiter = Worker::start(&sensitive, &[0], "wait", &[])?;
    let waits = waiter.line();
    let awaited = used()?;
    drop(waiter);
    let paying = used()?;
    let numbers = format!(
        "{alone:.1} % of 20 % with a lock in hand, {awaited:.1} % while it was waited for, \
         {paying:.1} % in the second after"
    );
    if !attached || waits.is_none() || alone > 22.0 || awaited < 80.0 || paying > 10.0 {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// On one CPU y and z share by their weights, 1 to 3, what is left by x, which competes
/// until it has used up its limit, time and again: its weight and its limit in percent.
pub(crate) fn others(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let tier = top.child("background", 100)?;
    let (x, y) = (tier.child("x", 100)?, tier.child("y", 100)?);
    let z = tier.child("z", 300)?;
    let _burners = (
        burners(&x, &[0], 2)?,
        burners(&y, &[0], 2)?,
        burners(&z, &[0], 2)?,
    );
    let mut verdicts = Vec::new();
    let mut holds = true;
    for (weight, percent) in [(300, 10), (300, 30), (1000, 50)] {
        x.set_weight(weight)?;
        x.set_max(&limit(percent))?;
        sleep(500 * MS);
        let used = percents([&x, &y, &z], 4000 * MS)?;
        let ratio = used[2] / used[1];
        holds &= (2.7..3.3).contains(&ratio);
        verdicts.push(format!(
            "beside {weight} with {percent} %: {used:.1?} %, {ratio:.2} to 1"
        ));
    }
    let numbers = verdicts.join("; ");
    match holds {
        true => Ok(numbers),
        false => bail!("{numbers}; by weight 3 to 1"),
    }
}

/// The same limit, held and, when UFS is told so, not.
pub(crate) fn switched_off(ufs: &mut Ufs) -> Result<String> {
    let mut used = Vec::new();
    for args in [&[][..], &["--no-cpu-max"]] {
        ufs.load(args)?;
        let top = Cgroup::top()?;
        let group = top.child("limited", 100)?;
        let _burner = burners(&group, &[], 1)?;
        group.set_max(&limit(20))?;
        sleep(200 * MS);
        used.push(percents([&group], 2000 * MS)?[0]);
    }
    let numbers = format!("{:.1} % of 20 %, {:.1} % without", used[0], used[1]);
    if used[0] > 22.0 || used[1] < 90.0 {
        bail!("{numbers}");
    }
    Ok(numbers)
}
