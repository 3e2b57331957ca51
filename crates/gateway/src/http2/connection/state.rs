//! What a connection awaits, and what moves it on.
//!
//! ```text
//!                    leave
//!   AwaitingWork ──────────────────► AwaitingAnswers
//!        │ close                           │ close
//!        ▼                      leave      ▼
//!   AwaitingEnd (not expected) ────► AwaitingEnd (expected)
//!        │ end                             │ end
//!        └─────────────► Over ◄────────────┘
//! ```
//!
//! - *leave*: GOAWAY; a credential that is refused, too old or replaced; advice of the provider; no flow window for too
//!   long; a slot that is not wanted any more.
//! - *close*: `h2` or the socket is through, the peer is silent, or a connection that leaves has its last answer.
//! - *end*: what was still open is settled or repeated elsewhere. `AwaitingEnd` never outlasts a turn.

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Notifications to send, and their answers.
    AwaitingWork,
    /// The answers under way: it opens nothing more.
    AwaitingAnswers,
    /// The end of the turn: nothing can be read or written any more.
    AwaitingEnd {
        /// It was leaving, which is no fault of the address.
        expected: bool,
    },
    /// Nothing.
    Over,
}

impl State {
    /// It opens nothing more.
    pub(super) fn leave(&mut self) {
        *self = match *self {
            Self::AwaitingWork | Self::AwaitingAnswers => Self::AwaitingAnswers,
            Self::AwaitingEnd { .. } => Self::AwaitingEnd { expected: true },
            Self::Over => Self::Over,
        }
    }

    /// Nothing can be read or written any more, or there is nothing to wait for.
    pub(super) fn close(&mut self) {
        *self = match *self {
            Self::AwaitingWork => Self::AwaitingEnd { expected: false },
            Self::AwaitingAnswers => Self::AwaitingEnd { expected: true },
            Self::AwaitingEnd { .. } | Self::Over => *self,
        }
    }

    /// Everything it had open is dealt with.
    pub(super) fn end(&mut self) {
        *self = Self::Over;
    }

    /// Whether it may take notifications and open streams.
    pub(super) fn is_working(self) -> bool {
        self == Self::AwaitingWork
    }

    /// Whether it was asked to open nothing more.
    pub(super) fn is_leaving(self) -> bool {
        matches!(self, Self::AwaitingAnswers | Self::AwaitingEnd { expected: true })
    }

    /// Whether it is to end with this turn.
    pub(super) fn is_closing(self) -> bool {
        matches!(self, Self::AwaitingEnd { .. })
    }

    /// Whether everything is dealt with.
    pub(super) fn is_over(self) -> bool {
        self == Self::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 5] = [
        State::AwaitingWork,
        State::AwaitingAnswers,
        State::AwaitingEnd { expected: false },
        State::AwaitingEnd { expected: true },
        State::Over,
    ];

    #[test]
    fn every_transition_is_as_it_is_drawn() {
        let after = |change: fn(&mut State)| {
            STATES.map(|mut state| {
                change(&mut state);
                STATES.iter().position(|it| *it == state).unwrap()
            })
        };
        assert_eq!(after(State::leave), [1, 1, 3, 3, 4]);
        assert_eq!(after(State::close), [2, 3, 2, 3, 4]);
        assert_eq!(after(State::end), [4; 5]);
    }

    #[test]
    fn in_each_state_exactly_one_thing_goes_on() {
        for state in STATES {
            let waits = state == State::AwaitingAnswers;
            let all = [state.is_working(), waits, state.is_closing(), state.is_over()];
            assert_eq!(all.into_iter().filter(|it| *it).count(), 1, "{state:?}");
            assert!(!(state.is_leaving() && state.is_working()));
        }
    }
}
