//! The Debian package, built here as `make package` builds it but for speed: what
//! is in it, whether its parts are sound, and what it leaves behind; in a guest
//! (`package.sh`), what becomes of a scheduler that is loaded.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

#[path = "package/build.rs"]
mod build;
#[path = "package/guest.rs"]
mod guest;
#[path = "guest/programs.rs"]
mod programs;
#[path = "guest/transcript.rs"]
mod transcript;

use build::{built, pack, script, text, tmp};
use transcript::hold;

/// A check of form that takes a program which may not be here.
fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIPPED: no {program} here; make setup");
    }
    there
}

fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn said(command: &mut Command) -> String {
    let output = run(command);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out + &err
}

/// The package, unpacked.
fn unpacked() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = tmp("package-unpacked");
        unpack(&dir);
        dir
    })
}

fn unpack(dir: &Path) {
    let _ = fs::remove_dir_all(dir);
    said(Command::new("dpkg-deb").arg("-R").arg(built()).arg(dir));
}

/// The package without its documentation, of which nothing is read in the guest. So a
/// changed page does not boot the guest again.
fn undocumented() -> PathBuf {
    let dir = tmp("package-undocumented");
    unpack(&dir);
    let packed = fs::metadata(dir.join("DEBIAN/control")).unwrap().mtime();
    fs::remove_dir_all(dir.join("usr/share/doc")).unwrap();
    // What else tells of it.
    for (file, of_it) in [
        ("md5sums", " usr/share/doc/"),
        ("control", "Installed-Size:"),
    ] {
        let path = dir.join("DEBIAN").join(file);
        let text = fs::read_to_string(&path).unwrap();
        let kept = text.lines().filter(|line| !line.contains(of_it));
        let kept: String = kept.map(|line| format!("{line}\n")).collect();
        assert_ne!(kept, text, "{file}");
        fs::write(&path, kept).unwrap();
    }
    let deb = dir.with_extension("deb");
    let mut pack = Command::new("dpkg-deb");
    // What is written here is no younger than the rest.
    pack.env("SOURCE_DATE_EPOCH", packed.to_string());
    pack.args(["--root-owner-group", "-Znone", "--build"]);
    said(pack.args([&dir, &deb]));
    deb
}

/// The pages of the manual, by their names without the ending.
fn pages() -> Vec<PathBuf> {
    let dir = unpacked().join("usr/share/man/man1");
    let pages = fs::read_dir(dir).unwrap().flatten();
    pages.map(|entry| entry.path()).collect()
}

#[test]
fn everything_is_where_debian_has_it() {
    for (file, mode) in [
        ("usr/bin/giveway", 0o755),
        ("usr/bin/scx_ufs", 0o755),
        ("usr/lib/giveway/libgiveway_cfl.so", 0o644),
        ("lib/systemd/system/giveway.service", 0o644),
        ("lib/systemd/system/giveway-meta.service", 0o644),
        ("lib/systemd/system/giveway-metrics.service", 0o644),
        ("lib/systemd/system/background.slice", 0o644),
        ("usr/lib/sysusers.d/giveway.conf", 0o644),
        ("usr/share/giveway/grafana-giveway.json", 0o644),
        ("usr/share/giveway/perfetto/preemptions.sql", 0o644),
        ("usr/share/bash-completion/completions/giveway", 0o644),
        ("usr/share/zsh/vendor-completions/_giveway", 0o644),
        ("usr/share/fish/vendor_completions.d/giveway.fish", 0o644),
        ("usr/share/doc/giveway/copyright", 0o644),
        ("usr/share/doc/giveway/changelog.gz", 0o644),
        ("usr/share/doc/giveway/third-party.txt.gz", 0o644),
        ("usr/share/doc/giveway/docs/operate/scheduler.md", 0o644),
        ("usr/share/doc/giveway/CHANGELOG.md", 0o644),
        (
            "usr/share/doc/giveway/dist/kubernetes/daemonset.yaml",
            0o644,
        ),
        ("etc/default/giveway", 0o644),
    ] {
        let path = unpacked().join(file);
        let found = fs::metadata(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(found.permissions().mode() & 0o777, mode, "{file}");
    }
    assert!(!unpacked().join("usr/local").exists());
}

#[test]
fn it_has_the_workspace_s_version_and_says_what_it_needs() {
    let field = |name| said(Command::new("dpkg-deb").arg("-f").arg(built()).arg(name));
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    let depends = field("Depends");
    for needed in ["libc6 (>=", "libelf1", "zlib1g", "systemd-sysusers"] {
        assert!(depends.contains(needed), "{needed}: {depends}");
    }
    let conffiles = fs::read_to_string(unpacked().join("DEBIAN/conffiles")).unwrap();
    assert_eq!(conffiles, "/etc/default/giveway\n");
}

#[test]
fn every_command_has_a_page_and_every_page_is_sound() {
    let names: BTreeSet<String> = pages()
        .iter()
        .map(|page| page.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    for page in ["giveway", "giveway-run", "giveway-meta-run", "scx_ufs"] {
        assert!(names.contains(&format!("{page}.1.gz")), "{page}: {names:?}");
    }
    for page in pages() {
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]);
        man.arg(&page)
            .env("MANWIDTH", "80")
            .env("LC_ALL", "C.UTF-8");
        let output = run(&mut man);
        assert!(
            output.status.success(),
            "{page:?}: {}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stderr), "", "{page:?}");
        // A page names those of its subcommands.
        let source = said(Command::new("zcat").arg(&page));
        for word in source.split_whitespace() {
            let Some(named) = word.strip_suffix("(1)") else {
                continue;
            };
            let named = named.replace('\\', "");
            // Pages of other packages.
            let is_apart = ["giveway-bench", "giveway-sql"].contains(&named.as_str());
            assert!(
                is_apart || names.contains(&format!("{named}.1.gz")),
                "{page:?}: {named}"
            );
        }
    }
}

#[test]
fn completions_complete() {
    let file = unpacked().join("usr/share/bash-completion/completions/giveway");
    let script = format!(
        ". '{}'; COMP_WORDS=(giveway sta) COMP_CWORD=1; _giveway giveway sta giveway; \
         echo ${{COMPREPLY[*]}}",
        file.display()
    );
    let found = said(Command::new("bash").args(["-c", &script]));
    assert_eq!(found.trim(), "start status");
    for (shell, file) in [
        ("zsh", "zsh/vendor-completions/_giveway"),
        ("fish", "fish/vendor_completions.d/giveway.fish"),
    ] {
        if has(shell) {
            let file = unpacked().join("usr/share").join(file);
            said(Command::new(shell).arg("-n").arg(file));
        }
    }
    if has("fish") {
        let file = unpacked().join("usr/share/fish/vendor_completions.d/giveway.fish");
        let script = format!("source '{}'; complete -C 'giveway sta'", file.display());
        let found = said(Command::new("fish").args(["--no-config", "-c", &script]));
        let words: Vec<&str> = found.lines().filter_map(|l| l.split('\t').next()).collect();
        assert_eq!(words, ["start", "status"]);
    }
}

#[test]
fn systemd_takes_the_units() {
    if !has("systemd-analyze") {
        return;
    }
    // What the units run that every machine has.
    for program in ["bin/sh", "usr/bin/nsenter"] {
        let there = unpacked().join(program);
        fs::create_dir_all(there.parent().unwrap()).unwrap();
        fs::copy(Path::new("/").join(program), there).unwrap();
    }
    for unit in [
        "giveway.service",
        "giveway-meta.service",
        "giveway-metrics.service",
        "background.slice",
    ] {
        let output = run(Command::new("systemd-analyze")
            .arg(format!("--root={}", unpacked().display()))
            .args(["verify", "--man=no", "--recursive-errors=no", unit]));
        let said = text(&output.stderr);
        assert!(output.status.success(), "{unit}: {said}");
        assert!(!said.contains(unit), "{unit}: {said}");
    }
}

#[test]
fn scheduler_units_mount_the_hint_table_in_the_host_namespace() {
    let mounts = |unit: &str| {
        let unit = unpacked().join("lib/systemd/system").join(unit);
        let unit = fs::read_to_string(unit).unwrap();
        // With the rights for it, and in the view that the first process has of the mounts.
        let lines = unit
            .lines()
            .filter(|line| line.starts_with("ExecStartPre=+"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let by_one = mounts("giveway.service");
    assert!(
        by_one.len() == 1 && by_one[0].contains("nsenter --target 1 --mount"),
        "{by_one:?}"
    );
    assert_eq!(mounts("giveway-meta.service"), by_one);
}

/// Later, at another place, by somebody with another mask and time zone.
#[test]
fn packing_again_gives_the_same_bytes() {
    let mut elsewhere = Command::new("sh");
    elsewhere.args(["-c", "umask 077 && exec \"$0\" \"$@\""]);
    elsewhere.arg(script());
    elsewhere.env("TZ", "Pacific/Auckland");
    elsewhere.env("LC_ALL", "C");
    // Also where the path has a blank.
    let again = pack(&mut elsewhere, &tmp("package again"));
    let (first, second) = (fs::read(built()).unwrap(), fs::read(&again).unwrap());
    assert!(
        first == second,
        "the packages differ; remedy: diffoscope {} {} shows where",
        built().display(),
        again.display()
    );
}

#[test]
fn lintian_reports_nothing() {
    if !has("lintian") {
        return;
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--no-cfg", "--allow-root", "--fail-on", "error,warning"]);
    // The package that users get is compressed.
    lintian.args([
        "--suppress-tags",
        "uses-no-compression-for-data-tarball,uses-no-compression-for-control-tarball",
    ]);
    said(lintian.arg(built()));
}

/// A machine's root directory, as far as dpkg needs one.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for sub in ["info", "updates", "triggers"] {
            fs::create_dir_all(dir.path().join("var/lib/dpkg").join(sub)).unwrap();
        }
        fs::write(dir.path().join("var/lib/dpkg/status"), "").unwrap();
        Root(dir)
    }

    fn dpkg(&self, args: &[&str]) {
        // As root of a namespace of its own, so that files can be root's.
        let mut dpkg = Command::new("unshare");
        dpkg.args([
            "--map-root-user",
            "dpkg",
            "--force-script-chrootless",
            "--force-depends",
        ]);
        dpkg.arg("--force-not-root").arg("--force-confold");
        dpkg.arg(format!("--root={}", self.0.path().display()))
            .args(args);
        said(&mut dpkg);
    }

    fn install(&self) {
        self.dpkg(&["-i", built().to_str().unwrap()]);
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Files and links that are not dpkg's own records.
    fn left(&self) -> Vec<PathBuf> {
        let mut left = Vec::new();
        let mut dirs = vec![self.0.path().to_path_buf()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                match entry.file_type().unwrap().is_dir() {
                    true if path.ends_with("var/lib/dpkg") => {}
                    true => dirs.push(path),
                    false => left.push(path.strip_prefix(self.0.path()).unwrap().to_path_buf()),
                }
            }
        }
        left.sort();
        left
    }
}

#[test]
fn nothing_is_enabled_options_survive_and_purging_leaves_nothing() {
    let root = Root::new();
    root.install();
    assert!(root.path("usr/bin/scx_ufs").exists());
    let group = fs::read_to_string(root.path("etc/group")).unwrap();
    assert!(group.contains("giveway:"), "{group}");
    assert!(!root.path("etc/systemd").exists(), "{:?}", root.left());

    let options = "SCX_UFS_OPTIONS=\"--slice-us 2000\"\n";
    fs::write(root.path("etc/default/giveway"), options).unwrap();
    root.install();
    let kept = || fs::read_to_string(root.path("etc/default/giveway")).unwrap();
    assert_eq!(kept(), options);
    root.dpkg(&["-r", "giveway"]);
    assert!(!root.path("usr/bin/scx_ufs").exists());
    assert_eq!(kept(), options);

    root.dpkg(&["-P", "giveway"]);
    let left = root.left();
    // Users and groups outlive packages, since files may be theirs.
    let ours = left.iter().filter(|file| !file.starts_with("etc"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
    assert!(!root.path("etc/default/giveway").exists());
}

/// These claims of `package.sh` held in the guest.
fn held(claims: &[&str]) {
    static SAID: OnceLock<String> = OnceLock::new();
    let said = SAID.get_or_init(|| guest::said(&undocumented(), "package.sh"));
    hold(said, claims);
}

#[test]
fn installing_loads_nothing() {
    held(&["plain_install", "install", "not_enabled"]);
}

#[test]
fn an_upgrade_reloads_what_runs_and_nothing_else() {
    held(&["plain_upgrade", "start", "upgrade", "upgrade_loads"]);
    held(&["upgrade_restarts", "upgrade_of_stopped", "slice_stays"]);
}

#[test]
fn the_metascheduler_s_unit_runs_what_was_installed_and_shares_its_hint_table() {
    held(&["meta_install", "meta_in_force", "meta_table"]);
    held(&["meta_stop", "meta_table_stays"]);
}

#[test]
fn removal_restores_the_kernel_default_scheduler() {
    held(&["plain_start", "plain_remove", "plain_purge"]);
    held(&["start_again", "remove", "purge"]);
}
