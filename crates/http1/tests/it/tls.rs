//! The client over TLS, with a rustls server.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tidings_http1::{Client, Origin, Request, Roots, SendError, StartError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::{SOON, config};

struct Server {
    address: SocketAddr,
    ca_pem: String,
    _task: JoinSet<()>,
}

/// How the server ends a body without a length.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// With `close_notify`.
    Orderly,
    /// By closing the TCP connection, as an attacker on the path could.
    Cut,
}

impl Server {
    /// A server for this name. It answers with `Content-Length`, except `/until-close`.
    async fn start(name: &str, end: End) -> Self {
        let (ca_pem, certificate, key) = certificates(name);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move { serve(acceptor.accept(tcp).await?, end).await });
            }
        });
        Self { address, ca_pem, _task: task }
    }

    fn client(&self, host: &str, roots: Roots) -> Client {
        let origin: Origin = format!("https://{host}:{}", self.address.port()).parse().unwrap();
        let mut config = config(1);
        config.roots = roots;
        Client::start(&origin, config).unwrap()
    }

    fn roots(&self) -> Roots {
        Roots::Pem(self.ca_pem.clone())
    }
}

async fn serve(mut tls: tokio_rustls::server::TlsStream<tokio::net::TcpStream>, end: End) -> std::io::Result<()> {
    let mut input = Vec::new();
    loop {
        while !input.ends_with(b"\r\n\r\n") {
            if tls.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
        }
        if input.starts_with(b"GET /until-close") {
            tls.write_all(b"HTTP/1.1 200 OK\r\n\r\nall").await?;
            tls.flush().await?;
            return if end == End::Orderly { tls.shutdown().await } else { Ok(()) };
        }
        input.clear();
        tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await?;
        tls.flush().await?;
    }
}

pub(crate) fn certificates(name: &str) -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let ca_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (ca_pem, certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

async fn get(client: &Client, path: &str) -> Result<String, SendError> {
    let response = client.send(Request::get(path).unwrap(), SOON).await?;
    Ok(String::from_utf8(response.into_body().to_vec()).unwrap())
}

#[tokio::test]
async fn a_server_with_a_valid_certificate_gets_requests() {
    let server = Server::start("localhost", End::Orderly).await;
    let client = server.client("localhost", server.roots());
    for _ in 0..3 {
        assert_eq!(get(&client, "/").await.as_deref(), Ok("hi"));
    }
    assert_eq!(client.counters().connects, 1);
    let server = Server::start("127.0.0.1", End::Orderly).await;
    assert_eq!(get(&server.client("127.0.0.1", server.roots()), "/").await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn a_server_without_a_valid_certificate_gets_nothing() {
    let server = Server::start("example.com", End::Orderly).await;
    let wrong_name = server.client("localhost", server.roots());
    assert_eq!(get(&wrong_name, "/").await, Err(SendError::Unavailable));
    let server = Server::start("localhost", End::Orderly).await;
    let stranger = Roots::Pem(certificates("localhost").0);
    assert_eq!(get(&server.client("localhost", stranger), "/").await, Err(SendError::Unavailable));
}

#[tokio::test]
async fn a_body_until_close_needs_an_orderly_close() {
    let server = Server::start("localhost", End::Orderly).await;
    assert_eq!(get(&server.client("localhost", server.roots()), "/until-close").await.as_deref(), Ok("all"));
    // RFC 9112, 9.8: without `close_notify` an attacker may have truncated it.
    let server = Server::start("localhost", End::Cut).await;
    assert_eq!(get(&server.client("localhost", server.roots()), "/until-close").await, Err(SendError::Lost));
}

#[tokio::test]
async fn invalid_roots_are_refused() {
    let origin: Origin = "https://localhost".parse().unwrap();
    for pem in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "nonsense"] {
        let mut config = config(1);
        config.roots = Roots::Pem(pem.to_owned());
        assert!(matches!(Client::start(&origin, config), Err(StartError::Tls(_))), "{pem:?}");
    }
}
