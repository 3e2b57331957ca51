//! The trail of a job: what each device went through, and when. It answers "why did this device (not) get it".
//!
//! The books know where a device is now. They forget where it was: a count is all that is left of an outcome. A trail
//! keeps the devices behind the counts, as sets by [`Note`] and time.
//!
//! # Times
//! A set is a *slice* of time: all devices that got the same note within it. A slice is 50 ms long at first, and later a
//! 32nd of the time since the trail began, so a day takes some 400 slices per note. A slice knows its first and its last
//! moment, so an answer is exact, or says between which two moments it was.
//!
//! # What it does not know
//! A trail that began with its job is *whole*: a device without a note was not looked at yet, or was not selected. A
//! trail of a job that goes on after a restart of the server is not: what happened before is not known, and
//! [`Trail::is_whole`] says so. Nothing is guessed.
//!
//! # Memory
//! Two bytes per device and note at most, and one bit or less where many devices with neighbouring numbers have the same
//! note. A device has three notes in the usual case (handed out, its text, its end). [`Trail::bytes_len`] says how much it
//! is. The owner bounds the sum.

use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_types::{DeviceNumber, Timestamp};

use crate::outcome::DeviceOutcome;

/// The shortest slice.
const SLICE_MIN: Duration = Duration::from_millis(50);
/// A slice is this part of the time since the trail began.
const SLICE_PART: u32 = 32;
/// About the bytes of a slice beside its set.
const SLICE_BYTES: usize = 64;

/// Something that happened to a device in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// It would have been selected, but had muted everything or a subject of the event.
    Muted,
    /// It was held back, because its app could still prove that it has the event.
    Held,
    /// It was handed to the connections of this lane.
    HandedOut(usize),
    /// Its outcome took more than one attempt.
    Repeated,
    /// It has its outcome.
    Ended(DeviceOutcome),
}

/// Where a device of a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// It was selected, and its turn has not come.
    Unwalked,
    /// It may prove that it has the event.
    Held,
    /// It waits to be handed out by this lane.
    Pending(usize),
    /// It waits until an older event with the same collapse key is no longer on its way to it.
    Blocked,
    /// This lane has handed it out, and there is no answer yet.
    InFlight(usize),
    /// It has its outcome, or was not selected.
    Nowhere,
}

/// A note of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// What happened.
    pub note: Note,
    /// Not before.
    pub from: Timestamp,
    /// Not after; the same moment if the time is exact.
    pub to: Timestamp,
}

/// What the devices of one job went through.
#[derive(Debug, Clone)]
pub struct Trail {
    begun_at: Timestamp,
    is_whole: bool,
    /// Few: those that occur.
    notes: Vec<(Note, Vec<Slice>)>,
    /// By the cell of a part of the counts (provider, app and language): who was handed out there. Few.
    texts: Vec<(u16, RoaringBitmap)>,
}

#[derive(Debug, Clone)]
struct Slice {
    from: Timestamp,
    to: Timestamp,
    devices: RoaringBitmap,
    /// Of a slice that is closed.
    bytes: usize,
}

impl Trail {
    /// Nothing has happened yet. `is_whole`: nor has it before.
    pub fn new(is_whole: bool, now: Timestamp) -> Self {
        Self { begun_at: now, is_whole, notes: Vec::new(), texts: Vec::new() }
    }

    /// When it began; what happened before is not known unless it is whole.
    pub fn begun_at(&self) -> Timestamp {
        self.begun_at
    }

    /// Whether it began with its job.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// This happened to `devices` just now.
    pub fn note(&mut self, note: Note, devices: RoaringBitmap, now: Timestamp) {
        if devices.is_empty() {
            return;
        }
        let width = SLICE_MIN.max(now.saturating_since(self.begun_at) / SLICE_PART);
        let slices = match self.notes.iter_mut().find(|(known, _)| *known == note) {
            Some((_, slices)) => slices,
            None => &mut self.notes.push_mut((note, Vec::new())).1,
        };
        match slices.last_mut() {
            Some(last) if now.saturating_since(last.from) < width => {
                last.to = last.to.max(now);
                last.devices |= devices;
            }
            last => {
                if let Some(last) = last {
                    last.close();
                }
                slices.push(Slice { from: now, to: now, devices, bytes: 0 });
            }
        }
    }

    /// Their text is that of this cell.
    pub fn note_text(&mut self, cell: u16, devices: RoaringBitmap) {
        match self.texts.iter_mut().find(|(known, _)| *known == cell) {
            Some((_, known)) => *known |= devices,
            None => self.texts.push((cell, devices)),
        }
    }

    /// They did not get into the lake, so they were not handed out.
    pub fn take_back(&mut self, devices: &RoaringBitmap) {
        if devices.is_empty() {
            return;
        }
        for (note, slices) in &mut self.notes {
            if matches!(note, Note::HandedOut(_)) {
                slices.iter_mut().for_each(|slice| slice.devices -= devices);
            }
        }
    }

    /// What is known of a device, in the order of time.
    pub fn of(&self, device: DeviceNumber) -> Vec<Noted> {
        let slices = self.notes.iter().flat_map(|(note, slices)| slices.iter().map(move |slice| (*note, slice)));
        let found = slices.filter(|(_, slice)| slice.devices.contains(device.0));
        let mut noted: Vec<Noted> = found.map(|(note, slice)| Noted { note, from: slice.from, to: slice.to }).collect();
        noted.sort_by_key(|noted| (noted.from, noted.to, rank(noted.note)));
        noted
    }

    /// Whether something is known of a device.
    pub fn has(&self, device: DeviceNumber) -> bool {
        self.notes.iter().flat_map(|(_, slices)| slices).any(|slice| slice.devices.contains(device.0))
    }

    /// The cell of the part in which the device is counted, once it was handed out.
    pub fn text_of(&self, device: DeviceNumber) -> Option<u16> {
        // A device that was handed out again may have changed its language.
        self.texts.iter().rev().find(|(_, devices)| devices.contains(device.0)).map(|(cell, _)| *cell)
    }

    /// About how many bytes it takes.
    pub fn bytes_len(&self) -> usize {
        let slices = self.notes.iter().flat_map(|(_, slices)| slices);
        let of_slices: usize = slices.map(|slice| SLICE_BYTES + slice.bytes_len()).sum();
        let of_texts: usize = self.texts.iter().map(|(_, devices)| SLICE_BYTES + devices.serialized_size()).sum();
        of_slices + of_texts
    }

    /// Nothing more will happen: it takes as little memory as it can.
    pub fn close(&mut self) {
        self.notes.iter_mut().filter_map(|(_, slices)| slices.last_mut()).for_each(Slice::close);
        self.texts.iter_mut().for_each(|(_, devices)| _ = devices.optimize());
    }
}

impl Slice {
    /// No device will come any more.
    fn close(&mut self) {
        self.devices.optimize();
        self.bytes = self.devices.serialized_size();
    }

    fn bytes_len(&self) -> usize {
        if self.bytes > 0 { self.bytes } else { self.devices.serialized_size() }
    }
}

/// The order of notes of the same moment.
fn rank(note: Note) -> u8 {
    match note {
        Note::Muted => 0,
        Note::Held => 1,
        Note::HandedOut(_) => 2,
        Note::Repeated => 3,
        Note::Ended(_) => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const NOTES: [Note; 4] = [Note::Held, Note::HandedOut(0), Note::HandedOut(1), Note::Ended(DeviceOutcome::Accepted)];
    const BEGUN: Timestamp = Timestamp(1_000_000);

    proptest! {
        /// Against every note with its exact time.
        #[test]
        fn each_note_is_found_at_its_time(
            notes in prop::collection::vec((0..NOTES.len(), prop::collection::btree_set(0..500_u32, 1..20), 0..90_000_u64), 0..200),
        ) {
            let mut trail = Trail::new(true, BEGUN);
            let mut exact: BTreeMap<u32, Vec<(Note, Timestamp)>> = BTreeMap::new();
            let mut now = BEGUN;
            for (note, devices, later) in notes {
                now = now.saturating_add(Duration::from_millis(later));
                trail.note(NOTES[note], devices.iter().copied().collect(), now);
                devices.into_iter().for_each(|device| exact.entry(device).or_default().push((NOTES[note], now)));
            }
            for device in 0..500 {
                let noted = trail.of(DeviceNumber(device));
                let exact = exact.remove(&device).unwrap_or_default();
                for (note, at) in &exact {
                    let width = SLICE_MIN.max(at.saturating_since(BEGUN) / SLICE_PART);
                    let fits = |noted: &Noted| {
                        noted.note == *note && (noted.from..=noted.to).contains(at)
                            && noted.to.saturating_since(noted.from) <= width.max(noted.to.saturating_since(BEGUN) / SLICE_PART)
                    };
                    prop_assert!(noted.iter().any(fits), "{device}: {note:?} at {at:?} is not in {noted:?}");
                }
                prop_assert!(noted.iter().all(|noted| exact.iter().any(|(note, _)| *note == noted.note)), "{noted:?}");
                prop_assert!(noted.is_sorted_by_key(|noted| noted.from));
            }
        }
    }

    #[test]
    fn what_did_not_get_into_the_lake_was_not_handed_out() {
        let mut trail = Trail::new(true, BEGUN);
        trail.note(Note::HandedOut(0), (0..10).collect(), BEGUN);
        trail.take_back(&(3..5).collect());
        assert_eq!(trail.of(DeviceNumber(3)), []);
        assert_eq!((0..10).filter(|device| trail.has(DeviceNumber(*device))).count(), 8);
        let later = BEGUN.saturating_add(Duration::from_secs(9));
        trail.note(Note::HandedOut(0), (3..4).collect(), later);
        assert_eq!(trail.of(DeviceNumber(3)), [Noted { note: Note::HandedOut(0), from: later, to: later }]);
    }

    #[test]
    fn a_week_takes_few_slices() {
        let mut trail = Trail::new(true, BEGUN);
        for step in 0..200_000_u64 {
            let now = BEGUN.saturating_add(Duration::from_secs(7 * 86_400) * step as u32 / 200_000);
            trail.note(Note::HandedOut(0), RoaringBitmap::from_iter([step as u32 % 7]), now);
        }
        assert!(trail.notes[0].1.len() < 500, "{}", trail.notes[0].1.len());
    }

    #[test]
    fn a_million_devices_that_end_in_the_order_of_their_numbers_take_few_bytes() {
        let mut trail = Trail::new(true, BEGUN);
        for step in 0..1000_u32 {
            let now = BEGUN.saturating_add(Duration::from_millis(u64::from(step) * 7));
            let devices: RoaringBitmap = (step * 1300..(step + 1) * 1300).collect();
            trail.note(Note::HandedOut(0), devices.clone(), now);
            trail.note_text((step % 3) as u16, devices.clone());
            trail.note(Note::Ended(DeviceOutcome::Accepted), devices, now);
        }
        trail.close();
        assert!(trail.bytes_len() < 1 << 20, "{} bytes", trail.bytes_len());
        assert_eq!(trail.text_of(DeviceNumber(1300)), Some(1));
        assert_eq!(trail.of(DeviceNumber(1_299_999)).len(), 2);
    }
}
