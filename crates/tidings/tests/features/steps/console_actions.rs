//! What people change in the console, and what they cannot.

use cucumber::{given, then, when};
use serde_json::json;

use super::{Person, PhoneName};
use crate::console::{Event, MENU, Now, Question, Texts, Why};
use crate::world::World;

/// What the button says that lets go what is held.
const RESUME: &str = "Resume";

#[given(expr = "{person} pauses {string} in the console")]
#[when(expr = "{person} pauses {string} in the console")]
async fn pauses(world: &mut World, person: Person, scope: String) {
    Now::open(world.console(&person).await).await.pause(&scope).await;
}

#[when(expr = "{person} resumes {string} in the console")]
async fn resumes(world: &mut World, person: Person, scope: String) {
    Now::open(world.console(&person).await).await.resume(&scope).await;
}

#[then(expr = "{person} is asked for the number of devices, {string}")]
async fn is_asked(world: &mut World, person: Person, number: String) {
    let text = Question::here(world.console(&person).await).await.text().await;
    assert!(text.contains(&format!("{number} devices wait for it. Type this number")), "{text}");
}

#[when(expr = "{person} types the number {string}")]
async fn types(world: &mut World, person: Person, number: String) {
    Question::here(world.console(&person).await).await.answer(&number, RESUME).await;
}

#[when(expr = "{person} cancels the event in the console")]
async fn cancels(world: &mut World, person: Person) {
    let id = world.last_told().id.clone();
    Event::open(world.console(&person).await, &id).await.cancel().await;
    world.taken_back.insert(id);
}

#[when(expr = "{person} reads the texts again on the page \"Translations\"")]
async fn reads_again(world: &mut World, person: Person) {
    Texts::open(world.console(&person).await).await.read_again().await;
}

#[when(expr = "{person} goes back to the texts before")]
async fn goes_back(world: &mut World, person: Person) {
    Texts::open(world.console(&person).await).await.go_back().await;
}

#[when(expr = "{person} rehearses a test called {string} for {phone}")]
async fn rehearses(world: &mut World, person: Person, title: String, phone: PhoneName) {
    let device = world.phone(&phone).id.clone();
    let why = Why::of(world.console(&person).await, &device).await;
    why.rehearse_test(&title).await;
    let event = why.event().await;
    world.note_told(event);
}

#[then(expr = "{person} reads that the dry run was accepted")]
async fn rehearsed(world: &mut World, person: Person) {
    let text = world.console(&person).await.text().await;
    assert!(text.contains("The dry run is accepted"), "{text}");
}

#[when(expr = "{person} pushes the test called {string} to {phone}")]
async fn pushes(world: &mut World, person: Person, title: String, phone: PhoneName) {
    let device = world.phone(&phone).id.clone();
    let console = world.console(&person).await;
    console.expect(&device).await;
    let why = Why::here(console).await;
    why.push_test(&title).await;
    let event = why.event().await;
    world.note_told(event);
}

#[then(expr = "{person} finds no button that changes anything, on any page, on that of the event or of {phone}")]
async fn finds_no_button(world: &mut World, person: Person, phone: PhoneName) {
    let (device, event) = (world.phone(&phone).id.clone(), world.last_told().id.clone());
    let console = world.console(&person).await;
    let expect_none = async |page: &str| {
        let buttons = console.acting_buttons().await;
        assert!(buttons.is_empty(), "{page} has {buttons:?}");
    };
    for page in MENU {
        console.choose(page).await;
        expect_none(page).await;
    }
    Event::open(console, &event).await;
    expect_none(&event).await;
    Why::of(console, &device).await;
    expect_none(&device).await;
}

#[when(expr = "{person} sends what the button \"Pause\" sends, without having it")]
async fn forges(world: &mut World, person: Person) {
    let answer =
        world.console(&person).await.forge("pause", json!({ "scope": "everything", "back": "/console" })).await;
    world.page_answer = Some(answer);
}

#[then("the console refuses it, as a viewer changes nothing")]
async fn refuses(world: &mut World) {
    let (status, text) = world.page_answer.take().expect("somebody has sent something");
    assert!(status == 403 && text.contains("A viewer changes nothing."), "{status}: {text}");
}

#[then("no pause is in force")]
async fn no_pause(world: &mut World) {
    assert_eq!(world.backend().await.pauses().await, Vec::<String>::new());
}
