//! Signatures of the Standard Webhooks specification: HMAC-SHA256 over `id.timestamp.body`, as `v1,` and base64. While a
//! secret is replaced there are two secrets and two signatures. A receiver accepts the one that it knows.

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

const SECRET_PREFIX: &str = "whsec_";
/// Bytes of a secret, decoded: 192 to 512 bits.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret for signing reports. Its `Debug` does not show it.
#[derive(Clone)]
pub struct Key(hmac::Key);

/// Why a text is not a webhook secret. Does not contain the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text does not have the form of the specification.
    #[error("must be `{SECRET_PREFIX}` and base64, got something else")]
    Form,
    /// The secret is too short to be safe, or too long for receivers.
    #[error("must hold {} to {} random bytes, got {found}", SECRET_BYTES.start(), SECRET_BYTES.end())]
    Length {
        /// The number of bytes.
        found: usize,
    },
}

impl Key {
    /// Reads a secret: `whsec_` and base64.
    ///
    /// # Errors
    /// If the text is not a secret, or the secret is too short or too long.
    pub fn parse(secret: &str) -> Result<Self, KeyError> {
        let encoded = secret.strip_prefix(SECRET_PREFIX).ok_or(KeyError::Form)?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| KeyError::Form)?;
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err(KeyError::Length { found: bytes.len() });
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            context.update(part);
        }
        format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The current secrets.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The secret that receivers should know.
    pub current: Key,
    /// The previous secret, until all receivers know the current one.
    pub previous: Option<Key>,
}

impl Keys {
    /// The value of the header `webhook-signature`. `id` and `timestamp` must not contain a full stop.
    pub fn signature(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        debug_assert!(
            !id.contains('.') && !timestamp.contains('.'),
            "a full stop would let two messages have the same signature"
        );
        let current = self.current.sign(id, timestamp, body);
        match &self.previous {
            Some(previous) => format!("{current} {}", previous.sign(id, timestamp, body)),
            None => current,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the specification's reference libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIMESTAMP: &str = "1614265330";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_test_vector_of_the_specification_is_signed() {
        let keys = Keys { current: Key::parse(SECRET).unwrap(), previous: None };
        assert_eq!(keys.signature(ID, TIMESTAMP, BODY), SIGNATURE);
        let other = Key::parse("whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu").unwrap();
        let both = Keys { current: other, previous: Some(keys.current) }.signature(ID, TIMESTAMP, BODY);
        let signatures: Vec<&str> = both.split(' ').collect();
        assert_eq!(signatures.len(), 2, "{both}");
        assert_eq!(signatures[1], SIGNATURE, "a receiver with the previous secret finds its signature");
        assert!(signatures[0].starts_with("v1,") && signatures[0] != SIGNATURE);
    }

    #[test]
    fn a_wrong_secret_is_refused_without_repeating_it() {
        let refused = |secret: &str| Key::parse(secret).unwrap_err().to_string();
        let form = "must be `whsec_` and base64, got something else";
        assert_eq!(refused("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), form);
        assert_eq!(refused("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS"), form, "no padding");
        assert_eq!(refused("whsec_hunter2!"), form);
        assert_eq!(refused("whsec_"), "must hold 24 to 64 random bytes, got 0");
        let long = format!("whsec_{}", BASE64_STANDARD.encode([7; 65]));
        assert_eq!(refused(&long), "must hold 24 to 64 random bytes, got 65");
        assert_eq!(format!("{:?}", Key::parse(SECRET).unwrap()), "Key");
    }
}
