//! Tests of the messages about wrong configurations, of the environment, of what is printed, and of the memory sum.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use tidings_api::Scope;
use tidings_protocol::{DataFormat, HookId, NamespaceOptions};
use tidings_telemetry::unix_now;
use tidings_types::{Locale, Timestamp};

use super::field::{Reader, Shape};
use super::value::{ByteSize, Sha256};
use super::*;

const NO_VARIABLES: [(String, String); 0] = [];

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn loaded(text: &str) -> Loaded {
    parse("t.toml", text, NO_VARIABLES).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// All mistakes.
fn mistakes(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    match parse("t.toml", text, variables(environment)) {
        Err(ConfigError::Wrong { problems: Problems(problems), .. }) => {
            problems.iter().map(ToString::to_string).collect()
        }
        Err(error) => panic!("{error}"),
        Ok(_) => Vec::new(),
    }
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(mistakes(text, &[]), expected, "{text}");
}

#[test]
fn an_empty_configuration_has_the_defaults() {
    let config = loaded("").config;
    assert_eq!(config.data_dir, Path::new("tidings-data"));
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8000");
    assert_eq!(config.http.body_bytes_max, ByteSize(4 << 20));
    assert_eq!(config.client.ping_interval, Duration::from_secs(25));
    let history_meta_ttl = Duration::from_secs(600);
    let closed = NamespaceOptions { channel_count_max: 50_000, history_meta_ttl, ..NamespaceOptions::closed() };
    assert_eq!(config.options_of(&config.channel.without_namespace), closed);
    let text = "[channel.namespaces.kept]\nhistory_size = 1\nhistory_ttl = \"1m\"\ndurable = true\n\
                [channel.namespaces.few]\nchannel_count_max = 3";
    let config = loaded(text).config;
    let count_max = |name: &str| config.options_of(&config.channel.namespaces[name]).channel_count_max;
    assert_eq!((count_max("kept"), count_max("few")), (500_000, 3));
    assert!(config.topics.is_empty() && config.apns.is_empty() && config.api.keys.is_empty());
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_one() {
    check(
        "[http]\nlistn = \"127.0.0.1:1\"",
        &["t.toml:2:1: unknown setting `http.listn`, did you mean `http.listen`?"],
    );
    check("[htpp]\n", &["t.toml:1:2: unknown setting `htpp`, did you mean `http`?"]);
    check("listen = \"x\"", &["t.toml:1:1: unknown setting `listen`, did you mean `http.listen`?"]);
    check("[log]\nquux = 1", &["t.toml:2:1: unknown setting `log.quux`"]);
    check("\"a\\nb\\u001bc\" = 1", &["t.toml:1:1: unknown setting `a\\nb\\u{1b}c`"]);
    check(
        "[channel.namespaces.chat]\nhistory_sise = 1",
        &["t.toml:2:1: unknown setting `channel.namespaces.chat.history_sise`, did you mean \
           `channel.namespaces.chat.history_size`?"],
    );
}

#[test]
fn a_wrong_value_is_refused_with_what_is_expected() {
    check(
        "[http]\nlisten = \"localhost\"",
        &["t.toml:2:10: `http.listen` must be an IP address and a port, such as \"127.0.0.1:8000\" or \"[::]:8000\", \
           got \"localhost\""],
    );
    check(
        "[http]\n  body_bytes_max = \"5 parsecs\"",
        &["t.toml:2:20: `http.body_bytes_max` must be a size in B, KiB, MiB or GiB, such as \"64KiB\" from 64KiB to \
           64MiB, got \"5 parsecs\""],
    );
    check(
        "client.ping_interval = \"2h\"",
        &["t.toml:1:24: `client.ping_interval` must be a duration in ms, s, m, h or d, such as \"25s\" or \"1h30m\" \
           from 1s to 1h, got \"2h\""],
    );
    check(
        "[client]\nchannel_count_max = 0",
        &["t.toml:2:21: `client.channel_count_max` must be a whole number from 1 to 65536, got 0"],
    );
    check(
        "[client]\nchannel_count_max = \"7\"",
        &["t.toml:2:21: `client.channel_count_max` must be a whole number from 1 to 65536, got text"],
    );
    check("[client]\ninsecure = 1", &["t.toml:2:12: `client.insecure` must be true or false, got a whole number"]);
    check(
        "[influx]\naddress = \"agent\"\ntags = [\"a=b\", \"=c\"]",
        &[
            "t.toml:2:11: `influx.address` must be a host and a port, such as \"127.0.0.1:8089\", \"[::1]:8089\" or \
             \"agent:8089\", got \"agent\"",
            "t.toml:3:16: `influx.tags[1]` must be KEY=VALUE, such as \"region=eu\": 1 to 64 bytes each, KEY a letter, \
             then letters, digits, `_`, not `time`, got \"=c\"",
        ],
    );
    check("http = 1", &["t.toml:1:8: `http` must be a table, got a whole number"]);
    check("topics = 1", &["t.toml:1:10: `topics` must be tables with names, got a whole number"]);
    check("api.keys = 1", &["t.toml:1:12: `api.keys` must be a list in [], got a whole number"]);
    check("[log]\nformat = \"xml\"", &["t.toml:2:10: `log.format` must be \"text\" or \"json\", got \"xml\""]);
    check(
        "[topics.Goal]\ntitle = \"a\"\nbody = \"b\"",
        &["t.toml:1:9: `topics`: topic must be 1 to 64 characters of a-z, 0-9, _ and -, got \"Goal\""],
    );
}

#[test]
fn a_missing_setting_is_reported_at_its_table() {
    check(
        "\n[topics.goal]\ntitle = \"Goal\"",
        &["t.toml:2:9: `topics.goal.body` is missing, must be text without control characters, not empty"],
    );
}

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let found =
        mistakes("[http]\nlisten = 5\nlisten = 6\n[client]\nping_intervall = \"1s\"\n[log]\nfilter = = 1\n", &[]);
    let has = |part: &str| assert!(found.iter().any(|line| line.contains(part)), "{part} in {found:#?}");
    has("t.toml:3:1: not TOML: duplicate key");
    has("`http.listen` must be an IP address");
    has("did you mean `client.ping_interval`?");
    has("t.toml:7:10: not TOML");
    assert!(found.is_sorted(), "{found:#?}");
}

#[test]
fn a_secret_is_never_repeated() {
    let text = "[client]\ntoken.hmac_secret = \"hunter2\\u0007\"\n[[api.keys]]\nname = \"a\"\nkey = \"hunter2\"\n";
    let found = mistakes(text, &[("TIDINGS_CLIENT__TOKEN__HMAC_PREVIOUS_SECRET", "")]);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(!format!("{found:?}").contains("hunter2"));

    let text = format!(
        "[client]\ntoken.hmac_secret = \"{0}\"\n[[api.keys]]\nname = \"a\"\nkey = \"{0}\"\n",
        "hunter2-".repeat(4)
    );
    let loaded = loaded(&text);
    assert!(!format!("{loaded:?}").contains("hunter2"), "in Debug");
    let shown = effective(&loaded.effective);
    assert!(!shown.contains("hunter2") && shown.contains("hmac_secret = \"***\""), "{shown}");
}

#[test]
fn relations_between_settings_are_checked() {
    let history = |lines: &str| format!("[channel.namespaces.n]\n{lines}");
    check(
        &history("history_size = 5"),
        &["t.toml:2:16: `channel.namespaces.n.history_size`: needs a `history_ttl` above 0s"],
    );
    check(
        &history("history_ttl = \"1m\""),
        &["t.toml:2:15: `channel.namespaces.n.history_ttl`: needs a `history_size` above 0"],
    );
    check(
        &history("durable = true\nforce_recovery = true"),
        &[
            "t.toml:2:11: `channel.namespaces.n.durable`: needs a history: set `history_size` and `history_ttl`",
            "t.toml:3:18: `channel.namespaces.n.force_recovery`: needs a history: set `history_size` and `history_ttl`",
        ],
    );
    check(&history("durable = true\nforce_recovery = true\nhistory_size = 10\nhistory_ttl = \"1h\""), &[]);
    check(
        "[channel.namespaces.n]\nauto_cache_recover = true",
        &["t.toml:2:22: `channel.namespaces.n.auto_cache_recover`: needs `force_recovery_mode = \"cache\"`"],
    );
    check(
        "[channel.namespaces.n]\nevent_texts = true",
        &[
            "t.toml:2:15: `channel.namespaces.n.event_texts`: needs `durable = true`: events go into durable channels only",
        ],
    );
    check(
        "[channel.namespaces.n]\ndurable = true\nhistory_size = 1\nhistory_ttl = \"1m\"\nchannel_ttl = \"999ms\"",
        &[
            "t.toml:5:15: `channel.namespaces.n.channel_ttl`: must be at least \"1s\", or \"0s\" for `store.channel_ttl`",
        ],
    );
    check(
        "[channel.namespaces.n]\nchannel_ttl = \"1h\"",
        &[
            "t.toml:2:15: `channel.namespaces.n.channel_ttl`: needs `durable = true`: other channels end with their history",
        ],
    );
    check(
        "[channel.namespaces.n]\nforce_push_join_leave = true",
        &["t.toml:2:25: `channel.namespaces.n.force_push_join_leave`: needs `join_leave = true`"],
    );
    check(
        "[http]\nbody_bytes_max = \"16MiB\"\n[edge]\nloops = 1\nmemory_bytes_max = \"32MiB\"",
        &[
            "t.toml:5:20: `edge.memory_bytes_max`: must be at least \"64MiB\", four times `http.body_bytes_max`, got \"32MiB\"",
        ],
    );
    check(
        "[edge]\nloops = 4\nmemory_bytes_max = \"16MiB\"",
        &[
            "t.toml:3:20: `edge.memory_bytes_max`: must be at least \"32MiB\" with 4 loops, got \"16MiB\": a quarter of it is for replies, and \
             each loop needs twice `edge.control_bytes_max` and twice `client.reply_bytes_max`",
        ],
    );
    check(
        "[client]\nframe_bytes_max = \"1MiB\"\n[edge]\nloops = 4\ninput_bytes_max = \"15MiB\"",
        &[
            "t.toml:5:19: `edge.input_bytes_max`: must be at least \"16MiB\" with 4 loops, for each four times `client.frame_bytes_max` \
             or \"64KiB\", got \"15MiB\"",
        ],
    );
    check(
        "[channel.namespaces.n]\nslow_readers = \"skip\"\nper_second_max = 2\nlatest_key = \"car\"",
        &[
            "t.toml:3:18: `channel.namespaces.n.per_second_max`: needs `slow_readers = \"latest\"`",
            "t.toml:4:14: `channel.namespaces.n.latest_key`: needs `slow_readers = \"latest\"` or `allow_thinning = true`",
        ],
    );
    check(
        "[channel.namespaces.\"a b\"]\npresence = true",
        &[
            "t.toml:2:12: `channel.namespaces.\"a b\"`: a name must be 1 to 64 letters, digits, `_`, `-` and `.`, got \"a b\"",
        ],
    );
    check(
        "[client]\nping_interval = \"5s\"\npong_timeout = \"5s\"",
        &["t.toml:3:16: `client.pong_timeout`: must be shorter than `client.ping_interval`"],
    );
    check(
        "[client]\nping_interval = \"1500ms\"\npong_timeout = \"1s\"",
        &["t.toml:2:17: `client.ping_interval`: must be whole seconds: the protocol tells clients no fractions"],
    );
    check(
        "[client.subscribe_to_user_personal_channel]\npersonal_channel_namespace = \"mine\"",
        &[
            "t.toml:2:30: `client.subscribe_to_user_personal_channel.personal_channel_namespace`: \"mine\" is not among \
             `channel.namespaces`: add it there, or name one of them",
        ],
    );
    check(
        "[client]\ntoken.hmac_previous_secret = \"x\"",
        &["t.toml:2:30: `client.token.hmac_previous_secret`: needs `client.token.hmac_secret`"],
    );
    check(
        "[topics.t]\ntitle = \"a\"\nbody = \"b\"\nbody_plural = \"c\"",
        &["t.toml:2:9: `topics.t.count`: is missing: name the parameter that chooses the plural"],
    );
    let topic = |more: &str| format!("[topics.t]\ntitle = \"a\"\nbody = \"b\"\n{more}");
    check(
        &topic("select = \"gender\""),
        &["t.toml:2:9: `topics.t.values`: is missing: name the values of `select` that may have another text"],
    );
    check(
        &topic("values = [\"x\", \"x\"]\ntexts.y.body_plural = \"c\""),
        &[
            "t.toml:4:10: `topics.t.values`: needs `select`: name the parameter that has one of these values",
            "t.toml:4:10: `topics.t.values`: has \"x\" twice: remove one of them",
            "t.toml:5:23: `topics.t.texts.y`: is not among `values`: add it there, or remove it",
            "t.toml:5:23: `topics.t.texts.y.body_plural`: needs `body`",
        ],
    );
    check(
        &topic("select = \"g\"\nvalues = [\"x\"]\ntexts.x.body = \"%{c}\""),
        &["t.toml:3:8: `topics.t.body`: only one of the text for \"x\" and the text without a value has %{c}"],
    );
    check(
        "[names.team]\nvalues = [\"Sweden\"]\ncases = [\"for\", \"for\", \"a b\"]",
        &[
            "t.toml:3:9: `names.team.cases`: has \"for\" twice: remove one of them",
            "t.toml:3:9: `names.team.cases`: a value to select by must be 1 to 64 letters, digits, `_` and `-`, got \"a b\"",
        ],
    );
    check(
        "[influx]\npacket_bytes = \"512B\"\ntags = [\"a=b\", \"c=d\", \"a=e\"]",
        &["t.toml:3:8: `influx.tags`: \"a\" is given twice: remove one"],
    );
    let tags = ["k1", "k2", "k3"].map(|key| format!("\"{key}={}\"", "v".repeat(60)));
    check(
        &format!("[influx]\npacket_bytes = \"512B\"\ntags = [{}]", tags.join(", ")),
        &["t.toml:3:8: `influx.tags`: must take at most a quarter of `influx.packet_bytes` (128), got 192 bytes"],
    );
    check(
        "[topics.goal]\ntitle = \"T\"\nbody = \"B\"\nmissing = \"skip\"",
        &[
            "t.toml:4:11: `topics.goal.missing`: \"skip\" needs `translations.source_locale`: set the language in which the \
           topics are written",
        ],
    );
    check(
        "[translations]\nwatch = \"99ms\"",
        &["t.toml:2:9: `translations.watch`: must be 0s or at least 100ms, got 99ms"],
    );
}

#[test]
fn texts_and_filters_are_checked() {
    let topic = |text: &str| format!("[topics.t]\ntitle = \"a\"\n{text}");
    let found = mistakes(&topic("body = \"%{broken\""), &[]);
    assert!(found.len() == 1 && found[0].starts_with("t.toml:3:8: `topics.t.body`: "), "{found:?}");
    let found = mistakes(&topic("body = \"%{n} goal\"\nbody_plural = \"%{m} goals\"\ncount = \"n\""), &[]);
    assert!(found.len() == 1 && found[0].starts_with("t.toml:3:8: `topics.t.body`: "), "{found:?}");
    let found = mistakes("[log]\nfilter = \"a=b=c\"", &[]);
    assert!(found.len() == 1 && found[0].starts_with("t.toml:2:10: `log.filter`: "), "{found:?}");
}

#[test]
fn the_topics_of_the_demo_are_valid() {
    let config = loaded(include_str!("../../demo/topics.toml")).config;
    assert!(config.topics.len() >= 10);
    assert!(config.topics.values().any(|topic| topic.body_plural.is_some()));
}

#[test]
fn the_api_beyond_loopback_needs_a_key() {
    check(
        "[http]\nlisten = \"0.0.0.0:80\"",
        &["t.toml:2:10: `http.listen`: 0.0.0.0:80 is not loopback, so the API needs a key: add one under [[api.keys]]"],
    );
    check("[http]\nlisten = \"0.0.0.0:80\"\ninternal_listen = \"127.0.0.1:81\"", &[]);
    check("[http]\nlisten = \"0.0.0.0:80\"\n[[api.keys]]\nname = \"a\"\nkey = \"0123456789abcdef\"", &[]);
    check(
        "[http]\nlisten = \"127.0.0.1:80\"\ninternal_listen = \"127.0.0.1:80\"",
        &["t.toml:3:19: `http.internal_listen`: is the same address as `http.listen`: choose another port"],
    );
}

#[test]
fn a_key_becomes_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    fs::write(&file, "0123456789abcdef\n").unwrap();
    // printf 0123456789abcdef | sha256sum
    let digest = "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
    let stated = [
        "key = \"0123456789abcdef\"".to_owned(),
        format!("key_file = {:?}", file.display().to_string()),
        format!("sha256 = \"{digest}\""),
    ];
    for line in stated {
        let config = loaded(&format!("[[api.keys]]\nname = \"a\"\nscopes = [\"metrics\"]\n{line}")).config;
        let key = &config.api.keys[0];
        assert_eq!(Sha256(*key.digest()).show(), digest, "{line}");
        assert_eq!((key.key.is_none(), key.scopes.as_slice()), (true, [Scope::Metrics].as_slice()));
    }
    check(
        "[[api.keys]]\nname = \"a\"\n[[api.keys]]\nname = \"a\"\nkey = \"short\"\nscopes = []",
        &[
            "t.toml:2:8: `api.keys[0].name`: give exactly one of `key`, `key_file` and `sha256`, got 0",
            "t.toml:4:8: `api.keys[1].name`: \"a\" names an earlier key already: choose another name",
            "t.toml:5:7: `api.keys[1].key`: a key must have at least 16 characters, got 5",
            "t.toml:6:10: `api.keys[1].scopes`: is empty: name at least one scope",
        ],
    );
}

#[test]
fn a_secret_from_a_file_has_no_line_break() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    fs::write(&file, "s3cret\r\n").unwrap();
    let text = format!("[client]\ntoken.hmac_secret_file = {:?}", file.display().to_string());
    assert_eq!(loaded(&text).config.client.token.hmac_secret.unwrap().expose(), "s3cret");
    let both = format!("{text}\ntoken.hmac_secret = \"x\"");
    check(&both, &["t.toml:3:21: `client.token.hmac_secret`: give it or `client.token.hmac_secret_file`, not both"]);
    fs::write(&file, "\n").unwrap();
    assert_eq!(mistakes(&text, &[]).len(), 1);
    fs::remove_file(&file).unwrap();
    assert!(mistakes(&text, &[])[0].starts_with("t.toml:2:26: `client.token.hmac_secret_file`: cannot read "));
}

#[test]
fn keys_of_tokens_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key.pem");
    let text = format!("[client.token]\npublic_key_files = [{:?}]", file.display().to_string());
    assert!(mistakes(&text, &[])[0].contains("`client.token.public_key_files[0]`: cannot read "));
    let pem =
        |label: &str| fs::write(&file, format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n")).unwrap();
    pem("PRIVATE KEY");
    assert!(mistakes(&text, &[])[0].ends_with("is a private key; give the public key that belongs to it"));
    pem("PUBLIC KEY");
    assert!(mistakes(&text, &[])[0].contains("is not an RSA (2048 to 8192 bits), ECDSA (P-256, P-384) or Ed25519"));
    fs::write(&file, "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n").unwrap();
    assert!(loaded(&text).warnings.is_empty(), "RFC 8037, A.2");

    check(
        "[client.token]\njwks_url = \"http://127.0.0.1/keys\"\njwks_fetch_interval_min = \"5m\"\n\
         jwks_refresh_interval = \"1m\"",
        &[
            "t.toml:2:12: `client.token.jwks_url`: must be https, or set `client.token.jwks_allow_http`",
            "t.toml:3:27: `client.token.jwks_fetch_interval_min`: must not be longer than \
             `client.token.jwks_refresh_interval`",
        ],
    );
    check(
        "[client.token]\naudience_regex = \"(\"",
        &["t.toml:2:18: `client.token.audience_regex` must be a regular expression, got \"(\""],
    );
    check(
        "[client.subscription_token]\nissuer = \"us\"",
        &["t.toml:2:10: `client.subscription_token`: has rules but no key: give it a key, or remove the rules"],
    );
    let text = "[client.token]\nhmac_secret = \"change-me-change-me-change-me-32\"\nhmac_previous_secret = \
                \"change-me-change-me-change-me-31\"\nhmac_previous_secret_until = \"2001-09-09T01:46:40Z\"";
    let loaded = loaded(text);
    assert_eq!(loaded.config.client.token.hmac_previous_secret_until, Some(Moment(Timestamp(1_000_000_000_000))));
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["t.toml:4:30: `client.token.hmac_previous_secret_until`: is over: the previous secret can be removed"]
    );
}

#[test]
fn names_of_channels_are_limited() {
    let text = "[channel]\nname_bytes_max = 10\n[channel.without_namespace]\nchannel_regex = \"n.*\"\n\
                [channel.namespaces.m]\npublication_data_format = \"json_object\"\nallow_user_limited_channels = true";
    let config = loaded(text).config;
    let options = config.options_of(&config.channel.namespaces["m"]);
    assert_eq!((options.data_format, options.allow_user_limited_channels), (DataFormat::JsonObject, true));
    let pattern = tidings_protocol::TextPattern::new("n.*").unwrap();
    let none = config.options_of(&config.channel.without_namespace);
    let expected = tidings_protocol::Namespaces::new(none, [("m".to_owned(), options)].into());
    assert_eq!(config.namespaces(), expected.with_names(10, [(String::new(), pattern)].into()));
}

struct Credentials {
    _dir: tempfile::TempDir,
    key: PathBuf,
}

fn credentials() -> Credentials {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key.p8");
    fs::write(&key, "-----BEGIN PRIVATE KEY-----\n").unwrap();
    Credentials { _dir: dir, key }
}

fn apns(name: &str, key: &Path, more: &str) -> String {
    let key = key.display().to_string();
    format!(
        "[apns.{name}]\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\nkey_file = {key:?}\napps = [\"a.b\"]\n{more}\n"
    )
}

#[test]
fn apns_credentials_are_checked() {
    let credentials = credentials();
    let one = apns("main", &credentials.key, "");
    assert_eq!(loaded(&one).config.apns["main"].host(), "api.push.apple.com");
    let sandbox = apns("dev", &credentials.key, "environment = \"sandbox\"");
    assert_eq!(loaded(&format!("{one}{sandbox}")).config.apns["dev"].host(), "api.sandbox.push.apple.com");
    check(
        &format!("{one}{}", apns("second", &credentials.key, "")),
        &[
            "t.toml:11:8: `apns.second.apps`: a.b in this environment belongs to `apns.main` already: remove it from one of them",
        ],
    );
    check(
        &apns(
            "main",
            &credentials.key,
            "connection_count = 1\nconnection_count_max = 1\nstream_count_max = 10\nlake_capacity = 21",
        ),
        &["t.toml:9:17: `apns.main.lake_capacity`: must be at most twice what is in flight (10), got 21"],
    );
    check(
        &one.replace("ABC123DEFG", "abc").replace("[\"a.b\"]", "[]"),
        &["t.toml:2:10: `apns.main.key_id` must be 10 letters A-Z and digits, as Apple's developer pages show it, \
           got \"abc\""],
    );
    check(
        &apns("main", &credentials.key, "host = \"API.sandbox.push.apple.com\""),
        &["t.toml:6:8: `apns.main.host`: is Apple's for `environment = \"sandbox\"`: no device of this section is \
           known there"],
    );
    let sandbox =
        apns("main", &credentials.key, "host = \"api.development.push.apple.com\"\nenvironment = \"sandbox\"");
    assert_eq!(loaded(&sandbox).config.apns["main"].host(), "api.development.push.apple.com");
    check(
        &one.replace("[\"a.b\"]", "[\"a.b\", \"a.b.voip\", \"a.b.push-type.liveactivity\"]"),
        &["t.toml:5:8: `apns.main.apps`: a.b.push-type.liveactivity is a topic of Live Activities, which are not \
           supported yet"],
    );
    fs::write(&credentials.key, "no key").unwrap();
    assert!(mistakes(&one, &[])[0].ends_with("holds no PEM \"PRIVATE KEY\""));
}

/// The files of both providers in a folder, and the sections that name them.
fn fcm_and_web_push() -> (tempfile::TempDir, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let google = tidings_simulator::FcmSimulator::start(Default::default()).unwrap();
    let browsers = tidings_simulator::WebPushSimulator::start(Default::default()).unwrap();
    fs::write(path("account.json"), google.service_account_json()).unwrap();
    fs::write(path("vapid.key"), browsers.vapid_key()).unwrap();
    let fcm = format!("[fcm.main]\nservice_account_file = {:?}\napps = [\"a.b\"]\n", path("account.json"));
    let web = format!(
        "[web_push.main]\nvapid_key_file = {:?}\napps = [\"a.b\"]\ncontact = \"mailto:a@b.c\"\n",
        path("vapid.key")
    );
    (dir, fcm, web)
}

#[test]
fn fcm_and_web_push_sections_are_checked() {
    let (dir, fcm, web) = fcm_and_web_push();
    let loaded = loaded(&format!("{fcm}{web}")).config;
    assert_eq!((loaded.fcm["main"].quota_per_minute, loaded.web_push["main"].apps.len()), (600_000, 1));
    check(
        &format!("{fcm}{}", fcm.replace("[fcm.main]", "[fcm.second]")),
        &["t.toml:6:8: `fcm.second.apps`: a.b belongs to `fcm.main` already: remove it from one of them"],
    );
    let bounds = "connection_count = 3\nconnection_count_max = 2\nthread_count = 4\n";
    check(
        &format!("{fcm}{bounds}"),
        &[
            "t.toml:2:24: `fcm.main.lake_capacity`: must be at most twice what is in flight (200), got 2000",
            "t.toml:4:20: `fcm.main.connection_count`: must not be more than `connection_count_max`",
            "t.toml:6:16: `fcm.main.thread_count`: must not be more than `connection_count`",
        ],
    );
    check(
        "[fcm.main]\napps = [\"a.b\"]\n",
        &["t.toml:2:8: `fcm.main.service_account_file`: is missing: name the file that Google gave you"],
    );
    check(
        &web.replace("mailto:a@b.c", "a@b.c"),
        &[
            "t.toml:4:11: `web_push.main.contact`: the contact must be a mailto: or https: address of at most 256 characters, \
           got \"a@b.c\"",
        ],
    );
    check(
        &format!("{web}allowed_hosts = [\"10.0.0.1\"]\n"),
        &[
            "t.toml:5:17: `web_push.main.allowed_hosts`: a host must be a domain name, or *. and one for all names below it, \
           got \"10.0.0.1\"",
        ],
    );
    for name in ["account.json", "vapid.key"] {
        fs::write(dir.path().join(name), "a secret").unwrap();
    }
    let wrong = mistakes(&format!("{fcm}{web}"), &[]);
    assert!(wrong.len() == 2 && wrong.iter().all(|wrong| !wrong.contains("a secret")), "{wrong:?}");
}

#[test]
fn settings_that_open_the_network_or_push_all_devices_cause_warnings() {
    let warnings = |text: &str| loaded(text).warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (_dir, _, web) = fcm_and_web_push();
    let said = warnings(&format!("{web}allow_private = true\n"));
    assert!(said.iter().any(|it| it.contains("web_push.main.allow_private") && it.contains("inside your network")));
    let said = warnings("[shadow]\npercent = 5\n");
    assert!(said.iter().any(|it| it.contains("shadow.enabled") && it.contains("everybody is pushed")), "{said:?}");
}

#[test]
fn an_apns_section_has_a_key_or_a_certificate() {
    let section = |fields: &str| format!("[apns.main]\napps = [\"a.b\"]\n{fields}");
    let credentials = credentials();
    let key = format!("key_file = {:?}\n", credentials.key.display().to_string());
    check(
        &section(""),
        &[
            "t.toml:2:8: `apns.main`: needs a credential: `key_file`, `key_id` and `team_id`, or `certificate_file` and \
           `certificate_key_file`",
        ],
    );
    check(
        &section(&key),
        &["t.toml:3:12: `apns.main.key_id`: is missing", "t.toml:3:12: `apns.main.team_id`: is missing"],
    );
    check(
        &section(&format!("{key}certificate_key_file = \"c.pem\"\n")),
        &["t.toml:4:24: `apns.main.certificate_key_file`: give a signing key or a certificate, not both: there is \
           `key_file`, too"],
    );
    check(&section("certificate_file = \"c.pem\"\n"), &["t.toml:3:20: `apns.main.certificate_key_file`: is missing"]);
}

#[test]
fn an_apns_certificate_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let authority = tidings_simulator::PushAuthority::new().unwrap();
    let write = |name: &str, topics: &[&str], ends_at| {
        let issued = authority.issue(topics, None, ends_at).unwrap();
        fs::write(path(name), format!("{}{}", issued.certificate_pem, issued.key_pem)).unwrap();
    };
    write("good.pem", &["a.b", "a.b.voip"], Timestamp(4_102_444_800_000));
    write("other.pem", &["a.c"], Timestamp(4_102_444_800_000));
    write("old.pem", &["a.b"], Timestamp(1_577_836_800_000));
    let section = |chain: &str, key: &str| {
        let (chain, key) = (path(chain), path(key));
        format!("[apns.main]\napps = [\"a.b\"]\ncertificate_file = {chain:?}\ncertificate_key_file = {key:?}\n")
    };
    let good = loaded(&section("good.pem", "good.pem"));
    assert!(good.warnings.iter().all(|warning| !warning.to_string().contains("apns")), "{:?}", good.warnings);
    let wrong = |chain, key| mistakes(&section(chain, key), &[]).join("; ");
    assert!(wrong("old.pem", "old.pem").ends_with("old.pem: the certificate has ended on 2020-01-01"));
    assert!(wrong("good.pem", "other.pem").starts_with("t.toml:4:24: `apns.main.certificate_key_file`: "));
    assert!(wrong("good.pem", "other.pem").ends_with("holds a private key that does not belong to the certificate"));
    assert!(wrong("none.pem", "good.pem").contains("`apns.main.certificate_file`: cannot read "));
    let topics = wrong("other.pem", "other.pem");
    assert!(topics.starts_with("t.toml:2:8: `apns.main.apps`: a.b is not among the topics of "), "{topics}");
    assert!(topics.ends_with("other.pem (a.c)"), "{topics}");
    let warned = |days: u64| {
        write("good.pem", &["a.b"], unix_now().saturating_add(Duration::from_secs(days * 24 * 3600)));
        let warnings = loaded(&section("good.pem", "good.pem")).warnings;
        warnings.iter().any(|it| {
            it.to_string().contains("`apns.main.certificate_file`: ") && it.to_string().contains(" ends on 2")
        })
    };
    assert_eq!([29, 31].map(warned), [true, false]);
}

#[test]
fn the_environment_overrides_the_file() {
    let text = "[http]\nlisten = \"127.0.0.1:1\"\n[channel.namespaces.my-chat]\npresence = false";
    let environment = variables(&[
        ("TIDINGS_HTTP__LISTEN", "127.0.0.1:2"),
        ("TIDINGS_DATA_DIR", "elsewhere"),
        ("TIDINGS_CLIENT__INSECURE", "true"),
        ("TIDINGS_CLIENT__CHANNEL_COUNT_MAX", "7"),
        ("TIDINGS_CHANNEL__NAMESPACES__MY_CHAT__PRESENCE", "true"),
        ("TIDINGS_CHANNEL__NAMESPACES__NEWS__PRESENCE", "true"),
        ("TIDINGS_API__KEYS", "[{ name = \"e\", key = \"0123456789abcdef\", scopes = [\"metrics\"] }]"),
        ("OTHER_HTTP__LISTEN", "x"),
    ]);
    let loaded = parse("t.toml", text, environment).unwrap();
    let config = &loaded.config;
    assert_eq!(config.http.listen.port(), 2);
    assert_eq!(config.data_dir, Path::new("elsewhere"));
    assert!(config.client.insecure && config.client.channel_count_max == 7);
    let presence: Vec<_> = config.channel.namespaces.iter().map(|(name, n)| (name.as_str(), n.presence)).collect();
    assert_eq!(presence, [("my-chat", true), ("news", true)]);
    assert_eq!(config.api.keys[0].name, "e");
    let listen = loaded.effective.iter().find(|setting| setting.name == "listen").unwrap();
    assert_eq!(listen.origin.to_string(), "TIDINGS_HTTP__LISTEN");
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    let check = |name, value, expected: &str| assert_eq!(mistakes("", &[(name, value)]), [expected]);
    check(
        "TIDINGS_HTTP__LISTN",
        "1",
        "TIDINGS_HTTP__LISTN: unknown setting `http.listn`, did you mean `http.listen` (TIDINGS_HTTP__LISTEN)?",
    );
    check(
        "TIDINGS_DATADIR",
        "x",
        "TIDINGS_DATADIR: unknown setting `datadir`, did you mean `data_dir` (TIDINGS_DATA_DIR)?",
    );
    check(
        "TIDINGS_CLIENT__INSECURE",
        "yes",
        "TIDINGS_CLIENT__INSECURE: `client.insecure` must be true or false, got yes",
    );
    check("TIDINGS_API__KEYS", "[", "TIDINGS_API__KEYS: `api.keys` must be a list in [], got text");
    let deep = format!("TIDINGS_{}X", "A__".repeat(30_000));
    assert_eq!(mistakes("", &[(&deep, "1")]).len(), 1, "a deep name does not exhaust the stack");
}

#[test]
fn variables_of_other_programs_are_ignored() {
    // Variables that a container runtime sets for a service called "tidings", and those of our command line.
    let others = [
        "TIDINGS_SERVICE_HOST",
        "TIDINGS_PORT",
        "TIDINGS_PORT_8000_TCP",
        "TIDINGS_CONFIG",
        "TIDINGS_URL",
        "TIDINGS_BIN",
    ];
    for name in others {
        assert_eq!(mistakes("", &[(name, "tcp://10.0.0.1:8000")]), [""; 0], "{name}");
    }
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidings.toml");
    let load = || load(Some(&file), std::iter::empty());
    assert!(matches!(load(), Err(ConfigError::Unreadable { .. })));
    fs::write(&file, "[http]\nlisten = \"127.0.0.1:5\"\n").unwrap();
    assert_eq!(load().unwrap().config.http.listen.port(), 5);
    fs::write(&file, "#".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1)).unwrap();
    assert!(matches!(load(), Err(ConfigError::Unreadable { .. })));
}

#[test]
fn the_example_file_has_the_defaults() {
    assert_eq!(loaded(&example()).config, loaded("").config);
}

#[test]
fn every_comment_of_the_example_file_is_a_valid_setting() {
    let is_setting = |line: &str| {
        let name = line.split(" = ").next().unwrap_or_default();
        line.starts_with('[')
            || (line.contains(" = ")
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit()))
    };
    let uncomment = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if is_setting(rest) => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    let text: String = example().lines().map(uncomment).collect();
    let text = text.replace("messages = \"messages\"\n", ""); // The folder would have to be there.
    let (config, reader) = read("example", &text, NO_VARIABLES, None);
    assert_eq!(reader.problems, [], "{text}");
    let config = config.unwrap();
    assert!(config.apns.contains_key("main") && config.channel.namespaces.contains_key("match"));
    assert!(config.api.keys.len() == 1 && config.topics.len() == 1 && config.http.internal_listen.is_some());
}

#[test]
fn every_setting_has_an_example_and_is_in_the_reference() {
    fn check(items: &[field::Item], page: &str) {
        for item in items {
            let shape = match &item.shape {
                Shape::Named(shape) | Shape::List(shape) => shape,
                shape => shape,
            };
            match shape {
                Shape::Section { items, .. } => check(items, page),
                _ => {
                    assert!(page.contains(&format!("{}`\n", item.name)), "{}", item.name);
                    let shown = item.default.or(item.example);
                    assert!(shown.is_some() || matches!(item.shape, Shape::List(_)), "{} has no example", item.name);
                }
            }
        }
    }
    let page = reference();
    check(Config::ITEMS, &page);
    assert!(page.contains("### `channel.namespaces.NAME.history_size`"), "{page}");
    assert!(page.contains("from 1s to 1h; default `\"25s\"`; `TIDINGS_CLIENT__PING_INTERVAL`"), "{page}");
}

#[test]
fn the_effective_configuration_reads_back_as_the_same() {
    let credentials = credentials();
    let text = format!(
        "data_dir = \"d\"\n[channel.namespaces.\"a.b\"]\nhistory_size = 3\nhistory_ttl = \"1h30m\"\n[topics.goal]\ntitle = \
         \"\\\"Goal\\\" – \\\\\"\nbody = \"%{{scorer}}\"\n[[api.keys]]\nname = \"x\"\nsha256 = \"{}\"\n[client]\nallowed_origins = \
         [\"https://a\", \"https://b\"]\n{}",
        "ab".repeat(32),
        apns("main", &credentials.key, "")
    );
    let first = loaded(&text);
    let shown = effective(&first.effective);
    assert_eq!(loaded(&shown).config, first.config, "{shown}");
    assert!(shown.contains("# t.toml:1:12\n") && shown.contains("# default\n"), "{shown}");
}

#[test]
fn the_certificate_of_the_server_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let authority = tidings_simulator::PushAuthority::new().unwrap();
    let write = |name: &str, ends_at| {
        let issued = authority.issue(&[], None, ends_at).unwrap();
        fs::write(path(name), format!("{}{}", issued.certificate_pem, issued.key_pem)).unwrap();
    };
    let in_days = |days: u64| unix_now().saturating_add(Duration::from_secs(days * 24 * 3600 + 60));
    write("good.pem", in_days(15));
    write("near.pem", in_days(13));
    write("old.pem", Timestamp(1_577_836_800_000));
    fs::write(path("empty.pem"), "").unwrap();
    let section = |chain: &str, key: &str| {
        let (chain, key) = (path(chain), path(key));
        format!("[http.tls]\ncertificate_file = {chain:?}\ncertificate_key_file = {key:?}\n")
    };
    let warned = |name: &str| {
        let warnings = loaded(&section(name, name)).warnings.into_iter().map(|warning| warning.to_string());
        warnings.filter(|warning| warning.contains("http.tls")).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(warned("good.pem"), "");
    assert!(warned("near.pem").ends_with(", in 13 days"), "{}", warned("near.pem"));
    assert!(
        warned("old.pem").contains("has ended on 2020-01-01, ") && warned("old.pem").contains(" days ago: clients")
    );
    for (chain, key, setting, told) in [
        ("good.pem", "near.pem", "certificate_key_file", "holds a private key that does not belong to the certificate"),
        ("good.pem", "empty.pem", "certificate_key_file", "holds no PEM \"PRIVATE KEY\" without a passphrase"),
        ("empty.pem", "good.pem", "certificate_file", "holds no PEM \"CERTIFICATE\""),
        ("none.pem", "good.pem", "certificate_file", "none.pem: No such file or directory (os error 2)"),
    ] {
        let found = mistakes(&section(chain, key), &[]).join("; ");
        assert!(found.contains(&format!("`http.tls.{setting}`: ")) && found.ends_with(told), "{found}");
    }
    let one = format!("[http.tls]\ncertificate_file = {:?}", path("good.pem"));
    check(&one, &["t.toml:2:20: `http.tls.certificate_key_file`: is missing: name the file with the private key"]);
    check(
        "[http.tls]\nlisten = \"127.0.0.1:1\"",
        &["t.toml:2:10: `http.tls.certificate_file`: is missing: name the file with the certificates"],
    );
    let own = |address: &str| format!("{}listen = {address:?}\n", section("good.pem", "good.pem"));
    let same = "t.toml:4:10: `http.tls.listen`: is the same address as `http.listen`: choose another port";
    check(&own("127.0.0.1:8000"), &[same]);
    let open = "t.toml:4:10: `http.tls.listen`: 0.0.0.0:8443 is not loopback, so the API needs a key: add one under [[api.keys]]";
    check(&own("0.0.0.0:8443"), &[open]);
    assert!(loaded(&section("good.pem", "good.pem")).config.http.is_tls_only());
    let config = loaded(&own("127.0.0.1:8443")).config;
    assert!(!config.http.is_tls_only());
}

#[test]
fn origins_are_checked() {
    for section in ["apps", "client"] {
        let origins = |text: &str| format!("[{section}]\nallowed_origins = [{text:?}]");
        for text in ["*", "https://example.com", "https://*.example.com:8443", "capacitor://localhost", "null"] {
            check(&origins(text), &[]);
        }
        for text in ["example.com", "https://example.com/", "https://*.*.com", "https://*", "*://example.com"] {
            let found = mistakes(&origins(text), &[]).join("; ");
            assert!(found.contains("its host may begin with \"*.\", as in \"https://*.example.com\""), "{found}");
        }
    }
}

#[test]
fn a_webhook_is_checked() {
    let secret = "secret = \"whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu\"";
    let webhook = |lines: &str| format!("[webhook]\n{lines}");
    let loaded_url = loaded(&webhook(&format!("url = \"https://A.example:8443/h?k=hunter2\"\n{secret}")));
    assert!(!format!("{loaded_url:?}").contains("hunter2"));
    assert!(effective(&loaded_url.effective).contains("url = \"https://a.example:8443/h?***\""));
    let url = loaded_url.config.webhook.url.expect("an address");
    assert_eq!((url.origin.to_string().as_str(), url.target.as_str()), ("https://a.example:8443", "/h?k=hunter2"));
    check(&webhook(&format!("url = \"http://a/\"\nallow_http = true\n{secret}")), &[]);
    check(
        &webhook(&format!("url = \"http://a/\"\n{secret}")),
        &["t.toml:2:7: `webhook.url`: must be https, or set `webhook.allow_http`"],
    );
    check(
        &webhook("url = \"https://a/\""),
        &["t.toml:2:7: `webhook.secret`: is missing: give a secret, because requests are signed"],
    );
    for url in [
        "ftp://a/",
        "https://",
        "https://a..b/",
        "https://[::1]junk/",
        "https://user:pw@a/",
        "https://a/#b",
        "a",
        "https://a/\u{e9}",
    ] {
        let expected = "t.toml:2:7: `webhook.url` must be an address such as \"https://example.com/hook\", with http or \
                        https, without user, password and fragment, got something else";
        check(&webhook(&format!("url = \"{url}\"\n{secret}")), &[expected]);
    }
    check(
        &webhook(
            "previous_secret = \"whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu\"\nbackoff_min = \"2s\"\nbackoff_max = \"1s\"",
        ),
        &[
            "t.toml:2:19: `webhook.previous_secret`: needs `webhook.secret`",
            "t.toml:3:15: `webhook.backoff_min`: must not be longer than `webhook.backoff_max`",
        ],
    );

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    let text = webhook(&format!("url = \"https://a/\"\nsecret_file = {:?}", file));
    fs::write(&file, "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu\n").unwrap();
    assert_eq!(loaded(&text).config.webhook.secret, Some(Secret::new("whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu")));
    fs::write(&file, "whsec_aHVudGVyMg==\n").unwrap();
    check(&text, &["t.toml:3:15: `webhook.secret_file`: must hold 24 to 64 random bytes, got 7"]);
    fs::write(&file, "hunter2\n").unwrap();
    check(&text, &["t.toml:3:15: `webhook.secret_file`: must be `whsec_` and base64, got something else"]);
}

#[test]
fn who_is_told_of_needs_an_address_to_tell_it() {
    let told = "[client]\nconnection_webhook = true\n[channel.namespaces.chat]\noccupancy_webhook = true\n";
    let needs = |place: &str, path: &str| format!("t.toml:{place}: `{path}`: needs `webhook.presence_url`");
    let expected =
        [needs("2:22", "client.connection_webhook"), needs("4:21", "channel.namespaces.chat.occupancy_webhook")];
    check(told, &expected.each_ref().map(String::as_str));
    let secret = "secret = \"whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu\"";
    let webhook = |lines: &str| format!("{told}[webhook]\n{lines}");
    check(&webhook(&format!("presence_url = \"https://a/\"\n{secret}")), &[]);
    check(
        &webhook("presence_url = \"http://a/\""),
        &[
            "t.toml:6:16: `webhook.secret`: is missing: give a secret, because requests are signed",
            "t.toml:6:16: `webhook.presence_url`: must be https, or set `webhook.allow_http`",
        ],
    );
}

#[test]
fn hooks_are_checked() {
    let hook = |lines: &str| format!("[hooks.main]\nurl = \"https://a/h?k=hunter2\"\n{lines}");
    let uses = "[rpc]\nhook = \"other\"\n[rpc.namespaces.chat]\nhook = \"main\"\n[channel.namespaces.chat]\n\
                publish_hook = \"main\"\nsubscribe_hook = \"mian\"";
    check(
        &format!("{}\n{uses}", hook("")),
        &[
            "t.toml:5:8: `rpc.hook`: names the hook \"other\", which is not configured: add it under [hooks], or correct the name",
            "t.toml:10:18: `channel.namespaces.chat.subscribe_hook`: names the hook \"mian\", which is not configured: \
             add it under [hooks], or correct the name",
        ],
    );
    let ours = |line: usize, column: usize, name: &str| {
        format!(
            "t.toml:{line}:{column}: `hooks.main.client_headers`: {name} is set by the server, so clients cannot set it"
        )
    };
    for name in ["host", "content-length", "content-type", "connection", "webhook-signature"] {
        check(&hook(&format!("client_headers = [\"{name}\"]")), &[&ours(3, 18, name)]);
    }
    check(&hook("client_headers = [\"X-Key\"]\nstatic_headers = [\"x-key: hunter2\"]"), &[&ours(3, 18, "x-key")]);
    check(
        &hook("signing_secret = \"hunter2\""),
        &["t.toml:3:18: `hooks.main.signing_secret`: must be `whsec_` and base64, got something else"],
    );
    check(
        &hook("previous_signing_secret = \"whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu\""),
        &["t.toml:3:27: `hooks.main.previous_signing_secret`: needs `hooks.main.signing_secret`"],
    );
    check(
        "[hooks.main]\nurl = \"http://a/\"\ntimeout = \"8s\"\nstatuses = [{status = 404}]",
        &[
            "t.toml:2:7: `hooks.main.url`: must be https, or set `allow_http`",
            "t.toml:3:11: `hooks.main.timeout`: must be shorter than `client.pong_timeout`",
            "t.toml:4:23: `hooks.main.statuses[0].status`: needs exactly one of `error` and `disconnect`",
        ],
    );
    check(
        &format!("{}\n[client]\nconnect_hook = \"main\"\nstale_close_delay = \"1s\"", hook("timeout = \"1s\"")),
        &["t.toml:5:16: `client.connect_hook`: has a `timeout` that is not shorter than `client.stale_close_delay`"],
    );
    check(
        &hook("static_headers = [\"hunter2\"]"),
        &[
            "t.toml:3:19: `hooks.main.static_headers[0]` must be a header that does not belong to the connection, such as \
           \"X-Hook-Key: secret\", got something else",
        ],
    );
}

#[test]
fn the_hooks_of_a_session_are_numbered_by_name_and_secrets_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("headers");
    fs::write(&file, "X-More: hunter3\n\nX-Last: hunter4\n").unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu\n").unwrap();
    let text = format!(
        "[hooks.b]\nurl = \"https://b/\"\nclient_headers = [\"Cookie\"]\n[hooks.a]\nurl = \"https://a/?k=hunter1\"\n\
         static_headers = [\"X-Key: hunter2\"]\nstatic_headers_file = {file:?}\nsigning_secret_file = {secret:?}\nclient_headers = [\"Cookie\", \
         \"Authorization\"]\n[rpc]\nhook = \"b\"\n[rpc.namespaces.x]\nhook = \"a\"\n[channel.without_namespace]\n\
         publish_hook = \"b\"\n[client]\nconnect_hook = \"a\""
    );
    let loaded = loaded(&text);
    let hooks = loaded.config.session_hooks();
    assert_eq!((hooks.rpc, hooks.rpc_namespaces["x"]), (Some(HookId(1)), HookId(0)));
    assert_eq!((hooks.connect, hooks.refresh), (Some(HookId(0)), None));
    assert_eq!(hooks.headers, ["authorization".into(), "cookie".into()]);
    let options = loaded.config.options_of(&loaded.config.channel.without_namespace);
    assert_eq!((options.publish_hook, options.subscribe_hook), (Some(HookId(1)), None));
    let values: Vec<&str> = loaded.config.hooks["a"].static_headers.iter().map(|header| &*header.value).collect();
    assert_eq!(values, ["hunter2", "hunter3", "hunter4"]);
    assert!(loaded.config.hooks["a"].signing_secret.is_some());
    for shown in [format!("{loaded:?}"), effective(&loaded.effective)] {
        assert!(!shown.contains("hunter"), "{shown}");
    }
}

#[test]
fn unsafe_settings_cause_warnings() {
    let warnings = |text: &str| -> Vec<String> { loaded(text).warnings.iter().map(ToString::to_string).collect() };
    let text = "[client]\ntoken.hmac_secret = \"short\"";
    assert_eq!(
        warnings(text),
        ["t.toml:2:21: `client.token.hmac_secret`: is shorter than 32 bytes and can be guessed: choose a longer one"]
    );
    assert!(warnings("")[0].ends_with("no client can connect"));
    assert_eq!(warnings("[client]\nallow_anonymous = true"), [""; 0]);
    assert_eq!(warnings("[hooks.a]\nurl = \"https://a/\"\n[client]\nconnect_hook = \"a\""), [""; 0]);
}

#[test]
fn namespaces_without_a_channel_ttl_have_that_of_the_store() {
    let durable = |ttl: &str| format!("durable = true\nhistory_size = 1\nhistory_ttl = \"1m\"\n{ttl}\n");
    let own = durable("channel_ttl = \"90s\"");
    let text = format!(
        "[channel.without_namespace]\n{own}[channel.namespaces.a]\n{}[channel.namespaces.b]\n{own}",
        durable("")
    );
    let ttl = Duration::from_secs(90);
    assert_eq!(loaded(&text).config.namespace_ttls(), [(String::new(), ttl), ("b".to_owned(), ttl)].into());
}

proptest! {
    #[test]
    fn reading_never_panics(text in "\\PC{0,200}|(\\[\\[?[a-z.]{1,9}\\]?\\]?\n|[a-z_.\"]{1,9} ?= ?[-0-9a-zA-Z\"'\\[{},.=]{0,9}\n){0,20}") {
        if let Err(error) = parse("t.toml", &text, NO_VARIABLES) {
            let told = error.to_string();
            let mistakes: Vec<_> = told.lines().skip(1).collect();
            prop_assert!(!mistakes.is_empty() && mistakes.iter().all(|it| it.starts_with("  t.toml:")), "{}", told);
        }
    }

    #[test]
    fn durations_and_sizes_read_back_as_shown(millis in any::<u64>(), bytes in any::<u64>(), text in "\\PC{0,12}|[0-9]{1,21}(ms|s|m|h|d|B|KiB|MiB|GiB)") {
        let duration = Duration::from_millis(millis);
        prop_assert_eq!(Duration::parse(&duration.show()), Some(duration));
        prop_assert_eq!(ByteSize::parse(&ByteSize(bytes).show()), Some(ByteSize(bytes)));
        // Every value that was read can be shown and read again.
        if let Some(duration) = Duration::parse(&text) {
            prop_assert_eq!(Duration::parse(&duration.show()), Some(duration));
        }
        if let Some(size) = ByteSize::parse(&text) {
            prop_assert_eq!(ByteSize::parse(&size.show()), Some(size));
        }
    }

    #[test]
    fn a_mistake_is_reported_with_its_line(blank in 0_usize..20, setting in 0_usize..4) {
        let (table, line) = [("client", "insecure = 3"), ("log", "format = 3"), ("edge", "loops = true"), ("store", "nonsense = 1")][setting];
        let text = format!("{}[{table}]\n{line}\n", "\n".repeat(blank));
        let found = mistakes(&text, &[]);
        prop_assert_eq!(found.len(), 1);
        let prefix = format!("t.toml:{}:", blank + 2);
        prop_assert!(found[0].starts_with(&prefix), "{:?}", found);
    }
}

#[test]
fn every_setting_is_listed_once() {
    let Reader { effective, .. } = read("t.toml", "", NO_VARIABLES, None).1;
    let mut paths: Vec<_> = effective.iter().map(|setting| (&setting.table, &setting.name)).collect();
    let count = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), count);
}

#[test]
fn feeds_are_checked_and_their_secrets_are_not_shown() {
    let feed = |lines: &str| format!("[feeds.news]\nmapping = \"news\"\n{lines}");
    let text = feed("url = \"https://a.example/n.xml?key=hunter1\"\nheaders = [\"X-Key: hunter2\"]");
    let read = loaded(&text);
    assert!(!format!("{read:?}").contains("hunter") && !effective(&read.effective).contains("hunter"));
    check(
        &feed("received = true\nfiles = \"no-such-folder/*.xml\""),
        &[
            "t.toml:2:11: `feeds.news.mapping`: give exactly one of `url`, `received = true` and `files`, got 2",
            "t.toml:4:9: `feeds.news.files`: no-such-folder is not a folder: make it",
        ],
    );
    check(&feed("url = \"http://a/\""), &["t.toml:3:7: `feeds.news.url`: must be https, or set `allow_http`"]);
    check(
        &feed("files = \"src/*/*.xml\""),
        &["t.toml:3:9: `feeds.news.files`: must be a folder, / and a name with at most one *, got \"src/*/*.xml\""],
    );
    let many: String =
        (0..65).map(|index| format!("[feeds.f{index}]\nmapping = \"news\"\nreceived = true\n")).collect();
    check(&many, &["default: `feeds`: must be at most 64 with `outbox` and `jetstream`, got 65"]);
    let Err(error) = parse("t.toml", "[feeds.news]\nmapping = \"no-such\"\nreceived = true", []) else { panic!() };
    assert!(error.to_string().contains("the mappings that come with the program are"), "{error}");
    let folder =
        |files: &str| loaded(&feed(&format!("files = {files:?}"))).config.feeds.into_values().next().unwrap().folder();
    assert_eq!(folder("src/t*.rs"), Some(("src".into(), ("t".to_owned(), ".rs".to_owned()))));
}

#[test]
fn a_password_in_an_address_is_not_shown() {
    let text = "[jetstream.shop]\nservers = [\"tls://me:hunter2@nats.example.com\"]\nstream = \"s\"";
    let Err(error) = parse("t.toml", text, []) else { panic!() };
    let error = error.to_string();
    assert!(error.contains("must not have a password") && error.contains("…@nats.example.com"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn headers_of_traces_in_plain_text_are_told_of() {
    let told = |endpoint: &str| {
        let read = loaded(&format!("[traces]\nendpoint = {endpoint:?}\nheaders = [\"Authorization: Bearer hunter2\"]"));
        let warnings = read.warnings.iter().map(ToString::to_string);
        warnings.filter(|warning| warning.contains("traces")).collect::<Vec<_>>()
    };
    let warning =
        "t.toml:2:12: `traces.endpoint`: others can read `traces.headers` on their way: use https:// beyond loopback";
    assert_eq!(told("http://collector.example.com:4318/v1/traces"), [warning]);
    for near in ["https://collector.example.com/v1/traces", "http://127.0.0.1:4318/v1/traces", "http://[::1]:4318/"] {
        assert_eq!(told(near), [""; 0], "{near}");
    }
}

#[test]
fn settings_of_what_the_program_was_built_without_are_refused() {
    let text = r#"[outbox.orders]
database = "host=localhost"
[jetstream.shop]
servers = ["nats://127.0.0.1"]
stream = "s"
consumer = "c"
[cluster]
servers = ["nats://127.0.0.1:4222"]
address = "http://127.0.0.1:8000"
[[api.keys]]
name = "a"
key = "0123456789abcdef0123456789abcdef""#;
    let mistakes = |cluster, sources| match finish(read("t.toml", text, [], None), Built { cluster, sources }) {
        Err(ConfigError::Wrong { problems, .. }) => problems.0.iter().map(ToString::to_string).collect(),
        Err(error) => panic!("{error}"),
        Ok(_) => Vec::<String>::new(),
    };
    let of_sources = "this program was built without the feature `sources`, so it takes no events from PostgreSQL and NATS: \
                      leave this out, or build the program with `cargo build --release -p tidings --features sources`";
    let of_cluster = "this program was built without the feature `cluster`, so it is not one of several servers: leave this \
                      out, or build the program with `cargo build --release -p tidings --features cluster`";
    let orders = format!("t.toml:2:12: `outbox.orders`: {of_sources}");
    let shop = format!("t.toml:4:11: `jetstream.shop`: {of_sources}");
    let cluster = format!("t.toml:8:11: `cluster.servers`: {of_cluster}");
    assert_eq!(mistakes(true, true), [""; 0]);
    assert_eq!(mistakes(true, false), [&*orders, &*shop]);
    assert_eq!(mistakes(false, true), [&*cluster]);
    assert_eq!(mistakes(false, false), [orders, shop, cluster]);
    let this = Built::THIS;
    let of_this = parse("t.toml", text, []).err().map_or(0, |error| error.to_string().matches("built without").count());
    assert_eq!(of_this, 2 * usize::from(!this.sources) + usize::from(!this.cluster), "as this program was built");
}

#[test]
fn topics_are_read_as_they_are_written() {
    let text = r#"[topics.goal]
domain = "match"
title = "Goal for \"%{team}\"!"
body = "%{goals} goal"
title_plural = "Goals for %{team}"
body_plural = "%{goals} goals"
count = "goals"
context = "match"
comment = "%{team} is a country"
title_max = 40
body_max = 100
missing = "skip"
select = "gender"
values = ["female", "male"]
[topics.goal.texts.female]
title = "Her goal for \"%{team}\"!"
title_plural = "Her goals for %{team}"
body = "%{goals} goal of hers"
body_plural = "%{goals} goals of hers"
[topics.goal.present]
sound = "goal.caf"
category = "goal"
interruption = "time-sensitive"
android_channel = "goals"
[topics.own-goal]
title = "T"
body = "B"
[translations]
source_locale = "sv"
"#;
    let topics = parse("t.toml", text, NO_VARIABLES).unwrap().config.topics;
    let sv = Locale::new("sv").unwrap();
    let again = parse("kept", &topics_toml(&topics, Some(&sv)), NO_VARIABLES).unwrap().config;
    assert!(topics.len() == 2 && topics == again.topics, "{again:?}");
    assert_eq!(again.translations.source_locale, Some(sv));
}

#[test]
fn a_server_does_without_the_topics_that_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.toml");
    let text = "[topics.right]\ntitle = \"T\"\nbody = \"B\"\n[topics.wrong]\ntitle = \"%{\"\nbody = 7\n[topics.less]\n";
    std::fs::write(&file, text).unwrap();
    let (loaded, faults) = load_to_serve(Some(&file), []).unwrap();
    assert_eq!(loaded.config.topics.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["right"]);
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|fault| fault.contains("t.toml:6") && fault.contains("topics.wrong.body")), "{told:?}");
    assert!(told.iter().any(|fault| fault.contains("topics.less")), "{told:?}");
    assert!(load(Some(&file), []).is_err(), "a check finds them");
    std::fs::write(&file, format!("{text}[http]\nlisten = 7\n")).unwrap();
    let error = load_to_serve(Some(&file), []).unwrap_err().to_string();
    assert!(error.contains("http.listen") && error.contains("topics.less"), "{error}");
}
