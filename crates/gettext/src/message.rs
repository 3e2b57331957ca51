//! A message as its author wrote it: the source text, and what a translator must know about it.

use std::collections::HashSet;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::error::{PlaceholderError, TemplateError};
use crate::pieces::{Piece, pieces};
use crate::po::{Catalogue, Entry};
use crate::template::Template;

/// What a placeholder counts as in a text's length, in characters. Nobody knows a value before it is sent: names of
/// teams and players have 5 to 15 characters, minutes and goals have 1 or 2.
pub const PLACEHOLDER_LENGTH: usize = 8;

/// A source text with its place and the remarks for translators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The source text.
    pub template: Template,
    /// Where the text is used, for example `goal.title`. It stays as it is when the text changes: by it `merge` finds
    /// the translation of the earlier text.
    pub reference: String,
    /// What translators should know. It may have several lines.
    pub comment: Option<String>,
    /// The longest text allowed, in user-perceived characters as [`text_length`] counts them.
    pub length_max: Option<usize>,
}

impl Message {
    /// A message without remarks.
    pub fn new(template: Template, reference: impl Into<String>) -> Self {
        Self { template, reference: reference.into(), comment: None, length_max: None }
    }

    /// A name that events may show in each language, such as that of a team: the value
    /// `{"name": "Sweden", "context": "team"}` finds its translation. The reference is `names` or `names.CONTEXT`.
    ///
    /// # Errors
    /// When the name is no source text, or has a placeholder: an event shows such a name as it is.
    pub fn of_name(name: &str, context: Option<&str>) -> Result<Self, TemplateError> {
        let template = Template::new(context, name, None)?;
        if let Some(at) = name.find('%') {
            return Err(PlaceholderError { at }.into());
        }
        let reference = context.map_or_else(|| "names".to_owned(), |context| format!("names.{context}"));
        Ok(Self::new(template, reference))
    }

    /// The message, and behind it one for each value that its template selects by. The reference of a value's message is
    /// that of the message with `|VALUE`.
    pub fn with_values(self) -> Vec<Self> {
        let parameter = self.template.selects_by().unwrap_or_default();
        let of_value = |(value, template): (&str, &Template)| {
            let told = format!(
                "Only where {parameter} is {value:?}. It may stay empty: then the translation without this value is taken."
            );
            let comment = self.comment.iter().cloned().chain([told]).collect::<Vec<_>>().join("\n");
            let reference = format!("{}|{value}", self.reference);
            Self { template: template.clone(), reference, comment: Some(comment), length_max: self.length_max }
        };
        let values: Vec<_> = self.template.values().map(of_value).collect();
        std::iter::once(self).chain(values).collect()
    }

    /// The length of the longer source text, if it is over the maximum.
    pub fn excess_length(&self) -> Option<usize> {
        let texts = [Some(self.template.msgid()), self.template.msgid_plural()];
        let length = texts.into_iter().flatten().map(text_length).max()?;
        self.length_max.is_some_and(|max| length > max).then_some(length)
    }
}

/// The keys of the messages for a value that need no translation of their own, because the message without the value has
/// one.
pub(crate) fn inheriting<'a>(catalogue: &Catalogue, messages: &'a [Message]) -> HashSet<(Option<&'a str>, &'a str)> {
    let translated: HashSet<_> =
        catalogue.entries().iter().filter(|entry| entry.is_translated()).map(Entry::key).collect();
    let key = |template: &'a Template| (template.msgctxt(), template.msgid());
    let selecting = messages.iter().map(|message| &message.template).filter(|it| translated.contains(&key(it)));
    selecting.flat_map(Template::values).map(|(_, template)| key(template)).collect()
}

/// The length of a text in user-perceived characters (extended grapheme clusters, UAX #29). A placeholder counts as
/// [`PLACEHOLDER_LENGTH`], and `%%` as one.
pub fn text_length(text: &str) -> usize {
    characters(text).map(|(_, length)| length).sum()
}

/// The byte at which a text of more than `max` characters is over the maximum.
pub(crate) fn excess_start(text: &str, max: usize) -> Option<usize> {
    let mut length = 0;
    characters(text).find_map(|(at, each)| {
        length += each;
        (length > max).then_some(at)
    })
}

/// Where each character or placeholder begins, and what it counts as.
fn characters(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    pieces(text).flat_map(move |piece| {
        let (start, literal, whole) = match piece {
            Piece::Literal(text) => (at, text, None),
            Piece::Percent => (at, "", Some((at, 1))),
            Piece::Placeholder(_) => (at, "", Some((at, PLACEHOLDER_LENGTH))),
        };
        at += piece.as_str().len();
        whole.into_iter().chain(literal.grapheme_indices(true).map(move |(offset, _)| (start + offset, 1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_source_text_without_placeholders() {
        let name = Message::of_name("Sweden", Some("team")).unwrap();
        assert_eq!((name.reference.as_str(), name.template.msgctxt()), ("names.team", Some("team")));
        assert_eq!(Message::of_name("Sweden", None).unwrap().reference, "names");
        assert!(Message::of_name("", None).is_err() && Message::of_name("50 %{x}", None).is_err());
        assert!(Message::of_name("100 %%", None).is_err(), "the event has one percent sign");
    }

    #[test]
    fn a_length_is_in_characters_as_people_see_them() {
        for (text, length) in
            [("", 0), ("Tor!", 4), ("e\u{301}", 1), ("👩‍👩‍👧 👍🏽", 3), ("50%% of %{team}%", 16), ("%{a", 3)]
        {
            assert_eq!(text_length(text), length, "{text}");
        }
        assert_eq!(excess_start("éé%{team}!", 10), Some("éé%{team}".len()));
        assert_eq!([excess_start("éé%{team}!", 9), excess_start("abc", 3)], [Some(4), None]);
    }
}
