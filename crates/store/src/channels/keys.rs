//! Idempotency keys: a publication with the key of an earlier one in its channel is not published again.
//!
//! A version has the same purpose. Only the newest one of each channel is kept, in the channel's row (`write.rs`).
//!
//! A key is written in the batch of its publication. So after a crash or a failed disk, either both exist or neither. The
//! committer looks up the key before it publishes. If the key is known, the answer is the offset of the first publication,
//! even if the second one has other data. A publication without a key costs nothing here.
//!
//! A key is remembered for [`WINDOW`], as in Centrifugo. Bound: [`KEY_COUNT_MAX`] keys, with 64 bytes of rows each. If there
//! are more, the oldest are forgotten early. That happens only above 3495 keys a second.

use std::time::Duration;

use tidings_types::{ChannelName, Offset};

use crate::channels::rows::PublishKeyRow;
use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::hash::{Hash16, hash16};
use crate::rows;

/// How long a key is remembered.
const WINDOW: Duration = Duration::from_secs(300);
/// Keys that are remembered.
const KEY_COUNT_MAX: u64 = if cfg!(test) { 8 } else { 1 << 20 };
/// Keys that one round may forget, if there is time.
const ROUND_COUNT: usize = 2000;

/// The hash of a channel and a key. A zero byte separates them, because a channel's name has none.
pub(super) fn publish_key(channel: &ChannelName, key: &str) -> Hash16 {
    hash16(&[channel.as_str().as_bytes(), &[0], key.as_bytes()].concat())
}

impl Draft<'_> {
    /// The offset of the first publication with this key, if it is remembered.
    pub(super) fn published_before(&self, key: &Hash16) -> Result<Option<Offset>, EngineError> {
        let known =
            damage::tolerate(self.key_row(key), "A publication with this key may be published again")?.flatten();
        Ok(known.filter(|known| !self.is_over(known)).map(|known| known.offset))
    }

    pub(super) fn remember_key(&mut self, key: Hash16, offset: Offset) -> Result<(), EngineError> {
        let number = self.state.publish_key_end;
        let row = PublishKeyRow { number, published_at: self.now, offset };
        self.rows.put(Table::PublishKey, key, rows::publish_key_row(&row));
        self.rows.put(Table::PublishKeyOrder, number.to_be_bytes(), key);
        self.state.publish_key_end += 1;
        if self.state.publish_key_end - self.state.publish_key_base > KEY_COUNT_MAX {
            let oldest = self.oldest_key()?;
            self.forget_oldest_key(oldest.map(|(key, _)| key));
        }
        Ok(())
    }

    /// Forgets expired keys, oldest first. True when there may be more.
    pub(crate) fn trim_keys(&mut self) -> Result<bool, EngineError> {
        for done_count in 0..ROUND_COUNT {
            if self.state.publish_key_base == self.state.publish_key_end {
                return Ok(false);
            }
            if !self.may_go_on(done_count) {
                break;
            }
            let oldest = self.oldest_key()?;
            if oldest.is_some_and(|(_, row)| !self.is_over(&row)) {
                return Ok(false);
            }
            self.forget_oldest_key(oldest.map(|(key, _)| key));
        }
        Ok(true)
    }

    /// The oldest key. `None`: it cannot be read, or a later publication uses it again.
    fn oldest_key(&self) -> Result<Option<(Hash16, PublishKeyRow)>, EngineError> {
        let number = self.state.publish_key_base;
        let place = number.to_be_bytes();
        let read = self.get(Table::PublishKeyOrder, &place).and_then(|key| {
            let key = key.and_then(|key| Hash16::try_from(key).ok());
            let key = key.ok_or_else(|| EngineError::damaged(Table::PublishKeyOrder, &place))?;
            Ok(self.key_row(&key)?.map(|row| (key, row)))
        });
        let found = damage::tolerate(read, "An idempotency key is forgotten unread")?.flatten();
        Ok(found.filter(|(_, row)| row.number == number))
    }

    fn forget_oldest_key(&mut self, key: Option<Hash16>) {
        if let Some(key) = key {
            self.rows.delete(Table::PublishKey, key);
        }
        self.rows.delete(Table::PublishKeyOrder, self.state.publish_key_base.to_be_bytes());
        self.state.publish_key_base += 1;
    }

    fn key_row(&self, key: &Hash16) -> Result<Option<PublishKeyRow>, EngineError> {
        self.read(Table::PublishKey, key, rows::decode_publish_key)
    }

    fn is_over(&self, row: &PublishKeyRow) -> bool {
        self.now.saturating_since(row.published_at) > WINDOW
    }
}
