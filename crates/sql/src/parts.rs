//! Aggregation in parts, each of as many groups as can be given out in a task.
//!
//! ```text
//!                   large: split by the keys' hash     one after another
//!  partition of ──▶ part 0 ─┐
//!  an exchange      part 1 ─┼──▶ AggregateExec (part) ──▶ groups ──▶ out
//!                   part 2 ─┘
//! ```
//!
//! DataFusion makes one table of a partition's groups and gives all of them out in one
//! step: keys and states become arrays, and the table is let go. A table that grows is
//! another such step, which moves all of its groups. With a million groups either takes
//! longer than a task by far. The final step of an aggregation reads an exchange, so
//! here it is known beforehand how many rows there are. Where they are too many for one
//! table they are split once more, and each part is aggregated and given out before the
//! next one. The aggregation itself is DataFusion's, whatever its functions are; what
//! splits is another exchange (`exchange`), and gives way at each batch.
//!
//! A1. All rows of a group are in one part, in the order in which they came.
//!     (asserted in `poll_next`: no row is lost; not which part has it)
//! A2. The same hash, modulo their numbers, gives a row's partition and its part. These
//!     numbers have no common divisor: otherwise all rows of a partition would be in a
//!     few of its parts. (not asserted: `part_count` looks for such a number)
//! A3. Only the final step is run in parts. Its rows are partial groups: one or a few
//!     per group. Raw rows may be very many for few groups.
//!     (not asserted: `PartedExec::of` tests just this)
//!
//! Splitting copies the rows once more. In return the tables of parts are small enough
//! for the processor's caches, where one of all groups is not.
//!
//! Known weakness: the first step of an aggregation, and one that is done in a single
//! step, give all of their groups out at once. So do those with an order or a limit.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputOrderMode,
    Partitioning, PhysicalExpr, PlanProperties,
};
use futures_util::{Stream, StreamExt};

use crate::exchange::{Exchange, ExchangeSink, ExchangeSource, Route, Setting};
use crate::partition_stream::{Sink, StreamSink};

/// Rows of a part, about: a table of as many groups fits a cache, and is given out in
/// some ms at most, whatever is computed.
const PART_ROWS: usize = 32_768;
/// About the most parts of a partition. With more rows than these hold, parts are
/// larger.
const PARTS_MAX: usize = 64;

/// The final step of an aggregation, above the exchange that it reads.
pub(crate) struct PartedExec {
    aggregate: Arc<dyn ExecutionPlan>,
    exchange: Arc<Exchange>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    part_rows: usize,
}

impl PartedExec {
    /// What takes the place of an aggregation; `None` if this is none that is run in
    /// parts.
    pub(crate) fn replacing(plan: &Arc<dyn ExecutionPlan>) -> Option<PartedExec> {
        PartedExec::of(plan, PART_ROWS)
    }

    fn of(plan: &Arc<dyn ExecutionPlan>, part_rows: usize) -> Option<PartedExec> {
        let aggregate = plan.downcast_ref::<AggregateExec>()?;
        let source = aggregate.input().downcast_ref::<ExchangeSource>()?;
        // A3.
        let is_final = matches!(
            aggregate.mode(),
            AggregateMode::Final | AggregateMode::FinalPartitioned
        );
        let is_free = *aggregate.input_order_mode() == InputOrderMode::Linear
            && aggregate.limit_options().is_none();
        let keys = aggregate.group_expr();
        let is_grouped = keys.is_single() && !keys.is_true_no_grouping();
        (is_final && is_free && is_grouped).then(|| PartedExec {
            aggregate: Arc::clone(plan),
            exchange: Arc::clone(source.exchange()),
            keys: keys.input_exprs(),
            part_rows,
        })
    }
}

/// How many parts so many rows make, of one of so many partitions: A2.
fn part_count(rows: usize, part_rows: usize, partitions: usize) -> usize {
    if rows <= 2 * part_rows {
        return 1;
    }
    let wanted = rows.div_ceil(part_rows).min(PARTS_MAX);
    let is_apart = |&count: &usize| common_divisor(count, partitions) == 1;
    (wanted..).find(is_apart).expect("there is always a prime")
}

/// The greatest one.
fn common_divisor(one: usize, other: usize) -> usize {
    match other {
        0 => one,
        _ => common_divisor(other, one % other),
    }
}

impl fmt::Debug for PartedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartedExec")
            .field("aggregate", &self.aggregate)
            .field("part_rows", &self.part_rows)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for PartedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartedExec: about {} rows a part", self.part_rows)
    }
}

impl ExecutionPlan for PartedExec {
    fn name(&self) -> &str {
        self.aggregate.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.aggregate.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.aggregate.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let aggregate = replace_children_if_necessary(Arc::clone(&self.aggregate), children)?;
        Ok(match PartedExec::of(&aggregate, self.part_rows) {
            Some(parted) => Arc::new(parted),
            None => aggregate,
        })
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.aggregate.apply_expressions(f)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let source = self.aggregate.children()[0];
        let partitions = source.output_partitioning().partition_count();
        let rows = self.exchange.rows_of(partition);
        let parts = part_count(rows, self.part_rows, partitions);
        if parts == 1 {
            return self.aggregate.execute(partition, context);
        }
        let setting = Setting {
            pool: context.memory_pool(),
            batch_rows: context.session_config().batch_size(),
            pipeline: self.exchange.pipeline(),
        };
        let route = Route::Split(Partitioning::Hash(self.keys.clone(), parts));
        let split = Exchange::new(
            source.schema(),
            route,
            1,
            parts,
            None,
            rows as f64,
            &setting,
        );
        let split = Arc::new(split);
        Ok(Box::pin(Parted {
            state: State::Splitting {
                input: source.execute(partition, Arc::clone(&context))?,
                sink: ExchangeSink(Arc::clone(&split)).stream_sink(0)?,
            },
            next: 0,
            parts,
            rows,
            split,
            aggregate: Arc::clone(&self.aggregate),
            partition,
            context,
        }))
    }
}

/// A partition that is aggregated in parts.
struct Parted {
    state: State,
    /// The first part that has not been begun.
    next: usize,
    parts: usize,
    /// Of the partition.
    rows: usize,
    split: Arc<Exchange>,
    aggregate: Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
}

enum State {
    Splitting {
        input: SendableRecordBatchStream,
        sink: Box<dyn StreamSink>,
    },
    /// A part's groups are made and given out.
    Giving(SendableRecordBatchStream),
    /// What there was before has been let go.
    Between,
}

impl Parted {
    /// The groups of the next part that has any.
    fn begin(&mut self) -> Result<Option<SendableRecordBatchStream>> {
        let split = &self.split;
        let Some(part) = (self.next..self.parts).find(|&part| split.rows_of(part) > 0) else {
            return Ok(None);
        };
        self.next = part + 1;
        let source = PartSource {
            rows: Mutex::new(Some(split.read(part)?)),
            properties: Arc::clone(self.aggregate.children()[0].properties()),
        };
        let aggregate = Arc::clone(&self.aggregate);
        let aggregate = replace_children_if_necessary(aggregate, vec![Arc::new(source)])?;
        let groups = aggregate.execute(self.partition, Arc::clone(&self.context))?;
        Ok(Some(groups))
    }
}

impl Stream for Parted {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            self.state = match &mut self.state {
                State::Splitting { input, sink } => match ready!(input.poll_next_unpin(context)) {
                    Some(batch) => {
                        sink.push(batch?)?;
                        continue;
                    }
                    None => {
                        sink.close()?;
                        debug_assert_eq!(
                            (0..self.parts)
                                .map(|part| self.split.rows_of(part))
                                .sum::<usize>(),
                            self.rows,
                            "A1: rows of the parts, and of the partition"
                        );
                        State::Between
                    }
                },
                State::Giving(groups) => match ready!(groups.poll_next_unpin(context)) {
                    Some(batch) => return Poll::Ready(Some(batch)),
                    None => State::Between,
                },
                State::Between => match self.begin()? {
                    Some(groups) => State::Giving(groups),
                    None => return Poll::Ready(None),
                },
            };
        }
    }
}

impl RecordBatchStream for Parted {
    fn schema(&self) -> SchemaRef {
        self.aggregate.schema()
    }
}

/// The leaf below the aggregation of a part.
struct PartSource {
    rows: Mutex<Option<SendableRecordBatchStream>>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for PartSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartSource").finish_non_exhaustive()
    }
}

impl DisplayAs for PartSource {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartSource")
    }
}

impl ExecutionPlan for PartSource {
    fn name(&self) -> &str {
        "PartSource"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        match crate::lock(&self.rows).take() {
            Some(rows) => Ok(rows),
            None => internal_err!("a part was read twice"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::task::Waker;
    use std::time::{Duration, Instant};

    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
    use datafusion::physical_plan::collect;
    use datafusion::physical_plan::repartition::RepartitionExec;

    use crate::memory::Account;
    use crate::{Engine, task_time};

    const PARTITIONS: usize = 2;
    const PART: usize = 1000;
    const GROUPS: i64 = 40_000;

    /// The final step of this query in parts, above an exchange that has been filled,
    /// and what stock DataFusion answers.
    async fn parted(sql: &str) -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>, Vec<RecordBatch>) {
        let engine = Engine::builder().workers(1).partitions(PARTITIONS);
        let session = engine.build().unwrap().session();
        // Two rows of each group, but for those that have none.
        let numbers = (0..2 * GROUPS).map(|row| (row % 9 != 0).then_some(row * 7 % GROUPS));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter(numbers));
        let words = (0..2 * GROUPS).map(|row| format!("word {}", row % 1000));
        let words: ArrayRef = Arc::new(StringArray::from_iter_values(words));
        let batch = RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap();
        let schema = batch.schema();
        session.register_batches("t", schema, vec![batch]).unwrap();
        let query = session.sql(sql).await.unwrap();
        let account = Arc::new(Account::new(Arc::clone(&query.engine.memory)));
        let context = Arc::new(query.context(&account));
        let again = query.again().await.unwrap();
        let expected = collect(last_step(again.plan()), Arc::clone(&context));
        let expected = expected.await.unwrap();

        let plan = last_step(query.plan());
        let aggregate = plan.downcast_ref::<AggregateExec>().expect("just found");
        let repartition = aggregate.input().downcast_ref::<RepartitionExec>();
        let repartition = repartition.expect("below the final step");
        let input = repartition.input();
        let streams = input.output_partitioning().partition_count();
        let setting = Setting {
            pool: context.memory_pool(),
            batch_rows: 8192,
            pipeline: 1,
        };
        let route = Route::Split(repartition.partitioning().clone());
        let schema = input.schema();
        let exchange = Exchange::new(schema, route, streams, PARTITIONS, None, 1.0, &setting);
        let exchange = Arc::new(exchange);
        for stream in 0..streams {
            let mut sink = ExchangeSink(Arc::clone(&exchange))
                .stream_sink(stream)
                .unwrap();
            let mut rows = input.execute(stream, Arc::clone(&context)).unwrap();
            while let Some(batch) = rows.next().await {
                sink.push(batch.unwrap()).unwrap();
            }
            sink.close().unwrap();
        }
        assert!(exchange.rows_of(0) > 10 * PART);
        let properties = Arc::clone(aggregate.input().properties());
        let source = Arc::new(ExchangeSource::new(exchange, properties));
        let plan = replace_children_if_necessary(Arc::clone(&plan), vec![source]).unwrap();
        let parted = PartedExec::of(&plan, PART).expect("a final step");
        (Arc::new(parted), context, expected)
    }

    /// What is left of an aggregation without what renames its columns.
    fn last_step(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        match plan.is::<AggregateExec>() {
            true => Arc::clone(plan),
            false => last_step(plan.children().first().expect("an aggregation")),
        }
    }

    /// The names of the columns and every row as text, sorted. Not as a table: to draw one
    /// of so many rows takes longer than the queries.
    fn rows(batches: &[RecordBatch]) -> Vec<String> {
        let options = FormatOptions::default().with_null("NULL");
        let schema = batches.first().expect("a batch").schema();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let mut rows = vec![names.collect::<Vec<_>>().join(" | ")];
        for batch in batches {
            let columns = batch.columns().iter();
            let columns: Vec<ArrayFormatter<'_>> = columns
                .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
                .collect();
            rows.extend((0..batch.num_rows()).map(|row| {
                let cells = columns.iter().map(|column| column.value(row).to_string());
                cells.collect::<Vec<_>>().join(" | ")
            }));
        }
        rows.sort();
        rows
    }

    #[tokio::test]
    async fn parts_are_given_out_one_after_another() {
        let sql = "SELECT number, count(*) FROM t GROUP BY number";
        let (plan, context, _) = parted(sql).await;
        let mut groups = plan.execute(0, context).unwrap();
        let context = &mut Context::from_waker(Waker::noop());
        let (mut given, mut turns, mut most, mut is_over) = (0, 0, 0, false);
        while !is_over {
            // Every task is over as soon as a leaf has given out a batch.
            let past = Instant::now() - Duration::from_secs(1);
            let in_task = task_time::until(past, || {
                let mut rows = 0;
                while let Poll::Ready(next) = groups.poll_next_unpin(context) {
                    match next {
                        Some(batch) => rows += batch.unwrap().num_rows(),
                        None => {
                            is_over = true;
                            break;
                        }
                    }
                }
                rows
            });
            given += in_task;
            turns += 1;
            most = most.max(in_task);
        }
        assert!(given > 10 * PART, "{given} groups");
        assert!(turns > 10, "{turns} turns");
        // A2: with an even number of parts, those that have any had twice as many.
        assert!(most < PART + PART / 2, "{most} groups in one step");
    }

    #[tokio::test]
    async fn groups_are_those_of_one_table() {
        for sql in [
            "SELECT number, count(*), sum(number), min(word), count(DISTINCT word) FROM t \
             GROUP BY number",
            "SELECT number, word, avg(number) FROM t GROUP BY number, word",
            "SELECT DISTINCT word, number FROM t",
            "SELECT number % 20000 AS n, array_agg(word ORDER BY word) FROM t GROUP BY n",
            "SELECT number, word, count(*) FROM t GROUP BY ROLLUP (number, word)",
        ] {
            let (plan, context, expected) = parted(sql).await;
            let pool = Arc::clone(context.memory_pool());
            let got = collect(plan, context).await.unwrap();
            assert_eq!(rows(&got), rows(&expected), "{sql}");
            assert_eq!(pool.reserved(), 0, "{sql}");
        }
    }

    #[test]
    fn parts_are_as_many_as_rows_want() {
        assert_eq!(part_count(0, 100, 16), 1);
        assert_eq!(part_count(200, 100, 16), 1);
        assert_eq!(part_count(201, 100, 16), 3);
        assert_eq!(part_count(350, 100, 16), 5, "A2");
        assert_eq!(part_count(350, 100, 15), 4);
        assert_eq!(part_count(600, 100, 30), 7);
        assert_eq!(part_count(350, 100, 1), 4);
        assert_eq!(part_count(1_000_000, 100, 16), 65);
    }
}
