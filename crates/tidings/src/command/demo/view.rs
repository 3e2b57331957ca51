//! What is seen of the demo while it runs: a scoreboard drawn in place on a terminal, plain lines elsewhere.
//!
//! With `--json` all of it goes to standard error. The texts shown are those that phones were really sent, in English
//! and in another language with each event. Drawing: at most ten times a second.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidings_sender::{DeviceOutcome, Sender};
use tidings_telemetry::HistogramSnapshot;
use tokio::time::{Instant, MissedTickBehavior};

use super::clients::Crowd;
use super::population::LOCALES;
use super::pushes::Pushes;
use super::timeline::{Moment, Score};
use crate::command::output::{Kind, line, remark};

const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// How long a line waits for the texts of its event: a busy server tells of several events at a time, and among few
/// phones there may be none that speaks the language.
const TEXT_PATIENCE: Duration = Duration::from_secs(3);

/// Rows of the scoreboard.
const ROW_COUNT: usize = 5;

/// How many events back the board looks for one that phones have got.
const TEXTS_BACK_MAX: usize = 8;

/// Place of English, which every event is shown in.
const ENGLISH: usize = 1;
const _: () = assert!(matches!(LOCALES[ENGLISH].0.as_bytes(), b"en"));

/// Where it is shown.
pub(super) struct View {
    json: bool,
    /// `None` where nobody could see a drawing.
    terminal: Option<MultiProgress>,
    /// Events that were said in a line of their own.
    said: Cell<usize>,
}

/// What there is to see of the match.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) moments: &'a [Moment],
    pub(super) pushes: &'a Pushes,
    pub(super) crowd: &'a Crowd,
    /// Events the server has accepted.
    pub(super) handed_in: &'a AtomicUsize,
    pub(super) sender: &'a Sender,
}

impl View {
    pub(super) fn new(json: bool) -> Self {
        let is_terminal = if json { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let target = || if json { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::stdout() };
        Self { json, terminal: is_terminal.then(|| MultiProgress::with_draw_target(target())), said: Cell::new(0) }
    }

    /// Says something that stays.
    pub(super) fn say(&self, text: impl AsRef<str>) -> io::Result<()> {
        match &self.terminal {
            Some(terminal) => terminal.println(text),
            None if self.json => {
                remark(Kind::Note, text.as_ref());
                Ok(())
            }
            None => line(text.as_ref()),
        }
    }

    /// A bar that fills; invisible without a terminal. It goes when dropped.
    pub(super) fn bar(&self, what: &'static str, total: u32) -> Bar {
        let Some(terminal) = &self.terminal else { return Bar(ProgressBar::hidden()) };
        let style = ProgressStyle::with_template("{msg} {wide_bar:.cyan} {human_pos}/{human_len}");
        let bar = terminal.add(ProgressBar::new(total.into()));
        bar.set_style(style.expect("the template is well formed"));
        bar.set_message(what);
        Bar(bar)
    }

    /// Shows the match until dropped, then takes the board away.
    pub(super) async fn follow(&self, scene: Scene<'_>) -> io::Result<Infallible> {
        let rows = self.terminal.as_ref().map(Rows::new);
        let mut interval = tokio::time::interval(DRAW_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unsaid_since = Instant::now();
        loop {
            interval.tick().await;
            if let Some(rows) = &rows {
                rows.draw(scene);
            } else if self.say_events(scene, unsaid_since.elapsed() < TEXT_PATIENCE)? {
                unsaid_since = Instant::now();
            }
        }
    }

    /// Says what is to be said of a match that is over.
    pub(super) fn conclude(&self, scene: Scene<'_>) -> io::Result<()> {
        if self.terminal.is_none() {
            self.say_events(scene, false)?;
        }
        Ok(())
    }

    /// Says the events in order, if `wait` only those whose texts are known. Tells whether nothing is left or one was said.
    fn say_events(&self, scene: Scene<'_>, wait: bool) -> io::Result<bool> {
        let (before, handed_in) = (self.said.get(), scene.handed_in.load(Relaxed));
        for index in before..handed_in {
            let texts = scene.texts(index);
            if wait && texts.len() < 2 {
                break;
            }
            let moment = &scene.moments[index];
            self.say(format!("{:>9}  {}  {}", moment.clock, format_score(moment.score), texts.join("  ")))?;
            self.said.set(index + 1);
        }
        Ok(self.said.get() > before || self.said.get() == handed_in)
    }
}

/// A bar on the terminal; dropped, it goes.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn set(&self, done: u32) {
        self.0.set_position(done.into());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The scoreboard.
struct Rows([Bar; ROW_COUNT]);

impl Rows {
    fn new(terminal: &MultiProgress) -> Self {
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is well formed");
        Self([(); ROW_COUNT].map(|()| {
            let row = terminal.add(ProgressBar::new_spinner());
            row.set_style(style.clone());
            Bar(row)
        }))
    }

    fn draw(&self, scene: Scene<'_>) {
        for (Bar(row), text) in self.0.iter().zip(scene.rows()) {
            // Setting a message draws all rows.
            if row.message() != text {
                row.set_message(text);
            }
        }
    }
}

impl Scene<'_> {
    fn rows(&self) -> [String; ROW_COUNT] {
        let handed_in = self.handed_in.load(Relaxed);
        let now = handed_in.checked_sub(1);
        let board = match now.map(|now| &self.moments[now]) {
            Some(moment) => format!("  {}   {}", format_score(moment.score), moment.clock),
            None => "  Argentina – France   Lusail, 18 December 2022".to_owned(),
        };
        // As long as the newest event is on its way, one before is shown.
        let shown =
            (0..handed_in).rev().take(TEXTS_BACK_MAX).map(|index| self.texts(index)).find(|texts| texts.len() == 2);
        let [english, other] = shown.and_then(|texts| texts.try_into().ok()).unwrap_or_default();
        let (sockets, pushes) = (self.crowd.latency(), self.pushes.latency());
        [
            board,
            format!("  {english}"),
            format!("  {other}"),
            format!(
                "  events {handed_in}/{}   deliveries {}   pushes {} of {}, {} saved",
                self.moments.len(),
                grouped(self.crowd.seen()),
                grouped(self.pushes.seen()),
                grouped(self.pushes.owed_total()),
                grouped(self.sender.totals().of(DeviceOutcome::Received)),
            ),
            format!("  sockets {}   pushes {}", format_latency(&sockets), format_latency(&pushes)),
        ]
    }

    /// What phones read about an event, in English and in another language, as far as one has got it.
    fn texts(&self, moment: usize) -> Vec<String> {
        let other = (ENGLISH + 1 + moment % (LOCALES.len() - 1)) % LOCALES.len();
        let text = |locale: usize| {
            let alert = self.pushes.alert(moment, locale)?;
            Some(format!("[{}] {} {}", LOCALES[locale].0, alert.title, alert.body))
        };
        [ENGLISH, other].into_iter().filter_map(text).collect()
    }
}

fn format_score(score: Score) -> String {
    let [home, away] = score.goals;
    match score.penalties {
        None => format!("Argentina {home} – {away} France"),
        Some([home_shots, away_shots]) => format!("Argentina {home} ({home_shots}) – ({away_shots}) {away} France"),
    }
}

fn format_latency(latency: &HistogramSnapshot) -> String {
    if latency.count() == 0 {
        return "–".to_owned();
    }
    format!("p50 {} p99 {}", format_duration(latency.quantile(0.5)), format_duration(latency.quantile(0.99)))
}

/// Three digits and a unit.
pub(super) fn format_duration(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    match millis {
        0.0..9.995 => format!("{millis:.2} ms"),
        9.995..99.95 => format!("{millis:.1} ms"),
        99.95..999.5 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

/// Digits in groups of three.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_reading() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
        let micros = [0, 1234, 9_999, 56_780, 340_400, 12_345_678];
        assert_eq!(
            micros.map(|micros| format_duration(Duration::from_micros(micros))),
            ["0.00 ms", "1.23 ms", "10.0 ms", "56.8 ms", "340 ms", "12.35 s"]
        );
    }

    #[test]
    fn the_score_shows_penalties_once_they_are_shot() {
        assert_eq!(format_score(Score { goals: [2, 1], penalties: None }), "Argentina 2 – 1 France");
        assert_eq!(format_score(Score { goals: [3, 3], penalties: Some([4, 2]) }), "Argentina 3 (4) – (2) 3 France");
    }
}
