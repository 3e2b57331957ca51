//! The metrics over all jobs: what a job adds to them is what its report says, once, whatever comes between.

use std::collections::BTreeMap;
use std::time::Duration;

use tidings_push::Outcome;
use tidings_push::apns::Reason;
use tidings_sender::{JobReport, Pool, Sender, SenderConfig};
use tidings_store::NewDevice;
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{AppId, BrakeScope, Event, ExpectAudience, JournalPosition, Locale, Text};
use tokio::time::Instant;

use crate::world::{Automatic, World, config, device, goal, pool, settled, soon, until};

/// Series of one metric by their labels, without zeros, added up over the lives of a server.
fn series(lives: &[&Registry], name: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for registry in lives {
        for line in registry.prometheus().lines() {
            let Some(rest) = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])) else { continue };
            let (labels, value) = rest.rsplit_once(' ').unwrap();
            *sums.entry(labels.to_owned()).or_default() += value.parse::<u64>().unwrap();
        }
    }
    sums.retain(|_, value| *value > 0);
    sums
}

pub(crate) fn sum(lives: &[&Registry], name: &str) -> u64 {
    series(lives, name).values().sum()
}

/// What the reports say of what was handed out, apart by a label.
fn reported(reports: &[JobReport], label: impl Fn(&tidings_sender::JobPart) -> String) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for part in reports.iter().flat_map(|report| &report.by) {
        for (outcome, count) in [("accepted", part.counts.accepted()), ("rejected", part.counts.rejected())] {
            *sums.entry(format!("{{{},outcome=\"{outcome}\"}}", label(part))).or_default() += count;
        }
    }
    sums.retain(|_, value| *value > 0);
    sums
}

/// Whether the metrics of all lives say what the reports of all jobs say.
fn check(lives: &[&Registry], reports: &[JobReport]) {
    let of_reports = |number: fn(&JobReport) -> u64| reports.iter().map(number).sum::<u64>();
    let audience = of_reports(|report| report.audience);
    assert_eq!(sum(lives, "tidings_sender_devices_selected_total"), audience);
    assert_eq!(sum(lives, "tidings_sender_outcomes_total"), audience);
    assert_eq!(sum(lives, "tidings_sender_attempts_repeated_total"), of_reports(|report| report.retried));
    let by_app = reported(reports, |part| format!("app=\"{}\"", part.app));
    assert_eq!(series(lives, "tidings_sender_app_outcomes_total"), by_app);
    let by_locale = reported(reports, |part| match part.locale.as_ref().map(Locale::as_str) {
        None => "locale=\"source\"".to_owned(),
        Some("pl") => "locale=\"pl\"".to_owned(),
        Some(_) => "locale=\"other\"".to_owned(),
    });
    assert_eq!(series(lives, "tidings_sender_locale_outcomes_total"), by_locale);
}

async fn done(sender: &Sender, position: JournalPosition) -> JobReport {
    until("the job is over", || sender.job(position).is_some_and(|job| job.done_at.is_some())).await;
    sender.job(position).unwrap()
}

/// Of the apps `one` and `two` in turn; English, Polish and Swedish.
fn mixed(index: usize) -> NewDevice {
    let (app, locale) = (["one", "two"][index % 2], ["en", "pl", "sv"][index / 2 % 3]);
    NewDevice { app: AppId::new(app).unwrap(), locale: Locale::new(locale).unwrap(), ..device(index) }
}

fn pools() -> Vec<Pool> {
    vec![pool("one", "one", 10), pool("two", "two", 10)]
}

/// With a text of its own in Swedish, for which there is no catalogue.
fn own_goal(id: &str) -> Event {
    let text = Text { title: "Mål".to_owned(), body: "1 : 0".to_owned() };
    Event { text: BTreeMap::from([(Locale::new("sv").unwrap(), text)]), ..goal(id) }
}

/// Every fifth device is refused; each needed so many repeats.
fn provider(pool: &Pool, sender: &Sender, repeats: u32) -> Automatic {
    Automatic::new(pool, sender, move |taken| {
        let refused = taken.ticket.device.0.is_multiple_of(5);
        let outcome = if refused { Outcome::Rejected(Reason::BadDeviceToken.into()) } else { Outcome::Accepted };
        let mut settled = settled(taken, outcome, None);
        settled.repeats = repeats;
        settled
    })
}

#[tokio::test]
async fn a_job_that_goes_on_after_a_restart_is_counted_once_over_both_lives() {
    let world = World::new();
    world.register((0..90).map(mixed)).await;
    let (first, second) = (Registry::new(), Registry::new());
    let before = pools();
    let sender = world.start_measured(config(), before.clone(), &first);
    let position = world.accept(own_goal("goal")).await;
    let one = provider(&before[0], &sender, 1);
    until("one app is told", || sum(&[&first], "tidings_sender_app_outcomes_total") == 45).await;
    assert!(soon("drained", sender.drain(Instant::now() + Duration::from_millis(20))).await.checkpointed);
    drop((sender, one));

    let world = world.restarted().await;
    let after = pools();
    let sender = world.start_measured(config(), after.clone(), &second);
    let _providers = [provider(&after[0], &sender, 2), provider(&after[1], &sender, 3)];
    let report = done(&sender, position).await;
    assert_eq!((report.audience, report.by.len(), report.retried), (90, 6, 45 + 3 * 45));
    assert_eq!(sum(&[&second], "tidings_sender_devices_selected_total"), 0, "they were selected in the first life");
    check(&[&first, &second], &[report]);
}

/// What was not walked is selected anew in the second life, and nobody counted twice for that.
#[tokio::test]
async fn a_job_that_stops_in_the_middle_of_its_walk_is_counted_once_over_both_lives() {
    const COUNT: usize = 2000;
    let world = World::new();
    world.register((0..COUNT).map(mixed)).await;
    let (first, second) = (Registry::new(), Registry::new());
    let before = pools();
    let slow_walk = SenderConfig { window_device_count: 1, ..config() };
    let sender = world.start_measured(slow_walk, before.clone(), &first);
    let providers = [provider(&before[0], &sender, 1), provider(&before[1], &sender, 0)];
    let position = world.accept(own_goal("goal")).await;
    until("somebody is told", || sum(&[&first], "tidings_sender_app_outcomes_total") > 0).await;
    let drained = soon("drained", sender.drain(Instant::now() + Duration::from_secs(20))).await;
    assert_eq!((drained.checkpointed, drained.devices_in_flight), (true, 0));
    drop((sender, providers));

    let world = world.restarted().await;
    let after = pools();
    let sender = world.start_measured(config(), after.clone(), &second);
    let _providers = [provider(&after[0], &sender, 0), provider(&after[1], &sender, 2)];
    let report = done(&sender, position).await;
    assert_eq!(report.audience, COUNT as u64);
    assert_eq!(sum(&[&second], "tidings_sender_devices_selected_total"), 0, "they were selected in the first life");
    check(&[&first, &second], &[report]);
}

#[tokio::test]
async fn jobs_that_lose_their_place_and_come_back_are_counted_once() {
    let world = World::new();
    world.register((0..30).map(mixed)).await;
    let registry = Registry::new();
    let paused = BrakeScope::App(AppId::new("one").unwrap());
    world.store.pause(paused.clone(), unix_now()).await.unwrap();
    let pools = pools();
    let sender = world.start_measured(SenderConfig { job_count_max: 2, ..config() }, pools.clone(), &registry);
    let _providers = [provider(&pools[0], &sender, 0), provider(&pools[1], &sender, 1)];
    let mut positions = Vec::new();
    for index in 0..10 {
        positions.push(world.accept(own_goal(&format!("goal-{index}"))).await);
    }
    let mut unexpected = own_goal("unexpected");
    unexpected.expect_audience = Some(ExpectAudience { min: None, max: Some(1) });
    positions.push(world.accept(unexpected).await);
    until("some are put aside", || sum(&[&registry], "tidings_sender_jobs_put_aside_total") > 0).await;
    world.store.resume(paused).await.unwrap();
    let mut reports = Vec::new();
    for position in positions {
        reports.push(done(&sender, position).await);
    }
    assert_eq!(reports.iter().map(|report| report.audience).sum::<u64>(), 11 * 30);
    check(&[&registry], &reports);
}
