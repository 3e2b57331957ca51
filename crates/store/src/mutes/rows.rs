//! Rows of mutes in two tables: the mutes, and their ends.
//!
//! ```text
//! mute      number u32, subject or nothing → until u64, 0 for never
//! mute_end  until u64, the mute's key → nothing
//! ```

use tidings_types::{DeviceNumber, Mute, MuteScope, Subject, Timestamp};

use crate::engine::{EngineError, Table};
use crate::rows::number_key;

/// The key of a mute of everything has no subject.
pub(crate) fn mute_key(number: DeviceNumber, scope: &MuteScope) -> Vec<u8> {
    [&number_key(number), scope.subject().map_or("", Subject::as_str).as_bytes()].concat()
}

pub(crate) fn decode_mute_key(key: &[u8]) -> Option<(DeviceNumber, MuteScope)> {
    let (number, subject) = key.split_first_chunk::<4>()?;
    let scope = match std::str::from_utf8(subject).ok()? {
        "" => MuteScope::Everything,
        subject => MuteScope::Subject(Subject::new(subject).ok()?),
    };
    Some((DeviceNumber(u32::from_be_bytes(*number)), scope))
}

pub(crate) fn mute_row(until: Option<Timestamp>) -> [u8; 8] {
    until.unwrap_or_default().0.to_be_bytes()
}

pub(crate) fn decode_mute(key: &[u8], row: &[u8]) -> Result<(DeviceNumber, Mute), EngineError> {
    let damaged = || EngineError::damaged(Table::Mute, key);
    let (number, scope) = decode_mute_key(key).ok_or_else(damaged)?;
    let until = row.try_into().map(u64::from_be_bytes).map_err(|_| damaged())?;
    Ok((number, Mute { scope, until: (until > 0).then_some(Timestamp(until)) }))
}

pub(crate) fn mute_end_key(until: Timestamp, mute_key: &[u8]) -> Vec<u8> {
    [&until.0.to_be_bytes(), mute_key].concat()
}

/// The end of a mute, and the key of the mute.
pub(crate) fn decode_mute_end(key: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (until, mute_key) = key.split_first_chunk::<8>()?;
    Some((Timestamp(u64::from_be_bytes(*until)), mute_key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mute_reads_back() {
        let number = DeviceNumber(0x0102);
        for scope in ["everything", "team:1"].map(|scope| scope.parse::<MuteScope>().unwrap()) {
            let key = mute_key(number, &scope);
            assert!(key.starts_with(&number_key(number)));
            for until in [None, Some(Timestamp(7))] {
                let mute = Mute { scope: scope.clone(), until };
                assert_eq!(decode_mute(&key, &mute_row(until)).unwrap(), (number, mute));
            }
            assert_eq!(decode_mute_end(&mute_end_key(Timestamp(7), &key)), Some((Timestamp(7), &key[..])));
        }
        for key in [&b"\0\0\0"[..], b"\0\0\0\0no subject", b"\0\0\0\0\xff"] {
            assert!(decode_mute(key, &[0; 8]).is_err());
        }
        assert!(decode_mute(b"\0\0\0\0", b"short").is_err());
    }
}
