//! Tasks that a pool did not run before it stopped.

use std::sync::Arc;

use giveway_tier::Weight;

use crate::level::Level;
use crate::pool::station::Entry;
use crate::task::Task;

/// A task that a pool did not run before it stopped. [`run`](Self::run) runs it
/// here and now; dropping it tells its ticket that it was
/// [`NotRun`](crate::TaskError::NotRun).
#[must_use = "a dropped task is not run"]
pub struct Unrun {
    task: Arc<dyn Task>,
    level: Level,
    weight: Weight,
}

impl Unrun {
    pub(crate) fn new(entry: Entry, level: Level) -> Unrun {
        Unrun {
            task: entry.task,
            level,
            weight: entry.weight,
        }
    }

    /// The level that the task was submitted for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The weight that it was submitted with.
    pub fn weight(&self) -> Weight {
        self.weight
    }

    /// Runs the task on this thread, and tells its ticket. False if it was
    /// cancelled.
    pub fn run(self) -> bool {
        let runs = self.task.begin();
        if runs {
            self.task.run();
            self.task.finish();
        }
        runs
    }
}

impl Drop for Unrun {
    fn drop(&mut self) {
        self.task.give_up();
    }
}

impl std::fmt::Debug for Unrun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unrun")
            .field("level", &self.level)
            .field("weight", &self.weight)
            .finish_non_exhaustive()
    }
}
