//! The workers of a cluster: which of them answer.
//!
//! ```text
//!            greeted every second: no answer, or another version
//!  ANSWERS ──────────────────────────────────────────────────────▶ LEFT OUT, with the reason
//!     ▲      a query's call fails                                       │
//!     └──────────────── greeted every second: an answer ────────────────┘
//! ```
//!
//! Queries are planned for those that answer. One that stops to answer fails the queries
//! that it works for; the next ones are planned without it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;

use super::peers::{Login, Peers};
use crate::error::SqlError;

/// How often workers are greeted.
const GREETED_EVERY: Duration = Duration::from_secs(1);
/// How large the files of a part are, by default, bytes.
const PART_BYTES: u64 = 16 << 20;

/// What a cluster is made of.
#[derive(Clone)]
pub struct ClusterSettings {
    /// HOST:PORT of each worker.
    workers: Vec<String>,
    login: Login,
    part_bytes: u64,
    notice: Option<Notice>,
}

/// Is told when a worker is left out or comes back.
type Notice = Arc<dyn Fn(&str) + Send + Sync>;

impl ClusterSettings {
    /// These workers, as HOST:PORT.
    pub fn new(workers: impl IntoIterator<Item = String>) -> ClusterSettings {
        ClusterSettings {
            workers: workers.into_iter().collect(),
            login: Login::default(),
            part_bytes: PART_BYTES,
            notice: None,
        }
    }

    /// What to log in with at workers that ask for a password.
    pub fn password(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Login {
            user: user.into(),
            password: Some(password.into()),
        };
        self
    }

    /// How large the files are at most that one worker reads for a query, bytes, as long
    /// as there are further workers; 16 MiB by default. A query whose files are smaller is
    /// run by the coordinator itself.
    pub fn part_bytes(mut self, bytes: u64) -> Self {
        self.part_bytes = bytes.max(1);
        self
    }

    /// Is told when a worker is left out or comes back.
    pub fn notice(mut self, notice: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.notice = Some(Arc::new(notice));
        self
    }
}

impl fmt::Debug for ClusterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSettings")
            .field("workers", &self.workers)
            .field("part_bytes", &self.part_bytes)
            .finish_non_exhaustive()
    }
}

/// A worker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// HOST:PORT.
    pub address: String,
    /// Why it is left out, if it is.
    pub left_out: Option<String>,
}

/// The workers, and the connections to them. Clones are one.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    peers: Peers,
    part_bytes: u64,
    notice: Option<Notice>,
    /// Why each is left out, if it is.
    workers: Mutex<BTreeMap<String, Option<String>>>,
    /// Which worker gets the first part of the next query.
    turn: AtomicUsize,
    /// Whether all have been greeted once.
    is_greeted: watch::Sender<bool>,
}

impl Cluster {
    /// Begins to greet the workers.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn start(settings: &ClusterSettings) -> io::Result<Cluster> {
        let unknown = |worker: &String| (worker.clone(), Some("not asked yet".to_owned()));
        let inner = Arc::new(Inner {
            peers: Peers::start(settings.login.clone())?,
            part_bytes: settings.part_bytes,
            notice: settings.notice.clone(),
            workers: Mutex::new(settings.workers.iter().map(unknown).collect()),
            turn: AtomicUsize::new(0),
            is_greeted: watch::Sender::new(false),
        });
        let greeting = Arc::downgrade(&inner);
        inner.peers.spawn(async move {
            while let Some(inner) = greeting.upgrade() {
                Cluster(inner).greet().await;
                tokio::time::sleep(GREETED_EVERY).await;
            }
        });
        Ok(Cluster(inner))
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.0.peers
    }

    /// How large the files of a part are at most, bytes.
    pub(super) fn part_bytes(&self) -> u64 {
        self.0.part_bytes
    }

    async fn greet(&self) {
        let workers: Vec<String> = crate::lock(&self.0.workers).keys().cloned().collect();
        join_all(workers.iter().map(|worker| async move {
            match self.0.peers.greet(worker).await {
                Ok(()) => self.set(worker, None),
                Err(why) => self.set(worker, Some(why)),
            }
        }))
        .await;
        self.0.is_greeted.send_replace(true);
    }

    /// Waits until all workers have been asked once.
    pub(crate) async fn greeted(&self) {
        let mut greeted = self.0.is_greeted.subscribe();
        // The sender is in this.
        let _ = greeted.wait_for(|is_greeted| *is_greeted).await;
    }

    fn set(&self, worker: &str, left_out: Option<String>) {
        let mut workers = crate::lock(&self.0.workers);
        let Some(state) = workers.get_mut(worker) else {
            return;
        };
        let is_new = state.is_some() != left_out.is_some();
        let said = match &left_out {
            Some(why) => format!("worker {worker} is left out: {why}"),
            None => format!("worker {worker} is there"),
        };
        *state = left_out;
        drop(workers);
        if let Some(notice) = &self.0.notice
            && is_new
        {
            notice(&said);
        }
    }

    /// Leaves out the worker that an error names, until it answers again.
    pub(super) fn blame(&self, error: &SqlError) {
        if let SqlError::WorkerLost { worker, why } = error {
            self.set(worker, Some(format!("it does not answer ({why})")));
        }
    }

    /// All workers.
    pub(crate) fn workers(&self) -> Vec<WorkerStatus> {
        let workers = crate::lock(&self.0.workers);
        (workers.iter())
            .map(|(address, left_out)| WorkerStatus {
                address: address.clone(),
                left_out: left_out.clone(),
            })
            .collect()
    }

    /// Those that answer.
    pub(super) fn answering(&self) -> Vec<String> {
        let workers = self.workers().into_iter();
        let answering = workers.filter(|worker| worker.left_out.is_none());
        answering.map(|worker| worker.address).collect()
    }

    /// Those that answer, beginning with another one each time.
    ///
    /// # Errors
    /// There is none; why.
    pub(super) fn next_workers(&self) -> Result<Vec<String>, SqlError> {
        let mut workers = self.answering();
        if workers.is_empty() {
            return Err(self.none_answers());
        }
        let first = self.0.turn.fetch_add(1, Relaxed) % workers.len();
        workers.rotate_left(first);
        Ok(workers)
    }

    /// Why nothing can be run.
    pub(super) fn none_answers(&self) -> SqlError {
        let workers = self.workers().into_iter();
        let reason = |worker: WorkerStatus| {
            let why = worker.left_out.unwrap_or_default();
            format!("{}: {why}", worker.address)
        };
        let reasons = workers.map(reason);
        SqlError::NoWorkers(reasons.collect::<Vec<_>>().join("; "))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("workers", &self.workers())
            .finish_non_exhaustive()
    }
}
