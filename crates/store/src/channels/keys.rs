//! Idempotency keys: a publication with the key of an earlier one in its channel is not published again.
//!
//! A key is written in the batch of its publication. So after a crash, or a failed disk, either both are there or neither.
//! The committer looks the key up before it publishes. If the key is known, the answer is the offset of the first
//! publication, whatever the data of the second one is. A publication without a key costs nothing here.
//!
//! A key is remembered for [`WINDOW`], as Centrifugo does. Bound: [`KEY_COUNT_MAX`] keys, with 64 bytes of rows each. With
//! more, the oldest are forgotten early: at 3495 keys a second or less, none is.

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
/// Keys that one look may forget: a few milliseconds.
const LOOK_COUNT: u64 = 2000;

/// A key in its channel, as rows have it. The zero byte ends the name, in which there is none.
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

    /// Forgets keys whose time is over, oldest first. True when there may be more.
    pub(crate) fn trim_keys(&mut self) -> Result<bool, EngineError> {
        for _ in 0..LOOK_COUNT {
            if self.state.publish_key_base == self.state.publish_key_end {
                return Ok(false);
            }
            let oldest = self.oldest_key()?;
            if oldest.is_some_and(|(_, row)| !self.is_over(&row)) {
                return Ok(false);
            }
            self.forget_oldest_key(oldest.map(|(key, _)| key));
        }
        Ok(true)
    }

    /// The key at the oldest place. `None`: the key cannot be read, or a later publication has it.
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
        self.get(Table::PublishKey, key)?.map(|row| rows::decode_publish_key(key, &row)).transpose()
    }

    fn is_over(&self, row: &PublishKeyRow) -> bool {
        self.now.saturating_since(row.published_at) > WINDOW
    }
}
