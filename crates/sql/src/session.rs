//! A session: what DataFusion's `SessionContext` is, on the engine's workers.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, TableReference, exec_err, not_impl_err};
use datafusion::datasource::TableProvider;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::{
    CsvReadOptions, DataFrame, ParquetReadOptions, SessionConfig, SessionContext,
};

use crate::engine::{Engine, Inner};
use crate::error::SqlError;
use crate::options::QueryOptions;
use crate::query::Query;
use crate::table::MorselTable;

/// Tables, functions and options, and a way to query them. Clones share all of it.
///
/// Its methods are `async` because files may be looked at; they do not depend on the
/// runtime that they are awaited on.
#[derive(Clone)]
pub struct Session {
    engine: Arc<Inner>,
    context: SessionContext,
}

impl Session {
    pub(crate) fn new(engine: &Arc<Inner>) -> Session {
        let mut config = SessionConfig::new()
            .with_target_partitions(engine.partitions)
            // Streams share a cursor: nothing has to be spread by copying.
            .with_round_robin_repartition(false)
            .with_information_schema(true)
            // Nothing is spilled, so nothing has to be kept free for it.
            .with_sort_spill_reservation_bytes(0)
            .with_option_extension(QueryOptions::default());
        // They make one pipeline wait for what happens in another one, beside the
        // order of pipelines. The first of these stands for the others only in `SET`.
        let optimizer = &mut config.options_mut().optimizer;
        optimizer.enable_dynamic_filter_pushdown = false;
        optimizer.enable_join_dynamic_filter_pushdown = false;
        optimizer.enable_topk_dynamic_filter_pushdown = false;
        optimizer.enable_aggregate_dynamic_filter_pushdown = false;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(engine.environment())
            .with_default_features()
            .build();
        Session {
            engine: Arc::clone(engine),
            context: SessionContext::new_with_state(state),
        }
    }

    /// DataFusion's view of the same session: for functions, catalogs, formats and
    /// whatever else this crate says nothing about. What it collects runs on stock
    /// DataFusion, not on the engine's workers.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The engine that it belongs to.
    pub fn engine(&self) -> Engine {
        Engine(Arc::clone(&self.engine))
    }

    /// What holds for queries made from now on: tier, weight, deadline; also what
    /// `SET giveway.tier` and its like have set.
    pub fn options(&self) -> QueryOptions {
        let state = self.context.state_ref();
        let state = state.read();
        let options = state.config_options().extensions.get::<QueryOptions>();
        options.cloned().unwrap_or_default()
    }

    /// Sets what holds for queries made from now on.
    pub fn set_options(&self, options: QueryOptions) {
        let state = self.context.state_ref();
        let mut state = state.write();
        let extensions = &mut state.config_mut().options_mut().extensions;
        extensions.insert(options);
    }

    /// Plans one statement. Statements that change the session (`SET`, `CREATE`, `DROP`)
    /// have done so when this returns, and their query has no rows.
    ///
    /// # Errors
    /// [`SqlError::Plan`] says what is wrong with the text; statements that run a query
    /// of their own (`CREATE TABLE … AS`) may fail like one.
    pub async fn sql(&self, text: &str) -> Result<Query, SqlError> {
        let plan = self.logical_plan(text).await?;
        self.query(plan, text).await
    }

    /// The logical plan of one statement; nothing is done yet.
    ///
    /// # Errors
    /// [`SqlError::Plan`] says what is wrong with the text.
    pub async fn logical_plan(&self, text: &str) -> Result<LogicalPlan, SqlError> {
        let state = self.context.state();
        (state.create_logical_plan(text).await).map_err(SqlError::planning)
    }

    /// Plans what a logical plan says; `text` is what the query is called.
    ///
    /// # Errors
    /// As [`sql`](Self::sql).
    pub async fn query(&self, plan: LogicalPlan, text: &str) -> Result<Query, SqlError> {
        let frame = match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                Box::pin(self.create_table(create, text)).await?;
                let nothing = LogicalPlanBuilder::empty(false).build();
                let nothing = nothing.map_err(SqlError::planning)?;
                DataFrame::new(self.context.state(), nothing)
            }
            plan => (self.context.execute_logical_plan(plan).await).map_err(SqlError::planning)?,
        };
        self.plan(frame, text).await
    }

    /// Plans a data frame of this session's [`context`](Self::context).
    ///
    /// # Errors
    /// [`SqlError::Plan`].
    pub async fn plan(&self, frame: DataFrame, text: &str) -> Result<Query, SqlError> {
        let (state, logical) = frame.into_parts();
        let plan = (state.create_physical_plan(&logical).await).map_err(SqlError::planning)?;
        Ok(Query {
            engine: Arc::clone(&self.engine),
            state,
            logical,
            plan,
            text: text.to_owned(),
            options: self.options(),
            is_static: false,
        })
    }

    /// Names a Parquet file, or a directory of them.
    ///
    /// # Errors
    /// [`SqlError::Plan`] if it cannot be read.
    pub async fn register_parquet(
        &self,
        name: &str,
        path: &str,
        options: ParquetReadOptions<'_>,
    ) -> Result<(), SqlError> {
        let registered = self.context.register_parquet(name, path, options).await;
        registered.map_err(SqlError::planning)
    }

    /// Names a CSV file, or a directory of them.
    ///
    /// # Errors
    /// [`SqlError::Plan`] if it cannot be read.
    pub async fn register_csv(
        &self,
        name: &str,
        path: &str,
        options: CsvReadOptions<'_>,
    ) -> Result<(), SqlError> {
        let registered = self.context.register_csv(name, path, options).await;
        registered.map_err(SqlError::planning)
    }

    /// Names a table in memory. Looks at every value once, for statistics.
    ///
    /// # Errors
    /// [`SqlError::Plan`] if a batch has another schema.
    pub fn register_batches(
        &self,
        name: &str,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
    ) -> Result<(), SqlError> {
        let table = MorselTable::try_new(schema, batches).map_err(SqlError::planning)?;
        self.register_table(name, Arc::new(table))
    }

    /// Names a table, for example a [`MorselTable`] that several sessions share.
    ///
    /// # Errors
    /// [`SqlError::Plan`] if the name is no name.
    pub fn register_table(
        &self,
        name: &str,
        table: Arc<dyn TableProvider>,
    ) -> Result<(), SqlError> {
        let registered = self.context.register_table(name, table);
        registered.map(|_| ()).map_err(SqlError::planning)
    }

    /// `CREATE TABLE … AS`: DataFusion would run the query on the caller's runtime.
    async fn create_table(&self, create: CreateMemoryTable, text: &str) -> Result<(), SqlError> {
        let CreateMemoryTable {
            name,
            input,
            if_not_exists,
            or_replace,
            constraints,
            column_defaults,
            temporary,
        } = create;
        let refused = match (temporary, if_not_exists && or_replace) {
            (true, _) => not_impl_err!("temporary tables: leave out TEMPORARY"),
            (_, true) => exec_err!("'IF NOT EXISTS' and 'REPLACE': leave out one"),
            _ if constraints.iter().next().is_some() || !column_defaults.is_empty() => {
                not_impl_err!("constraints and defaults: tables in memory are not changed")
            }
            _ => Ok(()),
        };
        refused.map_err(SqlError::planning)?;
        let exists = self.exists(&name)?;
        if exists && if_not_exists {
            return Ok(());
        }
        if exists && !or_replace {
            let error = DataFusionError::Plan(format!(
                "there is a table '{name}': drop it, or write CREATE OR REPLACE TABLE"
            ));
            return Err(SqlError::Plan(error));
        }
        let frame = DataFrame::new(self.context.state(), Arc::unwrap_or_clone(input));
        let query = Box::pin(self.plan(frame, text)).await?;
        let schema = query.schema();
        let batches = query.collect().await?;
        let table = MorselTable::try_new(schema, batches).map_err(SqlError::planning)?;
        if exists {
            (self.context.deregister_table(name.clone())).map_err(SqlError::planning)?;
        }
        let registered = self.context.register_table(name, Arc::new(table));
        registered.map(|_| ()).map_err(SqlError::planning)
    }

    fn exists(&self, name: &TableReference) -> Result<bool, SqlError> {
        (self.context.table_exist(name.clone())).map_err(SqlError::planning)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.context.session_id())
            .field("engine", &self.engine)
            .finish()
    }
}
