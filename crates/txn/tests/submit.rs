//! Submitted transactions: admitted or told when to come back, run again after
//! conflicts, acknowledged when they are durable and not before.

use std::alloc::System;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use giveway_preempt::{Level, Policy, Pool, RegionAlloc, TaskError};
use giveway_tier::Tier;
use giveway_txn::{
    Database, DiskFile, DurabilityError, DurabilityOptions, Error, Executor, NotAdmitted, Options,
    Schema, Table, Transaction, TxnOptions, Type,
};

mod disk;

use disk::Wrapped;

#[global_allocator]
static ALLOCATOR: RegionAlloc<System> = RegionAlloc(System);

/// A wait in a test that something else should end long before.
const LONG: Duration = Duration::from_secs(60);

/// Something closed that is opened once.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        // Also after somebody has panicked: see `Opens`.
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    fn close(&self) {
        *self.0.0.lock().unwrap() = false;
    }

    /// Waits until it is open. A worker can be preempted meanwhile.
    fn pass(&self) {
        let until = Instant::now() + LONG;
        while !self.is_open() {
            assert!(Instant::now() < until, "a gate stayed closed");
            giveway_preempt::poll_point();
        }
    }

    /// Whether it is, after a short wait for that.
    fn is_open(&self) -> bool {
        let _region = giveway_preempt::region();
        let open = self.0.0.lock().unwrap();
        let nap = Duration::from_millis(1);
        let open = self.0.1.wait_timeout_while(open, nap, |open| !*open);
        *open.unwrap().0
    }
}

/// Opens a gate when a test ends, also when it fails: nobody then waits for it.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A file that is synced when a gate is open.
struct GatedFile(Box<dyn DiskFile>, Gate);

impl DiskFile for GatedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.pass();
        self.0.sync()
    }
}

fn counters(db: &Database) -> Table {
    let schema = Schema::builder("counters")
        .column("id", Type::I32)
        .column("count", Type::I64)
        .primary_key(["id"]);
    let counters = db.create_table(schema.build().unwrap()).unwrap();
    db.run(TxnOptions::default(), |txn| {
        for id in 0..4 {
            let mut row = counters.row();
            row.set_i32(0, id).set_i64(1, 0);
            txn.insert(&counters, &row)?;
        }
        Ok(())
    })
    .unwrap();
    counters
}

fn count(db: &Database, counters: &Table, id: i32) -> i64 {
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    txn.get(counters, id).unwrap().unwrap().i64(1)
}

/// A transaction that counts.
fn add(
    counters: &Table,
    id: i32,
) -> impl FnMut(&Transaction<'_>) -> Result<(), Error> + Send + 'static {
    let counters = counters.clone();
    move |txn| {
        txn.update(&counters, id, |row| {
            row.set_i64(1, row.i64(1) + 1);
        })
    }
}

fn pool(policy: Policy, places: u32) -> Pool {
    let pool = Pool::builder().workers(1).policy(policy);
    let pool = pool
        .capacity(Level::BASE, places)
        .capacity(Level::new(1), places);
    pool.build().unwrap()
}

fn in_memory(places: u32) -> (Executor, Table) {
    let db = Database::in_memory(Options::default());
    let counters = counters(&db);
    (Executor::new(db, pool(Policy::Wait, places)), counters)
}

/// On a disk with a gate, which is open.
fn on_disk(options: DurabilityOptions) -> (Executor, Table, Gate, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    gate.open();
    let theirs = gate.clone();
    let disk = Wrapped::open(directory.path(), move |_, _, file| {
        Box::new(GatedFile(file, theirs.clone()))
    });
    let db = Database::open_on(disk, Options::default(), options).unwrap();
    let counters = counters(&db);
    (
        Executor::new(db, pool(Policy::Wait, 16)),
        counters,
        gate,
        directory,
    )
}

fn options() -> TxnOptions {
    TxnOptions::default()
}

#[test]
fn a_refused_transaction_is_admitted_after_its_retry_time() {
    let (executor, counters) = in_memory(1);
    let (begun, gate) = (Gate::default(), Gate::default());
    let _opens = Opens(gate.clone());
    let held = {
        let (begun, gate) = (begun.clone(), gate.clone());
        executor.submit(options(), move |_| {
            begun.open();
            gate.pass();
            Ok(())
        })
    };
    begun.pass();
    let queued = executor.submit(options(), add(&counters, 0)).unwrap();
    let refused = executor.submit(options(), add(&counters, 0)).unwrap_err();
    let NotAdmitted::Busy { retry_after } = refused.why else {
        panic!("{:?}", refused.why);
    };
    assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(1));
    // Not in vain, but not for ever.
    let patience = Duration::from_millis(20);
    let refused = executor
        .submit_within(patience, options(), refused.body)
        .unwrap_err();
    assert!(matches!(refused.why, NotAdmitted::Busy { .. }));
    let opener = {
        let gate = gate.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            gate.open();
        })
    };
    let ticket = executor
        .submit_within(LONG, options(), refused.body)
        .unwrap();
    ticket.wait().unwrap();
    queued.wait().unwrap();
    held.unwrap().wait().unwrap();
    opener.join().unwrap();
    assert_eq!(count(executor.database(), &counters, 0), 2);
    let stats = executor.stats();
    assert_eq!((stats.admitted, stats.committed), (3, 3));
    assert!(stats.refused >= 2);
}

#[test]
fn a_deadline_holds_at_the_door_and_in_the_queue() {
    let (executor, counters) = in_memory(4);
    let past = options().deadline(Instant::now());
    let refused = executor.submit(past, add(&counters, 0)).unwrap_err();
    assert_eq!(refused.why, NotAdmitted::Late);
    assert_eq!(refused.why.retry_after(), None);
    let (begun, gate) = (Gate::default(), Gate::default());
    let _opens = Opens(gate.clone());
    let held = {
        let (begun, gate) = (begun.clone(), gate.clone());
        executor.submit(options(), move |_| {
            begun.open();
            gate.pass();
            Ok(())
        })
    };
    begun.pass();
    let (late, deadline) = loop {
        let deadline = Instant::now() + Duration::from_millis(100);
        match executor.submit(options().deadline(deadline), add(&counters, 0)) {
            Ok(ticket) => break (ticket, deadline),
            // A busy machine may take that long to come to the door.
            Err(refused) => assert_eq!(refused.why, NotAdmitted::Late),
        }
    };
    while Instant::now() <= deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    gate.open();
    assert_eq!(late.wait(), Err(Error::Timeout));
    held.unwrap().wait().unwrap();
    assert_eq!(count(executor.database(), &counters, 0), 0);
    assert_eq!(executor.stats().expired, 1);
}

#[test]
fn an_urgent_transaction_that_meets_one_paused_below_it_is_run_again_and_not_dropped() {
    for policy in [Policy::PREEMPT, Policy::best()] {
        let db = Database::in_memory(Options::default());
        let counters = counters(&db);
        let executor = Executor::new(db, pool(policy, 16));
        let (written, attempts) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU32::new(0)),
        );
        let stop = Arc::new(AtomicBool::new(false));
        let low = {
            let (counters, written, attempts) =
                (counters.clone(), written.clone(), attempts.clone());
            let stop = stop.clone();
            let mut add = add(&counters, 0);
            executor.submit(options().tier(Tier::Background), move |txn| {
                add(txn)?;
                written.store(true, Ordering::SeqCst);
                // Until it has been preempted and the urgent one has met it.
                while attempts.load(Ordering::SeqCst) < 2 && !stop.load(Ordering::SeqCst) {
                    txn.get(&counters, 1)?;
                }
                Ok(())
            })
        };
        let low = low.unwrap();
        let began = Instant::now();
        while !written.load(Ordering::SeqCst) {
            assert!(began.elapsed() < LONG);
            std::thread::yield_now();
        }
        let high = {
            let attempts = attempts.clone();
            let mut add = add(&counters, 0);
            executor.submit(options().tier(Tier::TimeSensitive), move |txn| {
                attempts.fetch_add(1, Ordering::SeqCst);
                add(txn)
            })
        };
        let high = high.unwrap().wait_timeout(LONG);
        stop.store(true, Ordering::SeqCst);
        high.expect("it was run to its end").unwrap();
        low.wait().unwrap();
        assert!(attempts.load(Ordering::SeqCst) >= 2);
        assert_eq!(count(executor.database(), &counters, 0), 2);
    }
}

#[test]
fn a_worker_goes_on_while_the_disk_is_busy_and_tickets_wait_for_it() {
    let (executor, counters, gate, directory) = on_disk(DurabilityOptions::new());
    let _opens = Opens(gate.clone());
    gate.close();
    let mut tickets: Vec<_> = (0..8)
        .map(|_| executor.submit(options(), add(&counters, 0)).unwrap())
        .collect();
    let began = Instant::now();
    // All of them are visible, by one worker, with the disk standing still.
    while count(executor.database(), &counters, 0) < 8 {
        assert!(began.elapsed() < LONG);
        std::thread::yield_now();
    }
    let first = tickets.remove(0);
    let first = first.try_take().expect_err("nothing is durable");
    let first = first
        .wait_timeout(Duration::from_millis(5))
        .expect_err("nothing is durable");
    assert!(executor.database().log_stats().unwrap().backlog_bytes > 0 || !first.cancel());
    gate.open();
    first.wait().unwrap();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    executor.finish().unwrap();
    drop(counters);
    let db = Database::open(
        directory.path(),
        Options::default(),
        DurabilityOptions::new(),
    );
    let db = db.unwrap();
    assert_eq!(count(&db, &db.table("counters").unwrap(), 0), 8);
}

/// Wakes a thread, or panics.
struct Unpark(std::thread::Thread, bool);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
        assert!(!self.1, "a waker that panics");
    }
}

fn block_on<F: Future>(mut future: Pin<&mut F>, panics: bool) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current(), panics)));
    let mut context = Context::from_waker(&waker);
    let began = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        assert!(began.elapsed() < LONG);
        std::thread::park_timeout(LONG);
    }
}

#[test]
fn a_ticket_is_a_future_that_is_ready_when_the_transaction_is_durable() {
    let (executor, counters, gate, _directory) = on_disk(DurabilityOptions::new());
    let _opens = Opens(gate.clone());
    gate.close();
    let mut ticket = executor.submit(options(), add(&counters, 0)).unwrap();
    let began = Instant::now();
    while count(executor.database(), &counters, 0) < 1 {
        assert!(began.elapsed() < LONG);
        std::thread::yield_now();
    }
    let mut context = Context::from_waker(Waker::noop());
    // The worker may still have to say that it is done.
    for _ in 0..100 {
        assert!(Pin::new(&mut ticket).poll(&mut context).is_pending());
        std::thread::yield_now();
    }
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        gate.open();
    });
    // A waker's panic is its executor's, and does not end the log.
    block_on(Pin::new(&mut ticket), true).unwrap();
    opener.join().unwrap();
    let mut ticket = executor.submit(options(), add(&counters, 0)).unwrap();
    block_on(Pin::new(&mut ticket), false).unwrap();
    assert_eq!(executor.database().log_stats().unwrap().failure, None);
}

#[test]
fn writers_are_refused_when_the_disk_is_far_behind_and_readers_are_not() {
    let durability = DurabilityOptions::new()
        .backlog_bytes_max(400)
        .reads_wait(false);
    let (executor, counters, gate, _directory) = on_disk(durability);
    let _opens = Opens(gate.clone());
    gate.close();
    let (mut tickets, began) = (Vec::new(), Instant::now());
    let refused = loop {
        assert!(began.elapsed() < LONG);
        match executor.submit(options(), add(&counters, 0)) {
            Ok(ticket) => tickets.push(ticket),
            Err(refused) if matches!(refused.why, NotAdmitted::LogBehind { .. }) => break refused,
            // The worker has not got so far.
            Err(_) => std::thread::yield_now(),
        }
    };
    assert!(refused.why.retry_after().is_some());
    let read = {
        let counters = counters.clone();
        let read =
            move |txn: &Transaction<'_>| Ok(txn.get(&counters, 0)?.expect("it is there").i64(1));
        executor.submit_within(LONG, TxnOptions::read_only(), read)
    };
    gate.open();
    assert!(read.unwrap().wait().unwrap() > 0);
    executor
        .submit_within(LONG, options(), refused.body)
        .unwrap()
        .wait()
        .unwrap();
    let admitted = tickets.len() as i64 + 1;
    tickets
        .into_iter()
        .for_each(|ticket| ticket.wait().unwrap());
    assert_eq!(count(executor.database(), &counters, 0), admitted);
}

#[test]
fn a_commit_waits_for_a_disk_that_is_behind_and_no_longer_than_its_deadline() {
    let (executor, counters, gate, _directory) =
        on_disk(DurabilityOptions::new().backlog_bytes_max(0));
    let _opens = Opens(gate.clone());
    let db = executor.database();
    gate.close();
    let hurried = || options().deadline(Instant::now() + Duration::from_millis(5));
    // The first may be what the writer has in hand, the second is in its way.
    let (mut committed, began) = (0, Instant::now());
    let refused = loop {
        assert!(began.elapsed() < LONG && committed <= 2);
        match db.run(hurried(), add(&counters, 0)) {
            // On a busy machine it may not come so far.
            Err(Error::Timeout) => {}
            Err(Error::Durability(error)) => match *error {
                DurabilityError::NotYet(_) => committed += 1,
                other => break other,
            },
            other => panic!("{other:?}"),
        }
    };
    assert!(
        matches!(refused, DurabilityError::Backlog { .. }),
        "{refused}"
    );
    assert!((1..=2).contains(&committed));
    assert_eq!(count(db, &counters, 0), committed);
    gate.open();
    db.run(options(), add(&counters, 0)).unwrap();
    assert_eq!(count(db, &counters, 0), committed + 1);
}

#[test]
fn a_panic_aborts_its_transaction_and_nothing_else() {
    let (executor, counters) = in_memory(4);
    let panics = {
        let mut add = add(&counters, 0);
        executor.submit(options(), move |txn| -> Result<(), Error> {
            add(txn)?;
            panic!("on purpose")
        })
    };
    let error = panics.unwrap().wait().unwrap_err();
    assert_eq!(
        error,
        Error::NotRun(TaskError::Panicked("on purpose".to_owned()))
    );
    executor
        .submit(options(), add(&counters, 0))
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(count(executor.database(), &counters, 0), 1);
}

#[test]
fn finishing_runs_what_was_admitted_and_a_cancelled_transaction_never_runs() {
    let (executor, counters) = in_memory(8);
    let (begun, gate) = (Gate::default(), Gate::default());
    let _opens = Opens(gate.clone());
    let held = {
        let (begun, gate) = (begun.clone(), gate.clone());
        executor.submit(options(), move |_| {
            begun.open();
            gate.pass();
            Ok(())
        })
    };
    begun.pass();
    let tickets: Vec<_> = (0..6)
        .map(|_| executor.submit(options(), add(&counters, 0)).unwrap())
        .collect();
    assert!(tickets[3].cancel());
    gate.open();
    let db = executor.database().clone();
    executor.finish().unwrap();
    assert_eq!(count(&db, &counters, 0), 5);
    for (at, ticket) in tickets.into_iter().enumerate() {
        let expected = match at {
            3 => Err(Error::NotRun(TaskError::Cancelled)),
            _ => Ok(()),
        };
        assert_eq!(ticket.wait(), expected);
    }
    held.unwrap().wait().unwrap();
}

/// What a waker does whenever it is cloned.
struct OnClone(Box<dyn Fn() + Sync>);

fn waker_that_calls(function: &'static OnClone) -> Waker {
    use std::task::{RawWaker, RawWakerVTable};
    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: from below.
        let function = unsafe { &*data.cast::<OnClone>() };
        (function.0)();
        RawWaker::new(data, &TABLE)
    }
    unsafe fn nothing(_: *const ()) {}
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    // SAFETY: the function lives for ever and may be called by any thread.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::from_ref(function).cast(), &TABLE)) }
}

/// Polling may be preempted anywhere, also while the waker is cloned: commits that come
/// meanwhile become durable all the same.
#[test]
fn nobody_waits_for_a_poll_that_is_paused() {
    let (executor, counters, gate, _directory) = on_disk(DurabilityOptions::new());
    let _opens = Opens(gate.clone());
    gate.close();
    let mut ticket = executor.submit(options(), add(&counters, 0)).unwrap();
    while !format!("{ticket:?}").contains("visible") {
        ticket = ticket.try_take().unwrap_err();
    }
    let (db, table) = (executor.database().clone(), counters.clone());
    let function = OnClone(Box::new(move || {
        gate.open();
        // The second one is in a later round than the ticket's transaction.
        for _ in 0..2 {
            let deadline = options().deadline(Instant::now() + Duration::from_secs(20));
            db.run(deadline, add(&table, 1)).unwrap();
        }
    }));
    let waker = waker_that_calls(Box::leak(Box::new(function)));
    let polled = Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Ok(()))));
}

/// On one worker, a checkpoint is wanted while another one is paused below: that goes on.
#[test]
fn a_checkpoint_lets_the_one_that_is_paused_below_it_end() {
    let (executor, _, gate, _directory) = on_disk(DurabilityOptions::new());
    let _opens = Opens(gate.clone());
    let db = executor.database().clone();
    let polls = Policy::Preempt {
        delivery: giveway_preempt::Delivery::Poll,
    };
    let pool = std::mem::ManuallyDrop::new(pool(polls, 4));
    gate.close();
    let begun = Gate::default();
    let below = {
        let (db, begun) = (db.clone(), begun.clone());
        pool.submit(Tier::Background, move || {
            begun.open();
            db.checkpoint()
        })
    };
    begun.pass();
    let above = pool.submit(Tier::TimeSensitive, move || {
        gate.open();
        db.checkpoint()
    });
    let above = above.unwrap().wait_timeout(LONG / 3);
    above.expect("a worker waits for itself").unwrap().unwrap();
    below.unwrap().wait().unwrap().unwrap();
    drop(std::mem::ManuallyDrop::into_inner(pool));
}

#[test]
fn patience_without_end_is_no_deadline() {
    let (executor, counters) = in_memory(1);
    let ticket = executor.submit_within(Duration::MAX, options(), add(&counters, 0));
    ticket.unwrap().wait().unwrap();
}

/// The log's thread wakes a future, with which the last handle of the database goes.
#[test]
fn the_last_handle_may_be_dropped_by_the_logs_thread() {
    type Held = (giveway_txn::Ticket<()>, Database);
    struct Drops(Mutex<Option<Held>>);
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    let (executor, counters, gate, directory) = on_disk(DurabilityOptions::new());
    let _opens = Opens(gate.clone());
    gate.close();
    let mut ticket = executor.submit(options(), add(&counters, 0)).unwrap();
    while !format!("{ticket:?}").contains("visible") {
        ticket = ticket.try_take().unwrap_err();
    }
    let last = Arc::new(Drops(Mutex::new(None)));
    let waker = Waker::from(Arc::clone(&last));
    let polled = Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let db = executor.database().clone();
    drop((executor, counters, waker));
    *last.0.lock().unwrap() = Some((ticket, db));
    drop(last);
    gate.open();
    let until = Instant::now() + LONG / 3;
    loop {
        match Database::open(
            directory.path(),
            Options::default(),
            DurabilityOptions::new(),
        ) {
            Ok(_) => break,
            Err(error) => assert!(Instant::now() < until, "it is never closed: {error}"),
        }
        std::thread::yield_now();
    }
}
