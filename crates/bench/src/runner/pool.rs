//! Runs cells side by side.
//!
//! Workers take the next cell from a counter. A cell that fails does not stop
//! the others. An interrupted pool starts no further cell; those that run end
//! by themselves. Nothing here prints or keeps: an observer is told of each step
//! and given each answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Runs cells: on this machine, or each in a guest.
pub(crate) trait Executor<Cell, Answer>: Sync {
    /// Runs one cell to its end, telling `line` what it prints; the error is
    /// text for the user.
    fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Answer, String>;
}

/// Told what the pool does, from the workers' threads. Cells are known by
/// their position.
pub(crate) trait Observer<Answer>: Sync {
    fn started(&self, cell: usize);
    fn line(&self, cell: usize, line: &str);
    fn ended(&self, cell: usize, answer: Result<Answer, String>, took: Duration);
}

/// Runs every cell, at most `width` at a time; none that has not been started
/// once `stop` is set.
pub(crate) fn run_all<Cell: Sync, Answer>(
    cells: &[Cell],
    executor: &dyn Executor<Cell, Answer>,
    width: usize,
    stop: &AtomicBool,
    observer: &dyn Observer<Answer>,
) {
    let next = AtomicUsize::new(0);
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(index) else { break };
            let begun = Instant::now();
            observer.started(index);
            let answer = executor.run(cell, &mut |line| observer.line(index, line));
            observer.ended(index, answer, begun.elapsed());
        }
    };
    thread::scope(|scope| {
        for _ in 0..width.clamp(1, cells.len().max(1)) {
            scope.spawn(worker);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Barrier, Mutex};

    /// Answers with ten times the cell; fails on 3.
    struct Tens;

    impl Executor<u32, u32> for Tens {
        fn run(&self, cell: &u32, line: &mut dyn FnMut(&str)) -> Result<u32, String> {
            line("working");
            match cell {
                3 => Err("three".to_owned()),
                _ => Ok(cell * 10),
            }
        }
    }

    #[derive(Default)]
    struct Log {
        heard: Mutex<Vec<String>>,
        answers: Mutex<BTreeMap<usize, Result<u32, String>>>,
    }

    impl Log {
        fn hear(&self, text: String) {
            self.heard.lock().unwrap().push(text);
        }
    }

    impl Observer<u32> for Log {
        fn started(&self, cell: usize) {
            self.hear(format!("start {cell}"));
        }
        fn line(&self, cell: usize, line: &str) {
            self.hear(format!("{line} {cell}"));
        }
        fn ended(&self, cell: usize, answer: Result<u32, String>, _took: Duration) {
            self.hear(format!("end {cell}"));
            let before = self.answers.lock().unwrap().insert(cell, answer);
            assert_eq!(before, None, "a cell ends once");
        }
    }

    /// What cells answered, by their position.
    fn answers(
        cells: &[u32],
        executor: &dyn Executor<u32, u32>,
        width: usize,
        stop: &AtomicBool,
    ) -> BTreeMap<usize, Result<u32, String>> {
        let log = Log::default();
        run_all(cells, executor, width, stop, &log);
        log.answers.into_inner().unwrap()
    }

    #[test]
    fn a_failed_cell_does_not_stop_the_others() {
        let stop = AtomicBool::new(false);
        let expected = [Ok(10), Ok(20), Err("three".to_owned()), Ok(40), Ok(50)];
        assert_eq!(
            answers(&[1, 2, 3, 4, 5], &Tens, 2, &stop),
            BTreeMap::from_iter(expected.into_iter().enumerate())
        );
    }

    #[test]
    fn the_observer_hears_of_every_step() {
        let log = Log::default();
        run_all(&[3], &Tens, 4, &AtomicBool::new(false), &log);
        let heard = log.heard.into_inner().unwrap();
        assert_eq!(heard, ["start 0", "working 0", "end 0"]);
    }

    /// Ends only when two cells are inside at the same time.
    struct Meet(Barrier);

    impl Executor<u32, u32> for Meet {
        fn run(&self, cell: &u32, _line: &mut dyn FnMut(&str)) -> Result<u32, String> {
            self.0.wait();
            Ok(*cell)
        }
    }

    #[test]
    fn as_many_cells_run_at_once_as_the_pool_is_wide() {
        let executor = Meet(Barrier::new(2));
        let stop = AtomicBool::new(false);
        assert_eq!(answers(&[1, 2, 3, 4], &executor, 2, &stop).len(), 4);
    }

    /// Sets the flag in its first cell.
    struct Interrupted<'a>(&'a AtomicBool);

    impl Executor<u32, u32> for Interrupted<'_> {
        fn run(&self, cell: &u32, _line: &mut dyn FnMut(&str)) -> Result<u32, String> {
            self.0.store(true, Ordering::Relaxed);
            Ok(*cell)
        }
    }

    #[test]
    fn an_interrupted_pool_starts_nothing_more() {
        let stop = AtomicBool::new(false);
        let answers = answers(&[1, 2, 3], &Interrupted(&stop), 1, &stop);
        assert_eq!(answers, BTreeMap::from([(0, Ok(1))]));
    }
}
