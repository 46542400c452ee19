//! What clients ask before they ask anything: catalogs, schemas, tables, and what
//! this server can do.

use std::sync::Arc;

use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables, Nullable,
    Searchable, SqlInfo, SqlSupportedTransaction, XdbcDataType,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::CatalogProvider;
use datafusion::logical_expr::TableType;
use tonic::Status;

use super::status::{internal, planning};
use crate::session::Session;

/// What this server can do.
pub(super) fn sql_info(is_read_only: bool) -> Result<SqlInfoData, Status> {
    let mut builder = SqlInfoDataBuilder::new();
    builder.append(SqlInfo::FlightSqlServerName, "Giveway");
    builder.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    builder.append(SqlInfo::FlightSqlServerArrowVersion, "59");
    builder.append(SqlInfo::FlightSqlServerReadOnly, is_read_only);
    builder.append(SqlInfo::FlightSqlServerSql, true);
    builder.append(SqlInfo::FlightSqlServerSubstrait, false);
    builder.append(SqlInfo::FlightSqlServerCancel, true);
    builder.append(
        SqlInfo::FlightSqlServerTransaction,
        SqlSupportedTransaction::None as i32,
    );
    builder.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    builder.append(SqlInfo::SqlDdlCatalog, false);
    builder.append(SqlInfo::SqlDdlSchema, !is_read_only);
    builder.append(SqlInfo::SqlDdlTable, !is_read_only);
    builder.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    builder.append(SqlInfo::SqlAllTablesAreSelectable, true);
    builder.build().map_err(internal)
}

/// The types that a client may meet, by their names in SQL.
pub(super) fn type_info() -> Result<XdbcTypeInfoData, Status> {
    let types = [
        ("BOOLEAN", XdbcDataType::XdbcBit, None),
        ("TINYINT", XdbcDataType::XdbcTinyint, Some(8)),
        ("SMALLINT", XdbcDataType::XdbcSmallint, Some(16)),
        ("INTEGER", XdbcDataType::XdbcInteger, Some(32)),
        ("BIGINT", XdbcDataType::XdbcBigint, Some(64)),
        ("REAL", XdbcDataType::XdbcReal, Some(24)),
        ("DOUBLE", XdbcDataType::XdbcDouble, Some(53)),
        ("DECIMAL", XdbcDataType::XdbcDecimal, Some(38)),
        ("VARCHAR", XdbcDataType::XdbcVarchar, None),
        ("VARBINARY", XdbcDataType::XdbcVarbinary, None),
        ("DATE", XdbcDataType::XdbcDate, None),
        ("TIMESTAMP", XdbcDataType::XdbcTimestamp, None),
    ];
    let mut builder = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, size) in types {
        let is_text = name.starts_with("VAR") || name == "DATE" || name == "TIMESTAMP";
        builder.append(XdbcTypeInfo {
            type_name: name.into(),
            data_type,
            column_size: size,
            literal_prefix: is_text.then(|| "'".into()),
            literal_suffix: is_text.then(|| "'".into()),
            create_params: None,
            nullable: Nullable::NullabilityNullable,
            case_sensitive: name == "VARCHAR",
            searchable: Searchable::Full,
            unsigned_attribute: None,
            fixed_prec_scale: false,
            auto_increment: None,
            local_type_name: Some(name.into()),
            minimum_scale: None,
            maximum_scale: None,
            sql_data_type: data_type,
            datetime_subcode: None,
            num_prec_radix: size.map(|_| 2),
            interval_precision: None,
        });
    }
    builder.build().map_err(internal)
}

pub(super) fn catalogs(
    command: CommandGetCatalogs,
    session: &Session,
) -> Result<RecordBatch, Status> {
    let mut builder = command.into_builder();
    for catalog in session.context().catalog_names() {
        builder.append(catalog);
    }
    builder.build().map_err(internal)
}

pub(super) fn schemas(
    command: CommandGetDbSchemas,
    session: &Session,
) -> Result<RecordBatch, Status> {
    let mut builder = command.into_builder();
    for (catalog, provider) in named_catalogs(session) {
        for schema in provider.schema_names() {
            builder.append(&catalog, schema);
        }
    }
    builder.build().map_err(internal)
}

pub(super) async fn tables(
    command: CommandGetTables,
    session: &Session,
) -> Result<RecordBatch, Status> {
    let mut builder = command.into_builder();
    for (catalog, provider) in named_catalogs(session) {
        for schema_name in provider.schema_names() {
            let Some(schema) = provider.schema(&schema_name) else {
                continue;
            };
            for name in schema.table_names() {
                // Dropped since it was listed.
                let Some(table) = schema.table(&name).await.map_err(planning)? else {
                    continue;
                };
                let kind = kind(table.table_type());
                builder
                    .append(&catalog, &schema_name, &name, kind, &table.schema())
                    .map_err(internal)?;
            }
        }
    }
    builder.build().map_err(internal)
}

pub(super) fn table_types(command: CommandGetTableTypes) -> Result<RecordBatch, Status> {
    let mut builder = command.into_builder();
    for kind in [TableType::Base, TableType::View, TableType::Temporary].map(kind) {
        builder.append(kind);
    }
    builder.build().map_err(internal)
}

fn named_catalogs(session: &Session) -> Vec<(String, Arc<dyn CatalogProvider>)> {
    let context = session.context();
    let names = context.catalog_names().into_iter();
    names
        .filter_map(|name| context.catalog(&name).map(|catalog| (name, catalog)))
        .collect()
}

fn kind(table_type: TableType) -> &'static str {
    match table_type {
        TableType::Base => "TABLE",
        TableType::View => "VIEW",
        TableType::Temporary => "LOCAL TEMPORARY",
    }
}
