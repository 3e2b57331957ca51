//! What a device shows of a notification, drawn on a terminal. The demo and `tidings preview` share it.
//!
//! Where a device cuts a text is an approximation: no platform publishes limits in characters, because they cut by the
//! width of glyphs, the size of the screen and the size of the font. [`VIEWS`] is the model; docs/payload.md says where
//! its numbers come from. A line has as many columns as a terminal needs for it, so a Chinese character counts as two.
//!
//! It does not reorder text that is written from right to left, because terminals do: it only aligns it to the right.

use serde_json::Value;
use tidings_gettext::begins_right_to_left;
use tidings_types::Platform;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// The texts of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// First line.
    pub title: String,
    /// Second line, only of Apple's devices, from the payload's patch.
    pub subtitle: Option<String>,
    /// Text.
    pub body: String,
}

/// How a platform shows a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Whose.
    pub platform: Platform,
    /// Where: the name of the view.
    pub name: &'static str,
    /// Columns of a line.
    pub columns: usize,
    /// Lines of title and subtitle, each.
    pub title_lines: usize,
    /// Lines of the body.
    pub body_lines: usize,
}

/// The views of the platforms: first what is seen without a touch, then what is seen on request.
pub const VIEWS: [View; 6] = [
    View { platform: Platform::Ios, name: "lock screen", columns: 45, title_lines: 1, body_lines: 4 },
    View { platform: Platform::Ios, name: "expanded", columns: 45, title_lines: usize::MAX, body_lines: usize::MAX },
    View { platform: Platform::Android, name: "collapsed", columns: 45, title_lines: 1, body_lines: 1 },
    View { platform: Platform::Android, name: "expanded", columns: 45, title_lines: 1, body_lines: 13 },
    View { platform: Platform::Web, name: "collapsed", columns: 45, title_lines: 1, body_lines: 1 },
    View { platform: Platform::Web, name: "expanded", columns: 45, title_lines: 1, body_lines: 4 },
];

/// A text in lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// The lines, without spaces at their ends.
    pub lines: Vec<String>,
    /// Whether a part is missing. Then the last line ends with `…`.
    pub is_cut: bool,
}

impl Notice {
    /// Of a payload that shows nothing.
    pub const NONE: Self = Self { title: String::new(), subtitle: None, body: String::new() };

    /// The texts of a payload; `None`: it shows nothing.
    pub fn read(platform: Platform, payload: &[u8]) -> Option<Self> {
        let payload: Value = serde_json::from_slice(payload).ok()?;
        let alert = match platform {
            Platform::Ios => &payload["aps"]["alert"],
            Platform::Android => &payload["notification"],
            Platform::Web => &payload,
        };
        let text = |name: &str| Some(alert[name].as_str()?.to_owned());
        Some(Self { title: text("title")?, subtitle: text("subtitle"), body: text("body")? })
    }
}

/// The name of a kind of device.
pub fn device_name(platform: Platform) -> &'static str {
    match platform {
        Platform::Ios => "iPhone",
        Platform::Android => "Android",
        Platform::Web => "browser",
    }
}

/// A text without bidi isolates, which a terminal may show as boxes.
pub fn plain(text: &str) -> String {
    text.replace(['\u{2068}', '\u{2069}'], "")
}

/// A box with this heading and these rows. `frame` paints its frame.
pub fn framed(heading: &str, rows: impl IntoIterator<Item = String>, frame: impl Fn(&str) -> String) -> Vec<String> {
    let heading = format!("  {}", frame(&format!("╭─ {heading}")));
    let rows = rows.into_iter().map(|row| format!("  {} {row}", frame("│")));
    std::iter::once(heading).chain(rows).collect()
}

/// Breaks a text into lines of at most this many columns: at spaces, and at characters that are two columns wide. A word
/// that is wider is broken anywhere. Beyond `line_max` lines the text is cut.
pub fn wrap(text: &str, columns: usize, line_max: usize) -> Lines {
    let mut all = text.lines().flat_map(|line| broken(line, columns));
    let mut lines: Vec<String> = all.by_ref().take(line_max).collect();
    let is_cut = all.next().is_some();
    if let Some(last) = lines.last_mut().filter(|_| is_cut) {
        while last.width() >= columns || last.ends_with(' ') {
            last.truncate(last.grapheme_indices(true).next_back().map_or(0, |(at, _)| at));
        }
        last.push('…');
    }
    Lines { lines, is_cut }
}

/// One line of text as lines of at most this many columns.
fn broken(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut start, mut chance, mut width, mut was_wide) = (0, 0, 0, false);
    for (at, character) in text.grapheme_indices(true) {
        let is_wide = character.width() > 1;
        if is_wide || was_wide {
            chance = at;
        }
        was_wide = is_wide;
        while width + character.width() > columns && character != " " && at > start {
            let end = if chance > start { chance } else { at };
            lines.push(text[start..end].trim_end().to_owned());
            start = end;
            width = text[start..at].width();
        }
        width += character.width();
        if character == " " {
            chance = at + 1;
        }
    }
    lines.push(text[start..].trim_end().to_owned());
    lines
}

impl View {
    /// The lines of title, subtitle and body.
    pub fn cut(&self, notice: &Notice) -> [Lines; 3] {
        let Notice { title, subtitle, body } = notice;
        let wrap = |text: &str, line_max| wrap(&plain(text), self.columns, line_max);
        let subtitle = subtitle.as_deref().map(|text| wrap(text, self.title_lines));
        let subtitle = subtitle.unwrap_or(Lines { lines: Vec::new(), is_cut: false });
        [wrap(title, self.title_lines), subtitle, wrap(body, self.body_lines)]
    }

    /// The rows of its box: app and time, title, subtitle, body. What is written from right to left stands at the right.
    pub fn rows(&self, notice: &Notice, app: &str) -> Vec<String> {
        let is_mirrored = begins_right_to_left(&plain(&notice.title));
        let (left, right) = if is_mirrored { ("now", app) } else { (app, "now") };
        let room = self.columns.saturating_sub(left.width());
        let head = format!("{left}{right:>room$}", room = room.max(right.width() + 1));
        let [title, subtitle, body] = self.cut(notice);
        let aligned = |line: String| {
            let space = self.columns.saturating_sub(line.width());
            if begins_right_to_left(&line) { format!("{}{line}", " ".repeat(space)) } else { line }
        };
        let lines = [title, subtitle, body].into_iter().flat_map(|text| text.lines).map(aligned);
        std::iter::once(head).chain(lines).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str, columns: usize, line_max: usize) -> Vec<String> {
        wrap(text, columns, line_max).lines
    }

    #[test]
    fn a_text_is_broken_at_spaces_and_cut_after_its_last_line() {
        assert_eq!(lines("Goal for Sweden!", 10, 9), ["Goal for", "Sweden!"]);
        assert_eq!(lines("Goal for Sweden!", 10, 1), ["Goal for…"]);
        assert_eq!(lines("Goal for Sweden!", 16, 1), ["Goal for Sweden!"]);
        assert_eq!(lines("one\n\ntwo", 10, 9), ["one", "", "two"]);
        assert_eq!(lines("Donaudampfschiff", 6, 2), ["Donaud", "ampfs…"]);
        assert_eq!(lines("瑞典队进球了", 4, 9), ["瑞典", "队进", "球了"]);
        assert_eq!(lines("瑞典队进球了", 4, 1), ["瑞…"]);
        assert_eq!(lines("", 4, 1), [""; 0]);
    }

    #[test]
    fn an_arabic_text_stands_at_the_right() {
        let view = View { columns: 20, ..VIEWS[2] };
        let notice =
            Notice { title: "هدف لفريق \u{2068}Vega\u{2069}!".into(), subtitle: None, body: "1 – 0".into() };
        let rows = view.rows(&notice, "App");
        assert_eq!(rows, ["now              App", "     هدف لفريق Vega!", "1 – 0"]);
    }

    #[test]
    fn the_texts_of_each_platform_are_found() {
        for (platform, payload) in [
            (Platform::Ios, r#"{"aps":{"alert":{"title":"T","subtitle":"S","body":"B"}}}"#),
            (Platform::Android, r#"{"notification":{"title":"T","body":"B"}}"#),
            (Platform::Web, r#"{"title":"T","body":"B"}"#),
        ] {
            let subtitle = (platform == Platform::Ios).then(|| "S".to_owned());
            let notice = Notice { title: "T".into(), subtitle, body: "B".into() };
            assert_eq!(Notice::read(platform, payload.as_bytes()), Some(notice));
        }
        assert_eq!(Notice::read(Platform::Ios, b"{}"), None);
    }

    proptest! {
        /// No line is wider than its room, except of a single character that is; nothing but spaces is lost.
        #[test]
        fn no_line_is_too_wide_and_nothing_is_lost(text in "[ a-cé瑞典ا👩‍👧\n]{0,60}", columns in 2..20_usize) {
            let whole = wrap(&text, columns, usize::MAX);
            prop_assert!(!whole.is_cut);
            for line in &whole.lines {
                prop_assert!(line.width() <= columns, "{:?} in {}", line, columns);
            }
            let without = |text: &str| text.replace([' ', '\n'], "");
            prop_assert_eq!(without(&whole.lines.concat()), without(&text));
            let cut = wrap(&text, columns, 2);
            prop_assert_eq!(cut.is_cut, whole.lines.len() > 2);
            prop_assert!(cut.lines.len() <= 2 && cut.lines.iter().all(|line| line.width() <= columns), "{:?}", cut);
        }
    }
}
