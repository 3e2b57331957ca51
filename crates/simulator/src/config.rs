//! How a simulator is set up, which faults it has, and which of them a request meets.
//!
//! A [`SimulatorConfig`] is fixed for a run. [`Faults`] can be replaced while the simulator runs; all fields are checked
//! before the new faults are used. The draw for a request ([`Fate`]) is pure: the same seed and order of requests give
//! the same result ([`Faults`] says how far that goes). Nothing here waits or answers: the connection applies the fate.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use tidings_types::{Environment, Timestamp};

use crate::ledger::Fnv;
use crate::{FaultsError, FcmReason, Reason, Refusal, WebPushReason};

/// The highest stream limit that can be announced; HTTP/2 itself would allow 2³¹ − 1.
pub const STREAM_LIMIT_MAX: u32 = 10_000;

/// The most entries of [`Faults::dead_addresses`].
const ADDRESS_COUNT_MAX: usize = 64;

/// The longest life of an access token: what Google gives.
const ACCESS_TOKEN_SECONDS_MAX: u64 = 3600;

/// How a simulator is set up. The default is one thread on a free loopback port, without faults.
///
/// One type serves all providers, as [`Faults`] does: `SimulatorConfig` for APNs, [`FcmConfig`] and [`WebPushConfig`]
/// for the others. Where a field names a provider, the other providers ignore the field.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatorConfig<R = Reason> {
    /// Where it listens. Port 0 takes a free port and keeps it.
    pub listen: SocketAddr,
    /// Further addresses to listen on, with the same port.
    pub more_addresses: Vec<IpAddr>,
    /// Threads, each with a runtime of its own; connections are assigned round-robin. At least 1.
    pub thread_count: usize,
    /// Connections per thread; further ones are closed at once.
    pub connection_count_max: usize,
    /// The seed of all random decisions. Web Push: of the browsers' keys too, so a simulator with the same port and seed
    /// has the same endpoints.
    pub seed: u64,
    /// Devices the ledger keeps; notifications for further devices are only counted ([`LedgerSummary::unrecorded`]).
    ///
    /// [`LedgerSummary::unrecorded`]: crate::LedgerSummary::unrecorded
    pub device_count_max: usize,
    /// Notifications the ledger keeps, about 50 bytes each (APNs) or 100 bytes each (FCM, Web Push); further ones are
    /// only counted.
    pub notification_count_max: usize,
    /// The faults to begin with.
    pub faults: Faults<R>,
    /// APNs: the id of the signing key; ten characters at Apple.
    pub key_id: String,
    /// APNs: the id of the developer team; ten characters at Apple.
    pub team_id: String,
    /// APNs: bundle identifiers that may be pushed to; empty allows all.
    pub topics: Vec<String>,
    /// APNs: certificate authorities (PEM) that may issue client certificates; without any, no client is asked for a
    /// certificate. A client that shows a certificate needs no provider token; a client that shows none needs one.
    pub client_ca_pem: Option<String>,
    /// APNs: the environment that this simulator plays; certificates for the other one are refused.
    pub environment: Environment,
    /// FCM: the project that may be sent to.
    pub project_id: String,
    /// FCM: how long an access token is valid, in seconds, 1 to 3600.
    pub access_token_seconds: u64,
}

/// How a simulator of Firebase Cloud Messaging is set up.
pub type FcmConfig = SimulatorConfig<FcmReason>;

/// How a simulator of a browser maker's push service is set up.
pub type WebPushConfig = SimulatorConfig<WebPushReason>;

impl<R: Refusal> Default for SimulatorConfig<R> {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            more_addresses: Vec::new(),
            thread_count: 1,
            connection_count_max: 1024,
            seed: 0,
            device_count_max: 4_000_000,
            notification_count_max: R::NOTIFICATION_COUNT_MAX,
            faults: Faults::default(),
            key_id: "SIMULATOR1".into(),
            team_id: "TIDINGS001".into(),
            topics: Vec::new(),
            client_ca_pem: None,
            environment: Environment::Production,
            project_id: "tidings-simulator".into(),
            access_token_seconds: ACCESS_TOKEN_SECONDS_MAX,
        }
    }
}

impl<R: Refusal> SimulatorConfig<R> {
    pub(crate) fn check(&self) -> Result<(), FaultsError> {
        let seconds = self.access_token_seconds;
        let range = 1..=ACCESS_TOKEN_SECONDS_MAX;
        require(range.contains(&seconds), "access_token_seconds", "between 1 and 3600", seconds)?;
        self.faults.check()
    }
}

/// The faults of a simulator; the default has none.
///
/// Each connection has its own random numbers, from the seed and the connection's number. Each probability that is not
/// zero takes one of them per request, when the request's head arrives. So the same seed, faults and order of requests
/// on a connection give the same results. Which tokens are gone depends only on the seed and the token.
///
/// Running connections use new faults from their next turn, the stream limit included; only the two windows are set
/// when a connection begins. Streams, windows and GOAWAY belong to HTTP/2. Over HTTP/1.1, a refused stream closes the
/// connection without an answer, and GOAWAY is `Connection: close`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "R: Refusal")]
pub struct Faults<R = Reason> {
    /// The round-trip time to the provider. Answers, SETTINGS and returned windows come this much later; setting up a
    /// connection takes two round trips. No request waits for another.
    pub round_trip_ms: u64,
    /// The time from the end of a request to its answer, in addition to the round trip.
    pub delay_ms: u64,
    /// A random time from 0 to this is added to the delay; answers can then overtake each other.
    pub jitter_ms: u64,
    /// The announced number of concurrent streams, 1 to [`STREAM_LIMIT_MAX`].
    pub stream_limit: u32,
    /// The stream limit until a connection's first accepted provider token; APNs announces 1.
    pub stream_limit_before_token: Option<u32>,
    /// The stream limit from a rejection (4xx except 410) until the next acceptance; APNs has been seen to announce 1.
    pub stream_limit_after_rejection: Option<u32>,
    /// HTTP/2 flow-control window of a stream, 1 to 2³¹ − 1. For new connections.
    pub stream_window_bytes: u32,
    /// HTTP/2 flow-control window of a connection, 65,535 to 2³¹ − 1. For new connections.
    pub connection_window_bytes: u32,
    /// Probability that a connection is closed right after it was accepted, before TLS.
    pub die_after_accept_probability: f64,
    /// Probability of a `REFUSED_STREAM`; nothing is recorded.
    pub refuse_probability: f64,
    /// Probability that the connection is reset before the notification is recorded.
    pub reset_before_probability: f64,
    /// Probability that the connection is reset after the notification is recorded, before the answer.
    pub reset_after_probability: f64,
    /// Probability that the connection stops reading and answering for `stall_ms`.
    pub stall_probability: f64,
    /// How long a stall lasts.
    pub stall_ms: u64,
    /// Probability of 500 `InternalServerError`.
    pub internal_error_probability: f64,
    /// Probability of 503 `ServiceUnavailable`.
    pub unavailable_probability: f64,
    /// Probability of 429 `TooManyRequests`.
    pub too_many_requests_probability: f64,
    /// Probability of one of `rejection_reasons`.
    pub rejection_probability: f64,
    /// The reasons to reject with, all equally likely.
    pub rejection_reasons: Vec<R>,
    /// The share of all tokens that are gone, always the same tokens: answered 410 `Unregistered`.
    pub gone_share: f64,
    /// Since when they are gone; without it, the moment of the answer.
    pub gone_since: Option<Timestamp>,
    /// A connection gets GOAWAY after this many requests; 0 is never.
    pub goaway_every: u64,
    /// GOAWAY closes the connection at once, without the pending answers; otherwise open streams finish first.
    pub goaway_abrupt: bool,
    /// The `Retry-After` of 429 and 503, in seconds; `None` sends none. FCM and Web Push.
    pub retry_after_secs: Option<u64>,
    /// Requests allowed in each `quota_interval_ms`, refused ones included. Further ones are answered 429, with the rest
    /// of the interval as `Retry-After`. 0 is no limit. FCM (600,000 in a minute) and Web Push.
    pub quota_count: u64,
    /// The length of a quota interval. An interval begins with the first request after the end of the previous interval.
    pub quota_interval_ms: u64,
    /// The token endpoint answers 503. FCM.
    pub token_endpoint_down: bool,
    /// Addresses of the simulator that do not work: their connections are reset, new ones are closed at once.
    pub dead_addresses: Vec<IpAddr>,
}

impl<R: Refusal> Default for Faults<R> {
    fn default() -> Self {
        Self {
            round_trip_ms: 0,
            delay_ms: 0,
            jitter_ms: 0,
            stream_limit: R::STREAM_LIMIT,
            stream_limit_before_token: None,
            stream_limit_after_rejection: None,
            stream_window_bytes: 65_535,
            connection_window_bytes: 16 << 20,
            die_after_accept_probability: 0.0,
            refuse_probability: 0.0,
            reset_before_probability: 0.0,
            reset_after_probability: 0.0,
            stall_probability: 0.0,
            stall_ms: 0,
            internal_error_probability: 0.0,
            unavailable_probability: 0.0,
            too_many_requests_probability: 0.0,
            rejection_probability: 0.0,
            rejection_reasons: Vec::new(),
            gone_share: 0.0,
            gone_since: None,
            goaway_every: 0,
            goaway_abrupt: false,
            retry_after_secs: None,
            quota_count: 0,
            quota_interval_ms: 60_000,
            token_endpoint_down: false,
            dead_addresses: Vec::new(),
        }
    }
}

impl<R: Refusal> Faults<R> {
    /// Checks every field against its range.
    ///
    /// # Errors
    /// The first field outside its range.
    pub fn check(&self) -> Result<(), FaultsError> {
        let probabilities = [
            ("die_after_accept_probability", self.die_after_accept_probability),
            ("refuse_probability", self.refuse_probability),
            ("reset_before_probability", self.reset_before_probability),
            ("reset_after_probability", self.reset_after_probability),
            ("stall_probability", self.stall_probability),
            ("internal_error_probability", self.internal_error_probability),
            ("unavailable_probability", self.unavailable_probability),
            ("too_many_requests_probability", self.too_many_requests_probability),
            ("rejection_probability", self.rejection_probability),
            ("gone_share", self.gone_share),
        ];
        for (field, value) in probabilities {
            require((0.0..=1.0).contains(&value), field, "between 0 and 1", value)?;
        }
        let limits = [
            ("stream_limit", Some(self.stream_limit)),
            ("stream_limit_before_token", self.stream_limit_before_token),
            ("stream_limit_after_rejection", self.stream_limit_after_rejection),
        ];
        for (field, value) in limits.into_iter().filter_map(|(field, value)| Some((field, value?))) {
            require((1..=STREAM_LIMIT_MAX).contains(&value), field, "between 1 and 10000", value)?;
        }
        let window_max = i32::MAX as u32; // RFC 9113, 6.9.1.
        let window = self.stream_window_bytes;
        require((1..=window_max).contains(&window), "stream_window_bytes", "between 1 and 2147483647", window)?;
        let window = self.connection_window_bytes;
        let rule = "between 65535 and 2147483647"; // RFC 9113, 6.9.2: this window begins at 65,535 and only grows.
        require((65_535..=window_max).contains(&window), "connection_window_bytes", rule, window)?;
        let hour = 3_600_000;
        for (field, value) in [
            ("round_trip_ms", self.round_trip_ms),
            ("delay_ms", self.delay_ms),
            ("jitter_ms", self.jitter_ms),
            ("stall_ms", self.stall_ms),
            ("quota_interval_ms", self.quota_interval_ms),
        ] {
            require(value <= hour, field, "at most 3600000", value)?;
        }
        require(self.quota_interval_ms > 0, "quota_interval_ms", "at least 1", self.quota_interval_ms)?;
        let is_quota_known = R::HAS_QUOTA || self.quota_count == 0;
        require(is_quota_known, "quota_count", "0 at a provider without a quota", self.quota_count)?;
        let dead_count = self.dead_addresses.len();
        require(dead_count <= ADDRESS_COUNT_MAX, "dead_addresses", "at most 64", dead_count)?;
        let reasons = &self.rejection_reasons;
        let named = self.rejection_probability == 0.0 || !reasons.is_empty();
        require(named, "rejection_reasons", "given with a rejection_probability", "none")?;
        require(reasons.len() <= R::EVERY.len(), "rejection_reasons", "at most one of each", reasons.len())
    }

    fn draw_delay(&self, rng: &mut Xoshiro256PlusPlus) -> Duration {
        let jitter = if self.jitter_ms == 0 { 0 } else { rng.random_range(0..=self.jitter_ms * 1000) };
        Duration::from_micros((self.round_trip_ms + self.delay_ms) * 1000 + jitter)
    }

    /// Draws what the faults do to the next request.
    pub(crate) fn draw_fate(&self, rng: &mut Xoshiro256PlusPlus) -> Fate<R> {
        // Each probability takes its random number, also after one has hit: the next request must get the same numbers.
        let refuse = happens(rng, self.refuse_probability);
        let reset_before = happens(rng, self.reset_before_probability);
        let reset_after = happens(rng, self.reset_after_probability);
        let stall = happens(rng, self.stall_probability);
        let verdicts = [
            (happens(rng, self.internal_error_probability), R::INTERNAL_ERROR),
            (happens(rng, self.unavailable_probability), R::UNAVAILABLE),
            (happens(rng, self.too_many_requests_probability), R::TOO_MANY),
        ];
        let listed = if happens(rng, self.rejection_probability) && !self.rejection_reasons.is_empty() {
            Some(self.rejection_reasons[rng.random_range(0..self.rejection_reasons.len())])
        } else {
            None
        };
        let transport = if refuse {
            Transport::Refuse
        } else if reset_before {
            Transport::ResetBefore
        } else if reset_after {
            Transport::ResetAfter
        } else {
            Transport::Answer
        };
        let verdict = verdicts.into_iter().find_map(|(hit, reason)| hit.then_some(reason)).or(listed);
        Fate { transport, stall, verdict, delay: self.draw_delay(rng) }
    }

    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_millis(self.round_trip_ms)
    }

    /// Whether the device with this address is gone.
    pub(crate) fn is_gone(&self, seed: u64, address: &[u8]) -> bool {
        if self.gone_share == 0.0 {
            return false;
        }
        let mut hasher = Fnv::default();
        seed.hash(&mut hasher);
        hasher.write(address);
        // FNV mixes its high bits poorly for short keys; the finalizer of SplitMix64 spreads them.
        let mut bits = hasher.finish();
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((bits >> 11) as f64) < self.gone_share * (1u64 << 53) as f64
    }
}

/// What the faults do to one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fate<R> {
    pub(crate) transport: Transport,
    pub(crate) stall: bool,
    /// A valid request is rejected with this.
    pub(crate) verdict: Option<R>,
    /// From the end of the request to the answer.
    pub(crate) delay: Duration,
}

/// What happens to the request's stream or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Answer,
    Refuse,
    ResetBefore,
    ResetAfter,
}

/// Takes a random number only for a probability above 0.
pub(crate) fn happens(rng: &mut Xoshiro256PlusPlus, probability: f64) -> bool {
    probability > 0.0 && rng.random::<f64>() < probability
}

fn require(holds: bool, field: &'static str, rule: &'static str, value: impl ToString) -> Result<(), FaultsError> {
    if holds { Ok(()) } else { Err(FaultsError { field, rule, value: value.to_string() }) }
}
