//! Space that is reserved for the log: commits go on while a disk is full, or a checkpoint
//! fills it; and what is reserved is given back.
//!
//! Each test that fills a disk runs again as a child, on a tmpfs in a namespace of its own.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use giveway_txn::{
    Database, Directory, Disk, DiskFile, DurabilityError, DurabilityOptions, Error, Options,
    Schema, Table, TxnOptions, Type,
};

mod disk;
mod namespace;

use disk::Wrapped;

const MIB: u64 = 1 << 20;
/// What a segment may have beyond `segment_bytes`: two batches.
const BEYOND: u64 = 2 * MIB;
/// Bytes that a row has at least in the log.
const ROW_BYTES: u64 = 3000;

fn schema() -> Schema {
    Schema::builder("people")
        .column("id", Type::I64)
        .column("name", Type::Text)
        .primary_key(["id"])
        .build()
        .unwrap()
}

fn insert(db: &Database, table: &Table, id: u64) -> Result<(), Error> {
    let text = "x".repeat(ROW_BYTES as usize);
    db.run(TxnOptions::default(), |txn| {
        let mut row = table.row();
        row.set_i64(0, id as i64).set_text(1, &text);
        txn.insert(table, &row)
    })
}

fn durability(segment_bytes: u64) -> DurabilityOptions {
    DurabilityOptions::new()
        .segment_bytes(segment_bytes)
        .checkpoint_bytes(None)
}

/// Fills a disk until so many bytes are free.
fn fill(root: &Path, leave: u64) -> PathBuf {
    let path = root.join("others");
    let mut file = fs::File::create(&path).unwrap();
    let free = || {
        Directory::open_read_only(root)
            .unwrap()
            .free_bytes()
            .unwrap()
    };
    while free() > leave {
        let bytes = (free() - leave).min(64 << 10);
        match file.write_all(&vec![1; bytes as usize]) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
            written => written.unwrap(),
        }
    }
    path
}

/// Tells the child where its file system is.
const TMPFS: &str = "GIVEWAY_TXN_SPACE";

/// Runs `test` on a tmpfs of 40 MiB, in a child.
fn on_a_tmpfs(name: &str, test: impl Fn(&Path)) {
    if let Some(root) = std::env::var_os(TMPFS) {
        return test(Path::new(&root));
    }
    let root = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size=40m tmpfs \"${TMPFS}\"");
    namespace::run_again(name, TMPFS, root.path(), &mount);
}

#[test]
fn commits_that_fit_the_segment_succeed_on_a_full_disk() {
    const NAME: &str = "commits_that_fit_the_segment_succeed_on_a_full_disk";
    on_a_tmpfs(NAME, |root| {
        let path = root.join("db");
        let open = || Database::open(&path, Options::default(), durability(4 * MIB)).unwrap();
        let db = open();
        let people = db.create_table(schema()).unwrap();
        let others = fill(root, 0);
        let before = db.log_stats().unwrap().bytes;
        let (mut next, error) = (0..)
            .find_map(|id| insert(&db, &people, id).err().map(|error| (id, error)))
            .unwrap();
        let written = next * ROW_BYTES;
        assert!(before + written > 4 * MIB, "{written} bytes");
        assert!(error.to_string().contains("in doubt"), "{error}");
        drop((db, people));
        fs::remove_file(others).unwrap();
        let db = open();
        let people = db.table("people").unwrap();
        let count = |db: &Database, people: &Table| {
            let txn = db.begin(TxnOptions::read_only()).unwrap();
            (0..)
                .find(|&id| txn.get(people, id as i64).unwrap().is_none())
                .unwrap()
        };
        assert!((next..=next + 1).contains(&count(&db, &people)));
        next = count(&db, &people);
        insert(&db, &people, next).unwrap();
    });
}

/// A file of a checkpoint before each write of which a function is called.
struct Watched<F>(Box<dyn DiskFile>, Option<Arc<F>>);

impl<F: Fn() + Send + Sync> DiskFile for Watched<F> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(function) = &self.1 {
            function();
        }
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.0.reserve(bytes)
    }

    fn release(&mut self) -> io::Result<()> {
        self.0.release()
    }
}

/// Rows are inserted each time that the checkpoint writes a block, so that the log goes on
/// in other segments meanwhile. Without a limit the two together do not fit.
#[test]
fn a_checkpoint_leaves_the_log_room_and_no_commit_fails() {
    const NAME: &str = "a_checkpoint_leaves_the_log_room_and_no_commit_fails";
    on_a_tmpfs(NAME, |root| {
        let path = root.join("db");
        let place: Arc<OnceLock<(Database, Table)>> = Arc::default();
        let next = Arc::new(AtomicU64::new(0));
        let some_rows = {
            let (place, next) = (Arc::clone(&place), Arc::clone(&next));
            Arc::new(move || {
                let (db, people) = place.get().unwrap();
                for _ in 0..MIB / 4 / ROW_BYTES {
                    insert(db, people, next.fetch_add(1, Ordering::SeqCst)).unwrap();
                }
            })
        };
        let theirs = Arc::clone(&some_rows);
        let disk = Wrapped::open(&path, move |name, _, file| {
            let is_checkpoint = name.starts_with("checkpoint");
            Box::new(Watched(file, is_checkpoint.then(|| Arc::clone(&theirs))))
        });
        let log: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        let db = Database::open_on(log, Options::default(), durability(MIB)).unwrap();
        let people = db.create_table(schema()).unwrap();
        assert!(place.set((db.clone(), people)).is_ok());
        while db.log_stats().unwrap().bytes < 5 * MIB {
            some_rows();
        }
        fill(root, MIB + BEYOND + 3 * MIB);
        let segments = db.log_stats().unwrap().segments;
        let refused = db.checkpoint().unwrap_err();
        let Error::Durability(error) = &refused else {
            panic!("{refused}");
        };
        assert!(matches!(**error, DurabilityError::Io(_)), "{error}");
        assert!(
            error.to_string().contains("are kept for the log"),
            "{error}"
        );
        assert!(
            db.log_stats().unwrap().segments > segments,
            "the log did not go on"
        );
        let names = disk.names().unwrap();
        assert!(
            !names.iter().any(|name| name.starts_with("checkpoint")),
            "{names:?}"
        );
        // With what it leaves, as many commits succeed as a segment has.
        (0..4).for_each(|_| some_rows());
        // With more room, it is made.
        fs::remove_file(root.join("others")).unwrap();
        db.checkpoint().unwrap();
    });
}

/// Bytes that the directory's files of the log have, and that they take.
fn log_bytes(path: &Path) -> (u64, u64) {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let log = files.filter(|file| file.file_name().to_str().unwrap().starts_with("log-"));
    log.map(|file| file.metadata().unwrap())
        .fold((0, 0), |(have, take), file| {
            (have + file.len(), take + 512 * file.blocks())
        })
}

#[test]
fn what_is_reserved_for_the_log_is_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::open(directory.path(), Options::default(), durability(MIB)).unwrap();
    let slack = 64 << 10;
    let db = open();
    let people = db.create_table(schema()).unwrap();
    let (have, take) = log_bytes(directory.path());
    if take < MIB {
        eprintln!("SKIPPED: {} reserves nothing", directory.path().display());
        return;
    }
    assert!(have < slack, "the length says nothing of it: {have}");
    // Of all segments but the last, as the log goes on.
    (0..3 * MIB / ROW_BYTES).for_each(|id| insert(&db, &people, id).unwrap());
    assert!(db.log_stats().unwrap().segments > 2);
    let (have, take) = log_bytes(directory.path());
    assert!(take < have + MIB + BEYOND + slack, "{take} of {have}");
    // Of the last, when it is closed.
    drop((db, people));
    let (have, take) = log_bytes(directory.path());
    assert!(take < have + slack, "{take} of {have}");
}

#[test]
fn what_a_process_that_was_killed_had_reserved_is_given_back() {
    let path = tempfile::tempdir().unwrap();
    let directory = Directory::open(path.path()).unwrap();
    let taken = || 512 * path.path().join("file").metadata().unwrap().blocks();
    let mut file = directory.create("file").unwrap();
    file.append(b"whole, and a torn end").unwrap();
    if let Err(error) = file.reserve(MIB) {
        eprintln!("SKIPPED: {error}");
        return;
    }
    assert!(taken() >= MIB);
    drop(file);
    assert!(taken() >= MIB, "closing it gives nothing back");
    let length = directory.read("file").unwrap().len() as u64;
    for end in [length, 5] {
        directory
            .overwrite("file", end, end)
            .unwrap()
            .sync()
            .unwrap();
        assert_eq!(
            directory.read("file").unwrap(),
            &b"whole, and a torn end"[..end as usize]
        );
        assert!(taken() < MIB);
    }
}
