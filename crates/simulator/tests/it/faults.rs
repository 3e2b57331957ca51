//! Faults: each of them happens, a seed repeats them, and the ledger stays correct.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tidings_simulator::{ApnsSimulator, Faults, Reason, SimulatorConfig};
use tidings_types::Timestamp;
use tokio::time::Instant;

use crate::client::{Client, Push, Seen, answer, see, start, token};

async fn push_all(simulator: &ApnsSimulator, count: u32) -> Vec<Seen> {
    let mut client = Client::connect(simulator).await;
    let mut seen = Vec::new();
    for number in 0..count {
        seen.push(client.push(Push::new(simulator, number, u128::from(number))).await);
    }
    seen
}

#[tokio::test]
async fn the_same_seed_gives_the_same_faults() {
    let faults = Faults {
        refuse_probability: 0.1,
        internal_error_probability: 0.1,
        unavailable_probability: 0.1,
        too_many_requests_probability: 0.1,
        rejection_probability: 0.3,
        rejection_reasons: vec![Reason::BadDeviceToken, Reason::DeviceTokenNotForTopic],
        gone_share: 0.1,
        ..Faults::default()
    };
    let run = |seed| {
        let config = SimulatorConfig { seed, faults: faults.clone(), ..SimulatorConfig::default() };
        async move {
            let simulator = ApnsSimulator::start(config).unwrap();
            (push_all(&simulator, 150).await, simulator.ledger().summary())
        }
    };
    let (first, summary) = run(1).await;
    assert_eq!(first, run(1).await.0);
    assert_ne!(first, run(2).await.0);
    let count = |seen: &Seen| first.iter().filter(|other| *other == seen).count();
    for seen in [
        Seen::Accepted,
        Seen::Refused,
        Seen::rejected(500, "InternalServerError"),
        Seen::rejected(503, "ServiceUnavailable"),
        Seen::rejected(429, "TooManyRequests"),
        Seen::rejected(400, "BadDeviceToken"),
        Seen::rejected(400, "DeviceTokenNotForTopic"),
        Seen::rejected(410, "Unregistered"),
    ] {
        assert!(count(&seen) > 0, "{seen:?} never happened");
    }
    assert_eq!(summary.accepted, count(&Seen::Accepted) as u64);
    assert_eq!(summary.streams_refused, count(&Seen::Refused) as u64);
    assert_eq!(summary.accepted + summary.streams_refused + summary.rejected.values().sum::<u64>(), 150);
}

#[tokio::test]
async fn a_gone_token_stays_gone_and_the_answer_says_since_when() {
    let simulator = start(Faults { gone_share: 0.5, gone_since: Some(Timestamp(1234)), ..Faults::default() });
    let first = push_all(&simulator, 100).await;
    assert_eq!(first, push_all(&simulator, 100).await);
    let gone = Seen::rejected(410, "Unregistered");
    let share = first.iter().filter(|seen| **seen == gone).count();
    assert!((30..=70).contains(&share), "{share} of 100 tokens are gone");
    let number = first.iter().position(|seen| *seen == gone).unwrap() as u32;
    let mut client = Client::connect(&simulator).await;
    let (_, body) = answer(client.send(Push::new(&simulator, number, 1)).await.unwrap()).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["timestamp"], 1234);
    assert!(simulator.ledger().for_token(&token(number)).is_empty());
}

#[tokio::test]
async fn only_the_reset_after_recording_records_a_notification() {
    for (before, after, recorded) in [(1.0, 0.0, 0), (0.0, 1.0, 1)] {
        let faults = Faults { reset_before_probability: before, reset_after_probability: after, ..Faults::default() };
        let simulator = start(faults);
        let mut client = Client::connect(&simulator).await;
        assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Unknown);
        assert!(client.end().await.is_some(), "the connection must break");
        assert_eq!(simulator.ledger().accepted_total(), recorded);
        assert_eq!(simulator.ledger().for_token(&token(1)).len() as u64, recorded);
        simulator.set_faults(Faults::default()).unwrap();
        let mut client = Client::connect(&simulator).await;
        assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
        assert_eq!(simulator.ledger().duplicates().len() as u64, recorded);
        assert_eq!(simulator.ledger().summary().resets, 1);
    }
}

#[tokio::test]
async fn a_graceful_goaway_lets_open_streams_finish() {
    let simulator = start(Faults { goaway_every: 3, delay_ms: 20, ..Faults::default() });
    let mut client = Client::connect(&simulator).await;
    client.until_stream_limit(1000).await;
    let mut responses = Vec::new();
    for id in 0..3 {
        responses.push(client.send(Push::new(&simulator, 1, id)).await.unwrap());
    }
    for response in responses {
        assert_eq!(see(response).await, Seen::Accepted);
    }
    assert!(client.end().await.is_none(), "a graceful end is no error");
    assert_eq!(simulator.ledger().accepted_total(), 3);
    assert_eq!(simulator.ledger().summary().goaways, 1);
}

#[tokio::test]
async fn an_abrupt_goaway_leaves_recorded_notifications_unanswered() {
    let simulator = start(Faults { goaway_every: 1, goaway_abrupt: true, delay_ms: 20, ..Faults::default() });
    let mut client = Client::connect(&simulator).await;
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Unknown);
    assert_eq!(simulator.ledger().accepted_total(), 1);
}

#[tokio::test]
async fn the_delays_of_answers_run_concurrently() {
    let simulator = start(Faults { delay_ms: 100, jitter_ms: 50, ..Faults::default() });
    let mut client = Client::connect(&simulator).await;
    client.until_stream_limit(1000).await;
    let pushes: Vec<_> = (0..50).map(|id| Push::new(&simulator, 1, id)).collect();
    let begin = Instant::now();
    let mut responses = Vec::new();
    for push in pushes {
        responses.push(client.send(push).await.unwrap());
    }
    for response in responses {
        assert_eq!(see(response).await, Seen::Accepted);
        assert!(begin.elapsed() >= Duration::from_millis(100));
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "fifty delays in sequence take five seconds");
}

#[tokio::test]
async fn a_stall_delays_the_answers() {
    let simulator = start(Faults { stall_probability: 1.0, stall_ms: 100, ..Faults::default() });
    let mut client = Client::connect(&simulator).await;
    let begin = Instant::now();
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    assert!(begin.elapsed() >= Duration::from_millis(100));
    assert_eq!(simulator.ledger().summary().stalls, 1);
}

#[tokio::test]
async fn a_connection_can_die_as_soon_as_it_is_accepted() {
    let simulator = start(Faults { die_after_accept_probability: 1.0, ..Faults::default() });
    assert!(Client::try_connect(&simulator).await.is_none());
    assert_eq!(simulator.ledger().summary().connections_refused, 1);
    simulator.set_faults(Faults::default()).unwrap();
    assert!(Client::try_connect(&simulator).await.is_some());
}

#[tokio::test]
async fn a_stopped_simulator_listens_again_with_its_port_keys_and_ledger() {
    let simulator = start(Faults::default());
    let mut client = Client::connect(&simulator).await;
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    let addr = simulator.addr();
    simulator.stop();
    assert_ne!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    assert!(Client::try_connect(&simulator).await.is_none());
    simulator.listen().unwrap();
    simulator.listen().unwrap();
    assert_eq!(simulator.addr(), addr);
    let mut client = Client::connect(&simulator).await;
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    assert_eq!(simulator.ledger().duplicates().len(), 1);
}

#[tokio::test]
async fn the_observer_sees_only_acceptances() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let told = told.clone();
        Arc::new(move |accepted: tidings_simulator::AcceptedNotification<'_>| {
            let collapse_id = accepted.collapse_id.unwrap().to_vec();
            let entry = (
                accepted.token.to_text().into_owned(),
                accepted.apns_id.as_u128(),
                collapse_id,
                accepted.payload.to_vec(),
            );
            told.lock().unwrap().push(entry);
        })
    };
    let simulator = ApnsSimulator::start_observed(SimulatorConfig::default(), observer).unwrap();
    let mut client = Client::connect(&simulator).await;
    client.push(Push::new(&simulator, 1, 1)).await;
    client.push(Push::new(&simulator, 2, 2).with("apns-priority", "2")).await;
    let payload = br#"{"aps":{"alert":"Goal"}}"#.to_vec();
    assert_eq!(*told.lock().unwrap(), [(token(1), 1, b"goal".to_vec(), payload)]);
}

#[tokio::test]
async fn several_threads_share_one_ledger() {
    let simulator = ApnsSimulator::start(SimulatorConfig { thread_count: 3, ..SimulatorConfig::default() }).unwrap();
    for number in 0..6 {
        let mut client = Client::connect(&simulator).await;
        assert_eq!(client.push(Push::new(&simulator, number, 1)).await, Seen::Accepted);
    }
    let summary = simulator.ledger().summary();
    assert_eq!((summary.accepted, summary.devices, summary.connections), (6, 6, 6));
}
