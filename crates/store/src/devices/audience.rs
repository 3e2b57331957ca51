//! Which devices an event is for, and what sending needs of each. Memory answers; rows only where a record is damaged.

use std::collections::HashSet;

use tidings_audience::{Explaining, Explanation, Frozen, Selecting};
use tidings_types::{DeviceId, DeviceNumber, Event, Selector};

use crate::devices::Recipient;
use crate::engine::Table;
use crate::rows;
use crate::service::Store;

impl Store {
    /// Who is told of the event, as it is at one moment, in which nobody is in two places or in none: whoever it names
    /// or selects, or else whoever subscribed to its topic on any of its subjects and all devices of the users among
    /// these; of them those that its filter admits. Changes wait meanwhile: a millisecond for millions of devices, some
    /// tens of them for a selector of many parts. Named devices that memory does not know cost a row read each.
    pub fn select(&self, event: &Event) -> Frozen {
        let filter = event.filter.clone().unwrap_or_default();
        let Some(to) = &event.to else {
            return self.shared().index.read().freeze(&event.topic, &event.subjects, &filter);
        };
        let devices = self.numbers_of(&to.devices);
        let index = self.shared().index.read();
        let named = index.freeze_named(&to.users, &devices, &event.subjects, &filter);
        match &to.selector {
            Some(selector) => named.union(&index.freeze_selected(selector, &event.subjects, &filter)),
            None => named,
        }
    }

    /// All devices that a selector means, the muted too: one million of numbers after the other, each as it is then.
    pub fn selected(&self, selector: &Selector) -> Frozen {
        let index = &self.shared().index;
        let mut selecting = Selecting::new(&index.read(), selector);
        while selecting.next_shard(&index.read()) {}
        selecting.finish()
    }

    /// How many devices each part of a selector means, counted one by one, one million of numbers after the
    /// other, each as it is then. Changes wait for one at a time: up to some milliseconds for each part.
    pub fn explain(&self, selector: &Selector) -> Explanation {
        let index = &self.shared().index;
        let mut explaining = Explaining::new(&index.read(), selector);
        while explaining.next_shard(&index.read()) {}
        explaining.finish()
    }

    /// The numbers of those devices that exist. Where the rows cannot be read, memory knows them too: sending goes on.
    fn numbers_of(&self, ids: &[DeviceId]) -> Vec<DeviceNumber> {
        if ids.is_empty() {
            return Vec::new();
        }
        let read: Result<Vec<_>, _> = ids.iter().map(|id| self.device_number(id)).collect();
        read.map_or_else(
            |_| {
                let ids: HashSet<&str> = ids.iter().map(DeviceId::as_str).collect();
                self.shared().table.read().find_all(|found| ids.contains(found.id))
            },
            |numbers| numbers.into_iter().flatten().collect(),
        )
    }

    /// Hands out what sending needs of the devices among `numbers` that exist, in this order, and tells how many that were.
    /// Changes wait meanwhile: at most a window of some thousand at once, and `visit` must not call the store. A device whose
    /// record is damaged costs a row read; while the store is opened again it is passed over.
    pub fn with_recipients(&self, numbers: &[DeviceNumber], mut visit: impl FnMut(Recipient<'_>)) -> usize {
        let (mut rest, mut count) = (numbers, 0);
        let mut visit = |recipient: Recipient<'_>| {
            count += 1;
            visit(recipient);
        };
        loop {
            let visited = self.shared().table.read().visit(rest, &mut visit);
            let Err(lost) = visited else { return count };
            self.visit_lost(rest[lost], &mut visit);
            rest = &rest[lost + 1..];
        }
    }

    fn visit_lost(&self, number: DeviceNumber, visit: impl FnOnce(Recipient<'_>)) {
        self.shared().losses.note(number);
        let proven = self.shared().table.read().is_proven(number);
        let row = self.with_engine(|engine| {
            let key = rows::number_key(number);
            engine.get(Table::Device, &key)?.map(|row| rows::decode_device(&key, row.as_ref())).transpose()
        });
        if let Ok(Some(row)) = row {
            visit(Recipient::of(number, &row.device, proven));
        }
    }
}
