//! The guest's root file system: Debian trixie with PostgreSQL 17 and the
//! measuring tools, plus what the caller adds as a [`Layer`].
//!
//! It is made in one pass by mmdebstrap, whose hooks copy files in, run the
//! layer's command in the new tree at native speed, and turn the tree into an
//! ext4 image. The guest mounts it read-only, so all guests share one file.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, GUEST_SUITE};
use crate::cache::{Cache, digest};
use crate::command;
use crate::error::{LabError, Result};
use crate::progress::Progress;
use crate::tree::Tree;

/// Packages of every guest, beyond Debian's minimal set.
pub const IMAGE_PACKAGES: &[&str] = &[
    // The database under test.
    "postgresql-17",
    // What the scheduler's binaries link.
    "libelf1t64",
    "zlib1g",
    // Timers, wake-ups and load.
    "rt-tests",
    "stress-ng",
    // Traces and BPF programs.
    "trace-cmd",
    "bpftool",
    "strace",
    // Small tools of the guest's own init.
    "busybox-static",
    "procps",
];

/// The image's init.
const INIT: &str = include_str!("../guest/lab-init");

/// Files that a guest never reads.
const LEFT_OUT: &[&str] = &[
    "/usr/share/man/*",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
];

/// What a caller adds to the image.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// Names the layer's content: a changed key makes a new image, as do other
    /// packages and trees.
    pub key: String,
    /// Debian packages, beyond those of every guest.
    pub packages: Vec<String>,
    /// Directories that the command needs, under `/layer` while it runs, by the
    /// names given here.
    pub trees: Vec<(String, Tree)>,
    /// Host files that the command needs, under `/layer` while it runs.
    pub files: Vec<PathBuf>,
    /// Run as root in the image while it is made, at native speed.
    pub command: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Image {
    path: PathBuf,
}

impl Layer {
    /// Differs whenever the content does. Packages have their place elsewhere.
    fn name(&self) -> String {
        let trees = self.trees.iter();
        let trees = trees.map(|(name, tree)| format!(" {name}={}", tree.name()));
        trees.fold(self.key.clone(), |all, tree| all + &tree)
    }
}

/// What is installed, as mmdebstrap has it.
fn packages(layer: Option<&Layer>) -> String {
    let every = IMAGE_PACKAGES.iter().copied();
    let more = layer.into_iter().flat_map(|layer| &layer.packages);
    let all: Vec<&str> = every.chain(more.map(String::as_str)).collect();
    all.join(",")
}

impl Image {
    pub(crate) fn ensure(
        cache: &Cache,
        layer: Option<&Layer>,
        progress: &dyn Progress,
    ) -> Result<Image> {
        let packages = packages(layer);
        let dir = cache.entry(&entry_name(&packages, layer), |dir| {
            let apt = Apt::open(cache, progress)?;
            progress.begin("making the guest image");
            build(&apt, &packages, layer, dir, progress)?;
            progress.end("made");
            Ok(())
        })?;
        Ok(Image::in_entry(&dir))
    }

    /// The image of the cache with this layer, if it is there.
    pub(crate) fn existing(cache: &Cache, layer: Option<&Layer>) -> Option<Image> {
        let dir = cache.find(&entry_name(&packages(layer), layer))?;
        Some(Image::in_entry(&dir))
    }

    pub(crate) fn in_entry(dir: &Path) -> Image {
        Image {
            path: dir.join("root.img"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn entry_name(packages: &str, layer: Option<&Layer>) -> String {
    let left_out = LEFT_OUT.concat();
    let key = layer.map(Layer::name).unwrap_or_default();
    let parts = [INIT, packages, &left_out, &key];
    format!("image-{}", digest(parts.map(str::as_bytes)))
}

fn build(
    apt: &Apt,
    packages: &str,
    layer: Option<&Layer>,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let init = dir.join("lab-init");
    std::fs::write(&init, INIT).map_err(LabError::io("writing", &init))?;
    let image = dir.join("root.img");
    let mut command = Command::new("mmdebstrap");
    command.args([
        "--variant=minbase",
        "--format=null",
        "--aptopt=APT::Install-Recommends \"false\"",
    ]);
    command.arg(format!("--include={packages}"));
    for pattern in LEFT_OUT {
        command.arg(format!("--dpkgopt=path-exclude={pattern}"));
    }
    for hook in hooks(&init, layer, &image) {
        command.arg(format!("--customize-hook={hook}"));
    }
    command.args([GUEST_SUITE, "/dev/null", apt.mirror()]);
    command.env("PATH", path_with_sbin());
    command::run("making the guest image", &mut command, progress)?;
    std::fs::remove_file(&init).map_err(LabError::io("removing", &init))
}

/// Shell lines that mmdebstrap runs on the unpacked tree, `$1`, one after the other.
fn hooks(init: &Path, layer: Option<&Layer>, image: &Path) -> Vec<String> {
    let quote = |path: &Path| shell_words::quote(&path.to_string_lossy()).into_owned();
    let mut hooks = vec![
        format!("install -m 755 {} \"$1/sbin/lab-init\"", quote(init)),
        // Mount points of the guest's init; everything else is read-only.
        "mkdir -p \"$1/lab\" \"$1/results\"".into(),
        // The package's own cluster is never used.
        "rm -rf \"$1/var/lib/postgresql/17\"".into(),
    ];
    if let Some(layer) = layer {
        hooks.push("mkdir \"$1/layer\"".into());
        for file in &layer.files {
            hooks.push(format!("cp {} \"$1/layer/\"", quote(file)));
        }
        for (name, tree) in &layer.trees {
            let name = shell_words::quote(name);
            hooks.push(format!("cp -r {} \"$1/layer/\"{name}", quote(tree.path())));
        }
        hooks.push(format!(
            "chroot \"$1\" {}",
            shell_words::join(&layer.command)
        ));
        hooks.push("rm -rf \"$1/layer\"".into());
    }
    hooks.push("rm -rf \"$1\"/var/cache/apt/* \"$1\"/var/lib/apt/lists/* \"$1\"/var/log/*".into());
    // A bind mount shows the tree without the /proc, /sys and /dev that
    // mmdebstrap has mounted on it. NVDIMMs come in steps of 64 MiB; the file
    // system needs about a tenth for itself.
    hooks.push(format!(
        "set -e; mkdir \"$1.bare\"; mount --bind \"$1\" \"$1.bare\"; mib=$(du -sm \"$1.bare\" | cut -f1); \
         size=$(( (mib + mib / 8 + 64 + 63) / 64 * 64 )); \
         mke2fs -q -t ext4 -O ^has_journal -m 0 -L giveway-root -d \"$1.bare\" {} ${{size}}M; \
         umount \"$1.bare\"; rmdir \"$1.bare\"",
        quote(image)
    ));
    hooks
}

/// Where mmdebstrap finds all it calls, also for users without sbin in their PATH.
pub(crate) fn path_with_sbin() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(trees: &[(&str, &str)]) -> Layer {
        let tree = |(name, path): &(&str, &str)| ((*name).to_owned(), Tree::at(path.into()));
        Layer {
            key: "k".into(),
            packages: vec!["wrk".into()],
            trees: trees.iter().map(tree).collect(),
            files: vec!["/a file".into()],
            command: ["/layer/make", "it's"].map(String::from).to_vec(),
        }
    }

    #[test]
    fn a_layer_is_named_by_its_key_and_its_trees() {
        // An image without trees is called as it always was.
        assert_eq!(layer(&[]).name(), "k");
        let one = layer(&[("w", "/cache/wheels-1")]).name();
        assert_eq!(one, "k w=wheels-1");
        assert_ne!(one, layer(&[("w", "/cache/wheels-2")]).name());
        assert!(packages(Some(&layer(&[]))).ends_with(",procps,wrk"));
        assert!(packages(None).ends_with(",procps"));
    }

    #[test]
    fn a_layer_s_command_has_its_files_and_trees_at_hand() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let wheels = dir.path().join("wheels-1");
        let made = dir.path().join("made it");
        for dir in [&root, &wheels] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(wheels.join("a.whl"), "one").unwrap();
        std::fs::write(&made, "two").unwrap();
        let mut layer = layer(&[("w", wheels.to_str().unwrap())]);
        layer.files = vec![made];
        let hooks = hooks(Path::new("/init"), Some(&layer), Path::new("/image"));
        let own = hooks
            .iter()
            .position(|hook| hook.starts_with("mkdir \"$1/layer\""));
        let command = hooks.iter().position(|hook| hook.starts_with("chroot"));
        let (own, command) = (own.unwrap(), command.unwrap());
        assert!(
            hooks[command].ends_with("/layer/make 'it'\\''s'"),
            "{hooks:?}"
        );
        // As mmdebstrap runs them.
        let script = hooks[own..command].join("\n");
        let status = Command::new("sh")
            .args(["-ec", &script, "sh"])
            .arg(&root)
            .status();
        assert!(status.unwrap().success());
        let at_hand = |name: &str| std::fs::read_to_string(root.join("layer").join(name)).unwrap();
        assert_eq!(
            (at_hand("w/a.whl"), at_hand("made it")),
            ("one".into(), "two".into())
        );
    }
}
