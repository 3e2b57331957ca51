//! What callers ask of the committer; each with the way to answer. Dropped without an answer, the caller is told
//! that the store cannot write now.

use tidings_types::{
    BrakeScope, DeviceId, DeviceNumber, JournalPosition, Mute, MuteScope, StreamPosition, Timestamp, UserId,
};
use tokio::sync::oneshot;

use crate::channels::{DurableChannel, StoredPublication};
use crate::devices::credential::Credential;
use crate::devices::{GoneToken, NewDevice, Precondition, PutTerms, Registered};
use crate::error::{AppendError, ChangeError, ImportError, SubscribeError, WriteError};
use crate::events::Appended;
use crate::events::prepared::PreparedEvent;
use crate::hash::Hash16;
use crate::imports::{Imported, NewImport, StepPart};
use crate::subscriptions::Selection;

pub(crate) type Reply<T> = oneshot::Sender<T>;

pub(crate) enum Command {
    AppendEvents {
        events: Vec<PreparedEvent>,
        now: Timestamp,
        reply: Reply<Result<Vec<Appended>, AppendError>>,
    },
    Publish {
        channel: DurableChannel,
        publication: StoredPublication,
        reply: Reply<Result<StreamPosition, WriteError>>,
    },
    Jobs {
        put: Vec<(JournalPosition, Vec<u8>)>,
        remove: Vec<JournalPosition>,
        dispatched: Option<JournalPosition>,
        reply: Reply<()>,
    },
    Pause {
        scope: BrakeScope,
        now: Timestamp,
        reply: Reply<Result<bool, WriteError>>,
    },
    Resume {
        scope: BrakeScope,
        reply: Reply<bool>,
    },
    Cancel {
        position: JournalPosition,
        reply: Reply<bool>,
    },
    CancelLater {
        id_hash: Hash16,
        reply: Reply<bool>,
    },
    ReleaseLater {
        now: Timestamp,
        reply: Reply<Result<usize, WriteError>>,
    },
    DevicesProven {
        numbers: Vec<DeviceNumber>,
        reply: Reply<()>,
    },
    PutDevice {
        device: NewDevice,
        terms: PutTerms,
        now: Timestamp,
        reply: Reply<Result<Registered, ChangeError>>,
    },
    DeleteDevice {
        id: DeviceId,
        precondition: Precondition,
        reply: Reply<Result<bool, ChangeError>>,
    },
    /// Some of the devices of a user.
    EraseUser {
        user: UserId,
        reply: Reply<usize>,
    },
    Touch {
        id: DeviceId,
        now: Timestamp,
        reply: Reply<()>,
    },
    Mute {
        id: DeviceId,
        mute: Mute,
        now: Timestamp,
        reply: Reply<Result<bool, SubscribeError>>,
    },
    Unmute {
        id: DeviceId,
        scope: MuteScope,
        reply: Reply<Result<bool, SubscribeError>>,
    },
    RotateCredential {
        id: DeviceId,
        reply: Reply<Option<(DeviceNumber, Credential)>>,
    },
    LogOut {
        id: DeviceId,
        reply: Reply<Option<(DeviceNumber, Credential)>>,
    },
    Subscribe {
        id: DeviceId,
        selection: Selection,
        reply: Reply<Result<usize, SubscribeError>>,
    },
    Unsubscribe {
        id: DeviceId,
        selection: Selection,
        reply: Reply<Result<usize, SubscribeError>>,
    },
    TokensGone {
        tokens: Vec<GoneToken>,
        reply: Reply<usize>,
    },
    Import {
        devices: Vec<NewImport>,
        part: Option<StepPart>,
        now: Timestamp,
        reply: Reply<Result<Imported, ImportError>>,
    },
}
