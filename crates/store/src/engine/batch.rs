//! Rows to be written in one step, and taking back a part of them before they are.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::table::Table;

/// Whether a batch is on the disk or only with the operating system when [`Engine::commit`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Survives a power failure.
    Synced,
    /// Survives the end of this process; a power failure may take it, together with everything written after it.
    Handed,
}
/// What is to be under a key; `None`: nothing.
type Row = Option<Vec<u8>>;

/// Rows to be written in one step: the last word on each key, so that a batch never holds a key twice.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(super) tables: [BTreeMap<Vec<u8>, Row>; Table::ALL.len()],
    /// What was there instead of the rows since the last [`Rows::keep`], the latest last.
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

    /// What there is now is not taken back any more.
    pub(crate) fn keep(&mut self) {
        self.replaced.clear();
    }

    /// Takes back all since the last [`Rows::keep`].
    pub(crate) fn take_back(&mut self) {
        while let Some((table, key, old)) = self.replaced.pop() {
            match old {
                Some(old) => self.tables[table as usize].insert(key, old),
                None => self.tables[table as usize].remove(&key),
            };
        }
    }

    /// What will be under the key: `None` when these rows do not say.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.tables[table as usize].get(key).map(Option::as_deref)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.iter().all(BTreeMap::is_empty)
    }

    /// The rows whose key comes after `key`, deleted ones too.
    pub(crate) fn after(&self, table: Table, key: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Option<Vec<u8>>)> {
        self.tables[table as usize].range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
    }

    /// The rows whose key begins with `prefix`, deleted ones too.
    pub(crate) fn prefix<'a>(
        &'a self,
        table: Table,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a Option<Vec<u8>>)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.tables[table as usize].range::<[u8], _>(from).take_while(move |(key, _)| key.starts_with(prefix))
    }
}
