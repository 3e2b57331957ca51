//! Private keys that sign tokens: how they are read, and JSON Web Tokens (RFC 7519) made with them.
//!
//! `jsonwebtoken` makes the tokens. It reads the key anew for each of them, so a key is accepted here only if it can be read
//! in that way. A PEM file (RFC 7468) must hold one private key in PKCS#8, and may hold other things.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use jsonwebtoken::{EncodingKey, Header};
use pem::{EncodeConfig, LineEnding, Pem};
use serde::Serialize;

const LABEL: &str = "PRIVATE KEY";

/// The private key in a PEM file, as PKCS#8; `None` unless there is exactly one.
pub(crate) fn decode_pem(text: &str) -> Option<Vec<u8>> {
    let mut keys = pem::parse_many(text).ok()?.into_iter().filter(|block| block.tag() == LABEL);
    let key = keys.next()?;
    keys.next().is_none().then(|| key.into_contents())
}

/// A private key in PKCS#8 as a PEM file.
pub(crate) fn encode_pem(pkcs8: &[u8]) -> String {
    pem::encode_config(&Pem::new(LABEL, pkcs8), EncodeConfig::new().set_line_ending(LineEnding::LF))
}

/// A key that signs tokens.
pub(crate) struct SigningKey {
    key: EncodingKey,
    public: Box<[u8]>,
}

impl SigningKey {
    /// A key on P-256, for ES256.
    pub(crate) fn p256(pkcs8: &[u8]) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).ok()?;
        Some(Self { key: EncodingKey::from_ec_der(pkcs8), public: pair.public_key().as_ref().into() })
    }

    /// An RSA key of at least 2048 bits, for RS256.
    pub(crate) fn rsa(pkcs8: &[u8]) -> Option<Self> {
        let key = EncodingKey::from_rsa_pem(encode_pem(pkcs8).as_bytes()).ok()?;
        let pair = RsaKeyPair::from_der(key.as_bytes()).ok()?;
        Some(Self { key, public: pair.public_key().as_ref().into() })
    }

    /// The public half: an uncompressed point, or an RSA key in DER.
    pub(crate) fn public(&self) -> &[u8] {
        &self.public
    }

    /// A token with these claims.
    pub(crate) fn sign(&self, header: &Header, claims: &impl Serialize) -> String {
        jsonwebtoken::encode(header, claims, &self.key).expect("a key that was read once can be read again, and signs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_private_key_is_found_among_other_things() {
        let pem = encode_pem(&[7; 100]);
        let other = pem.replace("PRIVATE KEY", "CERTIFICATE");
        for text in [
            pem.clone(),
            pem.replace('\n', "\r\n"),
            pem.replace('\n', " "),
            format!("Bag Attributes\n{other}\n  {pem}{other}"),
        ] {
            assert_eq!(decode_pem(&text).as_deref(), Some(&[7; 100][..]), "{text}");
        }
        for text in [String::new(), other.clone(), pem.repeat(2), pem.replace("END", "EN"), pem.replace('B', "!")] {
            assert_eq!(decode_pem(&text), None, "{text}");
        }
    }
}
