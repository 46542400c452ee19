//! `INSERT` into a directory of files: its rows are seen all together, or not at all.
//!
//! ```text
//!   rows ─▶ DIR/.giveway/ID/…parquet.part ─▶ DIR/…parquet
//!           what DataFusion writes           when all of it has succeeded
//! ```
//!
//! DataFusion's own `INSERT` writes several files, and whatever it has received when its
//! input fails stays in the table. It names them by their format (`.csv`), also where the
//! table reads other names (`.csv.gz`, `.tsv`). And of texts it writes the type that it
//! reads them as (`Utf8View`), which cannot be merged with what the other files say
//! (`Utf8`), so that the table would be gone at the next start. So:
//!
//! I1. What is written is in a directory that no table's list has ([`STAGING`]), until all
//!     of it is there. (not asserted: the store's rename is the last step of `write_all`)
//! I2. Rows of a table without partitions are in one file, which the rename puts in place
//!     at once. (not asserted: `FileOutputMode::SingleFile`)
//! I3. A file is called as the table's own: otherwise the statement is refused. (checked
//!     in `Place::of`)
//! I4. Texts and bytes have the type that they have in the first file. (not asserted:
//!     `as_in_files` makes the schema of the new one)
//! I5. On a disk of this machine, a file has been written to it before it is put in place,
//!     and so has its name when the statement succeeds: a machine that loses its power keeps
//!     the rows of statements that have succeeded, and no file without its rows. (not tested:
//!     it takes such a machine)
//!
//! Known weaknesses: files of several partitions are put in place one after the other. What
//! a process that is killed has written stays in the directory, and in a store also what an
//! `INSERT` has that is cancelled. A store renames by copying, and S3 copies 5 GiB at most.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::{fmt, fs};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, Result, SchemaExt, plan_err};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingTable, ListingTableUrl};
use datafusion::datasource::physical_plan::{FileGroup, FileOutputMode, FileSinkConfig};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::{TableProvider, TableType, provider_as_source, source_as_provider};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, WriteOp};
use datafusion::physical_expr::expressions::{Column, cast};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr};
use futures_util::{TryStreamExt, future};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use rand::Rng;
use url::Url;

/// Where rows are until all of them are there: a directory in that of the table. Neither
/// DataFusion nor pyarrow looks for files in it.
const STAGING: &str = ".giveway";
/// The end of the names of files in it.
const PART: &str = ".part";

/// A statement whose `INSERT`s into directories are those of this module.
pub(crate) fn all_or_nothing(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_down(|node| match node {
        LogicalPlan::Dml(dml) => replaced(dml).map(|dml| dml.update_data(LogicalPlan::Dml)),
        other => Ok(Transformed::no(other)),
    })
    .data()
}

fn replaced(mut dml: DmlStatement) -> Result<Transformed<DmlStatement>> {
    let table = source_as_provider(&dml.target)?;
    if !matches!(dml.op, WriteOp::Insert(_)) || !table.is::<ListingTable>() {
        return Ok(Transformed::no(dml));
    }
    dml.target = provider_as_source(Arc::new(Directory { table }));
    Ok(Transformed::yes(dml))
}

/// A table that rows are added to; nothing else is done with this.
#[derive(Debug)]
struct Directory {
    table: Arc<dyn TableProvider>,
}

#[async_trait]
impl TableProvider for Directory {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.table.scan(session, projection, filters, limit).await
    }

    /// As `ListingTable` does it, but for the places, names and types of files.
    async fn insert_into(
        &self,
        session: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(table) = self.table.downcast_ref::<ListingTable>() else {
            return plan_err!("rows are added to directories of files");
        };
        let schema = table.schema();
        schema.logically_equivalent_names_and_types(&input.schema())?;
        let place = Place::of(table, session)?;
        let written = as_in_files(table, session).await?;
        let input = as_written(input, &written)?;
        let config = FileSinkConfig {
            original_url: String::default(),
            object_store_url: place.store.clone(),
            table_paths: vec![place.staged_url()?],
            // Shown, and not used.
            file_group: FileGroup::default(),
            output_schema: written,
            table_partition_cols: table.options().table_partition_cols.clone(),
            insert_op,
            keep_partition_by_columns: session.config_options().execution.keep_partition_by_columns,
            file_extension: format!("{}{PART}", place.extension),
            file_output_mode: match place.is_partitioned {
                true => FileOutputMode::Directory,
                // I2.
                false => FileOutputMode::SingleFile,
            },
        };
        let order = table.try_create_output_ordering(session.execution_props(), &[])?;
        let order = order.into_iter().next().map(Into::into);
        let format = &table.options().format;
        let writer =
            (format.create_writer_physical_plan(Arc::clone(&input), session, config, order))
                .await?;
        let Some(writer) = writer.downcast_ref::<DataSinkExec>() else {
            return plan_err!("rows cannot be added to files of this kind");
        };
        let order = writer.sort_order().clone();
        let writer = writer.clone();
        Ok(Arc::new(DataSinkExec::new(
            input,
            Arc::new(Staged { writer, place }),
            order,
        )))
    }
}

/// The first of the table's files, by its name.
async fn first_file(
    url: &ListingTableUrl,
    table: &ListingTable,
    session: &dyn Session,
    store: &dyn ObjectStore,
) -> Result<Option<ObjectMeta>> {
    let files = url.list_all_files(session, store, &table.options().file_extension);
    let first = files
        .await?
        .try_fold(None, |first: Option<ObjectMeta>, file| {
            let is_first = (first.as_ref()).is_none_or(|first| file.location < first.location);
            future::ok(if is_first { Some(file) } else { first })
        });
    first.await
}

/// The schema of a new file: I4.
async fn as_in_files(table: &ListingTable, session: &dyn Session) -> Result<SchemaRef> {
    let schema = table.schema();
    let format = table.options().format.downcast_ref::<ParquetFormat>();
    let (Some(format), Some(url)) = (format, table.table_paths().first()) else {
        return Ok(schema);
    };
    let store = session.runtime_env().object_store(url)?;
    let first = match first_file(url, table, session, &store).await? {
        Some(file) => {
            let plain = ParquetFormat::new()
                .with_options(format.options().clone())
                .with_force_view_types(false);
            Some(plain.infer_schema(session, &store, &[file]).await?)
        }
        None => None,
    };
    let fields = schema.fields().iter().map(|field| {
        let there = first
            .as_ref()
            .and_then(|first| first.field_with_name(field.name()).ok());
        let data_type = stored(field.data_type(), there.map(|field| field.data_type()));
        field.as_ref().clone().with_data_type(data_type)
    });
    let fields: Vec<_> = fields.collect();
    Ok(Arc::new(Schema::new_with_metadata(
        fields,
        schema.metadata().clone(),
    )))
}

/// How values of a type are stored, if another file has that type for them.
fn stored(read: &DataType, there: Option<&DataType>) -> DataType {
    let plain = match read {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => return other.clone(),
    };
    match there {
        Some(
            there @ (DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView),
        ) => there.clone(),
        _ => plain,
    }
}

/// Rows with the types of this schema.
fn as_written(input: Arc<dyn ExecutionPlan>, schema: &Schema) -> Result<Arc<dyn ExecutionPlan>> {
    let rows = input.schema();
    let has_type = |(row, field): (&FieldRef, &FieldRef)| row.data_type() == field.data_type();
    if std::iter::zip(rows.fields(), schema.fields()).all(has_type) {
        return Ok(input);
    }
    let columns = std::iter::zip(rows.fields(), schema.fields()).enumerate();
    let columns = columns.map(|(index, (row, field))| {
        let column = Arc::new(Column::new(row.name(), index));
        let column = cast(
            column as Arc<dyn PhysicalExpr>,
            &rows,
            field.data_type().clone(),
        )?;
        Ok((column, field.name().clone()))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(ProjectionExec::try_new(columns, input)?))
}

/// Where new files are, before and after.
#[derive(Clone, Debug)]
struct Place {
    store: ObjectStoreUrl,
    /// The table's directory, and the same as an URL.
    table: Path,
    url: Url,
    /// The directory of this statement, in that of the table.
    id: String,
    /// How names of files end.
    extension: String,
    is_partitioned: bool,
}

impl Place {
    fn of(table: &ListingTable, session: &dyn Session) -> Result<Place> {
        let Some(url) = table.table_paths().first() else {
            return plan_err!("rows cannot be added to a table without a location");
        };
        if !url.is_collection() {
            return plan_err!(
                "rows can be added to a directory of files, and {url} is no directory (the \
                 location of one ends in '/')"
            );
        }
        let extension = extension(table, url)?;
        let place = Place {
            store: url.object_store(),
            table: url.prefix().clone(),
            url: AsRef::<Url>::as_ref(url).clone(),
            id: format!("{:032x}", rand::rng().random::<u128>()),
            extension,
            is_partitioned: !table.options().table_partition_cols.is_empty(),
        };
        // I3.
        let options = &session.config_options().execution;
        let name = place.table.clone().join(place.name());
        let is_read = url.contains(&name, options.listing_table_ignore_subdirectory)
            && name.as_ref().ends_with(&table.options().file_extension);
        match is_read {
            true => Ok(place),
            false => plan_err!(
                "the rows would be in a file '{}', which {url} does not read",
                place.name()
            ),
        }
    }

    /// What the file of a table without partitions is called.
    fn name(&self) -> String {
        format!("{}.{}", self.id, self.extension)
    }

    fn staging(&self) -> Path {
        self.table.clone().join(STAGING).join(self.id.as_str())
    }

    fn staged_url(&self) -> Result<ListingTableUrl> {
        let file = match self.is_partitioned {
            true => String::new(),
            false => format!("{}{PART}", self.name()),
        };
        let url = self.url.join(&format!("{STAGING}/{}/{file}", self.id));
        let url = url.map_err(|error| DataFusionError::External(Box::new(error)))?;
        ListingTableUrl::try_new(url, None)
    }

    /// Where a staged file belongs; nothing if it is not one of these.
    fn target(&self, staged: &Path) -> Option<Path> {
        let below: Vec<_> = staged.prefix_match(&self.staging())?.collect();
        let (name, folders) = below.split_last()?;
        let name = name.as_ref().strip_suffix(PART)?;
        let folders = folders.iter().cloned();
        let target = folders.fold(self.table.clone(), |path, folder| path.join(folder));
        Some(target.join(name))
    }

    /// I1: puts what has been staged in place.
    async fn put(&self, store: &dyn ObjectStore) -> Result<()> {
        let mut put = Vec::new();
        let done = self.put_each(store, &mut put).await;
        if done.is_err() {
            discard(store, put).await;
        }
        done
    }

    /// Says which files are in place, also if it fails.
    async fn put_each(&self, store: &dyn ObjectStore, put: &mut Vec<Path>) -> Result<()> {
        let mut folders = BTreeSet::new();
        for staged in self.staged(store).await? {
            let Some(target) = self.target(&staged) else {
                continue;
            };
            self.sync(&staged)?;
            store.rename(&staged, &target).await?;
            let mut folder = target.parent();
            while let Some(this) = folder.filter(|folder| folder.prefix_matches(&self.table)) {
                folder = this.parent();
                folders.insert(this);
            }
            put.push(target);
        }
        folders.iter().try_for_each(|folder| self.sync(folder))
    }

    /// I5: of a file, or of the names in a directory.
    fn sync(&self, path: &Path) -> Result<()> {
        if self.url.scheme() == "file" {
            let mut url = self.url.clone();
            if let Ok(mut parts) = url.path_segments_mut() {
                parts.clear().extend(path.as_ref().split('/'));
            }
            if let Ok(path) = url.to_file_path() {
                fs::File::open(path)?.sync_all()?;
            }
        }
        Ok(())
    }

    async fn staged(&self, store: &dyn ObjectStore) -> Result<Vec<Path>> {
        let staging = self.staging();
        let listed = store.list(Some(&staging));
        let paths = listed.map_ok(|object| object.location).try_collect();
        Ok(paths.await?)
    }
}

/// Removes files as far as it goes: nobody reads those that stay.
async fn discard(store: &dyn ObjectStore, paths: Vec<Path>) {
    for path in paths {
        let _ = store.delete(&path).await;
    }
}

/// Removes a statement's directory when it ends, however that is; a store other than the
/// machine's own has no directories. The one around it stays: others are about to write there.
struct Clearing<'a>(&'a Place);

impl Drop for Clearing<'_> {
    fn drop(&mut self) {
        if let Ok(table) = self.0.url.to_file_path() {
            let _ = fs::remove_dir_all(table.join(STAGING).join(&self.0.id));
        }
    }
}

/// Writes as `writer` does, and puts the files in place when it has succeeded.
struct Staged {
    writer: DataSinkExec,
    place: Place,
}

#[async_trait]
impl DataSink for Staged {
    fn metrics(&self) -> Option<MetricsSet> {
        self.writer.sink().metrics()
    }

    fn schema(&self) -> &SchemaRef {
        self.writer.sink().schema()
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let store = context.runtime_env().object_store(&self.place.store)?;
        let _clearing = Clearing(&self.place);
        let written = match self.writer.sink().write_all(data, context).await {
            // A file without rows is of no use.
            Ok(0) => Ok(0),
            Ok(rows) => self.place.put(&store).await.map(|()| rows),
            Err(error) => Err(error),
        };
        if let Ok(left) = self.place.staged(&store).await {
            discard(&store, left).await;
        }
        written
    }
}

impl DisplayAs for Staged {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.writer.sink().fmt_as(t, f)
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// How names of a table's files end, without the first dot.
fn extension(table: &ListingTable, url: &ListingTableUrl) -> Result<String> {
    let options = table.options();
    let of_pattern = url
        .get_glob()
        .as_ref()
        .and_then(|glob| glob.as_str().strip_prefix("*."));
    if let Some(end) = options.file_extension.strip_prefix('.').or(of_pattern) {
        return Ok(end.to_owned());
    }
    let format = &options.format;
    match format.compression_type() {
        Some(compression) => format.get_ext_with_compression(&compression),
        None => Ok(format.get_ext()),
    }
    .map(|extension| extension.trim_start_matches('.').to_owned())
}
