//! What a batch changes in memory: in the device table and in the index; and the row that says it, for what the checkpoint
//! does not have yet.

use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_audience::{Index, Traits};
use tidings_types::{ChannelName, Device, DeviceNumber, Offset, StreamPosition, Subject, TopicName};

use crate::brakes::Brakes;
use crate::channels::{DurableChannel, StoredPublication};
use crate::rows::ChangeWriter;
use crate::table::DeviceTable;

/// What a batch changes in memory, in order.
pub(crate) enum Effect {
    DeviceSet {
        number: DeviceNumber,
        device: Device,
        /// What it was before, if it was there.
        before: Option<Box<Device>>,
    },
    DeviceRemoved {
        number: DeviceNumber,
        /// What it was; nobody knows when its row was damaged.
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
    /// Without a subject: everything.
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
    /// A durable channel is forgotten; it would begin at the floor now, as all do that are not there.
    GivenBack {
        channel: ChannelName,
        floor: Offset,
    },
    /// These bits of the proven set are now so.
    Proven {
        chunk: u16,
        bits: RoaringBitmap,
    },
    /// All brakes there are now.
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
            | Self::GivenBack { .. }
            | Self::Braked(_)
            | Self::Muted { .. }
            | Self::Unmuted { .. } => {}
        }
    }

    /// What the device table reserves for it, in bytes.
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
            Self::Published { .. } | Self::GivenBack { .. } | Self::Proven { .. } | Self::Braked(_) => {}
            Self::Muted { number, subject } => _ = index.mute(*number, subject.as_ref()),
            Self::Unmuted { number, subject } => _ = index.unmute(*number, subject.as_ref()),
        }
    }
}

/// What the index chooses a device by.
pub(crate) fn traits(device: &Device) -> Traits<'_> {
    let Device { platform, app, locale, country, user, .. } = device;
    Traits { platform: *platform, app, locale, country: country.as_ref(), user: user.as_ref() }
}

/// The row that says what a batch changed, and how many changes that are; `None` when nothing of it is in the checkpoint.
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
            Effect::Published { .. } | Effect::GivenBack { .. } | Effect::Proven { .. } | Effect::Braked(_) => {}
        }
    }
    Some(writer.finish()).filter(|(_, count)| *count > 0)
}
