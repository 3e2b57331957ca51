//! libFuzzer's program: the target is the one that the environment variable `TIDINGS_FUZZ_TARGET` names.
//!
//! One program for all of them, so that they are compiled and linked once. `cargo xtask fuzz` builds it with the
//! instrumentation that guides libFuzzer and runs it per target; arguments are libFuzzer's.

#![no_main]
#![expect(clippy::print_stderr, reason = "a program that talks to the terminal")]

use std::sync::LazyLock;

use tidings_fuzz::{TARGETS, Target, target};

const VARIABLE: &str = "TIDINGS_FUZZ_TARGET";

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    std::env::var(VARIABLE).ok().and_then(|name| target(&name)).unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("{VARIABLE} must be one of {}", names.join(", "));
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(init: LazyLock::force(&TARGET), |bytes: &[u8]| TARGET(bytes));
