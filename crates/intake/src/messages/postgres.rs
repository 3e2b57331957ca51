//! A connection to PostgreSQL that is safe with a database that lies: each byte passes a [`Fence`] before the library reads it,
//! each wait has an end, and statements go out in the simple protocol.
//!
//! In the extended protocol the library asks the database what a type is that it does not know, and asks again for each type
//! that the answer names. An answer without an end overflows the stack, which ends the process. In the simple protocol all
//! values are text, and no type is asked for. So `query`, `execute` and `prepare` of the library must not be called.

mod fence;

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{MapOk, TryFutureExt as _};
use rand::seq::SliceRandom as _;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, SimpleQueryMessage, SimpleQueryRow};
use tokio_postgres_rustls::MakeRustlsConnect;

use self::fence::Fence;

/// How long the database may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one of its addresses may take until it is ready, if the connection string does not say.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);
/// The most addresses of a host that are tried.
const ADDRESS_COUNT_MAX: usize = 8;
const PORT: u16 = 5432;

/// What is wrong with the database; the text has no password and no row.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseFailure {
    /// No host takes a connection. The last failure.
    #[error("cannot connect to the database")]
    Connect(#[source] io::Error),
    /// It refuses, or what it says is refused.
    #[error("the database refuses or does not answer")]
    Refused(#[from] tokio_postgres::Error),
    /// It takes too long.
    #[error("the database did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Silent(#[from] tokio::time::error::Elapsed),
    /// It answers with something else than was asked for.
    #[error("the database answers with {0}")]
    Answer(&'static str),
}

/// Takes a row, or says what is wrong with it.
pub(super) type OnRow<'a> = dyn FnMut(&SimpleQueryRow) -> Result<(), &'static str> + Send + 'a;

/// A connection. It ends when this is dropped.
pub(super) struct Database {
    client: Client,
    driver: JoinSet<Result<(), tokio_postgres::Error>>,
}

impl Database {
    /// Connects to the first address of the first host that takes it; each has its own time. `woken` is told of each notification,
    /// and of the connection's end.
    pub(super) async fn connect(
        config: &Config,
        tls: &rustls::ClientConfig,
        woken: &Arc<Notify>,
    ) -> Result<Self, DatabaseFailure> {
        let mut failure = DatabaseFailure::Connect(io::Error::new(io::ErrorKind::NotFound, "no host is named"));
        let limit = config.get_connect_timeout().copied().filter(|limit| !limit.is_zero()).unwrap_or(HOST_TIMEOUT);
        let late = || DatabaseFailure::Connect(io::ErrorKind::TimedOut.into());
        for at in places(config) {
            let found = match timeout(limit, at.addresses()).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    failure = DatabaseFailure::Connect(error);
                    continue;
                }
                Err(_) => {
                    failure = late();
                    continue;
                }
            };
            for address in found {
                match timeout(limit, connect_to(&address, &at, config, tls, woken)).await {
                    Ok(Ok(database)) => return Ok(database),
                    Ok(Err(error)) => failure = error,
                    Err(_) => failure = late(),
                }
            }
        }
        Err(failure)
    }

    /// Runs statements, and gives each row of their answers to `row`. `row` says what is wrong with a row.
    pub(super) async fn run(&mut self, statements: &str, row: &mut OnRow<'_>) -> Result<(), DatabaseFailure> {
        let client = &self.client;
        let answer = async {
            let mut answers = pin!(client.simple_query_raw(statements).await?);
            while let Some(answer) = answers.next().await {
                if let SimpleQueryMessage::Row(answer) = answer? {
                    row(&answer).map_err(DatabaseFailure::Answer)?;
                }
            }
            Ok(())
        };
        match timeout(ANSWER_TIMEOUT, answer).await? {
            // The client only knows that the connection is closed, the driver knows why.
            Err(DatabaseFailure::Refused(error)) if error.is_closed() => match self.driver.join_next().await {
                Some(Ok(Err(cause))) => Err(cause.into()),
                _ => Err(error.into()),
            },
            answer => answer,
        }
    }
}

/// A host of the database.
struct Endpoint {
    host: Host,
    /// The name that its certificate must have.
    name: Option<String>,
    port: u16,
}

/// Where a host is.
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Endpoint {
    /// At most [`ADDRESS_COUNT_MAX`].
    async fn addresses(&self) -> io::Result<Vec<Address>> {
        match &self.host {
            Host::Unix(folder) => Ok(vec![Address::Unix(folder.join(format!(".s.PGSQL.{}", self.port)))]),
            Host::Tcp(host) => {
                let found = lookup_host((host.clone(), self.port)).await?;
                Ok(found.take(ADDRESS_COUNT_MAX).map(Address::Tcp).collect())
            }
        }
    }
}

/// The hosts, as libpq reads them: `hostaddr` says where a host is, `host` its name.
fn places(config: &Config) -> Vec<Endpoint> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let place = |index: usize| {
        let host = hosts.get(index);
        let address = addresses.get(index).map(|address: &IpAddr| Host::Tcp(address.to_string()));
        let name = host.and_then(|host| if let Host::Tcp(name) = host { Some(name.clone()) } else { None });
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
        Some(Endpoint { host: address.or_else(|| host.cloned())?, name, port })
    };
    let mut places: Vec<_> = (0..hosts.len().max(addresses.len())).filter_map(place).collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        places.shuffle(&mut rand::rng());
    }
    places
}

async fn connect_to(
    address: &Address,
    at: &Endpoint,
    config: &Config,
    tls: &rustls::ClientConfig,
    woken: &Arc<Notify>,
) -> Result<Database, DatabaseFailure> {
    let inner = open(address, config).await.map_err(DatabaseFailure::Connect)?;
    let fence = match (config.get_ssl_mode(), config.get_ssl_negotiation()) {
        (SslMode::Disable, _) => Fence::new(false),
        (_, SslNegotiation::Direct) => Fence::unread(),
        _ => Fence::new(true),
    };
    let mut tls = MakeRustlsConnect::new(tls.clone());
    let tls = MakeTlsConnect::<Fenced<Line>>::make_tls_connect(&mut tls, at.name.as_deref().unwrap_or_default());
    let tls = tls.map_err(|error| DatabaseFailure::Connect(io::Error::other(error)))?;
    // The compiler does not see through the library's types that this may move to another thread.
    let connecting: Pin<Box<dyn Future<Output = Connected> + Send + '_>> =
        Box::pin(config.connect_raw(Fenced { inner, fence }, FencedTls(tls)));
    let (client, mut connection) = connecting.await?;
    let woken = woken.clone();
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        let ended = loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(_))) => woken.notify_one(),
                Some(Ok(_)) => {}
                Some(Err(error)) => break Err(error),
                None => break Ok(()),
            }
        };
        woken.notify_one(); // The next question finds that the connection has ended.
        ended
    });
    let mut database = Database { client, driver };
    let wanted = match config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite => Some("off"),
        TargetSessionAttrs::ReadOnly => Some("on"),
        _ => None,
    };
    if let Some(wanted) = wanted {
        let mut check = |row: &SimpleQueryRow| match row.try_get(0) {
            Ok(Some(found)) if found == wanted => Ok(()),
            _ => Err("another kind of session than `target_session_attrs` asks for"),
        };
        database.run("SHOW transaction_read_only", &mut check).await?;
    }
    Ok(database)
}

type Tls = <MakeRustlsConnect as MakeTlsConnect<Fenced<Line>>>::Stream;
type Connected = Result<(Client, Connection<Fenced<Line>, Fenced<Tls>>), tokio_postgres::Error>;

/// A socket, of either kind.
type Line = Box<dyn Socket>;

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

async fn open(address: &Address, config: &Config) -> io::Result<Line> {
    let stream = match address {
        Address::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        Address::Tcp(address) => TcpStream::connect(address).await?,
    };
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_user_timeout(config.get_tcp_user_timeout().copied())?;
    if config.get_keepalives() {
        let mut keepalive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
        if let Some(interval) = config.get_keepalives_interval() {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(retries) = config.get_keepalives_retries() {
            keepalive = keepalive.with_retries(retries);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    Ok(Box::new(stream))
}

/// A stream whose bytes pass a fence before they are read.
struct Fenced<S> {
    inner: S,
    fence: Fence,
}

impl<S: AsyncRead + Unpin> AsyncRead for Fenced<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { inner, fence } = self.get_mut();
        let before = into.filled().len();
        std::task::ready!(Pin::new(inner).poll_read(context, into))?;
        Poll::Ready(fence.pass(&into.filled()[before..]).map_err(io::Error::from))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Fenced<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Fenced<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.inner.channel_binding()
    }
}

/// Puts a fence behind TLS.
struct FencedTls<T>(T);

impl<S, T> TlsConnect<S> for FencedTls<T>
where
    T: TlsConnect<S>,
{
    type Stream = Fenced<T::Stream>;
    type Error = T::Error;
    type Future = MapOk<T::Future, fn(T::Stream) -> Fenced<T::Stream>>;

    fn connect(self, stream: S) -> Self::Future {
        self.0.connect(stream).map_ok(|inner| Fenced { inner, fence: Fence::new(false) })
    }
}
