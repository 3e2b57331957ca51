//! The bytes of a document as UTF-8, with lines counted.
//!
//! XML and JSON come in any encoding of the WHATWG list, among them UTF-8, UTF-16, ISO-8859-15 and windows-1252 (which that
//! list also takes for ISO-8859-1 and ASCII). The encoding is, in this order: a byte order mark; the name that the sender
//! gave; the first two characters of UTF-16 XML; the XML declaration; UTF-8. UTF-8 is handed on as it came: the parsers check
//! it. MessagePack is handed on as it came, too.
//!
//! Bounds: 64 KiB of the document. [`Source::mark`] says how many bytes may be read from now on; then reading fails with
//! the limit's name, at most 64 KiB later. So no parser can collect more than that for one text or entry.

use std::io::{self, BufRead, Read};

use encoding_rs::{Decoder, DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use memchr::memchr_iter;

use crate::error::{Position, Problem};

const CHUNK_BYTES: usize = 64 * 1024;
/// A declaration is looked for so far.
const DECLARATION_BYTES: usize = 256;

pub(crate) struct Source<R> {
    inner: R,
    /// The first bytes, in which the encoding was looked for; then nothing.
    head: Vec<u8>,
    head_at: usize,
    decoder: Option<Decoder>,
    chunk: Vec<u8>,
    at: usize,
    /// Bytes before the chunk.
    before: u64,
    /// Newlines before `chunk[counted]`.
    lines: u64,
    counted: usize,
    /// Bytes as they came.
    raw: u64,
    raw_max: u64,
    marked: Marked,
    is_over: bool,
    /// Why reading failed, in our words.
    pub(crate) failure: Option<Problem>,
}

/// Until which byte a parser may read.
#[derive(Debug, Clone, Copy)]
struct Marked {
    until: u64,
    name: &'static str,
    what: &'static str,
    limit: u64,
}

impl<R: BufRead> Source<R> {
    /// Text of an encoding that is found out.
    pub(crate) fn text(inner: R, charset: Option<&str>, raw_max: u64) -> Result<Self, Problem> {
        let mut source = Self::binary(inner, raw_max);
        source.fill_head().map_err(Problem::Io)?;
        let (encoding, mark_bytes) = encoding_of(&source.head, charset)?;
        source.head_at = mark_bytes;
        source.raw = mark_bytes as u64;
        if encoding != UTF_8 {
            source.decoder = Some(encoding.new_decoder_without_bom_handling());
        }
        Ok(source)
    }

    /// Bytes as they come.
    pub(crate) fn binary(inner: R, raw_max: u64) -> Self {
        let marked = Marked { until: u64::MAX, name: "", what: "", limit: 0 };
        Self {
            inner,
            head: Vec::new(),
            head_at: 0,
            decoder: None,
            chunk: Vec::with_capacity(CHUNK_BYTES),
            at: 0,
            before: 0,
            lines: 0,
            counted: 0,
            raw: 0,
            raw_max,
            marked,
            is_over: false,
            failure: None,
        }
    }

    fn fill_head(&mut self) -> io::Result<()> {
        (&mut self.inner).take(DECLARATION_BYTES as u64).read_to_end(&mut self.head).map(drop)
    }

    /// Where reading is.
    pub(crate) fn position(&mut self) -> Position {
        let newlines = memchr_iter(b'\n', &self.chunk[self.counted..self.at]).count();
        self.lines += newlines as u64;
        self.counted = self.at;
        Position { line: self.lines + 1, byte: self.byte() }
    }

    pub(crate) fn byte(&self) -> u64 {
        self.before + self.at as u64
    }

    pub(crate) fn raw_bytes(&self) -> u64 {
        self.raw
    }

    /// Allows `limit` more bytes from here on.
    #[inline]
    pub(crate) fn mark(&mut self, name: &'static str, what: &'static str, limit: u64) {
        self.marked = Marked { until: self.byte().saturating_add(limit), name, what, limit };
    }

    fn refill(&mut self) -> io::Result<()> {
        self.position();
        self.before += self.at as u64;
        (self.at, self.counted) = (0, 0);
        self.chunk.clear();
        while self.chunk.is_empty() && !self.is_over {
            if self.head_at < self.head.len() {
                let head = std::mem::take(&mut self.head);
                self.take_in(&head[self.head_at..])?;
            } else {
                self.read_inner()?;
            }
        }
        if self.raw > self.raw_max {
            let what = "the document";
            return Err(self.fail(Problem::limit("document_bytes", what, "has too many bytes", self.raw_max)));
        }
        Ok(())
    }

    fn read_inner(&mut self) -> io::Result<()> {
        let bytes = self.inner.fill_buf()?;
        if bytes.is_empty() {
            self.is_over = true;
            return self.finish();
        }
        let count = bytes.len().min(CHUNK_BYTES / 3); // A byte of an 8-bit encoding may become 3 of UTF-8.
        match &mut self.decoder {
            None => {
                let count = bytes.len().min(CHUNK_BYTES);
                self.chunk.extend_from_slice(&bytes[..count]);
                self.inner.consume(count);
                self.raw += count as u64;
                Ok(())
            }
            Some(decoder) => {
                let outcome = decode(decoder, &bytes[..count], &mut self.chunk, false);
                self.inner.consume(count);
                self.raw += count as u64;
                outcome.map_err(|problem| self.fail(problem))
            }
        }
    }

    /// Takes in what was read ahead.
    fn take_in(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.raw += bytes.len() as u64;
        match &mut self.decoder {
            None => self.chunk.extend_from_slice(bytes),
            Some(decoder) => {
                let outcome = decode(decoder, bytes, &mut self.chunk, false);
                outcome.map_err(|problem| self.fail(problem))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let outcome = decode(decoder, b"", &mut self.chunk, true);
        outcome.map_err(|problem| self.fail(problem))
    }

    fn fail(&mut self, problem: Problem) -> io::Error {
        self.failure = Some(problem);
        io::Error::other("see `failure`")
    }
}

/// Appends `bytes` as UTF-8.
fn decode(decoder: &mut Decoder, bytes: &[u8], chunk: &mut Vec<u8>, is_last: bool) -> Result<(), Problem> {
    let begin = chunk.len();
    let room = decoder.max_utf8_buffer_length_without_replacement(bytes.len()).unwrap_or(CHUNK_BYTES * 3);
    chunk.resize(begin + room, 0);
    let (result, _, written) = decoder.decode_to_utf8_without_replacement(bytes, &mut chunk[begin..], is_last);
    chunk.truncate(begin + written);
    match result {
        DecoderResult::InputEmpty => Ok(()),
        DecoderResult::OutputFull => Err(Problem::Encoding("cannot be decoded".to_owned())),
        DecoderResult::Malformed(..) => {
            let name = decoder.encoding().name();
            Err(Problem::Encoding(format!("near here are bytes that are not {name}")))
        }
    }
}

/// The encoding, and the length of the byte order mark.
fn encoding_of(head: &[u8], charset: Option<&str>) -> Result<(&'static Encoding, usize), Problem> {
    if let Some((encoding, bytes)) = Encoding::for_bom(head) {
        return Ok((encoding, bytes));
    }
    if let Some(charset) = charset {
        // Without a byte order mark the order of bytes shows in the first character, which is ASCII.
        return match named(charset)? {
            encoding if encoding == UTF_16LE && head.first() == Some(&0) => Ok((UTF_16BE, 0)),
            encoding => Ok((encoding, 0)),
        };
    }
    match head {
        [0, b'<', ..] => return Ok((UTF_16BE, 0)),
        [b'<', 0, ..] => return Ok((UTF_16LE, 0)),
        _ => {}
    }
    match declared(head) {
        Some(name) => match named(&name)? {
            encoding if encoding == UTF_16LE || encoding == UTF_16BE => {
                Err(Problem::Encoding(format!("the declaration says {name}, but the bytes are not UTF-16")))
            }
            encoding => Ok((encoding, 0)),
        },
        None => Ok((UTF_8, 0)),
    }
}

fn named(name: &str) -> Result<&'static Encoding, Problem> {
    Encoding::for_label_no_replacement(name.as_bytes()).ok_or_else(|| {
        let shown: String = name.chars().take(40).collect();
        Problem::Encoding(format!("the encoding {shown:?} is not known"))
    })
}

/// The `encoding` of an XML declaration.
fn declared(head: &[u8]) -> Option<String> {
    let head = head.strip_prefix(b"<?xml")?;
    let end = head.windows(2).position(|pair| pair == b"?>")?;
    let text = std::str::from_utf8(&head[..end]).ok()?;
    let (_, rest) = text.split_once("encoding")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    rest[1..].split_once(quote).map(|(name, _)| name.to_owned())
}

impl<R: BufRead> BufRead for Source<R> {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.chunk.len() {
            self.refill()?;
            if self.before > self.marked.until {
                let Marked { name, what, limit, .. } = self.marked;
                return Err(self.fail(Problem::limit(name, what, "has too many bytes", limit)));
            }
        }
        Ok(&self.chunk[self.at..])
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

impl<R: BufRead> Read for Source<R> {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(bytes.len());
        bytes[..count].copy_from_slice(&available[..count]);
        self.at += count;
        Ok(count)
    }
}
