//! Devices change and answer over connections while a job runs, and newsletters and brakes cost it its only place, in
//! any order: nobody is skipped, nobody is told twice, no stranger is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tidings_push::{Notification, Outcome};
use tidings_sender::{Counts, DeviceOutcome, Note, Sender, SenderConfig, Suppression};
use tidings_store::{NewDevice, Precondition};
use tidings_telemetry::unix_now;
use tidings_types::{
    AppId, BrakeScope, DeviceNumber, DeviceToken, Event, EventPriority, JobState, JournalPosition, Locale, Subject,
    TopicName,
};

use crate::world::{Gateway, World, arrival, device, goal, pool, quiet_goal, token, until};

const DEVICE_COUNT: usize = 40;
const CONNECTED: std::ops::Range<usize> = 5..25;
const APPS: [&str; 3] = ["app", "other", "unreachable"];
const LOCALES: [&str; 3] = ["en", "pl", "ar"];

#[derive(Debug, Clone)]
enum Operation {
    /// The provider of one pool takes so many.
    Take(usize, usize),
    /// It answers so many.
    Answer(usize, usize),
    Delete(usize),
    /// Its pong comes, if it was connected when the event was published.
    Receive(usize),
    /// Registered (again) with this app, locale, and a token or none.
    Register(usize, usize, usize, bool),
    /// A newsletter comes that nobody takes before the end.
    Newsletter,
    /// Another event that is as urgent, to a device of its own.
    Rival,
    Pause(usize),
    Resume(usize),
    /// Killed and started again.
    Crash,
}

fn operation(crashes: bool) -> impl Strategy<Value = Operation> {
    let index = || 0..DEVICE_COUNT + 10;
    prop_oneof![
        6 => (0..2_usize, 1..6_usize).prop_map(|(pool, count)| Operation::Take(pool, count)),
        6 => (0..2_usize, 1..6_usize).prop_map(|(pool, count)| Operation::Answer(pool, count)),
        3 => index().prop_map(Operation::Delete),
        6 => (0..DEVICE_COUNT).prop_map(Operation::Receive),
        6 => (index(), 0..3_usize, 0..3_usize, prop::bool::weighted(0.8))
            .prop_map(|(index, app, locale, token)| Operation::Register(index, app, locale, token)),
        2 => Just(Operation::Newsletter),
        2 => Just(Operation::Rival),
        2 => (0..4_usize).prop_map(Operation::Pause),
        2 => (0..4_usize).prop_map(Operation::Resume),
        u32::from(crashes) => Just(Operation::Crash),
    ]
}

/// What a device was at some time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    token: DeviceToken,
    app: usize,
    locale: usize,
}

#[derive(Default)]
struct Model {
    /// Every registration of every device number.
    lives: BTreeMap<DeviceNumber, Vec<Life>>,
    audience: BTreeSet<DeviceNumber>,
    generation: u8,
    /// Told in this run, and answered in any.
    told: BTreeSet<DeviceNumber>,
    answered: BTreeSet<DeviceNumber>,
    received: BTreeSet<DeviceNumber>,
    crashed: bool,
}

impl Model {
    fn new_device(&mut self, index: usize, app: usize, locale: usize, has_token: bool) -> NewDevice {
        let mut device = device(index);
        self.generation = self.generation.wrapping_add(1);
        device.app = AppId::new(APPS[app]).unwrap();
        device.locale = Locale::new(LOCALES[locale]).unwrap();
        device.token = has_token.then(|| token(index, self.generation));
        device
    }

    async fn register(&mut self, world: &World, index: usize, app: usize, locale: usize, has_token: bool) {
        let device = self.new_device(index, app, locale, has_token);
        world.register([device.clone()]).await;
        let number = world.store.device_number(&device.id).unwrap().unwrap();
        let life = device.token.map(|token| Life { token, app, locale });
        self.lives.entry(number).or_default().extend(life);
    }

    /// Checks what a pool's provider got.
    fn told(&mut self, pool: usize, taken: &[Notification]) {
        for notification in taken.iter().filter(|taken| taken.rendering.parts().collapse_id.as_str() == "goal") {
            let number = notification.ticket.device;
            assert!(self.audience.contains(&number), "{number:?} registered after the event");
            assert!(self.told.insert(number), "{number:?} was told twice");
            let life = self.lives[&number].iter().find(|life| life.token == notification.token);
            let life = life.expect("the token is one the device had");
            assert_eq!(life.app, pool, "the token goes to the pool of its app");
            assert_eq!(notification.rendering.app().as_str(), APPS[life.app]);
            let text = String::from_utf8_lossy(notification.rendering.payload()).into_owned();
            let title = ["Goal for", "Gol dla", "هدف"][life.locale];
            assert!(text.contains(title), "the language is that of the same registration");
        }
    }

    async fn check_end(&self, sender: &Sender, position: JournalPosition) {
        until("the job finishes", || sender.job(position).is_some_and(|job| job.state == JobState::Finished)).await;
        let counts = sender.job(position).unwrap().counts;
        assert_eq!(counts.accepted() + counts.received() + counts.suppressed(), counts.total());
        assert!(counts.received() <= self.received.len() as u64);
        if !self.crashed {
            assert_eq!(counts.total(), self.audience.len() as u64, "every selected device has one outcome");
            assert_eq!(counts.accepted(), self.answered.len() as u64, "every answer is counted once");
        }
        self.check_why(sender, position);
    }

    /// What is said of each device agrees with what providers and connections saw.
    fn check_why(&self, sender: &Sender, position: JournalPosition) {
        let mut counts = Counts::default();
        for (number, lives) in &self.lives {
            let trail = sender.why(position, *number).expect("the job was done a moment ago");
            // Killed before its first checkpoint, a job begins anew.
            let is_whole = trail.known_since.is_none();
            assert!((is_whole || self.crashed) && trail.is_done && trail.whereabouts.is_none());
            assert!(trail.steps.is_sorted_by_key(|step| step.from));
            let ended = trail.steps.iter().filter_map(|step| match step.note {
                Note::Ended(outcome) => Some(outcome),
                _ => None,
            });
            let ended: Vec<DeviceOutcome> = ended.collect();
            let ways: Vec<&str> =
                trail.steps.iter().filter_map(|step| Some(step.way.as_ref()?.pool.as_str())).collect();
            let is_selected = self.audience.contains(number);
            assert!(ended.len() <= 1, "{number:?} has more than one outcome: {ended:?}");
            // A restart selects anew, and finds those who came later.
            let is_later = ended == [DeviceOutcome::Suppressed(Suppression::RegisteredLater)];
            assert!(is_selected || trail.steps.is_empty() || is_later, "{number:?} was not selected: {trail:?}");
            assert!(self.crashed || !is_selected || ended.len() == 1, "{number:?} has no outcome");
            let was_accepted = ended == [DeviceOutcome::Accepted];
            assert!(!was_accepted || self.answered.contains(number), "{number:?} had no answer");
            assert!(self.crashed || was_accepted == self.answered.contains(number), "{number:?}: {ended:?}");
            assert!(!self.told.contains(number) || !ways.is_empty(), "{number:?} was handed out");
            // What did not get into the lake was not handed out, and comes again.
            let way_count = usize::from(self.told.contains(number));
            assert!(self.crashed || ways.len() == way_count, "{number:?} was told {way_count} times: {trail:?}");
            assert!(
                ways.iter().all(|way| lives.iter().any(|life| ["one", "two"].get(life.app) == Some(way))),
                "{ways:?}"
            );
            if ended == [DeviceOutcome::Received] {
                assert!(self.received.contains(number) && trail.received.is_some(), "{number:?} has not received it");
            }
            ended.into_iter().for_each(|outcome| counts.add(outcome, 1));
            let events = sender.events_of(*number, None, 1000).positions;
            assert_eq!(events.contains(&position), !trail.steps.is_empty());
        }
        let counted = sender.job(position).unwrap().counts;
        assert!(self.crashed || counts == counted, "the devices behind the counts: {counts:?}, counted: {counted:?}");
        assert_eq!(sender.why(position, DeviceNumber(999_999)).unwrap().steps, []);
    }
}

fn scope(index: usize) -> BrakeScope {
    let app = |index: usize| BrakeScope::App(AppId::new(APPS[index]).unwrap());
    [app(0), app(1), BrakeScope::Topic(TopicName::new("goal").unwrap()), BrakeScope::Everything][index].clone()
}

/// To the two devices that follow nothing else.
fn side_event(place: usize, priority: EventPriority) -> Event {
    let subjects = vec![Subject::new("side:1").unwrap()];
    Event { subjects, priority, ..goal(&format!("side-{place}")) }
}

struct Run {
    sender: Sender,
    providers: [Gateway; 2],
    newsletters: [Gateway; 2],
}

impl Run {
    fn new(world: &World, job_bytes_max: usize) -> Self {
        let pools = [pool("one", APPS[0], 4), pool("two", APPS[1], 4)];
        let config = SenderConfig {
            job_count_max: 1,
            job_bytes_max,
            window_device_count: 3,
            window_open_count_max: 2,
            ..crate::world::config()
        };
        let sender = world.start(config, pools.to_vec());
        let newsletters = pools.each_ref().map(|pool| Gateway::of(pool.lakes.of(EventPriority::Low), &sender));
        let providers = pools.map(|pool| Gateway::new(&pool, &sender));
        Self { sender, providers, newsletters }
    }

    async fn take(&mut self, model: &mut Model, pool: usize, count: usize) {
        tokio::task::yield_now().await;
        let provider = &mut self.providers[pool];
        let before = provider.taken.len();
        provider.try_take(count);
        model.told(pool, &provider.taken[before..]);
    }

    fn answer(&mut self, model: &mut Model, pool: usize, count: usize) {
        let provider = &mut self.providers[pool];
        let count = count.min(provider.held.len());
        let own = |held: &&Notification| held.rendering.parts().collapse_id.as_str() == "goal";
        model.answered.extend(provider.held[..count].iter().filter(own).map(|held| held.ticket.device));
        provider.answer(count, Outcome::Accepted);
    }
}

async fn play(operations: Vec<Operation>, job_bytes_max: usize) {
    let mut world = World::new();
    let mut model = Model::default();
    for index in 0..DEVICE_COUNT {
        model.register(&world, index, index % 2, index % 3, true).await;
    }
    model.audience = model.lives.keys().copied().collect();
    let side = |index: usize| NewDevice { app: AppId::new(APPS[index]).unwrap(), ..device(1000 + index) };
    world.register_for((0..2).map(side), &["side:1"]).await;
    let mut side_count = 0;
    world.connect(CONNECTED);
    let numbers: Vec<DeviceNumber> = (0..DEVICE_COUNT).map(|index| world.number(index)).collect();
    // Time is up somewhere in the middle.
    let position = world.accept(quiet_goal("goal", Duration::from_millis(20))).await;
    let mut run = Run::new(&world, job_bytes_max);
    until("the job runs", || run.sender.job(position).is_some()).await;
    for operation in operations {
        match operation {
            Operation::Take(pool, count) => run.take(&mut model, pool, count).await,
            Operation::Answer(pool, count) => run.answer(&mut model, pool, count),
            Operation::Delete(index) => {
                world.store.delete_device(&device(index).id, Precondition::None).await.unwrap();
            }
            Operation::Receive(index) => {
                if !model.crashed && CONNECTED.contains(&index) {
                    world.receipts(position).on_received("", Some(numbers[index]), true, arrival());
                    model.received.insert(numbers[index]);
                }
            }
            Operation::Register(index, app, locale, has_token) => {
                model.register(&world, index, app, locale, has_token).await;
            }
            Operation::Newsletter | Operation::Rival => {
                let is_rival = matches!(operation, Operation::Rival);
                let priority = if is_rival { EventPriority::Normal } else { EventPriority::Low };
                side_count += 1;
                world.accept(side_event(side_count, priority)).await;
            }
            Operation::Pause(index) => drop(world.store.pause(scope(index), unix_now()).await.unwrap()),
            Operation::Resume(index) => drop(world.store.resume(scope(index)).await.unwrap()),
            Operation::Crash => {
                drop(run);
                world = world.restarted().await;
                (model.crashed, model.told) = (true, BTreeSet::new());
                run = Run::new(&world, job_bytes_max);
            }
        }
    }
    for index in 0..4 {
        world.store.resume(scope(index)).await.unwrap();
    }
    until("everybody is told", || {
        for pool in 0..2 {
            let provider = &mut run.providers[pool];
            let before = provider.taken.len();
            provider.try_take(100);
            model.told(pool, &provider.taken[before..]);
            run.answer(&mut model, pool, 100);
            run.newsletters[pool].try_take(100);
            run.newsletters[pool].answer(run.newsletters[pool].held.len(), Outcome::Accepted);
        }
        run.sender.idle()
    })
    .await;
    model.check_end(&run.sender, position).await;
    for side in 1..=side_count {
        let side = JournalPosition(position.0 + side as u64);
        assert_eq!(run.sender.job(side).unwrap().counts.accepted(), 2);
    }
    // Whoever was there all along, reachable and unchanged, was told.
    let unchanged = |number: &&DeviceNumber| model.lives[*number].len() == 1;
    for number in model.audience.iter().filter(unchanged) {
        let still = number_exists(&world, *number);
        let reached = model.answered.contains(number) || model.received.contains(number);
        assert!(!still || reached, "{number:?} was skipped");
    }
}

/// Whether the device still is what it was: present, with a token.
fn number_exists(world: &World, number: DeviceNumber) -> bool {
    let mut reachable = false;
    world.store.with_recipients(&[number], |recipient| reachable = recipient.token.is_some());
    reachable
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
}

/// Memory for one job of any size, for two or three, or for all.
fn job_bytes_max() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1), Just(300_000), Just(1 << 30)]
}

proptest! {
    // A run that hangs is found by its deadline: few steps of shrinking, or it takes hours.
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 8, ..ProptestConfig::default() })]

    #[test]
    fn changing_devices_are_told_once_and_strangers_never(
        operations in prop::collection::vec(operation(false), 0..60),
        job_bytes_max in job_bytes_max(),
    ) {
        block_on(play(operations, job_bytes_max));
    }

    #[test]
    fn also_when_the_sender_is_killed_in_between(
        operations in prop::collection::vec(operation(true), 0..60),
        job_bytes_max in job_bytes_max(),
    ) {
        block_on(play(operations, job_bytes_max));
    }
}
