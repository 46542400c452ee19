//! The CPU-bound work: workers that each run a job in a loop inside the server,
//! and the count of what they finished inside the window.
//!
//! Q17's loop is in the server, which sends a notice after each query and never
//! waits for an answer, so a worker stays CPU-bound; the other jobs are long
//! enough that a round trip for each statement makes no difference (`job`).
//! One client thread stamps the rounds of all workers. A window is short
//! compared with one round of a starved worker, so progress is taken as linear
//! between two marks and fractions count: see `completed`.

mod job;
mod kind;

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::{self, poll_fn};
use tokio::sync::{oneshot, watch};
use tokio_postgres::{AsyncMessage, Client};

use crate::harness::error::{Error, Result};
use crate::workload::postgres::{
    Installation, RawConnection, Server, Session, connect_raw, last_lines, runtime,
};
use crate::workload::tpcc::terminal::Window;
use job::Work;
pub use kind::Job;

/// The instants at which one worker began and then finished each round.
type Marks = Arc<Mutex<Vec<Instant>>>;

fn mark(marks: &Marks) {
    let now = Instant::now();
    marks
        .lock()
        .expect("no holder of the lock panics")
        .push(now);
}

/// Which work, and as whom.
#[derive(Clone, Debug)]
pub struct Workers {
    job: Job,
    count: u32,
    role: &'static str,
}

impl Workers {
    /// So many workers at a job, connected as `role`.
    pub fn new(job: Job, count: u32, role: &'static str) -> Self {
        Workers { job, count, role }
    }

    /// Makes the tables that they work on, if they need any of their own.
    pub fn prepare(&self, session: &Session) -> Result<()> {
        job::prepare(session, self.job, self.count)
    }
}

/// Running workers.
pub struct Background {
    thread: JoinHandle<Result<()>>,
    start: Option<oneshot::Sender<()>>,
    stop: watch::Sender<bool>,
    marks: Vec<Marks>,
    backends: Vec<i32>,
}

impl Background {
    /// Connects `workers` to the server, which runs the programs of
    /// `postgres`. They wait for [`Background::start`].
    pub fn connect(postgres: &Installation, server: &Server, workers: &Workers) -> Result<Self> {
        let (connected, backends) = mpsc::channel();
        let (start, started) = oneshot::channel();
        let (stop, stopped) = watch::channel(false);
        let marks: Vec<Marks> = (0..workers.count).map(|_| Marks::default()).collect();
        let thread = {
            let crew = Crew {
                postgres: postgres.clone(),
                workers: workers.clone(),
                marks: marks.clone(),
                stopped,
            };
            let socket_dir = server.socket_dir().to_owned();
            std::thread::spawn(move || crew.serve(&socket_dir, connected, started))
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
            stop,
            marks,
            backends,
        })
    }

    /// The processes of the server that do the work; none of a job whose
    /// connections come and go.
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

    /// Waits until every worker has finished a round after `instant`, at most
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

    /// Rounds finished inside the window by all workers, with fractions.
    pub fn completed(&self, window: Window) -> f64 {
        let of =
            |marks: &Marks| completed(&marks.lock().expect("no holder of the lock panics"), window);
        // From +0: the sum of nothing is otherwise -0.
        self.marks
            .iter()
            .map(of)
            .fold(0.0, |sum, rounds| sum + rounds)
    }

    /// Declares that the workers' backends are about to be ended, so that the
    /// loss of their connections is no error. Ends programs.
    pub fn expect_end(&self) {
        self.stop.send_replace(true);
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

/// What the thread has.
struct Crew {
    postgres: Installation,
    workers: Workers,
    marks: Vec<Marks>,
    stopped: watch::Receiver<bool>,
}

impl Crew {
    /// The thread: connects all workers, starts them, and stamps their rounds.
    fn serve(
        &self,
        socket_dir: &Path,
        connected: mpsc::Sender<Vec<i32>>,
        started: oneshot::Receiver<()>,
    ) -> Result<()> {
        runtime()?.block_on(async {
            let (mut clients, mut drivers, mut pids) = (Vec::new(), Vec::new(), Vec::new());
            for (number, marks) in self.marks.iter().enumerate() {
                if let Work::Program(..) = job::work(self.workers.job, number as u32) {
                    clients.push(None);
                    continue;
                }
                let name = format!("background-{number}");
                let (client, connection) = connect_raw(socket_dir, self.workers.role, &name)
                    .await
                    .map_err(Error::sql("connecting a background worker"))?;
                let notices = match job::work(self.workers.job, number as u32) {
                    Work::Endless(_) => Some(Arc::clone(marks)),
                    _ => None,
                };
                drivers.push(tokio::spawn(drive(connection, notices)));
                if let Some(statement) = job::rehearsal(self.workers.job) {
                    let rehearsed = client.batch_execute(statement).await;
                    rehearsed.map_err(Error::sql(format!("running {statement} once")))?;
                }
                let row = client
                    .query_one("SELECT pg_backend_pid()", &[])
                    .await
                    .map_err(Error::sql("asking for a background worker's process"))?;
                pids.push(row.get(0));
                clients.push(Some(client));
            }
            // Nobody listens once the caller gave up, and then `started` fails too.
            let _ = connected.send(pids);
            if started.await.is_err() {
                return Ok(());
            }
            self.marks.iter().for_each(mark);
            let all = clients
                .iter()
                .enumerate()
                .map(|(number, client)| self.work(socket_dir, number, client.as_ref()));
            let results = future::join_all(all).await;
            match results.into_iter().find_map(Result::err) {
                Some(error) if !*self.stopped.borrow() => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// One worker's loop, which ends with its backend or when it is stopped.
    async fn work(&self, socket_dir: &Path, number: usize, client: Option<&Client>) -> Result<()> {
        let connected = || client.expect("only programs go without a connection");
        match job::work(self.workers.job, number as u32) {
            Work::Endless(statement) => connected()
                .batch_execute(statement)
                .await
                .map_err(Error::sql("running the background's loop")),
            Work::Statements(statements) => loop {
                for statement in &statements {
                    connected()
                        .batch_execute(statement)
                        .await
                        .map_err(Error::sql(format!("running {statement}")))?;
                }
                mark(&self.marks[number]);
            },
            Work::Program(program, arguments) => {
                let mut stopped = self.stopped.clone();
                tokio::select! {
                    // A sender that is gone stops it, too. The program is
                    // killed as its handle is dropped.
                    _ = stopped.wait_for(|stopped| *stopped) => Ok(()),
                    result = self.run(socket_dir, number, program, arguments) => result,
                }
            }
        }
    }

    /// Runs a program again and again.
    async fn run(
        &self,
        socket_dir: &Path,
        number: usize,
        program: &str,
        arguments: &[&str],
    ) -> Result<()> {
        loop {
            let mut command = self.postgres.command(program);
            command.arg("--host").arg(socket_dir);
            command.args(["--username", self.workers.role, "--dbname", "postgres"]);
            command.args(arguments).stdout(Stdio::null());
            command.stderr(Stdio::piped());
            let output = tokio::process::Command::from(command)
                .kill_on_drop(true)
                .output()
                .await
                .map_err(Error::file("run", program.as_ref()))?;
            if !output.status.success() {
                return Err(Error::Program {
                    program: program.to_owned(),
                    status: output.status.to_string(),
                    output: last_lines(&String::from_utf8_lossy(&output.stderr)),
                });
            }
            mark(&self.marks[number]);
        }
    }
}

/// A connection's own work; each notice is a mark, if it is listened to. The
/// connection's end also ends the statement, which reports it.
async fn drive(mut connection: RawConnection, notices: Option<Marks>) {
    poll_fn(|context| {
        loop {
            match connection.poll_message(context) {
                Poll::Ready(Some(Ok(AsyncMessage::Notice(_)))) => {
                    if let Some(marks) = &notices {
                        mark(marks);
                    }
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

/// Rounds that one worker finished inside the window. `marks` are the instants
/// at which it began and then finished each round. Between two marks progress
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
        .fold(0.0, |sum, rounds| sum + rounds)
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
