//! Takes events that do not come as requests, such as entries of feeds, with the checks of `POST /v1/events`.
//!
//! Two checks are made later than for a request: how many devices an event with `expect_audience` has is counted only
//! when its job begins, and a time that is too far back is not refused if the event is known.

use std::fmt;
use std::sync::Arc;

use tidings_hub::Hub;
use tidings_store::{AppendError, Appended, NewEvent, Store, WriteError};
use tidings_telemetry::unix_now;
use tidings_types::{Event, EventChannels};

use crate::event_input::Batch;
use crate::events::{CHECK_TURN_COUNT, check_time, durable_channels};
use crate::ports::EventCheck;
use crate::problem::{Invalid, Problem};
use crate::warnings::Warnings;

/// Checks events and makes them durable. A clone is the same publisher.
#[derive(Clone)]
pub struct Publisher {
    hub: Arc<Hub>,
    store: Store,
    check: Arc<dyn EventCheck>,
    channels: EventChannels,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("channels", &self.channels).finish_non_exhaustive()
    }
}

/// Why an event was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unpublished {
    /// An event with its id and other content was accepted before.
    #[error("the id belongs to an earlier event with other content")]
    Conflict,
    /// It breaks a rule.
    #[error("{detail}")]
    Invalid {
        /// The field that breaks the rule; may be empty.
        field: String,
        /// The field, the rule with its limit, and the value.
        detail: String,
    },
}

impl From<Problem> for Unpublished {
    fn from(problem: Problem) -> Self {
        let (field, detail) = problem.into_field_and_detail();
        Self::Invalid { field: field.unwrap_or_default(), detail }
    }
}

impl Publisher {
    /// A publisher. `channels` are those of an event that names none.
    pub fn new(hub: Arc<Hub>, store: Store, check: Arc<dyn EventCheck>, channels: EventChannels) -> Self {
        Self { hub, store, check, channels }
    }

    /// Publishes events, each an object in JSON as `POST /v1/events` takes it, and says what became of each, in their
    /// order. Those that can be published are published, whatever the others are.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write. Some events may be published; publish all of them again.
    ///
    /// # Cancel safety
    /// Dropped: the events are published or not.
    pub async fn publish(&self, events: &[String]) -> Result<Vec<Result<Appended, Unpublished>>, WriteError> {
        let mut verdicts: Vec<Option<Result<Appended, Unpublished>>> = Vec::with_capacity(events.len());
        let (mut new, mut places) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
        for (index, json) in events.iter().enumerate() {
            match self.checked(json) {
                Ok(event) => {
                    places.push(index);
                    new.push(event);
                    verdicts.push(None);
                }
                Err(unpublished) => verdicts.push(Some(Err(unpublished))),
            }
            if (index + 1) % CHECK_TURN_COUNT == 0 {
                tokio::task::yield_now().await;
            }
        }
        while !new.is_empty() {
            match self.store.append_events(new.clone(), unix_now()).await {
                Ok(appended) => {
                    for (index, appended) in places.iter().zip(appended) {
                        verdicts[*index] = Some(Ok(appended));
                    }
                    break;
                }
                // Nothing was done: the others are tried without it.
                Err(AppendError::Conflict { index, .. }) => {
                    new.remove(index);
                    verdicts[places.remove(index)] = Some(Err(Unpublished::Conflict));
                }
                Err(AppendError::Write(error)) => return Err(error),
            }
        }
        Ok(verdicts.into_iter().map(|verdict| verdict.expect("each has got one")).collect())
    }

    fn checked(&self, json: &str) -> Result<NewEvent, Unpublished> {
        let Batch { mut events, is_list } = Batch::read(json.as_bytes()).map_err(Unpublished::from)?;
        let event = events.pop().filter(|_| !is_list).ok_or_else(|| Unpublished::Invalid {
            field: String::new(),
            detail: "must be one event, an object".to_owned(),
        })?;
        let channels = self.admitted(&event).map_err(|invalid| Unpublished::from(Problem::from(invalid)))?;
        Ok(NewEvent { event, channels, audience_max: None })
    }

    fn admitted(&self, event: &Event) -> Result<Vec<tidings_store::DurableChannel>, Invalid> {
        let channels = durable_channels(&self.hub, self.channels, event, "", &mut Warnings::default())?;
        self.check.check(event).map_err(|error| error.at(""))?;
        let is_known = event.at.is_some() && self.store.is_known(&event.id).unwrap_or_default();
        if !is_known {
            check_time(event, unix_now(), "")?;
        }
        Ok(channels)
    }
}
