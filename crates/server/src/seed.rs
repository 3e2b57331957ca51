//! Devices that are registered at the start, for tests and trials: `serve --seed FILE`.
//!
//! ```json
//! {"devices": [{"id": "phone-1", "app": "com.example.app", "locale": "pl", "token": "5f3a", "user": "42",
//!               "credential": "phone-1-credential", "subscriptions": [{"subject": "team:42", "topics": ["goal"]}]}]}
//! ```
//!
//! The devices are registered before the listeners open. Loading the same file again changes nothing. Other
//! subscriptions of these devices stay. Bound: a file of [`SEED_BYTES_MAX`].

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};
use tidings_protocol::CREDENTIAL_BYTES_MAX;
use tidings_store::{GivenCredential, ImportError, NewDevice, NewImport, Store};
use tidings_telemetry::unix_now;
use tidings_types::{
    AppId, Country, DeviceId, DeviceToken, Environment, Locale, Platform, PushPermission, Subject, TimeZone, TopicName,
    UserId,
};

/// The largest file that is read.
pub(crate) const SEED_BYTES_MAX: u64 = 64 << 20;

/// The devices cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is too large.
    #[error("{} is larger than {SEED_BYTES_MAX} bytes", .0.display())]
    TooLarge(PathBuf),
    /// The file is not a valid seed.
    #[error("{} is not a seed", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The store refuses.
    #[error("cannot register the devices of the seed")]
    Refused(#[from] ImportError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    devices: Vec<SeedDevice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeedDevice {
    id: DeviceId,
    app: AppId,
    locale: Locale,
    #[serde(default = "ios")]
    platform: Platform,
    /// A provider has accepted pushes to this token.
    #[serde(default)]
    proven: bool,
    #[serde(default)]
    environment: Environment,
    token: Option<DeviceToken>,
    country: Option<Country>,
    time_zone: Option<TimeZone>,
    #[serde(default)]
    push_permission: PushPermission,
    user: Option<UserId>,
    #[serde(default, deserialize_with = "credential")]
    credential: Option<String>,
    #[serde(default)]
    subscriptions: Vec<SeedSubscription>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeedSubscription {
    subject: Subject,
    topics: Vec<TopicName>,
}

/// Refuses a credential that no connection could send. The error does not show the value.
fn credential<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let credential = Option::<String>::deserialize(deserializer)?;
    let bytes = credential.as_ref().map_or(1, String::len);
    if !(1..=CREDENTIAL_BYTES_MAX).contains(&bytes) {
        let rule = format_args!("credential must be 1 to {CREDENTIAL_BYTES_MAX} bytes, got {bytes}");
        return Err(de::Error::custom(rule));
    }
    Ok(credential)
}

fn ios() -> Platform {
    Platform::Ios
}

impl From<SeedDevice> for NewImport {
    fn from(seed: SeedDevice) -> Self {
        let SeedDevice {
            id,
            app,
            locale,
            platform,
            proven,
            environment,
            token,
            country,
            time_zone,
            push_permission,
            user,
            credential,
            subscriptions,
        } = seed;
        let pairs = |SeedSubscription { subject, topics }: SeedSubscription| {
            topics.into_iter().map(move |topic| (subject.clone(), topic))
        };
        let subscriptions = subscriptions.into_iter().flat_map(pairs).collect();
        let new = NewDevice::new(id, app, platform, locale);
        let device = NewDevice { user, environment, token, country, time_zone, push_permission, ..new };
        Self { subscriptions, credential: credential.map(GivenCredential::Secret), proven, ..device.into() }
    }
}

/// Registers the devices of the file and returns their number.
pub(super) async fn plant(path: &Path, store: &Store) -> Result<usize, SeedError> {
    let devices = read(path)?;
    let count = devices.len();
    store.import_devices(devices.into_iter().map(NewImport::from).collect(), None, unix_now()).await?;
    Ok(count)
}

fn read(path: &Path) -> Result<Vec<SeedDevice>, SeedError> {
    let unreadable = |source| SeedError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(SEED_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > SEED_BYTES_MAX {
        return Err(SeedError::TooLarge(path.to_owned()));
    }
    let seed: Seed =
        serde_json::from_str(&text).map_err(|source| SeedError::Malformed { path: path.to_owned(), source })?;
    Ok(seed.devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<SeedDevice>, SeedError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed.json");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_device_needs_id_app_and_locale_and_has_defaults() {
        let text = r#"{"devices": [{"id": "phone-1", "app": "com.example.app", "locale": "pt_br",
            "subscriptions": [{"subject": "team:1", "topics": ["goal", "red_card"]}]}]}"#;
        let import = NewImport::from(read_text(text).unwrap().remove(0));
        assert_eq!(import.device.locale.as_str(), "pt-BR");
        assert_eq!((import.subscriptions.len(), import.credential), (2, None));
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        let told = |text: &str| match read_text(text) {
            Err(SeedError::Malformed { source, .. }) => source.to_string(),
            other => panic!("{:?}", other.map(|devices| devices.len())),
        };
        assert!(told(r#"{"devices": [{"id": "phone 1"}]}"#).contains("device id must be"));
        assert!(told(r#"{"devices": [], "user": []}"#).contains("unknown field `user`"));
        assert!(told("{").contains("line 1 column 1"));
        for (length, taken) in [(0, false), (1, true), (256, true), (257, false)] {
            let device = r#""id": "phone-1", "app": "com.example.app", "locale": "pl""#;
            let text = format!(r#"{{"devices": [{{{device}, "credential": "{}"}}]}}"#, "s".repeat(length));
            match taken {
                true => assert_eq!(read_text(&text).unwrap()[0].credential.as_ref().unwrap().len(), length),
                false => assert!(told(&text).contains(&format!("credential must be 1 to 256 bytes, got {length}"))),
            }
        }
    }
}
