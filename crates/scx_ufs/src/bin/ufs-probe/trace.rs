//! Who ran and who waited, from the kernel's sched_switch and sched_wakeup.

use std::collections::{HashMap, HashSet};
use std::fs;

use anyhow::{Context, Result, bail};

const TRACEFS: &str = "/sys/kernel/tracing";
const EVENTS: [&str; 3] = ["sched_switch", "sched_wakeup", "sched_wakeup_new"];

fn set(file: &str, value: &str) -> Result<()> {
    fs::write(format!("{TRACEFS}/{file}"), value)
        .with_context(|| format!("cannot write {TRACEFS}/{file}: is tracefs mounted?"))
}

/// Starts recording.
pub(crate) fn start() -> Result<()> {
    if !std::path::Path::new(TRACEFS).join("trace").exists() {
        let _ = std::process::Command::new("mount")
            .args(["-t", "tracefs", "t", TRACEFS])
            .status();
    }
    set("tracing_on", "0")?;
    set("buffer_size_kb", "16384")?;
    set("trace_clock", "mono")?;
    set("trace", "")?;
    for event in EVENTS {
        set(&format!("events/sched/{event}/enable"), "1")?;
    }
    set("tracing_on", "1")
}

/// Stops recording and returns the record.
pub(crate) fn stop() -> Result<String> {
    set("tracing_on", "0")?;
    for event in EVENTS {
        set(&format!("events/sched/{event}/enable"), "0")?;
    }
    fs::read_to_string(format!("{TRACEFS}/trace")).context("cannot read the trace")
}

/// While a time-sensitive task waited, for how long did background work run?
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    /// Waits of time-sensitive tasks.
    pub(crate) waits: usize,
    /// Each time that background work ran during such a wait, in nanoseconds, sorted.
    pub(crate) ns: Vec<u64>,
    /// From the first to the last event.
    pub(crate) span_ns: u64,
}

fn field<'a>(rest: &'a str, name: &str) -> Option<&'a str> {
    let at = rest.find(name)? + name.len();
    rest[at..].split_whitespace().next()
}

/// What happened to tasks, by process number.
#[derive(Clone, Copy, Debug)]
enum What {
    Wakeup(i32),
    Switch {
        cpu: usize,
        prev: i32,
        /// The previous task would have gone on.
        preempted: bool,
        next: i32,
    },
}

/// The events of a record with their times in nanoseconds.
fn events(record: &str) -> impl Iterator<Item = Result<(u64, What)>> {
    let lines = record.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (head, rest) = line.split_once(": sched_")?;
        let open = head.find('[')?;
        Some(event(head, &head[open + 1..], rest))
    })
}

fn event(head: &str, from_cpu: &str, rest: &str) -> Result<(u64, What)> {
    let stamp = head.rsplit(' ').next().unwrap_or_default();
    let (sec, fraction) = stamp.split_once('.').context("no time stamp")?;
    let at = sec.parse::<u64>()? * 1_000_000_000 + fraction.parse::<u64>()? * 1000;
    if rest.starts_with("wakeup") {
        let pid = field(rest, " pid=").context("no pid")?;
        return Ok((at, What::Wakeup(pid.parse()?)));
    }
    let cpu = from_cpu.split(']').next().unwrap_or_default();
    let prev = field(rest, "prev_pid=").context("no prev_pid")?;
    let next = field(rest, "next_pid=").context("no next_pid")?;
    let what = What::Switch {
        cpu: cpu.parse()?,
        prev: prev.parse()?,
        preempted: field(rest, "prev_state=").is_some_and(|s| s.starts_with('R')),
        next: next.parse()?,
    };
    Ok((at, what))
}

/// Reads a record. `ts` and `bg` are process numbers; others do not count.
pub(crate) fn overlaps(record: &str, ts: &HashSet<i32>, bg: &HashSet<i32>) -> Result<Overlaps> {
    let mut result = Overlaps::default();
    let mut waiting: HashSet<i32> = HashSet::new();
    let mut running_bg: HashMap<usize, i32> = HashMap::new();
    // When a wait met background work, until one of them ends.
    let mut since: Option<u64> = None;
    let mut first = None;
    let mut last = 0;
    for event in events(record) {
        let (at, what) = event?;
        first.get_or_insert(at);
        last = at;
        match what {
            What::Wakeup(pid) => {
                if ts.contains(&pid) && waiting.insert(pid) {
                    result.waits += 1;
                }
            }
            What::Switch {
                cpu,
                prev,
                preempted,
                next,
            } => {
                running_bg.remove(&cpu);
                if bg.contains(&next) {
                    running_bg.insert(cpu, next);
                }
                if ts.contains(&prev) && preempted && waiting.insert(prev) {
                    result.waits += 1;
                }
                waiting.remove(&next);
            }
        }
        let both = !waiting.is_empty() && !running_bg.is_empty();
        match (since, both) {
            (None, true) => since = Some(at),
            (Some(start), false) => {
                result.ns.push(at - start);
                since = None;
            }
            _ => {}
        }
    }
    result.span_ns = last - first.context("the trace is empty")?;
    if result.waits == 0 {
        bail!("no time-sensitive task waited: the trace proves nothing");
    }
    result.ns.sort_unstable();
    Ok(result)
}

/// For each span of a record in which nothing changed: its length in
/// nanoseconds, and which process ran on each CPU (0: idle, or not known yet).
pub(crate) fn spans(record: &str, cpus: usize) -> Result<Vec<(u64, Vec<i32>)>> {
    let mut spans = Vec::new();
    let mut runs = vec![0; cpus];
    let mut since = None;
    for event in events(record) {
        let (at, what) = event?;
        let What::Switch { cpu, next, .. } = what else {
            continue;
        };
        if let Some(start) = since.replace(at) {
            spans.push((at.saturating_sub(start), runs.clone()));
        }
        *runs.get_mut(cpu).context("a CPU that nobody knows of")? = next;
    }
    if spans.is_empty() {
        bail!("the trace is empty");
    }
    Ok(spans)
}
