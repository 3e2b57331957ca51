//! The POT file, from which translators start: every message once, untranslated.
//!
//! `msginit` makes a language's first PO file from it, and [`merge`](crate::merge) or `msgmerge` update a PO file after a
//! change. It has no date and no line numbers, so the same messages give the same bytes.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry as Slot, HashMap};

use crate::message::{Message, PLACEHOLDER_LENGTH};
use crate::po::{Catalogue, Entry, Header};
use crate::template::Template;

/// Two messages have the same text and context, and thus the same translation, but differ in plural text or count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} and {} have the text {msgid:?} and the same context, but not the same plural; give one a context",
    .references[0], .references[1]
)]
pub struct TemplateConflict {
    /// The text.
    pub msgid: String,
    /// Where the two messages are used.
    pub references: [String; 2],
}

/// Makes the POT file of these messages, in their order. Equal messages become one entry with all references and
/// comments; the least maximum of their lengths counts.
///
/// # Errors
/// When two messages have the same text and context, but different plurals.
pub fn pot<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Result<Catalogue, TemplateConflict> {
    let mut merged: Vec<Vec<&Message>> = Vec::new();
    let mut seen = HashMap::new();
    for message in messages {
        match seen.entry(message.template.key()) {
            Slot::Vacant(slot) => {
                slot.insert(merged.len());
                merged.push(vec![message]);
            }
            Slot::Occupied(slot) => {
                let alike = &mut merged[*slot.get()];
                if !alike[0].template.is_translated_as(&message.template) {
                    let references = [alike[0].reference.clone(), message.reference.clone()];
                    return Err(TemplateConflict { msgid: message.template.msgid().to_owned(), references });
                }
                alike.push(message);
            }
        }
    }
    let entries = merged.iter().map(|alike| entry(alike)).collect();
    Ok(Catalogue::from_entries(Header::default().into_entry(Vec::new()), entries))
}

fn entry(alike: &[&Message]) -> Entry {
    let template = &alike[0].template;
    let plural = template.msgid_plural();
    let has_placeholder = [Some(template.msgid()), plural].into_iter().flatten().any(|text| text.contains("%{"));
    let mut references = Vec::new();
    for message in alike {
        add(&mut references, &message.reference);
    }
    Entry {
        extracted: remarks(template, alike),
        references,
        flags: if has_placeholder { BTreeSet::from(["ruby-format".to_owned()]) } else { BTreeSet::new() },
        msgctxt: template.msgctxt().map(str::to_owned),
        msgid: template.msgid().to_owned(),
        msgid_plural: plural.map(str::to_owned),
        msgstr: vec![String::new(); 1 + usize::from(plural.is_some())],
        ..Entry::default()
    }
}

/// What translators are told: the authors' comments, which number chooses the form, and the maximum length.
fn remarks(template: &Template, alike: &[&Message]) -> Vec<String> {
    let mut remarks = Vec::new();
    for line in alike.iter().filter_map(|message| message.comment.as_deref()).flat_map(str::lines) {
        add(&mut remarks, line);
    }
    if let Some(count) = template.count() {
        remarks.push(format!("The number %{{{count}}} chooses the plural form."));
    }
    if let Some(max) = alike.iter().filter_map(|message| message.length_max).min() {
        let placeholders = if template.placeholders().next().is_some() {
            format!("; a placeholder counts as {PLACEHOLDER_LENGTH}")
        } else {
            String::new()
        };
        remarks.push(format!("At most {max} characters{placeholders}."));
    }
    remarks
}

/// Adds a line of a comment, once. A backslash at its end would join it with the next line.
fn add(lines: &mut Vec<String>, line: &str) {
    let line = line.replace(char::is_control, " ");
    let line = line.trim_end_matches(|end: char| end == '\\' || end.is_ascii_whitespace()).trim_ascii_start();
    if !line.is_empty() && !lines.iter().any(|known| known == line) {
        lines.push(line.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Plural;

    #[test]
    fn equal_messages_become_one_entry_and_a_conflict_is_named() {
        let plain = Template::new(None, "Goal for %{team}!", None).unwrap();
        let plain = Message {
            comment: Some("Shown on a lock screen. \\\nShort!".into()),
            length_max: Some(40),
            ..Message::new(plain, "goal.title")
        };
        let derby = Message {
            reference: "derby.title".into(),
            comment: Some("Short!".into()),
            length_max: Some(30),
            ..plain.clone()
        };
        let other = Message::new(Template::new(Some("rugby"), "Goal for %{team}!", None).unwrap(), "try.title");
        let text = pot([&plain, &other, &derby]).unwrap().to_po();
        let (_, entries) = text.split_once("\n\n").unwrap();
        assert_eq!(
            entries,
            "#. Shown on a lock screen.\n#. Short!\n#. At most 30 characters; a placeholder counts as 8.\n\
             #: goal.title\n#: derby.title\n#, ruby-format\nmsgid \"Goal for %{team}!\"\nmsgstr \"\"\n\n\
             #: try.title\n#, ruby-format\nmsgctxt \"rugby\"\nmsgid \"Goal for %{team}!\"\nmsgstr \"\"\n"
        );

        let plural = Plural { msgid_plural: "Goals for %{team}!", count: "goals" };
        let plural = Message::new(Template::new(None, "Goal for %{team}!", Some(plural)).unwrap(), "goals.title");
        let conflict = pot([&plain, &plural]).unwrap_err();
        assert!(conflict.to_string().starts_with("goal.title and goals.title have the text"), "{conflict}");
        assert!(pot([&plural]).unwrap().to_po().contains("#. The number %{goals} chooses the plural form.\n"));
    }
}
