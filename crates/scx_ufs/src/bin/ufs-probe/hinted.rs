//! Workers with hint slots: what a program with locks does, and what a hostile
//! one does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use giveway_hints::slot::{NAME, SLOT_SIZE, Table};
use giveway_tier::{Tier, Weight};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Gid, Uid, setgid, setuid};

use crate::lock_hints::{Lock, Tell, Teller};
use crate::survival::Random;

/// What an inversion is made of; each word of the command line is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inversion {
    /// Background holders in a row, each but the first waiting for the one before.
    pub chain: u32,
    /// Whether the locks are spun for with naps, as PostgreSQL's spinlocks are.
    pub spin: bool,
    /// How the threads tell what they hold and wait for.
    pub tell: Tell,
    /// Whether another time-sensitive thread wants the CPU all the time.
    pub burner: bool,
    /// CPU time that each holder uses with its lock held.
    pub hold: Duration,
    /// Sleep in the middle of that.
    pub nap: Duration,
    /// When to give up.
    pub limit: Duration,
}

impl Inversion {
    pub(crate) fn to_args(self) -> Vec<String> {
        [
            u64::from(self.chain),
            self.spin.into(),
            self.tell as u64,
            self.burner.into(),
            self.hold.as_millis() as u64,
            self.nap.as_millis() as u64,
            self.limit.as_millis() as u64,
        ]
        .map(|number| number.to_string())
        .into()
    }

    fn from_args(args: &[String]) -> Result<Self> {
        let numbers = args
            .iter()
            .map(|arg| Ok(arg.parse()?))
            .collect::<Result<Vec<u64>>>()?;
        let [chain, spin, tell, burner, hold, nap, limit] = numbers[..] else {
            bail!("an inversion takes 7 numbers");
        };
        Ok(Self {
            chain: chain as u32,
            spin: spin != 0,
            tell: Tell::from_number(tell),
            burner: burner != 0,
            hold: Duration::from_millis(hold),
            nap: Duration::from_millis(nap),
            limit: Duration::from_millis(limit),
        })
    }
}

/// Uses so much CPU time.
fn burn_cpu(span: Duration) {
    let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock"));
    let until = used() + span;
    while used() < until {
        std::hint::spin_loop();
    }
}

/// Holders, a waiter and a burner as threads of this process, on its CPUs.
/// Prints how long the waiter waited, in milliseconds, or "never".
fn invert(inversion: Inversion) -> Result<()> {
    let locks: Arc<Vec<Lock>> = Arc::new((0..inversion.chain as usize).map(Lock::new).collect());
    let holding = Arc::new(AtomicU64::new(0));
    let waited = Arc::new(AtomicU64::new(0));
    for link in 0..inversion.chain as usize {
        let (locks, holding_too) = (locks.clone(), holding.clone());
        thread::spawn(move || -> Result<()> {
            let teller = Teller::new(inversion.tell, Tier::Background)?;
            let own = locks[link].take(inversion.spin, &teller);
            teller.hold(&locks[link], inversion.spin);
            holding_too.fetch_add(1, Ordering::Relaxed);
            let before = link.checked_sub(1).map(|before| &locks[before]);
            let inner = before.map(|lock| lock.take(inversion.spin, &teller));
            burn_cpu(inversion.hold / 2);
            sleep(inversion.nap);
            burn_cpu(inversion.hold / 2);
            drop(inner);
            drop(own);
            teller.release(&locks[link]);
            Ok(())
        });
        // Each has its lock before the next one wants it.
        while holding.load(Ordering::Relaxed) <= link as u64 {
            sleep(Duration::from_millis(1));
        }
    }
    if inversion.burner {
        thread::spawn(|| {
            loop {
                burn_cpu(Duration::from_secs(1));
            }
        });
    }
    let waited_too = waited.clone();
    thread::spawn(move || -> Result<()> {
        let teller = Teller::new(inversion.tell, Tier::TimeSensitive)?;
        let start = Instant::now();
        let last = locks.last().context("a chain has a lock")?;
        drop(last.take(inversion.spin, &teller));
        waited_too.store(start.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        Ok(())
    });
    let start = Instant::now();
    while waited.load(Ordering::Relaxed) == 0 && start.elapsed() < inversion.limit {
        sleep(Duration::from_millis(5));
    }
    match waited.load(Ordering::Relaxed) {
        0 => println!("never"),
        ms => println!("{}", ms - 1),
    }
    std::process::exit(0);
}

/// Burns with a slot that asks for `tier` and `weight`, as user and group `id`.
fn burn(tier: &str, weight: &str, id: u32) -> Result<()> {
    if id != 0 {
        setgid(Gid::from_raw(id))?;
        setuid(Uid::from_raw(id))?;
    }
    let slot = Table::open(None).ok().and_then(|table| table.attach());
    if let Some(slot) = &slot {
        slot.set_tier(tier.parse()?);
        slot.set_weight(weight.parse::<Weight>()?);
        slot.hold(1);
    }
    println!(
        "{}",
        if slot.is_some() {
            "attached"
        } else {
            "no slot"
        }
    );
    loop {
        burn_cpu(Duration::from_secs(1));
    }
}

/// Holds a lock that nobody knows of but by hints, or waits for it in naps.
fn hold_or_wait(role: &str, domain: u64) -> Result<()> {
    const LOCK: u64 = 4711;
    let slot = Table::open(None)?.attach().context("no slot is free")?;
    slot.set_domain(domain);
    let holds = role == "holder";
    if holds {
        slot.set_tier(Tier::Background);
        slot.hold(LOCK);
    } else {
        slot.set_tier(Tier::TimeSensitive);
        slot.wait(LOCK);
    }
    println!("attached");
    loop {
        if holds {
            burn_cpu(Duration::from_secs(1));
        } else {
            sleep(Duration::from_millis(20));
        }
    }
}

/// Burns as a time-sensitive thread that holds a lock half of the time, for `held` at a
/// time.
fn hold_now_and_then(held: Duration) -> Result<()> {
    const LOCK: u64 = 4711;
    let slot = Table::open(None)?.attach().context("no slot is free")?;
    slot.set_domain(u64::from(std::process::id()));
    slot.set_tier(Tier::TimeSensitive);
    println!("attached");
    loop {
        slot.hold(LOCK);
        burn_cpu(held);
        slot.release(LOCK);
        burn_cpu(held);
    }
}

/// Says for ever that it waits for what [`burn`] holds.
fn wait() -> Result<()> {
    let slot = Table::open(None)?.attach().context("no slot is free")?;
    slot.wait(1);
    println!("waits");
    loop {
        sleep(Duration::from_millis(10));
    }
}

/// Fills every slot with random bytes, again and again: everything, or all but
/// whose slot it is, so that what the owners "say" is obeyed.
fn scribble(seed: u64) -> Result<()> {
    let path = std::path::Path::new(giveway_hints::slot::DIR).join(NAME);
    let mut random = Random(seed);
    let table = Scribbled::open(&path)?;
    loop {
        let page = random.below(table.pages);
        // Owners that are lost are obeyed no more: seldom.
        let keep = random.below(2048) != 0;
        for word in 0..SLOT_SIZE / 8 {
            // Owner, version and what shares its word stay, but for the tier.
            let kept = (keep || page == 0) && word < 2;
            if !kept {
                let small = random.below(3) == 0;
                let value = random.next() & if small { 0xff } else { u64::MAX };
                table.store(page * SLOT_SIZE / 8 + word, value);
            } else if word == 1 && page != 0 {
                table.store_half(page * SLOT_SIZE / 4 + 3, random.next() as u32 & 0xffff_0003);
            }
        }
    }
}

/// The whole table as words that anybody may write.
pub(crate) struct Scribbled {
    base: *const AtomicU64,
    pages: usize,
}

impl Scribbled {
    pub(crate) fn open(path: &std::path::Path) -> Result<Self> {
        use libbpf_rs::MapCore as _;
        use std::os::fd::AsFd as _;
        let map = libbpf_rs::MapHandle::from_pinned_path(path)?;
        let pages = map.max_entries() as usize;
        let size = std::num::NonZero::new(pages * SLOT_SIZE).context("an empty table")?;
        // SAFETY: a new shared mapping, never unmapped, seen as atomics only.
        let base = unsafe {
            nix::sys::mman::mmap(
                None,
                size,
                nix::sys::mman::ProtFlags::PROT_READ | nix::sys::mman::ProtFlags::PROT_WRITE,
                nix::sys::mman::MapFlags::MAP_SHARED,
                map.as_fd(),
                0,
            )?
        };
        let base = base.as_ptr().cast_const().cast();
        Ok(Self { base, pages })
    }

    fn store(&self, word: usize, value: u64) {
        assert!(word < self.pages * SLOT_SIZE / 8);
        // SAFETY: within the mapping.
        unsafe { &*self.base.add(word) }.store(value, Ordering::Relaxed);
    }

    pub(crate) fn store_half(&self, half: usize, value: u32) {
        assert!(half < self.pages * SLOT_SIZE / 4);
        let halves = self.base.cast::<AtomicU32>();
        // SAFETY: within the mapping.
        unsafe { &*halves.add(half) }.store(value, Ordering::Relaxed);
    }
}

/// What a worker with hints does.
pub(crate) fn main(kind: &str, args: &[String]) -> Result<()> {
    match (kind, args) {
        ("invert", _) => invert(Inversion::from_args(args)?),
        ("hinted", [tier, weight, id]) => burn(tier, weight, id.parse()?),
        ("holder" | "waiter", [domain]) => hold_or_wait(kind, domain.parse()?),
        ("holds-now-and-then", [us]) => hold_now_and_then(Duration::from_micros(us.parse()?)),
        ("wait", _) => wait(),
        ("scribble", [seed]) => scribble(seed.parse()?),
        _ => bail!("there is no worker '{kind}'"),
    }
}
