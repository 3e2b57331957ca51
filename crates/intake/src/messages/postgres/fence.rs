//! What a database may say before the client's library sees it: a core that reads the frames of PostgreSQL's protocol, version 3,
//! as they pass.
//!
//! The library keeps a frame until it is whole, keeps everything that comes before the connection is ready, and computes as
//! many hashes for a password as the database asks for. So a database that lies would take all memory, or a processor for
//! hours. (PostgreSQL's documentation, "Message Formats" and "SASL Authentication".)

use std::io;

use super::super::desk::EVENT_BYTES_MAX;

/// The most bytes of a frame. The largest is a row with one event.
const FRAME_BYTES_MAX: usize = EVENT_BYTES_MAX + (64 << 10);
/// The most bytes before the connection is ready: parameters and notices.
const GREETING_BYTES_MAX: usize = 1 << 20;
/// The most bytes of parameters in the life of a connection. The client keeps the last value of each name.
const PARAMETER_BYTES_MAX: usize = 16 << 20;
/// The most bytes of a frame about the password.
const PASSWORD_FRAME_BYTES_MAX: usize = 4 << 10;
/// The most hashes for a password: about a second of a processor. PostgreSQL's own number is 4096.
const ITERATION_COUNT_MAX: u64 = 1_000_000;

/// Tags of frames.
const AUTHENTICATION: u8 = b'R';
const READY: u8 = b'Z';
const PARAMETER: u8 = b'S';
/// The kind of a frame about the password that has the number of hashes.
const SASL_CONTINUE: [u8; 4] = [0, 0, 0, 11];
/// A tag and a length.
const HEAD_BYTES: usize = 5;

/// Why a connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("the database sends a message of {0} bytes: at most {FRAME_BYTES_MAX} are taken")]
    Frame(usize),
    #[error("the database sends more than {GREETING_BYTES_MAX} bytes before it is ready")]
    Greeting,
    #[error("the database has sent more than {PARAMETER_BYTES_MAX} bytes of parameters over this connection")]
    Parameters,
    #[error(
        "the database sends a message about the password of {0} bytes: at most {PASSWORD_FRAME_BYTES_MAX} are taken"
    )]
    PasswordFrame(usize),
    #[error(
        "the database asks for {0} hashes of the password: at most {ITERATION_COUNT_MAX} are made; see `scram_iterations` there"
    )]
    Iterations(u64),
    #[error("the database does not speak PostgreSQL's protocol")]
    Protocol,
}

impl From<Unfit> for io::Error {
    fn from(unfit: Unfit) -> Self {
        Self::new(io::ErrorKind::InvalidData, unfit)
    }
}

/// Where in the bytes it is.
#[derive(Debug)]
enum Place {
    /// The database answers with one byte whether it speaks TLS.
    Negotiation,
    /// What follows is TLS, or an error was found.
    Unread,
    Head,
    /// So many bytes of a frame are left.
    Body(usize),
    /// A frame about the password, of which so many bytes are left. It is kept.
    Password(usize),
}

/// Reads what the database says. Keeps at most [`PASSWORD_FRAME_BYTES_MAX`] bytes.
#[derive(Debug)]
pub(super) struct Fence {
    place: Place,
    kept: Vec<u8>,
    /// Bytes until the connection is ready; `None` from then on.
    greeting: Option<usize>,
    /// Bytes of parameters so far.
    parameters: usize,
}

impl Fence {
    /// `negotiates`: the client asks first whether the database speaks TLS.
    pub(super) fn new(negotiates: bool) -> Self {
        let place = if negotiates { Place::Negotiation } else { Place::Head };
        Self { place, kept: Vec::new(), greeting: Some(0), parameters: 0 }
    }

    /// For a connection that begins with TLS, whose bytes another fence reads.
    pub(super) fn unread() -> Self {
        Self { place: Place::Unread, ..Self::new(false) }
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// If the library must not see them.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Unfit> {
        while let Some(first) = bytes.first() {
            let taken = match &mut self.place {
                Place::Unread => return Ok(()),
                Place::Negotiation => {
                    self.place = if *first == b'S' { Place::Unread } else { Place::Head };
                    1
                }
                Place::Head => {
                    let taken = bytes.len().min(HEAD_BYTES - self.kept.len());
                    self.kept.extend_from_slice(&bytes[..taken]);
                    self.count(taken)?;
                    if let Ok([tag, length @ ..]) = <[u8; HEAD_BYTES]>::try_from(&self.kept[..]) {
                        self.kept.clear();
                        self.begin(tag, length)?;
                    }
                    taken
                }
                Place::Body(left) | Place::Password(left) => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    let is_end = *left == 0;
                    if matches!(self.place, Place::Password(_)) {
                        self.kept.extend_from_slice(&bytes[..taken]);
                    }
                    self.count(taken)?;
                    if is_end {
                        self.end()?;
                    }
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Unfit> {
        let Some(greeting) = &mut self.greeting else { return Ok(()) };
        *greeting += bytes;
        if *greeting > GREETING_BYTES_MAX { Err(Unfit::Greeting) } else { Ok(()) }
    }

    /// A frame begins. Its length counts itself, but not the tag.
    fn begin(&mut self, tag: u8, length: [u8; 4]) -> Result<(), Unfit> {
        let length = u32::from_be_bytes(length) as usize;
        let left = length.checked_sub(HEAD_BYTES - 1).ok_or(Unfit::Protocol)?;
        if tag == AUTHENTICATION && length > PASSWORD_FRAME_BYTES_MAX {
            return Err(Unfit::PasswordFrame(length));
        }
        if length > FRAME_BYTES_MAX {
            return Err(Unfit::Frame(length));
        }
        if tag == PARAMETER {
            self.parameters += length;
            if self.parameters > PARAMETER_BYTES_MAX {
                return Err(Unfit::Parameters);
            }
        }
        if tag == READY {
            self.greeting = None;
        }
        self.place = if tag == AUTHENTICATION { Place::Password(left) } else { Place::Body(left) };
        if left == 0 { self.end() } else { Ok(()) }
    }

    /// A frame has ended.
    fn end(&mut self) -> Result<(), Unfit> {
        self.place = Place::Head;
        let frame = std::mem::take(&mut self.kept);
        let Some(words) = frame.strip_prefix(&SASL_CONTINUE) else { return Ok(()) };
        // RFC 5802, section 7: server-first-message.
        let count = words.split(|byte| *byte == b',').find_map(|word| word.strip_prefix(b"i="));
        let count = count.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok()).unwrap_or(u64::MAX);
        if count > ITERATION_COUNT_MAX { Err(Unfit::Iterations(count)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        [&[tag][..], &(u32::try_from(body.len()).unwrap() + 4).to_be_bytes(), body].concat()
    }

    fn sasl(words: &str) -> Vec<u8> {
        frame(AUTHENTICATION, &[&SASL_CONTINUE, words.as_bytes()].concat())
    }

    fn head(tag: u8, length: u32) -> Vec<u8> {
        [&[tag][..], &length.to_be_bytes()].concat()
    }

    /// What is said of bytes that come in pieces of this size.
    fn said(mut fence: Fence, bytes: &[u8], piece: usize) -> Result<(), Unfit> {
        bytes.chunks(piece).try_for_each(|piece| fence.pass(piece))
    }

    #[test]
    fn what_a_database_says_passes() {
        let ready = frame(READY, b"I");
        let greeting = [sasl("r=abc,s=c2FsdA==,i=4096"), frame(AUTHENTICATION, &[0; 4]), frame(b'S', b"a\0b\0"), ready];
        let rows = std::iter::repeat_n(frame(b'D', &[7; 100_000]), 100);
        let all = greeting.into_iter().chain(rows).collect::<Vec<_>>().concat();
        for piece in [1, 2, 5, 4096, all.len()] {
            assert_eq!(said(Fence::new(false), &all, piece), Ok(()));
            assert_eq!(said(Fence::new(true), &[b"N", &all[..]].concat(), piece), Ok(()));
        }
        assert_eq!(said(Fence::new(true), &[b"S", &[0xff; 100][..]].concat(), 7), Ok(()), "TLS is read elsewhere");
        assert_eq!(said(Fence::unread(), &[0xff; 100], 7), Ok(()));
    }

    #[test]
    fn what_would_cost_memory_or_hours_does_not() {
        let notices = vec![frame(b'N', &[b'x'; 1000]); 1100].concat();
        let names = [frame(READY, b"I"), frame(PARAMETER, &[b'x'; 100_000]).repeat(170)].concat();
        let cases = [
            (head(b'D', u32::MAX), Unfit::Frame(u32::MAX as usize)),
            (head(b'D', 3), Unfit::Protocol),
            (head(AUTHENTICATION, 5000), Unfit::PasswordFrame(5000)),
            (sasl("r=abc,s=c2FsdA==,i=4294967295"), Unfit::Iterations(4_294_967_295)),
            (sasl("r=abc,s=c2FsdA=="), Unfit::Iterations(u64::MAX)),
            (sasl("r=abc,i=99999999999999999999"), Unfit::Iterations(u64::MAX)),
            (notices, Unfit::Greeting),
            (names, Unfit::Parameters),
        ];
        for (bytes, unfit) in cases {
            for piece in [1, 5, 4096, bytes.len()] {
                assert_eq!(said(Fence::new(false), &bytes, piece), Err(unfit));
            }
        }
    }

    proptest! {
        /// Also in which pieces they come makes no difference.
        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1..50_usize, negotiates: bool) {
            prop_assert_eq!(said(Fence::new(negotiates), &bytes, piece), said(Fence::new(negotiates), &bytes, 300));
        }
    }
}
