//! The supervised command: started inside a cgroup, sent the signals that its
//! supervisor gets, and waited for.
//!
//! Signals are blocked before the fork and read from a descriptor, so none is
//! lost between fork and wait, and there is no handler to get wrong. A signal
//! that the kernel sent (a key on the terminal) went to the whole foreground
//! process group, the command included, and is not passed on a second time.
//! SIGTSTP is left alone: supervisor and command stop and continue together.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2, write};

use giveway_command::{Context, Failure};

use crate::disk::Class;

/// What is passed on to the command.
const PASSED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

/// Runs `command` in the cgroup behind `entrance`, in this I/O class or else in the
/// caller's; answers with its status as a shell would give it.
pub(super) fn supervise(
    command: &[OsString],
    entrance: File,
    class: Option<Class>,
) -> Result<u8, Failure> {
    // A parent that ignores it leaves that to its children: they would be reaped by the
    // kernel, without a word.
    // SAFETY: the default action calls nothing of this program.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.cannot("watch for the command's end")?;
    let mut watched = SigSet::empty();
    watched.extend(PASSED_ON);
    watched.add(Signal::SIGCHLD);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&watched), Some(&mut before))
        .cannot("block signals")?;
    let signals =
        SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC).cannot("watch for signals")?;
    let child = start(command, entrance, class, before)?;
    loop {
        match signals.read_signal() {
            Ok(Some(info)) => {
                let signal = Signal::try_from(info.ssi_signo as i32);
                // Codes above 0 are the kernel's own.
                let from_a_process = info.ssi_code <= 0;
                if let Ok(signal) = signal
                    && signal != Signal::SIGCHLD
                    && from_a_process
                {
                    // The command may have ended in the meantime.
                    let _ = kill(child, signal);
                }
            }
            Ok(None) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).cannot("read signals"),
        }
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, status)) => return Ok(status as u8),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(128 + signal as u8),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).cannot("wait for the command"),
        }
    }
}

/// Forks; the child enters the cgroup, takes the I/O class, takes back the signal mask and
/// executes.
fn start(
    command: &[OsString],
    entrance: File,
    class: Option<Class>,
    mask: SigSet,
) -> Result<Pid, Failure> {
    let program = &command[0];
    // Why the child did not get as far as executing: one byte, the errno of
    // its entry into the cgroup. Closed, and so empty, once it executes.
    let (reader, writer): (OwnedFd, OwnedFd) = pipe2(OFlag::O_CLOEXEC).cannot("make a pipe")?;
    let mut started = Command::new(program);
    started.args(&command[1..]);
    // SAFETY: between fork and exec the closure makes system calls on numbers,
    // descriptors and a mask it owns, and allocates nothing.
    unsafe {
        started.pre_exec(move || {
            if let Err(errno) = write(&entrance, b"0") {
                let _ = write(&writer, &[errno as i32 as u8]);
                return Err(errno.into());
            }
            if let Some(class) = class {
                class.take();
            }
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
            Ok(())
        });
    }
    match started.spawn() {
        // The handle is not needed: its process is waited for by id.
        Ok(child) => Ok(Pid::from_raw(child.id() as i32)),
        Err(error) => {
            // Drops our copy of the pipe's writing end.
            drop(started);
            Err(explain(program, &error, refusal(reader)))
        }
    }
}

/// The errno with which the kernel refused the child its cgroup, if it did.
fn refusal(reader: OwnedFd) -> Option<Errno> {
    let mut byte = [0];
    let got = File::from(reader).read(&mut byte).ok()?;
    (got == 1).then(|| Errno::from_raw(i32::from(byte[0])))
}

fn explain(program: &OsString, error: &io::Error, refusal: Option<Errno>) -> Failure {
    let program = program.to_string_lossy();
    if let Some(errno) = refusal {
        return Failure::new(format_args!(
            "cannot move the command into its cgroup: {errno}"
        ))
        .with_remedy("start it from 'systemd-run --user --scope -p Delegate=yes', or use sudo")
        .with_status(super::OWN_FAILURE);
    }
    match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(format_args!("'{program}' is not found")).with_status(127)
        }
        _ => Failure::new(format_args!("cannot execute '{program}': {error}")).with_status(126),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_to_execute_have_the_statuses_of_the_shell() {
        let program = OsString::from("x");
        let status = |kind: io::ErrorKind, refusal| {
            explain(&program, &io::Error::from(kind), refusal).status()
        };
        assert_eq!(status(io::ErrorKind::NotFound, None), 127);
        assert_eq!(status(io::ErrorKind::PermissionDenied, None), 126);
        let refused = Some(Errno::EACCES);
        assert_eq!(status(io::ErrorKind::PermissionDenied, refused), 125);
    }

    #[test]
    fn command_starts_in_the_class_it_is_given_else_in_the_caller_s() {
        // Any file stands in for the entrance. The status is 0 if the class is idle.
        let is_idle = |class| {
            let command = ["sh", "-c", "ionice | grep -q idle"].map(OsString::from);
            let entrance = File::options().write(true).open("/dev/null").unwrap();
            let child = start(&command, entrance, class, SigSet::empty()).unwrap();
            waitpid(child, None).unwrap() == WaitStatus::Exited(child, 0)
        };
        assert!(is_idle(Some(Class::Idle)));
        assert!(!is_idle(None));
        Class::Idle.take();
        assert!(is_idle(None));
        assert!(!is_idle(Some(Class::Unset)));
    }
}
