//! Access tokens from a token endpoint, fetched once for all connections and threads of a gateway.
//!
//! [`AccessTokens`] decides when a fetch is due, what an answer means and how long to wait after a failure. This module
//! fetches, over a new connection each time, because that is needed once an hour. While there is no token, connections
//! send nothing and notifications wait in the lakes. A failed fetch is tried again without end, because the operator or
//! the network may repair the cause.
//!
//! Each gateway that shares an [`OAuth`] has a thread for it (`token_thread`). One of them fetches at a time, and
//! another continues if that one ends.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use tidings_http1::{Client, ClientConfig, Limits, Origin, OriginError, Request, Roots};
use tidings_push::fcm::oauth::{AccessToken, AccessTokens, ServiceAccount, TokenError, read_answer};
use tidings_telemetry::{chain, unix_now};
use tidings_types::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::health::HealthWatch;
use crate::metrics::Metrics;

/// How long one attempt may take, connecting included; under `tidings_push`'s `REFRESH_TIMEOUT`.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);
/// A token has some 1 KiB, an error less.
const LIMITS: Limits = Limits { head_bytes_max: 16 * 1024, body_bytes_max: 16 * 1024 };
/// A change of the clock is noticed within this time.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The access tokens of one service account. Made from its key; the [`crate::Gateway`] that has it as its credential
/// fetches them.
pub struct OAuth {
    account: ServiceAccount,
    origin: Origin,
    /// Path and query at the origin.
    target: String,
    tokens: AccessTokens,
    /// Counts changes: a token came, or a token was refused.
    changes: watch::Sender<u64>,
}

impl OAuth {
    /// Tokens for this account, from the endpoint that its key names.
    ///
    /// # Errors
    /// If that endpoint is not a valid server address.
    pub fn new(account: ServiceAccount) -> Result<Self, OriginError> {
        let (origin, target) = Origin::split(account.token_uri())?;
        Ok(Self { account, origin, target, tokens: AccessTokens::new(), changes: watch::Sender::new(0) })
    }

    /// Whether both are the same account with the same key. Then they sign the same, because these signatures are
    /// deterministic (RFC 8017, 8.2).
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let asked = |oauth: &Self| oauth.account.token_request(Timestamp(0));
        self.account.token_uri() == other.account.token_uri() && asked(self) == asked(other)
    }

    /// The header with the token there is, if it can be used.
    pub(crate) fn authorization(&self, now: Timestamp) -> Option<HeaderValue> {
        self.tokens.authorization(now)
    }

    /// The provider has refused this header. Returns whether there is, or will be, another one.
    pub(crate) fn on_refused(&self, used: &HeaderValue, now: Timestamp) -> bool {
        let renewed = self.tokens.on_refused(used, now);
        self.on_change();
        renewed
    }

    /// Changes when something happens to the tokens.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn on_change(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Fetches whenever it is due. Never ends.
    ///
    /// # Cancel safety
    /// Cancel safe: an interrupted fetch may be started again at once.
    pub(super) async fn keep_fresh(&self, roots: &Roots, teller: &Teller) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(refresh) = self.begin_refresh() {
                let answer = self.fetch(roots).await;
                teller.tell(&answer);
                refresh.end(&answer);
                continue;
            }
            let pause = self.tokens.refresh_after(unix_now()).clamp(Duration::from_millis(1), WAIT_MAX);
            tokio::select! {
                () = sleep(pause) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// The right to fetch, if it is due and nobody else has it.
    pub(super) fn begin_refresh(&self) -> Option<Refresh<'_>> {
        self.tokens.begin_refresh(unix_now()).then(|| Refresh { oauth: self, is_answered: false })
    }

    async fn fetch(&self, roots: &Roots) -> Result<AccessToken, TokenError> {
        let unavailable = |error: &dyn std::error::Error| TokenError::Unavailable(chain(error));
        let request = Request::post(&self.target)
            .and_then(|request| request.header("content-type", "application/x-www-form-urlencoded"))
            .map_err(|error| unavailable(&error))?
            .body(self.account.token_request(unix_now()));
        let mut config = ClientConfig { roots: roots.clone(), limits: LIMITS, ..ClientConfig::new("oauth", 1) };
        config.pool.connect_timeout = FETCH_TIMEOUT;
        let client = Client::start(&self.origin, config).map_err(|error| unavailable(&error))?;
        let response = client.send(request, FETCH_TIMEOUT).await;
        client.drain(Duration::ZERO).await;
        let response = response.map_err(|error| unavailable(&error))?;
        read_answer(response.status(), response.body(), unix_now())
    }
}

// Neither key nor token ever reaches a log.
impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("account", &self.account).finish_non_exhaustive()
    }
}

/// A refresh that has begun. If dropped without an answer, another may begin.
pub(super) struct Refresh<'a> {
    oauth: &'a OAuth,
    is_answered: bool,
}

impl Refresh<'_> {
    pub(super) fn end(mut self, answer: &Result<AccessToken, TokenError>) {
        self.oauth.tokens.on_answer(answer, rand::random(), unix_now());
        self.is_answered = true;
    }
}

impl Drop for Refresh<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.oauth.tokens.on_abandoned();
        }
        self.oauth.on_change();
    }
}

/// Logs the result of a fetch.
#[derive(Clone)]
pub(super) struct Teller {
    /// The names for logs.
    pub(super) provider: &'static str,
    pub(super) pool: String,
    pub(super) metrics: Metrics,
    pub(super) health: HealthWatch,
}

impl Teller {
    fn tell(&self, answer: &Result<AccessToken, TokenError>) {
        let Self { provider, pool, metrics, health } = self;
        let Err(failure) = answer else {
            metrics.tokens_fetched.inc();
            health.on_taken();
            return info!(provider, pool, "Access token fetched");
        };
        metrics.token_failures.inc();
        let error = chain(failure);
        match failure {
            TokenError::Refused(_) => {
                health.on_refused();
                error!(provider, pool, error, "Service account is refused");
            }
            TokenError::Unavailable(_) | TokenError::Unreadable => {
                warn!(provider, pool, error, "Cannot fetch an access token");
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Tokens of an account that is nobody's.
    pub(crate) fn oauth() -> OAuth {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap().serialize_pem();
        let file = serde_json::json!({
            "project_id": "p", "private_key_id": "k", "private_key": key, "client_email": "a@b.example",
            "token_uri": "https://localhost/token",
        });
        OAuth::new(ServiceAccount::parse(file.to_string().as_bytes()).unwrap()).unwrap()
    }
}
