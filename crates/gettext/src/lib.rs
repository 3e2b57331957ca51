//! What is said to people, in their own language: GNU gettext catalogues, plural rules, named placeholders, fallback.
//!
//! A [`Template`] is the source text of one message, with placeholders such as `%{team}`. A [`Catalogue`] is one PO
//! file, the translations into one language. [`Translations`] holds the catalogues of one domain, checks them against
//! the templates and renders a template for a locale: the translation, else that of the more general locale (`pt-BR`,
//! then `pt`), else the source text. [`pot`] writes the file translators start from.
//!
//! Whatever [`Translations::check`] finds wrong with a message is never sent: rendering passes over that translation as
//! if it did not exist. So, once [`Template::check_params`] accepts the parameters, rendering cannot fail.
//!
//! No file is read or written here and nothing waits. Everything is immutable after construction; a reload builds a
//! new [`Translations`] and swaps it in. Rendering is meant once per job and locale, not per device; it costs a hash
//! look-up per fallback step and one pass over the text.
//!
//! Limits, all refusals naming value and limit: see [`limits`].
//!
//! Source: the GNU gettext manual (PO files, plural forms, ruby-format); UAX #9 for the isolates.

mod bidi;
mod error;
mod plural;
mod po;
mod pot;
mod template;
mod text;
mod translations;

pub use error::{Flaw, PlaceholderError, PluralRuleError, PoError, PoProblem, RenderError, TemplateError};
pub use plural::PluralRule;
pub use po::{Catalogue, Entry, Previous};
pub use pot::{TemplateConflict, pot};
pub use template::{Plural, Template};
pub use translations::{Problem, Translations};

/// What files, texts and plural rules are checked against.
pub mod limits {
    /// Bytes of a PO file.
    pub const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;
    /// Entries of a PO file, obsolete ones and the header included.
    pub const ENTRY_COUNT_MAX: usize = 65_536;
    /// Bytes of a text with placeholders, source or translation: no notification carries more.
    pub const TEXT_BYTES_MAX: usize = 4096;
    /// Forms a plural rule may have; Arabic, with six, has the most of the languages in use.
    pub const PLURAL_FORM_COUNT_MAX: usize = 16;
    /// Problems one check reports; the rest shows when these are mended.
    pub const PROBLEM_COUNT_MAX: usize = 1000;
    /// Bytes of a `Plural-Forms` header.
    pub const PLURAL_RULE_BYTES_MAX: usize = 2048;
    /// Nesting of a plural expression: of its brackets, and of its operators.
    pub const PLURAL_DEPTH_MAX: usize = 64;
}
