//! How much to run at a time: adaptive morsels (Section 3.1), without a clock.
//!
//! ```text
//!            no estimate                        estimate T, units/ns
//!  begin ──▶ STARTUP: 16, 32, 64, … units ──▶ DEFAULT: one of T·t_max units
//!            while 2·t_prev fits                   │ remaining/T < W·t_max
//!                                                  ▼
//!                                              SHUTDOWN: max(t/W, t_min) each
//!                                                  until t_max is used up
//! ```
//!
//! A task is a run of morsels of one task set by one worker. Several workers may
//! find a task set without an estimate; each starts up for itself, and the first
//! that is through tells the rest. The estimate is a word that workers read and
//! write without order: an update that is lost to another is one measurement
//! less of many.
//!
//! M1. Startup goes on only if twice the last morsel's time fits into what is
//!     left of t_max. (asserted in `next`: time is left)
//! M2. No morsel of the shutdown is planned shorter than t_min, except for the last
//!     units. (asserted in `next`)
//! M3. Every task that finds work runs at least one morsel of at least one unit.
//!     (asserted in `next`: no task ends before it has run)
//!
//! Work that cannot be divided at will comes in steps; a step is repeated as long
//! as another one like the longest of this task fits into t_max.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Units of the first morsel (C_0).
const FIRST_UNITS: u64 = 16;
/// How much the last measurement counts (α).
const ALPHA: f64 = 0.8;

/// The target and what it is divided by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Targets {
    /// How long a task should take, ns (t_max).
    pub(crate) task_ns: u64,
    /// The shortest morsel of the shutdown, ns (t_min).
    pub(crate) morsel_ns_min: u64,
    /// W.
    pub(crate) workers: usize,
}

/// A task set's throughput estimate T.
#[derive(Debug, Default)]
pub(crate) struct Throughput(AtomicU64);

impl Throughput {
    /// Units per ns; `None` before the first task's end.
    pub(crate) fn get(&self) -> Option<f64> {
        match self.0.load(Relaxed) {
            0 => None,
            bits => Some(f64::from_bits(bits)),
        }
    }

    /// Enters a measurement: T' = αT̂ + (1-α)T.
    fn enter(&self, measured: f64) {
        let estimate = match self.get() {
            Some(old) => ALPHA * measured + (1.0 - ALPHA) * old,
            None => measured,
        };
        self.0.store(estimate.to_bits(), Relaxed);
    }
}

/// A task whose work can be divided at will.
#[derive(Debug)]
pub(crate) struct Division {
    targets: Targets,
    phase: Phase,
    elapsed_ns: u64,
}

#[derive(Debug)]
enum Phase {
    /// The units of the last morsel, if there was one.
    Startup(Option<u64>),
    /// Whether a morsel was run.
    Default(bool),
    Shutdown,
    Over,
}

impl Division {
    /// A task that begins with `remaining` units in the task set.
    pub(crate) fn new(targets: Targets, remaining: u64, throughput: &Throughput) -> Division {
        let phase = match throughput.get() {
            None => Phase::Startup(None),
            Some(rate) if targets.is_closing(remaining, rate) => Phase::Shutdown,
            Some(_) => Phase::Default(false),
        };
        Division {
            targets,
            phase,
            elapsed_ns: 0,
        }
    }

    /// How many units to run next; `None` if the task is over.
    pub(crate) fn next(&mut self, remaining: u64, throughput: &Throughput) -> Option<u64> {
        if remaining == 0 {
            return None;
        }
        let left_ns = self.targets.task_ns.saturating_sub(self.elapsed_ns);
        let units = match self.phase {
            Phase::Startup(None) => FIRST_UNITS,
            Phase::Startup(Some(units)) => {
                debug_assert!(left_ns > 0, "M1: startup goes on after t_max");
                2 * units
            }
            Phase::Default(false) => (throughput.get()? * self.targets.task_ns as f64) as u64,
            Phase::Shutdown if self.elapsed_ns == 0 || left_ns >= self.targets.morsel_ns_min => {
                let rate = throughput.get()?;
                let even_ns = remaining as f64 / rate / self.targets.workers as f64;
                // M2.
                let ns = even_ns.max(self.targets.morsel_ns_min as f64);
                let ns = ns.min(left_ns as f64);
                debug_assert!(
                    ns >= self.targets.morsel_ns_min.min(self.targets.task_ns) as f64,
                    "M2: a morsel of {ns} ns"
                );
                (rate * ns) as u64
            }
            _ => {
                debug_assert!(self.elapsed_ns > 0, "M3: a task has run nothing");
                self.phase = Phase::Over;
                return None;
            }
        };
        // M3.
        Some(units.clamp(1, remaining))
    }

    /// A morsel took so long.
    pub(crate) fn ran(&mut self, units: u64, ns: u64, throughput: &Throughput) {
        let ns = ns.max(1);
        self.elapsed_ns += ns;
        let rate = units as f64 / ns as f64;
        match &mut self.phase {
            Phase::Startup(last) => {
                *last = Some(units);
                // M1. The last morsel of the startup is the estimate.
                if 2 * ns > self.targets.task_ns.saturating_sub(self.elapsed_ns) {
                    throughput.enter(rate);
                    self.phase = Phase::Over;
                }
            }
            Phase::Default(ran) => {
                *ran = true;
                throughput.enter(rate);
            }
            Phase::Shutdown => throughput.enter(rate),
            Phase::Over => unreachable!("no morsel after the last"),
        }
    }
}

impl Targets {
    /// Whether what remains takes all workers less than a task each.
    fn is_closing(&self, remaining: u64, rate: f64) -> bool {
        remaining as f64 / rate < self.workers as f64 * self.task_ns as f64
    }
}

/// A task whose work comes in steps.
#[derive(Debug)]
pub(crate) struct Steps {
    task_ns: u64,
    elapsed_ns: u64,
    longest_ns: u64,
}

impl Steps {
    pub(crate) fn new(targets: Targets) -> Steps {
        Steps {
            task_ns: targets.task_ns,
            elapsed_ns: 0,
            longest_ns: 0,
        }
    }

    /// Whether there is time for another step: M3.
    pub(crate) fn fits(&self) -> bool {
        self.elapsed_ns == 0 || self.elapsed_ns + self.longest_ns <= self.task_ns
    }

    /// A step took so long.
    pub(crate) fn ran(&mut self, ns: u64) {
        let ns = ns.max(1);
        self.elapsed_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TARGETS: Targets = Targets {
        task_ns: 2_000_000,
        morsel_ns_min: 125_000,
        workers: 4,
    };

    /// Runs one task of work that takes `unit_ns` a unit; returns its morsels.
    fn task(remaining: &mut u64, throughput: &Throughput, unit_ns: f64) -> Vec<(u64, u64)> {
        let mut division = Division::new(TARGETS, *remaining, throughput);
        let mut morsels = Vec::new();
        while let Some(units) = division.next(*remaining, throughput) {
            let ns = (units as f64 * unit_ns) as u64;
            division.ran(units, ns, throughput);
            *remaining -= units;
            morsels.push((units, ns));
        }
        morsels
    }

    fn length(morsels: &[(u64, u64)]) -> u64 {
        morsels.iter().map(|morsel| morsel.1).sum()
    }

    proptest! {
        /// Whatever the pipeline: everything is run, and no task takes much longer
        /// than t_max.
        #[test]
        fn tasks_keep_to_the_target(units in 1u64..200_000, unit_ns in 1.0f64..100_000.0) {
            let throughput = Throughput::default();
            let mut remaining = units;
            while remaining > 0 {
                let before = remaining;
                let morsels = task(&mut remaining, &throughput, unit_ns);
                prop_assert!(remaining < before);
                prop_assert!(length(&morsels) <= TARGETS.task_ns + unit_ns as u64 + 1);
            }
        }
    }

    #[test]
    fn startup_doubles_and_stops_in_time() {
        let throughput = Throughput::default();
        let mut remaining = 1 << 40;
        let morsels = task(&mut remaining, &throughput, 100.0);
        let sizes: Vec<u64> = morsels.iter().map(|morsel| morsel.0).collect();
        let doubling: Vec<u64> = (0..sizes.len()).map(|i| FIRST_UNITS << i).collect();
        assert_eq!(sizes, doubling);
        // Σ + 2·t_prev would be more than t_max, and the last one still fitted.
        let elapsed = length(&morsels);
        assert!(elapsed <= TARGETS.task_ns);
        assert!(elapsed + 2 * morsels.last().unwrap().1 > TARGETS.task_ns);
        assert!((throughput.get().unwrap() - 0.01).abs() < 1e-9);
    }

    #[test]
    fn the_default_state_uses_one_morsel() {
        let throughput = Throughput::default();
        throughput.enter(0.01);
        let mut remaining = 1 << 40;
        assert_eq!(task(&mut remaining, &throughput, 100.0).len(), 1);
        // Work that has become twice as slow is noticed: α = 0.8.
        let slow = task(&mut remaining, &throughput, 200.0);
        assert_eq!(slow, [(20_000, 4_000_000)]);
        assert!((throughput.get().unwrap() - 0.006).abs() < 1e-9);
    }

    #[test]
    fn all_workers_end_a_task_set_together() {
        let throughput = Throughput::default();
        throughput.enter(0.01);
        // Four workers have 4 ms left: each begins with a millisecond.
        let mut remaining = 40_000;
        let morsels = task(&mut remaining, &throughput, 100.0);
        assert_eq!(morsels[0], (10_000, 1_000_000));
        assert!(morsels.len() > 1 && length(&morsels) <= TARGETS.task_ns);
        assert!(
            morsels.iter().all(|morsel| morsel.1 >= 124_000),
            "{morsels:?}"
        );
        // Less than t_min for everybody: the last units in one piece.
        let mut remaining = 1000;
        assert_eq!(task(&mut remaining, &throughput, 100.0), [(1000, 100_000)]);
    }

    #[test]
    fn a_unit_may_be_longer_than_a_task() {
        let throughput = Throughput::default();
        let mut remaining = 40;
        let mut tasks = Vec::new();
        while remaining > 0 {
            tasks.push(task(&mut remaining, &throughput, 5_000_000.0));
        }
        assert_eq!(tasks[0], [(16, 80_000_000)]);
        assert!(tasks[1..].iter().all(|task| *task == [(1, 5_000_000)]));
    }

    #[test]
    fn steps_are_repeated_until_the_next_would_not_fit() {
        let mut steps = Steps::new(TARGETS);
        let mut count = 0;
        while steps.fits() {
            steps.ran(300_000);
            count += 1;
        }
        assert_eq!(count, 6);
        let mut long = Steps::new(TARGETS);
        assert!(long.fits());
        long.ran(3_000_000);
        assert!(!long.fits());
    }
}
