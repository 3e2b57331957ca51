//! What servers answer, and what callers want to ask.

use bytes::BytesMut;
use http::Method;
use tidings_http1::{Answer, Http1, Limits, Origin, Parser, Request, Response, Violation};
use tidings_pool::{Codec as _, Outgoing, Protocol as _};

const LIMITS: Limits = Limits { head_bytes_max: 512, body_bytes_max: 1024 };

/// Everything about a response.
type Whole = (http::StatusCode, http::HeaderMap, bytes::Bytes, http::HeaderMap, bool);

fn whole(Answer { response, close }: Answer) -> Whole {
    let fields = |of: fn(&Response) -> &http::HeaderMap| of(&response).clone();
    (response.status(), fields(Response::headers), response.body().clone(), fields(Response::trailers), close)
}

/// Answers on one connection: the same however the bytes come apart, within the limits, and nothing hoarded.
pub(crate) fn response(bytes: &[u8]) {
    for method in [Method::GET, Method::HEAD] {
        let at_once = read(&method, bytes, |rest| rest);
        assert_eq!(read(&method, bytes, |_| 1), at_once);
        // Pieces as long as the bytes themselves say.
        assert_eq!(read(&method, bytes, |rest| usize::from(bytes[bytes.len() - rest] % 23) + 1), at_once);
    }
}

fn read(method: &Method, bytes: &[u8], piece: impl Fn(usize) -> usize) -> (Vec<Whole>, Option<Violation>) {
    let mut parser = Parser::new(LIMITS);
    let (mut rest, mut input, mut answers) = (bytes, BytesMut::new(), Vec::new());
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece(rest.len()).min(rest.len()));
        rest = later;
        input.extend_from_slice(now);
        while !input.is_empty() {
            match parser.parse(method, &mut input) {
                Ok(Some(answer)) => {
                    let answer = whole(answer);
                    assert!(answer.0.as_u16() >= 200 && answer.2.len() <= LIMITS.body_bytes_max);
                    answers.push(answer);
                }
                Ok(None) => break,
                Err(violation) => return (answers, Some(violation)),
            }
        }
        assert!(input.len() < LIMITS.head_bytes_max, "{} bytes are left lying", input.len());
    }
    answers.extend(parser.finish().ok().map(whole));
    (answers, None)
}

/// Method, target, names and values, with 0xff between them: what is accepted is one request, with exactly this.
pub(crate) fn request(bytes: &[u8]) {
    let mut words = bytes.split(|byte| *byte == 0xff);
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return };
    let Ok(method) = Method::from_bytes(method) else { return };
    let Ok(target) = std::str::from_utf8(target) else { return };
    let Ok(mut request) = Request::new(method.clone(), target) else { return };
    let mut expected = vec![("host".to_owned(), b"example.com".to_vec())];
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let Ok(name) = std::str::from_utf8(name) else { return };
        let Ok(with) = request.clone().header(name, value) else { continue };
        request = with;
        expected.insert(expected.len() - 1, (name.to_ascii_lowercase(), value.trim_ascii().to_vec()));
    }
    let origin: Origin = "http://example.com".parse().expect("it is one");
    let mut out = Outgoing::new();
    let mut codec = Http1::new(&origin, LIMITS).codec();
    codec.encode(&request, 0, &mut out).expect("it has no body");
    let written = out.to_vec();
    let mut headers = vec![httparse::EMPTY_HEADER; expected.len() + 1];
    let mut read = httparse::Request::new(&mut headers);
    assert_eq!(read.parse(&written), Ok(httparse::Status::Complete(written.len())), "one head and nothing behind it");
    assert_eq!((read.method, read.path), (Some(method.as_str()), Some(target)));
    let found = read.headers.iter().map(|header| (header.name.to_owned(), header.value.trim_ascii().to_vec()));
    let found: Vec<_> = found.filter(|(name, _)| name != "content-length").collect();
    assert_eq!(found, expected);
}
