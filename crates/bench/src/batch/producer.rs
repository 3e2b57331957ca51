//! How producers hand in messages to any writer.

use tidings_server::command_error::CommandError;

use super::sink::Written;

/// How one producer hands in a message.
pub(super) type Producer<'a> = Box<dyn FnMut(&[u8]) + 'a>;

/// A way to write, shared by all producers.
pub(super) trait Writer: Sync {
    /// Called by each producer on its own thread.
    fn producer(&self) -> Producer<'_>;
    /// Waits until everything that will be written is written, and closes the output. Returns how many messages were
    /// dropped.
    fn finish(self: Box<Self>, written: &Written) -> Result<u64, CommandError>;
}
