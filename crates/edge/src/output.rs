//! The bytes that are still to be written to one connection, and writing them.
//!
//! Order on the wire: first the rest of a frame that a full socket cut, then control frames (replies, pings, close),
//! then publications. One `writev` takes as much of all three as the system accepts in one call. A frame that the
//! connection does not want is skipped, and then counts as written.
//!
//! Bound: the memory of control frames is counted for the whole loop ([`Held`]); `edge_loop` keeps it within the loop's
//! budget.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::rc::Rc;

use bytes::{Buf, Bytes};
use tidings_stream::{Frame, FrameKind};
use tidings_types::PushForm;

use crate::stream::Stream;
use crate::subscribers::{Place, Subscriber};
use crate::wanted::Wanted;

/// Slices per `writev`. Linux takes 1024, but more than 64 gain nothing measurable.
const SLICE_COUNT_MAX: usize = 64;

/// Frames of one channel for one connection: the first `passed` are written, or the connection does not want them.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    /// The connection's place in the channel.
    pub(crate) place: Place,
    /// Which bytes of the frames are written.
    form: PushForm,
    frames: &'a [Frame],
    pub(crate) passed: usize,
    wanted: Wanted,
    /// It has got the publication before the frame at `passed`, so that one may be a delta.
    pub(crate) has_base: bool,
}

impl<'a> Batch<'a> {
    /// All of `frames` for a connection that lacks whatever came before.
    pub(crate) fn new(place: Place, form: impl Into<PushForm>, frames: &'a [Frame]) -> Self {
        Self { place, form: form.into(), frames, passed: 0, wanted: Wanted::default(), has_base: false }
    }

    /// Those of `frames` that the subscriber wants.
    pub(crate) fn of(place: Place, subscriber: &Subscriber, frames: &'a [Frame], wanted: Wanted) -> Self {
        let Subscriber { form, has_base, .. } = subscriber;
        Self { place, form: *form, frames, passed: 0, wanted, has_base: *has_base }
    }

    /// The bytes of the frames that are still to be written; each has some.
    fn pieces(&self) -> impl Iterator<Item = &'a Bytes> {
        let mut has_base = self.has_base;
        (self.passed..self.frames.len()).filter_map(move |index| self.piece(index, &mut has_base))
    }

    /// The bytes of the frame at `index`, if it is for the connection. `has_base`: it has the publication before; afterwards,
    /// the one of this frame.
    fn piece(&self, index: usize, has_base: &mut bool) -> Option<&'a Bytes> {
        let frame = &self.frames[index];
        let bytes = self.wanted.has(index, frame).then(|| frame.bytes(self.form, *has_base));
        debug_assert!(bytes.is_none_or(|bytes| !bytes.is_empty()), "a reader's frames have its form");
        if matches!(frame.kind, FrameKind::Publication(_)) {
            *has_base = bytes.is_some();
        }
        bytes
    }

    /// The frames that are for the connection and not written yet.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &'a Frame> {
        self.among(self.passed..self.frames.len())
    }

    /// The frames that are written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &'a Frame> {
        self.among(0..self.passed)
    }

    fn among(&self, range: Range<usize>) -> impl Iterator<Item = &'a Frame> {
        range
            .map(|index| (index, &self.frames[index]))
            .filter(|(index, frame)| self.wanted.has(*index, frame))
            .map(|it| it.1)
    }

    /// The publications that are written.
    pub(crate) fn publications(&self) -> impl Iterator<Item = &'a Frame> {
        self.written().filter(|frame| matches!(frame.kind, FrameKind::Publication(_)))
    }

    /// Passes over the next frame that the connection wants, and the others before it. Returns its bytes.
    fn pass(&mut self) -> Option<&'a Bytes> {
        while self.passed < self.frames.len() {
            let mut has_base = self.has_base;
            let bytes = self.piece(self.passed, &mut has_base);
            (self.passed, self.has_base) = (self.passed + 1, has_base);
            if bytes.is_some() {
                return bytes;
            }
        }
        None
    }
}

/// Memory of the control frames of one loop's connections, in bytes.
pub(crate) type Held = Rc<Cell<usize>>;

/// The bytes that a connection owns: those that are in no channel's tail.
#[derive(Debug)]
pub(crate) struct Output {
    /// The unwritten end of a publication's frame that a full socket cut.
    rest: Bytes,
    /// Control frames, in order; the first `control_written` bytes are written.
    control: Vec<u8>,
    control_written: usize,
    /// All bytes that the system took so far.
    written: u64,
    /// Invariant: includes the capacity of `control`.
    held: Held,
}

impl Drop for Output {
    fn drop(&mut self) {
        self.free_control();
    }
}

impl Output {
    /// An empty output; its memory will be counted in `held`.
    pub(crate) fn new(held: Held) -> Self {
        Self { rest: Bytes::new(), control: Vec::new(), control_written: 0, written: 0, held }
    }

    /// Adds a control frame.
    pub(crate) fn push_control(&mut self, frame: &[u8]) {
        let capacity = self.control.capacity();
        // Written bytes are removed when they are the larger part. So each byte is moved at most once on average,
        // however little the socket takes at a time.
        if self.control_written > self.control.len() / 2 {
            self.control.drain(..self.control_written);
            self.control_written = 0;
        }
        self.control.extend_from_slice(frame);
        self.held.update(|held| held + self.control.capacity() - capacity);
    }

    /// Drops everything, also the rest of a cut frame: nothing more can be written after that.
    pub(crate) fn forget(&mut self) {
        self.rest = Bytes::new();
        self.free_control();
    }

    /// Memory of its control frames.
    pub(crate) fn held(&self) -> usize {
        self.control.capacity()
    }

    /// All bytes that the system took so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    fn free_control(&mut self) {
        self.held.update(|held| held - self.control.capacity());
        (self.control, self.control_written) = (Vec::new(), 0);
    }

    fn unwritten(&self) -> &[u8] {
        &self.control[self.control_written..]
    }

    /// Drops the control frames of which nothing is written: the peer is closed because it is too slow to get them. The
    /// rest of a cut frame stays, because a close frame may not stand inside another frame.
    pub(crate) fn clear_control(&mut self) {
        if self.rest.is_empty() {
            return; // The first control frame may be partly written.
        }
        self.free_control();
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len() + self.unwritten().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes own bytes and then `batches`, until all is written or the socket is full. Each batch records how far it
    /// was written. A frame that was cut counts as written; its rest is kept here.
    ///
    /// Returns whether the socket is full.
    pub(crate) fn write(&mut self, socket: &Stream, batches: &mut [Batch<'_>]) -> io::Result<bool> {
        loop {
            if !socket.flush()? {
                return Ok(true);
            }
            let (wanted, written) = match self.write_once(socket, batches) {
                Ok((0, _)) => {
                    let nothing = batches.iter_mut().all(|batch| batch.pass().is_none());
                    debug_assert!(nothing, "a batch without pieces has no frame for the connection");
                    return Ok(false);
                }
                Ok((_, 0)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(counts) => counts,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            self.advance(written, batches);
            if written < wanted && socket.is_full_after_part() {
                return Ok(true);
            }
        }
    }

    /// One system call. Returns how many bytes it was given and how many it took.
    fn write_once(&self, socket: &Stream, batches: &[Batch<'_>]) -> io::Result<(usize, usize)> {
        let own = [&self.rest[..], self.unwritten()].into_iter().filter(|piece| !piece.is_empty());
        let mut pieces = own.chain(batches.iter().flat_map(Batch::pieces).map(|piece| &piece[..]));
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
        self.written += written as u64;
        let own = written.min(self.rest.len());
        self.rest.advance(own);
        written -= own;
        let own = written.min(self.unwritten().len());
        self.control_written += own;
        if own > 0 && self.unwritten().is_empty() {
            self.free_control(); // An idle connection keeps no buffer.
        }
        written -= own;
        for batch in batches {
            while written > 0
                && let Some(bytes) = batch.pass()
            {
                if written < bytes.len() {
                    self.rest = bytes.slice(written..);
                }
                written = written.saturating_sub(bytes.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidings_types::{Format, Tags, Variant};
    use tokio::io::{AsyncRead, AsyncReadExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const VARIANT: Variant = Variant::websocket(Format::Protobuf);

    fn frames(texts: &[String]) -> Vec<Frame> {
        let other = |text: &String| (Variant::websocket(Format::Json), Bytes::from(text.to_lowercase()));
        let kind = || FrameKind::Publication(Tags::default());
        texts
            .iter()
            .map(|text| Frame::new(kind(), [other(text), (VARIANT, Bytes::from(text.clone()))], 0, None))
            .collect()
    }

    async fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (socket, peer) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), async { listener.accept().await });
        (socket.unwrap(), peer.unwrap().0)
    }

    #[tokio::test]
    async fn a_socket_that_takes_little_at_a_time_gets_everything_in_order_once() {
        let (socket, peer) = sockets().await;
        deliver(Stream::Plain(socket), peer).await;
    }

    #[tokio::test]
    async fn so_does_one_with_tls() {
        let (socket, peer) = sockets().await;
        let (socket, peer) = crate::stream::tests::secured(socket, peer).await;
        deliver(socket, peer).await;
    }

    async fn deliver(socket: Stream, mut peer: impl AsyncRead + Unpin) {
        // 300 frames of up to 40 KiB: far more than the socket's buffers and one writev can take.
        let texts: Vec<String> =
            (0..300).map(|index| format!("<FRAME {index}>").repeat(1 + index * 37 % 8000)).collect();
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
            let held = Held::default();
            let mut output = Output::new(held.clone());
            output.push_control(b"control");
            assert_eq!(held.get(), output.held());
            let (mut next, mut blocked) = (0, 0);
            while next < frames.len() || !output.is_empty() || !socket.is_flushed() {
                socket.tcp().writable().await.unwrap();
                let middle = frames.len().min(next + 70);
                let mut batches = [&frames[next..middle], &frames[middle..]]
                    .map(|frames| Batch::new(Place::default(), VARIANT, frames));
                blocked += usize::from(output.write(&socket, &mut batches).unwrap());
                next += batches[0].passed + batches[1].passed;
            }
            assert_eq!(held.get(), 0);
            blocked
        };
        let (received, blocked) = tokio::join!(reader, writer);
        assert!(blocked > 0, "the test is about full sockets");
        assert!(received == expected.as_bytes());
    }

    /// Takes `count` bytes of the control frames as a socket would.
    fn take(output: &mut Output, count: usize) -> Vec<u8> {
        let taken = output.unwritten()[..count].to_vec();
        output.advance(count, &mut []);
        taken
    }

    proptest! {
        /// Frames are queued and a socket takes a part of them, again and again.
        #[test]
        fn control_frames_go_out_in_order_and_their_memory_is_counted(
            steps in prop::collection::vec((0usize..50, 0usize..100), 1..100),
        ) {
            let held = Held::default();
            let mut output = Output::new(held.clone());
            let (mut pushed, mut taken) = (Vec::new(), Vec::new());
            for (index, (length, part)) in steps.into_iter().enumerate() {
                let frame = vec![index as u8; length];
                output.push_control(&frame);
                pushed.extend(frame);
                prop_assert!(output.control_written <= output.control.len() / 2, "written bytes are freed");
                let count = output.len() * part / 99;
                taken.extend(take(&mut output, count));
                prop_assert_eq!(held.get(), output.control.capacity());
                prop_assert_eq!((output.written(), output.len()), (taken.len() as u64, pushed.len() - taken.len()));
            }
            let rest = output.len();
            taken.extend(take(&mut output, rest));
            prop_assert_eq!(taken, pushed);
            prop_assert_eq!(held.get(), 0);
        }
    }

    /// With a peer that takes little at a time, the rest is not moved for each piece.
    #[test]
    fn bytes_that_wait_are_not_moved_for_each_write() {
        let mut output = Output::new(Held::default());
        output.push_control(&vec![7; 1 << 20]);
        let place = output.unwritten()[1..].as_ptr();
        take(&mut output, 1);
        assert_eq!(output.unwritten().as_ptr(), place);
    }
}
