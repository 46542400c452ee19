//! A worker: runs parts of queries for a coordinator, as queries of its own engine.
//!
//! ```text
//!   RUN ─▶ plan decoded (`planner`, by tier) ─▶ submitted with tier, weight, deadline
//!           ─▶ pipelines on the engine's workers ─▶ shelf ─▶ answer ─▶ … FETCH … ─▶ end of the call
//! ```
//!
//! A part waits for a slot, for memory and for workers as any query does, and is listed and
//! cancelled like one. It holds none of them when it has ended, but for the memory of the
//! rows on its shelf.
//!
//! Q1. The shelf of a part is there as long as the call that ran it. (tested)

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlanBuilder;
use giveway_tier::{Tier, Weight};
use tonic::Status;

use super::message::{Fetch, Part, PartKey, check_version};
use super::peers::Peers;
use super::shelf::{Shelf, Shelved};
use super::source;
use crate::cut::spawns;
use crate::error::SqlError;
use crate::options::QueryOptions;
use crate::planner::Whose;
use crate::query::Query;
use crate::session::Session;
use crate::settings;

/// What a server is to a coordinator.
pub(crate) struct Worker {
    session: Session,
    peers: Peers,
    shelves: Mutex<HashMap<PartKey, Arc<Shelf>>>,
}

/// A part that is done. Dropping it drops its rows.
pub(crate) struct Done {
    worker: Arc<Worker>,
    key: PartKey,
}

impl Drop for Done {
    fn drop(&mut self) {
        crate::lock(&self.worker.shelves).remove(&self.key);
    }
}

impl Worker {
    /// A worker on the engine of a session.
    pub(crate) fn new(session: Session, peers: Peers) -> Worker {
        Worker {
            session,
            peers,
            shelves: Mutex::default(),
        }
    }

    /// Runs a part to its end. Dropping the future ends it.
    pub(crate) async fn run(self: Arc<Worker>, part: Part) -> Result<Done, SqlError> {
        let began = Instant::now();
        let wrong = |what: String| SqlError::Plan(DataFusionError::Plan(what));
        check_version(&part.version).map_err(wrong)?;
        let tier: Tier = (part.tier.parse()).map_err(|error| wrong(format!("tier: {error}")))?;
        let weight: Weight =
            (part.weight.to_string().parse()).map_err(|error| wrong(format!("weight: {error}")))?;
        let deadline = (part.deadline_ms > 0).then(|| Duration::from_millis(part.deadline_ms));
        let options = QueryOptions {
            tier,
            weight,
            deadline,
            ..QueryOptions::default()
        };
        let whose = Whose {
            is_control: false,
            tier,
            weight,
            deadline: deadline.map(|deadline| began + deadline),
        };
        let mut state = self.session.context().state();
        for (key, value) in &part.options {
            settings::check(key, Some(value)).map_err(SqlError::planning)?;
            let set = state.config_mut().options_mut().set(key, value);
            set.map_err(SqlError::planning)?;
        }
        let decoding = {
            let (state, peers) = (state.clone(), self.peers.clone());
            let (bytes, name) = (part.plan, part.name.clone());
            async move {
                let context = TaskContext::from(&state);
                source::decoded(&bytes, &context, &peers).map_err(|error| {
                    wrong(format!("the plan of '{name}' is not understood: {error}"))
                })
            }
        };
        let engine = Arc::clone(&self.session.engine().0);
        let plan = engine.planner.run(whose, decoding).await?;
        // Coordinators send none such: `planner`.
        if spawns(&plan) {
            return Err(wrong("workers do not run plans that write".to_owned()));
        }
        let logical = LogicalPlanBuilder::empty(false).build();
        let shelf = Arc::new(Shelf::new(part.readers));
        let query = Query {
            engine,
            state,
            logical: logical.map_err(SqlError::planning)?,
            plan,
            text: part.name,
            options,
            planning: began.elapsed(),
            is_static: false,
            shelf: Some(Arc::clone(&shelf)),
            values: 0,
            kept: None,
        };
        query.collect().await?;
        crate::lock(&self.shelves).insert(part.key.clone(), shelf);
        Ok(Done {
            worker: self,
            key: part.key,
        })
    }

    /// Rows of a part that is done.
    pub(crate) fn rows(&self, fetch: &Fetch) -> Result<Shelved, Status> {
        let shelf = crate::lock(&self.shelves).get(&fetch.key).cloned();
        let rows = shelf.and_then(|shelf| shelf.partition(fetch.partition as usize));
        rows.ok_or_else(|| {
            Status::not_found(
                "no such rows: the query has ended, or this worker was started anew since",
            )
        })
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::message::VERSION;
    use crate::{Engine, SqlError};

    #[tokio::test]
    async fn a_part_of_another_version_is_refused_before_its_plan_is_read() {
        let engine = Engine::builder().workers(1).build().unwrap();
        let peers = Peers::start(Default::default()).unwrap();
        let worker = Arc::new(Worker::new(engine.session(), peers));
        let part = |version: &str| Part {
            version: version.to_owned(),
            tier: "background".to_owned(),
            weight: 100,
            plan: vec![1, 2, 3].into(),
            ..Part::default()
        };
        for (version, expected) in [
            ("giveway 0.0.1, messages 1", "install the same version"),
            (VERSION, "is not understood"),
        ] {
            let refused = Arc::clone(&worker).run(part(version)).await;
            let Err(SqlError::Plan(error)) = refused else {
                panic!("{version} was taken");
            };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
