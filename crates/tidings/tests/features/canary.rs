//! The canary: scenarios whose outcomes are known (`canary.feature`) come out as such, or no outcome is believed.

use std::path::Path;

use cucumber::{World as _, given, then};

use crate::report::{Report, place};
use crate::world::World;

const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n";

#[given("all is well")]
#[then("all is well")]
async fn well(_: &mut World) {}

#[then("something is wrong")]
async fn wrong(_: &mut World) {
    panic!("as it should be");
}

/// As a page that somebody looks at: its picture is taken whatever comes.
#[given("a screen")]
async fn screen(world: &mut World) {
    world.attach(PICTURE);
}

/// Runs it. Each of its scenarios is named after its outcome.
pub(crate) async fn sing() {
    let feature = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/features/canary.feature");
    let folder = tempfile::tempdir().expect("the system has a folder for temporary files");
    let pictures = folder.path().to_owned();
    let features = World::cucumber().with_writer(Report::silent()).with_default_cli();
    let report = features.before(move |feature, _, scenario, world| {
        world.keep_pictures_in(pictures.join(place(feature, scenario)));
        Box::pin(async {})
    });
    let report = report.run(feature).await;
    let outcomes: Vec<(&str, &str)> = report.outcomes().collect();
    assert_eq!(outcomes.len(), 14, "{outcomes:?}");
    for (name, state) in outcomes {
        assert_eq!(name.split(',').next(), Some(state), "the scenario called {name:?} came out as {state}");
    }
    let picture = std::fs::read(folder.path().join("canary.feature-11/1.png"));
    assert_eq!(picture.expect("the page finds it by the place of its scenario"), PICTURE);
}
