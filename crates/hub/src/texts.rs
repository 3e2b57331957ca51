//! The texts of events in publications: each reader of a channel with texts gets title and body in its language.
//!
//! They are tags of the publication, [`TAG_TITLE`], [`TAG_BODY`] and [`TAG_LANG`], beside those that it has. So they need
//! no room in the data, which is the producer's. A filter does not see them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidings_protocol::{Publication, TEXTS_BYTES_MAX};
use tidings_types::{Event, Language, Locale, Tags};

/// The tag with an event's title.
pub const TAG_TITLE: &str = "title";
/// The tag with an event's body.
pub const TAG_BODY: &str = "body";
/// The tag with the language of title and body. A text for all other languages has none.
pub const TAG_LANG: &str = "lang";

/// Writes the texts of events for readers.
pub trait Localizer: fmt::Debug + Send + Sync {
    /// The language for this locale, if there are texts in it or in a more general one.
    fn language(&self, locale: &Locale) -> Option<Language>;

    /// The event's text in each of these languages, in their order; `None` if it cannot be written. Languages with the same
    /// text share it. Called with a channel locked.
    fn texts(&self, event: &Event, languages: &[Language]) -> Vec<Option<Arc<LiveText>>>;
}

/// Title and body of an event in one language.
#[derive(Clone, PartialEq, Eq)]
pub struct LiveText {
    /// The title.
    pub title: String,
    /// The body.
    pub body: String,
    /// The language; `None`: it is the text for all other languages.
    pub locale: Option<Locale>,
}

// User text must never appear in a log.
impl fmt::Debug for LiveText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveText({:?})", self.locale)
    }
}

/// The publication as readers of one language get it. A text over [`TEXTS_BYTES_MAX`] is left out.
pub(crate) fn with_text(publication: &Publication, text: Option<&LiveText>) -> Publication {
    let fits = |text: &&LiveText| text.title.len() + text.body.len() <= TEXTS_BYTES_MAX;
    let Some(LiveText { title, body, locale }) = text.filter(fits) else { return publication.clone() };
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut tags: BTreeMap<String, String> = publication.tags.iter().map(owned).collect();
    tags.extend([owned((TAG_TITLE, title)), owned((TAG_BODY, body))]);
    tags.extend(locale.as_ref().map(|locale| owned((TAG_LANG, locale.as_str()))));
    Publication { tags: Tags::from(tags), ..publication.clone() }
}
