//! What a node of a cluster may hold in memory of its messages.

use tidings_telemetry::memory::Term;

use crate::entry::{PART_BYTES_MAX, PART_COUNT_MAX};
use crate::node::COMMAND_COUNT_MAX;
use crate::peers::{self, WAITING_COUNT_MAX};

/// Questions, and news.
const KIND_COUNT: usize = 2;
/// The parts of a record, and the record.
const RECORD_COPIES: usize = 2;

/// What messages in the client library, and the record of the log that is written or read, may take.
pub fn memory_terms() -> Vec<Term> {
    let messages = KIND_COUNT * WAITING_COUNT_MAX + COMMAND_COUNT_MAX;
    vec![
        Term::peak("messages of servers", messages, peers::PART_BYTES_MAX, "cluster.servers"),
        Term::peak("record of the log", RECORD_COPIES * usize::from(PART_COUNT_MAX), PART_BYTES_MAX, "cluster.servers"),
    ]
}
