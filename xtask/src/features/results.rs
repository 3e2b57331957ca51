//! The results of a run of the features, as the test writes them in JSON, and their coverage.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The results of a run.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) seconds: f64,
    /// Why features could not be read.
    pub(super) errors: Vec<String>,
    pub(super) features: Vec<Feature>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Feature {
    pub(super) file: String,
    pub(super) name: String,
    /// The description.
    pub(super) about: String,
    pub(super) scenarios: Vec<Scenario>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Scenario {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) state: State,
    pub(super) seconds: f64,
    /// Why a pending scenario is pending, in its own words.
    pub(super) reason: Option<String>,
    /// What is wrong; for a pending scenario, what is missing.
    pub(super) problem: Option<String>,
    /// The end of the server's log.
    pub(super) log: Option<String>,
    pub(super) steps: Vec<Step>,
    /// What the screen showed when a step failed; not part of the results, see [`super::pictures`].
    #[serde(skip)]
    pub(super) pictures: Vec<Picture>,
}

/// A picture, or why it is not shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Picture {
    /// The bytes of a PNG file in Base64.
    Png(String),
    LeftOut(String),
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Step {
    pub(super) keyword: String,
    pub(super) text: String,
    pub(super) state: StepState,
    pub(super) seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Passed,
    Failed,
    Pending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StepState {
    Passed,
    Failed,
    /// Nobody has written it.
    Undefined,
    /// The step did not run.
    Left,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Pending => "pending",
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) pending: usize,
}

impl Counts {
    pub(super) fn of<'a>(scenarios: impl Iterator<Item = &'a Scenario>) -> Self {
        scenarios.fold(Self::default(), |mut counts, scenario| {
            match scenario.state {
                State::Passed => counts.passed += 1,
                State::Failed => counts.failed += 1,
                State::Pending => counts.pending += 1,
            }
            counts
        })
    }

    pub(super) fn total(self) -> usize {
        self.passed + self.failed + self.pending
    }

    /// The percentage that is automated, whatever came of it; rounded down: 100 only if nothing is pending.
    pub(super) fn coverage(self) -> usize {
        100 * (self.passed + self.failed) / self.total().max(1)
    }
}

/// The status at one glance.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, pending } = self;
        write!(f, "{passed} passed, {failed} failed, {pending} pending, coverage {} %", self.coverage())
    }
}

impl Run {
    pub(super) fn counts(&self) -> Counts {
        Counts::of(self.features.iter().flat_map(|feature| &feature.scenarios))
    }

    /// Ends the names of all features and of their files with this; a file's without spaces, as links on the page name it.
    pub(super) fn rename(&mut self, suffix: &str) {
        for Feature { file, name, .. } in &mut self.features {
            *file += &suffix.replace(' ', "-");
            *name += suffix;
        }
    }

    pub(super) fn failed(&self) -> impl Iterator<Item = (&Feature, &Scenario)> {
        let all = self.features.iter().flat_map(|feature| feature.scenarios.iter().map(move |one| (feature, one)));
        all.filter(|(_, scenario)| scenario.state == State::Failed)
    }
}

impl Feature {
    pub(super) fn counts(&self) -> Counts {
        Counts::of(self.scenarios.iter())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run with one scenario of each kind.
    pub(in super::super) fn mixed() -> Run {
        serde_json::from_str(
            r#"{"seconds": 12.34, "errors": [], "features": [
                {"file": "push.feature", "name": "Push", "about": "One, & in <time>.", "scenarios": [
                    {"line": 4, "name": "A phone is pushed", "state": "passed", "seconds": 0.25, "problem": null,
                     "log": null, "steps": [
                        {"keyword": "Then", "text": "it is pushed", "state": "passed", "seconds": 0.2}]},
                    {"line": 9, "name": "A goal is quick", "state": "failed", "seconds": 2.0,
                     "problem": "Then it is quick\nit took <9> ms", "log": "INFO & more", "steps": [
                        {"keyword": "Given", "text": "a goal", "state": "passed", "seconds": 0.1},
                        {"keyword": "Then", "text": "it is quick", "state": "failed", "seconds": 1.9},
                        {"keyword": "And", "text": "nothing else", "state": "left", "seconds": 0}]}]},
                {"file": "live.feature", "name": "Live", "about": "", "scenarios": [
                    {"line": 3, "name": "A slow app", "state": "pending", "seconds": 0.0, "reason": "Nothing is thinned out.",
                     "problem": "not automated yet: Given a slow line", "log": null, "steps": [
                        {"keyword": "Given", "text": "a slow line", "state": "undefined", "seconds": 0}]}]}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_run_on_three_servers_has_names_of_its_own() {
        let mut run = mixed();
        run.rename(" on three servers");
        let names = run.features.iter().map(|feature| (feature.file.as_str(), feature.name.as_str()));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                ("push.feature-on-three-servers", "Push on three servers"),
                ("live.feature-on-three-servers", "Live on three servers"),
            ]
        );
    }

    #[test]
    fn a_pending_scenario_is_not_covered_and_a_failed_one_is() {
        let counts = mixed().counts();
        assert_eq!(counts, Counts { passed: 1, failed: 1, pending: 1 });
        assert_eq!((counts.total(), counts.coverage()), (3, 66), "two of three are automated");
        assert_eq!(Counts { passed: 199, failed: 0, pending: 1 }.coverage(), 99, "not rounded up to all");
        assert_eq!(counts.to_string(), "1 passed, 1 failed, 1 pending, coverage 66 %");
        assert_eq!(Counts::default().coverage(), 0);
    }
}
