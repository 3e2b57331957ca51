//! Which languages exist.

use tidings_gettext::is_language;
use tidings_types::Locale;

/// ISO 639-1.
const TWO_LETTERS: &str = "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el \
    en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk \
    kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or \
    os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty \
    ug uk ur uz ve vi vo wa wo xh yi yo za zh zu";
/// As phones name them: old codes of Android, languages with three letters, and those of no country.
const OF_PHONES: &str = "iw in ji sh mo fil yue zh-Hant-HK sr-Latn-RS es-419 en-001 haw kok ckb gsw tzm pt_br en-XA ar-XB und und-SE qaa qtz";

fn locale(text: &str) -> Locale {
    Locale::new(text).unwrap()
}

#[test]
fn languages_of_people_exist_and_made_up_ones_do_not() {
    for text in TWO_LETTERS.split_whitespace().chain(OF_PHONES.split(' ')) {
        assert!(is_language(&locale(text)), "{text}");
    }
    for text in ["xq", "qq-SE", "zzz-Latn", "xxq"] {
        assert!(!is_language(&locale(text)), "{text}");
    }
}
