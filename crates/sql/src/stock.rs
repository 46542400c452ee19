//! The baseline: the same plans on stock DataFusion, whose tasks Tokio spreads over as
//! many threads as the engine has workers.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::physical_plan::collect;
use tokio::runtime::{Builder, Runtime};

use crate::error::SqlError;
use crate::memory::Account;
use crate::query::Query;

/// Stock DataFusion on a Tokio runtime of its own.
#[derive(Debug)]
pub struct Stock(Option<Runtime>);

impl Stock {
    /// A runtime with so many threads.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn new(threads: usize) -> std::io::Result<Stock> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("giveway-stock")
            .enable_time()
            .build()?;
        Ok(Stock(Some(runtime)))
    }

    /// Runs a query as it was planned. Tier, weight and deadline mean nothing here.
    /// Dropping the future cancels the query.
    ///
    /// # Errors
    /// Why there is no result.
    pub async fn collect(&self, query: Query) -> Result<Vec<RecordBatch>, SqlError> {
        let account = Arc::new(Account::new(Arc::clone(&query.engine.memory)));
        let context = Arc::new(query.context(&account));
        let runtime = self.0.as_ref().expect("there until it is dropped");
        let mut task = tokio::task::JoinSet::new();
        task.spawn_on(collect(query.plan, context), runtime.handle());
        match task.join_next().await.expect("one was spawned") {
            Ok(result) => result.map_err(SqlError::running),
            Err(error) => Err(SqlError::Panicked(error.to_string())),
        }
    }
}

impl Drop for Stock {
    /// Also from within another runtime, which must not block.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
