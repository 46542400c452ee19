//! The handler on synthetic frames.
