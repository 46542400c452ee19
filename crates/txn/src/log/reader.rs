//! Reading a segment back, and telling a torn end from damage.
//!
//! A crash can leave the end of the last segment in any state: what was written
//! and not yet synced may be there in part, in any order, or as zeros. Those
//! transactions were not acknowledged, so the end is cut. The same bytes in
//! front of something that *was* promised are damage, and must not be cut
//! silently. Which of the two it is follows from the order of writing:
//!
//! - **R1** A batch says which batches were synced when it was written (G4). So a
//!   whole batch behind a broken one that says so of it tells that the broken one
//!   had been whole. Batches of one round, and all under the policy `Os`, say
//!   nothing of each other: between two syncs the disk may write them in any order.
//! - **R2** A segment is made after the one before was synced (G2). So a broken
//!   batch in a segment that is not the last had been whole.
//! - **R3** Whatever has the right checksum and makes no sense was not torn.
//!
//! These are rules of inference, so nothing asserts them; they are as good as G2 to
//! G4. `recovery::tests` cuts and damages logs everywhere and compares.
//!
//! Known weakness: if a batch of the very last round that was synced is damaged
//! while the database is not closed properly, it looks as if it had been torn, and
//! is cut with what is behind it. A log that was closed ends with a mark (G3) and
//! does not have this weakness. Nor can a log of version 1 tell batches of one round
//! apart from those of two: there a torn end may be taken for damage, for which
//! `salvage` is the remedy.

use super::error::Flaw;
use super::format::{
    BatchFormat, BatchHeader, RECORD_HEADER, SEGMENT_HEADER, SegmentHeader, peek_record,
};

/// What reading a segment came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Bytes that are whole, from the beginning.
    pub(crate) whole: usize,
    /// Bytes of these that were on disk when the last whole batch was written (G4).
    pub(crate) synced: usize,
    /// The number of the batch that comes next.
    pub(crate) next: u64,
    /// The timestamp of the last transaction so far.
    pub(crate) last: u64,
    /// The mark of a closed log is the last thing that is whole (G3).
    pub(crate) marked: bool,
    /// Why the rest is not.
    pub(crate) broken: Option<Broken>,
}

/// The end of what can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// How it shows.
    pub(crate) flaw: Flaw,
    /// Something promised is known to be lost (R1, R3); else it may be a torn
    /// end.
    pub(crate) damage: bool,
}

/// Calls `each` with the timestamp and the body of every record in `bytes`, a
/// segment whose header has been read. A flaw that `each` finds ends the reading
/// (R3).
///
/// # Errors
/// The first of `each`.
pub(crate) fn scan<E>(
    bytes: &[u8],
    segment: &SegmentHeader,
    mut each: impl FnMut(u64, &[u8]) -> Result<Result<(), Flaw>, E>,
) -> Result<Scanned, E> {
    let mut scanned = Scanned {
        whole: SEGMENT_HEADER,
        synced: SEGMENT_HEADER,
        next: segment.first,
        last: segment.after,
        marked: false,
        broken: None,
    };
    let format = BatchFormat {
        database: segment.database,
        version: segment.version,
    };
    let mut first_unsynced = segment.first;
    while scanned.whole < bytes.len() {
        let rest = &bytes[scanned.whole..];
        let batch = BatchHeader::decode(rest, format)
            .and_then(|header| Ok((header, header.payload(rest, format.database)?)));
        let (header, payload) = match batch {
            Ok(batch) => batch,
            Err(flaw) => {
                let beyond = BatchHeader::find_beyond(&rest[1..], format, scanned.next);
                let damage = beyond.is_some();
                scanned.broken = Some(Broken { flaw, damage });
                break;
            }
        };
        let fits = header.sequence == scanned.next && header.synced <= header.sequence;
        let contents = match fits {
            true => records(payload, scanned.last, header.last, &mut each)?,
            false => Err(Flaw::Order),
        };
        if let Err(flaw) = contents {
            let damage = true;
            scanned.broken = Some(Broken { flaw, damage });
            break;
        }
        scanned.whole += header.total();
        while format.says_synced() && first_unsynced < header.synced {
            let on_disk = BatchHeader::decode(&bytes[scanned.synced..], format);
            scanned.synced += on_disk.expect("it has been read").total();
            first_unsynced += 1;
        }
        scanned.next += 1;
        scanned.last = header.last;
        scanned.marked = payload.is_empty();
    }
    Ok(scanned)
}

/// The records of a batch, whose timestamps lie between these two.
fn records<E>(
    mut payload: &[u8],
    after: u64,
    through: u64,
    each: &mut impl FnMut(u64, &[u8]) -> Result<Result<(), Flaw>, E>,
) -> Result<Result<(), Flaw>, E> {
    let mut last = after;
    while !payload.is_empty() {
        let Some((timestamp, length)) = peek_record(payload) else {
            return Ok(Err(Flaw::Contents));
        };
        if timestamp < last {
            return Ok(Err(Flaw::Order));
        }
        if let Err(flaw) = each(timestamp, &payload[RECORD_HEADER..length])? {
            return Ok(Err(flaw));
        }
        last = timestamp;
        payload = &payload[length..];
    }
    Ok(match last == through {
        true => Ok(()),
        false => Err(Flaw::Order),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::format::{BATCH_HEADER, VERSION, seal_batch, seal_record};

    const DATABASE: u64 = 77;

    /// A batch that was written after all before it were synced.
    fn batch(sequence: u64, timestamps: &[u64]) -> Vec<u8> {
        batch_of_round(sequence, sequence, timestamps)
    }

    /// A batch of a round that began with the batch numbered `synced`.
    fn batch_of_round(sequence: u64, synced: u64, timestamps: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; BATCH_HEADER];
        for timestamp in timestamps {
            let start = bytes.len();
            bytes.extend_from_slice(&[0; RECORD_HEADER]);
            bytes.extend_from_slice(format!("body {timestamp}").as_bytes());
            seal_record(&mut bytes[start..], *timestamp);
        }
        let last = *timestamps.last().unwrap_or(&0);
        seal_batch(&mut bytes, DATABASE, sequence, last, synced);
        bytes
    }

    fn segment(batches: &[Vec<u8>]) -> Vec<u8> {
        [&HEADER.encode()[..], &batches.concat()].concat()
    }

    const HEADER: SegmentHeader = SegmentHeader {
        version: VERSION,
        database: DATABASE,
        first: 5,
        after: 10,
    };

    fn read(bytes: &[u8]) -> (Vec<u64>, Scanned) {
        let mut seen = Vec::new();
        let each = |timestamp, body: &[u8]| {
            assert_eq!(body, format!("body {timestamp}").as_bytes());
            seen.push(timestamp);
            Ok::<_, ()>(Ok(()))
        };
        let header = SegmentHeader::decode(bytes).unwrap();
        let scanned = scan(bytes, &header, each).unwrap();
        (seen, scanned)
    }

    #[test]
    fn an_end_cut_anywhere_leaves_the_whole_batches_and_is_no_damage() {
        let parts = [batch(5, &[11, 13]), batch(6, &[14]), batch(7, &[15, 16])];
        let whole = segment(&parts);
        let second = segment(&parts[..2]).len();
        let first = segment(&parts[..1]).len();
        for end in second..whole.len() {
            let (seen, scanned) = read(&whole[..end]);
            assert_eq!(seen, [11, 13, 14]);
            assert_eq!(scanned.synced, first, "the last whole one had no sync");
            assert_eq!((scanned.whole, scanned.next, scanned.last), (second, 7, 14));
            assert_eq!(scanned.broken.is_some(), end > second);
            assert!(scanned.broken.is_none_or(|broken| !broken.damage));
        }
        // Blocks that were never written read as zeros.
        let zeros = [&whole[..second], &[0; 4096]].concat();
        assert!(read(&zeros).1.broken.is_some_and(|broken| !broken.damage));
        let (seen, scanned) = read(&whole);
        assert_eq!(seen, [11, 13, 14, 15, 16]);
        assert_eq!((scanned.next, scanned.broken), (8, None));
    }

    #[test]
    fn a_changed_bit_is_damage_when_something_whole_follows_and_a_torn_end_when_not() {
        let parts = [batch(5, &[11, 13]), batch(6, &[14])];
        let good = segment(&parts);
        let last = segment(&parts[..1]).len();
        for bit in SEGMENT_HEADER * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let broken = read(&bad).1.broken.unwrap_or_else(|| panic!("bit {bit}"));
            assert_eq!(broken.damage, bit / 8 < last, "bit {bit}");
        }
    }

    /// Batches of one round, of which the disk may have any.
    #[test]
    fn a_broken_batch_is_damage_only_if_a_later_one_says_that_it_was_synced() {
        let round = |synced| {
            [(6, 12), (7, 13), (8, 14)]
                .map(|(sequence, ts)| batch_of_round(sequence, synced, &[ts]))
        };
        let parts = [&[batch(5, &[11])][..], &round(6)].concat();
        let good = segment(&parts);
        let begins = segment(&parts[..1]).len();
        let last = segment(&parts[..3]).len();
        assert_eq!(read(&good).1.synced, begins);
        for byte in begins..good.len() {
            let mut bad = good.clone();
            bad[byte] ^= 1;
            let scanned = read(&bad).1;
            assert!(!scanned.broken.unwrap().damage, "byte {byte}");
            assert!(scanned.next >= 6);
        }
        // The batch before the round was promised, and so is the round after another.
        let more = [&parts[..], &[batch_of_round(9, 9, &[15])]].concat();
        for (bytes, promised) in [(good, begins), (segment(&more), last)] {
            for byte in SEGMENT_HEADER..promised {
                let mut bad = bytes.clone();
                bad[byte] ^= 1;
                assert!(read(&bad).1.broken.unwrap().damage, "byte {byte}");
            }
        }
        let beyond = segment(&[batch_of_round(5, 6, &[11])]);
        let flaw = Flaw::Order;
        let damage = true;
        assert_eq!(read(&beyond).1.broken, Some(Broken { flaw, damage }));
    }

    /// As the first version wrote it: no `synced`, and the version in the header.
    #[test]
    fn a_segment_of_version_1_is_read() {
        let old = |bytes: Vec<u8>| {
            let (header, payload) = bytes.split_at(BATCH_HEADER);
            let mut old = [&header[..24], &header[32..36]].concat();
            let crc = crc32c::crc32c_append(crc32c::crc32c(&DATABASE.to_le_bytes()), &old);
            old.extend_from_slice(&crc.to_le_bytes());
            [&old, payload].concat()
        };
        let parts = [batch(5, &[11, 13]), batch(6, &[14])].map(old);
        let version = 1;
        let header = SegmentHeader { version, ..HEADER }.encode();
        let good = [&header[..], &parts.concat()].concat();
        let (seen, scanned) = read(&good);
        assert_eq!(seen, [11, 13, 14]);
        assert_eq!((scanned.next, scanned.broken), (7, None));
        // It does not say what was synced.
        assert_eq!(scanned.synced, SEGMENT_HEADER);
        let mut bad = good.clone();
        bad[SEGMENT_HEADER + 50] ^= 1;
        assert!(read(&bad).1.broken.unwrap().damage);
        let torn = &good[..good.len() - 1];
        assert!(!read(torn).1.broken.unwrap().damage);
    }

    #[test]
    fn lost_and_disordered_batches_are_damage() {
        let cases = [
            (vec![batch(6, &[14])], Flaw::Order),
            (vec![batch(5, &[11]), batch(5, &[12])], Flaw::Order),
            (vec![batch(5, &[9])], Flaw::Order),
            (vec![batch(5, &[12, 11, 12])], Flaw::Order),
        ];
        for (batches, flaw) in cases {
            let damage = true;
            let broken = read(&segment(&batches)).1.broken;
            assert_eq!(broken, Some(Broken { flaw, damage }));
        }
    }

    #[test]
    fn the_mark_counts_at_the_end_only() {
        let mut mark = vec![0; BATCH_HEADER];
        seal_batch(&mut mark, DATABASE, 6, 11, 6);
        let mut batches = vec![batch(5, &[11]), mark];
        assert!(read(&segment(&batches)).1.marked);
        batches.push(batch(7, &[12]));
        assert!(!read(&segment(&batches)).1.marked);
    }
}
