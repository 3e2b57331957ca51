//! The index as bytes, in pieces, for a checkpoint.
//!
//! A shard of the checkpoint has the sets of 16 384 slots, with any device numbers, and all names that they need. So
//! each shard is read alone, and writing one delays nobody for long. A shard does not say in which slot a set was:
//! reading adds the set's members to those already there. So shards may be written at different moments, with changes
//! in between. When the changes since the first moment are made again, the index is as if it had been written at the
//! last moment. A member that was not added or removed in between has stayed in the slot of its set, because a set
//! leaves its slot only when it has no members. All other members are added or removed again.
//!
//! Reading has three steps, so that two threads can share it: [`Shard::read`] parses the bytes, [`Naming`] looks up
//! names, [`Filling`] puts members into sets. [`Index::decode_shard`] does all three.
//!
//! ```text
//! shard = version (1)  set …
//! set   = (0 topic subject │ 1 user │ 2 app │ 3 locale │ 4 country │ 5 muted subject │ 6 platform (1) │ 7)  form
//! name  = 0 length (1 byte) text │ n: the n-th new one of its kind in this shard, counted from 1
//! form  = 2 × bytes  gaps  │  2 × parts + 1  part …
//! part  = shard (2)  (0 ends (16 × 2) lows (2 each) │ 1 length (4) Roaring)
//! ```
//!
//! Numbers without a width are LEB128, the others little-endian. The caller detects damage. Here any bytes give an
//! error or a complete index, and no allocation is larger than a few times the bytes.

use std::collections::HashMap;
use std::ops::Range;

use roaring::RoaringBitmap;

use crate::gaps::{self, push_number};
use crate::halves::{BLOCK_COUNT, HALVES_COUNT_MAX, Halves};
use crate::index::{Index, MUTED_ALL};
use crate::names::{NAME_BYTES_MAX, NameNumber};
use crate::pool::POOLED_BYTES_MAX;
use crate::set::{Part, Wide};
use crate::sets::{Members, SetKey, family};

/// Slots of a shard of the checkpoint.
pub(crate) const SHARD_SLOT_COUNT: usize = 16 * 1024;

const VERSION: u8 = 1;

/// The number of possible shards of device numbers.
const PART_SHARD_COUNT: u16 = (u32::MAX / crate::SHARD_DEVICE_COUNT) as u16 + 1;

/// The bytes are no shard of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} of the index cannot be read behind byte {offset} of {length}")]
pub struct DecodeError {
    /// Which one.
    pub shard: usize,
    /// Where the first invalid part begins.
    pub offset: usize,
    /// Its bytes.
    pub length: usize,
}

impl Index {
    /// How many shards a checkpoint has now; it never falls. Sets in shards that are added later have changed after the
    /// checkpoint began.
    pub fn shard_count(&self) -> usize {
        self.sets().end().div_ceil(SHARD_SLOT_COUNT)
    }

    /// Writes a shard at the end of `out`; the caller must remember its length.
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

    /// Adds the content of a shard. The shards of one checkpoint, in any order, turn an empty index into the index that
    /// was written. For many shards, [`Naming`] and [`Filling`] are faster.
    ///
    /// # Errors
    /// If the bytes are not a shard; then nothing was added.
    pub fn decode_shard(&mut self, shard: usize, bytes: &[u8]) -> Result<(), DecodeError> {
        let shards = self.name(vec![Shard::read(shard, bytes.to_vec())?]);
        self.fill(shards).into_iter().for_each(|key| self.release_names(key));
        Ok(())
    }

    /// Looks up the names of shards; each is used by as many sets more as they have of it.
    fn name(&mut self, shards: Vec<Shard>) -> NamedShards {
        let numbers: Vec<Vec<NameNumber>> =
            (0..DICTIONARY_COUNT).map(|dictionary| self.add_names(dictionary, &shards)).collect();
        let mut bases = [0; DICTIONARY_COUNT];
        let mut keys = Vec::with_capacity(shards.iter().map(|shard| shard.sets.len()).sum());
        for Shard { names, sets, .. } in &shards {
            let named = |dictionary: usize, place: u32| numbers[dictionary][bases[dictionary] + place as usize];
            keys.extend(sets.iter().map(|set| set.key.named(named)));
            bases.iter_mut().zip(names).for_each(|(base, names)| *base += names.len());
        }
        NamedShards { keys, shards }
    }

    /// Adds sets. Those that were there, whose names are not used once more, are returned.
    fn fill(&mut self, NamedShards { keys, shards }: NamedShards) -> Vec<SetKey> {
        let slots = self.sets_mut().slots_of(&keys);
        let mut places = keys.iter().zip(&slots);
        for Shard { bytes, sets, .. } in shards {
            for (ReadSet { members, .. }, (&key, &(slot, _))) in sets.into_iter().zip(&mut places) {
                let count = match members {
                    ReadMembers::Gaps { range, count, last } => {
                        self.sets_mut().add_gaps_at(slot, range.of(&bytes), (count, last))
                    }
                    ReadMembers::Wide(wide) => self.sets_mut().add_wide_at(slot, wide),
                };
                self.count_added(key, count);
            }
        }
        keys.into_iter().zip(slots).filter(|(_, (_, is_new))| !is_new).map(|(key, _)| key).collect()
    }

    /// The numbers of all names that the shards have of a dictionary, one shard after the other. Each is used by as many
    /// sets as its shard says.
    fn add_names(&mut self, dictionary: usize, shards: &[Shard]) -> Vec<NameNumber> {
        let names: Vec<(&[u8], u32)> = shards.iter().flat_map(|shard| shard.names_of(dictionary)).collect();
        let known = match dictionary {
            TOPICS => self.topics_mut(),
            SUBSCRIPTION => self.subjects_mut(),
            _ => self.names_mut(FAMILIES[dictionary]),
        };
        known.retain_all(&names)
    }
}

/// The names of an index that is made of shards. One thread can read and name them while another fills the sets.
#[derive(Debug, Default)]
pub struct Naming(Index);

impl Naming {
    /// Looks up the names of some shards; many at once are quicker.
    pub fn name(&mut self, shards: Vec<Shard>) -> NamedShards {
        self.0.name(shards)
    }
}

/// The sets of an index that is made of shards; see [`Naming`].
#[derive(Debug, Default)]
pub struct Filling {
    index: Index,
    /// Sets that were in more than one shard, once for each more.
    repeated: Vec<SetKey>,
}

impl Filling {
    /// Adds what shards hold, all of them named by one [`Naming`].
    pub fn add(&mut self, shards: NamedShards) {
        self.repeated.extend(self.index.fill(shards));
    }

    /// The index, when all shards are added.
    pub fn finish(self, Naming(names): Naming) -> Index {
        let mut index = self.index.with_names_of(names);
        self.repeated.into_iter().for_each(|key| index.release_names(key));
        index
    }
}

/// Shards with the keys of all their sets.
#[derive(Debug)]
pub struct NamedShards {
    keys: Vec<SetKey>,
    shards: Vec<Shard>,
}

/// A shard as it was read, without an index.
#[derive(Debug)]
pub struct Shard {
    bytes: Vec<u8>,
    names: ReadNames,
    /// Each has members, and names only of `names`.
    sets: Vec<ReadSet>,
}

/// Bytes of a shard.
#[derive(Debug, Clone, Copy)]
struct Range32 {
    start: u32,
    length: u32,
}

impl Range32 {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.length as usize]
    }
}

#[derive(Debug)]
struct ReadSet {
    key: ReadKey,
    members: ReadMembers,
}

/// What a set is of, by the places of its names.
#[derive(Debug)]
enum ReadKey {
    Subscription { topic: u32, subject: u32 },
    Named { kind: usize, name: u32 },
    Fixed(SetKey),
}

impl ReadKey {
    /// With the numbers of its names, by dictionary and place.
    fn named(&self, number: impl Fn(usize, u32) -> NameNumber) -> SetKey {
        match *self {
            Self::Subscription { topic, subject } => {
                SetKey { family: number(TOPICS, topic), name: number(SUBSCRIPTION, subject) }
            }
            Self::Named { kind, name } => SetKey { family: FAMILIES[kind], name: number(kind, name) },
            Self::Fixed(key) => key,
        }
    }
}

#[derive(Debug)]
enum ReadMembers {
    /// With what [`gaps::check`] says of them.
    Gaps {
        range: Range32,
        count: usize,
        last: u32,
    },
    Wide(Box<Wide>),
}

impl Shard {
    /// Reads what [`Index::encode_shard`] wrote; the number of the shard is for the error only.
    ///
    /// # Errors
    /// When the bytes are no shard.
    pub fn read(shard: usize, bytes: Vec<u8>) -> Result<Self, DecodeError> {
        let (mut names, mut sets) = (Default::default(), Vec::new());
        let mut rest = &bytes[..];
        let mut before = rest;
        let mut is_read = take_byte(&mut rest) == Some(VERSION) && u32::try_from(bytes.len()).is_ok();
        while is_read && !rest.is_empty() {
            before = rest;
            let set = read_set(&bytes, &mut names, &mut rest);
            is_read = set.is_some();
            sets.extend(set);
        }
        let error = DecodeError { shard, offset: bytes.len() - before.len(), length: bytes.len() };
        if is_read { Ok(Self { bytes, names, sets }) } else { Err(error) }
    }

    fn names_of(&self, dictionary: usize) -> impl Iterator<Item = (&[u8], u32)> {
        self.names[dictionary].iter().map(|(range, uses)| (range.of(&self.bytes), *uses))
    }
}

/// By dictionary, each name once, and how many sets it has.
type ReadNames = [Vec<(Range32, u32)>; DICTIONARY_COUNT];

fn read_set(bytes: &[u8], names: &mut ReadNames, rest: &mut &[u8]) -> Option<ReadSet> {
    let key = read_key(bytes, names, rest)?;
    let form = take_number(rest)?;
    let count = form >> 1;
    if form & 1 == 0 {
        let (range, gaps) = take_range(bytes, rest, usize::try_from(count).ok()?)?;
        let (count, last) = gaps::check(gaps).filter(|_| gaps.len() <= POOLED_BYTES_MAX)?;
        return Some(ReadSet { key, members: ReadMembers::Gaps { range, count, last } });
    }
    let mut wide = Box::<Wide>::default();
    for _ in 0..count {
        let (shard, part) = decode_part(rest)?;
        wide.push(shard, part).then_some(())?;
    }
    (count > 0).then_some(ReadSet { key, members: ReadMembers::Wide(wide) })
}

fn read_key(bytes: &[u8], names: &mut ReadNames, rest: &mut &[u8]) -> Option<ReadKey> {
    let kind = usize::from(take_byte(rest)?);
    Some(match kind {
        SUBSCRIPTION => {
            let topic = read_name(bytes, &mut names[TOPICS], rest)?;
            ReadKey::Subscription { topic, subject: read_name(bytes, &mut names[SUBSCRIPTION], rest)? }
        }
        PLATFORM => {
            let name = take_byte(rest).filter(|&platform| platform < 3)?;
            ReadKey::Fixed(SetKey { family: family::PLATFORM, name: NameNumber(u32::from(name)) })
        }
        EVERYTHING => ReadKey::Fixed(MUTED_ALL),
        _ => ReadKey::Named { kind, name: read_name(bytes, names.get_mut(kind)?, rest)? },
    })
}

/// The place of a name in its dictionary.
fn read_name(bytes: &[u8], names: &mut Vec<(Range32, u32)>, rest: &mut &[u8]) -> Option<u32> {
    let place = take_number(rest)?;
    if place > 0 {
        names.get_mut(place as usize - 1)?.1 += 1;
        return Some(place - 1);
    }
    let length = usize::from(take_byte(rest)?);
    let (range, text) = take_range(bytes, rest, length)?;
    if length > NAME_BYTES_MAX || !text.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    names.push((range, 1));
    Some(names.len() as u32 - 1)
}

/// Takes bytes of `rest`, which is the end of `bytes`; where they are, too.
fn take_range<'a>(bytes: &[u8], rest: &mut &'a [u8], length: usize) -> Option<(Range32, &'a [u8])> {
    let start = bytes.len() - rest.len();
    let taken = take(rest, length)?;
    Some((Range32 { start: start as u32, length: length as u32 }, taken))
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
