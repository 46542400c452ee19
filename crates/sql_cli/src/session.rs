//! From options to a session: an engine, its tables, its settings.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use giveway_sql::{ClusterSettings, Engine, Policy, QueryOptions, Session, files};
use giveway_tier::{Tier, Weight};

use giveway_command::Failure;

/// How the engine is to be, and what is to be in it.
#[derive(Args, Debug)]
pub(crate) struct EngineArgs {
    /// A table: a Parquet, CSV, TSV or JSON file, or a directory of one kind of them;
    /// may be repeated
    #[arg(long, value_name = "NAME=PATH")]
    table: Vec<NamedPath>,
    /// A directory, or s3://BUCKET/PREFIX, in which every file or directory is a table
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A query gets a worker of the cluster for each part of this size of its largest
    /// table; smaller queries run here
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    part_size: Size,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// time_sensitive (somebody waits for the queries) or background
    #[arg(long)]
    tier: Option<Tier>,
    /// Share within the tier, 1 to 10000 [default: 100]
    #[arg(long)]
    weight: Option<Weight>,
}

/// What an engine has of its machine, and of others.
#[derive(Args, Debug)]
pub(crate) struct MachineArgs {
    /// Threads that run queries [default: as many as CPUs]; or HOST:PORT of each 'giveway
    /// sql worker' that queries on large files are spread over; or both, after commas
    #[arg(long, value_name = "N|HOST:PORT", value_delimiter = ',')]
    workers: Vec<Workers>,
    /// What all queries together may hold, such as 2G or 512M [default: three
    /// quarters of the memory of this machine, or of this container]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Operators that the plan of a statement may have, with the views and the queries of a
    /// WITH in it, each as often as it is read
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    plan_size: u32,
    /// End no background query when a time-sensitive one needs its memory: the time-sensitive
    /// one fails then
    #[arg(long)]
    keep_background: bool,
    /// Disk space for results that their clients do not read, such as 20G; in TMPDIR
    /// [default: 8G]
    #[arg(long, value_name = "SIZE")]
    spill: Option<Size>,
    /// Which query goes first: adaptive, tuned (the paper's), las, las:START,FLOOR,
    /// decay:LAMBDA,D_START, fair, fifo, lottery, lottery:SEED or balanced
    #[arg(long, default_value_t)]
    policy: Policy,
}

impl MachineArgs {
    /// How many threads are asked for.
    pub(crate) fn threads(&self) -> Option<u16> {
        self.workers.iter().find_map(|workers| match workers {
            Workers::Threads(threads) => Some(*threads),
            Workers::At(_) => None,
        })
    }

    /// Adds a worker elsewhere.
    pub(crate) fn add_other(&mut self, address: String) {
        self.workers.push(Workers::At(address));
    }

    /// What all queries together may hold, bytes, if there is a limit.
    pub(crate) fn memory_bytes(&self) -> Option<usize> {
        self.memory.or_else(default_memory).map(|Size(bytes)| bytes)
    }

    /// Sets that.
    pub(crate) fn set_memory(&mut self, bytes: usize) {
        self.memory = Some(Size(bytes));
    }

    /// How the engine is made for a further process, beside its threads and its memory.
    pub(crate) fn kind_as_args(&self) -> Vec<OsString> {
        let mut args = vec!["--plan-size".into(), self.plan_size.to_string().into()];
        if self.keep_background {
            args.push("--keep-background".into());
        }
        args
    }

    /// The workers on other machines.
    pub(crate) fn others(&self) -> impl Iterator<Item = String> {
        self.workers.iter().filter_map(|workers| match workers {
            Workers::Threads(_) => None,
            Workers::At(address) => Some(address.clone()),
        })
    }

    /// Starts the engine, in a cluster if there are other workers.
    pub(crate) fn engine(&self, cluster: Option<ClusterSettings>) -> Result<Engine, Failure> {
        let mut builder = (Engine::builder().policy(self.policy))
            .plan_size(self.plan_size as usize)
            .keep_background(self.keep_background);
        if let Some(threads) = self.threads() {
            builder = builder.workers(threads.into());
        }
        let is_number = |workers: &&Workers| matches!(workers, Workers::Threads(_));
        if self.workers.iter().filter(is_number).count() > 1 {
            return Err(Failure::usage(
                "--workers has two numbers of threads: leave out one",
            ));
        }
        match cluster {
            Some(cluster) => builder = builder.cluster(cluster),
            None if self.others().next().is_some() => {
                return Err(Failure::usage(
                    "a worker has no other workers: give them to 'giveway sql serve'",
                ));
            }
            None => {}
        }
        if let Some(bytes) = self.memory_bytes() {
            builder = builder.memory_limit(bytes);
        }
        if let Some(Size(bytes)) = self.spill {
            builder = builder.spill(std::env::temp_dir(), bytes as u64);
        }
        builder
            .build()
            .map_err(|error| Failure::usage(error).with_remedy("change --workers or --memory"))
    }
}

impl EngineArgs {
    /// Starts the engine, which logs in at other servers with this, and finds the tables.
    pub(crate) async fn session(
        &self,
        others_login: Option<(&str, &str)>,
    ) -> Result<Session, Failure> {
        let others: Vec<String> = self.machine.others().collect();
        let cluster = (!others.is_empty()).then(|| {
            let mut cluster = ClusterSettings::new(others)
                .part_bytes(self.part_size.0 as u64)
                .notice(|said| eprintln!("giveway: {said}"));
            if let Some((user, password)) = others_login {
                cluster = cluster.password(user, password);
            }
            cluster
        });
        let engine = self.machine.engine(cluster)?;
        for worker in engine.cluster().await {
            if let Some(why) = worker.left_out {
                eprintln!(
                    "giveway: warning: worker {} is left out: {why}",
                    worker.address
                );
            }
        }
        let session = engine.session();
        let mut options = QueryOptions::default();
        options.tier = self.tier.unwrap_or(options.tier);
        options.weight = self.weight.unwrap_or(options.weight);
        session.set_options(options);
        if let Some(dir) = &self.data {
            let found = files::register_all(&session, dir)
                .await
                .map_err(|error| Failure::new(error).with_remedy("correct --data"))?;
            for error in found.left_out {
                eprintln!("giveway: warning: there is no table for this file: {error}");
            }
        }
        for NamedPath { name, path } in &self.table {
            files::register(&session, name, path)
                .await
                .map_err(|error| Failure::new(error).with_remedy("correct --table"))?;
        }
        Ok(session)
    }

    /// The same as arguments, for a further process.
    pub(crate) fn as_args(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        let mut push = |name: &str, value: OsString| args.extend([name.into(), value]);
        for NamedPath { name, path } in &self.table {
            let mut table = OsString::from(format!("{name}="));
            table.push(path);
            push("--table", table);
        }
        if let Some(dir) = &self.data {
            push("--data", dir.into());
        }
        push(
            "--part-size",
            format!("{}K", self.part_size.0.div_ceil(1024)).into(),
        );
        if let Some(threads) = self.machine.threads() {
            push("--workers", threads.to_string().into());
        }
        if let Some(bytes) = self.machine.memory_bytes() {
            push("--memory", format!("{}K", bytes / 1024).into());
        }
        push("--policy", self.machine.policy.to_string().into());
        args.extend(self.machine.kind_as_args());
        args
    }

    /// The same settings as statements, for a server.
    pub(crate) fn settings(&self) -> Vec<String> {
        let tier = self
            .tier
            .map(|tier| format!("SET giveway.tier = '{tier}';"));
        let weight = (self.weight).map(|weight| format!("SET giveway.weight = {weight};"));
        tier.into_iter().chain(weight).collect()
    }
}

/// Who runs queries.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Workers {
    /// So many threads of this machine.
    Threads(u16),
    /// A worker elsewhere, at HOST:PORT.
    At(String),
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Workers, String> {
        let error = || {
            format!(
                "'{text}': write a number of threads, 1 to 1024, or where a worker is, such as \
                 db1:50052"
            )
        };
        if let Ok(threads) = text.parse::<u16>() {
            return match threads {
                1..=1024 => Ok(Workers::Threads(threads)),
                _ => Err(error()),
            };
        }
        match text.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty() && !host.contains("://") && port.parse::<u16>().is_ok() =>
            {
                Ok(Workers::At(text.to_owned()))
            }
            _ => Err(error()),
        }
    }
}

/// A table and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedPath {
    name: String,
    path: PathBuf,
}

impl FromStr for NamedPath {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedPath, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(NamedPath {
                name: name.to_owned(),
                path: path.into(),
            }),
            _ => Err("write NAME=PATH, such as orders=data/orders.parquet".to_owned()),
        }
    }
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let error = || format!("'{text}': write a number and a unit, such as 512M or 2G");
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(error)?;
        let (number, unit) = text.split_at(digits);
        let power = match unit.trim_end_matches("iB").trim_end_matches('B') {
            "K" => 1,
            "M" => 2,
            "G" => 3,
            "T" => 4,
            _ => return Err(error()),
        };
        let bytes = number.parse::<f64>().map_err(|_| error())? * 1024f64.powi(power);
        match bytes >= 1.0 && bytes < (1u64 << 60) as f64 {
            true => Ok(Size(bytes as usize)),
            false => Err(error()),
        }
    }
}

/// Three quarters of what there is; no limit where that cannot be told.
fn default_memory() -> Option<Size> {
    let bytes = memory(Path::new("/proc"), Path::new("/sys/fs/cgroup"))?;
    Some(Size(bytes / 4 * 3))
}

/// What this process may have, bytes: the machine's memory, or the least limit of its
/// cgroup and of those above it. Beyond that limit the kernel kills it.
fn memory(proc: &Path, cgroups: &Path) -> Option<usize> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let limit = cgroup_limit(proc, cgroups).unwrap_or(usize::MAX);
    Some(limit.min(kib * 1024))
}

/// The least `memory.max` from this process's cgroup upwards (cgroup v2). A container
/// sees its own cgroup as the root, with the limit in it.
fn cgroup_limit(proc: &Path, cgroups: &Path) -> Option<usize> {
    let text = fs::read_to_string(proc.join("self/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limits = Path::new(path).ancestors().filter_map(|path| {
        let limit = fs::read_to_string(cgroups.join(path).join("memory.max")).ok()?;
        // Otherwise it is "max".
        limit.trim().parse().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let size = |text: &str| text.parse::<Size>().map(|Size(bytes)| bytes);
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("1.5GB"), Ok(3 << 29));
        for wrong in ["", "G", "12", "-1G", "1X", "nanG", "9999999T"] {
            let error = size(wrong).unwrap_err();
            assert!(error.contains("512M"), "{wrong}: {error}");
        }
    }

    #[test]
    fn workers_are_threads_or_places() {
        assert_eq!("8".parse(), Ok(Workers::Threads(8)));
        assert_eq!("db1:50052".parse(), Ok(Workers::At("db1:50052".to_owned())));
        assert_eq!("[::1]:1".parse(), Ok(Workers::At("[::1]:1".to_owned())));
        for wrong in ["0", "1025", "db1", ":1", "db1:x", "grpc://db1:1", ""] {
            let error = wrong.parse::<Workers>().unwrap_err();
            assert!(error.contains("db1:50052"), "{wrong}: {error}");
        }
    }

    #[test]
    fn tables_have_a_name_and_a_path() {
        let parsed: NamedPath = "a=b=c.csv".parse().unwrap();
        assert_eq!(
            (parsed.name.as_str(), parsed.path.to_str()),
            ("a", Some("b=c.csv"))
        );
        assert!("a".parse::<NamedPath>().unwrap_err().contains("NAME=PATH"));
        assert!("=b".parse::<NamedPath>().is_err());
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(default_memory().is_some_and(|Size(bytes)| bytes > 1 << 20));
    }

    /// A machine of 4 GiB whose processes are in this cgroup, below these limits.
    fn machine(cgroup: &str, limits: &[(&str, &str)]) -> Option<usize> {
        let dir = tempfile::tempdir().unwrap();
        let (proc, cgroups) = (dir.path().join("proc"), dir.path().join("cgroup"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            proc.join("meminfo"),
            "MemTotal:  4194304 kB\nMemFree: 1 kB\n",
        );
        write(proc.join("self/cgroup"), cgroup);
        for (path, limit) in limits {
            write(cgroups.join(path).join("memory.max"), limit);
        }
        memory(&proc, &cgroups)
    }

    #[test]
    fn memory_is_what_the_container_may_have() {
        const GIB: usize = 1 << 30;
        // A container, which sees its cgroup as the root.
        assert_eq!(machine("0::/\n", &[("", "1073741824\n")]), Some(GIB));
        // A service in a slice: the least limit on the way up.
        let slice = [("a.slice", "2147483648\n"), ("a.slice/b.service", "max\n")];
        let service = "1:name=systemd:/x\n0::/a.slice/b.service\n";
        assert_eq!(machine(service, &slice), Some(2 * GIB));
        // More than there is, no limit, no cgroups.
        assert_eq!(machine("0::/\n", &[("", "8589934592\n")]), Some(4 * GIB));
        assert_eq!(machine("0::/\n", &[("", "max\n")]), Some(4 * GIB));
        assert_eq!(machine("", &[]), Some(4 * GIB));
    }
}
