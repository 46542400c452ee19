//! Which queries there are.

use serde::{Deserialize, Serialize};

/// A query of TPC-H at one of the two scale factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Kind {
    /// 1 to 22.
    pub query: u8,
    /// Whether it is asked of the large data.
    pub large: bool,
}

impl Kind {
    /// All queries of one size.
    pub(crate) fn all(large: bool) -> impl Iterator<Item = Kind> {
        (1..=22).map(move |query| Kind { query, large })
    }

    /// All queries of both sizes.
    pub(crate) fn both() -> impl Iterator<Item = Kind> {
        Kind::all(false).chain(Kind::all(true))
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = if self.large { "large" } else { "small" };
        write!(f, "Q{} {size}", self.query)
    }
}
