//! The terms of the sum: what moves each, and which settings add some.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tidings_config::{Config, parse};
use tidings_telemetry::memory::{Basis, Term};

use super::*;

fn config(text: &str) -> Config {
    config_with(text, None)
}

/// The configuration with a setting, such as `("http.request_count_max", "40")`, that stands above the text.
fn config_with(text: &str, setting: Option<(&str, &str)>) -> Config {
    let variable =
        |(path, value): (&str, &str)| (format!("TIDINGS_{}", path.to_uppercase().replace('.', "__")), value.to_owned());
    parse("t.toml", text, setting.map(variable)).unwrap_or_else(|error| panic!("{error}")).config
}

/// The bytes of the term with this name.
fn bytes(config: &Config, name: &str) -> Option<u64> {
    memory_sum(config).terms.iter().find(|term| term.name == name).map(|term| term.bytes())
}

/// A configuration that has most terms, with small numbers.
const BASE: &str = r#"
[http]
request_count_max = 40
body_bytes_max = "1MiB"
[client]
connection_count_max = 10
channel_count_max = 3
frame_bytes_max = "2KiB"
reply_bytes_max = "16KiB"
connect_hook = "a"
[hooks.a]
url = "https://a/b"
client_headers = ["cookie"]
[edge]
loops = 4
turn_bytes_max = "4KiB"
memory_bytes_max = "768MiB"
input_bytes_max = "96MiB"
control_bytes_max = "64KiB"
log_bytes_max = "64KiB"
receipt_bytes_max = "2MiB"
[channels]
count_max = 5
[channel.namespaces.n]
history_size = 7
history_ttl = "1m"
[channel.namespaces.d]
durable = true
history_size = 999
history_ttl = "1m"
[store]
channel_count_max = 6
history_cache_bytes = "3MiB"
event_queue_bytes_max = "8MiB"
device_queue_bytes_max = "1MiB"
import_queue_bytes_max = "1MiB"
cache_bytes = "1MiB"
device_count_max = 800
[sender]
job_count_max = 3
report_count_max = 9
[webhook]
url = "https://a/b"
presence_url = "https://a/b"
presence_count_max = 100
secret = "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu"
"#;

/// [`BASE`] and a section of APNs, whose key is in the folder.
fn base(folder: &Path) -> String {
    let key = folder.join("key.p8");
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\n").unwrap();
    format!(
        "{BASE}[apns.main]\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\nkey_file = {key:?}\napps = [\"a.b\"]\n\
         connection_count_max = 2\nstream_count_max = 100\nlake_capacity = 300"
    )
}

#[test]
fn the_memory_sum_adds_up_its_terms() {
    let folder = tempfile::tempdir().unwrap();
    let sum = memory_sum(&config(&base(folder.path())));
    let of = |is_counted: fn(&Term) -> bool| {
        sum.terms.iter().filter(|term| is_counted(term)).map(|term| term.count * term.bytes_each).sum::<u64>()
    };
    assert_eq!(sum.bytes(), of(|_| true));
    assert_eq!(sum.standing_bytes(), of(|term| term.basis != Basis::Peak));
    assert!(0 < sum.standing_bytes() && sum.standing_bytes() < sum.bytes(), "some terms are only of full buffers");
    let names: BTreeSet<_> = sum.terms.iter().map(|term| term.name).collect();
    assert_eq!(names.len(), sum.terms.len(), "each term is there once");
    let table = sum.to_string();
    assert_eq!(table.lines().count(), sum.terms.len() + 2, "a line for each, and the two sums");
    for (line, term) in table.lines().zip(&sum.terms) {
        assert!(line.starts_with(term.name) && line.ends_with(term.settings), "{line}");
        assert!(line.contains(&format!(" {} x ", term.count)), "{line}");
    }
}

/// A setting, a value of it with its unit, and the terms that it moves.
type Mover = (&'static str, u64, &'static str, &'static [&'static str]);

/// What each setting moves.
const MOVERS: &[Mover] = &[
    ("http.request_count_max", 40, "", &["requests", "pages of answers"]),
    ("http.body_bytes_max", 1, "MiB", &["requests", "waiting replies"]),
    (
        "client.connection_count_max",
        100,
        "",
        &["HTTP buffers", "connections", "headers for hooks", "jobs", "subscriptions"],
    ),
    ("client.channel_count_max", 3, "", &["subscriptions"]),
    ("client.frame_bytes_max", 2, "KiB", &["handshakes", "commands in work", "calls of hooks"]),
    ("client.reply_bytes_max", 2, "MiB", &["waiting replies"]),
    ("hooks.a.in_flight_max", 32, "", &["calls of hooks"]),
    ("hooks.a.waiting_max", 32, "", &["calls of hooks"]),
    ("hooks.a.answer_bytes_max", 64, "KiB", &["calls of hooks"]),
    // What all loops share is divided among them.
    ("edge.loops", 4, "", &["handshakes", "commands in work", "turns", "waiting replies"]),
    ("edge.input_bytes_max", 256, "MiB", &["received commands"]),
    ("edge.memory_bytes_max", 256, "MiB", &["waiting replies", "channel logs"]),
    ("edge.control_bytes_max", 64, "KiB", &["waiting replies"]),
    ("edge.turn_bytes_max", 4, "KiB", &["turns"]),
    ("edge.receipt_bytes_max", 2, "MiB", &["receipts"]),
    ("channels.count_max", 5, "", &["channels"]),
    ("channels.history_bytes_max", 2, "MiB", &["channel histories"]),
    ("channel.namespaces.d.history_size", 999, "", &["histories being read"]),
    ("store.channel_count_max", 6, "", &["channels"]),
    ("store.history_cache_bytes", 3, "MiB", &["durable histories"]),
    ("store.event_queue_bytes_max", 8, "MiB", &["store queues"]),
    ("store.device_queue_bytes_max", 1, "MiB", &["store queues"]),
    ("store.import_queue_bytes_max", 1, "MiB", &["store queues"]),
    ("store.cache_bytes", 1, "MiB", &["store cache"]),
    ("store.device_count_max", 100, "", &["devices", "jobs"]),
    ("sender.job_count_max", 3, "", &["waiting jobs"]),
    ("sender.job_bytes_max", 1024, "MiB", &["jobs", "sets of waiting jobs"]),
    ("sender.report_count_max", 9, "", &["reports", "webhook backlog"]),
    ("sender.gone_token_count_max", 4096, "", &["dead tokens"]),
    ("sender.why_bytes_max", 64, "MiB", &["trails of jobs"]),
    ("webhook.presence_count_max", 100, "", &["presence changes"]),
    ("apns.main.lake_capacity", 100, "", &["lakes"]),
    ("apns.main.connection_count_max", 2, "", &["in flight", "repeats"]),
    ("apns.main.stream_count_max", 100, "", &["in flight", "repeats"]),
];

/// By how much each term grows when a setting rises from `from` to `to`.
fn growth(base: &str, path: &str, from: &str, to: &str) -> BTreeMap<&'static str, u64> {
    let sum = |value| memory_sum(&config_with(base, Some((path, value)))).terms;
    let grown = sum(to).into_iter().zip(sum(from)).map(|(after, before)| {
        assert_eq!(after.name, before.name, "{path}: no term comes or goes");
        let more = after.bytes().checked_sub(before.bytes());
        (after.name, more.unwrap_or_else(|| panic!("{path}: {} shrinks", after.name)))
    });
    grown.filter(|(_, more)| *more > 0).collect()
}

#[test]
fn a_setting_moves_its_own_terms_in_proportion_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let base = base(folder.path());
    for (path, value, unit, names) in MOVERS {
        let steps = [1, 2, 3].map(|times| format!("{}{unit}", times * value));
        let grown = growth(&base, path, &steps[0], &steps[1]);
        assert_eq!(grown.keys().copied().collect::<BTreeSet<_>>(), names.iter().copied().collect(), "{path}");
        assert_eq!(growth(&base, path, &steps[1], &steps[2]), grown, "{path}: the same again");
        let step = match *unit {
            "KiB" => value << 10,
            "MiB" => value << 20,
            _ => *value,
        };
        let more: u64 = grown.values().sum();
        assert!(more >= step, "{path}: {step} more are allowed, and the sum has {more} more");
    }
}

#[test]
fn a_term_that_no_setting_moves_is_fixed() {
    let folder = tempfile::tempdir().unwrap();
    let moved: BTreeSet<_> = MOVERS.iter().flat_map(|(.., names)| names.iter().copied()).collect();
    for term in memory_sum(&config(&base(folder.path()))).terms {
        // A switch makes the term come and go; without web push, there is nothing of it.
        let is_fixed = term.settings == "fixed" || term.settings.ends_with(".enabled") || term.bytes() == 0;
        assert_ne!(moved.contains(term.name), is_fixed, "{}: {}", term.name, term.settings);
    }
}

#[test]
fn the_largest_settings_do_not_overflow_the_sum() {
    let text = "[client]\nconnection_count_max = 10000000\nframe_bytes_max = \"16MiB\"\n[edge]\ninput_bytes_max = \"64GiB\"\nmemory_bytes_max = \"1024GiB\"\n\
                control_bytes_max = \"64MiB\"\n[channels]\ncount_max = 10000000\n[store]\ndevice_count_max = 4000000000\n\
                [sender]\njob_bytes_max = \"1024GiB\"";
    assert!(memory_sum(&config(text)).bytes() > 3 << 40);
}

#[test]
fn each_hook_holds_its_own_calls_and_headers_are_held_once() {
    let hook = |name: &str| format!("[hooks.{name}]\nurl = \"https://a/\"\nclient_headers = [\"cookie\"]\n");
    let [one, two] = [hook("a"), hook("a") + &hook("b")].map(|text| config(&text));
    let calls = bytes(&one, "calls of hooks").unwrap();
    assert_eq!(bytes(&two, "calls of hooks"), Some(2 * calls));
    assert_eq!(bytes(&two, "headers for hooks"), bytes(&one, "headers for hooks"));
    assert_eq!(bytes(&config(&hook("a").replace("client_headers", "# ")), "headers for hooks"), None);
}

#[test]
fn what_is_switched_on_has_terms() {
    let terms = |text: &str| memory_sum(&config(text)).terms;
    let usual = terms("");
    let more = |text: &str| -> Vec<_> {
        terms(text).iter().map(|term| term.name).filter(|name| usual.iter().all(|term| term.name != *name)).collect()
    };
    assert_eq!(more("[feeds.a]\nreceived = true\nmapping = \"news\""), ["known entries", "documents"]);
    assert_eq!(more("traces.endpoint = \"https://a/\""), ["spans to send"]);
    assert_eq!(more("console.enabled = true"), ["console", "logins"]);
    assert_eq!(more("influx.address = \"[::1]:8089\""), ["metrics to send"]);
    assert_eq!(more("channel.namespaces.n.allow_tags_filter = true"), ["tags filters"]);
    assert_eq!(more("client.sse = true"), ["on their way"]);
    assert_eq!(more("channel.namespaces.n.presence = true"), ["presence"]);
    assert_eq!(more("channel.namespaces.n.allow_thinning = true"), ["slow readers"]);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.pem");
    std::fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    let tls = format!("[http.tls]\ncertificate_file = {file:?}\ncertificate_key_file = {file:?}");
    assert_eq!(more(&tls), ["TLS sessions", "TLS records"]);
    let sessions =
        |count: &str| bytes(&config_with(&tls, Some(("client.connection_count_max", count))), "TLS sessions").unwrap();
    assert!(sessions("1000") > 0);
    assert_eq!(sessions("2000"), 2 * sessions("1000"));
    let buffers = |text: &str| bytes(&config(text), "HTTP buffers").unwrap();
    let three = format!("http.internal_listen = \"127.0.0.1:8001\"\n{tls}\nlisten = \"127.0.0.1:8443\"");
    assert_eq!(buffers(&three), 3 * buffers(""));
}

#[cfg(feature = "cluster")]
#[test]
fn a_server_of_a_cluster_has_terms_for_the_others() {
    let cluster = "[cluster]\nservers = [\"nats://127.0.0.1:4222\"]\naddress = \"http://127.0.0.1:8000\"\n\
                   [[api.keys]]\nname = \"a\"\nkey = \"0123456789abcdef0123456789abcdef\"";
    let of_servers = [
        "messages of servers",
        "record of the log",
        "news for servers",
        "questions of servers",
        "news before a page",
        "news in parts",
    ];
    let alone = memory_sum(&config("")).terms;
    let names = memory_sum(&config(cluster)).terms.iter().map(|term| term.name).collect::<Vec<_>>();
    let more: Vec<_> = names.into_iter().filter(|name| alone.iter().all(|term| term.name != *name)).collect();
    assert_eq!(more, of_servers);
}
