//! Rows on their way into COPY: text, in chunks, escaped where a value may need
//! it.

use std::fmt::{Display, Write as _};
use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt;

use crate::harness::error::{Error, Result};
use crate::workload::postgres::Session;

/// Chunks large enough that neither side works per row.
const CHUNK: usize = 256 * 1024;

/// Builds rows of tab-separated fields.
#[derive(Default)]
pub(super) struct Rows {
    text: String,
    in_row: bool,
}

impl Rows {
    /// Appends a field whose text has no tab, newline or backslash.
    pub(super) fn field(&mut self, value: impl Display) -> &mut Self {
        if self.in_row {
            self.text.push('\t');
        }
        self.in_row = true;
        write!(self.text, "{value}").expect("writing to memory does not fail");
        self
    }

    /// Appends a NULL.
    pub(super) fn null(&mut self) -> &mut Self {
        self.field("\\N")
    }

    /// Appends an amount of money.
    pub(super) fn cents(&mut self, cents: i64) -> &mut Self {
        let sign = if cents < 0 { "-" } else { "" };
        let cents = cents.unsigned_abs();
        self.field(format_args!("{sign}{}.{:02}", cents / 100, cents % 100))
    }

    /// Appends a rate in units of 1/10000.
    pub(super) fn rate(&mut self, rate: i64) -> &mut Self {
        self.field(format_args!("0.{rate:04}"))
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Ends the row.
    pub(super) fn end(&mut self) {
        self.text.push('\n');
        self.in_row = false;
    }
}

/// Loads `table` in one transaction: created by `create`, filled by `next`
/// (called until it returns false, each call appending some rows), indexed by
/// `index`.
pub(super) fn load(
    session: &Session,
    table: &str,
    create: &str,
    index: &str,
    mut next: impl FnMut(&mut Rows) -> bool,
) -> Result<()> {
    let work = async {
        session
            .client
            .batch_execute(&format!("BEGIN; {create}"))
            .await?;
        let copy = format!("COPY {table} FROM STDIN WITH (FREEZE)");
        let mut sink = pin!(session.client.copy_in::<_, Bytes>(&copy).await?);
        let mut rows = Rows::default();
        let mut more = true;
        while more {
            more = next(&mut rows);
            if rows.text.len() >= CHUNK || !more {
                let chunk = std::mem::replace(&mut rows.text, String::with_capacity(2 * CHUNK));
                sink.send(Bytes::from(chunk)).await?;
            }
        }
        sink.finish().await?;
        session
            .client
            .batch_execute(&format!("{index}; COMMIT"))
            .await
    };
    session
        .wait(work)
        .map_err(Error::sql(format!("loading table {table}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_copy_reads() {
        let mut rows = Rows::default();
        rows.field(1).cents(-1005).rate(70).null().field("x").end();
        rows.field("").cents(7).end();
        assert_eq!(rows.text, "1\t-10.05\t0.0070\t\\N\tx\n\t0.07\n");
    }
}
