//! Marks in the Trace Event Format: JSON that Perfetto and Chrome read.
//!
//! ```text
//!   CPUs       cpu 0    background........│time_sensitive│background
//!                       train 4711        │postgres 4001 │train 4711
//!                                         ▲ background gives way
//!   Boosts     train 4711     boosted
//!   postgres   postgres 4001      waits (woken)│runs          │
//!   train      train 4711   runs          │waits (preempted)  │runs
//! ```
//!
//! A CPU's slices are named after the tier, by which the viewer colours them, and
//! hold the thread's. The process numbers of the first two are beyond those that
//! Linux gives. Times are microseconds since boot, as the format has them, with
//! decimal places.

use std::collections::HashSet;
use std::io::{self, Write};

use giveway_tier::Tier;
use serde_json::{Value, json};

use super::event::Thread;
use super::timeline::{Mark, Why};

/// The process that stands for the machine: above the kernel's PID_MAX_LIMIT.
const CPUS: u32 = (1 << 22) + 1;
/// The process that holds the boosts.
const BOOSTS: u32 = CPUS + 1;

/// A thread's process, and the names of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The process's number.
    pub pid: u32,
    /// What the process is called.
    pub process: String,
    /// What the thread is called.
    pub title: String,
    /// Its cgroup, from the top of the hierarchy.
    pub cgroup: String,
}

/// Writes a file.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// Processes, and their threads, that have been named.
    named: HashSet<(u32, Option<u32>)>,
    is_empty: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut writer = Self {
            out,
            named: HashSet::new(),
            is_empty: true,
        };
        for (order, (pid, name)) in [(CPUS, "CPUs"), (BOOSTS, "Boosts")].into_iter().enumerate() {
            writer.name(pid, None, name)?;
            // The two above all processes.
            writer.write(json!({
                "ph": "M", "pid": pid, "name": "process_sort_index",
                "args": {"sort_index": order as i64 - 2},
            }))?;
        }
        Ok(writer)
    }

    /// Adds a mark. `owner` knows threads by their numbers.
    ///
    /// # Errors
    /// What the file says.
    pub fn add(&mut self, mark: &Mark, owner: impl Fn(u32) -> Option<Owner>) -> io::Result<()> {
        match mark {
            Mark::Ran {
                thread,
                tier,
                cpu,
                from_ns,
                to_ns,
                was_preempted,
            } => {
                self.name(CPUS, Some(*cpu), &format!("cpu {cpu}"))?;
                let args = json!({
                    "tid": thread.tid, "tier": tier_name(*tier), "cpu": cpu,
                    "preempted": was_preempted,
                });
                let on_cpu = (CPUS, *cpu);
                let times = (*from_ns, *to_ns);
                let name = format!("{} {}", thread.name, thread.tid);
                self.slice(on_cpu, tier_name(*tier), *tier, times, Value::Null)?;
                self.slice(on_cpu, &name, *tier, times, args.clone())?;
                let (track, cgroup) = self.track(thread, owner)?;
                self.slice(track, "runs", *tier, times, with(args, "cgroup", cgroup))
            }
            Mark::Waited {
                thread,
                tier,
                from_ns,
                to_ns,
                why,
            } => {
                let name = match why {
                    Why::Woken => "waits (woken)",
                    Why::Preempted => "waits (preempted)",
                };
                let (track, cgroup) = self.track(thread, owner)?;
                let args = with(json!({"tier": tier_name(*tier)}), "cgroup", cgroup);
                self.slice(track, name, *tier, (*from_ns, *to_ns), args)
            }
            Mark::Preempted {
                thread,
                tier,
                by,
                by_tier,
                by_woken_ns,
                cpu,
                at_ns,
            } => {
                let gives_way =
                    *tier == Some(Tier::Background) && *by_tier == Some(Tier::TimeSensitive);
                let name = match gives_way {
                    true => "background gives way",
                    false => "preempted",
                };
                let args = json!({
                    "tid": thread.tid, "name": thread.name, "tier": tier_name(*tier),
                    "by_tid": by.tid, "by_name": by.name, "by_tier": tier_name(*by_tier),
                });
                let args = with(args, "by_woken_us", by_woken_ns.map(micros));
                self.instant((CPUS, *cpu), name, *at_ns, args)
            }
            Mark::Boosted {
                tid,
                from_ns,
                to_ns,
                boosts,
                boosted_ns,
                lock,
            } => {
                let title = owner(*tid).map_or("?".to_owned(), |owner| owner.title);
                self.name(BOOSTS, Some(*tid), &format!("{title} {tid}"))?;
                let args = json!({
                    "boosts_begun": boosts, "boosted_ns": boosted_ns,
                    "lock": format!("{lock:#x}"),
                });
                let times = (*from_ns, *to_ns);
                self.slice(
                    (BOOSTS, *tid),
                    "boosted",
                    Some(Tier::Background),
                    times,
                    args,
                )
            }
            Mark::Lost { cpu, events, at_ns } => {
                self.name(CPUS, Some(*cpu), &format!("cpu {cpu}"))?;
                let args = json!({"events": events});
                self.instant((CPUS, *cpu), "events lost", *at_ns, args)
            }
        }
    }

    /// Ends the file, and returns where it was written to.
    ///
    /// # Errors
    /// What the file says.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// The track of a thread, named, and its cgroup, where that is known.
    fn track(
        &mut self,
        thread: &Thread,
        owner: impl Fn(u32) -> Option<Owner>,
    ) -> io::Result<((u32, u32), Option<String>)> {
        let tid = thread.tid;
        // A thread that is no longer known is its own process.
        let (pid, process, title, cgroup) = match owner(tid) {
            Some(owner) => (owner.pid, owner.process, owner.title, Some(owner.cgroup)),
            None => (tid, thread.name.clone(), thread.name.clone(), None),
        };
        self.name(pid, None, &process)?;
        self.name(pid, Some(tid), &title)?;
        Ok(((pid, tid), cgroup))
    }

    /// Names a process or a thread, once.
    fn name(&mut self, pid: u32, tid: Option<u32>, name: &str) -> io::Result<()> {
        if !self.named.insert((pid, tid)) {
            return Ok(());
        }
        let what = match tid {
            Some(_) => "thread_name",
            None => "process_name",
        };
        let args = json!({"name": name});
        self.write(json!({"ph": "M", "pid": pid, "tid": tid, "name": what, "args": args}))
    }

    fn slice(
        &mut self,
        (pid, tid): (u32, u32),
        name: &str,
        tier: Option<Tier>,
        (from_ns, to_ns): (u64, u64),
        args: Value,
    ) -> io::Result<()> {
        self.write(json!({
            "ph": "X", "pid": pid, "tid": tid, "name": name, "cat": tier_name(tier),
            "ts": micros(from_ns), "dur": micros(to_ns - from_ns), "args": args,
        }))
    }

    fn instant(
        &mut self,
        (pid, tid): (u32, u32),
        name: &str,
        at_ns: u64,
        args: Value,
    ) -> io::Result<()> {
        self.write(json!({
            "ph": "i", "s": "t", "pid": pid, "tid": tid, "name": name,
            "ts": micros(at_ns), "args": args,
        }))
    }

    /// One entry. What is null is not there.
    fn write(&mut self, mut entry: Value) -> io::Result<()> {
        let separator: &[u8] = match std::mem::take(&mut self.is_empty) {
            true => b"\n",
            false => b",\n",
        };
        let fields = entry.as_object_mut().expect("an entry is an object");
        fields.retain(|_, value| !value.is_null());
        self.out.write_all(separator)?;
        Ok(serde_json::to_writer(&mut self.out, &entry)?)
    }
}

fn tier_name(tier: Option<Tier>) -> &'static str {
    tier.map_or("tier unknown", Tier::name)
}

/// Arguments with one more, where it is known.
fn with(mut args: Value, name: &str, value: Option<impl Into<Value>>) -> Value {
    if let Some(value) = value {
        args[name] = value.into();
    }
    args
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, name: &str) -> Thread {
        Thread {
            tid,
            name: name.into(),
        }
    }

    fn entries(marks: &[Mark]) -> Vec<Value> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for mark in marks {
            let owner = |tid| {
                (tid == 11).then(|| Owner {
                    pid: 10,
                    process: "train".into(),
                    title: "worker \"1\"".into(),
                    cgroup: "/background/a".into(),
                })
            };
            writer.add(mark, owner).unwrap();
        }
        let file: Value = serde_json::from_slice(&writer.finish().unwrap()).unwrap();
        file["traceEvents"].as_array().unwrap().clone()
    }

    /// Entries of a phase, as track, name, beginning and end.
    fn slices(entries: &[Value]) -> Vec<(u64, u64, String, f64, f64)> {
        let slices = entries.iter().filter(|entry| entry["ph"] == "X");
        let slice = |entry: &Value| {
            let number = |field: &str| entry[field].as_f64().unwrap();
            let name = entry["name"].as_str().unwrap().to_owned();
            let track = (number("pid") as u64, number("tid") as u64);
            (
                track.0,
                track.1,
                name,
                number("ts"),
                number("ts") + number("dur"),
            )
        };
        slices.map(slice).collect()
    }

    #[test]
    fn run_slice_is_on_the_cpu_track_and_the_thread_track() {
        let entries = entries(&[Mark::Ran {
            thread: thread(11, "train"),
            tier: Some(Tier::Background),
            cpu: 3,
            from_ns: 1_500,
            to_ns: 2_500,
            was_preempted: true,
        }]);
        let slice = |pid: u32, tid, name: &str| (u64::from(pid), tid, name.to_owned(), 1.5, 2.5);
        assert_eq!(
            slices(&entries),
            [
                slice(CPUS, 3, "background"),
                slice(CPUS, 3, "train 11"),
                slice(10, 11, "runs"),
            ]
        );
        let named = |pid: u32, what: &str, name: &str| {
            entries.iter().any(|entry| {
                entry["ph"] == "M"
                    && entry["pid"] == pid
                    && entry["name"] == what
                    && entry["args"]["name"] == name
            })
        };
        assert!(named(CPUS, "process_name", "CPUs"));
        assert!(named(CPUS, "thread_name", "cpu 3"));
        assert!(named(10, "process_name", "train"));
        assert!(named(10, "thread_name", "worker \"1\""));
        let args = &entries.last().unwrap()["args"];
        assert_eq!(args["preempted"], true);
        assert_eq!(args["cgroup"], "/background/a");
    }

    #[test]
    fn preemption_names_both_threads() {
        let preempted = |by_tier| Mark::Preempted {
            thread: thread(11, "train"),
            tier: Some(Tier::Background),
            by: thread(4, "postgres"),
            by_tier,
            by_woken_ns: by_tier.map(|_| 2_500),
            cpu: 0,
            at_ns: 7_000,
        };
        let of = |by_tier| entries(&[preempted(by_tier)]).pop().unwrap();
        let entry = of(Some(Tier::TimeSensitive));
        assert_eq!(entry["name"], "background gives way");
        assert_eq!((&entry["ph"], &entry["ts"]), (&json!("i"), &json!(7.0)));
        assert_eq!(entry["args"]["by_name"], "postgres");
        assert_eq!(of(Some(Tier::Background))["name"], "preempted");
        assert_eq!(entry["args"]["by_woken_us"], 2.5);
        assert_eq!(of(None)["args"]["by_tier"], "tier unknown");
        assert_eq!(of(None)["args"].get("by_woken_us"), None);
    }

    #[test]
    fn boosts_and_lost_events_have_tracks() {
        let entries = entries(&[
            Mark::Boosted {
                tid: 11,
                from_ns: 10_000,
                to_ns: 20_000,
                boosts: 1,
                boosted_ns: 4_000,
                lock: 0xbeef,
            },
            Mark::Lost {
                cpu: 1,
                events: 5,
                at_ns: 30_000,
            },
        ]);
        let boosts = u64::from(BOOSTS);
        assert_eq!(
            slices(&entries),
            [(boosts, 11, "boosted".into(), 10.0, 20.0)]
        );
        let boosted = entries
            .iter()
            .find(|entry| entry["name"] == "boosted")
            .unwrap();
        assert_eq!(boosted["args"]["lock"], "0xbeef");
        assert_eq!(entries.last().unwrap()["args"]["events"], 5);
    }

    #[test]
    fn a_thread_is_named_once_and_an_unknown_one_is_its_own_process() {
        let wait = Mark::Waited {
            thread: thread(99, "gone"),
            tier: None,
            from_ns: 0,
            to_ns: 1,
            why: Why::Woken,
        };
        let entries = entries(&[wait.clone(), wait]);
        let names = entries
            .iter()
            .filter(|entry| entry["pid"] == 99 && entry["ph"] == "M");
        assert_eq!(names.count(), 2);
        assert_eq!(slices(&entries).len(), 2);
        assert_eq!(entries.last().unwrap()["args"].get("cgroup"), None);
    }
}
