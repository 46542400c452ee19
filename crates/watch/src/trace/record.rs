//! The recorder: lines in, a file out.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use giveway_tier::Tier;

use super::chrome::{Owner, Writer};
use super::event::{self, Event, Line, What};
use super::timeline::{Mark, Timeline};

/// How often hint slots are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// After how many lines they are looked at at the latest: where the recorder does not keep
/// up, there are more and more lines to a read.
const LINES_TO_A_LOOK: usize = 64;

/// Where the kernel's lines come from.
pub trait Feed {
    /// Adds whole lines to `text`, all that are there; waits for `patience` if
    /// there are none.
    ///
    /// # Errors
    /// If there will be no more.
    fn read(&mut self, patience: Duration, text: &mut String) -> io::Result<()>;

    /// Has no more be recorded. What was can still be read.
    ///
    /// # Errors
    /// What the system says.
    fn stop(&mut self) -> io::Result<()>;
}

/// Looks up threads.
pub trait Tasks {
    /// A thread that is met for the first time, or has changed its cgroup; none if it is
    /// gone.
    fn about(&mut self, tid: u32) -> Option<About>;

    /// What hint slots say now, and when that is, by the trace's clock.
    fn look(&mut self) -> (u64, Vec<Slot>);
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its process and its names.
    pub owner: Owner,
    /// Its cgroup's tier, or its policy's.
    pub tier: Tier,
}

/// A thread's hint slot. That of a process's first thread counts for all of its threads
/// that have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The thread's number.
    pub tid: u32,
    /// Its tier, where that is not its cgroup's.
    pub tier: Option<Tier>,
    /// Boosts since it has the slot.
    pub boosts: u64,
    /// CPU time while boosted.
    pub boosted_ns: u64,
    /// The lock of the latest boost.
    pub lock: u64,
}

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Switches and wake-ups.
    pub events: u64,
    /// CPUs that a thread lost to another.
    pub preemptions: u64,
    /// Those that background work lost to time-sensitive work.
    pub gave_way: u64,
    /// Boosts that began.
    pub boosts: u64,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
}

/// Records until `is_over` says so, then what is left, into `out`.
///
/// # Errors
/// If the kernel's lines or the file fail. What was written until then is no
/// whole file.
pub fn record(
    feed: &mut dyn Feed,
    tasks: &mut dyn Tasks,
    is_over: &dyn Fn() -> bool,
    out: impl Write,
) -> io::Result<Summary> {
    let mut recorder = Recorder::new(out)?;
    recorder.look(tasks)?;
    let mut text = String::new();
    let mut has_stopped = false;
    loop {
        text.clear();
        let patience = match has_stopped {
            true => Duration::ZERO,
            false => LOOK_EVERY,
        };
        feed.read(patience, &mut text)?;
        if has_stopped && text.is_empty() {
            recorder.look(tasks)?;
            return recorder.finish();
        }
        // Before the lines: threads that begin to run have their slots by then.
        recorder.look(tasks)?;
        for (number, line) in (1..).zip(text.lines()) {
            recorder.line(line, tasks)?;
            if number % LINES_TO_A_LOOK == 0 {
                recorder.look(tasks)?;
            }
        }
        if !has_stopped && is_over() {
            feed.stop()?;
            has_stopped = true;
        }
    }
}

struct Recorder<W> {
    writer: Writer<W>,
    timeline: Timeline,
    /// Threads that were met; none: gone by then.
    known: HashMap<u32, Option<About>>,
    /// By thread: what their slots said last.
    slots: HashMap<u32, Slot>,
    looked_at_ns: u64,
    summary: Summary,
}

impl<W: Write> Recorder<W> {
    fn new(out: W) -> io::Result<Self> {
        Ok(Self {
            writer: Writer::new(out)?,
            timeline: Timeline::default(),
            known: HashMap::new(),
            slots: HashMap::new(),
            looked_at_ns: 0,
            summary: Summary::default(),
        })
    }

    fn line(&mut self, line: &str, tasks: &mut dyn Tasks) -> io::Result<()> {
        match event::read(line) {
            Line::Event(event) => self.event(event, tasks),
            Line::Lost { cpu, events } => {
                self.summary.lost += events;
                self.timeline.lose(cpu, events);
                Ok(())
            }
            Line::Other => Ok(()),
            Line::Unreadable => {
                self.summary.unreadable += 1;
                Ok(())
            }
        }
    }

    fn event(&mut self, event: Event, tasks: &mut dyn Tasks) -> io::Result<()> {
        let met = match &event.what {
            What::Switch { prev, next, .. } => [prev.tid, next.tid],
            What::Waking(thread) | What::Wakeup(thread) => [thread.tid; 2],
            What::Moved(pid) => {
                self.look_again(*pid, tasks);
                return Ok(());
            }
        };
        // A waking is the beginning of a wake-up.
        self.summary.events += u64::from(!matches!(event.what, What::Waking(_)));
        for tid in met {
            if tid != 0 && !self.known.contains_key(&tid) {
                self.known.insert(tid, tasks.about(tid));
            }
        }
        let (known, slots) = (&self.known, &self.slots);
        let tier = |tid| {
            let about = known.get(&tid).and_then(Option::as_ref);
            let of_process = || slots.get(&about?.owner.pid);
            let slot = slots.get(&tid).or_else(of_process);
            slot.and_then(|slot| slot.tier)
                .or_else(|| Some(about?.tier))
        };
        for mark in self.timeline.see(event, tier) {
            if let Mark::Preempted { tier, by_tier, .. } = &mark {
                self.summary.preemptions += 1;
                let gave_way = (Some(Tier::Background), Some(Tier::TimeSensitive));
                self.summary.gave_way += u64::from((*tier, *by_tier) == gave_way);
            }
            self.writer.add(&mark, |tid| owner(&self.known, tid))?;
        }
        Ok(())
    }

    /// Looks up a thread, or all threads of a process that were met: the kernel names a
    /// process once for all of them. What has ended by now stays as it was.
    fn look_again(&mut self, pid: u32, tasks: &mut dyn Tasks) {
        for (tid, about) in &mut self.known {
            let is_of = |about: &About| about.owner.pid == pid;
            if (*tid == pid || about.as_ref().is_some_and(is_of))
                && let Some(now) = tasks.about(*tid)
            {
                *about = Some(now);
            }
        }
    }

    /// Sees what hint slots say, and which boosts there were since the last look.
    fn look(&mut self, tasks: &mut dyn Tasks) -> io::Result<()> {
        let (now_ns, slots) = tasks.look();
        let since_ns = std::mem::replace(&mut self.looked_at_ns, now_ns);
        let is_first = since_ns == 0;
        let before: HashMap<u32, Slot> = self.slots.drain().collect();
        for slot in slots {
            // One with fewer boosts than before is another's by now.
            let is_old =
                |old: &&Slot| slot.boosts >= old.boosts && slot.boosted_ns >= old.boosted_ns;
            let (boosts, boosted_ns) = match before.get(&slot.tid).filter(is_old) {
                Some(old) => (slot.boosts - old.boosts, slot.boosted_ns - old.boosted_ns),
                // Of those that it had before the record began nothing is known.
                None if is_first => (0, 0),
                None => (slot.boosts, slot.boosted_ns),
            };
            if (boosts, boosted_ns) != (0, 0) {
                self.summary.boosts += boosts;
                let mark = Mark::Boosted {
                    tid: slot.tid,
                    from_ns: since_ns,
                    to_ns: now_ns,
                    boosts,
                    boosted_ns,
                    lock: slot.lock,
                };
                self.writer.add(&mark, |tid| owner(&self.known, tid))?;
            }
            self.slots.insert(slot.tid, slot);
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Summary> {
        self.writer.finish()?;
        Ok(self.summary)
    }
}

fn owner(known: &HashMap<u32, Option<About>>, tid: u32) -> Option<Owner> {
    Some(known.get(&tid)?.as_ref()?.owner.clone())
}
