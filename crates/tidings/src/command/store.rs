//! `tidings store`: backup, restore and verify.
//!
//! A backup of a running server comes over its API, since the server holds the folder. A backup of a stopped server is
//! read from the folder. In both cases the checksums are compared while the file is written. The file gets its name
//! when it is complete and synced, so a file with that name is a complete backup.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;
use tidings_store::backup::{
    self, Backup, BackupError, BackupSummary, Checker, Findings, Progress, Report, Restored, RestoredPushes,
};
use tidings_telemetry::unix_now;

use super::CommandError;
use super::client::{ApiClient, table};
use crate::cli::{StoreBackupArgs, StoreCommand, StoreRestoreArgs, StoreVerifyArgs};
use tidings_client::HttpError;
use tidings_server::data_folder;
use tidings_server::output::{Kind, line, remark};
use tidings_telemetry::chain;

/// The content type of a backup.
const BYTES: &str = "application/octet-stream";

pub(crate) async fn run(command: StoreCommand) -> Result<(), CommandError> {
    match command {
        StoreCommand::Backup(args) => back_up(&args).await,
        StoreCommand::Restore(args) => restore(&args),
        StoreCommand::Verify(args) => verify(&args),
    }
}

pub(super) fn store_in(data: &Path) -> PathBuf {
    data.join("store")
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A backup error with advice, where the error itself has none.
pub(super) fn failed(what: &Path, error: &BackupError) -> CommandError {
    let hint = match error {
        BackupError::Folder(tidings_store::OpenError::Locked { .. }) => {
            "; stop the server, or take its backup over the API: tidings store backup --out FILE"
        }
        BackupError::NoStore => "; DIR is what data_dir of the configuration names",
        _ => "",
    };
    CommandError::Failed(format!("{}: {}{hint}", what.display(), chain(error)))
}

async fn back_up(args: &StoreBackupArgs) -> Result<(), CommandError> {
    let mut out = Out::new(&args.out, args.api.json)?;
    match &args.data {
        Some(data) => {
            let store = store_in(data);
            let read = |error| failed(&store, &error);
            let mut backup = Backup::of_folder(&store).map_err(read)?;
            while let Some(block) = backup.next_block().map_err(read)? {
                out.push(&block)?;
            }
        }
        None => {
            let mut broken = None;
            let client = ApiClient::new(&args.api)?;
            let taken = client.stream("/v1/store/backup", BYTES, |piece| {
                broken = out.push(piece).err();
                broken.is_none()
            });
            let taken = taken.await.map_err(without_server);
            broken.map_or(taken, Err)?;
        }
    }
    out.finish(args)
}

fn without_server(error: CommandError) -> CommandError {
    match &error {
        CommandError::Http(HttpError::Connect { .. }) => {
            CommandError::Failed(format!("{}; if it is stopped, name its data folder with --data", chain(&error)))
        }
        _ => error,
    }
}

/// The destination of a backup, which checks the bytes that are written.
struct Out {
    target: Target,
    checker: Checker,
    bar: ProgressBar,
    name: PathBuf,
}

enum Target {
    /// Has no name yet; deleted if it gets none.
    File(NamedTempFile),
    Stdout(io::Stdout),
}

impl Out {
    fn new(path: &Path, is_json: bool) -> Result<Self, CommandError> {
        let target = if is_dash(path) {
            if is_json {
                return Err(CommandError::Usage("--json and --out - cannot both use standard output".to_owned()));
            }
            Target::Stdout(io::stdout())
        } else {
            let write = |source| CommandError::File { action: "write", path: path.to_owned(), source };
            if fs::symlink_metadata(path).is_ok() {
                return Err(there_already(path));
            }
            let file = tempfile::Builder::new().prefix(".tidings-backup-").tempfile_in(folder_of(path));
            Target::File(file.map_err(write)?)
        };
        let (checker, bar) = (Checker::default(), bar(None, is_json));
        Ok(Self { target, checker, bar, name: path.to_owned() })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        self.checker.push(bytes).map_err(|error| failed(&self.name, &error))?;
        let written = match &mut self.target {
            Target::File(file) => file.write_all(bytes),
            Target::Stdout(stdout) => return Ok(stdout.write_all(bytes)?),
        };
        written.map_err(|source| self.unwritten(source))?;
        show(&self.bar, self.checker.progress());
        Ok(())
    }

    fn unwritten(&self, source: io::Error) -> CommandError {
        CommandError::File { action: "write", path: self.name.clone(), source }
    }

    fn finish(mut self, args: &StoreBackupArgs) -> Result<(), CommandError> {
        let checker = std::mem::take(&mut self.checker);
        let summary = checker.finish().map_err(|error| failed(&self.name, &error))?;
        self.bar.finish_and_clear();
        match self.target {
            Target::Stdout(mut stdout) => {
                stdout.flush()?;
                remark(Kind::Note, told(&summary, "backed up"));
                Ok(())
            }
            Target::File(file) => {
                let path = self.name;
                keep(file, &path)?;
                if args.api.json {
                    return Ok(line(spelt(&summary))?);
                }
                Ok(line(format!("{} into {}", told(&summary, "backed up"), path.display()))?)
            }
        }
    }
}

/// Syncs the file and gives it its name; never replaces another file.
fn keep(file: NamedTempFile, path: &Path) -> Result<(), CommandError> {
    let write = |source| CommandError::File { action: "write", path: path.to_owned(), source };
    file.as_file().sync_all().map_err(write)?;
    file.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => there_already(path),
        _ => write(error.error),
    })?;
    File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(write)
}

fn there_already(path: &Path) -> CommandError {
    CommandError::Failed(format!("{} already exists and is not overwritten; name another file", path.display()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn restore(args: &StoreRestoreArgs) -> Result<(), CommandError> {
    let (input, bytes) = open(&args.from)?;
    let bar = bar(bytes, args.json);
    data_folder::secure(&args.data).map_err(|error| CommandError::Failed(chain(&error)))?;
    let store = store_in(&args.data);
    let pushes = if args.resume { RestoredPushes::GoOn } else { RestoredPushes::Paused(unix_now()) };
    let restored = backup::restore(input, &store, pushes, |progress| show(&bar, progress));
    bar.finish_and_clear();
    let Restored { summary, is_paused } =
        restored.map_err(|error| failed(blamed(&error, &args.from, &store), &error))?;
    if args.json {
        let mut all = object(&summary);
        all.insert("paused".to_owned(), is_paused.into());
        return Ok(line(Value::Object(all).to_string())?);
    }
    line(format!("{} into {}", told(&summary, "restored"), store.display()))?;
    if is_paused {
        line("All pushes are paused, because some that were due at the backup may have been sent after it.")?;
        line(
            "Start the server, cancel what must not be sent (tidings jobs list, tidings jobs cancel ID), then release",
        )?;
        line("the others: tidings jobs resume everything")?;
    }
    Ok(())
}

/// The file or the folder that the error is about.
fn blamed<'p>(error: &BackupError, file: &'p Path, folder: &'p Path) -> &'p Path {
    match error {
        BackupError::HasStore { .. } | BackupError::Folder(_) | BackupError::Engine(_) => folder,
        _ => file,
    }
}

fn verify(args: &StoreVerifyArgs) -> Result<(), CommandError> {
    let (what, verified) = match (&args.data, &args.file) {
        (Some(data), _) => {
            let (store, bar) = (store_in(data), bar(None, args.json));
            let verified = backup::verify_folder(&store, |progress| show(&bar, progress));
            bar.finish_and_clear();
            (store, verified)
        }
        (None, Some(file)) => {
            let (input, bytes) = open(file)?;
            let bar = bar(bytes, args.json);
            let verified = backup::verify(input, |progress| show(&bar, progress));
            bar.finish_and_clear();
            (file.clone(), verified)
        }
        (None, None) => return Err(CommandError::Usage("name a backup, or a data folder with --data".to_owned())),
    };
    let report = verified.map_err(|error| failed(&what, &error))?;
    line(if args.json { spelt_report(&report) } else { told_report(&report) })?;
    match report.findings.count {
        0 => Ok(()),
        1 => Err(CommandError::Failed(format!("{}: 1 finding", what.display()))),
        count => Err(CommandError::Failed(format!("{}: {count} findings", what.display()))),
    }
}

/// A backup to read, and its size where that is known.
fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), CommandError> {
    if is_dash(path) {
        return Ok((Box::new(io::stdin()), None));
    }
    let read = |source| CommandError::File { action: "read", path: path.to_owned(), source };
    let file = File::open(path).map_err(read)?;
    let bytes = file.metadata().map_err(read)?.len();
    Ok((Box::new(file), Some(bytes)))
}

/// A progress bar on a terminal, with a length if it is known.
fn bar(bytes: Option<u64>, is_json: bool) -> ProgressBar {
    let bar =
        if is_json { ProgressBar::with_draw_target(bytes, ProgressDrawTarget::hidden()) } else { ProgressBar::new(0) };
    let template = match bytes {
        Some(bytes) => {
            bar.set_length(bytes);
            "{bar:20.cyan} {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta} left  {msg}"
        }
        None => "{bytes}  {binary_bytes_per_sec}  {msg}",
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the template is ours"))
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_position(progress.bytes);
    bar.set_message(format!("{} rows", progress.rows));
}

fn told(summary: &BackupSummary, done: &str) -> String {
    let BackupSummary { commit, bytes, .. } = summary;
    format!("{done} everything up to commit {commit}: {} rows, {bytes} bytes", summary.rows())
}

fn told_report(Report { summary, findings }: &Report) -> String {
    let Findings { kept, count } = findings;
    let BackupSummary { format, epoch, commit, .. } = summary;
    let mut rows = vec![vec!["TABLE".to_owned(), "ROWS".to_owned()]];
    let full = summary.tables.iter().filter(|table| table.rows > 0);
    rows.extend(full.map(|table| vec![table.table.to_owned(), table.rows.to_string()]));
    let mut text = format!("{format}, epoch {epoch}, commit {commit}\n\n{}\n", table(&rows));
    for finding in kept {
        text += &format!("\n{} {}: {}", finding.table, finding.key, finding.what);
    }
    let more = count.saturating_sub(kept.len() as u64);
    text += &match (count, more) {
        (0, _) => "\nall rows are readable and consistent".to_owned(),
        (_, 0) => String::new(),
        (_, more) => format!("\n… and {more} more"),
    };
    text
}

fn object(summary: &BackupSummary) -> Map<String, Value> {
    let BackupSummary { format, epoch, commit, bytes, tables } = summary;
    let rows: Map<String, Value> = tables.iter().map(|table| (table.table.to_owned(), table.rows.into())).collect();
    let object = json!({"format": format, "epoch": epoch, "commit": commit, "bytes": bytes, "rows": rows});
    object.as_object().cloned().unwrap_or_default()
}

fn spelt(summary: &BackupSummary) -> String {
    Value::Object(object(summary)).to_string()
}

fn spelt_report(Report { summary, findings }: &Report) -> String {
    let mut all = object(summary);
    let kept = findings.kept.iter();
    let kept: Vec<Value> =
        kept.map(|finding| json!({"table": finding.table, "key": finding.key, "what": finding.what})).collect();
    all.insert("findings".to_owned(), kept.into());
    all.insert("finding_count".to_owned(), findings.count.into());
    Value::Object(all).to_string()
}
