//! What people see in the console, page by page, and how they get in. What they change there: `console_actions`.

use cucumber::{given, then, when};

use super::{Person, PhoneName};
use crate::console::{Audience, Channel, Event, Feeds, MENU, Now, Providers, Row, System, Why};
use crate::world::World;

/// As the page "Providers" calls the provider of the features.
const APPLE: &str = "APNs, simulator";

#[given(expr = "a console, with {person} as an operator and {person} as a viewer")]
async fn console(world: &mut World, operator: Person, viewer: Person) {
    world.settings += "[console]\nenabled = true\n";
    world.let_into_console(&operator, &["publish", "read", "devices", "audit", "operate"]);
    world.let_into_console(&viewer, &["publish", "read", "devices", "audit"]);
}

#[given(expr = "{person}'s browser runs no scripts")]
async fn no_scripts(world: &mut World, person: Person) {
    world.console(&person).await.forbid_scripts().await;
}

#[when(expr = "{person} tries to log in to the console with the key {string}")]
async fn tries_to_log_in(world: &mut World, person: Person, key: String) {
    world.login_page(&person).await.log_in(&key).await;
}

#[when(expr = "{person} logs in to the console")]
async fn logs_in(world: &mut World, person: Person) {
    world.console(&person).await;
}

#[when(expr = "{person} logs out of the console")]
async fn logs_out(world: &mut World, person: Person) {
    world.console(&person).await.log_out().await;
}

#[then(expr = "{person} is on the page {string}, as an operator")]
async fn is_on(world: &mut World, person: Person, page: String) {
    let console = world.console(&person).await;
    console.expect(&page).await;
    assert_eq!(console.who().await, format!("{} operator", person.to_lowercase()));
}

#[then(expr = "the console asks {person} for a key, whichever page she wants")]
async fn asks_for_key(world: &mut World, person: Person) {
    let console = world.console(&person).await;
    for path in ["/console", "/console/events", "/console/system"] {
        console.go(path).await;
        assert!(console.asks_for_key().await, "{path} shows {:?}", console.heading().await);
    }
}

#[then(expr = "{person} reads the note {string}")]
async fn reads_note(world: &mut World, person: Person, words: String) {
    world.console(&person).await.expect_note(&words).await;
}

#[given(expr = "{person} looks at the page {string}")]
#[when(expr = "{person} looks at the page {string}")]
async fn looks_at(world: &mut World, person: Person, page: String) {
    let console = world.console(&person).await;
    console.choose(&page).await;
    console.remember().await;
}

#[then(expr = "every page of the menu opens for {person}")]
async fn every_page(world: &mut World, person: Person) {
    let console = world.console(&person).await;
    for page in MENU {
        console.choose(page).await;
    }
}

#[then(expr = "{person} sees the event finish, for {int} device, without loading the page again")]
async fn sees_it_finish(world: &mut World, person: Person, devices: u64) {
    let id = world.last_told().id.clone();
    let console = world.console(&person).await;
    let now = Now::here(console).await;
    let finished = async || now.event(&id).await.filter(|row| row["State"] == "Finished");
    let row = console.until(&format!("{id} is shown as finished"), finished).await;
    assert_eq!(row["Devices"], devices.to_string(), "{row:?}");
    assert!(console.is_same().await, "the page was loaded again");
}

#[when(expr = "{person} opens the event from the page \"Events\"")]
async fn opens_event(world: &mut World, person: Person) {
    world.settle().await;
    let id = world.last_told().id.clone();
    Event::open(world.console(&person).await, &id).await;
}

#[then(expr = "{person} reads that it was for {int} devices")]
async fn reads_devices(world: &mut World, person: Person, count: u64) {
    let event = Event::here(world.console(&person).await).await;
    assert_eq!(event.devices().await.expect("it is counted").value, count.to_string());
}

#[then(expr = "{person} reads that {int} of them is {string}")]
async fn reads_outcome(world: &mut World, person: Person, count: u64, outcome: String) {
    read_outcome(world, &person, count, &outcome).await;
}

#[then(expr = "{person} reads that {int} of them is {string}, because of {string}")]
async fn reads_reason(world: &mut World, person: Person, count: u64, outcome: String, reason: String) {
    let reasons = read_outcome(world, &person, count, &outcome).await;
    assert_eq!(reasons, [format!("{reason}: {count}")]);
}

/// The reasons of an outcome that so many devices have.
async fn read_outcome(world: &mut World, person: &str, count: u64, outcome: &str) -> Vec<String> {
    let outcomes = Event::here(world.console(person).await).await.outcomes().await;
    let found = outcomes.iter().find(|it| it.name == outcome).unwrap_or_else(|| panic!("{outcome}: {outcomes:?}"));
    assert_eq!(found.count, count, "{outcomes:?}");
    found.reasons.clone()
}

#[when(expr = "{person} asks on the page \"Why\" about {phone} and the event")]
async fn asks_why(world: &mut World, person: Person, phone: PhoneName) {
    world.settle().await;
    let (device, event) = (world.phone(&phone).id.clone(), world.last_told().id.clone());
    Why::ask(world.console(&person).await, &device, &event).await;
}

#[then(expr = "{person} reads the verdict {string}")]
async fn reads_verdict(world: &mut World, person: Person, verdict: String) {
    assert_eq!(Why::here(world.console(&person).await).await.told().await.verdict, verdict);
}

#[then(expr = "{person} reads the reason {string}")]
async fn reads_because(world: &mut World, person: Person, reason: String) {
    let reasons = Why::here(world.console(&person).await).await.told().await.reasons;
    assert!(reasons.contains(&reason), "{reasons:?}");
}

#[then(expr = "the page shows {person} by itself that Apple is {string}")]
async fn provider_is(world: &mut World, person: Person, state: String) {
    let console = world.console(&person).await;
    let providers = Providers::here(console).await;
    let is_so = async || providers.of(APPLE).await.filter(|text| text.contains(&state)).map(drop);
    console.until(&format!("{APPLE} is {state}"), is_so).await;
    assert!(console.is_same().await, "the page was loaded again");
}

#[then(expr = "the page tells {person} to look at the network")]
async fn provider_advice(world: &mut World, person: Person) {
    let text = Providers::here(world.console(&person).await).await.of(APPLE).await;
    assert!(text.as_ref().is_some_and(|text| text.contains("Look at the network")), "{text:?}");
}

#[when(expr = "{person} counts {string} on the page \"Audience\"")]
async fn counts(world: &mut World, person: Person, selector: String) {
    Audience::count(world.console(&person).await, &selector).await;
}

#[then(expr = "{person} reads that this means {int} device, and that {string} alone means {int}")]
async fn reads_count(world: &mut World, person: Person, count: u64, part: String, of_part: u64) {
    let audience = Audience::here(world.console(&person).await).await;
    assert_eq!(audience.devices().await, count.to_string());
    let parts = audience.parts().await;
    let is_so = |row: &Row| row["Part"] == part && row["Devices"] == of_part.to_string();
    assert!(parts.iter().any(is_so), "{parts:?}");
}

#[then(expr = "{person} comes from there to {phone}")]
async fn comes_to(world: &mut World, person: Person, phone: PhoneName) {
    let device = world.phone(&phone).id.clone();
    let console = world.console(&person).await;
    Audience::here(console).await.open_device(&device).await;
    console.expect(&device).await;
}

#[given(expr = "{person} watches the channel {string} for a minute")]
async fn watches(world: &mut World, person: Person, channel: String) {
    let console = world.console(&person).await;
    let channel = Channel::open(console, &channel).await;
    assert_eq!(channel.readers().await, "1");
    channel.watch().await;
    console.remember().await;
}

#[then(expr = "{person} sees {int} publication come by itself, and not {string}")]
async fn sees_publication(world: &mut World, person: Person, count: usize, words: String) {
    let console = world.console(&person).await;
    let channel = Channel::here(console).await;
    let come = async || Some(channel.publications().await).filter(|all| !all.is_empty());
    let all = console.until("a publication is shown", come).await;
    assert_eq!(all.len(), count, "{all:?}");
    assert!(console.is_same().await, "the page was loaded again");
    assert!(all[0]["Publication"].ends_with(" bytes") && !console.text().await.contains(&words), "{all:?}");
}

#[when(expr = "{person} asks to see what is said in {string}")]
async fn asks_what_is_said(world: &mut World, person: Person, name: String) {
    let console = world.console(&person).await;
    console.expect(&name).await;
    Channel::here(console).await.show_what_is_said().await;
}

#[then(expr = "{person} reads {string} in the publication")]
async fn reads_publication(world: &mut World, person: Person, words: String) {
    let all = Channel::here(world.console(&person).await).await.publications().await;
    assert!(matches!(&all[..], [one] if one["Publication"].contains(&words)), "{all:?}");
}

#[then(expr = "{person} reads on the page \"Feeds\" that {int} entries were sent and {int} was wrong")]
async fn reads_feed(world: &mut World, person: Person, sent: u64, wrong: u64) {
    let feeds = Feeds::open(world.console(&person).await).await;
    assert_eq!(feeds.total().await, format!("{sent} sent, 0 repeated, 0 skipped, {wrong} wrong"));
}

#[then(expr = "{person} reads there that the wrong entry lacks its {string}")]
async fn reads_wrong_entry(world: &mut World, person: Person, field: String) {
    let entries = Feeds::open(world.console(&person).await).await.wrong_entries().await;
    assert!(entries.contains(&field), "{entries}");
}

#[then(expr = "{person} reads that there are {int} devices and {int} subscription")]
async fn reads_store(world: &mut World, person: Person, devices: u64, subscriptions: u64) {
    let tile = System::here(world.console(&person).await).await.devices().await.expect("it is shown");
    assert_eq!((tile.value, tile.more), (devices.to_string(), format!("{subscriptions} subscriptions")));
}

#[then(expr = "{person} gets the same as JSON")]
async fn same_as_json(world: &mut World, person: Person) {
    let console = world.console(&person).await;
    let shown = System::here(console).await.devices().await.expect("it is shown").value;
    let store = &console.json().await["system"]["store"];
    assert_eq!(store["devices"].to_string(), shown, "{store}");
}

#[then(expr = "{person} reads on the page \"System\" that {string} did {string} and then {string} to {string}")]
async fn audited(world: &mut World, person: Person, who: String, first: String, then: String, what: String) {
    let log = System::open(world.console(&person).await).await.audit_log().await;
    let by =
        |action: &str| log.iter().position(|row| row["Who"] == who && row["What"] == action && row["Of what"] == what);
    let (first, then) = (by(&first), by(&then));
    assert!(matches!((first, then), (Some(first), Some(then)) if then < first), "the newest is first: {log:?}");
}
