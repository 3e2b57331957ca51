//! Deletes expired publications, and forgets channels that are idle for `channel_ttl`, or that of their
//! namespace, in bounded rounds.

use std::ops::Bound;

use tidings_types::{ChannelName, Offset};

use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::committer::draft::Draft;
use crate::committer::effect::Effect;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::rows;

/// Channels that one round reads: a few milliseconds.
const CHANNEL_COUNT: usize = 500;

/// Publications that one round deletes.
const PUBLICATION_COUNT: u64 = if cfg!(test) { 3 } else { 2000 };

/// More publications than most channels have between two floors. JavaScript's largest integer is 8 G strides.
const FLOOR_STRIDE: u64 = 1 << 20;

impl Draft<'_> {
    /// Continues over the channels behind `cursor`, deletes expired publications, and forgets idle channels. True when the
    /// round ended early.
    pub(crate) fn trim_channels(&mut self, cursor: &mut Vec<u8>) -> Result<bool, EngineError> {
        let (mut channels, mut before) = (Vec::with_capacity(CHANNEL_COUNT), cursor.clone());
        let (mut seen, mut last) = (0, Vec::new());
        self.engine.scan(Table::Channel, Bound::Excluded(cursor), |key, row| {
            let name = rows::decode_channel_name(key).ok();
            // A damaged row stays until the next publication in its channel, which replaces and logs it.
            channels.extend(name.zip(rows::decode::<ChannelRow>(Table::Channel, key, row).ok()));
            (seen, last) = (seen + 1, key.to_vec());
            Ok(seen < CHANNEL_COUNT)
        })?;
        // At the end of the table, the next round begins again.
        *cursor = if seen < CHANNEL_COUNT { Vec::new() } else { last };
        let mut left = PUBLICATION_COUNT;
        for (name, mut row) in channels {
            let base = row.base;
            let is_done = self.skip_expired(&name, &mut row, left)?;
            left -= row.base.0 - base.0;
            let key = name.as_str().as_bytes().to_vec();
            if is_done && self.is_idle(&name, &row) {
                self.forget_channel(name, &row);
            } else if row.base > base {
                self.rows.put(Table::Channel, key.clone(), rows::encode(&row));
            }
            if !is_done {
                *cursor = before; // The next round begins with this channel.
                return Ok(true);
            }
            before = key;
        }
        Ok(false)
    }

    fn is_idle(&self, name: &ChannelName, row: &ChannelRow) -> bool {
        let config = &self.shared.config;
        let namespace = ChannelName::split(name.as_str()).0.unwrap_or_default();
        let ttl = config.namespace_ttls.get(namespace).copied().unwrap_or(config.channel_ttl);
        row.base > row.top && self.wall().saturating_since(row.published_at) > ttl
    }

    /// Forgets a channel. A later channel of this name has the same epoch, so it must not use an offset twice: it begins
    /// behind the floor. The floor rises in large strides, so that it rarely changes while idle channels are forgotten: a
    /// reader that comes back and finds a higher floor has to start anew.
    fn forget_channel(&mut self, name: ChannelName, row: &ChannelRow) {
        self.rows.delete(Table::Channel, name.as_str().as_bytes());
        self.state.channel_count = self.state.channel_count.saturating_sub(1);
        if row.top > self.state.channel_floor {
            self.state.channel_floor = Offset((row.top.0 / FLOOR_STRIDE + 1).saturating_mul(FLOOR_STRIDE));
        }
        self.effects.push(Effect::ChannelForgotten { channel: name, floor: self.state.channel_floor });
        self.synced = true; // Readers see the floor, so it must not be lost.
    }

    /// Deletes at most so many of the channel's publications, oldest first, if the last one has expired, and moves its base behind
    /// them. Meanwhile a reader gets none of them. Returns whether that was all.
    fn skip_expired(&mut self, name: &ChannelName, row: &mut ChannelRow, count_max: u64) -> Result<bool, EngineError> {
        // Of damaged publications. Readers that resume from before them are told of the gap.
        let mut expires_at = row.published_at;
        for offset in (row.base.0..=row.top.0).rev() {
            let key = rows::history_key(name, Offset(offset));
            let history = damage::tolerate_quietly(self.engine.get(Table::History, &key))?.flatten();
            let history = history.and_then(|row| rows::decode::<HistoryRow>(Table::History, &key, row.as_ref()).ok());
            if let Some(history) = history {
                expires_at = history.expires_at;
                break;
            }
        }
        if expires_at > self.now {
            return Ok(true);
        }
        let end = Offset(row.base.0.saturating_add(count_max)).min(row.top.next());
        while row.base < end {
            self.rows.delete(Table::History, rows::history_key(name, row.base));
            row.base = row.base.next();
        }
        Ok(row.base > row.top)
    }
}
