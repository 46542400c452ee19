//! `lock.weight` of cgroups, on kernels with CFL: set for as long as a program wants it, and
//! put back.
//!
//! ```text
//!   set   1. note cgroup, number, weight, unless lock.weight is there and neither 100,
//!            what Linux gives a new cgroup, nor what was set here; and above it each that
//!            does not hand the controller down
//!         2. write the notes to the record
//!         3. cgroup.subtree_control: +lock, from the top down
//!         4. lock.weight
//!
//!   put   1. lock.weight: 100, if it is what was set, in the cgroup of that number
//!   back  2. cgroup.subtree_control: -lock, from below, where it was not there before and
//!            no cgroup has another weight than 100
//!         3. remove the record
//! ```
//!
//! The record is for the time after a program that was killed: whoever comes next puts back
//! what it says. It is written before anything is changed: putting back compares. A cgroup is
//! a line of it, whoever gave it its name: the kernel takes no name with a line break.
//!
//! Weights of others stay: an administrator's, and those of `giveway run`.
//!
//! Known weaknesses: an administrator's 100 is taken for Linux's own. Of two programs that
//! set the same weight at the same moment, this one puts it back. After a crash between
//! the steps 2 and 3 of setting, a controller is taken for this program's which somebody
//! else has enabled since; it is disabled if no weight below it counts. A cgroup whose path
//! is no UTF-8 is left alone.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::cgroup::Cgroup;
use crate::files;

/// Where the record of the loaded scheduler is.
pub const RECORD: &str = "/run/giveway/lock-weights";

const CONTROLLER: &str = "lock";
const FILE: &str = "lock.weight";
/// What Linux gives a new cgroup.
pub const DEFAULT: u32 = 100;

/// A weight that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    /// The number of the cgroup's directory: another cgroup may have its path by now.
    id: u64,
    weight: u32,
}

/// What was set, and is to be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWeights {
    top: PathBuf,
    record: PathBuf,
    set: BTreeMap<PathBuf, Set>,
    /// Those that hand the controller down and did not before, the outermost first.
    enabled: Vec<PathBuf>,
}

impl LockWeights {
    /// Nothing is set yet in the hierarchy whose top is `top`, but for what a program has
    /// left that was killed: it is put back first.
    pub fn new(top: impl Into<PathBuf>, record: impl Into<PathBuf>) -> Self {
        let mut weights = Self {
            top: top.into(),
            record: record.into(),
            set: BTreeMap::new(),
            enabled: Vec::new(),
        };
        weights.read();
        weights.put_back();
        weights
    }

    /// Puts back what the program has left that wrote `record`, and was killed.
    pub fn put_back_of(record: impl Into<PathBuf>) {
        Self::new("/", record);
    }

    /// Sets the weights of these cgroups, which are below the top. Best effort: the kernel
    /// may refuse, and a weight that is somebody else's stays.
    ///
    /// # Errors
    /// If the record cannot be written. Then nothing is changed.
    pub fn set(&mut self, wanted: &[(PathBuf, u32)]) -> io::Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let kept = self.clone();
        let mut todo = Vec::new();
        for (dir, weight) in wanted {
            let Ok(about) = fs::metadata(dir) else {
                continue;
            };
            let id = about.ino();
            let before = self.set.get(dir).filter(|set| set.id == id);
            let before = before.map_or(DEFAULT, |set| set.weight);
            let now = Cgroup::at(dir).read(FILE);
            let is_given = now.is_ok_and(|now| now != before.to_string());
            if before == *weight || is_given || dir.to_str().is_none() {
                continue;
            }
            for above in self.above(dir) {
                if !Cgroup::at(&above).has_below(CONTROLLER) && !self.enabled.contains(&above) {
                    self.enabled.push(above);
                }
            }
            let weight = *weight;
            self.set.insert(dir.clone(), Set { id, weight });
            todo.push((dir, before, weight));
        }
        if todo.is_empty() {
            return Ok(());
        }
        self.set.retain(|dir, set| is_at(dir, set.id));
        self.enabled.retain(|dir| dir.exists());
        if let Err(error) = files::replace(&self.record, self.text().as_bytes()) {
            *self = kept;
            return Err(error);
        }
        for (dir, before, weight) in todo {
            for above in self.above(dir) {
                let above = Cgroup::at(above);
                if !above.has_below(CONTROLLER) {
                    // What it refuses shows at the weight.
                    let _ = above.enable("+lock");
                }
            }
            if !Cgroup::at(dir).exchange(FILE, &before.to_string(), &weight.to_string()) {
                self.set.remove(dir);
            }
        }
        Ok(())
    }

    /// Puts back what was set, and is still so.
    pub fn put_back(&mut self) {
        for (dir, set) in std::mem::take(&mut self.set) {
            if is_at(&dir, set.id) {
                let (now, then) = (set.weight.to_string(), DEFAULT.to_string());
                Cgroup::at(dir).exchange(FILE, &now, &then);
            }
        }
        for dir in std::mem::take(&mut self.enabled).into_iter().rev() {
            let dir = Cgroup::at(dir);
            let counts = |child: PathBuf| {
                let weight = Cgroup::at(child).read(FILE);
                weight.is_ok_and(|weight| weight != DEFAULT.to_string())
            };
            if !dir.children().into_iter().any(counts) {
                // Refused if one below still hands it down.
                let _ = dir.enable("-lock");
            }
        }
        // Not there if nothing was set.
        let _ = fs::remove_file(&self.record);
    }

    /// The cgroups above this one, from the top down.
    fn above(&self, dir: &Path) -> Vec<PathBuf> {
        let above = dir.ancestors().skip(1);
        let mut above: Vec<PathBuf> = above
            .take_while(|dir| dir.starts_with(&self.top))
            .map(Path::to_path_buf)
            .collect();
        above.reverse();
        above
    }

    fn text(&self) -> String {
        let set = self.set.iter();
        let set = set.map(|(dir, Set { id, weight })| format!("{weight} {id} {}\n", dir.display()));
        let enabled = self.enabled.iter();
        set.chain(enabled.map(|dir| format!("+ {}\n", dir.display())))
            .collect()
    }

    /// Reads the record; of another version no more than is understood.
    fn read(&mut self) {
        for line in files::read(&self.record).unwrap_or_default().lines() {
            match line.split_once(' ') {
                Some(("+", dir)) => self.enabled.push(dir.into()),
                Some((weight, rest)) => {
                    let Some((id, dir)) = rest.split_once(' ') else {
                        continue;
                    };
                    if let (Ok(weight), Ok(id)) = (weight.parse(), id.parse()) {
                        self.set.insert(dir.into(), Set { id, weight });
                    }
                }
                None => {}
            }
        }
    }
}

/// Whether the cgroup of this number is still there.
fn is_at(dir: &Path, id: u64) -> bool {
    fs::metadata(dir).is_ok_and(|about| about.ino() == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hierarchy with these cgroups, of which each has the weight that Linux gives it. A
    /// directory keeps no rules: its last request to enable or disable stays in its file.
    fn hierarchy(cgroups: &[&str]) -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("cgroup.subtree_control"), "").unwrap();
        for path in cgroups {
            let dir = top.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(FILE), "100\n").unwrap();
            fs::write(dir.join("cgroup.subtree_control"), "").unwrap();
        }
        top
    }

    fn weights(top: &tempfile::TempDir) -> LockWeights {
        LockWeights::new(top.path(), top.path().join("record"))
    }

    fn read(top: &tempfile::TempDir, path: &str) -> String {
        let text = fs::read_to_string(top.path().join(path)).unwrap();
        text.trim().to_owned()
    }

    #[test]
    fn weights_are_set_with_the_controller_above_and_put_back() {
        let top = hierarchy(&["a", "a/b", "c"]);
        let mut set = weights(&top);
        set.set(&[(top.path().join("a/b"), 1)]).unwrap();
        assert_eq!(read(&top, "a/b/lock.weight"), "1");
        assert_eq!(read(&top, "a/lock.weight"), "100");
        for above in ["", "a/"] {
            assert_eq!(
                read(&top, &format!("{above}cgroup.subtree_control")),
                "+lock"
            );
        }
        assert_eq!(read(&top, "a/b/cgroup.subtree_control"), "");
        assert!(top.path().join("record").exists());
        // Another weight, and again the first that Linux gave.
        set.set(&[(top.path().join("a/b"), 10_000)]).unwrap();
        assert_eq!(read(&top, "a/b/lock.weight"), "10000");
        set.put_back();
        assert_eq!(read(&top, "a/b/lock.weight"), "100");
        for above in ["", "a/"] {
            assert_eq!(
                read(&top, &format!("{above}cgroup.subtree_control")),
                "-lock"
            );
        }
        assert!(!top.path().join("record").exists());
    }

    #[test]
    fn weights_of_others_stay() {
        let top = hierarchy(&["given", "changed"]);
        fs::write(top.path().join("given/lock.weight"), "300\n").unwrap();
        let mut set = weights(&top);
        let dirs = ["given", "changed"].map(|name| (top.path().join(name), 1));
        set.set(&dirs).unwrap();
        assert_eq!(read(&top, "given/lock.weight"), "300");
        assert_eq!(read(&top, "changed/lock.weight"), "1");
        fs::write(top.path().join("changed/lock.weight"), "7\n").unwrap();
        set.put_back();
        assert_eq!(read(&top, "given/lock.weight"), "300");
        assert_eq!(read(&top, "changed/lock.weight"), "7");
        // They still count.
        assert_eq!(read(&top, "cgroup.subtree_control"), "+lock");
    }

    #[test]
    fn controller_that_was_enabled_before_stays_enabled() {
        let top = hierarchy(&["a"]);
        fs::write(top.path().join("cgroup.subtree_control"), "cpu lock\n").unwrap();
        let mut set = weights(&top);
        set.set(&[(top.path().join("a"), 1)]).unwrap();
        set.put_back();
        assert_eq!(read(&top, "a/lock.weight"), "100");
        assert_eq!(read(&top, "cgroup.subtree_control"), "cpu lock");
    }

    #[test]
    fn next_program_puts_back_what_a_killed_one_has_left() {
        let top = hierarchy(&["a b", "gone", "given"]);
        fs::write(top.path().join("given/lock.weight"), "50\n").unwrap();
        let mut set = weights(&top);
        let dirs = ["a b", "gone", "given"].map(|name| (top.path().join(name), 50));
        set.set(&dirs).unwrap();
        drop(set);
        assert_eq!(read(&top, "a b/lock.weight"), "50");
        // Another cgroup by now, whose weight is an administrator's.
        let [gone, aside] = ["gone", "aside"].map(|name| top.path().join(name));
        fs::rename(&gone, aside).unwrap();
        fs::create_dir(&gone).unwrap();
        fs::write(gone.join(FILE), "50\n").unwrap();
        LockWeights::put_back_of(top.path().join("record"));
        assert_eq!(read(&top, "a b/lock.weight"), "100");
        assert_eq!(read(&top, "gone/lock.weight"), "50");
        assert_eq!(read(&top, "given/lock.weight"), "50");
        assert!(!top.path().join("record").exists());
    }

    #[test]
    fn nothing_is_changed_without_a_record() {
        let top = hierarchy(&["a"]);
        let record = top.path().join("dir/record");
        fs::create_dir(record.parent().unwrap()).unwrap();
        let mut set = LockWeights::new(top.path(), &record);
        let dirs = |weight| [(top.path().join("a"), weight)];
        fs::rename(top.path().join("dir"), top.path().join("away")).unwrap();
        assert!(set.set(&dirs(1)).is_err());
        assert_eq!(read(&top, "a/lock.weight"), "100");
        assert_eq!(read(&top, "cgroup.subtree_control"), "");
        // What was set before is put back all the same.
        fs::rename(top.path().join("away"), top.path().join("dir")).unwrap();
        set.set(&dirs(1)).unwrap();
        fs::rename(top.path().join("dir"), top.path().join("away")).unwrap();
        assert!(set.set(&dirs(7)).is_err());
        assert_eq!(read(&top, "a/lock.weight"), "1");
        set.put_back();
        assert_eq!(read(&top, "a/lock.weight"), "100");
    }
}
