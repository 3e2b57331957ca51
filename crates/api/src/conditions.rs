//! Conditional requests (RFC 9110, 13.1): `If-Match` and `If-None-Match` against the tag of a device.
//!
//! A device's tag is its revision, `"r7"`: each change of the device gives it a new one that it never had before. The
//! tag is the same in every format. So a caller that sends back the tag it has read overwrites no change by another
//! caller. `If-None-Match: *` registers a device but does not replace one.
//!
//! Tags that are not ours match nothing. As in the standard, a weak tag (`W/"r7"`) never satisfies `If-Match`, but
//! counts like any other for `If-None-Match`. Several lines of one field are one list.

use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;

use crate::problem::{Invalid, Kind, Problem};

/// The conditions of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Conditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

/// The states that a field names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    /// `*`: any state of an existing device.
    Any,
    /// Those of our tags that are listed.
    Listed(Vec<Tag>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag {
    revision: u64,
    is_weak: bool,
}

/// The value of `ETag` for a device of this revision.
pub(crate) fn tag(revision: u64) -> HeaderValue {
    HeaderValue::try_from(tag_text(revision)).expect("quotes, a letter and digits")
}

fn tag_text(revision: u64) -> String {
    format!("\"r{revision}\"")
}

impl Conditions {
    /// Whether the request has a condition.
    pub(crate) fn are_stated(&self) -> bool {
        *self != Self::default()
    }

    /// Checks the conditions before a change; `current` is the device's revision, `None` if it is not registered.
    ///
    /// # Errors
    /// 412 that names the device's tag.
    pub(crate) fn hold(&self, current: Option<u64>) -> Result<(), Problem> {
        let matches = |tags: &Tags, weak| current.is_some_and(|current| tags.match_with(current, weak));
        if self.if_match.as_ref().is_some_and(|tags| !matches(tags, false)) {
            return Err(failed(IF_MATCH, current));
        }
        if self.if_none_match.as_ref().is_some_and(|tags| matches(tags, true)) {
            return Err(failed(IF_NONE_MATCH, current));
        }
        Ok(())
    }

    /// Checks the conditions before the device is shown. False: the caller has this state already; the answer is 304.
    ///
    /// # Errors
    /// Like [`Conditions::hold`], for `If-Match` only.
    pub(crate) fn is_news(&self, current: u64) -> Result<bool, Problem> {
        Self { if_match: self.if_match.clone(), if_none_match: None }.hold(Some(current))?;
        Ok(self.if_none_match.as_ref().is_none_or(|tags| !tags.match_with(current, true)))
    }
}

fn failed(field: HeaderName, current: Option<u64>) -> Problem {
    let name = if field == IF_MATCH { "If-Match" } else { "If-None-Match" };
    let problem = |detail| Problem::new(Kind::PreconditionFailed, detail).field(name);
    match current.map(tag_text) {
        Some(tag) => problem(format!("{name}: the device has the tag {tag}")).value(tag),
        None => problem(format!("{name}: the device is not registered")),
    }
}

impl Tags {
    fn match_with(&self, current: u64, weak: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(tags) => tags.iter().any(|tag| tag.revision == current && (weak || !tag.is_weak)),
        }
    }

    /// The lines of one field: `*`, or a list of tags (RFC 9110, 5.6.1 and 8.8.3). `None`: neither.
    fn read<'h>(lines: impl Iterator<Item = &'h HeaderValue>) -> Option<Self> {
        let lines: Vec<&[u8]> = lines.map(|line| line.as_bytes().trim_ascii()).collect();
        if lines == [b"*"] {
            return Some(Self::Any);
        }
        let mut tags = Vec::new();
        let mut count = 0;
        for mut rest in lines {
            while !rest.is_empty() {
                // Empty entries are no entries.
                if let Some(behind) = rest.strip_prefix(b",") {
                    rest = behind.trim_ascii_start();
                    continue;
                }
                let (tag, behind) = entity_tag(rest)?;
                tags.extend(tag);
                count += 1;
                rest = behind.trim_ascii_start();
                if !rest.is_empty() && !rest.starts_with(b",") {
                    return None;
                }
            }
        }
        (count > 0).then_some(Self::Listed(tags))
    }
}

/// The tag at the beginning of `text`, if it is one of ours, and the rest. `None`: `text` does not begin with a tag.
fn entity_tag(text: &[u8]) -> Option<(Option<Tag>, &[u8])> {
    let (is_weak, quoted) = text.strip_prefix(b"W/").map_or((false, text), |quoted| (true, quoted));
    let rest = quoted.strip_prefix(b"\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let (opaque, behind) = (rest.get(..end)?, rest.get(end + 1..)?);
    let is_tag_byte = |byte: &u8| !matches!(byte, 0..=b' ' | 0x7f);
    opaque.iter().all(is_tag_byte).then(|| (revision(opaque).map(|revision| Tag { revision, is_weak }), behind))
}

/// The revision in a tag, only in the spelling in which it was given out.
fn revision(opaque: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(opaque.strip_prefix(b"r")?).ok()?;
    digits.parse().ok().filter(|revision: &u64| revision.to_string() == digits)
}

impl<S: Send + Sync> FromRequestParts<S> for Conditions {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let read = |field: HeaderName, name| {
            if !parts.headers.contains_key(&field) {
                return Ok(None);
            }
            let wrong = || Invalid::new(name, "must be * or a list of entity tags in quotation marks, such as \"r7\"");
            Tags::read(parts.headers.get_all(field).iter()).map(Some).ok_or_else(wrong)
        };
        Ok(Self { if_match: read(IF_MATCH, "If-Match")?, if_none_match: read(IF_NONE_MATCH, "If-None-Match")? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &[&str]) -> Option<Tags> {
        let lines: Vec<HeaderValue> = lines.iter().map(|line| HeaderValue::from_str(line).unwrap()).collect();
        Tags::read(lines.iter())
    }

    #[test]
    fn a_field_is_a_star_or_a_list_of_tags() {
        let listed = |tags: &[(u64, bool)]| {
            let tag = |(revision, is_weak): &(u64, bool)| Tag { revision: *revision, is_weak: *is_weak };
            Some(Tags::Listed(tags.iter().map(tag).collect()))
        };
        for (lines, expected) in [
            (&["*"][..], Some(Tags::Any)),
            (&[" * "], Some(Tags::Any)),
            (&["\"r7\""], listed(&[(7, false)])),
            (&["W/\"r7\""], listed(&[(7, true)])),
            (&["\"r1\",W/\"r2\" , \"r3\""], listed(&[(1, false), (2, true), (3, false)])),
            (&["\"r1\"", "\"r2\""], listed(&[(1, false), (2, false)])),
            (&[",, \"r1\",,"], listed(&[(1, false)])),
            // Foreign tags, also with characters that could end a list.
            (&["\"a,b\", \"r1\""], listed(&[(1, false)])),
            (&["\"\""], listed(&[])),
            (&["\"r07\", \"R7\", \"r\", \"r-1\", \"r99999999999999999999\""], listed(&[])),
            (&[""], None),
            (&[","], None),
            (&["r7"], None),
            (&["\"r7"], None),
            (&["\"r7\" \"r8\""], None),
            (&["*, \"r7\""], None),
            (&["*", "*"], None),
            (&["w/\"r7\""], None),
            (&["\"a b\""], None),
        ] {
            assert_eq!(read(lines), expected, "{lines:?}");
        }
    }

    /// RFC 9110, 13.1.1 and 13.1.2, as a table: a field's value and the device's state.
    #[test]
    fn conditions_hold_as_the_standard_says() {
        let conditions = |if_match: &[&str], if_none_match: &[&str]| {
            let tags = |lines: &[&str]| (!lines.is_empty()).then(|| read(lines).unwrap());
            Conditions { if_match: tags(if_match), if_none_match: tags(if_none_match) }
        };
        for (if_match, if_none_match, current, held) in [
            (&[][..], &[][..], None, true),
            (&[], &[], Some(7), true),
            (&["*"], &[], Some(7), true),
            (&["*"], &[], None, false),
            (&["\"r6\", \"r7\""], &[], Some(7), true),
            (&["\"r6\""], &[], Some(7), false),
            (&["W/\"r7\""], &[], Some(7), false),
            (&["\"r7\""], &[], None, false),
            (&[], &["*"], None, true),
            (&[], &["*"], Some(7), false),
            (&[], &["\"r7\""], Some(7), false),
            (&[], &["W/\"r7\""], Some(7), false),
            (&[], &["\"r6\", \"other\""], Some(7), true),
            (&["\"r7\""], &["\"r7\""], Some(7), false),
        ] {
            let stated = conditions(if_match, if_none_match);
            assert_eq!(stated.hold(current).is_ok(), held, "{if_match:?} {if_none_match:?} {current:?}");
            assert_eq!(stated.are_stated(), !(if_match.is_empty() && if_none_match.is_empty()));
        }
        let is_news = |if_match: &[&str], if_none_match: &[&str]| conditions(if_match, if_none_match).is_news(7).ok();
        assert_eq!((is_news(&[], &["W/\"r7\""]), is_news(&[], &["*"])), (Some(false), Some(false)));
        assert_eq!((is_news(&[], &["\"r8\""]), is_news(&[], &[])), (Some(true), Some(true)));
        assert_eq!((is_news(&["\"r8\""], &["\"r7\""]), is_news(&["\"r7\""], &[])), (None, Some(true)));
    }

    proptest! {
        /// Any value is read without a panic, and a tag of ours is found anywhere in a list.
        #[test]
        fn any_list_is_read(any in prop::collection::vec("[\"W/*, r0-9a-\u{ff}]{0,12}", 0..4), revision: u64, weak: bool) {
            let lines: Vec<HeaderValue> = any.iter().filter_map(|line| HeaderValue::from_bytes(line.as_bytes()).ok()).collect();
            let alone = Tags::read(lines.iter());
            let mut own = tag(revision).as_bytes().to_vec();
            if weak {
                own.splice(0..0, *b"W/");
            }
            let with_own = lines.into_iter().chain([HeaderValue::from_bytes(&own).unwrap()]).collect::<Vec<_>>();
            if let Some(Tags::Listed(_)) = alone {
                let tags = Tags::read(with_own.iter()).unwrap();
                prop_assert!(tags.match_with(revision, true));
                prop_assert!(weak || tags.match_with(revision, false));
            }
        }
    }
}
