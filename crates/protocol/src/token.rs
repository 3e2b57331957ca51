//! Connection and subscription tokens: JSON Web Tokens (RFC 7519), signed by the application.
//!
//! [`TokenVerifier`] checks the signature with the configured keys (`key` says which algorithms) and with those of JWKS
//! endpoints (`remote`), then the times against `now`, the audience and the issuer. A key that the header of a token
//! names or contains (`jku`, `jwk`, `x5u`, `x5c`) is never used, and nothing in a token ever becomes part of an
//! address. Tokens with critical extensions are refused, because this server knows none (RFC 7515, 4.1.11).
//!
//! The claim `device` in a connection token is our own. It proves on which device the client runs.
//!
//! Bounds: a token is as long as the frame or header in which it came. It is checked with the configured keys and the
//! keys that have its id, of its algorithm only.
//!
//! The server subscribes a client to the channels of the claim `subs`, or of `channels` if there is no `subs`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, AlgorithmFamily, EncodingKey, Header};
use serde::{Deserialize, Serialize};
use tidings_types::{ChannelName, DeviceId, Json, Timestamp};

use crate::admission::{Admission, NumericDate, Overrides, SubscriptionTerms, json};

use crate::TextPattern;

mod error;
mod key;
mod remote;
mod secret;

pub use error::TokenError;
pub use key::{JWKS_KEY_COUNT_MAX, JwksError, PublicKeyError, TokenKey, read_jwks};
pub use remote::RemoteKeys;
pub use secret::{EmptySecretError, Token, TokenSecret};

/// The claims of a valid subscription token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriptionClaims {
    /// The user who may subscribe.
    pub user: String,
    /// The channel.
    pub channel: String,
    /// The only connection that may subscribe, if the token names one.
    pub client: Option<String>,
    /// The terms of the subscription.
    pub terms: SubscriptionTerms,
}

/// What tokens must say besides a good signature. The default asks for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenRules {
    /// One of the token's audiences.
    pub audience: Option<Box<str>>,
    /// A pattern for one of the token's audiences.
    pub audience_pattern: Option<TextPattern>,
    /// The token's issuer.
    pub issuer: Option<Box<str>>,
    /// A pattern for the token's issuer.
    pub issuer_pattern: Option<TextPattern>,
    /// The claim that names the user; `None`: `sub`, and a token without it is for an anonymous user.
    pub user_claim: Option<Box<str>>,
    /// How far the clock of the application may be wrong.
    pub leeway: Duration,
}

/// How one kind of token is checked.
#[derive(Clone, Default)]
pub struct TokenChecks {
    /// The configured keys.
    pub keys: Vec<TokenKey>,
    /// The keys of an endpoint.
    pub remote: Option<RemoteKeys>,
    /// The other conditions.
    pub rules: TokenRules,
}

/// Checks tokens. Clones share their keys.
#[derive(Clone)]
pub struct TokenVerifier(Arc<RwLock<Arc<BothChecks>>>);

struct BothChecks {
    connection: TokenChecks,
    /// `None`: those of connection tokens.
    subscription: Option<TokenChecks>,
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenVerifier")
    }
}

impl TokenVerifier {
    /// Accepts tokens signed with `current`, or with `previous` while the application changes over.
    pub fn new(current: &TokenSecret, previous: Option<&TokenSecret>) -> Self {
        let keys = [Some(current), previous].into_iter().flatten().map(TokenKey::secret).collect();
        Self::with(TokenChecks { keys, ..TokenChecks::default() }, None)
    }

    /// Checks connection tokens with `connection`, and subscription tokens with `subscription`, if it is given.
    pub fn with(connection: TokenChecks, subscription: Option<TokenChecks>) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(BothChecks { connection, subscription }))))
    }

    /// Replaces the keys and rules, in all clones. Clients that are connected stay connected.
    pub fn replace(&self, connection: TokenChecks, subscription: Option<TokenChecks>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(BothChecks { connection, subscription });
    }

    fn checks(&self) -> Arc<BothChecks> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a connection token; its claims are the client's admission.
    ///
    /// # Errors
    /// If the token is not valid, or not valid now.
    pub fn verify_connection(&self, token: &Token, now: Timestamp) -> Result<Admission, TokenError> {
        let checks = self.checks();
        let Checked { user, claims, expires_at } = checks.connection.check(token, now)?;
        if claims.channel.is_some_and(|channel| !channel.is_empty()) {
            return Err(TokenError::Invalid("a subscription token cannot connect"));
        }
        let plain = claims.channels.into_iter().flatten().map(|channel| (channel, SubscriptionTerms::default()));
        Ok(Admission {
            expires_at,
            device: claims.device.as_ref().map(device).transpose()?,
            info: json(claims.info, claims.b64info).map_err(TokenError::Invalid)?,
            user,
            meta: json(claims.meta, None).map_err(TokenError::Invalid)?,
            data: None,
            subscriptions: claims.subs.filter(|subs| !subs.is_empty()).unwrap_or_else(|| plain.collect()),
        })
    }

    /// Reads a subscription token. The caller must compare its user, channel and client.
    ///
    /// # Errors
    /// If the token is not valid, or not valid now.
    pub fn verify_subscription(&self, token: &Token, now: Timestamp) -> Result<SubscriptionClaims, TokenError> {
        let checks = self.checks();
        let checks = checks.subscription.as_ref().unwrap_or(&checks.connection);
        let Checked { user, claims, expires_at } = checks.check(token, now)?;
        let terms = SubscriptionTerms {
            expires_at,
            info: json(claims.info, claims.b64info).map_err(TokenError::Invalid)?,
            data: json(claims.data, claims.b64data).map_err(TokenError::Invalid)?,
            tags_filter: claims.tags_filter,
            ..SubscriptionTerms::default()
        };
        Ok(SubscriptionClaims {
            terms: terms.overridden(claims.overrides),
            user,
            channel: claims
                .channel
                .filter(|channel| !channel.is_empty())
                .ok_or(TokenError::Invalid("claim channel is missing"))?,
            client: claims.client.filter(|client| !client.is_empty()),
        })
    }
}

/// A token that is valid now.
struct Checked {
    user: String,
    claims: WireClaims,
    expires_at: Option<Timestamp>,
}

impl TokenChecks {
    fn check(&self, token: &Token, now: Timestamp) -> Result<Checked, TokenError> {
        let json = self.open(token, now)?;
        let claims: WireClaims = parsed(&json)?;
        claims.check_time(now, self.rules.leeway)?;
        self.rules.check(&claims)?;
        let user = match &self.rules.user_claim {
            None => claims.sub.clone().unwrap_or_default(),
            Some(name) => user(&json, name)?,
        };
        Ok(Checked { user, expires_at: claims.lifetime(self.rules.leeway), claims })
    }

    /// The claims of a token that one of the keys has signed.
    fn open(&self, token: &Token, now: Timestamp) -> Result<Json, TokenError> {
        let Header { alg, kid, crit, .. } = jsonwebtoken::decode_header(token.as_str())
            .map_err(|_| TokenError::Invalid("it is not a JSON Web Token with an algorithm that we know"))?;
        if crit.is_some() {
            return Err(TokenError::Invalid("it has critical extensions, and this server knows none"));
        }
        let remote = self.remote.as_ref().filter(|_| alg.family() != AlgorithmFamily::Hmac);
        let fetched = remote.map(RemoteKeys::keys).unwrap_or_default();
        let named = || fetched.iter().filter(|key| key.has_id(kid.as_deref()));
        let mut refusal = TokenError::Invalid("no configured key is for its algorithm");
        for key in self.keys.iter().chain(named()).filter(|key| key.verifies(alg, now)) {
            match key.open(token) {
                Ok(claims) => return Ok(claims),
                Err(error) => refusal = TokenError::Invalid(fault(error.kind())), // The next key may fit.
            }
        }
        match remote {
            // A token that names no key is not for one that comes later, unless there was never any.
            Some(remote) if named().next().is_none() && (kid.is_some() || fetched.is_empty()) => Err(remote.miss(now)),
            _ => Err(refusal),
        }
    }
}

impl TokenRules {
    fn check(&self, claims: &WireClaims) -> Result<(), TokenError> {
        if !fits(&self.audience, &self.audience_pattern, || texts(claims.aud.as_ref())) {
            return Err(TokenError::Invalid("it is for another audience"));
        }
        if !fits(&self.issuer, &self.issuer_pattern, || text(claims.iss.as_ref()).into_iter().collect()) {
            return Err(TokenError::Invalid("it is from another issuer"));
        }
        Ok(())
    }
}

/// Whether one of the texts is the expected one, and one has the expected form.
fn fits(exact: &Option<Box<str>>, pattern: &Option<TextPattern>, found: impl FnOnce() -> Vec<String>) -> bool {
    if exact.is_none() && pattern.is_none() {
        return true;
    }
    let found = found();
    exact.as_ref().is_none_or(|exact| found.iter().any(|found| **found == **exact))
        && pattern.as_ref().is_none_or(|pattern| found.iter().any(|found| pattern.matches(found)))
}

fn text(claim: Option<&Json>) -> Option<String> {
    serde_json::from_str(claim?.as_str()).ok()
}

/// A text, or several (RFC 7519, 4.1.3).
fn texts(claim: Option<&Json>) -> Vec<String> {
    match text(claim) {
        Some(text) => vec![text],
        None => claim.and_then(|claim| serde_json::from_str(claim.as_str()).ok()).unwrap_or_default(),
    }
}

/// The user that the claim `name` names.
fn user(claims: &Json, name: &str) -> Result<String, TokenError> {
    let mut claims: BTreeMap<String, Json> = parsed(claims)?;
    let claim = claims.remove(name).ok_or(TokenError::Invalid("the claim that names the user is missing"))?;
    text(Some(&claim)).ok_or(TokenError::Invalid("the claim that names the user is not a text"))
}

fn parsed<T: serde::de::DeserializeOwned>(claims: &Json) -> Result<T, TokenError> {
    serde_json::from_str(claims.as_str()).map_err(|_| TokenError::Invalid(NOT_OUR_CLAIMS))
}

const UNSIGNED: &str = "its signature fits no configured key";
const NOT_OUR_CLAIMS: &str = "its claims are not the expected JSON";

fn fault(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidSignature => UNSIGNED,
        ErrorKind::Json(_) => NOT_OUR_CLAIMS,
        _ => "it is not a JSON Web Token",
    }
}

/// The claims of both kinds of token.
#[derive(Deserialize)]
struct WireClaims {
    sub: Option<String>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    expire_at: Option<NumericDate>,
    /// Any values: they are read only if there is a rule.
    aud: Option<Json>,
    iss: Option<Json>,
    /// Any value: it has no meaning in a subscription token.
    device: Option<Json>,
    info: Option<Json>,
    b64info: Option<String>,
    meta: Option<Json>,
    channel: Option<String>,
    channels: Option<Vec<String>>,
    subs: Option<BTreeMap<String, SubscriptionTerms>>,
    client: Option<String>,
    data: Option<Json>,
    b64data: Option<String>,
    tags_filter: Option<Json>,
    #[serde(rename = "override")]
    overrides: Option<Overrides>,
}

impl WireClaims {
    fn check_time(&self, now: Timestamp, leeway: Duration) -> Result<(), TokenError> {
        let ended = self.exp.is_some_and(|exp| exp.timestamp().saturating_add(leeway) <= now);
        let not_begun = self.nbf.is_some_and(|nbf| nbf.timestamp() > now.saturating_add(leeway));
        if ended || not_begun { Err(TokenError::Expired) } else { Ok(()) }
    }

    /// `expire_at` wins over `exp`; an `expire_at` of 0 means for ever. A token that is good until `leeway` after `exp`
    /// lets its holder in until then.
    fn lifetime(&self, leeway: Duration) -> Option<Timestamp> {
        match self.expire_at {
            Some(date) => (date.0 != 0.0).then(|| date.timestamp()),
            None => self.exp.map(|exp| exp.timestamp().saturating_add(leeway)),
        }
    }
}

fn device(claim: &Json) -> Result<DeviceId, TokenError> {
    serde_json::from_str(claim.as_str())
        .map_err(|_| TokenError::Invalid("claim device is not a device id, 1 to 128 visible ASCII characters"))
}

/// A key that signs tokens, and the algorithm. Never shows in `Debug`.
pub struct TokenSigner {
    key: EncodingKey,
    algorithm: Algorithm,
}

/// Why tokens cannot be signed with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// Not PEM, or not a key of a kind that we know.
    #[error("not an RSA, ECDSA (P-256, P-384) or Ed25519 private key in PEM (BEGIN PRIVATE KEY)")]
    Key,
    /// The algorithm is unknown, or for another kind of key.
    #[error("the algorithm is not one of this key")]
    Algorithm,
}

impl TokenSigner {
    /// Signs with the secret: HS256 if no algorithm is named.
    ///
    /// # Errors
    /// If the algorithm is not for secrets.
    pub fn secret(secret: &TokenSecret, algorithm: Option<&str>) -> Result<Self, SigningKeyError> {
        Self::new(EncodingKey::from_secret(&secret.0), algorithm)
    }

    /// Signs with a private key: RS256, ES256, ES384 or EdDSA, as the key is, if no algorithm is named.
    ///
    /// # Errors
    /// If the text has no private key, or the algorithm is for another kind of key.
    pub fn private_pem(pem: &str, algorithm: Option<&str>) -> Result<Self, SigningKeyError> {
        let pem = pem.as_bytes();
        let key = EncodingKey::from_rsa_pem(pem)
            .or_else(|_| EncodingKey::from_ec_pem(pem))
            .or_else(|_| EncodingKey::from_ed_pem(pem));
        Self::new(key.map_err(|_| SigningKeyError::Key)?, algorithm)
    }

    fn new(key: EncodingKey, algorithm: Option<&str>) -> Result<Self, SigningKeyError> {
        const FIRST: [Algorithm; 5] =
            [Algorithm::HS256, Algorithm::RS256, Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA];
        let named = algorithm.map(|name| name.parse::<Algorithm>().map(|one| vec![one])).transpose();
        let candidates = named.map_err(|_| SigningKeyError::Algorithm)?.unwrap_or_else(|| FIRST.to_vec());
        // The library tells of which curve a key is only by signing.
        let signs = |algorithm: &Algorithm| {
            key.family() == algorithm.family() && jsonwebtoken::encode(&Header::new(*algorithm), &(), &key).is_ok()
        };
        let algorithm = candidates.into_iter().find(signs).ok_or(SigningKeyError::Algorithm)?;
        Ok(Self { key, algorithm })
    }
}

impl From<&TokenSecret> for TokenSigner {
    fn from(secret: &TokenSecret) -> Self {
        Self { key: EncodingKey::from_secret(&secret.0), algorithm: Algorithm::HS256 }
    }
}

/// Signs a connection token for what `admission` says, except its data, which tokens do not have, and its
/// `meta`.
pub fn sign_connection_token(signer: impl Into<TokenSigner>, admission: &Admission, now: Timestamp) -> String {
    let Admission { user, device, expires_at, info, meta: _, data: _, subscriptions } = admission;
    let device = device.as_ref().map(DeviceId::as_str);
    let subs = (!subscriptions.is_empty()).then_some(subscriptions);
    sign(&signer.into(), &NewClaims { device, subs, ..NewClaims::new(user, *expires_at, info.as_ref(), now) })
}

/// Signs a subscription token for `user` and `channel`, valid until `expires_at` or for ever.
pub fn sign_subscription_token(
    signer: impl Into<TokenSigner>,
    user: &str,
    channel: &ChannelName,
    expires_at: Option<Timestamp>,
    info: Option<&Json>,
    now: Timestamp,
) -> String {
    let channel = Some(channel.as_str());
    sign(&signer.into(), &NewClaims { channel, ..NewClaims::new(user, expires_at, info, now) })
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
    subs: Option<&'a BTreeMap<String, SubscriptionTerms>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<&'a Json>,
}

impl<'a> NewClaims<'a> {
    fn new(user: &'a str, expires_at: Option<Timestamp>, info: Option<&'a Json>, now: Timestamp) -> Self {
        let exp = expires_at.map(Timestamp::as_secs);
        Self { sub: user, iat: now.as_secs(), exp, device: None, channel: None, subs: None, info }
    }
}

fn sign<T: Serialize>(signer: &TokenSigner, claims: &T) -> String {
    jsonwebtoken::encode(&Header::new(signer.algorithm), claims, &signer.key)
        .expect("claims of our own are JSON, and the key has signed before")
}

#[cfg(test)]
mod tests;
