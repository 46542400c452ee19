//! What a disk does to files that nobody writes: bits flip, ends and whole files
//! go missing. Where a promise is broken, recovery says so and names the file.

use std::collections::BTreeSet;

use super::*;

/// A database after 30 transactions and two checkpoints, closed or killed.
fn used(closed: bool) -> Sim {
    let sim = Sim::new(Fault::Never);
    let log = run_open(&sim, 30);
    match closed {
        true => {
            drop(log);
            sim
        }
        // As it is at this moment; the log is closed on a disk that nobody reads.
        false => sim.after_kill(),
    }
}

fn run_open(sim: &Sim, transactions: u64) -> Log {
    let (log, _, _) = open(sim).unwrap();
    for timestamp in 1..=transactions {
        append(&log, timestamp);
        log.wait(timestamp, None).unwrap();
        if timestamp == 7 || timestamp == 14 {
            checkpoint_at(&log, timestamp).unwrap();
        }
    }
    log
}

/// The segments and checkpoints there are, oldest first.
fn files(sim: &Sim) -> (Vec<String>, Vec<String>) {
    let mut names = sim.names().unwrap();
    names.sort();
    names
        .into_iter()
        .partition(|name| segment_number(name).is_some())
}

/// A disk with the same files.
fn copy(sim: &Sim) -> Sim {
    sim.after_kill()
}

#[test]
fn a_torn_end_is_cut_at_any_byte_and_said_to_be() {
    let sim = used(false);
    let (segments, _) = files(&sim);
    let last = segments.last().unwrap();
    let length = sim.read(last).unwrap().len();
    let (mut lengths, mut whole) = (BTreeSet::new(), 0);
    for end in 40..length {
        let torn = copy(&sim);
        torn.edit(last, |bytes| bytes.truncate(end));
        let (model, report) = find(&torn).unwrap();
        assert_eq!(model.accounts, after(report.durable));
        lengths.insert(report.durable);
        match &report.cut {
            Some(cut) => {
                assert_eq!(cut.file, format!("sim/{last}"));
                assert_eq!(cut.offset + cut.bytes, end as u64);
            }
            None => whole += 1,
        }
        // The cut end does not come back.
        let (again, report) = find(&copy(&torn)).unwrap();
        assert_eq!((again.accounts, report.cut), (model.accounts, None));
    }
    // One end per batch, and the one without any.
    assert_eq!(lengths.len(), whole);
    assert!(whole > 1 && lengths.contains(&29), "{lengths:?}");
}

#[test]
fn a_flipped_bit_is_reported_or_repaired_never_silent() {
    let sim = used(true);
    let (segments, checkpoints) = files(&sim);
    assert!(segments.len() > 3 && checkpoints.len() == 2);
    let newest = checkpoints.last().unwrap();
    for name in segments.iter().chain(&checkpoints) {
        for bit in 0..sim.read(name).unwrap().len() * 8 {
            let flipped = copy(&sim);
            flipped.edit(name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            match find(&flipped) {
                Ok((model, report)) => {
                    assert_eq!((report.durable, model.accounts), (30, after(30)));
                    let made_up = match name {
                        _ if name == newest => !report.damaged_checkpoints.is_empty(),
                        // Older than what the newest checkpoint needs.
                        _ if checkpoints.contains(name) => true,
                        // The mark of the closed log.
                        _ if Some(name) == segments.last() => report.cut.is_some(),
                        _ => !needed(&sim, newest, name),
                    };
                    assert!(made_up, "{name}, bit {bit}: {report:?}");
                }
                Err(
                    DurabilityError::Damaged { file, .. }
                    | DurabilityError::Newer { file, .. }
                    | DurabilityError::Foreign { file },
                ) => assert_eq!(file, format!("sim/{name}")),
                Err(other) => panic!("{name}, bit {bit}: {other}"),
            }
        }
    }
}

/// Damage to the newest checkpoint, then to the one that was made after it: the older one
/// has stood in, and does so again.
#[test]
fn a_damaged_checkpoint_is_none_of_those_that_are_kept() {
    let sim = used(true);
    let damage = |name: &str| sim.edit(name, |bytes| bytes.truncate(bytes.len() / 2));
    damage(files(&sim).1.last().unwrap());
    let (log, _, report) = open(&sim).unwrap();
    assert_eq!(report.checkpoint, Some(7));
    checkpoint_at(&log, 30).unwrap();
    drop(log);
    damage(&checkpoint::file::checkpoint_name(30));
    let (model, report) = find(&sim).unwrap();
    assert_eq!((report.durable, model.accounts), (30, after(30)));
}

/// A timestamp with which nobody commits is the last one before a checkpoint and a close.
#[test]
fn an_older_checkpoint_stands_in_though_the_newest_one_s_timestamp_was_skipped() {
    let sim = used(true);
    let (log, _, _) = open(&sim).unwrap();
    log.skip(31);
    checkpoint_at(&log, 31).unwrap();
    drop(log);
    let (log, _, report) = open(&sim).unwrap();
    assert_eq!(report.checkpoint, Some(31));
    append(&log, 32);
    log.wait(32, None).unwrap();
    drop(log);
    let newest = checkpoint::file::checkpoint_name(31);
    sim.edit(&newest, |bytes| bytes.truncate(bytes.len() / 2));
    let (_, report) = find(&sim).unwrap();
    assert_eq!((report.checkpoint, report.durable), (Some(14), 32));
}

/// Whether recovery from this checkpoint reads this segment.
fn needed(sim: &Sim, checkpoint: &str, segment: &str) -> bool {
    let mut input = sim.stream(checkpoint).unwrap();
    let header = file::read_header::<Infallible>(&mut input).unwrap();
    segment_number(segment).unwrap() >= header.first_needed
}

#[test]
fn a_missing_file_is_missed() {
    let sim = used(true);
    let (segments, checkpoints) = files(&sim);
    let newest = checkpoints.last().unwrap();
    let needed = |name: &&String| needed(&sim, newest, name);
    assert!(segments.iter().filter(needed).count() > 3);
    for name in segments.iter().filter(needed) {
        let lacking = copy(&sim);
        lacking.remove(name).unwrap();
        // The last segment's loss is the loss of the end of the log, which only
        // the checkpoint can tell.
        let is_last = Some(name) == segments.last();
        match open(&lacking) {
            Err(DurabilityError::Missing { .. }) => {}
            Ok((_, model, report)) if is_last => assert_eq!(model.accounts, after(report.durable)),
            other => panic!("{name}: {:?}", other.map(|(_, _, report)| report)),
        }
    }
    // Without the newest checkpoint, the one before and its log do.
    let lacking = copy(&sim);
    lacking.remove(newest).unwrap();
    let (_, model, report) = open(&lacking).unwrap();
    assert_eq!((report.durable, model.accounts), (30, after(30)));
    lacking.remove(&checkpoints[0]).unwrap();
    assert!(matches!(
        open(&lacking),
        Err(DurabilityError::Missing { .. })
    ));
}

#[test]
fn salvage_keeps_what_comes_before_the_damage_and_sets_the_rest_aside() {
    let sim = used(true);
    let (segments, checkpoints) = files(&sim);
    let newest = checkpoints.last().unwrap();
    let victim = segments
        .iter()
        .find(|name| needed(&sim, newest, name))
        .unwrap();
    let bytes = sim.read(victim).unwrap();
    for (at, byte) in bytes.iter().enumerate() {
        let damaged = copy(&sim);
        damaged.edit(victim, |bytes| bytes[at] ^= 0x10);
        let Err(DurabilityError::Damaged { .. }) = find(&damaged) else {
            // Its version or its database: salvage is for other things.
            assert!((8..12).contains(&at), "byte {at}");
            continue;
        };
        let mut model = Model::default();
        let options = options().salvage(true);
        let (start, report) = recover(&disk(&damaged), &options, &mut model).unwrap();
        assert_eq!(model.accounts, after(report.durable));
        assert!((14..30).contains(&report.durable), "{report:?}");
        let set_aside = format!("{victim}.damaged");
        assert!(report.set_aside.contains(&format!("sim/{set_aside}")));
        assert_eq!(damaged.read(&set_aside).unwrap()[at], byte ^ 0x10);
        // It is whole from now on.
        drop(Log::start(disk(&damaged), options, start).unwrap());
        let (_, again, report) = open(&damaged).unwrap();
        assert_eq!((again.accounts, report.cut), (model.accounts, None));
    }
}

#[test]
fn a_newer_version_and_another_database_are_told_apart_from_damage() {
    let sim = used(true);
    let (segments, checkpoints) = files(&sim);
    for name in [segments.last().unwrap(), &checkpoints[1]] {
        let newer = copy(&sim);
        newer.edit(name, |bytes| bytes[8] = 200);
        let error = open(&newer).err().unwrap();
        assert!(matches!(error, DurabilityError::Newer { version: 200, .. }));
        assert!(error.to_string().contains("use a newer program"), "{error}");
    }
    let other = used(true);
    let foreign = copy(&sim);
    let last = segments.last().unwrap();
    foreign.edit(last, |bytes| *bytes = other.read(last).unwrap());
    assert!(matches!(
        open(&foreign),
        Err(DurabilityError::Foreign { .. })
    ));
}

/// Bad blocks show as errors of reading, and are damage like any other.
#[test]
fn what_the_system_cannot_read_is_damaged() {
    let sim = used(true);
    let (segments, checkpoints) = files(&sim);
    let newest = checkpoints.last().unwrap();
    let bad = copy(&sim);
    bad.make_unreadable(newest);
    let (model, report) = find(&bad).unwrap();
    assert_eq!(model.accounts, after(30));
    assert_eq!(
        report.damaged_checkpoints,
        [format!("sim/{newest}.damaged")]
    );

    let last = segments.last().unwrap();
    let bad = copy(&sim);
    bad.make_unreadable(last);
    let error = find(&bad).err().unwrap();
    let expected = DurabilityError::Damaged {
        file: format!("sim/{last}"),
        offset: 0,
        flaw: Flaw::Unreadable,
    };
    assert_eq!(error, expected);
    let options = options().salvage(true);
    let mut model = Model::default();
    let (_, report) = recover(&disk(&bad), &options, &mut model).unwrap();
    assert_eq!(model.accounts, after(report.durable));
    assert!(bad.names().unwrap().contains(&format!("{last}.damaged")));
}
