//! The publications to which a reader can come back: a [`Log`] whose indices are offsets, with an epoch and a time to
//! live.
//!
//! ```text
//!   removed by size or age      kept                    top
//!   1 2 3 … ─────────────────► [b+1 … ]────────────────► t      next publication gets t + 1
//! ```
//!
//! Top and epoch outlive the publications: a reader at the top resumes even if nothing is kept any more. If nothing is
//! published for `ttl`, all publications are removed at once, as in Centrifugo's memory engine.

use std::time::Duration;

use tidings_buffer::{Bounds, Log};
use tidings_types::{Epoch, Offset, StreamPosition, Timestamp};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The number of publications; 0 keeps none and gives no offsets.
    pub size: usize,
    /// How long after the last publication all are removed.
    pub ttl: Duration,
}

impl Retention {
    /// Whether publications are kept. Only then they have offsets.
    pub fn is_kept(&self) -> bool {
        self.size > 0 && !self.ttl.is_zero()
    }
}

/// The history does not reach back to the reader's position, or the position belongs to another epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("publications after the position are gone; the channel is at {}", top.offset.0)]
pub struct Gap {
    /// The channel's current position: the reader starts anew from here.
    pub top: StreamPosition,
}

/// The part of the history that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryFilter {
    /// Only after this offset (before it when reversed).
    pub since: Option<Offset>,
    /// At most this many publications; `None` means all.
    pub limit: Option<usize>,
    /// Newest first.
    pub reverse: bool,
    /// The page ends before its publications weigh more than this. The first publication is always given, so that a
    /// reader can always go on from the last one. `None`: no such limit.
    pub bytes_max: Option<usize>,
}

/// Publications under their offsets, bounded by count and age.
///
/// Invariant: a publication's index in the log is its offset minus one. So the log's end is the offset of the last
/// publication, and a reader that has everything up to offset n reads from index n.
#[derive(Debug)]
pub struct History<P> {
    epoch: Epoch,
    log: Log<P>,
    retention: Retention,
    expires_at: Timestamp,
    weigh: fn(&P) -> usize,
}

impl<P: Clone> History<P> {
    /// A new channel: nothing published, at `start`. `weigh` returns the bytes that a publication takes in an answer.
    pub fn new(start: StreamPosition, retention: Retention, weigh: fn(&P) -> usize) -> Self {
        let mut log = Log::weighed(retention.size.max(1), weigh);
        log.skip_to(start.offset.0);
        Self { epoch: start.epoch, log, retention, expires_at: Timestamp(0), weigh }
    }

    /// This new channel with restored content: `kept` are its last publications. The last one has the offset `top` and
    /// was published at `at`.
    #[must_use]
    pub fn restored(&self, top: Offset, mut kept: Vec<P>, at: Timestamp) -> Self {
        let start = Offset(top.0.saturating_sub(kept.len() as u64));
        let mut history = Self::new(StreamPosition { offset: start, epoch: self.epoch }, self.retention, self.weigh);
        history.log.append_batch(&mut kept);
        history.keep_nothing_if_so_told();
        history.expires_at = at.saturating_add(self.retention.ttl);
        history
    }

    /// The channel's position: the offset of the last publication, and the epoch.
    pub fn top(&self) -> StreamPosition {
        StreamPosition { offset: Offset(self.log.end()), epoch: self.epoch }
    }

    /// When the last publication was published; the beginning of time if there is none.
    pub fn published_at(&self) -> Timestamp {
        let ttl = u64::try_from(self.retention.ttl.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.expires_at.0.saturating_sub(ttl))
    }

    /// When the publications are over if no other one comes.
    pub const fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// The last publication was published at `at`.
    pub fn set_published_at(&mut self, at: Timestamp) {
        self.expires_at = at.saturating_add(self.retention.ttl);
    }

    /// Begins another life with the same publications and offsets. Readers of the life before get a gap.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// How many publications are kept.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// The bytes that the publications take.
    pub fn bytes(&self) -> usize {
        self.log.bytes() + self.log.len() * size_of::<P>()
    }

    /// Whether more could be kept.
    pub fn has_room(&self) -> bool {
        self.log.len() < self.retention.size
    }

    /// The last offset before the publications that are kept.
    pub fn base(&self) -> Offset {
        Offset(self.log.base())
    }

    /// Adds publications before those that are kept. `older` follow each other, and the last one has the offset `last`. What
    /// is kept already, or is too much, is left out; so is everything if publications between are missing.
    pub fn prepend(&mut self, mut older: Vec<P>, last: Offset) {
        let Some(known_count) = last.0.checked_sub(self.log.base()) else { return };
        older.truncate(older.len().saturating_sub(usize::try_from(known_count).unwrap_or(usize::MAX)));
        let room = self.retention.size.saturating_sub(self.log.len());
        older.drain(..older.len().saturating_sub(room));
        let mut log = Log::weighed(self.retention.size.max(1), self.weigh);
        log.skip_to(self.log.base() - older.len() as u64);
        older.extend(self.log.iter().cloned());
        log.append_batch(&mut older);
        self.log = log;
    }

    /// Adds the publication that `publication` makes for its offset.
    pub fn append(&mut self, publication: impl FnOnce(Offset) -> P, now: Timestamp) -> P {
        let offset = self.top().offset.next();
        let publication = publication(offset);
        self.append_at(offset, publication.clone(), now);
        publication
    }

    /// Adds a publication whose offset comes from the journal. Offsets grow by one. After a jump, all earlier
    /// publications are dropped, so that the history has no hole.
    ///
    /// Returns whether the publication is new; a known one changes nothing.
    pub fn append_at(&mut self, offset: Offset, publication: P, now: Timestamp) -> bool {
        if offset.0 <= self.log.end() {
            return false;
        }
        if offset.0 > self.log.end() + 1 {
            self.log.skip_to(offset.0 - 1);
        }
        self.log.append(publication);
        self.keep_nothing_if_so_told();
        self.expires_at = now.saturating_add(self.retention.ttl);
        true
    }

    /// Whether nothing was published for `ttl`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }

    /// Removes everything if nothing was published for `ttl`; returns how many were removed.
    pub fn expire(&mut self, now: Timestamp) -> usize {
        if self.is_over(now) { self.clear() } else { 0 }
    }

    /// Removes all publications; top and epoch stay. Returns how many were removed.
    pub fn clear(&mut self) -> usize {
        self.log.clear()
    }

    /// Removes the publications up to `offset`; top and epoch stay.
    pub fn remove_until(&mut self, offset: Offset) {
        self.log.trim(offset.0);
    }

    /// Everything that was published after `since`, in order, or the gap.
    ///
    /// `epoch` is `None` if the reader knows none yet (it subscribed before the first publication).
    ///
    /// # Errors
    /// [`Gap`] if a publication after `since` is no longer kept, if there are more than `limit` allows (a single
    /// publication may have any weight), if `since` is ahead of the channel, or if the epoch is a different one.
    pub fn resume(&self, since: Offset, epoch: Option<&str>, limit: impl Into<Bounds>) -> Result<Vec<P>, Gap> {
        let (top, limit) = (self.top(), limit.into());
        let is_known = epoch.is_none_or(|epoch| epoch == top.epoch.as_str()) && since <= top.offset;
        let missed = self.log.iter_from(since.0).ok().filter(|missed| is_known && missed.len() <= limit.count_max);
        let missed = missed.and_then(|missed| {
            let count = missed.len();
            Some(self.within(missed, limit.bytes_max)).filter(|within| within.len() == count)
        });
        missed.ok_or(Gap { top })
    }

    /// The latest publication, unless the reader is at the top.
    ///
    /// # Errors
    /// [`Gap`] if the reader is not at the top, and the publication there is not kept.
    pub fn resume_latest(&self, since: Offset, epoch: Option<&str>) -> Result<Option<P>, Gap> {
        let top = self.top();
        if since > Offset(0) && since == top.offset && epoch == Some(top.epoch.as_str()) {
            return Ok(None);
        }
        self.log.iter().next_back().map(|latest| Some(latest.clone())).ok_or(Gap { top })
    }

    /// A page of the kept publications.
    pub fn read(&self, filter: HistoryFilter) -> Vec<P> {
        let limit = filter.limit.unwrap_or(usize::MAX);
        // The number of kept publications with at most this offset.
        let count_until = |offset: u64| usize::try_from(offset.saturating_sub(self.log.base())).unwrap_or(usize::MAX);
        if filter.reverse {
            let count = filter.since.map_or(usize::MAX, |since| count_until(since.0.saturating_sub(1)));
            self.within(self.log.iter().take(count).rev().take(limit), filter.bytes_max)
        } else {
            let count = filter.since.map_or(0, |since| count_until(since.0));
            self.within(self.log.iter().skip(count).take(limit), filter.bytes_max)
        }
    }

    /// The first publications, together at most `bytes_max`, but at least one.
    fn within<'a>(&self, publications: impl Iterator<Item = &'a P>, bytes_max: Option<usize>) -> Vec<P>
    where
        P: 'a,
    {
        let mut bytes = 0_usize;
        let fits = |(index, publication): &(usize, &P)| {
            bytes = bytes.saturating_add((self.weigh)(publication));
            *index == 0 || bytes_max.is_none_or(|bytes_max| bytes <= bytes_max)
        };
        publications.enumerate().take_while(fits).map(|(_, publication)| publication.clone()).collect()
    }

    /// A log holds at least one value; a history of size 0 holds none.
    fn keep_nothing_if_so_told(&mut self) {
        if self.retention.size == 0 {
            self.log.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EPOCH: u64 = 7;

    fn history(size: usize) -> History<u64> {
        let start = StreamPosition { offset: Offset(0), epoch: Epoch::from_random(EPOCH) };
        History::new(start, Retention { size, ttl: Duration::from_millis(100) }, weight)
    }

    /// 1 to 3 bytes.
    fn weight(value: &u64) -> usize {
        1 + (value % 3) as usize
    }

    fn restored(top: u64, kept: Vec<u64>, size: usize) -> History<u64> {
        history(size).restored(Offset(top), kept, Timestamp(0))
    }

    fn filter(since: u64, limit: usize, reverse: bool) -> HistoryFilter {
        HistoryFilter { since: Some(Offset(since)), limit: Some(limit), reverse, bytes_max: None }
    }

    /// The first values, together at most `bytes_max`, but at least one.
    fn lightest(values: &[u64], bytes_max: usize) -> &[u64] {
        let is_light = |count: &usize| values[..*count].iter().map(weight).sum::<usize>() <= bytes_max;
        let count = (0..=values.len()).rev().find(is_light).unwrap_or_default();
        &values[..count.max(1).min(values.len())]
    }

    #[test]
    fn the_latest_is_for_readers_that_are_not_at_the_top() {
        let mut history = history(2);
        let epoch = history.top().epoch;
        let epoch = Some(epoch.as_str());
        assert_eq!(history.resume_latest(Offset(0), None), Err(Gap { top: history.top() }), "nothing was published");
        for value in [10, 20, 30] {
            history.append(|_| value, Timestamp(1));
        }
        for (since, epoch, expected) in [
            (0, None, Some(30)),
            (1, epoch, Some(30)),
            (3, Some("other"), Some(30)),
            (9, epoch, Some(30)),
            (3, epoch, None),
        ] {
            assert_eq!(history.resume_latest(Offset(since), epoch), Ok(expected), "{since} {epoch:?}");
        }
        history.clear();
        assert_eq!(history.resume_latest(Offset(3), epoch), Ok(None));
        assert_eq!(history.resume_latest(Offset(2), epoch), Err(Gap { top: history.top() }));
    }

    #[test]
    fn who_has_what_is_removed_resumes_and_others_get_a_gap() {
        let mut history = history(9);
        (0..4).for_each(|_| _ = history.append(|offset| offset.0, Timestamp(0)));
        history.remove_until(Offset(2));
        assert_eq!(history.resume(Offset(2), None, 10), Ok(vec![3, 4]));
        assert_eq!(history.resume(Offset(1), None, 10), Err(Gap { top: history.top() }));
        history.remove_until(Offset(7));
        assert_eq!(
            (history.len(), history.top().offset, history.resume(Offset(4), None, 10)),
            (0, Offset(4), Ok(vec![]))
        );
        assert_eq!(history.append(|offset| offset.0, Timestamp(0)), 5);
    }

    #[test]
    fn a_reader_at_the_top_resumes_even_when_nothing_is_kept() {
        let mut history = history(2);
        history.append(|offset| offset.0, Timestamp(0));
        assert_eq!(history.expire(Timestamp(100)), 1);
        assert_eq!(history.resume(Offset(1), None, 10), Ok(vec![]));
        assert_eq!(history.resume(Offset(0), None, 10), Err(Gap { top: history.top() }));
    }

    #[test]
    fn another_epoch_or_a_position_ahead_is_a_gap() {
        let mut history = history(2);
        history.append(|offset| offset.0, Timestamp(0));
        assert!(history.resume(Offset(1), Some("abcdefgh"), 10).is_err());
        assert!(history.resume(Offset(2), Some(history.top().epoch.as_str()), 10).is_err());
    }

    #[test]
    fn another_life_has_the_same_publications_and_readers_of_the_one_before_get_a_gap() {
        let mut history = history(2);
        assert_eq!(history.published_at(), Timestamp(0));
        history.append(|offset| offset.0, Timestamp(7));
        let before = history.top().epoch;
        history.set_epoch(Epoch::from_random(EPOCH + 1));
        assert_eq!((history.top().offset, history.published_at()), (Offset(1), Timestamp(7)));
        assert_eq!(history.resume(Offset(0), Some(history.top().epoch.as_str()), 10), Ok(vec![1]));
        assert!(history.resume(Offset(0), Some(before.as_str()), 10).is_err());
    }

    #[test]
    fn a_publication_the_history_knows_changes_nothing() {
        let mut history = history(3);
        assert!(history.append_at(Offset(5), 5, Timestamp(0)));
        assert!(!history.append_at(Offset(5), 50, Timestamp(0)));
        assert_eq!(history.read(HistoryFilter::default()), [5]);
    }

    #[test]
    fn a_history_of_size_0_keeps_nothing_but_its_place() {
        let mut history = history(0);
        assert!(history.append_at(Offset(3), 3, Timestamp(0)));
        assert!(history.is_empty());
        assert_eq!(history.resume(Offset(3), None, 10), Ok(vec![]));
        let history = restored(7, vec![6, 7], 0);
        assert_eq!((history.top().offset, history.len()), (Offset(7), 0));
    }

    #[test]
    fn a_restored_history_keeps_the_last_of_what_there_was() {
        let mut history = restored(7, vec![5, 6, 7], 2);
        assert_eq!(history.read(HistoryFilter::default()), [6, 7]);
        assert_eq!(history.resume(Offset(5), None, 10), Ok(vec![6, 7]));
        assert!(history.resume(Offset(4), None, 10).is_err());
        assert!(!history.append_at(Offset(7), 7, Timestamp(0)));
        assert_eq!(history.append(|offset| offset.0, Timestamp(0)), 8);
        assert_eq!(history.expire(Timestamp(99)), 0);
    }

    #[test]
    fn what_is_put_before_a_history_is_as_if_it_had_stayed() {
        for (top, older, last, size, kept) in [
            (7, vec![4, 5, 6], 6, 9, vec![4, 5, 6, 7]),
            (7, vec![4, 5, 6], 6, 3, vec![5, 6, 7]),
            (7, vec![5, 6, 7, 8], 8, 9, vec![5, 6, 7]), // 8 is on its way.
            (7, vec![7], 7, 9, vec![7]),
            (7, vec![4, 5], 5, 9, vec![7]), // Without 6 there is a hole.
            (7, vec![], 6, 9, vec![7]),
            (7, vec![6], 6, 0, vec![]),
        ] {
            let mut history = history(size);
            history.append_at(Offset(top), top, Timestamp(3));
            history.prepend(older, Offset(last));
            assert_eq!(history.read(HistoryFilter::default()), kept, "{last} {size}");
            assert_eq!((history.top().offset, history.published_at()), (Offset(top), Timestamp(3)));
            let base = top - kept.len() as u64;
            assert_eq!((history.base(), history.has_room()), (Offset(base), kept.len() < size));
            assert_eq!(history.bytes(), kept.iter().map(weight).sum::<usize>() + kept.len() * size_of::<u64>());
            assert_eq!(history.append(|offset| offset.0, Timestamp(4)), top + 1);
        }
    }

    #[test]
    fn reverse_pages_go_from_new_to_old() {
        let mut history = history(10);
        for _ in 0..5 {
            history.append(|offset| offset.0, Timestamp(0));
        }
        assert_eq!(history.read(filter(4, 2, true)), [3, 2]);
        assert_eq!(history.read(filter(2, 2, false)), [3, 4]);
        assert_eq!(history.read(HistoryFilter { since: None, ..filter(0, 2, true) }), [5, 4]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Append,
        Jump(u64),
        Clear,
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => Just(Step::Append),
            1 => (2u64..5).prop_map(Step::Jump),
            1 => Just(Step::Clear),
            2 => (1u64..150).prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// The model keeps every publication ever made and knows which are still kept; each value is its own offset.
        #[test]
        fn resume_gives_exactly_what_was_missed_or_says_gap(
            steps in steps(),
            size in 1usize..6,
            limit in 0usize..8,
            bytes_max in 0usize..12,
        ) {
            let mut history = history(size);
            let (mut model, mut now, mut last) = (Vec::<u64>::new(), 0, 0);
            let mut top = 0;
            for step in steps {
                match step {
                    Step::Append => {
                        top += 1;
                        prop_assert_eq!(history.append(|offset| offset.0, Timestamp(now)), top);
                        model.push(top);
                        last = now;
                    }
                    Step::Jump(by) => {
                        top += by;
                        prop_assert!(history.append_at(Offset(top), top, Timestamp(now)));
                        model = vec![top];
                        last = now;
                    }
                    Step::Clear => {
                        history.clear();
                        model.clear();
                    }
                    Step::Wait(millis) => {
                        now += millis;
                        history.expire(Timestamp(now));
                        if now >= last + 100 {
                            model.clear();
                        }
                    }
                }
                let surplus = model.len().saturating_sub(size);
                model.drain(..surplus);
                for since in 0..=top + 1 {
                    let missed: Vec<u64> = (since + 1..=top).collect();
                    let owed = since <= top && missed.len() <= limit && missed.iter().all(|offset| model.contains(offset));
                    let is_light = lightest(&missed, bytes_max).len() == missed.len();
                    let bounds = Bounds::count(limit).and_bytes(bytes_max);
                    for (bounds, owed) in [(limit.into(), owed), (bounds, owed && is_light)] {
                        match history.resume(Offset(since), None, bounds) {
                            Ok(publications) => prop_assert!(owed && publications == missed),
                            Err(gap) => prop_assert!(!owed && gap.top.offset == Offset(top)),
                        }
                    }
                    let after: Vec<u64> = model.iter().copied().filter(|&offset| offset > since).take(limit).collect();
                    let light = |reverse| HistoryFilter { bytes_max: Some(bytes_max), ..filter(since, limit, reverse) };
                    prop_assert_eq!(history.read(light(false)), lightest(&after, bytes_max));
                    prop_assert_eq!(history.read(filter(since, limit, false)), after);
                    let before: Vec<u64> = model.iter().rev().copied().filter(|&offset| offset < since).take(limit).collect();
                    prop_assert_eq!(history.read(light(true)), lightest(&before, bytes_max));
                    prop_assert_eq!(history.read(filter(since, limit, true)), before);
                }
            }
        }
    }
}
