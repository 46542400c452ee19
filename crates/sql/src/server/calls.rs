//! The calls of Flight SQL: permissions, and the module that handles each.
//!
//! What becomes of queries is in `queries`, of prepared statements in `prepared`, of parts
//! of a cluster's queries in `parts`; lists
//! come from `metadata` and `keys`.

use std::time::Instant;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes,
    CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus,
    FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse, Ticket,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use futures_util::stream;
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::clients::peer;
use super::service::Service;
use super::status::internal;
use super::wire::{Answer, Boxed, Rows, encode, info};
use super::{keys, metadata};

impl Service {
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

#[tonic::async_trait]
impl FlightSqlService for Service {
    type FlightService = Service;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Boxed<HandshakeResponse>> {
        let token = self.clients.login(request.metadata(), peer(&request))?;
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
        let caller = (self.clients).caller(request.metadata(), peer(&request))?;
        let plan = self.logical_plan(&caller, &command.query).await?;
        let query = self.plan(&caller, plan, &command.query).await?;
        self.ticket(&caller, query, request.into_inner())
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<Rows> {
        self.clients.admit(request.metadata())?;
        self.fetch(&ticket.statement_handle)
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let caller = (self.clients).caller(request.metadata(), peer(&request))?;
        let plan = self.logical_plan(&caller, &command.query).await?;
        let query = self.plan(&caller, plan, &command.query).await?;
        self.update(query).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        command: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let caller = (self.clients).caller(request.metadata(), peer(&request))?;
        let plan = self.logical_plan(&caller, &command.query).await?;
        self.prepare(caller, plan, command.query)
    }

    async fn do_put_prepared_statement_query(
        &self,
        command: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let caller = (self.clients).caller(request.metadata(), peer(&request))?;
        let prepared = self.prepared(&command.prepared_statement_handle)?;
        *crate::lock(&prepared.parameters) = None;
        self.bind(&caller, &prepared, request.into_inner()).await?;
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
        let caller = (self.clients).caller(request.metadata(), peer(&request))?;
        let query = self.execute(handle, &caller).await?;
        self.ticket(&caller, query, request.into_inner())
    }

    async fn do_put_prepared_statement_update(
        &self,
        command: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let caller = (self.clients).caller(request.metadata(), peer(&request))?;
        let data = request.into_inner();
        let prepared = self.prepared(&command.prepared_statement_handle)?;
        // Some clients bind in the same call, some in one before.
        self.bind(&caller, &prepared, data).await?;
        let handle = &command.prepared_statement_handle;
        let query = self.execute(handle, &caller).await?;
        self.update(query).await
    }

    async fn do_action_close_prepared_statement(
        &self,
        command: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        self.clients.admit(request.metadata())?;
        if let Ok(handle) = std::str::from_utf8(&command.prepared_statement_handle) {
            self.prepared.take(handle, Instant::now());
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
        if let Some(answer) = self.cluster_action(&request) {
            return answer;
        }
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

    async fn do_get_fallback(&self, request: Request<Ticket>, ticket: Any) -> Answer<Rows> {
        self.clients.admit(request.metadata())?;
        self.part_rows(&ticket)
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
