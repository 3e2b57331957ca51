//! The token endpoint: it exchanges a service account's signed assertion for an access token (RFC 7523, 2.1).
//!
//! Access tokens are random, and valid until they expire or are revoked. At most [`ACCESS_TOKEN_COUNT_MAX`] are kept. A
//! further token replaces the one that expires first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;
use serde::Deserialize;
use serde_json::{Value, json};
use tidings_types::Timestamp;

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// A wider scope that Google accepts as well.
const PLATFORM_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Google's endpoint, and its older name. Some clients always send one of them as the audience.
const GOOGLE_AUDIENCES: [&str; 2] =
    ["https://oauth2.googleapis.com/token", "https://www.googleapis.com/oauth2/v4/token"];
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The longest life of an assertion.
const ASSERTION_SECONDS_MAX: u64 = 3600;
const ACCESS_TOKEN_COUNT_MAX: usize = 1000;

/// A service account: who may ask for access tokens.
pub(super) struct ServiceAccount {
    pub(super) public_key: DecodingKey,
    pub(super) key_id: String,
    pub(super) email: String,
    /// The address of the simulator's token endpoint.
    pub(super) token_uri: String,
    pub(super) access_token_seconds: u64,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    scope: String,
    aud: String,
    iat: u64,
    exp: u64,
}

/// An error answer of OAuth (RFC 6749, 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) error: &'static str,
    pub(super) description: &'static str,
}

const fn refused(error: &'static str, description: &'static str) -> Refused {
    Refused { error, description }
}

/// The request is not a form.
pub(super) const NO_FORM: Refused = refused("invalid_request", "The content type must be a form's.");

impl Refused {
    pub(super) fn body(self) -> Value {
        json!({"error": self.error, "error_description": self.description})
    }
}

impl ServiceAccount {
    /// Checks a form that asks for an access token.
    pub(super) fn check(&self, form: &[u8], now: Timestamp) -> Result<(), Refused> {
        let field = |name: &str| form_urlencoded::parse(form).find_map(|(key, value)| (key == name).then_some(value));
        if field("grant_type").as_deref() != Some(GRANT_TYPE) {
            return Err(refused("unsupported_grant_type", "Invalid grant_type"));
        }
        let assertion =
            field("assertion").ok_or(refused("invalid_request", "Missing required parameter: assertion"))?;
        self.check_assertion(&assertion, now)
    }

    fn check_assertion(&self, assertion: &str, now: Timestamp) -> Result<(), Refused> {
        let mut validation = Validation::new(Algorithm::RS256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false; // Checked below, against `now`.
        validation.validate_aud = false;
        let decoded = jsonwebtoken::decode::<Claims>(assertion, &self.public_key, &validation)
            .map_err(|_| refused("invalid_grant", "Invalid JWT Signature."))?;
        let (claims, now) = (decoded.claims, now.as_secs());
        if decoded.header.kid.is_some_and(|kid| kid != self.key_id) || claims.iss != self.email {
            return Err(refused("invalid_grant", "Invalid grant: account not found"));
        }
        if claims.aud != self.token_uri && !GOOGLE_AUDIENCES.contains(&claims.aud.as_str()) {
            return Err(refused("invalid_grant", "Invalid JWT: Failed audience check."));
        }
        if !claims.scope.split(' ').any(|scope| scope == SCOPE || scope == PLATFORM_SCOPE) {
            return Err(refused("invalid_scope", "Invalid OAuth scope or ID token audience provided."));
        }
        let lasts = claims.exp.checked_sub(claims.iat);
        let is_short = lasts.is_some_and(|seconds| (1..=ASSERTION_SECONDS_MAX).contains(&seconds));
        if !is_short || claims.iat > now || claims.exp <= now {
            let description = "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable \
                               timeframe. Check your iat and exp values in the JWT claim.";
            return Err(refused("invalid_grant", description));
        }
        Ok(())
    }
}

/// The issued access tokens, each with its time of expiry.
#[derive(Default)]
pub(super) struct AccessTokens(Mutex<HashMap<String, Timestamp>>);

impl AccessTokens {
    pub(super) fn issue(&self, expires_at: Timestamp, rng: &mut Xoshiro256PlusPlus) -> String {
        let token = format!("ya29.simulated-{:032x}", rng.random::<u128>());
        let mut tokens = self.tokens();
        if tokens.len() >= ACCESS_TOKEN_COUNT_MAX
            && let Some(first) = tokens.iter().min_by_key(|(_, at)| **at).map(|(token, _)| token.clone())
        {
            tokens.remove(&first);
        }
        tokens.insert(token.clone(), expires_at);
        token
    }

    pub(super) fn expires_at(&self, token: &str) -> Option<Timestamp> {
        self.tokens().get(token).copied()
    }

    pub(super) fn revoke_all(&self) {
        self.tokens().clear();
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<String, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use rand::SeedableRng as _;

    use super::*;
    use crate::identity::make_rsa_key;

    const OURS: &str = "https://localhost:1/token";
    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn form(assertion: &str) -> String {
        format!("grant_type={}&assertion={assertion}", GRANT_TYPE.replace(':', "%3A"))
    }

    #[test]
    fn every_part_of_an_assertion_is_checked() {
        let (pem, public_key) = make_rsa_key().unwrap();
        let text = |text: &str| text.to_owned();
        let account = ServiceAccount {
            public_key,
            key_id: text("k1"),
            email: text("a@b.c"),
            token_uri: text(OURS),
            access_token_seconds: 60,
        };
        let key = EncodingKey::from_rsa_pem(pem.as_bytes()).unwrap();
        let right = json!({"iss": "a@b.c", "scope": SCOPE, "aud": OURS, "iat": 1_000_000, "exp": 1_003_600});
        let signed = |claims: &Value, kid: Option<&str>| {
            let header = Header { kid: kid.map(text), ..Header::new(Algorithm::RS256) };
            jsonwebtoken::encode(&header, claims, &key).unwrap()
        };
        let check = |form: &str| account.check(form.as_bytes(), NOW).map_err(|refused| refused.error);
        assert_eq!(check(&form(&signed(&right, Some("k1")))), Ok(()));
        assert_eq!(check(&form(&signed(&right, None))), Ok(()));
        let escaped: String = signed(&right, None).bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(check(&form(&escaped)), Ok(()));
        assert_eq!(check(&form(&signed(&right, Some("k2")))), Err("invalid_grant"));
        for (claim, value, expected) in [
            ("iss", json!("x@b.c"), Err("invalid_grant")),
            ("aud", json!("https://localhost:2/token"), Err("invalid_grant")),
            ("aud", json!(GOOGLE_AUDIENCES[0]), Ok(())),
            ("scope", json!("https://www.googleapis.com/auth/drive"), Err("invalid_scope")),
            ("scope", json!(format!("x {SCOPE}")), Ok(())),
            ("scope", json!(format!("{SCOPE}x")), Err("invalid_scope")),
            ("iat", json!(1_000_001), Err("invalid_grant")),
            ("iat", json!(999_999), Err("invalid_grant")), // For 3601 seconds.
            ("exp", json!(1_000_000), Err("invalid_grant")),
            ("exp", json!(999_999), Err("invalid_grant")),
            ("exp", json!("1003600"), Err("invalid_grant")),
        ] {
            let mut claims = right.clone();
            claims[claim] = value.clone();
            assert_eq!(check(&form(&signed(&claims, Some("k1")))), expected, "{claim} {value}");
        }
        let (stranger, _) = make_rsa_key().unwrap();
        let stranger = EncodingKey::from_rsa_pem(stranger.as_bytes()).unwrap();
        let foreign = jsonwebtoken::encode(&Header::new(Algorithm::RS256), &right, &stranger).unwrap();
        assert_eq!(check(&form(&foreign)), Err("invalid_grant"));
        let symmetric = EncodingKey::from_secret(b"x");
        let confused = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &right, &symmetric).unwrap();
        assert_eq!(check(&form(&confused)), Err("invalid_grant"));
        assert_eq!(check("grant_type=password"), Err("unsupported_grant_type"));
        assert_eq!(check(form("").split('&').next().unwrap()), Err("invalid_request"));
        for form in ["%", "grant_type", "grant_type=%FF", "=&&=%"] {
            assert_eq!(check(form), Err("unsupported_grant_type"), "{form}");
        }
    }

    #[test]
    fn a_token_too_many_replaces_the_first_to_expire() {
        let tokens = AccessTokens::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let first = tokens.issue(Timestamp(1), &mut rng);
        let others: Vec<_> =
            (0..ACCESS_TOKEN_COUNT_MAX as u64).map(|at| tokens.issue(Timestamp(at + 2), &mut rng)).collect();
        assert_eq!(tokens.expires_at(&first), None);
        assert!(others.iter().all(|token| tokens.expires_at(token).is_some()));
        tokens.revoke_all();
        assert_eq!(tokens.expires_at(&others[0]), None);
    }
}
