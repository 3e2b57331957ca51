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
/// A segment whose runs of ordered records are shorter than this on average is scattered. It is some lines of the
/// processor's cache.
const RUN_BYTES_MIN: u64 = 1 << 10;
/// The largest gap between two records of a run.
const GAP_BYTES_MAX: u32 = 512;
/// Written again and again where the file system cannot allocate a file.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) file: Arc<File>,
    /// The whole file.
    map: Mmap,
    /// Bytes of records that are not released.
    pub(crate) live_bytes: u32,
    pub(crate) order: Order,
    /// It had no live record when [`Heap::retire`](crate::Heap::retire) was called.
    pub(crate) is_retired: bool,
    /// Bytes that a crash of the machine may lose. For a file that existed before, this is the whole file.
    pub(crate) unsynced_bytes: Arc<AtomicU64>,
}

impl Segment {
    /// Makes the file and allocates all of it. If that fails, the file is removed.
    pub(crate) fn create(folder: &Path, number: u32, bytes: u32) -> io::Result<Self> {
        let path = path(folder, number);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let made = allocate(&file, bytes).and_then(|()| Self::over(file, number, 0));
        made.inspect_err(|_| _ = fs::remove_file(&path)) // The first error is the one to report.
    }

    /// `None` for a size that this version never makes.
    pub(crate) fn open(folder: &Path, number: u32) -> io::Result<Option<Self>> {
        let file = File::open(path(folder, number))?;
        let bytes = file.metadata()?.len();
        if bytes == 0 || bytes > u64::from(SEGMENT_BYTES_MAX) {
            return Ok(None);
        }
        Self::over(file, number, bytes).map(Some)
    }

    #[expect(unsafe_code, reason = "only a map can lend bytes of a file without a copy")]
    fn over(file: File, number: u32, unsynced_bytes: u64) -> io::Result<Self> {
        // SAFETY: bytes do not change while they are borrowed, for these reasons. No other process writes here: the
        // heap's owner has locked the folder. This process writes only through `Segment::write`, which takes `&mut self`,
        // while borrowed bytes borrow `&self`. If two heaps use one folder (a new one replaces the old one), only the
        // newer heap writes, and only into files that it has made itself (`create_new`). No file is ever truncated. A
        // deleted file remains as long as it is mapped.
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

    pub(crate) fn bytes(&self) -> u32 {
        self.map.len() as u32 // At most `SEGMENT_BYTES_MAX`.
    }

    #[inline]
    pub(crate) fn read(&self, place: Place) -> Option<&[u8]> {
        self.map.get(place.offset() as usize..place.end() as usize)
    }

    /// The map shows the bytes at once, because both use the kernel's page cache.
    pub(crate) fn write(&mut self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        // Counted before writing, because a write that fails may have written a part.
        self.unsynced_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, u64::from(offset))
    }

    /// Asks the kernel to read a part ahead. If the kernel refuses, reading takes longer.
    pub(crate) fn will_need(&self, start: u32, end: u32) {
        let end = end.min(self.bytes());
        if start < end {
            _ = self.map.advise_range(Advice::WillNeed, start as usize, (end - start) as usize);
        }
    }

    pub(crate) fn contains(&self, place: Place) -> bool {
        place.end() <= self.bytes()
    }

    /// Whether its runs of ordered records are so short that reading in the order of keys is slow.
    pub(crate) fn is_scattered(&self) -> bool {
        u64::from(self.order.break_count) * RUN_BYTES_MIN > u64::from(self.bytes())
    }

    /// Whether fewer than half of its bytes are live.
    pub(crate) fn is_sparse(&self) -> bool {
        self.live_bytes < self.bytes() / 2
    }
}

/// Counts how often a record is not stored in the order of keys.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Order {
    /// While writing: the last key. While adopting: the end of the last record.
    last: u32,
    break_count: u32,
}

impl Order {
    /// Notes that the next written record has this key.
    pub(crate) fn wrote(&mut self, key: u32) {
        self.break_count += u32::from(key < self.last);
        self.last = key;
    }

    /// Notes where the record with the next key is. Garbage may be between it and the record before.
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

/// The number of the segment in a file with this name. `None` for other files.
pub(crate) fn number_of(path: &Path) -> Option<u32> {
    let is_ours = path.extension().is_some_and(|extension| extension == EXTENSION);
    let digits = path.file_stem()?.to_str().filter(|digits| is_ours && digits.len() == 6)?;
    u32::from_str_radix(digits, 16).ok().filter(|number| (1..=SEGMENT_NUMBER_MAX).contains(number))
}
