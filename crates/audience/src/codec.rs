//! The index as bytes, in pieces, for a checkpoint.
//!
//! A shard of the checkpoint holds the sets of 16 384 slots, whatever the numbers in them, and all names they need, so
//! each is read by itself and writing one holds nobody up for long. It does not say in which slot a set was: reading
//! adds its members to what is there. So shards may be written at different moments, with changes in between: when the
//! changes since the first moment are made again, the index is as if it had been written at the last. Whom nobody added
//! or removed meanwhile has stayed in the slot of the set, since a set leaves its slot only when it has no members; all
//! others are added or removed again.
//!
//! ```text
//! shard = version (1)  set …
//! set   = (0 topic subject │ 1 user │ 2 app │ 3 locale │ 4 country │ 5 muted subject │ 6 platform (1) │ 7)  form
//! name  = 0 length (1 byte) text │ n: the n-th new one of its kind in this shard, counted from 1
//! form  = 2 × bytes  gaps  │  2 × parts + 1  part …
//! part  = shard (2)  (0 ends (16 × 2) lows (2 each) │ 1 length (4) Roaring)
//! ```
//!
//! Numbers without a width are LEB128, the others little-endian. Damage is the caller's to detect: here any bytes are
//! an error or an index that is whole, and nothing larger than a few times the bytes is allocated.

use std::collections::HashMap;
use std::ops::Range;

use roaring::RoaringBitmap;

use crate::gaps;
use crate::halves::{BLOCK_COUNT, HALVES_COUNT_MAX, Halves};
use crate::index::{Index, MUTED_ALL};
use crate::names::{NAME_BYTES_MAX, NameNumber};
use crate::pool::POOLED_BYTES_MAX;
use crate::set::{Part, Wide};
use crate::sets::{Members, SetKey, family};

/// Slots of a shard of the checkpoint.
pub(crate) const SHARD_SLOT_COUNT: usize = 16 * 1024;

const VERSION: u8 = 1;

/// Number ranges that there are at all.
const PART_SHARD_COUNT: u16 = (u32::MAX / crate::SHARD_DEVICE_COUNT) as u16 + 1;

/// The bytes are no shard of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} of the index cannot be read behind byte {offset} of {length}")]
pub struct DecodeError {
    /// Which one.
    pub shard: usize,
    /// Where what is not understood begins.
    pub offset: usize,
    /// Its bytes.
    pub length: usize,
}

impl Index {
    /// How many shards a checkpoint has at the moment; it never falls. What comes into shards added later is changed
    /// after the checkpoint began.
    pub fn shard_count(&self) -> usize {
        self.sets().end().div_ceil(SHARD_SLOT_COUNT)
    }

    /// Writes a shard behind what is in `out`; its own length is the caller's to keep.
    pub fn encode_shard(&self, shard: usize, out: &mut Vec<u8>) {
        let start = shard * SHARD_SLOT_COUNT;
        self.encode_slots(start..start + SHARD_SLOT_COUNT, out);
    }

    fn encode_slots(&self, slots: Range<usize>, out: &mut Vec<u8>) {
        out.push(VERSION);
        let mut names = NamesOut { index: self, numbers: HashMap::new(), counts: [0; DICTIONARY_COUNT] };
        for (key, members) in self.sets().iter_within(slots) {
            names.encode_key(key, out);
            encode_members(&members, out);
        }
    }

    /// Adds what a shard holds. The shards of one checkpoint make an index that was empty the one they were written of.
    ///
    /// # Errors
    /// When the bytes are no shard; what was read of them before stays, and the index is to be thrown away.
    pub fn decode_shard(&mut self, shard: usize, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut rest = bytes;
        let mut names: NamesIn = Default::default();
        let mut before = rest;
        let mut is_read = take_byte(&mut rest) == Some(VERSION);
        while is_read && !rest.is_empty() {
            before = rest;
            is_read = self.decode_set(&mut names, &mut rest).is_some();
        }
        let error = DecodeError { shard, offset: bytes.len() - before.len(), length: bytes.len() };
        if is_read { Ok(()) } else { Err(error) }
    }

    fn decode_set(&mut self, names: &mut NamesIn, rest: &mut &[u8]) -> Option<()> {
        let key = self.decode_key(names, rest)?;
        let form = take_number(rest)?;
        let count = form >> 1;
        if form & 1 == 0 {
            let gaps = take(rest, usize::try_from(count).ok()?).filter(|gaps| gaps.len() <= POOLED_BYTES_MAX)?;
            self.add_gaps(key, gaps, gaps::check(gaps)?);
            Some(())
        } else {
            let mut wide = Wide::default();
            for _ in 0..count {
                let (shard, part) = decode_part(rest)?;
                wide.push(shard, part).then_some(())?;
            }
            (count > 0).then(|| self.add_wide(key, wide))
        }
    }

    fn decode_key(&mut self, names: &mut NamesIn, rest: &mut &[u8]) -> Option<SetKey> {
        let kind = usize::from(take_byte(rest)?);
        Some(match kind {
            SUBSCRIPTION => SetKey { family: names.topic(self, rest)?, name: names.name(self, SUBSCRIPTION, rest)? },
            PLATFORM => {
                let name = take_byte(rest).filter(|&platform| platform < 3)?;
                SetKey { family: family::PLATFORM, name: NameNumber(u32::from(name)) }
            }
            EVERYTHING => MUTED_ALL,
            _ => SetKey { family: *FAMILIES.get(kind)?, name: names.name(self, kind, rest)? },
        })
    }
}

// Kinds of sets. Those of which each has a dictionary are its number too; the topics have the last.
const SUBSCRIPTION: usize = 0;
const PLATFORM: usize = 6;
const EVERYTHING: usize = 7;
const TOPICS: usize = 6;
const DICTIONARY_COUNT: usize = 7;

/// By kind; subscriptions have none.
const FAMILIES: [NameNumber; 6] =
    [family::FIRST, family::USER, family::APP, family::LOCALE, family::COUNTRY, family::MUTED];

/// Names written so far, with their places.
struct NamesOut<'a> {
    index: &'a Index,
    numbers: HashMap<(usize, NameNumber), u32>,
    counts: [u32; DICTIONARY_COUNT],
}

impl NamesOut<'_> {
    fn encode_key(&mut self, key: SetKey, out: &mut Vec<u8>) {
        if let Some(kind) = FAMILIES.iter().skip(1).position(|&family| family == key.family) {
            out.push(kind as u8 + 1);
            self.encode_name(kind + 1, key.name, out);
        } else if key.family == family::PLATFORM {
            out.extend_from_slice(&[PLATFORM as u8, key.name.0 as u8]);
        } else if key == MUTED_ALL {
            out.push(EVERYTHING as u8);
        } else {
            out.push(SUBSCRIPTION as u8);
            self.encode_name(TOPICS, key.family, out);
            self.encode_name(SUBSCRIPTION, key.name, out);
        }
    }

    fn encode_name(&mut self, dictionary: usize, name: NameNumber, out: &mut Vec<u8>) {
        let count = &mut self.counts[dictionary];
        let place = *self.numbers.entry((dictionary, name)).or_insert_with(|| {
            *count += 1;
            0
        });
        push_number(out, place);
        if place == 0 {
            self.numbers.insert((dictionary, name), *count);
            let text = match dictionary {
                TOPICS => self.index.topics().name(name),
                SUBSCRIPTION => self.index.subjects().name(name),
                _ => self.index.names(FAMILIES[dictionary]).name(name),
            };
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        }
    }
}

/// Names read so far, in order.
#[derive(Default)]
struct NamesIn([Vec<NameNumber>; DICTIONARY_COUNT]);

impl NamesIn {
    fn topic(&mut self, index: &mut Index, rest: &mut &[u8]) -> Option<NameNumber> {
        self.name(index, TOPICS, rest)
    }

    fn name(&mut self, index: &mut Index, dictionary: usize, rest: &mut &[u8]) -> Option<NameNumber> {
        let place = take_number(rest)?;
        if place > 0 {
            return self.0[dictionary].get(usize::try_from(place - 1).ok()?).copied();
        }
        let length = usize::from(take_byte(rest)?);
        let text = std::str::from_utf8(take(rest, length)?).ok()?;
        if length > NAME_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let names = match dictionary {
            TOPICS => index.topics_mut(),
            SUBSCRIPTION => index.subjects_mut(),
            _ => index.names_mut(FAMILIES[dictionary]),
        };
        let number = names.number(text);
        self.0[dictionary].push(number);
        Some(number)
    }
}

fn encode_members(members: &Members<'_>, out: &mut Vec<u8>) {
    match members {
        Members::Gaps(gaps) => {
            push_number(out, gaps.len() as u32 * 2);
            out.extend_from_slice(gaps);
        }
        Members::Wide(wide) => {
            push_number(out, wide.parts().count() as u32 * 2 + 1);
            wide.parts().for_each(|(shard, part)| encode_part(shard, part, out));
        }
    }
}

fn encode_part(shard: u16, part: &Part, out: &mut Vec<u8>) {
    out.extend_from_slice(&shard.to_le_bytes());
    match part {
        Part::Halves(halves) => {
            out.push(0);
            halves.ends().iter().chain(halves.lows()).for_each(|half| out.extend_from_slice(&half.to_le_bytes()));
        }
        Part::Bitmap(part) => {
            out.push(1);
            let bitmap = part.roaring();
            out.extend_from_slice(&(bitmap.serialized_size() as u32).to_le_bytes());
            bitmap.serialize_into(out).expect("memory takes all bytes");
        }
    }
}

fn decode_part(rest: &mut &[u8]) -> Option<(u16, Part)> {
    let shard = u16::from_le_bytes(take_array(rest)?);
    let tag = take_byte(rest).filter(|_| shard < PART_SHARD_COUNT)?;
    let part = if tag == 0 {
        let mut ends = [0; BLOCK_COUNT];
        for end in &mut ends {
            *end = u16::from_le_bytes(take_array(rest)?);
        }
        let count = usize::from(ends[BLOCK_COUNT - 1]);
        let lows = take(rest, 2 * count).filter(|_| count <= HALVES_COUNT_MAX)?;
        let lows = lows.as_chunks().0.iter().map(|&low| u16::from_le_bytes(low)).collect();
        Part::Halves(Halves::from_parts(ends, lows)?)
    } else {
        let length = u32::from_le_bytes(take_array(rest).filter(|_| tag == 1)?);
        let mut bytes = take(rest, usize::try_from(length).ok()?)?;
        let bitmap = RoaringBitmap::deserialize_from(&mut bytes).ok().filter(|_| bytes.is_empty())?;
        Part::from_bitmap(shard, bitmap)?
    };
    Some((shard, part))
}

fn push_number(out: &mut Vec<u8>, mut number: u32) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let byte = take_byte(rest)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(number).ok();
        }
    }
    None
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    take_array::<1>(rest).map(|[byte]| byte)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests;
