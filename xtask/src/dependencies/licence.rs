//! Reads licence expressions (SPDX 3.0, annex B), with the older `A/B` for `A OR B`.
//!
//! Written by hand: forty lines. The crate `spdx` has a table of all licences with their texts, of which nothing is needed where
//! seven names are allowed.

use std::iter::Peekable;

/// Whether somebody who may use only the licences that are allowed may use what is under this expression. `None`: it is no
/// expression. A licence with an exception (`A WITH B`) is asked for as a whole.
pub(super) fn is_met(expression: &str, is_allowed: impl Fn(&str) -> bool) -> Option<bool> {
    let apart = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = apart.split_whitespace().peekable();
    let is_met = any(&mut words, &is_allowed)?;
    words.next().is_none().then_some(is_met)
}

/// `A AND B OR C`: `AND` binds closer.
fn any<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, is_allowed: &impl Fn(&str) -> bool) -> Option<bool> {
    let mut is_met = all(words, is_allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        is_met |= all(words, is_allowed)?;
    }
    Some(is_met)
}

fn all<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, is_allowed: &impl Fn(&str) -> bool) -> Option<bool> {
    let mut is_met = one(words, is_allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        is_met &= one(words, is_allowed)?;
    }
    Some(is_met)
}

fn one<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, is_allowed: &impl Fn(&str) -> bool) -> Option<bool> {
    match words.next()? {
        "(" => {
            let inside = any(words, is_allowed)?;
            words.next_if_eq(&")").map(|_| inside)
        }
        ")" | "AND" | "OR" | "WITH" => None,
        name if words.next_if_eq(&"WITH").is_some() => {
            let exception = words.next().filter(|word| !["(", ")", "AND", "OR", "WITH"].contains(word))?;
            Some(is_allowed(&format!("{name} WITH {exception}")))
        }
        name => Some(is_allowed(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::is_met;

    fn with_mit(expression: &str) -> Option<bool> {
        is_met(expression, |licence| ["MIT", "ISC", "L WITH E"].contains(&licence))
    }

    #[test]
    fn expressions_mean_what_spdx_says() {
        let met = [
            "MIT",
            "MIT OR GPL",
            "GPL OR MIT",
            "GPL/MIT",
            "GPL / MIT",
            "MIT AND ISC",
            "GPL AND GPL OR MIT",
            "MIT AND (GPL OR ISC)",
            "((MIT))",
            "L WITH E",
            "L WITH E AND MIT",
        ];
        met.iter().for_each(|text| assert_eq!(with_mit(text), Some(true), "{text}"));
        let unmet =
            ["GPL", "MIT AND GPL", "GPL AND (MIT OR ISC)", "GPL OR MIT AND GPL", "MIT WITH E", "L", "mit", "MIT+"];
        unmet.iter().for_each(|text| assert_eq!(with_mit(text), Some(false), "{text}"));
    }

    #[test]
    fn what_is_no_expression_is_not_met() {
        let wrong = [
            "",
            "OR",
            "MIT OR",
            "AND MIT",
            "MIT ISC",
            "(MIT",
            "MIT)",
            "MIT WITH",
            "MIT WITH OR",
            "()",
            "/",
            "MIT//ISC",
        ];
        wrong.iter().for_each(|text| assert_eq!(with_mit(text), None, "{text}"));
    }
}
