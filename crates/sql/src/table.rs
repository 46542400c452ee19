//! Tables in memory, scanned by as many workers as come.
//!
//! A table is a list of *pieces*, of some thousand rows each. A scan has one cursor over
//! them that all its streams share: a stream takes the next piece when it has done with the
//! last one. So no stream is left with more work than the others, whatever the filters
//! above it let through, and a stream that never runs misses nothing (Leis et al.'s
//! morsels; the sizes of tasks are made of pieces by `task_time`). On stock DataFusion the
//! same plan is scanned the same way.
//!
//! The planner gets exact row counts, minima and maxima, and estimates of distinct
//! values: with row counts alone it builds hash tables on the larger side.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use async_trait::async_trait;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics, plan_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use datafusion_functions_aggregate_common::min_max::{max_batch, min_batch};
use futures_util::Stream;

use crate::progress::Gauge;
use crate::sketch::Sketch;
use crate::task_time::{serve, yield_if_over};

/// The most rows of a piece: DataFusion's usual batch.
const PIECE_ROWS: usize = 8192;

/// Rows in pieces, and where they are counted, if they are: also while a scan is left that
/// reads a table which has been dropped.
struct Pieces {
    batches: Box<[RecordBatch]>,
    _held: Option<MemoryReservation>,
}

/// A table in memory.
pub struct MorselTable {
    schema: SchemaRef,
    pieces: Arc<Pieces>,
    statistics: Statistics,
    bytes: usize,
}

impl MorselTable {
    /// A table of these batches, without copying them. Looks at every value once, for
    /// the planner's statistics.
    ///
    /// # Errors
    /// A batch has another schema.
    pub fn try_new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<MorselTable> {
        MorselTable::holding(schema, batches, None)
    }

    /// The same, of batches that have been counted.
    pub(crate) fn holding(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        held: Option<MemoryReservation>,
    ) -> Result<MorselTable> {
        let mut counter = RecordBatchMemoryCounter::new();
        let mut bytes = 0;
        for batch in &batches {
            if !schema.contains(&batch.schema()) {
                return plan_err!(
                    "a batch has the schema {:?}, and its table {schema:?}",
                    batch.schema()
                );
            }
            bytes += counter.count_batch(batch);
        }
        let statistics = statistics(&schema, &batches, bytes)?;
        let pieces = Pieces {
            batches: batches.iter().flat_map(pieces).collect(),
            _held: held,
        };
        Ok(MorselTable {
            schema,
            pieces: Arc::new(pieces),
            statistics,
            bytes,
        })
    }

    /// How much memory its columns take, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn pieces(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    (0..batch.num_rows()).step_by(PIECE_ROWS).map(|from| {
        let rows = PIECE_ROWS.min(batch.num_rows() - from);
        batch.slice(from, rows)
    })
}

fn statistics(schema: &SchemaRef, batches: &[RecordBatch], bytes: usize) -> Result<Statistics> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let column = |index: usize| -> Result<ColumnStatistics> {
        let data_type = schema.field(index).data_type();
        let mut nulls = 0;
        let mut range: Option<(ScalarValue, ScalarValue)> = None;
        let mut sketch = Sketch::new();
        // Nested values have no order that the planner would use.
        let is_plain = !data_type.is_nested();
        for array in batches.iter().map(|batch| batch.column(index)) {
            nulls += array.null_count();
            if is_plain && array.len() > array.null_count() {
                sketch.add(array)?;
                let (low, high) = (min_batch(array)?, max_batch(array)?);
                range = Some(match range {
                    None => (low, high),
                    Some((least, most)) => (
                        if low < least { low } else { least },
                        if high > most { high } else { most },
                    ),
                });
            }
        }
        let (min_value, max_value) = match range {
            Some((least, most)) => (Precision::Exact(least), Precision::Exact(most)),
            None => (Precision::Absent, Precision::Absent),
        };
        Ok(ColumnStatistics {
            null_count: Precision::Exact(nulls),
            min_value,
            max_value,
            distinct_count: match is_plain {
                true => Precision::Inexact(sketch.estimate().min(rows)),
                false => Precision::Absent,
            },
            ..ColumnStatistics::new_unknown()
        })
    };
    Ok(Statistics {
        num_rows: Precision::Exact(rows),
        total_byte_size: Precision::Inexact(bytes),
        column_statistics: (0..schema.fields().len())
            .map(column)
            .collect::<Result<_>>()?,
    })
}

impl fmt::Debug for MorselTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MorselTable")
            .field("schema", &self.schema)
            .field("pieces", &self.pieces.batches.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}

#[async_trait]
impl TableProvider for MorselTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.statistics.clone())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns: Arc<[usize]> = match projection {
            Some(columns) => columns.as_slice().into(),
            None => (0..self.schema.fields().len()).collect(),
        };
        // No stream without a piece; and one at least.
        let streams =
            (state.config().target_partitions()).clamp(1, self.pieces.batches.len().max(1));
        let schema = Arc::new(self.schema.project(&columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(streams),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let statistics = (self.statistics.clone()).project(projection);
        Ok(Arc::new(MorselSourceExec {
            columns,
            limit,
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            cursor: Arc::new(Cursor::new(&self.pieces)),
        }))
    }
}

/// What all streams of one run of a scan share.
struct Cursor {
    pieces: Arc<Pieces>,
    next: AtomicUsize,
    rows: AtomicUsize,
}

impl Cursor {
    fn new(pieces: &Arc<Pieces>) -> Cursor {
        Cursor {
            pieces: Arc::clone(pieces),
            next: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
        }
    }

    fn take(&self) -> Option<&RecordBatch> {
        // Past the end it stands still, however many streams ask.
        let next = self.next.load(Relaxed);
        let pieces = &self.pieces.batches;
        if next >= pieces.len() {
            return None;
        }
        pieces.get(self.next.fetch_add(1, Relaxed))
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("pieces", &self.pieces.batches.len())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Gauge for Cursor {
    fn fraction(&self) -> f64 {
        match self.pieces.batches.len() {
            0 => 1.0,
            pieces => (self.next.load(Relaxed) as f64 / pieces as f64).min(1.0),
        }
    }
}

/// A scan of a [`MorselTable`].
#[derive(Debug)]
pub(crate) struct MorselSourceExec {
    columns: Arc<[usize]>,
    limit: Option<usize>,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    cursor: Arc<Cursor>,
}

impl MorselSourceExec {
    pub(crate) fn gauge(&self) -> Arc<dyn Gauge> {
        Arc::clone(&self.cursor) as Arc<dyn Gauge>
    }
}

impl DisplayAs for MorselSourceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names: Vec<&str> = (schema.fields().iter())
            .map(|field| field.name().as_str())
            .collect();
        write!(f, "MorselSourceExec: columns=[{}]", names.join(", "))?;
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for MorselSourceExec {
    fn name(&self) -> &str {
        "MorselSourceExec"
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

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(MorselSourceExec {
            columns: Arc::clone(&self.columns),
            limit: self.limit,
            statistics: Arc::clone(&self.statistics),
            properties: Arc::clone(&self.properties),
            cursor: Arc::new(Cursor::new(&self.cursor.pieces)),
        }))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(Scan {
            schema: self.schema(),
            columns: Arc::clone(&self.columns),
            limit: self.limit,
            cursor: Arc::clone(&self.cursor),
        }))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match args.partition() {
            None => Ok(Arc::clone(&self.statistics)),
            // What a stream gets is decided while it runs.
            Some(_) => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }
}

struct Scan {
    schema: SchemaRef,
    columns: Arc<[usize]>,
    limit: Option<usize>,
    cursor: Arc<Cursor>,
}

impl Stream for Scan {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        yield_if_over!(context);
        let before = self.cursor.rows.load(Relaxed);
        if self.limit.is_some_and(|limit| before >= limit) {
            return Poll::Ready(None);
        }
        let Some(piece) = self.cursor.take() else {
            return Poll::Ready(None);
        };
        serve();
        if self.limit.is_some() {
            self.cursor.rows.fetch_add(piece.num_rows(), Relaxed);
        }
        Poll::Ready(Some(piece.project(&self.columns).map_err(Into::into)))
    }
}

impl RecordBatchStream for Scan {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
