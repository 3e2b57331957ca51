//! What git knows of the repository: the commit, what has changed, whether a commit is part of the history.
//!
//! Nothing here changes the repository. Without git, or in a clone without history, the answer is [`None`]: it cannot be known.

use std::path::Path;
use std::process::{Command, Stdio};

/// The commit that is checked out, as 40 hexadecimal digits.
pub(crate) fn head(root: &Path) -> Option<String> {
    said(root, &["rev-parse", "HEAD"])
}

/// The files below `paths` that differ from the commit that is checked out, untracked ones among them.
pub(crate) fn uncommitted(root: &Path, paths: &[&str]) -> Option<Vec<String>> {
    let told =
        said(root, &[&["status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--"], paths].concat())?;
    Some(told.split('\0').filter_map(|entry| entry.get(3..)).map(str::to_owned).collect())
}

/// The files below `paths` that differ between `commit` and what is in the working tree, untracked ones left out.
pub(crate) fn changed_since(root: &Path, commit: &str, paths: &[&str]) -> Option<Vec<String>> {
    let told = said(root, &[&["diff", "--name-only", commit, "--"], paths].concat())?;
    Some(told.lines().map(str::to_owned).collect())
}

/// Whether `commit` is in the history of the commit that is checked out. `None`: this clone does not know.
pub(crate) fn is_ancestor(root: &Path, commit: &str) -> Option<bool> {
    let is_shallow = said(root, &["rev-parse", "--is-shallow-repository"])? == "true";
    let is_known = said(root, &["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_some();
    if !is_known {
        return (!is_shallow).then_some(false);
    }
    let mut command = git(root, &["merge-base", "--is-ancestor", commit, "HEAD"]);
    match command.status().ok()?.code()? {
        0 => Some(true),
        1 if is_shallow => None,
        1 => Some(false),
        _ => None,
    }
}

/// What git prints; `None` if it is not there, or fails.
fn said(root: &Path, words: &[&str]) -> Option<String> {
    let output = git(root, words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn git(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(words).current_dir(root).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::{changed_since, head, is_ancestor, uncommitted};

    /// Runs git in a repository of a test.
    pub(crate) fn git(folder: &Path, words: &[&str]) {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
        let ended = Command::new("git").args(identity).args(words).current_dir(folder).output().unwrap();
        assert!(ended.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }

    /// Commits a file with this text, and all other changes.
    pub(crate) fn commit(folder: &Path, file: &str, text: &str) -> String {
        fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
        fs::write(folder.join(file), text).unwrap();
        git(folder, &["add", "."]);
        git(folder, &["commit", "-qm", text]);
        head(folder).unwrap()
    }

    /// A repository with one commit.
    pub(crate) fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "-q", "-b", "main"]);
        commit(folder.path(), "one", "one");
        folder
    }

    #[test]
    fn changes_and_ancestors_are_told() {
        let folder = repository();
        let root = folder.path();
        let first = commit(root, "crates/a/lib.rs", "1");
        let second = commit(root, "docs/b.md", "2");
        assert_eq!(changed_since(root, &first, &["crates"]), Some(Vec::new()));
        assert_eq!(changed_since(root, &first, &["crates", "docs"]), Some(vec!["docs/b.md".to_owned()]));
        assert_eq!((is_ancestor(root, &first), is_ancestor(root, &second)), (Some(true), Some(true)));
        assert_eq!(is_ancestor(root, &"0".repeat(40)), Some(false), "a commit that does not exist");

        assert_eq!(uncommitted(root, &["crates"]), Some(Vec::new()));
        fs::write(root.join("crates/a/lib.rs"), "3").unwrap();
        fs::write(root.join("crates/a/new.rs"), "4").unwrap();
        let expected = ["crates/a/lib.rs", "crates/a/new.rs"].map(str::to_owned).to_vec();
        assert_eq!(uncommitted(root, &["crates"]), Some(expected));
        assert_eq!(uncommitted(root, &["docs"]), Some(Vec::new()));
        git(root, &["checkout", "-q", "--orphan", "other"]);
        git(root, &["commit", "-qam", "alone"]);
        assert_eq!(is_ancestor(root, &second), Some(false), "it is on another branch");
    }

    #[test]
    fn without_a_repository_or_history_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let (full, shallow) = (folder.path().join("full"), folder.path().join("shallow"));
        fs::create_dir_all(&full).unwrap();
        assert_eq!((head(&full), uncommitted(&full, &["."]), is_ancestor(&full, "abc")), (None, None, None));
        git(&full, &["init", "-q"]);
        let first = commit(&full, "a", "1");
        let second = commit(&full, "a", "2");
        let url = format!("file://{}", full.display());
        git(folder.path(), &["clone", "-q", "--depth", "1", &url, shallow.to_str().unwrap()]);
        assert_eq!(is_ancestor(&shallow, &second), Some(true));
        assert_eq!(is_ancestor(&shallow, &first), None, "it may be below what was cloned");
    }
}
