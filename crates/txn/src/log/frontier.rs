//! How far the log is durable, and how transactions wait for it.
//!
//! One number: all transactions up to that timestamp have reached what the sync
//! policy promises. Waiters sleep on a counter of rounds, without a lock,
//! since a context may be preempted while it waits and another of the same
//! worker may wait too. A caller that does not want to block leaves a function,
//! which the writer calls.
//!
//! - **W1** The number only grows, and only the writer changes it. (Asserted in
//!   `advance`.)
//! - **W2** After a failure it never moves again; every wait beyond it, and every
//!   function left for it, ends with [`InDoubt`](DurabilityError::InDoubt). (Asserted
//!   in `advance`.)
//! - **W3** A function is called exactly once. It is added and taken with the
//!   list locked, and the list is looked at after the number has moved or the
//!   failure is set, so none is left behind. (Once, by its type, `FnOnce`. Not
//!   asserted: that none is left, since one may come until the end.)

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use giveway_locks::Mutex;
use giveway_machine::futex::{self, Deadline};

use super::error::{DurabilityError, Failure};
use crate::preemption;

/// Called once a transaction is durable, or never will be for sure.
pub(crate) type Callback = Box<dyn FnOnce(Result<(), DurabilityError>) + Send>;

/// The longest sleep in one piece. A signal that comes while a thread sleeps
/// ends the sleep, and the poll point after it takes the preemption; one that
/// comes just before is late by at most this.
const NAP: Duration = Duration::from_millis(1);

/// How far the log is durable.
pub(crate) struct Frontier {
    reached: AtomicU64,
    /// Counts rounds of the writer: what waiters sleep on.
    rounds: AtomicU32,
    sleepers: AtomicU32,
    failure: OnceLock<Arc<Failure>>,
    callbacks: Mutex<Vec<(u64, Callback)>>,
}

impl Frontier {
    /// Durable up to this timestamp.
    pub(crate) fn new(reached: u64) -> Frontier {
        Frontier {
            reached: AtomicU64::new(reached),
            rounds: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            failure: OnceLock::new(),
            callbacks: Mutex::new(Vec::new()),
        }
    }

    /// All transactions up to this timestamp are durable.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Why the log is not written any more.
    pub(crate) fn failure(&self) -> Option<&Arc<Failure>> {
        self.failure.get()
    }

    /// Whether this timestamp is settled, and how; `None` if not yet.
    fn settled(&self, timestamp: u64) -> Option<Result<(), DurabilityError>> {
        // The failure first: it is set after the last move (W2).
        let failure = self.failure();
        if self.reached() >= timestamp {
            return Some(Ok(()));
        }
        failure.map(|failure| Err(DurabilityError::InDoubt(Arc::clone(failure))))
    }

    /// Waits until the transactions up to this timestamp are durable.
    ///
    /// # Errors
    /// [`InDoubt`](DurabilityError::InDoubt) after a failure,
    /// [`NotYet`](DurabilityError::NotYet) when the deadline has passed.
    pub(crate) fn wait(
        &self,
        timestamp: u64,
        deadline: Option<Instant>,
    ) -> Result<(), DurabilityError> {
        self.wait_for(deadline, || self.settled(timestamp))
            .unwrap_or_else(|waited| Err(DurabilityError::NotYet(waited)))
    }

    /// As [`wait`](Self::wait), and asks the writer for a round that does not wait. It is
    /// asked again after each round: one may begin before the transaction's record is
    /// there, and takes the request with it.
    pub(crate) fn wait_urgently(
        &self,
        timestamp: u64,
        ask: impl Fn(),
    ) -> Result<(), DurabilityError> {
        let check = || {
            let settled = self.settled(timestamp);
            if settled.is_none() {
                ask();
            }
            settled
        };
        self.wait_for(None, check)
            .unwrap_or_else(|waited| Err(DurabilityError::NotYet(waited)))
    }

    /// Waits until the check has a result; it is made at once, and after each
    /// round of the writer.
    ///
    /// # Errors
    /// How long it has waited, when the deadline has passed.
    pub(crate) fn wait_for<T>(
        &self,
        deadline: Option<Instant>,
        check: impl Fn() -> Option<T>,
    ) -> Result<T, Duration> {
        let began = Instant::now();
        loop {
            let round = self.rounds.load(Ordering::SeqCst);
            if let Some(result) = check() {
                return Ok(result);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(now - began);
            }
            let until = deadline.map_or(now + NAP, |deadline| deadline.min(now + NAP));
            // Pairs with `announce`: either the writer sees a sleeper, or the
            // sleeper the new round.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            futex::wait(&self.rounds, round, Deadline::at(until));
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            preemption::poll_point();
        }
    }

    /// Has a function called, at once if the timestamp is settled.
    pub(crate) fn when_settled(&self, timestamp: u64, callback: Callback) {
        {
            let _region = preemption::region();
            let mut callbacks = self.callbacks.lock();
            if self.settled(timestamp).is_none() {
                callbacks.push((timestamp, callback));
                return;
            }
        }
        let settled = self
            .settled(timestamp)
            .expect("settled is for good (W1, W2)");
        callback(settled);
    }

    /// For the writer: all up to this timestamp is durable.
    pub(crate) fn advance(&self, timestamp: u64) {
        debug_assert!(timestamp >= self.reached(), "W1");
        debug_assert!(self.failure().is_none(), "W2");
        self.reached.store(timestamp, Ordering::Release);
        self.announce();
    }

    /// For the writer: nothing will be durable any more.
    pub(crate) fn fail(&self, failure: Failure) {
        // The first failure counts; later ones follow from it.
        let _ = self.failure.set(Arc::new(failure));
        self.announce();
    }

    fn announce(&self) {
        self.rounds.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            futex::wake(&self.rounds, u32::MAX);
        }
        let settled: Vec<_> = {
            let mut callbacks = self.callbacks.lock();
            callbacks
                .extract_if(.., |(timestamp, _)| self.settled(*timestamp).is_some())
                .collect()
        };
        for (timestamp, callback) in settled {
            callback(
                self.settled(timestamp)
                    .expect("settled is for good (W1, W2)"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn failure() -> Failure {
        Failure {
            doing: "writing",
            file: "log".to_owned(),
            source: std::io::Error::other("no more"),
        }
    }

    #[test]
    fn a_wait_ends_when_its_timestamp_is_durable_and_not_before() {
        let frontier = Frontier::new(3);
        frontier.wait(3, None).unwrap();
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert!(matches!(
            frontier.wait(4, soon),
            Err(DurabilityError::NotYet(_))
        ));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| frontier.wait(5, None));
            frontier.advance(4);
            frontier.advance(6);
            waiter.join().unwrap().unwrap();
        });
    }

    #[test]
    fn functions_are_called_once_each_and_after_a_failure_with_an_error() {
        let frontier = Frontier::new(0);
        let (sender, receiver) = mpsc::channel();
        let leave = |timestamp| {
            let sender = sender.clone();
            let callback =
                move |settled: Result<(), _>| sender.send((timestamp, settled.is_ok())).unwrap();
            frontier.when_settled(timestamp, Box::new(callback));
        };
        leave(2);
        leave(1);
        frontier.advance(1);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [(1, true)]);
        leave(1);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [(1, true)]);
        frontier.fail(failure());
        leave(3);
        assert_eq!(
            receiver.try_iter().collect::<Vec<_>>(),
            [(2, false), (3, false)]
        );
        // What was durable stays so.
        frontier.wait(1, None).unwrap();
        assert!(matches!(
            frontier.wait(2, None),
            Err(DurabilityError::InDoubt(_))
        ));
    }
}
