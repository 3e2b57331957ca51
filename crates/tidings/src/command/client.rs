//! The commands that call a server's API: `devices`, `users`, `audience`, `feeds`, `jobs`, `why`, `audit`.

pub(super) mod api;
mod audience;
mod audit;
mod brakes;
mod bulk;
mod devices;
mod feeds;
mod jobs;
mod problem;
mod report;
mod users;
mod watch;
mod why;

pub(super) use api::{ApiClient, table};
pub(crate) use audience::run as audience;
pub(crate) use audit::run as audit;
pub(crate) use devices::run as devices;
pub(crate) use feeds::run as feeds;
pub(crate) use jobs::run as jobs;
pub(crate) use users::run as users;
pub(crate) use why::run as why;
