//! Where a tier counts at the disk: by the scheduler of each disk, or by io.cost.
//!
//! A disk is a block device with hardware and a queue of its own. Devices made of others
//! (`dm`, `md`, `loop`) and those in memory pass requests on or have no queue to order;
//! they have no directory `device`, or no scheduler. Removable media are no place for data.
//!
//! ```text
//! /sys/block/sda/device             there for hardware
//! /sys/block/sda/removable          0
//! /sys/block/sda/queue/scheduler    none [mq-deadline] kyber bfq
//! /sys/block/sda/dev                8:0
//! MOUNT/io.cost.qos                 8:0 enable=1 ctrl=auto ...
//! ```
//!
//! `disk` says what counts where.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use giveway_machine::cgroup;

use super::running::text;
use super::{Finding, Way, note, ok};

const NAME: &str = "I/O";
/// The schedulers that heed classes.
const WITH_CLASSES: [&str; 2] = ["mq-deadline", "bfq"];

/// A disk and what decides on its requests.
struct Disk {
    name: String,
    /// Major and minor number: `8:0`.
    number: String,
    scheduler: String,
}

/// One finding, with a line for each set of disks that are alike. Without tiers at the
/// disk all else works: hence a note.
pub(super) fn finding(root: &Path) -> Finding {
    let disks = disks(root);
    if disks.is_empty() {
        return note(
            Way::Native,
            NAME,
            "no disk has a scheduler: tiers do not count",
        );
    }
    let cost = Cost::read(root);
    let mut alike: BTreeMap<(bool, String), Vec<&Disk>> = BTreeMap::new();
    for disk in &disks {
        let by_class = WITH_CLASSES.contains(&disk.scheduler.as_str());
        let by_weight = cost.as_ref().is_some_and(|cost| cost.is_on(&disk.number));
        let by = match by_weight {
            true => format!("{}, io.cost", disk.scheduler),
            false => disk.scheduler.clone(),
        };
        let key = (by_class || by_weight, by);
        alike.entry(key).or_default().push(disk);
    }
    let lines: Vec<String> = alike
        .iter()
        .map(|((counts, by), disks)| {
            let verdict = match counts {
                true => "tiers count",
                false => "tiers do not count",
            };
            format!("{} ({by}): {verdict}", names(disks))
        })
        .collect();
    let detail = lines.join("\n");
    let ignores_tiers = alike.iter().find(|((counts, _), _)| !counts);
    match ignores_tiers {
        None => ok(Way::Native, NAME, detail),
        Some((_, disks)) => Finding {
            remedy: Some(remedy(disks[0], cost.as_ref())),
            ..note(Way::Native, NAME, detail)
        },
    }
}

fn disks(root: &Path) -> Vec<Disk> {
    let mut found: Vec<Disk> = fs::read_dir(root.join("sys/block"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let dir = entry.path();
            let is_fixed = text(&dir, "removable").is_none_or(|it| it == "0");
            let schedulers = text(&dir, "queue/scheduler")?;
            let (_, rest) = schedulers.split_once('[')?;
            let (scheduler, _) = rest.split_once(']')?;
            (dir.join("device").exists() && is_fixed).then(|| Disk {
                name: entry.file_name().to_string_lossy().into_owned(),
                number: text(&dir, "dev").unwrap_or_default(),
                scheduler: scheduler.to_owned(),
            })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Two names, or one and how many there are beside it: a line has 80 columns.
fn names(disks: &[&Disk]) -> String {
    match disks {
        [first, second] => format!("{}, {}", first.name, second.name),
        [first, rest @ ..] if !rest.is_empty() => format!("{} and {} more", first.name, rest.len()),
        _ => disks.iter().map(|disk| disk.name.as_str()).collect(),
    }
}

fn remedy(disk: &Disk, cost: Option<&Cost>) -> String {
    let scheduler = format!("echo mq-deadline >/sys/block/{}/queue/scheduler", disk.name);
    match cost {
        Some(cost) => format!(
            "{scheduler}, or echo '{} enable=1' >{}",
            disk.number, cost.path
        ),
        None => scheduler,
    }
}

/// The kernel's controller that shares a disk by `io.weight`.
struct Cost {
    /// Where it is switched on, for each disk.
    path: String,
    settings: String,
}

impl Cost {
    /// None if the kernel does not have it, or not in this container.
    fn read(root: &Path) -> Option<Cost> {
        let mounts = text(root, "proc/self/mountinfo")?;
        let path = cgroup::mount_in(&mounts)?.join("io.cost.qos");
        let path = path.to_str()?;
        Some(Cost {
            settings: text(root, path.trim_start_matches('/'))?,
            path: path.to_owned(),
        })
    }

    fn is_on(&self, number: &str) -> bool {
        self.settings.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(number) && words.any(|word| word == "enable=1")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Examination, Health, text as printed};
    use super::*;

    /// A machine with these disks, by name and schedulers, and these settings of io.cost.
    fn machine(disks: &[(&str, &str)], cost: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (minor, (name, schedulers)) in disks.iter().enumerate() {
            let dir = format!("sys/block/{name}");
            fs::create_dir_all(root.path().join(&dir).join("device")).unwrap();
            write(format!("{dir}/removable"), "0\n");
            write(format!("{dir}/dev"), &format!("8:{minor}\n"));
            write(format!("{dir}/queue/scheduler"), &format!("{schedulers}\n"));
        }
        if let Some(cost) = cost {
            let mount = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
            write("proc/self/mountinfo".into(), mount);
            write("sys/fs/cgroup/io.cost.qos".into(), cost);
        }
        root
    }

    const NONE: &str = "[none] mq-deadline";
    const DEADLINE: &str = "none [mq-deadline] bfq";

    #[test]
    fn a_disk_without_priorities_is_a_note_with_what_mends_it() {
        let finding = finding(machine(&[("vda", DEADLINE), ("nvme0n1", NONE)], None).path());
        assert_eq!(finding.health, Health::Note);
        assert_eq!(
            finding.detail,
            "nvme0n1 (none): tiers do not count\nvda (mq-deadline): tiers count"
        );
        let remedy = "echo mq-deadline >/sys/block/nvme0n1/queue/scheduler";
        assert_eq!(finding.remedy.unwrap(), remedy);
    }

    #[test]
    fn schedulers_with_priorities_need_no_remedy() {
        let finding = finding(machine(&[("sda", "none [bfq]"), ("vda", DEADLINE)], None).path());
        assert_eq!((finding.health, finding.remedy), (Health::Ok, None));
        assert!(finding.detail.contains("sda (bfq): tiers count"));
    }

    #[test]
    fn weights_count_on_the_disks_for_which_io_cost_is_on() {
        let disks = [("sda", NONE), ("sdb", "none [kyber]")];
        let of = |cost| finding(machine(&disks, Some(cost)).path());
        // 18:0 is another device.
        let off = of("8:0 enable=0 ctrl=auto\n18:0 enable=1 ctrl=auto\n");
        assert!(!off.detail.contains("tiers count"), "{}", off.detail);
        let remedy = off.remedy.unwrap();
        assert!(
            remedy.ends_with("or echo '8:1 enable=1' >/sys/fs/cgroup/io.cost.qos"),
            "{remedy}"
        );
        let first = of("8:0 enable=1 ctrl=auto\n");
        assert_eq!(
            first.detail,
            "sdb (kyber): tiers do not count\nsda (none, io.cost): tiers count"
        );
        assert_eq!(of("8:0 enable=1\n8:1 enable=1\n").health, Health::Ok);
    }

    #[test]
    fn only_fixed_hardware_with_a_queue_counts_as_a_disk() {
        let root = machine(&[("sda", DEADLINE), ("sr0", NONE), ("loop0", NONE)], None);
        let block = root.path().join("sys/block");
        fs::write(block.join("sr0/removable"), "1\n").unwrap();
        fs::remove_dir(block.join("loop0/device")).unwrap();
        // A device of the kernel's block layer that keeps no queue.
        fs::create_dir_all(block.join("pmem0/device")).unwrap();
        assert_eq!(
            finding(root.path()).detail,
            "sda (mq-deadline): tiers count"
        );
        let none = finding(machine(&[], None).path());
        assert_eq!(none.health, Health::Note);
        assert!(none.detail.contains("no disk"));
    }

    #[test]
    fn many_disks_fit_80_columns() {
        let names: Vec<String> = (0..24).map(|n| format!("nvme{n}c{n}n1")).collect();
        let disks = |used: usize| -> Vec<(&str, &str)> {
            let names = names[..used].iter();
            names.map(|name| (name.as_str(), DEADLINE)).collect()
        };
        for used in [2, 24] {
            let all: String = (0..24).map(|n| format!("8:{n} enable=1\n")).collect();
            let findings = vec![finding(machine(&disks(used), Some(&all)).path())];
            let said = printed(&Examination::of(findings, true), false);
            assert!(
                said.contains(NAME) && said.lines().all(|line| line.len() <= 80),
                "{said}"
            );
        }
    }
}
