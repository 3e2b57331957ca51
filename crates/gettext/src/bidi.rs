//! Unicode isolates (UAX #9), which keep a filled-in value from reordering the text around it.
//!
//! A name in Arabic letters inside an English sentence, or an English name inside an Arabic sentence, reorders its
//! neighbours on screen. The rule:
//!
//! - A *text*, and a typed value such as a date, is put between U+2068 (first strong isolate) and U+2069 (pop isolate) if the sentence's locale is written
//!   right to left, or if the text has a right-to-left character or a bidi control.
//! - A *number* is isolated only if it is negative and the locale is written right to left. Otherwise its minus would
//!   change sides.
//! - Everything else is filled in as it is.
//!
//! Isolates inside a text are balanced, so that the text cannot end the isolate around it.

const ISOLATE: char = '\u{2068}';
const POP: char = '\u{2069}';

/// Whether a locale is written right to left. Its script decides, or without a script its language.
pub(crate) fn is_right_to_left(locale: &str) -> bool {
    let mut parts = locale.split('-');
    let language = parts.next().unwrap_or_default();
    match parts.next().filter(|part| part.len() == 4) {
        Some(script) => {
            matches!(script, "Arab" | "Hebr" | "Syrc" | "Thaa" | "Nkoo" | "Adlm" | "Rohg" | "Mand" | "Samr")
        }
        // The languages that usually use one of these scripts (CLDR, likely subtags).
        None => matches!(
            language,
            "ar" | "ckb"
                | "dv"
                | "fa"
                | "glk"
                | "he"
                | "iw"
                | "ks"
                | "lrc"
                | "mzn"
                | "nqo"
                | "pnb"
                | "ps"
                | "rhg"
                | "sd"
                | "sdh"
                | "syr"
                | "ug"
                | "ur"
                | "yi"
        ),
    }
}

/// Whether the first letter of a text is written from right to left.
pub fn begins_right_to_left(text: &str) -> bool {
    text.chars().find(|character| character.is_alphabetic()).is_some_and(disturbs)
}

/// Appends a text, with isolates where the rule above requires them.
pub(crate) fn fill_text(out: &mut String, text: &str, right_to_left: bool) {
    if right_to_left || text.chars().any(disturbs) {
        isolate(out, text);
    } else {
        out.push_str(text);
    }
}

/// Appends a number in the digits of JSON, with isolates where the rule above requires them.
pub(crate) fn fill_number(out: &mut String, number: &str, right_to_left: bool) {
    if right_to_left && number.starts_with('-') {
        isolate(out, number);
    } else {
        out.push_str(number);
    }
}

fn isolate(out: &mut String, text: &str) {
    out.push(ISOLATE);
    let mut open = 0usize;
    for character in text.chars() {
        match character {
            '\u{2066}'..=ISOLATE => open += 1,
            POP if open == 0 => continue, // It would end the outer isolate.
            POP => open -= 1,
            _ => {}
        }
        out.push(character);
    }
    out.extend(std::iter::repeat_n(POP, open + 1));
}

/// Whether a character reorders text: the blocks that default to the bidi classes R or AL, and the explicit controls.
fn disturbs(character: char) -> bool {
    matches!(
        character,
        '\u{0590}'..='\u{08FF}' | '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFE}'
            | '\u{10800}'..='\u{10FFF}' | '\u{1E800}'..='\u{1EFFF}'
            | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, locale: &str) -> String {
        let mut out = String::new();
        fill_text(&mut out, text, is_right_to_left(locale));
        out
    }

    #[test]
    fn text_is_isolated_if_the_text_or_the_locale_is_right_to_left() {
        assert_eq!(filled("Vega", "en"), "Vega");
        assert_eq!(filled("Vega", "ar-EG"), "\u{2068}Vega\u{2069}");
        assert_eq!(filled("الأهلي", "en"), "\u{2068}الأهلي\u{2069}");
        assert_eq!(filled("מכבי", "ja"), "\u{2068}מכבי\u{2069}");
        assert_eq!(filled("\u{202E}x", "en"), "\u{2068}\u{202E}x\u{2069}", "an override ends with the isolate");
    }

    #[test]
    fn the_script_takes_precedence_over_the_language() {
        assert!(is_right_to_left("az-Arab") && is_right_to_left("he") && is_right_to_left("ur-PK"));
        assert!(!is_right_to_left("ks-Deva") && !is_right_to_left("pt-BR") && !is_right_to_left("es-419"));
    }

    #[test]
    fn a_number_is_isolated_only_if_its_minus_would_move() {
        let filled = |number: &str, locale: &str| {
            let mut out = String::new();
            fill_number(&mut out, number, is_right_to_left(locale));
            out
        };
        assert_eq!(filled("3", "ar"), "3");
        assert_eq!(filled("-3", "en"), "-3");
        assert_eq!(filled("-3", "ar"), "\u{2068}-3\u{2069}");
        assert_eq!(filled("-0.5", "fa"), "\u{2068}-0.5\u{2069}");
        assert_eq!(filled("2.5", "fa"), "2.5");
    }

    #[test]
    fn a_text_cannot_end_its_isolate_or_leave_one_open() {
        for hostile in ["a\u{2069}b", "\u{2066}a", "\u{2069}\u{2069}", "\u{2067}\u{2069}\u{2069}\u{2068}", ""] {
            let filled = filled(hostile, "ar");
            let mut depth = 0i32;
            for (index, character) in filled.char_indices() {
                match character {
                    '\u{2066}'..=ISOLATE => depth += 1,
                    POP => depth -= 1,
                    _ => {}
                }
                assert!(depth > 0 || index + POP.len_utf8() == filled.len(), "{hostile:?}");
            }
            assert_eq!(depth, 0);
        }
    }
}
