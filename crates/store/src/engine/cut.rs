//! Reading all rows as they were at one moment while others are written. Backups are made from this.

use fjall::{Database, LsmError, Slice};

use super::error::{EngineError, read_error};
use super::table::Table;

/// All rows as they were between two commits, table after table.
///
/// It keeps the write buffers and files of that moment. A snapshot would also keep everything that is written later in
/// memory. The folder cannot be opened again before this is dropped.
pub(crate) struct Cut {
    tables: std::vec::IntoIter<(Table, CutRows)>,
    current: Option<(Table, CutRows)>,
    /// The key of the last row, to name the place of an unreadable row.
    last: Slice,
    _database: Database,
}

pub(super) type CutRows = Box<dyn Iterator<Item = Result<(Slice, Slice), LsmError>> + Send>;

impl Cut {
    pub(super) fn new(tables: Vec<(Table, CutRows)>, database: Database) -> Self {
        Self { tables: tables.into_iter(), current: None, last: Slice::empty(), _database: database }
    }
}

impl Iterator for Cut {
    type Item = Result<(Table, Slice, Slice), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.current.is_none() {
                self.current = Some(self.tables.next()?);
                self.last = Slice::empty();
            }
            let (table, rows) = self.current.as_mut().expect("set above");
            let Some(row) = rows.next() else {
                self.current = None;
                continue;
            };
            let row = row.map_err(|error| read_error(error.into(), *table, &self.last));
            return Some(row.map(|(key, value)| {
                self.last = key.clone();
                (*table, key, value)
            }));
        }
    }
}
