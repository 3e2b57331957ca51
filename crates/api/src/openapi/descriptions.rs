//! What fields mean that their schemas do not say themselves: one text for each name, or for a name in one component.

use serde_json::{Map, Value};

/// The component (`*`: any), the property, what it means.
const DESCRIPTIONS: &[(&str, &str, &str)] = &[
    ("AudienceCounts", "total", "Devices in the event's audience."),
    ("AuditLog", "entries", "The entries of this page."),
    ("CentrifugoAnswer", "error", "Why the method failed."),
    ("CentrifugoAnswer", "replies", "The answers of `batch`, in the order of its commands."),
    ("CentrifugoAnswer", "result", "The result of the method."),
    ("Credential", "credential", "The secret with which the app proves the device; no later answer has it."),
    ("Devices", "devices", "The devices of this page."),
    ("Erased", "devices", "The number of deleted devices."),
    ("Estimate", "devices", "Devices of the audience that this pool pushes to."),
    ("ExplainedPart", "devices", "Devices that this part selects."),
    ("ExplainedPart", "text", "The part, as the selector spells it."),
    ("ExplainedSelector", "devices", "Devices that the selector selects."),
    ("Feed", "errors", "The newest entries that cannot be sent."),
    ("Feed", "last", "The entries of the last document that had any."),
    ("Feed", "total", "All entries since the server started."),
    ("FeedReport", "errors", "The first entries that cannot be sent."),
    ("FeedReport", "reasons", "Why entries were skipped."),
    ("Feeds", "feeds", "All feeds, by name."),
    ("Payload", "data", "Data for the app, besides the notification, as texts."),
    ("Place", "channel", "The channel in which it was published."),
    ("Problem", "detail", "For people: the field's path, the rule with its limit, the value."),
    ("Problem", "title", "The meaning of the type, in words."),
    ("Problem", "status", "The status of the answer."),
    ("Problem", "limit", "The limit that was exceeded."),
    ("Receipts", "users", "Users whose clients have proven to have the event; if there are many, only some of them."),
    ("Recipients", "devices", "These devices, whatever they are subscribed to."),
    ("Recipients", "users", "All devices of these users, whatever they are subscribed to."),
    ("Recipients", "selector", "The devices that this expression selects."),
    ("ScheduledEvents", "events", "The events of this page."),
    ("UserExport", "devices", "All devices of the user."),
    ("ProviderPool", "connect_failures", "Connections that could not be opened."),
    ("ProviderPool", "connections", "Connections that are open."),
    ("ProviderPool", "goaways", "Connections that the provider has asked to end."),
    ("ProviderPool", "outcomes", "Notifications by what became of them."),
    ("ProviderPool", "rejected", "Notifications that were refused for good, by the provider's reason."),
    ("ProviderPool", "repeats", "Attempts beyond the first."),
    (
        "ProviderPool",
        "round_trip_p50_ms",
        "From a request to its answer, in milliseconds: half of them were not slower.",
    ),
    ("ProviderPool", "round_trip_p99_ms", "The same for 99 %."),
    ("ProviderPool", "streams", "Requests without an answer yet."),
    ("ProviderPool", "streams_allowed", "Requests that may be without an answer at a time, over all connections."),
    ("ProviderState", "pools", "Its connections, by push service; those of tokens that were never accepted apart."),
    ("Providers", "providers", "All sections, in the order of providers and names."),
    ("System", "clients", "Live connections."),
    ("System", "connections", "Connections of clients."),
    ("System", "users", "Different users among them."),
    ("System", "channels", "Channels with a reader or a history."),
    ("System", "subscriptions", "Subscriptions: of live connections, or of devices."),
    ("System", "disk", "The disk with the data; absent if it cannot be asked."),
    ("System", "free_bytes", "What can still be written."),
    ("System", "total_bytes", "The size of the disk."),
    ("System", "memory", "What the limits of the configuration allow, term by term."),
    ("System", "process", "What the system knows of the process."),
    ("System", "cpu_seconds", "Processor time since the start."),
    ("System", "open_files", "Files and sockets that are open."),
    ("System", "open_files_max", "How many may be open."),
    ("System", "resident_bytes", "Memory of the process."),
    ("System", "threads", "Threads of the process."),
    ("System", "store", "The durable data."),
    ("System", "batches", "Batches that were written."),
    ("System", "requests", "Requests in these batches."),
    ("System", "checkpoints", "Checkpoints of the device table that were written."),
    ("System", "checkpoints_failed", "Checkpoints that could not be written."),
    ("System", "devices", "Registered devices."),
    ("System", "proven", "Devices whose token a provider has accepted."),
    ("System", "scheduled", "Events that are not due yet."),
    ("System", "failures", "Batches that could not be written."),
    ("System", "reopened", "Times that the store was opened again after a failure."),
    ("System", "overloaded", "Requests that were refused because a queue was full."),
    ("System", "rebuilt", "Times that the store was opened without a usable checkpoint."),
    ("System", "heap_bytes", "Bytes of the files with device records."),
    ("System", "heap_live_bytes", "Bytes of current records in them."),
    ("System", "listeners", "Where the server listens."),
    ("System", "uptime_seconds", "Seconds since the start."),
    ("Texts", "coverage", "How far each of these languages is."),
    (
        "Why",
        "because",
        "Why the device was in the audience or not; what is said of \"now\" may have been different then.",
    ),
    ("Why", "event", "The event."),
    ("Why", "device", "The device."),
    ("Why", "selected", "Whether the device was in the event's audience; absent if that is not known."),
    ("Why", "steps", "What happened, in the order of time."),
    ("Why", "unknown", "What is not known, and why."),
    ("WhyStep", "at", "When it happened, or not before."),
    ("WhyStep", "step", "The kind of step, for programs."),
    ("WhyStep", "text", "What happened, for people."),
    ("WhyStep", "until", "Not after this; absent if `at` is exact."),
    ("WhyUser", "devices", "Each device of the user."),
    ("WhyUser", "event", "The event."),
    ("DeviceEvent", "event", "The event."),
    ("DeviceEvents", "device", "The device."),
    ("DeviceEvents", "events", "Events in whose audience the device was, newest first."),
    (
        "*",
        "reason",
        "Which one of several, for the verdicts `rejected` and `suppressed`; docs/outcomes.md explains each.",
    ),
    ("*", "summary", "The verdict in a sentence, for people."),
    ("*", "verdict", "What became of the device: an outcome, or where it stands."),
    ("*", "accepted", "Devices whose notification the provider accepted."),
    ("*", "accepted_at", "When the event was accepted."),
    ("*", "repeated", "Entries that had been sent before."),
    ("*", "sent", "Entries that were sent as events."),
    ("*", "skipped", "Entries that are not to be sent."),
    ("*", "wrong", "Entries that cannot be sent."),
    ("*", "added", "The number of new subscriptions."),
    ("*", "app", "The app: its bundle id, or the name of the web app."),
    ("*", "apps", "Only devices with one of these apps."),
    ("*", "at", "When the event is due; of an import, when its last progress was."),
    ("*", "audience", "Devices that were selected."),
    ("*", "auth", "The browser's authentication secret."),
    ("*", "body", "Text of the notification."),
    ("*", "brakes", "The pauses that exist."),
    ("*", "by", "The outcomes by provider, app and language."),
    ("*", "by_app", "Devices by app."),
    ("*", "by_country", "Devices by country."),
    ("*", "by_locale", "Devices by language."),
    ("*", "by_platform", "Devices by platform."),
    ("*", "cancelled", "Devices that had not been sent to when the event was cancelled."),
    (
        "*",
        "channels",
        "The channels in which it is published; by default, those that the setting `events.channels` gives.",
    ),
    ("*", "code", "Centrifugo's code of the error, for programs."),
    ("*", "collapse_key", "A newer event replaces an older one with the same key."),
    ("*", "countries", "Only devices of these countries."),
    ("*", "country", "The device's country, two letters."),
    ("*", "created", "The number of new devices."),
    ("*", "detail", "For people."),
    ("*", "done_at", "When every device had its outcome."),
    ("*", "endpoint", "The address of this browser at its push service."),
    ("*", "environment", "Apple has two environments; the other platforms only have `production`."),
    ("*", "epoch", "The life of the history; a different epoch means that the older history is lost."),
    ("*", "estimate", "How long pushing would take, by provider."),
    ("*", "expect_audience", "The number of devices that its audience must have."),
    ("*", "expired", "Devices whose time (`ttl`) was over before a provider accepted the notification."),
    ("*", "exported_at", "When the export was made."),
    ("*", "filter", "The part of the audience that is pushed."),
    ("*", "first_ms", "Milliseconds until the provider's first answer."),
    ("*", "held", "Devices that are not pushed yet, because they may still prove that they got the event live."),
    ("*", "id", "The id that its creator gave it."),
    ("*", "interruption", "How much an iPhone may interrupt its user."),
    ("*", "jobs", "The jobs of this page."),
    ("*", "keys", "The keys with which messages to the browser are encrypted."),
    ("*", "lines", "Lines of the import that are done."),
    ("*", "locale", "The language of the device's user, or of the text."),
    ("*", "locales", "Only devices of these languages; `pt` includes `pt-BR`."),
    ("*", "message", "For people."),
    ("*", "mutes", "What the device does not want to be pushed."),
    ("*", "next", "The `after` or `before` of the next page; absent on the last page."),
    ("*", "of", "All registered devices."),
    ("*", "offset", "Its position in the channel."),
    ("*", "outcomes", "Devices by outcome."),
    ("*", "p100_ms", "Milliseconds until the provider's last answer."),
    ("*", "p256dh", "The browser's public key."),
    ("*", "p50_ms", "Milliseconds until the provider had answered for half of the devices."),
    ("*", "p90_ms", "Milliseconds until the provider had answered for 90 % of the devices."),
    ("*", "p99_ms", "Milliseconds until the provider had answered for 99 % of the devices."),
    ("*", "parts", "Its parts, if it has any."),
    ("*", "paused_at", "Since when it is paused."),
    ("*", "paused_by", "The pause (brake) that holds it."),
    ("*", "payload", "Changes to the payload for each provider."),
    ("*", "platform", "The platform of the device."),
    ("*", "platforms", "Only devices of these platforms."),
    ("*", "pool", "The section's name in the configuration."),
    ("*", "present", "How the notification is shown."),
    ("*", "priority", "Events of a higher priority are sent first."),
    ("*", "problem", "What is wrong."),
    ("*", "provider", "The provider that delivers."),
    (
        "*",
        "push",
        "Which devices of the audience are pushed: those that have not proven that they got the event live, all, or none.",
    ),
    ("*", "push_permission", "Whether the device's user allows notifications."),
    ("*", "receipt_policy", "Which receipt makes a push unnecessary: only that of an app on the screen, or any."),
    ("*", "receipts", "The receipts of connections that were asked for one."),
    ("*", "received", "Devices that proved that they got the event live."),
    (
        "*",
        "rejected",
        "Devices whose notification the provider refused for good, by reason; docs/outcomes.md explains each.",
    ),
    ("*", "removed", "The number of removed subscriptions."),
    ("*", "scope", "`everything`, or the part that it is about."),
    ("*", "selector", "An expression that selects devices."),
    ("*", "state", "Its state; docs/outcomes.md explains each."),
    ("*", "status", "Its status."),
    ("*", "store", "Whether the store accepts writes."),
    ("*", "listeners", "The listeners of the server."),
    ("*", "providers", "The state of each provider."),
    ("*", "subject", "The subject, as `kind:key`."),
    (
        "*",
        "subjects",
        "The subjects of the event. Its audience are the devices that subscribed to its topic on one of them.",
    ),
    ("*", "subscribed", "The number of new subscriptions."),
    ("*", "subscriptions", "The device's subscriptions."),
    ("*", "superseded", "Devices to which a newer event with the same `collapse_key` was sent instead."),
    ("*", "suppressed", "Devices that were not handed to a provider, by reason; docs/outcomes.md explains each."),
    ("*", "text", "The event's own texts."),
    ("*", "currency", "The currency (ISO 4217)."),
    (
        "*",
        "default_zone",
        "With the zone `device`: the zone for devices that have stored none; by default the offset of `datetime`.",
    ),
    ("*", "digits", "The digits of its fraction; by default as many as it needs, at most 3."),
    ("*", "style", "How long it is."),
    (
        "*",
        "zone",
        "The zone in which it is shown, or `device`: that of each device. By default as `datetime` is written.",
    ),
    ("*", "time_to", "When the provider's answers came, counted from the event's acceptance; absent before the first."),
    (
        "*",
        "time_to_by",
        "The same by provider; under `live`, when devices had proven over their connections that they have it.",
    ),
    ("*", "time_zone", "The time zone of the device, by its name in the IANA database."),
    ("*", "to", "The recipients, instead of the subscribed devices."),
    ("*", "token", "The device's address at its provider."),
    ("*", "topic", "The kind of event."),
    ("*", "topics", "The kinds of events."),
    ("*", "trace_id", "Its trace, if it is in one."),
    ("*", "tree", "The number of devices for each part."),
    ("*", "unknown", "Devices whose notification was sent, but whose provider did not answer."),
    ("*", "unmuted", "Those of them that have not muted everything."),
    ("*", "until", "When it ends."),
    ("*", "updated", "The number of existing devices that were changed."),
    ("*", "urgency", "How urgent the notification is for a phone that saves its battery."),
    ("*", "user", "The user of the device."),
    ("*", "warnings", "What is probably a mistake; absent if there is nothing."),
    ("*", "web_push", "A browser's push subscription."),
    ("*", "written", "Connections to which it was written and that were asked for a receipt."),
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
