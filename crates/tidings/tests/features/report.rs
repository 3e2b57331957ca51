//! What came of the scenarios: told as they end, summed up, and written down for `cargo xtask features`.
//!
//! ```text
//! {"seconds": 21.3, "errors": ["a file that cannot be read"], "features": [{"file", "name", "about", "scenarios": [
//!     {"line", "name", "state": "passed", "seconds", "reason", "problem", "log", "steps": [
//!         {"keyword": "Given", "text", "state": "passed", "seconds"}]}]}]}
//! ```
//!
//! State of a scenario: passed, failed, pending. Of a step: passed, failed, undefined, left (not come to). `reason` is why a
//! pending one is pending, or one with the tag `@one` stays on one server, in the words below its name. `problem` says in one text what is wrong with it or, of a pending
//! one, what is missing; `log` is the end of the server's, where it failed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cucumber::event::{self, Cucumber, Feature, Hook, RetryableScenario, Rule, Scenario, Source, Step, StepError};
use cucumber::{Event, Writer, cli, gherkin, parser, writer};
use serde::Serialize;
use tokio::time::Instant;

use crate::world::World;

/// The tag of what is not automated yet.
pub(crate) const PENDING: &str = "pending";
/// The tag of a scenario that has a step which nobody has written.
pub(crate) const UNWRITTEN: &str = "unwritten";
/// The tag of a scenario, or of a feature, that is about one server where others run on three, too.
pub(crate) const ONE: &str = "one";
/// The tag of a scenario that has three servers in any run.
pub(crate) const THREE: &str = "three";
/// Where to write it down.
const FILE_VARIABLE: &str = "TIDINGS_FEATURES_JSON";

/// Listens to the run.
#[derive(Default)]
pub(crate) struct Report {
    /// Nothing is told or written down.
    is_silent: bool,
    began: Option<Instant>,
    /// Features that cannot be read.
    errors: Vec<String>,
    /// By file, then by line.
    features: BTreeMap<String, FeatureReport>,
    running: Vec<(Source<gherkin::Scenario>, Running)>,
}

#[derive(Serialize)]
struct FeatureReport {
    file: String,
    name: String,
    about: String,
    #[serde(serialize_with = "values")]
    scenarios: BTreeMap<usize, ScenarioReport>,
}

#[derive(Serialize)]
struct ScenarioReport {
    line: usize,
    name: String,
    state: State,
    seconds: f64,
    reason: Option<String>,
    problem: Option<String>,
    log: Option<String>,
    steps: Vec<StepReport>,
}

#[derive(Serialize)]
struct StepReport {
    keyword: String,
    text: String,
    state: StepState,
    seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Passed,
    Failed,
    Pending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum StepState {
    Passed,
    Failed,
    Undefined,
    Left,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Pending => "pending",
        }
    }
}

impl ScenarioReport {
    /// A line, and more where something is wrong.
    fn tell(&self, file: &str) {
        println!("{:<7} {file}:{} {}", self.state.word(), self.line, self.name);
        if self.state == State::Failed {
            let lines = self.problem.iter().chain(&self.log).flat_map(|text| text.lines());
            lines.for_each(|line| println!("        {line}"));
        }
    }
}

/// A scenario that has not ended.
struct Running {
    began: Instant,
    step_began: Instant,
    steps: Vec<StepReport>,
    /// What went wrong first.
    trouble: Option<Trouble>,
    log: Option<String>,
}

enum Trouble {
    /// A step, or what is looked at after all steps.
    Failed(String),
    /// Nobody has written this step.
    Undefined(String),
}

fn values<S: serde::Serializer>(of: &BTreeMap<usize, ScenarioReport>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.values())
}

impl writer::Normalized for Report {}

impl Writer<World> for Report {
    type Cli = cli::Empty;

    async fn handle_event(&mut self, event: parser::Result<Event<Cucumber<World>>>, _: &cli::Empty) {
        let began = *self.began.get_or_insert_with(Instant::now);
        match event.map(Event::into_inner) {
            Err(error) => self.errors.push(error.to_string()),
            Ok(Cucumber::Feature(feature, Feature::Scenario(scenario, event))) => {
                self.take(&feature, None, scenario, event);
            }
            Ok(Cucumber::Feature(feature, Feature::Rule(rule, Rule::Scenario(scenario, event)))) => {
                self.take(&feature, Some(&rule), scenario, event);
            }
            Ok(Cucumber::Finished) => self.write_down(began.elapsed()),
            Ok(_) => {}
        }
    }
}

impl Report {
    /// One that keeps what came of the scenarios to itself.
    pub(crate) fn silent() -> Self {
        Self { is_silent: true, ..Self::default() }
    }

    /// The names of the scenarios with what came of them.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&str, &str)> {
        let scenarios = self.features.values().flat_map(|feature| feature.scenarios.values());
        scenarios.map(|scenario| (scenario.name.as_str(), scenario.state.word()))
    }

    /// Sums up; a failure is one of the process as well.
    pub(crate) fn finish(self) -> ExitCode {
        let count = |state| {
            let scenarios = self.features.values().flat_map(|feature| feature.scenarios.values());
            scenarios.filter(|scenario| scenario.state == state).count()
        };
        let [passed, failed, pending] = [State::Passed, State::Failed, State::Pending].map(count);
        self.errors.iter().for_each(|error| println!("unreadable: {error}"));
        println!("{passed} passed, {failed} failed, {pending} pending");
        let is_good = failed == 0 && self.errors.is_empty() && passed > 0;
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn take(
        &mut self,
        feature: &gherkin::Feature,
        rule: Option<&gherkin::Rule>,
        scenario: Source<gherkin::Scenario>,
        event: RetryableScenario<World>,
    ) {
        let now = Instant::now();
        match event.event {
            Scenario::Started => self.running.push((scenario, Running::new(now))),
            Scenario::Finished => {
                let place = self.running.iter().position(|(running, _)| *running == scenario);
                let (_, running) = self.running.swap_remove(place.expect("what ends has begun"));
                self.end(feature, rule, &scenario, running, now);
            }
            event => {
                let running = self.running.iter_mut().find(|(running, _)| *running == scenario);
                running.expect("what happens has begun").1.take(event, now);
            }
        }
    }

    fn end(
        &mut self,
        feature: &gherkin::Feature,
        rule: Option<&gherkin::Rule>,
        scenario: &gherkin::Scenario,
        running: Running,
        now: Instant,
    ) {
        let tags = [Some(&feature.tags), rule.map(|rule| &rule.tags), Some(&scenario.tags)];
        let mut tags = tags.into_iter().flatten().flatten();
        let tag = tags.find_map(|tag| [PENDING, UNWRITTEN].into_iter().find(|known| tag == known));
        let reason = words(scenario.description.as_deref());
        let (state, problem) = match flaw(tag, reason.as_deref(), feature, scenario) {
            Some(flaw) => (State::Failed, Some(flaw.to_owned())),
            None => judge(tag, running.trouble),
        };
        let file = file(feature);
        let line = scenario.position.line;
        let mut steps = running.steps;
        let backgrounds = [feature.background.as_ref(), rule.and_then(|rule| rule.background.as_ref())];
        let all = backgrounds.into_iter().flatten().flat_map(|background| &background.steps).chain(&scenario.steps);
        let left = all.skip(steps.len()).map(|step| StepReport::new(step, StepState::Left, Duration::ZERO));
        steps.extend(left);
        let report = ScenarioReport {
            line,
            name: scenario.name.clone(),
            state,
            seconds: (now - running.began).as_secs_f64(),
            reason,
            problem,
            log: running.log.filter(|_| state == State::Failed),
            steps,
        };
        let of_file = self.features.entry(file.clone()).or_insert_with(|| FeatureReport {
            file,
            name: feature.name.clone(),
            about: words(feature.description.as_deref()).unwrap_or_default(),
            scenarios: BTreeMap::new(),
        });
        if !self.is_silent {
            report.tell(&of_file.file);
        }
        of_file.scenarios.insert(line, report);
    }

    fn write_down(&self, took: Duration) {
        let Some(path) = std::env::var_os(FILE_VARIABLE).filter(|_| !self.is_silent) else { return };
        let features: Vec<&FeatureReport> = self.features.values().collect();
        let json = serde_json::json!({ "seconds": took.as_secs_f64(), "errors": self.errors, "features": features });
        let written = std::fs::write(&path, json.to_string());
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", Path::new(&path).display()));
    }
}

impl Running {
    fn new(now: Instant) -> Self {
        Self { began: now, step_began: now, steps: Vec::new(), trouble: None, log: None }
    }

    fn take(&mut self, event: Scenario<World>, now: Instant) {
        match event {
            Scenario::Background(step, event) | Scenario::Step(step, event) => self.take_step(&step, event, now),
            Scenario::Hook(_, Hook::Failed(world, info)) => {
                self.log = self.log.take().or_else(|| world.and_then(|world| world.log_end()));
                self.trouble.get_or_insert_with(|| Trouble::Failed(said(&info)));
            }
            _ => {}
        }
    }

    fn take_step(&mut self, step: &gherkin::Step, event: Step<World>, now: Instant) {
        let state = match event {
            Step::Started => {
                self.step_began = now;
                return;
            }
            Step::Passed(..) => StepState::Passed,
            Step::Skipped => {
                self.trouble = Some(Trouble::Undefined(format!("{}{}", step.keyword, step.value)));
                StepState::Undefined
            }
            Step::Failed(_, _, world, error) => {
                let error = match error {
                    StepError::Panic(info) => said(&info),
                    other => other.to_string(),
                };
                self.trouble = Some(Trouble::Failed(format!("{}{}\n{error}", step.keyword, step.value)));
                self.log = world.and_then(|world| world.log_end());
                StepState::Failed
            }
        };
        self.steps.push(StepReport::new(step, state, now - self.step_began));
    }
}

impl StepReport {
    fn new(step: &gherkin::Step, state: StepState, took: Duration) -> Self {
        let keyword = step.keyword.trim().to_owned();
        Self { keyword, text: step.value.clone(), state, seconds: took.as_secs_f64() }
    }
}

/// The place of a scenario on the page, and the name of the folder of its pictures.
pub(crate) fn place(feature: &gherkin::Feature, scenario: &gherkin::Scenario) -> String {
    format!("{}-{}", file(feature), scenario.position.line)
}

fn file(feature: &gherkin::Feature) -> String {
    feature.path.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
}

/// The words below a name, on one line.
fn words(description: Option<&str>) -> Option<String> {
    let words = description?.split_whitespace().collect::<Vec<_>>().join(" ");
    (!words.is_empty()).then_some(words)
}

/// Why the result of a scenario would mean nothing, however it ended.
fn flaw(
    tag: Option<&str>,
    reason: Option<&str>,
    feature: &gherkin::Feature,
    scenario: &gherkin::Scenario,
) -> Option<&'static str> {
    let background = feature.background.as_ref().and_then(|background| background.description.as_deref());
    if !scenario.steps.iter().any(|step| step.ty == gherkin::StepType::Then) {
        return Some("it promises nothing: it has no Then");
    }
    let stays_on_one = scenario.tags.iter().any(|tag| tag == ONE);
    match (tag, reason) {
        (Some(_), None) => Some("it is pending and does not say why: write the reason below its name"),
        (None, None) if stays_on_one => Some("it stays on one server and does not say why: write it below its name"),
        // Gherkin takes a line that begins with no keyword for such words, not for a step.
        (None, Some(_)) if !stays_on_one => Some(
            "only what is pending, or stays on one server, has words below its name; or is its first step misspelt?",
        ),
        _ if words(background).is_some() => Some("the Background has words below it; or is its first step misspelt?"),
        _ => None,
    }
}

/// What a scenario's end makes of it, and what is to be said about that. `tag` is [`PENDING`], [`UNWRITTEN`] or none. A step
/// that nobody has written fails the scenario without the latter, so that a misspelt step is not taken for a missing one.
fn judge(tag: Option<&str>, trouble: Option<Trouble>) -> (State, Option<String>) {
    match (tag, trouble) {
        (None, None) => (State::Passed, None),
        (Some(tag), None) => (State::Failed, Some(format!("it passes: take away its tag @{tag}"))),
        (None, Some(Trouble::Failed(why))) => (State::Failed, Some(why)),
        (Some(UNWRITTEN), Some(Trouble::Undefined(step))) => {
            (State::Pending, Some(format!("not automated yet: {step}")))
        }
        (_, Some(Trouble::Undefined(step))) => (State::Failed, Some(format!("nobody has written this step: {step}"))),
        (Some(UNWRITTEN), Some(Trouble::Failed(why))) => {
            (State::Failed, Some(format!("it fails before it comes to a step that nobody has written: {why}")))
        }
        (Some(_), Some(Trouble::Failed(why))) => (State::Pending, Some(format!("not kept yet: {why}"))),
    }
}

/// What somebody said in panic.
fn said(info: &event::Info) -> String {
    let text = info.downcast_ref::<String>().cloned();
    text.or_else(|| info.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "a panic".to_owned())
}
