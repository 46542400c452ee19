//! A query's progress, and how long the tasks of its pipelines are.
//!
//! A pipeline's progress is that of its leaves: how much of a table, of files or of an
//! exchange has been taken. What a leaf cannot say (a series) is counted in streams that
//! have ended. Pipelines count as much as the rows that are expected to go into them, by
//! the planner's estimates; so the progress of a query never falls, and is as good as
//! these are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;

/// Something that is used up.
pub(crate) trait Gauge: Send + Sync {
    /// How much of it has been, 0 to 1.
    fn fraction(&self) -> f64;
}

/// A pipeline's account.
pub(crate) struct Stage {
    label: String,
    rows_expected: f64,
    streams: usize,
    ended: AtomicUsize,
    is_finished: AtomicBool,
    /// Until the query has ended: exchanges are among them, with the rows that they hold.
    gauges: Mutex<Vec<Arc<dyn Gauge>>>,
    pub(crate) overruns: Overruns,
    board: Arc<Board>,
}

impl Stage {
    pub(crate) fn new(
        label: String,
        rows_expected: f64,
        streams: usize,
        gauges: Vec<Arc<dyn Gauge>>,
        board: &Arc<Board>,
    ) -> Stage {
        Stage {
            label,
            rows_expected: rows_expected.max(1.0),
            streams,
            ended: AtomicUsize::new(0),
            is_finished: AtomicBool::new(false),
            gauges: Mutex::new(gauges),
            overruns: Overruns::default(),
            board: Arc::clone(board),
        }
    }

    pub(crate) fn stream_ended(&self) {
        self.ended.fetch_add(1, Relaxed);
    }

    pub(crate) fn finish(&self) {
        self.is_finished.store(true, Relaxed);
    }

    /// The query has ended: what it has read from is not held any more.
    pub(crate) fn release(&self) {
        let gauges = std::mem::take(&mut *crate::lock(&self.gauges));
        // Not under the lock: they may be large.
        drop(gauges);
    }

    fn fraction(&self) -> f64 {
        if self.is_finished.load(Relaxed) {
            return 1.0;
        }
        let streams = self.ended.load(Relaxed) as f64 / self.streams.max(1) as f64;
        let gauges = crate::lock(&self.gauges);
        let used: f64 = gauges.iter().map(|gauge| gauge.fraction()).sum();
        match gauges.len() {
            0 => streams,
            count => (used / count as f64).max(streams),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.board.add(&self.label, &self.overruns);
    }
}

/// How much of all this is done, 0 to 1.
pub(crate) fn progress(stages: &[Arc<Stage>]) -> f64 {
    let whole: f64 = stages.iter().map(|stage| stage.rows_expected).sum();
    let done: f64 = (stages.iter())
        .map(|stage| stage.rows_expected * stage.fraction())
        .sum();
    match whole > 0.0 {
        true => (done / whole).clamp(0.0, 1.0),
        false => 0.0,
    }
}

/// The upper ends of the classes of [`OperatorTurns::turns`], in tasks (t_max); the
/// last class has none.
pub const TURN_CLASSES: [f64; 7] = [0.5, 1.0, 1.5, 2.0, 4.0, 16.0, 64.0];

/// Turns by how long they were.
#[derive(Debug, Default)]
pub(crate) struct Overruns {
    turns: [AtomicU64; TURN_CLASSES.len() + 1],
    longest_ns: AtomicU64,
}

impl Overruns {
    pub(crate) fn count(&self, took: Duration, task_time: Duration) {
        let length = took.as_secs_f64() / task_time.as_secs_f64();
        let class = TURN_CLASSES.partition_point(|&end| end < length);
        self.turns[class].fetch_add(1, Relaxed);
        self.longest_ns.fetch_max(took.as_nanos() as u64, Relaxed);
    }
}

/// The lengths of the tasks of a kind of pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OperatorTurns {
    /// The operators, from the one that feeds the others to the one that is fed.
    pub operators: String,
    /// How many tasks were that long, by [`TURN_CLASSES`].
    pub turns: [u64; TURN_CLASSES.len() + 1],
    /// The longest, ns.
    pub longest_ns: u64,
}

/// The tasks of all pipelines that have ended, by their operators.
#[derive(Default)]
pub(crate) struct Board(Mutex<BTreeMap<String, OperatorTurns>>);

impl Board {
    fn add(&self, label: &str, overruns: &Overruns) {
        let mut board = crate::lock(&self.0);
        let entry = board
            .entry(label.to_owned())
            .or_insert_with(|| OperatorTurns {
                operators: label.to_owned(),
                ..OperatorTurns::default()
            });
        for (sum, count) in entry.turns.iter_mut().zip(&overruns.turns) {
            *sum += count.load(Relaxed);
        }
        entry.longest_ns = entry.longest_ns.max(overruns.longest_ns.load(Relaxed));
    }

    pub(crate) fn read(&self) -> Vec<OperatorTurns> {
        crate::lock(&self.0).values().cloned().collect()
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.read()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Half;

    impl Gauge for Half {
        fn fraction(&self) -> f64 {
            0.5
        }
    }

    #[test]
    fn progress_counts_rows_and_ends_at_one() {
        let board = Arc::new(Board::default());
        let half: Vec<Arc<dyn Gauge>> = vec![Arc::new(Half)];
        let long = Arc::new(Stage::new("scan".into(), 300.0, 4, half, &board));
        let short = Arc::new(Stage::new("sort".into(), 100.0, 2, Vec::new(), &board));
        let stages = [long, short];
        assert_eq!(progress(&stages), 150.0 / 400.0);
        stages[1].stream_ended();
        assert_eq!(progress(&stages), 200.0 / 400.0);
        stages.iter().for_each(|stage| stage.finish());
        assert_eq!(progress(&stages), 1.0);
        assert_eq!(progress(&[]), 0.0);
    }

    #[test]
    fn turns_are_counted_by_operators() {
        let board = Arc::new(Board::default());
        for _ in 0..2 {
            let stage = Stage::new("join".into(), 1.0, 1, Vec::new(), &board);
            let task_time = Duration::from_millis(2);
            stage.overruns.count(task_time, task_time);
            stage.overruns.count(200 * task_time, task_time);
        }
        let turns = board.read();
        assert_eq!(turns[0].turns, [0, 2, 0, 0, 0, 0, 0, 2]);
        assert_eq!(turns[0].longest_ns, 400_000_000);
    }
}
