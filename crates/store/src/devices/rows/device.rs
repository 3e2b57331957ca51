//! A device's row.
//!
//! ```text
//! version  2 (a row of format 1 is JSON, so its first byte is `{`)
//! kinds    a byte: platform, environment, permission, kind of token, whether there is a credential
//! extras   a byte: whether there are user, country and time zone, whether `seen_at` is in days, whether the text of the
//!          token is packed
//! id, user?, app, locale, country?, time_zone?           each behind its length
//! token_at, since, revision, seen_at                     varints
//! credential?                                            32 bytes
//! token?                                                 the rest: APNs' bytes, FCM's text, or keys and endpoint
//! ```
//!
//! Texts of tokens are packed (`address.rs`). In rows of format 2 they are not, as `extras` says. A row has about 90 bytes
//! for an iPhone and 170 for an Android before the table's compression.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tidings_types::{
    AppId, Country, Device, DeviceId, DeviceToken, Environment, JournalPosition, Locale, Platform, PushPermission,
    TimeZone, Timestamp, UserId,
};

use super::address::{put_address, take_address};
use crate::engine::{EngineError, Table};
use crate::hash::Hash32;
use crate::packed::{Unpack, put_bytes, put_varint};

/// The content of a device's row.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct DeviceRow {
    pub(crate) device: Device,
    /// The hash of the credential. Imported devices may have none.
    #[serde(default)]
    pub(crate) credential: Option<Hash32>,
}

const VERSION: u8 = 2;
/// The first byte of a row of format 1.
const JSON: u8 = b'{';

/// `kinds`, from the lowest bit.
const PLATFORM_BITS: u32 = 2;
const ENVIRONMENT_BITS: u32 = 1;
const PERMISSION_BITS: u32 = 2;
const TOKEN_BITS: u32 = 2;

/// `extras`.
const USER: u8 = 1;
const COUNTRY: u8 = 2;
const TIME_ZONE: u8 = 4;
const SEEN_IN_DAYS: u8 = 8;
const PACKED_TEXT: u8 = 16;
const EXTRAS: u8 = USER | COUNTRY | TIME_ZONE | SEEN_IN_DAYS | PACKED_TEXT;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// The position of a value here is its number in rows and records. It must never change.
pub(crate) const PLATFORMS: [Platform; 3] = [Platform::Ios, Platform::Android, Platform::Web];
const ENVIRONMENTS: [Environment; 2] = [Environment::Production, Environment::Sandbox];
pub(crate) const PERMISSIONS: [PushPermission; 4] =
    [PushPermission::Unknown, PushPermission::Granted, PushPermission::Provisional, PushPermission::Denied];

const P256DH_BYTES: usize = 65;
const AUTH_BYTES: usize = 16;

/// The number of a value in rows.
pub(crate) fn place<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|other| other == value).expect("every value has a number in rows") as u8
}

pub(crate) fn encode_device(row: &DeviceRow) -> Vec<u8> {
    let DeviceRow { device, credential } = row;
    let (token_kind, token_text) = match &device.token {
        None => (0, None),
        Some(DeviceToken::Apns(_)) => (1, None),
        Some(DeviceToken::Fcm(text)) => (2, Some(&**text)),
        Some(DeviceToken::WebPush(token)) => (3, Some(token.endpoint())),
    };
    let fields = [
        (place(&PLATFORMS, &device.platform), PLATFORM_BITS),
        (place(&ENVIRONMENTS, &device.environment), ENVIRONMENT_BITS),
        (place(&PERMISSIONS, &device.push_permission), PERMISSION_BITS),
        (token_kind, TOKEN_BITS),
        (u8::from(credential.is_some()), 1),
    ];
    let kinds = fields.into_iter().rev().fold(0, |kinds, (value, bits)| kinds << bits | value);
    let is_in_days = device.seen_at.0.is_multiple_of(DAY_MS);
    let mut extras = 0;
    for (is_there, bit) in [
        (device.user.is_some(), USER),
        (device.country.is_some(), COUNTRY),
        (device.time_zone.is_some(), TIME_ZONE),
        (is_in_days, SEEN_IN_DAYS),
        (token_text.is_some(), PACKED_TEXT),
    ] {
        extras |= if is_there { bit } else { 0 };
    }
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(&[VERSION, kinds, extras]);
    let texts = [
        Some(device.id.as_str()),
        device.user.as_ref().map(UserId::as_str),
        Some(device.app.as_str()),
        Some(device.locale.as_str()),
        device.country.as_ref().map(Country::as_str),
        device.time_zone.as_ref().map(TimeZone::as_str),
    ];
    texts.into_iter().flatten().for_each(|text| put_bytes(&mut out, text.as_bytes()));
    let seen_at = if is_in_days { device.seen_at.0 / DAY_MS } else { device.seen_at.0 };
    for number in [device.token_at.0, device.since.0, device.revision, seen_at] {
        put_varint(&mut out, number);
    }
    out.extend(credential.iter().flatten());
    match &device.token {
        Some(DeviceToken::Apns(bytes)) => out.extend_from_slice(bytes),
        Some(DeviceToken::WebPush(token)) => {
            out.extend_from_slice(token.p256dh());
            out.extend_from_slice(token.auth());
        }
        Some(DeviceToken::Fcm(_)) | None => {}
    }
    if let Some(text) = token_text {
        put_address(&mut out, text);
    }
    out
}

/// Reads a row of any format; `key` is only used in the error.
pub(crate) fn decode_device(key: &[u8], row: &[u8]) -> Result<DeviceRow, EngineError> {
    let decoded = match row.first() {
        Some(&VERSION) => decode(&row[1..]),
        Some(&JSON) => serde_json::from_slice(row).ok(),
        _ => None,
    };
    decoded.ok_or_else(|| EngineError::damaged(Table::Device, key))
}

fn decode(row: &[u8]) -> Option<DeviceRow> {
    let mut row = Unpack(row);
    let (mut kinds, extras) = (row.byte()?, row.byte()?);
    let mut kind = |bits: u32| {
        let value = kinds & ((1 << bits) - 1);
        kinds >>= bits;
        usize::from(value)
    };
    let platform = *PLATFORMS.get(kind(PLATFORM_BITS))?;
    let environment = *ENVIRONMENTS.get(kind(ENVIRONMENT_BITS))?;
    let push_permission = *PERMISSIONS.get(kind(PERMISSION_BITS))?;
    let token_kind = kind(TOKEN_BITS);
    let has_credential = kind(1) == 1;
    if extras & !EXTRAS != 0 {
        return None;
    }
    let has = |bit| extras & bit != 0;
    let id = DeviceId::new(row.text()?).ok()?;
    let user = if has(USER) { Some(UserId::new(row.text()?).ok()?) } else { None };
    let app = AppId::new(row.text()?).ok()?;
    let locale = Locale::new(row.text()?).ok()?;
    let country = if has(COUNTRY) { Some(Country::new(row.text()?).ok()?) } else { None };
    let time_zone = if has(TIME_ZONE) { Some(TimeZone::new(row.text()?).ok()?) } else { None };
    let (token_at, since) = (Timestamp(row.varint()?), JournalPosition(row.varint()?));
    let (revision, seen_at) = (row.varint()?, row.varint()?);
    let seen_at = if has(SEEN_IN_DAYS) { seen_at.checked_mul(DAY_MS)? } else { seen_at };
    let credential = if has_credential { Some(row.array()?) } else { None };
    let token = decode_token(token_kind, has(PACKED_TEXT), row)?;
    let device = Device {
        id,
        user,
        app,
        platform,
        environment,
        token,
        locale,
        country,
        time_zone,
        push_permission,
        token_at,
        since,
        revision,
        seen_at: Timestamp(seen_at),
    };
    Some(DeviceRow { device, credential })
}

/// Reads the token at the end of a row; the inner `None` is no token.
fn decode_token(kind: usize, is_packed: bool, mut rest: Unpack<'_>) -> Option<Option<DeviceToken>> {
    let text = |mut rest: Unpack<'_>| match is_packed {
        true => take_address(&mut rest),
        false => std::str::from_utf8(rest.0).ok().map(str::to_owned),
    };
    let token = match kind {
        _ if is_packed && kind < 2 => return None,
        0 => return rest.is_empty().then_some(None),
        1 => (!rest.is_empty()).then(|| DeviceToken::from(rest.0))?,
        2 => DeviceToken::fcm(&text(rest)?).ok()?,
        _ => {
            let [p256dh, auth] =
                [rest.take(P256DH_BYTES)?, rest.take(AUTH_BYTES)?].map(|it| URL_SAFE_NO_PAD.encode(it));
            DeviceToken::web_push(&text(rest)?, &p256dh, &auth).ok()?
        }
    };
    Some(Some(token))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows as version 1 wrote them.
    const FORMAT_1: [&str; 3] = [
        r#"{"device":{"id":"phone-1","user":"ann","app":"com.example","platform":"ios","environment":"sandbox","token":"00ff10","locale":"pt-BR","country":"BR","token_at":1795000000000,"since":7},"credential":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,255]}"#,
        r#"{"device":{"id":"tablet","app":"a","platform":"android","environment":"production","token":{"fcm":"cX:APA91b_-"},"locale":"sv","token_at":0,"since":1}}"#,
        r#"{"device":{"id":"old","app":"a","platform":"web","environment":"production","locale":"en","token_at":5,"since":0}}"#,
    ];

    fn device() -> Device {
        serde_json::from_str::<DeviceRow>(FORMAT_1[0]).unwrap().device
    }

    fn row() -> impl Strategy<Value = DeviceRow> {
        let token = prop_oneof![
            Just(None),
            prop::collection::vec(any::<u8>(), 1..200).prop_map(|bytes| Some(DeviceToken::from(&bytes[..]))),
            "[!-~]{1,300}|[!-~]{0,9}[A-Za-z0-9_:-]{1,300}|[A-Za-z0-9_-]{1,22}:[A-Za-z0-9_-]{100,4000}"
                .prop_map(|text| Some(DeviceToken::fcm(&text).unwrap())),
            ("[!-~]{1,200}|[a-z/]{1,20}/[A-Za-z0-9_:-]{1,200}", any::<[u8; 64]>(), any::<[u8; 16]>()).prop_map(
                |(path, point, auth)| {
                    let [p256dh, auth] =
                        [&[&[4], &point[..]].concat()[..], &auth].map(|key| URL_SAFE_NO_PAD.encode(key));
                    DeviceToken::web_push(&format!("https://p{path}"), &p256dh, &auth).ok()
                }
            ),
        ];
        let names = ("[!-~]{1,128}", prop::option::of("[!-~]{1,128}"), "[!-~]{1,128}", prop::option::of("[A-Z]{2}"));
        let kinds = (0..3_usize, 0..2_usize, 0..4_usize, prop::option::of("[A-Z][a-z]{1,9}/[A-Z][a-z]{1,9}"));
        let seen_at = prop_oneof![(0..100_000_u64).prop_map(|day| day * DAY_MS), any::<u64>()];
        let times = (any::<u64>(), any::<u64>(), any::<u64>(), seen_at);
        (names, kinds, times, token, any::<Option<Hash32>>()).prop_map(|(names, kinds, times, token, credential)| {
            let device = Device {
                id: DeviceId::new(&names.0).unwrap(),
                user: names.1.map(|user| UserId::new(&user).unwrap()),
                app: AppId::new(&names.2).unwrap(),
                country: names.3.map(|country| Country::new(&country).unwrap()),
                platform: PLATFORMS[kinds.0],
                environment: ENVIRONMENTS[kinds.1],
                push_permission: PERMISSIONS[kinds.2],
                time_zone: kinds.3.map(|zone| TimeZone::new(&zone).unwrap()),
                token,
                token_at: Timestamp(times.0),
                since: JournalPosition(times.1),
                revision: times.2,
                seen_at: Timestamp(times.3),
                ..device()
            };
            DeviceRow { device, credential }
        })
    }

    proptest! {
        #[test]
        fn a_row_reads_back(row in row()) {
            prop_assert_eq!(decode_device(b"key", &encode_device(&row)).unwrap(), row);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            row in row(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            length in prop::option::of(any::<prop::sample::Index>()),
        ) {
            for mut bytes in [encode_device(&row), FORMAT_1[0].into()] {
                for (place, byte) in &changes {
                    let place = place.index(bytes.len());
                    bytes[place] = *byte;
                }
                if let Some(length) = &length {
                    bytes.truncate(length.index(bytes.len()));
                }
                // A row that can be read can be written again, and reads back.
                if let Ok(read) = decode_device(b"key", &bytes) {
                    prop_assert_eq!(decode_device(b"key", &encode_device(&read)).unwrap(), read);
                }
            }
        }
    }

    #[test]
    fn rows_of_format_1_are_read() {
        let rows = FORMAT_1.map(|row| decode_device(b"key", row.as_bytes()).unwrap());
        let Device { id, user, app, platform, environment, locale, country, token_at, since, .. } = &rows[0].device;
        let names = [id.as_str(), user.as_ref().unwrap().as_str(), app.as_str(), locale.as_str()];
        assert_eq!(names, ["phone-1", "ann", "com.example", "pt-BR"]);
        assert_eq!((*platform, *environment), (Platform::Ios, Environment::Sandbox));
        assert_eq!((country.as_ref().unwrap().as_str(), token_at.0, since.0), ("BR", 1_795_000_000_000, 7));
        assert_eq!(rows[0].credential.unwrap()[29..], [30, 31, 255]);
        let tokens = rows.each_ref().map(|row| row.device.token.as_ref().map(|token| token.to_text().into_owned()));
        assert_eq!(tokens.each_ref().map(Option::as_deref), [Some("00ff10"), Some("cX:APA91b_-"), None]);
        for row in &rows {
            assert_eq!(decode_device(b"key", &encode_device(row)).unwrap(), *row, "also in the current format");
        }
    }

    /// The rows of an Android and of a browser, with these bytes as the text of the token.
    fn rows_with_text([fcm, endpoint]: [&[u8]; 2], extras: u8) -> [Vec<u8>; 2] {
        let (point, auth) = ([&[4][..], &[7; 64]].concat(), [8; 16]);
        let head = |kinds, fields: &[u8]| [&[VERSION, kinds, SEEN_IN_DAYS | extras], fields].concat();
        let (phone, browser) =
            (head(0x41, b"\x03tab\x01a\x02sv\0\x01\0\0"), head(0x62, b"\x02pc\x01a\x02en\x05\0\0\0"));
        [[&phone, fcm].concat(), [&browser, &point[..], &auth, endpoint].concat()]
    }

    /// These bytes are on disks. A change of their meaning would be a new format.
    #[test]
    fn texts_of_tokens_are_packed_and_those_of_format_2_can_be_read() {
        let older = rows_with_text([b"cX:APA91b_-", b"https://x/send/AQ:-_"], 0);
        let packed =
            rows_with_text([b"\0\x06qp\x0f\x03\xdd[\xff\xe0", b"\x0fhttps://x/send/\x06\x01\x0f\xbf"], PACKED_TEXT);
        for (older, packed) in older.iter().zip(packed) {
            let row = decode_device(b"key", older).unwrap();
            assert_eq!(decode_device(b"key", &packed).unwrap(), row);
            assert_eq!(encode_device(&row).escape_ascii().to_string(), packed.escape_ascii().to_string());
        }
        let tokens = older.map(|row| decode_device(b"key", &row).unwrap().device.token.unwrap());
        assert_eq!(tokens.each_ref().map(|token| token.to_text()), ["cX:APA91b_-", "https://x/send/AQ:-_"]);
    }

    /// These bytes are on disks. A change of their meaning would be a new format.
    #[test]
    fn format_2_stays() {
        let mut row: DeviceRow = serde_json::from_str(FORMAT_1[0]).unwrap();
        row.device.push_permission = PushPermission::Provisional;
        row.device.time_zone = TimeZone::new("UTC").ok();
        (row.device.revision, row.device.seen_at) = (300, Timestamp(3 * DAY_MS));
        let head = b"\x02\xb4\x0f\x07phone-1\x03ann\x0bcom.example\x05pt-BR\x02BR\x03UTC";
        let tail = b"\x80\xbc\xd9\xf2\x9e\x34\x07\xac\x02\x03";
        let bytes = [&head[..], tail, &row.credential.unwrap(), b"\x00\xff\x10"].concat();
        assert_eq!(encode_device(&row).escape_ascii().to_string(), bytes.escape_ascii().to_string());
        assert_eq!(decode_device(b"key", &bytes).unwrap(), row);
    }

    #[test]
    fn every_kind_has_a_number() {
        assert!(Platform::ALL.iter().all(|platform| PLATFORMS.contains(platform)));
        assert!(PushPermission::ALL.iter().all(|permission| PERMISSIONS.contains(permission)));
    }

    #[test]
    fn invalid_bytes_are_refused() {
        let row = encode_device(&DeviceRow { device: device(), credential: None });
        for bytes in [&b""[..], b"not what we wrote", b"{", &[VERSION], &[3, 0, 0], &row[..row.len() / 2]] {
            assert!(decode_device(b"key", bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
