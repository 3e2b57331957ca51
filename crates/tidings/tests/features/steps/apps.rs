//! What apps do, and what they get.

use std::time::Duration;

use cucumber::{given, then, when};
use tidings_types::{Format, Variant};
use tokio::time::{Instant, sleep_until};

use super::{Person, PhoneName, PlaceName};
use crate::app::{App, Company, End, Identity};
use crate::backend::{Progress, connection_token};
use crate::doorman;
use crate::wait::{PATIENCE, until};
use crate::world::{Claim, World};

/// For so long after connecting, the server asks nobody for receipts; and some.
const QUIET: Duration = Duration::from_millis(1_100);

#[given(expr = "{person}'s app uses {place}")]
#[when(expr = "{person}'s app uses {place}")]
async fn uses(world: &mut World, person: Person, place: PlaceName) {
    world.app_places.insert((*person).to_owned(), place.into());
}

#[given(expr = "{person}'s app speaks Protobuf")]
async fn speaks_protobuf(world: &mut World, person: Person) {
    world.protobuf.insert((*person).to_owned());
}

#[given(expr = "{person}'s app is connected")]
async fn connected(world: &mut World, person: Person) {
    world.connect(&person, Claim::Nothing, None).await;
}

#[given(expr = "{person}'s app is connected and follows {string}")]
async fn following(world: &mut World, person: Person, channel: String) {
    world.connect(&person, Claim::Nothing, None).await;
    world.app(&person).follow(&channel).await;
}

#[given(expr = "{person}'s app is connected and follows {string} for the team {string} only")]
async fn following_team(world: &mut World, person: Person, channel: String, team: String) {
    world.connect(&person, Claim::Nothing, None).await;
    world.app(&person).follow_team(&channel, &team).await;
}

#[given(expr = "{person}'s app is connected over a slow line and follows {string} with the newest per key")]
async fn following_newest(world: &mut World, person: Person, channel: String) {
    world.connect(&person, Claim::Nothing, None).await;
    world.app(&person).follow_newest(&channel).await;
}

#[given(expr = "{person}'s app in the language {string} is connected and follows {string}")]
async fn following_in_language(world: &mut World, person: Person, locale: String, channel: String) {
    world.languages.insert((*person).to_owned(), locale);
    following(world, person, channel).await;
}

#[given(expr = "{person}'s token names {string}")]
async fn token_names(world: &mut World, person: Person, channel: String) {
    world.named_channels.entry((*person).to_owned()).or_default().push(channel);
}

#[given(expr = "{person}'s app is connected by server-sent events and follows {string}")]
async fn following_a_stream(world: &mut World, person: Person, channel: String) {
    world.streaming.insert((*person).to_owned());
    following(world, person, channel).await;
}

#[given(expr = "{person}'s app is on the screen, connected and follows {string}")]
async fn on_the_screen(world: &mut World, person: Person, channel: String) {
    world.connect(&person, Claim::Credential(&person.phone()), Some(true)).await;
    world.app(&person).follow(&channel).await;
}

#[given(expr = "{person}'s app is in the background, connected and follows {string}")]
async fn in_the_background(world: &mut World, person: Person, channel: String) {
    world.connect(&person, Claim::Credential(&person.phone()), Some(false)).await;
    world.app(&person).follow(&channel).await;
}

#[given(expr = "{person}'s app is on the screen, connected by a token for {phone} and follows {string}")]
async fn by_token(world: &mut World, person: Person, phone: PhoneName, channel: String) {
    world.connect(&person, Claim::Token(&phone), Some(true)).await;
    world.app(&person).follow(&channel).await;
}

#[given(expr = "{person}'s app is on the screen, says that it is {phone} and follows {string}")]
async fn pretending(world: &mut World, person: Person, phone: PhoneName, channel: String) {
    world.connect(&person, Claim::Name(&phone), Some(true)).await;
    world.app(&person).follow(&channel).await;
}

#[given(expr = "an app with the old credential of {phone} is on the screen and follows {string}")]
async fn with_old_credential(world: &mut World, phone: PhoneName, channel: String) {
    world.connect("Somebody", Claim::OldCredential(&phone), Some(true)).await;
    world.app("Somebody").follow(&channel).await;
}

#[given(expr = "{person}'s app has been connected for a while")]
async fn for_a_while(world: &mut World, person: Person) {
    sleep_until(world.app(&person).connected_at() + QUIET).await;
}

#[given(expr = "{person}'s app goes to the background")]
async fn hides(world: &mut World, person: Person) {
    world.app(&person).hide().await;
}

#[given(expr = "{person}'s app says that it is on the screen for {int} second(s), and then nothing more")]
async fn visible_for(world: &mut World, person: Person, seconds: u64) {
    world.app(&person).show(seconds).await;
    sleep_until(Instant::now() + Duration::from_secs(seconds)).await;
}

#[given(expr = "{person}'s app hangs")]
async fn hangs(world: &mut World, person: Person) {
    world.app(&person).hang().await;
}

#[given(expr = "{person}'s app loses its connection")]
#[when(expr = "{person}'s app loses its connection")]
async fn loses_connection(world: &mut World, person: Person) {
    world.app(&person).lose_connection().await;
}

#[when(expr = "the server waits for {person}'s app")]
async fn waits_for(world: &mut World, person: Person) {
    let (backend, id) = (world.backend().await, world.last_told().id.clone());
    let held = async || matches!(backend.progress(&id).await, Progress::Running { held: 1 }).then_some(());
    until(&format!("the server waits for {person}'s app"), PATIENCE, held).await;
}

#[when(expr = "{person}'s app comes back")]
async fn comes_back(world: &mut World, person: Person) {
    let addr = world.app_addr(&person).await;
    world.app(&person).come_back(addr).await;
}

#[when(expr = "{person}'s app loses its connection and comes back")]
async fn loses_connection_and_comes_back(world: &mut World, person: Person) {
    world.app(&person).lose_connection().await;
    let addr = world.app_addr(&person).await;
    world.app(&person).come_back(addr).await;
}

#[when(expr = "{person}'s app leaves {string} and wakes up")]
async fn leaves_and_wakes_up(world: &mut World, person: Person, channel: String) {
    world.app(&person).leave_and_wake_up(&channel).await;
}

#[when(expr = "{person}'s app answers a ping that never came")]
async fn pongs(world: &mut World, person: Person) {
    world.app(&person).pong().await;
}

#[given(expr = "the backend decides who comes in, and lets in {person}, into {string}")]
async fn decides(world: &mut World, person: Person, channel: String) {
    world.open_door(&person, channel).await;
}

#[given(expr = "{person}'s app comes without a token")]
async fn comes_without_token(world: &mut World, person: Person) {
    world.tokenless.insert((*person).to_owned());
    world.connect(&person, Claim::Nothing, None).await;
}

#[when(expr = "{person}'s app tries to come without a token")]
async fn tries_without_token(world: &mut World, person: Person) {
    world.tokenless.insert((*person).to_owned());
    world.refused_connection = world.try_to_connect(&person, Claim::Nothing, None).await.err();
}

#[then("the connection is refused as the backend said")]
async fn refused_by_backend(world: &mut World) {
    assert_eq!(world.refused_connection, Some(End::Closed(doorman::UNKNOWN)));
}

#[then(expr = "the backend was asked about {person}, once")]
async fn was_asked(world: &mut World, person: Person) {
    assert_eq!(world.doorman().asked(), [person.to_lowercase()]);
}

#[given(expr = "{person}'s page listens to {string} without a word")]
async fn listens(world: &mut World, person: Person, channel: String) {
    world.listen(&person, channel).await;
}

/// Another one behind them: what came twice has come by then.
#[then(expr = "{person}'s page has got the {int} events about {string}, in order, once")]
async fn page_has_got(world: &mut World, person: Person, count: usize, subject: String) {
    assert_eq!(world.told.len(), count, "the sentence counts events that nobody told of");
    let last = world.event("goal", &subject);
    world.tell(last).await;
    let told = world.told_ids();
    let last = told.last().expect("it was told");
    assert_eq!(world.listener(&person).events_until(last).await, told, "what {person}'s page got, and what was told");
}

#[when("somebody connects with a token that is not ours")]
async fn stranger(world: &mut World) {
    let token = Ok(connection_token("a-secret-that-a-stranger-has-made-up", "ada", None, &[]));
    let addr = world.server().await.app_addr();
    let identity =
        Identity { token, device: None, visible: None, locale: None, variant: Variant::websocket(Format::Json) };
    world.refused_connection = App::connect(addr, identity).await.err();
}

#[then("the connection is refused")]
async fn connection_refused(world: &mut World) {
    assert_eq!(world.refused_connection, Some(End::Closed(3500)), "invalid token");
}

#[then(expr = "{person}'s app gets the event once")]
async fn gets_it(world: &mut World, person: Person) {
    gets_all(world, person, 1).await;
}

#[then(expr = "{person}'s app shows {string}")]
async fn shows(world: &mut World, person: Person, title: String) {
    assert_eq!(world.app(&person).titles(1).await, [title]);
}

#[then(expr = "{person}'s app gets the {int} events it missed, in order, once")]
#[then(expr = "{person}'s app has got the {int} events, in order, once")]
async fn gets_all(world: &mut World, person: Person, count: usize) {
    let told = world.told_ids();
    assert_eq!(told.len(), count, "the sentence counts events that nobody told of");
    let got = world.app(&person).events(count).await;
    assert_eq!(got, told, "what {person}'s app got, and what was told");
    assert!(!world.app(&person).was_told_of_gap(), "{person}'s app is told that it missed something");
}

#[then(expr = "{person}'s app gets no event")]
async fn gets_none(world: &mut World, person: Person) {
    assert_eq!(world.app(&person).events(0).await, Vec::<String>::new(), "what {person}'s app got");
}

#[then(expr = "{person}'s app gets the publications {int} and {int}")]
async fn gets_two(world: &mut World, person: Person, one: usize, other: usize) {
    gets_numbered(world, &person, &[one, other]).await;
}

#[then(expr = "{person}'s app gets the publications {int}, {int} and {int}")]
async fn gets_three(world: &mut World, person: Person, one: usize, two: usize, three: usize) {
    gets_numbered(world, &person, &[one, two, three]).await;
}

#[then(expr = "{person}'s app gets the publications {int}, {int}, {int} and {int}")]
async fn gets_four(world: &mut World, person: Person, one: usize, two: usize, three: usize, four: usize) {
    gets_numbered(world, &person, &[one, two, three, four]).await;
}

async fn gets_numbered(world: &mut World, person: &str, numbers: &[usize]) {
    let expected: Vec<String> = numbers.iter().map(|number| format!("publication-{number}")).collect();
    assert_eq!(world.app(person).events(numbers.len()).await, expected, "what {person}'s app got");
}

#[then(expr = "{person}'s app has seen {string} come, {string} come and {string} go")]
async fn has_seen(world: &mut World, person: Person, first: String, second: String, third: String) {
    let expected = [(Company::Comes, first), (Company::Comes, second), (Company::Goes, third)];
    assert_eq!(world.app(&person).company(expected.len()).await, expected);
}

#[then(expr = "{person}'s and {person}'s apps get the same {int} events in the same order")]
async fn get_the_same(world: &mut World, one: Person, other: Person, count: usize) {
    let told = world.told_ids();
    let (left, right) = (world.app(&one).events(count).await, world.app(&other).events(count).await);
    assert_eq!(left, right, "what {one} and {other} got");
    assert_eq!((left, told.len()), (told, count), "what they got, and what was told");
}

#[then(expr = "{person}'s app is told that it missed something")]
async fn told_of_gap(world: &mut World, person: Person) {
    assert!(world.app(&person).was_told_of_gap(), "{person}'s app believes that it missed nothing");
}

#[then(expr = "{person}'s app has been connected all the time")]
async fn has_stayed(world: &mut World, person: Person) {
    let (connection_count, end) = world.app(&person).connections();
    assert_eq!((connection_count, end), (1, None), "how often {person}'s app has connected, and how that ended");
}

#[then(expr = "{person}'s app is disconnected")]
async fn disconnected(world: &mut World, person: Person) {
    let end = world.app(&person).end().await;
    assert!(matches!(end, End::Closed(_)), "without a reason: {end:?}");
}

#[then(expr = "{person}'s app is disconnected with code {int}")]
async fn disconnected_with(world: &mut World, person: Person, code: u16) {
    assert_eq!(world.app(&person).end().await, End::Closed(code));
}
