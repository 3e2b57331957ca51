//! Comparison with what most would try first: SQLite and PostgreSQL with the obvious tables and indexes. Our store gets
//! the same devices, the same questions and the same checks.
//!
//! ```text
//!  device (number, id, app, platform, locale, country, token)     keys: number; id; token
//!  subscription (device, subject, topic)                          key: all; index: (topic, subject, device)
//! ```
//!
//! There are no foreign keys, which would only cost time. Both databases are filled in bulk, then indexed, then analysed.
//! The question: all devices subscribed to a topic on any of some subjects, each once, with token, language and platform.
//! This process reads the answer row by row. An update is one inserted row, acknowledged when it is durable.

mod ours;
mod postgres;
mod sqlite;
mod task;

use tidings_server::command_error::CommandError;

use self::task::{SIZES, Task};
use super::super::report::Report;
use super::data::Data;
use crate::args::BenchAudienceArgs;

pub(super) async fn run(args: &BenchAudienceArgs, report: &mut Report) -> Result<(), CommandError> {
    let data = Data::of_subscriptions(args.control_subscriptions);
    let subscription_count = (0..data.device_count).map(|device| data.drawn(device).count() as u64).sum();
    let dir = args.dir.as_deref();
    let mut task = Task { data: &data, subscription_count, audiences: Vec::new(), runs: args.common.runs, dir };
    report.note(format!(
        "Comparison of our store, SQLite and PostgreSQL: {subscription_count} subscriptions of {} devices.",
        data.device_count
    ));
    let ours = ours::measure(&mut task).await?;
    for wanted in SIZES {
        if task.audiences.iter().all(|audience| audience.wanted != wanted) {
            report.note(format!("Comparison: too few devices for an audience of {wanted}."));
        }
    }
    task.tell("ours", &ours, report)?;
    for (name, how, found) in [
        ("SQLite", sqlite::HOW, sqlite::measure(&task).await),
        ("PostgreSQL", postgres::HOW, postgres::measure(&task).await),
    ] {
        match found {
            Ok(found) => {
                task.tell(name, &found, report)?;
                report.note(format!("{name}: {how}"));
            }
            Err(error) => report.note(format!("{name}: not measured: {error}.")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn all_stores_find_the_same_devices() {
        let data = Data::new(12_000);
        let subscription_count = (0..data.device_count).map(|device| data.drawn(device).count() as u64).sum();
        let mut task = Task { data: &data, subscription_count, audiences: Vec::new(), runs: 1, dir: None };
        let ours = ours::measure(&mut task).await.unwrap();
        let sqlite = sqlite::measure(&task).await.unwrap();
        let sqlite_digest = sqlite.digests[0];
        let found = [Some(ours), Some(sqlite), postgres::measure(&task).await.ok()]; // PostgreSQL may not be installed.
        for found in found.iter().flatten() {
            assert_eq!((found.select_millis.len(), found.updates.len()), (1, 1), "an audience of 10 000 and a run");
            assert!(found.updates[0].count > 0 && found.disk_bytes > 0.0);
            assert_eq!((found.digests.len(), found.digests[0]), (1, sqlite_digest));
        }

        task.audiences[0].len += 1;
        assert!(sqlite::measure(&task).await.is_err(), "a missing device is noticed");
    }
}
