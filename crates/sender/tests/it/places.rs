//! Few places and many events: who gets one, who loses it, and that all come to their end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidings_gettext::Template;
use tidings_push::{Notification, Outcome};
use tidings_sender::{DeviceOutcome, JobReport, Pool, Sender, SenderConfig, TopicTemplates, Topics};
use tidings_store::NewDevice;
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    AppId, BrakeScope, CollapseKey, Event, EventPriority, JobState, JournalPosition, Present, PushPolicy,
    ReceiptPolicy, Subject, TopicName,
};

use crate::totals::sum;
use crate::world::{
    Automatic, Gateway, World, addressee, config, current, device, goal, lake, pool, quiet_goal, until,
};

const PLACES: usize = 3;

fn few_places() -> SenderConfig {
    SenderConfig { job_count_max: PLACES, ..config() }
}

async fn done(sender: &Sender, position: JournalPosition) -> JobReport {
    until("the job is over", || sender.job(position).is_some_and(|job| job.done_at.is_some())).await;
    sender.job(position).unwrap()
}

fn paused() -> BrakeScope {
    BrakeScope::App(AppId::new("paused").unwrap())
}

/// Each app has a pool of its own and devices that follow a subject of its own: one, or `per_app`.
async fn world(apps: &[&str], per_app: usize) -> (World, Vec<Pool>) {
    let world = World::new();
    for (place, app) in apps.iter().enumerate() {
        let of_app = |index: usize| NewDevice { app: AppId::new(app).unwrap(), ..device(100 * place + index) };
        let (one, all) = (format!("one:{app}"), format!("all:{app}"));
        world.register_for((0..1).map(of_app), &[&one, &all]).await;
        world.register_for((1..per_app).map(of_app), &[&all]).await;
    }
    (world, apps.iter().map(|app| pool(app, app, 4)).collect())
}

fn event(id: &str, subject: &str, priority: EventPriority) -> Event {
    let subjects = vec![Subject::new(subject).unwrap()];
    Event { subjects, priority, ..goal(id) }
}

fn normal(id: &str, subject: &str) -> Event {
    event(id, subject, EventPriority::Normal)
}

/// More newsletters than places to a paused app, and more events than places to a dead provider: large ones, and small
/// ones that disappear in its lake, or wait for both.
#[tokio::test]
async fn a_goal_is_sent_behind_any_number_of_paused_jobs_and_jobs_of_a_dead_provider() {
    let (world, pools) = world(&["paused", "dead", "alive"], 20).await;
    world.store.pause(paused(), unix_now()).await.unwrap();
    let sender = world.start(few_places(), pools.clone());
    let mut alive = Automatic::accepting(&pools[2], &sender);
    let mut stuck = Vec::new();
    for index in 0..3 * PLACES {
        stuck.push((20, world.accept(normal(&format!("paused-{index}"), "all:paused")).await));
        stuck.push((1, world.accept(normal(&format!("small-{index}"), "one:dead")).await));
        let mut both = normal(&format!("both-{index}"), "one:dead");
        both.subjects.push(Subject::new("one:paused").unwrap());
        stuck.push((2, world.accept(both).await));
        stuck.push((20, world.accept(normal(&format!("dead-{index}"), "all:dead")).await));
    }
    let goal = world.accept(normal("goal", "all:alive")).await;
    assert_eq!(done(&sender, goal).await.counts.accepted(), 20);
    assert!(stuck.iter().all(|(_, position)| sender.job(*position).is_none_or(|job| job.done_at.is_none())));
    assert_eq!(lake(&pools[0]).counters().accepted, 0);
    // And another, when all have settled.
    let newest = stuck.last().unwrap().1;
    until("the last of them has its turn", || sender.job(newest).is_some()).await;
    let goal = world.accept(normal("another-goal", "all:alive")).await;
    assert_eq!(done(&sender, goal).await.counts.accepted(), 20);
    assert_eq!(alive.taken().len(), 40);
    // Both come back, and everybody is told.
    let _dead = Automatic::accepting(&pools[1], &sender);
    world.store.resume(paused()).await.unwrap();
    let _paused = Automatic::accepting(&pools[0], &sender);
    for (audience, position) in stuck {
        let report = done(&sender, position).await;
        assert_eq!((report.counts.accepted(), report.counts.total()), (audience, audience));
    }
    until("nothing is left", || sender.idle()).await;
}

/// They can hand something out, but are not urgent.
#[tokio::test]
async fn a_more_urgent_event_takes_the_place_of_a_less_urgent_one_which_comes_back() {
    let (world, pools) = world(&["slow", "alive"], 40).await;
    let sender = world.start(few_places(), pools.clone());
    let mut slow = Gateway::of(pools[0].lakes.of(EventPriority::Low), &sender);
    let mut quick = Gateway::of(pools[1].lakes.of(EventPriority::High), &sender);
    let mut newsletters = Vec::new();
    for index in 0..10 * PLACES {
        let newsletter = event(&format!("newsletter-{index}"), "all:slow", EventPriority::Low);
        newsletters.push(world.accept(newsletter).await);
    }
    let mut goals = Vec::new();
    for index in 0..PLACES + 1 {
        let goal = event(&format!("goal-{index}"), "all:alive", EventPriority::High);
        goals.push(world.accept(goal).await);
        // The slow one moves one by one, and less than a newsletter in all: none can be done before a goal.
        until("the goal is sent", || {
            if slow.taken.len() < 39 {
                slow.try_take(1);
            }
            slow.answer(slow.held.len(), Outcome::Accepted);
            quick.try_take(100);
            quick.answer(quick.held.len(), Outcome::Accepted);
            sender.job(goals[index]).is_some_and(|job| job.done_at.is_some())
        })
        .await;
        assert!(!newsletters.iter().any(|&position| sender.job(position).is_some_and(|job| job.done_at.is_some())));
    }
    until("all newsletters are", || {
        slow.try_take(100);
        slow.answer(slow.held.len(), Outcome::Accepted);
        sender.idle()
    })
    .await;
    assert_eq!(slow.taken.len(), newsletters.len() * 40, "each once");
    assert!(newsletters.iter().all(|&position| sender.job(position).unwrap().counts.accepted() == 40));
}

/// Killed while jobs are parked that have begun, and that have not.
#[tokio::test]
async fn parked_jobs_survive_a_crash_and_are_told_once() {
    let (world, pools) = world(&["paused", "alive"], 20).await;
    let sender = world.start(few_places(), pools.clone());
    let mut provider = Gateway::new(&pools[0], &sender);
    let first = world.accept(normal("first", "all:paused")).await;
    provider.take(6).await;
    provider.answer(6, Outcome::Accepted);
    let told: Vec<usize> = provider.taken.iter().map(addressee).collect();
    world.store.pause(paused(), unix_now()).await.unwrap();
    until("the rest comes back", || {
        provider.try_take(10);
        provider.answer(provider.held.len(), Outcome::Accepted);
        sender.backlog().devices_in_flight == 0
    })
    .await;
    let before = sender.job(first).unwrap().counts.accepted();
    let mut positions = Vec::new();
    for index in 0..5 * PLACES {
        positions.push(world.accept(normal(&format!("paused-{index}"), "all:paused")).await);
    }
    until("all are in rows, and most of them parked", || {
        let backlog = sender.backlog();
        positions.iter().all(|&position| world.row(position).is_some()) && backlog.jobs_running <= PLACES as u64
    })
    .await;
    until("the first is checkpointed", || {
        world.row(first).is_some_and(|row| row["counts"]["accepted"].as_u64() == Some(before))
    })
    .await;
    assert_eq!(sender.job(first).map(|job| (job.state, job.audience)), Some((JobState::Paused, 20)));
    drop((sender, provider));
    let world = world.restarted().await;
    let pools = [pool("paused", "paused", 4), pool("alive", "alive", 4)];
    let sender = world.start(few_places(), pools.to_vec());
    let _alive = Automatic::accepting(&pools[1], &sender);
    let goal = world.accept(normal("goal", "all:alive")).await;
    assert_eq!(done(&sender, goal).await.counts.accepted(), 20);
    world.store.resume(paused()).await.unwrap();
    let mut provider = Automatic::accepting(&pools[0], &sender);
    for &position in positions.iter().chain([&first]) {
        let report = done(&sender, position).await;
        assert_eq!((report.counts.accepted(), report.counts.total()), (20, 20));
    }
    let taken = provider.taken();
    assert_eq!(taken.len() as u64, 20 * positions.len() as u64 + 20 - before);
    let again = taken.iter().filter(|taken| taken.ticket.job == first).map(addressee);
    assert!(told.iter().all(|told| again.clone().all(|again| again != *told)), "what is checkpointed is not repeated");
}

/// A job that holds somebody back for a minute has the only place, and cannot be put aside.
#[tokio::test]
async fn events_that_found_no_place_survive_a_crash_in_the_order_of_their_priority() {
    let (world, pools) = world(&["held", "alive"], 5).await;
    let one = SenderConfig { job_count_max: 1, ..config() };
    let sender = world.start(one.clone(), pools.clone());
    world.connect(0..1);
    let mut held = quiet_goal("held", Duration::from_secs(60));
    held.subjects = vec![Subject::new("one:held").unwrap()];
    let held = world.accept_ahead(held).await;
    until("it holds its device", || sender.job(held).is_some_and(|job| job.held == 1)).await;
    let mut positions = Vec::new();
    for (index, priority) in [EventPriority::Low, EventPriority::Normal].into_iter().cycle().take(6).enumerate() {
        positions.push(world.accept(event(&format!("event-{index}"), "all:alive", priority)).await);
    }
    let is_parked = |position: &JournalPosition| {
        world.row(*position).is_some() && sender.job(*position).is_some_and(|job| job.audience == 0)
    };
    until("all have a row, and none has begun", || positions.iter().all(is_parked)).await;
    until("the store knows", || world.store.dispatched().unwrap().0 == positions[5].0 + 1).await;
    assert_eq!((sender.backlog().events_waiting, sender.idle()), (6, false));
    drop(sender);
    let world = world.restarted().await;
    let pools = [pool("held", "held", 4), pool("alive", "alive", 4)];
    let sender = world.start(one, pools.to_vec());
    let mut normal = Gateway::of(pools[1].lakes.of(EventPriority::Normal), &sender);
    assert!(sender.backlog().events_waiting >= 6);
    normal.accept(15).await;
    let (mut low, mut first) =
        (Gateway::of(pools[1].lakes.of(EventPriority::Low), &sender), Gateway::new(&pools[0], &sender));
    first.accept(1).await;
    low.accept(15).await;
    for position in positions {
        assert_eq!(done(&sender, position).await.counts.accepted(), 5);
    }
    assert_eq!(done(&sender, held).await.counts.accepted(), 1);
}

/// Texts are replaced while a job that has told some of its devices has lost the only place.
#[tokio::test]
async fn a_job_that_lost_its_place_goes_on_with_the_texts_that_it_began_with() {
    let (world, pools) = world(&["paused"], 20).await;
    let (topics, registry) = (current(), Registry::new());
    let one = SenderConfig { job_count_max: 1, ..config() };
    let sender = world.start_telling(one, pools.clone(), topics.clone(), &registry);
    let mut provider = Gateway::new(&pools[0], &sender);
    let first = world.accept(normal("first", "all:paused")).await;
    provider.take(6).await;
    provider.answer(6, Outcome::Accepted);
    world.store.pause(paused(), unix_now()).await.unwrap();
    until("the rest comes back", || {
        provider.try_take(10);
        provider.answer(provider.held.len(), Outcome::Accepted);
        sender.backlog().devices_in_flight == 0
    })
    .await;
    let second = world.accept(normal("second", "all:paused")).await;
    until("the first is put aside", || sum(&[&registry], "tidings_sender_jobs_put_aside_total") > 0).await;
    let template = |text: &str| Template::new(None, text, None).unwrap();
    let goal = TopicTemplates {
        title: template("New words"),
        body: template("-"),
        domain: "match".to_owned(),
        present: Present::default(),
        told_only_in: None,
    };
    let goal = BTreeMap::from([(TopicName::new("goal").unwrap(), goal)]);
    topics.replace(Arc::new(Topics::new(goal, BTreeMap::new())));
    world.store.resume(paused()).await.unwrap();
    let mut again = Automatic::accepting(&pools[0], &sender);
    for position in [first, second] {
        assert_eq!(done(&sender, position).await.counts.accepted(), 20);
    }
    let taken: Vec<_> = provider.taken.into_iter().chain(again.taken()).collect();
    let is_new = |notification: &Notification| {
        serde_json::from_slice::<Value>(notification.rendering.payload()).unwrap()["aps"]["alert"]["title"]
            == "New words"
    };
    for (position, expected) in [(first, false), (second, true)] {
        let of_job = || taken.iter().filter(|taken| taken.ticket.job == position);
        assert_eq!((of_job().count(), of_job().all(|taken| is_new(taken) == expected)), (20, true), "{expected}");
    }
}

/// Of the parked, begun or not, one is cancelled and one expires, while nothing else can move.
#[tokio::test]
async fn a_parked_job_ends_when_it_is_cancelled_or_its_time_is_over() {
    let (world, pools) = world(&["paused"], 20).await;
    world.store.pause(paused(), unix_now()).await.unwrap();
    let sender = world.start(few_places(), pools.clone());
    let (mut short, mut cancelled, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..4 * PLACES {
        let mut event = normal(&format!("event-{index}"), "all:paused");
        event.ttl = Duration::from_secs(if index % 3 == 0 { 2 } else { 3600 });
        let positions = [&mut short, &mut cancelled, &mut kept];
        let position = world.accept(event).await;
        positions.into_iter().nth(index % 3).unwrap().push(position);
    }
    let newest = *kept.last().unwrap();
    until("all have begun or are parked", || sender.job(newest).is_some()).await;
    until("most are parked", || sender.backlog().jobs_running <= PLACES as u64).await;
    for &position in &cancelled {
        assert!(world.store.cancel(position).await.unwrap());
    }
    for &position in &cancelled {
        let report = done(&sender, position).await;
        assert_eq!((report.state, report.counts.of(DeviceOutcome::Cancelled)), (JobState::Cancelled, 20));
    }
    for &position in &short {
        let report = done(&sender, position).await;
        assert_eq!((report.state, report.counts.expired()), (JobState::Finished, 20));
    }
    assert!(kept.iter().all(|&position| sender.job(position).is_some_and(|job| job.state == JobState::Paused)));
    assert_eq!(lake(&pools[0]).counters().accepted, 0);
}

/// The newer one is more urgent and begins first; the older one comes back to those that the newer one is not for.
#[tokio::test]
async fn a_newer_event_takes_over_from_parked_ones_that_have_begun_or_not() {
    let (world, pools) = world(&["dead", "alive"], 20).await;
    let key = |event: Event| Event { collapse_key: Some(CollapseKey::new("score").unwrap()), ..event };
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, pools.clone());
    let mut low = Gateway::of(pools[0].lakes.of(EventPriority::Low), &sender);
    let mut high = Gateway::of(pools[1].lakes.of(EventPriority::High), &sender);
    let mut older = Vec::new();
    for index in 0..4 {
        let mut event = key(event(&format!("older-{index}"), "all:dead", EventPriority::Low));
        event.subjects.push(Subject::new("one:alive").unwrap());
        event.collapse_key = event.collapse_key.filter(|_| index > 0); // The first only takes the place.
        older.push(world.accept(event).await);
    }
    let newer = world.accept(key(event("newer", "all:alive", EventPriority::High))).await;
    until("the newer is told", || {
        high.try_take(100);
        high.answer(high.held.len(), Outcome::Accepted);
        sender.job(newer).is_some_and(|job| job.done_at.is_some())
    })
    .await;
    assert_eq!(sender.job(newer).unwrap().counts.accepted(), 20);
    let mut other = Gateway::of(pools[1].lakes.of(EventPriority::Low), &sender);
    until("all are done", || {
        for gateway in [&mut low, &mut other] {
            gateway.try_take(100);
            gateway.answer(gateway.held.len(), Outcome::Accepted);
        }
        sender.idle()
    })
    .await;
    // Of a key each one takes the dead app's devices from the one before it, if that was not told yet.
    for (index, &position) in older.iter().enumerate().skip(1) {
        let report = sender.job(position).unwrap();
        assert_eq!(report.counts.total(), 21);
        assert!(report.counts.of(DeviceOutcome::Superseded) >= 1, "older-{index} lost who the newer is for");
    }
    assert_eq!(other.taken.iter().filter(|taken| taken.ticket.job != older[0]).count(), 0);
}

/// Both cannot move, and the older one has nobody left.
#[tokio::test]
async fn a_parked_job_ends_when_a_newer_one_has_taken_all_of_it() {
    let (world, pools) = world(&["paused"], 20).await;
    world.store.pause(paused(), unix_now()).await.unwrap();
    let sender = world.start(few_places(), pools.clone());
    for index in 0..PLACES {
        world.accept(normal(&format!("first-{index}"), "all:paused")).await;
    }
    let key = |event: Event| Event { collapse_key: Some(CollapseKey::new("score").unwrap()), ..event };
    let older = world.accept(key(normal("older", "all:paused"))).await;
    until("it has begun", || sender.job(older).is_some_and(|job| job.audience > 0)).await;
    until("the youngest is parked", || sender.backlog().jobs_running <= PLACES as u64).await;
    let newer = world.accept(key(normal("newer", "all:paused"))).await;
    let report = done(&sender, older).await;
    assert_eq!((report.counts.of(DeviceOutcome::Superseded), report.counts.total()), (20, 20));
    until("the newer waits", || sender.job(newer).is_some_and(|job| job.state == JobState::Paused)).await;
}

/// Who was let go is pushed, whatever comes later; as if the job had kept its place.
#[tokio::test]
async fn receipts_do_not_count_any_more_of_a_job_that_was_put_aside() {
    let (world, pools) = world(&["paused"], 20).await;
    world.store.pause(paused(), unix_now()).await.unwrap();
    world.connect(0..5);
    let sender = world.start(few_places(), pools.clone());
    for index in 0..PLACES {
        world.accept(normal(&format!("first-{index}"), "all:paused")).await;
    }
    let mut quiet = quiet_goal("quiet", Duration::from_millis(100));
    quiet.subjects = vec![Subject::new("all:paused").unwrap()];
    let quiet = world.accept(quiet).await;
    until("it has begun", || sender.job(quiet).is_some_and(|job| job.audience > 0)).await;
    until("it is parked", || sender.backlog().jobs_running <= PLACES as u64).await;
    world.receive(quiet, 0..5);
    world.store.resume(paused()).await.unwrap();
    let _provider = Automatic::accepting(&pools[0], &sender);
    let counts = done(&sender, quiet).await.counts;
    assert_eq!((counts.received(), counts.accepted()), (0, 20));
}

/// The bound: what is over it waits in the journal and has no row, and goes on when there is room.
#[tokio::test]
async fn no_more_are_parked_than_may_be() {
    let (world, pools) = world(&["paused"], 1).await;
    world.store.pause(paused(), unix_now()).await.unwrap();
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, pools.clone());
    let mut positions = Vec::new();
    for index in 0..200 {
        positions.push(world.accept(normal(&format!("paused-{index}"), "one:paused")).await);
    }
    until("the lot is full", || world.store.jobs().unwrap().len() >= 64).await;
    let waiting = |sender: &Sender| sender.backlog().events_waiting;
    until("nothing moves", || sender.backlog().jobs_running == 15).await;
    assert!(world.store.jobs().unwrap().len() <= 64 + 15);
    assert!(waiting(&sender) >= 200 - 15);
    world.store.resume(paused()).await.unwrap();
    let mut provider = Automatic::accepting(&pools[0], &sender);
    until("all are told", || sender.idle()).await;
    assert_eq!(provider.taken().len(), 200);
    assert!(positions.iter().all(|&position| sender.job(position).unwrap().counts.accepted() == 1));
}

/// It waited without an audience: who has received it by the time it begins is not pushed.
#[tokio::test]
async fn receipts_count_of_an_event_that_found_no_place() {
    let (world, pools) = world(&["slow"], 20).await;
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, pools.clone());
    let mut provider = Gateway::new(&pools[0], &sender);
    let first = world.accept(normal("first", "all:slow")).await;
    provider.take(1).await;
    world.connect(0..5);
    let mut second = quiet_goal("second", Duration::from_secs(1));
    (second.subjects, second.priority) = (vec![Subject::new("all:slow").unwrap()], EventPriority::Low);
    second.receipt_policy = ReceiptPolicy::Any;
    let second = world.accept(second).await;
    world.receive(second, 0..5);
    until("all are told", || {
        provider.try_take(1);
        provider.answer(provider.held.len(), Outcome::Accepted);
        sender.job(first).is_some_and(|job| job.done_at.is_some())
    })
    .await;
    let mut low = Gateway::of(pools[0].lakes.of(EventPriority::Low), &sender);
    until("the second is told", || {
        low.try_take(10);
        low.answer(low.held.len(), Outcome::Accepted);
        sender.idle()
    })
    .await;
    let counts = sender.job(second).unwrap().counts;
    assert_eq!((counts.received(), counts.accepted()), (5, 15));
}

/// Answers that do not come, as of a provider whose notifications all wait for their repeat, need no places; there are
/// so many of them that a bound is reached, but not by more urgent events.
#[tokio::test]
async fn a_goal_is_sent_while_as_many_less_urgent_jobs_as_may_run_wait_for_answers() {
    let (world, pools) = world(&["silent", "alive"], 5).await;
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, pools.clone());
    let mut silent = Gateway::new(&pools[0], &sender);
    for index in 0..40 {
        world.accept(normal(&format!("silent-{index}"), "one:silent")).await;
    }
    until("no more may run", || {
        silent.try_take(100);
        let backlog = sender.backlog();
        (backlog.jobs_running, backlog.events_waiting, silent.held.len()) == (15, 25, 15)
    })
    .await;
    for index in 0..4 {
        let goal = world.accept(event(&format!("goal-{index}"), "all:alive", EventPriority::High)).await;
        Gateway::of(pools[1].lakes.of(EventPriority::High), &sender).accept(5).await;
        assert_eq!(done(&sender, goal).await.counts.accepted(), 5);
    }
    assert_eq!(sender.backlog().events_waiting, 25, "none of the others has taken its place");
    until("all are told", || {
        silent.try_take(100);
        silent.answer(silent.held.len(), Outcome::Accepted);
        sender.idle()
    })
    .await;
    assert_eq!(silent.taken.len(), 40);
}

/// It is given a place only by its age, and beside the only one, which is never free.
#[tokio::test]
async fn who_waits_longest_comes_to_its_turn_behind_more_urgent_ones_that_go_beside_the_places() {
    let (world, pools) = world(&["held", "slow", "alive"], 20).await;
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, pools.clone());
    world.connect(0..1);
    let mut held = quiet_goal("held", Duration::from_secs(60));
    held.subjects = vec![Subject::new("one:held").unwrap()];
    let held = world.accept_ahead(held).await;
    until("it holds its device", || sender.job(held).is_some_and(|job| job.held == 1)).await;
    let patient = world.accept(normal("patient", "one:alive")).await;
    let mut goals = Vec::new();
    for index in 0..40 {
        goals.push(world.accept(event(&format!("goal-{index}"), "all:slow", EventPriority::High)).await);
    }
    until("all have their turn", || sender.job(goals[39]).is_some()).await;
    let _alive = Automatic::accepting(&pools[2], &sender);
    let mut slow = Gateway::of(pools[1].lakes.of(EventPriority::High), &sender);
    until("the patient one is told", || {
        slow.try_take(10);
        slow.answer(slow.held.len(), Outcome::Accepted);
        sender.job(patient).is_some_and(|job| job.done_at.is_some())
    })
    .await;
    assert!(sender.job(held).is_some_and(|job| job.held == 1), "it still has the place");
}

/// The older one found no place; a newer one of its key has begun before it and taken one device. It still heeds
/// receipts. Another newer one that is not to be pushed takes nothing.
#[tokio::test]
async fn receipts_count_of_an_event_that_a_newer_one_took_from_before_it_began() {
    let (world, pools) = world(&["held", "alive"], 5).await;
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, pools.clone());
    world.connect([0, 101, 102]);
    let mut held = quiet_goal("held", Duration::from_secs(60));
    held.subjects = vec![Subject::new("one:held").unwrap()];
    let held = world.accept_ahead(held).await;
    until("it holds its device", || sender.job(held).is_some_and(|job| job.held == 1)).await;
    let key = |event: Event| Event { collapse_key: Some(CollapseKey::new("score").unwrap()), ..event };
    let mut older = key(quiet_goal("older", Duration::from_secs(60)));
    older.subjects = vec![Subject::new("all:alive").unwrap()];
    let older = world.accept_ahead(older).await;
    until("it is parked", || sender.job(older).is_some()).await;
    let mut live_only = key(event("live-only", "all:alive", EventPriority::High));
    live_only.push = PushPolicy::Never;
    let live_only = world.accept(live_only).await;
    done(&sender, live_only).await;
    assert_eq!(sender.job(older).map(|job| job.audience), Some(0), "it has no audience yet");
    let newer = world.accept(key(event("newer", "one:alive", EventPriority::High))).await;
    Gateway::of(pools[1].lakes.of(EventPriority::High), &sender).accept(1).await;
    assert_eq!(done(&sender, newer).await.counts.accepted(), 1);
    assert_eq!(sender.job(older).map(|job| (job.audience, job.counts.total())), Some((5, 1)));
    world.receive(held, 0..1);
    done(&sender, held).await;
    let mut provider = Gateway::new(&pools[1], &sender);
    provider.accept(2).await;
    until("it holds who may answer", || sender.job(older).is_some_and(|job| job.held == 2)).await;
    world.receive(older, 101..103);
    let counts = done(&sender, older).await.counts;
    assert_eq!((counts.received(), counts.accepted(), counts.of(DeviceOutcome::Superseded)), (2, 2, 1));
}

/// Whoever calls it off need not wait until it has a place.
#[tokio::test]
async fn an_event_without_a_place_is_known_and_can_be_cancelled() {
    let (world, pools) = world(&["held", "alive"], 5).await;
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, pools.clone());
    world.connect(0..1);
    let mut held = quiet_goal("held", Duration::from_secs(60));
    held.subjects = vec![Subject::new("one:held").unwrap()];
    let held = world.accept_ahead(held).await;
    until("it holds its device", || sender.job(held).is_some_and(|job| job.held == 1)).await;
    let waiting = world.accept(normal("waiting", "all:alive")).await;
    until("the store knows", || world.store.dispatched().unwrap() > waiting).await;
    assert_eq!(sender.job(waiting).map(|job| (job.state, job.audience)), Some((JobState::Running, 0)));
    assert!(sender.jobs(None, 10).iter().any(|job| job.position == waiting));
    assert!(world.store.cancel(waiting).await.unwrap());
    let report = done(&sender, waiting).await;
    assert_eq!((report.state, report.counts.of(DeviceOutcome::Cancelled)), (JobState::Cancelled, 5));
    assert_eq!(lake(&pools[1]).counters().accepted, 0);
}
