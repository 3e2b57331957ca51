//! One request to the server, HTTP/1.1 without TLS: the server itself speaks none, a proxy in front of it does.
//!
//! Bounds: an answer of [`ANSWER_BYTES_MAX`] within [`TIMEOUT`]; no redirects, no connection kept.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The largest answer that is read.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 << 20;

/// How long connecting and answering may take together.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Where the server is.
#[derive(Debug, Clone)]
pub(crate) struct ServerUrl(Authority);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The server's address is none.
    #[error("server must be http://HOST:PORT without path, got {0:?}")]
    Url(String),
    /// The API key cannot stand in a header.
    #[error("API key must be visible ASCII characters")]
    Key,
    /// Nobody answers there.
    #[error("cannot connect to {server}")]
    Connect {
        /// The address.
        server: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The exchange broke off.
    #[error("exchange with {server} broke off")]
    Exchange {
        /// The address.
        server: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It took too long.
    #[error("no answer from {0} within {seconds}s", seconds = TIMEOUT.as_secs())]
    Timeout(String),
}

impl ServerUrl {
    /// Reads `http://HOST:PORT`.
    pub(crate) fn parse(text: &str) -> Result<Self, HttpError> {
        let wrong = || HttpError::Url(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let plain = uri.scheme() == Some(&Scheme::HTTP) && matches!(uri.path(), "" | "/") && uri.query().is_none();
        match uri.authority() {
            // A password in the address would end up in messages.
            Some(authority) if plain && !authority.as_str().contains('@') => Ok(Self(authority.clone())),
            _ => Err(wrong()),
        }
    }

    /// The server that listens there, seen from its own machine.
    pub(crate) fn of_listener(mut address: SocketAddr) -> Self {
        if address.ip().is_unspecified() {
            let loopback: IpAddr =
                if address.is_ipv4() { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() };
            address.set_ip(loopback);
        }
        Self(address.to_string().parse().expect("a socket address is a host and a port"))
    }

    /// Whether it is this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.0.host().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> &str {
        self.0.as_str()
    }

    /// Posts JSON.
    ///
    /// # Cancel safety
    /// Dropped, the request may or may not have been carried out.
    pub(crate) async fn post(
        &self,
        path: &str,
        api_key: Option<&str>,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        self.request(Method::POST, path, api_key, Some(body)).await
    }

    /// Asks for something; with `body`, which is JSON.
    ///
    /// # Cancel safety
    /// Dropped, the request may or may not have been carried out.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        api_key: Option<&str>,
        body: Option<Bytes>,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.authority());
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body.unwrap_or_default()));
        let mut request = request.expect("the path is ours and the host was checked");
        if let Some(key) = api_key {
            let mut value = HeaderValue::try_from(format!("apikey {key}")).map_err(|_| HttpError::Key)?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let exchange = tokio::time::timeout(TIMEOUT, self.exchange(request));
        exchange.await.map_err(|_| HttpError::Timeout(self.to_string()))?
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), HttpError> {
        let address = (self.0.host().trim_start_matches('[').trim_end_matches(']'), self.0.port_u16().unwrap_or(80));
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|source| HttpError::Connect { server: self.to_string(), source })?;
        let broke = |source| HttpError::Exchange { server: self.to_string(), source };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broke(error.into()))?;
        let answer = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((status, body.to_bytes())) // Here the sender is dropped, and with it the connection ends.
        };
        // The answer fails with the reason when the connection does.
        let (answer, _) = tokio::join!(answer, connection);
        answer.map_err(broke)
    }
}

impl std::fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.0)
    }
}
