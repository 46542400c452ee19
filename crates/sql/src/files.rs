//! Files as tables, by what they are called.
//!
//! | path | table |
//! | --- | --- |
//! | `x.parquet`, `x.csv`, `x.tsv`, `x.ndjson`, `x.jsonl`, `x.json` | that file |
//! | the same but Parquet, with `.gz`, `.bz2`, `.xz` or `.zst` behind | that file, decompressed as it is read |
//! | a directory | all files in it of the kind of the first one |
//!
//! CSV and TSV files have a header; JSON files have an object on each line. A compressed
//! file is read by one stream, from its beginning.

use std::fs;
use std::path::{Path, PathBuf};

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::prelude::{CsvReadOptions, JsonReadOptions, ParquetReadOptions};

use crate::error::SqlError;
use crate::session::Session;

/// Why a file is no table.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Correct the path.
    #[error("{0}: no such file or directory")]
    Missing(PathBuf),
    /// Rename it, or convert it.
    #[error(
        "{0}: no Parquet, CSV, TSV or JSON file: the name must end in .parquet, .csv, .tsv, \
         .json, .jsonl or .ndjson; all but the first also with .gz, .bz2, .xz or .zst"
    )]
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

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Parquet,
    Csv,
    Tsv,
    Json,
}

/// The endings of names, and what they say.
const FORMS: [(&str, Form); 6] = [
    (".parquet", Form::Parquet),
    (".csv", Form::Csv),
    (".tsv", Form::Tsv),
    (".ndjson", Form::Json),
    (".jsonl", Form::Json),
    (".json", Form::Json),
];
const COMPRESSIONS: [(&str, FileCompressionType); 5] = [
    (".gz", FileCompressionType::GZIP),
    (".bz2", FileCompressionType::BZIP2),
    (".xz", FileCompressionType::XZ),
    (".zst", FileCompressionType::ZSTD),
    ("", FileCompressionType::UNCOMPRESSED),
];

/// What a name says of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    form: Form,
    compression: FileCompressionType,
    /// The end of its name, by which others of its kind are known.
    ending: String,
}

impl Kind {
    fn of_name(path: &Path) -> Option<Kind> {
        let name = path.file_name()?.to_str()?;
        let (inner, packed, compression) = COMPRESSIONS
            .iter()
            .find_map(|&(end, compression)| Some((name.strip_suffix(end)?, end, compression)))?;
        let &(end, form) = FORMS.iter().find(|(end, _)| inner.ends_with(end))?;
        let is_compressed = !packed.is_empty();
        (form != Form::Parquet || !is_compressed).then(|| Kind {
            form,
            compression,
            ending: format!("{end}{packed}"),
        })
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
    let csv = |delimiter| {
        CsvReadOptions::new()
            .delimiter(delimiter)
            .file_extension(&kind.ending)
            .file_compression_type(kind.compression)
    };
    let registered = match kind.form {
        Form::Parquet => {
            let options = ParquetReadOptions::default();
            session.register_parquet(name, &location, options).await
        }
        Form::Csv => session.register_csv(name, &location, csv(b',')).await,
        Form::Tsv => session.register_csv(name, &location, csv(b'\t')).await,
        Form::Json => {
            let options = JsonReadOptions::default()
                .file_extension(&kind.ending)
                .file_compression_type(kind.compression);
            session.register_json(name, &location, options).await
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
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if name.starts_with('.') || Kind::of(&path).is_err() {
            continue;
        }
        let name = match Kind::of_name(&path) {
            Some(kind) => &name[..name.len() - kind.ending.len()],
            None => name,
        };
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
        let csv = Kind::of(&path("a.csv")).unwrap();
        assert_eq!((csv.form, csv.ending.as_str()), (Form::Csv, ".csv"));
        assert_eq!(Kind::of(dir.path()).unwrap(), csv);
        let packed = Kind::of_name(&path("b.2026.jsonl.gz")).unwrap();
        assert_eq!(packed.ending, ".jsonl.gz");
        assert_eq!(packed.compression, FileCompressionType::GZIP);
        assert_eq!(Kind::of_name(&path("b.parquet.gz")), None);
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
