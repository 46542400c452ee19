//! Loads, attaches and detaches the BPF program, and reports why it was detached.
//!
//! [`Loaded`] is verified by the kernel and schedules nothing; [`Scheduler`] is attached.
//! When its link is dropped, or this process ends, the kernel moves every task back to
//! its own scheduler. A program that was detached by its link can be attached again
//! ([`Exit::Standby`]).

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use crossbeam_channel::never;
use giveway_machine::sched_ext::SchedExt;
use giveway_tier::rule::{self, Rule};
use libbpf_rs::{MapHandle, OpenObject};
use log::{info, warn};
use scx_stats::prelude::*;
use scx_utils::{
    NR_CPU_IDS, Topology, compat, scx_ops_attach, scx_ops_load, scx_ops_open,
    try_set_rlimit_infinity, uei_exited, uei_report,
};

use crate::bpf_intf;
use crate::bpf_skel::{BpfSkel, BpfSkelBuilder};
use crate::features;
use crate::kconfig::Settings;
use crate::lock_weights::LockWeights;
use crate::marks::Marks;
use crate::options::{Config, Opts};
use crate::reattach::InitialState;
use crate::sessions::Sessions;
use crate::snapshot::{self, Snapshot};
use crate::standby::{Commands, Stop};
use crate::stats::{self, Metrics};
use crate::table::Keeper;
use crate::topology::Shape;
use crate::users::slot_bits;
use crate::verified;

/// UFS, loaded but not attached.
pub(crate) struct Loaded<'a> {
    skel: BpfSkel<'a>,
    /// Its memory before it was first attached.
    initial: InitialState,
    cpus: Vec<u32>,
    /// None: hints are off.
    keeper: Option<Keeper>,
    /// None: processes stay in their cgroups.
    sessions: Option<Sessions>,
    /// None: marks are not heeded.
    marks: Option<Marks>,
    /// None: the kernel's locks do not heed weights, or are not to.
    lock_weights: Option<LockWeights>,
    rule: Rule,
    /// Whether statistics are counted and served.
    stats: bool,
}

/// UFS, attached.
pub(crate) struct Scheduler<'a> {
    loaded: Loaded<'a>,
    link: Option<libbpf_rs::Link>,
    stats_server: StatsServer<(), Metrics>,
}

/// Why UFS was detached, which says what is next.
pub(crate) enum Exit<'a> {
    /// It was told to stop.
    Stop,
    /// The kernel asks for another load.
    Reload,
    /// It was told to detach and wait for the next command.
    Standby(Box<Loaded<'a>>),
}

/// How often to check whether the kernel has ejected UFS.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often slots of threads that have ended are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// How often sessions are moved to the cgroups that their slots ask for, cgroups to the
/// tiers that they are marked with, and weights at locks to what tiers ask for.
const PLACE_EVERY: Duration = Duration::from_secs(1);

impl<'a> Loaded<'a> {
    /// Has the kernel verify UFS.
    pub(crate) fn load(
        opts: &Opts,
        config: &Config,
        open_object: &'a mut MaybeUninit<OpenObject>,
    ) -> Result<Self> {
        if !opts.standby {
            refuse_beside_another()?;
        }
        try_set_rlimit_infinity();
        let topology = Topology::new().context("cannot read the CPU topology from /sys")?;
        let cpus: Vec<u32> = topology.all_cpus.keys().map(|&cpu| cpu as u32).collect();
        let most = bpf_intf::ufs_limits_UFS_CPUS_MAX as usize;
        let nr_cpu_ids = opts.verify_for.unwrap_or(*NR_CPU_IDS);
        if !(1..=most).contains(&nr_cpu_ids) {
            bail!("UFS is for 1 to {most} CPUs, not for {nr_cpu_ids}");
        }

        let online: Vec<usize> = match opts.verify_for {
            Some(cpus) => (0..cpus).collect(),
            None => topology.all_cpus.keys().copied().collect(),
        };
        let there = match opts.verify_for {
            Some(cpus) => Shape::of_many(cpus),
            None => Shape::of(&topology),
        };
        let shape = match there {
            _ if opts.flat => Shape::default(),
            shape if shape.fits() => shape,
            _ => {
                warn!("too many caches and NUMA nodes: UFS takes all CPUs to be alike");
                Shape::default()
            }
        };

        let mut builder = BpfSkelBuilder::default();
        builder.obj_builder.debug(opts.verbose);
        let mut libbpf = opts.libbpf.clone();
        let settings = Settings::where_there_are_none()?;
        if let Some(settings) = &settings {
            libbpf.kconfig.get_or_insert_with(|| settings.path());
        }
        let open_opts = libbpf.into_bpf_open_opts();
        let mut skel = scx_ops_open!(builder, open_object, ufs_ops, open_opts)?;
        let mut keeper = config.table.as_ref().and_then(|wanted| {
            Keeper::prepare(wanted)
                .inspect_err(|error| warn!("UFS goes without hints: {error:#}"))
                .ok()
        });
        let cpu_max = config.cpu_max && features::CPU_MAX.is_there()?;
        if config.cpu_max && !cpu_max {
            warn!("{}", features::CPU_MAX);
        }
        if !features::CPU_IDLE.is_there()? {
            warn!("{}", features::CPU_IDLE);
        }
        configure(
            &mut skel,
            config,
            nr_cpu_ids,
            &online,
            &shape,
            cpu_max,
            keeper.as_ref(),
        )?;
        let ops = skel.struct_ops.ufs_ops_mut();
        ops.exit_dump_len = opts.exit_dump_len;
        // QUEUED_WAKEUP: an idle CPU queues the task that wakes up for it by itself. If the
        // waker does so, the task is charged for the time in which the CPU leaves its halt,
        // since the kernel does not read the clock again when the task is picked.
        ops.flags = *compat::SCX_OPS_KEEP_BUILTIN_IDLE
            | *compat::SCX_OPS_ENQ_LAST
            | *compat::SCX_OPS_ENQ_EXITING
            | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED
            | *compat::SCX_OPS_ALLOW_QUEUED_WAKEUP;

        let skel = scx_ops_load!(skel, ufs_ops, uei)
            .map_err(|error| verified::with_remedy(error, nr_cpu_ids))?;
        if let Some(keeper) = &mut keeper {
            let (tables, users) = (&skel.maps.user_tables, &skel.maps.table_users);
            keeper.serve(MapHandle::try_from(tables)?, MapHandle::try_from(users)?);
        }
        Ok(Self {
            initial: InitialState::of(&skel)?,
            skel,
            cpus,
            keeper,
            sessions: config.sessions.clone(),
            marks: config.marks.clone(),
            lock_weights: config.lock_weights.and_then(LockWeights::new),
            rule: config.rule.clone(),
            stats: config.stats,
        })
    }

    /// Resets its memory to what it was before it was first attached.
    pub(crate) fn reset(&mut self) -> Result<()> {
        self.initial
            .restore(&self.skel)
            .context("cannot clear the program's memory")
    }

    /// Attaches UFS.
    pub(crate) fn attach(mut self) -> Result<Scheduler<'a>> {
        // Of two loaders that attach at the same moment, the second finds the first
        // attached, and must not replace its tables and socket.
        let lock = self.keeper.as_ref().map(Keeper::lock_loaders).transpose()?;
        refuse_beside_another()?;
        if let Some(keeper) = &mut self.keeper {
            // Before UFS reads them: a table without its header is none.
            keeper
                .publish()
                .context("cannot pin the hint tables: try --no-hints")?;
        }
        let skel = &mut self.skel;
        // The probe beside the scheduler stays, and a skeleton attaches it once.
        let link = Some(match skel.links.scx_lib_init_probe {
            None => scx_ops_attach!(skel, ufs_ops)?,
            Some(_) => skel.maps.ufs_ops.attach_struct_ops()?,
        });
        drop(lock);
        let published = self
            .rule
            .publish(Path::new(rule::PATH), SchedExt::this().loads());
        if let Err(error) = published {
            let path = rule::PATH;
            warn!(
                "'giveway run' and 'status' do not know the labels: cannot write {path}: {error}"
            );
        }
        if let Some(keeper) = &self.keeper {
            keeper.sweep();
        }
        let server = self.serve_statistics();
        info!(
            "scx_ufs {} schedules {} CPUs",
            env!("CARGO_PKG_VERSION"),
            self.cpus.len()
        );
        Ok(Scheduler {
            loaded: self,
            link,
            stats_server: server,
        })
    }

    /// A server of statistics that nobody can reach if there is to be none, or if it
    /// cannot start: a full /run must not stop scheduling.
    fn serve_statistics(&self) -> StatsServer<(), Metrics> {
        let server = StatsServer::new(stats::server_data());
        if !self.stats {
            return server;
        }
        server.launch().unwrap_or_else(|error| {
            warn!("UFS runs without statistics, which 'giveway top' needs: {error:#}");
            StatsServer::new(stats::server_data())
        })
    }

    /// Puts sessions and cgroups where they are wanted.
    fn place(&mut self) {
        // Marks first: they bind sessions.
        if let Some(marks) = &mut self.marks {
            marks.step(&mut self.skel);
        }
        if let (Some(keeper), Some(sessions)) = (&self.keeper, &mut self.sessions) {
            let number = sessions.number();
            if let Some(tier) = number.and_then(|number| snapshot::tier_of(&self.skel, number)) {
                sessions.set_tier(tier);
            }
            keeper.place(sessions);
        }
        // Last: marks give tiers, and sessions have cgroups made.
        if let Some(weights) = &mut self.lock_weights
            && let Err(error) = weights.step(&snapshot::known(&self.skel))
        {
            warn!("tiers do not count at the kernel's locks: {error:#}");
        }
    }

    fn metrics(&self) -> Metrics {
        let tables = self.keeper.as_ref().map_or_else(Vec::new, Keeper::tables);
        Metrics::new(&Snapshot::take(&self.skel, &self.cpus, &tables))
    }
}

impl<'a> Scheduler<'a> {
    /// Serves statistics until UFS is told to detach or stop, or is ejected.
    ///
    /// # Errors
    /// When the kernel ejected UFS: the reason, and the kernel's dump on stderr.
    pub(crate) fn run(mut self, stop: &Stop, commands: Option<&Commands>) -> Result<Exit<'a>> {
        let (answers, requests) = self.stats_server.channels();
        let loaded = &mut self.loaded;
        let mut command = commands.map_or_else(never, |commands| commands.received().clone());
        let mut is_told_to_detach = false;
        let mut swept = Instant::now();
        // Marks count from the start.
        loaded.place();
        let mut placed = Instant::now();
        while !stop.is_asked() && !is_told_to_detach && !uei_exited!(&loaded.skel, uei) {
            if let Some(keeper) = &loaded.keeper
                && swept.elapsed() > SWEEP_EVERY
            {
                keeper.sweep();
                swept = Instant::now();
            }
            if placed.elapsed() > PLACE_EVERY {
                loaded.place();
                placed = Instant::now();
            }
            let mut is_silent = false;
            crossbeam_channel::select! {
                recv(requests) -> request => match request {
                    Ok(()) => answers.send(loaded.metrics())?,
                    Err(error) => {
                        warn!("statistics have stopped: {error}");
                        std::thread::sleep(LOOK_EVERY);
                    }
                },
                // The sender waits for Linux's own scheduler, or for the next one.
                recv(stop.asked()) -> _ => {}
                recv(command) -> line => match line {
                    Ok(()) => is_told_to_detach = true,
                    // The end of the input is no command: UFS stays attached.
                    Err(_) => is_silent = true,
                },
                default(LOOK_EVERY) => {}
            }
            if is_silent {
                command = never();
            }
        }
        drop(self.link.take());
        if let Some(weights) = &mut self.loaded.lock_weights {
            weights.put_back();
        }
        // The next scheduler may use its path as soon as this one is ready.
        drop(self.stats_server);
        let exit = uei_report!(&self.loaded.skel, uei)?;
        Ok(match exit.should_restart() {
            true => Exit::Reload,
            false if is_told_to_detach => Exit::Standby(Box::new(self.loaded)),
            false => Exit::Stop,
        })
    }
}

/// The kernel attaches one scheduler at a time.
fn refuse_beside_another() -> Result<()> {
    if compat::is_sched_ext_enabled().unwrap_or(false) {
        let name = SchedExt::this().ops().unwrap_or_default();
        bail!(
            "another sched_ext scheduler is loaded: {name}; stop that one first ('giveway stop', if \
             it is UFS)"
        );
    }
    Ok(())
}

/// Sets the constants that the verifier sees.
fn configure(
    skel: &mut crate::bpf_skel::OpenBpfSkel<'_>,
    config: &Config,
    nr_cpu_ids: usize,
    online: &[usize],
    shape: &Shape,
    cpu_max: bool,
    keeper: Option<&Keeper>,
) -> Result<()> {
    let rodata = skel
        .maps
        .rodata_data
        .as_mut()
        .context("the program has no .rodata")?;
    rodata.ts_slice_ns = config.ts_slice_ns;
    rodata.bg_slice_ns = config.bg_slice_ns;
    // As BATCHES in ctx.bpf.h counts on.
    rodata.clock_batch_ns = config.ts_slice_ns.min(config.bg_slice_ns) / 8;
    rodata.preempt_lag_ns = config.preempt_lag_ns;
    // Locks are known from slots only.
    rodata.extension_ns = keeper.map_or(0, |_| config.extension_ns);
    rodata.floor_deadline_ms = config.floor_deadline_ms;
    rodata.floor_slice_ns = config.floor_slice_ns;
    rodata.floor_interval_ns = config.floor_interval_ns;
    rodata.floor_least = config.floor_least;
    rodata.default_tier = config.rule.default_tier as u32;
    rodata.loader_tgid = std::process::id();
    rodata.nr_cpu_ids = nr_cpu_ids as u32;
    rodata.nr_cpu_words = nr_cpu_ids.div_ceil(64) as u32;
    for cpu in online {
        rodata.online_cpus[cpu / 64] |= 1 << (cpu % 64);
    }
    rodata.has_threads = shape.has_threads;
    rodata.has_llcs = shape.has_llcs;
    rodata.has_nodes = shape.has_nodes;
    for (&cpu, place) in &shape.places {
        let to = &mut rodata.places[cpu];
        (to.core, to.sibling) = (place.core, place.sibling);
        (to.llc, to.node) = (place.llc, place.node);
    }
    for (to, set) in rodata.domains.iter_mut().zip(&shape.domains) {
        *to = *set;
    }
    rodata.limits_on = cpu_max;
    rodata.marks_on = config.marks.is_some();
    rodata.hints_on = keeper.is_some();
    let nr_slots = keeper.map_or(1, Keeper::nr_slots);
    rodata.nr_slots = nr_slots;
    rodata.slot_bits = slot_bits(nr_slots);
    rodata.hint_raise_gid = config.hint_raise_gid;
    // Any number that the load before had not.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    rodata.load_number = now.map_or(1, |time| time.as_nanos() as u64).max(1);
    rodata.boost_ns = config.boost_ns;
    rodata.boost_heavyweight = config.boost_heavyweight;
    rodata.stats_on = config.stats;
    for (tier, labels) in config.rule.labels.iter().enumerate() {
        for (entry, label) in labels.iter().enumerate() {
            let slot = &mut rodata.labels[tier][entry];
            for (to, from) in slot.text.iter_mut().zip(label.bytes()) {
                *to = from as _;
            }
            slot.len = label.len() as u32;
        }
    }
    Ok(())
}
