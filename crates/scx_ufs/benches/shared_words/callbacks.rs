//! What the callbacks do to shared words, in their order.
//!
//! A change of what `src/bpf` writes at a switch belongs here too, and into the table of
//! docs/design/ufs.md.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::layout::{
    BEFORE, Layout, Memory, PREEMPTED, Place, RUN_NS, SHARDS, Tier, WAKE_HISTOGRAM,
};

/// `SCAN_MAX`.
const SCAN_MAX: usize = 8;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// One CPU, and what it needs to find its words.
pub(crate) struct Cpu<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) number: usize,
    /// CPU time of each run.
    pub(crate) run_ns: u64,
    pub(crate) pace: &'a Pace,
}

/// What a CPU does before each callback and charge: work on a register.
pub(crate) struct Pace {
    /// Multiplications, on average.
    steps: u64,
    random: Cell<u64>,
    taken: Cell<u64>,
}

impl Pace {
    pub(crate) fn new(steps: u64, number: usize) -> Pace {
        Pace {
            steps,
            random: Cell::new(SEED + number as u64),
            taken: Cell::new(0),
        }
    }

    /// Half as many steps at least. With as many each time CPUs fall into step, and do not
    /// meet at a word.
    pub(crate) fn take(&self) {
        self.taken.set(self.taken.get() + 1);
        if self.steps == 0 {
            return;
        }
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        for _ in 0..self.steps / 2 + x % (self.steps + 1) {
            x = black_box(x.wrapping_mul(SEED));
        }
    }
}

/// How often a sequence takes the pace.
pub(crate) fn paces(sequence: fn(&Cpu<'_>)) -> u64 {
    let pace = Pace::new(0, 0);
    let memory = Memory::new(BEFORE, 1);
    sequence(&Cpu {
        memory: &memory,
        number: 0,
        run_ns: 0,
        pace: &pace,
    });
    pace.taken.get()
}

fn add(word: &AtomicU64, n: u64) {
    word.fetch_add(n, SeqCst);
}

fn take(word: &AtomicU64) {
    word.fetch_sub(1, SeqCst);
}

fn look(word: &AtomicU64) -> u64 {
    black_box(word.load(Relaxed))
}

/// A store to a word that only this CPU writes.
fn advance(word: &AtomicU64, n: u64) -> u64 {
    let sum = word.load(Relaxed) + n;
    word.store(sum, Relaxed);
    sum
}

impl Cpu<'_> {
    fn layout(&self) -> &Layout {
        &self.memory.layout
    }

    fn shared(&self, place: Place) -> &AtomicU64 {
        self.memory.word(0, place)
    }

    fn own(&self, place: Place) -> &AtomicU64 {
        self.memory.cpu(self.number, place)
    }

    fn work(&self, tier: Tier, place: Place) -> &AtomicU64 {
        self.memory.work(tier, self.number % SHARDS, place)
    }

    /// The CPU `steps` after this one.
    fn after(&self, steps: usize) -> usize {
        (self.number + steps) % self.memory.cpus
    }

    /// This CPU's word of a set of CPUs.
    fn word_of(&self, (line, first): Place) -> &AtomicU64 {
        self.shared((line, first + self.number / 64))
    }

    fn bit(&self) -> u64 {
        1 << (self.number % 64)
    }

    fn charge(&self, tier: Tier, used: u64) {
        self.pace.take();
        let layout = self.layout();
        let (cpu, group) = (&layout.cpu, &layout.group);
        add(self.work(tier, RUN_NS), used);
        let late = match tier {
            Tier::Background => {
                advance(self.memory.group(tier, group.task_clock), 0);
                look(self.memory.group(tier, group.bg_scale));
                advance(self.own(cpu.bg_left), 0);
                self.own(cpu.bg_late)
            }
            Tier::TimeSensitive => {
                self.task_scale();
                self.own(cpu.ts_late)
            }
        };
        if layout.batch_ns == 0 {
            let clock = match tier {
                Tier::Background => layout.bg_clock,
                Tier::TimeSensitive => layout.ts_clock,
            };
            add(self.shared(clock), used);
            return;
        }
        advance(late, used);
        if advance(self.own(cpu.late_ns), used) >= layout.batch_ns {
            self.catch_up();
        }
    }

    fn catch_up(&self) {
        let layout = self.layout();
        let cpu = &layout.cpu;
        self.own(cpu.late_ns).store(0, Relaxed);
        for (clock, late) in [
            (layout.ts_clock, cpu.ts_late),
            (layout.bg_clock, cpu.bg_late),
        ] {
            let owed = self.own(late).load(Relaxed);
            if owed > 0 {
                add(self.shared(clock), owed);
                self.own(late).store(0, Relaxed);
            }
        }
    }

    fn task_scale(&self) {
        let group = &self.layout().group;
        look(self.memory.group(Tier::TimeSensitive, group.ts_load));
        look(self.memory.group(Tier::TimeSensitive, group.ts_scale));
    }

    /// What each dispatch looks at.
    fn dispatch(&self) {
        self.pace.take();
        let layout = self.layout();
        look(self.shared(layout.floor_waiting));
        look(self.shared(layout.boost_waiting));
        look(self.shared(layout.ts_waiting));
    }

    fn claim_bg_cpu(&self) {
        let word = self.word_of(self.layout().bg_cpus);
        if look(word) & self.bit() > 0 {
            word.fetch_and(!self.bit(), SeqCst);
        }
    }

    fn enqueue_background(&self) {
        self.pace.take();
        let layout = self.layout();
        let group = &layout.group;
        let of = |place| self.memory.group(Tier::Background, place);
        look(of(group.task_clock));
        add(self.shared(layout.bg_waiting), 1);
        add(of(group.nr_waiting), 1);
        add(of(group.enters), 1);
        look(self.shared(layout.bg_hint));
        // The group is in the tree mostly: the exchange fails, and takes the line.
        let _ = of(group.queued).compare_exchange(0, 1, SeqCst, SeqCst);
        look(self.word_of(layout.idle_cpus));
    }

    fn run_background(&self) {
        self.pace.take();
        let layout = self.layout();
        let group = &layout.group;
        take(self.memory.group(Tier::Background, group.nr_waiting));
        take(self.shared(layout.bg_waiting));
        self.word_of(layout.bg_cpus).fetch_or(self.bit(), SeqCst);
        look(self.shared(layout.ts_waiting));
    }

    fn run_time_sensitive(&self) {
        self.pace.take();
        add(self.work(Tier::TimeSensitive, WAKE_HISTOGRAM), 1);
        self.task_scale();
        advance(self.own(self.layout().cpu.curr_start), 1);
    }

    fn sleep_time_sensitive(&self) {
        let group = &self.layout().group;
        self.charge(Tier::TimeSensitive, self.run_ns);
        take(self.memory.group(Tier::TimeSensitive, group.ts_load));
    }

    /// A slice ends, and the next task of the group runs.
    pub(crate) fn background(&self) {
        let group = &self.layout().group;
        self.dispatch();
        self.charge(Tier::Background, self.run_ns);
        look(self.memory.group(Tier::Background, group.nr_waiting));
        // Stopping charges what has passed since.
        self.claim_bg_cpu();
        self.charge(Tier::Background, 1);
        add(self.work(Tier::Background, PREEMPTED), 1);
        self.enqueue_background();
        self.run_background();
    }

    /// A time-sensitive task wakes up, waits for a CPU of its tier, runs and sleeps.
    pub(crate) fn wake_up(&self) {
        let layout = self.layout();
        let (cpu, group) = (&layout.cpu, &layout.group);
        let busy = self.memory.cpus;
        self.pace.take();
        // select_cpu finds neither an idle nor a background CPU.
        look(self.word_of(layout.idle_cpus));
        look(self.word_of(layout.bg_cpus));
        for steps in 0..SCAN_MAX.min(busy) {
            look(self.memory.cpu(self.after(steps), cpu.curr_start));
        }
        self.pace.take();
        add(self.memory.group(Tier::TimeSensitive, group.ts_load), 1);
        self.task_scale();
        look(self.shared(layout.ts_clock));
        add(self.own(cpu.ts_waiting), 1);
        add(self.shared(layout.ts_enq_seq), 1);
        add(self.shared(layout.ts_waiting), 1);
        look(self.word_of(layout.idle_cpus));
        look(self.word_of(layout.bg_cpus));
        self.dispatch();
        look(self.shared(layout.nought));
        look(self.shared(layout.ts_enq_seq));
        let mut seen = 0;
        for steps in 1..busy {
            seen += usize::from(look(self.memory.cpu(self.after(steps), cpu.ts_waiting)) > 0);
            if seen == SCAN_MAX {
                break;
            }
        }
        take(self.own(cpu.ts_waiting));
        take(self.shared(layout.ts_waiting));
        self.run_time_sensitive();
        self.sleep_time_sensitive();
    }

    /// A time-sensitive task preempts a background task, runs and sleeps; the group's next
    /// task runs.
    pub(crate) fn burst(&self) {
        let layout = self.layout();
        let group = &layout.group;
        self.pace.take();
        look(self.word_of(layout.idle_cpus));
        self.claim_bg_cpu();
        add(self.memory.group(Tier::TimeSensitive, group.ts_load), 1);
        self.task_scale();
        look(self.shared(layout.ts_clock));
        // The background task stops.
        self.claim_bg_cpu();
        self.charge(Tier::Background, self.run_ns);
        add(self.work(Tier::Background, PREEMPTED), 1);
        self.enqueue_background();
        self.run_time_sensitive();
        self.sleep_time_sensitive();
        self.dispatch();
        look(self.memory.group(Tier::Background, group.nr_waiting));
        self.run_background();
    }
}
