//! A command that is not answered yet.

/// One unanswered command. Not copied, so it is answered once.
#[derive(Debug)]
#[must_use = "the command is never answered if the ticket is dropped"]
pub struct Ticket {
    pub(super) id: u32,
}

impl Ticket {
    /// The command's id, for the log.
    pub fn id(&self) -> u32 {
        self.id
    }
}
