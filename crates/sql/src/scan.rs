//! Scans of files in morsels: what a stream takes at a time is a row group.
//!
//! ```text
//!                 DataFusion's partitions        a shared cursor over
//!   file          of equal size, by bytes        what begins in each
//!  ┌────────┐     ┌ 0 ──────────────┐
//!  │ rg 0   │     │ rg 0, rg 1      │            rg 0 ▸ rg 1 ▸ rg 2 ▸ rg 3
//!  │ rg 1   │  ▶  ├ 1 ──────────────┤     ▶        ▲      ▲
//!  │ rg 2   │     │ rg 2, rg 3      │            1      0   streams: one that
//!  │ rg 3   │     └─────────────────┘            is done takes the next
//!  └────────┘
//! ```
//!
//! DataFusion 55 lets the partitions of a scan share one queue of what they have not
//! opened (`SharedWorkSource`), which is the cursor that morsels want. What is in the
//! queue, however, are its partitions: a file of any size in as many ranges as there
//! are streams. A stream that has taken one keeps all of its row groups, and when the
//! queue is empty the others look on. So the ranges are cut further when a query is
//! submitted, at row groups where the file has such, and the queue does the rest.
//! Filters that were pushed into the scan stay there, and row groups are pruned by
//! statistics when they are opened, as before.
//!
//! M1. A row group is in one morsel. Of a range, DataFusion reads the row groups whose
//!     first page lies in it; a morsel's range begins at the first page of its first
//!     row group and ends just after that of its last one.
//!     (asserted in `neighbours`: ranges do not overlap)
//! M2. The number of partitions and the order of the queue do not change. Nor does the
//!     plan of the query: stock DataFusion runs it with its own ranges.
//!     (not asserted: groups are mapped one by one)
//! M3. Files that partitions may not share (because an operator relies on their order,
//!     or their place says which rows they have) are not changed, and neither is what
//!     DataFusion has not divided, such as compressed text. (not asserted:
//!     `in_morsels_of` asks DataFusion)
//!
//! Opening a file once more takes some 0.1 ms for its filters and metrics; its footer
//! is in DataFusion's cache. So row groups are put together until they have enough
//! bytes to be worth it. Ranges in which no row group begins are not opened at all.
//!
//! Known weakness: row groups are not divided. One of a million rows is one stream's.
//! What is not in the cache (its limit is 50 MB of footers) keeps DataFusion's ranges.

use std::sync::Arc;

use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::execution::TaskContext;
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;

use crate::progress::Gauge;

/// What a morsel has at least, if there are neighbours to take in.
#[derive(Clone, Copy)]
struct Sizes {
    /// Bytes of the columns that are read, decompressed: some ms to decode.
    parquet_bytes: i64,
    /// Bytes of text: some ten ms to parse.
    text_bytes: i64,
}

const SIZES: Sizes = Sizes {
    parquet_bytes: 4 << 20,
    text_bytes: 4 << 20,
};

/// A scan of files whose streams take a morsel at a time. Other plans stay as they are.
pub(crate) fn in_morsels(
    plan: Arc<dyn ExecutionPlan>,
    context: &TaskContext,
) -> Arc<dyn ExecutionPlan> {
    in_morsels_of(plan, context, SIZES)
}

fn in_morsels_of(
    plan: Arc<dyn ExecutionPlan>,
    context: &TaskContext,
    sizes: Sizes,
) -> Arc<dyn ExecutionPlan> {
    let Some((scan, files)) = scanned(&plan) else {
        return plan;
    };
    let options = context.session_config().options();
    // M3.
    if files.create_sibling_state(options).is_none() {
        return plan;
    }
    let file_type = files.file_source().file_type();
    let morsels = |file: &PartitionedFile| -> Vec<PartitionedFile> {
        let ranges = match file_type {
            "parquet" => row_groups(file, files, context)
                .map(|groups| neighbours(groups, sizes.parquet_bytes)),
            "csv" | "json" => file.range.as_ref().map(|range| split(range, sizes)),
            _ => None,
        };
        match ranges {
            Some(ranges) => (ranges.iter())
                .map(|range| file.clone().with_range(range.start, range.end))
                .collect(),
            None => vec![file.clone()],
        }
    };
    // M2.
    let groups = (files.file_groups.iter())
        .map(|group| FileGroup::new(group.iter().flat_map(morsels).collect()))
        .collect();
    let mut files = files.clone();
    files.file_groups = groups;
    Arc::new(scan.clone().with_data_source(Arc::new(files)))
}

fn scanned(plan: &Arc<dyn ExecutionPlan>) -> Option<(&DataSourceExec, &FileScanConfig)> {
    let scan = plan.downcast_ref::<DataSourceExec>()?;
    Some((scan, scan.data_source().downcast_ref()?))
}

/// A row group: where its first page is, and how many bytes of it are read.
#[derive(Clone, Copy)]
struct RowGroup {
    first_page: i64,
    bytes: i64,
}

/// The row groups that begin in a file, or in the range of it that is asked for;
/// `None` if they are not known.
fn row_groups(
    file: &PartitionedFile,
    files: &FileScanConfig,
    context: &TaskContext,
) -> Option<Vec<RowGroup>> {
    let cache = context
        .runtime_env()
        .cache_manager
        .get_file_metadata_cache();
    let cached = cache.get(&file.object_meta.location)?;
    if !cached.is_valid_for(&file.object_meta) {
        return None;
    }
    let footer: &CachedParquetMetaData = cached.file_metadata.as_any().downcast_ref()?;
    let footer: &ParquetMetaData = footer.parquet_metadata();
    let schema = files.file_source().table_schema().table_schema();
    let read: Option<Vec<&str>> = files.file_source().projection().map(|projection| {
        let columns = projection.column_indices().into_iter();
        let name = |column: usize| schema.field(column).name().as_str();
        columns.map(name).collect()
    });
    let groups = (footer.row_groups().iter())
        .map(|group| Some((first_page(group)?, group)))
        .collect::<Option<Vec<_>>>()?;
    // Otherwise a range would have others in it: M1.
    if !groups.is_sorted_by(|(one, _), (next, _)| one < next) {
        return None;
    }
    let is_asked = |page: i64| match &file.range {
        Some(range) => range.contains(page),
        None => true,
    };
    let groups = (groups.into_iter())
        .filter(|&(page, _)| is_asked(page))
        .map(|(first_page, group)| RowGroup {
            first_page,
            bytes: bytes(group, read.as_deref()),
        });
    Some(groups.collect())
}

/// What DataFusion tells by whether a row group is in a range.
fn first_page(group: &RowGroupMetaData) -> Option<i64> {
    let column = group.columns().first()?;
    let dictionary = column.dictionary_page_offset();
    Some(dictionary.unwrap_or_else(|| column.data_page_offset()))
}

fn bytes(group: &RowGroupMetaData, read: Option<&[&str]>) -> i64 {
    let is_read = |name: &str| read.is_none_or(|read| read.contains(&name));
    (group.columns().iter())
        .filter(|column| {
            let root = column.column_path().parts().first();
            root.is_some_and(|name| is_read(name))
        })
        .map(|column| column.uncompressed_size())
        .sum()
}

/// Ranges of neighbours that have enough together: M1.
fn neighbours(groups: Vec<RowGroup>, enough: i64) -> Vec<FileRange> {
    let mut ranges: Vec<FileRange> = Vec::new();
    let mut bytes = 0;
    for group in groups {
        match ranges.last_mut() {
            Some(range) if bytes < enough => range.end = group.first_page + 1,
            _ => {
                bytes = 0;
                ranges.push(FileRange {
                    start: group.first_page,
                    end: group.first_page + 1,
                });
            }
        }
        bytes += group.bytes;
    }
    debug_assert!(
        ranges.is_sorted_by(|one, next| one.end <= next.start),
        "M1: {ranges:?}"
    );
    ranges
}

/// A range of text in equal parts. Readers find the ends of lines by themselves.
fn split(range: &FileRange, sizes: Sizes) -> Vec<FileRange> {
    let bytes = range.end - range.start;
    let parts = (bytes / sizes.text_bytes).max(1);
    let at = |part: i64| range.start + bytes * part / parts;
    let part = |part| FileRange {
        start: at(part),
        end: at(part + 1),
    };
    (0..parts).map(part).collect()
}

/// How much of a scan of files has been read.
pub(crate) fn gauge(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn Gauge>> {
    let (_, files) = scanned(plan)?;
    Some(Arc::new(Read {
        metrics: files.metrics(),
        morsels: files.file_groups.iter().map(FileGroup::len).sum(),
    }))
}

struct Read {
    metrics: ExecutionPlanMetricsSet,
    morsels: usize,
}

impl Gauge for Read {
    fn fraction(&self) -> f64 {
        let metrics = self.metrics.clone_inner();
        let read = metrics.sum_by_name("files_processed");
        match (self.morsels, read) {
            (0, _) => 1.0,
            (_, None) => 0.0,
            (morsels, Some(read)) => (read.as_usize() as f64 / morsels as f64).min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs::File;
    use std::path::Path;

    use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::parquet::arrow::ArrowWriter;
    use datafusion::parquet::file::properties::WriterProperties;
    use datafusion::physical_plan::{ExecutionPlanProperties, collect};
    use futures_util::StreamExt;

    use crate::memory::Account;
    use crate::query::Query;
    use crate::{Engine, Session};

    /// DataFusion divides a scan whose reader gains by it.
    const SQL: &str = "SELECT DISTINCT number FROM numbers";
    const GROUPS: usize = 10;
    const GROUP_ROWS: usize = 100;

    fn write(path: &Path) {
        let numbers = 0..(GROUPS * GROUP_ROWS) as i64;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        let batch = RecordBatch::try_from_iter([("number", numbers)]).unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let file = File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    /// A session with ten row groups in two partitions.
    async fn session(dir: &Path) -> Session {
        let path = dir.join("numbers.parquet");
        write(&path);
        let engine = Engine::builder().workers(1).partitions(2).build().unwrap();
        let session = engine.session();
        // DataFusion does not divide what is one batch, or a small file.
        for set in [
            "SET datafusion.execution.batch_size = 100",
            "SET datafusion.optimizer.repartition_file_min_size = 1",
        ] {
            let set = session.sql(set).await.unwrap();
            set.collect().await.unwrap();
        }
        let path = path.to_str().unwrap();
        let registered = session.register_parquet("numbers", path, Default::default());
        registered.await.unwrap();
        session
    }

    fn context(query: &Query) -> Arc<TaskContext> {
        let account = Account::new(Arc::clone(&query.engine.memory));
        Arc::new(query.context(&Arc::new(account)))
    }

    /// The scan of a plan.
    fn scan(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        match plan.children().first() {
            Some(child) => scan(child),
            None => Arc::clone(plan),
        }
    }

    fn each() -> Sizes {
        Sizes {
            parquet_bytes: 1,
            text_bytes: 1,
        }
    }

    fn pieces(plan: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
        let (_, files) = scanned(plan).unwrap();
        files.file_groups.iter().map(FileGroup::len).collect()
    }

    fn rows(batches: &[RecordBatch]) -> usize {
        batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[tokio::test]
    async fn every_row_group_is_in_one_morsel() {
        let dir = tempfile::tempdir().unwrap();
        let session = session(dir.path()).await;
        let query = session.sql(SQL).await.unwrap();
        let context = context(&query);
        let stock = scan(query.plan());
        assert_eq!(pieces(&stock), [1, 1], "as DataFusion divides it");
        let morsels = in_morsels_of(Arc::clone(&stock), &context, each());
        // By size, and the file ends with a footer.
        let pieces_of = pieces(&morsels);
        assert_eq!(pieces_of.iter().sum::<usize>(), GROUPS, "M1");
        assert_eq!(morsels.output_partitioning().partition_count(), 2, "M2");
        let gauge = gauge(&morsels).unwrap();
        assert_eq!(gauge.fraction(), 0.0);
        let mut stream = morsels.execute(0, Arc::clone(&context)).unwrap();
        let mut numbers = 0;
        for group in 0..3 {
            numbers += stream.next().await.unwrap().unwrap().num_rows();
            assert_eq!(numbers, (group + 1) * GROUP_ROWS);
        }
        assert_eq!(gauge.fraction(), 0.2, "the third has not ended");
        let mut other = morsels.execute(1, context).unwrap();
        while let Some(batch) = other.next().await {
            numbers += batch.unwrap().num_rows();
        }
        assert!(
            stream.next().await.is_none(),
            "the other stream took the rest"
        );
        assert_eq!(numbers, GROUPS * GROUP_ROWS, "M1");
        assert_eq!(gauge.fraction(), 1.0);
    }

    #[tokio::test]
    async fn row_groups_are_pruned_in_morsels_too() {
        let dir = tempfile::tempdir().unwrap();
        let session = session(dir.path()).await;
        let sql = "SELECT number FROM numbers WHERE number BETWEEN 310 AND 320";
        let query = session.sql(sql).await.unwrap();
        let context = context(&query);
        let morsels = in_morsels_of(scan(query.plan()), &context, each());
        let batches = collect(Arc::clone(&morsels), context).await.unwrap();
        let read = rows(&batches);
        assert!((11..=GROUP_ROWS).contains(&read), "{read} rows were read");
    }

    #[tokio::test]
    async fn files_that_partitions_may_not_share_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let session = session(dir.path()).await;
        let query = session.sql(SQL).await.unwrap();
        let context = context(&query);
        let stock = scan(query.plan()).with_preserve_order(true).unwrap();
        let left = in_morsels_of(stock, &context, each());
        assert_eq!(pieces(&left), [1, 1], "M3");
    }

    #[test]
    fn neighbours_are_put_together_until_they_have_enough() {
        let group = |first_page, bytes| RowGroup { first_page, bytes };
        let groups = vec![
            group(4, 10),
            group(100, 30),
            group(200, 50),
            group(300, 5),
            group(400, 5),
        ];
        let ranges = |enough| -> Vec<(i64, i64)> {
            let ranges = neighbours(groups.clone(), enough);
            ranges
                .iter()
                .map(|range| (range.start, range.end))
                .collect()
        };
        assert_eq!(ranges(40), [(4, 101), (200, 201), (300, 401)]);
        assert_eq!(ranges(1000), [(4, 401)]);
        assert_eq!(ranges(1).len(), 5);
        assert!(neighbours(Vec::new(), 1).is_empty());
    }

    #[test]
    fn text_is_split_without_gaps() {
        let range = FileRange { start: 7, end: 110 };
        let parts = split(
            &range,
            Sizes {
                parquet_bytes: 0,
                text_bytes: 25,
            },
        );
        assert_eq!(parts.len(), 4);
        assert_eq!((parts[0].start, parts[3].end), (7, 110));
        assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
        assert_eq!(split(&FileRange { start: 0, end: 9 }, SIZES).len(), 1);
    }
}
