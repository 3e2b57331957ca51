//! Forgetting events that the sender is done with, oldest first, together with their ids.
//!
//! One look takes at most 2000 events.

use tidings_types::JournalPosition;

use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::events::rows::EventHead;
use crate::rows;

/// Events that one look may take: a few milliseconds.
const EVENT_COUNT: u64 = 2000;

impl Draft<'_> {
    /// Takes events, oldest first, that the sender is done with and whose ids need not be remembered. True when there
    /// may be more. A journal close to its bounds forgets ids earlier: rather a shorter window than no new events.
    pub(crate) fn trim_journal(&mut self, trim_to: JournalPosition) -> Result<bool, EngineError> {
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
        damage::tolerate(read, "An event is forgotten unread")
    }
}
