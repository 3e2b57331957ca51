//! A browser that has subscribed: it has keys, reads what is encrypted for it, and checks who has signed.
//!
//! By the steps of RFC 8291, 3.4 and RFC 8188, 2, and of RFC 8292, written here anew: the code under test is not asked.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::signature;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use tidings_types::DeviceToken;

pub(crate) struct Browser {
    private: PrivateKey,
    public: Vec<u8>,
    auth: [u8; 16],
}

impl Browser {
    pub(crate) fn new() -> Self {
        let private = PrivateKey::generate(&ECDH_P256).unwrap();
        let public = private.compute_public_key().unwrap().as_ref().to_vec();
        Self { private, public, auth: rand::random() }
    }

    pub(crate) fn subscription(&self, endpoint: &str) -> DeviceToken {
        DeviceToken::web_push(endpoint, &BASE64URL.encode(&self.public), &BASE64URL.encode(self.auth)).unwrap()
    }

    /// What a body says.
    pub(crate) fn decrypt(&self, body: &[u8]) -> Vec<u8> {
        let (salt, rest) = body.split_at(16);
        let (record_bytes, rest) = rest.split_at(4);
        let record_bytes = u32::from_be_bytes(record_bytes.try_into().unwrap()) as usize;
        assert_eq!(rest[0], 65, "the key is named by itself");
        let (sender, record) = rest[1..].split_at(65);
        assert!(record.len() <= record_bytes, "one record");

        let secret =
            agree(&self.private, UnparsedPublicKey::new(&ECDH_P256, sender), (), |it| Ok(it.to_vec())).unwrap();
        let input = [b"WebPush: info\0", &self.public[..], sender, &[1]].concat();
        let material = hmac(&hmac(&self.auth, &secret), &input);
        let pseudo_random = hmac(salt, &material);
        let key = hmac(&pseudo_random, b"Content-Encoding: aes128gcm\0\x01");
        let nonce = hmac(&pseudo_random, b"Content-Encoding: nonce\0\x01");

        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key[..16]).unwrap());
        let nonce = Nonce::try_assume_unique_for_key(&nonce[..12]).unwrap();
        let mut text = record.to_vec();
        let length = key.open_in_place(nonce, Aad::empty(), &mut text).expect("it is for this browser").len();
        text.truncate(length);
        let delimiter = text.iter().rposition(|byte| *byte != 0).unwrap();
        assert_eq!(text[delimiter], 2, "the last record");
        text.truncate(delimiter);
        text
    }
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    sign(&Key::new(HMAC_SHA256, key), data).as_ref().to_vec()
}

/// What a signature says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) audience: String,
    pub(crate) expires_in: i64,
    pub(crate) contact: String,
    pub(crate) key: String,
}

/// Checks an `authorization` header.
pub(crate) fn verify(authorization: &str, now_seconds: i64) -> Signed {
    let (token, key) = authorization.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
    let (signed, mark) = token.rsplit_once('.').unwrap();
    let (head, claims) = signed.split_once('.').unwrap();
    let decode = |text: &str| BASE64URL.decode(text).unwrap();
    assert_eq!(decode(head), br#"{"typ":"JWT","alg":"ES256"}"#);
    let public = signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, decode(key));
    public.verify(signed.as_bytes(), &decode(mark)).expect("signed by the key it names");
    let claims: serde_json::Value = serde_json::from_slice(&decode(claims)).unwrap();
    Signed {
        audience: claims["aud"].as_str().unwrap().to_owned(),
        expires_in: claims["exp"].as_i64().unwrap() - now_seconds,
        contact: claims["sub"].as_str().unwrap().to_owned(),
        key: key.to_owned(),
    }
}
