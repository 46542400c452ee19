//! The guest in which the package is installed.

use std::path::Path;

use giveway_lab::{Job, LabSpec, Layer, Machine};

use crate::transcript::{self, tests, transcript};

/// What it says that runs `tests/SCRIPT` with the package and `guest/machine.sh` beside it.
pub(crate) fn said(package: &Path, script: &str) -> String {
    let job = Job::new(["sh", script])
        .file(package, "giveway.deb")
        .file(tests().join("guest/machine.sh"), "machine.sh")
        .file(tests().join(script), script);
    transcript(&systemd(), &machine(), &job)
}

/// A lab with systemd, to be the first process of a namespace.
fn systemd() -> LabSpec {
    let layer = Layer {
        key: "systemd".into(),
        packages: vec!["systemd".into()],
        ..Layer::default()
    };
    LabSpec {
        layer: Some(layer),
        ..LabSpec::default()
    }
}

/// With room for a machine in memory and the programs, not optimized, several times over.
fn machine() -> Machine {
    Machine {
        memory_mib: 6144,
        ..transcript::machine()
    }
}
