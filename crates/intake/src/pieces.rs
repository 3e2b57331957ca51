//! The bytes of a document for a reader that blocks: from pieces that arrive, inflated, within a bound.
//!
//! The reader runs on a thread of its own and may be slower than the network: [`PIECE_COUNT_MAX`] pieces wait for it,
//! and no more are read from the socket. If the pieces stop without [`Piece::End`], the document has broken off.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex};

use bytes::{Buf as _, Bytes};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use tidings_telemetry::panics;
use tokio::sync::mpsc;

/// Pieces that wait for the reader: of a body that hyper reads, each has at most some hundred KiB.
pub(crate) const PIECE_COUNT_MAX: usize = 4;
/// Bytes that the reader sees at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// What the sender says of the bytes of a document.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// `Content-Encoding`.
    pub coding: Option<String>,
    /// `charset` of `Content-Type`.
    pub charset: Option<String>,
}

impl Said {
    /// What headers say.
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let parameters = text(CONTENT_TYPE).unwrap_or_default().split(';').skip(1);
        let charset = parameters
            .filter_map(|it| it.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
        let charset = charset.map(|(_, value)| value.trim().trim_matches('"').to_owned());
        Self { coding: text(CONTENT_ENCODING).map(str::to_owned), charset }
    }
}

/// A piece of a document.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    /// The proper end.
    End,
}

/// Why the bytes of a document ended early. The reader of the document only sees that reading failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the document broke off")]
    BrokenOff,
    #[error("the document has more than {0} bytes")]
    TooLarge(u64),
    #[error("the document cannot be inflated: {0}")]
    Coding(String),
    #[error("the content coding must be gzip, deflate or identity, got {0:?}")]
    UnknownCoding(String),
    #[error("the file cannot be read: {0}")]
    File(String),
}

/// Where a [`Fault`] is left, and how many bytes the reader got.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome(Arc<Mutex<(Option<Fault>, u64)>>);

impl Outcome {
    pub(crate) fn fault(&self) -> Option<Fault> {
        panics::lock(&self.0).0.clone()
    }

    pub(crate) fn bytes(&self) -> u64 {
        panics::lock(&self.0).1
    }

    /// The first fault is the cause of the others.
    fn fail(&self, fault: Fault) -> io::Error {
        let error = io::Error::other(fault.clone());
        panics::lock(&self.0).0.get_or_insert(fault);
        error
    }
}

/// The document's bytes.
pub(crate) type Document = BufReader<Limited>;

/// A document of pieces with this content coding.
///
/// # Errors
/// If the coding is unknown. Must be called on a thread that may block.
pub(crate) fn of_pieces(
    pieces: mpsc::Receiver<Piece>,
    coding: Option<&str>,
    bytes_max: u64,
    outcome: Outcome,
) -> Result<Document, Fault> {
    let mut pieces =
        Pieces { pieces, current: Bytes::new(), left: bytes_max, bytes_max, is_over: false, outcome: outcome.clone() };
    let coding = coding.unwrap_or("identity").trim().to_ascii_lowercase();
    let inner: Box<dyn Read + Send> = match coding.as_str() {
        "identity" | "" => Box::new(pieces),
        "gzip" | "x-gzip" => Box::new(MultiGzDecoder::new(pieces)),
        // RFC 9110, 8.4.1.2: zlib; some servers leave its head out.
        "deflate" => match pieces.fill_buf().map(|bytes| matches!(bytes, [first, ..] if first & 0x0f == 8)) {
            Ok(false) => Box::new(DeflateDecoder::new(pieces)),
            _ => Box::new(ZlibDecoder::new(pieces)),
        },
        _ => return Err(Fault::UnknownCoding(coding.chars().take(64).collect())),
    };
    Ok(limited(inner, bytes_max, Fault::Coding, outcome))
}

/// The document of a file.
pub(crate) fn of_file(file: std::fs::File, bytes_max: u64, outcome: Outcome) -> Document {
    limited(Box::new(file), bytes_max, Fault::File, outcome)
}

fn limited(inner: Box<dyn Read + Send>, bytes_max: u64, fault: fn(String) -> Fault, outcome: Outcome) -> Document {
    BufReader::with_capacity(BUFFER_BYTES, Limited { inner, left: bytes_max, bytes_max, fault, outcome })
}

/// Fails when more bytes come than are allowed, and notes why reading failed.
pub(crate) struct Limited {
    inner: Box<dyn Read + Send>,
    left: u64,
    bytes_max: u64,
    fault: fn(String) -> Fault,
    outcome: Outcome,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer).map_err(|error| self.outcome.fail((self.fault)(error.to_string())))?;
        self.left =
            self.left.checked_sub(count as u64).ok_or_else(|| self.outcome.fail(Fault::TooLarge(self.bytes_max)))?;
        panics::lock(&self.outcome.0).1 += count as u64;
        Ok(count)
    }
}

struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    /// Bytes that may still come. Otherwise pieces that inflate to nothing could come without end.
    left: u64,
    bytes_max: u64,
    is_over: bool,
    outcome: Outcome,
}

impl BufRead for Pieces {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() && !self.is_over {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(data)) => {
                    let left = self.left.checked_sub(data.len() as u64);
                    self.left = left.ok_or_else(|| self.outcome.fail(Fault::TooLarge(self.bytes_max)))?;
                    self.current = data;
                }
                Some(Piece::End) => self.is_over = true,
                None => return Err(self.outcome.fail(Fault::BrokenOff)),
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, count: usize) {
        self.current.advance(count);
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn read(coding: Option<&str>, bytes: &[u8], is_whole: bool, bytes_max: u64) -> Result<Vec<u8>, Fault> {
        let (tx, rx) = mpsc::channel(1000);
        for piece in bytes.chunks(7) {
            tx.try_send(Piece::Data(Bytes::copy_from_slice(piece))).unwrap();
        }
        if is_whole {
            tx.try_send(Piece::End).unwrap();
        }
        drop(tx);
        let (outcome, mut all) = (Outcome::default(), Vec::new());
        let read = of_pieces(rx, coding, bytes_max, outcome.clone())?.read_to_end(&mut all);
        assert_eq!(outcome.bytes(), all.len() as u64);
        read.map(|_| all).map_err(|_| outcome.fault().unwrap())
    }

    #[test]
    fn a_document_is_inflated_within_its_bound() {
        let text = b"<feed>".repeat(100);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        for encoder in [&mut gzip as &mut dyn io::Write, &mut zlib, &mut raw] {
            encoder.write_all(&text).unwrap();
        }
        let (gzip, zlib, raw) = (gzip.finish().unwrap(), zlib.finish().unwrap(), raw.finish().unwrap());
        let cases = [
            (None, &text),
            (Some("identity"), &text),
            (Some("GZIP"), &gzip),
            (Some("deflate"), &zlib),
            (Some("deflate"), &raw),
        ];
        for (coding, bytes) in cases {
            assert_eq!(read(coding, bytes, true, 600).as_ref(), Ok(&text), "{coding:?}");
            assert_eq!(read(coding, bytes, true, 599), Err(Fault::TooLarge(599)), "{coding:?}");
            assert_eq!(read(coding, &bytes[..bytes.len() - 9], false, 600), Err(Fault::BrokenOff), "{coding:?}");
        }
        let empty = GzEncoder::new(Vec::new(), Compression::fast()).finish().unwrap().repeat(31);
        assert_eq!(read(Some("gzip"), &empty, true, 600), Err(Fault::TooLarge(600)), "it inflates to nothing");
        assert!(matches!(read(Some("gzip"), &gzip[..20], true, 600), Err(Fault::Coding(_))), "cut before it was sent");
        assert!(matches!(read(Some("gzip"), b"no gzip", true, 600), Err(Fault::Coding(_))));
        assert_eq!(read(Some("br"), &text, true, 600), Err(Fault::UnknownCoding("br".to_owned())));
    }
}
