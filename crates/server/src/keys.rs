//! The API's keys: the configured ones, or one key that is made at the first start.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use tidings_api::{ApiKey, ApiKeys, Scope};
use tidings_config::Config;
use tracing::info;

/// The file in the data folder that holds the key made at the first start.
pub(crate) const ADMIN_KEY_FILE: &str = "api-key";

/// Digits of the key that is made.
const KEY_DIGIT_COUNT: usize = 64;

/// The key that should be in the data folder cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file or its folder cannot be used.
    #[error("cannot make or read the API key in {}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds no key.
    #[error("{} does not hold an API key of {KEY_DIGIT_COUNT} hexadecimal digits: remove it, and a new one is made", .0.display())]
    NoKey(PathBuf),
}

/// All valid keys, and the key that was made if none is configured.
pub(super) fn keys(config: &Config) -> Result<(ApiKeys, Option<String>), KeyError> {
    let proxied = crate::console::proxied_keys(config);
    if !config.api.keys.is_empty() {
        let keys = config.api.keys.iter().map(|key| ApiKey {
            name: key.name.clone(),
            sha256: *key.digest(),
            scopes: key.scopes.clone(),
            audience_max: key.audience_max,
        });
        return Ok((ApiKeys::new(keys.chain(proxied).collect()), None));
    }
    let path = config.data_dir.join(ADMIN_KEY_FILE);
    let key = read_or_make(&path).map_err(|source| KeyError::Unusable { path: path.clone(), source })?;
    if key.len() != KEY_DIGIT_COUNT || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(KeyError::NoKey(path));
    }
    let sha256 = digest::digest(&digest::SHA256, key.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes");
    let scopes = Scope::ALL.to_vec();
    let admin = ApiKey { name: "admin".to_owned(), sha256, scopes, audience_max: None };
    Ok((ApiKeys::new([admin].into_iter().chain(proxied).collect()), Some(key)))
}

/// The key in the file, or a new key. A new key is written completely or not at all.
fn read_or_make(path: &Path) -> io::Result<String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Private, because the folder holds device tokens.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    match OpenOptions::new().read(true).open(path) {
        Ok(file) => {
            let mut key = String::new();
            file.take(1024).read_to_string(&mut key)?;
            Ok(key.trim().to_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key: String = (0..KEY_DIGIT_COUNT / 2).map(|_| format!("{:02x}", rand::random::<u8>())).collect();
            let unfinished = path.with_extension("new");
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(key.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&unfinished, path)?;
            info!(path = %path.display(), "Made an API key");
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_key_is_kept_and_what_is_no_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data").join(ADMIN_KEY_FILE);
        let key = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), key);
        let text = format!("data_dir = {:?}", path.parent().unwrap());
        let config = || tidings_config::parse("tidings.toml", &text, []).unwrap().config;
        assert_eq!(keys(&config()).unwrap().1, Some(key));
        std::fs::write(&path, "").unwrap();
        assert!(keys(&config()).unwrap_err().to_string().contains("does not hold an API key of 64 hexadecimal digits"));
    }
}
