//! The sender's side of the mail: when an interrupt is due.
//!
//! ```text
//! requested ──flag──► grace over, not taken ──► interrupt ──► taken
//!     └──────────────interrupt───────────────►     │ ▲
//!                                          refused ▼ │ after 50 µs, 100 µs … 1 ms
//!                                               marked
//! ```
//!
//! Any number of threads request and rearm at once. What they decide is when to
//! send an interrupt more, never whether a request is lost (M1). But a request
//! that needs an interrupt must get one, by these rules:
//!
//! - **O1** A request for the flag alone takes `sent_ns` back to 0 *after* it is
//!   in the mail, and an interrupt for what was there before reads it when it
//!   sets it. So either the interrupt finds the request in the mail, or what is
//!   left is 0 and the next `rearm` sends another. (Before the request would be
//!   too early: an interrupt sent in between, for an older request, would pass
//!   for this one's, and none would be sent.)
//! - **O2** Who sends takes the mark away *before* it sends, and a handler sets
//!   it as the last thing it does. So a mark that was taken away is followed by a
//!   handler that takes the request or sets it again: the kernel delivers a signal
//!   after what its sender did (a lock), and so does a user interrupt.
//! - **O3** A request that finds another one waiting for its grace to be over does
//!   not begin that anew: requests that follow each other closely would else keep
//!   the interrupt from ever being sent. Two that look at once may both begin it;
//!   that puts it off by the time between them.
//!
//! None is asserted: each is about what another thread does next. The models of
//! `models/mail.rs` run all orders and require that every request is taken.
//!
//! Time and the way to send are the caller's, so that the same code runs in the
//! models.

use std::io;
use std::time::Duration;

use crate::level::Level;
use crate::mail::{Mail, Requested};
use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicU64, Relaxed, Release};

/// When a refused interrupt is repeated for the first time; then after twice as
/// long each time.
const REPEAT_AFTER: Duration = Duration::from_micros(50);
/// The longest time between repetitions: they cost the worker a few µs each.
const REPEAT_AFTER_MAX: Duration = Duration::from_millis(1);

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// In sight of poll points, followed by an interrupt only if none takes it.
    Flag,
    /// With an interrupt.
    Interrupt,
}

/// The mail of a worker, and when its senders did what.
pub(crate) struct Outbox {
    mail: Mail,
    grace_ns: AtomicU64,
    /// When the oldest request was made that a flag alone may still bring (O3).
    since_ns: AtomicU64,
    /// When an interrupt was last sent for it; 0 if none was.
    sent_ns: AtomicU64,
    repeat_after_ns: AtomicU64,
    /// The mark: the last interrupt was refused by a gate behind which nothing is
    /// sure to look again.
    repeat: AtomicBool,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            mail: Mail::new(),
            grace_ns: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            sent_ns: AtomicU64::new(0),
            repeat_after_ns: AtomicU64::new(0),
            repeat: AtomicBool::new(false),
        }
    }

    pub(crate) fn mail(&self) -> &Mail {
        &self.mail
    }

    /// How long a flag alone has to be enough.
    pub(crate) fn set_grace(&self, grace: Duration) {
        let ns = grace.as_nanos().min(u64::MAX.into());
        self.grace_ns.store(ns as u64, Relaxed);
    }

    /// Requests a level.
    pub(crate) fn request(
        &self,
        level: Level,
        how: How,
        now: u64,
        send: impl FnOnce() -> io::Result<()>,
    ) -> Requested {
        let in_grace = self.sent_ns.load(Relaxed) == 0 && self.mail.due(Relaxed) != 0;
        if !in_grace {
            // Before the request: it is never older than it says.
            self.since_ns.store(now, Relaxed);
        }
        self.repeat_after_ns
            .store(REPEAT_AFTER.as_nanos() as u64, Relaxed);
        match how {
            How::Flag => {
                let requested = self.mail.post(level);
                // O1.
                self.sent_ns.swap(0, Release);
                requested
            }
            How::Interrupt => {
                let requested = self.mail.post_for_handler(level);
                self.interrupt(now, send);
                requested
            }
        }
    }

    /// Sends what is overdue; how long it may take until there is something to
    /// send again. For while something is outstanding.
    pub(crate) fn rearm(&self, now: u64, send: impl FnOnce() -> io::Result<()>) -> Duration {
        let sent = self.sent_ns.load(Relaxed);
        let (start, wait) = match sent {
            0 => (self.since_ns.load(Relaxed), self.grace_ns.load(Relaxed)),
            _ => (sent, self.repeat_after_ns.load(Relaxed)),
        };
        let elapsed = now.saturating_sub(start);
        if elapsed < wait {
            return Duration::from_nanos(wait - elapsed);
        }
        if sent == 0 {
            self.interrupt(now, send);
        } else if self.repeat.load(Acquire) {
            let longer = (2 * wait).min(REPEAT_AFTER_MAX.as_nanos() as u64);
            self.repeat_after_ns.store(longer, Relaxed);
            self.interrupt(now, send);
        }
        Duration::from_nanos(self.repeat_after_ns.load(Relaxed))
    }

    /// Sends an interrupt unless one is under way (M2).
    fn interrupt(&self, now: u64, send: impl FnOnce() -> io::Result<()>) {
        // Acquire: O1.
        self.sent_ns.swap(now.max(1), AcqRel);
        if !self.mail.take_off() {
            return;
        }
        // O2.
        self.repeat.store(false, Relaxed);
        if send().is_err() {
            // The thread has ended without leaving: nobody will land.
            self.mail.landed();
        }
    }

    /// For the handler: it could not take what was requested, and nothing is sure
    /// to look again.
    pub(crate) fn refused(&self) {
        self.repeat.store(true, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    const HIGH: Level = Level::new(1);

    /// Times in µs at which interrupts are sent, if each is refused; rearmed at
    /// every µs up to `end`.
    fn sent(outbox: &Outbox, how: How, end: u64) -> Vec<u64> {
        let mut times = Vec::new();
        let count = Cell::new(0);
        let send = || {
            count.set(count.get() + 1);
            Ok(())
        };
        let mut step = |us: u64, act: &dyn Fn(u64)| {
            act(us * 1000);
            if count.take() > 0 {
                times.push(us);
                outbox.mail.arrive();
                outbox.refused();
            }
        };
        step(10, &|now| {
            outbox.request(HIGH, how, now, send);
        });
        for us in 11..=end {
            step(us, &|now| {
                outbox.rearm(now, send);
            });
        }
        times
    }

    #[test]
    fn repeated_interrupts_double_their_interval() {
        let outbox = Outbox::new();
        let times = sent(&outbox, How::Interrupt, 5_000);
        let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(times[0], 10);
        assert_eq!(gaps, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
    }

    #[test]
    fn a_flag_has_its_grace() {
        let outbox = Outbox::new();
        outbox.set_grace(Duration::from_micros(3));
        assert_eq!(sent(&outbox, How::Flag, 12), [0; 0]);
        let outbox = Outbox::new();
        outbox.set_grace(Duration::from_micros(3));
        assert_eq!(sent(&outbox, How::Flag, 63), [13, 63]);
    }

    #[test]
    fn requests_that_follow_closely_do_not_put_off_the_interrupt() {
        let outbox = Outbox::new();
        outbox.set_grace(Duration::from_micros(3));
        let sent = Cell::new(None);
        for us in 10..20_u64 {
            let send = || {
                sent.set(sent.get().or(Some(us)));
                Ok(())
            };
            outbox.request(HIGH, How::Flag, us * 1000, send);
            outbox.rearm(us * 1000, send);
        }
        assert_eq!(sent.get(), Some(13));
    }

    #[test]
    fn a_request_after_one_that_was_taken_has_its_own_grace() {
        let outbox = Outbox::new();
        outbox.set_grace(Duration::from_micros(3));
        let fails = || -> io::Result<()> { panic!("sent within the grace") };
        outbox.request(HIGH, How::Flag, 10_000, fails);
        outbox.mail.take(HIGH);
        outbox.request(HIGH, How::Flag, 20_000, fails);
        outbox.rearm(22_000, fails);
    }

    #[test]
    fn an_interrupt_that_was_not_refused_is_not_repeated() {
        let outbox = Outbox::new();
        let fails = || -> io::Result<()> { panic!("sent again") };
        outbox.request(HIGH, How::Interrupt, 10, || Ok(()));
        outbox.mail.arrive();
        outbox.rearm(10_000_000, fails);
    }
}
