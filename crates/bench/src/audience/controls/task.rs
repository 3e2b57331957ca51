//! The questions for each store, and the answers.

use std::hint::black_box;
use std::path::Path;

use tidings_server::command_error::{CommandError, failed};
use tokio::time::Instant;

use crate::audience::data::{self, Data, Kind};
use crate::audience::select::{Audience, Walk, stamp};
use crate::audience::update::{self, Updated};
use crate::checksum::Digest;
use crate::report::{Report, column, millis, progress};

/// Sizes of audiences.
pub(super) const SIZES: [u64; 3] = [10_000, 400_000, 1_300_000];

/// The questions for a store.
pub(super) struct Task<'a> {
    pub(super) data: &'a Data,
    pub(super) subscription_count: u64,
    /// Audiences that our store found. It is measured first.
    pub(super) audiences: Vec<Audience>,
    pub(super) runs: u32,
    /// Where temporary folders are made, if not in the system's folder.
    pub(super) dir: Option<&'a Path>,
}

/// The result of a store.
#[derive(Default)]
pub(super) struct Found {
    pub(super) load_seconds: f64,
    /// Bytes on the disk after the load.
    pub(super) disk_bytes: f64,
    /// Milliseconds of each run, by audience.
    pub(super) select_millis: Vec<Vec<f64>>,
    pub(super) updates: Vec<Updated>,
    /// The devices, by audience.
    pub(super) digests: Vec<Digest>,
}

/// One row of an answer.
pub(super) struct Row<'a> {
    pub(super) token: &'a str,
    pub(super) locale: &'a str,
    pub(super) platform: &'a str,
}

impl Task<'_> {
    pub(super) fn tell(&self, name: &str, found: &Found, report: &mut Report) -> Result<(), CommandError> {
        for (audience, digest) in self.audiences.iter().zip(&found.digests) {
            report.answered(&format!("comparison: {}", audience.len), *digest)?;
        }
        let count = self.subscription_count as f64;
        report.measure(format!("{name}: load"), "subscriptions/s", vec![count / found.load_seconds]);
        report.measure(format!("{name}: disk"), "B per subscription", vec![found.disk_bytes / count]);
        for (audience, millis) in self.audiences.iter().zip(&found.select_millis) {
            report.measure(format!("{name}: {} handed out", audience.len), "ms", millis.clone());
        }
        let column = |field: fn(&Updated) -> f64| column(&found.updates, field);
        let writers = update::WRITER_COUNT;
        report.measure(format!("{name}: {writers} writers: durable updates"), "1/s", column(|it| it.rate));
        report.measure(format!("{name}: {writers} writers: p99"), "ms", column(|it| it.p99_millis));
        Ok(())
    }

    /// The rows for one device in both tables: the device, and its subscriptions in order.
    pub(super) fn rows(&self, number: u32) -> (DeviceRow, Vec<(&str, &str)>) {
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

    pub(super) fn progress(&self, name: &str, what: &str) {
        progress(format!("{name}, {} subscriptions: {what}", self.subscription_count));
    }

    /// Checks each audience, and times its selection in each run: milliseconds by audience, and the digests of the
    /// audiences. `select` calls its closure for each row.
    pub(super) async fn time_selections(
        &self,
        name: &str,
        mut select: impl AsyncFnMut(&Audience, &mut dyn FnMut(Row<'_>)) -> Result<(), CommandError>,
    ) -> Result<(Vec<Vec<f64>>, Vec<Digest>), CommandError> {
        let (mut all, mut digests) = (Vec::new(), Vec::new());
        for audience in &self.audiences {
            self.progress(name, &format!("{} devices", audience.len));
            let mut walk = Walk::over(self.data, audience);
            select(audience, &mut |row| tell_row(&mut walk, self.data, &row)).await?;
            digests.push(walk.finish()?);
            let mut runs = Vec::new();
            for _ in 0..self.runs {
                let (began, mut count) = (Instant::now(), 0);
                let mut read = |row: Row<'_>| {
                    black_box((row.token, row.locale, row.platform));
                    count += 1;
                };
                select(audience, &mut read).await?;
                runs.push(millis(began.elapsed()));
                if count != audience.len {
                    return Err(failed(format!("{count} of {} devices were handed out", audience.len)));
                }
            }
            all.push(runs);
        }
        Ok((all, digests))
    }

    /// Measures updates in each run. `update` gets the number of its first change.
    pub(super) async fn time_updates(
        &self,
        name: &str,
        mut update: impl AsyncFnMut(u64) -> Result<Updated, CommandError>,
    ) -> Result<Vec<Updated>, CommandError> {
        let (mut updates, mut first) = (Vec::new(), 0);
        for _ in 0..self.runs {
            self.progress(name, "updates");
            let updated = update(first).await?;
            first += updated.count;
            updates.push(updated);
        }
        Ok(updates)
    }
}

/// A row of `device`.
pub(super) struct DeviceRow {
    pub(super) number: u32,
    /// The columns behind the number.
    pub(super) texts: [String; 6],
}

/// Notes a row in the walk that checks an audience.
pub(super) fn tell_row(walk: &mut Walk, data: &Data, row: &Row<'_>) {
    let device = data::device_of_token(row.token).filter(|&device| device < data.device_count);
    let is_right = device.is_some_and(|device| {
        let Kind { platform, locale, .. } = data.kind(device);
        data.token(device).to_text() == row.token && locale.as_str() == row.locale && platform.as_str() == row.platform
    });
    walk.tell(device, is_right, device.map_or(0, |device| stamp(data.token(device).as_bytes())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_row_is_noticed() {
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
