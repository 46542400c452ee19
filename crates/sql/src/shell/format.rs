//! Rows as text, batch by batch, so that results larger than memory can be
//! written.
//!
//! Every format goes to a buffer first, and the caller writes it: an error that
//! the data caused is told from a reader that went away.
//!
//! A table's columns are as wide as the first thousand rows ask for. A cell that
//! comes later and is wider pushes its line out; the alternative is to keep the
//! whole result. Widths are counted in characters, so wide ones (CJK) are off.

use std::fmt::{self, Write};
use std::str::FromStr;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv::WriterBuilder as CsvWriter;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{LineDelimited, WriterBuilder as JsonWriter};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// How rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns, for people.
    #[default]
    Table,
    /// Comma-separated, with a header.
    Csv,
    /// Separated by tabs, with a header.
    Tsv,
    /// One JSON array of objects per statement.
    Json,
    /// One JSON object per line.
    Ndjson,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 5] = [
        Format::Table,
        Format::Csv,
        Format::Tsv,
        Format::Json,
        Format::Ndjson,
    ];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Format::Table => "table",
            Format::Csv => "csv",
            Format::Tsv => "tsv",
            Format::Json => "json",
            Format::Ndjson => "ndjson",
        })
    }
}

/// The text named no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format '{0}': write table, csv, tsv, json or ndjson")]
pub struct ParseFormatError(String);

impl FromStr for Format {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Format, ParseFormatError> {
        Format::ALL
            .into_iter()
            .find(|format| format.to_string() == text)
            .ok_or_else(|| ParseFormatError(text.to_owned()))
    }
}

/// Rows whose cells decide how wide columns are.
const ROWS_MEASURED: usize = 1000;

/// Writes one result.
pub(super) struct Printer {
    format: Format,
    schema: SchemaRef,
    rows: u64,
    /// Lines of a table that wait until the widths are known.
    waiting: Vec<Vec<String>>,
    /// Widths of a table's columns, once they are known.
    widths: Option<Vec<usize>>,
}

impl Printer {
    pub(super) fn new(format: Format, schema: SchemaRef) -> Printer {
        Printer {
            format,
            schema,
            rows: 0,
            waiting: Vec::new(),
            widths: None,
        }
    }

    /// The text of a batch, as far as it can be said yet.
    pub(super) fn batch(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let text = match self.format {
            Format::Table => self.table(batch)?.into_bytes(),
            Format::Csv => self.separated(batch, b',')?,
            Format::Tsv => self.separated(batch, b'\t')?,
            Format::Ndjson => objects(batch)?,
            Format::Json => self.array(&objects(batch)?),
        };
        self.rows += batch.num_rows() as u64;
        Ok(text)
    }

    /// What is left to say at the end.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, ArrowError> {
        match self.format {
            Format::Table => {
                let mut text = self.measured();
                let rows = self.rows;
                let s = if rows == 1 { "" } else { "s" };
                // Writing into memory does not fail.
                let _ = writeln!(text, "({rows} row{s})");
                Ok(text.into_bytes())
            }
            // The header, if no batch has brought it.
            Format::Csv | Format::Tsv if self.rows == 0 => {
                self.batch(&RecordBatch::new_empty(self.schema.clone()))
            }
            Format::Json if self.rows == 0 => Ok(b"[]\n".to_vec()),
            Format::Json => Ok(b"\n]\n".to_vec()),
            Format::Csv | Format::Tsv | Format::Ndjson => Ok(Vec::new()),
        }
    }

    fn separated(&self, batch: &RecordBatch, delimiter: u8) -> Result<Vec<u8>, ArrowError> {
        let mut text = Vec::new();
        let mut writer = CsvWriter::new()
            .with_header(self.rows == 0)
            .with_delimiter(delimiter)
            .build(&mut text);
        writer.write(batch)?;
        drop(writer);
        Ok(text)
    }

    /// Lines of objects as further elements of an array.
    fn array(&self, lines: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(lines.len() + 16);
        let mut is_first = self.rows == 0;
        for line in lines.split(|&byte| byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            text.extend_from_slice(if is_first { b"[\n  " } else { b",\n  " });
            text.extend_from_slice(line);
            is_first = false;
        }
        text
    }

    fn table(&mut self, batch: &RecordBatch) -> Result<String, ArrowError> {
        let options = FormatOptions::default().with_null("NULL");
        let columns = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            let cells = columns
                .iter()
                .map(|column| column.value(row).try_to_string())
                .collect::<Result<Vec<_>, _>>()?;
            for cells in self.lines_of(&cells) {
                match &self.widths {
                    Some(widths) => self.line(&mut text, &cells, widths),
                    None => {
                        self.waiting.push(cells);
                        if self.waiting.len() == ROWS_MEASURED {
                            text = self.measured();
                        }
                    }
                }
            }
        }
        Ok(text)
    }

    /// A row as lines: one, or as many as a plan has. Other texts stay in one line, or
    /// they could look like rows.
    fn lines_of(&self, cells: &[String]) -> Vec<Vec<String>> {
        let names = self.schema.fields().iter().map(|field| field.name());
        if !names.eq(["plan_type", "plan"]) {
            return vec![cells.iter().map(|cell| plain(cell)).collect()];
        }
        let heights = cells.iter().map(|cell| cell.lines().count());
        let line = |number| {
            let part = |cell: &String| plain(cell.lines().nth(number).unwrap_or_default());
            cells.iter().map(part).collect()
        };
        (0..heights.fold(1, usize::max)).map(line).collect()
    }

    /// Header and waiting lines, unless that has been said.
    fn measured(&mut self) -> String {
        if self.widths.is_some() {
            return String::new();
        }
        let names: Vec<String> = self
            .schema
            .fields()
            .iter()
            .map(|field| plain(field.name()))
            .collect();
        let waiting = std::mem::take(&mut self.waiting);
        let mut widths = vec![0; names.len()];
        for cells in waiting.iter().chain([&names]) {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        self.line(&mut text, &names, &widths);
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
        text.push_str(&rules.join("+"));
        text.push('\n');
        for cells in &waiting {
            self.line(&mut text, cells, &widths);
        }
        self.widths = Some(widths);
        text
    }

    fn line(&self, text: &mut String, cells: &[String], widths: &[usize]) {
        let last = cells.len().saturating_sub(1);
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let is_number = right_aligned(self.schema.field(column).data_type());
            text.push_str(if column == 0 { " " } else { " | " });
            if is_number {
                text.push_str(&padding);
            }
            text.push_str(cell);
            if !is_number && column != last {
                text.push_str(&padding);
            }
        }
        text.push('\n');
    }
}

fn right_aligned(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// A cell in one line, which cannot move the cursor.
fn plain(cell: &str) -> String {
    if !cell.contains(char::is_control) {
        return cell.to_owned();
    }
    cell.chars()
        .flat_map(|c| match c {
            c if c.is_control() => c.escape_default().collect::<Vec<_>>(),
            c => vec![c],
        })
        .collect()
}

fn objects(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut text = Vec::new();
    let mut writer = JsonWriter::new()
        .with_explicit_nulls(true)
        .build::<_, LineDelimited>(&mut text);
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Decimal128Array, Int64Array, StringArray};

    use super::*;

    fn rows(names: &[Option<&str>], first: i64) -> RecordBatch {
        let numbers = (first..).take(names.len());
        let decimals = Decimal128Array::from_iter_values(names.iter().map(|_| 150))
            .with_precision_and_scale(10, 2)
            .unwrap();
        let columns: [(&str, ArrayRef); 3] = [
            ("name", Arc::new(StringArray::from(names.to_vec()))),
            ("id", Arc::new(Int64Array::from_iter_values(numbers))),
            ("sum", Arc::new(decimals)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn print(format: Format, batches: &[RecordBatch]) -> String {
        let mut printer = Printer::new(format, rows(&[], 0).schema());
        let mut text = Vec::new();
        for batch in batches {
            text.extend(printer.batch(batch).unwrap());
        }
        text.extend(printer.finish().unwrap());
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_plan_has_a_line_for_each_of_its_operators() {
        let plans: ArrayRef = Arc::new(StringArray::from(vec!["scan\n  filter", "x"]));
        let names: ArrayRef = Arc::new(StringArray::from(vec!["one", "t\u{7}wo"]));
        let batch = RecordBatch::try_from_iter([("plan_type", names), ("plan", plans)]).unwrap();
        let mut printer = Printer::new(Format::Table, batch.schema());
        let mut text = printer.batch(&batch).unwrap();
        text.extend(printer.finish().unwrap());
        assert_eq!(
            String::from_utf8(text).unwrap(),
            " plan_type | plan\n-----------+----------\n one       | scan\n           |   filter\n \
             t\\u{7}wo  | x\n(2 rows)\n"
        );
    }

    #[test]
    fn a_table_is_aligned() {
        assert_eq!(
            print(
                Format::Table,
                &[
                    rows(&[Some("äb"), None], 9),
                    rows(&[Some("x\n\u{1b}[2J")], 11)
                ]
            ),
            " name         | id |  sum\n\
             --------------+----+------\n \
             äb           |  9 | 1.50\n \
             NULL         | 10 | 1.50\n \
             x\\n\\u{1b}[2J | 11 | 1.50\n\
             (3 rows)\n"
        );
        assert_eq!(
            print(Format::Table, &[]),
            " name | id | sum\n------+----+-----\n(0 rows)\n"
        );
    }

    #[test]
    fn a_long_table_is_not_kept() {
        let many = vec![Some("a"); ROWS_MEASURED];
        let mut printer = Printer::new(Format::Table, rows(&[], 0).schema());
        assert!(!printer.batch(&rows(&many, 0)).unwrap().is_empty());
        assert!(printer.waiting.is_empty());
        let later = printer
            .batch(&rows(&[Some("wider than before")], 1))
            .unwrap();
        let later = String::from_utf8(later).unwrap();
        assert_eq!(later, " wider than before |   1 | 1.50\n");
        assert_eq!(printer.finish().unwrap(), b"(1001 rows)\n");
    }

    #[test]
    fn files_have_one_header() {
        let batches = [rows(&[Some("a,b")], 1), rows(&[None], 2)];
        assert_eq!(
            print(Format::Csv, &batches),
            "name,id,sum\n\"a,b\",1,1.50\n,2,1.50\n"
        );
        assert_eq!(
            print(Format::Tsv, &batches),
            "name\tid\tsum\na,b\t1\t1.50\n\t2\t1.50\n"
        );
        assert_eq!(print(Format::Csv, &[]), "name,id,sum\n");
    }

    #[test]
    fn json_is_one_array_or_lines() {
        let batches = [rows(&[Some("a")], 1), rows(&[], 0), rows(&[None], 2)];
        assert_eq!(
            print(Format::Json, &batches),
            "[\n  {\"name\":\"a\",\"id\":1,\"sum\":1.50},\n  {\"name\":null,\"id\":2,\"sum\":1.50}\n]\n"
        );
        assert_eq!(
            print(Format::Ndjson, &batches),
            "{\"name\":\"a\",\"id\":1,\"sum\":1.50}\n{\"name\":null,\"id\":2,\"sum\":1.50}\n"
        );
        assert_eq!(print(Format::Json, &[]), "[]\n");
        assert_eq!(print(Format::Ndjson, &[]), "");
    }

    #[test]
    fn formats_have_names() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "xml".parse::<Format>().unwrap_err().to_string();
        assert!(error.contains("ndjson"), "{error}");
    }
}
