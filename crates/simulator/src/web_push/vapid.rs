//! The identity of a sender: `Authorization: vapid t=<JWT>, k=<key>` (RFC 8292).
//!
//! A connection remembers its last valid `Authorization`. So the signature is checked once per token and connection. The
//! time is checked at each request.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderValue;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use tidings_types::Timestamp;

use super::WebPushReason;
use super::browser::{PUBLIC_KEY_LEN, Subscription};

/// The longest life of a token (RFC 8292, 2).
const SECONDS_MAX: u64 = 24 * 3600;

/// What a connection remembers of its sender.
#[derive(Default)]
pub(super) struct SenderMemory(Option<(HeaderValue, Sender)>);

#[derive(Debug, Clone, PartialEq)]
struct Sender {
    key: Vec<u8>,
    /// In seconds.
    expires_at: u64,
}

#[derive(Deserialize)]
struct Claims {
    aud: String,
    exp: u64,
    sub: String,
}

impl SenderMemory {
    /// Checks that a push with this authorization may go to the subscription.
    pub(super) fn check(
        &mut self,
        subscription: Subscription,
        authorization: Option<&HeaderValue>,
        origin: &str,
        now: Timestamp,
    ) -> Result<(), WebPushReason> {
        let Some(authorization) = authorization else {
            let is_free = !subscription.is_restricted();
            return if is_free { Ok(()) } else { Err(WebPushReason::MissingAuthorization) };
        };
        let known = self.0.take().filter(|(known, _)| known == authorization).map(|(_, sender)| sender);
        let sender = known.or_else(|| verify(authorization.to_str().ok()?, origin));
        let sender = sender.ok_or(WebPushReason::BadAuthorization)?;
        let is_in_time = sender.expires_at > now.as_secs() && sender.expires_at <= now.as_secs() + SECONDS_MAX;
        let takes = subscription.takes(&sender.key);
        self.0 = Some((authorization.clone(), sender));
        match (is_in_time, takes) {
            (false, _) => Err(WebPushReason::BadAuthorization),
            (true, false) => Err(WebPushReason::KeyMismatch),
            (true, true) => Ok(()),
        }
    }
}

/// Reads a valid authorization for this origin.
fn verify(authorization: &str, origin: &str) -> Option<Sender> {
    let (scheme, params) = authorization.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("vapid") {
        return None;
    }
    let param = |pair: &'_ str| {
        let (name, value) = pair.trim().split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let params = params.split(',').map(param).collect::<Option<BTreeMap<_, _>>>()?;
    let key = decode_key(params.get("k")?)?;
    let (x, y) = key[1..].split_at(32);
    let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let public_key = DecodingKey::from_ec_components(&text(x), &text(y)).ok()?;
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false; // `SenderMemory::check` does it at each request.
    validation.validate_aud = false;
    let claims = jsonwebtoken::decode::<Claims>(params.get("t")?, &public_key, &validation).ok()?.claims;
    let has_contact = claims.sub.starts_with("mailto:") || claims.sub.starts_with("https:");
    (claims.aud == origin && has_contact).then_some(Sender { key, expires_at: claims.exp })
}

/// Decodes a sender's public key from base64url. It must be an uncompressed point.
pub(super) fn decode_key(text: &str) -> Option<Vec<u8>> {
    let key = BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
    (key.len() == PUBLIC_KEY_LEN && key[0] == 4).then_some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_authorization_makes_it_panic(text in "(vapid )?([tkx]=[A-Za-z0-9_=.-]{0,90}[, ]{0,2}){0,3}.{0,10}") {
            prop_assert_eq!(verify(&text, "https://localhost:1"), None);
        }

        #[test]
        fn only_an_uncompressed_point_is_a_key(bytes in prop::collection::vec(any::<u8>(), 60..70)) {
            let is_key = bytes.len() == PUBLIC_KEY_LEN && bytes[0] == 4;
            prop_assert_eq!(decode_key(&BASE64_URL_SAFE_NO_PAD.encode(&bytes)).is_some(), is_key);
        }
    }
}
