//! The public client: one origin, with a pool of connections to it.
//!
//! Queue: `pool.backlog_max` requests per connection. Full: [`SendError::Backlog`] at once. Closed: requests that are
//! left at the end of [`Client::drain`] end with [`SendError::Closed`]. Memory per connection: its waiting requests, a
//! read of 32 KiB, a head ([`Limits::head_bytes_max`]) and one body ([`Limits::body_bytes_max`]). Head and body take
//! twice as much while they grow.

use std::fmt;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tidings_pool::{Answer, CallError, ConfigError, Connect, Counters, Pool, PoolConfig, Tcp, Tls};
use tokio::sync::mpsc;

use crate::protocol::{Http1, Http1Error};
use crate::tls::{Roots, TlsError};
use crate::{Limits, Origin, Request, RequestError, Response};

/// Why a request has no response; [`CallError`] explains the variants.
///
/// A status such as 500 is not an error: it is a response.
pub type SendError = CallError<Http1Error>;

/// The settings of a client.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Number of connections, depth of pipelines, timeouts. If `input_bytes_max` is less than
    /// [`Limits::head_bytes_max`], it is raised to that.
    pub pool: PoolConfig,
    /// The most bytes of one answer.
    pub limits: Limits,
    /// What happens with a body over [`Limits::body_bytes_max`]. If true, the answer is returned without its body, and
    /// the connection is closed after it ([`crate::Parser::skip_large_bodies`]). If false, it is a violation.
    pub skip_large_bodies: bool,
    /// The certificates that prove an `https` server.
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
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There are no trusted certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No certificate can be for this host.
    #[error("host {0} is not a name for which a certificate can be issued")]
    ServerName(String),
    /// The limit of heads is too small.
    #[error("head_bytes_max is {value}, must be at least {min}")]
    HeadLimit {
        /// The value of the setting.
        value: usize,
        /// The smallest allowed value.
        min: usize,
    },
}

/// Every server sends larger heads than this.
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
    /// [`StartError`]. A server that cannot be reached is not an error here: requests report it.
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

    /// Like [`start`](Self::start), with another connector: a Unix socket, another address, or your own TLS.
    /// `config.roots` is ignored.
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
    /// [`SendError`]; [`CallError::may_have_been_sent`] says whether the server may have acted on the request. A full
    /// backlog and an unavailable server are reported at once.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the request was written, the request is withdrawn. Otherwise its answer is
    /// discarded when it arrives.
    pub async fn send(&self, request: Request, timeout: Duration) -> Result<Response, SendError> {
        self.pool.call(request, timeout).await
    }

    /// Sends a request whose response goes to `answers`, together with `tag`: exactly one for each accepted request.
    /// Its place in the channel is reserved now.
    ///
    /// # Errors
    ///
    /// Errors that are known at once: [`SendError::Backlog`], [`SendError::Unavailable`], [`SendError::Closed`].
    pub fn cast(
        &self,
        request: Request,
        timeout: Duration,
        tag: u64,
        answers: &mpsc::Sender<Answer<Http1>>,
    ) -> Result<(), SendError> {
        self.pool.cast(request, timeout, tag, answers)
    }

    /// Ends the pauses before the next attempts to connect, like [`Pool::reconnect`].
    pub fn reconnect(&self) {
        self.pool.reconnect();
    }

    /// Accepts no more requests, and closes when the existing ones are answered, after `timeout` at the latest. Returns
    /// whether all were answered.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client goes on draining; `drain` can be called again.
    pub async fn drain(&self, timeout: Duration) -> bool {
        self.pool.drain(timeout).await
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.pool.counters()
    }

    /// The origin.
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
