//! Every setting of the server, with its type, default, range and effect: the one place to look and to change.
//!
//! The comments below are the texts of `tidings config reference` and of the example file, so they speak to operators.
//! Relations between settings are checked elsewhere, once all were read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::HeaderName;
use tidings_api::SubjectPattern;
use tidings_types::{AppId, DeviceId, Environment, EventChannels, TopicName};

use super::field::section;
use super::value::{AppleId, ByteSize, HostPort, LogFormat, Ramp, Scope, Secret, Sha256, Tag, WebUrl};

section! {
    /// The server.
    Config {
        /// Folder for everything durable; made if it is not there. One server at a time.
        data_dir: PathBuf = "tidings-data";
        /// Listeners and requests.
        http: Http;
        /// Who may call the server API.
        api: Api;
        /// Apps that call the API themselves.
        apps: Apps;
        /// How fast callers of the API may ask.
        limits: Limits;
        /// Client connections.
        client: Client;
        /// How publications are written to connections.
        edge: Edge;
        /// All channels together.
        channels: Channels;
        /// Rules of channels, by namespace.
        channel: Channel;
        /// Events in live channels.
        events: Events;
        /// Texts of notifications, by topic of the event.
        topics: BTreeMap<TopicName, Topic>, like "goal";
        /// Catalogues.
        translations: Translations;
        /// Credentials for Apple's push service; the name is yours.
        apns: BTreeMap<String, Apns>, like "main";
        /// Firebase projects, for Android; the name is yours.
        fcm: BTreeMap<String, Fcm>, like "main";
        /// Keys for the push services of browsers (Web Push); the name is yours.
        web_push: BTreeMap<String, WebPush>, like "main";
        /// Shadow mode: everything runs but the last step, for all but a few devices.
        shadow: Shadow;
        /// Durable data.
        store: Store;
        /// Jobs: events on their way to devices.
        sender: Sender;
        /// Telling a back end of yours when an event is done.
        webhook: Webhook;
        /// Metrics sent to an agent, besides being read at /metrics.
        influx: Influx;
        /// Log lines, written to standard error.
        log: Log;
    }

    /// Listeners and requests.
    Http {
        /// Where clients and servers connect; port 0 takes a free one. Beyond loopback, API keys are required.
        listen: SocketAddr = "127.0.0.1:8000";
        /// When set, /api, /v1, /openapi.json and /metrics are served here and no longer on `listen`.
        internal_listen: Option<SocketAddr>, like "127.0.0.1:8001";
        /// Largest body of an API request; a larger one is refused with 413.
        body_bytes_max: ByteSize = "4MiB", from "64KiB" to "64MiB";
        /// API requests in work at a time; one more is refused with 503.
        request_count_max: usize = "256", from "1" to "65536";
        /// Connections of one address that are still HTTP, of IPv6 those of a /64; one more is closed as it comes. Never
        /// more than half of what the limit of open files allows. 0 is no limit. Behind a proxy all clients have its address: set 0, or what the proxy may hold.
        address_connection_count_max: usize = "10000", from "0" to "10000000";
        /// A peer that takes no byte for this long while something waits for it is closed; WebSockets as well.
        stall_timeout: Duration = "10s", from "100ms" to "10m";
    }

    /// Who may call the server API.
    Api {
        /// Keys; without any, and only on loopback, one is made at the first start: DATA_DIR/api-key.
        keys: Vec<ApiKey>;
    }

    /// A key of the server API. Give exactly one of `key`, `key_file` and `sha256`.
    ApiKey {
        /// Who holds it, for logs.
        name: String, like "backend";
        /// The key itself, at least 16 characters; better in a file or as a hash.
        key: Option<Secret>, like "change-me-change-me";
        /// A file that holds the key.
        key_file: Option<PathBuf>, like "/run/secrets/tidings-api-key";
        /// The SHA-256 of the key in hexadecimal digits, so that the key is nowhere on this machine.
        sha256: Option<Sha256>, like "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        /// What its holder may do: publish, read, devices, metrics, operate, which is to hold the brakes, and backup,
        /// which is to back up the store and export devices, with all tokens; that one only where it is named.
        scopes: Vec<Scope> = "[\"publish\", \"read\", \"devices\", \"metrics\", \"operate\"]";
        /// Devices that one event of its holder may go to; one with a larger audience is refused. Without it any number.
        audience_max: Option<u64>, like "10000";
    }

    /// Apps that call the API themselves, each for its own device (docs/apps.md): with their device's credential, and where
    /// `client.token_hmac_secret` is set, with the token that they connect with. They do so on `http.listen`.
    Apps {
        /// Whether they may.
        enabled: bool = "false";
        /// What an app may subscribe its device to: a subject, team:* for all of a kind, or * for all. Users are never
        /// among them, and what a backend subscribes a device to does not depend on it.
        subjects: Vec<SubjectPattern>, like "[\"team:*\", \"match:*\"]";
        /// Web sites whose pages may call (CORS), such as `https://example.com`, or `*` for all. Apps are not asked.
        allowed_origins: Vec<String>;
        /// Devices of a user from which on no app registers one more.
        user_device_count_max: usize = "20", from "1" to "1000";
        /// Behind a proxy: the header in which it says who asks; the last address in it counts.
        address_header: Option<HeaderName>, like "X-Forwarded-For";
    }

    /// How fast callers of the API may ask; what is too fast is refused with 429. 0 is no limit.
    Limits {
        /// Requests a second of one API key.
        key_per_second: u32 = "0", from "0" to "1000000";
        /// Its requests at once after a pause.
        key_burst: u32 = "1000", from "1" to "1000000";
        /// Requests a second of the apps of one user, or of one device that shows its credential only.
        app_per_second: u32 = "10", from "0" to "1000000";
        /// Their requests at once after a pause.
        app_burst: u32 = "60", from "1" to "1000000";
        /// Requests a second of apps from one address, before they have proven anything: of IPv6 a /64. Behind a proxy name
        /// `apps.address_header`, else all are of one address.
        address_per_second: u32 = "500", from "0" to "1000000";
        /// Their requests at once after a pause.
        address_burst: u32 = "2000", from "1" to "1000000";
    }

    /// Client connections.
    Client {
        /// Development only: everybody may connect without token and do everything; channels `$…` still need a token.
        insecure: bool = "false";
        /// Clients without token may connect; they have no user.
        allow_anonymous: bool = "false";
        /// Secret that connection and subscription tokens (JWT; HS256, HS384, HS512) are signed with.
        token_hmac_secret: Option<Secret>, like "change-me-change-me-change-me-32";
        /// A file that holds it.
        token_hmac_secret_file: Option<PathBuf>, like "/run/secrets/tidings-token-secret";
        /// The secret before, still accepted: change secrets without disconnecting anybody.
        token_hmac_previous_secret: Option<Secret>, like "change-me-change-me-change-me-31";
        /// A file that holds it.
        token_hmac_previous_secret_file: Option<PathBuf>, like "/run/secrets/tidings-token-secret-before";
        /// Web sites whose pages may connect, such as `https://example.com`, or `*` for all. Apps are not asked.
        allowed_origins: Vec<String>;
        /// Time between two pings, in whole seconds.
        ping_interval: Duration = "25s", from "1s" to "1h";
        /// How long a pong may take before the connection is closed (3012).
        pong_timeout: Duration = "8s", from "500ms" to "1h";
        /// How long a new connection may take to send `connect` before it is closed (3502).
        stale_close_delay: Duration = "10s", from "100ms" to "5m";
        /// How long a closing connection may take to be flushed and closed by its peer.
        close_timeout: Duration = "5s", from "100ms" to "1m";
        /// Channels one connection may subscribe to.
        channel_count_max: usize = "128", from "1" to "65536";
        /// Channels with a history that one user may create by publishing, per minute and loop; for more the client is told to
        /// try again later (111). Clients without a user count as one.
        channel_creations_per_minute: u32 = "60", from "1" to "1000000";
        /// Largest frame from a client; a larger one closes the connection (1009).
        frame_bytes_max: ByteSize = "64KiB", from "1KiB" to "16MiB";
        /// Connections at a time; one more is refused with 503.
        connection_count_max: usize = "100000", from "1" to "10000000";
        /// Missed publications one recovery returns at most; more missed is "not recovered".
        recovery_count_max: usize = "300", from "1" to "10000";
        /// Bytes of one answer to a client: with more missed, a recovery is "not recovered"; a history answer ends early; who
        /// is present is refused (106). A single publication may be larger.
        reply_bytes_max: ByteSize = "1MiB", from "16KiB" to "256MiB";
        /// A client that takes no byte for so long, while some wait for it, is cut off.
        write_timeout: Duration = "30s", from "1s" to "5m";
        /// How long connections have, at the server's end, to be told so and closed.
        shutdown_timeout: Duration = "10s", from "0s" to "10m";
    }

    /// How publications are written to connections.
    Edge {
        /// Loops that share the connections; 0 is one per core.
        loops: usize = "0", from "0" to "1024";
        /// Bytes written to one connection before it is another's turn.
        turn_bytes_max: ByteSize = "256KiB", from "4KiB" to "16MiB";
        /// Replies that may wait for a reader; over it none of its commands is done until it takes some.
        control_bytes_max: ByteSize = "1MiB", from "64KiB" to "64MiB";
        /// Memory for replies that wait for all readers of one loop; over it, those that have taken nothing for longest are cut off.
        reply_budget_bytes: ByteSize = "64MiB", from "1MiB" to "64GiB";
        /// Bytes of publications kept per channel for readers that are behind; who falls off is closed as slow (3008).
        log_bytes_max: ByteSize = "1MiB", from "64KiB" to "1GiB";
        /// Publications kept per channel for readers that are behind.
        log_count_max: usize = "4096", from "16" to "1000000";
        /// Events whose receipts are collected at a time; one more, and the oldest is forgotten: its devices are pushed.
        receipt_event_count_max: usize = "10000", from "16" to "1000000";
    }

    /// All channels together.
    Channels {
        /// Channels that are subscribed to or have a history; publishing or subscribing to one more is refused.
        count_max: usize = "100000", from "1" to "10000000";
    }

    /// Rules of channels, by namespace: the text before the first `:` of the channel's name.
    Channel {
        /// Channels without `:` in their name.
        without_namespace: Namespace;
        /// Channels NAME:anything; a channel of a namespace not named here does not exist.
        namespaces: BTreeMap<String, Namespace>, like "match";
    }

    /// Rules of the channels of one namespace.
    Namespace {
        /// Publications, their order and positions survive a restart, also a crash. Needs a history.
        durable: bool = "false";
        /// Publications kept per channel; 0 keeps none.
        history_size: u32 = "0", from "0" to "1000000";
        /// Channels of the namespace at a time; publishing or subscribing to one more is refused, but events are not. 0 is half
        /// of `channels.count_max`, or, if `durable`, of `store.channel_count_max`.
        channel_count_max: u32 = "0", from "0" to "100000000";
        /// How long after the last publication they are kept; 0s keeps none.
        history_ttl: Duration = "0s", from "0s" to "365d";
        /// Every subscription resumes after a break where it was. Needs a history.
        force_recovery: bool = "false";
        /// Subscriptions resume when the client asks for it. Needs a history.
        allow_recovery: bool = "false";
        /// It is known who is subscribed.
        presence: bool = "false";
        /// Clients with a user may subscribe without a token for the channel.
        allow_subscribe_for_client: bool = "false";
        /// Clients without a user may, too.
        allow_subscribe_for_anonymous: bool = "false";
        /// Clients with a user may publish.
        allow_publish_for_client: bool = "false";
        /// Clients that are subscribed may publish.
        allow_publish_for_subscriber: bool = "false";
        /// Clients without a user may, too.
        allow_publish_for_anonymous: bool = "false";
        /// Clients with a user may read the history.
        allow_history_for_client: bool = "false";
        /// Clients that are subscribed may read the history.
        allow_history_for_subscriber: bool = "false";
        /// Clients without a user may, too.
        allow_history_for_anonymous: bool = "false";
        /// Clients with a user may ask who is subscribed.
        allow_presence_for_client: bool = "false";
        /// Clients that are subscribed may ask who is subscribed.
        allow_presence_for_subscriber: bool = "false";
        /// Clients without a user may, too.
        allow_presence_for_anonymous: bool = "false";
    }

    /// Events in live channels.
    Events {
        /// Where an event is published live that names no `channels`: in the channel named like its first subject
        /// (first_subject), in those of all its subjects (all_subjects), or in none, where you only push (none). Each needs a
        /// durable namespace.
        channels: EventChannels = "first_subject";
    }

    /// Text of the notifications of one topic, in English or whatever your source language is; `%{name}` is a parameter.
    Topic {
        /// Gettext domain: translations are in DIR/LOCALE/LC_MESSAGES/DOMAIN.po.
        domain: String = "messages";
        /// Title.
        title: String, like "Goal for %{team}!";
        /// Body.
        body: String, like "%{scorer} scores in minute %{minute}.";
        /// Title when `count` is not one.
        title_plural: Option<String>, like "%{goals} goals for %{team}!";
        /// Body when `count` is not one.
        body_plural: Option<String>, like "%{scorer} scores %{goals} times.";
        /// The parameter that chooses between singular and plural.
        count: Option<String>, like "goals";
        /// Gettext context, to tell apart texts that are the same in the source language only.
        context: Option<String>, like "match";
    }

    /// Catalogues.
    Translations {
        /// Folder with LOCALE/LC_MESSAGES/DOMAIN.po; without it every text goes out in the source language.
        dir: Option<PathBuf>, like "locales";
    }

    /// A credential for Apple's push service and the apps it is for: a signing key (`key_file`, `key_id`, `team_id`) or a
    /// certificate (`certificate_file`, `certificate_key_file`). On SIGHUP the files are read again.
    Apns {
        /// Which world: production, or sandbox for apps from a developer's machine.
        environment: Environment = "production";
        /// The service's host; without it Apple's own of the environment.
        host: Option<String>, like "api.push.apple.com";
        /// Its port.
        port: u16 = "443", from "1" to "65535";
        /// Id of the signing key.
        key_id: Option<AppleId>, like "ABC123DEFG";
        /// Id of the team.
        team_id: Option<AppleId>, like "DEF123GHIJ";
        /// The signing key as Apple gives it out (.p8).
        key_file: Option<PathBuf>, like "AuthKey_ABC123DEFG.p8";
        /// Instead of a signing key: a certificate and its chain (PEM).
        certificate_file: Option<PathBuf>, like "certificate.pem";
        /// The certificate's private key (PEM, without a passphrase); may be the same file.
        certificate_key_file: Option<PathBuf>, like "certificate.pem";
        /// Bundle ids of the apps this credential is for; with a suffix such as `.voip` for tokens of another kind
        /// (docs/payload.md).
        apps: Vec<AppId>, like "[\"com.example.app\"]";
        /// Connections kept open.
        connection_count: usize = "2", from "1" to "64";
        /// Connections at most: more are opened while all that are open are full, and closed when they idle.
        connection_count_max: usize = "16", from "1" to "64";
        /// Threads that drive them.
        thread_count: usize = "1", from "1" to "64";
        /// Connections for devices that Apple has not accepted a push for yet: wrong tokens slow a connection down. 0 sends to
        /// them like to all others.
        quarantine_connection_count: usize = "2", from "0" to "16";
        /// Notifications in flight per connection, if Apple allows as many.
        stream_count_max: usize = "1000", from "1" to "10000";
        /// Notifications of each priority that wait for a connection; full, the sender waits. At most twice those in flight.
        lake_capacity: usize = "4000", from "1" to "1000000";
        /// How long connecting may take, TLS included.
        connect_timeout: Duration = "10s", from "100ms" to "5m";
        /// A connection from which nothing came for this long, although asked, is closed.
        stall_timeout: Duration = "10s", from "100ms" to "5m";
        /// How long a notification may wait for its answer on a connection that is alive.
        answer_timeout: Duration = "30s", from "100ms" to "10m";
        /// Certificates (PEM) to trust instead of the system's, for a simulator.
        ca_file: Option<PathBuf>, like "simulator/ca.pem";
    }

    /// A Firebase project and the Android apps that are in it. On SIGHUP the file is read again.
    Fcm {
        /// The service account's key file as the Firebase console gives it out (JSON).
        service_account_file: Option<PathBuf>, like "service-account.json";
        /// Application ids of the apps in the project, as devices name them.
        apps: Vec<AppId>, like "[\"com.example.app\"]";
        /// Messages a minute that the project may send; Google's default. In no 60 seconds are more sent. Where several
        /// servers send for one project, each needs a share.
        quota_per_minute: u32 = "600000", from "1" to "100000000";
        /// How fast sending begins after quiet time: "none" at the rate that was last sustained, "minute" at a tenth of it,
        /// all of it after a minute of sending, as Google recommends for bulk traffic.
        ramp: Ramp = "none";
        /// The service's host.
        host: String = "fcm.googleapis.com";
        /// Its port.
        port: u16 = "443", from "1" to "65535";
        /// Connections kept open. With 100 messages in flight on each and a round trip of 70 ms, 8 send 11 400 a second: a little
        /// more than Google's default quota.
        connection_count: usize = "8", from "1" to "64";
        /// Connections at most: more are opened while all that are open are full, and closed when they idle.
        connection_count_max: usize = "32", from "1" to "64";
        /// Threads that drive them.
        thread_count: usize = "1", from "1" to "64";
        /// Messages in flight per connection, if Google allows as many.
        stream_count_max: usize = "100", from "1" to "10000";
        /// Messages of each priority that wait for a connection; full, the sender waits. At most twice those in flight.
        lake_capacity: usize = "2000", from "1" to "1000000";
        /// How long connecting may take, TLS included.
        connect_timeout: Duration = "10s", from "100ms" to "5m";
        /// A connection with messages in flight from which nothing came for this long, although asked, is closed.
        stall_timeout: Duration = "60s", from "100ms" to "5m";
        /// How long a message may wait for its answer on a connection that is alive.
        answer_timeout: Duration = "30s", from "100ms" to "10m";
        /// Certificates (PEM) to trust instead of the system's, for a simulator.
        ca_file: Option<PathBuf>, like "simulator/ca.pem";
    }

    /// A key that browsers' subscriptions were made with, and the web apps it is for. On SIGHUP the file is read again.
    WebPush {
        /// The private key (VAPID): P-256, as PEM (PKCS#8) or as 32 bytes in base64url.
        vapid_key_file: Option<PathBuf>, like "vapid.key";
        /// Where push services can reach you: mailto: or https:. Apple asks for it.
        contact: Option<String>, like "mailto:push@example.com";
        /// Names of the web apps, as devices give them.
        apps: Vec<AppId>, like "[\"www.example.com\"]";
        /// Hosts that may be sent to beside those of the known browsers; *.example.com is every name below example.com.
        allowed_hosts: Vec<String>, like "[\"push.example.com\"]";
        /// Ports that may be sent to beside 443.
        allowed_ports: Vec<u16>, like "[8443]";
        /// Development only: endpoints may be anywhere, also inside your network.
        allow_private: bool = "false";
        /// Push services below one wildcard of the hosts connected to at a time. Each host or wildcard has connections, queues
        /// and a quarantine of its own.
        origin_count_max: usize = "16", from "1" to "4096";
        /// Connections to one of them; over HTTP/1.1 each has one request under way.
        connection_count_max: usize = "32", from "1" to "256";
        /// Threads that encrypt and speak TLS, for each service: one does some 14 000 notifications a second.
        thread_count: usize = "1", from "1" to "64";
        /// Notifications of each priority that wait for a connection to one service; full, the sender waits.
        lake_capacity: usize = "1000", from "1" to "1000000";
        /// How long connecting may take, TLS included.
        connect_timeout: Duration = "10s", from "100ms" to "5m";
        /// How long a notification may wait for its answer.
        answer_timeout: Duration = "30s", from "100ms" to "10m";
        /// Certificates (PEM) to trust instead of the system's, for a simulator.
        ca_file: Option<PathBuf>, like "simulator/ca.pem";
    }

    /// Shadow mode: jobs run to the very last step, and only these devices are really pushed; all others are counted as
    /// suppressed. This is how you move over from another system.
    Shadow {
        /// Whether it is on.
        enabled: bool = "false";
        /// Devices that are pushed nevertheless.
        devices: Vec<DeviceId>, like "[\"my-phone\"]";
        /// So many percent of all devices are pushed, always the same ones and with more all of those before.
        percent: u32 = "0", from "0" to "100";
    }

    /// Durable data.
    Store {
        /// Events kept until they are delivered and forgotten; full, the API answers 503.
        journal_event_count_max: u64 = "12000000", from "1000" to "1000000000";
        /// Bytes of those events; full, the API answers 503.
        journal_bytes_max: ByteSize = "16GiB", from "16MiB" to "65536GiB";
        /// How long an event's id is remembered: a retry within it is no second event. Less when the journal is nearly full.
        id_window: Duration = "24h", from "1m" to "30d";
        /// Ids remembered at most; with more, the oldest are forgotten earlier.
        id_window_count: u64 = "10000000", from "1000" to "1000000000";
        /// Events and durable publications that wait to be written; full, the API answers 503.
        event_queue_count_max: usize = "4096", from "16" to "1000000";
        /// Their bytes.
        event_queue_bytes_max: ByteSize = "64MiB", from "8MiB" to "4GiB";
        /// Changes of devices that wait to be written; full, the API answers 503.
        device_queue_count_max: usize = "4096", from "16" to "1000000";
        /// Their bytes.
        device_queue_bytes_max: ByteSize = "16MiB", from "1MiB" to "4GiB";
        /// Chunks of bulk imports that wait to be written.
        import_queue_count_max: usize = "16", from "1" to "1024";
        /// Their bytes.
        import_queue_bytes_max: ByteSize = "64MiB", from "1MiB" to "4GiB";
        /// Devices that can be registered.
        device_count_max: u32 = "10000000", from "1" to "4000000000";
        /// Subscriptions of one device, each a subject with a topic.
        subscription_count_max: u32 = "10000", from "1" to "65535";
        /// Mutes of one device, each of a subject or of everything.
        mute_count_max: u32 = "256", from "1" to "10000";
        /// A device that nobody has seen for this long is deleted, within about a day: it did not register, change or prove
        /// itself. A connection counts on the day on which it was made: choose longer than connections last. 0s keeps it
        /// for ever.
        device_idle_max: Duration = "0s", from "0s" to "3650d";
        /// Events whose time is still to come; one more is refused with 503.
        later_count_max: u64 = "100000", from "1" to "10000000";
        /// Durable channels that are remembered; publishing into one more is refused with 503.
        channel_count_max: u64 = "1000000", from "1" to "100000000";
        /// A durable channel whose history is empty and in which nothing was published for this long is forgotten. A reader
        /// that comes back to it then starts anew.
        channel_ttl: Duration = "24h", from "1s" to "3650d";
        /// Memory for blocks read from disk.
        cache_bytes: ByteSize = "64MiB", from "1MiB" to "1024GiB";
        /// Changes of devices and subscriptions until the next checkpoint of what is in memory; with more of them a start
        /// after a crash takes longer.
        checkpoint_change_count: u64 = "100000", from "1000" to "100000000";
        /// First pause before the store is opened again after the disk failed; it doubles.
        reopen_backoff_min: Duration = "100ms", from "1ms" to "1m";
        /// Longest pause before the store is opened again.
        reopen_backoff_max: Duration = "5s", from "10ms" to "10m";
    }

    /// Jobs: events on their way to devices.
    Sender {
        /// Slots: jobs that send at a time. Others wait, and while they do, jobs stop waiting for receipts after 500 ms.
        job_count_max: usize = "1024", from "1" to "100000";
        /// Devices read, translated for and handed on in one go.
        window_device_count: usize = "1024", from "1" to "65536";
        /// Such windows of one job and credential that may be on their way at a time.
        window_open_count_max: usize = "32", from "1" to "65536";
        /// Finished jobs whose counts are remembered; of those, too, that the webhook's receiver has not taken yet.
        report_count_max: usize = "10000", from "1" to "1000000";
        /// Dead tokens that wait to be removed; more are forgotten until the provider names them again.
        gone_token_count_max: usize = "4096", from "1" to "1000000";
        /// A token that its provider calls none of its own is removed after this long, unless many are called so meanwhile:
        /// these are kept, and `tidings_sender_environment_alarm` is 1.
        doubt_window: Duration = "1m", from "1s" to "1d";
        /// Progress is noted at least this often: after a crash, what was sent since may be sent again.
        checkpoint_interval: Duration = "100ms", from "10ms" to "10s";
    }

    /// Telling a back end of yours when an event is done: signed requests (Standard Webhooks). See docs/webhook.md. On SIGHUP
    /// the secrets are taken again.
    Webhook {
        /// Where reports are sent; without it nobody is told.
        url: Option<WebUrl>, like "https://backend.example.com/hooks/tidings";
        /// An address with http is accepted: signatures are checked, but everybody on the way can read along.
        allow_http: bool = "false";
        /// Secret that reports are signed with: whsec_ and base64 of 24 to 64 random bytes.
        secret: Option<Secret>, like "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu";
        /// A file that holds it.
        secret_file: Option<PathBuf>, like "/run/secrets/tidings-webhook-secret";
        /// The secret before; reports are signed with both, while the receiver changes over.
        previous_secret: Option<Secret>, like "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFv";
        /// A file that holds it.
        previous_secret_file: Option<PathBuf>, like "/run/secrets/tidings-webhook-secret-before";
        /// Certificates (PEM) to trust instead of the system's.
        ca_file: Option<PathBuf>, like "receiver-ca.pem";
        /// Reports on their way at a time, each on a connection of its own; these, and one to spare, are kept open.
        in_flight_max: usize = "4", from "1" to "64";
        /// How long an attempt may take, from its beginning to the whole answer.
        timeout: Duration = "15s", from "100ms" to "5m";
        /// Shortest pause before a report is tried again; pauses are random, and can be twice as long after each attempt.
        backoff_min: Duration = "1s", from "10ms" to "1h";
        /// Longest pause, also where the receiver asks for more.
        backoff_max: Duration = "1h", from "10ms" to "24h";
        /// How long after the end of its event a report is tried, for the last time then. Meanwhile those not taken wait,
        /// `sender.report_count_max` at most; with more, the oldest are forgotten.
        give_up_after: Duration = "24h", from "1s" to "30d";
    }

    /// Metrics sent to an agent over UDP, as InfluxDB lines: to InfluxDB, Telegraf or VictoriaMetrics. See docs/metrics.md.
    Influx {
        /// Where the agent listens; without it nothing is sent. A name is looked up again when its host refuses a packet.
        address: Option<HostPort>, like "127.0.0.1:8089";
        /// Time between two flushes. A point covers what came since the one before.
        interval: Duration = "10s", from "1s" to "1h";
        /// Sockets that packets are spread over.
        socket_count: usize = "2", from "1" to "16";
        /// Largest packet, without the headers of UDP and IP; 1432 bytes fit undivided into a frame of Ethernet.
        packet_bytes: ByteSize = "1432B", from "512B" to "65507B";
        /// Tags of every point, KEY=VALUE; `host` is this machine's name unless you give another.
        tags: Vec<Tag>, like "[\"host=web-1\", \"region=eu\"]";
    }

    /// Log lines, written to standard error.
    Log {
        /// text for people, json for machines.
        format: LogFormat = "text";
        /// Which lines: a level, or levels by component, such as "warn,tidings_edge=debug".
        filter: String = "info,fjall=warn,lsm_tree=warn";
    }
}
