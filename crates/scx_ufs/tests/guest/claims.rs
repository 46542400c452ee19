//! Claims that share a machine, each a test of its name.
//!
//! The first test of a module boots the module's machine; the others wait, and read
//! their own answer from what it printed. It is asked for the claims that this run was
//! asked for, so that one of them can be tried alone:
//!
//! ```text
//! cargo test -p scx_ufs --test faults -- clock_jumps
//! ```
//!
//! Claims that take UFS with the same options stand together: it is loaded once for them.

use std::sync::OnceLock;

use giveway_lab::{Clock, LabSpec, Machine};

use crate::guest;

/// A machine that tries the claims of a module, once.
pub(crate) struct Guest {
    shape: fn() -> Machine,
    /// The module, as its path begins in this target.
    module: &'static str,
    claims: &'static [&'static str],
    env: fn() -> Vec<(&'static str, String)>,
    /// What it printed, or why there is nothing.
    answers: OnceLock<Result<String, String>>,
}

impl Guest {
    pub(crate) const fn new(
        module: &'static str,
        shape: fn() -> Machine,
        env: fn() -> Vec<(&'static str, String)>,
        claims: &'static [&'static str],
    ) -> Guest {
        Guest {
            shape,
            module,
            claims,
            env,
            answers: OnceLock::new(),
        }
    }

    /// # Panics
    /// Unless `claim` holds there.
    pub(crate) fn show(&self, claim: &str) {
        let answers = self.answers.get_or_init(|| {
            let asked = self.asked(std::env::args().skip(1));
            let (shape, env) = ((self.shape)(), (self.env)());
            guest::ask(&LabSpec::default(), shape, guest::PATIENCE, &env, &asked)
        });
        match answers {
            Ok(printed) => guest::shown(claim, printed),
            Err(error) => panic!("{error}"),
        }
    }

    /// The claims that this run of the tests is about: as the names on its command
    /// line are understood there, whole or in part.
    fn asked(&self, mut args: impl Iterator<Item = String>) -> Vec<&'static str> {
        let module = self.module.split_once("::").map_or("", |(_, path)| path);
        let path = |claim: &str| match module {
            "" => claim.to_owned(),
            module => format!("{module}::{claim}"),
        };
        let (mut named, mut skipped, mut exact) = (Vec::new(), Vec::new(), false);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--skip" => skipped.extend(args.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" => {
                    args.next();
                }
                "--exact" => exact = true,
                _ if arg.starts_with('-') => {}
                _ => named.push(arg),
            }
        }
        let is_asked = |claim: &&str| {
            let path = path(claim);
            let is_meant = |name: &String| match exact {
                true => path == *name,
                false => path.contains(name.as_str()),
            };
            (named.is_empty() || named.iter().any(is_meant)) && !skipped.iter().any(is_meant)
        };
        self.claims.iter().copied().filter(is_asked).collect()
    }
}

/// A machine of this shape for the claims of the module, each a test of its name.
macro_rules! claims {
    ($shape:expr; $($claim:ident)*) => {
        claims! { $shape, Vec::new; $($claim)* }
    };
    ($shape:expr, $env:expr; $($claim:ident)*) => {
        static GUEST: $crate::claims::Guest = $crate::claims::Guest::new(
            module_path!(),
            $shape,
            $env,
            &[$(stringify!($claim)),*],
        );
        $(
            #[test]
            fn $claim() {
                GUEST.show(stringify!($claim));
            }
        )*
    };
}

/// So many CPUs, a quarter as fast as others: for claims about shares and about seconds,
/// since the emulator pays for instructions, not for time. It is harder for UFS to be in
/// time on them.
pub(crate) fn slow_cpus(count: u32) -> Machine {
    Machine {
        clock: Clock::Lockstep {
            quantum_ns: 40_000,
            shift: 4,
            causal: false,
            costs: None,
        },
        ..cpus(count)
    }
}

/// So many CPUs, and nothing special.
pub(crate) fn cpus(cpus: u32) -> Machine {
    Machine {
        cpus,
        ..Machine::default()
    }
}
