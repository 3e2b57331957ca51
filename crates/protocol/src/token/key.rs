//! The keys that tokens are checked with: shared secrets, public keys in PEM, and the keys of a JWKS document.
//!
//! A key verifies the algorithms of its own family and nothing else, so no token can choose how a key is used:
//!
//! | Key | Verifies |
//! |---|---|
//! | secret | HS256, HS384, HS512 |
//! | RSA, 2048 to 8192 bits | RS256, RS384, RS512, PS256, PS384, PS512 |
//! | ECDSA, P-256 | ES256 |
//! | ECDSA, P-384 | ES384 |
//! | Ed25519 | EdDSA |
//!
//! ES512 (P-521) is missing, because the JWT library has no such algorithm: it does not even read the header of such a
//! token. A secret never comes from a JWKS document.
//!
//! Sources: RFC 7515 and 7518 (signatures), RFC 7517 (JWKS), RFC 8037 (Ed25519).
//!
//! Bounds: a document has at most [`JWKS_KEY_COUNT_MAX`] keys that we can use. The reader of the document bounds its bytes.

use aws_lc_rs::rsa::PublicKey;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey, RsaPublicKeyComponents,
    VerificationAlgorithm,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, TokenData, Validation};
use serde::Deserialize;
use serde_json::Value;
use tidings_types::{Json, Timestamp};

use super::secret::{Token, TokenSecret};

/// The most keys of a JWKS document. A service has one or two; large identity providers publish up to a dozen.
pub const JWKS_KEY_COUNT_MAX: usize = 64;
/// The most bytes of a key's id. The longest in use are hashes in hexadecimal digits.
const KEY_ID_BYTES_MAX: usize = 256;
/// RSA keys that the cryptography library verifies with.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

const HMAC: &[Algorithm] = &[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
const RSA: &[Algorithm] =
    &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];

/// A key, and what it may verify. Never shows in `Debug`.
#[derive(Clone)]
pub struct TokenKey {
    id: Option<Box<str>>,
    key: DecodingKey,
    /// Of this key's family only.
    validation: Validation,
    until: Option<Timestamp>,
}

/// Why a PEM text holds no key for tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// Whoever has it can sign tokens, so it does not belong on this server.
    #[error("a private key; give the public key that belongs to it")]
    Private,
    /// Not PEM, or not a key of a kind that we know.
    #[error("not an RSA (2048 to 8192 bits), ECDSA (P-256, P-384) or Ed25519 public key in PEM (BEGIN PUBLIC KEY)")]
    Unknown,
}

/// Why a JWKS document is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// Not JSON with a list `keys`.
    #[error("not a JWKS document")]
    Syntax,
    /// No key of a kind that we know is for signatures.
    #[error("no key that can be used")]
    Empty,
    /// More than [`JWKS_KEY_COUNT_MAX`].
    #[error("more than {JWKS_KEY_COUNT_MAX} keys")]
    TooMany,
}

/// The public keys of Ed25519 of small order, in all encodings (Cremers and Jackson, "Prime, Order Please!", 2019): for each of them
/// anybody can make a signature that holds for an eighth of all messages or more.
pub(super) const SMALL_ORDER: [[u8; 32]; 7] = [
    [
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ],
    [
        0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ],
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    [
        0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
    [
        0xed, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
    [
        0xee, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
];

/// Whether two points differ in the sign of x alone, or not at all.
fn is_same_height(one: &[u8; 32], other: &[u8]) -> bool {
    other.split_last().is_some_and(|(last, rest)| *rest == one[..31] && last & 0x7f == one[31])
}

impl TokenKey {
    /// A secret that is shared with the application's servers.
    pub fn secret(secret: &TokenSecret) -> Self {
        Self::new(DecodingKey::from_secret(&secret.0), HMAC)
    }

    /// The key, which verifies nothing from `end` on.
    #[must_use]
    pub fn until(self, end: Timestamp) -> Self {
        Self { until: Some(end), ..self }
    }

    /// An RSA, ECDSA or Ed25519 public key.
    ///
    /// # Errors
    /// If it is none of these.
    pub fn public_pem(pem: &str) -> Result<Self, PublicKeyError> {
        if pem.contains("PRIVATE KEY") {
            return Err(PublicKeyError::Private);
        }
        if !pem.contains("-----BEGIN PUBLIC KEY-----") && !pem.contains("-----BEGIN RSA PUBLIC KEY-----") {
            return Err(PublicKeyError::Unknown);
        }
        let pem = pem.as_bytes();
        let key = DecodingKey::from_rsa_pem(pem)
            .or_else(|_| DecodingKey::from_ec_pem(pem))
            .or_else(|_| DecodingKey::from_ed_pem(pem));
        key.ok().and_then(|key| Self::public(&key)).ok_or(PublicKeyError::Unknown)
    }

    /// A key that the library has read from PEM, checked.
    fn public(key: &DecodingKey) -> Option<Self> {
        let bytes = key.try_get_as_bytes().ok()?;
        match key.family() {
            AlgorithmFamily::Rsa => {
                let RsaPublicKeyComponents { n, e } =
                    RsaPublicKeyComponents::<Vec<u8>>::from(&PublicKey::from_der(bytes).ok()?);
                Self::rsa(&n, &e)
            }
            AlgorithmFamily::Ec => Self::p256(bytes).or_else(|| Self::p384(bytes)),
            AlgorithmFamily::Ed => Self::ed25519(bytes),
            AlgorithmFamily::Hmac => None,
        }
    }

    fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let [modulus, exponent] = [modulus, exponent].map(without_zeros);
        let bits = modulus.len() * 8 - modulus.first()?.leading_zeros() as usize;
        let is_odd = exponent.last()? % 2 == 1 && exponent != [1];
        (RSA_BITS.contains(&bits) && is_odd)
            .then(|| Self::new(DecodingKey::from_rsa_raw_components(modulus, exponent), RSA))
    }

    /// `point` is uncompressed.
    fn p256(point: &[u8]) -> Option<Self> {
        is_key(&ECDSA_P256_SHA256_FIXED, point).then(|| Self::new(DecodingKey::from_ec_der(point), &[Algorithm::ES256]))
    }

    fn p384(point: &[u8]) -> Option<Self> {
        is_key(&ECDSA_P384_SHA384_FIXED, point).then(|| Self::new(DecodingKey::from_ec_der(point), &[Algorithm::ES384]))
    }

    fn ed25519(point: &[u8]) -> Option<Self> {
        let is_weak = || SMALL_ORDER.iter().any(|weak| is_same_height(weak, point));
        (is_key(&ED25519, point) && !is_weak()).then(|| Self::new(DecodingKey::from_ed_der(point), &[Algorithm::EdDSA]))
    }

    fn new(key: DecodingKey, algorithms: &[Algorithm]) -> Self {
        let mut validation = Validation::new(algorithms[0]);
        validation.algorithms = algorithms.to_vec();
        // The library would read the machine's clock; a core gets the time as an argument.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        Self { id: None, key, validation, until: None }
    }

    /// Whether the key is for tokens that name `id`.
    pub(super) fn has_id(&self, id: Option<&str>) -> bool {
        self.id.as_deref() == id
    }

    /// Whether the key may verify `algorithm` at this time.
    pub(super) fn verifies(&self, algorithm: Algorithm, now: Timestamp) -> bool {
        self.validation.algorithms.contains(&algorithm) && self.until.is_none_or(|until| now < until)
    }

    /// The claims of a token that this key has signed.
    pub(super) fn open(&self, token: &Token) -> Result<Json, jsonwebtoken::errors::Error> {
        let TokenData { claims, .. } = jsonwebtoken::decode(token.as_str(), &self.key, &self.validation)?;
        Ok(claims)
    }
}

/// Reads the keys of a JWKS document. What is not a public key for signatures, of a kind that we know, is skipped
/// (RFC 7517, 5).
///
/// # Errors
/// If the document is not JSON of this form, or has no key that we can use, or too many.
pub fn read_jwks(document: &[u8]) -> Result<Vec<TokenKey>, JwksError> {
    let set: WireSet = serde_json::from_slice(document).map_err(|_| JwksError::Syntax)?;
    let keys: Vec<TokenKey> = set.keys.into_iter().filter_map(read_jwk).take(JWKS_KEY_COUNT_MAX + 1).collect();
    match keys.len() {
        0 => Err(JwksError::Empty),
        1..=JWKS_KEY_COUNT_MAX => Ok(keys),
        _ => Err(JwksError::TooMany),
    }
}

#[derive(Deserialize)]
struct WireSet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct WireKey {
    kty: String,
    kid: Option<Box<str>>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

fn read_jwk(value: Value) -> Option<TokenKey> {
    let wire: WireKey = serde_json::from_value(value).ok()?;
    let is_for_signatures = wire.r#use.as_deref().is_none_or(|purpose| purpose == "sig")
        && wire.key_ops.iter().all(|operations| operations.iter().any(|operation| operation == "verify"));
    let is_short = wire.kid.as_ref().is_none_or(|id| id.len() <= KEY_ID_BYTES_MAX);
    if !is_for_signatures || !is_short {
        return None;
    }
    let mut key = match (&*wire.kty, wire.crv.as_deref()) {
        ("RSA", _) => TokenKey::rsa(&decoded(wire.n)?, &decoded(wire.e)?),
        ("EC", Some("P-256")) => TokenKey::p256(&point(&decoded(wire.x)?, &decoded(wire.y)?)),
        ("EC", Some("P-384")) => TokenKey::p384(&point(&decoded(wire.x)?, &decoded(wire.y)?)),
        ("OKP", Some("Ed25519")) => TokenKey::ed25519(&decoded(wire.x)?),
        _ => None,
    }?;
    if let Some(name) = wire.alg {
        // The key is for this algorithm alone; for one of another family it is for nothing.
        let algorithm = name.parse().ok()?;
        key.validation.algorithms.retain(|known| *known == algorithm);
    }
    key.id = wire.kid;
    (!key.validation.algorithms.is_empty()).then_some(key)
}

fn decoded(base64: Option<String>) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(base64?).ok()
}

/// An uncompressed point (SEC 1, 2.3.3).
fn point(x: &[u8], y: &[u8]) -> Vec<u8> {
    [&[4], x, y].concat()
}

fn without_zeros(number: &[u8]) -> &[u8] {
    &number[number.iter().take_while(|byte| **byte == 0).count()..]
}

fn is_key(algorithm: &'static dyn VerificationAlgorithm, bytes: &[u8]) -> bool {
    ParsedPublicKey::new(algorithm, bytes).is_ok()
}
