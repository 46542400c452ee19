//! Shares of lock hold time, exact: on a virtual clock that only holders move.
//!
//! Every holder waits until all other threads are queued for the lock, so there is
//! nothing but the lock to decide who gets it; what the machine does to the
//! threads in between costs no virtual time. Bounds are what is left after so
//! many slices, not noise.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Barrier, Mutex as StdMutex, MutexGuard as StdGuard};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use giveway_locks::{
    Criteria, Group, Mutex, Options, Profile, RawMutex, Scope, VirtualClock, jain_by_weight, thread,
};

/// The clock is the process's, so the tests take turns.
fn clock() -> (VirtualClock, StdGuard<'static, ()>) {
    static TURN: StdMutex<()> = StdMutex::new(());
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    (VirtualClock::install(), turn)
}

#[derive(Clone, Copy)]
struct Spec {
    group: Group,
    weight: u32,
    section: Duration,
}

fn spec(section_us: u64) -> Spec {
    Spec {
        group: Group::ROOT,
        weight: 100,
        section: Duration::from_micros(section_us),
    }
}

/// What a thread had.
#[derive(Clone, Copy, Default, Debug)]
struct Had {
    hold: Duration,
    /// The most acquisitions of others while it waited for one.
    bypassed: u64,
}

/// Runs threads that want nothing but the lock for this virtual time, of which
/// the first tenth does not count.
fn saturate(lock: &Mutex<()>, clock: VirtualClock, threads: &[Spec], time: Duration) -> Vec<Had> {
    let done = AtomicBool::new(false);
    // SAFETY: only asks how many wait.
    let raw = unsafe { lock.raw() }.as_ref();
    let acquisitions = AtomicU64::new(0);
    let start = Barrier::new(threads.len());
    let begin = clock.elapsed();
    std::thread::scope(|scope| {
        let handles: Vec<_> = threads
            .iter()
            .map(|spec| {
                let (done, start) = (&done, &start);
                let acquisitions = &acquisitions;
                scope.spawn(move || {
                    thread::join(spec.group);
                    thread::set_weight(spec.weight).unwrap();
                    let mut had = Had::default();
                    start.wait();
                    loop {
                        let before = acquisitions.load(SeqCst);
                        let guard = lock.lock();
                        let others = acquisitions.fetch_add(1, SeqCst) - before;
                        while raw.waiters() + 1 < threads.len() && !done.load(SeqCst) {
                            std::thread::yield_now();
                        }
                        clock.advance(spec.section);
                        let passed = clock.elapsed() - begin;
                        if passed > time / 10 {
                            had.hold += spec.section;
                            had.bypassed = had.bypassed.max(others);
                        }
                        if passed > time {
                            done.store(true, SeqCst);
                        }
                        drop(guard);
                        if done.load(SeqCst) {
                            return had;
                        }
                    }
                })
            })
            .collect();
        let join = |handle: ScopedJoinHandle<'_, Had>| {
            // Who idles under the strict guarantee after all others have gone
            // waits for a clock that nobody moves any more.
            while !handle.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
                if done.load(SeqCst) {
                    clock.advance(Duration::from_millis(1));
                }
            }
            handle.join().unwrap()
        };
        handles.into_iter().map(join).collect()
    })
}

fn lock_with(options: Options, name: &str) -> (Mutex<()>, Profile) {
    let profile = options.register(name).unwrap();
    (
        Mutex::from_raw(RawMutex::with_profile(profile), ()),
        profile,
    )
}

/// Hold time of the first `split` threads over that of the others.
fn ratio(had: &[Had], split: usize) -> f64 {
    let sum = |part: &[Had]| part.iter().map(|had| had.hold.as_secs_f64()).sum::<f64>();
    sum(&had[..split]) / sum(&had[split..])
}

#[track_caller]
fn assert_ratio(found: f64, wanted: f64, within: f64) {
    let percent = (found / wanted - 1.0) * 100.0;
    assert!(
        percent.abs() < within * 100.0,
        "{found:.4} instead of {wanted}: {percent:.1} %"
    );
}

#[test]
fn long_and_short_sections_share_equally() {
    let (clock, _turn) = clock();
    for scope in [Scope::Thread, Scope::Lock] {
        let (lock, _) = lock_with(Options::default().scope(scope), "equal");
        let threads = [[spec(30); 4], [spec(90); 4]].concat();
        let had = saturate(&lock, clock, &threads, Duration::from_secs(1));
        assert_ratio(ratio(&had, 4), 1.0, 0.02);
    }
}

#[test]
fn shares_follow_weights() {
    let (clock, _turn) = clock();
    // So long that a slice more or less for a light thread is about 1 %.
    for (light, heavy, section_us, ms) in [
        (100, 200, 40, 1000),
        (100, 800, 80, 2000),
        (9, 9216, 1, 1500),
    ] {
        let (lock, _) = lock_with(Options::default(), "weights");
        let weighted = |weight| Spec {
            weight,
            ..spec(section_us)
        };
        // Enough heavy threads that one always waits: a lock that is free goes
        // to whoever is there.
        let threads = [vec![weighted(heavy); 6], vec![weighted(light); 2]].concat();
        let had = saturate(&lock, clock, &threads, Duration::from_millis(ms));
        assert_ratio(
            ratio(&had, 6),
            3.0 * f64::from(heavy) / f64::from(light),
            0.05,
        );
    }
}

#[test]
fn a_group_shares_by_its_weight_however_many_threads_it_has() {
    let (clock, _turn) = clock();
    for (one, many) in [(100, 100), (800, 100), (100, 200)] {
        let (lock, _) = lock_with(Options::default(), "groups");
        let group = |of: &str, weight| {
            let group = Group::new(&format!("{of} {one}:{many}")).unwrap();
            Spec {
                group: group.weight(weight).unwrap(),
                ..spec(20)
            }
        };
        // Two, so that one always waits: a lock that is free goes to whoever is
        // there.
        let threads = [vec![group("few", one); 2], vec![group("crowd", many); 5]].concat();
        let had = saturate(&lock, clock, &threads, Duration::from_millis(1500));
        assert_ratio(ratio(&had, 2), f64::from(one) / f64::from(many), 0.05);
        // Inside the group all are equal.
        assert_ratio(ratio(&had[2..], 2), 2.0 / 3.0, 0.1);
    }
}

#[test]
fn without_the_group_criterion_the_larger_group_gets_more() {
    let (clock, _turn) = clock();
    let options = Options::default().criteria(Criteria::VLHT);
    let (lock, _) = lock_with(options, "no groups");
    let crowd = Spec {
        group: Group::new("ungrouped crowd").unwrap(),
        ..spec(20)
    };
    let threads = [vec![spec(20); 1], vec![crowd; 5]].concat();
    let had = saturate(&lock, clock, &threads, Duration::from_millis(300));
    assert_ratio(ratio(&had, 1), 1.0 / 5.0, 0.05);
}

#[test]
fn the_strict_guarantee_holds_for_two_and_four_threads() {
    let (clock, _turn) = clock();
    for half in [1, 2] {
        let (lock, _) = lock_with(Options::default().strict_guarantee(true), "strict");
        let threads = [vec![spec(30); half], vec![spec(90); half]].concat();
        let had = saturate(&lock, clock, &threads, Duration::from_millis(600));
        assert_ratio(ratio(&had, half), 1.0, 0.02);
    }
}

/// Two threads that never meet: the one with the short section comes back only
/// after a pause in which the lock is free.
#[test]
fn the_strict_guarantee_idles_a_thread_that_meets_nobody() {
    let (clock, _turn) = clock();
    for (strict, wanted) in [(true, 1.0), (false, 9.0)] {
        let options = Options::default().strict_guarantee(strict).statistics(true);
        let (lock, profile) = lock_with(options, "idling");
        let (long, short) = (Duration::from_micros(450), Duration::from_micros(50));
        let end = clock.elapsed() + Duration::from_millis(300);
        let done = AtomicBool::new(false);
        let held = |section: Duration, lock: &Mutex<()>| {
            let mut held = 0.0;
            while clock.elapsed() < end {
                drop({
                    let guard = lock.lock();
                    clock.advance(section);
                    held += section.as_secs_f64();
                    guard
                });
                // Long enough for the other one to come and go.
                std::thread::sleep(Duration::from_micros(100));
            }
            held
        };
        let (of_long, of_short) = std::thread::scope(|scope| {
            // Idling must end when nobody else moves the clock.
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    std::thread::sleep(Duration::from_micros(50));
                    clock.advance(Duration::from_micros(5));
                }
            });
            let other = scope.spawn(|| held(short, &lock));
            let both = (held(long, &lock), other.join().unwrap());
            done.store(true, SeqCst);
            both
        });
        let found = of_long / of_short;
        if strict {
            assert!(
                found < wanted * 1.25,
                "long sections had {found:.2} times the short ones'"
            );
            assert!(profile.statistics().idles > 0);
        } else {
            assert!(
                found > wanted / 3.0,
                "without it, {found:.2}: the test shows nothing"
            );
        }
    }
}

/// Idles are counted while one thread is alone, and after another one has come
/// and gone.
#[test]
fn a_thread_that_idled_in_vain_continues_until_another_comes() {
    let (clock, _turn) = clock();
    let options = Options::default().strict_guarantee(true).statistics(true);
    let (lock, profile) = lock_with(options, "alone");
    let hold = |section: Duration| {
        let guard = lock.lock();
        clock.advance(section);
        drop(guard);
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Idling ends when nobody else moves the clock.
        scope.spawn(|| {
            while !done.load(SeqCst) {
                std::thread::sleep(Duration::from_micros(50));
                clock.advance(Duration::from_micros(5));
            }
        });
        let idles_of_100_holds = || {
            let before = profile.statistics().idles;
            (0..100).for_each(|_| hold(Duration::from_millis(1)));
            profile.statistics().idles - before
        };
        // The first holds have nobody to be compared with.
        hold(Duration::from_micros(1));
        scope
            .spawn(|| hold(Duration::from_micros(1)))
            .join()
            .unwrap();
        let first = idles_of_100_holds();
        scope
            .spawn(|| hold(Duration::from_micros(1)))
            .join()
            .unwrap();
        let second = idles_of_100_holds();
        done.store(true, SeqCst);
        assert_eq!((first, second), (1, 1));
    });
}

/// The lock is free and the thread would idle, on a clock that nobody moves.
#[test]
fn a_deadline_ends_idling() {
    let (clock, _turn) = clock();
    let (lock, _) = lock_with(Options::default().strict_guarantee(true), "impatient");
    let holds = (0..100).take_while(|_| {
        let guard = lock.try_lock_for(Duration::ZERO);
        clock.advance(Duration::from_millis(1));
        guard.is_some()
    });
    std::thread::scope(|scope| {
        // Measured from the first hold on, and compared with the other's.
        let _guard = lock.lock();
        scope.spawn(|| drop(lock.lock()));
        // SAFETY: only asks whether somebody waits.
        while !unsafe { lock.raw() }.as_ref().has_waiters() {
            std::thread::yield_now();
        }
        clock.advance(Duration::from_micros(1));
    });
    assert!(holds.count() < 100);
}

#[test]
fn a_waiter_is_passed_by_at_most_the_slices_of_all_others() {
    let (clock, _turn) = clock();
    let (lock, _) = lock_with(Options::default(), "bypass");
    let had = saturate(&lock, clock, &[spec(10); 8], Duration::from_millis(500));
    // Each of seven others may go from a slice behind to four slices ahead of
    // the average, and the head may be passed for four slices more.
    // The average moves meanwhile, for which as much again is allowed.
    let most = 2 * (7 * (5 * 250 / 10) + 4 * 250 / 10);
    for had in &had {
        assert!(had.bypassed <= most, "{had:?}, bound {most}");
    }
}

/// The others do not wait for a newcomer that the machine keeps from its CPU:
/// the quickest of several tells what the lock does.
#[test]
fn a_newcomer_is_served_soon_and_does_not_take_over() {
    let (clock, _turn) = clock();
    let (lock, _) = lock_with(Options::default(), "newcomer");
    let stop = AtomicBool::new(false);
    let others = AtomicU64::new(0);
    let section = Duration::from_micros(20);
    let hold = || {
        let _guard = lock.lock();
        clock.advance(section);
    };
    let newcomer = |holds: u64| {
        let coming = others.load(SeqCst);
        hold();
        let before_first = others.load(SeqCst) - coming;
        let mut own = 1;
        while own + others.load(SeqCst) - coming < holds {
            hold();
            own += 1;
        }
        (before_first, own)
    };
    let (before_first, own) = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    hold();
                    others.fetch_add(1, SeqCst);
                }
            });
        }
        // The others have had two virtual seconds before the first one comes.
        let begin = clock.elapsed();
        while clock.elapsed() - begin < Duration::from_secs(2) {
            std::thread::yield_now();
        }
        let quickest = (0..5)
            .map(|_| scope.spawn(|| newcomer(0).0).join().unwrap())
            .min();
        let (_, own) = scope.spawn(|| newcomer(40_000)).join().unwrap();
        stop.store(true, SeqCst);
        (quickest.unwrap(), own)
    });
    // Four others, each up to five slices of 12 sections.
    assert!(
        before_first <= 4 * 5 * 13 + 50,
        "{before_first} before the first"
    );
    // Its share is a fifth, 8000; two virtual seconds of arrears would be all
    // 40000. What it may have beyond is the distance it may lag by.
    assert!(own < 8000 + 10_000, "the newcomer took {own} of 40000");
}

#[test]
fn statistics_tell_what_was_held() {
    let (clock, _turn) = clock();
    let (lock, profile) = lock_with(Options::default().statistics(true), "statistics");
    let (ready, go) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                let _guard = lock.lock();
                clock.advance(Duration::from_micros(100));
            }
            ready.wait();
            go.wait();
        });
        ready.wait();
        drop(lock.lock());
        // SAFETY: only reads the raw lock's accounts.
        let shares = unsafe { lock.raw() }.shares();
        go.wait();
        let most = shares.iter().max_by_key(|share| share.hold_ns).unwrap();
        assert_eq!((most.hold_ns, most.acquisitions), (1_000_000, 10));
        assert!(jain_by_weight(&shares) < 0.51, "one of two threads had all");
    });
    let seen = profile.statistics();
    assert_eq!(
        (seen.acquisitions, seen.hold_ns, seen.contended),
        (11, 1_000_000, 0)
    );
}
