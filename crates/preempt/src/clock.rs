//! Time as the pool counts it: nanoseconds of the monotonic clock since the
//! process first asked. Everything that decides by time gets it as a parameter;
//! this module is where it comes from outside of tests.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

static EPOCH: OnceLock<Instant> = OnceLock::new();

/// Now, ns.
#[inline]
pub(crate) fn now() -> u64 {
    at(Instant::now())
}

/// That moment, ns; 0 if it was before the process first asked.
#[inline]
pub(crate) fn at(instant: Instant) -> u64 {
    // The epoch lies a little back, so that 0 can mean "not yet".
    let epoch = EPOCH.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
    });
    instant.saturating_duration_since(*epoch).as_nanos() as u64
}
