//! Files as tables, by what they are called.
//!
//! | path | table |
//! | --- | --- |
//! | `x.parquet`, `x.csv`, `x.tsv`, `x.ndjson`, `x.jsonl`, `x.json` | that file |
//! | the same but Parquet, with `.gz`, `.bz2`, `.xz` or `.zst` behind | that file, decompressed as it is read |
//! | a directory | all files in it of the kind of the first one |
//!
//! Paths may be URLs of a store with the interface of S3 (`s3://BUCKET/PREFIX`; `stores`).
//!
//! CSV and TSV files have a header; JSON files have an object on each line. A compressed
//! file is read by one stream, from its beginning, and so is CSV and TSV: whether a newline
//! is inside of quotes is known from what is before it only.

use std::fs;
use std::path::{Path, PathBuf};

use datafusion::common::DataFusionError;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::prelude::{CsvReadOptions, JsonReadOptions, ParquetReadOptions};

use crate::error::SqlError;
use crate::session::Session;
use crate::stores::S3;

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
    /// Look at the store, and at the variables AWS_… .
    #[error("{path}: {source}")]
    Store {
        /// The URL.
        path: PathBuf,
        /// What the store says.
        source: DataFusionError,
    },
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
}

/// A path as it is known: its kind, and what it is called.
struct Place {
    kind: Kind,
    location: String,
}

/// What a path is; of a directory, what is in it.
async fn place(session: &Session, path: &Path) -> Result<Place, FileError> {
    let kind = |kind: Option<Kind>| kind.ok_or_else(|| FileError::Kind(path.to_owned()));
    let location = path.to_string_lossy();
    if location.starts_with(S3) {
        // A prefix is told from an object by its name alone.
        if let Some(kind) = Kind::of_name(path) {
            let location = location.into_owned();
            return Ok(Place { kind, location });
        }
        let within = stored(session, path).await?;
        return Ok(Place {
            kind: kind(within.iter().find_map(|file| Kind::of_name(file)))?,
            location: format!("{}/", location.trim_end_matches('/')),
        });
    }
    Ok(Place {
        kind: kind_here(path)?,
        location: location.into_owned(),
    })
}

/// What a path of this machine is.
fn kind_here(path: &Path) -> Result<Kind, FileError> {
    let attributes = fs::metadata(path).map_err(|_| FileError::Missing(path.to_owned()))?;
    let kind = match attributes.is_dir() {
        true => sorted(path).iter().find_map(|file| Kind::of_name(file)),
        false => Kind::of_name(path),
    };
    kind.ok_or_else(|| FileError::Kind(path.to_owned()))
}

/// What is directly below a URL, in the order of names.
async fn stored(session: &Session, path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let failed = |source| FileError::Store {
        path: path.to_owned(),
        source,
    };
    let url = format!("{}/", path.to_string_lossy().trim_end_matches('/'));
    let url = ListingTableUrl::parse(&url).map_err(failed)?;
    let environment = session.context().runtime_env();
    let store = environment.object_store(&url).map_err(failed)?;
    let listed = (store.list_with_delimiter(Some(url.prefix())).await)
        .map_err(|error| failed(DataFusionError::ObjectStore(Box::new(error))))?;
    let objects = listed.objects.into_iter().map(|object| object.location);
    let names = objects.chain(listed.common_prefixes);
    let root = url.object_store().as_str().to_owned();
    let mut paths: Vec<_> = names
        .map(|name| PathBuf::from(format!("{root}{name}")))
        .collect();
    paths.sort();
    match paths.is_empty() {
        true => Err(FileError::Missing(path.to_owned())),
        false => Ok(paths),
    }
}

/// Names a file, or a directory of files, as a table.
pub async fn register(session: &Session, name: &str, path: &Path) -> Result<(), FileError> {
    let Place { kind, location } = place(session, path).await?;
    let csv = |delimiter| {
        CsvReadOptions::new()
            .delimiter(delimiter)
            .newlines_in_values(true)
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
    let paths = match dir.to_string_lossy().starts_with(S3) {
        true => stored(session, dir).await?,
        false if dir.is_dir() => sorted(dir),
        false => return Err(FileError::Missing(dir.to_owned())),
    };
    let mut found = Found::default();
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if name.starts_with('.') || matches!(place(session, &path).await, Err(FileError::Kind(_))) {
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
        let csv = kind_here(&path("a.csv")).unwrap();
        assert_eq!((csv.form, csv.ending.as_str()), (Form::Csv, ".csv"));
        assert_eq!(kind_here(dir.path()).unwrap(), csv);
        let packed = Kind::of_name(&path("b.2026.jsonl.gz")).unwrap();
        assert_eq!(packed.ending, ".jsonl.gz");
        assert_eq!(packed.compression, FileCompressionType::GZIP);
        assert_eq!(Kind::of_name(&path("b.parquet.gz")), None);
        assert!(matches!(
            kind_here(&path("notes.txt")),
            Err(FileError::Kind(_))
        ));
        assert!(matches!(
            kind_here(&path("b.csv")),
            Err(FileError::Missing(_))
        ));
    }
}
