//! The kernel's tracer, in an instance of its own, so that no other recording is
//! disturbed.
//!
//! ```text
//!   tracefs/instances/giveway-PID
//!     trace_clock      mono: the clock that programs can read, too
//!     buffer_size_kb   of each CPU
//!     events/sched/{sched_switch,sched_waking,sched_wakeup,sched_wakeup_new}/enable
//!     events/cgroup/cgroup_attach_task/enable
//!     tracing_on
//!     trace_pipe       text, consumed by reading
//! ```
//!
//! The instance is removed when this is dropped; a record that was killed leaves
//! one behind, which stops nothing (`rmdir` removes it).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::event::EVENTS;
use super::record::Feed;

/// Where distributions mount it.
pub const MOUNT: &str = "/sys/kernel/tracing";

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is no tracefs.
    #[error("tracefs is not mounted at {path}")]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The system does not let this user.
    #[error("this user may not record what the kernel does")]
    Forbidden,
    /// It lets, and failed.
    #[error("cannot set up {path}: {source}")]
    Broken {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl TraceError {
    /// What helps.
    pub fn remedy(&self) -> &'static str {
        match self {
            TraceError::Absent { .. } => "mount -t tracefs tracefs /sys/kernel/tracing",
            TraceError::Forbidden => "use sudo",
            TraceError::Broken { .. } => {
                "the kernel needs CONFIG_EVENT_TRACING, and memory for the buffers \
                 (--buffer-kib, for each CPU)"
            }
        }
    }
}

/// A recording.
#[derive(Debug)]
pub struct Tracefs {
    dir: PathBuf,
    /// None: not open yet, or closed so that the instance can be removed.
    pipe: Option<File>,
    /// The beginning of a line whose end was not there yet.
    rest: Vec<u8>,
}

impl Tracefs {
    /// Begins to record, with buffers of `buffer_kib` KiB for each CPU. `mount` is
    /// usually [`MOUNT`].
    ///
    /// # Errors
    /// Says what is missing.
    pub fn start(mount: &Path, buffer_kib: u32) -> Result<Self, TraceError> {
        let instances = mount.join("instances");
        let dir = instances.join(format!("giveway-{}", std::process::id()));
        if let Err(source) = fs::create_dir(&dir) {
            return Err(match source.kind() {
                io::ErrorKind::NotFound => TraceError::Absent { path: mount.into() },
                io::ErrorKind::PermissionDenied => TraceError::Forbidden,
                _ => TraceError::Broken { path: dir, source },
            });
        }
        let mut recording = Self {
            dir,
            pipe: None,
            rest: Vec::new(),
        };
        recording.set("tracing_on", "0")?;
        recording.set("trace_clock", "mono")?;
        recording.set("buffer_size_kb", &buffer_kib.to_string())?;
        for (subsystem, event) in EVENTS {
            recording.set(&format!("events/{subsystem}/{event}/enable"), "1")?;
        }
        let path = recording.dir.join("trace_pipe");
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&path)
            .map_err(|source| TraceError::Broken { path, source })?;
        recording.pipe = Some(pipe);
        recording.set("tracing_on", "1")?;
        Ok(recording)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), TraceError> {
        let path = self.dir.join(file);
        fs::write(&path, value).map_err(|source| TraceError::Broken { path, source })
    }
}

impl Feed for Tracefs {
    fn read(&mut self, patience: Duration, text: &mut String) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        // The kernel calls a buffer readable when it is half full; what there is can
        // be read before.
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut part = [0; 1 << 16];
        loop {
            match pipe.read(&mut part) {
                Ok(0) => break,
                Ok(n) => self.rest.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // A busy machine must not keep the caller from its other duties.
            if self.rest.len() > 1 << 22 {
                break;
            }
        }
        *text += &whole_lines(&mut self.rest);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<()> {
        fs::write(self.dir.join("tracing_on"), "0")
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        // An instance that is being read cannot be removed; a drop cannot report that.
        self.pipe = None;
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Takes whole lines out of `bytes`. A thread's name need not be UTF-8.
fn whole_lines(bytes: &mut Vec<u8>) -> String {
    let end = bytes
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let rest = bytes.split_off(end);
    let lines = std::mem::replace(bytes, rest);
    String::from_utf8_lossy(&lines).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_waits_for_its_end() {
        let mut bytes = b"one\ntwo\nth".to_vec();
        assert_eq!(whole_lines(&mut bytes), "one\ntwo\n");
        bytes.extend_from_slice(b"ree\xff\n");
        assert_eq!(whole_lines(&mut bytes), "three\u{fffd}\n");
        assert_eq!(whole_lines(&mut bytes), "");
    }

    #[test]
    fn a_missing_tracefs_names_the_remedy() {
        let error = Tracefs::start(Path::new("/no/such/mount"), 1).unwrap_err();
        assert!(matches!(error, TraceError::Absent { .. }), "{error}");
        assert!(error.remedy().starts_with("mount"));
    }
}
