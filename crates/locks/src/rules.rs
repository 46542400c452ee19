//! Which thread belongs to which group, without changing the program.
//!
//! Rules match a thread's name or its cgroup. They are applied when a thread
//! first meets a contended lock, and again by [`register`], which a program (or
//! an interposer that sees `pthread_setname_np`) calls after a change. Applying
//! them allocates nothing, because that first lock may be the allocator's.

use std::ffi::CStr;
use std::fmt;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicPtr, Ordering, fence};

use crate::group::{Group, GroupError};
use crate::thread::{self, Thread};
use giveway_machine::cgroup::{self, Cgroup, MOUNT};
use giveway_machine::errno;

/// Patterns and groups; the first match wins.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    what: What,
    pattern: String,
    group: Group,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    ThreadName,
    Cgroup,
}

static INSTALLED: AtomicPtr<Rules> = AtomicPtr::new(std::ptr::null_mut());

impl Rules {
    /// No rules.
    pub fn new() -> Rules {
        Rules::default()
    }

    /// Threads whose name (15 bytes at most, as the kernel keeps it) matches the
    /// pattern, in which `*` stands for any characters and `?` for one.
    pub fn thread(mut self, pattern: &str, group: Group) -> Rules {
        self.push(What::ThreadName, pattern, group);
        self
    }

    /// Threads whose cgroup v2 path, as in `/proc/thread-self/cgroup`, matches.
    /// Threads of one process differ only in a threaded cgroup.
    pub fn cgroup(mut self, pattern: &str, group: Group) -> Rules {
        self.push(What::Cgroup, pattern, group);
        self
    }

    fn push(&mut self, what: What, pattern: &str, group: Group) {
        self.0.push(Rule {
            what,
            pattern: pattern.to_owned(),
            group,
        });
    }

    /// Uses these rules for every thread that takes a slot from now on.
    pub fn install(self) {
        // The rules before, if any, stay: a thread may be reading them.
        INSTALLED.store(Box::into_raw(Box::new(self)), Ordering::Release);
    }

    fn group_for(&self, name: &[u8], cgroup: impl FnOnce() -> CgroupPath) -> Option<Group> {
        let needed = self.0.iter().any(|rule| rule.what == What::Cgroup);
        let cgroup = if needed { cgroup() } else { CgroupPath::NONE };
        let matching = self.0.iter().find(|rule| {
            let text = match rule.what {
                What::ThreadName => name,
                What::Cgroup => cgroup.bytes(),
            };
            matches(rule.pattern.as_bytes(), text)
        });
        matching.map(|rule| rule.group)
    }

    fn place(&self, thread: &Thread, name: &[u8], cgroup: impl FnOnce() -> CgroupPath) {
        if let Some(group) = self.group_for(name, cgroup) {
            thread.assign(group.gid());
        }
    }
}

/// Applies the installed rules to the current thread anew. A group chosen with
/// [`thread::join`] stays.
pub fn register() {
    // Taking a slot applies the rules, so they may be applied twice: no harm.
    if thread::current_index() != 0 {
        apply();
    }
}

/// Applies the installed rules anew to another thread of this process, named by
/// the kernel's thread id. A thread that has not contended yet is left alone:
/// the rules are applied when it does.
pub fn register_other(tid: u32) {
    // Who calls has changed the name before. Pairs with the fence in `apply`:
    // either the slot is seen here, or its thread sees the name.
    fence(Ordering::SeqCst);
    let other = thread::all().find(|thread| thread.tid.load(Ordering::Relaxed) == tid);
    if let (Some(rules), Some(other)) = (installed(), other) {
        let mut name = [0; 16];
        let length = read(format_args!("/proc/self/task/{tid}/comm"), &mut name);
        let name = name[..length].strip_suffix(b"\n").unwrap_or_default();
        let cgroup = || cgroup(format_args!("/proc/self/task/{tid}/cgroup"));
        rules.place(other, name, cgroup);
    }
}

/// Puts the current thread into a group named after its cgroup, with the weight
/// of the cgroup's `cpu.weight` (Section 3.4.2), and returns the group.
///
/// # Errors
/// If the thread's cgroup cannot be read or no group can be made.
pub fn register_by_cgroup() -> Result<Group, CgroupError> {
    let path = current_cgroup();
    let path = std::str::from_utf8(path.bytes()).map_err(|_| CgroupError::NoCgroup)?;
    if path.is_empty() {
        return Err(CgroupError::NoCgroup);
    }
    let tail = path.char_indices().map(|(at, _)| &path[at..]);
    let name = tail
        .into_iter()
        .find(|name| name.len() <= 64)
        .unwrap_or("/");
    let group = Group::new(name)?;
    // The root cgroup has no weight of its own.
    let weight = Cgroup::below(MOUNT.as_ref(), path.as_ref())
        .read("cpu.weight")
        .ok()
        .and_then(|text| weight_of(&text));
    let group = group.weight(weight.unwrap_or(crate::account::DEFAULT_WEIGHT))?;
    thread::join(group);
    Ok(group)
}

/// The weight of a cgroup by its `cpu.weight`, which is 0 where `cpu.idle` is set: such a
/// cgroup has the least that there is.
fn weight_of(cpu_weight: &str) -> Option<u32> {
    let weight: u32 = cpu_weight.trim().parse().ok()?;
    Some(weight.max(1))
}

/// Why a thread could not be registered by its cgroup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CgroupError {
    /// There is no cgroup v2 entry.
    #[error("/proc/thread-self/cgroup has no line of cgroup v2; mount cgroup2 at /sys/fs/cgroup")]
    NoCgroup,
    /// The group could not be made.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// Applies the installed rules to the current thread, which has its slot.
pub(crate) fn apply() {
    fence(Ordering::SeqCst);
    if let (Some(rules), Some(thread)) = (installed(), thread::current()) {
        rules.place(thread, trim(&thread_name()), current_cgroup);
    }
}

fn installed() -> Option<&'static Rules> {
    // SAFETY: null, or a box that `install` made and nobody frees.
    unsafe { INSTALLED.load(Ordering::Acquire).as_ref() }
}

fn thread_name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: PR_GET_NAME writes up to 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

fn trim(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == 0).next().unwrap_or(&[])
}

/// A cgroup path, on the stack.
struct CgroupPath {
    bytes: [u8; 512],
    len: usize,
}

impl CgroupPath {
    const NONE: CgroupPath = CgroupPath {
        bytes: [0; 512],
        len: 0,
    };

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn current_cgroup() -> CgroupPath {
    cgroup(format_args!("/proc/thread-self/cgroup"))
}

/// The cgroup v2 path in this file; empty if there is none, or if it lies
/// beyond what fits on the stack.
fn cgroup(file: fmt::Arguments<'_>) -> CgroupPath {
    let mut buffer = [0; 2048];
    let length = read(file, &mut buffer);
    let mut path = CgroupPath::NONE;
    if let Some(found) = cgroup::path_in(&buffer[..length])
        && let found = found.as_os_str().as_bytes()
        && found.len() <= path.bytes.len()
    {
        path.bytes[..found.len()].copy_from_slice(found);
        path.len = found.len();
    }
    path
}

/// Reads the beginning of a file; 0 bytes if that fails.
fn read(path: fmt::Arguments<'_>, buffer: &mut [u8]) -> usize {
    let mut name = [0; 64];
    // One byte stays zero. A name that was cut names no file.
    let _cut = write!(&mut name[..63], "{path}");
    let Ok(name) = CStr::from_bytes_until_nul(&name) else {
        return 0;
    };
    // SAFETY: the path ends with a zero byte; the buffer is as long as is said;
    // the descriptor is this function's own.
    errno::preserving(|_| unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name.as_ptr(), flags);
        if file < 0 {
            return 0;
        }
        let length = libc::syscall(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len());
        libc::syscall(libc::SYS_close, file);
        usize::try_from(length).unwrap_or(0)
    })
}

/// Whether a pattern, in which `*` stands for any bytes and `?` for one, matches
/// the whole text: what the rules do with names.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // On a mismatch, the last star takes one byte more.
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("rocksdb:low", "rocksdb:low", true),
            ("rocksdb:*", "rocksdb:low12", true),
            ("rocksdb:*", "rocksdb", false),
            ("*low*", "rocksdb:low12", true),
            ("worker-?", "worker-7", true),
            ("worker-?", "worker-17", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_thread_is_placed_by_the_name_that_another_gives_it() {
        let group = Group::new("rules-named").unwrap();
        Rules::new().thread("rules-named", group).install();
        let (ask, asked) = std::sync::mpsc::channel();
        let (answer, answers) = std::sync::mpsc::channel();
        let worker = std::thread::spawn(move || {
            for () in asked {
                // SAFETY: the call has no arguments and cannot fail.
                let tid = unsafe { libc::gettid() } as u32;
                answer.send((tid, thread::group())).unwrap();
            }
        });
        let state = || {
            ask.send(()).unwrap();
            answers.recv().unwrap()
        };
        let (tid, before) = state();
        assert_eq!(before, Group::ROOT);
        std::fs::write(format!("/proc/self/task/{tid}/comm"), "rules-named").unwrap();
        assert_eq!(state().1, Group::ROOT);
        register_other(tid);
        assert_eq!(state().1, group);
        // A name that no rule knows leaves it where it is.
        std::fs::write(format!("/proc/self/task/{tid}/comm"), "other").unwrap();
        register_other(tid);
        assert_eq!(state().1, group);
        drop(ask);
        worker.join().unwrap();
    }

    #[test]
    fn an_idle_cgroup_has_the_least_weight() {
        let read = ["100\n", "0", "10000", "", "max"].map(weight_of);
        assert_eq!(read, [Some(100), Some(1), Some(10_000), None, None]);
    }

    #[test]
    fn the_first_match_wins_and_the_cgroup_is_read_only_if_a_rule_needs_it() {
        let (low, high) = (
            Group::new("rules-low").unwrap(),
            Group::new("rules-high").unwrap(),
        );
        let rules = Rules::new().thread("db:low*", low).thread("db:*", high);
        let unread = || -> CgroupPath { panic!("no rule needs the cgroup") };
        assert_eq!(rules.group_for(b"db:low1", unread), Some(low));
        assert_eq!(rules.group_for(b"db:x", unread), Some(high));
        assert_eq!(rules.group_for(b"main", unread), None);

        let rules = Rules::new().cgroup("/batch*", low);
        let path = || {
            let mut path = CgroupPath::NONE;
            path.bytes[..8].copy_from_slice(b"/batch/1");
            path.len = 8;
            path
        };
        assert_eq!(rules.group_for(b"any", path), Some(low));
    }
}
