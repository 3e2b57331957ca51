//! The changes of a batch in memory (device table and index), and the row of table `change` that repeats them for the
//! checkpoint.

use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_audience::{Index, Traits};
use tidings_types::{ChannelName, Device, DeviceNumber, Offset, StreamPosition, Subject, TopicName};

use crate::brakes::Brakes;
use crate::channels::{DurableChannel, StoredPublication};
use crate::rows::{ChangeWriter, KnownTraits};
use crate::table::DeviceTable;

/// A change in memory. The effects of a batch are applied in order.
pub(crate) enum Effect {
    DeviceSet {
        number: DeviceNumber,
        device: Device,
        before: Before,
    },
    DeviceRemoved {
        number: DeviceNumber,
        before: Before,
    },
    /// A device leaves the sets of the traits that it had. What it has then follows.
    TraitsLeft {
        number: DeviceNumber,
        traits: KnownTraits,
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

/// What the index has of a device before a change.
#[derive(Debug)]
pub(crate) enum Before {
    /// Nothing: the device is new, or it has left its sets.
    Nothing,
    /// Its traits.
    Device(Box<Device>),
    /// Its row was damaged.
    Unknown,
}

impl Effect {
    pub(crate) fn apply_to_table(&self, table: &mut DeviceTable) {
        match self {
            Self::DeviceSet { number, device, before } => {
                table.set(*number, device.clone());
                if matches!(before, Before::Nothing) {
                    table.hint_at(&device.id, *number); // A batch has the row that names a new device.
                }
            }
            Self::DeviceRemoved { number, .. } => table.remove(*number),
            Self::Subscribed { number, .. } => table.count_subscription(*number, 1),
            Self::Unsubscribed { number, .. } => table.count_subscription(*number, -1),
            Self::Proven { chunk, bits } => table.set_proven_chunk(*chunk, bits),
            Self::TraitsLeft { .. }
            | Self::Published { .. }
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
                index.set_device(*number, before.traits(), Some(traits(device)));
            }
            Self::DeviceRemoved { number, before: Before::Unknown } => index.forget_devices(&[*number].into()),
            Self::DeviceRemoved { number, before } => index.set_device(*number, before.traits(), None),
            Self::TraitsLeft { number, traits } => index.set_device(*number, Some(traits.get()), None),
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

impl Before {
    fn traits(&self) -> Option<Traits<'_>> {
        match self {
            Self::Device(device) => Some(traits(device)),
            Self::Nothing | Self::Unknown => None,
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
                writer.device(*number, before.traits().filter(|before| *before != traits(device)));
            }
            Effect::DeviceRemoved { number, before: Before::Unknown } => writer.forgotten(*number),
            Effect::DeviceRemoved { number, before } => writer.device(*number, before.traits()),
            Effect::Subscribed { number, subject, topic } => writer.subscription(*number, subject, topic, true),
            Effect::Unsubscribed { number, subject, topic } => writer.subscription(*number, subject, topic, false),
            Effect::Muted { number, subject } => writer.mute(*number, subject.as_ref(), true),
            Effect::Unmuted { number, subject } => writer.mute(*number, subject.as_ref(), false),
            Effect::TraitsLeft { .. }
            | Effect::Published { .. }
            | Effect::HistoryRemoved { .. }
            | Effect::ChannelForgotten { .. }
            | Effect::Proven { .. }
            | Effect::Braked(_) => {}
        }
    }
    Some(writer.finish()).filter(|(_, count)| *count > 0)
}
