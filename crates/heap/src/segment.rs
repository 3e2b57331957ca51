//! One file of the heap and its map.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, Mmap};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::place::{Place, SEGMENT_BYTES_MAX, SEGMENT_NUMBER_MAX};

pub(crate) const EXTENSION: &str = "heap";
/// Records that lie in order, on average: some lines of the processor's cache.
const RUN_BYTES_MIN: u64 = 1 << 10;
/// Behind a record, the next one of a run begins within so many bytes.
const GAP_BYTES_MAX: u32 = 512;
/// Zeros are written so many at a time where a file cannot be allocated at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) file: Arc<File>,
    /// The whole file.
    map: Mmap,
    /// Bytes of records that are not released.
    pub(crate) live_bytes: u32,
    pub(crate) order: Order,
    /// It held nothing live when [`Heap::retire`](crate::Heap::retire) was called.
    pub(crate) is_retired: bool,
    /// Bytes that a crash of the machine may lose; of a file that was found, all: nobody knows.
    pub(crate) unsynced_bytes: Arc<AtomicU64>,
}

impl Segment {
    /// Makes the file and allocates all of it; nothing is left of one that could not be.
    pub(crate) fn create(folder: &Path, number: u32, bytes: u32) -> io::Result<Self> {
        let path = path(folder, number);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let made = allocate(&file, bytes).and_then(|()| Self::over(file, number, 0));
        made.inspect_err(|_| _ = fs::remove_file(&path)) // What it was refused for is the error to tell.
    }

    /// `None`: it is no file that this version has made.
    pub(crate) fn open(folder: &Path, number: u32) -> io::Result<Option<Self>> {
        let file = File::open(path(folder, number))?;
        let bytes = file.metadata()?.len();
        if bytes == 0 || bytes > u64::from(SEGMENT_BYTES_MAX) {
            return Ok(None);
        }
        Self::over(file, number, bytes).map(Some)
    }

    #[expect(unsafe_code, reason = "a map is the one way to lend bytes of a file without a copy")]
    fn over(file: File, number: u32, unsynced_bytes: u64) -> io::Result<Self> {
        // SAFETY: the bytes that are lent out do not change while they are. Nobody else writes here: the heap's owner
        // has locked the folder against other processes. We write only through `Segment::write`, which takes `&mut self`
        // while what is lent borrows `&self`; of two heaps of one folder (one being replaced by the next) only the newer
        // is written, and only into files it made itself (`create_new`). No file is ever made shorter; a deleted one
        // stays as long as it is mapped.
        let map = unsafe { Mmap::map(&file)? };
        let unsynced_bytes = Arc::new(AtomicU64::new(unsynced_bytes));
        Ok(Self {
            number,
            file: Arc::new(file),
            map,
            live_bytes: 0,
            order: Order::default(),
            is_retired: false,
            unsynced_bytes,
        })
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u32 {
        self.map.len() as u32 // At most `SEGMENT_BYTES_MAX`.
    }

    #[inline]
    pub(crate) fn read(&self, place: Place) -> Option<&[u8]> {
        self.map.get(place.offset() as usize..place.end() as usize)
    }

    /// Seen in the map at once: both are the kernel's page cache.
    pub(crate) fn write(&mut self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        self.unsynced_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed); // Before: a part may be written.
        self.file.write_all_at(bytes, u64::from(offset))
    }

    /// Asks the kernel to read a part that will be looked at soon. A refusal costs time and nothing else.
    pub(crate) fn will_need(&self, start: u32, end: u32) {
        let end = end.min(self.bytes());
        if start < end {
            _ = self.map.advise_range(Advice::WillNeed, start as usize, (end - start) as usize);
        }
    }

    pub(crate) fn contains(&self, place: Place) -> bool {
        place.end() <= self.bytes()
    }

    /// Its records come in runs of keys so short that reading them in that order jumps about.
    pub(crate) fn is_scattered(&self) -> bool {
        u64::from(self.order.break_count) * RUN_BYTES_MIN > u64::from(self.bytes())
    }

    /// Fewer than half of its bytes are live.
    pub(crate) fn is_sparse(&self) -> bool {
        self.live_bytes < self.bytes() / 2
    }
}

/// How often records do not lie in the order of their keys.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Order {
    /// The key that was written last, or where the record that was found last ends.
    last: u32,
    break_count: u32,
}

impl Order {
    /// The next record that is written has this key.
    pub(crate) fn wrote(&mut self, key: u32) {
        self.break_count += u32::from(key < self.last);
        self.last = key;
    }

    /// The record with the next key is here. Between it and the one before may be some that are garbage by now.
    pub(crate) fn found(&mut self, place: Place) {
        let is_near = (self.last..=self.last.saturating_add(GAP_BYTES_MAX)).contains(&place.offset());
        self.break_count += u32::from(!is_near);
        self.last = place.end();
    }
}

fn allocate(file: &File, bytes: u32) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, u64::from(bytes)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let ends = (0..bytes).step_by(ZEROS.len());
            ends.into_iter().try_for_each(|start| {
                let count = ZEROS.len().min((bytes - start) as usize);
                file.write_all_at(&ZEROS[..count], u64::from(start))
            })
        }
        allocated => Ok(allocated?),
    }
}

pub(crate) fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:06x}.{EXTENSION}"))
}

/// The number of the segment in a file of this name.
pub(crate) fn number_of(path: &Path) -> Option<u32> {
    let is_ours = path.extension().is_some_and(|extension| extension == EXTENSION);
    let digits = path.file_stem()?.to_str().filter(|digits| is_ours && digits.len() == 6)?;
    u32::from_str_radix(digits, 16).ok().filter(|number| (1..=SEGMENT_NUMBER_MAX).contains(number))
}
