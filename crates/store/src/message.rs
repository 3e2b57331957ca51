//! What callers ask of the committer; each with the way to answer. Dropped without an answer, the caller is told
//! that the store cannot write now.

use tidings_types::{
    BrakeScope, DeviceId, DeviceNumber, EventId, JournalPosition, Json, ReceiptTerms, StreamPosition, Timestamp,
};
use tokio::sync::oneshot;

use crate::device::{Credential, GoneToken, Imported, NewDevice, NewImport, Registered, Selection};
use crate::error::{AppendError, SubscribeError, WriteError};
use crate::event::{Appended, DurableChannel, StoredPublication};
use crate::hash::{Hash16, Hash32};

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
        /// Whether its token has worked, where the caller knows.
        proven: Option<bool>,
        now: Timestamp,
        reply: Reply<Result<Registered, WriteError>>,
    },
    DeleteDevice {
        id: DeviceId,
        reply: Reply<bool>,
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
        now: Timestamp,
        reply: Reply<Result<Imported, SubscribeError>>,
    },
}

/// An event with all that can be computed before its turn, in the caller's own task.
pub(crate) struct PreparedEvent {
    pub(crate) id: EventId,
    pub(crate) id_hash: Hash16,
    /// Hash of `json`: same id and same content is the same event.
    pub(crate) content: Hash32,
    pub(crate) json: Vec<u8>,
    /// What its channels publish.
    pub(crate) data: Json,
    pub(crate) channels: Vec<DurableChannel>,
    /// What those publications ask of the connections they are written to.
    pub(crate) receipt: Option<ReceiptTerms>,
    pub(crate) audience_max: Option<u64>,
    /// When it is due, if that is later than now.
    pub(crate) later_at: Option<Timestamp>,
}
