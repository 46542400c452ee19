//! A virtual machine in which `ufs-probe` proves claims about UFS, on the
//! lockstep clock: every CPU has the same speed whatever the host does, and the
//! kernel patches its code (as it does whenever a scheduler comes or goes) with
//! no CPU executing it meanwhile, which multi-threaded emulation is suspected of
//! getting wrong.
//!
//! Booting and loading cost more than most claims, so one machine is asked for
//! several.

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
    let script = format!(
        "uname -r; ./scx_ufs --kernel-lacks; ./ufs-probe --scx-ufs ./scx_ufs {}",
        claims.join(" ")
    );
    let mut job = Job::script(script)
        .file(env!("CARGO_BIN_EXE_scx_ufs"), "scx_ufs")
        .file(env!("CARGO_BIN_EXE_ufs-probe"), "ufs-probe");
    for (name, value) in env {
        job = job.env(*name, value);
    }
    let machine = Machine {
        timeout: patience,
        ..shape
    };
    let mut printed = String::new();
    let outcome = lab.run(&machine, &job, &mut |line| {
        println!("{line}");
        printed.push_str(line);
        printed.push('\n');
    });
    match outcome {
        Ok(_) => Ok(printed),
        Err(error) => Err(format!("{error}\n{printed}")),
    }
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
