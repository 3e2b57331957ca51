//! Deletes expired publications, and forgets channels that are idle for `channel_ttl`, or that of their
//! namespace, in bounded rounds.
//!
//! A pass reads all channels, some in each round, and finds out when the next of them is due. Until then there is no further
//! pass, so channels of which none is due cost nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidings_types::{ChannelName, Offset, Timestamp};
use tokio::time::Instant;

use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::committer::draft::Draft;
use crate::committer::effect::Effect;
use crate::damage;
use crate::engine::{EngineError, Place, Span, Table};
use crate::rows;

/// Channels that one round reads.
const CHANNEL_COUNT: usize = 100;

/// The least time between two passes. Without it, a store in which some channel is due at every moment would read all channels
/// all the time. Zero in the store's own tests.
const PASS_PAUSE: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };

/// Publications that one round deletes.
const PUBLICATION_COUNT: u64 = if cfg!(test) { 3 } else { 2000 };

/// More publications than most channels have between two floors. JavaScript's largest integer is 8 G strides.
const FLOOR_STRIDE: u64 = 1 << 20;

/// A pass over all channels.
#[derive(Debug, Default)]
pub(crate) struct ChannelPass {
    /// The key of the last channel.
    cursor: Vec<u8>,
    /// The earliest time at which a channel that was read is due. At first all are.
    due: Timestamp,
    /// When the next pass may begin. At first that is now.
    next_at: Option<Instant>,
}

impl ChannelPass {
    /// What was read may be wrong, so another pass follows this one.
    pub(crate) fn repeat(&mut self) {
        self.due = Timestamp(0);
    }
}

impl Draft<'_> {
    /// Continues the pass, or begins one if a channel is due: deletes expired publications, and forgets idle channels. True
    /// when the round ended early, or found much to delete.
    pub(crate) fn trim_channels(&mut self, pass: &mut ChannelPass) -> Result<bool, EngineError> {
        // Publications that came meanwhile may be due earlier.
        let new = self.shared.channels_due.swap(u64::MAX, Ordering::Relaxed);
        pass.due = pass.due.min(Timestamp(new));
        if pass.cursor.is_empty() {
            if pass.due > self.now || pass.next_at.is_some_and(|next_at| Instant::now() < next_at) {
                return Ok(false);
            }
            pass.due = Timestamp(u64::MAX);
        }
        let ChannelPass { cursor, due, next_at } = pass;
        let (mut channels, mut before) = (Vec::with_capacity(CHANNEL_COUNT), cursor.clone());
        let (mut seen, mut last) = (0, Vec::new());
        self.engine.scan(Place::Channels, Table::Channel, &Span::all().behind(cursor), |key, row| {
            let name = rows::decode_channel_name(key).ok();
            // A damaged row stays until the next publication in its channel, which replaces and logs it.
            channels.extend(name.zip(rows::decode::<ChannelRow>(Table::Channel, key, row).ok()));
            (seen, last) = (seen + 1, key.to_vec());
            Ok(seen < CHANNEL_COUNT)
        })?;
        // At the end of the table, the next round begins again.
        *cursor = if seen < CHANNEL_COUNT { Vec::new() } else { last };
        *next_at = Some(Instant::now() + PASS_PAUSE);
        let (mut left, mut deleted_count) = (PUBLICATION_COUNT, 0);
        for (done_count, (name, mut row)) in channels.into_iter().enumerate() {
            let base = row.base;
            let is_done = self.may_go_on(done_count) && self.skip_expired(&name, &mut row, left, due)?;
            left -= row.base.0 - base.0;
            deleted_count += usize::from(row.base > base);
            let key = name.as_str().as_bytes().to_vec();
            if is_done && self.is_idle(&name, &row, due) {
                self.forget_channel(name, &row);
                deleted_count += 1;
            } else if row.base > base {
                self.rows.put(Table::Channel, key.clone(), rows::encode(&row));
            }
            if !is_done {
                // The next round begins with this channel.
                if before.is_empty() {
                    (*due, *next_at) = (Timestamp(0), None);
                }
                *cursor = before;
                return Ok(true);
            }
            before = key;
        }
        Ok(deleted_count > CHANNEL_COUNT / 2 && !cursor.is_empty())
    }

    /// Whether a channel is empty and idle. If it is only empty, `due` is made early enough.
    fn is_idle(&self, name: &ChannelName, row: &ChannelRow, due: &mut Timestamp) -> bool {
        if row.base <= row.top {
            return false;
        }
        let idle_at = row.published_at.saturating_add(self.channel_ttl(name));
        let is_idle = self.wall() > idle_at;
        if !is_idle {
            *due = idle_at.min(*due);
        }
        is_idle
    }

    /// How long an empty channel is remembered.
    pub(crate) fn channel_ttl(&self, name: &ChannelName) -> Duration {
        let config = &self.shared.config;
        let namespace = ChannelName::split(name.as_str()).0.unwrap_or_default();
        config.namespace_ttls.get(namespace).copied().unwrap_or(config.channel_ttl)
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
    /// them. Meanwhile a reader gets none of them. If it has not expired, `due` is made early enough. Returns whether that was
    /// all.
    fn skip_expired(
        &mut self,
        name: &ChannelName,
        row: &mut ChannelRow,
        count_max: u64,
        due: &mut Timestamp,
    ) -> Result<bool, EngineError> {
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
            *due = expires_at.min(*due);
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
