//! How producers hand in, whoever writes.

use tidings_server::command_error::CommandError;

use super::sink::Written;

/// How one producer hands in a message.
pub(super) type Producer<'a> = Box<dyn FnMut(&[u8]) + 'a>;

/// A way to write, shared by all producers.
pub(super) trait Writer: Sync {
    /// Called by each producer on its own thread.
    fn producer(&self) -> Producer<'_>;
    /// Returns when everything that will be written is; tells how many messages were dropped. The output is closed
    /// then.
    fn finish(self: Box<Self>, written: &Written) -> Result<u64, CommandError>;
}
