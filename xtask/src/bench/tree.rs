//! The working tree and its history: a record can be repeated only if its commit is the whole program, and is found again.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

/// What `cargo xtask bench` writes itself. Every other file may be in the program or the benchmark: pages of `docs` are
/// compiled into the program, too.
const WRITTEN: [&str; 2] = ["docs/benchmarks.md", "docs/benchmarks"];
/// Files that a refusal names.
const NAMED_COUNT_MAX: usize = 5;

/// The commit of the working tree, with all its digits.
///
/// # Errors
/// If a file has changes that are not committed, or there is no commit.
pub(super) fn clean_commit(root: &Path) -> Result<String> {
    let changed = changed(root)?;
    let named: Vec<_> = changed.iter().take(NAMED_COUNT_MAX).map(String::as_str).collect();
    let more = changed.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    ensure!(
        changed.is_empty(),
        "a record could not be repeated, because these files have changes that are not committed: {}{more}; commit them, or \
         use --anyway, which keeps nothing",
        named.join(", ")
    );
    head(root)
}

/// The commit of the working tree, whatever has changed since.
pub(super) fn head(root: &Path) -> Result<String> {
    said(root, &["rev-parse", "HEAD"])
}

/// Files with changes that are not committed, new ones included.
fn changed(root: &Path) -> Result<Vec<String>> {
    let without = WRITTEN.map(|path| format!(":(exclude){path}"));
    let output =
        git(root, &["status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", "."], &without)?;
    ensure!(output.status.success(), "git status: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split('\0').filter_map(|entry| Some(entry.get(3..)?.to_owned())).filter(|path| !path.is_empty()).collect())
}

/// Whether a commit can be found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ancestry {
    Ancestor,
    /// Why not.
    Stranger(&'static str),
    /// Why nobody can tell here.
    Unknown(&'static str),
}

/// Whether `commit`, in hexadecimal digits, is in the history of the working tree.
pub(super) fn ancestry(root: &Path, commit: &str) -> Result<Ancestry> {
    let Ok(shallow) = said(root, &["rev-parse", "--is-shallow-repository"]) else {
        return Ok(Ancestry::Unknown("there is no repository"));
    };
    if said(root, &["rev-parse", "--verify", "--quiet", "HEAD"]).is_err() {
        return Ok(Ancestry::Unknown("the repository has no commit"));
    }
    let output = git(root, &["merge-base", "--is-ancestor", commit, "HEAD"], &[])?;
    Ok(match output.status.code() {
        Some(0) => Ancestry::Ancestor,
        _ if shallow != "false" => Ancestry::Unknown("the clone is shallow"),
        Some(1) => Ancestry::Stranger("is not in the history of this one"),
        _ => Ancestry::Stranger("does not exist"),
    })
}

fn git(root: &Path, words: &[&str], more: &[String]) -> Result<Output> {
    Command::new("git").args(words).args(more).current_dir(root).output().context("git")
}

fn said(root: &Path, words: &[&str]) -> Result<String> {
    let output = git(root, words, &[])?;
    ensure!(output.status.success(), "git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A repository with one commit.
    pub(in super::super) fn repository() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &["init", "--quiet"]);
        commit(folder.path(), "one");
        folder
    }

    /// Commits everything, and a file of this name.
    pub(in super::super) fn commit(root: &Path, name: &str) -> String {
        fs::write(root.join(name), name).unwrap();
        run(root, &["add", "--all"]);
        let author = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"];
        run(root, &[&author[..], &["commit", "--quiet", "--no-verify", "-m", name]].concat());
        head(root).unwrap()
    }

    fn run(root: &Path, words: &[&str]) {
        let output = git(root, words, &[]).unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn changes_are_refused_by_name_and_what_is_written_here_is_none() {
        let folder = repository();
        let root = folder.path();
        assert_eq!(clean_commit(root).unwrap(), head(root).unwrap());
        fs::create_dir_all(root.join("docs/benchmarks")).unwrap();
        fs::write(root.join("docs/benchmarks.md"), "made").unwrap();
        fs::write(root.join("docs/benchmarks/fanout.json"), "made").unwrap();
        assert_eq!(clean_commit(root).unwrap().len(), 40);

        fs::write(root.join("one"), "changed").unwrap();
        fs::write(root.join("docs/new page.md"), "new").unwrap();
        let error = clean_commit(root).unwrap_err().to_string();
        assert!(error.contains("not committed: one, docs/new page.md; commit them"), "{error}");
        for number in 0..9 {
            fs::write(root.join(format!("docs/{number}.md")), "new").unwrap();
        }
        let error = clean_commit(root).unwrap_err().to_string();
        assert!(error.contains(" and 6 more; commit them"), "{error}");
    }

    #[test]
    fn a_commit_must_be_in_the_history() {
        let folder = repository();
        let root = folder.path();
        let first = head(root).unwrap();
        let main = said(root, &["symbolic-ref", "--short", "HEAD"]).unwrap();
        run(root, &["checkout", "--quiet", "-b", "side"]);
        let side = commit(root, "side");
        run(root, &["checkout", "--quiet", &main]);
        let second = commit(root, "two");
        let of = |commit: &str| ancestry(root, commit).unwrap();
        assert_eq!((of(&first), of(&second[..10])), (Ancestry::Ancestor, Ancestry::Ancestor));
        assert_eq!(of(&side), Ancestry::Stranger("is not in the history of this one"));
        assert_eq!(of("0cf6f275ef"), Ancestry::Stranger("does not exist"));
    }

    #[test]
    fn without_the_whole_history_nobody_can_tell() {
        let folder = repository();
        let first = head(folder.path()).unwrap();
        let second = commit(folder.path(), "two");
        let outside = tempfile::tempdir().unwrap();
        let from = format!("file://{}", folder.path().display());
        run(outside.path(), &["clone", "--quiet", "--depth", "1", &from, "shallow"]);
        let shallow = outside.path().join("shallow");
        assert_eq!(ancestry(&shallow, &second).unwrap(), Ancestry::Ancestor);
        assert_eq!(ancestry(&shallow, &first).unwrap(), Ancestry::Unknown("the clone is shallow"));
        assert_eq!(ancestry(outside.path(), &first).unwrap(), Ancestry::Unknown("there is no repository"));
        run(outside.path(), &["init", "--quiet", "empty"]);
        let empty = ancestry(&outside.path().join("empty"), &first).unwrap();
        assert_eq!(empty, Ancestry::Unknown("the repository has no commit"));
    }
}
