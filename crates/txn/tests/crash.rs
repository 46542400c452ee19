//! A process that is killed at any moment has lost nothing that it acknowledged.
//!
//! The test starts itself again as a child, which moves money between accounts
//! from several threads and tells through a pipe what has been committed, with
//! checkpoints going on. The parent kills it after a random time and opens what
//! is left. Every transfer leaves a line in a history, so the state can be
//! worked out again: balances are what the history says, each thread's history
//! has no holes (a prefix), and it goes at least as far as was acknowledged.
//!
//! Changes of the schema are crashed at every byte of the log instead: a script of
//! them, with transactions between and checkpoints at some places, on files in memory;
//! whatever prefix of the log is left, the database is as after some step of the script.
//!
//! And at random (`power`): the machine stops while a change is in flight, and pages that
//! were not synced are lost.
//!
//! `GIVEWAY_TXN_ROUNDS` sets the number of kills and of failures, `GIVEWAY_TXN_SEED` what is
//! random.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use giveway_txn::Direction::Forward;
use giveway_txn::{
    Column, Database, Disk, DiskFile, DurabilityOptions, KeyRange, Options, Schema, SyncPolicy,
    Table, TxnOptions, Type, Value,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Where the simulated disk of the crate's own tests finds what it stands on.
mod log {
    pub(crate) use giveway_txn::{Disk, DiskFile};
}
mod power;

use power::setting;

const ACCOUNTS: i32 = 20;
const OPENING: i64 = 1_000;
const THREADS: i32 = 3;
/// Tells the child where its database is.
const DIRECTORY: &str = "GIVEWAY_TXN_CRASH_DIRECTORY";
/// And with which policy.
const POLICY: &str = "GIVEWAY_TXN_CRASH_POLICY";

struct Bank {
    db: Database,
    accounts: Table,
    history: Table,
}

fn policy(number: u32) -> SyncPolicy {
    match number % 3 {
        0 => SyncPolicy::Always,
        1 => SyncPolicy::Group {
            interval: Duration::from_millis(2),
        },
        _ => SyncPolicy::Os,
    }
}

impl Bank {
    fn open(directory: &Path, policy: SyncPolicy) -> Bank {
        let durability = DurabilityOptions::new()
            .sync(policy)
            .segment_bytes(16 << 10)
            .checkpoint_bytes(Some(20 << 10));
        let db = Database::open(directory, Options::default(), durability).unwrap();
        let table = |name, schema: fn() -> Schema| {
            let known = db.table(name);
            known.unwrap_or_else(|_| db.create_table(schema()).unwrap())
        };
        let accounts = table("accounts", || {
            Schema::builder("accounts")
                .column("id", Type::I32)
                .column("balance", Type::I64)
                .primary_key(["id"])
                .build()
                .unwrap()
        });
        let history = table("history", || {
            Schema::builder("history")
                .column("thread", Type::I32)
                .column("number", Type::I64)
                .column("from", Type::I32)
                .column("to", Type::I32)
                .column("amount", Type::I64)
                .primary_key(["thread", "number"])
                .build()
                .unwrap()
        });
        let bank = Bank {
            db,
            accounts,
            history,
        };
        bank.found();
        bank
    }

    /// Opens the accounts, all or none.
    fn found(&self) {
        let opened = self.db.run(TxnOptions::serializable(), |txn| {
            if txn.get(&self.accounts, 0)?.is_some() {
                return Ok(());
            }
            for id in 0..ACCOUNTS {
                let mut row = self.accounts.row();
                row.set_i32(0, id).set_i64(1, OPENING);
                txn.insert(&self.accounts, &row)?;
            }
            Ok(())
        });
        opened.unwrap();
    }

    /// How many transfers each thread has made.
    fn progress(&self) -> Vec<i64> {
        let txn = self.db.begin(TxnOptions::read_only()).unwrap();
        let last = |thread| {
            let range = KeyRange::prefix(thread);
            let direction = giveway_txn::Direction::Backward;
            let mut newest = txn.scan(&self.history, range, direction).unwrap();
            newest.next().map_or(0, |row| row.unwrap().i64(1))
        };
        (0..THREADS).map(last).collect()
    }

    /// The `number`th transfer of this thread.
    fn transfer(&self, thread: i32, number: i64, random: &mut ChaCha8Rng) {
        let from = random.random_range(0..ACCOUNTS);
        let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
        let amount = random.random_range(1..50);
        let done = self.db.run(TxnOptions::snapshot(), |txn| {
            for (id, change) in [(from, -amount), (to, amount)] {
                txn.update(&self.accounts, id, |row| {
                    row.set_i64(1, row.i64(1) + change);
                })?;
            }
            let mut row = self.history.row();
            row.set_i32(0, thread).set_i64(1, number);
            row.set_i32(2, from).set_i32(3, to).set_i64(4, amount);
            txn.insert(&self.history, &row)
        });
        done.unwrap();
    }

    /// Checks what is there against itself and what was acknowledged.
    fn check(&self, acknowledged: &BTreeMap<i32, i64>) {
        let txn = self.db.begin(TxnOptions::read_only()).unwrap();
        let mut balances = vec![OPENING; ACCOUNTS as usize];
        let mut progress = vec![0; THREADS as usize];
        for row in txn.scan(&self.history, KeyRange::all(), Forward).unwrap() {
            let row = row.unwrap();
            let thread = &mut progress[row.i32(0) as usize];
            assert_eq!(row.i64(1), *thread + 1, "a hole in the history");
            *thread += 1;
            balances[row.i32(2) as usize] -= row.i64(4);
            balances[row.i32(3) as usize] += row.i64(4);
        }
        let accounts = txn.scan(&self.accounts, KeyRange::all(), Forward).unwrap();
        let found: Vec<i64> = accounts.map(|row| row.unwrap().i64(1)).collect();
        assert_eq!(
            found, balances,
            "the balances are not what the history says"
        );
        for (&thread, &number) in acknowledged {
            let there = progress[thread as usize];
            // One more may have been on its way.
            assert!(
                (number..=number + 1).contains(&there),
                "thread {thread}: acknowledged {number}, found {there}"
            );
        }
    }

    /// Transfers from all threads, each acknowledged once it is committed.
    fn work(&self, transfers: i64, acknowledge: &(dyn Fn(i32, i64) + Sync)) {
        let progress = self.progress();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let first = progress[thread as usize] + 1;
                scope.spawn(move || {
                    let seed = (u64::from(thread as u32) << 32) + first as u64;
                    let mut random = ChaCha8Rng::seed_from_u64(seed);
                    for number in first..first + transfers {
                        self.transfer(thread, number, &mut random);
                        acknowledge(thread, number);
                    }
                });
            }
        });
    }
}

/// The work that the other tests interrupt, to its end; as a child, without end.
#[test]
fn transfers_keep_the_sum() {
    let acknowledge = |thread: i32, number: i64| {
        // In one write, so that the parent never reads half of it.
        let line = format!("ack {thread} {number}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    };
    if let Ok(directory) = std::env::var(DIRECTORY) {
        let number = std::env::var(POLICY).unwrap().parse().unwrap();
        let bank = Bank::open(Path::new(&directory), policy(number));
        println!("ready");
        bank.work(i64::MAX / 2, &acknowledge);
    }
    let directory = tempfile::tempdir().unwrap();
    let bank = Bank::open(directory.path(), SyncPolicy::Os);
    bank.work(100, &|_, _| {});
    bank.check(&(0..THREADS).map(|thread| (thread, 100)).collect());
    assert_eq!(bank.progress(), vec![100; THREADS as usize]);
}

fn start(directory: &Path, policy: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "transfers_keep_the_sum", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(POLICY, policy.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the child some time after it is ready; the last acknowledgement of each
/// thread.
fn kill(mut child: Child, after: Duration) -> BTreeMap<i32, i64> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = BTreeMap::new();
    let ready = lines.find(|line| line.as_ref().is_ok_and(|line| line.ends_with("ready")));
    assert!(ready.is_some(), "the child ended: {:?}", child.wait());
    let reader = std::thread::spawn(move || {
        for line in lines {
            let line = line.unwrap();
            if let Some(numbers) = line.strip_prefix("ack ") {
                let (thread, number) = numbers.split_once(' ').unwrap();
                acknowledged.insert(thread.parse().unwrap(), number.parse().unwrap());
            }
        }
        acknowledged
    });
    std::thread::sleep(after);
    // SIGKILL: nothing of it runs any more.
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(!status.success(), "the child ended by itself: {status}");
    reader.join().unwrap()
}

#[test]
fn a_killed_process_has_lost_nothing_that_it_acknowledged() {
    let seed = setting("GIVEWAY_TXN_SEED", 1);
    let rounds = setting("GIVEWAY_TXN_ROUNDS", 12);
    println!("GIVEWAY_TXN_SEED={seed} GIVEWAY_TXN_ROUNDS={rounds}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut checkpoints) = (BTreeMap::new(), 0);
    let began = Instant::now();
    for round in 0..rounds as u32 {
        let child = start(directory.path(), round);
        let after = Duration::from_millis(random.random_range(0..150));
        acknowledged.extend(kill(child, after));
        torn_anywhere(directory.path(), &mut random);
        let bank = Bank::open(directory.path(), policy(round + 1));
        let report = bank.db.recovery().unwrap();
        assert_eq!(report.damaged_checkpoints, [""; 0]);
        checkpoints += u32::from(report.checkpoint.is_some());
        bank.check(&acknowledged);
        if round % 4 == 1 {
            // However little the children get done.
            bank.db.checkpoint().unwrap();
        }
        for (thread, number) in bank.progress().into_iter().enumerate() {
            acknowledged.insert(thread as i32, number);
        }
    }
    let total: i64 = acknowledged.values().sum();
    println!(
        "{rounds} kills, {total} transfers, {checkpoints} recoveries from a checkpoint, {:?}",
        began.elapsed()
    );
    assert!(total > 0 && checkpoints > 0);
}

/// A copy whose last segment ends anywhere is consistent, if not complete.
fn torn_anywhere(directory: &Path, random: &mut ChaCha8Rng) {
    let copy = tempfile::tempdir().unwrap();
    let mut last = None;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let to = copy.path().join(entry.file_name());
        std::fs::copy(entry.path(), &to).unwrap();
        let is_segment = to
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("log-");
        if is_segment && !to.to_str().unwrap().ends_with(".unfinished") {
            last = last.max(Some(to));
        }
    }
    let last = std::fs::OpenOptions::new()
        .write(true)
        .open(last.unwrap())
        .unwrap();
    // Not into the header, which a crash leaves whole.
    let length = last.metadata().unwrap().len();
    last.set_len(random.random_range(40..=length)).unwrap();
    let bank = Bank::open(copy.path(), SyncPolicy::Os);
    bank.check(&BTreeMap::new());
}

/// Files in memory, which can be copied.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<BTreeMap<String, Contents>>>);

type Contents = Arc<Mutex<Vec<u8>>>;

struct Open {
    contents: Contents,
    /// Where the next bytes go.
    at: usize,
}

impl Memory {
    fn find(&self, name: &str) -> io::Result<Contents> {
        let found = self.0.lock().unwrap().get(name).cloned();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// What a crash leaves when the last segment is so long.
    fn cut(&self, end: usize) -> Memory {
        let copy = |contents: &Contents| Arc::new(Mutex::new(contents.lock().unwrap().clone()));
        let files = self.0.lock().unwrap();
        let files: BTreeMap<_, _> = files
            .iter()
            .map(|(name, contents)| (name.clone(), copy(contents)))
            .collect();
        let (_, last) = files.last_key_value().unwrap();
        last.lock().unwrap().truncate(end);
        Memory(Arc::new(Mutex::new(files)))
    }

    /// Bytes in the last segment.
    fn end(&self) -> usize {
        let files = self.0.lock().unwrap();
        let (name, last) = files.last_key_value().unwrap();
        assert!(name.starts_with("log-"), "{name}");
        last.lock().unwrap().len()
    }

    fn open(&self) -> Database {
        let durability = DurabilityOptions::new()
            .sync(SyncPolicy::Os)
            .checkpoint_bytes(None);
        Database::open_on(Arc::new(self.clone()), Options::default(), durability).unwrap()
    }
}

impl Disk for Memory {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = Contents::default();
        let mut files = self.0.lock().unwrap();
        files.insert(name.to_owned(), Arc::clone(&file));
        let (contents, at) = (file, 0);
        Ok(Box::new(Open { contents, at }))
    }

    fn overwrite(&self, name: &str, from: u64, end: u64) -> io::Result<Box<dyn DiskFile>> {
        let (contents, at) = (self.find(name)?, from as usize);
        contents.lock().unwrap().truncate(end as usize);
        Ok(Box::new(Open { contents, at }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(self.find(name)?.lock().unwrap().clone())
    }

    fn stream(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.read(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.find(from)?;
        let mut files = self.0.lock().unwrap();
        files.remove(from);
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().unwrap().keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        format!("memory/{name}")
    }
}

impl DiskFile for Open {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut contents = self.contents.lock().unwrap();
        let over = bytes.len().min(contents.len() - self.at);
        contents[self.at..][..over].copy_from_slice(&bytes[..over]);
        contents.extend_from_slice(&bytes[over..]);
        self.at += bytes.len();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything there is: tables, schemas, rows, and what each index leads to.
fn all(db: &Database) -> Vec<String> {
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    let mut tables = db.tables();
    tables.sort_by_key(Table::id);
    let mut seen = Vec::new();
    for table in &tables {
        seen.push(format!("{:?} {:?}", table.id(), table.schema()));
        let rows: Vec<Vec<Value>> = txn
            .scan(table, KeyRange::all(), Forward)
            .unwrap()
            .map(|row| row.unwrap().values())
            .collect();
        seen.extend(rows.iter().map(|row| format!("  {row:?}")));
        for index in table.schema().indexes() {
            let mut sorted = rows.clone();
            let key = |row: &Vec<Value>| {
                let key = index
                    .columns
                    .iter()
                    .map(|&column| format!("{:?}", row[column]));
                key.collect::<Vec<_>>()
            };
            sorted.sort_by_key(key);
            let handle = table.index(&index.name).unwrap();
            let found = txn.scan_index(&handle, KeyRange::all(), Forward).unwrap();
            let found: Vec<_> = found.map(|row| row.unwrap().values()).collect();
            assert_eq!(found, sorted, "index '{}' is not its table", index.name);
        }
    }
    seen
}

/// One step of the script.
type Step = fn(&Database);

fn people() -> Schema {
    let schema = Schema::builder("people")
        .column("id", Type::I32)
        .column("name", Type::Text)
        .primary_key(["id"])
        .index("by_name", ["name"]);
    schema.build().unwrap()
}

/// Changes rows of a table in one transaction.
fn write(db: &Database, rows: &[(i32, &str)]) {
    let table = db.table("people").unwrap();
    let (id, name) = (table.column("id").unwrap(), table.column("name").unwrap());
    db.run(TxnOptions::default(), |txn| {
        for &(key, text) in rows {
            if text.is_empty() {
                txn.delete(&table, key)?;
            } else if txn.get(&table, key)?.is_some() {
                txn.update(&table, key, |row| {
                    row.set_text(name, text);
                })?;
            } else {
                let mut row = table.row();
                for (at, column) in table.schema().columns().iter().enumerate() {
                    match column.ty {
                        Type::Text => row.set_text(at, "some"),
                        _ => row.set(at, 70)?,
                    };
                }
                row.set_i32(id, key).set_text(name, text);
                txn.insert(&table, &row)?;
            }
        }
        Ok(())
    })
    .unwrap();
}

fn add_column(db: &Database, name: &str, ty: Type, default: impl Into<Value>) {
    let (name, nullable) = (name.to_owned(), false);
    let column = Column { name, ty, nullable };
    db.add_column("people", column, default).unwrap();
}

const SCRIPT: &[Step] = &[
    |db| drop(db.create_table(people()).unwrap()),
    |db| write(db, &[(1, "anna"), (2, "bea"), (3, "carl")]),
    |db| write(db, &[(2, ""), (3, "anna")]),
    |db| db.drop_table("people").unwrap(),
    |db| drop(db.create_table(people()).unwrap()),
    |db| write(db, &[(1, "carl"), (2, "dora")]),
    |db| add_column(db, "city", Type::Text, "Ulm"),
    |db| write(db, &[(2, "emil"), (1, "")]),
    |db| add_column(db, "age", Type::I64, 30),
    |db| drop(db.drop_column("people", "city").unwrap()),
    |db| write(db, &[(2, "fritz"), (5, "gerd")]),
    |db| drop(db.add_index("people", "by_age", ["age", "name"]).unwrap()),
    |db| write(db, &[(5, "anna"), (6, "bea"), (2, "")]),
    |db| db.drop_index("people", "by_name").unwrap(),
    |db| write(db, &[(6, ""), (2, "hans")]),
    |db| drop(db.add_unique_index("people", "by_name", ["name"]).unwrap()),
    |db| write(db, &[(2, "ida"), (1, "hans")]),
];

#[test]
fn a_crash_at_any_byte_leaves_the_schema_before_or_after_a_change() {
    let mut cuts = 0;
    // With a checkpoint before no step, or before one.
    for checkpoint in (0..SCRIPT.len()).step_by(6) {
        let disk = Memory::default();
        let db = disk.open();
        let mut states = vec![(disk.end(), all(&db))];
        for (at, step) in SCRIPT.iter().enumerate() {
            if checkpoint > 0 && at == checkpoint {
                db.checkpoint().unwrap();
                // From here on, less is never left.
                states.drain(..at);
            }
            step(&db);
            db.flush().unwrap();
            states.push((disk.end(), all(&db)));
        }
        let mut left = vec![false; states.len()];
        for end in states[0].0..=states.last().unwrap().0 {
            let found = all(&disk.cut(end).open());
            // The last step that is in the log as a whole.
            let expected = states.partition_point(|(whole, _)| *whole <= end) - 1;
            assert_eq!(found, states[expected].1, "cut at {end} after {expected}");
            left[expected] = true;
            cuts += 1;
        }
        assert!(left.iter().all(|left| *left), "{left:?}");
    }
    println!("{cuts} cuts");
    assert!(cuts > 1000);
}

/// A build that is in flight has left nothing: the index is there with its record, and
/// then as its table is.
#[test]
fn a_crash_while_an_index_is_built_leaves_all_of_it_or_none() {
    let rows: Vec<(i32, String)> = (0..60).map(|id| (id, format!("{}", id * 7 % 40))).collect();
    let disk = Memory::default();
    let db = disk.open();
    db.create_table(people()).unwrap();
    let whole: Vec<_> = rows.iter().map(|(id, name)| (*id, &**name)).collect();
    let (before, beside) = whole.split_at(40);
    write(&db, before);
    db.flush().unwrap();
    let first = disk.end();
    std::thread::scope(|scope| {
        let build = scope.spawn(|| db.add_index("people", "second", ["name"]).map(drop));
        for row in beside {
            write(&db, &[*row]);
        }
        build.join().unwrap().unwrap();
    });
    db.flush().unwrap();
    let (mut indexes, mut count) = (1, before.len());
    for end in first..=disk.end() {
        let db = disk.cut(end).open();
        // Each index is its table.
        let found = all(&db);
        assert!(found.len() > count, "cut at {end}");
        count = found.len() - 1;
        let table = db.table("people").unwrap();
        let there = table.schema().indexes().len();
        assert!(there >= indexes);
        indexes = there;
        let txn = db.begin(TxnOptions::read_only()).unwrap();
        for row in &whole[..count] {
            assert!(txn.get(&table, row.0).unwrap().is_some());
        }
    }
    assert_eq!((indexes, count), (2, whole.len()));
}

/// A thousand in `long`.
#[test]
fn a_power_failure_leaves_the_schema_before_or_after_a_change_that_was_in_flight() {
    let failures = setting("GIVEWAY_TXN_ROUNDS", 16);
    let summary = power::fail(setting("GIVEWAY_TXN_SEED", 1), failures);
    assert!(summary.with_batches > failures / 4);
}
