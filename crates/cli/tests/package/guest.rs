//! The guest in which the package is installed.

use std::path::Path;

use giveway_lab::{Job, LabSpec, Layer, Machine};

use crate::transcript::{self, tests, transcript};

/// What it says that runs `tests/SCRIPT` with the package and `guest/machine.sh` beside it.
pub(crate) fn said(package: &Path, script: &str) -> String {
    said_by(package, script, &[], systemd())
}

/// The same with more of `tests/` beside the script, in a lab of one's own.
pub(crate) fn said_by(package: &Path, script: &str, more: &[&Path], layer: Layer) -> String {
    let job = Job::new(["sh", script])
        .file(package, "giveway.deb")
        .file(tests().join("guest/machine.sh"), "machine.sh")
        .file(tests().join(script), script);
    let job = more.iter().fold(job, |job, path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        job.file(*path, name)
    });
    let spec = LabSpec {
        layer: Some(layer),
        ..LabSpec::default()
    };
    transcript(&spec, &machine(), &job)
}

/// A lab with systemd, to be the first process of a namespace.
pub(crate) fn systemd() -> Layer {
    Layer {
        key: "systemd".into(),
        packages: vec!["systemd".into()],
        ..Layer::default()
    }
}

/// With room for a machine in memory and the programs, not optimized, several times over.
fn machine() -> Machine {
    Machine {
        memory_mib: 6144,
        ..transcript::machine()
    }
}
