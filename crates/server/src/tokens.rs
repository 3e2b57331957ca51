//! The keys that the tokens of clients are checked with: those of the configuration, and those of JWKS endpoints.
//!
//! The files and secrets of the configuration are read at the start and on SIGHUP. A wrong file at the start ends the
//! start; later the old keys stay. An endpoint is another matter: while it does not answer, the old keys stay, and the
//! server also starts without it. Clients whose key is not known yet are told to come back (`tidings_protocol`,
//! `token/remote.rs`).
//!
//! **When keys are fetched**: at the start, then every `jwks_refresh_interval`; after a failure, on SIGHUP, and when a
//! token names an unknown key, `jwks_fetch_interval_min` after the last fetch began. A token has no part in what is
//! fetched: the address is that of the configuration.
//!
//! **Bounds**, for each endpoint (at most two, one for each kind of token): one fetch at a time, with its own connection,
//! which is closed afterwards; `jwks_timeout`; [`DOCUMENT_BYTES_MAX`]; 64 keys. However many clients ask, one fetch is
//! pending at most.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidings_config::{self as config, Moment, Secret, Token, WebUrl};
use tidings_http1::{Client, ClientConfig, Limits, Request, Roots, SendError, StartError, TlsError};
use tidings_protocol::token::{
    JwksError, RemoteKeys, TokenChecks, TokenKey, TokenRules, TokenSecret, TokenVerifier, read_jwks,
};
use tidings_telemetry::{Counter, Gauge, Registry, chain, metrics, unix_now};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use crate::providers::{CredentialError, read};

/// The largest document with keys: 64 RSA keys of 8192 bits, each with a chain of certificates, take less.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// The largest head of an answer.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The configured keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// A file with a public key or with certificates.
    #[error(transparent)]
    File(#[from] CredentialError),
    /// Nobody can vouch for the endpoint.
    #[error("cannot trust any JWKS endpoint")]
    Tls(#[from] TlsError),
}

/// The keys in use. A drop ends the fetching.
pub(super) struct Tokens {
    verifier: TokenVerifier,
    connection: Option<Endpoint>,
    subscription: Option<Endpoint>,
    _fetching: JoinSet<()>,
}

/// An endpoint whose keys are fetched.
struct Endpoint {
    url: WebUrl,
    keys: RemoteKeys,
    wanted: Arc<Notify>,
}

impl Tokens {
    /// Reads the keys, and waits for the first answer of each endpoint, or for the end of its time. `None` without keys.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub(super) async fn start(client: &config::Client, registry: &Registry) -> Result<Option<Self>, TokensError> {
        if !client.token.has_keys() && !client.subscription_token.has_keys() {
            return Ok(None);
        }
        let mut fetching = JoinSet::new();
        let connection = Endpoint::start(&client.token, "connection", registry, &mut fetching).await?;
        let subscription = Endpoint::start(&client.subscription_token, "subscription", registry, &mut fetching).await?;
        let (of_connections, of_subscriptions) = checks(client, connection.as_ref(), subscription.as_ref())?;
        let verifier = TokenVerifier::with(of_connections, of_subscriptions);
        Ok(Some(Self { verifier, connection, subscription, _fetching: fetching }))
    }

    /// Shares the keys of this value, also those that come later.
    pub(super) fn verifier(&self) -> TokenVerifier {
        self.verifier.clone()
    }

    /// Takes the keys and rules of this configuration, and fetches those of endpoints soon. The log has the result.
    pub(super) fn reload(&self, client: &config::Client) {
        let sections = [(&client.token, &self.connection), (&client.subscription_token, &self.subscription)];
        let is_known = |(token, endpoint): (&Token, &Option<Endpoint>)| {
            token.jwks_url.is_none() || token.jwks_url.as_ref() == endpoint.as_ref().map(|endpoint| &endpoint.url)
        };
        if !sections.into_iter().all(is_known) {
            error!("A `jwks_url` has changed, the old keys of tokens hold until a restart");
            return;
        }
        for endpoint in [&self.connection, &self.subscription].into_iter().flatten() {
            endpoint.wanted.notify_one();
        }
        match checks(client, self.connection.as_ref(), self.subscription.as_ref()) {
            Ok((connection, subscription)) => {
                self.verifier.replace(connection, subscription);
                info!("Keys of tokens reloaded");
            }
            Err(error) => error!(error = chain(&error), "Keys of tokens not reloaded, the old ones hold"),
        }
    }
}

/// The checks of connection tokens and, if they have their own, of subscription tokens.
fn checks(
    client: &config::Client,
    connection: Option<&Endpoint>,
    subscription: Option<&Endpoint>,
) -> Result<(TokenChecks, Option<TokenChecks>), CredentialError> {
    let of = |token: &Token, endpoint: Option<&Endpoint>| -> Result<TokenChecks, CredentialError> {
        let remote = endpoint.filter(|_| token.jwks_url.is_some()).map(|endpoint| endpoint.keys.clone());
        Ok(TokenChecks { keys: configured(token)?, remote, rules: rules(token) })
    };
    let own = client.subscription_token.has_keys().then(|| of(&client.subscription_token, subscription));
    Ok((of(&client.token, connection)?, own.transpose()?))
}

/// The secrets and the public keys of files.
fn configured(token: &Token) -> Result<Vec<TokenKey>, CredentialError> {
    let secret = |secret: &Secret| {
        let secret = TokenSecret::new(secret.expose().as_bytes()).expect("the configuration has no empty secret");
        TokenKey::secret(&secret)
    };
    let current = token.hmac_secret.as_ref().map(secret);
    let previous = token.hmac_previous_secret.as_ref().map(secret).map(|key| match token.hmac_previous_secret_until {
        Some(Moment(end)) => key.until(end),
        None => key,
    });
    let mut keys: Vec<TokenKey> = current.into_iter().chain(previous).collect();
    for file in &token.public_key_files {
        let path = || file.display().to_string();
        let key = TokenKey::public_pem(&read(file)?);
        keys.push(key.map_err(|source| CredentialError::PublicKey { path: path(), source })?);
    }
    Ok(keys)
}

fn rules(token: &Token) -> TokenRules {
    let text = |text: &Option<String>| text.as_deref().map(Box::from);
    TokenRules {
        audience: text(&token.audience),
        audience_pattern: token.audience_regex.clone(),
        issuer: text(&token.issuer),
        issuer_pattern: token.issuer_regex.clone(),
        user_claim: text(&token.user_id_claim),
        leeway: token.leeway,
    }
}

impl Endpoint {
    async fn start(
        token: &Token,
        kind: &'static str,
        registry: &Registry,
        fetching: &mut JoinSet<()>,
    ) -> Result<Option<Self>, TokensError> {
        let Some(url) = token.jwks_url.clone() else { return Ok(None) };
        let wanted = Arc::new(Notify::new());
        let asked = wanted.clone();
        let keys = RemoteKeys::new(move || asked.notify_one());
        let mut fetcher = Fetcher {
            url: url.clone(),
            client: client_config(token, &url)?,
            refresh_interval: token.jwks_refresh_interval,
            fetch_interval_min: token.jwks_fetch_interval_min,
            timeout: token.jwks_timeout,
            keys: keys.clone(),
            wanted: wanted.clone(),
            metrics: Metrics::new(registry, kind),
            is_failing: false,
        };
        let (began, is_fetched) = (Instant::now(), fetcher.fetch().await);
        fetching.spawn(fetcher.run(began, is_fetched));
        Ok(Some(Self { url, keys, wanted }))
    }
}

/// Reads the certificates to trust once, not at each fetch.
fn client_config(token: &Token, url: &WebUrl) -> Result<ClientConfig, TokensError> {
    let roots = match &token.jwks_ca_file {
        _ if !url.origin.is_tls() => Roots::Native, // Nobody reads them.
        None => Roots::Config(Roots::Native.client_config()?),
        Some(file) => Roots::Config(Roots::Pem(read(file)?).client_config()?),
    };
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, body_bytes_max: DOCUMENT_BYTES_MAX };
    let mut client = ClientConfig { limits, roots, ..ClientConfig::new("jwks", 1) };
    (client.pool.silence_max, client.pool.connect_timeout) = (token.jwks_timeout, token.jwks_timeout);
    Ok(client)
}

/// Why there are no new keys.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("the answer has status {0}")]
    Status(u16),
    #[error("the answer is {0}")]
    Document(#[from] JwksError),
}

struct Fetcher {
    url: WebUrl,
    client: ClientConfig,
    refresh_interval: Duration,
    fetch_interval_min: Duration,
    timeout: Duration,
    keys: RemoteKeys,
    wanted: Arc<Notify>,
    metrics: Metrics,
    /// The log has said so.
    is_failing: bool,
}

impl Fetcher {
    /// Fetches when it is time; `began`: the last fetch, and whether it succeeded.
    async fn run(mut self, mut began: Instant, mut is_fetched: bool) {
        loop {
            sleep_until(began + self.fetch_interval_min).await;
            if is_fetched {
                let refresh = pin!(sleep_until(began + self.refresh_interval));
                tokio::select! {
                    () = self.wanted.notified() => {}
                    () = refresh => {}
                }
            }
            began = Instant::now();
            is_fetched = self.fetch().await;
        }
    }

    /// Fetches the keys once. Returns whether there are new ones; otherwise the old ones stay.
    async fn fetch(&mut self) -> bool {
        let fetched = self.document().await;
        self.metrics.count(&fetched);
        let (endpoint, was_failing) = (&self.url.origin, self.is_failing);
        self.is_failing = fetched.is_err();
        match fetched {
            Ok(keys) => {
                let now = unix_now();
                if was_failing {
                    info!(%endpoint, count = keys.len(), "Keys of tokens are fetched again");
                }
                self.keys.replace(keys, now, now.saturating_add(self.fetch_interval_min));
                true
            }
            Err(error) => {
                if !was_failing {
                    warn!(%endpoint, error = chain(&error), "Cannot fetch the keys of tokens, the old ones hold, trying again");
                }
                false
            }
        }
    }

    async fn document(&self) -> Result<Vec<TokenKey>, FetchError> {
        // A connection of its own: between two fetches, minutes apart, nobody keeps one open.
        let client = Client::start(&self.url.origin, self.client.clone())?;
        let request = Request::get(&self.url.target).expect("the target was checked with the address").repeat(false);
        let response = client.send(request, self.timeout).await?;
        match response.status().as_u16() {
            200 => Ok(read_jwks(response.body())?),
            status => Err(FetchError::Status(status)),
        }
    }
}

struct Metrics {
    fetched: Counter,
    failed: Counter,
    keys: Gauge,
}

impl Metrics {
    fn new(registry: &Registry, kind: &'static str) -> Self {
        let fetches = |result| registry.counter(&metrics::server::JWKS_FETCHES_TOTAL, &[kind, result]);
        let keys = registry.gauge(&metrics::server::JWKS_KEYS, &[kind]);
        Self { fetched: fetches("fetched"), failed: fetches("failed"), keys }
    }

    fn count(&self, fetched: &Result<Vec<TokenKey>, FetchError>) {
        match fetched {
            Ok(keys) => {
                self.fetched.inc();
                self.keys.set(keys.len() as i64);
            }
            Err(_) => self.failed.inc(),
        }
    }
}

#[cfg(test)]
mod tests;
