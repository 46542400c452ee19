//! What workers tell the kernel's scheduler, read from a table of our own.
//!
//! One test in this program: the table is found by a variable of the environment.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use giveway_hints::slot::{NAME, SLOT_SIZE, Table};
use giveway_tasks::{Failure, LaneWaker, Morsel, Pipeline, Policy, Pool, Query, Step};
use giveway_tier::Tier;

/// A plain file with the layout of a table, in the place of UFS's.
fn table() -> (tempfile::TempDir, Table) {
    const SLOTS: u32 = 8;
    let dir = tempfile::tempdir().unwrap();
    let mut pages = vec![0; SLOTS as usize * SLOT_SIZE];
    pages[..8].copy_from_slice(b"giveway\0");
    pages[8..12].copy_from_slice(&1u32.to_ne_bytes());
    pages[12..16].copy_from_slice(&SLOTS.to_ne_bytes());
    let mut file = File::create(dir.path().join(NAME)).unwrap();
    file.write_all(&pages).unwrap();
    let table = Table::open(Some(dir.path())).unwrap();
    (dir, table)
}

/// What the one worker says.
fn said(table: &Table) -> Option<Tier> {
    table.said().next().expect("a slot of the worker").tier
}

/// Waits until the worker says this; the bound is only against a test that would hang.
fn says(table: &Table, tier: Option<Tier>, when: &str) {
    let begun = Instant::now();
    while table.said().next().map(|said| said.tier) != Some(tier) {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{when}: not {tier:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Steps<F>(F);

impl<F: Fn(&Morsel<'_>) -> Step + Send + Sync> Pipeline for Steps<F> {
    fn units(&self) -> Option<u64> {
        None
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        Ok((self.0)(morsel))
    }
}

#[test]
fn workers_say_whose_task_they_run_and_urgent_work_raises_them() {
    let (dir, table) = table();
    // SAFETY: no other thread runs yet that could read the environment.
    unsafe { std::env::set_var("GIVEWAY_HINTS_DIR", dir.path()) };
    let pool = Pool::builder().workers(1).policy(Policy::Fair);
    // A task for each step.
    let pool = pool
        .task_duration(Duration::from_micros(1))
        .build()
        .unwrap();
    says(&table, None, "idle");

    // A background query of two steps, each of which lasts until it is let go.
    let steps = Arc::new(AtomicU32::new(0));
    let (enter, entered) = mpsc::channel();
    let (go, let_go) = mpsc::channel::<()>();
    let let_go = Mutex::new(let_go);
    let background = {
        let steps = Arc::clone(&steps);
        Steps(move |_: &Morsel<'_>| {
            enter.send(said(&table)).unwrap();
            let_go.lock().unwrap().recv().unwrap();
            match steps.fetch_add(1, SeqCst) {
                2 => Step::Exhausted,
                _ => Step::More,
            }
        })
    };
    let entered = || entered.recv_timeout(Duration::from_secs(10)).unwrap();
    let background = Query::new("b").tier(Tier::Background).pipeline(background);
    let background = pool.submit(background).unwrap();
    assert_eq!(entered(), Some(Tier::Background));

    // Urgent work comes while the step runs: its worker is raised, runs it, and says
    // "background" again. The urgent query has no lane at first, and then it has.
    let lane: Arc<Mutex<Option<LaneWaker>>> = Arc::default();
    let urgent_said = Arc::new(Mutex::new(Vec::new()));
    let urgent = {
        let (lane, urgent_said) = (Arc::clone(&lane), Arc::clone(&urgent_said));
        let looks = AtomicU32::new(0);
        Steps(move |morsel: &Morsel<'_>| {
            urgent_said.lock().unwrap().push(said(&table));
            *lane.lock().unwrap() = Some(morsel.waker().clone());
            match looks.fetch_add(1, SeqCst) {
                0 | 1 => Step::NoLane,
                _ => Step::Exhausted,
            }
        })
    };
    let urgent = pool.submit(Query::new("u").pipeline(urgent)).unwrap();
    says(&table, None, "urgent work has come");
    go.send(()).unwrap();
    assert_eq!(
        entered(),
        Some(Tier::Background),
        "no lane of the urgent query"
    );
    lane.lock().unwrap().take().unwrap().wake();
    says(&table, None, "the urgent query has a lane");
    go.send(()).unwrap();
    urgent.wait().unwrap();
    assert!(urgent_said.lock().unwrap().iter().all(Option::is_none));
    assert_eq!(entered(), Some(Tier::Background));
    go.send(()).unwrap();
    background.wait().unwrap();
    says(&table, None, "idle again");

    drop(pool);
    assert_eq!(table.usage().0, 0, "slots are given back");
}
