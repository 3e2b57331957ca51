//! Starts the feeds of the configuration, lets their events through the checks of the API, and answers the API's
//! questions about feeds.

mod error;
#[cfg(feature = "sources")]
mod messages;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use tidings_api::{
    FeedBody, FeedCounts, FeedError, FeedFuture, FeedReason, FeedRefusal, FeedReport, FeedState, FeedView, Publisher,
    Rfc3339, Unpublished,
};
use tidings_config::{Config, Feed, read_file};
use tidings_feed::Kind;
use tidings_intake::{
    Address, Counts, Door, DoorFuture, FeedConfig, Fetch, How, Intake, Pace, Parser, PieceFuture, Pieces, ReceiveError,
    Received, Said, SourceStatus, Verdict, WrongEntry,
};
use tidings_store::Store;
use tidings_telemetry::Registry;
use tidings_types::FeedName;

use crate::outgoing::{OutgoingError, roots};

pub use self::error::FeedsError;

/// Starts all feeds.
pub(super) fn start(
    config: &Config,
    store: &Store,
    publisher: Publisher,
    registry: &Registry,
) -> Result<Arc<Intake>, FeedsError> {
    let mut feeds = BTreeMap::new();
    for (name, feed) in &config.feeds {
        feeds.insert(name.clone(), feed_config(name, feed)?);
    }
    let door: Arc<dyn Door> = Arc::new(Publishing(publisher));
    let intake = Intake::start(feeds, store, &door, registry)?;
    #[cfg(feature = "sources")]
    let intake = messages::start(intake, config, &door, registry)?;
    Ok(Arc::new(intake))
}

fn feed_config(name: &FeedName, feed: &Feed) -> Result<FeedConfig, FeedsError> {
    let mapping = feed.read_mapping().map_err(|error| FeedsError::Mapping(name.clone(), error))?;
    let text = tidings_feed::Mapping::shipped(&feed.mapping).map(str::to_owned);
    let text = text.unwrap_or_else(|| read_file(feed.mapping.as_ref()).unwrap_or_default());
    // Only within one version of the compiler: with another hash a document is read once more, which does no harm.
    let mut hasher = DefaultHasher::new();
    (&text, feed.url.as_ref().map(|url| (url.origin.to_string(), &url.target))).hash(&mut hasher);
    Ok(FeedConfig {
        kind: kind(mapping.kind()),
        how: how(name, feed)?,
        parser: Parser::new(name.clone(), mapping),
        fingerprint: hasher.finish(),
        document_bytes_max: feed.document_bytes_max.0,
        known_count_max: feed.known_count_max,
    })
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Rss => "rss",
        Kind::Xml => "xml",
        Kind::Json => "json",
        Kind::Ndjson => "ndjson",
        Kind::Msgpack => "msgpack",
    }
}

fn how(name: &FeedName, feed: &Feed) -> Result<How, FeedsError> {
    let Some(url) = &feed.url else {
        let files = feed.folder().map(|(folder, affixes)| How::Files { folder, affixes, interval: feed.interval });
        return Ok(files.unwrap_or(How::Received));
    };
    let failed = |error| FeedsError::Certificates(name.clone(), error);
    let roots = roots(feed.ca_file.as_deref()).map_err(failed)?;
    let tls = roots.client_config().map_err(|error| failed(OutgoingError::Client(error.into())))?;
    let mut headers = HeaderMap::new();
    for header in &feed.headers {
        let value = HeaderValue::from_str(&header.value).expect("the check lets no other value pass");
        headers.append(header.name.clone(), value);
    }
    let fetch = Fetch {
        address: Address { origin: url.origin.clone(), target: url.target.clone() },
        headers,
        private_hosts: feed.allow_private.iter().map(|host| host.to_ascii_lowercase()).collect(),
        connect_timeout: feed.connect_timeout,
        answer_timeout: feed.answer_timeout,
        tls,
    };
    let pace = Pace { interval: feed.interval, backoff_max: feed.backoff_max };
    Ok(How::Polled { fetch: Box::new(fetch), pace, timeout: feed.timeout, skip_backlog: feed.skip_backlog })
}

struct Publishing(Publisher);

impl Door for Publishing {
    fn publish(&self, events: Vec<String>) -> DoorFuture<'_> {
        Box::pin(async move {
            let verdict = |published| match published {
                Ok(tidings_store::Appended { repeated: false, .. }) => Verdict::Accepted,
                Ok(_) => Verdict::Repeated,
                Err(Unpublished::Conflict) => Verdict::Conflict,
                Err(Unpublished::Invalid { field, detail }) => Verdict::Refused { field, detail },
            };
            Ok(self.0.publish(&events).await?.into_iter().map(verdict).collect())
        })
    }
}

/// Answers the API's questions.
pub(super) struct Feeds(pub(super) Arc<Intake>);

impl tidings_api::Feeds for Feeds {
    fn list(&self) -> Vec<FeedView> {
        self.0.statuses().into_iter().map(view).collect()
    }

    fn receive(
        &self,
        name: FeedName,
        headers: HeaderMap,
        body: FeedBody,
    ) -> FeedFuture<Result<FeedReport, FeedRefusal>> {
        let intake = self.0.clone();
        Box::pin(async move {
            let Received { report, error } = intake.receive(&name, Said::of(&headers), &mut Arriving(body)).await;
            let counts = counts(report.counts);
            match error {
                None => Ok(FeedReport {
                    entries: report.counts.entries(),
                    counts,
                    reasons: report.reasons.into_iter().map(|(reason, count)| FeedReason { reason, count }).collect(),
                    errors: report.wrong.into_iter().map(wrong).collect(),
                }),
                Some(ReceiveError::Malformed(detail)) => Err(FeedRefusal::Malformed { detail, counts }),
                Some(ReceiveError::TooLarge(limit)) => Err(FeedRefusal::TooLarge(limit)),
                Some(ReceiveError::Busy(detail)) => Err(FeedRefusal::Busy(detail)),
                Some(error @ (ReceiveError::Unknown(_) | ReceiveError::NotReceived(_))) => {
                    Err(FeedRefusal::Unknown(error.to_string()))
                }
            }
        })
    }

    fn poll(&self, name: FeedName) -> FeedFuture<Result<FeedView, FeedRefusal>> {
        let intake = self.0.clone();
        Box::pin(
            async move { intake.poll(&name).await.map(view).map_err(|error| FeedRefusal::Unknown(error.to_string())) },
        )
    }
}

struct Arriving(FeedBody);

impl Pieces for Arriving {
    fn next(&mut self) -> PieceFuture<'_> {
        Box::pin(self.0.next())
    }
}

fn counts(Counts { sent, repeated, skipped, wrong }: Counts) -> FeedCounts {
    FeedCounts { sent, repeated, skipped, wrong }
}

fn wrong(WrongEntry { at, reason }: WrongEntry) -> FeedError {
    FeedError { place: at, reason }
}

fn view(status: SourceStatus) -> FeedView {
    let state = match &status {
        SourceStatus { is_reading: true, .. } => FeedState::Reading,
        SourceStatus { failures: 1.., .. } => FeedState::Failing,
        SourceStatus { read_at: None, .. } => FeedState::New,
        _ => FeedState::Waiting,
    };
    FeedView {
        name: status.name,
        kind: status.kind,
        how: status.how,
        place: status.place,
        state,
        read_at: status.read_at.map(Rfc3339),
        worked_at: status.worked_at.map(Rfc3339),
        next_at: status.next_at.map(Rfc3339),
        etag: status.etag,
        known: status.known,
        failures: status.failures,
        error: status.error,
        last: counts(status.last),
        total: counts(status.total),
        errors: status.wrong.into_iter().map(wrong).collect(),
    }
}
