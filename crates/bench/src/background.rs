//! The CPU-bound work: connections that each run Q17 in a loop inside the
//! server, and the count of what they finished inside the window.
//!
//! The server sends a notice after each query and never waits for an answer, so
//! a worker stays CPU-bound. One client thread stamps the notices of all
//! workers. A window is short compared with one query of a starved worker, so
//! progress is taken as linear between two notices and fractions count: see
//! `completed`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::{self, poll_fn};
use tokio_postgres::{AsyncMessage, Client};

use crate::postgres::{connect_raw, runtime};
use crate::tpcc::terminal::Window;
use crate::{Error, Result};

/// The instants at which one worker began and then finished each query.
type Marks = Arc<Mutex<Vec<Instant>>>;

/// Running workers.
pub struct Background {
    thread: JoinHandle<Result<()>>,
    start: Option<tokio::sync::oneshot::Sender<()>>,
    stopping: Arc<AtomicBool>,
    marks: Vec<Marks>,
    backends: Vec<i32>,
}

impl Background {
    /// Connects `count` workers to the server whose socket is in `socket_dir`.
    /// They wait for [`Background::start`].
    pub fn connect(socket_dir: &Path, count: u32) -> Result<Self> {
        let (connected, backends) = mpsc::channel();
        let (start, started) = tokio::sync::oneshot::channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let marks: Vec<Marks> = (0..count).map(|_| Marks::default()).collect();
        let thread = {
            let (socket_dir, marks) = (socket_dir.to_owned(), marks.clone());
            let stopping = Arc::clone(&stopping);
            std::thread::spawn(move || serve(&socket_dir, &marks, connected, started, &stopping))
        };
        let Ok(backends) = backends.recv() else {
            // The thread ended instead of connecting: it has the reason.
            return match thread.join().expect("the background thread does not panic") {
                Err(error) => Err(error),
                Ok(()) => Err(Error::Config(
                    "the background ended before it connected".into(),
                )),
            };
        };
        Ok(Background {
            thread,
            start: Some(start),
            stopping,
            marks,
            backends,
        })
    }

    /// The processes of the server that do the work.
    pub fn backend_pids(&self) -> &[i32] {
        &self.backends
    }

    /// Lets all workers begin.
    pub fn start(&mut self) {
        if let Some(start) = self.start.take() {
            // The thread is gone only after an error, which `stop` returns.
            let _ = start.send(());
        }
    }

    /// Waits until every worker has finished a query after `instant`, at most
    /// for `limit`: fractions of the last one can then be told.
    pub fn settle(&self, instant: Instant, limit: Duration) {
        let deadline = Instant::now() + limit;
        let settled = |marks: &Marks| {
            let marks = marks.lock().expect("no holder of the lock panics");
            marks.last().is_some_and(|last| *last >= instant)
        };
        while !self.marks.iter().all(settled) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Queries finished inside the window by all workers, with fractions.
    pub fn completed(&self, window: Window) -> f64 {
        let of =
            |marks: &Marks| completed(&marks.lock().expect("no holder of the lock panics"), window);
        // From +0: the sum of nothing is otherwise -0.
        self.marks
            .iter()
            .map(of)
            .fold(0.0, |sum, queries| sum + queries)
    }

    /// Declares that the workers' backends are about to be ended, so that the
    /// loss of their connections is no error.
    pub fn expect_end(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Waits for the end of all connections.
    pub fn join(self) -> Result<()> {
        // Dropping the sender releases workers that never started.
        drop(self.start);
        self.thread
            .join()
            .expect("the background thread does not panic")
    }
}

/// The thread: connects all workers, starts them, and stamps their notices.
fn serve(
    socket_dir: &Path,
    marks: &[Marks],
    connected: mpsc::Sender<Vec<i32>>,
    started: tokio::sync::oneshot::Receiver<()>,
    stopping: &AtomicBool,
) -> Result<()> {
    runtime()?.block_on(async {
        let (mut clients, mut drivers) = (Vec::new(), Vec::new());
        for (number, marks) in marks.iter().enumerate() {
            let (client, mut connection) =
                connect_raw(socket_dir, &format!("background-{number}"), &[])
                    .await
                    .map_err(Error::sql("connecting a background worker"))?;
            let marks = Arc::clone(marks);
            drivers.push(tokio::spawn(async move {
                // The connection's end also ends the query, which reports it.
                poll_fn(|context| {
                    loop {
                        match connection.poll_message(context) {
                            Poll::Ready(Some(Ok(AsyncMessage::Notice(_)))) => {
                                let now = Instant::now();
                                marks
                                    .lock()
                                    .expect("no holder of the lock panics")
                                    .push(now);
                            }
                            Poll::Ready(Some(Ok(_))) => {}
                            Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
                            Poll::Pending => return Poll::Pending,
                        }
                    }
                })
                .await;
            }));
            clients.push(client);
        }
        let mut pids = Vec::new();
        for client in &clients {
            let row = client
                .query_one("SELECT pg_backend_pid()", &[])
                .await
                .map_err(Error::sql("asking for a background worker's process"))?;
            pids.push(row.get(0));
        }
        // Nobody listens once the caller gave up, and then `started` fails too.
        let _ = connected.send(pids);
        if started.await.is_err() {
            return Ok(());
        }
        let now = Instant::now();
        for marks in marks {
            marks
                .lock()
                .expect("no holder of the lock panics")
                .push(now);
        }
        let results = future::join_all(clients.iter().map(work)).await;
        match results.into_iter().find_map(Result::err) {
            Some(error) if !stopping.load(Ordering::Relaxed) => {
                Err(Error::sql("running Q17 in a loop")(error))
            }
            _ => Ok(()),
        }
    })
}

/// The loop, which ends with its backend.
async fn work(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("CALL q17_loop()").await
}

/// Queries that one worker finished inside the window. `marks` are the instants
/// at which it began and then finished each query. Between two marks progress
/// is linear; after the last mark nothing is known, so nothing is counted.
fn completed(marks: &[Instant], window: Window) -> f64 {
    let overlap = |pair: &[Instant]| {
        let start = pair[0].max(window.start);
        let end = pair[1].min(window.end);
        let length = (pair[1] - pair[0]).as_secs_f64();
        if length > 0.0 {
            end.saturating_duration_since(start).as_secs_f64() / length
        } else {
            f64::from(u8::from(window.contains(pair[1])))
        }
    };
    marks
        .windows(2)
        .map(overlap)
        .fold(0.0, |sum, queries| sum + queries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_at_both_ends_of_the_window_count() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let window = Window {
            start: at(100),
            end: at(200),
        };
        let count =
            |marks: &[u64]| completed(&marks.iter().map(|ms| at(*ms)).collect::<Vec<_>>(), window);
        assert_eq!(count(&[100, 150, 200]), 2.0);
        assert_eq!(count(&[0, 80, 120, 160, 240]), 0.5 + 1.0 + 0.5);
        // A query longer than the window; one that never ended; none at all.
        assert_eq!(count(&[50, 250]), 0.5);
        assert_eq!(count(&[50]), 0.0);
        assert!(count(&[]).is_sign_positive() && count(&[]) == 0.0);
        assert_eq!(count(&[0, 50, 100]), 0.0);
    }
}
