//! The data of every device that sending needs, by device number. It is derived from the rows.
//!
//! In memory there are 8 bytes per number, the *slot*, and 2 for the count of its subscriptions; beside them a bit per
//! proven token, hints which number an id has (`ids`), and what names there are (`names`). The rest, about 90 bytes for a
//! phone, is a record of the heap (`record`), read through a map without a copy. A record holds app, locale and country by
//! their numbers.
//!
//! ```text
//!                     ┌ 0: no such device
//!  slots[number] ─────┤ 1: kept in memory, in `resident`: the heap or the names had no room
//!                     ├ 2: lost; its row has it
//!                     └ place ─► heap: checksum over number and record │ app, locale, country by number │ id, token
//! ```
//!
//! **Damage.** A damaged record is [`Lost`]: readers use the row instead, and the committer writes the record anew
//! (`devices/tend.rs`). The numbers of lost records wait in [`Losses`].
//!
//! **Room.** The committer calls [`DeviceTable::reserve`] before a batch is durable, and is refused when the disk is
//! full. So [`DeviceTable::set`] should not fail because of a full disk. If it does, the device stays in memory.
//!
//! **Checkpoint.** Slots and counts go into it in parts of 2^20 numbers, each with all names ([`DeviceTable::encode`]).
//! The heap's files stay and are synced ([`DeviceTable::unsynced`]). A name's number keeps its meaning as long as the
//! heap exists: it is never given to another name. If a checkpoint's slots point to older records, its replay sets the
//! newer ones again. Without a checkpoint the heap starts empty.
//!
//! **Order.** Records are read in the order of numbers, but written in the order in which devices came.
//! [`DeviceTable::collect`] moves them into the order of numbers: each record is written twice, and reads are several
//! times faster.
//!
//! **Garbage.** [`DeviceTable::collect`] also moves living records out of segments that are mostly garbage. The files
//! are deleted when a checkpoint that does not use them is durable ([`DeviceTable::begin_checkpoint`],
//! [`DeviceTable::end_checkpoint`]).
//!
//! Bound: `device_count_max`.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::mem;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use parking_lot::RwLock;
use roaring::RoaringBitmap;
use tidings_heap::{Heap, Limits, OpenError, Place, ReserveError, Retired, Stored, Unsynced, Usage};
use tidings_telemetry::chain;
use tidings_types::{Device, DeviceId, DeviceNumber};
use tracing::{error, warn};

use self::ids::IdHash;
use self::names::Names;
use self::proven::Proven;
use crate::devices::Recipient;
use crate::packed::{Unpack, put_varint};

mod ids;
mod names;
mod proven;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use self::ids::Ids;
pub(crate) use self::proven::proven_place;

const FOLDER: &str = "heap";
/// A small store takes a mebibyte. All of these are small in tests, so that there is more than one of each.
const LIMITS: Limits = match cfg!(test) {
    false => Limits { segment_bytes_min: 1 << 20, segment_bytes_max: 16 << 20 },
    true => Limits { segment_bytes_min: 64 << 10, segment_bytes_max: 128 << 10 },
};
/// Numbers in one part of a checkpoint.
const PART_COUNT: usize = if cfg!(test) { 32 } else { 1 << 20 };
/// What a checkpoint takes for each number.
const SLOT_BYTES: usize = size_of::<u64>() + size_of::<u16>();
/// How many records before it is read one is fetched from memory.
const AHEAD_COUNT: usize = 8;
/// From so many on it is worth telling the kernel.
const WILL_NEED_COUNT: usize = 1024;
/// Of so many one is asked for where it is: what lies between is told with it.
const WILL_NEED_STEP: usize = 64;
/// What one call of [`DeviceTable::collect`] looks at and moves: a few milliseconds.
const COLLECT_SLOT_COUNT: usize = if cfg!(test) { 64 } else { 1 << 16 };
const COLLECT_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 256 << 10 };
/// Devices that one call of it writes into the heap for which there was no room before.
const SETTLE_COUNT: usize = 1024;
/// Segments of which one walk over all slots collects what lives.
const SWEEP_SEGMENT_COUNT: usize = 64;

/// Devices of a checkpoint that may be lost, however few there are.
const LOST_COUNT_MAX: u64 = 1000;

/// Slots that are no places; others below 2^40 do not occur.
const NONE: u64 = 0;
const RESIDENT: u64 = 1;
const LOST: u64 = 2;

pub(crate) struct DeviceTable {
    heap: Heap,
    slots: Vec<u64>,
    /// Of each slot; a device that had more than fit here has so many.
    subscription_counts: Vec<u16>,
    resident: HashMap<DeviceNumber, Box<Device>>,
    /// Of these, and of others perhaps, those that only want room.
    unsettled: Vec<DeviceNumber>,
    /// The disk had no room for a segment when it was last asked.
    is_full: bool,
    /// Devices of a checkpoint whose records are not there.
    lost_count: u64,
    names: Names,
    ids: Ids,
    count: u64,
    proven: Proven,
    sweep: Option<Sweep>,
    /// Written of devices that were set since segments were last chosen to be emptied.
    set_bytes: u64,
    /// The last record written, for its memory.
    record: Vec<u8>,
}

/// What of the table's heap cannot be read: the device's row has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

/// A part of a checkpoint is not what [`DeviceTable::encode`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a part of the device table is damaged")]
pub(crate) struct DecodeError;

/// What one call of [`DeviceTable::collect`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Collected {
    /// Records that are elsewhere now: a checkpoint from before speaks of where they were.
    pub(crate) count: u64,
    pub(crate) has_more: bool,
}

/// A walk over all slots to move what lives in these segments.
#[derive(Debug)]
struct Sweep {
    /// Ascending.
    segments: Vec<u32>,
    next: usize,
}

impl DeviceTable {
    /// One without devices; what is in its folder is deleted.
    pub(crate) fn create(store: &Path) -> Result<Self, OpenError> {
        Ok(Self::over(Heap::create(&store.join(FOLDER), LIMITS)?))
    }

    /// One to be filled by [`DeviceTable::decode`] and then [`DeviceTable::finish_decoding`].
    pub(crate) fn open(store: &Path) -> Result<Self, OpenError> {
        Ok(Self::over(Heap::open(&store.join(FOLDER), LIMITS)?))
    }

    fn over(heap: Heap) -> Self {
        Self {
            heap,
            slots: Vec::new(),
            subscription_counts: Vec::new(),
            resident: HashMap::new(),
            unsettled: Vec::new(),
            is_full: false,
            lost_count: 0,
            names: Names::default(),
            ids: Ids::default(),
            count: 0,
            proven: Proven::default(),
            sweep: None,
            set_bytes: 0,
            record: Vec::new(),
        }
    }

    /// Makes room for so many bytes of [`DeviceTable::room_for`]. The files are made while nobody holds the lock; only the
    /// committer adds any.
    pub(crate) fn reserve(table: &RwLock<Self>, bytes: u64) -> Result<(), ReserveError> {
        loop {
            let Some(missing) = table.read().heap.missing(bytes) else { return Ok(()) };
            let made = missing.make()?;
            table.write().heap.add(made);
        }
    }

    /// What is to be reserved for a device, in bytes.
    pub(crate) fn room_for(device: &Device) -> u64 {
        record::room_for(device)
    }

    /// [`DeviceTable::set`] with the room that it needs, for those that come one by one: what was accepted can be sent, also
    /// while the disk is full. A device without room is kept in memory until [`DeviceTable::collect`] finds some.
    pub(crate) fn set_reserving(&mut self, number: DeviceNumber, device: Device) {
        if !self.is_full {
            self.is_full = self.heap.reserve(Self::room_for(&device)).is_err();
        }
        self.set(number, device);
    }

    /// Adds or replaces a device, for which room was reserved; its count of subscriptions stays.
    pub(crate) fn set(&mut self, number: DeviceNumber, device: Device) {
        let index = number.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, NONE);
            self.subscription_counts.resize(index + 1, 0);
        }
        let written = record::encode(&device, &mut self.names, &mut self.record);
        let place = written.and_then(|()| self.heap.append(number.0, &self.record).ok());
        self.set_bytes += self.record.len() as u64;
        self.put_slot(index, place.map_or(RESIDENT, Place::to_bits));
        if place.is_none() {
            self.unsettled.extend(written.map(|()| number));
            self.resident.insert(number, Box::new(device));
        }
    }

    pub(crate) fn remove(&mut self, number: DeviceNumber) {
        if let Ok(Some(removed)) = self.recipient(number) {
            let hash = IdHash::of(removed.id);
            self.ids.remove(hash);
        }
        let index = number.0 as usize;
        if index < self.slots.len() {
            self.put_slot(index, NONE);
            self.subscription_counts[index] = 0;
        }
    }

    /// Forgets what was in the slot before.
    fn put_slot(&mut self, index: usize, slot: u64) {
        let old = mem::replace(&mut self.slots[index], slot);
        self.count = self.count + u64::from(slot != NONE) - u64::from(old != NONE);
        if old == RESIDENT {
            self.resident.remove(&DeviceNumber(index as u32));
        } else if let Some(place) = Place::from_bits(old) {
            self.heap.release(place);
        }
    }

    /// To be called when a batch is over, under the lock under which it was set. What the disk does not take is lost.
    pub(crate) fn flush(&mut self) {
        if let Err(error) = self.heap.flush() {
            error!(error = chain(&error), "Devices are read from their rows, for their records cannot be written");
        }
    }

    /// Counts a subscription more (1) or less (-1).
    pub(crate) fn count_subscription(&mut self, number: DeviceNumber, by: i16) {
        if let Some(count) = self.subscription_counts.get_mut(number.0 as usize) {
            *count = count.saturating_add_signed(by);
        }
    }

    pub(crate) fn subscription_count(&self, number: DeviceNumber) -> u32 {
        self.subscription_counts.get(number.0 as usize).copied().map_or(0, u32::from)
    }

    /// The counts of all numbers, to be counted anew.
    pub(crate) fn subscription_counts_mut(&mut self) -> &mut [u16] {
        &mut self.subscription_counts
    }

    /// What sending needs of the device, if there is one.
    pub(crate) fn recipient(&self, number: DeviceNumber) -> Result<Option<Recipient<'_>>, Lost> {
        match self.slot(number) {
            NONE => Ok(None),
            RESIDENT => {
                let device = self.resident.get(&number).ok_or(Lost)?;
                Ok(Some(Recipient::of(number, device, self.is_proven(number))))
            }
            slot => {
                let place = Place::from_bits(slot).ok_or(Lost)?;
                self.read(number, self.heap.stored(place)).map(Some)
            }
        }
    }

    /// The number of the device with this id, if memory is sure: who is not found may be there nevertheless.
    pub(crate) fn number_of(&self, id: &DeviceId) -> Option<DeviceNumber> {
        let is_meant = |found: Recipient<'_>| found.id == id.as_str();
        let is_it = |number: &DeviceNumber| self.recipient(*number).is_ok_and(|found| found.is_some_and(is_meant));
        let mut found = self.ids.find(IdHash::of(id.as_str())).filter(is_it);
        found.next().filter(|_| found.next().is_none()) // Of two the row decides.
    }

    /// From now on a row says that the device with this id has this number.
    pub(crate) fn hint_at(&mut self, id: &DeviceId, number: DeviceNumber) {
        let hash = IdHash::of(id.as_str());
        self.ids.remove(hash);
        self.ids.insert(hash, number);
    }

    /// How many devices there are, where they are too many for the hints: then [`DeviceTable::replace_hints`].
    pub(crate) fn outgrown_hints(&self) -> Option<u64> {
        self.ids.is_outgrown(self.count).then_some(self.count)
    }

    /// From here on the rows are to be walked over, from the first one on. The old ones are for the caller to free.
    pub(crate) fn replace_hints(&mut self, hints: Ids) -> Ids {
        mem::replace(&mut self.ids, hints)
    }

    /// Behind which row of an id the walk over them goes on; `None`: it is over.
    pub(crate) fn next_unhinted(&self) -> Option<Vec<u8>> {
        self.ids.next.clone()
    }

    /// The rows to behind `next` say this; `None`: there are no more.
    pub(crate) fn hint_at_rows(&mut self, numbers: &[(DeviceId, DeviceNumber)], next: Option<Vec<u8>>) {
        numbers.iter().for_each(|(id, number)| self.ids.insert(IdHash::of(id.as_str()), *number));
        self.ids.next = next;
    }

    /// The numbers that devices have.
    pub(crate) fn numbers(&self) -> RoaringBitmap {
        let byte = |slots: &[u64]| slots.iter().rev().fold(0, |bits, slot| bits << 1 | u8::from(*slot != NONE));
        RoaringBitmap::from_lsb0_bytes(0, &self.slots.chunks(8).map(byte).collect::<Vec<u8>>())
    }

    pub(crate) fn contains(&self, number: DeviceNumber) -> bool {
        self.slot(number) != NONE
    }

    fn slot(&self, number: DeviceNumber) -> u64 {
        self.slots.get(number.0 as usize).copied().unwrap_or(NONE)
    }

    fn place(&self, number: DeviceNumber) -> Option<Place> {
        Place::from_bits(self.slot(number))
    }

    /// Hands out those of `numbers` that there are, in this order, until one is lost: then its index.
    pub(crate) fn visit(&self, numbers: &[DeviceNumber], mut visit: impl FnMut(Recipient<'_>)) -> Result<(), usize> {
        if numbers.len() >= WILL_NEED_COUNT {
            self.heap.will_need(numbers.iter().step_by(WILL_NEED_STEP).filter_map(|number| self.place(*number)));
        }
        let fetch = |number: &DeviceNumber| {
            let stored = self.heap.stored(self.place(*number)?);
            stored.prefetch();
            Some(stored)
        };
        let mut ahead = [None; AHEAD_COUNT];
        ahead.iter_mut().zip(numbers).for_each(|(ahead, number)| *ahead = fetch(number));
        for (index, number) in numbers.iter().enumerate() {
            let next = numbers.get(index + AHEAD_COUNT).and_then(fetch);
            let recipient = match mem::replace(&mut ahead[index % AHEAD_COUNT], next) {
                Some(stored) => Some(self.read(*number, stored).map_err(|Lost| index)?),
                None => self.recipient(*number).map_err(|Lost| index)?,
            };
            if let Some(recipient) = recipient {
                visit(recipient);
            }
        }
        Ok(())
    }

    #[inline]
    fn read<'a>(&'a self, number: DeviceNumber, stored: Stored<'a>) -> Result<Recipient<'a>, Lost> {
        let record = stored.record(number.0).map_err(|_| Lost)?;
        record::decode(number, record, &self.names, self.is_proven(number)).ok_or(Lost)
    }

    /// The numbers of the devices that `is_meant`: a look at every device but those that are lost.
    pub(crate) fn find_all(&self, is_meant: impl Fn(&Recipient<'_>) -> bool) -> Vec<DeviceNumber> {
        let numbers = (0..self.slots.len() as u32).map(DeviceNumber);
        numbers
            .filter(|number| self.recipient(*number).is_ok_and(|found| found.is_some_and(|it| is_meant(&it))))
            .collect()
    }

    /// The numbers of the devices that are lost: a look at every device.
    pub(crate) fn lost(&self) -> Vec<DeviceNumber> {
        (0..self.slots.len() as u32).map(DeviceNumber).filter(|number| self.recipient(*number).is_err()).collect()
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn is_proven(&self, number: DeviceNumber) -> bool {
        self.proven.contains(number)
    }

    /// The proven of a chunk (see [`proven_place`]).
    pub(crate) fn proven_chunk(&self, chunk: u16) -> RoaringBitmap {
        self.proven.chunk(chunk)
    }

    pub(crate) fn set_proven_chunk(&mut self, chunk: u16, bits: &RoaringBitmap) {
        self.proven.set_chunk(chunk, bits);
    }

    pub(crate) fn proven_count(&self) -> u64 {
        self.proven.count()
    }

    /// What the heap takes.
    pub(crate) fn heap_usage(&self) -> Usage {
        self.heap.usage()
    }
}

/// The checkpoint.
impl DeviceTable {
    /// Before the first part is encoded.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.heap.retire();
    }

    /// After the checkpoint is durable: what no checkpoint speaks of any more, to be deleted without a lock. Also after one
    /// for which the disk was too full: rather devices that are read from their rows at the next start than one full of garbage.
    pub(crate) fn end_checkpoint(&mut self) -> Retired {
        self.heap.take_retired()
    }

    pub(crate) fn part_count(&self) -> u32 {
        self.slots.len().div_ceil(PART_COUNT) as u32
    }

    /// Adds a part to `out`: all names, then the slots, 8 bytes each, then how many subscriptions each has, 2 bytes.
    pub(crate) fn encode(&self, part: u32, out: &mut Vec<u8>) {
        let start = (part as usize * PART_COUNT).min(self.slots.len());
        let slots = &self.slots[start..self.slots.len().min(start + PART_COUNT)];
        self.names.encode(out);
        put_varint(out, slots.len() as u64);
        out.reserve(SLOT_BYTES * slots.len());
        // What is in memory only is lost at the next start, as far as the heap is concerned.
        let kept = |slot: &u64| if *slot == RESIDENT { LOST } else { *slot };
        slots.iter().map(kept).for_each(|slot| out.extend_from_slice(&slot.to_le_bytes()));
        let counts = &self.subscription_counts[start..][..slots.len()];
        counts.iter().for_each(|count| out.extend_from_slice(&count.to_le_bytes()));
    }

    /// What is to be synced before slots that were encoded are durable, without a lock.
    pub(crate) fn unsynced(&self) -> Unsynced {
        self.heap.unsynced()
    }

    /// Takes in a part of numbers below `number_end`. Whatever the bytes, it does not panic; after an error the table is of
    /// no use. A slot that points to nowhere is a lost device.
    pub(crate) fn decode(&mut self, part: u32, bytes: &[u8], number_end: u32) -> Result<(), DecodeError> {
        let mut rest = Unpack(bytes);
        self.names.decode(&mut rest).ok_or(DecodeError)?;
        let count = rest.varint().ok_or(DecodeError)?;
        let start = u64::from(part) * PART_COUNT as u64;
        let is_valid = count <= PART_COUNT as u64
            && start + count <= u64::from(number_end)
            && rest.0.len() as u64 == SLOT_BYTES as u64 * count
            && self.slots.len() as u64 <= start;
        if !is_valid {
            return Err(DecodeError);
        }
        let (slots, counts) = rest.0.split_at(8 * count as usize);
        self.slots.reserve_exact(start as usize + count as usize - self.slots.len());
        self.slots.resize(start as usize, NONE);
        for slot in slots.as_chunks().0 {
            let slot = u64::from_le_bytes(*slot);
            let slot = match Place::from_bits(slot) {
                Some(place) if self.heap.adopt(place) => slot,
                Some(_) => LOST,
                None if slot == NONE || slot == LOST => slot,
                None => return Err(DecodeError),
            };
            self.count += u64::from(slot != NONE);
            self.lost_count += u64::from(slot == LOST);
            self.slots.push(slot);
        }
        self.subscription_counts.resize(start as usize, 0);
        self.subscription_counts.extend(counts.as_chunks().0.iter().map(|count| u16::from_le_bytes(*count)));
        Ok(())
    }

    /// All parts were taken in: files that none of them speaks of are deleted.
    ///
    /// # Errors
    /// When a file cannot be deleted, or so much is lost that to read all rows at once is quicker.
    pub(crate) fn finish_decoding(&mut self) -> io::Result<()> {
        if self.lost_count > LOST_COUNT_MAX.max(self.count / 8) {
            return Err(io::Error::other(format!("{} of {} devices are not in the heap", self.lost_count, self.count)));
        }
        self.heap.remove_unused()
    }
}

/// Garbage and damage.
impl DeviceTable {
    /// Makes the room that [`DeviceTable::collect`] will want while nobody holds the lock. A full disk is met there again.
    pub(crate) fn prepare_collect(table: &RwLock<Self>) {
        let is_wanted = {
            let table = table.read();
            table.sweep.is_some() || !table.heap.untidy(table.room_for_copies(table.set_bytes)).is_empty()
        };
        if is_wanted {
            _ = Self::reserve(table, 2 * COLLECT_BYTES);
        }
    }

    /// Moves some records out of segments that are mostly garbage or out of order, and devices for which there was no
    /// room into the heap.
    pub(crate) fn collect(&mut self) -> Collected {
        self.is_full = false;
        let mut collected = Collected::default();
        for number in self.unsettled.split_off(self.unsettled.len().saturating_sub(SETTLE_COUNT)) {
            if let Some(device) = self.resident.get(&number).cloned() {
                self.set_reserving(number, *device);
                collected.count += u64::from(self.place(number).is_some());
            }
        }
        self.flush();
        collected.has_more = !self.unsettled.is_empty() && !self.is_full;
        let mut sweep = match self.sweep.take() {
            Some(sweep) => sweep,
            None => {
                let set_bytes = mem::take(&mut self.set_bytes);
                let mut segments = self.heap.untidy(self.room_for_copies(set_bytes));
                segments.truncate(SWEEP_SEGMENT_COUNT);
                if segments.is_empty() {
                    return collected;
                }
                Sweep { segments, next: 0 }
            }
        };
        if self.heap.reserve(2 * COLLECT_BYTES).is_err() {
            return Collected { has_more: false, ..collected }; // A full disk is told of by who must write.
        }
        let (end, mut bytes) = (self.slots.len().min(sweep.next + COLLECT_SLOT_COUNT), 0);
        while sweep.next < end && bytes < COLLECT_BYTES {
            let moved = self.move_out(sweep.next, &sweep.segments);
            collected.count += u64::from(moved > 0);
            bytes += moved;
            sweep.next += 1;
        }
        self.flush();
        if sweep.next < self.slots.len() {
            self.sweep = Some(sweep);
        }
        Collected { has_more: true, ..collected }
    }

    /// What may be there twice until a checkpoint has the new places: a part of all, and of what the disk has left. Nothing
    /// while many devices come: what is moved would lie between them.
    fn room_for_copies(&self, set_bytes: u64) -> u64 {
        const PART: u64 = 4;
        if set_bytes > COLLECT_BYTES {
            return 0;
        }
        let Usage { live_bytes, empty_bytes, .. } = self.heap.usage();
        let part = (live_bytes / PART).max(4 * u64::from(LIMITS.segment_bytes_max));
        let free = self.heap.free_bytes().unwrap_or_default();
        part.min((free + empty_bytes) / PART).saturating_sub(empty_bytes)
    }

    /// Moves the record of the slot if it is in one of the segments; tells its bytes.
    fn move_out(&mut self, index: usize, segments: &[u32]) -> u64 {
        let slot = self.slots[index];
        let Some(place) = Place::from_bits(slot).filter(|place| segments.binary_search(&place.segment()).is_ok())
        else {
            return 0;
        };
        self.record.clear();
        let moved = match self.heap.get(index as u32, place) {
            Ok(record) => {
                self.record.extend_from_slice(record);
                self.heap.append(index as u32, &self.record).map_or(LOST, Place::to_bits)
            }
            Err(_) => LOST,
        };
        self.put_slot(index, moved);
        self.record.len() as u64
    }
}

impl std::fmt::Debug for DeviceTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceTable").field("count", &self.count).field("heap", &self.heap).finish_non_exhaustive()
    }
}

/// Devices whose records are lost and wait to be written anew. At most 65 536; of more it is found out again when they
/// are read.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<BTreeSet<DeviceNumber>>);

const LOSS_COUNT_MAX: usize = 1 << 16;

impl Losses {
    /// Notes one, with a word in the log when it is the first that waits.
    pub(crate) fn note(&self, number: DeviceNumber) {
        let mut losses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if losses.is_empty() {
            warn!(device = number.0, "A device is read from its row, for its record is damaged");
        }
        if losses.len() < LOSS_COUNT_MAX {
            losses.insert(number);
        }
    }

    /// Takes some out.
    pub(crate) fn take(&self, count: usize) -> Vec<DeviceNumber> {
        let mut losses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| losses.pop_first()).take(count).collect()
    }
}
