//! The client side of a server, for programs, with and without TLS.
//!
//! This file sends single requests over HTTP/1.1. [`Socket`] is a client of the Centrifugo protocol over WebSocket.
//!
//! Limits of a request: the answer has at most [`ANSWER_BYTES_MAX`] and comes within [`TIMEOUT`]. An answer that is read
//! piece by piece may have any size, and each piece must come within [`TIMEOUT`]. Redirects are not followed, and
//! connections are not kept.

mod socket;
mod transport;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::request::Builder;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
pub use tidings_http1::Roots;
use tidings_http1::TlsError;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

pub use self::socket::{PONG, Socket, SocketError, is_ping};
use self::transport::Transport;

/// The largest answer that is read.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The most bytes of a refusal that are kept if the answer itself may have any size.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

const TOO_LARGE: &str = "the answer is too large";

/// The cause of a failed exchange.
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// How long connecting and the answer may take together.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The address of a server.
#[derive(Debug, Clone)]
pub struct ServerUrl {
    authority: Authority,
    /// For https.
    tls: Option<Arc<ClientConfig>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The text is not the address of a server.
    #[error("server must be http://HOST:PORT or https://HOST:PORT without path, got {0:?}")]
    Url(String),
    /// There are no certificates to trust.
    #[error("cannot prove who the server is")]
    Roots(#[source] TlsError),
    /// The API key contains characters that a header cannot have.
    #[error("API key must be visible ASCII characters")]
    Key,
    /// The connection cannot be opened.
    #[error("cannot connect to {server}")]
    Connect {
        /// The server.
        server: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The exchange failed.
    #[error("exchange with {server} failed")]
    Exchange {
        /// The server.
        server: String,
        /// The cause.
        #[source]
        source: Broken,
    },
    /// The answer took too long.
    #[error("no answer from {0} within {seconds}s", seconds = TIMEOUT.as_secs())]
    Timeout(String),
}

impl ServerUrl {
    /// Reads `http://HOST:PORT` or `https://HOST:PORT`. The system's authorities must have issued the certificate.
    ///
    /// # Errors
    /// If the text is no such address, or the system has no authorities.
    pub fn parse(text: &str) -> Result<Self, HttpError> {
        Self::trusting(text, &Roots::Native)
    }

    /// As [`ServerUrl::parse`], with other authorities.
    ///
    /// # Errors
    /// If the text is no such address, or there are no authorities.
    pub fn trusting(text: &str, roots: &Roots) -> Result<Self, HttpError> {
        let wrong = || HttpError::Url(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
        let is_http = is_tls || uri.scheme() == Some(&Scheme::HTTP);
        let is_origin = is_http && matches!(uri.path(), "" | "/") && uri.query().is_none();
        // A password in the address would appear in messages.
        let authority = uri.authority().filter(|authority| is_origin && !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(wrong)?.clone();
        let tls = is_tls.then(|| roots.client_config()).transpose().map_err(HttpError::Roots)?;
        Ok(Self { authority, tls })
    }

    /// The server that listens at `address`, seen from its own machine.
    pub fn of_listener(mut address: SocketAddr) -> Self {
        if address.ip().is_unspecified() {
            let loopback: IpAddr =
                if address.is_ipv4() { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() };
            address.set_ip(loopback);
        }
        let authority = address.to_string().parse().expect("a socket address is a host and a port");
        Self { authority, tls: None }
    }

    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        let (host, _) = self.address();
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Host and port to connect to.
    fn address(&self) -> (&str, u16) {
        let port = if self.tls.is_some() { 443 } else { 80 };
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        (host, self.authority.port_u16().unwrap_or(port))
    }

    async fn connect(&self) -> std::io::Result<Transport> {
        let (host, port) = self.address();
        Transport::open(host, port, self.tls.as_ref()).await
    }

    /// Sends a POST request with JSON.
    ///
    /// # Cancel safety
    /// If this is dropped, the request may or may not have been carried out.
    pub async fn post(&self, path: &str, api_key: Option<&str>, body: Bytes) -> Result<(StatusCode, Bytes), HttpError> {
        self.request(Method::POST, path, api_key, Some(body)).await
    }

    /// Sends a request. `body` is JSON.
    ///
    /// # Cancel safety
    /// If this is dropped, the request may or may not have been carried out.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        api_key: Option<&str>,
        body: Option<Bytes>,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let mut builder = self.builder(method, path, api_key)?;
        if body.is_some() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        let request = builder.body(Full::new(body.unwrap_or_default()));
        let request = request.expect("the path is valid and the host was checked");
        let mut answer = Vec::new();
        let whole = self.exchange(request, TIMEOUT, |_, chunk| {
            if answer.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(TOO_LARGE.into());
            }
            answer.extend_from_slice(chunk);
            Ok(true)
        });
        let status = timeout(TIMEOUT, whole).await;
        let status = status.map_err(|_| HttpError::Timeout(self.to_string()))??;
        Ok((status, answer.into()))
    }

    /// Sends a GET request for an answer of any size in the format `accept`. `take` gets each piece of it, until `take`
    /// returns false. Returns the body if the answer is a refusal.
    ///
    /// # Cancel safety
    /// If this is dropped, no more pieces are taken.
    pub async fn stream(
        &self,
        path: &str,
        api_key: Option<&str>,
        accept: &'static str,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let builder = self.builder(Method::GET, path, api_key)?.header(ACCEPT, accept);
        let request = builder.body(Full::default()).expect("the path is valid and the host was checked");
        let mut refusal = Vec::new();
        let status = self.exchange(request, TIMEOUT, |status, chunk| {
            Ok(if status.is_success() { take(chunk) } else { keep(&mut refusal, chunk) })
        });
        Ok((status.await?, refusal.into()))
    }

    /// Sends a POST request with any number of lines. Meanwhile `take` gets each piece of the answer. Each line and each
    /// piece may take `patience`. Returns the body if the answer is a refusal.
    ///
    /// # Cancel safety
    /// If this is dropped, the request may be carried out in part.
    pub async fn upload<B>(
        &self,
        path: &str,
        api_key: Option<&str>,
        (media, lines): (&'static str, B),
        patience: Duration,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(StatusCode, Bytes), HttpError>
    where
        B: Body<Data = Bytes> + 'static,
        B::Error: Into<Broken>,
    {
        let builder = self.builder(Method::POST, path, api_key)?.header(CONTENT_TYPE, media);
        let request = builder.body(lines).expect("the path is valid and the host was checked");
        let mut refusal = Vec::new();
        let status = self.exchange(request, patience, |status, chunk| {
            if status.is_success() {
                take(chunk);
                return Ok(true);
            }
            Ok(keep(&mut refusal, chunk))
        });
        Ok((status.await?, refusal.into()))
    }

    fn builder(&self, method: Method, path: &str, api_key: Option<&str>) -> Result<Builder, HttpError> {
        let builder = Request::builder().method(method).uri(path).header(HOST, self.authority());
        let Some(key) = api_key else { return Ok(builder) };
        let mut value = HeaderValue::try_from(format!("apikey {key}")).map_err(|_| HttpError::Key)?;
        value.set_sensitive(true);
        Ok(builder.header(AUTHORIZATION, value))
    }

    /// Sends a request. `take` gets each piece of the answer's body, until it returns false. Each step may take `patience`.
    async fn exchange<B>(
        &self,
        request: Request<B>,
        patience: Duration,
        mut take: impl FnMut(StatusCode, &[u8]) -> Result<bool, Broken>,
    ) -> Result<StatusCode, HttpError>
    where
        B: Body<Data = Bytes> + 'static,
        B::Error: Into<Broken>,
    {
        let late = |_| HttpError::Timeout(self.to_string());
        let stream = timeout(TIMEOUT, self.connect()).await.map_err(late)?;
        let stream = stream.map_err(|source| HttpError::Connect { server: self.to_string(), source })?;
        let broke = |source| HttpError::Exchange { server: self.to_string(), source };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broke(error.into()))?;
        let answer = async {
            let response = timeout(patience, sender.send_request(request)).await.map_err(late)?;
            let response = response.map_err(|error| broke(error.into()))?;
            let (status, mut body) = (response.status(), response.into_body());
            while let Some(frame) = timeout(patience, body.frame()).await.map_err(late)? {
                let frame = frame.map_err(|error| broke(error.into()))?;
                if !take(status, frame.data_ref().map_or(&b""[..], Bytes::as_ref)).map_err(broke)? {
                    break;
                }
            }
            Ok(status)
        };
        let mut answer = pin!(answer);
        // The connection transports the answer. If it ends first, the answer has the reason.
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = connection => answer.await,
        }
    }
}

/// Keeps a piece of a refusal. Returns whether there is room for more.
fn keep(refusal: &mut Vec<u8>, chunk: &[u8]) -> bool {
    let room = REFUSAL_BYTES_MAX - refusal.len();
    refusal.extend_from_slice(&chunk[..chunk.len().min(room)]);
    refusal.len() < REFUSAL_BYTES_MAX
}

impl std::fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.authority)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const PIECE_BYTES: usize = 64 << 10;

    /// Far more pieces than the client may take or the system's buffers can hold. They end, so that a client that takes too
    /// many fails the test instead of hanging it.
    const TOO_MANY: usize = 16 * ANSWER_BYTES_MAX / PIECE_BYTES;

    /// A server that answers one request with `head` and so many pieces. Returns the request, and how many pieces were
    /// written. It sends until it is done or the client is gone, and waits until the client has disconnected: the system may
    /// reset a connection that is closed before all bytes were received.
    async fn answer(listener: TcpListener, head: &str, piece_count: usize) -> (String, usize) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0, "the request is complete");
        }
        stream.write_all(format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let piece = vec![b'x'; PIECE_BYTES];
        let mut written = 0;
        while written < piece_count && stream.write_all(&piece).await.is_ok() {
            written += 1;
        }
        _ = stream.shutdown().await;
        _ = stream.read_to_end(&mut Vec::new()).await;
        (String::from_utf8(request).unwrap(), written)
    }

    /// What the server saw and what the client was told. Both end in time.
    async fn exchange<T>(
        server: impl Future<Output = (String, usize)>,
        asked: impl Future<Output = T>,
    ) -> (T, String, usize) {
        let both = async { tokio::join!(server, asked) };
        let ((request, written), answered) = timeout(TIMEOUT, both).await.expect("client and server end in time");
        (answered, request, written)
    }

    async fn listen() -> (TcpListener, ServerUrl) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ServerUrl::of_listener(listener.local_addr().unwrap());
        (listener, server)
    }

    /// The answer to the client, the request, and how many pieces were written.
    async fn ask(
        head: &str,
        piece_count: usize,
        take: impl FnMut(&[u8]) -> bool,
    ) -> ((StatusCode, Bytes), String, usize) {
        let (listener, server) = listen().await;
        let asked = server.stream("/v1/jobs", Some("k3y"), "application/x-ndjson", take);
        let (answered, request, written) = exchange(answer(listener, head, piece_count), asked).await;
        (answered.unwrap(), request, written)
    }

    #[tokio::test]
    async fn an_answer_of_any_size_is_taken_piece_by_piece() {
        let piece_count = 2 * ANSWER_BYTES_MAX / PIECE_BYTES;
        let mut taken = 0;
        let ((status, refusal), request, _) = ask("200 OK", piece_count, |piece| {
            taken += piece.len();
            true
        })
        .await;
        assert_eq!((taken, status, refusal.len()), (2 * ANSWER_BYTES_MAX, StatusCode::OK, 0));
        assert!(
            request.contains("accept: application/x-ndjson\r\n") && request.contains("authorization: apikey k3y\r\n")
        );
    }

    #[tokio::test]
    async fn a_caller_can_end_an_answer() {
        let mut count = 0;
        let ((status, refusal), _, written) = ask("200 OK", TOO_MANY, |_| {
            count += 1;
            count < 3
        })
        .await;
        assert_eq!((count, status, refusal.len()), (3, StatusCode::OK, 0));
        assert!(written < TOO_MANY, "the server learns that nobody reads on");
    }

    #[tokio::test]
    async fn a_refusal_is_returned_up_to_its_limit() {
        let refused = ask("503 Service Unavailable", TOO_MANY, |_| panic!("it is a refusal"));
        let ((status, refusal), _, written) = refused.await;
        assert_eq!((status, refusal.len()), (StatusCode::SERVICE_UNAVAILABLE, REFUSAL_BYTES_MAX));
        assert!(written < TOO_MANY, "the server learns that nobody reads on");
    }

    #[tokio::test]
    async fn a_whole_answer_has_a_limit() {
        let (listener, server) = listen().await;
        let asked = server.request(Method::GET, "/v1/jobs", None, None);
        let (answered, _, written) = exchange(answer(listener, "200 OK", TOO_MANY), asked).await;
        let error = answered.unwrap_err();
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), TOO_LARGE);
        assert!(written < TOO_MANY, "the server learns that nobody reads on");
    }
}
