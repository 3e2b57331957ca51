//! The command line: what can be asked of the program. Each command's arguments are here, with examples in its help;
//! what it does is in `command`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. Results go to standard output, everything else to
//! standard error; `--json` makes results machine-readable. Colours only on a terminal.

mod client;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand};
use tidings_api::Rfc3339;

use crate::command::simulate::SimulateCommand;
use crate::config::parse_duration;

pub(crate) use client::*;
pub(crate) use store::*;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// An event goes in, everyone who asked for it gets it: live if connected, by push notification if not.
#[derive(Debug, Parser)]
#[command(name = "tidings", version, styles = STYLES, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Examples:
  tidings demo                                  see it work, with nothing to set up
  tidings serve --config tidings.toml           run the server
  tidings publish --topic goal --subject match:1 --param team=Sweden

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.")]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(ServeArgs),
    /// Play a football final to simulated phones and clients, and count who got what.
    Demo(DemoArgs),
    /// Hand in an event, or publish into a channel.
    Publish(PublishArgs),
    /// Print what is published in channels, one JSON object per line.
    Subscribe(SubscribeArgs),
    /// Stand in for a push provider.
    #[command(
        after_help = "What a simulator can be asked and told while it runs, and how it can misbehave: docs/simulator.md."
    )]
    #[command(subcommand)]
    Simulate(SimulateCommand),
    /// Make a token that a client connects or subscribes with.
    Token(TokenArgs),
    /// Register devices, look at them, log them out.
    #[command(subcommand)]
    Devices(DevicesCommand),
    /// Hand out or forget all that is kept of a user.
    #[command(subcommand)]
    Users(UsersCommand),
    /// Count who would be told, without telling anybody.
    #[command(subcommand)]
    Audience(AudienceCommand),
    /// See what became of events, call them off, hold pushes and let them go on.
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Show what a notification says, in one language or in all.
    Preview(PreviewArgs),
    /// Keys for notifications to browsers.
    #[command(subcommand)]
    WebPush(WebPushCommand),
    /// Back the store up, restore it, see whether it is sound.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a script that lets a shell complete commands and options.
    Completions(CompletionsArgs),
    /// Measure a part of the server on this machine.
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// Where the configuration is.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigFile {
    /// Configuration file [default: tidings.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "TIDINGS_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings serve
  tidings serve --config /etc/tidings/tidings.toml
  TIDINGS_HTTP__LISTEN=127.0.0.1:9000 tidings serve
  tidings serve --seed devices.json

It stops on SIGTERM or Ctrl-C: takes nothing more, tells its clients, finishes what it has begun.
On SIGHUP it takes new credentials for push providers from configuration and files, and no other
setting; the old ones finish what they have begun.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Devices to register before anybody is let in, as JSON: {"devices": [{"id", "app", "locale", …}]}
    #[arg(long, value_name = "FILE")]
    pub(crate) seed: Option<PathBuf>,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings demo
  tidings demo --once --json            one quick match, the result as JSON
  tidings demo --devices 1000000 --speed 60")]
pub(crate) struct DemoArgs {
    /// Stop after one match, and fail if anybody got less or more than was owed.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Simulated phones.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) devices: u32,
    /// Connected clients.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(crate) clients: u32,
    /// How many times faster than a real match; an event waits until everybody was told of the one before.
    #[arg(long, value_name = "X", default_value_t = 420.0, value_parser = speed)]
    pub(crate) speed: f64,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    if (0.1..=100_000.0).contains(&speed) { Ok(speed) } else { Err("must be from 0.1 to 100000".to_owned()) }
}

/// The server a command talks to.
#[derive(Debug, Clone, Args)]
pub(crate) struct Server {
    /// The server [default: the address of the configuration]
    #[arg(long, value_name = "URL", env = "TIDINGS_URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

/// Arguments of `publish`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings publish --topic goal --subject match:1 --subject team:se --param minute=90
  tidings publish '{\"id\": \"goal-1\", \"topic\": \"goal\", \"subjects\": [\"match:1\"]}'
  tidings publish - < events.json
  tidings publish --channel news '{\"text\": \"hello\"}'
  tidings publish --topic news --subject league:1 --priority low --urgency low \\
      --at \"$(date -Is -d 'tomorrow 9:00')\" --expect-max 50000
  tidings publish --topic goal --subject match:1 --dry-run

The API key comes from TIDINGS_API_KEY, --api-key-file, or on the server's machine DATA_DIR/api-key.
An event made of flags without --id gets a random id: running the command twice makes two events.")]
pub(crate) struct PublishArgs {
    /// The event, or with --channel the data, as JSON; `-` reads standard input.
    #[arg(value_name = "JSON", conflicts_with_all = ["topic", "subject", "param", "id", "collapse_key",
        "ttl", "priority", "urgency", "at", "expect_min", "expect_max", "dry_run"])]
    pub(crate) json_text: Option<String>,
    /// Publish into this channel instead of handing in an event.
    #[arg(long, requires = "json_text")]
    pub(crate) channel: Option<String>,
    /// Which kind of event.
    #[arg(long, required_unless_present = "json_text", requires = "subject")]
    pub(crate) topic: Option<String>,
    /// What it is about, kind:key; may be given several times.
    #[arg(long, value_name = "KIND:KEY")]
    pub(crate) subject: Vec<String>,
    /// A parameter for the texts; digits make a number. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) param: Vec<(String, String)>,
    /// The event's id; the same id is the same event.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// What it replaces on a device.
    #[arg(long, value_name = "KEY")]
    pub(crate) collapse_key: Option<String>,
    /// How long it is worth delivering, such as 4h.
    #[arg(long, value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,
    /// Before which other events it is sent [default: normal]
    #[arg(long, value_parser = ["high", "normal", "low"])]
    pub(crate) priority: Option<String>,
    /// How urgently providers deliver it; without it, at once.
    #[arg(long, value_parser = ["very_low", "low", "normal", "high"])]
    pub(crate) urgency: Option<String>,
    /// When it is due, such as 2026-07-15T20:04:05+02:00; until then it can be called off without a trace.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Rfc3339>,
    /// Push nobody if it would be for fewer devices.
    #[arg(long, value_name = "N")]
    pub(crate) expect_min: Option<u32>,
    /// Push nobody if it would be for more devices.
    #[arg(long, value_name = "N")]
    pub(crate) expect_max: Option<u32>,
    /// Do everything but the delivery; providers that offer it validate the message.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Refuse an event that would be accepted with a warning.
    #[arg(long, conflicts_with = "channel")]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

/// Arguments of `subscribe`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings subscribe match:1
  tidings subscribe news chat:lobby --token \"$(tidings token --user 42)\"
  tidings subscribe match:1 --count 10 | jq .data

Each line is {\"channel\", \"offset\", \"data\", \"tags\"}. After a break it connects again and prints
what was missed; a line {\"channel\", \"gap\": {\"since\", \"top\"}} says that it could not be had any more.")]
pub(crate) struct SubscribeArgs {
    /// Channels, at most 128.
    #[arg(required = true, value_name = "CHANNEL", num_args = 1..=128)]
    pub(crate) channels: Vec<String>,
    /// Connection token.
    #[arg(long, env = "TIDINGS_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// End after this many publications.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Arguments of `token`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings token --user 42
  tidings token --user 42 --expires-in 10m --info '{\"name\": \"Ada\"}'
  tidings token --user 42 --channel '$chat:private'

It is signed (HS256) with client.token_hmac_secret of the configuration.")]
pub(crate) struct TokenArgs {
    /// Who connects; empty for nobody in particular.
    #[arg(long)]
    pub(crate) user: String,
    /// The device that connects: it is proven by the token, without its credential.
    #[arg(long, value_name = "ID", conflicts_with = "channel")]
    pub(crate) device: Option<String>,
    /// Make a subscription token for this channel instead of a connection token.
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// How long it is good.
    #[arg(long, default_value = "1h", value_parser = parse_duration, value_name = "DURATION", conflicts_with = "forever")]
    pub(crate) expires_in: Duration,
    /// Make it good for ever.
    #[arg(long)]
    pub(crate) forever: bool,
    /// JSON that others see with the user's presence and publications.
    #[arg(long, value_name = "JSON")]
    pub(crate) info: Option<String>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print {"token", "expires_at"}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be asked about the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check it; print what is in force, who says so, and how much memory it may come to need.
    #[command(after_help = "Examples:
  tidings config check
  tidings config check --config tidings.toml --json")]
    Check(ConfigCheckArgs),
    /// Print a file with every setting at its default.
    #[command(after_help = "Example:
  tidings config example > tidings.toml")]
    Example,
    /// Print the reference page, in Markdown.
    #[command(after_help = "Example:
  tidings config reference > configuration.md")]
    Reference,
}

/// What `web-push` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum WebPushCommand {
    /// Make a key pair (VAPID), or print the public half of the one in a file.
    Keys(WebPushKeysArgs),
}

/// Arguments of `web-push keys`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings web-push keys
  tidings web-push keys --file /etc/tidings/vapid.pem
  tidings web-push keys --show vapid.pem --json

The private half goes into the file, which only its owner can read and which is never
overwritten: browsers that subscribed with a lost key have to subscribe again.")]
pub(crate) struct WebPushKeysArgs {
    /// Where to put the private half; there must be no such file.
    #[arg(long, value_name = "FILE", default_value = "vapid.pem", conflicts_with = "show")]
    pub(crate) file: PathBuf,
    /// Make nothing, print the public half of the key in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) show: Option<PathBuf>,
    /// Print the public half and the file's name as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `config check`.
#[derive(Debug, Args)]
pub(crate) struct ConfigCheckArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print settings, warnings and memory terms as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Publications to many connections: processor time, latency, memory, coming back.
    #[command(after_help = "Examples:
  tidings bench fanout
  tidings bench fanout --runs 5 --clients 8000 --json")]
    Fanout(BenchFanoutArgs),
    /// Finding who is to be told, and keeping that durable.
    #[command(after_help = "Examples:
  tidings bench audience
  tidings bench audience --subscriptions 25M --dir /var/tmp --json
  tidings bench audience --control-subscriptions 25M

SQLite is shown beside when built with --features bench-peers, and PostgreSQL when it is on the
machine as well (Debian: postgresql).")]
    Audience(BenchAudienceArgs),
    /// Notifications, from the event to a simulated provider's answer.
    #[command(after_help = "Examples:
  tidings bench push
  tidings bench push --audience 1.3M --only audience
  tidings bench push --only fcm
  tidings bench push --server pushy --runs 5 --json
  tidings bench push --full > push.txt

With h2load (Debian: nghttp2-client) on the machine, its rate against the same provider is
shown beside, and that of Pushy, apns2 and gorush when conformance/peers.sh has built them.")]
    Push(BenchPushArgs),
    /// The bounded buffers: every operation's time, and what goes through between threads.
    #[command(after_help = "Examples:
  tidings bench buffer
  tidings bench buffer --only lake --runs 5 --json

Other libraries are shown beside when built with --features bench-peers.")]
    Buffer(BenchBufferArgs),
    /// The batching writer: small messages of many producers into a pipe, a file, a terminal.
    #[command(after_help = "Examples:
  tidings bench batch
  tidings bench batch --only pipe --runs 5
  tidings bench batch --full --json > batch.json

tracing-appender is shown beside when built with --features bench-peers.")]
    Batch(BenchBatchArgs),
    /// The HTTP/1.1 client against nginx: requests per second, latency, processor time.
    #[command(after_help = "Examples:
  tidings bench http
  tidings bench http --runs 5 --json

nginx must be there (Debian: nginx-light). With wrk on the machine its rate is shown beside, and
other clients when built with --features bench-peers.")]
    Http(BenchHttpArgs),
    /// The other process of a benchmark, started by it.
    #[command(hide = true)]
    #[command(after_help = "Example:
  tidings bench peer simulator --cpu 0")]
    Peer(BenchPeerArgs),
}

/// Arguments of every benchmark.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// Print the result as one JSON object, every run in it.
    #[arg(long)]
    pub(crate) json: bool,
    /// How often each thing is measured.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
}

/// Arguments of `bench fanout`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchFanoutArgs {
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    /// How long each load is measured, in seconds; one more warms up.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) seconds: u32,
    /// Idle connections for the memory figure, and clients that come back at once.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..=20_000))]
    pub(crate) clients: u32,
}

/// Arguments of `bench audience`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchAudienceArgs {
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    /// Subscriptions, 6.35 of each device. Goals are stated for 25M, some for 127M.
    #[arg(long, value_name = "N", default_value = "5M", value_parser = count)]
    pub(crate) subscriptions: u32,
    /// Subscriptions that SQLite, PostgreSQL and our store are compared with.
    #[arg(long, value_name = "N", default_value = "2.5M", value_parser = count)]
    pub(crate) control_subscriptions: u32,
    /// Where the store is put; removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}

/// Arguments of `bench push`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchPushArgs {
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    /// Devices that are told of each event where the provider answers at once; else five seconds' worth of them.
    #[arg(long, value_name = "N", default_value = "200k", value_parser = count)]
    pub(crate) devices: u32,
    /// Measure every round trip with every stream limit and flow window, not one of each kind; an hour.
    #[arg(long)]
    pub(crate) full: bool,
    /// Measure only the parts whose name contains this, such as `0 ms`; a name that is not there lists all parts.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) only: String,
    /// Measure memory and time of an audience so large as well; 1.3M is what the goals are stated for.
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) audience: Option<u32>,
    /// Devices of the newsletter that goals are told beside.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count)]
    pub(crate) newsletter: u32,
    /// What is sent to: our simulator, or Pushy's benchmark server, which has no round trip and checks nothing.
    #[arg(long, value_name = "WHICH", default_value = "simulator")]
    pub(crate) server: BenchPushServer,
    /// Cores that the provider has to itself, with a thread on each; the sender always has one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) provider_cores: u32,
    /// Where other senders are, as conformance/peers.sh builds them [default: target/peers]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) peers: Option<PathBuf>,
    /// Where the store is put; removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}

/// What `bench push` sends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchPushServer {
    /// Our simulator of APNs.
    Simulator,
    /// Pushy's BenchmarkApnsServer.
    Pushy,
}

/// Arguments of `bench buffer`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchBufferArgs {
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    /// Measure only the buffers whose name contains this, such as `lake`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) only: String,
}

/// Arguments of `bench batch`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchBatchArgs {
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    /// Measure every size of messages, pages and buffers with every number of messages, not one at a time; an hour.
    #[arg(long)]
    pub(crate) full: bool,
    /// Measure only the cases whose name contains this, such as `pipe`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) only: String,
    /// Where the file is put; removed afterwards [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}

/// Arguments of `bench http`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchHttpArgs {
    #[command(flatten)]
    pub(crate) common: BenchArgs,
    /// How long each client is measured in each case, in seconds; half of one more warms up.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) seconds: u32,
}

/// Arguments of `bench peer`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchPeerArgs {
    /// What it is.
    pub(crate) role: PeerRole,
    /// The core it is held to.
    #[arg(long, value_name = "N")]
    pub(crate) cpu: usize,
}

/// What the other process of a benchmark is.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum PeerRole {
    /// Hub and edge behind a listener.
    Fanout,
    /// One write per subscriber, nothing else.
    Bare,
    /// A simulated APNs.
    Simulator,
    /// A simulated FCM.
    Fcm,
}

/// Reads a count such as `200000`, `200k` or `1.3M`: from 1000 to 200 million.
fn count(text: &str) -> Result<u32, String> {
    let (digits, factor) = match text.char_indices().next_back() {
        Some((end, 'k')) => (&text[..end], 1e3),
        Some((end, 'M')) => (&text[..end], 1e6),
        _ => (text, 1.0),
    };
    let number = digits.parse::<f64>().map_or(f64::NAN, |number| (number * factor).round());
    if (1e3..=2e8).contains(&number) { Ok(number as u32) } else { Err("must be from 1000 to 200M".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command) {
            if command.has_subcommands() {
                return command.get_subcommands().for_each(check);
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example"), "{}", command.get_name());
            assert!(help.contains(command.get_name()), "{}", command.get_name());
            // Lines of the examples are for copying: no terminal of 100 columns may break them.
            assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        }
        check(&Cli::command());
    }

    #[test]
    fn arguments_outside_their_range_are_refused() {
        let words = [
            "demo --devices 0",
            "demo --speed 0",
            "demo --speed NaN",
            "token",
            "subscribe",
            "serve x",
            "bench",
            "token --user a --expires-in 1",
            "bench fanout --clients 5",
            "bench push --devices 999",
            "bench push --devices 1G",
            "preview goal --raw",
            "devices subscribe phone-1 team:1",
            "audience goal",
        ];
        for words in words {
            assert!(Cli::try_parse_from(format!("tidings {words}").split(' ')).is_err(), "{words}");
        }
        assert!(
            Cli::try_parse_from("tidings demo --once --json --devices 5 --clients 2 --speed 10".split(' ')).is_ok()
        );
    }

    #[test]
    fn counts_may_be_short() {
        let counts = ["1000", "1.3M", "200k", "200M"].map(|text| count(text).ok());
        assert_eq!(counts, [Some(1000), Some(1_300_000), Some(200_000), Some(200_000_000)]);
        assert!(["", "k", "M", "NaN", "-5M", "999", "1e12", "1.3m"].iter().all(|text| count(text).is_err()));
    }
}
