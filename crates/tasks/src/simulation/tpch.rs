//! The traces of `giveway bench tasks` in virtual time: queries of the sizes that TPC-H's
//! had on the SQL engine, in the experiment's mix.
//!
//! A query is one pipeline of units of 1 µs, and has the work that it had when it was alone:
//! its latency times the workers, as a query alone keeps nearly all of them busy
//! (`results/2026-11-22-vm/tasks-mix-2cpus.json`: 0.94). Pipelines that cannot be divided,
//! caches and memory are not there.

use super::{Arrival, SplitMix};

/// What queries 1 to 22 took two workers alone at scale factor 0.1, ms.
const SMALL_MS: [f64; 22] = [
    12.543, 4.563, 5.206, 4.308, 6.347, 4.245, 17.407, 6.642, 13.427, 6.549, 2.655, 6.268, 10.764,
    1.725, 3.068, 5.117, 11.49, 32.953, 6.584, 6.76, 12.368, 2.095,
];
/// The same at scale factor 1.
const LARGE_MS: [f64; 22] = [
    118.847, 37.663, 48.949, 30.335, 126.532, 33.333, 144.098, 45.223, 109.751, 56.776, 41.497,
    70.48, 73.863, 12.552, 18.723, 25.919, 129.894, 271.084, 64.558, 39.064, 205.864, 14.918,
];
/// How many workers had these times.
const WORKERS: f64 = 2.0;
/// Of so many queries, one is of the large data (Section 5.1).
const LARGE_ONE_OF: u64 = 4;

/// What a query of TPC-H, 1 to 22, takes one worker on the small data or the large, ms.
///
/// # Panics
/// There is no such query.
pub fn work_ms(query: u8, large: bool) -> f64 {
    let of = [&SMALL_MS, &LARGE_MS][usize::from(large)];
    of[usize::from(query) - 1] * WORKERS
}

/// Queries that arrive at random for so many seconds, and are so large a part of what so
/// many workers can do. Queries of the small data are of class 0, of the large of class 1.
pub fn trace(workers: usize, load: f64, seconds: f64, seed: u64) -> Vec<Arrival> {
    let mut random = SplitMix(seed);
    let mean_ms = |large| (1..=22).map(|query| work_ms(query, large)).sum::<f64>() / 22.0;
    let part = 1.0 / LARGE_ONE_OF as f64;
    let gap_ms = (part * mean_ms(true) + (1.0 - part) * mean_ms(false)) / workers as f64 / load;
    let mut at_ms = 0.0;
    let arrivals = std::iter::from_fn(|| {
        at_ms += -(1.0 - random.unit()).ln() * gap_ms;
        let large = random.next().is_multiple_of(LARGE_ONE_OF);
        let query = 1 + (random.next() % 22) as u8;
        let work_ns = work_ms(query, large) * 1e6;
        (at_ms < seconds * 1e3).then(|| Arrival {
            class: usize::from(large),
            ..Arrival::new((at_ms * 1e6) as u64, work_ns as u64)
        })
    });
    arrivals.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_brings_the_load_and_the_mix() {
        let trace = trace(2, 0.8, 2_000.0, 1);
        let work_s: f64 = trace
            .iter()
            .map(|arrival| arrival.work_ns() as f64 / 1e9)
            .sum();
        assert!((work_s / 4_000.0 / 0.8 - 1.0).abs() < 0.05, "{work_s}");
        let large = trace.iter().filter(|arrival| arrival.class == 1).count() as f64;
        assert!((large / trace.len() as f64 - 0.25).abs() < 0.02, "{large}");
        assert!(trace.is_sorted_by_key(|arrival| arrival.at_ns));
    }
}
