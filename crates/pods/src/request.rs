//! The tier that a pod asks for, and whether it may have it.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use giveway_tier::{ParseTierError, Tier};

use crate::runtime::Sandbox;

/// The annotation of a pod that says its tier.
pub const ANNOTATION: &str = "giveway/tier";

/// Which pods may raise themselves above the tier of their parent cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    namespaces: BTreeSet<String>,
}

impl Rights {
    /// Pods of these namespaces may be time-sensitive by annotation.
    pub fn new(namespaces: impl IntoIterator<Item = String>) -> Self {
        Rights {
            namespaces: namespaces.into_iter().collect(),
        }
    }
}

/// Why a pod is not in the tier that it asks for.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It may not raise itself.
    #[error(
        "pods of namespace {namespace} may not be time_sensitive by annotation: \
         --may-raise {namespace} gives the right"
    )]
    NoRight {
        /// The namespace it is in.
        namespace: String,
    },
    /// What it asks for is no tier.
    #[error("annotation {ANNOTATION}: {0}")]
    NoTier(#[source] ParseTierError),
    /// Its cgroup has not got the mark.
    #[error(
        "cannot mark {}: {error}; that takes CAP_SYS_ADMIN and the machine's own \
         /sys/fs/cgroup, not mounted read-only",
        dir.display()
    )]
    Unmarked {
        /// The cgroup's directory.
        dir: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

/// What becomes of a pod's annotation.
#[derive(Debug)]
pub enum Request {
    /// There is none: the pod has the tier of its parent cgroup.
    None,
    /// It counts.
    Tier(Tier),
    /// It does not count, for the reason given.
    Refused(Refusal),
}

impl Request {
    /// Reads the annotation of a pod.
    pub fn of(pod: &Sandbox, rights: &Rights) -> Self {
        let Some(text) = pod.annotations.get(ANNOTATION) else {
            return Request::None;
        };
        match text.parse() {
            Ok(Tier::TimeSensitive) if !rights.namespaces.contains(&pod.namespace) => {
                Request::Refused(Refusal::NoRight {
                    namespace: pod.namespace.clone(),
                })
            }
            Ok(tier) => Request::Tier(tier),
            Err(error) => Request::Refused(Refusal::NoTier(error)),
        }
    }

    /// What its cgroup is to be marked with.
    pub fn mark(&self) -> Option<Tier> {
        match self {
            Request::Tier(tier) => Some(*tier),
            Request::None | Request::Refused(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(namespace: &str, annotation: Option<&str>) -> Request {
        let pod = Sandbox {
            namespace: namespace.into(),
            annotations: annotation
                .map(|text| (ANNOTATION.to_owned(), text.to_owned()))
                .into_iter()
                .collect(),
            ..Sandbox::default()
        };
        Request::of(&pod, &Rights::new(["trusted".to_owned()]))
    }

    #[test]
    fn any_pod_may_lower_and_only_listed_namespaces_may_raise() {
        let low = |namespace| request(namespace, Some("background"));
        assert!(matches!(low("shop"), Request::Tier(Tier::Background)));
        assert!(matches!(low("trusted"), Request::Tier(Tier::Background)));
        let high = request("trusted", Some("time_sensitive"));
        assert!(matches!(high, Request::Tier(Tier::TimeSensitive)));
        for namespace in ["shop", "trusted2", ""] {
            let refused = request(namespace, Some("time-sensitive"));
            assert_eq!(refused.mark(), None);
            assert!(
                matches!(&refused, Request::Refused(why) if why.to_string().contains("--may-raise"))
            );
        }
    }

    #[test]
    fn missing_or_invalid_annotation_gives_no_mark() {
        assert!(matches!(request("trusted", None), Request::None));
        let refused = request("trusted", Some("urgent"));
        assert!(
            matches!(&refused, Request::Refused(why) if why.to_string().contains("background"))
        );
        assert_eq!(refused.mark(), None);
    }
}
