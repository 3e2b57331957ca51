//! All segments of a heap: where records are written, which records are live, and which segments can be deleted.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::fstatvfs;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Damaged, NoRoom, OpenError, ReserveError};
use crate::place::{CHECKSUM_BYTES, Place, RECORD_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_NUMBER_MAX};
use crate::prefetch;
use crate::segment::{self, Segment};

/// Bytes that are collected before they are written.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// The most bytes that stay unused at the end of a segment because the next record does not fit.
const LOST_BYTES_MAX: u32 = (RECORD_BYTES_MAX + CHECKSUM_BYTES) as u32;
/// A new segment has this part of the size of all segments, within the limits, so that a small heap takes little.
const GROWTH_PART: u64 = 4;
/// The index of a deleted segment.
const GONE: u32 = u32::MAX;
/// Scattered records are moved when they are this part of the live bytes.
const SCATTERED_PART: u64 = 16;

/// The size of segments, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The size of the first segments; at least 64 KiB.
    pub segment_bytes_min: u32,
    /// The size of segments of a large heap; at most 64 MiB.
    pub segment_bytes_max: u32,
}

/// The sizes of a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of all its files.
    pub disk_bytes: u64,
    /// Bytes of records that are not released.
    pub live_bytes: u64,
    /// Of these, bytes in full segments whose records are out of order.
    pub scattered_bytes: u64,
    /// Bytes of full files without live records: they wait for [`Heap::take_retired`].
    pub empty_bytes: u64,
    /// The number of files.
    pub segment_count: u64,
}

/// The segment that is being written.
struct Tail {
    index: usize,
    /// Bytes in the file. The bytes of `pending` follow.
    written: u32,
}

/// Records in segments; see the crate's documentation. There is one writer (`&mut`) or many readers.
pub struct Heap {
    folder: PathBuf,
    folder_file: Arc<File>,
    limits: Limits,
    /// By number. Segments after the tail are reserved. Segments before it, or all if there is no tail, are sealed.
    segments: Vec<Segment>,
    /// The index in `segments` for each segment number, counted from the first segment's number. So a record is found in
    /// one step. Deleted numbers have an entry too: 4 bytes for each segment since the oldest one that still exists.
    indexes: Vec<u32>,
    next_number: u32,
    tail: Option<Tail>,
    /// Records that are not in the file yet. At most 1 MiB and a record.
    pending: Vec<u8>,
    /// Why pending records were lost.
    failure: Option<io::Error>,
}

impl Heap {
    /// Makes an empty heap in `folder`, which is created if necessary. Existing segments are deleted; another heap that
    /// has them open can still read them.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn create(folder: &Path, limits: Limits) -> Result<Self, OpenError> {
        let mut heap = Self::open(folder, limits)?;
        heap.remove_unused().map_err(|source| OpenError { path: folder.to_owned(), source })?;
        Ok(heap)
    }

    /// Opens the segments in `folder`, which is created if necessary. No record is live at first: call [`Heap::adopt`] for
    /// each live record, then [`Heap::remove_unused`].
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(folder: &Path, limits: Limits) -> Result<Self, OpenError> {
        let opened = (|| {
            fs::create_dir_all(folder)?;
            let mut segments = Vec::new();
            let mut next_number = 1;
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                let Some(number) = segment::number_of(&path) else { continue };
                next_number = next_number.max(number + 1);
                match Segment::open(folder, number)? {
                    Some(segment) => segments.push(segment),
                    None => fs::remove_file(path)?,
                }
            }
            segments.sort_unstable_by_key(|segment| segment.number);
            Ok((Arc::new(File::open(folder)?), segments, next_number))
        })();
        let (folder_file, segments, next_number) =
            opened.map_err(|source| OpenError { path: folder.to_owned(), source })?;
        let segment_bytes_min = limits.segment_bytes_min.clamp(64 << 10, SEGMENT_BYTES_MAX);
        let segment_bytes_max = limits.segment_bytes_max.clamp(segment_bytes_min, SEGMENT_BYTES_MAX);
        let (limits, pending) = (Limits { segment_bytes_min, segment_bytes_max }, Vec::new());
        let folder = folder.to_owned();
        let indexes = Vec::new();
        let mut heap =
            Self { folder, folder_file, limits, segments, indexes, next_number, tail: None, pending, failure: None };
        heap.find_indexes();
        Ok(heap)
    }

    /// Adds the indexes of segments that have none yet.
    fn find_indexes(&mut self) {
        let first = self.segments.first().map_or(0, |segment| segment.number);
        let known = self.indexes.last().map_or(0, |last| *last as usize + 1);
        for (index, segment) in self.segments.iter().enumerate().skip(known) {
            self.indexes.resize((segment.number - first) as usize, GONE);
            self.indexes.push(index as u32);
        }
    }

    /// Counts the record at `place`, which was written before the heap was opened, as live. Returns false, and counts
    /// nothing, if no file has the record any more. [`Heap::get`] checks its bytes. Call it in the order of keys, so
    /// that scattered records are found again.
    pub fn adopt(&mut self, place: Place) -> bool {
        let Some(segment) = self.segment_mut(place.segment()).filter(|segment| segment.contains(place)) else {
            return false;
        };
        segment.live_bytes = segment.live_bytes.saturating_add(place.bytes());
        segment.order.found(place);
        true
    }

    /// Deletes the segments without an adopted record.
    ///
    /// # Errors
    /// When a file cannot be deleted. The other files are still deleted.
    pub fn remove_unused(&mut self) -> io::Result<()> {
        self.retire();
        self.take_retired().delete()
    }

    /// Makes sure that records of `bytes` together, by [`stored_bytes`](crate::stored_bytes), can be appended. This waits
    /// for the disk. Use [`Heap::missing`] to make the segments without a lock on the heap.
    ///
    /// # Errors
    /// When the disk has no room for a segment, or all numbers are used. Room that was reserved before stays.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), ReserveError> {
        while let Some(missing) = self.missing(bytes) {
            self.add(missing.make()?);
        }
        Ok(())
    }

    /// The next segment that must be added before records of `bytes` together can be appended. `None` if there is enough
    /// room.
    pub fn missing(&self, bytes: u64) -> Option<MissingSegment> {
        if self.room() >= bytes {
            return None;
        }
        let Limits { segment_bytes_min, segment_bytes_max } = self.limits;
        let part =
            (self.usage().disk_bytes / GROWTH_PART).clamp(u64::from(segment_bytes_min), u64::from(segment_bytes_max));
        let wanted = (part as u32).next_power_of_two().min(segment_bytes_max);
        Some(MissingSegment {
            folder: self.folder.clone(),
            number: self.next_number,
            wanted,
            enough: segment_bytes_min,
        })
    }

    /// Adds the segment from [`Heap::missing`].
    ///
    /// # Panics
    /// When another segment was added since [`Heap::missing`].
    pub fn add(&mut self, NewSegment(segment): NewSegment) {
        assert_eq!(segment.number, self.next_number, "another segment was added since `missing`");
        self.next_number += 1;
        self.segments.push(segment);
        self.find_indexes();
        if self.tail.is_none() {
            self.tail = Some(Tail { index: self.segments.len() - 1, written: 0 });
        }
    }

    /// How many bytes of records can surely be appended.
    fn room(&self) -> u64 {
        let (written, reserved) = match &self.tail {
            Some(tail) => (self.end(tail), &self.segments[tail.index..]),
            None => (0, &[][..]),
        };
        let usable = |segment: &Segment| u64::from(segment.bytes().saturating_sub(LOST_BYTES_MAX));
        let all: u64 = reserved.iter().map(usable).sum();
        // The usable part of the tail may be full already.
        let tail = reserved.first().map_or(0, usable);
        all - tail + tail.saturating_sub(u64::from(written))
    }

    /// The offset of the tail's next record.
    fn end(&self, tail: &Tail) -> u32 {
        tail.written + self.pending.len() as u32
    }

    /// Appends a record; `key` is part of its checksum. The record can be read at once. [`Heap::flush`] hands it to the
    /// operating system.
    ///
    /// # Errors
    /// When no room was reserved for the record, or it is too long.
    pub fn append(&mut self, key: u32, record: &[u8]) -> Result<Place, NoRoom> {
        let bytes = CHECKSUM_BYTES + record.len();
        let no_room = NoRoom { bytes: record.len() };
        if record.len() > RECORD_BYTES_MAX {
            return Err(no_room);
        }
        loop {
            let tail = self.tail.as_ref().ok_or(no_room)?;
            let (index, offset) = (tail.index, self.end(tail));
            if offset as usize + bytes <= self.segments[index].bytes() as usize {
                self.pending.extend_from_slice(&checksum(key, record).to_le_bytes());
                self.pending.extend_from_slice(record);
                if self.pending.len() >= PENDING_BYTES_MAX {
                    self.write_pending();
                }
                let segment = &mut self.segments[index];
                segment.live_bytes += bytes as u32;
                segment.order.wrote(key);
                return Ok(Place::new(segment.number, offset, bytes));
            }
            if index + 1 == self.segments.len() {
                return Err(no_room);
            }
            self.write_pending();
            self.tail = Some(Tail { index: index + 1, written: 0 });
        }
    }

    /// Hands the appended records to the operating system, so that they survive the end of this process. Call it at the
    /// end of a batch. Until then at most 1 MiB and a record wait in memory.
    ///
    /// # Errors
    /// When a write fails now, or has failed since the last call. The records of that write are damaged.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write_pending();
        self.failure.take().map_or(Ok(()), Err)
    }

    fn write_pending(&mut self) {
        let Some(tail) = self.tail.as_mut().filter(|_| !self.pending.is_empty()) else { return };
        if let Err(error) = self.segments[tail.index].write(tail.written, &self.pending) {
            self.failure.get_or_insert(error);
        }
        tail.written += self.pending.len() as u32;
        self.pending.clear();
    }

    /// The files to sync for everything that is flushed by now. Sync them without the owner's lock.
    pub fn unsynced(&self) -> Unsynced {
        let of = |segment: &Segment| (segment.file.clone(), segment.unsynced_bytes.clone());
        Unsynced { files: self.segments.iter().map(of).collect(), folder: self.folder_file.clone() }
    }

    /// The record with `key` at `place`.
    ///
    /// # Errors
    /// When the place does not have this record as it was written.
    pub fn get(&self, key: u32, place: Place) -> Result<&[u8], Damaged> {
        self.stored(place).record(key)
    }

    /// The bytes at `place`, not checked yet.
    #[inline]
    pub fn stored(&self, place: Place) -> Stored<'_> {
        let Some(index) = self.index(place.segment()) else { return Stored::default() };
        let waits = self.tail.as_ref().filter(|tail| tail.index == index && place.offset() >= tail.written);
        let bytes = match waits {
            Some(tail) => {
                self.pending.get((place.offset() - tail.written) as usize..(place.end() - tail.written) as usize)
            }
            None => self.segments[index].read(place),
        };
        Stored(bytes.unwrap_or_default())
    }

    /// Tells the kernel that these records will be read soon, in this order. Only dense runs are announced; single pages
    /// are read when they are needed. A sample of the places is enough, such as one in 64.
    pub fn will_need(&self, places: impl Iterator<Item = Place>) {
        const GAP_BYTES: u32 = 32 << 10;
        const RUN_BYTES_MIN: u32 = 128 << 10;
        let tell = |(number, start, end): (u32, u32, u32)| {
            if let Some(index) = self.index(number).filter(|_| end - start >= RUN_BYTES_MIN) {
                self.segments[index].will_need(start, end);
            }
        };
        let mut run = (0, 0, 0_u32);
        for place in places {
            let (number, start, end) = run;
            if place.segment() == number && (start..=end.saturating_add(GAP_BYTES)).contains(&place.offset()) {
                run.2 = end.max(place.end());
            } else {
                tell(run);
                run = (place.segment(), place.offset(), place.end());
            }
        }
        tell(run);
    }

    /// Makes the record at `place` garbage. The owner must forget the place.
    pub fn release(&mut self, place: Place) {
        if let Some(segment) = self.segment_mut(place.segment()) {
            segment.live_bytes = segment.live_bytes.saturating_sub(place.bytes());
        }
    }

    /// The numbers of the sealed segments whose records should be moved, in the order of keys. The numbers are ascending.
    /// These are the sparse segments, with less than half of their bytes live. If at least 1/16 of the live bytes are
    /// scattered, the scattered segments are added, up to `room` live bytes: moved records need space twice until the
    /// segments are deleted.
    pub fn untidy(&self, room: u64) -> Vec<u32> {
        let usage = self.usage();
        let is_worth_it = usage.scattered_bytes >= usage.live_bytes / SCATTERED_PART;
        let mut left = if is_worth_it { room } else { 0 };
        let is_untidy = |segment: &&Segment| {
            let live_bytes = u64::from(segment.live_bytes);
            let fits = segment.is_scattered() && live_bytes <= left;
            left -= if fits { live_bytes } else { 0 };
            live_bytes > 0 && (fits || segment.is_sparse())
        };
        self.sealed().iter().filter(is_untidy).map(|segment| segment.number).collect()
    }

    /// The free bytes of the disk.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let disk = fstatvfs(&self.folder_file)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn sealed(&self) -> &[Segment] {
        &self.segments[..self.tail.as_ref().map_or(self.segments.len(), |tail| tail.index)]
    }

    /// Marks the sealed segments without a live record. No new place can point into them.
    pub fn retire(&mut self) {
        let sealed_count = self.sealed().len();
        for segment in &mut self.segments[..sealed_count] {
            segment.is_retired = segment.live_bytes == 0;
        }
    }

    /// Takes out the segments that the last [`Heap::retire`] marked. Places in them are damaged from now on.
    pub fn take_retired(&mut self) -> Retired {
        let mut segments = Vec::new();
        let mut index = 0;
        while index < self.segments.len() {
            if self.segments[index].is_retired && self.segments[index].live_bytes == 0 {
                segments.push(self.segments.remove(index));
                if let Some(tail) = &mut self.tail {
                    tail.index -= 1; // The tail is after all sealed segments.
                }
            } else {
                index += 1;
            }
        }
        self.indexes.clear();
        self.find_indexes();
        Retired { folder: self.folder.clone(), segments }
    }

    /// The sizes of the heap.
    pub fn usage(&self) -> Usage {
        let sealed_count = self.sealed().len();
        self.segments.iter().enumerate().fold(Usage::default(), |sum, (index, segment)| {
            let live_bytes = u64::from(segment.live_bytes);
            let is_sealed = index < sealed_count;
            let (is_scattered, is_empty) = (is_sealed && segment.is_scattered(), is_sealed && live_bytes == 0);
            let file_bytes = u64::from(segment.bytes());
            Usage {
                disk_bytes: sum.disk_bytes + file_bytes,
                live_bytes: sum.live_bytes + live_bytes,
                scattered_bytes: sum.scattered_bytes + if is_scattered { live_bytes } else { 0 },
                empty_bytes: sum.empty_bytes + if is_empty { file_bytes } else { 0 },
                segment_count: sum.segment_count + 1,
            }
        })
    }

    #[inline]
    fn index(&self, number: u32) -> Option<usize> {
        let first = self.segments.first()?.number;
        let index = *self.indexes.get(number.checked_sub(first)? as usize)?;
        (index != GONE).then_some(index as usize)
    }

    /// Replaces the tail's file, to simulate a disk that fails.
    #[cfg(test)]
    pub(crate) fn set_file(&mut self, file: File) {
        let tail = self.tail.as_ref().unwrap();
        self.segments[tail.index].file = Arc::new(file);
    }

    fn segment_mut(&mut self, number: u32) -> Option<&mut Segment> {
        self.index(number).map(|index| &mut self.segments[index])
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("folder", &self.folder).field("usage", &self.usage()).finish_non_exhaustive()
    }
}

/// The bytes at a place, not checked yet.
#[derive(Clone, Copy, Default)]
pub struct Stored<'a>(&'a [u8]);

impl<'a> Stored<'a> {
    /// Asks the processor to fetch the bytes from memory, and does not wait. To read many records, prefetch some records
    /// ahead.
    #[inline]
    pub fn prefetch(self) {
        prefetch::bytes(self.0);
    }

    /// The record with `key`.
    ///
    /// # Errors
    /// When the bytes are not this record as it was written.
    #[inline]
    pub fn record(self, key: u32) -> Result<&'a [u8], Damaged> {
        let (sum, record) = self.0.split_first_chunk().ok_or(Damaged)?;
        (u64::from_le_bytes(*sum) == checksum(key, record)).then_some(record).ok_or(Damaged)
    }
}

#[inline]
fn checksum(key: u32, record: &[u8]) -> u64 {
    xxh3_64_with_seed(record, u64::from(key))
}

/// A segment that a heap needs.
#[derive(Debug)]
#[must_use = "the file is not made yet"]
pub struct MissingSegment {
    folder: PathBuf,
    number: u32,
    /// The size of the file.
    wanted: u32,
    /// The size if the disk has no room for `wanted`.
    enough: u32,
}

impl MissingSegment {
    /// Makes the file and allocates all of it, which may take some tens of milliseconds. Call it without the owner's lock.
    ///
    /// # Errors
    /// When the disk has no room for it, or all numbers are used.
    pub fn make(self) -> Result<NewSegment, ReserveError> {
        let create = |bytes| match self.number {
            0..=SEGMENT_NUMBER_MAX => Segment::create(&self.folder, self.number, bytes),
            _ => Err(io::Error::other("all segment numbers are used")),
        };
        let created = match create(self.wanted) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && self.wanted > self.enough => {
                create(self.enough)
            }
            created => created,
        };
        created.map(NewSegment).map_err(|source| ReserveError { bytes: self.wanted, source })
    }
}

/// A segment that is not part of a heap yet. If it is dropped, its file is found when the heap is opened again.
#[must_use = "the heap does not have it yet"]
pub struct NewSegment(Segment);

/// Files to be synced.
#[derive(Debug)]
#[must_use = "the files are not synced yet"]
pub struct Unsynced {
    /// Each file with the bytes that were written since its last sync.
    files: Vec<(Arc<File>, Arc<AtomicU64>)>,
    folder: Arc<File>,
}

impl Unsynced {
    /// Syncs the files one after the other, and blocks until all are on the disk. After each file that was not synced yet,
    /// `between` gets its number of bytes. It may wait, to let others use the disk.
    ///
    /// # Errors
    /// When a sync fails, or `between` returns an error.
    pub fn sync(&self, mut between: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
        for (file, unsynced_bytes) in &self.files {
            let bytes = unsynced_bytes.swap(0, Ordering::Relaxed);
            if bytes > 0 {
                file.sync_data().inspect_err(|_| _ = unsynced_bytes.fetch_add(bytes, Ordering::Relaxed))?;
                between(bytes)?;
            }
        }
        self.folder.sync_data()
    }
}

/// Segments that were taken out of a heap. Their files exist until [`Retired::delete`].
#[must_use = "the files still exist"]
pub struct Retired {
    folder: PathBuf,
    segments: Vec<Segment>,
}

impl Retired {
    /// Deletes the files, which takes a while. Call it without the owner's lock.
    ///
    /// # Errors
    /// When a file cannot be deleted. [`Heap::open`] finds it again.
    pub fn delete(self) -> io::Result<()> {
        let delete = |segment: &Segment| fs::remove_file(segment::path(&self.folder, segment.number));
        self.segments.iter().map(delete).fold(Ok(()), Result::and)
    }

    /// Whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}
