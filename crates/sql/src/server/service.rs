//! What the server keeps between calls: clients, planned queries, prepared statements.
//!
//! `calls`, `queries` and `prepared` say what becomes of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_flight::sql::metadata::{SqlInfoData, XdbcTypeInfoData};
use datafusion::common::ParamValues;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::LogicalPlan;
use tonic::Status;

use super::clients::Clients;
use super::handle_store::{Handle, HandleStore};
use super::metadata;
use crate::cluster::Worker;
use crate::query::{Query, QueryId};
use crate::session::Session;

/// How long a planned query waits for its client.
const TICKET_KEPT: Duration = Duration::from_secs(600);
/// Planned queries at a time.
const TICKETS_MAX: usize = 10_000;

/// The queries that clients have not let go of.
pub(super) struct Queries {
    /// Those whose tickets have been given out.
    pub(super) planned: HandleStore<Query>,
    /// Those whose rows are being fetched, by their tickets.
    pub(super) fetched: Arc<Mutex<HashMap<Handle, QueryId>>>,
}

impl Queries {
    fn new() -> Queries {
        Queries {
            planned: HandleStore::new(TICKET_KEPT, TICKETS_MAX),
            fetched: Arc::default(),
        }
    }
}

/// How long an unused prepared statement is kept.
const PREPARED_KEPT: Duration = Duration::from_secs(3600);
/// Prepared statements at a time.
const PREPARED_MAX: usize = 10_000;

/// A prepared statement.
pub(super) struct Prepared {
    pub(super) session: Arc<Session>,
    pub(super) is_kept: bool,
    pub(super) text: String,
    pub(super) plan: LogicalPlan,
    pub(super) parameters: Mutex<Option<Bound>>,
}

impl Prepared {
    /// The parameters that are bound now.
    pub(super) fn values(&self) -> Option<ParamValues> {
        let bound = crate::lock(&self.parameters);
        bound.as_ref().map(|bound| bound.values.clone())
    }
}

/// Parameters that wait to be used; they count as memory of the engine.
pub(super) struct Bound {
    pub(super) values: ParamValues,
    pub(super) _memory: MemoryReservation,
}

/// The service behind the protocol.
pub(super) struct Service {
    pub(super) clients: Arc<Clients>,
    pub(super) is_read_only: bool,
    pub(super) sql_info: SqlInfoData,
    pub(super) type_info: XdbcTypeInfoData,
    pub(super) queries: Queries,
    pub(super) prepared: HandleStore<Prepared>,
    /// What it is in a cluster, if it is a worker of one.
    pub(super) worker: Option<Arc<Worker>>,
}

impl Service {
    pub(super) fn new(
        clients: Arc<Clients>,
        is_read_only: bool,
        worker: Option<Arc<Worker>>,
    ) -> Result<Service, Status> {
        Ok(Service {
            clients,
            is_read_only,
            sql_info: metadata::sql_info(is_read_only)?,
            type_info: metadata::type_info()?,
            queries: Queries::new(),
            prepared: HandleStore::new(PREPARED_KEPT, PREPARED_MAX),
            worker,
        })
    }
}
