//! Pods name their tier in an annotation; this crate passes it on to UFS.
//!
//! ```text
//!   pod template            kubelet             container runtime
//!   annotations:        ──► PodSandbox:     ──► annotations as of the
//!     giveway/tier:         annotations         pod's start
//!       background                                   │ runtime.rs: asked every
//!                                                    ▼ few seconds, CRI v1 (grpc.rs)
//!   kubepods.slice/…-podUID.slice  ◄── agent.rs ◄── request.rs: may it?
//!        pod_cgroup.rs: which cgroup        marks it (giveway_tier::mark)
//! ```
//!
//! The kubelet names the cgroups, so a name cannot say the tier; root marks the
//! pod's cgroup instead, and UFS heeds marks (`scx_ufs --cgroup-marks`). No state is
//! kept between rounds: each round sets the marks to what the annotations say, so a
//! restarted agent continues where the last one was, and marks outlive it.
//!
//! RIGHTS. Any pod may ask for `background`. `time_sensitive` can raise a pod above the
//! tier of its parent cgroup, so it counts only in the namespaces that the administrator
//! lists.
//!
//! WHY THE RUNTIME, and neither the kubelet nor the API server: its socket is on the
//! node, so no network, certificate or cluster account is needed, and it knows the pods
//! that run, not those that should run.
//!
//! Known weaknesses: the runtime keeps the annotations that a pod was started with,
//! so a change to a running pod counts from its next start. After its start a pod is
//! marked within a round, and UFS obeys the mark within a second.

mod agent;
mod grpc;
pub mod pod_cgroup;
mod request;
mod runtime;

pub use agent::{Change, Round, round};
pub use grpc::Unanswered;
pub use request::{ANNOTATION, Refusal, Request, Rights};
pub use runtime::{Error, Runtime, Sandbox};
