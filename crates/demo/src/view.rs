//! The output of the demo while it runs: a line for each event after its deliveries, and on a terminal below it a board
//! that is drawn in place: score, phones, counters.
//!
//! With `--json` all of it goes to standard error. The texts shown are those that phones got. The board is drawn at most
//! ten times a second. Colours are used only on a terminal, and not with `NO_COLOR`.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidings_sender::{DeviceOutcome, Sender};
use tidings_telemetry::HistogramSnapshot;
use tidings_types::Platform;
use tokio::time::MissedTickBehavior;

use super::clients::Crowd;
use super::population::LOCALES;
use super::pushes::Pushes;
use super::timeline::{Moment, Score};
use tidings_server::output::{Kind, grouped, line, remark};
use tidings_server::screen::{Notice, device_name, framed, plain};

const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Rows of a phone, and of the board without phones: score, counters, latencies.
const PHONE_ROW_COUNT: usize = 3;
const OTHER_ROW_COUNT: usize = 3;

/// Index of English, the language of the iPhone.
const ENGLISH: usize = 1;
const _: () = assert!(matches!(LOCALES[ENGLISH].0.as_bytes(), b"en"));

/// Headings of the event lines.
const COLUMNS: [&str; 7] = ["", "event", "Arg – Fra", "phones", "half in", "99 % in", "all in"];

/// The output.
pub(super) struct View {
    json: bool,
    paint: Paint,
    /// `None` if the output is not a terminal.
    terminal: Option<MultiProgress>,
    /// Events whose line was printed.
    said: Cell<usize>,
}

/// Paints text, if colours are used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Paint {
    is_coloured: bool,
}

impl Paint {
    fn with(self, style: &str, text: &str) -> String {
        if self.is_coloured { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn good(self, text: &str) -> String {
        self.with("1;32", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn frame(self, text: &str) -> String {
        self.with("36", text)
    }
}

/// The state of the match, as far as it is shown.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) moments: &'a [Moment],
    pub(super) pushes: &'a Pushes,
    pub(super) crowd: &'a Crowd,
    /// Events that the server has accepted.
    pub(super) handed_in: &'a AtomicUsize,
    /// Events whose deliveries are done.
    pub(super) told: &'a AtomicUsize,
    pub(super) sender: &'a Sender,
}

/// A phone with a notification.
pub(super) struct Phone {
    platform: Platform,
    locale: &'static str,
    alert: Notice,
}

impl View {
    pub(super) fn new(json: bool) -> Self {
        let is_terminal = if json { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let target = || if json { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::stdout() };
        let is_coloured = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let terminal = is_terminal.then(|| MultiProgress::with_draw_target(target()));
        Self { json, paint: Paint { is_coloured }, terminal, said: Cell::new(0) }
    }

    pub(super) fn paint(&self) -> Paint {
        self.paint
    }

    /// Whether there is a board, which shows phones.
    pub(super) fn has_board(&self) -> bool {
        self.terminal.is_some()
    }

    /// Prints a text that stays.
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

    /// A progress bar. It is invisible without a terminal, and disappears when dropped.
    pub(super) fn bar(&self, what: &'static str, total: u32) -> Bar {
        let Some(terminal) = &self.terminal else { return Bar(ProgressBar::hidden()) };
        let template =
            if self.paint.is_coloured { "{prefix} {wide_bar:.cyan} {msg}" } else { "{prefix} {wide_bar} {msg}" };
        let bar = terminal.add(ProgressBar::new(total.into()));
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.set_prefix(what);
        Bar(bar)
    }

    /// Shows the match until dropped. After the match the board shows no phones, because there is more text to read.
    pub(super) async fn follow(&self, scene: Scene<'_>) -> io::Result<Infallible> {
        let is_over = self.said.get() == scene.moments.len();
        let phone_count = if is_over { 0 } else { Platform::ALL.len() };
        let rows = self.terminal.as_ref().map(|terminal| Rows::new(terminal, phone_count));
        let mut interval = tokio::time::interval(DRAW_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.say_events(scene)?;
            if let Some(rows) = &rows {
                rows.draw(&scene.rows(phone_count, self.paint));
            }
        }
    }

    /// Prints the lines of events whose deliveries are done, in order and each once.
    pub(super) fn say_events(&self, scene: Scene<'_>) -> io::Result<()> {
        for index in self.said.get()..scene.told.load(Relaxed) {
            if index == 0 {
                self.say(self.paint.dim(&format_columns(COLUMNS)))?;
            }
            let (text, moment) = (scene.event_line(index), &scene.moments[index]);
            self.say(if moment.topic.ends_with("goal") { self.paint.bold(&text) } else { text })?;
            self.said.set(index + 1);
        }
        Ok(())
    }
}

/// A bar on the terminal. It disappears when dropped.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn set(&self, done: u32) {
        let total = self.0.length().unwrap_or_default();
        self.0.set_message(format!("{}/{}", grouped(done), grouped(total)));
        self.0.set_position(done.into());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The rows of the board.
struct Rows(Vec<Bar>);

impl Rows {
    fn new(terminal: &MultiProgress, phone_count: usize) -> Self {
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is well formed");
        let row = |_| {
            let row = terminal.add(ProgressBar::new_spinner());
            row.set_style(style.clone());
            Bar(row)
        };
        Self((0..OTHER_ROW_COUNT + PHONE_ROW_COUNT * phone_count).map(row).collect())
    }

    fn draw(&self, texts: &[String]) {
        for (Bar(row), text) in self.0.iter().zip(texts) {
            // Setting a message draws all rows again.
            if row.message() != *text {
                row.set_message(text.clone());
            }
        }
    }
}

impl Scene<'_> {
    /// The texts of the board's rows. Their number is always the same.
    fn rows(&self, phone_count: usize, paint: Paint) -> Vec<String> {
        let (handed_in, told) = (self.handed_in.load(Relaxed), self.told.load(Relaxed));
        let board = match handed_in.checked_sub(1).map(|now| &self.moments[now]) {
            Some(moment) => {
                format!("  {}   {}   {}", paint.bold(&format_score(moment.score)), moment.clock, words(moment.topic))
            }
            None => paint.bold("  Argentina – France   Lusail, 18 December 2022"),
        };
        let mut rows = vec![board];
        rows.extend(told.checked_sub(1).map(|last| format_phones(&self.phones(last), paint)).unwrap_or_default());
        rows.resize(1 + PHONE_ROW_COUNT * phone_count, String::new());
        rows.push(format!(
            "  events {handed_in} of {}   deliveries {}   pushes {} of {}, {} not needed",
            self.moments.len(),
            grouped(self.crowd.seen()),
            grouped(self.pushes.seen()),
            grouped(self.pushes.owed_total()),
            grouped(self.sender.totals().of(DeviceOutcome::Received)),
        ));
        let (sockets, pushes) = (self.crowd.latency(), self.pushes.latency());
        rows.push(format!("  clients {}   phones {}", format_latency(&sockets), format_latency(&pushes)));
        rows
    }

    /// The line of an event: its audience, and the times until half, 99 % and all of it were reached.
    fn event_line(&self, index: usize) -> String {
        let (moment, latency) = (&self.moments[index], self.pushes.latency_of(index));
        let [half, most, all] = [latency.quantile(0.5), latency.quantile(0.99), latency.max()].map(format_duration);
        let (topic, score) = (words(moment.topic), format_goals(moment.score));
        format_columns([moment.clock, &topic, &score, &grouped(latency.count()), &half, &most, &all])
    }

    /// The phones that show an event, as far as they have got it: an iPhone in English, the others in other languages.
    pub(super) fn phones(&self, moment: usize) -> Vec<Phone> {
        let mut phones: Vec<Phone> = Vec::new();
        for (place, platform) in [Platform::Ios, Platform::Android, Platform::Web].into_iter().enumerate() {
            // Each event uses other languages, unless too few phones of the platform speak them.
            let from = ENGLISH + place * (moment + 1);
            let locales = (0..LOCALES.len()).map(|step| (from + step) % LOCALES.len());
            let mut candidates = locales.filter_map(|locale| {
                let alert = self.pushes.alert(platform, moment, locale)?;
                Some(Phone { platform, locale: LOCALES[locale].0, alert })
            });
            let found = candidates.find(|phone| phones.iter().all(|known| known.locale != phone.locale));
            phones.extend(found);
        }
        phones
    }
}

/// Draws phones with their notifications, [`PHONE_ROW_COUNT`] lines each.
pub(super) fn format_phones(phones: &[Phone], paint: Paint) -> Vec<String> {
    let phone = |Phone { platform, locale, alert }: &Phone| {
        let rows = [paint.bold(&plain(&alert.title)), plain(&alert.body)];
        framed(&format!("{} · {locale}", device_name(*platform)), rows, |text| paint.frame(text))
    };
    phones.iter().flat_map(phone).collect()
}

fn format_columns([clock, event, score, phones, half, most, all]: [&str; 7]) -> String {
    format!("{clock:>9}  {event:<14} {score:^13} {phones:>8}{half:>9}{most:>9}{all:>9}")
}

/// The name of a topic as words.
fn words(topic: &str) -> String {
    topic.replace('_', " ")
}

fn format_score(score: Score) -> String {
    format!("Argentina {} France", format_goals(score))
}

fn format_goals(score: Score) -> String {
    let [home, away] = score.goals;
    match score.penalties {
        None => format!("{home} – {away}"),
        Some([home_shots, away_shots]) => format!("{home} ({home_shots}) – ({away_shots}) {away}"),
    }
}

fn format_latency(latency: &HistogramSnapshot) -> String {
    if latency.count() == 0 {
        return "–".to_owned();
    }
    format!("50 % {}, 99 % {}", format_duration(latency.quantile(0.5)), format_duration(latency.quantile(0.99)))
}

/// A duration with three digits and a unit.
pub(super) fn format_duration(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    match millis {
        0.0..9.995 => format!("{millis:.2} ms"),
        9.995..99.95 => format!("{millis:.1} ms"),
        99.95..999.5 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        let micros = [0, 1234, 9_999, 56_780, 340_400, 12_345_678];
        assert_eq!(
            micros.map(|micros| format_duration(Duration::from_micros(micros))),
            ["0.00 ms", "1.23 ms", "10.0 ms", "56.8 ms", "340 ms", "12.35 s"]
        );
    }

    #[test]
    fn an_event_s_line_fits_a_terminal() {
        let line = format_columns([
            "penalties",
            "shoot out goal",
            "3 (4) – (2) 3",
            "100 000",
            "99.9 ms",
            "99.9 ms",
            "12.35 s",
        ]);
        assert!(line.chars().count() < 80, "{line}");
        assert_eq!(line.chars().count(), format_columns(COLUMNS).chars().count());
    }

    #[test]
    fn a_phone_is_drawn_and_coloured_only_on_request() {
        let alert = Notice {
            title: "هدف لفريق \u{2068}Argentina\u{2069}!".to_owned(),
            subtitle: None,
            body: "1 – 0".to_owned(),
        };
        let phones = [Phone { platform: Platform::Android, locale: "ar", alert }];
        let drawn = format_phones(&phones, Paint::default());
        assert_eq!(drawn, ["  ╭─ Android · ar", "  │ هدف لفريق Argentina!", "  │ 1 – 0"]);
        let coloured = format_phones(&phones, Paint { is_coloured: true });
        assert_eq!(coloured.len(), drawn.len());
        assert!(coloured.iter().all(|line| line.contains("\x1b[")), "{coloured:?}");
    }

    #[test]
    fn the_score_shows_penalties_in_the_shoot_out() {
        assert_eq!(format_score(Score { goals: [2, 1], penalties: None }), "Argentina 2 – 1 France");
        assert_eq!(format_score(Score { goals: [3, 3], penalties: Some([4, 2]) }), "Argentina 3 (4) – (2) 3 France");
    }
}
