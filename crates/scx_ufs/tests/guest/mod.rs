//! A virtual machine in which `ufs-probe` proves claims about UFS, on the
//! lockstep clock: every CPU has the same speed whatever the host does, and the
//! kernel patches its code (as it does whenever a scheduler comes or goes) with
//! no CPU executing it meanwhile, which multi-threaded emulation is suspected of
//! getting wrong.
//!
//! Booting and loading cost more than most claims, so one machine is asked for
//! several.
//!
//! One seed is one run on that clock, so a bound that holds once may have been met by
//! luck. `GIVEWAY_SEED` chooses another course: other random numbers in the guest, and
//! another phase between the probe and the kernel's timers. `cargo xtask seeds` runs
//! the claims with many seeds and shows how their numbers are distributed.

use std::time::Duration;

use giveway_lab::{Job, Lab, LabSpec, Lines, Machine};

/// A guest that hangs is ended then; a host that is busy with other things takes
/// several times the usual two or three minutes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2400);

/// Has `claims` tried on a machine of that shape; what the probe printed, after the
/// kernel's release and what UFS does without on it.
///
/// # Errors
/// The machine did not come to an end of its own, and why.
pub(crate) fn ask(
    spec: &LabSpec,
    shape: Machine,
    patience: Duration,
    env: &[(&str, String)],
    claims: &[&str],
) -> Result<String, String> {
    let lab = Lab::open(spec, &Lines).map_err(|error| error.to_string())?;
    let seed = seed();
    let script = format!(
        "sleep {}; uname -r; ./scx_ufs --kernel-lacks; ./ufs-probe --scx-ufs ./scx_ufs {}",
        phase(seed).as_secs_f64(),
        claims.join(" ")
    );
    let mut job = Job::script(script)
        .file(env!("CARGO_BIN_EXE_scx_ufs"), "scx_ufs")
        .file(env!("CARGO_BIN_EXE_ufs-probe"), "ufs-probe");
    for (name, value) in env {
        job = job.env(*name, value);
    }
    // The claims are about milliseconds, and the causal clock takes twice as long for
    // eight CPUs.
    let machine = Machine {
        timeout: patience,
        seed,
        clock: shape.clock.loose(),
        ..shape
    };
    let mut printed = String::new();
    let answer = lab.answer(&machine, &job, &mut |line| {
        println!("{line}");
        printed.push_str(line);
        printed.push('\n');
    });
    match answer {
        Ok(answer) => {
            if answer.is_kept {
                println!("KEPT: {}", claims.join(" "));
            }
            Ok(printed)
        }
        Err(error) => Err(format!("{error}\n{printed}")),
    }
}

/// `GIVEWAY_SEED`, or 1.
fn seed() -> u64 {
    match std::env::var("GIVEWAY_SEED") {
        Ok(text) => text.parse().expect("GIVEWAY_SEED is a whole number"),
        Err(_) => 1,
    }
}

/// How long the probe is held back with this seed: a prime number of microseconds, so
/// that twenty seeds meet ticks (4 ms) and UFS's timer (50 ms) at twenty phases.
fn phase(seed: u64) -> Duration {
    Duration::from_micros(seed.saturating_sub(1) * 7919 % 50_000)
}

/// # Panics
/// Unless the probe printed that `claim` passed; with what it printed instead.
pub(crate) fn shown(claim: &str, printed: &str) {
    let (pass, fail) = (format!("PASS {claim}: "), format!("FAIL {claim}: "));
    if printed.lines().any(|line| line.starts_with(&pass)) {
        return;
    }
    let Some(at) = printed.find(&fail) else {
        panic!("{claim} was not tried:\n{printed}");
    };
    // Up to the next answer.
    let told = &printed[at..];
    let end = ["\nPASS ", "\nFAIL "].map(|next| told.find(next).unwrap_or(told.len()));
    panic!("{}", &told[..end[0].min(end[1])]);
}
