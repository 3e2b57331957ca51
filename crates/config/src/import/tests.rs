//! Fixtures with every key of the table become configurations that our own parser takes. Whatever comes, each leaf is
//! accounted for once.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::table::{DEFAULT_PROXIES, NAMESPACE, PROXY, ROOT, TOKEN};
use super::*;

const FIVE: &str = include_str!("v5.json");
const SIX: &str = include_str!("v6.json");

/// The import, with its files written.
fn written(text: &str) -> (Import, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let made = import(text, dir.path()).expect("a configuration");
    made.files.iter().for_each(|file| std::fs::write(&file.path, &file.contents).expect("written"));
    (made, dir)
}

/// The settings that are not at their default, as `config check` shows them.
fn settings(made: &Import) -> Vec<String> {
    let loaded = crate::parse("tidings.toml", &made.toml, []).unwrap_or_else(|error| panic!("{error}\n{}", made.toml));
    let stated = loaded.effective.iter().filter(|it| it.origin != crate::Origin::Default);
    stated.map(|it| format!("{}.{} = {}", it.table, it.name, it.value)).collect()
}

fn outcome<'m>(made: &'m Import, key: &str) -> &'m Outcome {
    let entry = made.entries.iter().find(|entry| entry.key == key);
    &entry.unwrap_or_else(|| panic!("no entry for {key}")).outcome
}

#[track_caller]
fn has(made: &Import, expected: &[&str]) {
    let settings = settings(made);
    for line in expected {
        assert!(settings.iter().any(|it| it == line), "{line} is not in {settings:#?}");
    }
}

fn imported(value: &Json) -> Import {
    written(&value.to_string()).0
}

#[test]
fn a_configuration_of_centrifugo_5_is_one_of_ours() {
    let (made, dir) = written(FIVE);
    has(
        &made,
        &[
            "http.listen = \"0.0.0.0:8100\"",
            "http.internal_listen = \"127.0.0.1:9100\"",
            "client.allowed_origins = [\"https://example.com\", \"https://*.example.com\"]",
            "client.allow_anonymous = true",
            "client.frame_bytes_max = \"128KiB\"",
            "client.channel_count_max = 256",
            "client.subscribe_to_user_personal_channel.personal_channel_namespace = \"personal\"",
            "client.token.issuer_regex = '(?s:.*)(?:https://(a|b)\\.example\\.com)(?s:.*)'",
            "channel.without_namespace.history_ttl = \"5m\"",
            "channel.without_namespace.history_meta_ttl = \"30d\"",
            "channel.namespaces.chat.history_meta_ttl = \"2d\"",
            "channel.without_namespace.subscribe_hook = \"default-subscribe\"",
            "channel.namespaces.chat.publish_hook = \"default-publish\"",
            "channel.namespaces.chat.force_recovery_mode = \"cache\"",
            "rpc.hook = \"default-rpc\"",
            "rpc.namespaces.chat.hook = \"default-rpc\"",
            "client.refresh_hook = \"default-refresh\"",
            "hooks.default-rpc.timeout = \"1s500ms\"",
            "hooks.default-connect.allow_http = true",
            "log.filter = \"debug,fjall=warn,lsm_tree=warn\"",
        ],
    );
    let secret = std::fs::read_to_string(dir.path().join("token-secret")).expect("a file");
    assert_eq!(secret, "centrifugo-secret-0123456789abcdef");
    assert!(
        !made.toml.contains("centrifugo-secret")
            && !made.toml.contains("hook-secret")
            && !made.toml.contains("api-key-0")
    );
    assert!(!format!("{made:?}").contains("centrifugo-secret"), "files are not shown");
    assert!(matches!(outcome(&made, "admin_password"), Outcome::Todo { .. }));
    assert!(matches!(outcome(&made, "redis_tls"), Outcome::Needless { .. }));
    let unknown: Vec<_> = made.entries.iter().filter(|entry| entry.outcome == Outcome::Unknown).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_configuration_of_centrifugo_6_is_one_of_ours() {
    let (made, dir) = written(SIX);
    has(
        &made,
        &[
            "http.listen = \"127.0.0.1:8100\"",
            "client.token.jwks_allow_http = true",
            "client.token.audience_regex = \"^app$\"",
            "client.write_timeout = \"2s\"",
            "client.uni_sse = true",
            "client.connect_hook = \"default-connect\"",
            "channel.without_namespace.subscribe_hook = \"default-subscribe\"",
            "channel.namespaces.chat.subscribe_hook = \"named\"",
            "channel.namespaces.chat.sub_refresh_hook = \"default-sub_refresh\"",
            "channel.namespaces.chat.history_meta_ttl = \"2d\"",
            "channel.namespaces.chat.publication_data_format = \"json_object\"",
            "channel.namespaces.chat.allow_publish_for_anonymous = true",
            "rpc.hook = \"default-rpc\"",
            "rpc.namespaces.chat.hook = \"named\"",
            "hooks.named.timeout = \"2s\"",
            "log.filter = \"warn\"",
        ],
    );
    let todo = |key: &str| assert!(matches!(outcome(&made, key), Outcome::Todo { .. }), "{key}");
    todo("channel.proxy.publish.endpoint"); // gRPC
    todo("channel.namespaces[1].publish_proxy_enabled");
    todo("engine.type");
    todo("http_stream.handler_prefix");
    todo("consumers[0].postgresql.dsn");
    let files: BTreeSet<_> =
        made.files.iter().map(|it| it.path.strip_prefix(dir.path()).expect("inside").to_owned()).collect();
    assert!(
        files.contains(Path::new("subscription_token-secret-before")) && files.contains(Path::new("api-key")),
        "{files:?}"
    );
    assert_eq!(files.len(), made.files.len(), "no two files have one name");
    let headers = std::fs::read_to_string(dir.path().join("hooks-named-headers")).expect("a file");
    assert_eq!(headers, "X-Hook-Key: hook-secret\n");
    assert!(!made.entries.iter().any(|entry| entry.outcome == Outcome::Unknown), "{:?}", made.entries);
}

#[test]
fn the_fixtures_use_every_row() {
    let five: Json = serde_json::from_str(FIVE).expect("JSON");
    let six: Json = serde_json::from_str(SIX).expect("JSON");
    let mut keys = BTreeSet::new();
    let mut add = |key: String, _: &Json| {
        keys.insert(key.replace("[0]", "[]").replace("[1]", "[]"));
    };
    leaves("", &five, &mut add);
    leaves("", &six, &mut add);
    let homes = DEFAULT_PROXIES.iter().map(|(_, path)| format!(".{path}."));
    let homes = homes.chain(
        [".proxy_", ".token_", ".client.token.", ".namespaces[].", ".channel.namespaces[].", ".proxies[].", "."]
            .map(str::to_owned),
    );
    let homes: Vec<String> = homes.collect();
    for (name, _) in [ROOT, TOKEN, NAMESPACE, PROXY].concat().iter().flat_map(|(five, six, _)| [(five, 5), (six, 6)]) {
        let head = name.split_once('*').map_or(*name, |(head, _)| head);
        // Alternatives that one file cannot have together, and keys below `proxies` of 5.
        let is_apart =
            ["", "http_status_to_code_transforms", "cache_empty_", "proxy_cache_empty", "proxy_subscribe_stream"]
                .contains(&head);
        let is_used = || homes.iter().any(|home| keys.iter().any(|key| key.starts_with(&format!("{home}{head}"))));
        assert!(is_apart || is_used(), "{name} is in no fixture");
    }
}

/// The general one is for each namespace that has a history and none of its own; 0 is none.
#[test]
fn the_time_of_positions_is_that_of_each_namespace_with_a_history() {
    let namespaces = json!([
        {"name": "own", "history_size": 1, "history_ttl": "1m", "history_meta_ttl": "3h"},
        {"name": "general", "history_size": 1, "history_ttl": "1m"},
        {"name": "zero", "history_size": 1, "history_ttl": "1m", "history_meta_ttl": "0s"},
        {"name": "none", "presence": true},
    ]);
    let kept = json!({"history_size": 1, "history_ttl": "1m"});
    let six = json!({"channel": {"history_meta_ttl": "2h", "without_namespace": kept, "namespaces": namespaces}});
    let mut five = kept.clone();
    five["global_history_meta_ttl"] = "2h".into();
    five["namespaces"] = namespaces;
    for (key, file) in [("global_history_meta_ttl", five), ("channel.history_meta_ttl", six)] {
        let made = imported(&file);
        let times = settings(&made).into_iter().filter(|line| line.contains("history_meta_ttl"));
        let expected = [
            "channel.namespaces.general.history_meta_ttl = \"2h\"",
            "channel.namespaces.own.history_meta_ttl = \"3h\"",
            "channel.namespaces.zero.history_meta_ttl = \"2h\"",
            "channel.without_namespace.history_meta_ttl = \"2h\"",
        ];
        assert_eq!(times.collect::<BTreeSet<_>>(), expected.map(str::to_owned).into());
        assert!(matches!(outcome(&made, key), Outcome::Set { settings } if settings.len() == 3));
    }
    let made = imported(&json!({"global_history_meta_ttl": "2h", "namespaces": [{"name": "none"}]}));
    assert!(matches!(outcome(&made, "global_history_meta_ttl"), Outcome::Needless { .. }));
}

#[test]
fn toml_is_read_as_json_is() {
    let value: Json = serde_json::from_str(SIX).expect("JSON");
    let text = toml::to_string(&value).expect("TOML");
    let (json, toml) = (import(SIX, Path::new("s")).expect("JSON"), import(&text, Path::new("s")).expect("TOML"));
    assert_eq!(json.toml, toml.toml);
    assert!(import("a: 1\nb:\n  - c\n", Path::new("s")).expect_err("YAML").to_string().contains("yq"));
    assert!(!import("key = secret-word", Path::new("s")).expect_err("no TOML").to_string().contains("secret-word"));
}

#[test]
fn nothing_is_open_without_a_key() {
    let made = imported(&json!({"port": "9000"}));
    has(&made, &["http.listen = \"127.0.0.1:9000\""]);
    assert!(matches!(outcome(&made, "port"), Outcome::Todo { what } if what.contains("loopback")));
    let made = imported(&json!({"http_api": {"key": "short"}}));
    has(&made, &["http.listen = \"127.0.0.1:8000\""]);
    assert!(matches!(outcome(&made, "http_api.key"), Outcome::Todo { what } if what.contains("16 characters")));
}

#[test]
fn what_our_parser_refuses_is_to_be_done() {
    let made = imported(&json!({
        "ping_interval": "-1s", "client": {"channel_limit": 0}, "allowed_origins": ["not an origin"],
        "history_ttl": "0.1us", "proxies": [{"name": "a", "endpoint": "grpc://x"}, {"endpoint": "http://x"}],
        "granular_proxy_mode": true, "connect_proxy_name": "a", "no_such_key": {"at": ["all"]},
    }));
    settings(&made);
    for key in [
        "ping_interval",
        "client.channel_limit",
        "allowed_origins",
        "history_ttl",
        "proxies[0].endpoint",
        "connect_proxy_name",
    ] {
        assert!(matches!(outcome(&made, key), Outcome::Todo { .. }), "{key}: {:?}", outcome(&made, key));
    }
    assert_eq!(*outcome(&made, "no_such_key.at"), Outcome::Unknown);
}

#[test]
fn tls_with_pem_in_a_value_becomes_files() {
    let certificate = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n";
    let made = imported(
        &json!({"http_server": {"tls": {"enabled": true, "cert_pem": certificate, "key_pem": "/etc/key.pem"}}}),
    );
    assert_eq!(made.files.len(), 1);
    assert_eq!(made.files[0].contents, certificate);
    assert!(made.toml.contains("certificate_key_file = \"/etc/key.pem\""), "{}", made.toml);
}

fn any_key() -> impl Strategy<Value = String> {
    let known = [ROOT, TOKEN, NAMESPACE, PROXY].concat();
    let names = known.iter().flat_map(|(five, six, _)| [*five, *six]).flat_map(|name| name.split('.'));
    let names = names.filter(|name| !name.is_empty()).map(|name| name.replace('*', "x"));
    let more = [
        "namespaces",
        "channel",
        "client",
        "rpc",
        "proxies",
        "proxy",
        "default",
        "proxy_rpc_endpoint",
        "rpc_namespaces",
    ];
    let names: Vec<String> = names.chain(more.map(str::to_owned)).collect();
    prop_oneof![9 => proptest::sample::select(names), 1 => "\\PC{0,8}"]
}

fn any_value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        "\\PC{0,12}".prop_map(Json::from),
        "-?[0-9.]{0,12}(ns|us|ms|s|m|h)".prop_map(Json::from),
        proptest::sample::select(vec!["https://x.example/", "http://x", "grpc://x", "default", "a", "8000"])
            .prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        let named = proptest::collection::btree_map(any_key(), inner.clone(), 0..5).prop_map(|mut all| {
            all.insert("name".into(), "a".into());
            all.insert("endpoint".into(), "https://x/".into());
            json!(all)
        });
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            proptest::collection::vec(named, 1..3).prop_map(Json::from),
            proptest::collection::btree_map(any_key(), inner, 0..6).prop_map(|all| json!(all)),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_comes_each_leaf_is_accounted_for_once(all in proptest::collection::btree_map(any_key(), any_value(), 0..12)) {
        let value = json!(all);
        let made = import(&value.to_string(), Path::new("secrets")).expect("an object");
        let mut expected = Vec::new();
        for (key, value) in &all {
            leaves(key, value, &mut |key, _| expected.push(key));
        }
        let mut keys: Vec<String> = made.entries.into_iter().map(|entry| entry.key).collect();
        keys.sort();
        expected.sort();
        prop_assert_eq!(keys, expected);
        let mut problems = Vec::new();
        crate::tree::parse("t.toml", &made.toml, &mut problems);
        prop_assert!(problems.is_empty(), "{problems:?} in {}", made.toml);
    }
}
