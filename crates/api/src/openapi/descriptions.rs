//! What fields mean that their schemas do not say themselves: one text for each name, or for a name in one component.

use serde_json::{Map, Value};

/// The component (`*`: any), the property, what it means.
const DESCRIPTIONS: &[(&str, &str, &str)] = &[
    ("AudienceCounts", "total", "Devices that the event would be for."),
    ("CentrifugoAnswer", "error", "Why the method was not done."),
    ("CentrifugoAnswer", "replies", "The answers of `batch`, in the order of its commands."),
    ("CentrifugoAnswer", "result", "What the method gives."),
    ("Credential", "credential", "The secret that the app proves the device with; told this once."),
    ("Devices", "devices", "The devices of this page."),
    ("Erased", "devices", "How many devices were forgotten."),
    ("Estimate", "devices", "Devices of the audience that it pushes to."),
    ("ExplainedPart", "devices", "Devices that this part means."),
    ("ExplainedPart", "text", "The part, as the selector spells it."),
    ("ExplainedSelector", "devices", "Devices that the selector means."),
    ("Payload", "data", "What the app gets beside the notification, as text."),
    ("Place", "channel", "Where it was published."),
    ("Problem", "detail", "For people: the field's path, the rule with its limit, the value."),
    ("Problem", "title", "What the type means, in words."),
    ("Problem", "status", "The status of the answer."),
    ("Problem", "limit", "The limit that is not kept."),
    ("Receipts", "users", "Users whose clients have proven to have it; a part of them where there are many."),
    ("Recipients", "devices", "These devices, whatever they are subscribed to."),
    ("Recipients", "users", "All devices of these users, whatever they are subscribed to."),
    ("Recipients", "selector", "The devices that it means."),
    ("ScheduledEvents", "events", "The events of this page."),
    ("UserExport", "devices", "All devices of the user."),
    ("*", "accepted", "The provider took them."),
    ("*", "accepted_at", "When it was acknowledged."),
    ("*", "added", "Subscriptions that are new."),
    ("*", "app", "The application: its bundle id, or the name of the web app."),
    ("*", "apps", "Only devices with one of these apps."),
    ("*", "at", "When it is due, or, of an import, when it last went on."),
    ("*", "audience", "Devices that were selected."),
    ("*", "auth", "A secret of the browser's."),
    ("*", "body", "Text of the notification."),
    ("*", "brakes", "What is held."),
    ("*", "by", "The same apart by provider, app and language."),
    ("*", "by_app", "Devices by app."),
    ("*", "by_country", "Devices by country."),
    ("*", "by_locale", "Devices by language."),
    ("*", "by_platform", "Devices by platform."),
    ("*", "cancelled", "The event was called off before their turn."),
    ("*", "channels", "Where it is published live; without it where `events.channels` of the configuration says."),
    ("*", "code", "For programs, as Centrifugo has it."),
    ("*", "collapse_key", "An event takes the place of an older one with the same key."),
    ("*", "countries", "Only devices of these countries."),
    ("*", "country", "The device's country, two letters."),
    ("*", "created", "Devices that are new."),
    ("*", "detail", "For people."),
    ("*", "done_at", "When every device had its outcome."),
    ("*", "endpoint", "Where the browser's push service takes messages."),
    ("*", "environment", "Of Apple's two worlds; others have `production` alone."),
    ("*", "epoch", "Another one says that the history before is lost."),
    ("*", "estimate", "How long pushing would take, by provider."),
    ("*", "expect_audience", "How many devices it must be for."),
    ("*", "expired", "Their time was over before a provider took them."),
    ("*", "exported_at", "When it was read."),
    ("*", "filter", "Who of the audience is pushed."),
    ("*", "first_ms", "Milliseconds until the first device had its answer."),
    ("*", "held", "Devices that may still prove live that they have it, and wait unpushed."),
    ("*", "id", "The name that its owner gave."),
    ("*", "interruption", "How loudly an iPhone shows it."),
    ("*", "jobs", "The jobs of this page."),
    ("*", "keys", "What messages to the browser are encrypted with."),
    ("*", "lines", "Lines of the import that are done."),
    ("*", "locale", "The language of its user, or of the text."),
    ("*", "locales", "Only devices of these languages; `pt` holds `pt-BR`."),
    ("*", "message", "For people."),
    ("*", "mutes", "What it does not want to be told."),
    ("*", "next", "What to ask for to get the next page; absent on the last one."),
    ("*", "of", "Devices that are registered."),
    ("*", "offset", "Its place in the channel."),
    ("*", "outcomes", "Devices by what became of them."),
    ("*", "p100_ms", "Milliseconds until all devices had their answer."),
    ("*", "p256dh", "The browser's public key."),
    ("*", "p50_ms", "Milliseconds until half of the devices had their answer."),
    ("*", "p90_ms", "Milliseconds until 90 % of the devices had their answer."),
    ("*", "p99_ms", "Milliseconds until 99 % of the devices had their answer."),
    ("*", "parts", "Its parts, where it has some."),
    ("*", "paused_at", "Since when."),
    ("*", "paused_by", "The brake that holds it."),
    ("*", "payload", "Changes to what each provider is given."),
    ("*", "platform", "What kind of device it is."),
    ("*", "platforms", "Only devices of these kinds."),
    ("*", "pool", "The section's name in the configuration."),
    ("*", "present", "How the notification is shown."),
    ("*", "priority", "Before which other events it is sent."),
    ("*", "problem", "What is wrong."),
    ("*", "provider", "Who delivers."),
    ("*", "push", "Who of the audience is pushed: those who have not proven live that they have it, all, or nobody."),
    ("*", "push_permission", "Whether its user lets the app show notifications."),
    ("*", "receipt_policy", "Which proof keeps from being pushed: of an app that is on the screen, or of any."),
    ("*", "receipts", "Of connections that were asked for a receipt."),
    ("*", "received", "Those that proved over a live connection that they have it."),
    ("*", "rejected", "The provider refused them for good, by its word for why; docs/outcomes.md explains each."),
    ("*", "removed", "Subscriptions that are gone."),
    ("*", "scope", "What is meant: `everything`, or a part."),
    ("*", "selector", "Devices in words."),
    ("*", "state", "Where it stands; docs/outcomes.md explains each."),
    ("*", "status", "How it is."),
    ("*", "store", "Whether it takes writes."),
    ("*", "listeners", "Where it listens."),
    ("*", "providers", "How it stands with each provider."),
    ("*", "subject", "What it is about, `kind:key`."),
    ("*", "subjects", "What it is about; who subscribed to one of them with the topic is its audience."),
    ("*", "subscribed", "Subscriptions that are new."),
    ("*", "subscriptions", "What it is subscribed to."),
    ("*", "superseded", "A newer event with the same `collapse_key` took its place."),
    ("*", "suppressed", "They were not handed to a provider, by why; docs/outcomes.md explains each."),
    ("*", "text", "Texts of its own."),
    ("*", "time_to", "How long after it was accepted devices had their answers; absent before the first."),
    ("*", "time_zone", "Its time zone, as the IANA database calls it."),
    ("*", "to", "For whom it is, instead of who subscribed."),
    ("*", "token", "Where its provider reaches it."),
    ("*", "topic", "Which kind of event."),
    ("*", "topics", "Which kinds of event."),
    ("*", "tree", "What each part of it means."),
    ("*", "unknown", "They were sent, and the answer never came."),
    ("*", "unmuted", "Of these, devices that have not muted everything."),
    ("*", "until", "When it ends by itself."),
    ("*", "updated", "Devices that were known."),
    ("*", "urgency", "How urgently a phone that saves its battery is told."),
    ("*", "user", "Whose it is."),
    ("*", "warnings", "What is probably not meant; absent without any."),
    ("*", "web_push", "Where a browser is reached."),
    ("*", "written", "Connections that were written it and asked for a receipt."),
];

/// Describes every property that has no description of its own, in all components.
pub(super) fn describe(schemas: &mut Map<String, Value>) {
    for (component, schema) in schemas {
        describe_properties(component, schema);
    }
}

fn describe_properties(component: &str, schema: &mut Value) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        describe_properties(component, property);
        if let Some(items) = property.get_mut("items") {
            describe_properties(component, items);
        }
        let Some(property) = property.as_object_mut() else { continue }; // `false`: it may not be there.
        if !property.contains_key("description")
            && let Some(text) = meaning(component, name)
        {
            property.insert("description".to_owned(), text.into());
        }
    }
}

fn meaning(component: &str, property: &str) -> Option<&'static str> {
    let of = |component: &str| {
        let found = DESCRIPTIONS.iter().find(|(of, name, _)| (*of, *name) == (component, property));
        found.map(|(_, _, text)| *text)
    };
    of(component).or_else(|| of("*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undescribed(component: &str, schema: &Value, found: &mut Vec<String>) {
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            undescribed(component, property, found);
            undescribed(component, &property["items"], found);
            if property.is_object() && property.get("description").is_none() && property.get("const").is_none() {
                found.push(format!("{component}.{name}"));
            }
        }
    }

    #[test]
    fn every_field_says_what_it_means() {
        let document = super::super::tests::made();
        let mut found = Vec::new();
        for (component, schema) in document["components"]["schemas"].as_object().unwrap() {
            undescribed(component, schema, &mut found);
        }
        assert!(found.is_empty(), "{} fields without a description: {found:?}", found.len());
    }

    #[test]
    fn no_description_is_there_twice() {
        let mut keys: Vec<_> = DESCRIPTIONS.iter().map(|(component, name, _)| (component, name)).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
