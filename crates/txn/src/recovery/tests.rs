//! Recovery against a model: whatever happens to the disk, what comes back is the
//! state after some prefix of the transactions, with all acknowledged ones in it,
//! or an error.
//!
//! The workload moves money between accounts, one transaction per timestamp, so
//! the state after every prefix is known and the sum never changes.

mod damage;
mod sim;

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::aside::DAMAGED;
use super::*;
use crate::checkpoint;
use crate::log::Log;
use crate::log::record::Change;
use sim::{Fault, Sim};

const TABLE: u32 = 3;
const SCHEMA: &[u8] = b"accounts";
const ACCOUNTS: u8 = 5;
const OPENING: u64 = 100;

/// Balance per account.
type Accounts = BTreeMap<u8, u64>;

/// A database of one table.
#[derive(Default)]
struct Model {
    tables: BTreeMap<u32, Vec<u8>>,
    accounts: Accounts,
    last: u64,
}

impl Target for Model {
    type Error = DurabilityError;

    fn table(&mut self, table: u32, schema: &[u8]) -> Result<Check, DurabilityError> {
        assert!(self.tables.insert(table, schema.to_owned()).is_none());
        Ok(Ok(()))
    }

    fn drop(&mut self, _: u32) -> Result<(), DurabilityError> {
        unreachable!("no table is dropped")
    }

    fn put(&mut self, timestamp: u64, table: u32, row: &[u8]) -> Result<Check, DurabilityError> {
        assert!(self.tables.contains_key(&table), "a row without its table");
        assert!(self.last <= timestamp, "out of order");
        self.last = timestamp;
        let balance = u64::from_le_bytes(row[1..9].try_into().unwrap());
        self.accounts.insert(row[0], balance);
        Ok(Ok(()))
    }

    fn delete(&mut self, timestamp: u64, _: u32, key: &[u8]) -> Result<Check, DurabilityError> {
        assert!(self.last <= timestamp, "out of order");
        self.accounts.remove(&key[0]);
        Ok(Ok(()))
    }
}

/// The accounts after the transactions up to this one. The first opens them;
/// each later one moves all money of one account to the next, closing it.
fn after(timestamp: u64) -> Accounts {
    let mut accounts = Accounts::new();
    for timestamp in 1..=timestamp {
        for (account, balance) in transaction(timestamp, &accounts) {
            match balance {
                Some(balance) => accounts.insert(account, balance),
                None => accounts.remove(&account),
            };
        }
    }
    accounts
}

fn transaction(timestamp: u64, before: &Accounts) -> Vec<(u8, Option<u64>)> {
    if timestamp == 1 {
        return (0..ACCOUNTS)
            .map(|account| (account, Some(OPENING)))
            .collect();
    }
    let from = (timestamp % u64::from(ACCOUNTS)) as u8;
    let to = (from + 1) % ACCOUNTS;
    let balance = |account| before.get(&account).copied().unwrap_or(0);
    // Some go back, so that accounts are closed and opened again.
    match balance(from) {
        0 => vec![(from, Some(balance(to))), (to, None)],
        all => vec![(from, None), (to, Some(balance(to) + all))],
    }
}

fn append(log: &Log, timestamp: u64) {
    append_padded(log, timestamp, 0);
}

/// With rows that are so many bytes longer than they need be.
fn append_padded(log: &Log, timestamp: u64, padding: usize) {
    let changes = transaction(timestamp, &after(timestamp - 1));
    let rows: Vec<(u8, Option<Vec<u8>>)> = changes
        .into_iter()
        .map(|(account, balance)| (account, balance.map(|balance| row(account, balance))))
        .map(|(account, row)| {
            (
                account,
                row.map(|row| [&row[..], &vec![7; padding]].concat()),
            )
        })
        .collect();
    let changes = rows.iter().map(|(account, row)| match row {
        Some(row) => Change::Put { table: TABLE, row },
        None => Change::Delete {
            table: TABLE,
            key: std::slice::from_ref(account),
        },
    });
    // The first transaction brings its table.
    let (table, schema) = (TABLE, SCHEMA);
    let table = (timestamp == 1).then_some(Change::Table { table, schema });
    let changes = table.into_iter().chain(changes);
    let bytes = changes.clone().map(|change| change.encoded_len()).sum();
    log.append(timestamp, bytes, changes).unwrap();
}

fn row(account: u8, balance: u64) -> Vec<u8> {
    [&[account][..], &balance.to_le_bytes()].concat()
}

/// What a run got done.
#[derive(Debug, Default)]
struct Done {
    /// The last transaction that was acknowledged.
    acknowledged: u64,
    /// The last that was appended.
    appended: u64,
}

fn options() -> DurabilityOptions {
    let mut options = DurabilityOptions::new();
    // A few transactions per segment.
    options.segment_bytes = 290;
    options
}

fn disk(sim: &Sim) -> Arc<dyn Disk> {
    Arc::new(sim.clone())
}

fn open(sim: &Sim) -> Result<(Log, Model, RecoveryReport), DurabilityError> {
    let mut model = Model::default();
    let (start, report) = recover(&disk(sim), &options(), &mut model)?;
    let log = Log::start(disk(sim), options(), start)?;
    Ok((log, model, report))
}

/// What opening for reading only finds; nothing may change.
fn look(sim: &Sim) -> Result<(Model, RecoveryReport), DurabilityError> {
    let (names, operations) = (sim.names().unwrap(), sim.operations());
    let mut model = Model::default();
    let found = recover(&disk(sim), &options().read_only(true), &mut model);
    assert_eq!(sim.operations(), operations, "something was written");
    assert_eq!(sim.names().unwrap(), names);
    Ok((model, found?.1))
}

/// The same as who opens it for writing finds.
fn look_and_find(sim: &Sim) -> Result<(Model, RecoveryReport), DurabilityError> {
    let seen = look(sim);
    let found = find(sim);
    let (seen, (model, report)) = match (seen, found) {
        (Ok(seen), Ok(found)) => (seen, found),
        (seen, found) => {
            let seen = seen.map(|(_, report)| report);
            assert_eq!(seen.as_ref().err(), found.as_ref().err(), "{seen:?}");
            return found;
        }
    };
    assert_eq!(seen.0.accounts, model.accounts);
    assert_eq!(seen.1.durable, report.durable);
    assert_eq!((&seen.1.torn, &seen.1.cut), (&report.cut, &None));
    let damaged = |report: &RecoveryReport| report.damaged_checkpoints.len();
    assert_eq!(damaged(&seen.1), damaged(&report));
    Ok((model, report))
}

/// What opening would find.
fn find(sim: &Sim) -> Result<(Model, RecoveryReport), DurabilityError> {
    let mut model = Model::default();
    let (_, report) = recover(&disk(sim), &options(), &mut model)?;
    Ok((model, report))
}

/// Opens, checks, and goes on for so many transactions or until something fails.
fn run(sim: &Sim, transactions: u64, before: &Done) -> Done {
    let mut done = Done { ..*before };
    let Ok((log, model, report)) = open(sim) else {
        return done;
    };
    check(&model, &report, before);
    let names = sim.names().unwrap();
    assert!(names.iter().all(|name| !name.ends_with(UNFINISHED)));
    done.appended = report.durable;
    assert_eq!(model.tables.is_empty(), report.durable == 0);
    for timestamp in report.durable + 1..=report.durable + transactions {
        if log.admit(None).is_err() {
            break;
        }
        append(&log, timestamp);
        done.appended = timestamp;
        // Of a snapshot that was taken some transactions ago.
        if timestamp % 7 == 0 && checkpoint_at(&log, timestamp - 4).is_err() {
            break;
        }
        // Several share a round.
        if timestamp % 5 != 0 {
            continue;
        }
        match log.wait(timestamp, None) {
            Ok(()) => done.acknowledged = timestamp,
            Err(error) => {
                assert!(matches!(error, DurabilityError::InDoubt(_)));
                break;
            }
        }
    }
    done
}

fn checkpoint_at(log: &Log, timestamp: u64) -> Result<u64, DurabilityError> {
    checkpoint::write(log, timestamp, |add| {
        let (table, schema) = (TABLE, SCHEMA);
        add(Change::Table { table, schema })?;
        let mut accounts = after(timestamp).into_iter();
        accounts.try_for_each(|(account, balance)| {
            let row = &row(account, balance);
            add(Change::Put { table, row })
        })
    })
}

fn check(model: &Model, report: &RecoveryReport, before: &Done) {
    let durable = report.durable;
    assert!(
        (before.acknowledged..=before.appended).contains(&durable),
        "{durable} is not between {before:?}"
    );
    assert_eq!(model.accounts, after(durable));
    assert_eq!(report.set_aside, [""; 0]);
    if durable > 0 {
        assert_eq!(
            model.accounts.values().sum::<u64>(),
            OPENING * u64::from(ACCOUNTS)
        );
    }
}

/// Seeds for the tests, more with `GIVEWAY_TXN_ROUNDS`.
fn rounds(usually: u64) -> u64 {
    let wanted = std::env::var("GIVEWAY_TXN_ROUNDS");
    wanted.map_or(usually, |rounds| {
        rounds.parse().expect("GIVEWAY_TXN_ROUNDS is a number")
    })
}

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_acknowledged() {
    for round in 0..rounds(3) {
        for at in 1.. {
            let mut random = ChaCha8Rng::seed_from_u64(round << 32 | at);
            let sim = Sim::new(Fault::Crash(at));
            let done = run(&sim, 30, &Done::default());
            if sim.operations() < at {
                break;
            }
            // Again in the middle of recovery, and of what comes after it.
            let again = Fault::Crash(random.random_range(1..60));
            let sim = sim.after_crash(&mut random, again);
            let done = run(&sim, 10, &done);
            let sim = sim.after_crash(&mut random, Fault::Never);
            look_and_find(&sim.after_kill()).unwrap();
            let (_, model, report) = open(&sim).unwrap_or_else(|error| {
                panic!("round {round}, crash at {at}, then {again:?}: {error}")
            });
            check(&model, &report, &done);
            without_the_newest_checkpoint(&sim, &done);
        }
    }
}

/// There is always enough to do without.
fn without_the_newest_checkpoint(sim: &Sim, done: &Done) {
    let lacking = sim.after_kill();
    let mut names = lacking.names().unwrap();
    names.retain(|name| checkpoint_number(name).is_some());
    if let Some(newest) = names.iter().max() {
        lacking.edit(newest, |bytes| bytes.truncate(bytes.len() / 2));
        let (model, report) = look_and_find(&lacking).unwrap();
        check(&model, &report, done);
        let aside = lacking.describe(&format!("{newest}{DAMAGED}"));
        assert_eq!(report.damaged_checkpoints, [aside]);
    }
}

#[test]
fn an_operation_that_fails_ends_the_log_and_nothing_acknowledged_is_lost() {
    for at in 1.. {
        let mut random = ChaCha8Rng::seed_from_u64(at);
        let sim = Sim::new(Fault::Error(at));
        let done = run(&sim, 30, &Done::default());
        if sim.operations() < at {
            break;
        }
        // Another process of the same machine, then the machine fails.
        let killed = sim.after_kill();
        let done = run(&killed, 5, &done);
        let sim = killed.after_crash(&mut random, Fault::Never);
        let (_, model, report) = open(&sim).unwrap_or_else(|error| panic!("{at}: {error}"));
        check(&model, &report, &done);
    }
}

/// Transactions of a round, each a batch of more than a page.
const ROUND: u64 = 6;

/// Rounds of several batches in one segment, until something fails. What was
/// acknowledged; and how many operations all of it takes.
fn rounds_of_batches(sim: &Sim) -> Done {
    let mut done = Done::default();
    let options = DurabilityOptions::new();
    let mut model = Model::default();
    let Ok((start, _)) = recover(&disk(sim), &options, &mut model) else {
        return done;
    };
    let Ok(log) = Log::start(disk(sim), options, start) else {
        return done;
    };
    for first in (1..=3 * ROUND).step_by(ROUND as usize) {
        // The first comes last: until then the writer has nothing to write.
        for timestamp in (first..first + ROUND).rev() {
            append_padded(&log, timestamp, 5000);
        }
        done.appended = first + ROUND - 1;
        if log.wait(done.appended, None).is_err() {
            break;
        }
        done.acknowledged = done.appended;
    }
    done
}

#[test]
fn of_a_round_of_several_batches_the_disk_may_lack_any_page() {
    let (mut pages, mut batches) = (0, 0);
    for at in 1.. {
        let sim = Sim::new(Fault::Crash(at));
        let done = rounds_of_batches(&sim);
        batches = batches.max(sim.appended());
        if sim.operations() < at {
            break;
        }
        for lacking in sim.each_lacking_a_page() {
            pages += 1;
            let (model, report) = look_and_find(&lacking)
                .unwrap_or_else(|error| panic!("crash at {at}, {done:?}: {error}"));
            check(&model, &report, &done);
        }
    }
    assert!(pages > 3 * ROUND, "{pages} pages");
    assert!(batches > 2, "{batches} batches in a round");
}

#[test]
fn a_synced_page_that_is_lost_is_damage_though_a_torn_round_follows() {
    // As it is while the last round is being synced.
    let mut operations = 0;
    let sim = loop {
        operations += 1;
        let sim = Sim::new(Fault::Crash(operations));
        let done = rounds_of_batches(&sim);
        if done.acknowledged == 2 * ROUND && sim.each_lacking_a_page().count() > 8 {
            break sim;
        }
    };
    let name = sim.names().unwrap().into_iter().max().unwrap();
    let synced = sim.synced(&name);
    for page in (0..synced).step_by(sim::PAGE) {
        let damaged = sim.after_kill();
        damaged.edit(&name, |bytes| {
            bytes[page..synced.min(page + sim::PAGE)].fill(0)
        });
        let found = look_and_find(&damaged);
        assert!(
            matches!(found, Err(DurabilityError::Damaged { .. })),
            "page at {page}: {:?}",
            found.map(|(_, report)| report)
        );
    }
}

/// The mark of a closed log was written, its sync failed or did not come to its end, and
/// whoever opened the log next read it all the same.
#[test]
fn a_mark_that_does_not_last_takes_nothing_with_it() {
    for (round, synced) in (0..20).flat_map(|round| [(round, false), (round, true)]) {
        let sim = Sim::new(Fault::Never);
        let (log, _, _) = open(&sim).unwrap();
        (1..=3).for_each(|timestamp| append(&log, timestamp));
        log.wait(3, None).unwrap();
        if !synced {
            // After a sync and the mark.
            sim.set_fault(Fault::Error(sim.operations() + 3));
        }
        drop(log);
        let killed = sim.after_kill();
        let (log, _, _) = open(&killed).unwrap();
        append(&log, 4);
        log.wait(4, None).unwrap();
        let crashed = killed.after_crash(&mut ChaCha8Rng::seed_from_u64(round), Fault::Never);
        let done = Done {
            acknowledged: 4,
            appended: 4,
        };
        let (model, report) = find(&crashed).unwrap_or_else(|error| panic!("{round}: {error}"));
        check(&model, &report, &done);
    }
}

fn segments(sim: &Sim) -> usize {
    let names = sim.names().unwrap();
    let numbers = names.iter().filter_map(|name| segment_number(name));
    numbers.count()
}

/// However often the log is opened.
#[test]
fn segments_that_no_checkpoint_needs_are_removed() {
    let sim = Sim::new(Fault::Never);
    let left = [(); 5].map(|()| {
        let (log, _, report) = open(&sim).unwrap();
        for timestamp in report.durable + 1..=report.durable + 12 {
            append(&log, timestamp);
            // A batch each, so that all rounds make the same segments.
            log.wait(timestamp, None).unwrap();
            if timestamp % 6 == 0 {
                checkpoint_at(&log, timestamp).unwrap();
            }
        }
        segments(&sim)
    });
    assert_eq!(left[1..], [left[1]; 4]);
}

/// A segment into which nothing was written is not there a second time under the name of
/// the next one.
#[test]
fn a_segment_without_a_batch_is_replaced() {
    let sim = Sim::new(Fault::Never);
    let log = open(&sim).unwrap().0;
    let killed = sim.after_kill();
    drop(log);
    let (log, _, _) = open(&killed).unwrap();
    (1..=12).for_each(|timestamp| append(&log, timestamp));
    log.wait(12, None).unwrap();
    assert!(segments(&killed) > 2);
    assert_eq!(log.stats().segments, segments(&killed) as u64);
    for timestamp in [6, 12] {
        checkpoint_at(&log, timestamp).unwrap();
    }
    assert_eq!(log.stats().segments, segments(&killed) as u64);
}

/// A disk that fails at some operation of a checkpoint, and only there.
#[test]
fn a_checkpoint_that_fails_leaves_no_file_and_commits_go_on() {
    let mut failed = 0;
    for at in 1.. {
        let sim = Sim::new(Fault::Never);
        let (log, _, _) = open(&sim).unwrap();
        for timestamp in 1..=3 {
            append(&log, timestamp);
        }
        log.wait(3, None).unwrap();
        let names = sim.names().unwrap();
        sim.set_fault(Fault::Error(sim.operations() + at));
        let made = checkpoint_at(&log, 3);
        let over = made.is_ok();
        sim.set_fault(Fault::Never);
        if let Err(error) = made {
            failed += 1;
            let left = sim.names().unwrap();
            let whole = checkpoint::file::checkpoint_name(3);
            let more: Vec<_> = left.iter().filter(|name| !names.contains(name)).collect();
            assert!(more.is_empty() || more == [&whole], "{error}: {more:?}");
        }
        append(&log, 4);
        log.wait(4, None).unwrap();
        if over {
            break;
        }
    }
    assert!(failed > 3, "{failed} operations");
}
