//! Where a device is reached: its address at its push provider.
//!
//! Addresses are secrets: whoever has one may be able to push to the device. `Debug` shows kind and length only.
//!
//! Serde form, in the store's rows: an APNs token is its hexadecimal text, `{"fcm": text}` and `{"web_push": {"endpoint",
//! "p256dh", "auth"}}` are the others, keys in base64url as browsers spell them.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};

use crate::{NameError, Provider};

/// Browsers leave the padding out, some libraries do not.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Hexadecimal digits of an APNs token.
const APNS_DIGIT_COUNT_MAX: usize = 400;
/// Characters of an FCM token.
const FCM_BYTES_MAX: usize = 4096;
/// Bytes of an endpoint.
const ENDPOINT_BYTES_MAX: usize = 2048;
/// A point of P-256, uncompressed (SEC 1, 2.3.3).
const P256DH_BYTES: usize = 65;
/// RFC 8291, 3.2.
const AUTH_BYTES: usize = 16;

/// The address of a device at its provider.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub enum DeviceToken {
    /// The opaque bytes that APNs' hexadecimal token spells.
    Apns(Box<[u8]>),
    /// A registration token of Firebase.
    Fcm(Box<str>),
    /// A subscription of a browser.
    WebPush(Box<WebPushToken>),
}

/// A subscription of a browser (W3C Push API, `PushSubscription`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WebPushToken {
    endpoint: Box<str>,
    p256dh: [u8; P256DH_BYTES],
    auth: [u8; AUTH_BYTES],
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Hex(String),
    Fcm { fcm: String },
    WebPush { web_push: WebPushForm },
}

#[derive(Serialize, Deserialize)]
struct WebPushForm {
    endpoint: String,
    p256dh: String,
    auth: String,
}

// The value is never repeated in an error: a token is a secret.
fn refused(what: &'static str, rule: &'static str, text: &str) -> NameError {
    NameError { what, rule, value: format!("{} characters", text.chars().count()) }
}

impl DeviceToken {
    /// Reads APNs' hexadecimal form: 2 to 400 digits, an even number.
    ///
    /// # Errors
    /// When it is not hexadecimal or of another length.
    pub fn from_hex(text: &str) -> Result<Self, NameError> {
        let bytes = match text.len() {
            1..=APNS_DIGIT_COUNT_MAX => HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok(),
            _ => None,
        };
        let error = || refused("token", "must be 2 to 400 hexadecimal digits, an even number", text);
        bytes.map(|bytes| Self::Apns(bytes.into())).ok_or_else(error)
    }

    /// Takes an FCM token: 1 to 4096 visible ASCII characters.
    ///
    /// # Errors
    /// When it is something else.
    pub fn fcm(text: &str) -> Result<Self, NameError> {
        let is_valid = !text.is_empty() && text.len() <= FCM_BYTES_MAX && text.bytes().all(|it| it.is_ascii_graphic());
        let error = || refused("token", "must be 1 to 4096 visible ASCII characters", text);
        is_valid.then(|| Self::Fcm(text.into())).ok_or_else(error)
    }

    /// Takes a browser's subscription; both keys are in base64url. Whether the endpoint may be connected to is another
    /// question, asked when it is.
    ///
    /// # Errors
    /// When the endpoint is no `https` address of at most 2048 visible ASCII characters, or a key has another length.
    pub fn web_push(endpoint: &str, p256dh: &str, auth: &str) -> Result<Self, NameError> {
        let is_valid = endpoint.len() <= ENDPOINT_BYTES_MAX
            && endpoint.strip_prefix("https://").is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
            && endpoint.bytes().all(|it| it.is_ascii_graphic());
        if !is_valid {
            return Err(refused("endpoint", "must be an https address of at most 2048 characters", endpoint));
        }
        let p256dh = key(p256dh)
            .filter(|key: &[u8; P256DH_BYTES]| key[0] == 4)
            .ok_or_else(|| refused("p256dh", "must be an uncompressed P-256 point, 65 bytes in base64url", p256dh))?;
        let auth = key(auth).ok_or_else(|| refused("auth", "must be 16 bytes in base64url", auth))?;
        Ok(Self::WebPush(Box::new(WebPushToken { endpoint: endpoint.into(), p256dh, auth })))
    }

    /// Whose address it is.
    pub fn provider(&self) -> Provider {
        match self {
            Self::Apns(_) => Provider::Apns,
            Self::Fcm(_) => Provider::Fcm,
            Self::WebPush(_) => Provider::WebPush,
        }
    }

    /// The address itself, without a browser's keys: APNs' bytes, the text of the others.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Apns(bytes) => bytes,
            Self::Fcm(text) => text.as_bytes(),
            Self::WebPush(token) => token.endpoint.as_bytes(),
        }
    }

    /// What two tokens share if they are the same address. Others do not, but for an APNs token whose bytes spell the
    /// identity of another provider's; who takes tokens from strangers tells the providers apart.
    pub fn identity(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Apns(bytes) => Cow::Borrowed(bytes),
            Self::Fcm(text) => [b"fcm\0", text.as_bytes()].concat().into(),
            Self::WebPush(token) => [b"web_push\0", token.endpoint.as_bytes()].concat().into(),
        }
    }

    /// The address as its provider spells it: lower-case hexadecimal digits, token, endpoint.
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Apns(bytes) => HEXLOWER.encode(bytes).into(),
            Self::Fcm(text) => Cow::Borrowed(text),
            Self::WebPush(token) => Cow::Borrowed(&token.endpoint),
        }
    }
}

fn key<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    // No key spelt right is longer; nobody's megabyte is decoded.
    (text.len() <= 2 * BYTES).then(|| BASE64URL.decode(text).ok()?.try_into().ok())?
}

impl WebPushToken {
    /// Where to send: a URL that begins with `https://`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The browser's public key: an uncompressed point, perhaps not on the curve.
    pub fn p256dh(&self) -> &[u8; P256DH_BYTES] {
        &self.p256dh
    }

    /// The browser's secret.
    pub fn auth(&self) -> &[u8; AUTH_BYTES] {
        &self.auth
    }
}

/// The address of a device, borrowed from wherever its bytes are. Whoever keeps many packs them ([`TokenRef::pack`]) and
/// reads them without a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenRef<'a>(Borrowed<'a>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Borrowed<'a> {
    Apns(&'a [u8]),
    /// A text, as a browser's endpoint is. That it is one was asked when it was made, and is not asked of each that is read.
    Fcm(&'a [u8]),
    WebPush {
        endpoint: &'a [u8],
        p256dh: &'a [u8; P256DH_BYTES],
        auth: &'a [u8; AUTH_BYTES],
    },
}

impl<'a> TokenRef<'a> {
    /// Whose address it is.
    pub fn provider(self) -> Provider {
        match self.0 {
            Borrowed::Apns(_) => Provider::Apns,
            Borrowed::Fcm(_) => Provider::Fcm,
            Borrowed::WebPush { .. } => Provider::WebPush,
        }
    }

    /// As [`DeviceToken::as_bytes`].
    pub fn as_bytes(self) -> &'a [u8] {
        match self.0 {
            Borrowed::Apns(bytes) | Borrowed::Fcm(bytes) | Borrowed::WebPush { endpoint: bytes, .. } => bytes,
        }
    }

    /// A copy of its own.
    pub fn to_token(self) -> DeviceToken {
        let text = |bytes| String::from_utf8_lossy(bytes).into();
        match self.0 {
            Borrowed::Apns(bytes) => DeviceToken::Apns(bytes.into()),
            Borrowed::Fcm(bytes) => DeviceToken::Fcm(text(bytes)),
            Borrowed::WebPush { endpoint, p256dh, auth } => {
                let endpoint = text(endpoint);
                DeviceToken::WebPush(Box::new(WebPushToken { endpoint, p256dh: *p256dh, auth: *auth }))
            }
        }
    }

    /// Adds its bytes to `out`. They tell neither whose address it is nor how long: the caller keeps both.
    pub fn pack(self, out: &mut Vec<u8>) {
        if let Borrowed::WebPush { p256dh, auth, .. } = self.0 {
            out.extend_from_slice(p256dh);
            out.extend_from_slice(auth);
        }
        out.extend_from_slice(self.as_bytes());
    }

    /// Reads what [`TokenRef::pack`] wrote, as a checksum of the caller's has proven: a text's rules are not asked again.
    /// `None` where it cannot be such.
    #[inline]
    pub fn unpack(provider: Provider, bytes: &'a [u8]) -> Option<Self> {
        Some(Self(match provider {
            Provider::Apns => Borrowed::Apns(bytes),
            Provider::Fcm => Borrowed::Fcm(bytes),
            Provider::WebPush => {
                let (p256dh, rest) = bytes.split_first_chunk()?;
                let (auth, endpoint) = rest.split_first_chunk()?;
                Borrowed::WebPush { endpoint, p256dh, auth }
            }
        }))
    }
}

impl<'a> From<&'a DeviceToken> for TokenRef<'a> {
    fn from(token: &'a DeviceToken) -> Self {
        Self(match token {
            DeviceToken::Apns(bytes) => Borrowed::Apns(bytes),
            DeviceToken::Fcm(text) => Borrowed::Fcm(text.as_bytes()),
            DeviceToken::WebPush(token) => {
                let WebPushToken { endpoint, p256dh, auth } = &**token;
                Borrowed::WebPush { endpoint: endpoint.as_bytes(), p256dh, auth }
            }
        })
    }
}

impl PartialEq<DeviceToken> for TokenRef<'_> {
    fn eq(&self, other: &DeviceToken) -> bool {
        *self == TokenRef::from(other)
    }
}

impl From<&[u8]> for DeviceToken {
    /// An APNs token.
    fn from(bytes: &[u8]) -> Self {
        Self::Apns(bytes.into())
    }
}

impl TryFrom<Form> for DeviceToken {
    type Error = NameError;

    fn try_from(form: Form) -> Result<Self, NameError> {
        match form {
            Form::Hex(text) => Self::from_hex(&text),
            Form::Fcm { fcm } => Self::fcm(&fcm),
            Form::WebPush { web_push: WebPushForm { endpoint, p256dh, auth } } => {
                Self::web_push(&endpoint, &p256dh, &auth)
            }
        }
    }
}

impl From<DeviceToken> for Form {
    fn from(token: DeviceToken) -> Self {
        match token {
            DeviceToken::Apns(_) => Self::Hex(token.to_text().into_owned()),
            DeviceToken::Fcm(text) => Self::Fcm { fcm: text.into() },
            DeviceToken::WebPush(token) => {
                let WebPushToken { endpoint, p256dh, auth } = *token;
                let (p256dh, auth) = (BASE64URL.encode(p256dh), BASE64URL.encode(auth));
                Self::WebPush { web_push: WebPushForm { endpoint: endpoint.into(), p256dh, auth } }
            }
        }
    }
}

// Tokens never reach a log.
impl fmt::Debug for DeviceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceToken({}, {} bytes)", self.provider(), self.as_bytes().len())
    }
}

impl fmt::Debug for TokenRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenRef({}, {} bytes)", self.provider(), self.as_bytes().len())
    }
}

impl fmt::Debug for WebPushToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebPushToken({} bytes)", self.endpoint.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

    #[test]
    fn each_provider_has_its_own_form_and_reads_it_back() {
        let browser = DeviceToken::web_push("https://push.example/x", P256DH, AUTH).unwrap();
        for (token, form) in [
            (DeviceToken::from_hex("00Ff12").unwrap(), r#""00ff12""#.to_owned()),
            (DeviceToken::fcm("abc:DEF_1-2").unwrap(), r#"{"fcm":"abc:DEF_1-2"}"#.to_owned()),
            (
                browser,
                format!(
                    r#"{{"web_push":{{"endpoint":"https://push.example/x","p256dh":"{P256DH}","auth":"{AUTH}"}}}}"#
                ),
            ),
        ] {
            assert_eq!(serde_json::to_string(&token).unwrap(), form);
            assert_eq!(serde_json::from_str::<DeviceToken>(&form).unwrap(), token);
            assert!(!format!("{token:?}").contains(&*token.to_text()), "{token:?}");
            let mut bytes = Vec::new();
            TokenRef::from(&token).pack(&mut bytes);
            let borrowed = TokenRef::unpack(token.provider(), &bytes).unwrap();
            assert!(borrowed == token && borrowed.to_token() == token && borrowed.as_bytes() == token.as_bytes());
            assert!(!format!("{borrowed:?}").contains(&*token.to_text()), "{borrowed:?}");
        }
    }

    #[test]
    fn padding_changes_nothing() {
        let with = DeviceToken::web_push("https://push.example/x", &format!("{P256DH}="), &format!("{AUTH}=="));
        assert_eq!(with, DeviceToken::web_push("https://push.example/x", P256DH, AUTH));
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        let long = format!("https://push.example/{}", "x".repeat(2028));
        for endpoint in ["http://push.example/x", "https://", "https:///x", "https://push.example/ x", &long, "ftp://x"]
        {
            let refused = DeviceToken::web_push(endpoint, P256DH, AUTH).unwrap_err();
            assert_eq!(refused.what, "endpoint");
            assert!(!refused.to_string().contains("push.example"), "{refused}");
        }
        let compressed = format!("A{}", &P256DH[1..]);
        for p256dh in ["", "BA", "*", &compressed, &"A".repeat(10_000)] {
            assert_eq!(DeviceToken::web_push("https://a.b/c", p256dh, AUTH).unwrap_err().what, "p256dh");
        }
        assert_eq!(DeviceToken::web_push("https://a.b/c", P256DH, "AAAA").unwrap_err().what, "auth");
        for text in ["", "a b", "é", &"x".repeat(4097)] {
            assert!(DeviceToken::fcm(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_text_is_two_addresses_of_two_providers() {
        let apns = DeviceToken::from(&b"abc"[..]);
        let fcm = DeviceToken::fcm("abc").unwrap();
        assert_eq!(apns.as_bytes(), fcm.as_bytes());
        assert_ne!(apns.identity(), fcm.identity());
    }
}
