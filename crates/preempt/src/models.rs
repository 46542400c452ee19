//! The real protocols under loom: every interleaving of two or three threads, with
//! weak memory.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p giveway-preempt --lib models
//! ```
//!
//! What each model is there to find is listed, with the weakened code that it
//! was seen to find, in `docs/build/preempt.md`. Time does not pass in a model: idle
//! workers have no patience. A model with many steps is explored up to three
//! preemptions, or as many as LOOM_MAX_PREEMPTIONS says.

mod mail;
mod pool;

/// Explores up to three preemptions, or as many as LOOM_MAX_PREEMPTIONS says.
fn bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut long = loom::model::Builder::new();
    long.preemption_bound = long.preemption_bound.or(Some(3));
    long.check(model);
}
