//! What is still to be written to one connection, and writing it.
//!
//! Order on the wire: the rest of a frame that a full socket cut, then control frames (replies, pings, close), then
//! publications. One `writev` takes as much of all three as the system takes in one call.

use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tidings_stream::Frame;
use tokio::net::TcpStream;

use crate::fanout::Place;

/// Slices per `writev`; Linux takes 1024, and more than this gains nothing measurable.
const SLICE_COUNT_MAX: usize = 64;

/// Publications of one channel for one connection: `frames[from..]` are still to be written.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    /// Whose they are.
    pub(crate) place: Place,
    pub(crate) frames: &'a [Frame],
    pub(crate) written: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(place: Place, frames: &'a [Frame]) -> Self {
        Self { place, frames, written: 0 }
    }

    fn rest(&self) -> &'a [Frame] {
        &self.frames[self.written..]
    }
}

/// Bytes a connection owns: only what no log holds.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The unwritten end of a publication's frame that a full socket cut.
    rest: Bytes,
    /// Control frames, in order.
    control: Vec<u8>,
}

impl Output {
    /// Adds a control frame.
    pub(crate) fn push_control(&mut self, frame: &[u8]) {
        self.control.extend_from_slice(frame);
    }

    /// Forgets control frames that were not begun (the peer is closed as too slow to get them). The rest of a cut frame
    /// stays: a close frame may not stand inside another frame.
    pub(crate) fn clear_control(&mut self) {
        if self.rest.is_empty() {
            return; // The first control frame may be half-written.
        }
        self.control.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len() + self.control.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes own bytes and then `batches`, until all is written or the socket is full. Each batch is told how far it
    /// came; a publication that was cut counts as written, its end is kept here.
    ///
    /// Returns whether the socket is full.
    pub(crate) fn write(&mut self, socket: &TcpStream, batches: &mut [Batch<'_>]) -> io::Result<bool> {
        loop {
            let (wanted, written) = match self.write_once(socket, batches) {
                Ok((0, _)) => return Ok(false),
                Ok((_, 0)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(counts) => counts,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            self.advance(written, batches);
            if written < wanted {
                return Ok(true);
            }
        }
    }

    /// One system call: how many bytes it was given and how many it took.
    fn write_once(&self, socket: &TcpStream, batches: &[Batch<'_>]) -> io::Result<(usize, usize)> {
        let own = [&self.rest[..], &self.control[..]].into_iter().filter(|piece| !piece.is_empty());
        let mut pieces = own.chain(batches.iter().flat_map(Batch::rest).map(|frame| &frame.bytes[..]));
        let Some(first) = pieces.next() else { return Ok((0, 0)) };
        let Some(second) = pieces.next() else { return Ok((first.len(), socket.try_write(first)?)) };
        let mut slices = [IoSlice::new(&[]); SLICE_COUNT_MAX];
        (slices[0], slices[1]) = (IoSlice::new(first), IoSlice::new(second));
        let (mut count, mut bytes) = (2, first.len() + second.len());
        for (slice, piece) in slices[2..].iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
            count += 1;
            bytes += piece.len();
        }
        Ok((bytes, socket.try_write_vectored(&slices[..count])?))
    }

    fn advance(&mut self, mut written: usize, batches: &mut [Batch<'_>]) {
        let own = written.min(self.rest.len());
        self.rest.advance(own);
        written -= own;
        let own = written.min(self.control.len());
        self.control.drain(..own);
        if self.control.is_empty() {
            self.control = Vec::new(); // An idle connection holds no buffer.
        }
        written -= own;
        for batch in batches {
            while written > 0
                && let Some(frame) = batch.rest().first()
            {
                if written < frame.bytes.len() {
                    self.rest = frame.bytes.slice(written..);
                }
                written = written.saturating_sub(frame.bytes.len());
                batch.written += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    fn frames(texts: &[String]) -> Vec<Frame> {
        texts.iter().map(|text| Frame { bytes: text.clone().into(), published_micros: 0, receipt: None }).collect()
    }

    #[tokio::test]
    async fn a_socket_that_takes_little_at_a_time_gets_everything_in_order_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        // 300 frames of up to 40 KiB: far more than the socket's buffers hold and than fit one writev.
        let texts: Vec<String> = (0..300).map(|index| format!("<{index}>").repeat(1 + index * 37 % 8000)).collect();
        let frames = frames(&texts);
        let expected = format!("control{}", texts.concat());

        let reader = async {
            let mut received = Vec::new();
            let mut buffer = [0; 1024];
            while received.len() < expected.len() {
                let count = peer.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the writer stays open");
                received.extend_from_slice(&buffer[..count]);
            }
            received
        };
        let writer = async {
            let mut output = Output::default();
            output.push_control(b"control");
            let (mut next, mut blocked) = (0, 0);
            while next < frames.len() || !output.is_empty() {
                socket.writable().await.unwrap();
                let middle = frames.len().min(next + 70);
                let mut batches =
                    [&frames[next..middle], &frames[middle..]].map(|frames| Batch::new(Place::default(), frames));
                blocked += usize::from(output.write(&socket, &mut batches).unwrap());
                next += batches[0].written + batches[1].written;
            }
            blocked
        };
        let (received, blocked) = tokio::join!(reader, writer);
        assert!(blocked > 0, "the test is about full sockets");
        assert!(received == expected.as_bytes());
    }
}
