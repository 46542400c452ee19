//! Which socket's turn it is (`min_sid`; Sections 3.2.2, 3.4.5).
//!
//! ```text
//!              mean vLHT of the waiters
//! socket 0   ───────────╮ ◄── favoured: its waiters are moved forward, in the
//! socket 1   ──────╮    │     order of their vLHT, until it leads
//!                  └────┘
//!                    lead: beyond a slice, and the grace period over, the
//!                    socket with the lowest mean is next
//! ```
//!
//! Departures from the paper, with reasons:
//!
//! - A socket is favoured until it leads the lowest one by a slice. In the paper
//!   the lowest is favoured after every traversal: among sockets that have had
//!   alike, each acquisition makes another one the lowest, and the lock changes
//!   sockets more often than in a FIFO queue.
//! - A waiter is compared with the average of the favoured socket's waiters, not
//!   of all (see [`scheduler`](crate::scheduler)). The threads of a socket that
//!   is ahead, as it comes to be in its turn and in the grace period above all,
//!   are above the average of all: no waiter would meet both criteria, and the
//!   order would be first come, first served, across sockets.
//! - A socket without waiters loses its turn at once, also in its grace period:
//!   favouring it would move none.
//!
//! Known weakness: with one thread per socket the favoured one changes with
//! every queueing, and the thread that has just released may not go on with its
//! slice. Locality cannot be had there, but a slice could.

use crate::clock;
use crate::criteria::Policy;
use crate::options::SLICE_NS;
use crate::topology::SOCKETS;

/// The socket to favour, if these are the means of the sockets' waiters, ns of
/// virtual time relative to anything.
pub(crate) fn favoured(policy: &Policy<'_>, means: &[Option<i64>; SOCKETS]) -> u32 {
    let before = policy.lock.core.verdict().map_or(0, |verdict| verdict.sid);
    let waiting = means.iter().zip(0..);
    let waiting = waiting.filter_map(|(mean, sid)| Some(((*mean)?, sid)));
    let Some((lowest, next)) = waiting.min() else {
        return before;
    };
    let turn_ns = policy.settings.slice_ns().max(SLICE_NS) as i64;
    match means[before as usize % SOCKETS] {
        Some(mean) if mean - lowest <= turn_ns || in_grace(policy) => before,
        _ => {
            begin_grace(policy);
            next
        }
    }
}

/// Time as a lock keeps it: 8 bits, never 0, in 16ths of the grace period. It
/// comes round: a change that is due may then wait for one period more.
fn now(grace_ns: u64) -> u8 {
    ((clock::ns(clock::now()) / (grace_ns / 16).max(1)) as u8).max(1)
}

fn in_grace(policy: &Policy<'_>) -> bool {
    let grace_ns = policy.settings.grace_ns();
    let since = policy.lock.extra.sid_since();
    grace_ns != 0 && since != 0 && now(grace_ns).wrapping_sub(since) < 16
}

fn begin_grace(policy: &Policy<'_>) {
    let grace_ns = policy.settings.grace_ns();
    if grace_ns != 0 {
        policy.lock.extra.set_sid_since(now(grace_ns));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::Options;
    use crate::raw::{Core, Extra, LockRef};
    use crate::state::Verdict;

    /// The socket that follows socket 3, if these sockets' waiters have had so
    /// much, in units of half a slice.
    fn next(grace: Duration, had: &[(usize, i64)]) -> u32 {
        let profile = Options::default().grace_period(grace).register("socket");
        let extra = Extra::with_profile(profile.unwrap().index());
        let core = Core::new();
        core.set_verdict(Verdict { avg: 1, sid: 3 });
        let policy = Policy::of(LockRef::new(&core, &extra));
        begin_grace(&policy);
        let mut means = [None; SOCKETS];
        for (sid, halves) in had {
            means[*sid] = Some(halves * SLICE_NS as i64 / 2);
        }
        favoured(&policy, &means)
    }

    #[test]
    fn a_socket_has_its_turn_until_it_leads_by_a_slice() {
        assert_eq!(next(Duration::ZERO, &[(3, 2), (5, 0), (7, 1)]), 3);
        assert_eq!(next(Duration::ZERO, &[(3, 3), (5, 0), (7, -1)]), 7);
    }

    #[test]
    fn a_grace_period_prolongs_the_turn_while_somebody_waits_there() {
        let minute = Duration::from_secs(60);
        assert_eq!(next(minute, &[(3, 1000), (5, 0)]), 3);
        assert_eq!(next(minute, &[(5, 1), (7, 0)]), 7);
        assert_eq!(next(minute, &[]), 3);
    }
}
