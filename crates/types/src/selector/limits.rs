//! The limits a selector is checked against; a refusal names the limit and the value.

/// Bytes of the text, and of its canonical form.
pub const BYTES_MAX: usize = 4096;
/// `not`s and parentheses around selectors, one within the other. `!=` and `not in` count as `not`.
///
/// A selector is also explained as a tree in JSON, which has up to `4 * DEPTH_MAX + 6` levels; some programs read no
/// JSON of more than 64.
pub const DEPTH_MAX: usize = 14;
/// Topics, subjects, values and `all`s, counted as often as they are written.
pub const NAME_COUNT_MAX: usize = 256;
/// Subjects behind `* on`, counted as often as they are written: each costs a look for every topic there is.
pub const STAR_SUBJECT_COUNT_MAX: usize = 16;
