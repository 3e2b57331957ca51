//! Several providers, priorities, quarantine, shadow mode and dry runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_push::pacing::Quota;
use tidings_push::web_push::guard::EndpointRules;
use tidings_push::{Forecast, Lakes, Notification, Outcome, PoolGauge, RateLimit};
use tidings_sender::{DeviceOutcome, JobReport, Pool, Sender, SenderConfig, Shadow, StartError, Suppression};
use tidings_store::{NewDevice, PutTerms};
use tidings_telemetry::unix_now;
use tidings_types::{
    AppId, DeviceToken, Environment, EventPriority, JobState, JournalPosition, Locale, Platform, Provider, Subject,
};

use crate::world::{Automatic, Gateway, World, config, device, goal, lake, pool, until};

const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

async fn done(sender: &Sender, position: JournalPosition) -> JobReport {
    until("the job is over", || sender.job(position).is_some_and(|job| job.done_at.is_some())).await;
    sender.job(position).unwrap()
}

/// An iPhone, an Android phone or a browser of one app.
fn mixed(index: usize) -> NewDevice {
    let platform = Platform::ALL[index % 3];
    let token = match platform {
        Platform::Ios => return device(index),
        Platform::Android => DeviceToken::fcm(&format!("token-{index}")).unwrap(),
        Platform::Web => DeviceToken::web_push(&format!("https://push.example/{index}"), P256DH, AUTH).unwrap(),
    };
    NewDevice { platform, token: Some(token), environment: Environment::Sandbox, ..device(index) }
}

fn pool_of(provider: Provider) -> Pool {
    Pool { provider, ..pool(provider.as_str(), "app", 100) }
}

#[tokio::test]
async fn each_device_is_reached_through_its_provider_and_counted_there() {
    let world = World::new();
    let language = |index: usize| Locale::new(["en", "pl"][index / 3 % 2]).unwrap();
    world.register((0..60).map(|index| NewDevice { locale: language(index), ..mixed(index) })).await;
    let pools: Vec<Pool> = Provider::ALL.iter().map(|&provider| pool_of(provider)).collect();
    let sender = world.start(config(), pools.clone());
    let first: BTreeSet<_> = (0..12).map(|index| world.number(index)).collect();
    let mut gateways: Vec<_> = pools
        .iter()
        .map(|pool| {
            let (is_odd, first) = (pool.provider == Provider::Fcm, first.clone());
            Automatic::new(pool, &sender, move |taken| {
                let outcome =
                    if is_odd && first.contains(&taken.ticket.device) { Outcome::Unknown } else { Outcome::Accepted };
                let mut settled = crate::world::settled(taken, outcome, None);
                settled.repeats = u32::from(is_odd);
                settled
            })
        })
        .collect();
    let position = world.accept(goal("goal")).await;
    let report = done(&sender, position).await;
    assert_eq!((report.counts.accepted(), report.counts.of(DeviceOutcome::Unknown), report.retried), (56, 4, 20));
    for (gateway, pool) in gateways.iter_mut().zip(&pools) {
        let taken = gateway.taken();
        let is_its = |provider| provider == pool.provider;
        assert!(taken.iter().all(|taken| is_its(taken.token.provider()) && is_its(taken.rendering.provider())));
        assert_eq!(taken.len(), 20);
    }
    assert_eq!(report.by.len(), 6, "three providers, two languages: {:?}", report.by);
    for part in &report.by {
        assert_eq!((part.app.as_str(), part.counts.total()), ("app", 10));
        assert!(part.locale.as_ref().is_none_or(|locale| locale.as_str() == "pl"));
        let unknown = part.counts.of(DeviceOutcome::Unknown);
        assert_eq!(unknown, if part.provider == Provider::Fcm { 2 } else { 0 });
    }
    let totals: Vec<_> = sender.totals_by_provider().filter(|(.., count)| *count > 0).collect();
    let expected = [(Provider::Apns, "accepted", 20), (Provider::Fcm, "accepted", 16), (Provider::Fcm, "unknown", 4)];
    assert_eq!(totals[..3], expected);
    assert_eq!(totals[3..], [(Provider::WebPush, "accepted", 20)]);
}

#[tokio::test]
async fn one_app_has_one_pool_per_provider() {
    let world = World::new();
    let sandbox = |provider| Pool { environment: Environment::Sandbox, ..pool_of(provider) };
    assert!(world.try_start(config(), vec![pool_of(Provider::Apns), sandbox(Provider::Apns)]).is_ok());
    let twice = world.try_start(config(), vec![pool_of(Provider::Fcm), sandbox(Provider::Fcm)]);
    assert!(matches!(twice, Err(StartError::PoolOverlap { .. })), "only APNs has two worlds");
    let config = SenderConfig { shadow: Some(Shadow { percent: 101, ..Shadow::default() }), ..config() };
    assert!(matches!(world.try_start(config, Vec::new()), Err(StartError::Percent { value: 101 })));
}

fn browser(index: usize, endpoint: &str) -> NewDevice {
    let token = DeviceToken::web_push(endpoint, P256DH, AUTH).unwrap();
    NewDevice { platform: Platform::Web, token: Some(token), ..device(index) }
}

fn pool_of_services(name: &str, hosts: &[&str]) -> Pool {
    let services = EndpointRules::new(hosts.iter().copied(), []).unwrap();
    Pool { provider: Provider::WebPush, services: Some(services), ..pool(name, "app", 4) }
}

/// The full lakes of a service that takes nothing hold up none of the others' browsers.
#[tokio::test]
async fn browsers_are_reached_by_their_push_service_and_a_dead_one_delays_no_other() {
    let world = World::new();
    let hosts = ["one.example", "a.many.example", "b.many.example", "of-no-rule.example"];
    let browsers = |index: usize| browser(index, &format!("https://{}/{index}", hosts[index % 4]));
    world.register((0..400).map(browsers)).await;
    let pools = vec![pool_of_services("one", &["one.example"]), pool_of_services("many", &["*.many.example"])];
    let sender = world.start(config(), pools.clone());
    let mut many = Automatic::accepting(&pools[1], &sender);
    let position = world.accept(goal("goal")).await;
    until("the living is done", || sender.job(position).is_some_and(|job| job.counts.accepted() == 200)).await;
    let is_of = |taken: &[Notification], hosts: &[&str]| {
        let endpoint = |taken: &Notification| String::from_utf8_lossy(taken.token.as_bytes()).into_owned();
        taken.iter().map(endpoint).all(|endpoint| hosts.iter().any(|host| endpoint.contains(host)))
    };
    assert!(is_of(&many.taken(), &["//a.many.example/", "//b.many.example/"]));
    let mut one = Automatic::accepting(&pools[0], &sender);
    assert_eq!(done(&sender, position).await.counts.accepted(), 400);
    let taken = one.taken();
    assert!(
        taken.len() == 200 && is_of(&taken, &["//one.example/", "//of-no-rule.example/"]),
        "what no pool is for goes to the first"
    );
}

#[tokio::test]
async fn one_app_has_one_pool_per_service() {
    let world = World::new();
    let start = |pools: [Pool; 2]| world.try_start(config(), pools.to_vec()).map(drop);
    let (one, other) = (pool_of_services("one", &["one.example"]), pool_of_services("other", &["other.example"]));
    assert!(start([one.clone(), other]).is_ok());
    assert!(matches!(start([one.clone(), one.clone()]), Err(StartError::PoolOverlap { .. })));
    let all = Pool { services: None, ..one.clone() };
    assert!(matches!(start([one.clone(), all.clone()]), Err(StartError::PoolOverlap { .. })));
    assert!(matches!(start([all, one]), Err(StartError::PoolOverlap { .. })));
}

#[tokio::test]
async fn a_dry_run_goes_where_the_provider_delivers_to_nobody() {
    let world = World::new();
    world.register((0..30).map(mixed)).await;
    let pools: Vec<Pool> = Provider::ALL.iter().map(|&provider| pool_of(provider)).collect();
    let sender = world.start(config(), pools.clone());
    let mut gateways: Vec<_> = pools.iter().map(|pool| Automatic::accepting(pool, &sender)).collect();
    let mut event = goal("dry");
    event.dry_run = true;
    let counts = done(&sender, world.accept(event).await).await.counts;
    assert_eq!((counts.accepted(), counts.of(DeviceOutcome::Suppressed(Suppression::DryRun))), (10, 20));
    let taken: Vec<usize> = gateways.iter_mut().map(|gateway| gateway.taken().len()).collect();
    assert_eq!(taken, [0, 10, 0]);
}

#[tokio::test]
async fn shadow_mode_sends_to_the_chosen_only() {
    let world = World::new();
    world.register((0..200).map(device)).await;
    let pool = pool("main", "app", 300);
    let shadow = Shadow { devices: BTreeSet::from([device(3).id, device(500).id]), percent: 20 };
    let config = SenderConfig { shadow: Some(shadow.clone()), ..config() };
    let sender = world.start(config, vec![pool.clone()]);
    let mut provider = Automatic::accepting(&pool, &sender);
    let counts = done(&sender, world.accept(goal("goal")).await).await.counts;
    let chosen: BTreeSet<usize> = (0..200).filter(|&index| shadow.admits(device(index).id.as_str())).collect();
    assert!(chosen.contains(&3) && (20..70).contains(&chosen.len()));
    assert_eq!(provider.taken().iter().map(crate::world::addressee).collect::<BTreeSet<_>>(), chosen);
    assert_eq!(counts.of(DeviceOutcome::Suppressed(Suppression::Shadow)), 200 - chosen.len() as u64);
}

#[tokio::test]
async fn a_token_goes_through_quarantine_until_it_is_accepted() {
    let world = World::new();
    world.register((0..30).map(device)).await;
    let mut pool = pool("main", "app", 100);
    pool.quarantine = Some(Lakes::new(100));
    let sender = world.start(config(), vec![pool.clone()]);
    let quarantine = pool.quarantine.as_ref().unwrap().of(EventPriority::Normal);
    let (mut main, mut apart) = (Gateway::new(&pool, &sender), Gateway::of(quarantine, &sender));
    let first = world.accept(goal("first")).await;
    apart.take(30).await;
    apart.answer(20, Outcome::Accepted);
    apart.answer(10, Outcome::Unknown);
    assert_eq!(done(&sender, first).await.by.len(), 1, "quarantine is no part of its own");
    until("the store knows", || world.store.counts().proven == 20).await;
    let second = world.accept(goal("second")).await;
    apart.take(10).await;
    main.take(20).await;
    // A new token has to prove itself again.
    let fresh = NewDevice { token: Some(crate::world::token(0, 9)), ..device(0) };
    world.store.put_device(fresh, PutTerms::default(), tidings_telemetry::unix_now()).await.unwrap();
    apart.answer(10, Outcome::Accepted);
    main.answer(20, Outcome::Accepted);
    done(&sender, second).await;
    until("all but one", || world.store.counts().proven == 29).await;
    world.accept(goal("third")).await;
    main.take(29).await;
    apart.take(1).await;
    assert_eq!(crate::world::addressee(&apart.held[0]), 0);
}

#[tokio::test]
async fn an_urgent_event_waits_for_none_of_those_that_are_less_urgent() {
    let world = World::new();
    world.register((0..300).map(device)).await;
    let pool = pool("main", "app", 20);
    let sender = world.start(config(), vec![pool.clone()]);
    let urgency = |name: &str, priority| tidings_types::Event { priority, ..goal(name) };
    let mut lower = Vec::new();
    for (index, priority) in [EventPriority::Low, EventPriority::Normal, EventPriority::Low].into_iter().enumerate() {
        lower.push(world.accept(urgency(&format!("lower-{index}"), priority)).await);
    }
    until("their lakes are full", || {
        [EventPriority::Low, EventPriority::Normal].iter().all(|&it| pool.lakes.of(it).counters().held == 20)
    })
    .await;
    let high = world.accept(urgency("goal", EventPriority::High)).await;
    let mut provider = Gateway::of(pool.lakes.of(EventPriority::High), &sender);
    provider.accept(300).await;
    let report = done(&sender, high).await;
    assert_eq!((report.counts.accepted(), report.priority), (300, EventPriority::High));
    assert!(lower.iter().all(|&position| sender.job(position).unwrap().state == JobState::Running));
}

/// One app has three jobs, the other one: windows go by apps first.
#[tokio::test]
async fn at_a_full_lake_apps_take_turns_and_in_each_its_jobs() {
    let world = World::new();
    let app = |index: usize| AppId::new(["app", "other"][index % 2]).unwrap();
    world.register((0..800).map(|index| NewDevice { app: app(index), ..device(index) })).await;
    let last = NewDevice { token: None, ..device(800) }; // Counted at the end of each walk.
    world.register([last]).await;
    let mut pool = pool("main", "app", 16);
    pool.apps.push(app(1));
    let sender = world.start(config(), vec![pool.clone()]);
    let mut positions = Vec::new();
    for index in 0..3 {
        let mut event = goal(&format!("goal-{index}"));
        if index > 0 {
            let filter = tidings_types::Filter { apps: vec![app(0)], ..tidings_types::Filter::default() };
            event.filter = Some(filter);
        }
        positions.push(world.accept(event).await);
    }
    until("all wait", || sender.backlog().jobs_running == 3 && lake(&pool).counters().held == 16).await;
    until("all are walked", || positions.iter().all(|&it| sender.job(it).unwrap().counts.total() == 1)).await;
    let mut provider = Gateway::new(&pool, &sender);
    // The first windows were given before all waited.
    provider.take(4 * 16).await;
    let mut windows = Vec::new();
    while windows.len() < 36 {
        provider.answer(provider.held.len(), Outcome::Accepted);
        provider.take(16).await;
        let of = |taken: &tidings_push::Notification| (taken.rendering.app().as_str().to_owned(), taken.ticket.job);
        windows.push(of(provider.held.last().unwrap()));
    }
    let count = |name: &str| windows.iter().filter(|(app, _)| app == name).count();
    assert!(count("other").abs_diff(18) <= 3, "{windows:?}");
    for position in positions {
        let of_job = windows.iter().filter(|window| **window == ("app".to_owned(), position)).count();
        assert!(of_job.abs_diff(6) <= 2, "{windows:?}");
    }
}

#[tokio::test]
async fn an_estimate_says_how_many_and_how_long_by_pool() {
    let world = World::new();
    world.register((0..90).map(mixed)).await;
    world.register_for([device(1000)], &["user:1"]).await;
    let gauge = Arc::new(PoolGauge::default());
    gauge.set_quota(Arc::new(Mutex::new(Quota::new(60, Duration::ZERO, unix_now()))));
    let fcm = Pool { gauge: Some(gauge), ..pool_of(Provider::Fcm) };
    let sender = world.start(config(), vec![pool_of(Provider::Apns), fcm]);
    let estimates = sender.estimate(&goal("goal"));
    let [apns, fcm] = &estimates[..] else { panic!("{estimates:?}") };
    assert_eq!((apns.provider, apns.devices, apns.forecast), (Provider::Apns, 30, None));
    let Some(Forecast { duration, limit: RateLimit::Quota }) = fcm.forecast else { panic!("{fcm:?}") };
    assert_eq!((fcm.pool.as_str(), fcm.devices), ("fcm", 30));
    assert!((28..=31).contains(&duration.as_secs()), "30 of 60 a minute: {duration:?}");
    let mut personal = goal("personal");
    personal.subjects = vec![Subject::new("user:9").unwrap()];
    assert_eq!(sender.estimate(&personal), []);
}
