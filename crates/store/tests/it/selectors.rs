//! Events for whom a selector means: beside those named, less those that muted, as it is when asked.

use tidings_store::{NewDevice, PutTerms, Store};
use tidings_types::{Country, DeviceNumber, Event, MuteScope, Recipients};

use crate::support::*;

/// Numbers of those who are told of an event about `team:1`.
fn told(store: &Store, users: &[&str], devices: &[&str], selector: &str) -> Vec<u32> {
    let to = Recipients {
        users: users.iter().map(|name| user(name)).collect(),
        devices: devices.iter().map(|name| id(name)).collect(),
        selector: Some(selector.parse().unwrap()),
    };
    // As the journal keeps it.
    let row = serde_json::to_string(&Event { to: Some(to), ..event("asked", 1) }).unwrap();
    let event: Event = serde_json::from_str(&row).unwrap();
    store.select(&event).iter_from(DeviceNumber(0)).map(|number| number.0).collect()
}

#[tokio::test]
async fn who_is_selected_is_told_beside_those_named_until_he_mutes_or_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    let put = async |store: &Store, name: &str, owner: Option<&str>, country: Option<&str>| {
        let (user, country) = (owner.map(user), country.map(|country| Country::new(country).unwrap()));
        let device = NewDevice { user, country, ..device(name, None) };
        store.put_device(device, PutTerms::default(), T0).await.unwrap();
        store.device_number(&id(name)).unwrap().unwrap().0
    };
    let anns = put(&store, "anns", Some("ann"), Some("DE")).await;
    let bobs = put(&store, "bobs", Some("bob"), Some("AT")).await;
    let nobodys = put(&store, "nobodys", None, None).await;
    store.subscribe(&id("bobs"), vec![(subject("team:1"), vec![topic("goal")])]).await.unwrap();
    for restarted in [false, true] {
        let told = |selector| told(&store, &[], &[], selector);
        assert_eq!(told("all"), [anns, bobs, nobodys], "restarted: {restarted}");
        assert_eq!(told("* on team:1 or user = none and country = none"), [bobs, nobodys]);
        assert_eq!(told("locale = sv and platform = ios and not goal on team:1"), [anns, nobodys]);
        assert_eq!(told("country != DE"), [bobs, nobodys]);
        assert_eq!(told("user = nobody_at_all"), [0; 0]);
        store.close().await;
        store = open(folder.path()).0;
    }
    assert_eq!(told(&store, &["ann"], &["nobodys"], "goal on team:1"), [anns, bobs, nobodys]);
    assert_eq!(told(&store, &["bob"], &["bobs"], "user = bob"), [bobs], "each once");

    put(&store, "anns", Some("ann"), Some("AT")).await;
    assert_eq!(told(&store, &[], &[], "country = AT"), [anns, bobs]);
    store.mute(&id("bobs"), mute("team:1", None), T0).await.unwrap();
    assert_eq!(told(&store, &[], &[], "country = AT"), [anns]);
    let explanation = store.explain(&"country = AT and goal on team:1".parse().unwrap());
    let parts: Vec<_> = explanation.root.children.iter().map(|part| (part.text.as_str(), part.count)).collect();
    assert_eq!(parts, [("goal on team:1", 1), ("country = AT", 2)]);
    assert_eq!((explanation.root.count, explanation.unmuted_count, explanation.device_count), (1, 1, 3));
    store.unmute(&id("bobs"), &"team:1".parse::<MuteScope>().unwrap()).await.unwrap();
    assert_eq!(told(&store, &[], &[], "country = AT"), [anns, bobs]);
}
