//! What a guest said, kept for whoever asks the same again.
//!
//! Problem: a guest takes minutes, and most changes of a workspace change nothing that
//! enters it. Under the lockstep clock a guest that is given the same says the same, to
//! the last time stamp, so that booting it again shows nothing.
//!
//! ```text
//! Machine + Job + parts of the lab ─► prepared guest ─► digest ─► answer-DIGEST kept?
//!                                       │                         yes: its lines
//!                                       └──────────────────────── no:  boot it; keep the
//!                                                                      lines if all went well
//! ```
//!
//! That a guest says the same is itself a claim. [`Lab::repeat`] tries it: it boots a
//! guest whatever is kept, and compares what it says with an earlier run of the same
//! guest. An answer that is kept is such a run, and a harder one than a second boot: of
//! another day, another load of the host and other temporary directories.
//!
//! Invariants:
//!
//! - A1. What is kept is of the lockstep clock, and of a job that ended with status 0. A
//!   guest that failed is booted each time.
//! - A2. The digest covers all that can make a difference. It is taken of the guest as it
//!   is [prepared](vm::Prepared), which is what is booted then: the emulator's whole command
//!   line, with topology, clock, seed, CPU and the kernel's arguments; every file of its
//!   devices, with the job's archive; emulator, kernel, RAM disk and image, by path, size
//!   and time of their last change, since an entry that is made anew may get newer
//!   packages. Nothing else enters a guest (see the crate's page). What comes out of it is
//!   read by `vm.rs` and `console.rs`, whose text is digested too. So a program that asks
//!   makes a difference only by the guest that it has prepared. Two things of the host are
//!   left out, since no guest sees them: the temporary directory of the devices' files, and
//!   how long the host waits ([`Machine::timeout`]).
//! - A3. An answer is whole or not there: it is an entry of the [cache](crate::cache).
//! - A4. What a repeated run differs from stays as it was, for whoever looks into it.
//!
//! Known weakness: answers are removed only together with the rest of the cache. Each
//! has some kilobytes. The emulator's shared libraries (GLib, pixman, libfdt) are the
//! host's and not covered. Whoever wants to see the guest say it again sets
//! `GIVEWAY_AGAIN=1`.

use std::cmp::Ordering;
use std::fs;
use std::path::PathBuf;

use crate::cache::digest;
use crate::error::{LabError, Result};
use crate::machine::{Clock, Machine};
use crate::vm::{self, Job, Prepared};
use crate::{Cache, Lab};

/// Boots guests whatever is kept, and keeps nothing.
const AGAIN: &str = "GIVEWAY_AGAIN";
/// In its entry.
const FILE: &str = "lines";

/// What came of a question to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The job's exit status, as in [`Outcome::status`](crate::Outcome::status).
    pub status: i32,
    /// Whether it was kept, and no guest was booted.
    pub is_kept: bool,
}

/// A run that said the same as an earlier one of its guest; see [`Lab::repeat`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// What the job printed, both times.
    pub lines: Vec<String>,
    /// The job's exit status, both times.
    pub status: i32,
    /// Whether the earlier run's answer was kept; if not, the guest was booted twice.
    pub is_kept: bool,
}

/// See [`Lab::answer`].
pub(crate) fn answer(
    lab: &Lab,
    machine: &Machine,
    job: &Job,
    line: &mut dyn FnMut(&str),
) -> Result<Answer> {
    let (answer, _) = asked(lab, machine, job, line)?;
    Ok(answer)
}

/// See [`Lab::repeat`].
pub(crate) fn repeat(lab: &Lab, machine: &Machine, job: &Job) -> Result<Repeat> {
    let mut before = Vec::new();
    let (answer, kept) = asked(lab, machine, job, &mut |line| before.push(line.to_owned()))?;
    let mut lines = Vec::new();
    let now = vm::run(lab, machine, job, &mut |line| lines.push(line.to_owned()))?;
    compare((&before, answer.status), (&lines, now.status), kept)?;
    Ok(Repeat {
        lines,
        status: now.status,
        is_kept: answer.is_kept,
    })
}

/// Refuses two runs that differ, by the first line in which they do.
fn compare(before: (&[String], i32), now: (&[String], i32), kept: Option<PathBuf>) -> Result<()> {
    let said = |(lines, status): (&[String], i32), at: usize| match at.cmp(&lines.len()) {
        Ordering::Less => lines[at].clone(),
        Ordering::Equal => format!("(ended with status {status})"),
        Ordering::Greater => unreachable!("both have ended before line {at}"),
    };
    let shared = before.0.iter().zip(now.0).take_while(|(a, b)| a == b);
    let at = shared.count();
    if before == now {
        return Ok(());
    }
    Err(LabError::Differs {
        line: at + 1,
        before: said(before, at),
        now: said(now, at),
        kept,
    })
}

/// The answer, and where it is kept if it was kept before.
fn asked(
    lab: &Lab,
    machine: &Machine,
    job: &Job,
    line: &mut dyn FnMut(&str),
) -> Result<(Answer, Option<PathBuf>)> {
    let is_kept = matches!(machine.clock, Clock::Lockstep { .. });
    if !is_kept || std::env::var_os(AGAIN).is_some() {
        let status = vm::run(lab, machine, job, line)?.status;
        let answer = Answer {
            status,
            is_kept: false,
        };
        return Ok((answer, None));
    }
    let guest = vm::prepare(lab, machine, job)?;
    let name = name(&guest)?;
    let answer = given(&lab.cache, &name, line, |line| {
        guest.run(line).map(|outcome| outcome.status)
    })?;
    let kept = answer.is_kept.then(|| lab.cache.dir().join(&name));
    Ok((answer, kept))
}

/// What is kept under `name`, or what `boot` says now.
fn given(
    cache: &Cache,
    name: &str,
    line: &mut dyn FnMut(&str),
    boot: impl FnOnce(&mut dyn FnMut(&str)) -> Result<i32>,
) -> Result<Answer> {
    if let Some(entry) = cache.find(name) {
        let path = entry.join(FILE);
        let said = fs::read_to_string(&path).map_err(LabError::io("reading", &path))?;
        said.lines().for_each(line);
        return Ok(Answer {
            status: 0,
            is_kept: true,
        });
    }
    let mut said = String::new();
    let status = boot(&mut |text: &str| {
        line(text);
        said.push_str(text);
        said.push('\n');
    })?;
    if status == 0 {
        // What was said is known. On a full disk the next one boots a guest again.
        let _ = cache.entry(name, |dir| {
            let path = dir.join(FILE);
            fs::write(&path, &said).map_err(LabError::io("writing", &path))
        });
    }
    Ok(Answer {
        status,
        is_kept: false,
    })
}

/// The entry's name, by all that can make a difference (A2).
fn name(guest: &Prepared) -> Result<String> {
    let given = guest.given()?;
    let digest = digest(given.iter().map(Vec::as_slice));
    Ok(format!("answer-{digest}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::costs::Costs;
    use crate::image::Image;
    use crate::kernel::Kernel;
    use crate::qemu::Qemu;

    fn asked(cache: &Cache, boots: Option<i32>) -> (Answer, Vec<String>) {
        let mut lines = Vec::new();
        let mut line = |text: &str| lines.push(text.to_owned());
        let answer = given(cache, "answer-1", &mut line, |line| {
            line("one");
            line("two");
            Ok(boots.expect("a guest was booted"))
        });
        (answer.unwrap(), lines)
    }

    #[test]
    fn what_a_guest_said_is_kept_and_said_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let (booted, lines) = asked(&cache, Some(0));
        assert_eq!((booted.status, booted.is_kept), (0, false));
        let (kept, again) = asked(&cache, None);
        assert_eq!((kept.status, kept.is_kept), (0, true));
        assert_eq!(
            (lines, again),
            (
                vec!["one".into(), "two".into()],
                vec!["one".into(), "two".into()]
            )
        );
    }

    #[test]
    fn runs_that_differ_are_refused_by_the_first_line_and_with_the_remedy() {
        let said = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let one = said("one\ntwo\nthree");
        compare((&one, 0), (&one, 0), None).unwrap();
        let refused = |now: &str, status, kept: Option<&str>| {
            let kept = kept.map(PathBuf::from);
            let error = compare((&one, 0), (&said(now), status), kept).unwrap_err();
            error.to_string()
        };
        let error = refused("one\n2\nthree", 0, Some("/cache/answer-1"));
        assert!(
            error.contains("line 2:\n  before: two\n  now:    2\n"),
            "{error}"
        );
        assert!(error.contains("remedy: GIVEWAY_AGAIN=1"), "{error}");
        assert!(error.contains("rm -r /cache/answer-1"), "{error}");
        let error = refused("one\ntwo", 0, None);
        let ended = "line 3:\n  before: three\n  now:    (ended with status 0)\n";
        assert!(error.contains(ended), "{error}");
        assert!(error.contains("both were booted"), "{error}");
        let error = refused("one\ntwo\nthree", 1, None);
        assert!(
            error.contains("line 4:\n  before: (ended with status 0)"),
            "{error}"
        );
    }

    #[test]
    fn what_failed_is_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        assert_eq!(asked(&cache, Some(1)).0.status, 1);
        assert!(!asked(&cache, Some(0)).0.is_kept);
    }

    #[test]
    fn an_answer_that_cannot_be_kept_is_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(&dir.path().join("not there"));
        let (answer, lines) = asked(&cache, Some(0));
        assert_eq!((answer.status, answer.is_kept), (0, false));
        assert_eq!(lines, ["one", "two"]);
    }

    /// A lab of empty files, whose guests can be prepared.
    fn lab(dir: &Path) -> Lab {
        let lab = Lab {
            cache: Cache::at(dir),
            kernel: Kernel::at(dir),
            qemu: Qemu::at(dir),
            image: Image::in_entry(dir),
        };
        let parts = [lab.qemu(), lab.kernel.image(), lab.kernel.initrd()];
        for part in parts.iter().map(PathBuf::as_path).chain([lab.image()]) {
            fs::write(part, "v1").unwrap();
        }
        lab
    }

    #[test]
    fn whatever_enters_a_guest_makes_a_difference_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let lab = lab(dir.path());
        let files = dir.path().join("files");
        fs::create_dir(&files).unwrap();
        fs::write(files.join("program"), "v1").unwrap();
        let machine = Machine::default();
        let job = Job::script("true").file(&files, "files");
        let of =
            |machine: &Machine, job: &Job| name(&vm::prepare(&lab, machine, job).unwrap()).unwrap();
        let first = of(&machine, &job);
        // Another directory of devices, another patience, another age of the file.
        let patient = Machine {
            timeout: 2 * machine.timeout,
            ..machine.clone()
        };
        let program = fs::File::open(files.join("program")).unwrap();
        program.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(first, of(&patient, &job.clone()));
        let costs = Costs::find("sapphire-rapids-vm").unwrap();
        let mut others = vec![
            of(&machine, &Job::script("true").file(&files, "other")),
            of(&machine, &Job::script("false").file(&files, "files")),
            of(&machine, &job.clone().env("A", "1")),
        ];
        for other in [
            Machine {
                seed: 2,
                ..machine.clone()
            },
            Machine {
                cpus: 2,
                ..machine.clone()
            },
            Machine {
                sockets: 2,
                ..machine.clone()
            },
            Machine {
                numa_nodes: 2,
                ..machine.clone()
            },
            Machine {
                memory_mib: 2048,
                ..machine.clone()
            },
            Machine {
                clock: Clock::LOOSE,
                ..machine.clone()
            },
            Machine {
                clock: Clock::LOCKSTEP.with_quantum(5_000),
                ..machine.clone()
            },
            Machine {
                clock: Clock::LOCKSTEP.with_costs(costs),
                ..machine.clone()
            },
            Machine {
                user_interrupts: true,
                ..machine.clone()
            },
            Machine {
                kernel_args: vec!["quiet".into()],
                ..machine.clone()
            },
        ] {
            others.push(of(&other, &job));
        }
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(files.join("program"), executable).unwrap();
        others.push(of(&machine, &job));
        fs::write(files.join("program"), "v2").unwrap();
        others.push(of(&machine, &job));
        let parts = [lab.qemu(), lab.kernel.image(), lab.kernel.initrd()];
        for part in parts.iter().map(PathBuf::as_path).chain([lab.image()]) {
            fs::write(part, "newer").unwrap();
            others.push(of(&machine, &job));
            // Of the same size, but made anew.
            let part = fs::File::open(part).unwrap();
            part.set_modified(std::time::UNIX_EPOCH).unwrap();
            others.push(of(&machine, &job));
        }
        others.push(first);
        let all = others.len();
        others.sort();
        others.dedup();
        assert_eq!(others.len(), all, "two of them are the same");
    }

    /// A price is in a file of its own, beside the devices.
    #[test]
    fn what_a_cost_model_says_makes_a_difference() {
        let dir = tempfile::tempdir().unwrap();
        let lab = lab(dir.path());
        let costs = Costs::find("sapphire-rapids-vm").unwrap();
        let machine = Machine {
            clock: Clock::LOCKSTEP.with_costs(costs),
            ..Machine::default()
        };
        let guest = vm::prepare(&lab, &machine, &Job::new(["true"])).unwrap();
        let given = guest.given().unwrap();
        let costs = costs.file(machine.cpus);
        assert!(given.iter().any(|part| part == costs.as_bytes()));
    }
}
