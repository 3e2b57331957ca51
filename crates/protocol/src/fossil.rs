//! Fossil deltas: a payload told as its difference to the one before.
//!
//! A delta is a text with the parts of the new payload in order, each either copied from the old payload or literal:
//!
//! ```text
//! <length of the new payload> \n  { <count> @ <offset> ,  |  <count> : <literal bytes> }…  <checksum> ;
//! ```
//!
//! Numbers are written to base 64 with the digits `0-9A-Z_a-z~`. The checksum is the sum of the new payload's
//! big-endian 32-bit words, the last one filled up with zeros.
//!
//! The old payload is cut into blocks of 16 bytes, which are kept by a hash of their content. At each place of the new
//! payload the block that begins there is looked up, and an equal one is extended in both directions.
//!
//! Payloads are text, and a client that speaks JSON gets the delta as a JSON string. So a literal never cuts a character
//! of more than one byte: the copied parts give up the bytes of a cut character. Every delta is valid UTF-8.
//!
//! Bounds: payloads of more than [`DELTA_BYTES_MAX`] get no delta, and at most `CANDIDATE_COUNT_MAX` equal blocks are
//! looked at. A delta is kept only if it takes less than four fifths of the new payload.
//!
//! Source: <https://fossil-scm.org/home/doc/trunk/www/delta_format.wiki>.

/// The most bytes of a payload that gets a delta: making one then takes well under a millisecond, under the channel's
/// lock.
pub const DELTA_BYTES_MAX: usize = 128 << 10;
/// Blocks of the old payload with one hash that are compared with one place of the new payload.
const CANDIDATE_COUNT_MAX: usize = 8;
const BLOCK: usize = 16;
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// The delta that makes `new` of `old`; `None` if it would save less than a fifth, or a payload is too large.
pub fn delta(old: &str, new: &str) -> Option<String> {
    let (old, new) = (old.as_bytes(), new.as_bytes());
    if old.len() < BLOCK || new.len() < BLOCK || old.len().max(new.len()) > DELTA_BYTES_MAX {
        return None;
    }
    let mut writer = Writer { new, told: 0, out: Vec::with_capacity(64), bytes_max: (new.len() * 4).div_ceil(5) };
    writer.number(new.len() as u64, b'\n');
    let blocks = Blocks::of(old);
    let mut at = 0;
    while at + BLOCK <= new.len() {
        match blocks.longest(new, at, writer.told) {
            Some(part) => {
                writer.copy(&part)?;
                at = part.end;
            }
            None => at += 1,
        }
    }
    writer.end()
}

/// A part of the new payload that is also in the old one.
#[derive(Debug)]
struct Part {
    start: usize,
    end: usize,
    /// Where it begins in the old payload.
    old: usize,
}

/// The blocks of the old payload by the hash of their content.
struct Blocks<'a> {
    old: &'a [u8],
    /// For each hash the last block with it, from 1; 0: none.
    last: Vec<u32>,
    /// For each block an earlier one with its hash, from 1; 0: none.
    earlier: Vec<u32>,
}

impl<'a> Blocks<'a> {
    fn of(old: &'a [u8]) -> Self {
        let count = old.len() / BLOCK;
        let mut blocks = Self { old, last: vec![0; count.next_power_of_two() * 2], earlier: Vec::with_capacity(count) };
        for (index, block) in old.chunks_exact(BLOCK).enumerate() {
            let hash = blocks.hash(block);
            blocks.earlier.push(std::mem::replace(&mut blocks.last[hash], index as u32 + 1));
        }
        blocks
    }

    fn hash(&self, block: &[u8]) -> usize {
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("a block has two words"));
        let mixed = (word(0) ^ word(8).rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (self.last.len() - 1)
    }

    /// The longest part of `new` around the block at `at` that is also in the old payload; it begins at `from` or later.
    fn longest(&self, new: &[u8], at: usize, from: usize) -> Option<Part> {
        let mut longest: Option<Part> = None;
        let mut next = self.last[self.hash(&new[at..at + BLOCK])];
        for _ in 0..CANDIDATE_COUNT_MAX {
            let Some(index) = next.checked_sub(1) else { break };
            next = self.earlier[index as usize];
            let old = index as usize * BLOCK;
            if self.old[old..old + BLOCK] != new[at..at + BLOCK] {
                continue;
            }
            let back = new[from..at].iter().rev().zip(self.old[..old].iter().rev()).take_while(|(a, b)| a == b).count();
            let forth = new[at..].iter().zip(&self.old[old..]).take_while(|(a, b)| a == b).count();
            let part = Part { start: at - back, end: at + forth, old: old - back };
            if longest.as_ref().is_none_or(|longest| longest.end - longest.start < part.end - part.start) {
                longest = Some(part);
            }
        }
        longest.map(|part| whole_characters(new, part)).filter(|part| part.end >= at + BLOCK / 2)
    }
}

/// The part without the bytes of characters that it has only in part. They are at most three on each side.
fn whole_characters(new: &[u8], mut part: Part) -> Part {
    let is_inside = |at: usize| new.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    while is_inside(part.start) {
        (part.start, part.old) = (part.start + 1, part.old + 1);
    }
    while is_inside(part.end) {
        part.end -= 1;
    }
    part
}

struct Writer<'a> {
    new: &'a [u8],
    /// How much of the new payload is written.
    told: usize,
    out: Vec<u8>,
    bytes_max: usize,
}

impl Writer<'_> {
    /// Writes what comes before the part as a literal, and copies the part. `None`: it has become too long.
    fn copy(&mut self, part: &Part) -> Option<()> {
        self.literal(part.start);
        self.number((part.end - part.start) as u64, b'@');
        self.number(part.old as u64, b',');
        self.told = part.end;
        (self.out.len() < self.bytes_max).then_some(())
    }

    fn literal(&mut self, until: usize) {
        if until > self.told {
            self.number((until - self.told) as u64, b':');
            self.out.extend_from_slice(&self.new[self.told..until]);
        }
    }

    fn end(mut self) -> Option<String> {
        self.literal(self.new.len());
        self.number(checksum(self.new).into(), b';');
        let delta = Some(self.out).filter(|out| out.len() < self.bytes_max)?;
        Some(String::from_utf8(delta).expect("literals have whole characters"))
    }

    fn number(&mut self, value: u64, end: u8) {
        let digit_count = (u64::BITS - value.leading_zeros()).div_ceil(6).max(1);
        self.out.extend((0..digit_count).rev().map(|index| DIGITS[(value >> (6 * index)) as usize & 63]));
        self.out.push(end);
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    bytes.chunks(4).fold(0, |sum, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.wrapping_add(u32::from_be_bytes(word))
    })
}

#[cfg(test)]
mod tests;
