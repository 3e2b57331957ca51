//! Shows how the parser handles hostile answers. It uses no network.
//!
//! `cargo run -p tidings-http1 --example hostile`

use std::io::{self, Write as _};

use bytes::BytesMut;
use http::Method;
use tidings_http1::{Limits, Parser};

const ANSWERS: [&str; 7] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nhello",
    "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello",
];

fn main() -> io::Result<()> {
    let mut out = io::stdout();
    for answer in ANSWERS {
        let mut parser = Parser::new(Limits { head_bytes_max: 16 * 1024, body_bytes_max: 1024 * 1024 });
        match parser.parse(&Method::GET, &mut BytesMut::from(answer)) {
            Ok(Some(answer)) => writeln!(out, "{}, {} bytes", answer.response.status(), answer.response.body().len())?,
            Ok(None) => writeln!(out, "not all there yet")?,
            Err(violation) => writeln!(out, "refused: {violation}")?,
        }
    }
    Ok(())
}
