//! The archive in which a guest finds its job: a tar file, as large as a device is.
//!
//! Invariant: it has names, modes and contents of files, in the order of their names. Their
//! owners and times are the same everywhere.
//!
//! An error names the file that it is about: one of the job's, which is read, or the archive,
//! for which the disk may have no room.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};

/// Sizes of NVDIMMs are multiples of this.
pub(crate) const STEP: u64 = 64 << 20;
/// When a guest's clock begins, in seconds of Unix time. Files of the job are of that time;
/// the guest's tar would warn of newer ones, and say by how much.
pub(crate) const TIME: u64 = 1_767_225_600;

/// Writes the archive of a job, which has the shell text that runs it and these files of the
/// host under these names; returns the archive's length, without what fills the device.
pub(crate) fn write(
    text: &str,
    shell: bool,
    files: &[(PathBuf, String)],
    path: &Path,
) -> Result<u64> {
    let file = File::create(path).map_err(LabError::io("writing", path))?;
    let mut archive = Archive {
        tar: tar::Builder::new(file),
        path,
    };
    archive.text(".job", text)?;
    if shell {
        archive.text(".shell", "")?;
    }
    for (host, name) in files {
        archive.append(host, Path::new(name))?;
    }
    archive.finish()
}

/// The names in a directory, in their order.
pub(crate) fn names_in(dir: &Path) -> Result<Vec<OsString>> {
    let names = || -> io::Result<Vec<_>> {
        let entries = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
        entries.collect()
    };
    let mut names = names().map_err(LabError::io("reading", dir))?;
    names.sort();
    Ok(names)
}

/// An archive that is written.
struct Archive<'a> {
    tar: tar::Builder<File>,
    path: &'a Path,
}

impl Archive<'_> {
    fn text(&mut self, name: &str, content: &str) -> Result<()> {
        let mut header = header(0o644, content.len() as u64);
        self.tar
            .append_data(&mut header, name, content.as_bytes())
            .map_err(LabError::io("writing", self.path))
    }

    /// Appends a host file, or all below a directory in the order of their names.
    fn append(&mut self, host: &Path, name: &Path) -> Result<()> {
        let meta = fs::metadata(host).map_err(LabError::io("reading", host))?;
        let mode = meta.permissions().mode() & 0o7777;
        if !meta.is_dir() {
            let file = File::open(host).map_err(LabError::io("reading", host))?;
            let mut content = Source {
                file: file.take(meta.len()),
                has_failed: false,
            };
            let appended = self
                .tar
                .append_data(&mut header(mode, meta.len()), name, &mut content);
            return appended.map_err(match content.has_failed {
                true => LabError::io("reading", host),
                false => LabError::io("writing", self.path),
            });
        }
        let mut directory = header(mode, 0);
        directory.set_entry_type(tar::EntryType::Directory);
        self.tar
            .append_data(&mut directory, name, io::empty())
            .map_err(LabError::io("writing", self.path))?;
        names_in(host)?
            .iter()
            .try_for_each(|entry| self.append(&host.join(entry), &name.join(entry)))
    }

    /// Makes it as large as a device can be.
    fn finish(self) -> Result<u64> {
        let finish = || -> io::Result<u64> {
            let file = self.tar.into_inner()?;
            let length = file.metadata()?.len();
            file.set_len(length.next_multiple_of(STEP))?;
            Ok(length)
        };
        finish().map_err(LabError::io("writing", self.path))
    }
}

/// A file that is copied; what copies it does not say which side failed.
struct Source {
    file: io::Take<File>,
    has_failed: bool,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer);
        self.has_failed = read.is_err();
        read
    }
}

/// Of a file that is root's, and as old as the guest.
fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(TIME);
    header
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_job_device_is_an_archive_of_a_size_a_dimm_can_have() {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("input");
        fs::write(&input, "content").unwrap();
        let path = dir.path().join("job.img");
        let length = write("true", false, &[(input, "sub/name".into())], &path).unwrap();
        let size = fs::metadata(&path).unwrap().len();
        assert_eq!(size % STEP, 0);
        assert!((1..=size).contains(&length));
        let names: Vec<String> = tar::Archive::new(File::open(&path).unwrap())
            .entries()
            .unwrap()
            .map(|entry| {
                entry
                    .unwrap()
                    .path()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        assert_eq!(names, [".job", "sub/name"]);
    }

    /// Of names, modes and contents, and nothing else of the host's.
    #[test]
    fn a_job_s_archive_is_the_same_whenever_and_wherever_its_files_were_made() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let archive = |tree: &str, names: [&str; 3]| {
            fs::create_dir(at(tree)).unwrap();
            for name in names {
                let file = at(tree).join(name);
                fs::write(&file, name).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            }
            fs::set_permissions(at(tree), fs::Permissions::from_mode(0o755)).unwrap();
            let old = UNIX_EPOCH + Duration::from_secs(u64::from(tree == "old"));
            let touched = File::open(at(tree).join(names[0])).unwrap();
            touched.set_modified(old).unwrap();
            let path = at("job.img");
            let length = write("true", false, &[(at(tree), "files".into())], &path).unwrap();
            let mut bytes = fs::read(&path).unwrap();
            bytes.truncate(length as usize);
            bytes
        };
        let new = archive("new", ["a", "b", "c"]);
        assert_eq!(new, archive("old", ["c", "b", "a"]));
        let mut of_it = tar::Archive::new(new.as_slice());
        let entries = of_it.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let (owner, time) = (header.uid().unwrap(), header.mtime().unwrap());
            assert_eq!((owner, time), (0, TIME));
            entry.path().unwrap().display().to_string()
        });
        let entries: Vec<String> = entries.collect();
        assert_eq!(entries, [".job", "files", "files/a", "files/b", "files/c"]);
    }

    #[test]
    fn an_error_names_the_file_that_it_is_about() {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("input");
        let said = |path: &Path| {
            let error = write("true", false, &[(input.clone(), "name".into())], path);
            error.unwrap_err().to_string()
        };
        let missing = said(&dir.path().join("job.img"));
        let expected = format!("reading {}: No such file", input.display());
        assert!(missing.starts_with(&expected), "{missing}");
        fs::write(&input, vec![0; 1 << 20]).unwrap();
        let full = said(Path::new("/dev/full"));
        assert!(
            full.starts_with("writing /dev/full: No space left"),
            "{full}"
        );
        assert!(full.contains("\nremedy: "), "{full}");
    }
}
