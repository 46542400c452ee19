//! What a finished build tells the scans of its probe side: within which bounds its keys
//! lie. A scan skips row groups and pages that are outside of them.
//!
//! ```text
//!   enter: units ──▶ least and greatest of each key, together ──▶ finalized: published
//!                                                                      │
//!   probe pipeline, later:  scan opens a morsel, looks at the filter ◀─┘
//! ```
//!
//! DataFusion's optimizer puts the filter there: a hash join makes a
//! `DynamicFilterPhysicalExpr`, true at first, and pushes it into the plan of its probe
//! side. What DataFusion does when it runs such a join, we do not: its streams wait for
//! each other's builds, which streams that share workers must not. Here all builds have
//! ended before the probe begins, so nobody waits. Joins that are not native publish
//! nothing (`Inner::submit` has that switched off), and their filters stay true.
//!
//! F1. A filter is published once all rows have been entered, and lets every row through
//!     before. The pipelines that read it come later. (asserted in `publish`)
//! F2. A probe row that a filter drops finds no partner, and a join drops it, too: only
//!     kinds that need a partner have a filter, and only where NULL equals nothing.
//!     (not asserted: `of` asks for both)
//! F3. Filters of a plan's copies are one. A plan is run once; `Query::again` plans anew.
//!     (not asserted: `submit` takes the query)
//!
//! Known weakness: bounds say nothing of keys that are spread over all values. DataFusion
//! also looks keys up, if there are few, but can skip whole row groups only for those in
//! a list of at most twenty by default.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result, ScalarValue};
use datafusion::functions_aggregate::min_max::{MaxAccumulator, MinAccumulator};
use datafusion::logical_expr::{Accumulator, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::recipe::Recipe;

/// The filter of a join, and what is known of its keys so far.
#[derive(Debug)]
pub(super) struct KeyFilter {
    filter: Arc<DynamicFilterPhysicalExpr>,
    /// The probe side's keys that have bounds, by their place among the keys.
    keys: Vec<(usize, Arc<dyn PhysicalExpr>)>,
    bounds: Mutex<Vec<Bounds>>,
}

/// The least and the greatest value of a key; none if there was no row, or only NULL.
#[derive(Debug)]
struct Bounds {
    least: MinAccumulator,
    greatest: MaxAccumulator,
}

impl KeyFilter {
    /// The filter of a join, if the optimizer has given it one that somebody reads.
    pub(super) fn of(join: &HashJoinExec) -> Result<Option<KeyFilter>> {
        let filter = (join.dynamic_expressions_produced().into_iter())
            .find_map(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok());
        let Some(filter) = filter else {
            return Ok(None);
        };
        // F2.
        if !Recipe::needs_partner(*join.join_type())
            || join.null_equality() != NullEquality::NullEqualsNothing
            || !reads(join.right(), &filter)?
        {
            return Ok(None);
        }
        let schema = join.left().schema();
        let mut keys = Vec::new();
        let mut bounds = Vec::new();
        for (place, (build, probe)) in join.on().iter().enumerate() {
            let data_type = build.data_type(&schema)?;
            if has_bounds(&data_type) {
                keys.push((place, Arc::clone(probe)));
                bounds.push(Bounds::new(&data_type)?);
            }
        }
        Ok((!keys.is_empty()).then(|| KeyFilter {
            filter,
            keys,
            bounds: Mutex::new(bounds),
        }))
    }

    /// Rows of a table have been entered.
    pub(super) fn see(&self, keys: &[ArrayRef], rows: &Range<usize>) -> Result<()> {
        for (index, &(place, _)) in self.keys.iter().enumerate() {
            let key = keys[place].slice(rows.start, rows.len());
            let mut bounds = Bounds::new(key.data_type())?;
            bounds.see(&key)?;
            crate::lock(&self.bounds)[index].join(&mut bounds)?;
        }
        Ok(())
    }

    /// All rows have been entered: F1.
    pub(super) fn publish(&self) -> Result<()> {
        debug_assert!(
            self.filter
                .current()
                .is_ok_and(|filter| filter.to_string() == lit(true).to_string()),
            "F1: published twice"
        );
        let mut bounds = crate::lock(&self.bounds);
        let mut filter: Option<Arc<dyn PhysicalExpr>> = None;
        for ((_, key), bounds) in self.keys.iter().zip(bounds.iter_mut()) {
            let within = bounds.hold(key)?;
            filter = Some(match filter {
                Some(others) => both(others, Operator::And, within),
                None => within,
            });
        }
        if let Some(filter) = filter {
            self.filter.update(filter)?;
        }
        self.filter.mark_complete();
        Ok(())
    }
}

impl Bounds {
    fn new(data_type: &DataType) -> Result<Bounds> {
        Ok(Bounds {
            least: MinAccumulator::try_new(data_type)?,
            greatest: MaxAccumulator::try_new(data_type)?,
        })
    }

    fn see(&mut self, values: &ArrayRef) -> Result<()> {
        self.least.update_batch(std::slice::from_ref(values))?;
        self.greatest.update_batch(std::slice::from_ref(values))
    }

    fn join(&mut self, other: &mut Bounds) -> Result<()> {
        self.least.merge_batch(&arrays(other.least.state()?)?)?;
        self.greatest.merge_batch(&arrays(other.greatest.state()?)?)
    }

    /// That a key lies within. No key does if there is none: NULL equals nothing.
    fn hold(&mut self, key: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let (least, greatest) = (self.least.evaluate()?, self.greatest.evaluate()?);
        if least.is_null() || greatest.is_null() {
            return Ok(lit(false));
        }
        Ok(both(
            both(Arc::clone(key), Operator::GtEq, lit(least)),
            Operator::And,
            both(Arc::clone(key), Operator::LtEq, lit(greatest)),
        ))
    }
}

fn arrays(values: Vec<ScalarValue>) -> Result<Vec<ArrayRef>> {
    values.iter().map(ScalarValue::to_array).collect()
}

fn both(
    left: Arc<dyn PhysicalExpr>,
    operator: Operator,
    right: Arc<dyn PhysicalExpr>,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, operator, right))
}

/// Types that files have statistics of, whose order is that of `=`.
fn has_bounds(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_temporal()
        || matches!(
            data_type,
            DataType::Decimal128(..) | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
}

/// Whether something in a plan reads a filter.
fn reads(plan: &Arc<dyn ExecutionPlan>, filter: &DynamicFilterPhysicalExpr) -> Result<bool> {
    let id = filter.expression_id();
    plan.exists(|node| {
        let mut is_read = false;
        node.apply_expressions(&mut |root| {
            is_read |= root.exists(|part| Ok(part.expression_id() == id))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(is_read)
    })
}
