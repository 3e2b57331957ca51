//! Which lane reaches a device. This depends on its provider, app and environment, for browsers on their push service,
//! and on whether its token was ever accepted.
//!
//! A lane is one app of one pool, so a pause of an app or a provider is a pause of lanes. A pool with a quarantine has
//! two lanes per app: tokens that no provider has accepted yet go through their own lakes, because providers slow a
//! connection down after refusals. The lane of a device is determined when its window is opened: once its token is
//! accepted, the device changes lanes.

use std::collections::HashMap;
use std::sync::Arc;

use tidings_buffer::Lake;
use tidings_push::web_push::guard::EndpointRules;
use tidings_push::{Lakes, Notification};
use tidings_types::{AppId, Environment, EventPriority, Provider, TokenRef};

use crate::config::Pool;
use crate::error::StartError;
use crate::permits::Permits;

/// One app of one pool, or of its quarantine.
pub(crate) struct Route {
    pub(crate) provider: Provider,
    pub(crate) app: AppId,
    pub(crate) environment: Environment,
    /// Index of the pool.
    pub(crate) pool: usize,
    /// The lane of the same app and pool outside the quarantine; it has the same renderings.
    pub(crate) main: usize,
    /// Index of the app. Lanes of one app share one turn.
    pub(crate) group: usize,
    lakes: Lakes,
    /// By priority, the permits of the lakes, shared by all lanes that use the lakes.
    permits: LakePermits,
}

type LakePermits = [Arc<Permits>; EventPriority::ALL.len()];

/// All lanes.
#[derive(Default)]
pub(crate) struct Routes {
    lanes: Vec<Route>,
    /// By app and [`world`].
    by_app: HashMap<AppId, [Vec<Way>; WORLD_COUNT]>,
}

/// The lanes of one app in one pool.
struct Way {
    services: Option<EndpointRules>,
    /// The lane for accepted tokens.
    accepted: usize,
    /// The lane for other tokens.
    others: usize,
}

const WORLD_COUNT: usize = 4;

/// The index by provider and environment: only APNs has two environments.
fn world(provider: Provider, environment: Environment) -> usize {
    match (provider, environment) {
        (Provider::Apns, Environment::Production) => 0,
        (Provider::Apns, Environment::Sandbox) => 1,
        (Provider::Fcm, _) => 2,
        (Provider::WebPush, _) => 3,
    }
}

impl Route {
    pub(crate) fn lake(&self, priority: EventPriority) -> &Arc<Lake<Notification>> {
        self.lakes.of(priority)
    }

    /// Where lanes wait for the permit of that lake.
    pub(crate) fn permits(&self, priority: EventPriority) -> &Arc<Permits> {
        &self.permits[priority as usize]
    }
}

impl Routes {
    pub(crate) fn new(pools: &[Pool]) -> Result<Self, StartError> {
        let mut routes = Self::default();
        let mut groups: HashMap<AppId, usize> = HashMap::new();
        for (index, pool) in pools.iter().enumerate() {
            let permits = || -> LakePermits { std::array::from_fn(|_| Permits::new()) };
            let (main_permits, quarantine_permits) = (permits(), permits());
            for app in &pool.apps {
                let next = groups.len();
                let group = *groups.entry(app.clone()).or_insert(next);
                let main = routes.lanes.len();
                let mut lane = |lakes: &Lakes, permits: &LakePermits| {
                    let (provider, app, environment) = (pool.provider, app.clone(), pool.environment);
                    let (lakes, permits) = (lakes.clone(), permits.clone());
                    routes.lanes.push(Route { provider, app, environment, pool: index, main, group, lakes, permits });
                    routes.lanes.len() - 1
                };
                let accepted = lane(&pool.lakes, &main_permits);
                let others = pool.quarantine.as_ref().map_or(accepted, |lakes| lane(lakes, &quarantine_permits));
                let worlds = routes.by_app.entry(app.clone()).or_default();
                let ways = &mut worlds[world(pool.provider, pool.environment)];
                let is_same = |way: &&Way| way.services.is_none() || way.services == pool.services;
                let overlap = if pool.services.is_none() { ways.first() } else { ways.iter().find(is_same) };
                if let Some(first) = overlap {
                    let first = pools[routes.lanes[first.accepted].pool].name.clone();
                    let (app, environment, second) = (app.clone(), pool.environment, pool.name.clone());
                    return Err(StartError::PoolOverlap { app, environment, first, second });
                }
                ways.push(Way { services: pool.services.clone(), accepted, others });
            }
        }
        Ok(routes)
    }

    /// The lane that reaches such a device. A browser whose push service has no pool gets the lane of the first pool,
    /// whose gateway rejects it with the reason.
    pub(crate) fn find(
        &self,
        app: &AppId,
        token: TokenRef<'_>,
        environment: Environment,
        is_proven: bool,
    ) -> Option<usize> {
        let ways = &self.by_app.get(app)?[world(token.provider(), environment)];
        let reaches = |way: &&Way| way.services.as_ref().is_none_or(|services| services.covers(token.as_bytes()));
        let way = ways.iter().find(reaches).or(ways.first())?;
        Some(if is_proven { way.accepted } else { way.others })
    }

    pub(crate) fn lanes(&self) -> &[Route] {
        &self.lanes
    }
}
