//! Files of the log as they are written: made, appended to, finished, removed.
//!
//! - **G1** A segment has its name only once its header is on disk: it is made
//!   under another name and renamed. So a segment's header is whole, or it was
//!   damaged later. (Not asserted: [`Aside`] is the only way to make one.)
//! - **G2** A segment is synced before the next one is made, whatever the sync
//!   policy. So only the last segment can have a torn end. (Not asserted: `rotate` does
//!   both; recovery takes a torn end elsewhere for damage.)
//! - **G3** A log that is closed ends with a *mark*, a batch without payload, put
//!   there after a sync. If it is there, all before it is on disk; it may not be itself,
//!   for whoever reads it may read what only the system has. (Not asserted: `close` does
//!   both.)
//! - **G4** A batch says how far the log was synced when it was written: up to the
//!   last sync that succeeded, which a segment begins with (G2). (Asserted in
//!   `append`.)
//! - **G5** From its beginning on a segment has room for all that is written into it (D5),
//!   if the disk had as much then; what it does not need goes back when the next one is
//!   made, or the log is closed. (Not asserted: a disk need not have it.) A transaction
//!   that logs more than a batch may not fit.

use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::error::Failure;
use super::format::{
    BATCH_HEADER, SEGMENT_HEADER, SegmentHeader, VERSION, seal_batch, segment_name,
};

/// The name of a file that is not finished yet. Opening a database removes such.
pub(crate) const UNFINISHED: &str = ".unfinished";

/// Bytes that are written again between two syncs.
const AGAIN_AT_ONCE: usize = if cfg!(test) { 64 } else { 512 << 10 };

/// A segment that is not the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// The number of its first batch.
    pub(crate) first: u64,
    /// All its transactions have this timestamp or an earlier one.
    pub(crate) through: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

/// The segment that is being written.
pub(crate) struct Segment {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    header: SegmentHeader,
    name: String,
    bytes: u64,
    /// Bytes that are reserved for a segment (G5).
    room: u64,
    /// The number of the next batch.
    next: u64,
    /// All batches before the one with this number are on disk (G4).
    synced: u64,
    /// The timestamp of the last transaction in the log.
    last: u64,
}

impl Segment {
    /// Makes a segment (G1), with room for so many bytes if there is as much (G5).
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        header: SegmentHeader,
        room: u64,
    ) -> Result<Segment, Failure> {
        let name = segment_name(header.first);
        let mut aside = Aside::begin(&*disk, &name)?;
        aside.reserve(room);
        aside.append(&header.encode())?;
        let file = aside.finish()?;
        Ok(Segment {
            disk,
            file,
            header,
            name,
            bytes: SEGMENT_HEADER as u64,
            room,
            next: header.first,
            synced: header.first,
            last: header.after,
        })
    }

    /// Writes a batch: room for its header, then its payload, whose last
    /// transaction has this timestamp.
    ///
    /// # Errors
    /// What could not be done; part of the batch may be there.
    pub(crate) fn append(&mut self, batch: &mut [u8], last: u64) -> Result<(), Failure> {
        let database = self.header.database;
        debug_assert!((self.header.first..=self.next).contains(&self.synced), "G4");
        seal_batch(batch, database, self.next, last, self.synced);
        self.file
            .append(batch)
            .map_err(|source| self.failure("writing", source))?;
        self.bytes += batch.len() as u64;
        self.next += 1;
        self.last = last;
        Ok(())
    }

    /// Makes what was appended last.
    ///
    /// # Errors
    /// What could not be done; nobody tries again (D3).
    pub(crate) fn sync(&mut self) -> Result<(), Failure> {
        let synced = self.file.sync();
        synced.map_err(|source| self.failure("syncing", source))?;
        self.synced = self.next;
        Ok(())
    }

    /// Whether everything that was appended is on disk.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced == self.next
    }

    /// Goes on in a new segment (G2).
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn rotate(&mut self) -> Result<Closed, Failure> {
        self.sync()?;
        self.release();
        let closed = Closed {
            first: self.header.first,
            through: self.last,
            bytes: self.bytes,
        };
        let header = SegmentHeader {
            version: VERSION,
            database: self.header.database,
            first: self.next,
            after: self.last,
        };
        *self = Segment::create(Arc::clone(&self.disk), header, self.room)?;
        Ok(closed)
    }

    /// Puts the mark behind everything (G3).
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn close(&mut self) -> Result<(), Failure> {
        self.sync()?;
        self.append(&mut [0; BATCH_HEADER], self.last)?;
        self.sync()?;
        self.release();
        Ok(())
    }

    /// Gives back what it does not need (G5). If that fails, recovery does it, or the file
    /// is removed one day.
    fn release(&mut self) {
        let _ = self.file.release();
    }

    /// The number of its first batch.
    pub(crate) fn first(&self) -> u64 {
        self.header.first
    }

    /// Bytes in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The timestamp of the last transaction in the log.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    fn failure(&self, doing: &'static str, source: std::io::Error) -> Failure {
        Failure {
            doing,
            file: self.disk.describe(&self.name),
            source,
        }
    }
}

/// Writes a part of a file again, which was read from there, and makes the file end with
/// it and last. Takes no room, or [`AGAIN_AT_ONCE`] bytes (D4).
///
/// # Errors
/// What could not be done. Nothing that had lasted is lost.
pub(crate) fn write_again(
    disk: &dyn Disk,
    name: &str,
    from: usize,
    whole: &[u8],
) -> Result<(), Failure> {
    let failure = |doing| {
        let file = disk.describe(name);
        move |source| Failure {
            doing,
            file,
            source,
        }
    };
    let file = disk.overwrite(name, from as u64, whole.len() as u64);
    let mut file = file.map_err(failure("opening"))?;
    for part in whole[from..].chunks(AGAIN_AT_ONCE) {
        file.append(part).map_err(failure("writing"))?;
        file.sync().map_err(failure("syncing"))?;
    }
    // The end, if nothing stands behind `from`.
    file.sync().map_err(failure("syncing"))
}

/// A file that is either whole under its name or not there: it is written under
/// another name, synced, renamed, and the name made to last. Dropped before that,
/// for instance because the disk is full, it is removed.
pub(crate) struct Aside<'a> {
    disk: &'a dyn Disk,
    name: &'a str,
    aside: String,
    /// None once the file has its name.
    file: Option<Box<dyn DiskFile>>,
}

impl<'a> Aside<'a> {
    /// Begins the file that is to have this name.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn begin(disk: &'a dyn Disk, name: &'a str) -> Result<Aside<'a>, Failure> {
        let aside = format!("{name}{UNFINISHED}");
        let file = disk.create(&aside).map_err(|source| Failure {
            doing: "making",
            file: disk.describe(&aside),
            source,
        })?;
        Ok(Aside {
            disk,
            name,
            aside,
            file: Some(file),
        })
    }

    /// Writes at the end.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let appended = self.file().append(bytes);
        appended.map_err(|source| self.failure("writing", source))
    }

    /// Reserves room for so many bytes: all of it or nothing, so that what is left of a
    /// disk is not taken from others for little.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        let file = self.file();
        if file.reserve(bytes).is_err() {
            // If it cannot be given back, the file has it.
            let _ = file.release();
        }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// What could not be done. Under its name the file is then whole or not there.
    pub(crate) fn finish(mut self) -> Result<Box<dyn DiskFile>, Failure> {
        let synced = self.file().sync();
        synced.map_err(|source| self.failure("syncing", source))?;
        let renamed = self.disk.rename(&self.aside, self.name);
        renamed.map_err(|source| self.failure("renaming", source))?;
        let file = self.file.take().expect(IS_OPEN);
        let named = self.disk.sync_names();
        named.map_err(|source| self.failure("naming", source))?;
        Ok(file)
    }

    fn file(&mut self) -> &mut dyn DiskFile {
        &mut **self.file.as_mut().expect(IS_OPEN)
    }

    fn failure(&self, doing: &'static str, source: std::io::Error) -> Failure {
        Failure {
            doing,
            file: self.disk.describe(&self.aside),
            source,
        }
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        // Closed first: the system gives its space back when both are done.
        if self.file.take().is_some() {
            // If it cannot be removed now, opening the database does it.
            let _ = self.disk.remove(&self.aside);
        }
    }
}

/// A file aside is open until it has its name.
const IS_OPEN: &str = "a file without its name is open";
