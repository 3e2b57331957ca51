//! Words that a reader of reports sees: enums in which each value has a name and a meaning.

/// Makes an enum of words: each value has a name for rows, metrics and the API, and its documentation can be shown.
///
/// ```
/// tidings_types::words! {
///     /// Why a door is shut.
///     pub enum Why {
///         /// Nobody is there.
///         Empty = "empty",
///     }
/// }
/// assert_eq!((Why::ALL, Why::Empty.as_str(), Why::Empty.about()), (&[Why::Empty][..], "empty", "Nobody is there."));
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $Name:ident { $($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $vis enum $Name {
            $($(#[doc = $doc])+ $name,)+
        }

        impl $Name {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name; one of a bounded set, fit for metrics and rows.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// What it means, in a sentence or two.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}
