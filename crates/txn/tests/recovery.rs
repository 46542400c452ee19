//! A database that is closed, or whose disk fails, as its user sees it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use giveway_txn::Direction::Forward;
use giveway_txn::{
    Database, Disk, DiskFile, DurabilityError, DurabilityOptions, Error, KeyRange, Options, Schema,
    SyncPolicy, Table, TxnOptions, Type,
};

mod disk;
mod namespace;

use disk::Wrapped;

fn schema() -> Schema {
    Schema::builder("people")
        .column("id", Type::I32)
        .column("name", Type::Text)
        .nullable("photo", Type::Bytes)
        .primary_key(["id"])
        .index("by_name", ["name"])
        .build()
        .unwrap()
}

fn insert(db: &Database, table: &Table, id: i32, name: &str) -> Result<(), Error> {
    db.run(TxnOptions::default(), |txn| {
        let mut row = table.row();
        row.set_i32(0, id).set_text(1, name);
        if id % 2 == 0 {
            row.set_bytes(2, &[7; 100]);
        }
        txn.insert(table, &row)
    })
}

fn names(db: &Database) -> Vec<(String, i32)> {
    let table = db.table("people").unwrap();
    let index = table.index("by_name").unwrap();
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    let rows = txn.scan_index(&index, KeyRange::all(), Forward).unwrap();
    rows.map(|row| row.unwrap())
        .map(|row| (row.text(1).to_owned(), row.i32(0)))
        .collect()
}

fn durability() -> DurabilityOptions {
    DurabilityOptions::new().checkpoint_bytes(None)
}

#[test]
fn committed_transactions_are_recovered_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::open(directory.path(), Options::default(), durability()).unwrap();
    let db = open();
    let people = db.create_table(schema()).unwrap();
    for (id, name) in [(1, "dora"), (2, "carl"), (3, "bea"), (4, "anna")] {
        insert(&db, &people, id, name).unwrap();
    }
    db.run(TxnOptions::default(), |txn| {
        txn.delete(&people, 2)?;
        txn.update(&people, 3, |row| {
            row.set_text(1, "zoe").set_null(2);
        })
    })
    .unwrap();
    let open_txn = db.begin(TxnOptions::default()).unwrap();
    open_txn.delete(&people, 1).unwrap();
    drop(open_txn);
    let expected = [("anna", 4), ("dora", 1), ("zoe", 3)].map(|(name, id)| (name.to_owned(), id));
    assert_eq!(names(&db), expected);
    drop((db, people));

    // From the log, then from a checkpoint, then from both.
    let db = open();
    assert_eq!(names(&db), expected);
    assert_eq!(db.recovery().unwrap().transactions, 5);
    assert_eq!(db.table("people").unwrap().schema(), &schema());
    let checkpoint = db.checkpoint().unwrap();
    drop(db);
    let db = open();
    assert_eq!(names(&db), expected);
    let report = db.recovery().unwrap();
    assert_eq!(report.checkpoint, Some(checkpoint.timestamp));
    assert_eq!(report.transactions, 0);
    insert(&db, &db.table("people").unwrap(), 2, "carl").unwrap();
    drop(db);
    let db = open();
    assert_eq!(db.recovery().unwrap().transactions, 1);
    assert_eq!(names(&db).len(), 4);
    // A deleted row's key is free again, a living one's is not.
    let people = db.table("people").unwrap();
    let twice = insert(&db, &people, 1, "twice");
    assert!(matches!(twice, Err(Error::DuplicateKey { .. })));
}

#[test]
fn a_directory_is_open_once() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::open(directory.path(), Options::default(), durability());
    let db = open().unwrap();
    let Err(Error::Durability(error)) = open() else {
        panic!("it was opened twice");
    };
    assert!(matches!(*error, DurabilityError::InUse { .. }));
    assert!(
        error.to_string().contains("close it there first"),
        "{error}"
    );
    drop(db);
    open().unwrap();
}

#[test]
fn in_memory_there_is_nothing_to_checkpoint() {
    let db = Database::in_memory(Options::default());
    db.flush().unwrap();
    assert!(db.recovery().is_none() && db.log_stats().is_none());
    let error = db.checkpoint().unwrap_err();
    assert!(
        error.to_string().contains("open it with a directory"),
        "{error}"
    );
}

/// A file on a disk that has room for so many bytes, of all files together.
struct SmallFile {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    room: Arc<AtomicU64>,
    /// Bytes that are written over and take no room.
    over: u64,
}

/// A directory on such a disk.
fn small(path: &Path, room: &Arc<AtomicU64>) -> Arc<dyn Disk> {
    let (directory, room) = (path.to_owned(), Arc::clone(room));
    Wrapped::open(path, move |name, from, file| {
        let written = directory.join(name).metadata().unwrap().len();
        Box::new(SmallFile {
            path: directory.clone(),
            file,
            room: Arc::clone(&room),
            over: written - from,
        })
    })
}

/// What is left of the room.
fn left(path: &Path, room: &AtomicU64) -> u64 {
    let entries = std::fs::read_dir(path).unwrap();
    let used: u64 = entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    room.load(Ordering::SeqCst).saturating_sub(used)
}

impl DiskFile for SmallFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let over = self.over.min(bytes.len() as u64);
        self.over -= over;
        let left = (left(&self.path, &self.room) + over) as usize;
        if bytes.len() <= left {
            return self.file.append(bytes);
        }
        // As a file system does: what fits is there.
        self.file.append(&bytes[..left])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

#[test]
fn a_disk_failure_makes_the_database_read_only() {
    let path = tempfile::tempdir().unwrap();
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let disk = small(path.path(), &room);
    let db = Database::open_on(disk, Options::default(), durability()).unwrap();
    let people = db.create_table(schema()).unwrap();
    insert(&db, &people, 1, "anna").unwrap();
    room.store(0, Ordering::SeqCst);
    // A checkpoint that fails changes nothing.
    assert!(db.checkpoint().is_err());
    let kind = |result: Result<(), Error>| match result {
        Err(Error::Durability(error)) => *error,
        other => panic!("{other:?}"),
    };
    let doubt = kind(insert(&db, &people, 2, "bea"));
    assert!(matches!(doubt, DurabilityError::InDoubt(_)), "{doubt}");
    // The disk has room again, but what it has is not known: nobody tries.
    room.store(u64::MAX, Ordering::SeqCst);
    let refused = kind(insert(&db, &people, 3, "carl"));
    assert!(matches!(refused, DurabilityError::ReadOnly(_)));
    assert!(
        refused.to_string().contains("no storage space"),
        "{refused}"
    );
    let refused = kind(db.create_table(renamed()).map(drop));
    assert!(matches!(refused, DurabilityError::ReadOnly(_)));
    assert!(db.checkpoint().is_err() && db.flush().is_err());
    assert!(db.log_stats().unwrap().failure.is_some());
    // What can be read can be read; nobody is told of what may be lost.
    assert_eq!(names(&db).len(), 2);
    let read = |id: i32| {
        db.run(TxnOptions::read_only(), |txn| {
            Ok(txn.get(&people, id)?.map(|row| row.to_owned()))
        })
    };
    assert_eq!(read(1).unwrap().unwrap().text(1), "anna");
    assert!(read(3).unwrap().is_none());
    let error = kind(read(2).map(drop));
    assert!(matches!(error, DurabilityError::ReadInDoubt(_)), "{error}");
    let all = db.run(TxnOptions::read_only(), |txn| {
        Ok(txn.scan(&people, KeyRange::all(), Forward)?.count())
    });
    assert!(matches!(
        kind(all.map(drop)),
        DurabilityError::ReadInDoubt(_)
    ));
    drop((db, people));
    let db = Database::open(path.path(), Options::default(), durability()).unwrap();
    assert_eq!(names(&db), [("anna".to_owned(), 1)]);
}

const MIB: u64 = 1 << 20;

/// Inserts rows of some KB until the disk is full; the first that was not acknowledged.
fn fill(db: &Database, people: &Table, from: i32) -> i32 {
    let text = "x".repeat(3000);
    for id in from.. {
        match insert(db, people, id, &text) {
            Ok(()) => {}
            Err(Error::Durability(error)) => {
                assert!(matches!(*error, DurabilityError::InDoubt(_)), "{error}");
                return id;
            }
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("the disk has an end")
}

/// All that were acknowledged are there, and at most the one in doubt.
fn acknowledged(db: &Database, first_in_doubt: i32) -> i32 {
    let there = names(db).len() as i32;
    assert!(
        (first_in_doubt - 1..=first_in_doubt).contains(&there),
        "{there} rows, and {first_in_doubt} was in doubt"
    );
    there
}

/// A database fills its disk, is opened again with a MiB that `free` frees, has all that
/// was acknowledged, and goes on until the disk is full again.
fn on_a_full_disk(open: impl Fn() -> Result<Database, Error>, free: impl Fn()) {
    let mut next = 1;
    for round in 0..5 {
        let db = open().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let people = match round {
            0 => db.create_table(schema()).unwrap(),
            _ => db.table("people").unwrap(),
        };
        if round > 0 {
            next = acknowledged(&db, next) + 1;
        }
        let before = next;
        next = fill(&db, &people, next);
        assert!(next > before + 50, "round {round}: {} rows", next - before);
        let refused = insert(&db, &people, next + 1, "more").unwrap_err();
        assert!(refused.to_string().contains("open it again"), "{refused}");
        for id in 1..next {
            let found = db.run(TxnOptions::read_only(), |txn| {
                Ok(txn.get(&people, id)?.is_some())
            });
            assert_eq!(found, Ok(true), "{id}");
        }
        free();
    }
    acknowledged(&open().unwrap(), next);
}

#[test]
fn a_database_on_a_full_disk_is_read_and_goes_on_with_a_mebibyte_that_was_freed() {
    let short = durability().segment_bytes(MIB / 2);
    for options in [durability(), short, durability().sync(SyncPolicy::Os)] {
        let path = tempfile::tempdir().unwrap();
        let room = Arc::new(AtomicU64::new(3 * MIB));
        let open = || {
            let disk = small(path.path(), &room);
            Database::open_on(disk, Options::default(), options.clone())
        };
        on_a_full_disk(open, || {
            room.fetch_add(MIB, Ordering::SeqCst);
        });
    }
}

/// Tells the child where its file system is.
const TMPFS: &str = "GIVEWAY_TXN_TMPFS";

/// The same on a file system that is full, in a namespace of its own.
#[test]
fn a_database_on_a_full_tmpfs_goes_on_with_a_mebibyte_that_was_freed() {
    const NAME: &str = "a_database_on_a_full_tmpfs_goes_on_with_a_mebibyte_that_was_freed";
    if let Some(root) = std::env::var_os(TMPFS) {
        let root = Path::new(&root);
        for sync in [SyncPolicy::Always, SyncPolicy::Os] {
            let path = root.join(format!("{sync:?}"));
            let spare = |number| root.join(format!("spare-{number}"));
            for number in 0..5 {
                std::fs::write(spare(number), vec![1; MIB as usize]).unwrap();
            }
            let number = std::cell::Cell::new(0);
            let options = durability().sync(sync);
            let open = || Database::open(&path, Options::default(), options.clone());
            on_a_full_disk(open, || {
                std::fs::remove_file(spare(number.replace(number.get() + 1))).unwrap();
            });
            std::fs::remove_dir_all(&path).unwrap();
        }
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size=16m tmpfs \"${TMPFS}\"");
    namespace::run_again(NAME, TMPFS, root.path(), &mount);
}

fn renamed() -> Schema {
    Schema::builder("others")
        .column("id", Type::I32)
        .primary_key(["id"])
        .build()
        .unwrap()
}

#[test]
fn the_log_stays_short_by_checkpoints_in_the_background() {
    let directory = tempfile::tempdir().unwrap();
    let durability = DurabilityOptions::new()
        .sync(SyncPolicy::Os)
        .segment_bytes(8 << 10)
        .checkpoint_bytes(Some(32 << 10));
    let open = || Database::open(directory.path(), Options::default(), durability.clone()).unwrap();
    let db = open();
    let people = db.create_table(schema()).unwrap();
    let (mut id, until) = (0, Instant::now() + Duration::from_secs(60));
    // Until most of it has been removed.
    let stats = loop {
        id += 1;
        insert(&db, &people, id, "somebody").unwrap();
        let stats = db.log_stats().unwrap();
        if stats.bytes > 200 << 10 && stats.log_bytes < stats.bytes / 2 {
            break stats;
        }
        assert!(Instant::now() < until, "{stats:?}");
    };
    assert_eq!(stats.checkpoint_failure, None);
    drop((db, people));
    let db = open();
    assert_eq!(names(&db).len(), id as usize);
    assert!(db.recovery().unwrap().checkpoint.is_some());
}

#[test]
fn the_sync_policies_sync_as_often_as_they_say() {
    let syncs = |policy| {
        let directory = tempfile::tempdir().unwrap();
        let durability = durability().sync(policy);
        let db = Database::open(directory.path(), Options::default(), durability).unwrap();
        let people = db.create_table(schema()).unwrap();
        let (before, began) = (db.log_stats().unwrap().syncs, Instant::now());
        for id in 0..20 {
            insert(&db, &people, id, "x").unwrap();
        }
        (db.log_stats().unwrap().syncs - before, began.elapsed())
    };
    assert_eq!(syncs(SyncPolicy::Os).0, 0);
    assert_eq!(syncs(SyncPolicy::Always).0, 20);
    // One thread that waits for each commit gets one per interval.
    let interval = Duration::from_millis(5);
    let (count, took) = syncs(SyncPolicy::Group { interval });
    assert_eq!(count, 20);
    assert!(took >= interval * 19, "{took:?}");
}

/// A file of whose name a function is told before each time that it is written.
struct WatchedFile<F>(Box<dyn DiskFile>, Arc<F>, String);

impl<F: Fn(&str) + Send + Sync> DiskFile for WatchedFile<F> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.1)(&self.2);
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

fn watched(path: &Path, function: impl Fn(&str) + Send + Sync + 'static) -> Arc<dyn Disk> {
    let function = Arc::new(function);
    Wrapped::open(path, move |name, _, file| {
        Box::new(WatchedFile(file, Arc::clone(&function), name.to_owned()))
    })
}

/// What a checkpoint's snapshot needs may be more than the limit for garbage: else none
/// would be completed while rows are updated steadily.
#[test]
fn a_checkpoint_is_completed_beside_updates_beyond_the_garbage_limit() {
    let directory = tempfile::tempdir().unwrap();
    type Place = std::sync::OnceLock<(Database, Table)>;
    let place: Arc<Place> = Arc::default();
    let theirs = Arc::clone(&place);
    // While a checkpoint is written, all rows are updated.
    let disk = watched(directory.path(), move |name| {
        if name.starts_with("checkpoint") {
            let (db, people) = theirs.get().unwrap();
            let updated = db.run(TxnOptions::default(), |txn| {
                (1..2000).try_for_each(|id| {
                    txn.update(people, id, |row| {
                        row.set_bytes(2, &[8; 1000]);
                    })
                })
            });
            updated.unwrap();
        }
    });
    let options = Options {
        garbage_limit: 256 << 10,
        ..Options::default()
    };
    let db = Database::open_on(disk, options, durability()).unwrap();
    let people = db.create_table(schema()).unwrap();
    db.run(TxnOptions::default(), |txn| {
        (1..2000).try_for_each(|id| {
            let mut row = people.row();
            row.set_i32(0, id).set_text(1, "x").set_bytes(2, &[7; 1000]);
            txn.insert(&people, &row)
        })
    })
    .unwrap();
    assert!(place.set((db.clone(), people.clone())).is_ok());
    db.checkpoint().unwrap();
    // It was in the way of that much.
    let stats = db.stats();
    assert!(
        stats.commits > 2,
        "nothing was updated meanwhile: {stats:?}"
    );
}

/// The disk is somebody else's code: when it panics, the statistics say so, and the next
/// checkpoint is made.
#[test]
fn a_checkpoint_that_panics_is_told_and_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let panics = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let theirs = Arc::clone(&panics);
    let disk = watched(directory.path(), move |name| {
        let panics = theirs.load(Ordering::SeqCst) && name.starts_with("checkpoint");
        assert!(!panics, "on purpose");
    });
    let durability = durability().checkpoint_bytes(Some(16 << 10));
    let db = Database::open_on(disk, Options::default(), durability).unwrap();
    let people = db.create_table(schema()).unwrap();
    let (mut id, until) = (0, Instant::now() + Duration::from_secs(60));
    let mut insert_until = |done: &dyn Fn(Option<String>) -> bool| {
        while !done(db.log_stats().unwrap().checkpoint_failure) {
            id += 1;
            insert(&db, &people, id, "somebody").unwrap();
            assert!(Instant::now() < until);
        }
    };
    insert_until(&|failure| failure.is_some_and(|text| text.contains("on purpose")));
    panics.store(false, Ordering::SeqCst);
    insert_until(&|failure| failure.is_none());
}

#[test]
fn files_of_others_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("thesis.unfinished"), "years of work").unwrap();
    std::fs::create_dir(path("notes.unfinished")).unwrap();
    let ours = format!("checkpoint-{:020}.giveway.unfinished", 7);
    std::fs::write(path(&ours), "").unwrap();
    drop(Database::open(directory.path(), Options::default(), durability()).unwrap());
    assert!(path("thesis.unfinished").exists() && path("notes.unfinished").exists());
    assert!(!path(&ours).exists());
}

#[test]
fn an_interval_that_never_ends_is_ended_by_a_flush() {
    // Often: a flush may come between a transaction's timestamp and its record.
    for _ in 0..30 {
        let directory = tempfile::tempdir().unwrap();
        let interval = Duration::MAX;
        let durability = durability().sync(SyncPolicy::Group { interval });
        let db = Database::open(directory.path(), Options::default(), durability).unwrap();
        std::thread::scope(|scope| {
            // The first round is at once, the second one after the interval.
            let creates = scope.spawn(|| {
                let people = db.create_table(schema())?;
                insert(&db, &people, 1, "anna")
            });
            while !creates.is_finished() {
                db.flush().unwrap();
            }
            creates.join().unwrap().unwrap();
        });
        assert_eq!(names(&db).len(), 1);
    }
}

/// What a database could hold when it was written, it can hold when it is replayed,
/// however little is left of it at the end.
#[test]
fn what_ran_within_its_limit_is_opened_within_it() {
    let directory = tempfile::tempdir().unwrap();
    let limited = || Options {
        memory_limit: 16 << 20,
        ..Options::default()
    };
    let open = || {
        let durability = durability().sync(SyncPolicy::Os);
        Database::open(directory.path(), limited(), durability)
    };
    let db = open().unwrap();
    let people = db.create_table(schema()).unwrap();
    insert(&db, &people, 1, "anna").unwrap();
    for _ in 0..40 {
        db.run(TxnOptions::default(), |txn| {
            txn.update(&people, 1, |row| {
                row.set_bytes(2, &[7; 1 << 20]);
            })
        })
        .unwrap();
    }
    drop((db, people));
    let db = open().unwrap_or_else(|error| panic!("{error}"));
    let held = db.stats().held_bytes;
    assert!(held < 4 << 20, "{held}");
}

/// Also if it was full; and then as much fits as before.
#[test]
fn a_database_that_is_full_can_be_opened() {
    for bytes in [100, 480, 950, 1430, 2000] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            memory_limit: 4 << 20,
            ..Options::default()
        };
        let open = || {
            let durability = durability().sync(SyncPolicy::Os);
            Database::open(directory.path(), options.clone(), durability)
        };
        let db = open().unwrap();
        let people = db.create_table(schema()).unwrap();
        let name = "x".repeat(bytes);
        let full = (0..).find(|&id| insert(&db, &people, id, &name).is_err());
        let rows = full.unwrap();
        drop((db, people));
        let db = open().unwrap_or_else(|error| panic!("rows of {bytes}: {error}"));
        assert_eq!(names(&db).len(), rows as usize);
        let people = db.table("people").unwrap();
        // Deleting makes room, and the log that says so is read again.
        db.run(TxnOptions::default(), |txn| {
            (0..rows / 2).try_for_each(|id| txn.delete(&people, id))
        })
        .unwrap();
        insert(&db, &people, 0, &name).unwrap();
        drop((db, people));
        let db = open().unwrap_or_else(|error| panic!("rows of {bytes}: {error}"));
        assert_eq!(names(&db).len(), (rows - rows / 2 + 1) as usize);
    }
}
