//! An error with its causes, for logs and for people.

/// The error and each of its causes in one line, a colon between them. Errors of this workspace never repeat their source,
/// so nothing is said twice; whoever logs an error says all of it this way.
pub fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read goals.po")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn every_cause_is_said_once() {
        let inner = std::io::Error::other("the disk is on fire");
        assert_eq!(chain(&Outer(inner)), "cannot read goals.po: the disk is on fire");
        assert_eq!(chain(&std::fmt::Error), std::fmt::Error.to_string());
    }
}
