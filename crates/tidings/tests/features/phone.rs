//! Phones, and the provider that delivers to them: what it has accepted for a phone is what the phone was pushed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidings_simulator::{ApnsSimulator, Faults, PushSubscription, Reason, SimulatorConfig};
use tidings_types::{DeviceToken, Timestamp};
use uuid::Uuid;

/// The app on all phones.
pub(crate) const APP: &str = "com.example.app";
/// How long a provider that is silent takes to answer: longer than any scenario.
const SILENCE_MS: u64 = 600_000;

/// A phone as the backend knows it.
#[derive(Debug, Clone)]
pub(crate) struct Phone {
    pub(crate) id: String,
    pub(crate) reach: Reach,
    /// Where the provider reaches it, if that is Apple or Google.
    pub(crate) token: String,
    pub(crate) locale: String,
    pub(crate) time_zone: Option<String>,
    pub(crate) country: Option<String>,
    pub(crate) user: Option<String>,
    /// Whether its user lets the app show notifications, in the API's words.
    pub(crate) permission: Option<String>,
    /// What it proves itself with; [`Phone::credential_before`] was it earlier.
    pub(crate) credential: String,
    pub(crate) credential_before: Option<String>,
    pub(crate) subscriptions: BTreeSet<Subscription>,
}

/// Many phones that nobody looks at one by one, all subscribed to the same.
#[derive(Debug, Clone)]
pub(crate) struct Crowd {
    pub(crate) count: usize,
    pub(crate) subscription: Subscription,
}

impl Crowd {
    /// As the server is told of them before it starts.
    pub(crate) fn seeds(&self) -> impl Iterator<Item = Value> {
        let Subscription { subject, topic } = &self.subscription;
        let subscriptions = json!([{ "subject": subject, "topics": [topic] }]);
        (0..self.count).map(move |number| {
            json!({
                "id": format!("crowd-{number}"),
                "app": APP,
                "locale": "en",
                "token": format!("{:064x}", 1_000_000 + number),
                "proven": true,
                "subscriptions": subscriptions,
            })
        })
    }
}

/// Who reaches it.
#[derive(Debug, Clone)]
pub(crate) enum Reach {
    Apple,
    Google,
    /// What the browser's page got when it subscribed.
    Browser(PushSubscription),
}

/// A topic of a subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subscription {
    pub(crate) subject: String,
    pub(crate) topic: String,
}

impl Phone {
    /// The `number`th phone, called `name`: "Ada's phone".
    pub(crate) fn new(name: &str, number: usize) -> Self {
        let id = name.to_lowercase().replace("'s ", "-").replace(' ', "-");
        Self {
            reach: Reach::Apple,
            token: format!("{number:064x}"),
            locale: "en".to_owned(),
            time_zone: None,
            country: None,
            user: None,
            permission: None,
            credential: format!("first-credential-of-{id}"),
            credential_before: None,
            subscriptions: BTreeSet::new(),
            id,
        }
    }

    /// As the server is told of it before it starts.
    pub(crate) fn seed(&self) -> Value {
        let subscriptions = self.subscriptions.iter();
        let subscriptions = subscriptions.map(|one| json!({ "subject": one.subject, "topics": [one.topic] }));
        let mut device = self.registration();
        assert!(matches!(self.reach, Reach::Apple), "others are registered when the server runs");
        device["proven"] = json!(true);
        device["id"] = json!(self.id);
        device["credential"] = json!(self.credential);
        device["subscriptions"] = subscriptions.collect();
        device
    }

    /// As the backend registers it.
    pub(crate) fn registration(&self) -> Value {
        let mut device = json!({
            "app": APP,
            "locale": self.locale,
            "time_zone": self.time_zone,
            "country": self.country,
            "user": self.user,
        });
        if let Some(permission) = &self.permission {
            device["push_permission"] = json!(permission);
        }
        let (platform, field, address) = match &self.reach {
            Reach::Apple => ("ios", "token", json!(self.token)),
            Reach::Google => ("android", "token", json!(self.token)),
            Reach::Browser(subscription) => ("web", "web_push", json!(subscription)),
        };
        device["platform"] = json!(platform);
        device[field] = address;
        device
    }
}

/// A notification that a phone has got.
#[derive(Debug, Clone)]
pub(crate) struct Notification {
    id: Uuid,
    /// What it tells of.
    pub(crate) event: String,
    /// A later notification with the same one takes its place.
    collapse_id: Vec<u8>,
    pub(crate) title: String,
    /// Whether anything of it is seen or heard.
    pub(crate) is_noticed: bool,
    pub(crate) at: Timestamp,
}

/// By token, everything that came, in order, repeats included.
type Delivered = Arc<Mutex<HashMap<DeviceToken, Vec<Notification>>>>;

/// Apple's service, as far as phones and we can see.
pub(crate) struct Provider {
    simulator: ApnsSimulator,
    delivered: Delivered,
}

impl Provider {
    pub(crate) fn start() -> Self {
        let delivered = Delivered::default();
        let on_accepted = {
            let delivered = delivered.clone();
            Arc::new(move |accepted: tidings_simulator::AcceptedNotification<'_>| {
                let payload: Value = serde_json::from_slice(accepted.payload).expect("the simulator has checked it");
                let is_noticed = ["alert", "sound", "badge"].iter().any(|name| !payload["aps"][name].is_null());
                let notification = Notification {
                    id: accepted.apns_id,
                    event: payload["tidings"]["event"].as_str().unwrap_or_default().to_owned(),
                    collapse_id: accepted.collapse_id.unwrap_or_default().to_vec(),
                    title: payload["aps"]["alert"]["title"].as_str().unwrap_or_default().to_owned(),
                    is_noticed,
                    at: accepted.at,
                };
                delivered.lock().unwrap().entry(accepted.token.clone()).or_default().push(notification);
            })
        };
        let config = SimulatorConfig { topics: vec![APP.to_owned()], ..SimulatorConfig::default() };
        let simulator = ApnsSimulator::start_observed(config, on_accepted).expect("the simulator starts");
        Self { simulator, delivered }
    }

    /// What the phone has got, in order, repeats included.
    pub(crate) fn delivered_to(&self, phone: &Phone) -> Vec<Notification> {
        let token = DeviceToken::from_hex(&phone.token).unwrap();
        let delivered = self.delivered.lock().unwrap().get(&token).cloned().unwrap_or_default();
        let ledger = self.simulator.ledger().for_device(&token);
        let entries: u32 = ledger.iter().map(|entry| entry.count).sum();
        // The ledger is written first, so that it may be ahead, never behind.
        assert!(entries as usize >= delivered.len(), "the ledger has {entries}, the phone {}", delivered.len());
        delivered
    }

    /// When any phone got something first.
    pub(crate) fn first_delivery(&self) -> Option<Timestamp> {
        self.delivered.lock().unwrap().values().flatten().map(|notification| notification.at).min()
    }

    /// The phones that have got this event.
    pub(crate) fn told_of(&self, event: &str) -> HashSet<DeviceToken> {
        let delivered = self.delivered.lock().unwrap();
        let told = delivered.iter().filter(|(_, got)| got.iter().any(|notification| notification.event == event));
        told.map(|(token, _)| token.clone()).collect()
    }

    /// What of it is on the phone's screen: a notification takes the place of that with the same collapse id.
    pub(crate) fn shown_on(&self, phone: &Phone) -> Vec<Notification> {
        let mut shown: Vec<Notification> = Vec::new();
        for notification in self.delivered_to(phone) {
            shown.retain(|earlier| earlier.collapse_id != notification.collapse_id);
            shown.push(notification);
        }
        shown
    }

    /// How many notifications it has taken.
    pub(crate) fn accepted_count(&self) -> u64 {
        self.simulator.ledger().accepted_total()
    }

    /// It takes a while for each answer.
    pub(crate) fn be_slow(&self, delay_ms: u64) {
        self.misbehave(Faults { delay_ms, ..Faults::default() });
    }

    /// It takes everything and answers nothing.
    pub(crate) fn fall_silent(&self) {
        self.misbehave(Faults { delay_ms: SILENCE_MS, ..Faults::default() });
    }

    /// It refuses everything because it has too much to do.
    pub(crate) fn be_overloaded(&self) {
        self.misbehave(Faults { unavailable_probability: 1.0, ..Faults::default() });
    }

    /// How much it has refused for that reason.
    pub(crate) fn overload_count(&self) -> u64 {
        self.simulator.ledger().rejected_total(Reason::ServiceUnavailable)
    }

    /// Every phone that it is asked for has removed the app.
    pub(crate) fn lose_all_apps(&self) {
        self.misbehave(Faults { gone_share: 1.0, ..Faults::default() });
    }

    /// It calls every token none of its own, as it does when the app is of another world.
    pub(crate) fn know_no_token(&self) {
        let rejection_reasons = vec![Reason::BadDeviceToken];
        self.misbehave(Faults { rejection_probability: 1.0, rejection_reasons, ..Faults::default() });
    }

    /// How often it has said so.
    pub(crate) fn gone_count(&self) -> u64 {
        self.simulator.ledger().rejected_total(Reason::Unregistered)
    }

    /// It cannot be reached.
    pub(crate) fn go_down(&self) {
        self.simulator.stop();
    }

    /// It works as it should from now on.
    pub(crate) fn be_well(&self) {
        self.misbehave(Faults::default());
    }

    /// The same, on new connections: answers that are owed on old ones do not come any more.
    pub(crate) fn recover(&self) {
        self.simulator.stop();
        self.be_well();
        self.simulator.listen().expect("its port is still free");
    }

    fn misbehave(&self, faults: Faults) {
        self.simulator.set_faults(faults).expect("the faults are within their ranges");
    }

    pub(crate) fn port(&self) -> u16 {
        self.simulator.addr().port()
    }

    pub(crate) fn key_id(&self) -> &str {
        self.simulator.key_id()
    }

    pub(crate) fn team_id(&self) -> &str {
        self.simulator.team_id()
    }

    pub(crate) fn ca_pem(&self) -> &str {
        self.simulator.ca_pem()
    }

    pub(crate) fn key_pem(&self) -> &str {
        self.simulator.key_pem()
    }
}

/// Whether all of these are one notification, however often it came.
pub(crate) fn are_one(notifications: &[Notification]) -> bool {
    notifications.windows(2).all(|pair| pair[0].id == pair[1].id)
}
