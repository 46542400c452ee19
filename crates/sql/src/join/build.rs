//! The build of a join: two pipelines that make its tables, in pieces of any size.
//!
//! ```text
//!  exchange ──gather──▶ one array per column and key ──enter──▶ chains
//!             steps: (partition, array)               units: rows
//! ```
//!
//! Stock DataFusion does both in one poll, which takes up to some hundred
//! milliseconds (its `collect_left_input`). Here the first one is cut at arrays, and
//! the second one anywhere: the scheduler sizes its morsels as it does those of any
//! pipeline that can be divided (Section 3.1).
//!
//! Known weakness: an array is gathered in one go. A partition of a million rows has
//! arrays of 8 MB, which take about a t_max each.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_empty_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{NullEquality, Result, exec_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::PhysicalExpr;
use giveway_tasks::{Failure, Morsel, Pipeline, Step};

use crate::exchange::Exchange;
use crate::progress::Stage;

use super::table::{BYTES_PER_ROW, Chains, JoinTable};

/// All tables of a join, one per partition of its build side.
pub(super) struct Tables {
    schema: SchemaRef,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    equality: NullEquality,
    /// Whether rows remember that they have found a partner.
    is_visited: bool,
    partitions: Vec<OnceLock<JoinTable>>,
    memory: MemoryReservation,
}

impl Tables {
    pub(super) fn new(
        schema: SchemaRef,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        equality: NullEquality,
        is_visited: bool,
        partitions: usize,
        pool: &Arc<dyn MemoryPool>,
    ) -> Tables {
        Tables {
            schema,
            keys,
            equality,
            is_visited,
            partitions: (0..partitions).map(|_| OnceLock::new()).collect(),
            memory: MemoryConsumer::new("join").register(pool),
        }
    }

    /// A partition's table, once it has been filled.
    pub(super) fn table(&self, partition: usize) -> &JoinTable {
        let table = self.partitions[partition].get();
        table.expect("gathered before it is entered or probed")
    }

    pub(super) fn count(&self) -> usize {
        self.partitions.len()
    }
}

/// What the two pipelines know of a turn: morsels are tasks' business, and their
/// lengths are counted as those of turns.
fn timed<R>(stage: &Stage, turn: Duration, run: impl FnOnce() -> R) -> R {
    let began = Instant::now();
    let result = run();
    stage.overruns.count(began.elapsed(), turn);
    result
}

/// The first pipeline. Lets go of what it has when it is done.
pub(super) struct Gather {
    source: Mutex<Option<(Arc<Tables>, Arc<Exchange>)>>,
    work: Mutex<Option<Arc<Work>>>,
    stage: Arc<Stage>,
    turn: Duration,
}

/// What there is to gather, known when the exchange is complete.
struct Work {
    tables: Arc<Tables>,
    partitions: Vec<Partition>,
    /// The next step. Steps are too long to be a pipeline's units: a task begins with
    /// sixteen of these.
    next: AtomicUsize,
}

struct Partition {
    batches: Mutex<Vec<RecordBatch>>,
    rows: usize,
    arrays: Vec<OnceLock<ArrayRef>>,
    chains: Mutex<Option<Chains>>,
    /// The exchange's.
    memory: Mutex<Option<MemoryReservation>>,
}

impl Gather {
    pub(super) fn new(
        tables: &Arc<Tables>,
        exchange: Arc<Exchange>,
        stage: Arc<Stage>,
        turn: Duration,
    ) -> Gather {
        Gather {
            source: Mutex::new(Some((Arc::clone(tables), exchange))),
            work: Mutex::new(None),
            stage,
            turn,
        }
    }
}

impl Work {
    fn new(tables: Arc<Tables>, exchange: &Exchange) -> Work {
        let arrays = tables.schema.fields().len() + tables.keys.len();
        let partition = |partition| {
            let (batches, memory) = exchange.take(partition);
            Partition {
                rows: batches.iter().map(RecordBatch::num_rows).sum(),
                batches: Mutex::new(batches),
                arrays: (0..arrays).map(|_| OnceLock::new()).collect(),
                chains: Mutex::new(None),
                memory: Mutex::new(Some(memory)),
            }
        };
        Work {
            partitions: (0..tables.count()).map(partition).collect(),
            tables,
            next: AtomicUsize::new(0),
        }
    }

    /// Steps of a partition: its columns, its keys, its chains.
    fn steps_each(&self) -> usize {
        self.tables.schema.fields().len() + self.tables.keys.len() + 1
    }

    /// Takes a step, if there is one left.
    fn take(&self) -> Option<usize> {
        let step = self.next.fetch_add(1, Relaxed);
        (step < self.partitions.len() * self.steps_each()).then_some(step)
    }

    fn gather(&self, step: usize) -> Result<()> {
        let tables = &self.tables;
        let each = self.steps_each();
        let partition = &self.partitions[step / each];
        let index = step % each;
        let columns = tables.schema.fields().len();
        if index == each - 1 {
            if partition.rows >= u32::MAX as usize {
                return exec_err!(
                    "{} rows in one partition of a join's build side: give the engine more \
                     partitions",
                    partition.rows
                );
            }
            tables.memory.try_grow(partition.rows * BYTES_PER_ROW)?;
            let chains = Chains::new(partition.rows, tables.is_visited);
            *crate::lock(&partition.chains) = Some(chains);
            return Ok(());
        }
        let key = index.checked_sub(columns).map(|key| &tables.keys[key]);
        if key.is_some_and(|key| key.is::<Column>()) {
            // It is among the columns.
            return Ok(());
        }
        let batches = crate::lock(&partition.batches).clone();
        let parts = (batches.iter())
            .map(|batch| match key {
                Some(key) => key.evaluate(batch)?.into_array(batch.num_rows()),
                None => Ok(Arc::clone(batch.column(index))),
            })
            .collect::<Result<Vec<_>>>()?;
        let array = match parts.as_slice() {
            [] => {
                let data_type = match key {
                    Some(key) => key.data_type(&tables.schema)?,
                    None => tables.schema.field(index).data_type().clone(),
                };
                new_empty_array(&data_type)
            }
            [only] => Arc::clone(only),
            parts => {
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                let array = concat(&parts)?;
                tables.memory.try_grow(array.get_buffer_memory_size())?;
                array
            }
        };
        let fresh = partition.arrays[index].set(array).is_ok();
        assert!(fresh, "a step is taken once");
        Ok(())
    }

    /// Puts together what has been gathered.
    fn finish(&self) -> Result<()> {
        let tables = &self.tables;
        let columns = tables.schema.fields().len();
        for (index, partition) in self.partitions.iter().enumerate() {
            let array = |index: usize| {
                let array = partition.arrays[index].get();
                Arc::clone(array.expect("all steps have been taken"))
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
            let chains = chains.expect("all steps have been taken");
            let table = JoinTable::new(batch, keys, chains);
            let is_copied = crate::lock(&partition.batches).len() > 1;
            crate::lock(&partition.batches).clear();
            if let Some(memory) = crate::lock(&partition.memory).take() {
                if !is_copied {
                    // The table has the batch itself.
                    tables.memory.grow(memory.size());
                }
                drop(memory);
            }
            let fresh = tables.partitions[index].set(table).is_ok();
            assert!(fresh, "finished once");
        }
        Ok(())
    }
}

impl Pipeline for Gather {
    fn units(&self) -> Option<u64> {
        let (tables, exchange) = crate::lock(&self.source).take().expect("asked for once");
        *crate::lock(&self.work) = Some(Arc::new(Work::new(tables, &exchange)));
        None
    }

    fn run(&self, _: &Morsel<'_>) -> Result<Step, Failure> {
        timed(&self.stage, self.turn, || {
            let work = crate::lock(&self.work).clone();
            let work = work.expect("held until all steps have been taken");
            match work.take() {
                Some(step) => work.gather(step)?,
                None => return Ok(Step::Exhausted),
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

/// The second pipeline. Lets go of the tables when they are full.
pub(super) struct Enter {
    tables: Mutex<Option<Arc<Tables>>>,
    /// Where each partition ends: rows of all partitions are numbered through.
    ends: OnceLock<Vec<u64>>,
    stage: Arc<Stage>,
    turn: Duration,
}

impl Enter {
    pub(super) fn new(tables: &Arc<Tables>, stage: Arc<Stage>, turn: Duration) -> Enter {
        Enter {
            tables: Mutex::new(Some(Arc::clone(tables))),
            ends: OnceLock::new(),
            stage,
            turn,
        }
    }

    fn tables(&self) -> Arc<Tables> {
        let tables = crate::lock(&self.tables).clone();
        tables.expect("held until all rows have been entered")
    }
}

impl Pipeline for Enter {
    fn units(&self) -> Option<u64> {
        let tables = self.tables();
        let ends = self.ends.get_or_init(|| {
            (0..tables.count())
                .scan(0, |end, partition| {
                    *end += tables.table(partition).rows() as u64;
                    Some(*end)
                })
                .collect()
        });
        Some(ends.last().copied().unwrap_or(0))
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        timed(&self.stage, self.turn, || {
            let tables = self.tables();
            let ends = self.ends.get().expect("asked for its units before");
            let mut range = morsel.range();
            while !range.is_empty() {
                let partition = ends.partition_point(|&end| end <= range.start);
                let first = match partition {
                    0 => 0,
                    _ => ends[partition - 1],
                };
                let end = range.end.min(ends[partition]);
                let local = (range.start - first) as usize..(end - first) as usize;
                tables.table(partition).enter(local, tables.equality)?;
                range.start = end;
            }
            Ok(Step::More)
        })
    }

    fn finalize(&self) -> Result<(), Failure> {
        self.stage.finish();
        crate::lock(&self.tables).take();
        Ok(())
    }
}
