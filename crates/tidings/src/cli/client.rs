//! Arguments of the commands that call a server's API (`devices`, `users`, `audience`, `jobs`), and of `preview`, which
//! does not.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tidings_types::BrakeScope;

use super::common::{ApiServer, ConfigFile, parameter};

/// Commands about devices.
#[derive(Debug, Subcommand)]
pub(crate) enum DevicesCommand {
    /// List devices in the order of their ids.
    #[command(after_help = "Examples:
  tidings devices list
  tidings devices list --user 42
  tidings devices list --after phone-7 --limit 1000 --json")]
    List {
        /// Only those of this user.
        #[arg(long)]
        user: Option<String>,
        /// Begin after this id.
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// At most so many.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Show a device, what it is subscribed to and what it has muted.
    #[command(after_help = "Example:
  tidings devices show phone-7")]
    Show {
        /// The device.
        id: String,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Find the device that has a token.
    #[command(after_help = "Examples:
  tidings devices find --platform ios < token.txt
  tidings devices find --platform web --token-file subscription.json

The token is read from a file, so that it is neither in the list of processes nor in the shell's
history. Of web it is the browser's subscription as JSON.")]
    Find {
        /// Its kind: ios, android or web.
        #[arg(long, default_value = "ios")]
        platform: String,
        /// File that holds the token; `-` reads standard input.
        #[arg(long, value_name = "FILE", default_value = "-")]
        token_file: PathBuf,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Register a device, or replace its record. The credential of a new device is printed once.
    #[command(after_help = "Examples:
  tidings devices register phone-7 --app com.example.app --token 5f3a… --locale pt-BR --user 42
  tidings devices register phone-8 --platform android --app a.b --token dPx0:APA91b --locale pl
  tidings devices register phone-9 --app a.b --locale pl --push-permission denied
  tidings devices register tab-9 --platform web --app example.com --locale en --web-push -

A browser's subscription is what JSON.stringify(subscription) gives; - reads standard input.")]
    Register(Box<RegisterArgs>),
    /// Forget a device.
    #[command(after_help = "Example:
  tidings devices remove phone-7")]
    Remove {
        /// The device.
        id: String,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Subscribe a device to topics on a subject.
    #[command(after_help = "Example:
  tidings devices subscribe phone-7 team:42 goal red_card")]
    Subscribe {
        /// The device.
        id: String,
        /// What it is about, kind:key.
        subject: String,
        /// Which kinds of event about it.
        #[arg(required = true)]
        topics: Vec<String>,
        /// Refuse a topic that is not configured, instead of accepting it with a warning.
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        api: ApiServer,
    },
    /// End the subscriptions on a subject: to the given topic, or to all.
    #[command(after_help = "Examples:
  tidings devices unsubscribe phone-7 team:42 goal
  tidings devices unsubscribe phone-7 team:42")]
    Unsubscribe {
        /// The device.
        id: String,
        /// What it is about, kind:key.
        subject: String,
        /// Which kind of event about it.
        topic: Option<String>,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Send a device nothing, or nothing about a subject, for a time or until it is unmuted.
    #[command(after_help = "Examples:
  tidings devices mute phone-7 --for 8h
  tidings devices mute phone-7 --subject team:42
  tidings devices mute phone-7 --subject match:7 --until 2026-12-24T18:00:00+01:00")]
    Mute {
        /// The device.
        id: String,
        /// Mute only this subject, kind:key; without one, everything.
        #[arg(long, value_name = "KIND:KEY")]
        subject: Option<String>,
        /// When the mute ends, RFC 3339.
        #[arg(long, value_name = "MOMENT", conflicts_with = "for")]
        until: Option<String>,
        /// How long the mute lasts: 30m, 8h, 7d.
        #[arg(long, value_name = "DURATION")]
        r#for: Option<String>,
        #[command(flatten)]
        api: ApiServer,
    },
    /// End a mute.
    #[command(after_help = "Examples:
  tidings devices unmute phone-7
  tidings devices unmute phone-7 --subject team:42")]
    Unmute {
        /// The device.
        id: String,
        /// End the mute of this subject, kind:key; without one, the mute of everything.
        #[arg(long, value_name = "KIND:KEY")]
        subject: Option<String>,
        #[command(flatten)]
        api: ApiServer,
    },
    /// List what a device has muted.
    #[command(after_help = "Example:
  tidings devices mutes phone-7")]
    Mutes {
        /// The device.
        id: String,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Register many devices from a file, one JSON object a line.
    #[command(after_help = "Examples:
  tidings devices import devices.ndjson
  tidings devices import devices.ndjson --name from-the-old-system --on-error skip
  zcat devices.ndjson.gz | tidings devices import - --name from-the-old-system

A line:
  {\"id\": \"phone-7\", \"platform\": \"ios\", \"token\": \"5f3a…\", \"app\": \"com.example.app\",
   \"locale\": \"sv\", \"subscriptions\": [{\"subject\": \"team:42\", \"topics\": [\"goal\"]}]}

After a lost connection a file goes on where it stands. With a name that also holds for the next
run of this command: the server remembers how many lines are done, so give each file a name of its
own. See docs/devices.md.")]
    Import(ImportArgs),
    /// Print all devices with their data, in the format of `import`. The output holds device tokens, so the API key
    /// needs the scope backup.
    #[command(after_help = "Examples:
  tidings devices export --out devices.ndjson
  tidings devices export --selector 'platform = ios and country = SE' | jq -r .id")]
    Export(ExportArgs),
    /// Give a device a new credential; the old one is no longer valid.
    #[command(after_help = "Example:
  tidings devices rotate phone-7")]
    Rotate {
        /// The device.
        id: String,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Log a device out: no user, no subscriptions, a new credential, its connections closed.
    #[command(after_help = "Example:
  tidings devices logout phone-7")]
    Logout {
        /// The device.
        id: String,
        #[command(flatten)]
        api: ApiServer,
    },
}

/// Arguments of `devices import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// File with the devices; `-` reads standard input.
    pub(crate) file: PathBuf,
    /// Name of the import. Another run with the same name continues it.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// What to do with a wrong line: stop there, or report and skip it.
    #[arg(long, value_name = "WHAT", default_value = "stop", value_parser = ["stop", "skip"])]
    pub(crate) on_error: String,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

/// Arguments of `devices export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Only devices that match this selector, see `tidings audience explain`.
    #[arg(long, conflicts_with = "after")]
    pub(crate) selector: Option<String>,
    /// Begin after this id.
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    /// File to write, readable only by you; `-` is standard output.
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

/// Commands about feeds.
#[derive(Debug, Subcommand)]
pub(crate) enum FeedsCommand {
    /// List the feeds of the server.
    #[command(after_help = "Example:
  tidings feeds list")]
    List {
        #[command(flatten)]
        api: ApiServer,
    },
    /// Show how a feed is: its last and next reading, its entries, its last failure, its wrong entries.
    #[command(after_help = "Examples:
  tidings feeds status
  tidings feeds status news")]
    Status {
        /// The feed; all of them if it is not named.
        name: Option<String>,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Show what the entries of a document would become, without a server.
    Test(FeedsTestArgs),
    /// Read a feed now, and show how it is then.
    #[command(after_help = "Example:
  tidings feeds poll news")]
    Poll {
        /// The feed.
        name: String,
        #[command(flatten)]
        api: ApiServer,
    },
}

/// Arguments of `feeds test`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings feeds test news.xml --feed news
  curl -s https://www.example.com/news.xml | tidings feeds test - --mapping feeds/news.toml
  tidings feeds test match.xml --feed match --json | jq 'select(.outcome == \"wrong\")'

Each entry is shown as the event that it would become, or with the reason why it is skipped or
wrong. With --feed, texts and parameters are checked too. Nothing is sent. What the server has
sent before is not known here. The exit code is 1 if an entry is wrong or the document cannot
be read to its end.")]
pub(crate) struct FeedsTestArgs {
    /// The document; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) document: PathBuf,
    /// Read it as this feed of the configuration.
    #[arg(long, value_name = "NAME", required_unless_present = "mapping", conflicts_with = "mapping")]
    pub(crate) feed: Option<String>,
    /// Read it by this mapping: the name of one that comes with the program, or a file.
    #[arg(long, value_name = "MAPPING")]
    pub(crate) mapping: Option<String>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print a JSON object for each entry, and one with the sums.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Commands about all devices of a user.
#[derive(Debug, Subcommand)]
pub(crate) enum UsersCommand {
    /// Print everything that is stored about a user, as one JSON document.
    #[command(after_help = "Example:
  tidings users export 42 --out user-42.json")]
    Export {
        /// The user.
        user: String,
        /// File to write, readable only by you; `-` is standard output.
        #[arg(long, short, value_name = "FILE", default_value = "-")]
        out: PathBuf,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Delete all devices of a user and their data. This cannot be undone.
    #[command(after_help = "Example:
  tidings users erase 42 --yes")]
    Erase {
        /// The user.
        user: String,
        /// Confirm that everything is to be deleted.
        #[arg(long, required = true)]
        yes: bool,
        #[command(flatten)]
        api: ApiServer,
    },
}

/// Arguments of `devices register`.
#[derive(Debug, Args)]
pub(crate) struct RegisterArgs {
    /// The application's name for the device.
    pub(crate) id: String,
    /// The application that the device runs: its bundle id.
    #[arg(long)]
    pub(crate) app: String,
    /// The device's token at the provider: for ios in hexadecimal digits, for android as the app gets it. May be left
    /// out when the permission is unknown or denied.
    #[arg(long, conflicts_with = "web_push", required_unless_present_any = ["web_push", "push_permission"])]
    pub(crate) token: Option<String>,
    /// A browser's subscription, as JSON; `-` reads standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) web_push: Option<String>,
    /// The language of its user, such as pt-BR.
    #[arg(long)]
    pub(crate) locale: String,
    /// Its kind: ios, android or web [default: web with --web-push, else ios]
    #[arg(long)]
    pub(crate) platform: Option<String>,
    /// production, or sandbox for apps from a developer's machine.
    #[arg(long, default_value = "production")]
    pub(crate) environment: String,
    /// Its country, two letters.
    #[arg(long)]
    pub(crate) country: Option<String>,
    /// Its time zone, such as Europe/Stockholm.
    #[arg(long, value_name = "ZONE")]
    pub(crate) time_zone: Option<String>,
    /// Whether the user lets the app show notifications. A device with denied is not pushed [default: unknown]
    #[arg(long, value_parser = ["unknown", "granted", "provisional", "denied"])]
    pub(crate) push_permission: Option<String>,
    /// The user of the device.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Whether another system has pushed to this token with success. If so, the token needs no quarantine.
    #[arg(long, value_name = "BOOL")]
    pub(crate) proven: Option<bool>,
    /// Refuse an app that no push section names, instead of accepting it with a warning.
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

/// Commands about audiences. Nothing is sent.
#[derive(Debug, Subcommand)]
pub(crate) enum AudienceCommand {
    /// Count the devices of an event's audience, by kind, and estimate how long pushing would take.
    #[command(after_help = "Examples:
  tidings audience preview goal --subject team:42
  tidings audience preview goal --subject team:42 --subject match:1 --locale pt --country BR
  tidings audience preview order --subject order:7 --to-user 42 --json
  tidings audience preview news --subject site:all --to 'platform = ios and country in (SE, NO)'")]
    Preview(PreviewAudienceArgs),
    /// Show the selector as a tree, with the number of devices that each part matches.
    #[command(after_help = "Examples:
  tidings audience explain 'goal on team:42 and country in (SE, NO)'
  tidings audience explain 'platform = ios and not locale = sv' --json

The language is described in docs/selectors.md.")]
    Explain {
        /// The selector, in quotes.
        selector: String,
        #[command(flatten)]
        api: ApiServer,
    },
}

/// Arguments of `audience preview`.
#[derive(Debug, Args)]
pub(crate) struct PreviewAudienceArgs {
    /// Which kind of event.
    pub(crate) topic: String,
    /// What it is about, kind:key; may be given several times.
    #[arg(long, value_name = "KIND:KEY", required = true)]
    pub(crate) subject: Vec<String>,
    /// All devices of this user, instead of the subscribers. May be given several times.
    #[arg(long, value_name = "USER")]
    pub(crate) to_user: Vec<String>,
    /// This device, instead of the subscribers. May be given several times.
    #[arg(long, value_name = "ID")]
    pub(crate) to_device: Vec<String>,
    /// The devices that match this selector, instead of the subscribers; see `tidings audience explain`.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) to: Option<String>,
    /// Only in this country. May be given several times.
    #[arg(long)]
    pub(crate) country: Vec<String>,
    /// Only this language. May be given several times.
    #[arg(long)]
    pub(crate) locale: Vec<String>,
    /// Only this kind of device. May be given several times.
    #[arg(long)]
    pub(crate) platform: Vec<String>,
    /// Only this application. May be given several times.
    #[arg(long)]
    pub(crate) app: Vec<String>,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings audit
  tidings audit --action brake.set --who ops
  tidings audit --follow                  what is new, until Ctrl-C
  tidings audit --limit 1000 --json | jq '.entries[] | select(.result >= 400)'

docs/audit.md lists the actions. The API key needs the scope audit.")]
pub(crate) struct AuditArgs {
    /// Only this action.
    #[arg(long)]
    pub(crate) action: Option<String>,
    /// Only by the holder of this API key, by this user of the console, or by `system`.
    #[arg(long, value_name = "NAME")]
    pub(crate) who: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Only older entries than this page's `next`.
    #[arg(long, value_name = "ID", conflicts_with = "follow")]
    pub(crate) before: Option<String>,
    /// Go on with new entries, one a line, the oldest first.
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}

/// Commands about jobs: the delivery of events.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List the newest events with their progress.
    #[command(after_help = "Examples:
  tidings jobs list
  tidings jobs list --limit 100 --json")]
    List {
        /// At most so many.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only events before this position.
        #[arg(long, value_name = "POSITION")]
        before: Option<u64>,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Show the outcomes of an event.
    #[command(after_help = "Examples:
  tidings jobs show goal-1
  tidings jobs show goal-1 --wait         until every device has its outcome")]
    Show {
        /// The event.
        id: String,
        /// Wait until every device has its outcome, with a progress bar.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Watch jobs live: progress, rate and remaining time.
    #[command(after_help = "Examples:
  tidings jobs watch                      all that run, until Ctrl-C
  tidings jobs watch goal-1               until it is done: exit code 0, or 1 when it was cancelled
  tidings jobs watch goal-1 --json        one object per change

On a terminal each job has a line of its own; else a line is printed per change.")]
    Watch {
        /// The event; without one, all jobs.
        id: Option<String>,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Cancel an event. Devices that it was not sent to yet get nothing; an event that is not due yet is deleted.
    #[command(after_help = "Example:
  tidings jobs cancel newsletter-7")]
    Cancel {
        /// The event.
        id: String,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Print all jobs that are kept, newest first, one JSON object per line.
    #[command(after_help = "Examples:
  tidings jobs export > jobs.ndjson
  tidings jobs export | jq -r '[.id, .audience, .outcomes.accepted] | @csv'")]
    Export {
        /// Only events before this position.
        #[arg(long, value_name = "POSITION")]
        before: Option<u64>,
        #[command(flatten)]
        api: ApiServer,
    },
    /// List events that are not due yet, the next one first.
    #[command(after_help = "Example:
  tidings jobs scheduled")]
    Scheduled {
        /// At most so many.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Pause pushes: they wait until they expire or are resumed. The key needs the scope operate.
    #[command(after_help = "Examples:
  tidings jobs pause everything
  tidings jobs pause topic:newsletter
  tidings jobs pause app:com.example.app
  tidings jobs pause provider:fcm

It holds across restarts. What providers already have is not called back; connected clients
are told of events as before.")]
    Pause {
        /// What to pause: everything, app:ID, topic:NAME or provider:NAME (apns, fcm, web_push).
        scope: BrakeScope,
        #[command(flatten)]
        api: ApiServer,
    },
    /// Resume pushes that were paused. The key needs the scope operate.
    #[command(after_help = "Example:
  tidings jobs resume topic:newsletter")]
    Resume {
        /// What to resume, as it was given to `pause`.
        scope: BrakeScope,
        #[command(flatten)]
        api: ApiServer,
    },
    /// List what is paused. The key needs the scope read.
    #[command(after_help = "Example:
  tidings jobs brakes")]
    Brakes {
        #[command(flatten)]
        api: ApiServer,
    },
}

/// Arguments of `preview`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings preview goal --locale pl --set team=Sweden --set scorer=Ada --set minute=90
  tidings preview goal --locale pl --event event.json --raw | jq .aps
  tidings preview goal --locale ar --screen
  tidings preview final --zone Asia/Tokyo --set 'score={\"number\": 1234.5}'

Texts and translations are those of the configuration; no server is asked. --raw prints the bytes
that a device would be sent, except where its publication stands, which is known only then.")]
pub(crate) struct PreviewArgs {
    /// Which kind of event.
    pub(crate) topic: String,
    /// The language of the device, such as pt-BR; without one, every language there is.
    #[arg(long)]
    pub(crate) locale: Option<String>,
    /// The kind of device: ios, android or browser. Without one it is ios, or with --screen each of them.
    #[arg(long)]
    pub(crate) platform: Option<String>,
    /// The time zone of the device, such as Europe/Stockholm; without one, a device that has stored none.
    #[arg(long)]
    pub(crate) zone: Option<String>,
    /// A parameter for the texts; digits make a number, a JSON object a typed value. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) set: Vec<(String, String)>,
    /// What it is about, kind:key; may be given several times.
    #[arg(long, value_name = "KIND:KEY")]
    pub(crate) subject: Vec<String>,
    /// Further fields of the event, as a JSON object in a file; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) event: Option<PathBuf>,
    /// Draw what devices show of it, on the lock screen and expanded; where they cut it is an approximation.
    #[arg(long)]
    pub(crate) screen: bool,
    /// Print the payload as it would be sent.
    #[arg(long, requires = "locale", conflicts_with_all = ["json", "screen"])]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print the texts by language as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  tidings completions bash > /etc/bash_completion.d/tidings
  tidings completions zsh > ~/.zfunc/_tidings
  tidings completions fish > ~/.config/fish/completions/tidings.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// What `tidings why` asks.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("whom").required(true).args(["device", "user", "events_of"])))]
pub(crate) struct WhyArgs {
    /// The event.
    #[arg(required_unless_present = "events_of", conflicts_with = "events_of")]
    pub(crate) event: Option<String>,
    /// The device.
    pub(crate) device: Option<String>,
    /// Instead of a device: all devices of this user.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Instead: the last events of this device.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) events_of: Option<String>,
    /// Only events before this position, with --events-of.
    #[arg(long, value_name = "POSITION", requires = "events_of")]
    pub(crate) before: Option<u64>,
    /// At most so many events, with --events-of.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) api: ApiServer,
}
