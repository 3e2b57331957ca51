//! The socket of a client, plain or with TLS: one set of calls that never wait.
//!
//! With TLS, a write first becomes a record in the TLS session. Then the record goes to the socket. While a record
//! waits for the socket, no further bytes are taken, so a full socket stops the writer as it does without TLS. A client
//! is seen to take bytes when the system takes bytes of a record ([`Stream::sent`]).
//!
//! Bounds of a connection with TLS: the records that wait for the socket, and the bytes that are read but not
//! decrypted. Each is at most [`RECORD_BYTES`] and what TLS adds (less than 2.5 KiB). Decrypted bytes leave the session
//! in the read that decrypted them.
//!
//! A peer may end its connection without `close_notify`. That counts as an ordinary end, because a WebSocket has a
//! close frame of its own.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;

use bytes::Bytes;
use rustls::ServerConnection;
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::takeover::Socket;

/// The most plaintext of a record (RFC 8446, 5.1), and so of one write.
const RECORD_BYTES: usize = 16 << 10;

/// Bytes that may wait in the system's buffer unsent, for a client that gets what is newest when it takes something.
const UNSENT_BYTES_MAX: u32 = 16 << 10;

/// A client's socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    /// Boxed: a plain socket takes no memory for TLS.
    Tls(Box<Tls>),
}

/// A socket whose TLS handshake is done.
#[derive(Debug)]
pub(crate) struct Tls {
    tcp: TcpStream,
    session: RefCell<ServerConnection>,
    /// Bytes of records that the system took.
    sent: Cell<u64>,
}

impl Stream {
    /// The system takes bytes only while few others wait to be sent, so that they are not out of date when they are.
    pub(crate) fn keep_little_unsent(&self) {
        // Where the system cannot, more waits.
        let _ = SockRef::from(self.tcp()).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    }

    /// The socket, moved from the HTTP server's runtime to this loop's. `read` was read before; returned with what TLS
    /// has decrypted since.
    pub(crate) fn moved(socket: Socket, read: Bytes) -> io::Result<(Self, Bytes)> {
        let moved = |socket: TcpStream| -> io::Result<TcpStream> {
            let socket = TcpStream::from_std(socket.into_std()?)?;
            socket.set_nodelay(true)?;
            Ok(socket)
        };
        Ok(match socket {
            Socket::Plain(socket) => (Self::Plain(moved(socket)?), read),
            Socket::Tls(socket) => {
                let (socket, session) = socket.into_inner();
                Self::tls(moved(socket)?, session, read)
            }
        })
    }

    /// A socket with TLS. `read` was decrypted before; returned with what the session has decrypted since.
    pub(crate) fn tls(tcp: TcpStream, mut session: ServerConnection, read: Bytes) -> (Self, Bytes) {
        let mut first = Vec::from(read);
        let mut piece = [0; 1024];
        while let Ok(count @ 1..) = session.reader().read(&mut piece) {
            first.extend_from_slice(&piece[..count]);
        }
        session.set_buffer_limit(Some(RECORD_BYTES));
        let tls = Tls { tcp, session: RefCell::new(session), sent: Cell::new(0) };
        (Self::Tls(Box::new(tls)), first.into())
    }

    /// The socket below, to wait for it and to set its options.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.tcp,
        }
    }

    /// Writes what TLS holds back. `false`: the socket is full, and nothing else may be written now.
    pub(crate) fn flush(&self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => tls.flush(&mut tls.session.borrow_mut()),
        }
    }

    /// Whether TLS holds nothing back.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => !tls.session.borrow().wants_write(),
        }
    }

    /// Bytes of records that the system took; without TLS 0. They grow also while a record is taken in parts.
    pub(crate) fn sent(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(tls) => tls.sent.get(),
        }
    }

    /// Writes once. With TLS, [`Stream::flush`] must have said `true` before.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Tls(tls) => tls.write(&[IoSlice::new(bytes)]),
        }
    }

    /// Writes once, as [`Stream::try_write`].
    pub(crate) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write_vectored(slices),
            Self::Tls(tls) => tls.write(slices),
        }
    }

    /// Whether a write that took only a part of its bytes has filled the socket. With TLS it may have filled a record.
    pub(crate) fn is_full_after_part(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Reads once into `buffer`, which has room for two records and more; 0: the peer has ended.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }

    /// Ends writing, with TLS by a `close_notify`. `false`: the socket is full, and this is to be repeated.
    pub(crate) fn shut_write(&self) -> io::Result<bool> {
        if let Self::Tls(tls) = self {
            let mut session = tls.session.borrow_mut();
            session.send_close_notify(); // Only the first call sends one.
            if !tls.flush(&mut session)? {
                return Ok(false);
            }
        }
        SockRef::from(self.tcp()).shutdown(Shutdown::Write).map(|()| true)
    }
}

impl Tls {
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        let taken = session.writer().write_vectored(slices)?;
        self.flush(&mut session)?;
        Ok(taken)
    }

    fn flush(&self, session: &mut ServerConnection) -> io::Result<bool> {
        while session.wants_write() {
            match session.write_tls(&mut Wire(&self.tcp)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent.set(self.sent.get() + count as u64),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        if session.read_tls(&mut Wire(&self.tcp))? == 0 {
            return Ok(0);
        }
        if let Err(error) = session.process_new_packets() {
            let _ = self.flush(&mut session); // The alert, if the socket takes it: the connection ends anyway.
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        session.reader().read(buffer) // `WouldBlock` for a part of a record.
    }
}

/// The socket as rustls reads and writes it.
struct Wire<'a>(&'a TcpStream);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::client::TlsStream;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    /// The two ends of a connection after the handshake.
    pub(crate) async fn secured(ours: TcpStream, theirs: TcpStream) -> (Stream, TlsStream<TcpStream>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let server = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let (ours, theirs) = tokio::join!(
            TlsAcceptor::from(Arc::new(server)).accept(ours),
            TlsConnector::from(Arc::new(client)).connect(name, theirs)
        );
        let (tcp, session) = ours.unwrap().into_inner();
        let (stream, first) = Stream::tls(tcp, session, Bytes::new());
        assert!(first.is_empty());
        (stream, theirs.unwrap())
    }

    async fn pair() -> (Stream, TlsStream<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        secured(listener.accept().await.unwrap().0, theirs).await
    }

    async fn read(stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            stream.tcp().readable().await?;
            match stream.try_read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    #[tokio::test]
    async fn a_full_socket_holds_one_record_back_and_says_how_much_it_took() {
        let (stream, mut peer) = pair().await;
        let (block, mut taken) = (vec![7; 1 << 20], 0);
        while stream.flush().unwrap() {
            let count = stream.try_write(&block).unwrap();
            assert!((1..=RECORD_BYTES).contains(&count), "{count}");
            taken += count;
        }
        assert!(!stream.is_flushed() && !stream.shut_write().unwrap());
        let sent = stream.sent();
        assert!(sent < (taken + taken / 100) as u64);
        let mut received = Vec::new();
        let reading = async { peer.read_to_end(&mut received).await.unwrap() };
        let ending = async {
            while !stream.shut_write().unwrap() {
                stream.tcp().writable().await.unwrap();
            }
        };
        tokio::join!(reading, ending);
        assert!(received.len() == taken && stream.is_flushed() && stream.sent() > sent);
    }

    #[tokio::test]
    async fn what_comes_is_read_whole_and_an_end_is_an_end_with_and_without_notice() {
        for with_notice in [true, false] {
            let (stream, mut peer) = pair().await;
            let sent: Vec<u8> = (0..100_000_u32).map(|index| index as u8).collect();
            let mut received = Vec::new();
            let writing = async {
                peer.write_all(&sent).await.unwrap();
                peer.flush().await.unwrap();
                if with_notice {
                    peer.shutdown().await.unwrap();
                } else {
                    peer.get_mut().0.shutdown().await.unwrap();
                }
            };
            let reading = async {
                let mut buffer = [0; 64 << 10];
                while let count @ 1.. = read(&stream, &mut buffer).await.unwrap() {
                    received.extend_from_slice(&buffer[..count]);
                }
            };
            tokio::join!(writing, reading);
            assert!(received == sent, "{} bytes, with notice: {with_notice}", received.len());
        }
    }

    #[tokio::test]
    async fn bytes_that_are_no_record_break_the_connection() {
        let (stream, mut peer) = pair().await;
        peer.get_mut().0.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let error = read(&stream, &mut [0; 64 << 10]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(stream.try_write(b"x").is_err());
    }
}
