//! RocksDB on tmpfs, by its C interface, from the shared library of the system.
//!
//! The library is loaded when RocksDB is measured, so that no build compiles it. The log
//! is off, nothing is compressed, files are read where they lie (mmap); Bloom filters of
//! ten bits answer where a row is not, as its documentation recommends for look-ups, and
//! blocks have a hash of their keys.
//!
//! Rows are replaced whole where all of a row is written. A column is changed in an
//! optimistic transaction, which is repeated if another has changed the row.
//!
//! | invariant | |
//! | --- | --- |
//! | R1 | functions have the types of `rocksdb/c.h`, whose interface only grows |
//! | R2 | what a function returns lives until its `_destroy`, `_free` or `_close`, which is called once |
//! | R3 | an error text is NULL before a call, and ours after it if it is not |
//! | R4 | database and options may be used by all threads; transactions, iterators and slices stay with one |

use std::ffi::{CStr, CString, OsStr, c_char, c_double, c_int, c_uchar, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

use libloading::os::unix::{Library, RTLD_NOW};

use super::key_value::{KeyValue, Values};
use super::{Change, Failed, HASH_LOAD, Outcome, Size, Store, WRITE_BUFFER_BYTES, Work};

/// The library's names: Debian 12's, and that of the package for developers.
const NAMES: [&str; 2] = ["librocksdb.so.7.8", "librocksdb.so"];
/// Another file.
const VARIABLE: &str = "GIVEWAY_ROCKSDB";
/// The buffer for writes is allocated in blocks that huge pages fit.
const BUFFER_BLOCK_BYTES: usize = 8 << 20;
const FILTER_BITS: c_double = 10.0;
/// The kind of index in data blocks: binary search and hash.
const HASH_INDEX: c_int = 1;

/// A thing of the library's.
type Thing = *mut c_void;
type Text = *mut c_char;
type Bytes = *const c_char;

/// Declares the functions that are used, all of one library (R1).
macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        #[allow(non_snake_case, reason = "names are the library's")]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
            /// Keeps the functions where they are.
            _library: Library,
        }

        impl Functions {
            fn of(library: Library) -> Result<Self, libloading::Error> {
                Ok(Functions {
                    $(
                        // SAFETY: R1.
                        $name: unsafe {
                            *library.get(concat!("rocksdb_", stringify!($name), "\0").as_bytes())?
                        },
                    )*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    free(Thing);
    options_create() -> Thing;
    options_destroy(Thing);
    options_set_create_if_missing(Thing, c_uchar);
    options_set_compression(Thing, c_int);
    options_set_allow_mmap_reads(Thing, c_uchar);
    options_set_write_buffer_size(Thing, usize);
    options_set_arena_block_size(Thing, usize);
    options_increase_parallelism(Thing, c_int);
    options_set_block_based_table_factory(Thing, Thing);
    block_based_options_create() -> Thing;
    block_based_options_destroy(Thing);
    block_based_options_set_filter_policy(Thing, Thing);
    block_based_options_set_block_cache(Thing, Thing);
    block_based_options_set_data_block_index_type(Thing, c_int);
    block_based_options_set_data_block_hash_ratio(Thing, c_double);
    filterpolicy_create_bloom_full(c_double) -> Thing;
    cache_create_lru(usize) -> Thing;
    cache_destroy(Thing);
    optimistictransactiondb_open(Thing, Bytes, *mut Text) -> Thing;
    optimistictransactiondb_close(Thing);
    optimistictransactiondb_get_base_db(Thing) -> Thing;
    optimistictransactiondb_close_base_db(Thing);
    optimistictransaction_options_create() -> Thing;
    optimistictransaction_options_destroy(Thing);
    optimistictransaction_begin(Thing, Thing, Thing, Thing) -> Thing;
    transaction_destroy(Thing);
    transaction_get_pinned_for_update(Thing, Thing, Bytes, usize, c_uchar, *mut Text) -> Thing;
    transaction_put(Thing, Bytes, usize, Bytes, usize, *mut Text);
    transaction_commit(Thing, *mut Text);
    writeoptions_create() -> Thing;
    writeoptions_destroy(Thing);
    writeoptions_disable_WAL(Thing, c_int);
    readoptions_create() -> Thing;
    readoptions_destroy(Thing);
    readoptions_set_verify_checksums(Thing, c_uchar);
    flushoptions_create() -> Thing;
    flushoptions_destroy(Thing);
    flush(Thing, Thing, *mut Text);
    compact_range(Thing, Bytes, usize, Bytes, usize);
    put(Thing, Thing, Bytes, usize, Bytes, usize, *mut Text);
    get_pinned(Thing, Thing, Bytes, usize, *mut Text) -> Thing;
    pinnableslice_value(Thing, *mut usize) -> Bytes;
    pinnableslice_destroy(Thing);
    create_iterator(Thing, Thing) -> Thing;
    iter_destroy(Thing);
    iter_seek(Thing, Bytes, usize);
    iter_valid(Thing) -> c_uchar;
    iter_next(Thing);
    iter_value(Thing, *mut usize) -> Bytes;
    iter_get_error(Thing, *mut Text);
}

fn load() -> Result<Functions, String> {
    let named = std::env::var_os(VARIABLE);
    let names: Vec<&OsStr> = match &named {
        Some(named) => vec![named],
        None => NAMES.iter().map(OsStr::new).collect(),
    };
    let mut reason = String::new();
    for name in names {
        // SAFETY: its constructors are RocksDB's; the user installed or named it.
        let loaded = unsafe { Library::open(Some(name), RTLD_NOW) };
        match loaded.and_then(Functions::of) {
            Ok(functions) => return Ok(functions),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

/// Why there is no RocksDB, if there is none.
pub(super) fn absent() -> Option<String> {
    load().err()
}

/// The version, by the name of the library's file; its interface does not say.
pub(super) fn version() -> String {
    let file = load().ok().and_then(|functions| {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: a look-up of an address that is a function's; the name that it finds is
        // the loader's, which the functions keep loaded.
        let path = unsafe {
            libc::dladdr(functions.free as *const c_void, found.as_mut_ptr());
            let name = found.assume_init().dli_fname;
            (!name.is_null()).then(|| CStr::from_ptr(name).to_owned())
        };
        let path = std::fs::canonicalize(path?.to_str().ok()?).ok()?;
        Some(path.file_name()?.to_str()?.to_owned())
    });
    let version = file.as_deref().and_then(|file| file.split_once(".so."));
    version.map_or("unknown", |(_, version)| version).to_owned()
}

/// A database, and the options that operations are given.
pub(super) struct Rocksdb {
    call: Functions,
    optimistic: Thing,
    base: Thing,
    writing: Thing,
    reading: Thing,
    transacting: Thing,
}

// SAFETY: R4.
unsafe impl Send for Rocksdb {}
// SAFETY: R4.
unsafe impl Sync for Rocksdb {}

impl Rocksdb {
    pub(super) fn new(size: Size, dir: &Path) -> Outcome<Self> {
        let call = load()?;
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        // SAFETY: R1, R2; the database keeps its own copy of options, cache and factory.
        unsafe {
            let table = (call.block_based_options_create)();
            let filter = (call.filterpolicy_create_bloom_full)(FILTER_BITS);
            (call.block_based_options_set_filter_policy)(table, filter);
            let cache = (call.cache_create_lru)(size.memory_bytes());
            (call.block_based_options_set_block_cache)(table, cache);
            (call.block_based_options_set_data_block_index_type)(table, HASH_INDEX);
            (call.block_based_options_set_data_block_hash_ratio)(table, HASH_LOAD);
            let options = (call.options_create)();
            (call.options_set_create_if_missing)(options, 1);
            (call.options_set_compression)(options, 0);
            (call.options_set_allow_mmap_reads)(options, 1);
            (call.options_set_write_buffer_size)(options, WRITE_BUFFER_BYTES);
            (call.options_set_arena_block_size)(options, BUFFER_BLOCK_BYTES);
            (call.options_increase_parallelism)(options, cpus as c_int);
            (call.options_set_block_based_table_factory)(options, table);
            let mut error = ptr::null_mut();
            let optimistic =
                (call.optimistictransactiondb_open)(options, path.as_ptr(), &raw mut error);
            (call.options_destroy)(options);
            (call.block_based_options_destroy)(table);
            (call.cache_destroy)(cache);
            checked(&call, error)?;
            let writing = (call.writeoptions_create)();
            (call.writeoptions_disable_WAL)(writing, 1);
            let reading = (call.readoptions_create)();
            (call.readoptions_set_verify_checksums)(reading, 0);
            Ok(Rocksdb {
                base: (call.optimistictransactiondb_get_base_db)(optimistic),
                transacting: (call.optimistictransaction_options_create)(),
                optimistic,
                writing,
                reading,
                call,
            })
        }
    }
}

fn is_conflict(reason: &str) -> bool {
    ["Resource busy", "Operation failed. Try again"]
        .iter()
        .any(|known| reason.starts_with(known))
}

/// Frees what it holds by the function that does so.
struct Ended(unsafe extern "C" fn(Thing), Thing);

impl Drop for Ended {
    fn drop(&mut self) {
        // SAFETY: R2; whoever made this chose the function.
        unsafe { (self.0)(self.1) }
    }
}

/// A row where RocksDB has it.
struct Pinned<'f> {
    call: &'f Functions,
    slice: Thing,
}

impl Functions {
    /// The row that a look-up answers with.
    ///
    /// # Safety
    /// The slice is a look-up's, or NULL (R2).
    unsafe fn pinned(&self, slice: Thing) -> Outcome<Pinned<'_>> {
        match slice.is_null() {
            true => Err(Failed::missing()),
            false => Ok(Pinned { call: self, slice }),
        }
    }
}

impl Pinned<'_> {
    fn bytes(&self) -> &[u8] {
        let mut bytes = 0;
        // SAFETY: R1, R2; the slice lives as long as this.
        unsafe {
            let start = (self.call.pinnableslice_value)(self.slice, &raw mut bytes);
            std::slice::from_raw_parts(start.cast(), bytes)
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // SAFETY: R2.
        unsafe { (self.call.pinnableslice_destroy)(self.slice) }
    }
}

/// The error of a call, if it has one.
///
/// # Safety
/// The text comes from the call before (R3).
unsafe fn checked(call: &Functions, error: Text) -> Outcome<()> {
    if error.is_null() {
        return Ok(());
    }
    let _freed = Ended(call.free, error.cast());
    // SAFETY: R3.
    let text = unsafe { CStr::from_ptr(error) };
    Err(Failed(text.to_string_lossy().into_owned()))
}

impl Drop for Rocksdb {
    fn drop(&mut self) {
        // SAFETY: R2; no session is left, since they borrow the database.
        unsafe {
            (self.call.readoptions_destroy)(self.reading);
            (self.call.writeoptions_destroy)(self.writing);
            (self.call.optimistictransaction_options_destroy)(self.transacting);
            (self.call.optimistictransactiondb_close_base_db)(self.base);
            (self.call.optimistictransactiondb_close)(self.optimistic);
        }
    }
}

impl Store for Rocksdb {
    fn with_session(&self, work: Work<'_>) -> Outcome<()> {
        work(&mut Values::of(Client {
            database: self,
            transaction: ptr::null_mut(),
        }))
    }

    fn settle(&self) -> Outcome<()> {
        let call = &self.call;
        let mut error = ptr::null_mut();
        // SAFETY: R1 to R4; keys that are NULL are the ends of the table.
        unsafe {
            let waiting = Ended(call.flushoptions_destroy, (call.flushoptions_create)());
            (call.flush)(self.base, waiting.1, &raw mut error);
            checked(call, error)?;
            (call.compact_range)(self.base, ptr::null(), 0, ptr::null(), 0);
        }
        Ok(())
    }
}

/// A thread with its transaction, which each change of a column begins again.
struct Client<'d> {
    database: &'d Rocksdb,
    /// NULL before the first.
    transaction: Thing,
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if !self.transaction.is_null() {
            // SAFETY: R2.
            unsafe { (self.database.call.transaction_destroy)(self.transaction) }
        }
    }
}

impl Client<'_> {
    /// One attempt to change a column; whether it is done.
    fn attempt(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        changed: &mut Vec<u8>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Outcome<bool> {
        let Rocksdb {
            call,
            optimistic,
            writing,
            reading,
            transacting,
            ..
        } = self.database;
        let (start, length) = (key.as_ptr().cast(), key.len());
        let mut error = ptr::null_mut();
        // SAFETY: R1 to R4; what the last attempt left in the transaction is dropped as it
        // begins, and the row is copied before the slice ends.
        unsafe {
            self.transaction = (call.optimistictransaction_begin)(
                *optimistic,
                *writing,
                *transacting,
                self.transaction,
            );
            let slice = (call.transaction_get_pinned_for_update)(
                self.transaction,
                *reading,
                start,
                length,
                1,
                &raw mut error,
            );
            checked(call, error)?;
            let row = {
                let slice = call.pinned(slice)?;
                show(slice.bytes());
                change.made_to(slice.bytes(), changed)
            };
            let bytes = row.as_ptr().cast();
            (call.transaction_put)(
                self.transaction,
                start,
                length,
                bytes,
                row.len(),
                &raw mut error,
            );
            checked(call, error)?;
            (call.transaction_commit)(self.transaction, &raw mut error);
            match checked(call, error) {
                Ok(()) => Ok(true),
                // Somebody has written the row since, or may have.
                Err(Failed(reason)) if is_conflict(&reason) => Ok(false),
                Err(failed) => Err(failed),
            }
        }
    }
}

impl KeyValue for Client<'_> {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        let Rocksdb {
            call,
            base,
            writing,
            ..
        } = self.database;
        let mut error = ptr::null_mut();
        // SAFETY: R1, R3, R4.
        unsafe {
            (call.put)(
                *base,
                *writing,
                key.as_ptr().cast(),
                key.len(),
                row.as_ptr().cast(),
                row.len(),
                &raw mut error,
            );
            checked(call, error)
        }
    }

    fn get(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
        let Rocksdb {
            call,
            base,
            reading,
            ..
        } = self.database;
        let (start, length) = (key.as_ptr().cast(), key.len());
        let mut error = ptr::null_mut();
        // SAFETY: R1 to R4; the bytes are copied before the slice ends.
        unsafe {
            let slice = (call.get_pinned)(*base, *reading, start, length, &raw mut error);
            checked(call, error)?;
            row.extend_from_slice(call.pinned(slice)?.bytes());
        }
        Ok(())
    }

    fn change(
        &mut self,
        key: &[u8],
        change: Change<'_>,
        changed: &mut Vec<u8>,
        mut show: impl FnMut(&[u8]),
    ) -> Outcome<()> {
        while !self.attempt(key, change, changed, &mut show)? {}
        Ok(())
    }

    fn range(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize> {
        let Rocksdb {
            call,
            base,
            reading,
            ..
        } = self.database;
        let mut seen = 0;
        // SAFETY: R1 to R4; a value is copied before the iterator goes on.
        unsafe {
            let iterator = (call.create_iterator)(*base, *reading);
            let _ended = Ended(call.iter_destroy, iterator);
            (call.iter_seek)(iterator, from.as_ptr().cast(), from.len());
            while seen < count && (call.iter_valid)(iterator) != 0 {
                let mut bytes = 0;
                let start = (call.iter_value)(iterator, &raw mut bytes);
                rows.extend_from_slice(std::slice::from_raw_parts(start.cast(), bytes));
                (call.iter_next)(iterator);
                seen += 1;
            }
            let mut error = ptr::null_mut();
            (call.iter_get_error)(iterator, &raw mut error);
            checked(call, error)?;
        }
        Ok(seen)
    }
}
