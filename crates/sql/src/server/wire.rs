//! Schemas, tickets and rows as messages of the protocol.

use std::pin::Pin;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::ProstMessageExt;
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use futures_util::{Stream, TryStreamExt};
use prost::Message;
use prost::bytes::Bytes;
use tonic::{Response, Status};

use super::service::Service;
use super::status::internal;

pub(super) type Answer<T> = Result<Response<T>, Status>;
pub(super) type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
pub(super) type Rows = <Service as FlightService>::DoGetStream;

/// Where the rows of a query are to be had, and what they look like.
pub(super) fn info(
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

/// A schema as a message.
pub(super) fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &options)
        .try_into()
        .map_err(internal)?;
    Ok(bytes)
}
