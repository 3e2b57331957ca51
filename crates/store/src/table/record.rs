//! A device's record in the heap.
//!
//! ```text
//! kinds    a byte: platform, environment, kind of token, permission to push
//! app, locale, country, time zone     their numbers in `names`, u16; 0xffff is no country, no time zone
//! since                               u64
//! id                                  behind its length, a byte
//! token                               the rest
//! ```
//!
//! Numbers are little-endian. The heap checks the record's checksum.

use tidings_heap::stored_bytes;
use tidings_types::{Device, DeviceNumber, Environment, JournalPosition, Provider, TokenRef};

use super::names::{NOTHING, NameNumbers, Names};
use crate::devices::Recipient;
use crate::devices::rows::device::{PERMISSIONS, PLATFORMS, place};
use crate::packed::Unpack;

/// The kind of token is the position of its provider here plus 1; 0 is no token.
const PROVIDERS: [Provider; 3] = [Provider::Apns, Provider::Fcm, Provider::WebPush];
const SANDBOX: u8 = 4;
const TOKEN_SHIFT: u32 = 3;
const PERMISSION_SHIFT: u32 = 5;
const HEAD_BYTES: usize = 18;
/// A browser's keys.
const KEY_BYTES: usize = 65 + 16;

/// An upper bound of the bytes that the device takes in the heap.
pub(super) fn room_for(device: &Device) -> u64 {
    let token = device.token.as_ref().map_or(0, |token| token.as_bytes().len() + KEY_BYTES);
    stored_bytes(HEAD_BYTES + device.id.as_str().len() + token)
}

/// Writes the record into `out` and replaces its content. `None`: one of its names gets no number.
pub(super) fn encode(device: &Device, names: &mut Names, out: &mut Vec<u8>) -> Option<()> {
    let platform = place(&PLATFORMS, &device.platform);
    let token = device.token.as_ref().map(TokenRef::from);
    let environment = if device.environment == Environment::Sandbox { SANDBOX } else { 0 };
    let permission = place(&PERMISSIONS, &device.push_permission);
    let token_kind = token.map_or(0, |token| place(&PROVIDERS, &token.provider()) + 1);
    let kinds = platform | environment | token_kind << TOKEN_SHIFT | permission << PERMISSION_SHIFT;
    let numbers = names.numbers(device)?;
    let id = device.id.as_str();
    out.clear();
    out.push(kinds);
    numbers.into_iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out.extend_from_slice(&device.since.0.to_le_bytes());
    out.push(u8::try_from(id.len()).ok()?);
    out.extend_from_slice(id.as_bytes());
    if let Some(token) = token {
        token.pack(out);
    }
    Some(())
}

/// The numbers of the names of a record; `None` if it is invalid.
pub(super) fn name_numbers(record: &[u8]) -> Option<NameNumbers> {
    let numbers: &[u8; 8] = record.get(1..)?.first_chunk()?;
    let numbers = numbers.as_chunks().0;
    Some(std::array::from_fn(|at| u16::from_le_bytes(numbers[at])))
}

/// `None`: the record is invalid or has unknown names.
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
    let (app, locale) = (number_of()?, number_of()?);
    let (country, time_zone) = (number_of()?, number_of()?);
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
        time_zone: if time_zone == NOTHING { None } else { Some(names.time_zones.value(time_zone)?) },
        since,
    })
}
