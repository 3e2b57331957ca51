//! Holding back: who is spared a push by a receipt, who is not, and when the others are pushed.

use std::time::Duration;

use tidings_push::{Notification, Outcome};
use tidings_sender::{DeviceOutcome, JobReport, Note, Sender, SenderConfig, Suppression};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, Country, Filter, JobState, JournalPosition, Platform, PushPolicy, Subject, Timestamp};
use tokio::time::Instant;

use crate::world::{
    Automatic, Gateway, World, addressee, arrival, config, device, goal, pool, quiet_goal, soon, until,
};
use tidings_store::{Precondition, PutTerms};

/// Longer than any test: what ends before was not waited for.
const LONG: Duration = Duration::from_secs(600);

fn addressees(taken: &[Notification]) -> Vec<usize> {
    let mut numbers: Vec<usize> = taken.iter().map(addressee).collect();
    numbers.sort_unstable();
    numbers
}

async fn finished(sender: &Sender, position: JournalPosition) -> JobReport {
    until("the job finishes", || sender.job(position).is_some_and(|job| job.state == JobState::Finished)).await;
    sender.job(position).unwrap()
}

async fn held(sender: &Sender, position: JournalPosition, count: u64) {
    until("so many are held", || sender.job(position).is_some_and(|job| job.held == count)).await;
}

#[tokio::test]
async fn who_may_answer_is_held_the_others_are_pushed_at_once() {
    let world = World::new();
    world.register((0..100).map(device)).await;
    world.register_for([device(200)], &["team:9"]).await;
    world.connect((0..20).chain([200])); // The last one reads along and is not of the audience.
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let position = world.accept(quiet_goal("goal", LONG)).await;
    until("the others are pushed", || sender.job(position).is_some_and(|job| job.counts.accepted() == 80)).await;
    held(&sender, position, 20).await;
    world.receive(position, (0..19).chain([200, 50]));
    held(&sender, position, 1).await;
    assert!(!sender.idle());
    world.receive(position, [19]);
    let report = finished(&sender, position).await;
    assert_eq!((report.counts.received(), report.counts.accepted(), report.counts.total()), (20, 80, 100));
    assert_eq!(addressees(&provider.taken()), (20..100).collect::<Vec<_>>());
    assert_eq!(sender.totals().received(), 20);
    until("the sender is idle", || sender.idle()).await;
}

#[tokio::test]
async fn who_has_not_answered_when_time_is_up_is_pushed_then() {
    let wait = Duration::from_millis(700);
    let world = World::new();
    world.register((0..60).map(device)).await;
    world.connect(0..20);
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let position = world.accept_ahead(quiet_goal("goal", wait)).await;
    let began = Instant::now();
    world.receive(position, 0..5);
    let mut pushed_early = 0;
    until("the job finishes", || {
        let job = sender.job(position);
        pushed_early = job.as_ref().filter(|job| job.held > 0).map_or(pushed_early, |job| job.counts.accepted());
        job.is_some_and(|job| job.state == JobState::Finished)
    })
    .await;
    let (took, report) = (began.elapsed(), sender.job(position).unwrap());
    assert_eq!((report.counts.received(), report.counts.accepted(), report.held), (5, 55, 0));
    assert!(took >= wait - Duration::from_millis(100) && pushed_early == 40, "{took:?}, {pushed_early} before");
    assert_eq!(addressees(&provider.taken()), (5..60).collect::<Vec<_>>());
    // A receipt that comes now changes nothing.
    world.receive(position, [7]);
    assert_eq!(sender.job(position).unwrap(), report);
}

#[tokio::test]
async fn an_event_dispatched_after_its_time_waits_for_nobody_and_heeds_what_is_known() {
    let world = World::new();
    world.register((0..60).map(device)).await;
    world.connect(0..20);
    let mut event = quiet_goal("goal", Duration::from_secs(2));
    event.ttl = Duration::from_secs(60);
    let position = world.accept_at(event, Timestamp(unix_now().as_millis() - 3000)).await;
    world.receive(position, 0..5);
    let pool = pool("main", "app", 100);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(55).await;
    assert_eq!(sender.job(position).unwrap().held, 0);
    provider.answer(55, Outcome::Accepted);
    let report = finished(&sender, position).await;
    assert_eq!((report.counts.received(), report.counts.accepted()), (5, 55));
    assert_eq!(addressees(&provider.taken), (5..60).collect::<Vec<_>>());
}

/// It would be over before its receipts are due: who cannot answer any more is not to be left without a word.
#[tokio::test]
async fn half_of_an_events_life_is_left_to_push_those_who_do_not_answer() {
    let world = World::new();
    world.register((0..30).map(device)).await;
    world.connect(0..20);
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let mut event = quiet_goal("goal", LONG);
    event.ttl = Duration::from_secs(2);
    let position = world.accept_ahead(event).await;
    world.receive(position, 0..5);
    let report = finished(&sender, position).await;
    assert_eq!((report.counts.received(), report.counts.expired(), report.counts.accepted()), (5, 0, 25));
    assert_eq!(addressees(&provider.taken()), (5..30).collect::<Vec<_>>());
}

/// Clients that do not answer fill all places: they cost themselves a push, and others half a second.
#[tokio::test]
async fn jobs_that_only_wait_for_receipts_make_room() {
    let world = World::new();
    world.register((0..10).map(device)).await;
    world.register_for([device(20)], &["team:2"]).await;
    world.connect(0..10);
    let pool = pool("main", "app", 50);
    let sender = world.start(SenderConfig { job_count_max: 3, ..config() }, vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let mut held_back = Vec::new();
    for index in 0..3 {
        held_back.push(world.accept(quiet_goal(&format!("goal-{index}"), LONG)).await);
    }
    let accepted = Instant::now();
    for &position in &held_back {
        held(&sender, position, 10).await;
        world.receive(position, 0..9);
    }
    let mut other = goal("other");
    other.subjects = vec![Subject::new("team:2").unwrap()];
    let other = world.accept(other).await;
    assert_eq!(finished(&sender, other).await.counts.accepted(), 1);
    assert!(accepted.elapsed() > Duration::from_millis(400), "who can answer has had the time");
    let first = finished(&sender, held_back[0]).await;
    assert_eq!((first.counts.received(), first.counts.accepted()), (9, 1));
    assert_eq!(addressees(&provider.taken()), [9, 20]);
    let still: Vec<u64> = held_back[1..].iter().map(|&position| sender.job(position).unwrap().held).collect();
    assert_eq!(still, [1, 1], "as many make room as are needed, the oldest first");
}

/// By a clock that was ahead, time would be up in an hour.
#[tokio::test]
async fn an_event_from_the_future_is_held_for_its_own_wait_only() {
    let world = World::new();
    world.register((0..10).map(device)).await;
    world.connect(0..10);
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let _provider = Automatic::accepting(&pool, &sender);
    let position = world.accept_ahead(quiet_goal("goal", Duration::from_millis(200))).await;
    assert_eq!(finished(&sender, position).await.counts.accepted(), 10);
}

#[tokio::test]
async fn when_the_hub_forgets_the_receipts_those_who_are_held_are_pushed_once_and_at_once() {
    let world = World::new();
    world.register((0..100).map(device)).await;
    world.connect(0..20);
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let position = world.accept_ahead(quiet_goal("goal", LONG)).await;
    until("the others are pushed", || sender.job(position).is_some_and(|job| job.counts.accepted() == 80)).await;
    world.receive(position, 0..5);
    held(&sender, position, 15).await;
    let receipts = world.receipts(position);
    world.use_up_receipts();
    assert!(receipts.is_forgotten());
    let report = finished(&sender, position).await;
    assert_eq!((report.counts.received(), report.counts.accepted(), report.counts.total()), (5, 95, 100));
    receipts.on_received("", Some(world.number(7)), false, arrival()); // This changes nothing.
    assert_eq!(sender.job(position).unwrap(), report);
    assert_eq!(addressees(&provider.taken()), (5..100).collect::<Vec<_>>());
    let why = sender.why(position, world.number(3)).unwrap();
    assert_eq!((why.was_connected, why.received), (None, None), "that is not known any more");
    assert_eq!(why.steps.last().unwrap().note, Note::Ended(DeviceOutcome::Received), "this is");
}

#[tokio::test]
async fn draining_does_not_wait_for_receipts_and_the_next_start_pushes_who_has_not_received() {
    let world = World::new();
    world.register((0..50).map(device)).await;
    world.connect(0..20);
    let pool = pool("main", "app", 50);
    let only_last = SenderConfig { checkpoint_interval: Duration::from_secs(3600), ..config() };
    let sender = world.start(only_last, vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let position = world.accept(quiet_goal("goal", LONG)).await;
    until("the others are pushed", || sender.job(position).is_some_and(|job| job.counts.accepted() == 30)).await;
    held(&sender, position, 20).await;
    world.receive(position, 0..5);
    held(&sender, position, 15).await;
    let began = Instant::now();
    let drained = soon("drained", sender.drain(began + Duration::from_secs(15))).await;
    assert!(began.elapsed() < Duration::from_secs(10), "the deadline was not waited for");
    assert_eq!((drained.checkpointed, drained.devices_in_flight), (true, 0));
    let row = world.row(position).unwrap();
    assert_eq!((&row["version"], &row["counts"]["received"], &row["next"]), (&4.into(), &5.into(), &().into()));
    assert_eq!(provider.taken().len(), 30, "draining lets nobody go");
    drop((sender, provider));

    let world = world.restarted().await;
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let report = finished(&sender, position).await;
    assert_eq!((report.counts.received(), report.counts.accepted(), report.counts.total()), (5, 45, 50));
    assert_eq!(addressees(&provider.taken()), (5..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn resting_waits_for_receipts_and_begins_nothing_so_the_next_start_pushes_nobody_who_has_received() {
    let world = World::new();
    world.register((0..50).map(device)).await;
    world.connect(0..20);
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let position = world.accept(quiet_goal("goal", LONG)).await;
    until("the others are pushed", || sender.job(position).is_some_and(|job| job.counts.accepted() == 30)).await;
    held(&sender, position, 20).await;
    let later = {
        let mut resting = std::pin::pin!(sender.rest(Instant::now() + LONG));
        let held_back = tokio::time::timeout(Duration::from_millis(100), &mut resting).await;
        assert!(held_back.is_err(), "devices are held back");
        let later = world.accept(goal("later")).await;
        world.receive(position, 0..20);
        soon("nobody is held back", resting).await;
        later
    };
    assert_eq!(finished(&sender, position).await.counts.received(), 20);
    assert!(sender.job(later).is_none(), "it has not begun");
    let began = Instant::now();
    sender.rest(began + Duration::from_millis(50)).await;
    soon("drained", sender.drain(Instant::now() + Duration::from_secs(15))).await;
    assert_eq!(addressees(&provider.taken()), (20..50).collect::<Vec<_>>());
    drop((sender, provider));

    let world = world.restarted().await;
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    assert_eq!(finished(&sender, later).await.counts.accepted(), 50);
    assert_eq!(addressees(&provider.taken()), (0..50).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_true_when_time_is_up_decides() {
    let world = World::new();
    world.register((0..10).map(device)).await;
    world.connect(0..10);
    let (main, second) = (pool("main", "app", 50), pool("second", "other", 50));
    let sender = world.start(config(), vec![main.clone(), second.clone()]);
    let (mut first, mut other) = (Automatic::accepting(&main, &sender), Automatic::accepting(&second, &sender));
    let position = world.accept_ahead(quiet_goal("goal", Duration::from_secs(2))).await;
    held(&sender, position, 10).await;
    world.receive(position, [1]);
    let mut moved = device(2);
    moved.app = AppId::new("other").unwrap();
    let (gone, also_gone) = (device(0).id, device(1).id);
    let (first_delete, second_delete, put) = tokio::join!(
        world.store.delete_device(&gone, Precondition::None),
        world.store.delete_device(&also_gone, Precondition::None),
        world.store.put_device(moved, PutTerms::default(), unix_now()),
    );
    assert!(first_delete.is_ok() && second_delete.is_ok() && put.is_ok());
    let report = finished(&sender, position).await;
    let gone = DeviceOutcome::Suppressed(Suppression::Gone);
    assert_eq!((report.counts.of(gone), report.counts.received(), report.counts.accepted()), (1, 1, 8));
    assert_eq!(addressees(&first.taken()), (3..10).collect::<Vec<_>>());
    assert_eq!(addressees(&other.taken()), [2]);
}

/// Received is a push that was saved: who would not have been pushed is counted with the reason, and not waited for.
#[tokio::test]
async fn who_would_not_be_pushed_is_not_held() {
    let world = World::new();
    let mut silent = device(0);
    silent.token = None;
    let mut foreign = device(1);
    foreign.country = Some(Country::new("DE").unwrap());
    world.register([silent, foreign]).await;
    world.connect([0, 1]);
    let mut event = quiet_goal("goal", LONG);
    event.filter = Some(Filter { platforms: vec![Platform::Ios], ..Filter::default() });
    event.filter.as_mut().unwrap().countries.extend(["PL", "DE"].map(|name| Country::new(name).unwrap()));
    let sender = world.start(config(), vec![pool("main", "other", 5)]);
    let position = world.accept(event).await;
    world.receive(position, [0, 1]);
    let counts = finished(&sender, position).await.counts;
    let of = |why| counts.of(DeviceOutcome::Suppressed(why));
    assert_eq!((of(Suppression::NoPool), counts.total()), (1, 1), "the other is not admitted by the filter");
}

#[tokio::test]
async fn receipts_spare_no_push_where_the_event_does_not_say_so() {
    let world = World::new();
    world.register((0..10).map(device)).await;
    world.connect(0..10);
    let mut event = quiet_goal("goal", LONG);
    (event.push, event.receipt) = (PushPolicy::Always, true);
    let position = world.accept(event).await;
    world.receive(position, 0..5);
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let _provider = Automatic::accepting(&pool, &sender);
    assert_eq!(finished(&sender, position).await.counts.accepted(), 10);
}

/// A pool that stands still: who is held is known only when the walk comes by, and time may be up before.
#[tokio::test]
async fn the_walk_may_come_late() {
    let world = World::new();
    world.register((0..300).map(device)).await;
    world.connect(200..300);
    let pool = pool("main", "app", 10);
    let sender = world.start(config(), vec![pool.clone()]);
    let position = world.accept_ahead(quiet_goal("goal", Duration::from_millis(300))).await;
    let over = Instant::now() + Duration::from_millis(500);
    world.receive(position, 200..250);
    until("time is up", || Instant::now() > over).await;
    let mut provider = Automatic::accepting(&pool, &sender);
    let report = finished(&sender, position).await;
    assert_eq!((report.counts.received(), report.counts.accepted()), (50, 250));
    assert_eq!(addressees(&provider.taken()), (0..200).chain(250..300).collect::<Vec<_>>());
}
