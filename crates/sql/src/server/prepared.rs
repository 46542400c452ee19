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
use datafusion::logical_expr::LogicalPlan;
use futures_util::TryStreamExt;
use tonic::Status;

use super::clients::Caller;
use super::service::{Prepared, Service};
use super::status::planning;
use super::wire::{schema_bytes, sent_as};
use crate::query::Query;

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
        let handle = self.prepared.put(&owner, prepared, Instant::now());
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
        let parameters = crate::lock(&prepared.parameters).clone();
        let plan = match parameters {
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
pub(super) async fn bound(data: PeekableFlightDataStream) -> Result<Option<ParamValues>, Status> {
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
