//! Both sizes of TPC-H data in memory, made once and shared by all engines.

use std::sync::Arc;

use giveway_sql::tpch::{Scale, Table};
use giveway_sql::{MorselTable, Session};

use super::failure::failed;
use crate::experiments::tasks::kind::Kind;
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

/// All tables at one scale factor.
pub(super) struct Data {
    pub(super) scale: Scale,
    tables: Vec<(Table, Arc<MorselTable>)>,
}

impl Data {
    pub(super) fn generate(scale: Scale, progress: Progress<'_>) -> Result<Data> {
        let mut tables = Vec::new();
        for table in Table::ALL {
            progress(&format!("TPC-H at scale {scale}: {table}"));
            let batches = table.batches(scale).collect();
            let made = MorselTable::try_new(table.schema(), batches);
            let made = made.map_err(|error| failed("data", error))?;
            tables.push((table, Arc::new(made)));
        }
        Ok(Data { scale, tables })
    }

    /// Names the tables in a session.
    pub(super) fn register(&self, session: &Session) -> Result<()> {
        for (table, made) in &self.tables {
            let registered = session.register_table(table.name(), Arc::clone(made) as _);
            registered.map_err(|error| failed("data", error))?;
        }
        Ok(())
    }
}

/// The small and the large data.
#[derive(Clone)]
pub(super) struct Sizes {
    pub(super) small: Arc<Data>,
    pub(super) large: Arc<Data>,
}

/// How many times the large data is the small (Section 5.1).
pub(super) const LARGE: f64 = 10.0;

impl Sizes {
    pub(super) fn of(&self, kind: Kind) -> &Data {
        match kind.large {
            true => &self.large,
            false => &self.small,
        }
    }
}

/// A scale factor.
///
/// # Errors
/// There is no such.
pub(super) fn scale(factor: f64) -> Result<Scale> {
    Scale::new(factor).map_err(|error| Error::Config(format!("--sf: {error}")))
}
