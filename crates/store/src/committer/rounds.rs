//! Maintenance between batches: rounds of bounded work, mostly the deletion of rows that are no longer needed.

use std::time::Duration;

use tidings_types::JournalPosition;
use tokio::time::Instant;

use crate::engine::EngineError;

use super::draft::Draft;
use crate::channels::trim::ChannelPass;
use crate::devices::expire::IdlePass;
use crate::mutes::ends::MuteEnds;

/// How long the rounds of one batch may take while callers wait. A round looks at the clock between two of its steps, so one
/// step may exceed this. Committing what the rounds did comes on top.
const TIME_WHILE_CALLERS_WAIT: Duration = Duration::from_micros(500);
/// The same in a cluster, where rounds are done less often ([`BUSY_WITH_LOG`]).
const TIME_WHILE_CALLERS_WAIT_WITH_LOG: Duration = Duration::from_millis(2);
/// The same while nobody waits.
const TIME: Duration = Duration::from_millis(5);
/// The pause before the next round if there is more work.
const BUSY: Duration = Duration::from_millis(5);
/// The same in a cluster, where the rows of each batch go through the log.
const BUSY_WITH_LOG: Duration = Duration::from_millis(20);
/// The pause before the next round if a damaged row stopped this one.
const DAMAGED: Duration = Duration::from_secs(60);

/// A kind of maintenance.
#[derive(Debug, Clone, Copy)]
enum Round {
    Journal,
    Changes,
    Channels,
    Keys,
    Mutes,
    Devices,
    Table,
    Ids,
    Numbers,
}

impl Round {
    const ALL: [Self; 9] = [
        Self::Journal,
        Self::Changes,
        Self::Channels,
        Self::Keys,
        Self::Mutes,
        Self::Devices,
        Self::Table,
        Self::Ids,
        Self::Numbers,
    ];

    /// Those that change the device table in memory and no rows.
    const TENDING: [Self; 2] = [Self::Table, Self::Ids];

    /// The pause before the next round if there is no more work.
    const fn interval(self) -> Duration {
        match self {
            Self::Channels => Duration::from_millis(50),
            _ => Duration::from_millis(250),
        }
    }
}

/// When the next round of each kind is due, and where it continues. The kinds are independent: a damaged channel does not
/// stop the deletion of events.
#[derive(Debug)]
pub(super) struct Rounds {
    next: [Instant; Round::ALL.len()],
    /// The round that begins, so that each has its turn when the time ends early.
    first: usize,
    /// The end of the journal when it was trimmed last.
    trimmed_at: Option<u64>,
    channels: ChannelPass,
    idle: IdlePass,
    mute_ends: MuteEnds,
    /// Devices that have expired.
    expired: u64,
}

impl Rounds {
    pub(super) fn new(now: Instant) -> Self {
        let next = Round::ALL.map(|round| now + round.interval());
        let (channels, idle, mute_ends) = (ChannelPass::default(), IdlePass::default(), MuteEnds::default());
        Self { next, first: 0, trimmed_at: None, channels, idle, mute_ends, expired: 0 }
    }

    /// When the next round of any kind is due.
    pub(super) fn next(&self) -> Instant {
        self.next.into_iter().min().expect("there are rounds")
    }

    /// Devices that expired since the last call.
    pub(super) fn take_expired(&mut self) -> u64 {
        std::mem::take(&mut self.expired)
    }

    /// When the next round of those that change no rows is due.
    pub(super) fn next_tending(&self) -> Instant {
        Round::TENDING.map(|round| self.next[round as usize]).into_iter().min().expect("there are rounds")
    }

    /// Does those of the rounds that are due which change no rows.
    pub(super) fn tend(&mut self, draft: &mut Draft<'_>, now: Instant) -> Result<(), EngineError> {
        let pace = Pace { has_log: true, is_waited_for: false };
        self.run_some(&Round::TENDING, draft, JournalPosition(0), (now, pace))
    }

    /// Does the rounds that are due, as far as there is time.
    pub(super) fn run(
        &mut self,
        draft: &mut Draft<'_>,
        trim_to: JournalPosition,
        (now, pace): (Instant, Pace),
    ) -> Result<(), EngineError> {
        self.run_some(&Round::ALL, draft, trim_to, (now, pace))
    }

    fn run_some(
        &mut self,
        rounds: &[Round],
        draft: &mut Draft<'_>,
        trim_to: JournalPosition,
        (now, pace): (Instant, Pace),
    ) -> Result<(), EngineError> {
        draft.deadline = Some(now + pace.time());
        for place in 0..rounds.len() {
            let round = rounds[(self.first + place) % rounds.len()];
            if self.next[round as usize] > now {
                continue;
            }
            if !draft.has_time() {
                self.first = (self.first + place) % rounds.len();
                break;
            }
            let found = draft.attempt(|draft| self.run_one(round, draft, trim_to, now))?;
            let pause = match found {
                Some(true) if pace.has_log => BUSY_WITH_LOG,
                Some(true) => BUSY,
                Some(false) => round.interval(),
                None => {
                    self.channels.repeat();
                    self.idle.repeat();
                    DAMAGED
                }
            };
            self.next[round as usize] = now + pause;
        }
        draft.deadline = None;
        Ok(())
    }

    /// True when there may be more work.
    fn run_one(
        &mut self,
        round: Round,
        draft: &mut Draft<'_>,
        trim_to: JournalPosition,
        now: Instant,
    ) -> Result<bool, EngineError> {
        match round {
            Round::Journal => draft.trim_journal(trim_to, &mut self.trimmed_at),
            Round::Changes => draft.trim_changes(draft.shared.checkpoint.taken()),
            Round::Channels => draft.trim_channels(&mut self.channels),
            Round::Keys => draft.trim_keys(),
            Round::Table => draft.tend_table(),
            Round::Ids => draft.hint_at_ids(),
            Round::Numbers => Ok(draft.ripen_numbers(trim_to.0, now)),
            Round::Mutes => draft.end_mutes(&mut self.mute_ends),
            Round::Devices => {
                if let Some(idle_max) = draft.shared.config.idle_max {
                    self.expired += draft.expire_devices(idle_max, &mut self.idle)?;
                }
                Ok(false)
            }
        }
    }
}

/// What the work that nobody waits for has to go by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Each batch becomes a record of a log.
    pub(super) has_log: bool,
    /// Callers wait.
    pub(super) is_waited_for: bool,
}

impl Pace {
    const fn time(self) -> Duration {
        match (self.is_waited_for, self.has_log) {
            (true, false) => TIME_WHILE_CALLERS_WAIT,
            (true, true) => TIME_WHILE_CALLERS_WAIT_WITH_LOG,
            (false, _) => TIME,
        }
    }
}
