//! The container runtime, asked which pods there are: one call of the Container Runtime
//! Interface, version 1 (kubernetes/cri-api, `runtime.v1.RuntimeService`), which
//! containerd and CRI-O serve on a socket of the node.
//!
//! A pod is there until its sandbox is removed, not only while the sandbox's own process
//! runs: that process can end before the pod's containers do, and a background pod must
//! not rise by that. A pod whose sandbox was made anew has two for a time, and the
//! youngest counts.
//!
//! Only the messages of that call are here, and of them only the fields that are
//! used; numbers and names are the interface's. [`crate::grpc`] carries them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use prost::Message as _;

use crate::grpc::{Call, Unanswered};

const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
/// A runtime that takes longer has other worries.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the kubelet allows an answer, in bytes.
const ANSWER_MAX: usize = 16 << 20;

/// Why the runtime gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none.
    #[error("'{0}' is no address of a container runtime: write unix:///PATH")]
    Address(String),
    /// No answer from there, or none to this question.
    #[error("the container runtime does not say which pods run: {0}")]
    Silent(Unanswered),
}

/// A pod as its runtime knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// As Kubernetes gave it, which is also in the cgroup's name.
    pub uid: String,
    /// The pod's name.
    pub name: String,
    /// The namespace it is in.
    pub namespace: String,
    /// Those of the pod when it was started.
    pub annotations: BTreeMap<String, String>,
}

/// A container runtime, known by its socket.
#[derive(Clone, Debug)]
pub struct Runtime {
    socket: PathBuf,
    patience: Duration,
}

impl Runtime {
    /// The runtime at `address`, such as `unix:///run/containerd/containerd.sock`.
    ///
    /// # Errors
    /// [`Error::Address`]. The first question shows whether a runtime is there.
    pub fn at(address: &str) -> Result<Self, Error> {
        let socket = address
            .strip_prefix("unix://")
            .filter(|path| path.starts_with('/') && !path.contains('\0'))
            .ok_or_else(|| Error::Address(address.to_owned()))?;
        Ok(Runtime {
            socket: socket.into(),
            patience: PATIENCE,
        })
    }

    /// The same, with another limit than five seconds for connection and answer.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Runtime { patience, ..self }
    }

    /// The pods that there are. To be called in a Tokio runtime that has I/O and time.
    ///
    /// # Errors
    /// [`Error::Silent`]: the runtime is not there, serves another version of the
    /// interface, or took too long.
    pub async fn pods(&self) -> Result<Vec<Sandbox>, Error> {
        let call = Call {
            socket: &self.socket,
            path: LIST,
            patience: self.patience,
            answer_max: ANSWER_MAX,
        };
        // A question without a filter has no fields.
        let answer = call.ask(&[]).await.map_err(Error::Silent)?;
        let mut answer = wire::ListPodSandboxResponse::decode(answer)
            .map_err(|error| Error::Silent(Unanswered::Malformed(error.to_string())))?;
        answer.items.sort_by_key(|item| item.created_at);
        // Of several with a UID the last one stays.
        let pods: BTreeMap<String, Sandbox> = answer
            .items
            .into_iter()
            .map(|item| {
                let metadata = item.metadata.unwrap_or_default();
                let pod = Sandbox {
                    uid: metadata.uid.clone(),
                    name: metadata.name,
                    namespace: metadata.namespace,
                    annotations: item.annotations,
                };
                (metadata.uid, pod)
            })
            .collect();
        Ok(pods.into_values().collect())
    }
}

/// The messages, as the interface has them.
mod wire {
    use std::collections::BTreeMap;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct PodSandboxMetadata {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) uid: String,
        #[prost(string, tag = "3")]
        pub(super) namespace: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct PodSandbox {
        #[prost(message, optional, tag = "2")]
        pub(super) metadata: Option<PodSandboxMetadata>,
        /// In ns.
        #[prost(int64, tag = "4")]
        pub(super) created_at: i64,
        #[prost(btree_map = "string, string", tag = "6")]
        pub(super) annotations: BTreeMap<String, String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ListPodSandboxResponse {
        #[prost(message, repeated, tag = "1")]
        pub(super) items: Vec<PodSandbox>,
    }
}
