//! Where, when and with what something was measured.

use std::fs;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The commit this program was built from; results carry it.
pub(crate) const COMMIT: &str = env!("GIVEWAY_COMMIT");

/// Cargo's profile that this program was built by; results carry it.
const PROFILE: &str = env!("GIVEWAY_PROFILE");

/// The clock of guests that run on the host's CPUs, in real time.
pub(crate) const KVM: &str = "kvm";

/// Where and with what the rows were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Environment {
    /// The kernel's release, such as `7.2.13-cloud-amd64`.
    pub kernel: String,
    /// CPUs of the machine that measured, virtual or not.
    pub cpus: u32,
    /// What time is: `lockstep` (virtual time, the same for all CPUs), `native`,
    /// [`KVM`], or `virtual` (a simulation's).
    pub clock: String,
    /// Commit of the program.
    pub commit: String,
    /// Day of the measurement, `2026-01-31`.
    pub date: String,
    /// The machine's name.
    pub machine: String,
    /// The CPU's model.
    pub cpu_model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The server's version; empty without a server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub postgresql: String,
    /// Version of the prepared data (`workload::dataset`); 0 without data.
    #[serde(skip_serializing_if = "is_zero")]
    pub dataset_version: u32,
    /// How the rows came about.
    #[serde(skip_serializing_if = "Provenance::is_unknown")]
    pub provenance: Provenance,
}

/// By which command and with which parts of the lab rows were measured; unknown in results
/// of before 2026-11-25.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Provenance {
    /// The command line.
    pub command: String,
    /// SHA-256 of this program, the first twelve digits, by the host of a lab; empty
    /// natively.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// Cargo's profile that this program was built by; empty in results of before
    /// 2026-11-28.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// The lab's emulator and image, by name and digest; empty natively.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub emulator: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// How far the lab's CPUs were let apart, in ns; 0 natively.
    #[serde(skip_serializing_if = "is_zero")]
    pub quantum_ns: u32,
    /// Whether the lab's CPUs never saw what another did before its time; results up to
    /// 2026-11-24 did not have such a clock.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub causal: bool,
    /// The model by which the lab priced instructions, by name and digest; empty where all
    /// cost the same, and natively.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub costs: String,
    /// The host's CPU, how many it has, and the mean number of tasks that wanted one in
    /// the minute before.
    pub host_cpu: String,
    pub host_cpus: u32,
    pub host_load: String,
}

impl Provenance {
    /// The parts of the lab, for a reader; empty natively.
    pub(crate) fn lab(&self) -> String {
        match self.quantum_ns {
            0 => String::new(),
            quantum => {
                let costs = match self.costs.as_str() {
                    "" => String::new(),
                    model => format!(", costs {model}"),
                };
                format!(
                    "{}, {}, quantum {} µs, {}{costs}",
                    self.emulator,
                    self.image,
                    f64::from(quantum) / 1e3,
                    if self.causal { "causal" } else { "loose" }
                )
            }
        }
    }

    /// The machine that emulated, for a reader; empty natively, where it is the one
    /// measured.
    pub(crate) fn host(&self) -> String {
        match self.quantum_ns {
            0 => String::new(),
            _ => format!(
                "{} CPUs ({}), load {}",
                self.host_cpus, self.host_cpu, self.host_load
            ),
        }
    }

    fn is_unknown(&self) -> bool {
        *self == Provenance::default()
    }
}

impl Environment {
    /// Looks at the machine it is called on; call it where the cells run. `clock` is the
    /// caller's to know. What cannot be found out is left empty.
    pub(crate) fn probe(clock: &str) -> Self {
        let line = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default();
            line.split_once(':')
                .map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal");
        let kib = kib
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse::<u64>().ok());
        let cpus = std::thread::available_parallelism().map_or(0, |count| count.get() as u32);
        Environment {
            kernel: line("/proc/sys/kernel/osrelease"),
            cpus,
            clock: clock.to_owned(),
            commit: COMMIT.to_owned(),
            date: today(),
            machine: line("/proc/sys/kernel/hostname"),
            cpu_model: field("/proc/cpuinfo", "model name"),
            memory_mib: kib.unwrap_or_default() / 1024,
            provenance: Provenance {
                command: command_line(std::env::args()),
                profile: PROFILE.to_owned(),
                host_cpu: field("/proc/cpuinfo", "model name"),
                host_cpus: cpus,
                host_load: line("/proc/loadavg")
                    .split(' ')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                ..Provenance::default()
            },
            ..Environment::default()
        }
    }
}

/// A command line as one types it.
fn command_line(mut arguments: impl Iterator<Item = String>) -> String {
    arguments.next();
    let words: Vec<String> = ["giveway".to_owned(), "bench".to_owned()]
        .into_iter()
        .chain(arguments)
        .collect();
    shell_words::join(words)
}

/// The digest of this program's file, or nothing where that cannot be read. It reads all
/// of the file, which takes an emulated CPU seconds: for hosts, not for guests.
pub(crate) fn own_digest() -> String {
    let digest = || -> std::io::Result<String> {
        let mut hash = Sha256::new();
        let mut file = fs::File::open(std::env::current_exe()?)?;
        std::io::copy(&mut file, &mut hash)?;
        let digits = hash.finalize();
        Ok(digits[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    };
    digest().unwrap_or_default()
}

/// Whether a field is worth writing.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The date in UTC.
fn today() -> String {
    let now = std::time::SystemTime::now();
    let seconds = now
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |age| age.as_secs());
    date((seconds / 86_400) as i64)
}

/// The date `days` after 1970-01-01, by counting whole 400-year cycles of
/// 146097 days from 0000-03-01, so that leap days come last in a year.
fn date(days: i64) -> String {
    let shifted = days + 719_468;
    let (cycle, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", year + cycle * 400 + carry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provenance_names_the_lab_only_where_it_was_one() {
        let mut provenance = Provenance {
            emulator: "qemu-1".to_owned(),
            image: "image-2".to_owned(),
            quantum_ns: 2_500,
            causal: true,
            ..Provenance::default()
        };
        assert_eq!(provenance.lab(), "qemu-1, image-2, quantum 2.5 µs, causal");
        provenance.costs = "model-3".to_owned();
        assert!(provenance.lab().ends_with(", causal, costs model-3"));
        provenance.quantum_ns = 0;
        assert!(provenance.lab().is_empty() && provenance.host().is_empty());
    }

    #[test]
    fn a_machine_is_probed_by_a_program_that_knows_its_profile() {
        let profile = Environment::probe("native").provenance.profile;
        assert!(
            ["debug", "demo", "release"].contains(&&*profile),
            "{profile}"
        );
    }

    #[test]
    fn results_of_before_have_no_provenance_and_keep_none() {
        let text = r#"{"kernel":"7.2","clock":"lockstep","commit":"c","date":"d"}"#;
        let old: Environment = serde_json::from_str(text).unwrap();
        assert_eq!(old.provenance, Provenance::default());
        assert!(!serde_json::to_string(&old).unwrap().contains("provenance"));
    }

    #[test]
    fn a_command_line_can_be_typed_again() {
        let words = ["/usr/bin/giveway-bench", "mixed", "--html", "a page.html"];
        let line = command_line(words.map(str::to_owned).into_iter());
        assert_eq!(line, "giveway bench mixed --html 'a page.html'");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_778), "2026-11-21");
        assert_eq!(date(47_540), "2100-02-28");
        assert_eq!(date(47_541), "2100-03-01");
    }
}
