//! The POT file, from which translators start: every template once, untranslated.
//!
//! `msginit` makes a language's first PO file from it, and `msgmerge` updates a PO file after a change. Its header has the
//! plural rule of the source language, so `msgfmt -c` accepts it. It has no date, so the same templates give the same
//! bytes.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry as Slot, HashMap};

use crate::po::{Entry, to_text};
use crate::template::Template;

const HEADER: &str = "Project-Id-Version: \n\
    PO-Revision-Date: \n\
    Last-Translator: \n\
    Language-Team: \n\
    Language: \n\
    MIME-Version: 1.0\n\
    Content-Type: text/plain; charset=UTF-8\n\
    Content-Transfer-Encoding: 8bit\n\
    Plural-Forms: nplurals=2; plural=n != 1;\n";

/// Two templates have the same text and context, and thus the same translation, but differ in plural text or count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two templates have the text {msgid:?} and the same context, but not the same plural; give one a context")]
pub struct TemplateConflict {
    /// The text.
    pub msgid: String,
}

/// Writes the POT file of these templates, in their order. Equal templates become one entry.
///
/// # Errors
/// When two templates have the same text and context, but different plurals.
pub fn pot<'a>(templates: impl IntoIterator<Item = &'a Template>) -> Result<String, TemplateConflict> {
    let mut entries = vec![Entry { msgstr: vec![HEADER.to_owned()], ..Entry::default() }];
    let mut seen = HashMap::new();
    for template in templates {
        match seen.entry(template.key()) {
            Slot::Occupied(first) if *first.get() == template => {}
            Slot::Occupied(_) => return Err(TemplateConflict { msgid: template.msgid().to_owned() }),
            Slot::Vacant(slot) => {
                slot.insert(template);
                entries.push(entry(template));
            }
        }
    }
    Ok(to_text(&entries))
}

fn entry(template: &Template) -> Entry {
    let plural = template.msgid_plural();
    let has_placeholder = [Some(template.msgid()), plural].into_iter().flatten().any(|text| text.contains("%{"));
    Entry {
        flags: if has_placeholder { BTreeSet::from(["ruby-format".to_owned()]) } else { BTreeSet::new() },
        msgctxt: template.msgctxt().map(str::to_owned),
        msgid: template.msgid().to_owned(),
        msgid_plural: plural.map(str::to_owned),
        msgstr: vec![String::new(); 1 + usize::from(plural.is_some())],
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Plural;

    #[test]
    fn equal_templates_become_one_entry_and_a_conflict_is_named() {
        let plain = Template::new(None, "Goal for %{team}!", None).unwrap();
        let other = Template::new(Some("rugby"), "Goal for %{team}!", None).unwrap();
        let text = pot([&plain, &other, &plain]).unwrap();
        assert_eq!(text.matches("msgid \"Goal").count(), 2);
        assert!(
            text.ends_with("#, ruby-format\nmsgctxt \"rugby\"\nmsgid \"Goal for %{team}!\"\nmsgstr \"\"\n"),
            "{text}"
        );

        let plural = Plural { msgid_plural: "Goals for %{team}!", count: "goals" };
        let plural = Template::new(None, "Goal for %{team}!", Some(plural)).unwrap();
        assert_eq!(pot([&plain, &plural]), Err(TemplateConflict { msgid: plain.msgid().to_owned() }));
    }
}
