//! Translated texts: GNU gettext catalogues, plural rules, named placeholders, and fallback between locales.
//!
//! A [`Template`] is the source text of one message, with placeholders such as `%{team}`. A [`Catalogue`] is one PO
//! file: the translations into one language. [`Translations`] holds the catalogues of one domain. It checks them against
//! the templates, and renders a template for a locale: with the translation, else with that of the more general locale
//! (`pt-BR`, then `pt`), else with the source text.
//!
//! The way of a text to its translators and back: a [`Message`] is a template with its place and the remarks for
//! translators. [`pot()`] makes the file of all messages, [`merge()`] brings a language's catalogue up to date with it,
//! [`normalise()`] removes from a returned file what changes without a translator. [`check()`] tells translators what is
//! wrong and where, [`stats()`] how much is done. A [`Pseudo`] language needs no translator.
//!
//! Rendering ignores a translation in which [`Translations::check`] finds a mistake. So rendering cannot fail once
//! [`Template::check_params`] accepts the parameters.
//!
//! This crate reads and writes no files, and nothing waits. Everything is immutable after construction: a reload builds
//! a new [`Translations`] and swaps it in. Render once per job and locale, not per device. Rendering costs a hash look-up
//! per fallback step and one pass over the text. [`limits`] has all limits.
//!
//! Sources: the GNU gettext manual (PO files, plural forms, ruby-format); UAX #9 for the isolates.

mod bidi;
mod check;
mod error;
mod format;
mod languages;
mod merge;
mod message;
mod normalise;
mod pieces;
mod plural;
mod po;
mod pot;
mod pseudo;
mod stats;
mod template;
mod text;
mod translations;

pub use bidi::begins_right_to_left;
pub use check::{Finding, FindingKind, Severity, check};
pub use error::{
    Flaw, PlaceholderError, PluralRuleError, PoError, PoProblem, RenderError, TemplateError, ValueProblem,
};
pub use format::{check_value, offset};
pub use languages::{is_language, plural_forms};
pub use merge::{Changes, Merged, merge};
pub use message::{Message, PLACEHOLDER_LENGTH, text_length};
pub use normalise::normalise;
pub use plural::PluralRule;
pub use po::{Catalogue, Entry, Previous};
pub use pot::{TemplateConflict, pot};
pub use pseudo::Pseudo;
pub use stats::{Count, Stats, stats};
pub use template::{Plural, SourceText, Template};
pub use translations::{Problem, Reader, Translations};

/// The limits of files, texts and plural rules.
pub mod limits {
    /// Bytes of a PO file.
    pub const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;
    /// Entries of a PO file, obsolete ones and the header included.
    pub const ENTRY_COUNT_MAX: usize = 65_536;
    /// Bytes of a text with placeholders, in the source language or translated. No notification carries more.
    pub const TEXT_BYTES_MAX: usize = 4096;
    /// Forms of a plural rule. Arabic has the most among the languages in use: six.
    pub const PLURAL_FORM_COUNT_MAX: usize = 16;
    /// Values of a parameter by which a text is selected. Finnish has 15 cases, Hungarian 18.
    pub const VALUE_COUNT_MAX: usize = 32;
    /// Bytes of such a value.
    pub const VALUE_BYTES_MAX: usize = 64;
    /// Problems that one check reports.
    pub const PROBLEM_COUNT_MAX: usize = 1000;
    /// Bytes of a `Plural-Forms` header.
    pub const PLURAL_RULE_BYTES_MAX: usize = 2048;
    /// Nesting of brackets and operators in a plural expression.
    pub const PLURAL_DEPTH_MAX: usize = 64;
}
