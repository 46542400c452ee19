//! What a worker does, without interrupts: every step is at a poll point, so
//! that the order of events is exact.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Mutex};

use giveway_preempt::{
    self as preempt, Counters, Delivery, EnterError, Level, RegionAlloc, Remote, Requested, Worker,
    Yielded,
};

const HIGH: Level = Level::new(1);
const TOP: Level = Level::new(2);

/// What happened, in order. Only pushed to inside regions: contexts share it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn push(&self, event: impl Into<String>) {
        let event = event.into();
        let _region = preempt::region();
        self.0.lock().unwrap().push(event);
    }

    fn take(&self) -> Vec<String> {
        let _region = preempt::region();
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn polled() -> preempt::Builder {
    Worker::builder().delivery(Delivery::Poll)
}

fn balanced(remote: &Remote) -> Counters {
    let counters = remote.counters();
    let gone = counters.taken + counters.acknowledged + remote.outstanding().len() as u64;
    assert_eq!(counters.requested, gone, "{counters:?}");
    counters
}

#[test]
fn a_request_is_taken_at_the_next_poll_point_and_once() {
    let log = Log::default();
    let high = log.clone();
    let worker = polled()
        .level("high", move |level| high.push(format!("level {level}")))
        .enter()
        .unwrap();
    let remote = worker.remote();
    assert_eq!(remote.preempt(HIGH), Requested::New);
    assert_eq!(remote.preempt(HIGH), Requested::Merged);
    log.push("before");
    // The log's region took it.
    log.push("after");
    preempt::poll_point();
    assert_eq!(log.take(), ["before", "level 1", "after"]);
    assert_eq!(balanced(&remote).taken, 1);
}

#[test]
fn a_request_waits_for_the_outermost_region() {
    let log = Log::default();
    let high = log.clone();
    let worker = polled()
        .level("high", move |_| high.push("high"))
        .enter()
        .unwrap();
    let remote = worker.remote();
    let outer = preempt::region();
    let inner = preempt::region();
    remote.preempt(HIGH);
    assert!(preempt::is_due() && preempt::in_region());
    preempt::poll_point();
    drop(inner);
    preempt::poll_point();
    assert_eq!(log.take(), [""; 0]);
    drop(outer);
    assert_eq!(log.take(), ["high"]);
    assert!(!preempt::is_due() && !preempt::in_region());
}

#[test]
fn levels_nest_and_the_most_urgent_goes_first() {
    let log = Log::default();
    let (high, top) = (log.clone(), log.clone());
    let remote = Arc::new(Mutex::new(None::<Remote>));
    let shared = Arc::clone(&remote);
    let worker = polled()
        .level("high", move |_| {
            high.push("high begins");
            assert_eq!(preempt::current_level(), Some(HIGH));
            let remote = shared.lock().unwrap().clone().unwrap();
            remote.preempt(TOP);
            preempt::poll_point();
            remote.preempt(HIGH);
            preempt::poll_point();
            high.push("high ends");
            // Withdrawn: the base will not be preempted again.
            preempt::acknowledge();
        })
        .level("top", move |_| {
            assert_eq!(preempt::current_level(), Some(TOP));
            top.push("top");
        })
        .enter()
        .unwrap();
    *remote.lock().unwrap() = Some(worker.remote());
    let remote = worker.remote();
    assert_eq!(preempt::current_level(), Some(Level::BASE));
    remote.preempt(HIGH);
    preempt::poll_point();
    assert_eq!(log.take(), ["high begins", "top", "high ends"]);

    // Both at once: the base goes to the top first, then to the middle.
    let region = preempt::region();
    remote.preempt(HIGH);
    remote.preempt(TOP);
    drop(region);
    assert_eq!(log.take(), ["top", "high begins", "top", "high ends"]);
    assert_eq!(balanced(&remote).acknowledged, 2);
}

#[test]
fn each_context_has_thread_locals_and_an_errno_of_its_own() {
    thread_local!(static COUNT: Cell<u32> = const { Cell::new(0) });
    fn errno() -> &'static mut i32 {
        // SAFETY: errno always has an address, and a context its own.
        unsafe { &mut *libc::__errno_location() }
    }
    let names = Log::default();
    let high = names.clone();
    let worker = polled()
        .level("high", move |_| {
            COUNT.set(COUNT.get() + 1);
            *errno() = 42;
            high.push(format!(
                "{} {}",
                std::thread::current().name().unwrap_or("?"),
                COUNT.get()
            ));
        })
        .enter()
        .unwrap();
    COUNT.set(100);
    *errno() = 7;
    assert!(preempt::yield_to(HIGH));
    assert!(preempt::yield_to(HIGH));
    assert_eq!(*errno(), 7);
    assert_eq!(COUNT.get(), 100);
    assert_eq!(names.take(), ["high 1", "high 2"]);
    drop(worker);
}

#[test]
fn a_voluntary_switch_serves_what_was_requested() {
    let worker = polled().level("high", |_| {}).enter().unwrap();
    let remote = worker.remote();
    remote.preempt(HIGH);
    assert!(preempt::yield_to(HIGH));
    assert!(!preempt::is_due());
    assert_eq!(balanced(&remote).taken, 1);
    assert!(!preempt::yield_to(Level::BASE), "not above the caller's");
    assert!(!preempt::yield_to(TOP), "no such level");
}

#[test]
fn a_panic_ends_the_body_and_nothing_else() {
    let worker = polled()
        .level("high", |_| std::panic::resume_unwind(Box::new("intended")))
        .enter()
        .unwrap();
    for _ in 0..3 {
        assert!(preempt::yield_to(HIGH));
    }
    assert_eq!(worker.remote().counters().panics, 3);
    assert!(!preempt::in_region());
}

#[test]
fn a_level_that_yields_goes_on_at_the_next_boundary_below() {
    let log = Log::default();
    let high = log.clone();
    let worker = polled()
        .level("high", move |_| {
            high.push("high conflicts");
            assert_eq!(preempt::yield_below(), Yielded::Ran);
            high.push("high goes on");
        })
        .enter()
        .unwrap();
    let remote = worker.remote();
    remote.preempt(HIGH);
    preempt::poll_point();
    // The level is waiting: it takes no requests meanwhile.
    remote.preempt(HIGH);
    preempt::poll_point();
    assert!(!preempt::yield_to(HIGH));
    log.push("base commits");
    preempt::task_boundary();
    assert_eq!(
        log.take(),
        [
            "high conflicts",
            "base commits",
            "high goes on",
            // The second request, taken when the first is done.
            "high conflicts"
        ]
    );
    assert_eq!(balanced(&remote).yields, 2);
    drop(worker);
    assert_eq!(log.take(), ["high goes on"]);
}

#[test]
fn waiting_for_a_level_that_goes_idle_passes_to_the_one_below() {
    // The top conflicts with the base, across the middle.
    let log = Log::default();
    let (high, top) = (log.clone(), log.clone());
    let remote = Arc::new(Mutex::new(None::<Remote>));
    let shared = Arc::clone(&remote);
    let committed = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&committed);
    let worker = polled()
        .level("middle", move |_| {
            shared.lock().unwrap().clone().unwrap().preempt(TOP);
            preempt::poll_point();
            high.push("middle goes on");
        })
        .level("top", move |_| {
            while !*seen.lock().unwrap() {
                top.push("top conflicts");
                assert_eq!(preempt::yield_below(), Yielded::Ran);
            }
            top.push("top commits");
        })
        .enter()
        .unwrap();
    *remote.lock().unwrap() = Some(worker.remote());
    worker.remote().preempt(HIGH);
    preempt::poll_point();
    log.push("base commits");
    *committed.lock().unwrap() = true;
    preempt::task_boundary();
    assert_eq!(
        log.take(),
        [
            "top conflicts",
            "middle goes on",
            // At the middle's end, once; then it waits for the base.
            "top conflicts",
            "base commits",
            "top commits"
        ]
    );
    balanced(&worker.remote());
}

#[test]
fn yield_below_reports_that_nothing_is_below() {
    assert_eq!(preempt::yield_below(), Yielded::NothingBelow);
    assert!(!preempt::yield_to(HIGH));
    assert_eq!(preempt::current_level(), None);
    preempt::task_boundary();
    preempt::acknowledge();
    preempt::poll_point();
    let _worker = polled().level("high", |_| {}).enter().unwrap();
    assert_eq!(preempt::yield_below(), Yielded::NothingBelow);
}

#[test]
fn yielding_inside_a_region_is_a_bug() {
    let _worker = polled().level("high", |_| {}).enter().unwrap();
    let _region = preempt::region();
    let wrongs: [fn(); 3] = [
        || assert!(preempt::yield_to(HIGH)),
        || assert_eq!(preempt::yield_below(), Yielded::Ran),
        preempt::task_boundary,
    ];
    for wrong in wrongs {
        let panic = std::panic::catch_unwind(wrong).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("inside a region"), "{text}");
    }
}

#[test]
fn a_thread_is_one_worker_and_another_after_that() {
    let first = polled().level("high", |_| {}).enter().unwrap();
    let remote = first.remote();
    let error = polled().level("high", |_| {}).enter().unwrap_err();
    assert!(matches!(error, EnterError::AlreadyWorker));
    assert!(remote.is_alive());
    drop(first);
    assert!(!remote.is_alive());
    assert_eq!(remote.preempt(HIGH), Requested::Gone);
    assert_eq!(preempt::current_level(), None);
    let second = polled().level("high", |_| {}).enter().unwrap();
    assert_eq!(second.remote().preempt(HIGH), Requested::New);
    preempt::poll_point();
    balanced(&second.remote());
}

#[test]
fn enter_errors_name_the_remedy() {
    let error = polled().enter().unwrap_err();
    assert!(error.to_string().contains("Builder::level"), "{error}");
    let many = (0..16).fold(polled(), |builder, _| builder.level("level", |_| {}));
    let error = many.enter().unwrap_err();
    assert!(error.to_string().contains("at most 15"), "{error}");
    let small = polled().stack_bytes(4096).level("high", |_| {});
    let error = small.enter().unwrap_err();
    assert!(error.to_string().contains("131072"), "{error}");
    let wrong = Worker::builder()
        .signal(libc::SIGKILL)
        .level("high", |_| {});
    let error = wrong.enter().unwrap_err();
    assert!(error.to_string().contains("SIGURG"), "{error}");
    assert_eq!(preempt::current_level(), None);
}

/// Says whether it is called inside a region.
struct Probe;

// SAFETY: every call is passed on.
unsafe impl GlobalAlloc for Probe {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        assert!(preempt::in_region());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        assert!(preempt::in_region());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        assert!(preempt::in_region());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        assert!(preempt::in_region());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn every_call_of_the_allocator_is_a_region() {
    let regions = RegionAlloc(Probe);
    let small = Layout::new::<u64>();
    // SAFETY: what was allocated is grown and freed with the layout it has.
    unsafe {
        let pointer = regions.realloc(regions.alloc(small), small, 64);
        regions.dealloc(pointer, Layout::from_size_align_unchecked(64, 8));
        regions.dealloc(regions.alloc_zeroed(small), small);
    }
    assert!(!preempt::in_region());
}

#[test]
fn a_signal_with_a_handler_is_refused() {
    extern "C" fn mine(_signal: libc::c_int) {}
    let handler = mine as *const () as libc::sighandler_t;
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGUSR2, handler) };
    let taken = Worker::builder()
        .signal(libc::SIGUSR2)
        .level("high", |_| {});
    let error = taken.enter().unwrap_err();
    assert!(error.to_string().contains("Builder::signal"), "{error}");
    // SAFETY: as above.
    let before = unsafe { libc::signal(libc::SIGUSR2, libc::SIG_DFL) };
    assert_eq!(before, handler);
}

#[test]
fn the_captures_of_a_body_are_dropped_with_the_worker() {
    let held = Arc::new(());
    let body = Arc::clone(&held);
    let worker = polled()
        .level("high", move |_| drop(Arc::clone(&body)))
        .enter()
        .unwrap();
    assert!(preempt::yield_to(HIGH));
    assert_eq!(Arc::strong_count(&held), 2);
    drop(worker);
    assert_eq!(Arc::strong_count(&held), 1);
}
