//! The badge: the status at one glance, as a small picture (SVG) for a README or a wall.
//!
//! Letters have different widths and the badge has no fonts to ask, so `textLength` fits each text into its box.

use super::page::text;
use super::results::Run;

/// About the width of a letter.
const LETTER_WIDTH: usize = 7;
const MARGIN: usize = 8;
const LABEL: &str = "features";

pub(super) fn badge(run: &Run) -> String {
    let counts = run.counts();
    let (color, status) = match (run.errors.len(), counts.failed) {
        (0, 0) if counts.passed == 0 => ("#6a737d", "nothing tried".to_owned()),
        (0, 0) => ("#2e7d4f", format!("{} passed, coverage {} %", counts.passed, counts.coverage())),
        (0, failed) => ("#c0392b", format!("{failed} failed, coverage {} %", counts.coverage())),
        _ => ("#c0392b", "cannot be read".to_owned()),
    };
    let (label, status) = (text(LABEL), text(&status));
    let width = |text: &str| text.chars().count() * LETTER_WIDTH;
    let (left, right) = (width(&label) + 2 * MARGIN, width(&status) + 2 * MARGIN);
    let word = |at: usize, text: &str| {
        format!(
            "<text x=\"{at}\" y=\"14\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\">{text}</text>",
            width(text)
        )
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all}\" height=\"20\" role=\"img\" aria-label=\"{label}: {status}\">\
         <title>{label}: {status}</title><clipPath id=\"r\"><rect width=\"{all}\" height=\"20\" rx=\"3\"/></clipPath>\
         <g clip-path=\"url(#r)\"><rect width=\"{left}\" height=\"20\" fill=\"#444\"/>\
         <rect x=\"{left}\" width=\"{right}\" height=\"20\" fill=\"{color}\"/></g>\
         <g fill=\"#fff\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\">{}{}</g></svg>\n",
        word(MARGIN, &label),
        word(left + MARGIN, &status),
        all = left + right,
    )
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::mixed;
    use super::*;

    #[test]
    fn the_badge_says_what_fails_and_is_green_only_if_nothing_does() {
        let failed = badge(&mixed());
        assert!(failed.contains("features: 1 failed, coverage 66 %") && failed.contains("#c0392b"), "{failed}");
        let mut good = mixed();
        good.features[0].scenarios.remove(1);
        let passed = badge(&good);
        assert!(passed.contains("features: 1 passed, coverage 50 %") && passed.contains("#2e7d4f"), "{passed}");
        assert!(!passed.contains("#c0392b"), "{passed}");
        let unreadable = badge(&Run { errors: vec!["no Feature".to_owned()], ..good });
        assert!(unreadable.contains("cannot be read") && unreadable.contains("#c0392b"), "{unreadable}");
        let nothing = badge(&Run { features: Vec::new(), ..mixed() });
        assert!(nothing.contains("nothing tried") && !nothing.contains("#2e7d4f"), "{nothing}");
    }
}
