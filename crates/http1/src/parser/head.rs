//! Reads a head: the status, the kind of body, and whether the connection closes (RFC 9112, 4, 5, 6.3, 9.3).
//!
//! `httparse` checks the grammar, in its strict form. The caller passes complete lines that end with CR LF.

use std::mem::MaybeUninit;

use http::{Method, StatusCode};

use super::violation::{HEADER_COUNT_MAX, Violation};

/// The longest header name that the header map accepts. It matters only if the limit for heads is higher.
const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// The body after a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// A final or interim head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) body: Body,
    pub(super) close: bool,
    /// The offset of the header lines.
    pub(super) fields_at: usize,
}

impl Head {
    /// Reads the head of an answer to a request with this method.
    pub(super) fn read(block: &[u8], method: &Method) -> Result<Self, Violation> {
        let mut headers = [const { MaybeUninit::uninit() }; HEADER_COUNT_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, block, &mut headers)
            .map_err(malformed)?;
        let (httparse::Status::Complete(_), Some(code)) = (parsed, response.code) else {
            return Err(Violation::Malformed("head"));
        };
        let status = StatusCode::from_u16(code).map_err(|_| Violation::Status(code))?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Violation::SwitchingProtocols);
        }
        check_names(response.headers)?;
        let is_old = response.version == Some(0);
        let framing = Framing::of(response.headers)?;
        let body = framing.body(status, method, is_old)?;
        let close = framing.close || is_old || body == Body::UntilClose;
        let fields_at = memchr::memchr(b'\n', block).map_or(block.len(), |at| at + 1);
        Ok(Self { status, body, close, fields_at })
    }
}

/// The headers about the length of the message and the connection.
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
    close: bool,
}

impl Framing {
    fn of(headers: &[httparse::Header<'_>]) -> Result<Self, Violation> {
        let mut framing = Self::default();
        for header in headers {
            if header.name.eq_ignore_ascii_case("content-length") {
                framing.add_lengths(header.value)?;
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                // A second header makes a list, and a list is not just `chunked`.
                if framing.chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Violation::TransferEncoding);
                }
                framing.chunked = true;
            } else if header.name.eq_ignore_ascii_case("connection") {
                framing.close |= list(header.value).any(|option| option.eq_ignore_ascii_case(b"close"));
            }
        }
        if framing.chunked && framing.length.is_some() {
            return Err(Violation::LengthAndEncoding);
        }
        Ok(framing)
    }

    /// Adds a length, or a list of equal lengths (RFC 9110, 8.6).
    fn add_lengths(&mut self, value: &[u8]) -> Result<(), Violation> {
        for member in list(value) {
            let length = read_length(member).ok_or(Violation::ContentLength)?;
            if self.length.is_some_and(|other| other != length) {
                return Err(Violation::SeveralLengths);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    /// Decides about the body as RFC 9112, 6.3 does, in its order.
    fn body(&self, status: StatusCode, method: &Method, is_old: bool) -> Result<Body, Violation> {
        if self.chunked && is_old {
            return Err(Violation::TransferEncoding);
        }
        if status.is_informational() || status == StatusCode::NO_CONTENT {
            let promised = self.chunked || self.length.is_some_and(|length| length > 0);
            return if promised { Err(Violation::BodyNotAllowed(status)) } else { Ok(Body::None) };
        }
        // Here the headers describe a body that is not sent.
        if *method == Method::HEAD || status == StatusCode::NOT_MODIFIED {
            return Ok(Body::None);
        }
        Ok(match self.length {
            _ if self.chunked => Body::Chunked,
            Some(0) => Body::None,
            Some(length) => Body::Length(length),
            None => Body::UntilClose,
        })
    }
}

/// The members of a comma-separated list, without the white space around them.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Reads a decimal number that has only digits: no sign and no white space.
fn read_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |length, digit| {
        let value = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        length.checked_mul(10)?.checked_add(value)
    })
}

/// Checks trailers against the grammar of headers. Their content has no effect.
pub(super) fn check_trailers(block: &[u8]) -> Result<(), Violation> {
    let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    match httparse::parse_headers(block, &mut headers).map_err(malformed)? {
        httparse::Status::Complete((_, headers)) => check_names(headers),
        httparse::Status::Partial => Err(Violation::Malformed("trailers")),
    }
}

fn check_names(headers: &[httparse::Header<'_>]) -> Result<(), Violation> {
    let fit = headers.iter().all(|header| header.name.len() <= NAME_BYTES_MAX);
    if fit { Ok(()) } else { Err(Violation::Malformed("header name")) }
}

fn malformed(error: httparse::Error) -> Violation {
    use httparse::Error;
    match error {
        Error::TooManyHeaders => Violation::TooManyHeaders,
        Error::HeaderName => Violation::Malformed("header name"),
        Error::HeaderValue => Violation::Malformed("header value"),
        Error::NewLine => Violation::Malformed("end of a line"),
        Error::Version => Violation::Malformed("version"),
        Error::Status | Error::Token => Violation::Malformed("status line"),
    }
}
