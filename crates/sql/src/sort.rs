//! Sorting in steps: each batch is sorted when it comes, and the sorted runs are merged
//! batch by batch.
//!
//! Stock DataFusion gathers all of the input and then sorts all of it in one poll.
//! Here the longest step is a batch: sorting one, or merging one out of all runs. The
//! merge is DataFusion's own, over runs that give way.
//!
//! Sorts with a limit stay with DataFusion: they keep no more than that, and work on
//! each batch as it comes.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::sorts::sort::{SortExec, sort_batch};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
};
use futures_util::{Stream, StreamExt, stream};

use crate::task_time::yielding;

/// A sort without a limit.
#[derive(Debug)]
pub(crate) struct RunSortExec {
    input: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    properties: Arc<PlanProperties>,
}

impl RunSortExec {
    /// What takes the place of a sort above this input; `None` if it has a limit.
    pub(crate) fn replacing(sort: &SortExec, input: Arc<dyn ExecutionPlan>) -> Option<RunSortExec> {
        sort.fetch().is_none().then(|| RunSortExec {
            input,
            order: sort.expr().clone(),
            properties: Arc::clone(sort.properties()),
        })
    }
}

impl DisplayAs for RunSortExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunSortExec: {}", self.order)
    }
}

impl ExecutionPlan for RunSortExec {
    fn name(&self) -> &str {
        "RunSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(RunSortExec {
            input: children.remove(0),
            order: self.order.clone(),
            properties: Arc::clone(&self.properties),
        }))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for sorted in self.order.iter() {
            if f(&sorted.expr)? == TreeNodeRecursion::Stop {
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
        let memory = |name: &str| MemoryConsumer::new(name).register(context.memory_pool());
        Ok(Box::pin(RunSort {
            state: State::Sorting(self.input.execute(partition, Arc::clone(&context))?),
            runs: Vec::new(),
            schema: self.schema(),
            order: self.order.clone(),
            batch_rows: context.session_config().batch_size(),
            memory: memory("sort"),
            merging: Some(memory("merge")),
            partition,
        }))
    }
}

struct RunSort {
    state: State,
    runs: Vec<RecordBatch>,
    schema: SchemaRef,
    order: LexOrdering,
    batch_rows: usize,
    /// The runs'.
    memory: MemoryReservation,
    merging: Option<MemoryReservation>,
    partition: usize,
}

enum State {
    Sorting(SendableRecordBatchStream),
    Merging(SendableRecordBatchStream),
}

impl RunSort {
    fn sort(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let run = sort_batch(batch, &self.order, None)?;
        self.memory.try_grow(get_record_batch_memory_size(&run))?;
        self.runs.push(run);
        Ok(())
    }

    fn merge(&mut self) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(&self.schema);
        let runs = std::mem::take(&mut self.runs);
        let runs = runs.into_iter().map(|run| {
            let run = stream::iter([Ok(run)]);
            yielding(Box::pin(RecordBatchStreamAdapter::new(
                Arc::clone(&schema),
                run,
            )))
        });
        let metrics = BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), self.partition);
        StreamingMergeBuilder::new()
            .with_streams(runs.collect())
            .with_schema(Arc::clone(&self.schema))
            .with_expressions(&self.order)
            .with_metrics(metrics)
            .with_batch_size(self.batch_rows)
            .with_reservation(self.merging.take().expect("merged once"))
            .build()
    }
}

impl Stream for RunSort {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let next = match &mut self.state {
                State::Sorting(input) => ready!(input.poll_next_unpin(context)),
                State::Merging(merged) => return merged.poll_next_unpin(context),
            };
            match next {
                Some(batch) => self.sort(&batch?)?,
                None if self.runs.is_empty() => return Poll::Ready(None),
                None => self.state = State::Merging(self.merge()?),
            }
        }
    }
}

impl RecordBatchStream for RunSort {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
