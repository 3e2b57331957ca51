//! Changes of a device on a condition: two who change it at once do not overwrite each other unseen.

use tidings_store::{ChangeError, NewDevice, Precondition, PutTerms, Registered, Store, WriteError};
use tidings_types::Timestamp;

use crate::support::*;

async fn put(store: &Store, device: NewDevice, precondition: Precondition) -> Result<Registered, ChangeError> {
    store.put_device(device, PutTerms { precondition, ..PutTerms::default() }, T0).await
}

#[tokio::test]
async fn a_device_is_put_only_where_the_precondition_holds() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let phone = || device("phone", None);
    for impossible in [Precondition::Present, Precondition::Revision(0), Precondition::Revision(1)] {
        let refused = put(&store, phone(), impossible).await;
        assert_eq!(refused, Err(ChangeError::PreconditionFailed { revision: None }), "{impossible:?}");
    }
    let first = put(&store, phone(), Precondition::Absent).await.unwrap();
    let revision = first.device.revision;
    assert!(first.created && revision > 0);
    assert_eq!(store.device(&id("phone")).unwrap().unwrap(), first.device, "what is answered is what is kept");
    for impossible in [Precondition::Absent, Precondition::Revision(revision + 1), Precondition::Revision(0)] {
        let refused = put(&store, phone(), impossible).await;
        assert_eq!(refused, Err(ChangeError::PreconditionFailed { revision: Some(revision) }), "{impossible:?}");
    }
    let refused = put(&store, phone(), Precondition::Absent).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("the precondition does not hold: the device has revision {revision}"));
    let second = put(&store, phone(), Precondition::Revision(revision)).await.unwrap().device.revision;
    assert!(second > revision);
    assert!(put(&store, phone(), Precondition::Present).await.unwrap().device.revision > second);
}

#[tokio::test]
async fn of_two_who_change_the_same_state_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let seen = put(&store, device("phone", None), Precondition::None).await.unwrap().device.revision;
    let condition = Precondition::Revision(seen);
    let mine = NewDevice { user: Some(user("ann")), ..device("phone", None) };
    let phone = id("phone");
    let (first, second) = tokio::join!(put(&store, mine, condition), store.delete_device(&phone, condition));
    let revision = Some(first.unwrap().device.revision);
    assert_eq!(second, Err(ChangeError::PreconditionFailed { revision }), "they were in one batch, or in two");
}

#[tokio::test]
async fn every_change_but_that_of_the_day_makes_another_revision_and_none_comes_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = open(folder.path());
    let revision = |store: &Store| store.device(&id("phone")).unwrap().unwrap().revision;
    let mut seen =
        vec![put(&store, device("phone", Some(token(1))), Precondition::None).await.unwrap().device.revision];
    let phone = id("phone");
    let step = |store: &Store, seen: &mut Vec<u64>, what: &str| {
        let now = revision(store);
        assert!(seen.iter().all(|earlier| *earlier < now), "{what}: {now} after {seen:?}");
        seen.push(now);
    };
    store.rotate_credential(&phone).await.unwrap();
    step(&store, &mut seen, "rotated");
    put(&store, device("other", Some(token(1))), Precondition::None).await.unwrap();
    step(&store, &mut seen, "lost its token to another");
    put(&store, device("phone", Some(token(2))), Precondition::None).await.unwrap();
    step(&store, &mut seen, "put");
    let number = store.device_number(&phone).unwrap().unwrap();
    assert!(token_gone(&store, number, token(2), None).await.unwrap());
    step(&store, &mut seen, "token gone");
    store.log_out(&phone).await.unwrap();
    step(&store, &mut seen, "logged out");
    store.delete_device(&phone, Precondition::Present).await.unwrap();
    store.close().await;
    store = open(folder.path()).0;
    put(&store, device("phone", None), Precondition::Absent).await.unwrap();
    step(&store, &mut seen, "deleted and registered again");
    let last = revision(&store);
    store.touch(&phone, Timestamp(T0.0 + 48 * 3_600_000)).await.unwrap();
    store.mute(&phone, mute("everything", None), T0).await.unwrap();
    assert_eq!(revision(&store), last, "the device is as it was");
}

#[tokio::test]
async fn a_device_is_deleted_only_where_the_precondition_holds() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let phone = id("phone");
    assert_eq!(store.delete_device(&phone, Precondition::None).await, Ok(false));
    assert_eq!(store.delete_device(&phone, Precondition::Absent).await, Ok(false));
    let refused = store.delete_device(&phone, Precondition::Present).await;
    assert_eq!(refused, Err(ChangeError::PreconditionFailed { revision: None }));
    let revision = put(&store, device("phone", None), Precondition::None).await.unwrap().device.revision;
    let refused = store.delete_device(&phone, Precondition::Revision(revision - 1)).await;
    assert_eq!(refused, Err(ChangeError::PreconditionFailed { revision: Some(revision) }));
    assert_eq!(store.delete_device(&phone, Precondition::Revision(revision)).await, Ok(true));
    store.close().await;
    let closed = store.delete_device(&phone, Precondition::Present).await;
    assert_eq!(closed, Err(ChangeError::Write(WriteError::Unavailable)), "nobody knows what is there");
}
