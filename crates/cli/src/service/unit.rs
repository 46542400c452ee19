//! UFS as a systemd unit: `giveway.service`.
//!
//! `giveway start -- OPTIONS` writes the options to an environment file in /run, which
//! lasts until the next `giveway start` or reboot. The unit reads it after
//! `/etc/default/giveway`, which has the administrator's options. systemd splits the
//! variable at blanks, so an option with a blank or a quote is refused; `scx_ufs` has
//! no such options.
//!
//! systemd may be busy, stopped or dead: each question to it has a limit, and an order to
//! stop is left with it rather than waited for. A systemd that is silent has said nothing:
//! neither that the unit is not there nor that it has ended ([`Activity::Silent`]). It
//! answers nothing while it reads its units again, for seconds where there are thousands.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use giveway_command::{Context, Failure};
use giveway_machine::files;

use super::bounded::{self, PAUSE};

const NAME: &str = "giveway.service";
/// For a question or an order that systemd answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// What systemd says of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// There is none, or no systemd.
    Absent,
    /// It runs, or is about to.
    Live,
    /// It is being stopped.
    Leaving,
    /// It does not run.
    Ended,
    /// systemd does not answer.
    Silent,
}

/// The unit.
pub(crate) struct Unit(());

impl Unit {
    /// The unit, where systemd is the init system and knows it. A silent systemd is asked
    /// again until `patience` is over.
    ///
    /// # Errors
    /// If it has stayed silent.
    pub(crate) fn installed(patience: Duration) -> Result<Option<Self>, Failure> {
        let end = Instant::now() + patience;
        loop {
            match activity() {
                Activity::Absent => return Ok(None),
                Activity::Silent if Instant::now() < end => thread::sleep(PAUSE),
                Activity::Silent => break,
                _ => return Ok(Some(Unit(()))),
            }
        }
        Err(Failure::new(format_args!(
            "systemd has not said within {:.1} s whether {NAME} is installed",
            patience.as_secs_f64()
        ))
        .with_remedy(
            "see what systemd does: systemctl status; 'scx_ufs OPTIONS' loads UFS without it",
        ))
    }

    /// The unit and what systemd says of it, unless that is that there is none: a silent one
    /// may have it.
    pub(crate) fn possible() -> Option<(Self, Activity)> {
        let activity = activity();
        (activity != Activity::Absent).then_some((Unit(()), activity))
    }

    /// What systemd says of it now.
    pub(crate) fn activity(&self) -> Activity {
        activity()
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
        // What an earlier daemon said last is not what the unit says.
        let _ = fs::remove_file(super::process::log_path());
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
}

/// What systemd says of the unit.
fn activity() -> Activity {
    if !Path::new("/run/systemd/system").is_dir() {
        return Activity::Absent;
    }
    let asked = systemctl(
        &["show", "-p", "LoadState", "-p", "ActiveState", NAME],
        ANSWER_MAX,
    );
    match asked {
        Ok(output) if output.status.success() => {
            activity_in(&String::from_utf8_lossy(&output.stdout))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Activity::Absent,
        _ => Activity::Silent,
    }
}

/// The same by the unit's properties, of which systemd says all or none.
fn activity_in(properties: &str) -> Activity {
    let value = |name: &str| {
        let mut lines = properties.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    match (value("LoadState"), value("ActiveState")) {
        (Some("not-found"), _) => Activity::Absent,
        (Some(_), Some("inactive" | "failed")) => Activity::Ended,
        (Some(_), Some("deactivating")) => Activity::Leaving,
        (Some(_), Some(_)) => Activity::Live,
        _ => Activity::Silent,
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
    fn silence_is_neither_absence_nor_the_end() {
        let activity = |load: &str, active: &str| {
            activity_in(&format!("LoadState={load}\nActiveState={active}\n"))
        };
        assert_eq!(activity("not-found", "inactive"), Activity::Absent);
        assert_eq!(activity("loaded", "inactive"), Activity::Ended);
        assert_eq!(activity("masked", "failed"), Activity::Ended);
        assert_eq!(activity("loaded", "deactivating"), Activity::Leaving);
        for active in ["active", "activating", "reloading", "refreshing"] {
            assert_eq!(activity("loaded", active), Activity::Live, "{active}");
        }
        assert_eq!(activity_in(""), Activity::Silent);
        assert_eq!(activity_in("LoadState=loaded\n"), Activity::Silent);
    }

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
