//! An in-memory multi-version transaction engine whose workers can be preempted.
//!
//! ```
//! use giveway_txn::{Database, KeyRange, Options, Schema, TxnOptions, Type};
//! use giveway_txn::Direction::Forward;
//!
//! let db = Database::in_memory(Options::default());
//! let accounts = db.create_table(
//!     Schema::builder("accounts")
//!         .column("id", Type::I32)
//!         .column("owner", Type::Text)
//!         .column("balance", Type::I64)
//!         .primary_key(["id"])
//!         .index("by_owner", ["owner"])
//!         .build()?,
//! )?;
//! let balance = accounts.column("balance")?;
//!
//! db.run(TxnOptions::serializable(), |txn| {
//!     for (id, owner) in [(1, "ann"), (2, "bob"), (3, "ann")] {
//!         let mut row = accounts.row();
//!         row.set_i32(0, id).set_text(1, owner).set_i64(balance, 100);
//!         txn.insert(&accounts, &row)?;
//!     }
//!     txn.update(&accounts, 2, |row| {
//!         row.set_i64(balance, row.i64(balance) - 30);
//!     })
//! })?;
//!
//! let txn = db.begin(TxnOptions::read_only())?;
//! assert_eq!(txn.get(&accounts, 2)?.unwrap().i64(balance), 70);
//! let by_owner = accounts.index("by_owner")?;
//! let mut anns = 0;
//! for row in txn.scan_index(&by_owner, KeyRange::prefix("ann"), Forward)? {
//!     anns += row?.i64(balance);
//! }
//! assert_eq!(anns, 200);
//! # Ok::<(), giveway_txn::Error>(())
//! ```
//!
//! The engine that Section 2.2 of PreemptDB (Huang et al., SIGMOD '25) assumes,
//! built so that the preemption of Section 4 is safe in it: reading takes no
//! latch and can be stopped at any instruction; latches and commits are held in
//! non-preemptible regions; nothing ever waits for a paused transaction.
//!
//! `docs/build/txn.md` explains the design and every option. The protocols are in the
//! module documentation, from the bottom up:
//!
//! | module | question |
//! | --- | --- |
//! | `sync`, `preemption`, `heap`, `thin` | What do we stand on? |
//! | `error` | What can go wrong, and what does the caller do next? |
//! | `column`, `layout`, `schema`, `value`, `row`, `key` | What is a table, a row, a key? |
//! | `latch`, `gate`, `tree` | Where is a key? |
//! | `epoch`, `txn_status`, `record` | Which version does a transaction see, and how long does a version live? |
//! | `prefetch_cache`, `txn_context`, `surplus`, `table`, `database`, `limits`, `stats` | What does a transaction work with? |
//! | `txn`, `node_set`, `scan`, `claims`, `unique`, `write`, `commit` | What does it do? |
//! | `alter`, `teardown` | How does the schema change? |
//! | `hook`, `replay` | Where does durability come in? |
//! | `log`, `checkpoint`, `recovery`, `durable` | How does it last? |
//! | `submit` | Who runs it? |

mod alter;
mod checkpoint;
mod claims;
mod column;
mod commit;
mod database;
mod durable;
mod epoch;
mod error;
mod gate;
mod heap;
mod hook;
mod key;
mod latch;
mod layout;
mod limits;
mod log;
mod node_set;
mod preemption;
mod prefetch_cache;
#[cfg(test)]
mod protocol_tests;
mod record;
mod recovery;
mod replay;
mod row;
mod scan;
mod schema;
mod stats;
mod submit;
mod surplus;
mod sync;
mod table;
mod teardown;
mod thin;
mod tree;
mod txn;
mod txn_context;
mod txn_status;
mod unique;
mod value;
mod write;

pub use column::{Column, Type};
pub use database::{Database, Options};
pub use durable::Checkpoint;
pub use error::{Error, Result, SchemaError};
// The words of the interface, and what runs and allocates for it, so that a program needs
// no second package for them.
pub use giveway_preempt::{
    BuildError, Level, LevelStats, Levels, Metric, Policy, Pool, PoolBuilder, PoolStats,
    RegionAlloc, Summary, TaskError, Tier, Weight,
};
pub use key::{Encoder, Key, KeyRange, Part};
pub use log::{
    Directory, Disk, DiskFile, DurabilityError, DurabilityOptions, Failure, Flaw, LogStats,
    SyncPolicy,
};
pub use recovery::{Cut, RecoveryReport};
pub use row::{Row, RowBuf};
pub use scan::Scan;
pub use schema::{IndexSchema, MAX_COLUMNS, Schema, SchemaBuilder};
pub use stats::{OldestSnapshot, Stats};
pub use submit::{Executor, ExecutorStats, NotAdmitted, Refused, Submission, Ticket};
pub use table::{Index, Table, TableId};
pub use tree::Direction;
pub use txn::{Isolation, Transaction, TxnOptions};
pub use value::Value;
