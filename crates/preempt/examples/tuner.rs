//! A goal instead of a threshold: the pool finds L_max by itself.
//!
//! Background tasks of some milliseconds keep one worker busy, and every
//! millisecond urgent tasks come that take six tenths of its time. With
//! L_max = 1 they get that, whatever becomes of the rest. How low may L_max be so
//! that they still keep their latency? Nobody knows; the pool is told the
//! latency. Or it is told what background work is to have at least, and urgent
//! work gets the rest.
//!
//! ```text
//! cargo run --release -p giveway-preempt --example tuner
//! cargo run --release -p giveway-preempt --example tuner -- --p99-us 5000 --seconds 30
//! cargo run --release -p giveway-preempt --example tuner -- --background-share 0.5
//! ```
//!
//! A line every half second shows how the threshold moves, what it gives to
//! whom, and whether the goal is kept; `tuning` in the source explains why it
//! moves like that. The main thread is the scheduling thread: urgent tasks that
//! the threshold refuses wait with it, and say when they came.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use giveway_preempt::{
    Goal, Level, Metric, Pool, RegionAlloc, Request, Shutdown, Ticker, Tier, Verdict, poll_record,
};

// Both kinds of work allocate, and share the heap.
#[global_allocator]
static ALLOCATOR: RegionAlloc<std::alloc::System> = RegionAlloc(std::alloc::System);

/// From one batch of urgent tasks to the next.
const INTERVAL: Duration = Duration::from_millis(1);
/// Urgent tasks of a batch.
const BATCH: usize = 3;
const URGENT: Duration = Duration::from_micros(200);
const BACKGROUND: Duration = Duration::from_millis(4);
/// Urgent tasks that may wait outside; more than that are given up.
const OUTSIDE: usize = 1_000;
/// From one line to the next.
const LINE: Duration = Duration::from_millis(500);
/// How long to wait for a first verdict beyond the time that was asked for.
const PATIENCE: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error>;

/// What is wanted, and for how long it is watched.
struct Options {
    goal: Goal,
    time: Duration,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, Failure> {
        let mut options = Options {
            goal: p99(3_000.0),
            time: Duration::from_secs(12),
        };
        let mut arguments = arguments.peekable();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(format!("{name} takes a number"))?;
            let number: f64 = value
                .parse()
                .map_err(|_| format!("{name} {value}: no number"))?;
            match name.as_str() {
                "--p99-us" => options.goal = p99(number),
                "--background-share" => options.goal = Goal::CpuShare(number),
                "--seconds" => options.time = Duration::try_from_secs_f64(number)?,
                _ => {
                    let known = "--p99-us, --background-share, --seconds";
                    return Err(format!("{name}: use {known}").into());
                }
            }
        }
        Ok(options)
    }
}

fn p99(us: f64) -> Goal {
    Goal::Latency {
        quantile: 0.99,
        within: Duration::from_secs_f64(us.max(0.0) / 1e6),
    }
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: Duration,
    threshold: f64,
    p99: Duration,
    given_up: usize,
    /// Of the worker's time.
    background: f64,
    verdict: Verdict,
}

impl Line {
    const HEAD: &str = "    s  L_max  urgent p99, ms  given up  background, %  goal";

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{:>5.1}  {:>5.3}  {:>14.2}  {:>8}  {:>13.1}  {}",
            self.at.as_secs_f64(),
            self.threshold,
            self.p99.as_secs_f64() * 1e3,
            self.given_up,
            self.background * 100.0,
            match self.verdict {
                Verdict::Unknown => "not known yet",
                Verdict::Kept => "kept",
                Verdict::Broken => "broken",
                Verdict::OutOfReach => "out of reach",
            }
        )
    }
}

/// Some steps of work, each a record to the pool.
fn work(steps: u64) {
    let mut hash = steps;
    for step in 0..steps {
        poll_record();
        hash = black_box(hash.wrapping_mul(0x100_0000_01b3) ^ step);
    }
}

/// Steps that take this long, by the best of some tries.
fn steps_of(time: Duration) -> u64 {
    const TRY: u64 = 200_000;
    let tries = (0..20).map(|_| {
        let begun = Instant::now();
        work(TRY);
        begun.elapsed()
    });
    let best = tries.min().expect("there were tries");
    (TRY as f64 * time.as_secs_f64() / best.as_secs_f64()) as u64
}

/// The urgent tasks that are due, and those that were refused.
struct Arrivals {
    next: Instant,
    outside: VecDeque<Instant>,
    given_up: usize,
    steps: u64,
}

impl Arrivals {
    /// Hands to the pool what has come and what has waited, the oldest first.
    fn submit(&mut self, pool: &Pool) {
        while Instant::now() >= self.next {
            self.outside.extend([self.next; BATCH]);
            self.next += INTERVAL;
        }
        while let Some(&came) = self.outside.front() {
            let steps = self.steps;
            let request = Request::from(Tier::TimeSensitive).arrival(came);
            if pool.submit(request, move || work(steps)).is_err() {
                break;
            }
            self.outside.pop_front();
        }
        let surplus = self.outside.len().saturating_sub(OUTSIDE);
        self.outside.drain(..surplus);
        self.given_up += surplus;
    }
}

/// Runs the pool with the goal, and writes a line every half second; goes on for
/// a while if the goal has not been judged by then.
fn run(options: &Options, out: &mut dyn Write) -> Result<Vec<Line>, Failure> {
    let builder = Pool::builder()
        .workers(1)
        .goal(options.goal)
        .ticker(Ticker::Caller);
    let pool = match std::thread::available_parallelism()?.get() {
        1 => builder.build()?,
        _ => builder.pin([0]).build()?,
    };
    let background = steps_of(BACKGROUND);
    let start = Instant::now();
    let mut arrivals = Arrivals {
        next: start,
        outside: VecDeque::new(),
        given_up: 0,
        steps: steps_of(URGENT),
    };
    let (mut lines, mut since): (Vec<Line>, Instant) = (Vec::new(), start);
    writeln!(out, "{}", Line::HEAD)?;
    loop {
        // Refused while there is one in the queue.
        drop(pool.submit(Tier::Background, move || work(background)));
        arrivals.submit(&pool);
        pool.tick();
        if since.elapsed() < LINE {
            continue;
        }
        let stats = pool.stats();
        let tasks = stats.levels[0].run as f64;
        let line = Line {
            at: start.elapsed(),
            threshold: pool.threshold().get(),
            p99: Duration::from_nanos(
                pool.histogram(Level::new(1), Metric::Latency)
                    .value_at_quantile(0.99),
            ),
            given_up: std::mem::take(&mut arrivals.given_up),
            background: tasks * BACKGROUND.as_secs_f64() / since.elapsed().as_secs_f64(),
            verdict: pool.verdict().ok_or("the pool has no goal")?,
        };
        pool.reset_stats();
        since = Instant::now();
        line.write(out)?;
        lines.push(line);
        let judged = line.verdict != Verdict::Unknown;
        if line.at >= options.time && (judged || line.at >= options.time + PATIENCE) {
            pool.shutdown(Shutdown::Return);
            return Ok(lines);
        }
    }
}

fn main() -> Result<(), Failure> {
    let options = Options::parse(std::env::args().skip(1))?;
    let mut out = io::stdout();
    match options.goal {
        Goal::Latency { within, .. } => writeln!(
            out,
            "goal: 99 % of urgent tasks within {} ms; background work gets the rest",
            within.as_secs_f64() * 1e3
        ),
        Goal::CpuShare(share) => writeln!(
            out,
            "goal: {} % of the worker for background work; urgent tasks get the rest",
            share * 100.0
        ),
        Goal::TasksPerSecond(_) => unreachable!("there is no option for it"),
    }?;
    let lines = run(&options, &mut out)?;
    // Where it was in the last third of the time.
    let settled = lines[lines.len() * 2 / 3..]
        .iter()
        .map(|line| line.threshold);
    let (least, most) = settled.fold((f64::MAX, f64::MIN), |(least, most), threshold| {
        (least.min(threshold), most.max(threshold))
    });
    writeln!(out, "L_max, in the last third: {least:.3} to {most:.3}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_told_a_goal_and_judges_it() {
        for arguments in [["--p99-us", "3000"], ["--background-share", "0.4"]] {
            let arguments = arguments.into_iter().chain(["--seconds", "1"]);
            let options = Options::parse(arguments.map(String::from)).unwrap();
            let mut table = Vec::new();
            let lines = run(&options, &mut table).unwrap();
            let last = lines.last().unwrap();
            assert_ne!(last.verdict, Verdict::Unknown, "{lines:?}");
            // A share is kept by starting where it is sure to be.
            let start = match options.goal {
                Goal::CpuShare(share) => 1.0 - share,
                _ => 1.0,
            };
            let moved = lines
                .iter()
                .all(|line| (0.0..=1.0).contains(&line.threshold));
            assert!(moved && lines[0].threshold <= start + 0.25, "{lines:?}");
            let table = String::from_utf8(table).unwrap();
            assert_eq!(table.lines().count(), 1 + lines.len(), "{table}");
        }
    }

    #[test]
    fn unknown_options_are_named() {
        let error = |text: &str| {
            let arguments = text.split(' ').map(String::from);
            Options::parse(arguments).err().unwrap().to_string()
        };
        assert!(error("--p50 1").contains("--p99-us"));
        assert!(error("--p99-us").contains("takes a number"));
        assert!(error("--seconds x").contains("no number"));
    }
}
