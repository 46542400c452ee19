//! An engine that has planned the 22 queries on its data, and runs them.
//!
//! All engines are made alike but for what is compared: the same tables, as many
//! partitions, the same limit on memory. So they make the same plans, which is checked.
//! Stock DataFusion runs the plans of an engine whose workers sleep.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::physical_plan::displayable;
use giveway_sql::{Engine, EngineStats, Policy, Query, Report, SqlError, Stock, tpch};

use super::data::Sizes;
use super::failure::failed;
use super::settings::Settings;
use super::usage::CpuTimes;
use crate::experiments::tasks::arm::Arm;
use crate::experiments::tasks::kind::Kind;
use crate::harness::error::{Error, Result};

/// How many times there is a partition for each worker: what the engine does, said
/// here so that engines with one worker have the same plans.
const PARTITIONS_PER_WORKER: usize = 8;
/// Partitions at least, for the same reason.
const PARTITIONS_MIN: usize = 16;

pub(super) struct Host {
    engine: Engine,
    stock: Option<Stock>,
    queries: BTreeMap<Kind, Query>,
}

impl Host {
    /// Starts `threads` workers, or threads of stock DataFusion, and plans queries.
    ///
    /// # Errors
    /// A thread cannot be had, or a query cannot be planned. DuckDB is no host.
    pub(super) fn start(
        arm: Arm,
        threads: u32,
        settings: &Settings,
        data: &Sizes,
        kinds: impl IntoIterator<Item = Kind>,
    ) -> Result<Host> {
        let (policy, is_stock) = match arm {
            Arm::Policy(policy) => (policy, false),
            Arm::Stock => (Policy::Fair, true),
            Arm::DuckDb { .. } => {
                return Err(Error::Config("DuckDB has a process of its own".to_owned()));
            }
        };
        let partitions = PARTITIONS_PER_WORKER * settings.workers as usize;
        let engine = Engine::builder()
            .workers(if is_stock { 1 } else { threads as usize })
            .partitions(partitions.max(PARTITIONS_MIN))
            .policy(policy)
            .tuning(settings.tracking, settings.refresh)
            .memory_limit(settings.memory_bytes)
            .build()
            .map_err(|error| failed("engine", error))?;
        let stock = match is_stock {
            true => Some(Stock::new(threads as usize).map_err(|error| failed("stock", error))?),
            false => None,
        };
        let sessions = [&data.small, &data.large].map(|data| {
            let session = engine.session();
            data.register(&session).map(|()| session)
        });
        let [small, large] = sessions;
        let (small, large) = (small?, large?);
        let mut queries = BTreeMap::new();
        for kind in kinds {
            let session = if kind.large { &large } else { &small };
            let text = tpch::query(kind.query.into(), data.of(kind).scale)
                .map_err(|error| failed("query", error))?;
            let query = block_on(session.sql(&text)).map_err(|error| failed(kind, error))?;
            queries.insert(kind, query.name(kind.to_string()));
        }
        Ok(Host {
            engine,
            stock,
            queries,
        })
    }

    /// A query to be run once.
    pub(super) fn query(&self, kind: Kind) -> Result<Query> {
        block_on(self.planned(kind))
    }

    /// The same for whoever is asynchronous.
    pub(super) async fn planned(&self, kind: Kind) -> Result<Query> {
        let query = self.queries.get(&kind).expect("planned at the start");
        query.again().await.map_err(|error| failed(kind, error))
    }

    /// Runs it.
    pub(super) async fn run(&self, query: Query) -> Result<Vec<RecordBatch>, SqlError> {
        match &self.stock {
            Some(stock) => stock.collect(query).await,
            None => query.submit()?.collect().await,
        }
    }

    /// Runs it on our engine, and says what it took.
    pub(super) async fn run_with_report(
        &self,
        query: Query,
    ) -> Result<(Vec<RecordBatch>, Report), SqlError> {
        query.submit()?.collect_with_report().await
    }

    pub(super) fn stats(&self) -> EngineStats {
        self.engine.stats()
    }

    /// CPU time that workers, or stock DataFusion's threads, have had.
    pub(super) fn cpu(&self) -> CpuTimes {
        CpuTimes::of(match &self.stock {
            Some(_) => "giveway-stock",
            None => "giveway-tasks",
        })
    }

    /// All plans as text, to compare engines by.
    pub(super) fn plans(&self) -> impl Iterator<Item = (Kind, String)> {
        self.queries.iter().map(|(kind, query)| {
            let plan = displayable(query.plan().as_ref()).indent(false);
            (*kind, plan.to_string())
        })
    }
}

/// Waits for a future that needs no runtime, or brings its own.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// A runtime for whoever waits for results.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without threads")
}

/// A host that several threads use.
pub(super) type SharedHost = Arc<Host>;
