//! Claims about who may say what of whom: users with tables of hints, and rights that
//! end.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use giveway_hints::slot::{SLOT_SIZE, Table};
use giveway_tier::Tier;
use io_uring::{IoUring, opcode, types};
use nix::unistd::{ForkResult, Gid, Uid, fork, setgid, setgroups, setresuid, setuid};

use crate::cgroup::Cgroup;
use crate::hinting::{NOBODY, hinted};
use crate::ufs::Ufs;
use crate::worker::Worker;

const MS: Duration = Duration::from_millis(1);
/// A group whose members may rise.
const RISERS: u32 = 4711;

/// Root and another user may use the hints. The other one claims slots in the names of
/// root's tasks, and writes into theirs where it finds them, that they may wait: they
/// have what they had. Of his own tasks it is obeyed.
pub(crate) fn forged(ufs: &mut Ufs) -> Result<String> {
    let group = NOBODY.to_string();
    ufs.load(&["--hint-group", &group])?;
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    let own = [NOBODY.to_string()];
    let (told, attached) = hinted(&sensitive, "time_sensitive", 100, 0)?;
    let tasks = [
        Worker::burner(&sensitive, &[0])?,
        told,
        Worker::start(&sensitive, &[0], "burn-as", &own)?,
        Worker::burner(&sensitive, &[0])?,
    ];
    let used = || -> Result<Vec<f64>> {
        sleep(300 * MS);
        let now = || {
            tasks
                .iter()
                .map(Worker::seconds)
                .collect::<Result<Vec<_>>>()
        };
        let before = now()?;
        sleep(1500 * MS);
        Ok(now()?
            .iter()
            .zip(before)
            .map(|(now, then)| now - then)
            .collect())
    };
    let before = used()?;
    let victims = tasks[..3].iter().map(|task| task.pid().to_string());
    let args: Vec<String> = own.iter().cloned().chain(victims).collect();
    let mut forger = Worker::start(&sensitive, &[1], "forge", &args)?;
    let line = forger.line().context("the forger said nothing")?;
    let after = used()?;
    let told = format!(
        "root's without a slot, root's with one, the user's, one that nobody names: {before:.2?} s \
         before, {after:.2?} s after; {line}"
    );
    if !attached || before.iter().any(|&used| used < 0.3) {
        bail!("{told}: they did not share to begin with");
    }
    // Three share what four did, since the user's own has stepped back.
    if after[2] > 0.1
        || [after[0], after[1], after[3]]
            .iter()
            .any(|&used| used < 0.4)
    {
        bail!("{told}");
    }
    Ok(told)
}

/// A task rises by a group of its user's. The group is taken from it while it asks for
/// nothing, and its credentials may come to lie where those lay by which it rose.
pub(crate) fn revoked(ufs: &mut Ufs) -> Result<String> {
    let group = RISERS.to_string();
    ufs.load(&["--hint-raise-group", &group])?;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let mut worker = Worker::start(&background, &[0], "revoked", &[])?;
    let told = worker.line().context("the worker said nothing")?;
    if told != "never" {
        bail!("it rose without the right: {told}");
    }
    Ok(told)
}

/// Root has lent its credentials to a user's tasks, as overlayfs lends those of whoever has
/// mounted it to each task that reads there. A child that has only inherited a hint rises by
/// them no more than by its own, and a task with a slot keeps it.
pub(crate) fn lent(ufs: &mut Ufs) -> Result<String> {
    let group = NOBODY.to_string();
    ufs.load(&["--hint-group", &group])?;
    let mut told = Vec::new();
    for (tier, asks, forks, bounds) in [
        // Equals, and one that has only the floor.
        ("background", "time_sensitive", true, 0.35..0.65),
        ("time_sensitive", "background", false, 0.0..0.1),
    ] {
        let top = Cgroup::top()?;
        let other = top.child(tier, 100)?;
        let own = top.child(&format!("{tier}-lent"), 100)?;
        let args = [asks.to_owned(), forks.to_string()];
        let mut borrower = Worker::start(&own, &[0], "borrow", &args)?;
        borrower.line().context("the borrower said nothing")?;
        let _burner = Worker::burner(&other, &[0])?;
        sleep(300 * MS);
        let before = own.seconds()?;
        sleep(2000 * MS);
        let share = (own.seconds()? - before) / 2.0;
        told.push(format!(
            "in {tier} it asks for {asks} and has {:.0} % of a CPU",
            share * 100.0
        ));
        if !bounds.contains(&share) {
            bail!("{}", told.join(", "));
        }
    }
    Ok(told.join(", "))
}

/// As [`NOBODY`], asks for `tier`, and reads zeroes for ever in root's credentials, which an
/// io_uring applies while it reads. `forks`: a child reads that has no slot.
pub(crate) fn borrow(tier: Tier, forks: bool) -> Result<()> {
    let mut ring = IoUring::new(1)?;
    let credentials = ring.submitter().register_personality()?;
    setgid(Gid::from_raw(NOBODY))?;
    setuid(Uid::from_raw(NOBODY))?;
    let slot = Table::open(None)?.attach().context("no slot is free")?;
    slot.set_tier(tier);
    // SAFETY: there is one thread.
    if forks && let ForkResult::Parent { .. } = unsafe { fork()? } {
        loop {
            sleep(1000 * MS);
        }
    }
    let zeroes = fs::File::open("/dev/zero")?;
    let mut buffer = vec![1; 16 << 20];
    println!("reads");
    loop {
        let file = types::Fd(zeroes.as_raw_fd());
        let read = opcode::Read::new(file, buffer.as_mut_ptr(), buffer.len() as u32);
        let read = read.build().personality(credentials);
        // SAFETY: file and buffer outlive the read, whose end is waited for.
        unsafe { ring.submission().push(&read)? };
        ring.submit_and_wait(1)?;
        let read = ring.completion().next().context("nothing was read")?;
        if read.result() < 0 {
            return Err(std::io::Error::from_raw_os_error(-read.result()).into());
        }
    }
}

/// Burns as user `id`, without a slot.
pub(crate) fn burn_as(id: u32) -> Result<()> {
    setgid(Gid::from_raw(id))?;
    setuid(Uid::from_raw(id))?;
    loop {
        std::hint::spin_loop();
    }
}

/// A mapped table, as words that whoever maps it may write.
struct Words {
    base: *const AtomicU64,
    pages: usize,
}

impl Words {
    /// The table that this process has mapped.
    fn mapped() -> Result<Words> {
        let maps = fs::read_to_string("/proc/self/maps")?;
        let line = maps.lines().find(|line| line.contains("bpf-map"));
        let (span, _) = line
            .and_then(|line| line.split_once(' '))
            .context("no table")?;
        let (from, to) = span.split_once('-').context("no span")?;
        let from = usize::from_str_radix(from, 16)?;
        Ok(Words {
            base: std::ptr::with_exposed_provenance(from),
            pages: (usize::from_str_radix(to, 16)? - from) / SLOT_SIZE,
        })
    }

    fn word(&self, page: usize, word: usize) -> &AtomicU64 {
        assert!(page < self.pages && word < SLOT_SIZE / 8);
        // SAFETY: within a mapping that the client library never unmaps, and seen as
        // atomics only.
        unsafe { &*self.base.add(page * SLOT_SIZE / 8 + word) }
    }

    /// Has every slot that is free, or is theirs, say that these threads may wait.
    fn forge(&self, owners: &[u64]) {
        for page in 1..self.pages {
            let owner = self.word(page, 0).load(Ordering::Relaxed);
            if owner == 0 {
                let owner = owners[page % owners.len()];
                self.word(page, 0).store(owner, Ordering::Relaxed);
            } else if !owners.contains(&owner) {
                continue;
            }
            let halves = std::ptr::from_ref(self.word(page, 1)).cast::<AtomicU32>();
            // SAFETY: both halves of the word.
            let (version, says) = unsafe { (&*halves, &*halves.add(1)) };
            // Tier background, weight 1.
            says.store(1 | 1 << 16, Ordering::Relaxed);
            version.store(1, Ordering::Release);
        }
        self.word(0, 2).fetch_add(1, Ordering::Release);
    }
}

/// As user `id`, says again and again that the threads `victims` may wait.
pub(crate) fn forge(id: u32, victims: &[u32]) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    setgid(Gid::from_raw(id))?;
    setuid(Uid::from_raw(id))?;
    let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
    let name = |&tid: &u32| namespace << 32 | u64::from(tid);
    let owners: Vec<u64> = victims.iter().map(name).collect();
    let _table = Table::open(None)?;
    let words = Words::mapped()?;
    words.forge(&owners);
    println!("{} pages written", words.pages);
    loop {
        sleep(20 * MS);
        words.forge(&owners);
    }
}

/// Prints in how many rounds of how many this thread rose without the right to.
pub(crate) fn lose_the_right() -> Result<()> {
    const ROUNDS: u32 = 40;
    // A right is the real user's; the effective one may change groups.
    setresuid(Uid::from_raw(NOBODY), Uid::from_raw(0), Uid::from_raw(0))?;
    let slot = Table::open(None)?.attach().context("no slot is free")?;
    let refused = || -> bool {
        let before = slot.report().refused;
        slot.set_tier(Tier::TimeSensitive);
        for _ in 0..4 {
            sleep(MS);
        }
        slot.reset_tier();
        sleep(MS);
        slot.report().refused > before
    };
    let mut risen = 0;
    for round in 0..ROUNDS {
        setgroups(&[Gid::from_raw(RISERS)])?;
        if refused() {
            bail!("refused with the right");
        }
        setgroups(&[])?;
        // What is freed can be used again when every CPU has been seen to pass by.
        sleep(40 * MS);
        for _ in 0..=round % 8 {
            setgroups(&[])?;
        }
        risen += u32::from(!refused());
    }
    match risen {
        0 => println!("never"),
        _ => println!("{risen} of {ROUNDS} times"),
    }
    Ok(())
}
