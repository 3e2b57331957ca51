//! What one scenario takes place in, and what the sentences of its steps refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidings_simulator::{FcmConfig, FcmSimulator, WebPushSimulator};
use tidings_telemetry::unix_now;
use tidings_types::{Format, Timestamp, Transport, Variant};
use tokio::net::TcpStream;

use crate::app::{App, End, Identity};
use crate::backend::{Backend, Count, Meaning, Progress, Receipts, Refusal, Why, connection_token};
use crate::console::{Console, Screens};
use crate::doorman::{self, Doorman};
use crate::ear::Ear;
use crate::event::Event;
use crate::listener::Listener;
use crate::phone::{Crowd, Notification, Phone, Provider, Reach, Subscription};
use crate::provider::DataProvider;
use crate::server::{BACKEND_KEY, CLUSTER_SIZE, Place, Server, Setup, TOKEN_SECRET};
use crate::wait::{PATIENCE, until};

/// For everything that was accepted to come to its end: the longest wait for receipts in the features, and some.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(25);

/// How long a test by the console is of use.
const CONSOLE_TTL: Duration = Duration::from_secs(600);

#[derive(cucumber::World)]
#[world(init = Self::new)]
pub(crate) struct World {
    folder: TempDir,
    pub(crate) provider: Provider,
    server: Option<Server>,
    /// How many servers it has.
    pub(crate) server_count: usize,
    /// Which server of several somebody's app uses, and the backend, where that is said.
    pub(crate) app_places: BTreeMap<String, Place>,
    pub(crate) backend_place: Option<Place>,
    /// Where the backend hears of the end of events, if it wants to.
    ear: Option<Ear>,
    /// Whom the server asks who may come in, if it asks anybody.
    doorman: Option<Doorman>,
    /// Where pictures of what a screen shows are kept, if they are.
    pictures: Option<PathBuf>,
    /// The browsers of those who use the console.
    pub(crate) screens: Screens,
    /// Further settings of the server.
    pub(crate) settings: String,
    google: Option<FcmSimulator>,
    /// Whose documents the server reads, if it reads any.
    pub(crate) data_provider: Option<DataProvider>,
    /// How many messages a minute Google takes, where that is said.
    pub(crate) google_quota: Option<u32>,
    pub(crate) browsers: Option<WebPushSimulator>,
    pub(crate) crowd: Option<Crowd>,
    phones: BTreeMap<String, Phone>,
    apps: BTreeMap<String, App>,
    listeners: BTreeMap<String, Listener>,
    /// The people whose app has no token, and says its name only.
    pub(crate) tokenless: BTreeSet<String>,
    /// The people whose app speaks Protobuf.
    pub(crate) protobuf: BTreeSet<String>,
    /// Whose apps connect by server-sent events.
    pub(crate) streaming: BTreeSet<String>,
    /// Whose apps say in which language they want texts.
    pub(crate) languages: BTreeMap<String, String>,
    /// The channels that the tokens of people name.
    pub(crate) named_channels: BTreeMap<String, Vec<String>>,
    /// The newest position of each thing, by its name, and how many were published.
    pub(crate) positions: BTreeMap<String, String>,
    pub(crate) position_count: usize,
    /// Events that were accepted, in order.
    pub(crate) told: Vec<Told>,
    /// The ids of those that were taken back.
    pub(crate) taken_back: BTreeSet<String>,
    /// Ids of events that were refused.
    refused: Vec<String>,
    /// Why the last one was.
    pub(crate) refusal: Option<Refusal>,
    /// How many ids were made up.
    id_count: usize,
    /// How the attempt of somebody to connect ended.
    pub(crate) refused_connection: Option<End>,
    pub(crate) count: Option<Count>,
    pub(crate) receipts: Option<Receipts>,
    pub(crate) meaning: Option<Meaning>,
    /// What was said last of a phone and the last event.
    why: Option<Why>,
    /// The ids of the devices that are kept of a user.
    pub(crate) kept: Option<Vec<String>>,
    /// What the operator was told last, and whether it was good news.
    pub(crate) said: Option<(bool, String)>,
    /// What the operator was shown, a line each.
    pub(crate) seen: Vec<Value>,
    /// What the console answered to a form that it had not made: the status and the words.
    pub(crate) page_answer: Option<(u16, String)>,
    /// The lines of an import, and the connection of one that is not through.
    pub(crate) import: Option<(String, Option<TcpStream>)>,
}

/// An event that was accepted.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) id: String,
    /// Before it was.
    pub(crate) at: Timestamp,
    /// How long connected phones had to answer.
    pub(crate) receipt_wait: Duration,
    /// How long it is of use.
    pub(crate) ttl: Duration,
}

impl World {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("the system has a folder for temporary files"),
            provider: Provider::start(),
            server: None,
            server_count: 1,
            app_places: BTreeMap::new(),
            backend_place: None,
            ear: None,
            doorman: None,
            pictures: None,
            screens: Screens::default(),
            settings: String::new(),
            google: None,
            data_provider: None,
            google_quota: None,
            browsers: None,
            crowd: None,
            phones: BTreeMap::new(),
            apps: BTreeMap::new(),
            listeners: BTreeMap::new(),
            tokenless: BTreeSet::new(),
            protobuf: BTreeSet::new(),
            streaming: BTreeSet::new(),
            languages: BTreeMap::new(),
            named_channels: BTreeMap::new(),
            positions: BTreeMap::new(),
            position_count: 0,
            told: Vec::new(),
            taken_back: BTreeSet::new(),
            refused: Vec::new(),
            refusal: None,
            id_count: 0,
            refused_connection: None,
            count: None,
            receipts: None,
            meaning: None,
            why: None,
            kept: None,
            said: None,
            seen: Vec::new(),
            page_answer: None,
            import: None,
        }
    }

    /// The server; the first who needs it starts it, with all phones known so far.
    pub(crate) async fn server(&mut self) -> &mut Server {
        let server = match self.server.take() {
            Some(server) => server,
            None => {
                let mut settings = self.ear.as_ref().map(Ear::settings).unwrap_or_default() + &self.settings;
                let connect_hook = self.doorman.as_ref().map(|doorman| {
                    settings += &doorman.settings();
                    doorman::NAME
                });
                let setup = Setup {
                    count: self.server_count,
                    folder: self.folder.path(),
                    provider: &self.provider,
                    phones: self.phones.values(),
                    crowd: self.crowd.as_ref(),
                    connect_hook,
                    more: &settings,
                };
                Server::start(setup).await
            }
        };
        self.server.insert(server)
    }

    /// It is three servers of which one leads, with all phones known so far.
    pub(crate) async fn start_three(&mut self) {
        assert!(self.server.is_none(), "it is configured so before it starts");
        self.server_count = CLUSTER_SIZE;
        self.server().await;
    }

    /// Where somebody's app connects.
    pub(crate) async fn app_addr(&mut self, person: &str) -> SocketAddr {
        let place = self.app_places.get(person).copied();
        let server = self.server().await;
        place.map_or_else(|| server.app_addr(), |place| server.addr_of(place))
    }

    /// Google; it is there from when it was first spoken of.
    pub(crate) fn google(&mut self) -> &FcmSimulator {
        let start = || FcmSimulator::start(FcmConfig::default()).expect("the simulator starts");
        self.google.get_or_insert_with(start)
    }

    /// The backend wants to hear of the end of events from now on. The server must not run yet.
    pub(crate) async fn open_ear(&mut self) {
        assert!(self.server.is_none(), "it is configured so before it starts");
        self.ear = Some(Ear::open().await);
    }

    /// The backend decides from now on who comes in: this person, into this channel. The server must not run yet.
    pub(crate) async fn open_door(&mut self, person: &str, channel: String) {
        assert!(self.server.is_none(), "it is configured so before it starts");
        self.doorman = Some(Doorman::open(person.to_lowercase(), channel).await);
    }

    pub(crate) fn doorman(&self) -> &Doorman {
        self.doorman.as_ref().expect("the backend decides who comes in")
    }

    /// The server starts with what `tidings config import` makes of this; what that said.
    pub(crate) async fn start_imported(&mut self, centrifugo: &Value) -> String {
        assert!(self.server.is_none(), "it starts with that");
        let (server, said) = Server::start_imported(self.folder.path(), centrifugo).await;
        self.server = Some(server);
        said
    }

    /// Pictures of this scenario go into this folder.
    pub(crate) fn keep_pictures_in(&mut self, folder: PathBuf) {
        self.pictures = Some(folder);
    }

    /// Adds a picture (PNG) of what a screen shows. The page of the run shows it if the scenario fails.
    pub(crate) fn attach(&self, png: &[u8]) {
        let Some(folder) = &self.pictures else { return };
        fs::create_dir_all(folder).expect("the folder of the run is ours");
        let number = 1 + fs::read_dir(folder).expect("it is there").count();
        fs::write(folder.join(format!("{number}.png")), png).expect("there is room for a picture");
    }

    /// What is in this file of the server's folder.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).expect("the folder is ours");
    }

    /// Somebody has a key for the console, with these scopes. The server must not run yet.
    pub(crate) fn let_into_console(&mut self, person: &str, scopes: &[&str]) {
        assert!(self.server.is_none(), "it is configured so before it starts");
        let (name, key) = (person.to_lowercase(), console_key(person));
        self.settings += &format!("[[api.keys]]\nname = \"{name}\"\nkey = \"{key}\"\nscopes = {scopes:?}\n");
    }

    /// Somebody's browser, which shows the log-in of the console at first.
    pub(crate) async fn login_page(&mut self, person: &str) -> &Console {
        let addr = self.server().await.addr();
        self.screens.of(person, addr).await
    }

    /// Somebody's browser; who was not here before logs in.
    pub(crate) async fn console(&mut self, person: &str) -> &Console {
        let is_new = !self.screens.has(person);
        let console = self.login_page(person).await;
        if is_new {
            console.log_in(&console_key(person)).await;
        }
        console
    }

    /// Adds pictures of all that people see in the console.
    pub(crate) async fn attach_screens(&self) {
        self.screens.pictures().await.iter().for_each(|png| self.attach(png));
    }

    pub(crate) fn ear(&self) -> &Ear {
        self.ear.as_ref().expect("the backend wants to hear")
    }

    pub(crate) async fn backend(&mut self) -> Backend {
        self.caller(Some(BACKEND_KEY)).await
    }

    /// Somebody with this key.
    pub(crate) async fn caller(&mut self, key: Option<&'static str>) -> Backend {
        let place = self.backend_place;
        let server = self.server().await;
        Backend::new(place.map_or_else(|| server.addr(), |place| server.addr_of(place)), key)
    }

    /// The backend, at the server that leads.
    pub(crate) async fn leader(&mut self) -> Backend {
        Backend::new(self.server().await.addr_of(Place::Leading), Some(BACKEND_KEY))
    }

    /// An app that calls for itself.
    pub(crate) async fn app_caller(&mut self) -> Backend {
        Backend::new(self.server().await.app_addr(), None)
    }

    /// Fails when the server has come to grief behind the scenes.
    pub(crate) fn check(&mut self) {
        if let Some(server) = &mut self.server {
            server.check();
        }
    }

    /// What the server said in the end, for people.
    pub(crate) fn log_end(&self) -> Option<String> {
        self.server.as_ref().map(Server::log_end)
    }

    /// A phone that is already known.
    pub(crate) fn phone(&self, name: &str) -> &Phone {
        self.phones.get(name).unwrap_or_else(|| panic!("{name} was not spoken of"))
    }

    pub(crate) fn phone_count(&self) -> usize {
        self.phones.len()
    }

    /// Makes `change` known of a phone, which may be a new one: to the server if it runs, else it starts with it.
    pub(crate) async fn register(&mut self, name: &str, change: impl FnOnce(&mut Phone)) {
        let number = self.phones.len() + 1;
        let before = self.phones.get(name);
        let mut phone = before.cloned().unwrap_or_else(|| Phone::new(name, number));
        let subscriptions = phone.subscriptions.clone();
        change(&mut phone);
        if self.server.is_some() {
            let backend = self.backend().await;
            if let Some(credential) = backend.register(&phone).await {
                phone.credential = credential;
            }
            for subscription in phone.subscriptions.difference(&subscriptions) {
                backend.subscribe(&phone, subscription).await;
            }
        }
        self.phones.insert(name.to_owned(), phone);
    }

    pub(crate) async fn subscribe(&mut self, name: &str, topic: String, subject: String) {
        self.register(name, |phone| _ = phone.subscriptions.insert(Subscription { subject, topic })).await;
    }

    pub(crate) async fn renew_credential(&mut self, name: &str) {
        let credential = self.backend().await.renew_credential(self.phone(name)).await;
        let phone = self.phones.get_mut(name).expect("it was looked up above");
        phone.credential_before = Some(std::mem::replace(&mut phone.credential, credential));
    }

    /// A new event of this topic about this subject, with an id of its own.
    pub(crate) fn event(&mut self, topic: &str, subject: &str) -> Event {
        self.id_count += 1;
        Event::new(&format!("event-{}", self.id_count), topic, subject)
    }

    /// The backend tells of it, and the server takes it.
    pub(crate) async fn tell(&mut self, event: Event) {
        self.try_to_tell(event).await;
        self.expect_accepted();
    }

    /// The same for several at once.
    pub(crate) async fn tell_all(&mut self, events: &[Event]) {
        self.try_to_tell_all(events).await;
        self.expect_accepted();
    }

    /// The backend tells of it; the server may refuse.
    pub(crate) async fn try_to_tell(&mut self, event: Event) {
        let (backend, at) = (self.backend().await, unix_now());
        let answer = backend.tell(&event).await;
        self.take_answer(&[event], at, answer);
    }

    /// The same for several at once.
    pub(crate) async fn try_to_tell_all(&mut self, events: &[Event]) {
        let (backend, at) = (self.backend().await, unix_now());
        let answer = backend.tell_all(events).await;
        self.take_answer(events, at, answer);
    }

    /// Somebody with this key tells of it; the server may refuse.
    pub(crate) async fn try_to_tell_as(&mut self, key: Option<&'static str>, event: Event) {
        let (caller, at) = (self.caller(key).await, unix_now());
        let answer = caller.tell(&event).await;
        self.take_answer(&[event], at, answer);
    }

    fn take_answer(&mut self, events: &[Event], at: Timestamp, answer: Result<(), Refusal>) {
        self.refusal = answer.err();
        for event in events {
            let (id, receipt_wait, ttl) = (event.id(), event.receipt_wait(), event.life());
            let is_known = self.told.iter().any(|told| told.id == id);
            match self.refusal {
                _ if is_known => {} // The same once more; or another under its id, which is refused.
                None => self.told.push(Told { id, at, receipt_wait, ttl }),
                Some(_) => self.refused.push(id),
            }
        }
    }

    /// The console has told the server of this event.
    pub(crate) fn note_told(&mut self, id: String) {
        let (receipt_wait, ttl) = (Duration::ZERO, CONSOLE_TTL);
        self.told.push(Told { id, at: unix_now(), receipt_wait, ttl });
    }

    fn expect_accepted(&self) {
        assert!(self.refusal.is_none(), "the server does not take it: {:?}", self.refusal);
    }

    /// The last event that was accepted.
    pub(crate) fn last_told(&self) -> &Told {
        self.told.last().expect("the server was told of an event")
    }

    /// The ids of all that were, in order.
    pub(crate) fn told_ids(&self) -> Vec<String> {
        self.told.iter().map(|told| told.id.clone()).collect()
    }

    /// Fails if the server knows an event that it has refused.
    pub(crate) async fn check_refused(&mut self) {
        let backend = self.backend().await;
        for id in &self.refused {
            assert!(!backend.knows(id).await, "event {id} was refused, and yet it is known");
        }
    }

    /// Waits until the server has done all it was told: every event accepted so far has come to its end, and so has one
    /// for nobody, told behind them. What it refused must be unknown to it.
    pub(crate) async fn settle(&mut self) {
        self.check_refused().await;
        let backend = self.backend().await;
        let last = self.event("goal", "nobody:0");
        backend.tell(&last).await.expect("an event for nobody is taken");
        let last_id = last.id();
        for id in self.told.iter().map(|told| &told.id).chain([&last_id]) {
            until(&format!("event {id} is finished"), SETTLE_TIMEOUT, async || match backend.progress(id).await {
                Progress::Running { .. } => None,
                Progress::Unknown => {
                    assert!(self.taken_back.contains(id), "event {id} was accepted, and is not known any more");
                    Some(())
                }
                Progress::Finished { .. } => Some(()),
            })
            .await;
        }
    }

    /// Everything that a phone has been pushed once the server has done all it was told.
    pub(crate) async fn pushed(&mut self, name: &str) -> Vec<Notification> {
        self.settle().await;
        self.provider.delivered_to(self.phone(name))
    }

    /// What a phone shows then.
    pub(crate) async fn shown(&mut self, name: &str) -> Vec<Notification> {
        self.settle().await;
        self.provider.shown_on(self.phone(name))
    }

    /// Waits until a phone has been pushed at all.
    pub(crate) async fn first_push(&mut self, name: &str) {
        let got = async || (self.push_count(name) > 0).then_some(());
        until(&format!("{name} is pushed"), PATIENCE, got).await;
    }

    /// How many notifications a phone has got, whoever reaches it, repeats included.
    pub(crate) fn push_count(&self, name: &str) -> usize {
        let phone = self.phone(name);
        let entries = match &phone.reach {
            Reach::Apple => return self.provider.delivered_to(phone).len(),
            Reach::Google => self.google.as_ref().map(|google| google.ledger().for_token(&phone.token)),
            Reach::Browser(it) => self.browsers.as_ref().map(|browsers| browsers.ledger().for_endpoint(&it.endpoint)),
        };
        entries.into_iter().flatten().map(|entry| entry.count as usize).sum()
    }

    /// How many of them it shows.
    pub(crate) fn shown_count(&self, name: &str) -> usize {
        let phone = self.phone(name);
        let shown = match &phone.reach {
            Reach::Apple => return self.provider.shown_on(phone).len(),
            Reach::Google => self.google.as_ref().map(|google| google.ledger().shown(&phone.token)),
            Reach::Browser(it) => self.browsers.as_ref().map(|browsers| browsers.ledger().shown(&it.endpoint)),
        };
        shown.map_or(0, |shown| shown.len())
    }

    /// Asks why a phone got the last event, or not.
    pub(crate) async fn ask_why(&mut self, name: &str) -> &Why {
        let (backend, event) = (self.backend().await, self.last_told().id.clone());
        let why = backend.why(&event, self.phone(name)).await;
        self.why.insert(why)
    }

    pub(crate) fn why(&self) -> &Why {
        self.why.as_ref().expect("a sentence before has asked")
    }

    /// Connects somebody's app.
    pub(crate) async fn connect(&mut self, person: &str, claim: Claim<'_>, visible: Option<bool>) {
        let app = self.try_to_connect(person, claim, visible).await;
        let app = app.unwrap_or_else(|end| panic!("{person}'s app is not let in: {end:?}"));
        self.apps.insert(person.to_owned(), app);
    }

    /// Somebody's page listens to a channel that their token names.
    pub(crate) async fn listen(&mut self, person: &str, channel: String) {
        let token = connection_token(TOKEN_SECRET, &person.to_lowercase(), None, &[channel]);
        let listener = Listener::open(self.app_addr(person).await, &token).await;
        self.listeners.insert(person.to_owned(), listener);
    }

    pub(crate) fn listener(&mut self, person: &str) -> &mut Listener {
        self.listeners.get_mut(person).unwrap_or_else(|| panic!("{person}'s page was not spoken of"))
    }

    /// Somebody's app, if it is let in.
    pub(crate) async fn try_to_connect(
        &mut self,
        person: &str,
        claim: Claim<'_>,
        visible: Option<bool>,
    ) -> Result<App, End> {
        let device = claim.phone().map(|name| self.phone(name).clone());
        let (mut signed, mut said) = (None, None);
        if let Some(phone) = device {
            let credential = match claim {
                Claim::Nothing | Claim::Token(_) => None,
                Claim::Name(_) => Some(None),
                Claim::Credential(_) => Some(Some(phone.credential)),
                Claim::OldCredential(_) => Some(Some(phone.credential_before.expect("it has got a new one"))),
            };
            match credential {
                None => signed = Some(phone.id),
                Some(credential) => said = Some((phone.id, credential)),
            }
        }
        let channels = self.named_channels.get(person).map(Vec::as_slice).unwrap_or_default();
        let name = person.to_lowercase();
        let token = match self.tokenless.contains(person) {
            true => Err(name),
            false => Ok(connection_token(TOKEN_SECRET, &name, signed.as_deref(), channels)),
        };
        let addr = self.app_addr(person).await;
        let format = if self.protobuf.contains(person) { Format::Protobuf } else { Format::Json };
        let transport = if self.streaming.contains(person) { Transport::Sse } else { Transport::WebSocket };
        let variant = Variant { transport, format };
        let locale = self.languages.get(person).cloned();
        App::connect(addr, Identity { token, device: said, visible, locale, variant }).await
    }

    pub(crate) fn app(&mut self, person: &str) -> &mut App {
        self.apps.get_mut(person).unwrap_or_else(|| panic!("{person}'s app was not spoken of"))
    }
}

/// The key with which somebody logs in to the console.
fn console_key(person: &str) -> String {
    format!("key-of-{}-for-the-console-0123456789", person.to_lowercase())
}

/// Which phone an app says it runs on, and how it proves that.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Claim<'a> {
    /// It does not say.
    Nothing,
    /// It says so and proves nothing.
    Name(&'a str),
    /// By the phone's credential.
    Credential(&'a str),
    /// By the one that the phone had before.
    OldCredential(&'a str),
    /// By the token that the backend lets the user in with.
    Token(&'a str),
}

impl<'a> Claim<'a> {
    fn phone(self) -> Option<&'a str> {
        match self {
            Self::Nothing => None,
            Self::Name(phone) | Self::Credential(phone) | Self::OldCredential(phone) | Self::Token(phone) => {
                Some(phone)
            }
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("told", &self.told).field("refusal", &self.refusal).finish_non_exhaustive()
    }
}
