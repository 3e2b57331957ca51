//! Reads and writes what is kept of a feed.

use tidings_types::{FeedName, Timestamp};

use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Place, Span, Table};
use crate::error::{ReadError, WriteError};
use crate::feeds::{FEED_COUNT_MAX, FeedChange, FeedState, KeptFeed};
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

/// The weight of an entry: a name, a key and a number.
const ENTRY_BYTES: usize = 96;

impl Store {
    /// All that is kept of a feed; nothing of one that is unknown. Damaged rows are left out, with a log line.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn feed(&self, name: &FeedName) -> Result<KeptFeed, ReadError> {
        self.with_engine(|engine| {
            let state = engine.read(Table::Feed, name.as_str().as_bytes(), decode_state);
            let state =
                damage::tolerate(state, "What is kept of a feed is damaged, so the feed is read from its beginning");
            let mut kept = KeptFeed { state: state?.flatten().unwrap_or_default(), entries: Vec::new() };
            engine.scan(Place::Feed, Table::FeedEntry, &Span::prefix(&rows::feed_entry_prefix(name)), |key, row| {
                let entry = rows::decode_feed_entry(key, row);
                kept.entries.extend(damage::tolerate(entry, "A known entry of a feed is damaged and left out")?);
                Ok(true)
            })?;
            Ok(kept)
        })
    }

    /// Changes what is kept of a feed. Repeating the change does no harm.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: the whole change is made or none of it.
    pub async fn put_feed(&self, name: FeedName, change: FeedChange) -> Result<(), WriteError> {
        let files = change.state.files.keys().map(|name| name.len() + ENTRY_BYTES).sum::<usize>();
        let bytes = weight::NAMES + files + ENTRY_BYTES * (change.seen.len() + change.forgotten.len());
        self.write(Class::Imports, bytes, move |draft| draft.put_feed(&name, change)).await
    }
}

fn decode_state(key: &[u8], row: &[u8]) -> Result<FeedState, EngineError> {
    rows::decode(Table::Feed, key, row)
}

impl Draft<'_> {
    pub(crate) fn put_feed(&mut self, name: &FeedName, change: FeedChange) -> Result<(), EngineError> {
        let FeedChange { state, seen, forgotten } = change;
        self.forget_oldest_feeds(name)?;
        self.rows.put(Table::Feed, name.as_str().as_bytes(), rows::encode(&state));
        for key in forgotten {
            self.rows.delete(Table::FeedEntry, rows::feed_entry_key(name, &key));
        }
        for (key, at) in seen {
            self.rows.put(Table::FeedEntry, rows::feed_entry_key(name, &key), at.to_be_bytes());
        }
        Ok(())
    }

    /// Makes room for another feed, if `name` is one. An unreadable row is deleted first.
    fn forget_oldest_feeds(&mut self, name: &FeedName) -> Result<(), EngineError> {
        if self.get(Table::Feed, name.as_str().as_bytes())?.is_some() {
            return Ok(());
        }
        let mut all = self.with_prefix(Table::Feed, &[])?;
        let at = |(key, row): (&Vec<u8>, &Vec<u8>)| decode_state(key, row).map_or(Timestamp::default(), |row| row.at);
        while all.len() >= FEED_COUNT_MAX {
            let Some(oldest) = all.iter().min_by_key(|&entry| at(entry)).map(|(key, _)| key.clone()) else { break };
            for key in self.with_prefix(Table::FeedEntry, &[&oldest[..], &[0]].concat())?.into_keys() {
                self.rows.delete(Table::FeedEntry, key);
            }
            all.remove(&oldest);
            self.rows.delete(Table::Feed, oldest);
        }
        Ok(())
    }
}
