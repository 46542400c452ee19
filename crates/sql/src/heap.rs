//! What becomes of memory that queries have given back.
//!
//! A query's batches and tables live for milliseconds. The C library gives large ones
//! back to the kernel, and the kernel clears their pages when the next query wants
//! them: of queries that come beside others that is a tenth of all CPU time, and a
//! third on a virtual machine whose pages a hypervisor has to find first. An engine
//! that has a limit on memory may as well keep what it has had.

/// Makes this process keep memory that it has freed, for its next allocations, instead
/// of giving it back to the kernel. For whoever runs queries all day and has the
/// process to himself; it holds for all threads from now on, whatever they allocate,
/// and cannot be taken back.
///
/// The process then stays as large as it has been at most. Blocks of more than 64 MB
/// that worker threads allocate still go back. Does nothing where the C library is not
/// glibc.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        // Room at the end of a heap, bytes; as large as a thread's heap can be, so that
        // an empty one stays.
        const TOP_PAD: i32 = 64 << 20;
        let settings = [
            // No block has a mapping of its own, which ends with it.
            (libc::M_MMAP_MAX, 0),
            (libc::M_TOP_PAD, TOP_PAD),
            // The end of a heap is never given back.
            (libc::M_TRIM_THRESHOLD, -1),
        ];
        for (parameter, value) in settings {
            // SAFETY: mallopt takes the heap's lock and any value; one that it does not
            // like it leaves out.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}
