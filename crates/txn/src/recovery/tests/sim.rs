//! A disk in memory that promises what [`Disk`] says and nothing beyond: at a
//! crash it loses whatever may be lost, as a seed decides.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::log::{Disk, DiskFile};
use rand::Rng;

/// What a disk writes in one piece.
pub(super) const PAGE: usize = 4096;

/// What happens at the operation with a given number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The machine stops: the operation happens in part, later ones do not.
    Crash(u64),
    /// The operation fails, and all after it succeed.
    Error(u64),
    /// Nothing.
    Never,
}

#[derive(Clone, Debug)]
pub(super) struct Sim(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    fault: Fault,
    operations: u64,
    crashed: bool,
    /// Names of files whose medium is damaged.
    unreadable: BTreeSet<String>,
    files: Vec<Contents>,
    /// Names as the running system sees them.
    names: BTreeMap<String, usize>,
    /// Names that last.
    lasting: BTreeMap<String, usize>,
    /// Changes of names since the last sync of names.
    changes: Vec<Change>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    /// So many bytes last.
    synced: usize,
    /// A sync failed: no later one makes these last, unless they are written again
    /// (D3).
    lost: Range<usize>,
    /// How often something was appended since the last sync.
    appended: usize,
    /// What was cut off since the last sync, and may come back.
    cut: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Change {
    Link(String, usize),
    Unlink(String),
    Rename(String, String, usize),
}

impl Sim {
    pub(super) fn new(fault: Fault) -> Sim {
        Sim(Arc::new(Mutex::new(State {
            fault,
            operations: 0,
            crashed: false,
            unreadable: BTreeSet::new(),
            files: Vec::new(),
            names: BTreeMap::new(),
            lasting: BTreeMap::new(),
            changes: Vec::new(),
        })))
    }

    /// Damages the medium under a file.
    pub(super) fn make_unreadable(&self, name: &str) {
        self.0.lock().unwrap().unreadable.insert(name.to_owned());
    }

    /// Operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.0.lock().unwrap().operations
    }

    /// Appends to one file that no sync has followed.
    pub(super) fn appended(&self) -> usize {
        let state = self.0.lock().unwrap();
        let appended = state.files.iter().map(|file| file.appended);
        appended.max().unwrap_or(0)
    }

    /// The disk as the machine finds it when it starts again: of each file it may lack
    /// everything that was not synced.
    pub(super) fn after_crash(&self, random: &mut impl Rng, fault: Fault) -> Sim {
        self.after_crash_losing(random, fault, |random, bytes, synced| {
            bytes.truncate(random.random_range(synced..=bytes.len()));
            // What the length covers may not have been written, in any block.
            let blocks = bytes[synced..].chunks_mut(16);
            blocks
                .filter(|_| random.random_ratio(1, 4))
                .for_each(|block| block.fill(0));
        })
    }

    /// The same, with a function that takes from each file what was not synced: its
    /// bytes from a position on.
    pub(super) fn after_crash_losing<R: Rng>(
        &self,
        random: &mut R,
        fault: Fault,
        mut lose: impl FnMut(&mut R, &mut Vec<u8>, usize),
    ) -> Sim {
        let state = self.0.lock().unwrap();
        let mut names = state.lasting.clone();
        for change in &state.changes {
            if random.random() {
                change.apply(&mut names);
            }
        }
        let mut files = Vec::new();
        for place in names.values_mut() {
            let mut file = state.files[*place].clone();
            if random.random() {
                file.bytes.append(&mut file.cut);
            }
            lose(random, &mut file.bytes, file.synced);
            file.settle();
            *place = files.len();
            files.push(file);
        }
        let new = Sim::new(fault);
        {
            let mut new = new.0.lock().unwrap();
            new.files = files;
            new.lasting = names.clone();
            new.names = names;
        }
        new
    }

    /// The disk as the machine may find it when it starts again, once for each page
    /// that may not have been written, though everything else was.
    pub(super) fn each_lacking_a_page(&self) -> impl Iterator<Item = Sim> {
        let lacking: Vec<(usize, usize, usize)> = {
            let state = self.0.lock().unwrap();
            let files = state.files.iter().enumerate();
            files
                .flat_map(|(index, file)| {
                    let (synced, length) = (file.synced, file.bytes.len());
                    let pages = (synced / PAGE..length.div_ceil(PAGE)).map(|page| page * PAGE);
                    pages.map(move |at| (index, at.max(synced), length.min(at + PAGE)))
                })
                .collect()
        };
        let whole = self.after_kill();
        lacking.into_iter().map(move |(file, from, to)| {
            let sim = whole.after_kill();
            sim.0.lock().unwrap().files[file].bytes[from..to].fill(0);
            sim
        })
    }

    /// How many bytes of a file last.
    pub(super) fn synced(&self, name: &str) -> usize {
        let state = self.0.lock().unwrap();
        state.files[state.names[name]].synced
    }

    /// From now on, something else happens.
    pub(super) fn set_fault(&self, fault: Fault) {
        self.0.lock().unwrap().fault = fault;
    }

    /// The disk as another process finds it after this one was killed.
    pub(super) fn after_kill(&self) -> Sim {
        let state = self.0.lock().unwrap();
        let new = Sim::new(Fault::Never);
        {
            let mut new = new.0.lock().unwrap();
            new.files = state.files.clone();
            new.lasting = state.names.clone();
            new.names = state.names.clone();
        }
        new
    }

    /// All files, to be damaged.
    pub(super) fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock().unwrap();
        let file = state.names[name];
        edit(&mut state.files[file].bytes);
    }
}

impl Contents {
    /// Writes at `at`, over the same bytes (D4) or behind all.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let same = bytes.len().min(self.bytes.len() - at);
        assert_eq!(self.bytes[at..][..same], bytes[..same], "D4");
        self.bytes.extend_from_slice(&bytes[same..]);
        self.appended += 1;
        let end = at + bytes.len();
        if (at..end).contains(&self.lost.start) {
            self.lost.start = end.min(self.lost.end);
        }
    }

    fn sync(&mut self) {
        self.synced = match self.lost.is_empty() {
            true => self.bytes.len(),
            false => self.lost.start,
        };
        self.cut.clear();
        self.appended = 0;
    }

    /// A sync failed.
    fn lose(&mut self) {
        self.lost = self.synced..self.bytes.len();
    }

    fn cut(&mut self, end: usize) {
        if end < self.bytes.len() {
            let cut = self.bytes.split_off(end);
            self.cut.splice(..0, cut);
            self.synced = self.synced.min(end);
            self.lost.end = self.lost.end.min(end);
        }
    }

    /// It is on disk as it is.
    fn settle(&mut self) {
        self.lost = 0..0;
        self.sync();
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Change::Link(name, file) => {
                names.insert(name.clone(), *file);
            }
            Change::Unlink(name) => {
                names.remove(name);
            }
            Change::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }
}

impl State {
    /// Counts an operation; whether it happens in full.
    fn operation(&mut self) -> io::Result<bool> {
        self.operations += 1;
        if self.crashed {
            return Err(io::Error::other("the machine has stopped"));
        }
        match self.fault {
            Fault::Crash(at) if at == self.operations => {
                self.crashed = true;
                Ok(false)
            }
            Fault::Error(at) if at == self.operations => Ok(false),
            _ => Ok(true),
        }
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        let whole = self.operation()?;
        if whole || self.crashed {
            // Whether it lasts is open anyway.
            change.apply(&mut self.names);
            self.changes.push(change);
        }
        result(whole)
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        let found = self.names.get(name).copied();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

fn result(whole: bool) -> io::Result<()> {
    match whole {
        true => Ok(()),
        false => Err(io::Error::other("injected")),
    }
}

struct Handle {
    sim: Sim,
    file: usize,
    /// Where the next bytes go.
    at: usize,
}

impl Disk for Sim {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock().unwrap();
        let file = state.files.len();
        state.files.push(Contents::default());
        state.change(Change::Link(name.to_owned(), file))?;
        let (sim, at) = (self.clone(), 0);
        Ok(Box::new(Handle { sim, file, at }))
    }

    fn overwrite(&self, name: &str, from: u64, end: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock().unwrap();
        let file = state.find(name)?;
        let whole = state.operation()?;
        if whole || state.crashed {
            // Whether it lasts is open anyway.
            state.files[file].cut(end as usize);
        }
        result(whole)?;
        let (sim, at) = (self.clone(), from as usize);
        Ok(Box::new(Handle { sim, file, at }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.0.lock().unwrap();
        match state.unreadable.contains(name) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(state.files[state.find(name)?].bytes.clone()),
        }
    }

    fn stream(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.read(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let file = state.find(from)?;
        state.change(Change::Rename(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.find(name)?;
        state.change(Change::Unlink(name.to_owned()))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().unwrap().names.keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let whole = state.operation()?;
        if whole {
            state.lasting = state.names.clone();
            state.changes.clear();
        }
        result(whole)
    }

    fn describe(&self, name: &str) -> String {
        format!("sim/{name}")
    }
}

impl DiskFile for Handle {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.sim.0.lock().unwrap();
        let whole = state.operation()?;
        let part = if whole { bytes.len() } else { bytes.len() / 2 };
        state.files[self.file].write(self.at, &bytes[..part]);
        self.at += part;
        result(whole)
    }

    fn sync(&mut self) -> io::Result<()> {
        // Time for the next round's work to gather.
        std::thread::sleep(Duration::from_micros(50));
        let mut state = self.sim.0.lock().unwrap();
        let whole = state.operation()?;
        let file = &mut state.files[self.file];
        match whole {
            true => file.sync(),
            false => file.lose(),
        }
        result(whole)
    }
}
