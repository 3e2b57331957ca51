//! The bytes that wait to be written to one socket.
//!
//! Small pieces are copied into one scratch buffer, which is reused. Large [`Bytes`] are not copied. All waiting bytes are
//! written with one vectored write.
//!
//! ```text
//! scratch  ├─ head 1 ─┼─ head 2 ─┼─ head 3 ─────┤
//! parts               └ body 1   └ body 2            written as: head 1, body 1, head 2, body 2, head 3
//! ```
//!
//! A position counts all bytes that were appended on the connection. So one comparison tells whether any byte of a request
//! was written. Bound: the pool appends no request while [`output_bytes_max`](crate::PoolConfig::output_bytes_max) bytes
//! wait, so at most that and one request are held.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf as _, Bytes};

/// Up to this length, [`Bytes`] are copied: a further slice in the vectored write costs more.
const COPY_BYTES_MAX: usize = 512;
/// Written bytes at the front of the scratch buffer are removed when there are this many.
const COMPACT_BYTES: usize = 64 << 10;
/// An empty scratch buffer shrinks to this capacity.
const KEEP_BYTES_MAX: usize = 1 << 20;

/// A [`Codec`](crate::Codec) appends bytes here. It is also an [`io::Write`] that never fails, for `write!`.
#[derive(Debug, Default)]
pub struct Outgoing {
    scratch: Vec<u8>,
    /// Bytes of `scratch` that were written.
    scratch_written: usize,
    /// The large `Bytes`. Each comes after this many bytes of `scratch`.
    parts: VecDeque<(usize, Bytes)>,
    /// The positions of the ends of datagrams, if `is_datagram`.
    ends: VecDeque<u64>,
    is_datagram: bool,
    /// The position of the next appended byte.
    appended: u64,
    /// The position of the next byte to write.
    written: u64,
}

impl Outgoing {
    /// An empty buffer, for the tests of codecs. The pool makes its own.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn for_datagrams() -> Self {
        Self { is_datagram: true, ..Self::default() }
    }

    /// Appends a copy of `bytes`.
    pub fn put_slice(&mut self, bytes: &[u8]) {
        self.scratch.extend_from_slice(bytes);
        self.appended += bytes.len() as u64;
    }

    /// Appends `bytes` without copying them, unless they are short.
    pub fn put_bytes(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_BYTES_MAX {
            self.put_slice(&bytes);
        } else {
            self.appended += bytes.len() as u64;
            self.parts.push_back((self.scratch.len(), bytes));
        }
    }

    /// How many bytes wait to be written.
    pub fn len(&self) -> usize {
        usize::try_from(self.appended - self.written).unwrap_or(usize::MAX)
    }

    /// Whether no bytes wait to be written.
    pub fn is_empty(&self) -> bool {
        self.appended == self.written
    }

    /// A copy of all waiting bytes, for the tests of codecs.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        self.walk(u64::MAX, |slice| {
            all.extend_from_slice(slice);
            true
        });
        all
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { scratch: self.scratch.len(), parts: self.parts.len(), appended: self.appended }
    }

    /// Removes what was appended since `mark`. Nothing may have been written since.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        self.scratch.truncate(mark.scratch);
        self.parts.truncate(mark.parts);
        self.appended = mark.appended;
    }

    /// Ends a datagram: all bytes since the last call are one.
    pub(crate) fn end_datagram(&mut self) {
        if self.is_datagram && self.ends.back().copied().unwrap_or(self.written) < self.appended {
            self.ends.push_back(self.appended);
        }
    }

    /// Fills `out` with the next bytes to write, and returns the number of slices. For datagrams, only the first one.
    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        let limit = self.ends.front().map_or(u64::MAX, |end| end - self.written);
        self.walk(limit, |slice| {
            out[count] = IoSlice::new(slice);
            count += 1;
            count < out.len()
        });
        count
    }

    /// Copies the first datagram into `buffer`.
    pub(crate) fn datagram(&self, buffer: &mut Vec<u8>) -> usize {
        buffer.clear();
        let limit = self.ends.front().map_or(u64::MAX, |end| end - self.written);
        self.walk(limit, |slice| {
            buffer.extend_from_slice(slice);
            true
        });
        buffer.len()
    }

    /// Calls `each` with the waiting bytes, at most `limit`, until it returns false.
    fn walk<'a>(&'a self, mut limit: u64, mut each: impl FnMut(&'a [u8]) -> bool) {
        let mut give = |slice: &'a [u8]| {
            let length = slice.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
            limit -= length as u64;
            length == 0 || each(&slice[..length])
        };
        let mut at = self.scratch_written;
        for (end, bytes) in &self.parts {
            if !(give(&self.scratch[at..*end]) && give(bytes)) {
                return;
            }
            at = *end;
        }
        give(&self.scratch[at..]);
    }

    /// Removes the first `count` bytes, which were written.
    pub(crate) fn advance(&mut self, mut count: usize) {
        self.written += count as u64;
        debug_assert!(self.written <= self.appended, "more bytes written than appended");
        while let Some((end, bytes)) = self.parts.front_mut() {
            let before = (*end - self.scratch_written).min(count);
            self.scratch_written += before;
            count -= before;
            if self.scratch_written < *end {
                break;
            }
            let of_part = bytes.len().min(count);
            bytes.advance(of_part);
            count -= of_part;
            if !bytes.is_empty() {
                break;
            }
            self.parts.pop_front();
        }
        self.scratch_written += count;
        while self.ends.front().is_some_and(|end| *end <= self.written) {
            self.ends.pop_front();
        }
        self.tidy();
    }

    /// Removes written bytes from the scratch buffer.
    fn tidy(&mut self) {
        if self.is_empty() {
            self.scratch.clear();
            self.scratch.shrink_to(KEEP_BYTES_MAX);
            self.scratch_written = 0;
        } else if self.scratch_written >= COMPACT_BYTES && self.scratch_written * 2 >= self.scratch.len() {
            self.scratch.drain(..self.scratch_written);
            for (end, _) in &mut self.parts {
                *end -= self.scratch_written;
            }
            self.scratch_written = 0;
        }
    }
}

impl io::Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A point in an [`Outgoing`], to return to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    scratch: usize,
    parts: usize,
    appended: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Copy(usize),
        Share(usize),
        TakenBack(usize, usize),
        EndDatagram,
        Write { slices: usize, bytes: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0usize..300).prop_map(Step::Copy),
            (0usize..3 * COPY_BYTES_MAX).prop_map(Step::Share),
            (0usize..300, 0usize..3 * COPY_BYTES_MAX).prop_map(|(copied, shared)| Step::TakenBack(copied, shared)),
            Just(Step::EndDatagram),
            (1usize..5, 1usize..200_000).prop_map(|(slices, bytes)| Step::Write { slices, bytes }),
        ]
    }

    /// Bytes whose values show their position.
    fn bytes(at: u64, count: usize) -> Vec<u8> {
        (at..at + count as u64).map(|n| (n % 251) as u8).collect()
    }

    proptest! {
        #[test]
        fn appended_bytes_come_out_once_in_order_and_datagram_by_datagram(is_datagram in any::<bool>(), steps in prop::collection::vec(step(), 1..200)) {
            let mut out = if is_datagram { Outgoing::for_datagrams() } else { Outgoing::new() };
            let mut ends = VecDeque::new();
            for step in steps {
                let at = out.appended();
                match step {
                    Step::Copy(count) => out.put_slice(&bytes(at, count)),
                    Step::Share(count) => out.put_bytes(bytes(at, count).into()),
                    Step::TakenBack(copied, shared) => {
                        let mark = out.mark();
                        out.put_slice(&vec![0; copied]);
                        out.put_bytes(vec![0; shared].into());
                        out.take_back(mark);
                        prop_assert_eq!(out.appended(), at);
                    }
                    Step::EndDatagram => {
                        out.end_datagram();
                        if is_datagram && ends.back().copied().unwrap_or(out.written()) < at {
                            ends.push_back(at);
                        }
                    }
                    Step::Write { slices, bytes: limit } => {
                        let mut room = vec![IoSlice::new(&[]); slices];
                        let count = out.slices(&mut room);
                        let shown: Vec<u8> = room[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
                        prop_assert_eq!(&shown, &bytes(out.written(), shown.len()));
                        prop_assert_eq!(shown.is_empty(), out.is_empty());
                        let end = ends.front().copied().unwrap_or(out.appended());
                        prop_assert!(out.written() + shown.len() as u64 <= end, "a write across datagrams");
                        out.advance(shown.len().min(limit));
                        while ends.front().is_some_and(|end| *end <= out.written()) {
                            ends.pop_front();
                        }
                    }
                }
                prop_assert_eq!(out.to_vec(), bytes(out.written(), out.len()));
            }
        }
    }

    #[test]
    fn large_bytes_are_not_copied() {
        let mut out = Outgoing::new();
        let body = Bytes::from(vec![7; COPY_BYTES_MAX + 1]);
        out.put_slice(b"head");
        out.put_bytes(body.clone());
        let mut room = [IoSlice::new(&[]); 4];
        assert_eq!(out.slices(&mut room), 2);
        assert_eq!(room[1].as_ptr(), body.as_ptr());
    }
}
