//! Taking away what is no longer needed: a bounded look each time, between batches.

use std::ops::Bound;

use tidings_types::{ChannelName, JournalPosition, Offset};

use super::draft::Draft;
use crate::engine::{EngineError, Table};
use crate::rows::{self, ChannelRow, HistoryRow};

/// Events one look may take, and channels it may pass: a few milliseconds.
const EVENT_COUNT: u64 = 2000;
const CHANNEL_COUNT: usize = 500;
/// Publications one look may take, over those of the last channel.
const PUBLICATION_COUNT: u64 = 2000;

impl Draft<'_> {
    /// Takes events, oldest first, that the sender is done with and whose ids need not be remembered. True when there
    /// may be more. A journal close to its bounds forgets ids earlier: rather a shorter window than no new events.
    pub(super) fn trim_journal(&mut self, trim_to: JournalPosition) -> Result<bool, EngineError> {
        let (window, window_count) = (self.shared.config.id_window, self.shared.config.id_window_count);
        let first = self.state.journal_base;
        let start = rows::position_key(JournalPosition(first));
        let (engine, end, now) = (self.engine, self.state.journal_end, self.now);
        let (count_max, bytes_max) = (self.shared.config.journal_event_count_max, self.shared.config.journal_bytes_max);
        let is_pressed =
            end - first >= count_max - count_max / 8 || self.state.journal_bytes >= bytes_max - bytes_max / 8;
        engine.scan(Table::Event, Bound::Included(&start), |key, row| {
            let position = rows::decode_position(Table::Event, key, key)?;
            let head = rows::decode_event_head(key, row)?;
            let is_young = now.saturating_since(head.accepted_at) <= window;
            let in_window = !is_pressed && end - position.0 <= window_count && is_young;
            if position >= trim_to || in_window || position.0 - first >= EVENT_COUNT {
                return Ok(false);
            }
            self.rows.delete(Table::Event, key);
            self.rows.delete(Table::EventId, head.id_hash);
            self.forget_cancelled(position);
            self.state.journal_base = position.0 + 1;
            self.state.journal_bytes = self.state.journal_bytes.saturating_sub(row.len() as u64);
            Ok::<_, EngineError>(true)
        })?;
        Ok(self.state.journal_base - first >= EVENT_COUNT)
    }

    /// Walks on over the channels from `cursor` and takes expired publications. True when some were left for the next look.
    pub(super) fn trim_channels(&mut self, cursor: &mut Vec<u8>) -> Result<bool, EngineError> {
        let mut channels = Vec::with_capacity(CHANNEL_COUNT);
        self.engine.scan(Table::Channel, Bound::Excluded(cursor), |key, row| {
            channels.push((rows::decode_channel_name(key)?, rows::decode::<ChannelRow>(Table::Channel, key, row)?));
            Ok::<_, EngineError>(channels.len() < CHANNEL_COUNT)
        })?;
        if channels.len() < CHANNEL_COUNT {
            cursor.clear(); // The end: the next look begins again.
        } else if let Some((name, _)) = channels.last() {
            *cursor = name.as_str().as_bytes().to_vec();
        }
        let mut taken = 0;
        for (name, mut row) in channels {
            let base = row.base;
            self.skip_expired(&name, &mut row)?;
            let key = name.as_str().as_bytes();
            if row.base > base {
                self.rows.put(Table::Channel, key, rows::encode(&row));
            }
            taken += row.base.0 - base.0;
            if taken >= PUBLICATION_COUNT {
                *cursor = key.to_vec();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the channel's expired publications, oldest first, and moves its base behind them.
    fn skip_expired(&mut self, name: &ChannelName, row: &mut ChannelRow) -> Result<(), EngineError> {
        while row.base <= row.top {
            let key = rows::history_key(name, row.base);
            // A damaged row goes like an expired one: with it and all before it, readers are told of the gap.
            let history = self.engine.get(Table::History, &key)?;
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
