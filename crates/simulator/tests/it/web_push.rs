//! The simulator of a push service, as its clients see it.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tidings_simulator::{Faults, PushSubscription, WebPushConfig, WebPushReason, WebPushSimulator};
use tidings_telemetry::unix_now;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::connect_tls;
use crate::foreign::{Answer, Client};

fn start(faults: Faults<WebPushReason>) -> WebPushSimulator {
    WebPushSimulator::start(WebPushConfig { faults, ..WebPushConfig::default() }).unwrap()
}

struct Sender {
    key: KeyPair,
}

impl Sender {
    fn new() -> Self {
        Self { key: KeyPair::generate().unwrap() }
    }

    /// `applicationServerKey`.
    fn public(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.key.public_key_raw())
    }

    fn authorization(&self, claims: &Value) -> String {
        let key = EncodingKey::from_ec_pem(self.key.serialize_pem().as_bytes()).unwrap();
        let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), claims, &key).unwrap();
        format!("vapid t={token}, k={}", self.public())
    }
}

fn claims(simulator: &WebPushSimulator) -> Value {
    json!({"aud": simulator.origin(), "exp": unix_now().as_secs() + 3600, "sub": "mailto:a@b.c"})
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn hkdf(salt: &[u8], secret: &[u8], info: &[u8], length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    let prk = Salt::new(HKDF_SHA256, salt).extract(secret);
    prk.expand(&[info], Length(length)).unwrap().fill(&mut out).unwrap();
    out
}

/// Encrypts as RFC 8291 says, with the library's HKDF. `plaintext` includes the padding.
fn encrypt(subscription: &PushSubscription, plaintext: &[u8]) -> Vec<u8> {
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    let (browser, auth) = (decode(&subscription.keys.p256dh), decode(&subscription.keys.auth));
    let private = PrivateKey::generate(&ECDH_P256).unwrap();
    let public = private.compute_public_key().unwrap().as_ref().to_vec();
    let peer = UnparsedPublicKey::new(&ECDH_P256, &browser);
    let secret = agreement::agree(&private, peer, (), |secret| Ok(secret.to_vec())).unwrap();
    let salt = [7; 16];
    let ikm = hkdf(&auth, &secret, &[b"WebPush: info\0", &browser[..], &public].concat(), 32);
    let key = hkdf(&salt, &ikm, b"Content-Encoding: aes128gcm\0", 16);
    let nonce = hkdf(&salt, &ikm, b"Content-Encoding: nonce\0", 12);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
    let mut record = plaintext.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
    key.seal_in_place_append_tag(nonce, Aad::empty(), &mut record).unwrap();
    [&salt[..], &4096u32.to_be_bytes(), &[65], &public, &record].concat()
}

fn sealed(subscription: &PushSubscription, content: &Value) -> Vec<u8> {
    encrypt(subscription, &[content.to_string().as_bytes(), &[2]].concat())
}

/// A valid push with changed headers. An empty value removes the header.
fn push(simulator: &WebPushSimulator, endpoint: &str, body: Vec<u8>, changes: &[(&str, &str)]) -> Request<Bytes> {
    let path = endpoint.strip_prefix(simulator.origin()).unwrap();
    let mut headers = vec![("ttl", "60"), ("urgency", "high"), ("topic", "match-7"), ("content-encoding", "aes128gcm")];
    headers.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    headers.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    let mut request = Request::post(format!("https://localhost{path}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(Bytes::from(body)).unwrap()
}

fn refused(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.json()["reason"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_browser_decrypts_its_pushes_and_shows_the_last_of_each_tag() {
    let simulator = start(Faults::default());
    let sender = Sender::new();
    let subscription = simulator.subscribe(Some(&sender.public())).unwrap();
    let vapid = sender.authorization(&claims(&simulator));
    let mut client = Client::one(simulator.addr(), simulator.ca_pem()).await;
    for (tag, title) in [("a", "1 : 0"), ("b", "0 : 0"), ("a", "1 : 1"), ("a", "1 : 1")] {
        let body = sealed(&subscription, &json!({"title": title, "tag": tag, "data": {"x": 1}}));
        let request = push(&simulator, &subscription.endpoint, body, &[("authorization", &vapid)]);
        let answer = client.send(request).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.header("ttl")), (201, Some("60")), "{answer:?}");
        assert!(answer.header("location").unwrap().starts_with(simulator.origin()));
    }
    let titles = |entries: Vec<tidings_simulator::MessageEntry>| -> Vec<_> {
        entries.into_iter().map(|entry| entry.title.unwrap().to_string()).collect()
    };
    assert_eq!(titles(simulator.ledger().for_endpoint(&subscription.endpoint)), ["1 : 0", "0 : 0", "1 : 1"]);
    assert_eq!(titles(simulator.ledger().shown(&subscription.endpoint)), ["0 : 0", "1 : 1"]);
    assert_eq!(simulator.ledger().summary().repeated, 1, "one push was repeated");
}

#[tokio::test]
async fn each_mistake_has_its_reason() {
    let simulator = start(Faults::default());
    let subscription = simulator.subscribe(None).unwrap();
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let body = || sealed(&subscription, &json!({"title": "x"}));
    let other = simulator.subscribe(None).unwrap();
    let long = "x".repeat(33);
    for (changes, body, expected) in [
        (&[("ttl", "")][..], body(), Some((400, "BadTtl"))),
        (&[("ttl", "-1")], body(), Some((400, "BadTtl"))),
        (&[("ttl", "1.5")], body(), Some((400, "BadTtl"))),
        (&[("ttl", "0")], body(), None),
        (&[("urgency", "urgent")], body(), Some((400, "BadUrgency"))),
        (&[("urgency", "")], body(), None),
        (&[("topic", &long)], body(), Some((400, "BadTopic"))),
        (&[("topic", "a b")], body(), Some((400, "BadTopic"))),
        (&[("topic", "")], body(), None),
        (&[("content-encoding", "")], body(), Some((400, "BadEncoding"))),
        (&[("content-encoding", "aesgcm")], body(), Some((400, "BadEncoding"))),
        (&[("crypto-key", "dh=x")], body(), Some((400, "BadEncoding"))),
        (&[("content-encoding", "")], Vec::new(), None),
        (&[], sealed(&other, &json!({})), Some((400, "Undecryptable"))),
        (&[], encrypt(&subscription, b"x\x01"), Some((400, "Undecryptable"))),
        (&[], encrypt(&subscription, b"x\x02\0\0\0"), None),
        (&[], encrypt(&subscription, b"\x02"), None),
        (&[], vec![0; 4097], Some((413, "PayloadTooLarge"))),
        (&[], encrypt(&subscription, &[&[b'x'; 3993][..], &[2]].concat()), None),
        (&[], encrypt(&subscription, &[&[b'x'; 3994][..], &[2]].concat()), Some((413, "PayloadTooLarge"))),
        (&[("authorization", "WebPush x")], body(), Some((403, "BadAuthorization"))),
    ] {
        let answer = client.send(push(&simulator, &subscription.endpoint, body, changes)).await.unwrap();
        match expected {
            None => assert_eq!(answer.status, 201, "{changes:?} {answer:?}"),
            Some((status, reason)) => assert_eq!(refused(&answer), (status, reason.to_owned()), "{changes:?}"),
        }
    }
    let forged = format!("{}/push/AAAA", simulator.origin());
    assert_eq!(refused(&client.send(push(&simulator, &forged, body(), &[])).await.unwrap()), (404, "NotFound".into()));
    assert!(simulator.end(&subscription.endpoint) && !simulator.end(&forged));
    let answer = client.send(push(&simulator, &subscription.endpoint, body(), &[])).await.unwrap();
    assert_eq!(refused(&answer), (410, "Gone".into()));
    let get =
        Request::get(format!("https://localhost{}", subscription.endpoint.strip_prefix(simulator.origin()).unwrap()));
    assert_eq!(client.send(get.body(Bytes::new()).unwrap()).await.unwrap().status, 405);
}

#[tokio::test]
async fn a_subscription_for_one_sender_refuses_all_others() {
    let simulator = start(Faults::default());
    let (sender, stranger) = (Sender::new(), Sender::new());
    let subscription = simulator.subscribe(Some(&sender.public())).unwrap();
    let mut client = Client::two(simulator.addr(), simulator.ca_pem()).await;
    let now = unix_now().as_secs();
    let with = |claim: &str, value: Value| {
        let mut claims = claims(&simulator);
        claims[claim] = value;
        claims
    };
    let right = claims(&simulator);
    for (authorization, expected) in [
        (sender.authorization(&right), None),
        (String::new(), Some((401, "MissingAuthorization"))),
        (stranger.authorization(&right), Some((403, "KeyMismatch"))),
        (sender.authorization(&with("aud", json!("https://localhost"))), Some((403, "BadAuthorization"))),
        (sender.authorization(&with("aud", json!(subscription.endpoint))), Some((403, "BadAuthorization"))),
        (sender.authorization(&with("exp", json!(now - 1))), Some((403, "BadAuthorization"))),
        (sender.authorization(&with("exp", json!(now + 24 * 3600 + 60))), Some((403, "BadAuthorization"))),
        (sender.authorization(&with("sub", json!("nobody"))), Some((403, "BadAuthorization"))),
        (sender.authorization(&right).replace(&sender.public(), &stranger.public()), Some((403, "BadAuthorization"))),
        (sender.authorization(&right).replace("vapid", "Vapid"), None),
    ] {
        let body = sealed(&subscription, &json!({}));
        let request = push(&simulator, &subscription.endpoint, body, &[("authorization", &authorization)]);
        let answer = client.send(request).await.unwrap();
        match expected {
            None => assert_eq!(answer.status, 201, "{answer:?}"),
            Some((status, reason)) => assert_eq!(refused(&answer), (status, reason.to_owned())),
        }
    }
    assert!(simulator.subscribe(Some("no key")).is_none());
    let own = simulator.subscribe(Some(&simulator.application_server_key())).unwrap();
    assert_ne!(own.endpoint, subscription.endpoint);
    assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(simulator.vapid_key()).unwrap().len(), 32);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_after_one_round_trip() {
    let simulator = start(Faults { delay_ms: 50, jitter_ms: 20, ..Faults::default() });
    let mut stream = connect_tls(simulator.addr(), simulator.ca_pem(), "http/1.1", None).await.unwrap();
    let subscription = simulator.subscribe(None).unwrap();
    let path = subscription.endpoint.strip_prefix(simulator.origin()).unwrap();
    let mut bytes = Vec::new();
    for ttl in 0..100 {
        bytes.extend(format!("POST {path} HTTP/1.1\r\nhost: x\r\nttl: {ttl}\r\ncontent-length: 0\r\n\r\n").bytes());
    }
    bytes.extend(format!("POST {path} HTTP/1.1\r\nhost: x\r\nttl: x\r\nconnection: close\r\n\r\n").bytes());
    let begin = tokio::time::Instant::now();
    stream.write_all(&bytes).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(begin.elapsed() >= std::time::Duration::from_millis(50));
    let ttls: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("ttl: ")?.parse().ok()).collect();
    assert_eq!(ttls, (0..100).collect::<Vec<_>>());
    assert!(text.contains("HTTP/1.1 400 Bad Request") && text.contains("connection: close"));
    assert_eq!(simulator.ledger().accepted_total(), 100);
    assert!(simulator.ledger().summary().streams_open_max > 50, "the answers waited together");
}

#[tokio::test]
async fn faults_and_quota_are_answered_with_retry_after() {
    let simulator = start(Faults { unavailable_probability: 1.0, retry_after_secs: Some(3), ..Faults::default() });
    let subscription = simulator.subscribe(None).unwrap();
    let mut client = Client::one(simulator.addr(), simulator.ca_pem()).await;
    let request = || push(&simulator, &subscription.endpoint, sealed(&subscription, &json!({})), &[]);
    let answer = client.send(request()).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("3")));
    simulator.set_faults(Faults { quota_count: 1, quota_interval_ms: 3_600_000, ..Faults::default() }).unwrap();
    assert_eq!(client.send(request()).await.unwrap().status, 201);
    let answer = client.send(request()).await.unwrap();
    assert_eq!(refused(&answer), (429, "TooManyRequests".into()));
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() > 3000);
    simulator.set_faults(Faults { gone_share: 1.0, ..Faults::default() }).unwrap();
    assert_eq!(refused(&client.send(request()).await.unwrap()), (410, "Gone".into()));
}

#[tokio::test]
async fn control_requests_make_and_end_subscriptions() {
    let simulator = start(Faults::default());
    let mut client = Client::one(simulator.addr(), simulator.ca_pem()).await;
    let mut ask = async |path: &str, body: String| {
        let answer = client.send(Request::post(path).body(Bytes::from(body)).unwrap()).await.unwrap();
        (answer.status.as_u16(), answer.json())
    };
    let (status, subscription) = ask("/simulator/subscriptions", "{}".into()).await;
    assert_eq!((status, &subscription["expirationTime"]), (200, &Value::Null));
    let endpoint = subscription["endpoint"].as_str().unwrap().to_owned();
    let sender = json!({"applicationServerKey": Sender::new().public()}).to_string();
    assert_eq!(ask("/simulator/subscriptions", sender).await.0, 200);
    assert_eq!(ask("/simulator/subscriptions", json!({"applicationServerKey": "x"}).to_string()).await.0, 400);
    assert_eq!(ask("/simulator/gone", json!({"endpoint": endpoint}).to_string()).await.0, 200);
    assert_eq!(ask("/simulator/gone", json!({"endpoint": "x"}).to_string()).await.0, 404);
    let name = endpoint.rsplit('/').next().unwrap();
    let get = Request::get(format!("/simulator/ledger/{name}")).body(Bytes::new()).unwrap();
    assert_eq!(client.send(get).await.unwrap().json(), json!([]));
}

#[tokio::test]
async fn a_simulator_with_the_same_seed_and_port_knows_the_same_browsers() {
    let config = WebPushConfig { seed: 5, ..WebPushConfig::default() };
    let first = WebPushSimulator::start(config.clone()).unwrap();
    let (addr, subscription) = (first.addr(), first.subscribe(None).unwrap());
    drop(first);
    let second = WebPushSimulator::start(WebPushConfig { listen: addr, ..config }).unwrap();
    let mut client = Client::one(second.addr(), second.ca_pem()).await;
    let body = sealed(&subscription, &json!({"title": "x"}));
    assert_eq!(client.send(push(&second, &subscription.endpoint, body, &[])).await.unwrap().status, 201);
}
