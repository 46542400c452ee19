//! How many partitions a plan gets: by its largest table.
//!
//! Many partitions keep steps short: a window function holds its worker for a partition,
//! and the more partitions the smaller each of them. But each has its own streams, tables
//! and small batches. A query of some million rows takes 10 to 20 % longer in sixteen than
//! in four, and its steps are short in either.
//!
//! DataFusion decides on partitions in one rule of its optimizer, by an option. [`Sizing`]
//! is that rule with the option set for the plan at hand:
//!
//! ```text
//!   rows of the largest leaf / 2^20, between a quarter and all of the engine's number
//! ```
//!
//! Z1. All of a plan has the same number: the rule sees the whole plan, and no other rule
//!     looks at the option. (DataFusion's last rule checks that the sides of a join fit)
//!
//! Known weakness: a join may make many rows of small tables, and a predicate few of a
//! large one; both are known too late, since streams exist from the beginning.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

/// Rows for which a plan gets one more partition.
const PARTITION_ROWS: usize = 1 << 20;
/// Part of the engine's number that small plans have, two for each worker by default: one
/// may take longer than another.
const SMALL_PART: usize = 4;
/// The least that small plans have, unless the engine's number is less.
const LEAST: usize = 4;
/// The rule that divides plans into partitions.
const RULE: &str = "EnsureRequirements";

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// DataFusion's rules, with this one.
pub(crate) fn physical_rules() -> Vec<Rule> {
    let rules = PhysicalOptimizer::new().rules.into_iter();
    let sized = |rule: Rule| match rule.name() == RULE {
        true => Arc::new(Sizing(rule)) as Rule,
        false => rule,
    };
    rules.map(sized).collect()
}

/// A rule that is told how many partitions suit a plan.
#[derive(Debug)]
struct Sizing(Rule);

/// Partitions for so many rows, where `most` are wanted.
fn partitions(rows: usize, most: usize) -> usize {
    let wanted = rows.div_ceil(PARTITION_ROWS);
    wanted.max(most / SMALL_PART).max(LEAST).min(most)
}

impl PhysicalOptimizerRule for Sizing {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let most = config.execution.target_partitions;
        let fitting = rows(&plan).map_or(most, |rows| partitions(rows, most));
        if fitting == most {
            return self.0.optimize(plan, config);
        }
        let mut config = config.clone();
        config.execution.target_partitions = fitting;
        self.0.optimize(plan, &config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Rows of the largest leaf; none if they are not known of each.
fn rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let children = plan.children();
    if children.is_empty() {
        let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
        return statistics.ok()?.num_rows.get_value().copied();
    }
    children
        .into_iter()
        .map(rows)
        .try_fold(0, |most, rows| Some(most.max(rows?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::physical_plan::ExecutionPlanProperties;
    use datafusion::physical_plan::repartition::RepartitionExec;

    use crate::{Engine, Session};

    const SQL: &str = "SELECT number % 10, count(*) FROM numbers GROUP BY 1";

    async fn session(partitions: usize) -> Session {
        let engine = Engine::builder()
            .workers(1)
            .partitions(partitions)
            .build()
            .unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_from_iter([("number", numbers)]).unwrap();
        let session = engine.session();
        let registered = session.register_batches("numbers", batch.schema(), vec![batch]);
        registered.unwrap();
        session
    }

    /// Into how many partitions a plan splits its rows by hash.
    fn split(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
        match plan.is::<RepartitionExec>() {
            true => Some(plan.output_partitioning().partition_count()),
            false => plan.children().into_iter().find_map(split),
        }
    }

    #[tokio::test]
    async fn a_small_plan_has_a_quarter_of_the_engine_s_partitions() {
        for (most, partitions) in [(3, 3), (4, 4), (16, 4), (40, 10)] {
            let query = session(most).await.sql(SQL).await.unwrap();
            assert_eq!(split(query.plan()), Some(partitions), "of {most}");
        }
    }

    #[test]
    fn partitions_grow_with_rows_between_their_bounds() {
        const ROWS: usize = PARTITION_ROWS;
        for (rows, fitting) in [
            (0, 4),
            (4 * ROWS, 4),
            (4 * ROWS + 1, 5),
            (10 * ROWS, 10),
            (1000 * ROWS, 16),
        ] {
            assert_eq!(partitions(rows, 16), fitting, "{rows} rows");
        }
        assert_eq!(
            partitions(10 * ROWS, 3),
            3,
            "the engine's number is the most"
        );
    }
}
