//! Every setting of the server, with its type, default, range and effect: the one place to look and to change.
//!
//! The comments below are the texts of `tidings config reference` and of the example file. Their readers are operators.
//! Relations between settings are checked in `check`, after all settings were read.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use axum::http::HeaderName;
use tidings_api::Scope;
use tidings_api::SubjectPattern;
use tidings_console::Role;
use tidings_protocol::{DataFormat, DeltaType, RecoveryMode, SlowReaders, TextPattern};
use tidings_types::{
    AppId, DeviceId, Environment, EventChannels, FeedName, Interruption, Locale, OriginPattern, TopicName,
};

use super::field::section;
use super::value::{
    AppleId, ByteSize, HostPort, LogFormat, Missing, Moment, Percentage, Ramp, Secret, Sha256, StaticHeader, Tag,
    WebUrl,
};

section! {
    /// The server.
    Config {
        /// Folder for all durable data; the server creates it, or takes an empty one. Only one server may use it at a time.
        data_dir: PathBuf = "tidings-data";
        /// Listeners and requests.
        http: Http;
        /// API keys: which programs may call the server API.
        api: Api;
        /// Apps that call the API for their own device.
        apps: Apps;
        /// Limits on the rate of requests to the API.
        limits: Limits;
        /// Client connections.
        client: Client;
        /// How publications are written to connections.
        edge: Edge;
        /// All channels together.
        channels: Channels;
        /// Rules of channels, by namespace.
        channel: Channel;
        /// Hooks: addresses of your back end that the server asks while it handles a client's command (docs/hooks.md); the
        /// name is yours.
        hooks: BTreeMap<String, Hook>, like "backend";
        /// RPCs of clients.
        rpc: Rpc;
        /// Events in live channels.
        events: Events;
        /// Feeds: documents whose entries become events (docs/feeds.md); the name is yours.
        feeds: BTreeMap<FeedName, Feed>, like "news";
        /// Tables of PostgreSQL from which events are taken (docs/sources.md); the name is yours.
        outbox: BTreeMap<String, Outbox>, like "orders";
        /// Streams of NATS JetStream from which events are taken (docs/sources.md); the name is yours.
        jetstream: BTreeMap<String, JetStream>, like "shop";
        /// Texts of notifications, by the event's topic.
        topics: BTreeMap<TopicName, Topic>, like "goal";
        /// Names that events show in each language (docs/values.md). The section's name is their `context`.
        names: BTreeMap<String, Names>, like "team";
        /// Translations of the texts.
        translations: Translations;
        /// Credentials for Apple's push service; the name is yours.
        apns: BTreeMap<String, Apns>, like "main";
        /// Firebase projects, for Android; the name is yours.
        fcm: BTreeMap<String, Fcm>, like "main";
        /// Keys for the push services of browsers (Web Push); the name is yours.
        web_push: BTreeMap<String, WebPush>, like "main";
        /// Shadow mode: everything runs except the last step, for all but a few devices.
        shadow: Shadow;
        /// Durable data.
        store: Store;
        /// Several servers of which one leads and the others take over (docs/cluster.md).
        cluster: Cluster;
        /// Jobs: events on their way to devices.
        sender: Sender;
        /// Reports to your back end when an event is done.
        webhook: Webhook;
        /// Metrics that are sent to an agent; they can also be read at /metrics.
        influx: Influx;
        /// Traces of events that are sent to an OpenTelemetry collector.
        traces: Traces;
        /// The audit log: who changed what (docs/audit.md).
        audit: Audit;
        /// Log lines, written to standard error.
        log: Log;
        /// The console: web pages for operators (docs/console.md).
        console: Console;
    }

    /// Several servers that share a log on NATS JetStream: one leads, the others follow, and one of them takes over when
    /// it is gone (docs/cluster.md). Without `servers`, this server is alone.
    Cluster {
        /// The servers of NATS (2.15 or later, with JetStream): `nats://HOST:PORT` or `tls://HOST:PORT`. Plain text is
        /// refused beyond loopback.
        servers: Vec<String>, like "[\"tls://nats-1.example.com:4222\", \"tls://nats-2.example.com:4222\"]";
        /// A credentials file of NATS (.creds).
        credentials_file: Option<PathBuf>, like "tidings.creds";
        /// Certificates (PEM) to trust instead of those of the system.
        ca_file: Option<PathBuf>, like "nats-ca.pem";
        /// The name of the cluster, the same on all its servers: its streams are named after it.
        name: String = "tidings";
        /// The name of this server, which no other server of the cluster has. Without it, the name of the machine.
        node: Option<String>, like "a";
        /// Where the other servers reach this one's API: http.internal_listen if that is set, else http.listen. While it leads,
        /// they pass on to it what only the leader does. Shown by `tidings cluster status` and by /ready.
        address: Option<String>, like "https://a.example.com";
        /// Whether this server may lead. One that may not serves clients and follows, such as a machine that comes and goes with the
        /// number of clients. At least one server must be allowed to.
        may_lead: bool = "true";
        /// On how many NATS servers each entry of the log is kept: 1, 3 or 5.
        replicas: u32 = "3", from "1" to "5";
        /// Disk for the log on each NATS server. When half of it is full, a copy of the store is made and the log trimmed.
        log_bytes_max: ByteSize = "4GiB", from "16MiB" to "1024GiB";
    }

    /// The console: web pages for operators, at /console (docs/console.md). Who opens it logs in with an API key.
    Console {
        /// Whether it is served: at `http.internal_listen` if that is set, else at `http.listen`.
        enabled: bool = "false";
        /// A login ends after this time.
        session_ttl: Duration = "12h", from "1m" to "30d";
        /// A login ends when nobody has used it for this long.
        session_idle: Duration = "1h", from "1m" to "30d";
        /// Logins at a time; with one more, the one that was quiet for longest ends.
        session_count_max: usize = "64", from "1" to "4096";
        /// Behind a proxy that logs people in: the header in which it names the user. The proxy must set it in every
        /// request, or remove it.
        user_header: Option<HeaderName>, like "X-Forwarded-User";
        /// The header in which the proxy names the role: `viewer` or `operator`.
        role_header: Option<HeaderName>, like "X-Forwarded-Role";
        /// The role of the proxy's users if the proxy names none. A viewer looks, an operator also acts.
        role: Role = "viewer";
        /// The addresses of the proxies that are believed. If `http.internal_listen` is on loopback, this machine is
        /// believed, too.
        trusted_proxies: Vec<IpAddr>, like "[\"10.0.0.2\"]";
    }

    /// Listeners and requests.
    Http {
        /// Address for clients and servers; port 0 takes a free port. An address beyond loopback requires API keys.
        listen: SocketAddr = "127.0.0.1:8000";
        /// If set, /api, /v1, /openapi.json and /metrics are served at this address, and no longer at `listen`.
        internal_listen: Option<SocketAddr>, like "127.0.0.1:8001";
        /// Largest body of an API request; a larger one is refused with 413.
        body_bytes_max: ByteSize = "4MiB", from "64KiB" to "64MiB";
        /// API requests in work at a time; a further one is refused with 503.
        request_count_max: usize = "256", from "1" to "65536";
        /// Connections of one address that are still HTTP (for IPv6: of one /64); a further one is closed at once. The
        /// limit is never more than half of the limit of open files. 0 is no limit. Behind a proxy all clients have the
        /// proxy's address: set 0, or the most connections of the proxy.
        address_connection_count_max: usize = "10000", from "0" to "10000000";
        /// New connections in a second, of the public listener; further ones wait in the queue of the system. When all clients come back
        /// at once, they are let in at this rate. 0 is no limit.
        accept_per_second: u32 = "0", from "0" to "1000000";
        /// A connection, also a WebSocket, is closed if its peer takes no byte for this long while bytes wait for it.
        stall_timeout: Duration = "10s", from "100ms" to "10m";
        /// TLS for clients and servers.
        tls: Tls;
    }

    /// TLS 1.2 and 1.3 for clients and servers; off without a certificate. On SIGHUP the files are read again: new
    /// connections get the new certificate.
    Tls {
        /// The certificate of this server and its chain (PEM). With it `http.listen` speaks TLS only.
        certificate_file: Option<PathBuf>, like "/etc/tidings/fullchain.pem";
        /// The certificate's private key (PEM, without a passphrase); may be the same file.
        certificate_key_file: Option<PathBuf>, like "/etc/tidings/privkey.pem";
        /// If set, this address speaks TLS, and `http.listen` serves the same without TLS.
        listen: Option<SocketAddr>, like "0.0.0.0:8443";
    }

    /// API keys: which programs may call the server API.
    Api {
        /// The keys. Without keys, and only on loopback, the server makes one at the first start: DATA_DIR/api-key.
        keys: Vec<ApiKey>;
    }

    /// A key of the server API. Give exactly one of `key`, `key_file` and `sha256`.
    ApiKey {
        /// Name of the key's holder, for logs.
        name: String, like "backend";
        /// The key itself, at least 16 characters. A file or a hash is safer.
        key: Option<Secret>, like "change-me-change-me";
        /// A file that contains the key.
        key_file: Option<PathBuf>, like "/run/secrets/tidings-api-key";
        /// The SHA-256 of the key in hexadecimal digits; then the key itself need not be on this machine.
        sha256: Option<Sha256>, like "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        /// What the key allows. operate allows to pause and resume pushes, and to change live connections. audit allows to read the audit log. backup allows to back up the store and to
        /// export devices, with all tokens; a key has it only if you name it.
        scopes: Vec<Scope> = "[\"publish\", \"read\", \"devices\", \"metrics\", \"operate\"]";
        /// The most devices that one event of this key may be for; an event with more is refused. If not set, any
        /// number.
        audience_max: Option<u64>, like "10000";
    }

    /// Apps that call the API, each for its own device (docs/apps.md). An app proves itself by its device's credential,
    /// or by the token with which it connects, if `client.token` has a key. Apps call `http.listen`.
    Apps {
        /// Whether apps may call the API.
        enabled: bool = "false";
        /// The subjects that an app may subscribe its device to: a subject, team:* for all subjects of a kind, or * for
        /// all. Subjects that are users are never allowed. Backends may subscribe a device to any subject.
        subjects: Vec<SubjectPattern>, like "[\"team:*\", \"match:*\"]";
        /// Web sites whose pages may call the API (CORS): `https://example.com`, `https://*.example.com` for all hosts
        /// below example.com (not for example.com itself), or `*` for all. Scheme and port must be equal. Does not apply
        /// to apps outside browsers.
        allowed_origins: Vec<OriginPattern>;
        /// When a user has this many devices, the user's apps cannot register more.
        user_device_count_max: usize = "20", from "1" to "1000";
        /// Behind a proxy: the header in which the proxy gives the client's address; the last address in it counts. Also for
        /// `client.address_connection_count_max`.
        address_header: Option<HeaderName>, like "X-Forwarded-For";
    }

    /// Limits on the rate of requests to the API; requests above a limit are refused with 429. 0 is no limit.
    Limits {
        /// Requests per second of one API key.
        key_per_second: u32 = "0", from "0" to "1000000";
        /// Requests of one API key at once after a pause.
        key_burst: u32 = "1000", from "1" to "1000000";
        /// Requests per second of the apps of one user, or of one device that only shows its credential.
        app_per_second: u32 = "10", from "0" to "1000000";
        /// Requests of these apps at once after a pause.
        app_burst: u32 = "60", from "1" to "1000000";
        /// Requests per second of apps from one address (for IPv6: one /64), before they have proven anything. Behind a
        /// proxy set `apps.address_header`; otherwise all requests have the proxy's address.
        address_per_second: u32 = "500", from "0" to "1000000";
        /// Requests of apps from one address at once after a pause.
        address_burst: u32 = "2000", from "1" to "1000000";
    }

    /// Client connections.
    Client {
        /// Development only: everybody may connect without a token and do everything. Channels `$…` still need a token.
        insecure: bool = "false";
        /// Clients without a token may connect; they have no user.
        allow_anonymous: bool = "false";
        /// The hook that says who a client without a token is, and whether it may connect. If its answer has no result,
        /// `allow_anonymous` decides. Its `timeout` must be shorter than `client.stale_close_delay`.
        connect_hook: Option<String>, like "backend";
        /// The hook that says whether a connection whose time is over may go on. Without it clients refresh their tokens.
        refresh_hook: Option<String>, like "backend";
        /// Your back end is told when a user's first connection comes and when its last one is gone, at
        /// `webhook.presence_url`. Clients without a user are not told of.
        connection_webhook: bool = "false";
        /// Web sites whose pages may connect: `https://example.com`, `https://*.example.com` for all hosts below
        /// example.com (not for example.com itself), or `*` for all. Scheme and port must be equal. Does not apply to
        /// apps outside browsers.
        allowed_origins: Vec<OriginPattern>;
        /// Clients may connect without a WebSocket, by server-sent events (/connection/sse). Their commands come to
        /// /emulation.
        sse: bool = "false";
        /// Clients may connect without a WebSocket, by an HTTP response that never ends (/connection/http_stream). Their
        /// commands come to /emulation.
        http_stream: bool = "false";
        /// Programs that only listen may connect by a WebSocket (/connection/uni_websocket), without an SDK.
        uni_websocket: bool = "false";
        /// Programs that only listen may connect by server-sent events (/connection/uni_sse), without an SDK.
        uni_sse: bool = "false";
        /// Programs that only listen may connect by an HTTP response that never ends (/connection/uni_http_stream), without
        /// an SDK.
        uni_http_stream: bool = "false";
        /// Time between two pings, in whole seconds.
        ping_interval: Duration = "25s", from "1s" to "1h";
        /// How long a pong may take before a WebSocket is closed (3012). Other transports stay open: there a pong that is
        /// late only gives no receipt.
        pong_timeout: Duration = "8s", from "500ms" to "1h";
        /// How long a new connection may take to send `connect` before it is closed (3502).
        stale_close_delay: Duration = "10s", from "100ms" to "5m";
        /// How long a closing connection may take until everything is written and the client has closed.
        close_timeout: Duration = "5s", from "100ms" to "1m";
        /// The most channels that one connection may subscribe to.
        channel_count_max: usize = "128", from "1" to "65536";
        /// Channels with a history that one user may create by publishing, per minute and loop. Above that the client
        /// gets error 111 and should try again later. All clients without a user count as one user.
        channel_creations_per_minute: u32 = "60", from "1" to "1000000";
        /// Largest message from a client; a larger one closes the connection (1009). Also the largest body of a request to
        /// /emulation and to the transports without WebSocket; a larger one is refused with 413.
        frame_bytes_max: ByteSize = "64KiB", from "1KiB" to "16MiB";
        /// Connections at a time; a further one is refused with 503.
        connection_count_max: usize = "100000", from "1" to "10000000";
        /// Connections of one address at a time (for IPv6: of one /64), on each server; a further one is refused with 429. Behind a
        /// proxy set `apps.address_header`; otherwise all clients have the proxy's address. 0 is no limit.
        address_connection_count_max: usize = "0", from "0" to "10000000";
        /// Connections of one user at a time, on each server; a further one is closed (3504). Clients without a user are not
        /// counted. 0 is no limit.
        user_connection_count_max: usize = "0", from "0" to "10000000";
        /// The most missed publications that one recovery returns. If more were missed, the client is told "not
        /// recovered".
        recovery_count_max: usize = "300", from "1" to "10000";
        /// The most bytes of one answer to a client. If more was missed, a recovery is "not recovered"; a history
        /// answer ends early; a presence answer is refused (106). A single publication may be larger.
        reply_bytes_max: ByteSize = "1MiB", from "16KiB" to "256MiB";
        /// Bytes that one client is sent in a second, on average; its channels have equal shares. A client may ask for fewer
        /// (`bytes_per_second_max` in its connect data). What must wait is treated as for a slow reader: see `slow_readers`. 0B is no
        /// limit.
        bytes_per_second_max: ByteSize = "0B", from "0B" to "1GiB";
        /// A client that takes no byte for this long, while bytes wait for it, is cut off.
        write_timeout: Duration = "30s", from "1s" to "5m";
        /// When the server stops: over how long its clients are disconnected, so that they do not all come to another server at
        /// once. They are served until then. Few clients take less time: a thousand of them are disconnected in a second.
        shutdown_spread: Duration = "5s", from "0s" to "10m";
        /// When the server stops: how long requests may take to end, and clients to be disconnected. Clients have `shutdown_spread`
        /// and `close_timeout` together if that is longer. Who takes longer is cut off, and named in the log.
        shutdown_timeout: Duration = "10s", from "0s" to "10m";
        /// Who signs connection tokens, and what they must say.
        token: Token;
        /// The same for subscription tokens.
        subscription_token: Token;
        /// Personal channels of users.
        subscribe_to_user_personal_channel: PersonalChannel;
    }

    /// Keys of tokens (JSON Web Tokens), and what tokens must say. A key is only used for the algorithms beside it here.
    /// `client.token` is for connection tokens. Without a key in `client.subscription_token`, it is for subscription tokens,
    /// too. On SIGHUP all of this is read again, except `jwks_…`.
    Token {
        /// The secret with which your back end signs tokens: HS256, HS384, HS512.
        hmac_secret: Option<Secret>, like "change-me-change-me-change-me-32";
        /// A file that contains `hmac_secret`.
        hmac_secret_file: Option<PathBuf>, like "/run/secrets/tidings-token-secret";
        /// The previous secret, which is still accepted. With it you can change the secret without disconnecting
        /// anybody.
        hmac_previous_secret: Option<Secret>, like "change-me-change-me-change-me-31";
        /// A file that contains `hmac_previous_secret`.
        hmac_previous_secret_file: Option<PathBuf>, like "/run/secrets/tidings-token-secret-before";
        /// When the previous secret ends. If not set, it holds as long as it is configured.
        hmac_previous_secret_until: Option<Moment>, like "2026-12-31T00:00:00Z";
        /// Public keys in PEM, one in each file: RSA from 2048 bits (RS256, RS384, RS512, PS256, PS384, PS512), ECDSA
        /// (P-256: ES256, P-384: ES384), Ed25519 (EdDSA).
        public_key_files: Vec<PathBuf>, like "[\"/etc/tidings/tokens.pem\"]";
        /// Where the public keys of an identity provider are (JWKS): a JSON document with `keys`, at most 64 and 256
        /// KiB. A token names its key by `kid`. Redirects are not followed.
        jwks_url: Option<WebUrl>, like "https://id.example.com/.well-known/jwks.json";
        /// Allows an http address: whoever controls the network path to it can sign tokens.
        jwks_allow_http: bool = "false";
        /// Certificates (PEM) to trust for `jwks_url` instead of those of the system.
        jwks_ca_file: Option<PathBuf>, like "id-ca.pem";
        /// The keys are fetched again this often. While that fails, the old keys hold.
        jwks_refresh_interval: Duration = "10m", from "1s" to "1d";
        /// A token with an unknown `kid` makes the server fetch the keys, but never sooner than this after the last
        /// time. After a failure the server waits this long, too.
        jwks_fetch_interval_min: Duration = "10s", from "100ms" to "10m";
        /// How long one fetch may take. When the server starts, it waits that long for the keys, then starts without.
        jwks_timeout: Duration = "5s", from "100ms" to "1m";
        /// The token must name this audience (`aud`).
        audience: Option<String>, like "tidings";
        /// The token must name an audience that this regular expression matches as a whole.
        audience_regex: Option<TextPattern>, like "tidings-(eu|us)";
        /// The token must name this issuer (`iss`).
        issuer: Option<String>, like "https://id.example.com/";
        /// The token must name an issuer that this regular expression matches as a whole.
        issuer_regex: Option<TextPattern>, like "https://[a-z]+\\.example\\.com/";
        /// The claim that contains the user. Tokens without it are refused. If not set, it is `sub`, and a token
        /// without `sub` is for a client without a user.
        user_id_claim: Option<String>, like "uid";
        /// How far the clock of the issuer may be wrong (`exp`, `nbf`).
        leeway: Duration = "0s", from "0s" to "5m";
    }

    /// Personal channels of users. The server subscribes each connection of a user to the user's own channel.
    PersonalChannel {
        /// Whether users have personal channels.
        enabled: bool = "false";
        /// Namespace of the channels: the channel of user 42 is NAMESPACE:#42. If not set, it is #42.
        personal_channel_namespace: Option<String>, like "personal";
        /// Whether a user has one connection at a time: a new one closes those that the user had (3504).
        single_connection: bool = "false";
    }

    /// How publications are written to connections.
    Edge {
        /// Threads (loops) that share the connections; 0 is one per core.
        loops: usize = "0", from "0" to "1024";
        /// The most bytes written to one connection before the next connection is served.
        turn_bytes_max: ByteSize = "256KiB", from "4KiB" to "16MiB";
        /// Bytes of replies that may wait for one client; above that none of its commands is handled until it takes
        /// some.
        control_bytes_max: ByteSize = "1MiB", from "64KiB" to "64MiB";
        /// Memory for all that waits for clients. Three quarters are for publications that slow readers still need: above that,
        /// the oldest are dropped, of whatever channel, and whoever needs them is too slow. A quarter is for replies and what
        /// is recovered, the same part for each loop: above that, the clients that have taken nothing for longest are cut off.
        memory_bytes_max: ByteSize = "1GiB", from "16MiB" to "1024GiB";
        /// Memory for what clients have sent and what is not handled yet, the same part for each loop: unfinished messages, and
        /// commands that wait. Above that, the clients that hold most of it for longest are closed (3013).
        input_bytes_max: ByteSize = "256MiB", from "1MiB" to "64GiB";
        /// Bytes of publications kept per channel for slow readers, for each transport and format. A reader that needs an older
        /// one is too slow: see `slow_readers`.
        log_bytes_max: ByteSize = "1MiB", from "64KiB" to "1GiB";
        /// Publications kept per channel for slow readers. A reader that needs an older one is too slow: see `slow_readers`.
        log_count_max: usize = "4096", from "16" to "1000000";
        /// Events whose receipts are collected at a time. With one more, the collection whose time ends first is over: the
        /// devices of that event are pushed.
        receipt_event_count_max: usize = "10000", from "16" to "1000000";
        /// Memory for the receipts of all events together. Above that, it is first forgotten where and by whom events were
        /// received. Then the collection of events ends, those first whose time for receipts ends first: their devices are
        /// pushed. An event that alone needs more collects none.
        receipt_bytes_max: ByteSize = "256MiB", from "1MiB" to "64GiB";
    }

    /// All channels together.
    Channels {
        /// The most channels that have subscribers, a history or a position to resume from. For a further one the server forgets a
        /// channel that has only its position; if there is none, publishing or subscribing is refused (docs/server-api.md).
        count_max: usize = "100000", from "1" to "10000000";
        /// Bytes of the histories of all channels in memory. Above that the largest histories lose publications, of those of about
        /// one size the one without a new publication for longest; a client that comes back and missed them starts anew
        /// (`recovered` is false). Histories of durable channels are on the disk.
        history_bytes_max: ByteSize = "1GiB", from "1MiB" to "1024GiB";
    }

    /// Rules of channels, by namespace: the text before the first `:` of the channel's name.
    Channel {
        /// Longest name of a channel that clients may use, in bytes; a longer one is refused (107).
        name_bytes_max: usize = "255", from "1" to "255";
        /// Channels without `:` in their name.
        without_namespace: Namespace;
        /// Channels NAME:anything. A channel of a namespace that is not listed here does not exist.
        namespaces: BTreeMap<String, Namespace>, like "match";
    }

    /// Rules of the channels of one namespace.
    Namespace {
        /// Publications, their order and their offsets survive a restart and a crash. Needs a history.
        durable: bool = "false";
        /// Publications kept per channel; 0 keeps none.
        history_size: u32 = "0", from "0" to "1000000";
        /// Channels of the namespace at a time. For a further one the server forgets a channel of the namespace that has only
        /// its position; if there is none, publishing or subscribing is refused, but events are accepted. 0 is half of `channels.count_max`, or, if `durable`, of `store.channel_count_max`.
        channel_count_max: u32 = "0", from "0" to "100000000";
        /// How long after the last publication the history is kept; 0s keeps none.
        history_ttl: Duration = "0s", from "0s" to "365d";
        /// How long the position of a channel in memory is kept after its history is over and its last subscriber has left. A
        /// client that comes back in this time recovers. Then the channel is forgotten, and its next publication begins another
        /// epoch: a client that comes back later starts anew (`recovered` is false). Where there is no room for another channel,
        /// positions go earlier (docs/server-api.md). In a cluster the time is at least 30 days, because the leader does not
        /// know the subscribers of other servers. Not for `durable` channels: see `channel_ttl`.
        history_meta_ttl: Duration = "10m", from "0s" to "3650d";
        /// A channel whose history is over is forgotten after this long without a publication. A reader that comes back to it
        /// starts anew; so may, about once in this time, one of a durable channel of any namespace in which nothing was published
        /// so far. 0s is `store.channel_ttl`. Needs `durable`.
        channel_ttl: Duration = "0s", from "0s" to "3650d";
        /// Every subscription resumes from its last position after a break. Needs a history.
        force_recovery: bool = "false";
        /// Subscriptions resume if the client asks for it. Needs a history.
        allow_recovery: bool = "false";
        /// What a client gets that comes back: all that it missed ("stream"), or only the latest publication if it does
        /// not have it ("cache"), for channels in which each publication is the whole state. With "cache" the position from
        /// which a client resumes does not count as a receipt.
        force_recovery_mode: RecoveryMode = "stream";
        /// A client that subscribes for the first time gets the latest publication, too, if its subscription is
        /// recoverable. Needs `force_recovery_mode = "cache"`.
        auto_cache_recover: bool = "false";
        /// The subscribers of a channel can be listed (presence).
        presence: bool = "false";
        /// Subscribers that ask for it, and that may list the subscribers, are told who joins and leaves. Meant for
        /// channels with few subscribers: each join and leave is written to all of them.
        join_leave: bool = "false";
        /// All subscribers are told who joins and leaves, even if they do not ask. Needs `join_leave`.
        force_push_join_leave: bool = "false";
        /// Formats in which a subscriber may get a publication as its difference to the one before: "fossil".
        allowed_delta_types: Vec<DeltaType>;
        /// The publications of events carry the event's title and body in the language of each subscriber, as the tags
        /// `title`, `body` and `lang`. Needs `durable`.
        event_texts: bool = "false";
        /// A subscriber that asks for it and speaks JSON gets a number instead of the channel's name in each publication.
        allow_channel_compaction: bool = "false";
        /// A subscriber may choose publications by their tags; the others are not written to it. Where filters are
        /// allowed, the position from which a client resumes does not count as a receipt.
        allow_tags_filter: bool = "false";
        /// What becomes of a subscriber that reads more slowly than the channel publishes. disconnect: when what it lacks is
        /// no longer in memory, it is disconnected (3008), and resumes from the history. skip: it goes on with the newest
        /// publication instead. latest: whenever it lacks several, it gets only the newest of each key
        /// (docs/clients.md).
        slow_readers: SlowReaders = "disconnect";
        /// What a publication is about: the name of a tag, or a place in the data (a JSON pointer, such as /car/id). A newer
        /// publication with the same value replaces an older one; one without the value is never replaced. Without this
        /// setting all publications of a channel are about the same. Needs `slow_readers = "latest"` or `allow_thinning`.
        latest_key: Option<String>, like "car";
        /// How often in a second a subscriber gets something: the newest publication of each key. 0: without a limit.
        /// Needs `slow_readers = "latest"`.
        per_second_max: u32 = "0", from "0" to "1000";
        /// A subscriber may ask for less than these settings give, such as {"thinning": {"per_second_max": 2}} in the data
        /// of its subscription. Where it may, the position from which a client resumes does not count as a receipt.
        allow_thinning: bool = "false";
        /// Clients with a user may subscribe without a token for the channel.
        allow_subscribe_for_client: bool = "false";
        /// Clients without a user may subscribe without a token, too.
        allow_subscribe_for_anonymous: bool = "false";
        /// The users that a channel names behind `#`, as in dialog#42,43, may subscribe without a token, even if
        /// `allow_subscribe_for_client` is off. Other users never may without a token, whatever is set here.
        allow_user_limited_channels: bool = "false";
        /// Clients may only use channels in which this regular expression matches all of the name behind NAME:.
        channel_regex: Option<TextPattern>, like "[a-z0-9-]+";
        /// What clients and /api may publish: any JSON value (json), or objects only (json_object). Anything else is
        /// refused (107).
        publication_data_format: DataFormat = "json";
        /// Clients with a user may publish.
        allow_publish_for_client: bool = "false";
        /// Clients that are subscribed may publish.
        allow_publish_for_subscriber: bool = "false";
        /// Clients without a user may publish, too.
        allow_publish_for_anonymous: bool = "false";
        /// Clients with a user may read the history.
        allow_history_for_client: bool = "false";
        /// Clients that are subscribed may read the history.
        allow_history_for_subscriber: bool = "false";
        /// Clients without a user may read the history, too.
        allow_history_for_anonymous: bool = "false";
        /// Clients with a user may list the subscribers.
        allow_presence_for_client: bool = "false";
        /// Clients that are subscribed may list the subscribers.
        allow_presence_for_subscriber: bool = "false";
        /// Clients without a user may list the subscribers, too.
        allow_presence_for_anonymous: bool = "false";
        /// The hook that decides who may subscribe without a token, instead of `allow_subscribe_for_client`.
        subscribe_hook: Option<String>, like "backend";
        /// The hook that decides what clients may publish, instead of `allow_publish_for_client` and
        /// `allow_publish_for_subscriber`.
        publish_hook: Option<String>, like "backend";
        /// The hook that says whether a subscription whose time is over may go on. Without it clients refresh their tokens.
        sub_refresh_hook: Option<String>, like "backend";
        /// Your back end is told when a channel gets its first subscriber and when its last one is gone, at
        /// `webhook.presence_url`.
        occupancy_webhook: bool = "false";
    }

    /// A hook: an address of your back end that the server asks while it handles a client's command (docs/hooks.md).
    Hook {
        /// Where the questions are sent, as JSON with POST.
        url: WebUrl, like "https://backend.example.com/centrifugo/rpc";
        /// Allows an http address: anybody on the network path can read the questions and change the answers.
        allow_http: bool = "false";
        /// How long a call may take, from the client's command to the complete answer. Meanwhile the client's next
        /// commands wait. Must be shorter than `client.pong_timeout`.
        timeout: Duration = "1s", from "10ms" to "1m";
        /// Calls in flight at a time, each on its own connection. This many connections, and one more, are kept open.
        in_flight_max: usize = "32", from "1" to "1024";
        /// Calls that may wait for another to end; with more, clients get error 111 and should try again later.
        waiting_max: usize = "1024", from "0" to "65536";
        /// The largest answer; a larger one counts as none.
        answer_bytes_max: ByteSize = "64KiB", from "1KiB" to "16MiB";
        /// Headers of the client's HTTP request that the hook gets. A client can also send them in its connect command
        /// (`headers`), as browsers cannot set them.
        client_headers: Vec<HeaderName>, like "[\"Cookie\", \"Authorization\"]";
        /// Headers that every call has, such as a secret by which your back end knows this server.
        static_headers: Vec<StaticHeader>, like "[\"X-Hook-Key: change-me\"]";
        /// A file with more headers that every call has, one a line.
        static_headers_file: Option<PathBuf>, like "/run/secrets/tidings-hook-headers";
        /// The secret with which calls are signed: whsec_ and base64 of 24 to 64 random bytes. Without it they are not
        /// signed.
        signing_secret: Option<Secret>, like "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu";
        /// A file that contains `signing_secret`.
        signing_secret_file: Option<PathBuf>, like "/run/secrets/tidings-hook-secret";
        /// The previous secret. Calls are signed with both secrets, until the back end uses the new one.
        previous_signing_secret: Option<Secret>, like "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFv";
        /// A file that contains `previous_signing_secret`.
        previous_signing_secret_file: Option<PathBuf>, like "/run/secrets/tidings-hook-secret-before";
        /// Whether the hook gets what your back end said about the connection: `meta`, in the connection token or in an
        /// earlier answer.
        include_meta: bool = "false";
        /// Certificates (PEM) to trust instead of those of the system.
        ca_file: Option<PathBuf>, like "backend-ca.pem";
        /// What statuses other than 200 mean; without a meaning the client gets error 100.
        statuses: Vec<HookStatus>;
    }

    /// What a status of a hook's answer means for the client. Give exactly one of `error` and `disconnect`.
    HookStatus {
        /// The status.
        status: u16, like "404", from "201" to "599";
        /// The client gets this error.
        error: Option<u32>, like "404";
        /// The client is disconnected with this code, 3000 to 4999.
        disconnect: Option<u16>, like "4500";
        /// The text for the client.
        text: Option<String>, like "forbidden";
        /// Whether the client should try again later; for errors.
        temporary: bool = "false";
    }

    /// A feed. Give exactly one of `url`, `received` and `files`.
    Feed {
        /// How entries become events: the name of a mapping that comes with the program, or a file with a mapping.
        mapping: String, like "feeds/news.toml";
        /// The address that is polled.
        url: Option<WebUrl>, like "https://www.example.com/news.xml";
        /// Whether documents are posted to /v1/feeds/NAME.
        received: bool = "false";
        /// The files that are read: a folder, and behind the last / a name in which one * stands for any characters.
        files: Option<String>, like "incoming/*.xml";
        /// How often the feed is polled, up to a tenth shorter or longer, or its folder is looked at. After failures in a
        /// row the interval doubles each time.
        interval: Duration = "60s", from "1s" to "1d";
        /// The longest pause after failures. A server may ask for up to an hour.
        backoff_max: Duration = "1h", from "1s" to "7d";
        /// Whether entries that a polled feed has when it is read for the first time are not sent.
        skip_backlog: bool = "true";
        /// Allows an http address: anybody on the network path can change what is sent.
        allow_http: bool = "false";
        /// Hosts whose addresses need not be public, such as one in your own network. All other hosts, also those of
        /// redirects, must have public addresses.
        allow_private: Vec<String>, like "[\"feeds.internal\"]";
        /// Headers of each request, such as a key. They are not sent to the hosts of redirects.
        headers: Vec<StaticHeader>, like "[\"X-Feed-Key: change-me\"]";
        /// A file with more headers, one a line.
        headers_file: Option<PathBuf>, like "/run/secrets/tidings-feed-headers";
        /// How long a connection may take: looking up the name, connecting and TLS.
        connect_timeout: Duration = "10s", from "100ms" to "5m";
        /// How long the server may take until its answer begins.
        answer_timeout: Duration = "30s", from "100ms" to "10m";
        /// How long a poll may take altogether.
        timeout: Duration = "5m", from "1s" to "1d";
        /// The largest document, both as it arrives and inflated. The mapping has more limits.
        document_bytes_max: ByteSize = "64MiB", from "1KiB" to "64GiB";
        /// Entries that are remembered, so that they are not sent again: more than one document has. With more, those are
        /// forgotten that were in the feed the longest time ago.
        known_count_max: usize = "10000", from "100" to "1000000";
        /// Certificates (PEM) to trust instead of those of the system.
        ca_file: Option<PathBuf>, like "feed-ca.pem";
    }

    /// RPCs of clients. Without a hook all methods are refused (108), except tidings.visible.
    Rpc {
        /// The hook that performs methods without `:` in their name.
        hook: Option<String>, like "backend";
        /// Methods NAME:anything. A method of a namespace that is not listed here does not exist (104).
        namespaces: BTreeMap<String, RpcNamespace>, like "chat";
    }

    /// RPC methods of one namespace.
    RpcNamespace {
        /// The hook that performs them.
        hook: String, like "backend";
    }

    /// Events in live channels.
    Events {
        /// Where an event without `channels` is published live: in the channel with the name of its first subject
        /// (first_subject), in the channels of all its subjects (all_subjects), or in no channel (none: pushes only).
        /// The channels need a durable namespace.
        channels: EventChannels = "first_subject";
    }

    /// A table of PostgreSQL into which your back end inserts events, in its own transactions.
    Outbox {
        /// How to reach the database: a connection URL or a string of settings, as libpq takes them. Without
        /// `sslmode=require` the connection may be in plain text; that is refused beyond loopback.
        database: Option<Secret>, like "postgres://tidings:change-me@db.example.com/shop?sslmode=require";
        /// A file that contains `database`.
        database_file: Option<PathBuf>, like "/run/secrets/tidings-outbox";
        /// Certificates (PEM) to trust instead of those of the system.
        ca_file: Option<PathBuf>, like "db-ca.pem";
        /// The table, perhaps with its schema: lower-case letters, digits and `_`.
        table: String = "tidings_outbox";
        /// The channel on which the database notifies of new rows.
        channel: String = "tidings_outbox";
        /// How often the table is looked into, besides.
        interval: Duration = "5s", from "10ms" to "1h";
    }

    /// A stream of NATS JetStream.
    JetStream {
        /// The servers of the cluster: `nats://HOST:PORT` or `tls://HOST:PORT`. Plain text is refused beyond loopback.
        servers: Vec<String>, like "[\"tls://nats.example.com:4222\"]";
        /// A credentials file of NATS (.creds).
        credentials_file: Option<PathBuf>, like "tidings.creds";
        /// Certificates (PEM) to trust instead of those of the system.
        ca_file: Option<PathBuf>, like "nats-ca.pem";
        /// The stream.
        stream: String, like "EVENTS";
        /// The durable consumer. The server makes it if it is not there.
        consumer: String = "tidings";
        /// The subjects that are read, for a consumer that the server makes; without it, all of the stream.
        filter: Option<String>, like "events.>";
    }

    /// Text of the notifications of one topic, in English or in your source language; `%{name}` is replaced by a
    /// parameter.
    Topic {
        /// Gettext domain: translations are in DIR/LOCALE/LC_MESSAGES/DOMAIN.po.
        domain: String = "messages";
        /// The title.
        title: String, like "Goal for %{team}!";
        /// The body.
        body: String, like "%{scorer} scores in minute %{minute}.";
        /// The title if `count` is not one.
        title_plural: Option<String>, like "%{goals} goals for %{team}!";
        /// The body if `count` is not one.
        body_plural: Option<String>, like "%{scorer} scores %{goals} times.";
        /// The parameter that chooses between singular and plural.
        count: Option<String>, like "goals";
        /// A parameter that chooses between texts, such as the gender of a person (docs/translations.md).
        select: Option<String>, like "gender";
        /// The values of `select` that may have another text. Translators see the texts once more for each of them. An event
        /// without one of these values gets the text without a value.
        values: Vec<String>, like "[\"female\", \"male\"]";
        /// Source texts for one of `values`, if the source language needs them.
        texts: BTreeMap<String, ValueTexts>, like "female";
        /// Gettext context: distinguishes texts that are equal only in the source language.
        context: Option<String>, like "match";
        /// What translators should know about the texts.
        comment: Option<String>, like "%{team} is a country";
        /// The longest title, in characters as people see them, the translated one included; a longer one is a warning of
        /// `tidings translations check`. 0: any length.
        title_max: u32 = "0", from "0" to "4096";
        /// The longest body, likewise.
        body_max: u32 = "0", from "0" to "4096";
        /// Who is told where a language has no whole translation: `fallback`, everybody, in the next best language; or `skip`,
        /// only those whose language has one or is `translations.source_locale`. An event's own texts are for everybody.
        missing: Missing = "fallback";
        /// How notifications are shown where an event does not say it (`present` in docs/sending.md).
        present: TopicPresent;
    }

    /// The source texts of a topic for one value of `select`, with the same placeholders. What is not set is as without the
    /// value.
    ValueTexts {
        /// The title.
        title: Option<String>, like "Goal for %{team}!";
        /// The body.
        body: Option<String>, like "%{scorer} has scored her first goal.";
        /// The title if `count` is not one.
        title_plural: Option<String>, like "%{goals} goals for %{team}!";
        /// The body if `count` is not one.
        body_plural: Option<String>, like "%{scorer} has scored %{goals} goals, her best result.";
    }

    /// How the notifications of a topic are shown.
    TopicPresent {
        /// A sound of the app, `default`, or `none`.
        sound: Option<String>, like "goal.caf";
        /// The category, which decides the actions that the app offers.
        category: Option<String>, like "goal";
        /// How much they may interrupt the user.
        interruption: Option<Interruption>, like "time-sensitive";
        /// The notification channel on Android.
        android_channel: Option<String>, like "goals";
    }

    /// Names that have translations, for example of teams. The server needs no list of them: it is for translators, who
    /// get it from `tidings translations extract` in the domain `names`.
    Names {
        /// The names in the source language, without placeholders.
        values: Vec<String>, like "[\"Sweden\", \"Poland\"]";
        /// Cases: translators see each name once more for each of them, with the context `CONTEXT|CASE` (docs/values.md).
        cases: Vec<String>, like "[\"after-for\"]";
        /// What translators should know about them.
        comment: Option<String>, like "National teams.";
    }

    /// Translations of the texts.
    Translations {
        /// Folder with LOCALE/LC_MESSAGES/DOMAIN.po. If not set, all texts are in the source language.
        dir: Option<PathBuf>, like "locales";
        /// Folder with more topics: in each file `*.toml` tables `[NAME]` with what `[topics.NAME]` has.
        messages: Option<PathBuf>, like "messages";
        /// The language in which the topics are written; needed by topics with `missing = "skip"`.
        source_locale: Option<Locale>, like "en";
        /// How often the files of both folders are looked at. When some have changed, and then stayed the same from one look to
        /// the next, the texts are read again. 0s: never; SIGHUP and `tidings translations reload` do it.
        watch: Duration = "0s", from "0s" to "1h";
        /// Languages in which live readers may get texts (`event_texts`), beside those that have translations: those of
        /// the events' own texts.
        live_locales: Vec<Locale>;
        /// The commands of a translation service, for `tidings translations pull` and `push`.
        service: TranslationService;
    }

    /// Commands that exchange files with a translation service (docs/translations.md has samples). A command is a program and
    /// its arguments; it runs where `tidings` runs, without a shell.
    TranslationService {
        /// Fetches the translations into `translations.dir`.
        pull: Vec<String>, like "[\"tx\", \"pull\", \"--all\", \"--force\"]";
        /// Sends the POT files from there.
        push: Vec<String>, like "[\"tx\", \"push\", \"--source\"]";
        /// How long a command may take.
        timeout: Duration = "10m", from "1s" to "2h";
    }

    /// A credential for Apple's push service, and its apps. The credential is a signing key (`key_file`, `key_id`,
    /// `team_id`) or a certificate (`certificate_file`, `certificate_key_file`). On SIGHUP the files are read again.
    Apns {
        /// Apple's environment: production, or sandbox for apps that are installed from a developer's machine.
        environment: Environment = "production";
        /// The service's host; the default is Apple's host of the environment.
        host: Option<String>, like "api.push.apple.com";
        /// The service's port.
        port: u16 = "443", from "1" to "65535";
        /// The id of the signing key.
        key_id: Option<AppleId>, like "ABC123DEFG";
        /// The id of the team.
        team_id: Option<AppleId>, like "DEF123GHIJ";
        /// The signing key as you get it from Apple (.p8).
        key_file: Option<PathBuf>, like "AuthKey_ABC123DEFG.p8";
        /// Instead of a signing key: a certificate and its chain (PEM).
        certificate_file: Option<PathBuf>, like "certificate.pem";
        /// The certificate's private key (PEM, without a passphrase); may be the same file.
        certificate_key_file: Option<PathBuf>, like "certificate.pem";
        /// Bundle ids of the apps that use this credential; with a suffix such as `.voip` for tokens of another kind
        /// (docs/payload.md).
        apps: Vec<AppId>, like "[\"com.example.app\"]";
        /// Connections kept open.
        connection_count: usize = "2", from "1" to "64";
        /// The most connections. More are opened while all open ones are full, and closed when they are idle.
        connection_count_max: usize = "16", from "1" to "64";
        /// Threads that serve the connections.
        thread_count: usize = "1", from "1" to "64";
        /// Separate connections for devices that Apple has not accepted a push for yet, because wrong tokens slow a
        /// connection down. 0: these devices use the same connections as all others.
        quarantine_connection_count: usize = "2", from "0" to "16";
        /// Notifications in flight per connection, if Apple allows this many.
        stream_count_max: usize = "1000", from "1" to "10000";
        /// Notifications of each priority that wait for a connection; when it is full, the sender waits. At most twice
        /// the number in flight.
        lake_capacity: usize = "4000", from "1" to "1000000";
        /// How long connecting may take, including TLS.
        connect_timeout: Duration = "10s", from "100ms" to "5m";
        /// A connection is closed if nothing came from it for this long, although the server asked (PING).
        stall_timeout: Duration = "10s", from "100ms" to "5m";
        /// How long a notification may wait for its answer on a working connection.
        answer_timeout: Duration = "30s", from "100ms" to "10m";
        /// Certificates (PEM) to trust instead of those of the system, for a simulator.
        ca_file: Option<PathBuf>, like "simulator/ca.pem";
    }

    /// A Firebase project and its Android apps. On SIGHUP the file is read again.
    Fcm {
        /// The service account's key file as you get it from the Firebase console (JSON).
        service_account_file: Option<PathBuf>, like "service-account.json";
        /// Application ids of the apps in the project, as devices name them.
        apps: Vec<AppId>, like "[\"com.example.app\"]";
        /// The most messages in any 60 seconds; the default is Google's default quota. If several servers send for one
        /// project, give each a share.
        quota_per_minute: u32 = "600000", from "1" to "100000000";
        /// The rate after a quiet time. "none": the rate that was last sustained. "minute": a tenth of it, rising to
        /// all of it after a minute of sending, as Google recommends for bulk traffic.
        ramp: Ramp = "none";
        /// The service's host.
        host: String = "fcm.googleapis.com";
        /// The service's port.
        port: u16 = "443", from "1" to "65535";
        /// Connections kept open. With 100 messages in flight on each and a round trip of 70 ms, 8 connections send 11
        /// 400 messages a second: a little more than Google's default quota.
        connection_count: usize = "8", from "1" to "64";
        /// The most connections. More are opened while all open ones are full, and closed when they are idle.
        connection_count_max: usize = "32", from "1" to "64";
        /// Threads that serve the connections.
        thread_count: usize = "1", from "1" to "64";
        /// Messages in flight per connection, if Google allows this many.
        stream_count_max: usize = "100", from "1" to "10000";
        /// Messages of each priority that wait for a connection; when it is full, the sender waits. At most twice the
        /// number in flight.
        lake_capacity: usize = "2000", from "1" to "1000000";
        /// How long connecting may take, including TLS.
        connect_timeout: Duration = "10s", from "100ms" to "5m";
        /// A connection with messages in flight is closed if nothing came from it for this long, although the server
        /// asked (PING).
        stall_timeout: Duration = "60s", from "100ms" to "5m";
        /// How long a message may wait for its answer on a working connection.
        answer_timeout: Duration = "30s", from "100ms" to "10m";
        /// Certificates (PEM) to trust instead of those of the system, for a simulator.
        ca_file: Option<PathBuf>, like "simulator/ca.pem";
    }

    /// The key with which browsers made their subscriptions, and its web apps. On SIGHUP the file is read again.
    WebPush {
        /// The private key (VAPID): P-256, as PEM (PKCS#8) or as 32 bytes in base64url.
        vapid_key_file: Option<PathBuf>, like "vapid.key";
        /// How push services can reach you: mailto: or https:. Apple requires it.
        contact: Option<String>, like "mailto:push@example.com";
        /// Names of the web apps, as devices give them.
        apps: Vec<AppId>, like "[\"www.example.com\"]";
        /// Hosts that are allowed besides those of the known browsers; *.example.com is every name below example.com.
        allowed_hosts: Vec<String>, like "[\"push.example.com\"]";
        /// Ports that are allowed besides 443.
        allowed_ports: Vec<u16>, like "[8443]";
        /// Development only: endpoints may be at any address, also inside your network.
        allow_private: bool = "false";
        /// The most push services below one wildcard of the hosts at a time. Each host or wildcard has connections,
        /// queues and a quarantine of its own.
        origin_count_max: usize = "16", from "1" to "4096";
        /// The most connections to one push service; over HTTP/1.1 each has one request at a time.
        connection_count_max: usize = "32", from "1" to "256";
        /// Threads for encryption and TLS, for all services. One thread sends about 14 000 notifications a second.
        thread_count: usize = "1", from "1" to "64";
        /// Notifications of each priority that wait for a connection to one service; when it is full, the sender waits.
        lake_capacity: usize = "1000", from "1" to "1000000";
        /// How long connecting may take, including TLS.
        connect_timeout: Duration = "10s", from "100ms" to "5m";
        /// How long a notification may wait for its answer.
        answer_timeout: Duration = "30s", from "100ms" to "10m";
        /// Certificates (PEM) to trust instead of those of the system, for a simulator.
        ca_file: Option<PathBuf>, like "simulator/ca.pem";
    }

    /// Shadow mode: jobs run up to the last step, but only the devices named here are pushed. All others are counted as
    /// suppressed. Use it to move from another system to this one.
    Shadow {
        /// Whether shadow mode is on.
        enabled: bool = "false";
        /// Devices that are pushed in shadow mode.
        devices: Vec<DeviceId>, like "[\"my-phone\"]";
        /// Percentage of all devices that are pushed in shadow mode. It is always the same devices; a higher percentage
        /// adds some.
        percent: u32 = "0", from "0" to "100";
    }

    /// Durable data.
    Store {
        /// Events that are kept until they are delivered and may be forgotten; when it is full, the API answers 503.
        journal_event_count_max: u64 = "12000000", from "1000" to "1000000000";
        /// Bytes of these events; when it is full, the API answers 503.
        journal_bytes_max: ByteSize = "16GiB", from "16MiB" to "65536GiB";
        /// How long an event's id is remembered: a retry within this time is not a second event. Shorter when the
        /// journal is nearly full.
        id_window: Duration = "24h", from "1m" to "30d";
        /// The most ids that are remembered; with more, the oldest are forgotten earlier.
        id_window_count: u64 = "10000000", from "1000" to "1000000000";
        /// Events and durable publications that wait to be written; when it is full, the API answers 503.
        event_queue_count_max: usize = "4096", from "16" to "1000000";
        /// Bytes of these events and publications; when it is full, the API answers 503.
        event_queue_bytes_max: ByteSize = "64MiB", from "8MiB" to "4GiB";
        /// Changes of devices that wait to be written; when it is full, the API answers 503.
        device_queue_count_max: usize = "4096", from "16" to "1000000";
        /// Bytes of these changes; when it is full, the API answers 503.
        device_queue_bytes_max: ByteSize = "16MiB", from "1MiB" to "4GiB";
        /// Chunks of imports that wait to be written; when it is full, imports wait.
        import_queue_count_max: usize = "16", from "1" to "1024";
        /// Bytes of these chunks; when it is full, imports wait.
        import_queue_bytes_max: ByteSize = "64MiB", from "1MiB" to "4GiB";
        /// The most registered devices.
        device_count_max: u32 = "10000000", from "1" to "4000000000";
        /// The most subscriptions of one device; each is a subject with a topic.
        subscription_count_max: u32 = "10000", from "1" to "65535";
        /// The most mutes of one device; each is for a subject or for everything.
        mute_count_max: u32 = "256", from "1" to "10000";
        /// A device is deleted, within about a day, if it did not register, change or prove itself for this long. A
        /// connection counts only on the day on which it was made, so choose a time longer than connections last. 0s:
        /// never.
        device_idle_max: Duration = "0s", from "0s" to "3650d";
        /// The most scheduled events; a further one is refused with 503.
        later_count_max: u64 = "100000", from "1" to "10000000";
        /// The most durable channels that are remembered; publishing into a further one is refused with 503.
        channel_count_max: u64 = "1000000", from "1" to "100000000";
        /// A durable channel with an empty history is forgotten after this long without a publication, if its namespace has no
        /// `channel_ttl` of its own. A reader that comes back to it starts anew.
        channel_ttl: Duration = "24h", from "1s" to "3650d";
        /// Memory for blocks that were read from disk.
        cache_bytes: ByteSize = "64MiB", from "1MiB" to "1024GiB";
        /// Memory for the publications of durable channels, which are read from disk when a client asks for them. Above it, the
        /// channels let go of them that were not used for longest; a single one may be larger.
        history_cache_bytes: ByteSize = "256MiB", from "1MiB" to "1024GiB";
        /// Changes of devices and subscriptions between two checkpoints of the memory. With a higher number, a start
        /// after a crash takes longer.
        checkpoint_change_count: u64 = "100000", from "1000" to "100000000";
        /// First pause before the store is opened again after the disk failed; the pause doubles after each failure.
        reopen_backoff_min: Duration = "100ms", from "1ms" to "1m";
        /// Longest pause before the store is opened again.
        reopen_backoff_max: Duration = "5s", from "10ms" to "10m";
    }

    /// Jobs: events on their way to devices.
    Sender {
        /// Slots: jobs that send at a time. Further jobs wait; while they do, jobs stop waiting for receipts after 500
        /// ms.
        job_count_max: usize = "1024", from "1" to "100000";
        /// Memory for the jobs that send. A job for a single device is counted with 80 KB; one for a million of them with 2 to 8 MB,
        /// and 1 MB more for each app if its texts have typed values. When it is used up, further jobs wait. A quarter as much
        /// is for jobs that wait after they have begun.
        job_bytes_max: ByteSize = "1GiB", from "16MiB" to "1024GiB";
        /// Devices of a job that are read, rendered and handed on in one step (a window).
        window_device_count: usize = "1024", from "1" to "65536";
        /// Windows of one job and credential that may be open at a time.
        window_open_count_max: usize = "32", from "1" to "65536";
        /// Finished jobs whose counts are remembered; also the most reports that wait for the webhook's receiver.
        report_count_max: usize = "10000", from "1" to "1000000";
        /// Dead tokens that wait to be removed. Further ones are forgotten until the provider reports them again.
        gone_token_count_max: usize = "4096", from "1" to "1000000";
        /// A token that its provider rejects as belonging to another app or environment is removed after this long. If
        /// many are rejected in this time, they are kept, and `tidings_sender_environment_alarm` is 1.
        doubt_window: Duration = "1m", from "1s" to "1d";
        /// Progress is saved at least this often. After a crash, pushes that were sent after the last save may be
        /// repeated.
        checkpoint_interval: Duration = "100ms", from "10ms" to "10s";
        /// How long it is known why each device got an event or not (docs/why.md), after the event's job is done. It is kept
        /// in memory, and not over a restart.
        why_ttl: Duration = "1d", from "0s" to "30d";
        /// The memory for that, over all events: usually at most 6 bytes for each device of an audience. When it is full,
        /// it is forgotten for the events whose jobs were done first.
        why_bytes_max: ByteSize = "64MiB", from "1MiB" to "64GiB";
    }

    /// Reports to your back end when an event is done (docs/webhook.md), and who came and went (docs/hooks.md), as signed
    /// requests (Standard Webhooks). On SIGHUP the secrets are read again.
    Webhook {
        /// Where reports are sent. If not set, no reports are sent.
        url: Option<WebUrl>, like "https://backend.example.com/hooks/tidings";
        /// Where your back end is told which users and channels came and went: users with `client.connection_webhook`,
        /// channels with `occupancy_webhook` of their namespace.
        presence_url: Option<WebUrl>, like "https://backend.example.com/hooks/presence";
        /// How long such a change must last before it is told. A user that is back sooner was never gone.
        presence_delay: Duration = "5s", from "0s" to "1h";
        /// Such changes that may wait; with more, the oldest are dropped, and the receiver is told how many.
        presence_count_max: usize = "100000", from "100" to "10000000";
        /// Allows http addresses: requests are still signed, but anybody on the network path can read them.
        allow_http: bool = "false";
        /// The secret with which requests are signed: whsec_ and base64 of 24 to 64 random bytes.
        secret: Option<Secret>, like "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu";
        /// A file that contains `secret`.
        secret_file: Option<PathBuf>, like "/run/secrets/tidings-webhook-secret";
        /// The previous secret. Requests are signed with both secrets, until the receiver uses the new one.
        previous_secret: Option<Secret>, like "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFv";
        /// A file that contains `previous_secret`.
        previous_secret_file: Option<PathBuf>, like "/run/secrets/tidings-webhook-secret-before";
        /// Certificates (PEM) to trust instead of those of the system.
        ca_file: Option<PathBuf>, like "receiver-ca.pem";
        /// Reports in flight at a time, each on its own connection. This many connections, and one more, are kept open.
        in_flight_max: usize = "4", from "1" to "64";
        /// How long an attempt may take, from its start to the complete answer.
        timeout: Duration = "15s", from "100ms" to "5m";
        /// Shortest pause before a report is tried again. Pauses are random, and can be twice as long after each
        /// attempt.
        backoff_min: Duration = "1s", from "10ms" to "1h";
        /// Longest pause, also if the receiver asks for a longer one.
        backoff_max: Duration = "1h", from "10ms" to "24h";
        /// How long after the end of its event a report is tried for the last time. Until then at most
        /// `sender.report_count_max` reports wait; with more, the oldest are forgotten.
        give_up_after: Duration = "24h", from "1s" to "30d";
    }

    /// Metrics that are sent to an agent over UDP, as InfluxDB lines: to InfluxDB, Telegraf or VictoriaMetrics. See
    /// docs/metrics.md.
    Influx {
        /// The agent's address. If not set, nothing is sent. A name is looked up again when its host refuses a packet.
        address: Option<HostPort>, like "127.0.0.1:8089";
        /// Time between two flushes. A point covers the time since the flush before.
        interval: Duration = "10s", from "1s" to "1h";
        /// Sockets among which packets are distributed.
        socket_count: usize = "2", from "1" to "16";
        /// Largest packet, without the headers of UDP and IP; 1432 bytes fit into one Ethernet frame.
        packet_bytes: ByteSize = "1432B", from "512B" to "65507B";
        /// Tags of every point, KEY=VALUE; `host` is this machine's name unless you set it.
        tags: Vec<Tag>, like "[\"host=web-1\", \"region=eu\"]";
    }

    /// Traces of events that are sent to an OpenTelemetry collector. See docs/traces.md.
    Traces {
        /// The collector's address for traces (OTLP over HTTP, in Protobuf). If not set, nothing is sent.
        endpoint: Option<WebUrl>, like "http://127.0.0.1:4318/v1/traces";
        /// How many of the traces that begin here are recorded. Where the caller sends a `traceparent`, its flag decides.
        ratio: Percentage = "1%";
        /// Headers for the collector. A file is safer for a secret.
        headers: Vec<StaticHeader>, like "[\"X-Tenant: football\"]";
        /// A file with further headers, one on each line, such as `Authorization: Bearer SECRET`.
        headers_file: Option<PathBuf>, like "/run/secrets/tidings-traces";
        /// The certificates to trust (PEM), instead of those of the system.
        ca_file: Option<PathBuf>, like "/etc/tidings/collector-ca.pem";
    }

    /// The audit log: who changed what by the API or the console, in the folder DATA_DIR/audit. See docs/audit.md.
    Audit {
        /// Whether it is written.
        enabled: bool = "true";
        /// Largest file; then a new one begins.
        file_bytes_max: ByteSize = "16MiB", from "64KiB" to "1GiB";
        /// Most files; then the oldest one is removed.
        file_count_max: usize = "8", from "2" to "1000";
        /// Whether each line is also a log line, with the target `audit`.
        log: bool = "false";
    }

    /// Log lines, written to standard error.
    Log {
        /// Format of log lines: text for people, json for machines.
        format: LogFormat = "text";
        /// Which lines are written: a level, or levels by component, such as "warn,tidings_edge=debug".
        filter: String = "info,fjall=warn,lsm_tree=warn";
    }
}
