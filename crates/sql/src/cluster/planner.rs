//! Plans for several machines: DataFusion's, cut into stages by datafusion-distributed.
//!
//! ```text
//!  logical plan ─▶ DataFusion's plan ─▶ can it travel? ─▶ stages, tasks, what goes between
//!                                            │ no
//!                                            └─▶ the coordinator runs it alone
//! ```
//!
//! A plan travels if all its leaves are files that every machine can read, none of them
//! compressed as a whole, if it writes nothing, and if it can be read as a message:
//! expressions inside of expressions are messages inside of messages, of which there is a
//! limit. A stage has as many tasks as its files have parts, and no more than there are
//! workers. A plan whose stages have one task each stays with the coordinator.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedConfig, DistributedExt,
    DistributedLeafExec, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
    SessionStateBuilderExt, WorkerResolver,
};
use url::Url;

use super::members::Cluster;
use super::source::is_readable;

/// Has a session's plans made for a cluster.
pub(crate) fn planning_for(
    cluster: &Cluster,
    config: SessionConfig,
    build: impl FnOnce(SessionConfig) -> SessionStateBuilder,
) -> SessionStateBuilder {
    let sizes = cluster.clone();
    let mut options = DistributedConfig::default();
    // Nobody would see them.
    options.collect_metrics = false;
    // Every task has all inputs of a union, as every stream has.
    options.children_isolator_unions = false;
    let config = config
        .with_distributed_option_extension(options)
        .with_distributed_worker_resolver(Answering(cluster.clone()))
        .with_distributed_desired_task_count_handler(move |event: DesiredTaskCountEvent<'_>| {
            desired(&event, sizes.part_bytes())
        })
        .with_distributed_scale_up_leaf_node_handler(|event: ScaleUpLeafNodeEvent<'_>| {
            divided(&event).transpose()
        });
    let mut state = build(config).with_query_planner(Arc::new(Handed));
    state = state.with_distributed_planner();
    let dividing = state.query_planner().take();
    let dividing = dividing.expect("it has just been set");
    state.with_query_planner(Arc::new(ClusterPlanner {
        cluster: cluster.clone(),
        dividing,
    }))
}

tokio::task_local! {
    /// The plan that is to be divided.
    static HANDED: Arc<dyn ExecutionPlan>;
}

/// Plans by DataFusion's planner, and divides what can travel.
#[derive(Debug)]
struct ClusterPlanner {
    cluster: Cluster,
    dividing: Arc<dyn QueryPlanner + Send + Sync>,
}

#[async_trait]
impl QueryPlanner for ClusterPlanner {
    async fn create_physical_plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::default();
        let plan = planner.create_physical_plan(logical, session).await?;
        if !travels(&plan) || !is_large(&plan, self.cluster.part_bytes()) || !is_readable(&plan) {
            return Ok(plan);
        }
        if self.cluster.answering().is_empty() {
            let error = self.cluster.none_answers();
            return Err(DataFusionError::External(Box::new(error)));
        }
        let divided = self.dividing.create_physical_plan(logical, session);
        HANDED.scope(plan, divided).await
    }
}

/// Where datafusion-distributed takes its plans from.
#[derive(Debug)]
struct Handed;

#[async_trait]
impl QueryPlanner for Handed {
    async fn create_physical_plan(
        &self,
        _: &LogicalPlan,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let handed = HANDED.try_with(Arc::clone);
        handed.map_err(|error| DataFusionError::Internal(error.to_string()))
    }
}

/// Whether other machines can run parts of a plan.
fn travels(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is::<DataSinkExec>() || plan.is::<AnalyzeExec>() || plan.is::<RecursiveQueryExec>() {
        return false;
    }
    let children = plan.children();
    match children.is_empty() {
        true => match files(plan) {
            // Plans as bytes do not say how files are compressed.
            Some(files) => !files.file_compression_type.is_compressed(),
            None => plan.is::<EmptyExec>() || plan.is::<PlaceholderRowExec>(),
        },
        false => children.into_iter().all(travels),
    }
}

/// Whether any of its leaves is for more than one worker.
fn is_large(plan: &Arc<dyn ExecutionPlan>, part_bytes: u64) -> bool {
    let children = plan.children();
    match children.is_empty() {
        true => files(plan).is_some_and(|files| bytes(files) > part_bytes),
        false => children
            .into_iter()
            .any(|child| is_large(child, part_bytes)),
    }
}

fn files(plan: &Arc<dyn ExecutionPlan>) -> Option<&FileScanConfig> {
    let scan = plan.downcast_ref::<DataSourceExec>()?;
    scan.data_source().downcast_ref()
}

fn bytes(files: &FileScanConfig) -> u64 {
    let files = files.file_groups.iter().flat_map(FileGroup::iter);
    files.map(|file| file.effective_size()).sum()
}

/// How many tasks a scan is for.
fn desired(
    event: &DesiredTaskCountEvent<'_>,
    part_bytes: u64,
) -> Option<Result<DesiredTaskCountEventResponse>> {
    let tasks = bytes(files(event.plan)?).div_ceil(part_bytes).max(1);
    Some(Ok(DesiredTaskCountEventResponse::desired(tasks as usize)))
}

/// A scan as one for each task. Unlike datafusion-distributed's own, it has something for
/// every task, if only no file, where there are fewer files than tasks and none can be
/// divided.
fn divided(event: &ScaleUpLeafNodeEvent<'_>) -> Result<Option<ScaleUpLeafNodeEventResponse>> {
    let Some(scan) = files(event.plan) else {
        return Ok(None);
    };
    let partitions = event.plan.output_partitioning().partition_count();
    let order = scan.output_ordering.first().cloned();
    // The source knows what cannot be cut: text with newlines inside of quotes.
    let cut = (scan.file_source()).repartitioned(partitions * event.task_count, 0, order, scan)?;
    let groups = cut.map_or_else(|| scan.file_groups.clone(), |scan| scan.file_groups);
    let each = groups.len().div_ceil(event.task_count).max(1);
    let scans = (0..event.task_count).map(|task| {
        let mut scan = scan.clone();
        let groups = groups.iter().skip(task).step_by(event.task_count).cloned();
        scan.file_groups = groups.collect();
        scan.file_groups.resize(each, FileGroup::new(Vec::new()));
        DataSourceExec::from_data_source(scan) as Arc<dyn ExecutionPlan>
    });
    let leaf = DistributedLeafExec::try_new(Arc::clone(event.plan), scans)?;
    Ok(Some(ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// The workers, for datafusion-distributed: it counts them.
struct Answering(Cluster);

impl WorkerResolver for Answering {
    fn get_urls(&self) -> Result<Vec<Url>> {
        let url = |address: &String| {
            Url::parse(&format!("http://{address}"))
                .map_err(|error| DataFusionError::Configuration(format!("{address}: {error}")))
        };
        self.0.answering().iter().map(url).collect()
    }
}
