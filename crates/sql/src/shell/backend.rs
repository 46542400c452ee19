//! Where a shell's statements go: an engine in the same process, or a server.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow_flight::FlightInfo;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use futures_util::{Stream, StreamExt};
use tonic::transport::{Channel, Endpoint};

use super::error::ShellError;
use crate::live;
use crate::query::ResultStream;
use crate::session::Session;

pub(super) enum Backend {
    Local(Session),
    Remote(Box<FlightSqlServiceClient<Channel>>),
}

/// A result on its way. Dropping it cancels the query, here or there.
pub(super) enum Rows {
    Local(ResultStream),
    Remote(SchemaRef, Box<FlightRecordBatchStream>),
}

impl Backend {
    /// Connects to a server and logs in: sessions remember settings.
    pub(super) async fn connect(
        url: &str,
        user: &str,
        password: &str,
    ) -> Result<Backend, ShellError> {
        let failed = |error: &dyn std::fmt::Display| {
            ShellError::Connect(format!(
                "{url}: {error}: is a 'giveway sql serve' running there?"
            ))
        };
        let address = match url.split_once("://") {
            Some(("grpc" | "grpc+tcp" | "http", address)) => address,
            None => url,
            Some((scheme, _)) => {
                return Err(ShellError::Connect(format!(
                    "{url}: unknown scheme {scheme}: write grpc://HOST:PORT"
                )));
            }
        };
        let port = address.trim_end_matches('/').rsplit_once(':');
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(ShellError::Connect(format!(
                "{url}: no port: write grpc://HOST:PORT, as in grpc://127.0.0.1:50051"
            )));
        }
        let channel = Endpoint::new(format!("http://{address}"))
            .map_err(|error| failed(&error))?
            .connect()
            .await
            .map_err(|error| failed(&error))?;
        let mut client = FlightSqlServiceClient::new(channel);
        client
            .handshake(user, password)
            .await
            .map_err(|error| ShellError::Connect(format!("{url}: {error}")))?;
        Ok(Backend::Remote(Box::new(client)))
    }

    pub(super) async fn execute(&mut self, sql: &str) -> Result<Rows, ShellError> {
        match self {
            Backend::Local(session) => {
                let query = session.sql(&live::long_form(sql)).await?;
                Ok(Rows::Local(query.submit()?.stream()))
            }
            Backend::Remote(client) => {
                let info = client.execute(sql.to_owned(), None).await.map_err(remote)?;
                let schema = info.clone().try_decode_schema();
                let schema = schema.map_err(|error| remote(error.into()))?;
                let ticket = ticket(info)?;
                let rows = client.do_get(ticket).await.map_err(remote)?;
                Ok(Rows::Remote(schema.into(), Box::new(rows)))
            }
        }
    }
}

fn ticket(info: FlightInfo) -> Result<arrow_flight::Ticket, ShellError> {
    let endpoint = info.endpoint.into_iter().next();
    endpoint
        .and_then(|endpoint| endpoint.ticket)
        .ok_or_else(|| ShellError::Server("the server named no place for the rows".to_owned()))
}

/// What a server says, without the names of the types that it went through.
fn remote(error: FlightError) -> ShellError {
    match error {
        FlightError::Tonic(status) => ShellError::Server(status.message().to_owned()),
        FlightError::Arrow(error) => ShellError::Server(error.to_string()),
        other => ShellError::Server(other.to_string()),
    }
}

impl Rows {
    pub(super) fn schema(&self) -> SchemaRef {
        match self {
            Rows::Local(stream) => stream.schema(),
            Rows::Remote(schema, _) => schema.clone(),
        }
    }

    /// How much of the query is done, 0 to 1; `None` if that is not known.
    pub(super) fn progress(&self) -> Option<f64> {
        match self {
            Rows::Local(stream) => Some(stream.status().progress),
            Rows::Remote(..) => None,
        }
    }
}

impl Stream for Rows {
    type Item = Result<RecordBatch, ShellError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.get_mut() {
            Rows::Local(stream) => stream.poll_next_unpin(context).map_err(ShellError::Sql),
            Rows::Remote(_, stream) => stream.poll_next_unpin(context).map_err(remote),
        }
    }
}

/// Whether a statement has an answer to show: `SET` and `CREATE` have not.
pub(super) fn has_columns(schema: &Schema) -> bool {
    !schema.fields().is_empty()
}
