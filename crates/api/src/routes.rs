//! All routes, with the checks before them.
//!
//! Every route is registered here once, with its method, path and scope. The router is made from these entries, and so
//! is the list that `/openapi.json` describes. A route that changes something says as which action it is recorded, and any
//! other route that is no GET says why it is not.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::{Method as HttpMethod, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use tidings_audit::Audit;
use tidings_telemetry::{Registry, metrics};

use crate::apps::Gate;
use crate::audited::Audited;
use crate::auth::{ApiKeys, Scope};
use crate::centrifugo::Method;
use crate::format::negotiate;
use crate::guard::{Dialect, Guard, KeyRate, guard};
use crate::metrics::RouteMetrics;
use crate::places::Places;
use crate::problem::{Kind, Problem};
use crate::{
    Shared, audience, audit, backup, brakes, centrifugo, cors, devices, event_report, events, exports, feeds, imports,
    input, jobs, mutes, selectors, system, texts, users, why,
};

/// A registered route, as it is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    /// `METHOD /path`.
    pub(crate) name: &'static str,
    /// `None`: the scope depends on the body.
    pub(crate) scope: Option<Scope>,
    pub(crate) dialect: Dialect,
    /// Apps may call it too, for their own device.
    pub(crate) is_for_apps: bool,
    pub(crate) audited: Audited,
}

/// The routes that need a key or an app's proof, and [`Shared`].
pub(crate) struct Routes {
    pub(crate) router: Router<Arc<Shared>>,
    pub(crate) known: Vec<Route>,
}

impl Routes {
    pub(crate) fn new(guards: &Guards) -> Self {
        let own = own_routes(Entries::new(guards, Dialect::Tidings));
        let apps = app_routes(Entries::new(guards, Dialect::Tidings));
        let own_router = with_fallbacks(own.router.merge(for_pages(apps.router, guards)), &guards.registry);
        let centrifugo = centrifugo_routes(Entries::new(guards, Dialect::Centrifugo));
        let centrifugo_router =
            centrifugo.router.method_not_allowed_fallback(method_not_allowed).route("/api/{*rest}", any(not_found));
        Self {
            router: own_router.merge(centrifugo_router),
            known: own.known.into_iter().chain(apps.known).chain(centrifugo.known).collect(),
        }
    }
}

/// Only the routes that apps may call.
pub(crate) fn of_apps(guards: &Guards) -> Router<Arc<Shared>> {
    let apps = app_routes(Entries::new(guards, Dialect::Tidings));
    with_fallbacks(for_pages(apps.router, guards), &guards.registry)
}

/// The routes of apps. If pages of other web sites may call, these routes also answer them (CORS).
fn for_pages(router: Router<Arc<Shared>>, guards: &Guards) -> Router<Arc<Shared>> {
    let origins = guards.gate.as_ref().map_or(&[][..], |gate| gate.allowed_origins());
    if origins.is_empty() {
        return router;
    }
    // The fallback first: the layer answers a preflight, which has a method without a route.
    router.method_not_allowed_fallback(method_not_allowed).layer(cors::layer(origins.to_vec()))
}

fn with_fallbacks(router: Router<Arc<Shared>>, registry: &Registry) -> Router<Arc<Shared>> {
    let unpackable = registry.counter(&metrics::api::UNPACKABLE_TOTAL, &[]);
    router
        .method_not_allowed_fallback(method_not_allowed)
        .route("/v1", any(not_found))
        .route("/v1/", any(not_found))
        .route("/v1/{*rest}", any(not_found))
        .layer(from_fn_with_state(unpackable, negotiate))
}

async fn method_not_allowed() -> Problem {
    Problem::new(Kind::MethodNotAllowed, "the header Allow of this answer lists the methods of this path")
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(Kind::NotFound, format!("there is no route {}", input::shown(uri.path())))
}

fn own_routes(entries: Entries<'_>) -> Entries<'_> {
    use Audited::{As, Not};
    use Scope::{Audit, Backup, Devices, Operate, Publish, Read};
    entries
        .change("POST /v1/events", Publish, As("event.publish"), events::post_events)
        .add("GET /v1/events", Publish, events::scheduled_events)
        .add("GET /v1/events/{id}", Publish, event_report::event)
        .change("DELETE /v1/events/{id}", Publish, As("event.cancel"), events::cancel_event)
        .add("GET /v1/events/{id}/receipts", Publish, event_report::event_receipts)
        .add("GET /v1/events/{id}/devices/{device}", Devices, why::of_device)
        .add("GET /v1/events/{id}/users/{user}", Devices, why::of_user)
        .add("GET /v1/devices/{id}/events", Devices, why::events_of_device)
        .add("GET /v1/jobs", Publish, jobs::jobs)
        .add("GET /v1/jobs/{position}", Publish, jobs::job)
        .change("POST /v1/audience/preview", Publish, Not("counts only"), audience::preview)
        .change("POST /v1/audience/explain", Publish, Not("counts only"), selectors::explain)
        .add("GET /v1/feeds", Read, feeds::list)
        .change("POST /v1/feeds/{name}", Publish, As("feed.receive"), feeds::receive)
        .change("POST /v1/feeds/{name}/poll", Operate, As("feed.poll"), feeds::poll)
        .add("GET /v1/texts", Read, texts::view)
        .change("POST /v1/texts/reload", Operate, As("texts.reload"), texts::reload)
        .change("POST /v1/texts/rollback", Operate, As("texts.rollback"), texts::roll_back)
        .add("GET /v1/system", Read, system::system)
        .add("GET /v1/providers", Read, system::providers)
        .add("GET /v1/brakes", Read, brakes::brakes)
        .change("PUT /v1/brakes/{scope}", Operate, As("brake.set"), brakes::pause)
        .change("DELETE /v1/brakes/{scope}", Operate, As("brake.release"), brakes::resume)
        .change("GET /v1/store/backup", Backup, As("store.backup"), backup::backup)
        .add("GET /v1/audit", Audit, audit::audit)
        .add("GET /v1/devices", Devices, devices::devices)
        .change("GET /v1/export", Backup, As("devices.export"), exports::export)
        .change("POST /v1/imports", Devices, As("devices.import"), imports::import)
        .add("GET /v1/imports/{name}", Devices, imports::progress)
        .change("POST /v1/tokens/lookup", Devices, Not("looks up only"), devices::look_up)
        .add("GET /v1/users/{user}/devices", Devices, users::devices)
        .change("GET /v1/users/{user}/export", Devices, As("user.export"), users::export)
        .change("DELETE /v1/users/{user}", Devices, As("user.erase"), users::erase)
}

/// The routes that apps may call too, each for its own device.
fn app_routes(mut entries: Entries<'_>) -> Entries<'_> {
    use Audited::As;
    use Scope::Devices;
    entries.are_for_apps = true;
    entries
        .add("GET /v1/devices/{id}", Devices, devices::device)
        .change("PUT /v1/devices/{id}", Devices, As("device.put"), devices::put_device)
        .change("DELETE /v1/devices/{id}", Devices, As("device.delete"), devices::delete_device)
        .change("POST /v1/devices/{id}/credential", Devices, As("device.credential"), devices::post_credential)
        .change("POST /v1/devices/{id}/logout", Devices, As("device.logout"), devices::post_logout)
        .add("GET /v1/devices/{id}/subscriptions", Devices, devices::subscriptions)
        .change(
            "PUT /v1/devices/{id}/subscriptions",
            Devices,
            As("device.subscriptions.replace"),
            devices::put_subscriptions,
        )
        .change(
            "POST /v1/devices/{id}/subscriptions",
            Devices,
            As("device.subscriptions.add"),
            devices::post_subscriptions,
        )
        .change(
            "DELETE /v1/devices/{id}/subscriptions",
            Devices,
            As("device.subscriptions.remove"),
            devices::delete_subscriptions,
        )
        .add("GET /v1/devices/{id}/mutes", Devices, mutes::mutes)
        .change("PUT /v1/devices/{id}/mutes/{scope}", Devices, As("device.mute"), mutes::mute)
        .change("DELETE /v1/devices/{id}/mutes/{scope}", Devices, As("device.unmute"), mutes::unmute)
}

fn centrifugo_routes(entries: Entries<'_>) -> Entries<'_> {
    let entries = entries.change("POST /api", None, Audited::Commands, centrifugo::legacy).also_at(
        "/api/",
        "POST /api",
        centrifugo::legacy,
    );
    Method::ALL.into_iter().fold(entries, |entries, method| {
        let call = async move |shared, caller, note, headers, body| {
            centrifugo::call(method, shared, caller, note, headers, body).await
        };
        entries.change(method.route(), method.scope(), method.audited(), call)
    })
}

/// Routes of one dialect, while they are registered.
struct Entries<'g> {
    guards: &'g Guards,
    dialect: Dialect,
    /// Whether the next routes are for apps too.
    are_for_apps: bool,
    router: Router<Arc<Shared>>,
    known: Vec<Route>,
}

impl<'g> Entries<'g> {
    fn new(guards: &'g Guards, dialect: Dialect) -> Self {
        Self { guards, dialect, are_for_apps: false, router: Router::new(), known: Vec::new() }
    }

    /// A route that only reads.
    fn add<T: 'static>(
        self,
        name: &'static str,
        scope: impl Into<Option<Scope>>,
        handler: impl Handler<T, Arc<Shared>>,
    ) -> Self {
        assert!(name.starts_with("GET "), "{name} may change something");
        self.change(name, scope, Audited::Not("reads only"), handler)
    }

    /// A route that may change something.
    fn change<T: 'static>(
        mut self,
        name: &'static str,
        scope: impl Into<Option<Scope>>,
        audited: Audited,
        handler: impl Handler<T, Arc<Shared>>,
    ) -> Self {
        let is_for_apps = self.are_for_apps && self.guards.gate.is_some();
        let route = Route { name, scope: scope.into(), dialect: self.dialect, is_for_apps, audited };
        let (method, path) = parts(name);
        self.router = self.router.route(path, self.guards.before(route, on(method, handler)));
        self.known.push(route);
        self
    }

    /// The route `name` under a second path; it is described and counted under its first path.
    fn also_at<T: 'static>(mut self, path: &str, name: &str, handler: impl Handler<T, Arc<Shared>>) -> Self {
        let route = *self.known.iter().find(|route| route.name == name).expect("it was added before");
        self.router = self.router.route(path, self.guards.before(route, on(parts(name).0, handler)));
        self
    }
}

fn parts(name: &str) -> (MethodFilter, &str) {
    let (method, path) = name.split_once(' ').expect("METHOD /path");
    let method = HttpMethod::from_bytes(method.as_bytes()).ok();
    (method.and_then(|method| method.try_into().ok()).expect("a method that is routed"), path)
}

/// Makes the guards of all routes.
pub(crate) struct Guards {
    pub(crate) keys: ApiKeys,
    pub(crate) key_rate: Option<Arc<KeyRate>>,
    /// `None`: apps do not call for themselves.
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) places: Arc<Places>,
    pub(crate) registry: Registry,
    /// `None`: nothing is recorded.
    pub(crate) audit: Option<Audit>,
}

impl Guards {
    fn before(&self, route: Route, handlers: MethodRouter<Arc<Shared>>) -> MethodRouter<Arc<Shared>> {
        let metrics = match route.name {
            "POST /v1/events" => RouteMetrics::of_events(&self.registry, route.name),
            _ => RouteMetrics::new(&self.registry, route.name),
        };
        let Route { scope, dialect, is_for_apps, audited, .. } = route;
        let places = Some(self.places.clone());
        let (keys, key_rate, metrics) = (self.keys.clone(), self.key_rate.clone(), Arc::new(metrics));
        let gate = self.gate.clone().filter(|_| is_for_apps);
        let audit = self.audit.clone();
        let state = Guard { keys, key_rate, gate, scope, dialect, places, metrics, audit, audited };
        handlers.route_layer(from_fn_with_state(state, guard))
    }
}
