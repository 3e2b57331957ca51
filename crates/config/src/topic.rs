//! Topics and names as templates, with what translators should know; and the relations between their settings.

use std::collections::BTreeSet;

use tidings_gettext::{Message, Plural, SourceText, Template, TemplateError};
use tidings_types::{Present, TopicName, event_limits as limits};

use super::field::bare_or_quoted;
use super::sections::{Names, Topic, TopicPresent, ValueTexts};

impl Topic {
    /// The title, ready to be translated.
    pub fn title_template(&self) -> Result<Template, TemplateError> {
        self.template(&self.title, self.title_plural.as_deref(), |texts| (&texts.title, &texts.title_plural))
    }

    /// The body, ready to be translated.
    pub fn body_template(&self) -> Result<Template, TemplateError> {
        self.template(&self.body, self.body_plural.as_deref(), |texts| (&texts.body, &texts.body_plural))
    }

    /// Both texts with what translators should know, and behind each the same for each of its values. `name` is the topic's.
    ///
    /// # Errors
    /// If a text is not a template. A checked configuration has none such.
    pub fn messages(&self, name: &TopicName) -> Result<Vec<Message>, TemplateError> {
        let message = |template, part: &str, length_max: u32| Message {
            comment: self.comment.clone(),
            length_max: (length_max > 0).then_some(length_max as usize),
            ..Message::new(template, format!("{name}.{part}"))
        };
        let title = message(self.title_template()?, "title", self.title_max);
        let body = message(self.body_template()?, "body", self.body_max);
        Ok([title, body].into_iter().flat_map(Message::with_values).collect())
    }

    fn template(
        &self,
        singular: &str,
        plural: Option<&str>,
        of_value: impl Fn(&ValueTexts) -> (&Option<String>, &Option<String>),
    ) -> Result<Template, TemplateError> {
        let plural = plural.zip(self.count.as_deref()).map(|(msgid_plural, count)| Plural { msgid_plural, count });
        let template = Template::new(self.context.as_deref(), singular, plural)?;
        let Some(select) = &self.select else { return Ok(template) };
        let values = self.values.iter().map(|value| {
            let (text, plural) = self.texts.get(value).map_or((&None, &None), &of_value);
            let text = text.as_deref().map(|msgid| SourceText { msgid, msgid_plural: plural.as_deref() });
            (value.as_str(), text)
        });
        template.select(select, values)
    }

    /// What is wrong with the settings of `select`, by setting.
    pub(super) fn select_problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut problem = |setting: &str, rule: &str| problems.push((setting.to_owned(), rule.to_owned()));
        match (&self.select, self.values.is_empty()) {
            (Some(_), true) => problem("values", "is missing: name the values of `select` that may have another text"),
            (None, false) => problem("values", "needs `select`: name the parameter that has one of these values"),
            _ => {}
        }
        if let Some(value) = doubled(&self.values) {
            problem("values", &format!("has {value:?} twice: remove one of them"));
        }
        for (value, texts) in &self.texts {
            let setting = format!("texts.{}", bare_or_quoted(value));
            if !self.values.contains(value) {
                problem(&setting, "is not among `values`: add it there, or remove it");
            }
            let ValueTexts { title, body, title_plural, body_plural } = texts;
            for (name, text, plural) in [("title", title, title_plural), ("body", body, body_plural)] {
                if text.is_none() && plural.is_some() {
                    problem(&format!("{setting}.{name}_plural"), &format!("needs `{name}`"));
                }
            }
        }
        problems
    }
}

impl TopicPresent {
    /// As an event has it.
    pub fn to_present(&self) -> Present {
        let Self { sound, category, interruption, android_channel } = self.clone();
        Present { sound, category, interruption, android_channel, ..Present::default() }
    }
}

impl Names {
    /// The names with what translators should know, and behind each the same for each case.
    ///
    /// # Errors
    /// If a name cannot be translated. A checked configuration has none such.
    pub fn messages(&self, context: &str) -> Result<Vec<Message>, TemplateError> {
        let messages = |name: &String| {
            let Message { mut template, reference, length_max, .. } = Message::of_name(name, Some(context))?;
            if !self.cases.is_empty() {
                template = template.select("case", self.cases.iter().map(|case| (case.as_str(), None)))?;
            }
            Ok(Message { template, reference, comment: self.comment.clone(), length_max }.with_values())
        };
        let messages: Vec<_> = self.values.iter().map(messages).collect::<Result<_, TemplateError>>()?;
        Ok(messages.into_iter().flatten().collect())
    }

    /// What is wrong with the cases of names with this context.
    pub(super) fn case_problems(&self, context: &str) -> Vec<String> {
        let doubled = doubled(&self.cases).map(|case| format!("has {case:?} twice: remove one of them"));
        let max = limits::PARAM_CONTEXT_BYTES_MAX;
        let long = self.cases.iter().find(|case| context.len() + 1 + case.len() > max);
        let long = long.map(|case| format!("{context}|{case} has more than {max} bytes, which no event may have"));
        let name = Names { values: vec!["a name".to_owned()], ..self.clone() };
        let wrong = name.messages(context).err().map(|error| error.to_string());
        doubled.into_iter().chain(long).chain(wrong).collect()
    }
}

/// The first text that is there twice.
fn doubled(texts: &[String]) -> Option<&String> {
    let mut known = BTreeSet::new();
    texts.iter().find(|text| !known.insert(*text))
}
