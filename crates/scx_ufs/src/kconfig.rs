//! What libbpf is told of the kernel's configuration where there is no file of it.
//!
//! The program asks for settings of the kernel, for which libbpf reads
//! `/proc/config.gz` or `/boot/config-RELEASE`, and loads nothing without. Containers
//! and small images have neither. There the settings come from what the kernel
//! says itself:
//!
//! | setting | told by |
//! | --- | --- |
//! | `CONFIG_HZ` | the resolution of the coarse clocks, which is a tick |
//! | `CONFIG_PREEMPT_RCU` | the kernel's version: those that can be preempted, and whose RCU can be therefore, have `PREEMPT` in it |

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::utsname::uname;
use nix::time::ClockId;

/// A file of settings, which is there for as long as this lives.
pub(crate) struct Settings(File);

impl Settings {
    /// None if libbpf finds the kernel's own.
    ///
    /// # Errors
    /// The kernel does not say, or there is no memory for a file.
    pub(crate) fn where_there_are_none() -> Result<Option<Settings>> {
        let kernel = uname().context("cannot ask for the kernel's version")?;
        let release = kernel.release().to_string_lossy();
        let own = ["/proc/config.gz", &format!("/boot/config-{release}")];
        if own.iter().any(|file| Path::new(file).exists()) {
            return Ok(None);
        }
        let tick = ClockId::CLOCK_MONOTONIC_COARSE.res();
        let tick = tick.context("cannot ask how long a tick is")?;
        let text = settings(tick.into(), &kernel.version().to_string_lossy());
        let file = memfd_create("kconfig", MFdFlags::MFD_CLOEXEC);
        let mut file = File::from(file.context("cannot make a file of the kernel's settings")?);
        file.write_all(text.as_bytes())?;
        Ok(Some(Settings(file)))
    }

    /// Where libbpf, in this process, reads them.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

fn settings(tick: Duration, version: &str) -> String {
    let hz = (1.0 / tick.as_secs_f64()).round();
    let preempt = if version.contains("PREEMPT") {
        'y'
    } else {
        'n'
    };
    format!("CONFIG_HZ={hz}\nCONFIG_PREEMPT_RCU={preempt}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_rounded_and_preemption_is_a_word_of_the_version() {
        // What a kernel with 300 ticks a second calls one.
        let tick = Duration::from_nanos(3_333_333);
        let text = settings(tick, "#1 SMP PREEMPT_DYNAMIC Debian 7.2.13-1");
        assert_eq!(text, "CONFIG_HZ=300\nCONFIG_PREEMPT_RCU=y\n");
        let text = settings(Duration::from_millis(4), "#1 SMP Debian 7.2.13-1");
        assert_eq!(text, "CONFIG_HZ=250\nCONFIG_PREEMPT_RCU=n\n");
    }

    #[test]
    fn they_can_be_read_by_their_path() {
        let mut file = File::from(memfd_create("kconfig", MFdFlags::MFD_CLOEXEC).unwrap());
        file.write_all(b"CONFIG_HZ=1\n").unwrap();
        let settings = Settings(file);
        let text = std::fs::read_to_string(settings.path()).unwrap();
        assert_eq!(text, "CONFIG_HZ=1\n");
    }
}
