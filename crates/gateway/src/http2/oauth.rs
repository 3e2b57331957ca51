//! Access tokens that somebody else makes: fetched once for all connections and threads of a gateway.
//!
//! When one is due, what an answer means and how long to wait after a failure, [`AccessTokens`] says; here it is
//! fetched, over a connection of its own each time, since it is needed once an hour. Connections send nothing while
//! there is no token; what is to be sent waits in the lakes then. A fetch that fails is tried again for ever: an
//! operator may repair it, or the network.
//!
//! A gateway with such a credential has one more thread for this, `gateway-tokens`: in a drain the others come to their
//! end one by one, and the last may need tokens for longer than any of them lives. Gateways that share an [`OAuth`] all
//! look after it; one of them fetches at a time, and another goes on if that one ends.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tidings_http1::{Client, ClientConfig, Limits, Origin, OriginError, Request, Roots};
use tidings_push::fcm::oauth::{AccessToken, AccessTokens, ServiceAccount, TokenError, read_answer};
use tidings_telemetry::{chain, unix_now};
use tidings_types::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::connect::Access;
use super::connection::Shared;
use super::health::HealthWatch;
use crate::metrics::Metrics;

/// How long one attempt may take, connecting included; under `tidings_push`'s `REFRESH_TIMEOUT`.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);
/// A token has some 1 KiB, an error less.
const LIMITS: Limits = Limits { head_bytes_max: 16 * 1024, body_bytes_max: 16 * 1024 };
/// A clock that is set is noticed this soon.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The access tokens of one service account. Made from its key; the [`crate::Gateway`] that has it as its credential
/// fetches them.
pub struct OAuth {
    account: ServiceAccount,
    origin: Origin,
    /// Path and query at the origin.
    target: String,
    tokens: AccessTokens,
    /// Counts what happens to them: one came, or one was refused.
    changes: watch::Sender<u64>,
}

impl OAuth {
    /// Tokens for this account, from the endpoint that its key names.
    ///
    /// # Errors
    /// When that endpoint is no address of a server.
    pub fn new(account: ServiceAccount) -> Result<Self, OriginError> {
        let (origin, target) = Origin::split(account.token_uri())?;
        Ok(Self { account, origin, target, tokens: AccessTokens::new(), changes: watch::Sender::new(0) })
    }

    /// Whether both are the same account with the same key: then they ask alike, for such signatures have no chance in
    /// them (RFC 8017, 8.2).
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

    /// Fetches whenever it is due, for ever.
    ///
    /// # Cancel safety
    /// Cancel safe: a fetch that is broken off may be begun again at once.
    async fn keep_fresh(&self, roots: &Roots, teller: &Teller) {
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
    fn begin_refresh(&self) -> Option<Refresh<'_>> {
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

/// A refresh that has begun. Dropped without an answer, it lets another begin.
struct Refresh<'a> {
    oauth: &'a OAuth,
    is_answered: bool,
}

impl Refresh<'_> {
    fn end(mut self, answer: &Result<AccessToken, TokenError>) {
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

/// Tells operators what came of a fetch.
#[derive(Clone)]
struct Teller {
    provider: &'static str,
    pool: String,
    metrics: Metrics,
    health: HealthWatch,
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

/// Has the tokens fetched of whatever credential the gateway has at the time, for as long as there is the gateway:
/// dropping the future, which never ends, changes nothing about that.
pub(crate) async fn keep_fresh(mut access: watch::Receiver<Arc<Access>>, shared: Rc<Shared>) {
    let is_needed = access.wait_for(|access| access.credential.oauth().is_some()).await.is_ok();
    if is_needed {
        let Shared { provider, pool, metrics, health, .. } = &*shared;
        let (pool, metrics, health) = (pool.clone(), metrics.clone(), health.clone());
        let teller = Teller { provider, pool, metrics, health };
        let builder = std::thread::Builder::new().name("gateway-tokens".to_owned());
        if let Err(error) = follow_apart(builder, access.clone(), teller.clone()).await {
            let (provider, pool) = (&teller.provider, &teller.pool);
            error!(provider, pool, error = chain(&error), "No thread for access tokens, a drain may end without one");
            follow(access, teller).await;
        }
    }
    std::future::pending().await
}

/// [`follow`] in a thread of its own, which ends by itself when the gateway is gone; passes its panic on.
///
/// # Errors
/// When there is no such thread.
///
/// # Cancel safety
/// The thread goes on.
async fn follow_apart(
    builder: std::thread::Builder,
    access: watch::Receiver<Arc<Access>>,
    teller: Teller,
) -> io::Result<()> {
    let (ended_tx, ended) = oneshot::channel();
    // The runtime is made in there: one that ends in here, because there is no thread, would panic.
    let thread = builder.spawn(move || {
        _ = ended_tx.send(block_on(follow(access, teller))); // Nobody listens when who asked has come to its end.
    })?;
    match ended.await {
        Ok(result) => result,
        Err(_) => thread.join().map_err(|panic| std::panic::resume_unwind(panic)),
    }
}

fn block_on(future: impl Future<Output = ()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(future);
    // A name being resolved would hold up a plain shutdown.
    runtime.shutdown_background();
    Ok(())
}

/// Fetches for one credential after the other, until the gateway is gone.
async fn follow(mut access: watch::Receiver<Arc<Access>>, teller: Teller) {
    loop {
        let current = Arc::clone(&access.borrow_and_update());
        let fetching = async {
            match current.credential.oauth() {
                Some(oauth) => oauth.keep_fresh(&current.roots(), &teller).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = access.changed() => if changed.is_err() {
                return;
            },
            () = fetching => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::authorization::Authorization;
    use crate::http2::credential::Credential;

    fn oauth() -> OAuth {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap().serialize_pem();
        let file = serde_json::json!({
            "project_id": "p", "private_key_id": "k", "private_key": key, "client_email": "a@b.example",
            "token_uri": "https://localhost/token",
        });
        OAuth::new(ServiceAccount::parse(file.to_string().as_bytes()).unwrap()).unwrap()
    }

    fn token(name: &'static str, fetched_at: Timestamp) -> AccessToken {
        let expires_at = fetched_at.saturating_add(Duration::from_secs(3600));
        AccessToken { authorization: HeaderValue::from_static(name), fetched_at, expires_at }
    }

    #[tokio::test]
    async fn without_a_thread_of_their_own_tokens_are_fetched_all_the_same() {
        let access = Access::new(Credential::OAuth(Arc::new(oauth())), None).unwrap();
        let metrics = Metrics::new(&tidings_telemetry::Registry::new(), tidings_types::Provider::Fcm, "p");
        let teller = Teller { provider: "fcm", pool: "p".to_owned(), metrics, health: HealthWatch::new() };
        let (alive, access) = watch::channel(Arc::new(access));
        let too_large = || std::thread::Builder::new().stack_size(1 << 60);
        follow_apart(too_large(), access.clone(), teller.clone()).await.expect_err("no memory has so much");
        drop(alive);
        follow_apart(std::thread::Builder::new(), access, teller).await.expect("the gateway is gone, so it ends");
    }

    #[test]
    fn many_that_are_refused_have_one_token_fetched() {
        let (oauth, now) = (Arc::new(oauth()), unix_now());
        let old = Timestamp(now.as_millis() - 600_000);
        oauth.tokens.on_answer(&Ok(token("old", old)), 0, old);
        let connect = || Authorization::new(&Credential::OAuth(Arc::clone(&oauth)));
        let mut connections: Vec<_> = (0..50).map(|_| connect()).collect();
        let numbers: Vec<_> = connections.iter_mut().map(|it| it.header(now).1).collect();
        let mut changes = oauth.subscribe();
        for (connection, number) in connections.iter_mut().zip(&numbers) {
            assert!((0..3).all(|_| connection.on_expired(*number, now)), "another will be fetched");
            assert!(!connection.is_ready(now));
            assert!(changes.has_changed().unwrap(), "or who fetches would sleep on");
            changes.mark_unchanged();
        }
        let refresh = oauth.begin_refresh().expect("it is due");
        assert!(oauth.begin_refresh().is_none(), "one at a time");
        drop(refresh);
        assert!(changes.has_changed().unwrap(), "another gateway goes on");
        oauth.begin_refresh().expect("nobody fetches").end(&Ok(token("new", now)));
        for (connection, number) in connections.iter_mut().zip(numbers) {
            assert!(connection.is_ready(now) && connection.on_expired(number, now), "a late answer to the old one");
            let (header, number) = connection.header(now);
            assert_eq!(header, Some(HeaderValue::from_static("new")));
            assert!(!connection.on_expired(number, now), "a third one would not help");
        }
        assert!(oauth.begin_refresh().is_none());
    }
}
