//! A pipeline being run: cursor, lanes, throughput and the finalization counter.
//!
//! | field | written by |
//! | --- | --- |
//! | `units` | the thread that activates the set, before it is posted in a slot |
//! | `cursor`, `taken` | workers that run it |
//! | `spent` | a worker that finds no step left |
//! | `owed` | the coordinator adds, marked workers subtract: F3 of `slots` |
//! | `throughput` | everybody, without order: see `morsel` |

use std::ops::Range;
#[cfg(debug_assertions)]
use std::sync::atomic::AtomicIsize as LooseIsize;
use std::sync::atomic::AtomicU64 as LooseU64;
use std::sync::{Arc, OnceLock};

use crate::group::Tally;
use crate::group_word::GroupWord;
use crate::morsel::Throughput;
use crate::pipeline::Pipeline;
#[cfg(debug_assertions)]
use crate::sync::Release;
use crate::sync::{AcqRel, AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Life, Relaxed};
use crate::wake::LaneWaker;

/// `units` of work that comes in steps.
const STEPS: u64 = u64::MAX;
/// The most units a pipeline can have. Workers that take units at the same time
/// may each add as many as are left; so many times this fits into a cursor as
/// there are workers.
const UNITS_MAX: u64 = 1 << 48;
/// `running` of a set that is being finalized, or has been.
#[cfg(debug_assertions)]
const FINALIZED: isize = isize::MIN;

pub(crate) struct TaskSet {
    pub(crate) word: GroupWord,
    /// Which of its group's sets this is.
    pub(crate) index: usize,
    pub(crate) pipeline: Box<dyn Pipeline>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) throughput: Throughput,
    pub(crate) life: Life,
    /// The finalization counter.
    pub(crate) owed: AtomicIsize,
    waker: OnceLock<LaneWaker>,
    units: LooseU64,
    lanes: std::sync::atomic::AtomicUsize,
    cursor: AtomicU64,
    taken: AtomicUsize,
    spent: AtomicBool,
    /// How many tasks run: F3 to F5 of `slots`.
    #[cfg(debug_assertions)]
    running: LooseIsize,
}

impl TaskSet {
    pub(crate) fn new(
        word: GroupWord,
        index: usize,
        pipeline: Box<dyn Pipeline>,
        tally: Arc<Tally>,
    ) -> TaskSet {
        TaskSet {
            word,
            index,
            pipeline,
            tally,
            throughput: Throughput::default(),
            life: Life::new(),
            owed: AtomicIsize::new(0),
            waker: OnceLock::new(),
            units: LooseU64::new(0),
            lanes: std::sync::atomic::AtomicUsize::new(0),
            cursor: AtomicU64::new(0),
            taken: AtomicUsize::new(0),
            spent: AtomicBool::new(false),
            #[cfg(debug_assertions)]
            running: LooseIsize::new(0),
        }
    }

    /// Asks the pipeline what it is. Before the set is posted.
    pub(crate) fn activate(&self, waker: LaneWaker) {
        let units = self.pipeline.units();
        assert!(
            units.is_none_or(|units| units <= UNITS_MAX),
            "a pipeline of {units:?} units: make them larger, 2^48 at most"
        );
        self.units.store(units.unwrap_or(STEPS), Relaxed);
        self.lanes.store(self.pipeline.lanes().max(1), Relaxed);
        let fresh = self.waker.set(waker).is_ok();
        assert!(fresh, "a task set is activated once");
    }

    pub(crate) fn waker(&self) -> &LaneWaker {
        self.waker.get().expect("the set has been activated")
    }

    /// Whether the scheduler cuts the morsels.
    pub(crate) fn is_divisible(&self) -> bool {
        self.units.load(Relaxed) != STEPS
    }

    /// Units that have not been taken; of steps, 0 or an unknown number.
    pub(crate) fn remaining(&self) -> u64 {
        let units = self.units.load(Relaxed);
        units.saturating_sub(self.cursor.load(Relaxed))
    }

    /// Takes up to so many units.
    pub(crate) fn carve(&self, units: u64) -> Range<u64> {
        let end = self.units.load(Relaxed);
        // No overflow: see UNITS_MAX.
        let from = self.cursor.fetch_add(units, Relaxed).min(end);
        from..(from + units).min(end)
    }

    /// No step is left.
    pub(crate) fn spend(&self) {
        self.spent.store(true, Relaxed);
    }

    /// Whether no task can be made of this any more.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.tally.is_stopped()
            || match self.is_divisible() {
                true => self.remaining() == 0,
                false => self.spent.load(Relaxed),
            }
    }

    /// Takes a lane if one is free.
    pub(crate) fn enter(&self) -> bool {
        let lanes = self.lanes.load(Relaxed);
        let take = |taken| (taken < lanes).then_some(taken + 1);
        let has_lane =
            lanes == usize::MAX || self.taken.fetch_update(AcqRel, Relaxed, take).is_ok();
        #[cfg(debug_assertions)]
        if has_lane {
            let before = self.running.fetch_add(1, Relaxed);
            assert!(before >= 0, "F5: a task of a set that has been finalized");
        }
        has_lane
    }

    /// Gives the lane back, and calls the workers that found none.
    pub(crate) fn leave(&self) {
        #[cfg(debug_assertions)]
        {
            let before = self.running.fetch_sub(1, Release);
            assert!(
                before > 0,
                "F4: a task ends of a set that has been finalized"
            );
        }
        if self.lanes.load(Relaxed) != usize::MAX {
            self.taken.fetch_sub(1, AcqRel);
            self.waker().wake();
        }
    }

    /// The set is about to be finalized: F3 and F4 of `slots`.
    pub(crate) fn assert_alone(&self) {
        #[cfg(debug_assertions)]
        {
            let before = self.running.swap(FINALIZED, AcqRel);
            assert_ne!(before, FINALIZED, "F3: a set is finalized twice");
            assert_eq!(before, 0, "F4: a set is finalized while tasks of it run");
        }
    }

    /// How much has been taken, 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        let units = self.units.load(Relaxed);
        match self.is_divisible() && units > 0 {
            true => (self.cursor.load(Relaxed).min(units)) as f64 / units as f64,
            false => 0.0,
        }
    }
}

impl Drop for TaskSet {
    fn drop(&mut self) {
        self.life.over();
    }
}
