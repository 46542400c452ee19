//! Files as tables, by what they are called.
//!
//! | path | table |
//! | --- | --- |
//! | `x.parquet`, `x.csv`, `x.tsv` | that file |
//! | a directory | all files in it of the kind of the first one |
//!
//! CSV and TSV files have a header.

use std::fs;
use std::path::{Path, PathBuf};

use datafusion::prelude::{CsvReadOptions, ParquetReadOptions};

use crate::error::SqlError;
use crate::session::Session;

/// Why a file is no table.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Correct the path.
    #[error("{0}: no such file or directory")]
    Missing(PathBuf),
    /// Rename it, or convert it.
    #[error("{0}: no Parquet, CSV or TSV file: the name must end in .parquet, .csv or .tsv")]
    Kind(PathBuf),
    /// Look at what is in it.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: SqlError,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Parquet,
    Csv,
    Tsv,
}

impl Kind {
    fn of_name(path: &Path) -> Option<Kind> {
        match path.extension()?.to_str()? {
            "parquet" => Some(Kind::Parquet),
            "csv" => Some(Kind::Csv),
            "tsv" => Some(Kind::Tsv),
            _ => None,
        }
    }

    /// What a path is; of a directory, what is in it.
    fn of(path: &Path) -> Result<Kind, FileError> {
        let attributes = fs::metadata(path).map_err(|_| FileError::Missing(path.to_owned()))?;
        let kind = match attributes.is_dir() {
            true => sorted(path).iter().find_map(|file| Kind::of_name(file)),
            false => Kind::of_name(path),
        };
        kind.ok_or_else(|| FileError::Kind(path.to_owned()))
    }
}

/// Names a file, or a directory of files, as a table.
pub async fn register(session: &Session, name: &str, path: &Path) -> Result<(), FileError> {
    let kind = Kind::of(path)?;
    let location = path.to_string_lossy();
    let registered = match kind {
        Kind::Parquet => {
            let options = ParquetReadOptions::default();
            session.register_parquet(name, &location, options).await
        }
        Kind::Csv => {
            let options = CsvReadOptions::new();
            session.register_csv(name, &location, options).await
        }
        Kind::Tsv => {
            let options = CsvReadOptions::new()
                .delimiter(b'\t')
                .file_extension(".tsv");
            session.register_csv(name, &location, options).await
        }
    };
    registered.map_err(|source| FileError::Read {
        path: path.to_owned(),
        source,
    })
}

/// What was found in a directory.
#[derive(Debug, Default)]
pub struct Found {
    /// The tables, by name.
    pub names: Vec<String>,
    /// What is there and cannot be read; there is no table for it.
    pub left_out: Vec<FileError>,
}

/// Names everything in a directory as tables: files by their names without the
/// ending, directories by theirs. What is no table is passed over, and what cannot be
/// read is left out: the others are tables all the same.
///
/// # Errors
/// There is no table in it: [`FileError::Kind`], or why the first file cannot be read.
pub async fn register_all(session: &Session, dir: &Path) -> Result<Found, FileError> {
    if !dir.is_dir() {
        return Err(FileError::Missing(dir.to_owned()));
    }
    let mut found = Found::default();
    for path in sorted(dir) {
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        if name.starts_with('.') || Kind::of(&path).is_err() {
            continue;
        }
        match register(session, name, &path).await {
            Ok(()) => found.names.push(name.to_owned()),
            Err(error) => found.left_out.push(error),
        }
    }
    if !found.names.is_empty() {
        return Ok(found);
    }
    let first = found.left_out.into_iter().next();
    Err(first.unwrap_or_else(|| FileError::Kind(dir.to_owned())))
}

fn sorted(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_go_by_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("a.csv"), "x\n1\n").unwrap();
        fs::write(path("notes.txt"), "").unwrap();
        assert_eq!(Kind::of(&path("a.csv")).unwrap(), Kind::Csv);
        assert_eq!(Kind::of(dir.path()).unwrap(), Kind::Csv);
        assert!(matches!(
            Kind::of(&path("notes.txt")),
            Err(FileError::Kind(_))
        ));
        assert!(matches!(
            Kind::of(&path("b.csv")),
            Err(FileError::Missing(_))
        ));
    }
}
