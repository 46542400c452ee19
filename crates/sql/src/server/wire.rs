//! Schemas, tickets and rows as messages of the protocol.
//!
//! Clients are told a schema before they come for the rows, and some compare it with
//! that of the rows (ADBC refuses the result if they differ).
//!
//! W1. Columns are cast to types that every client knows by the query itself, as its
//!     last step: on the engine's workers, in the query's tasks. By position, since
//!     names need not differ in a result. (not asserted: what cannot be cast stays)
//! W2. Clients are told the schema that the encoder will send. (not asserted: the
//!     encoder's schema is private; `rows_have_the_schema_that_was_told` tests it)

use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::ProstMessageExt;
use arrow_flight::{
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::can_cast_types;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::projection::ProjectionExec;
use futures_util::{Stream, TryStreamExt, stream};
use prost::Message;
use prost::bytes::Bytes;
use tonic::{Response, Status};

use super::status::{internal, planning};
use crate::query::Query;

pub(super) type Answer<T> = Result<Response<T>, Status>;
pub(super) type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
pub(super) type Rows = Boxed<FlightData>;

/// Where the rows of a query are to be had, and what they look like.
pub(super) fn info(
    schema: &Schema,
    ticket: &impl ProstMessageExt,
    descriptor: FlightDescriptor,
) -> Answer<FlightInfo> {
    let ticket = Ticket::new(ticket.as_any().encode_to_vec());
    let info = FlightInfo::new()
        .try_with_schema(&encoded(schema))
        .map_err(internal)?
        .with_endpoint(FlightEndpoint::new().with_ticket(ticket))
        .with_descriptor(descriptor);
    Ok(Response::new(info))
}

/// Rows as a stream of messages.
pub(super) fn encode(
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

/// W2: dictionaries, for example, are sent as their values.
fn encoded(schema: &Schema) -> SchemaRef {
    let schema = Arc::new(schema.clone());
    let encoder = FlightDataEncoderBuilder::new()
        .with_schema(Arc::clone(&schema))
        .build(stream::empty());
    encoder.known_schema().unwrap_or(schema)
}

/// What a column is sent as. Not every client knows views and dictionaries.
pub(super) fn sent_as(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| {
        let data_type = sent_as(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    match data_type {
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        DataType::Dictionary(_, values) => sent_as(values),
        DataType::List(items) => DataType::List(field(items)),
        DataType::LargeList(items) => DataType::LargeList(field(items)),
        DataType::FixedSizeList(items, size) => DataType::FixedSizeList(field(items), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(field(entries), *is_sorted),
        other => other.clone(),
    }
}

/// W1. What cannot be cast stays as it is.
pub(super) fn as_sent(mut query: Query) -> Result<Query, Status> {
    let schema = query.schema();
    let mut is_same = true;
    let columns: Vec<(Arc<dyn PhysicalExpr>, String)> = (schema.fields().iter().enumerate())
        .map(|(index, field)| {
            let (from, to) = (field.data_type(), sent_as(field.data_type()));
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), index));
            let column = match *from != to && can_cast_types(from, &to) {
                true => {
                    is_same = false;
                    Arc::new(CastExpr::new(column, to, None))
                }
                false => column,
            };
            (column, field.name().clone())
        })
        .collect();
    if !is_same {
        let cast = ProjectionExec::try_new(columns, query.plan).map_err(planning)?;
        query.plan = Arc::new(cast);
    }
    Ok(query)
}

/// A schema as a message.
pub(super) fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(&encoded(schema), &options)
        .try_into()
        .map_err(internal)?;
    Ok(bytes)
}
