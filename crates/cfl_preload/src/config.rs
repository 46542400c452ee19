//! The user's settings: what may be said, where it is read, what is refused.
//!
//! Settings come from a TOML file (`GIVEWAY_CFL_CONFIG` names it) and from the
//! variable `GIVEWAY_CFL`, whose shorthand (`inline.rs`) is turned into the
//! same TOML table. So there is one description of what is allowed, the types
//! below, and one place that refuses the rest. Where both say something,
//! the variable wins; its groups come first.
//!
//! Nothing here acts: the result says what is wanted, or in one sentence what
//! is wrong with it.

mod inline;

use std::fs;
use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;

/// Environment variable with settings in shorthand.
pub(crate) const INLINE: &str = "GIVEWAY_CFL";
/// Environment variable with the path of a TOML file.
pub(crate) const FILE: &str = "GIVEWAY_CFL_CONFIG";

/// Everything that can be set. Absent means the default.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Patterns of program names; in other programs the library stands aside.
    pub(crate) programs: Option<Vec<String>>,
    /// Who belongs together, and how much they get; the first match decides.
    pub(crate) group: Vec<GroupSettings>,
    /// How every lock schedules.
    pub(crate) lock: LockSettings,
    /// What is reported at exit.
    pub(crate) stats: StatsSettings,
}

/// One group. A thread belongs to it if its name or its cgroup matches any of
/// the patterns, and no group before.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupSettings {
    pub(crate) name: String,
    #[serde(default = "weight_default", deserialize_with = "weight")]
    pub(crate) weight: u32,
    #[serde(default)]
    pub(crate) threads: Vec<String>,
    #[serde(default)]
    pub(crate) cgroups: Vec<String>,
}

/// Options of every lock; see the core's `Options` for what each trades.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LockSettings {
    pub(crate) scope: Option<Scope>,
    pub(crate) criteria: Option<Vec<Criterion>>,
    pub(crate) strict_guarantee: Option<bool>,
    pub(crate) grace_period_us: Option<u32>,
    pub(crate) slice_us: Option<u32>,
    pub(crate) spin_us: Option<u32>,
    pub(crate) barging: Option<bool>,
}

/// Over which locks a thread's hold time is added up.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    Thread,
    Lock,
}

/// What a waiter has to meet to be moved forward.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Criterion {
    Vlht,
    Socket,
    Group,
}

/// The report at exit. No destination, no report and no counting.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StatsSettings {
    /// `stderr`, or a file to append to; `%p` in its name is the process.
    pub(crate) to: Option<String>,
    pub(crate) format: Option<Format>,
    /// Longest list of locks in a text report.
    pub(crate) locks: Option<usize>,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// Reads the environment and the file it names.
///
/// # Errors
///
/// A sentence that names the variable or file, what is wrong, and where
/// possible what would be right.
pub(crate) fn read() -> Result<Settings, String> {
    let text = |name| match std::env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not UTF-8")),
    };
    let from_file = match text(FILE)? {
        Some(path) => {
            let text =
                fs::read_to_string(&path).map_err(|error| format!("{FILE}: {path}: {error}"))?;
            from_toml(&text).map_err(|error| format!("{path}: {error}"))?
        }
        None => Settings::default(),
    };
    let from_inline = match text(INLINE)? {
        Some(text) => from_inline(&text).map_err(|error| format!("{INLINE}: {error}"))?,
        None => Settings::default(),
    };
    Ok(from_inline.or(from_file))
}

fn from_toml(text: &str) -> Result<Settings, String> {
    // The message spans lines with a drawing of the place; one line is enough.
    let told = |error: toml::de::Error| {
        let line = error.span().map(|span| {
            let before = text.get(..span.start).unwrap_or_default();
            format!("line {}: ", before.matches('\n').count() + 1)
        });
        line.unwrap_or_default() + &error.message().replace('\n', " ")
    };
    toml::from_str(text).map_err(told)
}

fn from_inline(text: &str) -> Result<Settings, String> {
    let table = inline::table(text)?;
    Settings::deserialize(table).map_err(|error| error.message().replace('\n', " "))
}

impl Settings {
    /// These settings, with `other`'s where these say nothing.
    fn or(mut self, other: Settings) -> Settings {
        let mut group = std::mem::take(&mut self.group);
        group.extend(other.group);
        Settings {
            programs: self.programs.or(other.programs),
            group,
            lock: LockSettings {
                scope: self.lock.scope.or(other.lock.scope),
                criteria: self.lock.criteria.or(other.lock.criteria),
                strict_guarantee: (self.lock.strict_guarantee).or(other.lock.strict_guarantee),
                grace_period_us: self.lock.grace_period_us.or(other.lock.grace_period_us),
                slice_us: self.lock.slice_us.or(other.lock.slice_us),
                spin_us: self.lock.spin_us.or(other.lock.spin_us),
                barging: self.lock.barging.or(other.lock.barging),
            },
            stats: StatsSettings {
                to: self.stats.to.or(other.stats.to),
                format: self.stats.format.or(other.stats.format),
                locks: self.stats.locks.or(other.stats.locks),
            },
        }
    }
}

/// A setting's microseconds as the core takes them.
pub(crate) fn microseconds(setting: Option<u32>) -> Option<Duration> {
    setting.map(|us| Duration::from_micros(us.into()))
}

fn weight_default() -> u32 {
    100
}

/// A weight in the range that all of Giveway uses.
fn weight<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let weight = u32::deserialize(from)?;
    if !(1..=10_000).contains(&weight) {
        return Err(D::Error::custom(format!(
            "weight {weight} is not between 1 and 10000 (100 is the default)"
        )));
    }
    Ok(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_the_shorthand_say_the_same() {
        let file = from_toml(
            r#"
            programs = ["db_*"]
            [[group]]
            name = "front"
            weight = 800
            threads = ["db_bench", "rocksdb:high*"]
            [[group]]
            name = "back"
            cgroups = ["/batch.slice/*"]
            [lock]
            scope = "lock"
            criteria = ["vlht", "group"]
            strict_guarantee = true
            grace_period_us = 5
            [stats]
            to = "/tmp/%p.json"
            format = "json"
            "#,
        );
        let inline = from_inline(
            "programs=db_*; \
             group front weight=800 threads=db_bench,rocksdb:high*; \
             group back cgroups=/batch.slice/*; \
             lock scope=lock criteria=vlht,group strict_guarantee=on grace_period_us=5; \
             stats to=/tmp/%p.json format=json;",
        );
        assert_eq!(file, inline);
        let settings = file.unwrap();
        assert_eq!(settings.group[1].weight, 100);
        assert_eq!(settings.group[0].threads.len(), 2);
        assert_eq!(settings.lock.strict_guarantee, Some(true));
    }

    #[test]
    fn the_variable_wins_and_its_groups_come_first() {
        let inline = from_inline("group a; stats to=stderr").unwrap();
        let file = from_toml("group = [{name = 'b'}]\nstats = {to = 'x', locks = 3}").unwrap();
        let both = inline.or(file);
        assert_eq!(both.stats.to.as_deref(), Some("stderr"));
        assert_eq!(both.stats.locks, Some(3));
        let names: Vec<_> = both.group.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn invalid_settings_are_refused_with_place_and_choices() {
        let refused = |text| from_inline(text).unwrap_err();
        assert!(refused("group a weigth=3").contains("unknown field `weigth`"));
        assert!(refused("group a weigth=3").contains("`weight`"));
        assert!(refused("group a weight=0").contains("between 1 and 10000"));
        assert!(refused("lock scope=process").contains("`thread` or `lock`"));
        assert!(refused("sockets=off").contains("unknown field `sockets`"));
        assert!(refused("lock spin_us=-1").contains("-1"));
        let in_file = from_toml("\n\n[stats]\nformat = 'xml'\n").unwrap_err();
        assert!(in_file.starts_with("line 4: "), "{in_file}");
    }
}
