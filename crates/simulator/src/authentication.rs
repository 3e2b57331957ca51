//! Provider tokens: whether a request's `authorization` is one APNs would take.
//!
//! A connection remembers the last token it has seen with its verdict, so the signature (some 60 µs) is checked once
//! per token and connection; the age is checked at each request. APNs wants a new token at most every 20 minutes per
//! connection; we measure between the issue times of two tokens that follow each other.

use std::time::Duration;

use http::HeaderValue;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use tidings_types::Timestamp;

use crate::Reason;

/// How old a token may be.
const AGE_MAX: Duration = Duration::from_secs(3600);
/// The least time between two tokens of a connection.
const UPDATE_INTERVAL_MIN: Duration = Duration::from_secs(20 * 60);

/// Whose tokens are taken.
pub(crate) struct Authority {
    pub(crate) public_key: DecodingKey,
    pub(crate) key_id: String,
    pub(crate) team_id: String,
}

/// What a connection remembers of its provider tokens.
#[derive(Default)]
pub(crate) struct TokenMemory {
    last: Option<(HeaderValue, Result<Timestamp, Reason>)>,
    /// Issue time of the last token that was taken.
    taken_issue: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    iat: u64,
}

impl TokenMemory {
    /// Whether the request may pass.
    pub(crate) fn check(
        &mut self,
        authority: &Authority,
        authorization: Option<&HeaderValue>,
        now: Timestamp,
    ) -> Result<(), Reason> {
        let authorization = authorization.ok_or(Reason::MissingProviderToken)?;
        let issue = match &self.last {
            Some((known, verdict)) if known == authorization => (*verdict)?,
            _ => {
                let verdict = authority.verify(authorization.as_bytes());
                self.last = Some((authorization.clone(), verdict));
                verdict?
            }
        };
        if issue > now {
            return Err(Reason::InvalidProviderToken);
        }
        if now.saturating_since(issue) > AGE_MAX {
            return Err(Reason::ExpiredProviderToken);
        }
        match self.taken_issue {
            Some(taken) if taken != issue => {
                let apart = Duration::from_millis(taken.as_millis().abs_diff(issue.as_millis()));
                if apart < UPDATE_INTERVAL_MIN {
                    return Err(Reason::TooManyProviderTokenUpdates);
                }
            }
            _ => {}
        }
        self.taken_issue = Some(issue);
        Ok(())
    }

    /// Whether any token was taken on this connection.
    pub(crate) fn has_taken_one(&self) -> bool {
        self.taken_issue.is_some()
    }
}

impl Authority {
    /// The issue time of a token that is ours.
    fn verify(&self, authorization: &[u8]) -> Result<Timestamp, Reason> {
        let (scheme, token) = authorization.split_at_checked(7).ok_or(Reason::MissingProviderToken)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return Err(Reason::MissingProviderToken);
        }
        let mut validation = Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false; // Provider tokens have no `exp`.
        validation.validate_aud = false;
        let token = jsonwebtoken::decode::<Claims>(token, &self.public_key, &validation)
            .map_err(|_| Reason::InvalidProviderToken)?;
        let ours = token.header.kid.as_deref() == Some(&self.key_id) && token.claims.iss == self.team_id;
        let issue = token.claims.iat.checked_mul(1000).filter(|_| ours).ok_or(Reason::InvalidProviderToken)?;
        Ok(Timestamp(issue))
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::json;

    use super::*;
    use crate::identity::Identity;

    struct Signer {
        key: EncodingKey,
        authority: Authority,
    }

    impl Signer {
        fn new() -> Self {
            let identity = Identity::make().unwrap();
            Self {
                key: EncodingKey::from_ec_pem(identity.key_pem.as_bytes()).unwrap(),
                authority: Authority { public_key: identity.public_key, key_id: "KEY".into(), team_id: "TEAM".into() },
            }
        }

        fn sign(&self, kid: &str, team: &str, issue_secs: u64) -> HeaderValue {
            let header = Header { kid: Some(kid.into()), ..Header::new(Algorithm::ES256) };
            let token = jsonwebtoken::encode(&header, &json!({"iss": team, "iat": issue_secs}), &self.key).unwrap();
            HeaderValue::from_str(&format!("bearer {token}")).unwrap()
        }

        fn check(&self, memory: &mut TokenMemory, value: &HeaderValue, now_secs: u64) -> Result<(), Reason> {
            memory.check(&self.authority, Some(value), Timestamp(now_secs * 1000))
        }
    }

    #[test]
    fn a_token_is_taken_from_its_issue_until_an_hour_after() {
        let signer = Signer::new();
        let token = signer.sign("KEY", "TEAM", 10_000);
        let mut memory = TokenMemory::default();
        assert_eq!(signer.check(&mut memory, &token, 9_999), Err(Reason::InvalidProviderToken));
        assert_eq!(signer.check(&mut memory, &token, 10_000), Ok(()));
        assert_eq!(signer.check(&mut memory, &token, 13_600), Ok(()));
        assert_eq!(signer.check(&mut memory, &token, 13_601), Err(Reason::ExpiredProviderToken));
    }

    #[test]
    fn a_connection_takes_a_new_token_only_every_twenty_minutes() {
        let signer = Signer::new();
        let [first, early, late] = [10_000, 11_199, 11_200].map(|issue| signer.sign("KEY", "TEAM", issue));
        let mut memory = TokenMemory::default();
        assert_eq!(signer.check(&mut memory, &first, 11_200), Ok(()));
        assert_eq!(signer.check(&mut memory, &early, 11_200), Err(Reason::TooManyProviderTokenUpdates));
        assert_eq!(signer.check(&mut memory, &first, 11_200), Ok(()), "the token in use stays good");
        assert_eq!(signer.check(&mut memory, &late, 11_200), Ok(()));
        assert_eq!(signer.check(&mut TokenMemory::default(), &early, 11_200), Ok(()), "another connection is free");
    }

    #[test]
    fn foreign_and_broken_tokens_are_named() {
        let (signer, stranger) = (Signer::new(), Signer::new());
        let check = |value: &HeaderValue| signer.check(&mut TokenMemory::default(), value, 10_000);
        assert_eq!(check(&signer.sign("OTHER", "TEAM", 10_000)), Err(Reason::InvalidProviderToken));
        assert_eq!(check(&signer.sign("KEY", "OTHER", 10_000)), Err(Reason::InvalidProviderToken));
        assert_eq!(check(&stranger.sign("KEY", "TEAM", 10_000)), Err(Reason::InvalidProviderToken));
        assert_eq!(check(&HeaderValue::from_static("bearer e30.e30.e30")), Err(Reason::InvalidProviderToken));
        assert_eq!(check(&HeaderValue::from_static("bearer ")), Err(Reason::InvalidProviderToken));
        assert_eq!(check(&HeaderValue::from_static("basic abc")), Err(Reason::MissingProviderToken));
        assert_eq!(check(&HeaderValue::from_static("b")), Err(Reason::MissingProviderToken));
        let mut memory = TokenMemory::default();
        assert_eq!(memory.check(&signer.authority, None, Timestamp(0)), Err(Reason::MissingProviderToken));
    }

    #[test]
    fn a_signature_in_another_form_is_not_taken() {
        // APNs wants R and S raw, 64 bytes, base64url without padding (RFC 7518, 3.4; RFC 7515, 2).
        let signer = Signer::new();
        let token = signer.sign("KEY", "TEAM", 10_000);
        for suffix in ["AAAAAAAA", "=="] {
            let value = HeaderValue::from_str(&format!("{}{suffix}", token.to_str().unwrap())).unwrap();
            let verdict = signer.check(&mut TokenMemory::default(), &value, 10_000);
            assert_eq!(verdict, Err(Reason::InvalidProviderToken), "{suffix}");
        }
    }
}
