//! Frames of commands: JSON, one command in each line; or Protobuf, each command behind its length.
//!
//! A frame is read lazily, command by command, so that commands before a malformed one are still handled in order. A
//! frame has at most [`FRAME_COMMAND_COUNT_MAX`] commands; the WebSocket decoder bounds its bytes. What one command keeps
//! in memory is at most as large as its bytes in the frame, beside the command itself, its subscriptions and its headers.

use serde::de::DeserializeOwned;
use tidings_types::{Format, JsonDepthError, check_json_depth};

use crate::Disconnect;
use crate::command::{Command, ConnectRequest, Request, WireCommand};
use crate::protobuf::{ProtobufError, take_message};

mod message;

/// The most commands in one frame: a reconnecting client sends its connect and one subscribe per channel at once.
pub const FRAME_COMMAND_COUNT_MAX: usize = 1024;

/// The most frames of a connection whose commands wait. They keep their bytes, and what keeps them 64 bytes each.
pub const WAITING_FRAME_COUNT_MAX: usize = 128;

/// A frame that breaks the protocol. The text never repeats what the client sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No command, or an empty line.
    #[error("frame or line is empty")]
    Empty,
    /// A line that is not a command.
    #[error("command is malformed at column {column}")]
    Malformed {
        /// The place of the error, in bytes from 1; also 1 if the line is not an object.
        column: usize,
    },
    /// A line whose lists and objects are nested too deeply.
    #[error(transparent)]
    TooDeep(#[from] JsonDepthError),
    /// A command with an id but without a request.
    #[error("command has an id but no request")]
    NoRequest,
    /// A message that is not a command.
    #[error("command is malformed")]
    Protobuf(#[from] ProtobufError),
    /// Too many commands.
    #[error("frame must have at most {FRAME_COMMAND_COUNT_MAX} commands")]
    TooMany,
}

impl FrameError {
    /// The code with which the connection is closed.
    pub fn disconnect(&self) -> Disconnect {
        Disconnect::BAD_REQUEST
    }
}

/// The commands of one frame in order. The iterator ends after the first error; until then it keeps the frame.
pub fn parse_frame<B: AsRef<[u8]>>(format: Format, frame: B) -> Commands<B> {
    let bytes = frame.as_ref();
    let end = match format {
        // One trailing line break is allowed.
        Format::Json => bytes.strip_suffix(b"\n").unwrap_or(bytes).len(),
        Format::Protobuf => bytes.len(),
    };
    Commands { format, frame, at: Some(0), end, count: 0 }
}

/// The first and only message of a client on a unidirectional transport: the request to connect itself, in JSON. Empty
/// bytes are a request without anything in it.
///
/// # Errors
/// If it is not such a request.
pub fn parse_connect(message: &[u8]) -> Result<Command, FrameError> {
    let request = if message.trim_ascii().is_empty() { ConnectRequest::default() } else { object(message)? };
    Ok(Command { id: 0, request: Request::Connect(request) })
}

impl<B: AsRef<[u8]>> Commands<B> {
    /// Whether the frame is the answer to a ping and nothing else: one empty command.
    pub fn is_pong(&self) -> bool {
        let bytes = &self.frame.as_ref()[..self.end];
        match self.format {
            Format::Json => bytes.trim_ascii() == b"{}",
            Format::Protobuf => bytes == [0], // Its length.
        }
    }
}

/// See [`parse_frame`]. Without `Debug`: it holds tokens.
pub struct Commands<B> {
    format: Format,
    frame: B,
    /// Where the next command begins; `None` after the last one.
    at: Option<usize>,
    /// Where the last one ends.
    end: usize,
    count: usize,
}

impl<B> Commands<B> {
    /// The whole frame.
    pub fn frame(&self) -> &B {
        &self.frame
    }

    /// Bytes of the commands that are not read yet.
    pub fn left(&self) -> usize {
        self.at.map_or(0, |at| self.end - at)
    }

    /// Whether all commands are read. A frame has at least one, or an error.
    pub fn is_done(&self) -> bool {
        self.at.is_none()
    }
}

impl<B: AsRef<[u8]>> Iterator for Commands<B> {
    type Item = Result<Command, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.frame.as_ref()[self.at.take()?..self.end];
        self.count += 1;
        if self.count > FRAME_COMMAND_COUNT_MAX {
            return Some(Err(FrameError::TooMany));
        }
        let read = match self.format {
            Format::Json => next_line(rest),
            Format::Protobuf => next_message(rest),
        };
        Some(read.map(|(command, rest)| {
            self.at = rest.map(|rest| self.end - rest.len());
            command
        }))
    }
}

impl<B: AsRef<[u8]>> std::iter::FusedIterator for Commands<B> {}

/// A command, and what follows it.
type Next<'a> = (Command, Option<&'a [u8]>);

fn next_line(rest: &[u8]) -> Result<Next<'_>, FrameError> {
    let mut lines = rest.splitn(2, |&byte| byte == b'\n');
    let line = lines.next().unwrap_or_default();
    if line.is_empty() {
        return Err(FrameError::Empty);
    }
    let command: WireCommand = object(line)?;
    Ok((command.into_command().ok_or(FrameError::NoRequest)?, lines.next()))
}

fn object<T: DeserializeOwned>(json: &[u8]) -> Result<T, FrameError> {
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(FrameError::Malformed { column: 1 }); // Serde would accept an array as an object.
    }
    check_json_depth(json)?;
    serde_json::from_slice(json).map_err(|error| FrameError::Malformed { column: error.column() })
}

fn next_message(mut rest: &[u8]) -> Result<Next<'_>, FrameError> {
    if rest.is_empty() {
        return Err(FrameError::Empty);
    }
    let command = message::read(take_message(&mut rest)?)?;
    Ok((command.into_command().ok_or(FrameError::NoRequest)?, Some(rest).filter(|rest| !rest.is_empty())))
}

#[cfg(test)]
mod tests;
