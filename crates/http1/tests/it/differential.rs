//! Compares the parser with hyper's client on the same bytes. If both accept them, they find the same answer. If only hyper
//! accepts them, the difference has a name and a reason. It never happens that only the parser accepts them.
//!
//! The bytes are the corpus of the fuzz target, and seeded mutations of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use tidings_http1::{HEADER_COUNT_MAX, Limits, Parser, Violation};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const LIMITS: Limits = Limits { head_bytes_max: 1024, body_bytes_max: 2048 };
const MUTATION_COUNT: u64 = 12_000;

#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

/// The differences in which the parser refuses and hyper accepts: name and reason.
fn stricter(violation: Violation) -> Option<&'static str> {
    Some(match violation {
        Violation::BareLineFeed => {
            "RFC 9112, 2.2 lets a recipient take LF for CR LF; recipients that differ can be fooled"
        }
        Violation::NotHttp => {
            "empty lines before a status line are for servers to skip (RFC 9112, 2.2), not for clients"
        }
        Violation::LengthAndEncoding => "RFC 9112, 6.3: ought to be handled as an error; hyper forgets the length",
        Violation::TransferEncoding => "we asked for no coding; hyper hands out coded bytes, or reads until close",
        Violation::ContentLength => "also where the body is known to be empty, a length is a number",
        Violation::SeveralLengths => "also where the body is known to be empty, a length is one",
        Violation::BodyNotAllowed(_) => {
            "RFC 9112, 6.1 and RFC 9110, 8.6 forbid it; whoever reads a body finds another next answer"
        }
        Violation::SwitchingProtocols => "RFC 9110, 15.2.2: only what was asked for; hyper hands the connection out",
        Violation::TooManyInterim => "our limit; hyper has none",
        Violation::HeadTooLarge { .. } => "our limit; hyper's is larger",
        Violation::BodyTooLarge { .. } => "our limit; hyper has none",
        Violation::TrailersTooLarge { .. } => "our limit; hyper's is larger",
        Violation::ChunkSize => {
            "RFC 9112, 7.1: no white space behind a size, 16 digits, no control characters in extensions"
        }
        Violation::ChunkLineTooLong => "our limit; hyper's is larger",
        Violation::ChunkExtensionsTooLong => "our limit; hyper's is larger",
        _ => return None,
    })
}

/// The first answer, if there is one.
fn by_us(method: &Method, bytes: &[u8]) -> Result<Seen, Violation> {
    let mut parser = Parser::new(LIMITS);
    let mut input = BytesMut::from(bytes);
    let answer = match parser.parse(method, &mut input)? {
        Some(answer) => answer,
        None => parser.finish()?,
    };
    let response = answer.response;
    Ok(Seen {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.body().clone(),
        trailers: response.trailers().clone(),
    })
}

async fn by_hyper(method: &Method, bytes: &[u8]) -> Result<Seen, hyper::Error> {
    let (ours, mut peer) = tokio::io::duplex(64 * 1024);
    let (mut sender, connection) =
        hyper::client::conn::http1::Builder::new().max_headers(HEADER_COUNT_MAX).handshake(TokioIo::new(ours)).await?;
    let answer = async move {
        let request =
            Request::builder().method(method).uri("/").header("host", "a").body(Empty::<Bytes>::new()).unwrap();
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok(Seen { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes(), trailers })
    };
    let serve = async move {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            peer.read_buf(&mut request).await.unwrap();
        }
        let _ = peer.write_all(bytes).await; // Hyper may have hung up already.
        let _ = peer.shutdown().await;
        // There is nothing left to read, but the peer stays until hyper is done.
        let _ = peer.read_to_end(&mut request).await;
    };
    // The answer shows how the connection ended.
    let (answer, (), _) = tokio::join!(answer, serve, connection);
    answer
}

/// The name of the difference, if there is one.
async fn compare(method: &Method, bytes: &[u8]) -> Option<&'static str> {
    let (ours, theirs) = (by_us(method, bytes), by_hyper(method, bytes).await);
    let shown = || format!("{method} {}\nours: {ours:?}\nhyper: {theirs:?}", bytes.escape_ascii());
    match (&ours, &theirs) {
        (Err(_), Err(_)) => None,
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours, theirs, "{}", bytes.escape_ascii());
            None
        }
        (Ok(_), Err(_)) => panic!("we are more lenient: {}", shown()),
        (Err(violation), Ok(_)) => {
            Some(stricter(*violation).unwrap_or_else(|| panic!("stricter without a reason: {}", shown())))
        }
    }
}

fn corpus() -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http1_response"));
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut corpus: BTreeMap<_, _> =
        files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())).collect();
    // Too large for the corpus.
    let chunk = format!("1;{}\r\na\r\n", "e".repeat(200));
    let body = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(40));
    corpus.insert("chunk-extensions-over".to_owned(), body.into_bytes());
    corpus
}

#[tokio::test]
async fn on_the_corpus_the_parser_is_stricter_than_hyper_in_every_named_way() {
    let mut seen = BTreeSet::new();
    for bytes in corpus().values() {
        for method in [Method::GET, Method::HEAD] {
            seen.extend(compare(&method, bytes).await);
        }
    }
    let limit = 0;
    let named = [
        Violation::BareLineFeed,
        Violation::NotHttp,
        Violation::LengthAndEncoding,
        Violation::TransferEncoding,
        Violation::ContentLength,
        Violation::SeveralLengths,
        Violation::BodyNotAllowed(http::StatusCode::NO_CONTENT),
        Violation::SwitchingProtocols,
        Violation::TooManyInterim,
        Violation::HeadTooLarge { limit },
        Violation::BodyTooLarge { limit },
        Violation::TrailersTooLarge { limit },
        Violation::ChunkSize,
        Violation::ChunkLineTooLong,
        Violation::ChunkExtensionsTooLong,
    ];
    let named: BTreeSet<_> = named.into_iter().filter_map(stricter).collect();
    assert_eq!(seen, named, "each named difference needs an example in the corpus");
}

#[tokio::test]
async fn on_mutations_the_parser_differs_from_hyper_only_by_being_stricter() {
    let corpus: Vec<_> = corpus().into_values().collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for _ in 0..MUTATION_COUNT {
        let bytes = mutate(&corpus, &mut random);
        let method = if random.below(8) == 0 { Method::HEAD } else { Method::GET };
        compare(&method, &bytes).await;
        accepted += u64::from(by_us(&method, &bytes).is_ok());
    }
    assert!(accepted > MUTATION_COUNT / 20, "{accepted} accepted: the mutations only destroy");
}

/// Text that a mutation inserts.
const WORDS: [&str; 26] = [
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "0\r\n\r\n",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "\0",
    "+",
    "-",
    "0x",
    "5",
    "ffffffffffffffff",
    "Content-Length: 5\r\n",
    "content-length: 2, 2\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Connection: close\r\n",
    "HTTP/1.1 100 C\r\n\r\n",
    "HTTP/1.0 200 OK\r\n",
    "1;a=b\r\nx\r\n",
    "A: b\r\n",
    " folded\r\n",
];

fn mutate(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(12)).min(bytes.len());
        match random.below(5) {
            0 => drop(bytes.drain(at..end)),
            1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            2 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            3 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => drop(bytes.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
        }
    }
    bytes
}

/// Xorshift (Marsaglia, 2003): the same mutations in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}
