//! A lean WebSocket client (RFC 6455): what a load generator needs and no more, so that a thousand of them cost little.
//!
//! Text frames in one piece and pings are understood; fragments, extensions and frames over [`FRAME_BYTES_MAX`] are
//! errors, since our server sends none. The accept key of the handshake is not checked: this is our own server.

use std::io;
use std::net::SocketAddr;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Largest frame that is read; events are far smaller.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// Largest head of the handshake's answer.
const HEAD_BYTES_MAX: usize = 4096;

/// What is read at a time: several events fit.
const READ_BYTES: usize = 1024;

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// An open connection.
pub(super) struct Socket {
    stream: TcpStream,
    /// Read and not yet taken: at most one frame and what came behind it.
    buffer: BytesMut,
}

/// A frame's beginning.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    opcode: u8,
    head_bytes: usize,
    payload_bytes: usize,
}

impl Socket {
    /// Connects and shakes hands.
    pub(super) async fn open(addr: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET /connection/websocket HTTP/1.1\r\nHost: {addr}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGlkaW5ncy1kZW1vLTIwMjI=\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut socket = Self { stream, buffer: BytesMut::new() };
        loop {
            if let Some(end) = socket.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = socket.buffer.split_to(end + 4);
                if head.starts_with(b"HTTP/1.1 101 ") {
                    return Ok(socket);
                }
                let status = head[..].split(|byte| *byte == b'\r').next().unwrap_or_default();
                return Err(invalid(format!("the handshake was answered {:?}", String::from_utf8_lossy(status))));
            }
            if socket.buffer.len() > HEAD_BYTES_MAX {
                return Err(invalid("the handshake's answer is too long"));
            }
            if socket.read().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends a text message.
    pub(super) async fn send(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(&masked_frame(TEXT, text.as_bytes(), rand::random())).await
    }

    /// The next text message; `None` when the server has closed.
    ///
    /// # Cancel safety
    /// Nothing read is lost.
    pub(super) async fn receive(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            while let Some(head) = read_head(&self.buffer)? {
                if self.buffer.len() < head.head_bytes + head.payload_bytes {
                    break;
                }
                self.buffer.advance(head.head_bytes);
                let payload = self.buffer.split_to(head.payload_bytes).freeze();
                match head.opcode {
                    TEXT => return Ok(Some(payload)),
                    CLOSE => return Ok(None),
                    PING => self.stream.write_all(&masked_frame(PONG, &payload, rand::random())).await?,
                    _ => {}
                }
            }
            if self.read().await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.buffer).await
    }
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// The head of a frame from the server (RFC 6455, 5.2), when all of it is there.
fn read_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    let (length, head_bytes) = match (second, rest) {
        (0..=125, _) => (u64::from(*second), 2),
        (126, [a, b, ..]) => (u64::from(u16::from_be_bytes([*a, *b])), 4),
        (127, rest) if rest.len() >= 8 => (u64::from_be_bytes(*rest.first_chunk().expect("eight are there")), 10),
        (126 | 127, _) => return Ok(None),
        _ => return Err(invalid("a frame of the server is masked")),
    };
    if first & 0xf0 != 0x80 || first & 0x0f == 0 {
        return Err(invalid("a frame is a fragment or uses an extension"));
    }
    match usize::try_from(length) {
        Ok(payload_bytes @ 0..=FRAME_BYTES_MAX) => Ok(Some(Head { opcode: first & 0x0f, head_bytes, payload_bytes })),
        _ => Err(invalid(format!("a frame has {length} bytes, limit {FRAME_BYTES_MAX}"))),
    }
}

/// A frame to the server, masked as it must be (RFC 6455, 5.3).
fn masked_frame(opcode: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 8);
    frame.push(0x80 | opcode);
    match u16::try_from(payload.len()).expect("our messages are short") {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

#[cfg(test)]
mod tests {
    use tidings_protocol::websocket::{Decoded, Decoder, Event, text_frame};

    use super::*;

    #[test]
    fn frames_of_the_server_are_read_whatever_their_length() {
        for length in [0, 1, 125, 126, 300, 65_535, 65_536] {
            let frame = text_frame(&vec![b'x'; length]);
            let head = read_head(&frame).unwrap().unwrap();
            assert_eq!((head.opcode, head.payload_bytes, head.head_bytes + length), (TEXT, length, frame.len()));
            for cut in 0..head.head_bytes {
                assert_eq!(read_head(&frame[..cut]).unwrap(), None);
            }
        }
        let too_long = text_frame(&vec![b'x'; FRAME_BYTES_MAX + 1]);
        assert!(read_head(&too_long).is_err());
        assert!(read_head(&[0x01, 0x01]).is_err(), "a fragment");
        assert!(read_head(&[0xc1, 0x01]).is_err(), "compressed");
        assert!(read_head(&[0x81, 0x81]).is_err(), "masked");
    }

    #[test]
    fn the_server_reads_our_frames() {
        for length in [0, 5, 125, 126, 60_000] {
            let text = "é".repeat(length / 2);
            let mut frame = masked_frame(TEXT, text.as_bytes(), [1, 2, 3, 250]);
            let mut decoder = Decoder::new(1 << 20);
            let Decoded { event, .. } = decoder.decode(&mut frame).unwrap();
            assert_eq!(event, Event::Text(text.as_str().into()));
        }
    }
}
