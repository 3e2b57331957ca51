//! `bench audience`: how fast an event's audience is selected and read, and the cost of keeping it durable.
//!
//! Our own store is measured, as `serve` uses it, in a temporary folder. Devices and subscriptions are imported.
//! Audiences are selected and read window by window with their tokens ([`select`]). 64 writers at once change
//! subscriptions ([`update`]). Devices are looked up by their tokens, and imported and exported while an audience is
//! selected ([`bulk`]). The store is closed and opened again, with and without its checkpoint, and its files are read
//! without the kernel's cache ([`start`]). Memory and changes of the index alone are measured without a store
//! ([`index`]).
//!
//! For comparison, SQLite, PostgreSQL and our store answer the same questions about a smaller data set (`controls`).
//!
//! The data is drawn from seeds ([`data`]). So every audience can be compared, device by device, with a plain walk over
//! all devices. After the changes and the opening nothing may be missing. One thread selects.

mod bench;
mod bulk;
#[cfg(feature = "peers")]
mod controls;
mod data;
mod goals;
mod index;
mod select;
mod start;
mod update;

use std::path::Path;

use crate::folder::{disk_bytes, temporary};
use tidings_server::command_error::{CommandError, failed};
use tidings_store::Store;
use tidings_types::Filter;

use self::bench::Bench;
use self::data::Data;
use self::goals::Goals;
use self::select::{Audience, Selecting, Times};
use super::report::{Finished, Goal};
use super::store;
use crate::args::BenchAudienceArgs;
use crate::report::{column, millis, progress};

pub(super) async fn run(args: &BenchAudienceArgs) -> Result<Finished, CommandError> {
    let data = Data::of_subscriptions(args.subscriptions);
    let mut bench = Bench::new(&data, Goals::of(args.subscriptions), args.common.runs);
    bench.measure_index()?;
    let folder = temporary(args.dir.as_deref())?;
    bench.measure_store(folder.path()).await?;
    drop(folder); // The next data set needs the space.
    let report = &mut bench.report;
    #[cfg(feature = "peers")]
    controls::run(args, report).await?;
    #[cfg(not(feature = "peers"))]
    report.note(format!(
        "SQLite and PostgreSQL at {} subscriptions were not measured: built without --features bench-peers.",
        args.control_subscriptions
    ));
    goals::note(args.subscriptions, report);
    bench.report.finish()
}

impl Bench<'_> {
    async fn measure_store(&mut self, folder: &Path) -> Result<(), CommandError> {
        let mut store = store::open(folder).await?;
        self.import(&store).await?;
        let audiences = self.select(&store)?;
        let busy = audiences.iter().rfind(|audience| audience.wanted <= 1_300_000).unwrap_or(&audiences[0]);
        self.filter(busy, &store)?;
        self.update(busy, &store).await?;
        self.look_up(&store)?;
        self.bulk(busy, &store).await?;
        store = self.start(store, folder, busy).await?;
        // The changes used other subjects, so the audiences are still the same.
        for audience in &audiences {
            self.report.answered(&audience.len.to_string(), audience.check(self.data, &store)?)?;
        }
        self.mute(&store).await?;
        let name = format!("{} with mutes", busy.len);
        self.hand_out(&name, &busy.muted(&store), &store, None)?;
        store.close().await;
        let size = disk_bytes(folder)? as f64 / self.subscription_count as f64;
        let goal = self.goals.main(Goal::AtMost(goals::DISK_BYTES));
        self.report.judge("disk, closed, devices included", "B per subscription", vec![size], goal);
        Ok(())
    }

    /// Selects audiences of all sizes, with warm caches.
    fn select(&mut self, store: &Store) -> Result<Vec<Audience>, CommandError> {
        let audiences = select::find(self.data, store, &self.goals.sizes.map(|(size, _)| size));
        if audiences.is_empty() {
            return Err(failed("there are too few devices for the smallest audience"));
        }
        for audience in &audiences {
            let goal = self.goals.of_size(audience.wanted);
            self.hand_out(&audience.len.to_string(), audience, store, goal)?;
        }
        for (wanted, _) in self.goals.sizes {
            if audiences.iter().all(|audience| audience.wanted != wanted) {
                self.report.note(format!("Too few devices for an audience of {wanted}."));
            }
        }
        Ok(audiences)
    }

    fn hand_out(
        &mut self,
        name: &str,
        audience: &Audience,
        store: &Store,
        goal: Option<Goal>,
    ) -> Result<(), CommandError> {
        self.report.answered(name, audience.check(self.data, store)?)?;
        progress(format!("selecting {name}, {} devices", audience.len));
        let timed: Vec<Times> = (0..self.runs).map(|_| audience.hand_out(store)).collect::<Result<_, _>>()?;
        timed.iter().try_for_each(|times| self.report.answered(name, times.digest))?;
        let first_goal = goal.is_some().then_some(self.goals.first);
        self.report.measure(format!("{name}: frozen"), "ms", column(&timed, |times| millis(times.frozen)));
        self.report.judge(
            format!("{name}: first device"),
            "ms",
            column(&timed, |times| millis(times.first)),
            first_goal,
        );
        self.report.judge(format!("{name}: all handed out"), "ms", column(&timed, |times| millis(times.all)), goal);
        let rates = column(&timed, |times| audience.len as f64 / times.all.as_secs_f64() / 1e6);
        let rate_goal = self.goals.main(Goal::AtLeast(goals::DEVICES_M)).filter(|_| audience.wanted == 1_300_000);
        self.report.judge(format!("{name}: rate"), "M/s", rates, rate_goal.filter(|_| goal.is_some()));
        Ok(())
    }

    /// Selects only the devices of an audience that are in one country and speak its language.
    fn filter(&mut self, audience: &Audience, store: &Store) -> Result<(), CommandError> {
        let (country, locale) = self.data.largest_country();
        let filter = Filter { countries: vec![country.clone()], locales: vec![locale.clone()], ..Filter::default() };
        let name = format!("{} in {country} with {locale}", audience.len);
        self.hand_out(&format!("{name}, filtered"), &audience.filtered(&filter, self.data), store, None)?;
        self.hand_out(&format!("{name}, by a selector"), &audience.selected(&filter, self.data), store, None)
    }

    /// Measures durable updates: alone, and while an audience is selected again and again.
    async fn update(&mut self, busy: &Audience, store: &Store) -> Result<(), CommandError> {
        let writers = format!("{} writers", update::WRITER_COUNT);
        for selected in [None, Some(busy)] {
            let (mut rates, mut slow, mut selecting) = (Vec::new(), Vec::new(), Vec::new());
            for run in 1..=self.runs {
                progress(format!("{writers}, run {run}"));
                let thread = selected.map(|audience| Selecting::start(audience, store));
                let done = update::measure_ours(store, self.data.device_count, self.update_count).await?;
                if let Some(thread) = thread {
                    selecting.extend(thread.stop().await?);
                }
                self.update_count += done.count;
                self.subscription_count += done.count;
                rates.push(done.rate);
                slow.push(done.p99_millis);
            }
            let (name, rate) = match selected {
                None => (writers.clone(), goals::UPDATES),
                Some(audience) => (format!("{writers} while selecting {}", audience.len), goals::UPDATES_SELECTING),
            };
            let (rate, p99) = (Goal::AtLeast(rate), Goal::AtMost(goals::UPDATE_P99_MS));
            self.report.judge(format!("{name}: durable updates"), "1/s", rates, self.goals.main(rate));
            self.report.judge(format!("{name}: p99"), "ms", slow, self.goals.main(p99));
            self.report.measure(format!("{name}: all handed out"), "ms", selecting);
        }
        self.check_counts(store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_goal_is_reported_with_its_measure() {
        let data = Data::new(2500);
        let mut goals = Goals::of(25_000_000);
        goals.sizes = [(250, 5.0), (500, 45.0), (1_200, 75.0), (2_500, 120.0)].map(|(size, goal)| (size, Some(goal)));
        let mut bench = Bench::new(&data, goals, 1);
        let folder = temporary(None).unwrap();
        bench.measure_index().unwrap();
        bench.measure_store(folder.path()).await.unwrap();
        assert!(bench.update_count > 0);

        let report = bench.report.finish().unwrap().to_json();
        let is_judged = |name: &str| {
            let measures = report["measures"].as_array().unwrap();
            let found = measures.iter().find(|measure| measure["name"].as_str().unwrap().contains(name));
            found.unwrap_or_else(|| panic!("{name} is not measured"))["goal"].is_object()
        };
        assert!(is_judged("2500: all handed out") && is_judged("2500: first device"));
        assert!(is_judged("durable updates") && is_judged("p99"));
        assert!(is_judged("index: memory") && is_judged("disk, closed"));
        assert!(is_judged("opening from the checkpoint") && is_judged("opening without a checkpoint"));
        let without =
            ["live updates", "filtered", "by a selector", "with mutes", "token looked up", "import", "export"];
        assert!(without.iter().all(|name| !is_judged(name)));
        assert!(!is_judged("cold files"), "its goals are for 1.3 M devices");
    }
}
