//! An error with its causes, for logs and for people.

/// The error and each of its causes in one line, with a colon between them. An error of this workspace never repeats its
/// source; those of libraries often do, so a cause with which the text ends already is left out. All logging of errors uses this
/// function.
pub fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source()).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read goals.po")]
    struct Outer(#[source] std::io::Error);

    /// As some libraries write their errors.
    #[derive(Debug, thiserror::Error)]
    #[error("no goals: {0}")]
    struct Repeating(#[source] Outer);

    #[test]
    fn every_cause_is_said_once() {
        let inner = std::io::Error::other("the disk is on fire");
        assert_eq!(chain(&Outer(inner)), "cannot read goals.po: the disk is on fire");
        assert_eq!(chain(&std::fmt::Error), std::fmt::Error.to_string());
        let repeating = Repeating(Outer(std::io::Error::other("the disk is on fire")));
        assert_eq!(chain(&repeating), "no goals: cannot read goals.po: the disk is on fire");
    }
}
