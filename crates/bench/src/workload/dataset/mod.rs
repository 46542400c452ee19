//! The data that cells run on: a stopped PostgreSQL data directory with TPC-C's
//! tables and the two tables of TPC-H that Q17 reads.
//!
//! Made once (natively, also when the measurements are emulated) and copied for
//! every cell, so that all cells start from the same pages. The contents are a
//! function of [`DatasetSpec`]; a manifest in the directory says which.
//!
//! Each table is created, loaded with COPY FREEZE, and indexed in one
//! transaction: with `wal_level=minimal` PostgreSQL then writes no log, so the
//! directory holds data and next to nothing else.

mod tpcc;
mod tpch;
mod writer;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::harness::error::{Error, Result};
use crate::harness::{Progress, files};
use crate::workload::postgres::{Installation, Session};

/// Changes whenever the same [`DatasetSpec`] gives other data: part of the key
/// under which prepared data may be cached.
pub const DATASET_VERSION: u32 = 1;

/// The manifest's name inside the data directory; PostgreSQL ignores it.
const MANIFEST: &str = "giveway-dataset.json";

/// What data to make.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatasetSpec {
    /// TPC-C warehouses: at least one for each terminal; 105 MB each.
    pub warehouses: u32,
    /// TPC-H scale factor of `part` and `lineitem`. It sets how long one Q17
    /// takes: with 0.02, some ten milliseconds of a CPU at 250 MIPS, so that
    /// even a short window sees many.
    pub tpch_scale: f64,
    /// Seed of TPC-C's rows (TPC-H's are fixed by its specification).
    pub seed: u64,
}

impl Default for DatasetSpec {
    fn default() -> Self {
        DatasetSpec {
            warehouses: 4,
            tpch_scale: 0.02,
            seed: 1,
        }
    }
}

/// What a prepared directory holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`DATASET_VERSION`] of the program that made it.
    pub version: u32,
    /// The server's version, such as `17.6`.
    pub postgresql: String,
    /// What was asked for.
    pub spec: DatasetSpec,
}

/// Reads what `dir` holds; an error when it was not prepared, or by a program
/// that makes other data.
pub fn read_manifest(dir: &Path) -> Result<Manifest> {
    let not_prepared = |reason: String| Error::NotPrepared {
        dir: dir.to_owned(),
        reason,
    };
    let text = fs::read(dir.join(MANIFEST))
        .map_err(|error| not_prepared(format!("no {MANIFEST}: {error}")))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| not_prepared(error.to_string()))?;
    if manifest.version != DATASET_VERSION {
        return Err(not_prepared(format!(
            "it has version {} of the data, this program wants {DATASET_VERSION}",
            manifest.version
        )));
    }
    Ok(manifest)
}

/// Makes `dir`, which must be new or empty, with the data of `spec`. When run
/// as root it belongs to the user `postgres`, whose server it is.
///
/// The manifest is written last: a directory that has one is complete.
pub fn prepare(dir: &Path, spec: &DatasetSpec, progress: Progress<'_>) -> Result<()> {
    if spec.warehouses == 0 || !(spec.tpch_scale > 0.0 && spec.tpch_scale.is_finite()) {
        return Err(Error::Config(
            "data needs at least one warehouse and a scale above 0".to_owned(),
        ));
    }
    let postgres = Installation::find()?;
    fs::create_dir_all(dir).map_err(Error::file("create", dir))?;
    if fs::read_dir(dir)
        .map_err(Error::file("list", dir))?
        .next()
        .is_some()
    {
        return Err(Error::NotEmpty(dir.to_owned()));
    }
    if let Some((user, group)) = postgres.owner() {
        chown(dir, Some(user), Some(group)).map_err(Error::file("change the owner of", dir))?;
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
        .map_err(Error::file("protect", dir))?;
    let dir = &dir.canonicalize().map_err(Error::file("find", dir))?;

    let version = postgres.version()?;
    progress(&format!("initialising PostgreSQL {version}"));
    postgres.init(dir)?;
    let server = postgres.start(dir, &load_settings())?;
    let session = Session::connect(&server, "prepare", &[])?;
    tpcc::load(&session, spec, progress)?;
    tpch::load(&session, spec, progress)?;
    progress("collecting statistics");
    session.execute("creating pg_prewarm", "CREATE EXTENSION pg_prewarm")?;
    session.execute("collecting statistics", "VACUUM (FREEZE, ANALYZE)")?;
    session.execute("writing everything out", "CHECKPOINT")?;
    drop(session);
    progress("stopping the server");
    server.stop()?;

    let manifest = Manifest {
        version: DATASET_VERSION,
        postgresql: version,
        spec: *spec,
    };
    let text = serde_json::to_vec_pretty(&manifest).expect("a manifest is plain data");
    files::replace(&dir.join(MANIFEST), &text)
}

/// Fast and small rather than durable: what a crash leaves has no manifest.
fn load_settings() -> Vec<(&'static str, String)> {
    [
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("wal_level", "minimal"),
        ("max_wal_senders", "0"),
        ("min_wal_size", "32MB"),
        ("max_wal_size", "256MB"),
        ("shared_buffers", "256MB"),
        ("maintenance_work_mem", "128MB"),
        ("max_parallel_maintenance_workers", "0"),
        ("autovacuum", "off"),
        ("jit", "off"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unprepared_directory_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = read_manifest(dir.path()).unwrap_err().to_string();
        assert!(error.contains("giveway bench prepare"), "{error}");
        let manifest = Manifest {
            version: DATASET_VERSION + 1,
            postgresql: "17".to_owned(),
            spec: DatasetSpec::default(),
        };
        let text = serde_json::to_vec(&manifest).unwrap();
        fs::write(dir.path().join(MANIFEST), text).unwrap();
        let error = read_manifest(dir.path()).unwrap_err().to_string();
        assert!(error.contains("version"), "{error}");
    }

    #[test]
    fn a_directory_in_use_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("precious"), "x").unwrap();
        let error = prepare(dir.path(), &DatasetSpec::default(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::NotEmpty(_)), "{error}");
    }
}
