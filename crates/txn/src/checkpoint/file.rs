//! What a checkpoint looks like on disk.
//!
//! ```text
//! checkpoint-00000000000000004711.giveway
//!   magic 8 │ version 4 │ crc 4 │ database 8 │ snapshot 8 │ first segment 8
//!   block:  length 4 │ crc 4 │ changes (tables, and rows that are there)
//!   …
//!   end:    0 4 │ crc 4 │ number of changes 8
//! ```
//!
//! - **C1** A block's checksum starts from that of the block before, the first
//!   one's from that of the header, and the end's covers the number of changes. So
//!   a file whose end fits is whole, and its blocks are in order. (Checked when the
//!   file is read, always.)
//! - **C2** A table comes before its rows. (Checked in the same way.)
//!
//! Versions are those of the log, and all are read.

use std::io::{self, Read};

use crate::log::format::{check_opening, seal_opening, u32_at, u64_at};
use crate::log::record::{Change, changes};
use crate::log::segment::Aside;
use crate::log::{Disk, Failure, Flaw};

const MAGIC: &[u8; 8] = b"GIVECKPT";
const PREFIX: &str = "checkpoint-";
const SUFFIX: &str = ".giveway";
/// Bytes of the header.
const HEADER: usize = 40;
/// Bytes in front of a block.
const BLOCK_HEADER: usize = 8;
/// Bytes after which a block is written. One change may make it longer.
const BLOCK_BYTES: usize = 256 << 10;

/// The name of the checkpoint of this snapshot.
pub(crate) fn checkpoint_name(snapshot: u64) -> String {
    format!("{PREFIX}{snapshot:020}{SUFFIX}")
}

/// The snapshot in a checkpoint's name; `None` if it is none.
pub(crate) fn checkpoint_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// What a checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointHeader {
    /// The version of its format.
    pub(crate) version: u32,
    /// The database it belongs to.
    pub(crate) database: u64,
    /// It has all transactions up to this timestamp, and no other.
    pub(crate) snapshot: u64,
    /// The first batch of the segment with which the log goes on.
    pub(crate) first_needed: u64,
}

impl CheckpointHeader {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.database.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.snapshot.to_le_bytes());
        bytes[32..].copy_from_slice(&self.first_needed.to_le_bytes());
        seal_opening(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8; HEADER]) -> Result<CheckpointHeader, Flaw> {
        let version = check_opening(bytes, MAGIC)?;
        Ok(CheckpointHeader {
            version,
            database: u64_at(bytes, 16),
            snapshot: u64_at(bytes, 24),
            first_needed: u64_at(bytes, 32),
        })
    }
}

/// A checkpoint that is being written.
pub(crate) struct CheckpointWriter<'a> {
    disk: &'a dyn Disk,
    name: &'a str,
    /// Bytes of the disk to leave free.
    keep: u64,
    aside: Aside<'a>,
    /// Room for a block's header, then its changes so far.
    block: Vec<u8>,
    /// The last checksum (C1).
    crc: u32,
    /// Changes so far.
    count: u64,
    /// Bytes written so far.
    bytes: u64,
}

impl<'a> CheckpointWriter<'a> {
    /// Begins the checkpoint with this name, which leaves so many bytes of the disk free.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn begin(
        disk: &'a dyn Disk,
        name: &'a str,
        header: &CheckpointHeader,
        keep: u64,
    ) -> Result<CheckpointWriter<'a>, Failure> {
        let mut aside = Aside::begin(disk, name)?;
        let header = header.encode();
        aside.append(&header)?;
        Ok(CheckpointWriter {
            disk,
            name,
            keep,
            aside,
            block: vec![0; BLOCK_HEADER],
            crc: u32_at(&header, 12),
            count: 0,
            bytes: HEADER as u64,
        })
    }

    /// Adds a table or a row (C2).
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn add(&mut self, change: &Change<'_>) -> Result<(), Failure> {
        change.encode(&mut self.block);
        self.count += 1;
        match self.block.len() >= BLOCK_BYTES {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        let (header, payload) = self.block.split_at_mut(BLOCK_HEADER);
        if payload.is_empty() {
            return Ok(());
        }
        self.crc = crc32c::crc32c_append(self.crc, payload);
        // A change is shorter than a record, and a block not much longer.
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&self.crc.to_le_bytes());
        self.check_space()?;
        self.aside.append(&self.block)?;
        self.bytes += self.block.len() as u64;
        self.block.truncate(BLOCK_HEADER);
        Ok(())
    }

    /// Fails if the block would leave less free than is to be kept.
    fn check_space(&self) -> Result<(), Failure> {
        let failure = |source| Failure {
            doing: "writing",
            file: self.disk.describe(self.name),
            source,
        };
        let free = self.disk.free_bytes().map_err(failure)?;
        match free.checked_sub(self.block.len() as u64) {
            Some(left) if left >= self.keep => Ok(()),
            _ => Err(failure(io::Error::new(
                io::ErrorKind::StorageFull,
                format!(
                    "{free} bytes of the disk are free, and {} are kept for the log's next \
                     segment",
                    self.keep
                ),
            ))),
        }
    }

    /// Puts the end behind everything, and gives the file its name. Its length
    /// in bytes.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn finish(mut self) -> Result<u64, Failure> {
        self.write()?;
        let count = self.count.to_le_bytes();
        let crc = crc32c::crc32c_append(self.crc, &count).to_le_bytes();
        self.aside.append(&[&[0; 4], &crc[..], &count].concat())?;
        self.aside.finish()?;
        Ok(self.bytes + (BLOCK_HEADER + count.len()) as u64)
    }
}

/// Why a checkpoint cannot be read, or reading was ended.
#[derive(Debug)]
pub(crate) enum Unreadable<E> {
    /// The system refused.
    Io(io::Error),
    /// The file is not whole.
    Flaw(Flaw),
    /// The reader has had enough.
    Reader(E),
}

impl<E> From<io::Error> for Unreadable<E> {
    fn from(error: io::Error) -> Unreadable<E> {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Unreadable::Flaw(Flaw::Truncated),
            _ => match Flaw::of(&error) {
                Some(flaw) => Unreadable::Flaw(flaw),
                None => Unreadable::Io(error),
            },
        }
    }
}

impl<E> From<Flaw> for Unreadable<E> {
    fn from(flaw: Flaw) -> Unreadable<E> {
        Unreadable::Flaw(flaw)
    }
}

/// Reads what a checkpoint says of itself.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn read_header<E>(input: &mut dyn Read) -> Result<CheckpointHeader, Unreadable<E>> {
    let mut bytes = [0; HEADER];
    input.read_exact(&mut bytes)?;
    Ok(CheckpointHeader::decode(&bytes)?)
}

/// Calls `each` with every change of a checkpoint, in order. Whether the file is
/// whole is known only at the end.
///
/// # Errors
/// If it is not whole, or the first of `each`.
pub(crate) fn read<E>(
    input: &mut dyn Read,
    mut each: impl FnMut(Change<'_>) -> Result<(), E>,
) -> Result<CheckpointHeader, Unreadable<E>> {
    let mut bytes = [0; HEADER];
    input.read_exact(&mut bytes)?;
    let header = CheckpointHeader::decode(&bytes)?;
    let mut crc = u32_at(&bytes, 12);
    let (mut block, mut count) = (Vec::new(), 0u64);
    loop {
        let mut opening = [0; BLOCK_HEADER];
        input.read_exact(&mut opening)?;
        let length = u32_at(&opening, 0);
        block.clear();
        // As much memory as there is file, whatever the length says.
        let last = length == 0;
        let wanted = if last { 8 } else { u64::from(length) };
        if io::Read::take(&mut *input, wanted).read_to_end(&mut block)? as u64 != wanted {
            return Err(Flaw::Truncated.into());
        }
        crc = crc32c::crc32c_append(crc, &block);
        if crc != u32_at(&opening, 4) {
            return Err(Flaw::Checksum.into());
        }
        if last {
            break;
        }
        for change in changes(&block) {
            each(change?).map_err(Unreadable::Reader)?;
            count += 1;
        }
    }
    let ends = input.read(&mut [0])? == 0;
    match ends && u64_at(&block, 0) == count {
        true => Ok(header),
        false => Err(Flaw::Contents.into()),
    }
}
