//! What is told of one device and one event: facts become a verdict, steps with their times, and reasons. No I/O.
//!
//! Three kinds of facts are kept apart. What the job's trail says is about that time, and certain. What rows say of the
//! device is about now; a sentence that rests on it says "now". What neither says is listed as unknown, never guessed.

use serde::Serialize;
use tidings_jobs::{DeviceOutcome, DeviceTrail, Note, TrailStep, Way, Whereabouts};
use tidings_store::AcceptedEvent;
use tidings_types::{
    AppId, Country, Device, DeviceId, EventId, JournalPosition, Locale, Mute, Provider, PushPolicy, Subject, Timestamp,
    TopicName, UserId, words,
};

use crate::rfc3339::Rfc3339;

words! {
    /// What became of one device and one event, besides the outcomes of devices.
    pub(crate) enum Standing {
        /// The event's turn, or the device's turn in it, has not come.
        Waiting = "waiting",
        /// The push is held back, because the app may still prove that it has the event.
        Held = "held",
        /// A brake holds the push back.
        Paused = "paused",
        /// The push waits until the connections of its pool have room.
        Pending = "pending",
        /// The push is on its way, and the provider has not answered.
        InFlight = "in_flight",
        /// The device was not in the audience.
        NotSelected = "not_selected",
        /// It is not known any more.
        NotKnown = "not_known",
    }
}

/// All that is known.
pub(crate) struct Facts<'a> {
    pub(crate) position: JournalPosition,
    pub(crate) accepted: &'a AcceptedEvent,
    pub(crate) device: &'a Device,
    /// Subjects of the event on which the device is subscribed to its topic now.
    pub(crate) subscribed: Vec<Subject>,
    /// Mutes of the device now that cover the event.
    pub(crate) mutes: Vec<Mute>,
    pub(crate) trail: Option<DeviceTrail>,
    /// The event has no job yet.
    pub(crate) is_unread: bool,
    /// Whether the event would select the device now; known only if it is of use.
    pub(crate) is_selected_now: Option<bool>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Why {
    event: EventId,
    topic: TopicName,
    device: DeviceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<UserId>,
    app: AppId,
    /// An outcome of devices, or a [`Standing`].
    verdict: &'static str,
    /// Of an outcome that has several.
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    summary: String,
    /// Whether the device was in the audience; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    selected: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<Provider>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// The language of the text; `source` for that of the source texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    locale: Option<String>,
    steps: Vec<Step>,
    because: Vec<String>,
    unknown: Vec<String>,
}

/// Something that happened.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Step {
    step: &'static str,
    at: Rfc3339,
    /// Present if it happened at some moment between `at` and this.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Rfc3339>,
    text: String,
}

/// The answer in one line of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Brief {
    event: EventId,
    topic: TopicName,
    position: JournalPosition,
    accepted_at: Rfc3339,
    verdict: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    summary: String,
}

impl Facts<'_> {
    /// Whether it must be known if the event would select the device now.
    pub(crate) fn asks_for_selection(&self) -> bool {
        let verdict = self.verdict();
        !self.is_later()
            && self.accepted.event.push != PushPolicy::Never
            && matches!(verdict, Verdict::NotSelected | Verdict::NotKnown)
    }

    pub(crate) fn brief(&self) -> Brief {
        let (verdict, event) = (self.verdict(), &self.accepted.event);
        Brief {
            event: event.id.clone(),
            topic: event.topic.clone(),
            position: self.position,
            accepted_at: Rfc3339(self.accepted.accepted_at),
            verdict: verdict.as_str(),
            reason: verdict.reason(),
            summary: self.summary(&verdict),
        }
    }

    pub(crate) fn why(&self) -> Why {
        let (event, device, verdict) = (&self.accepted.event, self.device, self.verdict());
        let way = self.way();
        let locale = self.trail.as_ref().and_then(|trail| trail.locale.clone());
        Why {
            event: event.id.clone(),
            topic: event.topic.clone(),
            device: device.id.clone(),
            user: device.user.clone(),
            app: device.app.clone(),
            verdict: verdict.as_str(),
            reason: verdict.reason(),
            summary: self.summary(&verdict),
            selected: self.selected(&verdict),
            provider: way.map(|way| way.provider),
            pool: way.map(|way| way.pool.clone()),
            locale: locale.map(|locale| locale.map_or_else(|| "source".to_owned(), |locale| locale.to_string())),
            steps: self.steps(),
            because: self.because(&verdict),
            unknown: self.unknown(&verdict),
        }
    }

    /// The device, or its present user, came after the event. Its number may have been another device's then.
    fn is_later(&self) -> bool {
        self.device.since > self.position
    }

    fn verdict(&self) -> Verdict {
        if self.is_later() {
            return Verdict::NotSelected;
        }
        let Some(trail) = &self.trail else {
            let is_unpushed = self.accepted.event.push == PushPolicy::Never;
            return if self.is_unread {
                Verdict::Waiting
            } else if is_unpushed {
                Verdict::NotSelected
            } else {
                Verdict::NotKnown
            };
        };
        if let Some(outcome) = outcome(trail) {
            return Verdict::Ended(outcome);
        }
        match trail.whereabouts {
            Some((Whereabouts::Unwalked | Whereabouts::Blocked, _)) => Verdict::Waiting,
            Some((Whereabouts::Held, _)) => Verdict::Held,
            Some((Whereabouts::Pending(_), _)) if trail.paused_by.is_some() => Verdict::Paused,
            Some((Whereabouts::Pending(_), _)) => Verdict::Pending,
            Some((Whereabouts::InFlight(_), _)) => Verdict::InFlight,
            Some((Whereabouts::Nowhere, _)) | None if trail.known_since.is_some() => Verdict::NotKnown,
            Some((Whereabouts::Nowhere, _)) => Verdict::NotSelected,
            None if trail.is_done => Verdict::NotSelected,
            None => Verdict::Waiting,
        }
    }

    fn selected(&self, verdict: &Verdict) -> Option<bool> {
        match verdict {
            Verdict::NotSelected => Some(false),
            Verdict::NotKnown => None,
            // Before the event's turn, nobody is selected.
            Verdict::Waiting if self.trail.as_ref().is_none_or(|trail| trail.whereabouts.is_none()) => None,
            _ => Some(true),
        }
    }

    fn way(&self) -> Option<&Way> {
        let trail = self.trail.as_ref().filter(|_| !self.is_later())?;
        let last = trail.steps.iter().rev().find_map(|step| step.way.as_ref());
        last.or(trail.whereabouts.as_ref().and_then(|(_, way)| way.as_ref()))
    }

    fn summary(&self, verdict: &Verdict) -> String {
        let event = &self.accepted.event;
        match verdict {
            Verdict::Ended(outcome) => {
                let about = match outcome {
                    DeviceOutcome::Rejected(reason) => reason.about(),
                    DeviceOutcome::Suppressed(why) => why.about(),
                    other => other.about(),
                };
                match outcome {
                    DeviceOutcome::Rejected(_) => format!("The provider refused the notification for good. {about}"),
                    DeviceOutcome::Suppressed(_) => format!("The device was selected, but not pushed. {about}"),
                    _ => about.to_owned(),
                }
            }
            Verdict::Waiting
                if self
                    .trail
                    .as_ref()
                    .is_some_and(|trail| matches!(trail.whereabouts, Some((Whereabouts::Blocked, _)))) =>
            {
                "The push waits until an older notification with the same collapse key is no longer on its way."
                    .to_owned()
            }
            Verdict::Waiting => {
                "The event is accepted, and its turn or the turn of the device has not come yet.".to_owned()
            }
            Verdict::Held => {
                let until = self.trail.as_ref().map_or(Timestamp(0), |trail| trail.held_until);
                format!(
                    "The push is held back until {}, because the app may still prove that it has the event.",
                    Rfc3339(until)
                )
            }
            Verdict::Paused => match self.trail.as_ref().and_then(|trail| trail.paused_by.as_ref()) {
                Some(scope) => format!("The brake on {scope} holds the push back."),
                None => "A brake holds the push back.".to_owned(),
            },
            Verdict::Pending => "The push waits until the connections to the provider have room.".to_owned(),
            Verdict::InFlight => "The push was handed out, and the provider has not answered yet.".to_owned(),
            Verdict::NotSelected if self.is_later() => {
                "The device, or its present user, was registered after the event was accepted.".to_owned()
            }
            Verdict::NotSelected if event.push == PushPolicy::Never => {
                "The event asks for no pushes (\"push\": \"never\").".to_owned()
            }
            Verdict::NotSelected if self.was_muted() => {
                "The device was not in the audience, because it had muted the event.".to_owned()
            }
            Verdict::NotSelected => "The device was not in the audience.".to_owned(),
            Verdict::NotKnown => "What became of the device is not known any more.".to_owned(),
        }
    }

    fn was_muted(&self) -> bool {
        self.trail.as_ref().is_some_and(|trail| trail.steps.iter().any(|step| step.note == Note::Muted))
    }

    fn steps(&self) -> Vec<Step> {
        let AcceptedEvent { accepted_at, published, .. } = self.accepted;
        let exact = |step, at, text| Step { step, at: Rfc3339(at), until: None, text };
        let mut steps = vec![exact("event_accepted", *accepted_at, "The event was accepted.".to_owned())];
        if !published.is_empty() {
            let names: Vec<&str> = published.iter().map(|(channel, _)| channel.as_str()).collect();
            steps.push(exact("published", *accepted_at, format!("It was published in {}.", names.join(", "))));
        }
        let Some(trail) = self.trail.as_ref().filter(|_| !self.is_later()) else { return steps };
        if let Some((client, at)) = &trail.received {
            let text = format!("The app answered over the connection {client}: it has the event.");
            steps.push(exact("received_live", *at, text));
        }
        steps.extend(trail.steps.iter().map(|step| shown(step, trail)));
        steps.sort_by_key(|step| step.at.0); // Stable: what happened at the same moment stays in order.
        steps
    }

    /// Why it was in the audience or not, and what rows say of the device now.
    fn because(&self, verdict: &Verdict) -> Vec<String> {
        let event = &self.accepted.event;
        let mut because = Vec::new();
        if self.is_later() {
            because.push("A device gets no event that was accepted before it, or its user, came.".to_owned());
            return because;
        }
        if event.push == PushPolicy::Never {
            return because;
        }
        match &event.to {
            None => self.because_of_subscriptions(&mut because),
            Some(to) => {
                if to.devices.contains(&self.device.id) {
                    because.push("The event names the device.".to_owned());
                }
                if let Some(user) = self.device.user.as_ref().filter(|user| to.users.contains(user)) {
                    because.push(format!("The event names the user {user}, whose device this is now."));
                }
                if to.selector.is_some() {
                    because.push("The event has a selector. POST /v1/audience/explain counts its parts.".to_owned());
                }
            }
        }
        self.because_of_filter(&mut because);
        because.extend(self.mutes.iter().map(|mute| {
            let end = mute
                .until
                .map_or_else(|| "until it is taken back".to_owned(), |until| format!("until {}", Rfc3339(until)));
            format!("The device mutes {} now, {end}.", mute.scope)
        }));
        if self.was_muted() && self.mutes.is_empty() {
            because.push("The mute that left it out is over or was taken back.".to_owned());
        }
        match (verdict, self.is_selected_now) {
            (Verdict::NotSelected, Some(true)) => because.push(
                "The same event would select the device now: something has changed since, for example a subscription."
                    .to_owned(),
            ),
            (Verdict::NotSelected, Some(false)) => {
                because.push("The same event would not select the device now either.".to_owned())
            }
            (Verdict::NotKnown, Some(now)) => {
                because.push(format!("The same event would {}select the device now.", if now { "" } else { "not " }));
            }
            _ => {}
        }
        because
    }

    fn because_of_subscriptions(&self, because: &mut Vec<String>) {
        let (event, device) = (&self.accepted.event, self.device);
        let of_user = |subject: &&Subject| {
            device.user.as_ref().is_some_and(|user| subject.as_str().strip_prefix("user:") == Some(user.as_str()))
        };
        if let Some(subject) = event.subjects.iter().find(of_user) {
            because.push(format!("The event is about {subject}, whose device this is now."));
        }
        let names: Vec<&str> = self.subscribed.iter().map(Subject::as_str).collect();
        if !names.is_empty() {
            because.push(format!("The device is subscribed to {} on {} now.", event.topic, names.join(", ")));
        } else if because.is_empty() {
            let names: Vec<&str> = event.subjects.iter().map(Subject::as_str).collect();
            because.push(format!("The device is not subscribed to {} on {} now.", event.topic, names.join(", ")));
        }
    }

    fn because_of_filter(&self, because: &mut Vec<String>) {
        let Device { platform, app, locale, country, .. } = self.device;
        let Some(filter) = &self.accepted.event.filter else { return };
        if filter.admits(*platform, app, locale, country.as_ref()) {
            return;
        }
        let country = country.as_ref().map_or("none", Country::as_str);
        because.push(format!(
            "The event's filter does not admit the device as it is now: platform {}, app {app}, language {}, country {country}.",
            platform.as_str(),
            Locale::as_str(locale),
        ));
    }

    fn unknown(&self, verdict: &Verdict) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.is_later() || self.is_unread {
            return unknown;
        }
        let event = &self.accepted.event;
        match &self.trail {
            None if event.push != PushPolicy::Never => unknown.push(
                "The steps of this event's job. They are kept in memory for sender.why_ttl after the job, up to \
                 sender.why_bytes_max, and not over a restart."
                    .to_owned(),
            ),
            Some(DeviceTrail { known_since: Some(since), .. }) => {
                unknown.push(format!(
                    "What happened before {}: the server was restarted, or there was too much to keep.",
                    Rfc3339(*since)
                ));
            }
            _ => {}
        }
        let is_over = matches!(verdict, Verdict::Ended(_) | Verdict::NotSelected);
        let is_received = matches!(verdict, Verdict::Ended(DeviceOutcome::Received));
        let has_receipts = self.trail.as_ref().is_some_and(|trail| trail.was_connected.is_some());
        if is_over && !is_received && !has_receipts && !self.accepted.published.is_empty() {
            let asks = event.receipt_terms(self.accepted.accepted_at).is_some();
            unknown.push(if asks {
                "Whether the app got the event over a live connection: those receipts are forgotten.".to_owned()
            } else {
                "Whether the app got the event over a live connection: the event asks for no receipts.".to_owned()
            });
        }
        unknown
    }
}

/// The verdict.
enum Verdict {
    Ended(DeviceOutcome),
    Waiting,
    Held,
    Paused,
    Pending,
    InFlight,
    NotSelected,
    NotKnown,
}

impl Verdict {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Ended(outcome) => outcome.as_str(),
            Self::Waiting => Standing::Waiting.as_str(),
            Self::Held => Standing::Held.as_str(),
            Self::Paused => Standing::Paused.as_str(),
            Self::Pending => Standing::Pending.as_str(),
            Self::InFlight => Standing::InFlight.as_str(),
            Self::NotSelected => Standing::NotSelected.as_str(),
            Self::NotKnown => Standing::NotKnown.as_str(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Ended(outcome) => outcome.reason(),
            _ => "",
        }
    }
}

fn outcome(trail: &DeviceTrail) -> Option<DeviceOutcome> {
    trail.steps.iter().rev().find_map(|step| match step.note {
        Note::Ended(outcome) => Some(outcome),
        _ => None,
    })
}

fn shown(TrailStep { note, way, from, to }: &TrailStep, trail: &DeviceTrail) -> Step {
    let (step, text) = match note {
        Note::Muted => {
            ("muted", "It would have been selected, but had muted everything or a subject of the event.".to_owned())
        }
        Note::Held => {
            let until = Rfc3339(trail.held_until);
            let text = "Its app was connected and could prove that it has the event, so the push was held back";
            (
                "held",
                if trail.held_until > Timestamp(0) {
                    format!("{text} until {until} at most.")
                } else {
                    format!("{text}.")
                },
            )
        }
        Note::HandedOut(_) => (
            "handed_out",
            match way {
                Some(Way { provider, pool, is_quarantine: false }) => {
                    format!("It was handed to the connections of the pool {pool} ({provider}).")
                }
                Some(Way { provider, pool, is_quarantine: true }) => {
                    format!("It was handed to those connections of the pool {pool} ({provider}) that try new tokens.")
                }
                None => "It was handed to the connections of a provider.".to_owned(),
            },
        ),
        Note::Repeated => ("repeated", "It took more than one attempt.".to_owned()),
        Note::Ended(outcome) => (outcome.as_str(), outcome_text(*outcome)),
    };
    Step { step, at: Rfc3339(*from), until: (from != to).then_some(Rfc3339(*to)), text }
}

fn outcome_text(outcome: DeviceOutcome) -> String {
    match outcome {
        DeviceOutcome::Rejected(reason) => format!("The provider refused it for good: {}.", reason.as_str()),
        DeviceOutcome::Suppressed(why) => format!("It was not handed out: {}.", why.as_str()),
        other => other.about().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_explains_each_standing() {
        let page = include_str!("../../../../docs/why.md");
        for standing in Standing::ALL {
            let row = format!("| `{}` | {} |", standing.as_str(), standing.about());
            assert!(page.contains(&row), "docs/why.md lacks: {row}");
        }
    }
}
