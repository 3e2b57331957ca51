//! Reading fjall's log files before fjall does, because fjall cuts off a log at the first place that it cannot read.
//!
//! A log file is a sequence of batches, followed by zeros or nothing:
//!
//! ```text
//! start 1 │ items u32 │ sequence number u64
//! item  2 │ kind u8 │ compression u8 │ keyspace u64 │ key length u16 │ value length u32 │ stored length u32 ║ key, value
//! clear 4 │ keyspace u64
//! end   3 │ XXH3 of all items and clears u64 │ "FJL" 3
//! ```
//!
//! A process that is killed leaves at most the beginning of one batch at the end, which was not acknowledged. If an end
//! marker follows the place where reading stops, a whole batch was written there, and the file is damaged.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3Default;

use super::error::EngineError;
use super::table::STATE_KEY;

/// The end of a batch.
const MAGIC: &[u8] = &[b'F', b'J', b'L', 3];
const ITEM_HEAD_BYTES: usize = 21;
const END_BYTES: usize = 13;
/// Bytes after the last whole batch that are searched for an end marker: more than a batch has.
const REST_BYTES_MAX: u64 = 16 << 20;
/// The search ends at a page of zeros.
const PAGE_BYTES: usize = 4 << 10;

/// The result of reading a log file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LogFile {
    pub(super) batch_count: u64,
    /// Up to the end of the last whole batch.
    pub(super) bytes: u64,
    /// The numbers of the first and the last commit.
    pub(super) commits: Option<(u64, u64)>,
    /// The offset at which damage begins.
    pub(super) damaged_at: Option<u64>,
}

pub(super) fn log_name(number: u64) -> String {
    format!("{number}.jnl")
}

/// The log files of the database at `place`, the newest last.
pub(super) fn numbered_log_files(place: &Path) -> Result<Vec<(u64, PathBuf)>, EngineError> {
    let mut files = Vec::new();
    for file in fs::read_dir(place)? {
        let path = file?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        files.extend(number.map(|number| (number, path)));
    }
    files.sort_unstable();
    Ok(files)
}

/// Reads a log file. `meta` is the keyspace of the state row, which has the number of the commit.
pub(super) fn read(path: &Path, meta: Option<u64>) -> io::Result<LogFile> {
    let mut batches = Batches { input: BufReader::new(File::open(path)?), meta, item: Vec::new(), commit: None };
    let (mut log, mut end) = (LogFile::default(), 0);
    while let Some(bytes) = batches.next()? {
        end += bytes;
        log.batch_count += 1;
        if let Some(commit) = batches.commit.take() {
            log.commits = Some((log.commits.map_or(commit, |(first, _)| first), commit));
        }
    }
    let mut input = batches.input.into_inner();
    input.seek(SeekFrom::Start(end))?;
    let rest = read_until_zeros(BufReader::new(input.take(REST_BYTES_MAX)))?;
    log.bytes = end;
    log.damaged_at = has_end_marker(&rest).then_some(end);
    Ok(log)
}

/// Reads until a page of zeros, or the end.
fn read_until_zeros(mut input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let start = bytes.len();
        input.by_ref().take(PAGE_BYTES as u64).read_to_end(&mut bytes)?;
        if bytes[start..] == [0; PAGE_BYTES] || bytes.len() - start < PAGE_BYTES {
            return Ok(bytes);
        }
    }
}

/// Whether a batch ends in these bytes: an end marker is followed by another batch or by nothing.
fn has_end_marker(rest: &[u8]) -> bool {
    rest.windows(END_BYTES).enumerate().any(|(at, bytes)| {
        bytes[0] == 3 && bytes.ends_with(MAGIC) && matches!(rest.get(at + END_BYTES), None | Some(0 | 1))
    })
}

struct Batches {
    input: BufReader<File>,
    meta: Option<u64>,
    item: Vec<u8>,
    /// The number of the last batch's commit.
    commit: Option<u64>,
}

/// The needed part of the state row.
#[derive(Deserialize)]
struct StateRow {
    commit: u64,
}

impl Batches {
    /// The size of the next batch; `None` if there is no whole one.
    fn next(&mut self) -> io::Result<Option<u64>> {
        match self.whole() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn whole(&mut self) -> io::Result<u64> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let [1, start @ ..] = self.array::<13>()? else { return Err(wrong()) };
        let item_count = u32::from_le_bytes(*start.first_chunk().expect("it has twelve bytes"));
        let (mut hasher, mut bytes, mut commit) = (Xxh3Default::new(), 13, None);
        for _ in 0..item_count {
            commit = self.item()?.or(commit);
            hasher.update(&self.item);
            bytes += self.item.len() as u64;
        }
        let [3, end @ ..] = self.array::<END_BYTES>()? else { return Err(wrong()) };
        let (sum, magic) = end.split_first_chunk().expect("it has twelve bytes");
        if u64::from_le_bytes(*sum) != hasher.digest() || magic != MAGIC {
            return Err(wrong());
        }
        self.commit = commit;
        Ok(bytes + END_BYTES as u64)
    }

    /// Reads an item. If it is the state row, returns the number of the commit.
    fn item(&mut self) -> io::Result<Option<u64>> {
        self.item.clear();
        match self.input.fill_buf()?.first() {
            Some(4) => {
                let clear = self.array::<9>()?;
                self.item.extend_from_slice(&clear);
                return Ok(None);
            }
            Some(2) => {}
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let head = self.array::<ITEM_HEAD_BYTES>()?;
        let keyspace = u64::from_le_bytes(head[3..11].try_into().expect("eight bytes"));
        let key_bytes = usize::from(u16::from_le_bytes([head[11], head[12]]));
        let stored_bytes = u32::from_le_bytes(head[17..].try_into().expect("four bytes"));
        let bytes = key_bytes as u64 + u64::from(stored_bytes);
        self.item.extend_from_slice(&head);
        if self.input.by_ref().take(bytes).read_to_end(&mut self.item)? as u64 != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (key, value) = self.item[ITEM_HEAD_BYTES..].split_at(key_bytes);
        let is_state = Some(keyspace) == self.meta && key == STATE_KEY && head[2] == 0;
        Ok(is_state.then(|| serde_json::from_slice(value).ok().map(|StateRow { commit }| commit)).flatten())
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        self.input.read_exact(&mut array)?;
        Ok(array)
    }
}
