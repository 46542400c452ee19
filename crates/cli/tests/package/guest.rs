//! The guest in which the package is installed.

use giveway_lab::{LabSpec, Layer, Machine};

use crate::transcript;

/// A lab with systemd, to be the first process of a namespace.
pub(crate) fn systemd() -> LabSpec {
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
pub(crate) fn machine() -> Machine {
    Machine {
        memory_mib: 6144,
        ..transcript::machine()
    }
}
