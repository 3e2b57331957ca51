//! The frames that connected readers have not all got yet: a [`Log`] of frames.
//!
//! A reader holds a position (the index of the next frame that it needs), not a queue. So a thousand readers of one
//! channel share the same frames. When the tail is full, the oldest frame is dropped, even if readers still need it.
//! Such a reader gets [`Lagged`] at its next read.
//!
//! A frame holds the publication once for each [`PushForm`] that has readers at that moment. A reader begins at the end of
//! the tail. So every frame that it reads was added while it was there, and has its form. A frame weighs what its largest form
//! has, here and in [`Tail::read`]: readers of other forms do not make the tail shorter. Memory: `frame_count_max` frames, and
//! `bytes_max` bytes for each form. What all tails of a process hold, all forms counted, is in [`TailUse`]; whoever owns the tails
//! bounds that.
//!
//! Not every frame is for every reader ([`FrameKind`]). A reader decides for itself, and passes over the others. No reader
//! passes over a [`FrameKind::Restart`]: it gets the frames before, and then starts anew.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tidings_buffer::{Bounds, Lagged, Log};
use tidings_types::{JournalPosition, Offset, PushForm, Tags};

/// What a frame tells, which decides for which readers it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameKind {
    /// A publication with these tags: for the readers whose filter it matches.
    Publication(Tags),
    /// Somebody has joined or left: for the readers that asked for it.
    JoinLeave,
    /// What follows does not continue what came before: a reader that comes to this frame is disconnected, and gets nothing
    /// behind it. It has no bytes.
    Restart,
}

/// A message as it stands on the wire in one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The form.
    pub form: PushForm,
    /// The bytes for a reader that lacks the publication before.
    pub whole: Bytes,
    /// The bytes for a reader that has the publication before, if that saves something.
    pub delta: Option<Bytes>,
}

impl<V: Into<PushForm>> From<(V, Bytes)> for Encoded {
    fn from((form, whole): (V, Bytes)) -> Self {
        Self { form: form.into(), whole, delta: None }
    }
}

/// One message about the channel as it stands on the wire, encoded once for each form and shared by all readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it tells.
    pub kind: FrameKind,
    /// The bytes of each form that has readers that want it, in the order of forms. In a channel with the texts of events
    /// there are some for each language, else a few.
    forms: Arc<[Encoded]>,
    /// When it was published, in microseconds of the process's own clock. Latency is measured by it, and which frames are the
    /// oldest of all tails.
    pub published_micros: u64,
    /// The event that wants a receipt from each connection to which the frame is written.
    pub receipt: Option<JournalPosition>,
    /// The publication's position in the channel; 0 if it has none.
    pub offset: Offset,
}

impl Frame {
    /// A frame with the bytes for each form that has readers.
    pub fn new(
        kind: FrameKind,
        forms: impl IntoIterator<Item: Into<Encoded>>,
        published_micros: u64,
        receipt: Option<JournalPosition>,
    ) -> Self {
        let mut forms: Vec<Encoded> = forms.into_iter().map(Into::into).collect();
        forms.sort_unstable_by_key(|encoded| encoded.form);
        Self { kind, forms: forms.into(), published_micros, receipt, offset: Offset(0) }
    }

    /// The frame of the publication at this position.
    #[must_use]
    pub fn at(self, offset: Offset) -> Self {
        Self { offset, ..self }
    }

    /// Readers that come to it start anew.
    pub fn restart(published_micros: u64) -> Self {
        Self::new(FrameKind::Restart, iter::empty::<Encoded>(), published_micros, None)
    }

    /// Whether readers that come to it start anew.
    pub fn is_restart(&self) -> bool {
        self.kind == FrameKind::Restart
    }

    /// The same publication for a single reader, with other bytes.
    #[must_use]
    pub fn rewritten(&self, encoded: impl Into<Encoded>) -> Self {
        Self { forms: [encoded.into()].into(), ..self.clone() }
    }

    /// The bytes for a reader of this form; `has_base`: it has the publication before. Empty if there was no reader of this
    /// form when the frame was made.
    pub fn bytes(&self, form: impl Into<PushForm>, has_base: bool) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        let form = form.into();
        const FEW: usize = 8; // Then a search from the front is quicker.
        let found = match &*self.forms {
            few if few.len() <= FEW => few.iter().position(|encoded| encoded.form == form),
            many => many.binary_search_by_key(&form, |encoded| encoded.form).ok(),
        };
        let Some(encoded) = found.map(|index| &self.forms[index]) else { return &NONE };
        encoded.delta.as_ref().filter(|_| has_base).unwrap_or(&encoded.whole)
    }

    /// The bytes of the largest form.
    fn weight(&self) -> usize {
        self.forms.iter().map(|encoded| encoded.whole.len()).max().unwrap_or(0)
    }

    /// The memory of the frame, with all of its forms.
    fn held(&self) -> usize {
        let bytes = |encoded: &Encoded| encoded.whole.len() + encoded.delta.as_ref().map_or(0, Bytes::len);
        FRAME_BYTES + self.forms.iter().map(bytes).sum::<usize>()
    }
}

/// The limits of a tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailBounds {
    /// Frames.
    pub frame_count_max: usize,
    /// Bytes of all frames, of each its largest form; a single larger frame is kept alone.
    pub bytes_max: usize,
}

/// What all tails of a process hold together.
#[derive(Debug, Default)]
pub struct TailUse(AtomicUsize);

/// Memory of a frame beside its bytes: its place in the log, and its list of forms, of which there are seldom more than two.
const FRAME_BYTES: usize = 320;

impl TailUse {
    /// Bytes of all frames, and of what holds them.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Frames under a running index, bounded; the oldest is overwritten.
#[derive(Debug)]
pub struct Tail {
    log: Log<Frame>,
    /// The memory of all frames in `log`.
    held: usize,
    /// Includes `held`.
    used: Arc<TailUse>,
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Tail {
    /// An empty tail, whose bytes are counted in `used`.
    pub fn new(bounds: TailBounds, used: Arc<TailUse>) -> Self {
        let bounds = Bounds::count(bounds.frame_count_max.max(1)).and_bytes(bounds.bytes_max);
        Self { log: Log::weighed(bounds, Frame::weight), held: 0, used }
    }

    /// Counts what has come and what has gone.
    fn count(&mut self, more: usize, less: usize) {
        self.held = self.held + more - less;
        self.used.0.fetch_add(more, Ordering::Relaxed);
        self.used.0.fetch_sub(less, Ordering::Relaxed);
    }

    /// Index of the first frame held. Earlier frames were written to all readers or overwritten.
    pub fn base(&self) -> u64 {
        self.log.base()
    }

    /// Index of the next frame that will be added: a new reader starts here.
    pub fn end(&self) -> u64 {
        self.log.end()
    }

    /// How many frames are held.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Whether no frame is held: every reader has everything.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// The middle of the frames held, if they take half of what they may take, or more. Who needs a frame before it may soon be
    /// overtaken.
    pub fn midway(&self) -> Option<u64> {
        let bounds = self.log.bounds();
        let is_half_full = !bounds.allow(2 * self.len(), 2 * self.log.bytes());
        is_half_full.then(|| self.base() + self.len() as u64 / 2)
    }

    /// The part of the tail that a frame of so many bytes takes.
    pub fn part(&self, bytes: usize) -> f64 {
        let bounds = self.log.bounds();
        let of_bytes = bounds.bytes_max.map_or(0.0, |bytes_max| bytes as f64 / bytes_max as f64);
        of_bytes.max(1.0 / bounds.count_max as f64).min(1.0)
    }

    /// Drops all frames and frees their memory. Readers that are not at the end have lagged.
    pub fn clear(&mut self) {
        self.log.clear();
        self.count(0, self.held);
    }

    /// Adds a frame; if it does not fit, the oldest frames are dropped.
    pub fn push(&mut self, frame: Frame) {
        let (more, mut less) = (frame.held(), 0);
        self.log.append_with(frame, |lost| less += lost.held());
        self.count(more, less);
    }

    /// Copies the frames from `next` on into `frames`, at most `bytes_max` but at least one, and returns the index
    /// after the last copied one.
    ///
    /// # Errors
    /// [`Lagged`] when the frame at `next` was overwritten.
    pub fn read(&self, next: u64, bytes_max: usize, frames: &mut Vec<Frame>) -> Result<u64, Lagged> {
        self.log.read(next, Bounds::count(usize::MAX).and_bytes(bytes_max), frames)
    }

    /// The frames from `next` on, with their indices.
    ///
    /// # Errors
    /// [`Lagged`] when the frame at `next` was overwritten.
    pub fn iter_from(&self, next: u64) -> Result<impl DoubleEndedIterator<Item = (u64, &Frame)>, Lagged> {
        let frames = self.log.iter_from(next)?;
        let first = self.end() - frames.len() as u64;
        Ok(frames.enumerate().map(move |(place, frame)| (first + place as u64, frame)))
    }

    /// Drops frames that no reader needs any more: `next` is the first frame that the slowest reader needs.
    pub fn trim(&mut self, next: u64) {
        let count = next.saturating_sub(self.base()).min(self.len() as u64) as usize;
        let less = self.log.iter().take(count).map(Frame::held).sum();
        self.log.trim(next);
        self.count(0, less);
    }

    /// When the first frame was published, and the last one, by the process's clock.
    pub fn times(&self) -> Option<(u64, u64)> {
        let mut times = self.log.iter().map(|frame| frame.published_micros);
        let first = times.next()?;
        Some((first, times.next_back().unwrap_or(first)))
    }

    /// The bytes of the frames that were published before this time of the process's clock, without the newest `kept`.
    pub fn bytes_before(&self, published_micros: u64, kept: usize) -> usize {
        self.older(published_micros, kept).map(Frame::held).sum()
    }

    /// Drops these frames, even if readers still need them.
    pub fn drop_before(&mut self, published_micros: u64, kept: usize) {
        let count = self.older(published_micros, kept).count();
        self.trim(self.base() + count as u64);
    }

    fn older(&self, published_micros: u64, kept: usize) -> impl Iterator<Item = &Frame> {
        let frames = self.log.iter().take(self.len().saturating_sub(kept));
        frames.take_while(move |frame| frame.published_micros < published_micros)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidings_types::{Format, Variant};

    use super::*;

    fn frame(length: usize, index: u64) -> Frame {
        let variants = Format::ALL.map(Variant::websocket).into_iter().zip([length / 2, length]);
        let variants = variants.map(|(variant, length)| (variant, Bytes::from(vec![0; length])));
        Frame::new(FrameKind::Publication(Tags::default()), variants, index, None)
    }

    proptest! {
        /// Readers of different speed: each gets every frame once and in order, or is told how many it missed.
        #[test]
        fn no_reader_is_silently_short(
            steps in prop::collection::vec((0usize..4, 1usize..40, 1usize..60), 1..200),
            frame_count_max in 1usize..8,
        ) {
            let bounds = TailBounds { frame_count_max, bytes_max: 100 };
            let used = Arc::<TailUse>::default();
            let mut tail = Tail::new(bounds, used.clone());
            let mut next = [0u64; 3];
            let mut published = 0;
            for (who, length, bytes_max) in steps {
                if who == 3 {
                    tail.push(frame(length, published));
                    published += 1;
                } else {
                    let mut frames = Vec::new();
                    match tail.read(next[who], bytes_max, &mut frames) {
                        Ok(end) => {
                            let got: Vec<u64> = frames.iter().map(|frame| frame.published_micros).collect();
                            prop_assert_eq!(got, (next[who]..end).collect::<Vec<_>>());
                            prop_assert!(end > next[who] || end == published, "a read makes progress");
                            next[who] = end;
                        }
                        Err(Lagged { missed }) => {
                            prop_assert!(missed > 0);
                            next[who] += missed;
                        }
                    }
                    tail.trim(*next.iter().min().unwrap());
                }
                prop_assert!(tail.len() <= frame_count_max);
                prop_assert!(tail.len() == 1 || tail.log.bytes() <= bounds.bytes_max);
                prop_assert_eq!(tail.end(), published);
                prop_assert_eq!(used.bytes(), tail.log.iter().map(Frame::held).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_tail_whose_readers_have_everything_holds_nothing() {
        let used = Arc::<TailUse>::default();
        let mut tail = Tail::new(TailBounds { frame_count_max: 10, bytes_max: 1000 }, used.clone());
        tail.push(frame(5, 0));
        tail.trim(tail.end());
        assert!(tail.is_empty());
        assert_eq!((tail.end(), used.bytes()), (1, 0));
        tail.push(frame(5, 1));
        tail.push(frame(6, 2));
        assert_eq!(tail.midway(), None, "there is room");
        assert_eq!(tail.bytes_before(2, 0), 7 + FRAME_BYTES, "both forms");
        assert_eq!(tail.bytes_before(3, 1), 7 + FRAME_BYTES, "the newest is kept");
        tail.drop_before(3, 1);
        assert_eq!((tail.base(), used.bytes()), (2, 9 + FRAME_BYTES));
        tail.drop_before(3, 0);
        assert_eq!((tail.base(), used.bytes()), (3, 0));
        drop(tail);
        assert_eq!(used.bytes(), 0);
    }

    #[test]
    fn half_of_a_full_tail_is_in_danger() {
        let mut tail = Tail::new(TailBounds { frame_count_max: 10, bytes_max: 100 }, Arc::default());
        (0..5).for_each(|index| tail.push(frame(1, index)));
        assert_eq!(tail.midway(), None);
        tail.push(frame(1, 5));
        assert_eq!(tail.midway(), Some(3));
        tail.trim(tail.end());
        tail.push(frame(51, 6));
        assert_eq!(tail.midway(), Some(6), "bytes count, too");
        assert_eq!([0, 10, 50, 1000].map(|bytes| tail.part(bytes)), [0.1, 0.1, 0.5, 1.0]);
    }

    /// Whoever joins with one more form must not push out what the others still need.
    #[test]
    fn readers_of_other_forms_do_not_make_the_tail_shorter() {
        let held = |forms: usize| {
            let mut tail = Tail::new(TailBounds { frame_count_max: 100, bytes_max: 1000 }, Arc::default());
            for index in 0..50 {
                let all = Format::ALL.into_iter().flat_map(|format| {
                    [Variant::websocket(format), Variant { transport: tidings_types::Transport::Sse, format }]
                });
                let forms = all.take(forms).map(|variant| (variant, Bytes::from(vec![0; 100])));
                tail.push(Frame::new(FrameKind::Publication(Tags::default()), forms, index, None));
            }
            tail.len()
        };
        assert_eq!([held(1), held(4)], [10, 10]);
    }
}
