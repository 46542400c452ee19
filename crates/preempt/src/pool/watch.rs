//! Sees when a worker waits for a lock that one of its own paused contexts holds.
//!
//! The contexts of a worker are one thread. If a task takes a lock outside of a
//! region, is preempted, and the more urgent task wants the same lock, neither ever
//! goes on: `println!`, a `std::sync::Mutex`, the mutexes of C code that is linked
//! into the program. Nothing can be done about it from outside, but it can be said.
//!
//! A thread of the pool looks at each worker four times a second. It suspects one
//!
//! 1. in which a task was stopped in the middle, so that it may hold something, and
//! 2. which runs another level's task, and sleeps there in a futex, which is what
//!    locks are made of.
//!
//! If three looks in a row find the same task asleep in the same futex, the worker
//! *stands still*: that is counted, shown in [`WorkerStats`](crate::WorkerStats) for
//! as long as it lasts, and written to standard error, once. A task that waits for
//! long for another thread is reported as well: it keeps the tasks below it waiting,
//! and everything of its level.
//!
//! The looks read a few words that the worker writes anyway ([`Trail`]), and only of
//! a suspect what the kernel says of the thread. The line is put together without
//! memory from the allocator and written without the standard library's locks: the
//! paused context may hold just those.
//!
//! Known weakness: a lock that spins without sleeping is not seen, since that is what
//! long computations look like. Nor is anything seen where the kernel does not
//! provide `/proc/self/task/ID/syscall`.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gate;
use crate::level::Level;
use crate::mutex::RegionMutex;
use crate::pool::{Desk, Inner};
use crate::trail::{Stop, Trail};

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(250);
/// So many looks have to find the same.
const LOOKS: u32 = 3;

/// What a task calls itself: the type of its closure.
pub(crate) type Name = fn() -> &'static str;

/// What a level's context is at. Its own code writes, inside regions.
pub(crate) struct Occupation {
    /// When its task began, ns; 0 if it has none.
    since_ns: AtomicU64,
    /// A [`Name`]; null before the first task.
    name: AtomicPtr<()>,
}

impl Occupation {
    pub(crate) fn new() -> Occupation {
        Occupation {
            since_ns: AtomicU64::new(0),
            name: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    pub(crate) fn begin(&self, name: Name, now: u64) {
        self.name.store(name as *mut (), Relaxed);
        self.since_ns.store(now.max(1), Relaxed);
    }

    pub(crate) fn end(&self) {
        self.since_ns.store(0, Relaxed);
    }

    /// When the task began, ns; `None` if there is none.
    fn since(&self) -> Option<u64> {
        Some(self.since_ns.load(Relaxed)).filter(|since| *since != 0)
    }

    fn name(&self) -> &'static str {
        let name = self.name.load(Relaxed);
        if name.is_null() {
            return "";
        }
        // SAFETY: not null, so `begin` made it from a function of this type.
        let name = unsafe { std::mem::transmute::<*mut (), Name>(name) };
        name()
    }
}

/// A worker that stands still: its task waits for a lock, and others of its tasks
/// are stopped until it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// The level whose task waits.
    pub level: Level,
    /// The type of the task's closure.
    pub task: String,
    /// The address of the word that it sleeps on, in the lock.
    pub lock: u64,
    /// Who may hold the lock: the tasks of this worker that were stopped in the
    /// middle. If none of them does, another thread keeps all of these waiting.
    pub holders: Vec<Holder>,
}

/// A task that was stopped in the middle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its level.
    pub level: Level,
    /// The type of its closure.
    pub task: String,
    /// The instruction at which it was interrupted, as an offset in the program's
    /// file for `addr2line -e PROGRAM`; `None` if it was left at a poll point, the
    /// exit of a region or a yield.
    pub stopped_at: Option<u64>,
}

/// What has been seen of a worker.
pub(crate) struct Sight {
    state: RegionMutex<State>,
}

#[derive(Default)]
struct State {
    suspicion: Option<(Suspicion, u32)>,
    stall: Option<Stall>,
    stalls: u64,
}

/// A task that sleeps in a futex while others are stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Suspicion {
    level: Level,
    /// When the task began, which tells it from the next one.
    since_ns: u64,
    lock: u64,
}

impl Sight {
    pub(crate) fn new() -> Sight {
        Sight {
            state: RegionMutex::new(State::default()),
        }
    }

    /// How often the worker stood still, and how it does now.
    pub(crate) fn read(&self) -> (u64, Option<Stall>) {
        let state = self.state.lock();
        (state.stalls, state.stall.clone())
    }
}

impl Inner {
    /// Looks at all workers.
    pub(super) fn watch(&self) {
        for (worker, desk) in self.desks.iter().enumerate() {
            desk.watch(worker);
        }
    }
}

impl Desk {
    fn watch(&self, worker: usize) {
        let suspicion = self.suspicion();
        let (looks, before) = {
            let mut state = self.sight.state.lock();
            let same = state
                .suspicion
                .filter(|(before, _)| Some(*before) == suspicion);
            let looks = same.map_or(1, |(_, looks)| looks + 1);
            state.suspicion = suspicion.map(|suspicion| (suspicion, looks));
            let over = looks < LOOKS || suspicion.is_none();
            (looks, if over { state.stall.take() } else { None })
        };
        drop(before);
        let Some(suspicion) = suspicion.filter(|_| looks == LOOKS) else {
            return;
        };
        // Said before anything is allocated.
        self.say(worker, &suspicion);
        let stall = self.stall(&suspicion);
        let mut state = self.sight.state.lock();
        state.stalls += 1;
        state.stall = Some(stall);
    }

    /// Whether the worker may stand still.
    fn suspicion(&self) -> Option<Suspicion> {
        let level = self.remote.trail().running();
        let since_ns = self.station.occupations[level.index()].since()?;
        self.holders(level).next()?;
        let lock = futex_of(self.remote.thread()?)?;
        Some(Suspicion {
            level,
            since_ns,
            lock,
        })
    }

    /// The levels whose tasks were stopped in the middle, the lowest first.
    fn holders(&self, running: Level) -> impl Iterator<Item = (Level, Stop)> {
        let trail: &Trail = self.remote.trail();
        let levels = (0..self.station.occupations.len() as u8).map(Level::new);
        let in_task = |level: &Level| self.station.occupations[level.index()].since().is_some();
        levels
            .filter(move |level| *level != running)
            .filter(in_task)
            .filter_map(move |level| Some((level, trail.stopped(level)?)))
    }

    fn stall(&self, suspicion: &Suspicion) -> Stall {
        let task = |level: Level| self.station.occupations[level.index()].name().to_owned();
        let holder = |(level, stop)| Holder {
            level,
            task: task(level),
            stopped_at: offset(stop),
        };
        Stall {
            level: suspicion.level,
            task: task(suspicion.level),
            lock: suspicion.lock,
            holders: self.holders(suspicion.level).map(holder).collect(),
        }
    }

    fn say(&self, worker: usize, suspicion: &Suspicion) {
        let mut line = Line::new();
        // Whatever does not fit is left out.
        let _ = self.write(&mut line, worker, suspicion);
        line.end();
    }

    fn write(&self, line: &mut Line, worker: usize, suspicion: &Suspicion) -> fmt::Result {
        let name = |level: Level| self.station.occupations[level.index()].name();
        let Suspicion { level, lock, .. } = suspicion;
        let ms = (LOOK * (LOOKS - 1)).as_millis();
        write!(
            line,
            "giveway-preempt: worker {worker} has stood still for {ms} ms: level {level} ({}) \
             waits for the lock at {lock:#x}, which may be held by",
            name(*level)
        )?;
        for (count, (holder, stop)) in self.holders(*level).enumerate() {
            let or = if count > 0 { " or" } else { "" };
            write!(line, "{or} level {holder} ({}), stopped ", name(holder))?;
            match offset(stop) {
                Some(offset) => write!(line, "at {offset:#x} of the program")?,
                None => line.write_str("where it looked for requests")?,
            }
        }
        line.write_str(
            "; hold locks that levels share in regions (docs/build/preempt.md, rules 1, 3)",
        )
    }
}

/// Where that is in the program's file.
fn offset(stop: Stop) -> Option<u64> {
    match stop {
        Stop::Interrupted(at) => gate::offset(at).map(|offset| offset as u64),
        Stop::ByItself => None,
    }
}

/// The address of the futex in which a thread of this process sleeps; `None` if it
/// does not, or the kernel does not say.
fn futex_of(thread: i32) -> Option<u64> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let mut path = Line::new();
    write!(path, "/proc/self/task/{thread}/syscall").ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(CWD, path.text(), flags, Mode::empty()).ok()?;
    let mut bytes = [0; 256];
    let length = rustix::io::read(&file, &mut bytes).ok()?;
    // "202 0x7f… …": the call and its arguments; "running", or others, if not.
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    let mut words = text.split_ascii_whitespace();
    let call: i64 = words.next()?.parse().ok()?;
    let address = words.next()?.strip_prefix("0x")?;
    if call != libc::SYS_futex {
        return None;
    }
    u64::from_str_radix(address, 16).ok()
}

/// A line of text that needs no allocator.
struct Line {
    bytes: [u8; 2048],
    length: usize,
}

impl Line {
    fn new() -> Line {
        Line {
            bytes: [0; 2048],
            length: 0,
        }
    }

    fn text(&self) -> &str {
        // What was cut off may have been in the middle of a character.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    /// Writes it to standard error, in one piece if the system can.
    fn end(&mut self) {
        let last = self.length.min(self.bytes.len() - 1);
        self.bytes[last] = b'\n';
        let _ = RawStderr.write_all(&self.bytes[..=last]);
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        if length < text.len() {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

/// Standard error without its lock.
struct RawStderr;

impl std::io::Write for RawStderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stderr(), bytes)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_futex_of_a_thread_that_waits_for_a_mutex_lies_in_the_mutex() {
        let mutex = Mutex::new(0u64);
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let held = mutex.lock().unwrap();
            let mutex = &mutex;
            scope.spawn(move || {
                tell.send(crate::signal::thread_id()).unwrap();
                *mutex.lock().unwrap() += 1;
            });
            let thread = told.recv().unwrap();
            let begins = std::ptr::from_ref(mutex).addr() as u64;
            let inside = begins..begins + size_of::<Mutex<u64>>() as u64;
            let found = (0..10_000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                futex_of(thread).is_some_and(|futex| inside.contains(&futex))
            });
            assert!(found);
            drop(held);
        });
        assert_eq!(futex_of(crate::signal::thread_id()), None);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let mut line = Line::new();
        assert!((0..300).any(|_| line.write_str("ten bytes.").is_err()));
        assert_eq!(line.length, line.bytes.len());
    }
}
