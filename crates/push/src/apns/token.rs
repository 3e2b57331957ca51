//! The credential: a signed token that names team and key (Apple, "Establishing a token-based connection to APNs").
//!
//! A JSON Web Token (RFC 7519) with ES256: header `{"alg":"ES256","kid":…}`, claims `{"iss":…,"iat":…}`, the signature as
//! raw R‖S of 64 bytes (RFC 7518, 3.4; not DER), all in base64url without padding. APNs refuses a token that is older than
//! an hour, and a second token within 20 minutes. So there is one [`ProviderTokens`] per key in the process ([`ProviderKeys`]
//! ensures this), not per connection or pool. It returns the same token for 50 minutes, and never makes a new one within 20
//! minutes.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderValue;
use jsonwebtoken::{Algorithm, Header};
use serde::Serialize;
use tidings_types::Timestamp;

use crate::key::{SigningKey, decode_pem};

/// A token of this age is replaced.
pub const TOKEN_REFRESH_AGE: Duration = Duration::from_secs(50 * 60);
/// A token younger than this is never replaced.
pub const TOKEN_AGE_MIN: Duration = Duration::from_secs(20 * 60);

const IDENTIFIER_BYTES: usize = 10;

/// Why a signing key cannot be used. The key itself is not shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// An identifier does not have Apple's form.
    #[error("{field} must be {IDENTIFIER_BYTES} letters or digits, got {value:?}")]
    Identifier {
        /// `key_id` or `team_id`.
        field: &'static str,
        /// The value, cut to 32 characters.
        value: String,
    },
    /// Not a PEM file with one private key.
    #[error("the key must be a PEM file with one PRIVATE KEY block, as downloaded from Apple (.p8)")]
    Pem,
    /// Not an elliptic curve key on P-256 in PKCS#8.
    #[error("the key must be a P-256 key in PKCS#8")]
    Key,
}

/// A key that signs provider tokens for one team.
pub struct ProviderKey {
    key: SigningKey,
    header: Header,
    team_id: String,
}

impl ProviderKey {
    /// Reads the `.p8` file from Apple for `key_id` and `team_id`.
    ///
    /// # Errors
    /// When an identifier or the key does not have Apple's form.
    pub fn new(key_id: &str, team_id: &str, p8_pem: &str) -> Result<Self, KeyError> {
        check_identifier("key_id", key_id)?;
        check_identifier("team_id", team_id)?;
        let pkcs8 = decode_pem(p8_pem).ok_or(KeyError::Pem)?;
        let key = SigningKey::p256(&pkcs8).ok_or(KeyError::Key)?;
        let header = Header { typ: None, kid: Some(key_id.to_owned()), ..Header::new(Algorithm::ES256) };
        Ok(Self { key, header, team_id: team_id.to_owned() })
    }

    /// Whether key, key id and team id are the same. Apple may replace a key under its old id; that is another key.
    fn is_same(&self, other: &Self) -> bool {
        (&self.header, &self.team_id, self.key.public()) == (&other.header, &other.team_id, other.key.public())
    }

    /// A new token, issued `now`, as the value of the `authorization` header.
    fn sign(&self, now: Timestamp) -> HeaderValue {
        #[derive(Serialize)]
        struct Claims<'a> {
            iss: &'a str,
            iat: u64,
        }
        let token = self.key.sign(&self.header, &Claims { iss: &self.team_id, iat: now.as_secs() });
        let mut value = HeaderValue::try_from(format!("bearer {token}")).expect("base64url is visible ASCII");
        value.set_sensitive(true); // Keeps it out of Debug output and of HPACK's header table.
        value
    }
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderKey").field("team_id", &self.team_id).finish_non_exhaustive()
    }
}

fn check_identifier(field: &'static str, value: &str) -> Result<(), KeyError> {
    if value.len() == IDENTIFIER_BYTES && value.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(KeyError::Identifier { field, value: value.chars().take(32).collect() })
}

/// The current token of one key, shared by all connections that use it.
#[derive(Debug)]
pub struct ProviderTokens {
    key: ProviderKey,
    current: Mutex<Option<Token>>,
}

#[derive(Debug)]
struct Token {
    authorization: HeaderValue,
    issued_at: Timestamp,
}

/// A token may have been issued this far in the future: threads may pass slightly different times.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

impl ProviderTokens {
    /// Tokens signed by `key`. The first is made when it is needed.
    pub fn new(key: ProviderKey) -> Self {
        Self { key, current: Mutex::new(None) }
    }

    /// The value of the `authorization` header to use now.
    pub fn authorization(&self, now: Timestamp) -> HeaderValue {
        self.at_age(TOKEN_REFRESH_AGE, now)
    }

    /// Whether both sign with the same key for the same team, so that their tokens are interchangeable.
    pub fn is_same_key(&self, other: &Self) -> bool {
        self.key.is_same(&other.key)
    }

    /// The provider said that `used` has expired. Makes a new token if `used` is still the current one and old enough.
    /// Returns whether the next [`Self::authorization`] differs from `used`. If not, our clock or the provider's is wrong, and
    /// the caller can only wait.
    pub fn on_expired(&self, used: &HeaderValue, now: Timestamp) -> bool {
        self.at_age(TOKEN_AGE_MIN, now) != used
    }

    fn at_age(&self, refresh_age: Duration, now: Timestamp) -> HeaderValue {
        let mut current = self.current.lock().expect("nothing panics while a token is made");
        match &*current {
            // A token from the future (our clock was set back) would be refused.
            Some(token)
                if now.saturating_since(token.issued_at) < refresh_age
                    && token.issued_at.saturating_since(now) < CLOCK_TOLERANCE =>
            {
                token.authorization.clone()
            }
            _ => {
                let authorization = self.key.sign(now);
                *current = Some(Token { authorization: authorization.clone(), issued_at: now });
                authorization
            }
        }
    }
}

/// If there are this many keys, an unused one is forgotten for each new one.
const KEY_COUNT_MAX: usize = 64;

/// The keys of this process. All pools with the same key share its token. Unused keys are remembered too, up to 64 keys in
/// all, because a pool that returns to a key within 20 minutes must use the key's old token.
#[derive(Debug, Default)]
pub struct ProviderKeys {
    known: Mutex<Vec<Arc<ProviderTokens>>>,
}

impl ProviderKeys {
    /// The tokens that are signed by `key`.
    pub fn tokens(&self, key: ProviderKey) -> Arc<ProviderTokens> {
        let mut known = self.known.lock().expect("nothing panics while keys are compared");
        if let Some(tokens) = known.iter().find(|tokens| tokens.key.is_same(&key)) {
            return Arc::clone(tokens);
        }
        if known.len() >= KEY_COUNT_MAX
            && let Some(unused) = known.iter().position(|tokens| Arc::strong_count(tokens) == 1)
        {
            known.remove(unused);
        }
        let tokens = Arc::new(ProviderTokens::new(key));
        known.push(Arc::clone(&tokens));
        tokens
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
    };
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::key::encode_pem;

    /// A new key in Apple's form.
    static KEY: LazyLock<String> = LazyLock::new(new_key);

    fn new_key() -> String {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        encode_pem(pkcs8.as_ref())
    }

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn key() -> ProviderKey {
        ProviderKey::new("ABC123DEFG", "DEF123GHIJ", &KEY).unwrap()
    }

    fn after(minutes: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn a_token_is_what_rfc_7519_and_apple_say() {
        let key = key();
        let value = key.sign(NOW);
        let token = value.to_str().unwrap().strip_prefix("bearer ").unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        assert_eq!(decode(header), br#"{"alg":"ES256","kid":"ABC123DEFG"}"#);
        assert_eq!(decode(claims), br#"{"iss":"DEF123GHIJ","iat":1800000000}"#);
        assert_eq!(decode(signature).len(), 64, "raw R and S, not DER");
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.key.public());
        public.verify(signed.as_bytes(), &decode(signature)).unwrap();
        assert!(!format!("{value:?}").contains("bearer"), "a credential must not reach a log");
    }

    #[test]
    fn a_token_is_used_for_fifty_minutes() {
        let tokens = ProviderTokens::new(key());
        let first = tokens.authorization(NOW);
        assert_eq!(tokens.authorization(after(49)), first);
        assert_ne!(tokens.authorization(after(50)), first);
    }

    #[test]
    fn an_expired_token_is_replaced_once_and_never_within_twenty_minutes() {
        let tokens = ProviderTokens::new(key());
        let first = tokens.authorization(NOW);
        assert!(!tokens.on_expired(&first, after(19)));
        assert_eq!(tokens.authorization(after(19)), first);
        assert!(tokens.on_expired(&first, after(21)));
        let second = tokens.authorization(after(21));
        assert_ne!(second, first);
        // Answers to other requests with the first token make no third token.
        assert!(tokens.on_expired(&first, after(21)));
        assert_eq!(tokens.authorization(after(21)), second);
    }

    #[test]
    fn all_users_of_a_key_share_its_token() {
        let keys = ProviderKeys::default();
        let ask = |key_id, team_id, pem: &str| keys.tokens(ProviderKey::new(key_id, team_id, pem).unwrap());
        let first = ask("ABC123DEFG", "DEF123GHIJ", &KEY);
        assert!(Arc::ptr_eq(&first, &ask("ABC123DEFG", "DEF123GHIJ", &KEY)));
        let others = [
            ask("ABC123DEFH", "DEF123GHIJ", &KEY),
            ask("ABC123DEFG", "DEF123GHIK", &KEY),
            ask("ABC123DEFG", "DEF123GHIJ", &new_key()), // Replaced under the same name.
        ];
        assert!(others.iter().all(|other| !Arc::ptr_eq(&first, other) && !first.is_same_key(other)));
        let token = first.authorization(NOW);
        drop(first);
        assert_eq!(ask("ABC123DEFG", "DEF123GHIJ", &KEY).authorization(after(1)), token, "returning keeps the token");
    }

    #[test]
    fn only_unused_keys_are_forgotten_at_the_bound() {
        let keys = ProviderKeys::default();
        let pem = &KEY;
        let ask = |number: usize| keys.tokens(ProviderKey::new(&format!("KEY{number:07}"), "DEF123GHIJ", pem).unwrap());
        let used = ask(0);
        (1..3 * KEY_COUNT_MAX).for_each(|number| drop(ask(number)));
        assert_eq!(keys.known.lock().unwrap().len(), KEY_COUNT_MAX);
        assert!(Arc::ptr_eq(&used, &ask(0)));
    }

    #[test]
    fn an_invalid_key_is_refused_and_not_shown() {
        let new = |key_id, team_id, pem: &str| ProviderKey::new(key_id, team_id, pem).unwrap_err();
        assert_eq!(new("short", "DEF123GHIJ", &KEY).to_string(), "key_id must be 10 letters or digits, got \"short\"");
        assert_eq!(new("ABC123DEFG", "DEF123GHIJ", "secret"), KeyError::Pem);
        let no_key = encode_pem(b"secret");
        assert_eq!(new("ABC123DEFG", "DEF123GHIJ", &no_key), KeyError::Key);
        assert_eq!(new("ABC123DEFG", "DEF123GHIJ", &KEY.repeat(2)), KeyError::Pem);
    }
}
