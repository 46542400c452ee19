//! The list of experiments: what `giveway bench --list` prints.

/// A measurement that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The name on the command line and in result files.
    pub name: &'static str,
    /// What it measures, in one line.
    pub summary: &'static str,
    /// The paper and sections it reproduces.
    pub section: &'static str,
}

/// All experiments, in the order in which they are listed.
pub fn experiments() -> &'static [Experiment] {
    &[Experiment {
        name: "mixed",
        summary: "TPC-C beside TPC-H Q17 on the same CPUs: throughput and latency \
                  under SOLO, MIN:MAX and 50:50, per scheduler",
        section: "UFS (paper 000), Sections 3, 6.1, 6.2",
    }]
}
