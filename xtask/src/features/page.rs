//! The HTML page of a run, for people who do not program: an overview, what needs somebody's attention, then feature by
//! feature the promises with their results.
//!
//! The page is one file without external parts: it can be kept, sent, and opened years later. All text of the run is
//! escaped, so none of it becomes markup.

use std::fmt::Write as _;

use super::history::Record;
use super::report::Report;
use super::results::{Counts, Feature, Picture, Scenario, State, Step, StepState};

const STYLE: &str = include_str!("style.css");

/// Writes into the page; a `String` takes everything.
macro_rules! put {
    ($out:expr, $($words:tt)*) => { let _ = write!($out, $($words)*); };
}

pub(super) fn page(report: &Report) -> String {
    let counts = report.run.counts();
    let (class, verdict) = verdict(report, counts);
    let mut out = String::new();
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{counts}: Tidings</title>\n<style>{STYLE}</style>\n\
         <h1>What Tidings promises</h1>\n<p class=\"verdict {class}\">{verdict}</p>\n"
    );
    write_overview(&mut out, report, counts);
    write_attention(&mut out, report);
    write_table(&mut out, report);
    report.run.features.iter().for_each(|feature| write_feature(&mut out, report, feature));
    out
}

fn verdict(report: &Report, counts: Counts) -> (&'static str, String) {
    match (report.run.errors.is_empty(), counts.failed, counts.passed) {
        (false, _, _) => ("failed", "Features cannot be read".to_owned()),
        (true, 0, 0) => ("failed", "Nothing was tried".to_owned()),
        (true, 0, _) => ("passed", "Every promise that is tried holds".to_owned()),
        (true, 1, _) => ("failed", "1 promise does not hold".to_owned()),
        (true, count, _) => ("failed", format!("{count} promises do not hold")),
    }
}

fn write_overview(out: &mut String, report: &Report, counts: Counts) {
    let Counts { passed, failed, pending } = counts;
    let coverage = counts.coverage();
    out.push_str("<ul class=\"figures\">");
    for (class, count) in [("passed", passed), ("failed", failed), ("pending", pending)] {
        let color = if count == 0 { "none" } else { class };
        put!(out, "<li class=\"{color}\"><b>{count}</b> {class}</li>");
    }
    put!(out, "<li><b>{coverage} %</b> coverage</li></ul>\n{}\n", bar(counts));
    put!(
        out,
        "<p class=\"dim\">Each line below is a promise, tried on the real program. Coverage is the share of all promises that \
         are tried. A pending promise is not tried yet, or not kept yet, and says why.</p>\n<p class=\"dim\">{}. The run took \
         {:.1} s. {}</p>\n",
        text(&report.record().told()),
        report.run.seconds,
        history(report),
    );
}

fn history(report: &Report) -> String {
    let (runs, damaged) = (report.history.runs.len(), report.history.damaged);
    let runs = if runs == 1 {
        "This is the first run in the history.".to_owned()
    } else {
        format!("The history has {runs} runs.")
    };
    match damaged {
        0 => runs,
        1 => format!("{runs} 1 damaged line of it was skipped."),
        count => format!("{runs} {count} damaged lines of it were skipped."),
    }
}

fn bar(Counts { passed, failed, pending }: Counts) -> String {
    let parts = [("passed", passed), ("failed", failed), ("pending", pending)];
    let parts = parts.into_iter().filter(|(_, count)| *count > 0);
    let parts: String =
        parts.map(|(class, count)| format!("<i class=\"{class}\" style=\"flex:{count}\"></i>")).collect();
    format!("<div class=\"bar\" aria-hidden=\"true\">{parts}</div>")
}

/// What does not hold, what fails now and then, and what is pending.
fn write_attention(out: &mut String, report: &Report) {
    for error in &report.run.errors {
        put!(out, "<pre class=\"problem failed\">{}</pre>\n", text(error));
    }
    let link = |feature: &Feature, scenario: &Scenario| {
        let (at, names) = (anchor(feature, scenario), format!("{}: {}", feature.name, scenario.name));
        format!("<a href=\"#{}\">{}</a>", text(&at), text(&names))
    };
    let mut block = |class: &str, lines: String| {
        if !lines.is_empty() {
            put!(out, "<div class=\"attention {class}\">{lines}</div>\n");
        }
    };
    block("failed", report.run.failed().map(|(feature, one)| format!("<p>{}</p>", link(feature, one))).collect());
    let line = |feature: &Feature, scenario: &Scenario, why: &str| {
        format!("<p>{} <span>– {}</span></p>", link(feature, scenario), text(why))
    };
    block("flaky", report.habits().map(|(feature, one, habit)| line(feature, one, &habit.to_string())).collect());
    let pending = report.run.features.iter().flat_map(|feature| {
        let pending = feature.scenarios.iter().filter(|scenario| scenario.state == State::Pending);
        pending.map(move |one| line(feature, one, one.reason.as_deref().unwrap_or_default()))
    });
    block("pending", pending.collect());
}

fn write_table(out: &mut String, report: &Report) {
    out.push_str("<table><thead><tr><th>Feature<th>passed<th>failed<th>pending</tr></thead><tbody>\n");
    for feature in &report.run.features {
        let Counts { passed, failed, pending } = feature.counts();
        let cell = |class: &str, count: usize| match count {
            0 => "<td class=\"dim\">0".to_owned(),
            count => format!("<td class=\"{class}\">{count}"),
        };
        put!(
            out,
            "<tr><td><a href=\"#{}\">{}</a>{}{}{}</tr>\n",
            text(&feature.file),
            text(&feature.name),
            cell("passed", passed),
            cell("failed", failed),
            cell("pending", pending)
        );
    }
    out.push_str("</tbody></table>\n");
}

fn write_feature(out: &mut String, report: &Report, feature: &Feature) {
    let (id, name, about) = (text(&feature.file), text(&feature.name), text(&feature.about));
    put!(out, "<h2 id=\"{id}\">{name}</h2>\n<p>{about}</p>\n{}\n", bar(feature.counts()));
    feature.scenarios.iter().for_each(|scenario| write_scenario(out, report, feature, scenario));
}

fn write_scenario(out: &mut String, report: &Report, feature: &Feature, scenario: &Scenario) {
    let class = scenario.state.word();
    let open = if scenario.state == State::Failed { " open" } else { "" };
    let habit = report.habit(feature, scenario);
    put!(
        out,
        "<details id=\"{}\"{open}>\n<summary>{}<span class=\"state {class}\">{class}</span> {}",
        text(&anchor(feature, scenario)),
        time(scenario.seconds),
        text(&scenario.name),
    );
    if let Some(habit) = &habit {
        put!(out, " <small class=\"flaky\">{}</small>", text(&habit.word()));
    }
    put!(out, "{}</summary>\n", marks(&report.marks(feature, scenario)));
    if let Some(reason) = &scenario.reason {
        put!(out, "<p class=\"reason\">{}</p>\n", text(reason));
    }
    if let Some(habit) = habit {
        put!(out, "<p class=\"flaky\">{}</p>\n", text(&habit.to_string()));
    }
    out.push_str("<ol>\n");
    scenario.steps.iter().for_each(|step| write_step(out, scenario, step));
    out.push_str("</ol>\n");
    // Of a failed step it stands at the step.
    if let Some(problem) = &scenario.problem
        && !scenario.steps.iter().any(|step| step.state == StepState::Failed)
    {
        put!(out, "<pre class=\"problem {class}\">{}</pre>\n", text(problem));
        scenario.pictures.iter().for_each(|picture| write_picture(out, picture));
    }
    if let Some(log) = &scenario.log {
        put!(
            out,
            "<details><summary class=\"dim\">The end of the server's log</summary><pre>{}</pre></details>\n",
            text(log)
        );
    }
    out.push_str("</details>\n");
}

/// The last results, a mark each. What failed says when.
fn marks(marks: &[(&Record, Option<State>)]) -> String {
    let count = |state| marks.iter().filter(|(_, it)| *it == Some(state)).count();
    let (passed, failed) = (count(State::Passed), count(State::Failed));
    let marks: String = marks
        .iter()
        .map(|(run, state)| match state {
            Some(State::Failed) => format!("<i class=\"failed\" title=\"failed: {}\"></i>", text(&run.told())),
            Some(state) => format!("<i class=\"{}\"></i>", state.word()),
            None => "<i></i>".to_owned(),
        })
        .collect();
    format!(
        "<span class=\"marks\" role=\"img\" aria-label=\"last runs: {passed} passed, {failed} failed\">{marks}</span>"
    )
}

fn write_step(out: &mut String, scenario: &Scenario, step: &Step) {
    let (class, mark) = match step.state {
        StepState::Passed => ("passed", "✓"),
        StepState::Failed => ("failed", "✗"),
        StepState::Undefined => ("pending", "?"),
        StepState::Left => ("left", "·"),
    };
    let took = if step.state == StepState::Left { String::new() } else { time(step.seconds) };
    let (keyword, words) = (text(&step.keyword), text(&step.text));
    put!(out, "<li class=\"{class}\">{took}{mark} <span class=\"keyword\">{keyword}</span> {words}</li>\n");
    if step.state == StepState::Failed {
        let state = scenario.state.word();
        scenario.problem.iter().for_each(|problem| {
            put!(out, "<pre class=\"problem {state}\">{}</pre>\n", text(problem));
        });
        scenario.pictures.iter().for_each(|picture| write_picture(out, picture));
    }
}

fn write_picture(out: &mut String, picture: &Picture) {
    match picture {
        Picture::Png(base64) => {
            put!(out, "<img alt=\"the screen when the step failed\" src=\"data:image/png;base64,{base64}\">\n");
        }
        Picture::LeftOut(why) => {
            put!(out, "<p class=\"dim\">{}</p>\n", text(why));
        }
    }
}

/// The time, unless it is very short.
fn time(seconds: f64) -> String {
    if seconds < 0.01 { String::new() } else { format!("<span class=\"time\">{seconds:.2} s</span>") }
}

fn anchor(feature: &Feature, scenario: &Scenario) -> String {
    format!("{}-{}", feature.file, scenario.line)
}

/// Escapes text for HTML or XML: between tags, or in a quoted attribute.
pub(super) fn text(raw: &str) -> String {
    raw.chars().fold(String::with_capacity(raw.len()), |mut out, letter| {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::super::results::Run;
    use super::*;

    #[test]
    fn the_verdict_and_the_coverage_come_first() {
        let page = page(&report());
        let top = &page[page.find("<h1>").unwrap()..page.find("<table>").unwrap()];
        assert!(top.contains("<p class=\"verdict failed\">1 promise does not hold</p>"), "{top}");
        assert!(top.contains("<b>1</b> pending") && top.contains("<b>66 %</b> coverage"), "{top}");
        assert!(
            top.contains("2026-11-27 05:30 UTC, 5f62eeb. The run took 12.3 s. The history has 2 runs. 2 damaged lines")
        );
        assert!(
            top.contains("<div class=\"attention failed\"><p><a href=\"#push.feature-9\">Push: A goal is quick</a>")
        );
        assert!(page.contains("<title>1 passed, 1 failed, 1 pending, coverage 66 %: Tidings</title>"));
        let mut good = report();
        good.run.features[0].scenarios.remove(1);
        let shown = super::page(&good);
        assert!(shown.contains("<p class=\"verdict passed\">Every promise that is tried holds</p>"));
        assert!(!shown.contains("attention failed") && !shown.contains("attention flaky"), "{shown}");
        assert!(shown.contains("A slow app</a> <span>– Nothing is thinned out.</span></p></div>"), "{shown}");
        good.run = Run { errors: vec!["a < b".to_owned()], ..good.run };
        let page = super::page(&good);
        assert!(page.contains("verdict failed\">Features cannot be read") && page.contains("a &lt; b"), "{page}");
        good.run = Run { errors: Vec::new(), features: Vec::new(), ..good.run };
        assert!(super::page(&good).contains("verdict failed\">Nothing was tried"));
    }

    /// The `details` element of a scenario.
    fn scenario<'a>(page: &'a str, id: &str) -> &'a str {
        let from = page.find(&format!("<details id=\"{id}\"")).expect("the page has the scenario");
        let length = page[from + 1..].find("<details id=").unwrap_or(page.len() - from - 1);
        &page[from..=from + length]
    }

    #[test]
    fn a_failed_scenario_is_open_with_the_error_at_its_step_and_its_log() {
        let page = page(&report());
        let failed = scenario(&page, "push.feature-9");
        assert!(failed.starts_with("<details id=\"push.feature-9\" open>"), "{failed}");
        let step = "1.90 s</span>✗ <span class=\"keyword\">Then</span> it is quick</li>\n\
                    <pre class=\"problem failed\">Then it is quick\nit took &lt;9&gt; ms</pre>";
        assert!(failed.contains(step), "{failed}");
        assert!(failed.contains("<li class=\"left\">· <span class=\"keyword\">And</span> nothing else</li>"));
        assert!(failed.contains("<pre>INFO &amp; more</pre>"));
    }

    #[test]
    fn a_pending_scenario_is_closed_and_says_why() {
        let page = page(&report());
        let pending = scenario(&page, "live.feature-3");
        assert!(pending.starts_with("<details id=\"live.feature-3\">"), "{pending}");
        assert!(pending.contains("<span class=\"state pending\">pending</span> A slow app"), "{pending}");
        assert!(pending.contains("<p class=\"reason\">Nothing is thinned out.</p>"), "{pending}");
        assert!(
            pending.contains("<li class=\"pending\">? ") && pending.contains("not automated yet: Given a slow line")
        );
        let passed = scenario(&page, "push.feature-4");
        assert!(!passed.contains("open>") && !passed.contains("<pre"), "{passed}");
        assert!(passed.contains("<span class=\"state passed\">passed</span>"), "{passed}");
    }

    #[test]
    fn the_last_runs_and_a_habit_are_shown() {
        let page = page(&report());
        let failed = scenario(&page, "push.feature-9");
        assert!(
            failed.contains("aria-label=\"last runs: 1 passed, 1 failed\"><i class=\"passed\"></i><i class=\"failed\"")
        );
        assert!(failed.contains("title=\"failed: 2026-11-27 05:30 UTC, 5f62eeb\""), "{failed}");
        assert!(failed.contains("<small class=\"flaky\">flaky</small>"), "{failed}");
        assert!(page.contains("– flaky: it passed and failed with the same commit 5f62eeb</span>"));
        assert!(!scenario(&page, "push.feature-4").contains("flaky"));
    }

    #[test]
    fn pictures_stand_at_the_failed_step() {
        let mut report = report();
        report.run.features[0].scenarios[1].pictures =
            vec![Picture::Png("QUJD".to_owned()), Picture::LeftOut("b<.png is no PNG".to_owned())];
        let page = page(&report);
        let after = "it took &lt;9&gt; ms</pre>\n<img alt=\"the screen when the step failed\" \
                     src=\"data:image/png;base64,QUJD\">\n<p class=\"dim\">b&lt;.png is no PNG</p>\n<li class=\"left\">";
        assert!(scenario(&page, "push.feature-9").contains(after), "{page}");
    }

    #[test]
    fn text_is_escaped_and_the_page_has_no_external_parts() {
        let mut report = report();
        let evil = "<script>\"'&</script>";
        let feature = &mut report.run.features[0];
        (feature.name, feature.about, feature.file) = (evil.to_owned(), evil.to_owned(), evil.to_owned());
        let scenario = &mut feature.scenarios[1];
        (scenario.name, scenario.problem, scenario.log, scenario.reason) =
            (evil.to_owned(), Some(evil.to_owned()), Some(evil.to_owned()), Some(evil.to_owned()));
        (scenario.steps[0].text, scenario.steps[0].keyword) = (evil.to_owned(), evil.to_owned());
        report.history.runs[1].commit = Some(evil.to_owned());
        let page = page(&report);
        assert!(!page.contains("<script") && !page.contains("\"'&<"), "{page}");
        assert!(page.matches("&lt;script&gt;&quot;&#39;&amp;&lt;/script&gt;").count() > 12, "{page}");
        assert!(!page.contains("http") && !page.contains("url(") && !page.contains("src="), "{page}");
    }
}
