//! `GET /v1/events/{id}`: the state of an accepted event, and which users and devices have proven to have it.
//!
//! ```text
//! scheduled ─► waiting ─► running ◄─► paused
//!                 │          ├─► finished ──┬─► forgotten
//!                 └──────────┴─► cancelled ─┘
//! ```
//!
//! A forgotten event is known only as accepted, until its id is forgotten too: then the answer is 404.
//!
//! An event is known by its id for `store.id_window`. Its job is known as long as the sender remembers finished jobs.
//! Its receipts are known for [`RECEIPTS_TTL`] after their time (less if there are too many events, or they take too much
//! memory), and not over a restart.
//!
//! A request for receipts may wait until all connections that got the event have answered. The event is still being
//! written after it was acknowledged. So "all" is reached when nothing has changed for [`SETTLED`]. If the event's
//! channels have readers and it was written to none of them yet, the wait goes on. Bound: `Shared::waiting_place`.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use tidings_hub::{EventReceipts, Hub, RECEIPTS_TTL, ReceiptSummary};
use tidings_store::{AcceptedEvent, LaterEvent, ReadError, Store};
use tidings_types::{EventId, EventPriority, JobState, JournalPosition, TopicName};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::auth::Caller;
use crate::event_input::wait_of_query;
use crate::event_view::{EventState, Place, Scheduled};
use crate::guard::IdPath;
use crate::job::{JobView, Progress};
use crate::problem::{Kind, Problem, json};
use crate::query::Params;
use crate::rfc3339::Rfc3339;
use crate::shared::Shared;

/// After this time without a change, if all connections have answered, the wait ends.
const SETTLED: Duration = Duration::from_millis(100);
/// How long the store may take to report what it has committed: as long as publishing a batch takes.
const TOLD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The time between two looks while answers come in: each look copies the names of users.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Serialize)]
struct Report<'a> {
    id: &'a EventId,
    position: JournalPosition,
    topic: &'a TopicName,
    priority: EventPriority,
    accepted_at: Rfc3339,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    state: EventState,
    /// Present only while the job is known.
    #[serde(flatten)]
    progress: Option<Progress>,
    channels: Vec<Place<'a>>,
    /// Present only if receipts are collected and not forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipts: Option<Counted>,
}

#[derive(Debug, Default, Serialize)]
struct Counted {
    written: u64,
    received: u64,
}

pub(crate) async fn event(State(shared): State<Arc<Shared>>, IdPath(id): IdPath<EventId>) -> Result<Response, Problem> {
    let (position, accepted) = match locate(&shared, &id).await? {
        Some(Located::Journal(position, accepted)) => (position, accepted),
        Some(Located::Later(later)) => return Ok(json(StatusCode::OK, &Scheduled::new(&later))),
        None => return Err(unknown(&id)),
    };
    // The store first: if a job begins between the two reads, it is found, and its event is not taken for forgotten.
    let dispatched = shared.read(|shared| shared.store.dispatched()).await?;
    let job = shared.jobs.job(position);
    let state = match job.as_ref().map(|job| job.state) {
        Some(JobState::Running) => EventState::Running,
        Some(JobState::Paused) => EventState::Paused,
        Some(JobState::Cancelled) => EventState::Cancelled,
        Some(JobState::Finished) => EventState::Finished,
        None if shared.store.brakes().borrow().cancelled.contains(&position) => EventState::Cancelled,
        None if position >= dispatched => EventState::Waiting,
        None => EventState::Forgotten,
    };
    let (receipts, live) = match receipts(&shared.hub, position, &accepted) {
        Receipts::Kept(receipts) => {
            let (summary, live) = (receipts.summary(), receipts.time_to(accepted.accepted_at));
            ((!receipts.is_forgotten()).then(|| Counted::new(&summary)), live)
        }
        Receipts::OfNobody => (Some(Counted::default()), None),
        Receipts::NotAskedFor | Receipts::Forgotten => (None, None),
    };
    // A job that pushes nobody is done before the receipts come.
    let job = job.map(|job| JobView { time_to_live: live.or(job.time_to_live), ..job });
    let report = Report {
        id: &id,
        position,
        topic: &accepted.event.topic,
        priority: accepted.event.priority,
        accepted_at: Rfc3339(accepted.accepted_at),
        trace_id: accepted.event.trace.as_ref().map(|trace| trace.trace.to_string()),
        state,
        progress: job.map(Progress::new),
        channels: accepted.published.iter().map(Place::new).collect(),
        receipts,
    };
    Ok(json(StatusCode::OK, &report))
}

/// The users and devices that have proven to have the event.
#[derive(Debug, Serialize)]
struct Proven {
    #[serde(flatten)]
    counted: Counted,
    #[serde(flatten)]
    answered: Option<Answered>,
}

/// Present only if every client is asked (`receipt: true`); otherwise devices answer, not users.
#[derive(Debug, Serialize)]
struct Answered {
    users: Vec<String>,
    /// False when more users answered than are named.
    users_complete: bool,
}

pub(crate) async fn event_receipts(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    IdPath(id): IdPath<EventId>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut params = Params::read(&uri, &["wait"])?;
    let wait = params.take("wait").map(|wait| wait_of_query(&wait)).transpose()?.unwrap_or_default();
    let (position, accepted) = find(&shared, &id).await?;
    let is_of_users = accepted.event.receipt;
    let receipts = match receipts(&shared.hub, position, &accepted) {
        Receipts::Kept(receipts) => receipts,
        Receipts::OfNobody => {
            let answered = is_of_users.then(|| Answered { users: Vec::new(), users_complete: true });
            return Ok(json(StatusCode::OK, &Proven { counted: Counted::default(), answered }));
        }
        Receipts::NotAskedFor => {
            let detail =
                format!("event {id} has no receipts: they need \"receipt\": true or \"push\": \"unless_received\"");
            return Err(Problem::new(Kind::NotFound, detail));
        }
        Receipts::Forgotten => return Err(forgotten(&id)),
    };
    let summary = if wait.is_zero() {
        receipts.summary()
    } else {
        let _place = shared.waiting_place(&caller)?;
        let reader_count = || accepted.published.iter().map(|(name, _)| shared.hub.subscriber_count(name)).sum();
        settled(&receipts, reader_count, Instant::now() + wait).await
    };
    if receipts.is_forgotten() {
        return Err(forgotten(&id));
    }
    let counted = Counted::new(&summary);
    let ReceiptSummary { users, users_complete, .. } = summary;
    let answered = is_of_users.then_some(Answered { users, users_complete });
    Ok(json(StatusCode::OK, &Proven { counted, answered }))
}

fn forgotten(id: &EventId) -> Problem {
    let seconds = RECEIPTS_TTL.as_secs();
    let detail = format!(
        "the receipts of event {id} are forgotten: they are kept for {seconds} seconds after its receipt_wait, \
         unless there are too many, and not over a restart"
    );
    Problem::new(Kind::NotFound, detail)
}

impl Counted {
    fn new(summary: &ReceiptSummary) -> Self {
        Self { written: summary.written, received: summary.received }
    }
}

/// The event with this id in the journal.
pub(crate) async fn find(shared: &Arc<Shared>, id: &EventId) -> Result<(JournalPosition, AcceptedEvent), Problem> {
    match locate(shared, id).await? {
        Some(Located::Journal(position, accepted)) => Ok((position, accepted)),
        Some(Located::Later(later)) => {
            let detail = format!("event {id} is not due before {}", Rfc3339(later.key.at));
            Err(Problem::new(Kind::NotFound, detail))
        }
        None => Err(unknown(id)),
    }
}

fn unknown(id: &EventId) -> Problem {
    Problem::new(
        Kind::NotFound,
        format!("there is no event with the id {id}, or it was forgotten after store.id_window"),
    )
}

/// Where an accepted event is stored.
enum Located {
    Journal(JournalPosition, AcceptedEvent),
    Later(LaterEvent),
}

/// Finds an event. Between the commit that accepts or releases an event and the report of that commit, the event is
/// found nowhere. This waits for the report, so an accepted event is never called unknown.
async fn locate(shared: &Arc<Shared>, id: &EventId) -> Result<Option<Located>, Problem> {
    let (mut end, deadline) = (shared.store.watch_journal_end(), Instant::now() + TOLD_TIMEOUT);
    loop {
        end.mark_unchanged(); // Before the look, so that no change is missed.
        let wanted = id.clone();
        match shared.read(move |shared| look(&shared.store, &wanted)).await? {
            Look::Found(located) => return Ok(Some(*located)),
            Look::Unknown => return Ok(None),
            Look::OnItsWay => {}
        }
        if Instant::now() >= deadline {
            return Err(Problem::new(
                Kind::Unavailable,
                format!("event {id} is being accepted or released at this moment: try again"),
            ));
        }
        // The journal reports only its own events, and this one may just have become a scheduled event.
        let _ = timeout(LOOK_AGAIN, end.changed()).await;
    }
}

/// The result of one look for an event.
enum Look {
    Found(Box<Located>),
    OnItsWay,
    Unknown,
}

fn look(store: &Store, id: &EventId) -> Result<Look, ReadError> {
    if let Some(later) = store.later(id)? {
        return Ok(Look::Found(Box::new(Located::Later(later))));
    }
    if let Some(position) = store.event_position(id)? {
        let accepted = store.event(position)?;
        let found = |accepted| Look::Found(Box::new(Located::Journal(position, accepted)));
        return Ok(accepted.map_or(Look::Unknown, found));
    }
    Ok(if store.is_known(id)? { Look::OnItsWay } else { Look::Unknown })
}

/// What is known of an event's receipts.
enum Receipts {
    NotAskedFor,
    /// The event was published in no channel.
    OfNobody,
    Kept(Arc<EventReceipts>),
    Forgotten,
}

fn receipts(hub: &Hub, position: JournalPosition, accepted: &AcceptedEvent) -> Receipts {
    if accepted.event.receipt_terms(accepted.accepted_at).is_none() {
        return Receipts::NotAskedFor;
    }
    if accepted.published.is_empty() {
        return Receipts::OfNobody;
    }
    hub.receipts().get(position).map_or(Receipts::Forgotten, Receipts::Kept)
}

/// Waits until all connections have answered, until the receipts are forgotten, or until `deadline`.
async fn settled(receipts: &EventReceipts, reader_count: impl Fn() -> usize, deadline: Instant) -> ReceiptSummary {
    loop {
        let changed = receipts.changed(); // Before the look, so that no change is missed.
        let summary = receipts.summary();
        if receipts.is_forgotten() {
            return summary;
        }
        let all_answered = summary.received >= summary.written && (summary.written > 0 || reader_count() == 0);
        let end = if all_answered { deadline.min(Instant::now() + SETTLED) } else { deadline };
        if timeout_at(end, changed).await.is_err() {
            let later = receipts.summary();
            // A write to one more connection is not reported as a change.
            if end == deadline || later == summary {
                return later;
            }
        }
        sleep_until(deadline.min(Instant::now() + LOOK_INTERVAL)).await;
    }
}
