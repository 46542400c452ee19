//! The calls of Flight SQL, on sessions of this crate.
//!
//! ```text
//!   GetFlightInfo(query) ─► planned, on a shelf ─► FlightInfo: schema, ticket
//!   DoGet(ticket)        ─► off the shelf, submitted ─► batches as they are made
//!   CancelQuery(info)    ─► off the shelf, or cancelled while it runs
//!
//!   CreatePreparedStatement(query) ─► logical plan on another shelf ─► handle
//!   DoPut(handle, parameters)      ─► bound
//!   GetFlightInfo(handle)          ─► as above
//! ```
//!
//! A query is planned once, and submitted when its client comes for the rows: until
//! then it takes no slot. A client that goes away in the middle drops the stream, and
//! with it the query. Statements that change something (`SET`, `CREATE`) do so when
//! they are planned; their result has no columns.
//!
//! Known weakness: a planned query whose ticket is never used is kept for ten minutes.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::metadata::{SqlInfoData, XdbcTypeInfoData};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, Command,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes,
    CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus,
    FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, IpcMessage,
    SchemaAsIpc, Ticket,
};
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use prost::bytes::Bytes;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::clients::{Caller, Clients};
use super::shelf::{Full, Handle, Shelf};
use super::status::{internal, planning, status, streaming};
use super::{keys, metadata};
use crate::live;
use crate::query::{Query, QueryId};
use crate::session::Session;

/// For how long a planned query waits for whoever asked.
const TICKET_KEPT: Duration = Duration::from_secs(600);
/// For how long a prepared statement is kept that nobody uses.
const PREPARED_KEPT: Duration = Duration::from_secs(3600);
/// Planned queries, and prepared statements, at a time.
const HANDLES_MAX: usize = 10_000;

type Answer<T> = Result<Response<T>, Status>;
type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Rows = <Service as FlightService>::DoGetStream;

/// The service behind the protocol.
pub(super) struct Service {
    clients: Clients,
    is_read_only: bool,
    sql_info: SqlInfoData,
    type_info: XdbcTypeInfoData,
    /// Queries whose tickets have been given out.
    planned: Shelf<Query>,
    prepared: Shelf<Prepared>,
    /// Queries whose rows are being fetched, by their tickets.
    fetched: Arc<Mutex<HashMap<Handle, QueryId>>>,
}

/// A prepared statement.
struct Prepared {
    session: Arc<Session>,
    is_kept: bool,
    text: String,
    plan: LogicalPlan,
    parameters: Mutex<Option<ParamValues>>,
}

impl Service {
    pub(super) fn new(clients: Clients, is_read_only: bool) -> Result<Service, Status> {
        Ok(Service {
            clients,
            is_read_only,
            sql_info: metadata::sql_info(is_read_only)?,
            type_info: metadata::type_info()?,
            planned: Shelf::new(TICKET_KEPT, HANDLES_MAX),
            prepared: Shelf::new(PREPARED_KEPT, HANDLES_MAX),
            fetched: Arc::default(),
        })
    }

    /// The logical plan of a text, if this server runs such.
    async fn logical_plan(&self, session: &Session, text: &str) -> Result<LogicalPlan, Status> {
        let text = live::long_form(text);
        let plan = session
            .logical_plan(&text)
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
    async fn plan(&self, caller: &Caller, plan: LogicalPlan, text: &str) -> Result<Query, Status> {
        if matches!(plan, LogicalPlan::Statement(_)) && !caller.is_kept {
            return Err(Status::failed_precondition(
                "nothing would remember this: log in (with any user and password, if the \
                 server asks for none), or send the headers giveway-tier, giveway-weight and \
                 giveway-deadline",
            ));
        }
        let query = caller
            .session
            .query(plan, text)
            .await
            .map_err(|error| status(&error))?;
        let options = &caller.options;
        let query = query.tier(options.tier).weight(options.weight);
        Ok(match options.deadline {
            Some(deadline) => query.deadline(deadline),
            None => query,
        })
    }

    /// Keeps a planned query, and says where its rows are to be had.
    fn ticket(&self, query: Query, descriptor: FlightDescriptor) -> Answer<FlightInfo> {
        let schema = query.schema();
        let handle = self.planned.put(query, Instant::now()).map_err(|Full| {
            Status::resource_exhausted("too many queries that nobody fetches: fetch or cancel some")
        })?;
        let ticket = TicketStatementQuery {
            statement_handle: handle.into(),
        };
        info(&schema, &ticket, descriptor)
    }

    /// Runs a query for what it does; the answer is the number of rows.
    async fn update(&self, query: Query) -> Result<i64, Status> {
        let batches = query.collect().await.map_err(|error| status(&error))?;
        let count = |batch: &RecordBatch| {
            let column = batch.column_by_name("count")?;
            let counts = column.as_primitive_opt::<UInt64Type>()?;
            Some(counts.iter().flatten().sum::<u64>() as i64)
        };
        Ok(batches.iter().filter_map(count).sum())
    }

    fn prepared(&self, handle: &[u8]) -> Result<Arc<Prepared>, Status> {
        std::str::from_utf8(handle)
            .ok()
            .and_then(|handle| self.prepared.get(handle, Instant::now()))
            .ok_or_else(|| {
                Status::not_found("no such prepared statement, or it expired: prepare it again")
            })
    }

    /// Plans a prepared statement with the parameters that have been bound.
    async fn execute(&self, handle: &[u8], headers: &MetadataMap) -> Result<Query, Status> {
        let mut caller = self.clients.caller(headers)?;
        let prepared = self.prepared(handle)?;
        // The plan knows the tables of the session that it was made in.
        caller.session = Arc::clone(&prepared.session);
        caller.is_kept = prepared.is_kept;
        let parameters = crate::lock(&prepared.parameters).clone();
        let plan = match parameters {
            Some(values) => (prepared.plan.clone())
                .with_param_values(values)
                .map_err(planning)?,
            None => prepared.plan.clone(),
        };
        self.plan(&caller, plan, &prepared.text).await
    }

    /// Ends the query that an info was given out for.
    fn cancel(&self, info: &FlightInfo) -> Result<(), Status> {
        let missing = || Status::not_found("no such query: it has ended, or was never there");
        let ticket = (info.endpoint.first())
            .and_then(|endpoint| endpoint.ticket.as_ref())
            .ok_or_else(missing)?;
        let command = Any::decode(&*ticket.ticket).map_err(|_| missing())?;
        let Ok(Command::TicketStatementQuery(ticket)) = Command::try_from(command) else {
            return Err(missing());
        };
        let handle = std::str::from_utf8(&ticket.statement_handle).map_err(|_| missing())?;
        if self.planned.take(handle).is_some() {
            return Ok(());
        }
        let id = crate::lock(&self.fetched).get(handle).copied();
        let engine = self.clients.base().engine();
        match id.is_some_and(|id| engine.cancel(id)) {
            true => Ok(()),
            false => Err(missing()),
        }
    }

    /// An info whose ticket is the command itself.
    fn listed(
        &self,
        command: &impl ProstMessageExt,
        schema: &Schema,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.clients.admit(request.metadata())?;
        info(schema, command, request.into_inner())
    }

    /// A list that is at hand.
    fn list(
        &self,
        request: &Request<Ticket>,
        batch: impl FnOnce() -> Result<RecordBatch, Status>,
    ) -> Answer<Rows> {
        self.clients.admit(request.metadata())?;
        let batch = batch()?;
        let schema = batch.schema();
        Ok(Response::new(encode(schema, stream::iter([Ok(batch)]))))
    }
}

fn info(
    schema: &Schema,
    ticket: &impl ProstMessageExt,
    descriptor: FlightDescriptor,
) -> Answer<FlightInfo> {
    let ticket = Ticket::new(ticket.as_any().encode_to_vec());
    let info = FlightInfo::new()
        .try_with_schema(schema)
        .map_err(internal)?
        .with_endpoint(FlightEndpoint::new().with_ticket(ticket))
        .with_descriptor(descriptor);
    Ok(Response::new(info))
}

fn encode(
    schema: SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch, FlightError>> + Send + 'static,
) -> Rows {
    let encoder = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .build(batches);
    Box::pin(encoder.map_err(|error| match error {
        FlightError::Tonic(status) => *status,
        other => internal(other),
    }))
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

/// The parameters `$1`, `$2`, … in their order; those whose type cannot be told are
/// texts, which DataFusion casts.
fn parameters(plan: &LogicalPlan) -> Result<Schema, Status> {
    let mut parameters: Vec<(String, Option<DataType>)> = plan
        .get_parameter_types()
        .map_err(planning)?
        .into_iter()
        .collect();
    let number = |name: &str| name.trim_start_matches('$').parse::<u32>().ok();
    parameters.sort_by(|(a, _), (b, _)| number(a).cmp(&number(b)).then(a.cmp(b)));
    let fields = parameters.into_iter().map(|(name, data_type)| {
        Field::new(name, data_type.map_or(DataType::Utf8, on_the_wire), true)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

/// What a column of a prepared statement will be sent as: strings in views are
/// written out (`expand_views_at_output`).
fn on_the_wire(data_type: DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        other => other,
    }
}

fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &options)
        .try_into()
        .map_err(internal)?;
    Ok(bytes)
}

#[tonic::async_trait]
impl FlightSqlService for Service {
    type FlightService = Service;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Boxed<HandshakeResponse>> {
        let token = self.clients.login(request.metadata())?;
        let header = format!("Bearer {token}").parse().map_err(internal)?;
        let said = HandshakeResponse {
            protocol_version: 0,
            payload: token.into(),
        };
        let mut response: Response<Boxed<HandshakeResponse>> =
            Response::new(Box::pin(stream::iter([Ok(said)])));
        response.metadata_mut().insert("authorization", header);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        command: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let caller = self.clients.caller(request.metadata())?;
        let plan = self.logical_plan(&caller.session, &command.query).await?;
        let query = self.plan(&caller, plan, &command.query).await?;
        self.ticket(query, request.into_inner())
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.clients.admit(request.metadata())?;
        let handle = std::str::from_utf8(&ticket.statement_handle).unwrap_or_default();
        let query = (self.planned.take(handle))
            .and_then(Arc::into_inner)
            .ok_or_else(|| {
                Status::not_found("this ticket was used, or it expired: ask the query again")
            })?;
        let running = query.submit().map_err(|error| status(&error))?;
        let fetching = Fetching {
            fetched: Arc::clone(&self.fetched),
            handle: handle.to_owned(),
        };
        crate::lock(&self.fetched).insert(handle.to_owned(), running.id());
        let schema = running.schema();
        let batches = running.stream().map_err(streaming).inspect(move |_| {
            let _ = &fetching;
        });
        Ok(Response::new(encode(schema, batches)))
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let caller = self.clients.caller(request.metadata())?;
        let plan = self.logical_plan(&caller.session, &command.query).await?;
        let query = self.plan(&caller, plan, &command.query).await?;
        self.update(query).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        command: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let caller = self.clients.caller(request.metadata())?;
        let plan = self.logical_plan(&caller.session, &command.query).await?;
        let columns = plan.schema().fields().iter().map(|field| {
            let data_type = on_the_wire(field.data_type().clone());
            Field::new(field.name(), data_type, field.is_nullable())
        });
        let dataset_schema = schema_bytes(&Schema::new(columns.collect::<Vec<_>>()))?;
        let parameter_schema = schema_bytes(&parameters(&plan)?)?;
        let prepared = Prepared {
            session: caller.session,
            is_kept: caller.is_kept,
            text: command.query,
            plan,
            parameters: Mutex::default(),
        };
        let handle = self.prepared.put(prepared, Instant::now());
        let handle = handle.map_err(|Full| {
            Status::resource_exhausted("too many prepared statements: close some")
        })?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.into(),
            dataset_schema,
            parameter_schema,
        })
    }

    async fn do_put_prepared_statement_query(
        &self,
        command: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        self.clients.admit(request.metadata())?;
        let prepared = self.prepared(&command.prepared_statement_handle)?;
        let values = bound(request.into_inner()).await?;
        *crate::lock(&prepared.parameters) = values;
        Ok(DoPutPreparedStatementResult {
            prepared_statement_handle: Some(command.prepared_statement_handle),
        })
    }

    async fn get_flight_info_prepared_statement(
        &self,
        command: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let handle = &command.prepared_statement_handle;
        let query = self.execute(handle, request.metadata()).await?;
        self.ticket(query, request.into_inner())
    }

    async fn do_put_prepared_statement_update(
        &self,
        command: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let (headers, _, data) = request.into_parts();
        let prepared = self.prepared(&command.prepared_statement_handle)?;
        // Some clients bind in the same call, some in one before.
        if let Some(values) = bound(data).await? {
            *crate::lock(&prepared.parameters) = Some(values);
        }
        let handle = &command.prepared_statement_handle;
        let query = self.execute(handle, &headers).await?;
        self.update(query).await
    }

    async fn do_action_close_prepared_statement(
        &self,
        command: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        self.clients.admit(request.metadata())?;
        if let Ok(handle) = std::str::from_utf8(&command.prepared_statement_handle) {
            self.prepared.take(handle);
        }
        Ok(())
    }

    async fn do_action_cancel_query(
        &self,
        command: ActionCancelQueryRequest,
        request: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        self.clients.admit(request.metadata())?;
        let info = FlightInfo::decode(command.info)
            .map_err(|_| Status::invalid_argument("CancelQuery takes the query's FlightInfo"))?;
        self.cancel(&info)?;
        // Both enumerations have the same numbers.
        Ok(ActionCancelQueryResult {
            result: CancelStatus::Cancelled as i32,
        })
    }

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        Some(vec![
            Ok(ActionType {
                r#type: CANCEL_FLIGHT_INFO.to_owned(),
                description: "Cancels a query".to_owned(),
            }),
            Ok(ActionType {
                r#type: CLOSE_SESSION.to_owned(),
                description: "Logs out".to_owned(),
            }),
        ])
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Answer<<Self as FlightService>::DoActionStream> {
        self.clients.admit(request.metadata())?;
        let action = request.get_ref();
        let body = match action.r#type.as_str() {
            CANCEL_FLIGHT_INFO => {
                let wrong =
                    || Status::invalid_argument("CancelFlightInfo takes the query's FlightInfo");
                let asked = CancelFlightInfoRequest::decode(&*action.body).map_err(|_| wrong())?;
                self.cancel(&asked.info.ok_or_else(wrong)?)?;
                let mut result = CancelFlightInfoResult::default();
                result.set_status(CancelStatus::Cancelled);
                result.encode_to_vec()
            }
            CLOSE_SESSION => {
                self.clients.logout(request.metadata());
                // CloseSessionResult { status: CLOSED }.
                vec![0x08, 0x01]
            }
            other => {
                return Err(Status::unimplemented(format!(
                    "there is no action {other}: ListActions names those there are"
                )));
            }
        };
        let result = arrow_flight::Result { body: body.into() };
        Ok(Response::new(Box::pin(stream::iter([Ok(result)]))))
    }

    async fn get_flight_info_catalogs(
        &self,
        command: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.listed(&command, &command.into_builder().schema(), request)
    }

    async fn do_get_catalogs(
        &self,
        command: CommandGetCatalogs,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.list(&request, || {
            metadata::catalogs(command, self.clients.base())
        })
    }

    async fn get_flight_info_schemas(
        &self,
        command: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.listed(&command, &command.clone().into_builder().schema(), request)
    }

    async fn do_get_schemas(
        &self,
        command: CommandGetDbSchemas,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.list(&request, || metadata::schemas(command, self.clients.base()))
    }

    async fn get_flight_info_tables(
        &self,
        command: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.listed(&command, &command.clone().into_builder().schema(), request)
    }

    async fn do_get_tables(
        &self,
        command: CommandGetTables,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        let tables = metadata::tables(command, self.clients.base()).await;
        self.list(&request, || tables)
    }

    async fn get_flight_info_table_types(
        &self,
        command: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.listed(&command, &command.into_builder().schema(), request)
    }

    async fn do_get_table_types(
        &self,
        command: CommandGetTableTypes,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.list(&request, || metadata::table_types(command))
    }

    async fn get_flight_info_sql_info(
        &self,
        command: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = command.clone().into_builder(&self.sql_info).schema();
        self.listed(&command, &schema, request)
    }

    async fn do_get_sql_info(
        &self,
        command: CommandGetSqlInfo,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        let builder = command.into_builder(&self.sql_info);
        self.list(&request, || builder.build().map_err(internal))
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        command: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = command.into_builder(&self.type_info).schema();
        self.listed(&command, &schema, request)
    }

    async fn do_get_xdbc_type_info(
        &self,
        command: CommandGetXdbcTypeInfo,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        let builder = command.into_builder(&self.type_info);
        self.list(&request, || builder.build().map_err(internal))
    }

    async fn get_flight_info_primary_keys(
        &self,
        command: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.listed(&command, &keys::PRIMARY, request)
    }

    async fn do_get_primary_keys(
        &self,
        _command: CommandGetPrimaryKeys,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.list(&request, || Ok(keys::none(&keys::PRIMARY)))
    }

    async fn get_flight_info_exported_keys(
        &self,
        command: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.listed(&command, &keys::FOREIGN, request)
    }

    async fn do_get_exported_keys(
        &self,
        _command: CommandGetExportedKeys,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.list(&request, || Ok(keys::none(&keys::FOREIGN)))
    }

    async fn get_flight_info_imported_keys(
        &self,
        command: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.listed(&command, &keys::FOREIGN, request)
    }

    async fn do_get_imported_keys(
        &self,
        _command: CommandGetImportedKeys,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.list(&request, || Ok(keys::none(&keys::FOREIGN)))
    }

    async fn get_flight_info_cross_reference(
        &self,
        command: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.listed(&command, &keys::FOREIGN, request)
    }

    async fn do_get_cross_reference(
        &self,
        _command: CommandGetCrossReference,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.list(&request, || Ok(keys::none(&keys::FOREIGN)))
    }

    async fn register_sql_info(&self, _id: i32, _info: &SqlInfo) {}
}

/// The action that ends a query, in newer clients.
const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";
/// The action that ends a client's session.
const CLOSE_SESSION: &str = "CloseSession";

/// The one row of parameters in a stream; `None` if there is no row.
async fn bound(data: PeekableFlightDataStream) -> Result<Option<ParamValues>, Status> {
    let batches: Vec<RecordBatch> =
        FlightRecordBatchStream::new_from_flight_data(data.map_err(FlightError::from))
            .try_collect()
            .await
            .map_err(|error| Status::invalid_argument(format!("parameters: {error}")))?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else {
        return Ok(None);
    };
    if rows > 1 {
        return Err(Status::invalid_argument(format!(
            "{rows} rows of parameters: bind one at a time"
        )));
    }
    let values = (batch.columns().iter())
        .map(|column| ScalarValue::try_from_array(column, 0))
        .collect::<Result<Vec<_>, _>>()
        .map_err(planning)?;
    Ok(Some(ParamValues::from(values)))
}
