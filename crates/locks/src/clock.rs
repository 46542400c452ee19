//! Time, as cheap as it comes.
//!
//! A metered acquisition reads the clock twice, so the reading must cost
//! little: the time-stamp counter where the processor says that it runs at one
//! rate and does not stop (CPUID 8000_0007H, EDX bit 8), `CLOCK_MONOTONIC`
//! otherwise. The counter's rate is measured once, against `CLOCK_MONOTONIC`,
//! over 200 µs.
//!
//! Tests install a virtual clock, which moves when it is told to; shares are
//! then exact, whatever the machine does.
//!
//! Known weakness: a virtual machine that is moved to a host with another
//! counter rate, without the hypervisor scaling it, measures holds in wrong
//! nanoseconds. Shares stay right, because all are wrong alike.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A point in time, in the units of the clock in use. Never 0.
pub(crate) type Ticks = u64;

const UNKNOWN: u8 = 0;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const TSC: u8 = 1;
const MONOTONIC: u8 = 2;
const VIRTUAL: u8 = 3;

static SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Nanoseconds per tick, 32 binary places.
static RATE: AtomicU64 = AtomicU64::new(1 << 32);
/// Ticks from one reading to the next, at least.
static OVERHEAD: AtomicU64 = AtomicU64::new(0);
/// From 2 on: a hold that began earlier is none that is measured.
static VIRTUAL_NOW: AtomicU64 = AtomicU64::new(VIRTUAL_START);
const VIRTUAL_START: u64 = 2;

/// Now.
#[inline]
pub(crate) fn now() -> Ticks {
    match SOURCE.load(Relaxed) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        TSC => read_tsc(),
        MONOTONIC => monotonic_ns(),
        VIRTUAL => VIRTUAL_NOW.load(Relaxed),
        _ => {
            prepare();
            now()
        }
    }
}

/// The nanoseconds of a hold from `start` to `end`, without what reading the
/// clock takes, which in a virtual machine can be more than the hold itself. At
/// least 5, about what the rest of an acquisition takes, so that no hold is
/// free of charge.
#[inline]
pub(crate) fn held_ns(start: Ticks, end: Ticks) -> u64 {
    let ticks = end.saturating_sub(start);
    if is_virtual() {
        return ns(ticks);
    }
    ns(ticks.saturating_sub(OVERHEAD.load(Relaxed))).max(5)
}

/// The nanoseconds of a span of ticks.
#[inline]
pub(crate) fn ns(ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(RATE.load(Relaxed))) >> 32) as u64
}

/// A number drawn by a time. Counters may advance in steps of more than one, so the low
/// bits of a time may be the same for ever.
#[inline]
pub(crate) fn draw(now: Ticks) -> u32 {
    /// Spreads the low bits over the high ones (2⁶⁴ / φ).
    const RANDOMISER: u64 = 0x9e37_79b9_7f4a_7c15;
    (now.wrapping_mul(RANDOMISER) >> 32) as u32
}

/// Whether time moves only when told to, so that nobody should wait for it.
#[inline]
pub(crate) fn is_virtual() -> bool {
    SOURCE.load(Relaxed) == VIRTUAL
}

/// Chooses the clock, unless that is done.
#[cold]
pub(crate) fn prepare() {
    if SOURCE.load(Relaxed) != UNKNOWN {
        return;
    }
    if crate::sync::MODEL {
        SOURCE.store(VIRTUAL, Relaxed);
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if tsc_is_steady() {
        // Two threads may both measure; either result is good.
        let (ticks, elapsed) = measure_tsc(200_000);
        RATE.store(
            (u128::from(elapsed) << 32).wrapping_div(ticks.into()) as u64,
            Relaxed,
        );
        OVERHEAD.store(measure_overhead(read_tsc), Relaxed);
        let _ = SOURCE.compare_exchange(UNKNOWN, TSC, Relaxed, Relaxed);
        return;
    }
    OVERHEAD.store(measure_overhead(monotonic_ns), Relaxed);
    let _ = SOURCE.compare_exchange(UNKNOWN, MONOTONIC, Relaxed, Relaxed);
}

/// Ticks from one reading to the next: the least of a few.
fn measure_overhead(read: impl Fn() -> Ticks) -> u64 {
    let gaps = (0..64).map(|_| {
        let before = read();
        read().saturating_sub(before)
    });
    gaps.min().unwrap_or(0)
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the result; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn read_tsc() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC, and Linux lets user code run it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn tsc_is_steady() -> bool {
    use std::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

/// Ticks and nanoseconds of the same span, at least `span_ns` long. Of several
/// readings at each end the one with the least disturbance counts.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn measure_tsc(span_ns: u64) -> (u64, u64) {
    let sample = || {
        let best = (0..8).map(|_| {
            let before = read_tsc();
            let ns = monotonic_ns();
            let after = read_tsc();
            (after - before, before + (after - before) / 2, ns)
        });
        let (_, ticks, ns) = best.min().expect("eight samples");
        (ticks, ns)
    };
    let start = sample();
    while monotonic_ns() - start.1 < span_ns {
        std::hint::spin_loop();
    }
    let end = sample();
    (end.0 - start.0, end.1 - start.1)
}

/// A clock that moves when told to. For tests and simulations; it replaces the
/// clock of the whole process, and cannot be taken back.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock(());

impl VirtualClock {
    /// Replaces the clock. Call it before the first lock is used.
    pub fn install() -> VirtualClock {
        RATE.store(1 << 32, Relaxed);
        SOURCE.store(VIRTUAL, Relaxed);
        VirtualClock(())
    }

    /// Moves the clock.
    pub fn advance(self, by: Duration) {
        VIRTUAL_NOW.fetch_add(by.as_nanos() as u64, Relaxed);
    }

    /// Time since the clock was made.
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(VIRTUAL_NOW.load(Relaxed) - VIRTUAL_START)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_empty_hold_costs_next_to_nothing_and_never_nothing() {
        prepare();
        let least = (0..1000).map(|_| {
            let start = now();
            held_ns(start, now())
        });
        let least = least.min().unwrap();
        assert!((5..15).contains(&least), "{least} ns");
    }

    #[test]
    fn draws_are_spread_whatever_the_steps_of_the_counter() {
        for (step, offset) in [(1, 0), (2, 1), (26, 3), (64, 1), (100, 7)] {
            let times = (1 << 40..).step_by(step).map(|time: u64| time + offset);
            let drawn = times
                .take(64_000)
                .filter(|&time| draw(time).is_multiple_of(64));
            let drawn = drawn.count();
            assert!((700..1300).contains(&drawn), "{step} {offset}: {drawn}");
        }
    }

    #[test]
    fn a_span_in_ticks_is_the_same_span_in_nanoseconds() {
        prepare();
        let (ticks, before) = (now(), monotonic_ns());
        std::thread::sleep(Duration::from_millis(20));
        let measured = ns(now() - ticks) as f64;
        let truth = (monotonic_ns() - before) as f64;
        assert!(
            (measured / truth - 1.0).abs() < 0.01,
            "{measured} against {truth} ns"
        );
    }
}
