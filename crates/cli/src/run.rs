//! `giveway run`: a command in a tier, as `nice` would start it.
//!
//! ```text
//! giveway                                  command
//! make leaf, set weights, open its entrance
//! block signals, fork ────────────────────► enter the leaf, take the I/O class,
//!                                           unblock, exec
//! wait; pass signals on ◄──── SIGCHLD ───── exit or signal
//! remove leaf, exit as the command did
//! ```
//!
//! The command enters its cgroup before it executes, so none of its work, and
//! no child of it, ever runs outside the tier. See `cgroup` for the tree, and `disk`
//! for what the tier counts at the disk.

mod child;

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use giveway_machine::sched_ext::{SchedExt, State};
use giveway_tier::{Tier, Weight};

use crate::cgroup::{Caller, Hierarchy, Leaf};
use crate::disk::Class;
use crate::service::UFS;
use crate::tier;
use giveway_command::Failure;

/// The status of a run that failed before its command could.
const OWN_FAILURE: u8 = 125;

/// Run a command in a tier
///
/// The command runs in a cgroup of its own, and everything it starts stays in
/// it. Under UFS, background work runs only where no time-sensitive work wants
/// to. Without UFS, Linux's own scheduler approximates this: the tiers weigh
/// 10000 to 1, which still costs time-sensitive work much of its speed.
///
/// Background work gives way at the disk, too, where the disk's scheduler knows
/// priorities or weights; 'giveway doctor' says where.
///
/// Root may use any tier; other users need a cgroup delegated to them, as in
/// 'systemd-run --user --scope -p Delegate=yes giveway run ...'.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: the command's, or 128 + N if signal N ended it; 2 wrong usage, \
                  125 if giveway failed, 126 if the command cannot be executed, 127 if it is \
                  not found."
)]
pub(crate) struct RunArgs {
    /// time_sensitive (somebody waits for it) or background (nobody does)
    #[arg(long, short, default_value_t = Tier::Background)]
    tier: Tier,
    /// Share of the tier's CPU time, 1 to 10000 [default: 100]
    ///
    /// Twice the weight is twice the time while CPUs are contended. It is the share of
    /// the tier's I/O, too, on disks that heed weights.
    #[arg(long, short)]
    weight: Option<Weight>,
    /// Do not mention that UFS is not loaded
    #[arg(long, short)]
    quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command; answers with its status.
pub(crate) fn run(args: &RunArgs) -> Result<u8, Failure> {
    prepare(args)
        .map_err(|failure| failure.with_status(OWN_FAILURE))
        .and_then(|(leaf, class)| {
            let status = child::supervise(&args.command, leaf.entrance()?, class)?;
            let dir = leaf.dir().display().to_string();
            let left = leaf.remove();
            if left > 0 && !args.quiet {
                eprintln!("giveway: note: {left} tasks of the command still run in {dir}");
            }
            Ok(status)
        })
}

/// The cgroup of the run, and the I/O class that its command is given.
fn prepare(args: &RunArgs) -> Result<(Leaf, Option<Class>), Failure> {
    let hierarchy = Hierarchy::with_cpu()?;
    let caller = Caller::this()?;
    let kernel = SchedExt::under(Path::new("/"));
    let rule = match args.quiet {
        true => tier::rule(&kernel).unwrap_or_default(),
        false => tier::rule_or_default(&kernel),
    };
    let own = caller.tier(&hierarchy, &rule);
    permit(args.tier, own, caller.is_root)?;
    if !args.quiet {
        note(&kernel.state());
    }
    let leaf = hierarchy.leaf(args.tier, args.weight, &caller, &rule)?;
    Ok((leaf, Class::of_run(args.tier, own, Class::is_idle())))
}

/// Any user may lower a tier; only root may raise it.
fn permit(wanted: Tier, own: Tier, is_root: bool) -> Result<(), Failure> {
    if is_root || wanted <= own {
        return Ok(());
    }
    Err(Failure::new(format_args!(
        "this shell runs in the {own} tier, and only root may raise work to {wanted}"
    ))
    .with_remedy("use sudo"))
}

/// Says once what the tier is worth when UFS is not there to enforce it.
fn note(state: &State) {
    let remedy = match state {
        state if state.is(UFS) => return,
        State::Unsupported => "this kernel has no sched_ext; see 'giveway doctor'",
        _ => "load it with 'giveway start'",
    };
    eprintln!(
        "giveway: note: UFS is not loaded, so the kernel only approximates the tiers; {remedy}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_a_tier_takes_root() {
        let (high, low) = (Tier::TimeSensitive, Tier::Background);
        assert!(permit(low, high, false).is_ok());
        assert!(permit(low, low, false).is_ok());
        assert!(permit(high, low, true).is_ok());
        let failure = permit(high, low, false).unwrap_err().to_string();
        assert!(failure.contains("only root") && failure.contains("remedy"));
    }
}
