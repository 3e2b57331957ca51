//! The data of every device that sending needs, by device number. It is derived from the rows.
//!
//! In memory there are 8 bytes per number, the *slot*, and 2 for the count of its subscriptions. There are also a bit per
//! proven token, a cache of numbers by id (`ids`), and all names (`names`). The rest, about 90 bytes for a phone, is a record
//! of the heap (`record`), which is mapped and read without a copy. A record has the numbers of app, locale, country and time zone.
//!
//! ```text
//!                     ┌ 0: no such device
//!  slots[number] ─────┤ 1: kept in memory, in `resident`: the heap or the names had no room
//!                     ├ 2: lost; its row has it
//!                     └ place ─► heap: checksum over number and record │ app, locale, country, zone by number │ id, token
//! ```
//!
//! **Damage.** A damaged record is [`Lost`]: readers use the row instead, and the committer writes the record anew
//! (`devices/tend.rs`). [`Losses`] has the numbers of lost records.
//!
//! **Room.** The committer calls [`DeviceTable::reserve`] before a batch is durable, which fails when the disk is full. So
//! [`DeviceTable::set`] should not fail because of a full disk. If it does, the device stays in memory.
//!
//! **Checkpoint.** Slots and counts go into it in parts of 2^20 numbers, each with all names ([`DeviceTable::encode`]).
//! The heap's files stay and are synced ([`DeviceTable::unsynced`]). A checkpoint's names hold for its own slots only: later, a
//! number may belong to another name (`names`). If a checkpoint's slots point to older records, its replay sets the
//! newer ones again. Without a checkpoint the heap starts empty.
//!
//! **Order.** Records are read in the order of numbers, but written in the order in which devices came.
//! [`DeviceTable::collect`] moves them into the order of numbers: each record is written twice, and reads are several
//! times faster.
//!
//! **Garbage.** [`DeviceTable::collect`] also moves living records out of segments that are mostly garbage. The files
//! are deleted when a checkpoint that does not use them is durable ([`DeviceTable::begin_checkpoint`],
//! [`DeviceTable::take_retired`]).
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
use self::names::{NameNumbers, Names};
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
pub(crate) use self::names::NAME_KINDS;
pub(crate) use self::proven::proven_place;

const FOLDER: &str = "heap";
/// A small store takes one mebibyte. In tests this and the following constants are small, so that tests need several.
const LIMITS: Limits = match cfg!(test) {
    false => Limits { segment_bytes_min: 1 << 20, segment_bytes_max: 16 << 20 },
    true => Limits { segment_bytes_min: 64 << 10, segment_bytes_max: 128 << 10 },
};
/// Numbers in one part of a checkpoint.
const PART_COUNT: usize = if cfg!(test) { 32 } else { 1 << 20 };
/// The bytes per number in a checkpoint.
const SLOT_BYTES: usize = size_of::<u64>() + size_of::<u16>();
/// A record is prefetched this many records before it is read.
const AHEAD_COUNT: usize = 8;
/// For at least this many records, the kernel is told beforehand which pages are needed.
const WILL_NEED_COUNT: usize = 1024;
/// Only the place of every 64th record is passed to the kernel: the range between two places includes the others.
const WILL_NEED_STEP: usize = 64;
/// Slots that one call of [`DeviceTable::collect`] reads, and bytes that it moves: a few milliseconds.
const COLLECT_SLOT_COUNT: usize = if cfg!(test) { 64 } else { 1 << 16 };
const COLLECT_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 256 << 10 };
/// Records of which one call of [`DeviceTable::collect`] reads the names.
const NAMING_COUNT: usize = if cfg!(test) { 16 } else { 1024 };
/// Devices that one call writes into the heap because there was no room before.
const SETTLE_COUNT: usize = 1024;
/// Segments that one sweep over all slots empties.
const SWEEP_SEGMENT_COUNT: usize = 64;

/// This many devices of a checkpoint may be lost, even if the store has few devices.
const LOST_COUNT_MAX: u64 = 1000;

/// Slots that are not the place of a record. Other values below 2^40 do not occur.
const NONE: u64 = 0;
const RESIDENT: u64 = 1;
const LOST: u64 = 2;

pub(crate) struct DeviceTable {
    heap: Heap,
    slots: Vec<u64>,
    /// Per slot. The counts saturate.
    subscription_counts: Vec<u16>,
    /// Devices without a record.
    resident: HashMap<DeviceNumber, Box<Device>>,
    /// Numbers of resident devices for which the heap had no room. Some may not be resident any more.
    unsettled: Vec<DeviceNumber>,
    /// The disk had no room for a segment at the last attempt.
    is_full: bool,
    /// Devices of a checkpoint whose records do not exist, with those in `unread`.
    lost_count: u64,
    /// Devices that were resident at the checkpoint. Until they are read they are lost.
    unread: Vec<DeviceNumber>,
    names: Names,
    /// The next number of a pass that finds out which names are in use.
    naming: Option<usize>,
    /// The names of the records from a number on, read beforehand for this pass.
    named: Option<(usize, Vec<NameNumbers>)>,
    /// From [`DeviceTable::begin_checkpoint`] to [`DeviceTable::end_checkpoint`].
    is_in_checkpoint: bool,
    ids: Ids,
    count: u64,
    proven: Proven,
    sweep: Option<Sweep>,
    /// Bytes of devices that were set since segments were last chosen for a sweep.
    set_bytes: u64,
    /// A buffer for one record.
    record: Vec<u8>,
}

/// The record cannot be read. The device's row has the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

/// A part of a checkpoint is not what [`DeviceTable::encode`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a part of the device table is damaged")]
pub(crate) struct DecodeError;

/// The result of one call of [`DeviceTable::collect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Collected {
    /// Moved records. The last checkpoint still has their old places.
    pub(crate) count: u64,
    pub(crate) has_more: bool,
}

/// A pass over all slots that moves the living records out of these segments.
#[derive(Debug)]
struct Sweep {
    /// Ascending.
    segments: Vec<u32>,
    next: usize,
}

impl DeviceTable {
    /// An empty table. Deletes the old files in its folder.
    pub(crate) fn create(store: &Path) -> Result<Self, OpenError> {
        Ok(Self::over(Heap::create(&store.join(FOLDER), LIMITS)?))
    }

    /// A table to be filled by [`DeviceTable::decode`] and then [`DeviceTable::finish_decoding`].
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
            unread: Vec::new(),
            names: Names::default(),
            naming: None,
            named: None,
            is_in_checkpoint: false,
            ids: Ids::default(),
            count: 0,
            proven: Proven::default(),
            sweep: None,
            set_bytes: 0,
            record: Vec::new(),
        }
    }

    /// Makes room for this many bytes (see [`DeviceTable::room_for`]). Creates the files without the lock. Only the committer
    /// calls this.
    pub(crate) fn reserve(table: &RwLock<Self>, bytes: u64) -> Result<(), ReserveError> {
        loop {
            let Some(missing) = table.read().heap.missing(bytes) else { return Ok(()) };
            let made = missing.make()?;
            table.write().heap.add(made);
        }
    }

    /// The bytes to reserve for a device.
    pub(crate) fn room_for(device: &Device) -> u64 {
        record::room_for(device)
    }

    /// Reserves room and calls [`DeviceTable::set`]. If the disk is full, the device is kept in memory, so that sending to it
    /// works, until [`DeviceTable::collect`] finds room.
    pub(crate) fn set_reserving(&mut self, number: DeviceNumber, device: Device) {
        if !self.is_full {
            self.is_full = self.heap.reserve(Self::room_for(&device)).is_err();
        }
        self.set(number, device);
    }

    /// Adds or replaces a device for which room was reserved. Its count of subscriptions stays.
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

    /// Sets a slot and releases its old content.
    fn put_slot(&mut self, index: usize, slot: u64) {
        let old = mem::replace(&mut self.slots[index], slot);
        self.count = self.count + u64::from(slot != NONE) - u64::from(old != NONE);
        if old == RESIDENT {
            self.resident.remove(&DeviceNumber(index as u32));
        } else if let Some(place) = Place::from_bits(old) {
            self.heap.release(place);
        }
    }

    /// To be called at the end of a batch, under the same lock. Records that the disk does not take are lost.
    pub(crate) fn flush(&mut self) {
        if let Err(error) = self.heap.flush() {
            error!(error = chain(&error), "Devices are read from their rows because their records cannot be written");
        }
    }

    /// Counts one subscription more (1) or less (-1).
    pub(crate) fn count_subscription(&mut self, number: DeviceNumber, by: i16) {
        if let Some(count) = self.subscription_counts.get_mut(number.0 as usize) {
            *count = count.saturating_add_signed(by);
        }
    }

    pub(crate) fn subscription_count(&self, number: DeviceNumber) -> u32 {
        self.subscription_counts.get(number.0 as usize).copied().map_or(0, u32::from)
    }

    pub(crate) fn subscription_counts_mut(&mut self) -> &mut [u16] {
        &mut self.subscription_counts
    }

    /// The data of a device for sending; `None` if there is no such device.
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

    /// The number of the device with this id, if it is in the cache. If not, the device may exist nevertheless.
    pub(crate) fn number_of(&self, id: &DeviceId) -> Option<DeviceNumber> {
        let is_meant = |found: Recipient<'_>| found.id == id.as_str();
        let is_it = |number: &DeviceNumber| self.recipient(*number).is_ok_and(|found| found.is_some_and(is_meant));
        let mut found = self.ids.find(IdHash::of(id.as_str())).filter(is_it);
        found.next().filter(|_| found.next().is_none()) // If there are two, the row decides.
    }

    /// A new row gives this number to the device with this id.
    pub(crate) fn hint_at(&mut self, id: &DeviceId, number: DeviceNumber) {
        let hash = IdHash::of(id.as_str());
        self.ids.remove(hash);
        self.ids.insert(hash, number);
    }

    /// The number of devices, if it is too large for the cache. Then call [`DeviceTable::replace_hints`].
    pub(crate) fn outgrown_hints(&self) -> Option<u64> {
        self.ids.is_outgrown(self.count).then_some(self.count)
    }

    /// Replaces the cache. It is then filled again from the rows. The caller frees the old one.
    pub(crate) fn replace_hints(&mut self, hints: Ids) -> Ids {
        mem::replace(&mut self.ids, hints)
    }

    /// The id behind which the filling of the cache continues; `None`: it is complete.
    pub(crate) fn next_unhinted(&self) -> Option<Vec<u8>> {
        self.ids.next.clone()
    }

    /// Adds the content of rows to the cache. `next` is the last id that was read; `None`: there are no more.
    pub(crate) fn hint_at_rows(&mut self, numbers: &[(DeviceId, DeviceNumber)], next: Option<Vec<u8>>) {
        numbers.iter().for_each(|(id, number)| self.ids.insert(IdHash::of(id.as_str()), *number));
        self.ids.next = next;
    }

    /// The numbers of all devices.
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

    /// Visits the devices with these numbers that exist, in this order. If one is lost, the error is its index.
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

    /// The numbers of the devices for which `is_meant` is true. Reads every device. Lost ones are left out.
    pub(crate) fn find_all(&self, is_meant: impl Fn(&Recipient<'_>) -> bool) -> Vec<DeviceNumber> {
        let numbers = (0..self.slots.len() as u32).map(DeviceNumber);
        numbers
            .filter(|number| self.recipient(*number).is_ok_and(|found| found.is_some_and(|it| is_meant(&it))))
            .collect()
    }

    /// The numbers of the lost devices. Reads every device.
    pub(crate) fn lost(&self) -> Vec<DeviceNumber> {
        (0..self.slots.len() as u32).map(DeviceNumber).filter(|number| self.recipient(*number).is_err()).collect()
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn is_proven(&self, number: DeviceNumber) -> bool {
        self.proven.contains(number)
    }

    /// A chunk of the proven set (see [`proven_place`]).
    pub(crate) fn proven_chunk(&self, chunk: u16) -> RoaringBitmap {
        self.proven.chunk(chunk)
    }

    pub(crate) fn set_proven_chunk(&mut self, chunk: u16, bits: &RoaringBitmap) {
        self.proven.set_chunk(chunk, bits);
    }

    pub(crate) fn proven_count(&self) -> u64 {
        self.proven.count()
    }

    /// How many different names there are of each of the [`NAME_KINDS`].
    pub(crate) fn name_counts(&self) -> [u64; NAME_KINDS.len()] {
        self.names.counts()
    }

    /// Devices that have no record, and are in memory as a whole.
    pub(crate) fn resident_count(&self) -> u64 {
        self.resident.len() as u64
    }

    pub(crate) fn heap_usage(&self) -> Usage {
        self.heap.usage()
    }
}

/// The checkpoint.
impl DeviceTable {
    /// To be called before the first part is encoded.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.heap.retire();
        self.is_in_checkpoint = true;
    }

    /// To be called after the last part was encoded, or an earlier one failed.
    pub(crate) fn end_checkpoint(&mut self) {
        self.is_in_checkpoint = false;
    }

    /// To be called after the checkpoint is durable. Returns the files that no checkpoint uses any more, to be deleted without
    /// a lock. Also called after a checkpoint that failed because the disk is full: garbage must not fill the disk. Then the
    /// old checkpoint may use deleted files, and the next start reads such devices from their rows.
    pub(crate) fn take_retired(&mut self) -> Retired {
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
        slots.iter().for_each(|slot| out.extend_from_slice(&slot.to_le_bytes()));
        let counts = &self.subscription_counts[start..][..slots.len()];
        counts.iter().for_each(|count| out.extend_from_slice(&count.to_le_bytes()));
    }

    /// The data to sync, without a lock, before the encoded slots become durable.
    pub(crate) fn unsynced(&self) -> Unsynced {
        self.heap.unsynced()
    }

    /// Adds a part of numbers below `number_end`. No bytes make it panic. After an error the table is unusable. A slot with an
    /// invalid place is a lost device.
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
                None if slot == RESIDENT => {
                    self.unread.push(DeviceNumber(self.slots.len() as u32));
                    LOST
                }
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

    /// The devices whose rows are to be read and [`set`](DeviceTable::set_reserving), because their checkpoint has no record of
    /// them. To be called after the changes since the checkpoint.
    pub(crate) fn take_unread(&mut self) -> Vec<DeviceNumber> {
        let unread = mem::take(&mut self.unread);
        unread.into_iter().filter(|number| self.slot(*number) == LOST).collect()
    }

    /// To be called after all parts. Deletes files that no part uses.
    ///
    /// # Errors
    /// When a file cannot be deleted, or so many devices are lost that reading all rows at once is faster.
    pub(crate) fn finish_decoding(&mut self) -> io::Result<()> {
        if self.lost_count > LOST_COUNT_MAX.max(self.count / 8) {
            return Err(io::Error::other(format!("{} of {} devices are not in the heap", self.lost_count, self.count)));
        }
        self.heap.remove_unused()
    }
}

/// Garbage and damage.
impl DeviceTable {
    /// Makes the room that [`DeviceTable::collect`] will need, without the lock, and reads the records that it will ask for their
    /// names, so that readers do not wait for the disk. If the disk is full, `collect` notices it.
    pub(crate) fn prepare_collect(table: &RwLock<Self>) {
        let named = {
            let table = table.read();
            table.naming.map(|begin| (begin, table.names_from(begin)))
        };
        if named.is_some() {
            table.write().named = named;
        }
        let is_wanted = {
            let table = table.read();
            table.sweep.is_some() || !table.heap.untidy(table.room_for_copies(table.set_bytes)).is_empty()
        };
        if is_wanted {
            _ = Self::reserve(table, 2 * COLLECT_BYTES);
        }
    }

    /// Moves some records out of segments that are mostly garbage or out of order, and moves devices that had no room into
    /// the heap.
    pub(crate) fn collect(&mut self) -> Collected {
        self.is_full = false;
        let mut collected = Collected::default();
        let refused_count = self.names.refused_count;
        for number in self.unsettled.split_off(self.unsettled.len().saturating_sub(SETTLE_COUNT)) {
            if let Some(device) = self.resident.get(&number).cloned() {
                self.set_reserving(number, *device);
                collected.count += u64::from(self.place(number).is_some());
            }
        }
        self.flush();
        self.names.refused_count = refused_count; // These are not new.
        collected.has_more = self.find_unused_names() || !self.unsettled.is_empty() && !self.is_full;
        if self.naming.is_some() && self.sweep.is_none() {
            return collected; // Calls follow fast now, so `set_bytes` would not tell whether many devices register.
        }
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
            return Collected { has_more: false, ..collected }; // The next write reports the full disk.
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

    /// The names of the next records of a pass.
    fn names_from(&self, begin: usize) -> Vec<NameNumbers> {
        let slots = &self.slots[begin..self.slots.len().min(begin + NAMING_COUNT)];
        self.heap.will_need(slots.iter().step_by(WILL_NEED_STEP).filter_map(|slot| Place::from_bits(*slot)));
        let record = |(number, slot): (u32, &u64)| {
            // A lost record is written anew when it is noticed, with the names that there are then.
            self.heap.get(number, Place::from_bits(*slot)?).ok().and_then(record::name_numbers)
        };
        (begin as u32..).zip(slots).filter_map(record).collect()
    }

    /// Continues the pass that finds out which names are in use, or begins one if it is due. True when there is more to do now.
    fn find_unused_names(&mut self) -> bool {
        let Some(begin) = self.naming else {
            let is_due = self.names.is_pass_due();
            if is_due {
                self.names.begin_pass();
                self.naming = Some(0);
            }
            return is_due;
        };
        let named = self.named.take().filter(|(at, _)| *at == begin).map(|(_, named)| named);
        named.unwrap_or_else(|| self.names_from(begin)).into_iter().for_each(|numbers| self.names.see(numbers));
        let end = self.slots.len().min(begin + NAMING_COUNT);
        self.naming = Some(end);
        if end < self.slots.len() {
            return true;
        }
        if self.is_in_checkpoint {
            return false; // It ends when the checkpoint has all its parts.
        }
        self.naming = None;
        if self.names.end_pass() {
            self.unsettled.clear();
            self.unsettled.extend(self.resident.keys()); // Their names may get numbers now.
        }
        false
    }

    /// The bytes of records that may exist twice until a checkpoint has their new places: a part of all records, and of the
    /// free disk. 0 while many devices register, because moved records would lie between the new ones.
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

    /// Moves the record of the slot if it is in one of the segments, and returns its bytes.
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

/// Devices whose lost records are to be written anew. At most 65 536; further losses are noticed again when they are read.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<BTreeSet<DeviceNumber>>);

const LOSS_COUNT_MAX: usize = 1 << 16;

impl Losses {
    /// Notes a device. Logs it if it is the only one.
    pub(crate) fn note(&self, number: DeviceNumber) {
        let mut losses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if losses.is_empty() {
            warn!(device = number.0, "A device is read from its row because its record is damaged");
        }
        if losses.len() < LOSS_COUNT_MAX {
            losses.insert(number);
        }
    }

    /// Takes up to `count` devices.
    pub(crate) fn take(&self, count: usize) -> Vec<DeviceNumber> {
        let mut losses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| losses.pop_first()).take(count).collect()
    }
}
