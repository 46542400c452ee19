//! What UFS counts, asked for over its statistics socket.
//!
//! The protocol is that of all scx tools: a line of JSON each way. Numbers are
//! totals since UFS was loaded, so a window is the difference of two samples.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::harness::error::{Error, Result};

const SOCKET: &str = "/var/run/scx/root/stats";
const REQUEST: &str = "{\"req\":\"stats\",\"args\":{\"target\":\"top\"}}\n";
const TIMEOUT: Duration = Duration::from_secs(20);

/// Lock holders that lost their CPU, and who waited for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LockCounts {
    /// Background tasks preempted while holding a lightweight lock or spinlock.
    pub holders_preempted: u64,
    /// Preempted holders whose lock time-sensitive work waited for before they ran again.
    pub holders_awaited: u64,
    /// Boosts for the very lock, for one of its tranche, and for a group's
    /// leader.
    pub boosts_lock: u64,
    /// See `boosts_lock`.
    pub boosts_tranche: u64,
    /// See `boosts_lock`.
    pub boosts_leader: u64,
    /// Boosts of a preempted task because another spun.
    pub boosts_rescue: u64,
    /// Reads of a task's memory that failed.
    pub failed_reads: u64,
    /// Sleeps of time-sensitive tasks for lightweight locks.
    pub lock_waits: u64,
    /// Their lengths, until the task ran again: entry 4 i + j counts from
    /// 2^i (1 + j/4) ns on.
    pub lock_wait_ns: Vec<u64>,
}

impl LockCounts {
    fn since(&self, before: &LockCounts) -> Self {
        let then = before.lock_wait_ns.iter().chain(std::iter::repeat(&0));
        LockCounts {
            holders_preempted: self.holders_preempted - before.holders_preempted,
            holders_awaited: self.holders_awaited - before.holders_awaited,
            boosts_lock: self.boosts_lock - before.boosts_lock,
            boosts_tranche: self.boosts_tranche - before.boosts_tranche,
            boosts_leader: self.boosts_leader - before.boosts_leader,
            boosts_rescue: self.boosts_rescue - before.boosts_rescue,
            failed_reads: self.failed_reads - before.failed_reads,
            lock_waits: self.lock_waits - before.lock_waits,
            lock_wait_ns: self
                .lock_wait_ns
                .iter()
                .zip(then)
                .map(|(now, then)| now - then)
                .collect(),
        }
    }
}

/// One of the scheduler's callbacks, timed by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Callback {
    /// How often it was called.
    pub calls: u64,
    /// For how long it ran, in nanoseconds.
    pub run_ns: u64,
}

/// What UFS did inside the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct UfsCounts {
    /// About locks.
    #[serde(rename = "hints")]
    pub locks: LockCounts,
    /// By callback; none unless the kernel times them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub callbacks: BTreeMap<String, Callback>,
}

impl UfsCounts {
    /// The totals so far.
    pub(super) fn sample() -> Result<Self> {
        sample()
    }

    /// What came to these totals since `before`.
    pub(super) fn since(&self, before: &UfsCounts) -> Self {
        let callbacks = self.callbacks.iter().map(|(name, now)| {
            let then = before.callbacks.get(name).copied().unwrap_or_default();
            let callback = Callback {
                calls: now.calls - then.calls,
                run_ns: now.run_ns - then.run_ns,
            };
            (name.clone(), callback)
        });
        UfsCounts {
            locks: self.locks.since(&before.locks),
            callbacks: callbacks.collect(),
        }
    }
}

/// The totals so far that a reader asks for by its fields.
///
/// # Errors
/// UFS does not answer, or has no statistic of that name.
pub(crate) fn sample<T: DeserializeOwned>() -> Result<T> {
    let path = Path::new(SOCKET);
    let text = ask(path).map_err(Error::file("ask UFS for statistics at", path))?;
    parse(&text).map_err(|reason| Error::Scheduler {
        name: "scx_ufs".to_owned(),
        reason: format!("its statistics are not understood: {reason}"),
        output: String::new(),
    })
}

fn ask(path: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(REQUEST.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Answer {
        errno: i32,
        args: Args,
    }
    #[derive(Deserialize)]
    struct Args {
        resp: serde_json::Value,
    }
    let answer: Answer = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match answer.errno {
        0 => serde_json::from_value(answer.args.resp).map_err(|error| error.to_string()),
        errno => Err(format!("error {errno}: {}", answer.args.resp)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_difference_of_two_answers() {
        let answer = |awaited: u64, waits: &str, ns: u64| {
            format!(
                "{{\"errno\":0,\"args\":{{\"resp\":{{\"nr_cpus\":4,\"hints\":{{\
                 \"holders_awaited\":{awaited},\"slots_found\":9,\"lock_wait_ns\":{waits}}},\
                 \"callbacks\":{{\"stopping\":{{\"calls\":{ns},\"run_ns\":{ns}}}}}}}}}}}"
            )
        };
        let before: UfsCounts = parse(&answer(3, "[1,0,2]", 100)).unwrap();
        let after: UfsCounts = parse(&answer(10, "[1,5,4]", 350)).unwrap();
        let window = after.since(&before);
        assert_eq!(window.locks.holders_awaited, 7);
        assert_eq!(window.locks.lock_wait_ns, [0, 5, 2]);
        assert_eq!(window.callbacks["stopping"].run_ns, 250);
        let error = parse::<UfsCounts>("{\"errno\":22,\"args\":{\"resp\":\"no\"}}").unwrap_err();
        assert!(error.contains("22"), "{error}");
    }
}
