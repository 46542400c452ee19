//! What a record says: the changes of one transaction, or a change of the schema.
//!
//! A record's body is a list of changes. Each is redo only: what a row is now, or
//! the key of one that is gone. The log has them in commit order, so replaying a
//! record twice, or one that a checkpoint has already, changes nothing.
//!
//! ```text
//! change   kind 1 │ table 4 │ length 4 │ bytes
//!   put         the row, as the engine keeps it
//!   delete      the primary key, as the index keeps it
//!   table       the schema: the table is new, or has another schema from here on
//!   drop        nothing: the table is gone
//! ```
//!
//! A change of the schema has a timestamp of its own, as a transaction has. In the
//! formats before version 3 it was only a new table, in front of the transactions that
//! use it, with the timestamp of the record before.

use super::error::Flaw;
use super::format::u32_at;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const TABLE: u8 = 3;
const DROP: u8 = 4;
/// Bytes in front of what a change carries.
const CHANGE_HEADER: usize = 9;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The row is there now, in place of one with the same primary key.
    Put {
        /// The table's number.
        table: u32,
        /// The row.
        row: &'a [u8],
    },
    /// The row with this primary key is gone.
    Delete {
        /// The table's number.
        table: u32,
        /// The key.
        key: &'a [u8],
    },
    /// The table has this schema now.
    Table {
        /// The table's number.
        table: u32,
        /// Its encoded schema.
        schema: &'a [u8],
    },
    /// The table is gone, if it was there; its number is not used again.
    Drop {
        /// The table's number.
        table: u32,
    },
}

impl Change<'_> {
    /// Adds the change to a record's body.
    pub(crate) fn encode(&self, body: &mut Vec<u8>) {
        let (kind, table, bytes) = match *self {
            Change::Put { table, row } => (PUT, table, row),
            Change::Delete { table, key } => (DELETE, table, key),
            Change::Table { table, schema } => (TABLE, table, schema),
            Change::Drop { table } => (DROP, table, &[][..]),
        };
        body.push(kind);
        body.extend_from_slice(&table.to_le_bytes());
        // A record's length has been checked, and it is longer than this part.
        body.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        body.extend_from_slice(bytes);
    }

    /// Bytes that [`encode`](Self::encode) adds.
    pub(crate) fn encoded_len(&self) -> usize {
        CHANGE_HEADER
            + match self {
                Change::Put { row: bytes, .. }
                | Change::Delete { key: bytes, .. }
                | Change::Table { schema: bytes, .. } => bytes.len(),
                Change::Drop { .. } => 0,
            }
    }
}

/// The changes of a record's body.
pub(crate) fn changes(mut body: &[u8]) -> impl Iterator<Item = Result<Change<'_>, Flaw>> {
    std::iter::from_fn(move || {
        (!body.is_empty()).then(|| {
            let (change, rest) = decode(body)
                .ok_or(Flaw::Contents)
                .inspect_err(|_| body = &[])?;
            body = rest;
            Ok(change)
        })
    })
}

fn decode(body: &[u8]) -> Option<(Change<'_>, &[u8])> {
    let header = body.get(..CHANGE_HEADER)?;
    let table = u32_at(header, 1);
    let (bytes, rest) = body[CHANGE_HEADER..].split_at_checked(u32_at(header, 5) as usize)?;
    let change = match header[0] {
        PUT => Change::Put { table, row: bytes },
        DELETE => Change::Delete { table, key: bytes },
        TABLE => Change::Table {
            table,
            schema: bytes,
        },
        DROP if bytes.is_empty() => Change::Drop { table },
        _ => return None,
    };
    Some((change, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_values_are_decoded_and_cut_ones_refused() {
        let all = [
            Change::Table {
                table: 7,
                schema: b"schema",
            },
            Change::Put {
                table: 7,
                row: b"row",
            },
            Change::Delete { table: 8, key: b"" },
            Change::Drop { table: 7 },
        ];
        let mut body = Vec::new();
        let mut ends = vec![0];
        for change in &all {
            change.encode(&mut body);
            ends.push(body.len());
        }
        assert_eq!(ends[2] - ends[1], all[1].encoded_len());
        let decoded: Result<Vec<_>, _> = changes(&body).collect();
        assert_eq!(decoded.unwrap(), all);
        for end in 0..body.len() {
            let cut: Result<Vec<_>, _> = changes(&body[..end]).collect();
            match ends.iter().position(|whole| *whole == end) {
                Some(count) => assert_eq!(cut.unwrap(), all[..count]),
                None => assert_eq!(cut, Err(Flaw::Contents)),
            }
        }
        body[0] = 9;
        assert!(changes(&body).next().unwrap().is_err());
    }
}
