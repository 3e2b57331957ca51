//! HTTP/1.1 as a protocol of the pool. Answers come in the order of the requests (RFC 9112, 9.3.2).
//!
//! An idempotent request is pipelined, and repeated on another connection if its own was lost. A request can override
//! this. An answer without a request ends the connection, for example a 408 before the server closes an idle connection.
//! Otherwise it could be taken for the answer to the next request.

use bytes::BytesMut;
use tidings_pool::{Codec, Decoded, Expect, Outgoing, Protocol, RequestId, To};

use crate::parser::{Answer, Limits, Parser, Violation};
use crate::request::RequestError;
use crate::{Origin, Request, Response};

/// The protocol, for one origin.
#[derive(Debug, Clone)]
pub struct Http1 {
    /// The complete header line.
    host: Vec<u8>,
    limits: Limits,
    skips_large_bodies: bool,
}

/// An error of a request or an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Http1Error {
    /// The request cannot be sent.
    #[error(transparent)]
    Request(RequestError),
    /// The server broke the protocol or a limit.
    #[error(transparent)]
    Answer(Violation),
}

impl Http1 {
    /// Makes a protocol for requests to `origin`, and answers within `limits`.
    pub fn new(origin: &Origin, limits: Limits) -> Self {
        Self { host: format!("host: {}\r\n", origin.authority()).into_bytes(), limits, skips_large_bodies: false }
    }

    /// As [`Parser::skip_large_bodies`].
    pub fn skip_large_bodies(self, yes: bool) -> Self {
        Self { skips_large_bodies: yes, ..self }
    }
}

impl Protocol for Http1 {
    type Request = Request;
    type Response = Response;
    type Error = Http1Error;
    type Codec = Http1Codec;

    fn codec(&self) -> Http1Codec {
        let parser = Parser::new(self.limits);
        let parser = if self.skips_large_bodies { parser.skip_large_bodies() } else { parser };
        Http1Codec { host: self.host.clone(), parser }
    }

    fn is_pipelinable(&self, request: &Request) -> bool {
        request.may_pipeline()
    }

    fn is_repeatable(&self, request: &Request) -> bool {
        request.may_repeat()
    }
}

/// The codec of one connection.
#[derive(Debug)]
pub struct Http1Codec {
    host: Vec<u8>,
    parser: Parser,
}

impl Codec<Http1> for Http1Codec {
    fn encode(&mut self, request: &Request, _: RequestId, out: &mut Outgoing) -> Result<Expect<Response>, Http1Error> {
        request.check().map_err(Http1Error::Request)?;
        request.write(&self.host, out);
        Ok(Expect::Answer)
    }

    fn decode(&mut self, oldest: Option<&Request>, input: &mut BytesMut) -> Result<Decoded<Response>, Http1Error> {
        let Some(request) = oldest else {
            return if input.is_empty() {
                Ok(Decoded::Incomplete)
            } else {
                Err(Http1Error::Answer(Violation::Unsolicited))
            };
        };
        Ok(match self.parser.parse(request.method(), input).map_err(Http1Error::Answer)? {
            Some(Answer { response, close }) => Decoded::Answer { to: To::Oldest, response, closes: close },
            None => Decoded::Incomplete,
        })
    }

    /// Half an answer does not count: its request is lost, or repeated on another connection.
    fn end_of_input(&mut self, _: Option<&Request>, _: &mut BytesMut) -> Result<Option<Response>, Http1Error> {
        Ok(self.parser.finish().ok().map(|answer| answer.response))
    }
}
