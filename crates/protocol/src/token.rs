//! Connection and subscription tokens: JSON Web Tokens signed with a shared secret.
//!
//! HS256, HS384 and HS512 (RFC 7518, 3.2). Other algorithms are refused, whatever the token's header says. Tokens with
//! critical extensions are refused too, because this server knows none (RFC 7515, 4.1.11). While a secret is being
//! replaced, tokens signed with the previous secret are also valid. Times are checked here against `now`, without
//! leeway.
//!
//! The claim `device` in a connection token is our own. It proves on which device the client runs.
//!
//! Not here: public-key algorithms and JWKS, audience and issuer, server-side subscriptions (the claims tell that a
//! connection token asks for them, and the session refuses it), and the overrides for join and leave.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tidings_types::{ChannelName, DeviceId, Json, Timestamp, check_json_depth};

/// A token as the client sent it. It lets its holder connect, so it never shows in `Debug`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Token(Box<str>);

impl Token {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the client sent no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

/// The secret that tokens are signed with, shared with the application's servers. Never shows in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret(Box<[u8]>);

/// The secret is empty, so anybody could guess it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("token secret must not be empty")]
pub struct EmptySecretError;

impl TokenSecret {
    /// The secret's bytes; RFC 7518, 3.2 requires 32 or more random bytes.
    ///
    /// # Errors
    /// When it is empty.
    pub fn new(secret: &[u8]) -> Result<Self, EmptySecretError> {
        if secret.is_empty() { Err(EmptySecretError) } else { Ok(Self(secret.into())) }
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenSecret({} bytes)", self.0.len())
    }
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It was never valid. The text says what is wrong, without repeating any part of the token.
    #[error("token is not valid: {0}")]
    Invalid(&'static str),
    /// It has expired, or is not valid yet.
    #[error("token has expired or is not valid yet")]
    Expired,
}

/// The claims of a valid connection token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionClaims {
    /// The user; empty: anonymous.
    pub user: String,
    /// The device on which the client runs; proven by the signature.
    pub device: Option<DeviceId>,
    /// When the connection must be refreshed; may be in the past.
    pub expires_at: Option<Timestamp>,
    /// What others may see of the connection.
    pub info: Option<Json>,
    /// Whether it asks for server-side subscriptions.
    pub has_server_subscriptions: bool,
}

/// The claims of a valid subscription token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionClaims {
    /// The user who may subscribe.
    pub user: String,
    /// The channel.
    pub channel: String,
    /// The only connection that may subscribe, if the token names one.
    pub client: Option<String>,
    /// When the subscription must be refreshed; may be in the past.
    pub expires_at: Option<Timestamp>,
    /// What others may see of the subscription.
    pub info: Option<Json>,
    /// Data for the client.
    pub data: Option<Json>,
    /// Overrides `force_recovery` of the channel.
    pub force_recovery: Option<bool>,
    /// Overrides whether gaps are noticed.
    pub force_positioning: Option<bool>,
    /// Overrides `presence` of the channel.
    pub presence: Option<bool>,
}

/// Checks tokens.
pub struct TokenVerifier {
    keys: Vec<DecodingKey>,
    validation: Validation,
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenVerifier({} secrets)", self.keys.len())
    }
}

impl TokenVerifier {
    /// Accepts tokens signed with `current`, or with `previous` while the application changes over.
    pub fn new(current: &TokenSecret, previous: Option<&TokenSecret>) -> Self {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.algorithms = vec![Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
        // The library would read the machine's clock; a core gets the time as an argument.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        let keys = [Some(current), previous].into_iter().flatten().map(|secret| DecodingKey::from_secret(&secret.0));
        Self { keys: keys.collect(), validation }
    }

    /// Reads a connection token.
    ///
    /// # Errors
    /// If the token is not valid, or not valid now.
    pub fn verify_connection(&self, token: &Token, now: Timestamp) -> Result<ConnectionClaims, TokenError> {
        let claims = self.claims(token, now)?;
        let expires_at = claims.lifetime();
        if claims.channel.is_some_and(|channel| !channel.is_empty()) {
            return Err(TokenError::Invalid("a subscription token cannot connect"));
        }
        Ok(ConnectionClaims {
            expires_at,
            device: claims.device.as_ref().map(device).transpose()?,
            info: json(claims.info, claims.b64info)?,
            user: claims.sub.unwrap_or_default(),
            has_server_subscriptions: claims.channels.is_some_and(|channels| !channels.is_empty())
                || claims.subs.is_some_and(|subs| !subs.is_empty()),
        })
    }

    /// Reads a subscription token. The caller must compare its user, channel and client.
    ///
    /// # Errors
    /// If the token is not valid, or not valid now.
    pub fn verify_subscription(&self, token: &Token, now: Timestamp) -> Result<SubscriptionClaims, TokenError> {
        let claims = self.claims(token, now)?;
        let expires_at = claims.lifetime();
        let overrides = claims.overrides.unwrap_or_default();
        Ok(SubscriptionClaims {
            expires_at,
            info: json(claims.info, claims.b64info)?,
            data: json(claims.data, claims.b64data)?,
            user: claims.sub.unwrap_or_default(),
            channel: claims
                .channel
                .filter(|channel| !channel.is_empty())
                .ok_or(TokenError::Invalid("claim channel is missing"))?,
            client: claims.client.filter(|client| !client.is_empty()),
            force_recovery: overrides.force_recovery.map(|flag| flag.value),
            force_positioning: overrides.force_positioning.map(|flag| flag.value),
            presence: overrides.presence.map(|flag| flag.value),
        })
    }

    fn claims(&self, token: &Token, now: Timestamp) -> Result<WireClaims, TokenError> {
        let mut refusal = TokenError::Invalid(UNSIGNED);
        for key in &self.keys {
            match jsonwebtoken::decode::<WireClaims>(token.as_str(), key, &self.validation) {
                Ok(token) if token.header.crit.is_some() => {
                    return Err(TokenError::Invalid("it has critical extensions, and this server knows none"));
                }
                Ok(token) => return token.claims.check_time(now).map(|()| token.claims),
                Err(error) => refusal = TokenError::Invalid(fault(error.kind())), // The next secret may fit.
            }
        }
        Err(refusal)
    }
}

const UNSIGNED: &str = "its signature fits no configured secret";

fn fault(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidSignature => UNSIGNED,
        ErrorKind::InvalidAlgorithm => "its algorithm is not HS256, HS384 or HS512",
        ErrorKind::Json(_) => "its header or claims are not the expected JSON",
        _ => "it is not a JSON Web Token",
    }
}

/// A moment in seconds since the Unix epoch, perhaps with a fraction (RFC 7519, 2).
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
struct NumericDate(f64);

impl NumericDate {
    fn timestamp(self) -> Timestamp {
        Timestamp((self.0 * 1000.0) as u64) // `as` keeps to the range: before 1970 is 1970.
    }
}

/// The claims of both kinds of token.
#[derive(Deserialize)]
struct WireClaims {
    sub: Option<String>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    expire_at: Option<NumericDate>,
    /// Any value: it has no meaning in a subscription token.
    device: Option<Json>,
    info: Option<Json>,
    b64info: Option<String>,
    channel: Option<String>,
    channels: Option<Vec<IgnoredAny>>,
    subs: Option<BTreeMap<String, IgnoredAny>>,
    client: Option<String>,
    data: Option<Json>,
    b64data: Option<String>,
    #[serde(rename = "override")]
    overrides: Option<Overrides>,
}

impl WireClaims {
    fn check_time(&self, now: Timestamp) -> Result<(), TokenError> {
        let ended = self.exp.is_some_and(|exp| exp.timestamp() <= now);
        let not_begun = self.nbf.is_some_and(|nbf| nbf.timestamp() > now);
        if ended || not_begun { Err(TokenError::Expired) } else { Ok(()) }
    }

    /// `expire_at` wins over `exp`; an `expire_at` of 0 means for ever.
    fn lifetime(&self) -> Option<Timestamp> {
        let date = self.expire_at.or(self.exp)?;
        (self.expire_at.is_none() || date.0 != 0.0).then(|| date.timestamp())
    }
}

#[derive(Default, Deserialize)]
struct Overrides {
    presence: Option<Flag>,
    force_positioning: Option<Flag>,
    force_recovery: Option<Flag>,
}

#[derive(Deserialize)]
struct Flag {
    #[serde(default)]
    value: bool,
}

fn device(claim: &Json) -> Result<DeviceId, TokenError> {
    serde_json::from_str(claim.as_str())
        .map_err(|_| TokenError::Invalid("claim device is not a device id, 1 to 128 visible ASCII characters"))
}

/// The base64 form wins. Its content must be JSON, because the connection uses JSON.
fn json(plain: Option<Json>, base64: Option<String>) -> Result<Option<Json>, TokenError> {
    let json = match base64.filter(|text| !text.is_empty()) {
        Some(base64) => Some(decoded(&base64)?),
        None => plain,
    };
    let is_deep = json.as_ref().is_some_and(|json| check_json_depth(json.bytes()).is_err());
    if is_deep { Err(TokenError::Invalid("info or data has more than 100 levels")) } else { Ok(json) }
}

fn decoded(base64: &str) -> Result<Json, TokenError> {
    let bytes = BASE64_STANDARD.decode(base64).map_err(|_| TokenError::Invalid("b64info or b64data is not base64"))?;
    Json::parse(&bytes).map_err(|_| TokenError::Invalid("b64info or b64data does not hold JSON"))
}

/// Signs a connection token (HS256) for `user`, on `device` if one is named, valid until `expires_at` or for ever.
pub fn sign_connection_token(
    secret: &TokenSecret,
    user: &str,
    device: Option<&DeviceId>,
    expires_at: Option<Timestamp>,
    info: Option<&Json>,
    now: Timestamp,
) -> String {
    let device = device.map(DeviceId::as_str);
    sign(secret, &NewClaims { device, ..NewClaims::new(user, expires_at, info, now) })
}

/// Signs a subscription token (HS256) for `user` and `channel`, valid until `expires_at` or for ever.
pub fn sign_subscription_token(
    secret: &TokenSecret,
    user: &str,
    channel: &ChannelName,
    expires_at: Option<Timestamp>,
    info: Option<&Json>,
    now: Timestamp,
) -> String {
    let channel = Some(channel.as_str());
    sign(secret, &NewClaims { channel, ..NewClaims::new(user, expires_at, info, now) })
}

#[derive(Serialize)]
struct NewClaims<'a> {
    sub: &'a str,
    iat: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<&'a Json>,
}

impl<'a> NewClaims<'a> {
    fn new(user: &'a str, expires_at: Option<Timestamp>, info: Option<&'a Json>, now: Timestamp) -> Self {
        let exp = expires_at.map(Timestamp::as_secs);
        Self { sub: user, iat: now.as_secs(), exp, device: None, channel: None, info }
    }
}

fn sign<T: Serialize>(secret: &TokenSecret, claims: &T) -> String {
    let key = EncodingKey::from_secret(&secret.0);
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &key)
        .expect("claims of our own are JSON, and HMAC takes any key")
}

#[cfg(test)]
mod tests;
