//! The workspace's test programs: built all at once, and what is known of each.
//!
//! Cargo names every program it has built, as JSON. What it does not know is in the
//! manifest of the package, where it moves with the tests:
//!
//! ```toml
//! [package.metadata.tests]
//! guest = ["faults"]      # boots guests: no part of `make check`
//! server = ["programs"]   # takes servers or the network: no part of it either
//! together = ["faults"]   # one process for the tests of each of its modules, which
//!                         # share what they make
//! alone = ["shares"]      # measures time: nothing runs beside its tests
//! lab = ["made"]          # makes what guests boot: they wait for its tests
//! ```
//!
//! A name there is that of a test target, or `lib`, `bin:NAME` or `example:NAME`. One
//! that names no target is an error.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cargo_metadata::{Artifact, Message, Metadata, Package, TargetKind};

use super::harness;
use crate::lints;

/// What a manifest says of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    pub(super) guest: bool,
    pub(super) server: bool,
    pub(super) lab: bool,
    pub(super) together: bool,
    pub(super) alone: bool,
}

impl Traits {
    /// Takes neither guests nor servers.
    pub(super) fn is_quick(self) -> bool {
        !(self.guest || self.lab || self.server)
    }
}

/// A test program.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) package: String,
    pub(super) name: String,
    pub(super) program: PathBuf,
    args: Vec<OsString>,
    /// Variables that its processes have beside those of this one.
    pub(super) env: Vec<(&'static str, OsString)>,
    pub(super) traits: Traits,
    /// Its tests; none for a target that is one test, without Rust's harness.
    pub(super) tests: Option<Vec<String>>,
    /// What it is known to take.
    pub(super) takes: Option<Duration>,
    version: String,
    manifest: PathBuf,
}

impl Target {
    /// A command that runs the program as cargo would.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        for (name, _) in std::env::vars_os() {
            // Those of this program's own package.
            if name.to_string_lossy().starts_with("CARGO_PKG_") {
                command.env_remove(name);
            }
        }
        let directory = self.manifest.parent().unwrap_or(Path::new("/"));
        command
            .env("CARGO_MANIFEST_DIR", directory)
            .env("CARGO_MANIFEST_PATH", &self.manifest)
            .env("CARGO_PKG_NAME", &self.package)
            .env("CARGO_PKG_VERSION", &self.version)
            .env("PATH", crate::ci::path())
            // Tests need not build the workspace's programs: they are beside this one.
            .env("GIVEWAY_BUILT", "1")
            .envs(std::env::current_exe().map(|own| ("GIVEWAY_XTASK", own)))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(directory);
        command
    }

    /// A command that is one test, and runs at the top of the tree.
    pub(super) fn of_command(
        root: &Path,
        package: &str,
        name: &str,
        mut line: Vec<OsString>,
    ) -> Target {
        let program = line.remove(0).into();
        Target {
            package: package.to_owned(),
            name: name.to_owned(),
            program,
            args: line,
            env: Vec::new(),
            traits: Traits {
                server: true,
                ..Traits::default()
            },
            tests: None,
            takes: None,
            version: String::new(),
            manifest: root.join("Cargo.toml"),
        }
    }

    /// Known to take about so long, though it has not been timed yet.
    pub(super) fn that_takes(self, takes: Duration) -> Target {
        Target {
            takes: Some(takes),
            ..self
        }
    }

    /// A target that only tests of the runner see.
    #[cfg(test)]
    pub(super) fn made_up(
        package: &str,
        name: &str,
        traits: Traits,
        tests: Option<Vec<String>>,
    ) -> Target {
        Target {
            package: package.to_owned(),
            name: name.to_owned(),
            program: PathBuf::from("/bin/sh"),
            args: Vec::new(),
            env: Vec::new(),
            traits,
            tests,
            takes: None,
            version: "0.0.0".to_owned(),
            manifest: PathBuf::from("/Cargo.toml"),
        }
    }

    fn list(&mut self) -> Result<()> {
        let output = self
            .command()
            .arg("--list")
            .stdin(Stdio::null())
            .output()
            .with_context(|| self.program.display().to_string())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{} {} --list: {said}", self.package, self.name);
        }
        self.tests = harness::listed(&String::from_utf8_lossy(&output.stdout));
        Ok(())
    }
}

/// A build of test programs.
#[derive(Debug, Default)]
pub(crate) struct Build {
    /// Arguments of `cargo test` that say what is built.
    pub(crate) args: Vec<&'static str>,
    /// Of a build that is unlike others: what its targets' names begin with, the name of
    /// its directory below `target`, and a `cfg`.
    pub(crate) cfg: Option<&'static str>,
    /// Options of the compiler that a stable one refuses unless it is told to be another.
    pub(crate) unstable: &'static [&'static str],
}

/// Builds test programs, and has each list its tests.
///
/// # Errors
/// Something does not build, or a manifest is wrong.
pub(super) fn build(root: &Path, workspace: &Metadata, build: &Build) -> Result<Vec<Target>> {
    let mut command = Command::new("cargo");
    command
        .args(["test", "--locked", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        // As in commands that are tests: some build scripts look whether it has changed.
        .env("PATH", crate::ci::path())
        .args(&build.args);
    if !build.unstable.is_empty() {
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    if let Some(cfg) = build.cfg {
        let flags = format!("--cfg {cfg} {}", build.unstable.join(" "));
        command
            .arg("--target-dir")
            .arg(workspace.target_directory.join(cfg))
            .env("RUSTFLAGS", flags.trim_end());
    } else {
        command.env(lints::WRAPPER, lints::recorder(root));
    }
    let mut cargo = command
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo test")?;
    let stdout = cargo.stdout.take().expect("it is piped");
    let mut targets = Vec::new();
    for message in Message::parse_stream(BufReader::new(stdout)) {
        if let Message::CompilerArtifact(artifact) = message? {
            beside_programs(&artifact)?;
            targets.extend(target(workspace, &artifact, build.cfg)?);
        }
    }
    if !cargo.wait().context("cargo test")?.success() {
        bail!("the tests do not build");
    }
    for target in &mut targets {
        target.list()?;
    }
    targets.sort_by(|a, b| (&a.package, &a.name).cmp(&(&b.package, &b.name)));
    Ok(targets)
}

/// Cargo keeps a library for C among its intermediate files unless it is asked for that
/// library alone. Tests look for it where `cargo build` puts it.
fn beside_programs(artifact: &Artifact) -> Result<()> {
    if artifact.profile.test || !artifact.target.kind.contains(&TargetKind::CDyLib) {
        return Ok(());
    }
    for file in &artifact.filenames {
        let directory = file.parent().and_then(|deps| deps.parent());
        if let (Some("so"), Some(directory), Some(name)) =
            (file.extension(), directory, file.file_name())
            && file.parent().is_some_and(|deps| deps.ends_with("deps"))
        {
            let to = directory.join(name);
            // A link that is there may be to an earlier one.
            let _ = fs::remove_file(&to);
            fs::copy(file, &to).with_context(|| to.to_string())?;
        }
    }
    Ok(())
}

fn target(workspace: &Metadata, artifact: &Artifact, cfg: Option<&str>) -> Result<Option<Target>> {
    let (true, Some(program)) = (artifact.profile.test, &artifact.executable) else {
        return Ok(None);
    };
    let package = workspace
        .workspace_packages()
        .into_iter()
        .find(|package| package.id == artifact.package_id)
        .with_context(|| format!("{}: not of the workspace", artifact.package_id))?;
    let name = shown(&artifact.target.kind, &artifact.target.name);
    let (name, traits) = match cfg {
        // What a manifest says is of the ordinary build.
        Some(cfg) => (format!("{cfg}:{name}"), Traits::default()),
        None => {
            let traits = traits(package)?.remove(&name).unwrap_or_default();
            (name, traits)
        }
    };
    Ok(Some(Target {
        package: package.name.to_string(),
        name,
        program: program.clone().into_std_path_buf(),
        args: Vec::new(),
        env: Vec::new(),
        traits,
        tests: None,
        takes: None,
        version: package.version.to_string(),
        manifest: package.manifest_path.clone().into_std_path_buf(),
    }))
}

/// What a target is called in reports and manifests.
fn shown(kinds: &[TargetKind], name: &str) -> String {
    match kinds.first() {
        Some(TargetKind::Test) => name.to_owned(),
        Some(TargetKind::Bin) => format!("bin:{name}"),
        Some(TargetKind::Example) => format!("example:{name}"),
        Some(TargetKind::Bench) => format!("bench:{name}"),
        _ => "lib".to_owned(),
    }
}

/// What the manifest of a package says of its targets.
fn traits(package: &Package) -> Result<BTreeMap<String, Traits>> {
    let known = package.targets.iter();
    let known: Vec<String> = known
        .map(|target| shown(&target.kind, &target.name))
        .collect();
    read_traits(&package.metadata["tests"], &known)
        .with_context(|| format!("{}: [package.metadata.tests]", package.manifest_path))
}

fn read_traits(section: &serde_json::Value, known: &[String]) -> Result<BTreeMap<String, Traits>> {
    let mut all: BTreeMap<String, Traits> = BTreeMap::new();
    let Some(section) = section.as_object() else {
        return Ok(all);
    };
    for (key, names) in section {
        for name in names.as_array().context("not a list")? {
            let name = name.as_str().context("not a name")?;
            if !known.iter().any(|target| target == name) {
                bail!("{key}: there is no target {name}");
            }
            let traits = all.entry(name.to_owned()).or_default();
            match key.as_str() {
                "guest" => traits.guest = true,
                "lab" => traits.lab = true,
                "server" => traits.server = true,
                "together" => traits.together = true,
                "alone" => traits.alone = true,
                _ => bail!("{key} is none of guest, lab, server, together and alone"),
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn manifest_says_how_targets_run() {
        let known = ["faults".to_owned(), "lib".to_owned()];
        let section = json!({ "guest": ["faults"], "together": ["faults"], "alone": ["lib"] });
        let traits = read_traits(&section, &known).unwrap();
        let faults = Traits {
            guest: true,
            together: true,
            ..Traits::default()
        };
        assert_eq!(traits["faults"], faults);
        assert!(traits["lib"].alone && !traits["lib"].guest);
        assert!(traits["lib"].is_quick() && !traits["faults"].is_quick());
        assert!(
            read_traits(&serde_json::Value::Null, &known)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn manifest_that_names_no_target_or_an_unknown_key_is_wrong() {
        let known = ["faults".to_owned()];
        let error = |section| read_traits(&section, &known).unwrap_err().to_string();
        assert!(error(json!({ "guest": ["vm"] })).contains("no target vm"));
        assert!(error(json!({ "serial": ["faults"] })).contains("serial"));
    }

    #[test]
    fn target_is_called_as_its_manifest_calls_it() {
        assert_eq!(shown(&[TargetKind::Lib], "giveway_locks"), "lib");
        let cfl = [TargetKind::CDyLib, TargetKind::Lib];
        assert_eq!(shown(&cfl, "giveway_cfl"), "lib");
        assert_eq!(shown(&[TargetKind::Test], "shares"), "shares");
        assert_eq!(shown(&[TargetKind::Bin], "giveway"), "bin:giveway");
    }

    #[test]
    fn every_manifest_of_the_workspace_is_right() {
        let workspace = crate::workspace().unwrap();
        for package in workspace.workspace_packages() {
            traits(package).unwrap();
        }
    }
}
