//! What callers ask of the committer; each with the way to answer. Dropped without an answer, the caller is told
//! that the store cannot write now.

use tidings_types::{
    BrakeScope, DeviceId, DeviceNumber, EventId, JournalPosition, Json, Mute, MuteScope, ReceiptTerms, StreamPosition,
    Timestamp, UserId,
};
use tokio::sync::oneshot;

use crate::devices::{
    Credential, GoneToken, ImportStep, Imported, NewDevice, NewImport, Precondition, PutTerms, Registered, Selection,
};
use crate::error::{AppendError, ChangeError, ImportError, SubscribeError, WriteError};
use crate::events::{Appended, DurableChannel, StoredPublication};
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

/// Which part of an import's step a chunk is.
#[derive(Debug, Clone)]
pub(crate) struct StepPart {
    pub(crate) step: ImportStep,
    /// What the earlier chunks of the step did, when this is the last one: with it the step is done.
    pub(crate) done_before: Option<Imported>,
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
