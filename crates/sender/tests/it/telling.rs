//! Telling somebody outside that a job is done: at least once, the same each time, and within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidings_sender::{JobReport, Sender, SenderConfig};
use tidings_types::{JournalPosition, PushPolicy};
use tokio::time::Instant;

use crate::world::{Automatic, World, config, device, goal, pool, soon, until};

fn telling() -> SenderConfig {
    SenderConfig { tell_finished: true, ..config() }
}

/// Accepts events that concern nobody: each is done at once.
async fn done(world: &World, names: impl IntoIterator<Item = String>) -> Vec<JournalPosition> {
    let mut positions = Vec::new();
    for name in names {
        let mut event = goal(&name);
        event.push = PushPolicy::Never;
        positions.push(world.accept(event).await);
    }
    positions
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("goal-{index}"))
}

/// Takes until there are `count`.
async fn take(sender: &Sender, count: usize) -> Vec<JournalPosition> {
    let mut taken = sender.take_untold(count);
    while taken.len() < count {
        soon("more to tell", sender.more_untold()).await;
        taken.extend(sender.take_untold(count - taken.len()));
    }
    taken.sort_unstable();
    taken
}

fn reports(sender: &Sender, positions: &[JournalPosition]) -> Vec<JobReport> {
    positions.iter().map(|&position| sender.untold(position).expect("it is still to be told")).collect()
}

/// Whether the rows of these jobs say so of telling.
fn all_say(world: &World, positions: &[JournalPosition], telling: &str) -> bool {
    positions.iter().all(|&position| world.row(position).is_some_and(|row| row["telling"] == telling))
}

#[tokio::test]
async fn a_job_is_told_once_its_row_says_that_it_is_to_be() {
    let world = World::new();
    world.register((0..3).map(device)).await;
    let lake = pool("main", "app", 100);
    let sender = world.start(telling(), vec![lake.clone()]);
    let provider = Automatic::accepting(&lake, &sender);
    let before = tidings_telemetry::unix_now();
    let pushed = world.accept(goal("pushed")).await;
    let quiet = done(&world, ["quiet".to_owned()]).await[0];
    let taken = take(&sender, 2).await;
    assert_eq!(taken, [pushed, quiet]);
    assert!(all_say(&world, &taken, "owed"), "it is in the row before anybody is told");
    let report = sender.untold(pushed).unwrap();
    assert_eq!(report.counts.accepted(), 3);
    let done_at = report.done_at.expect("it is done");
    assert!(report.accepted_at <= done_at && before <= done_at, "{report:?}");
    assert_eq!(sender.job(pushed), Some(report), "it is told what is told to those who ask");
    assert_eq!(sender.take_untold(10), [], "whoever took it has it");

    sender.told(pushed);
    sender.gave_up_telling(quiet);
    assert!(!sender.is_untold(pushed) && sender.untold(quiet).is_none());
    sender.gave_up_telling(pushed); // Nothing: it is told.
    until("the rows say so", || all_say(&world, &[pushed], "told") && all_say(&world, &[quiet], "given_up")).await;
    drop((sender, provider));
    let world = world.restarted().await;
    let sender = world.start(telling(), vec![]);
    assert_eq!(sender.take_untold(10), [], "a restart tells nobody again");
}

#[tokio::test]
async fn nobody_is_told_who_did_not_ask() {
    let world = World::new();
    let sender = world.start(config(), vec![]);
    let positions = done(&world, names(3)).await;
    until("they are done, on disk too", || {
        positions.iter().all(|&position| world.row(position).is_some_and(|row| row["state"] == "finished"))
    })
    .await;
    assert!(positions.iter().all(|&position| world.row(position).unwrap().get("telling").is_none()));
    drop(sender);
    let world = world.restarted().await;
    let sender = world.start(telling(), vec![]);
    assert_eq!(sender.take_untold(10), [], "what was done before does not count");
}

#[tokio::test]
async fn after_a_crash_everything_untold_comes_again_unchanged() {
    let world = World::new();
    world.register((0..3).map(device)).await;
    let lake = pool("main", "app", 100);
    let sender = world.start(telling(), vec![lake.clone()]);
    let provider = Automatic::accepting(&lake, &sender);
    for index in 0..5 {
        world.accept(goal(&format!("goal-{index}"))).await;
    }
    let taken = take(&sender, 5).await;
    let told = reports(&sender, &taken);
    sender.told(taken[4]);
    until("that is on disk", || all_say(&world, &taken[4..], "told")).await;
    drop((sender, provider)); // No last checkpoint: as if it was killed.
    let world = world.restarted().await;
    let sender = world.start(config(), vec![]); // Also when nobody is told of what finishes from now on.
    let again = take(&sender, 4).await;
    assert_eq!(again, taken[..4]);
    assert_eq!(reports(&sender, &again), told[..4]);
    assert_eq!(sender.take_untold(1), []);
}

/// The checkpoint that says "owed" is being written while the job is told: it must be followed by one that says "told".
#[tokio::test]
async fn what_is_told_while_it_is_written_is_told_for_good() {
    let world = World::new();
    let config = SenderConfig { checkpoint_interval: Duration::from_millis(1), ..telling() };
    let sender = Arc::new(world.start(config.clone(), vec![]));
    let is_over = Arc::new(AtomicBool::new(false));
    let (hasty, over) = (sender.clone(), is_over.clone());
    // Tells each job as soon as there is one.
    let teller = thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            (1..=300).for_each(|position| hasty.told(JournalPosition(position)));
            thread::yield_now();
        }
    });
    let positions = done(&world, names(300)).await;
    assert_eq!(positions.last(), Some(&JournalPosition(300)));
    until("all are done", || sender.idle()).await;
    until("all are told", || positions.iter().all(|&position| !sender.is_untold(position))).await;
    is_over.store(true, Ordering::Relaxed);
    teller.join().unwrap();
    soon("drained", sender.drain(Instant::now() + Duration::from_secs(10))).await;
    assert!(all_say(&world, &positions, "told"));
    drop(sender);
    let world = world.restarted().await;
    assert_eq!(world.start(config, vec![]).take_untold(300), []);
}

#[tokio::test]
async fn those_to_be_told_are_forgotten_last_and_the_oldest_of_them_first() {
    let world = World::new();
    let config = SenderConfig { report_count_max: 4, ..telling() };
    let sender = world.start(config.clone(), vec![]);
    let first = done(&world, names(2)).await;
    assert_eq!(take(&sender, 2).await, first);
    for name in (2..20).map(|index| format!("goal-{index}")) {
        let position = done(&world, [name]).await[0];
        assert_eq!(take(&sender, 1).await, [position]);
        sender.told(position);
    }
    until("only four are left", || world.store.jobs().unwrap().len() == 4).await;
    assert!(first.iter().all(|&position| sender.is_untold(position)), "the two that are to be told are among them");

    let later = done(&world, (20..40).map(|index| format!("goal-{index}"))).await;
    until("only the last four are left", || {
        let rows = world.store.jobs().unwrap();
        rows.iter().map(|&(position, _)| position).eq(later[16..].iter().copied())
    })
    .await;
    until("memory forgets the others", || later[..16].iter().all(|&position| !sender.is_untold(position))).await;
    assert_eq!(take(&sender, 4).await, later[16..], "nobody comes for what is forgotten");
    assert_eq!(sender.take_untold(1), []);
}

#[tokio::test]
async fn what_nobody_will_be_told_of_takes_no_place_from_what_comes_after() {
    let world = World::new();
    let telling = SenderConfig { report_count_max: 4, ..telling() };
    let sender = world.start(telling.clone(), vec![]);
    let owed = done(&world, names(4)).await;
    assert_eq!(take(&sender, 4).await, owed);
    drop(sender);
    let world = world.restarted().await;
    let sender = world.start(SenderConfig { tell_finished: false, ..telling }, vec![]); // There is no receiver any more.
    let later = done(&world, (4..10).map(|index| format!("goal-{index}"))).await;
    until("only the last four are left", || {
        let rows = world.store.jobs().unwrap();
        rows.iter().map(|&(position, _)| position).eq(later[2..].iter().copied())
    })
    .await;
    until("memory forgets the others", || owed.iter().all(|&position| sender.job(position).is_none())).await;
    assert_eq!(sender.take_untold(10), []);
}
