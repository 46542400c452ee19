//! How busy each CPU was inside the window, from `/proc/stat`.
//!
//! The kernel measures idle time exactly but samples the rest at its ticks,
//! which misses work that begins and ends between two of them. So busy is what
//! idle and waiting leave of the time that passed. The file counts in 1/100 s:
//! a window of 4 s resolves 0.25 % of a CPU.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::tpcc::terminal::Window;
use crate::{Error, Result};

const STAT: &str = "/proc/stat";

/// Units of the file in a second: Linux's USER_HZ on every architecture it
/// runs PostgreSQL on.
const PER_SECOND: f64 = 100.0;

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

/// Idle and waiting time of each CPU since it came up.
fn parse(text: &str) -> Vec<u64> {
    let mut cpus = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let Some(Ok(cpu)) = name.strip_prefix("cpu").map(str::parse::<usize>) else {
            continue;
        };
        // After user, nice and system come idle and waiting.
        let idle = words
            .skip(3)
            .take(2)
            .filter_map(|word| word.parse::<u64>().ok())
            .sum();
        cpus.resize(cpus.len().max(cpu + 1), 0);
        cpus[cpu] = idle;
    }
    cpus
}

fn read() -> Result<(Instant, Vec<u64>)> {
    let text = std::fs::read_to_string(STAT).map_err(Error::file("read", Path::new(STAT)))?;
    Ok((Instant::now(), parse(&text)))
}

fn between(before: &[u64], after: &[u64], elapsed: Duration) -> Busy {
    let units = elapsed.as_secs_f64() * PER_SECOND;
    let fraction = |(before, after): (&u64, &u64)| {
        let idle = after.saturating_sub(*before) as f64;
        (1.0 - idle / units).clamp(0.0, 1.0)
    };
    Busy(before.iter().zip(after).map(fraction).collect())
}

/// Sleeps to the end of the window and tells how busy the CPUs were inside it.
pub(super) fn busy(window: Window) -> Result<Busy> {
    std::thread::sleep(window.start.saturating_duration_since(Instant::now()));
    let (started, before) = read()?;
    std::thread::sleep(window.end.saturating_duration_since(Instant::now()));
    let (ended, after) = read()?;
    Ok(between(&before, &after, ended - started))
}

/// Refuses a machine with fewer online CPUs than the cell needs.
pub(super) fn require_cpus(count: u32) -> Result<()> {
    let online = read()?.1.len() as u32;
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
    fn busy_is_what_idle_and_waiting_leave() {
        let before =
            parse("cpu 9 9 9 9\ncpu0 10 0 10 100 5 1 1 0 0 0\ncpu1 0 0 0 50 0 0 0 0 0 0\n");
        let after = parse("cpu0 10 0 10 140 15 1 1 0 0 0\ncpu1 0 0 0 151 0 0 0 0 0 0\nintr 5\n");
        // Of one second, CPU 0 was idle for 0.4 s and waited for 0.1 s; CPU 1's
        // time is rounded up.
        let busy = between(&before, &after, Duration::from_secs(1));
        assert_eq!(busy, Busy(vec![0.5, 0.0]));
        assert_eq!(busy.mean(0, 2), 0.25);
    }

    #[test]
    fn a_machine_that_is_too_small_is_refused_with_the_remedy() {
        let error = require_cpus(100_000).unwrap_err().to_string();
        assert!(error.contains("--cpus"), "{error}");
    }
}
