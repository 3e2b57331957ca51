//! The browsers behind the push service: their subscriptions, and decryption with their keys.
//!
//! Nothing is stored per subscription. The endpoint holds a number, a hash of the sender's key and an authentication code.
//! The browser's keys are derived from the number and the seed. So millions of subscriptions cost no memory, and a
//! simulator with the same seed and port knows the subscriptions of an earlier one.
//!
//! Decryption follows RFC 8291 and RFC 8188 from the receiver's side. It shares no code with the sender.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// Salt, record size, length of the key id (RFC 8188, 2.1), and the sender's public key as the key id (RFC 8291, 4).
const HEADER_LEN: usize = 16 + 4 + 1 + PUBLIC_KEY_LEN;
const TAG_LEN: usize = 16;
pub(super) const PUBLIC_KEY_LEN: usize = 65;
const CODE_LEN: usize = 16;
/// Number, hash of the sender's key, code.
const NAME_LEN: usize = 8 + 16 + CODE_LEN;

/// What a browser gives to its app's server: `PushSubscription` of the W3C Push API as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushSubscription {
    /// The URL to send pushes to.
    pub endpoint: String,
    /// When the subscription ends; always `None`.
    pub expiration_time: Option<u64>,
    /// The keys to encrypt with.
    pub keys: PushKeys,
}

/// The keys of a [`PushSubscription`], in base64url.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushKeys {
    /// The browser's public key, an uncompressed point of P-256.
    pub p256dh: String,
    /// The browser's secret, 16 bytes.
    pub auth: String,
}

/// The parts of a subscription that its endpoint holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) number: u64,
    /// The hash of the key of the only sender that may push; zeros allow any sender.
    sender: [u8; 16],
}

/// All browsers of a simulator. The key is made from the seed; everything else is derived from the key.
pub(super) struct Browsers(hmac::Key);

struct Keys {
    private: PrivateKey,
    public: Vec<u8>,
    auth: Vec<u8>,
}

impl Browsers {
    pub(super) fn new(seed: u64) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, &[b"tidings simulated browsers".as_slice(), &seed.to_be_bytes()].concat()))
    }

    /// Makes the subscription with this number.
    pub(super) fn subscribe(&self, origin: &str, number: u64, sender: Option<&[u8]>) -> PushSubscription {
        let sender = sender.map_or([0; 16], sender_hash);
        let keys = self.keys(number);
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let name = [&number.to_be_bytes()[..], &sender, &self.code(number, &sender)].concat();
        PushSubscription {
            endpoint: format!("{origin}/push/{}", text(&name)),
            expiration_time: None,
            keys: PushKeys { p256dh: text(&keys.public), auth: text(&keys.auth) },
        }
    }

    /// Finds the subscription for the last part of an endpoint. `None` if this simulator has not made it.
    pub(super) fn find(&self, name: &str) -> Option<Subscription> {
        let name: [u8; NAME_LEN] = BASE64_URL_SAFE_NO_PAD.decode(name).ok()?.try_into().ok()?;
        let (number, rest) = name.split_first_chunk::<8>()?;
        let (sender, code) = rest.split_first_chunk::<16>()?;
        let number = u64::from_be_bytes(*number);
        verify_slices_are_equal(code, &self.code(number, sender)).ok()?;
        Some(Subscription { number, sender: *sender })
    }

    /// Decrypts a body that was sent to a subscription. `None` if the browser's keys do not decrypt it.
    pub(super) fn open(&self, subscription: Subscription, body: &[u8]) -> Option<Vec<u8>> {
        open(&self.keys(subscription.number), body)
    }

    fn code(&self, number: u64, sender: &[u8; 16]) -> [u8; CODE_LEN] {
        let code = hmac::sign(&self.0, &[b"endpoint", &number.to_be_bytes()[..], sender].concat());
        *code.as_ref().first_chunk().expect("HMAC-SHA-256 has 32 bytes")
    }

    fn keys(&self, number: u64) -> Keys {
        let (_, private, public) = self.key_pair(b"key", number);
        Keys { private, public, auth: self.derive(b"auth", number, 0)[..16].to_vec() }
    }

    /// The private key (32 bytes) and the public key for a sender that has none of its own.
    pub(super) fn sender(&self) -> (Vec<u8>, Vec<u8>) {
        let (secret, _, public) = self.key_pair(b"sender", 0);
        (secret, public)
    }

    fn key_pair(&self, what: &[u8], number: u64) -> (Vec<u8>, PrivateKey, Vec<u8>) {
        let at = |round| {
            let secret = self.derive(what, number, round);
            let private = PrivateKey::from_private_key(&ECDH_P256, &secret).ok()?;
            Some((secret, private))
        };
        // One number in 2³² is above the curve's order and thus not a key.
        let (secret, private) = (0..=u8::MAX).find_map(at).expect("not all of 256 numbers are above the order");
        let public = private.compute_public_key().expect("every private key has a public key").as_ref().to_vec();
        (secret, private, public)
    }

    fn derive(&self, what: &[u8], number: u64, round: u8) -> Vec<u8> {
        hmac::sign(&self.0, &[what, &number.to_be_bytes()[..], &[round]].concat()).as_ref().to_vec()
    }
}

impl Subscription {
    /// Whether the sender with this key may push.
    pub(super) fn takes(self, key: &[u8]) -> bool {
        !self.is_restricted() || self.sender == sender_hash(key)
    }

    /// Whether only one sender may push.
    pub(super) fn is_restricted(self) -> bool {
        self.sender != [0; 16]
    }
}

fn sender_hash(key: &[u8]) -> [u8; 16] {
    *digest(&SHA256, key).as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Decrypts a body: a header and one record with padding.
fn open(keys: &Keys, body: &[u8]) -> Option<Vec<u8>> {
    let (header, record) = body.split_at_checked(HEADER_LEN)?;
    let (salt, rest) = header.split_at_checked(16)?;
    let (record_size, rest) = rest.split_first_chunk::<4>()?;
    let (name_len, sender_public) = rest.split_first()?;
    let record_size = u32::from_be_bytes(*record_size) as usize;
    // There is exactly one record, with room for the delimiter (RFC 8291, 4; RFC 8188, 2).
    let is_one_record = record_size >= TAG_LEN + 2 && record.len() <= record_size && record.len() > TAG_LEN;
    if usize::from(*name_len) != PUBLIC_KEY_LEN || !is_one_record {
        return None;
    }
    let peer = UnparsedPublicKey::new(&ECDH_P256, sender_public);
    let shared = agreement::agree(&keys.private, peer, (), |secret| Ok(secret.to_vec())).ok()?;
    let info = [b"WebPush: info\0", &keys.public[..], sender_public].concat();
    let ikm = expand(&extract(&keys.auth, &shared), &info);
    let prk = extract(salt, &ikm);
    let key = UnboundKey::new(&AES_128_GCM, &expand(&prk, b"Content-Encoding: aes128gcm\0")[..16]).ok()?;
    let nonce = expand(&prk, b"Content-Encoding: nonce\0").first_chunk().copied()?;
    let mut record = record.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce); // The first record's nonce is used as it is (RFC 8188, 2.3).
    let padded = LessSafeKey::new(key).open_in_place(nonce, Aad::empty(), &mut record).ok()?;
    // The last record ends with 2 and zeros (RFC 8188, 2).
    let end = padded.iter().rposition(|byte| *byte != 0)?;
    (padded[end] == 2).then(|| padded[..end].to_vec())
}

/// HKDF-Extract (RFC 5869, 2.2).
fn extract(salt: &[u8], secret: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, salt), secret).as_ref().to_vec()
}

/// The first block of HKDF-Expand (RFC 5869, 2.3), 32 bytes.
fn expand(key: &[u8], info: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), &[info, &[1]].concat()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    /// RFC 8291, appendix A.
    fn example() -> (Keys, Vec<u8>) {
        let keys = Keys {
            private: PrivateKey::from_private_key(&ECDH_P256, &bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
                .unwrap(),
            public: bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
            auth: bytes("BTBZMqHH6r4Tts7J_aSIgg"),
        };
        let body = bytes(
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3\
             jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN",
        );
        (keys, body)
    }

    #[test]
    fn the_example_of_the_specification_is_decrypted() {
        let (keys, body) = example();
        assert_eq!(keys.private.compute_public_key().unwrap().as_ref(), keys.public);
        assert_eq!(open(&keys, &body).unwrap(), b"When I grow up, I want to be a watermelon");
    }

    #[test]
    fn a_body_with_a_changed_bit_or_a_missing_byte_is_refused() {
        let (keys, body) = example();
        for at in 0..body.len() {
            assert_eq!(open(&keys, &body[..at]), None, "{at} bytes");
            let mut changed = body.clone();
            changed[at] ^= 1;
            // The record size, bytes 16 to 19, is not authenticated: any size that the record fits into is accepted.
            assert_eq!(open(&keys, &changed).is_some(), (16..20).contains(&at), "byte {at}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_from_outside_make_it_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), name in ".{0,60}",
        ) {
            let (keys, body) = example();
            proptest::prop_assert_eq!(open(&keys, &bytes), None);
            // A valid header with random bytes after it.
            proptest::prop_assert_eq!(open(&keys, &[&body[..HEADER_LEN], &bytes].concat()), None);
            proptest::prop_assert_eq!(Browsers::new(1).find(&name), None);
        }
    }

    #[test]
    fn an_endpoint_names_its_subscription_and_cannot_be_forged() {
        let browsers = Browsers::new(1);
        let sender = [4; PUBLIC_KEY_LEN];
        let open = browsers.subscribe("https://localhost:1", 7, None);
        let restricted = browsers.subscribe("https://localhost:1", 7, Some(&sender));
        assert_eq!(open, browsers.subscribe("https://localhost:1", 7, None));
        assert_eq!(open.keys, restricted.keys);
        let name = |subscription: &PushSubscription| subscription.endpoint.rsplit('/').next().unwrap().to_owned();
        let found = browsers.find(&name(&open)).unwrap();
        assert_eq!((found.number, found.is_restricted(), found.takes(&[5; 65])), (7, false, true));
        let found = browsers.find(&name(&restricted)).unwrap();
        assert_eq!((found.number, found.takes(&sender), found.takes(&[5; 65])), (7, true, false));
        assert_eq!(Browsers::new(2).find(&name(&open)), None);
        let mut forged = bytes(&name(&open));
        forged[7] += 1;
        assert_eq!(browsers.find(&BASE64_URL_SAFE_NO_PAD.encode(forged)), None);
        assert_eq!(browsers.find(""), None);
    }
}
