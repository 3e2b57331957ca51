//! A text with placeholders, cut into pieces without copying, for those who count or rewrite texts.
//!
//! [`Text`](crate::text) is for rendering, and refuses a wrong text. This takes every text: what is neither `%%` nor
//! `%{…}` is literal.

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Text as it is shown.
    Literal(&'a str),
    /// `%%`.
    Percent,
    /// A placeholder as it is written, for example `%{team}`.
    Placeholder(&'a str),
}

impl<'a> Piece<'a> {
    /// The piece as it is written.
    pub(crate) fn as_str(self) -> &'a str {
        match self {
            Self::Literal(text) | Self::Placeholder(text) => text,
            Self::Percent => "%%",
        }
    }
}

/// The pieces of a text, in their order. Together they are the text.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, length) = if rest.starts_with("%%") {
            (Piece::Percent, 2)
        } else if let Some(length) = placeholder(rest) {
            (Piece::Placeholder(&rest[..length]), length)
        } else {
            // A percent sign without meaning is the first character of a literal.
            let next = rest.char_indices().skip(1).find(|(_, character)| *character == '%');
            let length = next.map_or(rest.len(), |(at, _)| at);
            (Piece::Literal(&rest[..length]), length)
        };
        rest = &rest[length..];
        Some(piece)
    })
}

fn placeholder(text: &str) -> Option<usize> {
    text.strip_prefix("%{")?.find('}').map(|end| end + 3)
}
