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
//! - **O4** A user interrupt that does not arrive is followed by a signal. (The kernel loses
//!   no signal; of user interrupts it knows nothing, so a suspended machine or a restored
//!   virtual one may.) Only a handler lowers `in_flight`, and it counts: while the flag is
//!   up at each look and the count stays the same, the same interrupt is under way. Who
//!   finds it so for `LOST_AFTER` sends the signal, whose handler lands and opens as any
//!   other (M2). If the first one was only late, its handler does that once more: a request
//!   whose sender found the flag up is opened by whichever comes next.
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

/// How long a user interrupt may be under way: longer than a worker waits for its CPU as a
/// rule. It arrives in less than 1 µs if the worker runs.
const LOST_AFTER: Duration = Duration::from_millis(10);

/// What [`Outbox::rearm`] sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// The interrupt that this worker's requests come with.
    Interrupt,
    /// The signal, whatever they come with (O4).
    Signal,
}

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
    /// What was under way at the last look ([`Mail::under_way`]) and since when, for
    /// interrupts that can be lost (O4).
    watched: AtomicU64,
    watched_since_ns: AtomicU64,
}

/// Nothing is under way. No worker is interrupted so often.
const NOTHING: u64 = u64::MAX;

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            mail: Mail::new(),
            grace_ns: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            sent_ns: AtomicU64::new(0),
            repeat_after_ns: AtomicU64::new(0),
            repeat: AtomicBool::new(false),
            watched: AtomicU64::new(NOTHING),
            watched_since_ns: AtomicU64::new(0),
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
    /// send again. For while something is outstanding. `can_be_lost`: of interrupts.
    pub(crate) fn rearm(
        &self,
        now: u64,
        can_be_lost: bool,
        send: impl FnOnce(Again) -> io::Result<()>,
    ) -> Duration {
        if can_be_lost && self.seems_lost(now) {
            self.mail.count_replaced();
            if send(Again::Signal).is_err() {
                self.mail.landed();
            }
            return REPEAT_AFTER;
        }
        let send = || send(Again::Interrupt);
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

    /// Whether an interrupt has been under way for too long (O4). Of those that look at
    /// once, one hears it, and the time begins anew.
    fn seems_lost(&self, now: u64) -> bool {
        let under_way = self.mail.under_way().unwrap_or(NOTHING);
        if under_way == NOTHING || under_way != self.watched.load(Relaxed) {
            self.watched_since_ns.store(now, Relaxed);
            self.watched.store(under_way, Relaxed);
            return false;
        }
        let since = self.watched_since_ns.load(Relaxed);
        let clock = &self.watched_since_ns;
        now.saturating_sub(since) >= LOST_AFTER.as_nanos() as u64
            && (clock.compare_exchange(since, now, Relaxed, Relaxed)).is_ok()
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
                outbox.rearm(now, false, |_| send());
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
            outbox.rearm(us * 1000, false, |_| send());
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
        outbox.rearm(22_000, false, |_| fails());
    }

    #[test]
    fn an_interrupt_that_was_not_refused_is_not_repeated() {
        let outbox = Outbox::new();
        let fails = || -> io::Result<()> { panic!("sent again") };
        outbox.request(HIGH, How::Interrupt, 10, || Ok(()));
        outbox.mail.arrive();
        outbox.rearm(10_000_000, false, |_| fails());
    }

    /// When a signal is sent, in µs, rearmed at every 100 µs up to `end`; `act` is called
    /// before each, with the time.
    fn replaced(outbox: &Outbox, end: u64, mut act: impl FnMut(u64)) -> Vec<u64> {
        let mut times = Vec::new();
        for us in (0..=end).step_by(100) {
            act(us);
            outbox.rearm(us * 1000, true, |what| {
                if what == Again::Signal {
                    times.push(us);
                }
                Ok(())
            });
        }
        times
    }

    #[test]
    fn a_user_interrupt_that_does_not_arrive_is_followed_by_signals() {
        let outbox = Outbox::new();
        outbox.request(HIGH, How::Interrupt, 0, || Ok(()));
        let times = replaced(&outbox, 25_000, |_| {});
        assert_eq!(times, [10_000, 20_000]);
        assert_eq!(outbox.mail.counters().replaced, 2);
        // The handler of either opens the mail.
        outbox.mail.arrive();
        assert_eq!(outbox.mail.due(Relaxed) & HIGH.bit(), HIGH.bit());
    }

    #[test]
    fn requests_that_follow_a_lost_one_do_not_put_off_the_signal() {
        let outbox = Outbox::new();
        let times = replaced(&outbox, 15_000, |us| {
            outbox.request(HIGH, How::Interrupt, us * 1000, || Ok(()));
        });
        assert_eq!(times, [10_000]);
    }

    #[test]
    fn user_interrupts_that_arrive_are_followed_by_no_signal() {
        let outbox = Outbox::new();
        // Each is under way for half of the time, and at every second look.
        let times = replaced(&outbox, 100_000, |us| match us / 5_000 % 2 {
            0 => {
                outbox.request(HIGH, How::Interrupt, us * 1000, || Ok(()));
            }
            _ => outbox.mail.arrive(),
        });
        assert_eq!(times, [0; 0]);
        // Nor is one that is sent after a long time without.
        outbox.mail.arrive();
        outbox.rearm(100_000_000, true, |_| Ok(()));
        outbox.mail.take(HIGH);
        outbox.request(HIGH, How::Interrupt, 200_000_000, || Ok(()));
        let fails = |_| -> io::Result<()> { panic!("sent at once") };
        outbox.rearm(200_001_000, true, fails);
    }
}
