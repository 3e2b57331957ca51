//! A device's record in the heap.
//!
//! ```text
//! kinds    a byte: platform, environment, kind of token, permission to push
//! app, locale, country                numbers of `names`, u16; 0xffff is no country
//! since                               u64
//! id                                  behind its length, a byte
//! token                               the rest
//! ```
//!
//! Numbers are little-endian. The heap's checksum has proven that a record is what was written.

use tidings_heap::stored_bytes;
use tidings_types::{Device, DeviceNumber, Environment, JournalPosition, Platform, Provider, PushPermission, TokenRef};

use super::names::{NOTHING, Names};
use crate::devices::Recipient;
use crate::packed::Unpack;

const PLATFORMS: [Platform; 3] = [Platform::Ios, Platform::Android, Platform::Web];
/// 0 is no token.
const PROVIDERS: [Provider; 3] = [Provider::Apns, Provider::Fcm, Provider::WebPush];
const SANDBOX: u8 = 4;
const TOKEN_SHIFT: u32 = 3;
const PERMISSIONS: [PushPermission; 4] =
    [PushPermission::Unknown, PushPermission::Granted, PushPermission::Provisional, PushPermission::Denied];
const PERMISSION_SHIFT: u32 = 5;
const HEAD_BYTES: usize = 16;
/// A browser's keys.
const KEY_BYTES: usize = 65 + 16;

/// At least what the heap takes for the device.
pub(super) fn room_for(device: &Device) -> u64 {
    let token = device.token.as_ref().map_or(0, |token| token.as_bytes().len() + KEY_BYTES);
    stored_bytes(HEAD_BYTES + device.id.as_str().len() + token)
}

/// Writes the record into `out`, in place of what is there. `None`: there is no number for one of its names.
pub(super) fn encode(device: &Device, names: &mut Names, out: &mut Vec<u8>) -> Option<()> {
    let platform = PLATFORMS.iter().position(|platform| *platform == device.platform)?;
    let token = device.token.as_ref().map(TokenRef::from);
    let provider = token.and_then(|token| PROVIDERS.iter().position(|provider| *provider == token.provider()));
    let environment = if device.environment == Environment::Sandbox { SANDBOX } else { 0 };
    let permission = PERMISSIONS.iter().position(|permission| *permission == device.push_permission)? as u8;
    let token_kind = provider.map_or(0, |place| place as u8 + 1);
    let kinds = platform as u8 | environment | token_kind << TOKEN_SHIFT | permission << PERMISSION_SHIFT;
    let (app, locale) = (names.apps.number(&device.app)?, names.locales.number(&device.locale)?);
    let country = match &device.country {
        Some(country) => names.countries.number(country)?,
        None => NOTHING,
    };
    let id = device.id.as_str();
    out.clear();
    out.push(kinds);
    [app, locale, country].into_iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out.extend_from_slice(&device.since.0.to_le_bytes());
    out.push(u8::try_from(id.len()).ok()?);
    out.extend_from_slice(id.as_bytes());
    if let Some(token) = token {
        token.pack(out);
    }
    Some(())
}

/// `None`: it is no record of ours, or of names that are not known.
#[inline]
pub(super) fn decode<'a>(
    number: DeviceNumber,
    record: &'a [u8],
    names: &'a Names,
    proven: bool,
) -> Option<Recipient<'a>> {
    let mut rest = Unpack(record);
    let kinds = rest.byte()?;
    let mut number_of = || rest.array().map(u16::from_le_bytes);
    let (app, locale, country) = (number_of()?, number_of()?, number_of()?);
    let since = JournalPosition(u64::from_le_bytes(rest.array()?));
    let id_bytes = rest.byte()?;
    let id = std::str::from_utf8(rest.take(usize::from(id_bytes))?).ok()?;
    let token = match usize::from(kinds >> TOKEN_SHIFT & 3) {
        0 => None,
        kind => Some(TokenRef::unpack(*PROVIDERS.get(kind - 1)?, rest.0)?),
    };
    Some(Recipient {
        number,
        id,
        token,
        proven,
        app: names.apps.value(app)?,
        platform: *PLATFORMS.get(usize::from(kinds & 3))?,
        environment: if kinds & SANDBOX == 0 { Environment::Production } else { Environment::Sandbox },
        locale: names.locales.value(locale)?,
        push_permission: *PERMISSIONS.get(usize::from(kinds >> PERMISSION_SHIFT))?,
        country: if country == NOTHING { None } else { Some(names.countries.value(country)?) },
        since,
    })
}
