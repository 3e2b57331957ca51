//! What is kept of a user: found by user and by address, and forgotten as a whole.

use tidings_store::{
    ChangeError, ImportError, NewDevice, NewImport, PutTerms, Store, SubscribeError, USER_DEVICE_COUNT_MAX,
};
use tidings_types::{DeviceNumber, Timestamp};

use crate::support::*;

fn of(owner: &str, name: &str, byte: Option<u8>) -> NewDevice {
    NewDevice { user: Some(user(owner)), ..device(name, byte.map(token)) }
}

async fn put(store: &Store, device: NewDevice) {
    store.put_device(device, PutTerms::default(), T0).await.unwrap();
}

#[tokio::test]
async fn a_users_devices_are_listed_page_by_page_in_the_order_of_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    for name in ["e", "b", "d", "a", "c"] {
        put(&store, of("ann", name, None)).await;
    }
    put(&store, of("bob", "bobs", None)).await;
    put(&store, of("bob", "c", None)).await; // It changes hands.
    let page = |store: &Store, after: Option<&str>, limit| -> Vec<String> {
        let devices = store.devices_of_user(&user("ann"), after.map(id).as_ref(), limit).unwrap();
        let exported = store.export_of_user(&user("ann"), after.map(id).as_ref(), limit).unwrap();
        assert!(exported.devices.iter().map(|exported| &exported.device).eq(&devices), "an export has the same");
        assert!(exported.last.is_none_or(|last| devices.len() == limit && last == devices[limit - 1].id));
        devices.iter().map(|device| device.id.to_string()).collect()
    };
    for restarted in [false, true] {
        assert_eq!(page(&store, None, 10), ["a", "b", "d", "e"], "restarted: {restarted}");
        assert_eq!(page(&store, None, 2), ["a", "b"]);
        assert_eq!(page(&store, Some("b"), 2), ["d", "e"]);
        assert_eq!(page(&store, Some("c"), 1), ["d"], "what the page ended with may be gone");
        assert_eq!((page(&store, Some("e"), 2), page(&store, None, 0)), (vec![], vec![]));
        assert_eq!(store.devices_of_user(&user("nobody"), None, 10).unwrap(), []);
        store.close().await;
        store = open(folder.path()).0;
    }
    store.log_out(&id("a")).await.unwrap();
    assert_eq!(page(&store, None, 10), ["b", "d", "e"]);
}

#[tokio::test]
async fn a_device_is_found_by_its_address_as_long_as_it_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let found = |byte| store.device_by_token(&token(byte)).unwrap().map(|device| device.id);
    put(&store, device("old", Some(token(1)))).await;
    assert_eq!((found(1), found(2)), (Some(id("old")), None));
    put(&store, device("new", Some(token(1)))).await;
    assert_eq!(found(1), Some(id("new")), "an address has one device");
    assert!(token_gone(&store, DeviceNumber(1), token(1), None).await.unwrap());
    assert_eq!(found(1), None);
}

#[tokio::test]
async fn erasing_a_user_takes_every_device_of_his_with_all_that_belongs_to_it() {
    const COUNT: u8 = 40; // More than one step takes.
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    for byte in 0..COUNT {
        let name = format!("hers-{byte}");
        put(&store, of("ann", &name, Some(byte))).await;
        store.subscribe(&id(&name), vec![(subject("team:1"), vec![topic("goal"), topic("card")])]).await.unwrap();
        store.mute(&id(&name), mute("team:2", Some(Timestamp(T0.0 + 1000))), T0).await.unwrap();
    }
    put(&store, of("bob", "his", Some(COUNT))).await;
    store.subscribe(&id("his"), vec![(subject("team:1"), vec![topic("goal")])]).await.unwrap();
    store.devices_proven((0..=u32::from(COUNT)).map(DeviceNumber).collect()).await.unwrap();
    assert_eq!(store.erase_user(&user("nobody")).await, Ok(0));
    assert_eq!(store.erase_user(&user("ann")).await, Ok(u64::from(COUNT)));
    assert_eq!(store.erase_user(&user("ann")).await, Ok(0), "again changes nothing");
    for restarted in [false, true] {
        let counts = store.counts();
        assert_eq!((counts.devices, counts.subscriptions, counts.proven), (1, 1, 1), "restarted: {restarted}");
        assert_eq!(store.export(None, 100).unwrap().devices.len(), 1);
        assert_eq!(audience(&store, "goal", &["team:1", "user:ann"]), [DeviceNumber(u32::from(COUNT))]);
        for byte in 0..COUNT {
            assert_eq!(store.device_by_token(&token(byte)).unwrap(), None);
            assert_eq!(store.prove(&id(&format!("hers-{byte}")), None).unwrap(), None);
        }
        store.close().await;
        store = open(folder.path()).0;
    }
    // Who comes back begins anew.
    put(&store, of("ann", "hers-0", Some(0))).await;
    assert_eq!(store.subscriptions(&id("hers-0")).unwrap(), Some(vec![]));
    assert_eq!(store.mutes(&id("hers-0")).unwrap(), Some(vec![]));
    assert!(!is_proven(&store, "hers-0"));
}

/// Whatever way they come, and whatever comes in the same batch.
#[tokio::test]
async fn a_user_has_so_many_devices_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let hers = |index: u32| of("ann", &format!("hers-{index}"), None);
    let import =
        |devices: Vec<NewDevice>| store.import_devices(devices.into_iter().map(NewImport::from).collect(), None, T0);
    let put = |device| store.put_device(device, PutTerms::default(), T0);
    let (limit, count) = (USER_DEVICE_COUNT_MAX, u64::from(USER_DEVICE_COUNT_MAX) + 1);
    let too_many = ChangeError::TooManyDevices { limit, count };
    let refused = |index, name| {
        let source = SubscribeError::TooManyDevices { limit, count };
        Err(ImportError::Device { index, id: id(name), source })
    };
    import((1..limit).map(hers).collect()).await.unwrap();
    // One more has room: of two at once the first.
    let (one, other) = tokio::join!(put(of("ann", "one", None)), put(of("ann", "other", None)));
    assert_eq!((one.is_ok(), other), (true, Err(too_many)));
    assert!(!put(hers(7)).await.unwrap().created, "what she has is hers");
    assert_eq!(import(vec![of("bob", "his", None), of("ann", "more", None)]).await, refused(1, "more"));
    put(of("bob", "his", None)).await.unwrap();
    assert_eq!(put(of("ann", "his", None)).await, Err(too_many), "it changes hands like a new one");
    assert_eq!(import(vec![of("ann", "his", None)]).await, refused(0, "his"));
    // One goes and another comes, in one chunk and in one batch.
    let swap = |from: &str, to: &str| vec![of("bob", from, None), of("ann", to, None)];
    import(swap("hers-1", "his")).await.unwrap();
    assert_eq!(import([swap("his", "hers-1"), vec![of("ann", "more", None)]].concat()).await, refused(2, "more"));
    let (left, deleted) = (id("hers-2"), id("hers-3"));
    let (gone, come) = tokio::join!(store.log_out(&left), put(of("ann", "more", None)));
    assert!(gone.unwrap().is_some() && come.unwrap().created);
    let (gone, come) = tokio::join!(
        store.delete_device(&deleted, tidings_store::Precondition::None),
        put(of("ann", "even-more", None))
    );
    assert!(gone.unwrap() && come.unwrap().created);
    assert_eq!(put(of("ann", "too-many", None)).await, Err(too_many));
    assert_eq!(store.devices_of_user(&user("ann"), None, usize::MAX).unwrap().len(), limit as usize);
}

#[tokio::test]
async fn erasing_a_user_also_takes_what_was_asked_for_just_before() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    put(&store, of("ann", "left", None)).await;
    put(&store, of("ann", "deleted", None)).await;
    let (deleted, ann) = (id("deleted"), user("ann"));
    // Together in one batch, or in several.
    let (moved, joined, gone, erased) = tokio::join!(
        store.put_device(of("bob", "left", None), PutTerms::default(), T0),
        store.put_device(of("ann", "joined", None), PutTerms::default(), T0),
        store.delete_device(&deleted, tidings_store::Precondition::None),
        store.erase_user(&ann),
    );
    moved.and(joined).unwrap();
    assert_eq!((gone, erased), (Ok(true), Ok(1)));
    let ids: Vec<_> = store.devices(None, 10).unwrap().into_iter().map(|device| device.id).collect();
    assert_eq!(ids, [id("left")]);
}
