//! Completely fair locking: locks that share hold time by weight.
