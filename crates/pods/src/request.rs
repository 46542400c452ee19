//! The tier that a pod asks for, and whether it may have it.

use std::collections::BTreeSet;

use giveway_tier::Tier;

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

/// What becomes of a pod's annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// There is none: the pod has the tier of its parent cgroup.
    None,
    /// It counts.
    Tier(Tier),
    /// It does not count, for the reason given.
    Refused(String),
}

impl Request {
    /// Reads the annotation of a pod.
    pub fn of(pod: &Sandbox, rights: &Rights) -> Self {
        let Some(text) = pod.annotations.get(ANNOTATION) else {
            return Request::None;
        };
        match text.parse() {
            Ok(Tier::TimeSensitive) if !rights.namespaces.contains(&pod.namespace) => {
                Request::Refused(format!(
                    "pods of namespace {} may not be time_sensitive by annotation: \
                     --may-raise {0} gives the right",
                    pod.namespace
                ))
            }
            Ok(tier) => Request::Tier(tier),
            Err(error) => Request::Refused(format!("annotation {ANNOTATION}: {error}")),
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
        let low = Request::Tier(Tier::Background);
        assert_eq!(request("shop", Some("background")), low);
        assert_eq!(request("trusted", Some("background")), low);
        let high = Request::Tier(Tier::TimeSensitive);
        assert_eq!(request("trusted", Some("time_sensitive")), high);
        for namespace in ["shop", "trusted2", ""] {
            let refused = request(namespace, Some("time-sensitive"));
            assert_eq!(refused.mark(), None);
            assert!(matches!(&refused, Request::Refused(why) if why.contains("--may-raise")));
        }
    }

    #[test]
    fn missing_or_invalid_annotation_gives_no_mark() {
        assert_eq!(request("trusted", None), Request::None);
        let refused = request("trusted", Some("urgent"));
        assert!(matches!(&refused, Request::Refused(why) if why.contains("background")));
        assert_eq!(refused.mark(), None);
    }
}
