//! The audience of an event, and the data that sending needs of each device. Read from memory; a damaged record is read from
//! its row.

use std::collections::HashSet;

use tidings_audience::{Explaining, Explanation, Frozen, Selecting};
use tidings_types::{DeviceId, DeviceNumber, Event, Selector};

use crate::devices::Recipient;
use crate::engine::Table;
use crate::rows;
use crate::service::Store;

impl Store {
    /// The audience of an event: the devices that it names or selects; if it names none, the devices that subscribed to its
    /// topic on any of its subjects, and all devices of the users among its subjects. The event's filter then leaves out
    /// some. The audience is a consistent snapshot. Changes wait meanwhile: one millisecond for millions of devices, some
    /// tens of milliseconds for a selector with many parts. Each named device that is not in memory costs one row read.
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

    /// All devices that match a selector, including muted ones. It reads one million device numbers at a time, so the result
    /// is no snapshot.
    pub fn selected(&self, selector: &Selector) -> Frozen {
        let index = &self.shared().index;
        let mut selecting = Selecting::new(&index.read(), selector);
        while selecting.next_shard(&index.read()) {}
        selecting.finish()
    }

    /// How many devices match each part of a selector. It reads one million device numbers at a time, so the result is no
    /// snapshot. Changes wait for each of these steps: up to some milliseconds per part.
    pub fn explain(&self, selector: &Selector) -> Explanation {
        let index = &self.shared().index;
        let mut explaining = Explaining::new(&index.read(), selector);
        while explaining.next_shard(&index.read()) {}
        explaining.finish()
    }

    /// The numbers of the devices that exist. If rows cannot be read, all devices in memory are searched, so that sending
    /// continues.
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

    /// Visits the devices with these numbers that exist, in this order, and returns their count. Changes wait meanwhile, so
    /// ask for a few thousand at once at most; `visit` must not call the store. A device with a damaged record costs one row
    /// read; while the store is being opened again, such a device is skipped.
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
        let key = rows::number_key(number);
        if let Ok(Some(row)) = self.with_engine(|engine| engine.read(Table::Device, &key, rows::decode_device)) {
            visit(Recipient::of(number, &row.device, proven));
        }
    }
}
