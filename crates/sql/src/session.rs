//! A session: what DataFusion's `SessionContext` is, on the engine's workers.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::format::ExplainFormat;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{DataFusionError, TableReference, exec_err, not_impl_err};
use datafusion::datasource::TableProvider;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::{
    CreateMemoryTable, DdlStatement, LogicalPlan, LogicalPlanBuilder, Statement,
};
use datafusion::prelude::{
    CsvReadOptions, DataFrame, JsonReadOptions, ParquetReadOptions, SessionConfig, SessionContext,
};
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryStreamExt};

use crate::catalog::{self, Catalogs};
use crate::cluster;
use crate::constants;
use crate::engine::{Engine, Inner};
use crate::error::SqlError;
use crate::expansion;
use crate::insert;
use crate::live;
use crate::options::QueryOptions;
use crate::planner::{Whose, with_checkpoints};
use crate::query::{Query, value_bytes};
use crate::rights;
use crate::settings;
use crate::sizing;
use crate::statement;
use crate::table::MorselTable;

/// What the names of this crate's options begin with.
const OPTIONS: &str = "giveway.";

/// Tables, functions and options, and a way to query them. Clones share all of it.
///
/// Its methods are `async`: plans are made on threads of the engine, since that may take
/// long. Whoever stops to wait for a plan ends it. They do not depend on the runtime that
/// they are awaited on.
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
        // CSV is cut only where somebody has said that it can be: `files`.
        config.options_mut().catalog.newlines_in_values = true;
        let state = |config| {
            let state = SessionStateBuilder::new()
                .with_config(config)
                .with_runtime_env(engine.environment())
                .with_catalog_list(Arc::new(Catalogs::default()))
                .with_default_features();
            with_checkpoints(state, sizing::physical_rules())
        };
        let state = match &engine.cluster {
            Some(cluster) => cluster::planning_for(cluster, config, state),
            None => state(config),
        };
        let mut state = state.build();
        constants::measure(&mut state).expect("DataFusion has these functions");
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
        let options = self.options();
        let began = Instant::now();
        let plan = self.logical_plan_for(text, &options, began).await?;
        self.query_for(plan, text, options, began).await
    }

    /// The logical plan of one statement; nothing is done yet.
    ///
    /// # Errors
    /// [`SqlError::Plan`] says what is wrong with the text.
    pub async fn logical_plan(&self, text: &str) -> Result<LogicalPlan, SqlError> {
        let options = self.options();
        (self.logical_plan_for(text, &options, Instant::now())).await
    }

    /// As [`logical_plan`](Self::logical_plan), for somebody with these options who has
    /// waited since then.
    pub(crate) async fn logical_plan_for(
        &self,
        text: &str,
        options: &QueryOptions,
        began: Instant,
    ) -> Result<LogicalPlan, SqlError> {
        let whose = whose(live::may_be_control(text), options, began);
        let (state, text) = (self.context.state(), text.to_owned());
        let size_max = self.engine.plan_size();
        let plan = async move {
            let dialect = state.config_options().sql_parser.dialect;
            // An unknown dialect is told by DataFusion.
            if let Some(dialect) = dialect_from_str(dialect) {
                statement::check(&text, dialect.as_ref())?;
            }
            let parsed = state.sql_to_statement(&text, &dialect)?;
            expansion::check(&parsed, size_max)?;
            let plan = state.statement_to_plan(parsed).await?;
            statement::check_plan(&plan, size_max)?;
            Ok(plan)
        };
        let plan = async move { plan.await.map_err(SqlError::planning) };
        self.engine.planner.run(whose, plan).await
    }

    /// Plans what a logical plan says; `text` is what the query is called.
    ///
    /// # Errors
    /// As [`sql`](Self::sql); [`SqlError::Denied`] says for whom the statement is.
    pub async fn query(&self, plan: LogicalPlan, text: &str) -> Result<Query, SqlError> {
        (self.query_for(plan, text, self.options(), Instant::now())).await
    }

    /// As [`query`](Self::query), for somebody with these options who has waited since
    /// then.
    pub(crate) async fn query_for(
        &self,
        plan: LogicalPlan,
        text: &str,
        options: QueryOptions,
        began: Instant,
    ) -> Result<Query, SqlError> {
        rights::check(&plan, options.tier_max)?;
        match &plan {
            LogicalPlan::Statement(Statement::SetVariable(set)) => {
                settings::check(&set.variable, Some(&set.value))
            }
            LogicalPlan::Statement(Statement::ResetVariable(reset)) => {
                settings::check(&reset.variable, None)
            }
            _ => Ok(()),
        }
        .map_err(SqlError::planning)?;
        let whose = whose(live::is_control(&plan), &options, began);
        let context = self.context.clone();
        let frame = match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                Box::pin(self.create_table(create, text, &options, began)).await?;
                let frame = nothing(&context).map_err(SqlError::planning)?;
                return self.plan_for(frame, text, options, began).await;
            }
            LogicalPlan::Explain(explain)
                if !explain.verbose && explain.explain_format == ExplainFormat::Indent =>
            {
                explained(Arc::clone(&self.engine), context, explain.plan).boxed()
            }
            LogicalPlan::Statement(Statement::ResetVariable(reset))
                if reset.variable.starts_with(OPTIONS) =>
            {
                let session = self.clone();
                async move { session.reset(&reset.variable[OPTIONS.len()..]) }.boxed()
            }
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)) if create.or_replace => {
                async move {
                    catalog::replace_external(&context, &create).await?;
                    nothing(&context)
                }
                .boxed()
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) if create.or_replace => async move {
                catalog::replace_view(&context, create)?;
                nothing(&context)
            }
            .boxed(),
            plan => async move { context.execute_logical_plan(plan).await }.boxed(),
        };
        self.finish(frame, text, whose, options, began).await
    }

    /// Plans a data frame of this session's [`context`](Self::context).
    ///
    /// # Errors
    /// [`SqlError::Plan`].
    pub async fn plan(&self, frame: DataFrame, text: &str) -> Result<Query, SqlError> {
        (self.plan_for(frame, text, self.options(), Instant::now())).await
    }

    async fn plan_for(
        &self,
        frame: DataFrame,
        text: &str,
        options: QueryOptions,
        began: Instant,
    ) -> Result<Query, SqlError> {
        let whose = whose(live::is_control(frame.logical_plan()), &options, began);
        let frame = async move { Ok(frame) }.boxed();
        self.finish(frame, text, whose, options, began).await
    }

    /// The last steps of planning, in one job.
    async fn finish(
        &self,
        frame: BoxFuture<'static, Result<DataFrame, DataFusionError>>,
        text: &str,
        whose: Whose,
        options: QueryOptions,
        began: Instant,
    ) -> Result<Query, SqlError> {
        let planned = async move {
            let (state, logical) = frame.await?.into_parts();
            let logical = insert::all_or_nothing(logical)?;
            let plan = state.create_physical_plan(&logical).await?;
            let values = value_bytes(&plan)?;
            Ok((state, logical, plan, values))
        };
        let planned = async move { planned.await.map_err(SqlError::planning) };
        let (state, logical, plan, values) = self.engine.planner.run(whose, planned).await?;
        Ok(Query {
            engine: Arc::clone(&self.engine),
            state,
            logical,
            plan,
            text: text.to_owned(),
            options,
            planning: began.elapsed(),
            is_static: false,
            shelf: None,
            values,
            kept: None,
        })
    }

    /// `RESET` of an option of this crate's.
    fn reset(&self, option: &str) -> Result<DataFrame, DataFusionError> {
        let mut options = self.options();
        options.reset(option)?;
        self.set_options(options);
        nothing(&self.context)
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

    /// Names a CSV file, or a directory of them. Unless the options say that there are
    /// newlines in values, large files are cut at any newline.
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

    /// Names a file with a JSON object on each line, or a directory of them.
    ///
    /// # Errors
    /// [`SqlError::Plan`] if it cannot be read.
    pub async fn register_json(
        &self,
        name: &str,
        path: &str,
        options: JsonReadOptions<'_>,
    ) -> Result<(), SqlError> {
        let registered = self.context.register_json(name, path, options).await;
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
    async fn create_table(
        &self,
        create: CreateMemoryTable,
        text: &str,
        options: &QueryOptions,
        began: Instant,
    ) -> Result<(), SqlError> {
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
        let query = Box::pin(self.plan_for(frame, text, options.clone(), began)).await?;
        let table = Arc::new(self.kept(query).await?);
        catalog::put(&self.context, &name, table, or_replace).map_err(SqlError::planning)
    }

    /// All rows of a query as a table, counted from when they come until it is dropped.
    async fn kept(&self, query: Query) -> Result<MorselTable, SqlError> {
        let account = self.engine.account_of_tables(query.options.tier);
        let held = MemoryConsumer::new("table").register(&account);
        let mut counter = RecordBatchMemoryCounter::new();
        let schema = query.schema();
        let mut batches = Vec::new();
        let mut rows = query.submit()?.stream();
        while let Some(batch) = rows.try_next().await? {
            let grown = held.try_grow(counter.count_batch(&batch));
            grown.map_err(SqlError::OutOfMemory)?;
            batches.push(batch);
        }
        let table = MorselTable::holding(schema, batches, Some(held));
        table.map_err(SqlError::planning)
    }

    fn exists(&self, name: &TableReference) -> Result<bool, SqlError> {
        (self.context.table_exist(name.clone())).map_err(SqlError::planning)
    }
}

/// `EXPLAIN`: the pipelines that would run, or the stages in a cluster, where DataFusion shows the plan before it is
/// cut.
async fn explained(
    engine: Arc<Inner>,
    context: SessionContext,
    plan: Arc<LogicalPlan>,
) -> Result<DataFrame, DataFusionError> {
    let state = context.state();
    let logical = state.optimize(&plan)?.display_indent().to_string();
    let physical = state.create_physical_plan(&plan).await?;
    let (kind, text) = match cluster::is_divided(&physical) {
        true => ("stages", cluster::explained(&physical)),
        false => ("pipelines", engine.explain(physical, state.task_ctx())?),
    };
    let texts = |texts: [&str; 2]| Arc::new(StringArray::from_iter_values(texts)) as ArrayRef;
    let batch = RecordBatch::try_from_iter([
        ("plan_type", texts(["logical_plan", kind])),
        ("plan", texts([&logical, &text])),
    ])?;
    let table = MorselTable::try_new(batch.schema(), vec![batch])?;
    context.read_table(Arc::new(table))
}

/// The answer of a statement that has no rows.
fn nothing(context: &SessionContext) -> Result<DataFrame, DataFusionError> {
    let nothing = LogicalPlanBuilder::empty(false).build()?;
    Ok(DataFrame::new(context.state(), nothing))
}

/// For whom a statement is planned that came then.
fn whose(is_control: bool, options: &QueryOptions, began: Instant) -> Whose {
    Whose {
        is_control,
        tier: options.tier,
        weight: options.weight,
        deadline: options.deadline.map(|deadline| began + deadline),
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
