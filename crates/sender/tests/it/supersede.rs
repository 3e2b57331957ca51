//! A newer event takes the place of an older one, through the whole sender; every interleaving is `job/tests/chain.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use tidings_push::{JobStanding, Outcome, Standing};
use tidings_sender::{DeviceOutcome, JobReport, Sender, SenderConfig, Suppression};
use tidings_store::NewDevice;
use tidings_types::{CollapseKey, Country, Event, Filter, JobState, JournalPosition, PushPolicy, Subject};
use tokio::time::Instant;

use crate::world::{Automatic, Gateway, World, addressee, config, device, goal, lake, pool, soon, until};

fn score(id: &str) -> Event {
    Event { collapse_key: Some(CollapseKey::new("score").unwrap()), ..goal(id) }
}

async fn done(sender: &Sender, position: JournalPosition) -> JobReport {
    until("the job is over", || sender.job(position).is_some_and(|job| job.done_at.is_some())).await;
    sender.job(position).unwrap()
}

fn superseded(report: &JobReport) -> u64 {
    report.counts.of(DeviceOutcome::Superseded)
}

#[tokio::test]
async fn who_was_not_told_the_older_is_told_the_newer_only_and_who_is_on_its_way_is_waited_for() {
    let world = World::new();
    world.register((0..60).map(device)).await;
    world.register_for((60..80).map(device), &["team:2"]).await;
    let pool = pool("main", "app", 10);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut event = score("1:0");
    event.subjects.push(Subject::new("team:2").unwrap());
    let older = world.accept(event).await;
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(8).await;
    provider.answer(3, Outcome::Accepted);
    until("the lake is full", || lake(&pool).counters().held == 10).await;
    let newer = world.accept(score("2:0")).await; // To those of the first team only.
    let in_flight: BTreeSet<usize> = provider.held.iter().map(addressee).chain(8..18).collect();
    until("what is not in the lake is the newer one's", || {
        sender.job(older).is_some_and(|job| superseded(&job) == 60 - 18)
    })
    .await;
    let sink = sender.sink();
    assert_eq!(sink.job_standing(older), JobStanding::AskEach);
    assert!(provider.held.iter().all(|held| sink.standing(held.ticket) == Standing::Superseded));
    // The newer one has 42 to hand out at once, the older 20; 15 of the newer wait.
    let mut told_newer = BTreeSet::new();
    while told_newer.len() < 45 {
        let before = provider.taken.len();
        provider.take(1).await;
        let taken = &provider.taken[before];
        if taken.ticket.job == newer {
            assert!(told_newer.insert(addressee(taken)) && !in_flight.contains(&addressee(taken)));
        }
    }
    assert_eq!(sender.job(newer).unwrap().counts.total(), 0);
    let standing = |held: &tidings_push::Notification| sink.standing(held.ticket);
    let (given_up, told): (Vec<_>, Vec<_>) =
        provider.held.drain(..).partition(|held| standing(held) == Standing::Superseded);
    assert_eq!(given_up.iter().map(addressee).collect::<BTreeSet<_>>(), in_flight);
    provider.held = given_up;
    provider.answer(15, Outcome::Superseded);
    provider.held = told;
    assert_eq!(sink.job_standing(older), JobStanding::Go);
    until("those who were waited for are told", || {
        provider.try_take(10);
        provider.answer(provider.held.len(), Outcome::Accepted);
        sender.idle()
    })
    .await;
    let (older, newer) = (done(&sender, older).await, done(&sender, newer).await);
    assert_eq!((superseded(&older), older.counts.accepted()), (57, 23));
    assert_eq!((newer.counts.accepted(), newer.counts.total()), (60, 60));
}

#[tokio::test]
async fn whom_the_newer_does_not_concern_keeps_the_older() {
    let world = World::new();
    let country = |index: usize| Country::new(["PL", "BR"][index % 2]).unwrap();
    let devices = (0..40).map(|index| NewDevice { country: Some(country(index)), ..device(index) });
    world.register(devices).await;
    let pool = pool("main", "app", 1);
    let sender = world.start(config(), vec![pool.clone()]);
    let older = world.accept(score("1:0")).await;
    until("it waits for room", || lake(&pool).counters().held == 1).await;
    let mut event = score("2:0");
    event.filter = Some(Filter { countries: vec![country(0)], ..Filter::default() });
    let newer = world.accept(event).await;
    // These three take nothing, and nothing is taken from them.
    let mut dry = score("3:0");
    dry.dry_run = true;
    let dry = world.accept(dry).await;
    let mut unpushed = score("4:0");
    unpushed.push = PushPolicy::Never;
    let unpushed = world.accept(unpushed).await;
    let mut other = score("5:0");
    other.collapse_key = Some(CollapseKey::new("other").unwrap());
    let other = world.accept(other).await;
    until("all have begun", || sender.job(other).is_some()).await;
    let mut provider = Gateway::new(&pool, &sender);
    until("all are told", || {
        provider.try_take(10);
        let mut held = std::mem::take(&mut provider.held);
        let sink = sender.sink();
        held.sort_by_key(|held| sink.standing(held.ticket) != Standing::Superseded);
        let given_up = held.iter().filter(|held| sink.standing(held.ticket) == Standing::Superseded).count();
        provider.held = held;
        provider.answer(given_up, Outcome::Superseded);
        provider.answer(provider.held.len(), Outcome::Accepted);
        sender.idle()
    })
    .await;
    let (older, newer) = (done(&sender, older).await, done(&sender, newer).await);
    assert_eq!((superseded(&older), older.counts.accepted(), older.counts.total()), (20, 20, 40));
    assert_eq!((newer.counts.accepted(), newer.counts.total(), newer.audience), (20, 20, 20));
    let dry = done(&sender, dry).await;
    assert_eq!(dry.counts.of(DeviceOutcome::Suppressed(Suppression::DryRun)), 40);
    assert_eq!((done(&sender, unpushed).await.counts.total(), done(&sender, other).await.counts.accepted()), (0, 40));
}

#[tokio::test]
async fn after_a_restart_the_older_one_does_not_come_back() {
    let world = World::new();
    world.register((0..200).map(device)).await;
    let pool = pool("main", "app", 10);
    let sender = world.start(config(), vec![pool.clone()]);
    let older = world.accept(score("1:0")).await;
    until("the lake is full", || lake(&pool).counters().held == 10).await;
    let newer = world.accept(score("2:0")).await;
    until("it is taken over", || sender.job(older).is_some_and(|job| superseded(&job) == 190)).await;
    until("both rows say so", || {
        let says = |position, name: &str, count: u64| {
            world
                .row(position)
                .is_some_and(|row| row["counts"].get(name).and_then(serde_json::Value::as_u64) == Some(count))
        };
        says(older, "superseded", 200) && world.row(newer).is_some()
    })
    .await;
    drop(sender); // Killed: ten of the older one are in the lake, without an answer.
    let world = world.restarted().await;
    let pool = crate::world::pool("main", "app", 10);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let (older, newer) = (done(&sender, older).await, done(&sender, newer).await);
    assert_eq!((superseded(&older), older.counts.total(), newer.counts.accepted()), (200, 200, 200));
    let taken = provider.taken();
    assert_eq!((taken.len(), older.state, newer.state), (200, JobState::Finished, JobState::Finished));
    soon("drained", sender.drain(Instant::now() + Duration::from_secs(10))).await;
}

/// No checkpoint is written but those that are asked for.
fn seldom() -> SenderConfig {
    SenderConfig { checkpoint_interval: Duration::from_secs(3600), ..config() }
}

#[tokio::test]
async fn the_newer_is_handed_out_when_the_row_of_the_older_says_what_it_lost_or_that_it_is_done() {
    for is_done in [false, true] {
        let world = World::new();
        world.register((0..60).map(device)).await;
        let pool = pool("main", "app", 10);
        let sender = world.start(seldom(), vec![pool.clone()]);
        let mut provider = Gateway::new(&pool, &sender);
        let older = world.accept(score("1:0")).await;
        if is_done {
            provider.accept(60).await;
            done(&sender, older).await;
        } else {
            until("the lake is full", || lake(&pool).counters().held == 10).await;
        }
        let newer = world.accept(score("2:0")).await;
        while provider.taken.last().is_none_or(|taken| taken.ticket.job == older) {
            provider.take(1).await;
        }
        let row = world.row(older).expect("the newer one is handed out");
        let count = |name: &str| row["counts"][name].as_u64().unwrap_or(0);
        assert_eq!((count("accepted"), count("superseded")), if is_done { (60, 0) } else { (0, 60) });
        assert!(world.row(newer).is_some());
    }
}

/// The device has left the newer event's audience when its job starts again.
#[tokio::test]
async fn a_device_that_was_shown_the_newer_is_not_shown_the_older_after_a_crash() {
    let world = World::new();
    let country = |name: &str| Country::new(name).unwrap();
    let from = |index: usize, name: &str| NewDevice { country: Some(country(name)), ..device(index) };
    world.register((0..20).map(|index| from(index, "PL"))).await;
    let first = pool("first", "app", 10);
    let sender = world.start(seldom(), vec![first.clone()]);
    let older = world.accept(score("1:0")).await;
    until("the lake is full", || lake(&first).counters().held == 10).await;
    let mut event = score("2:0");
    event.filter = Some(Filter { countries: vec![country("PL")], ..Filter::default() });
    let newer = world.accept(event).await;
    until("it is taken over", || sender.job(older).is_some_and(|job| superseded(&job) == 10)).await;
    let mut provider = Gateway::new(&first, &sender);
    provider.take(10).await;
    provider.answer(10, Outcome::Superseded);
    provider.accept(20).await;
    assert!(provider.taken[10..].iter().all(|taken| taken.ticket.job == newer));
    drop((sender, provider)); // Killed.
    world.register([from(0, "BR")]).await;
    let world = world.restarted().await;
    let second = pool("second", "app", 10);
    let sender = world.start(config(), vec![second.clone()]);
    let mut provider = Automatic::accepting(&second, &sender);
    let (older, newer) = (done(&sender, older).await, done(&sender, newer).await);
    assert_eq!((superseded(&older), older.counts.total(), newer.counts.accepted()), (20, 20, 19));
    assert!(provider.taken().iter().all(|taken| taken.ticket.job == newer.position));
}

/// The newer one is cancelled and done before the crash, or cancelled while the sender is down.
#[tokio::test]
async fn after_a_crash_the_older_one_does_not_come_back_when_the_newer_has_ended_meanwhile() {
    for ends_before in [true, false] {
        let mut world = World::new();
        world.register((0..10).map(device)).await;
        let lake_of = |name| pool(name, "app", 10);
        let first = lake_of("first");
        let sender = world.start(config(), vec![first.clone()]);
        let older = world.accept(score("1:0")).await;
        until("all are in the lake", || lake(&first).counters().held == 10).await;
        let newer = world.accept(score("2:0")).await;
        until("both rows say whose they are", || {
            let row = world.row(older).filter(|_| world.row(newer).is_some());
            row.is_some_and(|row| row["counts"]["superseded"].as_u64() == Some(10))
        })
        .await;
        if ends_before {
            world.store.cancel(newer).await.unwrap();
            until("it is done", || world.row(newer).is_some_and(|row| row["state"] == "finished")).await;
            assert_eq!(sender.job(older).unwrap().state, JobState::Running);
        }
        drop(sender); // Killed: all of the older one are in the lake, without an answer.
        world = world.restarted().await;
        if !ends_before {
            world.store.cancel(newer).await.unwrap();
        }
        let second = lake_of("second");
        let sender = world.start(config(), vec![second.clone()]);
        let mut provider = Automatic::accepting(&second, &sender);
        let (older, newer) = (done(&sender, older).await, done(&sender, newer).await);
        assert_eq!((superseded(&older), older.counts.total(), provider.taken().len()), (10, 10, 0));
        assert_eq!((newer.state, newer.counts.of(DeviceOutcome::Cancelled)), (JobState::Cancelled, 10));
    }
}
