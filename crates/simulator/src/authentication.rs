//! Provider tokens: checks the `authorization` of a request as APNs does.
//!
//! A connection remembers its last token and the result of the check. So the signature (some 60 µs) is checked once per
//! token and connection. The age is checked at each request. APNs allows a new token at most every 20 minutes per
//! connection; the simulator measures between the issue times of two consecutive tokens. A connection is bound to the
//! key of its first token: a valid token of another key is refused.
//!
//! On a connection with a client certificate, tokens are ignored.

use std::time::Duration;

use http::HeaderValue;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use tidings_types::Timestamp;

use crate::Reason;

const AGE_MAX: Duration = Duration::from_secs(3600);
const UPDATE_INTERVAL_MIN: Duration = Duration::from_secs(20 * 60);

/// A key of a team, whose tokens are accepted.
#[derive(Clone)]
pub(crate) struct Authority {
    pub(crate) public_key: DecodingKey,
    pub(crate) key_id: String,
    pub(crate) team_id: String,
}

/// What a connection remembers of its provider tokens.
#[derive(Default)]
pub(crate) struct TokenMemory {
    last: Option<(HeaderValue, Result<Issued, Reason>)>,
    /// The last token that was accepted.
    accepted: Option<Issued>,
}

/// When a token was issued, and by which key.
#[derive(Clone)]
struct Issued {
    at: Timestamp,
    key_id: String,
    team_id: String,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    iat: u64,
}

impl TokenMemory {
    pub(crate) fn check(
        &mut self,
        authorities: &[Authority],
        authorization: Option<&HeaderValue>,
        now: Timestamp,
    ) -> Result<(), Reason> {
        let authorization = authorization.ok_or(Reason::MissingProviderToken)?;
        let known = self.last.take().filter(|(known, _)| known == authorization);
        let verify = || (authorization.clone(), verify(authorities, authorization.as_bytes()));
        let (_, verdict) = self.last.insert(known.unwrap_or_else(verify));
        let issued = verdict.as_ref().map_err(|reason| *reason)?;
        if issued.at > now {
            return Err(Reason::InvalidProviderToken);
        }
        if now.saturating_since(issued.at) > AGE_MAX {
            return Err(Reason::ExpiredProviderToken);
        }
        if let Some(accepted) = &self.accepted {
            if accepted.team_id != issued.team_id {
                return Err(Reason::InvalidProviderToken);
            }
            if accepted.key_id != issued.key_id {
                return Err(Reason::UnrelatedKeyIdInToken);
            }
            let apart = Duration::from_millis(accepted.at.as_millis().abs_diff(issued.at.as_millis()));
            if !apart.is_zero() && apart < UPDATE_INTERVAL_MIN {
                return Err(Reason::TooManyProviderTokenUpdates);
            }
        }
        if self.accepted.as_ref().is_none_or(|accepted| accepted.at != issued.at) {
            self.accepted = Some(issued.clone());
        }
        Ok(())
    }

    /// Checks the next token anew, because the keys have changed.
    pub(crate) fn forget_verdict(&mut self) {
        self.last = None;
    }

    /// Whether any token was accepted on this connection.
    pub(crate) fn has_accepted(&self) -> bool {
        self.accepted.is_some()
    }
}

/// Reads a token that one of the authorities has signed.
fn verify(authorities: &[Authority], authorization: &[u8]) -> Result<Issued, Reason> {
    let (scheme, token) = authorization.split_at_checked(7).ok_or(Reason::MissingProviderToken)?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return Err(Reason::MissingProviderToken);
    }
    authorities.iter().find_map(|authority| authority.verify(token)).ok_or(Reason::InvalidProviderToken)
}

impl Authority {
    fn verify(&self, token: &[u8]) -> Option<Issued> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false; // Provider tokens have no `exp`.
        validation.validate_aud = false;
        let token = jsonwebtoken::decode::<Claims>(token, &self.public_key, &validation).ok()?;
        let is_ours = token.header.kid.as_deref() == Some(&self.key_id) && token.claims.iss == self.team_id;
        let at = token.claims.iat.checked_mul(1000).filter(|_| is_ours).map(Timestamp)?;
        Some(Issued { at, key_id: self.key_id.clone(), team_id: self.team_id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::json;

    use super::*;
    use crate::identity::make_signing_key;

    struct Signer {
        key: EncodingKey,
        authority: Authority,
    }

    impl Signer {
        fn new() -> Self {
            let (key_pem, public_key) = make_signing_key().unwrap();
            Self {
                key: EncodingKey::from_ec_pem(key_pem.as_bytes()).unwrap(),
                authority: Authority { public_key, key_id: "KEY".into(), team_id: "TEAM".into() },
            }
        }

        fn sign(&self, kid: &str, team: &str, issue_secs: u64) -> HeaderValue {
            let header = Header { kid: Some(kid.into()), ..Header::new(Algorithm::ES256) };
            let token = jsonwebtoken::encode(&header, &json!({"iss": team, "iat": issue_secs}), &self.key).unwrap();
            HeaderValue::from_str(&format!("bearer {token}")).unwrap()
        }

        fn check(&self, memory: &mut TokenMemory, value: &HeaderValue, now_secs: u64) -> Result<(), Reason> {
            memory.check(std::slice::from_ref(&self.authority), Some(value), Timestamp(now_secs * 1000))
        }
    }

    #[test]
    fn a_token_is_valid_for_one_hour() {
        let signer = Signer::new();
        let token = signer.sign("KEY", "TEAM", 10_000);
        let mut memory = TokenMemory::default();
        assert_eq!(signer.check(&mut memory, &token, 9_999), Err(Reason::InvalidProviderToken));
        assert_eq!(signer.check(&mut memory, &token, 10_000), Ok(()));
        assert_eq!(signer.check(&mut memory, &token, 13_600), Ok(()));
        assert_eq!(signer.check(&mut memory, &token, 13_601), Err(Reason::ExpiredProviderToken));
    }

    #[test]
    fn a_connection_accepts_a_new_token_only_every_twenty_minutes() {
        let signer = Signer::new();
        let [first, early, late] = [10_000, 11_199, 11_200].map(|issue| signer.sign("KEY", "TEAM", issue));
        let mut memory = TokenMemory::default();
        assert_eq!(signer.check(&mut memory, &first, 11_200), Ok(()));
        assert_eq!(signer.check(&mut memory, &early, 11_200), Err(Reason::TooManyProviderTokenUpdates));
        assert_eq!(signer.check(&mut memory, &first, 11_200), Ok(()), "the current token stays valid");
        assert_eq!(signer.check(&mut memory, &late, 11_200), Ok(()));
        assert_eq!(signer.check(&mut TokenMemory::default(), &early, 11_200), Ok(()), "another connection accepts it");
    }

    #[test]
    fn a_connection_is_bound_to_the_key_of_its_first_token() {
        let [first, mut second, mut other_team] = [Signer::new(), Signer::new(), Signer::new()];
        second.authority.key_id = "SECOND".into();
        (other_team.authority.key_id, other_team.authority.team_id) = ("THIRD".into(), "OTHER".into());
        let authorities = [&first, &second, &other_team].map(|signer| signer.authority.clone());
        let check = |memory: &mut TokenMemory, value: &HeaderValue| {
            memory.check(&authorities, Some(value), Timestamp(20_000_000))
        };
        let mut memory = TokenMemory::default();
        assert_eq!(check(&mut memory, &first.sign("KEY", "TEAM", 20_000)), Ok(()));
        let unrelated = second.sign("SECOND", "TEAM", 18_000);
        assert_eq!(check(&mut memory, &unrelated), Err(Reason::UnrelatedKeyIdInToken));
        assert_eq!(check(&mut TokenMemory::default(), &unrelated), Ok(()), "another connection accepts it");
        let foreign = other_team.sign("THIRD", "OTHER", 18_000);
        assert_eq!(check(&mut memory, &foreign), Err(Reason::InvalidProviderToken));
        let mixed = second.sign("KEY", "TEAM", 20_000);
        assert_eq!(check(&mut TokenMemory::default(), &mixed), Err(Reason::InvalidProviderToken));
    }

    #[test]
    fn foreign_and_malformed_tokens_are_refused() {
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
        assert_eq!(memory.check(&[signer.authority], None, Timestamp(0)), Err(Reason::MissingProviderToken));
    }

    #[test]
    fn a_signature_in_another_encoding_is_refused() {
        // A signature is R and S, raw, 64 bytes, in base64url without padding (RFC 7518, 3.4; RFC 7515, 2).
        let signer = Signer::new();
        let token = signer.sign("KEY", "TEAM", 10_000);
        for suffix in ["AAAAAAAA", "=="] {
            let value = HeaderValue::from_str(&format!("{}{suffix}", token.to_str().unwrap())).unwrap();
            let verdict = signer.check(&mut TokenMemory::default(), &value, 10_000);
            assert_eq!(verdict, Err(Reason::InvalidProviderToken), "{suffix}");
        }
    }
}
