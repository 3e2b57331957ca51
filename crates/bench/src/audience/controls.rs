//! What everybody would try first: SQLite and PostgreSQL with the obvious tables and indexes, and our store beside
//! them, about the same devices, asked the same, checked the same.
//!
//! ```text
//!  device (number, id, app, platform, locale, country, token)     keys: number; id; token
//!  subscription (device, subject, topic)                          key: all; index: (topic, subject, device)
//! ```
//!
//! Without foreign keys, which would only cost. Both are filled in bulk, their indexes made afterwards, and analysed.
//! They are asked for everyone subscribed to a topic on any of some subjects, each once, as token, language and
//! platform, which this process reads row by row. An update is one inserted row, acknowledged when it is durable.

mod ours;
mod postgres;
mod sqlite;

use std::path::Path;

use super::super::progress;
use super::super::report::Report;
use super::data::{self, Data, Kind};
use super::select::{Audience, Walk};
use super::update::{self, Updated};
use crate::BenchError;
use crate::args::BenchAudienceArgs;

/// Audiences looked for.
const SIZES: [u64; 3] = [10_000, 400_000, 1_300_000];

/// What each of them is asked.
struct Task<'a> {
    data: &'a Data,
    subscription_count: u64,
    /// Found by our store, which is asked first.
    audiences: Vec<Audience>,
    runs: u32,
    /// Where temporary folders are made, when not where the system has them.
    dir: Option<&'a Path>,
}

/// What came of it.
#[derive(Default)]
struct Found {
    load_seconds: f64,
    /// After the load.
    disk_bytes: f64,
    /// By audience: how many milliseconds each run took.
    select_millis: Vec<Vec<f64>>,
    updates: Vec<Updated>,
}

/// One row as a control hands it out.
struct Row<'a> {
    token: &'a str,
    locale: &'a str,
    platform: &'a str,
}

pub(super) async fn run(args: &BenchAudienceArgs, report: &mut Report) -> Result<(), BenchError> {
    let data = Data::of_subscriptions(args.control_subscriptions);
    let subscription_count = (0..data.device_count).map(|device| data.drawn(device).count() as u64).sum();
    let dir = args.dir.as_deref();
    let mut task = Task { data: &data, subscription_count, audiences: Vec::new(), runs: args.common.runs, dir };
    report.note(format!(
        "Our store, SQLite and PostgreSQL side by side: {subscription_count} subscriptions of {} devices.",
        data.device_count
    ));
    let ours = ours::measure(&mut task).await?;
    for wanted in SIZES {
        if task.audiences.iter().all(|audience| audience.wanted != wanted) {
            report.note(format!("Side by side: too few devices for an audience of {wanted}."));
        }
    }
    task.tell("ours", &ours, report);
    for (name, how, found) in [
        ("SQLite", sqlite::HOW, sqlite::measure(&task).await),
        ("PostgreSQL", postgres::HOW, postgres::measure(&task).await),
    ] {
        match found {
            Ok(found) => {
                task.tell(name, &found, report);
                report.note(format!("{name}: {how}"));
            }
            Err(error) => report.note(format!("{name}: not measured: {error}.")),
        }
    }
    Ok(())
}

impl Task<'_> {
    fn tell(&self, name: &str, found: &Found, report: &mut Report) {
        let count = self.subscription_count as f64;
        report.measure(format!("{name}: load"), "subscriptions/s", vec![count / found.load_seconds]);
        report.measure(format!("{name}: disk"), "B per subscription", vec![found.disk_bytes / count]);
        for (audience, millis) in self.audiences.iter().zip(&found.select_millis) {
            report.measure(format!("{name}: {} handed out", audience.len), "ms", millis.clone());
        }
        let column = |field: fn(&Updated) -> f64| found.updates.iter().map(field).collect();
        let writers = update::WRITER_COUNT;
        report.measure(format!("{name}: {writers} writers: durable updates"), "1/s", column(|it| it.rate));
        report.measure(format!("{name}: {writers} writers: p99"), "ms", column(|it| it.p99_millis));
    }

    /// The rows of the tables for one device: itself, and what it is subscribed to, in order.
    fn rows(&self, number: u32) -> (DeviceRow, Vec<(&str, &str)>) {
        let Kind { platform, locale, country } = self.data.kind(number);
        let mut subscriptions: Vec<_> =
            self.data.subscriptions(number).map(|(subject, topic)| (subject.as_str(), topic.as_str())).collect();
        subscriptions.sort_unstable();
        let row = DeviceRow {
            number,
            texts: [
                data::device_id(number).as_str().to_owned(),
                self.data.app.as_str().to_owned(),
                platform.as_str().to_owned(),
                locale.as_str().to_owned(),
                country.as_str().to_owned(),
                self.data.token(number).to_text().into_owned(),
            ],
        };
        (row, subscriptions)
    }

    fn progress(&self, name: &str, what: &str) {
        progress(format!("{name}, {} subscriptions: {what}", self.subscription_count));
    }
}

/// A row of `device`.
struct DeviceRow {
    number: u32,
    /// As the columns behind the number.
    texts: [String; 6],
}

/// Takes a row into account in the walk that proves an audience right.
fn tell_row(walk: &mut Walk, data: &Data, row: &Row<'_>) {
    let device = data::device_of_token(row.token).filter(|&device| device < data.device_count);
    let is_right = device.is_some_and(|device| {
        let Kind { platform, locale, .. } = data.kind(device);
        data.token(device).to_text() == row.token && locale.as_str() == row.locale && platform.as_str() == row.platform
    });
    walk.tell(device, is_right);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_others_find_whom_we_find() {
        let data = Data::new(12_000);
        let subscription_count = (0..data.device_count).map(|device| data.drawn(device).count() as u64).sum();
        let mut task = Task { data: &data, subscription_count, audiences: Vec::new(), runs: 1, dir: None };
        let ours = ours::measure(&mut task).await.unwrap();
        let sqlite = sqlite::measure(&task).await.unwrap();
        let found = [Some(ours), Some(sqlite), postgres::measure(&task).await.ok()]; // It may not be here.
        for found in found.iter().flatten() {
            assert_eq!((found.select_millis.len(), found.updates.len()), (1, 1), "an audience of 10 000 and a run");
            assert!(found.updates[0].count > 0 && found.disk_bytes > 0.0);
        }

        task.audiences[0].len += 1;
        assert!(sqlite::measure(&task).await.is_err(), "one too few is handed out");
    }

    #[test]
    fn a_row_that_says_something_else_is_noticed() {
        let (data, device) = (Data::new(100), 7);
        let Kind { platform, locale, .. } = data.kind(device);
        let (token, other) = (data.token(device).to_text().into_owned(), data.token(8).to_text().into_owned());
        let is_wrong = |token, locale, platform| {
            let mut walk = Walk::of(&[device]);
            tell_row(&mut walk, &data, &Row { token, locale, platform });
            walk.finish().is_err()
        };
        let (locale, platform) = (locale.as_str(), platform.as_str());
        assert!(!is_wrong(&token, locale, platform));
        assert!(is_wrong(&token, "xx", platform) && is_wrong(&token, locale, "web"));
        assert!(is_wrong(&other, locale, platform) && is_wrong("", locale, platform));
        assert!(is_wrong(&token[..token.len() - 1], locale, platform));
    }
}
