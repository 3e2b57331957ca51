//! Compares [`plural_forms`] to ICU's plural rules, as Node has them, and to GNU `msginit`.
//!
//! Both must divide the numbers into the same classes. If gettext's line is known to differ from CLDR, the row renames
//! CLDR's category. The test fails if a known difference does not show any more.

use std::collections::BTreeMap;
use std::process::Command;

use tidings_gettext::{Catalogue, Message, Plural, PluralRule, Template, plural_forms, pot};

use crate::{gnu, locale};

type Known = fn(u64, &str) -> Option<&'static str>;

/// The languages whose line agrees with CLDR.
const AGREEING: &str = "af am ar az be bg bn bs cs cy da de el en eo et eu fa fi fo fur gl gu hi hr hu hy id is ja ka kk \
    km kn ko ku ky lb lo lt mk ml mn mr ms mt my nb ne nl nn no pa pl ro ru sk sl so sq sr sv sw ta te th tk tr ug uk \
    ur uz vi wo yo zh zu";

/// CLDR has a separate form for whole millions.
const MILLIONS: Known = |_, category| (category == "many").then_some("other");

const DIFFERING: [(&str, Known); 9] = [
    ("ca", MILLIONS),
    ("es", MILLIONS),
    ("fr", MILLIONS),
    ("it", MILLIONS),
    ("pt-BR", MILLIONS),
    // CLDR's pt is Brazilian, gettext's is European.
    ("pt", |n, category| (category == "many" || n == 0).then_some("other")),
    // Gettext's last form is only for 0. CLDR's "zero" is also for 10 to 20, 30 and so on.
    ("lv", |n, category| (category == "zero" && n != 0).then_some("other")),
    // Gettext has three forms, CLDR five.
    ("ga", |_, category| matches!(category, "few" | "many").then_some("other")),
    // Gettext has no dual.
    ("he", |_, category| (category == "two").then_some("other")),
];

/// Each locale of the table, with the known difference.
fn rules() -> Vec<(&'static str, Option<Known>)> {
    let agreeing = AGREEING.split(' ').map(|locale| (locale, None));
    agreeing.chain(DIFFERING.map(|(locale, known)| (locale, Some(known)))).collect()
}

fn numbers() -> impl Iterator<Item = u64> {
    (0..=1100).chain([9_999, 10_000, 100_001, 1_000_000, 1_000_001, 2_000_000, 1_000_000_011, (1 << 53) - 1])
}

/// One line per locale, one category per number.
fn icu_categories() -> String {
    let locales: Vec<_> = rules().iter().map(|(locale, _)| format!("'{locale}'")).collect();
    let numbers: Vec<_> = numbers().map(|n| n.to_string()).collect();
    let script = format!(
        "const locales = [{}], numbers = [{}];
         if (Intl.PluralRules.supportedLocalesOf(locales).length !== locales.length) throw 'locales are missing';
         for (const locale of locales) {{
           const rules = new Intl.PluralRules(locale);
           console.log(numbers.map(n => rules.select(n)).join(' '));
         }}",
        locales.join(","),
        numbers.join(",")
    );
    let node = Command::new("node").args(["-e", &script]).output().expect("node must be installed for this test");
    assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
    String::from_utf8(node.stdout).unwrap()
}

#[test]
fn forms_divide_the_numbers_as_icu_does() {
    let output = icu_categories();
    assert_eq!(output.lines().count(), rules().len());
    for ((locale, known), line) in rules().into_iter().zip(output.lines()) {
        let rule = plural_forms(&crate::locale(locale)).unwrap_or_else(|| panic!("{locale} is not in the table"));
        let rule = PluralRule::parse(rule).unwrap();
        assert_eq!(rule.outlier(), None, "{locale}");
        let (mut category_of, mut form_of) = (BTreeMap::new(), BTreeMap::new());
        let mut difference_seen = known.is_none();
        for (n, category) in numbers().zip(line.split(' ')) {
            let renamed = known.and_then(|known| known(n, category));
            difference_seen |= renamed.is_some();
            let category = renamed.unwrap_or(category);
            let form = rule.index(n);
            assert_eq!(*category_of.entry(form).or_insert(category), category, "{locale}: form {form}, n = {n}");
            assert_eq!(*form_of.entry(category).or_insert(form), form, "{locale}: {category}, n = {n}");
        }
        assert_eq!(form_of.len(), rule.form_count(), "{locale}: a form is never used");
        assert!(difference_seen, "{locale}: the known difference has gone");
    }
}

/// `msginit` knows about 40 of the languages. To the others it gives no line.
#[test]
fn forms_are_those_of_msginit() {
    let plural = Plural { msgid_plural: "b", count: "n" };
    let message = Message::new(Template::new(None, "a", Some(plural)).unwrap(), "topic.title");
    let pot = pot([&message]).unwrap().to_po();
    let mut known = 0;
    for (name, _) in rules() {
        let underscored = name.replace('-', "_");
        let made = gnu("msginit", &["--no-translator", "-l", &underscored, "-o", "-", "-i"], &[&pot]).unwrap();
        let made = Catalogue::parse(made.as_bytes()).unwrap();
        if made.header("Plural-Forms").is_some() {
            let ours = PluralRule::parse(plural_forms(&locale(name)).unwrap()).unwrap();
            let forms = |rule: &PluralRule| (0..=1000).map(|n| rule.index(n)).collect::<Vec<_>>();
            assert_eq!(forms(&ours), forms(made.plural_rule()), "{name}");
            known += 1;
        }
    }
    assert!(known > 30, "{known}");
    assert_eq!(plural_forms(&locale("tlh")), None);
    assert_eq!(plural_forms(&locale("pt-PT")), plural_forms(&locale("pt")));
}
