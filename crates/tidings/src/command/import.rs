//! `tidings config import`: Centrifugo's configuration as ours, and a list of what has no counterpart.
//!
//! Secrets are never printed: they go into files that only their owner can read, or the list says which files to make. A
//! file that is there is not overwritten.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::Serialize;
use tidings_config::{Entry, FILE_BYTES_MAX, Import, ImportFile, Outcome, import, read_file};
use tidings_server::output::{Kind, line, remark};

use super::CommandError;
use crate::cli::ConfigImportArgs;

/// Where secrets are if no folder is named.
const SECRETS: &str = "secrets";

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    toml: &'a str,
    files: Vec<File<'a>>,
    entries: &'a [Entry],
    /// What `tidings config check` says about it.
    mistakes: Vec<String>,
}

#[derive(Serialize)]
struct File<'a> {
    path: &'a Path,
    key: &'a str,
    is_written: bool,
}

pub(super) fn run(args: &ConfigImportArgs) -> Result<(), CommandError> {
    let text = read(&args.file)?;
    let dir = args.secrets.as_deref().unwrap_or(Path::new(SECRETS));
    let made = import(&text, dir).map_err(|error| CommandError::Failed(format!("{}: {error}", args.file.display())))?;
    if args.secrets.is_some() && !made.files.is_empty() {
        write_all(dir, &made.files)?;
    }
    let mistakes = match tidings_config::parse("tidings.toml", &made.toml, []) {
        Ok(_) => Vec::new(),
        Err(tidings_config::ConfigError::Wrong { problems, .. }) => {
            problems.0.iter().map(|it| it.message.clone()).collect()
        }
        Err(error) => vec![error.to_string()],
    };
    if args.json {
        let is_written = args.secrets.is_some();
        let files = made.files.iter().map(|file| File { path: &file.path, key: &file.key, is_written }).collect();
        let report = Report { toml: &made.toml, files, entries: &made.entries, mistakes };
        return Ok(line(serde_json::to_string_pretty(&report).expect("a report has string keys only"))?);
    }
    line(format!("# Made by `tidings config import` from {}.\n\n{}", args.file.display(), made.toml.trim_end()))?;
    tell(&made, args.secrets.is_some(), &mistakes);
    Ok(())
}

fn read(path: &Path) -> Result<String, CommandError> {
    let failed = |source| CommandError::File { action: "read", path: path.to_owned(), source };
    if path != Path::new("-") {
        return read_file(path).map_err(failed);
    }
    let mut text = String::new();
    std::io::stdin().take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn write_all(dir: &Path, files: &[ImportFile]) -> Result<(), CommandError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| CommandError::File { action: "make", path: dir.to_owned(), source })?;
    for ImportFile { path, contents, .. } in files {
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = written.and_then(|mut file| file.write_all(contents.as_bytes()));
        written.map_err(|source| CommandError::File { action: "write", path: path.clone(), source })?;
    }
    Ok(())
}

/// Lists what is to be done. Keys with one answer stand together.
fn tell(made: &Import, is_written: bool, mistakes: &[String]) {
    let mut answers: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut add = |answer, key| match answers.iter_mut().find(|(known, _)| *known == answer) {
        Some((_, keys)) => keys.push(key),
        None => answers.push((answer, vec![key])),
    };
    let mut counts = [0_usize; 3];
    for Entry { key, outcome } in &made.entries {
        match outcome {
            Outcome::Set { .. } => counts[0] += 1,
            Outcome::Needless { .. } => counts[1] += 1,
            Outcome::Todo { what } => add(what, key),
            Outcome::Unknown => add("is not a key of Centrifugo 5 or 6 that this version knows", key),
        }
    }
    counts[2] = answers.iter().map(|(_, keys)| keys.len()).sum();
    for (answer, keys) in &answers {
        remark(Kind::Warning, format!("{}: {answer}", keys.join(", ")));
    }
    for ImportFile { path, key, .. } in &made.files {
        let (path, note) =
            (path.display(), if is_written { "is written" } else { "is to be made, readable by its owner only" });
        remark(Kind::Note, format!("{path} {note}: it has the value of {key}"));
    }
    if !mistakes.is_empty() {
        remark(Kind::Warning, format!("until this is mended, the server does not start:\n  {}", mistakes.join("\n  ")));
    }
    let [set, needless, todo] = counts;
    let environment = "variables CENTRIFUGO_… of the environment and flags are not read";
    remark(
        Kind::Note,
        format!("{set} keys became settings, {needless} need nothing, {todo} are to be done; {environment}"),
    );
}
