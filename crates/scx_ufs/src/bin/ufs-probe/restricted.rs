//! Claims about background work of which some may not run everywhere.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::cgroup::Cgroup;
use crate::ufs::Ufs;
use crate::worker::{Worker, burners};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// Of what the sleeper gets done under Linux's own scheduler.
const ROUNDS_LEAST: f64 = 0.9;
const WAIT_MOST: Duration = Duration::from_millis(60);
const SPAN: Duration = Duration::from_millis(3000);

/// One time-sensitive task and crowds of background cgroups want CPU 0, which all of
/// them are pinned to. A background task that sleeps for 2 ms and works for 1 ms may run
/// anywhere, and CPU 1 is free: it gets done what it does under Linux's own scheduler.
pub(crate) fn sleeper(ufs: &mut Ufs) -> Result<String> {
    let mut verdicts = Vec::new();
    let top = Cgroup::top()?;
    let mut crowd = Vec::new();
    for cgroups in [10, 200] {
        // Before UFS comes: beside the urgent task none of the crowd would get started.
        ufs.stop(Signal::SIGTERM)?;
        while crowd.len() < cgroups {
            let group = top.child(&format!("background-{}", crowd.len()), 100)?;
            let pinned = Worker::burner(&group, &[0])?;
            // Until all have started: they start on CPU 0.
            group.set("cgroup.freeze", "1")?;
            crowd.push((pinned, group));
        }
        for (_, group) in &crowd {
            group.set("cgroup.freeze", "0")?;
        }
        let urgent = top.child("time_sensitive", 100)?;
        let alone = top.child("background-x", 100)?;
        let burner = Worker::burner(&urgent, &[0])?;
        sleep(200 * MS);
        let (linux, _) = rounds(&alone)?;
        ufs.load(&[])?;
        // Some of the crowd have had tasks that may run anywhere, and have none now.
        for (_, group) in crowd.iter().take(cgroups / 4) {
            Worker::sleeper(group, &[], MS, 10 * US, 3)?.delays_ns()?;
        }
        let (done, worst) = rounds(&alone)?;
        // Who is killed needs its CPU once more.
        drop(burner);
        let numbers = format!(
            "beside {cgroups} cgroups {done} rounds where Linux has {linux}, the longest wait \
             {} ms",
            worst.as_millis()
        );
        if (done as f64) < ROUNDS_LEAST * linux as f64 || worst > WAIT_MOST {
            bail!(
                "{numbers}; wanted {ROUNDS_LEAST} of the rounds, and {} ms at most",
                WAIT_MOST.as_millis()
            );
        }
        verdicts.push(numbers);
    }
    // At once: one by one, each would wait for its turn among all the others.
    top.set("cgroup.kill", "1")?;
    Ok(verdicts.join("; "))
}

/// How often the sleeper has slept and worked within the span, and how late it woke up at
/// worst.
fn rounds(group: &Cgroup) -> Result<(usize, Duration)> {
    let delays = Worker::sleeper_for(group, 2 * MS, MS, SPAN)?.delays_ns()?;
    let worst = delays.last().copied().unwrap_or_default();
    Ok((delays.len(), Duration::from_nanos(worst)))
}

/// CPU time that the cgroups used while all of them burned.
fn used_by<const N: usize>(groups: [&Cgroup; N], span: Duration) -> Result<[f64; N]> {
    let seconds = || -> Result<Vec<f64>> { groups.iter().map(|group| group.seconds()).collect() };
    let before = seconds()?;
    sleep(span);
    let after = seconds()?;
    Ok(std::array::from_fn(|i| after[i] - before[i]))
}

fn in_ratio(what: &str, (a, b): (f64, f64), wanted: f64) -> Result<String> {
    let found = a / b.max(1e-9);
    let numbers = format!("{what} {a:.2} s to {b:.2} s is {found:.3}, by weight {wanted:.3}");
    if (found / wanted - 1.0).abs() > 0.1 {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// Pinned to CPU 0 are ten cgroups that own almost all of the tier, and can have half of
/// the two CPUs; the other half is for those that may run anywhere. Weights hold within
/// either kind. Then there is one of each kind, and both can have what they own: weights
/// hold between them.
pub(crate) fn weights(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let mut verdicts = Vec::new();
    {
        let top = Cgroup::top()?;
        let tier = top.child("background", 100)?;
        let (a, b) = (tier.child("a", 200)?, tier.child("b", 300)?);
        let (c, d) = (tier.child("c", 20)?, tier.child("d", 30)?);
        let mut crowd = Vec::new();
        for i in 0..8 {
            let group = tier.child(&format!("crowd-{i}"), 100)?;
            crowd.push((Worker::burner(&group, &[0])?, group));
        }
        let _pinned = (burners(&a, &[0], 2)?, burners(&b, &[0], 1)?);
        let _free = (burners(&c, &[], 2)?, burners(&d, &[], 2)?);
        sleep(1000 * MS);
        let [of_a, of_b, of_c, of_d] = used_by([&a, &b, &c, &d], 4000 * MS)?;
        verdicts.push(in_ratio("among pinned ones", (of_a, of_b), 2.0 / 3.0)?);
        verdicts.push(in_ratio("among the others", (of_c, of_d), 2.0 / 3.0)?);
    }
    let top = Cgroup::top()?;
    let tier = top.child("background", 100)?;
    let (pinned, free) = (tier.child("pinned", 100)?, tier.child("free", 300)?);
    let _burners = (burners(&pinned, &[0], 1)?, burners(&free, &[], 3)?);
    sleep(1000 * MS);
    let [of_pinned, of_free] = used_by([&pinned, &free], 4000 * MS)?;
    verdicts.push(in_ratio("between them", (of_pinned, of_free), 1.0 / 3.0)?);
    Ok(verdicts.join("; "))
}
