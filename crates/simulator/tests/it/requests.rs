//! Accepted requests, and the reason for each mistake.

use std::time::Duration;

use http::{HeaderValue, Method};
use tidings_simulator::{ApnsSimulator, Faults, Reason, SimulatorConfig, collapse_hash};
use tokio::time::timeout;
use uuid::Uuid;

use crate::client::{Client, Push, Seen, answer, bearer, see, start, token};

#[tokio::test]
async fn a_valid_request_is_accepted_and_recorded() {
    let simulator = start(Faults::default());
    let mut client = Client::connect(&simulator).await;
    let push = Push::new(&simulator, 1, 42);
    let (head, body) = answer(client.send(push.clone()).await.unwrap()).await.unwrap();
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["apns-id"], Uuid::from_u128(42).to_string());
    assert!(body.is_empty());
    let ledger = simulator.ledger();
    let entries = ledger.for_token(&token(1));
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].apns_id, entries[0].count), (Uuid::from_u128(42), 1));
    assert_eq!(entries[0].collapse_hash, Some(collapse_hash(b"goal")));
    assert!(ledger.duplicates().is_empty());

    assert_eq!(client.push(push).await, Seen::Accepted);
    assert_eq!(ledger.accepted_total(), 2);
    let duplicates = ledger.duplicates();
    assert_eq!(duplicates.len(), 1);
    assert_eq!((duplicates[0].0.to_text().into_owned(), duplicates[0].1.count), (token(1), 2));
}

/// About 200 KiB that arrive together take many turns of a connection. Only after the last turn may it wait.
#[tokio::test]
async fn requests_of_many_turns_are_answered_and_recorded_on_every_thread() {
    let simulator = ApnsSimulator::start(SimulatorConfig { thread_count: 3, ..SimulatorConfig::default() }).unwrap();
    let (connection_count, push_count) = (4, 100);
    let mut clients = Vec::new();
    for _ in 0..connection_count {
        clients.push(Client::connect(&simulator).await);
    }
    let mut answers = Vec::new();
    for number in 0..connection_count * push_count {
        let mut push = Push::new(&simulator, number % 7, number.into());
        push.body = format!(r#"{{"aps":{{"alert":"{}"}}}}"#, "x".repeat(2000)).into();
        let client = &mut clients[(number % connection_count) as usize];
        answers.push(client.send(push).await.expect("there is room for a thousand streams"));
    }
    for response in answers {
        let seen = timeout(Duration::from_secs(30), see(response)).await;
        assert_eq!(seen, Ok(Seen::Accepted));
    }
    let ledger = simulator.ledger();
    let summary = ledger.summary();
    let count = u64::from(connection_count * push_count);
    assert_eq!((summary.accepted, summary.notifications, summary.repeated, summary.devices), (count, count, 0, 7));
    let recorded: usize = (0..7).map(|device| ledger.for_token(&token(device)).len()).sum();
    assert_eq!(recorded as u64, count);
}

#[tokio::test]
async fn a_notification_without_an_id_is_given_one() {
    let simulator = start(Faults::default());
    let mut client = Client::connect(&simulator).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut push = Push::new(&simulator, 1, 0);
        push.headers.remove("apns-id");
        let (head, _) = answer(client.send(push).await.unwrap()).await.unwrap();
        ids.push(Uuid::try_parse(head.headers["apns-id"].to_str().unwrap()).unwrap());
    }
    assert_ne!(ids[0], ids[1]);
    let kept: Vec<_> = simulator.ledger().for_token(&token(1)).iter().map(|entry| entry.apns_id).collect();
    assert_eq!(kept, ids);
}

#[tokio::test]
async fn each_mistake_has_its_reason() {
    let simulator = start(Faults::default());
    let mut client = Client::connect(&simulator).await;
    let right = || Push::new(&simulator, 1, 1);
    let without = |name| {
        let mut push = right();
        push.headers.remove(name);
        push
    };
    let with_body = |body: &[u8]| Push { body: body.to_vec().into(), ..right() };
    let payload = |bytes: usize| with_body(format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8)).as_bytes());
    let at = |path: &str| Push { path: path.into(), ..right() };
    let mut repeated = right();
    repeated.headers.append("apns-topic", HeaderValue::from_static("com.example.app"));
    let voip = |bytes| payload(bytes).with("apns-push-type", "voip").with("apns-topic", "com.example.app.voip");

    let cases = [
        (405, "MethodNotAllowed", Push { method: Method::PUT, ..right() }),
        (404, "BadPath", at("/3/devices/aa")),
        (404, "BadPath", at("/")),
        (400, "MissingDeviceToken", at("/3/device/")),
        (400, "BadDeviceToken", at("/3/device/abc")),
        (400, "BadDeviceToken", at("/3/device/xx")),
        (400, "BadDeviceToken", at(&format!("/3/device/{}", "a".repeat(402)))),
        (400, "DuplicateHeaders", repeated),
        (400, "BadMessageId", right().with("apns-id", "0123")),
        (400, "BadMessageId", right().with("apns-id", "{00000000-0000-0000-0000-000000000000}")),
        (400, "MissingTopic", without("apns-topic")),
        (400, "BadTopic", right().with("apns-topic", "")),
        (400, "BadTopic", right().with("apns-push-type", "voip")),
        (400, "TopicDisallowed", right().with("apns-topic", "com.example.other")),
        (400, "InvalidPushType", without("apns-push-type")),
        (400, "InvalidPushType", right().with("apns-push-type", "loud")),
        (400, "BadPriority", right().with("apns-priority", "7")),
        (400, "BadPriority", right().with("apns-push-type", "background")),
        (400, "BadCollapseId", right().with("apns-collapse-id", &"x".repeat(65))),
        (400, "BadExpirationDate", right().with("apns-expiration", "tomorrow")),
        (400, "BadExpirationDate", right().with("apns-expiration", "-1")),
        (403, "MissingProviderToken", without("authorization")),
        (403, "InvalidProviderToken", right().with("authorization", "bearer a.b.c")),
        (403, "ExpiredProviderToken", right().with("authorization", &bearer(&simulator, 3700))),
        (400, "PayloadEmpty", with_body(b"")),
        (400, "PayloadEmpty", with_body(b"[1]")),
        (400, "PayloadEmpty", with_body(b"{\"a\":")),
        (400, "PayloadEmpty", with_body(b"{\"a\":\"\xff\"}")),
        (413, "PayloadTooLarge", payload(4097)),
        (413, "PayloadTooLarge", voip(5121)),
        (413, "PayloadTooLarge", payload(100_000)),
    ];
    let count = cases.len();
    for (status, reason, push) in cases {
        assert_eq!(client.push(push).await, Seen::rejected(status, reason));
    }
    let summary = simulator.ledger().summary();
    assert_eq!(summary.rejected.values().sum::<u64>(), count as u64);
    assert_eq!((summary.accepted, summary.devices, summary.rejected[&Reason::BadDeviceToken]), (0, 0, 3));

    let background = right().with("apns-push-type", "background").with("apns-priority", "5");
    for push in [payload(4096), voip(5120), background, right().with("apns-collapse-id", &"x".repeat(64))] {
        assert_eq!(client.push(push).await, Seen::Accepted);
    }
}

#[tokio::test]
async fn a_connection_accepts_a_new_provider_token_only_every_twenty_minutes() {
    let simulator = start(Faults::default());
    let mut client = Client::connect(&simulator).await;
    let push = |age| Push::new(&simulator, 1, 1).with("authorization", &bearer(&simulator, age));
    assert_eq!(client.push(push(3000)).await, Seen::Accepted);
    assert_eq!(client.push(push(1900)).await, Seen::rejected(429, "TooManyProviderTokenUpdates"));
    assert_eq!(client.push(push(10)).await, Seen::Accepted);
    let mut other = Client::connect(&simulator).await;
    assert_eq!(other.push(push(1900)).await, Seen::Accepted);
}
