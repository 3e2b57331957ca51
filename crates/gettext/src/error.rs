//! Why a file, a plural rule, a template or a rendering is refused.
//!
//! Errors show texts of catalogues and names of parameters, but never values of parameters.

use tidings_types::{TimeZone, event_limits};

use crate::limits;

/// A PO file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct PoError {
    /// The line, counted from 1.
    pub line: usize,
    /// The mistake.
    pub problem: PoProblem,
}

/// A mistake in a PO file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoProblem {
    /// More bytes than one file may have.
    #[error("the file has {bytes} bytes, the limit is {}", limits::FILE_BYTES_MAX)]
    FileTooLarge {
        /// The size of the file.
        bytes: usize,
    },
    /// More messages than one file may have.
    #[error("the file has more than {} entries", limits::ENTRY_COUNT_MAX)]
    TooManyEntries,
    /// Another encoding, or invalid UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// A byte order mark, which gettext refuses as well.
    #[error("the file begins with a byte order mark")]
    ByteOrderMark,
    /// Not a comment, a keyword or a string. The error does not quote the text: the file may be no PO file, but a secret.
    #[error("expected a comment, a keyword or a quoted string")]
    Unexpected {
        /// The beginning of the text, for whoever has the file.
        found: String,
    },
    /// A keyword that is there twice, or in the wrong order.
    #[error("{keyword} is out of order")]
    OutOfOrder {
        /// The keyword.
        keyword: String,
    },
    /// A keyword without a string.
    #[error("a quoted string is missing after the keyword")]
    StringMissing,
    /// No closing quotation mark.
    #[error("the string does not end on its line")]
    StringUnterminated,
    /// A backslash before an unknown character, or a code that is not ASCII.
    #[error("unknown escape sequence \\{found}")]
    Escape {
        /// The text after the backslash.
        found: String,
    },
    /// A NUL character. It ends a string in the compiled form.
    #[error("a string has a NUL character")]
    Nul,
    /// A comment between the parts of a message.
    #[error("a comment is inside a message")]
    CommentInside,
    /// A comment with a backslash at its end, which would join it with the next line.
    #[error("a comment ends in a backslash")]
    CommentContinued,
    /// Only a part of the message is marked `#~`.
    #[error("only a part of the message is obsolete")]
    PartlyObsolete,
    /// A message without its msgid.
    #[error("msgid is missing")]
    MsgidMissing,
    /// A message without its msgstr.
    #[error("msgstr is missing")]
    MsgstrMissing,
    /// `msgstr` instead of `msgstr[n]`, or the other way round.
    #[error("msgstr[n] belongs to msgid_plural, msgstr to msgid alone")]
    MsgstrKind,
    /// Plural forms not numbered 0, 1, 2 …
    #[error("expected msgstr[{expected}], found {found}")]
    FormIndex {
        /// The next number.
        expected: usize,
        /// The keyword in the file.
        found: String,
    },
    /// More plural forms than a rule may have.
    #[error("the message has more than {} plural forms", limits::PLURAL_FORM_COUNT_MAX)]
    TooManyForms,
    /// The same text and context twice.
    #[error("the message is already defined in line {first}")]
    Duplicate {
        /// The line of the first definition.
        first: usize,
    },
    /// No entry with the empty msgid.
    #[error("the header entry (msgid \"\") is missing")]
    HeaderMissing,
    /// A charset other than UTF-8, or no charset.
    #[error("the header must state charset=UTF-8, it states {found:?}")]
    Charset {
        /// The charset in the header.
        found: String,
    },
    /// A plural rule that cannot be read.
    #[error("Plural-Forms: {0}")]
    PluralForms(PluralRuleError),
}

/// A `Plural-Forms` value that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluralRuleError {
    /// The rule is longer than any language needs.
    #[error("the rule has {bytes} bytes, the limit is {}", limits::PLURAL_RULE_BYTES_MAX)]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// Not of the form `nplurals=…; plural=…;`.
    #[error("the rule must be nplurals=NUMBER; plural=EXPRESSION;")]
    Shape,
    /// `nplurals` is not a number in the allowed range.
    #[error("nplurals must be 1 to {}, got {found}", limits::PLURAL_FORM_COUNT_MAX)]
    FormCount {
        /// The value.
        found: String,
    },
    /// A syntax error in the C expression, or its end is missing.
    #[error("the plural expression is wrong at byte {at}")]
    Syntax {
        /// Counted from the expression's first byte.
        at: usize,
    },
    /// A number that does not fit 64 bits.
    #[error("the number at byte {at} of the plural expression does not fit 64 bits")]
    Number {
        /// Counted from the expression's first byte.
        at: usize,
    },
    /// Too many nested brackets or operators.
    #[error("the plural expression nests deeper than {}", limits::PLURAL_DEPTH_MAX)]
    TooDeep,
}

/// A `%` that is neither `%%` nor the start of a well-formed `%{name}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the % at byte {at} starts neither %% nor %{{name}} (1 to {} characters of a-z, A-Z, 0-9 and _)",
    event_limits::PARAM_NAME_BYTES_MAX
)]
pub struct PlaceholderError {
    /// Counted from the text's first byte.
    pub at: usize,
}

/// An invalid source text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The text is empty: in gettext this is the msgid of the header.
    #[error("the text is empty")]
    Empty,
    /// Longer than a notification can be.
    #[error("the text has {bytes} bytes, the limit is {}", limits::TEXT_BYTES_MAX)]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// A control character other than newline and tab.
    #[error("the text has the control character {character:?}")]
    Control {
        /// The character.
        character: char,
    },
    /// A `%` without meaning.
    #[error(transparent)]
    Placeholder(#[from] PlaceholderError),
    /// More placeholders than an event has parameters.
    #[error("the text has {count} placeholders, the limit is {}", event_limits::PARAM_COUNT_MAX)]
    TooManyPlaceholders {
        /// How many different placeholders.
        count: usize,
    },
    /// The name of the count cannot be the name of a parameter.
    #[error("the count {name:?} is not a valid parameter name")]
    CountName {
        /// The name.
        name: String,
    },
    /// Singular and plural must have the same placeholders, except that the singular may leave out the count.
    #[error("the placeholder %{{{name}}} is in the {} text only", if *.plural { "plural" } else { "singular" })]
    OneSided {
        /// The placeholder.
        name: String,
        /// Whether it is in the plural text (else in the singular).
        plural: bool,
    },
    /// One of the texts begins or ends with a newline, and the other text does not.
    #[error("only one of singular and plural text begins or ends with a newline")]
    Newline,
    /// The parameter to select by is not a name of a parameter.
    #[error("{name:?} cannot be the name of a parameter to select by")]
    SelectName {
        /// What was given.
        name: String,
    },
    /// Not a value to select by.
    #[error(
        "a value to select by must be 1 to {} letters, digits, `_` and `-`, got {value:?}",
        limits::VALUE_BYTES_MAX
    )]
    ValueName {
        /// What was given.
        value: String,
    },
    /// More values than a text may have.
    #[error("{count} values to select by, the limit is {}", limits::VALUE_COUNT_MAX)]
    TooManyValues {
        /// How many there are.
        count: usize,
    },
    /// The text for a value has another placeholder than the text without it, or lacks one.
    #[error("only one of the text for {value:?} and the text without a value has %{{{name}}}")]
    ValueDiffers {
        /// The value.
        value: String,
        /// The placeholder.
        name: String,
    },
    /// The text for a value has a plural text and the text without it has none, or the other way round.
    #[error("only one of the text for {value:?} and the text without a value has a plural text")]
    ValuePlural {
        /// The value.
        value: String,
    },
}

/// Parameters that do not fit the template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A placeholder, or the count, has no value.
    #[error("the parameter {name:?} is missing")]
    MissingParam {
        /// The parameter.
        name: String,
    },
    /// The count is not a whole number.
    #[error("the parameter {name:?} chooses a plural form and must be a whole number")]
    CountNotInteger {
        /// The parameter.
        name: String,
    },
    /// A typed value cannot be shown.
    #[error("the parameter {name:?} cannot be shown: {problem}")]
    Value {
        /// The parameter.
        name: String,
        /// Why.
        problem: ValueProblem,
    },
}

/// Why a typed value cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    /// No such time zone.
    #[error("{field}: the time zone {zone} is not in the IANA database")]
    UnknownZone {
        /// The field of the value.
        field: &'static str,
        /// The zone.
        zone: TimeZone,
    },
}

/// A mistake in a catalogue or a translation whose syntax is correct.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// There are two catalogues for one locale; only the first is used.
    #[error("there is another catalogue for this locale")]
    DuplicateLocale,
    /// The header's `Language` is not the locale of the catalogue.
    #[error("the header states Language: {stated}")]
    Language {
        /// The language in the header.
        stated: String,
    },
    /// The file has plural forms, but no `Plural-Forms` header.
    #[error("the header lacks Plural-Forms")]
    PluralFormsMissing,
    /// The plural expression gives no existing form for this number: its value is not below `nplurals`, or it divides by
    /// zero.
    #[error("the plural expression chooses no form for n = {n}")]
    PluralRange {
        /// The first such number.
        n: u64,
    },
    /// The number of msgstr is not the number of plural forms.
    #[error("{found} plural forms, the header says {expected}")]
    FormCount {
        /// The number in the header.
        expected: usize,
        /// The number of msgstr.
        found: usize,
    },
    /// This plural form is not translated, while others are.
    #[error("msgstr[{form}] is empty while other forms are not")]
    FormEmpty {
        /// The index of the form.
        form: usize,
    },
    /// The translation is longer than a notification can be.
    #[error("msgstr[{form}] has {bytes} bytes, the limit is {}", limits::TEXT_BYTES_MAX)]
    TooLong {
        /// The form; 0 without plural.
        form: usize,
        /// The length of the text.
        bytes: usize,
    },
    /// The msgid has the ruby-format flag or a placeholder, but is not a valid template.
    #[error("the source text is not a template: {0}")]
    Source(TemplateError),
    /// A `%` without meaning in the translation.
    #[error("msgstr[{form}]: {problem}")]
    Placeholder {
        /// The form; 0 without plural.
        form: usize,
        /// The mistake.
        problem: PlaceholderError,
    },
    /// A placeholder of the source text is not in the translation.
    #[error("msgstr[{form}] lacks %{{{name}}}")]
    MissingPlaceholder {
        /// The form; 0 without plural.
        form: usize,
        /// The placeholder.
        name: String,
    },
    /// A placeholder of the translation is not in the source text.
    #[error("msgstr[{form}] has %{{{name}}}, the source text does not")]
    UnknownPlaceholder {
        /// The form; 0 without plural.
        form: usize,
        /// The placeholder.
        name: String,
    },
    /// Only one of source text and translation begins or ends with a newline.
    #[error("only one of msgstr[{form}] and the source text begins or ends with a newline")]
    Newline {
        /// The form; 0 without plural.
        form: usize,
    },
    /// The entry and the template have different msgid_plural, or only one of them has any.
    #[error("msgid_plural differs from the template's")]
    PluralDiffers,
}
