//! Rows that are cells of a database workload.

use crate::cell::row::Row;
use crate::report::{Record, Report};

/// A kind of row that is a cell of a database workload, as [`run_cell`](crate::cell::run_cell)
/// measures it.
pub(crate) trait CellRecord: Record + From<Row> {
    /// The experiment that has such rows.
    const EXPERIMENT: &'static str;

    /// The cell.
    fn cell(&self) -> &Row;
}

impl CellRecord for Row {
    const EXPERIMENT: &'static str = "mixed";

    fn cell(&self) -> &Row {
        self
    }
}

/// Declares the rows of an experiment whose cells are of the usual kind, and
/// whose reports are another.
macro_rules! cell_rows {
    ($(#[$doc:meta])* $name:ident, $experiment:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name(pub(crate) $crate::cell::row::Row);

        impl From<$crate::cell::row::Row> for $name {
            fn from(row: $crate::cell::row::Row) -> Self {
                $name(row)
            }
        }

        impl $crate::cell::record::CellRecord for $name {
            const EXPERIMENT: &'static str = $experiment;

            fn cell(&self) -> &$crate::cell::row::Row {
                &self.0
            }
        }
    };
}
pub(crate) use cell_rows;

impl Report<Row> {
    /// The same cells as rows of another experiment.
    pub(crate) fn of_kind<R: CellRecord>(self) -> Report<R> {
        Report {
            experiment: R::EXPERIMENT.to_owned(),
            environment: self.environment,
            rows: self.rows.into_iter().map(R::from).collect(),
            outages: self.outages,
        }
    }
}
