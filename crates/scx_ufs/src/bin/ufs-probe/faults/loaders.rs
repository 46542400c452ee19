//! Loaders that are killed, doubled, kept from their sockets and upgraded.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use giveway_hints::slot::{DIR, NAME, SOCKET, Table};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapHandle, MapType, ObjectBuilder, ProgramInput};
use nix::sys::signal::{Signal, kill};

use super::{LONGEST_WAIT, UNREGISTERED, Witness, all_run, load_strict, tiers_hold};
use crate::cgroup::Cgroup;
use crate::hinted::Scribbled;
use crate::hinting::{NOBODY, hinted};
use crate::ufs::{LOAD_LIMIT, Ufs, state, wait_until};
use crate::worker::{Worker, burners, nr_cpus};

/// Work in both tiers, more than there are CPUs.
fn work(top: &Cgroup) -> Result<(Vec<Worker>, [Cgroup; 2])> {
    let groups = [
        top.child("background", 100)?,
        top.child("time_sensitive", 100)?,
    ];
    let mut workers = burners(&groups[0], &[], nr_cpus())?;
    workers.extend(burners(&groups[1], &[], nr_cpus())?);
    Ok((workers, groups))
}

/// Ends the loader by `end` under work, and sees that Linux's own scheduler
/// goes on with it, for the `reason` that the kernel names.
fn ended(
    ufs: &mut Ufs,
    top: &Cgroup,
    reason: &str,
    end: impl FnOnce(&Ufs) -> Result<()>,
) -> Result<String> {
    let witness = Witness::new()?;
    let (workers, _groups) = work(top)?;
    let start = Instant::now();
    end(ufs)?;
    wait_until("Linux's scheduler", Duration::from_secs(30), || {
        state() == "disabled"
    })?;
    let took = start.elapsed();
    let status = ufs.wait()?;
    if status.success() {
        bail!("the loader ended with {status}");
    }
    witness.eevdf_took_over(reason)?;
    let all: Vec<&Worker> = workers.iter().collect();
    let ran = all_run(&all, LONGEST_WAIT)?;
    Ok(format!(
        "Linux's scheduler was back after {} ms, and every task ran within {} ms more",
        took.as_millis(),
        ran.as_millis()
    ))
}

/// The loader has no time to say good-bye.
pub(crate) fn kill9(ufs: &mut Ufs) -> Result<String> {
    load_strict(ufs)?;
    ended(ufs, &Cgroup::top()?, UNREGISTERED, |ufs| {
        Ok(kill(ufs.pid()?, Signal::SIGKILL)?)
    })
}

/// The kernel kills it, in a cgroup that may use no more memory.
pub(crate) fn out_of_memory(ufs: &mut Ufs) -> Result<String> {
    let top = Cgroup::top()?;
    top.set("cgroup.subtree_control", "+memory")?;
    let home = top.child("loader", 100)?;
    ufs.load_inside(&home)?;
    let end = |_: &Ufs| home.set("memory.max", "0");
    let numbers = ended(ufs, &top, UNREGISTERED, end)?;
    match home.get("memory.events", "oom_kill")? {
        0 => bail!("{numbers}, but not for want of memory"),
        _ => Ok(numbers),
    }
}

/// UFS's program comes upon an error. The loader says which, and does not try again
/// what has failed.
pub(crate) fn bpf_error(ufs: &mut Ufs) -> Result<String> {
    load_strict(ufs)?;
    let numbers = ended(ufs, &Cgroup::top()?, "scx_bpf_error", |_| raise_error())?;
    if !ufs.log().contains("raised by ufs-probe") {
        bail!("{numbers}, but the loader said:\n{}", ufs.log());
    }
    Ok(numbers)
}

fn raise_error() -> Result<()> {
    const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/error.bpf.o"));
    let object = ObjectBuilder::default().open_memory(PROGRAM)?.load()?;
    // scx's header brings a program of its own.
    let program = object.progs_mut().find(|it| it.name() == "raise_error");
    let program = program.context("there is no such program")?;
    program.test_run(ProgramInput::default())?;
    Ok(())
}

/// A second loader goes away again, whatever it wants, and leaves to the first
/// what is the first's.
pub(crate) fn doubled(ufs: &mut Ufs) -> Result<String> {
    let group = NOBODY.to_string();
    let args = ["--hint-group", &group, "--hint-slots", "64"];
    ufs.load(&args)?;
    let witness = Witness::new()?;
    let table = Table::open(None)?;
    let door =
        || Ok::<_, anyhow::Error>(fs::metadata(Path::new(DIR).with_file_name(SOCKET))?.ino());
    let before = door()?;
    for args in [&[][..], &args, &["--hint-slots", "7"]] {
        let (status, said) = ufs.run_another(args)?;
        if status.code() != Some(1) || !said.contains("stop that one first") {
            bail!("with {args:?} a second loader ended with {status} and said: {said}");
        }
    }
    // This one may load; when it hears that nobody will say the word, it ends.
    let waiting = ["--standby", "--hint-slots", "7"];
    let (status, said) = ufs.run_another(&waiting)?;
    if !status.success() || !said.contains("ready") {
        bail!("a loader on standby ended with {status} and said: {said}");
    }
    witness.ufs_stayed(ufs)?;
    if table.is_replaced() || !table.is_active() || door()? != before {
        bail!("a second loader has taken the table of hints from the first");
    }
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    for way in [
        "whose directory it may enter",
        "whose directory it may not enter",
    ] {
        let (_worker, attached) = hinted(&sensitive, "background", 100, NOBODY)?;
        if !attached {
            bail!("a client can no longer get at the table {way}");
        }
        fs::set_permissions(DIR, fs::Permissions::from_mode(0o700))?;
    }
    Ok("four were turned away, and the first kept its table and its clients".to_owned())
}

/// Two loaders hear the word at the same moment. The one that the kernel takes has the
/// table and the door, and the other leaves both alone.
pub(crate) fn at_once(ufs: &mut Ufs) -> Result<String> {
    const ROUNDS: usize = 2;
    ufs.stop(Signal::SIGTERM)?;
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    let group = NOBODY.to_string();
    let args = ["--standby", "--hint-group", &group];
    for _ in 0..ROUNDS {
        let start = |name| ufs.start_another(name, &args);
        let mut loaders = [start("first")?, start("second")?];
        wait_until("two loaders on standby", LOAD_LIMIT, || {
            loaders.iter().all(|loader| loader.said().contains("ready"))
        })?;
        for loader in &mut loaders {
            loader.tell("attach")?;
        }
        wait_until("one of them in force", LOAD_LIMIT, || {
            state() == "enabled" && loaders.iter_mut().any(|loader| !loader.is_running())
        })?;
        let [mut first, second] = loaders;
        let (mut winner, mut loser) = match first.is_running() {
            true => (first, second),
            false => (second, first),
        };
        let (status, said) = (loser.end()?, loser.said());
        if status.code() != Some(1) || !said.contains("stop that one first") {
            bail!("the second of two loaders ended with {status} and said: {said}");
        }
        for way in [
            "whose directory it may enter",
            "whose directory it may not enter",
        ] {
            let (_worker, attached) = hinted(&sensitive, "background", 100, NOBODY)?;
            if !attached {
                bail!("a client cannot get at the table {way}: {}", winner.said());
            }
            fs::set_permissions(DIR, fs::Permissions::from_mode(0o700))?;
        }
        if !Table::open(None)?.is_active() {
            bail!("the table of hints is not the one that UFS reads");
        }
        let status = winner.stop()?;
        if !status.success() {
            bail!("the first of two loaders ended with {status}");
        }
    }
    Ok(format!(
        "{ROUNDS} times one was in force, with its table and its door"
    ))
}

/// A loader that cannot serve statistics schedules all the same.
pub(crate) fn unserved(ufs: &mut Ufs) -> Result<String> {
    ufs.stop(Signal::SIGTERM)?;
    // Where its socket would be, and cannot be removed.
    let taken = Path::new("/var/run/scx/root/stats");
    let _ = fs::remove_file(taken);
    fs::create_dir_all(taken)?;
    let mut loader = ufs.start_another("unserved", &[])?;
    let told = wait_until("UFS without statistics", LOAD_LIMIT, || {
        !loader.is_running() || loader.said().contains("without statistics")
    });
    let in_force = state();
    let _ = fs::remove_dir(taken);
    told?;
    if !loader.is_running() || in_force != "enabled" {
        bail!(
            "the state is {in_force}; the loader said: {}",
            loader.said()
        );
    }
    match loader.stop()? {
        status if status.success() => Ok("UFS was in force, and its loader said so".into()),
        status => bail!("the loader ended with {status}: {}", loader.said()),
    }
}

/// Makes what is pinned at `path` a table of another version.
fn stamp(path: &Path) -> Result<()> {
    // The version stands behind the magic word of eight bytes.
    Scribbled::open(path)?.store_half(2, 99);
    Ok(())
}

/// Pins there what is no table at all.
fn pin_another(path: &Path) -> Result<()> {
    let opts = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    fs::remove_file(path)?;
    let mut map = MapHandle::create(MapType::Hash, Some("another"), 8, 8, 1, &opts)?;
    Ok(map.pin(path)?)
}

/// What another version has left pinned is replaced, and its clients can tell.
pub(crate) fn upgraded(ufs: &mut Ufs) -> Result<String> {
    let path = Path::new(DIR).join(NAME);
    for what in ["another version", "another map"] {
        ufs.load(&[])?;
        let top = Cgroup::top()?;
        let sensitive = top.child("time_sensitive", 100)?;
        let (client, _) = hinted(&sensitive, "background", 100, 0)?;
        let old = Table::open(None)?;
        ufs.stop(Signal::SIGKILL)?;
        match what {
            "another version" => stamp(&path)?,
            _ => pin_another(&path)?,
        }
        ufs.load(&[])?;
        let witness = Witness::new()?;
        if what == "another version" && !old.is_replaced() {
            bail!("{what}: its clients are not told");
        }
        if old.is_active() || !Table::open(None)?.is_active() {
            bail!("{what} was pinned, and UFS does not read a table of its own");
        }
        // The old client is what its cgroup is; a new one is heard.
        let (fresh, attached) = hinted(&sensitive, "background", 100, 0)?;
        if !attached {
            bail!("{what}: a new client has no slot");
        }
        tiers_hold(&client, &fresh).context(what)?;
        witness.ufs_stayed(ufs)?;
    }
    frozen(ufs)?;
    Ok("a table of another version, another map and a frozen table were replaced".to_owned())
}

/// A user who has frozen its table, so that nobody can write it any more, gets another.
fn frozen(ufs: &mut Ufs) -> Result<()> {
    let group = NOBODY.to_string();
    let args = ["--hint-group", &group];
    ufs.load(&args)?;
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    drop(hinted(&sensitive, "background", 100, NOBODY)?);
    ufs.stop(Signal::SIGKILL)?;
    let pin = Path::new(DIR).join(&group).join(NAME);
    MapHandle::from_pinned_path(pin)?.freeze()?;
    ufs.load(&args)?;
    let (_client, attached) = hinted(&sensitive, "background", 100, NOBODY)?;
    if !attached {
        bail!("a user who has frozen its table gets no other");
    }
    Ok(())
}
