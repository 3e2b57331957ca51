//! The changes of a batch in memory (device table and index), and the row of table `change` that repeats them for the
//! checkpoint.

use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_audience::{Index, Traits};
use tidings_types::{ChannelName, Device, DeviceNumber, Offset, StreamPosition, Subject, TopicName};

use crate::brakes::Brakes;
use crate::channels::{DurableChannel, StoredPublication};
use crate::rows::ChangeWriter;
use crate::table::DeviceTable;

/// A change in memory. The effects of a batch are applied in order.
pub(crate) enum Effect {
    DeviceSet {
        number: DeviceNumber,
        device: Device,
        /// `None`: the device is new.
        before: Option<Box<Device>>,
    },
    DeviceRemoved {
        number: DeviceNumber,
        /// `None`: its row was damaged.
        before: Option<Box<Device>>,
    },
    Subscribed {
        number: DeviceNumber,
        subject: Subject,
        topic: TopicName,
    },
    Unsubscribed {
        number: DeviceNumber,
        subject: Subject,
        topic: TopicName,
    },
    /// `None`: everything is muted.
    Muted {
        number: DeviceNumber,
        subject: Option<Subject>,
    },
    Unmuted {
        number: DeviceNumber,
        subject: Option<Subject>,
    },
    Published {
        channel: DurableChannel,
        position: StreamPosition,
        publication: StoredPublication,
    },
    /// The publications of a durable channel up to this offset were removed.
    HistoryRemoved {
        channel: ChannelName,
        until: Offset,
    },
    /// A durable channel is forgotten. New channels begin at the floor from now on.
    ChannelForgotten {
        channel: ChannelName,
        floor: Offset,
    },
    /// The new content of a chunk of the proven set.
    Proven {
        chunk: u16,
        bits: RoaringBitmap,
    },
    /// The new set of pauses and cancelled jobs.
    Braked(Arc<Brakes>),
}

impl Effect {
    pub(crate) fn apply_to_table(&self, table: &mut DeviceTable) {
        match self {
            Self::DeviceSet { number, device, before } => {
                table.set(*number, device.clone());
                if before.is_none() {
                    table.hint_at(&device.id, *number); // The batch has the row that names it.
                }
            }
            Self::DeviceRemoved { number, .. } => table.remove(*number),
            Self::Subscribed { number, .. } => table.count_subscription(*number, 1),
            Self::Unsubscribed { number, .. } => table.count_subscription(*number, -1),
            Self::Proven { chunk, bits } => table.set_proven_chunk(*chunk, bits),
            Self::Published { .. }
            | Self::HistoryRemoved { .. }
            | Self::ChannelForgotten { .. }
            | Self::Braked(_)
            | Self::Muted { .. }
            | Self::Unmuted { .. } => {}
        }
    }

    /// The bytes that the device table must reserve for it.
    pub(crate) fn table_room(&self) -> u64 {
        match self {
            Self::DeviceSet { device, .. } => DeviceTable::room_for(device),
            _ => 0,
        }
    }

    pub(crate) fn apply_to_index(&self, index: &mut Index) {
        match self {
            Self::Subscribed { number, subject, topic } => {
                index.insert(*number, subject, topic);
            }
            Self::Unsubscribed { number, subject, topic } => {
                index.remove(*number, subject, topic);
            }
            Self::DeviceSet { number, device, before } => {
                index.set_device(*number, before.as_deref().map(traits), Some(traits(device)));
            }
            Self::DeviceRemoved { number, before: Some(before) } => {
                index.set_device(*number, Some(traits(before)), None);
            }
            Self::DeviceRemoved { number, before: None } => index.forget_devices(&[*number].into()),
            Self::Published { .. }
            | Self::HistoryRemoved { .. }
            | Self::ChannelForgotten { .. }
            | Self::Proven { .. }
            | Self::Braked(_) => {}
            Self::Muted { number, subject } => _ = index.mute(*number, subject.as_ref()),
            Self::Unmuted { number, subject } => _ = index.unmute(*number, subject.as_ref()),
        }
    }
}

/// The traits of a device in the index.
pub(crate) fn traits(device: &Device) -> Traits<'_> {
    let Device { platform, app, locale, country, user, .. } = device;
    Traits { platform: *platform, app, locale, country: country.as_ref(), user: user.as_ref() }
}

/// The row with the changes of a batch, and their number; `None` when nothing changed that a checkpoint contains.
pub(crate) fn change_row(effects: &[Effect]) -> Option<(Vec<u8>, u64)> {
    let mut writer = ChangeWriter::default();
    for effect in effects {
        match effect {
            Effect::DeviceSet { number, device, before } => {
                let before = before.as_deref().map(traits);
                writer.device(*number, before.filter(|before| *before != traits(device)));
            }
            Effect::DeviceRemoved { number, before: Some(before) } => writer.device(*number, Some(traits(before))),
            Effect::DeviceRemoved { number, before: None } => writer.forgotten(*number),
            Effect::Subscribed { number, subject, topic } => writer.subscription(*number, subject, topic, true),
            Effect::Unsubscribed { number, subject, topic } => writer.subscription(*number, subject, topic, false),
            Effect::Muted { number, subject } => writer.mute(*number, subject.as_ref(), true),
            Effect::Unmuted { number, subject } => writer.mute(*number, subject.as_ref(), false),
            Effect::Published { .. }
            | Effect::HistoryRemoved { .. }
            | Effect::ChannelForgotten { .. }
            | Effect::Proven { .. }
            | Effect::Braked(_) => {}
        }
    }
    Some(writer.finish()).filter(|(_, count)| *count > 0)
}
