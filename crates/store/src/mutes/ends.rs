//! Ending mutes whose time is over, several times a second, by the store's clock.
//!
//! They are found in the table of ends. Behind a block of it that cannot be read they are looked for among all mutes, which
//! takes longer. One look ends at most 1000.

use std::ops::Bound;

use tidings_types::{DeviceNumber, Mute, MuteScope, Timestamp};

use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::rows;

/// Mutes that one look ends, or looks at.
const END_COUNT: usize = 1000;

/// How far the look for mutes that are over is.
#[derive(Debug, Default)]
pub(crate) struct MuteEnds {
    /// No mute that ends before this is left, but for those that are looked for among all.
    pub(crate) ended: Timestamp,
    /// With which key the look at all mutes goes on.
    start: Vec<u8>,
    /// When it began, if it has read all so far.
    began: Option<Timestamp>,
    /// A block was told that cannot be read.
    is_told: bool,
}

impl Draft<'_> {
    /// Ends mutes that are over, some at a time. True when there may be more.
    ///
    /// Where it cannot be read what is muted, the end is forgotten and the mute stays: the others end in time.
    pub(crate) fn end_mutes(&mut self, ends: &mut MuteEnds) -> Result<bool, EngineError> {
        let mut over = Vec::new();
        let now = self.wall();
        if now < ends.ended {
            ends.ended = Timestamp(0); // The clock was set back: since then earlier ends may have come.
        }
        let scanned = self.engine.scan(Table::MuteEnd, Bound::Included(&ends.ended.0.to_be_bytes()), |key, _| {
            let is_over = rows::decode_mute_end(key).is_none_or(|(until, _)| until <= now);
            if is_over {
                over.push(key.to_vec());
            }
            Ok::<_, EngineError>(is_over && over.len() < END_COUNT)
        });
        let read = match ends.is_told {
            true => damage::tolerate_quietly(scanned)?,
            false => damage::tolerate(scanned, "Mutes that are over are looked for among all")?,
        };
        let is_cut = read.is_none();
        ends.is_told |= is_cut;
        for key in &over {
            self.rows.delete(Table::MuteEnd, key.as_slice());
            let Some((until, mute_key)) = rows::decode_mute_end(key) else { continue };
            let Some((number, scope)) = rows::decode_mute_key(mute_key) else { continue };
            ends.ended = until;
            damage::tolerate(self.end_mute_of(number, &scope, until), "A mute has no end any more")?;
        }
        if is_cut { self.end_any_mutes(now, ends) } else { Ok(over.len() == END_COUNT) }
    }

    /// Ends what is over among the next of all mutes. True when there are more; at the end it begins again, behind what
    /// was over when it began, if it could read all.
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
            Ok::<_, EngineError>(seen_count < END_COUNT)
        });
        let is_cut = damage::tolerate_quietly(scanned)?.is_none();
        if is_cut {
            *began = None;
        }
        if is_cut && seen_count == 0 {
            // What cannot be read is passed over, a device at a time.
            let number = last.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
            *start = number.checked_add(1).map_or(Vec::new(), |next| rows::number_key(DeviceNumber(next)).to_vec());
        } else if is_cut || seen_count == END_COUNT {
            *start = [&last[..], &[0]].concat(); // The next key that there can be.
        }
        for (number, scope, until) in over {
            damage::tolerate(self.end_mute_of(number, &scope, until), "A mute does not end")?;
        }
        if start.is_empty() {
            *ended = began.take().map_or(*ended, |began| began.max(*ended));
        }
        Ok(!start.is_empty())
    }

    /// Ends a mute, unless it was muted anew meanwhile and has another end.
    fn end_mute_of(&mut self, number: DeviceNumber, scope: &MuteScope, until: Timestamp) -> Result<(), EngineError> {
        if self.muted(number, scope)? == Some(Some(until)) {
            self.end_mute(number, scope)?;
        }
        Ok(())
    }
}
