//! Deletes events that the sender does not need any more, oldest first, together with their ids.
//!
//! One round deletes at most 2000 events: as many as there is time for, and in any case twice as many as came since the last
//! round, so that the journal does not grow while many come.

use tidings_types::JournalPosition;

use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::events::rows::EventHead;
use crate::rows;

/// Events that one round deletes, if there is time.
const EVENT_COUNT: u64 = 2000;

impl Draft<'_> {
    /// Deletes events before `trim_to` whose ids need not be remembered. True when there may be more. If the journal is close
    /// to its bounds, ids are forgotten earlier, because otherwise new events would be refused.
    ///
    /// `trimmed_at` is the end of the journal at the last call.
    pub(crate) fn trim_journal(
        &mut self,
        trim_to: JournalPosition,
        trimmed_at: &mut Option<u64>,
    ) -> Result<bool, EngineError> {
        let (window, window_count) = (self.shared.config.id_window, self.shared.config.id_window_count);
        let (first, end, now) = (self.state.journal_base, self.state.journal_end, self.now);
        let (count_max, bytes_max) = (self.shared.config.journal_event_count_max, self.shared.config.journal_bytes_max);
        let is_pressed =
            end - first >= count_max - count_max / 8 || self.state.journal_bytes >= bytes_max - bytes_max / 8;
        let owed = 2 * end.saturating_sub(trimmed_at.replace(end).unwrap_or(end));
        let mut is_early = false;
        for position in (first..trim_to.0.min(end).min(first + EVENT_COUNT)).map(JournalPosition) {
            let done_count = position.0 - first;
            if done_count >= owed && !self.may_go_on(done_count as usize) {
                is_early = true;
                break;
            }
            let key = rows::position_key(position);
            // An unreadable event is deleted now, because all events before it are old.
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
            self.state.journal_bytes = 0; // Corrects the sum if rows could not be read.
        }
        Ok(is_early || self.state.journal_base - first >= EVENT_COUNT)
    }

    /// The head of an event and the bytes of its row. `None` if it cannot be read, which is logged.
    fn event_head(&self, key: &[u8]) -> Result<Option<(EventHead, u64)>, EngineError> {
        let read = self.engine.get(Table::Event, key).and_then(|row| {
            let row = row.ok_or_else(|| EngineError::damaged(Table::Event, key))?;
            Ok((rows::decode_event_head(key, row.as_ref())?, row.as_ref().len() as u64))
        });
        damage::tolerate(read, "An event is forgotten unread")
    }
}
