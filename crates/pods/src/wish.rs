//! What a pod asks for, and whether it may.

use std::collections::BTreeSet;

use giveway_tier::Tier;

use crate::runtime::Sandbox;

/// The annotation of a pod that says its tier.
pub const ANNOTATION: &str = "giveway/tier";

/// Who may ask for more than their place gives them.
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
pub enum Wish {
    /// There is none: the pod is as its place in the hierarchy is.
    None,
    /// It counts.
    Tier(Tier),
    /// It does not count, for the reason given.
    Refused(String),
}

impl Wish {
    /// Reads the annotation of a pod.
    pub fn of(pod: &Sandbox, rights: &Rights) -> Self {
        let Some(text) = pod.annotations.get(ANNOTATION) else {
            return Wish::None;
        };
        match text.parse() {
            Ok(Tier::TimeSensitive) if !rights.namespaces.contains(&pod.namespace) => {
                Wish::Refused(format!(
                    "pods of namespace {} may not be time_sensitive by annotation: \
                     --may-raise {0} gives the right",
                    pod.namespace
                ))
            }
            Ok(tier) => Wish::Tier(tier),
            Err(error) => Wish::Refused(format!("annotation {ANNOTATION}: {error}")),
        }
    }

    /// What its cgroup is to be marked with.
    pub fn mark(&self) -> Option<Tier> {
        match self {
            Wish::Tier(tier) => Some(*tier),
            Wish::None | Wish::Refused(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(namespace: &str, annotation: Option<&str>) -> Wish {
        let pod = Sandbox {
            namespace: namespace.into(),
            annotations: annotation
                .map(|text| (ANNOTATION.to_owned(), text.to_owned()))
                .into_iter()
                .collect(),
            ..Sandbox::default()
        };
        Wish::of(&pod, &Rights::new(["trusted".to_owned()]))
    }

    #[test]
    fn anybody_may_lower_and_only_those_listed_may_raise() {
        let low = Wish::Tier(Tier::Background);
        assert_eq!(wish("shop", Some("background")), low);
        assert_eq!(wish("trusted", Some("background")), low);
        let high = Wish::Tier(Tier::TimeSensitive);
        assert_eq!(wish("trusted", Some("time_sensitive")), high);
        for namespace in ["shop", "trusted2", ""] {
            let refused = wish(namespace, Some("time-sensitive"));
            assert_eq!(refused.mark(), None);
            assert!(matches!(&refused, Wish::Refused(why) if why.contains("--may-raise")));
        }
    }

    #[test]
    fn a_pod_that_says_nothing_or_nonsense_gets_nothing() {
        assert_eq!(wish("trusted", None), Wish::None);
        let refused = wish("trusted", Some("urgent"));
        assert!(matches!(&refused, Wish::Refused(why) if why.contains("background")));
        assert_eq!(refused.mark(), None);
    }
}
