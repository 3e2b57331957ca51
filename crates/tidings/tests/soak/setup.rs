//! The server of the soak, its configuration, and the providers around it.
//!
//! What is kept for some time or up to some number is short here, so that its bound is reached within the first minutes: what
//! grows after that grows without end.

use std::fs;
use std::sync::Arc;

use tidings_simulator::{Faults, Refusal};
use tidings_trial::launcher::{Server, program};
use tidings_trial::ports::{free_addr, free_port};

use crate::probe::Arrivals;
use crate::provider::DataProvider;
use crate::simulators::{Simulators, usual_faults};
use crate::{API_KEY, READER_KEY, SMALL_KEY};

/// Devices with addresses of the simulated providers; those behind the residents' are lent to browsers that come and go.
pub(crate) const ADDRESS_COUNT: u32 = 512;
/// Devices that stay. Of eight, one is reached by Web Push and one by FCM.
pub(crate) const RESIDENT_COUNT: u32 = 16;
const OPEN_FILES_MAX: u32 = 16_384;
/// The share of tokens that are gone.
const GONE_SHARE: f64 = 0.05;
/// So seldom a provider resets a connection or stalls.
const RARE: f64 = 0.000_03;
const GOAWAY_EVERY: u64 = 5000;
const STREAM_COUNT: u32 = 100;

const POLISH: &str =
    "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n\nmsgid \"Goal!\"\nmsgstr \"Gol!\"\n";
const MAPPING: &str = "kind = \"ndjson\"\nid = \"{id}\"\ntopic = \"goal\"\nsubjects = [\"kept:feed\"]\n";

/// The simulated providers, with their faults.
pub(crate) fn providers(seed: u64, arrivals: &Arc<Arrivals>) -> Simulators {
    fn faults<R: Refusal>() -> Faults<R> {
        // An internal error of FCM is repeated after ten seconds, which every rest would wait for.
        Faults {
            gone_share: GONE_SHARE,
            internal_error_probability: 0.0,
            ..usual_faults(STREAM_COUNT, RARE, GOAWAY_EVERY)
        }
    }
    let arrivals = arrivals.clone();
    let simulators = Simulators::start(ADDRESS_COUNT, seed, move |accepted| arrivals.note(accepted));
    simulators.set_faults(faults(), faults(), faults());
    simulators
}

/// A server that was not started.
pub(crate) fn server(simulators: &Simulators, provider: &DataProvider) -> Server {
    let mut server = Server::new("the server", program(env!("CARGO_BIN_EXE_tidings"))).at(free_addr());
    server.process().limit_open_files(OPEN_FILES_MAX);
    fs::create_dir_all(server.path("locales/pl/LC_MESSAGES")).unwrap();
    fs::create_dir_all(server.path("messages")).unwrap();
    server.write("locales/pl/LC_MESSAGES/messages.po", POLISH);
    server.write("goals.toml", MAPPING);
    let mut text = format!("[http]\nlisten = \"{}\"\nbody_bytes_max = \"64KiB\"\n{SETTINGS}", server.addr);
    for (name, key, rights) in KEYS {
        text += &format!("\n[[api.keys]]\nname = \"{name}\"\nkey = \"{key}\"\n{rights}\n");
    }
    text += &simulators.sections(&server.path(""));
    text += &format!("\n[hooks.nobody]\nurl = \"http://127.0.0.1:{}/hook\"\nallow_http = true\n\n", free_port());
    text += &(provider.settings() + "known_count_max = 100\n");
    server.configure(&format!("data_dir = \"data\"\n{text}"));
    server
}

const KEYS: [(&str, &str, &str); 3] = [
    (
        "campaign",
        API_KEY,
        "scopes = [\"publish\", \"read\", \"devices\", \"metrics\", \"operate\", \"backup\", \"audit\"]",
    ),
    ("reader", READER_KEY, "scopes = [\"read\"]"),
    ("small", SMALL_KEY, "audience_max = 1"),
];

const SETTINGS: &str = r#"
[client]
allow_anonymous = true
sse = true
http_stream = true
uni_http_stream = true

[apps]
enabled = true

[limits]
app_per_second = 0
address_per_second = 0

[edge]
log_bytes_max = "64KiB"

[store]
channel_ttl = "5s"
cache_bytes = "1MiB"
history_cache_bytes = "8MiB"
id_window = "1m"
checkpoint_change_count = 10000

[sender]
report_count_max = 1000
doubt_window = "5s"
why_ttl = "30s"
why_bytes_max = "4MiB"

[audit]
file_bytes_max = "256KiB"
file_count_max = 4

[translations]
dir = "locales"
messages = "messages"
source_locale = "en"

[topics.goal]
title = "Goal!"
body = "A goal."

[channel.namespaces.live]
history_size = 200
history_ttl = "5s"
history_meta_ttl = "5s"
allow_recovery = true
presence = true
join_leave = true
allow_presence_for_client = true
allow_presence_for_anonymous = true
allowed_delta_types = ["fossil"]
allow_tags_filter = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true

[channel.namespaces.kept]
durable = true
history_size = 200
history_ttl = "5s"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true

# Nobody answers its hook.
[channel.namespaces.gate]
subscribe_hook = "nobody"
"#;
