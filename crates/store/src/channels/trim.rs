//! Taking expired publications away, and forgetting channels that are idle for `channel_ttl`. A bounded look each time.

use std::ops::Bound;

use tidings_types::{ChannelName, Offset};

use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::committer::draft::Draft;
use crate::committer::effect::Effect;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::rows;

/// Channels that one look may pass: a few milliseconds.
const CHANNEL_COUNT: usize = 500;

/// Publications one look may take, over those of the last channel.
const PUBLICATION_COUNT: u64 = 2000;

/// More publications than most channels have between two floors; the largest offset that JavaScript can count is 8 G strides.
const FLOOR_STRIDE: u64 = 1 << 20;

impl Draft<'_> {
    /// Walks on over the channels from `cursor`, takes expired publications, and gives back the channels that are idle. True
    /// when some were left for the next look.
    pub(crate) fn trim_channels(&mut self, cursor: &mut Vec<u8>) -> Result<bool, EngineError> {
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
            let history = damage::tolerate_quietly(self.engine.get(Table::History, &key))?.flatten();
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
