//! With any faults, the ledger has all notifications that a client saw accepted. Beyond them it has only notifications
//! whose answer the client did not get.

use std::collections::HashMap;

use proptest::prelude::*;
use tidings_simulator::{ApnsSimulator, Faults, FcmConfig, FcmReason, FcmSimulator, Reason, Refusal, SimulatorConfig};
use uuid::Uuid;

use crate::client::{Client, Push, Seen, see};
use crate::foreign::Version;
use crate::{fcm, foreign};

const NOTIFICATIONS: u32 = 120;

fn any_faults<R: Refusal>(rejection_reasons: Vec<R>) -> impl Strategy<Value = Faults<R>> {
    let chance = || prop_oneof![2 => Just(0.0), 1 => 0.0..0.05f64];
    let transport = (chance(), chance(), chance(), chance(), chance());
    let verdicts = (chance(), chance(), chance(), chance());
    (transport, verdicts, 0..3u64, 0..3u64, 1..60u32, any::<bool>(), 0..40u64, any::<bool>()).prop_map(
        move |(transport, verdicts, delay_ms, jitter_ms, stream_limit, is_strict, goaway_every, goaway_abrupt)| {
            Faults {
                refuse_probability: transport.0,
                reset_before_probability: transport.1,
                reset_after_probability: transport.2,
                stall_probability: transport.3,
                die_after_accept_probability: transport.4,
                stall_ms: 2,
                internal_error_probability: verdicts.0,
                unavailable_probability: verdicts.1,
                rejection_probability: verdicts.2,
                rejection_reasons: rejection_reasons.clone(),
                gone_share: verdicts.3,
                delay_ms,
                jitter_ms,
                stream_limit,
                stream_limit_before_token: is_strict.then_some(1),
                stream_limit_after_rejection: is_strict.then_some(1),
                goaway_every,
                goaway_abrupt,
                ..Faults::default()
            }
        },
    )
}

#[derive(Debug, Default)]
struct Tally {
    accepted: u64,
    rejected: u64,
    unknown: u64,
}

/// Sends every notification once, over as many connections as needed. Returns what the client saw of each.
async fn send_all(simulator: &ApnsSimulator, window: usize) -> HashMap<Uuid, Seen> {
    let mut seen = HashMap::new();
    let mut number = 0;
    while number < NOTIFICATIONS {
        let Some(mut client) = Client::try_connect(simulator).await else { continue };
        while number < NOTIFICATIONS {
            let mut responses = Vec::new();
            while number < NOTIFICATIONS && responses.len() < window {
                let id = u128::from(number);
                let Some(response) = client.send(Push::new(simulator, number % 10, id)).await else { break };
                responses.push((Uuid::from_u128(id), response));
                number += 1;
            }
            if responses.is_empty() {
                break; // This connection accepts no more.
            }
            for (id, response) in responses {
                seen.insert(id, see(response).await);
            }
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_has_what_clients_saw_accepted_and_at_most_the_unknown(
        faults in any_faults(vec![Reason::BadDeviceToken, Reason::TooManyRequests]), seed in any::<u64>(),
        window in 1..40usize,
    ) {
        let simulator = ApnsSimulator::start(SimulatorConfig { seed, faults, ..SimulatorConfig::default() }).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let seen = runtime.block_on(send_all(&simulator, window));
        simulator.stop();

        let ledger = simulator.ledger();
        let recorded: HashMap<_, _> = ledger.entries().map(|(_, entry)| (entry.apns_id, entry.count)).collect();
        let mut tally = Tally::default();
        for (id, seen) in &seen {
            let recorded = recorded.get(id).copied().unwrap_or(0);
            match seen {
                Seen::Accepted => { tally.accepted += 1; prop_assert_eq!(recorded, 1) }
                Seen::Rejected(..) => { tally.rejected += 1; prop_assert_eq!(recorded, 0) }
                Seen::Refused => prop_assert_eq!(recorded, 0),
                Seen::Unknown => { tally.unknown += 1; prop_assert!(recorded <= 1) }
            }
        }
        let summary = ledger.summary();
        let rejected: u64 = summary.rejected.values().sum();
        prop_assert_eq!(seen.len(), NOTIFICATIONS as usize);
        prop_assert!((tally.accepted..=tally.accepted + tally.unknown).contains(&summary.accepted));
        prop_assert!((tally.rejected..=tally.rejected + tally.unknown).contains(&rejected));
        prop_assert!(summary.accepted + rejected <= tally.accepted + tally.rejected + tally.unknown);
        prop_assert_eq!(summary.stream_limit_violations, 0);
        prop_assert_eq!(summary.repeated, 0);
    }
}

proptest! {
    // Fewer cases, because each makes an RSA key.
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_of_fcm_does_so_over_both_versions_of_http(
        faults in any_faults(vec![FcmReason::Unregistered, FcmReason::QuotaExceeded]), seed in any::<u64>(),
        version in prop::sample::select(vec![Version::One, Version::Two]),
    ) {
        let simulator = FcmSimulator::start(FcmConfig { seed, ..FcmConfig::default() }).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let seen = runtime.block_on(send_all_to_fcm(&simulator, faults, version));
        simulator.stop();

        let recorded: HashMap<_, _> =
            simulator.ledger().all().map(|(_, entry)| (entry.title.unwrap().to_string(), entry.count)).collect();
        for (title, status) in &seen {
            let recorded = recorded.get(title).copied().unwrap_or(0);
            match status {
                Some(200) => prop_assert_eq!(recorded, 1),
                Some(_) => prop_assert_eq!(recorded, 0),
                None => prop_assert!(recorded <= 1),
            }
        }
        let summary = simulator.ledger().summary();
        let told = seen.values().filter(|status| status.is_some()).count() as u64;
        prop_assert_eq!(seen.len(), FCM_MESSAGES);
        prop_assert!(summary.accepted + summary.rejected.values().sum::<u64>() >= told);
        prop_assert_eq!((summary.stream_limit_violations, summary.repeated), (0, 0));
    }
}

const FCM_MESSAGES: usize = 40;

/// Sends every message once, in sequence, over as many connections as needed. Returns the status of each, or `None`.
async fn send_all_to_fcm(
    simulator: &FcmSimulator,
    faults: Faults<FcmReason>,
    version: Version,
) -> HashMap<String, Option<u16>> {
    let bearer = fcm::bearer(simulator).await;
    simulator.set_faults(faults).unwrap();
    let mut seen = HashMap::new();
    while seen.len() < FCM_MESSAGES {
        let Some(mut client) = foreign::Client::open(version, simulator.addr(), simulator.ca_pem()).await else {
            continue;
        };
        while seen.len() < FCM_MESSAGES {
            let title = seen.len().to_string();
            let request = fcm::send_request(&bearer, &fcm::message("phone:1", "tag", &title));
            let status = client.send(request).await.map(|answer| answer.status.as_u16());
            seen.insert(title, status);
            if status.is_none() {
                break; // Perhaps only the stream was refused, but a new connection does no harm.
            }
        }
    }
    seen
}
