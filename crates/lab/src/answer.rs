//! What a guest said, kept for whoever asks the same again.
//!
//! Problem: a guest takes minutes, and most changes of a workspace change nothing that
//! enters it. Under the lockstep clock a guest that is given the same says the same, to
//! the last time stamp, so that booting it again shows nothing.
//!
//! ```text
//! Machine + Job + parts of the lab ─► digest ─► answer-DIGEST in the cache?
//!                                               yes: its lines
//!                                               no:  boot; keep the lines if all went well
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
//! - A2. The digest covers all that can make a difference: emulator, kernel and image, by
//!   path, size and time of their last change, since an entry that is made anew may get
//!   newer packages; the machine, with its seed; the job's command and environment;
//!   name, mode and content of every file that it takes along; and the program that
//!   asks, which holds how a guest is started and prepared. Nothing else enters a guest
//!   (see the crate's page).
//! - A3. An answer is whole or not there: it is an entry of the [cache](crate::cache).
//! - A4. What a repeated run differs from stays as it was, for whoever looks into it.
//!
//! Known weakness: answers are removed only together with the rest of the cache. Each
//! has some kilobytes. Whoever wants to see the guest say it again sets
//! `GIVEWAY_AGAIN=1`.

use std::cmp::Ordering;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::cache::digest;
use crate::error::{LabError, Result};
use crate::machine::{Clock, Machine};
use crate::vm::{self, Job};
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
    let own = Path::new("/proc/self/exe");
    let (qemu, kernel) = (lab.qemu.binary(), lab.kernel.image());
    let name = name(&[&qemu, &kernel, lab.image.path()], machine, job, own)?;
    let answer = given(&lab.cache, &name, line, |line| {
        vm::run(lab, machine, job, line).map(|outcome| outcome.status)
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
fn name(lab: &[&Path], machine: &Machine, job: &Job, own: &Path) -> Result<String> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for path in lab {
        let meta = fs::metadata(path).map_err(LabError::io("looking at", path))?;
        let changed = (meta.mtime(), meta.mtime_nsec());
        parts.push(format!("{} {} {changed:?}", path.display(), meta.len()).into_bytes());
    }
    // How long the host may take is no business of the guest's.
    let machine = Machine {
        timeout: Machine::default().timeout,
        ..machine.clone()
    };
    parts.push(format!("{machine:?}").into_bytes());
    parts.push(job.shell_text().into_bytes());
    for (host, name) in job.files() {
        add(&mut parts, host, name)?;
    }
    add(&mut parts, own, "own")?;
    let digest = digest(parts.iter().map(Vec::as_slice));
    Ok(format!("answer-{digest}"))
}

/// Adds a file, or all below a directory in the order of their names.
fn add(parts: &mut Vec<Vec<u8>>, path: &Path, name: &str) -> Result<()> {
    let meta = fs::metadata(path).map_err(LabError::io("looking at", path))?;
    parts.push(format!("{name} {:o}", meta.permissions().mode()).into_bytes());
    if !meta.is_dir() {
        parts.push(fs::read(path).map_err(LabError::io("reading", path))?);
        return Ok(());
    }
    let entries = fs::read_dir(path).map_err(LabError::io("reading", path))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    for entry in names {
        let name = format!("{name}/{}", entry.to_string_lossy());
        add(parts, &path.join(&entry), &name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn whatever_enters_a_guest_makes_a_difference() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("files")).unwrap();
        fs::write(at("files/program"), "v1").unwrap();
        for file in ["own", "lab-1", "lab-2"] {
            fs::write(at(file), "v1").unwrap();
        }
        let machine = Machine::default();
        let job = Job::script("true").file(at("files"), "files");
        let of = |lab: &str, machine: &Machine, job: &Job| {
            name(&[&at(lab)], machine, job, &at("own")).unwrap()
        };
        let first = of("lab-1", &machine, &job);
        assert_eq!(first, of("lab-1", &machine, &job.clone()));
        let seeded = Machine {
            seed: 2,
            ..machine.clone()
        };
        let patient = Machine {
            timeout: 2 * machine.timeout,
            ..machine.clone()
        };
        assert_eq!(first, of("lab-1", &patient, &job));
        let mut others = vec![
            of("lab-2", &machine, &job),
            of("lab-1", &seeded, &job),
            of("lab-1", &machine, &job.clone().env("A", "1")),
            of(
                "lab-1",
                &machine,
                &Job::script("false").file(at("files"), "files"),
            ),
            of(
                "lab-1",
                &machine,
                &Job::script("true").file(at("files"), "other"),
            ),
        ];
        fs::set_permissions(at("files/program"), fs::Permissions::from_mode(0o755)).unwrap();
        others.push(of("lab-1", &machine, &job));
        fs::write(at("files/program"), "v2").unwrap();
        others.push(of("lab-1", &machine, &job));
        fs::write(at("own"), "v2").unwrap();
        others.push(of("lab-1", &machine, &job));
        fs::write(at("lab-1"), "newer").unwrap();
        others.push(of("lab-1", &machine, &job));
        // Of the same size, but made anew.
        let part = fs::File::open(at("lab-1")).unwrap();
        part.set_modified(std::time::UNIX_EPOCH).unwrap();
        others.push(of("lab-1", &machine, &job));
        others.push(first);
        let all = others.len();
        others.sort();
        others.dedup();
        assert_eq!(others.len(), all, "two of them are the same");
    }
}
