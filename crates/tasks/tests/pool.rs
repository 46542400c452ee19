//! Pools with threads: results, order, failures, ends. Nothing here depends on how
//! long anything takes.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use giveway_tasks::{
    BuildError, Failure, LaneWaker, Morsel, Pipeline, Policy, Pool, Query, QueryError, QueryId,
    Shutdown, Step, Why,
};
use giveway_tier::{Tier, Weight};

/// A pipeline of closures.
struct Does<R, F> {
    units: Option<u64>,
    lanes: usize,
    run: R,
    finalize: F,
}

impl<R, F> Pipeline for Does<R, F>
where
    R: Fn(&Morsel<'_>) -> Result<Step, Failure> + Send + Sync,
    F: Fn() -> Result<(), Failure> + Send + Sync,
{
    fn units(&self) -> Option<u64> {
        self.units
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        (self.run)(morsel)
    }

    fn finalize(&self) -> Result<(), Failure> {
        (self.finalize)()
    }
}

fn units(
    units: u64,
    run: impl Fn(&Morsel<'_>) -> Result<Step, Failure> + Send + Sync + 'static,
) -> impl Pipeline {
    Does {
        units: Some(units),
        lanes: usize::MAX,
        run,
        finalize: || Ok(()),
    }
}

fn steps(
    run: impl Fn(&Morsel<'_>) -> Result<Step, Failure> + Send + Sync + 'static,
) -> impl Pipeline {
    Does {
        units: None,
        lanes: usize::MAX,
        run,
        finalize: || Ok(()),
    }
}

fn pool(workers: usize) -> Pool {
    Pool::builder()
        .workers(workers)
        .task_duration(Duration::from_micros(100))
        .build()
        .unwrap()
}

/// A query that keeps a worker until it is told.
fn blocker() -> (Query, Arc<AtomicBool>) {
    let go = Arc::new(AtomicBool::new(false));
    let wait = Arc::clone(&go);
    let query = Query::new("blocker").pipeline(units(1, move |_| {
        while !wait.load(SeqCst) {
            std::thread::yield_now();
        }
        Ok(Step::More)
    }));
    (query, go)
}

/// Every unit is run once, and the pipelines of a query one after the other, with
/// everything that the one before it wrote: a thousand queries at once.
#[test]
fn every_unit_is_run_once_and_in_order() {
    const UNITS: usize = 300;
    let pool = Pool::builder()
        .workers(4)
        .slots(20)
        .task_duration(Duration::from_micros(20))
        .build()
        .unwrap();
    let tickets: Vec<_> = (0..1000u64)
        .map(|number| {
            let cells: Arc<Vec<AtomicU64>> =
                Arc::new((0..UNITS).map(|_| AtomicU64::new(0)).collect());
            // Relaxed: what is seen must be due to the scheduler.
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            let stage = |from: u64, cells: &Arc<Vec<AtomicU64>>| {
                let all = Arc::clone(cells);
                let each = Arc::clone(cells);
                Does {
                    units: Some(UNITS as u64),
                    lanes: 1 + (number as usize + from as usize) % 4,
                    run: move |morsel: &Morsel<'_>| {
                        for unit in morsel.range() {
                            let before = each[unit as usize].fetch_add(1, relaxed);
                            assert_eq!(before, from);
                        }
                        Ok(Step::More)
                    },
                    finalize: move || {
                        let done = all.iter().all(|cell| cell.load(relaxed) == from + 1);
                        assert!(done, "finalized too early");
                        Ok(())
                    },
                }
            };
            let tier = Tier::ALL[number as usize % 2];
            let weight = Weight::try_from(1 + number as u32 * 10).unwrap();
            let mut query = Query::new(format!("{number}")).tier(tier).weight(weight);
            for from in 0..3 {
                query = query.pipeline(stage(from, &cells));
            }
            pool.submit(query).unwrap()
        })
        .collect();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    let stats = pool.shutdown(Shutdown::Drain);
    assert_eq!((stats.running, stats.waiting), (0, 0));
    let finalized: u64 = stats.workers.iter().map(|worker| worker.finalized).sum();
    assert_eq!(finalized, 3000);
}

#[test]
fn failures_end_their_query_alone() {
    let pool = pool(2);
    let fine = || Query::new("fine").pipeline(units(100, |_| Ok(Step::More)));
    let later = Arc::new(AtomicBool::new(false));
    let never = Arc::clone(&later);
    let failed = Query::new("failed")
        .pipeline(units(1000, |morsel| match morsel.range().contains(&500) {
            true => Err("a bad row".into()),
            false => Ok(Step::More),
        }))
        .pipeline(units(1, move |_| {
            never.store(true, SeqCst);
            Ok(Step::More)
        }));
    let panicked = Query::new("panicked").pipeline(steps(|_| panic!("a bad {}", "operator")));
    let in_finalize = Query::new("in finalize").pipeline(Does {
        units: Some(0),
        lanes: 1,
        run: |_: &Morsel<'_>| Ok(Step::More),
        finalize: || Err("a bad merge".into()),
    });
    struct BadUnits;
    impl Pipeline for BadUnits {
        fn units(&self) -> Option<u64> {
            panic!("a bad plan")
        }
        fn run(&self, _: &Morsel<'_>) -> Result<Step, Failure> {
            Ok(Step::More)
        }
    }
    let in_units = Query::new("in units").pipeline(BadUnits);
    let told: Vec<String> = [fine(), failed, panicked, in_finalize, in_units, fine()]
        .map(|query| pool.submit(query).unwrap())
        .into_iter()
        .map(|ticket| match ticket.wait() {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        })
        .collect();
    assert_eq!(
        told,
        [
            "fine",
            "the query failed: a bad row",
            "a pipeline of the query panicked: a bad operator",
            "the query failed: a bad merge",
            "a pipeline of the query panicked: a bad plan",
            "fine"
        ]
    );
    assert!(!later.load(SeqCst), "a pipeline ran after one that failed");
}

#[test]
fn queries_can_be_cancelled_wherever_they_are() {
    let pool = Pool::builder().workers(1).slots(2).build().unwrap();
    let (blocker, go) = blocker();
    let blocking = pool.submit(blocker).unwrap();
    let endless = |name| Query::new(name).pipeline(steps(|_| Ok(Step::More)));
    // In a slot, behind the blocker; and waiting for a slot.
    let background = pool.submit(endless("slot").tier(Tier::Background)).unwrap();
    let waiting = pool.submit(endless("queue")).unwrap();
    let views = pool.queries();
    let names: Vec<_> = views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["blocker", "slot", "queue"]);
    assert_eq!(
        views.iter().map(|view| view.is_waiting).collect::<Vec<_>>(),
        [false, false, true]
    );

    assert!(pool.cancel(waiting.id()));
    assert!(matches!(waiting.wait(), Err(QueryError::Cancelled)));
    // Although the only worker is busy: whoever cancels does it.
    assert!(pool.cancel(background.id()));
    assert!(matches!(background.wait(), Err(QueryError::Cancelled)));
    // One that runs.
    go.store(true, SeqCst);
    blocking.wait().unwrap();
    let running = pool.submit(endless("runs")).unwrap();
    let id = running.id();
    while pool.queries().iter().all(|view| view.ran_ns == 0) {
        std::thread::yield_now();
    }
    assert!(pool.cancel(id));
    assert!(matches!(running.wait(), Err(QueryError::Cancelled)));
    assert!(!pool.cancel(id), "it has ended");
    assert!(pool.queries().is_empty());
}

#[test]
fn a_full_pool_gives_the_query_back() {
    let pool = Pool::builder()
        .workers(1)
        .slots(1)
        .waiting(1)
        .build()
        .unwrap();
    let (first, go) = blocker();
    let first = pool.submit(first).unwrap();
    let quick = |name| Query::new(name).pipeline(units(1, |_| Ok(Step::More)));
    let second = pool.submit(quick("second")).unwrap();
    let refused = pool.submit(quick("third")).unwrap_err();
    assert_eq!(refused.why, Why::Full(1));
    go.store(true, SeqCst);
    first.wait().unwrap();
    second.wait().unwrap();
    pool.submit(refused.query).unwrap().wait().unwrap();
}

/// Waits until it is so; the bound is only against a test that would hang.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "in vain: {what}");
        std::thread::yield_now();
    }
}

/// A query that has a slot and nothing to do, until it is cancelled.
fn idler(name: &str) -> Query {
    Query::new(name).pipeline(steps(|_| Ok(Step::NoLane)))
}

#[test]
fn a_quarter_of_the_slots_is_kept_for_time_sensitive_queries() {
    let pool = Pool::builder().workers(1).slots(4).build().unwrap();
    let idle = |_| {
        pool.submit(idler("background").tier(Tier::Background))
            .unwrap()
    };
    let background: Vec<_> = (0..6).map(idle).collect();
    let waiting = || pool.queries().iter().filter(|view| view.is_waiting).count();
    assert_eq!(waiting(), 3, "three have a slot");
    let urgent = Query::new("urgent").pipeline(units(1, |_| Ok(Step::More)));
    let urgent = pool.submit(urgent).unwrap();
    until("the time-sensitive one has run", || urgent.is_done());
    // A slot of their own goes on to the next of them.
    assert!(pool.cancel(background[0].id()));
    until("the next one has its slot", || waiting() == 2);
}

#[test]
fn a_time_sensitive_query_waits_for_no_background_query_that_waits() {
    let pool = Pool::builder().workers(1).slots(1).build().unwrap();
    let (first, go) = blocker();
    let first = pool.submit(first).unwrap();
    let background = pool
        .submit(idler("background").tier(Tier::Background))
        .unwrap();
    let urgent = pool.submit(idler("urgent")).unwrap();
    go.store(true, SeqCst);
    first.wait().unwrap();
    // The slot is handed over after the first has been told.
    let has_slot = |id| {
        let views = pool.queries();
        views.iter().any(|view| view.id == id && !view.is_waiting)
    };
    until("one has the slot", || {
        has_slot(urgent.id()) || has_slot(background.id())
    });
    assert!(!has_slot(background.id()));
    assert!(pool.cancel(urgent.id()));
    until("the other has it", || has_slot(background.id()));
}

#[test]
fn shutting_down_drains_or_cancels() {
    let counter = Arc::new(AtomicUsize::new(0));
    let draining = Pool::builder().workers(2).slots(3).build().unwrap();
    let mut tickets = Vec::new();
    for _ in 0..50 {
        let counter = Arc::clone(&counter);
        let query = Query::new("q").pipeline(units(1, move |_| {
            counter.fetch_add(1, SeqCst);
            Ok(Step::More)
        }));
        tickets.push(draining.submit(query).unwrap());
    }
    draining.shutdown(Shutdown::Drain);
    assert_eq!(counter.load(SeqCst), 50);
    assert!(tickets.into_iter().all(|ticket| ticket.wait().is_ok()));

    let cancelling = pool(2);
    let endless = || Query::new("endless").pipeline(steps(|_| Ok(Step::More)));
    let tickets: Vec<_> = (0..200)
        .map(|_| cancelling.submit(endless()).unwrap())
        .collect();
    drop(cancelling);
    for ticket in tickets {
        assert!(matches!(ticket.wait(), Err(QueryError::ShutDown)));
    }
}

/// No more workers than lanes are ever in a pipeline, and all lanes are used up to
/// the end.
#[test]
fn lanes_bound_the_workers_of_a_pipeline() {
    let pool = Pool::builder()
        .workers(4)
        .task_duration(Duration::from_micros(1))
        .build()
        .unwrap();
    for lanes in 1..4 {
        let inside = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&most);
        let query = Query::new("lanes").pipeline(Does {
            units: Some(20_000),
            lanes,
            run: move |_: &Morsel<'_>| {
                seen.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                std::thread::yield_now();
                inside.fetch_sub(1, SeqCst);
                Ok(Step::More)
            },
            finalize: || Ok(()),
        });
        pool.submit(query).unwrap().wait().unwrap();
        assert!(most.load(SeqCst) <= lanes);
    }
}

/// A pipeline that waits for something outside of the pool, without a worker.
#[test]
fn a_worker_that_finds_no_lane_is_called_back() {
    let pool = pool(2);
    for _ in 0..200 {
        let (tell, told) = mpsc::channel::<LaneWaker>();
        let ready = Arc::new(AtomicUsize::new(0));
        let inbox = Arc::clone(&ready);
        let tell = Mutex::new(tell);
        let query = Query::new("inbox").pipeline(steps(move |morsel| {
            // Nobody listens any more after the last message.
            let _ = tell.lock().unwrap().send(morsel.waker().clone());
            match inbox.load(SeqCst) {
                0 => Ok(Step::NoLane),
                _ => Ok(Step::Exhausted),
            }
        }));
        let ticket = pool.submit(query).unwrap();
        let waker = told.recv().unwrap();
        ready.store(1, SeqCst);
        waker.wake();
        ticket.wait().unwrap();
    }
}

#[test]
fn steps_see_when_they_should_yield() {
    let pool = pool(1);
    let rounds = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&rounds);
    let query = Query::new("yields").pipeline(steps(move |morsel| {
        while !morsel.should_yield() {}
        match counted.fetch_add(1, SeqCst) {
            9 => Ok(Step::Exhausted),
            _ => Ok(Step::More),
        }
    }));
    let report = pool.submit(query).unwrap().wait().unwrap();
    assert_eq!(rounds.load(SeqCst), 10);
    assert_eq!(
        report.tasks, 10,
        "a step that used its time was followed by another"
    );
}

/// A ticket is a future, too.
#[test]
fn tickets_can_be_awaited() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Wake};

    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let pool = pool(1);
    let (query, go) = blocker();
    let mut ticket = pin!(pool.submit(query).unwrap());
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    assert!(ticket.as_mut().poll(&mut context).is_pending());
    go.store(true, SeqCst);
    loop {
        match ticket.as_mut().poll(&mut context) {
            Poll::Ready(result) => break assert_eq!(result.unwrap().name, "blocker"),
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A query's pipeline may own the pool's last reference.
#[test]
fn a_worker_may_drop_its_pool() {
    let pool = Arc::new(Mutex::new(Some(pool(2))));
    let (say, said) = mpsc::channel();
    let inside = Arc::clone(&pool);
    let say = Mutex::new(say);
    let query = Query::new("suicide").pipeline(units(1, move |_| {
        drop(inside.lock().unwrap().take());
        say.lock().unwrap().send(()).unwrap();
        Ok(Step::More)
    }));
    let ticket = pool
        .lock()
        .unwrap()
        .as_ref()
        .unwrap()
        .submit(query)
        .unwrap();
    said.recv().unwrap();
    assert!(matches!(ticket.wait(), Err(QueryError::ShutDown)));
}

#[test]
fn builders_refuse_with_the_remedy() {
    let error = |builder: giveway_tasks::Builder| match builder.build() {
        Ok(_) => panic!("a pool"),
        Err(error) => error,
    };
    assert!(matches!(
        error(Pool::builder().workers(0)),
        BuildError::NoWorkers
    ));
    assert!(matches!(
        error(Pool::builder().slots(0)),
        BuildError::Slots(0)
    ));
    let zero = error(Pool::builder().task_duration(Duration::ZERO));
    assert!(
        zero.to_string().contains("Builder::task_duration"),
        "{zero}"
    );
    let tuning = Pool::builder().tuning(Duration::from_secs(2), Duration::from_secs(1));
    assert!(error(tuning).to_string().contains("Builder::tuning"));
}

/// The tuner runs as a query of the pool, and its result is used.
#[test]
fn a_tuned_pool_tunes() {
    for policy in [Policy::Tuned, Policy::Adaptive] {
        tunes(policy);
    }
}

fn tunes(policy: Policy) {
    let pool = Pool::builder()
        .workers(1)
        .policy(policy)
        .task_duration(Duration::from_micros(50))
        .tuning(Duration::from_millis(5), Duration::from_millis(10))
        .build()
        .unwrap();
    while pool.stats().tunings < 2 {
        let tickets: Vec<_> = (1..5u64)
            .map(|size| {
                let query = Query::new("q").pipeline(units(size * 200, |morsel| {
                    for _ in 0..(morsel.range().end - morsel.range().start) * 100 {
                        std::hint::spin_loop();
                    }
                    Ok(Step::More)
                }));
                pool.submit(query).unwrap()
            })
            .collect();
        tickets
            .into_iter()
            .for_each(|ticket| drop(ticket.wait().unwrap()));
    }
    assert!(pool.stats().order.is_some());
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bad destructor");
    }
}

/// A waker that panics when it wakes.
struct BadWaker;

impl Wake for BadWaker {
    fn wake(self: Arc<Self>) {
        panic!("a bad waker");
    }
}

/// Whose code is bad in what runs after a query, or in what it panicked with, harms
/// neither a worker nor the query that gets the slot.
#[test]
fn panics_after_a_query_harm_nobody() {
    let pool = Pool::builder().workers(1).slots(1).build().unwrap();
    let (query, go) = blocker();
    let blocked = pool.submit(query).unwrap();
    let bomb = Bomb;
    let drops_badly = Query::new("drops").pipeline(steps(move |_| {
        let _ = &bomb;
        Ok(Step::Exhausted)
    }));
    // The worker has the last reference.
    drop(pool.submit(drops_badly).unwrap());
    let wakes_badly = Query::new("wakes").pipeline(steps(|_| Ok(Step::Exhausted)));
    let mut wakes_badly = Box::pin(pool.submit(wakes_badly).unwrap());
    let waker = Waker::from(Arc::new(BadWaker));
    let polled = wakes_badly.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let panics_badly = Query::new("panics").pipeline(steps(|_| std::panic::panic_any(Bomb)));
    let panics_badly = pool.submit(panics_badly).unwrap();
    let fine = Query::new("fine").pipeline(steps(|_| Ok(Step::Exhausted)));
    let fine = pool.submit(fine).unwrap();
    go.store(true, SeqCst);
    blocked.wait().unwrap();
    let why = panics_badly.wait().unwrap_err().to_string();
    assert_eq!(why, "a pipeline of the query panicked: no message");
    fine.wait().unwrap();
    let waker = Waker::noop();
    let polled = wakes_badly.as_mut().poll(&mut Context::from_waker(waker));
    assert!(matches!(polled, Poll::Ready(Ok(_))));
    pool.shutdown(Shutdown::Drain);
}

/// A task that cancels its query when it is dropped.
struct CancelOnDrop(Arc<Pool>, QueryId);

impl Wake for CancelOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel(self.1);
    }
}

/// The waker that a ticket had before may be the last of its task.
#[test]
fn a_waker_may_cancel_the_query_when_it_is_dropped() {
    let pool = Arc::new(Pool::builder().workers(1).slots(1).build().unwrap());
    let (query, go) = blocker();
    let blocked = pool.submit(query).unwrap();
    let waits = Query::new("waits").pipeline(steps(|_| Ok(Step::Exhausted)));
    let mut waits = Box::pin(pool.submit(waits).unwrap());
    let task = CancelOnDrop(Arc::clone(&pool), waits.id());
    let waker = Waker::from(Arc::new(task));
    let polled = waits.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop(waker);
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let polled = waits.as_mut().poll(&mut context);
    assert!(matches!(polled, Poll::Ready(Err(QueryError::Cancelled))));
    go.store(true, SeqCst);
    blocked.wait().unwrap();
}
