//! A query before it is submitted, while it runs, and after it has ended.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use futures_util::{Stream, StreamExt, TryStreamExt};
use giveway_tasks::Report;
use giveway_tier::{Tier, Weight};
use serde::Serialize;

use crate::cluster::Shelf;
use crate::engine::Inner;
use crate::error::SqlError;
use crate::live;
use crate::options::QueryOptions;
use crate::run::Run;

/// Names a query of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct QueryId(pub(crate) u64);

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for QueryId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<QueryId, Self::Err> {
        text.parse().map(QueryId)
    }
}

/// A query that has been planned, and not been submitted.
#[must_use = "a query does nothing before it is submitted"]
pub struct Query {
    pub(crate) engine: Arc<Inner>,
    pub(crate) state: SessionState,
    pub(crate) logical: LogicalPlan,
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) text: String,
    pub(crate) options: QueryOptions,
    /// How long it took to plan it, which counts towards its deadline.
    pub(crate) planning: Duration,
    pub(crate) is_static: bool,
    /// Where its rows go instead of to a client: it is a part of a cluster's query.
    pub(crate) shelf: Option<Arc<Shelf>>,
    /// How large the values are that its plan has been given, bytes: literals, also those
    /// that have been computed for it, and rows.
    pub(crate) values: usize,
    /// These bytes, counted as long as it waits to be submitted.
    pub(crate) kept: Option<MemoryReservation>,
}

/// Values of a plan that are not counted: as large as a text of a few pages.
const VALUES_MIN: usize = 64 << 10;

/// The bytes of a plan's values.
pub(crate) fn value_bytes(plan: &Arc<dyn ExecutionPlan>) -> Result<usize, DataFusionError> {
    let mut bytes = 0;
    plan.apply(|node| {
        if let Some(rows) = rows(node) {
            let batches = rows.partitions().iter().flatten();
            bytes += batches
                .map(RecordBatch::get_array_memory_size)
                .sum::<usize>();
        }
        node.apply_expressions(&mut |expression| {
            expression.apply(|part| {
                let literal = part.downcast_ref::<Literal>();
                bytes += literal.map_or(0, |literal| literal.value().size());
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(bytes)
}

/// The rows that a plan has itself (`VALUES`).
fn rows(node: &Arc<dyn ExecutionPlan>) -> Option<&MemorySourceConfig> {
    let source = node.downcast_ref::<DataSourceExec>()?;
    source.data_source().downcast_ref()
}

impl Query {
    /// Its tier; by default that of the session.
    pub fn tier(mut self, tier: Tier) -> Query {
        self.options.tier = tier;
        self
    }

    /// Its share within its tier; by default as the session says.
    pub fn weight(mut self, weight: Weight) -> Query {
        self.options.weight = weight;
        self
    }

    /// How long it may take, the time for its plan included. What takes longer ends
    /// with [`SqlError::DeadlineExceeded`].
    pub fn deadline(mut self, deadline: Duration) -> Query {
        self.options.deadline = Some(deadline);
        self
    }

    /// Its priority does not decay, whatever the policy.
    pub fn static_priority(mut self) -> Query {
        self.is_static = true;
        self
    }

    /// What it is called in views and reports, instead of its text.
    pub fn name(mut self, name: impl Into<String>) -> Query {
        self.text = name.into();
        self
    }

    /// The result's columns.
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    /// The physical plan, as stock DataFusion made it and runs it too.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// The same query once more, planned anew: copies of a physical plan share the
    /// values of its scalar subqueries, also while both run.
    ///
    /// # Errors
    /// [`SqlError::Plan`], as when it was planned first.
    pub async fn again(&self) -> Result<Query, SqlError> {
        let plan = self.state.create_physical_plan(&self.logical).await;
        Ok(Query {
            engine: Arc::clone(&self.engine),
            state: self.state.clone(),
            logical: self.logical.clone(),
            plan: plan.map_err(SqlError::planning)?,
            text: self.text.clone(),
            options: self.options.clone(),
            planning: self.planning,
            is_static: self.is_static,
            shelf: None,
            values: self.values,
            kept: None,
        })
    }

    /// Counts the values of its plan towards the engine's memory until it is submitted or
    /// dropped. Control statements, which compute nothing, are not counted.
    ///
    /// # Errors
    /// [`SqlError::OutOfMemory`].
    pub(crate) fn counted(mut self) -> Result<Query, SqlError> {
        if self.values >= VALUES_MIN && !live::is_control(&self.logical) {
            let pool = self.engine.pool_for(self.options.tier);
            let kept = MemoryConsumer::new("planned query").register(&pool);
            kept.try_grow(self.values).map_err(SqlError::OutOfMemory)?;
            self.kept = Some(kept);
        }
        Ok(self)
    }

    /// Starts it. Waits for nothing: if the engine has no room, the query does the
    /// waiting.
    ///
    /// # Errors
    /// [`SqlError::Refused`] if too many queries wait, [`SqlError::ShutDown`] if the
    /// engine takes no more.
    pub fn submit(self) -> Result<RunningQuery, SqlError> {
        let schema = self.plan.schema();
        let run = Inner::submit(self)?;
        Ok(RunningQuery {
            run: Client(run),
            schema,
        })
    }

    /// Submits it and waits for all of its result.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn collect(self) -> Result<Vec<RecordBatch>, SqlError> {
        self.submit()?.collect().await
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("text", &self.text)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A query that has been submitted. Dropping it, or its stream, cancels the query.
#[must_use = "dropping it cancels the query"]
#[derive(Debug)]
pub struct RunningQuery {
    run: Client,
    schema: SchemaRef,
}

impl RunningQuery {
    /// What to cancel it by.
    pub fn id(&self) -> QueryId {
        self.run.0.id
    }

    /// The result's columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Ends it early, with [`SqlError::Cancelled`]. False if it has ended already.
    pub fn cancel(&self) -> bool {
        self.run.0.cancel(SqlError::Cancelled)
    }

    /// How much of it is done, 0 to 1.
    pub fn progress(&self) -> f64 {
        self.run.0.progress()
    }

    /// How it is.
    pub fn status(&self) -> QueryStatus {
        self.run.0.status()
    }

    /// The result, batch by batch, as it is made.
    pub fn stream(self) -> ResultStream {
        ResultStream {
            run: self.run,
            schema: self.schema,
        }
    }

    /// The same as a stream of DataFusion.
    pub fn into_datafusion(self) -> SendableRecordBatchStream {
        Box::pin(Translated(self.stream()))
    }

    /// Waits for all of the result.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn collect(self) -> Result<Vec<RecordBatch>, SqlError> {
        self.stream().try_collect().await
    }

    /// Waits for all of the result, and for what it took: time by the clock from the
    /// submission to the end, time by the workers, tasks.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn collect_with_report(self) -> Result<(Vec<RecordBatch>, Report), SqlError> {
        let run = Arc::clone(&self.run.0);
        let batches = self.collect().await?;
        Ok((batches, run.report().await?))
    }
}

/// A query's result. Dropping it before its end cancels the query.
#[derive(Debug)]
pub struct ResultStream {
    run: Client,
    schema: SchemaRef,
}

impl ResultStream {
    /// The result's columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// What to cancel the query by.
    pub fn id(&self) -> QueryId {
        self.run.0.id
    }

    /// How it is.
    pub fn status(&self) -> QueryStatus {
        self.run.0.status()
    }
}

impl Stream for ResultStream {
    type Item = Result<RecordBatch, SqlError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.run.0.results.poll_next(context)
    }
}

struct Translated(ResultStream);

impl Stream for Translated {
    type Item = datafusion::common::Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.poll_next_unpin(context);
        next.map(|next| next.map(|batch| batch.map_err(SqlError::into_datafusion)))
    }
}

impl RecordBatchStream for Translated {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

/// The reader of a result; the query ends when it is dropped.
#[derive(Debug)]
struct Client(Arc<Run>);

impl Drop for Client {
    fn drop(&mut self) {
        // What has succeeded is left to end in peace, and to be reported.
        if !self.0.results.desert() {
            self.0.cancel(SqlError::Cancelled);
        }
    }
}

/// Where a query is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryState {
    /// It waits for memory.
    WaitingForMemory,
    /// It waits for a slot.
    WaitingForSlot,
    /// Workers run it, or may.
    Running,
    /// It has ended.
    Ended,
}

impl fmt::Display for QueryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            QueryState::WaitingForMemory => "waiting for memory",
            QueryState::WaitingForSlot => "waiting for a slot",
            QueryState::Running => "running",
            QueryState::Ended => "ended",
        })
    }
}

/// How a query is.
#[derive(Clone, Debug, Serialize)]
pub struct QueryStatus {
    /// What to cancel it by.
    pub id: QueryId,
    /// Its text, or the name it was given.
    pub sql: String,
    /// Its tier.
    pub tier: Tier,
    /// Its weight.
    pub weight: Weight,
    /// Where it is.
    pub state: QueryState,
    /// How much of it is done, 0 to 1.
    pub progress: f64,
    /// When it was submitted.
    pub since: SystemTime,
    /// How long ago that was, ns.
    pub age_ns: u64,
    /// For how long workers were busy with it, ns, all together.
    pub ran_ns: u64,
    /// Which of its pipelines it has reached, from 1; 0 before the first.
    pub pipeline: usize,
    /// How many there are.
    pub pipelines: usize,
    /// What it holds in memory, bytes, and the most it has held.
    pub memory_bytes: usize,
    /// The most it has held in memory, bytes.
    pub memory_bytes_max: usize,
}
