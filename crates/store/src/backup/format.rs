//! The bytes of a backup. They are written and read in one pass without seeking, so a backup works through pipes.
//!
//! ```text
//! file    magic 8 bytes, version u32, frames: one head, rows, one foot; then the end
//! frame   kind u8, table u8, packing u8, 0, sequence u32, rows u32, plain bytes u32, stored bytes u32,
//!         XXH3-64 of the frame without these 8 bytes, stored bytes: the plain ones, or their LZ4 block
//! head    JSON: store format, epoch, commit, names of the tables; a frame's table is an index into them
//! rows    of one table, in the order of their keys: key and value, each behind its length (varint)
//! foot    JSON: rows of each table, XXH3-128 of all bytes before this frame
//! ```
//!
//! Numbers are big-endian. A frame of rows has about [`BLOCK_BYTES`], and more only for a large row. Damage by a bad disk or
//! a broken transfer is noticed: a changed byte by the frame's checksum, a frame that is missing, doubled or misplaced by its
//! sequence number, a lost end by the missing foot. The checksums are no signature: an attacker can change them too.
//!
//! The decoder takes bytes in any pieces ([`Decoder::push`]). No bytes make it panic. It holds one frame.

use serde::{Deserialize, Serialize};
use tidings_types::Epoch;
use xxhash_rust::xxh3::Xxh3;

use super::error::BackupError;
use super::summary::{BackupSummary, KEPT, Progress, TableCount};
use crate::engine::STATE_KEY;
use crate::engine::{Cut, Table};
use crate::log::LOG_KEY;
use crate::meta::{FORMAT_KEY, State};
use crate::packed::{Unpack, put_bytes};
use crate::rows;

const MAGIC: [u8; 8] = *b"tdgs\xb5\r\n\0"; // A transfer in text mode changes these bytes, which is noticed at once.
/// The version of this file format.
pub(super) const VERSION: u32 = 1;
const START_BYTES: usize = 12;

/// A frame of rows ends at this many plain bytes.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes that a frame may have, plain or stored. No row is larger.
const FRAME_BYTES_MAX: usize = 256 << 20;
const FRAME_HEAD_BYTES: usize = 28;

/// The longest key the engine takes.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Head = 1,
    Rows = 2,
    Foot = 3,
}

const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// The store of the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The store's `meta/format`.
    pub(super) format: String,
    pub(super) epoch: Epoch,
    /// The last commit in the backup.
    pub(super) commit: u64,
    tables: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Foot {
    rows: Vec<u64>,
    checksum: String,
}

/// Table, key and value.
type Row = (Table, Vec<u8>, Vec<u8>);

/// Makes a backup from the rows of a cut.
pub(super) struct Encoder {
    cut: Cut,
    /// The rows of `meta`, which come first, and the row after them. They are read before the head is made.
    ahead: std::vec::IntoIter<Row>,
    /// A row that was read but belongs to the next frame.
    held: Option<Row>,
    head: Head,
    /// The row that says how far the store was in its log.
    log_row: Option<Vec<u8>>,
    out: Out,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    Rows,
    Done,
}

/// The sums of the written bytes.
#[derive(Default)]
struct Out {
    sequence: u32,
    bytes: u64,
    rows: [u64; KEPT.len()],
    checksum: Xxh3,
}

impl Encoder {
    /// `cut` must have the tables [`KEPT`].
    pub(super) fn new(mut cut: Cut) -> Result<Self, BackupError> {
        let (mut ahead, mut format, mut state, mut log_row) = (Vec::new(), None, None, None);
        for row in &mut cut {
            let (table, key, value) = row?;
            if table == Table::Meta && &key[..] == FORMAT_KEY {
                format = Some(String::from_utf8_lossy(&value).into_owned());
            }
            if table == Table::Meta && &key[..] == STATE_KEY {
                state = Some(rows::decode::<State>(Table::Meta, STATE_KEY, &value)?);
            }
            if table == Table::Meta && &key[..] == LOG_KEY {
                log_row = Some(value.to_vec());
            }
            ahead.push((table, key.to_vec(), value.to_vec()));
            if table != Table::Meta {
                break;
            }
        }
        let State { epoch, commit, .. } = state.ok_or(BackupError::NoStore)?;
        let tables = KEPT.map(|table| table.name().to_owned()).to_vec();
        let head = Head { format: format.ok_or(BackupError::NoStore)?, epoch, commit, tables };
        let (ahead, out) = (ahead.into_iter(), Out::default());
        Ok(Self { cut, ahead, held: None, head, log_row, out, stage: Stage::Head })
    }

    /// The next bytes of the backup; `None` at its end.
    pub(super) fn next_block(&mut self) -> Result<Option<Vec<u8>>, BackupError> {
        match self.stage {
            Stage::Head => {
                self.stage = Stage::Rows;
                let mut start = [&MAGIC[..], &VERSION.to_be_bytes()].concat();
                self.out.count(&start);
                start.extend(self.out.frame(Kind::Head, 0, 0, &json(&self.head)));
                Ok(Some(start))
            }
            Stage::Rows => match self.rows()? {
                Some(block) => Ok(Some(block)),
                None => {
                    self.stage = Stage::Done;
                    let foot = Foot { rows: self.out.rows.to_vec(), checksum: self.out.checksum() };
                    Ok(Some(self.out.frame(Kind::Foot, 0, 0, &json(&foot))))
                }
            },
            Stage::Done => Ok(None),
        }
    }

    /// A frame with the next rows of one table.
    fn rows(&mut self) -> Result<Option<Vec<u8>>, BackupError> {
        let Some((table, key, value)) = self.row()? else { return Ok(None) };
        let (mut plain, mut count) = (Vec::with_capacity(BLOCK_BYTES + key.len() + value.len() + 16), 1);
        put_row(&mut plain, &key, &value);
        while plain.len() < BLOCK_BYTES {
            match self.row()? {
                Some((next, key, value)) if next == table && plain.len() + key.len() + value.len() <= BLOCK_BYTES => {
                    put_row(&mut plain, &key, &value);
                    count += 1;
                }
                other => {
                    self.held = other;
                    break;
                }
            }
        }
        if plain.len() > FRAME_BYTES_MAX {
            return Err(BackupError::RowTooLarge { table: table.name(), limit: FRAME_BYTES_MAX });
        }
        let place = KEPT.iter().position(|kept| *kept == table).expect("the cut has these tables");
        self.out.rows[place] += u64::from(count);
        Ok(Some(self.out.frame(Kind::Rows, place as u8, count, &plain)))
    }

    /// The row that says how far the store was in its log at the moment of the cut; `None`: it was alone.
    pub(super) fn log_row(&self) -> Option<&[u8]> {
        self.log_row.as_deref()
    }

    fn row(&mut self) -> Result<Option<Row>, BackupError> {
        if let Some(row) = self.held.take().or_else(|| self.ahead.next()) {
            return Ok(Some(row));
        }
        let row = self.cut.next().transpose()?;
        Ok(row.map(|(table, key, value)| (table, key.to_vec(), value.to_vec())))
    }

    pub(super) fn summary(&self) -> BackupSummary {
        let counts = KEPT.iter().zip(self.out.rows);
        BackupSummary {
            format: self.head.format.clone(),
            epoch: self.head.epoch,
            commit: self.head.commit,
            bytes: self.out.bytes,
            tables: counts.map(|(table, rows)| TableCount { table: table.name(), rows }).collect(),
        }
    }
}

impl Out {
    fn count(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.checksum.update(bytes);
    }

    fn checksum(&self) -> String {
        format!("{:032x}", self.checksum.digest128())
    }

    fn frame(&mut self, kind: Kind, table: u8, rows: u32, plain: &[u8]) -> Vec<u8> {
        let packed = lz4_flex::block::compress(plain);
        let (packing, stored) = if packed.len() < plain.len() { (LZ4, &packed[..]) } else { (PLAIN, plain) };
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + stored.len());
        frame.extend_from_slice(&[kind as u8, table, packing, 0]);
        for number in [self.sequence, rows, plain.len() as u32, stored.len() as u32] {
            frame.extend_from_slice(&number.to_be_bytes());
        }
        let checksum = checksum_of(&frame, stored);
        frame.extend_from_slice(&checksum.to_be_bytes());
        frame.extend_from_slice(stored);
        self.sequence += 1;
        self.count(&frame);
        frame
    }
}

fn put_row(plain: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    put_bytes(plain, key);
    put_bytes(plain, value);
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("these have string keys")
}

fn checksum_of(head: &[u8], stored: &[u8]) -> u64 {
    let mut checksum = Xxh3::new();
    checksum.update(head);
    checksum.update(stored);
    checksum.digest()
}

/// Reads a backup from a stream of bytes, and checks that they are unchanged.
///
/// It holds the bytes that were pushed and not read yet: at most one frame ([`FRAME_BYTES_MAX`]) and the last push, if it is
/// read after each push.
#[derive(Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// How many bytes of the buffer were read.
    taken: usize,
    stage: Reading,
    sequence: u32,
    bytes: u64,
    checksum: Xxh3,
    head: Option<Head>,
    /// The tables in the head.
    tables: Vec<Table>,
    rows: Vec<u64>,
    /// The index of the last row's table, and its key.
    last: (u8, Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reading {
    #[default]
    Start,
    Head,
    Rows,
    Done,
}

/// A valid part of a backup.
pub(super) enum Part {
    Head(Head),
    Rows(Block),
    End,
}

/// Rows of one table.
pub(super) struct Block {
    pub(super) table: Table,
    plain: Vec<u8>,
}

impl Block {
    /// Keys and values in their order.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = Unpack(&self.plain);
        std::iter::from_fn(move || Some((rest.bytes()?, rest.bytes()?)))
    }
}

struct FrameHead {
    kind: u8,
    table: u8,
    packing: u8,
    rows: u32,
    plain_bytes: usize,
    stored_bytes: usize,
}

impl Decoder {
    /// Takes the next bytes of the file.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Reads all pushed bytes and drops the rows.
    pub(crate) fn check(&mut self) -> Result<(), BackupError> {
        while self.next()?.is_some() {}
        Ok(())
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { bytes: self.bytes, rows: self.rows.iter().sum() }
    }

    /// The next part; `None` while bytes are missing.
    pub(super) fn next(&mut self) -> Result<Option<Part>, BackupError> {
        match self.stage {
            Reading::Start => self.start(),
            Reading::Head => self.frame()?.map(|(frame, plain)| self.head(&frame, &plain)).transpose(),
            Reading::Rows => self.frame()?.map(|(frame, plain)| self.rows(&frame, plain)).transpose(),
            Reading::Done if self.rest().is_empty() => Ok(None),
            Reading::Done => Err(self.damaged("something follows its end")),
        }
    }

    /// To be called at the end of the file. Returns the summary.
    pub(crate) fn finish(&self) -> Result<BackupSummary, BackupError> {
        let head = match &self.head {
            Some(head) if self.stage == Reading::Done && self.rest().is_empty() => head.clone(),
            _ if self.bytes == 0 && self.rest().is_empty() => return Err(BackupError::NotABackup),
            _ => return Err(BackupError::CutOff { bytes: self.bytes + self.rest().len() as u64 }),
        };
        let counts = self.tables.iter().zip(&self.rows);
        Ok(BackupSummary {
            format: head.format,
            epoch: head.epoch,
            commit: head.commit,
            bytes: self.bytes,
            tables: counts.map(|(table, rows)| TableCount { table: table.name(), rows: *rows }).collect(),
        })
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    fn damaged(&self, what: &'static str) -> BackupError {
        BackupError::Damaged { offset: self.bytes, what }
    }

    fn start(&mut self) -> Result<Option<Part>, BackupError> {
        let rest = self.rest();
        let known = rest.len().min(MAGIC.len());
        if rest[..known] != MAGIC[..known] {
            return Err(BackupError::NotABackup);
        }
        let Some((_, version)) = rest.get(..START_BYTES).and_then(|start| start.split_last_chunk::<4>()) else {
            return Ok(None);
        };
        let found = u32::from_be_bytes(*version);
        if found != VERSION {
            return Err(BackupError::Version { found, known: VERSION });
        }
        self.take(START_BYTES);
        self.stage = Reading::Head;
        self.next()
    }

    /// Counts bytes of the buffer as read.
    fn take(&mut self, count: usize) {
        self.checksum.update(&self.buffer[self.taken..self.taken + count]);
        (self.taken, self.bytes) = (self.taken + count, self.bytes + count as u64);
    }

    /// The next valid frame and its plain bytes. The frame of the foot is not yet counted as read.
    fn frame(&mut self) -> Result<Option<(FrameHead, Vec<u8>)>, BackupError> {
        let Some(head) = self.rest().first_chunk::<FRAME_HEAD_BYTES>().copied() else { return Ok(None) };
        let number = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let frame = FrameHead {
            kind: head[0],
            table: head[1],
            packing: head[2],
            rows: number(8),
            plain_bytes: number(12) as usize,
            stored_bytes: number(16) as usize,
        };
        if frame.plain_bytes > FRAME_BYTES_MAX || frame.stored_bytes > frame.plain_bytes {
            return Err(self.damaged("a block has an impossible length"));
        }
        let (head, checksum) = head.split_at(FRAME_HEAD_BYTES - 8);
        let Some(stored) = self.rest().get(FRAME_HEAD_BYTES..FRAME_HEAD_BYTES + frame.stored_bytes) else {
            return Ok(None);
        };
        if checksum_of(head, stored).to_be_bytes() != checksum {
            return Err(self.damaged("a block has a wrong checksum"));
        }
        if number(4) != self.sequence {
            return Err(self.damaged("a block is missing or in a wrong place"));
        }
        let plain = match frame.packing {
            PLAIN => Some(stored.to_vec()),
            LZ4 => lz4_flex::block::decompress(stored, frame.plain_bytes).ok(),
            _ => None,
        };
        let plain = plain.filter(|plain| plain.len() == frame.plain_bytes);
        let plain = plain.ok_or_else(|| self.damaged("a block cannot be unpacked"))?;
        if frame.kind != Kind::Foot as u8 {
            self.take(FRAME_HEAD_BYTES + frame.stored_bytes);
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(Some((frame, plain)))
    }

    fn head(&mut self, frame: &FrameHead, plain: &[u8]) -> Result<Part, BackupError> {
        let head = (frame.kind == Kind::Head as u8).then(|| serde_json::from_slice::<Head>(plain).ok()).flatten();
        let head = head.ok_or_else(|| self.damaged("it has no head"))?;
        if !rows::is_known_format(head.format.as_bytes()) {
            let found = head.format.chars().take(64).collect();
            return Err(BackupError::Format { found, known: rows::FORMAT });
        }
        for name in &head.tables {
            let Some(&table) = KEPT.iter().find(|table| table.name() == name) else {
                return Err(BackupError::Table { name: name.chars().take(64).collect() });
            };
            if self.tables.contains(&table) {
                return Err(self.damaged("a table is named twice"));
            }
            self.tables.push(table);
        }
        (self.rows, self.stage) = (vec![0; self.tables.len()], Reading::Rows);
        self.head = Some(head.clone());
        Ok(Part::Head(head))
    }

    fn rows(&mut self, frame: &FrameHead, plain: Vec<u8>) -> Result<Part, BackupError> {
        if frame.kind == Kind::Foot as u8 {
            return self.foot(frame, &plain);
        }
        let place = usize::from(frame.table);
        let table = self.tables.get(place).filter(|_| frame.kind == Kind::Rows as u8).copied();
        let table = table.ok_or_else(|| self.damaged("a block is of no table"))?;
        if frame.table < self.last.0 {
            return Err(self.damaged("a block is of a table that was over"));
        }
        if frame.table > self.last.0 {
            self.last = (frame.table, Vec::new());
        }
        let (mut rest, mut count) = (Unpack(&plain), 0_u64);
        let mut last = std::mem::take(&mut self.last.1);
        while !rest.is_empty() {
            let row = rest.bytes().zip(rest.bytes());
            let key = row.map(|(key, _)| key).filter(|key| key.len() <= KEY_BYTES_MAX && **key > last[..]);
            let Some(key) = key else { return Err(self.damaged("a block has rows in disorder")) };
            last.clear();
            last.extend_from_slice(key);
            count += 1;
        }
        if count != u64::from(frame.rows) {
            return Err(self.damaged("a block has another number of rows"));
        }
        (self.last.1, self.rows[place]) = (last, self.rows[place] + count);
        Ok(Part::Rows(Block { table, plain }))
    }

    fn foot(&mut self, frame: &FrameHead, plain: &[u8]) -> Result<Part, BackupError> {
        let is_whole = serde_json::from_slice(plain).is_ok_and(|Foot { rows, checksum }| {
            rows == self.rows && checksum == format!("{:032x}", self.checksum.digest128())
        });
        if !is_whole {
            return Err(self.damaged("its blocks do not have the sums in its end"));
        }
        self.take(FRAME_HEAD_BYTES + frame.stored_bytes);
        self.stage = Reading::Done;
        self.next().map(|_| Part::End)
    }
}

/// A frame with any content and a valid checksum.
#[cfg(test)]
pub(super) fn tests_only_frame(kind: u8, table: u8, sequence: u32, rows: u32, plain: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind, table, PLAIN, 0];
    for number in [sequence, rows, plain.len() as u32, plain.len() as u32] {
        frame.extend_from_slice(&number.to_be_bytes());
    }
    let checksum = checksum_of(&frame, plain);
    [&frame[..], &checksum.to_be_bytes(), plain].concat()
}
