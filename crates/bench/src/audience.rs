//! `bench audience`: how quickly an event's audience is found and handed out, and what keeping it durable costs.
//!
//! Everything is our own store as `serve` uses it, in a temporary folder: devices and subscriptions are imported,
//! audiences frozen and read window by window with their tokens ([`select`]), subscriptions changed by 64 writers at
//! once ([`update`]), devices found by their tokens, imported and exported while an audience is selected ([`bulk`]),
//! the store closed and opened again, with and without its checkpoint, and read from files that are in no cache
//! ([`start`]). Memory and changes of the index alone are measured without a store ([`index`]).
//!
//! Beside it SQLite and PostgreSQL answer the same questions about a smaller data set, and our store with them
//! (`controls`).
//!
//! The data is drawn from seeds ([`data`]), so every audience is compared, device by device, with what a plain walk
//! over all devices says; after the changes and the opening nothing may be missing either. One thread selects.

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
use std::time::Duration;

use crate::folder::{disk_bytes, temporary};
use tidings_server::command_error::{CommandError, failed};
use tidings_store::Store;
use tidings_types::Filter;

use self::bench::Bench;
use self::data::Data;
use self::goals::Goals;
use self::select::{Audience, Selecting, Times};
use super::report::{Goal, Report};
use super::store;
use crate::args::BenchAudienceArgs;
use crate::report::progress;

pub(super) async fn run(args: &BenchAudienceArgs) -> Result<Report, CommandError> {
    let data = Data::of_subscriptions(args.subscriptions);
    let mut bench = Bench::new(&data, Goals::of(args.subscriptions), args.common.runs);
    bench.measure_index()?;
    let folder = temporary(args.dir.as_deref())?;
    bench.measure_store(folder.path()).await?;
    drop(folder); // The next data sets want its room.
    let report = &mut bench.report;
    #[cfg(feature = "peers")]
    controls::run(args, report).await?;
    #[cfg(not(feature = "peers"))]
    report.note(format!(
        "SQLite and PostgreSQL at {} subscriptions: not measured: built without --features bench-peers.",
        args.control_subscriptions
    ));
    goals::note(args.subscriptions, report);
    Ok(bench.report)
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
        // What was changed is about subjects of its own: the audiences are what they were.
        audiences.iter().try_for_each(|audience| audience.check(self.data, &store))?;
        self.mute(&store).await?;
        let name = format!("{} with mutes", busy.len);
        self.hand_out(&name, &busy.muted(&store), &store, None)?;
        store.close().await;
        let size = disk_bytes(folder)? as f64 / self.subscription_count as f64;
        let goal = self.goals.main(Goal::AtMost(goals::DISK_BYTES));
        self.judge("disk, closed, devices included", "B per subscription", vec![size], goal);
        Ok(())
    }

    /// All sizes, warm.
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
        audience.check(self.data, store)?;
        progress(format!("selecting {name}, {} devices", audience.len));
        let timed: Vec<Times> = (0..self.runs).map(|_| audience.hand_out(store)).collect::<Result<_, _>>()?;
        let first_goal = goal.is_some().then_some(self.goals.first);
        self.report.measure(format!("{name}: frozen"), "ms", millis(&timed, |times| times.frozen));
        self.judge(format!("{name}: first device"), "ms", millis(&timed, |times| times.first), first_goal);
        self.judge(format!("{name}: all handed out"), "ms", millis(&timed, |times| times.all), goal);
        let rates = timed.iter().map(|times| audience.len as f64 / times.all.as_secs_f64() / 1e6).collect();
        let rate_goal = self.goals.main(Goal::AtLeast(goals::DEVICES_M)).filter(|_| audience.wanted == 1_300_000);
        self.judge(format!("{name}: rate"), "M/s", rates, rate_goal.filter(|_| goal.is_some()));
        Ok(())
    }

    /// One country and its language of an audience.
    fn filter(&mut self, audience: &Audience, store: &Store) -> Result<(), CommandError> {
        let (country, locale) = self.data.largest_country();
        let filter = Filter { countries: vec![country.clone()], locales: vec![locale.clone()], ..Filter::default() };
        let name = format!("{} in {country} with {locale}", audience.len);
        self.hand_out(&format!("{name}, filtered"), &audience.filtered(&filter, self.data), store, None)?;
        self.hand_out(&format!("{name}, by a selector"), &audience.selected(&filter, self.data), store, None)
    }

    /// Durable updates, alone and while an audience is selected over and over.
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
            self.judge(format!("{name}: durable updates"), "1/s", rates, self.goals.main(rate));
            self.judge(format!("{name}: p99"), "ms", slow, self.goals.main(p99));
            self.report.measure(format!("{name}: all handed out"), "ms", selecting);
        }
        self.check_counts(store)
    }
}

fn millis(timed: &[Times], field: fn(&Times) -> Duration) -> Vec<f64> {
    timed.iter().map(|times| field(times).as_secs_f64() * 1e3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_goal_is_told_beside_what_was_measured() {
        let data = Data::new(2500);
        let mut goals = Goals::of(25_000_000);
        goals.sizes = [(250, 5.0), (500, 45.0), (1_200, 75.0), (2_500, 120.0)].map(|(size, goal)| (size, Some(goal)));
        let mut bench = Bench::new(&data, goals, 1);
        let folder = temporary(None).unwrap();
        bench.measure_index().unwrap();
        bench.measure_store(folder.path()).await.unwrap();
        assert!(bench.update_count > 0);

        let report = bench.report.to_json();
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
