//! The client as its users see it: one origin, a pool of connections to it.
//!
//! Queue: `pool.backlog_max` requests per connection. Full: [`SendError::Backlog`] at once. Closed: what is left at the
//! end of [`Client::drain`] ends with [`SendError::Closed`]. Memory: per connection what the backlog's requests take,
//! a read of 32 KiB and a head ([`Limits::head_bytes_max`]), twice while they grow; and one body
//! ([`Limits::body_bytes_max`]), twice while it grows.

use std::fmt;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tidings_pool::{Answer, CallError, ConfigError, Connect, Counters, Pool, PoolConfig, Tcp, Tls};
use tokio::sync::mpsc;

use crate::protocol::{Http1, Http1Error};
use crate::tls::{Roots, TlsError};
use crate::{Limits, Origin, Request, RequestError, Response};

/// Why a request has no response; the variants are explained at [`CallError`].
///
/// A status like 500 is no error: it is a response.
pub type SendError = CallError<Http1Error>;

/// The settings of a client.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How many connections, how deep the pipelines, how long to wait. `input_bytes_max` is raised to
    /// [`Limits::head_bytes_max`] where it is less.
    pub pool: PoolConfig,
    /// How much a server may send for one answer.
    pub limits: Limits,
    /// Whether an answer with a body over [`Limits::body_bytes_max`] is an answer without its body, and the connection's
    /// last ([`crate::Parser::skip_large_bodies`]), instead of a violation.
    pub skip_large_bodies: bool,
    /// Who proves that an `https` server is who it says.
    pub roots: Roots,
}

impl ClientConfig {
    /// Settings to start from: those of [`PoolConfig::new`], heads of 16 KiB, bodies of 1 MiB, the system's roots;
    /// larger bodies are a violation.
    pub fn new(name: impl Into<String>, connection_count: usize) -> Self {
        Self {
            pool: PoolConfig::new(name, connection_count),
            limits: Limits { head_bytes_max: 16 * 1024, body_bytes_max: 1024 * 1024 },
            skip_large_bodies: false,
            roots: Roots::Native,
        }
    }
}

/// Why a client cannot start.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody to trust.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No certificate could be for that host.
    #[error("host {0} is no name that a certificate could be for")]
    ServerName(String),
    /// Heads must have room.
    #[error("head_bytes_max is {value}, must be at least {min}")]
    HeadLimit {
        /// What it is.
        value: usize,
        /// The smallest allowed.
        min: usize,
    },
}

/// Less than that no server keeps to.
const HEAD_BYTES_MIN: usize = 256;

/// A client of one origin. Clones share the pool; when the last is dropped, its connections are cut.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tidings_http1::{Client, ClientConfig, Origin, Request};
///
/// let (origin, target) = Origin::split("https://example.com/hooks/goal")?;
/// let client = Client::start(&origin, ClientConfig::new("hooks", 4))?;
/// let request = Request::post(&target)?.header("content-type", "application/json")?.body("{}");
/// let response = client.send(request, Duration::from_secs(5)).await?;
/// println!("{}: {} bytes", response.status(), response.body().len());
/// client.drain(Duration::from_secs(1)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    origin: Origin,
    pool: Pool<Http1>,
}

impl Client {
    /// Starts connecting to the origin, over TCP, or TLS on TCP for `https`.
    ///
    /// # Errors
    ///
    /// [`StartError`]. That the server cannot be reached is none: requests say so.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time.
    pub fn start(origin: &Origin, config: ClientConfig) -> Result<Self, StartError> {
        let address = match origin.host() {
            host if host.contains(':') => format!("[{host}]:{}", origin.port()),
            host => format!("{host}:{}", origin.port()),
        };
        if !origin.is_tls() {
            return Self::start_over(origin, config, Tcp::new(address));
        }
        let server_name = ServerName::try_from(origin.host().to_owned())
            .map_err(|_| StartError::ServerName(origin.host().to_owned()))?;
        let tls = Tls::new(address, server_name, config.roots.client_config()?);
        Self::start_over(origin, config, tls)
    }

    /// As [`start`](Self::start), over connections made otherwise: a Unix socket, another address, or TLS of one's
    /// own. `config.roots` is not looked at.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time.
    pub fn start_over(origin: &Origin, config: ClientConfig, connector: impl Connect) -> Result<Self, StartError> {
        let ClientConfig { mut pool, limits, skip_large_bodies, .. } = config;
        if limits.head_bytes_max < HEAD_BYTES_MIN {
            return Err(StartError::HeadLimit { value: limits.head_bytes_max, min: HEAD_BYTES_MIN });
        }
        pool.input_bytes_max = pool.input_bytes_max.max(limits.head_bytes_max);
        let protocol = Http1::new(origin, limits).skip_large_bodies(skip_large_bodies);
        let pool = Pool::start(pool, protocol, connector)?;
        Ok(Self { origin: origin.clone(), pool })
    }

    /// Sends a request and waits for its response, at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`SendError`]; [`CallError::may_have_been_sent`] says whether the server may have acted on it. Backlog and
    /// unavailability are told at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request if it was not written yet; otherwise its answer is discarded when it
    /// comes.
    pub async fn send(&self, request: Request, timeout: Duration) -> Result<Response, SendError> {
        self.pool.call(request, timeout).await
    }

    /// Sends a request whose response goes to `answers`, with `tag` to know it by: exactly one for each that was
    /// accepted. Its place in the channel is reserved now.
    ///
    /// # Errors
    ///
    /// What is known at once: [`SendError::Backlog`], [`SendError::Unavailable`], [`SendError::Closed`].
    pub fn cast(
        &self,
        request: Request,
        timeout: Duration,
        tag: u64,
        answers: &mpsc::Sender<Answer<Http1>>,
    ) -> Result<(), SendError> {
        self.pool.cast(request, timeout, tag, answers)
    }

    /// Ends the pauses before the next attempts to connect, as [`Pool::reconnect`] does.
    pub fn reconnect(&self) {
        self.pool.reconnect();
    }

    /// Takes no more requests and closes when those it has are answered, after `timeout` at the latest. Returns whether
    /// none was cut off.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the client goes on draining; it can be called again.
    pub async fn drain(&self, timeout: Duration) -> bool {
        self.pool.drain(timeout).await
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.pool.counters()
    }

    /// Where it sends to.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl From<RequestError> for Http1Error {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}
