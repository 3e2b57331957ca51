//! The files that the rules apply to: every text file that git tracks or would add.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A file: its path in the repository, and its text.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

/// Reads every text file that is tracked, or neither tracked nor ignored. A file that is not UTF-8 is not text.
pub(super) fn sources(root: &Path) -> Result<Vec<Source>> {
    let words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    let listed = Command::new("git").args(words).current_dir(root).output().context("cannot start git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim());
    let mut sources = Vec::new();
    for path in String::from_utf8(listed.stdout).context("a path is not UTF-8")?.split_terminator('\0') {
        match fs::read(root.join(path)) {
            Ok(bytes) => {
                sources.extend(String::from_utf8(bytes).ok().map(|text| Source { path: path.to_owned(), text }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {} // Deleted, but still tracked.
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        }
    }
    ensure!(!sources.is_empty(), "git ls-files names no file");
    Ok(sources)
}

#[cfg(test)]
pub(super) fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}
