//! The queries that are running, in SQL.
//!
//! ```sql
//! SELECT id, tier, progress, sql FROM giveway.queries;   -- also: SHOW giveway.queries
//! SELECT giveway_cancel(17);                             -- also: CANCEL QUERY 17
//! ```
//!
//! A table and a function, so that every client that speaks SQL has them. The two
//! short forms are no SQL that the parser knows; [`long_form`] says what they stand
//! for.
//!
//! The table is read when a query on it is planned: that query is not in it. A login that is
//! for the background only sees no texts of logins that are not.
//!
//! Statements that do nothing else are *control statements*. They need neither a slot
//! nor memory of the engine, and run on a worker of their own: when the engine is full, a
//! client can see which queries fill it, and cancel them. To read tables beside, to join the
//! table with itself, or to call another function, is work like any other.
//!
//! The function cancels with the rights of the session that runs it, so nothing that others
//! may run has it in it (`rights`).

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{SchemaProvider, Session as PlannerSession};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::datasource::{TableProvider, source_as_provider};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Statement, TableSource, TableType, Volatility,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use giveway_tier::Tier;

use crate::engine::Engine;
use crate::options::QueryOptions;
use crate::query::{QueryId, QueryStatus};
use crate::session::Session;
use crate::table::MorselTable;

/// The schema that the table is in.
const SCHEMA: &str = "giveway";
/// The table.
const QUERIES_NAME: &str = "queries";
/// The function.
pub(crate) const CANCEL: &str = "giveway_cancel";

/// Gives a session the table and the function.
pub(crate) fn install(session: &Session) -> Result<()> {
    install_function(session);
    let engine = session.engine();
    let context = session.context();
    let catalog = context
        .catalog(&context.state().config_options().catalog.default_catalog)
        .ok_or_else(|| DataFusionError::Internal("a session without its catalog".into()))?;
    let queries = Arc::new(QueriesTable { engine });
    catalog.register_schema(SCHEMA, Arc::new(ReadOnly { queries }))?;
    Ok(())
}

/// The schema: nobody adds to it or removes from it, whatever their rights. All clients share
/// it.
#[derive(Debug)]
struct ReadOnly {
    queries: Arc<QueriesTable>,
}

fn read_only<T>() -> Result<T> {
    plan_err!("the schema {SCHEMA} cannot be changed: choose another one")
}

#[async_trait]
impl SchemaProvider for ReadOnly {
    fn table_names(&self) -> Vec<String> {
        vec![QUERIES_NAME.to_owned()]
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let queries = Arc::clone(&self.queries) as Arc<dyn TableProvider>;
        Ok(self.table_exist(name).then_some(queries))
    }

    fn register_table(
        &self,
        _: String,
        _: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        read_only()
    }

    fn deregister_table(&self, _: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        read_only()
    }

    fn table_exist(&self, name: &str) -> bool {
        name == QUERIES_NAME
    }
}

/// Whether an expression ends queries.
pub(crate) fn calls_cancel(expression: &Expr) -> Result<bool> {
    expression.exists(|part| Ok(is_cancel(part)))
}

fn is_cancel(part: &Expr) -> bool {
    matches!(part, Expr::ScalarFunction(call) if call.name() == CANCEL)
}

/// Gives a session that shares its tables with another one the function.
pub(crate) fn install_function(session: &Session) {
    let function = CancelFunction::new(session.engine());
    session
        .context()
        .register_udf(ScalarUDF::new_from_impl(function));
}

/// What a short form stands for; all other text as it is.
pub(crate) fn long_form(sql: &str) -> Cow<'_, str> {
    let words: Vec<String> = sql
        .trim_end_matches(|c: char| c == ';' || c.is_whitespace())
        .split_whitespace()
        .take(4)
        .map(str::to_lowercase)
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["show", "giveway.queries"] => "SELECT * FROM giveway.queries".into(),
        ["cancel", "query", id] if id.parse::<QueryId>().is_ok() => {
            format!("SELECT giveway_cancel({id}) AS cancelled").into()
        }
        _ => sql.into(),
    }
}

/// Whether a text may be a control statement. Which one is, its plan says
/// ([`is_control`]); this says who is planned apart from those that may take long, so it
/// must not be one with a call that is computed when it is planned.
pub(crate) fn may_be_control(sql: &str) -> bool {
    if sql.len() > CONTROL_TEXT_MAX {
        return false;
    }
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else {
        return false;
    };
    let tokens: Vec<&Token> = (tokens.iter())
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .collect();
    let is_word = |token: &Token, words: &[&str]| matches!(token, Token::Word(word) if words.contains(&word.value.to_lowercase().as_str()));
    let is_setting = tokens.first().is_some_and(|first| is_word(first, &SETTING));
    let names_ours = tokens.iter().any(|token| is_word(token, &[SCHEMA, CANCEL]));
    let computes = tokens.windows(2).any(|pair| {
        *pair[1] == Token::LParen
            && match pair[0] {
                Token::Word(_) => !is_word(pair[0], &BEFORE_PARENTHESES),
                _ => false,
            }
    });
    (is_setting || names_ours) && !computes
}

/// What statements on settings begin with.
const SETTING: [&str; 3] = ["set", "show", "reset"];
/// What may be before a parenthesis in a control statement: no function but ours, and those
/// that count.
const BEFORE_PARENTHESES: [&str; 15] = [
    CANCEL, "count", "sum", "min", "max", "avg", "in", "and", "or", "not", "where", "having", "by",
    "select", "cast",
];

/// Bytes of a control statement's text.
const CONTROL_TEXT_MAX: usize = 4096;

/// Whether a statement is a control statement: the list of queries, a call of
/// `giveway_cancel`, `SET` or `RESET`, or nothing (as is left of these when they are done).
pub(crate) fn is_control(plan: &LogicalPlan) -> bool {
    let is_setting = matches!(
        plan,
        LogicalPlan::Statement(Statement::SetVariable(_) | Statement::ResetVariable(_))
    );
    if is_setting || matches!(plan, LogicalPlan::EmptyRelation(_)) {
        return true;
    }
    let mut has_reason = false;
    let mut node = plan;
    loop {
        let mut is_plain = true;
        let looked = node.apply_expressions(|expression| {
            expression.apply(|part| {
                match part {
                    call if is_cancel(call) => has_reason = true,
                    // Any other function may compute for as long as it likes.
                    Expr::ScalarFunction(_)
                    | Expr::ScalarSubquery(_)
                    | Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::SetComparison(_) => is_plain = false,
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        });
        if looked.is_err() || !is_plain {
            return false;
        }
        node = match node {
            LogicalPlan::Projection(inner) => &inner.input,
            LogicalPlan::Filter(inner) => &inner.input,
            LogicalPlan::Aggregate(inner) => &inner.input,
            LogicalPlan::Sort(inner) => &inner.input,
            LogicalPlan::Limit(inner) => &inner.input,
            LogicalPlan::SubqueryAlias(inner) => &inner.input,
            LogicalPlan::EmptyRelation(_) => return has_reason,
            LogicalPlan::TableScan(scan) => return is_queries_table(&scan.source),
            _ => return false,
        };
    }
}

fn is_queries_table(source: &Arc<dyn TableSource>) -> bool {
    source_as_provider(source).is_ok_and(|table| table.is::<QueriesTable>())
}

/// `giveway.queries`.
#[derive(Debug)]
struct QueriesTable {
    engine: Engine,
}

static QUERIES: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("id", DataType::Int64),
        field("tier", DataType::Utf8),
        field("weight", DataType::Int64),
        field("state", DataType::Utf8),
        field("progress", DataType::Float64),
        field("age_s", DataType::Float64),
        field("ran_s", DataType::Float64),
        field("memory_bytes", DataType::Int64),
        field(
            "since",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ),
        field("sql", DataType::Utf8),
    ]))
});

#[async_trait]
impl TableProvider for QueriesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&QUERIES)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        session: &dyn PlannerSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = session.config_options().extensions.get::<QueryOptions>();
        let tier_max = options.map_or(Tier::TimeSensitive, |options| options.tier_max);
        let batch = rows(&self.engine.running_as_seen(tier_max))?;
        let table = MorselTable::try_new(self.schema(), vec![batch])?;
        table.scan(session, projection, filters, limit).await
    }
}

fn rows(queries: &[QueryStatus]) -> Result<RecordBatch> {
    let texts = |of: fn(&QueryStatus) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(queries.iter().map(of)))
    };
    let numbers = |of: fn(&QueryStatus) -> u64| -> ArrayRef {
        let numbers = queries.iter().map(|query| of(query) as i64);
        Arc::new(Int64Array::from_iter_values(numbers))
    };
    let fractions = |of: fn(&QueryStatus) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(queries.iter().map(of)))
    };
    let since = queries.iter().map(|query| {
        let since = query.since.duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_micros() as i64)
    });
    let since = TimestampMicrosecondArray::from_iter_values(since).with_timezone("UTC");
    let columns = vec![
        numbers(|query| query.id.0),
        texts(|query| query.tier.to_string()),
        numbers(|query| query.weight.get().into()),
        texts(|query| query.state.to_string()),
        fractions(|query| query.progress),
        fractions(|query| query.age_ns as f64 / 1e9),
        fractions(|query| query.ran_ns as f64 / 1e9),
        numbers(|query| query.memory_bytes as u64),
        Arc::new(since),
        texts(|query| query.sql.clone()),
    ];
    Ok(RecordBatch::try_new(Arc::clone(&QUERIES), columns)?)
}

/// `giveway_cancel(id)`: ends a query; true if there was one to end.
#[derive(Debug)]
struct CancelFunction {
    engine: Engine,
    signature: Signature,
}

impl CancelFunction {
    fn new(engine: Engine) -> CancelFunction {
        CancelFunction {
            engine,
            // Not to be evaluated when planned, nor once for several rows.
            signature: Signature::exact(vec![DataType::Int64], Volatility::Volatile),
        }
    }
}

/// There is one per engine.
impl PartialEq for CancelFunction {
    fn eq(&self, other: &CancelFunction) -> bool {
        Arc::ptr_eq(&self.engine.0, &other.engine.0)
    }
}

impl Eq for CancelFunction {}

impl std::hash::Hash for CancelFunction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.engine.0).hash(state);
    }
}

impl ScalarUDFImpl for CancelFunction {
    fn name(&self) -> &str {
        CANCEL
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ids = ColumnarValue::values_to_arrays(&arguments.args)?;
        let ids = ids[0].as_primitive::<Int64Type>();
        // Whose work is in the background ends none that is not.
        let options = arguments.config_options.extensions.get::<QueryOptions>();
        let tier_max = options.map_or(Tier::TimeSensitive, |options| options.tier_max);
        let cancelled: BooleanArray = ids
            .iter()
            .map(|id| {
                let id = u64::try_from(id?).ok();
                Some(id.is_some_and(|id| self.engine.cancel_below(QueryId(id), tier_max)))
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(cancelled)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_computes_is_planned_with_other_work() {
        for control in [
            "SHOW giveway.queries",
            "set giveway.tier = 'background'",
            "SELECT state, count(*) FROM giveway.queries WHERE id IN (1, 2) GROUP BY state",
            "SELECT giveway_cancel (17)",
            "SELECT giveway_cancel(id) FROM giveway.queries WHERE sql LIKE '%f(x)%'",
        ] {
            assert!(may_be_control(control), "{control}");
        }
        for work in [
            "SELECT 1",
            "SELECT * FROM range(levenshtein('a', 'b')) -- giveway",
            "SELECT giveway_cancel(0), levenshtein('a', 'b')",
            "SELECT giveway_cancel(0), levenshtein /* giveway */ ('a', 'b')",
            "SELECT giveway_cancel(0), \"repeat\"('a', 9)",
            "SELECT 'giveway'",
        ] {
            assert!(!may_be_control(work), "{work}");
        }
    }

    #[test]
    fn short_forms_are_sugar() {
        assert_eq!(
            long_form("show  Giveway.Queries ;"),
            "SELECT * FROM giveway.queries"
        );
        assert_eq!(
            long_form("CANCEL\nQUERY 17"),
            "SELECT giveway_cancel(17) AS cancelled"
        );
        for other in ["SHOW giveway.tier", "cancel query x", "select 1", ""] {
            assert_eq!(long_form(other), other);
        }
    }
}
