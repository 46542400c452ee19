//! Completely fair locking for programs that cannot be changed.
