//! Pictures instead of queries: small previews that somebody waits for, while a
//! large picture is drawn that nobody waits for, by the same workers.
//!
//! ```text
//! cargo run --release -p giveway-tasks --example fractals
//! ```
//!
//! A picture is a query of two pipelines. The first counts how long each point
//! takes to leave the Mandelbrot set; its units are points, and the scheduler finds
//! out how many of them are a task. Points take anything from a few ns to some µs,
//! and neighbours take about equally long: row by row, a task sized by the sky would
//! take many times too long inside the set. So units are points from all over the
//! picture. The second pipeline needs the first one's histogram, and gives each
//! point the brightness of its rank.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use giveway_tasks::{Failure, Morsel, Pipeline, Pool, Query, Shutdown, Step, Ticket, Tier};

const ROUNDS_MAX: usize = 1000;
/// From one unit's point to the next one's. It has no factor in common with a
/// number of points whose only ones are 2, 3 and 5, so every point comes once.
const SCATTER: u64 = 7_368_787;

struct Picture {
    width: u64,
    height: u64,
    rounds: Vec<AtomicU32>,
    histogram: Vec<AtomicU64>,
    /// How many points left before, by round. Made when all points are counted.
    ranks: OnceLock<Vec<u64>>,
}

impl Picture {
    fn new(width: u64, height: u64) -> Picture {
        Picture {
            width,
            height,
            rounds: (0..width * height).map(|_| AtomicU32::new(0)).collect(),
            histogram: (0..=ROUNDS_MAX).map(|_| AtomicU64::new(0)).collect(),
            ranks: OnceLock::new(),
        }
    }

    fn count(&self, point: u64) -> usize {
        let re = (point % self.width) as f64 / self.width as f64 * 3.0 - 2.25;
        let im = (point / self.width) as f64 / self.height as f64 * 2.5 - 1.25;
        let (mut x, mut y) = (0.0, 0.0);
        for round in 0..ROUNDS_MAX {
            if x * x + y * y > 4.0 {
                return round;
            }
            (x, y) = (x * x - y * y + re, 2.0 * x * y + im);
        }
        ROUNDS_MAX
    }
}

/// The first pipeline.
struct Count(Arc<Picture>);

impl Pipeline for Count {
    fn units(&self) -> Option<u64> {
        Some(self.0.width * self.0.height)
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        let all = self.0.rounds.len() as u64;
        for unit in morsel.range() {
            let point = unit * SCATTER % all;
            let rounds = self.0.count(point);
            self.0.rounds[point as usize].store(rounds as u32, Relaxed);
            self.0.histogram[rounds].fetch_add(1, Relaxed);
        }
        Ok(Step::More)
    }

    fn finalize(&self) -> Result<(), Failure> {
        let mut before = 0;
        let rank = |count: &AtomicU64| {
            let rank = before;
            before += count.load(Relaxed);
            rank
        };
        let ranks = self.0.histogram.iter().map(rank).collect();
        self.0
            .ranks
            .set(ranks)
            .map_err(|_| "finalized twice".into())
    }
}

/// The second pipeline.
struct Shade(Arc<Picture>);

impl Pipeline for Shade {
    fn units(&self) -> Option<u64> {
        Some(self.0.rounds.len() as u64)
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        let ranks = self.0.ranks.get().ok_or("shaded before it was counted")?;
        let all = self.0.rounds.len() as u64;
        for point in morsel.range() {
            let cell = &self.0.rounds[point as usize];
            let rank = ranks[cell.load(Relaxed) as usize];
            cell.store((rank * 255 / all) as u32, Relaxed);
        }
        Ok(Step::More)
    }
}

fn draw(pool: &Pool, name: &str, tier: Tier, width: u64) -> Result<Ticket, Failure> {
    let picture = Arc::new(Picture::new(width, width * 5 / 6));
    let query = Query::new(name)
        .tier(tier)
        .pipeline(Count(Arc::clone(&picture)))
        .pipeline(Shade(picture));
    Ok(pool.submit(query)?)
}

fn main() -> Result<(), Failure> {
    let pool = Pool::builder().build()?;
    let large = draw(&pool, "large", Tier::Background, 1500)?;
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        let preview = draw(&pool, "preview", Tier::TimeSensitive, 120)?.wait()?;
        slowest = slowest.max(Duration::from_nanos(preview.latency_ns));
    }
    let large = large.wait()?;
    let stats = pool.shutdown(Shutdown::Drain);
    println!("slowest of 20 previews: {slowest:?}");
    println!(
        "large picture: {:?}, {} tasks of {} morsels",
        Duration::from_nanos(large.latency_ns),
        large.tasks,
        large.morsels
    );
    println!(
        "tasks within t_max: {:.1} %, within 2 t_max: {:.1} %",
        stats.within(1.0) * 100.0,
        stats.within(2.0) * 100.0
    );
    Ok(())
}
