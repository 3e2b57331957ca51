//! What a check finds: how bad, where, and what it is.

use std::ops::Range;

use tidings_types::Locale;

use crate::error::{Flaw, PoProblem};

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// For information: work to do, but nothing wrong.
    Note,
    /// The text is sent, or a fallback on purpose, but somebody should look.
    Warning,
    /// The translation is not sent, or GNU `msgfmt -c` refuses the file.
    Error,
}

/// Something that a translator or an engineer should know about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The locale of the file.
    pub locale: Locale,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted in characters from 1.
    pub column: usize,
    /// The bytes of the file to point at, all on one line. Empty only if the file is.
    pub range: Range<usize>,
    /// Where the message is used, for example `goal.title`.
    pub references: Vec<String>,
    /// The context of the message.
    pub msgctxt: Option<String>,
    /// The source text; empty if the whole file is meant.
    pub msgid: String,
    /// What it is.
    pub kind: FindingKind,
    /// What it is, in words for a translator: a lower-case fragment.
    pub message: String,
    /// What to do about it, where the message does not say so.
    pub help: Option<String>,
}

/// What a [`Finding`] is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingKind {
    /// The file cannot be read.
    File(PoProblem),
    /// A mistake of the header or of a translation.
    Flaw(Flaw),
    /// The message is not in the file.
    Missing,
    /// The message has no translation.
    Untranslated,
    /// The translation is marked as doubtful.
    Fuzzy,
    /// The translation was made for an earlier source text.
    Outdated,
    /// The translation is longer than the message allows.
    Long {
        /// The form; 0 without plural.
        form: usize,
        /// The length of the text, as [`text_length`](crate::text_length) counts.
        length: usize,
        /// The maximum.
        max: usize,
    },
    /// A message with a placeholder is not marked `ruby-format`, so other programs do not check it.
    FlagLost,
    /// Only one of source text and translation begins or ends with a space.
    EdgeSpace {
        /// The form; 0 without plural.
        form: usize,
        /// Whether it is the end of the text (else its beginning).
        end: bool,
    },
    /// A tag such as `<b>` is not as often in the translation as in the source text.
    Markup {
        /// The form; 0 without plural.
        form: usize,
        /// The tag.
        tag: String,
    },
    /// The context has a value that the message does not select by.
    UnknownValue {
        /// The value.
        value: String,
        /// The values that the message selects by.
        values: Vec<String>,
    },
    /// No message has this source text any more.
    Unused,
}

impl FindingKind {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Flaw(Flaw::Language { .. } | Flaw::DuplicateLocale) => Severity::Warning,
            Self::File(_) | Self::Flaw(_) => Severity::Error,
            Self::Missing | Self::Fuzzy | Self::Long { .. } | Self::FlagLost => Severity::Warning,
            Self::EdgeSpace { .. } | Self::Markup { .. } | Self::UnknownValue { .. } => Severity::Warning,
            Self::Untranslated | Self::Outdated | Self::Unused => Severity::Note,
        }
    }

    /// A name for programs, which stays as it is, for example `missing-placeholder`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Flaw(flaw) => match flaw {
                Flaw::DuplicateLocale => "duplicate-locale",
                Flaw::Language { .. } => "language",
                Flaw::PluralFormsMissing => "plural-forms-missing",
                Flaw::PluralRange { .. } => "plural-range",
                Flaw::FormCount { .. } => "form-count",
                Flaw::FormEmpty { .. } => "form-empty",
                Flaw::TooLong { .. } => "too-large",
                Flaw::Source(_) => "source",
                Flaw::Placeholder { .. } => "percent-sign",
                Flaw::MissingPlaceholder { .. } => "missing-placeholder",
                Flaw::UnknownPlaceholder { .. } => "unknown-placeholder",
                Flaw::Newline { .. } => "newline",
                Flaw::PluralDiffers => "plural-differs",
            },
            Self::Missing => "missing",
            Self::Untranslated => "untranslated",
            Self::Fuzzy => "fuzzy",
            Self::Outdated => "outdated",
            Self::Long { .. } => "too-long",
            Self::FlagLost => "flag-lost",
            Self::EdgeSpace { .. } => "edge-space",
            Self::Markup { .. } => "markup",
            Self::UnknownValue { .. } => "unknown-value",
            Self::Unused => "unused",
        }
    }
}
