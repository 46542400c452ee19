//! What a guest says, and which claims are in it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use giveway_lab::{Clock, Job, Lab, LabSpec, Lines, Machine};

/// The machine of these guests.
pub(crate) fn machine() -> Machine {
    Machine {
        cpus: 2,
        clock: Clock::LOOSE,
        timeout: Duration::from_secs(2400),
        ..Machine::default()
    }
}

/// Where the scripts are.
pub(crate) fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// What a guest says that runs the job, all of it.
pub(crate) fn transcript(spec: &LabSpec, machine: &Machine, job: &Job) -> String {
    let lab = Lab::open(spec, &Lines).unwrap();
    let mut said = String::new();
    let answer = lab.answer(machine, job, &mut |line| {
        said.push_str(line);
        said.push('\n');
    });
    let answer = answer.unwrap_or_else(|error| panic!("{error}\n{said}"));
    assert_eq!(answer.status, 0, "the guest said:\n{said}");
    if answer.is_kept {
        println!("KEPT: the guest's transcript");
    }
    said
}

/// Every one of these claims held, by what the guest said.
pub(crate) fn hold(said: &str, claims: &[&str]) {
    for claim in claims {
        let held = said.lines().any(|line| line == format!("ok {claim}"));
        assert!(held, "{claim} did not hold; the guest said:\n{said}");
    }
}
