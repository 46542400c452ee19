//! Who is in the engine, and who may start: admission by memory.
//!
//! Slots bound how many queries run at a time, and not what they hold: exchanges keep
//! all rows between two pipelines. So a query starts only while what is reserved is
//! below a mark; those that come later wait in order. Nothing is known of what a query
//! will need, so one that has started may still run out of memory.
//!
//! G1. If nobody has started, whoever is first in line may, whatever is reserved.
//! G2. Who comes while others wait, waits.
//! G3. The line is looked at whenever a query has left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use datafusion::execution::memory_pool::MemoryPool;
use tokio::sync::oneshot;

use crate::error::SqlError;
use crate::query::QueryId;
use crate::run::Run;

#[derive(Debug)]
pub(crate) struct Gate {
    pool: Arc<dyn MemoryPool>,
    /// Who comes while more than this is reserved waits, bytes.
    mark: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<QueryId, Arc<Run>>,
    started: BTreeSet<QueryId>,
    line: VecDeque<(QueryId, oneshot::Sender<()>)>,
    is_closed: bool,
}

impl Gate {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>, mark: usize) -> Gate {
        Gate {
            pool,
            mark,
            state: Mutex::default(),
        }
    }

    fn is_open(&self, state: &State) -> bool {
        // G1.
        state.started.is_empty() || self.pool.reserved() <= self.mark
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
        // G2.
        if state.line.is_empty() && self.is_open(&state) {
            state.started.insert(run.id);
            return Ok(None);
        }
        let (sender, receiver) = oneshot::channel();
        state.line.push_back((run.id, sender));
        Ok(Some(receiver))
    }

    /// A query has ended.
    pub(crate) fn left(&self, id: QueryId) {
        let mut state = crate::lock(&self.state);
        state.runs.remove(&id);
        state.started.remove(&id);
        state.line.retain(|(waiting, _)| *waiting != id);
        // G3.
        while self.is_open(&state)
            && let Some((id, sender)) = state.line.pop_front()
        {
            if sender.send(()).is_ok() {
                state.started.insert(id);
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
