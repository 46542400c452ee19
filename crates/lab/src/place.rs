//! Which directory holds the cache, and what helps if it cannot be written to.

use std::path::{Path, PathBuf};

/// What helps where the cache cannot be written to.
pub const CACHE_REMEDY: &str = "make it writable, or set XDG_CACHE_HOME to a directory of yours";

/// The directory that holds all cached files of Giveway.
pub fn cache_root() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
            Path::new(&home).join(".cache")
        });
    base.join("giveway")
}
