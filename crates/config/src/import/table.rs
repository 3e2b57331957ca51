//! Every key of Centrifugo 5 and 6, with its counterpart here or what to do without one.
//!
//! Centrifugo 5 has flat keys, 6 has nested ones; a row has both. A name that ends in `*` is every key that begins so.
//! `name` alone is the name in both versions. Sources: `main.go` and `internal/rule`, `internal/proxy` of 5.4.9;
//! `internal/configtypes` of 6.

use Act::{Everywhere, Fixed, Internal, Public, Same, Set, Todo};
use Kind::{
    ApiKey, Bool, Bytes, Duration, Endpoint, Headers, Jwks, Level, Limit, Pem, PublicKey, Regex, Secret, Statuses,
    Text, Texts, Time, Whole,
};

/// What becomes of a key.
#[derive(Clone, Copy)]
pub(super) enum Act {
    /// It is this setting of ours, in the table of the scope.
    Set(&'static str, Kind),
    /// It is this setting of ours in each namespace with a history that does not say it itself.
    Everywhere(&'static str, Kind),
    /// These values mean what our server does anyway; with another value, this is to do.
    Fixed(&'static [&'static str], &'static str),
    /// Nothing is to do: why.
    Same(&'static str),
    /// There is no counterpart, and this is to do, unless the value switches something off.
    Todo(&'static str),
    /// One of several keys that are `http.listen` together.
    Public,
    /// One of several keys that are `http.internal_listen` together.
    Internal,
}

/// How a value is read.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Bool,
    Whole,
    /// A number; 0 is none.
    Limit,
    Bytes,
    Duration,
    /// A duration; 0 is none.
    Time,
    Text,
    Texts,
    /// A regular expression that matches anywhere in the text; ours match all of it.
    Regex,
    Level,
    /// Goes into a file of this name.
    Secret(&'static str),
    /// The server's certificate or its key: a path, or PEM, which goes into a file of this name.
    Pem(&'static str),
    /// PEM, which goes into a file of this name.
    PublicKey(&'static str),
    Jwks,
    ApiKey,
    /// An address of a back end.
    Endpoint,
    Headers,
    Statuses,
}

/// The name in 5, the path in 6, and what becomes of it.
pub(super) type Row = (&'static str, &'static str, Act);

/// Keys that begin so have rows and a table of ours. The first that fits counts.
pub(super) const SCOPES: &[(&str, &[Row], &[&str])] = &[
    ("client.subscription_token.", TOKEN, &["client", "subscription_token"]),
    ("subscription_token_", TOKEN, &["client", "subscription_token"]),
    ("client.token.", TOKEN, &["client", "token"]),
    ("token_", TOKEN, &["client", "token"]),
    ("channel.without_namespace.", NAMESPACE, &["channel", "without_namespace"]),
    ("", ROOT, &[]),
    ("", NAMESPACE, &["channel", "without_namespace"]), // 5 has the rules of channels without namespace at the top.
];

const NO_CLUSTER: &str = "one server keeps everything itself, without a broker: leave it out, and size one machine";
const NO_GRPC: &str = "there is no gRPC: call the HTTP API, and serve hooks over HTTP";
const ONE_SIZE: &str = "`client.frame_bytes_max` holds for every transport: set it to the largest of these sizes";
const PATHS: &str = "paths are fixed: let a proxy in front rewrite them, or change the address in the apps";
const NO_CONSOLE: &str = "there is no admin console: use the API, `tidings jobs` and /metrics";
const ACME: &str =
    "certificates come from a program such as certbot: name its files in `http.tls`, and send SIGHUP after a renewal";
const NO_COMPRESSION: &str = "frames are not compressed: allow deltas in the namespaces whose publications are similar";
const BUFFERS: &str = "buffers are sized by the server";
const NO_MAP: &str = "subscriptions other than streams do not exist: keep the namespace on Centrifugo, or use a history with \
                      `force_recovery_mode = \"cache\"`";
const PRO: &str =
    "there are no batches: a reader that falls behind gets what its channel keeps, then is closed (3008) and resumes";
const NAMES: &str = "these signs are fixed: rename the channels";
const NO_CODES: &str =
    "codes of a refused connection are not translated: handle error codes in the program that listens";
const CLIENT_CERTIFICATES: &str = "certificates of clients are not checked: let a proxy in front check them";
const ONLY_CLIENT: &str = "means nothing for a server";

pub(super) const ROOT: &[Row] = &[
    ("address", "http_server.address", Public),
    ("port", "http_server.port", Public),
    ("internal_address", "http_server.internal_address", Internal),
    ("internal_port", "http_server.internal_port", Internal),
    ("tls", "http_server.tls.enabled", Same("`http.tls` is on if it has a certificate")),
    ("tls_cert", "http_server.tls.cert_pem", Set("http.tls.certificate_file", Pem("certificate.pem"))),
    ("tls_key", "http_server.tls.key_pem", Set("http.tls.certificate_key_file", Pem("certificate-key.pem"))),
    ("tls_cert_pem", "http_server.tls.cert_pem_file", Set("http.tls.certificate_file", Pem("certificate.pem"))),
    ("tls_key_pem", "http_server.tls.key_pem_file", Set("http.tls.certificate_key_file", Pem("certificate-key.pem"))),
    ("", "http_server.tls.cert_pem_b64", Set("http.tls.certificate_file", Pem("certificate.pem"))),
    ("", "http_server.tls.key_pem_b64", Set("http.tls.certificate_key_file", Pem("certificate-key.pem"))),
    ("tls_client_ca*", "http_server.tls.client_ca_pem*", Todo(CLIENT_CERTIFICATES)),
    ("tls_root_ca*", "http_server.tls.server_ca_pem*", Same(ONLY_CLIENT)),
    ("tls_server_name", "http_server.tls.server_name", Same(ONLY_CLIENT)),
    ("tls_insecure_skip_verify", "http_server.tls.insecure_skip_verify", Same(ONLY_CLIENT)),
    ("tls_external", "http_server.tls_external", Same("`http.internal_listen` is always without TLS")),
    ("tls_autocert*", "http_server.tls_autocert.*", Todo(ACME)),
    (
        "",
        "http_server.internal_tls.*",
        Todo("`http.internal_listen` is always without TLS: keep it on loopback or behind a proxy"),
    ),
    ("http3", "http_server.http3.*", Todo("there is no HTTP/3: let a proxy in front speak it")),
    ("log_level", "log.level", Set("log.filter", Level)),
    ("log_file", "log.file", Todo("log lines go to standard error: let the service manager write them to a file")),
    ("engine", "engine.type", Fixed(&["", "memory"], NO_CLUSTER)),
    ("", "engine.*", Todo(NO_CLUSTER)),
    ("broker", "broker.*", Todo(NO_CLUSTER)),
    ("", "presence_manager.*", Todo(NO_CLUSTER)),
    ("", "controller.*", Todo(NO_CLUSTER)),
    ("redis_*", "", Todo(NO_CLUSTER)),
    ("nats_*", "", Todo(NO_CLUSTER)),
    ("tarantool_*", "", Todo(NO_CLUSTER)),
    ("global_redis_presence_user_mapping", "", Todo(NO_CLUSTER)),
    ("global_history_meta_ttl", "channel.history_meta_ttl", Everywhere("history_meta_ttl", Time)),
    ("global_presence_ttl", "client.presence_update_interval", Same("presence is exact and needs no refresh")),
    ("client_presence_update_interval", "", Same("presence is exact and needs no refresh")),
    ("client_insecure", "client.insecure", Set("client.insecure", Bool)),
    (
        "client_insecure_skip_token_signature_verify",
        "client.insecure_skip_token_signature_verify",
        Todo("signatures are always checked: give the key"),
    ),
    (
        "client_user_id_http_header",
        "client.user_id_http_header",
        Todo("a header never names a user: sign tokens, or let a connect hook answer with the user"),
    ),
    (
        "separate_subscription_token_config",
        "client.subscription_token.enabled",
        Same("`client.subscription_token` is on if it has a key"),
    ),
    ("allowed_origins", "client.allowed_origins", Set("client.allowed_origins", Texts)),
    (
        "allow_anonymous_connect_without_token",
        "client.allow_anonymous_connect_without_token",
        Set("client.allow_anonymous", Bool),
    ),
    (
        "disallow_anonymous_connection_tokens",
        "client.disallow_anonymous_connection_tokens",
        Todo("a token without `sub` connects a client without a user: do not sign such tokens"),
    ),
    (
        "client_expired_close_delay",
        "client.expired_close_delay",
        Fixed(&["25s"], "the time to refresh is fixed at 25 s"),
    ),
    (
        "client_expired_sub_close_delay",
        "client.expired_sub_close_delay",
        Fixed(&["25s"], "the time to refresh is fixed at 25 s"),
    ),
    ("client_stale_close_delay", "client.stale_close_delay", Set("client.stale_close_delay", Duration)),
    ("client_channel_limit", "client.channel_limit", Set("client.channel_count_max", Whole)),
    (
        "client_queue_max_size",
        "client.queue_max_size",
        Fixed(
            &["1048576"],
            "slow readers are bounded by `edge.log_bytes_max` (a channel) and `edge.control_bytes_max` (replies): look at both",
        ),
    ),
    ("client_user_connection_limit", "client.user_connection_limit", Set("client.user_connection_count_max", Whole)),
    (
        "client_concurrency",
        "client.concurrency",
        Fixed(&["0", "1"], "commands of one connection are handled one after another"),
    ),
    (
        "client_channel_position_check_delay",
        "client.channel_position_check_delay",
        Same("positions cannot become wrong, so nothing is checked"),
    ),
    (
        "client_channel_position_max_time_lag",
        "client.channel_position_max_time_lag",
        Same("positions cannot become wrong, so nothing is checked"),
    ),
    ("client_connection_limit", "client.connection_limit", Set("client.connection_count_max", Limit)),
    ("client_connection_rate_limit", "client.connection_rate_limit", Set("http.accept_per_second", Whole)),
    (
        "client_connect_include_server_time",
        "client.connect_include_server_time",
        Todo("the answer to connect has no time"),
    ),
    (
        "client_history_max_publication_limit",
        "client.history_max_publication_limit",
        Fixed(&["300"], "an answer to `history` has at most 300 publications: clients ask again with `since`"),
    ),
    (
        "client_recovery_max_publication_limit",
        "client.recovery_max_publication_limit",
        Set("client.recovery_count_max", Whole),
    ),
    ("ping_interval", "client.ping_interval", Set("client.ping_interval", Duration)),
    ("pong_timeout", "client.pong_timeout", Set("client.pong_timeout", Duration)),
    (
        "user_subscribe_to_personal",
        "client.subscribe_to_user_personal_channel.enabled",
        Set("client.subscribe_to_user_personal_channel.enabled", Bool),
    ),
    (
        "user_personal_channel_namespace",
        "client.subscribe_to_user_personal_channel.personal_channel_namespace",
        Set("client.subscribe_to_user_personal_channel.personal_channel_namespace", Text),
    ),
    (
        "user_personal_single_connection",
        "client.subscribe_to_user_personal_channel.single_connection",
        Set("client.subscribe_to_user_personal_channel.single_connection", Bool),
    ),
    (
        "client_connect_code_to_unidirectional_disconnect.*",
        "client.connect_code_to_unidirectional_disconnect.*",
        Todo(NO_CODES),
    ),
    ("channel_max_length", "channel.max_length", Set("channel.name_bytes_max", Whole)),
    ("channel_private_prefix", "channel.private_prefix", Fixed(&["$"], NAMES)),
    ("channel_namespace_boundary", "channel.namespace_boundary", Fixed(&[":"], NAMES)),
    ("channel_user_boundary", "channel.user_boundary", Fixed(&["#"], NAMES)),
    ("channel_user_separator", "channel.user_separator", Fixed(&[","], NAMES)),
    ("rpc_namespace_boundary", "rpc.namespace_boundary", Fixed(&[":"], "the sign is fixed: rename the methods")),
    (
        "rpc_ping",
        "rpc.ping.enabled",
        Todo("there is no RPC for pings: let the RPC hook answer it, with {\"result\": {}}"),
    ),
    ("rpc_ping_method", "rpc.ping.method", Same("there is no RPC for pings")),
    (
        "websocket_disable",
        "websocket.disabled",
        Todo("WebSockets are always on: let a proxy in front refuse /connection/websocket"),
    ),
    ("websocket_handler_prefix", "websocket.handler_prefix", Fixed(&["/connection/websocket"], PATHS)),
    ("websocket_compression", "websocket.compression", Todo(NO_COMPRESSION)),
    ("websocket_compression_*", "websocket.compression_*", Same("frames are not compressed")),
    ("websocket_write_timeout", "websocket.write_timeout", Set("client.write_timeout", Duration)),
    ("websocket_message_size_limit", "websocket.message_size_limit", Set("client.frame_bytes_max", Bytes)),
    ("websocket_*buffer*", "websocket.*buffer*", Same(BUFFERS)),
    ("sse", "sse.enabled", Set("client.sse", Bool)),
    ("sse_handler_prefix", "sse.handler_prefix", Fixed(&["/connection/sse"], PATHS)),
    ("sse_max_request_body_size", "sse.max_request_body_size", Fixed(&["65536"], ONE_SIZE)),
    ("http_stream", "http_stream.enabled", Set("client.http_stream", Bool)),
    ("http_stream_handler_prefix", "http_stream.handler_prefix", Fixed(&["/connection/http_stream"], PATHS)),
    ("http_stream_max_request_body_size", "http_stream.max_request_body_size", Fixed(&["65536"], ONE_SIZE)),
    ("emulation_handler_prefix", "emulation.handler_prefix", Fixed(&["/emulation"], PATHS)),
    ("emulation_max_request_body_size", "emulation.max_request_body_size", Fixed(&["65536"], ONE_SIZE)),
    ("uni_websocket", "uni_websocket.enabled", Set("client.uni_websocket", Bool)),
    ("uni_websocket_handler_prefix", "uni_websocket.handler_prefix", Fixed(&["/connection/uni_websocket"], PATHS)),
    ("uni_websocket_message_size_limit", "uni_websocket.message_size_limit", Fixed(&["65536"], ONE_SIZE)),
    (
        "uni_websocket_write_timeout",
        "uni_websocket.write_timeout",
        Same("`client.write_timeout` holds for every transport"),
    ),
    ("uni_websocket_compression", "uni_websocket.compression", Todo(NO_COMPRESSION)),
    ("uni_websocket_compression_*", "uni_websocket.compression_*", Same("frames are not compressed")),
    ("uni_websocket_*buffer*", "uni_websocket.*buffer*", Same(BUFFERS)),
    ("", "uni_websocket.join_push_messages", Todo("each message has a frame of its own")),
    ("uni_sse", "uni_sse.enabled", Set("client.uni_sse", Bool)),
    ("uni_sse_handler_prefix", "uni_sse.handler_prefix", Fixed(&["/connection/uni_sse"], PATHS)),
    ("uni_sse_max_request_body_size", "uni_sse.max_request_body_size", Fixed(&["65536"], ONE_SIZE)),
    ("uni_sse_connect_code_*", "uni_sse.connect_code_*", Todo(NO_CODES)),
    ("uni_http_stream", "uni_http_stream.enabled", Set("client.uni_http_stream", Bool)),
    (
        "uni_http_stream_handler_prefix",
        "uni_http_stream.handler_prefix",
        Fixed(&["/connection/uni_http_stream"], PATHS),
    ),
    ("uni_http_stream_max_request_body_size", "uni_http_stream.max_request_body_size", Fixed(&["65536"], ONE_SIZE)),
    ("uni_http_stream_connect_code_*", "uni_http_stream.connect_code_*", Todo(NO_CODES)),
    ("uni_grpc*", "uni_grpc.*", Todo(NO_GRPC)),
    ("sockjs*", "", Todo("there is no SockJS: use WebSockets, and server-sent events where they do not get through")),
    ("webtransport*", "webtransport.*", Todo("there is no WebTransport: use WebSockets")),
    ("api_key", "http_api.key", Set("api.keys", ApiKey)),
    (
        "api_insecure",
        "http_api.insecure",
        Todo("the API always has a key: without one in the configuration, a server on loopback makes DATA_DIR/api-key"),
    ),
    ("api_disable", "http_api.disabled", Todo("the API is always on: put it on `http.internal_listen`")),
    (
        "api_external",
        "http_api.external",
        Todo("with `http.internal_listen` the API is there only: do not set it, or call the API there"),
    ),
    ("api_error_mode", "http_api.error_mode", Fixed(&[""], "errors have status 200 and `error` in the answer")),
    ("api_handler_prefix", "http_api.handler_prefix", Fixed(&["/api"], PATHS)),
    ("grpc_api*", "grpc_api.*", Todo(NO_GRPC)),
    ("admin*", "admin.*", Todo(NO_CONSOLE)),
    ("swagger*", "swagger.*", Same("the API describes itself at /openapi.json")),
    ("debug*", "debug.*", Todo("there are no profiling endpoints: see /metrics")),
    ("prometheus", "prometheus.enabled", Same("/metrics is always on, for a key with the scope metrics")),
    ("prometheus_handler_prefix", "prometheus.handler_prefix", Fixed(&["/metrics"], PATHS)),
    ("", "prometheus.*", Todo("docs/metrics.md lists the metrics; they have other names than Centrifugo's")),
    ("health", "health.enabled", Same("/health is always on; /ready says whether all parts work")),
    ("health_handler_prefix", "health.handler_prefix", Fixed(&["/health"], PATHS)),
    ("graphite*", "graphite.*", Todo("there is no Graphite: read /metrics, or let `influx` send to an agent")),
    ("opentelemetry*", "opentelemetry.*", Todo("there is no tracing: see /metrics and the log")),
    ("usage_stats*", "usage_stats.*", Same("nothing is sent to anybody")),
    ("name", "node.name", Same("there is one node")),
    ("node_info_metrics_aggregate_interval", "node.*", Same("there is one node")),
    ("gomaxprocs", "", Todo("`edge.loops` says how many threads serve connections; 0 is one per core")),
    ("pid_file", "", Todo("no file has the process id: the service manager knows it")),
    ("enable_unreleased_features", "", Same("means nothing here")),
    ("shutdown_timeout", "shutdown.timeout", Set("client.shutdown_timeout", Duration)),
    ("shutdown_termination_delay", "", Todo("the server stops at once: take it out of the load balancer first")),
    (
        "consumers*",
        "consumers*",
        Todo("events come over HTTP: let a small program read the queue and call /api or /v1"),
    ),
    ("granular_proxy_mode", "", Same("hooks are named wherever they are used")),
];

/// Who signs tokens. The names are the same in 5 and 6.
pub(super) const TOKEN: &[Row] = &[
    ("hmac_secret_key", "", Set("hmac_secret_file", Secret("secret"))),
    ("hmac_previous_secret_key", "", Set("hmac_previous_secret_file", Secret("secret-before"))),
    (
        "hmac_previous_secret_key_valid_until",
        "",
        Todo(
            "set `hmac_previous_secret_until`, as \"2026-12-31T00:00:00Z\", or leave it out: then the previous secret holds until you remove it",
        ),
    ),
    ("rsa_public_key", "", Set("public_key_files", PublicKey("rsa.pem"))),
    ("ecdsa_public_key", "", Set("public_key_files", PublicKey("ecdsa.pem"))),
    ("jwks_public_endpoint", "", Set("jwks_url", Jwks)),
    ("jwks.*", "", Todo("`jwks_ca_file` names certificates to trust; other rules of TLS do not exist")),
    ("audience", "", Set("audience", Text)),
    ("audience_regex", "", Set("audience_regex", Regex)),
    ("issuer", "", Set("issuer", Text)),
    ("issuer_regex", "", Set("issuer_regex", Regex)),
    ("user_id_claim", "", Set("user_id_claim", Text)),
];

const NAME: Row = ("name", "", Same("is the name of the table"));

/// Rules of RPC methods. Keys about proxies are not here.
pub(super) const RPC_NAMESPACE: &[Row] = &[NAME];

/// Rules of channels. Keys about proxies are not here.
pub(super) const NAMESPACE: &[Row] = &[
    NAME,
    ("presence", "", Set("presence", Bool)),
    ("join_leave", "", Set("join_leave", Bool)),
    ("force_push_join_leave", "", Set("force_push_join_leave", Bool)),
    ("history_size", "", Set("history_size", Whole)),
    ("history_ttl", "", Set("history_ttl", Duration)),
    ("history_meta_ttl", "", Set("history_meta_ttl", Time)),
    ("force_positioning", "", Same("positions cannot become wrong, so nothing is checked")),
    ("allow_positioning", "", Same("positions cannot become wrong, so nothing is checked")),
    ("force_recovery", "", Set("force_recovery", Bool)),
    ("allow_recovery", "", Set("allow_recovery", Bool)),
    ("force_recovery_mode", "", Set("force_recovery_mode", Text)),
    ("auto_cache_recover", "", Set("auto_cache_recover", Bool)),
    ("allowed_delta_types", "", Set("allowed_delta_types", Texts)),
    ("delta_publish", "", Same("who asks for deltas gets them, whatever the publisher says")),
    ("allow_tags_filter", "", Set("allow_tags_filter", Bool)),
    ("allow_channel_compaction", "", Set("allow_channel_compaction", Bool)),
    ("allow_subscribe_for_client", "", Set("allow_subscribe_for_client", Bool)),
    ("allow_subscribe_for_anonymous", "", Set("allow_subscribe_for_anonymous", Bool)),
    ("allow_publish_for_client", "", Set("allow_publish_for_client", Bool)),
    ("allow_publish_for_subscriber", "", Set("allow_publish_for_subscriber", Bool)),
    ("allow_publish_for_anonymous", "", Set("allow_publish_for_anonymous", Bool)),
    ("allow_history_for_client", "", Set("allow_history_for_client", Bool)),
    ("allow_history_for_subscriber", "", Set("allow_history_for_subscriber", Bool)),
    ("allow_history_for_anonymous", "", Set("allow_history_for_anonymous", Bool)),
    ("allow_presence_for_client", "", Set("allow_presence_for_client", Bool)),
    ("allow_presence_for_subscriber", "", Set("allow_presence_for_subscriber", Bool)),
    ("allow_presence_for_anonymous", "", Set("allow_presence_for_anonymous", Bool)),
    ("allow_user_limited_channels", "", Set("allow_user_limited_channels", Bool)),
    ("channel_regex", "", Set("channel_regex", Regex)),
    ("publication_data_format", "", Set("publication_data_format", Text)),
    (
        "proxy_subscribe_stream*",
        "subscribe_stream_proxy_*",
        Todo("there are no subscription streams: publish through the API"),
    ),
    ("proxy_cache_empty", "cache_empty_*", Todo("no hook fills an empty cache: publish the state before clients come")),
    ("subscription_type", "", Fixed(&["", "stream"], NO_MAP)),
    ("map.*", "", Todo(NO_MAP)),
    ("shared_poll.*", "", Todo(NO_MAP)),
    ("batch_*", "keep_latest_publication", Todo(PRO)),
    ("shared_position_sync", "", Same("positions cannot become wrong, so nothing is checked")),
];

/// An address of a back end, and how it is called.
pub(super) const PROXY: &[Row] = &[
    NAME,
    ("enabled", "", Same("a hook is on where it is named")),
    ("endpoint", "", Set("url", Endpoint)),
    ("timeout", "", Set("timeout", Duration)),
    ("http_headers", "", Set("client_headers", Texts)),
    ("static_http_headers", "http.static_headers", Set("static_headers_file", Headers)),
    ("http_status_code_transforms", "http.status_to_code_transforms", Set("statuses", Statuses)),
    ("http_status_to_code_transforms", "", Set("statuses", Statuses)),
    ("include_connection_meta", "", Set("include_meta", Bool)),
    ("binary_encoding", "", Todo("payloads are JSON, as `data`: leave it off in the back end")),
    ("", "http.tls.*", Todo("`ca_file` of the hook names certificates to trust; other rules of TLS do not exist")),
    ("grpc_*", "grpc.*", Todo(NO_GRPC)),
];

/// Proxies that 5 and 6 have without a name of the operator: what is asked, and where 6 has it.
pub(super) const DEFAULT_PROXIES: &[(&str, &str)] = &[
    ("connect", "client.proxy.connect"),
    ("refresh", "client.proxy.refresh"),
    ("subscribe", "channel.proxy.subscribe"),
    ("publish", "channel.proxy.publish"),
    ("sub_refresh", "channel.proxy.sub_refresh"),
    ("subscribe_stream", "channel.proxy.subscribe_stream"),
    ("rpc", "rpc.proxy"),
];

/// The row of a key.
pub(super) fn find(rows: &'static [Row], key: &str) -> Option<Act> {
    let names = || rows.iter().flat_map(|(five, six, act)| [(*five, *act), (*six, *act)]);
    let exact = names().find(|(name, _)| !name.is_empty() && *name == key);
    exact.or_else(|| names().find(|(name, _)| matches(name, key))).map(|(_, act)| act)
}

/// `*` is any text.
fn matches(name: &str, key: &str) -> bool {
    let Some((head, rest)) = name.split_once('*') else { return false };
    let Some(tail) = key.strip_prefix(head) else { return false };
    match rest.strip_suffix('*') {
        Some(middle) => tail.contains(middle),
        None => rest.is_empty(),
    }
}
