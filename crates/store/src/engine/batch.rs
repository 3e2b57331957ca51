//! Rows to be written in one step. A part of them can be undone before they are written.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::table::Table;

/// Whether a batch is on the disk when [`Engine::commit`](super::Engine::commit) returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Survives a power failure.
    Synced,
    /// Only handed to the operating system: survives a crash of this process. A power failure may lose it, together with
    /// everything written after it.
    Handed,
}

/// The new value of a key; `None`: the key is deleted.
pub(crate) type Row = Option<Vec<u8>>;

/// Rows to be written in one step. Each key is there once, with its last value.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(super) tables: [BTreeMap<Vec<u8>, Row>; Table::ALL.len()],
    /// The former values of the keys that were changed since the last [`Rows::keep`], the latest last.
    replaced: Vec<(Table, Vec<u8>, Option<Row>)>,
}

impl Rows {
    pub(crate) fn put(&mut self, table: Table, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.set(table, key.into(), Some(value.into()));
    }

    pub(crate) fn delete(&mut self, table: Table, key: impl Into<Vec<u8>>) {
        self.set(table, key.into(), None);
    }

    fn set(&mut self, table: Table, key: Vec<u8>, row: Row) {
        let old = self.tables[table as usize].insert(key.clone(), row);
        self.replaced.push((table, key, old));
    }

    /// Changes up to now can no longer be undone.
    pub(crate) fn keep(&mut self) {
        self.replaced.clear();
    }

    /// Undoes all changes since the last [`Rows::keep`].
    pub(crate) fn take_back(&mut self) {
        while let Some((table, key, old)) = self.replaced.pop() {
            match old {
                Some(old) => self.tables[table as usize].insert(key, old),
                None => self.tables[table as usize].remove(&key),
            };
        }
    }

    /// The new value of the key; `None`: these rows do not change it.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.tables[table as usize].get(key).map(Option::as_deref)
    }

    /// All rows by table, in the order of their keys.
    pub(crate) fn by_table(&self) -> impl Iterator<Item = (Table, &BTreeMap<Vec<u8>, Row>)> {
        Table::ALL.into_iter().zip(&self.tables).filter(|(_, rows)| !rows.is_empty())
    }

    /// The rows of one table, in the order of their keys.
    pub(crate) fn of(&self, table: Table) -> &BTreeMap<Vec<u8>, Row> {
        &self.tables[table as usize]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.iter().all(BTreeMap::is_empty)
    }

    /// The rows whose keys come after `key`, including deleted ones.
    pub(crate) fn after(&self, table: Table, key: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Row)> {
        self.tables[table as usize].range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
    }

    /// The rows whose keys begin with `prefix`, including deleted ones.
    pub(crate) fn prefix<'a>(&'a self, table: Table, prefix: &'a [u8]) -> impl Iterator<Item = (&'a Vec<u8>, &'a Row)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.tables[table as usize].range::<[u8], _>(from).take_while(move |(key, _)| key.starts_with(prefix))
    }
}
