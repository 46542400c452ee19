//! Power failures while the schema changes: the machine stops at a random operation of
//! the disk, with a change of the schema in flight and several batches of the log in a
//! round, and any page that was not synced may be lost.
//!
//! Changes follow one another in a cycle, so that after each failure the one that was in
//! flight was made, or is made next. Beside them writers number their transactions and
//! note with each row what they saw of the schema. Large rows, one a writer, make a
//! round's log longer than a batch.
//!
//! ```text
//!  writers   ─ 1 ─ 2 ─ 3 ─ 4 ─ 5 ─╳      found: a prefix of each writer's numbers, as
//!  changes        └── change k ──╳       far as acknowledged; the schema before k or
//!  disk      ··w·w·s····w·w·w·s·w╳       after it; k before whoever saw it, and behind
//!                                        what was visible when it began
//! ```

#[path = "../../src/recovery/tests/sim.rs"]
#[expect(dead_code, reason = "recovery's own tests use the rest")]
mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use giveway_txn::Direction::{Backward, Forward};
use giveway_txn::{
    Column, Database, DurabilityOptions, Error, KeyRange, Options, Schema, SchemaError, Table,
    TxnOptions, Type,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use sim::{Fault, Sim};

const WRITERS: usize = 5;
/// Bytes that each transaction logs beside its rows: as many as a batch has.
const BALLAST: usize = 1 << 20;
/// Rows of each writer that are there.
const KEPT: i64 = 20;
/// Columns of `rows` by position; `extra` comes and goes behind them.
const WRITER: usize = 0;
const NUMBER: usize = 1;
/// Another one in every row.
const CODE: usize = 2;
/// The last change that the writer has seen.
const STEP: usize = 3;
/// The change that made the table `side`, if the transaction has written there.
const SIDE: usize = 4;
/// The change that added `extra`, if the writer has set it.
const EXTRA: usize = 5;

/// A change of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    AddColumn,
    AddIndex,
    AddUniqueIndex,
    DropIndex,
    DropColumn,
    DropUniqueIndex,
    CreateTable,
    DropTable,
}

const CYCLE: [Kind; 8] = [
    Kind::AddColumn,
    Kind::AddIndex,
    Kind::AddUniqueIndex,
    Kind::DropIndex,
    Kind::DropColumn,
    Kind::DropUniqueIndex,
    Kind::CreateTable,
    Kind::DropTable,
];

/// The kind of the change with this number, from 1.
fn kind(change: i64) -> Kind {
    CYCLE[(change - 1) as usize % CYCLE.len()]
}

/// The last change of a kind up to this one; 0 if there was none.
fn last(of: Kind, change: i64) -> i64 {
    (1..=change).rev().find(|&at| kind(at) == of).unwrap_or(0)
}

/// What was added and is there after a change.
fn shape_after(change: i64) -> BTreeSet<&'static str> {
    let parts = [
        ("extra", Kind::AddColumn, Kind::DropColumn),
        ("by_extra", Kind::AddIndex, Kind::DropIndex),
        ("by_code", Kind::AddUniqueIndex, Kind::DropUniqueIndex),
        ("side", Kind::CreateTable, Kind::DropTable),
    ];
    let there = parts
        .iter()
        .filter(|(_, made, gone)| last(*made, change) > last(*gone, change));
    there.map(|(name, ..)| *name).collect()
}

/// What these handles show of it.
fn shape_of(rows: &Table, side: Option<&Table>) -> BTreeSet<&'static str> {
    let indexes = rows.schema().indexes();
    let has = |name: &str, unique| {
        let mut indexes = indexes.iter();
        indexes.any(|index| index.name == name && index.unique == unique)
    };
    let parts = [
        ("extra", rows.column("extra").is_ok()),
        ("by_extra", has("by_extra", false)),
        ("by_code", has("by_code", true)),
        ("side", side.is_some()),
    ];
    let there = parts.iter().filter(|(_, is_there)| *is_there);
    there.map(|(name, _)| *name).collect()
}

/// What rows from before have in `extra`.
fn default(change: i64) -> i64 {
    -change
}

fn change(db: &Database, number: i64) -> Result<(), Error> {
    match kind(number) {
        Kind::AddColumn => {
            let column = Column {
                name: "extra".to_owned(),
                ty: Type::I64,
                nullable: false,
            };
            db.add_column("rows", column, default(number)).map(drop)
        }
        Kind::AddIndex => db
            .add_index("rows", "by_extra", ["extra", "number"])
            .map(drop),
        Kind::AddUniqueIndex => db.add_unique_index("rows", "by_code", ["code"]).map(drop),
        Kind::DropIndex => db.drop_index("rows", "by_extra"),
        Kind::DropColumn => db.drop_column("rows", "extra").map(drop),
        Kind::DropUniqueIndex => db.drop_index("rows", "by_code"),
        Kind::CreateTable => db.create_table(numbers("side")).map(drop),
        Kind::DropTable => db.drop_table("side"),
    }
}

/// A table of one number for each writer, with room for more.
fn numbers(name: &str) -> Schema {
    let schema = Schema::builder(name)
        .column("writer", Type::I32)
        .column("number", Type::I64)
        .nullable("ballast", Type::Bytes)
        .primary_key(["writer"]);
    schema.build().unwrap()
}

/// Makes the tables that stay.
fn establish(sim: &Sim) {
    let db = open(sim).unwrap();
    let schema = Schema::builder("rows")
        .column("writer", Type::I32)
        .column("number", Type::I64)
        .column("code", Type::I64)
        .column("step", Type::I64)
        .column("side", Type::I64)
        .column("extra_since", Type::I64)
        .primary_key(["writer", "number"]);
    db.create_table(schema.build().unwrap()).unwrap();
    db.create_table(numbers("ballast")).unwrap();
}

fn open(sim: &Sim) -> Result<Database, Error> {
    let durability = DurabilityOptions::new().checkpoint_bytes(None);
    Database::open_on(Arc::new(sim.clone()), Options::default(), durability)
}

/// The `number`th transaction of a writer, while or after this change is made.
fn write(db: &Database, writer: usize, number: i64, change: i64) -> Result<(), Error> {
    let put = |txn: &giveway_txn::Transaction<'_>, table: &Table, ballast: &[u8]| {
        if txn.get(table, writer as i32)?.is_some() {
            return txn.update(table, writer as i32, |row| {
                row.set_i64(1, number).set_bytes(2, ballast);
            });
        }
        txn.insert_with(table, |row| {
            row.set_i32(0, writer as i32).set_i64(1, number);
            row.set_bytes(2, ballast);
        })
    };
    let ballast = vec![number as u8; BALLAST];
    loop {
        let (rows, side) = (db.table("rows")?, db.table("side").ok());
        let extra = rows.column("extra").ok();
        let saw = shape_of(&rows, side.as_ref()) == shape_after(change);
        let done = db.run(TxnOptions::default(), |txn| {
            txn.insert_with(&rows, |row| {
                row.set_i32(WRITER, writer as i32).set_i64(NUMBER, number);
                row.set_i64(CODE, number * WRITERS as i64 + writer as i64);
                row.set_i64(STEP, change - i64::from(!saw));
                let since = |made, there| if there { last(made, change) } else { 0 };
                row.set_i64(SIDE, since(Kind::CreateTable, side.is_some()));
                row.set_i64(EXTRA, since(Kind::AddColumn, extra.is_some()));
                if let Some(extra) = extra {
                    row.set_i64(extra, number);
                }
            })?;
            if number > KEPT {
                txn.delete(&rows, (writer as i32, number - KEPT))?;
            }
            if let Some(side) = &side {
                put(txn, side, &[])?;
            }
            put(txn, &db.table("ballast")?, &ballast)
        });
        match done {
            // The handles are older than the schema.
            Err(Error::TableDropped { .. }) => {}
            Err(Error::Schema(why)) if matches!(*why, SchemaError::OldHandle { .. }) => {}
            done => return done,
        }
    }
}

/// The last number of each writer, whether or not it is durable.
fn progress(db: &Database) -> [i64; WRITERS] {
    let rows = db.table("rows").unwrap();
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    std::array::from_fn(|writer| {
        let of_writer = KeyRange::prefix(writer as i32);
        let mut newest = txn.scan(&rows, of_writer, Backward).unwrap();
        newest.next().map_or(0, |row| row.unwrap().i64(NUMBER))
    })
}

/// What has to be found after a failure.
struct Expected {
    /// The change that was in flight, and whether it was acknowledged.
    change: i64,
    is_made: bool,
    /// What each writer was told.
    acknowledged: [i64; WRITERS],
    /// What was visible when the change began.
    visible: [i64; WRITERS],
}

/// Works until the machine stops, some operations after a change has begun.
fn work(sim: &Sim, db: &Database, change_number: i64, random: &mut ChaCha8Rng) -> Expected {
    let before = progress(db);
    let acknowledged = before.map(AtomicI64::new);
    let mut expected = Expected {
        change: change_number,
        is_made: false,
        acknowledged: before,
        visible: before,
    };
    std::thread::scope(|scope| {
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            scope.spawn(move || {
                for number in acknowledged.load(SeqCst) + 1.. {
                    match write(db, writer, number, change_number) {
                        Ok(()) => acknowledged.store(number, SeqCst),
                        Err(Error::Durability(_)) => return,
                        Err(other) => panic!("writer {writer}: {other}"),
                    }
                }
            });
        }
        let all_began = || {
            let writers = acknowledged.iter().zip(&before);
            writers.fold(true, |all, (now, before)| all && now.load(SeqCst) > *before)
        };
        while !all_began() {
            std::thread::sleep(Duration::from_micros(100));
        }
        expected.visible = progress(db);
        let most = [3, 6, 12][random.random_range(0..3)];
        let at = sim.operations() + random.random_range(1..=most);
        sim.set_fault(Fault::Crash(at));
        match change(db, change_number) {
            Ok(()) => expected.is_made = true,
            Err(Error::Durability(_)) => {}
            Err(other) => panic!("{:?}: {other}", kind(change_number)),
        }
    });
    expected.acknowledged = acknowledged.map(AtomicI64::into_inner);
    expected
}

/// Whether the change was made.
fn check(db: &Database, expected: &Expected) -> bool {
    let (rows, side) = (db.table("rows").unwrap(), db.table("side").ok());
    let shape = shape_of(&rows, side.as_ref());
    let is_made = shape == shape_after(expected.change);
    assert!(
        is_made || shape == shape_after(expected.change - 1),
        "{shape:?}"
    );
    assert!(
        is_made || !expected.is_made,
        "an acknowledged change is lost"
    );
    let made = expected.change - i64::from(!is_made);

    let txn = db.begin(TxnOptions::read_only()).unwrap();
    let extra = rows.column("extra").ok();
    let mut by_writer: [Vec<i64>; WRITERS] = Default::default();
    let mut last_in_side = BTreeMap::new();
    for row in txn.scan(&rows, KeyRange::all(), Forward).unwrap() {
        let row = row.unwrap();
        let (writer, number) = (row.i32(WRITER), row.i64(NUMBER));
        by_writer[writer as usize].push(number);
        assert!(row.i64(STEP) <= made, "it saw a change that was not made");
        if row.i64(SIDE) > 0 && row.i64(SIDE) == last(Kind::CreateTable, made) {
            last_in_side.insert(writer, number);
        }
        if let Some(extra) = extra {
            let added = last(Kind::AddColumn, made);
            let is_set = row.i64(EXTRA) == added;
            let value = if is_set { number } else { default(added) };
            assert_eq!(row.i64(extra), value, "writer {writer}, number {number}");
        }
    }
    for (writer, numbers) in by_writer.iter().enumerate() {
        let newest = numbers.last().copied().unwrap_or(0);
        let kept: Vec<i64> = ((newest - KEPT).max(0) + 1..=newest).collect();
        assert_eq!(*numbers, kept, "writer {writer}");
        let acknowledged = expected.acknowledged[writer];
        assert!(
            (acknowledged..=acknowledged + 1).contains(&newest),
            "writer {writer}: acknowledged {acknowledged}, found {newest}"
        );
        // The log has one order.
        assert!(!is_made || newest >= expected.visible[writer]);
        let ballast = db.table("ballast").unwrap();
        if let Some(row) = txn.get(&ballast, writer as i32).unwrap() {
            assert_eq!(row.i64(1), newest, "half of a transaction");
            assert!(*row.bytes(2) == *vec![newest as u8; BALLAST]);
        }
    }
    if let Some(side) = &side {
        let there = txn.scan(side, KeyRange::all(), Forward).unwrap();
        let there: BTreeMap<i32, i64> = there
            .map(|row| row.unwrap())
            .map(|row| (row.i32(0), row.i64(1)))
            .collect();
        assert_eq!(there, last_in_side);
    }
    for index in rows.schema().indexes() {
        let handle = rows.index(&index.name).unwrap();
        let entries = txn.scan_index(&handle, KeyRange::all(), Forward).unwrap();
        let entries: Vec<_> = entries
            .map(|row| row.unwrap())
            .map(|row| (row.i32(WRITER), row.i64(NUMBER)))
            .collect();
        let mut sorted = entries.clone();
        sorted.sort_unstable();
        let all = by_writer.iter().zip(0..);
        let all: Vec<_> = all
            .flat_map(|(numbers, writer)| numbers.iter().map(move |number| (writer, *number)))
            .collect();
        assert_eq!(sorted, all, "index '{}' is not its table", index.name);
    }
    drop(txn);
    if shape.contains("by_code") {
        refuses_a_second_code(db, &rows);
    }
    is_made
}

fn refuses_a_second_code(db: &Database, rows: &Table) {
    let txn = db.begin(TxnOptions::default()).unwrap();
    let mut all = txn.scan(rows, KeyRange::all(), Forward).unwrap();
    let mut row = all.next().unwrap().unwrap().to_owned();
    row.set_i64(NUMBER, 0);
    let error = txn.insert(rows, &row).unwrap_err();
    assert!(matches!(error, Error::UniqueViolation { .. }), "{error}");
}

/// Loses pages of what was not synced, none, one, few or half; and may lose the end.
fn lose_pages(random: &mut ChaCha8Rng, bytes: &mut Vec<u8>, synced: usize, lost: &mut u64) {
    if random.random_ratio(1, 4) {
        bytes.truncate(random.random_range(synced..=bytes.len()));
    }
    let first = synced / sim::PAGE;
    let pages = bytes.len().div_ceil(sim::PAGE);
    if first >= pages || synced == bytes.len() {
        return;
    }
    let one = random.random_range(first..pages);
    // Beside that page, of so many one.
    let rest = match random.random_range(0..6) {
        0 | 1 => return,
        2 | 3 => None,
        4 => Some(64),
        _ => Some(2),
    };
    for page in first..pages {
        if page == one || rest.is_some_and(|rest| random.random_ratio(1, rest)) {
            let end = bytes.len().min((page + 1) * sim::PAGE);
            bytes[synced.max(page * sim::PAGE)..end].fill(0);
            *lost += 1;
        }
    }
}

/// A number that may be set from outside.
pub(crate) fn setting(name: &str, usual: u64) -> u64 {
    let set = std::env::var(name);
    set.map_or(usual, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

/// What has happened.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) failures: u64,
    /// Of each kind, how many changes were in flight, and how many of these are there.
    pub(crate) in_flight: BTreeMap<Kind, (u64, u64)>,
    /// Failures with several batches in the round.
    pub(crate) with_batches: u64,
    pub(crate) pages: u64,
    /// Failures in the middle of a recovery, beside the others.
    pub(crate) in_recovery: u64,
    pub(crate) transactions: i64,
}

/// So many power failures. Panics with the seed if something is lost or half there.
pub(crate) fn fail(seed: u64, failures: u64) -> Summary {
    println!("GIVEWAY_TXN_SEED={seed}, {failures} power failures");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut summary = Summary::default();
    let mut sim = Sim::new(Fault::Never);
    establish(&sim);
    let mut made = 0;
    for failure in 0..failures {
        let db = open(&sim).unwrap();
        if failure % 4 == 1 {
            db.checkpoint().unwrap();
        }
        let expected = work(&sim, &db, made + 1, &mut random);
        drop(db);
        summary.failures += 1;
        summary.with_batches += u64::from(sim.appended() > 1);
        let lost = &mut summary.pages;
        let lose = |random: &mut _, bytes: &mut _, synced| lose_pages(random, bytes, synced, lost);
        sim = sim.after_crash_losing(&mut random, Fault::Never, lose);
        if random.random_ratio(1, 3) {
            sim.set_fault(Fault::Crash(random.random_range(1..10)));
            drop(open(&sim));
            summary.in_recovery += 1;
            let lost = &mut summary.pages;
            let lose =
                |random: &mut _, bytes: &mut _, synced| lose_pages(random, bytes, synced, lost);
            sim = sim.after_crash_losing(&mut random, Fault::Never, lose);
        }
        let db = open(&sim).unwrap_or_else(|error| panic!("failure {failure}: {error}"));
        let is_made = check(&db, &expected);
        if !expected.is_made {
            let (count, there) = summary.in_flight.entry(kind(made + 1)).or_default();
            (*count, *there) = (*count + 1, *there + u64::from(is_made));
        }
        made += i64::from(is_made);
        summary.transactions = progress(&db).iter().sum();
    }
    println!("{summary:?}");
    summary
}
