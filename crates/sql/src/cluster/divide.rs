//! A divided plan becomes stages for workers, and the rest for the coordinator.
//!
//! datafusion-distributed puts a node between two stages; here each of them becomes a leaf
//! (`source`) that says which partitions of which tasks it reads:
//!
//! | node | partition `p` of consumer `c`, who has `n` partitions, reads |
//! | --- | --- |
//! | shuffle | `c n + p` of every task |
//! | broadcast | `p` of every task |
//! | coalesce (one consumer) | `p mod k` of task `p / k`, if tasks have `k` partitions each |
//!
//! Workers take turns: a stage's tasks are on different ones, and queries begin with
//! another one each time, so those with few tasks are spread, too.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    BroadcastExec, DistributedExec, DistributedLeafExec, NetworkBoundary, NetworkBoundaryExt,
    NetworkBroadcastExec, NetworkCoalesceExec, NetworkShuffleExec, Stage as TheirStage,
    display_plan_ascii,
};

use super::conduct::{Conductor, Errand, Stage};
use super::members::Cluster;
use super::message::{Piece, Pieces};
use super::source::{Before, RemoteSourceExec};

/// Whether a plan is for several machines.
pub(crate) fn is_divided(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<DistributedExec>() || plan.children().into_iter().any(is_divided)
}

/// The stages of a divided plan, as text.
pub(crate) fn explained(plan: &Arc<dyn ExecutionPlan>) -> String {
    display_plan_ascii(plan.as_ref(), false)
}

/// The coordinator's own part of a divided plan. Executing it runs the other parts.
///
/// # Errors
/// No worker answers.
pub(crate) fn own_part(
    plan: Arc<dyn ExecutionPlan>,
    cluster: &Cluster,
    errand: Errand,
) -> Result<Arc<dyn ExecutionPlan>> {
    let workers = cluster.next_workers();
    let mut division = Division {
        query: errand.query.clone(),
        cluster: cluster.clone(),
        workers: workers.map_err(|error| DataFusionError::External(Box::new(error)))?,
        stages: Vec::new(),
        conductor: Arc::new(Conductor::new(cluster.clone(), errand)),
    };
    let own = plan.transform_down(|node| {
        if !node.is::<DistributedExec>() {
            return Ok(Transformed::no(node));
        }
        let mut inner = Arc::clone(node.children()[0]);
        // One partition of all rows: whatever is above takes them as they are.
        if let Some(gathered) = inner.downcast_ref::<CoalescePartitionsExec>()
            && gathered.fetch().is_none()
        {
            inner = Arc::clone(gathered.input());
        }
        let own = division.consumer(&inner, Consumer { task: 0, tasks: 1 }, true)?;
        Ok(Transformed::new(own, true, TreeNodeRecursion::Jump))
    });
    let own = own.data()?;
    division.conductor.set_stages(division.stages);
    Ok(own)
}

/// Who reads.
#[derive(Clone, Copy)]
struct Consumer {
    task: usize,
    tasks: usize,
}

struct Division {
    query: String,
    cluster: Cluster,
    workers: Vec<String>,
    stages: Vec<Stage>,
    conductor: Arc<Conductor>,
}

impl Division {
    /// The plan of one task, with leaves for what other stages make.
    fn consumer(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        consumer: Consumer,
        is_own: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let specialized = Arc::clone(plan).transform_down(|node| {
            if let Some(boundary) = node.as_network_boundary() {
                let leaf = self.leaf(&node, boundary, consumer, is_own)?;
                return Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump));
            }
            if let Some(leaf) = node.downcast_ref::<DistributedLeafExec>() {
                let Some(variant) = leaf.variants().get(consumer.task) else {
                    return internal_err!("a scan has nothing for task {}", consumer.task);
                };
                let variant = Arc::clone(variant);
                return Ok(Transformed::new(variant, true, TreeNodeRecursion::Jump));
            }
            // What is left of a broadcast inside of a stage.
            Ok(match node.downcast_ref::<BroadcastExec>() {
                Some(broadcast) => Transformed::yes(Arc::clone(broadcast.input())),
                None => Transformed::no(node),
            })
        });
        specialized.data()
    }

    /// The leaf in the place of a node between two stages.
    fn leaf(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        boundary: &dyn NetworkBoundary,
        consumer: Consumer,
        is_own: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let stage = self.stage(boundary, consumer.tasks)?;
        let Stage { number, tasks, .. } = &self.stages[stage];
        let workers: Vec<String> = tasks.iter().map(|(worker, _)| worker.clone()).collect();
        let (tasks, partitions) = (workers.len(), node.output_partitioning().partition_count());
        let of_every_task = |partition: usize| -> Vec<(usize, usize)> {
            (0..tasks).map(|task| (task, partition)).collect()
        };
        let pieces = |partition: usize| -> Result<Vec<(usize, usize)>> {
            if node.is::<NetworkShuffleExec>() {
                Ok(of_every_task(consumer.task * partitions + partition))
            } else if node.is::<NetworkBroadcastExec>() {
                Ok(of_every_task(partition))
            } else if node.is::<NetworkCoalesceExec>() && consumer.tasks == 1 {
                let of_a_task = (partitions / tasks).max(1);
                Ok(vec![(partition / of_a_task, partition % of_a_task)])
            } else {
                internal_err!("'{}' between two stages", node.name())
            }
        };
        let piece = |(task, partition): (usize, usize)| Piece {
            task: task as u32,
            partition: partition as u32,
        };
        let partitions = (0..partitions)
            .map(|partition| {
                let pieces = pieces(partition)?.into_iter().map(piece).collect();
                Ok(Pieces { pieces })
            })
            .collect::<Result<Vec<_>>>()?;
        let before = is_own.then(|| Arc::clone(&self.conductor) as Arc<dyn Before>);
        Ok(Arc::new(RemoteSourceExec::new(
            (self.query.clone(), *number),
            workers,
            partitions,
            Arc::clone(node.properties()),
            self.cluster.peers().clone(),
            before,
        )?))
    }

    /// The stage below such a node, by its place among all.
    fn stage(&mut self, boundary: &dyn NetworkBoundary, consumers: usize) -> Result<usize> {
        let number = boundary.input_stage().num() as u32;
        // Each task of a consumer asks for it.
        if let Some(place) = (self.stages.iter()).position(|stage| stage.number == number) {
            return Ok(place);
        }
        let TheirStage::Local(stage) = boundary.input_stage() else {
            return internal_err!("stage {number} has been sent before");
        };
        let (plan, readers) = match stage.plan.downcast_ref::<BroadcastExec>() {
            Some(broadcast) => (Arc::clone(broadcast.input()), consumers),
            None => (Arc::clone(&stage.plan), 1),
        };
        let mut tasks = Vec::with_capacity(stage.tasks);
        for task in 0..stage.tasks {
            let consumer = Consumer {
                task,
                tasks: stage.tasks,
            };
            let plan = self.consumer(&plan, consumer, false)?;
            let turn = match stage.tasks {
                // Not all on the same one.
                1 => number as usize,
                _ => task,
            };
            tasks.push((self.workers[turn % self.workers.len()].clone(), plan));
        }
        let below = below(&plan);
        let place = |number: &u32| self.stages.iter().position(|stage| stage.number == *number);
        let stage = Stage {
            number,
            below: below.iter().filter_map(place).collect(),
            tasks,
            readers: readers as u32,
        };
        self.stages.push(stage);
        Ok(self.stages.len() - 1)
    }
}

/// The stages that a plan reads.
fn below(plan: &Arc<dyn ExecutionPlan>) -> Vec<u32> {
    match plan.as_network_boundary() {
        Some(boundary) => vec![boundary.input_stage().num() as u32],
        None => plan.children().into_iter().flat_map(below).collect(),
    }
}
