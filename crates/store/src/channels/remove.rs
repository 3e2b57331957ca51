//! Removing the publications that a channel keeps, as its owner asks.
//!
//! The channel keeps its row, and with it its top: no offset is given twice, and a reader that has everything resumes. A
//! large history is removed in several batches, each at most [`PUBLICATION_COUNT`]. A crash between two of them leaves the
//! newer publications, and the caller was not answered.

use tidings_types::{ChannelName, Offset};

use crate::committer::draft::Draft;
use crate::committer::effect::Effect;
use crate::engine::{EngineError, Table};
use crate::error::WriteError;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

/// Publications that one batch removes.
const PUBLICATION_COUNT: u64 = if cfg!(test) { 3 } else { 2000 };

impl Store {
    /// Removes the publications that a durable channel has now. What is published meanwhile stays.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write; some publications may be removed.
    ///
    /// # Cancel safety
    /// Dropped: some publications, or all, are removed.
    pub async fn remove_history(&self, channel: &ChannelName) -> Result<(), WriteError> {
        let mut until = None;
        loop {
            let name = channel.clone();
            let remove = move |draft: &mut Draft<'_>| draft.remove_history(name, until);
            until = self.write(Class::Events, weight::ERASE, remove).await?;
            if until.is_none() {
                return Ok(());
            }
        }
    }
}

impl Draft<'_> {
    /// Removes the oldest publications up to `until`, or up to the top. Returns that offset if some are left before it.
    fn remove_history(&mut self, name: ChannelName, until: Option<Offset>) -> Result<Option<Offset>, EngineError> {
        let Some(mut row) = self.channel(&name)? else { return Ok(None) };
        let until = until.unwrap_or(row.top).min(row.top);
        let end = until.next().min(Offset(row.base.0.saturating_add(PUBLICATION_COUNT)));
        if row.base >= end {
            return Ok(None);
        }
        while row.base < end {
            self.rows.delete(Table::History, rows::history_key(&name, row.base));
            row.base = row.base.next();
        }
        if row.base > row.top {
            self.order_idle(&name, &mut row);
        }
        self.rows.put(Table::Channel, name.as_str().as_bytes(), rows::encode(&row));
        self.effects.push(Effect::HistoryRemoved { channel: name, until: Offset(end.0 - 1) });
        Ok((row.base <= until).then_some(until))
    }
}
