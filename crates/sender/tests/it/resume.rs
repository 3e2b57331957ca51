//! Several runs: what a crash repeats, what draining saves, and that nothing is skipped.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use tidings_push::{Notification, Outcome};
use tidings_sender::SenderConfig;
use tidings_telemetry::unix_now;
use tidings_types::{AppId, JobState, JournalPosition, Timestamp};
use tokio::time::Instant;

use crate::world::{Automatic, Gateway, World, addressee, config, device, goal, pool, soon, until};

const DEVICE_COUNT: usize = 150;

fn addressees(taken: &[Notification]) -> BTreeSet<usize> {
    taken.iter().map(addressee).collect()
}

/// After the first one, no checkpoint is written but that of draining.
fn only_last_checkpoint() -> SenderConfig {
    SenderConfig { checkpoint_interval: Duration::from_secs(3600), ..config() }
}

/// How a run ends in the middle.
#[derive(Debug, Clone)]
struct Crash {
    /// Answered, and seen in a checkpoint.
    checkpointed: usize,
    /// Answered just before the end.
    answered: usize,
    /// Taken, never answered.
    taken: usize,
}

fn crash() -> impl Strategy<Value = Crash> {
    // Together within what is surely in flight without an answer: all windows but one.
    (0..48_usize, 0..20_usize, 0..20_usize).prop_map(|(checkpointed, answered, taken)| Crash {
        checkpointed,
        answered,
        taken,
    })
}

/// Runs until the crash; returns what was answered before the last certain checkpoint, and what later.
async fn run_until(
    crash: &Crash,
    world: &World,
    position: JournalPosition,
    accepted_before: usize,
) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let pool = pool("main", "app", 30);
    let sender = world.start(config(), vec![pool.clone()]);
    let mut provider = Gateway::new(&pool, &sender);
    provider.take(crash.checkpointed).await;
    let safe = addressees(&provider.held);
    provider.answer(crash.checkpointed, Outcome::Accepted);
    let accepted = accepted_before as u64 + crash.checkpointed as u64;
    until("the answers are checkpointed", || {
        let row = world.row(position);
        row.is_some_and(|row| row["counts"]["accepted"].as_u64().unwrap_or(0) >= accepted)
    })
    .await;
    provider.take(crash.answered + crash.taken).await;
    let late = addressees(&provider.held[..crash.answered]);
    provider.answer(crash.answered, Outcome::Accepted);
    drop(sender); // No last checkpoint: as if it was killed here.
    assert_eq!(provider.into_taken().len(), crash.checkpointed + crash.answered + crash.taken, "each taken once");
    (safe, late)
}

proptest! {
    // A run that hangs is found by its deadline: few steps of shrinking, or it takes hours.
    #![proptest_config(ProptestConfig { cases: 10, max_shrink_iters: 8, ..ProptestConfig::default() })]

    #[test]
    fn after_crashes_nobody_is_skipped_and_only_what_was_open_is_repeated(first in crash(), second in crash()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            world.register((0..DEVICE_COUNT).map(device)).await;
            let position = world.accept(goal("goal")).await;
            let (mut done, mut maybe) = (BTreeSet::new(), BTreeSet::new());
            for crash in [&first, &second] {
                let open = DEVICE_COUNT - done.len() - maybe.len();
                let crash = Crash {
                    checkpointed: crash.checkpointed.min(open / 2),
                    answered: crash.answered.min(open / 4),
                    taken: crash.taken.min(open / 4),
                };
                // Of the late answers of the last run, some or none were in its last checkpoint.
                let counted = world.row(position).map_or(0, |row| row["counts"]["accepted"].as_u64().unwrap_or(0));
                let (safe, late) = run_until(&crash, &world, position, counted as usize).await;
                assert!(done.is_disjoint(&safe) && done.is_disjoint(&late), "what is checkpointed is not repeated");
                done.extend(safe);
                maybe.extend(late);
                maybe.retain(|index| !done.contains(index));
                world = world.restarted().await;
            }
            let pool = pool("main", "app", 30);
            let sender = world.start(config(), vec![pool.clone()]);
            let mut provider = Automatic::accepting(&pool, &sender);
            until("the job finishes", || sender.idle()).await;
            let taken = provider.taken();
            let told = addressees(&taken);
            assert_eq!(told.len(), taken.len(), "each once");
            assert!(told.is_disjoint(&done), "what is checkpointed is not repeated");
            let all: BTreeSet<usize> = &(&told | &done) | &maybe;
            assert_eq!(all.len(), DEVICE_COUNT, "nobody is skipped");
            let report = sender.job(position).unwrap();
            assert_eq!(report.counts.accepted(), DEVICE_COUNT as u64, "each device is counted once over all runs");
            assert_eq!((report.audience, report.counts.total()), (DEVICE_COUNT as u64, DEVICE_COUNT as u64));
        });
    }
}

#[tokio::test]
async fn draining_waits_for_answers_and_nothing_is_repeated() {
    let world = World::new();
    world.register((0..DEVICE_COUNT).map(device)).await;
    let lake = pool("main", "app", 10);
    let sender = world.start(only_last_checkpoint(), vec![lake.clone()]);
    let position = world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&lake, &sender);
    provider.take(20).await;
    let drain = sender.drain(Instant::now() + Duration::from_secs(20));
    let gateway = async {
        // The lane gives up its place in line, so the lake runs dry and stays so.
        until("nothing new is handed out", || {
            provider.try_take(100);
            provider.answer(provider.held.len(), Outcome::Accepted);
            sender.backlog().devices_in_flight == 0
        })
        .await;
    };
    let (drained, ()) = soon("drained", async { tokio::join!(drain, gateway) }).await;
    assert!(drained.checkpointed);
    assert_eq!(drained.devices_in_flight, 0);
    let first = provider.into_taken();
    assert!(first.len() < DEVICE_COUNT, "it stopped in the middle");
    drop(sender);

    let world = world.restarted().await;
    let sender = world.start(config(), vec![lake.clone()]);
    let mut rest = Automatic::accepting(&lake, &sender);
    until("the job finishes", || sender.idle()).await;
    let second = rest.taken();
    assert_eq!(first.len() + second.len(), DEVICE_COUNT, "nothing is repeated");
    assert_eq!((&addressees(&first) | &addressees(&second)).len(), DEVICE_COUNT);
    let report = sender.job(position).unwrap();
    assert_eq!(report.counts.accepted(), DEVICE_COUNT as u64);
    assert!(report.time_to.is_some());
}

#[tokio::test]
async fn what_has_no_answer_by_the_deadline_is_handed_out_again() {
    let world = World::new();
    world.register((0..20).map(device)).await;
    let lake = pool("main", "app", 100);
    let sender = world.start(only_last_checkpoint(), vec![lake.clone()]);
    world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&lake, &sender);
    provider.take(20).await;
    provider.answer(15, Outcome::Accepted);
    let drained = soon("drained", sender.drain(Instant::now() + Duration::from_millis(20))).await;
    assert!(drained.checkpointed);
    assert_eq!(drained.devices_in_flight, 5);
    let open = addressees(&provider.held);
    drop((sender, provider));
    let world = world.restarted().await;
    let sender = world.start(config(), vec![lake.clone()]);
    let mut rest = Automatic::accepting(&lake, &sender);
    until("the job finishes", || sender.idle()).await;
    assert_eq!(addressees(&rest.taken()), open);
}

#[tokio::test]
async fn the_last_reports_survive_and_older_ones_go() {
    let world = World::new();
    world.register((0..3).map(device)).await;
    let lake = pool("main", "app", 100);
    let config = SenderConfig { report_count_max: 4, ..config() };
    let sender = world.start(config.clone(), vec![lake.clone()]);
    let _provider = Automatic::accepting(&lake, &sender);
    let mut positions = Vec::new();
    for index in 0..20 {
        positions.push(world.accept(goal(&format!("goal-{index}"))).await);
    }
    until("only the last four are kept, and all is checkpointed", || {
        let rows = world.store.jobs().unwrap();
        let finished = |row: &[u8]| String::from_utf8_lossy(row).contains(r#""state":"finished""#);
        let dispatched = world.store.dispatched().unwrap();
        rows.len() == 4 && rows.iter().all(|(_, row)| finished(row)) && dispatched.0 == positions[19].0 + 1
    })
    .await;
    let last = sender.job(positions[19]).unwrap();
    drop(sender);
    let world = world.restarted().await;
    let sender = world.start(config, vec![lake]);
    assert!(sender.idle(), "nothing is left to do");
    assert_eq!(sender.job(positions[19]), Some(last));
    assert_eq!(sender.job(positions[0]), None);
    assert_eq!(sender.job(JournalPosition(99)), None);
}

#[tokio::test]
async fn a_smaller_bound_of_reports_holds_from_the_start_on() {
    let world = World::new();
    world.register((0..3).map(device)).await;
    let lake = pool("main", "app", 100);
    let sender = world.start(config(), vec![lake.clone()]);
    let provider = Automatic::accepting(&lake, &sender);
    let mut positions = Vec::new();
    for index in 0..12 {
        positions.push(world.accept(goal(&format!("goal-{index}"))).await);
    }
    until("all are finished", || sender.idle()).await;
    soon("drained", sender.drain(Instant::now() + Duration::from_secs(10))).await;
    drop((sender, provider));
    let world = world.restarted().await;
    assert_eq!(world.store.jobs().unwrap().len(), 12);
    let sender = world.start(SenderConfig { report_count_max: 2, ..config() }, vec![lake.clone()]);
    until("the last two are left", || world.store.jobs().unwrap().len() == 2).await;
    until("memory forgets them too", || sender.jobs(None, 100).len() == 2).await;
    assert_eq!(sender.jobs(None, 1)[0].position, positions[11]);
    // More reports than twice the bound held up new jobs; they do no longer.
    let _provider = Automatic::accepting(&lake, &sender);
    world.accept(goal("another")).await;
    until("a new event is sent", || sender.idle()).await;
}

/// They have not gone on yet, but nobody has forgotten them.
#[tokio::test]
async fn jobs_that_wait_for_their_turn_after_a_restart_are_told_as_their_rows_say() {
    let world = World::new();
    world.register((0..10).map(device)).await;
    let lake = pool("main", "app", 100);
    let sender = world.start(config(), vec![lake.clone()]);
    let mut positions = Vec::new();
    for name in ["first", "second", "third"] {
        positions.push(world.accept(goal(name)).await);
    }
    let mut provider = Gateway::new(&lake, &sender);
    provider.take(30).await;
    provider.held.retain(|held| addressee(held) < 4 && held.ticket.job != positions[0]);
    provider.answer(8, Outcome::Accepted);
    soon("drained", sender.drain(Instant::now())).await;
    drop((sender, provider));
    let world = world.restarted().await;
    let lake = pool("main", "app", 1);
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, vec![lake.clone()]);
    until("the first goes on", || sender.backlog().jobs_running == 1).await;
    for (&position, accepted) in positions.iter().zip([0, 4, 4]) {
        let report = sender.job(position).unwrap();
        assert_eq!((report.position, report.state, report.held), (position, JobState::Running, 0));
        assert_eq!((report.audience, report.counts.accepted()), (10, accepted));
        assert_eq!(report.time_to.is_some(), accepted > 0);
    }
    let listed = |before: Option<usize>, limit| -> Vec<JournalPosition> {
        let before = before.map(|index| positions[index]);
        sender.jobs(before, limit).iter().map(|report| report.position).collect()
    };
    let [first, second, third] = positions[..] else { panic!("three") };
    assert_eq!((listed(None, 10), listed(None, 1)), (vec![third, second, first], vec![third]));
    assert_eq!((listed(Some(2), 10), listed(Some(1), 10)), (vec![second, first], vec![first]));
    let _provider = Automatic::accepting(&lake, &sender);
    until("all are finished", || sender.idle()).await;
    let accepted = |position: &JournalPosition| sender.job(*position).unwrap().counts.accepted();
    assert!(positions.iter().all(|position| accepted(position) == 10));
}

/// The store does not remember what it was told, and a sender without new events says nothing more: without a word at
/// the start the journal would stay as it is.
#[tokio::test]
async fn after_a_restart_the_store_is_told_what_it_may_forget() {
    let world = World::new();
    world.register((0..3).map(device)).await;
    let lake = pool("main", "app", 100);
    let sender = world.start(config(), vec![lake.clone()]);
    let provider = Automatic::accepting(&lake, &sender);
    let done = world.accept_at(goal("done"), Timestamp(unix_now().as_millis() - 60_000)).await;
    until("it is finished", || sender.idle()).await;
    soon("drained", sender.drain(Instant::now() + Duration::from_secs(10))).await;
    drop((sender, provider));
    let world = world.restarted_with(Duration::from_secs(1)).await;
    assert!(world.store.event(done).unwrap().is_some());
    let _sender = world.start(config(), vec![lake]);
    world.register([device(9)]).await; // The store learns the time from what it is asked.
    until("what is done is gone", || world.store.event(done).unwrap().is_none()).await;
}

/// The pools were renamed and one is gone: rows do not name pools, so jobs find their way.
#[tokio::test]
async fn a_job_goes_on_with_other_pools_than_it_began_with() {
    let world = World::new();
    world
        .register((0..40).map(|index| {
            let mut device = device(index);
            device.app = AppId::new(["app", "other"][index % 2]).unwrap();
            device
        }))
        .await;
    let (one, two) = (pool("one", "app", 5), pool("two", "other", 5));
    let sender = world.start(config(), vec![one.clone(), two]);
    let position = world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&one, &sender);
    provider.take(10).await;
    provider.answer(10, Outcome::Accepted);
    until("ten are checkpointed", || {
        world.row(position).is_some_and(|row| row["counts"]["accepted"].as_u64() == Some(10))
    })
    .await;
    drop((sender, provider));
    let world = world.restarted().await;
    let both = {
        let mut both = pool("both", "app", 5);
        both.apps.push(AppId::new("other").unwrap());
        both
    };
    let sender = world.start(SenderConfig { job_count_max: 1, ..config() }, vec![both.clone()]);
    let mut rest = Automatic::accepting(&both, &sender);
    until("the job finishes", || sender.job(position).is_some_and(|job| job.state == JobState::Finished)).await;
    assert_eq!(rest.taken().len(), 30);
    assert_eq!(sender.job(position).unwrap().counts.accepted(), 40);
}

#[tokio::test]
async fn what_a_crash_left_open_expires_like_the_rest() {
    let world = World::new();
    world.register((0..DEVICE_COUNT).map(device)).await;
    let lake = pool("main", "app", 10);
    let sender = world.start(config(), vec![lake.clone()]);
    let mut event = goal("short");
    event.ttl = Duration::from_secs(2);
    let accepted_at = Timestamp(unix_now().as_millis() - 500);
    let position = world.accept_at(event, accepted_at).await;
    let mut provider = Gateway::new(&lake, &sender);
    provider.take(4).await;
    provider.answer(4, Outcome::Accepted);
    until("four are checkpointed", || {
        world.row(position).is_some_and(|row| row["counts"]["accepted"].as_u64() == Some(4))
    })
    .await;
    drop((sender, provider));
    let world = world.restarted().await;
    until("its time is over", || unix_now().saturating_since(accepted_at) > Duration::from_secs(2)).await;
    let sender = world.start(config(), vec![pool("main", "app", 10)]);
    until("the job finishes", || sender.idle()).await;
    let counts = sender.job(position).unwrap().counts;
    assert_eq!((counts.accepted(), counts.total()), (4, DEVICE_COUNT as u64));
    assert_eq!(counts.expired(), DEVICE_COUNT as u64 - 4);
}

#[tokio::test]
async fn a_store_that_takes_no_writes_does_not_stop_what_is_running() {
    let world = World::new();
    world.register((0..DEVICE_COUNT).map(device)).await;
    let lake = pool("main", "app", 10);
    let sender = world.start(config(), vec![lake.clone()]);
    let position = world.accept(goal("goal")).await;
    let mut provider = Gateway::new(&lake, &sender);
    provider.take(1).await;
    soon("closed", world.store.close()).await;
    provider.answer(1, Outcome::Accepted);
    for _ in 1..DEVICE_COUNT {
        provider.take(1).await;
        provider.answer(1, Outcome::Accepted);
    }
    until("the job finishes", || sender.job(position).is_some_and(|job| job.state == JobState::Finished)).await;
    let drained = soon("drained", sender.drain(Instant::now())).await;
    assert!(!drained.checkpointed, "the last checkpoint was not written, and that is said");
}
