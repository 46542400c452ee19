//! The CPU time of each row in the intervals shown last, as a line of bars on screens wider
//! than 80 columns.
//!
//! ```text
//!   ▁▁▂▄▆███▆▂    the newest interval is the rightmost bar
//!   ▲         ▲
//!   above 0   what fills it: one CPU for threads, CPUs and processes, else every CPU
//! ```
//!
//! A process may use more than a CPU; its bar is then full. What a row did is known from when
//! it is there, of processes while they are shown. One that is gone is forgotten.

use std::collections::{BTreeMap, VecDeque};

use super::model::{Interval, Wanted};
use super::row::{Row, View};

/// How many intervals are remembered.
pub const LENGTH: usize = 60;

/// From the lowest bar to the highest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Parts of what fills a bar, the oldest first.
type Parts = VecDeque<f64>;

/// What rows did lately, by view and key (`key`).
#[derive(Clone, Debug, Default)]
pub struct History {
    rows: [BTreeMap<Key, Parts>; View::ALL.len()],
}

/// Which row of its view: its number, of a process its start, and its name where it has no
/// number.
type Key = (Option<u64>, Option<u64>, String);

/// A thread's title may change, and the number of a process be another's.
fn key(row: &Row) -> Key {
    let started = row.proc().map(|proc| proc.started);
    match row.id {
        Some(id) => (Some(id), started, String::new()),
        None => (None, started, row.name.clone()),
    }
}

/// How many CPUs fill a bar of a view.
pub fn full(view: View, interval: &Interval) -> u64 {
    match view {
        View::Tiers | View::Cgroups => interval.now().nr_cpus.max(1),
        View::Backends | View::Cpus | View::Processes => 1,
    }
}

impl History {
    /// Remembers an interval.
    pub fn push(&mut self, interval: &Interval) {
        let everything = Wanted {
            idle: true,
            ..Wanted::default()
        };
        for (rows, view) in self.rows.iter_mut().zip(View::ALL) {
            let all_ns = interval.length.as_nanos() as f64 * full(view, interval) as f64;
            let mut old = std::mem::take(rows);
            for row in interval.rows(view, &everything) {
                let mut parts = old.remove(&key(&row)).unwrap_or_default();
                if parts.len() == LENGTH {
                    parts.pop_front();
                }
                parts.push_back(row.run_ns as f64 / all_ns.max(1.0));
                rows.insert(key(&row), parts);
            }
        }
    }

    /// A row's latest intervals in `width` characters, the newest at the right.
    pub fn bars(&self, view: View, row: &Row, width: usize) -> String {
        let of_view = View::ALL.iter().position(|&one| one == view);
        let rows = &self.rows[of_view.expect("all views are there")];
        let parts = rows.get(&key(row));
        let bars = parts.into_iter().flatten().rev().take(width).copied();
        let bars: Vec<char> = bars.map(bar).collect();
        let blank = width - bars.len();
        let blank = std::iter::repeat_n(' ', blank);
        blank.chain(bars.into_iter().rev()).collect()
    }
}

/// A bar. Whatever is above 0 is seen.
fn bar(part: f64) -> char {
    if part <= 0.0 {
        return ' ';
    }
    let top = BARS.len() - 1;
    BARS[((part * BARS.len() as f64).ceil() as usize).clamp(1, top + 1) - 1]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sample::Sample;
    use crate::top::model::tests::{interval, sample};
    use crate::top::row::Rest;

    fn row(interval: &Interval, view: View) -> Row {
        interval.rows(view, &Wanted::default()).remove(0)
    }

    #[test]
    fn bars_rise_with_the_part_that_is_used() {
        let bars: String = [0.0, 0.001, 0.125, 0.126, 0.5, 0.51, 0.99, 1.0, 1.7]
            .map(bar)
            .iter()
            .collect();
        assert_eq!(bars, " ▁▁▂▄▅███");
    }

    #[test]
    fn newest_interval_is_at_the_right_and_the_oldest_goes() {
        let mut history = History::default();
        let interval = interval();
        let cpu = row(&interval, View::Cpus);
        assert_eq!(history.bars(View::Cpus, &cpu, 4), "    ");
        history.push(&interval);
        // 900 ms of a second of one CPU; the tier's are 900 ms of two.
        assert_eq!(history.bars(View::Cpus, &cpu, 4), "   █");
        let tier = row(&interval, View::Tiers);
        assert_eq!(history.bars(View::Tiers, &tier, 4), "   ▄");
        let idle = Interval::new(sample(), sample(), Duration::from_secs(1), |_| None);
        history.push(&idle);
        assert_eq!(history.bars(View::Cpus, &cpu, 4), "  █ ");
        assert_eq!(history.bars(View::Cpus, &cpu, 1), " ");
        for _ in 0..LENGTH {
            history.push(&interval);
        }
        assert_eq!(
            history.bars(View::Cpus, &cpu, LENGTH + 2).trim(),
            "█".repeat(LENGTH)
        );
    }

    #[test]
    fn another_process_does_not_inherit_the_bars_of_its_number() {
        let interval = interval();
        let mut history = History::default();
        history.push(&interval);
        let process = row(&interval, View::Processes);
        // 1.5 CPUs, of one that fills a bar.
        assert_eq!(history.bars(View::Processes, &process, 3), "  █");
        let mut other = process.clone();
        let Rest::Proc(of_proc) = &mut other.rest else {
            panic!("{other:?}");
        };
        of_proc.started += 1;
        assert_eq!(history.bars(View::Processes, &other, 3), "   ");
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut history = History::default();
        let interval = interval();
        let thread = row(&interval, View::Backends);
        history.push(&interval);
        let none = Interval::new(sample(), Sample::default(), Duration::from_secs(1), |_| {
            None
        });
        history.push(&none);
        assert_eq!(history.bars(View::Backends, &thread, 3), "   ");
    }
}
