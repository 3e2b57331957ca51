//! `tidings simulate`: a simulated provider for trials of the server, as a separate process.
//!
//! It writes its certificate and the server's credential, prints the section for the server's configuration, and shows
//! counters until Ctrl-C. The keys are valid for this simulator only; still, only their owner can read them.

use std::fs::{OpenOptions, Permissions};
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidings_simulator::{
    ApnsSimulator, Faults, FcmConfig, FcmSimulator, LedgerSummary, Refusal, SimulatorConfig, WebPushConfig,
    WebPushSimulator,
};

use super::CommandError;
use crate::cli::{SimulateApnsArgs, SimulateArgs, SimulateCommand, SimulateFcmArgs, SimulateWebPushArgs};
use tidings_config::{read_file, toml_text};
use tidings_server::output::{Kind, line, remark};
use tidings_telemetry::chain;

/// How often the counters are shown.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(command: SimulateCommand) -> Result<(), CommandError> {
    match command {
        SimulateCommand::Apns(args) => apns(&args).await,
        SimulateCommand::Fcm(args) => fcm(&args).await,
        SimulateCommand::WebPush(args) => web_push(&args).await,
    }
}

async fn apns(args: &SimulateApnsArgs) -> Result<(), CommandError> {
    let SimulateArgs { dir, seed, threads, json, .. } = &args.common;
    let config = SimulatorConfig {
        listen: args.listen,
        thread_count: usize::from(*threads),
        seed: *seed,
        topics: args.app.iter().cloned().collect(),
        faults: args.common.faults()?,
        ..SimulatorConfig::default()
    };
    let simulator = ApnsSimulator::start(config).map_err(|error| CommandError::Failed(chain(&error)))?;
    let ca = write(dir, "ca.pem", simulator.ca_pem(), PUBLIC)?;
    let key = write(dir, "key.p8", simulator.key_pem(), PRIVATE)?;
    let section = [
        "[apns.simulator]".to_owned(),
        "host = \"localhost\"".to_owned(),
        format!("port = {}", simulator.addr().port()),
        format!("key_id = {}", toml_text(simulator.key_id())),
        format!("team_id = {}", toml_text(simulator.team_id())),
        format!("key_file = {}", toml_text(key.display())),
        format!("ca_file = {}", toml_text(ca.display())),
        format!("apps = [{}]", toml_text(args.app.as_deref().unwrap_or("com.example.app"))),
    ];
    let ledger = simulator.ledger();
    watch(*json, &section, || format_summary(&ledger.summary(), *json), || simulator.stop()).await
}

async fn fcm(args: &SimulateFcmArgs) -> Result<(), CommandError> {
    let SimulateArgs { dir, seed, threads, json, .. } = &args.common;
    let config = FcmConfig {
        listen: args.listen,
        thread_count: usize::from(*threads),
        seed: *seed,
        project_id: args.project.clone(),
        faults: args.common.faults()?,
        ..FcmConfig::default()
    };
    let simulator = FcmSimulator::start(config).map_err(|error| CommandError::Failed(chain(&error)))?;
    let ca = write(dir, "fcm-ca.pem", simulator.ca_pem(), PUBLIC)?;
    let account = write(dir, "service-account.json", &simulator.service_account_json(), PRIVATE)?;
    let section = [
        "[fcm.simulator]".to_owned(),
        "host = \"localhost\"".to_owned(),
        format!("port = {}", simulator.addr().port()),
        format!("service_account_file = {}", toml_text(account.display())),
        format!("ca_file = {}", toml_text(ca.display())),
        format!("apps = [{}]", toml_text(args.app.as_deref().unwrap_or("com.example.app"))),
    ];
    let ledger = simulator.ledger();
    watch(*json, &section, || format_summary(&ledger.summary(), *json), || simulator.stop()).await
}

async fn web_push(args: &SimulateWebPushArgs) -> Result<(), CommandError> {
    let SimulateArgs { dir, seed, threads, json, .. } = &args.common;
    let config = WebPushConfig {
        listen: args.listen,
        thread_count: usize::from(*threads),
        seed: *seed,
        faults: args.common.faults()?,
        ..WebPushConfig::default()
    };
    let simulator = WebPushSimulator::start(config).map_err(|error| CommandError::Failed(chain(&error)))?;
    let ca = write(dir, "web-push-ca.pem", simulator.ca_pem(), PUBLIC)?;
    let key = write(dir, "vapid.key", &simulator.vapid_key(), PRIVATE)?;
    if args.subscriptions > 0 {
        write(dir, "subscriptions.ndjson", &subscriptions(&simulator, args.subscriptions), PRIVATE)?;
    }
    let section = [
        format!("# A page subscribes with applicationServerKey {}.", simulator.application_server_key()),
        "[web_push.simulator]".to_owned(),
        format!("vapid_key_file = {}", toml_text(key.display())),
        "contact = \"mailto:nobody@localhost\"".to_owned(),
        "allowed_hosts = [\"localhost\"]".to_owned(),
        format!("allowed_ports = [{}]", simulator.addr().port()),
        "allow_private = true".to_owned(),
        format!("ca_file = {}", toml_text(ca.display())),
        format!("apps = [{}]", toml_text(args.app.as_deref().unwrap_or("www.example.com"))),
    ];
    let ledger = simulator.ledger();
    watch(*json, &section, || format_summary(&ledger.summary(), *json), || simulator.stop()).await
}

/// Subscriptions of browsers for the simulator's own key, one a line.
fn subscriptions(simulator: &WebPushSimulator, count: u32) -> String {
    let key = simulator.application_server_key();
    let subscribed = (0..count).filter_map(|_| simulator.subscribe(Some(&key)));
    subscribed.map(|it| serde_json::to_string(&it).expect("a subscription is plain") + "\n").collect()
}

impl SimulateArgs {
    fn faults<R: Refusal>(&self) -> Result<Faults<R>, CommandError> {
        let mut faults = self.faults.as_deref().map(read_faults).transpose()?.unwrap_or_default();
        if let Some(round_trip) = self.round_trip {
            faults.round_trip_ms = u64::try_from(round_trip.as_millis()).unwrap_or(u64::MAX);
        }
        Ok(faults)
    }
}

fn read_faults<R: Refusal>(path: &Path) -> Result<Faults<R>, CommandError> {
    let text =
        read_file(path).map_err(|source| CommandError::File { action: "read", path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|error| CommandError::Usage(format!("{}: {error}", path.display())))
}

const PUBLIC: u32 = 0o644;
const PRIVATE: u32 = 0o600;

/// Writes a file into the folder and returns its path.
fn write(dir: &Path, name: &str, text: &str, mode: u32) -> Result<PathBuf, CommandError> {
    let error = |path: &Path| {
        let path = path.to_owned();
        |source| CommandError::File { action: "write", path, source }
    };
    std::fs::create_dir_all(dir).map_err(error(dir))?;
    let path = dir.join(name);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(mode).open(&path);
    let written = file.and_then(|mut file| {
        file.set_permissions(Permissions::from_mode(mode))?; // An existing file may have been readable by all.
        file.write_all(text.as_bytes())
    });
    written.map_err(error(&path))?;
    Ok(path)
}

/// Prints the section for the server's configuration, then the counters until Ctrl-C.
async fn watch(
    json: bool,
    section: &[String],
    summary: impl Fn() -> String,
    stop: impl FnOnce(),
) -> Result<(), CommandError> {
    let snippet = format!("# The simulator listens. For the configuration of the server:\n\n{}\n", section.join("\n"));
    // With --json, standard output has only counters.
    if json {
        remark(Kind::Note, snippet)
    } else {
        line(snippet)?
    }
    let mut counters = Counters { in_place: !json && std::io::stdout().is_terminal(), shown: None };
    let mut interval = tokio::time::interval(SHOW_INTERVAL);
    loop {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => break interrupted?,
            _ = interval.tick() => counters.show(summary())?,
        }
    }
    stop();
    counters.show(summary())?;
    if counters.in_place { Ok(line("")?) } else { Ok(()) }
}

/// The counters as shown last. A terminal has one line that is overwritten; else each change prints a line.
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

fn format_summary<R: Refusal>(summary: &LedgerSummary<R>, json: bool) -> String {
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
