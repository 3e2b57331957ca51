//! What a benchmark has computed, in brief: so that a run which computed nothing, or something else, is seen.
//!
//! A [`Digest`] stands for many answers whose order may differ from run to run, such as the publications that all clients
//! got: their count and the sum of their hashes. A sum, because with an exclusive or an answer that came twice would cancel
//! itself out. [`Answers`] holds a digest for each part of a benchmark. Every run of a part, and every other program that
//! does the same work, must have the same digest; so the [`Checksum`] of all parts does not depend on the number of runs, or
//! on which other programs are installed. Answers whose number depends on the time are no part of it: of them the first ones
//! are, or what must be equal.
//!
//! Not against forgery: the hash is xxh3.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tidings_server::command_error::{CommandError, failed};
use xxhash_rust::xxh3::xxh3_64;

/// Answers in any order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest {
    count: u64,
    sum: u64,
}

impl Digest {
    /// So many answers, whose hashes have this sum.
    pub(crate) fn new(count: u64, sum: u64) -> Self {
        Self { count, sum }
    }

    /// Answers that are numbers.
    pub(crate) fn of_numbers(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut digest = Self::default();
        numbers.into_iter().for_each(|number| digest.add_number(number));
        digest
    }

    pub(crate) fn add(&mut self, answer: &[u8]) {
        *self = self.and(Self { count: 1, sum: hash(answer) });
    }

    /// Adds an answer that is a number: a nanosecond, for loops whose time is taken.
    #[inline]
    pub(crate) fn add_number(&mut self, number: u64) {
        *self = self.and(Self { count: 1, sum: mixed(number) });
    }

    /// The answers of both.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self { count: self.count.wrapping_add(other.count), sum: self.sum.wrapping_add(other.sum) }
    }

    /// The answers since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { count: self.count.wrapping_sub(before.count), sum: self.sum.wrapping_sub(before.sum) }
    }
}

/// The hash of an answer, for [`Digest::new`].
pub(crate) fn hash(answer: &[u8]) -> u64 {
    xxh3_64(answer)
}

/// The hash of an answer that is a number. The last step of SplitMix64: numbers that differ in one bit differ in about half of the bits of the result.
#[inline]
pub(crate) const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The answers of a benchmark, by its parts.
#[derive(Debug, Default)]
pub(crate) struct Answers(BTreeMap<String, Digest>);

impl Answers {
    /// Notes what a run of a part has computed.
    ///
    /// # Errors
    /// If it is nothing, or something else than in another run of this part.
    pub(crate) fn note(&mut self, part: &str, digest: Digest) -> Result<(), CommandError> {
        if digest.count == 0 {
            return Err(failed(format!("{part}: nothing was computed")));
        }
        let noted = *self.0.entry(part.to_owned()).or_insert(digest);
        if noted == digest {
            return Ok(());
        }
        Err(failed(format!(
            "{part}: one run has computed {} answers with the sum {:016x}, another one {} with {:016x}",
            noted.count, noted.sum, digest.count, digest.sum
        )))
    }

    /// The checksum of all parts.
    ///
    /// # Errors
    /// If no answer was noted.
    pub(crate) fn checksum(&self) -> Result<Checksum, CommandError> {
        if self.0.is_empty() {
            return Err(failed("the benchmark has noted no answer, so nobody can know what it has computed"));
        }
        let mut text = String::new();
        for (part, Digest { count, sum }) in &self.0 {
            text.push_str(&format!("{part}\0{count} {sum:016x}\n"));
        }
        Ok(Checksum(xxh3_64(text.as_bytes())))
    }
}

/// A checksum of everything that a benchmark has computed. Shown as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(answers: &[&str]) -> Digest {
        let mut digest = Digest::default();
        answers.iter().for_each(|answer| digest.add(answer.as_bytes()));
        digest
    }

    #[test]
    fn the_order_does_not_matter_and_every_answer_does() {
        let right = digest(&["a", "b", "c"]);
        assert_eq!(right, digest(&["c", "a", "b"]));
        assert_eq!(right, digest(&["a"]).and(digest(&["b", "c"])));
        assert_eq!(digest(&["b", "c"]), right.since(digest(&["a"])));
        for other in [&["a", "b"][..], &["a", "b", "d"], &["a", "b", "c", "c"], &["a", "a", "a"], &[]] {
            assert_ne!(right, digest(other), "{other:?}");
        }
        // An exclusive or would not tell these two.
        assert_ne!(digest(&["a", "a", "b"]), digest(&["c", "c", "b"]));
    }

    #[test]
    fn numbers_are_told_apart() {
        let right = Digest::of_numbers(1..=1000);
        assert_eq!(right, Digest::of_numbers((1..=1000).rev()));
        assert_ne!(right, Digest::of_numbers(2..=1001));
        // Their plain sums are equal.
        assert_ne!(Digest::of_numbers([1, 4]), Digest::of_numbers([2, 3]));
    }

    #[test]
    fn a_run_must_compute_the_same_as_the_one_before() {
        let mut answers = Answers::default();
        answers.note("part", digest(&["a"])).unwrap();
        answers.note("part", digest(&["a"])).unwrap();
        answers.note("other part", digest(&["b"])).unwrap();
        let error = answers.note("part", digest(&["b"])).unwrap_err().to_string();
        assert!(error.starts_with("part: one run has computed 1 answers"), "{error}");
        let error = answers.note("third", Digest::default()).unwrap_err().to_string();
        assert_eq!(error, "third: nothing was computed");
    }

    #[test]
    fn equal_answers_have_equal_checksums_and_others_another() {
        let checksum = |parts: &[(&str, &str)]| {
            let mut answers = Answers::default();
            parts.iter().for_each(|(part, answer)| answers.note(part, digest(&[answer])).unwrap());
            answers.checksum().map(|checksum| checksum.to_string())
        };
        let right = checksum(&[("one", "a"), ("two", "b")]).unwrap();
        assert_eq!(right.len(), 16);
        // In another order, and with a second run.
        assert_eq!(right, checksum(&[("two", "b"), ("one", "a"), ("two", "b")]).unwrap());
        for other in [&[("one", "b"), ("two", "a")][..], &[("one", "a")], &[("one", "a"), ("three", "b")]] {
            assert_ne!(right, checksum(other).unwrap(), "{other:?}");
        }
        assert!(checksum(&[]).unwrap_err().to_string().contains("no answer"));
    }
}
