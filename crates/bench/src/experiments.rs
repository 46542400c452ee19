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
    &[
        Experiment {
            name: "mixed",
            summary: "TPC-C beside TPC-H Q17 on the same CPUs: throughput and latency \
                  under SOLO, MIN:MAX and 50:50, per scheduler",
            section: "UFS (paper 000), Sections 3, 6.1, 6.2",
        },
        Experiment {
            name: "placement",
            summary: "TPC-C beside Q17, MIN:MAX: how much of TPC-C's time each CPU has, from traced \
                  context switches, per scheduler",
            section: "UFS (paper 000), Section 3, Figure 2",
        },
        Experiment {
            name: "weights",
            summary: "TPC-C and Q17, each in two classes with weights 2 and 3: whether throughput is \
                  by weight in both tiers, per scheduler",
            section: "UFS (paper 000), Section 6.4, Figure 8",
        },
        Experiment {
            name: "oversubscription",
            summary: "TPC-C with one, two and three clients for each CPU beside Q17, MIN:MAX: \
                  throughput per scheduler",
            section: "UFS (paper 000), Section 6.3, Figure 7",
        },
        Experiment {
            name: "wakeup",
            summary: "message and worker threads that compute in between, all in the background: \
                  throughput, tails of wake-ups and requests, per scheduler",
            section: "UFS (paper 000), Section 6.5, Figure 9",
        },
        Experiment {
            name: "ml",
            summary: "TPC-C beside the training of a logistic regression inside the server, under the \
                  mixes of mixed",
            section: "UFS (paper 000), Section 6.8, Figure 10",
        },
        Experiment {
            name: "hint-overhead",
            summary: "TPC-C beside Q17 by SQL roles, MIN:MAX under UFS, with hints about locks off \
                  and on, stock and patched: what they cost, what they are good for",
            section: "UFS (paper 000), Sections 6.1, 6.7",
        },
        Experiment {
            name: "locks",
            summary: "threads at one lock: who gets how much of it, at what price, under \
                  CFL, u-SCL and the usual mutexes",
            section: "CFL (paper 004), Sections 3.4, 4.5, 4.6",
        },
        Experiment {
            name: "preempt",
            summary: "short urgent transactions beside long ones in one engine, under waiting, \
                  cooperative and preemptive policies and on OS threads",
            section: "PreemptDB (paper 001), Section 6",
        },
        Experiment {
            name: "rocksdb",
            summary: "db_bench's foreground beside background threads with low priority, \
                  with the C library's mutexes and with CFL's",
            section: "CFL (paper 004), Section 4.3, Figure 6",
        },
        Experiment {
            name: "inversion",
            summary: "an urgent session wants the lock of a background one while a third burns \
                  the CPU: how long it waits, per lock, scheduler and hints",
            section: "UFS (paper 000), Section 6.6, Table 4",
        },
        Experiment {
            name: "tasks",
            summary: "TPC-H queries on small and large data come while others run: who is slowed \
                  down how much, under our scheduler's policies, stock DataFusion and DuckDB",
            section: "Self-tuning scheduling (paper 003), Section 5",
        },
        Experiment {
            name: "meta",
            summary: "what switching schedulers costs, what following phases brings beside fixed \
                  slices, whether a hundred swaps with mishaps leave any harm, and what a web \
                  application does under each scheduler and while they take turns",
            section: "Metaschedulers (paper 002), Sections 2.3, 3",
        },
    ]
}
