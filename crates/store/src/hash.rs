//! Hashes of names and secrets, and random bits. SHA-256, so that nobody can make two names with the same hash.

use aws_lc_rs::digest::{SHA256, digest};
use tidings_types::Epoch;

pub(crate) type Hash16 = [u8; 16];
pub(crate) type Hash32 = [u8; 32];

pub(crate) fn hash32(bytes: &[u8]) -> Hash32 {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(crate) fn hash16(bytes: &[u8]) -> Hash16 {
    hash32(bytes)[..16].try_into().expect("16 of 32 bytes")
}

pub(crate) fn new_epoch() -> Epoch {
    Epoch::from_random(u64::from_ne_bytes(random()))
}

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
