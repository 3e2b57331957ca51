//! Why a file, a rule, a template or a rendering is refused.
//!
//! Texts of catalogues and names of parameters appear here, values of parameters never.

use tidings_types::event_limits;

use crate::limits;

/// A PO file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct PoError {
    /// Where, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: PoProblem,
}

/// What is wrong with a line of a PO file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoProblem {
    /// More bytes than one file may have.
    #[error("the file has {bytes} bytes, the limit is {}", limits::FILE_BYTES_MAX)]
    FileTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// More messages than one file may have.
    #[error("the file has more than {} entries", limits::ENTRY_COUNT_MAX)]
    TooManyEntries,
    /// Another encoding, or a broken one.
    #[error("not UTF-8")]
    NotUtf8,
    /// A byte order mark, which gettext refuses as well.
    #[error("the file begins with a byte order mark")]
    ByteOrderMark,
    /// Neither comment, keyword nor string.
    #[error("expected a comment, a keyword or a quoted string, found {found:?}")]
    Unexpected {
        /// The beginning of it.
        found: String,
    },
    /// A keyword that may not stand here: twice, or in the wrong order.
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
    /// A backslash before something it has no meaning for, or a code that is not ASCII.
    #[error("unknown escape sequence \\{found}")]
    Escape {
        /// What follows the backslash.
        found: String,
    },
    /// A NUL character: the compiled form ends strings with it.
    #[error("a string holds a NUL character")]
    Nul,
    /// A comment between the parts of a message.
    #[error("a comment stands inside a message")]
    CommentInside,
    /// A comment with a backslash at its end, which joins it with the next line.
    #[error("a comment ends in a backslash")]
    CommentContinued,
    /// A message of which only a part is marked `#~`.
    #[error("only a part of the message is obsolete")]
    PartlyObsolete,
    /// A message without its msgid.
    #[error("msgid is missing")]
    MsgidMissing,
    /// A message without its msgstr.
    #[error("msgstr is missing")]
    MsgstrMissing,
    /// `msgstr` where `msgstr[n]` is due, or the other way round.
    #[error("msgstr[n] belongs to msgid_plural, msgstr to msgid alone")]
    MsgstrKind,
    /// Plural forms not numbered 0, 1, 2 …
    #[error("expected msgstr[{expected}], found {found}")]
    FormIndex {
        /// The next number.
        expected: usize,
        /// The keyword as it is written.
        found: String,
    },
    /// More plural forms than a rule may have.
    #[error("the message has more than {} plural forms", limits::PLURAL_FORM_COUNT_MAX)]
    TooManyForms,
    /// The same text and context twice.
    #[error("the message is already defined in line {first}")]
    Duplicate {
        /// Where it was first.
        first: usize,
    },
    /// No entry with the empty msgid.
    #[error("the header entry (msgid \"\") is missing")]
    HeaderMissing,
    /// Another charset than UTF-8, or none stated.
    #[error("the header must state charset=UTF-8, it states {found:?}")]
    Charset {
        /// What it states.
        found: String,
    },
    /// A plural rule that cannot be read.
    #[error("Plural-Forms: {0}")]
    PluralForms(PluralRuleError),
}

/// A `Plural-Forms` value that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluralRuleError {
    /// A rule longer than any language needs.
    #[error("the rule has {bytes} bytes, the limit is {}", limits::PLURAL_RULE_BYTES_MAX)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not of the form `nplurals=…; plural=…;`.
    #[error("the rule must be nplurals=NUMBER; plural=EXPRESSION;")]
    Shape,
    /// No forms, or more than any language has.
    #[error("nplurals must be 1 to {}, got {found}", limits::PLURAL_FORM_COUNT_MAX)]
    FormCount {
        /// The value.
        found: String,
    },
    /// Something the C expression does not allow, or its end, where it stands.
    #[error("the plural expression is wrong at byte {at}")]
    Syntax {
        /// Counted from the expression's first byte.
        at: usize,
    },
    /// A number beyond 64 bits.
    #[error("the number at byte {at} of the plural expression does not fit 64 bits")]
    Number {
        /// Counted from the expression's first byte.
        at: usize,
    },
    /// Too many brackets or operators in each other.
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

/// A source text that cannot be a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// No text: gettext keeps the empty one for the header.
    #[error("the text is empty")]
    Empty,
    /// Longer than a notification can be.
    #[error("the text has {bytes} bytes, the limit is {}", limits::TEXT_BYTES_MAX)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A control character other than newline and tab.
    #[error("the text holds the control character {character:?}")]
    Control {
        /// The character.
        character: char,
    },
    /// A `%` that means nothing.
    #[error(transparent)]
    Placeholder(#[from] PlaceholderError),
    /// More placeholders than an event has parameters.
    #[error("the text has {count} placeholders, the limit is {}", event_limits::PARAM_COUNT_MAX)]
    TooManyPlaceholders {
        /// How many different ones.
        count: usize,
    },
    /// The name of the count cannot be a parameter's.
    #[error("the count {name:?} is not a placeholder's name")]
    CountName {
        /// The name.
        name: String,
    },
    /// Singular and plural must show the same, save that the singular may leave out the count.
    #[error("the placeholder %{{{name}}} is in the {} text only", if *.plural { "plural" } else { "singular" })]
    OneSided {
        /// The placeholder.
        name: String,
        /// Whether the plural has it (else the singular).
        plural: bool,
    },
    /// One of the texts begins or ends with a newline, the other does not.
    #[error("only one of singular and plural text begins or ends with a newline")]
    Newline,
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
}

/// What is wrong with a catalogue or a translation that could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Two catalogues for one locale; only the first is used.
    #[error("there is another catalogue for this locale")]
    DuplicateLocale,
    /// The header's `Language` is not the locale the catalogue is given for.
    #[error("the header states Language: {stated}")]
    Language {
        /// What it states.
        stated: String,
    },
    /// The file has plural forms, but no `Plural-Forms` header.
    #[error("the header lacks Plural-Forms")]
    PluralFormsMissing,
    /// The plural expression chooses no form for this number: its value is not below `nplurals`, or it divides by zero.
    #[error("the plural expression chooses no form for n = {n}")]
    PluralRange {
        /// The first such number.
        n: u64,
    },
    /// Not one msgstr for each plural form.
    #[error("{found} plural forms, the header says {expected}")]
    FormCount {
        /// As the header says.
        expected: usize,
        /// As there are.
        found: usize,
    },
    /// Some plural forms are translated, this one is not.
    #[error("msgstr[{form}] is empty while other forms are not")]
    FormEmpty {
        /// Its index.
        form: usize,
    },
    /// The translation is longer than a notification can be.
    #[error("msgstr[{form}] has {bytes} bytes, the limit is {}", limits::TEXT_BYTES_MAX)]
    TooLong {
        /// Which form; 0 without plural.
        form: usize,
        /// Its length.
        bytes: usize,
    },
    /// The msgid carries the ruby-format flag or a placeholder, but no template can be made of it.
    #[error("the source text is no template: {0}")]
    Source(TemplateError),
    /// A `%` of the translation means nothing.
    #[error("msgstr[{form}]: {problem}")]
    Placeholder {
        /// Which form; 0 without plural.
        form: usize,
        /// What is wrong.
        problem: PlaceholderError,
    },
    /// A placeholder of the source text is not in the translation.
    #[error("msgstr[{form}] lacks %{{{name}}}")]
    MissingPlaceholder {
        /// Which form; 0 without plural.
        form: usize,
        /// The placeholder.
        name: String,
    },
    /// A placeholder of the translation is not in the source text.
    #[error("msgstr[{form}] has %{{{name}}}, the source text does not")]
    UnknownPlaceholder {
        /// Which form; 0 without plural.
        form: usize,
        /// The placeholder.
        name: String,
    },
    /// The source text begins or ends with a newline and the translation does not, or the other way round.
    #[error("msgstr[{form}] and source text do not begin and end with a newline alike")]
    Newline {
        /// Which form; 0 without plural.
        form: usize,
    },
    /// The catalogue's entry has another msgid_plural than the template, or only one of them has any.
    #[error("msgid_plural is not that of the template")]
    PluralDiffers,
}
