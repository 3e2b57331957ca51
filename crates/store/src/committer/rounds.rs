//! Taking away what is no longer needed: a bounded look each time, between batches.

use std::ops::Bound;
use std::time::Duration;

use tidings_telemetry::chain;
use tidings_types::{ChannelName, JournalPosition, Offset};
use tokio::time::Instant;
use tracing::error;

use super::draft::{Draft, Effect};
use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::engine::{EngineError, Table};
use crate::events::rows::EventHead;
use crate::mutes::write::MuteEnds;
use crate::rows;

/// Events one look may take, and channels it may pass: a few milliseconds.
const EVENT_COUNT: u64 = 2000;
const CHANNEL_COUNT: usize = 500;
/// Publications one look may take, over those of the last channel.
const PUBLICATION_COUNT: u64 = 2000;

/// More publications than most channels have between two floors; the largest offset that JavaScript can count is 8 G strides.
const FLOOR_STRIDE: u64 = 1 << 20;

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
    Mutes,
    Devices,
    Table,
    Ids,
    Numbers,
}

impl Round {
    const ALL: [Self; 8] = [
        Self::Journal,
        Self::Changes,
        Self::Channels,
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

impl Draft<'_> {
    /// Takes events, oldest first, that the sender is done with and whose ids need not be remembered. True when there
    /// may be more. A journal close to its bounds forgets ids earlier: rather a shorter window than no new events.
    pub(super) fn trim_journal(&mut self, trim_to: JournalPosition) -> Result<bool, EngineError> {
        let (window, window_count) = (self.shared.config.id_window, self.shared.config.id_window_count);
        let (first, end, now) = (self.state.journal_base, self.state.journal_end, self.now);
        let (count_max, bytes_max) = (self.shared.config.journal_event_count_max, self.shared.config.journal_bytes_max);
        let is_pressed =
            end - first >= count_max - count_max / 8 || self.state.journal_bytes >= bytes_max - bytes_max / 8;
        for position in (first..trim_to.0.min(end).min(first + EVENT_COUNT)).map(JournalPosition) {
            let key = rows::position_key(position);
            // One that cannot be read goes when its turn comes: all before it are old.
            if let Some((head, row_bytes)) = self.event_head(&key)? {
                let is_young = now.saturating_since(head.accepted_at) <= window;
                if !is_pressed && end - position.0 <= window_count && is_young {
                    break;
                }
                self.rows.delete(Table::EventId, head.id_hash);
                self.state.journal_bytes = self.state.journal_bytes.saturating_sub(row_bytes);
            }
            self.rows.delete(Table::Event, key);
            self.forget_cancelled(position);
            self.state.journal_base = position.0 + 1;
        }
        if self.state.journal_base == end {
            self.state.journal_bytes = 0; // Also those of rows that could not be read.
        }
        Ok(self.state.journal_base - first >= EVENT_COUNT)
    }

    /// What trimming needs of an event, and the bytes of its row. `None`, with a word in the log: nobody can read it.
    fn event_head(&self, key: &[u8]) -> Result<Option<(EventHead, u64)>, EngineError> {
        let read = self.engine.get(Table::Event, key).and_then(|row| {
            let row = row.ok_or_else(|| EngineError::damaged(Table::Event, key))?;
            Ok((rows::decode_event_head(key, row.as_ref())?, row.as_ref().len() as u64))
        });
        match read {
            Err(error) if error.is_damage() => {
                error!(error = chain(&error), "An event is forgotten unread");
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Walks on over the channels from `cursor`, takes expired publications, and gives back the channels that are idle. True
    /// when some were left for the next look.
    pub(super) fn trim_channels(&mut self, cursor: &mut Vec<u8>) -> Result<bool, EngineError> {
        let mut channels = Vec::with_capacity(CHANNEL_COUNT);
        let (mut seen, mut last) = (0, Vec::new());
        self.engine.scan(Table::Channel, Bound::Excluded(cursor), |key, row| {
            let name = rows::decode_channel_name(key).ok();
            // A damaged one keeps what it has until something is published in it, which tells of it.
            channels.extend(name.zip(rows::decode::<ChannelRow>(Table::Channel, key, row).ok()));
            (seen, last) = (seen + 1, key.to_vec());
            Ok::<_, EngineError>(seen < CHANNEL_COUNT)
        })?;
        // At the end the next look begins again.
        *cursor = if seen < CHANNEL_COUNT { Vec::new() } else { last };
        let mut taken = 0;
        for (name, mut row) in channels {
            let base = row.base;
            self.skip_expired(&name, &mut row)?;
            taken += row.base.0 - base.0;
            let key = name.as_str().as_bytes().to_vec();
            if self.is_idle(&row) {
                self.give_back(name, &row);
            } else if row.base > base {
                self.rows.put(Table::Channel, key.clone(), rows::encode(&row));
            }
            if taken >= PUBLICATION_COUNT {
                *cursor = key;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_idle(&self, row: &ChannelRow) -> bool {
        row.base > row.top && self.wall().saturating_since(row.published_at) > self.shared.config.channel_ttl
    }

    /// Forgets a channel. One of its name that comes later must not give an offset to another publication, since it has the
    /// same epoch: it begins at the floor. That rises in strides, so that it stays where it is while the other channels of
    /// this time are given back: a reader that was told of a floor and comes back under a higher one starts anew.
    fn give_back(&mut self, name: ChannelName, row: &ChannelRow) {
        self.rows.delete(Table::Channel, name.as_str().as_bytes());
        self.state.channel_count = self.state.channel_count.saturating_sub(1);
        if row.top > self.state.channel_floor {
            self.state.channel_floor = Offset((row.top.0 / FLOOR_STRIDE + 1).saturating_mul(FLOOR_STRIDE));
        }
        self.effects.push(Effect::GivenBack { channel: name, floor: self.state.channel_floor });
        self.synced = true; // Readers are told the floor: it must not be lost.
    }

    /// Takes the channel's expired publications, oldest first, and moves its base behind them.
    fn skip_expired(&mut self, name: &ChannelName, row: &mut ChannelRow) -> Result<(), EngineError> {
        while row.base <= row.top {
            let key = rows::history_key(name, row.base);
            // A damaged row goes like an expired one: with it and all before it, readers are told of the gap.
            let history = match self.engine.get(Table::History, &key) {
                Err(error) if !error.is_damage() => return Err(error),
                read => read.ok().flatten(),
            };
            let history = history.and_then(|row| rows::decode(Table::History, &key, row.as_ref()).ok());
            if history.is_some_and(|history: HistoryRow| history.expires_at > self.now) {
                return Ok(());
            }
            self.rows.delete(Table::History, key);
            row.base = Offset(row.base.0 + 1);
        }
        Ok(())
    }
}
