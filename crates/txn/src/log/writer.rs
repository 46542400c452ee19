//! The thread that writes the log.
//!
//! It works in rounds. A round takes what is there, writes it in batches, syncs
//! once if the policy says so, and then says how far the log is durable. While it
//! syncs, the next round's work gathers: that is group commit, and it needs no
//! timer. The policy `Group` adds one, for disks on which a sync is dear.
//!
//! - **T1** What is acknowledged has been written, and synced if the policy says
//!   so, in an operation that succeeded. (Asserted in `round`.)
//! - **T2** The first operation that fails is the last. The thread says why,
//!   and ends; nothing is written again to a file in an unknown state (D3). (Asserted
//!   as W2.)

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::error::Failure;
use super::format::BATCH_HEADER;
use super::options::DurabilityOptions;
use super::segment::Segment;
use super::shared::Shared;
use super::slots::Gathered;

/// Bytes after which a batch is written. One record may make it longer.
const BATCH_BYTES: usize = if cfg!(test) { 100 } else { 1 << 20 };
/// Bytes to reserve for a segment (G5): a batch that is not longer than two may begin just
/// before its end.
pub(super) fn segment_room(options: &DurabilityOptions) -> u64 {
    options.segment_bytes.saturating_add(2 * BATCH_BYTES as u64)
}

/// How long to leave a thread that has drawn a timestamp and not yet appended.
const STRAGGLER: Duration = Duration::from_micros(20);

/// The log's writer.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    gathered: Gathered,
    output: Output,
    /// When the last round that wrote something began.
    round: Option<Instant>,
}

impl Writer {
    /// A writer that goes on in this segment, which has no transactions yet.
    pub(crate) fn new(shared: Arc<Shared>, segment: Segment) -> Writer {
        Writer {
            gathered: Gathered::new(shared.frontier.reached()),
            output: Output::new(Arc::clone(&shared), segment),
            shared,
            round: None,
        }
    }

    /// Writes until the log is stopped or fails.
    pub(crate) fn run(mut self) {
        let result = catch_unwind(AssertUnwindSafe(|| self.rounds()));
        let failure = match result {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(panic) => Failure {
                doing: "writing",
                file: "the log".to_owned(),
                source: std::io::Error::other(format!("the writer panicked: {}", text(&*panic))),
            },
        };
        // T2.
        self.shared.frontier.fail(failure);
    }

    fn rounds(&mut self) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        loop {
            let stop = shared.stop.load(Ordering::SeqCst);
            self.round()?;
            if !self.gathered.is_empty() {
                std::thread::sleep(STRAGGLER);
            } else if stop {
                return self.output.segment.close();
            } else {
                shared.doorbell.idle(|| shared.has_work());
                self.pause();
            }
        }
    }

    /// Lets work gather, if the policy says so.
    fn pause(&self) {
        let interval = self.shared.options.sync.interval();
        if let Some(round) = self.round
            && round.elapsed() < interval
        {
            let urgent = || self.shared.is_urgent();
            // A moment that no clock can show never comes.
            let until = round.checked_add(interval);
            self.shared.doorbell.pause(until, urgent);
        }
    }

    fn round(&mut self) -> Result<(), Failure> {
        let shared = &self.shared;
        let began = Instant::now();
        shared.urgent.store(false, Ordering::SeqCst);
        self.gathered.gather(&shared.slots);
        let batches = self.output.batches;
        let add = |timestamp, record: &[u8]| self.output.add(timestamp, record);
        let reached = self.gathered.drain(&shared.slots, add)?;
        self.output.write()?;
        if self.output.batches > batches {
            self.round = Some(began);
            if shared.options.sync.syncs() {
                self.output.sync()?;
            }
        }
        debug_assert!(self.output.is_written(shared.options.sync.syncs()), "T1");
        shared.frontier.advance(reached);
        Ok(())
    }
}

/// Records on their way into the segment.
struct Output {
    shared: Arc<Shared>,
    segment: Segment,
    /// Room for a batch's header, then its records so far.
    batch: Vec<u8>,
    /// The timestamp of the last record.
    last: u64,
    /// Batches written so far.
    batches: u64,
}

impl Output {
    fn new(shared: Arc<Shared>, segment: Segment) -> Output {
        Output {
            shared,
            batch: vec![0; BATCH_HEADER],
            last: segment.last(),
            segment,
            batches: 0,
        }
    }

    /// Adds a record to the batch, which is written once it is long enough.
    fn add(&mut self, timestamp: u64, record: &[u8]) -> Result<(), Failure> {
        self.batch.extend_from_slice(record);
        self.last = timestamp;
        self.shared.counters.record();
        match self.batch.len() >= BATCH_BYTES {
            true => self.write(),
            false => Ok(()),
        }
    }

    /// Writes the batch, if there is anything in it.
    fn write(&mut self) -> Result<(), Failure> {
        if self.batch.len() == BATCH_HEADER {
            return Ok(());
        }
        if self.segment.bytes() >= self.shared.options.segment_bytes {
            let closed = self.segment.rotate()?;
            let mut files = self.shared.files.lock();
            files.closed.push(closed);
            files.current = self.segment.first();
        }
        self.segment.append(&mut self.batch, self.last)?;
        self.batches += 1;
        let bytes = self.batch.len() as u64;
        self.shared.counters.batch(self.segment.bytes());
        self.shared.alarm.add(bytes);
        // One long record should not hold its memory for ever.
        self.batch.truncate(BATCH_HEADER);
        self.batch.shrink_to(2 * BATCH_BYTES);
        Ok(())
    }

    /// Whether all records are in the segment, and synced if asked. For assertions.
    fn is_written(&self, synced: bool) -> bool {
        self.batch.len() == BATCH_HEADER && (!synced || self.segment.is_synced())
    }

    fn sync(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        self.segment.sync()?;
        self.shared.counters.sync(began.elapsed());
        Ok(())
    }
}

/// What a panic says, as far as it is text.
pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("something that is no text")
}
