//! Cost models: what instructions of a guest cost beyond their number.
//!
//! A model is a file of prices and sizes of caches, with the host to which it was fitted.
//! Those in `costs/` are known by name; `docs/design/clock.md` says what each price
//! means, and `qemu/costs.patch` what the emulator does with it. Results name a model by
//! its name and a digest of its numbers: whoever changes one number has another model.
//!
//! A program chooses one or two models in its life, so they are kept for ever and a
//! [`Costs`] is copied like a number.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::cache::digest;
use crate::error::{LabError, Result};

/// The models that are known by name.
const MODELS: &[(&str, &str)] = &[(
    "sapphire-rapids-vm",
    include_str!("costs/sapphire-rapids-vm.toml"),
)];

/// What the emulator wants to know, but for the number of CPUs in a socket.
const PRICES: &[&str] = &[
    "instruction",
    "load_use",
    "l2",
    "llc",
    "memory",
    "stream",
    "l2_stream",
    "walk",
    "transfer",
    "far_transfer",
    "invalidate",
    "locked",
    "string_byte",
    "syscall",
    "exception",
    "ipi",
    "halt",
    "pause",
];
const CACHES: &[&str] = &[
    "l1_kib",
    "l1_ways",
    "l2_kib",
    "l2_ways",
    "llc_kib",
    "llc_ways",
    "tlb_pages",
    "tlb_ways",
];

/// A cost model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs(&'static Model);

#[derive(Debug, PartialEq, Eq)]
struct Model {
    name: String,
    /// One `name=number` a line, as the emulator reads it.
    numbers: String,
}

/// A model's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[expect(dead_code, reason = "for readers of the file")]
    host: Host,
    prices: BTreeMap<String, f64>,
    caches: BTreeMap<String, u32>,
}

/// The host to which a model was fitted: for readers, and required.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "for readers of the file")]
struct Host {
    cpu: String,
    machine: String,
    kernel: String,
    measured: String,
}

impl Costs {
    /// The model of this name, or in this file.
    ///
    /// # Errors
    /// There is neither, or the file is no model.
    pub fn find(model: &str) -> Result<Costs> {
        if let Some((name, text)) = MODELS.iter().find(|(name, _)| *name == model) {
            return parse(name, text);
        }
        let path = Path::new(model);
        if !path.is_file() {
            let names: Vec<_> = MODELS.iter().map(|(name, _)| *name).collect();
            return Err(LabError::Config(format!(
                "no cost model '{model}': choose {} or name a file",
                names.join(", ")
            )));
        }
        let text = fs::read_to_string(path).map_err(LabError::io("reading", path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        parse(&name, &text)
    }

    /// Its name in results, with a digest of its numbers.
    #[must_use]
    pub fn name(self) -> String {
        let digest = digest([self.0.numbers.as_bytes()]);
        format!("{}-{digest}", self.0.name)
    }

    /// What the emulator reads, for a guest with so many CPUs in a socket.
    pub(crate) fn file(self, socket_cpus: u32) -> String {
        format!("{}socket_cpus={socket_cpus}\n", self.0.numbers)
    }
}

fn parse(name: &str, text: &str) -> Result<Costs> {
    let refuse = |what: String| LabError::Config(format!("cost model '{name}': {what}"));
    let file: File = toml::from_str(text).map_err(|error| refuse(error.to_string()))?;
    let File {
        host: _,
        prices,
        caches,
    } = file;
    let numbers: BTreeMap<String, f64> = prices
        .into_iter()
        .chain(caches.into_iter().map(|(key, size)| (key, f64::from(size))))
        .collect();
    let mut lines = String::new();
    for key in PRICES.iter().chain(CACHES) {
        let number = numbers
            .get(*key)
            .ok_or_else(|| refuse(format!("{key} is missing")))?;
        if !number.is_finite() || *number < 0.0 {
            return Err(refuse(format!("{key} is {number}: no price is negative")));
        }
        lines += &format!("{key}={number}\n");
    }
    if let Some(key) = numbers
        .keys()
        .find(|key| !PRICES.contains(&key.as_str()) && !CACHES.contains(&key.as_str()))
    {
        return Err(refuse(format!("{key} is no price")));
    }
    if !is_power_of_two(numbers["instruction"]) {
        return Err(refuse(format!(
            "instruction is {}: choose a power of two from 1/16 to 1024",
            numbers["instruction"]
        )));
    }
    for (size, ways, entries) in [
        ("l1_kib", "l1_ways", 16.0),
        ("l2_kib", "l2_ways", 16.0),
        ("llc_kib", "llc_ways", 16.0),
        ("tlb_pages", "tlb_ways", 1.0),
    ] {
        if !is_power_of_two_count(numbers[size] * entries / numbers[ways]) {
            return Err(refuse(format!(
                "{size} and {ways}: the number of sets is not a power of two"
            )));
        }
    }
    Ok(Costs(Box::leak(Box::new(Model {
        name: name.to_owned(),
        numbers: lines,
    }))))
}

fn is_power_of_two(ns: f64) -> bool {
    (0.0625..=1024.0).contains(&ns) && ns.log2().fract() == 0.0
}

fn is_power_of_two_count(sets: f64) -> bool {
    sets >= 1.0 && sets.log2().fract() == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_the_tree_are_valid_and_named_by_their_numbers() {
        for (name, text) in MODELS {
            let costs = Costs::find(name).unwrap();
            assert!(costs.name().starts_with(name));
            assert!(costs.file(2).ends_with("\nsocket_cpus=2\n"));
            let dearer = parse(name, &text.replace("\nmemory = 1", "\nmemory = 2")).unwrap();
            assert_ne!(dearer.name(), costs.name());
            assert_eq!(parse(name, text).unwrap(), costs);
        }
    }

    #[test]
    fn a_file_that_is_no_model_is_refused_with_what_is_wrong() {
        let text = MODELS[0].1;
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            parse("m", &text.replacen(from, to, 1))
                .unwrap_err()
                .to_string()
        };
        assert!(refused("\nl2 = ", "\nl7 = ").contains("l2 is missing"));
        assert!(refused("\nl2 = ", "\nl7 = 1\nl2 = ").contains("l7 is no price"));
        assert!(refused("\nl2 = ", "\nl2 = -").contains("l2 is -"));
        assert!(refused("\ninstruction = ", "\ninstruction = 3").contains("power of two"));
        assert!(refused("\nl1_ways = ", "\nl1_ways = 7").contains("number of sets"));
        assert!(refused("[host]", "[guest]").contains("guest"));
        assert!(
            Costs::find("no-such-model")
                .unwrap_err()
                .to_string()
                .contains(MODELS[0].0)
        );
    }
}
