//! The canary: scenarios whose outcomes are known (`canary.feature`) come out as such, or no outcome is believed.

use std::path::Path;

use cucumber::{World as _, given, then};

use crate::report::Report;
use crate::world::World;

#[given("all is well")]
#[then("all is well")]
async fn well(_: &mut World) {}

#[then("something is wrong")]
async fn wrong(_: &mut World) {
    panic!("as it should be");
}

/// Runs it. Each of its scenarios is named after its outcome.
pub(crate) async fn sing() {
    let feature = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/features/canary.feature");
    let report = World::cucumber().with_writer(Report::silent()).with_default_cli().run(feature).await;
    let outcomes: Vec<(&str, &str)> = report.outcomes().collect();
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
    for (name, state) in outcomes {
        assert_eq!(name.split(',').next(), Some(state), "the scenario called {name:?} came out as {state}");
    }
}
