//! Prepared statements: planned once, bound and executed as often as one likes.
//!
//! ```text
//!   CreatePreparedStatement(query) ─► logical plan in the store ─► handle
//!   DoPut(handle, parameters)      ─► bound
//!   GetFlightInfo(handle)          ─► planned, as any query (`queries`)
//! ```

use std::sync::{Arc, Mutex};
use std::time::Instant;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::ActionCreatePreparedStatementResult;
use arrow_flight::sql::server::PeekableFlightDataStream;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::LogicalPlan;
use futures_util::{StreamExt, TryStreamExt};
use tonic::Status;

use super::clients::Caller;
use super::handle_store::places;
use super::service::{Bound, Prepared, Service};
use super::status::{planning, status};
use super::wire::{schema_bytes, sent_as};
use crate::error::SqlError;
use crate::query::Query;

/// Bytes of all messages of a stream of parameters.
const PARAMETERS_MAX: usize = 16 << 20;

impl Service {
    /// Keeps a plan, and says what it wants and what it gives.
    pub(super) fn prepare(
        &self,
        caller: Caller,
        plan: LogicalPlan,
        text: String,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let columns = plan.schema().fields().iter().map(|field| {
            let data_type = sent_as(field.data_type());
            Field::new(field.name(), data_type, field.is_nullable())
        });
        let dataset_schema = schema_bytes(&Schema::new(columns.collect::<Vec<_>>()))?;
        let parameter_schema = schema_bytes(&parameters(&plan)?)?;
        let owner = caller.owner;
        let prepared = Prepared {
            session: caller.session,
            is_kept: caller.is_kept,
            text,
            plan,
            parameters: Mutex::default(),
        };
        let places = places(&prepared.text);
        let handle = (self.prepared).put(&owner, prepared, places, Instant::now());
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.into(),
            dataset_schema,
            parameter_schema,
        })
    }

    pub(super) fn prepared(&self, handle: &[u8]) -> Result<Arc<Prepared>, Status> {
        std::str::from_utf8(handle)
            .ok()
            .and_then(|handle| self.prepared.get(handle, Instant::now()))
            .ok_or_else(|| {
                Status::not_found("no such prepared statement, or it expired: prepare it again")
            })
    }

    /// Binds the one row of parameters in a stream; nothing if there is no row.
    pub(super) async fn bind(
        &self,
        caller: &Caller,
        prepared: &Prepared,
        data: PeekableFlightDataStream,
    ) -> Result<(), Status> {
        let Some(values) = row(data).await? else {
            return Ok(());
        };
        let memory = (self.clients.base().engine().0).pool_for(caller.options.tier);
        let memory = MemoryConsumer::new("parameters").register(&memory);
        let bytes = values.iter().map(ScalarValue::size).sum();
        (memory.try_grow(bytes)).map_err(|error| status(&SqlError::OutOfMemory(error)))?;
        *crate::lock(&prepared.parameters) = Some(Bound {
            values: ParamValues::from(values),
            _memory: memory,
        });
        Ok(())
    }

    /// Plans a prepared statement with the parameters that have been bound.
    pub(super) async fn execute(&self, handle: &[u8], caller: &Caller) -> Result<Query, Status> {
        let prepared = self.prepared(handle)?;
        // The plan knows the tables of the session that it was made in.
        let caller = Caller {
            session: Arc::clone(&prepared.session),
            owner: caller.owner.clone(),
            is_kept: prepared.is_kept,
            options: caller.options.clone(),
            began: caller.began,
        };
        let plan = match prepared.values() {
            Some(values) => (prepared.plan.clone())
                .with_param_values(values)
                .map_err(planning)?,
            None => prepared.plan.clone(),
        };
        self.plan(&caller, plan, &prepared.text).await
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
        let data_type = data_type.map_or(DataType::Utf8, |data_type| sent_as(&data_type));
        Field::new(name, data_type, true)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

/// The one row of parameters in a stream; `None` if there is no row.
async fn row(data: PeekableFlightDataStream) -> Result<Option<Vec<ScalarValue>>, Status> {
    let wrong = |error| Status::invalid_argument(format!("parameters: {error}"));
    // A decoder keeps dictionaries, also of streams without rows.
    let mut bytes = 0;
    let data = data.map(move |message| {
        let message = message?;
        let parts = [
            &message.data_header,
            &message.data_body,
            &message.app_metadata,
        ];
        bytes += parts.map(|part| part.len()).iter().sum::<usize>();
        match bytes > PARAMETERS_MAX {
            true => Err(FlightError::ProtocolError(
                "more than 16 MiB: put the values into a table".to_owned(),
            )),
            false => Ok(message),
        }
    });
    let mut batches = FlightRecordBatchStream::new_from_flight_data(data);
    let mut row: Option<RecordBatch> = None;
    // No more is read than is wanted: the client decides how much comes.
    while let Some(batch) = batches.try_next().await.map_err(wrong)? {
        match (batch.num_rows(), &row) {
            (0, _) => {}
            (1, None) => row = Some(batch),
            _ => {
                return Err(Status::invalid_argument(
                    "several rows of parameters: bind one at a time",
                ));
            }
        }
    }
    let Some(batch) = row else {
        return Ok(None);
    };
    let values = (batch.columns().iter())
        .map(|column| ScalarValue::try_from_array(column, 0))
        .collect::<Result<Vec<_>, _>>()
        .map_err(planning)?;
    Ok(Some(values))
}
