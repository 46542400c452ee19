//! What a decision costs: the wall time of simulated pools, whose pipelines take
//! none, per task. It is more than a worker of a pool spends: the simulation's own
//! queue of events is in it. It is less, too: nothing is shared with another CPU.
//!
//! ```text
//! cargo bench -p giveway-tasks --bench decision
//! ```
//!
//! Goal: less than 1 µs with as many queries as there are slots, which is 0.05 % of
//! the 2 ms that a task takes (Section 3.1). Not a goal: the cost of tuning.
//!
//! And what it costs to tell the kernel a task's tier, without a table of hints and with
//! one. Goal: nothing that could be measured in a task.

use std::time::Instant;

use giveway_tasks::simulation::{Arrival, run};
use giveway_tasks::{Attained, Decay, Order, Pool, ThreadTier, Tier};

const REPEATS: usize = 7;
const TASKS: u64 = 200_000;
const TASK_NS: u64 = 2_000_000;

fn main() {
    say();
    println!("policy       workers queries  ns/task: least, median, most of {REPEATS}");
    let sizes = [(1, 1), (1, 8), (1, 32), (1, 128), (8, 128), (128, 128)];
    let policies = [
        Order::Decay(Decay::INITIAL),
        Order::Attained(Attained::INITIAL),
    ];
    let cases = policies
        .into_iter()
        .flat_map(|order| sizes.map(|size| (order, size)));
    for (order, (workers, queries)) in cases {
        let trace: Vec<_> = (0..queries)
            .map(|_| Arrival::new(0, TASKS / queries * TASK_NS))
            .collect();
        let builder = Pool::builder().workers(workers).policy(order.into());
        let mut costs: Vec<f64> = (0..REPEATS)
            .map(|_| {
                let began = Instant::now();
                let done = run(&builder, &trace).expect("a valid pool");
                let ns = began.elapsed().as_nanos() as f64;
                assert!(done.tasks >= TASKS, "the work is real");
                ns / done.tasks as f64
            })
            .collect();
        costs.sort_unstable_by(f64::total_cmp);
        println!(
            "{:12} {workers:7} {queries:7}  {:.0}, {:.0}, {:.0}",
            order.to_string(),
            costs[0],
            costs[REPEATS / 2],
            costs[REPEATS - 1]
        );
    }
}

/// What [`ThreadTier::say`] takes.
fn say() {
    const TIMES: u32 = 10_000_000;
    const SLOTS: u32 = 8;
    let cost = || {
        let tier = ThreadTier::attach();
        let began = Instant::now();
        for _ in 0..TIMES / 2 {
            for tier_of_task in Tier::ALL {
                std::hint::black_box(&tier).say(std::hint::black_box(tier_of_task));
            }
        }
        let ns = began.elapsed().as_nanos() as f64 / f64::from(TIMES);
        (tier.is_attached(), ns)
    };
    let dir = tempfile::tempdir().expect("a directory");
    // SAFETY: there is one thread.
    unsafe { std::env::set_var("GIVEWAY_HINTS_DIR", dir.path()) };
    let (has_slot, none_ns) = cost();
    assert!(!has_slot);
    let mut pages = vec![0; SLOTS as usize * giveway_hints::slot::SLOT_SIZE];
    pages[..8].copy_from_slice(b"giveway\0");
    pages[8..12].copy_from_slice(&1u32.to_ne_bytes());
    pages[12..16].copy_from_slice(&SLOTS.to_ne_bytes());
    std::fs::write(dir.path().join(giveway_hints::slot::NAME), pages).expect("a table");
    let (has_slot, slot_ns) = cost();
    assert!(has_slot);
    println!("a task's tier: {none_ns:.2} ns without a table, {slot_ns:.2} ns with one");
}
