//! Tokens that a provider calls none of its own: alone they are removed, many at once raise an alarm and are kept.

use std::time::Duration;

use tidings_push::apns::Reason;
use tidings_push::{Notification, Outcome, Settled};
use tidings_sender::SenderConfig;
use tidings_telemetry::{Registry, unix_now};

use crate::world::{Automatic, World, addressee, config, device, goal, pool, settled, until};

/// Short, so that what waits for it comes soon.
fn doubting(window: Duration) -> SenderConfig {
    SenderConfig { doubt_window: window, ..config() }
}

/// Refuses the first `count` devices for `reason`, saying that their tokens are gone.
fn refusing(count: usize, reason: Reason) -> impl FnMut(&Notification) -> Settled + Send {
    move |taken| {
        if addressee(taken) < count {
            settled(taken, Outcome::Rejected(reason.into()), Some(unix_now().saturating_add(Duration::from_secs(1))))
        } else {
            settled(taken, Outcome::Accepted, None)
        }
    }
}

fn value(registry: &Registry, name: &str) -> u64 {
    let text = registry.prometheus();
    let lines =
        text.lines().filter(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// How many of the first `count` devices have a token.
fn with_token(world: &World, count: usize) -> usize {
    (0..count).filter(|&index| world.store.device(&device(index).id).unwrap().unwrap().token.is_some()).count()
}

/// Registers `devices`, tells them all, and waits until all have their answers.
async fn tell(devices: usize, config: SenderConfig, refused: usize, reason: Reason) -> (World, Registry, impl Sized) {
    let (world, registry) = (World::new(), Registry::new());
    world.register((0..devices).map(device)).await;
    let lake = pool("main", "app", 1000);
    let sender = world.start_measured(config, vec![lake.clone()], &registry);
    let provider = Automatic::new(&lake, &sender, refusing(refused, reason));
    world.accept(goal("goal-1")).await;
    until("all have their answers", || value(&registry, "tidings_sender_outcomes_total") == devices as u64).await;
    (world, registry, (sender, provider))
}

#[tokio::test]
async fn a_few_tokens_of_no_use_are_removed_after_a_while() {
    let (world, registry, _running) = tell(40, doubting(Duration::from_millis(20)), 5, Reason::BadDeviceToken).await;
    until("the five are removed", || with_token(&world, 40) == 35).await;
    assert_eq!(value(&registry, "tidings_sender_environment_alarm"), 0);
    assert_eq!(value(&registry, "tidings_sender_gone_tokens_total"), 5);
}

#[tokio::test]
async fn many_at_once_raise_an_alarm_and_are_kept() {
    let (world, registry, _running) = tell(60, doubting(Duration::from_secs(2)), 30, Reason::BadDeviceToken).await;
    until("there is an alarm", || value(&registry, "tidings_sender_environment_alarm") == 1).await;
    until("the thirty are kept", || value(&registry, "tidings_sender_gone_tokens_kept_total") == 30).await;
    assert_eq!(with_token(&world, 60), 60);
    assert_eq!(value(&registry, "tidings_sender_gone_tokens_total"), 0);
}

#[tokio::test]
async fn what_a_provider_is_certain_of_is_removed_at_once_however_many_they_are() {
    let (world, registry, _running) = tell(60, doubting(Duration::from_secs(3600)), 30, Reason::Unregistered).await;
    until("the thirty are removed", || with_token(&world, 60) == 30).await;
    assert_eq!(value(&registry, "tidings_sender_environment_alarm"), 0);
}
