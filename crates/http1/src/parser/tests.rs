//! The parser, by the sections of RFC 9112, and with bytes split in all ways.

use bytes::BytesMut;
use http::{Method, StatusCode};
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { head_bytes_max: 1024, body_bytes_max: 4096 };

/// The parts of an answer that the tests check.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    trailers: Vec<(String, String)>,
    close: bool,
}

impl From<Answer> for Seen {
    fn from(answer: Answer) -> Self {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let fields = |map: &http::HeaderMap| {
            map.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect::<Vec<_>>()
        };
        let Answer { response, close } = answer;
        Self {
            status: response.status().as_u16(),
            headers: fields(response.headers()),
            body: text(response.body()),
            trailers: fields(response.trailers()),
            close,
        }
    }
}

/// Parses until the input ends, a violation, or the close of the connection. Returns the answers and the end.
fn read_pieces<'a>(method: &Method, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, Option<Violation>) {
    let mut parser = Parser::new(LIMITS);
    let mut input = BytesMut::new();
    let mut seen = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while !input.is_empty() {
            match parser.parse(method, &mut input) {
                Ok(Some(answer)) => seen.push(Seen::from(answer)),
                Ok(None) => break,
                Err(violation) => return (seen, Some(violation)),
            }
            if seen.last().is_some_and(|seen| seen.close) {
                return (seen, None);
            }
        }
        assert!(input.len() <= LIMITS.head_bytes_max, "{} bytes are left lying", input.len());
    }
    if input.is_empty() && !parser.has_begun() {
        return (seen, None);
    }
    match parser.finish() {
        Ok(answer) => {
            seen.push(Seen::from(answer));
            (seen, None)
        }
        Err(violation) => (seen, Some(violation)),
    }
}

fn read(method: &Method, bytes: &[u8]) -> (Vec<Seen>, Option<Violation>) {
    read_pieces(method, [bytes])
}

/// Parses one answer to GET.
fn one(bytes: impl AsRef<[u8]>) -> Result<Seen, Violation> {
    match read(&Method::GET, bytes.as_ref()) {
        (_, Some(violation)) => Err(violation),
        (seen, None) => {
            assert_eq!(seen.len(), 1, "{}", bytes.as_ref().escape_ascii());
            Ok(seen.into_iter().next().unwrap())
        }
    }
}

fn body_of(bytes: impl AsRef<[u8]>) -> Result<String, Violation> {
    one(bytes).map(|seen| seen.body)
}

/// A head with these lines, and a body.
fn ok(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n{body}")
}

#[track_caller]
fn check(cases: &[(&str, Result<&str, Violation>)]) {
    for (bytes, expected) in cases {
        let expected = expected.map(ToOwned::to_owned);
        assert_eq!(body_of(bytes), expected, "{}", bytes.escape_debug());
    }
}

#[test]
fn section_2_2_lines_end_with_cr_lf() {
    check(&[
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Ok("hi")),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", Err(Violation::BareLineFeed)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nhi", Err(Violation::BareLineFeed)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nhi", Err(Violation::BareLineFeed)),
        ("HTTP/1.1 200 OK\r\nA: b\rContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("header value"))),
        ("HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("status line"))),
        ("HTTP/1.1 200 OK\r\nA: b\r\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("header value"))),
        ("\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::NotHttp)),
        (" HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::NotHttp)),
        ("HTTP/1.1 200 OK\r\n Content-Length: 2\r\n\r\nhi", Err(Violation::Malformed("header name"))),
    ]);
}

#[test]
fn section_2_3_the_version_is_1_x() {
    check(&[
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", Ok("hi")),
        ("HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("version"))),
        ("HTTP/1.10 200 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("version"))),
        ("HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::NotHttp)),
        ("HTTP/0.9 200 OK\r\n\r\n", Err(Violation::NotHttp)),
        ("http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::NotHttp)),
        ("SSH-2.0-OpenSSH_9.2", Err(Violation::NotHttp)),
        ("\x15\x03\x03\x00\x02\x02", Err(Violation::NotHttp)),
        ("<html>", Err(Violation::NotHttp)),
    ]);
}

#[test]
fn section_4_the_status_line_has_three_digits_and_perhaps_a_reason() {
    check(&[
        ("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", Ok("hi")),
        ("HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nhi", Ok("hi")),
        ("HTTP/1.1 200 Very well\tindeed\r\nContent-Length: 2\r\n\r\nhi", Ok("hi")),
        ("HTTP/1.1 999 ?\r\nContent-Length: 2\r\n\r\nhi", Ok("hi")),
        ("HTTP/1.1 099 ?\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Status(99))),
        ("HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("status line"))),
        ("HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("status line"))),
        ("HTTP/1.1 2x0 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("status line"))),
        ("HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("status line"))),
        ("HTTP/1.1\t200 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("version"))),
        ("HTTP/1.1 200\tOK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("status line"))),
        ("HTTP/1.1 -20 OK\r\nContent-Length: 2\r\n\r\nhi", Err(Violation::Malformed("status line"))),
    ]);
}

#[test]
fn section_5_fields_are_names_colons_and_values() {
    let seen = one(ok("content-LENGTH:2\r\nX-A:\t b c \r\nx-a: d\r\nEmpty:\r\nLatin: \u{e9}\r\n", "hi")).unwrap();
    let expected = [("content-length", "2"), ("x-a", "b c"), ("x-a", "d"), ("empty", ""), ("latin", "\\xc3\\xa9")];
    assert_eq!(seen.headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(seen.body, "hi");
    for (lines, violation) in [
        ("Content-Length : 2\r\n", "header name"), // 5.1: no white space before the colon.
        ("Content-Length\t: 2\r\n", "header name"),
        ("Content-Length: 2\r\nA: b\r\n c\r\n", "header name"), // 5.2: no folded lines.
        ("Content-Length: 2\r\nA: b\r\n\tc\r\n", "header name"),
        ("Content-Length: 2\r\nA\r\n", "header name"),
        ("Content-Length: 2\r\n: b\r\n", "header name"),
        ("Content-Length: 2\r\nA(: b\r\n", "header name"),
        ("Content-Length: 2\r\nA\u{e9}: b\r\n", "header name"),
        ("Content-Length: 2\r\nA: b\0c\r\n", "header value"),
        ("Content-Length: 2\r\nA: b\x7f\r\n", "header value"),
    ] {
        assert_eq!(one(ok(lines, "hi")), Err(Violation::Malformed(violation)), "{lines:?}");
    }
}

#[test]
fn section_6_1_an_encoding_is_chunked_and_nothing_else() {
    let chunks = "2\r\nhi\r\n0\r\n\r\n";
    for coding in ["chunked", "Chunked", "CHUNKED", " chunked "] {
        assert_eq!(body_of(ok(&format!("Transfer-Encoding:{coding}\r\n"), chunks)).as_deref(), Ok("hi"), "{coding}");
    }
    for coding in [
        "",
        "identity",
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, chunked",
        "chunked,",
        ",chunked",
        "xchunked",
        "chunked;q=1",
        "\"chunked\"",
        "chunke",
        "chunked\u{b}",
        "chunked\u{e9}",
    ] {
        let lines = format!("Transfer-Encoding: {coding}\r\n");
        let expected = match coding {
            "chunked\u{b}" => Violation::Malformed("header value"),
            _ => Violation::TransferEncoding,
        };
        assert_eq!(body_of(ok(&lines, chunks)), Err(expected), "{coding:?}");
    }
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(body_of(ok(twice, chunks)), Err(Violation::TransferEncoding));
    let mixed = "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n";
    assert_eq!(body_of(ok(mixed, chunks)), Err(Violation::TransferEncoding));
    let old = format!("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    assert_eq!(body_of(old), Err(Violation::TransferEncoding));
}

#[test]
fn section_6_2_a_length_is_digits() {
    for length in ["2", "02", "0000000000000000000000000002", "2, 2", "2,2", "2 ,\t02"] {
        let lines = format!("Content-Length: {length}\r\n");
        assert_eq!(body_of(ok(&lines, "hi")).as_deref(), Ok("hi"), "{length:?}");
    }
    for length in [
        "",
        "+2",
        "-2",
        "0x2",
        "2.0",
        "2e0",
        "2 2",
        "two",
        "2;",
        "2,",
        ",2",
        "'2'",
        "\u{b2}",
        "2_0",
        "18446744073709551616",
        "99999999999999999999999999",
        "2, x",
    ] {
        let lines = format!("Content-Length: {length}\r\n");
        assert_eq!(body_of(ok(&lines, "hi")), Err(Violation::ContentLength), "{length:?}");
    }
    let limit = LIMITS.body_bytes_max;
    for length in ["4097", "18446744073709551615", "9223372036854775808"] {
        let lines = format!("Content-Length: {length}\r\n");
        assert_eq!(body_of(ok(&lines, "hi")), Err(Violation::BodyTooLarge { limit }), "{length:?}");
    }
}

#[test]
fn section_6_3_the_length_of_a_message_is_one() {
    check(&[
        // 5. Several lengths must be equal.
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", Ok("hi")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", Err(Violation::SeveralLengths)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nhi!", Err(Violation::SeveralLengths)),
        // 3. Length and encoding, in either order.
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            Err(Violation::LengthAndEncoding),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            Err(Violation::LengthAndEncoding),
        ),
        // 6. A length, but the input ends before.
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", Err(Violation::Truncated)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Ok("")),
        // 8. Without both, the body lasts until the close.
        ("HTTP/1.1 200 OK\r\n\r\nall that comes\r\n\r\n", Ok("all that comes\\r\\n\\r\\n")),
        ("HTTP/1.1 200 OK\r\n\r\n", Ok("")),
        // Half a head.
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", Err(Violation::Truncated)),
        ("HTTP/", Err(Violation::Truncated)),
    ]);
    let limit = LIMITS.body_bytes_max;
    let until_close = |bytes| body_of(ok("", &"x".repeat(bytes))).map(|body| body.len());
    assert_eq!(until_close(limit), Ok(limit));
    assert_eq!(until_close(limit + 1), Err(Violation::BodyTooLarge { limit }));
    let length =
        |bytes| body_of(ok(&format!("Content-Length: {bytes}\r\n"), &"x".repeat(bytes))).map(|body| body.len());
    assert_eq!(length(limit), Ok(limit));
}

#[test]
fn section_6_3_head_and_some_statuses_have_no_body() {
    let next = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let statuses = |method: &Method, first: &str| -> Result<Vec<u16>, Violation> {
        match read(method, format!("{first}{next}").as_bytes()) {
            (seen, None) => {
                assert!(seen.iter().all(|seen| seen.body.is_empty()));
                Ok(seen.iter().map(|seen| seen.status).collect())
            }
            (_, Some(violation)) => Err(violation),
        }
    };
    for (method, first, expected) in [
        (Method::HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Ok(vec![200, 200])),
        (Method::HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Ok(vec![200, 200])),
        (Method::HEAD, "HTTP/1.1 200 OK\r\n\r\n", Ok(vec![200, 200])),
        (Method::HEAD, "HTTP/1.1 404 No\r\nContent-Length: 99999999\r\n\r\n", Ok(vec![404, 200])),
        (Method::HEAD, "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", Err(Violation::ContentLength)),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Ok(vec![304, 200])),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", Ok(vec![304, 200])),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\n\r\n", Ok(vec![304, 200])),
        (Method::GET, "HTTP/1.1 204 No Content\r\n\r\n", Ok(vec![204, 200])),
        (Method::GET, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", Ok(vec![204, 200])),
        (
            Method::GET,
            "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
            Err(Violation::BodyNotAllowed(StatusCode::NO_CONTENT)),
        ),
        (
            Method::GET,
            "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err(Violation::BodyNotAllowed(StatusCode::NO_CONTENT)),
        ),
        (Method::GET, "HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n", Ok(vec![205, 200])),
    ] {
        assert_eq!(statuses(&method, first), expected, "{method} {first:?}");
    }
}

#[test]
fn section_7_1_chunks_have_sizes_and_ends() {
    let chunked = |body: &str| body_of(ok("Transfer-Encoding: chunked\r\n", body));
    for (body, expected) in [
        ("2\r\nhi\r\n0\r\n\r\n", "hi"),
        ("1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", "hi"),
        ("02\r\nhi\r\n000\r\n\r\n", "hi"),
        ("0000000000000002\r\nhi\r\n0\r\n\r\n", "hi"),
        ("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789"),
        ("2;x=y;z=\"q\"\r\nhi\r\n0;last\r\n\r\n", "hi"),
        ("2 ; x\r\nhi\r\n0\r\n\r\n", "hi"),
        ("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\\r\\n\\r\\n"),
        ("0\r\n\r\n", ""),
    ] {
        assert_eq!(chunked(body).as_deref(), Ok(expected), "{body:?}");
    }
    let limit = LIMITS.body_bytes_max;
    for (body, expected) in [
        ("\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("0x2\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("+2\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("-2\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        (" 2\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("2 \r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("2 2\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("2_\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("g\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("2\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("2;a\nb\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("2;a\rb\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("2;a\0\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("00000000000000002\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("10000000000000002\r\nhi\r\n0\r\n\r\n", Violation::ChunkSize),
        ("ffffffffffffffff\r\nhi\r\n0\r\n\r\n", Violation::BodyTooLarge { limit }),
        ("1001\r\nhi\r\n0\r\n\r\n", Violation::BodyTooLarge { limit }),
        ("2\r\nhi!\r\n0\r\n\r\n", Violation::ChunkEnd),
        ("2\r\nhi\n0\r\n\r\n", Violation::ChunkEnd),
        ("2\r\nhi\r0\r\n\r\n", Violation::ChunkEnd),
        ("2\r\nhi0\r\n\r\n", Violation::ChunkEnd),
        ("3\r\nhi\r\n0\r\n\r\n", Violation::ChunkEnd),
        ("2\r\nhi\r\n", Violation::Truncated),
        ("2\r\nhi\r\n0\r\n", Violation::Truncated),
        ("2\r\nh", Violation::Truncated),
        ("2\r\nhi\r\n0\r\n\n", Violation::BareLineFeed),
    ] {
        assert_eq!(chunked(body), Err(expected), "{body:?}");
    }
}

#[test]
fn section_7_1_chunks_together_keep_within_the_body_limit() {
    let limit = LIMITS.body_bytes_max;
    let chunked = |count| {
        let body = format!("{}0\r\n\r\n", "10\r\n0123456789abcdef\r\n".repeat(count));
        body_of(ok("Transfer-Encoding: chunked\r\n", &body)).map(|body| body.len())
    };
    assert_eq!(chunked(limit / 16), Ok(limit));
    assert_eq!(chunked(limit / 16 + 1), Err(Violation::BodyTooLarge { limit }));
}

#[test]
fn section_7_1_1_extensions_are_skipped_and_not_endless() {
    let chunked = |body: &str| body_of(ok("Transfer-Encoding: chunked\r\n", body));
    let line = |extension: usize| format!("1;{}\r\nx\r\n", "e".repeat(extension));
    assert_eq!(chunked(&(line(CHUNK_LINE_BYTES_MAX - 4) + "0\r\n\r\n")).as_deref(), Ok("x"));
    assert_eq!(chunked(&(line(CHUNK_LINE_BYTES_MAX - 3) + "0\r\n\r\n")), Err(Violation::ChunkLineTooLong));
    assert_eq!(chunked(&"1;".repeat(10_000)), Err(Violation::ChunkLineTooLong));
    let lines = |count| chunked(&(line(127).repeat(count) + "0\r\n\r\n")).map(|body| body.len());
    assert_eq!(lines(CHUNK_EXTENSION_BYTES_MAX / 128), Ok(CHUNK_EXTENSION_BYTES_MAX / 128));
    assert_eq!(lines(CHUNK_EXTENSION_BYTES_MAX / 128 + 1), Err(Violation::ChunkExtensionsTooLong));
    // Each body may use the whole limit.
    let twice = ok("Transfer-Encoding: chunked\r\n", &(line(127).repeat(32) + "0\r\n\r\n")).repeat(2);
    assert_eq!(read(&Method::GET, twice.as_bytes()).1, None);
}

#[test]
fn section_7_1_2_trailers_are_kept_apart() {
    let chunked =
        |trailers: &str| one(ok("Transfer-Encoding: chunked\r\n", &format!("2\r\nhi\r\n0\r\n{trailers}\r\n")));
    let seen = chunked("X-Sum: 1\r\nContent-Length: 7\r\nTransfer-Encoding: gzip\r\nConnection: close\r\n").unwrap();
    assert_eq!(seen.trailers[0], ("x-sum".to_owned(), "1".to_owned()));
    assert_eq!((seen.trailers.len(), seen.headers.len(), seen.close), (4, 1, false));
    assert_eq!(chunked("X: 1\r\n 2\r\n"), Err(Violation::Malformed("header name")));
    assert_eq!(chunked("X : 1\r\n"), Err(Violation::Malformed("header name")));
    assert_eq!(chunked("X: 1\n"), Err(Violation::BareLineFeed));
    let limit = LIMITS.head_bytes_max;
    let long = |bytes: usize| format!("X: {}\r\n", "y".repeat(bytes - 7));
    assert_eq!(chunked(&long(limit)).map(|seen| seen.trailers.len()), Ok(1));
    assert_eq!(chunked(&long(limit + 1)), Err(Violation::TrailersTooLarge { limit }));
    assert_eq!(chunked(&"X: 1\r\n".repeat(100_000)), Err(Violation::TrailersTooLarge { limit }));
    assert_eq!(chunked(&"X:\r\n".repeat(HEADER_COUNT_MAX)).map(|seen| seen.trailers.len()), Ok(HEADER_COUNT_MAX));
    assert_eq!(chunked(&"X:\r\n".repeat(HEADER_COUNT_MAX + 1)), Err(Violation::TooManyHeaders));
}

#[test]
fn section_9_3_the_connection_stays_unless_something_says_otherwise() {
    for (head, close) in [
        ("HTTP/1.1 200 OK\r\n", false),
        ("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n", false),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n", true),
        ("HTTP/1.1 200 OK\r\nconnection: CLOSE\r\n", true),
        ("HTTP/1.1 200 OK\r\nConnection: x, close ,y\r\n", true),
        ("HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close\r\n", true),
        ("HTTP/1.1 200 OK\r\nConnection: closed\r\n", false),
        ("HTTP/1.1 200 OK\r\nX-Connection: close\r\n", false),
        ("HTTP/1.0 200 OK\r\n", true),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", true), // What 1.0 promises is not relied on.
    ] {
        let seen = one(format!("{head}Content-Length: 2\r\n\r\nhi")).unwrap();
        assert_eq!((seen.body.as_str(), seen.close), ("hi", close), "{head:?}");
    }
    assert!(one("HTTP/1.1 200 OK\r\n\r\nhi").unwrap().close);
}

#[test]
fn section_9_3_2_answers_follow_each_other() {
    let bytes = [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\nT: 1\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 Oh\r\n\r\nthe rest",
    ]
    .concat();
    let (seen, violation) = read(&Method::GET, bytes.as_bytes());
    let seen: Vec<_> = seen.iter().map(|seen| (seen.status, seen.body.as_str())).collect();
    assert_eq!((seen, violation), (vec![(200, "a"), (201, "b"), (204, ""), (500, "the rest")], None));
}

#[test]
fn rfc_9110_15_2_interim_answers_are_skipped_and_not_endless() {
    let next = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let most = interim.repeat(INTERIM_COUNT_MAX as usize);
    check(&[
        (&format!("HTTP/1.1 100 Continue\r\n\r\n{next}"), Ok("hi")),
        (&format!("HTTP/1.1 199 ?\r\nContent-Length: 0\r\n\r\n{next}"), Ok("hi")),
        (&format!("HTTP/1.1 100 ?\r\nConnection: close\r\n\r\n{next}"), Ok("hi")),
        (&format!("{most}{next}"), Ok("hi")),
        (&format!("{most}{interim}{next}"), Err(Violation::TooManyInterim)),
        (&interim.repeat(100_000), Err(Violation::TooManyInterim)),
        ("HTTP/1.1 100 Continue\r\n\r\n", Err(Violation::Truncated)),
        (
            &format!("HTTP/1.1 100 ?\r\nContent-Length: 2\r\n\r\nhi{next}"),
            Err(Violation::BodyNotAllowed(StatusCode::CONTINUE)),
        ),
        (
            &format!("HTTP/1.1 100 ?\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{next}"),
            Err(Violation::BodyNotAllowed(StatusCode::CONTINUE)),
        ),
        ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", Err(Violation::SwitchingProtocols)),
    ]);
    // Each answer may use the whole limit.
    assert_eq!(read(&Method::GET, format!("{most}{next}").repeat(3).as_bytes()).1, None);
}

#[test]
fn the_size_of_a_head_is_bounded() {
    let limit = LIMITS.head_bytes_max;
    let head = |bytes: usize| {
        let frame = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: \r\n\r\n".len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: {}\r\n\r\n", "x".repeat(bytes - frame))
    };
    assert_eq!(body_of(head(limit)).as_deref(), Ok(""));
    assert_eq!(body_of(head(limit + 1)), Err(Violation::HeadTooLarge { limit }));
    for endless in [
        "HTTP/1.1 200 OK\r\n".to_owned() + &"A: b\r\n".repeat(100_000),
        "HTTP/1.1 200 ".to_owned() + &"x".repeat(100_000),
    ] {
        assert_eq!(body_of(&endless), Err(Violation::HeadTooLarge { limit }));
        let pieces = endless.as_bytes().chunks(700);
        assert_eq!(read_pieces(&Method::GET, pieces), (Vec::new(), Some(Violation::HeadTooLarge { limit })));
    }
    let lines = |count| body_of(ok(&"A:\r\n".repeat(count), ""));
    assert_eq!(lines(HEADER_COUNT_MAX).as_deref(), Ok(""));
    assert_eq!(lines(HEADER_COUNT_MAX + 1), Err(Violation::TooManyHeaders));
}

#[test]
fn a_header_name_is_at_most_as_long_as_a_map_allows() {
    let limits = Limits { head_bytes_max: 1 << 20, ..LIMITS };
    for (bytes, expected) in [(65_535, Ok(())), (65_536, Err(Violation::Malformed("header name")))] {
        let name = "n".repeat(bytes);
        for stream in [
            format!("HTTP/1.1 204 N\r\n{name}: v\r\n\r\n"),
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{name}: v\r\n\r\n"),
        ] {
            let parsed = Parser::new(limits).parse(&Method::GET, &mut BytesMut::from(stream.as_str()));
            let seen = parsed.map(|answer| {
                let response = answer.unwrap().response;
                assert!(response.headers().contains_key(&name) || response.trailers().contains_key(&name));
            });
            assert_eq!(seen, expected, "{bytes}");
        }
    }
}

#[test]
fn half_an_answer_is_not_returned() {
    let mut parser = Parser::new(LIMITS);
    let stream = "HTTP/1.1 200 OK\r\nSet-Cookie: secret\r\nContent-Length: 60\r\n\r\nsecret";
    assert!(parser.parse(&Method::GET, &mut BytesMut::from(stream)).unwrap().is_none());
    let shown = format!("{parser:?}");
    assert!(!shown.contains("secret") && shown.contains("Length"), "{shown}");
}

#[test]
fn a_large_content_length_reserves_little() {
    let mut parser = Parser::new(Limits { body_bytes_max: usize::MAX, ..LIMITS });
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40);
    assert!(parser.parse(&Method::GET, &mut BytesMut::from(head.as_str())).unwrap().is_none());
    assert!(parser.body.capacity() <= 2 * BODY_RESERVE_BYTES_MAX, "{}", parser.body.capacity());
}

/// Long enough for every state, short enough to split it everywhere.
const STREAMS: [&str; 6] = [
    "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 N\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\na\r\n\r\n1\r\nd\r\n0\r\nT: u\r\n\r\nHTTP/1.1 304 N\r\n\r\n",
    "HTTP/1.1 200 OK\r\nA: b\r\n\r\nuntil\r\nthe end",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nA : b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n",
];

#[test]
fn every_split_into_up_to_three_pieces_gives_the_same_answers() {
    for stream in STREAMS.map(str::as_bytes) {
        let whole = read(&Method::GET, stream);
        assert_eq!(read_pieces(&Method::GET, stream.chunks(1)), whole, "{}", stream.escape_ascii());
        for second in 0..=stream.len() {
            for third in second..=stream.len() {
                let pieces = [&stream[..second], &stream[second..third], &stream[third..]];
                assert_eq!(read_pieces(&Method::GET, pieces), whole, "{second} {third} {}", stream.escape_ascii());
            }
        }
    }
}

/// Parses the bytes in pieces of `piece_bytes`, with large bodies skipped.
fn skip(bytes: &str, piece_bytes: usize) -> Result<Option<Seen>, Violation> {
    let mut parser = Parser::new(LIMITS).skip_large_bodies();
    let mut input = BytesMut::new();
    for piece in bytes.as_bytes().chunks(piece_bytes) {
        input.extend_from_slice(piece);
        if let Some(answer) = parser.parse(&Method::POST, &mut input)? {
            return Ok(Some(answer.into()));
        }
    }
    Ok(None)
}

#[test]
fn a_skipped_large_body_ends_the_connection() {
    let limit = LIMITS.body_bytes_max;
    let large = "x".repeat(limit + 1);
    for answer in [
        format!("HTTP/1.1 410 Gone\r\nA: b\r\nContent-Length: {}\r\n\r\n{large}", limit + 1),
        "HTTP/1.1 410 Gone\r\nA: b\r\nContent-Length: 99999999999\r\n\r\n".to_owned(),
        format!("HTTP/1.1 410 Gone\r\nA: b\r\n\r\n{large}"),
        format!("HTTP/1.1 410 Gone\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n{limit:x}\r\n{large}"),
    ] {
        for piece_bytes in [1, 7, 100_000] {
            let seen = skip(&answer, piece_bytes).unwrap().expect("the head is complete");
            assert_eq!((seen.status, seen.body.as_str(), seen.close), (410, "", true), "{answer:.80}");
            assert!(seen.headers.contains(&("a".to_owned(), "b".to_owned())), "{seen:?}");
        }
    }
    let fits = format!("HTTP/1.1 410 Gone\r\nContent-Length: {limit}\r\n\r\n{}", "x".repeat(limit));
    let seen = skip(&fits, 7).unwrap().unwrap();
    assert_eq!((seen.body.len(), seen.close), (limit, false));
    assert_eq!(skip("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", 7), Err(Violation::ContentLength));
}

proptest! {
    /// The streams are damaged anywhere and split into any pieces.
    #[test]
    fn damaged_streams_give_the_same_result_in_any_pieces(
        which in 0..STREAMS.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        head in any::<bool>(),
    ) {
        let mut stream = STREAMS[which].as_bytes().to_vec();
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([stream.len()]);
        let pieces = ends.scan(0, |begin, end| Some(&stream[std::mem::replace(begin, end)..end]));
        let method = if head { Method::HEAD } else { Method::GET };
        prop_assert_eq!(read_pieces(&method, pieces), read(&method, &stream));
    }

    /// The parser reads exactly what a correct server writes.
    #[test]
    fn written_answers_are_read_unchanged(
        status in 205_u16..600,
        body in prop::collection::vec(any::<u8>(), 0..300),
        chunk in 0_usize..50,
        names in prop::collection::vec("[A-Za-z][A-Za-z-]{0,8}x", 0..5),
    ) {
        prop_assume!(status != 304);
        let mut stream = format!("HTTP/1.1 {status} x\r\n").into_bytes();
        for name in &names {
            stream.extend_from_slice(format!("{name}: v\r\n").as_bytes());
        }
        if chunk == 0 {
            stream.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            stream.extend_from_slice(&body);
        } else {
            stream.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(chunk) {
                stream.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                stream.extend_from_slice(chunk);
                stream.extend_from_slice(b"\r\n");
            }
            stream.extend_from_slice(b"0\r\n\r\n");
        }
        let (seen, violation) = read_pieces(&Method::GET, stream.chunks(7));
        prop_assert_eq!(violation, None);
        prop_assert_eq!(seen.len(), 1);
        prop_assert_eq!(seen[0].status, status);
        prop_assert_eq!(&seen[0].body, &body.escape_ascii().to_string());
        prop_assert_eq!(seen[0].headers.len(), names.len() + 1);
    }
}
