//! The first pipeline of a join's build: batches become one array per column and key.
//!
//! ```text
//!  exchange ──▶ pieces: (partition, column or key) ──▶ arrays ─┬▶ tables
//!               taken, grown part by part, put back            │  all whole: finalized
//!               and one for the chains, made in a step ──▶ ────┘
//! ```
//!
//! G1. A piece is grown by one worker at a time: the one that has taken it.
//!     (asserted in `keep`)
//! G2. A worker that finds no piece while others have some is called when one is put
//!     back. When no worker has one there is nothing left to do.
//!     (asserted in `put_back` and `finish`)
//! G3. A piece that has been begun is taken first, and a part is dropped when it has been
//!     copied: both copies of a row are there for one column at a time.
//!     (not asserted: `free` is a stack)
//! G4. Every step grows its piece by a part, however little time it has.
//!     (not asserted: `run` checks the time after a part)

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::common::{Result, exec_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::expressions::Column;
use giveway_tasks::{Failure, Morsel, Pipeline, Step};

use crate::exchange::Exchange;
use crate::progress::Stage;

use super::build::{Tables, timed};
use super::grow::Growing;
use super::table::{BYTES_PER_ROW, Chains, JoinTable};

/// The pipeline. Lets go of what it has when it is done.
pub(super) struct Gather {
    source: Mutex<Option<(Arc<Tables>, Arc<Exchange>)>>,
    work: Mutex<Option<Arc<Work>>>,
    stage: Arc<Stage>,
    task_time: Duration,
}

/// What there is to gather, known when the exchange is complete.
struct Work {
    tables: Arc<Tables>,
    partitions: Vec<Partition>,
    pieces: Mutex<Pieces>,
}

struct Partition {
    rows: usize,
    /// Whether the table has other arrays than the batches had.
    is_copied: bool,
    arrays: Vec<OnceLock<ArrayRef>>,
    chains: Mutex<Option<Chains>>,
    /// The exchange's.
    memory: Mutex<Option<MemoryReservation>>,
}

struct Pieces {
    /// What has been begun is on top: G3.
    free: Vec<Piece>,
    /// How many are not whole, including those that workers have taken.
    live: usize,
}

enum Piece {
    Array {
        partition: usize,
        array: usize,
        growing: Growing,
    },
    Chains {
        partition: usize,
    },
}

/// A look for a piece.
enum Found {
    Piece(Piece),
    /// Others have what there is.
    Busy,
    Nothing,
}

impl Gather {
    pub(super) fn new(
        tables: &Arc<Tables>,
        exchange: Arc<Exchange>,
        stage: Arc<Stage>,
        task_time: Duration,
    ) -> Gather {
        Gather {
            source: Mutex::new(Some((Arc::clone(tables), exchange))),
            work: Mutex::new(None),
            stage,
            task_time,
        }
    }
}

impl Work {
    fn new(tables: Arc<Tables>, exchange: &Exchange) -> Result<Work> {
        let mut pieces = Vec::new();
        let mut partitions = Vec::new();
        for partition in 0..tables.count() {
            let (batches, memory) = exchange.take(partition);
            let rows = batches.iter().map(RecordBatch::num_rows).sum();
            let arrays = tables.schema.fields().len() + tables.keys.len();
            partitions.push(Partition {
                rows,
                is_copied: batches.len() > 1,
                arrays: (0..arrays).map(|_| OnceLock::new()).collect(),
                chains: Mutex::new(None),
                memory: Mutex::new(Some(memory)),
            });
            for (array, growing) in tables.arrays(&batches, rows)? {
                pieces.push(Piece::Array {
                    partition,
                    array,
                    growing,
                });
            }
            pieces.push(Piece::Chains { partition });
        }
        // In the order of partitions.
        pieces.reverse();
        Ok(Work {
            tables,
            partitions,
            pieces: Mutex::new(Pieces {
                live: pieces.len(),
                free: pieces,
            }),
        })
    }

    /// G1, G2.
    fn take(&self) -> Found {
        let mut pieces = crate::lock(&self.pieces);
        match (pieces.free.pop(), pieces.live) {
            (Some(piece), _) => Found::Piece(piece),
            (None, 0) => Found::Nothing,
            (None, _) => Found::Busy,
        }
    }

    fn put_back(&self, piece: Piece) {
        let mut pieces = crate::lock(&self.pieces);
        pieces.free.push(piece);
        debug_assert!(
            pieces.free.len() <= pieces.live,
            "G2: more pieces than are not whole"
        );
    }

    /// Works on a piece until it is whole or the time is over; returns it then.
    fn run(&self, piece: Piece, is_over: impl Fn() -> bool) -> Result<Option<Piece>> {
        match piece {
            Piece::Chains { partition } => self.chain(partition)?,
            Piece::Array {
                partition,
                array,
                mut growing,
            } => loop {
                // G4.
                if let Some(whole) = growing.grow()? {
                    self.keep(partition, array, whole)?;
                    break;
                }
                if is_over() {
                    return Ok(Some(Piece::Array {
                        partition,
                        array,
                        growing,
                    }));
                }
            },
        }
        self.end();
        Ok(None)
    }

    /// A piece is whole.
    fn end(&self) {
        crate::lock(&self.pieces).live -= 1;
    }

    fn keep(&self, partition: usize, array: usize, whole: ArrayRef) -> Result<()> {
        let partition = &self.partitions[partition];
        if partition.is_copied {
            let bytes = whole.get_buffer_memory_size();
            self.tables.memory.try_grow(bytes)?;
        }
        let fresh = partition.arrays[array].set(whole).is_ok();
        assert!(fresh, "G1");
        Ok(())
    }

    fn chain(&self, partition: usize) -> Result<()> {
        let partition = &self.partitions[partition];
        let rows = partition.rows;
        if rows >= u32::MAX as usize {
            return exec_err!(
                "{rows} rows in one partition of a join's build side: give the engine more \
                 partitions"
            );
        }
        self.tables.memory.try_grow(rows * BYTES_PER_ROW)?;
        let chains = Chains::new(rows, self.tables.is_visited);
        *crate::lock(&partition.chains) = Some(chains);
        Ok(())
    }

    /// Puts together what has been gathered.
    fn finish(&self) -> Result<()> {
        let tables = &self.tables;
        let columns = tables.schema.fields().len();
        for (index, partition) in self.partitions.iter().enumerate() {
            let array = |index: usize| {
                let array = partition.arrays[index].get();
                Arc::clone(array.expect("all pieces are whole"))
            };
            let batch = RecordBatch::try_new_with_options(
                Arc::clone(&tables.schema),
                (0..columns).map(array).collect(),
                &RecordBatchOptions::new().with_row_count(Some(partition.rows)),
            )?;
            let keys = (tables.keys.iter().enumerate())
                .map(
                    |(key, expression)| match expression.downcast_ref::<Column>() {
                        Some(column) => Arc::clone(batch.column(column.index())),
                        None => array(columns + key),
                    },
                )
                .collect();
            let chains = crate::lock(&partition.chains).take();
            let chains = chains.expect("all pieces are whole");
            if let Some(memory) = crate::lock(&partition.memory).take() {
                if !partition.is_copied {
                    // The table has the batch itself.
                    tables.memory.grow(memory.size());
                }
                drop(memory);
            }
            tables.fill(index, JoinTable::new(batch, keys, chains));
        }
        Ok(())
    }
}

impl Tables {
    /// The arrays to be made of a partition's batches, by their numbers: its columns,
    /// and those of its keys that are not among them.
    fn arrays(&self, batches: &[RecordBatch], rows: usize) -> Result<Vec<(usize, Growing)>> {
        let columns = self.schema.fields().len();
        let mut arrays = Vec::with_capacity(columns);
        for (column, field) in self.schema.fields().iter().enumerate() {
            let parts = batches.iter().map(|batch| Arc::clone(batch.column(column)));
            let growing = Growing::of(field.data_type(), rows, parts.collect());
            arrays.push((column, growing));
        }
        for (key, expression) in self.keys.iter().enumerate() {
            if expression.is::<Column>() {
                continue;
            }
            let data_type = expression.data_type(&self.schema)?;
            let expression = Arc::clone(expression);
            let batches = batches.to_vec();
            let parts = (batches.into_iter())
                .map(move |batch| expression.evaluate(&batch)?.into_array(batch.num_rows()));
            arrays.push((columns + key, Growing::made(&data_type, rows, parts)));
        }
        Ok(arrays)
    }
}

impl Pipeline for Gather {
    fn units(&self) -> Option<u64> {
        // Steps: parts are too long to be units, of which a task begins with sixteen.
        None
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        let work = self.work()?;
        let piece = match work.take() {
            Found::Piece(piece) => piece,
            Found::Busy => return Ok(Step::NoLane),
            Found::Nothing => return Ok(Step::Exhausted),
        };
        timed(&self.stage, self.task_time, || {
            if let Some(rest) = work.run(piece, || morsel.should_yield())? {
                work.put_back(rest);
                // G2.
                morsel.waker().wake();
            }
            Ok(Step::More)
        })
    }

    fn finalize(&self) -> Result<(), Failure> {
        self.stage.finish();
        let work = crate::lock(&self.work).take();
        Ok(work.expect("finalized once").finish()?)
    }
}

impl Gather {
    /// What there is to do, looked up by the first worker.
    fn work(&self) -> Result<Arc<Work>> {
        let mut work = crate::lock(&self.work);
        if let Some(work) = &*work {
            return Ok(Arc::clone(work));
        }
        let source = crate::lock(&self.source).take();
        let (tables, exchange) = source.expect("looked up once");
        let made = Arc::new(Work::new(tables, &exchange)?);
        *work = Some(Arc::clone(&made));
        Ok(made)
    }
}
