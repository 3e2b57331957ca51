//! The repository's own rules, checked like tests: crate arrows, module circles, architecture page, decision records, tables of
//! benchmarks, source text.
//!
//! Looks at every file git knows or would add (so a forgotten `git add` does not hide anything), reads no network and
//! changes nothing. Each complaint names the file and what would satisfy the rule; a complaint about a line names the line.

mod crates;
mod modules;
mod source;
mod text;

use std::path::Path;

use anyhow::Result;

use crate::bench;

/// All complaints about the repository at `root`, in order of path.
///
/// # Errors
/// If git or a file cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let sources = source::sources(root)?;
    let mut complaints = crates::check_arrows(&sources)?;
    complaints.extend(crates::check_architecture(&sources));
    complaints.extend(modules::check_circles(&sources)?);
    complaints.extend(text::check_decisions(&sources));
    complaints.extend(bench::check(root)?);
    complaints.extend(sources.iter().flat_map(text::check_source));
    complaints.sort();
    Ok(complaints)
}
