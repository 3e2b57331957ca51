//! Which languages exist, and their `Plural-Forms` lines for a new PO file.
//!
//! The lines are those of GNU `msginit`, and for languages that it does not know, those of CLDR's rules for whole
//! numbers. The tests compare each line with both.

use icu_locale::{LocaleCanonicalizer, LocaleExpander, TransformResult};
use tidings_types::Locale;

/// For a language that is not in the table.
pub(crate) const GENERIC: &str = "nplurals=2; plural=n != 1;";
const OVER_ONE: &str = "nplurals=2; plural=n > 1;";
const ONE: &str = "nplurals=1; plural=0;";
const SLAVIC: &str =
    "nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2;";
const CZECH: &str = "nplurals=3; plural=n==1 ? 0 : n>=2 && n<=4 ? 1 : 2;";

/// A line, and the languages that it is for. A locale with a region is before its language.
const LINES: [(&str, &str); 16] = [
    (OVER_ONE, "pt-BR"),
    (
        GENERIC,
        "af az bg ca da de el en eo es et eu fi fo fur gl he hu it ka kk ku ky lb ml mn mr nb ne nl nn no pt so sq sv \
         sw ta te tk tr ug ur uz",
    ),
    (OVER_ONE, "am bn fa fr gu hi hy kn pa zu"),
    (ONE, "id ja km ko lo ms my th vi wo yo zh"),
    (SLAVIC, "be bs hr ru sr uk"),
    ("nplurals=3; plural=n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2;", "pl"),
    (CZECH, "cs sk"),
    ("nplurals=4; plural=n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3;", "sl"),
    ("nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2;", "lt"),
    ("nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2;", "lv"),
    ("nplurals=3; plural=n==1 ? 0 : n==0 || (n%100>0 && n%100<20) ? 1 : 2;", "ro"),
    ("nplurals=3; plural=n==1 ? 0 : n==2 ? 1 : 2;", "ga"),
    ("nplurals=2; plural=n%10!=1 || n%100==11;", "is mk"),
    ("nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;", "ar"),
    ("nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n==3 ? 3 : n==6 ? 4 : 5;", "cy"),
    (
        "nplurals=5; plural=n==1 ? 0 : n==2 ? 1 : n==0 || n%100>=3 && n%100<=10 ? 2 : n%100>=11 && n%100<=19 ? 3 : 4;",
        "mt",
    ),
];

/// Whether its language exists: CLDR says in which script it is probably written, or knows it by another code, as `iw` for
/// Hebrew. `und` (none is known) and codes for private use (`qaa` to `qtz`) count, too.
pub fn is_language(locale: &Locale) -> bool {
    const EXPANDER: LocaleExpander = LocaleExpander::new_extended();
    const CANONICALIZER: LocaleCanonicalizer = LocaleCanonicalizer::new_extended();
    let code = locale.fallbacks().last().unwrap_or_default();
    let is_private = code.len() == 3 && ("qaa"..="qtz").contains(&code);
    let Ok(mut language) = code.parse::<icu_locale_core::Locale>() else { return false };
    is_private
        || code == "und"
        || CANONICALIZER.canonicalize(&mut language) == TransformResult::Modified
        || EXPANDER.maximize(&mut language.id) == TransformResult::Modified
}

/// The `Plural-Forms` line of a locale; `None` if its language is not known here. Then take `nplurals=2; plural=n != 1;`
/// and let a translator look at it.
pub fn plural_forms(locale: &Locale) -> Option<&'static str> {
    let line = |tag: &str| LINES.iter().find(|(_, tags)| tags.split(' ').any(|known| known == tag));
    locale.fallbacks().find_map(line).map(|(line, _)| *line)
}
