//! `tidings web-push keys`: a key pair that browsers subscribe with (VAPID, RFC 8292), and its public half for the page.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use tidings_push::web_push::vapid::{generate_key, public_key_of};

use super::CommandError;
use crate::cli::{WebPushCommand, WebPushKeysArgs};
use tidings_config::{read_file, toml_text};
use tidings_server::output::line;

/// What `--json` prints.
#[derive(Serialize)]
struct Keys<'a> {
    public_key: &'a str,
    private_key_file: &'a Path,
}

pub(crate) async fn run(WebPushCommand::Keys(args): WebPushCommand) -> Result<(), CommandError> {
    let (path, public_key) = match &args.show {
        Some(path) => (path, read(path)?),
        None => (&args.file, make(&args.file)?),
    };
    if args.json {
        let keys = Keys { public_key: &public_key, private_key_file: path };
        return Ok(line(serde_json::to_string(&keys).expect("two plain fields"))?);
    }
    Ok(line(if args.show.is_some() { public_key } else { words(&args, &public_key) })?)
}

fn read(path: &Path) -> Result<String, CommandError> {
    let file_error = |source| CommandError::File { action: "read", path: path.to_owned(), source };
    let key = read_file(path).map_err(file_error)?;
    public_key_of(&key).map_err(|error| CommandError::Failed(format!("{}: {error}", path.display())))
}

/// Returns the public half.
fn make(path: &Path) -> Result<String, CommandError> {
    let key = generate_key();
    let public_key = public_key_of(&key).expect("a key just made can be read");
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        // An incomplete file would make the next try fail.
        file.write_all(key.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| drop(std::fs::remove_file(path)))
    };
    match written() {
        Ok(()) => Ok(public_key),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(CommandError::Failed(format!(
            "{} already exists and is not overwritten: browsers that subscribed with a lost key have to subscribe \
             again; see its public half with --show, or name another file with --file",
            path.display()
        ))),
        Err(source) => Err(CommandError::File { action: "write", path: path.to_owned(), source }),
    }
}

fn words(args: &WebPushKeysArgs, public_key: &str) -> String {
    let file = toml_text(args.file.display());
    format!(
        "Private half: {}\n\n\
         For the page:\n\n  \
         registration.pushManager.subscribe({{\n    \
         userVisibleOnly: true,\n    \
         applicationServerKey: \"{public_key}\",\n  \
         }})\n\n\
         For tidings.toml:\n\n  \
         [web_push.main]\n  \
         vapid_key_file = {file}\n  \
         contact = \"mailto:you@example.com\"   # push services write here if there are problems\n  \
         apps = [\"www.example.com\"]           # as devices name the web app",
        args.file.display()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use tidings_push::web_push::vapid::{VapidKey, VapidTokens};

    use super::*;

    #[test]
    fn the_public_half_verifies_what_the_private_half_signs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vapid.pem");
        let public_key = make(&path).unwrap();
        assert_eq!(read(&path).unwrap(), public_key);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let private_key = std::fs::read_to_string(&path).unwrap();
        let tokens = VapidTokens::new(VapidKey::new(&private_key, "mailto:a@example.com").unwrap());
        let header = tokens.authorization("https://push.example", tidings_telemetry::unix_now());
        let header = header.to_str().unwrap();
        let (token, told) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!(told, public_key);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let [point, signature] = [public_key.as_str(), signature].map(|text| URL_SAFE_NO_PAD.decode(text).unwrap());
        assert_eq!((point.len(), point[0]), (65, 4), "an uncompressed point, as browsers want it");
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed.as_bytes(), &signature).unwrap();
    }

    #[test]
    fn a_key_is_never_overwritten_and_what_is_no_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vapid.pem");
        make(&path).unwrap();
        let key = std::fs::read_to_string(&path).unwrap();
        let error = make(&path).unwrap_err().to_string();
        assert!(error.contains("vapid.pem already exists and is not overwritten"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), key);
        std::fs::write(&path, "no key").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "vapid.pem: the key must be a P-256 private key: a PEM file (PKCS#8), or 32 bytes in \
                                 base64url"
            ),
            "{error}"
        );
    }

    #[test]
    fn what_is_printed_can_be_pasted() {
        let file = "a \"folder\"/vapid.pem".into();
        let text = words(&WebPushKeysArgs { file, show: None, json: false }, "BPublic");
        assert!(text.contains("applicationServerKey: \"BPublic\""), "{text}");
        let (_, toml) = text.split_once("For tidings.toml:").unwrap();
        let table: toml::Table = toml.parse().unwrap();
        assert_eq!(table["web_push"]["main"]["vapid_key_file"].as_str(), Some("a \"folder\"/vapid.pem"));
    }
}
