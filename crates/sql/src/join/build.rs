//! The build of a join: two pipelines that make its tables, in pieces of any size.
//!
//! ```text
//!  exchange ──gather──▶ one array per column and key ──enter──▶ chains
//!             steps: parts of arrays                   units: blocks of rows
//! ```
//!
//! Stock DataFusion does both in one poll, which takes up to some hundred
//! milliseconds (its `collect_left_input`). Here the first one (`gather`) is cut at
//! every batch that goes into an array, and the second one at every block of rows: the
//! scheduler sizes its morsels as it does those of any pipeline that can be divided
//! (Section 3.1).

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::NullEquality;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::PhysicalExpr;
use giveway_tasks::{Failure, Morsel, Pipeline, Step};

use crate::progress::Stage;

use super::filter::KeyFilter;
use super::table::JoinTable;

/// Rows of a unit of [`Enter`]. A pipeline's first morsel has sixteen units, so one worker
/// enters all rows of a table of up to 32,768. Two at a time take lines of a small table from
/// each other: 150 ns a row, where stock DataFusion, which has one, takes 10.
const BLOCK_ROWS: u64 = 2048;

/// All tables of a join, one per partition of its build side.
pub(super) struct Tables {
    pub(super) schema: SchemaRef,
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    equality: NullEquality,
    /// Whether rows remember that they have found a partner.
    pub(super) is_visited: bool,
    /// What the probe side's scans are told.
    filter: Option<KeyFilter>,
    partitions: Vec<OnceLock<JoinTable>>,
    /// Whether all rows have been entered.
    is_full: AtomicBool,
    pub(super) memory: MemoryReservation,
}

impl Tables {
    pub(super) fn new(
        schema: SchemaRef,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        equality: NullEquality,
        is_visited: bool,
        filter: Option<KeyFilter>,
        partitions: usize,
        pool: &Arc<dyn MemoryPool>,
    ) -> Tables {
        Tables {
            schema,
            keys,
            equality,
            is_visited,
            filter,
            partitions: (0..partitions).map(|_| OnceLock::new()).collect(),
            is_full: AtomicBool::new(false),
            memory: MemoryConsumer::new("join").register(pool),
        }
    }

    /// A partition's table, once it has been filled.
    pub(super) fn table(&self, partition: usize) -> &JoinTable {
        let table = self.partitions[partition].get();
        table.expect("gathered before it is entered or probed")
    }

    /// A partition's table, for a probe: B2 of `table`.
    pub(super) fn probed(&self, partition: usize) -> &JoinTable {
        debug_assert!(self.is_full.load(Relaxed), "B2: probed before it is full");
        self.table(partition)
    }

    /// A partition has been gathered.
    pub(super) fn fill(&self, partition: usize, table: JoinTable) {
        let fresh = self.partitions[partition].set(table).is_ok();
        assert!(fresh, "gathered once");
    }

    pub(super) fn count(&self) -> usize {
        self.partitions.len()
    }
}

/// Counts a morsel's length as that of a task: the scheduler makes tasks of morsels.
pub(super) fn timed<R>(stage: &Stage, task_time: Duration, run: impl FnOnce() -> R) -> R {
    let began = Instant::now();
    let result = run();
    stage.overruns.count(began.elapsed(), task_time);
    result
}

/// The second pipeline. Lets go of the tables when they are full.
pub(super) struct Enter {
    tables: Mutex<Option<Arc<Tables>>>,
    /// Where each partition ends: blocks of all partitions are numbered through.
    ends: OnceLock<Vec<u64>>,
    stage: Arc<Stage>,
    task_time: Duration,
}

impl Enter {
    pub(super) fn new(tables: &Arc<Tables>, stage: Arc<Stage>, task_time: Duration) -> Enter {
        Enter {
            tables: Mutex::new(Some(Arc::clone(tables))),
            ends: OnceLock::new(),
            stage,
            task_time,
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
                    let rows = tables.table(partition).rows() as u64;
                    *end += rows.div_ceil(BLOCK_ROWS);
                    Some(*end)
                })
                .collect()
        });
        Some(ends.last().copied().unwrap_or(0))
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        timed(&self.stage, self.task_time, || {
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
                let table = tables.table(partition);
                let row = |block: u64| ((block - first) * BLOCK_ROWS) as usize;
                let local = row(range.start)..row(end).min(table.rows());
                if let Some(filter) = &tables.filter {
                    filter.see(&table.keys, &local)?;
                }
                table.enter(local, tables.equality)?;
                range.start = end;
            }
            Ok(Step::More)
        })
    }

    fn finalize(&self) -> Result<(), Failure> {
        self.stage.finish();
        if let Some(tables) = crate::lock(&self.tables).take() {
            tables.is_full.store(true, Relaxed);
            if let Some(filter) = &tables.filter {
                filter.publish()?;
            }
        }
        Ok(())
    }
}
