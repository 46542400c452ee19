//! The rule by which the name of a cgroup gives it a tier.
//!
//! A cgroup is in a tier if its own name is one of the tier's labels, or starts with a
//! label followed by one of `. - _ @ :`. Any other is in its parent's, and at the top
//! the default tier holds. Labels and default are options of the scheduler, so whoever
//! speaks of tiers has to know those of the one that is in force. It says them in a file
//! that everybody can read:
//!
//! ```text
//! load 7                          the kernel's count of loads (enable_seq)
//! default time_sensitive
//! marks heeded                    or ignored
//! background batch                a label of the tier; one line for each
//! ```
//!
//! The file outlives its scheduler. It counts while the kernel's count is the one in it:
//! a scheduler that is loaded later, and says nothing, has another.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};

use crate::Tier;

/// Where the scheduler in force says its rule.
pub const PATH: &str = "/run/giveway/rule";

/// What may follow a label in a name.
const SEPARATORS: [char; 5] = ['.', '-', '_', '@', ':'];

/// Which names give which tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Indexed by tier.
    pub labels: [Vec<String>; 2],
    /// The tier of a cgroup that no label covers.
    pub default_tier: Tier,
    /// Whether marks (module `mark`) count.
    pub heeds_marks: bool,
}

impl Default for Rule {
    /// That of a scheduler without options.
    fn default() -> Self {
        Rule {
            labels: [
                vec!["background".into()],
                vec!["time_sensitive".into(), "time-sensitive".into()],
            ],
            default_tier: Tier::DEFAULT,
            heeds_marks: false,
        }
    }
}

impl Rule {
    /// The tier that a cgroup's own name gives it, if any. Where labels of both tiers
    /// fit, the background has it.
    pub fn of_name(&self, name: &str) -> Option<Tier> {
        let bears = |tier: &Tier| {
            self.labels[*tier as usize].iter().any(|label| {
                let rest = name.strip_prefix(label.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(SEPARATORS))
            })
        };
        Tier::ALL.into_iter().rev().find(bears)
    }

    /// The tier of the cgroup at `path`, seen from the top of the hierarchy: that of the
    /// nearest cgroup with a label.
    pub fn of_path(&self, path: &Path) -> Tier {
        path.components()
            .rev()
            .find_map(|component| match component {
                Component::Normal(name) => self.of_name(name.to_str()?),
                _ => None,
            })
            .unwrap_or(self.default_tier)
    }

    /// Says at `path` that this is the rule of the scheduler which the kernel counts as
    /// number `load`; none where it does not count.
    ///
    /// # Errors
    /// If the file cannot be written beside `path` and renamed into place.
    pub fn publish(&self, path: &Path, load: Option<u64>) -> io::Result<()> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let beside = path.with_extension("new");
        // Nothing that lies there is written to: it may be a link to elsewhere.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::File::create_new(&beside)?.write_all(self.text(load).as_bytes())?;
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o644))?;
        fs::rename(&beside, path)
    }

    /// The rule at `path`, if it is that of the scheduler which the kernel counts as
    /// number `load`. None if that scheduler has written none.
    pub fn published(path: &Path, load: Option<u64>) -> Option<Rule> {
        let (rule, of) = Rule::read(&fs::read_to_string(path).ok()?)?;
        (of == load).then_some(rule)
    }

    fn text(&self, load: Option<u64>) -> String {
        let mut lines: Vec<String> = load
            .map(|load| format!("load {load}"))
            .into_iter()
            .collect();
        lines.push(format!("default {}", self.default_tier));
        let marks = if self.heeds_marks {
            "heeded"
        } else {
            "ignored"
        };
        lines.push(format!("marks {marks}"));
        for tier in Tier::ALL {
            // The kernel has no cgroup with a line break in its name.
            let labels = self.labels[tier as usize].iter();
            let labels = labels.filter(|label| !label.contains('\n'));
            lines.extend(labels.map(|label| format!("{tier} {label}")));
        }
        lines.join("\n") + "\n"
    }

    fn read(text: &str) -> Option<(Rule, Option<u64>)> {
        let mut rule = Rule {
            labels: [vec![], vec![]],
            ..Rule::default()
        };
        let mut load = None;
        for line in text.lines() {
            match line.split_once(' ')? {
                ("load", number) => load = Some(number.parse().ok()?),
                ("default", tier) => rule.default_tier = tier.parse().ok()?,
                ("marks", word) => rule.heeds_marks = word == "heeded",
                (tier, label) => {
                    let tier: Tier = tier.parse().ok()?;
                    rule.labels[tier as usize].push(label.to_owned());
                }
            }
        }
        Some((rule, load))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_label_or_a_label_with_a_separator() {
        let rule = Rule::default();
        for name in [
            "background",
            "background.slice",
            "background-reports",
            "background_2",
            "background@7",
            "background:x",
        ] {
            assert_eq!(rule.of_name(name), Some(Tier::Background), "{name}");
        }
        for name in ["time_sensitive", "time-sensitive.slice"] {
            assert_eq!(rule.of_name(name), Some(Tier::TimeSensitive), "{name}");
        }
        for name in ["backgrounds", "my-background", "Background", "back", ""] {
            assert_eq!(rule.of_name(name), None, "{name}");
        }
    }

    #[test]
    fn the_nearest_label_wins_and_at_the_top_the_default_holds() {
        let mut rule = Rule::default();
        let tier = |rule: &Rule, path: &str| rule.of_path(Path::new(path));
        let (high, low) = (Tier::TimeSensitive, Tier::Background);
        assert_eq!(tier(&rule, "/"), high);
        assert_eq!(tier(&rule, "/system.slice/postgresql.service"), high);
        assert_eq!(tier(&rule, "/giveway/background/run-7"), low);
        assert_eq!(tier(&rule, "/background.slice/time_sensitive/x"), high);
        rule.default_tier = low;
        rule.labels = [vec!["batch".into()], vec!["web".into()]];
        assert_eq!(tier(&rule, "/system.slice/postgresql.service"), low);
        assert_eq!(tier(&rule, "/web.slice/background"), high);
        assert_eq!(tier(&rule, "/web.slice/batch-1"), low);
    }

    #[test]
    fn where_labels_of_both_tiers_fit_the_background_has_it() {
        let rule = Rule {
            labels: [vec!["kubepods".into()], vec!["kubepods-burstable".into()]],
            ..Rule::default()
        };
        let tier = rule.of_name("kubepods-burstable.slice");
        assert_eq!(tier, Some(Tier::Background));
    }

    #[test]
    fn a_rule_is_read_as_it_was_said_while_its_load_is_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/rule");
        assert_eq!(Rule::published(&path, Some(7)), None);
        let rule = Rule {
            labels: [vec!["batch".into(), "a b".into()], vec![]],
            default_tier: Tier::Background,
            heeds_marks: true,
        };
        for said in [rule, Rule::default()] {
            said.publish(&path, Some(7)).unwrap();
            assert_eq!(Rule::published(&path, Some(7)), Some(said.clone()));
            // Another scheduler has been loaded since, and says nothing.
            assert_eq!(Rule::published(&path, Some(8)), None);
            said.publish(&path, None).unwrap();
            assert_eq!(Rule::published(&path, None), Some(said));
        }
        fs::write(&path, "urgent batch\n").unwrap();
        assert_eq!(Rule::published(&path, None), None, "of another version");
    }
}
