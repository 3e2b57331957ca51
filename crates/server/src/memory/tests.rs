//! The terms of the sum, and which settings add some.

use tidings_config::{Config, parse};

use super::*;

fn config(text: &str) -> Config {
    parse("t.toml", text, []).unwrap_or_else(|error| panic!("{error}")).config
}

/// The bytes of the term with this name.
fn bytes(config: &Config, name: &str) -> Option<u64> {
    memory_sum(config).terms.iter().find(|term| term.name == name).map(|term| term.bytes())
}

#[test]
fn the_memory_sum_adds_up_its_terms() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.p8");
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\n").unwrap();
    let text = format!(
        "[http]\nrequest_count_max = 2\nbody_bytes_max = \"1MiB\"\n[client]\nconnection_count_max = 10\nchannel_count_max = 3\n\
         frame_bytes_max = \"2KiB\"\nreply_bytes_max = \"16KiB\"\n[edge]\nloops = 4\nturn_bytes_max = \"4KiB\"\nmemory_bytes_max = \"16MiB\"\ncontrol_bytes_max = \"64KiB\"\nlog_bytes_max = \
         \"64KiB\"\nreceipt_bytes_max = \"2MiB\"\n[channels]\ncount_max = 5\n[channel.namespaces.n]\nhistory_size = 7\nhistory_ttl = \"1m\"\n[channel.namespaces.d]\ndurable = true\nhistory_size = 999\nhistory_ttl = \"1m\"\n[store]\nchannel_count_max = 6\nhistory_cache_bytes = \"3MiB\"\n\
         event_queue_bytes_max = \"8MiB\"\ndevice_queue_bytes_max = \"1MiB\"\nimport_queue_bytes_max = \"1MiB\"\ncache_bytes = \
         \"1MiB\"\ndevice_count_max = 800\n[sender]\njob_count_max = 3\nreport_count_max = 9\n\
         [webhook]\nurl = \"https://a/b\"\npresence_url = \"https://a/b\"\npresence_count_max = 100\nsecret = \"whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu\"\n\
         [apns.main]\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\nkey_file = {key:?}\napps = [\"a.b\"]\nconnection_count_max = 2\nstream_count_max = 100\nlake_capacity = 300"
    );
    let sum = memory_sum(&config(&text));
    let terms: Vec<_> = sum.terms.iter().map(|term| (term.name, term.bytes())).collect();
    let expected = [
        ("HTTP buffers", 10 * 2 * (16 << 10)),
        ("bodies of clients", 2 * (64 << 20)),
        ("requests", 2 * (2 << 20)),
        ("pages of answers", 2 * (4 << 20)),
        ("large answers", 16 * 2 * (8 << 20)),
        ("idempotency keys", 65_536 * 640),
        ("handshakes", 4 * 1024 * 2048),
        ("connections", 10 * 6144),
        ("received commands", 256 << 20),
        ("commands in work", 4 * (2048 + 1024 * size_of::<tidings_protocol::SubscribeRequest>() as u64)),
        ("subscriptions", 10 * 3 * 256),
        ("waiting replies", 4 * ((1 << 20) + 65536 + 4 * (1 << 20))), // A quarter of 16 MiB for four loops.
        ("turns", 4 * 4096),
        ("channels", (5 + 6) * 1280),
        ("durable histories", 3 << 20),
        ("channel logs", 12 << 20),
        ("channel histories", 5 * 7 * 1024),
        ("receipts", 2 << 20),
        ("histories being read", 16 * 999 * 1024),
        ("store queues", (10 + 64 + 1) << 20),
        ("backup", 280 << 20),
        ("store write buffers", 1120 << 20),
        ("store cache", 1 << 20),
        ("devices", 800 * 160),
        // Its sets of 800 devices and of the 10 that can be connected, and a rendering for each device.
        ("jobs", (1 << 30) + 73_728 + 13 * (96 + 4 * 800) + 800 * 2048 + 96 + 4 * 10),
        ("waiting jobs", 64 * 3 * 1024),
        ("sets of waiting jobs", 256 << 20),
        ("reports", 2 * 9 * 1024),
        ("dead tokens", 4096 * 512),
        ("trails of jobs", 64 << 20),
        ("lakes", 3 * 2 * 300 * 512), // Three priorities, and the same for the quarantine.
        ("in flight", (2 + 2) * 100 * 6144), // Connections, and those of the quarantine.
        ("repeats", 16 * (2 + 2) * 100 * 512),
        ("browser services", 0),
        ("webhook backlog", 2 * 9 * 160),
        ("presence changes", 100 * 512),
        ("audit lines to write", 3 * ((1 << 20) + (16 << 10)) + 8 * 10_000),
        ("log lines to write", 3 * ((4 << 20) + (16 << 10)) + 8 * 20_000),
    ];
    assert_eq!(terms, expected);
    assert_eq!(sum.bytes(), expected.iter().map(|(_, bytes)| bytes).sum::<u64>());
    let standing = [
        "connections",
        "subscriptions",
        "channels",
        "durable histories",
        "channel histories",
        "store cache",
        "devices",
        "reports",
    ];
    let standing = expected.iter().filter(|(name, _)| standing.contains(name)).map(|(_, bytes)| bytes).sum::<u64>();
    assert_eq!(sum.standing_bytes(), standing);
    let table = sum.to_string();
    assert_eq!(table.lines().count(), expected.len() + 2);
    assert!(table.contains("channel histories            5 x   7.0 KiB =  35.0 KiB  estimate "), "{table}");
}

#[test]
fn the_largest_settings_do_not_overflow_the_sum() {
    let text = "[client]\nconnection_count_max = 10000000\nframe_bytes_max = \"16MiB\"\n[edge]\ninput_bytes_max = \"64GiB\"\nmemory_bytes_max = \"1024GiB\"\n\
                control_bytes_max = \"64MiB\"\n[channels]\ncount_max = 10000000\n[store]\ndevice_count_max = 4000000000\n\
                [sender]\njob_bytes_max = \"1024GiB\"";
    assert!(memory_sum(&config(text)).bytes() > 3 << 40);
}

#[test]
fn hooks_hold_their_calls_and_headers() {
    let text = "[hooks.a]\nurl = \"https://a/\"\nclient_headers = [\"cookie\"]\n[hooks.b]\nurl = \"https://a/\"\n[client]\nconnect_hook = \"a\"";
    let config = config(text);
    let command = 1024 * size_of::<tidings_protocol::SubscribeRequest>() as u64; // It waits for the answer.
    let calls = 2 * ((32 * (64 + 64 + 2 * 64) + 1024 * 64) * 1024 + (32 + 1024) * command);
    assert_eq!(bytes(&config, "calls of hooks"), Some(calls));
    assert_eq!(bytes(&config, "headers for hooks"), Some(100_000 * 8192));
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
    assert_eq!(bytes(&config(&tls), "TLS sessions"), Some(2 * 100_000 * (10 << 10)));
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
