//! What each query takes alone: what slowdowns are relative to, and what loads are made
//! of.

use std::collections::BTreeMap;
use std::time::Instant;

use super::failure::failed;
use super::host::{Host, block_on};
use crate::experiments::tasks::kind::Kind;
use crate::harness::Progress;
use crate::harness::error::Result;
use crate::harness::number::Spread;

/// How often each query is measured, after a round that is not; the median counts.
const REPEATS: usize = 3;

/// A query alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Once {
    /// From its submission to its end, ms.
    pub(super) latency_ms: f64,
    /// What it takes one worker, ms.
    pub(super) work_ms: f64,
}

impl Once {
    fn measure(host: &Host, is_ours: bool, kind: Kind) -> Result<Once> {
        let query = host.query(kind)?;
        let begun = Instant::now();
        let work_ms = match is_ours {
            true => {
                let ended = block_on(host.run_with_report(query));
                let (_, report) = ended.map_err(|error| failed(kind, error))?;
                Some(report.ran_ns as f64 / 1e6)
            }
            false => {
                block_on(host.run(query)).map_err(|error| failed(kind, error))?;
                None
            }
        };
        let latency_ms = begun.elapsed().as_secs_f64() * 1e3;
        Ok(Once {
            latency_ms,
            work_ms: work_ms.unwrap_or(latency_ms),
        })
    }
}

/// Every query alone, on an empty engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Alone(BTreeMap<Kind, Once>);

impl Alone {
    pub(super) fn new(queries: impl IntoIterator<Item = (Kind, Once)>) -> Alone {
        Alone(queries.into_iter().collect())
    }

    pub(super) fn of(&self, kind: Kind) -> Once {
        *self.0.get(&kind).expect("every query was measured alone")
    }

    /// Measures every query on a host. What a query takes a worker is known of our
    /// engine; of stock DataFusion on one thread, it is its latency.
    ///
    /// All queries take turns, so that each finds the caches as another has left them,
    /// as it does in a trace: straight after itself, a query of the small data has its
    /// data in the cache.
    pub(super) fn measure(
        host: &Host,
        is_ours: bool,
        what: &str,
        progress: Progress<'_>,
    ) -> Result<Alone> {
        let mut measured: BTreeMap<Kind, Vec<Once>> = BTreeMap::new();
        for round in 0..=REPEATS {
            progress(&format!("{what} alone: round {round} of {REPEATS}"));
            for kind in Kind::both() {
                let once = Once::measure(host, is_ours, kind)?;
                if round > 0 {
                    measured.entry(kind).or_default().push(once);
                }
            }
        }
        let median = |times: &[Once], number: fn(&Once) -> f64| {
            let spread = Spread::of(times.iter().map(number));
            spread.expect("measured at least once").median
        };
        let queries = measured.into_iter().map(|(kind, times)| {
            let once = Once {
                latency_ms: median(&times, |once| once.latency_ms),
                work_ms: median(&times, |once| once.work_ms),
            };
            (kind, once)
        });
        Ok(Alone::new(queries))
    }
}
