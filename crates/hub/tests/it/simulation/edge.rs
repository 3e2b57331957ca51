//! What stands in for the edge: the loops hand frames on, and write to the links, as `crates/edge/src/fanout.rs` does to
//! connections.
//!
//! A reader that is in sync is written in a turn. One whose link was full is written when the link has room again; then a
//! reader that may get less gets what the channel chooses. A limit per second makes it wait in the list of its loop.

use tidings_hub::{Behind, Thinned};

use super::*;

/// A link takes another frame while it holds fewer bytes.
pub(super) const LINK_BYTES: usize = 250;
/// What is chosen for a reader at a time.
const CHOSEN_BYTES_MAX: usize = 400;
/// What the tags of a gap add to a publication is not counted.
const TAGS_BYTES_MAX: usize = 50;

/// One loop of the edge.
#[derive(Default)]
pub(super) struct Loop {
    /// The next frame of each channel that it reads.
    pub(super) next: BTreeMap<&'static str, (Arc<Channel>, u64)>,
    /// The readers that are written when their time comes.
    pub(super) waiting: BTreeSet<(Timestamp, usize)>,
}

/// What the edge knows of a reader that may get less than everything.
#[derive(Default)]
pub(super) struct Thin {
    /// Before this time nothing is written.
    due: Option<Timestamp>,
    is_waiting: bool,
    /// So many frames were left out, and the reader does not know yet.
    missed_count: u64,
    /// The last publication that was written.
    offset: Offset,
}

impl Thin {
    /// Of a reader that has all up to `offset`.
    pub(super) fn at(offset: Offset) -> Self {
        Self { offset, ..Self::default() }
    }
}

impl Link {
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() < LINK_BYTES
    }

    /// Whether it is not written in turns.
    fn has_own_time(&self, reader: &Reader) -> bool {
        self.thin.missed_count > 0 || reader.interval_ms() > 0
    }

    fn is_chosen_for(&self, reader: &Reader) -> bool {
        reader.wishes.thinning.slow_readers == SlowReaders::Latest || self.thin.missed_count > 0
    }

    /// All frames from its next one on.
    fn all_until(&self, end: u64) -> Option<Thinned> {
        let mut frames = Vec::new();
        self.channel.fetch(self.next, usize::MAX, &mut frames).ok()?;
        frames.truncate((end - self.next) as usize);
        let end = self.next + frames.len() as u64;
        Some(Thinned { indices: (self.next..end).collect(), frames, end, ..Thinned::default() })
    }
}

impl World {
    /// A loop fetches what is new, once for all its readers, and writes to those that are in sync.
    pub(super) fn turn(&mut self, on: usize) {
        let (loop_id, mailbox) = self.hub.loops().nth(on).expect("there are so many");
        let mut dirty = Vec::new();
        mailbox.take(&mut dirty);
        for channel in dirty {
            let known = self.loops[on].next.iter_mut().find(|(name, _)| **name == channel.name().as_str());
            let Some((&name, (same, next))) = known else { continue };
            if !Arc::ptr_eq(same, &channel) {
                continue; // It was forgotten and made anew since.
            }
            channel.clear_dirty(loop_id);
            let (mut base, mut is_late, mut frames) = (*next, false, Vec::new());
            loop {
                match channel.fetch(*next, 200, &mut frames) {
                    Ok((end, more)) => {
                        *next = end;
                        if !more {
                            break;
                        }
                    }
                    Err(lagged) => {
                        *next += lagged.missed;
                        (base, is_late) = (*next, true);
                    }
                }
            }
            if is_late {
                self.overtake(on, name, base);
            }
            for who in self.linked(on, name) {
                self.write_new(who, base);
            }
            self.settle(on, name);
        }
        self.write_due(on);
    }

    pub(super) fn linked(&self, on: usize, name: &str) -> Vec<usize> {
        let is_linked =
            |reader: &Reader| reader.channel == name && reader.link.as_ref().is_some_and(|link| link.on == on);
        (0..READERS).filter(|who| is_linked(&self.readers[*who])).collect()
    }

    /// In a turn a reader gets all frames from `base` on, if it has got those before.
    fn write_new(&mut self, who: usize, base: u64) {
        let reader = &self.readers[who];
        let Some(link) = &reader.link else { return };
        if link.has_own_time(reader) {
            self.wait(who);
        } else if link.next >= base && link.has_room() {
            let end = self.loops[link.on].next[reader.channel].1;
            if link.next < end
                && let Some(all) = link.all_until(end)
            {
                self.put(who, &all, false);
            }
        }
    }

    /// Writes to the readers whose time has come.
    fn write_due(&mut self, on: usize) {
        while let Some(&(at, who)) = self.loops[on].waiting.first().filter(|(at, _)| *at <= self.now) {
            self.loops[on].waiting.remove(&(at, who));
            let name = self.readers[who].channel;
            let Some(link) = self.readers[who].link.as_mut().filter(|link| link.on == on) else { continue };
            link.thin.is_waiting = false;
            if link.has_room() {
                self.catch_up(who);
                self.settle(on, name);
            }
        }
    }

    /// The reader is written when its time comes.
    fn wait(&mut self, who: usize) {
        let Some(link) = &mut self.readers[who].link else { return };
        if !std::mem::replace(&mut link.thin.is_waiting, true) {
            let at = link.thin.due.map_or(self.now, |due| due.max(self.now));
            self.loops[link.on].waiting.insert((at, who));
        }
    }

    /// Writes what the reader lacks while its link has room. One that gets everything is cut off if the tail has overtaken
    /// it.
    pub(super) fn catch_up(&mut self, who: usize) {
        loop {
            let reader = &self.readers[who];
            let Some(link) = &reader.link else { return };
            let end = self.loops[link.on].next[reader.channel].1;
            if link.next >= end || !link.has_room() {
                return;
            }
            if link.thin.due.is_some_and(|due| due > self.now) {
                self.counts.waits += 1;
                return self.wait(who);
            }
            match self.lacking(who, end) {
                Some((lacking, is_chosen)) => self.put(who, &lacking, is_chosen),
                None => return self.close_slow(who),
            }
        }
    }

    /// What a reader lacks before `end`, or what it gets of that, and whether it was chosen.
    fn lacking(&self, who: usize, end: u64) -> Option<(Thinned, bool)> {
        let Reader { form, wishes, link, .. } = &self.readers[who];
        let link = link.as_ref()?;
        if !link.is_chosen_for(&self.readers[who])
            && let Some(all) = link.all_until(end)
        {
            return Some((all, false));
        }
        let Thin { missed_count, offset, .. } = link.thin;
        let behind = Behind { next: link.next, offset, missed_count, form: *form, wishes };
        let chosen = wishes.thinning.thins().then(|| link.channel.thin(&behind, end, CHOSEN_BYTES_MAX))?.ok()?;
        let bytes: usize = chosen.frames.iter().map(|frame| frame.bytes(*form, false).len()).sum();
        let (count, tags_bytes) = (chosen.frames.len(), chosen.frames.len() * TAGS_BYTES_MAX);
        assert!(count < 2 || bytes <= CHOSEN_BYTES_MAX + tags_bytes, "{bytes} bytes are chosen");
        Some((chosen, true))
    }

    /// Writes these frames while the link has room.
    fn put(&mut self, who: usize, lacking: &Thinned, is_chosen: bool) {
        let now = self.now;
        let interval_ms = self.readers[who].interval_ms();
        let Reader { form, wishes, link, channel, .. } = &mut self.readers[who];
        let link = link.as_mut().expect("it is written");
        let (mut passed, mut written) = (0_usize, Vec::new());
        for frame in &lacking.frames {
            if !link.has_room() {
                break;
            }
            passed += 1;
            let is_wanted = wishes.wants(frame);
            if is_wanted {
                let bytes = frame.bytes(*form, link.has_base);
                assert!(!bytes.is_empty(), "a reader's frames have its form");
                link.bytes.extend(bytes);
                written.push(frame.offset);
            }
            link.has_base = is_wanted;
        }
        let at_last = passed.checked_sub(1);
        let last = at_last.map_or(link.next, |at| lacking.indices[at] + 1);
        let has_all = passed == lacking.frames.len();
        let lacks_base = at_last.is_some_and(|at| lacking.lacks_base.get(at) == Some(&true));
        link.next = if has_all { lacking.end } else { last };
        link.has_base &= link.next == last && !lacks_base;
        if has_all {
            link.thin.missed_count = lacking.untold_count;
        } else if let Some(untold_count) = at_last.and_then(|at| lacking.untold_counts.get(at)) {
            link.thin.missed_count = *untold_count;
        }
        if let Some(offset) = written.last() {
            link.thin.offset = *offset;
            link.thin.due = (interval_ms > 0).then(|| Timestamp(now.0 + interval_ms));
        }
        let seen_until = self.loops[link.on].next[*channel].1;
        self.on_put(who, &written, seen_until, is_chosen);
    }

    /// Tells the channel the position of this loop's slowest reader.
    pub(super) fn settle(&mut self, on: usize, name: &'static str) {
        let Some((channel, next)) = self.loops[on].next.get(name).cloned() else { return };
        let linked = self.linked(on, name);
        let slowest = linked.iter().filter_map(|who| Some(self.readers[*who].link.as_ref()?.next)).min();
        let loop_id = loop_ids(&self.hub)[on];
        let base = channel.settle(loop_id, slowest.unwrap_or(next));
        self.overtake(on, name, base);
    }

    /// The tail begins at `base`. Readers that may get less go on there, the others are cut off.
    fn overtake(&mut self, on: usize, name: &'static str, base: u64) {
        for who in self.linked(on, name) {
            let thins = self.readers[who].wishes.thinning.thins();
            let Some(link) = self.readers[who].link.as_mut().filter(|link| link.next < base) else { continue };
            if !thins {
                self.close_slow(who);
                continue;
            }
            link.must_have_lost_until(base);
            link.thin.missed_count += base - link.next;
            (link.next, link.has_base) = (base, false);
            self.wait(who);
        }
    }

    fn close_slow(&mut self, who: usize) {
        let link = self.readers[who].link.as_ref().expect("it is closed only once");
        assert!(who >= HEALTHY, "healthy reader {who} is closed as slow");
        assert!(!self.readers[who].wishes.thinning.thins(), "reader {who} may get less, and is closed as slow");
        assert!(!link.lost.is_empty(), "reader {who} is closed as slow, and the tail could hold all that it lacks");
        self.counts.slow += 1;
        self.cut(who, "slow");
    }
}
