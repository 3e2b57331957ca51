//! Judges: what was acknowledged is there, once, in order, where the answer said. Each returns what is wrong, in words.
//!
//! The tests below plant each fault, and see each judge find it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

/// Where an event is, as its acknowledgement said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// In the server's journal.
    pub position: u64,
    /// In the channel.
    pub offset: u64,
}

/// A publication, as a reader got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    /// 0 where there is none.
    pub offset: u64,
    /// Of the event, or the one in the data.
    pub id: String,
}

impl Got {
    /// Reads a publication of the client protocol.
    ///
    /// # Panics
    /// If it has no id.
    pub fn read(publication: &Value) -> Self {
        let id = publication["tags"]["event"].as_str().or_else(|| publication["data"]["id"].as_str());
        let id = id.unwrap_or_else(|| panic!("a publication of nobody: {publication}")).to_owned();
        Self { offset: publication["offset"].as_u64().unwrap_or_default(), id }
    }
}

/// Each acknowledged event is at the position that was acknowledged, and no two are at one. `found` has the position of each
/// event that the server was asked for.
pub fn positions(acks: &BTreeMap<String, Ack>, found: &BTreeMap<String, Option<u64>>) -> Vec<String> {
    let (mut wrongs, mut taken) = (Vec::new(), HashMap::new());
    for (id, ack) in acks {
        let position = found.get(id).copied().flatten();
        if position != Some(ack.position) {
            wrongs.push(format!("{id} was acknowledged as {ack:?} and is at {position:?}"));
        }
        if let Some(other) = taken.insert(ack.position, id) {
            wrongs.push(format!("{other} and {id} have one position, {}", ack.position));
        }
    }
    wrongs
}

/// Everything that a reader got was published, came once, and came where it was acknowledged. `acks` are the offsets of what was
/// acknowledged, `doubts` may have been published.
pub fn reader(acks: &BTreeMap<String, u64>, doubts: &BTreeSet<String>, got: &[Got]) -> Vec<String> {
    let (mut wrongs, mut seen) = (Vec::new(), BTreeSet::new());
    for one in got {
        if !seen.insert(&one.id) {
            wrongs.push(format!("{} came twice", one.id));
        }
        match acks.get(&one.id) {
            Some(offset) if *offset != one.offset => {
                wrongs.push(format!("{} was acknowledged at {offset} and came at {}", one.id, one.offset));
            }
            None if !doubts.contains(&one.id) => wrongs.push(format!("{} was not published", one.id)),
            _ => {}
        }
    }
    wrongs
}

/// A reader got everything that was acknowledged at `from` or a higher offset.
pub fn complete(acks: &BTreeMap<String, u64>, from: u64, got: &[Got]) -> Vec<String> {
    let seen: BTreeSet<&str> = got.iter().map(|one| one.id.as_str()).collect();
    let owed = acks.iter().filter(|(_, offset)| **offset >= from);
    owed.filter(|(id, _)| !seen.contains(id.as_str()))
        .map(|(id, offset)| format!("{id} at {offset} is missing"))
        .collect()
}

/// Offsets have no gap, no repetition and no other order; the first one follows `before`.
pub fn dense(mut before: u64, got: &[Got]) -> Vec<String> {
    let mut wrongs = Vec::new();
    for one in got {
        if one.offset != before + 1 {
            wrongs.push(format!("{} at {} comes after {before}", one.id, one.offset));
        }
        before = one.offset;
    }
    wrongs
}

/// A reader has all of a history from the first publication on that it got, and nothing else.
pub fn copy(history: &[Got], got: &[Got]) -> Vec<String> {
    let first = got.first().map_or(u64::MAX, |one| one.offset);
    let wanted: Vec<&Got> = history.iter().filter(|one| one.offset >= first).collect();
    let differ = wanted.iter().zip(got).filter(|(wanted, got)| **wanted != *got);
    let mut wrongs: Vec<String> =
        differ.map(|(wanted, got)| format!("{got:?} is in the place of {wanted:?}")).collect();
    if wanted.is_empty() || wanted.len() != got.len() {
        wrongs.push(format!("{} came, {} are there from {first} on", got.len(), wanted.len()));
    }
    wrongs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acks<T>(list: &[(&str, T)]) -> BTreeMap<String, T>
    where
        T: Copy,
    {
        list.iter().map(|(id, value)| ((*id).to_owned(), *value)).collect()
    }

    fn got(list: &[(&str, u64)]) -> Vec<Got> {
        list.iter().map(|(id, offset)| Got { offset: *offset, id: (*id).to_owned() }).collect()
    }

    fn must_find(what: &str, wrongs: &[String]) {
        assert!(!wrongs.is_empty(), "{what} is not found");
    }

    #[test]
    fn positions_that_are_lost_moved_or_doubled_are_found() {
        let ack = |position| Ack { position, offset: position };
        let three = acks(&[("a", ack(7)), ("b", ack(8)), ("c", ack(9))]);
        let at = |a, b, c| acks(&[("a", a), ("b", b), ("c", c)]);
        assert_eq!(positions(&three, &at(Some(7), Some(8), Some(9))), [""; 0]);
        must_find("lost", &positions(&three, &at(Some(7), None, Some(9))));
        must_find("moved", &positions(&three, &at(Some(7), Some(8), Some(10))));
        must_find("never asked for", &positions(&three, &acks(&[("a", Some(7)), ("b", Some(8))])));
        let twice = acks(&[("a", ack(7)), ("b", ack(7)), ("c", ack(9))]);
        must_find("two in one place", &positions(&twice, &at(Some(7), Some(7), Some(9))));
    }

    #[test]
    fn what_a_reader_may_not_have_got_is_found() {
        let (two, doubts) = (acks(&[("a", 1), ("c", 3)]), BTreeSet::from(["b".to_owned()]));
        let judge = |list: &[(&str, u64)]| reader(&two, &doubts, &got(list));
        assert_eq!(judge(&[("a", 1), ("b", 2), ("c", 3)]), [""; 0]);
        assert_eq!(judge(&[("a", 1)]), [""; 0], "what is missing is for another judge");
        must_find("twice", &judge(&[("a", 1), ("c", 3), ("c", 3)]));
        must_find("twice, the second time elsewhere", &judge(&[("b", 1), ("b", 2)]));
        must_find("never published", &judge(&[("a", 1), ("x", 2)]));
        must_find("elsewhere", &judge(&[("a", 1), ("c", 2)]));
    }

    #[test]
    fn what_a_reader_did_not_get_is_found() {
        let three = acks(&[("a", 1), ("b", 2), ("c", 3)]);
        let judge = |from, list: &[(&str, u64)]| complete(&three, from, &got(list));
        assert_eq!(judge(0, &[("a", 1), ("b", 2), ("c", 3)]), [""; 0]);
        assert_eq!(judge(2, &[("b", 2), ("c", 3)]), [""; 0], "it came later");
        must_find("the first is lost", &judge(0, &[("b", 2), ("c", 3)]));
        must_find("one between is lost", &judge(0, &[("a", 1), ("c", 3)]));
        must_find("the last is lost", &judge(2, &[("b", 2)]));
        must_find("everything is lost", &judge(0, &[]));
    }

    #[test]
    fn offsets_that_do_not_follow_each_other_are_found() {
        assert_eq!(dense(4, &got(&[("a", 5), ("b", 6), ("c", 7)])), [""; 0]);
        assert_eq!(dense(4, &[]), [""; 0]);
        for (what, list) in [
            ("a gap at the beginning", [("a", 6), ("b", 7), ("c", 8)]),
            ("a gap", [("a", 5), ("b", 7), ("c", 8)]),
            ("a repetition", [("a", 5), ("b", 5), ("c", 6)]),
            ("another order", [("b", 6), ("a", 5), ("c", 7)]),
        ] {
            must_find(what, &dense(4, &got(&list)));
        }
    }

    #[test]
    fn a_copy_that_is_none_is_found() {
        let history = got(&[("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(copy(&history, &history), [""; 0]);
        assert_eq!(copy(&history, &history[1..]), [""; 0], "it came later");
        must_find("nothing", &copy(&history, &[]));
        must_find("the last is lost", &copy(&history, &history[..2]));
        must_find("one between is lost", &copy(&history, &got(&[("a", 1), ("c", 3)])));
        must_find("another in its place", &copy(&history, &got(&[("a", 1), ("x", 2), ("c", 3)])));
        must_find("another order", &copy(&history, &got(&[("a", 1), ("c", 3), ("b", 2)])));
        must_find("one too many", &copy(&history, &got(&[("b", 2), ("c", 3), ("d", 4)])));
        must_find("in another place", &copy(&history, &got(&[("b", 1), ("c", 2)])));
    }
}
