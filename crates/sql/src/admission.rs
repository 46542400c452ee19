//! Admission by memory: the list of the engine's queries, which of them may start, and which
//! give way to others.
//!
//! Slots bound how many queries run at a time, but not how much memory they hold:
//! exchanges keep all rows between two pipelines. So a query starts only while the
//! reserved memory is below a mark; later ones wait, by tier and then by weight. How much a
//! query will need is unknown, so one that has started may still run out of memory.
//!
//! ```text
//!   limit      ├──────────────────────────────────────────────┤ time-sensitive
//!   3/4        ├──────────────────────────────────┤             background, all together
//!   9/16       ├────────────────────────┤  more background queries wait
//!              time-sensitive queries wait while they hold more than 3/4 themselves
//! ```
//!
//! What background queries hold keeps no time-sensitive query waiting: when one asks for
//! memory that is not there, background queries are ended for it (`memory` says when).
//! With [`Builder::keep_background`](crate::Builder::keep_background) none is. Then
//! time-sensitive queries wait, too, while more than 3/4 of the limit is reserved and they
//! hold more than 1/8 of it, and one that asks for memory that is not there fails.
//!
//! G1. If no query has started, the first in line may start, whatever is reserved.
//!     (asserted in `State::check`)
//! G2. A query waits if another of its tier or of a more urgent one waits.
//!     (not asserted: `enter` tests just this)
//! G3. The lines are checked whenever a query has left, the time-sensitive one first.
//!     (not asserted: memory that is given back meanwhile could let the next one in)
//! G4. A control statement is on the list, and never waits. (asserted in `left`)
//! G5. A background query is ended for its memory only if that of all background queries
//!     would be enough for the one that asks. (tested: `chosen`)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use datafusion::execution::memory_pool::MemoryPool;
use giveway_tasks::{Line, Why};
use giveway_tier::Tier;
use tokio::sync::oneshot;

use crate::error::SqlError;
use crate::memory::Account;
use crate::query::QueryId;
use crate::run::Run;

/// The engine's memory, as those at the gate see it.
#[derive(Debug)]
pub(crate) struct Admission {
    pool: Arc<dyn MemoryPool>,
    /// What background queries have of it.
    background: Arc<Account>,
    /// How much there is, bytes, if there is a limit.
    limit: Option<usize>,
    /// How many queries of a tier may wait.
    waiting: usize,
    /// Whether background queries stay when time-sensitive ones need their memory.
    keeps_background: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<QueryId, Arc<Run>>,
    started: BTreeSet<QueryId>,
    /// By tier; within a tier it goes by weight.
    lines: [Line<(QueryId, oneshot::Sender<()>)>; Tier::ALL.len()],
    is_closed: bool,
}

/// What background queries may hold of a limit, all together.
pub(crate) fn background_share(limit: usize) -> usize {
    limit / 4 * 3
}

/// What tables may hold of a limit that queries of a tier have created: with those of both
/// tiers full, there is room for queries to start.
pub(crate) fn tables_share(limit: usize) -> usize {
    limit / 4
}

impl State {
    /// G1, before the lock is released.
    fn check(&self) {
        debug_assert!(
            !self.started.is_empty() || self.lines.iter().all(Line::is_empty),
            "G1: queries wait, and none has started"
        );
    }
}

impl Admission {
    pub(crate) fn new(
        pool: Arc<dyn MemoryPool>,
        background: Arc<Account>,
        limit: Option<usize>,
        waiting: usize,
        keeps_background: bool,
    ) -> Admission {
        Admission {
            pool,
            background,
            limit,
            waiting,
            keeps_background,
            state: Mutex::default(),
        }
    }

    fn is_open(&self, state: &State, tier: Tier) -> bool {
        let Some(limit) = self.limit else {
            return true;
        };
        // G1.
        if state.started.is_empty() {
            return true;
        }
        let background = self.background.used();
        let reserved = self.pool.reserved();
        let is_roomy = reserved <= limit / 4 * 3;
        let own_max = match self.keeps_background {
            true => limit / 8,
            false => limit / 4 * 3,
        };
        match tier {
            Tier::TimeSensitive => is_roomy || reserved.saturating_sub(background) <= own_max,
            Tier::Background => is_roomy && background <= background_share(limit) / 4 * 3,
        }
    }

    /// From now on, no query is admitted.
    pub(crate) fn close(&self) {
        crate::lock(&self.state).is_closed = true;
    }

    /// Takes in a query. If it has to wait, what it waits for.
    ///
    /// # Errors
    /// The gate is closed, or too many wait.
    pub(crate) fn enter(&self, run: &Arc<Run>) -> Result<Option<oneshot::Receiver<()>>, SqlError> {
        let mut state = crate::lock(&self.state);
        if state.is_closed {
            return Err(SqlError::ShutDown);
        }
        // G4.
        if run.is_control {
            state.runs.insert(run.id, Arc::clone(run));
            return Ok(None);
        }
        let tier = run.options.tier;
        // G2.
        let is_first = (Tier::ALL.into_iter())
            .filter(|&other| other >= tier)
            .all(|other| state.lines[other as usize].is_empty());
        if is_first && self.is_open(&state, tier) {
            state.runs.insert(run.id, Arc::clone(run));
            state.started.insert(run.id);
            return Ok(None);
        }
        let waiting = state.lines[tier as usize].len();
        if waiting >= self.waiting {
            return Err(SqlError::Refused(Why::Full(waiting)));
        }
        state.runs.insert(run.id, Arc::clone(run));
        let (sender, receiver) = oneshot::channel();
        state.lines[tier as usize].push(run.options.weight, (run.id, sender));
        state.check();
        Ok(Some(receiver))
    }

    /// A query has ended.
    pub(crate) fn left(&self, id: QueryId) {
        let mut state = crate::lock(&self.state);
        let run = state.runs.remove(&id);
        debug_assert!(run.is_some(), "E1 of `run`: a query leaves twice");
        state.started.remove(&id);
        for line in &mut state.lines {
            line.remove(|(waiting, _)| *waiting == id);
        }
        // G3.
        for tier in Tier::ALL {
            while self.is_open(&state, tier)
                && let Some((id, sender)) = state.lines[tier as usize].pop()
            {
                debug_assert!(
                    state.runs.get(&id).is_some_and(|run| !run.is_control),
                    "G4: a query that waits has left, or is a control statement"
                );
                if sender.send(()).is_ok() {
                    state.started.insert(id);
                }
            }
        }
        state.check();
    }

    /// Ends background queries until so many bytes more will be free for a time-sensitive
    /// one. False if they would not be.
    pub(crate) fn make_room(&self, bytes: usize) -> bool {
        let Some(victims) = self.victims(bytes) else {
            return false;
        };
        // Not under the lock: what is dropped of them may be large.
        for run in victims {
            run.cancel(SqlError::GaveWay);
        }
        true
    }

    /// Which queries are to be ended for so many bytes; none if those that are being ended
    /// have enough, or if there is room by now.
    fn victims(&self, bytes: usize) -> Option<Vec<Arc<Run>>> {
        let limit = self.limit.filter(|_| !self.keeps_background)?;
        let state = crate::lock(&self.state);
        let (mut ending, mut others) = (0, Vec::new());
        for run in state.runs.values() {
            let held = run.account.used();
            match run.is_stopped() {
                _ if run.is_control || run.options.tier != Tier::Background || held == 0 => {}
                true => ending += held,
                false => others.push((held, run)),
            }
        }
        let missing = self.pool.reserved().saturating_add(bytes);
        let missing = missing.saturating_sub(limit).saturating_sub(ending);
        // G5.
        let victims = chosen(others, missing)?;
        Some(victims.into_iter().cloned().collect())
    }

    pub(crate) fn find(&self, id: QueryId) -> Option<Arc<Run>> {
        crate::lock(&self.state).runs.get(&id).cloned()
    }

    /// All that have not left, the oldest first.
    pub(crate) fn runs(&self) -> Vec<Arc<Run>> {
        crate::lock(&self.state).runs.values().cloned().collect()
    }
}

/// Of things that hold bytes, the oldest first, those that are to go until so many are free:
/// as few as possible, and of those that have enough the youngest, which has done least.
/// Nothing if all of them are not enough.
fn chosen<T>(mut those: Vec<(usize, T)>, mut missing: usize) -> Option<Vec<T>> {
    let mut chosen = Vec::new();
    while missing > 0 {
        let is_enough = |(held, _): &(usize, T)| *held >= missing;
        let youngest = those.iter().rposition(is_enough);
        let largest = || (0..those.len()).max_by_key(|&index| those[index].0);
        let index = youngest.or_else(largest)?;
        let (held, next) = those.remove(index);
        chosen.push(next);
        missing = missing.saturating_sub(held);
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_as_possible_give_way_and_the_youngest_of_them() {
        let held = [(50, "old"), (20, "middle"), (30, "young"), (5, "youngest")];
        for (missing, expected) in [
            (0, Some(vec![])),
            (5, Some(vec!["youngest"])),
            (6, Some(vec!["young"])),
            (31, Some(vec!["old"])),
            (60, Some(vec!["old", "young"])),
            (81, Some(vec!["old", "young", "youngest"])),
            (105, Some(vec!["old", "young", "middle", "youngest"])),
            (106, None),
        ] {
            assert_eq!(chosen(held.to_vec(), missing), expected, "{missing}");
        }
    }
}
