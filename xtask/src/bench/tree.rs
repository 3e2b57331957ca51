//! The working tree and its history: a record can be repeated only if its commit is the whole program, and is found again.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::git;

/// What `cargo xtask bench` writes itself. Every other file may be in the program or the benchmark: pages of `docs` are
/// compiled into the program, too.
const NOT_WRITTEN: [&str; 3] = [".", ":(exclude)docs/benchmarks.md", ":(exclude)docs/benchmarks"];
/// Files that a refusal names.
const NAMED_COUNT_MAX: usize = 5;

/// The commit of the working tree, with all its digits.
///
/// # Errors
/// If a file has changes that are not committed, or there is no commit.
pub(super) fn clean_commit(root: &Path) -> Result<String> {
    let changed = git::uncommitted(root, &NOT_WRITTEN).context("git does not say what has changed")?;
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
    git::head(root).context("there is no commit")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::git::tests::repository;

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
}
