//! One measurement as it is stored.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::suite::Suite;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineName {
    /// Ours.
    Giveway,
    /// Stock DataFusion with its defaults.
    DataFusion,
    /// DuckDB.
    DuckDb,
}

impl EngineName {
    pub(crate) const ALL: [EngineName; 3] = [
        EngineName::Giveway,
        EngineName::DataFusion,
        EngineName::DuckDb,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            EngineName::Giveway => "giveway",
            EngineName::DataFusion => "datafusion",
            EngineName::DuckDb => "duckdb",
        }
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for EngineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = EngineName::ALL.into_iter();
        all.find(|engine| engine.name() == text)
            .ok_or_else(|| "write giveway, datafusion or duckdb".to_owned())
    }
}

/// One query on one engine, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SqlRow {
    /// The benchmark.
    pub suite: Suite,
    /// How much data: the scale factor, or thousands of rows.
    pub scale: f64,
    /// Its number in the suite, from 1.
    pub query: u32,
    /// Who answered.
    pub engine: EngineName,
    /// The engine's version.
    pub version: String,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Threads of the engine.
    pub threads: u32,
    /// From the text to the last row, ms; none if it failed.
    pub ms: Option<f64>,
    /// Rows of the answer.
    pub rows: u64,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
    /// How the first answer differs from that of the next engine that has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub differs: Option<String>,
}
