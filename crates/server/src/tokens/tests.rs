//! An endpoint that really listens: keys that change, no answer, slow, huge and wrong answers. Tokens are signed here by
//! hand, so the library that checks them is not its own judge.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tidings_protocol::token::{Token as SignedToken, TokenError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// A key of an identity provider.
struct Signer {
    id: &'static str,
    pair: Ed25519KeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { id, pair: Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap() }
    }

    fn jwk(&self) -> Value {
        let x = BASE64_URL_SAFE_NO_PAD.encode(self.pair.public_key());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": x})
    }

    fn token(&self) -> SignedToken {
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let mut text = format!("{}.{}", part(json!({"alg": "EdDSA", "kid": self.id})), part(json!({"sub": "42"})));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.pair.sign(text.as_bytes()));
        write!(text, ".{signature}").unwrap();
        SignedToken::from(&*text)
    }
}

/// What the endpoint does with a request.
#[derive(Clone)]
enum Mode {
    Keys(Vec<Value>),
    Raw(String),
    /// Answers with a head, and then with a byte now and then.
    Slow,
    /// Closes the connection.
    Silent,
}

/// An endpoint for keys on this machine.
struct Provider {
    url: String,
    mode: Arc<Mutex<Mode>>,
    request_count: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Provider {
    async fn start(mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys?of=us", listener.local_addr().unwrap());
        let (mode, request_count) = (Arc::new(Mutex::new(mode)), Arc::new(AtomicUsize::new(0)));
        let (current, counted) = (mode.clone(), request_count.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut answers = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                answers.spawn(answer(socket, current.clone(), counted.clone()));
            }
        });
        Self { url, mode, request_count, _task: task }
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    fn config(&self, more: &str) -> config::Config {
        let text = format!(
            "[client.token]\njwks_url = {:?}\njwks_allow_http = true\njwks_fetch_interval_min = \"100ms\"\n\
             jwks_refresh_interval = \"1h\"\njwks_timeout = \"300ms\"\n{more}",
            self.url
        );
        config::parse("t", &text, []).unwrap().config
    }

    async fn tokens(&self, more: &str) -> Tokens {
        Tokens::start(&self.config(more).client, &Registry::new()).await.unwrap().unwrap()
    }

    fn request_count(&self) -> usize {
        self.request_count.load(Ordering::Relaxed)
    }
}

async fn answer(mut socket: TcpStream, mode: Arc<Mutex<Mode>>, counted: Arc<AtomicUsize>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = socket.read_u8().await else { return };
        head.push(byte);
    }
    assert!(head.starts_with(b"GET /keys?of=us HTTP/1.1\r\n"), "the address of the configuration and nothing else");
    counted.fetch_add(1, Ordering::Relaxed);
    let mode = mode.lock().unwrap().clone();
    let text = match mode {
        Mode::Silent => return,
        Mode::Slow => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"keys\":".to_owned(),
        Mode::Raw(text) => text,
        Mode::Keys(keys) => ok(&json!({ "keys": keys }).to_string()),
    };
    let _ = socket.write_all(text.as_bytes()).await; // It may have hung up: the answer is too long.
    let _ = socket.read_u8().await; // Until it hangs up.
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn check(tokens: &Tokens, token: &SignedToken) -> Result<(), TokenError> {
    tokens.verifier.verify_connection(token, unix_now()).map(drop)
}

/// Between two looks at a condition that has a deadline.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// Like a client that comes back as long as it may.
async fn until(tokens: &Tokens, signer: &Signer, expected: Result<(), TokenError>) {
    let (began, token) = (Instant::now(), signer.token());
    while check(tokens, &token) != expected {
        assert!(began.elapsed() < PATIENCE, "{}: not {expected:?}: {:?}", signer.id, check(tokens, &token));
        pause().await;
    }
}

#[tokio::test]
async fn a_key_that_is_changed_is_found_without_a_restart() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let provider = Provider::start(Mode::Keys(vec![old.jwk()])).await;
    let tokens = provider.tokens("").await;
    assert_eq!(check(&tokens, &old.token()), Ok(()), "the keys are there when the server starts");
    provider.set(Mode::Keys(vec![old.jwk(), new.jwk()]));
    until(&tokens, &new, Ok(())).await;
    assert_eq!(check(&tokens, &old.token()), Ok(()), "both hold");
    provider.set(Mode::Keys(vec![new.jwk()]));
    until(&tokens, &Signer::new("unknown"), Err(TokenError::KeyPending)).await; // Makes the server fetch.
    until(&tokens, &old, Err(TokenError::Expired)).await;
    assert_eq!(check(&tokens, &new.token()), Ok(()));
}

#[tokio::test]
async fn made_up_keys_cost_one_fetch_per_interval() {
    let real = Signer::new("real");
    let provider = Provider::start(Mode::Keys(vec![real.jwk()])).await;
    let (began, tokens) = (Instant::now(), provider.tokens("").await);
    let forged = Signer::new("made up").token();
    while provider.request_count() < 4 {
        assert!(check(&tokens, &forged).is_err());
        assert!(began.elapsed() < PATIENCE);
        pause().await;
    }
    assert!(began.elapsed() >= Duration::from_millis(300), "three intervals of 100 ms");
    assert_eq!(check(&tokens, &real.token()), Ok(()));
}

#[tokio::test]
async fn while_the_endpoint_fails_the_old_keys_hold() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let provider = Provider::start(Mode::Keys(vec![old.jwk()])).await;
    let tokens = provider.tokens("").await;
    let huge = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(DOCUMENT_BYTES_MAX));
    let many = json!({ "keys": vec![old.jwk(); 65] }).to_string();
    for (what, mode) in [
        ("silent", Mode::Silent),
        ("slow", Mode::Slow),
        ("huge", Mode::Raw(ok(&huge))),
        ("endless head", Mode::Raw(format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(2 * HEAD_BYTES_MAX)))),
        ("rubbish", Mode::Raw(ok("<html>"))),
        ("not HTTP", Mode::Raw("220 smtp.example\r\n\r\n".to_owned())),
        ("no keys", Mode::Keys(Vec::new())),
        ("too many keys", Mode::Raw(ok(&many))),
        ("an error", Mode::Raw("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_owned())),
        ("elsewhere", Mode::Raw("HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n".to_owned())),
    ] {
        provider.set(mode);
        let asked = provider.request_count();
        let began = Instant::now();
        // When a second fetch begins, the first one has ended.
        while provider.request_count() < asked + 2 {
            assert_eq!(check(&tokens, &old.token()), Ok(()), "{what}");
            let unknown = check(&tokens, &new.token());
            assert!(matches!(unknown, Err(TokenError::KeyPending | TokenError::Expired)), "{what}: {unknown:?}");
            assert!(began.elapsed() < PATIENCE, "{what}");
            pause().await;
        }
        assert_eq!(check(&tokens, &new.token()), Err(TokenError::KeyPending), "{what}: clients are to come back");
    }
    provider.set(Mode::Keys(vec![new.jwk()]));
    until(&tokens, &new, Ok(())).await;
}

#[tokio::test]
async fn an_endpoint_that_is_down_when_the_server_starts_is_tried_again() {
    let signer = Signer::new("one");
    let provider = Provider::start(Mode::Silent).await;
    let tokens = provider.tokens("hmac_secret = \"a secret of 32 bytes, as it ought be\"\n").await;
    assert_eq!(check(&tokens, &signer.token()), Err(TokenError::KeyPending));
    provider.set(Mode::Keys(vec![signer.jwk()]));
    until(&tokens, &signer, Ok(())).await;
}

#[tokio::test]
async fn a_reload_takes_keys_and_rules_but_no_other_address() {
    let signer = Signer::new("one");
    let provider = Provider::start(Mode::Keys(vec![signer.jwk()])).await;
    let tokens = provider.tokens("").await;
    let fetched = provider.request_count();
    tokens.reload(&provider.config("audience = \"chat\"\n").client);
    assert!(matches!(check(&tokens, &signer.token()), Err(TokenError::Invalid(_))), "it has no audience");
    let elsewhere = Provider::start(Mode::Silent).await;
    tokens.reload(&elsewhere.config("").client);
    assert!(matches!(check(&tokens, &signer.token()), Err(TokenError::Invalid(_))), "nothing of it is taken");
    tokens.reload(&provider.config("").client);
    assert_eq!(check(&tokens, &signer.token()), Ok(()));
    let began = Instant::now();
    while provider.request_count() == fetched {
        assert!(began.elapsed() < PATIENCE, "a reload fetches the keys");
        pause().await;
    }
}

#[tokio::test]
async fn keys_come_from_files_too_and_a_wrong_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    let (signer, other) = (Signer::new("a"), Signer::new("b"));
    let write = |signer: &Signer| {
        // RFC 8410, 4: the 12 bytes say that an Ed25519 key follows.
        let der = [b"0*0\x05\x06\x03+ep\x03!\0", signer.pair.public_key().as_ref()].concat();
        let text = base64::prelude::BASE64_STANDARD.encode(der);
        std::fs::write(&file, format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")).unwrap();
    };
    write(&signer);
    let text = format!("[client.token]\npublic_key_files = [{:?}]", file.display().to_string());
    let config = config::parse("t", &text, []).unwrap().config;
    let tokens = Tokens::start(&config.client, &Registry::new()).await.unwrap().unwrap();
    assert_eq!(check(&tokens, &signer.token()), Ok(()));
    std::fs::write(&file, "broken").unwrap();
    tokens.reload(&config.client);
    assert_eq!(check(&tokens, &signer.token()), Ok(()), "the old key holds");
    write(&other);
    tokens.reload(&config.client);
    assert!(check(&tokens, &signer.token()).is_err());
    assert_eq!(check(&tokens, &other.token()), Ok(()));
}
