//! Queries between a call that plans them and the one that comes for their rows.
//!
//! ```text
//!   GetFlightInfo(query) ─► planned, stored ─► FlightInfo: schema, ticket
//!   DoGet(ticket)        ─► taken from the store, submitted ─► batches as they are made
//!   CancelQuery(info)    ─► taken from the store, or cancelled while it runs
//! ```
//!
//! A query is planned once, and submitted when its client comes for the rows: until
//! then it takes no slot. A client that goes away in the middle drops the stream, and
//! with it the query. Statements that change something (`SET`, `CREATE`) do so when
//! they are planned; their result has no columns.
//!
//! Known weakness: a planned query whose ticket is never used is kept for ten minutes. The
//! values in its plan are counted meanwhile (`Query::counted`), its operators are not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arrow_flight::sql::{Any, Command, TicketStatementQuery};
use arrow_flight::{FlightDescriptor, FlightInfo};
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use futures_util::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::{Response, Status};

use super::clients::Caller;
use super::handle_store::{Handle, places};
use super::service::Service;
use super::status::{status, streaming};
use super::wire::{Answer, Rows, as_sent, encode, info};
use crate::live;
use crate::query::{Query, QueryId};

impl Service {
    /// The logical plan of a text, if this server runs such.
    pub(super) async fn logical_plan(
        &self,
        caller: &Caller,
        text: &str,
    ) -> Result<LogicalPlan, Status> {
        let text = live::long_form(text);
        let plan = (caller.session)
            .logical_plan_for(&text, &caller.options, caller.began)
            .await
            .map_err(|error| status(&error))?;
        SQLOptions::new()
            .with_allow_ddl(!self.is_read_only)
            .with_allow_dml(!self.is_read_only)
            .verify_plan(&plan)
            .map_err(|error| {
                Status::permission_denied(format!(
                    "this server only reads (it was started with --read-only): {error}"
                ))
            })?;
        Ok(plan)
    }

    /// Plans for a caller; statements that change something do so now.
    pub(super) async fn plan(
        &self,
        caller: &Caller,
        plan: LogicalPlan,
        text: &str,
    ) -> Result<Query, Status> {
        if matches!(plan, LogicalPlan::Statement(_)) && !caller.is_kept {
            return Err(Status::failed_precondition(
                "nothing would remember this: log in (with any user and password, if the \
                 server asks for none), or send the headers giveway-tier, giveway-weight and \
                 giveway-deadline",
            ));
        }
        let query = (caller.session)
            .query_for(plan, text, caller.options.clone(), caller.began)
            .await
            .map_err(|error| status(&error))?;
        as_sent(query)
    }

    /// Keeps a planned query, and says where its rows are to be had.
    pub(super) fn ticket(
        &self,
        caller: &Caller,
        query: Query,
        descriptor: FlightDescriptor,
    ) -> Answer<FlightInfo> {
        let query = query.counted().map_err(|error| status(&error))?;
        let schema = query.schema();
        let places = places(&query.text);
        let handle = (self.queries.planned).put(&caller.owner, query, places, Instant::now());
        let ticket = TicketStatementQuery {
            statement_handle: handle.into(),
        };
        info(&schema, &ticket, descriptor)
    }

    /// Runs a query for what it does; the answer is the number of rows.
    pub(super) async fn update(&self, query: Query) -> Result<i64, Status> {
        let count = |batch: &RecordBatch| {
            let column = batch.column_by_name("count")?;
            let counts = column.as_primitive_opt::<UInt64Type>()?;
            Some(counts.iter().flatten().sum::<u64>() as i64)
        };
        let running = query.submit().map_err(|error| status(&error))?;
        // None is kept: a query may have more rows than there is memory.
        let rows = running.stream().try_fold(0, async |rows, batch| {
            Ok(rows + count(&batch).unwrap_or_default())
        });
        rows.await.map_err(|error| status(&error))
    }

    /// Submits the query of a ticket, and sends its rows as they are made.
    pub(super) fn fetch(&self, handle: &[u8]) -> Answer<Rows> {
        let handle = std::str::from_utf8(handle).unwrap_or_default();
        let query = (self.queries.planned.take(handle, Instant::now()))
            .and_then(Arc::into_inner)
            .ok_or_else(|| {
                Status::not_found("this ticket was used, or it expired: ask the query again")
            })?;
        let running = query.submit().map_err(|error| status(&error))?;
        let fetching = Fetching {
            fetched: Arc::clone(&self.queries.fetched),
            handle: handle.to_owned(),
        };
        crate::lock(&self.queries.fetched).insert(handle.to_owned(), running.id());
        let schema = running.schema();
        let batches = running.stream().map_err(streaming).inspect(move |_| {
            let _ = &fetching;
        });
        Ok(Response::new(encode(schema, batches)))
    }

    /// Ends the query that an info was given out for.
    pub(super) fn cancel(&self, info: &FlightInfo) -> Result<(), Status> {
        let missing = || Status::not_found("no such query: it has ended, or was never there");
        let ticket = (info.endpoint.first())
            .and_then(|endpoint| endpoint.ticket.as_ref())
            .ok_or_else(missing)?;
        let command = Any::decode(&*ticket.ticket).map_err(|_| missing())?;
        let Ok(Command::TicketStatementQuery(ticket)) = Command::try_from(command) else {
            return Err(missing());
        };
        let handle = std::str::from_utf8(&ticket.statement_handle).map_err(|_| missing())?;
        if self.queries.planned.take(handle, Instant::now()).is_some() {
            return Ok(());
        }
        let id = crate::lock(&self.queries.fetched).get(handle).copied();
        let engine = self.clients.base().engine();
        match id.is_some_and(|id| engine.cancel(id)) {
            true => Ok(()),
            false => Err(missing()),
        }
    }
}

/// A stream's entry among those that are fetched, while it lasts.
struct Fetching {
    fetched: Arc<Mutex<HashMap<Handle, QueryId>>>,
    handle: Handle,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        crate::lock(&self.fetched).remove(&self.handle);
    }
}
