//! When which query comes: exponential gaps and a mix of short and long queries
//! (Section 5.1).
//!
//! A trace is drawn from a seed and is the same for all that are compared. A *phase* is
//! a time during which the mix stays; an experiment has one, or two where the mix
//! changes in mid-run. Gaps are drawn as parts of their mean, so traces of the same seed
//! at two loads are the same queries, closer together or further apart.
//!
//! *Load* is the part of the workers' time that the queries of a trace take alone. The
//! paper divides by the mean latency of a query alone, which is the same where a query
//! keeps all workers busy; here short ones do not, and the load would be less than it
//! says.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::experiments::tasks::kind::Kind;

/// Of so many queries, one is long.
const LONG_ONE_OF: u32 = 4;

/// A time with one mix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Phase {
    pub(crate) short: Vec<Kind>,
    pub(crate) long: Vec<Kind>,
    pub(crate) seconds: f64,
}

impl Phase {
    /// The paper's mix: short queries are those of the small data.
    pub(crate) fn paper(seconds: f64) -> Phase {
        Phase {
            short: Kind::all(false).collect(),
            long: Kind::all(true).collect(),
            seconds,
        }
    }

    /// Another one, ten times as long: all of the large data, and short is the half
    /// that takes less.
    pub(crate) fn heavy(seconds: f64, work_ms: impl Fn(Kind) -> f64) -> Phase {
        let mut kinds: Vec<Kind> = Kind::all(true).collect();
        kinds.sort_by(|one, other| work_ms(*one).total_cmp(&work_ms(*other)));
        let long = kinds.split_off(kinds.len() / 2);
        Phase {
            short: kinds,
            long,
            seconds,
        }
    }

    /// What a query of the mix takes a worker on average, ms.
    pub(crate) fn work_ms(&self, work_ms: impl Fn(Kind) -> f64) -> f64 {
        let mean = |kinds: &[Kind]| {
            kinds.iter().map(|kind| work_ms(*kind)).sum::<f64>() / kinds.len() as f64
        };
        let long = 1.0 / f64::from(LONG_ONE_OF);
        (1.0 - long) * mean(&self.short) + long * mean(&self.long)
    }
}

/// A query that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Since the beginning.
    pub(crate) at: Duration,
    pub(crate) kind: Kind,
    /// Whether the mix counts it among its long ones.
    pub(crate) long: bool,
    /// In which phase.
    pub(crate) phase: u8,
}

/// The queries of phases that follow each other, each so that this part of `workers` is
/// busy on average, by what queries take alone.
pub(crate) fn trace(
    phases: &[Phase],
    load: f64,
    workers: u32,
    seed: u64,
    work_ms: impl Fn(Kind) -> f64,
) -> Vec<Due> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut trace = Vec::new();
    let mut from_s = 0.0;
    for (phase, number) in phases.iter().zip(0..) {
        let gap_s = phase.work_ms(&work_ms) / 1e3 / (load * f64::from(workers));
        let until_s = from_s + phase.seconds;
        let mut at_s = from_s;
        loop {
            // Of (0, 1], so that it has a logarithm.
            let part: f64 = 1.0 - random.random::<f64>();
            at_s -= gap_s * part.ln();
            if at_s >= until_s {
                break;
            }
            let long = random.random_range(0..LONG_ONE_OF) == 0;
            let kinds = if long { &phase.long } else { &phase.short };
            trace.push(Due {
                at: Duration::from_secs_f64(at_s),
                kind: kinds[random.random_range(0..kinds.len())],
                long,
                phase: number,
            });
        }
        from_s = until_s;
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work_ms(kind: Kind) -> f64 {
        f64::from(kind.query) * if kind.large { 10.0 } else { 1.0 }
    }

    #[test]
    fn the_same_seed_draws_the_same_trace_and_another_another() {
        let draw = |seed| trace(&[Phase::paper(20.0)], 0.9, 2, seed, work_ms);
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn a_trace_brings_the_load_and_the_mix_that_were_asked_for() {
        let trace = trace(&[Phase::paper(4_000.0)], 0.8, 2, 1, work_ms);
        let work_s: f64 = trace.iter().map(|due| work_ms(due.kind) / 1e3).sum();
        assert!((work_s / 8_000.0 / 0.8 - 1.0).abs() < 0.02, "{work_s}");
        let long = trace.iter().filter(|due| due.kind.large).count() as f64;
        assert!((long / trace.len() as f64 - 0.25).abs() < 0.01, "{long}");
        assert!(trace.iter().all(|due| due.long == due.kind.large));
        assert!(trace.is_sorted_by_key(|due| due.at));
        assert!(Kind::both().all(|kind| trace.iter().any(|due| due.kind == kind)));
        // Gaps are exponential: as many as 1 - 1/e of them are shorter than their mean.
        let gaps = trace
            .windows(2)
            .map(|two| (two[1].at - two[0].at).as_secs_f64());
        let mean = 4_000.0 / trace.len() as f64;
        let shorter = gaps.filter(|gap| *gap < mean).count() as f64 / trace.len() as f64;
        assert!((shorter - 0.632).abs() < 0.01, "{shorter}");
    }

    #[test]
    fn a_higher_load_brings_the_same_queries_sooner() {
        let draw = |load| trace(&[Phase::paper(100.0)], load, 2, 3, work_ms);
        let (calm, busy) = (draw(0.4), draw(0.8));
        assert!(busy.len() > calm.len());
        for (one, other) in calm.iter().zip(&busy) {
            assert_eq!(one.kind, other.kind);
            let ratio = one.at.as_secs_f64() / other.at.as_secs_f64();
            assert!((ratio - 2.0).abs() < 1e-3, "{ratio}");
        }
    }

    #[test]
    fn a_second_phase_has_its_own_mix_at_the_same_load() {
        let heavy = Phase::heavy(2_000.0, work_ms);
        assert!(
            heavy
                .short
                .iter()
                .all(|kind| kind.large && kind.query <= 11)
        );
        assert_eq!((heavy.short.len(), heavy.long.len()), (11, 11));
        let trace = trace(&[Phase::paper(2_000.0), heavy], 0.8, 2, 5, work_ms);
        for phase in [0, 1] {
            let part: Vec<&Due> = trace.iter().filter(|due| due.phase == phase).collect();
            let work_s: f64 = part.iter().map(|due| work_ms(due.kind) / 1e3).sum();
            assert!((work_s / 4_000.0 / 0.8 - 1.0).abs() < 0.05, "{work_s}");
            let begin = Duration::from_secs(2_000 * u64::from(phase));
            let end = begin + Duration::from_secs(2_000);
            assert!(part.iter().all(|due| begin <= due.at && due.at < end));
        }
    }
}
