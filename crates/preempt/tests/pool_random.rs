//! Random submissions from several threads, with panics, cancelled tasks and a
//! shutdown in the middle: whatever happens, every task that was taken in has
//! exactly one end, and its ticket says which.
//!
//! GIVEWAY_SEED replays a run; GIVEWAY_ROUNDS makes it longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use giveway_preempt::{
    Level, Policy, Pool, RegionAlloc, Request, Shutdown, TaskError, Threshold, Ticket, Why,
    poll_record,
};

// Tasks allocate, and are left while they do.
#[global_allocator]
static ALLOCATOR: RegionAlloc<std::alloc::System> = RegionAlloc(std::alloc::System);

const SUBMITTERS: u64 = 3;
const TASKS: u64 = 300;

/// xorshift64*: as random as this needs.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// How tasks have ended, by their own account.
#[derive(Default)]
struct Ends {
    returned: AtomicU64,
    panicked: AtomicU64,
}

/// By the tickets' account.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    returned: u64,
    panicked: u64,
    cancelled: u64,
    not_run: u64,
}

impl Told {
    fn add(&mut self, outcome: Result<u64, TaskError>) {
        match outcome {
            Ok(_) => self.returned += 1,
            Err(TaskError::Panicked(_)) => self.panicked += 1,
            Err(TaskError::Cancelled) => self.cancelled += 1,
            Err(TaskError::NotRun) => self.not_run += 1,
        }
    }
}

/// Some work, with allocations, and sometimes a panic.
fn work(kind: u64, steps: u64, ends: &Ends) -> u64 {
    let mut text = String::new();
    for step in 0..steps {
        poll_record();
        text.push_str(&step.to_string());
        if text.len() > 500 {
            text = String::new();
        }
    }
    if kind == 0 {
        ends.panicked.fetch_add(1, SeqCst);
        // Quietly: the hook would fill the output.
        std::panic::resume_unwind(Box::new("random"));
    }
    ends.returned.fetch_add(1, SeqCst);
    steps
}

fn submit_many(pool: &Pool, random: &mut Random, ends: &Arc<Ends>) -> (Told, u64) {
    let mut tickets: Vec<Ticket<u64>> = Vec::new();
    let mut told = Told::default();
    let mut accepted = 0;
    for _ in 0..TASKS {
        let level = Level::new(random.below(3) as u8);
        let (kind, steps) = (random.below(10), random.below(2000));
        let ends = Arc::clone(ends);
        match pool.submit(Request::at(level), move || work(kind, steps, &ends)) {
            Ok(ticket) => {
                accepted += 1;
                if random.below(8) == 0 {
                    ticket.cancel();
                }
                tickets.push(ticket);
            }
            Err(refused) if refused.why == Why::ShuttingDown => break,
            Err(_) => thread::sleep(Duration::from_micros(random.below(200))),
        }
        if random.below(4) == 0 && !tickets.is_empty() {
            let index = random.below(tickets.len() as u64) as usize;
            match tickets.swap_remove(index).try_take() {
                Ok(outcome) => told.add(outcome),
                Err(ticket) => tickets.push(ticket),
            }
        }
    }
    for ticket in tickets {
        told.add(ticket.wait());
    }
    (told, accepted)
}

fn round(seed: u64) {
    let mut random = Random(seed | 1);
    let policies = [
        Policy::Wait,
        Policy::Cooperative {
            every: 100.try_into().unwrap(),
        },
        Policy::PREEMPT,
        Policy::best(),
    ];
    let policy = policies[random.below(4) as usize];
    let how = [Shutdown::Drain, Shutdown::Return][random.below(2) as usize];
    let threshold = Threshold::new([1.0, 0.5, 0.1, 0.0][random.below(4) as usize]).unwrap();
    let what = format!("GIVEWAY_SEED={seed}: {policy}, {how:?}, threshold {threshold}");
    println!("{what}");
    let pool = Pool::builder()
        .workers(2)
        .levels(3)
        .capacity(Level::BASE, 1 + random.below(8) as u32)
        .policy(policy)
        .threshold(threshold)
        .spin(Duration::from_micros(random.below(30)))
        .build()
        .unwrap();
    let ends = Arc::new(Ends::default());
    let shut_after = Duration::from_micros(random.below(30_000));
    let (told, accepted, unrun) = thread::scope(|scope| {
        let submitters: Vec<_> = (0..SUBMITTERS)
            .map(|number| {
                let mut random = Random(seed.wrapping_mul(31).wrapping_add(number) | 1);
                let (pool, ends) = (&pool, &ends);
                scope.spawn(move || submit_many(pool, &mut random, ends))
            })
            .collect();
        thread::sleep(shut_after);
        let unrun = pool.shutdown(how).len() as u64;
        let mut all = (Told::default(), 0);
        for submitter in submitters {
            let (told, accepted) = submitter.join().unwrap();
            all.0.returned += told.returned;
            all.0.panicked += told.panicked;
            all.0.cancelled += told.cancelled;
            all.0.not_run += told.not_run;
            all.1 += accepted;
        }
        (all.0, all.1, unrun)
    });
    let sum = told.returned + told.panicked + told.cancelled + told.not_run;
    assert_eq!(sum, accepted, "{what}: a ticket has no end: {told:?}");
    assert_eq!(told.returned, ends.returned.load(SeqCst), "{what}");
    assert_eq!(told.panicked, ends.panicked.load(SeqCst), "{what}");
    let levels = pool.stats().levels;
    let total = |of: fn(&giveway_preempt::LevelStats) -> u64| levels.iter().map(of).sum::<u64>();
    assert_eq!(total(|level| level.submitted), accepted, "{what}");
    assert_eq!(
        total(|level| level.run),
        told.returned + told.panicked,
        "{what}"
    );
    assert_eq!(total(|level| level.panicked), told.panicked, "{what}");
    assert_eq!(total(|level| level.queued), 0, "{what}");
    // What was cancelled met a worker, or was returned.
    let met = total(|level| level.cancelled);
    assert_eq!(met + unrun, told.cancelled + told.not_run, "{what}");
    if how == Shutdown::Drain {
        assert_eq!((told.not_run, unrun), (0, 0), "{what}");
    }
}

#[test]
fn no_task_is_lost() {
    let first = setting("GIVEWAY_SEED", std::process::id().into());
    for number in 0..setting("GIVEWAY_ROUNDS", 20) {
        round(first.wrapping_add(number));
    }
}
