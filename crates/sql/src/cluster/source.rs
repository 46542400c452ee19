//! The leaf of a part whose rows come from other workers' parts, and plans as bytes.
//!
//! ```text
//!   stage 1, task 0: p0 p1 p2 p3   ┐  by hash: consumer 0 reads p0 and p1 of all tasks,
//!   stage 1, task 1: p0 p1 p2 p3   ┘           consumer 1 reads p2 and p3
//! ```
//!
//! Which partitions of which tasks make up a partition of the leaf is decided when the
//! query is divided (`divide`) and written into the leaf.
//!
//! N1. The parts that a leaf reads have ended before it is executed: the coordinator sends
//!     a part when those below it are done, and the leaf of its own plan waits. (asserted
//!     by the worker: rows that are not there are an error)

use std::fmt;
use std::sync::Arc;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::{IpcMessage, SchemaAsIpc};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_proto_converter, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::physical_plan::{
    DeduplicatingProtoConverter, PhysicalExtensionCodec, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures_util::future::BoxFuture;
use futures_util::{TryStreamExt, stream};
use prost::Message;
use prost::bytes::Bytes;

use super::message::{Fetch, PartKey, Pieces, Source};
use super::peers::Peers;
use crate::error::SqlError;

/// Whether a node is such a leaf.
pub(crate) fn is_remote(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RemoteSourceExec>()
}

/// What has to be done before a leaf of the coordinator's own plan is read.
pub(super) trait Before: fmt::Debug + Send + Sync {
    /// Waits until it is.
    fn done(&self) -> BoxFuture<'_, std::result::Result<(), SqlError>>;

    /// Takes note of why the rows are not to be had.
    fn note(&self, error: &DataFusionError);
}

/// The leaf.
#[derive(Debug)]
pub(super) struct RemoteSourceExec {
    source: Source,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    peers: Peers,
    /// Of the coordinator's own plan.
    before: Option<Arc<dyn Before>>,
}

impl RemoteSourceExec {
    /// A leaf with the properties of what it replaces.
    pub(super) fn new(
        key: (String, u32),
        workers: Vec<String>,
        partitions: Vec<Pieces>,
        properties: Arc<PlanProperties>,
        peers: Peers,
        before: Option<Arc<dyn Before>>,
    ) -> Result<RemoteSourceExec> {
        let schema = Arc::clone(properties.eq_properties.schema());
        let (query, stage) = key;
        let source = Source {
            query,
            stage,
            workers,
            partitions,
            schema: schema_bytes(&schema)?,
        };
        Ok(RemoteSourceExec {
            source,
            schema,
            properties,
            peers,
            before,
        })
    }

    /// The leaf of a message; its hashing is known where it is read, and not needed.
    fn received(source: Source, peers: Peers) -> Result<RemoteSourceExec> {
        let schema = Arc::new(Schema::try_from(IpcMessage(source.schema.clone()))?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(source.partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(RemoteSourceExec {
            source,
            schema,
            properties: Arc::new(properties),
            peers,
            before: None,
        })
    }

    /// The rows of one partition.
    fn rows(&self, partition: usize) -> Result<SendableRecordBatchStream> {
        let Some(Pieces { pieces }) = self.source.partitions.get(partition) else {
            return exec_err!("there is no partition {partition} of other workers' rows");
        };
        let mut streams = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let Some(worker) = self.source.workers.get(piece.task as usize) else {
                return exec_err!(
                    "there is no task {} of stage {}",
                    piece.task,
                    self.source.stage
                );
            };
            let fetch = Fetch {
                key: PartKey {
                    query: self.source.query.clone(),
                    stage: self.source.stage,
                    task: piece.task,
                },
                partition: piece.partition,
            };
            let mut messages = self.peers.fetch(worker.clone(), fetch);
            let messages = stream::poll_fn(move |context| messages.poll_recv(context));
            let messages = messages.map_err(|error| FlightError::ExternalError(Box::new(error)));
            streams.push(FlightRecordBatchStream::new_from_flight_data(messages).map_err(plain));
        }
        let rows = stream::select_all(streams);
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        )))
    }
}

/// The error itself.
fn plain(error: FlightError) -> DataFusionError {
    match error {
        FlightError::ExternalError(error) => match error.downcast::<SqlError>() {
            Ok(error) => error.into_datafusion(),
            Err(error) => DataFusionError::External(error),
        },
        error => DataFusionError::External(Box::new(error)),
    }
}

fn schema_bytes(schema: &Schema) -> Result<Bytes> {
    let options = IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &options).try_into()?;
    Ok(bytes)
}

impl DisplayAs for RemoteSourceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stage, tasks) = (self.source.stage, self.source.workers.len());
        write!(
            f,
            "RemoteSourceExec: rows of stage {stage}, by {tasks} workers"
        )
    }
}

impl ExecutionPlan for RemoteSourceExec {
    fn name(&self) -> &str {
        "RemoteSourceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(before) = self.before.clone() else {
            return self.rows(partition);
        };
        // N1.
        let leaf = RemoteSourceExec {
            source: self.source.clone(),
            schema: Arc::clone(&self.schema),
            properties: Arc::clone(&self.properties),
            peers: self.peers.clone(),
            before: None,
        };
        let rows = stream::once(async move {
            before.done().await.map_err(SqlError::into_datafusion)?;
            let rows = leaf.rows(partition)?;
            Ok::<_, DataFusionError>(rows.inspect_err(move |error| before.note(error)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows.try_flatten(),
        )))
    }
}

/// Writes and reads the leaf inside plans.
#[derive(Debug)]
struct Codec(Option<Peers>);

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let source = Source::decode(bytes)
            .map_err(|error| DataFusionError::Plan(format!("a leaf of a part: {error}")))?;
        let Some(peers) = self.0.clone() else {
            return exec_err!("a leaf of a part outside of a cluster");
        };
        Ok(Arc::new(RemoteSourceExec::received(source, peers)?))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(leaf) = node.downcast_ref::<RemoteSourceExec>() else {
            return exec_err!("'{}' cannot be sent to a worker", node.name());
        };
        bytes.extend(leaf.source.encode_to_vec());
        Ok(())
    }
}

/// A part's plan as bytes.
pub(super) fn encoded(plan: Arc<dyn ExecutionPlan>) -> Result<Bytes> {
    let converter = DeduplicatingProtoConverter::default();
    physical_plan_to_bytes_with_proto_converter(plan, &Codec(None), &converter)
}

/// What a part may have around what it is made of, in operators.
const AROUND: usize = 4;

/// Whether parts of a plan can be read from their bytes: Protocol Buffers has a limit for
/// messages inside of messages.
pub(super) fn is_readable(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let around = |plan, _| Arc::new(CoalescePartitionsExec::new(plan)) as Arc<dyn ExecutionPlan>;
    let plan = (0..AROUND).fold(Arc::clone(plan), around);
    encoded(plan).is_ok_and(|bytes| PhysicalPlanNode::decode(bytes).is_ok())
}

/// A part's plan, whose leaves fetch by these connections. Readers of Parquet files share
/// the cache of footers, which plans that were made here do by themselves.
pub(super) fn decoded(
    bytes: &[u8],
    context: &TaskContext,
    peers: &Peers,
) -> Result<Arc<dyn ExecutionPlan>> {
    let codec = Codec(Some(peers.clone()));
    let converter = DeduplicatingProtoConverter::default();
    let plan = physical_plan_from_bytes_with_proto_converter(bytes, context, &codec, &converter)?;
    plan.transform_up(|node| {
        let cached = with_cache(&node, context)?;
        Ok(cached.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

fn with_cache(
    node: &Arc<dyn ExecutionPlan>,
    context: &TaskContext,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(scan) = node.downcast_ref::<DataSourceExec>() else {
        return Ok(None);
    };
    let Some(files) = scan.data_source().downcast_ref::<FileScanConfig>() else {
        return Ok(None);
    };
    let Some(parquet) = files.file_source().downcast_ref::<ParquetSource>() else {
        return Ok(None);
    };
    let environment = context.runtime_env();
    let store = environment.object_store(&files.object_store_url)?;
    let cache = environment.cache_manager.get_file_metadata_cache();
    let factory = CachedParquetFileReaderFactory::new(store, cache);
    let parquet = (parquet.clone()).with_parquet_file_reader_factory(Arc::new(factory));
    let mut files = files.clone();
    files.file_source = Arc::new(parquet);
    Ok(Some(Arc::new(
        scan.clone().with_data_source(Arc::new(files)),
    )))
}
