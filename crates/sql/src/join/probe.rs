//! The probe of a join: a stream that looks up each batch in the table of its
//! partition.
//!
//! ```text
//!  probe batch ─hash─▶ chains ─keys equal─▶ pairs ─filter─▶ by type of join ─▶ out
//! ```
//!
//! P1. At most a batch of pairs is made at a time, however many partners a row has, and a
//!     bounded number of links is followed; the place in the chain is kept for the next
//!     one. The stream yields in between. (asserted in `look`: the batch)
//! P2. A probe row without a partner is known when its batch has been looked up to the
//!     end, a build row without one when every stream that reads its table has ended: the
//!     last of these streams gives out what the join wants of them.
//!     (asserted in `ProbeExec::execute`: no stream ends after the last)
//! P3. Where pairs do not matter, a probe row visits all its partners or finds the first
//!     of them visited: then another row of the same key visits the rest before the last
//!     stream ends, since chains have one order. So a frequent key costs its chain once, and
//!     not once for each row. (tested)

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{BatchCoalescer, filter};
use datafusion::arrow::datatypes::{SchemaRef, UInt32Type};
use datafusion::common::Result;
use datafusion::common::cast::as_boolean_array;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures_util::{Stream, StreamExt};

use crate::task_time::{serve, yield_if_over};

use super::build::Tables;
use super::lookup::Lookup;
use super::recipe::Recipe;
use super::table::JoinTable;

/// One stream of a probe.
pub(super) struct Probe {
    recipe: Arc<Recipe>,
    input: SendableRecordBatchStream,
    tables: Arc<Tables>,
    partition: usize,
    /// Says whether this stream is the last one of its table: P2.
    is_last: Box<dyn Fn() -> bool + Send>,
    output: BatchCoalescer,
    /// Rows without columns, which cannot be coalesced.
    bare_rows: usize,
    state: State,
    hashes: Vec<u64>,
}

enum State {
    /// The next batch is wanted.
    Asking,
    /// A batch is being looked up.
    Looking(Box<Lookup>),
    /// The table's rows from here on are given out.
    Rest(usize),
    Done,
}

impl Probe {
    pub(super) fn new(
        recipe: &Arc<Recipe>,
        input: SendableRecordBatchStream,
        tables: &Arc<Tables>,
        partition: usize,
        is_last: Box<dyn Fn() -> bool + Send>,
    ) -> Probe {
        let output = BatchCoalescer::new(Arc::clone(&recipe.schema), recipe.batch_rows)
            .with_biggest_coalesce_batch_size(Some(recipe.batch_rows / 2));
        Probe {
            recipe: Arc::clone(recipe),
            input,
            tables: Arc::clone(tables),
            partition,
            is_last,
            output,
            bare_rows: 0,
            state: State::Asking,
            hashes: Vec::new(),
        }
    }

    fn table(&self) -> &JoinTable {
        self.tables.probed(self.partition)
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        match batch.num_columns() {
            0 => self.bare_rows += batch.num_rows(),
            _ => self.output.push_batch(batch)?,
        }
        Ok(())
    }

    /// A batch that can be given out.
    fn completed(&mut self) -> Result<Option<RecordBatch>> {
        let rows = std::mem::take(&mut self.bare_rows);
        if rows == 0 {
            return Ok(self.output.next_completed_batch());
        }
        let schema = Arc::clone(&self.recipe.schema);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
        Ok(Some(batch))
    }

    fn begin(&mut self, batch: RecordBatch) -> Result<State> {
        if batch.num_rows() == 0 {
            return Ok(State::Asking);
        }
        let table = self.tables.probed(self.partition);
        let lookup = Lookup::new(batch, &self.recipe, table, &mut self.hashes)?;
        Ok(State::Looking(Box::new(lookup)))
    }

    /// Looks up until there is a batch of pairs (P1) or the batch has been done with.
    fn look(&mut self, mut lookup: Box<Lookup>) -> Result<State> {
        let (build, probe) = lookup.pairs(&self.recipe, self.table(), &self.hashes);
        debug_assert!(build.len() <= self.recipe.batch_rows, "P1: {}", build.len());
        if !build.is_empty() {
            self.join(&mut lookup, build, probe)?;
        }
        if !lookup.is_done() {
            return Ok(State::Looking(lookup));
        }
        if let Some(wanted) = self.recipe.wants_probe_rows() {
            let rows = lookup.rows(wanted)?;
            let (schema, columns) = (&self.recipe.schema, &self.recipe.columns);
            let count = rows.num_rows();
            let batch = (self.recipe).batch(schema, columns, count, None, Some((&rows, None)))?;
            self.push(batch)?;
        }
        Ok(State::Asking)
    }

    /// What becomes of pairs.
    fn join(&mut self, lookup: &mut Lookup, build: Vec<u32>, probe: Vec<u32>) -> Result<()> {
        let recipe = Arc::clone(&self.recipe);
        let (mut build, mut probe) = (UInt32Array::from(build), UInt32Array::from(probe));
        if let Some(join_filter) = &recipe.filter {
            let batch = recipe.batch(
                join_filter.schema(),
                join_filter.column_indices(),
                build.len(),
                Some((&self.table().columns, &build)),
                Some((&lookup.batch, Some(&probe))),
            )?;
            let mask = (join_filter.expression().evaluate(&batch)?).into_array(batch.num_rows())?;
            let mask = as_boolean_array(&mask)?;
            build = filter(&build, mask)?.as_primitive::<UInt32Type>().clone();
            probe = filter(&probe, mask)?.as_primitive::<UInt32Type>().clone();
        }
        if Recipe::is_visited(recipe.kind) {
            let table = self.table();
            build
                .values()
                .iter()
                .for_each(|&row| table.visit(row as usize));
        }
        if recipe.wants_probe_rows().is_some() {
            lookup.matches(&probe);
        }
        if !recipe.gives_pairs() || build.is_empty() {
            return Ok(());
        }
        // Every row has one partner, as with a foreign key: nothing to copy.
        let is_whole = probe.len() == lookup.batch.num_rows()
            && (probe.values().iter().enumerate()).all(|(at, &row)| at == row as usize);
        let batch = recipe.batch(
            &recipe.schema,
            &recipe.columns,
            build.len(),
            Some((&self.table().columns, &build)),
            Some((&lookup.batch, (!is_whole).then_some(&probe))),
        )?;
        self.push(batch)
    }

    /// Gives out the table's rows: P2.
    fn rest(&mut self, from: usize, wanted: bool) -> Result<State> {
        let table = self.table();
        let mut rows = Vec::new();
        let mut row = from;
        while row < table.rows() && rows.len() < self.recipe.batch_rows {
            if table.is_visited(row) == wanted {
                rows.push(row as u32);
            }
            row += 1;
        }
        let rows = UInt32Array::from(rows);
        let batch = self.recipe.batch(
            &self.recipe.schema,
            &self.recipe.columns,
            rows.len(),
            Some((&table.columns, &rows)),
            None,
        )?;
        let is_over = row == table.rows();
        self.push(batch)?;
        Ok(match is_over {
            true => State::Done,
            false => State::Rest(row),
        })
    }

    fn ended(&self) -> State {
        match self.recipe.wants_build_rows() {
            Some(_) if (self.is_last)() => State::Rest(0),
            _ => State::Done,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<RecordBatch>>> {
        loop {
            if let Some(batch) = self.completed()? {
                serve();
                return Poll::Ready(Ok(Some(batch)));
            }
            self.state = match std::mem::replace(&mut self.state, State::Done) {
                State::Asking
                    if Recipe::needs_partner(self.recipe.kind) && self.table().rows() == 0 =>
                {
                    self.ended()
                }
                State::Asking => {
                    self.state = State::Asking;
                    match ready!(self.input.poll_next_unpin(context)) {
                        Some(batch) => self.begin(batch?)?,
                        None => self.ended(),
                    }
                }
                State::Looking(lookup) => {
                    if crate::task_time::is_over() {
                        self.state = State::Looking(lookup);
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    let state = self.look(lookup)?;
                    serve();
                    state
                }
                State::Rest(from) => {
                    self.state = State::Rest(from);
                    yield_if_over!(context);
                    serve();
                    let wanted = self.recipe.wants_build_rows().expect("otherwise done");
                    self.rest(from, wanted)?
                }
                State::Done => {
                    self.output.finish_buffered_batch()?;
                    return Poll::Ready(Ok(self.output.next_completed_batch()));
                }
            };
        }
    }
}

impl Stream for Probe {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context).map(Result::transpose)
    }
}

impl RecordBatchStream for Probe {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.recipe.schema)
    }
}
