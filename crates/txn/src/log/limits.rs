//! What the format allows; errors name it.

/// The version this program writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 3;
/// The longest body of a transaction, bytes. A quarter of what a batch's length
/// can say, so that a batch that takes one more record has room for it.
pub(crate) const RECORD_MAX: usize = 1 << 30;
