//! The naming rule by which a cgroup takes a tier.
//!
//! A cgroup takes a tier if its own name is one of the tier's labels, or
//! starts with a label followed by one of `. - _ @ :`. Otherwise it takes its
//! parent's, and at the top the default tier holds. `scx_ufs` applies the same
//! rule inside the kernel; this mirror serves `run`, which must know the
//! caller's tier, and `status`, which lists the cgroups of each tier.
//!
//! Known weakness: `scx_ufs --default-tier` and label options can change the
//! rule for one load of the scheduler, and `--cgroup-marks` adds to it; this mirror
//! speaks of the defaults.

use std::path::{Component, Path};

use giveway_hints::Tier;

/// The names that give a cgroup its tier.
const LABELS: [(&str, Tier); 3] = [
    ("background", Tier::Background),
    ("time_sensitive", Tier::TimeSensitive),
    ("time-sensitive", Tier::TimeSensitive),
];

/// The tier of a cgroup nobody has labelled.
pub(crate) const DEFAULT: Tier = Tier::TimeSensitive;

/// The tier a cgroup's own name asks for, if any.
pub(crate) fn of_name(name: &str) -> Option<Tier> {
    LABELS.iter().find_map(|(label, tier)| {
        let rest = name.strip_prefix(label)?;
        (rest.is_empty() || rest.starts_with(['.', '-', '_', '@', ':'])).then_some(*tier)
    })
}

/// The tier of the cgroup at `path`, seen from the top of the hierarchy: that
/// of the nearest labelled ancestor.
pub(crate) fn of_path(path: &Path) -> Tier {
    path.components()
        .rev()
        .find_map(|component| match component {
            Component::Normal(name) => of_name(name.to_str()?),
            _ => None,
        })
        .unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_label_or_a_label_with_a_separator() {
        for name in [
            "background",
            "background.slice",
            "background-reports",
            "background_2",
            "background@7",
            "background:x",
        ] {
            assert_eq!(of_name(name), Some(Tier::Background), "{name}");
        }
        for name in ["time_sensitive", "time-sensitive.slice"] {
            assert_eq!(of_name(name), Some(Tier::TimeSensitive), "{name}");
        }
        for name in ["backgrounds", "my-background", "Background", "back", ""] {
            assert_eq!(of_name(name), None, "{name}");
        }
    }

    #[test]
    fn the_nearest_label_wins_and_the_top_is_time_sensitive() {
        let tier = |path: &str| of_path(Path::new(path));
        assert_eq!(tier("/"), Tier::TimeSensitive);
        assert_eq!(
            tier("/system.slice/postgresql.service"),
            Tier::TimeSensitive
        );
        assert_eq!(tier("/giveway/background/run-7"), Tier::Background);
        assert_eq!(
            tier("/background.slice/time_sensitive/x"),
            Tier::TimeSensitive
        );
    }
}
