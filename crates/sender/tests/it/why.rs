//! What is said of one device, for what the counts of a job do not show: who had muted, who was held back, whose push
//! took a second attempt, who was left out because there were too many. [`crate::model`] has the rest.

use std::time::Duration;

use tidings_push::{Outcome, Settled};
use tidings_sender::{DeviceOutcome, DeviceTrail, JobReport, Note, Sender, Suppression, Whereabouts};
use tidings_telemetry::unix_now;
use tidings_types::{ExpectAudience, JournalPosition, Mute, MuteScope};

use crate::world::{Automatic, World, addressee, config, device, goal, pool, quiet_goal, settled, until};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

/// Device `index` went through exactly this, in this order.
fn went_through(
    world: &World,
    sender: &Sender,
    position: JournalPosition,
    index: usize,
    notes: &[Note],
) -> DeviceTrail {
    let trail = sender.why(position, world.number(index)).expect("the trail of a job that began here");
    assert_eq!(trail.steps.iter().map(|step| step.note).collect::<Vec<_>>(), notes, "device {index}");
    trail
}

async fn over(sender: &Sender, position: JournalPosition) -> JobReport {
    until("the job is over", || sender.job(position).is_some_and(|job| job.done_at.is_some())).await;
    sender.job(position).unwrap()
}

#[tokio::test]
async fn who_had_muted_would_have_been_selected_and_has_no_outcome() {
    let world = World::new();
    world.register((0..10).map(device)).await;
    world.register_for([device(20)], &["team:9"]).await;
    for index in [3, 20] {
        let everything = Mute { scope: MuteScope::Everything, until: None };
        assert!(world.store.mute(&device(index).id, everything, unix_now()).await.unwrap());
    }
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let _provider = Automatic::accepting(&pool, &sender);
    let position = world.accept(goal("goal")).await;
    assert_eq!(over(&sender, position).await.counts.accepted(), 9);
    went_through(&world, &sender, position, 3, &[Note::Muted]);
    went_through(&world, &sender, position, 4, &[Note::HandedOut(0), Note::Ended(DeviceOutcome::Accepted)]);
    // It has muted as well, but does not follow the team.
    went_through(&world, &sender, position, 20, &[]);
}

#[tokio::test]
async fn who_is_held_back_is_held_until_its_connection_has_received_the_event() {
    let world = World::new();
    world.register((0..10).map(device)).await;
    world.connect(0..1);
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let _provider = Automatic::accepting(&pool, &sender);
    let position = world.accept(quiet_goal("goal", LONG)).await;
    until("one is held back", || sender.job(position).is_some_and(|job| job.held == 1)).await;
    let trail = went_through(&world, &sender, position, 0, &[Note::Held]);
    assert_eq!((trail.whereabouts, trail.was_connected), (Some((Whereabouts::Held, None)), Some(true)));
    assert!(trail.held_until > unix_now() && trail.received.is_none());
    world.receive(position, [0]);
    over(&sender, position).await;
    let why = || sender.why(position, world.number(0)).expect("its trail");
    until("its trail ends a moment later", || why().is_done).await;
    let trail = went_through(&world, &sender, position, 0, &[Note::Held, Note::Ended(DeviceOutcome::Received)]);
    assert!(trail.whereabouts.is_none() && trail.received.is_some());
    let other = went_through(&world, &sender, position, 1, &[Note::HandedOut(0), Note::Ended(DeviceOutcome::Accepted)]);
    assert_eq!((other.was_connected, other.received), (Some(false), None));
}

#[tokio::test]
async fn a_push_that_took_a_second_attempt_says_so() {
    let world = World::new();
    world.register((0..2).map(device)).await;
    let pool = pool("main", "app", 50);
    let sender = world.start(config(), vec![pool.clone()]);
    let _provider = Automatic::new(&pool, &sender, |notification| {
        let repeats = u32::from(addressee(notification) == 1);
        Settled { repeats, ..settled(notification, Outcome::Accepted, None) }
    });
    let position = world.accept(goal("goal")).await;
    over(&sender, position).await;
    let accepted = Note::Ended(DeviceOutcome::Accepted);
    went_through(&world, &sender, position, 0, &[Note::HandedOut(0), accepted]);
    went_through(&world, &sender, position, 1, &[Note::HandedOut(0), Note::Repeated, accepted]);
}

#[tokio::test]
async fn who_was_left_out_because_there_were_too_many_has_that_as_the_outcome() {
    let world = World::new();
    world.register((0..2).map(device)).await;
    let sender = world.start(config(), vec![pool("main", "app", 50)]);
    let mut event = goal("goal");
    event.expect_audience = Some(ExpectAudience { min: None, max: Some(1) });
    let position = world.accept(event).await;
    over(&sender, position).await;
    let unexpected = DeviceOutcome::Suppressed(Suppression::UnexpectedAudience);
    (0..2).for_each(|index| drop(went_through(&world, &sender, position, index, &[Note::Ended(unexpected)])));
}
