//! Workers that user interrupts reach: in the lab's emulator, whose CPUs have them, with
//! the module of `kernel/uintr`.
//!
//! The tests in [`guest`] need such a machine, so they are ignored elsewhere. Those
//! outside run them, with this same program, in a guest: `make test-uintr`. The first
//! run builds the module, and the lab if there is none.

mod common;
#[path = "registers/machine.rs"]
mod machine;

use std::path::Path;
use std::time::Duration;

use giveway_lab::{Clock, Job, Lab, LabSpec, Lines, Machine};

/// Runs the tests in [`guest`] on a clock; each has to run and pass.
fn run_in_guest(clock: Clock) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/uintr");
    let lab = Lab::open(&LabSpec::default(), &Lines).unwrap();
    let modules = lab.module(&source, &Lines).unwrap();
    let machine = Machine {
        cpus: 4,
        clock,
        user_interrupts: true,
        timeout: Duration::from_secs(1800),
        ..Machine::default()
    };
    let script = "busybox insmod ./uintr.ko && ./tests guest:: --ignored --nocapture --test-threads 1 && \
                  ! dmesg | grep -E 'BUG|WARNING|Oops|general protection'";
    let job = Job::script(script)
        .file(modules.join("uintr.ko"), "uintr.ko")
        .file(std::env::current_exe().unwrap(), "tests");
    let mut lines = Vec::new();
    let outcome = lab
        .run(&machine, &job, &mut |line| {
            println!("{line}");
            lines.push(line.to_owned());
        })
        .unwrap();
    assert_eq!(outcome.status, 0, "{lines:#?}");
    let said = lines.join("\n");
    assert!(
        said.contains("test result: ok") && !said.contains(" 0 passed"),
        "{said}"
    );
}

#[test]
fn user_interrupts_work_in_a_guest() {
    run_in_guest(Clock::LOCKSTEP);
}

#[test]
fn user_interrupts_work_in_a_guest_whose_cpus_run_at_once() {
    run_in_guest(Clock::Real);
}

mod guest {
    use std::alloc::System;
    use std::sync::Arc;
    use std::sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    };
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use giveway_preempt::{
        self as preempt, Counters, Delivery, Level, RegionAlloc, RegionMutex, Remote, Requested,
        Worker,
    };

    use super::common::{Length, Random, alone, churn, settle, spin_for};
    use super::machine::{hold, pattern, spoil, width};

    #[global_allocator]
    static ALLOCATOR: RegionAlloc<System> = RegionAlloc(System);

    const HIGH: Level = Level::new(1);
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A worker whose base does `work` until it is told to stop, and whose levels count.
    struct Life {
        remote: Remote,
        runs: Arc<AtomicU64>,
        stop: Arc<AtomicBool>,
        thread: std::thread::JoinHandle<()>,
    }

    impl Life {
        fn begin(levels: u8, work: impl Fn(Level, u64) + Send + Sync + 'static) -> Life {
            let (runs, stop) = (Arc::default(), Arc::<AtomicBool>::default());
            let (say, hear) = mpsc::channel();
            let work = Arc::new(work);
            let thread = std::thread::spawn({
                let (runs, stop) = (Arc::clone(&runs), Arc::clone(&stop));
                move || {
                    let mut builder = Worker::builder().delivery(Delivery::UserInterrupt);
                    for level in 1..=levels {
                        let (runs, work): (Arc<AtomicU64>, _) =
                            (Arc::clone(&runs), Arc::clone(&work));
                        builder = builder.level(format!("level-{level}"), move |at| {
                            assert_eq!(preempt::current_level(), Some(at));
                            work(at, runs.fetch_add(1, Release));
                        });
                    }
                    let worker = builder.enter().unwrap();
                    say.send(worker.remote()).unwrap();
                    let mut n = 0;
                    while !stop.load(Acquire) {
                        work(Level::BASE, n);
                        n += 1;
                    }
                }
            });
            let remote = hear.recv().expect("the worker enters");
            Life {
                remote,
                runs,
                stop,
                thread,
            }
        }

        fn end(self) -> (Counters, u64) {
            let counters = settle(&self.remote);
            self.stop.store(true, Release);
            self.thread.join().expect("no level was disturbed");
            println!("{counters:?}");
            (counters, self.runs.load(Relaxed))
        }
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn work_that_never_polls_is_interrupted() {
        let _alone = alone();
        // Twice: what the first worker leaves is in nobody's way.
        for _ in 0..2 {
            let life = Life::begin(1, |_, _| std::hint::spin_loop());
            for _ in 0..100 {
                assert!(life.remote.preempt_within(HIGH, PATIENCE));
            }
            let (counters, runs) = life.end();
            assert_eq!((counters.taken, runs), (100, 100));
        }
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn each_of_several_workers_is_interrupted_and_no_other() {
        let _alone = alone();
        let lives = [(); 3].map(|()| Life::begin(1, |_, _| std::hint::spin_loop()));
        for (n, life) in lives.iter().enumerate() {
            for _ in 0..20 * (n + 1) {
                assert!(life.remote.preempt_within(HIGH, PATIENCE));
            }
        }
        for (n, life) in lives.into_iter().enumerate() {
            assert_eq!(life.end().1, 20 * (n as u64 + 1));
        }
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn a_worker_that_has_left_refuses_and_fails_nobody() {
        let _alone = alone();
        let life = Life::begin(1, |_, _| std::hint::spin_loop());
        let remote = life.remote.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let sender = std::thread::spawn({
            let (remote, stop) = (remote.clone(), Arc::clone(&stop));
            move || {
                while !stop.load(Acquire) {
                    remote.preempt(HIGH);
                }
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        life.stop.store(true, Release);
        life.thread.join().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        stop.store(true, Release);
        sender.join().unwrap();
        assert_eq!(remote.preempt(HIGH), Requested::Gone);
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn a_region_defers_and_nothing_runs_under_its_lock() {
        let _alone = alone();
        static LOCKED: RegionMutex<u64> = RegionMutex::new(0);
        let life = Life::begin(1, |_, _| {
            let mut value = LOCKED.lock();
            for _ in 0..50 {
                std::hint::spin_loop();
            }
            *value += 1;
        });
        let start = Instant::now();
        while life.remote.counters().taken < 400 && start.elapsed() < PATIENCE {
            life.remote.preempt(HIGH);
            spin_for(Duration::from_micros(7));
            life.remote.rearm();
        }
        let (counters, runs) = life.end();
        assert_eq!(counters.taken, runs);
        assert!(
            counters.taken > 20 && counters.deferred_by_region > 0,
            "{counters:?}"
        );
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn everything_a_program_sees_of_the_cpu_is_left_as_it_was() {
        let _alone = alone();
        let width = width();
        let life = Life::begin(1, move |at, n| {
            if at == Level::BASE {
                let machine = pattern(n + 1, width);
                let differences = machine.differences(&hold(&machine));
                assert_eq!(differences, [""; 0], "pattern {n}");
            } else {
                // SAFETY: overwrites only what a function may.
                unsafe { spoil() };
            }
        });
        let start = Instant::now();
        while life.remote.counters().taken < 10_000 && start.elapsed() < PATIENCE {
            life.remote.preempt(HIGH);
            spin_for(Duration::from_micros(20));
            assert!(!life.thread.is_finished(), "the worker has ended");
        }
        let (counters, runs) = life.end();
        assert_eq!(counters.taken, runs);
        assert!(counters.taken > 5_000, "{counters:?}");
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn a_signal_comes_in_the_place_of_one_that_does_not_arrive() {
        let _alone = alone();
        let life = Life::begin(1, |at, _| {
            if at == Level::BASE {
                // As after a suspend that lost the flag.
                // SAFETY: the thread has a handler, so the CPU has the instruction.
                unsafe { std::arch::asm!("clui", options(nostack)) };
            }
        });
        for _ in 0..10 {
            assert!(life.remote.preempt_within(HIGH, PATIENCE));
        }
        let (counters, runs) = life.end();
        assert_eq!((counters.taken, runs), (10, 10));
        assert!(counters.replaced >= 10, "{counters:?}");
    }

    /// A storm whose work has a known result.
    fn storm(name: &str, levels: u8, gap: Duration, deliveries: &[Delivery]) -> Counters {
        const ROUNDS: u64 = 50;
        let _alone = alone();
        let mut random = Random::from_env(name, 5);
        let expected: Vec<u64> = (0..8).map(|seed| churn(seed, ROUNDS)).collect();
        let life = Life::begin(levels, move |at, n| {
            if at == Level::BASE {
                assert_eq!(
                    churn(n % 8, ROUNDS),
                    expected[(n % 8) as usize],
                    "disturbed"
                );
            } else {
                // Short: what is always interrupted does nothing else.
                assert_eq!(n.to_string().parse(), Ok(n));
            }
            preempt::poll_point();
        });
        let length = Length::short();
        let counted = || life.remote.counters();
        while !length.is_over(counted().taken >= 5_000, counted().taken > 50) {
            let delivery = deliveries[random.below(deliveries.len() as u64) as usize];
            life.remote.set_delivery(delivery).unwrap();
            let level = 1 + random.below(u64::from(levels)) as u8;
            life.remote.preempt(Level::new(level));
            life.remote.rearm();
            spin_for(Duration::from_nanos(
                random.below(gap.as_nanos() as u64 + 1),
            ));
            assert!(!life.thread.is_finished(), "the worker has ended");
        }
        let (counters, runs) = life.end();
        assert_eq!(counters.taken, runs);
        assert!(counters.taken > 50, "{counters:?}");
        // A signal may come on top of a user interrupt, and is taken later.
        let signals = deliveries.len() > 1 || counters.replaced > 0;
        assert!(signals || counters.deferred_by_stack == 0, "{counters:?}");
        counters
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn contexts_survive_at_random_gaps() {
        let gap = Duration::from_micros(100);
        let counters = storm("gaps", 1, gap, &[Delivery::UserInterrupt]);
        // The allocator's regions and text were hit, and nothing was lost there.
        assert!(counters.deferred_by_region + counters.deferred_by_text > 0);
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn contexts_survive_at_full_rate() {
        storm(
            "fast",
            1,
            Duration::from_micros(1),
            &[Delivery::UserInterrupt],
        );
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn three_levels_preempt_each_other() {
        storm(
            "levels",
            3,
            Duration::from_micros(20),
            &[Delivery::UserInterrupt],
        );
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn all_deliveries_mix() {
        let all = [
            Delivery::UserInterrupt,
            Delivery::Signal,
            Delivery::HYBRID,
            Delivery::Poll,
        ];
        storm("mix", 3, Duration::from_micros(50), &all);
    }

    #[test]
    #[ignore = "runs in a guest with user interrupts"]
    fn they_are_faster_than_signals() {
        let _alone = alone();
        let start = Instant::now();
        let [interrupts, signals] = [Delivery::UserInterrupt, Delivery::Signal]
            .map(|delivery| delivery.measure(200).unwrap());
        println!("{interrupts:?}\n{signals:?} in {:?}", start.elapsed());
        assert!(interrupts.p50_ns < signals.p50_ns);
    }
}
