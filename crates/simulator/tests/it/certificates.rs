//! Clients that show a certificate.

use http::HeaderMap;
use tidings_simulator::{ApnsSimulator, Faults, PushAuthority, SimulatorConfig};
use tidings_types::{Environment, Timestamp};

use crate::client::{Client, Push, Seen, TOPIC, see};

/// The year 2100.
const FAR: Timestamp = Timestamp(4_102_444_800_000);
const VOIP: &str = "com.example.app.voip";

fn start(authority: &PushAuthority, environment: Environment) -> ApnsSimulator {
    let faults = Faults { stream_limit_before_token: Some(1), stream_limit: 9, ..Faults::default() };
    let client_ca_pem = Some(authority.ca_pem().to_owned());
    ApnsSimulator::start(SimulatorConfig { client_ca_pem, environment, faults, ..SimulatorConfig::default() }).unwrap()
}

/// Sends a request without a token, with changed headers, on a connection with a certificate for these topics.
async fn shown(
    authority: &PushAuthority,
    topics: &[&str],
    environment: Option<Environment>,
    change: impl FnOnce(&mut HeaderMap),
) -> Seen {
    let simulator = start(authority, Environment::Production);
    let certificate = authority.issue(topics, environment, FAR).unwrap();
    let mut client = Client::connect_with(&simulator, &certificate).await.unwrap();
    let mut push = Push::new(&simulator, 1, 1);
    push.headers.remove("authorization");
    change(&mut push.headers);
    client.push(push).await
}

#[tokio::test]
async fn a_certificate_is_valid_for_its_topics_and_its_environment() {
    let authority = PushAuthority::new().unwrap();
    let (one, two) = (&[TOPIC][..], &[TOPIC, VOIP][..]);
    let keep = |_: &mut HeaderMap| {};
    let unnamed = |headers: &mut HeaderMap| drop(headers.remove("apns-topic"));
    let voip = |headers: &mut HeaderMap| {
        headers.insert("apns-topic", VOIP.parse().unwrap());
        headers.insert("apns-push-type", "voip".parse().unwrap());
    };
    let wrong_token = |headers: &mut HeaderMap| drop(headers.insert("authorization", "bearer x".parse().unwrap()));
    let (production, sandbox) = (Some(Environment::Production), Some(Environment::Sandbox));
    assert_eq!(shown(&authority, one, None, keep).await, Seen::Accepted);
    assert_eq!(shown(&authority, one, production, keep).await, Seen::Accepted);
    assert_eq!(shown(&authority, one, sandbox, keep).await, Seen::rejected(403, "BadCertificateEnvironment"));
    assert_eq!(shown(&authority, &[], None, keep).await, Seen::rejected(403, "BadCertificate"));
    assert_eq!(shown(&authority, one, None, wrong_token).await, Seen::Accepted, "tokens are ignored");
    assert_eq!(shown(&authority, one, None, unnamed).await, Seen::Accepted);
    assert_eq!(shown(&authority, two, None, unnamed).await, Seen::rejected(400, "MissingTopic"));
    assert_eq!(shown(&authority, two, None, voip).await, Seen::Accepted);
    assert_eq!(shown(&authority, one, None, voip).await, Seen::rejected(400, "TopicDisallowed"));
}

#[tokio::test]
async fn without_a_certificate_a_token_is_needed_and_a_foreign_certificate_ends_the_connection() {
    let authority = PushAuthority::new().unwrap();
    let simulator = start(&authority, Environment::Sandbox);
    let mut client = Client::connect(&simulator).await;
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    let mut without = Push::new(&simulator, 1, 2);
    without.headers.remove("authorization");
    assert_eq!(client.push(without).await, Seen::rejected(403, "MissingProviderToken"));

    let stranger = PushAuthority::new().unwrap().issue(&[TOPIC], None, FAR).unwrap();
    // With TLS 1.3 the client learns of the refusal only after its handshake.
    if let Some(mut client) = Client::connect_with(&simulator, &stranger).await {
        let seen = match client.send(Push::new(&simulator, 1, 3)).await {
            Some(response) => see(response).await,
            None => Seen::Refused,
        };
        assert!(matches!(seen, Seen::Unknown | Seen::Refused), "{seen:?}");
    }
    assert_eq!(simulator.ledger().accepted_total(), 1);
}

#[tokio::test]
async fn a_certificate_has_all_streams_from_the_beginning() {
    let authority = PushAuthority::new().unwrap();
    let simulator = start(&authority, Environment::Sandbox);
    let certificate = authority.issue(&[TOPIC], None, FAR).unwrap();
    Client::connect_with(&simulator, &certificate).await.unwrap().until_stream_limit(9).await;
    Client::connect(&simulator).await.until_stream_limit(1).await;
}

#[tokio::test]
async fn a_replaced_key_is_refused_on_running_connections_too() {
    let authority = PushAuthority::new().unwrap();
    let simulator = start(&authority, Environment::Sandbox);
    let mut client = Client::connect(&simulator).await;
    assert_eq!(client.push(Push::new(&simulator, 1, 1)).await, Seen::Accepted);
    simulator.add_key("ANOTHERKEY", "ANOTHERTEA").unwrap();
    assert_eq!(client.push(Push::new(&simulator, 1, 2)).await, Seen::Accepted, "a further key changes nothing");
    simulator.add_key(simulator.key_id(), simulator.team_id()).unwrap();
    assert_eq!(client.push(Push::new(&simulator, 1, 3)).await, Seen::rejected(403, "InvalidProviderToken"));
}
