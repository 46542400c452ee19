//! What other servers of a cluster ask: to run a part of a query, and for its rows.
//!
//! The messages are in `cluster::message`, the work is done in `cluster::worker`.
//!
//! The answer to a part is a stream of one message that does not end: as long as the call is
//! open, the rows are kept.

use std::sync::Arc;

use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::Any;
use arrow_flight::{Action, Result as Body};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tonic::{Request, Response, Status};

use super::service::Service;
use super::status::{internal, status};
use super::wire::{Answer, Rows};
use crate::cluster::{
    FETCH, Fetch, HELLO, Part, RUN, Shelved, VERSION, Worker, culprit, decoded, marked,
};

impl Service {
    /// Answers an action of a cluster; `None` if it is another one.
    pub(super) fn cluster_action(
        &self,
        request: &Request<Action>,
    ) -> Option<Answer<<Self as FlightService>::DoActionStream>> {
        let action = request.get_ref();
        let peer = || {
            let refused = |status| marked(status, None);
            self.clients.admit_peer(request.metadata()).map_err(refused)
        };
        Some(match action.r#type.as_str() {
            HELLO => peer().and_then(|()| self.worker()).map(|_| {
                let body = VERSION.into();
                Response::new(stream::iter([Ok(Body { body })]).boxed())
            }),
            RUN => peer().and_then(|()| self.run(action)),
            _ => return None,
        })
    }

    fn worker(&self) -> Result<&Arc<Worker>, Status> {
        let refused = || {
            let status = Status::failed_precondition(
                "this server is no worker: start it by 'giveway sql worker'",
            );
            marked(status, None)
        };
        self.worker.as_ref().ok_or_else(refused)
    }

    fn run(&self, action: &Action) -> Answer<<Self as FlightService>::DoActionStream> {
        let worker = Arc::clone(self.worker()?);
        let part: Part = decoded(&action.body)?;
        let running = async move {
            match worker.run(part).await {
                Ok(done) => stream::iter([Ok(Body::default())])
                    .chain(stream::pending())
                    .inspect(move |_| {
                        let _ = &done;
                    })
                    .boxed(),
                Err(error) => {
                    let status = marked(status(&error), culprit(&error));
                    stream::iter([Err(status)]).boxed()
                }
            }
        };
        Ok(Response::new(running.flatten_stream().boxed()))
    }

    /// The rows that a ticket of a cluster stands for.
    pub(super) fn part_rows(&self, ticket: &Any) -> Answer<Rows> {
        if ticket.type_url != FETCH {
            return Err(Status::unimplemented(format!(
                "there are no tickets of the type {}",
                ticket.type_url
            )));
        }
        let fetch: Fetch = decoded(&ticket.value)?;
        let rows = self.worker()?.rows(&fetch);
        let Shelved {
            schema,
            batches,
            memory,
        } = rows.map_err(|status| marked(status, None))?;
        let batches = stream::iter(batches.into_iter().map(move |batch| {
            // Until the last one has been sent.
            let _ = &memory;
            compact(batch).map_err(FlightError::from)
        }));
        let encoder = FlightDataEncoderBuilder::new()
            .with_schema(schema)
            // Both ends are the same program.
            .with_dictionary_handling(DictionaryHandling::Resend)
            .build(batches);
        let messages = encoder.map_err(|error| marked(internal(error), None));
        Ok(Response::new(messages.boxed()))
    }
}

/// A batch without the parts of buffers that its strings do not refer to: a message has
/// whole buffers.
fn compact(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let compacted = |array: &ArrayRef| -> ArrayRef {
        match array.data_type() {
            DataType::Utf8View => Arc::new(array.as_string_view().gc()),
            DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
            _ => Arc::clone(array),
        }
    };
    let columns = batch.columns().iter().map(compacted).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}
