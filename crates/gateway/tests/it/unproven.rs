//! Devices that nothing was ever accepted for, all at once, and a provider in trouble: the connections of a quarantine.
//!
//! Against the simulator; its ledger is the judge of "each once".

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidings_gateway::Gateway;
use tidings_push::{Lakes, Outcome, Reason};
use tidings_simulator::{ApnsSimulator, Faults, Reason as Refusal, SimulatorConfig};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{EventPriority, JournalPosition};
use tokio::time::Instant;

use crate::{PATIENCE, Sink, config, notification, sized, token};

const COUNT: u32 = if cfg!(debug_assertions) { 5000 } else { 20_000 };

/// Those of the crash campaign without its resets, after which nobody could know what was accepted; connections end and
/// fail to come about more often.
fn faults() -> Faults {
    Faults {
        jitter_ms: 3,
        stream_limit: 250,
        stream_limit_before_token: Some(1),
        die_after_accept_probability: 0.2,
        refuse_probability: 0.001,
        stall_probability: 0.000_02,
        stall_ms: 200,
        internal_error_probability: 0.0005,
        unavailable_probability: 0.001,
        too_many_requests_probability: 0.0005,
        rejection_probability: 0.0005,
        rejection_reasons: vec![Refusal::DeviceTokenNotForTopic],
        gone_share: 0.005,
        goaway_every: 1000,
        ..Faults::default()
    }
}

/// Sends to devices 0 to `count` as the binary sets a quarantine up; everybody must be accepted or refused for good, in
/// the end and once. Returns how many were accepted.
async fn each_once(count: u32, faults: Faults) -> usize {
    let simulator = ApnsSimulator::start(SimulatorConfig { faults, ..SimulatorConfig::default() }).unwrap();
    let mut config = config(simulator.addr().port(), simulator.ca_pem().to_owned());
    config.credential = token(simulator.key_id(), simulator.team_id(), simulator.key_pem());
    (config.connection_count_min, config.connection_count_max) = (1, 2);
    (config.rate_floor, config.streams_max) = (Some(100), 250);
    let (sink, lakes) = (Arc::<Sink>::default(), Lakes::new(250));
    let gateway = Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &Registry::new()).unwrap();

    let expires_at = unix_now().saturating_add(Duration::from_secs(600));
    let json = Bytes::from_static(br#"{"aps":{"alert":"Goal"}}"#);
    let push = |device| sized(notification(device, JournalPosition(1), expires_at), json.clone());
    let mut batch = (0..count).map(push).collect();
    lakes.of(EventPriority::Normal).push_batch(&mut batch).await.unwrap();

    let outcomes = sink.outcomes(count as usize).await;
    let with = |outcome| outcomes.values().filter(move |it| it.outcome == outcome).count();
    let accepted = with(Outcome::Accepted);
    let refused = |it: &Reason| it.provider() == tidings_types::Provider::Apns;
    let rejected = Reason::ALL.iter().filter(|it| refused(it)).map(|it| with(Outcome::Rejected(*it))).sum::<usize>();
    assert_eq!(accepted + rejected, count as usize);
    let summary = simulator.ledger().summary();
    assert_eq!((summary.devices, summary.accepted, summary.repeated), (accepted as u64, accepted as u64, 0));
    assert_eq!(summary.stream_limit_violations, 0);
    assert_eq!(gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
    accepted
}

#[tokio::test]
async fn new_devices_come_through_a_provider_in_trouble_each_once() {
    let accepted = each_once(COUNT, faults()).await;
    assert!(accepted as f64 > 0.98 * f64::from(COUNT), "{accepted}");
}

#[tokio::test]
async fn a_list_with_many_dead_tokens_comes_to_its_end_though_the_limit_is_lowered_for_each() {
    let reasons = vec![Refusal::BadDeviceToken];
    let dead = Faults { rejection_probability: 0.4, rejection_reasons: reasons, ..faults() };
    let accepted = each_once(1000, Faults { stream_limit_after_rejection: Some(1), ..dead }).await;
    assert!((500..700).contains(&accepted), "{accepted}");
}
