//! The file of a checkpoint: a head, sections, an end.
//!
//! ```text
//! head     "tidings checkpoint" and a version, 20 bytes │ epoch, 8 letters │ change u64 │ checksum u64
//! section  kind u32 │ number u32 │ length u64 │ checksum of the bytes u64 │ checksum of these four u64 ║ the bytes
//! end      as a section: kind 0, number 0, in place of the length how many sections came before ║ reached u64
//! ```
//!
//! Numbers are little-endian. Checksums are XXH3. Their seed depends on the file and on the place in it, so a section of
//! another file or at another place is invalid. A file with any deviation is [`Unusable`], because it is only derived data.
//! A file is written beside its place, synced and moved there, and then the folder is synced. So the file under its name is
//! always complete, unless the disk damages it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tidings_types::Epoch;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::packed::Unpack;

const NAME: &str = "checkpoint";
const NAME_BESIDE: &str = "checkpoint.new";
/// The beginning of the file in all versions.
const MAGIC_OF_ALL: &[u8] = b"tidings checkpoint ";
const MAGIC: &[u8; 20] = b"tidings checkpoint 4";
const HEAD_BYTES: usize = MAGIC.len() + 8 + 8 + 8;
const SECTION_HEAD_BYTES: usize = 32;
const END_BYTES: u64 = 8;
/// The kind of the end.
const END: u32 = 0;

/// The store and the moment of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) epoch: Epoch,
    /// The file has all changes before this. It may have some of the later ones.
    pub(crate) change: u64,
}

/// The changes that a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// It has all changes before this.
    pub(crate) change: u64,
    /// It has no change from this on, not even in part.
    pub(crate) reached: u64,
}

/// The content of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    /// A part of the device table.
    Table(u32),
    /// A shard of the audience index.
    Index(u32),
}

impl Section {
    /// Its kind and number in the file.
    fn encode(self) -> (u32, u32) {
        match self {
            Self::Table(number) => (1, number),
            Self::Index(number) => (2, number),
        }
    }

    fn read(kind: u32, number: u32) -> Option<Self> {
        match kind {
            1 => Some(Self::Table(number)),
            2 => Some(Self::Index(number)),
            _ => None,
        }
    }
}

/// Why a checkpoint cannot be used. Then all rows are read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("there is no checkpoint")]
    Missing,
    #[error("the checkpoint cannot be read")]
    Io(#[source] io::Error),
    #[error("{0} of the checkpoint is damaged")]
    Damaged(&'static str),
    #[error("the checkpoint is of another version of the server")]
    OtherVersion,
    #[error("the checkpoint is of another store")]
    OtherStore,
    #[error("the changes from {from} to {to} are not all there")]
    Gap { from: u64, to: u64 },
    #[error("the checkpoint has changes up to {reached}, but the rows only up to {end}: they are an older copy")]
    Ahead { reached: u64, end: u64 },
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("the end"),
            _ => Self::Io(error),
        }
    }
}

fn seed(head: &Head, section_count: u64) -> u64 {
    let letters = head.epoch.as_str().bytes().fold(0, |sum: u64, letter| sum << 8 | u64::from(letter));
    letters ^ head.change.rotate_left(32) ^ section_count
}

/// Writes a file. If it is dropped before [`Writer::finish`], the file is removed.
pub(crate) struct Writer {
    folder: PathBuf,
    file: File,
    head: Head,
    section_count: u64,
    is_finished: bool,
}

impl Writer {
    pub(crate) fn create(folder: &Path, head: Head) -> io::Result<Self> {
        let mut file = File::create(folder.join(NAME_BESIDE))?;
        let mut bytes = [MAGIC, head.epoch.as_str().as_bytes(), &head.change.to_le_bytes()].concat();
        bytes.extend_from_slice(&xxh3_64_with_seed(&bytes, 0).to_le_bytes());
        file.write_all(&bytes)?;
        Ok(Self { folder: folder.to_owned(), file, head, section_count: 0, is_finished: false })
    }

    /// Adds a section. Calls `between` after each `chunk` bytes.
    pub(crate) fn section(
        &mut self,
        section: Section,
        bytes: &[u8],
        chunk: usize,
        mut between: impl FnMut(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let (kind, number) = section.encode();
        self.section_head(kind, number, bytes.len() as u64, bytes)?;
        self.section_count += 1;
        for chunk in bytes.chunks(chunk) {
            self.file.write_all(chunk)?;
            between(&self.file)?;
        }
        Ok(())
    }

    fn section_head(&mut self, kind: u32, number: u32, length: u64, bytes: &[u8]) -> io::Result<()> {
        let seed = seed(&self.head, self.section_count);
        let mut head = Vec::with_capacity(SECTION_HEAD_BYTES);
        head.extend_from_slice(&kind.to_le_bytes());
        head.extend_from_slice(&number.to_le_bytes());
        head.extend_from_slice(&length.to_le_bytes());
        head.extend_from_slice(&xxh3_64_with_seed(bytes, seed).to_le_bytes());
        head.extend_from_slice(&xxh3_64_with_seed(&head, seed).to_le_bytes());
        self.file.write_all(&head)
    }

    /// Ends the file, syncs it and moves it to its place. Returns its size in bytes. No section has a change from `reached`
    /// on.
    pub(crate) fn finish(mut self, reached: u64) -> io::Result<u64> {
        let bytes = reached.to_le_bytes();
        self.section_head(END, 0, self.section_count, &bytes)?;
        self.file.write_all(&bytes)?;
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        fs::rename(self.folder.join(NAME_BESIDE), self.folder.join(NAME))?;
        self.is_finished = true;
        File::open(&self.folder)?.sync_all()?;
        Ok(bytes)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(self.folder.join(NAME_BESIDE)); // If this fails, the next checkpoint replaces it.
        }
    }
}

/// A file with a valid head, valid heads of all sections, and a valid end.
pub(crate) struct Reader {
    file: File,
    head: Head,
    sections: Vec<Place>,
    reached: u64,
}

/// The place of a section.
struct Place {
    section: Section,
    start: u64,
    length: usize,
    checksum: u64,
}

impl Reader {
    /// Opens the file of the store with this epoch. Only [`Reader::read`] checks the bytes of the sections.
    pub(crate) fn open(folder: &Path, epoch: Epoch) -> Result<Self, Unusable> {
        let file = File::open(folder.join(NAME)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Unusable::Missing,
            _ => Unusable::Io(error),
        })?;
        let mut left = file.metadata()?.len();
        let head = read_head(&file)?;
        if head.epoch != epoch {
            return Err(Unusable::OtherStore);
        }
        let mut start = HEAD_BYTES as u64;
        left = left.saturating_sub(start);
        let mut sections = Vec::new();
        loop {
            let section_count = sections.len() as u64;
            let SectionHead { kind, number, length, checksum } =
                read_section_head(&file, start, seed(&head, section_count))?;
            start += SECTION_HEAD_BYTES as u64;
            left = left.saturating_sub(SECTION_HEAD_BYTES as u64);
            if kind == END {
                let mut bytes = [0; END_BYTES as usize];
                file.read_exact_at(&mut bytes, start)?;
                let is_right = xxh3_64_with_seed(&bytes, seed(&head, section_count)) == checksum;
                let is_whole = is_right && length == section_count && left == END_BYTES;
                let reached = u64::from_le_bytes(bytes);
                return if is_whole {
                    Ok(Self { file, head, sections, reached })
                } else {
                    Err(Unusable::Damaged("the end"))
                };
            }
            let section = Section::read(kind, number).ok_or(Unusable::Damaged("a section's kind"))?;
            left = left.checked_sub(length).ok_or(Unusable::Damaged("the end"))?;
            let length_of = usize::try_from(length).map_err(|_| Unusable::Damaged("the end"))?;
            sections.push(Place { section, start, length: length_of, checksum });
            start += length;
        }
    }

    pub(crate) fn extent(&self) -> Extent {
        Extent { change: self.head.change, reached: self.reached }
    }

    pub(crate) fn section(&self, index: usize) -> Option<Section> {
        Some(self.sections.get(index)?.section)
    }

    /// Reads the section with this index into `bytes` and replaces their content.
    pub(crate) fn read(&self, index: usize, bytes: &mut Vec<u8>) -> Result<(), Unusable> {
        let Place { start, length, checksum, .. } = self.sections[index];
        bytes.resize(length, 0);
        self.file.read_exact_at(bytes, start)?;
        let is_right = xxh3_64_with_seed(bytes, seed(&self.head, index as u64)) == checksum;
        if is_right { Ok(()) } else { Err(Unusable::Damaged("a section")) }
    }
}

/// Removes an unusable file. Otherwise it might seem usable later, when the rows have as many changes as it has.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed?;
            File::open(folder)?.sync_all()
        }
    }
}

/// Rewrites the store's file as if its writing had begun at `change`.
#[cfg(test)]
pub(crate) fn begin_at(folder: &Path, epoch: Epoch, change: u64) {
    let (reader, mut bytes) = (Reader::open(folder, epoch).unwrap(), Vec::new());
    let mut writer = Writer::create(folder, Head { epoch, change }).unwrap();
    for (index, section) in (0..).map_while(|index| Some((index, reader.section(index)?))) {
        reader.read(index, &mut bytes).unwrap();
        writer.section(section, &bytes, 1 << 20, |_| Ok(())).unwrap();
    }
    writer.finish(reader.extent().reached).unwrap();
}

fn read_head(file: &File) -> Result<Head, Unusable> {
    let mut bytes = [0; HEAD_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let damaged = || Unusable::Damaged("the head");
    let (head, checksum) = bytes.split_last_chunk::<8>().ok_or_else(damaged)?;
    if xxh3_64_with_seed(head, 0) != u64::from_le_bytes(*checksum) {
        return Err(damaged());
    }
    if head.starts_with(MAGIC_OF_ALL) && !head.starts_with(MAGIC) {
        return Err(Unusable::OtherVersion);
    }
    let read = || {
        let mut rest = Unpack(head.strip_prefix(MAGIC)?);
        let epoch = Epoch::try_from(std::str::from_utf8(rest.take(8)?).ok()?.to_owned()).ok()?;
        Some(Head { epoch, change: u64::from_le_bytes(rest.array()?) })
    };
    read().ok_or_else(damaged)
}

struct SectionHead {
    kind: u32,
    number: u32,
    length: u64,
    checksum: u64,
}

fn read_section_head(file: &File, start: u64, seed: u64) -> Result<SectionHead, Unusable> {
    let mut bytes = [0; SECTION_HEAD_BYTES];
    file.read_exact_at(&mut bytes, start)?;
    let read = || {
        let (head, checksum) = bytes.split_last_chunk::<8>()?;
        if xxh3_64_with_seed(head, seed) != u64::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = Unpack(head);
        Some(SectionHead {
            kind: u32::from_le_bytes(rest.array()?),
            number: u32::from_le_bytes(rest.array()?),
            length: u64::from_le_bytes(rest.array()?),
            checksum: u64::from_le_bytes(rest.array()?),
        })
    };
    read().ok_or(Unusable::Damaged("the head of a section"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: u64 = 77;
    const REACHED: u64 = 99;

    fn head() -> Head {
        Head { epoch: Epoch::from_random(42), change: HEAD }
    }

    fn write(folder: &Path, sections: &[(Section, Vec<u8>)]) {
        let mut writer = Writer::create(folder, head()).unwrap();
        for (section, bytes) in sections {
            writer.section(*section, bytes, 7, |_| Ok(())).unwrap();
        }
        writer.finish(REACHED).unwrap();
    }

    fn read_all(folder: &Path) -> Result<Vec<(Section, Vec<u8>)>, Unusable> {
        let reader = Reader::open(folder, head().epoch)?;
        assert_eq!(reader.extent(), Extent { change: HEAD, reached: REACHED });
        let mut bytes = vec![1; 3]; // As if another section had been read before.
        let read = |(index, section)| reader.read(index, &mut bytes).map(|()| (section, bytes.clone()));
        (0..).map_while(|index| Some((index, reader.section(index)?))).map(read).collect()
    }

    fn sections() -> Vec<(Section, Vec<u8>)> {
        vec![
            (Section::Table(0), b"slots of the table".to_vec()),
            (Section::Index(0), vec![]),
            (Section::Index(1), (0..=255).collect()),
        ]
    }

    #[test]
    fn sections_read_back_and_a_later_file_replaces_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read_all(folder.path()), Err(Unusable::Missing)));
        write(folder.path(), &[]);
        assert_eq!(read_all(folder.path()).unwrap(), []);
        write(folder.path(), &sections());
        assert_eq!(read_all(folder.path()).unwrap(), sections());
        let other = Reader::open(folder.path(), Epoch::from_random(43));
        assert!(matches!(other, Err(Unusable::OtherStore)));
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &sections());
        let path = folder.path().join(NAME);
        let mut bytes = fs::read(&path).unwrap();
        bytes[MAGIC.len() - 1] = b'2';
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(read_all(folder.path()), Err(Unusable::Damaged("the head"))), "one damaged byte is damage");
        let end = HEAD_BYTES - 8;
        let checksum = xxh3_64_with_seed(&bytes[..end], 0);
        bytes[end..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        assert!(matches!(read_all(folder.path()), Err(Unusable::OtherVersion)));
    }

    #[test]
    fn an_unfinished_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &sections());
        let mut half = Writer::create(folder.path(), head()).unwrap();
        half.section(Section::Table(0), b"half", 1, |_| Ok(())).unwrap();
        assert!(folder.path().join(NAME_BESIDE).exists());
        assert_eq!(read_all(folder.path()).unwrap(), sections());
        drop(half);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn any_changed_byte_and_any_other_length_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &sections());
        let path = folder.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << (place % 8);
            fs::write(&path, bytes).unwrap();
            assert!(read_all(folder.path()).is_err(), "byte {place}");
            fs::write(&path, &whole[..place]).unwrap();
            assert!(read_all(folder.path()).is_err(), "cut at {place}");
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert!(read_all(folder.path()).is_err(), "longer");
        fs::write(&path, whole).unwrap();
        assert_eq!(read_all(folder.path()).unwrap(), sections());
    }

    #[test]
    fn sections_that_changed_places_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let same = |number| (Section::Index(number), b"of one length".to_vec());
        write(folder.path(), &[same(0), same(0)]);
        let path = folder.path().join(NAME);
        let mut bytes = fs::read(&path).unwrap();
        let length = SECTION_HEAD_BYTES + same(0).1.len();
        let (first, second) = bytes[HEAD_BYTES..HEAD_BYTES + 2 * length].split_at_mut(length);
        first.swap_with_slice(second);
        fs::write(&path, bytes).unwrap();
        assert!(read_all(folder.path()).is_err());
    }

    proptest! {
        #[test]
        fn reading_any_bytes_ends(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..200_usize) {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), &sections());
            let path = folder.path().join(NAME);
            let mut file = fs::read(&path).unwrap();
            file.truncate(at);
            file.extend_from_slice(&bytes);
            fs::write(&path, file).unwrap();
            prop_assert!(read_all(folder.path()).is_err());
        }
    }
}
