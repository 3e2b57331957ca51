//! What clients may do in a channel. The namespace, with which the channel's name begins, decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tidings_types::{ChannelName, Json};

use crate::{Publication, TextPattern};

/// What publications of clients and of backends may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataFormat {
    /// Any JSON value.
    Json,
    /// A JSON object.
    JsonObject,
}

impl DataFormat {
    /// Whether `data` has the format.
    pub fn admits(self, data: &Json) -> bool {
        self == Self::Json || data.as_str().trim_start().starts_with('{')
    }
}

use crate::HookId;

/// What a client gets when it comes back to a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryMode {
    /// All that it missed.
    Stream,
    /// The latest publication, if it does not have it.
    Cache,
}

/// What becomes of a reader that is too slow for its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowReaders {
    /// It is disconnected when what it lacks is no longer in memory, and resumes from the history.
    #[default]
    Disconnect,
    /// It goes on with the newest publication when what it lacks is no longer in memory.
    Skip,
    /// It gets the newest publication of each key, and not the ones before, whenever it lacks several.
    Latest,
}

/// How much of a channel's publications a reader gets. The default is everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Thinning {
    /// When it is too slow.
    pub slow_readers: SlowReaders,
    /// With [`SlowReaders::Latest`]: how often in a second it gets something; 0: without a limit.
    pub per_second_max: u32,
}

impl Thinning {
    /// The one of both that lets less pass.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let limits = [self.per_second_max, other.per_second_max];
        Self {
            slow_readers: self.slow_readers.max(other.slow_readers),
            per_second_max: limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(0),
        }
    }

    /// Whether a reader may get less than everything.
    pub fn thins(self) -> bool {
        self.slow_readers != SlowReaders::Disconnect
    }
}

/// Where a publication says what it is about, so that a later one about the same replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicationKey {
    /// A tag of this name.
    Tag(String),
    /// A value in the data, by its JSON pointer (RFC 6901).
    Pointer(String),
}

impl PublicationKey {
    /// A pointer if the text begins with `/`, else the name of a tag.
    pub fn new(text: &str) -> Self {
        if text.starts_with('/') { Self::Pointer(text.to_owned()) } else { Self::Tag(text.to_owned()) }
    }

    /// What the publication is about: the tag's text, or the JSON text of the value. `None`: it does not say.
    pub fn of(&self, publication: &Publication) -> Option<Box<str>> {
        match self {
            Self::Tag(name) => publication.tags.get(name).map(Into::into),
            Self::Pointer(pointer) => {
                let data: serde_json::Value = serde_json::from_str(publication.data.as_str()).ok()?;
                Some(data.pointer(pointer)?.to_string().into())
            }
        }
    }
}

/// A format of deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaType {
    /// That of Fossil, see [`fossil`](crate::fossil).
    Fossil,
}

/// The rules of all channels of one namespace.
///
/// `_for_client`: every connection of a known user; `_for_subscriber`: connections that are subscribed to the channel;
/// `_for_anonymous`: both rules also apply to connections without a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// Publications kept per channel; 0 turns history off.
    pub history_size: u32,
    /// How long after the last publication the history is kept; zero turns history off.
    pub history_ttl: Duration,
    /// How long a memory channel's position is kept after its history is over and its last reader has left.
    pub history_meta_ttl: Duration,
    /// The most channels of the namespace at a time.
    pub channel_count_max: u32,
    /// Whether history survives a restart.
    pub durable: bool,
    /// Every subscription is recoverable, even if the client does not ask for it.
    pub force_recovery: bool,
    /// A subscription is recoverable when the client asks for it.
    pub allow_recovery: bool,
    /// What a client gets when it comes back.
    pub recovery_mode: RecoveryMode,
    /// In the mode `Cache`: a recoverable subscription gets the latest publication even if the client does not ask for
    /// recovery.
    pub auto_cache_recover: bool,
    /// Whether the subscribers of a channel can be listed.
    pub presence: bool,
    /// Whether subscribers that ask for it, and may see presence, are told who joins and leaves.
    pub join_leave: bool,
    /// Whether all subscribers are told who joins and leaves; nothing without `join_leave`.
    pub force_push_join_leave: bool,
    /// Whether clients may choose publications by their tags.
    pub allow_tags_filter: bool,
    /// What every subscriber gets.
    pub thinning: Thinning,
    /// Whether clients may ask for less than that.
    pub allow_thinning: bool,
    /// Whether clients may get publications as deltas.
    pub allow_deltas: bool,
    /// Whether clients may get numbers instead of channel names.
    pub allow_channel_compaction: bool,
    /// Whether the publications of events carry the event's title and body, for each reader in its language.
    pub event_texts: bool,
    /// Clients with a user may subscribe without a token.
    pub allow_subscribe_for_client: bool,
    /// Clients without a user may subscribe without a token, too.
    pub allow_subscribe_for_anonymous: bool,
    /// The users behind `#` in a channel's name may subscribe without a token, also where other clients may not.
    pub allow_user_limited_channels: bool,
    /// What may be published.
    pub data_format: DataFormat,
    /// Clients with a user may publish.
    pub allow_publish_for_client: bool,
    /// Subscribed clients may publish.
    pub allow_publish_for_subscriber: bool,
    /// Both rules for publishing also apply to clients without a user.
    pub allow_publish_for_anonymous: bool,
    /// Clients with a user may read the history.
    pub allow_history_for_client: bool,
    /// Subscribed clients may read the history.
    pub allow_history_for_subscriber: bool,
    /// Both rules for the history also apply to clients without a user.
    pub allow_history_for_anonymous: bool,
    /// Clients with a user may see presence.
    pub allow_presence_for_client: bool,
    /// Subscribed clients may see presence.
    pub allow_presence_for_subscriber: bool,
    /// Both rules for presence also apply to clients without a user.
    pub allow_presence_for_anonymous: bool,
    /// The hook that decides who may subscribe without a token, instead of the rules above.
    pub subscribe_hook: Option<HookId>,
    /// The hook that decides what clients may publish, instead of the rules above.
    pub publish_hook: Option<HookId>,
    /// The hook that says whether a subscription whose time is over may go on; `None`: clients refresh them.
    pub sub_refresh_hook: Option<HookId>,
    /// Whether the back end is told when a channel gets its first subscriber and loses its last one.
    pub occupancy_webhook: bool,
}

impl NamespaceOptions {
    /// No history, no presence, nothing allowed: a base for rules that allow something.
    pub const fn closed() -> Self {
        Self {
            history_size: 0,
            history_ttl: Duration::ZERO,
            history_meta_ttl: Duration::ZERO,
            channel_count_max: u32::MAX,
            durable: false,
            force_recovery: false,
            allow_recovery: false,
            recovery_mode: RecoveryMode::Stream,
            auto_cache_recover: false,
            presence: false,
            join_leave: false,
            force_push_join_leave: false,
            allow_tags_filter: false,
            thinning: Thinning { slow_readers: SlowReaders::Disconnect, per_second_max: 0 },
            allow_thinning: false,
            allow_deltas: false,
            allow_channel_compaction: false,
            event_texts: false,
            allow_subscribe_for_client: false,
            allow_subscribe_for_anonymous: false,
            allow_user_limited_channels: false,
            data_format: DataFormat::Json,
            allow_publish_for_client: false,
            allow_publish_for_subscriber: false,
            allow_publish_for_anonymous: false,
            allow_history_for_client: false,
            allow_history_for_subscriber: false,
            allow_history_for_anonymous: false,
            allow_presence_for_client: false,
            allow_presence_for_subscriber: false,
            allow_presence_for_anonymous: false,
            subscribe_hook: None,
            publish_hook: None,
            sub_refresh_hook: None,
            occupancy_webhook: false,
        }
    }

    /// Whether a client that is at a position has got every publication before it. It may lack some if it has passed
    /// them over, by its filter, because it wanted only the latest, or because it was too slow.
    pub fn positions_prove_all(&self) -> bool {
        let may_thin = self.allow_thinning || self.thinning.thins();
        !self.allow_tags_filter && !may_thin && self.recovery_mode == RecoveryMode::Stream
    }

    /// Whether channels keep a history, and with it positions to resume from.
    pub const fn has_history(&self) -> bool {
        self.history_size > 0 && !self.history_ttl.is_zero()
    }
}

/// All configured namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    without_namespace: NamespaceOptions,
    named: BTreeMap<String, NamespaceOptions>,
    /// For the part of the name behind the namespace; by namespace, "" for channels without one.
    patterns: BTreeMap<String, TextPattern>,
    /// What publications are about; by namespace, "" for channels without one.
    keys: BTreeMap<String, Arc<PublicationKey>>,
    name_bytes_max: usize,
}

impl Namespaces {
    /// The rules of channels without `:` in their names, and those of each named namespace.
    pub const fn new(without_namespace: NamespaceOptions, named: BTreeMap<String, NamespaceOptions>) -> Self {
        Self { without_namespace, named, patterns: BTreeMap::new(), keys: BTreeMap::new(), name_bytes_max: usize::MAX }
    }

    /// The rules of all channels, each once.
    pub fn all(&self) -> impl Iterator<Item = &NamespaceOptions> {
        std::iter::once(&self.without_namespace).chain(self.named.values())
    }

    /// Limits the names of channels that clients use: all of them to `name_bytes_max`, and those of the namespaces that
    /// have a pattern ("": channels without a namespace) to names with a matching part behind the namespace.
    #[must_use]
    pub fn with_names(self, name_bytes_max: usize, patterns: BTreeMap<String, TextPattern>) -> Self {
        Self { patterns, name_bytes_max, ..self }
    }

    /// Says where publications tell what they are about, by namespace ("": channels without one). Elsewhere all publications
    /// of a channel are about the same.
    #[must_use]
    pub fn with_keys(self, keys: BTreeMap<String, PublicationKey>) -> Self {
        Self { keys: keys.into_iter().map(|(namespace, key)| (namespace, Arc::new(key))).collect(), ..self }
    }

    /// Where the publications of the channel tell what they are about.
    pub fn key_of(&self, channel: &ChannelName) -> Option<&Arc<PublicationKey>> {
        self.keys.get(Self::namespace_of(channel))
    }

    /// Whether clients may use the name; its namespace is configured.
    pub(crate) fn admits(&self, channel: &str) -> bool {
        let (namespace, rest) = ChannelName::split(channel);
        let pattern = self.patterns.get(namespace.unwrap_or_default());
        channel.len() <= self.name_bytes_max && pattern.is_none_or(|pattern| pattern.matches(rest))
    }

    /// The rules of a channel; `None` if its namespace is not configured.
    pub fn options(&self, channel: &ChannelName) -> Option<&NamespaceOptions> {
        self.options_of(channel.as_str())
    }

    /// The name of a channel's namespace; empty for a channel without one.
    pub fn namespace_of(channel: &ChannelName) -> &str {
        ChannelName::split(channel.as_str()).0.unwrap_or_default()
    }

    pub(crate) fn options_of(&self, channel: &str) -> Option<&NamespaceOptions> {
        match ChannelName::split(channel).0 {
            Some(namespace) => self.named.get(namespace),
            None => Some(&self.without_namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_before_the_first_colon_names_the_namespace() {
        let options = |history_size| NamespaceOptions { history_size, ..NamespaceOptions::closed() };
        let namespaces = Namespaces::new(options(1), BTreeMap::from([("match".to_owned(), options(2))]));
        let size =
            |channel| namespaces.options(&ChannelName::new(channel).unwrap()).map(|options| options.history_size);
        for (channel, expected) in [
            ("news", Some(1)),
            ("$news", Some(1)),
            ("match", Some(1)),
            ("match:1", Some(2)),
            ("$match:1", Some(2)),
            ("match:1:2", Some(2)),
            ("other:match:1", None),
            (":1", None),
            ("Match:1", None),
            ("$$match:1", None),
        ] {
            assert_eq!(size(channel), expected, "{channel}");
        }
    }
    #[test]
    fn names_are_limited_by_length_and_pattern() {
        let pattern = |text| TextPattern::new(text).unwrap();
        let patterns =
            [("", pattern("news.*")), ("match", pattern("[0-9]+(#.*)?"))].map(|(name, it)| (name.to_owned(), it));
        let closed = NamespaceOptions::closed();
        let named = ["match", "free"].map(|name| (name.to_owned(), closed));
        let namespaces = Namespaces::new(closed, named.into()).with_names(12, patterns.into());
        for (channel, expected) in [
            ("news", true),
            ("$news", true),
            ("old", false),
            ("match:17", true),
            ("$match:17", true),
            ("match:17#42", true),
            ("match:x17", false),
            ("match:17:18", false),
            ("match:", false),
            ("free:any", true),
            ("free:1234567", true),
            ("free:12345678", false),
        ] {
            assert_eq!(namespaces.admits(channel), expected, "{channel}");
        }
    }
}
