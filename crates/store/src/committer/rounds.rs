//! Taking away what is no longer needed: a bounded look each time, between batches.

use std::time::Duration;

use tidings_types::JournalPosition;
use tokio::time::Instant;

use crate::engine::EngineError;

use super::draft::Draft;
use crate::mutes::ends::MuteEnds;

/// How soon a round looks again where there was more than one look takes.
const BUSY: Duration = Duration::from_millis(20);
/// How long it lets be what a damaged row is among.
const DAMAGED: Duration = Duration::from_secs(60);

/// What is looked for.
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

    /// How often, when there is nothing.
    const fn interval(self) -> Duration {
        match self {
            Self::Devices => Duration::from_secs(1),
            _ => Duration::from_millis(250),
        }
    }
}

/// When each kind is looked for again, and where its search goes on. Each for itself: a damaged channel is no reason to
/// keep all events.
#[derive(Debug)]
pub(super) struct Rounds {
    next: [Instant; Round::ALL.len()],
    /// The key of the last channel, and that of the last device.
    channel: Vec<u8>,
    device: Vec<u8>,
    mute_ends: MuteEnds,
    /// Devices that were deleted.
    expired: u64,
}

impl Rounds {
    pub(super) fn new(now: Instant) -> Self {
        let next = Round::ALL.map(|round| now + round.interval());
        Self { next, channel: Vec::new(), device: Vec::new(), mute_ends: MuteEnds::default(), expired: 0 }
    }

    /// When something is to be looked for.
    pub(super) fn next(&self) -> Instant {
        self.next.into_iter().min().expect("there are rounds")
    }

    /// Devices that expired since this was asked last.
    pub(super) fn take_expired(&mut self) -> u64 {
        std::mem::take(&mut self.expired)
    }

    /// Looks for what it is time for.
    pub(super) fn look(
        &mut self,
        draft: &mut Draft<'_>,
        trim_to: JournalPosition,
        now: Instant,
    ) -> Result<(), EngineError> {
        for round in Round::ALL {
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
