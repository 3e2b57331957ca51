//! The API's keys: those configured, else one that is made at the first start.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use tidings_api::{ApiKey, ApiKeys};
use tracing::info;

use crate::config::{Config, Scope};

/// The file in the data folder that holds the key made at the first start.
pub(crate) const ADMIN_KEY_FILE: &str = "api-key";

/// The key that should be in the data folder cannot be made or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot make or read the API key in {path}")]
pub(crate) struct KeyError {
    path: PathBuf,
    source: io::Error,
}

/// All keys that are valid, and the made one if none is configured.
pub(super) fn keys(config: &Config) -> Result<(ApiKeys, Option<String>), KeyError> {
    if !config.api.keys.is_empty() {
        let keys = config.api.keys.iter().map(|key| ApiKey {
            name: key.name.clone(),
            sha256: *key.digest(),
            scopes: key.scopes.iter().map(|&scope| scope_of(scope)).collect(),
        });
        return Ok((ApiKeys::new(keys.collect()), None));
    }
    let path = config.data_dir.join(ADMIN_KEY_FILE);
    let key = read_or_make(&path).map_err(|source| KeyError { path: path.clone(), source })?;
    let sha256 = digest::digest(&digest::SHA256, key.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes");
    let scopes = Scope::ALL.iter().map(|&scope| scope_of(scope)).collect();
    Ok((ApiKeys::new(vec![ApiKey { name: "admin".to_owned(), sha256, scopes }]), Some(key)))
}

fn scope_of(scope: Scope) -> tidings_api::Scope {
    match scope {
        Scope::Publish => tidings_api::Scope::Publish,
        Scope::Read => tidings_api::Scope::Read,
        Scope::Devices => tidings_api::Scope::Devices,
        Scope::Metrics => tidings_api::Scope::Metrics,
    }
}

fn read_or_make(path: &Path) -> io::Result<String> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let key: String = (0..32).map(|_| format!("{:02x}", rand::random::<u8>())).collect();
            file.write_all(key.as_bytes())?;
            info!(path = %path.display(), "Made an API key");
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut key = String::new();
            OpenOptions::new().read(true).open(path)?.take(1024).read_to_string(&mut key)?;
            Ok(key.trim().to_owned())
        }
        Err(error) => Err(error),
    }
}
