//! A configuration of Centrifugo 5 or 6 as one of ours, with a report on every key.
//!
//! [`import`] reads JSON or TOML. Each leaf of the input (a value that is not a table or a list of tables) has exactly one
//! [`Entry`] in the report: it became settings, needs nothing, is to be done by hand, or is unknown. A value that our own
//! parser would refuse is to be done by hand. Relations between settings are not checked here: the caller parses
//! [`Import::toml`].
//!
//! Secrets, keys and certificates become [`ImportFile`]s, and the TOML only names them. Only the file is read: environment
//! variables and flags of Centrifugo are not known here. Memory: a few times the input, which is at most
//! [`FILE_BYTES_MAX`](super::FILE_BYTES_MAX).

mod convert;
mod table;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value as Json};
use toml::{Table, Value as Toml};

use self::convert::{convert, headers, inline_pem, is_off, plain, statuses, truth};
use self::table::{Act, DEFAULT_PROXIES, Kind, NAMESPACE, PROXY, RPC_NAMESPACE, Row, SCOPES, find};

/// What became of a configuration.
#[derive(Debug)]
pub struct Import {
    /// Our configuration.
    pub toml: String,
    /// Files that it names, to be written so that only their owner can read them.
    pub files: Vec<ImportFile>,
    /// One entry for each leaf of the input.
    pub entries: Vec<Entry>,
}

/// A file with a secret. `Debug` does not show it.
pub struct ImportFile {
    /// Where the configuration expects it.
    pub path: PathBuf,
    /// What belongs into it.
    pub contents: String,
    /// The key that it comes from.
    pub key: String,
}

impl fmt::Debug for ImportFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What became of a leaf of the input.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Its path, such as `channel.namespaces[0].presence`.
    pub key: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It is these settings.
    Set {
        /// Their paths.
        settings: Vec<String>,
    },
    /// There is nothing to do.
    Needless {
        /// Why.
        why: String,
    },
    /// It has no counterpart, or its value is not possible here.
    Todo {
        /// What to do.
        what: String,
    },
    /// It is no key of Centrifugo that we know.
    Unknown,
}

impl Outcome {
    fn needless(why: impl Into<String>) -> Self {
        Self::Needless { why: why.into() }
    }

    fn todo(what: impl Into<String>) -> Self {
        Self::Todo { what: what.into() }
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Not JSON or TOML, or not a table.
    #[error("neither JSON nor TOML with settings ({0}); make JSON of YAML with `yq -o=json . FILE`")]
    Syntax(String),
}

/// Reads a configuration of Centrifugo. Files with secrets will be in `dir`.
///
/// # Errors
/// If the text is neither JSON nor TOML.
pub fn import(text: &str, dir: &Path) -> Result<Import, ImportError> {
    let root = read(text)?;
    let mut importer = Importer::new(&root, dir);
    for (key, value) in &root {
        importer.visit(key, value);
    }
    importer.listen();
    let Importer { out, files, entries, .. } = importer;
    Ok(Import { toml: toml::to_string_pretty(&out).expect("tables with names as keys"), files, entries })
}

fn read(text: &str) -> Result<Map<String, Json>, ImportError> {
    let is_json = text.trim_start().starts_with('{');
    let read = match is_json {
        true => serde_json::from_str(text).map_err(|error| error.to_string()),
        // The message repeats the line, which may be a secret.
        false => toml::from_str(text).map_err(|error| error.message().to_owned()),
    };
    read.map_err(ImportError::Syntax)
}

struct Importer<'a> {
    root: &'a Map<String, Json>,
    dir: &'a Path,
    /// Names of the proxies that are hooks here.
    hooks: BTreeSet<String>,
    out: Table,
    files: Vec<ImportFile>,
    entries: Vec<Entry>,
}

/// A key, with the rows that know it and the table of ours that its settings belong to.
struct Found<'a> {
    key: &'a str,
    rows: &'static [Row],
    name: &'a str,
    tables: Vec<Vec<String>>,
}

impl<'a> Importer<'a> {
    fn new(root: &'a Map<String, Json>, dir: &'a Path) -> Self {
        let mut importer =
            Self { root, dir, hooks: BTreeSet::new(), out: Table::new(), files: Vec::new(), entries: Vec::new() };
        let is_http = |url: Option<&Json>| url.and_then(Json::as_str).is_some_and(|url| url.starts_with("http"));
        let defaults = DEFAULT_PROXIES.iter().filter(|(kind, six)| {
            let is_on =
                !six.starts_with("client.") || importer.at(&format!("{six}.enabled")).and_then(truth) == Some(true);
            let is_six = is_on && is_http(importer.at(&format!("{six}.endpoint")));
            let is_five = !importer.is_granular() && is_http(root.get(&format!("proxy_{kind}_endpoint")));
            *kind != "subscribe_stream" && (is_six || is_five)
        });
        let mut hooks: BTreeSet<String> = defaults.map(|(kind, _)| default_hook(kind)).collect();
        for proxy in root.get("proxies").and_then(Json::as_array).into_iter().flatten() {
            let name = proxy.get("name").and_then(Json::as_str).filter(|_| is_http(proxy.get("endpoint")));
            hooks.extend(name.map(str::to_owned));
        }
        importer.hooks = hooks;
        importer
    }

    /// What stands at a path of names with dots.
    fn at(&self, path: &str) -> Option<&'a Json> {
        let mut names = path.split('.');
        let first = self.root.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))
    }

    /// What stands at the key of 5, or at the path of 6.
    fn either(&self, five: &str, six: &str) -> Option<&'a Json> {
        self.root.get(five).filter(|value| !value.is_object()).or_else(|| self.at(six))
    }

    fn is_granular(&self) -> bool {
        self.root.get("granular_proxy_mode").and_then(truth) == Some(true)
    }

    /// Accounts for a value and all that is in it.
    fn visit(&mut self, key: &str, value: &'a Json) {
        let named = match key {
            "namespaces" | "channel.namespaces" => Some(["channel", "namespaces"].as_slice()),
            "rpc_namespaces" | "rpc.namespaces" => Some(["rpc", "namespaces"].as_slice()),
            "proxies" => Some(["hooks"].as_slice()),
            _ => None,
        };
        match (value, named) {
            (Json::Array(items), Some(table)) if items.iter().any(has_leaves_below) => {
                for (index, item) in items.iter().enumerate() {
                    self.named(&format!("{key}[{index}]"), item, table);
                }
            }
            (Json::Object(inner), _) if !inner.is_empty() && !is_whole(key) => {
                for (name, value) in inner {
                    self.visit(&format!("{key}.{name}"), value);
                }
            }
            (_, Some(_)) if is_off(value) => self.account(key, value, &Outcome::needless("is empty")),
            _ => self.single(key, value),
        }
    }

    /// An element of a list whose elements have names.
    fn named(&mut self, key: &str, item: &'a Json, table: &[&str]) {
        let (Some(inner), Some(name)) = (item.as_object(), item.get("name").and_then(Json::as_str)) else {
            return self.account(key, item, &Outcome::todo("has no `name`"));
        };
        let mut tables = vec![table.iter().chain([&name]).map(|&part| part.to_owned()).collect::<Vec<_>>()];
        if table == ["channel", "namespaces"] {
            self.make(&tables[0]); // A namespace without rules exists.
        }
        let rows = match table {
            ["hooks"] => PROXY,
            ["rpc", _] => RPC_NAMESPACE,
            _ => NAMESPACE,
        };
        if table == ["hooks"] && !self.hooks.contains(name) {
            tables.clear();
        }
        for (name, value) in inner {
            self.nested(key, name, name, value, inner, rows, &tables);
        }
    }

    /// A key below an element with a name; `path` are the names below it.
    #[expect(clippy::too_many_arguments, reason = "the place of a key, in both configurations")]
    fn nested(
        &mut self,
        base: &str,
        path: &str,
        name: &str,
        value: &'a Json,
        all: &'a Map<String, Json>,
        rows: &'static [Row],
        tables: &[Vec<String>],
    ) {
        let key = format!("{base}.{path}");
        match value {
            Json::Object(inner) if !inner.is_empty() && !is_whole(path) => {
                for (name, value) in inner {
                    self.nested(base, &format!("{path}.{name}"), name, value, all, rows, tables);
                }
            }
            _ if path == name && self.uses(&key, name, value, all, tables) => {}
            _ => self.apply(&Found { key: &key, rows, name: path, tables: tables.to_vec() }, value),
        }
    }

    /// A value that is not in a list of named elements.
    fn single(&mut self, key: &str, value: &'a Json) {
        let default = |table: &[&str]| table.iter().map(|&part| part.to_owned()).collect::<Vec<_>>();
        if let Some(name) = key.strip_prefix("channel.without_namespace.")
            && let Some(all) = self.at("channel.without_namespace").and_then(Json::as_object)
            && self.uses(key, name, value, all, &[default(&["channel", "without_namespace"])])
        {
            return;
        }
        if self.uses(key, key, value, self.root, &[default(&["channel", "without_namespace"])])
            || self.default_proxy(key, value)
        {
            return;
        }
        let scope = SCOPES.iter().find_map(|(prefix, rows, table)| {
            let name = key.strip_prefix(prefix).filter(|name| find(rows, name).is_some())?;
            Some((*rows, name, default(table)))
        });
        match scope {
            Some((_, _, table)) if table == ["client", "subscription_token"] && !self.has_subscription_token() => {
                self.account(key, value, &Outcome::needless("subscription tokens have no keys of their own"));
            }
            Some((rows, name, table)) => self.apply(&Found { key, rows, name, tables: vec![table] }, value),
            None => self.account(key, value, &Outcome::Unknown),
        }
    }

    fn has_subscription_token(&self) -> bool {
        let on = self.either("separate_subscription_token_config", "client.subscription_token.enabled");
        on.and_then(truth) == Some(true)
    }

    /// A key of a proxy without a name of the operator: `proxy_rpc_timeout`, or `rpc.proxy.timeout`.
    fn default_proxy(&mut self, key: &str, value: &'a Json) -> bool {
        let six = DEFAULT_PROXIES.iter().find_map(|(kind, path)| {
            let name = key.strip_prefix(path)?.strip_prefix('.')?;
            Some((vec![*kind], name.to_owned()))
        });
        let five = || {
            let rest = key.strip_prefix("proxy_")?;
            let own = DEFAULT_PROXIES.iter().find_map(|(kind, _)| {
                let name = rest.strip_prefix(kind)?.strip_prefix('_')?;
                matches!(name, "endpoint" | "timeout").then(|| (vec![*kind], name.to_owned()))
            });
            let common = || (DEFAULT_PROXIES.iter().map(|(kind, _)| *kind).collect(), rest.to_owned());
            own.or_else(|| find(PROXY, rest).map(|_| common()))
        };
        let Some((kinds, name)) = six.or_else(five) else { return false };
        let hooks: Vec<String> =
            kinds.iter().map(|kind| default_hook(kind)).filter(|hook| self.hooks.contains(hook)).collect();
        let tables = hooks.iter().map(|hook| vec!["hooks".to_owned(), hook.clone()]).collect();
        self.apply(&Found { key, rows: PROXY, name: &name, tables }, value);
        for kind in kinds {
            if name == "endpoint" && self.hooks.contains(&default_hook(kind)) {
                self.use_of_default(key, kind);
            }
        }
        true
    }

    /// Where a proxy without a name is used if it is there: 5 asks it for all connections and methods.
    fn use_of_default(&mut self, key: &str, kind: &str) {
        let rpc = || {
            let spaces = self.root.get("rpc_namespaces").and_then(Json::as_array).into_iter().flatten();
            let names = spaces.filter_map(|space| space.get("name").and_then(Json::as_str));
            let names = names.map(|name| vec!["rpc".to_owned(), "namespaces".to_owned(), name.to_owned()]);
            std::iter::once(vec!["rpc".to_owned()]).chain(names).map(|table| (table, "hook")).collect()
        };
        let places: Vec<(Vec<String>, &str)> = match kind {
            "refresh" => vec![(vec!["client".to_owned()], "refresh_hook")],
            "connect" => vec![(vec!["client".to_owned()], "connect_hook")],
            "rpc" if !key.starts_with("rpc.") => rpc(),
            _ => Vec::new(),
        };
        let outcomes: Vec<_> =
            places.into_iter().map(|(table, name)| self.set(&table, name, Toml::String(default_hook(kind)))).collect();
        let Some(entry) = self.entries.last_mut() else { return };
        for outcome in outcomes {
            match (outcome, &mut entry.outcome) {
                (Ok(path), Outcome::Set { settings }) => settings.push(path),
                (Err(what), _) => entry.outcome = Outcome::todo(what),
                _ => {}
            }
        }
    }

    /// Whether the key says that a hook is asked here: `proxy_subscribe`, `subscribe_proxy_enabled`, `subscribe_proxy_name`,
    /// and so on. `all` has the keys beside it.
    fn uses(
        &mut self,
        key: &str,
        name: &str,
        value: &'a Json,
        all: &'a Map<String, Json>,
        tables: &[Vec<String>],
    ) -> bool {
        const USES: [(&str, &str, &str); 7] = [
            ("subscribe", "subscribe_hook", ""),
            ("publish", "publish_hook", ""),
            ("sub_refresh", "sub_refresh_hook", ""),
            ("connect", "connect_hook", "client"),
            ("refresh", "refresh_hook", "client"),
            ("rpc", "hook", "rpc"),
            ("", "hook", "rpc"),
        ];
        let short = name.strip_prefix("rpc.without_namespace.").unwrap_or(name);
        let found = USES.iter().find(|(kind, ..)| match *kind {
            "" => matches!(short, "proxy_enabled" | "proxy_name"),
            kind => {
                short == format!("proxy_{kind}") && matches!(kind, "subscribe" | "publish" | "sub_refresh")
                    || short == format!("{kind}_proxy_name")
                    || short == format!("{kind}_proxy_enabled")
            }
        });
        let Some(&(kind, setting, home)) = found else { return false };
        let all = match short == name {
            true => Some(all),
            false => self.at("rpc.without_namespace").and_then(Json::as_object),
        };
        let kind = if kind.is_empty() { "rpc" } else { kind };
        let is_top = tables.first().is_some_and(|table| table[..] == ["channel", "without_namespace"]);
        let table = match home {
            "" => tables.first().cloned(),
            "rpc" if !is_top => tables.first().cloned(),
            home => Some(vec![home.to_owned()]),
        };
        let hook = all.and_then(|all| hook_of(all, kind, key.starts_with("channel.")));
        let outcome = match (hook, table) {
            (Some(hook), Some(table)) => self.set_use(&table, setting, hook, kind),
            _ => Outcome::needless(format!("{kind} asks no hook here")),
        };
        self.account(key, value, &outcome);
        true
    }

    fn set_use(&mut self, table: &[String], setting: &str, name: &str, kind: &str) -> Outcome {
        let hook = if name == "default" && !self.hooks.contains(name) { default_hook(kind) } else { name.to_owned() };
        if !self.hooks.contains(&hook) {
            return Outcome::todo(format!(
                "no proxy {name:?} has an HTTP address: add a hook, and name it in `{setting}`"
            ));
        }
        if self.get(table, setting).and_then(Toml::as_str) == Some(&hook) {
            return Outcome::Set { settings: vec![path_of(table, setting)] }; // Said by the key beside it.
        }
        match self.set(table, setting, Toml::String(hook)) {
            Ok(path) => Outcome::Set { settings: vec![path] },
            Err(what) => Outcome::todo(what),
        }
    }

    /// Does what the rows say.
    fn apply(&mut self, found: &Found<'_>, value: &'a Json) {
        let outcome = match find(found.rows, found.name) {
            None => Outcome::Unknown,
            Some(Act::Set(name, kind)) => self.convert(found, name, kind, value),
            Some(Act::Everywhere(name, kind)) => match self.namespaces_without(name) {
                none if none.is_empty() => Outcome::needless("no namespace needs it"),
                tables => self.convert(&Found { tables, ..*found }, name, kind, value),
            },
            Some(Act::Fixed(values, _)) if values.contains(&plain(value).as_str()) => Outcome::needless("is as here"),
            Some(Act::Same(why)) => Outcome::needless(why),
            Some(Act::Todo(_)) if is_off(value) => Outcome::needless("is off, as here"),
            Some(Act::Fixed(_, what) | Act::Todo(what)) => Outcome::todo(what),
            Some(Act::Public) => self.address("address", "port", "http.listen"),
            Some(Act::Internal) => self.address("internal_address", "internal_port", "http.internal_listen"),
        };
        self.account(found.key, value, &outcome);
    }

    /// Our tables of the namespaces with a history in which this key is not set.
    fn namespaces_without(&self, key: &str) -> Vec<Vec<String>> {
        let needs = |rules: &Map<String, Json>| {
            let is_set = |key: &str| rules.get(key).is_some_and(|value| !is_off(value));
            is_set("history_size") && !is_set(key)
        };
        let without = match self.at("channel") {
            Some(channel) => channel.get("without_namespace").and_then(Json::as_object),
            None => Some(self.root),
        };
        let without = without.filter(|rules| needs(rules)).map(|_| "without_namespace".to_owned());
        let named = self.either("namespaces", "channel.namespaces").and_then(Json::as_array).into_iter().flatten();
        let named = named.filter_map(Json::as_object).filter(|rules| needs(rules));
        let named = named.filter_map(|rules| rules.get("name")?.as_str().map(str::to_owned));
        let table = |path: Vec<String>| [vec!["channel".to_owned()], path].concat();
        let named = named.map(|name| table(vec!["namespaces".to_owned(), name]));
        without.map(|name| table(vec![name])).into_iter().chain(named).collect()
    }

    /// Sets `name` in each table.
    fn convert(&mut self, found: &Found<'_>, name: &str, kind: Kind, value: &'a Json) -> Outcome {
        if found.tables.is_empty() {
            let why = "no proxy that has an HTTP address and is on";
            return if is_off(value) || found.name != "endpoint" {
                Outcome::needless(format!("belongs to {why}"))
            } else {
                Outcome::todo(format!("{why}: serve the questions over HTTP, see docs/hooks.md"))
            };
        }
        let mut settings = Vec::new();
        for table in &found.tables {
            let (inner, setting) = name.rsplit_once('.').unwrap_or(("", name));
            let inner = inner.split('.').filter(|part| !part.is_empty()).map(str::to_owned);
            let table: Vec<String> = table.iter().cloned().chain(inner).collect();
            match self.convert_one(found.key, &table, setting, kind, value) {
                Ok(more) => settings.extend(more),
                Err(what) => return Outcome::todo(what),
            }
        }
        if settings.is_empty() { Outcome::needless("is off, as here") } else { Outcome::Set { settings } }
    }

    /// Returns the settings; what to do if there can be none.
    fn convert_one(
        &mut self,
        key: &str,
        table: &[String],
        setting: &str,
        kind: Kind,
        value: &'a Json,
    ) -> Result<Vec<String>, String> {
        if matches!(kind, Kind::Statuses | Kind::Headers) && is_off(value) {
            return Ok(Vec::new());
        }
        let text = match kind {
            Kind::Statuses => {
                let rows = statuses(value).ok_or("is not a list of statuses and their meanings")?;
                return Ok(vec![self.set(table, setting, rows)?]);
            }
            Kind::Headers => headers(value).ok_or("is not a table of texts")?,
            _ => match convert(kind, value)? {
                None => return Ok(Vec::new()),
                Some(Toml::String(text)) => text,
                Some(value) => return Ok(vec![self.set(table, setting, value)?]),
            },
        };
        let path_before =
            format!("{}-", table.iter().filter(|part| *part != "client").cloned().collect::<Vec<_>>().join("-"));
        match kind {
            Kind::Secret(file) => Ok(vec![self.file(key, table, setting, &format!("{path_before}{file}"), text)?]),
            Kind::Headers => Ok(vec![self.file(key, table, setting, &format!("{path_before}headers"), text)?]),
            Kind::PublicKey(file) => {
                self.public_key(key, table, &format!("{path_before}{file}"), text).map(|path| vec![path])
            }
            Kind::Pem(_) if !self.has_tls() => Err("TLS is off in Centrifugo: set it if you want TLS".to_owned()),
            Kind::Pem(file) => match inline_pem(&text) {
                Some(pem) => Ok(vec![self.file(key, table, setting, file, pem)?]),
                None => Ok(vec![self.set(table, setting, Toml::String(text))?]),
            },
            Kind::ApiKey => self.api_key(key, text).map(|path| vec![path]),
            Kind::Jwks if text.contains("{{") => {
                Err("the address has no parts that come from a token: give one address".to_owned())
            }
            Kind::Jwks | Kind::Endpoint => {
                let is_open = text.starts_with("http://");
                let mut settings = vec![self.set(table, setting, Toml::String(text))?];
                if is_open {
                    let allow = if matches!(kind, Kind::Jwks) { "jwks_allow_http" } else { "allow_http" };
                    settings.push(self.set(table, allow, Toml::Boolean(true))?);
                }
                Ok(settings)
            }
            _ => Ok(vec![self.set(table, setting, Toml::String(text))?]),
        }
    }

    fn has_tls(&self) -> bool {
        self.either("tls", "http_server.tls.enabled").and_then(truth) == Some(true)
    }

    /// A setting that names a file, and the file.
    fn file(
        &mut self,
        key: &str,
        table: &[String],
        setting: &str,
        name: &str,
        contents: String,
    ) -> Result<String, String> {
        let path = self.dir.join(name);
        let set = self.set(table, setting, Toml::String(path.display().to_string()))?;
        self.files.push(ImportFile { path, contents, key: key.to_owned() });
        Ok(set)
    }

    fn public_key(&mut self, key: &str, table: &[String], name: &str, contents: String) -> Result<String, String> {
        let path = self.dir.join(name);
        if self.files.iter().any(|file| file.path == path) {
            return Err("another key has set this already".to_owned());
        }
        let mut paths = self.get(table, "public_key_files").and_then(Toml::as_array).cloned().unwrap_or_default();
        paths.push(Toml::String(path.display().to_string()));
        self.make(table).insert("public_key_files".into(), Toml::Array(paths));
        self.files.push(ImportFile { path, contents, key: key.to_owned() });
        Ok(path_of(table, "public_key_files"))
    }

    fn api_key(&mut self, key: &str, contents: String) -> Result<String, String> {
        if contents.chars().count() < crate::check::API_KEY_CHARACTERS_MIN {
            return Err("has fewer than 16 characters: make a longer key, put it under [[api.keys]], and give it to your back end".to_owned());
        }
        let path = self.dir.join("api-key");
        let row = Table::from_iter([
            ("name".to_owned(), Toml::String("centrifugo".to_owned())),
            ("key_file".to_owned(), Toml::String(path.display().to_string())),
        ]);
        let set = self.set(&["api".to_owned()], "keys", Toml::Array(vec![Toml::Table(row)]))?;
        self.files.push(ImportFile { path, contents, key: key.to_owned() });
        Ok(set)
    }

    /// What the keys of an address become; `listen` sets it.
    fn address(&self, address: &str, port: &str, setting: &str) -> Outcome {
        match self.socket_address(address, port) {
            Some(Err(what)) => Outcome::todo(what),
            _ => Outcome::Set { settings: vec![setting.to_owned()] },
        }
    }

    /// None if neither key is there.
    fn socket_address(&self, address: &str, port: &str) -> Option<Result<SocketAddr, &'static str>> {
        let given =
            |name: &str| self.either(name, &format!("http_server.{name}")).map(plain).filter(|text| !text.is_empty());
        if given(address).is_none() && given(port).is_none() {
            return None;
        }
        let ip = match given(address).as_deref() {
            None => Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            Some("localhost") => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Some(text) => text.trim_matches(['[', ']']).parse(),
        };
        let port = given(port).map_or(Ok(8000), |port| port.parse());
        Some(match (ip, port) {
            (Ok(ip), Ok(port)) => Ok(SocketAddr::new(ip, port)),
            _ => Err("is not an IP address with a port: set `http.listen` or `http.internal_listen` yourself"),
        })
    }

    /// Sets both addresses. Centrifugo listens everywhere if it is not told otherwise. We do so only with an API key.
    fn listen(&mut self) {
        let has_key = self.out.contains_key("api");
        let public = self.socket_address("address", "port");
        let public = public.or(Some(Ok(SocketAddr::from(([0, 0, 0, 0], 8000))))).and_then(Result::ok);
        let internal = self.socket_address("internal_address", "internal_port").and_then(Result::ok);
        let (public_has_api, internal_has_api) = (internal.is_none(), true);
        let addresses = [("listen", public, public_has_api), ("internal_listen", internal, internal_has_api)];
        for (name, address, has_api) in addresses {
            let Some(mut address) = address else { continue };
            if has_api && !has_key && !address.ip().is_loopback() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
                let what = "stays on loopback, because no API key was imported: add one under [[api.keys]] to open it";
                let told = self.entries.iter_mut().filter(|entry| match &entry.outcome {
                    Outcome::Set { settings } => settings.iter().any(|set| *set == format!("http.{name}")),
                    _ => false,
                });
                told.for_each(|entry| entry.outcome = Outcome::todo(format!("`http.{name}` {what}")));
            }
            self.make(&["http".to_owned()]).insert(name.into(), Toml::String(address.to_string()));
        }
    }

    /// Notes the outcome of each leaf of a value.
    fn account(&mut self, key: &str, value: &Json, outcome: &Outcome) {
        leaves(key, value, &mut |key, value| {
            let outcome = match outcome {
                Outcome::Todo { .. } | Outcome::Unknown if matches!(value, Json::Object(_)) => {
                    Outcome::needless("is empty")
                }
                outcome => outcome.clone(),
            };
            self.entries.push(Entry { key, outcome });
        });
    }

    fn get(&self, table: &[String], name: &str) -> Option<&Toml> {
        table.iter().try_fold(&self.out, |table, part| table.get(part)?.as_table())?.get(name)
    }

    /// The table, made if it is not there.
    fn make(&mut self, table: &[String]) -> &mut Table {
        table.iter().fold(&mut self.out, |table, part| {
            let inner = table.entry(part.clone()).or_insert_with(|| Toml::Table(Table::new()));
            inner.as_table_mut().expect("only tables have these names")
        })
    }

    /// Sets what our parser takes. Returns the path; what is wrong otherwise.
    fn set(&mut self, table: &[String], name: &str, value: Toml) -> Result<String, String> {
        if self.get(table, name).is_some() {
            return Err(format!("another key has set `{}` already", path_of(table, name)));
        }
        judge(table, name, &value)?;
        self.make(table).insert(name.to_owned(), value);
        Ok(path_of(table, name))
    }
}

/// Whether our parser takes the value.
fn judge(table: &[String], name: &str, value: &Toml) -> Result<(), String> {
    let mut row = Table::from_iter([(name.to_owned(), value.clone())]);
    if table.first().is_some_and(|first| first == "hooks") && name != "url" {
        row.insert("url".into(), "https://localhost/".into());
    }
    let whole = table.iter().rev().fold(row, |inner, part| Table::from_iter([(part.clone(), Toml::Table(inner))]));
    let (_, reader) = crate::read("import", &toml::to_string(&whole).expect("names as keys"), [], None);
    reader.problems.into_iter().next().map_or(Ok(()), |problem| Err(problem.message))
}

/// Centrifugo's name of a proxy that is asked at a place, if one is. In namespaces of 6 a name alone does not switch it on.
fn hook_of<'v>(all: &'v Map<String, Json>, kind: &str, must_be_on: bool) -> Option<&'v str> {
    let text = |name: &str| all.get(name).and_then(Json::as_str).filter(|name| !name.is_empty());
    let on = |name: &str| all.get(name).and_then(truth);
    let name = text(&format!("{kind}_proxy_name")).or_else(|| text("proxy_name").filter(|_| kind == "rpc"));
    let enabled = on(&format!("{kind}_proxy_enabled")).or_else(|| on("proxy_enabled").filter(|_| kind == "rpc"));
    match (enabled, on(&format!("proxy_{kind}"))) {
        (Some(true), _) | (None, Some(true)) => Some(name.unwrap_or("default")),
        (Some(false), _) => None,
        (None, _) => name.filter(|_| !must_be_on),
    }
}

fn default_hook(kind: &str) -> String {
    format!("default-{kind}")
}

fn path_of(table: &[String], name: &str) -> String {
    let table = table.iter().map(|part| super::field::bare_or_quoted(part));
    table.chain([name.to_owned()]).collect::<Vec<_>>().join(".")
}

/// Whether the table at this key is one value: headers and their values.
fn is_whole(key: &str) -> bool {
    key.ends_with("static_http_headers") || key.ends_with("http.static_headers")
}

/// Calls `each` with every value that is neither a table nor a list with tables in it.
fn leaves<'v>(key: &str, value: &'v Json, each: &mut impl FnMut(String, &'v Json)) {
    match value {
        Json::Object(inner) if !inner.is_empty() => {
            inner.iter().for_each(|(name, value)| leaves(&format!("{key}.{name}"), value, each));
        }
        Json::Array(items) if items.iter().any(has_leaves_below) => {
            items.iter().enumerate().for_each(|(index, item)| leaves(&format!("{key}[{index}]"), item, each));
        }
        _ => each(key.to_owned(), value),
    }
}

fn has_leaves_below(value: &Json) -> bool {
    value.is_object() || value.is_array()
}
