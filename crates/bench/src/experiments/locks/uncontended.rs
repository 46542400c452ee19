//! What a lock costs that nobody else wants.
//!
//! Locks take turns: a round measures every lock once, in an order that the
//! seed shuffles, so that a frequency change or a neighbour on the machine
//! meets all of them alike. A sample is the time of [`PAIRS`] pairs of lock and
//! unlock divided by their number; the row keeps every sample.
//!
//! Each lock has a thread that is its only user from the first round to the
//! last, and sleeps while it is not its turn. So no lock sees users come and
//! go, and none is measured in a program with a single thread, for which some
//! leave out the atomic instructions.

use std::sync::mpsc::channel;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::kind::Kind;
use super::rounds::{PAIRS, Rounds};
use crate::harness::error::{Error, Result};

/// Samples of each lock in the order of `kinds`, in ns for a pair.
pub(crate) fn samples(kinds: &[&Kind], rounds: u32, seed: u64) -> Result<Vec<Vec<f64>>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    let mut samples = vec![Vec::new(); kinds.len()];
    std::thread::scope(|scope| {
        let mut users = Vec::new();
        for kind in kinds {
            let (ask, asked) = channel();
            let (ns, answers) = channel();
            let rounds = Rounds { asked, ns };
            let user = scope.spawn(move || kind.measured.alone(&rounds));
            users.push((ask, answers, user));
        }
        // The first round warms caches and makes per-thread state; it is not
        // kept.
        'rounds: for round in 0..=rounds {
            order.shuffle(&mut random);
            for &index in &order {
                let (ask, answers, _) = &users[index];
                // A thread that is gone says why below.
                let answer = ask.send(()).ok().and_then(|()| answers.recv().ok());
                let Some(ns) = answer else { break 'rounds };
                if round > 0 {
                    let ns = ns as f64 / f64::from(PAIRS);
                    samples[index].push((ns * 1e3).round() / 1e3);
                }
            }
        }
        for (ask, _, user) in users {
            drop(ask);
            user.join().unwrap_or_else(|panic| {
                std::panic::resume_unwind(panic);
            })?;
        }
        Ok::<(), Error>(())
    })?;
    Ok(samples)
}
