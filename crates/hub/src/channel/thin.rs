//! What a reader gets that gets less than everything ([`Thinning`](tidings_protocol::Thinning)).
//!
//! A reader is a position in the tail, also if it gets less. Whenever it is behind, it goes on from there ([`Channel::thin`]): it
//! gets the newest publication of each key, or, if it otherwise gets everything, after an overrun the newest of all, and passes
//! over the others. So nothing is kept for a slow reader, and it never gets an older publication of a key after a newer one.
//!
//! What it costs: a reader passes each frame once, or twice if its answer was full there. Whether a newer publication follows is
//! known of each ([`Sources`](super::sources::Sources)), so how much waits does not matter. Only a reader with a filter looks on,
//! for a newer publication that it wants. One call looks at [`LOOK_COST_MAX`] frames at most, and at fewer if the reader's filter is
//! a costly one.
//!
//! The first publication behind what was left out says so, in its tags: `skipped_from` and `skipped_to`, the offsets of the first
//! and the last publication that the reader has not got. If it has no position, or offsets do not show the gap, the tag is
//! `skipped`: at most so many are left out, because what was overwritten is not known any more. For the tags the channel keeps
//! the publications of its tail while it has such readers ([`Sources`](super::sources::Sources)).

use std::collections::BTreeMap;
use std::mem;

use tidings_protocol::{Publication, SlowReaders};
use tidings_stream::{Encoded, Frame, FrameKind, Lagged};
use tidings_telemetry::panics::lock;
use tidings_types::{Offset, PushForm, Tags};

use super::sources::{Source, Sources};
use super::{Channel, State, with_text};
use crate::wishes::Wishes;

/// The tag with the offset of the first publication that was left out.
const TAG_FROM: &str = "skipped_from";
/// The tag with the offset of the last one.
const TAG_TO: &str = "skipped_to";
/// The tag with their number, where offsets do not show them.
const TAG_COUNT: &str = "skipped";
/// What one call may cost, of looks at frames: about 100 microseconds under the channel's lock.
const LOOK_COST_MAX: usize = 1024;

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
    /// Where the reader stands when it has all of them. That may be before the end to which it may read, also if there are none.
    pub end: u64,
    /// For each, how many publications are left out of which it tells.
    pub skipped_counts: Vec<u64>,
    /// For each, how many are left out of which the reader does not know when it has this one.
    pub untold_counts: Vec<u64>,
    /// For each, whether the reader lacks a publication between this one and what comes next.
    pub lacks_base: Vec<bool>,
    /// How many are left out of which it does not know at `end`.
    pub untold_count: u64,
    /// There may be more before the reader's end: it would have cost too much to look further at once.
    pub is_cut: bool,
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
    /// frame. There may be more even if there is none: one call looks at so many frames only.
    ///
    /// # Errors
    /// [`Lagged`] when a restart frame may have been overwritten before the reader came to it.
    pub fn thin(&self, behind: &Behind<'_>, end: u64, bytes_max: usize) -> Result<Thinned, Lagged> {
        let (choices, mut thinned) = {
            let state = lock(&self.state);
            let missed = state.tail.base().saturating_sub(behind.next);
            if missed > 0 && state.sources.restart_end > behind.next {
                return Err(Lagged { missed });
            }
            state.choose(behind, end, missed, bytes_max)
        };
        let (mut last, mut skipped_count, mut lacks_base) = (behind.offset, 0, false);
        for choice in choices {
            skipped_count += choice.skipped_count;
            lacks_base |= choice.lacks_base;
            thinned.indices.push(choice.index);
            if is_publication(&choice.frame) {
                let skipped_count = mem::take(&mut skipped_count);
                let frame = self.written(choice, behind, last, skipped_count, mem::take(&mut lacks_base));
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
    /// The frames before `end` that the reader gets, at most `bytes_max`. `missed`: so many frames from its position on were
    /// overwritten.
    fn choose(&self, behind: &Behind<'_>, end: u64, missed: u64, bytes_max: usize) -> (Vec<Choice>, Thinned) {
        let from = behind.next + missed;
        let restart = self.sources.restart_from(from).filter(|at| *at < end);
        let end = restart.unwrap_or(end).max(from);
        let mut chooser = Chooser::new(self, behind, end, missed);
        let frames = self.tail.iter_from(from).into_iter().flatten().take_while(|(index, _)| *index < end);
        let mut sources = self.sources.from(from).peekable();
        let (mut stopped, mut is_cut) = (None, false);
        for (index, frame) in frames {
            if !chooser.may_look(frame) {
                (stopped, is_cut) = (Some(index), true);
                break;
            }
            let source = sources.next_if(|source| source.index == index);
            if !chooser.pass(index, frame, source, bytes_max) {
                // What was passed over since the last choice is looked at again.
                (chooser.skipped_count, stopped) = (0, chooser.choices.last().map(|last| last.index + 1));
                break;
            }
        }
        let Chooser { choices, skipped_count, .. } = chooser;
        let is_at_restart = stopped.is_none() && restart.is_some();
        let end = stopped.unwrap_or(end);
        (choices, Thinned { end, is_at_restart, is_cut, untold_count: skipped_count, ..Thinned::default() })
    }
}

/// Chooses among the frames that a reader passes.
struct Chooser<'a> {
    sources: &'a Sources,
    behind: &'a Behind<'a>,
    /// Where the reader stops.
    end: u64,
    /// Publications before this one are left out, whatever they are about.
    newest: u64,
    cost_left: usize,
    choices: Vec<Choice>,
    /// The bytes of all choices.
    bytes: usize,
    /// Publications since the last choice that are left out.
    skipped_count: u64,
    /// There is a publication since the last choice that the reader does not get, for whatever reason.
    lacks_base: bool,
}

impl<'a> Chooser<'a> {
    fn new(state: &'a State, behind: &'a Behind<'a>, end: u64, missed: u64) -> Self {
        let missed_count = missed + behind.missed_count;
        let gets_newest_alone = behind.wishes.thinning.slow_readers == SlowReaders::Skip && missed_count > 0;
        let newest = if gets_newest_alone { newest_wanted(&state.sources, behind.wishes, end) } else { None };
        Self {
            sources: &state.sources,
            behind,
            end,
            newest: newest.unwrap_or(0),
            cost_left: LOOK_COST_MAX,
            choices: Vec::new(),
            bytes: 0,
            skipped_count: missed_count,
            lacks_base: missed_count > 0,
        }
    }

    /// Counts a look at a frame. `false`: it may not cost more. The first look always may.
    fn may_look(&mut self, frame: &Frame) -> bool {
        match &frame.kind {
            FrameKind::Publication(tags) => self.may_look_at(tags),
            FrameKind::JoinLeave | FrameKind::Restart => self.may_cost(1),
        }
    }

    fn may_look_at(&mut self, tags: &Tags) -> bool {
        self.may_cost(self.behind.wishes.cost(tags))
    }

    fn may_cost(&mut self, cost: usize) -> bool {
        let may = self.cost_left > 0;
        self.cost_left = self.cost_left.saturating_sub(cost);
        may
    }

    /// Passes the next frame. `false`: the reader gets it, but there is no room for it.
    fn pass(&mut self, index: u64, frame: &Frame, source: Option<&Source>, bytes_max: usize) -> bool {
        let is_wanted = self.behind.wishes.wants(frame);
        if !is_wanted || source.is_some_and(|source| self.is_replaced(source)) {
            self.skipped_count += u64::from(is_wanted);
            self.lacks_base |= is_publication(frame);
            return true;
        }
        self.bytes += frame.bytes(self.behind.form, false).len();
        if !self.choices.is_empty() && self.bytes > bytes_max {
            return false;
        }
        let (skipped_count, lacks_base) = (mem::take(&mut self.skipped_count), mem::take(&mut self.lacks_base));
        let publication = source.map(|source| source.publication.clone());
        self.choices.push(Choice { index, frame: frame.clone(), skipped_count, lacks_base, publication });
        true
    }

    /// Whether the reader gets a later publication instead. If it takes too long to find out, it gets both.
    fn is_replaced(&mut self, source: &Source) -> bool {
        if self.behind.wishes.thinning.slow_readers != SlowReaders::Latest {
            return source.index < self.newest;
        }
        let mut at = source.replaced_at;
        while at < self.end {
            let Some(later) = self.sources.at(at).filter(|later| self.may_look_at(&later.publication.tags)) else {
                return false;
            };
            if self.behind.wishes.wants_publication(&later.publication.tags) {
                return true;
            }
            at = later.replaced_at;
        }
        false
    }
}

/// The last publication before `end` that the reader wants. `None`: there is none, or it takes too long to find it.
fn newest_wanted(sources: &Sources, wishes: &Wishes, end: u64) -> Option<u64> {
    let mut cost_left = LOOK_COST_MAX;
    let affordable = sources.before(end).take_while(|source| {
        let may = cost_left > 0;
        cost_left = cost_left.saturating_sub(wishes.cost(&source.publication.tags));
        may
    });
    let wants = |source: &&Source| wishes.wants_publication(&source.publication.tags);
    affordable.into_iter().find(wants).map(|source| source.index)
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
