//! Names of tables, which pass from one table to the next at once.
//!
//! DataFusion replaces a table in two steps: it removes the one that is there, and adds the
//! other. All clients share the names. In between they find no table, another replacement
//! finds the name taken, and if the new table cannot be made after all, there is none:
//!
//! ```text
//!   DataFusion   old ──▶ (none) ──▶ make new ──▶ new
//!   here         old ──▶ make new ──▶ new
//! ```
//!
//! N1. A name that has a table has one until it is dropped: `Tables::replace` exchanges them
//!     under the lock that readers take. (tested)
//! N2. Of several that replace a table at once, each succeeds, and the last one stays.
//!     (tested)
//! N3. All schemas that DataFusion makes in memory are looked at through one of this kind:
//!     that of a new session, of `CREATE SCHEMA` and of `CREATE DATABASE`. (tested)
//!
//! Known weakness: in schemas that a program adds to a catalog of its own, or that are not in
//! memory, tables are replaced in two steps.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, TableReference, exec_err, not_impl_err, plan_err};
use datafusion::datasource::{TableProvider, ViewTable};
use datafusion::logical_expr::{CreateExternalTable, CreateView};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::prelude::SessionContext;
use futures_util::FutureExt;

/// A schema in memory.
#[derive(Debug)]
struct Tables {
    inner: Arc<dyn SchemaProvider>,
    /// Whoever looks at it or changes it.
    lock: Mutex<()>,
}

impl Tables {
    /// N1.
    fn replace(&self, name: &str, table: Arc<dyn TableProvider>) -> Result<()> {
        let exclusive = crate::lock(&self.lock);
        let old = self.inner.deregister_table(name)?;
        self.inner.register_table(name.to_owned(), table)?;
        drop(exclusive);
        // It may be large, and others wait for the lock.
        drop(old);
        Ok(())
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let _exclusive = crate::lock(&self.lock);
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let _exclusive = crate::lock(&self.lock);
        let table = self.inner.table(name).now_or_never();
        table.expect("a schema in memory waits for nothing")
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        let _exclusive = crate::lock(&self.lock);
        self.inner.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let _exclusive = crate::lock(&self.lock);
        self.inner.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        let _exclusive = crate::lock(&self.lock);
        self.inner.table_exist(name)
    }
}

/// A catalog in memory: N3.
#[derive(Debug)]
struct Schemas(Arc<dyn CatalogProvider>);

impl CatalogProvider for Schemas {
    fn schema_names(&self) -> Vec<String> {
        self.0.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.0.schema(name)
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        let schema: Arc<dyn SchemaProvider> = match schema.is::<MemorySchemaProvider>() {
            true => Arc::new(Tables {
                inner: schema,
                lock: Mutex::new(()),
            }),
            false => schema,
        };
        self.0.register_schema(name, schema)
    }

    fn deregister_schema(
        &self,
        name: &str,
        cascade: bool,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.0.deregister_schema(name, cascade)
    }
}

/// The catalogs of a session: N3.
#[derive(Debug, Default)]
pub(crate) struct Catalogs(MemoryCatalogProviderList);

impl CatalogProviderList for Catalogs {
    fn register_catalog(
        &self,
        name: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        let catalog: Arc<dyn CatalogProvider> = match catalog.is::<MemoryCatalogProvider>() {
            true => Arc::new(schemas_of(catalog)),
            false => catalog,
        };
        self.0.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.0.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        self.0.catalog(name)
    }
}

fn schemas_of(catalog: Arc<dyn CatalogProvider>) -> Schemas {
    let schemas = Schemas(catalog);
    for name in schemas.schema_names() {
        if let Some(schema) = schemas.schema(&name) {
            let added = schemas.register_schema(&name, schema);
            added.expect("a catalog in memory takes any schema");
        }
    }
    schemas
}

/// Gives a table a name, and takes it from the one that has it if `or_replace` says so.
///
/// # Errors
/// The name is taken, or there is no such schema.
pub(crate) fn put(
    context: &SessionContext,
    name: &TableReference,
    table: Arc<dyn TableProvider>,
    or_replace: bool,
) -> Result<()> {
    let schema = (context.state_ref().read()).schema_for_ref(name.clone())?;
    match schema.downcast_ref::<Tables>() {
        Some(tables) if or_replace => tables.replace(name.table(), table)?,
        _ => {
            if or_replace {
                schema.deregister_table(name.table())?;
            }
            schema.register_table(name.table().to_owned(), table)?;
        }
    }
    if or_replace {
        // What is known of the files of the table before.
        let caches = &context.runtime_env().cache_manager;
        if let Some(lists) = caches.get_list_files_cache() {
            lists.drop_table_entries(name)?;
        }
        if let Some(statistics) = caches.get_file_statistic_cache() {
            statistics.drop_table_entries(name)?;
        }
    }
    Ok(())
}

/// `CREATE OR REPLACE EXTERNAL TABLE`.
///
/// # Errors
/// The table cannot be made; the one before is still there.
pub(crate) async fn replace_external(
    context: &SessionContext,
    create: &CreateExternalTable,
) -> Result<()> {
    if create.temporary {
        return not_impl_err!("temporary tables: leave out TEMPORARY");
    }
    if create.if_not_exists {
        return exec_err!("'IF NOT EXISTS' and 'REPLACE': leave out one");
    }
    let state = context.state();
    let factories = state.table_factories();
    let Some(factory) = factories.get(&create.file_type.to_uppercase()) else {
        return exec_err!("there are no tables of the kind {}", create.file_type);
    };
    let table = factory.create(&state, create).await?;
    put(context, &create.name, table, true)
}

/// `CREATE OR REPLACE VIEW`.
///
/// # Errors
/// The view cannot be made; the one before is still there.
pub(crate) fn replace_view(context: &SessionContext, create: CreateView) -> Result<()> {
    if create.temporary {
        return not_impl_err!("temporary views: leave out TEMPORARY");
    }
    // As DataFusion makes views.
    let rules = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]);
    let input = Arc::unwrap_or_clone(create.input);
    let input = rules.execute_and_check(input, &ConfigOptions::default(), |_, _| {})?;
    let mut seen = HashSet::new();
    let mut columns = input.schema().fields().iter().map(|field| field.name());
    if let Some(twice) = columns.find(|name| !seen.insert(*name)) {
        return plan_err!("two columns of the view are called {twice}: give one another name");
    }
    let view = Arc::new(ViewTable::new(input, create.definition));
    put(context, &create.name, view, true)
}
