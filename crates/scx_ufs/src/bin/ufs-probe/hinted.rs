//! Workers with hint slots: what a program with locks does, and what a hostile
//! one does.

use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use giveway_hints::slot::{NAME, Reader, SLOT_SIZE, Slot, Table};
use giveway_hints::{Tier, Weight};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Gid, Uid, setgid, setuid};

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

/// How threads tell UFS what they hold and wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Tell {
    /// Not at all.
    Nothing,
    /// In their slots.
    Slot,
    /// As an unpatched server does, which leaves UFS to read its memory:
    /// lightweight locks by tranche, spinlocks by nothing.
    Reader,
    /// The same with a heavyweight lock.
    Heavyweight,
}

impl Tell {
    fn from_number(number: u64) -> Self {
        [Tell::Nothing, Tell::Slot, Tell::Reader, Tell::Heavyweight][number as usize % 4]
    }
}

/// A lock of either kind, with the words that an unpatched server would have
/// in it. Its number for hints is its address.
#[repr(C)]
struct Lock {
    tranche: u16,
    /// Bit 30: somebody waits.
    state: AtomicU32,
    /// The list of its holders: previous, next.
    holders: [AtomicU64; 2],
    sleeping: Mutex<()>,
    spinning: AtomicBool,
}

enum Held<'a> {
    Sleeping(#[expect(dead_code, reason = "held until dropped")] MutexGuard<'a, ()>),
    Spinning(&'a AtomicBool),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Held::Spinning(word) = self {
            word.store(false, Ordering::Release);
        }
    }
}

const LWLOCK_CLASS: u32 = 0x0100_0000;
const LOCK_CLASS: u32 = 0x0300_0000;
const SPIN_EVENT: u32 = 0x0900_0007;
const HAS_WAITERS: u32 = 30;

/// What an unpatched server has for each backend, with the entry by which the
/// backend is in a heavyweight lock's list.
#[repr(C)]
#[derive(Default)]
struct Backend {
    nheld: AtomicU32,
    pid: AtomicU32,
    held: [AtomicU64; 4],
    event_addr: AtomicU64,
    event: AtomicU32,
    me_addr: AtomicU64,
    wait_lock: AtomicU64,
    link: [AtomicU64; 2],
    link_backend: AtomicU64,
}

/// A thread's way to tell.
struct Teller {
    tell: Tell,
    slot: Slot,
    backend: &'static Backend,
}

impl Teller {
    fn new(tell: Tell, tier: Tier) -> Result<Self> {
        let slot = Table::open(None)?.attach().context("no slot is free")?;
        slot.set_domain(u64::from(std::process::id()));
        slot.set_tier(tier);
        let backend: &'static Backend = Box::leak(Box::default());
        if matches!(tell, Tell::Reader | Tell::Heavyweight) {
            let address = |word: &AtomicU64| std::ptr::from_ref(word) as u64;
            let event = std::ptr::from_ref(&backend.event) as u64;
            backend.event_addr.store(event, Ordering::Relaxed);
            backend
                .pid
                .store(nix::unistd::gettid().as_raw() as u32, Ordering::Relaxed);
            let me = std::ptr::from_ref(backend) as u64;
            backend.me_addr.store(me, Ordering::Relaxed);
            backend.link_backend.store(me, Ordering::Relaxed);
            slot.set_reader(&Reader {
                nheld_addr: std::ptr::from_ref(&backend.nheld) as u64,
                held_addr: address(&backend.held[0]),
                wait_event_ptr_addr: address(&backend.event_addr),
                lwlock_tranche_off: offset_of!(Lock, tranche) as u32,
                lwlock_state_off: offset_of!(Lock, state) as u32,
                lwlock_has_waiters_bit: HAS_WAITERS,
                wait_event_lwlock_class: LWLOCK_CLASS,
                wait_event_lock_class: LOCK_CLASS,
                wait_event_spin: SPIN_EVENT,
                my_proc_addr: address(&backend.me_addr),
                proc_waitlock_off: offset_of!(Backend, wait_lock) as u32,
                lock_proclocks_off: offset_of!(Lock, holders) as u32,
                proclock_link_off: offset_of!(Backend, link) as u32,
                proclock_proc_off: offset_of!(Backend, link_backend) as u32,
                proc_pid_off: offset_of!(Backend, pid) as u32,
                ..Reader::default()
            });
        }
        Ok(Self {
            tell,
            slot,
            backend,
        })
    }

    fn wait(&self, lock: &Lock, spin: bool) {
        let event = match self.tell {
            Tell::Nothing => return,
            Tell::Slot => return self.slot.wait(lock.number()),
            Tell::Reader if spin => SPIN_EVENT,
            Tell::Reader => LWLOCK_CLASS | u32::from(lock.tranche),
            Tell::Heavyweight => LOCK_CLASS,
        };
        lock.state.fetch_or(1 << HAS_WAITERS, Ordering::Relaxed);
        self.backend
            .wait_lock
            .store(lock.number(), Ordering::Relaxed);
        self.backend.event.store(event, Ordering::Relaxed);
    }

    fn wait_done(&self) {
        self.slot.wait_done();
        self.backend.event.store(0, Ordering::Relaxed);
    }

    fn hold(&self, lock: &Lock, spin: bool) {
        match self.tell {
            Tell::Slot => self.slot.hold(lock.number()),
            Tell::Reader if !spin => {
                self.backend.held[0].store(lock.number(), Ordering::Relaxed);
                self.backend.nheld.store(1, Ordering::Relaxed);
            }
            Tell::Heavyweight => {
                let head = std::ptr::from_ref(&lock.holders) as u64;
                let entry = std::ptr::from_ref(&self.backend.link) as u64;
                self.backend.link[1].store(head, Ordering::Relaxed);
                lock.holders[1].store(entry, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn release(&self, lock: &Lock) {
        if self.tell == Tell::Slot {
            self.slot.release(lock.number());
        }
        self.backend.nheld.store(0, Ordering::Relaxed);
    }
}

impl Lock {
    fn new(tranche: usize) -> Self {
        Self {
            tranche: 70 + tranche as u16,
            state: AtomicU32::new(0),
            holders: Default::default(),
            sleeping: Mutex::new(()),
            spinning: AtomicBool::new(false),
        }
    }

    fn number(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    fn take(&self, spin: bool, teller: &Teller) -> Held<'_> {
        let free = || {
            self.spinning
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        if spin {
            if !free() {
                teller.wait(self, spin);
                while !free() {
                    sleep(Duration::from_millis(1));
                }
                teller.wait_done();
            }
            return Held::Spinning(&self.spinning);
        }
        match self.sleeping.try_lock() {
            Ok(guard) => Held::Sleeping(guard),
            Err(TryLockError::Poisoned(_)) => unreachable!("no holder panics"),
            Err(TryLockError::WouldBlock) => {
                teller.wait(self, spin);
                let guard = self.sleeping.lock().expect("no holder panics");
                teller.wait_done();
                Held::Sleeping(guard)
            }
        }
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
    let slot = Table::open(None)?.attach();
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
struct Scribbled {
    base: *const AtomicU64,
    pages: usize,
}

impl Scribbled {
    fn open(path: &std::path::Path) -> Result<Self> {
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

    fn store_half(&self, half: usize, value: u32) {
        assert!(half < self.pages * SLOT_SIZE / 4);
        let halves = self.base.cast::<std::sync::atomic::AtomicU32>();
        // SAFETY: within the mapping.
        unsafe { &*halves.add(half) }.store(value, Ordering::Relaxed);
    }
}

/// What a worker with hints does.
pub(crate) fn main(kind: &str, args: &[String]) -> Result<()> {
    match (kind, args) {
        ("invert", _) => invert(Inversion::from_args(args)?),
        ("hinted", [tier, weight, id]) => burn(tier, weight, id.parse()?),
        ("scribble", [seed]) => scribble(seed.parse()?),
        _ => bail!("there is no worker '{kind}'"),
    }
}
