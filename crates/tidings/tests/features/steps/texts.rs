//! What becomes of the texts while the server runs.

use cucumber::when;

use crate::server::{BACKEND_KEY, Server};
use crate::world::World;

const POLISH: &str = "locales/pl/LC_MESSAGES/messages.po";

#[when(expr = "the translators change the Polish {string} to {string}")]
async fn translated(world: &mut World, from: String, to: String) {
    world.server().await.edit(POLISH, &from, &to);
}

#[when(expr = "the English {string} is changed to {string} and merged into the translations")]
async fn mended(world: &mut World, from: String, to: String) {
    let server = world.server().await;
    merge(server);
    server.edit("tidings.toml", &from, &to);
    merge(server);
}

fn merge(server: &Server) {
    for word in ["extract", "merge"] {
        server.run_in_each(&["translations", word]);
    }
}

#[when("the operator reloads the texts")]
async fn reloads(world: &mut World) {
    let (is_done, told) = reload(world).await;
    assert!(is_done, "{told}");
}

#[when(expr = "the operator reloads the texts, and is told of the mistake {string}")]
async fn reloads_wrong_ones(world: &mut World, mistake: String) {
    let (is_done, told) = reload(world).await;
    assert!(!is_done && told.contains(&mistake), "{told}");
}

async fn reload(world: &mut World) -> (bool, String) {
    let server = world.server().await;
    let url = format!("http://{}", server.addr());
    server.run(&["translations", "reload", "--url", &url, "--api-key", BACKEND_KEY])
}
