//! Apps that call for themselves: what proves them, what they may touch, how fast they may ask (`docs/apps.md`).
//!
//! An app shows one or both of
//! - the *credential* of its device, in `X-Device-Credential`: proves the device that the path names;
//! - the *user token* that it connects with (the same secret, the same check: [`TokenVerifier`]), in
//!   `Authorization: Bearer`: proves its user by `sub`, and its device where it has the claim `device`.
//!
//! It reaches the routes that are entered for apps, with the device that it has proven, or a device of the user that it
//! has proven; a token with the claim `device` reaches that device only. Whatever else a path names is answered as if it
//! were not there. It never says whose a device is (the token does), nor that a push token has worked.
//!
//! No confusion with API keys: who sends `X-Device-Credential` is an app, whatever key comes along; a bearer is taken for a
//! key first, and for a token only where it is none.
//!
//! Bounds: [`Buckets`] of callers that are proven, by user or device, and of addresses before anything is proven; so
//! many devices a user may register by its own apps; subjects that an app may subscribe to are listed by the operator.
//! A user, or a device without one, has [`REQUEST_COUNT_MAX`] requests at a time. Places for work are taken when a body is
//! there, so a body on its way costs its connection and [`APP_BODY_BYTES_MAX`](crate::guard::APP_BODY_BYTES_MAX) at most.

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
use tidings_protocol::token::{Token, TokenVerifier};
use tidings_store::Store;
use tidings_telemetry::{Counter, Registry, unix_now};
use tidings_types::{Device, DeviceId, NameError, Subject, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::warn;

use crate::auth::bearer;
use crate::places::{Share, Shares};
use crate::problem::{Kind, Problem};
use crate::rate::{Buckets, Rate};

/// Where an app shows its device's credential.
pub(crate) const CREDENTIAL_HEADER: &str = "x-device-credential";
/// In one of these a proxy says for whom it asks.
const FORWARDED_HEADERS: [&str; 4] = ["x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip"];
/// Bytes of a credential; ours have 43.
const CREDENTIAL_BYTES_MAX: usize = 256;

/// Requests that the apps of one user, or one device, may have in work at a time, bodies that are on their way included.
const REQUEST_COUNT_MAX: u32 = 8;

/// What apps may do that call for themselves.
#[derive(Debug)]
pub struct Apps {
    /// Checks user tokens; `None`: only credentials count.
    pub verifier: Option<TokenVerifier>,
    /// What an app may subscribe its device to. Subjects that are users are never among them.
    pub subjects: Vec<SubjectPattern>,
    /// Web sites whose pages may call, such as `https://example.com`, or `*` for all.
    pub allowed_origins: Vec<String>,
    /// Devices that a user may have for its apps to register one more.
    pub user_device_count_max: usize,
    /// How fast one user, or one device without a user token, may ask; `None`: at any rate.
    pub rate: Option<Rate>,
    /// How fast one address may ask, before anything is proven; `None`: at any rate.
    pub address_rate: Option<Rate>,
    /// The header in which a proxy of ours says who asks: the last address in it counts. `None`: whoever is connected.
    pub address_header: Option<HeaderName>,
}

/// Subjects by name, or by what their name begins with: `team:42`, `team:*`, `order:2026-*`, `*`.
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
            return Err(wrong("must not be users: an app would be told what is for others"));
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
    /// Whether an app may subscribe its device to it. A device needs no subscription to what is about its user, and must
    /// not have one to what is about another.
    fn may_subscribe(&self, subject: &Subject) -> bool {
        let is_user = subject.as_str().split_once(':').is_some_and(|(kind, _)| kind == USER_KIND);
        !is_user && self.subjects.iter().any(|pattern| pattern.matches(subject))
    }
}

/// An app, with what it has shown of who it is.
#[derive(Clone)]
pub(crate) struct App {
    /// Shown; of which device it is, the path says.
    credential: Option<String>,
    /// Signed.
    user: Option<UserId>,
    /// Signed; then it is about no other.
    device: Option<DeviceId>,
}

impl App {
    /// Whose it has shown to be.
    pub(crate) fn user(&self) -> Option<&UserId> {
        self.user.as_ref()
    }
}

// Secrets never reach a log.
impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("user", &self.user).field("device", &self.device).finish_non_exhaustive()
    }
}

/// Lets apps in.
#[derive(Debug)]
pub(crate) struct Gate {
    apps: Apps,
    callers: Option<Buckets>,
    addresses: Option<Buckets>,
    started: Instant,
    limited: [Counter; 2],
    shares: Arc<Shares>,
    /// Places for requests of apps in work, and how many there are.
    places: Arc<Semaphore>,
    place_count_max: usize,
    /// A proxy was seen that nobody told us of.
    unnamed_proxy: Once,
}

/// Who pays for a call.
#[derive(Hash)]
enum Payer<'a> {
    User(&'a UserId),
    Device(&'a DeviceId),
    /// Who tries credentials that are not the device's; apart, so that the device does not pay for it.
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
    pub(crate) fn allowed_origins(&self) -> &[String] {
        &self.apps.allowed_origins
    }

    /// Whether the request comes from an app that shows a credential, whatever else it shows.
    pub(crate) fn shows_credential(headers: &HeaderMap) -> bool {
        headers.contains_key(CREDENTIAL_HEADER)
    }

    /// The app that asks; `None`: nothing shown is of an app.
    ///
    /// # Errors
    /// 401: what is shown proves nothing. 429: the address or the user asks too fast.
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
            self.charge_app(&Payer::User(user))?; // Whatever comes of it: also who only tries names.
        }
        Ok(Some(App { credential: credential.transpose()?, user, device }))
    }

    fn claims(&self, token: &str) -> Result<(Option<UserId>, Option<DeviceId>), Problem> {
        let Some(verifier) = &self.apps.verifier else { return Ok((None, None)) };
        let now = unix_now();
        let claims =
            verifier.verify_connection(&Token::from(token), now).map_err(|error| refused(&error.to_string()))?;
        if claims.expires_at.is_some_and(|at| at <= now) {
            return Err(refused("token is outside its time"));
        }
        let user = (!claims.user.is_empty()).then(|| UserId::new(&claims.user)).transpose();
        let user = user.map_err(|error| refused(&format!("claim sub: {} {}", error.what, error.rule)))?;
        if user.is_none() && claims.device.is_none() {
            return Err(refused("the token names neither a user (sub) nor a device"));
        }
        Ok((user, claims.device))
    }

    /// Whose the call is by its network: of IPv6 the /64 that a household has.
    fn address(&self, request: &Request) -> Option<IpAddr> {
        let headers = request.headers();
        let forwarded = FORWARDED_HEADERS.iter().find(|header| headers.contains_key(**header));
        if let Some(header) = forwarded.filter(|_| self.apps.address_header.is_none()) {
            self.unnamed_proxy.call_once(|| {
                warn!(%header, "A request says for whom it is made, but apps.address_header is not set: if a proxy of yours says so, \
                       all its clients count as one until that is set to its header");
            });
        }
        let told = self.apps.address_header.as_ref().and_then(|header| last_address(headers, header));
        let peer = || request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(addr)| addr.ip());
        told.or_else(peer).map(network)
    }

    fn charge(&self, buckets: Option<&Buckets>, who: &impl Hash, what: &str, counter: &Counter) -> Result<(), Problem> {
        let Some(buckets) = buckets else { return Ok(()) };
        buckets.admit(who, self.started.elapsed()).map_err(|wait| {
            counter.inc();
            too_fast(what, buckets.rate(), wait)
        })
    }

    /// Has the device pay for a call of its app, unless its user has: the one that is proven, else whoever tries this one.
    ///
    /// # Errors
    /// 429 where it asks too fast.
    pub(crate) fn charge_device(&self, app: &App, store: &Store, id: &DeviceId) -> Result<(), Problem> {
        match &app.device {
            _ if app.user.is_some() => Ok(()),
            Some(device) => self.charge_app(&Payer::Device(device)),
            None if self.is_of(app, store, id)? => self.charge_app(&Payer::Device(id)),
            None => self.charge_app(&Payer::Stranger(id)),
        }
    }

    /// Lets the app at the device `id`, which has this row, or none.
    ///
    /// # Errors
    /// 404 where the device is not its own.
    pub(crate) fn admit(&self, app: &App, store: &Store, id: &DeviceId, known: Option<&Device>) -> Result<(), Problem> {
        let is_of = self.is_of(app, store, id)?; // The same reads whether the device is another's or nobody's.
        let is_elsewhere = app.device.as_ref().is_some_and(|device| device != id);
        let has_right = match known {
            Some(device) => is_of || (app.user.is_some() && device.user == app.user),
            None => app.device.is_some() || app.user.is_some(), // It may register it.
        };
        if is_elsewhere || !has_right { Err(Problem::no_device(id)) } else { Ok(()) }
    }

    /// Lets the app have one more request in work, whose body may not be there yet: of its user, or of the device `id`, which
    /// is then its own.
    ///
    /// # Errors
    /// 429 where it has [`REQUEST_COUNT_MAX`].
    pub(crate) fn share(&self, app: &App, id: &DeviceId) -> Result<Share, Problem> {
        let payer = app.user.as_ref().map_or(Payer::Device(id), Payer::User);
        self.shares.take(&payer, REQUEST_COUNT_MAX).ok_or_else(|| {
            self.limited[0].inc();
            let detail = format!("app: at most {REQUEST_COUNT_MAX} requests of one user, or of one device, at a time");
            Problem::new(Kind::RateLimited, detail).limit(REQUEST_COUNT_MAX.into())
        })
    }

    /// A place for a request whose body is there.
    ///
    /// # Errors
    /// 503 where all are taken.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let max = self.place_count_max;
            let detail = format!(
                "at most {max} requests of apps may be in work, a quarter of http.request_count_max, and {max} are"
            );
            Problem::new(Kind::Overloaded, detail).limit(max as u64).value(max)
        })
    }

    /// Whether the app has proven to be on this device.
    fn is_of(&self, app: &App, store: &Store, id: &DeviceId) -> Result<bool, Problem> {
        let shown =
            app.credential.as_deref().map(|credential| store.prove(id, Some(credential))).transpose()?.flatten();
        Ok(shown.is_some() || app.device.as_ref() == Some(id))
    }

    fn charge_app(&self, payer: &Payer<'_>) -> Result<(), Problem> {
        self.charge(self.callers.as_ref(), payer, "app", &self.limited[0])
    }

    /// Whose the device is once its app has registered it: the token's user; without one it stays as it is.
    ///
    /// # Errors
    /// 403 where a new device would be one too many of its user; so that this holds, in the user's turn.
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

    /// The subjects that an app wants its device to have, besides those that it has.
    ///
    /// # Errors
    /// 403, naming the first that is not for apps.
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

/// The instrument of requests refused for their rate.
pub(crate) fn limited(registry: &Registry, by: &str) -> Counter {
    let help = "Requests refused because their API key, app or address asks too fast.";
    registry.counter("tidings_api_limited_total", help, &[("by", by)])
}

/// 429: when to come back, and how fast is fast enough.
pub(crate) fn too_fast(what: &str, Rate { per_second, burst }: Rate, wait: Duration) -> Problem {
    let detail = format!("{what}: at most {per_second} requests a second, and {burst} at once after a pause");
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Problem::new(Kind::RateLimited, detail).limit(per_second.into()).retry_after(seconds)
}

fn refused(why: &str) -> Problem {
    Problem::new(Kind::Unauthorized, why.to_owned())
}

/// Whose an address is: of IPv6 the /64 that a household has.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

/// Proxies add what they see at the end; what is before that, anybody may have written.
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

    /// One log line, not one a request: whoever is refused then is not the one who can change it.
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
