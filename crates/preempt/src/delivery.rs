//! How requests reach a worker.
//!
//! | delivery | the sender | the worker | where |
//! | --- | --- | --- | --- |
//! | `Poll` | sets a flag | sees it at a poll point or a region's exit | everywhere |
//! | `Signal` | sets a flag, sends a signal | is interrupted | everywhere |
//! | `Hybrid` | sets the flag, sends the signal if the flag was not seen for a while | whichever comes first | everywhere |
//! | `UserInterrupt` | sets the flag, SENDUIPI | is interrupted, without the kernel | module `uintr` |
//!
//! The paper has the last (Section 4.2). It takes less than 1 µs; a signal takes
//! more, mostly because the kernel has to interrupt another CPU. A flag arrives in
//! the time of a cache line transfer, but only work that polls sees it. So `Hybrid`
//! is best on a machine without user interrupts, and is [`Delivery::best`]:
//! `UserInterrupt` has not been run on hardware yet, and is used only where it is
//! asked for.
//!
//! A [`Route`] is one worker's, shared by all its remotes. What is to be sent, and
//! when again, is for its [`Outbox`]; how it is sent, for the route.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Once;
use std::sync::atomic::{
    AtomicI32, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::DeliveryError;
use crate::gate::Gate;
use crate::level::Level;
use crate::mail::{Mail, Requested};
use crate::outbox::{Again, How, Outbox};
use crate::signal;
use crate::trail::Trail;

/// How long a flag alone has to be enough under [`Delivery::HYBRID`]: longer than
/// work that polls goes without polling, shorter than a signal takes.
const GRACE: Duration = Duration::from_micros(3);

/// How requests reach a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Delivery {
    /// By a flag that poll points and region exits look at.
    Poll,
    /// By a signal, at almost any instruction. Poll points take only what the
    /// handler could not.
    Signal,
    /// By a flag, and by a signal if it has not been taken within `grace`.
    /// [`Remote::rearm`](crate::Remote::rearm) watches the time.
    Hybrid {
        /// How long the flag alone has to be enough.
        grace: Duration,
    },
    /// By a user interrupt, at almost any instruction. Poll points take only what
    /// the handler could not. By a signal if it has not arrived after 10 ms, which
    /// [`Remote::rearm`](crate::Remote::rearm) watches.
    UserInterrupt,
}

impl Delivery {
    /// `Hybrid` with a grace of 3 µs.
    pub const HYBRID: Delivery = Delivery::Hybrid { grace: GRACE };

    /// The default of a worker.
    pub const fn best() -> Delivery {
        Delivery::HYBRID
    }

    /// All that work on this machine, in the order to fall back: each needs less of
    /// the machine than the one before. It is not the order of their latency.
    pub fn available() -> Vec<Delivery> {
        let all = [
            Delivery::UserInterrupt,
            Delivery::HYBRID,
            Delivery::Signal,
            Delivery::Poll,
        ];
        let works = |delivery: &Delivery| delivery.check().is_ok();
        all.into_iter().filter(works).collect()
    }

    /// Whether this machine has it.
    ///
    /// # Errors
    /// [`DeliveryError::Unsupported`] says what is missing.
    pub fn check(self) -> Result<(), DeliveryError> {
        match self {
            Delivery::Poll | Delivery::Signal | Delivery::Hybrid { .. } => Ok(()),
            Delivery::UserInterrupt => {
                user_interrupts().map_err(|missing| DeliveryError::Unsupported {
                    delivery: self,
                    missing,
                })
            }
        }
    }

    /// Whether requests interrupt the worker.
    pub(crate) fn interrupts(self) -> bool {
        self != Delivery::Poll
    }
}

#[cfg(target_arch = "x86_64")]
fn user_interrupts() -> Result<(), &'static str> {
    crate::uintr::detect()
}

#[cfg(not(target_arch = "x86_64"))]
fn user_interrupts() -> Result<(), &'static str> {
    Err("user interrupts are a feature of x86-64 CPUs")
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delivery::Poll => f.pad("poll"),
            Delivery::Signal => f.pad("signal"),
            Delivery::UserInterrupt => f.pad("uintr"),
            Delivery::Hybrid { grace } => f.pad(&format!("hybrid:{}ns", grace.as_nanos())),
        }
    }
}

impl From<Delivery> for String {
    fn from(delivery: Delivery) -> String {
        delivery.to_string()
    }
}

impl TryFrom<String> for Delivery {
    type Error = String;

    fn try_from(text: String) -> Result<Delivery, String> {
        text.parse()
    }
}

impl FromStr for Delivery {
    type Err = String;

    fn from_str(text: &str) -> Result<Delivery, String> {
        let grace = |text: &str| {
            let (number, unit) = match text.strip_suffix("ns") {
                Some(number) => (number, 1),
                None => (text.strip_suffix("us")?, 1000),
            };
            let number: u32 = number.parse().ok()?;
            Some(Duration::from_nanos(u64::from(number) * unit))
        };
        match text.split_once(':') {
            None if text == "poll" => Some(Delivery::Poll),
            None if text == "signal" => Some(Delivery::Signal),
            None if text == "uintr" => Some(Delivery::UserInterrupt),
            None if text == "hybrid" => Some(Delivery::HYBRID),
            Some(("hybrid", text)) => grace(text).map(|grace| Delivery::Hybrid { grace }),
            _ => None,
        }
        .ok_or_else(|| {
            format!("no delivery '{text}': use poll, signal, uintr, hybrid or, say, hybrid:3us")
        })
    }
}

const POLL: u8 = 0;
const SIGNAL: u8 = 1;
const HYBRID: u8 = 2;
const USER_INTERRUPT: u8 = 3;

/// What interrupts a thread. A handler's entry keeps its own kind out, and its return
/// lets that in again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Signal,
    #[cfg(target_arch = "x86_64")]
    User,
}

/// The way to one worker.
pub(crate) struct Route {
    outbox: Outbox,
    trail: Trail,
    /// The kernel's id of the worker's thread; 0 once it has left.
    thread: AtomicI32,
    levels: usize,
    signal: i32,
    /// Whether the worker was made ready for signals.
    prepared: bool,
    /// The index that SENDUIPI takes, if the worker was made ready for it.
    #[cfg(target_arch = "x86_64")]
    user_interrupt: Option<crate::uintr::Receiver>,
    mode: AtomicU8,
}

impl Route {
    /// The way to the calling thread, which is about to become a worker.
    pub(crate) fn to_here(
        delivery: Delivery,
        signal: i32,
        levels: usize,
    ) -> Result<Route, DeliveryError> {
        delivery.check()?;
        if delivery.interrupts() {
            signal::install(signal)?;
        }
        let route = Route {
            outbox: Outbox::new(),
            trail: Trail::new(),
            thread: AtomicI32::new(signal::thread_id()),
            levels,
            signal,
            prepared: delivery.interrupts(),
            #[cfg(target_arch = "x86_64")]
            user_interrupt: match delivery {
                Delivery::UserInterrupt => Some(crate::uintr::Receiver::register()?),
                _ => None,
            },
            mode: AtomicU8::new(POLL),
        };
        route.set_delivery(delivery)?;
        // Threads inherit what their parents block.
        route.unblock();
        Ok(route)
    }

    pub(crate) fn mail(&self) -> &Mail {
        self.outbox.mail()
    }

    /// Where the worker's contexts are.
    #[inline]
    pub(crate) fn trail(&self) -> &Trail {
        &self.trail
    }

    /// The kernel's id of the worker's thread; `None` once it has left.
    pub(crate) fn thread(&self) -> Option<i32> {
        Some(self.thread.load(Acquire)).filter(|thread| *thread != 0)
    }

    /// Changes how later requests are delivered.
    pub(crate) fn set_delivery(&self, delivery: Delivery) -> Result<(), DeliveryError> {
        let (mode, ready) = match delivery {
            Delivery::Poll => (POLL, true),
            Delivery::Signal => (SIGNAL, self.prepared),
            Delivery::Hybrid { grace } => {
                self.outbox.set_grace(grace);
                (HYBRID, self.prepared)
            }
            Delivery::UserInterrupt => (USER_INTERRUPT, self.receives_user_interrupts()),
        };
        if !ready {
            return Err(DeliveryError::NotPrepared(delivery));
        }
        self.mode.store(mode, Relaxed);
        Ok(())
    }

    /// Requests a level, from any thread.
    pub(crate) fn preempt(&self, level: Level) -> Requested {
        if !self.is_alive() || level == Level::BASE || level.index() >= self.levels {
            return Requested::Gone;
        }
        let how = match self.mode.load(Relaxed) {
            POLL => return self.outbox.mail().post(level),
            HYBRID => How::Flag,
            _ => How::Interrupt,
        };
        self.outbox.request(level, how, now_ns(), || self.send())
    }

    /// Sends what is overdue, from any thread; how long it may take until there
    /// is something to send again, or `None` if nothing is outstanding.
    pub(crate) fn rearm(&self) -> Option<Duration> {
        let silent = self.mode.load(Relaxed) == POLL || !self.is_alive();
        if silent || self.outbox.mail().outstanding().is_empty() {
            return None;
        }
        // In every mode: one that is under way may be from before it was changed.
        let can_be_lost = self.receives_user_interrupts();
        Some(self.outbox.rearm(now_ns(), can_be_lost, |what| match what {
            Again::Interrupt => self.send(),
            Again::Signal => {
                say_that_one_was_replaced();
                self.send_signal()
            }
        }))
    }

    fn send(&self) -> io::Result<()> {
        #[cfg(target_arch = "x86_64")]
        if let Some(receiver) = &self.user_interrupt
            && self.mode.load(Relaxed) == USER_INTERRUPT
        {
            receiver.send();
            return Ok(());
        }
        self.send_signal()
    }

    fn send_signal(&self) -> io::Result<()> {
        match self.thread.load(Acquire) {
            0 => Err(io::ErrorKind::NotFound.into()),
            thread => signal::send(thread, self.signal),
        }
    }

    /// For the handler: this gate has refused.
    pub(crate) fn refused(&self, gate: Gate) {
        if gate.asks_for_another() {
            self.outbox.refused();
        }
    }

    /// Lets all interrupts into this thread, which is the worker's.
    pub(crate) fn unblock(&self) {
        #[cfg(target_arch = "x86_64")]
        self.set_blocked(Kind::User, false);
        self.set_blocked(Kind::Signal, false);
    }

    /// Keeps interrupts of a kind out of this thread, which is the worker's, or lets
    /// them in.
    pub(crate) fn set_blocked(&self, kind: Kind, blocked: bool) {
        match kind {
            Kind::Signal if self.prepared => signal::set_blocked(self.signal, blocked),
            Kind::Signal => {}
            #[cfg(target_arch = "x86_64")]
            Kind::User => {
                if let Some(receiver) = &self.user_interrupt {
                    receiver.set_blocked(blocked);
                }
            }
        }
    }

    pub(crate) fn receives_user_interrupts(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.user_interrupt.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// The worker leaves: later requests are refused.
    pub(crate) fn close(&self) {
        self.thread.store(0, Release);
        #[cfg(target_arch = "x86_64")]
        if let Some(receiver) = &self.user_interrupt {
            receiver.unregister();
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.thread.load(Acquire) != 0
    }
}

/// One line for the whole process, to standard error without its lock: a task that holds
/// it may be what has to be interrupted.
fn say_that_one_was_replaced() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let line = "giveway-preempt: a user interrupt had not arrived after 10 ms, and a signal \
                    was sent in its place (Counters::replaced counts them). This is harmless if \
                    the worker waited for a CPU or in a system call. Else they are being lost: \
                    choose the policy hybrid.\n";
        let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    });
}

/// Nanoseconds of the monotonic clock.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for delivery in [
            Delivery::Poll,
            Delivery::Signal,
            Delivery::HYBRID,
            Delivery::UserInterrupt,
        ] {
            assert_eq!(delivery.to_string().parse(), Ok(delivery));
        }
        assert_eq!("hybrid".parse(), Ok(Delivery::HYBRID));
        let grace = Duration::from_micros(7);
        assert_eq!("hybrid:7us".parse(), Ok(Delivery::Hybrid { grace }));
        for wrong in [
            "",
            "hybrid:",
            "hybrid:3",
            "hybrid:3ms",
            "poll:1us",
            "interrupt",
        ] {
            let error = wrong.parse::<Delivery>().unwrap_err();
            assert!(error.contains("use poll"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_worker_that_polls_is_not_ready_for_signals() {
        let route = Route::to_here(Delivery::Poll, libc::SIGURG, 2).unwrap();
        let error = route.set_delivery(Delivery::Signal).unwrap_err();
        assert!(matches!(
            error,
            DeliveryError::NotPrepared(Delivery::Signal)
        ));
    }

    #[test]
    fn requests_for_impossible_levels_or_after_the_end_are_refused() {
        let route = Route::to_here(Delivery::Poll, libc::SIGURG, 2).unwrap();
        assert_eq!(route.preempt(Level::BASE), Requested::Gone);
        assert_eq!(route.preempt(Level::new(2)), Requested::Gone);
        assert_eq!(route.preempt(Level::new(1)), Requested::New);
        route.close();
        assert_eq!(route.preempt(Level::new(1)), Requested::Gone);
    }
}
