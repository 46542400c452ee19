//! UFS as a systemd unit: `giveway.service`.
//!
//! `giveway start -- OPTIONS` writes the options to an environment file in /run, which
//! lasts until the next `giveway start` or reboot. The unit reads it after
//! `/etc/default/giveway`, which has the administrator's options. systemd splits the
//! variable at blanks, so an option with a blank or a quote is refused; `scx_ufs` has
//! no such options.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use giveway_command::{Context, Failure};

const NAME: &str = "giveway.service";

/// The installed unit.
pub(crate) struct Unit(());

impl Unit {
    /// The unit, where systemd is the init system and knows it.
    pub(crate) fn installed() -> Option<Self> {
        let booted = Path::new("/run/systemd/system").is_dir();
        let known = || quiet(&["cat", NAME]);
        (booted && known()).then_some(Unit(()))
    }

    /// Whether it runs or is about to.
    pub(crate) fn is_live(&self) -> bool {
        quiet(&["is-active", NAME]) || self.property("ActiveState") == "activating"
    }

    pub(crate) fn start(&self, options: &[String]) -> Result<(), Failure> {
        let file = Path::new(super::RUN_DIR).join("options");
        if options.is_empty() {
            // None from an earlier start may linger.
            let _ = fs::remove_file(&file);
        } else {
            fs::write(&file, environment(options)?)
                .cannot(format_args!("write {}", file.display()))?;
        }
        // A unit that failed too often is not started again without this.
        quiet(&["reset-failed", NAME]);
        self.call("start")
    }

    pub(crate) fn stop(&self) -> Result<(), Failure> {
        self.call("stop")
    }

    /// The last lines it has logged.
    pub(crate) fn log(&self) -> String {
        Command::new("journalctl")
            .args(["--no-pager", "-q", "-o", "cat", "-n", "200", "-u", NAME])
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    }

    fn property(&self, name: &str) -> String {
        Command::new("systemctl")
            .args(["show", "--value", "-p", name, NAME])
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .unwrap_or_default()
    }

    fn call(&self, verb: &str) -> Result<(), Failure> {
        let output = Command::new("systemctl")
            .args([verb, NAME])
            .output()
            .cannot("run systemctl")?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure::new(format_args!(
            "systemctl {verb} {NAME} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))
        .with_remedy("journalctl -u giveway"))
    }
}

fn quiet(args: &[&str]) -> bool {
    Command::new("systemctl")
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The environment file that carries options to the unit.
fn environment(options: &[String]) -> Result<String, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/+@%".contains(c);
    match options
        .iter()
        .find(|o| o.is_empty() || !o.chars().all(plain))
    {
        Some(bad) => Err(Failure::usage(format_args!(
            "the unit cannot pass on the option '{bad}'"
        ))
        .with_remedy("write options without blanks and quotes, or put them in the unit itself")),
        None => Ok(format!("SCX_UFS_OPTIONS={}\n", options.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_travel_unless_systemd_would_change_them() {
        let options = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            environment(&words)
        };
        assert_eq!(
            options(&["--stats", "1.5"]).unwrap(),
            "SCX_UFS_OPTIONS=--stats 1.5\n"
        );
        for bad in ["a b", "\"x\"", "$HOME", "a\nb", ""] {
            assert!(options(&[bad]).is_err(), "{bad:?}");
        }
    }
}
