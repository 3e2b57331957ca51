//! What a client says about itself besides its user: on which device it runs, whether its app is on the screen, and its
//! language.
//!
//! It says so in the data of its connect command,
//! `{"tidings": {"device": …, "credential": …, "visible": …, "ttl": …, "locale": …, "bytes_per_second_max": …}}`, and while connected by the RPC
//! [`RPC_VISIBLE`] with the data `{"visible": true, "ttl": 30}`. In the connect data every key is optional; in the RPC
//! `visible` is required. Unknown keys are skipped, and `null` means absent.
//!
//! Connect data belongs to the application, so nothing in it can end a connection: `tidings` in another form is
//! ignored. A device is only *claimed* here, in one of two ways: the connection token names it
//! ([`DeviceClaim::Signed`], which wins), or the client names it with a credential, which the driver must check. A name
//! without a credential is no claim, because anybody could use it to stop the pushes of another person's phone.
//!
//! Bounds: a credential has at most [`CREDENTIAL_BYTES_MAX`] bytes. An app counts as visible for at most
//! [`VISIBLE_TTL_MAX`]; then it must say so again. So an app that was killed does not stay visible.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidings_types::{DeviceId, Json, Locale};

/// The RPC by which a client says whether its app is on the screen.
pub const RPC_VISIBLE: &str = "tidings.visible";
/// How long an app counts as visible after it said so. A longer `ttl` is cut to this. Also the default.
pub const VISIBLE_TTL_MAX: Duration = Duration::from_secs(60);
/// The most bytes of a device's credential. The server makes no longer ones, so a longer one proves nothing.
pub const CREDENTIAL_BYTES_MAX: usize = 256;

/// What a client said about itself in `connect`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Introduction {
    /// Which device it runs on.
    pub device: Option<DeviceClaim>,
    /// For how long its app counts as on the screen; `None`: hidden or not said.
    pub visible: Option<Duration>,
    /// The language in which it wants the texts of events.
    pub locale: Option<Locale>,
    /// Bytes a second that it wants at most.
    pub bytes_per_second_max: Option<NonZeroU64>,
}

/// A device, and what proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceClaim {
    /// The connection token names it: proven.
    Signed(DeviceId),
    /// The client names it: proven if this is the device's credential, which the driver checks.
    Credential {
        /// Which device.
        device: DeviceId,
        /// The secret that the device got when it was registered.
        credential: DeviceCredential,
    },
}

impl DeviceClaim {
    /// Which device, proven or not.
    pub fn device(&self) -> &DeviceId {
        match self {
            Self::Signed(device) | Self::Credential { device, .. } => device,
        }
    }
}

/// A device's credential as the client sent it, 1 to [`CREDENTIAL_BYTES_MAX`] bytes. Never shows in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceCredential(Box<str>);

impl DeviceCredential {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `None` when the text is empty or too long.
    pub fn new(text: String) -> Option<Self> {
        (1..=CREDENTIAL_BYTES_MAX).contains(&text.len()).then(|| Self(text.into()))
    }
}

// A person who has the credential can stop the device's notifications.
impl fmt::Debug for DeviceCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceCredential")
    }
}

impl Introduction {
    /// Reads the connect `data` of a client whose token names the device `signed`.
    pub(crate) fn read(signed: Option<DeviceId>, data: Option<&Json>) -> Self {
        let said = data.and_then(|data| object::<WireData>(data)?.tidings).and_then(|said| object(&said));
        let said: WireIntroduction = said.unwrap_or_default();
        Self {
            visible: said.visible.and_then(|visible| read_visibility(visible, said.ttl)).flatten(),
            locale: said.locale.as_deref().and_then(|tag| Locale::new(tag).ok()),
            bytes_per_second_max: said.bytes_per_second_max,
            device: signed.map(DeviceClaim::Signed).or_else(|| said.claim()),
        }
    }
}

/// Reads the data of an [`RPC_VISIBLE`]: for how long the app is visible; `Some(None)`: hidden; `None`: the data has
/// another form.
pub(crate) fn read_visible(data: Option<&Json>) -> Option<Option<Duration>> {
    let said: WireVisible = object(data?)?;
    read_visibility(said.visible, said.ttl)
}

fn read_visibility(visible: bool, ttl: Option<u64>) -> Option<Option<Duration>> {
    match ttl {
        Some(0) => None, // To hide, an app sends `visible: false`.
        _ if !visible => Some(None),
        ttl => Some(Some(ttl.map_or(VISIBLE_TTL_MAX, Duration::from_secs).min(VISIBLE_TTL_MAX))),
    }
}

#[derive(Deserialize)]
struct WireData {
    tidings: Option<Json>,
}

#[derive(Default, Deserialize)]
struct WireIntroduction {
    device: Option<String>,
    credential: Option<String>,
    visible: Option<bool>,
    ttl: Option<u64>,
    locale: Option<String>,
    bytes_per_second_max: Option<NonZeroU64>,
}

#[derive(Deserialize)]
struct WireVisible {
    visible: bool,
    ttl: Option<u64>,
}

impl WireIntroduction {
    fn claim(self) -> Option<DeviceClaim> {
        let device = DeviceId::new(&self.device?).ok()?;
        let credential = DeviceCredential::new(self.credential?)?;
        Some(DeviceClaim::Credential { device, credential })
    }
}

/// Reads an object; serde alone would accept an array as an object.
fn object<T: DeserializeOwned>(json: &Json) -> Option<T> {
    json.as_str().trim_ascii_start().starts_with('{').then(|| serde_json::from_str(json.as_str()).ok())?
}

#[cfg(test)]
mod tests;
