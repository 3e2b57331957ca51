//! What is written is read, what is read is written, and what is refused says where.

use proptest::prelude::*;
use proptest::sample::select;

use super::tree::*;
use super::*;
use crate::{AppId, Country, Locale, Platform, Subject, TopicName, UserId};

const TOPICS: [&str; 6] = ["goal", "red_card", "user", "all", "on", "not"];
const SUBJECTS: [&str; 5] = ["team:42", "a:b c\"\\", "match:ü", "team:(1,2)", "user:42"];
const USERS: [&str; 7] = ["42", "none", "None", "and", "a\"b\\", "(x)", "="];
const COUNTRIES: [&str; 4] = ["DE", "IN", "OR", "NO"];
const LOCALES: [&str; 4] = ["pt", "pt-BR", "or", "in"];

fn list<T: Clone + fmt::Debug + 'static>(items: Vec<T>) -> impl Strategy<Value = Vec<T>> {
    let count = items.len();
    proptest::sample::subsequence(items, 1..=count).prop_shuffle()
}

fn subject(text: &str) -> Subject {
    // Of the names above, those that are none: a subject has no space and no umlaut.
    Subject::new(text).unwrap_or_else(|_| Subject::new("x:\"\\").unwrap())
}

fn leaf() -> impl Strategy<Value = SelectorNode> {
    let topics = list(TOPICS.map(|text| TopicName::new(text).unwrap()).to_vec());
    let mut subjects: Vec<_> = SUBJECTS.map(subject).to_vec();
    subjects.dedup();
    let users = [None].into_iter().chain(USERS.map(|text| Some(UserId::new(text).unwrap()))).collect();
    let countries = [None].into_iter().chain(COUNTRIES.map(|text| Some(Country::new(text).unwrap()))).collect();
    prop_oneof![
        1 => Just(SelectorNode::All),
        4 => (prop::option::weighted(0.8, topics), list(subjects))
            .prop_map(|(topics, subjects)| SelectorNode::Subscribed { topics, subjects }),
        1 => list(Platform::ALL.to_vec()).prop_map(SelectorNode::Platform),
        1 => list(USERS.map(|text| AppId::new(text).unwrap()).to_vec()).prop_map(SelectorNode::App),
        1 => list(countries).prop_map(SelectorNode::Country),
        1 => list(LOCALES.map(|text| Locale::new(text).unwrap()).to_vec()).prop_map(SelectorNode::Locale),
        1 => list(users).prop_map(SelectorNode::User),
    ]
}

/// A tree as the parser makes them.
fn node() -> impl Strategy<Value = SelectorNode> {
    leaf().prop_recursive(6, 24, 4, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|node| SelectorNode::Not(Box::new(node))),
            some().prop_map(|nodes| {
                let flat = nodes.into_iter().flat_map(|node| match node {
                    SelectorNode::And(more) => more,
                    node => vec![node],
                });
                only_or(flat.collect(), SelectorNode::And)
            }),
            some().prop_map(|nodes| {
                let flat = nodes.into_iter().flat_map(|node| match node {
                    SelectorNode::Or(more) => more,
                    node => vec![node],
                });
                only_or(flat.collect(), SelectorNode::Or)
            }),
        ]
    })
}

fn only_or(mut nodes: Vec<SelectorNode>, join: fn(Vec<SelectorNode>) -> SelectorNode) -> SelectorNode {
    if nodes.len() == 1 { nodes.remove(0) } else { join(nodes) }
}

/// Writes a tree as nobody would: every choice that the language leaves is made by the next of `choices`.
struct Sloppy<'a> {
    choices: std::iter::Cycle<std::slice::Iter<'a, u8>>,
    text: String,
}

impl Sloppy<'_> {
    fn choose(&mut self, count: u8) -> u8 {
        self.choices.next().unwrap() % count
    }

    /// White space where two words meet, and anywhere else when chosen.
    fn put(&mut self, piece: &str) {
        let is_word =
            |char: Option<char>| char.is_some_and(|char| char.is_ascii_graphic() && !"()\",=!*".contains(char));
        let must = is_word(self.text.chars().last()) && is_word(piece.chars().next());
        let spaces = ["", " ", "\n", "\t \r\n"];
        let chosen = match self.choose(4) {
            0 if must => 1,
            chosen => chosen,
        };
        self.text.push_str(spaces[usize::from(chosen)]);
        self.text.push_str(piece);
    }

    fn word(&mut self, word: &str) {
        match self.choose(3) {
            0 => self.put(word),
            1 => self.put(&word.to_uppercase()),
            _ => self.put(&format!("{}{}", word[..1].to_uppercase(), &word[1..])),
        }
    }

    fn name(&mut self, name: &str, clashes: fn(&str) -> bool) {
        let needs_quotes = clashes(name) || !name.bytes().all(is_bare);
        if needs_quotes || self.choose(3) == 0 {
            self.put(&format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")));
        } else {
            self.put(name);
        }
    }

    fn list<T>(&mut self, items: &[T], parentheses: bool, write: impl Fn(&mut Self, &T)) {
        if parentheses {
            self.put("(");
        }
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.put(",");
            }
            write(self, item);
            if parentheses && self.choose(4) == 0 {
                self.put(","); // Named twice.
                write(self, item);
            }
        }
        if parentheses {
            self.put(")");
        }
    }

    fn comparison<T>(&mut self, key: &str, negated: bool, values: &[T], write: impl Fn(&mut Self, &T)) {
        self.word(key);
        let is_list = values.len() > 1 || self.choose(2) == 0;
        match (is_list, negated) {
            (true, true) => ["not", "in"].iter().for_each(|word| self.word(word)),
            (true, false) => self.word("in"),
            (false, true) => self.put("!="),
            (false, false) => self.put("="),
        }
        self.list(values, is_list, write);
    }

    /// Whether it was a comparison, and thus written.
    fn compared(&mut self, node: &SelectorNode, negated: bool) -> bool {
        let none = |name: &str| name.eq_ignore_ascii_case("none");
        match node {
            SelectorNode::Platform(of) => self.comparison("platform", negated, of, |it, one| it.put(one.as_str())),
            SelectorNode::App(of) => self.comparison("app", negated, of, |it, one| it.name(one.as_str(), none)),
            SelectorNode::Locale(of) => self.comparison("locale", negated, of, |it, one| {
                let underscored = one.as_str().replace('-', "_");
                it.put(&underscored);
            }),
            SelectorNode::Country(of) => self.comparison("country", negated, of, |it, one| match one {
                None => it.word("none"),
                Some(one) => it.name(one.as_str(), none),
            }),
            SelectorNode::User(of) => self.comparison("user", negated, of, |it, one| match one {
                None => it.word("none"),
                Some(one) => it.name(one.as_str(), none),
            }),
            _ => return false,
        }
        true
    }

    /// `binding` of what is around: 0 nothing, 1 `or`, 2 `and`, 3 `not`.
    fn node(&mut self, node: &SelectorNode, around: u8) {
        let binding = match node {
            SelectorNode::Or(_) => 1,
            SelectorNode::And(_) => 2,
            _ => 3,
        };
        let parentheses = binding < around || self.choose(5) == 0;
        if parentheses {
            self.put("(");
        }
        match node {
            SelectorNode::All => self.word("all"),
            SelectorNode::Subscribed { topics, subjects } => {
                match topics {
                    None => self.put("*"),
                    Some(topics) => {
                        let is_list = topics.len() > 1 || self.choose(3) == 0;
                        self.list(topics, is_list, |it, topic| it.name(topic.as_str(), is_reserved));
                    }
                }
                self.word("on");
                let is_list = subjects.len() > 1 || self.choose(3) == 0;
                self.list(subjects, is_list, |it, subject| it.name(subject.as_str(), |_| false));
            }
            SelectorNode::Not(inner) => {
                if self.choose(2) == 0 || !self.compared(inner, true) {
                    self.word("not");
                    self.node(inner, 3);
                }
            }
            SelectorNode::And(all) => self.joined(all, "and", 2),
            SelectorNode::Or(any) => self.joined(any, "or", 1),
            leaf => assert!(self.compared(leaf, false)),
        }
        if parentheses {
            self.put(")");
        }
    }

    fn joined(&mut self, nodes: &[SelectorNode], word: &str, binding: u8) {
        // The same with some of them in parentheses.
        let grouped = if nodes.len() > 2 { self.choose(2) * 2 } else { 0 };
        let (group, rest) = nodes.split_at(usize::from(grouped));
        if !group.is_empty() {
            self.put("(");
            self.joined(group, word, binding);
            self.put(")");
        }
        for (index, node) in rest.iter().enumerate() {
            if index > 0 || !group.is_empty() {
                self.word(word);
            }
            self.node(node, binding);
        }
    }
}

/// Whatever the text is: no panic; a tree that its canonical form gives again, or an error within the text.
fn check_any(text: &str) {
    match text.parse::<Selector>() {
        Ok(selector) => {
            let canonical = selector.to_string();
            assert!(canonical.len() <= selector_limits::BYTES_MAX);
            let again: Selector = canonical.parse().unwrap_or_else(|error| panic!("{canonical}: {error}"));
            assert_eq!((&again, again.to_string()), (&selector, canonical));
            let json = serde_json::to_string(&selector).unwrap();
            assert_eq!(serde_json::from_str::<Selector>(&json).unwrap(), selector);
        }
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.position), "{error} in {text:?}");
            let before = text.get(..error.span.start).unwrap();
            assert_eq!(before.chars().count() + 1, error.position);
            assert!(text.get(error.span.clone()).is_some());
            assert_eq!(error.span.is_empty(), error.span.start == text.len(), "{error} in {text:?}");
        }
    }
}

proptest! {
    #[test]
    fn the_canonical_form_is_read_as_the_same_tree(node in node()) {
        let text = node.to_string();
        prop_assume!(text.len() <= selector_limits::BYTES_MAX);
        match text.parse::<Selector>() {
            Ok(selector) => prop_assert_eq!(selector.root(), &node, "{}", text),
            Err(SelectorError { problem: SelectorProblem::Limit { what: "names" | "subjects of `* on`", .. }, .. }) => {}
            Err(error) => prop_assert!(false, "{error}: {text}"),
        }
        check_any(&text);
    }

    #[test]
    fn white_space_capitals_quotes_and_parentheses_too_many_change_nothing(
        node in node(),
        choices in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let mut sloppy = Sloppy { choices: choices.iter().cycle(), text: String::new() };
        sloppy.node(&node, 0);
        match sloppy.text.parse::<Selector>() {
            Ok(selector) => prop_assert_eq!(selector.root(), &node, "{}", sloppy.text),
            Err(SelectorError { problem: SelectorProblem::Limit { .. }, .. }) => {}
            Err(error) => prop_assert!(false, "{error}: {}", sloppy.text),
        }
    }

    #[test]
    fn any_row_of_words_is_read_or_refused_within_the_text(
        words in prop::collection::vec(
            select(vec![
                "and", "or", "not", "on", "in", "all", "none", "(", ")", ",", "=", "!=", "*", "\"", "\\", "!", "ü",
                "goal", "team:42", "user", "country", "platform", "ios", "DE", "\"x:y\"", "\"\\\"", "\n", "locale",
                "pt", "\u{1b}",
            ]),
            0..40,
        ),
        spaced in any::<bool>(),
    ) {
        check_any(&words.join(if spaced { " " } else { "" }));
    }

    #[test]
    fn any_text_is_read_or_refused_within_the_text(text in any::<String>()) {
        check_any(&text);
    }

    #[test]
    fn a_selector_cut_anywhere_is_read_or_refused_within_the_text(node in node(), cut in any::<prop::sample::Index>()) {
        let text = node.to_string();
        let end = cut.index(text.len() + 1);
        prop_assume!(text.is_char_boundary(end));
        check_any(&text[..end]);
    }
}

#[track_caller]
fn canonical(text: &str) -> String {
    check_any(text);
    text.parse::<Selector>().unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

#[test]
fn not_binds_tightest_then_and_then_or() {
    for (text, expected) in [
        ("all or all and all", "all or all and all"),
        ("all or (all and all)", "all or all and all"),
        ("(all or all) and all", "(all or all) and all"),
        ("not all and all", "not all and all"),
        ("not (all and all)", "not (all and all)"),
        ("(not all) or not not all", "not all or not not all"),
        ("((all or all) or (all or all))", "all or all or all or all"),
        (
            "user = 1 or user not in (none, 2, 2) and app != \"none\"",
            "user = 1 or not user in (none, 2) and not app = \"none\"",
        ),
        ("(goal) on (team:42, team:42)", "goal on team:42"),
        ("\"on\" on team:42 and user on team:42", "\"on\" on team:42 and user on team:42"),
        ("country in (IN) and locale = or", "country = IN and locale = or"),
        ("LOCALE = pt_br", "locale = pt-BR"),
    ] {
        assert_eq!(canonical(text), expected);
    }
}

#[test]
fn a_refusal_says_where_what_and_what_instead() {
    for (text, expected) in [
        ("goal team:42", "at character 6: expected `on`, found `team:42`"),
        ("platfrom = ios", "at character 1: expected platform, app, country, locale or user, found `platfrom`"),
        ("platform = windows", "at character 12: platform must be ios, android or web, got \"windows\""),
        ("country = de", "at character 11: country must be two letters A-Z (ISO 3166-1), got \"de\""),
        ("app = none", "at character 7: expected an app, found `none`"),
        ("user = ü", "at character 8: expected a user or none, found `ü`"),
        ("user not 42", "at character 10: expected `in`, found `42`"),
        ("user in 42", "at character 9: expected `(`, found `42`"),
        ("user in (42 43)", "at character 13: expected `,` or `)`, found `43`"),
        ("(all, goal) on team:42", "at character 2: expected a topic (quotes make one of this word), found `all`"),
        ("(all or all", "at character 12: expected `and`, `or` or `)`, found the end"),
        ("all on team:42", "at character 5: expected `and`, `or` or the end, found `on`"),
        ("user = \"a\" and user = \"b", "at character 25: expected a closing `\"`, found the end"),
        ("user = \"a\\n\"", "at character 10: expected `\\\"` or `\\\\`, found `\\n`"),
        ("all \u{1b}", "at character 5: expected `and`, `or` or the end, found `\u{fffd}`"),
    ] {
        let error = text.parse::<Selector>().unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
        check_any(text);
    }
    for (text, position, found) in [("", 1, "the end"), ("ü", 1, "`ü`"), ("not and", 5, "`and`")] {
        let error = text.parse::<Selector>().unwrap_err();
        assert_eq!(error.to_string(), format!("at character {position}: expected {}, found {found}", parse::TERM));
    }
}

#[test]
fn the_examples_of_the_documentation_are_selectors() {
    const PAGE: &str = include_str!("../../../../docs/selectors.md");
    let section = |title: &str| PAGE.split("\n## ").find(|section| section.starts_with(title)).unwrap();
    let quoted = |cell: &'static str| cell.trim().strip_prefix('`')?.strip_suffix('`');
    let column = |title, index| section(title).lines().filter_map(move |line| quoted(line.split('|').nth(index)?));
    let mut examples: Vec<&str> = column("What can be said", 1).chain(column("Examples", 2)).collect();
    examples.extend(PAGE.split("```text\n").nth(1).and_then(|rest| rest.lines().next()));
    assert!(examples.len() > 15, "{examples:?}");
    for text in examples {
        assert_eq!(canonical(text), text, "examples are in canonical form");
    }
}

#[track_caller]
fn check_limit(within: &str, beyond: &str, expected: &str) {
    check_any(within);
    check_any(beyond);
    if let Err(error) = within.parse::<Selector>() {
        panic!("{error}");
    }
    assert_eq!(beyond.parse::<Selector>().unwrap_err().to_string(), expected);
}

#[test]
fn limits_are_exact_and_named() {
    let deep = |count: usize| format!("{}all{}", "(".repeat(count), ")".repeat(count));
    check_limit(&deep(14), &deep(15), "at character 15: depth must be at most 14, got 15");
    let not = |count: usize| format!("{}user = 1", "not ".repeat(count));
    check_limit(&not(14), &not(15), "at character 57: depth must be at most 14, got 15");
    let unequal = |count: usize| format!("{}user != 1", "not ".repeat(count));
    check_limit(&unequal(13), &unequal(14), "at character 62: depth must be at most 14, got 15");
    check_any(&"(".repeat(selector_limits::BYTES_MAX));

    let users = |count: usize| format!("user in ({})", vec!["1"; count].join(","));
    check_limit(&users(256), &users(257), "at character 522: names must be at most 256, got 257");
    let none = |count: usize| format!("user in ({})", vec!["none"; count].join(","));
    check_limit(&none(256), &none(257), "at character 1290: names must be at most 256, got 257");

    let alls = |count: usize| vec!["all"; count].join(" or ");
    check_limit(&alls(256), &alls(257), "at character 1793: names must be at most 256, got 257");

    let stars = |count: usize| format!("* on x:1 or goal on x:2 or * on ({})", vec!["x:1"; count].join(","));
    check_limit(&stars(15), &stars(16), "at character 94: subjects of `* on` must be at most 16, got 17");

    let padded = |bytes: usize| format!("{:>bytes$}", "all");
    check_limit(&padded(4096), &padded(4097), "at character 4097: bytes must be at most 4096, got 4097");
    // Short as it is written, its canonical form would not be read again.
    let distinct = |count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!("{index:014}")).collect();
        format!("user in({})", names.join(","))
    };
    check_limit(
        &distinct(255),
        &distinct(256),
        "at character 3849: bytes of the canonical form must be at most 4096, got 4104",
    );
}
