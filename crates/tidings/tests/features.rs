//! What Tidings promises, in plain words (`features/*.feature`), tried on the real program.
//!
//! Each scenario has everything for itself: a folder, a server process, a simulated provider, phones and apps. A step is
//! a sentence and what it says of these ([`steps`]); how a backend, an app, a phone or a process does it is in one layer
//! of client objects below ([`backend`], [`console`], [`ear`], [`doorman`], [`app`], [`listener`], [`operator`], [`phone`],
//! [`server`]), the only ones that know the wire or the pages. That something does *not* happen is never waited for: the
//! server is asked until it has done all it was told. All scenarios share one Chromium ([`chromium`]), in which each person
//! has cookies of their own.
//!
//! A scenario with the tag `@pending` is not kept yet, one with `@unwritten` has a step that nobody has written. They count
//! as uncovered and fail nobody, unless they pass: then the tag has to go. Below their name they say why they are pending.
//! In any other scenario, a pending one too, a step that nobody has written is a failure. So is a scenario without a Then.
//!
//! `cargo xtask features` runs this and makes a page of it, and names the program `nats-server` in `NATS_SERVER` for the
//! scenarios of several servers; alone it is `cargo test -p tidings --test features`, where
//! `-- --name WORD` takes the scenarios with that in their names. `TIDINGS_FEATURES_JSON` names a file for the results.

#![expect(clippy::print_stdout, reason = "a report for whoever runs the features")]

#[path = "features/app.rs"]
mod app;
#[path = "features/backend.rs"]
mod backend;
#[path = "../../cluster/tests/brokers/mod.rs"]
#[expect(dead_code, reason = "other tests kill them, too")]
mod brokers;
#[path = "features/canary.rs"]
mod canary;
#[path = "features/chromium.rs"]
mod chromium;
#[path = "features/console.rs"]
mod console;
#[path = "features/doorman.rs"]
mod doorman;
#[path = "features/ear.rs"]
mod ear;
#[path = "features/event.rs"]
mod event;
#[path = "features/listener.rs"]
mod listener;
#[path = "features/operator.rs"]
mod operator;
#[path = "features/phone.rs"]
mod phone;
#[path = "features/provider.rs"]
mod provider;
#[path = "features/report.rs"]
mod report;
#[path = "../../protocol/tests/it/schema.rs"]
mod schema;
#[path = "features/server.rs"]
mod server;
#[path = "features/steps.rs"]
mod steps;
#[path = "features/wait.rs"]
mod wait;
#[path = "features/world.rs"]
mod world;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use cucumber::World as _;
use cucumber::event::ScenarioFinished;

use chromium::Chromium;
use report::{Report, place};
use world::World;

/// Scenarios at a time: most of them wait most of the time.
const CONCURRENT_COUNT: usize = 6;
/// Where pictures go, each scenario's into a folder of its own.
const PICTURES_VARIABLE: &str = "TIDINGS_FEATURES_PICTURES";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let features = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../features");
    let report = runtime.expect("the system has threads").block_on(async {
        canary::sing().await;
        let chromium = Arc::new(Chromium::default());
        let lent = chromium.clone();
        let report = World::cucumber()
            .with_writer(Report::default())
            .max_concurrent_scenarios(CONCURRENT_COUNT)
            .before(move |feature, _, scenario, world| {
                world.screens.lend(lent.clone());
                if let Some(pictures) = std::env::var_os(PICTURES_VARIABLE) {
                    world.keep_pictures_in(Path::new(&pictures).join(place(feature, scenario)));
                }
                Box::pin(async {})
            })
            .after(|_, _, _, finished, world| {
                Box::pin(async move {
                    let Some(world) = world else { return };
                    if let ScenarioFinished::StepFailed(..) = finished {
                        world.attach_screens().await;
                    }
                    world.screens.close().await;
                    if let ScenarioFinished::StepPassed = finished {
                        world.check();
                    }
                })
            })
            .run(features)
            .await;
        chromium.end().await;
        report
    });
    report.finish()
}
