//! Finds the program nats-server.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidings_server::command_error::CommandError;

/// The first version that keeps what it has acknowledged over a power failure.
const VERSION_MIN: (u32, u32) = (2, 15);

/// Returns the program that was named, or the one in PATH.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, CommandError> {
    let program = match named {
        Some(named) if named.is_file() => named.to_owned(),
        Some(named) => return Err(needed(&format!("there is no file {}", named.display()))),
        None => in_path().ok_or_else(|| needed("it is in no folder of PATH"))?,
    };
    let asked = Command::new(&program).arg("--version").output();
    let told = asked.map_err(|error| needed(&format!("{} does not run: {error}", program.display())))?;
    let told = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    match version(&told) {
        Some(version) if version >= VERSION_MIN => Ok(program),
        Some(_) => Err(needed(&format!("{} is too old: {told}", program.display()))),
        None => Err(needed(&format!("{} does not tell its version", program.display()))),
    }
}

fn in_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("nats-server")).find(|file| file.is_file())
}

fn needed(trouble: &str) -> CommandError {
    let (major, minor) = VERSION_MIN;
    CommandError::Usage(format!(
        "a cluster needs the program nats-server, {major}.{minor} or later, and {trouble}. Install it \
         (https://nats.io/download), or name the file with --nats-server FILE or TIDINGS_NATS_SERVER"
    ))
}

/// Reads `nats-server: v2.15.2`.
fn version(told: &str) -> Option<(u32, u32)> {
    let (_, version) = told.split_once(": v")?;
    let mut numbers = version.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_and_compared() {
        assert_eq!(version("nats-server: v2.15.2"), Some((2, 15)));
        assert_eq!(version("nats-server: v2.16.0-preview.1"), Some((2, 16)));
        assert!(version("nats-server: v2.9.25").is_some_and(|version| version < VERSION_MIN));
        assert_eq!(version("something else"), None);
    }

    #[test]
    fn what_is_missing_is_said() {
        let error = find(Some(Path::new("/nowhere/nats-server"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/nats-server") && error.contains("--nats-server"), "{error}");
    }
}
