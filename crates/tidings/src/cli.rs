//! The command line. Each command's arguments are here, with examples in its help. The code that runs a command is in
//! `command`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. Results go to standard output, everything else to
//! standard error; `--json` makes results machine-readable. Colours only on a terminal.

mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod common;
#[cfg(feature = "simulate")]
mod simulate;
mod store;
mod translations;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand};
use tidings_api::Rfc3339;
#[cfg(feature = "bench")]
use tidings_bench::BenchCommand;
use tidings_config::parse_duration;
#[cfg(feature = "demo")]
use tidings_demo::DemoArgs;

pub(crate) use client::*;
#[cfg(feature = "cluster")]
pub(crate) use cluster::*;
use common::parameter;
pub(crate) use common::{ApiServer, ConfigFile, Server};
#[cfg(feature = "simulate")]
pub(crate) use simulate::*;
pub(crate) use store::*;
pub(crate) use translations::*;

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
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(ServeArgs),
    /// Play a football final to simulated phones and clients, and count who got what.
    #[cfg(feature = "demo")]
    Demo(DemoArgs),
    /// Hand in an event, or publish into a channel.
    Publish(PublishArgs),
    /// Print what is published in channels, one JSON object per line.
    Subscribe(SubscribeArgs),
    /// Stand in for a push provider.
    #[command(
        after_help = "docs/simulator.md describes a simulator's control interface and the faults it can simulate."
    )]
    #[command(subcommand)]
    #[cfg(feature = "simulate")]
    Simulate(SimulateCommand),
    /// Make a token that a client connects or subscribes with.
    Token(TokenArgs),
    /// Register devices, look at them, log them out.
    #[command(subcommand)]
    Devices(DevicesCommand),
    /// Export or erase everything that is stored about a user.
    #[command(subcommand)]
    Users(UsersCommand),
    /// Count the devices that an event would reach, without sending anything.
    #[command(subcommand)]
    Audience(AudienceCommand),
    /// See how feeds are, read one now, and see what a document would become.
    #[command(subcommand)]
    Feeds(FeedsCommand),
    /// See the outcomes of events, cancel events, pause and resume pushes.
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Ask why a device got an event, or why not.
    #[command(after_help = "Examples:
  tidings why goal-1 phone-1
  tidings why goal-1 --user ada
  tidings why --events-of phone-1

The answer says what happened and when, why the device was in the audience or not, and what is
not known. It is kept in memory for sender.why_ttl after the event's job is done, and not over a
restart.")]
    Why(WhyArgs),
    /// See who changed what by the API or the console.
    Audit(AuditArgs),
    /// Show the text of a notification, in one language or in all.
    Preview(PreviewArgs),
    /// Bring texts to translators and back.
    #[command(subcommand)]
    Translations(TranslationsCommand),
    /// Keys for notifications to browsers.
    #[command(subcommand)]
    WebPush(WebPushCommand),
    /// Back up, restore or check the store.
    #[command(subcommand)]
    Store(StoreCommand),
    /// See who leads a cluster of servers, let another one lead, check their log.
    #[command(subcommand)]
    #[cfg(feature = "cluster")]
    Cluster(ClusterCommand),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a script that lets a shell complete commands and options.
    Completions(CompletionsArgs),
    /// Measure a part of the server on this machine.
    #[command(subcommand)]
    #[cfg(feature = "bench")]
    Bench(BenchCommand),
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings serve
  tidings serve --config /etc/tidings/tidings.toml
  TIDINGS_HTTP__LISTEN=127.0.0.1:9000 tidings serve
  tidings serve --seed devices.json

It stops on SIGTERM or Ctrl-C: takes nothing more, tells its clients, finishes what it has begun.
On SIGHUP it reads credentials again from configuration and files, and no other setting: of push
providers, tokens, TLS, the webhook and hooks. The old ones finish what they have begun.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Devices to register before the server accepts connections, as JSON: {"devices": [{"id", "app", "locale", …}]}
    #[arg(long, value_name = "FILE")]
    pub(crate) seed: Option<PathBuf>,
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
  tidings publish --topic kick-off --subject match:1 \\
      --param 'at={\"datetime\": \"2026-11-24T20:45:00+01:00\", \"zone\": \"device\"}'

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
    /// The kind of event.
    #[arg(long, required_unless_present = "json_text", requires = "subject")]
    pub(crate) topic: Option<String>,
    /// What the event is about, as kind:key; may be given several times.
    #[arg(long, value_name = "KIND:KEY")]
    pub(crate) subject: Vec<String>,
    /// A parameter for the texts; a value of digits is a number, and a JSON object is a typed value. May be given several
    /// times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) param: Vec<(String, String)>,
    /// The event's id. Events with the same id are the same event.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Collapse key: the event replaces an older one with the same key on the device.
    #[arg(long, value_name = "KEY")]
    pub(crate) collapse_key: Option<String>,
    /// How long the event is worth delivering, such as 4h.
    #[arg(long, value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,
    /// Events of a higher priority are sent first [default: normal]
    #[arg(long, value_parser = ["high", "normal", "low"])]
    pub(crate) priority: Option<String>,
    /// How urgently providers deliver the notification; without this option, at once.
    #[arg(long, value_parser = ["very_low", "low", "normal", "high"])]
    pub(crate) urgency: Option<String>,
    /// When the event is due, such as 2026-07-15T20:04:05+02:00. Cancelled before that, it leaves no trace.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Rfc3339>,
    /// Push nothing if the audience has fewer devices.
    #[arg(long, value_name = "N")]
    pub(crate) expect_min: Option<u32>,
    /// Push nothing if the audience has more devices.
    #[arg(long, value_name = "N")]
    pub(crate) expect_max: Option<u32>,
    /// Do everything except deliver. Providers that can validate a message do so.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Refuse an event that would be accepted with a warning.
    #[arg(long, conflicts_with = "channel")]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

/// Arguments of `subscribe`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings subscribe match:1
  tidings subscribe news chat:lobby --token \"$(tidings token --user 42)\"
  tidings subscribe match:1 --count 10 | jq .data

Each line is {\"channel\", \"offset\", \"data\", \"tags\"}. After a break it connects again and prints
what was missed; a line {\"channel\", \"gap\": {\"since\", \"top\"}} names publications that are gone.")]
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
  tidings token --user 42 --key-file private.pem --algorithm PS256

It is signed with --key-file, or with client.token.hmac_secret of the configuration, or, for a
channel, with client.subscription_token.hmac_secret if client.subscription_token has a key.")]
pub(crate) struct TokenArgs {
    /// The user who connects; empty for an anonymous user.
    #[arg(long)]
    pub(crate) user: String,
    /// The device that connects. The token proves it; the device needs no credential.
    #[arg(long, value_name = "ID", conflicts_with = "channel")]
    pub(crate) device: Option<String>,
    /// Make a subscription token for this channel instead of a connection token.
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// How long the token is valid.
    #[arg(long, default_value = "1h", value_parser = parse_duration, value_name = "DURATION", conflicts_with = "forever")]
    pub(crate) expires_in: Duration,
    /// The token never expires.
    #[arg(long)]
    pub(crate) forever: bool,
    /// JSON that others see with the user's presence and publications.
    #[arg(long, value_name = "JSON")]
    pub(crate) info: Option<String>,
    /// Private key (PEM) to sign with, instead of the secret: RSA, ECDSA (P-256, P-384) or Ed25519.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Algorithm of the signature [default: HS256, RS256, ES256, ES384 or EdDSA, as the key is]
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print {"token", "expires_at"}.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Commands about the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check it; print each setting with its origin, and how much memory the server may need.
    #[command(after_help = "Examples:
  tidings config check
  tidings config check --config tidings.toml --json")]
    Check(ConfigCheckArgs),
    /// Turn a configuration of Centrifugo 5 or 6 into one of ours, and list what has no counterpart.
    #[command(after_help = "Examples:
  tidings config import centrifugo.json --secrets /etc/tidings/secrets > tidings.toml
  tidings config import config.toml --json | jq '.entries[] | select(.outcome == \"todo\")'
  yq -o=json . config.yaml | tidings config import -

The file is JSON or TOML. The configuration goes to standard output. What has no counterpart, and
what to do about it, goes to standard error. Environment variables of Centrifugo are not read.
The exit code is 0 if the file could be read.")]
    Import(ConfigImportArgs),
    /// Print a file with every setting at its default.
    #[command(after_help = "Example:
  tidings config example > tidings.toml")]
    Example,
    /// Print the reference of all settings, in Markdown.
    #[command(after_help = "Example:
  tidings config reference > configuration.md")]
    Reference,
}

/// Commands of `web-push`.
#[derive(Debug, Subcommand)]
pub(crate) enum WebPushCommand {
    /// Make a key pair (VAPID), or print the public key of an existing file.
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
    /// Where to write the private key; the file must not exist.
    #[arg(long, value_name = "FILE", default_value = "vapid.pem", conflicts_with = "show")]
    pub(crate) file: PathBuf,
    /// Make no key; print the public key of this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) show: Option<PathBuf>,
    /// Print the public key and the file's name as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `config import`.
#[derive(Debug, Args)]
pub(crate) struct ConfigImportArgs {
    /// Centrifugo's configuration file; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Write secrets, keys and certificates into files in this folder, which only their owner can read. Without it
    /// nothing is written, and the configuration names files in the folder `secrets` that you make.
    #[arg(long, value_name = "DIR")]
    pub(crate) secrets: Option<PathBuf>,
    /// Print the configuration, the files that it names, and what became of each key, as JSON.
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
            "bench storm --clients 5",
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
}
