//! `tidings simulate`: a provider of our own to try the server against, as a program of its own.
//!
//! It writes its certificate and signing key, says what to put into the server's configuration, and counts until
//! Ctrl-C. The key is only good for this simulator; it is readable by its owner alone nevertheless.

use std::fs::{OpenOptions, Permissions};
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidings_simulator::{ApnsSimulator, Faults, LedgerSummary, SimulatorConfig};

use super::CommandError;
use super::output::{Kind, chain, line, remark};
use crate::cli::{SimulateApnsArgs, SimulateCommand};
use crate::config::read_file;

/// How often the counters are shown.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a simulator until Ctrl-C.
pub(crate) async fn run(command: SimulateCommand) -> Result<(), CommandError> {
    match command {
        SimulateCommand::Apns(args) => apns(&args).await,
    }
}

async fn apns(args: &SimulateApnsArgs) -> Result<(), CommandError> {
    let config = SimulatorConfig {
        listen: args.listen,
        thread_count: args.threads.into(),
        seed: args.seed,
        topics: args.app.iter().cloned().collect(),
        faults: args.faults.as_deref().map(read_faults).transpose()?.unwrap_or_default(),
        ..SimulatorConfig::default()
    };
    let simulator = ApnsSimulator::start(config).map_err(|error| CommandError::Failed(chain(&error)))?;
    let files = Files::write(&args.dir, &simulator)?;
    let snippet = snippet(&simulator, &files, args.app.as_deref());
    // With --json, standard output is for counters alone.
    if args.json {
        remark(Kind::Note, snippet)
    } else {
        line(snippet)?
    }
    let mut counters = Counters { in_place: !args.json && std::io::stdout().is_terminal(), shown: None };
    let mut interval = tokio::time::interval(SHOW_INTERVAL);
    loop {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => break interrupted?,
            _ = interval.tick() => counters.show(format_summary(&simulator.ledger().summary(), args.json))?,
        }
    }
    simulator.stop();
    counters.show(format_summary(&simulator.ledger().summary(), args.json))?;
    if counters.in_place { Ok(line("")?) } else { Ok(()) }
}

fn read_faults(path: &Path) -> Result<Faults, CommandError> {
    let text =
        read_file(path).map_err(|source| CommandError::File { action: "read", path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|error| CommandError::Usage(format!("{}: {error}", path.display())))
}

/// Where certificate and key are.
struct Files {
    ca: PathBuf,
    key: PathBuf,
}

impl Files {
    fn write(dir: &Path, simulator: &ApnsSimulator) -> Result<Self, CommandError> {
        let error = |path: &Path| {
            let path = path.to_owned();
            |source| CommandError::File { action: "write", path, source }
        };
        std::fs::create_dir_all(dir).map_err(error(dir))?;
        let files = Self { ca: dir.join("ca.pem"), key: dir.join("key.p8") };
        for (path, text, mode) in [(&files.ca, simulator.ca_pem(), 0o644), (&files.key, simulator.key_pem(), 0o600)] {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(mode).open(path);
            let written = file.and_then(|mut file| {
                file.set_permissions(Permissions::from_mode(mode))?; // The file may have been there, open to all.
                file.write_all(text.as_bytes())
            });
            written.map_err(error(path))?;
        }
        Ok(files)
    }
}

/// What to put into the configuration of the server.
fn snippet(simulator: &ApnsSimulator, files: &Files, app: Option<&str>) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    format!(
        "# The simulator listens. For the configuration of the server:\n\n\
         [apns.simulator]\n\
         host = \"localhost\"\n\
         port = {}\n\
         key_id = {}\n\
         team_id = {}\n\
         key_file = {}\n\
         ca_file = {}\n\
         apps = [{}]\n",
        simulator.addr().port(),
        quoted(simulator.key_id()),
        quoted(simulator.team_id()),
        quoted(&files.key.display().to_string()),
        quoted(&files.ca.display().to_string()),
        quoted(app.unwrap_or("com.example.app")),
    )
}

/// The counters as shown last: on a terminal always in the same line, else a line whenever they have changed.
struct Counters {
    in_place: bool,
    shown: Option<String>,
}

impl Counters {
    fn show(&mut self, text: String) -> std::io::Result<()> {
        if self.shown.as_ref() == Some(&text) {
            return Ok(());
        }
        if self.in_place {
            let mut stdout = std::io::stdout().lock();
            write!(stdout, "\r\x1b[K{text}")?;
            stdout.flush()?;
        } else {
            line(&text)?;
        }
        self.shown = Some(text);
        Ok(())
    }
}

fn format_summary(summary: &LedgerSummary, json: bool) -> String {
    if json {
        return serde_json::to_string(summary).expect("counters are plain");
    }
    let rejected: u64 = summary.rejected.values().sum();
    format!(
        "{} accepted for {} devices, {} repeated, {rejected} rejected; {} connections, at most {} streams, {} over the limit",
        summary.accepted,
        summary.devices,
        summary.repeated,
        summary.connections,
        summary.streams_open_max,
        summary.stream_limit_violations
    )
}
