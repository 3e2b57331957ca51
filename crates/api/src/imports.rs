//! `POST /v1/imports` and `GET /v1/imports/{name}`: any number of devices at once, one JSON object per line.
//!
//! The lines are read as they arrive. [`CHUNK_COUNT`] devices or [`CHUNK_BYTES`] at a time are written in one step.
//! Meanwhile the answer reports the progress, one line at a time. Its last line has `done`, or the problem that stopped
//! the import. Lines that are reported as done are durable.
//!
//! An import with a name can be resumed: the store records with each chunk how many lines are done. If a caller sends
//! the file again from its first line, or from a later one with `from`, lines that are done are skipped: nothing is
//! lost or doubled. Without a name, repeated lines change nothing either; they only take their time.
//!
//! A wrong line stops the import at this line; with `on_error=skip` it is reported and skipped. A caller that sees no
//! last line was cut off, and asks `GET` for the progress.
//!
//! Bounds: a line has at most [`line_bytes_max`], the length of the largest device. One chunk is in memory and one is
//! being written. [`TOLD_COUNT_MAX`] wrong lines are reported, further ones are counted. Each piece of the body must
//! arrive within [`BODY_TIMEOUT`]; the whole body may take any time. An import takes a place of the requests that wait.
//! The store has a queue for imports, behind all others: when it is full, the import and the sender of the body wait
//! for up to a minute. Progress that the caller does not read is left out; wrong lines are not. An import ends with its
//! answer: if the caller disconnects, it stops.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::Value;
use tidings_protocol::CREDENTIAL_BYTES_MAX;
use tidings_store::{
    CredentialHash, GivenCredential, ImportError, ImportProgress, ImportStep, Imported, NewImport, SubscribeError,
    WriteError,
};
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceId, ImportName, Mute, MuteScope};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::audited::Note;
use crate::auth::Caller;
use crate::devices;
use crate::format::LINES;
use crate::guard::{BODY_TIMEOUT, IdPath};
use crate::input::{self, Field, Object, Schema};
use crate::lines::{Line, LineReader, line_bytes_max};
use crate::problem::{Invalid, Kind, Problem, json};
use crate::query::Params;
use crate::rfc3339::Rfc3339;
use crate::shared::Shared;

/// Devices that are written in one step.
const CHUNK_COUNT: usize = 1000;
/// Bytes of their lines; the last line may exceed it.
const CHUNK_BYTES: usize = 1 << 20;
/// The most wrong lines that are reported one by one.
const TOLD_COUNT_MAX: usize = 100;
/// How many bytes a subscription or a mute counts in addition to its line: it takes more memory than its JSON.
const ENTRY_BYTES: usize = 128;
/// How long an import waits while the store is too busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the rest of a body is read and thrown away after a line that stopped the import. Otherwise the connection
/// of a caller that is still sending might be reset, and the caller would lose the answer.
const LINGER: Duration = Duration::from_secs(5);
/// Accepted media types of a body; it may also have none.
const MEDIA: [&str; 4] = [LINES, "application/ndjson", "application/jsonl", "application/json"];
/// The most lines that are skipped, so that counting them cannot overflow.
pub(crate) const FROM_MAX: u64 = 1 << 53;
/// The most mutes in a line; the store limits the mutes of a device.
pub(crate) const MUTE_COUNT_MAX: usize = 10_000;
/// Lines of the answer that wait for their reader: all wrong lines, and some lines of progress.
const ANSWER_COUNT: usize = TOLD_COUNT_MAX + 16;

/// A line of an import: the fields of `PUT /v1/devices/{id}`, and the device's subscriptions and mutes.
pub(crate) const IMPORT: Schema = Schema {
    fields: &[
        "id",
        "platform",
        "token",
        "web_push",
        "app",
        "locale",
        "environment",
        "country",
        "time_zone",
        "push_permission",
        "user",
        "proven",
        "subscriptions",
        "mutes",
        "credential",
        "credential_hash",
        "seen_at",
        "token_at",
    ],
    refused: &[("problem", "marks a device that an export could not read: leave this line out")],
};
pub(crate) const IMPORT_MUTE: Schema = Schema { fields: &["scope", "until"], refused: &[] };

/// What happens after a wrong line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnError {
    Stop,
    Skip,
}

pub(crate) async fn progress(
    State(shared): State<Arc<Shared>>,
    IdPath(name): IdPath<ImportName>,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct View {
        lines: u64,
        created: u64,
        updated: u64,
        subscribed: u64,
        at: Rfc3339,
    }
    let found = progress_of(&shared, &name).await?;
    let Some(ImportProgress { lines, imported, at }) = found else {
        return Err(Problem::new(Kind::NotFound, format!("no import is called {}", input::shown(name.as_str()))));
    };
    let Imported { created, updated, subscribed } = imported;
    Ok(json(StatusCode::OK, &View { lines, created, updated, subscribed, at: Rfc3339(at) }))
}

async fn progress_of(shared: &Arc<Shared>, name: &ImportName) -> Result<Option<ImportProgress>, Problem> {
    let name = name.clone();
    shared.read(move |shared| shared.store.import_progress(&name)).await
}

pub(crate) async fn import(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    note: Note,
    uri: Uri,
    request: Request,
) -> Result<Response, Problem> {
    check_media(request.headers())?;
    let place = shared.waiting_place(&caller)?;
    let import = Import::begin(shared, &uri, place).await?;
    import.name.iter().for_each(|name| note.touch(name.as_str()));
    let mut body = request.into_body();
    // Before the answer begins: a caller that waits for `100 Continue` gets it only when its body is read.
    let first = next_frame(&mut body).await?;
    let (answer, lines) = mpsc::channel(ANSWER_COUNT);
    // A task of its own, so that a caller that reads the answer slowly does not stop the import. It ends with the
    // answer at the latest.
    let mut importing = JoinSet::new();
    importing.spawn(panics::catch_async(Work::Request, import.run(first, body, answer)));
    let lines = stream::unfold((lines, importing), async |(mut lines, mut importing)| {
        if let Some(line) = lines.recv().await {
            return Some((Ok(line), (lines, importing)));
        }
        // After a panic the connection breaks off.
        let ended =
            importing.join_next().await?.map_err(io::Error::other).and_then(|ran| ran.map_err(io::Error::other));
        ended.err().map(|error| (Err(error), (lines, importing)))
    });
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(LINES))];
    Ok((headers, Body::from_stream(lines)).into_response())
}

type NextFrame = Option<Result<Bytes, axum::Error>>;

/// The next piece of a body; `None`: it is over.
async fn next_frame(body: &mut Body) -> Result<NextFrame, Problem> {
    let frame = timeout(BODY_TIMEOUT, body.frame()).await.map_err(|_| {
        let seconds = BODY_TIMEOUT.as_secs();
        let detail = format!("nothing more of the body came within {seconds} seconds");
        Problem::new(Kind::Timeout, detail).limit(seconds)
    })?;
    Ok(frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default())))
}

fn check_media(headers: &HeaderMap) -> Result<(), Problem> {
    let wrong = |detail: String| Err(Problem::new(Kind::UnsupportedMediaType, detail));
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    if let Some(encoding) = headers.get(CONTENT_ENCODING).map(text).filter(|encoding| encoding != "identity") {
        return wrong(format!("Content-Encoding must be identity, got {:?}", input::shown(&encoding)));
    }
    let Some(media) = headers.get(CONTENT_TYPE).map(text) else { return Ok(()) };
    let essence = media.split(';').next().unwrap_or_default().trim();
    if MEDIA.iter().any(|known| essence.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    wrong(format!("Content-Type must be {LINES}, got {:?}", input::shown(essence)))
}

/// The progress of this request's part of an import.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Tally {
    /// Lines of the import that are done, including those before this request.
    lines: u64,
    /// Lines of this request that were done before.
    repeated: u64,
    created: u64,
    updated: u64,
    subscribed: u64,
    /// Wrong lines.
    rejected: u64,
}

/// Why an import stopped.
enum Stop {
    /// This line is wrong.
    Line(u64, Invalid),
    Problem(Problem),
    /// The caller has disconnected.
    Gone,
}

struct Import {
    shared: Arc<Shared>,
    name: Option<ImportName>,
    on_error: OnError,
    /// Lines of the import before the body's first.
    from: u64,
    tally: Tally,
    chunk: Chunk,
    _place: OwnedSemaphorePermit,
}

/// The devices that are written next.
#[derive(Default)]
struct Chunk {
    /// Each with the number of its line.
    devices: Vec<(u64, NewImport)>,
    bytes: usize,
    /// The last line of the chunk; wrong lines count too.
    lines: u64,
}

impl Import {
    async fn begin(shared: Arc<Shared>, uri: &Uri, place: OwnedSemaphorePermit) -> Result<Self, Problem> {
        let mut params = Params::read(uri, &["name", "from", "on_error"])?;
        let name = params.take("name").map(|name| ImportName::new(&name)).transpose();
        let name = name.map_err(|error| Invalid::name("name", error))?;
        let on_error = match params.take("on_error").as_deref() {
            None | Some("stop") => OnError::Stop,
            Some("skip") => OnError::Skip,
            Some(other) => {
                let got = input::shown(other);
                return Err(Invalid::new("on_error", format_args!("must be stop or skip, got {got:?}"))
                    .value(got)
                    .into());
            }
        };
        let from = params.take("from").map_or(Ok(0), |text| {
            text.parse::<u64>().ok().filter(|from| *from <= FROM_MAX).ok_or_else(|| {
                let got = input::shown(&text);
                let rule =
                    format_args!("must be a whole number of lines from 0 to {FROM_MAX}, got {got:?}").to_string();
                Invalid { limit: Some(FROM_MAX), ..Invalid::new("from", rule) }.value(got)
            })
        })?;
        let done = match &name {
            Some(name) => progress_of(&shared, name).await?.map_or(0, |progress| progress.lines),
            None => from,
        };
        if from > done {
            return Err(out_of_step(done, from));
        }
        let tally = Tally { lines: done, ..Tally::default() };
        let chunk = Chunk { lines: done, ..Chunk::default() };
        Ok(Self { shared, name, on_error, from, tally, chunk, _place: place })
    }

    async fn run(mut self, first: NextFrame, mut body: Body, answer: mpsc::Sender<Bytes>) {
        let stopped = match self.read(first, &mut body, &answer).await {
            Ok(()) => self.write(&answer).await,
            // The lines before a wrong line are written.
            Err(Stop::Line(line, invalid)) => match self.write(&answer).await {
                Ok(()) => Err(Stop::Line(line, invalid)),
                stopped => stopped,
            },
            stopped => stopped,
        };
        let done = stopped.is_ok();
        let (line, problem) = match stopped {
            Ok(()) => (None, None),
            Err(Stop::Line(line, invalid)) => (Some(line), Some(Problem::from(invalid).into_value())),
            Err(Stop::Problem(problem)) => (None, Some(problem.into_value())),
            Err(Stop::Gone) => return,
        };
        let last = told(&Last { tally: self.tally, done, line, problem });
        drop(self); // A caller that reads the answer slowly holds no place.
        let is_taken = timeout(BODY_TIMEOUT, answer.send(last)).await.is_ok_and(|sent| sent.is_ok());
        if is_taken && !done {
            let rest = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = timeout(LINGER, rest).await; // Either way it is over.
        }
    }

    async fn read(&mut self, mut frame: NextFrame, body: &mut Body, answer: &mpsc::Sender<Bytes>) -> Result<(), Stop> {
        let mut lines = LineReader::new(self.line_bytes_max());
        loop {
            match frame {
                Some(Ok(bytes)) => lines.feed(bytes),
                Some(Err(_)) => return Err(Stop::Gone),
                None => break,
            }
            while let Some((number, line)) = lines.next_line() {
                self.take(self.from + number, line, answer).await?;
            }
            frame = next_frame(body).await.map_err(Stop::Problem)?;
        }
        match lines.finish() {
            Some((number, line)) => self.take(self.from + number, line, answer).await,
            None => Ok(()),
        }
    }

    fn line_bytes_max(&self) -> usize {
        line_bytes_max(self.shared.config.subscription_count_max, self.shared.config.mute_count_max)
    }

    /// Takes a line, unless it is done already.
    async fn take(&mut self, number: u64, line: Line, answer: &mpsc::Sender<Bytes>) -> Result<(), Stop> {
        if number <= self.tally.lines {
            self.tally.repeated += 1;
            return Ok(());
        }
        let bytes = if let Line::Text(text) = &line { text.len() } else { 0 };
        match device(&line, self.shared.config.subscription_count_max, self.line_bytes_max()) {
            Ok(device) => {
                self.chunk.bytes += bytes + ENTRY_BYTES * (device.subscriptions.len() + device.mutes.len());
                self.chunk.devices.push((number, device));
            }
            Err(invalid) => self.reject(number, invalid, answer)?,
        }
        self.chunk.lines = number;
        if self.chunk.devices.len() >= CHUNK_COUNT || self.chunk.bytes >= CHUNK_BYTES {
            self.write(answer).await?;
        }
        Ok(())
    }

    fn reject(&mut self, number: u64, invalid: Invalid, answer: &mpsc::Sender<Bytes>) -> Result<(), Stop> {
        if self.on_error == OnError::Stop {
            return Err(Stop::Line(number, invalid));
        }
        self.tally.rejected += 1;
        if self.tally.rejected <= TOLD_COUNT_MAX as u64 {
            let wrong = Wrong { line: number, problem: Problem::from(invalid).into_value() };
            let _ = answer.try_send(told(&wrong)); // There is room for each, unless the caller has disconnected.
        }
        Ok(())
    }

    /// Writes the chunk, and reports progress. If a device exceeds a limit, the devices before it are written, its line
    /// is reported as wrong, and then the others are written.
    async fn write(&mut self, answer: &mpsc::Sender<Bytes>) -> Result<(), Stop> {
        let mut chunk = std::mem::take(&mut self.chunk); // After an error it is not written later.
        while chunk.lines > self.tally.lines {
            match self.put(&chunk.devices, chunk.lines).await {
                Ok(imported) => self.count(chunk.lines, imported),
                Err(ImportError::Device { index, source, .. }) => {
                    let behind = chunk.devices.split_off(index.min(chunk.devices.len()));
                    let mut behind = behind.into_iter();
                    let Some((number, _)) = behind.next() else { return Err(Stop::Problem(strange())) };
                    let before = std::mem::replace(&mut chunk.devices, behind.collect());
                    if number - 1 > self.tally.lines {
                        let imported = self.put(&before, number - 1).await.map_err(stop)?;
                        self.count(number - 1, imported);
                    }
                    self.reject(number, too_many(&source), answer)?;
                }
                Err(error) => return Err(stop(error)),
            }
        }
        self.chunk.lines = chunk.lines;
        if answer.is_closed() {
            return Err(Stop::Gone);
        }
        // Progress that the caller does not read is dropped. There must be room left for lines that report wrong lines.
        if answer.capacity() > TOLD_COUNT_MAX {
            let _ = answer.try_send(told(&self.tally));
        }
        Ok(())
    }

    fn count(&mut self, lines: u64, imported: Imported) {
        self.tally.lines = lines;
        self.tally.created += imported.created;
        self.tally.updated += imported.updated;
        self.tally.subscribed += imported.subscribed;
    }

    /// Hands devices to the store, together with the line number `lines_after`; repeats this while the store is too
    /// busy.
    async fn put(&self, devices: &[(u64, NewImport)], lines_after: u64) -> Result<Imported, ImportError> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(10);
        let mut is_unsure = false;
        loop {
            let lines_before = self.tally.lines;
            let step = self.name.clone().map(|name| ImportStep { name, lines_before, lines_after });
            let devices = devices.iter().map(|(_, device)| device.clone()).collect();
            match self.shared.store.import_devices(devices, step, unix_now()).await {
                // The attempt whose answer was lost had been durable.
                Err(ImportError::OutOfStep { recorded, .. }) if is_unsure && recorded == lines_after => {
                    return Ok(Imported::default());
                }
                Err(ImportError::Write(error)) if began.elapsed() < PATIENCE => {
                    is_unsure |= error == WriteError::Unavailable;
                    sleep(pause).await;
                    pause = (2 * pause).min(Duration::from_secs(1));
                }
                done => return done,
            }
        }
    }
}

fn stop(error: ImportError) -> Stop {
    Stop::Problem(match error {
        ImportError::OutOfStep { recorded, lines_before } => out_of_step(recorded, lines_before),
        ImportError::Device { .. } => strange(), // The devices before it were accepted a moment ago.
        ImportError::Write(error) => error.into(),
    })
}

fn strange() -> Problem {
    Problem::new(
        Kind::Unavailable,
        "the device exceeds a limit that it did not exceed before; continue after the lines that are done",
    )
}

#[derive(Serialize)]
struct Wrong {
    line: u64,
    problem: Value,
}

#[derive(Serialize)]
struct Last {
    #[serde(flatten)]
    tally: Tally,
    done: bool,
    /// The number of the wrong line.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Value>,
}

fn told(what: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(what).expect("our own shapes have string keys");
    line.push(b'\n');
    line.into()
}

fn out_of_step(recorded: u64, from: u64) -> Problem {
    let detail = format!("{recorded} lines of this import are done, so it cannot continue after line {from}");
    Problem::new(Kind::OutOfStep, detail).field("from").limit(recorded).value(from)
}

fn too_many(error: &SubscribeError) -> Invalid {
    let (field, limit, count) = match *error {
        SubscribeError::TooMany { limit, count } => ("subscriptions", limit, count),
        SubscribeError::TooManyMutes { limit, count } => ("mutes", limit, count),
        SubscribeError::TooManyDevices { limit, count } => {
            let rule = format!("a user has at most {limit} devices, this one would have {count}");
            return Invalid::new("user", rule).limit(limit as usize).value(count);
        }
        SubscribeError::NotFound | SubscribeError::Write(_) => return Invalid::new("", error),
    };
    let rule = format_args!("a device has at most {limit}, this one would have {count}").to_string();
    Invalid::new(field, rule).limit(limit as usize).value(count)
}

/// Reads a device from a line.
fn device(line: &Line, subscription_count_max: usize, bytes_max: usize) -> Result<NewImport, Invalid> {
    match line {
        Line::Text(text) => device_of(text, subscription_count_max),
        Line::TooLong => {
            let rule = format_args!("must have at most {bytes_max} bytes");
            Err(Invalid::new("", rule).limit(bytes_max))
        }
    }
}

pub(crate) fn device_of(text: &[u8], subscription_count_max: usize) -> Result<NewImport, Invalid> {
    let field = input::value(text).map_err(|error| Invalid::new("", format_args!("must be JSON: {error}")))?;
    field.check_depth()?;
    let mut object = field.object(&IMPORT)?;
    let id = object.require("id", "")?.name(DeviceId::new)?;
    let (device, proven) = devices::described(id, &mut object, |_| false)?;
    let subscriptions = object.take("subscriptions");
    let subscriptions = subscriptions.map(|list| devices::pairs_of(list, subscription_count_max)).transpose()?;
    Ok(NewImport {
        subscriptions: subscriptions.unwrap_or_default().into_iter().collect(),
        mutes: object.take("mutes").map(mutes).transpose()?.unwrap_or_default(),
        credential: credential(&mut object)?,
        proven: proven.unwrap_or_default(),
        seen_at: object.take("seen_at").map(|at| moment(&at)).transpose()?,
        token_at: object.take("token_at").map(|at| moment(&at)).transpose()?,
        ..device.into()
    })
}

fn mutes(list: Field<'_>) -> Result<Vec<Mute>, Invalid> {
    let mutes: Result<BTreeMap<MuteScope, Mute>, Invalid> = list
        .items(0..=MUTE_COUNT_MAX, "mutes")?
        .into_iter()
        .map(|item| {
            let mut item = item.object(&IMPORT_MUTE)?;
            let scope = item.require("scope", "")?.name(|text| text.parse::<MuteScope>())?;
            let until = item.take("until").map(|until| moment(&until)).transpose()?;
            Ok((scope.clone(), Mute { scope, until }))
        })
        .collect();
    Ok(mutes?.into_values().collect())
}

fn moment(field: &Field<'_>) -> Result<tidings_types::Timestamp, Invalid> {
    let text = field.text()?;
    let parsed = text.parse::<Rfc3339>();
    parsed.map(|Rfc3339(at)| at).map_err(|error| field.invalid(error).value(input::shown(&text)))
}

/// The device's own secret, or its hash. Neither appears in an error.
fn credential(object: &mut Object<'_>) -> Result<Option<GivenCredential>, Invalid> {
    match (object.take("credential"), object.take("credential_hash")) {
        (Some(_), Some(hash)) => Err(hash.invalid("must not be given together with credential")),
        (Some(secret), None) => {
            secret.text_within(1..=CREDENTIAL_BYTES_MAX).map(|text| Some(GivenCredential::Secret(text)))
        }
        (None, Some(hash)) => {
            hash.name(|text| text.parse::<CredentialHash>()).map(|it| Some(GivenCredential::Hash(it)))
        }
        (None, None) => Ok(None),
    }
}
