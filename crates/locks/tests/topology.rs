//! The socket criterion and the grace period, on sockets by decree and a
//! virtual clock that only holders move.
//!
//! Threads want nothing but the lock, and a holder waits until all others want
//! it too, so the order of holds is the lock's doing. Without barging every
//! acquisition goes through the queue: what is counted is the queue's order and
//! not how fast the machine wakes threads.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Mutex as StdMutex, MutexGuard as StdGuard};
use std::time::Duration;

use giveway_locks::{Criteria, Mutex, Options, RawMutex, Topology, VirtualClock, raw, thread};

/// The default slice: how far a socket may lead before others have their turn.
const SLICE: Duration = Duration::from_micros(250);
/// The longest critical section here.
const LONGEST: Duration = Duration::from_micros(70);

/// Clock and topology are the process's, so the tests take turns.
fn sockets(count: u8) -> (VirtualClock, StdGuard<'static, ()>) {
    static TURN: StdMutex<()> = StdMutex::new(());
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Topology::fake(count).install();
    assert_eq!(Topology::sockets(), u32::from(count));
    (VirtualClock::install(), turn)
}

fn lock_with(options: Options) -> Mutex<()> {
    let profile = options.register("topology").unwrap();
    Mutex::from_raw(RawMutex::with_profile(profile), ())
}

/// One hold.
#[derive(Clone, Copy, Debug)]
struct Hold {
    thread: usize,
    socket: u32,
    began: Duration,
    length: Duration,
}

/// The holds of eight threads in this virtual time, in order. They are 5 to 35
/// µs long, at random so that they form no pattern, but `times(socket)` as long.
fn saturate(
    lock: &Mutex<()>,
    clock: VirtualClock,
    time: Duration,
    times: impl Fn(u32) -> u32 + Sync,
) -> Vec<Hold> {
    const THREADS: usize = 8;
    let (wanting, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let holds = StdMutex::new(Vec::new());
    let start = Barrier::new(THREADS);
    let begin = clock.elapsed();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (wanting, done, holds, start, times) = (&wanting, &done, &holds, &start, &times);
            scope.spawn(move || {
                let socket = thread::socket();
                let times = times(socket);
                let mut random = thread as u64 + 1;
                start.wait();
                while !done.load(SeqCst) {
                    wanting.fetch_add(1, SeqCst);
                    let guard = lock.lock();
                    wanting.fetch_sub(1, SeqCst);
                    while wanting.load(SeqCst) + 1 < THREADS && !done.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    let began = clock.elapsed() - begin;
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let length = times * Duration::from_micros(5 + (random >> 32) % 31);
                    holds.lock().unwrap().push(Hold {
                        thread,
                        socket,
                        began,
                        length,
                    });
                    clock.advance(length);
                    if began > time {
                        done.store(true, SeqCst);
                    }
                    drop(guard);
                }
            });
        }
    });
    holds.into_inner().unwrap()
}

/// The hand-overs that went to another socket.
fn crossings(holds: &[Hold]) -> impl Iterator<Item = Hold> {
    let pairs = holds.windows(2);
    pairs.filter_map(|pair| (pair[0].socket != pair[1].socket).then_some(pair[1]))
}

/// The part of the hand-overs that stayed on the socket.
fn near(holds: &[Hold]) -> f64 {
    1.0 - crossings(holds).count() as f64 / (holds.len() - 1) as f64
}

/// The hold times of the threads must not differ by more than this.
#[track_caller]
fn assert_shared(holds: &[Hold], within: Duration) {
    let mut held = [Duration::ZERO; 8];
    for hold in holds {
        held[hold.thread] += hold.length;
    }
    let (most, least) = (held.iter().max().unwrap(), held.iter().min().unwrap());
    assert!(*most - *least <= within, "{held:?}, {within:?} apart");
}

#[test]
fn the_lock_stays_on_a_socket_and_is_shared_all_the_same() {
    for count in [2, 4] {
        let (clock, _turn) = sockets(count);
        let time = Duration::from_millis(60);
        let run = |criteria, slice| {
            let options = Options::default().barging(false);
            let lock = lock_with(options.criteria(criteria).slice(slice));
            // Threads of the first socket hold it twice as long each time.
            saturate(&lock, clock, time, |socket| 1 + u32::from(socket == 0))
        };
        let by_socket = Criteria::VLHT.and(Criteria::SOCKET);
        // A slice of 0 shortens nobody's turn but that of a thread.
        for slice in [SLICE, Duration::ZERO] {
            let holds = run(by_socket, slice);
            // A turn is a slice for each of the socket's threads at least, in
            // holds of 40 µs on average at most; then one hand-over leaves.
            let holds_per_turn = 8.0 / f64::from(count) * 250.0 / 40.0;
            let expected = 1.0 - 1.0 / holds_per_turn;
            assert!(near(&holds) >= expected, "{} of {expected}", near(&holds));
            // A socket may be a slice ahead, another as much behind, and a
            // thread a section from its socket's average either way.
            assert_shared(&holds, 2 * SLICE + 4 * LONGEST);
        }
        // What the criterion is compared with: the lock as it is without. By
        // chance, one of the other seven is on the holder's socket as often as
        // 8/count - 1 in 7.
        let without = run(Criteria::VLHT, SLICE);
        let chance = (8.0 / f64::from(count) - 1.0) / 7.0;
        assert!(near(&without) < chance + 0.2, "{}", near(&without));
        assert_shared(&without, 4 * LONGEST);
    }
}

#[test]
fn a_grace_period_keeps_the_socket_and_makes_the_others_wait() {
    let (clock, _turn) = sockets(2);
    let grace = Duration::from_millis(10);
    let run = |grace| {
        let lock = lock_with(Options::default().barging(false).grace_period(grace));
        saturate(&lock, clock, Duration::from_millis(120), |_| 2)
    };
    // How long a socket kept the lock, from its second turn to its last but
    // one: the first begins with nobody's grace period, the last is cut off.
    let turns = |holds: &[Hold]| {
        let began: Vec<_> = crossings(holds).map(|hold| hold.began).collect();
        let turns: Vec<_> = began.windows(2).map(|pair| pair[1] - pair[0]).collect();
        turns[1..turns.len() - 1].to_vec()
    };
    let (with, without) = (run(grace), run(Duration::ZERO));
    // Locks keep the time in whole milliseconds.
    let (shortest, millisecond) = (turns(&with).into_iter().min(), Duration::from_millis(1));
    assert!(shortest.unwrap() + millisecond >= grace, "{shortest:?}");
    // Its price: nobody else had the lock for so long. Without, a socket is
    // through when its four threads lead by a slice those who were led by one.
    let longest = turns(&without).into_iter().max();
    assert!(longest.unwrap() < grace / 2, "{longest:?}");
    // In the long run both are fair: within half a grace period for each of
    // the four threads, and the millisecond.
    assert_shared(&with, (grace + millisecond) / 2);
    assert_shared(&without, 2 * SLICE + 4 * LONGEST);
}

/// With barging: a thread that runs may pass the waiters if they have had as
/// much as it has, but not from another socket than the favoured one.
#[test]
fn a_thread_of_another_socket_does_not_pass_the_favoured_waiters() {
    let (_clock, _turn) = sockets(2);
    const ROUNDS: u32 = 200;
    let passed = |criteria: Criteria| {
        let lock = lock_with(Options::default().criteria(criteria));
        let (round, served) = (Barrier::new(2), AtomicBool::new(false));
        let here = thread::socket();
        // Sockets are dealt out in turn: behind this one comes the other.
        while std::thread::spawn(thread::socket).join().unwrap() != here {}
        let there = AtomicU32::new(u32::MAX);
        let mut passed = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                there.store(thread::socket(), SeqCst);
                for _ in 0..ROUNDS {
                    round.wait();
                    let guard = lock.lock();
                    served.store(true, SeqCst);
                    drop(guard);
                    round.wait();
                }
            });
            for _ in 0..ROUNDS {
                served.store(false, SeqCst);
                let guard = lock.lock();
                round.wait();
                // SAFETY: only looks at the raw lock.
                let raw = unsafe { lock.raw() }.as_ref();
                let favoured = || raw::verdict(raw).map(|(_, sid)| sid);
                let by_socket = criteria.contains(Criteria::SOCKET);
                while !raw.has_waiters() || by_socket && favoured() != Some(there.load(SeqCst)) {
                    std::thread::yield_now();
                }
                drop(guard);
                let again = lock.lock();
                passed += u32::from(!served.load(SeqCst));
                drop(again);
                round.wait();
            }
        });
        assert_ne!(there.load(SeqCst), here);
        passed
    };
    assert_eq!(passed(Criteria::ALL), 0);
    // Else it goes on with its slice, most of the times.
    assert!(passed(Criteria::VLHT) > 0);
}
