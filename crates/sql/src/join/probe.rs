//! The probe of a join: a stream that looks up each batch in the table of its
//! partition.
//!
//! ```text
//!  probe batch ─hash─▶ chains ─keys equal─▶ pairs ─filter─▶ by type of join ─▶ out
//! ```
//!
//! P1. At most a batch of pairs is made at a time, however many partners a row has; the
//!     place in the chain is kept for the next one. The stream gives way in between.
//! P2. A probe row without a partner is known when its batch has been looked up to the
//!     end, a build row without one when every lane that reads its table has ended: the
//!     last of these lanes gives out what the join wants of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use datafusion::arrow::compute::{BatchCoalescer, filter, filter_record_batch, take};
use datafusion::arrow::datatypes::{SchemaRef, UInt32Type};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use futures_util::{Stream, StreamExt};

use crate::turn::{give_way, serve};

use super::build::Tables;
use super::table::{Equal, JoinTable, Matchable, hashes};

/// What a join does, apart from its data.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) kind: JoinType,
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) filter: Option<JoinFilter>,
    pub(super) equality: NullEquality,
    /// Where the columns of the output come from.
    pub(super) columns: Vec<ColumnIndex>,
    pub(super) schema: SchemaRef,
    pub(super) batch_rows: usize,
}

impl Recipe {
    /// Whether build rows remember that they have found a partner.
    pub(super) fn is_visited(kind: JoinType) -> bool {
        matches!(
            kind,
            JoinType::Left | JoinType::Full | JoinType::LeftSemi | JoinType::LeftAnti
        )
    }

    /// Whether pairs are given out.
    fn gives_pairs(&self) -> bool {
        matches!(
            self.kind,
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
        )
    }

    /// Whether nothing comes of a probe row without a partner, nor of an empty table.
    fn needs_partner(&self) -> bool {
        !matches!(
            self.kind,
            JoinType::Right | JoinType::Full | JoinType::RightAnti
        )
    }

    /// Which rows of a probe batch come out by themselves: those that have found a
    /// partner, or those that have not.
    fn wants_probe_rows(&self) -> Option<bool> {
        match self.kind {
            JoinType::RightSemi => Some(true),
            JoinType::RightAnti | JoinType::Right | JoinType::Full => Some(false),
            _ => None,
        }
    }

    /// The same of the table's rows, at the end.
    fn wants_build_rows(&self) -> Option<bool> {
        match self.kind {
            JoinType::LeftSemi => Some(true),
            JoinType::LeftAnti | JoinType::Left | JoinType::Full => Some(false),
            _ => None,
        }
    }

    /// A batch of these columns, of rows of both sides; a side without rows is null.
    fn batch(
        &self,
        schema: &SchemaRef,
        columns: &[ColumnIndex],
        rows: usize,
        build: Option<(&RecordBatch, &UInt32Array)>,
        probe: Option<(&RecordBatch, Option<&UInt32Array>)>,
    ) -> Result<RecordBatch> {
        let column = |(index, column): (usize, &ColumnIndex)| -> Result<ArrayRef> {
            Ok(match (column.side, build, probe) {
                (JoinSide::Left, Some((batch, rows)), _) => {
                    take(batch.column(column.index), rows, None)?
                }
                (JoinSide::Right, _, Some((batch, None))) => Arc::clone(batch.column(column.index)),
                (JoinSide::Right, _, Some((batch, Some(rows)))) => {
                    take(batch.column(column.index), rows, None)?
                }
                _ => new_null_array(schema.field(index).data_type(), rows),
            })
        };
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(schema),
            (columns.iter().enumerate())
                .map(column)
                .collect::<Result<_>>()?,
            &RecordBatchOptions::new().with_row_count(Some(rows)),
        )?)
    }
}

/// One lane of a probe.
pub(super) struct Probe {
    recipe: Arc<Recipe>,
    input: SendableRecordBatchStream,
    tables: Arc<Tables>,
    partition: usize,
    /// Says whether this lane is the last one of its table: P2.
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

/// A probe batch, and how far it has been looked up.
struct Lookup {
    batch: RecordBatch,
    keys: Vec<ArrayRef>,
    equal: Equal,
    row: usize,
    /// The next link of the row's chain; `None` before the first.
    link: Option<u32>,
    /// Which rows have found a partner, if somebody asks.
    matched: Vec<bool>,
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
        self.tables.table(self.partition)
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
        let keys = (self.recipe.keys.iter())
            .map(|key| key.evaluate(&batch)?.into_array(batch.num_rows()))
            .collect::<Result<Vec<_>>>()?;
        hashes(&keys, batch.num_rows(), &mut self.hashes)?;
        let equal = self.table().equal(&keys, self.recipe.equality)?;
        let matched = match self.recipe.wants_probe_rows() {
            Some(_) => vec![false; batch.num_rows()],
            None => Vec::new(),
        };
        Ok(State::Looking(Box::new(Lookup {
            batch,
            keys,
            equal,
            row: 0,
            link: None,
            matched,
        })))
    }

    /// Looks up until there is a batch of pairs (P1) or the batch has been done with.
    fn look(&mut self, mut lookup: Box<Lookup>) -> Result<State> {
        let (mut build, mut probe) = (Vec::new(), Vec::new());
        self.pairs(&mut lookup, &mut build, &mut probe);
        if !build.is_empty() {
            self.join(&mut lookup, build, probe)?;
        }
        if lookup.row < lookup.batch.num_rows() {
            return Ok(State::Looking(lookup));
        }
        if let Some(wanted) = self.recipe.wants_probe_rows() {
            let mask: BooleanArray = (lookup
                .matched
                .iter()
                .map(|&matched| Some(matched == wanted)))
            .collect();
            let rows = filter_record_batch(&lookup.batch, &mask)?;
            let (schema, columns) = (&self.recipe.schema, &self.recipe.columns);
            let count = rows.num_rows();
            let batch = (self.recipe).batch(schema, columns, count, None, Some((&rows, None)))?;
            self.push(batch)?;
        }
        Ok(State::Asking)
    }

    /// Collects pairs whose keys are equal. If nothing but whether there are any
    /// matters, notes that instead.
    fn pairs(&self, lookup: &mut Lookup, build: &mut Vec<u32>, probe: &mut Vec<u32>) {
        let table = self.table();
        let recipe = &*self.recipe;
        let matchable = Matchable::new(&lookup.keys, recipe.equality);
        let is_plain = recipe.filter.is_none() && !recipe.gives_pairs();
        let marks_build = Recipe::is_visited(recipe.kind);
        while lookup.row < lookup.batch.num_rows() {
            let row = lookup.row;
            let hash = self.hashes[row];
            let mut link = match lookup.link.take() {
                Some(link) => link,
                None if matchable.is(row) => table.head(hash),
                None => 0,
            };
            while link != 0 {
                if build.len() == recipe.batch_rows {
                    // P1.
                    lookup.link = Some(link);
                    return;
                }
                let (other, is_same, next) = table.link(link, hash);
                link = next;
                if !is_same || !lookup.equal.is(other, row) {
                    continue;
                }
                if !is_plain {
                    build.push(other as u32);
                    probe.push(row as u32);
                } else if marks_build {
                    table.visit(other);
                } else {
                    lookup.matched[row] = true;
                    break;
                }
            }
            lookup.row += 1;
        }
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
            for &row in probe.values() {
                lookup.matched[row as usize] = true;
            }
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
                State::Asking if self.recipe.needs_partner() && self.table().rows() == 0 => {
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
                    if crate::turn::is_over() {
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
                    give_way!(context);
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
