//! Google, and the Android phones that it reaches.

use cucumber::{given, then, when};
use tidings_simulator::{Faults, FcmReason};

use super::PhoneName;
use crate::phone::{APP, Reach};
use crate::wait::{PATIENCE, until};
use crate::world::World;

#[given(expr = "Google takes {int} messages a minute")]
async fn quota(world: &mut World, count: u32) {
    world.google_quota = Some(count);
}

#[given("Google gives nobody access for now")]
async fn closed(world: &mut World) {
    let closed = Faults { token_endpoint_down: true, ..Faults::default() };
    world.google().set_faults(closed).expect("the faults are within their ranges");
}

#[given(expr = "{phone}, which Google reaches, is subscribed to {string} of {string}")]
async fn android(world: &mut World, phone: PhoneName, topic: String, subject: String) {
    let google = world.google();
    let (account, ca_pem, port) = (google.service_account_json(), google.ca_pem().to_owned(), google.addr().port());
    world.write("account.json", &account);
    world.write("google.pem", &ca_pem);
    world.settings += &format!(
        "[fcm.simulator]\nservice_account_file = \"account.json\"\nca_file = \"google.pem\"\nhost = \"localhost\"\n\
         port = {port}\napps = [\"{APP}\"]\n"
    );
    if let Some(count) = world.google_quota {
        world.settings += &format!("quota_per_minute = {count}\n");
    }
    world.server().await;
    world.register(&phone, |phone| phone.reach = Reach::Google).await;
    world.subscribe(&phone, topic, subject).await;
}

#[when("Google has refused access")]
async fn has_refused(world: &mut World) {
    let ledger = world.google().ledger().clone();
    let refused = async || (ledger.rejected_total(FcmReason::Unavailable) > 0).then_some(());
    until("Google refuses access", PATIENCE, refused).await;
}

#[when("Google gives access again")]
async fn open(world: &mut World) {
    world.google().set_faults(Faults::default()).expect("no faults are within their ranges");
}

#[then(expr = "{phone} shows the goal, once")]
async fn delivers(world: &mut World, phone: PhoneName) {
    world.settle().await;
    let token = world.phone(&phone).token.clone();
    let got = world.google().ledger().for_token(&token);
    assert!(matches!(&got[..], [one] if one.count == 1 && one.title.as_deref() == Some("Goal for Sweden!")), "{got:?}");
}
