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

use std::time::Instant;

use giveway_tasks::simulation::{Arrival, run};
use giveway_tasks::{Decay, Policy, Pool};

const REPEATS: usize = 7;
const TASKS: u64 = 200_000;
const TASK_NS: u64 = 2_000_000;

fn main() {
    println!("workers queries  ns/task: least, median, most of {REPEATS}");
    for (workers, queries) in [(1, 1), (1, 8), (1, 32), (1, 128), (8, 128), (128, 128)] {
        let trace: Vec<_> = (0..queries)
            .map(|_| Arrival::new(0, TASKS / queries * TASK_NS))
            .collect();
        let builder = Pool::builder()
            .workers(workers)
            .policy(Policy::Decay(Decay::INITIAL));
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
            "{workers:7} {queries:7}  {:.0}, {:.0}, {:.0}",
            costs[0],
            costs[REPEATS / 2],
            costs[REPEATS - 1]
        );
    }
}
