//! The benchmarks.
//!
//! | suite | data | queries |
//! | --- | --- | --- |
//! | `tpch` | ours (`giveway sql tpch`) | ours |
//! | `tpcds` | DuckDB's extension | the same |
//! | `clickbench` | made up, with the columns of a copy that the user has | of that copy |
//!
//! ClickBench may not be sold and is shared under its own licence (CC BY-NC-SA), so
//! nothing of it is in this program.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A set of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Suite {
    TpcH,
    TpcDs,
    ClickBench,
}

impl Suite {
    pub(crate) const ALL: [Suite; 3] = [Suite::TpcH, Suite::TpcDs, Suite::ClickBench];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Suite::TpcH => "tpch",
            Suite::TpcDs => "tpcds",
            Suite::ClickBench => "clickbench",
        }
    }

    /// The name for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Suite::TpcH => "TPC-H",
            Suite::TpcDs => "TPC-DS",
            Suite::ClickBench => "ClickBench",
        }
    }

    /// How many queries there are.
    pub(crate) fn queries(self) -> u32 {
        match self {
            Suite::TpcH => 22,
            Suite::TpcDs => 99,
            Suite::ClickBench => 43,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Suite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Suite::ALL.into_iter();
        all.find(|suite| suite.name() == text)
            .ok_or_else(|| "write tpch, tpcds or clickbench".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood() {
        for suite in Suite::ALL {
            assert_eq!(suite.name().parse(), Ok(suite));
            let json = serde_json::to_string(&suite).unwrap();
            assert_eq!(json, format!("\"{suite}\""));
        }
        assert!("hits".parse::<Suite>().unwrap_err().contains("clickbench"));
    }
}
