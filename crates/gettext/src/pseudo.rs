//! Pseudo-locales: catalogues in languages that nobody speaks, made from the POT file.
//!
//! With one of them on a phone, an app shows what is not translated, what has no room, and what does not turn round in a
//! language that is written right to left. Nobody has to translate anything first. Both are named as Android names them.
//!
//! Placeholders, `%%` and newlines stay as they are, so each text passes [`check`](crate::check()) and `msgfmt -c`. A text
//! that would be longer than a notification can be stays as it is.

use tidings_types::Locale;

use crate::languages::plural_forms;
use crate::limits::TEXT_BYTES_MAX;
use crate::pieces::{Piece, pieces};
use crate::plural::PluralRule;
use crate::po::{Catalogue, Entry};

/// A language that nobody speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pseudo {
    /// `en-XA`: in brackets, with accents, and longer by a third, as a translation from English often is. It has two
    /// plural forms.
    Accented,
    /// `ar-XB`: every word is written right to left. It has the six plural forms of Arabic.
    RightToLeft,
}

/// What is added to a text of this many characters, brackets included: 35 %, at least the brackets.
fn padding(length: usize) -> usize {
    ((length * 35 + 50) / 100).max(2)
}

/// What a text is made longer with. A reader sees at once that it is not a part of the message.
const FILLER: &str = " ǿɳḗ ŧẇǿ ŧħřḗḗ ƒǿŭř ƒīṽḗ şīẋ şḗṽḗɳ ḗīɠħŧ ɳīɳḗ ŧḗɳ";

/// The letters of [`Pseudo::Accented`] for `a` to `z` and `A` to `Z`.
const SMALL: &str = "åƀçđḗƒɠħīĵķŀḿɳǿƥɋřşŧŭṽẇẋẏẑ";
const CAPITAL: &str = "ÅƁÇĐḖƑƓĦĪĴĶĿḾȠǾƤɊŘŞŦŬṼẆẊẎẐ";

/// Right-to-left override, and pop directional formatting.
const OVERRIDE: char = '\u{202E}';
const POP: char = '\u{202C}';

impl Pseudo {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Accented, Self::RightToLeft];

    /// The locale.
    pub fn locale(self) -> Locale {
        let name = match self {
            Self::Accented => "en-XA",
            Self::RightToLeft => "ar-XB",
        };
        Locale::new(name).expect("a language and a region")
    }

    /// The catalogue of this language for all messages of a POT file.
    pub fn catalogue(self, pot: &Catalogue) -> Catalogue {
        let mut catalogue = Catalogue::empty(&self.locale());
        let rule = plural_forms(&self.locale()).and_then(|rule| PluralRule::parse(rule).ok()).unwrap_or_default();
        let messages = pot.entries().iter().filter(|entry| !entry.obsolete && !entry.is_header());
        catalogue.extend(messages.map(|source| self.entry(source, &rule)).collect());
        catalogue
    }

    fn entry(self, source: &Entry, rule: &PluralRule) -> Entry {
        let text = |form: usize| match &source.msgid_plural {
            Some(plural) if rule.only(form) != Some(1) => self.text(plural),
            _ => self.text(&source.msgid),
        };
        let forms = if source.msgid_plural.is_some() { rule.form_count() } else { 1 };
        Entry { line: 0, msgstr: (0..forms).map(text).collect(), ..source.clone() }
    }

    fn text(self, source: &str) -> String {
        let inner = source.trim_matches('\n');
        if inner.is_empty() {
            return source.to_owned();
        }
        let changed = match self {
            Self::Accented => accented(inner),
            Self::RightToLeft => right_to_left(inner),
        };
        let start = source.len() - source.trim_start_matches('\n').len();
        let newlines = |count: usize| "\n".repeat(count);
        let text = newlines(start) + &changed + &newlines(source.len().saturating_sub(start + inner.len()));
        if text.len() > TEXT_BYTES_MAX { source.to_owned() } else { text }
    }
}

fn accented(source: &str) -> String {
    let mut text = "[".to_owned();
    let mut length = 0;
    for piece in pieces(source) {
        match piece {
            Piece::Literal(literal) => {
                length += literal.chars().count();
                text.extend(literal.chars().map(accent));
            }
            Piece::Percent | Piece::Placeholder(_) => text.push_str(piece.as_str()),
        }
    }
    text.extend(FILLER.chars().cycle().take(padding(length) - 2));
    text + "]"
}

fn accent(letter: char) -> char {
    let of = |letters: &str, first: char| letters.chars().nth(letter as usize - first as usize).unwrap_or(letter);
    match letter {
        'a'..='z' => of(SMALL, 'a'),
        'A'..='Z' => of(CAPITAL, 'A'),
        _ => letter,
    }
}

/// Puts every word that is not a placeholder between the marks, so that its letters run from right to left.
fn right_to_left(source: &str) -> String {
    let mut text = String::new();
    for piece in pieces(source) {
        let Piece::Literal(literal) = piece else {
            text.push_str(piece.as_str());
            continue;
        };
        for word in literal.split_inclusive(char::is_whitespace) {
            let letters = word.trim_end_matches(char::is_whitespace);
            if !letters.is_empty() {
                text.push(OVERRIDE);
                text.push_str(letters);
                text.push(POP);
            }
            text.push_str(&word[letters.len()..]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_longer_and_keeps_its_placeholders_and_newlines() {
        assert_eq!(Pseudo::Accented.text("\nGoal for %{team}: 100%%!\n"), "\n[Ɠǿåŀ ƒǿř %{team}: 100%%! ǿɳ]\n");
        let sentence = "The final has begun.";
        assert_eq!(Pseudo::Accented.text(sentence).chars().count(), 27, "35 % more");
        assert_eq!(Pseudo::RightToLeft.text("Go %{team}!\n"), "\u{202e}Go\u{202c} %{team}\u{202e}!\u{202c}\n");
        for pseudo in Pseudo::ALL {
            assert_eq!(pseudo.text(&"x".repeat(4096)), "x".repeat(4096), "it would be too long");
            assert_eq!(pseudo.text("\n"), "\n");
        }
        assert_eq!([accent('a'), accent('z'), accent('A'), accent('Z'), accent('0')], ['å', 'ẑ', 'Å', 'Ẑ', '0']);
    }
}
