//! Answers of queries as rows of text, to be compared.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// A row: the text of each column, empty for NULL.
pub(crate) type Row = Vec<String>;

/// All rows of an answer.
///
/// # Errors
/// A value that cannot be shown.
pub(crate) fn rows(batches: &[RecordBatch]) -> Result<Vec<Row>, ArrowError> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cells = columns
                .iter()
                .map(|column| column.value(row).try_to_string());
            rows.push(cells.collect::<Result<_, _>>()?);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn batches_become_rows_of_text() {
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some("x "), None]));
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let sums: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1e6]));
        let columns = [("name", names), ("count", counts), ("sum", sums)];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, column)| (name, column, true)),
        );
        let rows = rows(&[batch.unwrap()]).unwrap();
        assert_eq!(rows, [["x ", "1", "0.5"], ["", "2", "1000000.0"]]);
    }
}
