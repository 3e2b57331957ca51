//! The log that several nodes share ([`tidings_store::CommitLog`]): one node leads and appends, all read.
//!
//! The log is a stream of an existing broker that appends an entry only behind the sequence number that the writer expects.
//! This is the fence: exactly one entry has each number, whatever was sent twice or late, so no consensus and no lock of our
//! own is needed.
//!
//! ```text
//!  store ── record ─► Writer ── entries, each behind the one before ─► broker
//!  store ◄─ record ── Reader ◄─ entries in order ──────────────────────┘
//! ```
//!
//! - [`entry`]: the bytes of an entry.
//! - [`Writer`]: appends entries, also when the broker does not say whether it has one. A core.
//! - [`Reader`]: makes records of entries, and finds out that the log is not the one it was. A core.
//! - [`Log`]: both over a [`Broker`], as one node's [`CommitLog`](tidings_store::CommitLog).
//! - [`JetStream`]: a stream of NATS JetStream as the broker.
//! - [`lease`]: who should lead. A core.
//! - [`Peers`]: what nodes ask and tell each other beside the log.
//! - [`Cluster`]: a node with all of this, and with a copy of the store for new nodes.
//! - [`Survey`]: a cluster from outside, for operators.

mod copies;
pub mod entry;
mod jetstream;
pub mod lease;
mod log;
mod memory;
mod node;
mod peers;
mod reader;
mod register;
mod survey;
mod writer;

pub use copies::CopyError;
pub use jetstream::{JetStream, LogState, StreamConfig, StreamError};
pub use log::{Broker, Log, Unreached};
pub use memory::memory_terms;
pub use node::{Cluster, ClusterConfig, ClusterError, NodeReport, NodeRole, Others, Resignation};
pub use peers::{NewsPart, NewsReceiver, NewsSender, PART_BYTES_MAX, Peers, Question, Questions, Unanswered};
pub use reader::{Read, Reader};
pub use register::{Standing, boot_time};
pub use survey::{Checked, ClusterStatus, Survey, SurveyError};
pub use writer::{Appending, Reply, Step, Writer, Written};
