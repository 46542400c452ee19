//! An engine in a process of its own, and questions to it.
//!
//! A thread reads the engine's lines, so that whoever asks can stop waiting. An engine
//! that does not answer in time, or ends, is killed; the next question starts it anew.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{Answer, Ask, Ready, Reply, Setup};
use super::row::EngineName;

const DUCKDB: &str = include_str!("engine.py");
/// How long an engine may take to open its tables.
const SETUP: Duration = Duration::from_secs(120);

/// An engine that runs, or can be started.
pub(super) struct Client {
    command: Command,
    setup: String,
    patience: Duration,
    running: Option<Running>,
    version: String,
}

struct Running {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    /// An engine that is started when it is first asked.
    pub(super) fn new(
        engine: EngineName,
        own: &Path,
        python: &Path,
        setup: &Setup,
        patience: Duration,
    ) -> Client {
        let command = match engine {
            EngineName::DuckDb => {
                let mut command = Command::new(python);
                command.args(["-c", DUCKDB]);
                command
            }
            EngineName::Giveway | EngineName::DataFusion => {
                let mut command = Command::new(own);
                command.args(["sql-engine", "--engine", engine.name()]);
                command
            }
        };
        Client {
            command,
            setup: line(setup),
            patience,
            running: None,
            version: String::new(),
        }
    }

    /// The version of the engine that answered last.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Asks one query. An error is the query's, or says that the engine failed at it.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Answer, String> {
        if self.running.is_none() {
            let running = start(&mut self.command)?;
            let ready: Ready = self.said(running, &self.setup.clone(), SETUP)?;
            self.version = ready.version;
        }
        let running = self.running.take().expect("started above");
        let ask = line(&Ask {
            sql: sql.to_owned(),
        });
        match self.said(running, &ask, self.patience)? {
            Reply::Answer(answer) => Ok(answer),
            Reply::Error { error } => Err(error),
        }
    }

    /// What a running engine says to a line; it goes on running only if it says something.
    fn said<T: DeserializeOwned>(
        &mut self,
        mut running: Running,
        ask: &str,
        patience: Duration,
    ) -> Result<T, String> {
        // One that has ended says so by its missing answer.
        let _ = running.input.write_all(ask.as_bytes());
        match running.lines.recv_timeout(patience) {
            Ok(text) => {
                let said = serde_json::from_str(&text)
                    .map_err(|error| format!("{error} in the answer {text:.200}"))?;
                self.running = Some(running);
                Ok(said)
            }
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "no answer in {} s (--timeout)",
                patience.as_secs_f64()
            )),
            Err(RecvTimeoutError::Disconnected) => {
                let status = running.child.wait().map_err(|error| error.to_string())?;
                Err(format!("the engine ended: {status}"))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(command: &mut Command) -> Result<Running, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let input = child.stdin.take().expect("piped");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for text in output.lines().map_while(Result::ok) {
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    Ok(Running {
        child,
        input,
        lines,
    })
}

fn line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("plain data");
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that is a line of shell.
    fn shell(script: &str, patience: Duration) -> Client {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Client {
            command,
            setup: "{}\n".to_owned(),
            patience,
            running: None,
            version: String::new(),
        }
    }

    const READY: &str = r#"read setup; echo '{"version": "7"}';"#;

    #[test]
    fn an_engine_is_started_once_and_answers_each_query() {
        let script = format!(
            "{READY} n=0; while read ask; do n=$((n+1)); echo '{{\"ms\": 2, \"rows\": '$n'}}'; done"
        );
        let mut engine = shell(&script, SETUP);
        let rows = [1, 2].map(|_| engine.ask("SELECT 1").unwrap().rows);
        assert_eq!(rows, [1, 2]);
        assert_eq!(engine.version(), "7");
    }

    #[test]
    fn an_error_is_the_query_s_and_the_engine_goes_on() {
        let script = format!(
            "{READY} read a; echo '{{\"error\": \"no such table\"}}'; read b; \
             echo '{{\"ms\": 1, \"rows\": 5}}'; read c"
        );
        let mut engine = shell(&script, SETUP);
        assert_eq!(engine.ask("a").unwrap_err(), "no such table");
        assert_eq!(engine.ask("b").unwrap().rows, 5);
    }

    #[test]
    fn an_engine_that_is_silent_or_ends_is_started_anew() {
        let mut silent = shell(
            &format!("{READY} exec sleep 60"),
            Duration::from_millis(200),
        );
        let error = silent.ask("a").unwrap_err();
        assert!(error.contains("--timeout"), "{error}");
        assert!(silent.running.is_none());
        let mut dead = shell(&format!("{READY} read a; exit 3"), SETUP);
        for _ in 0..2 {
            let error = dead.ask("a").unwrap_err();
            assert!(error.contains("exit status: 3"), "{error}");
        }
        let mut missing = shell("", SETUP);
        missing.command = Command::new("/nonexistent/python");
        let error = missing.ask("a").unwrap_err();
        assert!(error.contains("/nonexistent/python"), "{error}");
    }
}
