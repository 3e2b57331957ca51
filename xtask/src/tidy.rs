//! Checks the repository's own rules: crate arrows, module circles, the architecture page, terms of memory, decision
//! records, tables of benchmarks, records of the long proof, files made from the tables of metrics and alerts, dependencies,
//! tests that assert nothing, source text.
//!
//! Looks at every file that git tracks or would add, so a forgotten `git add` hides nothing. Does not use the network and
//! changes nothing. Each complaint names the file, the line if there is one, and what would satisfy the rule.

mod assertions;
mod crates;
mod modules;
mod source;
mod text;

use std::path::Path;

use anyhow::Result;

use crate::step::Step;
use crate::{bench, dependencies, ops, record};

/// All complaints about the repository at `root`, in order of path.
///
/// # Errors
/// If git or a file cannot be read.
pub(crate) fn check(root: &Path, steps: &[Step]) -> Result<Vec<String>> {
    let sources = source::sources(root)?;
    let mut complaints = crates::check_arrows(&sources)?;
    complaints.extend(crates::check_architecture(&sources));
    complaints.extend(crates::check_memory(&sources));
    complaints.extend(modules::check_circles(&sources)?);
    complaints.extend(assertions::check_tests(&sources)?);
    complaints.extend(text::check_decisions(&sources));
    complaints.extend(bench::check(root)?);
    complaints.extend(dependencies::check(root)?);
    complaints.extend(ops::check(root)?);
    complaints.extend(record::check(root, steps));
    complaints.extend(sources.iter().flat_map(text::check_source));
    complaints.sort();
    Ok(complaints)
}
