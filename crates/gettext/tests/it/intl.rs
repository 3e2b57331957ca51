//! Compares typed values with what JavaScript's `Intl` shows, as Node has it, over languages, zones and magnitudes.
//!
//! ICU4X and Node's ICU read the same database (CLDR), but not always its same version, and ICU4X builds dates from fields
//! where `Intl` has whole patterns. [`KNOWN`] lists where they differ and why. The test fails if they differ elsewhere, or
//! if a known difference does not show any more. Everywhere, they must show the same number, day and time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tidings_gettext::{Catalogue, Reader, Template, Translations};
use tidings_types::{Locale, ParamValue, TimeZone};

use crate::locale;

const LOCALES: &str = "af am ar ar-AE ar-EG ar-SA az be bg bn bs ca cs cy da de de-AT de-CH el en en-AU en-CA en-GB en-IN en-ZA es es-419 es-AR es-MX et eu fa fi fil fr fr-BE fr-CA fr-CH ga gl gu he hi hr hu hy id is it ja ka kk km kn ko ky lo lt lv mk ml mn mr ms my nb ne nl nl-BE pa pl pt pt-BR pt-PT ro ru si sk sl sq sr sr-Latn sv sw ta te th tr uk ur uz vi zh zh-Hant zh-Hant-HK zu";
const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Stockholm",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Pacific/Apia",
];
/// Some are at the edge of daylight saving: the last moment before the clock changes, and the first one after it.
const MOMENTS: [&str; 9] = [
    "2026-11-24T20:45:00Z",
    "2026-03-29T00:59:59Z",
    "2026-03-29T01:00:00Z",
    "2026-10-25T00:30:00Z",
    "2026-10-25T01:30:00Z",
    "2026-03-08T07:00:00Z",
    "2026-11-01T06:30:00Z",
    "2027-01-01T00:00:00Z",
    "2028-02-29T23:59:59Z",
];
const NUMBERS: [f64; 15] = [
    0.0,
    1.0,
    -1.0,
    0.5,
    12.345,
    -12.3456,
    999.9996,
    1000.0,
    -1234.5,
    9999.0,
    12345.0,
    1234567.5,
    -98765432.125,
    123456789012.0,
    999999999999999.0,
];
const DATES: [&str; 4] = ["2026-11-24", "2026-01-05", "2028-02-29", "1999-12-31"];
const STYLES: [&str; 10] = [
    "time_short",
    "time_medium",
    "date_short",
    "date_medium",
    "date_long",
    "date_full",
    "datetime_short",
    "datetime_medium",
    "datetime_long",
    "datetime_full",
];

fn values() -> Vec<Value> {
    let mut values = Vec::new();
    for number in NUMBERS {
        values.extend([json!({"number": number}), json!({"number": number, "digits": 2}), json!({"percent": number})]);
        let money = |currency: &str| json!({"money": number, "currency": currency});
        values.extend(["EUR", "USD", "JPY", "KWD", "SEK", "INR", "BRL"].map(money));
    }
    for date in DATES {
        values.extend(STYLES[2..6].iter().map(|style| json!({"date": date, "style": style})));
    }
    for style in &STYLES[..2] {
        values.extend(["00:00", "09:05", "12:00", "20:45:30"].map(|time| json!({"time": time, "style": style})));
    }
    for moment in MOMENTS {
        for zone in ZONES {
            values.extend(STYLES.map(|style| json!({"datetime": moment, "zone": zone, "style": style})));
        }
    }
    values
}

/// The version of CLDR, and all values in all locales, as `Intl` shows them.
fn of_intl(values: &[Value]) -> (String, Vec<Vec<String>>) {
    let script = r#"
        const { locales, values } = JSON.parse(require("fs").readFileSync(0, "utf8"));
        const show = (locale, v) => {
            const [part, length] = (v.style ?? "").split("_"), style = {};
            const digits = v.digits === undefined ? { maximumFractionDigits: 3 }
                : { minimumFractionDigits: v.digits, maximumFractionDigits: v.digits };
            if (v.number !== undefined) return new Intl.NumberFormat(locale, digits).format(v.number);
            if (v.percent !== undefined)
                return new Intl.NumberFormat(locale, { style: "percent", ...digits }).format(v.percent + "e-2");
            if (v.money !== undefined)
                return new Intl.NumberFormat(locale, { style: "currency", currency: v.currency }).format(v.money);
            if (part !== "time") style.dateStyle = length;
            if (part === "datetime") style.timeStyle = "short";
            if (part === "time") style.timeStyle = length;
            const at = v.datetime ?? (v.date !== undefined ? v.date + "T12:00:00Z" : "2000-01-01T" + v.time + "Z");
            return new Intl.DateTimeFormat(locale, { ...style, timeZone: v.zone ?? "UTC" }).format(new Date(at));
        };
        console.log(JSON.stringify([process.versions.cldr]));
        for (const locale of locales) {
            if (Intl.NumberFormat.supportedLocalesOf(locale).length === 0) throw locale + " is missing";
            console.log(JSON.stringify(values.map(v => show(locale, v))));
        }"#;
    let locales: Vec<&str> = LOCALES.split(' ').collect();
    let mut node = Command::new("node")
        .args(["-e", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node must be installed for this test");
    let mut input = node.stdin.take().unwrap();
    input.write_all(json!({"locales": locales, "values": values}).to_string().as_bytes()).unwrap();
    drop(input);
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Vec<String>>(line).unwrap());
    (lines.next().unwrap().remove(0), lines.collect())
}

/// A value in a text of this locale, without the isolates around it.
fn of_ours(set: &Translations, locale: &Locale, value: &Value) -> String {
    let text = shown_to(set, locale, value, &Reader::new(locale));
    text.trim_start_matches('\u{2068}').trim_end_matches('\u{2069}').to_owned()
}

fn shown_to(set: &Translations, text: &Locale, value: &Value, reader: &Reader<'_>) -> String {
    let template = Template::new(None, "%{v}", None).unwrap();
    let typed: ParamValue = serde_json::from_value(value.clone()).unwrap();
    set.render_for(&template, text, &BTreeMap::from([("v".to_owned(), typed)]), reader).unwrap()
}

fn showing(locale: &Locale) -> Translations {
    let po = super::header(locale.as_str(), super::TWO) + "msgid \"%{v}\"\nmsgstr \"%{v}\"\n";
    Translations::new(vec![(locale.clone(), Catalogue::parse(po.as_bytes()).unwrap())])
}

/// The kind of a value: its first field, or its style.
fn kind(value: &Value) -> String {
    let style = value.get("style").and_then(Value::as_str);
    let kind = ["number", "percent", "money"].into_iter().find(|kind| value.get(kind).is_some());
    kind.or(style).unwrap().to_owned()
}

/// The text with plain spaces: Node replaces some of CLDR's narrow ones.
fn spaced(text: &str) -> String {
    text.chars().map(|character| if character.is_whitespace() { ' ' } else { character }).collect()
}

/// The digits of a number; of a date the numbers in any order, years and hours as far as all styles have them.
fn digits(kind: &str, text: &str) -> Vec<u32> {
    // The digits of each script lie together, from zero to nine.
    let value = |character: char, zero: &char| u32::from(character).wrapping_sub(u32::from(*zero));
    let digit = |character: char| {
        character.to_digit(10).or_else(|| ZEROS.iter().map(|zero| value(character, zero)).find(|digit| *digit < 10))
    };
    let digits: Vec<Option<u32>> = text.chars().map(digit).collect();
    if matches!(kind, "number" | "percent" | "money") {
        return digits.into_iter().flatten().collect();
    }
    let runs = digits.split(Option::is_none).filter(|run| !run.is_empty());
    let mut numbers: Vec<u32> =
        runs.map(|run| run.iter().flatten().fold(0, |sum, digit| sum * 10 + digit) % 100).collect();
    numbers.sort_unstable();
    numbers
}

const ZEROS: [char; 6] = ['٠', '۰', '०', '০', '၀', '០'];

/// Whether two texts show the same value, however it is written.
fn is_same(locale: &str, kind: &str, ours: &str, intl: &str) -> bool {
    let (ours, intl) = (digits(kind, ours), digits(kind, intl));
    if matches!(kind, "number" | "percent" | "money") {
        return ours == intl;
    }
    // One of them may show the month as a number where the other has its name. Argentina's clock: see below.
    let missing = |from: &[u32], of: &[u32]| of.iter().filter(|number| !from.contains(number)).count();
    let allowed = if locale == "es-AR" && kind.contains("time") { 2 } else { 1 };
    missing(&intl, &ours) <= allowed && missing(&ours, &intl) <= allowed
}

#[test]
fn values_look_as_intl_shows_them() {
    let values = values();
    let (cldr, intl) = of_intl(&values);
    let pairs = |line: &'static str| {
        let (locale, kinds) = line.trim().split_once(": ").unwrap();
        kinds.split(' ').map(move |kind| (locale, kind.to_owned()))
    };
    let known: BTreeSet<(&str, String)> = KNOWN.trim().lines().flat_map(pairs).collect();
    let mut seen = BTreeSet::new();
    for (name, intl) in LOCALES.split(' ').zip(intl) {
        let locale = locale(name);
        let set = showing(&locale);
        for (value, intl) in values.iter().zip(intl) {
            let (kind, ours) = (kind(value), of_ours(&set, &locale, value));
            if spaced(&ours) != spaced(&intl) {
                assert!(is_same(name, &kind, &ours, &intl), "{name} {value}: ours {ours:?}, Intl {intl:?}");
                seen.insert((name, kind));
            }
        }
    }
    assert!(seen.len() * 4 < LOCALES.split(' ').count() * 13, "most values look alike, whatever the version");
    if cldr == KNOWN_IN_CLDR {
        let wrong: Vec<_> = seen.symmetric_difference(&known).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// A text that is checked with room is at least as long as with the conventions of any region, and in any zone.
#[test]
fn regions_and_zones_add_no_more_to_a_value_than_its_room() {
    let regions = "001 419 AE AR AT AU BE BO BR CA CH CL CO CR DE DZ EG ES FR GB HK IN IQ IT LI LU MA MO MR MX NZ PE PH PK \
                   PR PT SA SG SN SV SY TN TW UA US UY VE ZA ZZ";
    let zones = ZONES.iter().map(|zone| TimeZone::new(zone).unwrap()).map(Some).chain([None]).collect::<Vec<_>>();
    let at = "2026-09-23T23:45:30-11:30";
    let datetimes = STYLES.map(|style| json!({"datetime": at, "zone": "device", "style": style}));
    let numbers =
        [json!({"number": -987654321.123}), json!({"percent": -12.5}), json!({"money": -1e12, "currency": "KWD"})];
    for language in
        ["ar", "bn", "de", "en", "es", "fa", "fr", "it", "nl", "pt", "sr", "sw", "ta", "ur", "zh", "zh-Hant"]
    {
        let text = locale(language);
        let set = showing(&text);
        for value in datetimes.iter().chain(&numbers) {
            let room = shown_to(&set, &text, value, &Reader { with_room: true, ..Reader::new(&text) }).len();
            for region in regions.split_whitespace() {
                let device = locale(&format!("{language}-{region}"));
                for zone in &zones {
                    let reader = Reader { zone: zone.as_ref(), ..Reader::new(&device) };
                    let shown = shown_to(&set, &text, value, &reader);
                    assert!(shown.len() <= room, "{device} {zone:?} {value}: {shown:?} in {room} bytes");
                }
            }
        }
    }
}

#[test]
fn a_text_without_language_has_room_for_values_in_each_language() {
    let und = locale("und");
    let set = showing(&und);
    for value in values().iter().filter(|value| value.get("zone").is_none_or(|zone| zone == "Asia/Kathmandu")) {
        let room = shown_to(&set, &und, value, &Reader { with_room: true, ..Reader::new(&und) }).len();
        for name in LOCALES.split(' ') {
            let shown = shown_to(&set, &und, value, &Reader::new(&locale(name)));
            assert!(shown.len() <= room, "{name} {value}: {shown:?} in {room} bytes");
        }
    }
}

/// The version of CLDR in the Node with which [`KNOWN`] was made. With another one the texts may differ in other places,
/// and only what they mean is compared.
const KNOWN_IN_CLDR: &str = "48.0";

/// Where the spelling differs, by locale and kind of value. The reasons:
///
/// - *Dates*: ICU4X puts a date together from fields (semantic skeletons, UTS 35), and takes the order and the signs of
///   the language's available formats; `Intl` has a whole pattern per length. In most of these languages the two
///   differ by a comma, a point, a leading zero or the digits of the year, and in `be`, `mk` and `pt-PT` by the month as a
///   number. `es-AR`: the time has 24 hours here and 12 there. `bg`: the time has its mark for hours only here.
/// - *Money*: ICU4X takes a currency's short symbol (`US$`), and `Intl` of this version has only its code in some
///   languages. In `de-AT` money is grouped as other numbers.
/// - *Numbers*: `fr-CH` and `gl` have other separators in the newer version of CLDR; so have the groups of `bn`, `ml`, `mr`
///   and `te`. Arabic percent signs lack an invisible mark here, which the isolate around the value replaces.
const KNOWN: &str = "
    af: money
    am: date_full date_long date_medium datetime_full datetime_long datetime_medium
    ar-EG: percent
    ar-SA: percent
    az: date_full datetime_full
    be: date_medium datetime_medium money
    bg: datetime_full datetime_long datetime_medium datetime_short money time_medium time_short
    bn: percent
    bs: date_full datetime_full money
    ca: date_medium datetime_medium money
    cs: date_short datetime_short money
    da: date_full datetime_full
    de-AT: money
    de-CH: money
    en-AU: date_full datetime_full money
    en-CA: date_short datetime_short
    en-IN: date_medium datetime_full datetime_long datetime_medium datetime_short time_medium time_short
    en-ZA: money
    es: datetime_full datetime_long datetime_medium datetime_short money time_medium time_short
    es-419: datetime_full money
    es-AR: date_medium datetime_full datetime_long datetime_medium datetime_short money time_medium time_short
    es-MX: datetime_full datetime_long datetime_medium datetime_short money time_medium time_short
    et: date_long datetime_long time_medium
    eu: date_medium datetime_medium
    fa: date_full datetime_full percent
    fi: money
    fr: money
    fr-BE: money
    fr-CA: money
    fr-CH: date_full datetime_full money number percent
    ga: date_full date_long date_short datetime_full datetime_long datetime_short
    gl: money number percent
    hi: date_full date_long datetime_full datetime_long
    hr: money
    hu: money
    hy: date_full date_long date_medium datetime_full datetime_long datetime_medium datetime_short time_medium time_short
    id: date_full datetime_full
    is: money
    it: money
    ka: date_full datetime_full money
    kn: date_full date_long date_medium datetime_full datetime_long datetime_medium datetime_short time_medium time_short
    ko: date_medium date_short datetime_full datetime_long datetime_medium datetime_short time_medium time_short
    ky: date_full date_long date_medium date_short datetime_full datetime_long datetime_medium datetime_short money
    lo: date_full datetime_full datetime_long datetime_medium datetime_short time_medium time_short
    lt: money
    lv: date_medium date_short datetime_medium datetime_short
    mk: date_full date_long date_medium date_short datetime_full datetime_long datetime_medium datetime_short money time_medium time_short
    ml: money percent
    mn: date_full datetime_full
    mr: date_full datetime_full money percent
    ms: money
    my: date_full date_short datetime_full datetime_long datetime_medium datetime_short time_medium time_short
    nb: money
    ne: date_short datetime_short
    pl: date_short datetime_short money
    pt-PT: date_full datetime_full
    ro: money
    si: datetime_full datetime_long datetime_medium datetime_short time_medium time_short
    sk: date_full datetime_full money
    sl: date_full date_long date_short datetime_full datetime_long datetime_short money
    sq: datetime_full datetime_long money
    sr: date_full date_long date_medium date_short datetime_full datetime_long datetime_medium datetime_short
    sr-Latn: date_full date_long date_medium date_short datetime_full datetime_long datetime_medium datetime_short
    sv: money
    sw: date_full datetime_full
    ta: date_full date_long datetime_full datetime_long money
    te: date_full date_long date_medium date_short datetime_full datetime_long datetime_medium datetime_short percent
    th: date_full date_short datetime_full datetime_short
    uk: money
    ur: datetime_full datetime_long percent
    vi: date_full date_long date_short datetime_full datetime_long datetime_short
    zh-Hant: date_full datetime_full
    zh-Hant-HK: datetime_full datetime_long datetime_medium datetime_short time_medium time_short
    zu: date_short datetime_short
";
