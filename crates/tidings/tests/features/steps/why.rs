//! Why a phone got an event, or not.

use cucumber::then;

use super::PhoneName;
use crate::wait::{PATIENCE, until};
use crate::world::World;

#[then(expr = "it is said of {phone} and the event that it is {string}")]
async fn is_said_to_be(world: &mut World, phone: PhoneName, verdict: String) {
    let why = world.ask_why(&phone).await;
    assert_eq!(why.verdict, verdict, "{why:?}");
}

#[then(expr = "it is said of {phone} and the event in the end that it is {string}")]
async fn is_said_to_be_in_the_end(world: &mut World, phone: PhoneName, verdict: String) {
    let look = async || (world.ask_why(&phone).await.verdict == verdict).then_some(());
    until("the verdict is that", PATIENCE, look).await;
}

#[then(expr = "the steps are {string}")]
async fn went_through(world: &mut World, steps: String) {
    assert_eq!(world.why().steps.join(", "), steps);
}

#[then(expr = "it is said that {string}")]
async fn said(world: &mut World, sentence: String) {
    let why = world.why();
    assert!(why.because.contains(&sentence), "{why:?}");
}
