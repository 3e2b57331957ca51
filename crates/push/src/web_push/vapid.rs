//! Our identity for push services (RFC 8292): a signed token per origin, and the key to verify it.
//!
//! `Authorization: vapid t=<JSON Web Token, ES256>, k=<public key>`, with claims `aud` (the endpoint's origin), `exp` and
//! `sub` (our contact in case of trouble). It does not depend on the subscription, so one token serves all subscriptions of
//! an origin. It is valid for [`TOKEN_LIFE`], and replaced an hour before its end. Apple accepts at most one new token an
//! hour, so a refused token is replaced only if it is older than that ([`VapidTokens::on_refused`]).
//!
//! Bound: [`ORIGIN_COUNT_MAX`] tokens are kept. For a further origin, each request is signed anew, and no kept token is
//! dropped before [`TOKEN_KEPT`] has passed. So invented origins cannot make us send a real service more tokens than it
//! accepts. With narrow rules there are few origins, and the bound is never reached.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use jsonwebtoken::{Algorithm, Header};
use serde::Serialize;
use tidings_types::Timestamp;

use crate::key::{SigningKey, decode_pem, encode_pem};

/// How long a token is valid; RFC 8292, 2 allows a day.
pub const TOKEN_LIFE: Duration = Duration::from_secs(12 * 3600);
/// A token of this age is replaced.
pub const TOKEN_REFRESH_AGE: Duration = Duration::from_secs(11 * 3600);
/// A token younger than this is never replaced, not even when it is refused.
pub const TOKEN_AGE_MIN: Duration = Duration::from_secs(3600);
/// A token of this age may be forgotten. It has not been valid for half a day.
pub const TOKEN_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Origins with kept tokens.
pub const ORIGIN_COUNT_MAX: usize = 1024;

/// A token may have been issued this far in the future: threads may pass slightly different times.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(10);
const SUBJECT_BYTES_MAX: usize = 256;

/// Why a key cannot be used. The key itself is not shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VapidError {
    /// Neither a PEM file nor 32 bytes in base64url, or not a key of this curve.
    #[error("the key must be a P-256 private key: a PEM file (PKCS#8), or 32 bytes in base64url")]
    Key,
    /// The contact for push services is invalid.
    #[error("the contact must be a mailto: or https: address of at most {SUBJECT_BYTES_MAX} characters, got {0:?}")]
    Subject(String),
}

/// Makes a new private key, as PEM (PKCS#8).
pub fn generate_key() -> String {
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
        .expect("the system has random bytes");
    encode_pem(key.as_ref())
}

/// The public half of a private key, in base64url.
///
/// # Errors
/// When it is not a private key in one of the two forms that [`VapidKey::new`] reads.
pub fn public_key_of(private_key: &str) -> Result<String, VapidError> {
    read_key(private_key).map(|key| encode_public(&key))
}

/// The key that browsers got when they subscribed, and our contact.
pub struct VapidKey {
    key: SigningKey,
    subject: String,
}

impl VapidKey {
    /// Reads a private key as PEM (PKCS#8) or as 32 bytes in base64url, which tools for Web Push write. `subject` is the
    /// contact for push services.
    ///
    /// # Errors
    /// When either is invalid.
    pub fn new(private_key: &str, subject: &str) -> Result<Self, VapidError> {
        let is_contact =
            ["mailto:", "https:"].iter().any(|scheme| subject.strip_prefix(scheme).is_some_and(|it| !it.is_empty()));
        if !is_contact || subject.len() > SUBJECT_BYTES_MAX || !subject.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(VapidError::Subject(subject.chars().take(64).collect()));
        }
        Ok(Self { key: read_key(private_key)?, subject: subject.to_owned() })
    }

    /// The public key in base64url. Browsers get it as `applicationServerKey`.
    pub fn public_key(&self) -> String {
        encode_public(&self.key)
    }

    /// Whether push services see the same sender: the same key and contact.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.key.public(), &self.subject) == (other.key.public(), &other.subject)
    }

    fn sign(&self, origin: &str, now: Timestamp) -> HeaderValue {
        #[derive(Serialize)]
        struct Claims<'a> {
            aud: &'a str,
            exp: u64,
            sub: &'a str,
        }
        let claims = Claims { aud: origin, exp: now.saturating_add(TOKEN_LIFE).as_secs(), sub: &self.subject };
        let token = self.key.sign(&Header::new(Algorithm::ES256), &claims);
        let mut value = HeaderValue::try_from(format!("vapid t={token}, k={}", self.public_key()))
            .expect("base64url is visible ASCII");
        value.set_sensitive(true); // Keeps it out of Debug output.
        value
    }
}

fn read_key(private_key: &str) -> Result<SigningKey, VapidError> {
    let pkcs8 = decode_pem(private_key).or_else(|| pkcs8_of_bytes(private_key.trim()));
    pkcs8.and_then(|pkcs8| SigningKey::p256(&pkcs8)).ok_or(VapidError::Key)
}

fn encode_public(key: &SigningKey) -> String {
    URL_SAFE_NO_PAD.encode(key.public())
}

fn pkcs8_of_bytes(text: &str) -> Option<Vec<u8>> {
    let private = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok().filter(|bytes| bytes.len() == 32)?;
    let public = PrivateKey::from_private_key(&ECDH_P256, &private).ok()?.compute_public_key().ok()?;
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, &private, public.as_ref()).ok()?;
    Some(pair.to_pkcs8v1().ok()?.as_ref().to_vec())
}

impl fmt::Debug for VapidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VapidKey").field("public_key", &self.public_key()).finish_non_exhaustive()
    }
}

/// The current tokens of one key, one per origin. All users of the key share them.
#[derive(Debug)]
pub struct VapidTokens {
    key: VapidKey,
    tokens: Mutex<HashMap<Box<str>, Token>>,
}

#[derive(Debug)]
struct Token {
    authorization: HeaderValue,
    issued_at: Timestamp,
}

impl VapidTokens {
    /// Tokens signed by `key`. Each is made when it is needed.
    pub fn new(key: VapidKey) -> Self {
        Self { key, tokens: Mutex::default() }
    }

    /// The key.
    pub fn key(&self) -> &VapidKey {
        &self.key
    }

    /// The value of the `authorization` header for an origin in the form of [`super::guard::Endpoint::origin`].
    pub fn authorization(&self, origin: &str, now: Timestamp) -> HeaderValue {
        self.at_age(TOKEN_REFRESH_AGE, origin, now).0
    }

    /// A push service refused `used` (401, 403). A new token is made if `used` is not too young. Returns whether the next
    /// [`Self::authorization`] differs from `used`. If not, a new signature would not help. If there is no room to keep the
    /// token, `used` was new, so the result is false.
    pub fn on_refused(&self, used: &HeaderValue, origin: &str, now: Timestamp) -> bool {
        let (authorization, is_kept) = self.at_age(TOKEN_AGE_MIN, origin, now);
        is_kept && authorization != used
    }

    /// The token and whether it is kept.
    fn at_age(&self, refresh_age: Duration, origin: &str, now: Timestamp) -> (HeaderValue, bool) {
        let mut tokens = self.tokens.lock().expect("nothing panics while a token is made");
        // A token from the future (our clock was set back) may be valid for longer than the day that is allowed.
        let is_fresh = |token: &&Token| {
            now.saturating_since(token.issued_at) < refresh_age
                && token.issued_at.saturating_since(now) < CLOCK_TOLERANCE
        };
        if let Some(token) = tokens.get(origin).filter(is_fresh) {
            return (token.authorization.clone(), true);
        }
        if tokens.len() >= ORIGIN_COUNT_MAX && !tokens.contains_key(origin) {
            tokens.retain(|_, token| now.saturating_since(token.issued_at) < TOKEN_KEPT);
        }
        let authorization = self.key.sign(origin, now);
        let is_kept = tokens.len() < ORIGIN_COUNT_MAX || tokens.contains_key(origin);
        if is_kept {
            tokens.insert(origin.into(), Token { authorization: authorization.clone(), issued_at: now });
        }
        (authorization, is_kept)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const ORIGIN: &str = "https://push.example";
    /// The sender's key of RFC 8291, in the form of the tools for Web Push.
    const PRIVATE: &str = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw";
    const PUBLIC: &str = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";

    fn tokens() -> VapidTokens {
        VapidTokens::new(VapidKey::new(PRIVATE, "mailto:push@example.org").unwrap())
    }

    fn after(minutes: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn a_token_is_what_rfc_8292_says() {
        let tokens = tokens();
        let value = tokens.authorization(ORIGIN, NOW);
        let (token, key) = value.to_str().unwrap().strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!((key, &*tokens.key().public_key()), (PUBLIC, PUBLIC));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let json_of = |part: &str| serde_json::from_slice::<Value>(&decode(part)).unwrap();
        assert_eq!(json_of(header), json!({"typ": "JWT", "alg": "ES256"}));
        let exp = 1_800_000_000 + 12 * 3600;
        assert_eq!(json_of(claims), json!({"aud": ORIGIN, "exp": exp, "sub": "mailto:push@example.org"}));
        assert_eq!(decode(signature).len(), 64, "raw R and S, not DER");
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(key));
        public.verify(signed.as_bytes(), &decode(signature)).unwrap();
        assert!(!format!("{value:?} {tokens:?}").contains(signed), "a credential must not reach a log");
    }

    #[test]
    fn a_sender_is_identified_by_key_and_contact() {
        let key = |private, subject| VapidKey::new(private, subject).unwrap();
        let (one, contact) = (key(PRIVATE, "mailto:push@example.org"), "mailto:other@example.org");
        assert!(one.is_same(tokens().key()) && !one.is_same(&key(PRIVATE, contact)));
        assert!(!key("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE", contact).is_same(&key(PRIVATE, contact)));
    }

    #[test]
    fn a_token_is_used_for_eleven_hours_per_origin() {
        let tokens = tokens();
        let first = tokens.authorization(ORIGIN, NOW);
        assert_ne!(tokens.authorization("https://other.example", NOW), first);
        assert_eq!(tokens.authorization(ORIGIN, after(659)), first);
        let second = tokens.authorization(ORIGIN, after(660));
        assert_ne!(second, first);
        assert_ne!(tokens.authorization(ORIGIN, NOW), second, "of the future, the clock was set back");
    }

    #[test]
    fn a_refused_token_is_replaced_once_and_never_within_an_hour() {
        let tokens = tokens();
        let first = tokens.authorization(ORIGIN, NOW);
        assert!(!tokens.on_refused(&first, ORIGIN, after(59)));
        assert_eq!(tokens.authorization(ORIGIN, after(59)), first);
        assert!(tokens.on_refused(&first, ORIGIN, after(61)));
        let second = tokens.authorization(ORIGIN, after(61));
        assert_ne!(second, first);
        assert!(tokens.on_refused(&first, ORIGIN, after(61)), "others were sent with the first one too");
        assert_eq!(tokens.authorization(ORIGIN, after(61)), second);
    }

    #[test]
    fn invented_origins_do_not_replace_the_token_of_a_service() {
        let tokens = tokens();
        let kept = || tokens.tokens.lock().unwrap().len();
        let ask = |number: usize, minutes| tokens.authorization(&format!("https://{number}.example"), after(minutes));
        let first = tokens.authorization(ORIGIN, NOW);
        (0..2 * ORIGIN_COUNT_MAX).for_each(|number| _ = ask(number, 600));
        assert_eq!((kept(), tokens.authorization(ORIGIN, after(659))), (ORIGIN_COUNT_MAX, first));
        let second = tokens.authorization(ORIGIN, after(660));
        (0..2 * ORIGIN_COUNT_MAX).for_each(|number| _ = ask(number, 1300));
        assert_eq!((kept(), tokens.authorization(ORIGIN, after(1300))), (ORIGIN_COUNT_MAX, second));
        assert_eq!(ask(5, 1300), ask(5, 1301));
        ask(usize::MAX, 1300 + 24 * 60);
        assert_eq!(kept(), 1, "what nobody uses makes room in the end");
    }

    #[test]
    fn without_room_a_refusal_is_final() {
        let tokens = tokens();
        (0..ORIGIN_COUNT_MAX).for_each(|number| _ = tokens.authorization(&number.to_string(), NOW));
        let used = tokens.authorization(ORIGIN, NOW);
        assert_ne!(tokens.authorization(ORIGIN, NOW), used);
        assert!(!tokens.on_refused(&used, ORIGIN, NOW), "or it would be repeated for ever");
    }

    #[test]
    fn both_forms_of_a_key_are_read_and_an_invalid_one_is_refused_and_not_shown() {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        assert!(VapidKey::new(&encode_pem(pkcs8.as_ref()), "https://example.org/contact").is_ok());
        assert!(VapidKey::new(&format!("{PRIVATE}=\n"), "mailto:a@example.org").is_ok());
        let zero = URL_SAFE_NO_PAD.encode([0; 32]);
        for key in ["", "secret", &PRIVATE[1..], &zero, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"]
        {
            assert_eq!(VapidKey::new(key, "mailto:a@example.org").unwrap_err(), VapidError::Key, "{key}");
        }
        for subject in ["", "a@example.org", "mailto:", "http://example.org", "mailto:a b"] {
            assert_eq!(VapidKey::new(PRIVATE, subject).unwrap_err(), VapidError::Subject(subject.to_owned()));
        }
    }
}
