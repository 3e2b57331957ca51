//! Tokens of users (JSON Web Token, RFC 7519, by HS256), by the specification: not the server's code, so that a mistake in one is
//! not repeated by the other.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Signs what a client claims.
pub fn sign(secret: &str, claims: &Value) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({ "alg": "HS256", "typ": "JWT" })), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}
