//! How a cell is set up beyond its scheduler: who says what is urgent, which
//! server runs, what the scheduler learns of its locks, on which disk its files are,
//! and which work is in the background.
//!
//! Each is a word of the command line and of result files. The first of each
//! list is what older results were measured with, and is not written to new
//! ones.

use crate::harness::words::words;

words! {
    /// Who tells the scheduler which of the server's work is urgent.
    pub(crate) By ("way to set priorities") {
        /// Cgroups and scheduling classes, a backend in each by hand: see
        /// `cell::policy`.
        #[default]
        Cgroups = "cgroups",
        /// `ALTER ROLE ... SET giveway.tier` and nothing else: see
        /// `cell::roles`.
        Roles = "roles",
    }
}

words! {
    /// Which server is measured.
    pub(crate) Build ("server") {
        /// The newest that is installed.
        #[default]
        Installed = "installed",
        /// One built for the lab, without changes, with the extension.
        Stock = "stock",
        /// The same with the patch that publishes locks.
        Patched = "patched",
    }
}

words! {
    /// What the scheduler is told of lightweight locks and spinlocks: the
    /// setting `giveway.hints`.
    pub(crate) Hints ("kind of hints") {
        /// Nothing.
        #[default]
        Off = "off",
        /// What it reads from an unchanged server's memory.
        Stock = "stock",
        /// What the patch publishes.
        Patched = "patched",
    }
}

words! {
    /// Where the server's files are.
    pub(crate) Disk ("disk") {
        /// In memory, so that storage plays no part.
        #[default]
        Memory = "memory",
        /// On a disk without a scheduler: see `cell::disk`.
        None = "none",
        /// On the same disk, under mq-deadline.
        MqDeadline = "mq-deadline",
        /// On the same disk, under BFQ.
        Bfq = "bfq",
    }
}

impl Hints {
    /// The server that these hints take.
    pub(crate) fn build(self) -> Build {
        match self {
            Hints::Off | Hints::Stock => Build::Stock,
            Hints::Patched => Build::Patched,
        }
    }

    /// Whether there are any.
    pub(crate) const fn are_on(self) -> bool {
        !matches!(self, Hints::Off)
    }
}
