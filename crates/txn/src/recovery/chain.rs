//! The log's segments, one behind the other.
//!
//! - **H1** The chain begins with the segment that the checkpoint names, or with
//!   the first of all; each next one begins where the one before ends, in batches
//!   and in timestamps. Older ones are left over from a truncation. (Checked, always:
//!   a gap is damage.)
//! - **H2** A segment's header may say a later timestamp than the segment before
//!   ends with, if a checkpoint has everything in between. (Checked, always.) Behind a
//!   log that was closed nothing is missing (G3): there the next one says what that ends
//!   with, so that the checkpoint before can stand in for one that is damaged.
//!
//! Known weakness: a timestamp with which nobody committed leaves no record. If it is the
//! last one before a checkpoint, the database is killed, and the checkpoint is damaged
//! before the next is made, the gap looks like lost transactions: opening is refused.

use super::aside::{DAMAGED, set_aside};
use super::replay::{Origin, Replay, Target};
use super::report::{Cut, RecoveryReport};
use crate::checkpoint::file::CheckpointHeader;
use crate::log::format::{SegmentHeader, segment_name};
use crate::log::reader::{Broken, Scanned, scan};
use crate::log::record::{Change, changes};
use crate::log::segment::{Aside, Closed, write_again};
use crate::log::{Disk, DurabilityError, DurabilityOptions, Flaw};

/// The segments to replay.
pub(super) struct Chain<'a> {
    disk: &'a dyn Disk,
    salvage: bool,
    /// Nothing is written.
    read_only: bool,
    /// First batches, oldest first.
    segments: Vec<u64>,
    end: End,
    /// What the checkpoint has.
    snapshot: u64,
}

/// The end of the log.
pub(super) struct End {
    /// The database's number; none yet for a new one.
    pub(super) database: Option<u64>,
    /// The number of the next batch.
    pub(super) next: u64,
    /// The timestamp of the last transaction.
    pub(super) last: u64,
    /// The timestamp up to which nothing is missing from the log (H2).
    pub(super) logged: u64,
    /// The segments.
    pub(super) closed: Vec<Closed>,
}

impl<'a> Chain<'a> {
    /// The segments from the one that the checkpoint names on (H1).
    ///
    /// # Errors
    /// If that is missing.
    pub(super) fn new(
        disk: &'a dyn Disk,
        options: &DurabilityOptions,
        mut segments: Vec<u64>,
        checkpoint: Option<CheckpointHeader>,
    ) -> Result<Chain<'a>, DurabilityError> {
        segments.sort_unstable();
        let first = checkpoint.map_or(1, |header| header.first_needed);
        let older = segments.partition_point(|segment| *segment < first);
        let is_new = segments.is_empty() && checkpoint.is_none();
        // Nothing stands for the transactions before a log that begins later, so
        // salvage is no help then.
        let hopeless = !options.salvage || checkpoint.is_none();
        if segments.get(older) != Some(&first) && !is_new && hopeless {
            return Err(missing(disk, first, segments.get(older).copied()));
        }
        Ok(Chain {
            disk,
            salvage: options.salvage,
            read_only: options.read_only,
            segments: segments.split_off(older),
            end: End {
                database: checkpoint.map(|header| header.database),
                next: first,
                last: checkpoint.map_or(0, |header| header.snapshot),
                logged: checkpoint.map_or(0, |header| header.snapshot),
                closed: Vec::new(),
            },
            snapshot: checkpoint.map_or(0, |header| header.snapshot),
        })
    }

    /// Replays them, and settles the end.
    ///
    /// # Errors
    /// If something promised is missing or damaged, or the target's.
    pub(super) fn replay<T: Target>(
        mut self,
        replay: &mut Replay<'_, T>,
        report: &mut RecoveryReport,
    ) -> Result<End, T::Error> {
        let segments = std::mem::take(&mut self.segments);
        for (index, &first) in segments.iter().enumerate() {
            let later = &segments[index + 1..];
            if first != self.end.next {
                self.refuse(missing(self.disk, self.end.next, Some(first)))?;
                self.set_aside(&segments[index..], report)?;
                break;
            }
            let name = segment_name(first);
            let bytes = self.disk.read(&name);
            if let Some(flaw) = bytes.as_ref().err().and_then(Flaw::of) {
                self.refuse(DurabilityError::Damaged {
                    file: self.disk.describe(&name),
                    offset: 0,
                    flaw,
                })?;
                self.set_aside(&segments[index..], report)?;
                break;
            }
            let bytes = bytes.map_err(DurabilityError::io("reading", self.disk.describe(&name)))?;
            let scanned = self.segment(&name, first, &bytes, replay, report)?;
            report.segments += 1;
            report.log_bytes += bytes.len() as u64;
            self.end.next = scanned.next;
            // A checkpoint may have more than the log (H2).
            self.end.last = scanned.last.max(self.snapshot);
            self.end.logged = match scanned.marked && scanned.broken.is_none() {
                true => scanned.last,
                false => self.end.last,
            };
            self.end.closed.push(Closed {
                first,
                through: scanned.last,
                bytes: scanned.whole as u64,
            });
            let ends_here = self.ends_here(&name, &scanned, later)?;
            if ends_here {
                self.set_aside(later, report)?;
                self.settle(&name, &bytes, &scanned, report)?;
                break;
            }
        }
        Ok(self.end)
    }

    /// Replays one segment.
    fn segment<T: Target>(
        &mut self,
        name: &str,
        first: u64,
        bytes: &[u8],
        replay: &mut Replay<'_, T>,
        report: &mut RecoveryReport,
    ) -> Result<Scanned, T::Error> {
        let file = || self.disk.describe(name);
        let header = match SegmentHeader::decode(bytes) {
            Ok(header) => header,
            Err(Flaw::Version(version)) => {
                return Err(DurabilityError::Newer {
                    file: file(),
                    version,
                }
                .into());
            }
            Err(flaw) => return Ok(self.worthless(flaw)),
        };
        if self
            .end
            .database
            .is_some_and(|known| known != header.database)
        {
            return Err(DurabilityError::Foreign { file: file() }.into());
        }
        self.end.database = Some(header.database);
        let continues = self.continues(&header);
        if header.first != first || !continues {
            return Ok(self.worthless(Flaw::Order));
        }
        let version = header.version;
        let origin = |timestamp| Origin { timestamp, version };
        scan(bytes, &header, |timestamp, body| {
            let mut writes = false;
            for change in changes(body) {
                let result = match change {
                    Ok(change) => {
                        writes |= matches!(change, Change::Put { .. } | Change::Delete { .. });
                        replay.change(origin(timestamp), change)?
                    }
                    Err(flaw) => Err(flaw),
                };
                if result.is_err() {
                    return Ok(result);
                }
            }
            report.transactions += u64::from(writes && timestamp > self.snapshot);
            Ok(Ok(()))
        })
    }

    /// Whether the timestamps fit what came before (H2).
    fn continues(&self, header: &SegmentHeader) -> bool {
        // The first segment of the chain may begin anywhere before the snapshot.
        let least = self.end.closed.last().map_or(0, |closed| closed.through);
        (least..=self.end.last).contains(&header.after)
    }

    /// A segment of which nothing can be used.
    fn worthless(&self, flaw: Flaw) -> Scanned {
        Scanned {
            whole: 0,
            synced: 0,
            next: self.end.next,
            last: self.end.last,
            marked: false,
            broken: Some(Broken { flaw, damage: true }),
        }
    }

    /// Whether the log ends with this segment.
    fn ends_here(
        &self,
        name: &str,
        scanned: &Scanned,
        later: &[u64],
    ) -> Result<bool, DurabilityError> {
        if let Some(broken) = &scanned.broken
            && (broken.damage || !later.is_empty())
        {
            self.refuse(DurabilityError::Damaged {
                file: self.disk.describe(name),
                offset: scanned.whole as u64,
                flaw: broken.flaw,
            })?;
        }
        Ok(later.is_empty() || scanned.broken.is_some())
    }

    /// The error, unless everything is to be saved that can be.
    fn refuse(&self, error: DurabilityError) -> Result<(), DurabilityError> {
        match self.salvage {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Keeps segments behind damage, the last first (V2).
    fn set_aside(
        &self,
        segments: &[u64],
        report: &mut RecoveryReport,
    ) -> Result<(), DurabilityError> {
        let unneeded = segments.iter().rev().filter(|_| !self.read_only);
        for segment in unneeded {
            let aside = set_aside(self.disk, &segment_name(*segment))?;
            report.set_aside.push(aside);
        }
        Ok(())
    }

    /// Makes sure that the last segment has what was read of it, and no more: what may
    /// not be on disk is written again, where it is.
    fn settle(
        &mut self,
        name: &str,
        bytes: &[u8],
        scanned: &Scanned,
        report: &mut RecoveryReport,
    ) -> Result<(), DurabilityError> {
        if let Some(broken) = &scanned.broken {
            let end = Some(Cut {
                file: self.disk.describe(name),
                offset: scanned.whole as u64,
                bytes: (bytes.len() - scanned.whole) as u64,
                flaw: broken.flaw,
            });
            if self.read_only {
                report.torn = end;
                return Ok(());
            }
            report.cut = end;
            if broken.damage || !report.set_aside.is_empty() {
                let aside = format!("{name}{DAMAGED}");
                self.copy(&aside, bytes)?;
                report.set_aside.push(self.disk.describe(&aside));
            }
        }
        let without_batch = |closed: &Closed| closed.first == scanned.next;
        if self.end.closed.last().is_some_and(without_batch) {
            // The next segment takes the name.
            self.end.closed.pop();
        }
        if scanned.whole == 0 || self.read_only {
            return Ok(());
        }
        // The mark of a closed log, too: it is there, but its sync may have failed.
        let whole = &bytes[..scanned.whole];
        Ok(write_again(self.disk, name, scanned.synced, whole)?)
    }

    fn copy(&self, name: &str, bytes: &[u8]) -> Result<(), DurabilityError> {
        let written = Aside::begin(self.disk, name).and_then(|mut aside| {
            aside.append(bytes)?;
            aside.finish()
        });
        written.map(drop).map_err(DurabilityError::from)
    }
}

/// The error about batches that are not there.
fn missing(disk: &dyn Disk, from: u64, until: Option<u64>) -> DurabilityError {
    DurabilityError::Missing {
        directory: disk.describe(""),
        what: match until {
            Some(until) => format!("batches {from} to {}", until - 1),
            None => format!("everything from batch {from} on"),
        },
    }
}
