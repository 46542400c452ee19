//! The gates, and what is promised behind them: what a gate refuses is taken
//! later, and locks that are held in regions are never waited for by their own
//! thread.

mod common;

use std::alloc::System;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{Length, Random, alone, settle};
use giveway_preempt::{
    self as preempt, Delivery, Level, RegionAlloc, RegionMutex, Remote, Requested, Worker,
};

#[global_allocator]
static ALLOCATOR: RegionAlloc<System> = RegionAlloc(System);

const HIGH: Level = Level::new(1);
/// A machine that is busy with other things takes its time; only a failed test
/// waits it out.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker on a thread of its own, whose high level counts, and whose base does
/// `work` until it breaks or the value is dropped.
struct Background {
    remote: Remote,
    runs: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Background {
    fn new(delivery: Delivery, work: impl FnMut() -> ControlFlow<()> + Send + 'static) -> Self {
        Background::with_body(delivery, work, || {})
    }

    fn with_body(
        delivery: Delivery,
        mut work: impl FnMut() -> ControlFlow<()> + Send + 'static,
        mut body: impl FnMut() + Send + 'static,
    ) -> Self {
        let (runs, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (say, hear) = mpsc::channel();
        let thread = std::thread::spawn({
            let (runs, stop) = (Arc::clone(&runs), Arc::clone(&stop));
            move || {
                let worker = Worker::builder()
                    .delivery(delivery)
                    .level("high", move |_| {
                        body();
                        runs.fetch_add(1, Release);
                    })
                    .enter()
                    .unwrap();
                say.send(worker.remote()).unwrap();
                while !stop.load(Acquire) && work().is_continue() {}
            }
        });
        Background {
            remote: hear.recv().unwrap(),
            runs,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Release);
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_interrupts_work_that_never_polls() {
    let _alone = alone();
    let low = Background::new(Delivery::Signal, || {
        std::hint::spin_loop();
        ControlFlow::Continue(())
    });
    for _ in 0..20 {
        assert!(low.remote.preempt_within(HIGH, PATIENCE));
    }
    wait_for("the last body", || low.runs.load(Acquire) == 20);
    settle(&low.remote);
}

#[test]
fn a_thread_that_inherits_a_blocked_signal_is_interrupted_too() {
    let _alone = alone();
    // SAFETY: plain data; changes the mask of this thread, which the worker's
    // inherits.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGURG);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    let low = Background::new(Delivery::Signal, || {
        std::hint::spin_loop();
        ControlFlow::Continue(())
    });
    assert!(low.remote.preempt_within(HIGH, PATIENCE));
}

#[test]
fn every_delivery_can_be_measured() {
    let _alone = alone();
    for delivery in Delivery::available() {
        let latency = delivery.measure(20).unwrap();
        assert_eq!((latency.delivery, latency.samples), (delivery, 20));
        assert!(latency.send_p50_ns <= latency.p99_ns, "{latency:?}");
        assert!(
            0 < latency.p50_ns && latency.p50_ns <= latency.p90_ns,
            "{latency:?}"
        );
        assert!(latency.p90_ns <= latency.p99_ns && latency.p99_ns <= latency.max_ns);
    }
}

#[test]
fn a_level_that_a_signal_went_to_can_be_interrupted_itself() {
    let _alone = alone();
    static IN_MIDDLE: AtomicBool = AtomicBool::new(false);
    static TOP_RAN: AtomicU64 = AtomicU64::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    const TOP: Level = Level::new(2);
    let (say, hear) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let worker = Worker::builder()
            .delivery(Delivery::Signal)
            .level("middle", |_| {
                // Without poll points or regions.
                let before = TOP_RAN.load(Acquire);
                IN_MIDDLE.store(true, Release);
                while TOP_RAN.load(Acquire) == before && !STOP.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
            .level("top", |_| {
                TOP_RAN.fetch_add(1, Release);
            })
            .enter()
            .unwrap();
        say.send(worker.remote()).unwrap();
        while !STOP.load(Relaxed) {
            std::hint::spin_loop();
        }
    });
    let remote = hear.recv().unwrap();
    for _ in 0..20 {
        let start = Instant::now();
        IN_MIDDLE.store(false, Release);
        remote.preempt(HIGH);
        while !IN_MIDDLE.load(Acquire) && start.elapsed() < PATIENCE {
            // The signal may come while the thread is in the C library.
            remote.rearm();
            std::thread::yield_now();
        }
        if !remote.preempt_within(TOP, PATIENCE) {
            break;
        }
    }
    let counters = remote.counters();
    STOP.store(true, Relaxed);
    thread.join().unwrap();
    assert_eq!(counters.taken, 40, "{counters:?}");
}

#[test]
fn the_backstop_interrupts_work_that_never_polls() {
    let _alone = alone();
    let low = Background::new(Delivery::HYBRID, || {
        std::hint::spin_loop();
        ControlFlow::Continue(())
    });
    assert_eq!(low.remote.rearm(), None, "nothing is outstanding");
    for _ in 0..20 {
        assert!(low.remote.preempt_within(HIGH, PATIENCE));
    }
    let counters = settle(&low.remote);
    assert_eq!(counters.taken, 20);
    // Not one each: a request that comes while the handler is on its way out is
    // taken by it, too.
    assert!(counters.interrupts > 0, "{counters:?}");
}

#[test]
fn a_poll_point_spares_the_backstop() {
    let _alone = alone();
    let grace = Duration::from_secs(3600);
    let low = Background::new(Delivery::Hybrid { grace }, || {
        preempt::poll_point();
        ControlFlow::Continue(())
    });
    for _ in 0..20 {
        assert!(low.remote.preempt_within(HIGH, PATIENCE));
    }
    assert_eq!(settle(&low.remote).interrupts, 0);
}

#[test]
fn a_long_region_is_waited_for_and_not_interrupted() {
    let _alone = alone();
    static HELD: AtomicBool = AtomicBool::new(false);
    static LET_GO: AtomicBool = AtomicBool::new(false);
    static WRONG: AtomicU64 = AtomicU64::new(0);
    let low = Background::with_body(
        Delivery::Signal,
        || {
            let region = preempt::region();
            HELD.store(true, Release);
            while !LET_GO.load(Acquire) {
                std::hint::spin_loop();
            }
            HELD.store(false, Release);
            drop(region);
            ControlFlow::Continue(())
        },
        || {
            if HELD.load(Acquire) {
                WRONG.fetch_add(1, Relaxed);
            }
        },
    );
    wait_for("the region", || HELD.load(Acquire));
    assert_eq!(low.remote.preempt(HIGH), Requested::New);
    wait_for("the signal", || {
        low.remote.counters().deferred_by_region == 1
    });
    // No repetition: the region's exit is sure to come.
    for _ in 0..1000 {
        low.remote.rearm();
        std::hint::spin_loop();
    }
    let counters = low.remote.counters();
    assert_eq!(
        (counters.taken, counters.interrupts),
        (0, 1),
        "{counters:?}"
    );
    LET_GO.store(true, Release);
    wait_for("the region's exit", || low.runs.load(Acquire) == 1);
    assert_eq!(WRONG.load(Relaxed), 0);
    settle(&low.remote);
}

/// Half the time inside the C library, which asks for no region.
fn move_in_libc(values: &mut [u8; 1 << 14]) {
    // SAFETY: moves bytes within the array.
    unsafe {
        let (from, to) = (values.as_ptr().add(1), values.as_mut_ptr());
        libc::memmove(to.cast(), from.cast(), values.len() - 1);
    }
}

#[test]
fn requests_refused_in_the_c_library_are_repeated() {
    let _alone = alone();
    let mut values = Box::new([7u8; 1 << 14]);
    let low = Background::new(Delivery::Signal, move || {
        for _ in 0..1000 {
            move_in_libc(&mut values);
            (0..30).for_each(|_| std::hint::spin_loop());
        }
        ControlFlow::Continue(())
    });
    let length = Length::short();
    let deferred = || low.remote.counters().deferred_by_text;
    while !length.is_over(deferred() > 20, deferred() > 0) {
        let taken = low.remote.preempt_within(HIGH, PATIENCE);
        assert!(taken, "{:?} {:?}", low.remote, low.remote.counters());
    }
    let counters = settle(&low.remote);
    assert!(counters.deferred_by_text > 0, "{counters:?}");
    assert!(
        counters.interrupts > counters.deferred_by_text,
        "{counters:?}"
    );
}

#[test]
fn with_little_stack_left_a_request_waits() {
    let _alone = alone();
    static DEEP: AtomicBool = AtomicBool::new(false);
    static RISE: AtomicBool = AtomicBool::new(false);
    /// Goes down until 12 KiB are left, and spins there, in the engine's text.
    fn sink(low: usize) {
        let here = [0u8; 512];
        let here = std::hint::black_box(&here).as_ptr().addr();
        if here - low > 12 << 10 {
            return sink(low);
        }
        DEEP.store(true, Release);
        while !RISE.load(Acquire) {
            std::hint::spin_loop();
        }
    }
    let low = Background::new(Delivery::Signal, || {
        // SAFETY: plain data that the C library fills and frees.
        let bottom = unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_getattr_np(libc::pthread_self(), &mut attributes);
            let (mut bottom, mut bytes) = (std::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(&attributes, &mut bottom, &mut bytes);
            libc::pthread_attr_destroy(&mut attributes);
            bottom.addr()
        };
        sink(bottom);
        ControlFlow::Break(())
    });
    wait_for("the depth", || DEEP.load(Acquire));
    low.remote.preempt(HIGH);
    wait_for("two refusals", || {
        low.remote.rearm();
        low.remote.counters().deferred_by_stack >= 2
    });
    assert_eq!(low.runs.load(Acquire), 0);
    RISE.store(true, Release);
    wait_for("the request", || {
        low.remote.rearm();
        low.runs.load(Acquire) == 1 || !low.remote.is_alive()
    });
}

/// A handler of the program's, on an alternate stack that lies above the worker's own:
/// a context that were left there would be written over by the next such handler.
#[test]
fn on_a_stack_that_is_not_the_contexts_a_request_waits() {
    const BYTES: usize = 1 << 20;
    static INSIDE: AtomicBool = AtomicBool::new(false);
    static LEAVE: AtomicBool = AtomicBool::new(false);
    static ABOVE: AtomicBool = AtomicBool::new(false);
    extern "C" fn handler(_: libc::c_int) {
        INSIDE.store(true, Release);
        while !LEAVE.load(Acquire) {
            std::hint::spin_loop();
        }
    }
    let _alone = alone();
    // Mapped before the thread's stack: the kernel goes downwards.
    // SAFETY: new memory, which stays.
    let memory = unsafe {
        let (read_write, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        libc::mmap(std::ptr::null_mut(), BYTES, read_write, private, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let address = memory.addr();
    let low = Background::new(Delivery::Signal, move || {
        ABOVE.store(address > (&raw const address).addr(), Release);
        let stack = libc::stack_t {
            ss_sp: std::ptr::without_provenance_mut(address),
            ss_flags: 0,
            ss_size: BYTES,
        };
        // SAFETY: the memory is nobody else's; the handler only uses atomics.
        unsafe {
            let mut before: libc::stack_t = std::mem::zeroed();
            assert_eq!(libc::sigaltstack(&raw const stack, &raw mut before), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK;
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
            libc::raise(libc::SIGUSR2);
            libc::sigaltstack(&raw const before, std::ptr::null_mut());
        }
        ControlFlow::Break(())
    });
    wait_for("the handler", || INSIDE.load(Acquire));
    low.remote.preempt(HIGH);
    wait_for("two refusals", || {
        low.remote.rearm();
        low.remote.counters().deferred_by_stack >= 2 || low.runs.load(Acquire) > 0
    });
    let early = low.runs.load(Acquire);
    LEAVE.store(true, Release);
    assert_eq!(early, 0);
    wait_for("the request", || {
        low.remote.rearm();
        low.runs.load(Acquire) == 1 || !low.remote.is_alive()
    });
    // Below it, too little stack would have been the reason.
    println!("above the worker's stack: {}", ABOVE.load(Acquire));
}

#[test]
fn contexts_of_one_worker_never_wait_for_each_other_at_a_mutex() {
    let _alone = alone();
    static BOTH: RegionMutex<[u64; 2]> = RegionMutex::new([0; 2]);
    fn step(by: u64) {
        let mut both = BOTH.lock();
        both[0] += by;
        // Longer than a signal takes to come.
        for _ in 0..200 {
            std::hint::spin_loop();
        }
        assert!(preempt::in_region());
        both[1] += by;
        assert_eq!(both[0], both[1]);
    }
    let worker = || {
        let low = || {
            step(1);
            assert!(!preempt::in_region());
            ControlFlow::Continue(())
        };
        Background::with_body(Delivery::Signal, low, || step(1000))
    };
    // Two workers, so that there is also a real wait, in the futex.
    let workers = [worker(), worker()];
    let mut random = Random::from_env("mutex", 31);
    let length = Length::short();
    let deferred = |more_than: u64| {
        let counters = workers.iter().map(|worker| worker.remote.counters());
        counters
            .map(|counters| counters.deferred_by_region)
            .all(|deferred| deferred > more_than)
    };
    while !length.is_over(deferred(200), deferred(0)) {
        let remote = &workers[random.below(2) as usize].remote;
        if remote.preempt(HIGH) == Requested::Merged {
            std::thread::yield_now();
        }
    }
    for worker in &workers {
        let counters = settle(&worker.remote);
        assert!(counters.deferred_by_region > 0, "{counters:?}");
    }
    drop(workers);
    let both = BOTH.lock();
    assert_eq!(both[0], both[1]);
    assert!(both[0] > 1000);
}
