//! A database that is opened for reading only: nothing in its directory changes, whatever
//! is wrong with it, and any number of readers exclude a writer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use giveway_txn::Direction::Forward;
use giveway_txn::{
    Database, DurabilityError, DurabilityOptions, Error, Isolation, KeyRange, Options, Schema,
    SyncPolicy, Table, TxnOptions, Type,
};

mod namespace;

fn schema(name: &str) -> Schema {
    Schema::builder(name)
        .column("id", Type::I32)
        .column("name", Type::Text)
        .primary_key(["id"])
        .index("by_name", ["name"])
        .build()
        .unwrap()
}

fn insert(db: &Database, table: &Table, id: i32) -> Result<(), Error> {
    db.run(TxnOptions::default(), |txn| {
        let mut row = table.row();
        row.set_i32(0, id).set_text(1, "somebody");
        txn.insert(table, &row)
    })
}

fn write(directory: &Path) -> Result<Database, Error> {
    let durability = DurabilityOptions::new()
        .sync(SyncPolicy::Os)
        .checkpoint_bytes(None);
    Database::open(directory, Options::default(), durability)
}

fn read(directory: &Path) -> Result<Database, Error> {
    let durability = DurabilityOptions::new().read_only(true);
    Database::open(directory, Options::default(), durability)
}

/// Makes a database with a checkpoint and as many rows, half of them behind it.
fn make(directory: &Path, rows: i32) {
    let db = write(directory).unwrap();
    let people = db.create_table(schema("people")).unwrap();
    (0..rows / 2).for_each(|id| insert(&db, &people, id).unwrap());
    db.checkpoint().unwrap();
    (rows / 2..rows).for_each(|id| insert(&db, &people, id).unwrap());
}

fn count(db: &Database) -> usize {
    let people = db.table("people").unwrap();
    let count = |txn: &giveway_txn::Transaction<'_>| {
        let rows = txn.scan(&people, KeyRange::all(), Forward)?.count();
        let index = people.index("by_name")?;
        assert_eq!(
            txn.scan_index(&index, KeyRange::all(), Forward)?.count(),
            rows
        );
        Ok(rows)
    };
    db.run(TxnOptions::serializable(), count).unwrap()
}

fn durability(result: Result<(), Error>) -> DurabilityError {
    match result {
        Err(Error::Durability(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// Every file's bytes and when it was changed, and when the directory was.
fn state(directory: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let changed = |path: &Path| path.metadata().unwrap().modified().unwrap();
    let files = fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, (fs::read(&path).unwrap(), changed(&path)))
    });
    let itself = (String::new(), (Vec::new(), changed(directory)));
    files.chain([itself]).collect()
}

/// The last file whose name begins like this.
fn last(directory: &Path, prefix: &str) -> std::path::PathBuf {
    let names = state(directory).into_keys();
    let name = names.filter(|name| name.starts_with(prefix)).max().unwrap();
    directory.join(name)
}

#[test]
fn a_reader_sees_all_that_was_committed_and_is_refused_every_change() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), 10);
    let before = state(directory.path());
    // A change would show, though the clock of a file system is coarse.
    std::thread::sleep(Duration::from_millis(20));
    let db = read(directory.path()).unwrap();
    assert_eq!(count(&db), 10);
    let report = db.recovery().unwrap();
    assert!(report.checkpoint.is_some() && report.torn.is_none() && report.cut.is_none());
    assert_eq!(report.transactions, 5);
    assert!(db.log_stats().is_none(), "there is no log");
    db.flush().unwrap();

    let people = db.table("people").unwrap();

    let refused = [
        insert(&db, &people, 10),
        db.run(TxnOptions::default(), |txn| txn.delete(&people, 1)),
        db.run(TxnOptions::default(), |txn| txn.update(&people, 1, |_| {})),
        db.create_table(schema("others")).map(drop),
        db.drop_table("people"),
        db.drop_column("people", "name").map(drop),
        db.add_index("people", "by_both", ["name", "id"]).map(drop),
        db.drop_index("people", "by_name").map(drop),
        db.checkpoint().map(drop),
    ];
    for refused in refused {
        let error = durability(refused);
        assert_eq!(error, DurabilityError::OpenedReadOnly);
        assert!(error.to_string().contains("without `read_only`"), "{error}");
    }
    // The transaction goes on after it.
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let options = TxnOptions {
            isolation,
            ..TxnOptions::default()
        };
        let txn = db.begin(options).unwrap();
        assert!(txn.delete(&people, 1).is_err());
        assert!(txn.get(&people, 1).unwrap().is_some());
        txn.commit().unwrap();
    }
    drop((db, people));
    assert!(state(directory.path()) == before, "a file changed");
}

/// What opening for writing would cut, remove or set aside is read past, told and left.
#[test]
fn a_reader_leaves_a_torn_end_and_damaged_files_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), 10);
    {
        let db = write(directory.path()).unwrap();
        insert(&db, &db.table("people").unwrap(), 10).unwrap();
        db.checkpoint().unwrap();
    }
    let torn = last(directory.path(), "log-");
    let whole = fs::read(&torn).unwrap();
    fs::write(&torn, [&whole[..], b"half a batch"].concat()).unwrap();
    let damaged = last(directory.path(), "checkpoint-");
    let length = damaged.metadata().unwrap().len();
    fs::File::options()
        .write(true)
        .open(&damaged)
        .unwrap()
        .set_len(length / 2)
        .unwrap();
    let unfinished = format!("checkpoint-{:020}.giveway.unfinished", 7);
    fs::write(directory.path().join(unfinished), "half").unwrap();
    let before = state(directory.path());
    std::thread::sleep(Duration::from_millis(20));
    let db = read(directory.path()).unwrap();
    assert_eq!(count(&db), 11);
    let report = db.recovery().unwrap().clone();
    let end = report.torn.as_ref().unwrap();
    assert_eq!(end.file, torn.display().to_string());
    assert_eq!((end.offset, end.bytes), (whole.len() as u64, 12));
    assert_eq!(report.cut, None, "nothing was cut");
    assert_eq!(
        report.damaged_checkpoints,
        [damaged.display().to_string()],
        "under the name that it has"
    );
    drop(db);
    assert!(state(directory.path()) == before, "a file changed");
    // Who writes does all of it.
    let db = write(directory.path()).unwrap();
    assert_eq!(count(&db), 11);
    let report = db.recovery().unwrap();
    assert_eq!((&report.cut, &report.torn), (&Some(end.clone()), &None));
    assert!(report.damaged_checkpoints[0].ends_with(".damaged"));
}

#[test]
fn damage_that_refuses_a_writer_refuses_a_reader_and_salvage_changes_nothing_for_one() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), 10);
    // Whole data stands behind it.
    let path = last(directory.path(), "log-");
    let mut bytes = fs::read(&path).unwrap();
    bytes[60] ^= 1;
    fs::write(&path, bytes).unwrap();
    let before = state(directory.path());
    std::thread::sleep(Duration::from_millis(20));
    let error = durability(read(directory.path()).map(drop));
    assert!(matches!(error, DurabilityError::Damaged { .. }), "{error}");
    let salvaging = DurabilityOptions::new().read_only(true).salvage(true);
    let db = Database::open(directory.path(), Options::default(), salvaging).unwrap();
    assert_eq!(count(&db), 5, "what the checkpoint has");
    let report = db.recovery().unwrap();
    assert!(report.torn.is_some() && report.cut.is_none());
    assert_eq!(report.set_aside, [""; 0]);
    drop(db);
    assert!(state(directory.path()) == before, "a file changed");
}

#[test]
fn readers_are_many_and_a_writer_is_alone() {
    let directory = tempfile::tempdir().unwrap();
    let in_use = |result: Result<Database, Error>| {
        let error = durability(result.map(drop));
        assert!(matches!(error, DurabilityError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("close it there"), "{error}");
    };
    make(directory.path(), 4);
    let writer = write(directory.path()).unwrap();
    in_use(read(directory.path()));
    drop(writer);
    let readers = [(); 2].map(|()| read(directory.path()).unwrap());
    readers.iter().for_each(|db| assert_eq!(count(db), 4));
    in_use(write(directory.path()));
    let [one, two] = readers;
    drop(one);
    in_use(write(directory.path()));
    drop(two);
    write(directory.path()).unwrap();
}

#[test]
fn where_there_is_no_database_a_reader_makes_none() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let error = durability(read(&missing).map(drop));
    assert!(
        matches!(error, DurabilityError::NoDatabase { .. }),
        "{error}"
    );
    assert!(!missing.exists());
    let error = durability(read(directory.path()).map(drop));
    assert!(
        matches!(error, DurabilityError::NoDatabase { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("without `read_only`"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Tells the child where the database is.
const MOUNTED: &str = "GIVEWAY_TXN_READ_ONLY_MOUNT";

/// Where nothing can be written, also by root; and from a copy without its lock.
#[test]
fn a_database_on_a_file_system_that_is_mounted_read_only_is_read() {
    const NAME: &str = "a_database_on_a_file_system_that_is_mounted_read_only_is_read";
    if let Some(directory) = std::env::var_os(MOUNTED) {
        let directory = Path::new(&directory);
        assert!(fs::write(directory.join("probe"), "").is_err());
        assert!(write(directory).is_err());
        let readers = [(); 2].map(|()| read(directory).unwrap());
        readers.iter().for_each(|db| assert_eq!(count(db), 10));
        return;
    }
    for locked in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path(), 10);
        if !locked {
            fs::remove_file(directory.path().join("LOCK")).unwrap();
        }
        let mount = format!(
            "mount --bind \"${MOUNTED}\" \"${MOUNTED}\" && \
             mount -o remount,bind,ro \"${MOUNTED}\""
        );
        namespace::run_again(NAME, MOUNTED, directory.path(), &mount);
    }
}
