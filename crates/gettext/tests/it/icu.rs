//! Compares [`PluralRule`] with the usual `Plural-Forms` lines to ICU's plural rules, as Node has them.
//!
//! Both must divide the numbers into the same classes. If gettext's line is known to differ from CLDR, the row renames
//! CLDR's category. The test fails if a known difference does not show any more.

use std::collections::BTreeMap;
use std::process::Command;

use tidings_gettext::PluralRule;

type Known = fn(u64, &str) -> Option<&'static str>;

const RUSSIAN: &str =
    "nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2;";
const ONE: &str = "nplurals=1; plural=0;";
const OVER_ONE: &str = "nplurals=2; plural=n > 1;";

/// CLDR has a separate form for whole millions.
const MILLIONS: Option<Known> = Some(|_, category| (category == "many").then_some("other"));

const RULES: [(&str, &str, Option<Known>); 31] = [
    ("en", super::TWO, None),
    ("sv", super::TWO, None),
    ("de", super::TWO, None),
    ("tr", super::TWO, None),
    ("es", super::TWO, MILLIONS),
    ("it", super::TWO, MILLIONS),
    ("pt-PT", super::TWO, MILLIONS),
    ("pt-BR", OVER_ONE, MILLIONS),
    ("pt", OVER_ONE, MILLIONS), // CLDR's pt is Brazilian.
    ("fr", OVER_ONE, MILLIONS),
    ("ja", ONE, None),
    ("zh", ONE, None),
    ("ko", ONE, None),
    ("vi", ONE, None),
    ("id", ONE, None),
    ("ru", RUSSIAN, None),
    ("uk", RUSSIAN, None),
    ("sr", RUSSIAN, None),
    ("hr", RUSSIAN, None),
    ("bs", RUSSIAN, None),
    ("pl", super::POLISH, None),
    ("cs", "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;", None),
    ("sk", "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;", None),
    ("sl", "nplurals=4; plural=n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3;", None),
    ("lt", "nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2;", None),
    ("ro", "nplurals=3; plural=n==1 ? 0 : n==0 || (n%100>0 && n%100<20) ? 1 : 2;", None),
    ("ar", "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;", None),
    ("cy", "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n==3 ? 3 : n==6 ? 4 : 5;", None),
    // Gettext's last form is only for 0. CLDR's "zero" is also for 10 to 20, 30 and so on.
    (
        "lv",
        "nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2;",
        Some(|n, category| (category == "zero" && n != 0).then_some("other")),
    ),
    // Gettext has three forms, CLDR five.
    (
        "ga",
        "nplurals=3; plural=n==1 ? 0 : n==2 ? 1 : 2;",
        Some(|_, category| matches!(category, "few" | "many").then_some("other")),
    ),
    // Gettext has no dual.
    ("he", super::TWO, Some(|_, category| (category == "two").then_some("other"))),
];

fn numbers() -> impl Iterator<Item = u64> {
    (0..=1100).chain([9_999, 10_000, 100_001, 1_000_000, 1_000_001, 2_000_000, 1_000_000_011, (1 << 53) - 1])
}

/// One line per locale, one category per number.
fn icu_categories() -> String {
    let locales: Vec<_> = RULES.iter().map(|(locale, ..)| format!("'{locale}'")).collect();
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
    assert_eq!(output.lines().count(), RULES.len());
    for ((locale, rule, known), line) in RULES.into_iter().zip(output.lines()) {
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
