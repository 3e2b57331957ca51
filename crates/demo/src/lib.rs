//! `tidings demo`: the 2022 World Cup final in fast motion, on the real server, with simulated providers.
//!
//! ```text
//!   timeline ── POST /v1/events ──► server ──► 1000 sockets (clients)               each delivery checked and timed
//!   population ── import ─────────────┘  └───► APNs, FCM, Web Push ──► ledgers      each of 100 000 phones checked
//! ```
//!
//! The demo registers the phones, connects the clients, plays the match, waits until nothing arrives any more, and
//! compares what each phone and client got with what it should get. It computes the latter without the server's code.
//! Each client is the app of one of the phones. While the app is on the screen, an event that it has acknowledged is not
//! pushed. With `--once` the demo ends after the match, and its exit code is the verdict. Otherwise it serves until
//! Ctrl-C. All durable data is in a temporary folder, which is removed at the end.
//!
//! The next event waits until all deliveries of the last one are done (at most `EVENT_PATIENCE`). So each event is
//! measured by itself, as in a real match, which has minutes between events. Server, providers and clients still share
//! the same cores.
//!
//! With `--nodes 3` there is no match: `cluster.rs` kills the processes of a cluster and checks that nothing is lost.

mod args;
mod clients;
mod clock;
mod cluster;
mod cores;
mod population;
mod pushes;
mod report;
mod setup;
mod timeline;
mod view;
mod wording;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;
use tidings_client::ServerUrl;
use tidings_sender::DeviceOutcome;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_server::output::{grouped, line};
use tidings_server::{Server, stopped};
use tidings_telemetry::{chain, unix_now};
use tidings_types::{DeviceToken, Platform};
use tokio::time::Instant;

pub use self::args::DemoArgs;
use self::clients::Crowd;
use self::clock::{Clock, LATECOMER_TIME, LOOK_INTERVAL};
use self::cores::Used;
use self::population::Population;
use self::pushes::Pushes;
use self::report::{Busy, Extent, Report};
use self::setup::{Folder, Providers};
use self::timeline::Moment;
use self::view::{Scene, View, format_duration};

/// With `--once` nobody watches, so the match is played at least this many times faster than a real one.
const SPEED_ONCE: f64 = 900.0;

/// Without the warning that endpoints may be private addresses: the demo's browsers are on this machine.
const LOG_FILTER: &str = "warn,tidings_server::providers::web_push=error";

/// Phones of one import into the store. The progress bar moves after each import.
const IMPORT_BATCH_COUNT: u32 = 2000;

/// How long connecting may stand still.
const CONNECT_PATIENCE: Duration = Duration::from_secs(15);

/// After the last event: if nothing arrives for this long, what is missing counts as lost.
const QUIET_PATIENCE: Duration = Duration::from_secs(10);

/// How long the match waits for the deliveries of one event.
const EVENT_PATIENCE: Duration = Duration::from_secs(30);

/// The same while an event is being delivered. Its end is noticed that much too late, but no measurement uses this time.
const TOLD_INTERVAL: Duration = Duration::from_millis(2);

/// How often an event is posted if the server has no room, and the pause between two attempts.
const POST_TRY_COUNT_MAX: usize = 100;
const POST_PAUSE: Duration = Duration::from_millis(100);

/// Plays the match, or with [`DemoArgs::nodes`] kills the processes of a cluster.
///
/// # Errors
/// If the match cannot be played; with [`DemoArgs::once`] also if a phone or client got less or more than it should. If the
/// cluster loses something or does not come back.
pub async fn run(args: DemoArgs) -> Result<(), CommandError> {
    // Shows the server's warnings. If a logger is already installed, it shows them.
    let _ = tidings_server::log::init(tidings_telemetry::log::Format::Text, LOG_FILTER);
    if args.nodes > 1 && !cfg!(feature = "cluster") {
        let told = "this program was built without the feature `cluster`, so it is not one of several servers: leave --nodes \
                    out, or build the program with `cargo build --release -p tidings --features cluster,demo`";
        return Err(CommandError::Usage(told.to_owned()));
    }
    if args.nodes > 1 {
        return cluster::run(args).await;
    }
    let mut stage = Stage::set(args).await?;
    let ended = tokio::select! {
        biased;
        () = stopped()? => stage.interrupted(),
        ended = stage.perform() => ended,
    };
    stage.leave().await;
    ended
}

/// All parts of the demo.
struct Stage {
    args: DemoArgs,
    clock: Clock,
    view: View,
    moments: Arc<[Moment]>,
    population: Arc<Population>,
    pushes: Arc<Pushes>,
    handed_in: AtomicUsize,
    /// Events whose deliveries are done, or that were waited for too long.
    told: AtomicUsize,
    /// The times in which events were being delivered.
    busy: Mutex<Busy>,
    /// `None` until all phones are registered.
    crowd: Option<Crowd>,
    /// `None` until the verdict.
    verdict: Option<Report>,
    // If anything fails, these are stopped in this order.
    server: Server,
    providers: Arc<Providers>,
    folder: Folder,
}

impl Stage {
    async fn set(args: DemoArgs) -> Result<Self, CommandError> {
        let clock = Clock::start();
        setup::allow_files(args.clients)?;
        let moments: Arc<[Moment]> = timeline::moments().into();
        let population = Arc::new(Population::draw(args.devices, &moments));
        let pushes = Arc::new(Pushes::new(clock, moments.clone(), population.clone(), args.clients));
        let folder = Folder::unpack()?;
        let providers = Arc::new(Providers::start(&population, &pushes)?);
        let config = setup::config(&folder, &providers, setup::listen_address(args.once), args.clients)?;
        let server = Server::start(config).await?;
        Ok(Self {
            view: View::new(args.json),
            args,
            clock,
            moments,
            population,
            pushes,
            handed_in: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            busy: Mutex::default(),
            crowd: None,
            verdict: None,
            server,
            providers,
            folder,
        })
    }

    async fn perform(&mut self) -> Result<(), CommandError> {
        self.register().await?;
        self.connect().await?;
        let report = self.play().await?;
        if self.args.json {
            line(report.to_json())?;
        } else {
            self.view.say(format!("\n{}", report.to_text(!self.view.has_board(), self.view.paint())))?;
        }
        self.verdict = Some(report);
        if self.args.once {
            return self.conclude();
        }
        self.view.say(self.invitation())?;
        match self.view.follow(self.scene()?).await? {}
    }

    /// Ends after Ctrl-C or SIGTERM.
    fn interrupted(&self) -> Result<(), CommandError> {
        match &self.verdict {
            Some(_) => self.conclude(),
            None if self.args.once => Err(failed("interrupted before the verdict".to_owned())),
            None => Ok(()),
        }
    }

    fn conclude(&self) -> Result<(), CommandError> {
        match &self.verdict {
            Some(report) if !report.is_clean() => Err(failed(report.fault())),
            _ => Ok(()),
        }
    }

    /// Disconnects the clients, stops the server, then the providers.
    async fn leave(mut self) {
        self.crowd = None;
        self.server.stop().await;
        self.providers.stop();
    }

    async fn register(&self) -> Result<(), CommandError> {
        let (began, count) = (Instant::now(), self.population.count());
        let bar = self.view.bar("Registering phones", count);
        for start in (0..count).step_by(IMPORT_BATCH_COUNT as usize) {
            let end = count.min(start + IMPORT_BATCH_COUNT);
            let phones = self.population.registrations(start..end);
            let imported = self.server.store().import_devices(phones, None, unix_now()).await;
            imported.map_err(|error| failed_by("cannot register phones", &error))?;
            bar.set(end);
        }
        drop(bar);
        let [iphones, androids, browsers] =
            [Platform::Ios, Platform::Android, Platform::Web].map(|it| grouped(self.population.count_of(it)));
        self.view.say(format!(
            "{} phones in {} languages registered with {} subscriptions in {}\n\
             ({iphones} iPhones, {androids} Androids, {browsers} browsers)",
            grouped(count),
            population::LOCALES.len(),
            grouped(self.server.store().counts().subscriptions),
            format_duration(began.elapsed()),
        ))?;
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), CommandError> {
        let (began, count) = (Instant::now(), self.args.clients);
        let crowd = Crowd::start(self.server.addr(), count, &self.moments, self.clock)?;
        let crowd = self.crowd.insert(crowd);
        let bar = self.view.bar("Connecting clients", count);
        let mut progress = (0, Instant::now());
        while crowd.subscribed() < count {
            let subscribed = crowd.subscribed();
            if subscribed > progress.0 {
                progress = (subscribed, Instant::now());
            }
            if let Some(failure) = crowd.failure() {
                return Err(failed(format!("cannot connect the clients: {failure}")));
            }
            if progress.1.elapsed() > CONNECT_PATIENCE {
                return Err(failed(format!("only {subscribed} of {count} clients are connected")));
            }
            bar.set(subscribed);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        drop(bar);
        self.view.say(format!("{} clients connected in {}", grouped(count), format_duration(began.elapsed())))?;
        if !self.args.once {
            self.view.say(format!("Watch it in a browser: {}", self.console()))?;
        }
        Ok(())
    }

    /// Plays the match and returns the verdict.
    async fn play(&self) -> Result<Report, CommandError> {
        let (scene, kick_off) = (self.scene()?, Instant::now());
        let match_time = async {
            self.hand_in_all(kick_off).await?;
            Ok::<_, CommandError>(self.all_quiet(scene).await?.duration_since(kick_off))
        };
        let match_time = tokio::select! {
            match_time = match_time => match_time?,
            never = self.view.follow(scene) => match never? {},
        };
        self.view.say_events(scene)?;
        let (pushes, providers, received) = (self.pushes.clone(), self.providers.clone(), self.received());
        let phones = tokio::task::spawn_blocking(move || pushes.settle(&*providers, received)).await;
        let phones = phones.map_err(|error| failed(chain(&error)))?;
        if let Some(failure) = scene.crowd.failure() {
            self.view.say(format!("A connection broke: {failure}"))?;
        }
        if let Some(example) = &phones.example {
            self.view.say(format!("Wrong: {example}"))?;
        }
        let audiences = (0..self.moments.len()).map(|moment| self.population.audience(moment)).collect();
        let extent = Extent {
            devices: self.population.count(),
            clients: self.args.clients,
            audiences,
            match_time,
            elapsed: Duration::from_micros(self.clock.micros()),
            busy: *self.busy.lock().unwrap_or_else(PoisonError::into_inner),
        };
        Ok(Report::new(extent, &scene, &phones))
    }

    /// Posts every event at its time, or when the deliveries of the one before are done, if that is later.
    async fn hand_in_all(&self, kick_off: Instant) -> Result<(), CommandError> {
        let speed = if self.args.once { self.args.speed.max(SPEED_ONCE) } else { self.args.speed };
        let (url, key) = (ServerUrl::of_listener(self.server.api_addr()), self.server.api_key());
        for (index, moment) in self.moments.iter().enumerate() {
            tokio::time::sleep_until(kick_off + Duration::from_secs_f64(moment.at * 60.0 / speed)).await;
            let (used, began) = (Used::now(), Instant::now());
            let event = moment.to_json(index, self.clock.micros());
            hand_in(&url, key, &event).await?;
            self.handed_in.store(index + 1, Relaxed);
            while !self.is_told(index + 1)? && began.elapsed() < EVENT_PATIENCE {
                tokio::time::sleep(TOLD_INTERVAL).await;
            }
            self.told.store(index + 1, Relaxed);
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.time += began.elapsed();
            busy.used += Used::now() - used;
        }
        Ok(())
    }

    /// Whether all deliveries of the first `moment_count` events are done.
    fn is_told(&self, moment_count: usize) -> io::Result<bool> {
        let crowd = self.scene()?.crowd;
        let is_heard = crowd.delivered() >= crowd.owed_through(moment_count);
        Ok(is_heard && self.pushes.accepted() + self.received() >= self.pushes.owed_through(moment_count))
    }

    /// Waits until all deliveries are done and the server has nothing left to do, or until nothing arrives any more. Returns
    /// when the last delivery arrived.
    async fn all_quiet(&self, scene: Scene<'_>) -> io::Result<Instant> {
        let arrived = || (scene.crowd.seen(), scene.pushes.seen());
        let (mut known, mut changed) = (arrived(), Instant::now());
        loop {
            if arrived() != known {
                (known, changed) = (arrived(), Instant::now());
            }
            let is_complete = self.is_told(self.moments.len())? && self.server.sender().backlog().is_empty();
            let patience = if is_complete { LATECOMER_TIME } else { QUIET_PATIENCE };
            if changed.elapsed() >= patience {
                return Ok(changed);
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Notifications that were not needed, as the server counts them.
    fn received(&self) -> u64 {
        self.server.sender().totals().of(DeviceOutcome::Received)
    }

    fn scene(&self) -> io::Result<Scene<'_>> {
        let crowd = self.crowd.as_ref().ok_or_else(|| io::Error::other("the clients are not connected yet"))?;
        let sender = self.server.sender();
        let (handed_in, told) = (&self.handed_in, &self.told);
        Ok(Scene { moments: &self.moments, pushes: &self.pushes, crowd, handed_in, told, sender })
    }

    /// The console's address. The key is behind the `#`, which a browser does not send.
    fn console(&self) -> String {
        let key = self.server.api_key().map(|key| format!("#{key}")).unwrap_or_default();
        format!("http://{}/console/login{key}", self.server.addr())
    }

    /// Suggests commands to try while the demo serves.
    fn invitation(&self) -> String {
        let (url, program) = (format!("http://{}", self.server.addr()), setup::program());
        let (key, ca) = (self.folder.api_key(), self.folder.fcm_ca());
        let token = self.population.token(self.population.keenest_android());
        let token = token.as_ref().map(DeviceToken::to_text).unwrap_or_default();
        format!(
            "\nStill serving {clients} clients and {phones} phones on {url}.\n\
             Ctrl-C ends it and removes all its data.\n\n\
             The console, in a browser:\n  {console}\n\n\
             Follow the match (in another terminal):\n  {program} subscribe match:2022-final --url {url}\n\n\
             Score once more:\n  {program} publish --url {url} \\\n    \
             --api-key-file {key} \\\n    \
             --topic goal --subject match:2022-final --subject team:argentina \\\n    \
             --param team=Argentina --param 'scorer=Lionel Messi' --param minute=121 \\\n    \
             --param home=Argentina --param home_goals=4 \\\n    \
             --param away=France --param away_goals=3\n\n\
             The server's metrics:\n  curl -H \"X-API-Key: $(cat {key})\" {url}/metrics\n\n\
             The notifications of one Android phone:\n  curl --cacert {ca} https://localhost:{port}/simulator/shown/{token}\n",
            clients = grouped(self.args.clients),
            phones = grouped(self.population.count()),
            console = self.console(),
            key = key.display(),
            ca = ca.display(),
            port = self.providers.fcm.addr().port(),
        )
    }
}

/// Posts an event, again and again while the server has no room.
async fn hand_in(url: &ServerUrl, key: Option<&str>, event: &Value) -> Result<(), CommandError> {
    let body = bytes::Bytes::from(event.to_string());
    for _ in 0..POST_TRY_COUNT_MAX {
        let (status, answer) = url.post("/v1/events", key, body.clone()).await?;
        match status {
            StatusCode::ACCEPTED => return Ok(()),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => tokio::time::sleep(POST_PAUSE).await,
            status => {
                let answer = String::from_utf8_lossy(&answer);
                return Err(failed(format!("the server answered {status}: {}", answer.trim())));
            }
        }
    }
    Err(failed(format!("the server had no room for an event, after {POST_TRY_COUNT_MAX} attempts")))
}
