//! The access token for requests to FCM (RFC 7523; Google, "Using OAuth 2.0 for server to server applications").
//!
//! A service account's key signs an *assertion*. The token endpoint answers with an access token, which is valid for an hour
//! and which all connections of the project share. This module does not connect: [`ServiceAccount::token_request`] is the
//! body to post, [`read_answer`] reads the answer, and [`AccessTokens`] has the current token and knows when the next is due:
//!
//! ```text
//!            begin_refresh                on_answer(Ok)
//!  none ───────────────────► awaited ───────────────────► current ──┐ 5 minutes before its end, or refused:
//!   ▲                           │ on_answer(Err): waits,            │ begin_refresh, the current one is used meanwhile
//!   └───────────────────────────┘ 1 s to 1 min, doubling  ◄─────────┘ if it was not refused
//! ```
//!
//! There is one refresh at a time. A refresh without a result is given up after [`REFRESH_TIMEOUT`]. A refused token (401) is
//! replaced once. If a token that was fetched less than [`TOKEN_AGE_MIN`] ago is refused, another would not help, and the log
//! tells the operator.

use std::borrow::Cow;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use jsonwebtoken::{Algorithm, Header};
use serde::{Deserialize, Serialize};
use tidings_types::{Backoff, Timestamp};

use super::ProjectError;
use super::request::check_project;
use crate::key::{SigningKey, decode_pem};

/// What the token is for.
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// The longest life of an assertion that Google accepts.
const ASSERTION_LIFE: Duration = Duration::from_secs(3600);
/// A token is replaced this long before its end.
pub const REFRESH_BEFORE: Duration = Duration::from_secs(300);
/// A refused token that was fetched less than this ago is not replaced.
pub const TOKEN_AGE_MIN: Duration = Duration::from_secs(60);
/// A refresh without a result is given up after this time.
pub const REFRESH_TIMEOUT: Duration = Duration::from_secs(30);
/// A longer `expires_in` counts as this.
const TOKEN_LIFE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Bytes of a token; Google's own bound ("Using OAuth 2.0 to Access Google APIs", token size). Each request contains it.
const TOKEN_BYTES_MAX: usize = 2048;

const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Why a service account cannot be used. Its key is not shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceAccountError {
    /// It is not a file from Google.
    #[error(
        "the service account must be a JSON file with client_email, private_key_id, private_key, project_id, token_uri"
    )]
    Json,
    /// A part of it is missing or empty.
    #[error("the service account has no {0}")]
    Missing(&'static str),
    /// Its project id cannot be a part of a URL.
    #[error(transparent)]
    Project(ProjectError),
    /// The token endpoint does not use TLS.
    #[error("the service account's token_uri must begin with https://")]
    TokenUri,
    /// The key is not RSA of 2048 bits or more in a PEM file.
    #[error("the service account's private_key must be an RSA key of at least 2048 bits, in PEM (PKCS#8)")]
    Key,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    private_key_id: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    project_id: String,
    #[serde(default)]
    token_uri: String,
}

/// An account that may send for a project, from Google's console.
pub struct ServiceAccount {
    email: String,
    project: String,
    token_uri: String,
    header: Header,
    key: SigningKey,
}

impl ServiceAccount {
    /// Reads the file from Google's console.
    ///
    /// # Errors
    /// When it is not such a file.
    pub fn parse(json: &[u8]) -> Result<Self, ServiceAccountError> {
        let file: File = serde_json::from_slice(json).map_err(|_| ServiceAccountError::Json)?;
        let needed = [
            ("client_email", &file.client_email),
            ("private_key_id", &file.private_key_id),
            ("private_key", &file.private_key),
            ("project_id", &file.project_id),
            ("token_uri", &file.token_uri),
        ];
        if let Some((name, _)) = needed.iter().find(|(_, value)| value.is_empty()) {
            return Err(ServiceAccountError::Missing(name));
        }
        check_project(&file.project_id).map_err(ServiceAccountError::Project)?;
        if !file.token_uri.starts_with("https://") {
            return Err(ServiceAccountError::TokenUri);
        }
        let key =
            decode_pem(&file.private_key).and_then(|pkcs8| SigningKey::rsa(&pkcs8)).ok_or(ServiceAccountError::Key)?;
        let File { client_email: email, private_key_id, project_id: project, token_uri, .. } = file;
        let header = Header { kid: Some(private_key_id), ..Header::new(Algorithm::RS256) };
        Ok(Self { email, project, token_uri, header, key })
    }

    /// Its project.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The URL to which assertions are posted.
    pub fn token_uri(&self) -> &str {
        &self.token_uri
    }

    /// The form (`application/x-www-form-urlencoded`) to be posted for an access token.
    pub fn token_request(&self, now: Timestamp) -> String {
        // Only the colons of the grant need escaping. An assertion has only base64url and dots.
        format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={}", self.assertion(now))
    }

    fn assertion(&self, now: Timestamp) -> String {
        #[derive(Serialize)]
        struct Claims<'a> {
            iss: &'a str,
            scope: &'static str,
            aud: &'a str,
            iat: u64,
            exp: u64,
        }
        let claims = Claims {
            iss: &self.email,
            scope: SCOPE,
            aud: &self.token_uri,
            iat: now.as_secs(),
            exp: now.saturating_add(ASSERTION_LIFE).as_secs(),
        };
        self.key.sign(&self.header, &claims)
    }
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccount").field("project", &self.project).finish_non_exhaustive()
    }
}

/// An access token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// The value of the `authorization` header; marked sensitive.
    pub authorization: HeaderValue,
    /// When it was fetched.
    pub fetched_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

impl AccessToken {
    /// When the next token is due: five minutes before its end, or after half of its life if that is later.
    fn refresh_at(&self) -> Timestamp {
        let life = self.expires_at.saturating_since(self.fetched_at);
        self.fetched_at.saturating_add(life - REFRESH_BEFORE.min(life / 2))
    }
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The endpoint refuses the account: key revoked, clock wrong, account deleted. The operator must act.
    #[error("the token endpoint refuses the service account: {0}")]
    Refused(String),
    /// The endpoint has an error or was not reached.
    #[error("the token endpoint is not available: {0}")]
    Unavailable(String),
    /// Its answer is invalid.
    #[error("the token endpoint's answer cannot be read")]
    Unreadable,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Answer<'a> {
    #[serde(borrow)]
    access_token: Cow<'a, str>,
    expires_in: u64,
    #[serde(borrow)]
    error: Cow<'a, str>,
}

/// Reads the token endpoint's answer, at most [`crate::ANSWER_BYTES_MAX`] × 4 bytes of it.
///
/// # Errors
/// When it has no token. The error shows only the name of the endpoint's error, nothing else of the body.
pub fn read_answer(status: StatusCode, body: &[u8], now: Timestamp) -> Result<AccessToken, TokenError> {
    let answer: Option<Answer<'_>> = serde_json::from_slice(body).ok();
    if !status.is_success() {
        let name = answer.map(|answer| answer.error.into_owned()).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| status.as_u16().to_string(), |name| name.chars().take(64).collect());
        let is_our_fault = status.is_client_error() && !matches!(status.as_u16(), 408 | 429);
        return Err(if is_our_fault { TokenError::Refused(name) } else { TokenError::Unavailable(name) });
    }
    let Answer { access_token, expires_in, .. } = answer.ok_or(TokenError::Unreadable)?;
    if access_token.is_empty() || access_token.len() > TOKEN_BYTES_MAX || expires_in == 0 {
        return Err(TokenError::Unreadable);
    }
    let mut authorization =
        HeaderValue::try_from(format!("Bearer {access_token}")).map_err(|_| TokenError::Unreadable)?;
    authorization.set_sensitive(true); // Keeps it out of Debug output.
    let life = Duration::from_secs(expires_in).min(TOKEN_LIFE_MAX);
    Ok(AccessToken { authorization, fetched_at: now, expires_at: now.saturating_add(life) })
}

/// The current token of one account, shared by all connections that use it.
#[derive(Debug, Default)]
pub struct AccessTokens {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<AccessToken>,
    /// The current token was refused and is not used any more.
    refused: bool,
    /// When the current refresh began.
    awaited_since: Option<Timestamp>,
    failures: u32,
    /// After failures, the next refresh does not begin before this.
    retry_at: Timestamp,
}

impl State {
    fn usable(&self, now: Timestamp) -> Option<&AccessToken> {
        self.current.as_ref().filter(|token| !self.refused && now < token.expires_at)
    }

    /// When a refresh may begin.
    fn due_at(&mut self, now: Timestamp) -> Timestamp {
        // A beginning in the future, or a wait that is longer than the maximum, means that the clock was set back.
        self.awaited_since = self.awaited_since.map(|since| since.min(now));
        if self.retry_at.saturating_since(now) > PAUSES.cap() {
            self.retry_at = now;
        }
        let due = self.usable(now).map_or(now, AccessToken::refresh_at);
        let free = self.awaited_since.map_or(now, |since| since.saturating_add(REFRESH_TIMEOUT));
        due.max(free).max(self.retry_at)
    }
}

impl AccessTokens {
    /// No token. The first refresh is due at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of the `authorization` header for requests sent `now`; `None` if there is no usable token, so that nothing
    /// can be sent.
    pub fn authorization(&self, now: Timestamp) -> Option<HeaderValue> {
        self.locked(|state| state.usable(now).map(|token| token.authorization.clone()))
    }

    /// Whether the caller must fetch a token now. If true, the caller must later call [`Self::on_answer`] or
    /// [`Self::on_abandoned`].
    pub fn begin_refresh(&self, now: Timestamp) -> bool {
        self.locked(|state| {
            let begins = state.due_at(now) <= now;
            if begins {
                state.awaited_since = Some(now);
            }
            begins
        })
    }

    /// How long until [`Self::begin_refresh`] may be true.
    pub fn refresh_after(&self, now: Timestamp) -> Duration {
        self.locked(|state| state.due_at(now).saturating_since(now))
    }

    /// The result of a refresh. After a failure the next refresh waits; `random` is any 64 random bits.
    pub fn on_answer(&self, answer: &Result<AccessToken, TokenError>, random: u64, now: Timestamp) {
        self.locked(|state| {
            state.awaited_since = None;
            match answer {
                Ok(token) => *state = State { current: Some(token.clone()), ..State::default() },
                Err(_) => {
                    state.failures = state.failures.saturating_add(1);
                    state.retry_at = now.saturating_add(PAUSES.long_pause(state.failures, random));
                }
            }
        });
    }

    /// A refresh was given up without an answer, not because of the endpoint. The next may begin at once.
    pub fn on_abandoned(&self) {
        self.locked(|state| state.awaited_since = None);
    }

    /// FCM refused `used` (401). Returns whether there is another token or one will be fetched. If not, `used` was new, so
    /// another token would be refused too.
    pub fn on_refused(&self, used: &HeaderValue, now: Timestamp) -> bool {
        self.locked(|state| match &state.current {
            Some(token) if token.authorization == *used => {
                // A token from the future (the clock was set back) counts as old.
                let age = now.saturating_since(token.fetched_at);
                state.refused |= age >= TOKEN_AGE_MIN || token.fetched_at > now;
                state.refused
            }
            _ => true, // It was replaced already.
        })
    }

    fn locked<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        action(&mut self.state.lock().expect("nothing panics under this lock"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use aws_lc_rs::encoding::AsDer as _;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::key::encode_pem;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const TOKEN_URI: &str = "https://oauth2.example/token";

    static KEY: LazyLock<String> = LazyLock::new(|| {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let der = key.as_der().unwrap();
        encode_pem(der.as_ref())
    });

    fn file(changes: &Value) -> Vec<u8> {
        let mut file = json!({
            "type": "service_account",
            "project_id": "scores-1",
            "private_key_id": "abc123",
            "private_key": *KEY,
            "client_email": "push@scores-1.iam.gserviceaccount.com",
            "token_uri": TOKEN_URI,
        });
        for (name, value) in changes.as_object().unwrap() {
            file[name] = value.clone();
        }
        serde_json::to_vec(&file).unwrap()
    }

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    fn token(name: &str, life: u64, now: Timestamp) -> AccessToken {
        let body = json!({"access_token": name, "expires_in": life, "token_type": "Bearer"}).to_string();
        read_answer(StatusCode::OK, body.as_bytes(), now).unwrap()
    }

    #[test]
    fn an_assertion_is_what_rfc_7523_and_google_say() {
        let account = ServiceAccount::parse(&file(&json!({}))).unwrap();
        assert_eq!((account.project(), account.token_uri()), ("scores-1", TOKEN_URI));
        let form = account.token_request(NOW);
        let assertion =
            form.strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=").unwrap();
        let (signed, signature) = assertion.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let json_of = |part: &str| serde_json::from_slice::<Value>(&decode(part)).unwrap();
        assert_eq!(json_of(header), json!({"alg": "RS256", "typ": "JWT", "kid": "abc123"}));
        assert_eq!(
            json_of(claims),
            json!({
                "iss": "push@scores-1.iam.gserviceaccount.com", "scope": SCOPE, "aud": TOKEN_URI,
                "iat": 1_800_000_000, "exp": 1_800_003_600,
            })
        );
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, account.key.public());
        public.verify(signed.as_bytes(), &decode(signature)).unwrap();
        assert_eq!(account.token_request(NOW), form, "PKCS#1 v1.5 is deterministic");
    }

    #[test]
    fn what_is_no_service_account_is_refused_without_repeating_it() {
        use ServiceAccountError as E;
        let of = |changes: Value| ServiceAccount::parse(&file(&changes)).unwrap_err();
        assert_eq!(ServiceAccount::parse(b"secret").unwrap_err(), E::Json);
        assert_eq!(of(json!({"private_key": 7})), E::Json);
        assert_eq!(of(json!({"client_email": ""})), E::Missing("client_email"));
        assert_eq!(of(json!({"project_id": "../x"})), E::Project(ProjectError::Id("../x".to_owned())));
        assert_eq!(of(json!({"token_uri": "http://oauth2.example/token"})), E::TokenUri);
        for key in ["secret", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"] {
            assert_eq!(of(json!({"private_key": key})), E::Key);
        }
        assert!(!format!("{:?}", ServiceAccount::parse(&file(&json!({}))).unwrap()).contains("PRIVATE"));
    }

    #[test]
    fn the_endpoints_answer_is_read() {
        let read = |status: u16, body: &str| read_answer(StatusCode::from_u16(status).unwrap(), body.as_bytes(), NOW);
        let token = token("ya29.x", 3599, NOW);
        assert_eq!((token.authorization.to_str().unwrap(), token.expires_at), ("Bearer ya29.x", after(3599)));
        assert!(!format!("{token:?}").contains("ya29"));
        let refused = |name: &str| Err(TokenError::Refused(name.to_owned()));
        let unavailable = |name: &str| Err(TokenError::Unavailable(name.to_owned()));
        assert_eq!(read(400, r#"{"error":"invalid_grant","error_description":"secret"}"#), refused("invalid_grant"));
        assert_eq!(read(401, "<html>"), refused("401"));
        assert_eq!(read(429, "{}"), unavailable("429"));
        assert_eq!(read(503, r#"{"error":"backend"}"#), unavailable("backend"));
        let sized = |bytes| read(200, &json!({"access_token": "x".repeat(bytes), "expires_in": 9}).to_string());
        assert!(sized(2048).is_ok());
        assert_eq!(sized(2049), Err(TokenError::Unreadable));
        for body in [
            "",
            "{}",
            r#"{"access_token":"x"}"#,
            r#"{"access_token":"x","expires_in":0}"#,
            r#"{"access_token":"","expires_in":9}"#,
            r#"{"access_token":"a\nb","expires_in":9}"#,
        ] {
            assert_eq!(read(200, body), Err(TokenError::Unreadable), "{body}");
        }
    }

    #[test]
    fn a_token_is_replaced_five_minutes_before_its_end_by_one_of_those_who_ask() {
        let tokens = AccessTokens::new();
        assert_eq!((tokens.authorization(NOW), tokens.refresh_after(NOW)), (None, Duration::ZERO));
        assert!(tokens.begin_refresh(NOW) && !tokens.begin_refresh(NOW));
        assert!(tokens.begin_refresh(after(30)), "the first was not heard of");
        tokens.on_abandoned();
        assert!(tokens.begin_refresh(after(30)) && !tokens.begin_refresh(after(31)), "the second was given up");
        let first = token("a", 3600, NOW);
        tokens.on_answer(&Ok(first.clone()), 0, NOW);
        assert_eq!(tokens.authorization(after(3299)), Some(first.authorization.clone()));
        assert!(!tokens.begin_refresh(after(3299)));
        assert_eq!(tokens.refresh_after(after(3000)), Duration::from_secs(300));
        assert!(tokens.begin_refresh(after(3300)) && !tokens.begin_refresh(after(3301)));
        assert_eq!(tokens.authorization(after(3599)), Some(first.authorization), "used meanwhile");
        assert_eq!(tokens.authorization(after(3600)), None);
        tokens.on_answer(&Ok(token("b", 100, after(3600))), 0, after(3600));
        assert_eq!(tokens.refresh_after(after(3600)), Duration::from_secs(50), "half of a short life");
    }

    #[test]
    fn after_failures_it_waits_longer_and_longer_and_uses_what_it_has() {
        let tokens = AccessTokens::new();
        tokens.on_answer(&Ok(token("a", 3600, NOW)), 0, NOW);
        let down = Err(TokenError::Unavailable("503".to_owned()));
        let mut now = after(3300);
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                assert!(tokens.begin_refresh(now));
                tokens.on_answer(&down, u64::MAX, now);
                assert!(tokens.authorization(now).is_some());
                let wait = tokens.refresh_after(now);
                assert!(!tokens.begin_refresh(now));
                now = now.saturating_add(wait);
                wait.as_millis() as u64
            })
            .collect();
        assert_eq!(waits, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000].map(|it| it - 1));
    }

    #[test]
    fn a_refused_token_is_replaced_once() {
        let tokens = AccessTokens::new();
        let (first, second) = (token("a", 3600, NOW), token("b", 3600, after(600)));
        tokens.on_answer(&Ok(first.clone()), 0, NOW);
        assert!(tokens.on_refused(&first.authorization, after(600)));
        assert_eq!(tokens.authorization(after(600)), None, "nothing is sent with it any more");
        assert!(tokens.begin_refresh(after(600)));
        tokens.on_answer(&Ok(second.clone()), 0, after(600));
        assert!(tokens.on_refused(&first.authorization, after(601)), "another answer to the first");
        assert!(!tokens.on_refused(&second.authorization, after(601)), "a fresh one");
        assert!(!tokens.begin_refresh(after(601)));
        assert_eq!(tokens.authorization(after(601)), Some(second.authorization));
    }

    proptest! {
        /// After any steps, a returned token is valid, and a refresh is never delayed for ever.
        #[test]
        fn there_is_always_a_way_to_a_token(
            steps in prop::collection::vec((0u64..4_000_000, 0u8..4, any::<u64>(), any::<bool>()), 0..60)
        ) {
            let tokens = AccessTokens::new();
            let (mut now, down) = (NOW, Err(TokenError::Unreadable));
            for (pause, step, random, back) in steps {
                now = if back { Timestamp(now.0 - pause) } else { Timestamp(now.0 + pause) };
                match step {
                    0 => _ = tokens.begin_refresh(now),
                    1 => tokens.on_answer(&Ok(token(&random.to_string(), random % 5000 + 1, now)), random, now),
                    2 => tokens.on_answer(&down, random, now),
                    _ => {
                        if let Some(used) = tokens.authorization(now) {
                            tokens.on_refused(&used, now);
                        }
                    }
                }
                if tokens.authorization(now).is_none() {
                    let wait = tokens.refresh_after(now);
                    prop_assert!(wait <= PAUSES.cap(), "{wait:?}");
                    now = now.saturating_add(wait);
                    prop_assert!(tokens.begin_refresh(now));
                }
            }
        }
    }
}
