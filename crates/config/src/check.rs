//! Checks relations between settings, and the files that settings name.
//!
//! Single values are checked when they are read. Here secrets are read from their files, and API keys become digests;
//! the keys themselves are dropped. So a checked configuration has one form only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use tidings_feed::Mapping;
use tidings_gateway::{Certificate, CertificateError, ClientCertificate};
use tidings_gettext::{Message, PLACEHOLDER_LENGTH};
use tidings_intake::{SOURCE_COUNT_MAX, is_identifier, is_loopback, is_nats_name, is_table};
use tidings_protocol::token::TokenKey;
use tidings_protocol::{
    DeltaType, HookId, NamespaceOptions, PublicationKey, RecoveryMode, SessionHooks, SlowReaders, Thinning,
};
use tidings_push::apns::check_app;
use tidings_push::fcm::oauth::ServiceAccount;
use tidings_push::web_push::guard::{DEFAULT_HOSTS, EndpointRules, HostRuleError};
use tidings_push::web_push::vapid::{VapidError, VapidKey};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, Environment, FeedName, TopicName, event_limits as limits};
use tracing_subscriber::EnvFilter;

use super::built::Built;
use super::field::{Reader, bare_or_quoted};
use super::file::read_file;
use super::sections::{
    Api, ApiKey, Apns, Apps, Channel, Client, Cluster, Config, Console, Edge, Fcm, Feed, Hook, Http, Influx, JetStream,
    Names, Namespace, Outbox, Shadow, Tls, Token, Topic, TopicPresent, Traces, TranslationService, Translations,
    WebPush, Webhook,
};
use super::tree::{Origin, Problem};
use super::value::{ByteSize, Leaf as _, Missing, Moment, Secret, Sha256, StaticHeader};
use crate::WebhookKey;

/// The least length of an API key: a key is a random string, not a password.
pub(super) const API_KEY_CHARACTERS_MIN: usize = 16;

/// The least length of a secret without a warning (RFC 7518, 3.2: the length of the hash).
const CHANNEL_TTL_MIN: Duration = Duration::from_secs(1);
/// Bytes that are read of a client at a time.
const READ_BYTES: ByteSize = ByteSize(64 << 10);
const TOKEN_SECRET_BYTES: usize = 32;

/// The server's certificate causes a warning if it ends sooner. Automatic renewal replaces it 30 days before its end.
const SERVER_CERTIFICATE_END_NEAR: Duration = Duration::from_secs(14 * DAY_SECS);

/// Nobody looks at files more often.
const WATCH_MIN: Duration = Duration::from_millis(100);

/// Each hook has series of metrics of its own.
const HOOK_COUNT_MAX: usize = 64;

const DAY_SECS: u64 = 24 * 3600;

/// A provider's certificate causes a warning if it ends sooner.
const CERTIFICATE_END_NEAR: Duration = Duration::from_secs(30 * DAY_SECS);

/// Checks everything, for a program that was built so. Problems go to `reader`; warnings are returned.
pub(super) fn check(config: &mut Config, reader: &mut Reader, built: Built) -> Vec<Problem> {
    let mut check = Check { reader, warnings: Vec::new() };
    built.refused(config).iter().for_each(|(path, message)| check.problem(path, message));
    check.http(&config.http, &config.api);
    check.tls(&config.http);
    check.proxy(&config.http, &config.apps);
    check.keys(&mut config.api);
    check.console(&config.console, &config.http);
    check.client(&mut config.client, &config.http);
    check.edge(&config.edge, &config.client, &config.http);
    check.personal_channel(&config.client, &config.channel);
    check.namespace("channel.without_namespace", &config.channel.without_namespace);
    for (name, namespace) in &config.channel.namespaces {
        check.name("channel.namespaces", name);
        check.namespace(&format!("channel.namespaces.{}", bare_or_quoted(name)), namespace);
    }
    check.topics(&config.topics);
    check.missing(config);
    check.names(&config.names);
    check.service(&config.translations);
    check.feeds(&mut config.feeds);
    check.all_apns(&config.apns);
    check.all_fcm(&config.fcm);
    check.all_web_push(&config.web_push);
    check.shadow(&config.shadow);
    if !config.translations.watch.is_zero() && config.translations.watch < WATCH_MIN {
        let message = format!("must be 0s or at least {WATCH_MIN:?}, got {:?}", config.translations.watch);
        check.problem("translations.watch", &message);
    }
    if config.store.reopen_backoff_min > config.store.reopen_backoff_max {
        check.problem("store.reopen_backoff_min", "must not be longer than `store.reopen_backoff_max`");
    }
    check.hooks(config);
    check.sources(config);
    check.cluster(&config.cluster, &config.api);
    check.webhook(&mut config.webhook);
    check.presence(config);
    check.influx(&config.influx);
    check.traces(&mut config.traces);
    if let Err(error) = EnvFilter::try_new(&config.log.filter) {
        check.problem("log.filter", &format!("{error}, got {:?}", config.log.filter));
    }
    check.warnings
}

/// Checks the topics alone.
pub(super) fn check_topics(config: &Config, reader: &mut Reader) {
    Check { reader, warnings: Vec::new() }.topics(&config.topics);
}

/// Whether streams, buckets and subjects of NATS may be named after it.
fn is_cluster_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(is_letter)
}

struct Check<'a> {
    reader: &'a mut Reader,
    warnings: Vec<Problem>,
}

impl Check<'_> {
    /// Where a setting was given; if it was not, the first given setting of its table.
    fn origin(&self, path: &str) -> Origin {
        let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
        let settings = || self.reader.effective.iter();
        let stated = |origin: &&Origin| !matches!(origin, Origin::Default);
        let own = settings().filter(|setting| setting.table == table && setting.name == name);
        let near = settings().filter(|setting| setting.table == table || setting.table == path);
        own.chain(near).map(|setting| &setting.origin).find(stated).cloned().unwrap_or(Origin::Default)
    }

    fn problem(&mut self, path: &str, message: &str) {
        let origin = self.origin(path);
        self.reader.problem(&origin, format!("`{path}`: {message}"));
    }

    fn warn(&mut self, path: &str, message: &str) {
        self.warnings.push(Problem { origin: self.origin(path), message: format!("`{path}`: {message}") });
    }

    fn name(&mut self, path: &str, name: &str) {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(valid) {
            let message = format!("a name must be 1 to 64 letters, digits, `_`, `-` and `.`, got {name:?}");
            self.problem(&format!("{path}.{}", bare_or_quoted(name)), &message);
        }
    }

    fn http(&mut self, http: &Http, api: &Api) {
        if http.internal_listen == Some(http.listen) && http.listen.port() != 0 {
            self.problem("http.internal_listen", "is the same address as `http.listen`: choose another port");
        }
        let of_api = match (http.internal_listen, http.tls.listen) {
            (Some(address), _) => vec![("http.internal_listen", address)],
            (None, None) => vec![("http.listen", http.listen)],
            (None, Some(address)) => vec![("http.listen", http.listen), ("http.tls.listen", address)],
        };
        for (path, address) in of_api.into_iter().filter(|(_, address)| !address.ip().is_loopback()) {
            if api.keys.is_empty() {
                let message = format!("{address} is not loopback, so the API needs a key: add one under [[api.keys]]");
                self.problem(path, &message);
            }
        }
    }

    fn tls(&mut self, http: &Http) {
        let Tls { certificate_file, certificate_key_file, listen } = &http.tls;
        for (other, path) in [(Some(http.listen), "http.listen"), (http.internal_listen, "http.internal_listen")] {
            if listen.is_some_and(|listen| listen.port() != 0 && other == Some(listen)) {
                self.problem("http.tls.listen", &format!("is the same address as `{path}`: choose another port"));
            }
        }
        match (certificate_file, certificate_key_file) {
            (None, None) if listen.is_none() => {}
            (None, _) => self.problem("http.tls.certificate_file", "is missing: name the file with the certificates"),
            (Some(_), None) => {
                self.problem("http.tls.certificate_key_file", "is missing: name the file with the private key")
            }
            (Some(chain_file), Some(key_file)) => {
                if let Some(certificate) = self.key_pair("http.tls", chain_file, key_file, Certificate::read) {
                    self.server_certificate(chain_file, &certificate);
                }
            }
        }
    }

    /// An expired certificate only causes a warning: a server that does not start helps nobody.
    fn server_certificate(&mut self, file: &Path, certificate: &Certificate) {
        let (path, now, end) = ("http.tls.certificate_file", unix_now(), certificate.end_date());
        let days = |span: Duration| span.as_secs() / DAY_SECS;
        let left = certificate.ends_at().saturating_since(now);
        if left.is_zero() {
            let ago = days(now.saturating_since(certificate.ends_at()));
            let message = format!("{} has ended on {end}, {ago} days ago: clients refuse it", file.display());
            self.warn(path, &message);
        } else if left < SERVER_CERTIFICATE_END_NEAR {
            self.warn(path, &format!("{} ends on {end}, in {} days", file.display(), days(left)));
        }
        if certificate.begins_at() > now {
            self.warn(path, &format!("{} is not valid yet: clients refuse it", file.display()));
        }
    }

    /// Reads a certificate with its private key.
    fn key_pair<T>(
        &mut self,
        path: &str,
        chain_file: &Path,
        key_file: &Path,
        read: impl FnOnce(&str, &str) -> Result<T, CertificateError>,
    ) -> Option<T> {
        let (chain_path, key_path) = (format!("{path}.certificate_file"), format!("{path}.certificate_key_file"));
        let (chain, key) = (self.file(&chain_path, chain_file), self.file(&key_path, key_file));
        let tell = |error: CertificateError| {
            let (path, file) = if error.is_about_key() { (key_path, key_file) } else { (chain_path, chain_file) };
            self.problem(&path, &format!("{}: {error}", file.display()));
        };
        read(&chain?, &key?).map_err(tell).ok()
    }

    /// Warns about a limit per address behind a proxy, where all connections have the proxy's address.
    fn proxy(&mut self, http: &Http, apps: &Apps) {
        if apps.address_header.is_some() && http.address_connection_count_max > 0 {
            let message = format!(
                "is {}, and all clients of the proxy that sends `apps.address_header` have its address: set 0, or what the \
                 proxy may hold",
                http.address_connection_count_max
            );
            self.warn("http.address_connection_count_max", &message);
        }
    }

    /// A header that is believed from nobody lets nobody in.
    fn console(&mut self, console: &Console, http: &Http) {
        let is_private = http.internal_listen.is_some_and(|address| address.ip().is_loopback());
        if console.user_header.is_some() && console.trusted_proxies.is_empty() && !is_private {
            let message = "is believed from nobody: name the proxy's address in `console.trusted_proxies`, or set \
                           `http.internal_listen` to an address on loopback";
            self.problem("console.user_header", message);
        }
        if console.role_header.is_some() && console.user_header.is_none() {
            self.problem("console.role_header", "needs `console.user_header`, the header that names the user");
        }
    }

    fn keys(&mut self, api: &mut Api) {
        let mut names = BTreeSet::new();
        let mut digests = BTreeSet::new();
        for (index, key) in api.keys.iter_mut().enumerate() {
            let path = format!("api.keys[{index}]");
            if !names.insert(key.name.clone()) {
                self.problem(
                    &format!("{path}.name"),
                    &format!("{:?} names an earlier key already: choose another name", key.name),
                );
            }
            if key.scopes.is_empty() {
                self.problem(&format!("{path}.scopes"), "is empty: name at least one scope");
            }
            self.digest(&path, key);
            if key.sha256.is_some_and(|digest| !digests.insert(digest.0)) {
                self.problem(&format!("{path}.name"), "has the same key as an earlier one: give each its own");
            }
        }
    }

    /// Replaces the key by its digest.
    fn digest(&mut self, path: &str, key: &mut ApiKey) {
        let stated =
            usize::from(key.key.is_some()) + usize::from(key.key_file.is_some()) + usize::from(key.sha256.is_some());
        if stated != 1 {
            let message = format!("give exactly one of `key`, `key_file` and `sha256`, got {stated}");
            self.problem(&format!("{path}.name"), &message);
            return;
        }
        let from_file = key.key_file.as_deref().map(|file| self.secret_file(&format!("{path}.key_file"), file));
        let Some(secret) = key.key.take().or(from_file.flatten()) else { return };
        let setting = if key.key_file.is_some() { "key_file" } else { "key" };
        let length = secret.expose().chars().count();
        if length < API_KEY_CHARACTERS_MIN {
            let message = format!("a key must have at least {API_KEY_CHARACTERS_MIN} characters, got {length}");
            self.problem(&format!("{path}.{setting}"), &message);
        }
        key.sha256 = Some(Sha256::of(secret.expose().as_bytes()));
    }

    fn personal_channel(&mut self, client: &Client, channel: &Channel) {
        let namespace = client.subscribe_to_user_personal_channel.personal_channel_namespace.as_ref();
        if let Some(unknown) = namespace.filter(|name| !channel.namespaces.contains_key(*name)) {
            let message = format!("{unknown:?} is not among `channel.namespaces`: add it there, or name one of them");
            self.problem("client.subscribe_to_user_personal_channel.personal_channel_namespace", &message);
        }
    }

    fn client(&mut self, client: &mut Client, http: &Http) {
        if client.ping_interval.subsec_millis() != 0 {
            self.problem("client.ping_interval", "must be whole seconds: the protocol tells clients no fractions");
        }
        if client.pong_timeout >= client.ping_interval {
            self.problem("client.pong_timeout", "must be shorter than `client.ping_interval`");
        }
        self.token("client.token", &mut client.token);
        self.token("client.subscription_token", &mut client.subscription_token);
        if !client.subscription_token.has_keys() && client.subscription_token.has_rules() {
            self.problem("client.subscription_token", "has rules but no key: give it a key, or remove the rules");
        }
        let is_open = |address: SocketAddr| !address.ip().is_loopback();
        if client.insecure && (is_open(http.listen) || http.tls.listen.is_some_and(is_open)) {
            self.warn("client.insecure", "everybody who reaches this server may read and publish everything");
        }
        if client.insecure || client.allow_anonymous || client.token.has_keys() || client.connect_hook.is_some() {
            return;
        }
        let message =
            "has no key, and `client.allow_anonymous` and `client.connect_hook` are off, so no client can connect";
        self.warn("client.token", message);
    }

    fn token(&mut self, path: &str, token: &mut Token) {
        let pairs = [
            (&mut token.hmac_secret, &token.hmac_secret_file, "hmac_secret"),
            (&mut token.hmac_previous_secret, &token.hmac_previous_secret_file, "hmac_previous_secret"),
        ];
        for (secret, file, name) in pairs {
            let path = format!("{path}.{name}");
            match (&secret, file) {
                (Some(_), Some(_)) => self.problem(&path, &format!("give it or `{path}_file`, not both")),
                (None, Some(file)) => *secret = self.secret_file(&format!("{path}_file"), file),
                _ => {}
            }
            let length = secret.as_ref().map(|secret| secret.expose().len());
            if length.is_some_and(|length| length < TOKEN_SECRET_BYTES) {
                self.warn(
                    &path,
                    &format!("is shorter than {TOKEN_SECRET_BYTES} bytes and can be guessed: choose a longer one"),
                );
            }
        }
        if token.hmac_previous_secret.is_some() && token.hmac_secret.is_none() {
            self.problem(&format!("{path}.hmac_previous_secret"), &format!("needs `{path}.hmac_secret`"));
        }
        self.previous_secret_end(path, token);
        for (index, file) in token.public_key_files.iter().enumerate() {
            let path = format!("{path}.public_key_files[{index}]");
            if let Some(Err(error)) = self.file(&path, file).map(|text| TokenKey::public_pem(&text)) {
                self.problem(&path, &format!("{} is {error}", file.display()));
            }
        }
        self.jwks(path, token);
    }

    fn previous_secret_end(&mut self, path: &str, token: &Token) {
        let Some(Moment(end)) = token.hmac_previous_secret_until else { return };
        let path = format!("{path}.hmac_previous_secret_until");
        if token.hmac_previous_secret.is_none() {
            self.warn(&path, "has no effect without a previous secret: remove it");
        } else if end <= unix_now() {
            self.warn(&path, "is over: the previous secret can be removed");
        }
    }

    fn jwks(&mut self, path: &str, token: &Token) {
        if token.jwks_url.as_ref().is_some_and(|url| !url.origin.is_tls()) && !token.jwks_allow_http {
            self.problem(&format!("{path}.jwks_url"), &format!("must be https, or set `{path}.jwks_allow_http`"));
        }
        if token.jwks_fetch_interval_min > token.jwks_refresh_interval {
            let message = format!("must not be longer than `{path}.jwks_refresh_interval`");
            self.problem(&format!("{path}.jwks_fetch_interval_min"), &message);
        }
        if let Some(file) = &token.jwks_ca_file {
            self.pem(&format!("{path}.jwks_ca_file"), file, "CERTIFICATE");
        }
    }

    /// Reads a secret from a file, without the line break at the end.
    fn secret_file(&mut self, path: &str, file: &Path) -> Option<Secret> {
        let text = self.file(path, file)?;
        let secret = text.trim_end_matches(['\n', '\r']);
        if secret.is_empty() || secret.chars().any(char::is_control) {
            self.problem(path, &format!("{} must hold the secret, on one line", file.display()));
            return None;
        }
        Some(Secret::new(secret))
    }

    fn file(&mut self, path: &str, file: &Path) -> Option<String> {
        read_file(file).map_err(|error| self.problem(path, &format!("cannot read {}: {error}", file.display()))).ok()
    }

    /// The replies of each loop need room for a large one, and so do the logs.
    fn edge(&mut self, edge: &Edge, client: &Client, http: &Http) {
        let loops = if edge.loops == 0 { available_parallelism().map_or(1, usize::from) } else { edge.loops };
        let reply = edge.control_bytes_max.max(client.reply_bytes_max);
        let (needed, got) = (ByteSize(4 * 2 * reply.0 * loops as u64), edge.memory_bytes_max);
        if got < needed {
            let text = format!(
                "must be at least \"{needed}\" with {loops} loops, got \"{got}\": a quarter of it is for replies, and each loop needs \
                 twice `edge.control_bytes_max` and twice `client.reply_bytes_max`"
            );
            self.problem("edge.memory_bytes_max", &text);
        }
        let largest = ByteSize(4 * http.body_bytes_max.0);
        if got < largest {
            let text = format!("must be at least \"{largest}\", four times `http.body_bytes_max`, got \"{got}\"");
            self.problem("edge.memory_bytes_max", &text);
        }
        let largest = client.frame_bytes_max.max(READ_BYTES);
        let (needed, got) = (ByteSize(4 * largest.0 * loops as u64), edge.input_bytes_max);
        if got < needed {
            let text = format!(
                "must be at least \"{needed}\" with {loops} loops, for each four times `client.frame_bytes_max` or \"{READ_BYTES}\", got \
                 \"{got}\""
            );
            self.problem("edge.input_bytes_max", &text);
        }
    }

    fn namespace(&mut self, path: &str, namespace: &Namespace) {
        let (size, ttl) = (namespace.history_size > 0, !namespace.history_ttl.is_zero());
        if size && !ttl {
            self.problem(&format!("{path}.history_size"), "needs a `history_ttl` above 0s");
        }
        if ttl && !size {
            self.problem(&format!("{path}.history_ttl"), "needs a `history_size` above 0");
        }
        let needing = [
            ("durable", namespace.durable),
            ("force_recovery", namespace.force_recovery),
            ("allow_recovery", namespace.allow_recovery),
        ];
        for (name, _) in needing.into_iter().filter(|(_, on)| *on && !size && !ttl) {
            self.problem(&format!("{path}.{name}"), "needs a history: set `history_size` and `history_ttl`");
        }
        if namespace.auto_cache_recover && namespace.force_recovery_mode == RecoveryMode::Stream {
            self.problem(&format!("{path}.auto_cache_recover"), "needs `force_recovery_mode = \"cache\"`");
        }
        if !namespace.channel_ttl.is_zero() && namespace.channel_ttl < CHANNEL_TTL_MIN {
            self.problem(&format!("{path}.channel_ttl"), "must be at least \"1s\", or \"0s\" for `store.channel_ttl`");
        }
        if !namespace.channel_ttl.is_zero() && !namespace.durable {
            self.problem(
                &format!("{path}.channel_ttl"),
                "needs `durable = true`: other channels end with their history",
            );
        }
        if namespace.event_texts && !namespace.durable {
            self.problem(
                &format!("{path}.event_texts"),
                "needs `durable = true`: events go into durable channels only",
            );
        }
        if namespace.force_push_join_leave && !namespace.join_leave {
            self.problem(&format!("{path}.force_push_join_leave"), "needs `join_leave = true`");
        }
        let is_latest = namespace.slow_readers == SlowReaders::Latest;
        if namespace.per_second_max > 0 && !is_latest {
            self.problem(&format!("{path}.per_second_max"), "needs `slow_readers = \"latest\"`");
        }
        if namespace.latest_key.is_some() && !is_latest && !namespace.allow_thinning {
            let needed = "needs `slow_readers = \"latest\"` or `allow_thinning = true`";
            self.problem(&format!("{path}.latest_key"), needed);
        }
    }

    fn service(&mut self, translations: &Translations) {
        let TranslationService { pull, push, .. } = &translations.service;
        if translations.dir.is_none() && !(pull.is_empty() && push.is_empty()) {
            self.problem("translations.service", "needs `translations.dir`");
        }
    }

    fn topics(&mut self, topics: &BTreeMap<TopicName, Topic>) {
        for (name, topic) in topics {
            self.topic(&format!("topics.{name}"), name, topic);
        }
    }

    fn topic(&mut self, path: &str, name: &TopicName, topic: &Topic) {
        let plural = topic.title_plural.is_some() || topic.body_plural.is_some();
        if plural && topic.count.is_none() {
            self.problem(&format!("{path}.count"), "is missing: name the parameter that chooses the plural");
        }
        if topic.count.is_some() && !plural {
            self.problem(&format!("{path}.count"), "needs `title_plural` or `body_plural`");
        }
        for (setting, rule) in topic.select_problems() {
            self.problem(&format!("{path}.{setting}"), &rule);
        }
        for (part, template) in [("title", topic.title_template()), ("body", topic.body_template())] {
            if let Err(error) = template {
                self.problem(&format!("{path}.{part}"), &error.to_string());
            }
        }
        for message in topic.messages(name).into_iter().flatten() {
            if let (Some(length), Some(max)) = (message.excess_length(), message.length_max) {
                let rule = format!(
                    "has {length} characters, with {PLACEHOLDER_LENGTH} for each placeholder; its maximum is {max}"
                );
                self.warn(&format!("topics.{}", message.reference), &rule);
            }
        }
        let TopicPresent { sound, category, android_channel, interruption: _ } = &topic.present;
        for (name, text) in [("sound", sound), ("category", category), ("android_channel", android_channel)] {
            let (length, max) = (text.as_ref().map_or(0, String::len), limits::PRESENT_BYTES_MAX);
            if length > max {
                self.problem(&format!("{path}.present.{name}"), &format!("has at most {max} bytes, got {length}"));
            }
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if topic.domain.len() > 64 || !topic.domain.bytes().all(plain) {
            let message = format!("must be 1 to 64 letters, digits, `_` and `-`, got {:?}", topic.domain);
            self.problem(&format!("{path}.domain"), &message);
        }
    }

    fn missing(&mut self, config: &Config) {
        let skipping = config.topics.iter().filter(|(_, topic)| topic.missing == Missing::Skip);
        for (name, _) in skipping.filter(|_| config.translations.source_locale.is_none()) {
            let message =
                "\"skip\" needs `translations.source_locale`: set the language in which the topics are written";
            self.problem(&format!("topics.{name}.missing"), message);
        }
    }

    fn names(&mut self, names: &BTreeMap<String, Names>) {
        for (context, names) in names {
            let path = format!("names.{}", bare_or_quoted(context));
            if context.is_empty() || context.len() > limits::PARAM_CONTEXT_BYTES_MAX {
                let message = format!(
                    "a context must have 1 to {} bytes, got {}",
                    limits::PARAM_CONTEXT_BYTES_MAX,
                    context.len()
                );
                self.problem(&path, &message);
            }
            for rule in names.case_problems(context) {
                self.problem(&format!("{path}.cases"), &rule);
            }
            let mut known = BTreeSet::new();
            for name in &names.values {
                let path = format!("{path}.values");
                if name.len() > limits::PARAM_TEXT_BYTES_MAX {
                    let message =
                        format!("a name has at most {} bytes, got {}", limits::PARAM_TEXT_BYTES_MAX, name.len());
                    self.problem(&path, &message);
                } else if !known.insert(name) {
                    self.problem(&path, &format!("has {name:?} twice: remove one of them"));
                } else if let Err(error) = Message::of_name(name, Some(context)) {
                    self.problem(&path, &format!("{name:?} cannot be translated: {error}"));
                }
            }
        }
    }

    fn all_apns(&mut self, all: &BTreeMap<String, Apns>) {
        let mut taken = BTreeMap::new();
        for (name, apns) in all {
            let path = format!("apns.{}", bare_or_quoted(name));
            self.name("apns", name);
            self.apns(&path, apns);
            for app in &apns.apps {
                if let Some(other) = taken.insert((apns.environment, app), name) {
                    let message = format!(
                        "{app} in this environment belongs to `apns.{other}` already: remove it from one of them"
                    );
                    self.problem(&format!("{path}.apps"), &message);
                }
            }
        }
    }

    fn webhook(&mut self, webhook: &mut Webhook) {
        let Webhook {
            url, presence_url, allow_http, secret, secret_file, previous_secret, previous_secret_file, ..
        } = webhook;
        let has_url = url.is_some() || presence_url.is_some();
        let pairs = [
            (&mut *secret, &*secret_file, "webhook.secret"),
            (&mut *previous_secret, &*previous_secret_file, "webhook.previous_secret"),
        ];
        pairs.into_iter().for_each(|(secret, file, path)| self.signing_secret(secret, file.as_deref(), path));
        if has_url && secret.is_none() && secret_file.is_none() {
            self.problem("webhook.secret", "is missing: give a secret, because requests are signed");
        }
        if !has_url && secret.is_some() {
            self.warn("webhook.secret", "has no effect without `webhook.url` or `webhook.presence_url`");
        }
        if previous_secret.is_some() && secret.is_none() {
            self.problem("webhook.previous_secret", "needs `webhook.secret`");
        }
        for (url, path) in [(&*url, "webhook.url"), (&*presence_url, "webhook.presence_url")] {
            if url.as_ref().is_some_and(|url| !url.origin.is_tls()) && !*allow_http {
                self.problem(path, "must be https, or set `webhook.allow_http`");
            }
        }
        if webhook.backoff_min > webhook.backoff_max {
            self.problem("webhook.backoff_min", "must not be longer than `webhook.backoff_max`");
        }
        if let Some(file) = &webhook.ca_file {
            self.pem("webhook.ca_file", file, "CERTIFICATE");
        }
    }

    /// A secret of the Standard Webhooks specification, or the file that contains it.
    fn signing_secret(&mut self, secret: &mut Option<Secret>, file: Option<&Path>, path: &str) {
        let stated = if file.is_some() { format!("{path}_file") } else { path.to_owned() };
        match (&secret, file) {
            (Some(_), Some(_)) => self.problem(path, &format!("give it or `{stated}`, not both")),
            (None, Some(file)) => *secret = self.secret_file(&stated, file),
            _ => {}
        }
        if let Some(Err(error)) = secret.as_ref().map(|secret| WebhookKey::parse(secret.expose())) {
            self.problem(&stated, &error.to_string());
        }
    }

    /// Who is told of, and where.
    fn presence(&mut self, config: &Config) {
        let users = config.client.connection_webhook.then(|| "client.connection_webhook".to_owned());
        let told = config.all_namespaces().filter(|(_, namespace)| namespace.occupancy_webhook);
        let told: Vec<_> = users.into_iter().chain(told.map(|(path, _)| format!("{path}.occupancy_webhook"))).collect();
        match &config.webhook.presence_url {
            None => told.iter().for_each(|path| self.problem(path, "needs `webhook.presence_url`")),
            Some(_) if told.is_empty() => {
                let message = "has no effect without `client.connection_webhook` or `occupancy_webhook` of a namespace";
                self.warn("webhook.presence_url", message);
            }
            Some(_) => {}
        }
    }

    fn feeds(&mut self, feeds: &mut BTreeMap<FeedName, Feed>) {
        for (name, feed) in feeds {
            self.feed(&format!("feeds.{}", bare_or_quoted(name.as_str())), feed);
        }
    }

    fn feed(&mut self, path: &str, feed: &mut Feed) {
        let sources = usize::from(feed.url.is_some()) + usize::from(feed.received) + usize::from(feed.files.is_some());
        if sources != 1 {
            let message = format!("give exactly one of `url`, `received = true` and `files`, got {sources}");
            self.problem(&format!("{path}.mapping"), &message);
        }
        if let Err(message) = feed.read_mapping() {
            self.problem(&format!("{path}.mapping"), &message);
        }
        if feed.url.as_ref().is_some_and(|url| !url.origin.is_tls()) && !feed.allow_http {
            self.problem(&format!("{path}.url"), "must be https, or set `allow_http`");
        }
        if let Some(files) = &feed.files {
            match feed.folder() {
                None => {
                    let message = format!("must be a folder, / and a name with at most one *, got {files:?}");
                    self.problem(&format!("{path}.files"), &message);
                }
                Some((folder, _)) if !folder.is_dir() => {
                    self.problem(&format!("{path}.files"), &format!("{} is not a folder: make it", folder.display()));
                }
                Some(_) => {}
            }
        }
        if let Some(file) = &feed.ca_file {
            self.pem(&format!("{path}.ca_file"), file, "CERTIFICATE");
        }
        if let Some(file) = feed.headers_file.clone() {
            self.header_lines(&format!("{path}.headers_file"), &file, &mut feed.headers);
        }
    }

    /// Adds the headers of a file, one a line.
    fn header_lines(&mut self, path: &str, file: &Path, headers: &mut Vec<StaticHeader>) {
        let text = self.file(path, file).unwrap_or_default();
        let lines: Option<Vec<_>> = text.lines().filter(|line| !line.is_empty()).map(StaticHeader::parse).collect();
        match lines {
            Some(more) => headers.extend(more),
            None => self.problem(path, &format!("{}: each line {}", file.display(), StaticHeader::EXPECTED)),
        }
    }

    fn sources(&mut self, config: &mut Config) {
        for (name, outbox) in &mut config.outbox {
            self.name("outbox", name);
            self.outbox(&format!("outbox.{}", bare_or_quoted(name)), outbox);
        }
        for (name, stream) in &config.jetstream {
            self.name("jetstream", name);
            let path = format!("jetstream.{}", bare_or_quoted(name));
            if config.outbox.contains_key(name) {
                self.problem(&path, "has the name of an outbox: the ids of their events could be the same");
            }
            self.jetstream(&path, stream);
        }
        for feed in config.feeds.keys().map(FeedName::as_str) {
            if config.outbox.contains_key(feed) || config.jetstream.contains_key(feed) {
                self.problem(&format!("feeds.{}", bare_or_quoted(feed)), "has the name of another source");
            }
        }
        let count = config.feeds.len() + config.outbox.len() + config.jetstream.len();
        if count > SOURCE_COUNT_MAX {
            let message = format!("must be at most {SOURCE_COUNT_MAX} with `outbox` and `jetstream`, got {count}");
            self.problem("feeds", &message);
        }
    }

    fn outbox(&mut self, path: &str, outbox: &mut Outbox) {
        match (&outbox.database, &outbox.database_file) {
            (None, Some(file)) => outbox.database = self.secret_file(&format!("{path}.database_file"), file),
            (Some(_), Some(_)) => {
                let message = format!("give it or `{path}.database_file`, not both");
                self.problem(&format!("{path}.database"), &message);
            }
            (_, None) => {}
        }
        match outbox.database.as_ref() {
            None if outbox.database_file.is_some() => {} // Unreadable: said already.
            None => self.problem(path, "needs `database` or `database_file`"),
            #[cfg(feature = "sources")]
            Some(database) => {
                if let Err(error) = tidings_intake::database(database.expose()) {
                    self.problem(&format!("{path}.database"), &error.to_string());
                }
            }
            #[cfg(not(feature = "sources"))]
            Some(_) => {} // Only its client can read it. The source is refused.
        }
        if let Some(file) = &outbox.ca_file {
            self.pem(&format!("{path}.ca_file"), file, "CERTIFICATE");
        }
        if !is_table(&outbox.table) {
            let message = "must be a name, or two with a dot, of lower-case letters, digits and `_`";
            self.problem(&format!("{path}.table"), message);
        }
        if !is_identifier(&outbox.channel) {
            let message = "must be a name of at most 63 lower-case letters, digits and `_`";
            self.problem(&format!("{path}.channel"), message);
        }
    }

    fn cluster(&mut self, cluster: &Cluster, api: &Api) {
        let Cluster { servers, credentials_file, ca_file, name, node, address, replicas, .. } = cluster;
        if servers.is_empty() {
            return; // The server is alone.
        }
        self.nats("cluster", servers, credentials_file.as_deref(), ca_file.as_deref());
        for (path, name) in [("cluster.name", Some(name)), ("cluster.node", node.as_ref())] {
            if let Some(name) = name.filter(|name| !is_cluster_name(name)) {
                let message = format!("must be 1 to 64 letters, digits, `_` and `-`, got {name:?}");
                self.problem(path, &message);
            }
        }
        match address.as_ref().map(|address| address.parse::<tidings_http1::Origin>()) {
            Some(Ok(_)) => {}
            Some(Err(error)) => self.problem(
                "cluster.address",
                &format!("{error}, got {:?}", without_password(address.as_deref().unwrap_or_default())),
            ),
            None => {
                let message =
                    "is missing: where the other servers reach this one, such as \"http://a.example.com:8000\"";
                self.problem("cluster.address", message);
            }
        }
        if ![1, 3, 5].contains(replicas) {
            self.problem("cluster.replicas", &format!("must be 1, 3 or 5, got {replicas}"));
        }
        if api.keys.is_empty() {
            let message = "needs keys that all servers have: add one under [[api.keys]]";
            self.problem("cluster.servers", message);
        }
    }

    /// What is needed to connect to NATS.
    fn nats(&mut self, path: &str, servers: &[String], credentials_file: Option<&Path>, ca_file: Option<&Path>) {
        for server in servers {
            if let Err(error) = tidings_intake::check_server(server) {
                self.problem(&format!("{path}.servers"), &format!("{error}, got {:?}", without_password(server)));
            }
        }
        if let Some(file) = credentials_file {
            let _ = self.file(&format!("{path}.credentials_file"), file); // Only whether it can be read.
        }
        if let Some(file) = ca_file {
            self.pem(&format!("{path}.ca_file"), file, "CERTIFICATE");
        }
    }

    fn jetstream(&mut self, path: &str, stream: &JetStream) {
        if stream.servers.is_empty() {
            self.problem(&format!("{path}.servers"), "must name a server");
        }
        let (credentials_file, ca_file) = (stream.credentials_file.as_deref(), stream.ca_file.as_deref());
        self.nats(path, &stream.servers, credentials_file, ca_file);
        for (name, value) in [("stream", &stream.stream), ("consumer", &stream.consumer)] {
            if !is_nats_name(value) {
                let message = format!("must be 1 to 255 visible ASCII characters but . * > / and \\, got {value:?}");
                self.problem(&format!("{path}.{name}"), &message);
            }
        }
    }

    fn hooks(&mut self, config: &mut Config) {
        let names: BTreeSet<String> = config.hooks.keys().cloned().collect();
        if names.len() > HOOK_COUNT_MAX {
            self.problem("hooks", &format!("must be at most {HOOK_COUNT_MAX}, got {}", names.len()));
        }
        for (name, hook) in &mut config.hooks {
            self.name("hooks", name);
            self.hook(&format!("hooks.{}", bare_or_quoted(name)), hook, config.client.pong_timeout);
        }
        for (path, name) in config.hook_uses() {
            if !names.contains(&name) {
                self.problem(
                    &path,
                    &format!(
                        "names the hook {name:?}, which is not configured: add it under [hooks], or correct the name"
                    ),
                );
            }
        }
        let connect = config.client.connect_hook.as_ref().and_then(|name| config.hooks.get(name));
        if connect.is_some_and(|hook| hook.timeout >= config.client.stale_close_delay) {
            let message = "has a `timeout` that is not shorter than `client.stale_close_delay`";
            self.problem("client.connect_hook", message);
        }
    }

    fn hook(&mut self, path: &str, hook: &mut Hook, pong_timeout: Duration) {
        if !hook.url.origin.is_tls() && !hook.allow_http {
            self.problem(&format!("{path}.url"), "must be https, or set `allow_http`");
        }
        if hook.timeout >= pong_timeout {
            self.problem(&format!("{path}.timeout"), "must be shorter than `client.pong_timeout`");
        }
        if let Some(file) = &hook.ca_file {
            self.pem(&format!("{path}.ca_file"), file, "CERTIFICATE");
        }
        if let Some(file) = hook.static_headers_file.clone() {
            self.header_lines(&format!("{path}.static_headers_file"), &file, &mut hook.static_headers);
        }
        let previous = format!("{path}.previous_signing_secret");
        if hook.previous_signing_secret.is_some() && hook.signing_secret.is_none() && hook.signing_secret_file.is_none()
        {
            self.problem(&previous, &format!("needs `{path}.signing_secret`"));
        }
        let file = hook.signing_secret_file.as_deref();
        self.signing_secret(&mut hook.signing_secret, file, &format!("{path}.signing_secret"));
        let file = hook.previous_signing_secret_file.as_deref();
        self.signing_secret(&mut hook.previous_signing_secret, file, &previous);
        for name in &hook.client_headers {
            let is_ours = *name == CONTENT_TYPE
                || name.as_str().starts_with("webhook-")
                || StaticHeader::parse(&format!("{name}: x")).is_none();
            if is_ours || hook.static_headers.iter().any(|header| header.name == *name) {
                let message = format!("{name} is set by the server, so clients cannot set it");
                self.problem(&format!("{path}.client_headers"), &message);
            }
        }
        for (index, status) in hook.statuses.iter().enumerate() {
            let path = format!("{path}.statuses[{index}]");
            if status.error.is_some() == status.disconnect.is_some() {
                self.problem(&format!("{path}.status"), "needs exactly one of `error` and `disconnect`");
            }
            if status.disconnect.is_some_and(|code| !(3000..=4999).contains(&code)) {
                self.problem(&format!("{path}.disconnect"), "must be 3000 to 4999: SDKs understand no others");
            }
        }
    }

    fn traces(&mut self, traces: &mut Traces) {
        if let Some(file) = traces.headers_file.clone() {
            self.header_lines("traces.headers_file", &file, &mut traces.headers);
        }
        if let Some(file) = &traces.ca_file {
            self.pem("traces.ca_file", file, "CERTIFICATE");
        }
        if traces.endpoint.is_none() && !traces.headers.is_empty() {
            self.warn("traces.headers", "have no effect without `traces.endpoint`");
        }
        if traces.endpoint.as_ref().is_some_and(|url| !url.origin.is_tls() && !is_loopback(url.origin.host()))
            && !traces.headers.is_empty()
        {
            self.warn("traces.endpoint", "others can read `traces.headers` on their way: use https:// beyond loopback");
        }
    }

    fn influx(&mut self, influx: &Influx) {
        let mut keys = BTreeSet::new();
        if let Some(twice) = influx.tags.iter().find(|tag| !keys.insert(&tag.key)) {
            self.problem("influx.tags", &format!("{:?} is given twice: remove one", twice.key));
        }
        // Every point contains the tags.
        let bytes: usize = influx.tags.iter().map(|tag| tag.key.len() + tag.value.len() + 2).sum();
        let bytes_max = influx.packet_bytes.as_usize() / 4;
        if bytes > bytes_max {
            let message =
                format!("must take at most a quarter of `influx.packet_bytes` ({bytes_max}), got {bytes} bytes");
            self.problem("influx.tags", &message);
        }
        if influx.address.is_none() && !influx.tags.is_empty() {
            self.warn("influx.tags", "have no effect without `influx.address`");
        }
    }

    fn all_fcm(&mut self, all: &BTreeMap<String, Fcm>) {
        let mut taken = BTreeMap::new();
        for (name, fcm) in all {
            let path = format!("fcm.{}", bare_or_quoted(name));
            self.name("fcm", name);
            self.apps("fcm", name, &fcm.apps, &mut taken);
            self.connections(&path, fcm.connection_count, fcm.connection_count_max, fcm.thread_count);
            self.lake(&path, fcm.lake_capacity, fcm.connection_count_max * fcm.stream_count_max);
            match &fcm.service_account_file {
                None => self
                    .problem(&format!("{path}.service_account_file"), "is missing: name the file that Google gave you"),
                Some(file) => self.service_account(&format!("{path}.service_account_file"), file),
            }
            if let Some(file) = &fcm.ca_file {
                self.pem(&format!("{path}.ca_file"), file, "CERTIFICATE");
            }
        }
    }

    fn all_web_push(&mut self, all: &BTreeMap<String, WebPush>) {
        let mut taken = BTreeMap::new();
        for (name, web_push) in all {
            let path = format!("web_push.{}", bare_or_quoted(name));
            self.name("web_push", name);
            self.apps("web_push", name, &web_push.apps, &mut taken);
            match &web_push.vapid_key_file {
                None => self.problem(&format!("{path}.vapid_key_file"), "is missing: name the file with the VAPID key"),
                Some(file) => self.vapid_key(&format!("{path}.vapid_key_file"), file, web_push.contact.as_deref()),
            }
            if let Err(error) = web_push.rules() {
                self.problem(&format!("{path}.allowed_hosts"), &error.to_string());
            }
            if web_push.allow_private {
                let message =
                    "anybody who can register a device can make this server call addresses inside your network";
                self.warn(&format!("{path}.allow_private"), message);
            }
            if let Some(file) = &web_push.ca_file {
                self.pem(&format!("{path}.ca_file"), file, "CERTIFICATE");
            }
        }
    }

    fn service_account(&mut self, path: &str, file: &Path) {
        let Some(text) = self.file(path, file) else { return };
        if let Err(error) = ServiceAccount::parse(text.as_bytes()) {
            self.problem(path, &format!("{}: {error}", file.display()));
        }
    }

    fn vapid_key(&mut self, path: &str, file: &Path, contact: Option<&str>) {
        let contact_path = path.replace("vapid_key_file", "contact");
        let Some(contact) = contact else {
            return self.problem(&contact_path, "is missing: give a mailto: or https: address, which Apple asks for");
        };
        let Some(text) = self.file(path, file) else { return };
        match VapidKey::new(&text, contact) {
            Ok(_) => {}
            Err(error @ VapidError::Key) => self.problem(path, &format!("{}: {error}", file.display())),
            Err(error @ VapidError::Subject(_)) => self.problem(&contact_path, &error.to_string()),
        }
    }

    fn shadow(&mut self, shadow: &Shadow) {
        if !shadow.enabled && (shadow.percent > 0 || !shadow.devices.is_empty()) {
            self.warn("shadow.enabled", "is off, so `devices` and `percent` have no effect: everybody is pushed");
        }
    }

    /// Checks that a section has apps, and that no other section has the same app.
    fn apps<'a>(&mut self, table: &str, name: &'a str, apps: &'a [AppId], taken: &mut BTreeMap<&'a AppId, &'a str>) {
        let path = format!("{table}.{}.apps", bare_or_quoted(name));
        if apps.is_empty() {
            self.problem(&path, "is empty: name the apps this credential is for");
        }
        for app in apps {
            if let Some(other) = taken.insert(app, name) {
                self.problem(&path, &format!("{app} belongs to `{table}.{other}` already: remove it from one of them"));
            }
        }
    }

    fn connections(&mut self, path: &str, connection_count: usize, connection_count_max: usize, thread_count: usize) {
        if thread_count > connection_count {
            self.problem(&format!("{path}.thread_count"), "must not be more than `connection_count`");
        }
        if connection_count > connection_count_max {
            self.problem(&format!("{path}.connection_count"), "must not be more than `connection_count_max`");
        }
    }

    fn lake(&mut self, path: &str, lake_capacity: usize, in_flight: usize) {
        if lake_capacity > 2 * in_flight {
            let message = format!("must be at most twice what is in flight ({in_flight}), got {lake_capacity}");
            self.problem(&format!("{path}.lake_capacity"), &message);
        }
    }

    fn apns(&mut self, path: &str, apns: &Apns) {
        if apns.apps.is_empty() {
            self.problem(&format!("{path}.apps"), "is empty: name the apps this credential is for");
        }
        for error in apns.apps.iter().filter_map(|app| check_app(app).err()) {
            self.problem(&format!("{path}.apps"), &error.to_string());
        }
        self.connections(path, apns.connection_count, apns.connection_count_max, apns.thread_count);
        self.lake(path, apns.lake_capacity, apns.connection_count_max * apns.stream_count_max);
        // The other environment rejects every token, and rejected tokens are removed.
        if let Some(other) = other_environment(apns.host(), apns.environment) {
            let message =
                format!("is Apple's for `environment = \"{other}\"`: no device of this section is known there");
            self.problem(&format!("{path}.host"), &message);
        }
        self.apns_credential(path, apns);
        if let Some(file) = &apns.ca_file {
            self.pem(&format!("{path}.ca_file"), file, "CERTIFICATE");
        }
    }

    fn apns_credential(&mut self, path: &str, apns: &Apns) {
        let key = [
            ("key_file", apns.key_file.is_some()),
            ("key_id", apns.key_id.is_some()),
            ("team_id", apns.team_id.is_some()),
        ];
        let certificate = [
            ("certificate_file", apns.certificate_file.is_some()),
            ("certificate_key_file", apns.certificate_key_file.is_some()),
        ];
        let fields = match (key.iter().find(|field| field.1), certificate.iter().find(|field| field.1)) {
            (Some((key, _)), Some((certificate, _))) => {
                let message = format!("give a signing key or a certificate, not both: there is `{key}`, too");
                return self.problem(&format!("{path}.{certificate}"), &message);
            }
            (None, None) => {
                let message = "needs a credential: `key_file`, `key_id` and `team_id`, or `certificate_file` and \
                               `certificate_key_file`";
                return self.problem(path, message);
            }
            (Some(_), None) => &key[..],
            (None, Some(_)) => &certificate[..],
        };
        for (name, _) in fields.iter().filter(|field| !field.1) {
            self.problem(&format!("{path}.{name}"), "is missing");
        }
        if let Some(file) = &apns.key_file {
            self.pem(&format!("{path}.key_file"), file, "PRIVATE KEY");
        }
        if let (Some(chain), Some(key)) = (&apns.certificate_file, &apns.certificate_key_file) {
            self.certificate(path, chain, key, &apns.apps);
        }
    }

    fn certificate(&mut self, path: &str, chain_file: &Path, key_file: &Path, apps: &[AppId]) {
        let now = unix_now();
        let read = |chain: &str, key: &str| ClientCertificate::new(chain, key, now);
        let Some(certificate) = self.key_pair(path, chain_file, key_file, read) else { return };
        let (chain_path, times) = (format!("{path}.certificate_file"), certificate.certificate());
        if times.begins_at() > now {
            self.warn(&chain_path, &format!("{} is not valid yet", chain_file.display()));
        }
        if times.ends_at().saturating_since(now) < CERTIFICATE_END_NEAR {
            self.warn(&chain_path, &format!("{} ends on {}", chain_file.display(), times.end_date()));
        }
        for app in apps.iter().filter(|app| !certificate.covers(app)) {
            let topics = certificate.topics().join(", ");
            let message = format!("{app} is not among the topics of {} ({topics})", chain_file.display());
            self.problem(&format!("{path}.apps"), &message);
        }
    }

    fn pem(&mut self, path: &str, file: &Path, label: &str) {
        let Some(text) = self.file(path, file) else { return };
        if !text.contains(&format!("-----BEGIN {label}-----")) {
            self.problem(path, &format!("{} holds no PEM {label:?}", file.display()));
        }
    }
}

/// The environment of one of Apple's hosts, if it differs from `environment`.
fn other_environment(host: &str, environment: Environment) -> Option<&'static str> {
    let (own, name) = match host.trim_end_matches('.').to_ascii_lowercase().as_str() {
        "api.push.apple.com" => (Environment::Production, "production"),
        "api.sandbox.push.apple.com" | "api.development.push.apple.com" => (Environment::Sandbox, "sandbox"),
        _ => return None,
    };
    (own != environment).then_some(name)
}

/// A mapping: one that comes with the program, else that of the file.
///
/// # Errors
/// What is wrong with it.
pub fn read_mapping(name: &str) -> Result<Mapping, String> {
    if let Some(text) = Mapping::shipped(name) {
        return Mapping::parse(text).map_err(|error| format!("{name}: {error}"));
    }
    let text = read_file(Path::new(name)).map_err(|error| {
        let shipped: Vec<&str> = Mapping::shipped_names().collect();
        format!("cannot read {name}: {error}; the mappings that come with the program are {}", shipped.join(", "))
    })?;
    Mapping::parse(&text).map_err(|error| format!("{name}: {error}"))
}

impl Feed {
    /// Its mapping.
    ///
    /// # Errors
    /// As [`read_mapping`].
    pub fn read_mapping(&self) -> Result<Mapping, String> {
        read_mapping(&self.mapping)
    }

    /// The folder with its files, and what their names begin and end with.
    pub fn folder(&self) -> Option<(PathBuf, (String, String))> {
        let (folder, name) = self.files.as_ref()?.rsplit_once('/')?;
        let (begin, end) = name.split_once('*').unwrap_or((name, ""));
        let is_folder = !folder.contains('*') && !name.is_empty() && !end.contains('*');
        let folder = if folder.is_empty() { "/" } else { folder };
        is_folder.then(|| (PathBuf::from(folder), (begin.to_owned(), end.to_owned())))
    }
}

impl Http {
    /// Whether `listen` speaks only TLS.
    pub fn is_tls_only(&self) -> bool {
        self.tls.certificate_file.is_some() && self.tls.listen.is_none()
    }
}

impl Token {
    /// Whether any token can be good.
    pub fn has_keys(&self) -> bool {
        self.hmac_secret.is_some() || !self.public_key_files.is_empty() || self.jwks_url.is_some()
    }

    /// Whether it says anything about tokens besides their keys.
    fn has_rules(&self) -> bool {
        let rules = [&self.audience, &self.issuer, &self.user_id_claim];
        let patterns = [&self.audience_regex, &self.issuer_regex];
        rules.iter().any(|rule| rule.is_some()) || patterns.iter().any(|rule| rule.is_some()) || !self.leeway.is_zero()
    }
}

impl ApiKey {
    /// The SHA-256 of the key.
    ///
    /// # Panics
    /// If the configuration was not checked.
    pub fn digest(&self) -> &[u8; 32] {
        &self.sha256.as_ref().expect("the check has replaced every key by its digest").0
    }
}

impl Apns {
    /// The host; by default Apple's host of the environment.
    pub fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(match self.environment {
            Environment::Production => "api.push.apple.com",
            Environment::Sandbox => "api.sandbox.push.apple.com",
        })
    }
}

impl WebPush {
    /// The endpoints that may be called.
    pub fn rules(&self) -> Result<EndpointRules, HostRuleError> {
        let hosts = DEFAULT_HOSTS.iter().copied().chain(self.allowed_hosts.iter().map(String::as_str));
        let rules = EndpointRules::new(hosts, self.allowed_ports.iter().copied())?;
        Ok(if self.allow_private { rules.admitting_private() } else { rules })
    }
}

impl Edge {
    /// Memory for the publications that slow readers still need.
    pub fn logs_bytes_max(&self) -> u64 {
        self.memory_bytes_max.0 / 4 * 3
    }

    /// Memory for the replies of one of so many loops.
    pub fn replies_bytes_max(&self, loops: usize) -> u64 {
        self.memory_bytes_max.0 / 4 / loops.max(1) as u64
    }

    /// Memory for what clients have sent to one of so many loops.
    pub fn input_part(&self, loops: usize) -> u64 {
        self.input_bytes_max.0 / loops.max(1) as u64
    }
}

impl Namespace {
    /// Its hooks, by setting.
    fn hooks(&self) -> [(&'static str, &Option<String>); 3] {
        [
            ("subscribe_hook", &self.subscribe_hook),
            ("publish_hook", &self.publish_hook),
            ("sub_refresh_hook", &self.sub_refresh_hook),
        ]
    }

    /// The namespace for the protocol. `half` is its maximum number of channels if it does not set one.
    fn options(&self, half: u32, hook_id: impl Fn(&str) -> HookId) -> NamespaceOptions {
        NamespaceOptions {
            history_size: self.history_size,
            history_ttl: self.history_ttl,
            history_meta_ttl: self.history_meta_ttl,
            channel_count_max: if self.channel_count_max == 0 { half } else { self.channel_count_max },
            durable: self.durable,
            force_recovery: self.force_recovery,
            allow_recovery: self.allow_recovery,
            recovery_mode: self.force_recovery_mode,
            auto_cache_recover: self.auto_cache_recover,
            presence: self.presence,
            join_leave: self.join_leave,
            force_push_join_leave: self.force_push_join_leave,
            allow_tags_filter: self.allow_tags_filter,
            thinning: Thinning { slow_readers: self.slow_readers, per_second_max: self.per_second_max },
            allow_thinning: self.allow_thinning,
            allow_deltas: self.allowed_delta_types.contains(&DeltaType::Fossil),
            allow_channel_compaction: self.allow_channel_compaction,
            event_texts: self.event_texts,
            allow_subscribe_for_client: self.allow_subscribe_for_client,
            allow_subscribe_for_anonymous: self.allow_subscribe_for_anonymous,
            allow_user_limited_channels: self.allow_user_limited_channels,
            data_format: self.publication_data_format,
            allow_publish_for_client: self.allow_publish_for_client,
            allow_publish_for_subscriber: self.allow_publish_for_subscriber,
            allow_publish_for_anonymous: self.allow_publish_for_anonymous,
            allow_history_for_client: self.allow_history_for_client,
            allow_history_for_subscriber: self.allow_history_for_subscriber,
            allow_history_for_anonymous: self.allow_history_for_anonymous,
            allow_presence_for_client: self.allow_presence_for_client,
            allow_presence_for_subscriber: self.allow_presence_for_subscriber,
            allow_presence_for_anonymous: self.allow_presence_for_anonymous,
            subscribe_hook: self.subscribe_hook.as_deref().map(&hook_id),
            publish_hook: self.publish_hook.as_deref().map(&hook_id),
            sub_refresh_hook: self.sub_refresh_hook.as_deref().map(&hook_id),
            occupancy_webhook: self.occupancy_webhook,
        }
    }
}

impl Config {
    /// The rules of all channels, with the paths of their settings.
    pub(super) fn all_namespaces(&self) -> impl Iterator<Item = (String, &Namespace)> {
        let named = self.channel.namespaces.iter();
        let named = named.map(|(name, it)| (format!("channel.namespaces.{}", bare_or_quoted(name)), it));
        named.chain([("channel.without_namespace".to_owned(), &self.channel.without_namespace)])
    }

    /// Where hooks are used, and which.
    fn hook_uses(&self) -> Vec<(String, String)> {
        let rpc = self.rpc.hook.iter().map(|name| ("rpc.hook".to_owned(), name.clone()));
        let of_channels = self.all_namespaces().flat_map(|(path, it)| {
            let set = it.hooks().into_iter().filter_map(|(setting, name)| Some((setting, name.clone()?)));
            set.map(move |(setting, name)| (format!("{path}.{setting}"), name)).collect::<Vec<_>>()
        });
        let named = self.rpc.namespaces.iter();
        let named = named.map(|(name, it)| (format!("rpc.namespaces.{}.hook", bare_or_quoted(name)), it.hook.clone()));
        let client = [("connect_hook", &self.client.connect_hook), ("refresh_hook", &self.client.refresh_hook)];
        let client =
            client.into_iter().filter_map(|(setting, name)| Some((format!("client.{setting}"), name.clone()?)));
        client.chain(rpc).chain(named).chain(of_channels).collect()
    }

    /// The hook of this name, which the check has found.
    fn hook_id(&self, name: &str) -> HookId {
        let place = self.hooks.keys().position(|known| known == name).expect("the check has found it");
        HookId(u16::try_from(place).expect("there are few hooks"))
    }

    /// Which hook decides on what, as the protocol knows it. The number of a hook is its place in `hooks`.
    pub fn session_hooks(&self) -> SessionHooks {
        let headers: BTreeSet<&str> =
            self.hooks.values().flat_map(|hook| &hook.client_headers).map(HeaderName::as_str).collect();
        let named = self.rpc.namespaces.iter();
        SessionHooks {
            connect: self.client.connect_hook.as_deref().map(|name| self.hook_id(name)),
            refresh: self.client.refresh_hook.as_deref().map(|name| self.hook_id(name)),
            rpc: self.rpc.hook.as_deref().map(|name| self.hook_id(name)),
            rpc_namespaces: named.map(|(name, it)| (name.clone(), self.hook_id(&it.hook))).collect(),
            headers: headers.into_iter().map(Into::into).collect(),
        }
    }

    /// The namespaces that forget their channels after a time of their own.
    pub fn namespace_ttls(&self) -> BTreeMap<String, Duration> {
        let Channel { without_namespace, namespaces, .. } = &self.channel;
        let all = namespaces.iter().map(|(name, it)| (&**name, it)).chain([("", without_namespace)]);
        let own = all.filter(|(_, namespace)| !namespace.channel_ttl.is_zero());
        own.map(|(name, namespace)| (name.to_owned(), namespace.channel_ttl)).collect()
    }

    /// All namespaces for the protocol.
    pub fn namespaces(&self) -> tidings_protocol::Namespaces {
        let Channel { name_bytes_max, without_namespace, namespaces } = &self.channel;
        let named = namespaces.iter().map(|(name, namespace)| (name.clone(), self.options_of(namespace)));
        let all = namespaces.iter().map(|(name, namespace)| (&**name, namespace)).chain([("", without_namespace)]);
        let patterns =
            all.clone().filter_map(|(name, namespace)| Some((name.to_owned(), namespace.channel_regex.clone()?)));
        let key = |namespace: &Namespace| namespace.latest_key.as_deref().map(PublicationKey::new);
        let keys = all.filter_map(|(name, namespace)| Some((name.to_owned(), key(namespace)?)));
        tidings_protocol::Namespaces::new(self.options_of(without_namespace), named.collect())
            .with_names(*name_bytes_max, patterns.collect())
            .with_keys(keys.collect())
    }

    /// One namespace for the protocol.
    pub fn options_of(&self, namespace: &Namespace) -> NamespaceOptions {
        let all = if namespace.durable { self.store.channel_count_max } else { self.channels.count_max as u64 };
        namespace.options(u32::try_from(all.div_ceil(2)).unwrap_or(u32::MAX), |name| self.hook_id(name))
    }
}

/// An address without what may be a password in it.
fn without_password(address: &str) -> String {
    address.rsplit_once('@').map_or_else(|| address.to_owned(), |(_, rest)| format!("…@{rest}"))
}
