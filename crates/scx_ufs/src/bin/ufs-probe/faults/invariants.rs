//! What must hold under [`stress`](super::stress): nobody waits for too long, and
//! counters agree.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{LONGEST_WAIT, MS};
use crate::ufs::Ufs;
use crate::worker::{Worker, nr_cpus};

/// Who has been runnable since when without using CPU time (invariant 2).
#[derive(Default)]
pub(super) struct Waits {
    /// By number of the task: its CPU time, and since when it has been that.
    since: HashMap<i32, (f64, Instant)>,
    pub(super) longest: Duration,
}

impl Waits {
    pub(super) fn look<'a>(&mut self, tasks: impl Iterator<Item = &'a Worker>) -> Result<()> {
        let now = Instant::now();
        let mut seen = HashMap::new();
        for task in tasks {
            let (Ok('R'), Ok(used)) = (task.state(), task.seconds()) else {
                continue;
            };
            let waits = match self.since.get(&task.pid()) {
                Some(&(before, since)) if before == used => (before, since),
                _ => (used, now),
            };
            let waited = now - waits.1;
            self.longest = self.longest.max(waited);
            if waited > LONGEST_WAIT {
                bail!("task {} has waited for {waited:?}", task.pid());
            }
            seen.insert(task.pid(), waits);
        }
        self.since = seen;
        Ok(())
    }
}

/// A sample of the statistics (invariant 3).
pub(super) struct Sample {
    stats: Value,
    /// When it was asked for, and when it was there.
    asked: Instant,
    pub(super) at: Instant,
}

impl Sample {
    pub(super) fn take(ufs: &Ufs) -> Result<Self> {
        let asked = Instant::now();
        let stats = ufs.stats()?;
        let at = Instant::now();
        Ok(Self { stats, asked, at })
    }

    /// The sum of `names` over all parts of `of`, in nanoseconds.
    fn sum(&self, of: &str, names: &[&str]) -> Result<u64> {
        let parts = self.stats[of].as_object();
        let parts = parts.with_context(|| format!("no {of}"))?;
        let ns = |part: &Value| -> u64 { names.iter().filter_map(|&n| part[n].as_u64()).sum() };
        Ok(parts.values().map(ns).sum())
    }

    /// Compares with an earlier one.
    pub(super) fn check(&self, before: &Self) -> Result<()> {
        let tiers = self.sum("tiers", &["run_ns"])?;
        let cgroups = self.sum("cgroups", &["time_sensitive_ns", "background_ns"])?;
        // Counters are read one after the other, while CPUs write them.
        if cgroups > tiers + 100_000_000 {
            bail!("the tiers used {tiers} ns, the cgroups {cgroups} ns");
        }
        for part in ["tiers", "cpus"] {
            goes_forward(part, &before.stats[part], &self.stats[part])?;
        }
        let used = tiers - before.sum("tiers", &["run_ns"])?;
        let span = self.at - before.asked;
        // Who runs is charged at the end of a slice: some ticks late.
        let most = (span + 100 * MS).as_nanos() as u64 * nr_cpus() as u64;
        if used > most {
            bail!("{used} ns of CPU time used in {span:?}");
        }
        Ok(())
    }
}

/// No counter in `now` is less than it was; percentiles are no counters.
fn goes_forward(name: &str, before: &Value, now: &Value) -> Result<()> {
    match now {
        Value::Object(parts) => parts
            .iter()
            .filter(|(part, _)| !part.contains("_p50") && !part.contains("_p99"))
            .try_for_each(|(part, now)| {
                goes_forward(&format!("{name}.{part}"), &before[part], now)
            }),
        Value::Array(parts) => (0..).zip(parts).try_for_each(|(part, now)| {
            goes_forward(&format!("{name}[{part}]"), &before[part as usize], now)
        }),
        _ if now.as_u64() < before.as_u64() => bail!("{name} went from {before} to {now}"),
        _ => Ok(()),
    }
}
