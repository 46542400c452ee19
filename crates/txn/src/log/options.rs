//! What durability costs and promises: the choice.

use std::time::Duration;

/// When a commit returns, and what it survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Once it is on disk; survives the machine's failure. Commits that come
    /// while the disk is busy share the next sync.
    Always,
    /// As `Always`, but syncs begin at least this far apart, so that more
    /// commits share one, and each waits for up to as long.
    Group {
        /// Between the beginnings of two syncs.
        interval: Duration,
    },
    /// Once the operating system has it; survives the process's failure, not
    /// the machine's.
    Os,
}

impl SyncPolicy {
    /// Whether a commit waits for the disk.
    pub(crate) fn syncs(self) -> bool {
        self != SyncPolicy::Os
    }

    /// Between the beginnings of two rounds.
    pub(crate) fn interval(self) -> Duration {
        match self {
            SyncPolicy::Group { interval } => interval,
            SyncPolicy::Always | SyncPolicy::Os => Duration::ZERO,
        }
    }
}

/// How a database with files keeps them.
#[derive(Clone, Debug)]
pub struct DurabilityOptions {
    pub(crate) sync: SyncPolicy,
    pub(crate) segment_bytes: u64,
    pub(crate) backlog_bytes_max: u64,
    pub(crate) checkpoint_bytes: Option<u64>,
    pub(crate) reads_wait: bool,
    pub(crate) salvage: bool,
    pub(crate) read_only: bool,
}

impl Default for DurabilityOptions {
    fn default() -> DurabilityOptions {
        DurabilityOptions {
            sync: SyncPolicy::Always,
            segment_bytes: 64 << 20,
            backlog_bytes_max: 256 << 20,
            checkpoint_bytes: Some(1 << 30),
            reads_wait: true,
            salvage: false,
            read_only: false,
        }
    }
}

impl DurabilityOptions {
    /// [`SyncPolicy::Always`], segments of 64 MiB, a backlog of at most 256 MiB,
    /// a checkpoint per GiB of log.
    pub fn new() -> DurabilityOptions {
        DurabilityOptions::default()
    }

    /// When a commit returns.
    pub fn sync(mut self, policy: SyncPolicy) -> Self {
        self.sync = policy;
        self
    }

    /// Bytes after which the log goes on in a new file, for which as many are reserved on
    /// the disk, and a few more. At the least 4096, which
    /// smaller numbers mean as well. Truncation removes whole ones.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.max(4096);
        self
    }

    /// Bytes of committed transactions that may wait to be written. Beyond them
    /// commits wait for the disk before they begin.
    pub fn backlog_bytes_max(mut self, bytes: u64) -> Self {
        self.backlog_bytes_max = bytes;
        self
    }

    /// Bytes of log after which a checkpoint is made in the background; `None`
    /// for none but those that are asked for. At the least 4096, which smaller numbers
    /// mean as well.
    pub fn checkpoint_bytes(mut self, bytes: Option<u64>) -> Self {
        self.checkpoint_bytes = bytes.map(|bytes| bytes.max(4096));
        self
    }

    /// Whether the commit of a transaction that wrote nothing waits until all
    /// that it could see is durable. Without, it may have seen, and told others,
    /// what a crash then takes back. After a failure of the log nothing more becomes
    /// durable: who reads what is in doubt gets
    /// [`ReadInDoubt`](crate::DurabilityError::ReadInDoubt), who reads other rows does
    /// not.
    pub fn reads_wait(mut self, wait: bool) -> Self {
        self.reads_wait = wait;
        self
    }

    /// Opens a damaged database with what was committed before the damage. What
    /// follows is set aside under names that end in `.damaged`.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// Opens a database that is there and writes nothing into its directory, which may be
    /// on a file system that is mounted read-only. Others may do the same at once, and
    /// nobody may open it for writing meanwhile. Transactions that write, changes of the
    /// schema and checkpoints are refused with
    /// [`OpenedReadOnly`](crate::DurabilityError::OpenedReadOnly). What opening would
    /// repair is left as it is, and told in the
    /// [`RecoveryReport`](crate::RecoveryReport). The other options have no meaning, but
    /// for [`salvage`](Self::salvage), which shows what it would keep.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_have_some_log_between_them() {
        for bytes in [0, 1, 7, 4095, 4096] {
            let options = DurabilityOptions::new().checkpoint_bytes(Some(bytes));
            assert_eq!(options.checkpoint_bytes, Some(4096));
        }
        let options = DurabilityOptions::new().checkpoint_bytes(None);
        assert_eq!(options.checkpoint_bytes, None);
    }
}
