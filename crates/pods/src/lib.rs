//! Pods say their tier in an annotation; this brings it to UFS.
//!
//! ```text
//!   pod template            kubelet             container runtime
//!   annotations:        ──► PodSandbox:     ──► annotations as of the
//!     giveway/tier:         annotations         pod's start
//!       background                                   │ runtime.rs: asked every
//!                                                    ▼ few seconds, CRI v1 (grpc.rs)
//!   kubepods.slice/…-podUID.slice  ◄── agent.rs ◄── wish.rs: may it?
//!        place.rs: which cgroup        marks it (giveway_tier::mark)
//! ```
//!
//! The kubelet names the cgroups, so a name cannot say the tier; root marks the
//! pod's cgroup instead, and UFS heeds marks (`scx_ufs --cgroup-marks`). Nothing is
//! remembered between rounds: each makes the marks what the annotations say, so an
//! agent that is started anew goes on where the last one was, and marks outlive it.
//!
//! RIGHTS. `background` is anybody's to ask for. `time_sensitive` puts a pod above
//! what its place in the hierarchy gives it, so it counts for the namespaces that
//! the administrator lists, and for no others.
//!
//! WHY THE RUNTIME, and neither the kubelet nor the API server: its socket lies on
//! the node, so no network, no certificate and no account of the cluster is in the
//! way, and it knows the pods that run rather than those that should.
//!
//! Known weaknesses: the runtime keeps the annotations that a pod was started with,
//! so a change to a running pod counts from its next start. A pod is marked up to a
//! round, and UFS heeds the mark up to a second, after it has started.

mod agent;
mod grpc;
pub mod place;
mod runtime;
mod wish;

pub use agent::{Change, Round, round};
pub use grpc::Unanswered;
pub use runtime::{Error, Runtime, Sandbox};
pub use wish::{ANNOTATION, Rights, Wish};
