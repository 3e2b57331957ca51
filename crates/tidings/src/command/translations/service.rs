//! `tidings translations pull` and `push`: run the commands of a translation service.
//!
//! The command is the operator's; its output goes to standard error as it comes, so one sees what it does. After a pull each
//! file gets its one form (`normalise`), and is checked against the texts. A file with errors is put back as it was.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use tidings_gettext::{Catalogue, Severity, check, normalise};
use tidings_server::output::{Kind, line, remark};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::desk::{Desk, PoFile, read, severity, write};
use crate::cli::{PullArgs, PushArgs};
use crate::command::CommandError;

pub(super) async fn push(args: &PushArgs) -> Result<(), CommandError> {
    let desk = Desk::open(&args.file)?;
    for (_, path, template) in desk.templates()? {
        write(&path, template.to_po())?;
    }
    run(&desk, &desk.config.translations.service.push, "push").await
}

pub(super) async fn pull(args: &PullArgs) -> Result<(), CommandError> {
    let desk = Desk::open(&args.file)?;
    let mut before = BTreeMap::new();
    for PoFile { path, .. } in desk.files()? {
        before.insert(path.clone(), read(&path)?);
    }
    let pulled = run(&desk, &desk.config.translations.service.pull, "pull").await;
    let mut bad = Vec::new();
    // Also after a failure: the command may have written some of the files.
    for file in desk.files()? {
        match settle(&desk, &file, before.remove(&file.path), args.force)? {
            Settled::Unchanged => {}
            Settled::Taken => line(format!("{}: new translations", file.path.display()))?,
            Settled::Refused(why) => bad.push(format!("{}: {why}", file.path.display())),
        }
    }
    for (path, bytes) in before.into_iter().filter(|_| !args.force) {
        bad.push(format!("{}: the command has deleted it", path.display()));
        write(&path, bytes)?;
    }
    bad.iter().try_for_each(line)?;
    pulled?;
    if bad.is_empty() {
        return Ok(());
    }
    let told = "the files with errors are as they were; --force takes them all the same";
    Err(CommandError::Failed(told.to_owned()))
}

enum Settled {
    Unchanged,
    Taken,
    Refused(String),
}

/// Takes a file that may have come, or puts it back as it was.
fn settle(desk: &Desk, file: &PoFile, before: Option<Vec<u8>>, force: bool) -> Result<Settled, CommandError> {
    let bytes = read(&file.path)?;
    if before.as_ref() == Some(&bytes) {
        return Ok(Settled::Unchanged);
    }
    let old = before.as_deref().and_then(|bytes| Catalogue::parse(bytes).ok());
    let new = Catalogue::parse(&bytes);
    let text = new.as_ref().map(|new| normalise(new, old.as_ref()).to_po());
    let wrong = match &text {
        Ok(text) => errors(desk, file, text.as_bytes()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(wrong) = wrong.filter(|_| !force) {
        match before {
            Some(before) => drop(write(&file.path, before)?),
            None => discard(&file.path)?,
        }
        return Ok(Settled::Refused(wrong));
    }
    let Ok(text) = text else { return Ok(Settled::Taken) }; // Forced, and not readable: it stays as it came.
    write(&file.path, &text)?;
    Ok(if before.as_deref() == Some(text.as_bytes()) { Settled::Unchanged } else { Settled::Taken })
}

fn discard(path: &Path) -> Result<(), CommandError> {
    let failed = |source| CommandError::File { action: "remove", path: path.to_owned(), source };
    std::fs::remove_file(path).map_err(failed)
}

/// The first errors of a file, if it has any.
fn errors(desk: &Desk, file: &PoFile, bytes: &[u8]) -> Option<String> {
    const SHOWN: usize = 3;
    let found = check(&file.locale, bytes, &desk.domains[&file.domain]);
    let wrong: Vec<String> = found
        .iter()
        .filter(|finding| severity(finding) == Severity::Error)
        .map(|finding| format!("{:?}: {}", finding.msgid, finding.message))
        .collect();
    let more = wrong.len().saturating_sub(SHOWN);
    let told = wrong.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    (!wrong.is_empty()).then(|| if more > 0 { format!("{told}; and {more} more") } else { told })
}

/// Runs the command where this program runs, because from there `translations.dir` is found.
async fn run(desk: &Desk, words: &[String], setting: &str) -> Result<(), CommandError> {
    let Some((program, arguments)) = words.split_first() else {
        let told = format!("there is no command: set `translations.service.{setting}` (docs/translations.md)");
        return Err(CommandError::Usage(told));
    };
    let limit = desk.config.translations.service.timeout;
    let (shown, began) = (words.join(" "), Instant::now());
    remark(Kind::Note, format!("running {shown}"));
    let failed = |what: String| CommandError::Failed(format!("{shown}: {what}"));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr())).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| failed(format!("cannot start: {error}")))?;
    match timeout(limit, child.wait()).await {
        Err(_) => Err(failed(format!("stopped after {} s: see `translations.service.timeout`", limit.as_secs()))),
        Ok(ended) => match ended? {
            status if status.success() => {
                remark(Kind::Note, format!("done in {:.1} s", began.elapsed().as_secs_f64()));
                Ok(())
            }
            status => Err(failed(status.to_string())),
        },
    }
}
