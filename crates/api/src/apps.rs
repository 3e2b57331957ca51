//! Apps that call for themselves: how they prove who they are, what they may do, how fast they may ask
//! (`docs/apps.md`).
//!
//! An app sends one or both of
//! - the *credential* of its device, in `X-Device-Credential`: it proves the device that the path names;
//! - the *user token* with which it also connects (same keys, same check: [`TokenVerifier`]), in
//!   `Authorization: Bearer`: it proves the user by `sub`, and the device if it has the claim `device`.
//!
//! An app reaches only the routes that are open to apps, and only the device that it has proven, or a device of the
//! user that it has proven. A token with the claim `device` reaches that device only. Any other device in a path is
//! answered as if it did not exist. An app never says whose a device is (the token does), and never says that a push
//! token has worked.
//!
//! Apps and API keys are told apart as follows. A request with `X-Device-Credential` is an app's, even if it also has a
//! key. A bearer is checked as a key first, and as a token only if it is no key.
//!
//! Bounds: [`Buckets`] for proven callers (by user or device), and for addresses before anything is proven. A user's
//! apps may register a limited number of devices. The operator lists the subjects that an app may subscribe to. A user,
//! or a device without one, has at most [`REQUEST_COUNT_MAX`] requests at a time. A request takes its place for work
//! only when its body has arrived. Until then it costs its connection and at most
//! [`APP_BODY_BYTES_MAX`](crate::guard::APP_BODY_BYTES_MAX).

use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Once};
use std::time::Duration;

use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderMap;
use axum::http::header::HeaderName;
use tidings_audience::USER_KIND;
use tidings_protocol::token::{Token, TokenError, TokenVerifier};
use tidings_store::Store;
use tidings_telemetry::{Counter, Registry, metrics, unix_now};
use tidings_types::{Device, DeviceId, NameError, OriginPattern, Subject, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::warn;

use crate::auth::bearer;
use crate::places::{Share, Shares};
use crate::problem::{Kind, Problem};
use crate::rate::{Buckets, Rate};

/// The header with the device's credential.
pub(crate) const CREDENTIAL_HEADER: &str = "x-device-credential";
/// Headers in which proxies name the client's address.
const FORWARDED_HEADERS: [&str; 4] = ["x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip"];
/// The most bytes of a credential; those of this server have 43.
const CREDENTIAL_BYTES_MAX: usize = 256;

/// The most requests that the apps of one user, or one device, may have in work at a time, including bodies that are
/// still arriving.
const REQUEST_COUNT_MAX: u32 = 8;

/// What apps that call for themselves may do.
#[derive(Debug)]
pub struct Apps {
    /// Checks user tokens; `None`: only credentials count.
    pub verifier: Option<TokenVerifier>,
    /// The subjects to which an app may subscribe its device; never subjects that are users.
    pub subjects: Vec<SubjectPattern>,
    /// Web sites whose pages may call, such as `https://example.com`, or `*` for all.
    pub allowed_origins: Vec<OriginPattern>,
    /// The number of devices of a user from which on its apps register no further one.
    pub user_device_count_max: usize,
    /// How fast one user, or one device without a user token, may ask; `None`: at any rate.
    pub rate: Option<Rate>,
    /// How fast one address may ask, before anything is proven; `None`: at any rate.
    pub address_rate: Option<Rate>,
    /// The header in which our proxy names the client's address: the last address in it counts. `None`: the address of
    /// the connection.
    pub address_header: Option<HeaderName>,
}

/// Subjects by name, or by the beginning of their name: `team:42`, `team:*`, `order:2026-*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectPattern {
    /// The name, or its beginning.
    text: String,
    is_prefix: bool,
}

impl SubjectPattern {
    fn matches(&self, subject: &Subject) -> bool {
        let name = subject.as_str();
        if self.is_prefix { name.starts_with(&self.text) } else { name == self.text }
    }
}

impl FromStr for SubjectPattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = |rule| NameError { what: "subjects", rule, value: text.chars().take(64).collect() };
        let prefix = text.strip_suffix('*');
        let name = prefix.unwrap_or(text);
        let is_known = prefix == Some("")
            || Subject::new(&if prefix.is_some() { format!("{name}x") } else { name.to_owned() }).is_ok();
        if !is_known {
            return Err(wrong("must be a subject such as team:42, kind:* for all of a kind, or * for all"));
        }
        if name.split_once(':').is_some_and(|(kind, _)| kind == USER_KIND) {
            return Err(wrong("must not be users: an app would get events of other users"));
        }
        Ok(Self { text: name.to_owned(), is_prefix: prefix.is_some() })
    }
}

impl fmt::Display for SubjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_prefix { "*" } else { "" })
    }
}

impl Apps {
    /// Whether an app may subscribe its device to `subject`. Subjects that are users are refused: a device needs no
    /// subscription to its own user, and must not have one to another user.
    fn may_subscribe(&self, subject: &Subject) -> bool {
        let is_user = subject.as_str().split_once(':').is_some_and(|(kind, _)| kind == USER_KIND);
        !is_user && self.subjects.iter().any(|pattern| pattern.matches(subject))
    }
}

/// An app, with what it has shown about itself.
#[derive(Clone)]
pub(crate) struct App {
    /// Sent by the app; the path says for which device.
    credential: Option<String>,
    /// From the signed token.
    user: Option<UserId>,
    /// From the signed token; then the app reaches no other device.
    device: Option<DeviceId>,
}

impl App {
    /// The user that the app has proven.
    pub(crate) fn user(&self) -> Option<&UserId> {
        self.user.as_ref()
    }
}

// Secrets must never appear in a log.
impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("user", &self.user).field("device", &self.device).finish_non_exhaustive()
    }
}

/// Checks apps.
#[derive(Debug)]
pub(crate) struct Gate {
    apps: Apps,
    callers: Option<Buckets>,
    addresses: Option<Buckets>,
    started: Instant,
    limited: [Counter; 2],
    shares: Arc<Shares>,
    /// Places for requests of apps in work, and their total number.
    places: Arc<Semaphore>,
    place_count_max: usize,
    /// A header of a proxy was seen although `address_header` is not set.
    unnamed_proxy: Once,
}

/// Whose bucket a call takes a token from.
#[derive(Hash)]
enum Payer<'a> {
    User(&'a UserId),
    Device(&'a DeviceId),
    /// A caller with a wrong credential for this device. It has a bucket of its own, so that the device does not pay
    /// for it.
    Stranger(&'a DeviceId),
}

impl Gate {
    pub(crate) fn new(apps: Apps, place_count_max: usize, registry: &Registry) -> Self {
        let limited = ["app", "address"].map(|by| limited(registry, by));
        let (callers, addresses) = (apps.rate.map(Buckets::new), apps.address_rate.map(Buckets::new));
        let (shares, places) = (Arc::default(), Arc::new(Semaphore::new(place_count_max)));
        let (started, unnamed_proxy) = (Instant::now(), Once::new());
        Self { apps, callers, addresses, started, limited, shares, places, place_count_max, unnamed_proxy }
    }

    /// Web sites whose pages may call.
    pub(crate) fn allowed_origins(&self) -> &[OriginPattern] {
        &self.apps.allowed_origins
    }

    /// Whether the request comes from an app that shows a credential, whatever else it shows.
    pub(crate) fn shows_credential(headers: &HeaderMap) -> bool {
        headers.contains_key(CREDENTIAL_HEADER)
    }

    /// The app that sent the request; `None`: the request shows nothing of an app.
    ///
    /// # Errors
    /// 401: what the app shows proves nothing. 429: the address or the user asks too fast.
    pub(crate) fn app(&self, request: &Request) -> Result<Option<App>, Problem> {
        let headers = request.headers();
        let token = bearer(headers).filter(|_| self.apps.verifier.is_some());
        if token.is_none() && !Self::shows_credential(headers) {
            return Ok(None);
        }
        if let Some(address) = self.addresses.as_ref().and_then(|_| self.address(request)) {
            self.charge(self.addresses.as_ref(), &address, "address", &self.limited[1])?;
        }
        let credential = headers.get(CREDENTIAL_HEADER).map(|credential| match credential.to_str() {
            Ok(text) if (1..=CREDENTIAL_BYTES_MAX).contains(&text.len()) => Ok(text.to_owned()),
            _ => Err(refused(&format!("X-Device-Credential must hold 1 to {CREDENTIAL_BYTES_MAX} ASCII characters"))),
        });
        let (user, device) = token.map(|token| self.claims(token)).transpose()?.unwrap_or_default();
        if let Some(user) = &user {
            self.charge_app(&Payer::User(user))?; // Also if the device turns out not to be the user's.
        }
        Ok(Some(App { credential: credential.transpose()?, user, device }))
    }

    fn claims(&self, token: &str) -> Result<(Option<UserId>, Option<DeviceId>), Problem> {
        let Some(verifier) = &self.apps.verifier else { return Ok((None, None)) };
        let now = unix_now();
        let claims = verifier.verify_connection(&Token::from(token), now).map_err(|error| match error {
            TokenError::KeyPending => Problem::new(Kind::Overloaded, error.to_string()), // The app should try again.
            _ => refused(&error.to_string()),
        })?;
        if claims.expires_at.is_some_and(|at| at <= now) {
            return Err(refused("token has expired or is not valid yet"));
        }
        let user = (!claims.user.is_empty()).then(|| UserId::new(&claims.user)).transpose();
        let user = user.map_err(|error| refused(&format!("claim sub: {} {}", error.what, error.rule)))?;
        if user.is_none() && claims.device.is_none() {
            return Err(refused("the token must name a user (claim sub) or a device (claim device)"));
        }
        Ok((user, claims.device))
    }

    /// The network that pays for the call; for IPv6 the /64 of a household.
    fn address(&self, request: &Request) -> Option<IpAddr> {
        let headers = request.headers();
        let forwarded = FORWARDED_HEADERS.iter().find(|header| headers.contains_key(**header));
        if let Some(header) = forwarded.filter(|_| self.apps.address_header.is_none()) {
            self.unnamed_proxy.call_once(|| {
                warn!(%header, "A request says for whom it is made, but apps.address_header is not set: if a proxy of yours says so, \
                       all its clients count as one until that is set to its header");
            });
        }
        network_of(request, self.apps.address_header.as_ref())
    }

    fn charge(&self, buckets: Option<&Buckets>, who: &impl Hash, what: &str, counter: &Counter) -> Result<(), Problem> {
        let Some(buckets) = buckets else { return Ok(()) };
        buckets.admit(who, self.started.elapsed()).map_err(|wait| {
            counter.inc();
            too_fast(what, buckets.rate(), wait)
        })
    }

    /// Charges the device for a call of its app, unless the user was charged. A caller that has not proven the device
    /// is charged as a stranger.
    ///
    /// # Errors
    /// 429 if it asks too fast.
    pub(crate) fn charge_device(&self, app: &App, store: &Store, id: &DeviceId) -> Result<(), Problem> {
        match &app.device {
            _ if app.user.is_some() => Ok(()),
            Some(device) => self.charge_app(&Payer::Device(device)),
            None if self.is_of(app, store, id)? => self.charge_app(&Payer::Device(id)),
            None => self.charge_app(&Payer::Stranger(id)),
        }
    }

    /// Checks that the app may reach the device `id`; `known` is the device's row, if there is one.
    ///
    /// # Errors
    /// 404 if the device is not the app's.
    pub(crate) fn admit(&self, app: &App, store: &Store, id: &DeviceId, known: Option<&Device>) -> Result<(), Problem> {
        let is_of = self.is_of(app, store, id)?; // The same reads for another user's device as for one that does not exist.
        let is_elsewhere = app.device.as_ref().is_some_and(|device| device != id);
        let has_right = match known {
            Some(device) => is_of || (app.user.is_some() && device.user == app.user),
            None => app.device.is_some() || app.user.is_some(), // It may register it.
        };
        if is_elsewhere || !has_right { Err(Problem::no_device(id)) } else { Ok(()) }
    }

    /// Counts one more request in work, whose body may not have arrived: for the app's user, or for the device `id`,
    /// which the app has then proven.
    ///
    /// # Errors
    /// 429 if there are [`REQUEST_COUNT_MAX`] already.
    pub(crate) fn share(&self, app: &App, id: &DeviceId) -> Result<Share, Problem> {
        let payer = app.user.as_ref().map_or(Payer::Device(id), Payer::User);
        self.shares.take(&payer, REQUEST_COUNT_MAX).ok_or_else(|| {
            self.limited[0].inc();
            let detail = format!("app: at most {REQUEST_COUNT_MAX} requests of one user, or of one device, at a time");
            Problem::new(Kind::RateLimited, detail).limit(REQUEST_COUNT_MAX.into())
        })
    }

    /// A place for a request whose body has arrived.
    ///
    /// # Errors
    /// 503 if all are taken.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let max = self.place_count_max;
            let detail = format!(
                "at most {max} requests of apps may be in work, a quarter of http.request_count_max, and {max} are"
            );
            Problem::new(Kind::Overloaded, detail).limit(max as u64).value(max)
        })
    }

    /// Whether the app has proven to run on this device.
    fn is_of(&self, app: &App, store: &Store, id: &DeviceId) -> Result<bool, Problem> {
        let shown =
            app.credential.as_deref().map(|credential| store.prove(id, Some(credential))).transpose()?.flatten();
        Ok(shown.is_some() || app.device.as_ref() == Some(id))
    }

    fn charge_app(&self, payer: &Payer<'_>) -> Result<(), Problem> {
        self.charge(self.callers.as_ref(), payer, "app", &self.limited[0])
    }

    /// The user of the device after its app has registered it: the token's user. Without a user token it does not
    /// change.
    ///
    /// # Errors
    /// 403 if the user would have one device too many. The caller holds the user's turn, so that this stays true.
    pub(crate) fn user_of(&self, app: &App, store: &Store, known: Option<&Device>) -> Result<Option<UserId>, Problem> {
        let Some(user) = &app.user else { return Ok(known.and_then(|device| device.user.clone())) };
        if known.is_none_or(|device| device.user.as_ref() != Some(user)) {
            let max = self.apps.user_device_count_max;
            let count = store.devices_of_user(user, None, max)?.len();
            if count >= max {
                let detail = format!("a user's apps may register up to {max} devices (apps.user_device_count_max)");
                return Err(Problem::new(Kind::NotForApps, detail).limit(max as u64).value(count));
            }
        }
        Ok(Some(user.clone()))
    }

    /// Checks the subjects that an app wants to add to its device.
    ///
    /// # Errors
    /// 403 that names the first subject that is not for apps.
    pub(crate) fn check_subjects<'s>(&self, mut wanted: impl Iterator<Item = &'s Subject>) -> Result<(), Problem> {
        match wanted.find(|subject| !self.apps.may_subscribe(subject)) {
            None => Ok(()),
            Some(subject) => {
                let detail =
                    format!("subscriptions: {subject} is not among what apps may subscribe to (apps.subjects)");
                Err(Problem::new(Kind::NotForApps, detail).field("subscriptions").value(subject.as_str()))
            }
        }
    }
}

/// The counter of requests that were refused for their rate.
pub(crate) fn limited(registry: &Registry, by: &str) -> Counter {
    registry.counter(&metrics::api::LIMITED_TOTAL, &[by])
}

/// 429 with the rate that is allowed and the time to wait.
pub(crate) fn too_fast(what: &str, Rate { per_second, burst }: Rate, wait: Duration) -> Problem {
    let detail = format!("{what}: at most {per_second} requests a second, and {burst} at once after a pause");
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Problem::new(Kind::RateLimited, detail).limit(per_second.into()).retry_after(seconds)
}

fn refused(why: &str) -> Problem {
    Problem::new(Kind::Unauthorized, why.to_owned())
}

/// The network from which a request comes. `header`: where the proxy in front tells the client's address.
pub fn network_of<B>(request: &axum::http::Request<B>, header: Option<&HeaderName>) -> Option<IpAddr> {
    let told = header.and_then(|header| last_address(request.headers(), header));
    let peer = || request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(addr)| addr.ip());
    told.or_else(peer).map(network)
}

/// The network of an address; for IPv6 the /64 of a household.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

/// A proxy adds the address that it sees at the end. Anybody may have written the addresses before it.
fn last_address(headers: &HeaderMap, header: &HeaderName) -> Option<IpAddr> {
    let last = headers.get_all(header).iter().next_back()?.to_str().ok()?.rsplit(',').next()?.trim();
    last.parse().ok().or_else(|| last.parse::<SocketAddr>().ok().map(|addr| addr.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> SubjectPattern {
        text.parse().unwrap()
    }

    fn apps(subjects: Vec<SubjectPattern>, address_header: Option<HeaderName>) -> Apps {
        let address_rate = Some(Rate { per_second: 1, burst: 1 });
        Apps {
            verifier: None,
            subjects,
            allowed_origins: Vec::new(),
            user_device_count_max: 1,
            rate: None,
            address_rate,
            address_header,
        }
    }

    /// One log line in all, not one per request.
    #[test]
    fn a_proxy_that_nobody_named_is_told_of() {
        let is_told = |named: Option<&'static str>, sent: Option<&str>, shown: &str| {
            let gate = Gate::new(apps(Vec::new(), named.map(HeaderName::from_static)), 1, &Registry::new());
            let mut request = Request::builder().header(shown, "a credential");
            if let Some(sent) = sent {
                request = request.header(sent, "10.0.0.1");
            }
            drop(gate.app(&request.body(axum::body::Body::empty()).unwrap()).unwrap());
            gate.unnamed_proxy.is_completed()
        };
        for header in ["X-Forwarded-For", "Forwarded"] {
            assert!(is_told(None, Some(header), CREDENTIAL_HEADER), "{header}");
            assert!(!is_told(None, Some(header), "x-other"), "{header} of somebody who is no app");
        }
        assert!(!is_told(Some("x-forwarded-for"), Some("X-Forwarded-For"), CREDENTIAL_HEADER));
        assert!(!is_told(None, None, CREDENTIAL_HEADER));
    }

    #[test]
    fn patterns_name_subjects_and_never_users() {
        for text in ["*", "team:*", "team:42", "order:2026-*", "users:*", "a:b:*"] {
            assert_eq!(pattern(text).to_string(), text);
        }
        for text in ["", "team", "te*", "team:", "Team:*", "**", "user:*", "user:ada", "user:a*", " *"] {
            assert!(text.parse::<SubjectPattern>().is_err(), "{text}");
        }
        let may = |patterns: &[&str], subject: &str| {
            let subjects = patterns.iter().map(|text| pattern(text)).collect();
            apps(subjects, None).may_subscribe(&Subject::new(subject).unwrap())
        };
        assert!(may(&["team:*"], "team:42") && may(&["team:42"], "team:42") && may(&["x:1", "*"], "team:42"));
        assert!(!may(&[], "team:42") && !may(&["team:4"], "team:42") && !may(&["team:*"], "teams:42"));
        assert!(!may(&["*"], "user:ada") && may(&["*"], "users:ada"));
    }

    #[test]
    fn the_address_that_a_proxy_tells_is_the_last_one() {
        let header = HeaderName::from_static("x-forwarded-for");
        let told = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(&header, line.parse().unwrap());
            }
            last_address(&headers, &header).map(|address| address.to_string())
        };
        assert_eq!(told(&["6.6.6.6, 10.0.0.1"]).as_deref(), Some("10.0.0.1"));
        assert_eq!(told(&["6.6.6.6", "10.0.0.2:4711"]).as_deref(), Some("10.0.0.2"));
        assert_eq!(told(&["2001:db8::1"]).as_deref(), Some("2001:db8::1"));
        assert_eq!((told(&[]), told(&["somebody"]), told(&["10.0.0.1,"])), (None, None, None));
    }
}
