//! Runs cells side by side and keeps their order.
//!
//! Workers take the next cell from a counter. A cell that fails does not stop
//! the others. An interrupted pool starts no further cell; those that run end
//! by themselves. Nothing here prints: an observer is told of each step.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Where cells run.
pub(super) trait Place<Cell, Answer>: Sync {
    /// Runs one cell to its end, telling `line` what it prints; the error is
    /// text for the user.
    fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Answer, String>;
}

/// Told what the pool does, from the workers' threads. Cells are known by
/// their position.
pub(super) trait Observer<Answer>: Sync {
    fn started(&self, cell: usize);
    fn line(&self, cell: usize, line: &str);
    fn ended(&self, cell: usize, answer: &Result<Answer, String>, took: Duration);
}

/// Runs every cell, at most `width` at a time; the answers are in the order of
/// the cells. `None`: not started, because `stop` was set.
pub(super) fn run_all<Cell: Sync, Answer: Send>(
    cells: &[Cell],
    place: &dyn Place<Cell, Answer>,
    width: usize,
    stop: &AtomicBool,
    observer: &dyn Observer<Answer>,
) -> Vec<Option<Result<Answer, String>>> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::from_iter(cells.iter().map(|_| None)));
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(index) else { break };
            let begun = Instant::now();
            observer.started(index);
            let answer = place.run(cell, &mut |line| observer.line(index, line));
            observer.ended(index, &answer, begun.elapsed());
            let mut answers = answers.lock().unwrap_or_else(|poison| poison.into_inner());
            answers[index] = Some(answer);
        }
    };
    thread::scope(|scope| {
        for _ in 0..width.clamp(1, cells.len().max(1)) {
            scope.spawn(worker);
        }
    });
    answers
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Answers with ten times the cell; fails on 3.
    struct Tens;

    impl Place<u32, u32> for Tens {
        fn run(&self, cell: &u32, line: &mut dyn FnMut(&str)) -> Result<u32, String> {
            line("working");
            match cell {
                3 => Err("three".to_owned()),
                _ => Ok(cell * 10),
            }
        }
    }

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl Observer<u32> for Log {
        fn started(&self, cell: usize) {
            self.0.lock().unwrap().push(format!("start {cell}"));
        }
        fn line(&self, cell: usize, line: &str) {
            self.0.lock().unwrap().push(format!("{line} {cell}"));
        }
        fn ended(&self, cell: usize, answer: &Result<u32, String>, _took: Duration) {
            self.0
                .lock()
                .unwrap()
                .push(format!("end {cell} {answer:?}"));
        }
    }

    #[test]
    fn a_failed_cell_does_not_stop_the_others_and_order_is_kept() {
        let stop = AtomicBool::new(false);
        let answers = run_all(&[1, 2, 3, 4, 5], &Tens, 2, &stop, &Log::default());
        let failed = Some(Err("three".to_owned()));
        assert_eq!(
            answers,
            [
                Some(Ok(10)),
                Some(Ok(20)),
                failed,
                Some(Ok(40)),
                Some(Ok(50))
            ]
        );
    }

    #[test]
    fn the_observer_hears_of_every_step() {
        let log = Log::default();
        run_all(&[3], &Tens, 4, &AtomicBool::new(false), &log);
        let heard = log.0.into_inner().unwrap();
        assert_eq!(heard, ["start 0", "working 0", "end 0 Err(\"three\")"]);
    }

    /// Ends only when two cells are inside at the same time.
    struct Meet(Barrier);

    impl Place<u32, u32> for Meet {
        fn run(&self, cell: &u32, _line: &mut dyn FnMut(&str)) -> Result<u32, String> {
            self.0.wait();
            Ok(*cell)
        }
    }

    #[test]
    fn as_many_cells_run_at_once_as_the_pool_is_wide() {
        let place = Meet(Barrier::new(2));
        let stop = AtomicBool::new(false);
        let answers = run_all(&[1, 2, 3, 4], &place, 2, &stop, &Log::default());
        assert!(answers.iter().all(Option::is_some));
    }

    /// Sets the flag in its first cell.
    struct Interrupted<'a>(&'a AtomicBool);

    impl Place<u32, u32> for Interrupted<'_> {
        fn run(&self, cell: &u32, _line: &mut dyn FnMut(&str)) -> Result<u32, String> {
            self.0.store(true, Ordering::Relaxed);
            Ok(*cell)
        }
    }

    #[test]
    fn an_interrupted_pool_starts_nothing_more() {
        let stop = AtomicBool::new(false);
        let answers = run_all(&[1, 2, 3], &Interrupted(&stop), 1, &stop, &Log::default());
        assert_eq!(answers, [Some(Ok(1)), None, None]);
    }
}
