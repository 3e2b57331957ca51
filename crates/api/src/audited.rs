//! The audit of requests: which action a route is, and one entry for each request that tries it.
//!
//! `routes` declares the action of each route that changes something. `guard` begins an [`Attempt`] when it knows who calls,
//! and ends it with the status of the answer. So refused attempts are recorded too. The handler adds what it knows, through
//! the request's [`Note`]. Ids in the path are added by the guard.
//!
//! Not recorded: requests of apps for their own device, which are only counted, like all requests, in the metrics; and
//! requests without a valid key, because anybody could fill the log with them.
//!
//! An attempt whose caller leaves before the answer ends with 499. It may have been carried out.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::RequestExt as _;
use axum::extract::{ConnectInfo, FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use tidings_audit::{Audit, By, Entry};
use tidings_telemetry::panics;
use tidings_types::{Event, TraceId};

use crate::auth::Caller;

/// The result of an attempt whose caller has left.
const CALLER_LEFT: u16 = 499;

/// How the requests of a route are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audited {
    /// As this action.
    As(&'static str),
    /// Each command in it, as the action of the command.
    Commands,
    /// Not at all, for this reason.
    Not(&'static str),
}

/// The person for whom a part of this server calls the router: an extension of the request. Nobody can send it over the
/// network. It gives no rights: the request needs a key like any other.
#[derive(Debug, Clone)]
pub struct OnBehalf {
    /// Who it is, for the audit log.
    pub user: String,
    /// From where the person called.
    pub address: Option<IpAddr>,
}

/// One attempt. It is recorded when this is dropped.
#[derive(Debug)]
pub(crate) struct Attempt {
    audit: Audit,
    note: Note,
}

impl Attempt {
    /// Adds a note to the request, and begins the attempt if the request is one.
    pub(crate) async fn begin(audit: &Audit, audited: Audited, caller: &Caller, request: &mut Request) -> Option<Self> {
        let action = match audited {
            Audited::As(action) => action,
            Audited::Commands => "", // The note says for the commands who calls.
            Audited::Not(_) => return None,
        };
        let on_behalf = request.extensions().get::<OnBehalf>();
        let (by, who) = on_behalf.map_or((By::Key, caller.name()), |person| (By::Console, &person.user));
        let peer = || request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
        let address = on_behalf.map_or_else(peer, |person| person.address);
        let mut entry = Entry { address, ..Entry::new(by, who, action) };
        if let Ok(params) = request.extract_parts::<RawPathParams>().await {
            params.iter().for_each(|(_, id)| entry.touch(id));
        }
        let note = Note(Some(Arc::new(Mutex::new(entry))));
        request.extensions_mut().insert(note.clone());
        (audited != Audited::Commands).then(|| Self { audit: audit.clone(), note })
    }

    /// The attempt of one command in a request with many.
    pub(crate) fn of_command(audit: &Audit, action: &'static str, request: &Note) -> Self {
        let entry = request.0.as_ref().map(|entry| {
            let Entry { by, address, ref who, .. } = *panics::lock(entry);
            Arc::new(Mutex::new(Entry { address, ..Entry::new(by, who, action) }))
        });
        Self { audit: audit.clone(), note: Note(entry) }
    }

    pub(crate) fn note(&self) -> &Note {
        &self.note
    }

    pub(crate) fn end(self, status: StatusCode) {
        self.note.result(status);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(entry) = &self.note.0 else { return };
        let mut entry = panics::lock(entry).clone();
        if entry.result == 0 {
            entry.result = CALLER_LEFT;
        }
        self.audit.record(entry);
    }
}

/// What a handler tells about its attempt. Without an audit log it is told to nobody.
#[derive(Debug, Clone, Default)]
pub(crate) struct Note(Option<Arc<Mutex<Entry>>>);

impl Note {
    fn tell(&self, tell: impl FnOnce(&mut Entry)) {
        if let Some(entry) = &self.0 {
            tell(&mut panics::lock(entry));
        }
    }

    /// Names something that the attempt is about.
    pub(crate) fn touch(&self, id: &str) {
        self.tell(|entry| entry.touch(id));
    }

    /// Adds devices to the number of those that the attempt is for.
    pub(crate) fn devices(&self, count: u64) {
        self.tell(|entry| entry.devices = Some(entry.devices.unwrap_or_default() + count));
    }

    /// Says in which trace it is; the first one counts.
    pub(crate) fn trace(&self, trace: TraceId) {
        self.tell(|entry| _ = entry.trace.get_or_insert_with(|| trace.to_string()));
    }

    /// Names an event, and whom it is for.
    pub(crate) fn event(&self, event: &Event) {
        self.tell(|entry| {
            entry.touch(event.id.as_str());
            entry.address_to(&recipients(event));
        });
    }

    /// The result, if it is not the status of the answer. The first result counts.
    pub(crate) fn result(&self, status: StatusCode) {
        self.tell(|entry| {
            if entry.result == 0 {
                entry.result = status.as_u16();
            }
        });
    }
}

impl<S: Sync> FromRequestParts<S> for Note {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// Whom an event is for, in words. A selector is the last, because the words may be cut.
fn recipients(event: &Event) -> String {
    let counted =
        |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}{}", if count == 1 { "" } else { "s" }));
    let to = event.to.as_ref();
    let parts = [
        Some(format!("topic {}", event.topic.as_str())),
        counted(event.subjects.len(), "subject"),
        counted(to.map_or(0, |to| to.users.len()), "user"),
        counted(to.map_or(0, |to| to.devices.len()), "device"),
        to.and_then(|to| to.selector.as_ref()).map(|selector| format!("selector {selector}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::openapi::tests::known;

    /// Actions of the server itself, and the line about lost lines.
    const OTHERS: [&str; 6] =
        ["audit.lost", "config.reload", "jobs.restore", "server.start", "server.stop", "texts.reload"];

    #[test]
    fn every_route_that_is_no_get_is_recorded_or_says_why_not() {
        for route in known() {
            match route.audited {
                Audited::As(action) => assert!(action.contains('.'), "{}", route.name),
                Audited::Commands => assert!(["POST /api", "POST /api/batch"].contains(&route.name), "{}", route.name),
                Audited::Not(why) => {
                    assert!(!why.is_empty() && !route.is_for_apps || route.name.starts_with("GET "), "{}", route.name)
                }
            }
        }
    }

    /// The first cell of each row of the page's tables of actions.
    #[test]
    fn the_documented_actions_are_those_there_are() {
        let page = include_str!("../../../docs/audit.md");
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let documented: BTreeSet<&str> = cells.map(|(name, _)| name).filter(|name| name.contains('.')).collect();
        let actions = known().into_iter().filter_map(|route| match route.audited {
            Audited::As(action) => Some(action),
            _ => None,
        });
        assert_eq!(documented, actions.chain(OTHERS).collect());
    }
}
