//! Ends mutes whose end has passed, several times a second, by the store's clock.
//!
//! They are found in the table of ends. If a block of this table cannot be read, the ends behind it are searched among all
//! mutes, which takes longer. One round ends at most 1000 mutes.

use std::ops::Bound;

use tidings_types::{DeviceNumber, Mute, MuteScope, Timestamp};

use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::rows;

/// Mutes that one round ends or reads.
const END_COUNT: usize = 1000;

/// The progress of the search for ended mutes.
#[derive(Debug, Default)]
pub(crate) struct MuteEnds {
    /// All mutes that end before this have ended, except those that must be searched among all mutes.
    pub(crate) ended: Timestamp,
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
        if now < ends.ended {
            ends.ended = Timestamp(0); // The clock was set back, so there may be new mutes with earlier ends.
        }
        let scanned = self.engine.scan(Table::MuteEnd, Bound::Included(&ends.ended.0.to_be_bytes()), |key, _| {
            let is_over = rows::decode_mute_end(key).is_none_or(|(until, _)| until <= now);
            if is_over {
                over.push(key.to_vec());
            }
            Ok(is_over && over.len() < END_COUNT)
        });
        let read = match ends.is_logged {
            true => damage::tolerate_quietly(scanned)?,
            false => damage::tolerate(scanned, "Ended mutes are searched among all mutes")?,
        };
        let is_cut = read.is_none();
        ends.is_logged |= is_cut;
        for key in &over {
            self.rows.delete(Table::MuteEnd, key.as_slice());
            let Some((until, mute_key)) = rows::decode_mute_end(key) else { continue };
            let Some((number, scope)) = rows::decode_mute_key(mute_key) else { continue };
            ends.ended = until;
            damage::tolerate(self.end_mute_at(number, &scope, until), "A mute has no end any more")?;
        }
        if is_cut { self.end_any_mutes(now, ends) } else { Ok(over.len() == END_COUNT) }
    }

    /// Ends the mutes that are over among the next of all mutes. True when there are more mutes to read. At the end, if it
    /// could read all of them, every mute that was over when it began has ended.
    fn end_any_mutes(&mut self, now: Timestamp, ends: &mut MuteEnds) -> Result<bool, EngineError> {
        let MuteEnds { ended, start, began, .. } = ends;
        if start.is_empty() {
            *began = Some(now);
        }
        let (mut over, mut seen_count, mut last) = (Vec::new(), 0, std::mem::take(start));
        let scanned = self.engine.scan(Table::Mute, Bound::Included(&last.clone()), |key, row| {
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
            *ended = began.take().map_or(*ended, |began| began.max(*ended));
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
