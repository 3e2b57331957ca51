//! Who should lead: a lease that nodes take and renew by compare-and-set. A core without I/O and clock.
//!
//! ```text
//!             nobody has it, it was given back, or nobody renewed it for SILENCE
//!  Watching ────────────────────────────────────────────────────────────────────► Holding ── renews each BEAT
//!     ▲                                                                              │
//!     └──────── another process has it; it was given back; not renewed for PATIENCE ─┘
//! ```
//!
//! Safety never hangs on it: the log has its own fence. The lease saves nodes from taking the lead from each other, and says
//! when a leader that cannot renew it must hold back what cannot be undone ([`Lease::until`]).
//!
//! A node counts silence from when it first saw the lease as it is. If the broker does not answer, it begins to count anew:
//! while the broker has no leader, nobody can renew, and a leader that works must not be deposed for that.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The pause between two requests.
pub const BEAT: Duration = Duration::from_millis(500);
/// A lease that was not renewed for so long may be taken.
pub const SILENCE: Duration = Duration::from_secs(3);
/// How long after a renewal its holder may do what cannot be undone. Less than [`SILENCE`], so that it has ended when
/// another node leads.
pub const VALID: Duration = Duration::from_secs(2);
/// A holder that could not renew for so long gives up. Longer than brokers need to agree on a leader of their own.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// A word that is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// A word of these random bits.
    pub fn from_random(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What the lease says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The name of the node.
    pub node: String,
    /// Drawn at random by the process, so that a node that was started again is another one.
    pub process: u64,
    /// Where the node can be reached, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What only the nodes of the cluster know: who shows it to the holder is one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// How far the log was for it. Who has read less does not take the lease.
    pub sequence: u64,
    /// It was given back.
    #[serde(default)]
    pub released: bool,
    /// Of a lease that was given back: the node that should take it. Others wait as if it was not given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What to ask of the register that has the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// What it has.
    Look,
    /// Put this node's name, if the register has this revision (0: nothing yet).
    Take(u64),
    /// As [`Ask::Take`], and say that the lease is given back.
    Release(u64),
}

/// What the register says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// What it has, and its revision; 0 and `None`: nothing yet.
    Has(u64, Option<Holder>),
    /// It was put, and is this revision now.
    Done(u64),
    /// The register has another revision.
    Refused,
    /// Nothing in time: it was put or not.
    Nothing,
}

/// Whether this node may take the lease, or keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It may not. If it has it, it gives it back.
    No,
    /// It may if it has read the log as far as the last holder said.
    Read(u64),
}

/// One process's view of the lease. Times are those of a clock that never goes back, also while the machine sleeps.
#[derive(Debug)]
pub struct Lease {
    node: String,
    process: u64,
    state: State,
    is_giving_back: bool,
    /// The last request was refused.
    was_refused: bool,
}

#[derive(Debug)]
enum State {
    /// What was seen last, and since when it is so. `None`: it must be looked up.
    Watching(Option<(u64, Option<Holder>, Duration)>),
    /// `renewed`: when the last renewal that worked was sent; `None`: only another renewal tells.
    Holding { revision: u64, since: Duration, renewed: Option<Duration>, is_doubtful: bool },
}

impl Lease {
    /// A process that does not have the lease.
    pub fn new(node: String, process: u64) -> Self {
        Self { node, process, state: State::Watching(None), is_giving_back: false, was_refused: false }
    }

    /// What to ask next. From when it asks to give the lease back, its holder may do nothing that cannot be undone: another node
    /// may have it before this one hears that it was given back.
    pub fn ask(&mut self, now: Duration, readiness: Readiness) -> Ask {
        let ask = match &self.state {
            State::Holding { is_doubtful: true, .. } | State::Watching(None) => Ask::Look,
            State::Holding { revision, .. } if self.is_giving_back || readiness == Readiness::No => {
                Ask::Release(*revision)
            }
            State::Holding { revision, .. } => Ask::Take(*revision),
            State::Watching(Some((revision, holder, since))) => {
                let is_silent = now.saturating_sub(*since) >= SILENCE;
                match self.may_take(holder.as_ref(), is_silent, readiness) {
                    true => Ask::Take(*revision),
                    false => Ask::Look,
                }
            }
        };
        if let (Ask::Release(_), State::Holding { renewed, .. }) = (ask, &mut self.state) {
            *renewed = None;
        }
        ask
    }

    fn may_take(&self, holder: Option<&Holder>, is_silent: bool, readiness: Readiness) -> bool {
        let (Readiness::Read(sequence), false) = (readiness, self.is_giving_back) else { return false };
        let Some(holder) = holder else { return true };
        let is_free = holder.released && holder.to.as_ref().is_none_or(|to| *to == self.node);
        sequence >= holder.sequence && (is_free || is_silent)
    }

    /// Takes the answer to a question that was sent at `sent`. Returns whether to ask again at once.
    pub fn hear(&mut self, sent: Duration, now: Duration, ask: Ask, answer: Answer) -> bool {
        let was_refused = match answer {
            Answer::Has(..) => self.was_refused, // Only what is asked next tells whether it helps.
            _ => std::mem::replace(&mut self.was_refused, answer == Answer::Refused),
        };
        match (ask, answer) {
            (Ask::Take(_), Answer::Done(revision)) => {
                let since = if let State::Holding { since, .. } = self.state { since } else { sent };
                self.state = State::Holding { revision, since, renewed: Some(sent), is_doubtful: false };
                self.is_giving_back
            }
            (Ask::Release(_), Answer::Done(_)) => {
                self.state = State::Watching(None);
                false
            }
            (_, Answer::Has(revision, holder)) => self.see(now, revision, holder),
            (_, Answer::Refused) => {
                self.doubt();
                !was_refused
            }
            _ => {
                self.doubt();
                self.give_up_late(now);
                false
            }
        }
    }

    /// The register has this.
    fn see(&mut self, now: Duration, revision: u64, holder: Option<Holder>) -> bool {
        let is_own = holder.as_ref().is_some_and(|holder| holder.process == self.process && !holder.released);
        match &mut self.state {
            State::Holding { revision: known, is_doubtful, .. } if is_own => {
                (*known, *is_doubtful) = (revision, false);
                true // Only a renewal tells that it still is.
            }
            State::Watching(Some((known, ..))) if *known == revision && !is_own => false,
            State::Watching(_) if is_own => {
                self.state = State::Holding { revision, since: now, renewed: None, is_doubtful: false };
                true
            }
            _ => {
                let is_free = holder.as_ref().is_none_or(|holder| holder.released);
                self.state = State::Watching(Some((revision, holder, now)));
                is_free
            }
        }
    }

    /// What the register has is not known.
    fn doubt(&mut self) {
        match &mut self.state {
            State::Holding { is_doubtful, .. } => *is_doubtful = true,
            State::Watching(seen) => *seen = None,
        }
    }

    /// Ends a hold that was not renewed for too long.
    fn give_up_late(&mut self, now: Duration) {
        if let State::Holding { since, renewed, .. } = self.state
            && now.saturating_sub(renewed.unwrap_or(since)) >= PATIENCE
        {
            self.state = State::Watching(None);
        }
    }

    /// From now on the lease is given back, and not taken again until `is_giving_back` is false.
    pub fn give_back(&mut self, is_giving_back: bool) {
        self.is_giving_back = is_giving_back;
        if let State::Holding { renewed, .. } = &mut self.state {
            *renewed = None; // Another node may have it before this one hears that it was given back.
        }
    }

    /// Whether this process has the lease, as far as it knows.
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Holding { .. })
    }

    /// Until when its holder may do what cannot be undone; `None`: not now.
    pub fn until(&self) -> Option<Duration> {
        match self.state {
            State::Holding { renewed, .. } => renewed.map(|renewed| renewed + VALID),
            State::Watching(_) => None,
        }
    }

    /// Who has the lease, as it was seen last; `None`: nobody, or this process has it.
    pub fn holder(&self) -> Option<&Holder> {
        match &self.state {
            State::Watching(Some((_, holder, _))) => holder.as_ref().filter(|holder| !holder.released),
            _ => None,
        }
    }
}
