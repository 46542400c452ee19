//! What a part has made, until other workers have fetched it.
//!
//! The last pipeline of a part ends in an exchange, as others do (`exchange`): by hash, if
//! the part's plan ends in a repartitioning. Its rows are fetched partition by partition
//! after the part has ended, and their memory stays reserved until then.
//!
//! H1. A partition that one reader wants is given away, and its memory with it, when the
//!     rows have been sent. One that several want (the build side of a join, for all
//!     workers) stays as long as the shelf. (tested: a worker holds nothing afterwards)

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::exchange::{Exchange, ExchangeSink};
use crate::partition_stream::{Sink, StreamSink};
use crate::results::Results;

/// Where the rows of a part will be.
#[derive(Debug)]
pub(crate) struct Shelf {
    exchange: OnceLock<Arc<Exchange>>,
    is_shared: bool,
}

/// The rows of one partition, and the memory that they take.
pub(crate) struct Shelved {
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) memory: Option<MemoryReservation>,
}

impl Shelf {
    /// An empty one, for so many readers of each partition.
    pub(crate) fn new(readers: u32) -> Shelf {
        Shelf {
            exchange: OnceLock::new(),
            is_shared: readers > 1,
        }
    }

    /// What its part ends in.
    pub(crate) fn sink(&self, exchange: Arc<Exchange>, results: &Arc<Results>) -> Arc<dyn Sink> {
        let exchange = self.exchange.get_or_init(|| exchange);
        Arc::new(ShelfSink {
            rows: ExchangeSink(Arc::clone(exchange)),
            results: Arc::clone(results),
        })
    }

    /// The rows of a partition: H1. `None` if there is no such partition.
    pub(crate) fn partition(&self, partition: usize) -> Option<Shelved> {
        let exchange = self.exchange.get()?;
        if partition >= exchange.stored_partitions() {
            return None;
        }
        let schema = exchange.schema();
        Some(match self.is_shared {
            true => Shelved {
                schema,
                batches: exchange.copied(partition),
                memory: None,
            },
            false => {
                let (batches, memory) = exchange.take(partition);
                Shelved {
                    schema,
                    batches,
                    memory: Some(memory),
                }
            }
        })
    }
}

/// The end of a part: its client is told when all rows are there.
struct ShelfSink {
    rows: ExchangeSink,
    results: Arc<Results>,
}

impl Sink for ShelfSink {
    fn stream_sink(&self, stream: usize) -> Result<Box<dyn StreamSink>> {
        self.rows.stream_sink(stream)
    }

    fn is_full(&self) -> bool {
        self.rows.is_full()
    }

    fn finish(&self) -> Result<()> {
        self.rows.finish()?;
        self.results.end(Ok(()));
        Ok(())
    }
}
