//! Where each word lies: line and place in the line.
//!
//! `BEFORE` is by the symbol table of the program as commit 41c0256 compiles it, `LINES` by
//! `__begins_line` in `src/bpf/ctx.bpf.h`. Words of a group, of its statistics and of a CPU
//! follow those of the machine.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// `UFS_SHARDS`.
pub(crate) const SHARDS: usize = 8;
/// `clock_batch_ns` with the default slices.
const BATCH_NS: u64 = 375_000;

#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

/// A word's place: its line, and its number there.
pub(crate) type Place = (usize, usize);

/// The words of a group; lines are counted from the group's first.
pub(crate) struct OfGroup {
    pub(crate) lines: usize,
    pub(crate) nr_waiting: Place,
    pub(crate) queued: Place,
    pub(crate) enters: Place,
    pub(crate) task_clock: Place,
    pub(crate) bg_scale: Place,
    pub(crate) ts_load: Place,
    pub(crate) ts_scale: Place,
}

/// The words of a CPU, likewise.
pub(crate) struct OfCpu {
    pub(crate) lines: usize,
    pub(crate) curr_start: Place,
    pub(crate) bg_left: Place,
    pub(crate) late_ns: Place,
    pub(crate) ts_late: Place,
    pub(crate) bg_late: Place,
    pub(crate) ts_waiting: Place,
}

pub(crate) struct Layout {
    pub(crate) name: &'static str,
    /// CPU time for which a CPU may owe the clocks.
    pub(crate) batch_ns: u64,
    pub(crate) lines: usize,
    pub(crate) nought: Place,
    pub(crate) ts_waiting: Place,
    pub(crate) ts_enq_seq: Place,
    pub(crate) bg_waiting: Place,
    pub(crate) floor_waiting: Place,
    pub(crate) boost_waiting: Place,
    pub(crate) bg_hint: Place,
    pub(crate) ts_clock: Place,
    pub(crate) bg_clock: Place,
    pub(crate) bg_cpus: Place,
    pub(crate) idle_cpus: Place,
    pub(crate) group: OfGroup,
    pub(crate) cpu: OfCpu,
}

pub(crate) const BEFORE: Layout = Layout {
    name: "before",
    batch_ns: 0,
    lines: 7,
    bg_waiting: (0, 0),
    floor_waiting: (0, 1),
    ts_clock: (0, 4),
    bg_clock: (1, 2),
    nought: (1, 3),
    ts_enq_seq: (2, 5),
    ts_waiting: (2, 6),
    boost_waiting: (3, 1),
    bg_hint: (4, 1),
    bg_cpus: (5, 0),
    idle_cpus: (6, 0),
    group: OfGroup {
        // The fourth is of its affinity.
        lines: 4,
        nr_waiting: (0, 3),
        queued: (0, 4),
        bg_scale: (1, 3),
        ts_load: (1, 5),
        ts_scale: (1, 7),
        task_clock: (2, 2),
        enters: (3, 0),
    },
    cpu: OfCpu {
        lines: 2,
        curr_start: (0, 1),
        bg_left: (1, 0),
        late_ns: (1, 4),
        ts_late: (1, 5),
        bg_late: (1, 6),
        ts_waiting: (1, 2),
    },
};

pub(crate) const LINES: Layout = Layout {
    name: "lines",
    batch_ns: 0,
    lines: 10,
    nought: (0, 0),
    ts_waiting: (1, 0),
    ts_enq_seq: (1, 1),
    bg_waiting: (2, 0),
    floor_waiting: (3, 0),
    boost_waiting: (4, 0),
    bg_hint: (5, 0),
    ts_clock: (6, 0),
    bg_clock: (7, 0),
    bg_cpus: (8, 0),
    idle_cpus: (9, 0),
    group: OfGroup {
        lines: 3,
        bg_scale: (0, 2),
        ts_load: (1, 0),
        ts_scale: (1, 2),
        nr_waiting: (2, 0),
        enters: (2, 1),
        queued: (2, 2),
        task_clock: (2, 4),
    },
    cpu: OfCpu {
        lines: 3,
        curr_start: (0, 1),
        bg_left: (1, 0),
        late_ns: (1, 3),
        ts_late: (1, 4),
        bg_late: (1, 5),
        ts_waiting: (2, 0),
    },
};

pub(crate) const BATCHES: Layout = Layout {
    name: "batches",
    batch_ns: BATCH_NS,
    ..LINES
};

/// A group's statistics on the CPUs of one shard: two lines that a switch writes.
const WORK_LINES: usize = 2;
pub(crate) const RUN_NS: Place = (0, 0);
pub(crate) const PREEMPTED: Place = (0, 2);
pub(crate) const WAKE_HISTOGRAM: Place = (1, 3);

/// The group of the tasks of each tier.
#[derive(Clone, Copy)]
pub(crate) enum Tier {
    Background,
    TimeSensitive,
}

/// All words, in one layout.
pub(crate) struct Memory {
    pub(crate) layout: Layout,
    pub(crate) cpus: usize,
    lines: Vec<Line>,
}

impl Memory {
    pub(crate) fn new(layout: Layout, cpus: usize) -> Memory {
        let groups = 2 * (layout.group.lines + SHARDS * WORK_LINES);
        let lines = layout.lines + groups + cpus * layout.cpu.lines;
        Memory {
            layout,
            cpus,
            lines: (0..lines).map(|_| Line::default()).collect(),
        }
    }

    pub(crate) fn word(&self, from: usize, (line, number): Place) -> &AtomicU64 {
        &self.lines[from + line].0[number]
    }

    pub(crate) fn group(&self, tier: Tier, place: Place) -> &AtomicU64 {
        let from = self.layout.lines + tier as usize * self.layout.group.lines;
        self.word(from, place)
    }

    pub(crate) fn work(&self, tier: Tier, shard: usize, place: Place) -> &AtomicU64 {
        let from = self.layout.lines + 2 * self.layout.group.lines;
        self.word(from + (tier as usize * SHARDS + shard) * WORK_LINES, place)
    }

    pub(crate) fn cpu(&self, cpu: usize, place: Place) -> &AtomicU64 {
        let from = self.layout.lines + 2 * (self.layout.group.lines + SHARDS * WORK_LINES);
        self.word(from + cpu * self.layout.cpu.lines, place)
    }

    /// Every count is taken back, and the clocks lack only what CPUs still owe them.
    pub(crate) fn check(&self) {
        let read = |place| self.word(0, place).load(SeqCst);
        let Layout { cpu, group, .. } = &self.layout;
        assert_eq!(read(self.layout.bg_waiting), 0);
        assert_eq!(read(self.layout.ts_waiting), 0);
        assert_eq!(
            self.group(Tier::Background, group.nr_waiting).load(SeqCst),
            0
        );
        assert_eq!(
            self.group(Tier::TimeSensitive, group.ts_load).load(SeqCst),
            0
        );
        for (tier, clock, late) in [
            (Tier::Background, self.layout.bg_clock, cpu.bg_late),
            (Tier::TimeSensitive, self.layout.ts_clock, cpu.ts_late),
        ] {
            let used = (0..SHARDS).map(|shard| self.work(tier, shard, RUN_NS).load(SeqCst));
            let owed = (0..self.cpus).map(|number| self.cpu(number, late).load(SeqCst));
            let (used, owed): (u64, u64) = (used.sum(), owed.sum());
            assert_eq!(
                read(clock) + owed,
                used,
                "{}: a charge is lost",
                self.layout.name
            );
            let most = self.cpus as u64 * self.layout.batch_ns;
            assert!(owed <= most, "{}: {owed} ns are owed", self.layout.name);
        }
    }
}
