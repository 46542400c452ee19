//! Where one pipeline ends and another begins: rows are kept, by partition, until all
//! of them are there.
//!
//! ```text
//!   streams ──▶ sink per stream ──▶ partitions ──▶ ExchangeSource, a leaf
//!            (splits, gathers)   (batches)      of the next pipeline
//! ```
//!
//! Stock DataFusion runs both sides at once and connects them by channels, so a
//! consumer may wait for a producer that waits for it. Here the producing pipeline is
//! finalized before the consuming one begins (Section 2.2), so neither waits. The price
//! is memory: all rows of an exchange are held at once.
//!
//! X1. A partition is read once, by one stream, after the last batch has been added:
//!     batches are released as they are taken. (asserted in `read` and `keep`)
//! X2. The memory of a partition is reserved before a batch is added, each buffer
//!     once, and given back when the stream that reads it has ended. (not asserted:
//!     after a refusal other streams may still add batches)
//! X3. Only batches of about the batch size are kept: hashing splits them into
//!     small ones, which are joined again before they are stored.
//!     (not asserted: a partition's last batch of each stream may be of any size)

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use futures_util::Stream;

use crate::partition_stream::{Sink, StreamSink};
use crate::progress::Gauge;
use crate::task_time::{serve, yield_if_over};

/// Which partition a row goes to.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// That of its stream, in the stream's order.
    Straight,
    /// Any: the next reader takes it.
    Shared,
    /// As its keys say: by hash, or by range.
    Split(Partitioning),
}

/// The rows between two pipelines.
pub(crate) struct Exchange {
    schema: SchemaRef,
    route: Route,
    /// Which of its query's pipelines makes the rows.
    pipeline: usize,
    streams: usize,
    batch_rows: usize,
    /// With [`Route::Shared`], one that all readers share.
    partitions: Vec<Partition>,
    /// How many rows are wanted, how many were expected, and how many have come in
    /// and gone out.
    fetch: Option<usize>,
    rows_expected: f64,
    rows: AtomicUsize,
    taken: AtomicUsize,
}

struct Partition {
    kept: Mutex<Kept>,
    /// X1.
    is_read: AtomicBool,
}

struct Kept {
    batches: VecDeque<RecordBatch>,
    counter: RecordBatchMemoryCounter,
    memory: MemoryReservation,
}

/// Where an exchange is and how large its batches are.
pub(crate) struct Setting<'a> {
    pub(crate) pool: &'a Arc<dyn MemoryPool>,
    pub(crate) batch_rows: usize,
    /// The number of the pipeline that ends there, from 1.
    pub(crate) pipeline: usize,
}

impl Exchange {
    /// An exchange from so many streams to so many partitions.
    pub(crate) fn new(
        schema: SchemaRef,
        route: Route,
        streams: usize,
        partitions: usize,
        fetch: Option<usize>,
        rows_expected: f64,
        setting: &Setting<'_>,
    ) -> Exchange {
        let stored = match route {
            Route::Shared => 1,
            Route::Straight | Route::Split(_) => partitions,
        };
        let partition = |_| Partition {
            kept: Mutex::new(Kept {
                batches: VecDeque::new(),
                counter: RecordBatchMemoryCounter::new(),
                memory: MemoryConsumer::new("exchange").register(setting.pool),
            }),
            is_read: AtomicBool::new(false),
        };
        Exchange {
            schema,
            route,
            pipeline: setting.pipeline,
            streams,
            batch_rows: setting.batch_rows,
            partitions: (0..stored).map(partition).collect(),
            fetch,
            rows_expected,
            rows: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// Which of its query's pipelines makes the rows, from 1.
    pub(crate) fn pipeline(&self) -> usize {
        self.pipeline
    }

    /// Rows that have come in.
    pub(crate) fn rows(&self) -> usize {
        self.rows.load(Relaxed)
    }

    /// Rows that were expected to come in.
    pub(crate) fn rows_expected(&self) -> f64 {
        self.rows_expected
    }

    /// X2.
    fn keep(&self, partition: usize, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut kept = crate::lock(&self.partitions[partition].kept);
        let bytes = kept.counter.count_batch(&batch);
        kept.memory.try_grow(bytes)?;
        debug_assert!(
            !self.partitions[partition].is_read.load(Relaxed),
            "X1: a batch is added to a partition that is read"
        );
        self.rows.fetch_add(batch.num_rows(), Relaxed);
        kept.batches.push_back(batch);
        Ok(())
    }

    /// The columns of the rows.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// All that a partition has, for one of several readers: it stays, and so does its
    /// memory.
    pub(crate) fn copied(&self, partition: usize) -> Vec<RecordBatch> {
        let kept = crate::lock(&self.partitions[partition].kept);
        kept.batches.iter().cloned().collect()
    }

    /// How many partitions are kept apart.
    pub(crate) fn stored_partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Takes all that a partition has, and the memory that goes with it.
    pub(crate) fn take(&self, partition: usize) -> (Vec<RecordBatch>, MemoryReservation) {
        let mut kept = crate::lock(&self.partitions[partition].kept);
        let batches = std::mem::take(&mut kept.batches);
        self.taken
            .fetch_add(batches.iter().map(RecordBatch::num_rows).sum(), Relaxed);
        (batches.into(), kept.memory.take())
    }

    fn next(&self, partition: usize) -> Option<RecordBatch> {
        let mut kept = crate::lock(&self.partitions[partition].kept);
        match kept.batches.pop_front() {
            Some(batch) => {
                self.taken.fetch_add(batch.num_rows(), Relaxed);
                Some(batch)
            }
            None => {
                kept.memory.free();
                kept.counter = RecordBatchMemoryCounter::new();
                None
            }
        }
    }

    /// How many rows a reader's partition has.
    pub(crate) fn rows_of(&self, partition: usize) -> usize {
        let kept = crate::lock(&self.partitions[self.stored(partition)].kept);
        kept.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The rows of a reader's partition.
    pub(crate) fn read(self: &Arc<Self>, partition: usize) -> Result<SendableRecordBatchStream> {
        let stored = self.stored(partition);
        let was_read = self.partitions[stored].is_read.swap(true, Relaxed);
        // X1.
        if was_read && !matches!(self.route, Route::Shared) {
            return internal_err!("partition {partition} of an exchange was read twice");
        }
        Ok(Box::pin(Reader {
            exchange: Arc::clone(self),
            stored,
        }))
    }

    /// Which of the stored partitions a reader's partition is.
    fn stored(&self, partition: usize) -> usize {
        match self.route {
            Route::Shared => 0,
            Route::Straight | Route::Split(_) => partition,
        }
    }
}

impl Gauge for Exchange {
    fn fraction(&self) -> f64 {
        match self.rows() {
            0 => 0.0,
            rows => self.taken.load(Relaxed) as f64 / rows as f64,
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("route", &self.route)
            .field("streams", &self.streams)
            .field("rows", &self.rows())
            .finish()
    }
}

/// The producing end.
pub(crate) struct ExchangeSink(pub(crate) Arc<Exchange>);

impl Sink for ExchangeSink {
    fn stream_sink(&self, stream: usize) -> Result<Box<dyn StreamSink>> {
        let exchange = Arc::clone(&self.0);
        Ok(match &self.0.route {
            Route::Straight => Box::new(Direct {
                exchange,
                partition: stream,
            }),
            Route::Shared => Box::new(Direct {
                exchange,
                partition: 0,
            }),
            Route::Split(partitioning) => {
                let partitioner = BatchPartitioner::try_new(
                    partitioning.clone(),
                    Time::new(),
                    stream,
                    self.0.streams,
                )?;
                Box::new(Split {
                    partitioner,
                    joined: self.0.partitions.iter().map(|_| None).collect(),
                    exchange,
                })
            }
        })
    }

    fn is_full(&self) -> bool {
        self.0.fetch.is_some_and(|fetch| self.0.rows() >= fetch)
    }
}

struct Direct {
    exchange: Arc<Exchange>,
    partition: usize,
}

impl StreamSink for Direct {
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.exchange.keep(self.partition, batch)
    }
}

struct Split {
    partitioner: BatchPartitioner,
    /// X3, by partition.
    joined: Vec<Option<BatchCoalescer>>,
    exchange: Arc<Exchange>,
}

impl StreamSink for Split {
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let Split {
            partitioner,
            joined,
            exchange,
        } = self;
        partitioner.partition(batch, |partition, batch| {
            let coalescer = joined[partition].get_or_insert_with(|| {
                BatchCoalescer::new(Arc::clone(&exchange.schema), exchange.batch_rows)
            });
            coalescer.push_batch(batch)?;
            while let Some(batch) = coalescer.next_completed_batch() {
                exchange.keep(partition, batch)?;
            }
            Ok(())
        })
    }

    fn close(&mut self) -> Result<()> {
        for (partition, coalescer) in self.joined.iter_mut().enumerate() {
            let Some(mut coalescer) = coalescer.take() else {
                continue;
            };
            coalescer.finish_buffered_batch()?;
            while let Some(batch) = coalescer.next_completed_batch() {
                self.exchange.keep(partition, batch)?;
            }
        }
        Ok(())
    }
}

/// The consuming end: a leaf, in the place of the exchange that was cut.
#[derive(Debug)]
pub(crate) struct ExchangeSource {
    exchange: Arc<Exchange>,
    properties: Arc<PlanProperties>,
}

impl ExchangeSource {
    /// A leaf with the properties of what it replaces.
    pub(crate) fn new(exchange: Arc<Exchange>, properties: Arc<PlanProperties>) -> ExchangeSource {
        ExchangeSource {
            exchange,
            properties,
        }
    }

    pub(crate) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }
}

impl DisplayAs for ExchangeSource {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let route = match &self.exchange.route {
            Route::Straight => "partition by partition".to_owned(),
            Route::Shared => "in any order".to_owned(),
            Route::Split(partitioning) => format!("by {partitioning}"),
        };
        let pipeline = self.exchange.pipeline;
        write!(f, "ExchangeSource: rows of pipeline {pipeline}, {route}")
    }
}

impl ExecutionPlan for ExchangeSource {
    fn name(&self) -> &str {
        "ExchangeSource"
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

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.exchange.read(partition)
    }
}

struct Reader {
    exchange: Arc<Exchange>,
    stored: usize,
}

impl Stream for Reader {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        yield_if_over!(context);
        serve();
        Poll::Ready(self.exchange.next(self.stored).map(Ok))
    }
}

impl RecordBatchStream for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.exchange.schema)
    }
}
