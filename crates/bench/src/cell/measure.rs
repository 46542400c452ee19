//! How busy each CPU was inside the window, from `/proc/stat`.
//!
//! The kernel counts in ticks of 1/100 s, so a window of 4 s resolves 0.25 % of
//! a CPU.

use std::path::Path;
use std::time::Instant;

use crate::tpcc::terminal::Window;
use crate::{Error, Result};

const STAT: &str = "/proc/stat";

/// Ticks of one CPU since it came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    total: u64,
}

/// Fractions of time that each CPU was not idle, from CPU 0 on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Busy(pub(crate) Vec<f64>);

impl Busy {
    /// The mean of `count` CPUs from `first` on.
    pub(crate) fn mean(&self, first: u32, count: u32) -> f64 {
        let cpus = &self.0[first as usize..(first + count) as usize];
        cpus.iter().sum::<f64>() / cpus.len() as f64
    }
}

/// Parses the per-CPU lines. Busy is user, nice, system, irq, softirq and
/// steal; guest time is contained in user.
fn parse(text: &str) -> Vec<Ticks> {
    let mut cpus = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let Some(Ok(cpu)) = name.strip_prefix("cpu").map(str::parse::<usize>) else {
            continue;
        };
        let fields: Vec<u64> = words.filter_map(|word| word.parse().ok()).take(8).collect();
        let total = fields.iter().sum();
        let idle: u64 = fields.iter().skip(3).take(2).sum();
        cpus.resize(cpus.len().max(cpu + 1), Ticks::default());
        cpus[cpu] = Ticks {
            busy: total - idle,
            total,
        };
    }
    cpus
}

fn read() -> Result<Vec<Ticks>> {
    let text = std::fs::read_to_string(STAT).map_err(Error::file("read", Path::new(STAT)))?;
    Ok(parse(&text))
}

fn between(before: &[Ticks], after: &[Ticks]) -> Busy {
    let fraction = |(before, after): (&Ticks, &Ticks)| {
        let total = after.total.saturating_sub(before.total);
        let busy = after.busy.saturating_sub(before.busy);
        if total == 0 {
            0.0
        } else {
            busy as f64 / total as f64
        }
    };
    Busy(before.iter().zip(after).map(fraction).collect())
}

/// Sleeps to the end of the window and tells how busy the CPUs were inside it.
pub(super) fn busy(window: Window) -> Result<Busy> {
    std::thread::sleep(window.start.saturating_duration_since(Instant::now()));
    let before = read()?;
    std::thread::sleep(window.end.saturating_duration_since(Instant::now()));
    Ok(between(&before, &read()?))
}

/// Refuses a machine with fewer online CPUs than the cell needs.
pub(super) fn require_cpus(count: u32) -> Result<()> {
    let online = read()?.len() as u32;
    if online >= count {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the cell needs {count} CPUs (server and clients), and the machine has {online}: lower \
         --cpus, or run in the lab"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_everything_but_idle_and_waiting() {
        let before =
            parse("cpu 9 9 9 9\ncpu0 10 0 10 100 5 1 1 0 0 0\ncpu1 0 0 0 50 0 0 0 0 0 0\n");
        let after = parse("cpu0 40 5 15 140 15 6 6 0 0 0\ncpu1 0 0 0 150 0 0 0 0 0 0\nintr 5\n");
        let busy = between(&before, &after);
        // 30 + 5 + 5 + 5 + 5 of 100 ticks.
        assert_eq!(busy, Busy(vec![0.5, 0.0]));
        assert_eq!(busy.mean(0, 2), 0.25);
    }

    #[test]
    fn a_machine_that_is_too_small_is_refused_with_the_remedy() {
        let error = require_cpus(100_000).unwrap_err().to_string();
        assert!(error.contains("--cpus"), "{error}");
    }
}
