//! How an engine is asked: lines of JSON on its standard input, each answered by one on
//! its standard output.
//!
//! ```text
//!   ─► {"threads": 2, "memory_bytes": …, "tables": {"hits": "/data/hits.parquet"}}
//!   ◄─ {"version": "55.2.0"}
//!   ─► {"sql": "SELECT …"}
//!   ◄─ {"ms": 12.5, "rows": 2, "cells": [["1", "a"], ["2", ""]]}  or  {"error": "…"}
//! ```
//!
//! An engine ends when its input does. The rows of an answer are sent as text, to be
//! compared, if there are at most [`CELLS_MAX`] of them; that is not part of the time.
//! Null is the empty text.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Rows that are sent at most (engine.py has the same).
pub(super) const CELLS_MAX: usize = 1000;

/// What an engine is to be.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) threads: u32,
    pub(super) memory_bytes: usize,
    /// Parquet files, or directories of them.
    pub(super) tables: BTreeMap<String, PathBuf>,
}

/// That it is there.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) version: String,
}

/// A query.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) sql: String,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Reply {
    Answer(Answer),
    Error { error: String },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// From the text to the last row.
    pub(super) ms: f64,
    pub(super) rows: u64,
    /// The rows, unless they are too many.
    #[serde(default)]
    pub(super) cells: Option<Vec<Vec<String>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_answers_or_errors() {
        let read = |text: &str| serde_json::from_str::<Reply>(text).unwrap();
        let error = read(r#"{"error": "no such table"}"#);
        assert_eq!(
            error,
            Reply::Error {
                error: "no such table".to_owned()
            }
        );
        let Reply::Answer(answer) = read(r#"{"ms": 1.5, "rows": 2000, "cells": null}"#) else {
            panic!("no answer");
        };
        assert_eq!((answer.rows, answer.cells), (2000, None));
    }
}
