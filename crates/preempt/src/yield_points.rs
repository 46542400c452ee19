//! Yield points of the cooperative and the handcrafted policy (Sections 2.1 and
//! 6.1).
//!
//! A context counts down to its next look at the higher queues, in a
//! thread-local of its own, so passing a place costs a load, a branch and a
//! store. Policies that do not yield have a long interval instead of none, so
//! that a context notices within it that the policy has changed.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::ptr;

use crate::context::current_level;
use crate::pool::Station;
use crate::region::{in_region, poll_point};

/// The interval of policies that do not yield by themselves.
const NEVER: u32 = 1 << 16;

/// What a context knows about its own yielding.
///
/// **Y1** The station is null, or that of the worker whose context this is,
/// which lives as long as the context runs. (Not asserted: the caller of [`attach`]
/// promises it.)
struct Here {
    station: Cell<*const Station>,
    records: Cell<u32>,
    points: Cell<u32>,
}

thread_local! {
    static HERE: Here = const { Here {
        station: Cell::new(ptr::null()),
        records: Cell::new(1),
        points: Cell::new(1),
    } };
}

/// Makes the current context one of this worker's.
///
/// # Safety
/// The station lives as long as the context passes yield points, or until
/// [`detach`] (Y1).
pub(crate) unsafe fn attach(station: &Station) {
    HERE.with(|here| {
        if here.station.replace(station) != ptr::from_ref(station) {
            // The first place is passed by; it only starts the count.
            let (records, points) = station.intervals();
            here.records.set(interval(records));
            here.points.set(interval(points));
        }
    });
}

/// Makes the current context no worker's.
pub(crate) fn detach() {
    HERE.with(|here| here.station.set(ptr::null()));
}

/// For the engine to call for every record that it reads: a
/// [`poll_point`], and the place where
/// [`Policy::Cooperative`](crate::Policy::Cooperative) yields once in a while.
///
/// On a thread that is no worker of a pool it does nothing. Inside a region it
/// yields after the region, at the next record.
#[inline(always)]
pub fn poll_record() {
    HERE.with(|here| {
        let left = here.records.get() - 1;
        here.records.set(left);
        if left == 0 {
            records_passed(here);
        }
    });
    poll_point();
}

/// For the engine to call where its author thinks it right to yield, as outside
/// of the nested query block of Q2 (Section 6.3): a [`poll_point`], and the place
/// where [`Policy::Handcrafted`](crate::Policy::Handcrafted) yields once in a
/// while.
///
/// On a thread that is no worker of a pool it does nothing. Inside a region it
/// yields after the region, at the next such place.
#[inline(always)]
pub fn handcrafted_yield_point() {
    HERE.with(|here| {
        let left = here.points.get() - 1;
        here.points.set(left);
        if left == 0 {
            points_passed(here);
        }
    });
    poll_point();
}

#[cold]
fn records_passed(here: &Here) {
    here.records.set(passed(here, |(records, _)| records));
}

#[cold]
fn points_passed(here: &Here) {
    here.points.set(passed(here, |(_, points)| points));
}

/// Yields if the policy says so; returns how many places to pass until the next
/// time.
fn passed(
    here: &Here,
    of: impl Fn((Option<NonZeroU32>, Option<NonZeroU32>)) -> Option<NonZeroU32>,
) -> u32 {
    // SAFETY: Y1; the context runs.
    let Some(station) = (unsafe { here.station.get().as_ref() }) else {
        return NEVER;
    };
    let every = of(station.intervals());
    if every.is_some() {
        if in_region() {
            return 1;
        }
        if let Some(level) = current_level() {
            station.look_up(level);
        }
    }
    interval(every)
}

fn interval(every: Option<NonZeroU32>) -> u32 {
    every.map_or(NEVER, NonZeroU32::get)
}
