//! One run: who is told, of what, how often, and what is counted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidings_push::apns::Reason;
use tidings_push::{Notification, Outcome};
use tidings_sender::{Backlog, DeviceOutcome, Sender, SenderConfig, StartError, Suppression};
use tidings_telemetry::{Registry, metrics, unix_now};
use tidings_types::{
    AppId, CollapseKey, Country, Environment, Filter, JobState, JournalPosition, Locale, NotificationId,
    PushPermission, PushPolicy, Subject, Timestamp,
};
use tokio::time::Instant;

use crate::world::{
    Automatic, Gateway, World, addressee, config, device, goal, lake, pool, settled, soon, token, until,
};
use tidings_store::{Precondition, PutTerms};

fn addressees(taken: &[Notification]) -> Vec<usize> {
    let mut numbers: Vec<usize> = taken.iter().map(addressee).collect();
    numbers.sort_unstable();
    numbers
}

fn text(notification: &Notification) -> serde_json::Value {
    serde_json::from_slice(notification.rendering.payload()).unwrap()
}

async fn finished(sender: &Sender, position: JournalPosition) {
    until("the job finishes", || sender.job(position).is_some_and(|job| job.state == JobState::Finished)).await;
}

#[tokio::test]
async fn loops_that_always_have_something_to_write_delay_pushes_a_little() {
    let world = World::new();
    world.register((0..10).map(device)).await;
    world.keep_loops_busy();
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let mut quickest = Duration::MAX;
    for number in 0..5 {
        let began = Instant::now();
        let position = world.accept(goal(&format!("goal-{number}"))).await;
        finished(&sender, position).await;
        quickest = quickest.min(began.elapsed());
    }
    assert_eq!(provider.taken().len(), 5 * 10);
    assert!(quickest >= Duration::from_millis(20), "{quickest:?}");
}

#[tokio::test]
async fn every_device_is_told_once_in_its_language() {
    let world = World::new();
    let locales = ["en", "pl-PL", "ar"];
    let devices = (0..300).map(|index| {
        let mut device = device(index);
        device.locale = Locale::new(locales[index % 3]).unwrap();
        device
    });
    // Half of them follow both teams: the event is about both, and they are told once.
    let (both, one): (Vec<_>, Vec<_>) = devices.partition(|device| device.id.as_str().len() == 4);
    world.register_for(both, &["team:1", "team:2"]).await;
    world.register_for(one, &["team:2"]).await;
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let mut event = goal("goal-1");
    event.subjects.push(Subject::new("team:2").unwrap());
    let accepted_at = unix_now();
    let position = world.accept_at(event.clone(), accepted_at).await;
    assert!(!sender.idle(), "an acknowledged event is work");
    finished(&sender, position).await;

    let taken = provider.taken();
    assert_eq!(addressees(&taken), (0..300).collect::<Vec<_>>());
    for notification in &taken {
        let index = addressee(notification);
        let body = text(notification);
        let title = ["Goal for Vega!", "Gol dla Vega!", "هدف لفريق \u{2068}Vega\u{2069}!"][index % 3];
        assert_eq!(body["aps"]["alert"]["title"], title);
        assert_eq!(body["tidings"]["channel"], "team:1");
        assert_eq!(body["tidings"]["event"], "goal-1");
        assert_eq!(body["tidings"]["offset"], 1);
        assert_eq!(notification.id, NotificationId::new(&event.id, &device(index).id));
        let parts = notification.rendering.parts();
        assert_eq!(parts.collapse_id, CollapseKey::new("goal-1").unwrap());
        assert_eq!(parts.expires_at, accepted_at.saturating_add(event.ttl));
    }
    let renderings: BTreeSet<_> = taken.iter().map(|taken| Arc::as_ptr(&taken.rendering).addr()).collect();
    assert_eq!(renderings.len(), 3, "one rendering per language");

    let report = sender.job(position).unwrap();
    assert_eq!((report.audience, report.counts.accepted(), report.counts.total()), (300, 300, 300));
    let time_to = report.time_to.unwrap();
    assert!(time_to.first <= time_to.p50 && time_to.p50 <= time_to.p99 && time_to.p99 <= time_to.p100);
    assert_eq!(sender.totals(), report.counts);
    until("the sender is idle", || sender.idle()).await;
    assert!(sender.backlog().is_empty());
}

#[tokio::test]
async fn each_answer_is_counted_as_what_it_is_and_dead_tokens_are_forgotten() {
    let world = World::new();
    world.register((0..60).map(device)).await;
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let outcomes = [
        Outcome::Accepted,
        Outcome::Rejected(Reason::Unregistered.into()),
        Outcome::Rejected(Reason::BadTopic.into()),
        Outcome::Expired,
        Outcome::Cancelled,
        Outcome::Unknown,
    ];
    let mut provider = Automatic::new(&pool, &sender, move |taken| {
        let index = addressee(taken);
        let outcome = outcomes[index % 6];
        let dead = outcome == Outcome::Rejected(Reason::Unregistered.into());
        settled(taken, outcome, dead.then(|| unix_now().saturating_add(Duration::from_secs(1))))
    });
    let first = world.accept(goal("first")).await;
    finished(&sender, first).await;
    let report = sender.job(first).unwrap();
    for outcome in outcomes {
        assert_eq!(report.counts.of(outcome.into()), 10, "{outcome:?}");
    }
    assert_eq!((report.counts.rejected(), report.counts.total()), (20, 60));
    assert_eq!(report.counts.of(DeviceOutcome::Rejected(Reason::BadTopic.into())), 10);

    let dead = |index: usize| world.store.device(&device(index).id).unwrap().unwrap().token.is_none();
    until("the store forgets dead tokens", || (0..60).all(|index| dead(index) == (index % 6 == 1))).await;
    let second = world.accept(goal("second")).await;
    finished(&sender, second).await;
    let report = sender.job(second).unwrap();
    assert_eq!(report.counts.of(DeviceOutcome::Suppressed(Suppression::NoToken)), 10);
    assert_eq!((report.counts.accepted(), report.counts.total()), (10, 60));
    assert_eq!(provider.taken().len(), 60 + 50);
}

#[tokio::test]
async fn an_outcome_of_a_device_that_is_not_in_flight_is_not_counted() {
    let world = World::new();
    world.register([device(0), device(1)]).await;
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let position = world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(2).await;
    let (mut once, sink) = (vec![settled(&provider.held[0], Outcome::Accepted, None)], sender.sink());
    let mut twice = once.clone();
    sink.settle(&mut once);
    assert_eq!(once, [], "what was settled is taken");
    let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sink.settle(&mut twice)));
    assert_eq!(second.is_err(), cfg!(debug_assertions), "a bug is loud while developing");
    assert_eq!(sender.job(position).unwrap().counts.accepted(), 1);
    provider.held.remove(0);
    provider.answer(1, Outcome::Accepted);
    finished(&sender, position).await;
    assert_eq!(sender.job(position).unwrap().counts.accepted(), 2);
}

#[tokio::test]
async fn an_event_that_concerns_nobody_is_done_at_once() {
    let world = World::new();
    world.register([device(0)]).await;
    let sender = world.start(config(), vec![pool("main", "app", 5)]);
    let (mut quiet, mut nobody) = (goal("quiet"), goal("nobody"));
    quiet.push = PushPolicy::Never;
    nobody.subjects = vec![Subject::new("team:9").unwrap()];
    for event in [quiet, nobody] {
        let position = world.accept(event).await;
        finished(&sender, position).await;
        let report = sender.job(position).unwrap();
        assert_eq!((report.audience, report.counts.total(), report.time_to), (0, 0, None));
    }
    until("the sender is idle", || sender.idle()).await;
}

#[tokio::test]
async fn who_cannot_or_must_not_be_told_is_counted_with_the_reason() {
    let world = World::new();
    let mut silent = device(1);
    silent.token = None;
    let mut foreign = device(2);
    foreign.app = AppId::new("other").unwrap();
    let mut sandbox = device(3);
    sandbox.environment = Environment::Sandbox;
    let [mut denied, mut unreachable] = [device(5), device(6)];
    denied.push_permission = PushPermission::Denied;
    (unreachable.push_permission, unreachable.token) = (PushPermission::Denied, None);
    world.register([device(0), silent, foreign, sandbox, denied, unreachable]).await;
    let position = world.accept(goal("goal")).await;
    world.register([device(4)]).await; // After the event, before it is dispatched.
    let pool = pool("main", "app", 5);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    finished(&sender, position).await;
    let counts = sender.job(position).unwrap().counts;
    let suppressed = |why| counts.of(DeviceOutcome::Suppressed(why));
    assert_eq!(suppressed(Suppression::NoToken), 1);
    assert_eq!(suppressed(Suppression::NoPool), 2);
    assert_eq!(suppressed(Suppression::RegisteredLater), 1);
    assert_eq!(suppressed(Suppression::NoPermission), 2);
    assert_eq!((counts.accepted(), counts.total()), (1, 7));
    assert_eq!(addressees(&provider.taken()), [0]);
}

#[tokio::test]
async fn who_is_not_admitted_by_the_filter_is_not_meant_and_who_moves_out_of_it_is_counted() {
    let world = World::new();
    let countries = ["PL", "BR", "DE"];
    let devices = (0..31).map(|index| {
        let mut device = device(index);
        device.country = countries.get(index % 3).filter(|_| index < 30).map(|name| Country::new(name).unwrap());
        device
    });
    world.register(devices).await;
    let pool = pool("main", "app", 5);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut event = goal("goal");
    let meant = ["PL", "BR"].map(|name| Country::new(name).unwrap()).to_vec();
    event.filter = Some(Filter { countries: meant, ..Filter::default() });
    let position = world.accept(event).await;
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(1).await;
    // All but its own window of 16 are still to be read when one moves away.
    let mut moved = device(28);
    moved.country = Some(Country::new("DE").unwrap());
    world.store.put_device(moved, PutTerms::default(), unix_now()).await.unwrap();
    provider.take(18).await;
    provider.answer(19, Outcome::Accepted);
    finished(&sender, position).await;
    let counts = sender.job(position).unwrap().counts;
    assert_eq!(counts.of(DeviceOutcome::Suppressed(Suppression::Filtered)), 1);
    assert_eq!((counts.accepted(), counts.total()), (19, 20), "who was never meant is not counted");
    assert!(provider.taken.iter().all(|taken| addressee(taken) % 3 != 2 && addressee(taken) < 28));
}

#[tokio::test]
async fn jobs_are_listed_newest_first_whether_they_run_or_not() {
    let world = World::new();
    world.register([device(0)]).await;
    let pool = pool("main", "app", 100);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Gateway::new(&pool, &sender);
    let mut positions = Vec::new();
    for index in 0..6 {
        positions.push(world.accept(goal(&format!("goal-{index}"))).await);
    }
    provider.take(6).await;
    provider.held.sort_by_key(|held| held.ticket.job);
    provider.held.swap(0, 3); // The fourth is answered first, and the second.
    provider.answer(2, Outcome::Accepted);
    finished(&sender, positions[3]).await;
    finished(&sender, positions[1]).await;
    positions.reverse();
    let listed = |before, limit| {
        let jobs = sender.jobs(before, limit);
        assert!(jobs.iter().all(|job| sender.job(job.position).as_ref() == Some(job)));
        jobs.into_iter().map(|job| job.position).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 100), positions);
    assert_eq!(listed(None, 3), positions[..3]);
    assert_eq!(listed(Some(positions[2]), 2), positions[3..5]);
    assert_eq!(listed(Some(positions[5]), 2), []);
    assert_eq!(sender.jobs(None, 100).iter().filter(|job| job.state == JobState::Finished).count(), 2);
}

#[tokio::test]
async fn without_a_pool_events_are_worked_off_and_counted() {
    let world = World::new();
    world.register((0..40).map(device)).await;
    let sender = world.start(config(), Vec::new());
    let position = world.accept(goal("goal")).await;
    finished(&sender, position).await;
    let counts = sender.job(position).unwrap().counts;
    assert_eq!(counts.of(DeviceOutcome::Suppressed(Suppression::NoPool)), 40);
}

#[tokio::test]
async fn an_event_whose_topic_is_gone_is_counted_not_lost() {
    let world = World::new();
    world.register((0..3).map(device)).await;
    let mut event = goal("goal");
    event.params.clear(); // As after a change of the texts: it was accepted when they needed less.
    let position = world.accept(event).await;
    let pool = pool("main", "app", 5);
    let sender = world.start(config(), vec![pool.clone()]);
    finished(&sender, position).await;
    let counts = sender.job(position).unwrap().counts;
    assert_eq!(counts.of(DeviceOutcome::Suppressed(Suppression::NoText)), 3);
}

#[tokio::test]
async fn an_event_that_is_over_is_not_sent() {
    let world = World::new();
    world.register((0..100).map(device)).await;
    let mut event = goal("old");
    event.ttl = Duration::from_secs(1);
    let long_ago = Timestamp(unix_now().as_millis() - 1000);
    let position = world.accept_at(event, long_ago).await;
    let pool = pool("main", "app", 500);
    let sender = world.start(config(), vec![pool.clone()]);
    finished(&sender, position).await;
    assert_eq!(sender.job(position).unwrap().counts.expired(), 100);
    assert_eq!(lake(&pool).counters().accepted, 0);
}

#[tokio::test]
async fn what_did_not_get_into_the_lake_in_time_expires() {
    let world = World::new();
    world.register((0..100).map(device)).await;
    let pool = pool("main", "app", 10);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut event = goal("short");
    event.ttl = Duration::from_secs(2);
    let position = world.accept_at(event, Timestamp(unix_now().as_millis() - 500)).await;
    until("the rest expires", || sender.job(position).is_some_and(|job| job.counts.expired() == 90)).await;
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(10).await;
    provider.answer(4, Outcome::Expired);
    provider.answer(6, Outcome::Accepted);
    finished(&sender, position).await;
    let counts = sender.job(position).unwrap().counts;
    assert_eq!((counts.expired(), counts.accepted(), counts.total()), (94, 6, 100));
}

/// Its clock was ahead when it was accepted: its life is not longer for that, and nothing spins at the end of it.
#[tokio::test]
async fn an_event_from_the_future_expires_after_its_own_time() {
    let world = World::new();
    world.register((0..100).map(device)).await;
    let pool = pool("main", "app", 10);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut event = goal("ahead");
    event.ttl = Duration::from_secs(1);
    let began = Instant::now();
    let position = world.accept_ahead(event).await;
    until("the rest expires", || sender.job(position).is_some_and(|job| job.counts.expired() == 90)).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "it lives as long as it may: {:?}", began.elapsed());
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(10).await;
    provider.answer(10, Outcome::Accepted);
    finished(&sender, position).await;
    let counts = sender.job(position).unwrap().counts;
    assert_eq!((counts.expired(), counts.accepted(), counts.total()), (90, 10, 100));
}

#[tokio::test]
async fn a_small_job_is_done_while_a_large_one_waits_for_its_pool() {
    let world = World::new();
    world.register((0..400).map(device)).await;
    world.register_for([device(1000)], &["user:1"]).await;
    let pool = pool("main", "app", 20);
    let sender = world.start(config(), vec![pool.clone()]);
    let large = world.accept(goal("large")).await;
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(1).await;
    let mut event = goal("small");
    event.subjects = vec![Subject::new("user:1").unwrap()];
    let small = world.accept(event).await;
    until("both jobs run", || sender.backlog().jobs_running == 2).await;
    until("the small job is done", || {
        provider.try_take(1);
        provider.answer(provider.held.len(), Outcome::Accepted);
        assert!(provider.taken.len() < 200, "the small job waits its turn, not for the end of the large one");
        sender.job(small).is_some_and(|job| job.state != JobState::Running)
    })
    .await;
    assert_eq!(sender.job(large).unwrap().state, JobState::Running);
    while provider.taken.len() < 401 {
        provider.take(1).await;
        provider.answer(1, Outcome::Accepted);
    }
    finished(&sender, large).await;
    assert_eq!(sender.job(large).unwrap().counts.accepted(), 400);
}

#[tokio::test]
async fn a_pool_that_stands_still_holds_up_no_other() {
    let world = World::new();
    world
        .register((0..400).map(|index| {
            let mut device = device(index);
            device.app = AppId::new(["app", "other"][index % 2]).unwrap();
            device
        }))
        .await;
    let (quick, stuck) = (pool("quick", "app", 20), pool("stuck", "other", 20));
    let sender = world.start(config(), vec![quick.clone(), stuck.clone()]);
    let mut provider = Automatic::accepting(&quick, &sender);
    let position = world.accept(goal("goal")).await;
    until("one pool is done", || sender.job(position).is_some_and(|job| job.counts.accepted() == 200)).await;
    assert_eq!(sender.job(position).unwrap().counts.total(), 200);
    let mut late = Automatic::accepting(&stuck, &sender);
    finished(&sender, position).await;
    assert_eq!(addressees(&provider.taken()), (0..400).step_by(2).collect::<Vec<_>>());
    assert_eq!(addressees(&late.taken()), (1..400).step_by(2).collect::<Vec<_>>());
}

#[tokio::test]
async fn while_nobody_takes_what_is_held_stays_within_its_bounds() {
    let world = World::new();
    world.register((0..500).map(device)).await;
    let pool = pool("main", "app", 1000);
    let config = SenderConfig { job_count_max: 2, ..config() };
    let sender = world.start(config, vec![pool.clone()]);
    let mut last = JournalPosition(0);
    for index in 0..8 {
        last = world.accept(goal(&format!("goal-{index}"))).await;
    }
    let full = Backlog { events_waiting: 6, jobs_running: 2, devices_in_flight: 2 * 4 * 16 };
    until("the bounds are reached", || sender.backlog() == full).await;
    // They hold: nothing moves until somebody takes.
    let later = Instant::now() + Duration::from_millis(100);
    until("some time has passed", || {
        assert_eq!(sender.backlog(), full);
        Instant::now() > later
    })
    .await;
    assert_eq!(lake(&pool).counters().held, 128);
    let mut provider = Automatic::accepting(&pool, &sender);
    finished(&sender, last).await;
    until("the sender is idle", || sender.idle()).await;
    assert_eq!(provider.taken().len(), 8 * 500);
    assert_eq!(sender.totals().accepted(), 8 * 500);
}

/// The first job leaves no room for another one, whatever the slots.
#[tokio::test]
async fn jobs_wait_while_a_running_one_takes_all_memory() {
    let (world, registry) = (World::new(), Registry::default());
    world.register((0..500).map(device)).await;
    let pool = pool("main", "app", 1000);
    let sender = world.start_measured(SenderConfig { job_bytes_max: 1, ..config() }, vec![pool.clone()], &registry);
    let mut last = JournalPosition(0);
    for index in 0..8 {
        last = world.accept(goal(&format!("goal-{index}"))).await;
    }
    let one = Backlog { events_waiting: 7, jobs_running: 1, devices_in_flight: 4 * 16 };
    until("one runs", || sender.backlog() == one).await;
    let bytes = registry.gauge(&metrics::sender::JOB_BYTES, &[]);
    assert!((80_000..500_000).contains(&bytes.value()), "{}", bytes.value());
    let mut provider = Automatic::accepting(&pool, &sender);
    finished(&sender, last).await;
    until("the sender is idle", || sender.idle()).await;
    assert_eq!((provider.taken().len(), bytes.value()), (8 * 500, 0));
}

#[tokio::test]
async fn a_device_gone_between_selection_and_its_turn_is_counted_as_gone() {
    let world = World::new();
    world.register((0..100).map(device)).await;
    let pool = pool("main", "app", 1);
    let sender = world.start(config(), vec![pool.clone()]);
    let position = world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(1).await;
    world.store.delete_device(&device(99).id, Precondition::None).await.unwrap();
    let mut moved = device(98);
    (moved.token, moved.locale) = (Some(token(98, 1)), Locale::new("pl").unwrap());
    world.store.put_device(moved, PutTerms::default(), unix_now()).await.unwrap();
    provider.take(63).await; // All that may be in flight.
    provider.answer(64, Outcome::Accepted);
    provider.take(35).await;
    provider.answer(35, Outcome::Accepted);
    finished(&sender, position).await;
    let counts = sender.job(position).unwrap().counts;
    assert_eq!(counts.of(DeviceOutcome::Suppressed(Suppression::Gone)), 1);
    assert_eq!((counts.accepted(), counts.total()), (99, 100));
    let last = provider.taken.iter().find(|taken| addressee(taken) == 98).unwrap();
    assert_eq!(last.token, token(98, 1), "the record at its turn holds the truth");
    assert_eq!(text(last)["aps"]["alert"]["title"], "Gol dla Vega!");
}

#[tokio::test]
async fn long_event_ids_give_collapse_ids_within_the_limit_and_own_keys_are_kept() {
    let world = World::new();
    world.register([device(0)]).await;
    let pool = pool("main", "app", 5);
    let sender = world.start(config(), vec![pool.clone()]);
    let (mut provider, key) = (Gateway::new(&pool, &sender), CollapseKey::new("score").unwrap());
    let mut keyed = goal("keyed");
    keyed.collapse_key = Some(key.clone());
    for event in [goal(&"x".repeat(65)), goal(&"x".repeat(66)), keyed] {
        world.accept(event).await;
        provider.take(1).await;
        provider.answer(1, Outcome::Accepted);
    }
    let ids: Vec<_> = provider.taken.iter().map(|taken| taken.rendering.parts().collapse_id.clone()).collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!((ids[0].as_str().len(), &ids[2]), (36, &key));
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let world = World::new();
    let start = |config, pools| world.try_start(config, pools).unwrap_err().to_string();
    let two = vec![pool("one", "app", 1), pool("two", "app", 1)];
    assert_eq!(start(config(), two), "the app app (Production) is in two pools: one and two");
    let none = SenderConfig { job_count_max: 0, ..config() };
    assert_eq!(start(none, Vec::new()), "job_count_max must be 1 to 1000000, got 0");
    let position = world.accept(goal("goal")).await;
    let row = br#"{"version":9}"#.to_vec();
    world.store.put_jobs(vec![(position, row)], None).await.unwrap();
    assert_eq!(start(config(), Vec::new()), "job 1 has version 9, this version reads 1 to 4");
    let row = br#"{"version":1,"state":"running","next":0,"outstanding":"OjAAAAAAAAA=","counts":{},"latency":null}"#;
    world.store.put_jobs(vec![(position, Vec::new()), (JournalPosition(50), row.to_vec())], None).await.unwrap();
    assert!(start(config(), Vec::new()).starts_with("job 1 is damaged"));
    world.store.remove_jobs(vec![position]).await.unwrap();
    let error = world.try_start(config(), Vec::new()).unwrap_err();
    assert!(matches!(error, StartError::EventMissing(JournalPosition(50))), "{error}");
}

#[tokio::test]
async fn a_closed_lake_neither_spins_nor_loses_devices() {
    let world = World::new();
    world.register((0..50).map(device)).await;
    let pool = pool("main", "app", 5);
    let sender = world.start(config(), vec![pool.clone()]);
    let position = world.accept(goal("goal")).await;
    until("the lake is full", || lake(&pool).counters().held == 5).await;
    lake(&pool).close();
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(5).await;
    provider.answer(5, Outcome::Accepted);
    let drained = soon("drained", sender.drain(Instant::now() + Duration::from_secs(10))).await;
    assert!(drained.checkpointed);
    assert_eq!(drained.devices_in_flight, 0);
    assert_eq!(sender.job(position).unwrap().counts.total(), 5);
}
