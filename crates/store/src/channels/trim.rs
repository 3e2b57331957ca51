//! Deletes expired publications, and forgets channels that are idle for `channel_ttl`, or that of their
//! namespace, in bounded rounds.
//!
//! Each channel has one row in `channel_due`, and its own row says which. The time of that row is when the channel is due,
//! or earlier: a publication makes the channel due later, and leaves the row as it is. When its time has come, the channel is
//! looked at, and gets a row for the time at which it is really due. So a round reads what is due, and not what exists.
//!
//! After a start, one pass over all channels gives a row to those that have none: an older version wrote them, or a file was
//! lost. It also gives an earlier one to channels that are to be forgotten earlier than before, and it does the work itself
//! where `channel_due` cannot be read.

use std::time::Duration;

use tidings_types::{ChannelName, Offset, Timestamp};
use tokio::time::Instant;

use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::committer::draft::Draft;
use crate::committer::effect::Effect;
use crate::damage;
use crate::engine::{EngineError, Place, STATE_KEY, Span, Table};
use crate::rows;

/// Channels that one round reads.
const CHANNEL_COUNT: usize = 100;

/// Publications that one round deletes.
const PUBLICATION_COUNT: u64 = if cfg!(test) { 3 } else { 2000 };

/// When an idle channel is looked at again that cannot go because the clock was set back; also the pause between two passes while
/// the clock is behind, and before `channel_due` is read again where it could not be.
const PAUSE: Duration = Duration::from_secs(60);

/// More publications than most channels have between two floors. JavaScript's largest integer is 8 G strides.
const FLOOR_STRIDE: u64 = 1 << 20;

/// A pass over all channels, which gives a row in `channel_due` to those that have none.
#[derive(Debug, Default)]
pub(crate) struct ChannelPass {
    /// The key of the last channel.
    cursor: Vec<u8>,
    /// When it had read all channels.
    done_at: Option<Instant>,
    /// Another pass has to follow.
    is_stale: bool,
    /// `channel_due` could not be read at this time, so the pass does what is due.
    cut_at: Option<Instant>,
}

impl ChannelPass {
    /// Rows of `channel_due` may be missing, so another pass follows.
    pub(crate) fn repeat(&mut self) {
        self.is_stale = true;
    }
}

impl Draft<'_> {
    /// Of channels that are due, deletes the expired publications, and forgets those that are idle. True when there may be
    /// more to do now.
    pub(crate) fn trim_channels(&mut self, pass: &mut ChannelPass) -> Result<bool, EngineError> {
        if self.order_channels(pass)? {
            return Ok(true); // The rows below do not show yet what it wrote.
        }
        let now = self.now;
        if now < self.state.channel_due || pass.cut_at.is_some_and(|cut_at| cut_at.elapsed() < PAUSE) {
            return Ok(false);
        }
        pass.cut_at = None;
        let mut due = Vec::new();
        let span = Span::prefix(&now.0.to_be_bytes()).from(&self.state.channel_due.0.to_be_bytes());
        let scanned = self.engine.scan(Place::Channels, Table::ChannelDue, &span, |key, _| {
            due.push(key.to_vec());
            Ok(due.len() < CHANNEL_COUNT)
        });
        if damage::tolerate(scanned, "All channels are read to find those that are due")?.is_none() {
            pass.repeat();
            pass.cut_at = Some(Instant::now());
        }
        // A changed row has the batch written, and with it the state.
        self.rows.put(Table::Meta, STATE_KEY, []);
        let has_more = due.len() == CHANNEL_COUNT;
        if !has_more {
            self.state.channel_due = self.next_due(now)?;
        }
        let mut left = PUBLICATION_COUNT;
        for (done_count, key) in due.iter().enumerate() {
            let Some((at, name)) = rows::decode_channel_due(key).ok() else {
                self.rows.delete(Table::ChannelDue, key.as_slice());
                continue;
            };
            if has_more {
                self.state.channel_due = at;
            }
            if !self.may_go_on(done_count) || !self.trim_channel(name, at, &mut left)? {
                self.state.channel_due = self.state.channel_due.min(at);
                return Ok(true);
            }
        }
        Ok(has_more)
    }

    /// The first time in `channel_due` behind `now`, of the rows that are durable.
    fn next_due(&self, now: Timestamp) -> Result<Timestamp, EngineError> {
        let (behind, mut next) = (Timestamp(now.0.saturating_add(1)), Timestamp(u64::MAX));
        let span = Span::all().from(&behind.0.to_be_bytes());
        let scanned = self.engine.scan(Place::Channels, Table::ChannelDue, &span, |key, _| {
            next = key.first_chunk().map_or(behind, |at| Timestamp(u64::from_be_bytes(*at)));
            Ok(false)
        });
        Ok(damage::tolerate_quietly(scanned)?.map_or(behind, |()| next))
    }

    /// Does what is due in a channel that has this time in `channel_due`. Deletes at most `left` publications; false when that
    /// was not all.
    fn trim_channel(&mut self, name: ChannelName, at: Timestamp, left: &mut u64) -> Result<bool, EngineError> {
        let key = name.as_str().as_bytes();
        // A damaged row stays until the next publication in its channel, which replaces and logs it.
        let row = damage::tolerate_quietly(
            self.read(Table::Channel, key, |key, row| rows::decode::<ChannelRow>(Table::Channel, key, row)),
        );
        let Some(mut row) = row?.flatten().filter(|row| row.due_at == Some(at)) else {
            self.rows.delete(Table::ChannelDue, rows::channel_due_key(at, &name));
            return Ok(true);
        };
        let base = row.base;
        let expires_at = self.skip_expired(&name, &mut row, *left)?;
        *left -= row.base.0 - base.0;
        let is_empty = row.base > row.top;
        let due = if is_empty { row.published_at.saturating_add(self.channel_ttl(&name)) } else { expires_at };
        if is_empty && self.wall() > due {
            self.forget_channel(name, &row);
            return Ok(true);
        }
        let is_done = is_empty || due > self.now;
        if is_done {
            self.rows.delete(Table::ChannelDue, rows::channel_due_key(at, &name));
            row.due_at = None;
            let soon = self.now.saturating_add(Duration::from_millis(1));
            let due = if due >= self.now { due.max(soon) } else { self.now.saturating_add(PAUSE) };
            self.order_channel(&name, &mut row, due);
        }
        self.rows.put(Table::Channel, name.as_str().as_bytes(), rows::encode(&row));
        Ok(is_done)
    }

    /// Gives the channel a row in `channel_due` for this time, unless it has one for an earlier time. The caller writes the
    /// channel's row.
    pub(crate) fn order_channel(&mut self, name: &ChannelName, row: &mut ChannelRow, due: Timestamp) {
        if row.due_at.is_some_and(|at| at <= due) {
            return;
        }
        if let Some(at) = row.due_at.replace(due) {
            self.rows.delete(Table::ChannelDue, rows::channel_due_key(at, name));
        }
        self.rows.put(Table::ChannelDue, rows::channel_due_key(due, name), []);
        self.state.channel_due = self.state.channel_due.min(due);
    }

    /// The same for the time at which a channel without publications is idle.
    pub(crate) fn order_idle(&mut self, name: &ChannelName, row: &mut ChannelRow) {
        self.order_channel(name, row, row.published_at.saturating_add(self.channel_ttl(name)));
    }

    /// Reads the next channels of the pass, and mends what is wrong with their rows in `channel_due`. Whether anything was.
    fn order_channels(&mut self, pass: &mut ChannelPass) -> Result<bool, EngineError> {
        if let Some(done_at) = pass.done_at {
            // While the clock is behind, channels wait that are idle by the clock.
            let is_behind = self.wall().saturating_add(PAUSE) < self.now;
            if !(pass.is_stale || is_behind && done_at.elapsed() >= PAUSE) {
                return Ok(false);
            }
            *pass = ChannelPass { cut_at: pass.cut_at, ..ChannelPass::default() };
        }
        let mut channels = Vec::with_capacity(CHANNEL_COUNT);
        let (mut seen, mut last) = (0, Vec::new());
        let scanned =
            self.engine.scan(Place::Channels, Table::Channel, &Span::all().behind(&pass.cursor), |key, row| {
                let name = rows::decode_channel_name(key).ok();
                channels.extend(name.zip(rows::decode::<ChannelRow>(Table::Channel, key, row).ok()));
                (seen, last) = (seen + 1, key.to_vec());
                Ok(seen < CHANNEL_COUNT)
            });
        let is_read = damage::tolerate(scanned, "Channels behind this are not looked at")?.is_some();
        let (row_count, mut left) = (self.rows.of(Table::ChannelDue).len(), PUBLICATION_COUNT);
        for (done_count, (name, row)) in channels.into_iter().enumerate() {
            if !self.may_go_on(done_count) {
                return Ok(true);
            }
            let key = name.as_str().as_bytes().to_vec();
            if !self.order_anew(name, row, pass.cut_at.is_some(), &mut left)? {
                return Ok(true);
            }
            pass.cursor = key;
        }
        pass.cursor = last;
        pass.done_at = (seen < CHANNEL_COUNT || !is_read).then(Instant::now);
        Ok(self.rows.of(Table::ChannelDue).len() > row_count)
    }

    /// Mends what is wrong with a channel's row in `channel_due`. `is_cut`: it may be there and not be readable, so what is due is
    /// done at once; at most `left` publications are deleted. False when that was not all.
    fn order_anew(
        &mut self,
        name: ChannelName,
        mut row: ChannelRow,
        is_cut: bool,
        left: &mut u64,
    ) -> Result<bool, EngineError> {
        let former = row.due_at;
        if !self.is_ordered(&name, &row)? {
            if let Some(at) = row.due_at.take() {
                self.rows.delete(Table::ChannelDue, rows::channel_due_key(at, &name));
            }
            self.order_channel(&name, &mut row, self.now);
        } else if row.base > row.top {
            self.order_idle(&name, &mut row); // The time may be shorter than before the start.
        }
        if row.due_at != former {
            self.rows.put(Table::Channel, name.as_str().as_bytes(), rows::encode(&row));
        }
        match row.due_at {
            Some(at) if is_cut && at <= self.now => self.trim_channel(name, at, left),
            _ => Ok(true),
        }
    }

    /// Whether the channel's row in `channel_due` will be found.
    fn is_ordered(&self, name: &ChannelName, row: &ChannelRow) -> Result<bool, EngineError> {
        let Some(at) = row.due_at.filter(|at| *at >= self.state.channel_due) else { return Ok(false) };
        let found = damage::tolerate_quietly(self.get(Table::ChannelDue, &rows::channel_due_key(at, name)))?;
        Ok(found.flatten().is_some())
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
        if let Some(at) = row.due_at {
            self.rows.delete(Table::ChannelDue, rows::channel_due_key(at, &name));
        }
        self.state.channel_count = self.state.channel_count.saturating_sub(1);
        if row.top > self.state.channel_floor {
            self.state.channel_floor = Offset((row.top.0 / FLOOR_STRIDE + 1).saturating_mul(FLOOR_STRIDE));
        }
        self.effects.push(Effect::ChannelForgotten { channel: name, floor: self.state.channel_floor });
        self.synced = true; // Readers see the floor, so it must not be lost.
    }

    /// Deletes at most so many of the channel's publications, oldest first, if the last one has expired, and moves its base behind
    /// them. Meanwhile a reader gets none of them. Returns when the last one expires.
    fn skip_expired(
        &mut self,
        name: &ChannelName,
        row: &mut ChannelRow,
        count_max: u64,
    ) -> Result<Timestamp, EngineError> {
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
            return Ok(expires_at);
        }
        let end = Offset(row.base.0.saturating_add(count_max)).min(row.top.next());
        while row.base < end {
            self.rows.delete(Table::History, rows::history_key(name, row.base));
            row.base = row.base.next();
        }
        Ok(expires_at)
    }
}
