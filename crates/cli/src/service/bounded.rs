//! Programs that are asked and not waited for longer than they are worth.
//!
//! systemctl and journalctl wait for other processes without a limit: for systemd, for
//! the bus, for a file system. What they have not said in time is not needed.
//!
//! Known weakness: a program that cannot be killed, since it waits inside the kernel,
//! is left behind; it is reaped when this one ends.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Between two questions to a program that fails at once.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// How often it is looked whether a program has ended.
const POLL: Duration = Duration::from_millis(5);

/// Runs the command to its end and answers with what it said; kills it after `limit`.
///
/// # Errors
/// Those of starting it; `TimedOut` if it has not ended by then.
pub(super) fn output(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let end = Instant::now() + limit;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdout = collected(child.stdout.take());
    let stderr = collected(child.stderr.take());
    let status: ExitStatus = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= end {
            let _ = child.kill();
            let program = command.get_program().display();
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "{program} has not answered within {:.1} s",
                    limit.as_secs_f64()
                ),
            ));
        }
        thread::sleep(POLL);
    };
    // What it has started may hold the other end for longer.
    let last = |from: &Receiver<Vec<u8>>| {
        let left = end.saturating_duration_since(Instant::now());
        from.recv_timeout(left.max(POLL)).unwrap_or_default()
    };
    Ok(Output {
        status,
        stdout: last(&stdout),
        stderr: last(&stderr),
    })
}

/// What comes of a pipe until its end, read meanwhile so that its writer is not held up.
fn collected(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error counts.
            let _ = pipe.read_to_end(&mut bytes);
        }
        // The receiver may have given up.
        let _ = tell.send(bytes);
    });
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(100);

    fn sh(script: &str, limit: Duration) -> io::Result<Output> {
        output(Command::new("sh").args(["-c", script]), limit)
    }

    #[test]
    fn all_that_a_program_says_is_passed_on_and_its_status() {
        // More than a pipe holds.
        let said = sh(
            "head -c 300000 /dev/zero; echo no >&2; exit 3",
            600 * MOMENT,
        )
        .unwrap();
        assert_eq!(said.status.code(), Some(3));
        assert_eq!(
            (said.stdout.len(), said.stderr.as_slice()),
            (300_000, &b"no\n"[..])
        );
    }

    #[test]
    fn a_program_that_does_not_end_is_not_waited_for() {
        let began = Instant::now();
        let error = sh("trap '' TERM; while :; do sleep 1; done", MOMENT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(
            error
                .to_string()
                .starts_with("sh has not answered within 0.1 s")
        );
        // Nor one that leaves another behind, which has its output.
        let said = sh("echo yes; sleep 30 &", 5 * MOMENT).unwrap();
        assert!(said.status.success());
        assert!(began.elapsed() < 100 * MOMENT, "{:?}", began.elapsed());
    }
}
