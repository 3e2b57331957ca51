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
//! With `FEATURES_NODES=3` in the environment every scenario has three servers that work together in the place of one
//! ([`server`]), and keeps the same promises. Two tags say which scenarios do not run then. `@one`: it is about one server;
//! the words below its name say why. `@three`: it has three servers anyhow. What is pending runs on one server only. A line at
//! the end counts what was left out.
//!
//! `cargo xtask features` runs this on one server and `cargo xtask features-three` on three. Both make a page of it, and name the
//! program `nats-server` in `NATS_SERVER` for the scenarios of several servers. Alone it is `cargo test -p tidings --test features`, where
//! `-- --name WORD` takes the scenarios with that in their names. `TIDINGS_FEATURES_JSON` names a file for the results.

#![expect(clippy::print_stdout, reason = "a report for whoever runs the features")]

#[path = "features/app.rs"]
mod app;
#[path = "features/backend.rs"]
mod backend;
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
use std::sync::atomic::{AtomicUsize, Ordering};

use cucumber::World as _;
use cucumber::event::ScenarioFinished;
use cucumber::gherkin;

use chromium::Chromium;
use report::{ONE, PENDING, Report, THREE, UNWRITTEN, place};
use server::CLUSTER_SIZE;
use world::World;

/// Scenarios at a time: most of them wait most of the time.
const CONCURRENT_COUNT: usize = 6;
/// Where pictures go, each scenario's into a folder of its own.
const PICTURES_VARIABLE: &str = "TIDINGS_FEATURES_PICTURES";

/// How many servers a scenario has: 1, or 3.
const NODES_VARIABLE: &str = "FEATURES_NODES";

/// How many servers the scenarios of this run have that do not say so themselves.
fn server_count() -> usize {
    match std::env::var(NODES_VARIABLE) {
        Err(_) => 1,
        Ok(count) if count == "1" => 1,
        Ok(count) if count == CLUSTER_SIZE.to_string() => CLUSTER_SIZE,
        Ok(count) => panic!("{NODES_VARIABLE} must be 1 or {CLUSTER_SIZE}, got {count:?}"),
    }
}

/// Whether the scenario or its feature has one of these tags.
fn has_tag(feature: &gherkin::Feature, scenario: &gherkin::Scenario, tags: &[&str]) -> bool {
    feature.tags.iter().chain(&scenario.tags).any(|tag| tags.contains(&tag.as_str()))
}

fn main() -> ExitCode {
    let (server_count, left_out) = (server_count(), Arc::<AtomicUsize>::default());
    let counted = left_out.clone();
    let runs = move |feature: &gherkin::Feature, scenario: &gherkin::Scenario| {
        let runs = server_count == 1 || !has_tag(feature, scenario, &[ONE, THREE, PENDING, UNWRITTEN]);
        counted.fetch_add(usize::from(!runs), Ordering::Relaxed);
        runs
    };
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
                // Also where `--name` takes a scenario that would not run else.
                world.server_count = if has_tag(feature, scenario, &[ONE]) { 1 } else { server_count };
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
            .filter_run(features, move |feature, _, scenario| runs(feature, scenario))
            .await;
        chromium.end().await;
        report
    });
    if server_count > 1 {
        let count = left_out.load(Ordering::Relaxed);
        println!(
            "on {server_count} servers each; {count} scenarios run on one or have their own, see @{ONE} and @{THREE}"
        );
    }
    report.finish()
}
