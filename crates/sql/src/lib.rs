//! SQL for shared machines: short queries stay short however many long ones run beside
//! them.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
//! use giveway_tier::Tier;
//! use giveway_sql::Engine;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::builder().workers(2).memory_limit(1 << 30).build()?;
//! let session = engine.session();
//! let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
//! let batch = RecordBatch::try_from_iter([("number", numbers)])?;
//! session.register_batches("numbers", batch.schema(), vec![batch])?;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//!
//! // A background query: it runs when no time-sensitive one does.
//! let report = session
//!     .sql("SELECT number % 10 AS digit, count(*) FROM numbers GROUP BY digit")
//!     .await?
//!     .tier(Tier::Background)
//!     .submit()?;
//!
//! let answer = session
//!     .sql("SELECT sum(number) FROM numbers")
//!     .await?
//!     .deadline(Duration::from_secs(10))
//!     .collect()
//!     .await?;
//! assert_eq!(answer[0].num_rows(), 1);
//! assert_eq!(report.collect().await?.iter().map(RecordBatch::num_rows).sum::<usize>(), 10);
//! # Ok::<(), giveway_sql::SqlError>(())
//! # })?;
//! # Ok(())
//! # }
//! ```
//!
//! Apache DataFusion parses, optimizes and plans; [`giveway_tasks`] schedules. A plan is
//! cut into pipelines where stock DataFusion would connect tasks by channels, and workers
//! run the pipelines of all queries in tasks of 2 ms (Wagner, Kohn and Neumann,
//! SIGMOD '21). [`Engine`] is where to begin; [`Session`] is close to DataFusion's
//! `SessionContext`; [`Stock`] runs the same plan on stock DataFusion.
//!
//! To measure: plan queries beforehand by [`Session::sql`] (a [`Query`] is run once),
//! [`Query::submit`] when they are due, and [`RunningQuery::collect_with_report`]; compare
//! with [`Stock::collect`]. Tables that several sessions share are [`MorselTable`]s,
//! registered in each. [`Engine::stats`] has the lengths of tasks.
//!
//! | module | question |
//! | --- | --- |
//! | `task_time`, `memory`, `progress`, `side_thread`, `timer`, `planner` | When does a task end, how much memory is held, how far is a query, what runs beside the workers, what is due, and where are plans made? |
//! | `sketch`, `table`, `stores`, `read`, `scan` | What do plans read? |
//! | `results`, `spill`, `exchange` | Where do rows go? |
//! | `partition_stream`, `join`, `parts`, `sort`, `slice`, `wrap`, `cut` | What is a pipeline, and how does a plan become some? |
//! | `admission`, `run` | Which query may start, and how does it end? |
//! | `statement`, `expansion`, `constants`, `settings`, `rights` | Which statements are planned, what may be set, and by whom? |
//! | `catalog`, `insert` | How are tables replaced, and rows added to files? |
//! | `error`, `options`, `query`, `session`, `engine` | How is it used? |
//! | `live`, [`files`], [`tpch`] | What is there to ask? |
//! | `cluster` | How do several machines run a query? |
//! | [`shell`], [`server`] | How is it asked, by people and by programs? |
//! | `stock` | Compared with what? |

mod admission;
mod catalog;
mod cluster;
mod constants;
mod cut;
mod engine;
mod error;
mod exchange;
mod expansion;
pub mod files;
mod insert;
mod join;
mod live;
mod memory;
mod options;
mod partition_stream;
mod parts;
mod planner;
mod progress;
mod query;
mod read;
mod results;
mod rights;
mod run;
mod scan;
pub mod server;
mod session;
mod settings;
pub mod shell;
mod side_thread;
mod sizing;
mod sketch;
mod slice;
mod sort;
mod spill;
mod statement;
mod stock;
mod stores;
mod table;
mod task_time;
mod timer;
pub mod tpch;
mod wrap;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use cluster::{ClusterSettings, WorkerStatus};
pub use engine::{Builder, Engine, EngineStats};
pub use error::{BuildError, SqlError};
pub use giveway_tasks::{ParsePolicyError, Policy, Report, Shutdown};
pub use options::QueryOptions;
pub use progress::{OperatorTurns, TURN_CLASSES};
pub use query::{Query, QueryId, QueryState, QueryStatus, ResultStream, RunningQuery};
pub use session::Session;
pub use stock::Stock;
pub use table::MorselTable;

/// Locks, also after a panic with the lock held: every change under the locks of this
/// crate is made in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
