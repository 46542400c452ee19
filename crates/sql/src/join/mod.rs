//! Hash joins whose build is cut into tasks.
//!
//! A `HashJoinExec` becomes two pipelines and a leaf-to-root operator: [`Gather`](gather)
//! and [`Enter`](build) make the tables, [`ProbeExec`] takes the join's place above its
//! probe side. The tables are shared: with a build side in one partition all streams
//! read the same one.
//!
//! Joined natively: inner, outer, semi and anti joins on keys that are no floating-point
//! numbers, with any filter. The rest (marks, null-aware anti joins, and right outer joins
//! whose order an operator relies on) stays with DataFusion, in one poll per build.
//!
//! | module | what |
//! | --- | --- |
//! | `table` | the hash table, and how many enter rows at a time |
//! | `grow` | arrays put together a part at a time |
//! | `gather`, `build` | the two pipelines |
//! | `recipe` | what a kind of join gives out |
//! | `filter` | what a finished build tells the scans of its probe side |
//! | `lookup`, `probe` | a batch being looked up, and the stream |

mod build;
mod filter;
mod gather;
mod grow;
mod lookup;
mod probe;
mod recipe;
mod table;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, Result};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::utils::build_join_schema;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr,
    PlanProperties,
};
use giveway_tasks::Pipeline;

use crate::exchange::Exchange;
use crate::progress::Stage;

use build::{Enter, Tables};
use filter::KeyFilter;
use gather::Gather;
use probe::Probe;
use recipe::Recipe;

/// Whether a join is run here, and not by DataFusion.
pub(crate) fn is_native(join: &HashJoinExec) -> Result<bool> {
    let is_kind = matches!(
        join.join_type(),
        JoinType::Inner
            | JoinType::Left
            | JoinType::Right
            | JoinType::Full
            | JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::RightSemi
            | JoinType::RightAnti
    );
    let is_ordered = matches!(join.join_type(), JoinType::Right | JoinType::Full)
        && join.properties().output_ordering().is_some();
    let is_supported = is_kind
        && !is_ordered
        && !join.null_aware
        && join.fetch().is_none()
        && *join.partition_mode() != PartitionMode::Auto;
    let schema = join.left().schema();
    for (key, _) in join.on() {
        let data_type = key.data_type(&schema)?;
        if data_type.is_floating() || data_type.is_nested() {
            return Ok(false);
        }
    }
    Ok(is_supported)
}

/// A join that is being put together.
pub(crate) struct NativeJoin {
    recipe: Arc<Recipe>,
    tables: Arc<Tables>,
    properties: Arc<PlanProperties>,
    is_shared: bool,
}

impl NativeJoin {
    /// A join as this one, with a build side in so many partitions.
    pub(crate) fn new(
        join: &HashJoinExec,
        partitions: usize,
        pool: &Arc<dyn MemoryPool>,
        batch_rows: usize,
    ) -> Result<NativeJoin> {
        let kind = *join.join_type();
        let (left, right) = (join.left().schema(), join.right().schema());
        let (_, mut columns) = build_join_schema(&left, &right, &kind);
        if let Some(projection) = &join.projection {
            columns = projection
                .iter()
                .map(|&index| columns[index].clone())
                .collect();
        }
        let (build_keys, probe_keys) = join.on().iter().cloned().unzip();
        let recipe = Recipe {
            kind,
            keys: probe_keys,
            filter: join.filter().cloned(),
            equality: join.null_equality(),
            columns,
            schema: join.schema(),
            batch_rows,
        };
        let tables = Tables::new(
            left,
            build_keys,
            join.null_equality(),
            Recipe::is_visited(kind),
            KeyFilter::of(join)?,
            partitions,
            pool,
        );
        Ok(NativeJoin {
            recipe: Arc::new(recipe),
            tables: Arc::new(tables),
            properties: Arc::clone(join.properties()),
            is_shared: *join.partition_mode() == PartitionMode::CollectLeft,
        })
    }

    /// The pipelines that make the tables of what is in the exchange.
    pub(crate) fn build(
        &self,
        exchange: Arc<Exchange>,
        stages: [Arc<Stage>; 2],
        task_time: Duration,
    ) -> (impl Pipeline + use<>, impl Pipeline + use<>) {
        let [gather, enter] = stages;
        (
            Gather::new(&self.tables, exchange, gather, task_time),
            Enter::new(&self.tables, enter, task_time),
        )
    }

    /// The operator above the probe side.
    pub(crate) fn probe(self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let streams = input.output_partitioning().partition_count();
        Arc::new(ProbeExec {
            recipe: self.recipe,
            tables: self.tables,
            properties: self.properties,
            is_shared: self.is_shared,
            streams: Arc::new(AtomicUsize::new(streams)),
            input,
        })
    }
}

/// Looks up its input in tables that are there.
struct ProbeExec {
    recipe: Arc<Recipe>,
    tables: Arc<Tables>,
    properties: Arc<PlanProperties>,
    /// One table for all streams.
    is_shared: bool,
    /// Streams that have not ended: P2 of `probe`.
    streams: Arc<AtomicUsize>,
    input: Arc<dyn ExecutionPlan>,
}

impl fmt::Debug for ProbeExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeExec")
            .field("recipe", &self.recipe)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for ProbeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProbeExec: {}", self.recipe.kind)
    }
}

impl ExecutionPlan for ProbeExec {
    fn name(&self) -> &str {
        "ProbeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![!matches!(
            self.recipe.kind,
            JoinType::Right | JoinType::Full
        )]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(ProbeExec {
            recipe: Arc::clone(&self.recipe),
            tables: Arc::clone(&self.tables),
            properties: Arc::clone(&self.properties),
            is_shared: self.is_shared,
            streams: Arc::clone(&self.streams),
            input: children.remove(0),
        }))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let filter = self
            .recipe
            .filter
            .as_ref()
            .map(|filter| filter.expression());
        for expression in self.recipe.keys.iter().chain(filter) {
            if f(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let streams = Arc::clone(&self.streams);
        // What a stream has visited is seen by the last one.
        let is_last: Box<dyn Fn() -> bool + Send> = match self.is_shared {
            true => Box::new(move || {
                let left = streams.fetch_sub(1, AcqRel);
                debug_assert!(left > 0, "P2: a stream ends after the last");
                left == 1
            }),
            false => Box::new(|| true),
        };
        let table = if self.is_shared { 0 } else { partition };
        Ok(Box::pin(Probe::new(
            &self.recipe,
            input,
            &self.tables,
            table,
            is_last,
        )))
    }
}
