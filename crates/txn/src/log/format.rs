//! What a segment of the log looks like on disk.
//!
//! ```text
//! segment   log-00000000000000000017.giveway
//! ┌────────────────┬───────┬───────┬─────┬───────┐
//! │ SegmentHeader  │ batch │ batch │  …  │ batch │
//! └────────────────┴───────┴───────┴─────┴───────┘
//! SegmentHeader, 40 bytes
//!   magic 8 │ version 4 │ crc 4 │ database 8 │ first sequence 8 │ after 8
//! batch
//!   magic 4 │ length 4 │ sequence 8 │ last 8 │ synced 8 │ payload crc 4 │ header crc 4
//!   payload
//! payload: transactions in the order of their timestamps
//!   length 4 │ timestamp 8 │ body
//! ```
//!
//! All numbers are little-endian. `crc` of the segment header covers what
//! follows it, and the version; that and the magic come before it so that a newer
//! version can be told from damage. `after` is a timestamp that all of the segment's
//! transactions are beyond, `last` that of the batch's last one. `synced` is the
//! number of the first batch that was not known to be on disk when this one was
//! written: all before that one are.
//!
//! Versions are a segment's: a log may have segments of several, and all are read.
//!
//! | version | differs from the next one |
//! | --- | --- |
//! | 1 | batches lack `synced` and have 8 bytes less in front; they are read as if each had been written after a sync |
//! | 2 | a schema change is only a new table, and has no timestamp of its own; `crc` does not cover the version |
//! | 3 | this one |
//!
//! - **F1** Batches are numbered without gaps from 1, across segments. A gap is
//!   a lost batch. (Checked by `reader` and `recovery::chain`, always.)
//! - **F2** A batch's two checksums start from the database's number, so that a
//!   batch of another database, or bytes of a row that look like one, do not
//!   pass for a batch. (Checked by `reader`, always.)
//! - **F3** A batch is whole or worthless: it is acknowledged as one. (Asserted as
//!   T1 of `writer`.)

use super::error::Flaw;
pub(crate) use super::limits::{RECORD_MAX, VERSION};

/// The version whose batches do not say what is synced.
const WITHOUT_SYNCED: u32 = 1;
/// The first version whose schema changes have timestamps of their own.
pub(crate) const TIMED_CHANGES: u32 = 3;
/// Bytes of a segment's header.
pub(crate) const SEGMENT_HEADER: usize = 40;
/// Bytes of a batch's header.
pub(crate) const BATCH_HEADER: usize = 40;
/// Bytes in front of a transaction's body.
pub(crate) const RECORD_HEADER: usize = 12;

const SEGMENT_MAGIC: &[u8; 8] = b"GIVEWLOG";
const BATCH_MAGIC: &[u8; 4] = b"gwB\x1a";
const PREFIX: &str = "log-";
const SUFFIX: &str = ".giveway";

/// The name of the segment whose first batch has this number.
pub(crate) fn segment_name(first: u64) -> String {
    format!("{PREFIX}{first:020}{SUFFIX}")
}

/// The number in a segment's name; `None` if it is none.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The version of the segment's format.
    pub(crate) version: u32,
    /// The database it belongs to.
    pub(crate) database: u64,
    /// The number of its first batch.
    pub(crate) first: u64,
    /// All its transactions have later timestamps.
    pub(crate) after: u64,
}

/// What a batch says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Bytes of payload.
    pub(crate) length: u32,
    /// Its number.
    pub(crate) sequence: u64,
    /// The timestamp of its last transaction.
    pub(crate) last: u64,
    /// All batches before the one with this number were on disk when this one was
    /// written.
    pub(crate) synced: u64,
    payload_crc: u32,
    /// Bytes of this header.
    pub(crate) bytes: usize,
}

/// What the batches of a segment are read by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchFormat {
    /// The database they belong to.
    pub(crate) database: u64,
    /// The segment's version.
    pub(crate) version: u32,
}

impl BatchFormat {
    /// Whether batches say themselves what is synced.
    pub(crate) fn says_synced(self) -> bool {
        self.version > WITHOUT_SYNCED
    }
}

impl SegmentHeader {
    /// The bytes to write.
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.database.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..].copy_from_slice(&self.after.to_le_bytes());
        seal_opening(&mut bytes);
        bytes
    }

    /// Reads what a segment begins with.
    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, Flaw> {
        let bytes = bytes.get(..SEGMENT_HEADER).ok_or(Flaw::Truncated)?;
        let version = check_opening(bytes, SEGMENT_MAGIC)?;
        Ok(SegmentHeader {
            version,
            database: u64_at(bytes, 16),
            first: u64_at(bytes, 24),
            after: u64_at(bytes, 32),
        })
    }
}

/// Fills in the checksum of a header whose magic and version are there.
pub(crate) fn seal_opening(header: &mut [u8]) {
    let crc = opening_crc(header).to_le_bytes();
    header[12..16].copy_from_slice(&crc);
}

fn opening_crc(header: &[u8]) -> u32 {
    let seed = match u32_at(header, 8) {
        ..TIMED_CHANGES => 0,
        _ => crc32c::crc32c(&header[8..12]),
    };
    crc32c::crc32c_append(seed, &header[16..])
}

/// The version of a file with this header, if it begins with this magic and can be
/// read.
pub(crate) fn check_opening(header: &[u8], magic: &[u8; 8]) -> Result<u32, Flaw> {
    if header[..8] != *magic {
        return Err(Flaw::Magic);
    }
    match u32_at(header, 8) {
        version @ WITHOUT_SYNCED..=VERSION => match opening_crc(header) == u32_at(header, 12) {
            true => Ok(version),
            false => Err(Flaw::Checksum),
        },
        version => Err(Flaw::Version(version)),
    }
}

/// Fills in the header of a batch whose payload stands behind the room for it.
/// Batches before the one numbered `synced` are on disk.
///
/// # Panics
/// If the payload is longer than 4 GiB, which [`RECORD_MAX`] rules out.
pub(crate) fn seal_batch(batch: &mut [u8], database: u64, sequence: u64, last: u64, synced: u64) {
    let (header, payload) = batch.split_at_mut(BATCH_HEADER);
    let length = u32::try_from(payload.len()).expect("a batch has less than 4 GiB");
    let seed = seed(database);
    header[..4].copy_from_slice(BATCH_MAGIC);
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16..24].copy_from_slice(&last.to_le_bytes());
    header[24..32].copy_from_slice(&synced.to_le_bytes());
    header[32..36].copy_from_slice(&crc32c::crc32c_append(seed, payload).to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &header[..36]);
    header[36..40].copy_from_slice(&crc.to_le_bytes());
}

impl BatchHeader {
    /// Reads the header that `bytes` begin with.
    pub(crate) fn decode(bytes: &[u8], format: BatchFormat) -> Result<BatchHeader, Flaw> {
        let length = match format.version {
            WITHOUT_SYNCED => BATCH_HEADER - 8,
            _ => BATCH_HEADER,
        };
        let bytes = bytes.get(..length).ok_or(Flaw::Truncated)?;
        if bytes[..4] != *BATCH_MAGIC {
            return Err(Flaw::Magic);
        }
        let (covered, crc) = bytes.split_at(length - 4);
        if crc32c::crc32c_append(seed(format.database), covered) != u32_at(crc, 0) {
            return Err(Flaw::Checksum);
        }
        let sequence = u64_at(bytes, 8);
        Ok(BatchHeader {
            length: u32_at(bytes, 4),
            sequence,
            last: u64_at(bytes, 16),
            synced: match format.version {
                WITHOUT_SYNCED => sequence,
                _ => u64_at(bytes, 24),
            },
            payload_crc: u32_at(bytes, length - 8),
            bytes: length,
        })
    }

    /// Bytes of the batch.
    pub(crate) fn total(&self) -> usize {
        self.bytes + self.length as usize
    }

    /// The payload behind the header, if it is whole.
    pub(crate) fn payload<'a>(&self, bytes: &'a [u8], database: u64) -> Result<&'a [u8], Flaw> {
        let payload = bytes.get(self.bytes..self.total()).ok_or(Flaw::Truncated)?;
        match crc32c::crc32c_append(seed(database), payload) == self.payload_crc {
            true => Ok(payload),
            false => Err(Flaw::Checksum),
        }
    }

    /// Where in `bytes` a whole batch begins (F2) that was written when the batch
    /// with this number was on disk, if one does.
    pub(crate) fn find_beyond(bytes: &[u8], format: BatchFormat, batch: u64) -> Option<usize> {
        (0..bytes.len()).find(|&at| {
            bytes[at..].starts_with(BATCH_MAGIC)
                && BatchHeader::decode(&bytes[at..], format).is_ok_and(|header| {
                    header.synced > batch && header.payload(&bytes[at..], format.database).is_ok()
                })
        })
    }
}

/// What the checksums of a database's batches start from.
fn seed(database: u64) -> u32 {
    crc32c::crc32c(&database.to_le_bytes())
}

/// Fills in what stands in front of a transaction's body.
///
/// # Panics
/// If the body is longer than [`RECORD_MAX`], which the caller has checked.
pub(crate) fn seal_record(record: &mut [u8], timestamp: u64) {
    let length = record.len() - RECORD_HEADER;
    assert!(length <= RECORD_MAX, "a record of {length} bytes");
    record[..4].copy_from_slice(&(length as u32).to_le_bytes());
    record[4..RECORD_HEADER].copy_from_slice(&timestamp.to_le_bytes());
}

/// The timestamp and length of the record that `bytes` begin with, the length
/// with its header; `None` if there is no whole one.
pub(crate) fn peek_record(bytes: &[u8]) -> Option<(u64, usize)> {
    let header = bytes.get(..RECORD_HEADER)?;
    let length = RECORD_HEADER + u32_at(header, 0) as usize;
    (length <= bytes.len()).then(|| (u64_at(header, 4), length))
}

/// The number at `at`, which the caller knows to be there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The number at `at`, which the caller knows to be there.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(database: u64, sequence: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; BATCH_HEADER];
        bytes.extend_from_slice(payload);
        seal_batch(&mut bytes, database, sequence, 99, sequence);
        bytes
    }

    fn format(database: u64) -> BatchFormat {
        let version = VERSION;
        BatchFormat { database, version }
    }

    #[test]
    fn any_changed_bit_of_a_header_is_seen() {
        let header = SegmentHeader {
            version: VERSION,
            database: 5,
            first: 6,
            after: 7,
        };
        let good = header.encode();
        assert_eq!(SegmentHeader::decode(&good), Ok(header));
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
        let mut newer = good;
        newer[8] = 4;
        assert_eq!(SegmentHeader::decode(&newer), Err(Flaw::Version(4)));
    }

    #[test]
    fn any_changed_bit_of_a_batch_is_seen() {
        let good = batch(5, 1, b"some payload");
        let whole = |bytes: &[u8]| {
            BatchHeader::decode(bytes, format(5))
                .and_then(|header| header.payload(bytes, 5).map(<[u8]>::to_vec))
        };
        assert_eq!(whole(&good).unwrap(), b"some payload");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(whole(&bad).is_err(), "bit {bit}");
        }
        for length in 0..good.len() {
            assert_eq!(whole(&good[..length]), Err(Flaw::Truncated));
        }
    }

    #[test]
    fn a_later_batch_is_found_behind_rubbish_and_a_foreign_one_is_not() {
        let rubbish = b"gwB\x1a and not a header, nor anything like one, for long".to_vec();
        let mut bytes = [rubbish.clone(), batch(5, 8, b"x")].concat();
        let find = |bytes: &[u8], database, batch| {
            BatchHeader::find_beyond(bytes, format(database), batch)
        };
        assert_eq!(find(&bytes, 5, 7), Some(rubbish.len()));
        // One that was written before the sync proves nothing.
        assert_eq!(find(&bytes, 5, 8), None);
        assert_eq!(find(&bytes, 6, 7), None);
        // Nor does a batch that is itself torn.
        bytes.pop();
        assert_eq!(find(&bytes, 5, 7), None);
        let mark = batch(5, 9, b"");
        assert_eq!(find(&mark, 5, 8), Some(0));
    }

    #[test]
    fn names_sort_as_their_numbers() {
        assert_eq!(segment_number(&segment_name(17)), Some(17));
        assert!(segment_name(9) < segment_name(10));
        for other in ["log-17.giveway", "LOCK", "log-+0000000000000000017.giveway"] {
            assert_eq!(segment_number(other), None, "{other}");
        }
    }
}
