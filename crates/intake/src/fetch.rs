//! Fetches the document of a polled feed: one request, its redirects, and the body piece by piece.
//!
//! A feed's server may be anybody's, and a redirect may name any address, also one of this server's own network. So
//! every hop passes a guard: the name is looked up, addresses that are not public are left out, unless the operator
//! allows the host to be private, and the connection is made to an address that was checked. Nothing is looked up again
//! in between. A redirect from https to http is refused. The feed's own headers go only to the origin that the operator
//! has named, because they may be secrets.
//!
//! A poll has a connection of its own: polls are rare, and an idle connection would cost both sides more than it saves.
//!
//! Bounds: [`REDIRECT_COUNT_MAX`] redirects, [`HEAD_BYTES_MAX`] for the head of an answer, a time for connecting and a
//! time for the head. The caller bounds the body and the whole.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ETAG, HOST, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    LOCATION, USER_AGENT,
};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tidings_http1::{Origin, OriginError};
use tidings_push::retry::retry_after;
use tidings_push::web_push::guard::is_public;
use tidings_store::FeedValidator;
use tidings_telemetry::{chain, unix_now};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::pieces::Said;

/// Redirects that are followed: as many as browsers' feeds need, and no endless circle.
pub const REDIRECT_COUNT_MAX: usize = 5;
/// The largest head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Addresses of a host that are tried.
const ADDRESS_COUNT_MAX: usize = 4;
/// How long one of them is tried for.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest `ETag` and `Last-Modified` that are kept. A longer one is left out, and the document is read each time.
const VALIDATOR_BYTES_MAX: usize = 1024;

/// Where a document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The server.
    pub origin: Origin,
    /// The path, and the query if there is one.
    pub target: String,
}

impl Address {
    /// The address without its query, which may be a secret.
    pub fn shown(&self) -> String {
        format!("{}{}", self.origin, self.target.split('?').next().unwrap_or_default())
    }

    /// What a `Location` names, seen from here (RFC 9110, 10.2.2; RFC 3986, 5.2, without the removal of dots).
    fn join(&self, location: &str) -> Result<Self, OriginError> {
        let location = location.split('#').next().unwrap_or_default();
        let (path, _) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let whole = |text: String| Origin::split(&text).map(|(origin, target)| Self { origin, target });
        let here = |target: String| whole(format!("{}{target}", self.origin));
        let first = &location[..location.find(['/', '?']).unwrap_or(location.len())];
        if first.contains(':') {
            whole(location.to_owned())
        } else if let Some(rest) = location.strip_prefix("//") {
            whole(format!("{}://{rest}", if self.origin.is_tls() { "https" } else { "http" }))
        } else if location.starts_with('/') {
            here(location.to_owned())
        } else if location.starts_with('?') {
            here(format!("{path}{location}"))
        } else {
            here(format!("{}/{location}", path.rsplit_once('/').map_or("", |(folder, _)| folder)))
        }
    }
}

/// How a document is fetched.
#[derive(Clone)]
pub struct Fetch {
    /// Where it is.
    pub address: Address,
    /// Headers of the request; they may be secrets.
    pub headers: HeaderMap,
    /// Hosts whose addresses need not be public.
    pub private_hosts: BTreeSet<String>,
    /// How long looking up, connecting and TLS may take together.
    pub connect_timeout: Duration,
    /// How long the head of the answer may take.
    pub answer_timeout: Duration,
    /// The certificates to trust.
    pub tls: Arc<ClientConfig>,
}

/// What the server has.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nothing new since the document with this validator.
    Unchanged,
    /// A document.
    Document(Document),
}

/// A document that arrives.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) body: Body,
    pub(crate) said: Said,
    /// What to ask with the next time. `source` is for the caller to set.
    pub(crate) validator: FeedValidator,
}

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("cannot connect to {0}")]
    Connect(String, #[source] io::Error),
    #[error("{0} has no public address; allow_private allows a host to be private")]
    Private(String),
    #[error("{0} did not take the connection within {1:?}")]
    ConnectTimeout(String, Duration),
    #[error("{0} did not answer within {1:?}")]
    AnswerTimeout(String, Duration),
    #[error("{0} broke off or did not speak HTTP")]
    Http(String, #[source] hyper::Error),
    #[error("{0} redirects to an address that is not usable")]
    Location(String, #[source] OriginError),
    #[error("{0} redirects from https to http")]
    Downgrade(String),
    #[error("more than {REDIRECT_COUNT_MAX} redirects")]
    Redirects,
    #[error("{host} answered with the status {status}")]
    Status { host: String, status: StatusCode, retry_after: Option<Duration> },
}

impl FetchError {
    /// The pause that the server asks for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl Fetch {
    /// Asks for the document, unless the server's is still that of `validator`.
    ///
    /// # Cancel safety
    /// Dropped: the connection is closed.
    pub(crate) async fn fetch(&self, validator: &FeedValidator) -> Result<Answer, FetchError> {
        let mut address = self.address.clone();
        for _ in 0..=REDIRECT_COUNT_MAX {
            let host = address.origin.host().to_owned();
            let (parts, body) = self.ask(&address, validator).await?;
            let is_conditional = validator.etag.is_some() || validator.last_modified.is_some();
            match parts.status {
                StatusCode::OK => return Ok(Answer::Document(document(&parts.headers, body))),
                StatusCode::NOT_MODIFIED if is_conditional => return Ok(Answer::Unchanged),
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => {
                    address = next_hop(&address, parts.headers.get(LOCATION))?;
                }
                status => {
                    let retry_after = retry_after(&parts.headers, unix_now());
                    return Err(FetchError::Status { host, status, retry_after });
                }
            }
        }
        Err(FetchError::Redirects)
    }

    /// One request over a new connection.
    async fn ask(
        &self,
        address: &Address,
        validator: &FeedValidator,
    ) -> Result<(http::response::Parts, Body), FetchError> {
        let host = || address.origin.host().to_owned();
        let connecting = timeout(self.connect_timeout, self.connect(&address.origin)).await;
        let stream = connecting.map_err(|_| FetchError::ConnectTimeout(host(), self.connect_timeout))??;
        let asking = async {
            let mut builder = http1::Builder::new();
            builder.max_buf_size(HEAD_BYTES_MAX);
            let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
            let mut task = JoinSet::new();
            task.spawn(async move { drop(connection.await) }); // Its error is also that of the body.
            let (parts, incoming) = sender.send_request(self.request(address, validator)).await?.into_parts();
            Ok((parts, Body { incoming, host: host(), _connection: task }))
        };
        let asked = timeout(self.answer_timeout, asking).await;
        asked
            .map_err(|_| FetchError::AnswerTimeout(host(), self.answer_timeout))?
            .map_err(|error| FetchError::Http(host(), error))
    }

    fn request(&self, address: &Address, validator: &FeedValidator) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = address.target.parse().expect("an address has a valid target");
        let headers = request.headers_mut();
        if address.origin == self.address.origin {
            *headers = self.headers.clone();
        }
        let mut set = |name: HeaderName, value: Option<&str>| {
            let value = value.and_then(|value| HeaderValue::from_str(value).ok());
            value.map(|value| headers.insert(name, value));
        };
        set(HOST, Some(&address.origin.authority()));
        set(USER_AGENT, Some(concat!("tidings/", env!("CARGO_PKG_VERSION"))));
        set(ACCEPT_ENCODING, Some("gzip, deflate"));
        set(IF_NONE_MATCH, validator.etag.as_deref());
        set(IF_MODIFIED_SINCE, validator.last_modified.as_deref());
        request
    }

    async fn connect(&self, origin: &Origin) -> Result<Box<dyn Stream>, FetchError> {
        let failed = |error| FetchError::Connect(origin.host().to_owned(), error);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in self.addresses(origin).await?.into_iter().take(ADDRESS_COUNT_MAX) {
            let dialing = timeout(ADDRESS_TIMEOUT, TcpStream::connect(address)).await;
            match dialing.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) if origin.is_tls() => {
                    let name = ServerName::try_from(origin.host().to_owned()).expect("an https origin has such a name");
                    let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await.map_err(failed)?;
                    return Ok(Box::new(stream));
                }
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// The addresses of the host that may be connected to.
    async fn addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, FetchError> {
        let (host, port) = (origin.host(), origin.port());
        let may_be_private = self.private_hosts.contains(host);
        let all: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => {
                // A final dot says that the name is complete. A private name may be one of a hosts file, without a dot.
                let name = if may_be_private || host.ends_with('.') { host.to_owned() } else { format!("{host}.") };
                let found = lookup_host((name, port)).await;
                found.map_err(|error| FetchError::Connect(host.to_owned(), error))?.collect()
            }
        };
        let usable: Vec<_> = all.iter().copied().filter(|it| may_be_private || is_public(it.ip())).collect();
        if usable.is_empty() && !all.is_empty() {
            return Err(FetchError::Private(host.to_owned()));
        }
        Ok(usable)
    }
}

/// Where a redirect leads.
fn next_hop(from: &Address, location: Option<&HeaderValue>) -> Result<Address, FetchError> {
    let host = || from.origin.host().to_owned();
    let location = location.and_then(|location| location.to_str().ok()).unwrap_or_default();
    let next = from.join(location).map_err(|error| FetchError::Location(host(), error))?;
    if from.origin.is_tls() && !next.origin.is_tls() {
        return Err(FetchError::Downgrade(host()));
    }
    Ok(next)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

fn document(headers: &HeaderMap, body: Body) -> Document {
    let text = |name: HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        (value.len() <= VALIDATOR_BYTES_MAX).then(|| value.to_owned())
    };
    let validator = FeedValidator { source: 0, etag: text(ETAG), last_modified: text(LAST_MODIFIED) };
    Document { body, said: Said::of(headers), validator }
}

/// The body of an answer. Dropped: the connection is closed.
#[derive(Debug)]
pub(crate) struct Body {
    incoming: Incoming,
    host: String,
    _connection: JoinSet<()>,
}

impl Body {
    /// The next piece; `None` at the proper end.
    ///
    /// # Errors
    /// If the body breaks off, with the reason.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.incoming.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Some(Ok(data)),
                    _ => {}
                },
                Err(error) => return Some(Err(format!("{} broke off: {}", self.host, chain(&error)))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        let (origin, target) = Origin::split(url).unwrap();
        Address { origin, target }
    }

    #[test]
    fn a_location_is_read_from_where_it_was_given() {
        let base = address("https://a.example/feeds/news.xml?key=1");
        for (location, expected) in [
            ("https://b.example/x?y#z", "https://b.example/x?y"),
            ("//b.example:8443/x", "https://b.example:8443/x"),
            ("/x:y", "https://a.example/x:y"),
            ("x.xml", "https://a.example/feeds/x.xml"),
            ("?key=2", "https://a.example/feeds/news.xml?key=2"),
            ("http://a.example/", "http://a.example/"),
        ] {
            assert_eq!(base.join(location).unwrap(), address(expected), "{location}");
        }
        for wrong in ["ftp://a.example/", "javascript:x", "https://u:p@a.example/", "http://", "/a b"] {
            assert!(base.join(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_redirect_never_leaves_tls() {
        let hop = |from: &str, to: &'static str| next_hop(&address(from), Some(&HeaderValue::from_static(to)));
        assert!(matches!(hop("https://a.example/", "http://b.example/"), Err(FetchError::Downgrade(_))));
        assert!(hop("http://a.example/", "https://b.example/").is_ok());
        assert!(hop("http://a.example/", "http://b.example/").is_ok());
        assert!(
            next_hop(&address("https://a.example/x"), None).is_ok(),
            "to itself, which the count of redirects ends"
        );
    }

    #[test]
    fn a_query_is_not_shown() {
        assert_eq!(address("https://a.example/x?key=secret").shown(), "https://a.example/x");
    }
}
