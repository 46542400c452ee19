//! UFS as a systemd unit: `giveway.service`.
//!
//! `giveway start -- OPTIONS` writes the options to an environment file in /run, which
//! lasts until the next `giveway start` or reboot. The unit reads it after
//! `/etc/default/giveway`, which has the administrator's options. systemd splits the
//! variable at blanks, so an option with a blank or a quote is refused; `scx_ufs` has
//! no such options.
//!
//! systemd may be busy, stopped or dead: each question to it has a limit, and an order to
//! stop is left with it rather than waited for.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use giveway_command::{Context, Failure};
use giveway_machine::files;

use super::bounded;

const NAME: &str = "giveway.service";
/// For a question or an order that systemd answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The installed unit.
pub(crate) struct Unit(());

impl Unit {
    /// The unit, where systemd is the init system and knows it.
    pub(crate) fn installed() -> Option<Self> {
        let booted = Path::new("/run/systemd/system").is_dir();
        let known = || is_so(&["cat", NAME]);
        (booted && known()).then_some(Unit(()))
    }

    /// Whether it runs or is about to.
    pub(crate) fn is_live(&self) -> bool {
        is_so(&["is-active", NAME]) || self.property("ActiveState") == "activating"
    }

    /// Whether it has ended, as far as systemd says: one that does not answer is not waited
    /// for.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(
            self.property("ActiveState").as_str(),
            "inactive" | "failed" | ""
        )
    }

    /// Has systemd start it, and waits no longer than `limit` until it is started.
    pub(crate) fn start(&self, options: &[String], limit: Duration) -> Result<(), Failure> {
        let file = Path::new(super::RUN_DIR).join("options");
        if options.is_empty() {
            // None from an earlier start may linger.
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).cannot(format_args!("remove {}", file.display()));
                }
                _ => {}
            }
        } else {
            files::replace(&file, environment(options)?.as_bytes())
                .cannot(format_args!("write {}", file.display()))?;
        }
        // A unit that failed too often is not started again without this.
        let _ = systemctl(&["reset-failed", NAME], ANSWER_MAX.min(limit));
        call(&["start", NAME], limit).inspect_err(|_| self.withdraw())
    }

    /// Has systemd stop it, which is not waited for.
    pub(crate) fn stop(&self, limit: Duration) -> Result<(), Failure> {
        call(&["stop", "--no-block", NAME], ANSWER_MAX.min(limit))
    }

    /// Has systemd kill it.
    pub(crate) fn kill(&self, limit: Duration) -> Result<(), Failure> {
        call(&["kill", "--signal=KILL", NAME], ANSWER_MAX.min(limit))
    }

    /// Takes a start back, so that it does not load UFS later, when nobody expects it.
    pub(crate) fn withdraw(&self) {
        let _ = systemctl(&["stop", "--no-block", NAME], ANSWER_MAX);
    }

    /// The last lines it has logged.
    pub(crate) fn log(&self) -> String {
        let mut command = Command::new("journalctl");
        command.args(["--no-pager", "-q", "-o", "cat", "-n", "200", "-u", NAME]);
        said(bounded::output(&mut command, ANSWER_MAX))
    }

    fn property(&self, name: &str) -> String {
        let said = said(systemctl(
            &["show", "--value", "-p", name, NAME],
            ANSWER_MAX,
        ));
        said.trim().to_owned()
    }
}

fn systemctl(args: &[&str], limit: Duration) -> io::Result<Output> {
    bounded::output(Command::new("systemctl").args(args), limit)
}

fn call(args: &[&str], limit: Duration) -> Result<(), Failure> {
    let what = format!("systemctl {}", args.join(" "));
    let output = systemctl(args, limit).map_err(|error| {
        Failure::new(format_args!("{what}: {error}")).with_remedy(
            "see what systemd waits for: systemctl list-jobs; systemctl status giveway",
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(format_args!(
        "{what} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
    .with_remedy("journalctl -u giveway"))
}

fn is_so(args: &[&str]) -> bool {
    systemctl(args, ANSWER_MAX).is_ok_and(|output| output.status.success())
}

fn said(output: io::Result<Output>) -> String {
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
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
