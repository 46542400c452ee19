//! Where committing transactions leave their records, and in which order the
//! writer takes them.
//!
//! There are many slots, so that committing threads do not meet: a context has
//! one of its own as long as there are no more contexts than slots. A
//! transaction draws its timestamp, becomes certain to commit, appends its
//! record to the slot, and becomes visible, all in one non-preemptible region.
//! Timestamps are dense: each that is drawn is either appended or skipped. So
//! the writer needs no agreement with other threads to put the records of all slots
//! into the order of their timestamps: it goes on as long as the next one is
//! there.
//!
//! ```text
//! slot 0   11 ─ 14 ─ 15 ─ 19          the writer has written up to 10:
//! slot 1   12 ─ 18                    it takes 11, 12, 13, 14, 15
//! slot 2   13 ─ 17 ─ 20               and waits for 16, which was drawn
//! ```
//!
//! - **S1** A slot has *runs*, in each of which timestamps rise. A record goes to
//!   the end of the last run, or begins a new one if that is full or ahead. (Asserted
//!   in `drain`.)
//! - **S2** A transaction is visible only after its record was appended. So a
//!   transaction that depends on it has a later timestamp, and every prefix of the
//!   log is a state that transactions could have seen. (Not asserted:
//!   `commit::decide` appends before it commits; `tests/crash.rs`.)
//! - **S3** A slot is locked inside a region only, for as long as it takes to
//!   copy a record. No thread waits for a paused context. (Asserted in
//!   `Durable::append`.)
//!
//! Known weakness: a thread that the operating system stops between drawing and
//! appending holds back all later records, and their acknowledgements, until it
//! goes on.

use std::cell::Cell;
use std::cmp::Ordering as Order;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use giveway_locks::Mutex;

use super::format::{RECORD_HEADER, peek_record, seal_record};

/// Contexts that do not meet.
const SLOTS: usize = 64;
/// Bytes after which a run is full. Copying a growing run costs nobody much.
const RUN_BYTES: usize = 64 << 10;

/// The slots of a log.
pub(crate) struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    /// Bytes appended and not yet written.
    backlog: AtomicU64,
}

/// Its context writes it for every commit.
struct Slot {
    /// What the writer has not taken.
    runs: Mutex<Vec<Run>>,
}

/// Records in the order of their timestamps (S1).
struct Run {
    bytes: Vec<u8>,
    /// The timestamp of the last record.
    last: u64,
}

thread_local! {
    /// This context's slot.
    static MINE: Cell<Option<usize>> = const { Cell::new(None) };
}

fn mine() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    MINE.get().unwrap_or_else(|| {
        let new = NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS;
        MINE.set(Some(new));
        new
    })
}

impl Slots {
    /// Empty slots.
    pub(crate) fn new() -> Slots {
        let slot = |_| {
            CachePadded::new(Slot {
                runs: Mutex::new(Vec::new()),
            })
        };
        Slots {
            slots: (0..SLOTS).map(slot).collect(),
            backlog: AtomicU64::new(0),
        }
    }

    /// Appends a transaction's record, whose body `encode` adds to the buffer.
    /// An empty body says that nobody commits with this timestamp. The caller is
    /// in a region (S3).
    pub(crate) fn append(&self, timestamp: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut runs = self.slots[mine()].runs.lock();
        let open = |run: &Run| run.last < timestamp && run.bytes.len() < RUN_BYTES;
        if !runs.last().is_some_and(open) {
            runs.push(Run {
                bytes: Vec::new(),
                last: 0,
            });
        }
        let run = runs.last_mut().expect("there is one now");
        let start = run.bytes.len();
        run.bytes.extend_from_slice(&[0; RECORD_HEADER]);
        encode(&mut run.bytes);
        seal_record(&mut run.bytes[start..], timestamp);
        run.last = timestamp;
        let bytes = (run.bytes.len() - start) as u64;
        // B1.
        self.backlog.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Bytes that wait to be written.
    pub(crate) fn backlog(&self) -> u64 {
        self.backlog.load(Ordering::SeqCst)
    }
}

/// The writer's side: records taken from the slots, and not yet written.
pub(crate) struct Gathered {
    /// The run with the earliest record is on top.
    runs: BinaryHeap<Taken>,
    /// The timestamp that comes next.
    next: u64,
}

/// A run of which the writer is done with everything before `at`.
struct Taken {
    head: u64,
    bytes: Vec<u8>,
    at: usize,
}

impl Gathered {
    /// Nothing yet; timestamps up to `last` are no concern of this log.
    pub(crate) fn new(last: u64) -> Gathered {
        Gathered {
            runs: BinaryHeap::new(),
            next: last + 1,
        }
    }

    /// Takes what the slots have.
    pub(crate) fn gather(&mut self, slots: &Slots) {
        for slot in &slots.slots {
            let taken = std::mem::take(&mut *slot.runs.lock());
            self.runs.extend(taken.into_iter().map(|run| {
                let (head, _) = peek_record(&run.bytes).expect("a run has a record");
                Taken {
                    head,
                    bytes: run.bytes,
                    at: 0,
                }
            }));
        }
    }

    /// Calls `each` with every record whose turn it is, in order, and forgets
    /// them. The timestamp up to which everybody is accounted for.
    ///
    /// # Errors
    /// The first of `each`.
    pub(crate) fn drain<E>(
        &mut self,
        slots: &Slots,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        while let Some(mut run) = self.runs.pop() {
            assert!(run.head >= self.next, "timestamp {} came twice", run.head);
            if run.head > self.next {
                self.runs.push(run);
                break;
            }
            let rest = &run.bytes[run.at..];
            let (timestamp, length) = peek_record(rest).expect("records are whole");
            if length > RECORD_HEADER {
                each(timestamp, &rest[..length])?;
            }
            slots.backlog.fetch_sub(length as u64, Ordering::Relaxed);
            self.next += 1;
            run.at += length;
            if let Some((head, _)) = peek_record(&run.bytes[run.at..]) {
                debug_assert!(head > timestamp, "S1");
                run.head = head;
                self.runs.push(run);
            }
        }
        Ok(self.next - 1)
    }

    /// Whether everything that was taken has been drained.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

impl Ord for Taken {
    /// The greatest is the earliest.
    fn cmp(&self, other: &Taken) -> Order {
        other.head.cmp(&self.head)
    }
}

impl PartialOrd for Taken {
    fn partial_cmp(&self, other: &Taken) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Taken {
    fn eq(&self, other: &Taken) -> bool {
        self.head == other.head
    }
}

impl Eq for Taken {}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(gathered: &mut Gathered, slots: &Slots) -> (Vec<u64>, u64) {
        gathered.gather(slots);
        let mut seen = Vec::new();
        let each = |timestamp, bytes: &[u8]| {
            assert_eq!(peek_record(bytes), Some((timestamp, bytes.len())));
            seen.push(timestamp);
            Ok::<_, ()>(())
        };
        let frontier = gathered.drain(slots, each).unwrap();
        (seen, frontier)
    }

    #[test]
    fn a_missing_timestamp_holds_back_the_later_ones_and_a_skipped_one_does_not() {
        let slots = Slots::new();
        let mut gathered = Gathered::new(10);
        let append = |timestamp| slots.append(timestamp, |buffer| buffer.push(1));
        append(12);
        append(14);
        assert_eq!(drained(&mut gathered, &slots), (vec![], 10));
        // Behind a later one, so in a run of its own (S1).
        append(11);
        assert_eq!(drained(&mut gathered, &slots), (vec![11, 12], 12));
        slots.append(13, |_| {});
        assert_eq!(drained(&mut gathered, &slots), (vec![14], 14));
        assert!(gathered.is_empty());
        assert_eq!(slots.backlog(), 0);
    }

    #[test]
    fn records_of_many_threads_come_in_the_order_of_timestamps_and_none_is_lost() {
        const THREADS: usize = 8;
        const EACH: usize = 2_000;
        let slots = Slots::new();
        let clock = AtomicU64::new(0);
        let done = AtomicUsize::new(0);
        let mut gathered = Gathered::new(0);
        let (mut seen, mut skipped) = (Vec::new(), 0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..EACH {
                        let timestamp = clock.fetch_add(1, Ordering::SeqCst) + 1;
                        if round % 7 == 0 {
                            // Time for others to overtake.
                            std::thread::yield_now();
                        }
                        let length = match timestamp {
                            _ if timestamp.is_multiple_of(10) => 0,
                            // Now and then one that fills a run.
                            _ if timestamp.is_multiple_of(97) => RUN_BYTES + 1,
                            _ => 9,
                        };
                        slots.append(timestamp, |buffer| buffer.resize(buffer.len() + length, 7));
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            loop {
                let last_look = done.load(Ordering::SeqCst) == THREADS;
                let before = seen.len();
                let (more, frontier) = drained(&mut gathered, &slots);
                seen.extend(more);
                skipped = frontier - seen.len() as u64;
                assert!(seen.len() >= before && seen.last().is_none_or(|last| *last <= frontier));
                if last_look {
                    break;
                }
            }
        });
        let all = 1..=(THREADS * EACH) as u64;
        assert!(all.clone().filter(|ts| ts % 10 != 0).eq(seen));
        assert_eq!(skipped, all.end() / 10);
        assert_eq!(slots.backlog(), 0);
    }
}
