//! What a join does, apart from its data: which rows come out, and with which columns.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};

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
    pub(super) fn gives_pairs(&self) -> bool {
        matches!(
            self.kind,
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
        )
    }

    /// Whether nothing comes of a probe row without a partner, nor of an empty table.
    pub(super) fn needs_partner(kind: JoinType) -> bool {
        !matches!(kind, JoinType::Right | JoinType::Full | JoinType::RightAnti)
    }

    /// Which rows of a probe batch come out by themselves: those that have found a
    /// partner, or those that have not.
    pub(super) fn wants_probe_rows(&self) -> Option<bool> {
        match self.kind {
            JoinType::RightSemi => Some(true),
            JoinType::RightAnti | JoinType::Right | JoinType::Full => Some(false),
            _ => None,
        }
    }

    /// The same of the table's rows, at the end.
    pub(super) fn wants_build_rows(&self) -> Option<bool> {
        match self.kind {
            JoinType::LeftSemi => Some(true),
            JoinType::LeftAnti | JoinType::Left | JoinType::Full => Some(false),
            _ => None,
        }
    }

    /// A batch of these columns, of rows of both sides; a side without rows is null.
    pub(super) fn batch(
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
