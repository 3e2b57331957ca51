//! Ends mutes whose end has passed, several times a second, by the store's clock.
//!
//! They are found in the table of ends. If a block of this table cannot be read, the ends behind it are searched among all
//! mutes, which takes longer. One round ends at most 1000 mutes.

use std::sync::atomic::Ordering;

use tidings_types::{DeviceNumber, Mute, MuteScope, Timestamp};

use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Place, Span, Table};
use crate::rows;

/// Mutes that one round ends or reads.
const END_COUNT: usize = 1000;

/// The progress of the search for ended mutes.
#[derive(Debug, Default)]
pub(crate) struct MuteEnds {
    /// All mutes that end before this have ended, except those that must be searched among all mutes. `None`: as the store's
    /// state says, which is written when mutes end.
    pub(crate) ended: Option<Timestamp>,
    /// No known mute ends before this, so nothing is read until then.
    due: Timestamp,
    /// The key at which the search among all mutes continues.
    start: Vec<u8>,
    /// When the search among all mutes began, if it could read all mutes so far.
    began: Option<Timestamp>,
    /// An unreadable block was logged.
    is_logged: bool,
}

impl Draft<'_> {
    /// Ends some of the mutes that are over. True when there may be more.
    ///
    /// If the row of a mute cannot be read, its end is deleted and the mute stays, so that the other mutes end in time.
    pub(crate) fn end_mutes(&mut self, ends: &mut MuteEnds) -> Result<bool, EngineError> {
        let mut over = Vec::new();
        let now = self.wall();
        let mut ended = ends.ended.unwrap_or(self.state.mutes_ended);
        // Mutes that came meanwhile may end earlier.
        let new = Timestamp(self.shared.mutes_due.swap(u64::MAX, Ordering::Relaxed));
        (ends.due, ended) = (ends.due.min(new), ended.min(new));
        if now < ended {
            ended = Timestamp(0); // The clock was set back, so there may be new mutes with earlier ends.
        } else if now < ends.due {
            return Ok(false);
        }
        let span = Span::prefix(&now.0.to_be_bytes()).from(&ended.0.to_be_bytes());
        let scanned = self.engine.scan(Place::MuteEnds, Table::MuteEnd, &span, |key, _| {
            over.push(key.to_vec());
            Ok(over.len() < END_COUNT)
        });
        let read = match ends.is_logged {
            true => damage::tolerate_quietly(scanned)?,
            false => damage::tolerate(scanned, "Ended mutes are searched among all mutes")?,
        };
        let is_cut = read.is_none();
        ends.is_logged |= is_cut;
        let mut done_count = 0;
        while done_count < over.len() && self.may_go_on(done_count) {
            let key = &over[done_count];
            done_count += 1;
            self.rows.delete(Table::MuteEnd, key.as_slice());
            let Some((until, mute_key)) = rows::decode_mute_end(key) else { continue };
            let Some((number, scope)) = rows::decode_mute_key(mute_key) else { continue };
            ended = until;
            damage::tolerate(self.end_mute_at(number, &scope, until), "A mute has no end any more")?;
        }
        let has_more = done_count < over.len() || over.len() == END_COUNT;
        ends.due = Timestamp(0);
        if !has_more && !is_cut {
            ended = now; // So the next scan does not walk over what was deleted here.
            ends.due = self.next_mute_end(now)?;
        }
        if done_count > 0 {
            self.state.mutes_ended = ended;
        }
        ends.ended = Some(ended);
        if is_cut { self.end_any_mutes(now, ends) } else { Ok(has_more) }
    }

    /// The first end behind `now`, of the mutes that are durable.
    fn next_mute_end(&self, now: Timestamp) -> Result<Timestamp, EngineError> {
        let mut next = Timestamp(u64::MAX);
        let span = Span::all().from(&(now.0 + 1).to_be_bytes());
        let scanned = self.engine.scan(Place::MuteEnds, Table::MuteEnd, &span, |key, _| {
            next = rows::decode_mute_end(key).map_or(now, |(until, _)| until);
            Ok(false)
        });
        Ok(damage::tolerate_quietly(scanned)?.map_or(now, |()| next))
    }

    /// Ends the mutes that are over among the next of all mutes. True when there are more mutes to read. At the end, if it
    /// could read all of them, every mute that was over when it began has ended.
    fn end_any_mutes(&mut self, now: Timestamp, ends: &mut MuteEnds) -> Result<bool, EngineError> {
        let MuteEnds { ended, start, began, .. } = ends;
        if start.is_empty() {
            *began = Some(now);
        }
        let (mut over, mut seen_count, mut last) = (Vec::new(), 0, std::mem::take(start));
        let scanned = self.engine.scan(Place::MuteEnds, Table::Mute, &Span::all().from(&last.clone()), |key, row| {
            (seen_count, last) = (seen_count + 1, key.to_vec());
            if let Ok((number, Mute { scope, until: Some(until) })) = rows::decode_mute(key, row)
                && until <= now
            {
                over.push((number, scope, until));
            }
            Ok(seen_count < END_COUNT)
        });
        let is_cut = damage::tolerate_quietly(scanned)?.is_none();
        if is_cut {
            *began = None;
        }
        if is_cut && seen_count == 0 {
            // Skips the unreadable block, one device at a time.
            let number = last.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
            *start = number.checked_add(1).map_or(Vec::new(), |next| rows::number_key(DeviceNumber(next)).to_vec());
        } else if is_cut || seen_count == END_COUNT {
            *start = [&last[..], &[0]].concat(); // The next possible key.
        }
        for (number, scope, until) in over {
            damage::tolerate(self.end_mute_at(number, &scope, until), "A mute does not end")?;
        }
        if start.is_empty() {
            *ended = began.take().max(*ended);
        }
        Ok(!start.is_empty())
    }

    /// Ends a mute, unless it has another end by now.
    fn end_mute_at(&mut self, number: DeviceNumber, scope: &MuteScope, until: Timestamp) -> Result<(), EngineError> {
        if self.muted(number, scope)? == Some(Some(until)) {
            self.end_mute(number, scope)?;
        }
        Ok(())
    }
}
