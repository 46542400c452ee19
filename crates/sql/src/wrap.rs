//! A plan node that wraps the streams of its input, and otherwise has the input's
//! properties.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
};

/// What is done to a stream.
type Wrap = dyn Fn(SendableRecordBatchStream) -> SendableRecordBatchStream + Send + Sync;

/// Wraps the streams of its input, under its input's name.
struct WrapExec {
    what: &'static str,
    input: Arc<dyn ExecutionPlan>,
    wrap: Arc<Wrap>,
}

/// Wraps a node; `what` is how that is called where plans are shown.
pub(crate) fn wrapped(
    what: &'static str,
    input: Arc<dyn ExecutionPlan>,
    wrap: impl Fn(SendableRecordBatchStream) -> SendableRecordBatchStream + Send + Sync + 'static,
) -> Arc<dyn ExecutionPlan> {
    Arc::new(WrapExec {
        what,
        input,
        wrap: Arc::new(wrap),
    })
}

/// Whether a node is wrapped so.
pub(crate) fn is_wrapped(plan: &Arc<dyn ExecutionPlan>, what: &str) -> bool {
    (plan.downcast_ref::<WrapExec>()).is_some_and(|wrap| wrap.what == what)
}

impl fmt::Debug for WrapExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrapExec")
            .field("what", &self.what)
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for WrapExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl ExecutionPlan for WrapExec {
    fn name(&self) -> &str {
        self.input.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(WrapExec {
            what: self.what,
            input: children.remove(0),
            wrap: Arc::clone(&self.wrap),
        }))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok((self.wrap)(self.input.execute(partition, context)?))
    }
}
