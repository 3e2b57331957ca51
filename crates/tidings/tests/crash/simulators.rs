//! The simulated providers of both campaigns: which device is reached by which, what each accepts as it happens, and
//! how many answers it can owe.
//!
//! Of eight devices six are reached by APNs, one by Web Push and one by FCM. The address of a browser is what the
//! simulated push service gives it; the others follow from the device's number and the seed.
//!
//! APNs' notifications have an id. FCM and Web Push know none: there a digest of the content stands for it, so what
//! came twice with one content has one id. Which event it is stands in the content, a browser's decrypted. What a
//! notification replaces stands in a header at APNs, and in the content elsewhere.
//!
//! In memory: the ledgers, and some 500 bytes for each device.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tidings_simulator::{
    AcceptedMessage, AcceptedNotification, ApnsSimulator, Faults, FcmConfig, FcmReason, FcmSimulator, LedgerSummary,
    MessageEntry, OnMessage, Reason, Refusal, SimulatorConfig, WebPushConfig, WebPushReason, WebPushSimulator,
};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceToken, Platform, Provider, Timestamp};
use uuid::Uuid;

use crate::{APP, event_number};

pub(crate) const PROVIDER_COUNT: usize = Provider::ALL.len();
/// One in so many devices is reached by FCM, and one by Web Push.
pub(crate) const SHARE: u32 = 8;
/// Streams per connection that the server may use at APNs; at FCM; at Web Push, whatever the service allows.
pub(crate) const STREAM_COUNT_MAX: [u32; PROVIDER_COUNT] = [250, 100, 250];
/// Connections to a provider, at most; to Web Push of its pool, and of its quarantine as many again.
const CONNECTION_COUNT_MAX: u32 = 4;
/// Of APNs, for devices that it has accepted nothing for yet.
const QUARANTINE_CONNECTION_COUNT: u32 = 2;
/// Of all tokens; always the same ones.
pub(crate) const GONE_SHARE: f64 = 0.005;

pub(crate) fn provider_of(device: u32) -> Provider {
    match device % SHARE {
        6 => Provider::WebPush,
        7 => Provider::Fcm,
        _ => Provider::Apns,
    }
}

pub(crate) fn platform_of(device: u32) -> Platform {
    match provider_of(device) {
        Provider::Apns => Platform::Ios,
        Provider::Fcm => Platform::Android,
        Provider::WebPush => Platform::Web,
    }
}

/// Over all providers.
pub(crate) fn sum<T>(by_provider: &[T; PROVIDER_COUNT], of: impl Fn(&T) -> u64) -> u64 {
    by_provider.iter().map(of).sum()
}

/// The streams that each provider allows on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams(pub(crate) [u32; PROVIDER_COUNT]);

impl Streams {
    pub(crate) fn of(self, provider: Provider) -> u32 {
        self.0[provider as usize]
    }

    /// What may be without an answer: the streams of all connections, those of the quarantines among them.
    pub(crate) fn in_flight_max(self, provider: Provider) -> u64 {
        let connections = match provider {
            Provider::Apns => CONNECTION_COUNT_MAX + QUARANTINE_CONNECTION_COUNT,
            Provider::Fcm => CONNECTION_COUNT_MAX,
            Provider::WebPush => 2 * CONNECTION_COUNT_MAX,
        };
        u64::from(connections * self.of(provider))
    }
}

/// What any provider does, each so seldom that a campaign comes to its end. Of resets before and after the request was
/// taken, and of stalls, each has the chance `rare`.
pub(crate) fn usual_faults<R: Refusal>(stream_limit: u32, rare: f64, goaway_every: u64) -> Faults<R> {
    Faults {
        jitter_ms: 3,
        stream_limit,
        die_after_accept_probability: 0.05,
        refuse_probability: 0.001,
        reset_before_probability: rare,
        reset_after_probability: rare,
        stall_probability: rare,
        stall_ms: 200,
        internal_error_probability: 0.0005,
        gone_share: GONE_SHARE,
        goaway_every,
        ..Faults::default()
    }
}

/// A notification at the moment of its acceptance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acceptance<'a> {
    pub(crate) provider: Provider,
    /// Whose address it was sent to; `None` if it is none of ours.
    pub(crate) device: Option<u32>,
    pub(crate) id: Uuid,
    /// What it tells of; `None` if that is none of ours.
    pub(crate) event: Option<u32>,
    /// What it replaces.
    pub(crate) collapse_id: Option<&'a str>,
    pub(crate) at: Timestamp,
}

/// Where each device is reached.
pub(crate) struct Addresses {
    /// By device.
    tokens: Vec<DeviceToken>,
    devices: HashMap<Box<[u8]>, u32>,
}

impl Addresses {
    fn draw(count: u32, seed: u64, web_push: &WebPushSimulator) -> Self {
        let token = |device: u32| {
            let random: u64 = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(device)).random();
            let text = format!("{device:08x}{random:016x}");
            match provider_of(device) {
                Provider::Apns => DeviceToken::from_hex(&text),
                Provider::Fcm => DeviceToken::fcm(&text),
                Provider::WebPush => {
                    let subscription = web_push.subscribe(Some(&web_push.application_server_key()));
                    let subscription = subscription.expect("its own key is a point of the curve");
                    DeviceToken::web_push(&subscription.endpoint, &subscription.keys.p256dh, &subscription.keys.auth)
                }
            }
            .expect("hexadecimal digits are a token, and the simulator's subscriptions are sound")
        };
        let tokens: Vec<DeviceToken> = (0..count).map(token).collect();
        let devices = tokens.iter().zip(0..).map(|(token, device)| (token.as_bytes().into(), device)).collect();
        Self { tokens, devices }
    }

    pub(crate) fn count(&self) -> u32 {
        self.tokens.len() as u32
    }

    pub(crate) fn token(&self, device: u32) -> &DeviceToken {
        &self.tokens[device as usize]
    }

    /// The members of a registration that say where the device is reached.
    pub(crate) fn registration(&self, device: u32) -> Value {
        let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let platform = platform_of(device).as_str();
        match self.token(device) {
            DeviceToken::WebPush(it) => {
                let keys = json!({ "p256dh": text(it.p256dh()), "auth": text(it.auth()) });
                json!({ "platform": platform, "web_push": { "endpoint": it.endpoint(), "keys": keys } })
            }
            token => json!({ "platform": platform, "token": token.to_text() }),
        }
    }
}

/// Who is told of acceptances, and how addresses are told apart.
struct Door {
    see: Box<dyn Fn(Acceptance<'_>) + Send + Sync>,
    /// Set before anything is sent.
    addresses: OnceLock<Arc<Addresses>>,
}

impl Door {
    fn device(&self, provider: Provider, address: &[u8]) -> Option<u32> {
        let device = self.addresses.get()?.devices.get(address).copied();
        device.filter(|device| provider_of(*device) == provider)
    }

    fn on_notification(&self, accepted: AcceptedNotification<'_>) {
        let provider = Provider::Apns;
        (self.see)(Acceptance {
            provider,
            device: self.device(provider, accepted.token.as_bytes()),
            id: accepted.apns_id,
            event: event_of(&read(accepted.payload)["tidings"]["event"]),
            collapse_id: accepted.collapse_id.and_then(|id| std::str::from_utf8(id).ok()),
            at: accepted.at,
        });
    }

    fn on_message(&self, provider: Provider, accepted: AcceptedMessage<'_>) {
        let content = read(accepted.content);
        let (event, collapse_id) = match provider {
            Provider::Fcm => (&content["data"]["tidings.event"], &content["android"]["notification"]["tag"]),
            _ => (&content["tidings"]["event"], &content["tag"]),
        };
        let mut digest = DefaultHasher::new();
        digest.write(accepted.content);
        (self.see)(Acceptance {
            provider,
            device: self.device(provider, accepted.address.as_bytes()),
            id: Uuid::from_u64_pair(0, digest.finish()),
            event: event_of(event),
            collapse_id: collapse_id.as_str(),
            at: unix_now(),
        });
    }
}

fn read(content: &[u8]) -> Value {
    serde_json::from_slice(content).unwrap_or_default()
}

fn event_of(id: &Value) -> Option<u32> {
    event_number(id.as_str()?)
}

/// The providers.
pub(crate) struct Simulators {
    pub(crate) apns: ApnsSimulator,
    pub(crate) fcm: FcmSimulator,
    pub(crate) web_push: WebPushSimulator,
    pub(crate) addresses: Arc<Addresses>,
}

/// What a ledger counts.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) accepted: u64,
    pub(crate) repeated: u64,
    pub(crate) devices: u64,
    /// By the provider's name of the reason.
    pub(crate) rejected: BTreeMap<String, u64>,
    pub(crate) resets: u64,
    pub(crate) goaways: u64,
    pub(crate) stream_limit_violations: u64,
    /// The same and more, for reading.
    pub(crate) line: String,
}

impl<R: Refusal> From<LedgerSummary<R>> for Tally {
    fn from(summary: LedgerSummary<R>) -> Self {
        let LedgerSummary { accepted, repeated, devices, rejected, resets, goaways, .. } = summary;
        let LedgerSummary { streams_refused, stalls, connections, stream_limit_violations, .. } = summary;
        let rejected: BTreeMap<String, u64> =
            rejected.into_iter().map(|(reason, count)| (format!("{reason:?}"), count)).collect();
        let line = format!(
            "{accepted} accepted, refused {rejected:?}; {connections} connections, {resets} resets, {streams_refused} \
             refused streams, {goaways} goaways, {stalls} stalls"
        );
        Self { accepted, repeated, devices, rejected, resets, goaways, stream_limit_violations, line }
    }
}

impl Simulators {
    /// Starts them for so many devices; `see` is told of each acceptance, on the thread that accepts it.
    pub(crate) fn start(count: u32, seed: u64, see: impl Fn(Acceptance<'_>) + Send + Sync + 'static) -> Self {
        let door = Arc::new(Door { see: Box::new(see), addresses: OnceLock::new() });
        let on_message = |provider: Provider| -> OnMessage {
            let door = door.clone();
            Arc::new(move |accepted| door.on_message(provider, accepted))
        };
        let apns = {
            let (door, topics) = (door.clone(), vec![APP.to_owned()]);
            let on_accepted = Arc::new(move |accepted: AcceptedNotification<'_>| door.on_notification(accepted));
            ApnsSimulator::start_observed(SimulatorConfig { seed, topics, ..Default::default() }, on_accepted).unwrap()
        };
        let config = FcmConfig { seed, ..Default::default() };
        let fcm = FcmSimulator::start_observed(config, on_message(Provider::Fcm)).unwrap();
        let config = WebPushConfig { seed, ..Default::default() };
        let web_push = WebPushSimulator::start_observed(config, on_message(Provider::WebPush)).unwrap();
        let addresses = Arc::new(Addresses::draw(count, seed, &web_push));
        door.addresses.get_or_init(|| addresses.clone());
        Self { apns, fcm, web_push, addresses }
    }

    pub(crate) fn listen(&self) {
        self.apns.listen().unwrap();
        self.fcm.listen().unwrap();
        self.web_push.listen().unwrap();
    }

    pub(crate) fn stop(&self) {
        self.apns.stop();
        self.fcm.stop();
        self.web_push.stop();
    }

    pub(crate) fn set_faults(&self, apns: Faults<Reason>, fcm: Faults<FcmReason>, web_push: Faults<WebPushReason>) {
        self.apns.set_faults(apns).unwrap();
        self.fcm.set_faults(fcm).unwrap();
        self.web_push.set_faults(web_push).unwrap();
    }

    /// By provider.
    pub(crate) fn tallies(&self) -> [Tally; PROVIDER_COUNT] {
        let Self { apns, fcm, web_push, .. } = self;
        [apns.ledger().summary().into(), fcm.ledger().summary().into(), web_push.ledger().summary().into()]
    }

    /// By provider.
    pub(crate) fn accepted(&self) -> [u64; PROVIDER_COUNT] {
        let Self { apns, fcm, web_push, .. } = self;
        [apns.ledger().accepted_total(), fcm.ledger().accepted_total(), web_push.ledger().accepted_total()]
    }

    /// What the ledger has of a device.
    pub(crate) fn entries(&self, device: u32) -> Vec<MessageEntry> {
        let address = self.addresses.token(device).as_bytes();
        match provider_of(device) {
            Provider::Apns => self.apns.ledger().for_address(address),
            Provider::Fcm => self.fcm.ledger().for_address(address),
            Provider::WebPush => self.web_push.ledger().for_address(address),
        }
    }

    /// Their sections of the configuration, with the files that they name in `folder`.
    pub(crate) fn sections(&self, folder: &Path) -> String {
        // Given as whole paths: where the server starts must not matter.
        let write = |name: &str, content: &str| {
            std::fs::write(folder.join(name), content).unwrap();
            folder.join(name).display().to_string()
        };
        let Self { apns, fcm, web_push, .. } = self;
        let [apns_streams, fcm_streams, web_push_streams] = STREAM_COUNT_MAX;
        let (apns_ca, apns_key) = (write("apple.pem", apns.ca_pem()), write("apple.p8", apns.key_pem()));
        let (fcm_ca, account) = (write("google.pem", fcm.ca_pem()), write("google.json", &fcm.service_account_json()));
        let (web_push_ca, vapid) = (write("web.pem", web_push.ca_pem()), write("web.key", &web_push.vapid_key()));
        format!(
            r#"
[apns.simulator]
host = "127.0.0.1"
port = {apns_port}
key_id = "{key_id}"
team_id = "{team_id}"
key_file = '{apns_key}'
ca_file = '{apns_ca}'
apps = ["{APP}"]
connection_count = 2
connection_count_max = {CONNECTION_COUNT_MAX}
quarantine_connection_count = {QUARANTINE_CONNECTION_COUNT}
stream_count_max = {apns_streams}
lake_capacity = {apns_streams}

[fcm.simulator]
host = "localhost"
port = {fcm_port}
service_account_file = '{account}'
ca_file = '{fcm_ca}'
apps = ["{APP}"]
quota_per_minute = 10000000
connection_count = {CONNECTION_COUNT_MAX}
connection_count_max = {CONNECTION_COUNT_MAX}
stream_count_max = {fcm_streams}
lake_capacity = {fcm_streams}

[web_push.simulator]
vapid_key_file = '{vapid}'
contact = "mailto:crash@example.com"
ca_file = '{web_push_ca}'
apps = ["{APP}"]
allowed_hosts = ["localhost"]
allowed_ports = [{web_push_port}]
allow_private = true
connection_count_max = {CONNECTION_COUNT_MAX}
lake_capacity = {web_push_streams}
"#,
            apns_port = apns.addr().port(),
            key_id = apns.key_id(),
            team_id = apns.team_id(),
            fcm_port = fcm.addr().port(),
            web_push_port = web_push.addr().port(),
        )
    }
}
