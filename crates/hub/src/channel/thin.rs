//! What a reader gets that gets less than everything ([`Thinning`](tidings_protocol::Thinning)).
//!
//! A reader is a position in the tail, also if it gets less. Whenever it is behind, the frames from there on are chosen anew
//! ([`Channel::thin`]): the newest publication of each key, or, for a reader that otherwise gets everything, after an overrun the
//! newest of all. So nothing is kept for a slow reader, and it never gets an older publication of a key after a newer one.
//!
//! The first publication behind what was left out says so, in its tags: `skipped_from` and `skipped_to`, the offsets of the first
//! and the last publication that the reader has not got. If it has no position, or offsets do not show the gap, the tag is
//! `skipped`: at most so many are left out, because what was overwritten is not known any more. For the tags the channel keeps
//! the publications of its tail while it has such readers ([`Sources`](super::sources::Sources)).

use std::collections::{BTreeMap, HashSet};

use tidings_protocol::{Publication, SlowReaders};
use tidings_stream::{Encoded, Frame, FrameKind, Lagged};
use tidings_telemetry::panics::lock;
use tidings_types::{Offset, PushForm, Tags};

use super::{Channel, State, with_text};
use crate::wishes::Wishes;

/// The tag with the offset of the first publication that was left out.
const TAG_FROM: &str = "skipped_from";
/// The tag with the offset of the last one.
const TAG_TO: &str = "skipped_to";
/// The tag with their number, where offsets do not show them.
const TAG_COUNT: &str = "skipped";

/// A reader that is behind.
#[derive(Debug, Clone, Copy)]
pub struct Behind<'a> {
    /// Index of the next frame that it needs.
    pub next: u64,
    /// The last publication that it has got.
    pub offset: Offset,
    /// So many frames before `next` were left out, and it does not know yet.
    pub missed_count: u64,
    /// What its pushes look like.
    pub form: PushForm,
    /// What it wants.
    pub wishes: &'a Wishes,
}

/// What a reader that is behind gets next.
#[derive(Debug, Default)]
pub struct Thinned {
    /// The frames, in order, with their indices.
    pub frames: Vec<Frame>,
    /// The index of each.
    pub indices: Vec<u64>,
    /// Where the reader stands when it has all of them.
    pub end: u64,
    /// For each, how many publications are left out of which it tells.
    pub skipped_counts: Vec<u64>,
    /// For each, how many are left out of which the reader does not know when it has this one.
    pub untold_counts: Vec<u64>,
    /// For each, whether the reader lacks a publication between this one and what comes next.
    pub lacks_base: Vec<bool>,
    /// How many are left out of which it does not know at `end`.
    pub untold_count: u64,
    /// At `end` stands a restart frame.
    pub is_at_restart: bool,
}

/// A frame that a reader gets.
struct Choice {
    index: u64,
    frame: Frame,
    /// Publications before it that are left out.
    skipped_count: u64,
    /// There is a publication before it, and behind the choice before, that the reader does not get, for whatever reason.
    lacks_base: bool,
    publication: Option<Publication>,
}

impl Channel {
    /// What a reader that gets less than everything gets next, of the frames before `end`: at most `bytes_max`, but at least one
    /// frame.
    ///
    /// # Errors
    /// [`Lagged`] when a restart frame may have been overwritten before the reader came to it.
    pub fn thin(&self, behind: &Behind<'_>, end: u64, bytes_max: usize) -> Result<Thinned, Lagged> {
        let (mut choices, mut thinned) = {
            let state = lock(&self.state);
            let missed = state.tail.base().saturating_sub(behind.next);
            if missed > 0 && state.sources.restart_end > behind.next {
                return Err(Lagged { missed });
            }
            state.choose(behind, end, missed)
        };
        let (mut bytes, mut count) = (0, 0);
        for choice in &choices {
            bytes += choice.frame.bytes(behind.form, false).len();
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        if count < choices.len() {
            choices.truncate(count);
            thinned.end = choices[count - 1].index + 1;
            thinned.is_at_restart = false;
        }
        let (mut last, mut skipped_count, mut lacks_base) = (behind.offset, 0, false);
        for choice in choices {
            skipped_count += choice.skipped_count;
            lacks_base |= choice.lacks_base;
            thinned.indices.push(choice.index);
            if is_publication(&choice.frame) {
                let skipped_count = std::mem::take(&mut skipped_count);
                let frame = self.written(choice, behind, last, skipped_count, std::mem::take(&mut lacks_base));
                last = last.max(frame.offset);
                thinned.frames.push(frame);
                thinned.skipped_counts.push(skipped_count);
            } else {
                thinned.frames.push(choice.frame);
                thinned.skipped_counts.push(0);
            }
            thinned.lacks_base.push(lacks_base);
            thinned.untold_counts.push(skipped_count);
        }
        thinned.untold_count += skipped_count;
        Ok(thinned)
    }

    /// The publication's frame as it is, or with other bytes if publications before it are left out.
    fn written(
        &self,
        choice: Choice,
        behind: &Behind<'_>,
        last: Offset,
        skipped_count: u64,
        lacks_base: bool,
    ) -> Frame {
        let Choice { frame, publication, .. } = choice;
        match publication.filter(|_| skipped_count > 0) {
            Some(publication) => {
                let publication = self.localized(&publication, behind.form);
                let publication = with_gap(&publication, last, skipped_count);
                frame.rewritten(Encoded { delta: None, ..self.encode_publication(behind.form, &publication, None) })
            }
            None if lacks_base && behind.form.has_deltas => {
                let whole = frame.bytes(behind.form, false).clone();
                frame.rewritten(Encoded { form: behind.form, whole, delta: None })
            }
            None => frame,
        }
    }

    /// The publication as a reader of this form gets it.
    fn localized(&self, publication: &Publication, form: PushForm) -> Publication {
        let (Some(localizer), Some(event), Some(language)) = (&self.localizer, &publication.texts, form.language)
        else {
            return publication.clone();
        };
        let texts = localizer.texts(event, &[language]);
        with_text(publication, texts.first().and_then(|text| text.as_deref()))
    }

    /// The index after the last restart frame. A reader before it must not be moved on.
    pub fn restart_end(&self) -> u64 {
        lock(&self.state).sources.restart_end
    }
}

impl State {
    /// The frames before `end` that the reader gets. `missed`: so many frames from its position on were overwritten.
    fn choose(&self, behind: &Behind<'_>, end: u64, missed: u64) -> (Vec<Choice>, Thinned) {
        let from = behind.next + missed;
        let frames = self.tail.iter_from(from).into_iter().flatten().take_while(|(index, _)| *index < end);
        let mut frames: Vec<(u64, &Frame)> = frames.collect();
        let restart = frames.iter().position(|(_, frame)| frame.is_restart());
        frames.truncate(restart.unwrap_or(frames.len()));
        let (end, is_at_restart) = (from + frames.len() as u64, restart.is_some());
        let missed_count = missed + behind.missed_count;
        let (mut seen, mut choices) = (HashSet::new(), Vec::<Choice>::new());
        for &(index, frame) in frames.iter().rev() {
            let source = self.sources.at(index);
            let key = match behind.wishes.thinning.slow_readers {
                SlowReaders::Latest => source.and_then(|source| source.key.as_deref()),
                SlowReaders::Skip if missed_count > 0 => Some(""),
                SlowReaders::Skip | SlowReaders::Disconnect => None,
            };
            let key = key.filter(|_| is_publication(frame));
            let is_wanted = behind.wishes.wants(frame);
            if is_wanted && key.is_none_or(|key| seen.insert(key)) {
                let (frame, publication) = (frame.clone(), source.map(|source| source.publication.clone()));
                choices.push(Choice { index, frame, skipped_count: 0, lacks_base: false, publication });
            } else if let Some(next) = choices.last_mut().filter(|_| is_publication(frame)) {
                next.skipped_count += u64::from(is_wanted);
                next.lacks_base = true;
            }
        }
        choices.reverse();
        let untold_count = match choices.first_mut() {
            Some(first) => {
                first.skipped_count += missed_count;
                first.lacks_base |= missed_count > 0;
                0
            }
            None => missed_count,
        };
        (choices, Thinned { end, is_at_restart, untold_count, ..Thinned::default() })
    }
}

fn is_publication(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Publication(_))
}

/// The publication with tags that tell what was left out behind the offset `last`.
fn with_gap(publication: &Publication, last: Offset, skipped_count: u64) -> Publication {
    let mut tags: BTreeMap<String, String> =
        publication.tags.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut tell = |name: &str, value: u64| tags.insert(name.to_owned(), value.to_string());
    match publication.offset.0 {
        offset if offset > last.0 + 1 => {
            tell(TAG_FROM, last.0 + 1);
            tell(TAG_TO, offset - 1);
        }
        _ => drop(tell(TAG_COUNT, skipped_count)),
    }
    Publication { tags: Tags::from(tags), ..publication.clone() }
}
