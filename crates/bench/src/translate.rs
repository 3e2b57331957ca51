//! `bench translate`: one text of a notification beside a copy of the finished string, and the catalogues of 50 languages
//! with 1 000 messages each: how long a start and a reload take, and how much memory.
//!
//! Load and reload are those of the server: files are read, parsed and checked against all topics, and a reload also keeps
//! them in the data folder. Beside it stands what it takes to read the same files and do nothing with them.
//!
//! Every text is compared with what the generator says it must be, before anything is measured.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;

use tidings_config::{Config, parse};
use tidings_sender::Topics;
use tidings_server::command_error::{CommandError, failed, failed_by};
use tidings_server::{Server, topics};
use tidings_telemetry::process::memory_bytes;
use tidings_types::{Event, EventId, Locale, Number, ParamValue, Subject, TopicName, TypedValue};
use tokio::time::Instant;

use super::report::{Finished, Report};
use crate::args::BenchTranslateArgs;
use crate::checksum::Digest;
use crate::folder::{each_file, temporary};
use crate::report::{column, millis, progress, ratios};
use crate::statistic::times_per_second;

const LOCALES: [&str; 50] = [
    "af", "am", "ar", "az", "be", "bg", "bn", "bs", "ca", "cs", "cy", "da", "de", "el", "es", "et", "eu", "fa", "fi",
    "fr", "ga", "gl", "he", "hi", "hr", "hu", "hy", "id", "is", "it", "ja", "ka", "kk", "ko", "lt", "lv", "mk", "mn",
    "ms", "nb", "nl", "pl", "pt", "ro", "ru", "sk", "sl", "sq", "sr", "sv",
];
/// Topics with a title and a body each.
const TOPIC_COUNT: usize = 500;

pub(super) async fn run(args: &BenchTranslateArgs) -> Result<Finished, CommandError> {
    let runs = args.common.runs;
    let mut report = Report::new("translate");
    let folder = temporary(None)?;
    let corpus = Corpus::write(folder.path(), TOPIC_COUNT, &LOCALES)?;
    let (texts, digest) = corpus.checked()?;
    report.answered("texts", digest)?;
    let mut rates = Vec::new();
    for run in 1..=runs {
        progress(format!("texts, run {run} of {runs}"));
        rates.push(corpus.rates(&texts)?);
    }
    drop(texts);
    let [plain, typed, copied] =
        [column(&rates, |rate| rate.plain), column(&rates, |rate| rate.typed), column(&rates, |rate| rate.copied)];
    report.measure("a text of a notification: title and body, two values", "1/s", plain.clone());
    report.measure("the same with a number in the form of the language", "1/s", typed);
    report.measure("a copy of the finished title and body", "1/s", copied.clone());
    report.measure("a text, of the time of a copy", "×", ratios(&copied, &plain));
    corpus.loads(runs, &mut report)?;
    corpus.reloads(runs, &mut report).await?;
    report.note(format!(
        "One thread. {} languages with {} messages each, {:.1} MB of PO files.",
        LOCALES.len(),
        2 * TOPIC_COUNT,
        corpus.bytes as f64 / 1e6
    ));
    report.finish()
}

/// Files with texts, and a configuration that reads them.
struct Corpus {
    config: Config,
    dir: std::path::PathBuf,
    topic_count: usize,
    locales: Vec<Locale>,
    bytes: usize,
}

/// Texts per second in one run.
struct Rates {
    plain: f64,
    typed: f64,
    copied: f64,
}

impl Corpus {
    fn write(folder: &Path, topic_count: usize, locales: &[&str]) -> Result<Self, CommandError> {
        let dir = folder.join("locales");
        let mut text = format!(
            "data_dir = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n[translations]\ndir = {dir:?}\n",
            folder.join("data")
        );
        for number in 0..topic_count {
            let _ = write!(
                text,
                "[topics.topic-{number}]\ntitle = \"{}\"\nbody = \"{}\"\n",
                title("", number),
                body("", number)
            );
        }
        let mut bytes = 0;
        for locale in locales {
            let into = dir.join(locale).join("LC_MESSAGES");
            fs::create_dir_all(&into)?;
            let catalogue = catalogue(locale, topic_count);
            bytes += catalogue.len();
            fs::write(into.join("messages.po"), catalogue)?;
        }
        let locales = locales.iter().map(|locale| Locale::new(locale).expect("a legal locale")).collect();
        Ok(Self { config: parse("bench", &text, [])?.config, dir, topic_count, locales, bytes })
    }

    /// Loads the texts, and compares each in each language. Also returns their digest.
    fn checked(&self) -> Result<(Topics, Digest), CommandError> {
        let (topics, mut digest) = (self.load()?, Digest::default());
        for number in 0..self.topic_count {
            let event = event(number, false);
            let indexes = topics.text_indexes(&event, &self.locales);
            for (locale, index) in self.locales.iter().zip(indexes) {
                let expected = [title, body].map(|text| {
                    let text = text(&format!("[{locale}] "), number);
                    text.replace("%{team}", "Sweden").replace("%{minute}", "27")
                });
                let (texts, _) = topics.render(&event, index).map_err(|error| failed_by("cannot render", &error))?;
                if [plain(&texts.0), plain(&texts.1)] != expected {
                    return Err(failed(format!("in {locale}: {texts:?}, not {expected:?}")));
                }
                [&texts.0, &texts.1].into_iter().for_each(|text| digest.add(text.as_bytes()));
            }
        }
        Ok((topics, digest))
    }

    fn load(&self) -> Result<Topics, CommandError> {
        topics(&self.config).map_err(|error| failed_by("the texts are wrong", &error))
    }

    fn rates(&self, topics: &Topics) -> Result<Rates, CommandError> {
        let of = |event: &Event| {
            let index = topics.text_indexes(event, &self.locales[..1])[0];
            let mut is_sound = true;
            let rate = times_per_second(|| is_sound &= black_box(topics.render(black_box(event), index)).is_ok());
            if is_sound { Ok(rate) } else { Err(failed("a text was not rendered")) }
        };
        let event_of_copy = event(7, false);
        let index = topics.text_indexes(&event_of_copy, &self.locales[..1])[0];
        let (texts, _) = topics.render(&event_of_copy, index).map_err(|error| failed_by("cannot render", &error))?;
        let copied = times_per_second(|| drop(black_box(black_box(&texts).clone())));
        Ok(Rates { plain: of(&event_of_copy)?, typed: of(&event(7, true))?, copied })
    }

    /// As a start does it.
    fn loads(&self, runs: u32, report: &mut Report) -> Result<(), CommandError> {
        let (mut loaded, mut read, mut grown) = (Vec::new(), Vec::new(), Vec::new());
        for run in 1..=runs {
            progress(format!("load, run {run} of {runs}"));
            let begin = Instant::now();
            let mut bytes = 0;
            each_file(&self.dir, &mut |path| {
                bytes += black_box(fs::read(path)?).len();
                Ok(())
            })?;
            read.push(millis(begin.elapsed()));
            if bytes != self.bytes {
                return Err(failed(format!("{bytes} bytes were read, not {}", self.bytes)));
            }
            report.answered("bytes read", Digest::of_numbers([bytes as u64]))?;
            let resident = || memory_bytes("self", "VmRSS").unwrap_or(0);
            let (before, begin) = (resident(), Instant::now());
            let topics = self.load()?;
            loaded.push(millis(begin.elapsed()));
            grown.push(resident().saturating_sub(before) as f64 / f64::from(1 << 20));
            drop(topics);
        }
        report.measure("load: all files read, parsed and checked", "ms", loaded);
        report.measure("load: the files only read", "ms", read);
        report.measure("load: memory, the most in a run", "MiB", vec![grown.into_iter().fold(0.0, f64::max)]);
        Ok(())
    }

    /// As a running server does it.
    async fn reloads(&self, runs: u32, report: &mut Report) -> Result<(), CommandError> {
        let server = Server::start(self.config.clone()).await;
        let server = server.map_err(|error| failed_by("cannot start the server", &error))?;
        let mut reloaded = Vec::new();
        for run in 1..=runs {
            progress(format!("reload, run {run} of {runs}"));
            let begin = Instant::now();
            tokio::task::block_in_place(|| server.reload());
            reloaded.push(millis(begin.elapsed()));
        }
        server.stop().await;
        report.measure("reload of a running server, kept on the disk", "ms", reloaded);
        Ok(())
    }
}

/// A text without the characters that keep a value of another direction apart.
fn plain(text: &str) -> String {
    text.replace(['\u{2068}', '\u{2069}'], "")
}

fn title(mark: &str, number: usize) -> String {
    format!("{mark}Goal for %{{team}} in match {number}!")
}

fn body(mark: &str, number: usize) -> String {
    format!("{mark}It is minute %{{minute}} of match {number}. Open the app to see it again.")
}

/// A PO file in which every text begins with the locale.
fn catalogue(locale: &str, topic_count: usize) -> String {
    let mut po = format!(
        "msgid \"\"\nmsgstr \"\"\n\"Language: {locale}\\n\"\n\"MIME-Version: 1.0\\n\"\n\
         \"Content-Type: text/plain; charset=UTF-8\\n\"\n\"Content-Transfer-Encoding: 8bit\\n\"\n"
    );
    let mark = format!("[{locale}] ");
    for number in 0..topic_count {
        for (part, text) in [("title", title as fn(&str, usize) -> String), ("body", body)] {
            let (source, translated) = (text("", number), text(&mark, number));
            let _ =
                write!(po, "\n#: topic-{number}.{part}\n#, ruby-format\nmsgid \"{source}\"\nmsgstr \"{translated}\"\n");
        }
    }
    po
}

/// `is_typed`: the minute is a number in the form of the language.
fn event(number: usize, is_typed: bool) -> Event {
    let topic = TopicName::new(&format!("topic-{number}")).expect("a legal topic");
    let id = EventId::new(&format!("event-{number}")).expect("a legal id");
    let minute = match is_typed {
        true => ParamValue::Typed(TypedValue::Number { number: Number::Integer(27), digits: None }),
        false => ParamValue::Integer(27),
    };
    let params = [("team".to_owned(), ParamValue::Text("Sweden".to_owned())), ("minute".to_owned(), minute)];
    let subject = Subject::new("match:1").expect("a legal subject");
    Event { params: params.into(), ..Event::new(id, topic, vec![subject]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_text_is_right_and_all_that_is_measured_runs() {
        let folder = temporary(None).unwrap();
        let corpus = Corpus::write(folder.path(), 10, &["ar", "pl"]).unwrap();
        let (texts, digest) = corpus.checked().unwrap();
        assert_eq!(digest, corpus.checked().unwrap().1);
        let other_folder = temporary(None).unwrap();
        let other = Corpus::write(other_folder.path(), 10, &["ar", "fi"]).unwrap();
        assert_ne!(digest, other.checked().unwrap().1);
        let rates = corpus.rates(&texts).unwrap();
        assert!([rates.plain, rates.typed, rates.copied].iter().all(|rate| rate.is_finite() && *rate > 0.0));
        let mut report = Report::new("translate");
        corpus.loads(1, &mut report).unwrap();
        corpus.reloads(2, &mut report).await.unwrap();
        assert_eq!(report.finish().unwrap().to_json()["measures"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn a_text_that_is_another_one_fails_the_run() {
        let folder = temporary(None).unwrap();
        let corpus = Corpus::write(folder.path(), 2, &["pl"]).unwrap();
        let file = folder.path().join("locales/pl/LC_MESSAGES/messages.po");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("[pl] Goal", "[fi] Goal", 1)).unwrap();
        let Err(error) = corpus.checked() else { panic!("the first title is another one") };
        assert!(error.to_string().starts_with("in pl: "), "{error}");
    }
}
