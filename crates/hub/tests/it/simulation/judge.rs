//! What a reader must be able to account for. The judge knows all that was published, and when; of the hub it knows only that
//! a tail holds [`TAIL_FRAMES`] frames.
//!
//! A publication is *lost* for a reader if so many newer ones were published before the server wrote it. A reader that gets
//! everything is closed then, and only then. One that skips has everything but what is left out together with something lost. One
//! that gets the newest of each key lacks a publication only if it is lost, or if a newer one with the same key was there when what
//! comes behind the gap was written. What is newer is judged in the same way, so in the end the reader has the newest of each
//! key that is not lost. This is what decision 0038 promises, no more: the newest publication of a key may be lost, too.

use super::*;

/// A publication that the server has written to a link.
pub(super) struct Sent {
    offset: u64,
    /// Its loop knew all publications before this offset.
    seen_until: u64,
    /// The channel has chosen it, because the reader was behind.
    is_chosen: bool,
}

/// What a publication is about, as the options of its namespace say.
fn key(channel: &str, written: &Written) -> Option<u64> {
    if channel == "latest:1" { Some(0) } else { written.thing }
}

impl Link {
    /// The offset of the publication in the frame with this index: all publications of the channel are kept and counted.
    fn offset_at(&self, index: u64) -> u64 {
        self.joined_at.1 + 1 + index - self.joined_at.0
    }

    /// The tail may only drop the frames before `base` if it is full.
    pub(super) fn must_have_lost_until(&self, base: u64) {
        let dropped = self.offset_at(self.next)..self.offset_at(base);
        assert!(dropped.clone().all(|offset| self.lost.contains(&offset)), "{dropped:?} are dropped too early");
    }
}

impl Reader {
    pub(super) fn wants(&self, written: &Written) -> bool {
        self.wishes.filter.is_none() || written.is_odd
    }

    /// The time from one write to the next.
    pub(super) fn interval_ms(&self) -> u64 {
        1000_u32.checked_div(self.wishes.thinning.per_second_max).unwrap_or(0).into()
    }

    fn is_lost(&self, offset: u64) -> bool {
        self.link.as_ref().is_some_and(|link| link.lost.contains(&offset))
    }
}

impl World {
    /// `offset` was published. What no tail can hold any more is lost for those that were not written it.
    pub(super) fn on_published(&mut self, name: &str, offset: u64) {
        for reader in self.readers.iter_mut().filter(|reader| reader.channel == name) {
            let Some(link) = &mut reader.link else { continue };
            let next = link.offset_at(link.next);
            link.lost.extend(next..(offset + 1).saturating_sub(TAIL_FRAMES as u64));
        }
    }

    /// These publications were written to the link.
    pub(super) fn on_put(&mut self, who: usize, offsets: &[Offset], seen_until: u64, is_chosen: bool) {
        let (now, interval_ms) = (self.now, self.readers[who].interval_ms());
        let link = self.readers[who].link.as_mut().expect("it is written");
        assert!(link.bytes.len() < edge::LINK_BYTES + MESSAGE_BYTES_MAX, "a link holds one message too many at most");
        if offsets.is_empty() {
            return;
        }
        let last = link.written_at.replace(now);
        let is_early = last.is_some_and(|last| now.0 < last.0 + interval_ms);
        assert!(!is_early, "reader {who} is written at {last:?} and {now:?}, more often than each {interval_ms} ms");
        let seen_until = link.offset_at(seen_until);
        link.sent.extend(offsets.iter().map(|offset| Sent { offset: offset.0, seen_until, is_chosen }));
    }

    /// A publication is there: it is the next one that the reader wants, and its data is what was published.
    pub(super) fn receive(&mut self, who: usize, publication: &Value) {
        let offset = publication["offset"].as_u64().expect("an offset");
        let reader = &self.readers[who];
        let data = match (&publication["data"], publication["delta"].as_bool()) {
            (Value::String(delta), Some(true)) => {
                self.counts.deltas += 1;
                let base = reader.base.as_ref().expect("a delta needs the data before");
                let data = undelta::apply(base.as_bytes(), delta.as_bytes()).expect("a delta for this data");
                String::from_utf8(data).unwrap()
            }
            (Value::String(whole), _) => whole.clone(),
            (data, _) => data.to_string(),
        };
        let tag = |name: &str| publication["tags"].get(name).map(|tag| tag.as_str().unwrap().parse::<u64>().unwrap());
        let tags = [tag("skipped_from"), tag("skipped_to"), tag("skipped")];
        self.counts.received += 1;
        self.note(format_args!("reader {who} has {offset}"));
        let link = self.readers[who].link.as_mut().expect("it has arrived");
        let sent = link.sent.pop_front().filter(|sent| sent.offset == offset).expect("it was written next");
        match tags {
            [None, None, None] => {}
            [Some(from), Some(to), None] => self.be_told_what_is_left_out(who, &sent, from, to),
            _ => panic!("reader {who} is told {tags:?} before {offset}"),
        }
        self.must_be_the_newest(who, &sent);
        self.take(who, offset, &data);
    }

    /// The gap has the right borders, and each publication in it that the reader wants is left out for a reason.
    fn be_told_what_is_left_out(&mut self, who: usize, sent: &Sent, from: u64, to: u64) {
        let reader = &self.readers[who];
        let (epoch, before) = reader.position.clone().expect("it has subscribed");
        let borders = (before + 1, sent.offset - 1);
        assert!(from <= to && (from, to) == borders, "reader {who} is told of {from} to {to} instead of {borders:?}");
        let stream = &self.streams[&(reader.channel, epoch.clone())];
        let wanted = || stream.written.range(from..=to).filter(|(_, written)| reader.wants(written));
        let has_lost = (from..=to).any(|offset| reader.is_lost(offset));
        assert!(has_lost || wanted().next().is_some(), "reader {who} is told of {from} to {to}, and lacks nothing");
        let policy = reader.wishes.thinning.slow_readers;
        for (&offset, written) in wanted() {
            let is_left_out = match policy {
                SlowReaders::Disconnect => false,
                SlowReaders::Skip => has_lost,
                SlowReaders::Latest => {
                    reader.is_lost(offset) || self.has_newer(who, &epoch, offset, written, sent.seen_until)
                }
            };
            assert!(is_left_out, "reader {who} has {before}, gets {}, and {offset} is left out", sent.offset);
        }
        let of_other_keys = |(_, written): &(&u64, &Written)| {
            written.thing.is_some()
                && key(reader.channel, written) != key(reader.channel, &stream.written[&sent.offset])
        };
        self.counts.overrun += usize::from(has_lost);
        self.counts.skipped += usize::from(policy == SlowReaders::Skip);
        let is_conflated = policy == SlowReaders::Latest && wanted().any(|one| of_other_keys(&one));
        self.counts.conflated_by_tag += usize::from(is_conflated && reader.channel == "memory:1");
        self.counts.conflated_by_data += usize::from(is_conflated && reader.channel == "journal:1");
        self.note(format_args!("reader {who} is told that {from} to {to} are left out"));
        let reader = &mut self.readers[who];
        reader.has_gap = true;
        reader.position = Some((epoch, to));
    }

    /// Whether the reader wants another publication with the same key behind `offset` and before `until`.
    fn has_newer(&self, who: usize, epoch: &str, offset: u64, written: &Written, until: u64) -> bool {
        let reader = &self.readers[who];
        let stream = &self.streams[&(reader.channel, epoch.to_owned())];
        let Some(about) = key(reader.channel, written) else { return false };
        let is_newer = |other: &Written| reader.wants(other) && key(reader.channel, other) == Some(about);
        stream.written.range(offset + 1..until.max(offset + 1)).any(|(_, other)| is_newer(other))
    }

    /// What is chosen for a reader that is behind is the newest of its key, or of all.
    fn must_be_the_newest(&self, who: usize, sent: &Sent) {
        let reader = &self.readers[who];
        let Some((epoch, _)) = reader.position.as_ref().filter(|_| sent.is_chosen) else { return };
        let stream = &self.streams[&(reader.channel, epoch.clone())];
        let is_old = match reader.wishes.thinning.slow_readers {
            SlowReaders::Disconnect => true,
            SlowReaders::Skip => {
                let newer = sent.offset + 1..sent.seen_until.max(sent.offset + 1);
                stream.written.range(newer).any(|(_, other)| reader.wants(other))
            }
            SlowReaders::Latest => {
                self.has_newer(who, epoch, sent.offset, &stream.written[&sent.offset], sent.seen_until)
            }
        };
        assert!(!is_old, "reader {who} was behind before {}, and is written {}", sent.seen_until, sent.offset);
    }

    /// A gap has a reason: another epoch, or something missed is no longer kept.
    pub(super) fn be_told_of_a_gap(&mut self, who: usize, epoch: &str) {
        let reader = &self.readers[who];
        let (before, offset) = reader.position.clone().expect("it wanted to resume");
        let stream = &self.streams[&(reader.channel, epoch.to_owned())];
        let is_latest_gone = reader.channel == "latest:1" && stream.removed == stream.top;
        let is_lost = before != epoch || is_latest_gone || !stream.keeps_from(offset);
        assert!(is_lost, "reader {who} is told of a gap behind {offset}, but all is kept");
        self.counts.gaps += 1;
        self.counts.epochs += usize::from(before != epoch);
        self.note(format_args!("reader {who} is told of a gap behind {offset}"));
    }

    pub(super) fn recover(&mut self, who: usize, epoch: &str, publications: &[Publication]) {
        let reader = &mut self.readers[who];
        let (before, mut offset) = reader.position.clone().expect("it wanted to resume");
        if reader.channel == "latest:1" {
            // It asks for the newest alone, of whatever epoch.
            assert!(publications.len() <= 1);
            let Some(latest) = publications.first() else { return assert_eq!(before, epoch) };
            offset = latest.offset.0 - 1;
        }
        assert!(reader.channel == "latest:1" || before == epoch, "an epoch's offsets mean nothing in another one");
        reader.position = Some((epoch.to_owned(), offset));
        let wanted = |publication: &&Publication| reader.wishes.wants_publication(&publication.tags);
        let wanted: Vec<Publication> = publications.iter().filter(wanted).cloned().collect();
        let is_last_wanted = wanted.last().map(|last| last.offset) == publications.last().map(|last| last.offset);
        for publication in &wanted {
            self.counts.recovered += 1;
            self.note(format_args!("reader {who} recovers {}", publication.offset.0));
            self.take(who, publication.offset.0, publication.data.as_str());
        }
        if !is_last_wanted {
            self.readers[who].base = None;
        }
    }

    pub(super) fn take(&mut self, who: usize, offset: u64, data: &str) {
        let reader = &mut self.readers[who];
        let (epoch, before) = reader.position.clone().expect("it has subscribed");
        let stream = &self.streams[&(reader.channel, epoch.clone())];
        assert!(offset > before, "reader {who} has {before} and gets {offset}");
        let missed: Vec<u64> = stream.written.range(before + 1..offset).map(|(offset, _)| *offset).collect();
        let missed = missed.into_iter().filter(|offset| reader.wants(&stream.written[offset])).collect::<Vec<_>>();
        assert!(missed.is_empty(), "reader {who} has {before}, gets {offset} and was not told of {missed:?}");
        let written = &stream.written[&offset];
        assert!(reader.wants(written), "reader {who} gets {offset}, which it does not want");
        let as_value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(as_value(data), as_value(&written.data), "reader {who} at {offset}");
        reader.base = Some(written.data.clone());
        reader.position = Some((epoch, offset));
    }

    /// Up to `top` there is nothing that the reader wants and does not have, but what is lost. One that gets everything
    /// loses nothing.
    pub(super) fn must_lack_nothing(&self, who: usize, top: u64) {
        let reader = &self.readers[who];
        let (epoch, offset) = reader.position.clone().expect("it has subscribed");
        if offset >= top {
            return;
        }
        let stream = &self.streams[&(reader.channel, epoch)];
        let is_excused = |offset| reader.wishes.thinning.thins() && reader.is_lost(offset);
        let mut lacked = stream.written.range(offset + 1..=top);
        let lacks = lacked.find(|(offset, written)| reader.wants(written) && !is_excused(**offset));
        assert!(lacks.is_none(), "reader {who} has {offset} and lacks {:?}", lacks.map(|(offset, _)| offset));
    }

    /// A reader to which nothing is on its way has all that its loop knew when it was written last.
    pub(super) fn must_have_what_was_written(&self, who: usize) {
        let Some(link) = self.readers[who].link.as_ref().filter(|link| link.bytes.is_empty()) else { return };
        self.must_lack_nothing(who, link.offset_at(link.next) - 1);
    }

    /// The newest publication that it wants has arrived, and the server has passed all.
    pub(super) fn must_be_at_the_top(&self, who: usize) {
        let reader = &self.readers[who];
        let link = reader.link.as_ref().expect("the network is good");
        let stream = &self.streams[&(reader.channel, link.epoch.clone())];
        let newest = stream.written.iter().rev().find(|(_, written)| reader.wants(written));
        let (newest, has) = (newest.map(|(offset, _)| *offset), reader.position.as_ref().map(|(_, offset)| *offset));
        assert!(has >= newest, "reader {who} has {has:?}, and the newest one is {newest:?}");
        assert_eq!(link.offset_at(link.next), stream.top + 1, "reader {who}");
    }

    /// What waits for slow readers is bounded.
    pub(super) fn check_bounds(&self) {
        let frame_bytes_max = 320 + 3 * MESSAGE_BYTES_MAX; // Of two forms, one with a delta.
        assert!(self.hub.tail_bytes() <= CHANNELS.len() * TAIL_FRAMES * frame_bytes_max, "{}", self.hub.tail_bytes());
    }
}
