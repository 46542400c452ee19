//! `run` at a disk, under each of the kernel's schedulers for disks: one guest tries them
//! (`disk.sh`), one test per claim.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use assert_cmd::cargo::cargo_bin;
use giveway_lab::{Job, Lab, LabSpec, Lines};

#[path = "guest/transcript.rs"]
mod transcript;

use transcript::{hold, machine, tests, transcript};

/// The disk and the schedulers that can be loaded.
const DRIVERS: [&str; 4] = ["configfs", "null_blk", "mq-deadline", "bfq"];

/// These claims of `disk.sh` held in the guest.
fn held(claims: &[&str]) {
    static SAID: OnceLock<String> = OnceLock::new();
    let said = SAID.get_or_init(|| {
        let spec = LabSpec::default();
        let lab = Lab::open(&spec, &Lines).unwrap();
        let job = Job::new(["sh", "disk.sh"])
            .file(cargo_bin!("giveway"), "giveway")
            .file(tests().join("disk.sh"), "disk.sh");
        let job = DRIVERS.iter().fold(job, |job, name| {
            let driver: PathBuf = lab.driver(name).expect(name);
            job.file(Path::new(&driver), format!("{name}.ko"))
        });
        transcript(&spec, &machine(), &job)
    });
    hold(said, claims);
}

#[test]
fn a_disk_without_a_scheduler_serves_all_alike() {
    held(&["without_a_scheduler_all_are_equal"]);
}

#[test]
fn background_reads_give_way_where_the_disk_has_a_scheduler() {
    held(&["mq_deadline_serves_urgent_first", "bfq_serves_urgent_first"]);
}
