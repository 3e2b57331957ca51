//! Hashes of names and secrets, and random bits. SHA-256, so that nobody outside can make two names meet.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidings_types::Epoch;

use crate::device::Credential;

pub(crate) type Hash16 = [u8; 16];
pub(crate) type Hash32 = [u8; 32];

pub(crate) fn hash32(bytes: &[u8]) -> Hash32 {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(crate) fn hash16(bytes: &[u8]) -> Hash16 {
    hash32(bytes)[..16].try_into().expect("16 of 32 bytes")
}

/// A new credential and the hash that is stored of it.
pub(crate) fn new_credential() -> (Credential, Hash32) {
    let credential = Credential(URL_SAFE_NO_PAD.encode(random::<32>()));
    let hash = hash32(credential.as_str().as_bytes());
    (credential, hash)
}

/// Whether `text` is the credential with this hash; takes the same time for every wrong one.
pub(crate) fn credential_matches(text: &str, hash: &Hash32) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(&hash32(text.as_bytes()), hash).is_ok()
}

pub(crate) fn new_epoch() -> Epoch {
    Epoch::from_random(u64::from_ne_bytes(random()))
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
