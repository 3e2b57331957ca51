//! The pseudo-locales of the demo's messages.

use tidings_gettext::{Catalogue, Pseudo, check, pot};

use crate::{demo, gnu, msgfmt_verdict};

#[test]
fn every_text_of_a_pseudo_locale_is_correct() {
    let messages = demo::messages();
    let pot = pot(&messages).unwrap();
    for (pseudo, form_count) in [(Pseudo::Accented, 2), (Pseudo::RightToLeft, 6)] {
        let text = pseudo.catalogue(&pot).to_po();
        assert_eq!(msgfmt_verdict(text.as_bytes()), Ok(()));
        assert!(gnu("msgcmp", &[], &[&text, &pot.to_po()]).is_ok(), "every message is translated");
        let findings = check(&pseudo.locale(), text.as_bytes(), &messages);
        assert!(findings.is_empty(), "{findings:?}");
        assert_eq!(Catalogue::parse(text.as_bytes()).unwrap().plural_rule().form_count(), form_count);
    }
}

#[test]
fn an_accented_text_is_a_third_longer() {
    let pot = pot(&demo::messages()).unwrap();
    for entry in &Pseudo::Accented.catalogue(&pot).entries()[1..] {
        let source =
            entry.msgid.split("%{").map(|part| part.rsplit('}').next().unwrap().chars().count()).sum::<usize>();
        let added = entry.msgstr[0].chars().count() - entry.msgid.chars().count();
        if source >= 10 && !entry.msgid.contains("%%") {
            assert!((30..=40).contains(&(added * 100 / source)), "{added} of {source}: {}", entry.msgstr[0]);
        }
    }
}
