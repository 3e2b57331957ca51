//! One connection over HTTP/1.1. Requests are judged as they arrive. Each answer is sent when it is due, but never before
//! the answer to an earlier request.
//!
//! So pipelined requests (RFC 9112, 9.3.2) are all answered after one round trip. At most [`PIPELINE_COUNT_MAX`] answers
//! wait; then reading pauses. Bodies need a `Content-Length`.
//!
//! A malformed or oversized request (400, 411, 413, 431), `Connection: close` and some faults end a connection.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use tidings_telemetry::unix_now;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::server::TlsStream;

use crate::config::Transport;
use crate::connection::BODY_BYTES_MAX;
use crate::control;
use crate::ledger::{Counters, bump};
use crate::provider::{Answer, Headers, Provider};
use crate::shared::{Client, End, Orders};

/// The most answers that wait on one connection.
const PIPELINE_COUNT_MAX: usize = 256;
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADER_COUNT_MAX: usize = 64;

/// Serves one connection to its end.
pub(crate) async fn serve<P: Provider>(
    client: Client<P>,
    stream: TlsStream<TcpStream>,
    orders: watch::Receiver<Orders<P>>,
) {
    bump(&client.shared.ledger.counters.connections);
    let mut connection = Connection {
        stream,
        client,
        inbound: BytesMut::new(),
        answers: VecDeque::new(),
        stalled_until: None,
        ending: None,
    };
    if connection.run(orders).await == End::Reset {
        bump(&connection.counters().resets);
        // With a linger time of zero, closing makes TCP send RST and drop unsent bytes.
        let _ = connection.stream.get_ref().0.set_zero_linger();
    } else {
        let _ = connection.stream.shutdown().await;
    }
}

struct Connection<P: Provider> {
    stream: TlsStream<TcpStream>,
    client: Client<P>,
    inbound: BytesMut,
    /// When each answer is due, and its bytes, in the order of the requests.
    answers: VecDeque<(Instant, Vec<u8>)>,
    stalled_until: Option<Instant>,
    /// No more requests are taken. The connection ends so once the answers are written; a reset does not wait for them.
    ending: Option<End>,
}

struct Taken {
    parts: Parts,
    body: BytesMut,
    closes: bool,
}

impl<P: Provider> Connection<P> {
    fn counters(&self) -> &Counters {
        &self.client.shared.ledger.counters
    }

    async fn run(&mut self, mut orders: watch::Receiver<Orders<P>>) -> End {
        loop {
            if let Some(until) = self.stalled_until.take() {
                sleep_until(until).await;
            }
            self.take_requests();
            if self.write_due().await.is_err() {
                return End::Close;
            }
            if let Some(ending) = self.ending
                && (self.answers.is_empty() || ending == End::Reset)
            {
                return ending;
            }
            if self.stalled_until.is_some() {
                continue;
            }
            let next = self.answers.front().map(|(at, _)| *at);
            let may_read = self.ending.is_none() && self.answers.len() < PIPELINE_COUNT_MAX;
            tokio::select! {
                biased;
                changed = orders.changed() => {
                    let Ok(()) = changed else { return End::Close };
                    if let Some(end) = self.client.follow(&mut orders) {
                        return end;
                    }
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                read = self.stream.read_buf(&mut self.inbound), if may_read => {
                    if !matches!(read, Ok(1..)) {
                        self.ending = Some(End::Close); // The client sends no more, but may still read.
                    }
                }
            }
        }
    }

    /// Takes all requests that have arrived completely.
    fn take_requests(&mut self) {
        while self.ending.is_none() && self.stalled_until.is_none() && self.answers.len() < PIPELINE_COUNT_MAX {
            match take(&mut self.inbound) {
                Ok(Some(taken)) => self.on_request(taken),
                Ok(None) => return,
                Err(status) => {
                    self.ending = Some(End::Close);
                    self.answer(Duration::ZERO, Answer::new(status, Headers::None, ""), true);
                }
            }
        }
    }

    fn on_request(&mut self, Taken { parts, body, closes }: Taken) {
        if closes {
            self.ending = Some(End::Close);
        }
        let path = parts.uri.path();
        if path.starts_with(control::PREFIX) {
            let answer = control::answer(&self.client.shared, &parts.method, path, &body);
            return self.answer(Duration::ZERO, answer, closes);
        }
        let fate = self.client.draw_fate();
        let goes_away = self.client.is_goaway_due();
        if goes_away {
            bump(&self.counters().goaways);
            self.ending = Some(End::Close);
        }
        if fate.stall {
            bump(&self.counters().stalls);
            self.stalled_until = Some(Instant::now() + Duration::from_millis(self.client.faults.stall_ms));
        }
        match fate.transport {
            Transport::Refuse => {
                bump(&self.counters().streams_refused);
                self.ending = Some(End::Close);
                return;
            }
            Transport::ResetBefore => {
                self.ending = Some(End::Reset);
                return;
            }
            Transport::ResetAfter => self.ending = Some(End::Reset),
            Transport::Answer => {}
        }
        let head = self.client.shared.provider.read_head(&self.client.session, &parts);
        let answer = self.client.judge(head, &body, &fate, unix_now());
        self.answer(fate.delay, answer, closes || goes_away);
    }

    fn answer(&mut self, delay: Duration, answer: Answer, closes: bool) {
        self.answers.push_back((Instant::now() + delay, write(answer, closes)));
        self.counters().streams_open_max.fetch_max(self.answers.len() as u64, Relaxed);
    }

    /// Writes the answers that are due, up to the first one that is not.
    async fn write_due(&mut self) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        let now = Instant::now();
        while self.answers.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, answer)) = self.answers.pop_front() else { break };
            bytes.extend(answer);
        }
        if !bytes.is_empty() && self.ending != Some(End::Reset) {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await?;
        }
        Ok(())
    }
}

/// Cuts the first request off the buffer, if it is complete.
///
/// # Errors
/// The status to answer a malformed request with before the connection is closed.
fn take(buffer: &mut BytesMut) -> Result<Option<Taken>, StatusCode> {
    let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head_len = match request.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if buffer.len() <= HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
        Err(_) => return Err(StatusCode::BAD_REQUEST),
    };
    let parts = parts(&request).ok_or(StatusCode::BAD_REQUEST)?;
    let body_len = body_len(&parts.headers)?;
    if buffer.len() < head_len + body_len {
        return Ok(None);
    }
    let is_http1 = request.version == Some(1);
    let asks = parts.headers.get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"));
    buffer.advance(head_len);
    let body = buffer.split_to(body_len);
    Ok(Some(Taken { parts, body, closes: asks || !is_http1 }))
}

fn parts(request: &httparse::Request<'_, '_>) -> Option<Parts> {
    let mut builder = Request::builder().method(request.method?).uri(request.path?);
    for header in request.headers.iter() {
        builder = builder.header(header.name, header.value);
    }
    Some(builder.body(()).ok()?.into_parts().0)
}

fn body_len(headers: &HeaderMap) -> Result<usize, StatusCode> {
    if headers.contains_key(TRANSFER_ENCODING) {
        return Err(StatusCode::LENGTH_REQUIRED);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => 0,
        (Some(length), None) => {
            let text = length.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            text.and_then(|text| text.parse().ok()).ok_or(StatusCode::BAD_REQUEST)?
        }
        (Some(_), Some(_)) => return Err(StatusCode::BAD_REQUEST),
    };
    if length > BODY_BYTES_MAX { Err(StatusCode::PAYLOAD_TOO_LARGE) } else { Ok(length) }
}

fn write(answer: Answer, closes: bool) -> Vec<u8> {
    let Answer { status, headers, body, .. } = answer;
    let mut map = HeaderMap::new();
    headers.put_into(&mut map);
    let reason = status.canonical_reason().unwrap_or("");
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\ncontent-length: {}\r\n", status.as_str(), body.len()).into_bytes();
    for (name, value) in &map {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    if closes {
        bytes.extend(b"connection: close\r\n");
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: &[u8] = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc";

    #[test]
    fn requests_are_taken_one_by_one_wherever_the_bytes_are_split() {
        for cut in 0..=REQUEST.len() {
            let mut buffer = BytesMut::from(&REQUEST[..cut]);
            let early = take(&mut buffer).unwrap();
            assert_eq!(early.is_some(), cut == REQUEST.len(), "{cut}");
            if early.is_some() {
                continue;
            }
            buffer.extend_from_slice(&REQUEST[cut..]);
            buffer.extend_from_slice(REQUEST);
            for _ in 0..2 {
                let taken = take(&mut buffer).unwrap().unwrap();
                assert_eq!((taken.parts.uri.path(), &*taken.body, taken.closes), ("/a", &b"abc"[..], false));
            }
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_request_that_two_parsers_could_split_differently_is_refused() {
        for (head, status) in [
            ("POST / HTTP/1.1\r\ntransfer-encoding: chunked", 411),
            ("POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1", 400),
            ("POST / HTTP/1.1\r\ncontent-length: +1", 400),
            ("POST / HTTP/1.1\r\ncontent-length: 65537", 413),
            ("POST / HTTP/1.1\r\nno colon", 400),
            ("not http", 400),
        ] {
            let mut buffer = BytesMut::from(format!("{head}\r\n\r\n").as_bytes());
            assert_eq!(take(&mut buffer).err().map(|status| status.as_u16()), Some(status), "{head}");
        }
        let mut endless = BytesMut::from(format!("GET /{}", "x".repeat(HEAD_BYTES_MAX)).as_bytes());
        assert_eq!(take(&mut endless).err().map(|status| status.as_u16()), Some(431));
    }

    #[test]
    fn a_client_may_ask_to_close_the_connection() {
        for (head, closes) in [("HTTP/1.1\r\nconnection: Close", true), ("HTTP/1.0", true), ("HTTP/1.1", false)] {
            let taken = take(&mut BytesMut::from(format!("GET / {head}\r\n\r\n").as_bytes())).unwrap().unwrap();
            assert_eq!(taken.closes, closes, "{head}");
        }
    }

    proptest! {
        #[test]
        fn no_input_makes_it_panic(
            head in prop::sample::select(vec![&b""[..], b"POST / HTTP/1.1\r\n", b"GET /a HTTP/1.1\r\ncontent-length: "]),
            rest in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b':'), Just(b'1'), any::<u8>()], 0..80),
        ) {
            let mut buffer = BytesMut::from(&[head, &rest].concat()[..]);
            let before = buffer.len();
            match take(&mut buffer) {
                Ok(Some(_)) => prop_assert!(buffer.len() < before),
                Ok(None) | Err(_) => prop_assert_eq!(buffer.len(), before),
            }
        }
    }
}
