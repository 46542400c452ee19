//! A physical plan becomes pipelines: it is cut wherever DataFusion would put a
//! channel between two tasks.
//!
//! ```text
//!        Sort                      3: Source ▶ Sort ▶ result
//!          │                              ▲
//!   CoalescePartitions                 exchange
//!          │                              ▲
//!      Aggregate (final)   ──▶     2: Source ▶ Aggregate (final)
//!          │                              ▲
//!   Repartition by hash                exchange
//!          │                              ▲
//!   Aggregate (partial)            1: scan ▶ Aggregate (partial)
//!          │
//!        scan
//! ```
//!
//! The plan is cut when the query is submitted, and not by a rule of the optimizer: the
//! same plan runs on stock DataFusion. Pipelines come in the order in which they have to
//! run: whatever a cut reads has been made before; the build side of a join before the
//! probe side; scalar subqueries before the plan that uses their values.
//!
//! C1. Nothing that is left in a plan spawns tasks, except for the nodes that `spawns`
//!     names; these run as DataFusion would run them, on a thread of the query's own
//!     (`side_thread`). (asserted in `push`, of the nodes that this module replaces)
//! C2. Every leaf yields (`task_time`), and so does every operator that makes many
//!     batches of one. (asserted in `push`, of leaves)
//! C3. A node whose children are executed more than once is not cut below: an exchange
//!     is read once. C2 holds there as well, or such a query could not be stopped.
//!     (asserted in `exchange`: X1)

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::{ScalarSubqueryExec, ScalarSubqueryLink};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, displayable,
};
use giveway_tasks::{Pipeline, Query};

use crate::cluster::{self, Shelf};
use crate::exchange::{Exchange, ExchangeSink, ExchangeSource, Route, Setting};
use crate::join::{self, NativeJoin};
use crate::partition_stream::{Sink, StreamPipeline, StreamSink, Surroundings};
use crate::parts::PartedExec;
use crate::progress::{Board, Gauge, Stage};
use crate::read::counted;
use crate::results::Results;
use crate::scan::{self, in_morsels};
use crate::slice::slicing;
use crate::sort::RunSortExec;
use crate::table::MorselSourceExec;
use crate::task_time::yielding;
use crate::wrap::{is_wrapped, wrapped};

/// How a node that yields is called where plans are shown.
const YIELDING: &str = "YieldingExec";

/// A query made of a plan.
pub(crate) struct Cut {
    pub(crate) query: Query,
    pub(crate) stages: Vec<Arc<Stage>>,
}

/// Cuts a plan whose result goes there: to a shelf, if there is one, or to the client.
pub(crate) fn cut(
    plan: Arc<dyn ExecutionPlan>,
    query: Query,
    results: &Arc<Results>,
    shelf: Option<&Shelf>,
    surroundings: &Surroundings,
    board: &Arc<Board>,
) -> Result<Cut> {
    let mut cutter = Cutter {
        cut: Cut {
            query,
            stages: Vec::new(),
        },
        surroundings,
        board,
        texts: None,
    };
    match shelf {
        Some(shelf) => cutter.shelve(plan, shelf, results)?,
        None => {
            let plan = cutter.descend(plan)?;
            cutter.push(plan, Arc::new(ResultSink(Arc::clone(results))));
        }
    }
    Ok(cutter.cut)
}

/// The pipelines of a plan, in the order in which they would run, as text.
pub(crate) fn explain(plan: Arc<dyn ExecutionPlan>, surroundings: &Surroundings) -> Result<String> {
    let mut cutter = Cutter {
        cut: Cut {
            query: Query::new(""),
            stages: Vec::new(),
        },
        surroundings,
        board: &Arc::default(),
        texts: Some(String::new()),
    };
    let plan = cutter.descend(plan)?;
    cutter.say(&displayable(plan.as_ref()).indent(false));
    Ok(cutter.texts.unwrap_or_default())
}

struct Cutter<'a> {
    cut: Cut,
    surroundings: &'a Surroundings,
    board: &'a Arc<Board>,
    /// What the pipelines are, for [`explain`].
    texts: Option<String>,
}

impl Cutter<'_> {
    /// Makes pipelines of all that lies below cuts; returns what is above.
    fn descend(&mut self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if is_whole(&plan) {
            return self.whole(plan);
        }
        if let Some(node) = plan.downcast_ref::<ScalarSubqueryExec>() {
            for link in node.subqueries() {
                self.subquery(node, link)?;
            }
            return self.descend(Arc::clone(node.input()));
        }
        if let Some(node) = plan.downcast_ref::<RepartitionExec>() {
            let partitions = node.partitioning().partition_count();
            return self.exchange(&plan, node.input(), route(node), partitions);
        }
        if let Some(node) = plan.downcast_ref::<CoalescePartitionsExec>()
            && node.input().output_partitioning().partition_count() > 1
        {
            let source = self.exchange(&plan, node.input(), Route::Shared, 1)?;
            // Streams that run at the same time may bring more than is wanted.
            return Ok(match node.fetch() {
                Some(fetch) => Arc::new(GlobalLimitExec::new(source, 0, Some(fetch))),
                None => source,
            });
        }
        if let Some(node) = plan.downcast_ref::<SortPreservingMergeExec>()
            && node.input().output_partitioning().partition_count() > 1
        {
            let input = node.input();
            let partitions = input.output_partitioning().partition_count();
            let source = self.exchange(input, input, Route::Straight, partitions)?;
            return replace_children_if_necessary(Arc::clone(&plan), vec![source]);
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>()
            && join::is_native(join)?
        {
            return self.join(join);
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            let input = self.descend(Arc::clone(sort.input()))?;
            return match RunSortExec::replacing(sort, Arc::clone(&input)) {
                Some(native) => Ok(Arc::new(native)),
                None => replace_children_if_necessary(plan, vec![input]),
            };
        }
        let children = plan.children();
        if children.is_empty() {
            return Ok(self.leaf(plan));
        }
        let gathers = gathers(&plan);
        let children = (children.into_iter())
            .map(|child| match gathers && cluster::is_remote(child) {
                true => self.gathered(child),
                false => self.descend(Arc::clone(child)),
            })
            .collect::<Result<Vec<_>>>()?;
        let plan = self.with_slices(replace_children_if_necessary(plan, children)?)?;
        if let Some(parted) = PartedExec::replacing(&plan) {
            return Ok(Arc::new(parted));
        }
        // C2.
        Ok(match multiplies(&plan) {
            true => with_yields(plan),
            false => plan,
        })
    }

    /// C2.
    fn leaf(&self, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        if yields(&plan) {
            return plan;
        }
        let context = &self.surroundings.context;
        let plan = counted(plan, context.memory_pool());
        with_yields(in_morsels(plan, context))
    }

    /// A nested-loop join that is given its right side in slices: C2.
    fn with_slices(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if !plan.is::<NestedLoopJoinExec>() {
            return Ok(plan);
        }
        let mut children: Vec<_> = plan.children().into_iter().map(Arc::clone).collect();
        let right = children.pop().expect("a join has two sides");
        let task_time = self.surroundings.task_time;
        let slices = wrapped("SlicingExec", right, move |input| slicing(input, task_time));
        children.push(slices);
        replace_children_if_necessary(plan, children)
    }

    /// A node that is not cut below. What it spawns is in no worker's task, and what a
    /// recursion does is; either may go on for ever, and has to be stopped then: C2.
    fn whole(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let is_recursive = plan.is::<RecursiveQueryExec>();
        let plan = plan.transform_up(|node| {
            Ok(match node.children().is_empty() {
                true if is_recursive && yields(&node) => Transformed::no(node),
                true => Transformed::yes(with_yields(node)),
                false if multiplies(&node) || node.is::<RecursiveQueryExec>() => {
                    Transformed::yes(with_yields(self.with_slices(node)?))
                }
                false => Transformed::no(node),
            })
        });
        plan.data()
    }

    /// A pipeline that ends in an exchange, and the leaf that takes the place of `node`.
    fn exchange(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        input: &Arc<dyn ExecutionPlan>,
        route: Route,
        partitions: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let properties = Arc::clone(node.properties());
        let fetch = match route {
            Route::Straight => None,
            Route::Shared | Route::Split(_) => node.fetch(),
        };
        let rows = rows_expected(node);
        let input = self.descend(Arc::clone(input))?;
        let exchange = self.store(input, route, partitions, fetch, rows);
        Ok(Arc::new(ExchangeSource::new(exchange, properties)))
    }

    /// The last pipeline of a part: its exchange is read by other workers.
    fn shelve(
        &mut self,
        plan: Arc<dyn ExecutionPlan>,
        shelf: &Shelf,
        results: &Arc<Results>,
    ) -> Result<()> {
        let (input, route) = match plan.downcast_ref::<RepartitionExec>() {
            Some(node) => (Arc::clone(node.input()), route(node)),
            None => (Arc::clone(&plan), Route::Straight),
        };
        let partitions = plan.output_partitioning().partition_count();
        let rows = rows_expected(&plan);
        let input = self.descend(input)?;
        let exchange = self.new_exchange(&input, route, partitions, None, rows);
        self.push(input, shelf.sink(exchange, results));
        Ok(())
    }

    /// A pipeline that ends in an exchange.
    fn store(
        &mut self,
        input: Arc<dyn ExecutionPlan>,
        route: Route,
        partitions: usize,
        fetch: Option<usize>,
        rows_expected: f64,
    ) -> Arc<Exchange> {
        let exchange = self.new_exchange(&input, route, partitions, fetch, rows_expected);
        self.push(input, Arc::new(ExchangeSink(Arc::clone(&exchange))));
        exchange
    }

    /// What other workers have made, in an exchange of this one.
    fn gathered(&mut self, leaf: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = leaf.output_partitioning().partition_count();
        self.exchange(leaf, leaf, Route::Straight, partitions)
    }

    /// An exchange at the end of the next pipeline.
    fn new_exchange(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        route: Route,
        partitions: usize,
        fetch: Option<usize>,
        rows_expected: f64,
    ) -> Arc<Exchange> {
        let streams = input.output_partitioning().partition_count();
        let setting = Setting {
            pool: self.surroundings.context.memory_pool(),
            batch_rows: self.batch_rows(),
            pipeline: self.cut.stages.len() + 1,
        };
        let exchange = Exchange::new(
            input.schema(),
            route,
            streams,
            partitions,
            fetch,
            rows_expected,
            &setting,
        );
        Arc::new(exchange)
    }

    fn batch_rows(&self) -> usize {
        self.surroundings.context.session_config().batch_size()
    }

    /// The pipelines of a join's build side, and what takes the join's place.
    fn join(&mut self, join: &HashJoinExec) -> Result<Arc<dyn ExecutionPlan>> {
        let left = self.descend(Arc::clone(join.left()))?;
        let partitions = left.output_partitioning().partition_count();
        let rows = rows_expected(join.left());
        let exchange = match left.downcast_ref::<ExchangeSource>() {
            // It has just been made, for this.
            Some(source) if source.exchange().stored_partitions() == partitions => {
                Arc::clone(source.exchange())
            }
            _ => self.store(left, Route::Straight, partitions, None, rows),
        };
        let pool = self.surroundings.context.memory_pool();
        let native = NativeJoin::new(join, partitions, pool, self.batch_rows())?;
        let stage = |name: &str| {
            let label = format!("HashJoin > {name}");
            Arc::new(Stage::new(label, rows, 1, Vec::new(), self.board))
        };
        let stages = [stage("gather"), stage("enter")];
        let rows_of = exchange.pipeline();
        self.say(&format_args!(
            "HashJoin: gather the rows of pipeline {rows_of}"
        ));
        self.cut.stages.push(Arc::clone(&stages[0]));
        self.say(&"HashJoin: enter them into hash tables");
        self.cut.stages.push(Arc::clone(&stages[1]));
        let (gather, enter) = native.build(exchange, stages, self.surroundings.task_time);
        self.add(gather);
        self.add(enter);
        let right = self.descend(Arc::clone(join.right()))?;
        Ok(native.probe(right))
    }

    /// Describes the pipeline that comes next.
    fn say(&mut self, what: &dyn fmt::Display) {
        let number = self.cut.stages.len() + 1;
        if let Some(texts) = &mut self.texts {
            let what = what.to_string();
            let separator = if texts.is_empty() { "" } else { "\n" };
            // Writing into memory does not fail.
            let _ = write!(texts, "{separator}pipeline {number}");
            for line in what.trim_end().lines() {
                let _ = write!(texts, "\n  {line}");
            }
        }
    }

    fn add(&mut self, pipeline: impl Pipeline + 'static) {
        let query = std::mem::replace(&mut self.cut.query, Query::new(""));
        self.cut.query = query.pipeline(pipeline);
    }

    /// The pipelines of a subquery; the last one leaves the value where the plan's
    /// expressions look for it.
    fn subquery(&mut self, node: &ScalarSubqueryExec, link: &ScalarSubqueryLink) -> Result<()> {
        let plan = self.descend(Arc::clone(&link.plan))?;
        if plan.schema().fields().len() != 1 {
            return exec_err!("a scalar subquery has to have one column");
        }
        // No row is the value NULL.
        let null = ScalarValue::try_from(plan.schema().field(0).data_type())?;
        let results = node.results().clone();
        let index = link.index;
        let sink = ValueSink {
            value: Arc::new(Mutex::new(None)),
            finish: move |value: Option<ScalarValue>| {
                results.set(index, value.unwrap_or_else(|| null.clone()))
            },
        };
        self.push(plan, Arc::new(sink));
        Ok(())
    }

    fn push(&mut self, plan: Arc<dyn ExecutionPlan>, sink: Arc<dyn Sink>) {
        debug_assert!(is_cut(&plan), "C1, C2: {plan:?}");
        if self.texts.is_some() {
            self.say(&displayable(plan.as_ref()).indent(false));
        }
        let mut leaves = Leaves::default();
        leaves.visit(&plan);
        let stage = Arc::new(Stage::new(
            leaves.label(),
            leaves.rows,
            plan.output_partitioning().partition_count(),
            leaves.gauges,
            self.board,
        ));
        self.cut.stages.push(Arc::clone(&stage));
        let pipeline = StreamPipeline::new(plan, sink, self.surroundings.clone(), stage);
        self.add(pipeline);
    }
}

/// Whether an operator has to know how many rows there are before it reads them: `parts`
/// divides its work by that.
fn gathers(plan: &Arc<dyn ExecutionPlan>) -> bool {
    (plan.downcast_ref::<AggregateExec>()).is_some_and(|aggregate| {
        matches!(
            aggregate.mode(),
            AggregateMode::Final | AggregateMode::FinalPartitioned
        )
    })
}

/// Which partition the rows of a repartitioning go to.
fn route(node: &RepartitionExec) -> Route {
    match node.partitioning() {
        split @ (Partitioning::Hash(..) | Partitioning::Range(_)) => Route::Split(split.clone()),
        Partitioning::RoundRobinBatch(_) | Partitioning::UnknownPartitioning(_) => Route::Shared,
    }
}

/// C3, nodes that spawn their children (C1), and exchanges that merge what is sorted,
/// which DataFusion plans only if it is told to prefer existing orders.
fn is_whole(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let keeps_order = (plan.downcast_ref::<RepartitionExec>())
        .is_some_and(|repartition| repartition.preserve_order());
    keeps_order || plan.is::<RecursiveQueryExec>() || plan.is::<AnalyzeExec>()
}

/// Whether a part of it runs as tasks of its own: C1, and what writes files.
pub(crate) fn spawns(plan: &Arc<dyn ExecutionPlan>) -> bool {
    is_whole(plan) || plan.is::<DataSinkExec>() || plan.children().into_iter().any(spawns)
}

/// An operator of stock DataFusion made to give way: a leaf (files, values, generated
/// series), or one that may go on for long without asking its own leaves.
fn with_yields(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    wrapped(YIELDING, plan, yielding)
}

/// Whether its output may be much larger than its input.
fn multiplies(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<CrossJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<UnnestExec>()
}

fn yields(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<MorselSourceExec>() || plan.is::<ExchangeSource>()
}

/// Whether there is neither a channel nor a leaf of stock DataFusion left, except in
/// nodes that are whole: C1, C2.
fn is_cut(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    if is_whole(plan) || (is_wrapped(plan, YIELDING) && children[0].children().is_empty()) {
        return true;
    }
    let has_channel = plan.is::<RepartitionExec>()
        || (plan.is::<CoalescePartitionsExec>()
            && children[0].output_partitioning().partition_count() > 1);
    match children.is_empty() {
        true => yields(plan),
        false => !has_channel && children.into_iter().all(is_cut),
    }
}

fn rows_expected(plan: &Arc<dyn ExecutionPlan>) -> f64 {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    statistics
        .ok()
        .and_then(|statistics| statistics.num_rows.get_value().copied())
        .map_or(1.0, |rows| rows as f64)
}

/// What feeds a pipeline, and what it is called.
#[derive(Default)]
struct Leaves {
    rows: f64,
    gauges: Vec<Arc<dyn Gauge>>,
    names: Vec<String>,
}

impl Leaves {
    fn visit(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(source) = plan.downcast_ref::<MorselSourceExec>() {
            self.rows += rows_expected(plan);
            self.gauges.push(source.gauge());
        } else if let Some(source) = plan.downcast_ref::<ExchangeSource>() {
            self.rows += source.exchange().rows_expected();
            self.gauges
                .push(Arc::clone(source.exchange()) as Arc<dyn Gauge>);
        } else if plan.children().is_empty() {
            self.rows += rows_expected(plan);
            self.gauges.extend(scan::gauge(plan));
        }
        for child in plan.children() {
            self.visit(child);
        }
        let name = plan.name().trim_end_matches("Exec").to_owned();
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    fn label(&self) -> String {
        self.names.join(" > ")
    }
}

/// The end of a query.
struct ResultSink(Arc<Results>);

impl Sink for ResultSink {
    fn stream_sink(&self, _: usize) -> Result<Box<dyn StreamSink>> {
        Ok(Box::new(ResultStreamSink(Arc::clone(&self.0))))
    }

    fn finish(&self) -> Result<()> {
        self.0.end(Ok(()));
        Ok(())
    }
}

struct ResultStreamSink(Arc<Results>);

impl StreamSink for ResultStreamSink {
    fn poll_room(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        self.0.poll_room(context)
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.0.push(batch);
        Ok(())
    }
}

/// The end of a scalar subquery: at most one row.
struct ValueSink<F> {
    value: Arc<Mutex<Option<ScalarValue>>>,
    finish: F,
}

impl<F> Sink for ValueSink<F>
where
    F: Fn(Option<ScalarValue>) -> Result<()> + Send + Sync,
{
    fn stream_sink(&self, _: usize) -> Result<Box<dyn StreamSink>> {
        Ok(Box::new(ValueStreamSink(Arc::clone(&self.value))))
    }

    fn finish(&self) -> Result<()> {
        (self.finish)(crate::lock(&self.value).take())
    }
}

struct ValueStreamSink(Arc<Mutex<Option<ScalarValue>>>);

impl StreamSink for ValueStreamSink {
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut value = crate::lock(&self.0);
        if value.is_some() || batch.num_rows() > 1 {
            return exec_err!("Scalar subquery returned more than one row");
        }
        *value = Some(ScalarValue::try_from_array(batch.column(0), 0)?);
        Ok(())
    }
}
