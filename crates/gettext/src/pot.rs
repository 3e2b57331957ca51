//! The file translators start from: every template once, untranslated (a POT file).
//!
//! `msginit` makes a language's first PO file of it, `msgmerge` brings a changed one up to date. It names the rule of
//! the source language, so that it is itself a file `msgfmt -c` accepts, and no date: the same templates give the same
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

/// Two templates share text and context, and with them their translation, but not plural text and count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two templates have the text {msgid:?} and the same context, but not the same plural; give one a context")]
pub struct TemplateConflict {
    /// The text.
    pub msgid: String,
}

/// Writes the POT file of these templates, in their order; templates that are alike become one entry.
///
/// # Errors
/// When two templates would need one entry with different contents.
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
    fn templates_alike_become_one_entry_and_templates_at_odds_are_named() {
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
