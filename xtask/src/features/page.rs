//! The HTML page of a run: an overview on top, then feature by feature the promises and their results.
//!
//! The page is one file without external parts: it can be kept, sent, and opened years later. All text of the run is
//! escaped, so none of it becomes markup.

use super::results::{Counts, Feature, Run, Scenario, State, Step, StepState};

const STYLE: &str = "
:root { color-scheme: light dark; --passed: #2e7d4f; --failed: #c0392b; --pending: #8a8f98; --line: #8884; --dim: #808890; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto 4rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 0; }
p { margin: .25rem 0 .75rem; }
.verdict { font-size: 1.6rem; font-weight: 600; margin: .75rem 0 .25rem; }
.bar { display: flex; height: .75rem; border-radius: 3px; overflow: hidden; margin: .5rem 0; }
.bar i { display: block; }
.dim, .time { color: var(--dim); }
.time { float: right; font-variant-numeric: tabular-nums; margin-left: 1rem; }
.passed { color: var(--passed); } .failed { color: var(--failed); } .pending { color: var(--pending); }
i.passed { background: var(--passed); } i.failed { background: var(--failed); } i.pending { background: var(--pending); }
details { border-top: 1px solid var(--line); padding: .3rem 0; }
summary { cursor: pointer; }
summary b { display: inline-block; width: 4.5rem; font-size: .8rem; }
ol { list-style: none; margin: .25rem 0 .5rem; padding: 0 0 0 4.5rem; }
.keyword { display: inline-block; width: 3.5rem; color: var(--dim); }
li.left { color: var(--dim); }
pre { margin: .25rem 0 .5rem 4.5rem; padding: .5rem .75rem; overflow-x: auto; white-space: pre-wrap; font-size: .85rem;
  background: #8881; }
pre.problem { border-left: 3px solid; }
";

pub(super) fn page(run: &Run) -> String {
    let counts = run.counts();
    let verdict = match (counts.failed, run.errors.is_empty()) {
        (_, false) => ("failed", "Features cannot be read".to_owned()),
        (0, true) => ("passed", "Every promise that is tried holds".to_owned()),
        (1, true) => ("failed", "1 scenario fails".to_owned()),
        (count, true) => ("failed", format!("{count} scenarios fail")),
    };
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{percent} % covered, {failed} failed: Tidings</title>\n<style>{STYLE}</style>\n\
         <h1>What Tidings promises</h1>\n<p class=\"verdict {class}\">{verdict}</p>\n",
        percent = counts.coverage(),
        failed = counts.failed,
        class = verdict.0,
        verdict = verdict.1,
    );
    write_overview(&mut out, run, counts);
    for error in &run.errors {
        out += &format!("<pre class=\"problem failed\">{}</pre>\n", text(error));
    }
    write_failures(&mut out, run);
    run.features.iter().for_each(|feature| write_feature(&mut out, feature));
    out
}

fn write_overview(out: &mut String, run: &Run, counts: Counts) {
    let Counts { passed, failed, pending } = counts;
    let parts = [("passed", passed), ("failed", failed), ("pending", pending)];
    let total = counts.total();
    let label = format!("{passed} of {total} scenarios covered ({} %)", counts.coverage());
    *out += &format!("<div class=\"bar\" role=\"img\" aria-label=\"{label}\">");
    for (class, count) in parts.into_iter().filter(|(_, count)| *count > 0) {
        *out += &format!("<i class=\"{class}\" style=\"flex:{count}\" title=\"{count} {class}\"></i>");
    }
    *out += &format!("</div>\n<p>{label}: ");
    let words = parts.map(|(class, count)| format!("<span class=\"{class}\">{count} {class}</span>")).join(", ");
    *out += &format!("{words}. <span class=\"dim\">Run in {:.1} s.</span></p>\n", run.seconds);
}

/// Links to the failed scenarios.
fn write_failures(out: &mut String, run: &Run) {
    let all = run.features.iter().flat_map(|feature| feature.scenarios.iter().map(move |one| (feature, one)));
    for (feature, scenario) in all.filter(|(_, scenario)| scenario.state == State::Failed) {
        let (anchor, name) = (text(&anchor(feature, scenario)), text(&scenario.name));
        *out += &format!("<p><a class=\"failed\" href=\"#{anchor}\">{}: {name}</a></p>\n", text(&feature.name));
    }
}

fn write_feature(out: &mut String, feature: &Feature) {
    let Counts { passed, failed, pending } = feature.counts();
    let class = if failed > 0 { "failed" } else { "dim" };
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let pending = if pending > 0 { format!(", {pending} pending") } else { String::new() };
    *out += &format!(
        "<h2>{} <small class=\"{class}\">{passed} passed{failed}{pending}</small></h2>\n<p>{}</p>\n",
        text(&feature.name),
        text(&feature.about)
    );
    feature.scenarios.iter().for_each(|scenario| write_scenario(out, feature, scenario));
}

fn write_scenario(out: &mut String, feature: &Feature, scenario: &Scenario) {
    let (class, open) = match scenario.state {
        State::Passed => ("passed", ""),
        State::Failed => ("failed", " open"),
        State::Pending => ("pending", ""),
    };
    *out += &format!(
        "<details id=\"{}\"{open}>\n<summary><b class=\"{class}\">{class}</b> {}{}</summary>\n<ol>\n",
        text(&anchor(feature, scenario)),
        text(&scenario.name),
        time(scenario.seconds)
    );
    scenario.steps.iter().for_each(|step| write_step(out, step));
    out.push_str("</ol>\n");
    if let Some(problem) = &scenario.problem {
        *out += &format!("<pre class=\"problem {class}\">{}</pre>\n", text(problem));
    }
    if let Some(log) = &scenario.log {
        *out += &format!("<pre class=\"log\">{}</pre>\n", text(log));
    }
    out.push_str("</details>\n");
}

fn write_step(out: &mut String, step: &Step) {
    let (class, mark) = match step.state {
        StepState::Passed => ("passed", "✓"),
        StepState::Failed => ("failed", "✗"),
        StepState::Undefined => ("pending", "?"),
        StepState::Left => ("left", "·"),
    };
    let took = if step.state == StepState::Left { String::new() } else { time(step.seconds) };
    *out += &format!(
        "<li class=\"{class}\">{mark} <span class=\"keyword\">{}</span> {}{took}</li>\n",
        text(&step.keyword),
        text(&step.text)
    );
}

/// The time, unless it is very short.
fn time(seconds: f64) -> String {
    if seconds < 0.01 { String::new() } else { format!("<span class=\"time\">{seconds:.2} s</span>") }
}

fn anchor(feature: &Feature, scenario: &Scenario) -> String {
    format!("{}-{}", feature.file, scenario.line)
}

/// Escapes text for HTML: between tags, or in a quoted attribute.
fn text(raw: &str) -> String {
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
    use super::super::results::tests::mixed;
    use super::*;

    #[test]
    fn the_verdict_and_the_coverage_come_first() {
        let page = page(&mixed());
        let top = &page[page.find("<h1>").unwrap()..page.find("<h2>").unwrap()];
        assert!(top.contains("<p class=\"verdict failed\">1 scenario fails</p>"), "{top}");
        assert!(top.contains("1 of 3 scenarios covered (33 %)") && top.contains("Run in 12.3 s."), "{top}");
        assert!(top.contains("href=\"#push.feature-9\">Push: A goal is quick</a>"), "{top}");
        let mut good = mixed();
        good.features.remove(0);
        assert!(super::page(&good).contains("<p class=\"verdict passed\">Every promise that is tried holds</p>"));
        let unreadable = Run { errors: vec!["a < b".to_owned()], ..good };
        let page = super::page(&unreadable);
        assert!(page.contains("verdict failed\">Features cannot be read") && page.contains("a &lt; b"), "{page}");
    }

    /// The `details` element of a scenario.
    fn scenario<'a>(page: &'a str, id: &str) -> &'a str {
        let from = page.find(&format!("<details id=\"{id}\"")).expect("the page has the scenario");
        &page[from..from + page[from..].find("</details>").unwrap()]
    }

    #[test]
    fn a_failed_scenario_is_open_with_its_error_and_log() {
        let page = page(&mixed());
        let failed = scenario(&page, "push.feature-9");
        assert!(failed.starts_with("<details id=\"push.feature-9\" open>"), "{failed}");
        assert!(failed.contains(
            "<li class=\"failed\">✗ <span class=\"keyword\">Then</span> it is quick<span class=\"time\">1.90 s"
        ));
        assert!(failed.contains("<li class=\"left\">· <span class=\"keyword\">And</span> nothing else</li>"));
        assert!(failed.contains("<pre class=\"problem failed\">Then it is quick\nit took &lt;9&gt; ms</pre>"));
        assert!(failed.contains("<pre class=\"log\">INFO &amp; more</pre>"));
    }

    #[test]
    fn a_pending_scenario_is_closed_and_names_what_is_missing() {
        let page = page(&mixed());
        let pending = scenario(&page, "live.feature-3");
        assert!(pending.starts_with("<details id=\"live.feature-3\">"), "{pending}");
        assert!(pending.contains("<b class=\"pending\">pending</b> A slow app</summary>"), "{pending}");
        assert!(
            pending.contains("<li class=\"pending\">? ") && pending.contains("not automated yet: Given a slow line")
        );
        let passed = scenario(&page, "push.feature-4");
        assert!(!passed.contains("open>") && !passed.contains("<pre"), "{passed}");
        assert!(passed.contains("<b class=\"passed\">passed</b>"), "{passed}");
    }

    #[test]
    fn text_is_escaped_and_the_page_has_no_external_parts() {
        let mut run = mixed();
        let evil = "<script>\"'&</script>";
        let feature = &mut run.features[0];
        (feature.name, feature.about, feature.file) = (evil.to_owned(), evil.to_owned(), evil.to_owned());
        let scenario = &mut feature.scenarios[1];
        (scenario.name, scenario.problem, scenario.log) =
            (evil.to_owned(), Some(evil.to_owned()), Some(evil.to_owned()));
        (scenario.steps[0].text, scenario.steps[0].keyword) = (evil.to_owned(), evil.to_owned());
        let page = page(&run);
        assert!(!page.contains("<script") && !page.contains("\"'&<"), "{page}");
        assert_eq!(page.matches("&lt;script&gt;&quot;&#39;&amp;&lt;/script&gt;").count(), 12);
        assert!(!page.contains("http") && !page.contains("url(") && !page.contains("src="), "{page}");
    }
}
