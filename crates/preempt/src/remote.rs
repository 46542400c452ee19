//! The scheduling thread's end of a worker.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::{Delivery, Route};
use crate::error::DeliveryError;
use crate::level::{Level, Levels};
use crate::mail::{Counters, Requested};
use crate::trail::Trail;

/// Sends requests to one worker, from any thread.
#[derive(Clone)]
pub struct Remote {
    route: Arc<Route>,
}

impl Remote {
    pub(crate) fn new(route: Arc<Route>) -> Remote {
        Remote { route }
    }

    pub(crate) fn trail(&self) -> &Trail {
        self.route.trail()
    }

    /// The kernel's id of the worker's thread; `None` once it has left.
    pub(crate) fn thread(&self) -> Option<i32> {
        self.route.thread()
    }

    /// For tests that play the sender's part themselves.
    #[cfg(test)]
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// Asks the worker to go to this level. It does so once, however often it was
    /// asked meanwhile; at once, or as soon as what it runs allows. What the
    /// caller did before, the level's body sees.
    ///
    /// With `Hybrid`, and where a signal may find the worker in code that is not
    /// the engine's, call [`rearm`](Self::rearm) from time to time.
    #[inline]
    pub fn preempt(&self, level: Level) -> Requested {
        self.route.preempt(level)
    }

    /// Sends what is overdue: the signal behind a `Hybrid` request that was not
    /// taken within its grace, and signals again that came while the worker could
    /// not be left (after 50 µs, then after twice as long each time, up to 1 ms). Of a
    /// worker for user interrupts, a signal in the place of one that has not arrived
    /// within 10 ms of the first call that waits for it.
    ///
    /// `Some`: call again after that time. `None`: nothing is outstanding, or
    /// nothing can be done about it.
    #[inline]
    pub fn rearm(&self) -> Option<Duration> {
        self.route.rearm()
    }

    /// [`preempt`](Self::preempt), then [`rearm`](Self::rearm) until the request
    /// was taken; false if it still was not after `patience`. Spins: for callers
    /// that have nothing else to do.
    pub fn preempt_within(&self, level: Level, patience: Duration) -> bool {
        if self.preempt(level) == Requested::Gone {
            return false;
        }
        let start = Instant::now();
        while self.outstanding().contains(level) {
            if start.elapsed() >= patience {
                return false;
            }
            self.rearm();
            std::hint::spin_loop();
        }
        true
    }

    /// The levels that were requested and have not been gone to.
    #[inline]
    pub fn outstanding(&self) -> Levels {
        self.route.mail().outstanding()
    }

    /// False once the worker has left.
    pub fn is_alive(&self) -> bool {
        self.route.is_alive()
    }

    /// Delivers later requests in this way.
    ///
    /// # Errors
    /// [`DeliveryError::NotPrepared`] if the worker was entered with one that
    /// needs less: entered with `Poll`, it is not ready for signals; entered with
    /// anything else than `UserInterrupt`, not for user interrupts.
    pub fn set_delivery(&self, delivery: Delivery) -> Result<(), DeliveryError> {
        self.route.set_delivery(delivery)
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.route.mail().counters()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("outstanding", &self.outstanding())
            .field("is_alive", &self.is_alive())
            .finish_non_exhaustive()
    }
}
