//! What the API needs from other components: a check of events, the live connections, the texts, this server's name.
//!
//! Two more ports are defined beside their data: [`Jobs`](crate::Jobs) and [`Configured`](crate::Configured).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidings_protocol::{ClientInfo, LiveConnection, Order, OrderError, Target};
use tidings_types::{ChannelName, DeviceNumber, Event, Locale, TopicName};

use crate::problem::Invalid;
use crate::readiness::Readiness;
use crate::rfc3339::Rfc3339;

/// This server among others.
#[derive(Clone)]
pub struct Node {
    /// Unique, new at each start.
    pub uid: String,
    /// The operator's name for it.
    pub name: String,
    /// The version that runs.
    pub version: String,
    /// Counts the live connections.
    pub clients: Arc<dyn Fn() -> ClientCounts + Send + Sync>,
    /// The other servers of its cluster; `None`: it is alone.
    pub others: Option<Arc<dyn Others>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("uid", &self.uid).field("name", &self.name).finish_non_exhaustive()
    }
}

/// The other servers of a cluster, which have live connections, too. What a server does not say within about a second is left
/// out.
pub trait Others: Send + Sync {
    /// Who is in the channel there. `None`: too many to be told.
    fn presence(&self, channel: ChannelName) -> OthersFuture<Option<Vec<ClientInfo>>>;

    /// How many connections are in the channel there, and how many users. A user of two servers counts twice.
    fn presence_stats(&self, channel: ChannelName) -> OthersFuture<(u64, u64)>;

    /// The channels that have subscribers there, with the number of these. Several servers may have the same channel.
    fn channels(&self) -> OthersFuture<Vec<(ChannelName, usize)>>;

    /// What each of them has.
    fn nodes(&self) -> OthersFuture<Vec<NodeView>>;
}

/// See [`Others`].
pub type OthersFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a server has of clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Unique, new at each start.
    pub uid: String,
    /// The operator's name for it.
    pub name: String,
    /// The version that runs.
    pub version: String,
    /// Connections.
    pub num_clients: usize,
    /// Different users among them.
    pub num_users: usize,
    /// Subscriptions.
    pub num_subs: usize,
    /// Channels.
    pub num_channels: usize,
    /// Seconds since it started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uptime: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Numbers of live connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCounts {
    /// Connections.
    pub connections: usize,
    /// Different users among them.
    pub users: usize,
}

/// Checks that an event can be rendered for its devices: it has a text, and its parameters and size fit.
pub trait EventCheck: Send + Sync {
    /// Called for each event of a request before any is accepted; must not wait.
    ///
    /// # Errors
    /// What is wrong, as a text for the producer.
    fn check(&self, event: &Event) -> Result<(), CheckError>;
}

/// The live connections.
pub trait Connections: Send + Sync {
    /// Ends the proof of all connections of `device`. With `close` they are also closed; a client may connect again. Must
    /// not wait.
    fn revoke(&self, device: DeviceNumber, close: bool);

    /// Carries out an order on all connections that it is about. Resolves within seconds.
    fn order(&self, target: Target, order: Order) -> OrderFuture;

    /// Tells of all connections that are meant: of at most `CONNECTION_LIST_MAX`, and of one more if there are more.
    /// Resolves within seconds.
    fn list(&self, target: Target) -> ListFuture;
}

/// See [`Connections::order`].
pub type OrderFuture = Pin<Box<dyn Future<Output = Result<(), OrderError>> + Send>>;

/// See [`Connections::list`].
pub type ListFuture = Pin<Box<dyn Future<Output = Result<Vec<LiveConnection>, OrderError>> + Send>>;

/// Why an event cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct CheckError {
    /// The wrong field of the event.
    field: String,
    /// What is wrong with it, without the field's name.
    message: String,
}

impl CheckError {
    /// The wrong field and what is wrong with it. The answer names the field, so a `field: ` at the beginning of
    /// `message` is removed.
    pub fn new(field: &str, message: &str) -> Self {
        let rest = message.strip_prefix(field).and_then(|rest| rest.strip_prefix(": "));
        Self { field: field.to_owned(), message: rest.unwrap_or(message).to_owned() }
    }

    /// As an error of the event whose field paths begin with `prefix`.
    pub(crate) fn at(self, prefix: &str) -> Invalid {
        Invalid::new(&format!("{prefix}{}", self.field), self.message)
    }
}

/// The texts of a server.
pub trait Texts: Send + Sync {
    /// Those in force.
    fn view(&self) -> TextsView;

    /// Reads them again, and takes them over if nothing is wrong. Resolves when that is done.
    fn reload(&self) -> Pin<Box<dyn Future<Output = TextsView> + Send>>;

    /// Puts those before the last reload in force; `None`: there are none. Resolves when that is done.
    fn roll_back(&self) -> Pin<Box<dyn Future<Output = Option<TextsView>> + Send>>;
}

/// How far the translations of a language are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// The language.
    pub locale: Locale,
    /// Topics that are whole in it.
    pub translated: usize,
    /// The first topics that are not; their source texts are told, or nobody is.
    pub missing: Vec<TopicName>,
}

/// The texts in force.
#[derive(Debug, Clone, Serialize)]
pub struct TextsView {
    /// The number of topics.
    pub topics: usize,
    /// The languages that have translations.
    pub languages: Vec<Locale>,
    /// How far each of them is.
    pub coverage: Vec<Coverage>,
    /// Since when they are in force.
    pub since: Rfc3339,
    /// Whether there are texts to roll back to.
    pub can_roll_back: bool,
    /// What is wrong with the texts that were read last; empty if they are in force.
    pub faults: Vec<String>,
}

/// What the server knows of itself.
pub trait System: Send + Sync {
    /// Its listeners and providers.
    fn readiness(&self) -> Readiness;

    /// The memory that its limits allow.
    fn memory(&self) -> Vec<MemoryTerm>;
}

/// Memory for one thing, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryTerm {
    /// What it is for.
    pub name: &'static str,
    /// The bytes when every count is reached.
    pub bytes: u64,
    /// They are needed only while a buffer is full.
    pub is_peak: bool,
    /// The settings that decide it.
    pub settings: &'static str,
}
