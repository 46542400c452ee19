//! Claims about tiers and weights.

use std::collections::{HashMap, HashSet};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cgroup::Cgroup;
use crate::placing::all_cpus;
use crate::trace;
use crate::ufs::Ufs;
use crate::worker::{Worker, burners, nr_cpus, percentile};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// Shares may be this far from the weights' ratio.
const TOLERANCE: f64 = 0.05;
/// The part of a CPU that a task of a hundredth of the other's weight may have.
const LIGHT_MOST: f64 = 0.03;

/// A cgroup's own label decides; without one, its parent's tier; at the top,
/// time-sensitive.
pub(crate) fn tiers(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let reports = top.child("background-reports", 100)?;
    let sensitive = background.child("time_sensitive@x", 100)?;
    let cases = [
        (top.child("plain", 100)?, "time_sensitive", "no label"),
        (
            top.child("backgrounds", 100)?,
            "time_sensitive",
            "a label followed by a letter",
        ),
        (background.child("inner", 100)?, "background", "inherited"),
        (reports, "background", "a label followed by '-'"),
        (
            sensitive.child("deep", 100)?,
            "time_sensitive",
            "inherited from a label below a label",
        ),
    ];
    for (group, tier, why) in &cases {
        let before = ufs.tier_seconds("background")?;
        let worker = Worker::burner(group, &[])?;
        sleep(300 * MS);
        let used = group.seconds()?;
        drop(worker);
        let background = ufs.tier_seconds("background")? - before;
        let found = if background > used / 2.0 {
            "background"
        } else {
            "time_sensitive"
        };
        if found != *tier {
            bail!("{why}: {found}, not {tier} ({background:.3} s of {used:.3} s as background)");
        }
    }
    Ok(format!("{} kinds of name", cases.len()))
}

/// Two cgroups whose tasks sleep every third of a millisecond, and which together want
/// three times the CPU: it changes between tasks all the time, between cgroups once in a
/// slice.
pub(crate) fn commitment(ufs: &mut Ufs) -> Result<String> {
    const SLICE: Duration = Duration::from_millis(10);
    const BURST: Duration = Duration::from_micros(300);
    ufs.load(&["--bg-slice-us", &SLICE.as_micros().to_string()])?;
    let top = Cgroup::top()?;
    let groups = [
        top.child("background-a", 100)?,
        top.child("background-b", 100)?,
    ];
    let mut workers = Vec::new();
    let mut group_of = HashMap::new();
    for (number, group) in groups.iter().enumerate() {
        for _ in 0..3 {
            let worker = Worker::sleeper(group, &[0], BURST, BURST, 100_000)?;
            group_of.insert(worker.pid(), number);
            workers.push(worker);
        }
    }
    sleep(200 * MS);
    trace::start()?;
    sleep(500 * MS);
    let spans = trace::spans(&trace::stop()?, all_cpus()?)?;
    let mut ran_ns = [0, 0];
    let (mut last, mut tasks, mut stretches) = (None, 0, 0);
    for (ns, runs) in spans {
        let Some(&group) = group_of.get(&runs[0]) else {
            continue;
        };
        ran_ns[group] += ns;
        tasks += u32::from(last.is_none_or(|(_, task)| task != runs[0]));
        stretches += u32::from(last.is_none_or(|(before, _)| before != group));
        last = Some((group, runs[0]));
    }
    let all_ns = (ran_ns[0] + ran_ns[1]) as f64;
    let stretch_ms = all_ns / f64::from(stretches.max(1)) / 1e6;
    let share = ran_ns[0] as f64 / all_ns;
    let told = format!(
        "{stretch_ms:.1} ms in a row for a cgroup, {:.2} ms for a task; the first has {:.1} %",
        all_ns / f64::from(tasks.max(1)) / 1e6,
        share * 100.0
    );
    if stretch_ms < 0.7 * SLICE.as_secs_f64() * 1e3 || (share - 0.5).abs() > TOLERANCE {
        bail!("{told}");
    }
    Ok(told)
}

/// Runs one sleeper among saturating background work and returns its delays.
fn delays_over_background(ufs: &mut Ufs, cpus: &[usize]) -> Result<(Vec<u64>, f64)> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let background = top.child("background", 10_000)?;
    let sensitive = top.child("time_sensitive", 1)?;
    let _burners = burners(&background, &[], 2 * nr_cpus())?;
    sleep(200 * MS);
    let before = ufs.stats()?;
    let rounds = 400;
    let sleeper = Worker::sleeper(&sensitive, cpus, 2 * MS, 200 * US, rounds)?;
    let delays = sleeper.delays_ns()?;
    let after = ufs.stats()?;
    let count = |sample: &serde_json::Value| {
        sample["tiers"]["time_sensitive"]["wake_preempt_background"]
            .as_u64()
            .unwrap_or(0)
    };
    let preempted = (count(&after) - count(&before)) as f64 / f64::from(rounds);
    Ok((delays, preempted))
}

/// Without preemption a wake-up waits for the end of a background slice, 10 ms;
/// with it for an interrupt and a switch. The bound is a twentieth of a slice.
fn prompt(delays: &[u64], preempted: f64) -> Result<String> {
    let numbers = format!(
        "wake-up to run p50 {} us, p99 {} us, worst {} us; {:.0} % of wake-ups preempted background",
        percentile(delays, 50) / 1000,
        percentile(delays, 99) / 1000,
        delays[delays.len() - 1] / 1000,
        preempted * 100.0,
    );
    if percentile(delays, 99) > 500_000 || preempted < 0.9 {
        bail!("{numbers}; wanted p99 below 500 us and 90 %");
    }
    Ok(numbers)
}

/// A time-sensitive task of weight 1 wakes up among background work of weight 10000.
pub(crate) fn wakeup_preempts_background(ufs: &mut Ufs) -> Result<String> {
    let (delays, preempted) = delays_over_background(ufs, &[])?;
    prompt(&delays, preempted)
}

/// The same for a task that may run on one CPU only, which select_cpu never sees.
pub(crate) fn pinned_wakeup_preempts_background(ufs: &mut Ufs) -> Result<String> {
    let (delays, preempted) = delays_over_background(ufs, &[nr_cpus() - 1])?;
    prompt(&delays, preempted)
}

/// From the trace: background work runs while a time-sensitive task waits only
/// for as long as a switch takes. Time-sensitive tasks burn, sleep and are
/// pinned, more of them than CPUs at times and fewer at others.
pub(crate) fn strict_tiers(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let background = top.child("background", 10_000)?;
    let sensitive = top.child("time_sensitive", 1)?;
    let cpus = nr_cpus();
    let bg = burners(&background, &[], 2 * cpus)?;
    sleep(100 * MS);
    trace::start()?;
    let mut ts: Vec<Worker> = Vec::new();
    for i in 0..2 * cpus as u64 {
        let (nap, busy) = ((1000 + 300 * i) as u32, (700 + 400 * i) as u32);
        ts.push(Worker::sleeper(&sensitive, &[], nap * US, busy * US, 300)?);
    }
    let ts_pids: HashSet<i32> = ts.iter().map(Worker::pid).collect();
    let bg_pids: HashSet<i32> = bg.iter().map(Worker::pid).collect();
    for sleeper in ts {
        sleeper.delays_ns()?;
    }
    let found = trace::overlaps(&trace::stop()?, &ts_pids, &bg_pids)?;
    let total: u64 = found.ns.iter().sum();
    let (p99, worst) = if found.ns.is_empty() {
        (0, 0)
    } else {
        (percentile(&found.ns, 99), found.ns[found.ns.len() - 1])
    };
    let numbers = format!(
        "{} waits in {} ms; background ran meanwhile for {} us in all, p99 {} us, worst {} us",
        found.waits,
        found.span_ns / 1_000_000,
        total / 1000,
        p99 / 1000,
        worst / 1000,
    );
    // An interrupt and a switch; the worst case of a missed look is one tick.
    if p99 > 200_000 || worst > 5_000_000 {
        bail!("{numbers}; wanted p99 below 200 us and the worst below 5000 us");
    }
    Ok(numbers)
}

/// What each of two cgroups used while both burned for `span`.
fn used_by(a: &Cgroup, b: &Cgroup, span: Duration) -> Result<(f64, f64)> {
    let before = (a.seconds()?, b.seconds()?);
    sleep(span);
    Ok((a.seconds()? - before.0, b.seconds()? - before.1))
}

fn in_ratio((a, b): (f64, f64), wanted: f64) -> Result<String> {
    let found = a / b.max(1e-9);
    let numbers = format!("{a:.2} s to {b:.2} s is {found:.3}, by weight {wanted:.3}");
    if (found / wanted - 1.0).abs() > TOLERANCE {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// Burns in two cgroups of `tier` and compares their times with their weights.
fn weights(
    ufs: &mut Ufs,
    tier: &str,
    (weight_a, tasks_a): (u32, usize),
    (weight_b, tasks_b): (u32, usize),
    cpus: &[usize],
) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let tier = top.child(tier, 100)?;
    let (a, b) = (tier.child("a", weight_a)?, tier.child("b", weight_b)?);
    let _burners = (burners(&a, cpus, tasks_a)?, burners(&b, cpus, tasks_b)?);
    sleep(300 * MS);
    in_ratio(
        used_by(&a, &b, 3000 * MS)?,
        f64::from(weight_a) / f64::from(weight_b),
    )
}

/// The tasks may use only some of the CPUs, as under a cpuset: restriction must
/// not take them out of the runnable tree.
pub(crate) fn background_weights(ufs: &mut Ufs) -> Result<String> {
    let cpus: Vec<usize> = (0..nr_cpus().max(2) - 1).collect();
    weights(
        ufs,
        "background",
        (2, 2 * cpus.len()),
        (3, 2 * cpus.len()),
        &cpus,
    )
}

/// A weight is the cgroup's, however many tasks share it.
pub(crate) fn background_weights_uneven(ufs: &mut Ufs) -> Result<String> {
    weights(ufs, "background", (2, 1), (3, 3), &[0])
}

/// As above, in the other tier, on all CPUs.
pub(crate) fn time_sensitive_weights(ufs: &mut Ufs) -> Result<String> {
    weights(
        ufs,
        "time_sensitive",
        (6667, 2 * nr_cpus()),
        (10_000, 2 * nr_cpus()),
        &[],
    )
}

/// One task against three, on two CPUs, so that the one can get what it owns.
pub(crate) fn time_sensitive_weights_uneven(ufs: &mut Ufs) -> Result<String> {
    weights(ufs, "time_sensitive", (6667, 1), (10_000, 3), &[0, 1])
}

/// On CPU 0 a task that sleeps a third of the time competes with one that never
/// does, at equal weights. It gets its half, whatever a third cgroup of a
/// hundredth of the weight uses of the other CPUs, which nobody contests.
pub(crate) fn bursty_share(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let tier = top.child("time_sensitive", 100)?;
    let (bursty, bound) = (tier.child("bursty", 10_000)?, tier.child("bound", 10_000)?);
    let others = tier.child("others", 100)?;
    let elsewhere: Vec<usize> = (1..nr_cpus()).collect();
    let _workers = (
        Worker::sleeper(&bursty, &[0], 150 * US, 400 * US, 100_000)?,
        Worker::burner(&bound, &[0])?,
        burners(&others, &elsewhere, elsewhere.len())?,
    );
    sleep(1000 * MS);
    let (a, b) = used_by(&bursty, &bound, 3000 * MS)?;
    let numbers = format!("{:.1} % of the CPU", 100.0 * a / (a + b));
    // 45.7 to 49.8 were found, by when the sleeper wakes up; a tenth without preemption.
    if a / (a + b) < 0.44 {
        bail!("{numbers}; wanted 44 %");
    }
    Ok(numbers)
}

/// On CPU 0 a light task that sleeps now and then competes with a heavy one that never
/// does, and is the next each time that it wakes up. It gets no more than its weight.
pub(crate) fn light_sleeper(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let (heavy, light) = (top.child("heavy", 10_000)?, top.child("light", 100)?);
    let background = top.child("background", 100)?;
    let mut verdicts = Vec::new();
    // Between cgroups, and between two tasks of one: the background has no others beside.
    for (name, of_heavy, of_light, nice) in [
        ("time_sensitive", &heavy, &light, 0),
        ("background", &background, &background, 19),
    ] {
        let heavy = Worker::burner(of_heavy, &[0])?;
        let light = Worker::sleeper(of_light, &[0], MS, 2 * MS, 100_000)?;
        light.set_nice(nice)?;
        sleep(500 * MS);
        let (a, b) = crate::worker::used_by(&light, &heavy, 4000 * MS)?;
        let numbers = format!("{name} {:.1} %", 100.0 * a / (a + b));
        if a / (a + b) > LIGHT_MOST {
            bail!("{numbers}; wanted {} % at most", 100.0 * LIGHT_MOST);
        }
        verdicts.push(numbers);
    }
    Ok(verdicts.join("; "))
}

/// Two tasks of one cgroup wake up on CPU 0 while the other runs. Alone, each is the next
/// when it wakes up; a burner of another cgroup gets its half all the same.
pub(crate) fn next_in_line(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let mut verdicts = Vec::new();
    for name in ["background", "time_sensitive"] {
        let tier = top.child(name, 100)?;
        let (pair, other) = (tier.child("pair", 100)?, tier.child("other", 100)?);
        let start = || Worker::sleeper(&pair, &[0], 50 * US, 400 * US, 100_000);
        let _pair = (start()?, start()?);
        sleep(300 * MS);
        let wakes = |of: &str| -> Result<u64> {
            let stats = ufs.stats()?;
            Ok(stats["tiers"][name][of].as_u64().unwrap_or(0))
        };
        let (next, queued) = (wakes("wake_next")?, wakes("wake_queued")?);
        sleep(1000 * MS);
        let (next, queued) = (wakes("wake_next")? - next, wakes("wake_queued")? - queued);
        if next < queued {
            bail!("{name}: {next} wake-ups were the next, {queued} were queued");
        }
        let _burner = Worker::burner(&other, &[0])?;
        sleep(500 * MS);
        let (a, b) = used_by(&other, &pair, 3000 * MS)?;
        let numbers = format!(
            "{name}: {next} of {} wake-ups were the next, the other cgroup has {:.1} %",
            next + queued,
            100.0 * a / (a + b)
        );
        if (a / (a + b) - 0.5).abs() > TOLERANCE {
            bail!("{numbers}");
        }
        verdicts.push(numbers);
    }
    Ok(verdicts.join("; "))
}

/// root/{x 300/{p 100, q 200}, y 100}: 1/4, 1/2, 1/4 of the tier.
pub(crate) fn nested_weights(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let mut verdicts = Vec::new();
    for name in ["background", "time_sensitive"] {
        let tier = top.child(name, 100)?;
        let (x, y) = (tier.child("x", 300)?, tier.child("y", 100)?);
        let (p, q) = (x.child("p", 100)?, x.child("q", 200)?);
        let _burners = (
            burners(&p, &[0], 2)?,
            burners(&q, &[0], 2)?,
            burners(&y, &[0], 2)?,
        );
        sleep(300 * MS);
        let before = y.seconds()?;
        let (of_p, of_q) = used_by(&p, &q, 3000 * MS)?;
        let of_y = y.seconds()? - before;
        verdicts.push(format!("{name} p:q {}", in_ratio((of_p, of_q), 0.5)?));
        verdicts.push(format!("q:y {}", in_ratio((of_q, of_y), 2.0)?));
    }
    Ok(verdicts.join("; "))
}

/// Two cgroups at 1 to 10000 become equal, then trade places; in the second
/// that follows each change their shares have too, whatever they had used
/// before. The first step fails if waiting work keeps its old price.
pub(crate) fn weight_change(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let mut verdicts = Vec::new();
    for name in ["background", "time_sensitive"] {
        let tier = top.child(name, 100)?;
        let (a, b) = (tier.child("a", 1)?, tier.child("b", 10_000)?);
        let _burners = (burners(&a, &[0], 2)?, burners(&b, &[0], 2)?);
        sleep(1500 * MS);
        a.set_weight(10_000)?;
        let equal = used_by(&a, &b, 1000 * MS)?;
        b.set_weight(1)?;
        let traded = used_by(&a, &b, 1000 * MS)?;
        let [first, second] = [equal, traded].map(|(of_a, of_b)| of_a / (of_a + of_b));
        verdicts.push(format!(
            "{name} {:.1} % in the second after becoming equal, {:.1} % after trading places",
            first * 100.0,
            second * 100.0
        ));
        if (first - 0.5).abs() > 0.1 || second < 0.9 {
            bail!("{}; wanted 50 % and 90 %", verdicts.join(", "));
        }
    }
    Ok(verdicts.join(", "))
}
