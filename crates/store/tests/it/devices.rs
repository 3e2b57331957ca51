//! Devices, tokens, subscriptions and imports: what is kept, what moves, what is limited.

use tidings_store::{GoneToken, ImportError, NewDevice, NewImport, Precondition, PutTerms, Store, SubscribeError};
use tidings_types::{AppId, Country, DeviceNumber, DeviceToken, JournalPosition, Platform, Timestamp};

use crate::support::*;

#[tokio::test]
async fn a_new_device_gets_a_credential_once_and_is_owed_what_comes_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    store.append_events(vec![new_event("before", 1, &[])], T0).await.unwrap();
    let registered = store.put_device(device("phone", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    assert!(registered.created);
    assert_eq!((registered.device.since, registered.device.token_at), (JournalPosition(2), T0));
    let credential = registered.credential.unwrap();
    assert_eq!(credential.as_str().len(), 43, "32 bytes in base64url");
    store.append_events(vec![new_event("after", 1, &[])], T0).await.unwrap();
    let later = Timestamp(T0.0 + 1);
    let again = store.put_device(device("phone", Some(token(1))), PutTerms::default(), later).await.unwrap();
    assert_eq!((again.created, again.credential), (false, None));
    assert_eq!((again.device.since, again.device.token_at), (JournalPosition(2), later));
    store.close().await;
    let (store, _) = open(folder.path());
    assert_eq!(store.device(&id("phone")).unwrap(), Some(again.device));
    let number = Some(DeviceNumber(0));
    assert_eq!(store.prove(&id("phone"), Some(credential.as_str())).unwrap(), number);
    assert_eq!(store.prove(&id("phone"), Some("guess")).unwrap(), None);
    assert_eq!(store.prove(&id("other"), Some(credential.as_str())).unwrap(), None);
    assert_eq!(store.prove(&id("phone"), None).unwrap(), number, "proven by other means");
    assert_eq!(store.prove(&id("other"), None).unwrap(), None);
    assert!(!format!("{credential:?} {store:?}").contains(credential.as_str()));
}

#[tokio::test]
async fn a_token_moves_to_the_device_that_registered_it_last() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    store.put_device(device("old", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    store.put_device(device("new", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    for restarted in [false, true] {
        assert_eq!(store.device(&id("old")).unwrap().unwrap().token, None);
        assert_eq!(sending_token(&store, "old"), Some(None), "restarted: {restarted}");
        assert_eq!(sending_token(&store, "new"), Some(Some(token(1))));
        // The old device comes back with a token of its own; that of the new one stays.
        store.put_device(device("old", Some(token(2))), PutTerms::default(), T0).await.unwrap();
        store.put_device(device("old", None), PutTerms::default(), T0).await.unwrap();
    }
    // A token that its device gave up belongs to nobody: taking it takes from nobody.
    store.put_device(device("new", Some(token(3))), PutTerms::default(), T0).await.unwrap();
    store.put_device(device("old", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    assert_eq!(sending_token(&store, "new"), Some(Some(token(3))));
}

#[tokio::test]
async fn an_apns_token_that_spells_a_token_of_another_provider_takes_it_from_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let fcm = DeviceToken::fcm("abc").unwrap();
    let spelt = DeviceToken::from(&b"fcm\0abc"[..]);
    let twice = DeviceToken::from(&b"apns\0fcm\0abc"[..]);
    for (name, token) in [("victim", &fcm), ("thief", &spelt), ("other", &twice)] {
        store.put_device(device(name, Some(token.clone())), PutTerms::default(), T0).await.unwrap();
    }
    for (name, token) in [("victim", fcm.clone()), ("thief", spelt), ("other", twice)] {
        assert_eq!(sending_token(&store, name), Some(Some(token)), "{name}");
    }
    // Nor does it know whose it is any worse.
    store.delete_device(&id("thief"), Precondition::None).await.unwrap();
    store.put_device(device("next", Some(fcm.clone())), PutTerms::default(), T0).await.unwrap();
    assert_eq!((sending_token(&store, "victim"), sending_token(&store, "next")), (Some(None), Some(Some(fcm))));
}

#[tokio::test]
async fn a_providers_gone_takes_the_token_it_is_about_and_no_newer_registration() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    store.put_device(device("phone", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    let number = store.device_number(&id("phone")).unwrap().unwrap();
    let gone = |byte, gone_at| token_gone(&store, number, token(byte), gone_at);
    assert!(!gone(1, Some(Timestamp(T0.0 - 1))).await.unwrap(), "registered again after the provider's moment");
    assert!(!gone(2, None).await.unwrap(), "another token by now");
    assert!(!token_gone(&store, DeviceNumber(99), token(1), None).await.unwrap(), "no such device");
    assert_eq!(sending_token(&store, "phone"), Some(Some(token(1))));
    assert!(gone(1, Some(T0)).await.unwrap());
    assert_eq!(sending_token(&store, "phone"), Some(None));
    store.put_device(device("phone", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    let twice = vec![GoneToken { number, token: token(1), gone_at: None }; 2];
    assert_eq!(store.tokens_gone(twice).await.unwrap(), 1, "the second finds it gone, in the same batch");
}

#[tokio::test]
async fn subscriptions_have_a_limit_per_device_and_go_singly_or_by_subject() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.subscription_count_max = 4;
    let (store, _) = open_with(config);
    let pick =
        |subject_name: &str, topics: &[&str]| (subject(subject_name), topics.iter().map(|name| topic(name)).collect());
    let phone = id("phone");
    assert_eq!(store.subscribe(&phone, vec![]).await, Err(SubscribeError::NotFound));
    store.put_device(device("phone", None), PutTerms::default(), T0).await.unwrap();
    assert_eq!(store.subscribe(&phone, vec![pick("team:1", &["goal", "goal", "card"])]).await, Ok(2));
    assert_eq!(store.subscribe(&phone, vec![pick("team:1", &["goal"]), pick("team:2", &["goal"])]).await, Ok(1));
    let too_many = store.subscribe(&phone, vec![pick("team:3", &["goal", "card"])]).await;
    assert_eq!(too_many, Err(SubscribeError::TooMany { limit: 4, count: 5 }));
    assert_eq!(audience(&store, "goal", &["team:3"]), [], "nothing of a refused request is done");
    assert_eq!(audience(&store, "goal", &["team:1", "team:2"]), [DeviceNumber(0)]);
    assert_eq!(store.unsubscribe(&phone, vec![pick("team:1", &[]), pick("team:2", &["card"])]).await, Ok(2));
    assert_eq!(store.subscriptions(&phone).unwrap(), Some(vec![pick("team:2", &["goal"])]));
    assert_eq!(store.subscribe(&phone, vec![pick("team:3", &["goal", "card", "start"])]).await, Ok(3), "room again");
}

#[tokio::test]
async fn requests_of_one_batch_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let phone = id("phone");
    let selection = || vec![(subject("team:1"), vec![topic("goal")])];
    // Queued together; the first batch may hold only the first of them, all that matters is that none needs a pause.
    let (put, subscribed, deleted, put_again, subscriptions) = tokio::join!(
        store.put_device(device("phone", Some(token(1))), PutTerms::default(), T0),
        store.subscribe(&phone, selection()),
        store.delete_device(&phone, Precondition::None),
        store.put_device(device("phone", Some(token(1))), PutTerms::default(), T0),
        store.subscribe(&phone, selection()),
    );
    assert!(put.unwrap().created && put_again.unwrap().created);
    assert_eq!((subscribed, deleted, subscriptions), (Ok(1), Ok(true), Ok(1)));
    assert_eq!(audience(&store, "goal", &["team:1"]), [DeviceNumber(1)], "the first number is never used again");
    assert_eq!(sending_token(&store, "phone"), Some(Some(token(1))));
    let counts = store.counts();
    assert_eq!((counts.devices, counts.subscriptions), (1, 1));
}

#[tokio::test]
async fn an_import_is_quick_to_repeat_and_gives_no_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let devices = || {
        (0..2500u32).map(|n| {
            let mut new = device(&format!("d{n}"), None);
            new.token = Some(n.to_be_bytes().as_slice().into());
            import(new, vec![(subject("team:1"), topic("goal")), (subject(&format!("team:{}", n % 7)), topic("card"))])
        })
    };
    let imported = store.import_devices(devices().collect(), None, T0).await.unwrap();
    assert_eq!((imported.created, imported.updated, imported.subscribed), (2500, 0, 5000));
    let again = store.import_devices(devices().collect(), None, T0).await.unwrap();
    assert_eq!((again.created, again.updated, again.subscribed), (0, 2500, 0));
    assert_eq!(audience(&store, "goal", &["team:1", "team:2"]).len(), 2500);
    store.close().await;
    let (store, _) = open(folder.path());
    assert_eq!(audience(&store, "card", &["team:1", "team:2"]).len(), 714);
    assert_eq!(store.prove(&id("d1"), Some("")).unwrap(), None);
    let mut tokens = 0;
    let numbers: Vec<_> = (0..3000).map(DeviceNumber).collect();
    assert_eq!(store.with_recipients(&numbers, |recipient| tokens += usize::from(recipient.token.is_some())), 2500);
    assert_eq!(tokens, 2500);
    let wide = (0..101).map(|n| (subject(&format!("match:{n}")), topic("goal"))).collect();
    let chunk = vec![import(device("fine", None), vec![]), import(device("wide", None), wide)];
    let refused = store.import_devices(chunk, None, T0).await;
    let source = SubscribeError::TooMany { limit: 100, count: 101 };
    assert!(matches!(refused, Err(ImportError::Device { source: found, .. }) if found == source));
    assert_eq!(store.device(&id("fine")).unwrap(), None, "a chunk is done as a whole or not at all");
}

#[tokio::test]
async fn an_import_that_fills_a_device_to_its_limit_can_be_repeated_and_makes_no_token_newer() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let all = |count: usize| (0..count).map(|n| (subject(&format!("team:{n}")), topic("goal"))).collect::<Vec<_>>();
    let import = |count| store.import_devices(vec![import(device("d", Some(token(1))), all(count))], None, T0);
    assert_eq!(import(60).await.unwrap().subscribed, 60);
    assert_eq!(import(100).await.unwrap().subscribed, 40);
    assert_eq!(import(100).await.unwrap().subscribed, 0);
    assert!(import(101).await.is_err());
    let number = store.device_number(&id("d")).unwrap().unwrap();
    let earlier = Timestamp(T0.as_millis() - 1);
    assert!(
        token_gone(&store, number, token(1), Some(earlier)).await.unwrap(),
        "an import says nothing about the token's life"
    );
}

fn of_user(name: &str, user_name: Option<&str>) -> NewDevice {
    NewDevice { user: user_name.map(user), ..device(name, None) }
}

#[tokio::test]
async fn a_user_is_told_on_all_devices_and_a_device_belongs_to_whom_it_registered_for_last() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    for name in ["phone", "tablet"] {
        store.put_device(of_user(name, Some("ann")), PutTerms::default(), T0).await.unwrap();
    }
    let watch = NewDevice { country: Some(Country::new("SE").unwrap()), ..of_user("watch", None) };
    store.put_device(watch, PutTerms::default(), T0).await.unwrap();
    let [phone, tablet, watch] =
        ["phone", "tablet", "watch"].map(|name| store.device_number(&id(name)).unwrap().unwrap());
    assert_eq!(audience(&store, "whatever", &["user:ann"]), [phone, tablet]);
    store.subscribe(&id("watch"), vec![(subject("user:ann"), vec![topic("goal")])]).await.unwrap();
    store.subscribe(&id("phone"), vec![(subject("team:1"), vec![topic("goal")])]).await.unwrap();
    assert_eq!(audience(&store, "goal", &["team:1", "user:ann"]), [phone, tablet, watch], "each once");
    assert_eq!(named(&store, &["ann", "nobody"], &["watch", "nothing"]), [phone, tablet, watch]);
    assert_eq!(named(&store, &[], &["watch", "watch", "phone"]), [phone, watch], "not who subscribed");
    store.put_device(of_user("tablet", Some("bob")), PutTerms::default(), T0).await.unwrap();
    store.put_device(of_user("phone", Some("ann")), PutTerms::default(), T0).await.unwrap();
    for restarted in [false, true] {
        assert_eq!(named(&store, &["ann"], &[]), [phone], "restarted: {restarted}");
        assert_eq!(audience(&store, "whatever", &["user:bob"]), [tablet]);
        let mut countries = Vec::new();
        store.with_recipients(&[phone, watch], |recipient| countries.push(recipient.country.cloned()));
        assert_eq!(countries, [None, Some(Country::new("SE").unwrap())]);
        store.close().await;
        store = open(folder.path()).0;
    }
    store.delete_device(&id("tablet"), Precondition::None).await.unwrap();
    assert_eq!(named(&store, &["bob"], &["tablet"]), []);
}

#[tokio::test]
async fn logging_out_parts_device_and_user_and_leaves_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    assert_eq!(store.log_out(&id("phone")).await.unwrap(), None);
    assert_eq!(store.rotate_credential(&id("phone")).await.unwrap(), None);
    let new = NewDevice { token: Some(token(1)), ..of_user("phone", Some("ann")) };
    let first = store.put_device(new.clone(), PutTerms::default(), T0).await.unwrap().credential.unwrap();
    store.subscribe(&id("phone"), vec![(subject("team:1"), vec![topic("goal"), topic("card")])]).await.unwrap();
    let (number, second) = store.rotate_credential(&id("phone")).await.unwrap().unwrap();
    assert_eq!(named(&store, &["ann"], &[]), [number], "a new secret changes nothing else");
    store.append_events(vec![new_event("hers", 1, &[])], T0).await.unwrap();
    let (same_number, third) = store.log_out(&id("phone")).await.unwrap().unwrap();
    assert_eq!(same_number, number);
    let since = |store: &Store| {
        let mut since = Vec::new();
        store.with_recipients(&[number], |recipient| since.push(recipient.since.0));
        since
    };
    for restarted in [false, true] {
        for old in [&first, &second] {
            assert_eq!(store.prove(&id("phone"), Some(old.as_str())).unwrap(), None, "restarted: {restarted}");
        }
        assert_eq!(store.prove(&id("phone"), Some(third.as_str())).unwrap(), Some(number));
        assert_eq!((named(&store, &["ann"], &[]), audience(&store, "goal", &["team:1"])), (vec![], vec![]));
        assert_eq!(store.subscriptions(&id("phone")).unwrap(), Some(vec![]));
        assert_eq!(since(&store), [2], "what waits to be pushed was for its former user");
        assert_eq!((store.counts().subscriptions, sending_token(&store, "phone")), (0, Some(Some(token(1)))));
        store.close().await;
        store = open(folder.path()).0;
    }
    // The next user of the phone: registering again gives no secret away.
    let again = store.put_device(NewDevice { user: Some(user("bob")), ..new }, PutTerms::default(), T0).await.unwrap();
    assert_eq!((again.created, again.credential), (false, None));
    assert_eq!(store.prove(&id("phone"), Some(third.as_str())).unwrap(), Some(number));
    assert_eq!(named(&store, &["bob"], &[]), [number]);
}

#[tokio::test]
async fn an_imported_secret_counts_and_is_shown_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let with = |credential: Option<&str>| {
        vec![NewImport {
            credential: credential.map(|text| text.to_owned().into()),
            ..import(device("phone", None), vec![])
        }]
    };
    let proves = |text| store.prove(&id("phone"), Some(text)).unwrap().is_some();
    store.import_devices(with(Some("brought along")), None, T0).await.unwrap();
    assert!(proves("brought along") && !proves(""));
    assert!(!format!("{:?}", with(Some("brought along"))).contains("brought"));
    store.import_devices(with(None), None, T0).await.unwrap();
    assert!(proves("brought along"), "an import that says nothing of it changes nothing");
    store.import_devices(with(Some("another")), None, T0).await.unwrap();
    assert!(proves("another") && !proves("brought along"));
}

#[tokio::test]
async fn devices_come_in_pages_in_the_order_of_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    for name in ["d", "b", "a", "c"] {
        store.put_device(device(name, None), PutTerms::default(), T0).await.unwrap();
    }
    store.delete_device(&id("b"), Precondition::None).await.unwrap();
    let page = |after: Option<&str>, limit| {
        let devices = store.devices(after.map(id).as_ref(), limit).unwrap();
        devices.iter().map(|device| device.id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2), ["a", "c"]);
    assert_eq!(page(Some("c"), 2), ["d"]);
    assert_eq!(page(Some("b"), 9), ["c", "d"], "after an id that is not there");
    assert_eq!((page(Some("d"), 2), page(None, 0)), (vec![], vec![]));
}

#[tokio::test]
async fn a_token_is_proven_from_its_first_acceptance_until_it_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    let phone = || device("phone", Some(token(1)));
    let number = store.put_device(phone(), PutTerms::default(), T0).await.map(|_| DeviceNumber(0)).unwrap();
    assert!(!is_proven(&store, "phone"));
    store.put_device(device("mute", None), PutTerms::default(), T0).await.unwrap();
    store.devices_proven(vec![number, DeviceNumber(1), DeviceNumber(99), number]).await.unwrap();
    for restarted in [false, true] {
        assert!(is_proven(&store, "phone") && !is_proven(&store, "mute"), "restarted: {restarted}");
        assert_eq!(store.counts().proven, 1);
        store.close().await;
        store = open(folder.path()).0;
    }
    store.put_device(phone(), PutTerms::default(), Timestamp(T0.0 + 1)).await.unwrap();
    store.log_out(&id("phone")).await.unwrap();
    assert!(is_proven(&store, "phone"), "the address is the same");
    let elsewhere = NewDevice { app: AppId::new("com.example.other").unwrap(), ..phone() };
    for other in [device("phone", Some(token(2))), device("phone", None), elsewhere] {
        store.put_device(phone(), PutTerms::default(), T0).await.unwrap();
        store.devices_proven(vec![number]).await.unwrap();
        assert!(is_proven(&store, "phone"));
        store.put_device(other, PutTerms::default(), T0).await.unwrap();
        assert!(!is_proven(&store, "phone"));
    }
    let prove = async || {
        store.put_device(phone(), PutTerms::default(), T0).await.unwrap();
        store.devices_proven(vec![store.device_number(&id("phone")).unwrap().unwrap()]).await.unwrap();
        assert_eq!((is_proven(&store, "phone"), store.counts().proven), (true, 1));
    };
    prove().await;
    token_gone(&store, number, token(1), None).await.unwrap();
    assert!(!is_proven(&store, "phone") && store.counts().proven == 0);
    prove().await;
    store.put_device(device("mute", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    assert!(!is_proven(&store, "phone") && !is_proven(&store, "mute") && store.counts().proven == 0);
    prove().await;
    store.delete_device(&id("phone"), Precondition::None).await.unwrap();
    assert_eq!(store.counts().proven, 0);
    store.close().await;
    assert_eq!(open(folder.path()).0.counts().proven, 0);
}

#[tokio::test]
async fn an_import_may_say_that_tokens_are_proven() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let say = |byte, proven| vec![NewImport { proven, ..import(device("phone", Some(token(byte))), vec![]) }];
    for (byte, says, is) in [(1, false, false), (1, true, true), (1, false, true), (2, false, false), (3, true, true)] {
        store.import_devices(say(byte, says), None, T0).await.unwrap();
        assert_eq!(is_proven(&store, "phone"), is, "{byte} {says}");
    }
    store
        .import_devices(vec![NewImport { proven: true, ..import(device("phone", None), vec![]) }], None, T0)
        .await
        .unwrap();
    assert_eq!(store.counts().proven, 0, "without a token there is nothing to prove");
}

#[tokio::test]
async fn a_browser_is_known_by_its_endpoint_and_proven_with_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let key = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    let token = |auth| DeviceToken::web_push("https://push.example/x", key, auth).unwrap();
    let (old, new) = (token("BTBZMqHH6r4Tts7J_aSIgg"), token("CTBZMqHH6r4Tts7J_aSIgg"));
    let browser =
        |name, token: &DeviceToken| NewDevice { platform: Platform::Web, ..device(name, Some(token.clone())) };
    store.put_device(browser("tab", &old), PutTerms::default(), T0).await.unwrap();
    store.devices_proven(vec![DeviceNumber(0)]).await.unwrap();
    store.put_device(browser("tab", &new), PutTerms::default(), T0).await.unwrap();
    assert_eq!((sending_token(&store, "tab"), is_proven(&store, "tab")), (Some(Some(new.clone())), false));
    // The same address from another device moves, whatever its keys; and is gone as a whole.
    store.put_device(browser("other", &old), PutTerms::default(), T0).await.unwrap();
    assert_eq!((sending_token(&store, "tab"), sending_token(&store, "other")), (Some(None), Some(Some(old))));
    assert!(token_gone(&store, DeviceNumber(1), new, None).await.unwrap());
    assert_eq!(sending_token(&store, "other"), Some(None));
}

/// While the committer is busy with an import, the others gather and become one batch.
#[tokio::test]
async fn a_token_that_is_replaced_in_the_batch_that_proves_it_is_not_proven() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    store.put_device(device("phone", Some(token(1))), PutTerms::default(), T0).await.unwrap();
    let others = (0..1000).map(|n| import(device(&format!("d{n}"), None), vec![])).collect();
    let (_, proven, put) = tokio::join!(
        store.import_devices(others, None, T0),
        store.devices_proven(vec![DeviceNumber(0)]),
        store.put_device(device("phone", Some(token(2))), PutTerms::default(), T0),
    );
    proven.unwrap();
    put.unwrap();
    assert_eq!((is_proven(&store, "phone"), store.counts().proven), (false, 0));
}

#[tokio::test]
async fn a_device_with_another_user_is_owed_nothing_that_was_for_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let mut since = Vec::new();
    for (event, user) in [("e1", None), ("e2", Some("ann")), ("e3", Some("ann")), ("e4", Some("bob")), ("e5", None)] {
        let put = store.put_device(of_user("phone", user), PutTerms::default(), T0).await.unwrap();
        since.push(put.device.since.0);
        store.append_events(vec![new_event(event, 1, &[])], T0).await.unwrap();
    }
    assert_eq!(since, [1, 1, 1, 4, 5], "what nobody was told may be told to its first user");
    store.put_device(of_user("phone", Some("ann")), PutTerms::default(), T0).await.unwrap();
    store.import_devices(vec![of_user("phone", Some("bob")).into()], None, T0).await.unwrap();
    assert_eq!(store.device(&id("phone")).unwrap().unwrap().since.0, 6);
}
