//! What an operator holds, cancels, or wants to know before it happens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidings_push::{JobStanding, Outcome, Standing};
use tidings_sender::{DeviceOutcome, JobReport, Sender, Suppression, Tenure};
use tidings_store::{NewDevice, NewEvent};
use tidings_telemetry::unix_now;
use tidings_types::{
    AppId, BrakeScope, Country, ExpectAudience, Filter, JobState, JournalPosition, Provider, TopicName,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::world::{Automatic, Gateway, World, addressee, config, device, goal, lake, pool, quiet_goal, soon, until};

async fn done(sender: &Sender, position: JournalPosition) -> JobReport {
    until("the job is over", || sender.job(position).is_some_and(|job| job.done_at.is_some())).await;
    sender.job(position).unwrap()
}

fn state(sender: &Sender, position: JournalPosition) -> Option<JobState> {
    sender.job(position).map(|job| job.state)
}

#[tokio::test]
async fn what_is_paused_hands_out_nothing_until_it_is_resumed_and_the_rest_goes_on() {
    let scopes = [
        BrakeScope::Everything,
        BrakeScope::Topic(TopicName::new("goal").unwrap()),
        BrakeScope::Provider(Provider::Apns),
        BrakeScope::App(AppId::new("app").unwrap()),
    ];
    let world = World::new();
    let app = |index: usize| AppId::new(["app", "other"][index % 2]).unwrap();
    let devices = (0..40).map(|index| NewDevice { app: app(index), ..device(index) });
    world.register(devices).await;
    let mut pool = pool("main", "app", 100);
    pool.apps.push(app(1));
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    for (index, scope) in scopes.into_iter().enumerate() {
        // Both apps are of the same pool: only the app's own brake lets the other's devices through.
        let through = if matches!(scope, BrakeScope::App(_)) { 20 } else { 0 };
        let before = provider.taken().len();
        world.store.pause(scope.clone(), unix_now()).await.unwrap();
        let position = world.accept(goal(&format!("goal-{index}"))).await;
        until("it is paused", || state(&sender, position) == Some(JobState::Paused)).await;
        until("others are not", || sender.job(position).unwrap().counts.accepted() == through).await;
        assert_eq!(sender.job(position).unwrap().paused_by, Some(scope.clone()));
        assert_eq!((provider.taken().len() - before) as u64, through);
        world.store.resume(scope).await.unwrap();
        let report = done(&sender, position).await;
        assert_eq!((report.state, report.paused_by, report.counts.accepted()), (JobState::Finished, None, 40));
    }
    assert!(provider.taken().iter().all(|taken| taken.ticket.job.0 <= 4));
}

/// Of several servers only one may push, and only for a while.
#[tokio::test]
async fn a_process_whose_time_is_over_hands_out_nothing_until_it_may_again() {
    let world = World::new();
    world.register((0..40).map(device)).await;
    let pool = pool("main", "app", 100);
    let (until_tx, until_rx) = watch::channel(Duration::from_secs(1));
    let tenure = Tenure { until: until_rx, clock: || Duration::from_secs(1) };
    let sender = world.start(tidings_sender::SenderConfig { tenure: Some(tenure), ..config() }, vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let position = world.accept(goal("goal")).await;
    until("it is held", || state(&sender, position) == Some(JobState::Paused)).await;
    assert_eq!((sender.job(position).unwrap().paused_by, provider.taken().len()), (Some(BrakeScope::Everything), 0));
    until_tx.send_replace(Duration::from_secs(2));
    assert_eq!(done(&sender, position).await.counts.accepted(), 40);
}

#[tokio::test]
async fn a_time_that_ends_while_a_lane_waits_for_room_holds_the_rest() {
    static NOW_MILLIS: AtomicU64 = AtomicU64::new(0);
    let world = World::new();
    world.register((0..100).map(device)).await;
    let pool = pool("main", "app", 10);
    let (until_tx, until_rx) = watch::channel(Duration::from_millis(50));
    let tenure = Tenure { until: until_rx, clock: || Duration::from_millis(NOW_MILLIS.load(Ordering::Relaxed)) };
    let sender = world.start(tidings_sender::SenderConfig { tenure: Some(tenure), ..config() }, vec![pool.clone()]);
    let position = world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&pool, &sender);
    until("the lake is full", || lake(&pool).counters().held == 10).await;
    NOW_MILLIS.store(50, Ordering::Relaxed);
    until("what is not in the lake is back", || sender.backlog().devices_in_flight == 10).await;
    until_tx.send_replace(Duration::from_secs(60));
    provider.accept(100).await;
    assert_eq!(done(&sender, position).await.counts.accepted(), 100);
}

/// What is in the lake goes; what waits for room in it does not.
#[tokio::test]
async fn a_brake_that_comes_while_a_lane_waits_for_room_holds_the_rest() {
    let world = World::new();
    world.register((0..100).map(device)).await;
    let pool = pool("main", "app", 10);
    let sender = world.start(config(), vec![pool.clone()]);
    let position = world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&pool, &sender);
    until("the lake is full", || lake(&pool).counters().held == 10).await;
    world.store.pause(BrakeScope::Everything, unix_now()).await.unwrap();
    until("what is not in the lake is back", || sender.backlog().devices_in_flight == 10).await;
    provider.take(10).await;
    provider.answer(10, Outcome::Accepted);
    let job = sender.job(position).unwrap();
    assert_eq!((job.state, job.counts.total(), lake(&pool).counters().held), (JobState::Paused, 10, 0));
    world.store.resume(BrakeScope::Everything).await.unwrap();
    provider.accept(90).await;
    assert_eq!(done(&sender, position).await.counts.accepted(), 100);
}

#[tokio::test]
async fn a_paused_event_expires_and_receipts_count_and_a_restart_changes_nothing() {
    let world = World::new();
    world.register((0..20).map(device)).await;
    world.connect(0..5);
    world.store.pause(BrakeScope::Everything, unix_now()).await.unwrap();
    let pool = pool("main", "app", 100);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut short = goal("short");
    short.ttl = Duration::from_secs(1);
    let short = world.accept(short).await;
    let received = world.accept_ahead(quiet_goal("received", Duration::from_secs(20))).await;
    let report = done(&sender, short).await;
    assert_eq!((report.counts.expired(), lake(&pool).counters().accepted), (20, 0));
    world.receive(received, 0..5);
    until("receipts count", || sender.job(received).is_some_and(|job| job.counts.received() == 5)).await;
    soon("drained", sender.drain(Instant::now() + Duration::from_secs(10))).await;
    drop(sender);
    let world = world.restarted().await;
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    until("it waits again", || state(&sender, received) == Some(JobState::Paused)).await;
    assert_eq!(provider.taken().len(), 0);
    world.store.resume(BrakeScope::Everything).await.unwrap();
    let counts = done(&sender, received).await.counts;
    assert_eq!((counts.received(), counts.accepted()), (5, 15));
}

#[tokio::test]
async fn a_cancelled_job_ends_at_once_but_for_what_is_on_its_way() {
    let world = World::new();
    world.register((0..100).map(device)).await;
    let pool = pool("main", "app", 10);
    let sender = world.start(config(), vec![pool.clone()]);
    let position = world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(7).await;
    until("the lake is full", || lake(&pool).counters().held == 10).await;
    let sink = sender.sink();
    assert_eq!((sink.job_standing(position), sink.standing(provider.held[0].ticket)), (JobStanding::Go, Standing::Go));
    world.store.cancel(position).await.unwrap();
    until("what is not in the lake is counted", || sender.job(position).unwrap().counts.total() == 83).await;
    let job = sender.job(position).unwrap();
    assert_eq!((job.state, job.done_at, job.counts.of(DeviceOutcome::Cancelled)), (JobState::Cancelled, None, 83));
    assert_eq!(sink.job_standing(position), JobStanding::Cancelled);
    assert_eq!(sink.standing(provider.held[0].ticket), Standing::Cancelled);
    provider.answer(7, Outcome::Accepted);
    provider.take(10).await;
    provider.answer(10, Outcome::Cancelled);
    let report = done(&sender, position).await;
    assert_eq!((report.state, report.counts.accepted()), (JobState::Cancelled, 7));
    assert_eq!(report.counts.of(DeviceOutcome::Cancelled), 93);
    // And it stays so.
    soon("drained", sender.drain(Instant::now() + Duration::from_secs(10))).await;
    drop((sender, provider));
    let world = world.restarted().await;
    let sender = world.start(config(), vec![pool]);
    assert_eq!(sender.job(position), Some(report));
}

/// One runs, one waits for its turn, one has not begun: all three are cancelled while the sender is down.
#[tokio::test]
async fn what_is_cancelled_is_not_sent_after_a_restart_either() {
    let world = World::new();
    world.register((0..30).map(device)).await;
    let lake_of_ten = pool("main", "app", 10);
    let one = || tidings_sender::SenderConfig { job_count_max: 1, ..config() };
    let sender = world.start(tidings_sender::SenderConfig { job_count_max: 2, ..config() }, vec![lake_of_ten.clone()]);
    let mut positions = Vec::new();
    for name in ["first", "second", "third"] {
        positions.push(world.accept(goal(name)).await);
    }
    until("two run", || sender.backlog().jobs_running == 2).await;
    soon("drained", sender.drain(Instant::now())).await;
    drop(sender);
    for &position in &positions {
        assert!(world.store.cancel(position).await.unwrap());
    }
    let world = world.restarted().await;
    let lake_of_ten = pool("main", "app", 10);
    let sender = world.start(one(), vec![lake_of_ten.clone()]);
    for &position in &positions {
        let report = done(&sender, position).await;
        assert_eq!((report.state, report.counts.of(DeviceOutcome::Cancelled)), (JobState::Cancelled, 30));
    }
    assert_eq!(lake(&lake_of_ten).counters().accepted, 0);
}

#[tokio::test]
async fn an_audience_of_another_size_than_expected_is_not_told() {
    let world = World::new();
    world.register((0..20).map(device)).await;
    let pool = pool("main", "app", 100);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let accept = async |name: &str, min, max, audience_max| {
        let mut event = goal(name);
        event.expect_audience = Some(ExpectAudience { min, max });
        let event = NewEvent { event, channels: Vec::new(), audience_max };
        world.store.append_events(vec![event], unix_now()).await.unwrap()[0].position().unwrap()
    };
    for (index, (min, max, audience_max)) in
        [(Some(21), None, None), (None, Some(19), None), (None, None, Some(19)), (Some(1), Some(30), Some(3))]
            .into_iter()
            .enumerate()
    {
        let position = accept(&format!("no-{index}"), min, max, audience_max).await;
        let report = done(&sender, position).await;
        let unexpected = report.counts.of(DeviceOutcome::Suppressed(Suppression::UnexpectedAudience));
        assert_eq!((report.audience, unexpected, report.counts.total()), (20, 20, 20));
    }
    // Who is not admitted is not counted.
    let country = |index: usize| Country::new(["PL", "BR"][index % 2]).unwrap();
    world.register((0..20).map(|index| NewDevice { country: Some(country(index)), ..device(index) })).await;
    for (name, min, max, is_told) in
        [("few", Some(11), None, false), ("many", None, Some(9), false), ("right", Some(10), Some(10), true)]
    {
        let mut event = goal(name);
        event.expect_audience = Some(ExpectAudience { min, max });
        event.filter = Some(Filter { countries: vec![country(0)], ..Filter::default() });
        let counts = done(&sender, world.accept(event).await).await.counts;
        let unexpected = counts.of(DeviceOutcome::Suppressed(Suppression::UnexpectedAudience));
        assert_eq!((counts.accepted(), unexpected), if is_told { (10, 0) } else { (0, 10) }, "{name}");
    }
    let before = provider.taken().len();
    let position = accept("yes", Some(20), Some(20), Some(20)).await;
    assert_eq!(done(&sender, position).await.counts.accepted(), 20);
    assert!(provider.taken()[before..].iter().all(|taken| taken.ticket.job == position && addressee(taken) < 20));
    assert_eq!(before, 10);
}
