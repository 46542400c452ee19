//! One round: sets the marks of all pods' cgroups to what the pods may have.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use giveway_tier::Tier;

use crate::pod_cgroup;
use crate::request::{Refusal, Request, Rights};
use crate::runtime::Sandbox;

/// A mark that was set, changed or taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `NAMESPACE/NAME`, or the directory of a cgroup whose pod is unknown.
    pub pod: String,
    /// What it is marked with now.
    pub tier: Option<Tier>,
}

/// What a round did.
#[derive(Debug, Default)]
pub struct Round {
    /// Pods that are in another tier than before.
    pub changes: Vec<Change>,
    /// Pods whose request does not count, or could not be carried out, and why.
    pub refused: Vec<(String, Refusal)>,
}

/// Makes the marks of the pods' cgroups below `top` what `running` ask for and, by
/// `rights`, may have. `by_root`, `read` and `write` do as [`giveway_tier::mark`] does.
///
/// A cgroup whose pod the runtime does not name loses its mark: a pod that is about
/// to start gets one in the next round, one that has ended takes its own along.
pub fn round(
    top: &Path,
    running: &[Sandbox],
    rights: &Rights,
    by_root: &dyn Fn(&Path) -> bool,
    read: &dyn Fn(&Path) -> io::Result<Option<Tier>>,
    write: &mut dyn FnMut(&Path, Option<Tier>) -> io::Result<()>,
) -> Round {
    let running: HashMap<&str, &Sandbox> =
        running.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
    let mut done = Round::default();
    for (uid, dir) in pod_cgroup::pods(top, by_root) {
        let pod = running.get(uid.as_str()).copied();
        let name = pod.map_or_else(
            || dir.display().to_string(),
            |pod| format!("{}/{}", pod.namespace, pod.name),
        );
        let request = pod.map_or(Request::None, |pod| Request::of(pod, rights));
        let mark = request.mark();
        if let Request::Refused(why) = request {
            done.refused.push((name.clone(), why));
        }
        match settle(&dir, mark, read, write) {
            Ok(true) => done.changes.push(Change {
                pod: name,
                tier: mark,
            }),
            Ok(false) => {}
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => done.refused.push((name, Refusal::Unmarked { dir, error })),
        }
    }
    done
}

/// Makes one mark what it is to be; whether it was not.
fn settle(
    dir: &Path,
    wanted: Option<Tier>,
    read: &dyn Fn(&Path) -> io::Result<Option<Tier>>,
    write: &mut dyn FnMut(&Path, Option<Tier>) -> io::Result<()>,
) -> io::Result<bool> {
    let has = match read(dir) {
        // Not ours; it is replaced.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        Ok(has) if has == wanted => return Ok(false),
        other => other?,
    };
    write(dir, wanted)?;
    Ok(has != wanted)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::request::ANNOTATION;

    /// Pods that exist, and the marks of their cgroups.
    struct Node {
        top: tempfile::TempDir,
        running: Vec<Sandbox>,
        marks: RefCell<BTreeMap<PathBuf, Tier>>,
        writes: Cell<u32>,
    }

    impl Round {
        fn is_empty(&self) -> bool {
            self.changes.is_empty() && self.refused.is_empty()
        }
    }

    impl Node {
        fn new() -> Self {
            Node {
                top: tempfile::tempdir().unwrap(),
                running: Vec::new(),
                marks: RefCell::default(),
                writes: Cell::new(0),
            }
        }

        fn dir(&self, number: u32) -> PathBuf {
            self.top.path().join(format!("kubepods/pod{number:032x}"))
        }

        fn start(&mut self, number: u32, namespace: &str, annotation: &str) {
            fs::create_dir_all(self.dir(number)).unwrap();
            self.running.push(Sandbox {
                uid: format!("{number:032x}"),
                name: format!("pod-{number}"),
                namespace: namespace.into(),
                annotations: [(ANNOTATION.to_owned(), annotation.to_owned())].into(),
            });
        }

        fn round(&self) -> Round {
            let rights = Rights::new(["trusted".to_owned()]);
            round(
                self.top.path(),
                &self.running,
                &rights,
                &|_| true,
                &|dir| Ok(self.marks.borrow().get(dir).copied()),
                &mut |dir, tier| {
                    self.writes.set(self.writes.get() + 1);
                    match tier {
                        Some(tier) => self.marks.borrow_mut().insert(dir.into(), tier),
                        None => self.marks.borrow_mut().remove(dir),
                    };
                    Ok(())
                },
            )
        }
    }

    #[test]
    fn annotations_become_marks_once() {
        let mut node = Node::new();
        node.start(1, "shop", "background");
        node.start(2, "trusted", "time_sensitive");
        let done = node.round();
        assert!(done.refused.is_empty(), "{done:?}");
        assert_eq!(
            done.changes,
            [
                Change {
                    pod: "shop/pod-1".into(),
                    tier: Some(Tier::Background)
                },
                Change {
                    pod: "trusted/pod-2".into(),
                    tier: Some(Tier::TimeSensitive)
                },
            ]
        );
        assert!(node.round().is_empty());
        assert_eq!(node.writes.get(), 2);
    }

    #[test]
    fn pods_without_the_right_are_reported_and_not_raised() {
        let mut node = Node::new();
        node.start(1, "shop", "time_sensitive");
        let done = node.round();
        assert_eq!(done.changes, []);
        assert_eq!(done.refused[0].0, "shop/pod-1");
        assert!(node.marks.borrow().is_empty());
        // A mark from a time when it might is taken away.
        node.marks
            .borrow_mut()
            .insert(node.dir(1), Tier::TimeSensitive);
        assert_eq!(node.round().changes[0].tier, None);
        assert!(node.marks.borrow().is_empty());
    }

    #[test]
    fn a_mark_ends_with_its_pod() {
        let mut node = Node::new();
        node.start(1, "shop", "background");
        node.round();
        node.running.clear();
        assert_eq!(node.round().changes[0].tier, None);
        assert!(node.marks.borrow().is_empty());
    }

    #[test]
    fn unmarkable_cgroup_is_reported_unless_it_ended() {
        let mut node = Node::new();
        node.start(1, "shop", "background");
        let fails = |kind: io::ErrorKind| {
            round(
                node.top.path(),
                &node.running,
                &Rights::default(),
                &|_| true,
                &|_| Ok(None),
                &mut |_, _| Err(kind.into()),
            )
        };
        let told = fails(io::ErrorKind::PermissionDenied).refused;
        let why = told[0].1.to_string();
        assert!(why.contains("CAP_SYS_ADMIN"), "{why}");
        assert!(fails(io::ErrorKind::NotFound).is_empty());
    }
}
