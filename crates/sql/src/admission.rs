//! Who is in the engine, and who may start: admission by memory.
//!
//! Slots bound how many queries run at a time, and not what they hold: exchanges keep
//! all rows between two pipelines. So a query starts only while what is reserved is
//! below a mark; those that come later wait in order. Nothing is known of what a query
//! will need, so one that has started may still run out of memory.
//!
//! ```text
//!   limit      ├──────────────────────────────────────────────┤ time-sensitive
//!   3/4        ├──────────────────────────────────┤             background, all together
//!   9/16       ├────────────────────────┤  here others of the background begin to wait
//!              time-sensitive queries begin to wait at 3/4 of all that is reserved, but
//!              not before they hold an eighth themselves
//! ```
//!
//! G1. If nobody has started, whoever is first in line may, whatever is reserved.
//! G2. Who comes while others of its tier or a more urgent one wait, waits.
//! G3. The lines are looked at whenever a query has left, the time-sensitive one first.
//! G4. A control statement is on the list, and waits for nobody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use datafusion::execution::memory_pool::MemoryPool;
use giveway_tier::Tier;
use tokio::sync::oneshot;

use crate::error::SqlError;
use crate::memory::Account;
use crate::query::QueryId;
use crate::run::Run;

/// The engine's memory, as those at the gate see it.
#[derive(Debug)]
pub(crate) struct Gate {
    pool: Arc<dyn MemoryPool>,
    /// What background queries have of it.
    background: Arc<Account>,
    /// How much there is, bytes, if there is a limit.
    limit: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<QueryId, Arc<Run>>,
    started: BTreeSet<QueryId>,
    lines: [Line; Tier::ALL.len()],
    is_closed: bool,
}

/// Those that wait, of one tier.
type Line = VecDeque<(QueryId, oneshot::Sender<()>)>;

/// What background queries may hold of a limit, all together.
pub(crate) fn background_share(limit: usize) -> usize {
    limit / 4 * 3
}

impl Gate {
    pub(crate) fn new(
        pool: Arc<dyn MemoryPool>,
        background: Arc<Account>,
        limit: Option<usize>,
    ) -> Gate {
        Gate {
            pool,
            background,
            limit,
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
        match tier {
            Tier::TimeSensitive => is_roomy || reserved.saturating_sub(background) <= limit / 8,
            Tier::Background => is_roomy && background <= background_share(limit) / 4 * 3,
        }
    }

    /// Nobody comes in any more.
    pub(crate) fn close(&self) {
        crate::lock(&self.state).is_closed = true;
    }

    /// Takes in a query. If it has to wait, what it waits for.
    ///
    /// # Errors
    /// The gate is closed.
    pub(crate) fn enter(&self, run: &Arc<Run>) -> Result<Option<oneshot::Receiver<()>>, SqlError> {
        let mut state = crate::lock(&self.state);
        if state.is_closed {
            return Err(SqlError::ShutDown);
        }
        state.runs.insert(run.id, Arc::clone(run));
        // G4.
        if run.is_control {
            return Ok(None);
        }
        let tier = run.options.tier;
        // G2.
        let is_first = (Tier::ALL.into_iter())
            .filter(|&other| other >= tier)
            .all(|other| state.lines[other as usize].is_empty());
        if is_first && self.is_open(&state, tier) {
            state.started.insert(run.id);
            return Ok(None);
        }
        let (sender, receiver) = oneshot::channel();
        state.lines[tier as usize].push_back((run.id, sender));
        Ok(Some(receiver))
    }

    /// A query has ended.
    pub(crate) fn left(&self, id: QueryId) {
        let mut state = crate::lock(&self.state);
        state.runs.remove(&id);
        state.started.remove(&id);
        for line in &mut state.lines {
            line.retain(|(waiting, _)| *waiting != id);
        }
        // G3.
        for tier in Tier::ALL {
            while self.is_open(&state, tier)
                && let Some((id, sender)) = state.lines[tier as usize].pop_front()
            {
                if sender.send(()).is_ok() {
                    state.started.insert(id);
                }
            }
        }
    }

    pub(crate) fn find(&self, id: QueryId) -> Option<Arc<Run>> {
        crate::lock(&self.state).runs.get(&id).cloned()
    }

    /// All that have not left, the oldest first.
    pub(crate) fn runs(&self) -> Vec<Arc<Run>> {
        crate::lock(&self.state).runs.values().cloned().collect()
    }
}
