//! Maintenance between batches: rounds of bounded work, mostly the deletion of rows that are no longer needed.

use std::time::Duration;

use tidings_types::JournalPosition;
use tokio::time::Instant;

use crate::engine::EngineError;

use super::draft::Draft;
use crate::mutes::ends::MuteEnds;

/// The pause before the next round if there is more work.
const BUSY: Duration = Duration::from_millis(20);
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
            Self::Devices => Duration::from_secs(1),
            _ => Duration::from_millis(250),
        }
    }
}

/// When the next round of each kind is due, and where it continues. The kinds are independent: a damaged channel does not
/// stop the deletion of events.
#[derive(Debug)]
pub(super) struct Rounds {
    next: [Instant; Round::ALL.len()],
    /// The key of the last channel, and of the last device.
    channel: Vec<u8>,
    device: Vec<u8>,
    mute_ends: MuteEnds,
    /// Devices that have expired.
    expired: u64,
}

impl Rounds {
    pub(super) fn new(now: Instant) -> Self {
        let next = Round::ALL.map(|round| now + round.interval());
        Self { next, channel: Vec::new(), device: Vec::new(), mute_ends: MuteEnds::default(), expired: 0 }
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
        self.run_some(&Round::TENDING, draft, JournalPosition(0), now)
    }

    /// Does the rounds that are due.
    pub(super) fn run(
        &mut self,
        draft: &mut Draft<'_>,
        trim_to: JournalPosition,
        now: Instant,
    ) -> Result<(), EngineError> {
        self.run_some(&Round::ALL, draft, trim_to, now)
    }

    fn run_some(
        &mut self,
        rounds: &[Round],
        draft: &mut Draft<'_>,
        trim_to: JournalPosition,
        now: Instant,
    ) -> Result<(), EngineError> {
        for &round in rounds {
            if self.next[round as usize] > now {
                continue;
            }
            let found = draft.attempt(|draft| match round {
                Round::Journal => draft.trim_journal(trim_to),
                Round::Changes => draft.trim_changes(draft.shared.checkpoint.taken()),
                Round::Channels => draft.trim_channels(&mut self.channel),
                Round::Keys => draft.trim_keys(),
                Round::Table => draft.tend_table(),
                Round::Ids => draft.hint_at_ids(),
                Round::Numbers => draft.ripen_numbers(trim_to.0, now),
                Round::Mutes => draft.end_mutes(&mut self.mute_ends),
                Round::Devices => {
                    if let Some(idle_max) = draft.shared.config.idle_max {
                        self.expired += draft.expire_devices(idle_max, &mut self.device)?;
                    }
                    Ok(false)
                }
            })?;
            let pause = match found {
                Some(true) => BUSY,
                Some(false) => round.interval(),
                None => DAMAGED,
            };
            self.next[round as usize] = now + pause;
        }
        Ok(())
    }
}
